/* SPDX-License-Identifier: Apache-2.0
 *
 * The policies dtr and dtr-eq: the online rule of Kirisame et al., 'Dynamic Tensor Rematerialization' (ICLR 2021), run
 * over the program, with their simulator's accounts (github uwsampl/dtr-prototype, RuntimeV2EagerOptimized). It knows
 * the past and what the program has given back (ebb_tensor.released), but no next use.
 *
 * Before a step runs, the tensors that it reads are locked, and the absent ones are made again, each by running its
 * chain again, before which the same is done. Then room is made for all that the step writes, even for what is there
 * already: of the tensors without locks, the one with the least
 *
 *     h(t) = (time of t + time of the evicted ones around it) / (bytes of t * time since t was last needed)
 *
 * is evicted, until there is room. Of equal ones the last in the list goes, into which a tensor comes when its last
 * lock goes; one whose h is 0 goes at once. What the program has given back is evicted at once, and may be made again
 * for another one. At the end what is kept is made again, and stays. dtr-eq takes a cheaper sum (dtr_price.c).
 *
 * Here tensors may be updated in place, and some cannot be made again (dtr_chain.c): these are never evicted, and go
 * when nothing needs them any more. Persistent tensors stay. Nothing is copied.
 *
 * A plan that would take more than ten times as long as one without recomputation is given up, as in the authors'
 * experiments, and one that the caller knows to be too slow. Time: each eviction looks at all tensors that are there,
 * O(n) and for exact h a search of the regions that have changed; that is the rule's own cost, of which the paper
 * speaks.
 */
#include "plan/dtr.h"

#include <math.h>

#define NONE EBB_DTR_NONE
#define MAX_SLOWDOWN 10
#define MAX_FRAMES ((size_t)1 << 20)

/* Not within the limits: no message, for the caller may try others. */
#define NO_WAY EBB_E_NO_FIT

typedef ebb_dtr_walk walk;
typedef ebb_dtr_frame frame;

/* ---- the list of those that may be evicted ------------------------------------------------------ */

static void enlist(walk *w, uint32_t t) {
    ebb_dtr_tensor *tensor = &w->tensor[t];
    const bool may = tensor->can_again && tensor->is_complete && tensor->locks == 0 && tensor->where == EBB_DTR_HERE;
    if (!may || tensor->is_listed) { return; }
    tensor->is_listed = true;
    tensor->before = w->last;
    tensor->after = NONE;
    *(w->last != NONE ? &w->tensor[w->last].after : &w->first) = t;
    w->last = t;
}

static void delist(walk *w, uint32_t t) {
    ebb_dtr_tensor *tensor = &w->tensor[t];
    if (!tensor->is_listed) { return; }
    tensor->is_listed = false;
    *(tensor->before != NONE ? &w->tensor[tensor->before].after : &w->first) = tensor->after;
    *(tensor->after != NONE ? &w->tensor[tensor->after].before : &w->last) = tensor->before;
}

static void lock(walk *w, uint32_t t) {
    EBB_ASSERT(w->tensor[t].where == EBB_DTR_HERE);
    delist(w, t);
    w->tensor[t].locks++;
}

static void unlock(walk *w, uint32_t t) {
    EBB_ASSERT(w->tensor[t].locks > 0);
    w->tensor[t].locks--;
    enlist(w, t);
}

/* ---- evicting ----------------------------------------------------------------------------------- */

static ebb_status drop(walk *w, uint32_t t, ebb_dtr_where where) {
    ebb_dtr_tensor *tensor = &w->tensor[t];
    EBB_ASSERT(tensor->where == EBB_DTR_HERE && tensor->locks == 0 && w->load_bytes >= tensor->bytes);
    delist(w, t);
    tensor->where = where;
    w->load_bytes -= tensor->bytes;
    EBB_TRY(ebb__draft_tensor(w->draft, EBB_ACT_DROP, t, EBB_DEVICE, EBB_DRAFT_FIXED));
    return where == EBB_DTR_EVICTED ? ebb__dtr_evicted(w, t) : EBB_OK;
}

/* h, of a tensor of at least a byte. Bytes times time may have more than 64 bits. */
static ebb_status price(walk *w, uint32_t t, double *price_out) {
    const ebb_dtr_tensor *tensor = &w->tensor[t];
    uint64_t region_ns = 0;
    EBB_TRY(ebb__dtr_region_ns(w, t, &region_ns));
    const uint64_t age_ns = w->clock_ns - tensor->accessed_ns;
    const long double cost = (long double)ebb__add_ns(tensor->chain_ns, region_ns);
    *price_out = age_ns > 0 ? (double)(cost / ((long double)tensor->bytes * (long double)age_ns)) : HUGE_VAL;
    return EBB_OK;
}

static ebb_status evict_one(walk *w) {
    double best_price = HUGE_VAL;
    uint32_t best = NONE;
    for (uint32_t t = w->first; t != NONE; t = w->tensor[t].after) {
        double own = 0;
        EBB_TRY(price(w, t, &own));
        if (own <= best_price) {
            best_price = own;
            best = t;
        }
        if (own == 0) { break; }
    }
    return best != NONE ? drop(w, best, EBB_DTR_EVICTED) : NO_WAY;
}

static ebb_status make_room(walk *w, uint64_t bytes) {
    const uint64_t limit = w->input->limit_bytes;
    if (bytes > limit) { return NO_WAY; }
    while (w->load_bytes > limit - bytes) { EBB_TRY(evict_one(w)); }
    return EBB_OK;
}

/* ---- a step ------------------------------------------------------------------------------------- */

static const ebb_choice *chosen(const walk *w, uint32_t s) {
    return &w->view.choices[w->view.steps[s].first_choice + ebb__choice_of(w->input->choice, s)];
}

static bool is_input(const frame *f, const ebb_access *access) {
    return (access->mode & EBB_READ) != 0 && access->tensor != f->tensor;
}

static ebb_status begin_step(walk *w, uint32_t s, uint32_t t, uint64_t use) {
    const ebb_step *step = &w->view.steps[s];
    const frame f = {.step = s, .tensor = t, .use = use, .first_locked = w->locked.n};
    if (w->frames.n >= MAX_FRAMES) { return NO_WAY; }
    EBB_TRY(EBB_RESERVE(w->input->mem, &w->locked, step->n_accesses));
    EBB_TRY(EBB_PUSH(w->input->mem, &w->frames, f));
    for (uint32_t i = 0; i < step->n_accesses; i++) {
        const ebb_access *access = &w->view.accesses[step->first_access + i];
        ebb_dtr_tensor *tensor = &w->tensor[access->tensor];
        const bool locks = is_input(&f, access) && tensor->where == EBB_DTR_HERE;
        w->locked.data[w->locked.n++] = locks;
        if (is_input(&f, access)) { tensor->accessed_ns = w->clock_ns; }
        if (locks) { lock(w, access->tensor); }
    }
    return EBB_OK;
}

/* The step of the chain of t with which it is made anew. */
static ebb_status begin_chain(walk *w, uint32_t t) {
    uint64_t first = w->uses.start[t + 1];
    EBB_ASSERT(w->tensor[t].where == EBB_DTR_EVICTED && w->tensor[t].can_again);
    for (uint64_t u = w->uses.start[t + 1]; u-- > w->uses.start[t];) {
        if ((w->uses.use[u].mode & EBB_WRITE) == 0) { continue; }
        first = u;
        if (w->uses.use[u].mode == EBB_WRITE) { break; }
    }
    w->tensor[t].is_complete = false; /* until the chain's end */
    return begin_step(w, w->uses.use[first].step, t, first);
}

/* Make the next input that is absent; *done_out: all are there and locked. */
static ebb_status bring_inputs(walk *w, bool *done_out) {
    frame *f = &w->frames.data[w->frames.n - 1];
    const ebb_step *step = &w->view.steps[f->step];
    for (; f->input < step->n_accesses; f->input++) {
        const ebb_access *access = &w->view.accesses[step->first_access + f->input];
        if (!is_input(f, access) || w->locked.data[f->first_locked + f->input] != 0) { continue; }
        if (w->tensor[access->tensor].where != EBB_DTR_HERE) {
            *done_out = false;
            return begin_chain(w, access->tensor);
        }
        w->locked.data[f->first_locked + f->input] = 1;
        lock(w, access->tensor);
    }
    *done_out = true;
    return EBB_OK;
}

/* What the step writes, and is not the chain's tensor half made: all of it is counted, as if what is there already were
 * made beside itself. */
static uint64_t written_bytes(const walk *w, const frame *f) {
    const ebb_step *step = &w->view.steps[f->step];
    uint64_t bytes = ebb_align_up(chosen(w, f->step)->scratch_bytes, w->view.alignment);
    for (uint32_t i = 0; i < step->n_accesses; i++) {
        const ebb_access *access = &w->view.accesses[step->first_access + i];
        if (access->mode == EBB_WRITE) { bytes += w->tensor[access->tensor].bytes; }
    }
    return bytes;
}

/* A tensor that the step has written. */
static ebb_status arrive(walk *w, const frame *f, uint32_t t) {
    ebb_dtr_tensor *tensor = &w->tensor[t];
    const bool was_there = tensor->where == EBB_DTR_HERE;
    tensor->is_complete = tensor->is_complete || f->step == tensor->end_step;
    if (!was_there) {
        tensor->where = EBB_DTR_HERE;
        w->load_bytes += tensor->bytes;
        EBB_TRY(ebb__dtr_returned(w, t));
    }
    if (!was_there && f->tensor != NONE && !tensor->can_again) { return drop(w, t, EBB_DTR_GONE); }
    enlist(w, t);
    return EBB_OK;
}

static ebb_status run(walk *w, const frame *f) {
    const ebb_step *step = &w->view.steps[f->step];
    const bool is_again = f->tensor != NONE;
    uint32_t target = f->tensor;
    EBB_TRY(make_room(w, written_bytes(w, f)));
    EBB_TRY(ebb__draft_step(w->draft, is_again ? EBB_ACT_AGAIN : EBB_ACT_RUN, f->step,
                            ebb__choice_of(w->input->choice, f->step)));
    w->clock_ns = ebb__add_ns(w->clock_ns, w->step_ns[f->step]);
    if (is_again) { w->again_ns = ebb__add_ns(w->again_ns, w->step_ns[f->step]); }
    for (uint32_t i = 0; i < step->n_accesses; i++) {
        const ebb_access *access = &w->view.accesses[step->first_access + i];
        if ((access->mode & EBB_WRITE) == 0 || access->tensor == f->tensor) { continue; }
        if (target == NONE) {
            target = access->tensor; /* the first of all comes into the list after the others */
        } else {
            EBB_TRY(arrive(w, f, access->tensor));
        }
    }
    return target != NONE ? arrive(w, f, target) : EBB_OK;
}

/* Behind the step at the top of the frames, which has run: its inputs are free, and the next step of its chain begins.
 */
static ebb_status end_step(walk *w) {
    const frame f = w->frames.data[--w->frames.n];
    const ebb_step *step = &w->view.steps[f.step];
    for (uint32_t i = 0; i < step->n_accesses; i++) {
        if (w->locked.data[f.first_locked + i] != 0) { unlock(w, w->view.accesses[step->first_access + i].tensor); }
    }
    w->locked.n = f.first_locked;
    if (f.tensor == NONE || f.step == w->tensor[f.tensor].end_step) { return EBB_OK; }
    uint64_t use = f.use + 1;
    while ((w->uses.use[use].mode & EBB_WRITE) == 0) { use++; }
    return begin_step(w, w->uses.use[use].step, f.tensor, use);
}

/* Run what is at the top of the frames, and all that it needs. */
static ebb_status run_frames(walk *w) {
    while (w->frames.n > 0) {
        bool done = false;
        EBB_TRY(bring_inputs(w, &done));
        if (!done) { continue; }
        const frame f = w->frames.data[w->frames.n - 1];
        EBB_TRY(run(w, &f));
        EBB_TRY(end_step(w));
        const uint64_t worth_ns = w->input->worth_ns;
        const bool is_too_slow = worth_ns > 0 && ebb__add_ns(w->base_ns, w->again_ns) > worth_ns;
        if (is_too_slow || w->again_ns / (MAX_SLOWDOWN - 1) > w->base_ns) { return NO_WAY; }
    }
    return EBB_OK;
}

/* ---- the program -------------------------------------------------------------------------------- */

/* Tensors that the program gives back, or that nothing needs any more. due: by step. */
static ebb_status release(walk *w, const uint32_t *due, size_t n_due) {
    for (size_t i = 0; i < n_due; i++) {
        const ebb_dtr_tensor *tensor = &w->tensor[due[i]];
        if (tensor->where != EBB_DTR_HERE || w->view.tensors[due[i]].persistent || w->view.tensors[due[i]].kept) {
            continue;
        }
        EBB_TRY(drop(w, due[i], tensor->can_again ? EBB_DTR_EVICTED : EBB_DTR_GONE));
    }
    return EBB_OK;
}

static ebb_status run_program_step(walk *w, uint32_t s) {
    const ebb_step *step = &w->view.steps[s];
    EBB_TRY(begin_step(w, s, NONE, 0));
    EBB_TRY(run_frames(w));
    for (uint32_t i = 0; i < step->n_accesses; i++) {
        const ebb_access *access = &w->view.accesses[step->first_access + i];
        if ((access->mode & EBB_WRITE) != 0) { w->tensor[access->tensor].accessed_ns = w->clock_ns; }
    }
    return EBB_OK;
}

/* Kept and persistent tensors are there, and no others. */
static ebb_status end_program(walk *w) {
    for (uint32_t t = 0; t < w->view.n_tensors; t++) {
        if (!w->view.tensors[t].kept) { continue; }
        if (w->tensor[t].where != EBB_DTR_HERE) {
            EBB_TRY(begin_chain(w, t));
            EBB_TRY(run_frames(w));
        }
        lock(w, t);
    }
    for (uint32_t t = 0; t < w->view.n_tensors; t++) {
        const bool stays = w->view.tensors[t].kept || w->view.tensors[t].persistent;
        if (!stays && w->tensor[t].where == EBB_DTR_HERE) { EBB_TRY(drop(w, t, EBB_DTR_GONE)); }
    }
    return EBB_OK;
}

/* When a tensor goes: as the program says, but one that cannot be made again no sooner than nothing needs it. */
static uint64_t due_of(const walk *w, uint32_t t) {
    const ebb_dtr_tensor *tensor = &w->tensor[t];
    return tensor->can_again ? tensor->released : ebb_max_u64(tensor->released, (uint64_t)tensor->needed + 1);
}

static ebb_status walk_program(walk *w) {
    const size_t n = w->view.n_tensors;
    uint32_t *due = ebb__bump_alloc(&w->bump, n, sizeof *due);
    uint64_t *key = ebb__bump_alloc(&w->bump, n, sizeof *key);
    size_t n_due = 0;
    if (due == NULL || key == NULL) { return EBB_E_NO_MEMORY; }
    for (uint32_t t = 0; t < n; t++) {
        due[t] = t;
        key[t] = due_of(w, t);
        if (!w->view.tensors[t].persistent) { continue; }
        w->tensor[t].where = EBB_DTR_HERE;
        w->load_bytes += w->tensor[t].bytes;
    }
    EBB_TRY(ebb__sort_by_key(w->input->mem, due, n, key));
    if (w->load_bytes > w->input->limit_bytes) { return NO_WAY; }
    for (uint32_t s = 0; s < w->view.n_steps; s++) {
        EBB_TRY(run_program_step(w, s));
        size_t end = n_due;
        while (end < n && key[due[end]] <= (uint64_t)s + 1) { end++; }
        EBB_TRY(release(w, due + n_due, end - n_due));
        n_due = end;
    }
    return end_program(w);
}

static ebb_status init_walk(walk *w) {
    w->view = ebb__plan_view(w->input->program);
    w->first = w->last = NONE;
    w->clock_ns = 1;
    EBB_TRY(ebb__program_uses(w->input->program, &w->bump, &w->uses));
    w->step_ns = ebb__bump_alloc(&w->bump, w->view.n_steps, sizeof *w->step_ns);
    w->next_write = ebb__bump_alloc(&w->bump, w->view.n_accesses, sizeof *w->next_write);
    w->tensor = ebb__bump_alloc(&w->bump, w->view.n_tensors, sizeof *w->tensor);
    w->mark = ebb__bump_alloc(&w->bump, w->view.n_tensors, sizeof *w->mark);
    if (w->step_ns == NULL || w->next_write == NULL || w->tensor == NULL || w->mark == NULL) { return EBB_E_NO_MEMORY; }
    for (uint32_t s = 0; s < w->view.n_steps; s++) {
        w->step_ns[s] = ebb_machine_step_time_ns(w->input->machine, chosen(w, s));
        w->base_ns = ebb__add_ns(w->base_ns, w->step_ns[s]);
    }
    for (uint32_t t = 0; t < w->view.n_tensors; t++) {
        w->tensor[t] =
            (ebb_dtr_tensor){.bytes = ebb_align_up(w->view.tensors[t].size_bytes, w->view.alignment), .class = NONE};
        w->mark[t] = 0;
    }
    EBB_TRY(ebb__dtr_find_chains(w));
    for (uint32_t t = 0; t < w->view.n_tensors && w->input->copies_only; t++) { w->tensor[t].can_again = false; }
    return EBB_OK;
}

static ebb_status draft_by(const ebb_policy_input *input, ebb_draft *draft, bool has_classes) {
    walk w = {.input = input, .draft = draft, .has_classes = has_classes};
    ebb__bump_init(&w.bump, input->mem);
    ebb_status st = init_walk(&w);
    if (st == EBB_OK) { st = walk_program(&w); }
    EBB_VEC_FINI(input->mem, &w.frames);
    EBB_VEC_FINI(input->mem, &w.locked);
    EBB_VEC_FINI(input->mem, &w.classes);
    EBB_VEC_FINI(input->mem, &w.stack);
    ebb__bump_fini(&w.bump);
    return st;
}

static ebb_status draft_dtr(const ebb_policy_input *input, ebb_draft *draft) {
    return draft_by(input, draft, false);
}

static ebb_status draft_dtr_eq(const ebb_policy_input *input, ebb_draft *draft) {
    return draft_by(input, draft, true);
}

const ebb_policy ebb__policy_dtr = {
    .name = "dtr",
    .about = "evicts what is stale, large and cheap to compute again with its surroundings (DTR, exact h)",
    .keeps_limit = true,
    .never_copies = true,
    .draft = draft_dtr,
};

const ebb_policy ebb__policy_dtr_eq = {
    .name = "dtr-eq",
    .about = "as dtr, with equivalence classes in the place of surroundings",
    .keeps_limit = true,
    .never_copies = true,
    .draft = draft_dtr_eq,
};
