/* SPDX-License-Identifier: Apache-2.0
 *
 * The stage that sweeps from the fullest moment, at leisure and in haste, and the hybrids that follow it in haste:
 * their answers are placements, on a line and on a circle; lives that nest meet the bound; in haste, a peak far above
 * the bound is given up; every allocation failing in turn.
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
        const bool is_short = i % 2 != 0; /* after the others, one at a time */
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
    f.search.is_many = false; /* then it does nothing */
    assert_int_equal(ebb__search_quick_fronts(&f.search), EBB_OK);
    assert_true(f.search.best.peak_bytes == UINT64_MAX);
    ebb__bump_fini(&f.base.bump);
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
        cmocka_unit_test(test_placements),
        cmocka_unit_test(test_hybrids_in_haste),
        cmocka_unit_test(test_nested),
        cmocka_unit_test(test_out_of_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
