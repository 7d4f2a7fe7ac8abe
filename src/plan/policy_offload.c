/* SPDX-License-Identifier: Apache-2.0
 *
 * Offloading by fixed rules: what of the forward pass is copied to the next tier whatever the budget, and when it comes
 * back for the backward pass.
 *
 *   vdnn-all   Rhu et al., "vDNN: Virtualized Deep Neural Networks for Scalable, Memory-Efficient Neural Network
 * Design", vdnn-conv  MICRO 2016, section III: what layers read, or only what convolutions read (the mark of a long
 * read), and the backward pass reads again. The copy out goes beside the last forward step that reads the tensor, and
 *              the tensor leaves when both have ended. The copy in goes beside the step that needs the one offloaded
 *              tensor before it, in the order of the backward pass: one layer ahead.
 *   utp        Wang et al., "SuperNeurons", PPoPP 2018, section 3.3: checkpoints. The copy out begins as soon as the
 *              tensor is made, and the tensor leaves after the last forward step that reads it. It is back three steps
 *              before the first backward step that reads it: with this distance, and no other, all steps of the paper's
 *              figure 10b come out. Input images stay.
 *
 * A tensor for which no tier has room stays. Room is counted without reuse, so that the tiers hold what is placed
 * there.
 */
#include "plan/sequence.h"

#define UTP_DISTANCE 3u

/* Between its last use in the forward pass and its first in the backward pass a tensor lies idle. */
typedef struct idle {
    uint64_t first_back; /* the step that reads it in the backward pass */
    uint32_t tensor;
    uint32_t last_maker, last_forward; /* steps: the last that writes it, and the last that uses it, forward */
} idle;

typedef struct offload {
    const ebb_policy_input *input;
    ebb_program_view view;
    ebb_bump bump;
    ebb_uses uses;
    EBB_VEC(idle) idle; /* by first_back */
    ebb_sequence sequence;
    uint64_t used_bytes[EBB_MAX_TIERS];
} offload;

typedef enum rule { RULE_VDNN_ALL, RULE_VDNN_CONV, RULE_UTP } rule;

/* Whether a rule wants a tensor to leave. */
static bool is_wanted(const ebb_tensor *tensor, rule by) {
    if (tensor->persistent || tensor->kept) { return false; }
    switch (by) {
    case RULE_VDNN_ALL: return true;
    case RULE_VDNN_CONV: return (tensor->marks & EBB_MARK_LONG_READ) != 0;
    default: return (tensor->marks & EBB_MARK_CHECKPOINT) != 0 && tensor->role != EBB_ROLE_INPUT;
    }
}

/* false: nothing of the backward pass reads what the forward pass made, or they do not come one after the other. */
static bool find_idle(const offload *o, uint32_t t, idle *idle_out) {
    idle found = {.tensor = t, .first_back = UINT64_MAX};
    bool is_made = false;
    for (uint64_t u = o->uses.start[t]; u < o->uses.start[t + 1]; u++) {
        const ebb_use *use = &o->uses.use[u];
        if (o->view.steps[use->step].phase != EBB_PHASE_FORWARD) {
            found.first_back = use->step;
            *idle_out = found;
            return is_made && (use->mode & EBB_READ) != 0;
        }
        if ((use->mode & EBB_WRITE) != 0) { found.last_maker = use->step; }
        is_made = is_made || (use->mode & EBB_WRITE) != 0;
        found.last_forward = use->step;
    }
    return false;
}

static uint64_t back_key(const void *item) {
    return ((const idle *)item)->first_back;
}

static ebb_status find_all_idle(offload *o, rule by) {
    for (uint32_t t = 0; t < o->view.n_tensors; t++) {
        idle found;
        if (!is_wanted(&o->view.tensors[t], by) || !find_idle(o, t, &found)) { continue; }
        EBB_TRY(EBB_PUSH(o->input->mem, &o->idle, found));
    }
    return ebb__sort_items(o->input->mem, o->idle.data, o->idle.n, sizeof *o->idle.data, back_key);
}

static ebb_status add_absence(offload *o, const idle *it, uint64_t out, uint64_t in) {
    ebb_absence absence = {.tensor = it->tensor, .out = out, .drop = it->last_forward + (uint64_t)1, .in = in};
    if (absence.in <= absence.drop) { return EBB_OK; } /* it would be wanted back at once */
    const uint64_t bytes = ebb_align_up(o->view.tensors[it->tensor].size_bytes, o->view.alignment);
    absence.tier = ebb__pick_tier(o->input, o->used_bytes, bytes);
    if (absence.tier == EBB_MAX_TIERS) { return EBB_OK; }
    o->used_bytes[absence.tier] += bytes;
    return EBB_PUSH(o->input->mem, &o->sequence.absences, absence);
}

static ebb_status add_absences(offload *o, rule by) {
    uint64_t before = 0, current = 0; /* steps that need something offloaded: the one before, and the one at hand */
    for (size_t i = 0; i < o->idle.n; i++) {
        const idle *it = &o->idle.data[i];
        if (it->first_back != current) {
            before = current;
            current = it->first_back;
        }
        const uint64_t made = it->last_maker + (uint64_t)1;
        if (by == RULE_UTP) {
            const uint64_t in = it->first_back - ebb_min_u64(it->first_back, UTP_DISTANCE);
            EBB_TRY(add_absence(o, it, made, in));
        } else { /* the first comes when it is needed */
            const uint64_t out = ebb_max_u64(it->last_forward, made);
            EBB_TRY(add_absence(o, it, out, before > 0 ? before : it->first_back));
        }
    }
    return EBB_OK;
}

static ebb_status make_draft(offload *o, rule by, ebb_draft *draft) {
    ebb_policy_input in_order = *o->input;
    in_order.order = NULL;
    EBB_TRY(ebb__program_uses(o->input->program, &o->bump, &o->uses));
    EBB_TRY(find_all_idle(o, by));
    EBB_TRY(ebb__sequence_all(&o->sequence, &in_order));
    EBB_TRY(add_absences(o, by));
    return ebb__sequence_draft(&o->sequence, &in_order, draft);
}

static ebb_status draft_by(const ebb_policy_input *input, rule by, ebb_draft *draft) {
    offload o = {.input = input, .view = ebb__plan_view(input->program)};
    ebb__bump_init(&o.bump, input->mem);
    ebb__sequence_init(&o.sequence, input->mem);
    const ebb_status status = make_draft(&o, by, draft);
    EBB_VEC_FINI(input->mem, &o.idle);
    ebb__sequence_fini(&o.sequence);
    ebb__bump_fini(&o.bump);
    return status;
}

static ebb_status draft_vdnn_all(const ebb_policy_input *input, ebb_draft *draft) {
    return draft_by(input, RULE_VDNN_ALL, draft);
}

static ebb_status draft_vdnn_conv(const ebb_policy_input *input, ebb_draft *draft) {
    return draft_by(input, RULE_VDNN_CONV, draft);
}

static ebb_status draft_utp(const ebb_policy_input *input, ebb_draft *draft) {
    return draft_by(input, RULE_UTP, draft);
}

const ebb_policy ebb__policy_vdnn_all = {
    .name = "vdnn-all",
    .about = "vDNN: all that the backward pass reads again goes out, and comes back one layer ahead",
    .copies_only = true,
    .draft = draft_vdnn_all,
};

const ebb_policy ebb__policy_vdnn_conv = {
    .name = "vdnn-conv",
    .about = "vDNN: the same, for inputs of convolutions only",
    .copies_only = true,
    .draft = draft_vdnn_conv,
};

const ebb_policy ebb__policy_utp = {
    .name = "utp",
    .about = "SuperNeurons: checkpoints go out, and come back three steps ahead",
    .copies_only = true,
    .draft = draft_utp,
};
