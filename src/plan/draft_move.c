/* SPDX-License-Identifier: Apache-2.0
 *
 * Copies that begin early. A policy writes a copy out where the bytes are wanted and a copy in where the tensor is
 * wanted; both would then be waited for. Here copies out go up to right after what made their content, so that
 * they have ended when their tensor has to leave, and copies in go up as far as the time that they take, as long
 * as the bytes are free on the way.
 *
 * How far a copy in goes: from the last to the first, each should end when its tensor is wanted and when the one
 * after it begins. Wanted-at is in compute time alone. The load is kept in a tree over positions that
 * adds to a range and finds the last position where too much is taken, both in O(log n).
 */
#include "plan/plan_priv.h"

#include <math.h>

/* Sums are kept where they cover a whole node; high: the most below the node, the node's own sum included. */
typedef struct load_node {
    uint64_t high, sum;
} load_node;

typedef struct load_tree {
    load_node *node;
    size_t n_leaves; /* a power of two */
} load_tree;

typedef struct mover {
    const ebb_program *program;
    ebb_draft *draft;
    const ebb_machine *machine;
    ebb_program_view view;
    size_t n; /* actions */
    uint64_t limit_bytes;
    ebb_bump bump;
    load_tree tree;
    uint64_t *load;   /* [n] */
    double *time_ns;  /* [n + 1]: of computing, before each action */
    uint64_t *before; /* [n]: the action before which each goes; its own index if it stays */
} mover;

static void build_tree(load_tree *tree, const uint64_t *load, size_t n) {
    EBB_ASSERT(n <= tree->n_leaves);
    for (size_t i = 0; i < tree->n_leaves; i++) {
        tree->node[tree->n_leaves + i] = (load_node){.high = i < n ? load[i] : 0};
    }
    for (size_t i = tree->n_leaves - 1; i > 0; i--) {
        tree->node[i] = (load_node){.high = ebb_max_u64(tree->node[2 * i].high, tree->node[2 * i + 1].high)};
    }
}

/* Node covers [low, low + width). Add bytes to [first, last). */
static void add_load(load_tree *tree, size_t node, size_t low, size_t width, const uint64_t range[2], uint64_t bytes) {
    if (range[0] >= low + width || range[1] <= low) { return; }
    if (range[0] <= low && low + width <= range[1]) {
        tree->node[node].high += bytes;
        tree->node[node].sum += bytes;
        return;
    }
    add_load(tree, 2 * node, low, width / 2, range, bytes);
    add_load(tree, 2 * node + 1, low + width / 2, width / 2, range, bytes);
    const uint64_t below = ebb_max_u64(tree->node[2 * node].high, tree->node[2 * node + 1].high);
    tree->node[node].high = below + tree->node[node].sum;
}

/* One past the last position of [range[0], range[1]) whose load within the node is above room; range[0] if there is
 * none. */
static size_t find_full(const load_tree *tree, size_t node, size_t low, size_t width, const uint64_t range[2],
                        uint64_t room) {
    if (range[0] >= low + width || range[1] <= low || tree->node[node].high <= room) { return range[0]; }
    if (width == 1) { return low + 1; }
    uint64_t sum = tree->node[node].sum;
    if (sum > room) { return (size_t)ebb_min_u64(range[1], low + width); } /* everything here is full */
    size_t right = find_full(tree, 2 * node + 1, low + width / 2, width / 2, range, room - sum);
    if (right > range[0]) { return right; }
    return find_full(tree, 2 * node, low, width / 2, range, room - sum);
}

static uint64_t part_bytes(const mover *m, const ebb_action *action) {
    const uint64_t end = ebb__action_end(action, m->view.tensors[action->target].size_bytes);
    return ebb_align_up(end - action->begin, m->view.alignment);
}

/* Load and compute time at each position. */
static void measure(mover *m, uint64_t *present) {
    uint64_t load = 0;
    double time_ns = 0;
    ebb__draft_resident(m->draft, m->program, m->view.alignment, present);
    for (size_t t = 0; t < m->view.n_tensors; t++) { load += present[t]; }
    for (size_t a = 0; a < m->n; a++) {
        const ebb_action *action = &m->draft->actions.data[a].action;
        uint64_t also = 0; /* there during the action only */
        m->time_ns[a] = time_ns;
        m->before[a] = a;
        if (action->kind == EBB_ACT_DROP || action->kind == EBB_ACT_IN) {
            const uint64_t bytes = part_bytes(m, action);
            const bool drops = action->kind == EBB_ACT_DROP;
            EBB_ASSERT(!drops || (load >= bytes && present[action->target] >= bytes));
            load = drops ? load - bytes : load + bytes;
            present[action->target] = drops ? present[action->target] - bytes : present[action->target] + bytes;
            also = drops ? bytes : 0; /* what goes before a drop finds the bytes taken */
        } else if (ebb__action_computes(action)) {
            const ebb_step *step = &m->view.steps[action->target];
            const ebb_choice *choice = &m->view.choices[step->first_choice + action->choice];
            for (uint32_t i = 0; i < step->n_accesses; i++) {
                uint32_t t = m->view.accesses[step->first_access + i].tensor;
                const uint64_t bytes = ebb_align_up(m->view.tensors[t].size_bytes, m->view.alignment);
                load += bytes - present[t];
                present[t] = bytes;
            }
            also = ebb_align_up(choice->scratch_bytes, m->view.alignment);
            time_ns += (double)ebb_machine_step_time_ns(m->machine, choice);
        }
        m->load[a] = load + also;
    }
    m->time_ns[m->n] = time_ns;
}

static void move_in(mover *m, size_t a, double engine_free_ns[EBB_MAX_ENGINES]) {
    const ebb_draft_action *in = &m->draft->actions.data[a];
    double *free_ns = &engine_free_ns[ebb__topology_engine_of(ebb_machine_topology(m->machine), &in->action)];
    const uint64_t bytes = part_bytes(m, &in->action);
    const double takes_ns = (double)ebb_machine_copy_time_ns(m->machine, in->action.tier, EBB_DEVICE, bytes);
    const double begin_ns = fmax(fmin(m->time_ns[a], *free_ns) - takes_ns, 0);
    EBB_ASSERT(begin_ns <= *free_ns && begin_ns <= m->time_ns[a]);
    *free_ns = begin_ns;
    const size_t reach = ebb__last_at_most(m->time_ns, a + 1, begin_ns);
    if (in->bound == EBB_DRAFT_FIXED || in->bound >= a || bytes > m->limit_bytes) { return; }
    uint64_t range[2] = {ebb_max_u64(reach, in->bound), a};
    if (range[0] >= range[1]) { return; }
    const size_t from = find_full(&m->tree, 1, 0, m->tree.n_leaves, range, m->limit_bytes - bytes);
    EBB_ASSERT(from >= range[0] && from <= a);
    if (from >= a) { return; }
    const uint64_t high = m->tree.node[1].high;
    range[0] = from;
    add_load(&m->tree, 1, 0, m->tree.n_leaves, range, bytes);
    EBB_ASSERT(m->tree.node[1].high <= ebb_max_u64(high, m->limit_bytes));
    m->before[a] = from;
}

static ebb_status sort_actions(ebb_draft *draft, const uint64_t *before, ebb_bump *bump) {
    size_t n = draft->actions.n, at = 0;
    uint64_t *start = ebb__bump_alloc(bump, n + 1, sizeof *start);
    ebb_draft_action *sorted = ebb__bump_alloc(bump, n, sizeof *sorted);
    if (start == NULL || sorted == NULL) { return EBB_E_NO_MEMORY; }
    memset(start, 0, (n + 1) * sizeof *start);
    for (size_t a = 0; a < n; a++) { start[before[a]]++; }
    for (size_t i = 0; i <= n; i++) { /* from counts to starts */
        size_t count = i < n ? start[i] : 0;
        start[i] = at;
        at += count;
    }
    EBB_ASSERT(at == n);
    /* a moved one comes before the one whose place it took, so those that stay are set last; bounds are spent */
    for (int pass = 0; pass < 3; pass++) {
        for (size_t a = 0; a < n; a++) {
            const ebb_draft_action *action = &draft->actions.data[a];
            int kind = before[a] == a ? 2 : action->action.kind == EBB_ACT_OUT ? 0 : 1;
            if (kind != pass) { continue; }
            sorted[start[before[a]]] = *action;
            sorted[start[before[a]]++].bound = EBB_DRAFT_FIXED;
        }
    }
    if (n > 0) { memcpy(draft->actions.data, sorted, n * sizeof *sorted); }
    return EBB_OK;
}

ebb_status ebb__draft_reorder(ebb_draft *draft, const uint64_t *before) {
    ebb_bump bump;
    ebb__bump_init(&bump, draft->mem);
    const ebb_status st = sort_actions(draft, before, &bump);
    ebb__bump_fini(&bump);
    return st;
}

static ebb_status init_mover(mover *m) {
    size_t n = m->n;
    for (m->tree.n_leaves = 1; m->tree.n_leaves < n;) { m->tree.n_leaves *= 2; }
    m->tree.node = ebb__bump_alloc(&m->bump, 2 * m->tree.n_leaves, sizeof *m->tree.node);
    m->load = ebb__bump_alloc(&m->bump, n, sizeof *m->load);
    m->time_ns = ebb__bump_alloc(&m->bump, n + 1, sizeof *m->time_ns);
    m->before = ebb__bump_alloc(&m->bump, n, sizeof *m->before);
    uint64_t *present = ebb__bump_alloc(&m->bump, m->view.n_tensors, sizeof *present);
    if (m->tree.node == NULL || m->load == NULL || m->time_ns == NULL || m->before == NULL || present == NULL) {
        return EBB_E_NO_MEMORY;
    }
    measure(m, present);
    build_tree(&m->tree, m->load, n);
    return EBB_OK;
}

ebb_status ebb__draft_move_up(ebb_draft *draft, const ebb_program *program, const ebb_machine *machine,
                              uint64_t limit_bytes, bool early_out, bool early_in) {
    mover m = {
        .draft = draft, .program = program, .machine = machine, .n = draft->actions.n, .limit_bytes = limit_bytes};
    m.view = ebb__plan_view(program);
    ebb__bump_init(&m.bump, draft->mem);
    ebb_status st = init_mover(&m);
    double engine_free_ns[EBB_MAX_ENGINES];
    for (uint32_t e = 0; e < EBB_MAX_ENGINES; e++) { engine_free_ns[e] = INFINITY; }
    for (size_t a = m.n; st == EBB_OK && a-- > 0;) {
        const ebb_draft_action *action = &draft->actions.data[a];
        if (action->action.kind == EBB_ACT_IN && early_in) { move_in(&m, a, engine_free_ns); }
        bool moves = action->action.kind == EBB_ACT_OUT && early_out && action->bound != EBB_DRAFT_FIXED;
        if (moves && action->bound < a) { m.before[a] = action->bound; }
        EBB_ASSERT(m.before[a] <= a && (m.before[a] == a || action->bound <= m.before[a]));
    }
    if (st == EBB_OK) { st = ebb__draft_reorder(draft, m.before); }
    if (EBB_DEBUG >= 2) { EBB_ASSERT(st != EBB_OK || ebb__draft_is_valid(draft, program)); }
    ebb__bump_fini(&m.bump);
    return st;
}
