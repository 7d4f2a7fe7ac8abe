/* SPDX-License-Identifier: Apache-2.0
 *
 * Sorting indices by key: ascending, stable, every index once.
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

typedef struct card {
    uint64_t rank;
    uint32_t number; /* where it was at first */
} card;

static uint64_t falling_rank(const void *item) {
    return ~((const card *)item)->rank;
}

static void test_sorts_items(void **state) {
    (void)state;
    for (uint64_t seed = 0; seed < 100; seed++) {
        ebb_rng rng;
        ebb__rng_init(&rng, seed, 0);
        card cards[64];
        const size_t n = ebb__rng_below(&rng, 65);
        for (uint32_t i = 0; i < n; i++) { cards[i] = (card){ebb__rng_below(&rng, 9), i}; }
        uint64_t sum = 0;
        assert_int_equal(ebb__sort_items(NULL, cards, n, sizeof *cards, falling_rank), EBB_OK);
        for (size_t i = 0; i < n; i++) {
            sum += cards[i].number;
            if (i == 0) { continue; }
            const card *a = &cards[i - 1], *b = &cards[i];
            const bool in_order = a->rank > b->rank || (a->rank == b->rank && a->number < b->number);
            if (!in_order) { fail_msg("seed %llu: place %zu", (unsigned long long)seed, i); }
        }
        assert_true(sum == (n > 0 ? n * (n - 1) / 2 : 0));
    }
}

typedef struct wanted {
    const uint64_t *keys;
    uint64_t key;
} wanted;

static bool is_lower(const void *ctx, size_t place) {
    const wanted *w = ctx;
    return w->keys[place] < w->key;
}

/* As one after the other finds it: equal keys, none that is, none at all. */
static void test_finds_first(void **state) {
    (void)state;
    static const uint64_t keys[] = {1, 3, 3, 3, 4, 7, 7, 9};
    for (size_t n = 0; n <= sizeof keys / sizeof keys[0]; n++) {
        for (uint64_t key = 0; key < 11; key++) {
            const wanted w = {keys, key};
            size_t first = 0;
            while (first < n && keys[first] < key) { first++; }
            assert_int_equal(ebb__first_not_before(n, is_lower, &w), first);
        }
    }
}

static void test_finds_last(void **state) {
    (void)state;
    static const double x[] = {1, 3, 3, 3, 4, 7, 7, 9};
    for (size_t n = 0; n <= sizeof x / sizeof x[0]; n++) {
        for (double most = 0; most < 11; most++) {
            size_t last = 0;
            while (last + 1 < n && x[last + 1] <= most) { last++; }
            assert_int_equal(ebb__last_at_most(x, n, most), last);
        }
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_sorts), cmocka_unit_test(test_sorts_items),
                                       cmocka_unit_test(test_finds_first), cmocka_unit_test(test_finds_last)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
