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

static bool is_kernel_valid(const ebb_run *run, const ebb_action *action, const ebb_run_command *c) {
    const ebb_lowered_step *step = &run->lowered->steps.data[action->target];
    return c->bound != NULL && c->kernel == step->kernel[action->choice];
}

static bool is_transfer_valid(const ebb_run *run, const ebb_action *action, const ebb_run_command *c) {
    const ebb_transfer *t = &c->transfer;
    const ebb_topology *topology = ebb_plan_topology(run->plan);
    const ebb_plan_summary summary = ebb_plan_get_summary(run->plan);
    const uint64_t tensor_bytes = run->lowered->program->tensors.data[action->target].size_bytes;
    const uint64_t size_bytes = action->size_bytes == EBB_WHOLE ? tensor_bytes : action->size_bytes;
    if (t->from >= topology->n_tiers || t->to >= topology->n_tiers || t->size_bytes != size_bytes) { return false; }
    const bool out = action->kind == EBB_ACT_OUT, in = action->kind == EBB_ACT_IN;
    const bool is_buf_valid = t->buf.arena == run->arena->memory && t->buf.size_bytes == size_bytes &&
                              is_inside(t->buf.offset, size_bytes, summary.peak_bytes);
    return t->tiers == &run->tiers && (t->from == EBB_DEVICE) == out && (t->to == EBB_DEVICE) == in &&
           t->from == (out ? EBB_DEVICE : action->tier) &&
           t->to == (in    ? EBB_DEVICE
                     : out ? action->tier
                           : action->to) &&
           (is_buf_valid || !(out || in)) &&
           (out || is_inside(t->from_offset, size_bytes, summary.tier_bytes[t->from])) &&
           (in || is_inside(t->to_offset, size_bytes, summary.tier_bytes[t->to]));
}

static bool is_command_valid(const ebb_run *run, const ebb_action *action, const ebb_run_command *c) {
    switch (action->kind) {
    case EBB_ACT_RUN:
    case EBB_ACT_AGAIN: return is_kernel_valid(run, action, c);
    case EBB_ACT_OUT:
    case EBB_ACT_IN:
    case EBB_ACT_MOVE: return is_transfer_valid(run, action, c);
    default: return c->bound == NULL;
    }
}

/* What a command waits for is an event that is there. */
static bool are_waits_valid(const ebb_run *run, size_t idx) {
    const ebb_command *command = &run->commands[idx];
    for (uint32_t i = 0; i < command->n_waits; i++) {
        if (command->waits[i] >= ebb_executor_n_events(run->executor) || run->events[command->waits[i]] == NULL) {
            return false;
        }
    }
    return true;
}

static bool are_commands_valid(const ebb_run *run) {
    size_t n_actions = 0;
    const ebb_action *actions = ebb_plan_actions(run->plan, &n_actions);
    bool valid = run->n_commands == n_actions;
    for (size_t a = 0; valid && a < n_actions; a++) {
        valid = is_command_valid(run, &actions[a], &run->made[a]) && are_waits_valid(run, a);
    }
    return valid;
}

/* ---- between iterations ------------------------------------------------------------------------- */

static bool is_home_valid(const ebb_run *run, uint32_t tensor) {
    const ebb_tensor *info = &run->lowered->program->tensors.data[tensor];
    const ebb_plan_summary summary = ebb_plan_get_summary(run->plan);
    uint64_t on_device = 0, anywhere = 0;
    size_t n_homes = 0;
    const ebb_home *homes = ebb_executor_homes(run->executor, tensor, &n_homes);
    for (size_t h = 0; h < n_homes; h++) {
        const bool resident = homes[h].tier == EBB_DEVICE;
        const uint64_t there_bytes = resident ? run->arena->size_bytes : summary.tier_bytes[homes[h].tier];
        if (!is_inside(homes[h].begin, homes[h].size_bytes, info->size_bytes)) { return false; }
        if (!is_inside(homes[h].offset, homes[h].size_bytes, there_bytes)) { return false; }
        on_device += resident ? homes[h].size_bytes : 0;
        anywhere += homes[h].size_bytes;
    }
    /* a persistent tensor has homes for all its bytes, a kept one has them on the device, others have none */
    return info->persistent ? anywhere >= info->size_bytes : on_device == (info->kept ? info->size_bytes : 0);
}

static bool are_homes_valid(const ebb_run *run) {
    bool valid = true;
    for (uint32_t t = 0; valid && t < run->lowered->program->tensors.n; t++) { valid = is_home_valid(run, t); }
    return valid;
}

/* Buffers where they are needed and the topology has a way, and each with its events. */
static bool are_stagings_valid(const ebb_run *run, uint32_t tier, bool are_needed) {
    const ebb_topology *topology = ebb_plan_topology(run->plan);
    const uint32_t engine[2] = {topology->way[EBB_DEVICE][tier], topology->way[tier][EBB_DEVICE]};
    bool valid = true;
    for (int d = 0; d < 2; d++) {
        const ebb_staging *staging = &run->tiers.store[tier].staging[d];
        const bool is_there = are_needed && engine[d] != EBB_COMPUTE;
        for (int i = 0; i < 2; i++) {
            valid = valid && (staging->buffer[i] != NULL) == is_there && (staging->full[i] != NULL) == is_there &&
                    (staging->free[i] != NULL) == is_there;
        }
        valid = valid && (!is_there || run->tiers.call_stream[engine[d]] != NULL);
    }
    return valid;
}

static bool are_tiers_valid(const ebb_run *run) {
    const ebb_tiers *tiers = &run->tiers;
    bool valid = true;
    for (uint32_t t = 1; t < tiers->n_tiers; t++) {
        const ebb_tier_store *store = &tiers->store[t];
        const bool is_file = store->kind == EBB_STORE_FILE && store->size_bytes > 0;
        const bool is_remote = store->kind == EBB_STORE_REMOTE && store->size_bytes > 0;
        const bool is_memory = store->kind == EBB_STORE_MEMORY && store->size_bytes > 0;
        valid = valid && (store->memory != NULL) == is_memory &&
                (store->file.fd >= 0) == (is_file && !tiers->only_notes) &&
                (store->claim.remote != NULL) == (is_remote && !tiers->only_notes) &&
                (!is_remote || tiers->only_notes || store->claim.size_bytes == store->size_bytes) &&
                are_stagings_valid(run, t, (is_file || is_remote) && !run->device->ops->host_visible);
    }
    return valid;
}

bool ebb__run_is_valid(const ebb_run *run) {
    const ebb_plan_summary summary = ebb_plan_get_summary(run->plan);
    return run->bound_end_bytes <= summary.peak_bytes && summary.peak_bytes <= run->arena->size_bytes &&
           (run->record_message == NULL || run->record_status != EBB_OK) && are_commands_valid(run) &&
           are_homes_valid(run) && are_tiers_valid(run);
}
