/* SPDX-License-Identifier: Apache-2.0
 *
 * Quotients and remainders of element numbers: GPUs have no 64-bit division, and nearly all numbers are small.
 */
#ifndef EBB_SRC_CUDA_DIVIDE_H
#define EBB_SRC_CUDA_DIVIDE_H

#include "backend/cuda/cuda_each.h"

EBB_HD uint64_t ebb__cuda_quotient(uint64_t a, uint64_t b) {
    return (a | b) >> 32 == 0 ? (uint64_t)((uint32_t)a / (uint32_t)b) : a / b;
}

/* a = quotient * b + the rest, which is returned. */
EBB_HD uint64_t ebb__cuda_divide(uint64_t a, uint64_t b, uint64_t *quotient_out) {
    const uint64_t q = ebb__cuda_quotient(a, b);
    *quotient_out = q;
    return a - q * b;
}

EBB_HD uint64_t ebb__cuda_rest(uint64_t a, uint64_t b) {
    uint64_t quotient;
    return ebb__cuda_divide(a, b, &quotient);
}

#endif
