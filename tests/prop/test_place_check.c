/* SPDX-License-Identifier: Apache-2.0
 *
 * The bound and the checker of placements, on random problems of every kind, against the slow ones; and what they
 * refuse, with what words.
 */
#include "place_slow.h"

/* One above the other, above all that is fixed. */
static void stack(const slow_problem *s, uint64_t *offsets) {
    uint64_t top = 0;
    for (size_t i = 0; i < s->p.n_items; i++) {
        if (s->p.fixed != NULL && s->fixed[i] != EBB_PLACE_ANYWHERE) {
            top = ebb_max_u64(top, s->fixed[i] + slow_up(s->items[i].size_bytes, s->p.alignment_bytes));
        }
    }
    for (size_t i = 0; i < s->p.n_items; i++) {
        const uint64_t own = s->p.alignments != NULL ? s->alignments[i] : 1;
        const bool is_fixed = s->p.fixed != NULL && s->fixed[i] != EBB_PLACE_ANYWHERE;
        offsets[i] = is_fixed ? s->fixed[i] : slow_up(top, own * s->p.alignment_bytes);
        if (!is_fixed) { top = offsets[i] + slow_up(s->items[i].size_bytes, s->p.alignment_bytes); }
    }
}

static bool agree(const slow_problem *s, const uint64_t *offsets, unsigned *n_good) {
    uint64_t peak = 0, slow = 0;
    const bool good = slow_is_placement(&s->p, offsets, s->n_times, &slow);
    *n_good += good;
    const ebb_status st = ebb_place_check(&s->p, NULL, offsets, &peak);
    return st == (good ? EBB_OK : EBB_E_INVALID_PLAN) && (!good || peak == slow);
}

static void test_random(void **state) {
    (void)state;
    unsigned n_good = 0, n = 0;
    for (uint64_t seed = 0; seed < 4000; seed++, n++) {
        ebb_rng rng;
        ebb__rng_init(&rng, seed, 11);
        slow_problem s;
        uint64_t offsets[SLOW_MAX_ITEMS + 1], bound = 0;
        slow_draw(&s, &rng, (unsigned)seed % SLOW_N_KINDS);
        const uint64_t slow = slow_bound(&s.p, s.n_times);
        const bool is_all = s.p.alignments == NULL && s.p.fixed == NULL; /* of what they waste it knows nothing */
        if (ebb_place_bound(&s.p, NULL, &bound) != EBB_OK || bound < slow || (bound > slow && is_all)) {
            fail_msg("seed %llu: bound %llu, not %llu; %s", (unsigned long long)seed, (unsigned long long)bound,
                     (unsigned long long)slow, ebb_last_error());
        }
        stack(&s, offsets);
        unsigned n_stacked = 0;
        bool ok = agree(&s, offsets, &n_stacked) && n_stacked == 1;
        for (uint64_t k = ebb__rng_below(&rng, 8); k > 0 && s.p.n_items > 0; k--) {
            const size_t i = ebb__rng_below(&rng, s.p.n_items);
            const uint64_t own = s.p.alignments != NULL ? s.alignments[i] : 1;
            offsets[i] = ebb__rng_below(&rng, offsets[i] + 1) / (s.p.alignment_bytes * own);
            offsets[i] *= s.p.alignment_bytes * (ebb__rng_below(&rng, 20) == 0 ? 1 : own);
        }
        if (!ok || !agree(&s, offsets, &n_good)) {
            fail_msg("seed %llu: %s", (unsigned long long)seed, ebb_last_error());
        }
    }
    assert_true(n_good > 400 && n - n_good > 400);
}

/* ---- malformed -------------------------------------------------------------------------------- */

typedef struct fixture {
    ebb_place_item items[3];
    uint64_t alignments[3], fixed[3];
    ebb_place_gap gaps[2];
    ebb_place_problem p;
} fixture;

static void set_up(fixture *f) {
    *f = (fixture){.items = {{10, 0, 5}, {10, 3, 9}, {10, 5, 9}},
                   .alignments = {1, 3, 1},
                   .fixed = {EBB_PLACE_ANYWHERE, EBB_PLACE_ANYWHERE, 100},
                   .gaps = {{1, 4, 5, 2, 4}, {1, 5, 7, 0, 0}}};
    f->p = EBB_PLACE_PROBLEM_INIT;
    f->p.items = f->items;
    f->p.n_items = 3;
    f->p.alignments = f->alignments;
    f->p.fixed = f->fixed;
    f->p.gaps = f->gaps;
    f->p.n_gaps = 2;
}

/* In the bound's words; the checker refuses too, unless the problem may be checked all the same. */
static void expect_malformed(const fixture *f, const char *words, bool check_too) {
    uint64_t bound = 7, peak = 7;
    const uint64_t offsets[] = {0, 12, 100};
    assert_int_equal(ebb_place_bound(&f->p, NULL, &bound), EBB_E_ARGUMENT);
    if (strstr(ebb_last_error(), words) == NULL) { fail_msg("'%s' lacks '%s'", ebb_last_error(), words); }
    assert_true(bound == 7);
    if (!check_too) { return; }
    assert_int_equal(ebb_place_check(&f->p, NULL, offsets, &peak), EBB_E_ARGUMENT);
    assert_true(peak == 7);
}

/* For the problem as a whole both say the same. */
static void test_malformed_problem(void **state) {
    (void)state;
    fixture f;
    uint64_t peak = 7;
    const uint64_t offsets[] = {0, 12, 100};
    set_up(&f);
    f.p.size_bytes--;
    expect_malformed(&f, "a problem of another version", true);
    set_up(&f);
    f.p.alignment_bytes = 12;
    expect_malformed(&f, "an alignment of 12 bytes", true);
    assert_non_null(strstr(ebb_last_error(), "12 bytes is not a power of two"));
    set_up(&f);
    f.p.n_items = UINT32_MAX;
    assert_int_equal(ebb_place_check(&f.p, NULL, offsets, &peak), EBB_E_LIMIT);
    assert_non_null(strstr(ebb_last_error(), "4294967295 items"));
    assert_true(peak == 7);
}

static void test_malformed_gaps(void **state) {
    (void)state;
    static const struct {
        ebb_place_gap gap;
        const char *words;
    } rows[] = {
        {{1, 2, 4, 0, 0}, "gap 0 of item 1 ([2, 4), bytes [0, 0)): outside of the item's life"},
        {{1, 8, 10, 0, 0}, "outside of the item's life"},
        {{1, 4, 4, 0, 0}, "at no time"},
        {{1, 5, 4, 0, 0}, "at no time"},
        {{1, 4, 5, 4, 2}, "window is reversed"},
        {{1, 4, 5, 4, 11}, "window goes beyond the item's size"},
        {{1, 4, 6, 0, 0}, "begins before the one before it ends"},
        {{2, 5, 6, 0, 0}, "not in the order of their items"},
        {{3, 5, 6, 0, 0}, "there is no such item"},
    };
    fixture f;
    uint64_t bound = 0;
    set_up(&f);
    assert_int_equal(ebb_place_bound(&f.p, NULL, &bound), EBB_OK);
    assert_true(bound == 110);
    for (size_t k = 0; k < sizeof rows / sizeof rows[0]; k++) {
        set_up(&f);
        f.gaps[0] = rows[k].gap;
        expect_malformed(&f, rows[k].words, true);
    }
    set_up(&f);
    f.p.period = 9;
    f.items[1] = (ebb_place_item){10, 9, 3};
    expect_malformed(&f, "the item lives around the end", true);
}

static void test_malformed_offsets(void **state) {
    (void)state;
    fixture f;
    set_up(&f);
    f.alignments[1] = 0;
    expect_malformed(&f, "item 1 (10 bytes, [3, 9)): an alignment of 0", true);
    set_up(&f);
    f.alignments[1] = UINT64_MAX;
    expect_malformed(&f, "item 1 (10 bytes, [3, 9)): an alignment of more than 63 bits", false);
    set_up(&f);
    f.alignments[0] = f.alignments[1] = (uint64_t)1 << 62;
    expect_malformed(&f, "item 1 (10 bytes, [3, 9)): sizes and alignments add up to more than 63 bits", false);
    set_up(&f);
    f.alignments[2] = 7;
    expect_malformed(&f, "item 2: its fixed offset 100 is not aligned to 7", false);
    set_up(&f);
    f.fixed[2] = (uint64_t)1 << 63;
    expect_malformed(&f, "item 2 (10 bytes, [5, 9)): its fixed offset leaves no room within 63 bits", false);
}

static void expect_invalid(const fixture *f, uint64_t a, uint64_t b, uint64_t c, const char *words) {
    const uint64_t offsets[] = {a, b, c};
    const ebb_status st = ebb_place_check(&f->p, NULL, offsets, NULL);
    assert_int_equal(st, words == NULL ? EBB_OK : EBB_E_INVALID_PLAN);
    if (words != NULL && strstr(ebb_last_error(), words) == NULL) {
        fail_msg("'%s' lacks '%s'", ebb_last_error(), words);
    }
}

/* Of three items that live together two end in the middle of a granule of 64 bytes. */
static void test_aligned_bound(void **state) {
    (void)state;
    const ebb_place_item items[] = {{65, 0, 2}, {10, 1, 3}, {64, 1, 2}};
    uint64_t alignments[] = {64, 128, 192}, bound = 0;
    ebb_place_problem p = EBB_PLACE_PROBLEM_INIT;
    p.items = items;
    p.n_items = 3;
    p.alignments = alignments;
    assert_int_equal(ebb_place_bound(&p, NULL, &bound), EBB_OK);
    assert_true(bound == 128 + 64 + 64 - 63);
    alignments[2] = 1;
    assert_int_equal(ebb_place_bound(&p, NULL, &bound), EBB_OK);
    assert_true(bound == 65 + 10 + 64);
}

static void test_rules(void **state) {
    (void)state;
    fixture f;
    set_up(&f);
    expect_invalid(&f, 0, 12, 100, NULL);
    expect_invalid(&f, 0, 13, 100, "item 1: offset 13 is not aligned to 3");
    expect_invalid(&f, 0, 12, 101, "item 2: offset 101, but it is fixed at 100");
    expect_invalid(&f, 0, 9, 100, "items 0 and 1 overlap at time 3: bytes [0, 10) and [9, 19)");
    expect_invalid(&f, 0, 99, 100, "items 1 and 2 overlap at time 7: bytes [99, 109) and [100, 110)");
    f.items[2].last = 7; /* it dies before item 1 holds its bytes again */
    expect_invalid(&f, 0, 99, 100, NULL);
    f.items[0] = (ebb_place_item){10, 4, 5}; /* of item 1 only bytes [2, 4) are in its way */
    expect_invalid(&f, 8, 6, 100, "items 0 and 1 overlap at time 4: bytes [8, 18) and [8, 10)");
    expect_invalid(&f, 10, 6, 100, NULL);
    expect_invalid(&f, 0, 9, 100, NULL);
    f.p.alignment_bytes = 4; /* windows are rounded as sizes are: now bytes [0, 4) */
    expect_invalid(&f, 20, 12, 100, NULL);
    expect_invalid(&f, 8, 12, 100, "items 0 and 1 overlap at time 4: bytes [8, 18) and [12, 16)");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_random),         cmocka_unit_test(test_malformed_problem),
        cmocka_unit_test(test_malformed_gaps), cmocka_unit_test(test_malformed_offsets),
        cmocka_unit_test(test_aligned_bound),  cmocka_unit_test(test_rules),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
