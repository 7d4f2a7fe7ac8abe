/* SPDX-License-Identifier: Apache-2.0
 *
 * Every solver by name, on random problems of every kind: what comes out is a placement, for the library's checker
 * and the slow one; it is not below the bound, and the same again. And what each is known to do on small problems.
 */
#include "place_slow.h"

typedef unsigned long long ull;

static ebb_status solve(const ebb_place_problem *p, const char *solver, uint64_t *offsets, ebb_place_result *result) {
    ebb_place_options options = EBB_PLACE_OPTIONS_INIT;
    options.solver = solver;
    options.max_steps = 20000; /* more is slow under sanitizers */
    return ebb_place_solve(p, &options, offsets, result);
}

static bool is_online(const char *solver) {
    return strstr(solver, "-fit") != NULL || strcmp(solver, "pytorch") == 0;
}

/* NULL when all is well. */
static const char *try_solver(const slow_problem *s, const char *solver) {
    uint64_t offsets[SLOW_MAX_ITEMS + 1], again[SLOW_MAX_ITEMS + 1], checked = 0, slow = 0, bound = 0;
    ebb_place_result result = {0}, result_again = {0};
    bool is_fixed = false;
    for (size_t i = 0; s->p.fixed != NULL && i < s->p.n_items; i++) {
        is_fixed = is_fixed || s->fixed[i] != EBB_PLACE_ANYWHERE;
    }
    const ebb_status st = solve(&s->p, solver, offsets, &result);
    if (is_fixed && is_online(solver)) { return st == EBB_E_UNSUPPORTED ? NULL : "takes fixed offsets"; }
    if (st != EBB_OK) { return "fails"; }
    if (solve(&s->p, solver, again, &result_again) != EBB_OK) { return "fails again"; }
    if (memcmp(offsets, again, s->p.n_items * sizeof *offsets) != 0) { return "gives other offsets"; }
    if (result.peak_bytes != result_again.peak_bytes) { return "gives another peak"; }
    if (ebb_place_check(&s->p, NULL, offsets, &checked) != EBB_OK) { return "is refused"; }
    if (!slow_is_placement(&s->p, offsets, s->n_times, &slow)) { return "is no placement"; }
    if (slow != checked) { return "has two peaks"; }
    if (ebb_place_bound(&s->p, NULL, &bound) != EBB_OK || result.bound_bytes < bound) { return "has a lower bound"; }
    if (result.peak_bytes < result.bound_bytes) { return "is below the bound"; }
    const bool reserves = is_online(solver) || strstr(solver, "smartpool") != NULL;
    if (reserves ? checked > result.peak_bytes : checked != result.peak_bytes) { return "has another peak"; }
    return NULL;
}

static void test_random(void **state) {
    (void)state;
    for (uint64_t seed = 0; seed < 2000; seed++) {
        ebb_rng rng;
        ebb__rng_init(&rng, seed, 12);
        slow_problem s;
        slow_draw(&s, &rng, (unsigned)seed % SLOW_N_KINDS);
        const char *solver = NULL, *wrong = NULL;
        for (size_t k = 0; (solver = ebb_place_solver_name(k, NULL)) != NULL; k++) {
            wrong = try_solver(&s, solver);
            if (wrong != NULL) { fail_msg("seed %llu: %s %s; %s", (ull)seed, solver, wrong, ebb_last_error()); }
        }
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_random),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
