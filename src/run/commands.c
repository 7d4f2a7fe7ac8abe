/* SPDX-License-Identifier: Apache-2.0
 *
 * What the executor's commands become on a device: each kernel is bound to its bytes, each copy is made a transfer, and
 * each event is made.
 */
#include "run/run.h"

static ebb_buf take_buf(ebb_run *run, uint64_t offset, uint64_t size_bytes) {
    EBB_ASSERT(offset % run->device->ops->alignment_bytes == 0);
    EBB_ASSERT(offset <= run->arena->size_bytes && size_bytes <= run->arena->size_bytes - offset);
    run->bound_end_bytes = ebb_max_u64(run->bound_end_bytes, offset + size_bytes);
    return (ebb_buf){.arena = run->arena->memory, .offset = offset, .size_bytes = size_bytes};
}

/* Where an operand of the step lies: each is a tensor that the step accesses. */
static uint64_t operand_offset(const ebb_run *run, const ebb_command *command, uint32_t tensor) {
    const ebb_program *program = run->lowered->program;
    const ebb_step *step = &program->steps.data[command->action.target];
    for (uint32_t i = 0; i < step->n_accesses; i++) {
        if (program->accesses.data[step->first_access + i].tensor == tensor) { return command->offsets[i]; }
    }
    EBB_ASSERT(false);
    return 0;
}

static ebb_status bind_step(ebb_run *run, const ebb_command *command, ebb_run_command *made) {
    EBB_ASSERT(command->action.target < run->lowered->steps.n);
    const ebb_lowered_step *step = &run->lowered->steps.data[command->action.target];
    EBB_ASSERT(command->action.choice < run->lowered->program->steps.data[command->action.target].n_choices);
    ebb_buf *operands = ebb__alloc(run->mem, step->n_operands, sizeof *operands);
    if (operands == NULL) { return EBB_E_NO_MEMORY; }
    for (uint32_t i = 0; i < step->n_operands; i++) {
        operands[i] = take_buf(run, operand_offset(run, command, step->operand[i]), step->bytes[i]);
    }
    made->kernel = step->kernel[command->action.choice];
    EBB_ASSERT(made->kernel != NULL && made->kernel->device == run->device);
    ebb_binding binding = {.operand = operands,
                           .scratch = take_buf(run, command->scratch_offset, made->kernel->scratch_bytes),
                           .state = &run->state,
                           .rng_stream = step->rng_stream};
    ebb_status st = run->device->ops->bind(made->kernel, &binding, &made->bound);
    EBB_ASSERT((st == EBB_OK) == (made->bound != NULL));
    ebb__free(run->mem, operands);
    run->stats.n_recomputed_steps += command->action.kind == EBB_ACT_AGAIN;
    return st;
}

static void set_transfer(ebb_run *run, const ebb_command *command, ebb_run_command *made) {
    const bool is_out = command->from == EBB_DEVICE, is_in = command->to == EBB_DEVICE;
    made->transfer = (ebb_transfer){.tiers = &run->tiers,
                                    .from = command->from,
                                    .to = command->to,
                                    .engine = command->engine,
                                    .tensor = run->lowered->program->tensors.data[command->action.target].name,
                                    .from_offset = is_out ? 0 : command->from_offset,
                                    .to_offset = is_in ? 0 : command->to_offset,
                                    .size_bytes = command->size_bytes};
    if (is_out) { made->transfer.buf = take_buf(run, command->from_offset, command->size_bytes); }
    if (is_in) { made->transfer.buf = take_buf(run, command->to_offset, command->size_bytes); }
    run->stats.moved_out_bytes += is_out ? command->size_bytes : 0;
    run->stats.moved_in_bytes += is_in ? command->size_bytes : 0;
    run->stats.moved_on_bytes += is_out || is_in ? 0 : command->size_bytes;
    run->stats.engine_bytes[command->engine] += command->size_bytes;
}

/* Whether an engine other than the one that computes has a step. */
static bool copies_in(const ebb_run *run) {
    bool is = false;
    for (size_t a = 0; a < run->n_commands; a++) {
        const ebb_command *command = &run->commands[a];
        is = is || (ebb__action_computes(&command->action) && command->engine != EBB_COMPUTE);
    }
    return is;
}

ebb_status ebb__run_bind(ebb_run *run) {
    EBB_ASSERT(run->made == NULL && run->arena != NULL);
    const uint32_t n_events = ebb_executor_n_events(run->executor);
    run->made = ebb__calloc(run->mem, run->n_commands, sizeof *run->made);
    run->events = ebb__calloc(run->mem, n_events, sizeof(ebb_event *));
    if (run->made == NULL || run->events == NULL) { return EBB_E_NO_MEMORY; }
    for (size_t a = 0; a < run->n_commands; a++) {
        const ebb_command *command = &run->commands[a];
        if (command->engine == EBB_NO_ENGINE) { continue; }
        if (ebb__action_computes(&command->action)) {
            EBB_TRY(bind_step(run, command, &run->made[a]));
        } else {
            set_transfer(run, command, &run->made[a]);
        }
    }
    for (uint32_t e = 0; e < n_events; e++) { EBB_TRY(run->device->ops->event_create(run->device, &run->events[e])); }
    return copies_in(run) ? run->device->ops->event_create(run->device, &run->fed) : EBB_OK;
}

void ebb__run_unbind(ebb_run *run) {
    for (size_t a = 0; run->made != NULL && a < run->n_commands; a++) {
        if (run->made[a].bound != NULL) { run->device->ops->unbind(run->made[a].kernel, run->made[a].bound); }
    }
    for (uint32_t e = 0; run->events != NULL && e < ebb_executor_n_events(run->executor); e++) {
        if (run->events[e] != NULL) { run->device->ops->event_destroy(run->device, run->events[e]); }
    }
    if (run->fed != NULL) { run->device->ops->event_destroy(run->device, run->fed); }
    ebb__free(run->mem, run->made);
    ebb__free(run->mem, run->events);
    run->fed = NULL;
    run->made = NULL;
    run->events = NULL;
}
