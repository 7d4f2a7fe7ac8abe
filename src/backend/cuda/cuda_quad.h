/* SPDX-License-Identifier: Apache-2.0
 *
 * Four elements at a time: how element-wise kernels read and write 16 bytes in one instruction.
 *
 * A block's threads share a tile of EBB_CUDA_QUADS * EBB_CUDA_BLOCK quads. A thread takes every EBB_CUDA_BLOCK-th quad
 * of it, so that neighbouring lanes have neighbouring bytes, and loads all of its quads before it stores any, so that
 * several loads are under way at a time. EBB_CUDA_TILES(launcher, args, fours, body) defines
 *
 *   cudaError_t launcher(cudaStream_t stream, const args *a)          a->n elements
 *
 * over two kernels: NAME_fours where fours(a) is true, that is, where the tensor and what goes with it (channels) end
 * with whole quads, and NAME_any, which looks at each element. Both call body(a, at, fit), where `at` is the first
 * element of the thread's first quad, and `fit` is a constant.
 *
 * All threads of a warp call the body together, so it may vote (ebb__cuda_mask_put).
 */
#ifndef EBB_SRC_CUDA_QUAD_H
#define EBB_SRC_CUDA_QUAD_H

#include "backend/cuda/cuda_divide.h"

#define EBB_CUDA_QUADS 2u                                /* a thread's in one tile */
#define EBB_CUDA_STRIDE (UINT64_C(4) * EBB_CUDA_BLOCK)   /* elements from a thread's quad to its next */
#define EBB_CUDA_TILE (EBB_CUDA_QUADS * EBB_CUDA_STRIDE) /* elements */

typedef enum ebb_cuda_fit {
    EBB_CUDA_ALL,   /* the thread's quads lie below n */
    EBB_CUDA_FOURS, /* each lies below n or above */
    EBB_CUDA_SOME   /* n may cut one */
} ebb_cuda_fit;

typedef struct ebb_cuda_quad {
    EBB_CUDA_ALIGNED(16) float v[4];
} ebb_cuda_quad;

/* In one instruction on a GPU, which refuses other addresses. */
EBB_HD ebb_cuda_quad ebb__cuda_load_quad(const float *from) {
    EBB_CUDA_CHECK((uintptr_t)from % 16 == 0);
    return *(const ebb_cuda_quad *)from;
}

EBB_HD void ebb__cuda_store_quad(float *to, ebb_cuda_quad quad) {
    EBB_CUDA_CHECK((uintptr_t)to % 16 == 0);
#ifdef __CUDA_ARCH__
    __stcg((float4 *)to, make_float4(quad.v[0], quad.v[1], quad.v[2], quad.v[3])); /* never split by the compiler */
#else
    *(ebb_cuda_quad *)to = quad;
#endif
}

/* Elements at ... at + 3 of n; 0 for those beyond. */
EBB_HD ebb_cuda_quad ebb__cuda_load(const float *from, uint64_t at, uint64_t n, ebb_cuda_fit fit) {
    ebb_cuda_quad quad = {{0.0f, 0.0f, 0.0f, 0.0f}};
    if (fit == EBB_CUDA_ALL || (fit == EBB_CUDA_FOURS && at < n)) { return ebb__cuda_load_quad(from + at); }
    for (uint64_t j = 0; fit == EBB_CUDA_SOME && j < 4; j++) {
        if (at + j < n) { quad.v[j] = from[at + j]; }
    }
    return quad;
}

EBB_HD void ebb__cuda_store(float *to, uint64_t at, uint64_t n, ebb_cuda_fit fit, ebb_cuda_quad quad) {
    if (fit == EBB_CUDA_ALL || (fit == EBB_CUDA_FOURS && at < n)) { ebb__cuda_store_quad(to + at, quad); }
    for (uint64_t j = 0; fit == EBB_CUDA_SOME && j < 4; j++) {
        if (at + j < n) { to[at + j] = quad.v[j]; }
    }
}

/* The values of channels c ... c + 3 of n_channels; the first channel comes after the last one. */
EBB_HD ebb_cuda_quad ebb__cuda_of_channels(const float *values, uint64_t c, uint64_t n_channels, ebb_cuda_fit fit) {
    ebb_cuda_quad quad;
    if (fit != EBB_CUDA_SOME) { return ebb__cuda_load_quad(values + c); }
    for (int j = 0; j < 4; j++) {
        quad.v[j] = values[c];
        c = c + 1 == n_channels ? 0 : c + 1;
    }
    return quad;
}

/* The first channel of a thread's next quad. */
EBB_HD uint64_t ebb__cuda_next_channel(uint64_t c, uint64_t n_channels) {
    return ebb__cuda_rest(c + EBB_CUDA_STRIDE, n_channels);
}

/* ---- masks: a bit for each element ------------------------------------------------------------- */

/* 128 elements are four words of 32 bits: element 4 l + k is bit l of word k, as the lanes of a warp that have a quad
 * each vote. */
typedef struct ebb_cuda_votes {
    uint32_t word[4];
} ebb_cuda_votes;

#define EBB_CUDA_VOTERS 128u

/* Bit j of bits says it of element at + j. The mask has whole groups of EBB_CUDA_VOTERS. */
EBB_HD void ebb__cuda_mask_put(uint8_t *mask, uint64_t at, uint64_t n, unsigned bits) {
    const uint64_t first = at / EBB_CUDA_VOTERS * EBB_CUDA_VOTERS;
    const unsigned lane = (unsigned)(at % EBB_CUDA_VOTERS / 4);
#ifdef __CUDA_ARCH__
    uint4 votes;
    votes.x = __ballot_sync(0xffffffffu, bits & 1u);
    votes.y = __ballot_sync(0xffffffffu, bits & 2u);
    votes.z = __ballot_sync(0xffffffffu, bits & 4u);
    votes.w = __ballot_sync(0xffffffffu, bits & 8u);
    if (lane == 0 && first < n) { *(uint4 *)(mask + first / 8) = votes; }
#else
    ebb_cuda_votes *votes = (ebb_cuda_votes *)(void *)(mask + first / 8);
    for (int k = 0; k < 4 && first < n; k++) {
        votes->word[k] = (votes->word[k] & ~((uint32_t)1 << lane)) | (uint32_t)(bits >> k & 1u) << lane;
    }
#endif
}

/* The bits of elements at ... at + 3. */
EBB_HD unsigned ebb__cuda_mask_get(const uint8_t *mask, uint64_t at) {
    const unsigned lane = (unsigned)(at % EBB_CUDA_VOTERS / 4);
    const uint8_t *from = mask + at / EBB_CUDA_VOTERS * (EBB_CUDA_VOTERS / 8);
#ifdef __CUDA_ARCH__
    const uint4 votes = *(const uint4 *)from;
    return (votes.x >> lane & 1u) | (votes.y >> lane & 1u) << 1 | (votes.z >> lane & 1u) << 2 |
           (votes.w >> lane & 1u) << 3;
#else
    const ebb_cuda_votes *votes = (const ebb_cuda_votes *)(const void *)from;
    unsigned bits = 0;
    for (int k = 0; k < 4; k++) { bits |= (unsigned)(votes->word[k] >> lane & 1u) << k; }
    return bits;
#endif
}

/* ---- launchers --------------------------------------------------------------------------------- */

EBB_HD uint64_t ebb__cuda_tile_at(uint64_t unit) {
    return unit / EBB_CUDA_BLOCK * EBB_CUDA_TILE + unit % EBB_CUDA_BLOCK * 4;
}

EBB_HD bool ebb__cuda_tile_is_full(uint64_t unit, uint64_t n) {
    return (unit / EBB_CUDA_BLOCK + 1) * EBB_CUDA_TILE <= n;
}

static inline uint64_t ebb__cuda_tile_units(uint64_t n) {
    return (n + EBB_CUDA_TILE - 1) / EBB_CUDA_TILE * EBB_CUDA_BLOCK;
}

/* `fours` for tensors of which nothing else is known. */
#define EBB_CUDA_ENDS_WITH_FOUR(args) ((args)->n % 4 == 0)

/* No quad is of two rows, and values of channels are read by four. */
#define EBB_CUDA_CHANNELS_BY_FOUR(args) ((args)->n % 4 == 0 && (args)->c % 4 == 0)

#define EBB_CUDA_TILES(launcher, args_type, fours, body)                                                               \
    EBB_HD void launcher##_fours_unit(const args_type *args, uint64_t unit) {                                          \
        if (ebb__cuda_tile_is_full(unit, args->n)) {                                                                   \
            body(args, ebb__cuda_tile_at(unit), EBB_CUDA_ALL);                                                         \
        } else {                                                                                                       \
            body(args, ebb__cuda_tile_at(unit), EBB_CUDA_FOURS);                                                       \
        }                                                                                                              \
    }                                                                                                                  \
    EBB_HD void launcher##_any_unit(const args_type *args, uint64_t unit) {                                            \
        body(args, ebb__cuda_tile_at(unit), EBB_CUDA_SOME);                                                            \
    }                                                                                                                  \
    EBB_CUDA_EACH_AS(static, launcher##_fours, args_type, launcher##_fours_unit)                                       \
    EBB_CUDA_EACH_AS(static, launcher##_any, args_type, launcher##_any_unit)                                           \
    cudaError_t launcher(cudaStream_t stream, const args_type *args) {                                                 \
        const uint64_t n_units = ebb__cuda_tile_units(args->n);                                                        \
        return fours(args) ? launcher##_fours(stream, args, n_units) : launcher##_any(stream, args, n_units);          \
    }

#endif
