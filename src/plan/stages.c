/* SPDX-License-Identifier: Apache-2.0
 *
 * Finding the stages of the forward pass: one sweep over the tensors, one over the steps.
 */
#include "plan/stages.h"

/* Whether it comes from outside: its maker reads nothing. */
static bool is_source(const ebb_remake *r, uint32_t t) {
    const ebb_step *step = &r->view.steps[r->uses.use[r->uses.start[t]].step];
    for (uint32_t i = 0; i < step->n_accesses; i++) {
        if ((r->view.accesses[step->first_access + i].mode & EBB_READ) != 0) { return false; }
    }
    return true;
}

/* Forward steps at which a tensor is there for others: made by step `made`, read last by step `read`. */
static bool find_span(const ebb_remake *r, uint32_t t, uint32_t *made_out, uint32_t *read_out) {
    if (!r->can_drop[t] || is_source(r, t)) { return false; }
    *made_out = r->uses.use[r->makers_end[t] - 1].step;
    *read_out = *made_out;
    for (uint64_t u = r->makers_end[t]; u < r->uses.start[t + 1]; u++) {
        const uint32_t step = r->uses.use[u].step;
        if (ebb__remake_is_forward(r, step)) { *read_out = step; }
    }
    return true;
}

/* How many tensors cross from each step to the next, and the sum of their numbers: of a single one, its number. In a
 * tensor that is still being made no border may lie, so it counts twice. */
static void count_crossings(const ebb_remake *r, int64_t *n_crossing, int64_t *sum) {
    for (uint32_t t = 0; t < r->view.n_tensors; t++) {
        uint32_t made = 0, read = 0;
        if (!find_span(r, t, &made, &read)) { continue; }
        const uint32_t first = r->uses.use[r->uses.start[t]].step;
        n_crossing[first] += 2;
        n_crossing[made] -= 2;
        n_crossing[made] += 1;
        n_crossing[read] -= 1;
        sum[made] += t;
        sum[read] -= t;
    }
}

static ebb_status cut(const ebb_remake *r, ebb_stages *stages, ebb_bump *bump) {
    int64_t *n_crossing = ebb__bump_alloc(bump, r->view.n_steps, sizeof *n_crossing), n_now = 0;
    int64_t *sum = ebb__bump_alloc(bump, r->view.n_steps, sizeof *sum), sum_now = 0;
    uint32_t last = EBB_NO_TENSOR;
    if (n_crossing == NULL || sum == NULL) { return EBB_E_NO_MEMORY; }
    memset(n_crossing, 0, r->view.n_steps * sizeof *n_crossing);
    memset(sum, 0, r->view.n_steps * sizeof *sum);
    count_crossings(r, n_crossing, sum);
    stages->n = 1;
    stages->crosser[0] = EBB_NO_TENSOR;
    for (uint32_t s = 0; s < r->view.n_steps; s++) {
        stages->of_step[s] = stages->n - 1;
        n_now += n_crossing[s];
        sum_now += sum[s];
        const bool is_border = n_now == 1 && sum_now != (int64_t)last && ebb__remake_is_forward(r, s);
        if (!is_border) { continue; }
        last = (uint32_t)sum_now;
        stages->crosser[stages->n++] = last;
    }
    return EBB_OK;
}

/* So many neighbours become one stage that few enough are left. */
static void merge(const ebb_remake *r, uint32_t max_stages, ebb_stages *stages) {
    const uint32_t part = (stages->n + max_stages - 1) / max_stages;
    if (part <= 1) { return; }
    for (uint32_t s = 0; s < r->view.n_steps; s++) { stages->of_step[s] /= part; }
    stages->n = (stages->n + part - 1) / part;
    for (uint32_t i = 0; i < stages->n; i++) { stages->crosser[i] = stages->crosser[(size_t)i * part]; }
}

ebb_status ebb__stages_find(ebb_remake *r, uint32_t max_stages, ebb_stages *stages_out) {
    EBB_ASSERT(max_stages > 0);
    ebb_stages stages = {
        .of_step = ebb__bump_alloc(&r->bump, r->view.n_steps, sizeof *stages.of_step),
        .crosser = ebb__bump_alloc(&r->bump, r->view.n_steps + 1, sizeof *stages.crosser),
        .made = ebb__bump_alloc(&r->bump, r->view.n_tensors, sizeof *stages.made),
        .read = ebb__bump_alloc(&r->bump, r->view.n_tensors, sizeof *stages.read),
    };
    if (stages.of_step == NULL || stages.crosser == NULL || stages.made == NULL || stages.read == NULL) {
        return EBB_E_NO_MEMORY;
    }
    EBB_TRY(cut(r, &stages, &r->bump));
    merge(r, max_stages, &stages);
    for (uint32_t t = 0; t < r->view.n_tensors; t++) {
        uint32_t made = 0, read = 0;
        const bool is_made = find_span(r, t, &made, &read);
        stages.made[t] = is_made ? stages.of_step[made] : EBB_NO_STAGE;
        stages.read[t] = is_made ? stages.of_step[read] : EBB_NO_STAGE;
    }
    *stages_out = stages;
    return EBB_OK;
}
