/* SPDX-License-Identifier: Apache-2.0
 *
 * From a plan's actions to commands: one walk with the cursor, which knows where each tensor lies at each action, and
 * the schedule, which knows what each waits for.
 */
#include "ebb/executor.h"
#include "plan/plan.h"

struct ebb_executor {
    const ebb_mem *mem;
    ebb_bump bump;
    const ebb_program *program;
    const ebb_plan *plan;
    ebb_command *commands;
    size_t n_commands;
    uint32_t n_events;
    ebb_home *homes;
    uint64_t *first_home; /* [n_tensors + 1] */
};

/* ---- places ------------------------------------------------------------------------------------- */

static uint64_t offset_of(const ebb_plan_cursor *cursor, uint32_t tensor, uint64_t byte) {
    const uint64_t offset = ebb__plan_cursor_offset(cursor, tensor, byte);
    EBB_ASSERT(offset != UINT64_MAX);
    return offset;
}

static ebb_status place_step(ebb_executor *x, const ebb_plan_cursor *cursor, ebb_command *command) {
    size_t n = 0;
    const ebb_step *step = &ebb_program_steps(x->program, &n)[command->action.target];
    const ebb_access *accesses = &ebb_program_accesses(x->program, &n)[step->first_access];
    uint64_t *offsets = ebb__bump_alloc(&x->bump, step->n_accesses, sizeof *offsets);
    if (offsets == NULL) { return EBB_E_NO_MEMORY; }
    for (uint32_t i = 0; i < step->n_accesses; i++) { offsets[i] = offset_of(cursor, accesses[i].tensor, 0); }
    command->offsets = offsets;
    if (cursor->scratch == EBB_NO_PIECE) { return EBB_OK; }
    const ebb_stay *scratch = &ebb_plan_stays(x->plan, &n)[cursor->scratch];
    command->scratch_offset = scratch->offset;
    command->scratch_bytes = scratch->size_bytes;
    return EBB_OK;
}

/* Where the bytes of a copy lie on a tier. */
static uint64_t place_on(const ebb_executor *x, const ebb_plan_cursor *cursor, const ebb_action *action,
                         uint32_t tier) {
    size_t n_slots = 0;
    const ebb_slot *slots = ebb_plan_slots(x->plan, &n_slots);
    if (tier == EBB_DEVICE) { return offset_of(cursor, action->target, action->begin); }
    const uint32_t idx = ebb__plan_cursor_slot(cursor, action->target, tier, action->begin);
    EBB_ASSERT(idx < n_slots && slots[idx].begin <= action->begin);
    return slots[idx].offset + action->begin - slots[idx].begin;
}

static void place_copy(const ebb_executor *x, const ebb_plan_cursor *cursor, ebb_command *command) {
    size_t n = 0;
    const ebb_action *action = &command->action;
    const uint64_t tensor_bytes = ebb_program_tensors(x->program, &n)[action->target].size_bytes;
    command->from = action->kind == EBB_ACT_OUT ? EBB_DEVICE : action->tier;
    command->to = action->kind == EBB_ACT_OUT ? action->tier : action->kind == EBB_ACT_IN ? EBB_DEVICE : action->to;
    command->from_offset = place_on(x, cursor, action, command->from);
    command->to_offset = place_on(x, cursor, action, command->to);
    command->size_bytes = action->size_bytes == EBB_WHOLE ? tensor_bytes : action->size_bytes;
}

static ebb_status place_all(ebb_executor *x) {
    ebb_plan_cursor cursor;
    ebb_bump bump;
    ebb__bump_init(&bump, x->mem);
    ebb_status st = ebb__plan_cursor_init(x->plan, &bump, &cursor);
    for (size_t a = 0; st == EBB_OK && a < x->n_commands; a++) {
        ebb_command *command = &x->commands[a];
        ebb__plan_cursor_next(&cursor);
        if (ebb__action_computes(&command->action)) {
            st = place_step(x, &cursor, command);
        } else if (command->engine != EBB_NO_ENGINE) {
            place_copy(x, &cursor, command);
        }
    }
    ebb__bump_fini(&bump);
    return st;
}

/* ---- waits -------------------------------------------------------------------------------------- */

/* Each action that something waits for gets an event, in the order of actions. */
static ebb_status set_waits(ebb_executor *x, const ebb_schedule *schedule) {
    const size_t n = x->n_commands;
    uint32_t *waits = ebb__bump_alloc(&x->bump, schedule->start[n], sizeof *waits);
    if (waits == NULL) { return EBB_E_NO_MEMORY; }
    for (size_t a = 0; a < n; a++) { x->commands[a].event = EBB_NO_EVENT; }
    for (uint64_t d = 0; d < schedule->start[n]; d++) { x->commands[schedule->dep[d]].event = 0; }
    for (size_t a = 0; a < n; a++) {
        if (x->commands[a].event != EBB_NO_EVENT) { x->commands[a].event = x->n_events++; }
    }
    for (size_t a = 0; a < n; a++) {
        x->commands[a].waits = &waits[schedule->start[a]];
        x->commands[a].n_waits = (uint32_t)(schedule->start[a + 1] - schedule->start[a]);
    }
    for (uint64_t d = 0; d < schedule->start[n]; d++) { waits[d] = x->commands[schedule->dep[d]].event; }
    return EBB_OK;
}

static ebb_status set_commands(ebb_executor *x) {
    const ebb_action *actions = ebb_plan_actions(x->plan, &x->n_commands);
    ebb_schedule schedule;
    ebb_bump bump;
    x->commands = ebb__bump_alloc(&x->bump, x->n_commands, sizeof *x->commands);
    if (x->commands == NULL) { return EBB_E_NO_MEMORY; }
    ebb__bump_init(&bump, x->mem);
    ebb_status st = ebb__plan_schedule(x->program, x->plan, &bump, &schedule);
    for (size_t a = 0; st == EBB_OK && a < x->n_commands; a++) {
        x->commands[a] = (ebb_command){.action = actions[a], .engine = schedule.engine[a]};
    }
    if (st == EBB_OK) { st = set_waits(x, &schedule); }
    ebb__bump_fini(&bump);
    return st;
}

/* ---- homes -------------------------------------------------------------------------------------- */

/* Whether a stay is a home: its tensor's content counts where an iteration ends and the next begins. A plan may leave
 * others there, but their content is the kernels'. */
static bool is_home(const ebb_executor *x, const ebb_stay *stay) {
    size_t n = 0;
    const bool at_border = stay->first >= stay->last || stay->last == x->n_commands;
    if (stay->tensor == EBB_SCRATCH || !at_border) { return false; }
    const ebb_tensor *tensor = &ebb_program_tensors(x->program, &n)[stay->tensor];
    return tensor->persistent || tensor->kept;
}

static ebb_status find_homes(ebb_executor *x) {
    size_t n_tensors = 0, n_stays = 0, n_slots = 0;
    (void)ebb_program_tensors(x->program, &n_tensors);
    const ebb_stay *stays = ebb_plan_stays(x->plan, &n_stays);
    const ebb_slot *slots = ebb_plan_slots(x->plan, &n_slots);
    uint64_t *end = ebb__bump_alloc(&x->bump, n_tensors + 1, sizeof *end);
    x->first_home = ebb__bump_alloc(&x->bump, n_tensors + 1, sizeof *x->first_home);
    if (end == NULL || x->first_home == NULL) { return EBB_E_NO_MEMORY; }
    memset(end, 0, (n_tensors + 1) * sizeof *end);
    for (size_t s = 0; s < n_stays; s++) {
        if (is_home(x, &stays[s])) { end[stays[s].tensor + 1]++; }
    }
    for (size_t s = 0; s < n_slots; s++) { end[slots[s].tensor + 1] += slots[s].first >= slots[s].last; }
    for (size_t t = 0; t < n_tensors; t++) { end[t + 1] += end[t]; }
    x->homes = ebb__bump_alloc(&x->bump, end[n_tensors], sizeof *x->homes);
    if (x->homes == NULL) { return EBB_E_NO_MEMORY; }
    memcpy(x->first_home, end, (n_tensors + 1) * sizeof *end);
    for (size_t s = 0; s < n_stays; s++) {
        if (!is_home(x, &stays[s])) { continue; }
        x->homes[end[stays[s].tensor]++] = (ebb_home){stays[s].begin, stays[s].size_bytes, EBB_DEVICE, stays[s].offset};
    }
    for (size_t s = 0; s < n_slots; s++) {
        if (slots[s].first < slots[s].last) { continue; }
        x->homes[end[slots[s].tensor]++] =
            (ebb_home){slots[s].begin, slots[s].size_bytes, slots[s].tier, slots[s].offset};
    }
    return EBB_OK;
}

/* ---- life --------------------------------------------------------------------------------------- */

ebb_status ebb_executor_create(const ebb_mem *mem, const ebb_program *program, const ebb_plan *plan,
                               ebb_executor **executor_out) {
    EBB_NEED(program);
    EBB_NEED(plan);
    EBB_NEED(executor_out);
    if (ebb_plan_get_summary(plan).fingerprint != ebb_program_fingerprint(program)) {
        return ebb_fail(EBB_E_INVALID_PLAN, "the plan is for another program than %s", ebb_program_name(program));
    }
    mem = ebb__mem_or_default(mem);
    ebb_executor *x = ebb__calloc(mem, 1, sizeof *x);
    if (x == NULL) { return EBB_E_NO_MEMORY; }
    *x = (ebb_executor){.mem = mem, .program = program, .plan = plan};
    ebb__bump_init(&x->bump, mem);
    ebb_status st = set_commands(x);
    if (st == EBB_OK) { st = place_all(x); }
    if (st == EBB_OK) { st = find_homes(x); }
    if (st != EBB_OK) {
        ebb_executor_destroy(x);
        return st;
    }
    *executor_out = x;
    return EBB_OK;
}

void ebb_executor_destroy(ebb_executor *executor) {
    if (executor == NULL) { return; }
    ebb__bump_fini(&executor->bump);
    ebb__free(executor->mem, executor);
}

const ebb_command *ebb_executor_commands(const ebb_executor *executor, size_t *n_out) {
    *n_out = executor->n_commands;
    return executor->commands;
}

uint32_t ebb_executor_n_events(const ebb_executor *executor) {
    return executor->n_events;
}

const ebb_home *ebb_executor_homes(const ebb_executor *executor, uint32_t tensor, size_t *n_out) {
    size_t n_tensors = 0;
    (void)ebb_program_tensors(executor->program, &n_tensors);
    *n_out = 0;
    if (tensor >= n_tensors) { return executor->homes; }
    const uint64_t first = executor->first_home[tensor];
    *n_out = (size_t)(executor->first_home[tensor + 1] - first);
    return &executor->homes[first];
}

ebb_status ebb_executor_iterate(ebb_executor *executor, const ebb_executor_ops *ops, void *ctx) {
    EBB_NEED(executor);
    EBB_NEED(ops);
    if (ops->size_bytes != sizeof *ops || ops->compute == NULL || ops->copy == NULL) {
        return ebb_fail(EBB_E_ARGUMENT, "executor: functions of another version, or none to compute or copy");
    }
    for (size_t a = 0; a < executor->n_commands; a++) {
        const ebb_command *command = &executor->commands[a];
        if (command->engine == EBB_NO_ENGINE) { continue; }
        for (uint32_t i = 0; i < command->n_waits && ops->wait != NULL; i++) {
            EBB_TRY(ops->wait(ctx, command->engine, command->waits[i]));
        }
        EBB_TRY(ebb__action_computes(&command->action) ? ops->compute(ctx, command) : ops->copy(ctx, command));
        if (command->event == EBB_NO_EVENT || ops->record == NULL) { continue; }
        EBB_TRY(ops->record(ctx, command->engine, command->event));
    }
    return EBB_OK;
}
