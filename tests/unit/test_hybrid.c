/* SPDX-License-Identifier: Apache-2.0
 *
 * Sweeps around obstacles alone: whatever lies there before, what comes out is a placement with the obstacles where
 * they were; the smallest gap and the gap beside who dies at the same time are found; giving up is said.
 */
#include "place_fixture.h"

typedef struct hybrid_fixture {
    place_fixture base;
    uint32_t obstacles[N_FIXTURE];
    ebb_place_hybrid_options options;
} hybrid_fixture;

static void draw(hybrid_fixture *f, uint64_t seed) {
    draw_fixture(&f->base, seed, 30);
    f->options = (ebb_place_hybrid_options){.by_death = f->base.compact.by_death,
                                            .obstacles = f->obstacles,
                                            .weight = seed % 3 * 4,
                                            .give_up_bytes = UINT64_MAX,
                                            .max_work = UINT64_MAX};
}

/* All that live around the end, and some others, one above the other. */
static void lay_obstacles(hybrid_fixture *f, uint64_t seed) {
    uint64_t top = 0;
    const ebb_sections *s = &f->base.compact.sections;
    for (uint32_t i = 0; i < s->n_items; i++) {
        if (s->range[i].first < s->range[i].last && (i + seed) % 4 != 0) { continue; }
        f->obstacles[f->options.n_obstacles++] = i;
        f->base.offsets[i] = top;
        top += s->rounded[i];
    }
}

static uint64_t run(hybrid_fixture *f) {
    uint64_t peak = 0, work = 0;
    assert_int_equal(ebb__place_hybrid(&f->base.compact.sections, &f->options, f->base.offsets, &peak, &work), EBB_OK);
    return peak;
}

static void test_placements(void **state) {
    (void)state;
    for (uint64_t seed = 0; seed < 500; seed++) {
        hybrid_fixture f;
        uint64_t before[N_FIXTURE];
        draw(&f, seed);
        lay_obstacles(&f, seed);
        memcpy(before, f.base.offsets, sizeof before);
        const uint64_t peak = run(&f);
        expect_placement(&f.base, peak, seed);
        for (uint32_t i = 0; i < f.options.n_obstacles; i++) {
            assert_true(f.base.offsets[f.obstacles[i]] == before[f.obstacles[i]]);
        }
        f.options.give_up_bytes = peak;
        assert_true(run(&f) == UINT64_MAX);
        f.options.give_up_bytes = peak + 1;
        assert_true(run(&f) == peak);
        f.options.max_work = 0;
        assert_true(run(&f) == UINT64_MAX || f.base.compact.sections.n_items - f.options.n_obstacles <= 1);
        ebb__bump_fini(&f.base.bump);
    }
}

/* At time 3 there are gaps of 40 bytes at 50, above what dies at 6, and of 22 at 120, between what lives until 20. */
static void test_which_gap(void **state) {
    (void)state;
    static const ebb_place_item items[] = {{50, 0, 6},  {40, 0, 2}, {30, 0, 20}, {22, 0, 2},
                                           {21, 0, 20}, {20, 3, 6}, {1, 7, 8},   {1, 21, 22}};
    for (uint64_t weight = 0; weight <= 20; weight += 20) {
        hybrid_fixture f = {.base.problem = EBB_PLACE_PROBLEM_INIT};
        memcpy(f.base.items, items, sizeof items);
        f.base.problem.items = f.base.items;
        f.base.problem.n_items = sizeof items / sizeof *items;
        begin_fixture(&f.base);
        f.options = (ebb_place_hybrid_options){
            .by_death = f.base.compact.by_death, .weight = weight, .give_up_bytes = UINT64_MAX, .max_work = UINT64_MAX};
        expect_placement(&f.base, run(&f), 0);
        assert_true(f.base.of_problem[5] == (weight == 0 ? 120 : 50));
        ebb__bump_fini(&f.base.bump);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_placements),
        cmocka_unit_test(test_which_gap),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
