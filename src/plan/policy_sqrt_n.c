/* SPDX-License-Identifier: Apache-2.0
 *
 * The policy sqrt-n: Chen, Xu, Zhang and Guestrin, "Training Deep Nets with Sublinear Memory Cost", arXiv 1604.06174
 * (2016), section 4.1. The forward pass is divided into sqrt(n) pieces of as many steps. What one piece hands to a
 * later one stays. What a piece makes for itself is dropped, and made again, once, when the backward pass first needs
 * something of it.
 *
 * It looks at no marks: convolutions are computed again too.
 */
#include "plan/remake.h"

#include <math.h>

/* Whether everything of the forward pass that reads a tensor is in the piece that first wrote it. */
static bool is_inner(const ebb_remake *r, uint32_t t, const uint32_t *piece) {
    const ebb_use *first = &r->uses.use[r->uses.start[t]];
    for (uint64_t u = r->uses.start[t]; u < r->uses.start[t + 1]; u++) {
        const ebb_use *use = &r->uses.use[u];
        if (ebb__remake_is_forward(r, use->step) && piece[use->step] != piece[first->step]) { return false; }
    }
    return true;
}

static ebb_status choose_dropped(ebb_remake *r) {
    uint32_t *piece = ebb__bump_alloc(&r->bump, r->view.n_steps, sizeof *piece);
    uint64_t n_forward = 0, at = 0;
    if (piece == NULL) { return EBB_E_NO_MEMORY; }
    for (uint32_t s = 0; s < r->view.n_steps; s++) { n_forward += ebb__remake_is_forward(r, s); }
    const uint64_t length = ebb_max_u64((uint64_t)ceil(sqrt((double)n_forward)), 1);
    for (uint32_t s = 0; s < r->view.n_steps; s++) {
        piece[s] = (uint32_t)(at / length);
        at += ebb__remake_is_forward(r, s);
    }
    for (uint32_t t = 0; t < r->view.n_tensors; t++) { r->is_dropped[t] = r->can_drop[t] && is_inner(r, t, piece); }
    return EBB_OK;
}

static ebb_status make_draft(ebb_remake *r, ebb_sequence *sequence, ebb_draft *draft) {
    EBB_TRY(choose_dropped(r));
    EBB_TRY(ebb__remake_find_segments(r));
    EBB_TRY(ebb__remake_sequence(r, sequence));
    return ebb__sequence_draft(sequence, r->input, draft);
}

static ebb_status draft_sqrt_n(const ebb_policy_input *input, ebb_draft *draft) {
    ebb_remake r;
    ebb_sequence sequence;
    ebb__sequence_init(&sequence, input->mem);
    ebb_status status = ebb__remake_init(&r, input);
    if (status == EBB_OK) { status = make_draft(&r, &sequence, draft); }
    ebb__remake_fini(&r);
    ebb__sequence_fini(&sequence);
    return status;
}

const ebb_policy ebb__policy_sqrt_n = {
    .name = "sqrt-n",
    .about = "Chen et al. 2016: sqrt(n) pieces; what one makes for itself is computed again",
    .draft = draft_sqrt_n,
};
