/* SPDX-License-Identifier: Apache-2.0
 *
 * The certificate of a plan: what no plan can beat, by the rule that proves the most. Also two lower
 * bounds that save work on plans that cannot win: what plans that only copy cannot beat, and what one plan takes at
 * least.
 */
#include "plan/bound.h"

static ebb_status bound_by_prices(const ebb_program *program, const ebb_machine *machine,
                                  const ebb_plan_options *limits, double *bound_ns_out) {
    ebb_bound_problem problem;
    ebb_bump bump;
    ebb__bump_init(&bump, limits->mem);
    ebb_status st = ebb__bound_problem(program, machine, limits, &bump, &problem);
    if (st == EBB_OK) { st = ebb__bound_price(&problem, limits->effort, &bump, bound_ns_out, NULL); }
    ebb__bump_fini(&bump);
    return st;
}

ebb_status ebb__plan_certify(const ebb_program *program, const ebb_machine *machine, const ebb_plan_options *limits,
                             bool in_order, ebb_certificate *certificate_out) {
    const ebb_program_view view = ebb__plan_view(program);
    ebb_certificate c = {.bound_bytes = ebb_program_floor_bytes(program, NULL),
                         .bytes_rule = ebb__certificate_rule("step"),
                         .ns_rule = ebb__certificate_rule("compute")};
    for (size_t s = 0; s < view.n_steps; s++) {
        c.bound_ns = ebb__add_ns(c.bound_ns, ebb__least_step_ns(&view, machine, s));
    }
    double by_prices = 0;
    if (in_order) { EBB_TRY(bound_by_prices(program, machine, limits, &by_prices)); }
    if (by_prices > (double)c.bound_ns && by_prices < (double)UINT64_MAX) {
        c.bound_ns = (uint64_t)by_prices;
        c.ns_rule = ebb__certificate_rule("prices");
    }
    *certificate_out = c;
    return EBB_OK;
}

ebb_status ebb__bound_copies(const ebb_program *program, const ebb_machine *machine, const ebb_plan_options *limits,
                             uint64_t *bound_ns_out) {
    ebb_plan_options copies = *limits;
    double bound_ns = 0;
    copies.no_recompute = true;
    EBB_TRY(bound_by_prices(program, machine, &copies, &bound_ns));
    *bound_ns_out = bound_ns < (double)UINT64_MAX ? (uint64_t)bound_ns : UINT64_MAX;
    return EBB_OK;
}

static uint64_t busy_ns(const ebb_program_view *view, const ebb_machine *machine, const ebb_action *action) {
    if (ebb__action_computes(action)) {
        const uint32_t choice = view->steps[action->target].first_choice + action->choice;
        return ebb_machine_step_time_ns(machine, &view->choices[choice]);
    }
    const uint32_t from = action->kind == EBB_ACT_OUT ? EBB_DEVICE : action->tier;
    const uint32_t to = action->kind == EBB_ACT_IN    ? EBB_DEVICE
                        : action->kind == EBB_ACT_OUT ? action->tier
                                                      : action->to;
    const uint64_t end = ebb__action_end(action, view->tensors[action->target].size_bytes);
    return ebb_machine_copy_time_ns(machine, from, to, end - action->begin);
}

uint64_t ebb__plan_least_ns(const ebb_program *program, const ebb_machine *machine, const ebb_plan *plan,
                            uint64_t stop_ns) {
    const ebb_program_view view = ebb__plan_view(program);
    const ebb_topology *topology = ebb_machine_topology(machine);
    uint64_t engine_ns[EBB_MAX_ENGINES] = {0}, most_ns = 0;
    for (size_t i = 0; i < plan->actions.n && most_ns < stop_ns; i++) {
        const ebb_action *action = &plan->actions.data[i];
        if (action->kind == EBB_ACT_DROP) { continue; }
        uint64_t *ns = &engine_ns[ebb__topology_engine_of(topology, action)];
        *ns = ebb__add_ns(*ns, busy_ns(&view, machine, action));
        most_ns = ebb_max_u64(most_ns, *ns);
    }
    return most_ns;
}
