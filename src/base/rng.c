/* SPDX-License-Identifier: Apache-2.0
 *
 * Hash and counter-based random numbers. Philox 4x32-10 as Salmon et al. describe it (SC 2011, section
 * 3.3): ten rounds of two 32x32->64 multiplications, the key bumped by two Weyl constants each round.
 */
#include "base/base.h"
#include "base/philox.h"

#include <math.h>

uint64_t ebb__hash(uint64_t h, const void *data, size_t n_bytes) {
    const unsigned char *p = data;
    for (size_t i = 0; i < n_bytes; i++) { h = (h ^ p[i]) * 0x100000001b3u; /* FNV-1a */ }
    return h;
}

void ebb__philox(uint64_t seed, uint64_t stream, uint64_t counter, uint32_t words_out[4]) {
    uint32_t c[4] = {(uint32_t)counter, (uint32_t)(counter >> 32), (uint32_t)stream, (uint32_t)(stream >> 32)};
    uint32_t k0 = (uint32_t)seed, k1 = (uint32_t)(seed >> 32);
    for (int round = 0; round < EBB_PHILOX_ROUNDS; round++) {
        uint64_t p0 = (uint64_t)EBB_PHILOX_M0 * c[0];
        uint64_t p1 = (uint64_t)EBB_PHILOX_M1 * c[2];
        uint32_t hi0 = (uint32_t)(p0 >> 32), hi1 = (uint32_t)(p1 >> 32);
        c[0] = hi1 ^ c[1] ^ k0;
        c[1] = (uint32_t)p1;
        c[2] = hi0 ^ c[3] ^ k1;
        c[3] = (uint32_t)p0;
        k0 += EBB_PHILOX_W0;
        k1 += EBB_PHILOX_W1;
    }
    memcpy(words_out, c, sizeof c);
}

void ebb__rng_init(ebb_rng *rng, uint64_t seed, uint64_t stream) {
    *rng = (ebb_rng){.seed = seed, .stream = stream};
}

uint32_t ebb__rng_u32(ebb_rng *rng) {
    if (rng->n_left == 0) {
        ebb__philox(rng->seed, rng->stream, rng->counter++, rng->words);
        rng->n_left = 4;
    }
    return rng->words[--rng->n_left];
}

uint64_t ebb__rng_below(ebb_rng *rng, uint64_t n) {
    EBB_ASSERT(n > 0);
    uint64_t limit = UINT64_MAX - UINT64_MAX % n; /* draws at or above it would favour small results */
    for (;;) {
        uint64_t draw = (uint64_t)ebb__rng_u32(rng) << 32;
        draw |= ebb__rng_u32(rng);
        if (draw < limit) { return draw % n; }
    }
}

float ebb__rng_unit(ebb_rng *rng) {
    return ebb__unit_float(ebb__rng_u32(rng));
}

float ebb__rng_normal(ebb_rng *rng) {
    float u = 1.0f - ebb__rng_unit(rng); /* in (0, 1] */
    float v = ebb__rng_unit(rng);
    return sqrtf(-2.0f * logf(u)) * cosf(6.28318530718f * v);
}
