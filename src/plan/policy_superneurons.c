/* SPDX-License-Identifier: Apache-2.0
 *
 * The policy superneurons: all of Wang et al., PPoPP 2018, together, as its runtime does it. The computations are those
 * of cost-aware recomputation (section 3.4), within any budget. Where they do not fit, the tensor cache evicts what was
 * used least recently (section 3.3.2). Where they fit nothing moves, which is what the paper's figure 10c shows.
 */
#include "plan/remake.h"
#include "plan/tensor_cache.h"

static ebb_status draft_superneurons(const ebb_policy_input *input, ebb_draft *draft) {
    ebb_sequence sequence;
    ebb__sequence_init(&sequence, input->mem);
    ebb_status status = ebb__recompute_cost_aware(input, &sequence);
    if (status == EBB_OK) { status = ebb__tensor_cache_run(input, EBB_EVICT_OLDEST, &sequence); }
    if (status == EBB_OK) { status = ebb__sequence_draft(&sequence, input, draft); }
    ebb__sequence_fini(&sequence);
    return status;
}

const ebb_policy ebb__policy_superneurons = {
    .name = "superneurons",
    .about = "SuperNeurons: recompute-cost-aware, and the tensor cache for what still has no room",
    .keeps_limit = true,
    .when_it_fits = &ebb__policy_recompute_cost_aware,
    .draft = draft_superneurons,
};
