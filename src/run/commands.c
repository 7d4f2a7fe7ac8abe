/* SPDX-License-Identifier: Apache-2.0
 *
 * From the plan's actions to commands: walk them once with the cursor, which knows where each tensor lies at each
 * action, bind every kernel to its bytes there, and make an event for each action that another engine waits for.
 */
#include "run/run.h"

static ebb_buf take_buf(ebb_run *run, uint64_t offset, uint64_t size_bytes) {
    EBB_ASSERT(offset % run->device->ops->alignment_bytes == 0);
    EBB_ASSERT(offset <= run->arena->size_bytes && size_bytes <= run->arena->size_bytes - offset);
    run->stats.peak_bytes = ebb_max_u64(run->stats.peak_bytes, offset + size_bytes);
    return (ebb_buf){.arena = run->arena->memory, .offset = offset, .size_bytes = size_bytes};
}

static ebb_status bind_step(ebb_run *run, const ebb_action *action, const ebb_plan_cursor *cursor,
                            ebb_command *command) {
    EBB_ASSERT(action->target < run->lowered->steps.n);
    const ebb_lowered_step *step = &run->lowered->steps.data[action->target];
    EBB_ASSERT(action->choice < run->lowered->program->steps.data[action->target].n_choices);
    ebb_buf *operands = ebb__alloc(run->mem, step->n_operands, sizeof *operands);
    if (operands == NULL) { return EBB_E_NO_MEMORY; }
    for (uint32_t i = 0; i < step->n_operands; i++) {
        EBB_ASSERT(cursor->offset[step->operand[i]] != UINT64_MAX);
        operands[i] = take_buf(run, cursor->offset[step->operand[i]], step->bytes[i]);
    }
    command->kernel = step->kernel[action->choice];
    EBB_ASSERT(command->kernel != NULL && command->kernel->device == run->device);
    ebb_binding binding = {.operand = operands,
                           .scratch = take_buf(run, cursor->scratch_offset, command->kernel->scratch_bytes),
                           .state = &run->state,
                           .rng_stream = step->rng_stream};
    ebb_status st = run->device->ops->bind(command->kernel, &binding, &command->bound);
    EBB_ASSERT((st == EBB_OK) == (command->bound != NULL));
    ebb__free(run->mem, operands);
    return st;
}

static void set_transfer(ebb_run *run, const ebb_action *action, const ebb_plan_cursor *cursor, ebb_command *command) {
    size_t n_slots = 0;
    const ebb_slot *slots = ebb_plan_slots(run->plan, &n_slots);
    EBB_ASSERT(cursor->slot[action->target] < n_slots && cursor->offset[action->target] != UINT64_MAX);
    const ebb_slot *slot = &slots[cursor->slot[action->target]];
    uint64_t bytes = run->lowered->program->tensors.data[action->target].size_bytes;
    bool out = action->kind == EBB_ACT_OUT;
    EBB_ASSERT(slot->tensor == action->target && slot->tier < EBB_N_TIERS && slot->size_bytes >= bytes);
    command->transfer = (ebb_transfer){.tiers = &run->tiers,
                                       .direction = out ? EBB_COPY_OUT : EBB_COPY_IN,
                                       .tier = (ebb_tier)slot->tier,
                                       .buf = take_buf(run, cursor->offset[action->target], bytes),
                                       .offset = slot->offset};
    run->stats.moved_out_bytes += out ? bytes : 0;
    run->stats.moved_in_bytes += out ? 0 : bytes;
}

static ebb_status make_command(ebb_run *run, const ebb_action *action, const ebb_plan_cursor *cursor,
                               ebb_command *command) {
    command->kind = (ebb_action_kind)action->kind;
    switch (command->kind) {
    case EBB_ACT_AGAIN: run->stats.n_recomputed_steps++; return bind_step(run, action, cursor, command);
    case EBB_ACT_RUN: return bind_step(run, action, cursor, command);
    case EBB_ACT_OUT:
    case EBB_ACT_IN: set_transfer(run, action, cursor, command); break;
    case EBB_ACT_DROP: break;
    }
    return EBB_OK;
}

static ebb_status make_events(ebb_run *run) {
    const ebb_schedule *schedule = &run->schedule;
    EBB_ASSERT(schedule->start[0] == 0);
    for (size_t a = 0; a < run->n_commands; a++) { run->commands[a].engine = (ebb_engine)schedule->engine[a]; }
    for (uint64_t d = 0; d < schedule->start[run->n_commands]; d++) {
        EBB_ASSERT(schedule->dep[d] < run->n_commands);
        ebb_command *awaited = &run->commands[schedule->dep[d]];
        EBB_ASSERT(awaited->kind != EBB_ACT_DROP);
        if (awaited->done == NULL) { EBB_TRY(run->device->ops->event_create(run->device, &awaited->done)); }
    }
    return EBB_OK;
}

ebb_status ebb__run_bind(ebb_run *run) {
    EBB_ASSERT(run->commands == NULL && run->arena != NULL);
    const ebb_action *actions = ebb_plan_actions(run->plan, &run->n_commands);
    run->commands = ebb__calloc(run->mem, run->n_commands, sizeof *run->commands);
    if (run->commands == NULL) { return EBB_E_NO_MEMORY; }
    ebb_bump bump;
    ebb__bump_init(&bump, run->mem);
    ebb_plan_cursor cursor;
    ebb_status st = ebb__plan_cursor_init(run->lowered->program, run->plan, &bump, &cursor);
    for (size_t a = 0; a < run->n_commands && st == EBB_OK; a++) {
        ebb__plan_cursor_next(&cursor);
        EBB_ASSERT(cursor.position == a);
        st = make_command(run, &actions[a], &cursor, &run->commands[a]);
    }
    ebb__bump_fini(&bump);
    EBB_TRY(st);
    return make_events(run);
}

void ebb__run_unbind(ebb_run *run) {
    for (size_t a = 0; run->commands != NULL && a < run->n_commands; a++) {
        ebb_command *c = &run->commands[a];
        if (c->bound != NULL) { run->device->ops->unbind(c->kernel, c->bound); }
        if (c->done != NULL) { run->device->ops->event_destroy(run->device, c->done); }
    }
    ebb__free(run->mem, run->commands);
    run->commands = NULL;
}
