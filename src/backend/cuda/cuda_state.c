/* SPDX-License-Identifier: Apache-2.0
 *
 * A run's state on the device: the figures that change from one iteration to the next. Captured kernels read them
 * there, so a replay computes with the new iteration's figures. Each run has a slot. It is sent when it differs from
 * what was sent last, as the argument of a small kernel: that needs no staging, and nothing waits for it.
 *
 * A run's state changes only between its iterations, and only kernels of its compute stream read it, which have ended
 * by then. So the order of that stream is enough.
 */
#include "backend/cuda/cuda_priv.h"

ebb_status ebb__cuda_state_hold(ebb_cuda_device *device, const ebb_run_state *state, uint32_t *slot_out) {
    uint32_t free_slot = EBB_CUDA_MAX_STATES;
    for (uint32_t s = 0; s < EBB_CUDA_MAX_STATES; s++) {
        ebb_cuda_state_slot *slot = &device->slots[s];
        if (slot->state == state) {
            slot->n_bound++;
            *slot_out = s;
            return EBB_OK;
        }
        if (slot->state == NULL && free_slot == EBB_CUDA_MAX_STATES) { free_slot = s; }
    }
    if (free_slot == EBB_CUDA_MAX_STATES) {
        return ebb_fail(EBB_E_LIMIT, "cuda: more than %u runs on one device", EBB_CUDA_MAX_STATES);
    }
    device->slots[free_slot] = (ebb_cuda_state_slot){.state = state, .n_bound = 1};
    *slot_out = free_slot;
    return EBB_OK;
}

void ebb__cuda_state_release(ebb_cuda_device *device, uint32_t idx) {
    ebb_cuda_state_slot *slot = &device->slots[idx];
    EBB_ASSERT(idx < EBB_CUDA_MAX_STATES && slot->n_bound > 0);
    if (--slot->n_bound == 0) { *slot = (ebb_cuda_state_slot){.state = NULL}; }
}

static bool is_same(const ebb_cuda_state *a, const ebb_run_state *b) {
    return a->seed == b->seed && a->iteration == b->iteration && a->update == b->update &&
           memcmp(&a->learning_rate, &b->learning_rate, sizeof a->learning_rate) == 0;
}

ebb_status ebb__cuda_state_send(ebb_cuda_device *device, uint32_t idx, cudaStream_t stream) {
    ebb_cuda_state_slot *slot = &device->slots[idx];
    EBB_ASSERT(idx < EBB_CUDA_MAX_STATES && slot->state != NULL);
    const ebb_run_state *now = slot->state;
    if (slot->is_sent && is_same(&slot->sent, now)) { return EBB_OK; }
    const ebb_cuda_set_state_args args = {.dst = device->states + idx,
                                          .state = {.seed = now->seed,
                                                    .iteration = now->iteration,
                                                    .update = now->update,
                                                    .learning_rate = now->learning_rate}};
    EBB_CUDA(ebb__cuda_launch_set_state(stream, &args, 1), "the iteration's figures");
    slot->sent = args.state;
    slot->is_sent = true;
    return EBB_OK;
}
