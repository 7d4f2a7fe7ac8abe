/* SPDX-License-Identifier: Apache-2.0
 *
 * Ranges of addresses: each address is held when the last call about it says so, and what is told along the way sums
 * up to the same.
 */
#include "support.h"
#include "trace/ranges.h"

#define N_ADDRESSES 200u

/* Ranges by their address, as told. */
typedef struct told {
    uint64_t size[N_ADDRESSES];
} told;

static ebb_status tell(void *ctx, const ebb_range *range, bool comes) {
    told *t = ctx;
    assert_true(range->size_bytes > 0 && range->address + range->size_bytes <= N_ADDRESSES);
    if (comes) {
        assert_int_equal(t->size[range->address], 0);
        t->size[range->address] = range->size_bytes;
    } else {
        assert_int_equal(t->size[range->address], range->size_bytes);
        t->size[range->address] = 0;
    }
    return EBB_OK;
}

static void check(const ebb_ranges *r, const told *t, const bool *held, uint64_t seed) {
    bool covered[N_ADDRESSES] = {false}, said[N_ADDRESSES] = {false};
    for (size_t i = 0; i < r->ranges.n; i++) {
        const ebb_range *range = &r->ranges.data[i];
        if (i > 0) { assert_true(range[-1].address + range[-1].size_bytes <= range->address); }
        for (uint64_t k = 0; k < range->size_bytes; k++) { covered[range->address + k] = true; }
    }
    for (uint64_t a = 0; a < N_ADDRESSES; a++) {
        for (uint64_t k = 0; k < t->size[a]; k++) { said[a + k] = true; }
    }
    for (uint64_t a = 0; a < N_ADDRESSES; a++) {
        const ebb_range *found = ebb__ranges_find(r, a);
        assert_int_equal(found != NULL ? found->size_bytes : 0, t->size[a]);
        if (covered[a] != held[a] || said[a] != held[a]) { fail_msg("seed %d: address %d", (int)seed, (int)a); }
    }
}

/* At the most that there may be, what makes no more of them still goes. */
static void test_as_many_as_there_may_be(void **state) {
    (void)state;
    const uint64_t most = (uint64_t)1 << 18;
    ebb_ranges r;
    ebb__ranges_init(&r, ebb__mem_or_default(NULL));
    for (uint64_t i = 0; i < most; i++) {
        assert_int_equal(ebb__ranges_add(&r, &(ebb_range){4 * i, 3, 0}, NULL, NULL), EBB_OK);
    }
    assert_int_equal(ebb__ranges_add(&r, &(ebb_range){4 * most, 3, 0}, NULL, NULL), EBB_E_LIMIT);
    assert_int_equal(ebb__ranges_remove(&r, &(ebb_range){5, 1, 0}, NULL, NULL), EBB_E_LIMIT); /* two of one */
    assert_int_equal(ebb__ranges_remove(&r, &(ebb_range){6, 1, 0}, NULL, NULL), EBB_OK);
    assert_int_equal(ebb__ranges_remove(&r, &(ebb_range){0, 8, 0}, NULL, NULL), EBB_OK);
    assert_int_equal(r.ranges.n, most - 2);
    ebb__ranges_fini(&r);
}

static void test_against_an_array(void **state) {
    (void)state;
    for (uint64_t seed = 1; seed <= 200; seed++) {
        ebb_ranges r;
        ebb_rng rng;
        told t = {{0}};
        bool held[N_ADDRESSES] = {false};
        ebb__ranges_init(&r, ebb__mem_or_default(NULL));
        ebb__rng_init(&rng, seed, 0);
        for (size_t i = 0; i < 60; i++) {
            ebb_range range = {ebb__rng_below(&rng, N_ADDRESSES), 0, 0};
            range.size_bytes = ebb__rng_below(&rng, ebb_min_u64(40, N_ADDRESSES - range.address) + 1);
            const bool comes = ebb__rng_below(&rng, 2) == 0;
            assert_int_equal((comes ? ebb__ranges_add : ebb__ranges_remove)(&r, &range, tell, &t), EBB_OK);
            for (uint64_t k = 0; k < range.size_bytes; k++) { held[range.address + k] = comes; }
            check(&r, &t, held, seed);
        }
        ebb__ranges_fini(&r);
    }
}

/* What reaches beyond the last address is nothing. */
static void test_end_of_addresses(void **state) {
    (void)state;
    ebb_ranges r;
    ebb__ranges_init(&r, ebb__mem_or_default(NULL));
    const ebb_range beyond = {UINT64_MAX, 2, 0}, up_to = {UINT64_MAX - 1, 1, 0}, none = {5, 0, 0};
    assert_int_equal(ebb__ranges_add(&r, &beyond, NULL, NULL), EBB_OK);
    assert_int_equal(ebb__ranges_add(&r, &none, NULL, NULL), EBB_OK);
    assert_int_equal(r.ranges.n, 0);
    assert_int_equal(ebb__ranges_add(&r, &up_to, NULL, NULL), EBB_OK);
    assert_int_equal(r.ranges.n, 1);
    assert_int_equal(ebb__ranges_remove(&r, &beyond, NULL, NULL), EBB_OK);
    assert_int_equal(r.ranges.n, 1);
    assert_int_equal(ebb__ranges_remove(&r, &up_to, NULL, NULL), EBB_OK);
    assert_int_equal(r.ranges.n, 0);
    ebb__ranges_fini(&r);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_against_an_array),
                                       cmocka_unit_test(test_as_many_as_there_may_be),
                                       cmocka_unit_test(test_end_of_addresses)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
