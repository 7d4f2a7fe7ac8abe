/* SPDX-License-Identifier: Apache-2.0
 *
 * The tensor cache of SuperNeurons (Wang et al., PPoPP 2018, section 3.3.2) as policies of their own, without
 * recomputation: tensor-cache evicts what was used least recently, tensor-cache-next what is needed again last. Copies
 * begin when there is no room, as in the paper, so that computing waits for them.
 */
#include "plan/tensor_cache.h"

static ebb_status draft_by(const ebb_policy_input *input, ebb_eviction eviction, ebb_draft *draft) {
    ebb_policy_input in_order = *input;
    ebb_sequence sequence;
    in_order.order = NULL;
    ebb__sequence_init(&sequence, input->mem);
    ebb_status status = ebb__sequence_all(&sequence, &in_order);
    if (status == EBB_OK) { status = ebb__tensor_cache_run(&in_order, eviction, &sequence); }
    if (status == EBB_OK) { status = ebb__sequence_draft(&sequence, &in_order, draft); }
    ebb__sequence_fini(&sequence);
    return status;
}

static ebb_status draft_oldest(const ebb_policy_input *input, ebb_draft *draft) {
    return draft_by(input, EBB_EVICT_OLDEST, draft);
}

static ebb_status draft_farthest(const ebb_policy_input *input, ebb_draft *draft) {
    return draft_by(input, EBB_EVICT_FARTHEST, draft);
}

const ebb_policy ebb__policy_tensor_cache = {
    .name = "tensor-cache",
    .about = "SuperNeurons: what was used least recently goes out where there is no room",
    .keeps_limit = true,
    .when_it_fits = &ebb__policy_liveness,
    .copies_only = true,
    .draft = draft_oldest,
};

const ebb_policy ebb__policy_tensor_cache_next = {
    .name = "tensor-cache-next",
    .about = "the same, with what is needed again last",
    .keeps_limit = true,
    .when_it_fits = &ebb__policy_liveness,
    .copies_only = true,
    .draft = draft_farthest,
};
