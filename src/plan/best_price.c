/* SPDX-License-Identifier: Apache-2.0
 *
 * Which tensor leaves, and how. Each that is present and not locked has a price, in time lost:
 *
 *      compute again   the steps of the closure that would have to run: back to what is present or has a copy
 *      copy            waiting until its copy out has ended, what copying slows computing, and the engines' time at a
 *                      price for each nanosecond
 *
 * and the one with the lowest score leaves,
 *
 *      (price * 2^copy + 1) * 2^weight / (bytes * (next use - now + 1)^reach)
 *
 * weight and copy are keys; copy is 0 where the price is not that of a copy. The next use may be that of another tensor
 * that is gone and will be computed again. DTR (Kirisame et al., ICLR 2021, section 4.1) scores in this form with the
 * time since the last use; a plan knows the next one. With the keys' by_duals, the bound's prices take the place of the
 * distance and of one price for all copies (best_duals.c).
 *
 * The cost of computing a tensor again is kept with it until an input of that comes or leaves.
 * A choice looks at few tensors, those with the lowest scores when they were last looked at (best_queue.c).
 */
#include "plan/best.h"

#include <math.h>

#define MAX_CLOSURE 512u /* steps */
#define CLOSURE_LOOKS 8u /* that a step of a closure counts for */
#define LOOKS 24u        /* counted for each tensor that is looked at */
#define MAX_LOW 64u      /* floors that are too low, for one choice */
#define DEAD (-1.0)      /* a floor */
#define MAX_CHECKED 256u /* tensors on the device, whose floors builds for tests check */
#define ROUNDING 1e-9

/* ---- needs -------------------------------------------------------------------------------------- */

uint64_t ebb__best_find_need(const ebb_best_walk *w, uint32_t t) {
    const ebb_best_tensor *state = &w->state[t];
    if (state->use < w->uses.start[t + 1]) {
        const ebb_use *use = &w->uses.use[state->use];
        return (use->mode & EBB_READ) != 0 ? use->step : EBB_BEST_NEVER;
    }
    if (w->view.tensors[t].kept) { return w->view.n_steps; }
    if (!w->view.tensors[t].persistent) { return EBB_BEST_NEVER; }
    EBB_ASSERT(w->uses.start[t] < w->uses.start[t + 1]);
    return w->view.n_steps + 1 + w->uses.use[w->uses.start[t]].step;
}

uint64_t ebb__best_next_write(const ebb_best_walk *w, uint32_t t) {
    const uint64_t use = w->state[t].use;
    return use < w->uses.start[t + 1] ? w->next_write[use] : EBB_BEST_NEVER;
}

uint64_t ebb__best_find_chain(const ebb_best_walk *w, uint32_t t) {
    uint64_t use = w->state[t].made;
    if (use == EBB_BEST_NEVER) { return EBB_BEST_NEVER; }
    for (; w->uses.use[use].mode != EBB_WRITE; use--) {
        if (use == w->uses.start[t]) { return EBB_BEST_NEVER; }
    }
    return use;
}

static bool is_in_chain(const ebb_best_walk *w, uint32_t t, uint32_t step) {
    const uint64_t first = ebb__best_find_chain(w, t);
    return first != EBB_BEST_NEVER && w->uses.use[first].step <= step && step <= w->uses.use[w->state[t].made].step;
}

/* The step by which t is wanted: by the program, or because something of it is gone and will be computed again. If the
 * keys keep parts, also because something of it is there and may have to go: with t, it can be computed again. */
static uint64_t find_any_need(const ebb_best_walk *w, uint32_t t) {
    const ebb_best_tensor *state = &w->state[t];
    const uint64_t first = state->made == EBB_BEST_NEVER ? w->uses.start[t] : state->made + 1;
    const bool keeps_parts = w->keys->keeps_parts && w->is_part[t];
    uint64_t need = ebb__best_find_need(w, t);
    if (w->view.tensors[t].persistent && !ebb__has_tiers(w->input->tier_bytes)) { return need; } /* it stays anyway */
    for (uint64_t use = first; use < state->use; use++) { /* these read what it holds now */
        const ebb_step *step = &w->view.steps[w->uses.use[use].step];
        if (w->n_gone[w->uses.use[use].step] == 0 && !keeps_parts) { continue; } /* an update may access thousands */
        for (uint32_t i = 0; i < step->n_accesses; i++) {
            const ebb_access *access = &w->view.accesses[step->first_access + i];
            const ebb_best_tensor *made = &w->state[access->tensor];
            const bool is_wanted = made->gone || (keeps_parts && !made->copied);
            if ((access->mode & EBB_WRITE) == 0 || !is_wanted || made->need >= need) { continue; }
            if (is_in_chain(w, access->tensor, w->uses.use[use].step)) { need = made->need; }
        }
    }
    return need;
}

/* Put what t is computed from on the list of what is to be looked at. */
static uint32_t wait_inputs(ebb_best_walk *w, uint32_t t, uint32_t n_waiting) {
    const uint64_t first = ebb__best_find_chain(w, t), last = w->state[t].made;
    for (uint64_t use = first; first != EBB_BEST_NEVER && use <= last; use++) {
        const ebb_step *step = &w->view.steps[w->uses.use[use].step];
        if ((w->uses.use[use].mode & EBB_WRITE) == 0) { continue; }
        for (uint32_t i = 0; i < step->n_accesses; i++) {
            const ebb_access *access = &w->view.accesses[step->first_access + i];
            if ((access->mode & EBB_READ) == 0 || access->tensor == t || w->state[access->tensor].waits) { continue; }
            w->state[access->tensor].waits = true;
            w->waiting[n_waiting++] = access->tensor;
        }
    }
    return n_waiting;
}

/* Dead tensors leave first. */
static void lower_floors(ebb_best_walk *w, uint32_t t) {
    ebb__best_queue_lower(&w->by_copy, t, w->state[t].need == EBB_BEST_NEVER ? DEAD : 0);
    ebb__best_queue_lower(&w->by_again, t, 0);
}

/* A gone tensor needs its inputs when it is needed itself, so if its need changes, theirs may, too; of any tensor, if
 * the keys keep parts. Inputs are older than what is made of them, so this ends. */
static void settle(ebb_best_walk *w, uint32_t n_waiting) {
    while (n_waiting > 0) {
        const uint32_t t = w->waiting[--n_waiting];
        ebb_best_tensor *state = &w->state[t];
        state->waits = false;
        const uint64_t before = state->need;
        state->need = find_any_need(w, t);
        if (state->need != before) { lower_floors(w, t); }
        if ((state->gone || w->keys->keeps_parts) && state->need != before) {
            n_waiting = wait_inputs(w, t, n_waiting);
        }
    }
}

/* Count it at the steps of its chain, which does not change while it is gone. */
static void count_gone(ebb_best_walk *w, uint32_t t, bool gone) {
    const uint64_t first = ebb__best_find_chain(w, t), last = w->state[t].made;
    for (uint64_t use = first; first != EBB_BEST_NEVER && use <= last; use++) {
        if ((w->uses.use[use].mode & EBB_WRITE) == 0) { continue; }
        uint32_t *n = &w->n_gone[w->uses.use[use].step];
        EBB_ASSERT(gone || *n > 0);
        *n = gone ? *n + 1 : *n - 1;
    }
}

void ebb__best_set_gone(ebb_best_walk *w, uint32_t t, bool gone) {
    EBB_ASSERT(w->state[t].gone != gone);
    w->state[t].gone = gone;
    count_gone(w, t, gone);
    settle(w, wait_inputs(w, t, 0));
}

void ebb__best_set_need(ebb_best_walk *w, uint32_t t) {
    EBB_ASSERT(!w->state[t].gone);
    const uint64_t before = w->state[t].need;
    w->state[t].need = find_any_need(w, t);
    if (w->state[t].need != before) { lower_floors(w, t); }
    if (w->keys->keeps_parts && w->state[t].need != before) { settle(w, wait_inputs(w, t, 0)); }
}

/* ---- computing again ---------------------------------------------------------------------------- */

typedef struct closure {
    uint64_t holds;
    double cost_ns, limit_ns;
    uint32_t n_steps;
} closure;

static bool add_tensor(ebb_best_walk *w, closure *c, uint32_t t);

static bool add_cost(closure *c, double cost_ns) {
    c->cost_ns += cost_ns;
    return c->cost_ns < c->limit_ns;
}

static bool add_input(ebb_best_walk *w, closure *c, uint32_t t) {
    const ebb_best_tensor *state = &w->state[t];
    if (state->present || w->tensor_mark[t] == w->mark) { return true; }
    if (!state->copied) { return add_tensor(w, c, t); }
    w->tensor_mark[t] = w->mark;
    return add_cost(c, ((double)w->keys->link_price + w->drag.of[state->tier]) *
                           ebb__best_copy_ns(w, t, state->tier, true));
}

static bool holds(const ebb_best_walk *w, closure *c, uint32_t t, uint32_t version) {
    if (w->state[t].version != version) { return false; }
    c->holds = ebb_min_u64(c->holds, ebb__best_next_write(w, t));
    return true;
}

/* This tensor cannot be computed again. */
static bool give_up(closure *c) {
    c->cost_ns = INFINITY;
    return false;
}

/* own: the tensor whose chain the step belongs to. */
static bool add_step(ebb_best_walk *w, closure *c, uint32_t step_idx, uint32_t own) {
    const ebb_step *step = &w->view.steps[step_idx];
    if (w->step_mark[step_idx] == w->mark) { return true; }
    w->step_mark[step_idx] = w->mark;
    if (step->repeat != EBB_REPEAT_EXACT || ++c->n_steps > MAX_CLOSURE) { return give_up(c); }
    if (!add_cost(c, w->step_ns[step_idx])) { return false; }
    for (uint32_t i = 0; i < step->n_accesses; i++) {
        const uint64_t at = step->first_access + i;
        const ebb_access *access = &w->view.accesses[at];
        if (access->tensor == own) { continue; }
        if (access->mode == EBB_UPDATE) { return give_up(c); }
        const bool reads = access->mode == EBB_READ;
        if (!holds(w, c, access->tensor, reads ? w->versions.read[at] : w->versions.after[at])) { return give_up(c); }
        if (reads && !add_input(w, c, access->tensor)) { return false; }
    }
    return true;
}

/* The chain that makes t's current version. */
static bool add_tensor(ebb_best_walk *w, closure *c, uint32_t t) {
    const uint64_t first = ebb__best_find_chain(w, t), last = w->state[t].made;
    if (first == EBB_BEST_NEVER) { return give_up(c); }
    c->holds = ebb_min_u64(c->holds, ebb__best_next_write(w, t));
    w->tensor_mark[t] = w->mark;
    w->state[t].in_price = w->state[t].in_floor = true;
    for (uint64_t use = first; use <= last; use++) {
        if ((w->uses.use[use].mode & EBB_WRITE) != 0 && !add_step(w, c, w->uses.use[use].step, t)) { return false; }
    }
    return true;
}

/* What it takes to compute t again at its need; INFINITY: it cannot be. The search stops soon after limit_ns: a price
 * above it may be a lower bound (is_floor), which is worked out anew for a higher limit. */
static double again_price(ebb_best_walk *w, uint32_t t, double limit_ns) {
    ebb_best_tensor *state = &w->state[t];
    if (state->never_again || state->need > w->view.n_steps) { return INFINITY; }
    if (state->again_ns < 0 || (state->is_floor && state->again_ns < limit_ns)) {
        closure c = {.holds = UINT64_MAX, .limit_ns = 4 * limit_ns};
        EBB_ASSERT(w->mark < UINT32_MAX);
        w->mark++;
        state->is_floor = !add_tensor(w, &c, t);
        state->again_ns = c.cost_ns;
        w->n_looks += CLOSURE_LOOKS * (uint64_t)c.n_steps;
        state->holds = c.holds;
    }
    return !state->is_floor && state->holds < state->need ? INFINITY : state->again_ns;
}

/* What a nanosecond of its price counts for in a tensor's score. */
static double factor_of(const ebb_best_walk *w, const ebb_best_tensor *state) {
    const double worth =
        w->keys->by_duals ? ebb__best_worth(w, state->need) : w->far[state->need - ebb_min_u64(w->step, state->need)];
    return state->weight / ((double)state->bytes * worth);
}

/* Computing it again may have become cheaper. */
static void lower_again(ebb_best_walk *w, uint32_t t) {
    const ebb_best_tensor *state = &w->state[t];
    const bool can_again = state->made != EBB_BEST_NEVER && !state->never_again && state->need <= w->view.n_steps;
    if (!state->present || !can_again) { return; }
    ebb__best_queue_lower(&w->by_again, t, (state->chain_ns + 1) * factor_of(w, state));
}

/* Forget the prices of what is computed from t, and lower their floors if they may fall (is_cheaper). Readers that are
 * gone go on the list, too, if a price or a floor counts them. */
static uint32_t forget_readers(ebb_best_walk *w, uint32_t t, bool is_cheaper, uint32_t n_waiting) {
    for (uint64_t use = w->uses.start[t]; use < w->uses.start[t + 1]; use++) {
        const ebb_use *u = &w->uses.use[use];
        if (u->step >= w->step) { break; }
        if ((u->mode & EBB_READ) == 0) { continue; }
        const ebb_step *step = &w->view.steps[u->step];
        for (uint32_t i = 0; i < step->n_accesses; i++) {
            const ebb_access *access = &w->view.accesses[step->first_access + i];
            ebb_best_tensor *made = &w->state[access->tensor];
            if ((access->mode & EBB_WRITE) == 0) { continue; }
            made->again_ns = -1;
            if (is_cheaper) { lower_again(w, access->tensor); }
            const bool counts = made->in_price || (is_cheaper && made->in_floor);
            if (made->present || made->copied || !counts) { continue; }
            made->in_price = false;
            made->in_floor = made->in_floor && !is_cheaper;
            w->waiting[n_waiting++] = access->tensor;
        }
    }
    return n_waiting;
}

/* Each time that a price counts a tensor that is gone, this passes by it twice at most. */
void ebb__best_changed(ebb_best_walk *w, uint32_t t) {
    if (w->keys->keeps_parts) { settle(w, wait_inputs(w, t, 0)); }
    w->waiting[0] = t;
    for (uint32_t n = 1; n > 0;) {
        n--;
        n = forget_readers(w, w->waiting[n], w->state[t].present, n);
    }
}

/* ---- copying ------------------------------------------------------------------------------------ */

/* The price of a nanosecond of copying. A copy out can begin as soon as the content is made. */
static double out_price(const ebb_best_walk *w, const ebb_best_tensor *state) {
    if (!w->keys->by_duals) { return (double)w->keys->link_price; }
    return ebb__best_out_price(w, state->made == EBB_BEST_NEVER ? 0 : w->uses.use[state->made].step);
}

static double in_price(const ebb_best_walk *w, const ebb_best_tensor *state) {
    return w->keys->by_duals ? ebb__best_in_price(w, state->need) : (double)w->keys->link_price;
}

/* From now until the step by which t is needed, if nothing waits; of what is dead, until the iteration ends. */
static double absence_ns(const ebb_best_walk *w, uint64_t need) {
    const uint64_t n = w->view.n_steps;
    const double ends_ns = need == EBB_BEST_NEVER ? w->begin_ns[n] : w->begin_ns[ebb_min_u64(need, n)];
    return ends_ns + w->begin_ns[ebb__best_next_lap(w, need)] - w->begin_ns[w->step];
}

/* Whether a copy to a tier has ended by now, and there is time for both copies. */
static bool is_patient(const ebb_best_walk *w, uint32_t t, uint32_t tier) {
    const ebb_best_tensor *state = &w->state[t];
    const double out_ns = ebb__best_copy_ns(w, t, tier, false), in_ns = ebb__best_copy_ns(w, t, tier, true);
    const double free_ns = w->engine_ns[w->out_engine[tier]];
    if (!state->never_written && fmax(free_ns, state->ready_ns) + out_ns > w->now_ns) { return false; }
    return absence_ns(w, state->need) >= (double)w->keys->patience * (out_ns + in_ns);
}

uint32_t ebb__best_pick_of_several(const ebb_best_walk *w, uint32_t t) {
    const uint64_t bytes = w->state[t].bytes;
    const uint32_t fastest = ebb__pick_tier(w->input, w->tier_used, bytes);
    uint64_t used_bytes[EBB_MAX_TIERS];
    if (w->keys->patience == INFINITY || fastest == EBB_MAX_TIERS) { return fastest; }
    memcpy(used_bytes, w->tier_used, sizeof used_bytes);
    for (uint32_t tier = fastest; (tier = ebb__pick_next_tier(w->input, used_bytes, bytes, tier)) != EBB_MAX_TIERS;) {
        if (is_patient(w, t, tier)) { return tier; }
    }
    return fastest;
}

static bool needs_out(const ebb_best_tensor *state) {
    return !state->copied && !state->never_written;
}

/* The price of the copies that have still to be made, without waiting for them. */
static double copies_price(const ebb_best_walk *w, uint32_t t, uint32_t tier) {
    const ebb_best_tensor *state = &w->state[t];
    double price = 0;
    if (needs_out(state)) { price = (out_price(w, state) + w->drag.of[tier]) * ebb__best_copy_ns(w, t, tier, false); }
    return price + (in_price(w, state) + w->drag.of[tier]) * ebb__best_copy_ns(w, t, tier, true);
}

/* The least price of copies to any tier. */
static double least_copies_price(const ebb_best_walk *w, uint32_t t) {
    double least = INFINITY;
    for (uint32_t tier = 1; tier < w->n_tiers; tier++) {
        if (w->input->tier_bytes[tier] == 0) { continue; }
        least = fmin(least, copies_price(w, t, tier));
    }
    return least;
}

/* No less than its copies will cost from now on, until the duals' segment ends. A copy that waits now waits less later,
 * and a tier that is full now may have room. */
static double copy_floor(const ebb_best_walk *w, uint32_t t) {
    const ebb_best_tensor *state = &w->state[t];
    return (state->copied ? copies_price(w, t, state->tier) : least_copies_price(w, t)) * state->copy_weight;
}

static double copy_price(const ebb_best_walk *w, uint32_t t) {
    const ebb_best_tensor *state = &w->state[t];
    const uint32_t tier = state->copied ? state->tier : ebb__best_pick_tier(w, t);
    double wait_ns = state->copied ? state->out_ns - w->now_ns : 0;
    if (tier == EBB_MAX_TIERS) { return INFINITY; }
    if (needs_out(state)) {
        const double out_ns = ebb__best_copy_ns(w, t, tier, false), free_ns = w->engine_ns[w->out_engine[tier]];
        wait_ns = (free_ns > state->ready_ns ? free_ns : state->ready_ns) + out_ns - w->now_ns;
    }
    return (copies_price(w, t, tier) + (wait_ns > 0 ? wait_ns : 0)) * state->copy_weight;
}

/* ---- the choice --------------------------------------------------------------------------------- */

typedef struct choice {
    double score;
    uint32_t tensor;
    ebb_best_way way;
} choice;

/* A tensor looked at for one way to leave: it is the best if its score is lower. The result: what its score will not be
 * below from now on. */
typedef double consider_fn(ebb_best_walk *w, uint32_t t, choice *best);

static double consider_copy(ebb_best_walk *w, uint32_t t, choice *best) {
    const double factor = factor_of(w, &w->state[t]);
    const double score = (copy_price(w, t) + 1) * factor;
    if (score < best->score) { *best = (choice){.score = score, .tensor = t, .way = EBB_BEST_COPY}; }
    return (copy_floor(w, t) + 1) * factor;
}

static double consider_again(ebb_best_walk *w, uint32_t t, choice *best) {
    if (w->state[t].copied) { return INFINITY; }
    const double factor = factor_of(w, &w->state[t]);
    const double score = (again_price(w, t, best->score / factor) + 1) * factor;
    if (score < best->score) { *best = (choice){.score = score, .tensor = t, .way = EBB_BEST_AGAIN}; }
    return score;
}

/* Look at the tensors that can have a lower score than the best. At most max_low of them may turn out to have floors
 * that are too low: that is so for copies that wait or find no room, and where all do, the first ones are as good as
 * any. Those, the ones that are too small and the locked ones are out of the queue meanwhile. */
static void look_through(ebb_best_walk *w, ebb_best_queue *q, consider_fn *consider, uint64_t least_bytes,
                         uint32_t max_low, choice *best) {
    uint32_t n = 0, n_low = 0;
    while (q->n > 0 && q->entry[0].score < best->score && n_low < max_low) {
        ebb_best_floor top = q->entry[0];
        const ebb_best_tensor *state = &w->state[top.tensor];
        w->n_looks += LOOKS;
        if (state->locks == 0 && state->need == EBB_BEST_NEVER) {
            *best = (choice){.tensor = top.tensor, .way = EBB_BEST_DROP};
            break;
        }
        choice too_small = *best;
        const bool is_large = state->bytes >= least_bytes;
        if (state->locks == 0) { top.score = consider(w, top.tensor, is_large ? best : &too_small); }
        if (top.score >= best->score) {
            ebb__best_queue_raise_top(q, top.score);
        } else {
            ebb__best_queue_remove(q, top.tensor);
            w->aside[n++] = top;
            n_low += state->locks == 0 && is_large;
        }
    }
    while (n > 0) { ebb__best_queue_add(q, w->aside[--n]); }
}

/* Whether no floor is above its tensor's score, and a score with what is known is the same as one without. This
 * changes no price; more prices may count as known afterwards. */
static bool floors_hold(ebb_best_walk *w, const ebb_best_queue *q, consider_fn *consider) {
    const uint64_t n_looks = w->n_looks;
    bool hold = true;
    for (uint32_t i = 0; i < q->n && q->n <= MAX_CHECKED; i++) {
        const uint32_t t = q->entry[i].tensor;
        const ebb_best_tensor before = w->state[t];
        choice known = {.score = INFINITY}, found = {.score = INFINITY};
        if (before.need == EBB_BEST_NEVER) { continue; }
        (void)consider(w, t, &known);
        w->state[t].again_ns = -1;
        (void)consider(w, t, &found);
        w->state[t] = before;
        hold = hold && q->entry[i].score <= found.score * (1 + ROUNDING) && known.score == found.score;
    }
    w->n_looks = n_looks;
    return hold;
}

/* Copies have other prices in another segment of the duals. */
static void enter_segment(ebb_best_walk *w) {
    const uint8_t segment = w->keys->by_duals ? w->duals->segment[w->step] : 0;
    if (segment != w->queue_segment) { ebb__best_queue_lower_all(&w->by_copy); }
    w->queue_segment = segment;
}

ebb_best_way ebb__best_choose(ebb_best_walk *w, uint64_t bytes, uint32_t *tensor_out) {
    choice best = {.score = INFINITY, .way = EBB_BEST_STUCK};
    enter_segment(w);
    EBB_ASSERT(EBB_DEBUG < 2 || floors_hold(w, &w->by_copy, consider_copy));
    EBB_ASSERT(EBB_DEBUG < 2 || floors_hold(w, &w->by_again, consider_again));
    uint32_t max_low = MAX_LOW;
    for (uint64_t least = bytes / 64; best.way == EBB_BEST_STUCK; least /= 64) {
        look_through(w, &w->by_copy, consider_copy, least, max_low, &best);
        if (best.way != EBB_BEST_DROP) { look_through(w, &w->by_again, consider_again, least, max_low, &best); }
        if (max_low == UINT32_MAX && least == 0) { break; }
        max_low = UINT32_MAX; /* stuck: look at all */
    }
    *tensor_out = best.tensor;
    return best.way;
}
