/* SPDX-License-Identifier: Apache-2.0
 *
 * Local search over what is computed again. A walk (best_walk.c) decides once for each tensor that has to leave; here a
 * whole draft is changed, a few decisions at a time, for as long as it gets better.
 *
 * One trial:
 *
 *      remove    some nodes that compute again; what they made stays from its use before instead, and what was made
 *                only for them goes, too. Or the other way round: one tensor more is dropped over one of its gaps.
 *      repair    while the load is above the limit somewhere, drop a tensor over one of its gaps there and compute it
 *                again where the gap ends: the one that costs the least for the bytes that it frees where they are
 *                missing, with some chance
 *      prune     of what was put in, and of some others, take out what there is room for
 *
 * Where tensors are copied, a trial may also begin with an exchange: something that is computed again is copied
 * instead, and a tensor of at least its size, which was copied, is not. The copies are where the old ones were, so they
 * take no longer. How many there are, and when, does not change.
 *
 * A trial stays if it costs less, or, as in simulated annealing, a little more; else it is taken back. It costs the
 * stretches that it touches, and is counted in looks at nodes and tensors.
 *
 * Ruin and repair as a search is of Schrimpf et al. (Journal of Computational Physics 159, 2000); dropping by cost for
 * bytes is DTR's (Kirisame et al., ICLR 2021, section 4.1).
 */
#include "plan/tape.h"

#include <math.h>

#define NONE EBB_TAPE_NONE
#define MAX_SEEN 64u /* nodes, to take several out */
#define MAX_REPAIRS 16u
#define MAX_PUT 64u      /* chains, in one trial */
#define MAX_DEPTH 48u    /* of chains that are made for one another */
#define MAX_MAKERS 16u   /* chains that may go with one that is taken out; others stay */
#define MAX_WINDOW 4096u /* nodes above the limit that are looked at together */
#define VISITS_A_LOOK 4u
#define TRIAL_LOOKS 16u /* that a trial takes at least */
#define EXCHANGES 16u   /* copies that are looked at, to exchange one */
#define N_TRIED 6u      /* others that are pruned in a trial */
#define SLACK 0.002     /* of computing: what a trial may cost before it is pruned */
#define LUCK 1.0        /* at most, of a trial's luck: the deviation of what prices are multiplied by; log 2 */
#define LUCKS 8u
#define N_LUCKS 256u

typedef struct refiner {
    ebb_tape tape;
    ebb_best_walk *w;
    ebb_rng *rng;
    int64_t limit;
    EBB_VEC(uint32_t) journal;   /* nodes that were put in or taken out, in this order */
    EBB_VEC(uint32_t) put;       /* first nodes of chains that this trial put in */
    double luck[LUCKS][N_LUCKS]; /* by what a price is multiplied: more and more up to chance */
    uint32_t luck_idx;           /* of this trial */
    uint32_t coins, n_coins;     /* random bits that are left */
    double ceiling_ns;           /* a trial that computes more again is given up */
    uint64_t label[MAX_WINDOW];
    int64_t over[MAX_WINDOW + 1]; /* sums up to each */
    uint32_t n_window;
    uint32_t low, high;  /* places: outside of these the load is not above the limit */
    uint64_t first_look; /* the walk's count when it began */
    uint32_t group;      /* of chains that are made for one another */
    uint32_t exchanged;  /* the copy for which this trial put in the spare one; NONE */
    ebb_status status;   /* of what went wrong in a trial, except that it was not possible */
} refiner;

static ebb_tape_node *node_of(const refiner *r, uint32_t n) {
    return &r->tape.nodes.data[n];
}

static ebb_tape_link *link_of(const refiner *r, uint32_t n) {
    return &r->tape.links.data[n];
}

static ebb_tape_touch *touch_of(const refiner *r, uint32_t t) {
    return &r->tape.touches.data[t];
}

/* ---- putting in and taking out ------------------------------------------------------------------ */

static bool note(refiner *r, uint32_t n) {
    r->status = EBB_PUSH(r->w->input->mem, &r->journal, n);
    return r->status == EBB_OK;
}

/* Take back all since the journal had this many entries. */
static void take_back(refiner *r, size_t mark) {
    while (r->journal.n > mark) {
        const uint32_t n = r->journal.data[--r->journal.n];
        if (node_of(r, n)->is_linked) {
            ebb__tape_unlink(&r->tape, n);
        } else {
            ebb__tape_link(&r->tape, n, link_of(r, n)->next);
        }
    }
}

static bool link_noted(refiner *r, uint32_t n, uint32_t before) {
    if (!note(r, n)) { return false; }
    ebb__tape_link(&r->tape, n, before);
    return true;
}

static bool unlink_noted(refiner *r, uint32_t n) {
    if (!note(r, n)) { return false; }
    ebb__tape_unlink(&r->tape, n);
    return true;
}

static bool unlink_after(refiner *r, uint32_t n, uint32_t first) {
    if (node_of(r, n)->chain != first && !unlink_after(r, node_of(r, n)->chain, first)) { return false; }
    return unlink_noted(r, n);
}

static bool is_in_chain(const refiner *r, uint32_t n, uint32_t first) {
    uint32_t at = first;
    do {
        if (at == n) { return true; }
        at = node_of(r, at)->chain;
    } while (at != first);
    return false;
}

/* Whether something that the chain makes is used by others. */
static bool is_used(const refiner *r, uint32_t first) {
    uint32_t n = first;
    do {
        const ebb_tape_node *node = node_of(r, n);
        for (uint32_t i = 0; i < node->n_touches; i++) {
            const uint32_t t = node->first_touch + i;
            if (!touch_of(r, t)->writes || !ebb__tape_stays(&r->tape, t)) { continue; }
            if (!is_in_chain(r, touch_of(r, touch_of(r, t)->next)->node, first)) { return true; }
        }
        n = node->chain;
    } while (n != first);
    return false;
}

/* From now on the load may be above the limit at these places. */
static void look_at(refiner *r, uint32_t low, uint32_t high) {
    r->low = low < r->low ? low : r->low;
    r->high = high > r->high ? high : r->high;
}

/* Whether what it makes can have stayed: it was there before, and not dropped for good. */
static bool can_go(const refiner *r, uint32_t first) {
    uint32_t n = first;
    do {
        const ebb_tape_node *node = node_of(r, n);
        for (uint32_t i = 0; i < node->n_touches; i++) {
            const uint32_t t = node->first_touch + i;
            if (!touch_of(r, t)->fresh || !ebb__tape_stays(&r->tape, t)) { continue; }
            if (touch_of(r, t)->prev == NONE) { return false; }
            if (ebb__tape_drops(&r->tape, touch_of(r, touch_of(r, t)->prev)->node)) { return false; }
        }
        n = node->chain;
    } while (n != first);
    return true;
}

/* The chain that made what a touch reads; NONE: it was not computed again. */
static uint32_t find_maker(const refiner *r, uint32_t touch) {
    while (touch != NONE && !touch_of(r, touch)->fresh) { touch = touch_of(r, touch)->prev; }
    if (touch == NONE) { return NONE; }
    const ebb_tape_node *node = node_of(r, touch_of(r, touch)->node);
    return node->action.kind == EBB_ACT_AGAIN ? touch_of(r, touch)->node : NONE;
}

/* The first node of a chain, from any. */
static uint32_t find_first(const refiner *r, uint32_t n) {
    uint32_t first = n;
    for (uint32_t at = node_of(r, n)->chain; at != n; at = node_of(r, at)->chain) {
        if (node_of(r, at)->label < node_of(r, first)->label) { first = at; }
    }
    return first;
}

/* Take a chain out, and what was made for it alone. */
static bool remove_chain(refiner *r, uint32_t first, uint32_t depth) {
    uint32_t makers[MAX_MAKERS], n_makers = 0, n = first;
    do {
        const ebb_tape_node *node = node_of(r, n);
        for (uint32_t i = 0; i < node->n_touches; i++) {
            const ebb_tape_touch *touch = touch_of(r, node->first_touch + i);
            if (touch->fresh && touch->prev != NONE) {
                look_at(r, node_of(r, touch_of(r, touch->prev)->node)->place, node->place);
            }
            if (touch->writes || n_makers == MAX_MAKERS) { continue; }
            const uint32_t maker = find_maker(r, node->first_touch + i);
            if (maker != NONE) { makers[n_makers++] = maker; }
        }
        n = node->chain;
    } while (n != first);
    if (!unlink_after(r, first, first)) { return false; }
    for (uint32_t i = 0; i < n_makers && depth < MAX_DEPTH; i++) {
        if (!node_of(r, makers[i])->is_linked) { continue; }
        const uint32_t maker = find_first(r, makers[i]);
        if (!is_used(r, maker) && !remove_chain(r, maker, depth + 1)) { return false; }
    }
    return true;
}

/* Whether a tensor is there before a node, or has just been made for it. */
static bool is_at(refiner *r, uint32_t tensor, uint32_t before) {
    const uint32_t touch = ebb__tape_before(&r->tape, tensor, node_of(r, before)->label);
    return touch != NONE &&
           (ebb__tape_stays(&r->tape, touch) || node_of(r, touch_of(r, touch)->node)->group == r->group);
}

/* Put a chain in before a node. */
static bool put_recipe(refiner *r, const ebb_tape_recipe *recipe, uint32_t before) {
    uint32_t first = NONE;
    r->status = ebb__tape_make_chain(&r->tape, recipe, node_of(r, before)->place, &first);
    if (r->status == EBB_OK) { r->status = EBB_PUSH(r->w->input->mem, &r->put, first); }
    if (r->status != EBB_OK) { return false; }
    uint32_t n = first;
    do {
        node_of(r, n)->group = r->group;
        look_at(r, node_of(r, n)->place, node_of(r, n)->place);
        if (!link_noted(r, n, before)) { return false; }
        n = node_of(r, n)->chain;
    } while (n != first);
    return true;
}

/* Compute a tensor again before a node, and first what that reads and is not there. */
static bool put_chain(refiner *r, uint32_t tensor, uint32_t before, uint32_t depth) {
    ebb_best_walk *w = r->w;
    const ebb_tape_recipe *recipe = ebb__tape_recipe(&r->tape, tensor, node_of(r, before)->place);
    if (recipe == NULL || r->put.n >= MAX_PUT || depth == MAX_DEPTH) { return false; }
    for (uint64_t use = recipe->first; use <= recipe->last; use++) {
        if ((w->uses.use[use].mode & EBB_WRITE) == 0) { continue; }
        const ebb_step *step = &w->view.steps[w->uses.use[use].step];
        for (uint32_t i = 0; i < step->n_accesses; i++) {
            const ebb_access *access = &w->view.accesses[step->first_access + i];
            const uint32_t t = access->tensor;
            if (access->mode != EBB_READ || t == tensor || r->tape.is_fixed[t]) { continue; }
            if (!is_at(r, t, before) && !put_chain(r, t, before, depth + 1)) { return false; }
        }
    }
    return put_recipe(r, recipe, before) && r->tape.again_ns < r->ceiling_ns;
}

/* Compute a tensor again right before a touch of it. */
static bool put_chain_at(refiner *r, uint32_t touch) {
    r->group++;
    return put_chain(r, touch_of(r, touch)->tensor, touch_of(r, touch)->node, 0);
}

/* ---- prices ------------------------------------------------------------------------------------- */

/* The time to compute a tensor again before a node, with all that is missing for it; limit_ns or more: too much. */
static double price(refiner *r, uint32_t tensor, const ebb_tape_node *before, double limit_ns, uint32_t depth) {
    ebb_best_walk *w = r->w;
    const ebb_tape_recipe *recipe = ebb__tape_recipe(&r->tape, tensor, before->place);
    if (recipe == NULL || depth == MAX_DEPTH) { return INFINITY; }
    double ns = 0;
    w->tensor_mark[tensor] = w->mark;
    for (uint64_t use = recipe->first; use <= recipe->last && ns < limit_ns; use++) {
        const uint32_t step_idx = w->uses.use[use].step;
        if ((w->uses.use[use].mode & EBB_WRITE) == 0 || w->step_mark[step_idx] == w->mark) { continue; }
        const ebb_step *step = &w->view.steps[step_idx];
        w->step_mark[step_idx] = w->mark;
        ns += w->step_ns[step_idx];
        for (uint32_t i = 0; i < step->n_accesses && ns < limit_ns; i++) {
            const ebb_access *access = &w->view.accesses[step->first_access + i];
            const uint32_t t = access->tensor;
            if (access->mode != EBB_READ || r->tape.is_fixed[t] || w->tensor_mark[t] == w->mark) { continue; }
            w->n_looks++;
            if (ebb__tape_stays(&r->tape, ebb__tape_before(&r->tape, t, before->label))) { continue; }
            ns += price(r, t, before, limit_ns - ns, depth + 1);
        }
    }
    return ns;
}

/* ---- repair ------------------------------------------------------------------------------------- */

static uint32_t find_over_in(refiner *r, uint32_t block, uint32_t worst) {
    uint32_t n = ebb__tape_block_begin(&r->tape, block);
    for (; n != NONE && link_of(r, n)->block == block && r->n_window < MAX_WINDOW; n = link_of(r, n)->next) {
        const int64_t over = n != r->tape.begin ? ebb__tape_load(&r->tape, n) - r->limit : 0;
        r->tape.n_visits++;
        if (over <= 0) { continue; }
        r->label[r->n_window] = node_of(r, n)->label;
        r->over[r->n_window + 1] = r->over[r->n_window] + over;
        r->n_window++;
        if (worst == NONE || over > ebb__tape_load(&r->tape, worst) - r->limit) { worst = n; }
    }
    return worst;
}

/* Find where the load is above the limit; the worst node, or NONE: nowhere. */
static uint32_t find_over(refiner *r) {
    uint32_t worst = NONE;
    r->n_window = 0;
    if (r->low > r->high) { return NONE; }
    for (uint32_t b = r->low / EBB_TAPE_BLOCK; b <= r->high / EBB_TAPE_BLOCK; b++) {
        r->tape.n_visits++;
        if (ebb__tape_block_most(&r->tape, b) > r->limit) { worst = find_over_in(r, b, worst); }
    }
    return worst;
}

/* How many nodes of the stretch come before a label. */
static uint32_t window_before(const refiner *r, uint64_t label) {
    uint32_t low = 0;
    for (uint32_t high = r->n_window; low < high;) {
        const uint32_t middle = low + (high - low) / 2;
        if (r->label[middle] < label) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return low;
}

/* The bytes that a drop between two labels frees where the load is above the limit. */
static double relief(const refiner *r, uint64_t from, uint64_t to, int64_t bytes, int64_t over) {
    const uint32_t first = window_before(r, from + 1), end = window_before(r, to);
    const double covered = (double)(r->over[end] - r->over[first]);
    return covered * fmin(1, (double)bytes / (double)over);
}

/* Whether a tensor can be dropped after a touch and made again before the next. */
static bool is_gap(const refiner *r, uint32_t touch) {
    if (!ebb__tape_stays(&r->tape, touch)) { return false; }
    const ebb_tape_node *next = node_of(r, touch_of(r, touch_of(r, touch)->next)->node);
    const bool is_end = next->action.kind == EBB_ACT_DROP && next->action.target == NONE;
    return !next->is_closed && (ebb__action_computes(&next->action) || is_end);
}

/* What had best be dropped because of the load at a node. */
typedef struct choice {
    uint32_t worst; /* the node */
    int64_t over;
    uint32_t best; /* the touch that would find it gone; NONE */
    double score;
} choice;

/* Heads or tails. A trial passes over half of the tensors that it could drop: otherwise each trial would find the same
 * ones, since neither prices nor luck change which are looked at. */
static bool toss(refiner *r) {
    if (r->n_coins == 0) {
        r->coins = ebb__rng_u32(r->rng);
        r->n_coins = 32;
    }
    return (r->coins >> --r->n_coins & 1u) != 0;
}

/* Consider to drop a tensor after a touch and until the next one, between which is the node. */
static void consider(refiner *r, choice *c, uint32_t touch) {
    if (c->best != NONE && toss(r)) { return; }
    r->w->n_looks++;
    if (!is_gap(r, touch)) { return; }
    const ebb_tape_touch *own = touch_of(r, touch), *next = touch_of(r, own->next);
    const double does = relief(r, own->label, next->label, r->tape.bytes[own->tensor], c->over);
    const double luck = r->luck[r->luck_idx][ebb__rng_below(r->rng, N_LUCKS)] / does;
    EBB_ASSERT(r->w->mark < UINT32_MAX);
    r->w->mark++;
    const double score = price(r, own->tensor, node_of(r, next->node), c->score / luck, 0) * luck;
    if (score < c->score) {
        c->score = score;
        c->best = own->next;
    }
}

/* Those that are touched in the node's block, before it or after it. */
static void consider_touched(refiner *r, choice *c, uint32_t block) {
    const uint64_t label = node_of(r, c->worst)->label;
    uint32_t n = ebb__tape_block_begin(&r->tape, block);
    for (; n != NONE && link_of(r, n)->block == block; n = link_of(r, n)->next) {
        const ebb_tape_node *node = node_of(r, n);
        r->tape.n_visits++;
        for (uint32_t i = 0; i < node->n_touches; i++) {
            const ebb_tape_touch *touch = touch_of(r, node->first_touch + i);
            if (r->tape.rank[touch->tensor] == NONE || touch->label == label) { continue; }
            const uint32_t other = touch->label < label ? touch->next : touch->prev;
            if (other == NONE) { continue; }
            const uint64_t at = touch_of(r, other)->label;
            if (touch->label < label && at > label) { consider(r, c, node->first_touch + i); }
            if (touch->label > label && at < label && link_of(r, touch_of(r, other)->node)->block != block) {
                consider(r, c, other);
            }
        }
    }
}

/* Drop what costs least for what it does about the load at a node. */
static bool relieve(refiner *r, uint32_t worst) {
    const uint32_t block = link_of(r, worst)->block;
    choice c = {.worst = worst, .over = ebb__tape_load(&r->tape, worst) - r->limit, .best = NONE, .score = INFINITY};
    consider_touched(r, &c, block);
    for (size_t i = 0; (i = ebb__tape_next_span(&r->tape, block, i)) < r->tape.n_by_size; i++) {
        const uint32_t t = r->tape.by_size[i];
        if (r->tape.bytes[t] < c.over / 64 && c.best != NONE) { break; }
        consider(r, &c, ebb__tape_before(&r->tape, t, node_of(r, worst)->label));
    }
    r->tape.n_visits += r->tape.span_words;
    return c.best != NONE && put_chain_at(r, c.best);
}

static bool repair(refiner *r) {
    for (uint32_t worst = find_over(r); worst != NONE; worst = find_over(r)) {
        if (!relieve(r, worst)) { return false; }
    }
    return true;
}

/* ---- pruning ------------------------------------------------------------------------------------ */

/* Whether the load between two nodes is at most this. */
static bool is_below(refiner *r, uint32_t from, uint32_t to, int64_t most) {
    EBB_ASSERT(node_of(r, from)->label < node_of(r, to)->label);
    for (uint32_t n = link_of(r, to)->prev; n != from;) {
        const uint32_t block = link_of(r, n)->block;
        r->tape.n_visits++;
        if (block != link_of(r, from)->block && block != link_of(r, to)->block) {
            if (ebb__tape_block_most(&r->tape, block) > most) { return false; }
            n = link_of(r, ebb__tape_block_begin(&r->tape, block))->prev;
            continue;
        }
        if (ebb__tape_load(&r->tape, n) > most) { return false; }
        n = link_of(r, n)->prev;
    }
    return true;
}

/* Whether each thing that the chain makes could have stayed, if it were the only one. */
static bool may_fit(refiner *r, uint32_t first) {
    uint32_t n = first;
    do {
        const ebb_tape_node *node = node_of(r, n);
        for (uint32_t i = 0; i < node->n_touches; i++) {
            const uint32_t touch = node->first_touch + i;
            const ebb_tape_touch *t = touch_of(r, touch);
            if (!t->fresh || t->prev == NONE || !ebb__tape_stays(&r->tape, touch)) { continue; }
            const uint32_t start = touch_of(r, t->prev)->node;
            if (is_in_chain(r, start, first)) { continue; }
            const int64_t most = r->limit - r->tape.bytes[t->tensor];
            if (!is_below(r, start, first, most)) { return false; }
        }
        n = node->chain;
    } while (n != first);
    return true;
}

/* Take a chain out if there is room for what it makes. */
static bool prune(refiner *r, uint32_t node) {
    const uint32_t first = find_first(r, node), low = r->low, high = r->high;
    const size_t mark = r->journal.n;
    r->w->n_looks += 2;
    if (!can_go(r, first) || !may_fit(r, first)) { return true; }
    r->low = UINT32_MAX;
    r->high = 0;
    const bool is_out = remove_chain(r, first, 0);
    if (is_out && find_over(r) != NONE) { take_back(r, mark); }
    r->low = low;
    r->high = high;
    return is_out || r->status == EBB_OK;
}

static bool prune_some(refiner *r) {
    for (size_t i = 0; i < r->put.n; i++) {
        if (node_of(r, r->put.data[i])->is_linked && !prune(r, r->put.data[i])) { return false; }
    }
    for (uint32_t i = 0; i < N_TRIED && r->tape.again.n > 0; i++) {
        if (!prune(r, r->tape.again.data[ebb__rng_below(r->rng, r->tape.again.n)])) { return false; }
    }
    return true;
}

/* ---- trials -------------------------------------------------------------------------------------- */

/* Take out one, or several that follow each other. */
static bool remove_some(refiner *r) {
    static const uint32_t most[] = {1, 1, 1, 2, 3, 5, 8, 13};
    if (r->tape.again.n == 0) { return true; }
    uint32_t n_left = most[ebb__rng_below(r->rng, sizeof most / sizeof most[0])], n_seen = 0;
    uint32_t n = r->tape.again.data[ebb__rng_below(r->rng, r->tape.again.n)];
    while (n != NONE && n_left > 0 && n_seen++ < MAX_SEEN) {
        uint32_t next = link_of(r, n)->next;
        if (node_of(r, n)->action.kind == EBB_ACT_AGAIN && !node_of(r, n)->is_closed && can_go(r, n)) {
            if (!remove_chain(r, n, 0)) { return false; }
            n_left--;
            while (next != NONE && !node_of(r, next)->is_linked) { next = link_of(r, next)->next; }
        }
        n = next;
    }
    return true;
}

/* Drop one more tensor over a gap. */
static bool drop_one(refiner *r) {
    for (uint32_t i = 0; i < 8; i++) {
        const uint32_t t = r->tape.by_size[(size_t)(pow((double)ebb__rng_unit(r->rng), 2) * (double)r->tape.n_by_size)];
        uint32_t touch = r->tape.first[t], n = (uint32_t)ebb__rng_below(r->rng, 4);
        while (touch != NONE && n-- > 0) { touch = touch_of(r, touch)->next; }
        if (touch == NONE || !is_gap(r, touch)) { continue; }
        const uint32_t next = touch_of(r, touch)->next;
        if (ebb__tape_recipe(&r->tape, t, node_of(r, touch_of(r, next)->node)->place) == NULL) { continue; }
        return put_chain_at(r, next);
    }
    return false;
}

/* The next touch of a tensor before which a node with this touch must stay: one that needs what is made here, or, of
 * what is only read, one that drops it or makes it anew; NONE. */
static uint32_t find_limit(const refiner *r, uint32_t touch) {
    const bool writes = touch_of(r, touch)->writes;
    uint32_t next = touch_of(r, touch)->next;
    while (!writes && next != NONE && !touch_of(r, next)->fresh &&
           !ebb__tape_drops(&r->tape, touch_of(r, next)->node)) {
        next = touch_of(r, next)->next;
    }
    return next;
}

/* Between which nodes one that computes again can be: after the last touch of what it reads or makes. */
static void find_room(const refiner *r, const ebb_tape_node *node, uint32_t *low_out, uint32_t *high_out) {
    uint32_t low = r->tape.begin, high = r->tape.end;
    for (uint32_t i = 0; i < node->n_touches; i++) {
        const uint32_t prev = touch_of(r, node->first_touch + i)->prev, limit = find_limit(r, node->first_touch + i);
        if (prev != NONE && touch_of(r, prev)->label > node_of(r, low)->label) { low = touch_of(r, prev)->node; }
        if (limit != NONE && touch_of(r, limit)->label < node_of(r, high)->label) { high = touch_of(r, limit)->node; }
    }
    *low_out = low;
    *high_out = high;
}

/* A tensor that a node makes; NONE. */
static uint32_t find_made(const refiner *r, const ebb_tape_node *node) {
    for (uint32_t i = 0; i < node->n_touches; i++) {
        const ebb_tape_touch *touch = touch_of(r, node->first_touch + i);
        if (touch->fresh) { return touch->tensor; }
    }
    return NONE;
}

/* Compute something again as soon as what it reads is there, which may then go; or as late as it can be. */
static bool shift_one(refiner *r) {
    if (r->tape.again.n == 0) { return false; }
    const uint32_t n = r->tape.again.data[ebb__rng_below(r->rng, r->tape.again.n)];
    const ebb_tape_node *node = node_of(r, n);
    uint32_t low = NONE, before = NONE;
    if (node->chain != n || node->is_closed) { return false; }
    find_room(r, node, &low, &before);
    if (ebb__rng_below(r->rng, 2) == 0) {
        before = link_of(r, low)->next;
        while (before != n && node_of(r, before)->is_closed) { before = link_of(r, before)->next; }
    }
    const uint32_t tensor = find_made(r, node), from = node->place, to = node_of(r, before)->place;
    if (before == n || before == link_of(r, n)->next || node_of(r, before)->is_closed || tensor == NONE) {
        return false;
    }
    const ebb_tape_recipe *recipe = ebb__tape_recipe(&r->tape, tensor, from);
    if (recipe == NULL || recipe != ebb__tape_recipe(&r->tape, tensor, to) || recipe->first != recipe->last) {
        return false;
    }
    look_at(r, from < to ? from : to, from < to ? to : from);
    EBB_ASSERT(r->w->uses.use[recipe->last].step == node->action.target);
    if (!unlink_after(r, n, n)) { return false; }
    r->group++;
    return put_recipe(r, recipe, before);
}

/* The touch of a chain's first node that makes the largest tensor of those that others use; NONE. */
static uint32_t find_largest(const refiner *r, uint32_t first) {
    const ebb_tape_node *node = node_of(r, first);
    uint32_t largest = NONE;
    for (uint32_t i = 0; i < node->n_touches; i++) {
        const uint32_t t = node->first_touch + i;
        if (!touch_of(r, t)->fresh || !ebb__tape_stays(&r->tape, t)) { continue; }
        const bool is_larger =
            largest == NONE || r->tape.bytes[touch_of(r, t)->tensor] > r->tape.bytes[touch_of(r, largest)->tensor];
        largest = is_larger ? t : largest;
    }
    return largest;
}

/* Whether what a touch makes again can be copied instead of another tensor, at the same places: it was there before,
 * unused all the while, and is no larger, so that its copies take no longer. */
static bool can_exchange(const refiner *r, const ebb_tape_copy *copy, uint32_t made) {
    const ebb_tape_touch *touch = touch_of(r, made);
    const uint32_t prev = touch->prev, own = touch->tensor, other = node_of(r, copy->out)->action.target;
    if (prev == NONE || own == other || r->tape.bytes[own] > r->tape.bytes[other]) { return false; }
    if (touch_of(r, prev)->label > node_of(r, copy->out)->label || ebb__tape_drops(&r->tape, touch_of(r, prev)->node)) {
        return false;
    }
    return node_of(r, copy->in)->label < touch->label && !r->w->view.tensors[own].persistent &&
           !node_of(r, copy->out)->is_closed && !node_of(r, copy->drop)->is_closed && !node_of(r, copy->in)->is_closed;
}

/* Copy what a chain makes, instead of what a copy moves. */
static bool exchange(refiner *r, uint32_t idx, uint32_t first, uint32_t made) {
    const ebb_tape_copy old = r->tape.copies.data[idx], *spare = &r->tape.spare;
    const uint32_t from = node_of(r, touch_of(r, touch_of(r, made)->prev)->node)->place;
    const uint32_t drop = node_of(r, old.drop)->place;
    look_at(r, from < drop ? from : drop, node_of(r, first)->place);
    ebb__tape_set_spare(&r->tape, &old, touch_of(r, made)->tensor);
    r->exchanged = idx;
    return link_noted(r, spare->out, old.out) && link_noted(r, spare->drop, old.drop) &&
           link_noted(r, spare->in, old.in) && unlink_noted(r, old.in) && unlink_noted(r, old.drop) &&
           unlink_noted(r, old.out) && can_go(r, first) && remove_chain(r, first, 0);
}

/* Copy a tensor that is computed again, and no longer copy another one. */
static bool exchange_one(refiner *r) {
    if (r->tape.copies.n == 0 || r->tape.again.n == 0) { return false; }
    const uint32_t n = r->tape.again.data[ebb__rng_below(r->rng, r->tape.again.n)], first = find_first(r, n);
    const uint32_t made = find_largest(r, first);
    for (uint32_t i = 0; made != NONE && i < EXCHANGES; i++) {
        const uint32_t idx = (uint32_t)ebb__rng_below(r->rng, r->tape.copies.n);
        r->w->n_looks++;
        if (can_exchange(r, &r->tape.copies.data[idx], made)) { return exchange(r, idx, first, made); }
    }
    return false;
}

/* Make one trial; false: it is to be taken back. */
static bool make_trial(refiner *r) {
    r->low = UINT32_MAX;
    r->high = 0;
    r->luck_idx = (uint32_t)ebb__rng_below(r->rng, LUCKS);
    const uint64_t kind = ebb__rng_below(r->rng, r->tape.copies.n > 0 ? 7 : 5);
    const bool is_shift = kind == 0, is_drop = kind == 1;
    r->exchanged = NONE;
    if (kind >= 5) { return exchange_one(r) && repair(r) && prune_some(r); }
    if (is_shift && !shift_one(r)) { return false; }
    if (is_drop && !drop_one(r)) { return false; }
    if (!is_drop && (!is_shift || ebb__rng_below(r->rng, 2) == 0) && !remove_some(r)) { return false; }
    return repair(r) && prune_some(r);
}

/* A node that is not on the tape may be used again. */
static void let_go(refiner *r, uint32_t n) {
    ebb_tape_node *node = node_of(r, n);
    if (node->is_linked || node->label == 0 || node->action.kind != EBB_ACT_AGAIN) { return; } /* 0: let go before */
    node->label = 0;
    ebb__tape_release(&r->tape, n);
}

/* The copy that was exchanged is the spare one from now on. */
static void swap_spare(refiner *r) {
    ebb_tape_copy *copy = &r->tape.copies.data[r->exchanged];
    const ebb_tape_copy was = *copy;
    *copy = r->tape.spare;
    r->tape.spare = was;
}

/* The trial is over: what it took out, or put in and took back, is let go. */
static void end_move(refiner *r) {
    for (size_t i = 0; i < r->journal.n; i++) { let_go(r, r->journal.data[i]); }
    for (size_t i = 0; i < r->put.n; i++) {
        uint32_t n = r->put.data[i];
        do {
            let_go(r, n);
            n = node_of(r, n)->chain;
        } while (n != r->put.data[i]);
    }
    r->journal.n = r->put.n = 0;
}

/* ---- the search --------------------------------------------------------------------------------- */

static void draw_lucks(refiner *r) {
    for (uint32_t k = 0; k < LUCKS; k++) {
        const double deviation = LUCK * (k + 0.5) / LUCKS;
        for (uint32_t i = 0; i < N_LUCKS; i++) { r->luck[k][i] = exp2(deviation * (double)ebb__rng_normal(r->rng)); }
    }
}

static uint64_t count_looks(const refiner *r) {
    return r->w->n_looks - r->first_look + r->tape.n_visits / VISITS_A_LOOK;
}

/* Put in what it takes to keep the limit from the start, in a few times what one trial may put in: what is dropped may
 * be wanted again and again. */
static ebb_status keep_limit(refiner *r, uint64_t max_looks) {
    bool is_kept = false;
    r->ceiling_ns = INFINITY;
    for (uint32_t i = 0; i < MAX_REPAIRS && !is_kept && r->status == EBB_OK && count_looks(r) < max_looks; i++) {
        r->low = 0;
        r->high = (uint32_t)r->w->view.n_steps;
        is_kept = repair(r);
        end_move(r);
    }
    return r->status != EBB_OK || is_kept ? r->status : EBB_E_NO_FIT;
}

static ebb_status refine(refiner *r, const ebb_refine_options *options, ebb_draft *draft) {
    const double computing_ns = r->w->begin_ns[r->w->view.n_steps];
    r->first_look = r->w->n_looks;
    EBB_TRY(keep_limit(r, options->max_looks));
    EBB_TRY(ebb__tape_write(&r->tape, draft));
    double best_ns = r->tape.again_ns;
    while (r->tape.n_by_size > 0 && r->tape.again.n > 0) {
        const uint64_t n_looks = count_looks(r);
        if (n_looks >= options->max_looks) { break; }
        const double old_ns = r->tape.again_ns;
        const double left = 1 - (double)n_looks / (double)options->max_looks;
        const double loss_ns = -log((double)ebb__rng_unit(r->rng) + 1e-9) * options->heat * left * left * computing_ns;
        r->ceiling_ns = old_ns + fmax(SLACK, 2 * options->heat) * computing_ns + loss_ns;
        r->w->n_looks += TRIAL_LOOKS;
        const bool is_taken = make_trial(r) && r->tape.again_ns <= old_ns + loss_ns;
        if (r->status != EBB_OK) { return r->status; }
        if (!is_taken) { take_back(r, 0); }
        if (is_taken && r->exchanged != NONE) { swap_spare(r); }
        end_move(r);
        EBB_ASSERT(EBB_DEBUG < 2 || ebb__tape_is_valid(&r->tape));
        if (r->tape.again_ns >= best_ns - 0.5) { continue; }
        best_ns = r->tape.again_ns;
        EBB_TRY(ebb__tape_write(&r->tape, draft));
        EBB_ASSERT(EBB_DEBUG < 2 || ebb__draft_is_valid(draft, r->w->input->program));
    }
    return EBB_OK;
}

ebb_status ebb__best_refine(ebb_best_walk *w, const ebb_draft *from, const ebb_refine_options *options,
                            ebb_draft *draft) {
    refiner r = {.w = w, .rng = options->rng, .limit = (int64_t)options->limit_bytes, .luck_idx = LUCKS / 4};
    memcpy(draft->resident, from->resident, w->view.n_tensors);
    memcpy(draft->home, from->home, w->view.n_tensors);
    w->mark = 0;
    memset(w->tensor_mark, 0, w->view.n_tensors * sizeof *w->tensor_mark);
    memset(w->step_mark, 0, w->view.n_steps * sizeof *w->step_mark);
    ebb_status st = ebb__tape_init(&r.tape, w, options->recipes, options->waste);
    if (st == EBB_OK) { st = ebb__tape_read(&r.tape, from); }
    draw_lucks(&r);
    EBB_ASSERT(st != EBB_OK || ebb__tape_is_valid(&r.tape));
    if (st == EBB_OK) { st = refine(&r, options, draft); }
    ebb__tape_fini(&r.tape);
    EBB_VEC_FINI(w->input->mem, &r.journal);
    EBB_VEC_FINI(w->input->mem, &r.put);
    return st;
}
