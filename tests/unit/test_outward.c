/* SPDX-License-Identifier: Apache-2.0
 *
 * Sweeps from a section outwards: one to the right and one to the left make a placement, whatever is cut where, on a
 * circle and not; what had a place keeps it; giving up leaves all as it was.
 */
#include "place_fixture.h"

typedef struct outward_fixture {
    place_fixture base;
    uint32_t alive[N_FIXTURE];
    uint32_t valley;
    ebb_place_outward_options options;
} outward_fixture;

static bool lives_at(const ebb_sections *s, uint32_t item, uint32_t section) {
    const ebb_place_range r = s->range[item];
    return r.first < r.last ? section >= r.first && section < r.last : section >= r.first || section < r.last;
}

/* On a circle of all odd seeds, else a line. */
static void draw(outward_fixture *f, uint64_t seed) {
    if (seed % 2 == 0) {
        draw_line_fixture(&f->base, seed, 30);
    } else {
        draw_fixture(&f->base, seed, 30);
    }
    const ebb_sections *s = &f->base.compact.sections;
    f->options = (ebb_place_outward_options){.by_death = f->base.compact.by_death,
                                             .section = (uint32_t)(seed * 7 % s->n),
                                             .alive = f->alive,
                                             .weight = seed % 3 * 4,
                                             .give_up_bytes = UINT64_MAX,
                                             .max_work = UINT64_MAX};
    f->valley = (f->options.section + 1 + (uint32_t)(seed * 11 % (s->n - 1))) % s->n;
}

static uint64_t stack_alive(outward_fixture *f) {
    uint64_t top = 0;
    const ebb_sections *s = &f->base.compact.sections;
    for (uint32_t i = 0; i < s->n_items; i++) {
        f->base.offsets[i] = EBB_PLACE_NOWHERE;
        if (!lives_at(s, i, f->options.section)) { continue; }
        f->alive[f->options.n_alive++] = i;
        f->base.offsets[i] = top;
        top += s->rounded[i];
    }
    return top;
}

static uint64_t go(outward_fixture *f, bool backward, bool is_first) {
    uint64_t work = 0;
    ebb_bump bump;
    ebb_place_outward_result result = {0};
    const uint32_t n = f->base.compact.sections.n, from = f->options.section, to = f->valley;
    f->options.backward = backward;
    f->options.n_to_place = backward ? (from + n - to) % n + 1 : (to + n - from) % n;
    f->options.n_sections = is_first ? n : f->options.n_to_place;
    ebb__bump_init(&bump, NULL);
    assert_int_equal(ebb__place_outward(&f->base.compact.sections, &f->options, f->base.offsets, &bump, &result, &work),
                     EBB_OK);
    for (size_t i = 0; i < result.n_items && result.peak != UINT64_MAX; i++) {
        f->base.offsets[result.item[i]] = result.offset[i];
    }
    ebb__bump_fini(&bump);
    return result.peak;
}

static void test_both_ways(void **state) {
    (void)state;
    for (uint64_t seed = 0; seed < 1000; seed++) {
        outward_fixture f;
        draw(&f, seed);
        const uint64_t top = stack_alive(&f), one = go(&f, seed % 4 < 2, true), other = go(&f, seed % 4 >= 2, false);
        expect_placement(&f.base, ebb_max_u64(top, ebb_max_u64(one, other)), seed);
        ebb__bump_fini(&f.base.bump);
    }
}

static void test_what_stays(void **state) {
    (void)state;
    for (uint64_t seed = 0; seed < 200; seed++) {
        outward_fixture f;
        uint64_t before[N_FIXTURE], first[N_FIXTURE];
        draw(&f, seed);
        (void)stack_alive(&f);
        memcpy(before, f.base.offsets, sizeof before);
        const uint64_t peak = go(&f, false, true);
        memcpy(first, f.base.offsets, sizeof first);
        memcpy(f.base.offsets, before, sizeof before);
        f.options.give_up_bytes = peak;
        assert_true(go(&f, false, true) == UINT64_MAX);
        assert_memory_equal(f.base.offsets, before, f.base.compact.sections.n_items * sizeof *before);
        f.options.give_up_bytes = UINT64_MAX;
        assert_true(go(&f, false, true) == peak);
        assert_memory_equal(f.base.offsets, first, f.base.compact.sections.n_items * sizeof *first);
        (void)go(&f, true, false);
        for (uint32_t i = 0; i < f.base.compact.sections.n_items; i++) {
            assert_true(first[i] == EBB_PLACE_NOWHERE || f.base.offsets[i] == first[i]);
        }
        ebb__bump_fini(&f.base.bump);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_both_ways),
        cmocka_unit_test(test_what_stays),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
