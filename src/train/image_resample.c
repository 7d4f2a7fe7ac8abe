/* SPDX-License-Identifier: Apache-2.0
 *
 * Another size, row by row. Each output pixel is a weighted mean of the source pixels around its place: a
 * triangle as wide as two source pixels, or as two output pixels where the picture shrinks, so that nothing
 * is skipped. Rows are narrowed first and then added to the output rows that they belong to, so that a picture of
 * any height needs one row of memory:
 *
 *      scratch   x.first  x.start  x.weight | y.first  y.start  y.weight | row (C, W in) | narrow (C, W out)
 */
#include "train/data_priv.h"

#include <math.h>

/* Most weights of an axis: each output has at most 2 * max(1, in / out) + 2. */
static size_t axis_weights(int64_t n_in, int64_t n_out) {
    return (size_t)(2 * (n_in > n_out ? n_in : n_out) + 2 * n_out);
}

static size_t axis_bytes(int64_t n_in, int64_t n_out) {
    return (size_t)n_out * 4 + (size_t)(n_out + 1) * 4 + axis_weights(n_in, n_out) * 4;
}

size_t ebb__resample_scratch_bytes(const ebb_resize *size) {
    return axis_bytes(size->in_width, size->width) + axis_bytes(size->in_height, size->height) +
           (size_t)(size->channels * (size->in_width + size->width)) * 4;
}

static void *take(char **scratch, size_t n) {
    void *ptr = *scratch;
    *scratch += n * 4; /* all arrays are of 4-byte numbers */
    return ptr;
}

static void init_axis(ebb_axis *axis, char **scratch, int64_t n_in, int64_t n_out) {
    axis->n_out = n_out;
    axis->first = take(scratch, (size_t)n_out);
    axis->start = take(scratch, (size_t)n_out + 1);
    axis->weight = take(scratch, axis_weights(n_in, n_out));
    const double scale = (double)n_in / (double)n_out;
    const double reach = scale > 1 ? scale : 1;
    uint32_t n = 0;
    for (int64_t o = 0; o < n_out; o++) {
        double centre = ((double)o + 0.5) * scale;
        int64_t first = (int64_t)floor(centre - reach + 0.5), last = (int64_t)floor(centre + reach + 0.5);
        if (first < 0) { first = 0; }
        if (last > n_in) { last = n_in; }
        double sum = 0;
        for (int64_t i = first; i < last; i++) { sum += fmax(0, 1 - fabs((double)i + 0.5 - centre) / reach); }
        axis->first[o] = (uint32_t)first;
        axis->start[o] = n;
        for (int64_t i = first; i < last; i++) {
            axis->weight[n++] = (float)(fmax(0, 1 - fabs((double)i + 0.5 - centre) / reach) / sum);
        }
    }
    axis->start[n_out] = n;
    EBB_ASSERT(n <= axis_weights(n_in, n_out));
}

void ebb__resample_init(ebb_resample *rs, void *scratch, const ebb_resize *size, bool flip) {
    char *at = scratch;
    rs->channels = size->channels;
    rs->flip = flip;
    rs->next = 0;
    init_axis(&rs->x, &at, size->in_width, size->width);
    init_axis(&rs->y, &at, size->in_height, size->height);
    rs->row = take(&at, (size_t)(size->channels * size->in_width));
    rs->narrow = take(&at, (size_t)(size->channels * size->width));
}

static void narrow_row(ebb_resample *rs, int64_t channel, int64_t in_width) {
    const float *src = rs->row + channel * in_width;
    float *dst = rs->narrow + channel * rs->x.n_out;
    for (int64_t o = 0; o < rs->x.n_out; o++) {
        const float *weight = rs->x.weight + rs->x.start[o], *from = src + rs->x.first[o];
        uint32_t n = rs->x.start[o + 1] - rs->x.start[o];
        float sum = 0;
        for (uint32_t i = 0; i < n; i++) { sum += weight[i] * from[i]; }
        dst[rs->flip ? rs->x.n_out - 1 - o : o] = sum;
    }
}

void ebb__resample_add_row(ebb_resample *rs, int64_t y, float *dst) {
    const int64_t width = rs->x.n_out, height = rs->y.n_out;
    const int64_t in_width = (rs->narrow - rs->row) / rs->channels;
    while (rs->next < height) { /* output rows that end before this one are complete */
        uint32_t n = rs->y.start[rs->next + 1] - rs->y.start[rs->next];
        if ((int64_t)rs->y.first[rs->next] + n > y) { break; }
        rs->next++;
    }
    if (rs->next == height || (int64_t)rs->y.first[rs->next] > y) { return; }
    for (int64_t c = 0; c < rs->channels; c++) { narrow_row(rs, c, in_width); }
    for (int64_t o = rs->next; o < height && (int64_t)rs->y.first[o] <= y; o++) {
        uint32_t n = rs->y.start[o + 1] - rs->y.start[o];
        if ((int64_t)rs->y.first[o] + n <= y) { continue; }
        float weight = rs->y.weight[rs->y.start[o] + (uint32_t)(y - rs->y.first[o])];
        for (int64_t c = 0; c < rs->channels; c++) {
            float *to = dst + (c * height + o) * width;
            const float *from = rs->narrow + c * width;
            for (int64_t x = 0; x < width; x++) { to[x] += weight * from[x]; }
        }
    }
}
