/* SPDX-License-Identifier: Apache-2.0
 *
 * Which tensors can be made again, and the computations that do it. Linear, but for what is made again for each need.
 */
#include "plan/remake.h"

#define MAX_AGAIN_A_STEP 64u
#define NEVER UINT64_MAX

static uint32_t tensor_at(const ebb_remake *r, const ebb_step *step, uint32_t i) {
    return r->view.accesses[step->first_access + i].tensor;
}

static bool writes(const ebb_use *use) {
    return (use->mode & EBB_WRITE) != 0;
}

/* ---- what can be made again --------------------------------------------------------------------- */

/* Goes through each tensor's uses from the last to the first. */
static void find_writes(ebb_remake *r) {
    for (uint32_t t = 0; t < r->view.n_tensors; t++) {
        uint64_t later = NEVER;
        r->makers_end[t] = r->uses.start[t];
        for (uint64_t u = r->uses.start[t + 1]; u-- > r->uses.start[t];) {
            const ebb_use *use = &r->uses.use[u];
            r->later_write[use->access] = later;
            if (!writes(use)) { continue; }
            later = use->step;
            const bool is_last_maker = ebb__remake_is_forward(r, use->step) && r->makers_end[t] == r->uses.start[t];
            if (is_last_maker) { r->makers_end[t] = u + 1; }
        }
    }
}

static bool is_largest_written(const ebb_remake *r, uint32_t t, const ebb_step *step) {
    uint64_t most = 0;
    uint32_t largest = t;
    for (uint32_t i = 0; i < step->n_accesses; i++) {
        const ebb_access *access = &r->view.accesses[step->first_access + i];
        const uint64_t bytes = r->view.tensors[access->tensor].size_bytes;
        if ((access->mode & EBB_WRITE) == 0 || bytes <= most) { continue; }
        most = bytes;
        largest = access->tensor;
    }
    return largest == t;
}

/* Whether a step makes nothing that lasts, and changes nothing but t. */
static bool is_pure(const ebb_remake *r, uint32_t t, const ebb_step *step) {
    if (step->repeat != EBB_REPEAT_EXACT || step->phase != EBB_PHASE_FORWARD) { return false; }
    for (uint32_t i = 0; i < step->n_accesses; i++) {
        const ebb_access *access = &r->view.accesses[step->first_access + i];
        const ebb_tensor *tensor = &r->view.tensors[access->tensor];
        if (access->mode == EBB_READ) { continue; }
        if (tensor->persistent || tensor->kept || (access->mode == EBB_UPDATE && access->tensor != t)) { return false; }
    }
    return true;
}

/* Whether nothing of the forward pass uses it after something of the backward pass has. */
static bool is_used_in_turn(const ebb_remake *r, uint32_t t) {
    bool is_backward = false;
    for (uint64_t u = r->uses.start[t]; u < r->uses.start[t + 1]; u++) {
        const bool is_forward = ebb__remake_is_forward(r, r->uses.use[u].step);
        if (is_backward && is_forward) { return false; }
        is_backward = !is_forward;
    }
    return true;
}

static bool can_be_made(const ebb_remake *r, uint32_t t) {
    const ebb_tensor *tensor = &r->view.tensors[t];
    const uint64_t first = r->uses.start[t], end = r->makers_end[t];
    if (tensor->persistent || tensor->kept || end == first || !is_used_in_turn(r, t)) { return false; }
    for (uint64_t u = first; u < end; u++) {
        const ebb_use *use = &r->uses.use[u];
        if (!writes(use)) { continue; }
        const bool is_first = u == first, makes = use->mode == EBB_WRITE;
        if (is_first != makes || !is_pure(r, t, &r->view.steps[use->step])) { return false; }
        if (is_first && !is_largest_written(r, t, &r->view.steps[use->step])) { return false; }
    }
    return true;
}

ebb_status ebb__remake_init(ebb_remake *r, const ebb_policy_input *input) {
    *r = (ebb_remake){.input = input, .view = ebb__plan_view(input->program)};
    const size_t n = r->view.n_tensors;
    ebb__bump_init(&r->bump, input->mem);
    EBB_TRY(ebb__program_uses(input->program, &r->bump, &r->uses));
    r->later_write = ebb__bump_alloc(&r->bump, r->view.n_accesses, sizeof *r->later_write);
    r->makers_end = ebb__bump_alloc(&r->bump, n, sizeof *r->makers_end);
    r->can_drop = ebb__bump_alloc(&r->bump, n, sizeof *r->can_drop);
    r->is_dropped = ebb__bump_alloc(&r->bump, n, sizeof *r->is_dropped);
    r->until = ebb__bump_alloc(&r->bump, n, sizeof *r->until);
    r->end = ebb__bump_alloc(&r->bump, n, sizeof *r->end);
    r->segment = ebb__bump_alloc(&r->bump, n, sizeof *r->segment);
    r->is_memory = ebb__bump_alloc(&r->bump, n, sizeof *r->is_memory);
    if (r->later_write == NULL || r->makers_end == NULL || r->can_drop == NULL || r->is_dropped == NULL ||
        r->until == NULL || r->end == NULL || r->segment == NULL || r->is_memory == NULL) {
        return EBB_E_NO_MEMORY;
    }
    find_writes(r);
    for (uint32_t t = 0; t < n; t++) {
        const uint64_t end = r->makers_end[t];
        r->can_drop[t] = can_be_made(r, t);
        r->is_dropped[t] = r->is_memory[t] = false;
        r->end[t] = end > r->uses.start[t] ? r->later_write[r->uses.use[end - 1].access] : NEVER;
        r->until[t] = NEVER;
        r->segment[t] = t;
    }
    return EBB_OK;
}

void ebb__remake_fini(ebb_remake *r) {
    ebb__bump_fini(&r->bump);
}

/* ---- segments ----------------------------------------------------------------------------------- */

/* The last step for which each dropped tensor may have to be made again: its own last read, and those of what is made
 * from it. In the reverse order of steps, so that what is made from it comes first. */
static ebb_status find_last_needs(ebb_remake *r, uint64_t **need_out) {
    uint64_t *need = ebb__bump_alloc(&r->bump, r->view.n_tensors, sizeof *need);
    if (need == NULL) { return EBB_E_NO_MEMORY; }
    for (uint32_t t = 0; t < r->view.n_tensors; t++) {
        need[t] = 0;
        for (uint64_t u = r->uses.start[t]; u < r->uses.start[t + 1]; u++) {
            const ebb_use *use = &r->uses.use[u];
            const bool is_need = (use->mode & EBB_READ) != 0 && !ebb__remake_is_forward(r, use->step);
            if (is_need && use->step <= r->end[t]) { need[t] = use->step; }
        }
    }
    for (size_t s = r->view.n_steps; s-- > 0;) {
        const ebb_step *step = &r->view.steps[s];
        if (step->phase != EBB_PHASE_FORWARD) { continue; }
        uint64_t last = 0;
        for (uint32_t i = 0; i < step->n_accesses; i++) {
            const ebb_access *access = &r->view.accesses[step->first_access + i];
            if ((access->mode & EBB_WRITE) != 0 && r->is_dropped[access->tensor]) {
                last = ebb_max_u64(last, need[access->tensor]);
            }
        }
        for (uint32_t i = 0; i < step->n_accesses; i++) {
            const ebb_access *access = &r->view.accesses[step->first_access + i];
            if (access->mode == EBB_READ) { need[access->tensor] = ebb_max_u64(need[access->tensor], last); }
        }
    }
    *need_out = need;
    return EBB_OK;
}

/* The last step before which step s, run again for tensor t, still finds the versions that it read, and may overwrite
 * what else it writes. */
static uint64_t repeatable_until(const ebb_remake *r, uint32_t s, uint32_t t) {
    const ebb_step *step = &r->view.steps[s];
    uint64_t until = NEVER;
    for (uint32_t i = 0; i < step->n_accesses; i++) {
        const uint32_t x = tensor_at(r, step, i);
        if (x == t) { continue; }
        until = ebb_min_u64(until, r->later_write[step->first_access + i]);
        if (r->is_dropped[x]) { until = ebb_min_u64(until, r->until[x]); }
    }
    return until;
}

static uint32_t root_of(ebb_remake *r, uint32_t t) {
    while (r->segment[t] != t) {
        r->segment[t] = r->segment[r->segment[t]];
        t = r->segment[t];
    }
    return t;
}

static void join(ebb_remake *r, uint32_t a, uint32_t b) {
    const uint32_t x = root_of(r, a), y = root_of(r, b);
    r->segment[x > y ? x : y] = x > y ? y : x;
}

ebb_status ebb__remake_find_segments(ebb_remake *r) {
    uint64_t *need = NULL;
    EBB_TRY(find_last_needs(r, &need));
    for (uint32_t s = 0; s < r->view.n_steps; s++) {
        const ebb_step *step = &r->view.steps[s];
        if (step->phase != EBB_PHASE_FORWARD) { continue; }
        for (uint32_t i = 0; i < step->n_accesses; i++) { /* once for each of its makers */
            const ebb_access *access = &r->view.accesses[step->first_access + i];
            const uint32_t t = access->tensor;
            if ((access->mode & EBB_WRITE) == 0 || !r->is_dropped[t]) { continue; }
            r->until[t] = ebb_min_u64(r->until[t], ebb_min_u64(repeatable_until(r, s, t), r->end[t]));
            r->is_dropped[t] = r->can_drop[t] && need[t] > 0 && need[t] <= r->until[t];
        }
    }
    for (uint32_t s = 0; s < r->view.n_steps; s++) {
        const ebb_step *step = &r->view.steps[s];
        for (uint32_t i = 0; step->phase == EBB_PHASE_FORWARD && i < step->n_accesses; i++) {
            const ebb_access *access = &r->view.accesses[step->first_access + i];
            if ((access->mode & EBB_WRITE) == 0 || !r->is_dropped[access->tensor]) { continue; }
            for (uint32_t k = 0; k < step->n_accesses; k++) {
                const uint32_t x = tensor_at(r, step, k);
                if (r->is_dropped[x]) { join(r, x, access->tensor); }
            }
        }
    }
    for (uint32_t t = 0; t < r->view.n_tensors; t++) { r->segment[t] = root_of(r, t); }
    return EBB_OK;
}

/* ---- the computations --------------------------------------------------------------------------- */

typedef ebb_rewalk walk;

static uint64_t step_key(const void *item) {
    return *(const uint32_t *)item;
}

static bool is_read_by(const ebb_remake *r, uint32_t t, uint32_t s) {
    const ebb_step *step = &r->view.steps[s];
    for (uint32_t i = 0; i < step->n_accesses; i++) {
        const ebb_access *access = &r->view.accesses[step->first_access + i];
        if (access->tensor == t && (access->mode & EBB_READ) != 0) { return true; }
    }
    return false;
}

ebb_status ebb__rewalk_want(walk *w, uint32_t t) {
    if (!w->r->is_dropped[t] || w->is_there[t]) { return EBB_OK; }
    w->is_there[t] = true;
    if (w->r->is_memory[w->r->segment[t]]) { EBB_TRY(EBB_PUSH(w->r->input->mem, &w->made, t)); }
    return EBB_PUSH(w->r->input->mem, &w->open, t);
}

/* Collect the makers, then run them. */
ebb_status ebb__rewalk_make(walk *w) {
    const ebb_remake *r = w->r;
    while (w->open.n > 0) {
        const uint32_t t = w->open.data[--w->open.n];
        for (uint64_t u = r->uses.start[t]; u < r->makers_end[t]; u++) {
            const ebb_use *use = &r->uses.use[u];
            if (!writes(use)) { continue; }
            EBB_TRY(EBB_PUSH(r->input->mem, &w->again, use->step));
            const ebb_step *step = &r->view.steps[use->step];
            for (uint32_t i = 0; i < step->n_accesses; i++) { EBB_TRY(ebb__rewalk_want(w, tensor_at(r, step, i))); }
        }
    }
    EBB_TRY(ebb__sort_items(r->input->mem, w->again.data, w->again.n, sizeof *w->again.data, step_key));
    for (size_t i = 0; i < w->again.n; i++) { EBB_TRY(ebb__sequence_compute(w->sequence, w->again.data[i], true)); }
    w->n_again += w->again.n;
    w->again.n = 0;
    return EBB_OK;
}

/* What is kept of memory segments after step s: what it reads and the next step that needs anything reads too. */
static void let_go(walk *w, uint32_t s, uint32_t next) {
    size_t n = 0;
    for (size_t i = 0; i < w->made.n; i++) {
        const uint32_t t = w->made.data[i];
        w->is_there[t] = next != UINT32_MAX && is_read_by(w->r, t, s) && is_read_by(w->r, t, next);
        if (w->is_there[t]) { w->made.data[n++] = t; }
    }
    w->made.n = n;
}

/* For each step the next one of the backward pass that needs something dropped; UINT32_MAX: none. */
static ebb_status find_next_needs(ebb_remake *r, uint32_t **next_out, bool **has_out) {
    uint32_t *next = ebb__bump_alloc(&r->bump, r->view.n_steps, sizeof *next), later = UINT32_MAX;
    bool *has = ebb__bump_alloc(&r->bump, r->view.n_steps, sizeof *has);
    if (next == NULL || has == NULL) { return EBB_E_NO_MEMORY; }
    for (uint32_t s = (uint32_t)r->view.n_steps; s-- > 0;) {
        const ebb_step *step = &r->view.steps[s];
        next[s] = later;
        has[s] = false;
        for (uint32_t i = 0; step->phase != EBB_PHASE_FORWARD && i < step->n_accesses; i++) {
            has[s] = has[s] || ebb__remake_needs(r, &r->view.accesses[step->first_access + i], s);
        }
        later = has[s] ? s : later;
    }
    *next_out = next;
    *has_out = has;
    return EBB_OK;
}

static ebb_status walk_steps(walk *w) {
    ebb_remake *r = w->r;
    uint32_t *next = NULL;
    bool *has = NULL;
    EBB_TRY(find_next_needs(r, &next, &has));
    for (uint32_t s = 0; s < r->view.n_steps; s++) {
        const ebb_step *step = &r->view.steps[s];
        for (uint32_t i = 0; has[s] && i < step->n_accesses; i++) {
            const ebb_access *access = &r->view.accesses[step->first_access + i];
            if (ebb__remake_needs(r, access, s)) { EBB_TRY(ebb__rewalk_want(w, access->tensor)); }
        }
        if (has[s]) { EBB_TRY(ebb__rewalk_make(w)); }
        EBB_TRY(ebb__sequence_compute(w->sequence, s, false));
        if (has[s] && w->n_again <= w->max_again) { let_go(w, s, next[s]); }
    }
    return EBB_OK;
}

ebb_status ebb__rewalk_init(ebb_rewalk *w, ebb_remake *r, ebb_sequence *sequence) {
    *w = (walk){.r = r, .sequence = sequence, .max_again = MAX_AGAIN_A_STEP * (uint64_t)r->view.n_steps};
    w->is_there = ebb__bump_alloc(&r->bump, r->view.n_tensors, sizeof *w->is_there);
    if (w->is_there == NULL) { return EBB_E_NO_MEMORY; }
    for (size_t t = 0; t < r->view.n_tensors; t++) { w->is_there[t] = false; }
    return EBB_OK;
}

void ebb__rewalk_fini(ebb_rewalk *w) {
    EBB_VEC_FINI(w->r->input->mem, &w->open);
    EBB_VEC_FINI(w->r->input->mem, &w->made);
    EBB_VEC_FINI(w->r->input->mem, &w->again);
}

ebb_status ebb__remake_sequence(ebb_remake *r, ebb_sequence *sequence) {
    walk w;
    ebb_status status = ebb__rewalk_init(&w, r, sequence);
    if (status == EBB_OK) { status = walk_steps(&w); }
    ebb__rewalk_fini(&w);
    return status;
}
