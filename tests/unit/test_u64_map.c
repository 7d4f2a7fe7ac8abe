/* SPDX-License-Identifier: Apache-2.0
 *
 * The map of numbers: what is put in is found, what is removed is not, however the keys collide.
 */
#include "support.h"
#include "base/u64_map.h"

#define N_KEYS 512u

static void test_against_an_array(void **state) {
    (void)state;
    for (uint64_t seed = 1; seed <= 20; seed++) {
        ebb_u64_map map;
        ebb_rng rng;
        uint64_t expected[N_KEYS] = {0};
        ebb__u64_map_init(&map, ebb__mem_or_default(NULL));
        ebb__rng_init(&rng, seed, 0);
        for (size_t i = 0; i < 4000; i++) {
            const uint64_t k = ebb__rng_below(&rng, N_KEYS), key = seed % 2 == 0 ? k : k << 52;
            if (ebb__rng_below(&rng, 3) == 0) {
                ebb__u64_map_remove(&map, key);
                expected[k] = 0;
            } else {
                uint64_t *value = NULL;
                bool is_new = false;
                assert_int_equal(ebb__u64_map_add(&map, key, &value, &is_new), EBB_OK);
                assert_int_equal(is_new, expected[k] == 0);
                assert_true(is_new ? *value == 0 : *value == expected[k]);
                *value = expected[k] = i + 1;
            }
        }
        size_t n = 0;
        for (uint64_t k = 0; k < N_KEYS; k++) {
            const uint64_t *value = ebb__u64_map_find(&map, seed % 2 == 0 ? k : k << 52);
            if ((value != NULL ? *value : 0) != expected[k]) { fail_msg("seed %d: key %d", (int)seed, (int)k); }
            n += value != NULL;
        }
        assert_int_equal(map.n, n);
        ebb__u64_map_fini(&map);
    }
}

static void test_empty(void **state) {
    (void)state;
    ebb_u64_map map;
    ebb__u64_map_init(&map, ebb__mem_or_default(NULL));
    assert_null(ebb__u64_map_find(&map, 0));
    ebb__u64_map_remove(&map, 0);
    ebb__u64_map_fini(&map);
}

static void test_no_memory(void **state) {
    (void)state;
    OOM_LOOP(mem, st, {
        ebb_u64_map map;
        ebb__u64_map_init(&map, mem);
        st = EBB_OK;
        for (uint64_t key = 0; st == EBB_OK && key < 200; key++) {
            uint64_t *value = NULL;
            bool is_new = false;
            st = ebb__u64_map_add(&map, key, &value, &is_new);
        }
        ebb__u64_map_fini(&map);
    });
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_against_an_array), cmocka_unit_test(test_empty),
                                       cmocka_unit_test(test_no_memory)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
