/* SPDX-License-Identifier: Apache-2.0
 *
 * A plan on request: which policies there are, how they come to their choices of algorithm, and the validator's word
 * on the result.
 */
#include "plan/certifier.h"
#include "plan/hold.h"
#include "plan/machine_priv.h"
#include "plan/maker.h"
#include "plan/move_on.h"

#include <math.h>

static const ebb_policy *const policies[] = {&ebb__policy_none,
                                             &ebb__policy_liveness,
                                             &ebb__policy_order,
                                             &ebb__policy_budget,
                                             &ebb__policy_best,
                                             &ebb__policy_swap,
                                             &ebb__policy_autoswap_doa,
                                             &ebb__policy_autoswap_aoa,
                                             &ebb__policy_autoswap_wdoa,
                                             &ebb__policy_autoswap_swdoa,
                                             &ebb__policy_autoswap_vote,
                                             &ebb__policy_autoswap_bo,
                                             &ebb__policy_recompute_speed,
                                             &ebb__policy_recompute_memory,
                                             &ebb__policy_recompute_cost_aware,
                                             &ebb__policy_recompute_printed,
                                             &ebb__policy_sqrt_n,
                                             &ebb__policy_chen_greedy,
                                             &ebb__policy_ap_sqrt_n,
                                             &ebb__policy_ap_greedy,
                                             &ebb__policy_revolve,
                                             &ebb__policy_mixed,
                                             &ebb__policy_vdnn_all,
                                             &ebb__policy_vdnn_conv,
                                             &ebb__policy_utp,
                                             &ebb__policy_tensor_cache,
                                             &ebb__policy_tensor_cache_next,
                                             &ebb__policy_superneurons,
                                             &ebb__policy_route,
                                             &ebb__policy_dtr,
                                             &ebb__policy_dtr_eq,
                                             &ebb__policy_capuchin,
                                             &ebb__policy_mu_two,
                                             &ebb__policy_g10,
                                             &ebb__policy_flashneuron};
#define N_POLICIES (sizeof policies / sizeof policies[0])

const char *ebb_policy_name(size_t idx, const char **about_out) {
    if (idx >= N_POLICIES) { return NULL; }
    if (about_out != NULL) { *about_out = policies[idx]->about; }
    return policies[idx]->name;
}

static const char *policy_at(const void *ctx, size_t i) {
    (void)ctx;
    return ebb_policy_name(i, NULL);
}

static const char *algorithms_at(const void *ctx, size_t i) {
    (void)ctx;
    return ebb_algorithms_name(i, NULL);
}

ebb_status ebb__policy_find(const char *name, const ebb_policy **policy_out) {
    char known[EBB_SUGGESTION_BYTES];
    for (size_t i = 0; i < N_POLICIES; i++) {
        if (name == NULL || strcmp(policies[i]->name, name) != 0) { continue; }
        *policy_out = policies[i];
        return EBB_OK;
    }
    name = name != NULL ? name : "";
    return ebb_fail(EBB_E_ARGUMENT, "no policy is called '%.64s'%s", name,
                    ebb__suggest_or_list(name, policy_at, NULL, known));
}

uint64_t ebb__trip_ns(const ebb_machine *machine, uint32_t tier, uint64_t bytes) {
    return ebb__add_ns(ebb_machine_copy_time_ns(machine, EBB_DEVICE, tier, bytes),
                       ebb_machine_copy_time_ns(machine, tier, EBB_DEVICE, bytes));
}

uint32_t ebb__pick_tier(const ebb_policy_input *input, const uint64_t used_bytes[EBB_MAX_TIERS], uint64_t bytes) {
    uint32_t found = EBB_MAX_TIERS;
    for (uint32_t tier = EBB_DEVICE + 1; tier < EBB_MAX_TIERS; tier++) {
        const uint64_t limit_bytes = input->tier_bytes[tier];
        if (limit_bytes == 0 || !ebb__has_room(limit_bytes, used_bytes[tier], bytes)) { continue; }
        const bool is_first = found == EBB_MAX_TIERS;
        if (is_first || ebb__trip_ns(input->machine, tier, bytes) < ebb__trip_ns(input->machine, found, bytes)) {
            found = tier;
        }
    }
    return found;
}

uint32_t ebb__pick_next_tier(const ebb_policy_input *input, uint64_t used_bytes[EBB_MAX_TIERS], uint64_t bytes,
                             uint32_t tier) {
    used_bytes[tier] = UINT64_MAX;
    return ebb__pick_tier(input, used_bytes, bytes);
}

/* The same choices whatever the plan. */
static ebb_status make_chosen(ebb_maker *m, ebb_algorithms how, ebb_plan **plan_out, ebb_no_fit *no_fit_out) {
    size_t n_steps = 0;
    (void)ebb_program_steps(m->program, &n_steps);
    uint32_t *choice = ebb__alloc(m->mem, n_steps, sizeof *choice);
    if (choice == NULL) { return EBB_E_NO_MEMORY; }
    ebb__algorithms_choose(m->program, m->machine, how, choice);
    ebb__maker_choose(m, choice);
    ebb_status st = ebb__maker_make(m, plan_out, no_fit_out);
    ebb__maker_choose(m, NULL);
    ebb__free(m->mem, choice);
    return st;
}

static ebb_status make(ebb_maker *m, ebb_algorithms how, ebb_plan **plan_out, ebb_no_fit *no_fit_out) {
    switch (how) {
    case EBB_ALGORITHMS_GIVEN: return ebb__maker_make(m, plan_out, no_fit_out);
    case EBB_ALGORITHMS_FITTING: return ebb__fitting_make(m, plan_out, no_fit_out);
    case EBB_ALGORITHMS_GREEDY: return ebb__greedy_make(m, plan_out, no_fit_out);
    default: return make_chosen(m, how, plan_out, no_fit_out);
    }
}

/* More than any tier is asked to hold: all tensors twice, since copies leave gaps between them. */
static uint64_t most_bytes(const ebb_program *program) {
    const ebb_program_view view = ebb__plan_view(program);
    uint64_t bytes = 0;
    for (size_t t = 0; t < view.n_tensors; t++) {
        const uint64_t rounded = ebb_align_up(view.tensors[t].size_bytes, view.alignment);
        bytes = rounded > UINT64_MAX / 2 - bytes ? UINT64_MAX / 2 : bytes + rounded;
    }
    return 2 * bytes;
}

/* The options with a budget of whole granules, and on each tier at most what the machine has there: nothing where it
 * has no such tier, or none that is linked to the device both ways. A limit that is never reached counts as
 * none: plans are made faster without one. */
static ebb_plan_options leave_usable(const ebb_plan_options *options, const ebb_program *program,
                                     const ebb_topology *topology) {
    ebb_plan_options usable = *options;
    const uint64_t most = most_bytes(program);
    const bool has_granules = options->granule_bytes > 1 && options->budget_bytes != UINT64_MAX;
    if (has_granules) { usable.budget_bytes -= options->budget_bytes % options->granule_bytes; }
    for (uint32_t t = 1; t < EBB_MAX_TIERS; t++) {
        const bool is_reached =
            t < topology->n_tiers && topology->way[EBB_DEVICE][t] != 0 && topology->way[t][EBB_DEVICE] != 0;
        const uint64_t has_bytes = is_reached ? topology->tier[t].capacity_bytes : 0;
        usable.tier_bytes[t] = ebb_min_u64(usable.tier_bytes[t], has_bytes);
        if (is_reached && usable.tier_bytes[t] >= most) { usable.tier_bytes[t] = UINT64_MAX; }
    }
    return usable;
}

ebb_status ebb_plan_certify(const ebb_program *program, const ebb_machine *machine, const ebb_plan_options *options,
                            ebb_certificate *certificate_out) {
    EBB_NEED(program);
    EBB_NEED(machine);
    EBB_NEED(options);
    EBB_NEED(certificate_out);
    if (options->size_bytes != sizeof *options) { return ebb_fail(EBB_E_ARGUMENT, "options of another version"); }
    const ebb_plan_options usable = leave_usable(options, program, ebb_machine_topology(machine));
    return ebb__plan_certify(program, machine, &usable, true, ebb__bound_care(usable.effort), certificate_out);
}

ebb_status ebb_plan_make(const ebb_program *program, const ebb_machine *machine, const ebb_plan_options *options,
                         ebb_plan **plan_out, ebb_no_fit *no_fit_out) {
    EBB_NEED(program);
    EBB_NEED(machine);
    EBB_NEED(options);
    EBB_NEED(plan_out);
    const ebb_plan_asked asked = {0};
    return ebb__plan_make(program, machine, options, &asked, plan_out, no_fit_out);
}

static ebb_status check_options(const ebb_plan_options *options, ebb_algorithms how) {
    if (how == EBB_N_ALGORITHMS) {
        char known[EBB_SUGGESTION_BYTES];
        const char *name = options->algorithms != NULL ? options->algorithms : "";
        return ebb_fail(EBB_E_ARGUMENT, "no way to choose algorithms is called '%.64s'%s", name,
                        ebb__suggest_or_list(name, algorithms_at, NULL, known));
    }
    if (isnan(options->slowdown)) { return ebb_fail(EBB_E_ARGUMENT, "a slowdown that is not a number"); }
    if (!(options->margin >= 0 && options->margin <= EBB_MAX_MARGIN)) {
        return ebb_fail(EBB_E_ARGUMENT, "a margin of %g%% is not from 0%% to %g%%", options->margin * 100,
                        EBB_MAX_MARGIN * 100);
    }
    return EBB_OK;
}

/* What a plan is made from: options that the machine can use, and a machine whose links are slower by the margin. */
typedef struct request {
    const ebb_program *program;
    const ebb_policy *policy;
    ebb_algorithms how;
    ebb_plan_options usable;
    ebb_machine slower;
    bool is_quick; /* a first plan will do */
} request;

/* The plan without its certificate; the caller destroys it, also after a failure. */
static ebb_status make_bare(const request *r, ebb_plan **plan_out, ebb_no_fit *no_fit_out) {
    ebb_maker m;
    EBB_TRY(ebb__maker_init(&m, r->program, &r->slower, &r->usable, r->policy));
    m.first_will_do = r->is_quick && r->usable.budget_bytes != UINT64_MAX;
    ebb_status st = make(&m, r->how, plan_out, no_fit_out);
    ebb__maker_fini(&m);
    if (st == EBB_OK) { st = ebb__plan_move_on(r->program, &r->slower, &r->usable, plan_out); }
    if (st == EBB_OK && r->policy->rivals != NULL) {
        st = ebb__plan_hold(r->program, &r->slower, &r->usable, plan_out);
    }
    if (st == EBB_OK) { (*plan_out)->algorithms = r->how; }
    return st;
}

static ebb_status certify(const request *r, ebb_certifier *certifier, const ebb_certificate *known, ebb_plan *plan) {
    const bool in_order = ebb__plan_is_in_order(plan);
    if (known != NULL && in_order) {
        plan->certificate = *known;
        return EBB_OK;
    }
    ebb__tell(&r->usable.progress, "finding the bound", 0, 0);
    return ebb__certifier_end(certifier, in_order, &plan->certificate);
}

static ebb_status check_plan(const request *r, ebb_plan *plan, ebb_no_fit *no_fit_out) {
    EBB_TRY(ebb__plan_seal(plan));
    EBB_TRY(ebb_plan_check(r->program, plan));
    if (!r->usable.no_recompute || plan->summary.n_recomputed_steps == 0) { return EBB_OK; }
    if (no_fit_out != NULL) { *no_fit_out = (ebb_no_fit){0}; }
    return ebb_fail(EBB_E_NO_FIT, "policy %s computes steps again, and no_recompute forbids it", r->policy->name);
}

ebb_status ebb__plan_make(const ebb_program *program, const ebb_machine *machine, const ebb_plan_options *options,
                          const ebb_plan_asked *asked, ebb_plan **plan_out, ebb_no_fit *no_fit_out) {
    if (options->size_bytes != sizeof *options) { return ebb_fail(EBB_E_ARGUMENT, "options of another version"); }
    request r = {.program = program, .how = ebb__algorithms_find(options->algorithms)};
    EBB_TRY(ebb__policy_find(options->policy, &r.policy));
    EBB_TRY(check_options(options, r.how));
    if (options->slowdown >= 0) { return ebb__plan_least_peak(program, machine, options, plan_out, no_fit_out); }
    const bool searches = r.policy->rivals != NULL;
    r.usable = leave_usable(options, program, ebb_machine_topology(machine));
    if (!searches) { r.usable.effort = 0; } /* and neither does its bound */
    r.slower = ebb__machine_slow_links(machine, 1 + options->margin);
    r.is_quick = searches && r.usable.effort == 0 && !asked->always_walks;
    const ebb_bound_care care = r.is_quick ? EBB_BOUND_AT_ONCE : ebb__bound_care(r.usable.effort);
    ebb_certifier certifier;
    ebb_plan *plan = NULL;
    ebb__certifier_init(&certifier, program, machine, &r.usable, care);
    if (searches && asked->known == NULL) { ebb__certifier_begin(&certifier); }
    ebb_status st = make_bare(&r, &plan, no_fit_out);
    if (st == EBB_OK) { st = certify(&r, &certifier, asked->known, plan); }
    if (st == EBB_OK) { st = check_plan(&r, plan, no_fit_out); }
    ebb__certifier_drop(&certifier);
    if (st != EBB_OK) {
        ebb_plan_destroy(plan);
        return st;
    }
    *plan_out = plan;
    return EBB_OK;
}
