/* SPDX-License-Identifier: Apache-2.0
 *
 * The policies revolve and mixed: binomial checkpointing.
 *
 *   revolve  Griewank and Walther, "Algorithm 799: Revolve: an implementation of checkpointing for the reverse or
 * adjoint mode of computational differentiation", ACM TOMS 26 (2000). Each slot holds what a stage begins with. For a
 *            chain no schedule with as many slots runs fewer stages again.
 *   mixed    Maddison, arXiv 2305.09568 (2023). A slot may also hold what the backward pass reads of a stage, which
 * then does not run again.
 *
 * Both are made for a chain of equal layers. Here the stages are what lies between articulation points (stages.h), and
 * what the forward pass can make again belongs to one of them. The most slots are taken with which the plan keeps
 * the limit.
 */
#include "plan/binomial.h"

typedef struct drafting {
    const ebb_policy_input *input;
    ebb_remake r;
    ebb_stages stages;
    ebb_binomial *binomial;
} drafting;

static ebb_status set_up(drafting *d, ebb_binomial_kind kind, uint32_t *most_out) {
    EBB_TRY(ebb__remake_init(&d->r, d->input));
    EBB_TRY(ebb__stages_find(&d->r, EBB_BINOMIAL_MAX_STAGES, &d->stages));
    for (uint32_t t = 0; t < d->r.view.n_tensors; t++) { d->r.is_dropped[t] = d->stages.made[t] != EBB_NO_STAGE; }
    EBB_TRY(ebb__remake_find_segments(&d->r));
    *most_out = (uint32_t)ebb_min_u64(d->stages.n, EBB_BINOMIAL_MAX_SLOTS);
    return ebb__binomial_create(kind, d->stages.n, *most_out, &d->r.bump, &d->binomial);
}

/* EBB_E_NO_FIT without a message: not within the limit. */
static ebb_status try_slots(drafting *d, uint32_t n_slots, ebb_sequence *sequence) {
    uint64_t peak_bytes = 0;
    sequence->computes.n = 0;
    EBB_TRY(ebb__binomial_sequence(&d->r, &d->stages, d->binomial, n_slots, sequence));
    EBB_TRY(ebb__sequence_peak(sequence, d->input, &peak_bytes));
    return peak_bytes <= d->input->limit_bytes ? EBB_OK : EBB_E_NO_FIT;
}

/* The most slots that serve, by bisection. */
static ebb_status find_slots(drafting *d, uint32_t most, ebb_sequence *sequence) {
    uint32_t low = 0, high = most + 1; /* low serves, or is 0; high does not */
    while (high - low > 1) {
        const uint32_t middle = low + (high - low) / 2;
        const ebb_status status = try_slots(d, middle, sequence);
        if (status != EBB_OK && status != EBB_E_NO_FIT) { return status; }
        *(status == EBB_OK ? &low : &high) = middle;
    }
    return low > 0 ? try_slots(d, low, sequence) : EBB_E_NO_FIT;
}

static ebb_status draft_by(const ebb_policy_input *input, ebb_binomial_kind kind, ebb_draft *draft) {
    drafting d = {.input = input};
    ebb_sequence sequence;
    uint32_t most = 0;
    ebb__sequence_init(&sequence, input->mem);
    ebb_status status = set_up(&d, kind, &most);
    if (status == EBB_OK) { status = find_slots(&d, most, &sequence); }
    if (status == EBB_OK) { status = ebb__sequence_draft(&sequence, input, draft); }
    ebb__sequence_fini(&sequence);
    ebb__remake_fini(&d.r);
    return status;
}

static ebb_status draft_revolve(const ebb_policy_input *input, ebb_draft *draft) {
    return draft_by(input, EBB_BINOMIAL_REVOLVE, draft);
}

static ebb_status draft_mixed(const ebb_policy_input *input, ebb_draft *draft) {
    return draft_by(input, EBB_BINOMIAL_MIXED, draft);
}

const ebb_policy ebb__policy_revolve = {
    .name = "revolve",
    .about = "Griewank and Walther 2000: binomial checkpointing, with the most slots that fit",
    .keeps_limit = true,
    .when_it_fits = &ebb__policy_liveness,
    .draft = draft_revolve,
    .never_copies = true,
};

const ebb_policy ebb__policy_mixed = {
    .name = "mixed",
    .about = "Maddison 2023: the same, where a slot may hold what the backward pass reads",
    .keeps_limit = true,
    .when_it_fits = &ebb__policy_liveness,
    .draft = draft_mixed,
    .never_copies = true,
};
