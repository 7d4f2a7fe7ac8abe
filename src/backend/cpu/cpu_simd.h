/* SPDX-License-Identifier: Apache-2.0
 *
 * The inner loops of our own kernels: one core, contiguous memory. The body (cpu_simd_body.h) is compiled once
 * for each instruction set, and the device picks a table when it is opened, so that one build serves every
 * processor.
 *
 * Rows: n_rows times width floats; per-channel arrays have width elements. mask: a bit for each element, row
 * after row, each row from a byte of its own: ebb__cpu_mask_row_bytes(width) bytes.
 */
#ifndef EBB_SRC_CPU_SIMD_H
#define EBB_SRC_CPU_SIMD_H

#include "base/base.h"

static inline int64_t ebb__cpu_mask_row_bytes(int64_t width) {
    return (width + 7) / 8;
}

/* What an update does with an element, worked out once a call. */
typedef struct ebb_cpu_update {
    float learning_rate, momentum, weight_decay;
    float beta1, beta2, epsilon;
    float step, root_correction; /* Adam: learning_rate / (1 - beta1^t); 1 / sqrt(1 - beta2^t) */
    float shrink;                /* AdamW: 1 - learning_rate * weight_decay */
} ebb_cpu_update;

typedef struct ebb_cpu_simd {
    const char *name;
    /* sum += sum of (x - shift), squares += sum of (x - shift)^2, per channel. */
    void (*statistics)(const float *x, int64_t n_rows, int64_t width, const float *shift, double *sum, double *squares);
    /* y = (x - mean) * scale + beta, then a ReLU when relu, its mask when mask is not NULL. */
    void (*normalize)(const float *x, int64_t n_rows, int64_t width, const double *coef, bool relu, uint8_t *mask,
                      float *y);
    /* sum += sum of dy, dot += sum of dy * (x - mean); dy counts as 0 where mask (may be NULL) is 0. */
    void (*gradient_sums)(const float *x, const float *dy, const uint8_t *mask, int64_t n_rows, int64_t width,
                          const float *mean, double *sum, double *dot);
    /* dx = scale * dy - (x - mean) * slope - offset. */
    void (*gradient)(const float *x, const float *dy, const uint8_t *mask, int64_t n_rows, int64_t width,
                     const double *coef, float *dx);
    void (*add)(const float *a, const float *b, int64_t n, float *dst);
    void (*add_relu)(const float *a, const float *b, int64_t n, float *dst);
    void (*relu)(const float *src, int64_t n, float *dst);
    void (*relu_bwd)(const float *diff_dst, const float *dst, int64_t n, float *diff_src);
    void (*sgd)(const ebb_cpu_update *u, const float *g, int64_t n, float *w);
    void (*momentum)(const ebb_cpu_update *u, const float *g, int64_t n, float *w, float *v);
    void (*nesterov)(const ebb_cpu_update *u, const float *g, int64_t n, float *w, float *v);
    void (*adam)(const ebb_cpu_update *u, const float *g, int64_t n, float *w, float *m, float *v);
} ebb_cpu_simd;

/* coef of normalize: mean, scale, beta; of gradient: mean, scale, slope, offset; width each. */

extern const ebb_cpu_simd ebb__cpu_simd_plain;
#if defined(__x86_64__)
extern const ebb_cpu_simd ebb__cpu_simd_avx2;
extern const ebb_cpu_simd ebb__cpu_simd_avx512;
#endif

#endif
