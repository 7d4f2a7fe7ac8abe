/* SPDX-License-Identifier: Apache-2.0
 *
 * Sorting indices by key: ascending, stable, every index once. Searching: what a walk from the front finds.
 */
#include "base/base.h"

#include <setjmp.h>
#include <stdlib.h>

#include <cmocka.h>

static void test_sorts(void **state) {
    (void)state;
    for (uint64_t seed = 0; seed < 300; seed++) {
        ebb_rng rng;
        ebb__rng_init(&rng, seed, 0);
        uint32_t idx[200];
        uint64_t key[200];
        size_t n = ebb__rng_below(&rng, 201);
        unsigned shift = (unsigned)ebb__rng_below(&rng, 64);
        for (uint32_t i = 0; i < n; i++) {
            idx[i] = i;
            key[i] = ((uint64_t)ebb__rng_u32(&rng) << 32 | ebb__rng_u32(&rng)) >> shift;
        }
        assert_int_equal(ebb__sort_by_key(NULL, idx, n, key), EBB_OK);
        uint64_t sum = 0;
        for (size_t i = 0; i < n; i++) {
            sum += idx[i];
            if (i == 0) { continue; }
            bool in_order = key[idx[i - 1]] < key[idx[i]] || (key[idx[i - 1]] == key[idx[i]] && idx[i - 1] < idx[i]);
            if (!in_order) { fail_msg("seed %llu: place %zu", (unsigned long long)seed, i); }
        }
        assert_true(sum == (n > 0 ? n * (n - 1) / 2 : 0));
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_sorts)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
