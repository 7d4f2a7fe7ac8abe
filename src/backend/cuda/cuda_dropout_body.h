/* SPDX-License-Identifier: Apache-2.0
 *
 * Dropout's factors on the device: those of dropout_mask.h, bit for bit. An element's word depends on its row-major
 * number, whatever order the elements lie in.
 */
#ifndef EBB_SRC_CUDA_DROPOUT_BODY_H
#define EBB_SRC_CUDA_DROPOUT_BODY_H

#include "backend/cuda/cuda_divide.h"
#include "backend/cuda/cuda_launch_ops.h"
#include "base/philox.h"

/* ebb__hash goes on with a 64-bit number, as it lies in memory. */
EBB_HD uint64_t ebb__cuda_hash_u64(uint64_t h, uint64_t value) {
    for (int i = 0; i < 8; i++) { h = (h ^ (value >> (8 * i) & 0xff)) * 0x100000001b3u; }
    return h;
}

/* Word `idx` of ebb__philox's four. */
EBB_HD uint32_t ebb__cuda_philox_word(uint64_t seed, uint64_t stream, uint64_t counter, unsigned idx) {
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
    return idx < 2 ? (idx == 0 ? c0 : c1) : (idx == 2 ? c2 : c3);
}

EBB_HD void ebb__cuda_dropout_element(const ebb_cuda_dropout_args *args, uint64_t i) {
    const uint64_t seed = args->state->seed;
    const uint64_t stream = ebb__cuda_hash_u64(args->stream_hash, args->state->iteration);
    for (; i < args->n; i += args->n_units) {
        uint64_t row, image, number = i;
        if (args->hw > 1) {
            const uint64_t channel = ebb__cuda_divide(i, args->c, &row);
            const uint64_t place = ebb__cuda_divide(row, args->hw, &image);
            number = (image * args->c + channel) * args->hw + place;
        }
        const uint32_t word = ebb__cuda_philox_word(seed, stream, number / 4, (unsigned)(number % 4));
        const float unit = (float)(word >> 8) * (1.0f / 16777216.0f);
        args->dst[i] = args->src[i] * (unit >= args->p ? args->scale : 0.0f);
    }
}

#endif
