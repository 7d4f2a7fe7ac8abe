/* SPDX-License-Identifier: Apache-2.0
 *
 * The stage that sweeps from the fullest moment, at leisure and in haste, and what is tried in haste behind it: what
 * they find is a placement, on a line and on a circle; lives that nest meet the bound; in haste, what is far above it
 * is given up; noise of more than a few items comes near the bound, the same way each time, and nearer with more work;
 * every allocation failing in turn.
 */
#include "place/search.h"
#include "place_fixture.h"

#define STEPS ((uint64_t)1000 * 1000)

typedef struct fronts_fixture {
    place_fixture base;
    ebb_place_job job;
    ebb_search search;
} fronts_fixture;

static bool never(void *ctx) {
    (void)ctx;
    return false;
}

static void begin_attempt(fronts_fixture *f, ebb_attempt *a) {
    a->idx = ebb__bump_alloc(&f->base.bump, N_FIXTURE, sizeof *a->idx);
    a->offsets = ebb__bump_alloc(&f->base.bump, N_FIXTURE, sizeof *a->offsets);
    a->peak_bytes = UINT64_MAX;
    assert_non_null(a->idx);
    assert_non_null(a->offsets);
}

/* A search of a fixture that is drawn, as if its items were very many. */
static void begin(fronts_fixture *f) {
    f->job = (ebb_place_job){.problem = &f->base.problem, .max_steps = STEPS, .stop = never};
    f->search = (ebb_search){.job = &f->job,
                             .compact = &f->base.compact,
                             .sections = &f->base.compact.sections,
                             .proved_bytes = f->base.compact.sections.bound_bytes,
                             .is_many = true,
                             .is_hasty = true,
                             .max_work = STEPS,
                             .bump = &f->base.bump};
    begin_attempt(f, &f->search.now);
    begin_attempt(f, &f->search.best);
    f->search.key = ebb__bump_alloc(&f->base.bump, N_FIXTURE, sizeof *f->search.key);
    assert_non_null(f->search.key);
}

static void draw(fronts_fixture *f, uint64_t seed) {
    if (seed % 2 == 0) {
        draw_line_fixture(&f->base, seed, 30);
    } else {
        draw_fixture(&f->base, seed, 30);
    }
    begin(f);
}

/* What the search holds, if anything, is a placement. */
static void expect_best(fronts_fixture *f, uint64_t seed) {
    if (f->search.best.peak_bytes == UINT64_MAX) { return; }
    memcpy(f->base.offsets, f->search.best.offsets, f->search.sections->n_items * sizeof *f->base.offsets);
    expect_placement(&f->base, f->search.best.peak_bytes, seed);
}

static void test_placements(void **state) {
    (void)state;
    for (uint64_t seed = 0; seed < 500; seed++) {
        fronts_fixture f;
        draw(&f, seed);
        assert_int_equal(ebb__search_quick_fronts(&f.search), EBB_OK);
        expect_best(&f, seed);
        const uint64_t bound = f.search.sections->bound_bytes, quick = f.search.best.peak_bytes;
        assert_true(quick == UINT64_MAX || quick <= bound + bound / 1024);
        f.search.is_hasty = seed % 3 == 0;
        assert_int_equal(ebb__search_fronts(&f.search), EBB_OK);
        assert_true(f.search.best.peak_bytes <= quick && f.search.best.peak_bytes != UINT64_MAX);
        expect_best(&f, seed);
        ebb__bump_fini(&f.base.bump);
    }
}

static void test_hybrids_in_haste(void **state) {
    (void)state;
    for (uint64_t seed = 0; seed < 500; seed++) {
        fronts_fixture f;
        draw(&f, seed);
        assert_int_equal(ebb__search_hybrids(&f.search), EBB_OK);
        assert_true(f.search.best.peak_bytes != UINT64_MAX);
        expect_best(&f, seed);
        ebb__bump_fini(&f.base.bump);
    }
}

static void test_nested(void **state) {
    (void)state;
    fronts_fixture f = {.base.problem = EBB_PLACE_PROBLEM_INIT};
    for (size_t i = 0; i < N_FIXTURE; i++) {
        const bool is_short = i % 2 != 0; /* behind the others, one after the other */
        const uint64_t first = is_short ? 2 * N_FIXTURE + i : i, last = is_short ? first + 2 : 2 * N_FIXTURE - i;
        f.base.items[i] = (ebb_place_item){1 + i % 7, first, last};
    }
    f.base.problem.items = f.base.items;
    f.base.problem.n_items = N_FIXTURE;
    begin_fixture(&f.base);
    begin(&f);
    assert_int_equal(ebb__search_quick_fronts(&f.search), EBB_OK);
    assert_true(f.search.best.peak_bytes == f.search.sections->bound_bytes);
    expect_best(&f, 0);
    f.search.best.peak_bytes = UINT64_MAX;
    f.search.is_many = false; /* then it is none of its business */
    assert_int_equal(ebb__search_quick_fronts(&f.search), EBB_OK);
    assert_true(f.search.best.peak_bytes == UINT64_MAX);
    ebb__bump_fini(&f.base.bump);
}

/* ---- under a cap ------------------------------------------------------------------------------ */

#define N_NOISE (EBB_PLACE_FEW + 500u)
#define LONGEST 400u

typedef struct noise {
    ebb_place_item items[N_NOISE];
    uint64_t offsets[N_NOISE];
    ebb_place_problem problem;
} noise;

static void draw_noise(noise *f, uint64_t seed) {
    ebb_rng rng;
    ebb__rng_init(&rng, seed, 0);
    for (size_t i = 0; i < N_NOISE; i++) {
        const uint64_t first = ebb__rng_below(&rng, N_NOISE);
        f->items[i] =
            (ebb_place_item){1 + ebb__rng_below(&rng, 1000), first, first + 1 + ebb__rng_below(&rng, LONGEST)};
    }
    f->problem = EBB_PLACE_PROBLEM_INIT;
    f->problem.items = f->items;
    f->problem.n_items = N_NOISE;
}

/* The peak that the stage alone comes to, in its way with many items or with fewer. */
static uint64_t place_noise(const noise *f, bool is_many, uint64_t max_steps, uint64_t *offsets, uint64_t *steps_out) {
    ebb_bump bump;
    ebb_sections sections;
    ebb_compact compact;
    ebb__bump_init(&bump, NULL);
    assert_int_equal(ebb__place_cut(&f->problem, &bump, &sections), EBB_OK);
    assert_int_equal(ebb__place_compact(&sections, &bump, &compact), EBB_OK);
    const ebb_place_job job = {.problem = &f->problem, .max_steps = max_steps, .stop = never};
    ebb_search s = {.job = &job,
                    .compact = &compact,
                    .sections = &compact.sections,
                    .proved_bytes = compact.sections.bound_bytes,
                    .is_many = is_many,
                    .max_work = max_steps,
                    .bump = &bump};
    ebb_attempt *const attempts[] = {&s.now, &s.best};
    for (size_t a = 0; a < 2; a++) {
        attempts[a]->idx = ebb__bump_alloc(&bump, N_NOISE, sizeof *attempts[a]->idx);
        attempts[a]->offsets = ebb__bump_alloc(&bump, N_NOISE, sizeof *attempts[a]->offsets);
        attempts[a]->peak_bytes = UINT64_MAX;
        assert_true(attempts[a]->idx != NULL && attempts[a]->offsets != NULL);
    }
    s.key = ebb__bump_alloc(&bump, N_NOISE, sizeof *s.key);
    assert_non_null(s.key);
    assert_int_equal(ebb__search_fronts(&s), EBB_OK);
    assert_true(s.best.peak_bytes != UINT64_MAX);
    ebb__place_expand(&compact, &f->problem, s.best.offsets, offsets);
    const uint64_t peak = compact.base_bytes + s.best.peak_bytes * compact.granule_bytes;
    *steps_out = s.work;
    ebb__bump_fini(&bump);
    return peak;
}

static void test_noise(void **state) {
    (void)state;
    unsigned n_gained = 0;
    for (uint64_t seed = 0; seed < 6; seed++) {
        static noise f;
        uint64_t again[N_NOISE], checked = 0, bound = 0, steps = 0, steps_again = 0;
        draw_noise(&f, seed);
        const uint64_t first = place_noise(&f, seed % 2 != 0, 300 * 1000, f.offsets, &steps);
        const uint64_t peak = place_noise(&f, seed % 2 != 0, 4000 * 1000, f.offsets, &steps);
        assert_int_equal(ebb_place_check(&f.problem, NULL, f.offsets, &checked), EBB_OK);
        assert_true(checked == peak);
        assert_true(place_noise(&f, seed % 2 != 0, 4000 * 1000, again, &steps_again) == peak && steps_again == steps);
        assert_memory_equal(again, f.offsets, sizeof again);
        assert_int_equal(ebb_place_bound(&f.problem, NULL, &bound), EBB_OK);
        if (peak > bound + bound / 20 || peak > first) {
            fail_msg("seed %d: %d of %d", (int)seed, (int)peak, (int)bound);
        }
        n_gained += peak < first;
    }
    assert_in_range(n_gained, 2, 6);
}

/* ---- memory ----------------------------------------------------------------------------------- */

static ebb_status go_through(fronts_fixture *f, const ebb_mem *mem) {
    f->job.mem = f->base.compact.sections.mem = mem;
    EBB_TRY(ebb__search_quick_fronts(&f->search));
    EBB_TRY(ebb__search_hybrids(&f->search));
    return ebb__search_fronts(&f->search);
}

static void test_out_of_memory(void **state) {
    (void)state;
    for (uint64_t seed = 0; seed < 6; seed++) {
        ebb_status st = EBB_E_NO_MEMORY;
        for (size_t at = 1; st != EBB_OK; at++) {
            fronts_fixture f;
            failing_mem mem;
            draw(&f, seed);
            st = go_through(&f, &failing_mem_init(&mem, at)->hooks);
            assert_true(st == EBB_OK || st == EBB_E_NO_MEMORY);
            assert_true(st == EBB_OK || mem.n_calls >= at);
            assert_int_equal(mem.n_live, 0);
            expect_best(&f, seed);
            ebb__bump_fini(&f.base.bump);
        }
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_placements), cmocka_unit_test(test_hybrids_in_haste), cmocka_unit_test(test_nested),
        cmocka_unit_test(test_noise),      cmocka_unit_test(test_out_of_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
