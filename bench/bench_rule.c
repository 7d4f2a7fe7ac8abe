/* SPDX-License-Identifier: Apache-2.0
 *
 * What a policy that keeps a limit decides under a limit on the load alone: the bytes that are there at one moment, as
 * others count them, without places. Prints one line of CSV for each program, policy and limit.
 *
 *     bench_rule PROGRAM POLICY BYTES...
 *
 * The program is a program's file or one that `ebb import` reads. Steps take the times that it tells, others none, and
 * nothing is copied. The time is that of all steps, again_ns that of those computed again; "none" where the policy has
 * no way.
 */
#include "plan/plan_priv.h"
#include "program_file.h"

#include <inttypes.h>
#include <stdlib.h>

static const ebb_policy *const policies[] = {&ebb__policy_budget, &ebb__policy_dtr, &ebb__policy_dtr_eq};
#define N_POLICIES (sizeof policies / sizeof policies[0])

static int fail(void) {
    fprintf(stderr, "bench_rule: %s\n", ebb_last_error());
    return 1;
}

static uint64_t time_of(const ebb_policy_input *input, const ebb_draft *draft, uint64_t *again_out) {
    const ebb_program_view view = ebb__plan_view(input->program);
    uint64_t all_ns = 0, again_ns = 0;
    for (size_t a = 0; a < draft->actions.n; a++) {
        const ebb_action *action = &draft->actions.data[a].action;
        if (!ebb__action_computes(action)) { continue; }
        const ebb_choice *choice = &view.choices[view.steps[action->target].first_choice];
        const uint64_t ns = ebb_machine_step_time_ns(input->machine, choice);
        all_ns += ns;
        again_ns += action->kind == EBB_ACT_AGAIN ? ns : 0;
    }
    *again_out = again_ns;
    return all_ns;
}

static ebb_status try_limit(const ebb_policy *policy, const ebb_policy_input *input, ebb_draft *draft) {
    uint64_t again_ns = 0;
    const uint64_t start_ns = ebb__now_ns();
    ebb__draft_reset(draft, input->program);
    const ebb_status st = policy->draft(input, draft);
    const double s = (double)(ebb__now_ns() - start_ns) / 1e9;
    if (st != EBB_OK && st != EBB_E_NO_FIT) { return st; }
    printf("%s,%" PRIu64 ",", policy->name, input->limit_bytes);
    if (st == EBB_OK) {
        const uint64_t all_ns = time_of(input, draft, &again_ns);
        printf("%" PRIu64 ",%" PRIu64 ",%.3f\n", all_ns, again_ns, s);
    } else {
        printf("none,none,%.3f\n", s);
    }
    return EBB_OK;
}

static ebb_status run(const ebb_policy *policy, const ebb_program *program, char **limits, int n_limits) {
    ebb_machine *machine = NULL;
    ebb_draft draft;
    EBB_TRY(ebb_machine_create(NULL, &machine));
    ebb_machine_set_rates(machine, 1e18, 1e18, 0);
    ebb_policy_input input = {.program = program, .machine = machine, .mem = ebb__mem_or_default(NULL)};
    ebb_status st = ebb__draft_init(&draft, program, NULL);
    for (int i = 0; i < n_limits && st == EBB_OK; i++) {
        st = ebb_bytes_parse(limits[i], &input.limit_bytes);
        input.budget_bytes = input.limit_bytes;
        if (st == EBB_OK) { st = try_limit(policy, &input, &draft); }
    }
    ebb__draft_fini(&draft);
    ebb_machine_destroy(machine);
    return st;
}

int main(int argc, char **argv) {
    const ebb_policy *policy = NULL;
    ebb_program *program = NULL;
    for (size_t i = 0; i < N_POLICIES && argc > 2; i++) {
        if (strcmp(policies[i]->name, argv[2]) == 0) { policy = policies[i]; }
    }
    if (argc < 4 || policy == NULL) {
        fprintf(stderr, "use: bench_rule PROGRAM budget|dtr|dtr-eq BYTES...\n");
        return 2;
    }
    if (ebb_bench_load_program(argv[1], &program) != EBB_OK) { return fail(); }
    const ebb_status st = run(policy, program, argv + 3, argc - 3);
    ebb_program_destroy(program);
    return st == EBB_OK ? 0 : fail();
}
