/* SPDX-License-Identifier: Apache-2.0
 *
 * A small problem, drawn or made by hand, as the stages of placement get it, and what every placement must be.
 */
#ifndef EBB_TESTS_PLACE_FIXTURE_H
#define EBB_TESTS_PLACE_FIXTURE_H

#include "place/place_priv.h"
#include "support.h"

#define N_FIXTURE 40u

typedef struct place_fixture {
    ebb_place_item items[N_FIXTURE];
    ebb_place_problem problem;
    ebb_bump bump;
    ebb_sections sections;
    ebb_compact compact; /* of all sections' items */
    uint64_t offsets[N_FIXTURE];
    uint64_t of_problem[N_FIXTURE];
} place_fixture;

/* What the solver does before a stage. */
static inline void begin_fixture(place_fixture *f) {
    ebb__bump_init(&f->bump, NULL);
    assert_int_equal(ebb__place_cut(&f->problem, &f->bump, &f->sections), EBB_OK);
    assert_int_equal(ebb__place_compact(&f->sections, &f->bump, &f->compact), EBB_OK);
}

static inline void draw_fixture(place_fixture *f, uint64_t seed, uint64_t period) {
    ebb_rng rng;
    ebb__rng_init(&rng, seed, 0);
    for (size_t i = 0; i < N_FIXTURE; i++) {
        f->items[i].size_bytes = ebb__rng_below(&rng, 1000);
        f->items[i].first = ebb__rng_below(&rng, period);
        f->items[i].last = ebb__rng_below(&rng, period);
    }
    f->problem = EBB_PLACE_PROBLEM_INIT;
    f->problem.items = f->items;
    f->problem.n_items = N_FIXTURE;
    f->problem.alignment_bytes = 16;
    f->problem.period = period;
    begin_fixture(f);
}

/* The same on a line. */
static inline void draw_line_fixture(place_fixture *f, uint64_t seed, uint64_t period) {
    draw_fixture(f, seed, period);
    ebb__bump_fini(&f->bump);
    for (size_t i = 0; i < N_FIXTURE; i++) {
        ebb_place_item *item = &f->items[i];
        const uint64_t a = item->first, b = item->last;
        item->first = ebb_min_u64(a, b);
        item->last = ebb_max_u64(a, b) + 1;
    }
    f->problem.period = 0;
    begin_fixture(f);
}

/* The compact's offsets are a placement of this peak, which counts in rounded sizes. */
static inline void expect_placement(place_fixture *f, uint64_t peak, uint64_t seed) {
    uint64_t checked = 0;
    ebb__place_expand(&f->compact, &f->problem, f->offsets, f->of_problem);
    if (ebb_place_check(&f->problem, NULL, f->of_problem, &checked) != EBB_OK ||
        ebb_align_up(checked, f->problem.alignment_bytes) != f->compact.base_bytes + peak * f->compact.granule_bytes ||
        peak < f->compact.sections.bound_bytes) {
        fail_msg("seed %llu: %s", (unsigned long long)seed, ebb_last_error());
    }
}

#endif
