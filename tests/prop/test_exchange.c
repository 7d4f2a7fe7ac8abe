/* SPDX-License-Identifier: Apache-2.0
 *
 * Sets of gaps in which some tensors are computed again instead of being copied, and parts leave: of random programs
 * the drafts are valid, keep the limit, and give the results of a plan that only frees.
 */
#include "plan_support.h"

#include "plan/best.h"

#include <inttypes.h>

#define N_LAPS 2

typedef struct counts {
    uint64_t n_drafts, n_again, n_parts, n_around;
} counts;

static ebb_plan *place_draft(const ebb_program *p, const ebb_draft *draft, uint64_t budget_bytes) {
    ebb_plan *plan = make_empty_plan(p, budget_bytes);
    ebb_placed placed;
    ebb_placing_options options = {.alignment = p->alignment_bytes, .work = 10000, .limit_bytes = budget_bytes};
    for (uint32_t t = 1; t < EBB_MAX_TIERS; t++) { options.tier_bytes[t] = UINT64_MAX; }
    assert_int_equal(ebb__draft_to_plan(draft, p, plan), EBB_OK);
    assert_int_equal(ebb__plan_place(plan, &options, &placed), EBB_OK);
    assert_int_equal(ebb__plan_seal(plan), EBB_OK);
    return plan;
}

static void assert_results(const ebb_program *p, const ebb_plan *plan, const ebb_plan *free_plan, ebb_rng *rng) {
    world expected;
    execute_in_order(&expected, p, free_plan, N_LAPS);
    assert_has_results(p, plan, &expected, N_LAPS, rng);
    world_free(&expected);
}

static ebb_plan *make_free(const ebb_program *p, const ebb_machine *m) {
    ebb_plan *plan = NULL;
    ebb_plan_options options = EBB_PLAN_OPTIONS_INIT;
    options.policy = "liveness";
    assert_int_equal(ebb_plan_make(p, m, &options, &plan, NULL), EBB_OK);
    return plan;
}

static bool has_parts(const ebb_plan *plan) {
    size_t n = 0;
    const ebb_action *actions = ebb_plan_actions(plan, &n);
    for (size_t i = 0; i < n; i++) {
        if (!ebb__action_computes(&actions[i]) && actions[i].size_bytes != EBB_WHOLE) { return true; }
    }
    return false;
}

static void try_program(uint64_t seed, counts *c) {
    ebb_rng rng;
    ebb_machine *m = NULL;
    ebb_draft draft;
    ebb__rng_init(&rng, seed, 31);
    ebb_program *p = random_program(seed);
    assert_int_equal(ebb_machine_create(NULL, &m), EBB_OK);
    set_link(m, EBB_HOST, 1e5 * (double)(1u << ebb__rng_below(&rng, 8)), 1e6, 0);
    const uint64_t floor_bytes = ebb_program_floor_bytes(p, NULL);
    ebb_plan_options options = EBB_PLAN_OPTIONS_INIT;
    options.no_parts = seed % 4 == 0;
    ebb_policy_input input = {
        .program = p, .machine = m, .mem = ebb__mem_or_default(NULL), .effort = 1, .n_threads = 1, .options = &options};
    input.limit_bytes = input.budget_bytes = floor_bytes + floor_bytes * (1 + ebb__rng_below(&rng, 4)) / 4;
    input.tier_bytes[EBB_HOST] = UINT64_MAX;
    assert_int_equal(ebb__draft_init(&draft, p, input.mem), EBB_OK);
    ebb__draft_reset(&draft, p);
    const ebb_status st = ebb__policy_exchange.draft(&input, &draft);
    assert_true(st == EBB_OK || st == EBB_E_NO_FIT);
    if (st == EBB_OK) {
        ebb_plan *plan = place_draft(p, &draft, UINT64_MAX), *free_plan = make_free(p, m);
        if (ebb_plan_check(p, plan) != EBB_OK) { fail_msg("seed %" PRIu64 ": %s", seed, ebb_last_error()); }
        assert_results(p, plan, free_plan, &rng);
        c->n_drafts++;
        c->n_again += ebb_plan_get_summary(plan).n_recomputed_steps > 0;
        c->n_parts += has_parts(plan);
        c->n_around += draft.absent.n > 0;
        assert_false(options.no_parts && has_parts(plan));
        ebb_plan_destroy(free_plan);
        ebb_plan_destroy(plan);
    }
    ebb__draft_fini(&draft);
    ebb_machine_destroy(m);
    ebb_program_destroy(p);
}

static void drafts_are_right(void **state) {
    (void)state;
    const uint64_t first = number("EBB_SEED", 1), n = number("EBB_COUNT", by_form(5, 6, 30));
    counts c = {0};
    for (uint64_t seed = first; seed < first + n; seed++) { try_program(seed, &c); }
    print_message("%" PRIu64 " drafts, %" PRIu64 " compute again, %" PRIu64 " with parts, %" PRIu64
                  " with parts away at the end\n",
                  c.n_drafts, c.n_again, c.n_parts, c.n_around);
    assert_true(c.n_drafts * 3 > n && c.n_again * 5 > c.n_drafts && c.n_parts * 8 > c.n_drafts && c.n_around > 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(drafts_are_right)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
