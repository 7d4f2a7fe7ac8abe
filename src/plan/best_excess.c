/* SPDX-License-Identifier: Apache-2.0
 *
 * Where a placed draft needs more than the budget, and how much more.
 *
 * Tensors lie on one another in stacks; the top of one is above the budget. But the top may be a small tensor that
 * stays through the whole iteration, and lies there for the sake of a large one below it that stays for a few steps.
 * Only these few steps are why. So a stack is followed from the bottom up, and only as long as all its tensors are
 * there at the same time:
 *
 *          |  small, for long                                          |
 *          +-----------------------------+---------+-------------------+
 *      budget ...........................| large   |....................
 *          |  others, not as high        |         |  others           |
 *                                        |<------->| above the budget
 *
 * Where a tensor lies on others that have gone when the next one below it comes, the stack begins anew with it.
 *
 * Where nothing is computed again (the policy swap), a tensor that is above the budget counts for as long as it stays
 * (EBB_EXCESS_STAYS). Copies free bytes for long, and plans came out faster so.
 */
#include "plan/best.h"

typedef struct stacks {
    const ebb_plan *plan;
    uint32_t *place; /* [n_actions]: how many runs come before each */
    uint32_t n_places;
    uint64_t *stack; /* [n_places + 1]: where the highest stack ends there */
    uint64_t *top;   /* [n_places + 1]: where the highest stay ends there */
} stacks;

/* At which places of its own a stay counts. */
typedef enum rest { ON_STACK, ON_STAY, ANYWHERE, N_RESTS } rest;

static bool rests(const stacks *s, const ebb_stay *stay, uint32_t place, rest on) {
    if (on == ANYWHERE) { return true; }
    const uint64_t below = on == ON_STACK ? s->stack[place] : s->top[place];
    return ebb_align_up(below, s->plan->alignment_bytes) == stay->offset;
}

/* Put a stay on what is there from first to last. How many places count. */
static uint32_t put_range(stacks *s, const ebb_stay *stay, uint32_t first, uint32_t last, rest on) {
    const uint64_t end = stay->offset + stay->size_bytes;
    uint32_t n = 0;
    for (uint32_t p = first; p <= last; p++) {
        if (!rests(s, stay, p, on)) { continue; }
        s->stack[p] = end;
        n++;
    }
    return n;
}

static void raise_top(stacks *s, uint32_t first, uint32_t last, uint64_t end) {
    for (uint32_t p = first; p <= last; p++) { s->top[p] = ebb_max_u64(s->top[p], end); }
}

static void put_stay(stacks *s, const ebb_stay *stay) {
    const size_t n_actions = s->plan->actions.n;
    const uint32_t first = s->place[stay->first], last = s->place[(stay->last + n_actions - 1) % n_actions];
    const bool is_around = stay->first >= stay->last;
    const uint32_t end = is_around ? s->n_places : last;
    uint32_t n = 0;
    for (rest on = ON_STACK; n == 0 && on < N_RESTS; on++) {
        n = put_range(s, stay, first, end, on);
        if (is_around) { n += put_range(s, stay, 0, last, on); }
    }
    raise_top(s, first, end, stay->offset + stay->size_bytes);
    if (is_around) { raise_top(s, 0, last, stay->offset + stay->size_bytes); }
}

/* Put all stays, the lowest first. */
static ebb_status put_stays(stacks *s, ebb_bump *bump) {
    const size_t n_stays = s->plan->stays.n;
    uint32_t *order = ebb__bump_alloc(bump, n_stays, sizeof *order);
    uint64_t *key = ebb__bump_alloc(bump, n_stays, sizeof *key);
    if (order == NULL || key == NULL) { return EBB_E_NO_MEMORY; }
    for (uint32_t i = 0; i < n_stays; i++) {
        order[i] = i;
        key[i] = s->plan->stays.data[i].offset;
    }
    EBB_TRY(ebb__sort_by_key(s->plan->mem, order, n_stays, key));
    for (uint32_t i = 0; i < n_stays; i++) { put_stay(s, &s->plan->stays.data[order[i]]); }
    return EBB_OK;
}

static ebb_status find_stacks(stacks *s, ebb_bump *bump) {
    const size_t n_actions = s->plan->actions.n;
    s->place = ebb__bump_alloc(bump, n_actions, sizeof *s->place);
    if (s->place == NULL) { return EBB_E_NO_MEMORY; }
    for (size_t a = 0; a < n_actions; a++) {
        s->place[a] = s->n_places;
        s->n_places += s->plan->actions.data[a].kind == EBB_ACT_RUN;
    }
    const size_t n = (size_t)s->n_places + 1;
    s->stack = ebb__bump_alloc(bump, n, sizeof *s->stack);
    s->top = ebb__bump_alloc(bump, n, sizeof *s->top);
    if (s->stack == NULL || s->top == NULL) { return EBB_E_NO_MEMORY; }
    memset(s->stack, 0, n * sizeof *s->stack);
    memset(s->top, 0, n * sizeof *s->top);
    return put_stays(s, bump);
}

/* The highest load at each place. */
static ebb_status find_load(const stacks *s, ebb_bump *bump, uint64_t *load) {
    const size_t n_actions = s->plan->actions.n;
    uint64_t *change = ebb__bump_alloc(bump, n_actions + 1, sizeof *change), now = 0; /* wraps around */
    if (change == NULL) { return EBB_E_NO_MEMORY; }
    memset(change, 0, (n_actions + 1) * sizeof *change);
    for (size_t i = 0; i < s->plan->stays.n; i++) {
        const ebb_stay *stay = &s->plan->stays.data[i];
        const uint64_t bytes = ebb_align_up(stay->size_bytes, s->plan->alignment_bytes);
        change[stay->first] += bytes;
        change[stay->last] -= bytes;
        now += stay->first >= stay->last ? bytes : 0;
    }
    memset(load, 0, ((size_t)s->n_places + 1) * sizeof *load);
    for (size_t a = 0; a < n_actions; a++) {
        now += change[a];
        load[s->place[a]] = ebb_max_u64(load[s->place[a]], now);
    }
    return EBB_OK;
}

ebb_status ebb__best_find_excess(const ebb_plan *plan, uint64_t budget_bytes, ebb_excess what, uint64_t *over,
                                 uint64_t *load) {
    stacks s = {.plan = plan};
    ebb_bump bump;
    ebb__bump_init(&bump, plan->mem);
    ebb_status st = find_stacks(&s, &bump);
    if (st == EBB_OK && load != NULL) { st = find_load(&s, &bump, load); }
    for (uint32_t p = 0; st == EBB_OK && p <= s.n_places; p++) {
        const uint64_t end = what == EBB_EXCESS_STACKS ? s.stack[p] : s.top[p];
        over[p] = end - ebb_min_u64(end, budget_bytes);
    }
    ebb__bump_fini(&bump);
    return st;
}
