/* SPDX-License-Identifier: Apache-2.0
 *
 * Concatenation and slices along channels: strided copies of contiguous pieces. In channel blocks the channels
 * of a source are one piece an image, if offsets are whole blocks; row-major images likewise; channels-last ones
 * have a piece a row. An image that fits none of these is asked for row-major.
 *
 *   piece p of source i:  at p * (its piece)  <->  p * (dst's piece) + offset
 */
#include "backend/cpu/cpu_priv.h"

#include <omp.h>

/* Pieces are cut up further, so that few large ones occupy all threads. */
#define SHARE_FLOATS ((int64_t)4096)

/* How a layout of channels is cut: n_pieces of (floats a channel) * channels. */
typedef struct cut {
    int64_t n_pieces, floats_a_channel;
} cut;

static cut cut_of(const ebb_cpu_layout *layout, const ebb_shape *s) {
    int64_t n_rows = 1;
    for (int32_t d = 2; d < s->n_dims; d++) { n_rows *= s->dims[d]; }
    bool last = !layout->plain && layout->rows.n_blocks == 1 && layout->rows.width == s->dims[1];
    return last ? (cut){s->dims[0] * n_rows, 1} : (cut){s->dims[0], n_rows};
}

/* Whether offset and number of channels of all parts are whole blocks of the layout. That the whole is a single
 * block, and so looks channels-last, does not help: its parts would be padded to a block each. */
static bool divides(const ebb_cpu_layout *layout, const ebb_kernel_desc *desc, bool concat) {
    const ebb_operand *whole = concat ? ebb__kernel_out(desc, 0) : &desc->operand[0];
    const int64_t width = layout->rows.width;
    if (width == 0 || whole->shape.dims[1] % width != 0) { return false; }
    if (!concat) { return desc->attr.offset % width == 0 && ebb__kernel_out(desc, 0)->shape.dims[1] % width == 0; }
    for (uint32_t i = 0; i < desc->n_in; i++) {
        if (desc->operand[i].shape.dims[1] % width != 0) { return false; }
    }
    return true;
}

/* The form of the first operand for all, where the channels come out even in it. */
static ebb_status set_layouts(ebb_cpu_device *device, const ebb_kernel_desc *desc, bool concat,
                              ebb_cpu_kernel *kernel) {
    const ebb_operand *whole = concat ? ebb__kernel_out(desc, 0) : &desc->operand[0];
    ebb_layout given = desc->operand[0].layout;
    const ebb_cpu_layout *l = given == EBB_LAYOUT_ANY ? NULL : ebb__cpu_layout(device, given);
    dnnl_format_tag_t tag = ebb__cpu_plain_tag(whole->shape.n_dims);
    if (whole->shape.n_dims == 4 && l != NULL && !l->plain && l->rows.width > 0) {
        bool blocked =
            l->rows.width == device->block && l->rows.n_blocks * l->rows.width >= desc->operand[0].shape.dims[1];
        tag = blocked ? ebb__cpu_blocked_tag(device) : dnnl_nhwc;
    }
    ebb_layout layout = EBB_LAYOUT_ANY;
    EBB_TRY(ebb__cpu_intern_tag(device, &whole->shape, tag, &layout));
    if (tag != dnnl_nhwc && !ebb__cpu_layout(device, layout)->plain &&
        !divides(ebb__cpu_layout(device, layout), desc, concat)) {
        tag = ebb__cpu_plain_tag(whole->shape.n_dims);
    }
    for (uint32_t i = 0; i < ebb__kernel_n_operands(desc); i++) {
        EBB_TRY(ebb__cpu_intern_tag(device, &desc->operand[i].shape, tag, &kernel->layout[i]));
    }
    return EBB_OK;
}

/* ---- running ----------------------------------------------------------------------------------- */

/* n_pieces of n floats, cut into shares; thread by thread. fn: dst = src (+ acc). */
typedef struct strided {
    const float *src, *acc; /* acc: NULL or like dst */
    float *dst;
    int64_t n_pieces, n, src_stride, dst_stride;
} strided;

static void copy_share(const ebb_cpu_simd *simd, const strided *s, int64_t piece, int64_t begin, int64_t n) {
    const float *src = s->src + piece * s->src_stride + begin;
    float *dst = s->dst + piece * s->dst_stride + begin;
    if (s->acc != NULL) {
        simd->add(src, s->acc + piece * s->dst_stride + begin, n, dst);
    } else {
        memcpy(dst, src, (size_t)n * sizeof *dst);
    }
}

static void copy_strided(const ebb_cpu_simd *simd, const strided *s) {
    const int64_t n_shares = (s->n + SHARE_FLOATS - 1) / SHARE_FLOATS;
#pragma omp for schedule(static) nowait
    for (int64_t t = 0; t < s->n_pieces * n_shares; t++) {
        const int64_t begin = t % n_shares * SHARE_FLOATS, left = s->n - begin;
        copy_share(simd, s, t / n_shares, begin, left < SHARE_FLOATS ? left : SHARE_FLOATS);
    }
}

static ebb_status run_concat(const ebb_cpu_kernel *kernel, const ebb_bound *bound) {
    const ebb_cpu_device *device = ebb__cpu_of(kernel);
    const int64_t per_channel = kernel->rows.n_rows, whole = kernel->rows.channels * per_channel;
    const int64_t n_pieces = kernel->rows.n_images;
#pragma omp parallel
    {
        float *dst = bound->at[kernel->n_in];
        for (uint32_t i = 0; i < kernel->n_in; i++) {
            const uint64_t n_floats = ebb__cpu_layout(device, kernel->layout[i])->size_bytes / sizeof(float);
            const int64_t n = (int64_t)n_floats / n_pieces;
            const strided s = {
                .src = bound->at[i], .dst = dst, .n_pieces = n_pieces, .n = n, .src_stride = n, .dst_stride = whole};
            copy_strided(device->simd, &s);
            dst += n;
        }
    }
    return EBB_OK;
}

static ebb_status run_slice(const ebb_cpu_kernel *kernel, const ebb_bound *bound) {
    const ebb_cpu_device *device = ebb__cpu_of(kernel);
    const int64_t per_channel = kernel->rows.n_rows, whole = kernel->rows.channels * per_channel;
    const ebb_layout dst_layout = kernel->layout[kernel->n_in];
    const int64_t n_floats = (int64_t)(ebb__cpu_layout(device, dst_layout)->size_bytes / sizeof(float));
    const int64_t n = n_floats / kernel->rows.n_images;
    const strided s = {.src = (const float *)bound->at[0] + kernel->attr.offset * per_channel,
                       .acc = kernel->n_in > 1 ? bound->at[1] : NULL,
                       .dst = bound->at[kernel->n_in],
                       .n_pieces = kernel->rows.n_images,
                       .n = n,
                       .src_stride = whole,
                       .dst_stride = n};
#pragma omp parallel
    copy_strided(device->simd, &s);
    return EBB_OK;
}

static ebb_status make(ebb_cpu_device *device, const ebb_kernel_desc *desc, bool concat, ebb_cpu_kernel *kernel) {
    EBB_TRY(set_layouts(device, desc, concat, kernel));
    const uint32_t whole = concat ? desc->n_in : 0;
    const cut c = cut_of(ebb__cpu_layout(device, kernel->layout[whole]), &desc->operand[whole].shape);
    kernel->rows = (ebb_cpu_rows){
        .n_images = c.n_pieces, .n_rows = c.floats_a_channel, .channels = desc->operand[whole].shape.dims[1]};
    return EBB_OK;
}

ebb_status ebb__cpu_make_concat(ebb_cpu_device *device, const ebb_kernel_desc *desc, ebb_cpu_kernel *kernel) {
    kernel->run = run_concat;
    return make(device, desc, true, kernel);
}

ebb_status ebb__cpu_make_slice(ebb_cpu_device *device, const ebb_kernel_desc *desc, ebb_cpu_kernel *kernel) {
    kernel->run = run_slice;
    if (desc->n_in > 1) { kernel->base.inplace = 1u << 1; } /* over acc */
    return make(device, desc, false, kernel);
}
