/* SPDX-License-Identifier: Apache-2.0
 *
 * The stage that places the fullest moment first: what it finds is a placement, on a circle too, and the bound where
 * each side of the summit has some room.
 */
#include "place/search.h"
#include "support.h"

#define N_LAYERS 20u
#define N_OF_LAYER 5u
#define N (N_LAYERS * N_OF_LAYER + 3)
#define STEPS ((uint64_t)1000 * 1000)

typedef struct fixture {
    ebb_place_item items[N];
    ebb_place_problem problem;
    ebb_place_job job;
    ebb_bump bump;
    ebb_sections sections;
    ebb_compact compact;
    uint64_t offsets[N];
    ebb_search search;
} fixture;

static bool never(void *ctx) {
    (void)ctx;
    return false;
}

static void begin_attempt(fixture *f, ebb_attempt *a) {
    a->idx = ebb__bump_alloc(&f->bump, N, sizeof *a->idx);
    a->offsets = ebb__bump_alloc(&f->bump, N, sizeof *a->offsets);
    a->peak_bytes = UINT64_MAX;
    assert_non_null(a->idx);
    assert_non_null(a->offsets);
}

static void begin(fixture *f, uint64_t period, uint64_t max_steps) {
    f->problem = EBB_PLACE_PROBLEM_INIT;
    f->problem.items = f->items;
    f->problem.n_items = N;
    f->problem.period = period;
    ebb__bump_init(&f->bump, NULL);
    assert_int_equal(ebb__place_cut(&f->problem, &f->bump, &f->sections), EBB_OK);
    assert_int_equal(ebb__place_compact(&f->sections, &f->bump, &f->compact), EBB_OK);
    f->job = (ebb_place_job){.problem = &f->problem, .max_steps = max_steps, .stop = never};
    f->search = (ebb_search){.job = &f->job,
                             .compact = &f->compact,
                             .sections = &f->compact.sections,
                             .proved_bytes = f->compact.sections.bound_bytes,
                             .max_work = max_steps,
                             .bump = &f->bump};
    begin_attempt(f, &f->search.now);
    begin_attempt(f, &f->search.best);
    f->search.key = ebb__bump_alloc(&f->bump, N, sizeof *f->search.key);
    assert_non_null(f->search.key);
}

/* Layers: an activation that the mirrored step reads, a gradient there, what lives for a few steps, and a weight's
 * gradient up to the end; in the middle two large ones, one after the other. */
static void draw_layers(fixture *f, uint64_t seed) {
    const uint64_t end = 4 * N_LAYERS + 8;
    ebb_rng rng;
    size_t n = 0;
    ebb__rng_init(&rng, seed, 0);
    for (uint64_t l = 0; l < N_LAYERS; l++) {
        const uint64_t forward = 2 * l, backward = end - 2 * l, bytes = 1 + ebb__rng_below(&rng, 100);
        f->items[n++] = (ebb_place_item){bytes, forward, backward + 1};
        f->items[n++] = (ebb_place_item){bytes, backward, backward + 3};
        f->items[n++] = (ebb_place_item){1 + ebb__rng_below(&rng, 200), forward, forward + 3};
        f->items[n++] = (ebb_place_item){1 + ebb__rng_below(&rng, 200), backward, backward + 2};
        f->items[n++] = (ebb_place_item){1 + ebb__rng_below(&rng, 20), backward, end + 10};
    }
    f->items[n++] = (ebb_place_item){400, 2 * N_LAYERS, 2 * N_LAYERS + 3};
    f->items[n++] = (ebb_place_item){400, 2 * N_LAYERS + 2, 2 * N_LAYERS + 5};
    f->items[n++] = (ebb_place_item){300, 2 * N_LAYERS + 4, 2 * N_LAYERS + 6};
    assert_int_equal(n, N);
}

/* A result, if any, is a placement with the peak that is said; whether it meets the bound. */
static bool expect_placement(fixture *f, uint64_t seed) {
    uint64_t checked = 0;
    const uint64_t peak = f->search.best.peak_bytes;
    if (peak == UINT64_MAX) { return false; }
    ebb__place_expand(&f->compact, &f->problem, f->search.best.offsets, f->offsets);
    if (ebb_place_check(&f->problem, NULL, f->offsets, &checked) != EBB_OK ||
        checked != f->compact.base_bytes + peak * f->compact.granule_bytes || peak < f->compact.sections.bound_bytes) {
        fail_msg("seed %llu: %s", (unsigned long long)seed, ebb_last_error());
    }
    return peak == f->compact.sections.bound_bytes;
}

static void test_layers(void **state) {
    (void)state;
    unsigned n_met = 0;
    for (uint64_t seed = 0; seed < 100; seed++) {
        fixture f;
        draw_layers(&f, seed);
        begin(&f, 0, STEPS);
        assert_int_equal(ebb__search_summit(&f.search), EBB_OK);
        n_met += expect_placement(&f, seed);
        ebb__bump_fini(&f.bump);
    }
    assert_in_range(n_met, 90, 100);
}

/* The same on a circle, begun anywhere. */
static void test_circle(void **state) {
    (void)state;
    const uint64_t period = 4 * N_LAYERS + 20;
    unsigned n_met = 0;
    for (uint64_t seed = 0; seed < 100; seed++) {
        fixture f;
        draw_layers(&f, seed);
        for (size_t i = 0; i < N; i++) {
            f.items[i].first = (f.items[i].first + seed) % period;
            f.items[i].last = (f.items[i].last + seed) % period;
        }
        begin(&f, period, STEPS);
        assert_int_equal(ebb__search_summit(&f.search), EBB_OK);
        n_met += expect_placement(&f, seed);
        ebb__bump_fini(&f.bump);
    }
    assert_in_range(n_met, 90, 100);
}

/* Without structure: a placement, or nothing. */
static void test_random(void **state) {
    (void)state;
    for (uint64_t seed = 0; seed < 200; seed++) {
        fixture f;
        ebb_rng rng;
        ebb__rng_init(&rng, seed, 1);
        for (size_t i = 0; i < N; i++) {
            f.items[i] = (ebb_place_item){ebb__rng_below(&rng, 50), ebb__rng_below(&rng, 30), ebb__rng_below(&rng, 30)};
        }
        begin(&f, 30, STEPS >> seed % 12);
        assert_int_equal(ebb__search_summit(&f.search), EBB_OK);
        (void)expect_placement(&f, seed);
        ebb__bump_fini(&f.bump);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_layers), cmocka_unit_test(test_circle),
                                       cmocka_unit_test(test_random)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
