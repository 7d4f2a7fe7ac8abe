/* SPDX-License-Identifier: Apache-2.0
 *
 * The certificate of a plan: what no plan can beat, by the rule that proves the most. Also what no plan with given
 * choices of algorithm can beat, which saves work on plans that cannot win.
 */
#include "plan/bound.h"

#include <math.h>

static ebb_status bound_by_prices(const ebb_program *program, const ebb_machine *machine,
                                  const ebb_plan_options *limits, ebb_bound_choices choices, ebb_bound_care care,
                                  double stop_ns, const atomic_bool *is_unwanted, double *bound_ns_out) {
    ebb_bound_problem problem;
    ebb_bump bump;
    ebb__bump_init(&bump, limits->mem);
    ebb_status st = ebb__bound_problem(program, machine, limits, choices, care, &bump, &problem);
    problem.is_unwanted = is_unwanted;
    if (st == EBB_OK) { st = ebb__bound_price(&problem, care, stop_ns, &bump, bound_ns_out, NULL); }
    ebb__bump_fini(&bump);
    return st;
}

ebb_status ebb__plan_certify_unless(const atomic_bool *is_unwanted, const ebb_program *program,
                                    const ebb_machine *machine, const ebb_plan_options *limits, bool in_order,
                                    ebb_bound_care care, ebb_certificate *certificate_out) {
    const ebb_program_view view = ebb__plan_view(program);
    ebb_certificate c = {.bound_bytes = ebb_program_floor_bytes(program, NULL),
                         .bytes_rule = ebb__certificate_rule("step"),
                         .ns_rule = ebb__certificate_rule("compute")};
    for (size_t s = 0; s < view.n_steps; s++) {
        c.bound_ns = ebb__add_ns(c.bound_ns, ebb__least_step_ns(&view, machine, s));
    }
    double by_prices = 0;
    const ebb_bound_choices any = {0};
    if (in_order) { EBB_TRY(bound_by_prices(program, machine, limits, any, care, INFINITY, is_unwanted, &by_prices)); }
    if (by_prices > (double)c.bound_ns && by_prices < (double)UINT64_MAX) {
        c.bound_ns = (uint64_t)by_prices;
        c.ns_rule = ebb__certificate_rule("prices");
    }
    *certificate_out = c;
    return EBB_OK;
}

ebb_status ebb__plan_certify(const ebb_program *program, const ebb_machine *machine, const ebb_plan_options *limits,
                             bool in_order, ebb_bound_care care, ebb_certificate *certificate_out) {
    return ebb__plan_certify_unless(NULL, program, machine, limits, in_order, care, certificate_out);
}

ebb_status ebb__bound_choices(const ebb_program *program, const ebb_machine *machine, const ebb_plan_options *limits,
                              const uint32_t *choice, uint64_t stop_ns, uint64_t *bound_ns_out) {
    const ebb_bound_choices choices = {true, choice};
    double bound_ns = 0;
    const ebb_bound_care care = ebb__bound_care(limits->effort);
    EBB_TRY(bound_by_prices(program, machine, limits, choices, care, (double)stop_ns, NULL, &bound_ns));
    *bound_ns_out = bound_ns < (double)UINT64_MAX ? (uint64_t)bound_ns : UINT64_MAX;
    return EBB_OK;
}
