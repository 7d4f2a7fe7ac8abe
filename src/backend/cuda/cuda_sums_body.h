/* SPDX-License-Identifier: Apache-2.0
 *
 * The part of the rows of (n_rows, c) that one thread adds, and pairs of sums in scratch: see cuda_rows.h.
 */
#ifndef EBB_SRC_CUDA_SUMS_BODY_H
#define EBB_SRC_CUDA_SUMS_BODY_H

#include "backend/cuda/cuda_launch_ops.h"
#include "backend/cuda/cuda_quad.h"

typedef enum ebb_cuda_sums_kind {
    EBB_CUDA_STATISTICS, /* a: distances to row 0, b: their squares */
    EBB_CUDA_GRADIENTS,  /* a: x after the mask, b: the same times (src - mean) */
    EBB_CUDA_PLAIN       /* a: x */
} ebb_cuda_sums_kind;

#define EBB_CUDA_ROWS_AT_ONCE 4u /* that a thread loads before it adds */
#define EBB_CUDA_CHAIN 32u       /* that it adds in single precision */

/* Past the first-level cache, which no other block's writes reach. */
EBB_HD void ebb__cuda_put_pair(ebb_cuda_pair *to, ebb_cuda_pair pair) {
#ifdef __CUDA_ARCH__
    __stcg((double2 *)to, make_double2(pair.a, pair.b));
#else
    *to = pair;
#endif
}

EBB_HD ebb_cuda_pair ebb__cuda_get_pair(const ebb_cuda_pair *from) {
#ifdef __CUDA_ARCH__
    const double2 both = __ldcg((const double2 *)from);
    ebb_cuda_pair pair;
    pair.a = both.x;
    pair.b = both.y;
    return pair;
#else
    return *from;
#endif
}

/* Channels c ... c + 3 of a row, or of values of channels; `missing` for those beyond the last. */
EBB_HD ebb_cuda_quad ebb__cuda_row_quad(const float *row, uint64_t c, uint64_t n_channels, bool by_four,
                                        ebb_cuda_quad missing) {
    if (by_four) { return ebb__cuda_load_quad(row + c); }
    for (uint64_t j = 0; j < 4; j++) {
        if (c + j < n_channels) { missing.v[j] = row[c + j]; }
    }
    return missing;
}

EBB_HD unsigned ebb__cuda_row_bits(const uint8_t *mask, uint64_t at, bool by_four) {
    unsigned bits = 0;
    if (mask == NULL) { return 15u; }
    if (by_four) { return ebb__cuda_mask_get(mask, at); }
    for (uint64_t j = 0; j < 4; j++) {
        bits |= (ebb__cuda_mask_get(mask, (at + j) / 4 * 4) >> ((at + j) % 4) & 1u) << j;
    }
    return bits;
}

/* Rows r, r + step, ... of them EBB_CUDA_ROWS_AT_ONCE: loaded together, then added to a and b. A row that is not there
 * has the origin's values, and adds 0. */
EBB_HD void ebb__cuda_add_rows(const ebb_cuda_sums_args *rows, uint64_t r, uint64_t end, uint64_t step, uint64_t c,
                               bool by_four, ebb_cuda_sums_kind kind, ebb_cuda_quad origin, float a[4], float b[4]) {
    const ebb_cuda_quad zeros = {{0.0f, 0.0f, 0.0f, 0.0f}};
    ebb_cuda_quad x[EBB_CUDA_ROWS_AT_ONCE], src[EBB_CUDA_ROWS_AT_ONCE];
    unsigned bits[EBB_CUDA_ROWS_AT_ONCE];
    for (unsigned k = 0; k < EBB_CUDA_ROWS_AT_ONCE; k++) {
        const uint64_t row = r + k * step, first = row * rows->c;
        x[k] = kind == EBB_CUDA_STATISTICS ? origin : zeros;
        src[k] = origin;
        bits[k] = 0;
        if (row >= end) { continue; }
        x[k] = ebb__cuda_row_quad(rows->x + first, c, rows->c, by_four, x[k]);
        if (kind != EBB_CUDA_GRADIENTS) { continue; }
        src[k] = ebb__cuda_row_quad(rows->src + first, c, rows->c, by_four, origin);
        bits[k] = ebb__cuda_row_bits(rows->mask, first + c, by_four);
    }
    for (unsigned k = 0; k < EBB_CUDA_ROWS_AT_ONCE; k++) {
        for (int j = 0; j < 4; j++) {
            float d = x[k].v[j];
            if (kind == EBB_CUDA_STATISTICS) { d -= origin.v[j]; }
            if (kind == EBB_CUDA_GRADIENTS) { d = (bits[k] >> j & 1u) != 0 ? d : 0.0f; }
            a[j] += d;
            if (kind == EBB_CUDA_STATISTICS) { b[j] += d * d; }
            if (kind == EBB_CUDA_GRADIENTS) { b[j] += d * (src[k].v[j] - origin.v[j]); }
        }
    }
}

#endif
