/* SPDX-License-Identifier: Apache-2.0
 *
 * Ejection of items of any kind: from one above the other to a placement under a cap, or to nothing at all.
 */
#include "place_slow.h"

#include "place/place_priv.h"

typedef unsigned long long ull;

/* One above the other, above all that is fixed. */
static void stack(const ebb_parts *parts, uint64_t *offsets) {
    const ebb_place_problem *p = parts->problem;
    uint64_t top = 0;
    for (size_t i = 0; i < p->n_items; i++) {
        if (ebb__place_is_fixed(p, i)) { top = ebb_max_u64(top, p->fixed[i] + parts->top[i]); }
    }
    for (size_t i = 0; i < p->n_items; i++) {
        offsets[i] = ebb__place_is_fixed(p, i) ? p->fixed[i] : slow_up(top, parts->alignment[i]);
        if (!ebb__place_is_fixed(p, i)) { top = offsets[i] + parts->top[i]; }
    }
}

/* Whether it came under a cap that leaves this many eighths of what is above the bound. */
static bool try_cap(const slow_problem *s, uint64_t n_eighths, uint64_t seed) {
    ebb_bump bump;
    ebb_parts parts;
    ebb_ejector *ejector = NULL;
    uint64_t offsets[SLOW_MAX_ITEMS + 1], before[SLOW_MAX_ITEMS + 1], peak = 0, slow = 0, work = 0, bound = 0;
    ebb__bump_init(&bump, NULL);
    assert_int_equal(ebb_place_bound(&s->p, NULL, &bound), EBB_OK);
    assert_int_equal(ebb__place_split(&s->p, &bump, &parts), EBB_OK);
    stack(&parts, offsets);
    memcpy(before, offsets, sizeof offsets);
    assert_true(slow_is_placement(&s->p, offsets, s->n_times, &slow));
    const uint64_t stacked = ebb_align_up(slow, s->p.alignment_bytes);
    const ebb_place_eject_options options = {.cap_bytes = bound + (stacked - bound) / 8 * n_eighths, .max_work = 20000};
    assert_int_equal(ebb__ejector_create(&parts, &bump, &ejector, &work), EBB_OK);
    assert_non_null(ejector);
    ebb__ejector_run(ejector, &options, offsets, &peak, &work);
    ebb__bump_fini(&bump);
    assert_true(work < 2 * options.max_work);
    if (peak == UINT64_MAX) {
        assert_memory_equal(offsets, before, s->p.n_items * sizeof *offsets);
        return false;
    }
    const bool is_placement = slow_is_placement(&s->p, offsets, s->n_times, &slow);
    if (!is_placement || ebb_align_up(slow, s->p.alignment_bytes) != peak || peak > options.cap_bytes) {
        fail_msg("seed %llu: peak %llu, not %llu, under %llu", (ull)seed, (ull)peak, (ull)slow, (ull)options.cap_bytes);
    }
    return true;
}

static void test_random(void **state) {
    (void)state;
    unsigned n_under[9] = {0};
    for (uint64_t seed = 0; seed < 1600; seed++) {
        ebb_rng rng;
        ebb__rng_init(&rng, seed, 41);
        slow_problem s;
        slow_draw(&s, &rng, (unsigned)seed % SLOW_N_KINDS);
        const uint64_t n_eighths = seed / SLOW_N_KINDS % 9;
        n_under[n_eighths] += try_cap(&s, n_eighths, seed);
    }
    assert_true(n_under[8] > 170 && n_under[4] > 100 && n_under[0] > 20);
}

/* What only a fixed item is in the way of is given up, not tried for ever. */
static void test_fixed(void **state) {
    (void)state;
    const ebb_place_item items[] = {{10, 0, 4}, {10, 0, 4}};
    const uint64_t fixed[] = {5, EBB_PLACE_ANYWHERE};
    uint64_t offsets[] = {5, 15}, peak = 0, work = 0;
    ebb_place_problem p = EBB_PLACE_PROBLEM_INIT;
    ebb_bump bump;
    ebb_parts parts;
    ebb_ejector *ejector = NULL;
    p.items = items;
    p.n_items = 2;
    p.fixed = fixed;
    ebb__bump_init(&bump, NULL);
    assert_int_equal(ebb__place_split(&p, &bump, &parts), EBB_OK);
    assert_int_equal(ebb__ejector_create(&parts, &bump, &ejector, &work), EBB_OK);
    const ebb_place_eject_options options = {.cap_bytes = 24, .max_work = UINT64_MAX};
    ebb__ejector_run(ejector, &options, offsets, &peak, &work);
    assert_true(peak == UINT64_MAX && offsets[1] == 15);
    ebb__bump_fini(&bump);
}

/* More items than there may be pairs of. */
static void test_too_many(void **state) {
    (void)state;
    enum { N = 6001 };
    static ebb_place_item items[N];
    ebb_place_problem p = EBB_PLACE_PROBLEM_INIT;
    ebb_bump bump;
    ebb_parts parts;
    ebb_ejector *ejector = NULL;
    uint64_t work = 0;
    for (size_t i = 0; i < N; i++) { items[i] = (ebb_place_item){1, i, i + 1}; }
    p.items = items;
    ebb__bump_init(&bump, NULL);
    for (p.n_items = N - 1; p.n_items <= N; p.n_items++) {
        assert_int_equal(ebb__place_split(&p, &bump, &parts), EBB_OK);
        assert_int_equal(ebb__ejector_create(&parts, &bump, &ejector, &work), EBB_OK);
        assert_true((ejector != NULL) == (p.n_items < N));
    }
    ebb__bump_fini(&bump);
}

static void test_out_of_memory(void **state) {
    (void)state;
    ebb_rng rng;
    slow_problem s;
    ebb__rng_init(&rng, 3, 42);
    do { slow_draw(&s, &rng, SLOW_GAPS | SLOW_ALIGNED); } while (s.p.n_items < 20);
    OOM_LOOP(mem, st, {
        ebb_bump bump;
        ebb_parts parts;
        ebb_ejector *ejector = NULL;
        uint64_t work = 0;
        ebb__bump_init(&bump, mem);
        st = ebb__place_split(&s.p, &bump, &parts);
        if (st == EBB_OK) { st = ebb__ejector_create(&parts, &bump, &ejector, &work); }
        ebb__bump_fini(&bump);
    });
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_random),
        cmocka_unit_test(test_fixed),
        cmocka_unit_test(test_too_many),
        cmocka_unit_test(test_out_of_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
