/* SPDX-License-Identifier: Apache-2.0
 *
 * An order of steps with a low peak of liveness: what it is judged by, and who looks for it.
 *
 * The versions of tensors say which steps must be before which: a reader comes after the writer of what it reads and
 * before the next writer. In all orders that keep this, a tensor is made by the same step, but which of its last
 * readers comes last differs, and with it when it dies.
 *
 *  1. Pulling (order_pull.c) moves steps that end as much as they make as early as they can go, and steps that make as
 *     much as they end as late. This makes no other step's load higher. It is near-linear, and all that is done for a
 *     large program.
 *  2. At a step whose load is the peak, a minimum cut (order_cut.c) tells which steps to have run before it. If that
 *     is no less than the load, the order is the best there is.
 *  3. Else a beam search (order_window.c) looks for another order of the steps around it, in wider and wider windows.
 *
 * A persistent tensor counts at all steps here, though liveness drops it before a step that overwrites it.
 *
 * An order is taken only if its peak is lower, or the same at fewer steps: so it ends, and is never worse than the
 * program's.
 */
#include "plan/order_priv.h"
#include "plan/plan_priv.h"

#define MAX_PULLS 8
#define MAX_SEARCHED_STEPS 20000u
#define WORK ((uint64_t)16000000)
#define BOUND_WORK (WORK / 8)
#define MAX_BOUNDS 64
#define FIRST_WINDOW 8u

typedef ebb_order_search search;

/* ---- the graph ---------------------------------------------------------------------------------- */

/* Rows of these lengths; their starts are moved on as they are filled, and moved back at the end. */
static ebb_status make_rows(ebb_bump *bump, const uint64_t *n, size_t n_rows, ebb_order_rows *rows_out) {
    ebb_order_rows rows = {.start = ebb__bump_alloc(bump, n_rows + 1, sizeof *rows.start)};
    if (rows.start == NULL) { return EBB_E_NO_MEMORY; }
    rows.start[0] = 0;
    for (size_t i = 0; i < n_rows; i++) { rows.start[i + 1] = rows.start[i] + n[i]; }
    rows.list = ebb__bump_alloc(bump, rows.start[n_rows], sizeof *rows.list);
    if (rows.list == NULL) { return EBB_E_NO_MEMORY; }
    *rows_out = rows;
    return EBB_OK;
}

static void enter(ebb_order_rows *rows, size_t row, uint32_t what) {
    rows->list[rows->start[row]++] = what;
}

static void end_rows(ebb_order_rows *rows, size_t n_rows) {
    memmove(rows->start + 1, rows->start, n_rows * sizeof *rows->start);
    rows->start[0] = 0;
}

/* Call for each pair of steps that a tensor puts in order. counts: only count them. */
static void tie(ebb_order_graph *g, uint64_t *n_before, uint64_t *n_after, uint32_t first, uint32_t then) {
    if (n_before != NULL) {
        n_before[then]++;
        n_after[first]++;
        return;
    }
    enter(&g->before, then, first);
    enter(&g->after, first, then);
}

/* Each access comes after the last write; each write comes after the reads since then too. */
static void tie_all(ebb_order_graph *g, const ebb_uses *uses, uint64_t *n_before, uint64_t *n_after) {
    for (size_t t = 0; t < g->n_tensors; t++) {
        uint64_t write = UINT64_MAX, read = uses->start[t]; /* the last write, and the first read since then */
        for (uint64_t u = uses->start[t]; u < uses->start[t + 1]; u++) {
            const ebb_use *use = &uses->use[u];
            const bool writes = (use->mode & EBB_WRITE) != 0;
            if (write != UINT64_MAX && (!writes || read == u)) {
                tie(g, n_before, n_after, uses->use[write].step, use->step);
            }
            if (!writes) { continue; }
            for (uint64_t r = read; r < u; r++) { tie(g, n_before, n_after, uses->use[r].step, use->step); }
            write = u;
            read = u + 1;
        }
    }
}

static ebb_status make_ties(search *s, const ebb_uses *uses) {
    ebb_order_graph *g = &s->graph;
    uint64_t *n_before = ebb__calloc(s->mem, g->n_steps, sizeof *n_before);
    uint64_t *n_after = ebb__calloc(s->mem, g->n_steps, sizeof *n_after);
    ebb_status st = n_before != NULL && n_after != NULL ? EBB_OK : EBB_E_NO_MEMORY;
    if (st == EBB_OK) {
        tie_all(g, uses, n_before, n_after);
        st = make_rows(&s->bump, n_before, g->n_steps, &g->before);
    }
    if (st == EBB_OK) { st = make_rows(&s->bump, n_after, g->n_steps, &g->after); }
    if (st == EBB_OK) {
        tie_all(g, uses, NULL, NULL);
        end_rows(&g->before, g->n_steps);
        end_rows(&g->after, g->n_steps);
    }
    ebb__free(s->mem, n_before);
    ebb__free(s->mem, n_after);
    return st;
}

/* Where the users of a tensor begin among its accesses. */
static uint64_t first_user(const ebb_uses *uses, size_t t) {
    uint64_t first = uses->start[t + 1];
    while (first > uses->start[t] && (uses->use[first - 1].mode & EBB_WRITE) == 0) { first--; }
    return first == uses->start[t + 1] ? first - 1 : first;
}

static ebb_status make_lives(search *s, const ebb_program_view *view, const ebb_uses *uses) {
    ebb_order_graph *g = &s->graph;
    uint64_t *n_users = ebb__calloc(s->mem, g->n_tensors, sizeof *n_users);
    uint64_t *n_used = ebb__calloc(s->mem, g->n_steps, sizeof *n_used);
    ebb_status st = n_users != NULL && n_used != NULL ? EBB_OK : EBB_E_NO_MEMORY;
    for (size_t t = 0; st == EBB_OK && t < g->n_tensors; t++) {
        const ebb_tensor *tensor = &view->tensors[t];
        const uint64_t begin = uses->start[t], end = uses->start[t + 1];
        g->maker[t] = EBB_ORDER_NONE;
        g->size_bytes[t] = ebb_align_up(tensor->size_bytes, view->alignment);
        if (tensor->persistent) { g->always_bytes += g->size_bytes[t]; }
        if (tensor->persistent || begin == end) { continue; }
        const uint32_t maker = uses->use[begin].step;
        const uint64_t first = first_user(uses, t);
        if (!tensor->kept && first == begin) {
            g->own_bytes[maker] += g->size_bytes[t];
            continue;
        }
        g->maker[t] = maker;
        g->made_bytes[maker] += g->size_bytes[t];
        if (tensor->kept) { continue; }
        n_users[t] = end - first;
        for (uint64_t u = first; u < end; u++) { n_used[uses->use[u].step]++; }
    }
    if (st == EBB_OK) { st = make_rows(&s->bump, n_users, g->n_tensors, &g->users); }
    if (st == EBB_OK) { st = make_rows(&s->bump, n_used, g->n_steps, &g->used); }
    for (size_t t = 0; st == EBB_OK && t < g->n_tensors; t++) {
        for (uint64_t u = uses->start[t + 1] - n_users[t]; u < uses->start[t + 1]; u++) {
            enter(&g->users, t, uses->use[u].step);
            enter(&g->used, uses->use[u].step, (uint32_t)t);
        }
    }
    if (st == EBB_OK) {
        end_rows(&g->users, g->n_tensors);
        end_rows(&g->used, g->n_steps);
    }
    ebb__free(s->mem, n_users);
    ebb__free(s->mem, n_used);
    return st;
}

static ebb_status make_graph(search *s, const ebb_program *program, const uint32_t *choice) {
    const ebb_program_view view = ebb__plan_view(program);
    ebb_order_graph *g = &s->graph;
    ebb_uses uses = {0};
    g->n_steps = view.n_steps;
    g->n_tensors = view.n_tensors;
    g->made_bytes = ebb__bump_alloc(&s->bump, g->n_steps, sizeof *g->made_bytes);
    g->own_bytes = ebb__bump_alloc(&s->bump, g->n_steps, sizeof *g->own_bytes);
    g->size_bytes = ebb__bump_alloc(&s->bump, g->n_tensors, sizeof *g->size_bytes);
    g->maker = ebb__bump_alloc(&s->bump, g->n_tensors, sizeof *g->maker);
    if (g->made_bytes == NULL || g->own_bytes == NULL || g->size_bytes == NULL || g->maker == NULL) {
        return EBB_E_NO_MEMORY;
    }
    for (size_t i = 0; i < g->n_steps; i++) {
        const ebb_choice *c = &view.choices[view.steps[i].first_choice + ebb__choice_of(choice, i)];
        g->own_bytes[i] = ebb_align_up(c->scratch_bytes, view.alignment);
        g->made_bytes[i] = 0;
    }
    EBB_TRY(ebb__program_uses(program, &s->bump, &uses));
    EBB_TRY(make_ties(s, &uses));
    return make_lives(s, &view, &uses);
}

/* ---- judging an order --------------------------------------------------------------------------- */

/* The loads of the order at hand. */
static void judge(search *s) {
    const ebb_order_graph *g = &s->graph;
    uint64_t live = g->always_bytes;
    s->peak_bytes = s->n_at_peak = 0;
    for (size_t t = 0; t < g->n_tensors; t++) { s->left[t] = (uint32_t)(g->users.start[t + 1] - g->users.start[t]); }
    for (size_t i = 0; i < g->n_steps; i++) {
        const uint32_t step = s->order[i];
        s->place[step] = (uint32_t)i;
        s->live[i] = live;
        live += g->made_bytes[step];
        s->load[i] = live + g->own_bytes[step];
        if (s->load[i] > s->peak_bytes) {
            s->peak_bytes = s->load[i];
            s->n_at_peak = 0;
        }
        s->n_at_peak += s->load[i] == s->peak_bytes;
        for (uint64_t u = g->used.start[step]; u < g->used.start[step + 1]; u++) {
            const uint32_t t = g->used.list[u];
            EBB_ASSERT(s->left[t] > 0 && live >= g->size_bytes[t]);
            if (--s->left[t] == 0) { live -= g->size_bytes[t]; }
        }
    }
    s->live[g->n_steps] = live;
}

/* Whether trial keeps the versions: deep. */
static bool trial_is_valid(const search *s) {
    const ebb_order_graph *g = &s->graph;
    uint32_t *place = ebb__calloc(s->mem, g->n_steps, sizeof *place);
    bool is_valid = true;
    if (place == NULL) { return true; } /* it cannot be told */
    for (size_t i = 0; i < g->n_steps; i++) {
        is_valid = is_valid && s->trial[i] < g->n_steps && place[s->trial[i]] == 0;
        if (is_valid) { place[s->trial[i]] = (uint32_t)i + 1; }
    }
    for (size_t i = 0; is_valid && i < g->n_steps; i++) {
        for (uint64_t b = g->before.start[i]; b < g->before.start[i + 1]; b++) {
            is_valid = is_valid && place[g->before.list[b]] < place[i];
        }
    }
    ebb__free(s->mem, place);
    return is_valid;
}

static void swap_trial(search *s) {
    uint32_t *order = s->order;
    s->order = s->trial;
    s->trial = order;
    judge(s);
}

bool ebb__order_take(search *s) {
    const uint64_t peak_bytes = s->peak_bytes;
    const size_t n_at_peak = s->n_at_peak;
    EBB_ASSERT(EBB_DEBUG < 2 || trial_is_valid(s));
    swap_trial(s);
    if (s->peak_bytes < peak_bytes || (s->peak_bytes == peak_bytes && s->n_at_peak < n_at_peak)) { return true; }
    swap_trial(s);
    EBB_ASSERT(s->peak_bytes == peak_bytes && s->n_at_peak == n_at_peak);
    return false;
}

/* ---- looking for one ---------------------------------------------------------------------------- */

static ebb_status pull_all(search *s) {
    uint32_t n_idle = 0;
    for (uint32_t i = 0; i < MAX_PULLS && n_idle < 2; i++) {
        EBB_TRY(ebb__order_pull(s, i % 2 != 0));
        n_idle = ebb__order_take(s) ? 0 : n_idle + 1;
    }
    return EBB_OK;
}

/* A place whose load is the peak: the first. */
static size_t peak_place(const search *s) {
    size_t at = 0;
    while (s->load[at] != s->peak_bytes) { at++; }
    return at;
}

/* Look around a place of the peak in wider and wider windows. *took_out: the order has become better. */
static ebb_status search_around(search *s, size_t at, bool *took_out) {
    const size_t n = s->graph.n_steps;
    for (size_t width = FIRST_WINDOW; s->work > 0; width *= 4) {
        width = ebb_min_u64(width, EBB_ORDER_WINDOW);
        const size_t begin = at > width / 2 ? at - width / 2 : 0, end = ebb_min_u64(begin + width, n);
        for (int back = 0; back < 2; back++) {
            bool found = false;
            EBB_TRY(ebb__order_reorder(s, begin, end, back != 0, &found));
            *took_out = found && ebb__order_take(s);
            if (*took_out) { return EBB_OK; }
        }
        if (width == EBB_ORDER_WINDOW || (begin == 0 && end == n)) { break; }
    }
    return EBB_OK;
}

static ebb_status search_all(search *s) {
    bool took = true;
    while (took && s->work > 0) {
        const size_t at = peak_place(s);
        bool found = false;
        EBB_TRY(ebb__order_cut(s, s->order[at], &found));
        if (!found) { return EBB_OK; }
        took = ebb__order_take(s);
        if (!took) { EBB_TRY(search_around(s, at, &took)); }
        if (took) { EBB_TRY(pull_all(s)); }
    }
    return EBB_OK;
}

/* The least load of each step bounds the peak of any order. Ask the steps with the highest loads: no other can raise
 * the bound far. */
static ebb_status raise_bound(search *s) {
    uint64_t below_bytes = UINT64_MAX;
    for (uint32_t round = 0; round < MAX_BOUNDS && s->work > 0; round++) {
        size_t at = 0;
        uint64_t most = s->bound_bytes;
        for (size_t i = 0; i < s->graph.n_steps; i++) {
            if (s->load[i] >= below_bytes || s->load[i] <= most) { continue; }
            most = s->load[i];
            at = i;
        }
        if (most == s->bound_bytes) { return EBB_OK; }
        bool found = false;
        EBB_TRY(ebb__order_cut(s, s->order[at], &found));
        below_bytes = most;
    }
    return EBB_OK;
}

/* What a step touches is live there in any order. */
static uint64_t floor_of(const ebb_order_graph *g) {
    uint64_t most = 0;
    for (size_t i = 0; i < g->n_steps; i++) {
        uint64_t bytes = g->always_bytes + g->made_bytes[i] + g->own_bytes[i];
        for (uint64_t u = g->used.start[i]; u < g->used.start[i + 1]; u++) {
            const uint32_t t = g->used.list[u];
            if (g->maker[t] != i) { bytes += g->size_bytes[t]; }
        }
        most = ebb_max_u64(most, bytes);
    }
    return most;
}

static ebb_status init_search(search *s, const ebb_program *program, const uint32_t *choice) {
    EBB_TRY(make_graph(s, program, choice));
    const size_t n = s->graph.n_steps;
    s->order = ebb__bump_alloc(&s->bump, n, sizeof *s->order);
    s->trial = ebb__bump_alloc(&s->bump, n, sizeof *s->trial);
    s->place = ebb__bump_alloc(&s->bump, n, sizeof *s->place);
    s->load = ebb__bump_alloc(&s->bump, n, sizeof *s->load);
    s->live = ebb__bump_alloc(&s->bump, n + 1, sizeof *s->live);
    s->left = ebb__bump_alloc(&s->bump, s->graph.n_tensors, sizeof *s->left);
    if (s->order == NULL || s->trial == NULL || s->place == NULL || s->load == NULL || s->live == NULL ||
        s->left == NULL) {
        return EBB_E_NO_MEMORY;
    }
    for (uint32_t i = 0; i < n; i++) { s->order[i] = i; }
    judge(s);
    s->bound_bytes = floor_of(&s->graph);
    return EBB_OK;
}

ebb_status ebb__order_find(const ebb_program *program, const uint32_t *choice, ebb_order_care care, const ebb_mem *mem,
                           uint32_t *order_out, ebb_order_figures *figures_out) {
    search s = {.mem = ebb__mem_or_default(mem), .work = WORK};
    ebb__bump_init(&s.bump, mem);
    ebb_status st = init_search(&s, program, choice);
    const uint64_t program_bytes = s.peak_bytes;
    const bool is_free = !ebb_program_keeps_order(program);
    if (st == EBB_OK && !is_free) { s.bound_bytes = s.peak_bytes; }
    if (st == EBB_OK && is_free) { st = pull_all(&s); }
    if (is_free && care == EBB_ORDER_THOROUGH && s.graph.n_steps <= MAX_SEARCHED_STEPS) {
        if (st == EBB_OK) { st = search_all(&s); }
        s.work = BOUND_WORK;
        if (st == EBB_OK) { st = raise_bound(&s); }
    }
    if (st == EBB_OK) {
        EBB_ASSERT(s.bound_bytes <= s.peak_bytes && s.peak_bytes <= program_bytes);
        const bool is_lower = s.peak_bytes < program_bytes;
        for (uint32_t i = 0; i < s.graph.n_steps; i++) { order_out[i] = is_lower ? s.order[i] : i; }
        *figures_out = (ebb_order_figures){program_bytes, s.peak_bytes, s.bound_bytes};
    }
    ebb__bump_fini(&s.bump);
    return st;
}

/* ---- SuperNeurons' route ------------------------------------------------------------------------ */

/* Visits to be made are on a stack, so that what comes after a step is visited before what comes after its siblings. */
static ebb_status walk_route(const ebb_order_graph *g, const ebb_mem *mem, uint32_t *n_visits, uint32_t *order_out) {
    EBB_VEC(uint32_t) visits = {0};
    size_t n_placed = 0;
    ebb_status st = EBB_OK;
    for (uint32_t source = 0; st == EBB_OK && source < g->n_steps; source++) {
        if (g->before.start[source] != g->before.start[source + 1]) { continue; }
        st = EBB_PUSH(mem, &visits, source);
        while (st == EBB_OK && visits.n > 0) {
            const uint32_t step = visits.data[--visits.n];
            const uint64_t n_before = g->before.start[step + 1] - g->before.start[step];
            if (++n_visits[step] < n_before) { continue; } /* a join waits */
            order_out[n_placed++] = step;
            for (uint64_t i = g->after.start[step + 1]; st == EBB_OK && i-- > g->after.start[step];) {
                st = EBB_PUSH(mem, &visits, g->after.list[i]);
            }
        }
    }
    EBB_ASSERT(st != EBB_OK || n_placed == g->n_steps);
    EBB_VEC_FINI(mem, &visits);
    return st;
}

ebb_status ebb__order_route(const ebb_program *program, const ebb_mem *mem, uint32_t *order_out) {
    search s = {.mem = ebb__mem_or_default(mem)};
    ebb__bump_init(&s.bump, mem);
    ebb_status st = make_graph(&s, program, NULL);
    uint32_t *n_visits = NULL;
    if (st == EBB_OK && ebb_program_keeps_order(program)) {
        for (uint32_t i = 0; i < s.graph.n_steps; i++) { order_out[i] = i; }
        ebb__bump_fini(&s.bump);
        return EBB_OK;
    }
    if (st == EBB_OK) { n_visits = ebb__calloc(s.mem, s.graph.n_steps, sizeof *n_visits); }
    if (st == EBB_OK) { st = n_visits != NULL ? walk_route(&s.graph, s.mem, n_visits, order_out) : EBB_E_NO_MEMORY; }
    ebb__free(s.mem, n_visits);
    ebb__bump_fini(&s.bump);
    return st;
}
