/* SPDX-License-Identifier: Apache-2.0
 *
 * The deep check of a run, for builds with EBB_DEBUG at 2: what it made of its plan still says what the plan says. It
 * is asked when the run is made and after whatever changes it (an iteration, parking, setting a value). It looks at
 * the plan and at the commands side by side, and shares no code with what made the one from the other.
 */
#include "run/run.h"

static bool is_inside(uint64_t offset, uint64_t size_bytes, uint64_t whole_bytes) {
    return offset <= whole_bytes && size_bytes <= whole_bytes - offset;
}

/* ---- commands ---------------------------------------------------------------------------------- */

static bool is_kernel_valid(const ebb_run *run, const ebb_action *action, const ebb_command *c) {
    const ebb_lowered_step *step = &run->lowered->steps.data[action->target];
    return c->engine == EBB_ENGINE_COMPUTE && c->bound != NULL && c->kernel == step->kernel[action->choice];
}

static bool is_transfer_valid(const ebb_run *run, const ebb_action *action, const ebb_command *c) {
    const ebb_transfer *t = &c->transfer;
    const ebb_plan_summary summary = ebb_plan_get_summary(run->plan);
    const uint64_t size_bytes = run->lowered->program->tensors.data[action->target].size_bytes;
    const bool out = action->kind == EBB_ACT_OUT;
    return c->engine == (out ? EBB_ENGINE_OUT : EBB_ENGINE_IN) && t->direction == (out ? EBB_COPY_OUT : EBB_COPY_IN) &&
           t->tiers == &run->tiers && t->tier < EBB_N_TIERS && t->buf.arena == run->arena->memory &&
           t->buf.size_bytes == size_bytes && is_inside(t->buf.offset, size_bytes, summary.peak_bytes) &&
           is_inside(t->offset, size_bytes, summary.tier_bytes[t->tier]);
}

static bool is_command_valid(const ebb_run *run, const ebb_action *action, const ebb_command *c) {
    if (c->kind != (ebb_action_kind)action->kind) { return false; }
    switch (c->kind) {
    case EBB_ACT_RUN:
    case EBB_ACT_AGAIN: return is_kernel_valid(run, action, c);
    case EBB_ACT_OUT:
    case EBB_ACT_IN: return is_transfer_valid(run, action, c);
    case EBB_ACT_DROP: return c->engine == EBB_N_ENGINES && c->bound == NULL && c->done == NULL;
    }
    return false;
}

/* What a command waits for is another engine's, and says when it is done. */
static bool are_waits_valid(const ebb_run *run, size_t idx) {
    const ebb_schedule *schedule = &run->schedule;
    if (schedule->start[idx] > schedule->start[idx + 1]) { return false; }
    for (uint64_t d = schedule->start[idx]; d < schedule->start[idx + 1]; d++) {
        if (schedule->dep[d] >= run->n_commands) { return false; }
        const ebb_command *awaited = &run->commands[schedule->dep[d]];
        if (awaited->done == NULL || awaited->engine == run->commands[idx].engine) { return false; }
    }
    return true;
}

static bool are_commands_valid(const ebb_run *run) {
    size_t n_actions = 0;
    const ebb_action *actions = ebb_plan_actions(run->plan, &n_actions);
    bool valid = run->n_commands == n_actions;
    for (size_t a = 0; valid && a < n_actions; a++) {
        valid = is_command_valid(run, &actions[a], &run->commands[a]) && are_waits_valid(run, a);
    }
    return valid;
}

/* ---- between iterations ------------------------------------------------------------------------- */

static bool is_home_valid(const ebb_run *run, size_t tensor, uint64_t parked_bytes) {
    const ebb_tensor *info = &run->lowered->program->tensors.data[tensor];
    const ebb_home *home = &run->homes[tensor];
    size_t n_slots = 0;
    const ebb_slot *slots = ebb_plan_slots(run->plan, &n_slots);
    const bool resident = home->offset != UINT64_MAX, copied = home->slot != UINT64_MAX;
    if (resident && !is_inside(home->offset, info->size_bytes, run->arena->size_bytes)) { return false; }
    if (copied && (home->slot >= n_slots || slots[home->slot].tensor != tensor)) { return false; }
    if (run->parked != NULL && resident && !is_inside(home->parked, info->size_bytes, parked_bytes)) { return false; }
    /* a persistent tensor has a home somewhere, a kept one has it on the device, others have none */
    return info->persistent ? resident || copied : resident == info->kept && !copied;
}

static bool are_homes_valid(const ebb_run *run) {
    const uint64_t parked_bytes = ebb_run_parked_bytes(run);
    bool valid = true;
    for (size_t t = 0; valid && t < run->lowered->program->tensors.n; t++) {
        valid = is_home_valid(run, t, parked_bytes);
    }
    return valid;
}

static bool are_tiers_valid(const ebb_run *run) {
    const ebb_tiers *t = &run->tiers;
    if (!run->device->ops->has_data) { return t->slab == NULL && t->fd < 0; }
    return (t->slab != NULL) == (t->slab_bytes > 0) && (t->fd >= 0) == (t->file_bytes > 0 && !t->only_notes) &&
           (t->staging[0] != NULL) == (t->file_bytes > 0 && !run->device->ops->host_visible);
}

bool ebb__run_is_valid(const ebb_run *run) {
    const ebb_plan_summary summary = ebb_plan_get_summary(run->plan);
    return run->stats.peak_bytes <= summary.peak_bytes && summary.peak_bytes <= run->arena->size_bytes &&
           (run->record_message == NULL || run->record_status != EBB_OK) && are_commands_valid(run) &&
           are_homes_valid(run) && are_tiers_valid(run);
}
