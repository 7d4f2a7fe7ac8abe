/* SPDX-License-Identifier: Apache-2.0
 *
 * Recomputation as SuperNeurons does it: Wang et al., "SuperNeurons: Dynamic GPU Memory Management for Training Deep
 * Neural Networks", PPoPP 2018, section 3.4. Checkpoints stay. All other results of the forward pass are dropped after
 * their last use there, and made again in the backward pass, segment by segment:
 *
 *   recompute-speed       once, at the segment's first need, and kept until their last use
 *   recompute-memory      for each step that needs them
 *   recompute-cost-aware  once where the segment's bytes are within those of the largest layer, else for each step.
 *                         The bytes are those that the authors' code adds up: of each layer of the segment what goes in
 *                         and what comes out, so what lies between two layers counts twice. It gives the paper's table
 * 1 recompute-printed     the same with the bytes that section 3.4 prints: the outputs of the segment's layers, and
 *                         what the largest backward step that reads them has beside
 *
 * The largest layer is the backward step with the most bytes; a gradient in place counts as two, as in their code.
 * Parameters and their gradients count nowhere. A choice is made by bytes alone, once: no time is weighed.
 *
 * In a program without checkpoints the whole forward pass is one segment.
 */
#include "plan/remake.h"

typedef enum rule { RULE_SPEED, RULE_MEMORY, RULE_SUMMED, RULE_PRINTED } rule;

/* Whether a tensor counts: the paper's data tensors. */
static uint64_t counted_bytes(const ebb_remake *r, uint32_t t) {
    const ebb_tensor *tensor = &r->view.tensors[t];
    return tensor->persistent || tensor->role == EBB_ROLE_GRADIENT ? 0 : tensor->size_bytes;
}

static bool is_made_forward(const ebb_remake *r, uint32_t t) {
    return r->makers_end[t] > r->uses.start[t];
}

static uint64_t find_peak(const ebb_remake *r) {
    uint64_t peak_bytes = 0;
    for (size_t s = 0; s < r->view.n_steps; s++) {
        const ebb_step *step = &r->view.steps[s];
        uint64_t bytes = 0;
        if (step->phase != EBB_PHASE_BACKWARD) { continue; }
        for (uint32_t i = 0; i < step->n_accesses; i++) {
            const ebb_access *access = &r->view.accesses[step->first_access + i];
            bytes += (access->mode == EBB_UPDATE ? 2 : 1) * counted_bytes(r, access->tensor);
        }
        peak_bytes = ebb_max_u64(peak_bytes, bytes);
    }
    return peak_bytes;
}

/* Add the inputs and outputs of each layer to the bytes of its segment. */
static void sum_layers(const ebb_remake *r, uint64_t *bytes) {
    for (size_t s = 0; s < r->view.n_steps; s++) {
        const ebb_step *step = &r->view.steps[s];
        uint32_t segment = UINT32_MAX;
        uint64_t sum = 0;
        for (uint32_t i = 0; step->phase == EBB_PHASE_FORWARD && i < step->n_accesses; i++) {
            const ebb_access *access = &r->view.accesses[step->first_access + i];
            sum += counted_bytes(r, access->tensor);
            if ((access->mode & EBB_WRITE) != 0 && r->is_dropped[access->tensor]) {
                segment = r->segment[access->tensor];
            }
        }
        if (segment != UINT32_MAX) { bytes[segment] += sum; }
    }
}

/* The outputs of each segment, and the most that a backward step that reads them has beside forward tensors: l_b. */
static void sum_outputs(const ebb_remake *r, uint64_t *bytes, uint64_t *back_bytes) {
    for (uint32_t t = 0; t < r->view.n_tensors; t++) {
        if (r->is_dropped[t]) { bytes[r->segment[t]] += r->view.tensors[t].size_bytes; }
        back_bytes[t] = 0;
    }
    for (size_t s = 0; s < r->view.n_steps; s++) {
        const ebb_step *step = &r->view.steps[s];
        uint64_t sum = 0;
        if (step->phase != EBB_PHASE_BACKWARD) { continue; }
        for (uint32_t i = 0; i < step->n_accesses; i++) {
            const uint32_t t = r->view.accesses[step->first_access + i].tensor;
            if (!is_made_forward(r, t)) { sum += counted_bytes(r, t); }
        }
        for (uint32_t i = 0; i < step->n_accesses; i++) {
            const uint32_t t = r->view.accesses[step->first_access + i].tensor;
            if (!r->is_dropped[t]) { continue; }
            back_bytes[r->segment[t]] = ebb_max_u64(back_bytes[r->segment[t]], sum);
        }
    }
    for (uint32_t t = 0; t < r->view.n_tensors; t++) { bytes[t] += back_bytes[t]; }
}

static ebb_status choose_ways(ebb_remake *r, rule by) {
    const size_t n = r->view.n_tensors;
    const uint64_t peak_bytes = find_peak(r);
    uint64_t *bytes = ebb__bump_alloc(&r->bump, n, sizeof *bytes);
    uint64_t *back_bytes = ebb__bump_alloc(&r->bump, n, sizeof *back_bytes);
    if (bytes == NULL || back_bytes == NULL) { return EBB_E_NO_MEMORY; }
    for (size_t t = 0; t < n; t++) { bytes[t] = 0; }
    if (by == RULE_SUMMED) { sum_layers(r, bytes); }
    if (by == RULE_PRINTED) { sum_outputs(r, bytes, back_bytes); }
    for (size_t t = 0; t < n; t++) { r->is_memory[t] = by == RULE_MEMORY || bytes[t] > peak_bytes; }
    return EBB_OK;
}

static ebb_status make_sequence(const ebb_policy_input *input, rule by, ebb_sequence *sequence) {
    ebb_remake r;
    ebb_status status = ebb__remake_init(&r, input);
    for (uint32_t t = 0; status == EBB_OK && t < r.view.n_tensors; t++) {
        r.is_dropped[t] = r.can_drop[t] && (r.view.tensors[t].marks & EBB_MARK_CHECKPOINT) == 0;
    }
    if (status == EBB_OK) { status = ebb__remake_find_segments(&r); }
    if (status == EBB_OK) { status = choose_ways(&r, by); }
    if (status == EBB_OK) { status = ebb__remake_sequence(&r, sequence); }
    ebb__remake_fini(&r);
    return status;
}

static ebb_status draft_by(const ebb_policy_input *input, rule by, ebb_draft *draft) {
    ebb_sequence sequence;
    ebb__sequence_init(&sequence, input->mem);
    ebb_status status = make_sequence(input, by, &sequence);
    if (status == EBB_OK) { status = ebb__sequence_draft(&sequence, input, draft); }
    ebb__sequence_fini(&sequence);
    return status;
}

ebb_status ebb__recompute_cost_aware(const ebb_policy_input *input, ebb_sequence *sequence) {
    return make_sequence(input, RULE_SUMMED, sequence);
}

static ebb_status draft_speed(const ebb_policy_input *input, ebb_draft *draft) {
    return draft_by(input, RULE_SPEED, draft);
}

static ebb_status draft_memory(const ebb_policy_input *input, ebb_draft *draft) {
    return draft_by(input, RULE_MEMORY, draft);
}

static ebb_status draft_cost_aware(const ebb_policy_input *input, ebb_draft *draft) {
    return draft_by(input, RULE_SUMMED, draft);
}

static ebb_status draft_printed(const ebb_policy_input *input, ebb_draft *draft) {
    return draft_by(input, RULE_PRINTED, draft);
}

const ebb_policy ebb__policy_recompute_speed = {
    .name = "recompute-speed",
    .about = "SuperNeurons: what is no checkpoint is computed again, once for a segment",
    .draft = draft_speed,
};

const ebb_policy ebb__policy_recompute_memory = {
    .name = "recompute-memory",
    .about = "SuperNeurons: the same, for each step that needs it",
    .draft = draft_memory,
};

const ebb_policy ebb__policy_recompute_cost_aware = {
    .name = "recompute-cost-aware",
    .about = "SuperNeurons: once where a segment's bytes allow it, by the rule of its table 1",
    .draft = draft_cost_aware,
};

const ebb_policy ebb__policy_recompute_printed = {
    .name = "recompute-printed",
    .about = "SuperNeurons: the same by the rule that the paper prints",
    .draft = draft_printed,
};
