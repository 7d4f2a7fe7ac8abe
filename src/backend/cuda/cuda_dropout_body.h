/* SPDX-License-Identifier: Apache-2.0
 *
 * Dropout's factors on the device: those of dropout_mask.h, bit for bit. An element's word depends on its row-major
 * number, whatever order the elements lie in.
 */
#ifndef EBB_SRC_CUDA_DROPOUT_BODY_H
#define EBB_SRC_CUDA_DROPOUT_BODY_H

#include "backend/cuda/cuda_quad.h"
#include "backend/cuda/cuda_launch_ops.h"
#include "base/philox.h"

/* ebb__hash goes on with a 64-bit number, as it lies in memory. */
EBB_HD uint64_t ebb__cuda_hash_u64(uint64_t h, uint64_t value) {
    for (int i = 0; i < 8; i++) { h = (h ^ (value >> (8 * i) & 0xff)) * 0x100000001b3u; }
    return h;
}

/* ebb__philox's four words. */
EBB_HD void ebb__cuda_philox(uint64_t seed, uint64_t stream, uint64_t counter, uint32_t words[4]) {
    uint32_t c0 = (uint32_t)counter, c1 = (uint32_t)(counter >> 32);
    uint32_t c2 = (uint32_t)stream, c3 = (uint32_t)(stream >> 32);
    uint32_t k0 = (uint32_t)seed, k1 = (uint32_t)(seed >> 32);
    for (int round = 0; round < EBB_PHILOX_ROUNDS; round++) {
        const uint64_t p0 = (uint64_t)EBB_PHILOX_M0 * c0, p1 = (uint64_t)EBB_PHILOX_M1 * c2;
        c0 = (uint32_t)(p1 >> 32) ^ c1 ^ k0;
        c1 = (uint32_t)p1;
        c2 = (uint32_t)(p0 >> 32) ^ c3 ^ k1;
        c3 = (uint32_t)p0;
        k0 += EBB_PHILOX_W0;
        k1 += EBB_PHILOX_W1;
    }
    words[0] = c0;
    words[1] = c1;
    words[2] = c2;
    words[3] = c3;
}

/* The row-major number of element i of (n, hw, c). */
EBB_HD uint64_t ebb__cuda_dropout_number(const ebb_cuda_dropout_args *args, uint64_t i) {
    uint64_t row, image;
    const uint64_t channel = ebb__cuda_divide(i, args->c, &row);
    const uint64_t place = ebb__cuda_divide(row, args->hw, &image);
    return (image * args->c + channel) * args->hw + place;
}

EBB_HD uint32_t ebb__cuda_dropout_word(uint64_t seed, uint64_t stream, uint64_t number) {
    uint32_t w[4];
    ebb__cuda_philox(seed, stream, number / 4, w);
    const uint32_t even = (number & 2u) != 0 ? w[2] : w[0], odd = (number & 2u) != 0 ? w[3] : w[1];
    return (number & 1u) != 0 ? odd : even;
}

/* The words of a quad's elements: row-major, the four of one number; channels last, those of numbers hw apart if no two
 * rows share the quad. */
EBB_HD void ebb__cuda_dropout_words(const ebb_cuda_dropout_args *args, uint64_t seed, uint64_t stream, uint64_t at,
                                    ebb_cuda_fit fit, bool last, uint32_t words[4]) {
    if (!last) {
        ebb__cuda_philox(seed, stream, at / 4, words);
        return;
    }
    const uint64_t first = ebb__cuda_dropout_number(args, at);
    for (uint64_t j = 0; j < 4; j++) {
        const uint64_t number = fit == EBB_CUDA_SOME ? ebb__cuda_dropout_number(args, at + j) : first + j * args->hw;
        words[j] = ebb__cuda_dropout_word(seed, stream, number);
    }
}

EBB_HD void ebb__cuda_drop(const ebb_cuda_dropout_args *args, uint64_t at, ebb_cuda_fit fit, bool last) {
    const uint64_t seed = args->state->seed;
    const uint64_t stream = ebb__cuda_hash_u64(args->stream_hash, args->state->iteration);
    ebb_cuda_quad x[EBB_CUDA_QUADS];
    for (unsigned k = 0; k < EBB_CUDA_QUADS; k++) {
        x[k] = ebb__cuda_load(args->src, at + k * EBB_CUDA_STRIDE, args->n, fit);
    }
    for (unsigned k = 0; k < EBB_CUDA_QUADS; k++) {
        const uint64_t first = at + k * EBB_CUDA_STRIDE;
        uint32_t words[4];
        ebb__cuda_dropout_words(args, seed, stream, first, fit, last, words);
        for (int j = 0; j < 4; j++) {
            const float unit = (float)(words[j] >> 8) * (1.0f / 16777216.0f);
            x[k].v[j] *= unit >= args->p ? args->scale : 0.0f;
        }
        ebb__cuda_store(args->dst, first, args->n, fit, x[k]);
    }
}

EBB_HD void ebb__cuda_dropout_quads(const ebb_cuda_dropout_args *args, uint64_t at, ebb_cuda_fit fit) {
    ebb__cuda_drop(args, at, fit, false);
}

EBB_HD void ebb__cuda_dropout_last_quads(const ebb_cuda_dropout_args *args, uint64_t at, ebb_cuda_fit fit) {
    ebb__cuda_drop(args, at, fit, true);
}

#endif
