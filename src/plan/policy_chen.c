/* SPDX-License-Identifier: Apache-2.0
 *
 * The policies chen-greedy, ap-sqrt-n and ap-greedy: heuristics of Chen, Xu, Zhang and Guestrin, "Training Deep Nets
 * with Sublinear Memory Cost", arXiv 1604.06174 (2016), as Checkmate (Jain et al., MLSys 2020, section 6.2) generalises
 * them to graphs with branches.
 *
 *   chen-greedy  Chen's algorithm 3, with the order of steps taken as a chain: along the forward pass bytes are added
 * up, and when they exceed b, what was made last is kept and the sum begins again ap-sqrt-n    of the articulation
 * points (stages.h) about sqrt(n) are kept, evenly ap-greedy    algorithm 3 where only articulation points may be kept
 *
 * All else of the forward pass is dropped, and made again once, when the backward pass first needs something of it. For
 * b values from all bytes down to the largest tensor are tried, each by the square root of 2 below the one before. The
 * plan that takes the least time of those within the limit is taken; the paper searches b as well.
 */
#include "plan/stages.h"

#include <math.h>

#define MAX_VALUES 64
#define SHRINK 0.70710678118654752 /* of b */

typedef struct drafting {
    const ebb_policy_input *input;
    ebb_remake r;
    ebb_stages stages;
    bool *is_point; /* [n_tensors]: may be kept */
} drafting;

/* ---- what is kept ------------------------------------------------------------------------------ */

static uint32_t made_by(const ebb_remake *r, uint32_t t) {
    return r->uses.use[r->makers_end[t] - 1].step;
}

/* All tensors, or only what crosses into a stage. */
static ebb_status find_points(drafting *d, bool articulations_only) {
    d->is_point = ebb__bump_alloc(&d->r.bump, d->r.view.n_tensors, sizeof *d->is_point);
    if (d->is_point == NULL) { return EBB_E_NO_MEMORY; }
    for (uint32_t t = 0; t < d->r.view.n_tensors; t++) { d->is_point[t] = !articulations_only; }
    for (uint32_t i = 1; i < d->stages.n; i++) { d->is_point[d->stages.crosser[i]] = true; }
    return EBB_OK;
}

/* Algorithm 3. */
static void drop_greedily(drafting *d, double most_bytes) {
    ebb_remake *r = &d->r;
    double sum = 0;
    for (uint32_t s = 0; s < r->view.n_steps; s++) {
        const ebb_step *step = &r->view.steps[s];
        for (uint32_t i = 0; i < step->n_accesses; i++) {
            const uint32_t t = r->view.accesses[step->first_access + i].tensor;
            if (d->stages.made[t] == EBB_NO_STAGE || made_by(r, t) != s) { continue; }
            sum += (double)r->view.tensors[t].size_bytes;
            r->is_dropped[t] = !d->is_point[t] || sum <= most_bytes;
            if (!r->is_dropped[t]) { sum = 0; }
        }
    }
}

static void drop_between_roots(drafting *d) {
    uint32_t length = 1; /* the square root, rounded up */
    while (length * length < d->stages.n) { length++; }
    for (uint32_t t = 0; t < d->r.view.n_tensors; t++) { d->r.is_dropped[t] = d->stages.made[t] != EBB_NO_STAGE; }
    for (uint32_t i = length; i < d->stages.n; i += length) { d->r.is_dropped[d->stages.crosser[i]] = false; }
}

/* ---- a plan ------------------------------------------------------------------------------------ */

static double time_again(const drafting *d, const ebb_sequence *sequence) {
    double sum_ns = 0;
    for (size_t c = 0; c < sequence->computes.n; c++) {
        const ebb_compute *compute = &sequence->computes.data[c];
        const ebb_step *step = &d->r.view.steps[compute->step];
        const uint32_t choice = ebb__choice_of(d->input->choice, compute->step);
        if (!compute->is_again) { continue; }
        sum_ns += (double)ebb_machine_step_time_ns(d->input->machine, &d->r.view.choices[step->first_choice + choice]);
    }
    return sum_ns;
}

/* Anew for each b, because finding segments takes back what cannot be made again. */
static ebb_status begin(drafting *d, bool articulations_only) {
    EBB_TRY(ebb__remake_init(&d->r, d->input));
    EBB_TRY(ebb__stages_find(&d->r, UINT32_MAX, &d->stages));
    return find_points(d, articulations_only);
}

static ebb_status draft_ap_sqrt_n(const ebb_policy_input *input, ebb_draft *draft) {
    drafting d = {.input = input};
    ebb_sequence sequence;
    ebb__sequence_init(&sequence, input->mem);
    ebb_status status = begin(&d, true);
    if (status == EBB_OK) {
        drop_between_roots(&d);
        status = ebb__remake_find_segments(&d.r);
    }
    if (status == EBB_OK) { status = ebb__remake_sequence(&d.r, &sequence); }
    if (status == EBB_OK) { status = ebb__sequence_draft(&sequence, input, draft); }
    ebb__sequence_fini(&sequence);
    ebb__remake_fini(&d.r);
    return status;
}

/* The computations with one b. *time_out: what runs again takes; infinite: not within the limit. */
static ebb_status try_value(const ebb_policy_input *input, bool articulations_only, double most_bytes,
                            ebb_sequence *sequence, double *time_out) {
    drafting d = {.input = input};
    uint64_t peak_bytes = UINT64_MAX;
    sequence->computes.n = 0;
    ebb_status status = begin(&d, articulations_only);
    if (status == EBB_OK) {
        drop_greedily(&d, most_bytes);
        status = ebb__remake_find_segments(&d.r);
    }
    if (status == EBB_OK) { status = ebb__remake_sequence(&d.r, sequence); }
    if (status == EBB_OK) { status = ebb__sequence_peak(sequence, input, &peak_bytes); }
    *time_out = peak_bytes <= input->limit_bytes ? time_again(&d, sequence) : HUGE_VAL;
    ebb__remake_fini(&d.r);
    return status;
}

static ebb_status draft_greedily(const ebb_policy_input *input, bool articulations_only, ebb_draft *draft) {
    const ebb_program_view view = ebb__plan_view(input->program);
    double most = 0, largest = 1, best = 0, least_ns = HUGE_VAL, time_ns = 0;
    ebb_sequence sequence;
    ebb__sequence_init(&sequence, input->mem);
    ebb_status status = EBB_OK;
    for (size_t t = 0; t < view.n_tensors; t++) {
        most += view.tensors[t].persistent ? 0 : (double)view.tensors[t].size_bytes;
        largest = fmax(largest, (double)view.tensors[t].size_bytes);
    }
    for (int i = 0; i < MAX_VALUES && most >= largest * SHRINK && status == EBB_OK; i++, most *= SHRINK) {
        status = try_value(input, articulations_only, most, &sequence, &time_ns);
        if (status != EBB_OK || time_ns >= least_ns) { continue; }
        least_ns = time_ns;
        best = most;
    }
    if (status == EBB_OK && least_ns == HUGE_VAL) { status = EBB_E_NO_FIT; }
    if (status == EBB_OK) { status = try_value(input, articulations_only, best, &sequence, &time_ns); }
    if (status == EBB_OK) { status = ebb__sequence_draft(&sequence, input, draft); }
    ebb__sequence_fini(&sequence);
    return status;
}

static ebb_status draft_chen_greedy(const ebb_policy_input *input, ebb_draft *draft) {
    return draft_greedily(input, false, draft);
}

static ebb_status draft_ap_greedy(const ebb_policy_input *input, ebb_draft *draft) {
    return draft_greedily(input, true, draft);
}

const ebb_policy ebb__policy_chen_greedy = {
    .name = "chen-greedy",
    .about = "Chen et al. 2016: what comes after so many bytes is kept, the rest computed again",
    .keeps_limit = true,
    .when_it_fits = &ebb__policy_liveness,
    .draft = draft_chen_greedy,
    .never_copies = true,
};

const ebb_policy ebb__policy_ap_sqrt_n = {
    .name = "ap-sqrt-n",
    .about = "Checkmate's baseline: every sqrt(n)-th articulation point is kept",
    .draft = draft_ap_sqrt_n,
};

const ebb_policy ebb__policy_ap_greedy = {
    .name = "ap-greedy",
    .about = "Checkmate's baseline: as chen-greedy, at articulation points alone",
    .keeps_limit = true,
    .when_it_fits = &ebb__policy_liveness,
    .draft = draft_ap_greedy,
    .never_copies = true,
};
