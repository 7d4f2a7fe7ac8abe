/* SPDX-License-Identifier: Apache-2.0
 *
 * The plan as an object: making, views, and the figures of its summary. The figures are always worked out
 * from the actions, stays and slots, so a plan from a file and one from a policy state the same.
 */
#include "plan/plan_priv.h"

const char *ebb__action_name(uint32_t kind) {
    static const char *const names[] = {"run", "again", "out", "in", "move", "drop"};
    return kind <= EBB_ACT_DROP ? names[kind] : "?";
}

ebb_program_view ebb__plan_view(const ebb_program *program) {
    ebb_program_view view = {.alignment = ebb_program_alignment_bytes(program)};
    size_t n_choices = 0;
    view.tensors = ebb_program_tensors(program, &view.n_tensors);
    view.steps = ebb_program_steps(program, &view.n_steps);
    view.accesses = ebb_program_accesses(program, &view.n_accesses);
    view.choices = ebb_program_choices(program, &n_choices);
    EBB_ASSERT(view.n_steps > 0 && n_choices >= view.n_steps);
    EBB_ASSERT(view.alignment > 0 && (view.alignment & (view.alignment - 1)) == 0);
    return view;
}

ebb_status ebb__plan_create(const ebb_mem *mem, const char *policy, const ebb_topology *topology, ebb_plan **plan_out) {
    mem = ebb__mem_or_default(mem);
    ebb_plan *plan = ebb__calloc(mem, 1, sizeof *plan);
    if (plan == NULL) { return EBB_E_NO_MEMORY; }
    plan->mem = mem;
    plan->topology = *topology;
    plan->alignment_bytes = 1;
    plan->policy = ebb__strdup(mem, policy);
    if (plan->policy == NULL) {
        ebb_plan_destroy(plan);
        return EBB_E_NO_MEMORY;
    }
    *plan_out = plan;
    return EBB_OK;
}

ebb_status ebb__plan_create_like(const ebb_plan *plan, ebb_plan **like_out) {
    ebb_plan *like = NULL;
    EBB_TRY(ebb__plan_create(plan->mem, plan->policy, &plan->topology, &like));
    like->algorithms = plan->algorithms;
    like->budget_bytes = plan->budget_bytes;
    like->fingerprint = plan->fingerprint;
    like->alignment_bytes = plan->alignment_bytes;
    like->has_nominal_times = plan->has_nominal_times;
    like->certificate = plan->certificate;
    *like_out = like;
    return EBB_OK;
}

void ebb_plan_destroy(ebb_plan *plan) {
    if (plan == NULL) { return; }
    EBB_VEC_FINI(plan->mem, &plan->actions);
    EBB_VEC_FINI(plan->mem, &plan->stays);
    EBB_VEC_FINI(plan->mem, &plan->slots);
    ebb__free(plan->mem, plan->policy);
    ebb__free(plan->mem, plan);
}

static uint64_t stay_begin(const void *stay) {
    return ((const ebb_stay *)stay)->begin;
}

static uint64_t stay_tensor(const void *stay) {
    return ((const ebb_stay *)stay)->tensor;
}

static uint64_t stay_first(const void *stay) {
    return ((const ebb_stay *)stay)->first;
}

static uint64_t slot_begin(const void *slot) {
    return ((const ebb_slot *)slot)->begin;
}

static uint64_t slot_tensor(const void *slot) {
    return ((const ebb_slot *)slot)->tensor;
}

static uint64_t slot_first(const void *slot) {
    return ((const ebb_slot *)slot)->first;
}

ebb_status ebb__plan_sort_pieces(ebb_plan *plan) {
    uint64_t (*const stay_keys[])(const void *) = {stay_begin, stay_tensor, stay_first};
    uint64_t (*const slot_keys[])(const void *) = {slot_begin, slot_tensor, slot_first};
    for (int k = 0; k < 3; k++) { /* sorting keeps the order of equal ones */
        EBB_TRY(ebb__sort_items(plan->mem, plan->stays.data, plan->stays.n, sizeof *plan->stays.data, stay_keys[k]));
        EBB_TRY(ebb__sort_items(plan->mem, plan->slots.data, plan->slots.n, sizeof *plan->slots.data, slot_keys[k]));
    }
    return EBB_OK;
}

ebb_status ebb__plan_order_slot_ends(const ebb_plan *plan, ebb_bump *bump, uint32_t **slots_out) {
    size_t n = plan->slots.n;
    if (n > UINT32_MAX) { return ebb_fail(EBB_E_LIMIT, "plan: more than 2^32 - 1 slots"); }
    uint64_t *last = ebb__bump_alloc(bump, n, sizeof *last);
    uint32_t *slots = ebb__bump_alloc(bump, n, sizeof *slots);
    if (last == NULL || slots == NULL) { return EBB_E_NO_MEMORY; }
    for (size_t i = 0; i < n; i++) {
        last[i] = plan->slots.data[i].last;
        slots[i] = (uint32_t)i;
    }
    EBB_TRY(ebb__sort_by_key(bump->mem, slots, n, last));
    EBB_ASSERT(n == 0 || last[slots[0]] <= last[slots[n - 1]]);
    *slots_out = slots;
    return EBB_OK;
}

/* ---- load: a difference array ------------------------------------------------------------------ */

ebb_status ebb__load_init(ebb_load *load, const ebb_mem *mem, uint64_t n) {
    *load = (ebb_load){.mem = mem, .n = n};
    load->change = ebb__calloc(mem, n + 1, sizeof *load->change);
    return load->change != NULL ? EBB_OK : EBB_E_NO_MEMORY;
}

void ebb__load_fini(ebb_load *load) {
    ebb__free(load->mem, load->change);
    load->change = NULL;
}

/* Differences wrap; the sums do not. */
void ebb__load_add(ebb_load *load, uint64_t first, uint64_t last, uint64_t bytes) {
    EBB_ASSERT(load->change != NULL && first <= load->n && last <= load->n);
    if (first >= last) { load->change[0] += bytes; }
    load->change[last] -= bytes;
    load->change[first] += bytes;
}

uint64_t ebb__load_most(const ebb_load *load) {
    uint64_t sum = 0, most = 0;
    for (uint64_t p = 0; p < load->n; p++) {
        sum += load->change[p];
        most = ebb_max_u64(most, sum);
    }
    return most;
}

/* ---- the summary ------------------------------------------------------------------------------- */

ebb_status ebb__plan_bound(const ebb_plan *plan, uint64_t alignment, uint64_t *bound_out) {
    ebb_load load;
    EBB_TRY(ebb__load_init(&load, plan->mem, plan->actions.n));
    for (size_t i = 0; i < plan->stays.n; i++) {
        const ebb_stay *stay = &plan->stays.data[i];
        ebb__load_add(&load, stay->first, stay->last, ebb_align_up(stay->size_bytes, alignment));
    }
    *bound_out = ebb__load_most(&load);
    ebb__load_fini(&load);
    return EBB_OK;
}

/* What comes in are the stays that an in begins, what goes out the slot that an out fills; both arrays are in order, so
 * one walk finds them. */
static void sum_moves(const ebb_plan *plan, ebb_plan_summary *sum) {
    size_t stay = 0, slot = 0;
    for (size_t p = 0; p < plan->actions.n; p++) {
        const ebb_action *action = &plan->actions.data[p];
        for (; stay < plan->stays.n && plan->stays.data[stay].first == p; stay++) {
            const ebb_stay *here = &plan->stays.data[stay];
            const bool is_in =
                action->kind == EBB_ACT_IN && here->tensor == action->target && here->first != here->last;
            if (is_in) { sum->moved_in_bytes += here->size_bytes; }
        }
        for (; slot < plan->slots.n && plan->slots.data[slot].first == p; slot++) {
            const ebb_slot *here = &plan->slots.data[slot];
            const bool is_filled = here->tensor == action->target && here->first != here->last;
            if (is_filled && action->kind == EBB_ACT_OUT) { sum->moved_out_bytes += here->size_bytes; }
            if (is_filled && action->kind == EBB_ACT_MOVE) { sum->moved_on_bytes += here->size_bytes; }
        }
        sum->n_recomputed_steps += action->kind == EBB_ACT_AGAIN;
    }
}

ebb_status ebb__plan_seal(ebb_plan *plan) {
    ebb_plan_summary sum = {
        .policy = plan->policy,
        .budget_bytes = plan->budget_bytes,
        .alignment_bytes = plan->alignment_bytes,
        .fingerprint = plan->fingerprint,
        .has_nominal_times = plan->has_nominal_times,
        .certificate = plan->certificate,
    };
    sum.algorithms = ebb_algorithms_name((size_t)plan->algorithms, NULL);
    uint64_t total = 0, end = 0;
    for (size_t i = 0; i < plan->stays.n; i++) {
        const ebb_stay *stay = &plan->stays.data[i];
        if (!ebb_add_u64(stay->offset, stay->size_bytes, &end) || !ebb_add_u64(total, stay->size_bytes, &total)) {
            return ebb_fail(EBB_E_FORMAT, "plan: the bytes of stay %zu do not add up within 64 bits", i);
        }
        sum.peak_bytes = ebb_max_u64(sum.peak_bytes, end);
    }
    total = 0;
    for (size_t i = 0; i < plan->slots.n; i++) {
        const ebb_slot *slot = &plan->slots.data[i];
        if (!ebb_add_u64(slot->offset, slot->size_bytes, &end) || !ebb_add_u64(total, slot->size_bytes, &total)) {
            return ebb_fail(EBB_E_FORMAT, "plan: the bytes of slot %zu do not add up within 64 bits", i);
        }
        if (slot->tier >= plan->topology.n_tiers) { return ebb_fail(EBB_E_FORMAT, "plan: slot %zu is on no tier", i); }
        sum.tier_bytes[slot->tier] = ebb_max_u64(sum.tier_bytes[slot->tier], end);
    }
    EBB_TRY(ebb__plan_bound(plan, plan->alignment_bytes, &sum.bound_bytes));
    sum.bound_bytes = ebb_min_u64(sum.bound_bytes, sum.peak_bytes); /* what lies highest is not rounded up */
    sum_moves(plan, &sum);
    EBB_ASSERT(sum.n_recomputed_steps <= plan->actions.n && sum.policy == plan->policy);
    plan->summary = sum;
    return EBB_OK;
}

const ebb_action *ebb_plan_actions(const ebb_plan *plan, size_t *n_out) {
    *n_out = plan->actions.n;
    return plan->actions.data;
}

const ebb_stay *ebb_plan_stays(const ebb_plan *plan, size_t *n_out) {
    *n_out = plan->stays.n;
    return plan->stays.data;
}

const ebb_slot *ebb_plan_slots(const ebb_plan *plan, size_t *n_out) {
    *n_out = plan->slots.n;
    return plan->slots.data;
}

const char *ebb__certificate_rule(const char *name) {
    static const char *const rules[] = {"step", "compute", "prices"};
    for (size_t i = 0; i < sizeof rules / sizeof *rules; i++) {
        if (strcmp(rules[i], name) == 0) { return rules[i]; }
    }
    return NULL;
}

bool ebb__plan_is_in_order(const ebb_plan *plan) {
    uint32_t next = 0;
    for (size_t a = 0; a < plan->actions.n; a++) {
        const ebb_action *action = &plan->actions.data[a];
        if (action->kind != EBB_ACT_RUN) { continue; }
        if (action->target != next++) { return false; }
    }
    return true;
}

uint64_t ebb__least_step_ns(const ebb_program_view *view, const ebb_machine *machine, size_t step) {
    const ebb_step *of = &view->steps[step];
    uint64_t least_ns = UINT64_MAX;
    for (uint32_t i = 0; i < of->n_choices; i++) {
        least_ns = ebb_min_u64(least_ns, ebb_machine_step_time_ns(machine, &view->choices[of->first_choice + i]));
    }
    return least_ns;
}

const ebb_topology *ebb_plan_topology(const ebb_plan *plan) {
    return &plan->topology;
}

ebb_plan_summary ebb_plan_get_summary(const ebb_plan *plan) {
    return plan->summary;
}

uint64_t ebb__computing_ns(const ebb_program *program, const ebb_machine *machine, const uint32_t *choice) {
    const ebb_program_view view = ebb__plan_view(program);
    uint64_t sum_ns = 0;
    for (size_t i = 0; i < view.n_steps; i++) {
        const uint32_t at = view.steps[i].first_choice + ebb__choice_of(choice, i);
        sum_ns = ebb__add_ns(sum_ns, ebb_machine_step_time_ns(machine, &view.choices[at]));
    }
    return sum_ns;
}
