/* SPDX-License-Identifier: Apache-2.0
 *
 * The random draws for one image of one epoch. A draw depends on seed, epoch and the image's number, not on the
 * batch or the thread that it falls to.
 */
#include "train/data_priv.h"

#include <math.h>

#define AUGMENT_STREAM 0x6175676d656e7400u
#define CROP_TRIES 10

static ebb_rng draws_of(const ebb_sample *sample) {
    ebb_rng rng;
    uint64_t key[2] = {sample->epoch, sample->image};
    ebb__rng_init(&rng, sample->seed, AUGMENT_STREAM ^ ebb__hash(EBB_HASH_INIT, key, sizeof key));
    return rng;
}

ebb_shift ebb__data_draw_shift(const ebb_sample *sample, int64_t limit, bool flip) {
    ebb_shift shift = {0};
    if (!sample->augment) { return shift; }
    ebb_rng rng = draws_of(sample);
    shift.down = (int64_t)ebb__rng_below(&rng, (uint64_t)(2 * limit + 1)) - limit;
    shift.right = (int64_t)ebb__rng_below(&rng, (uint64_t)(2 * limit + 1)) - limit;
    shift.flip = flip && ebb__rng_unit(&rng) < 0.5f;
    return shift;
}

/* The largest part of the wanted aspect, scaled, from the middle. */
static ebb_crop crop_middle(double image_height, double image_width, double aspect, double scale) {
    ebb_crop crop = {.height = image_height, .width = image_height * aspect};
    if (crop.width > image_width) {
        crop.width = image_width;
        crop.height = image_width / aspect;
    }
    crop.height *= scale;
    crop.width *= scale;
    crop.top = (image_height - crop.height) / 2;
    crop.left = (image_width - crop.width) / 2;
    return crop;
}

ebb_crop ebb__data_draw_crop(const ebb_sample *sample, int64_t image_height, int64_t image_width, int64_t height,
                             int64_t width) {
    const double h = (double)image_height, w = (double)image_width, aspect = (double)width / (double)height;
    if (!sample->augment) { return crop_middle(h, w, aspect, 0.875); }
    ebb_rng rng = draws_of(sample);
    ebb_crop crop = {.flip = ebb__rng_unit(&rng) < 0.5f};
    for (int i = 0; i < CROP_TRIES; i++) {
        /* area between 8 % and all of it, aspect between 3/4 and 4/3, as is usual since Inception */
        double area = h * w * (0.08 + 0.92 * (double)ebb__rng_unit(&rng));
        double ratio = aspect * exp((2.0 * (double)ebb__rng_unit(&rng) - 1.0) * log(4.0 / 3.0));
        crop.width = sqrt(area * ratio);
        crop.height = sqrt(area / ratio);
        double y = (double)ebb__rng_unit(&rng), x = (double)ebb__rng_unit(&rng);
        if (crop.width < 1 || crop.height < 1 || crop.width > w || crop.height > h) { continue; }
        crop.top = y * (h - crop.height);
        crop.left = x * (w - crop.width);
        return crop;
    }
    bool flip = crop.flip;
    crop = crop_middle(h, w, aspect, 1.0);
    crop.flip = flip;
    return crop;
}
