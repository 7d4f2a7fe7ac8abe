/* SPDX-License-Identifier: Apache-2.0
 *
 * Pixels in memory: what idx, CIFAR, digits and tensors share once their files are read. Pixels stay bytes as the
 * file has them and become normalised floats when a batch is made.
 *
 * Augmentation is the usual one for small pictures: shift by a few pixels, black comes in at the edge, and
 * flip where left and right mean the same.
 */
#include "train/data_priv.h"

#include <inttypes.h>

ebb_status ebb__memory_source_create(const ebb_source_ops *ops, const ebb_mem *mem, ebb_memory_source **source_out) {
    ebb_memory_source *source = ebb__calloc(mem, 1, sizeof *source);
    if (source == NULL) { return EBB_E_NO_MEMORY; }
    source->base.ops = ops;
    source->base.mem = ebb__mem_or_default(mem);
    source->full = 255;
    for (int c = 0; c < 3; c++) { source->deviation[c] = 1; }
    *source_out = source;
    return EBB_OK;
}

void ebb__memory_source_close(ebb_source *base) {
    ebb_memory_source *source = (ebb_memory_source *)base;
    if (source == NULL) { return; }
    const ebb_mem *mem = base->mem;
    ebb__free(mem, source->pixels);
    ebb__free(mem, source->values);
    ebb__free(mem, source->labels);
    ebb__free(mem, source);
}

static ebb_status check_labels(ebb_memory_source *source, int64_t classes, const char *file) {
    for (uint64_t i = 0; i < source->base.n_images; i++) {
        int32_t label = source->labels[i];
        if (label < 0 || label >= classes) {
            return ebb_fail(EBB_E_FORMAT, "%s: record %" PRIu64 ": label %d is not among %" PRId64 " classes", file, i,
                            label, classes);
        }
    }
    return EBB_OK;
}

static int64_t largest_label(const ebb_memory_source *source) {
    int64_t largest = 0;
    for (uint64_t i = 0; i < source->base.n_images; i++) {
        if (source->labels[i] > largest) { largest = source->labels[i]; }
    }
    return largest;
}

static bool is_resized(const ebb_memory_source *source) {
    return source->base.height != source->height || source->base.width != source->width ||
           source->base.channels != source->channels;
}

static ebb_resize resize_of(const ebb_memory_source *source) {
    return (ebb_resize){
        .channels = source->base.channels,
        .in_height = source->height,
        .in_width = source->width,
        .height = source->base.height,
        .width = source->base.width,
    };
}

ebb_status ebb__memory_source_finish(ebb_memory_source *source, const ebb_data_options *options,
                                     int64_t default_classes, const char *file) {
    ebb_source *base = &source->base;
    base->channels = options->channels > 0 ? options->channels : source->channels;
    base->height = options->height > 0 ? options->height : source->height;
    base->width = options->width > 0 ? options->width : source->width;
    if (base->channels != source->channels && base->channels != 1 && source->channels != 1) {
        return ebb_fail(EBB_E_ARGUMENT, "%s: its images have %" PRId64 " channels, not %" PRId64, file,
                        source->channels, base->channels);
    }
    base->classes = options->classes > 0 ? options->classes : default_classes;
    if (base->classes == 0) { base->classes = largest_label(source) + 1; }
    EBB_TRY(check_labels(source, base->classes, file));
    uint64_t image = (uint64_t)(source->channels * source->height * source->width);
    base->held_bytes = base->n_images * (image * (source->pixels != NULL ? 1 : 4) + sizeof(int32_t));
    if (is_resized(source)) {
        const ebb_resize size = resize_of(source);
        base->scratch_bytes = ebb__resample_scratch_bytes(&size) + image * sizeof(float);
    }
    return EBB_OK;
}

/* (height, width) of one channel, normalised and moved. */
static void place_channel(const ebb_memory_source *source, uint64_t image, int64_t channel, const ebb_shift *shift,
                          float *dst) {
    const int64_t h = source->height, w = source->width;
    const uint8_t *src = source->pixels + (image * (uint64_t)source->channels + (uint64_t)channel) * (uint64_t)(h * w);
    const int64_t c = channel < 3 ? channel : 0;
    const float scale = 1.0f / (source->full * source->deviation[c]);
    const float offset = -source->mean[c] / source->deviation[c];
    for (int64_t y = 0; y < h; y++) {
        const int64_t from_y = y - shift->down;
        for (int64_t x = 0; x < w; x++) {
            int64_t from_x = (shift->flip ? w - 1 - x : x) - shift->right;
            bool inside = from_y >= 0 && from_y < h && from_x >= 0 && from_x < w;
            dst[y * w + x] = inside ? (float)src[from_y * w + from_x] * scale + offset : offset;
        }
    }
}

/* One channel becomes several the same, several become their mean; then the size. */
static void resize(const ebb_memory_source *source, const float *image, void *scratch, float *dst) {
    const ebb_source *base = &source->base;
    const int64_t h = source->height, w = source->width;
    const ebb_resize size = resize_of(source);
    ebb_resample rs;
    ebb__resample_init(&rs, scratch, &size, false);
    memset(dst, 0, (size_t)(base->channels * base->height * base->width) * sizeof *dst);
    for (int64_t y = 0; y < h; y++) {
        for (int64_t c = 0; c < base->channels; c++) {
            for (int64_t x = 0; x < w; x++) {
                float value = 0;
                if (base->channels == source->channels || source->channels == 1) {
                    value = image[((source->channels == 1 ? 0 : c) * h + y) * w + x];
                } else {
                    for (int64_t s = 0; s < source->channels; s++) { value += image[(s * h + y) * w + x]; }
                    value /= (float)source->channels;
                }
                rs.row[c * w + x] = value;
            }
        }
        ebb__resample_add_row(&rs, y, dst);
    }
}

ebb_status ebb__memory_source_read(const ebb_source *base, const ebb_sample *sample, void *scratch, float *dst,
                                   int32_t *label_out) {
    const ebb_memory_source *source = (const ebb_memory_source *)base;
    EBB_ASSERT(sample->image < base->n_images);
    const uint64_t plane = (uint64_t)(source->height * source->width), n = (uint64_t)source->channels * plane;
    float *image = is_resized(source) ? scratch : dst;
    if (source->values != NULL) {
        memcpy(image, source->values + sample->image * n, n * sizeof *image);
    } else {
        const ebb_shift shift = ebb__data_draw_shift(sample, source->shift, source->flip);
        for (int64_t c = 0; c < source->channels; c++) {
            place_channel(source, sample->image, c, &shift, image + (uint64_t)c * plane);
        }
    }
    if (image != dst) { resize(source, image, image + n, dst); }
    *label_out = source->labels[sample->image];
    return EBB_OK;
}
