/* SPDX-License-Identifier: Apache-2.0
 *
 * A place for each request of an iteration, around what lives.
 *
 *      base                                                      base + capacity
 *        | weights | a | weights | b | other |  free                    |
 *        |         +---+         +---+       +--------+
 *        |          the plan's pieces                 end
 *
 * What lives when the plan is made stays where it is. A block that the last iteration leaves to this one is one of the
 * plan's requests, whose place is then the one that it has. All others that live are taken to live for ever: an
 * iteration may use no byte of theirs. Both are items with fixed offsets of the problem that the placer gets; what is
 * taken from the arena's begin on is left out of it. The plan holds just the bytes that its requests use, so holes
 * that are left between other blocks are the general allocator's, as is what those blocks leave when they go.
 */
#include "ebb/place.h"
#include "pool/pool_priv.h"

/* The placer's work: a request waits for it. */
#define PLACE_STEPS ((uint64_t)50 * 1000)
#define PLACE_STEPS_A_REQUEST 1000u

typedef ebb_pool_planning planning;

/* Room for a problem of all requests and all that is taken. */
typedef struct posed {
    ebb_place_problem problem;
    ebb_place_item *items; /* of the requests that are planned, in their order; then what is taken */
    uint64_t *fixed, *offsets;
    size_t n_planned, n_fixed, n;
    uint64_t base; /* address of offset 0 */
} posed;

static bool is_plannable(const planning *p, size_t request) {
    return p->requests[request].span > 0 && p->requests[request].span <= p->n;
}

ebb_status ebb__pool_planning_init(planning *p, size_t n) {
    if (n >= UINT32_MAX / 4) { return ebb_fail(EBB_E_LIMIT, "an iteration of %zu requests", n); }
    p->n = n;
    p->requests = ebb__bump_alloc(p->bump, n, sizeof *p->requests);
    return p->requests != NULL ? EBB_OK : EBB_E_NO_MEMORY;
}

static ebb_status alloc_posed(const planning *p, posed *q) {
    const uint64_t most = (uint64_t)p->n + p->n_taken;
    *q = (posed){.problem = EBB_PLACE_PROBLEM_INIT, .base = p->base};
    q->items = ebb__bump_alloc(p->bump, most, sizeof *q->items);
    q->fixed = ebb__bump_alloc(p->bump, most, sizeof *q->fixed);
    q->offsets = ebb__bump_alloc(p->bump, most, sizeof *q->offsets);
    if (q->items == NULL || q->fixed == NULL || q->offsets == NULL) { return EBB_E_NO_MEMORY; }
    q->problem.items = q->items;
    q->problem.period = p->n;
    q->problem.alignment_bytes = p->alignment_bytes;
    return EBB_OK;
}

static void add_item(posed *q, ebb_place_item item, uint64_t fixed) {
    q->items[q->n] = item;
    q->fixed[q->n++] = fixed;
    q->n_fixed += fixed != EBB_PLACE_ANYWHERE;
}

static void add_requests(const planning *p, posed *q) {
    for (size_t i = 0; i < p->n; i++) {
        const ebb_pool_planned *r = &p->requests[i];
        if (!is_plannable(p, i)) { continue; }
        const ebb_place_item item = {.size_bytes = r->n, .first = i, .last = (i + r->span) % p->n};
        add_item(q, item, r->lives ? r->start - q->base : EBB_PLACE_ANYWHERE);
    }
    q->n_planned = q->n;
}

/* The taken blocks from number k on that touch are one; *k goes past them. */
static ebb_pool_piece join_taken(const planning *p, size_t *k) {
    ebb_pool_piece piece = p->taken[(*k)++];
    for (; *k < p->n_taken && p->taken[*k].start == piece.start + piece.n; (*k)++) { piece.n += p->taken[*k].n; }
    return piece;
}

static void pose(const planning *p, posed *q) {
    size_t k = 0;
    if (p->n_taken > 0 && p->taken[0].start == p->base) {
        const ebb_pool_piece bottom = join_taken(p, &k);
        q->base = bottom.start + bottom.n;
    }
    add_requests(p, q);
    while (k < p->n_taken) {
        const ebb_pool_piece piece = join_taken(p, &k);
        add_item(q, (ebb_place_item){.size_bytes = piece.n, .first = 0, .last = p->n}, piece.start - q->base);
    }
    q->problem.n_items = q->n;
    q->problem.fixed = q->n_fixed > 0 ? q->fixed : NULL;
}

/* What the requests use, in order of address, without overlaps. */
static ebb_status find_pieces(planning *p, const posed *q) {
    uint32_t *idx = ebb__bump_alloc(p->bump, q->n_planned, sizeof *idx);
    p->pieces = ebb__bump_alloc(p->bump, q->n_planned, sizeof *p->pieces);
    if (idx == NULL || p->pieces == NULL) { return EBB_E_NO_MEMORY; }
    for (size_t i = 0; i < q->n_planned; i++) { idx[i] = (uint32_t)i; }
    EBB_TRY(ebb__sort_by_key(p->mem, idx, q->n_planned, q->offsets));
    p->n_pieces = 0;
    for (size_t k = 0; k < q->n_planned; k++) {
        const uint64_t start = q->base + q->offsets[idx[k]], end = start + q->items[idx[k]].size_bytes;
        ebb_pool_piece *last = p->n_pieces > 0 ? &p->pieces[p->n_pieces - 1] : NULL;
        if (last != NULL && start <= last->start + last->n) {
            last->n = ebb_max_u64(last->n, end - last->start);
        } else {
            p->pieces[p->n_pieces++] = (ebb_pool_piece){start, end - start, EBB_POOL_PLANNED};
        }
        p->end = ebb_max_u64(p->end, end);
    }
    return EBB_OK;
}

static void take_starts(planning *p, const posed *q) {
    size_t item = 0;
    for (size_t i = 0; i < p->n; i++) {
        if (is_plannable(p, i)) { p->requests[i].start = q->base + q->offsets[item++]; }
    }
    EBB_ASSERT(item == q->n_planned);
}

ebb_status ebb__pool_place(planning *p) {
    posed q;
    ebb_place_options options = EBB_PLACE_OPTIONS_INIT;
    options.any_end = true;
    ebb_place_result result = {0};
    EBB_TRY(alloc_posed(p, &q));
    pose(p, &q);
    p->n_pieces = 0;
    p->end = p->base;
    if (q.n_planned == 0) { return EBB_OK; }
    options.mem = p->mem;
    options.max_steps = ebb_min_u64(PLACE_STEPS + PLACE_STEPS_A_REQUEST * (uint64_t)q.n,
                                    EBB_PLACE_STEPS + EBB_PLACE_STEPS_AN_ITEM * (uint64_t)q.n);
    EBB_TRY(ebb_place_solve(&q.problem, &options, q.offsets, &result));
    take_starts(p, &q);
    return find_pieces(p, &q);
}

ebb_status ebb__pool_check_given(planning *p, const uint64_t *offsets) {
    posed q;
    uint64_t peak = 0;
    size_t item = 0;
    EBB_TRY(alloc_posed(p, &q));
    q.base = 0;
    add_requests(p, &q);
    q.problem.n_items = q.n;
    for (size_t i = 0; i < p->n; i++) {
        if (is_plannable(p, i)) { q.offsets[item++] = offsets[i]; }
    }
    EBB_TRY(ebb_place_check(&q.problem, p->mem, q.offsets, &peak));
    take_starts(p, &q);
    p->pieces = ebb__bump_alloc(p->bump, 1, sizeof *p->pieces);
    if (p->pieces == NULL) { return EBB_E_NO_MEMORY; }
    p->pieces[0] = (ebb_pool_piece){0, peak, EBB_POOL_PLANNED};
    p->n_pieces = peak > 0;
    p->end = peak;
    return EBB_OK;
}
