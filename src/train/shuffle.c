/* SPDX-License-Identifier: Apache-2.0
 *
 * The order of an epoch as a function instead of a table: a permutation of 0 .. n that needs no memory and
 * gives any place at once, which makes resuming in the middle of an epoch and prefetching trivial.
 *
 * A Feistel network over the least even number of bits that hold n, its round function a counter-based
 * generator, is a permutation of that power of two. Where it leaves 0 .. n it is applied again until it comes
 * back ('cycle walking', Black and Rogaway, CT-RSA 2002): a permutation of 0 .. n, less than four steps a place on
 * average.
 */
#include "train/data_priv.h"

#define ROUNDS 6
#define SHUFFLE_STREAM 0x73687566666c6500u /* apart from all other draws of this seed */

uint64_t ebb__data_shuffle(uint64_t seed, uint64_t epoch, uint64_t n, uint64_t idx) {
    EBB_ASSERT(idx < n);
    unsigned half = 1;
    while (2 * half < 64 && ((n - 1) >> (2 * half)) != 0) { half++; }
    const uint64_t mask = ((uint64_t)1 << half) - 1;
    uint64_t at = idx;
    do {
        uint64_t left = at >> half, right = at & mask;
        for (uint32_t round = 0; round < ROUNDS; round++) {
            uint32_t words[4];
            ebb__philox(seed ^ epoch * 0x9e3779b97f4a7c15u, SHUFFLE_STREAM + round, right, words);
            uint64_t mixed = left ^ ((((uint64_t)words[1] << 32) | words[0]) & mask);
            left = right;
            right = mixed;
        }
        at = left << half | right;
    } while (at >= n);
    return at;
}
