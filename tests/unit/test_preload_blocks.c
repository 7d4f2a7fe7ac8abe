/* SPDX-License-Identifier: Apache-2.0
 *
 * The preloaded recorder's table of live blocks beside an array, under random additions and removals with keys that
 * collide; and its memory.
 */
#include "preload/preload.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>

#include <cmocka.h>

#define N_KEYS 3000u

static uint64_t key_of(uint32_t i, unsigned shift) {
    return ((uint64_t)i + 1) << shift;
}

static void check_all(const preload_blocks *blocks, const bool *is_live, unsigned shift, uint64_t seed) {
    size_t n = 0;
    for (uint32_t i = 0; i < N_KEYS; i++) {
        const preload_block *found = ebb__preload_blocks_find(blocks, key_of(i, shift));
        if ((found != NULL) != is_live[i] || (found != NULL && found->block != i)) {
            fail_msg("seed %llu: key %u", (unsigned long long)seed, i);
        }
        n += is_live[i];
    }
    assert_int_equal(blocks->n, n);
}

static void test_beside_an_array(void **state) {
    (void)state;
    for (uint64_t seed = 0; seed < 12; seed++) {
        const unsigned shift = (unsigned)seed * 4; /* from neighbours to keys whose low bits are all alike */
        preload_blocks blocks = {0};
        bool is_live[N_KEYS] = {false};
        ebb_rng rng;
        ebb__rng_init(&rng, seed, 0);
        for (uint32_t round = 0; round < 20000; round++) {
            const uint32_t i = (uint32_t)ebb__rng_below(&rng, round < 10000 ? N_KEYS : N_KEYS / 10);
            preload_block *found = ebb__preload_blocks_find(&blocks, key_of(i, shift));
            assert_true((found != NULL) == is_live[i]);
            assert_null(ebb__preload_blocks_find(&blocks, 0)); /* free slots are no one's */
            if (found != NULL) {
                ebb__preload_blocks_remove(&blocks, found);
            } else {
                assert_true(ebb__preload_blocks_add(&blocks, &(preload_block){.key = key_of(i, shift), .block = i}));
            }
            is_live[i] = !is_live[i];
            if (round % 2000 == 0) { check_all(&blocks, is_live, shift, seed); }
        }
        check_all(&blocks, is_live, shift, seed);
        ebb__free(&ebb__preload_mem, blocks.slot);
    }
}

static void test_empty(void **state) {
    (void)state;
    const preload_blocks blocks = {0};
    assert_null(ebb__preload_blocks_find(&blocks, 7));
    assert_null(ebb__preload_blocks_find(&blocks, 0));
}

static void test_memory_keeps_its_bytes(void **state) {
    (void)state;
    const ebb_mem *mem = &ebb__preload_mem;
    uint8_t *pieces[64] = {NULL};
    size_t n_bytes[64] = {0};
    ebb_rng rng;
    ebb__rng_init(&rng, 1, 0);
    for (uint32_t round = 0; round < 2000; round++) {
        const size_t i = (size_t)ebb__rng_below(&rng, 64);
        for (size_t b = 0; b < n_bytes[i]; b++) { assert_int_equal(pieces[i][b], i); }
        const size_t n = (size_t)ebb__rng_below(&rng, round % 10 == 0 ? 100000 : 2000) + 1;
        pieces[i] = mem->resize(mem->ctx, pieces[i], n);
        assert_non_null(pieces[i]);
        assert_int_equal((uintptr_t)pieces[i] % 16, 0);
        for (size_t b = 0; b < n && b < n_bytes[i]; b++) { assert_int_equal(pieces[i][b], i); }
        memset(pieces[i], (int)i, n);
        n_bytes[i] = n;
    }
    for (size_t i = 0; i < 64; i++) { mem->free(mem->ctx, pieces[i]); }
    assert_null(mem->alloc(mem->ctx, SIZE_MAX - 8));
    assert_null(mem->alloc(mem->ctx, SIZE_MAX / 2));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_beside_an_array),
        cmocka_unit_test(test_empty),
        cmocka_unit_test(test_memory_keeps_its_bytes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
