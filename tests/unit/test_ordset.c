/* SPDX-License-Identifier: Apache-2.0
 *
 * The ordered set against a plain array of flags, for ranges around the borders of its words.
 */
#include "plan/ordset.h"
#include "plan_support.h"

static void compare(uint64_t range, uint64_t seed) {
    ebb_bump bump;
    ebb_ordset set;
    ebb_rng rng;
    bool *has = calloc(range + 1, sizeof *has);
    ebb__bump_init(&bump, NULL);
    ebb__rng_init(&rng, seed, range);
    assert_int_equal(ebb__ordset_init(&set, range, &bump), EBB_OK);
    for (int i = 0; i < 400; i++) {
        uint64_t at = ebb__rng_below(&rng, range);
        if (has[at]) {
            ebb__ordset_remove(&set, at);
        } else {
            ebb__ordset_add(&set, at);
        }
        has[at] = !has[at];
        assert_int_equal(ebb__ordset_has(&set, at), has[at]);
        uint64_t from = ebb__rng_below(&rng, range + 2), next = from, prev = from < range ? from : range - 1;
        while (next < range && !has[next]) { next++; }
        while (prev != UINT64_MAX && !has[prev]) { prev--; }
        assert_int_equal(ebb__ordset_next(&set, from), next < range ? next : EBB_ORDSET_NONE);
        assert_int_equal(ebb__ordset_prev(&set, from), prev);
    }
    ebb__bump_fini(&bump);
    free(has);
}

static void test_ranges(void **state) {
    (void)state;
    const uint64_t ranges[] = {1, 2, 63, 64, 65, 127, 128, 4095, 4096, 4097, 100000, 262144, 262145};
    for (size_t i = 0; i < sizeof ranges / sizeof *ranges; i++) { compare(ranges[i], i); }
}

static void test_empty(void **state) {
    (void)state;
    ebb_bump bump;
    ebb_ordset set;
    ebb__bump_init(&bump, NULL);
    assert_int_equal(ebb__ordset_init(&set, 0, &bump), EBB_OK);
    assert_int_equal(ebb__ordset_next(&set, 0), EBB_ORDSET_NONE);
    assert_int_equal(ebb__ordset_prev(&set, 5), EBB_ORDSET_NONE);
    ebb__bump_fini(&bump);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_ranges), cmocka_unit_test(test_empty)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
