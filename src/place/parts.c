/* SPDX-License-Identifier: Apache-2.0
 *
 * The items of any problem as parts: rectangles of sections by bytes.
 *
 *      bytes                                An item with two gaps: in the first it holds only its lower bytes, in the
 *           +-----+           +---+   +--+  second none. It has four parts, which all move with its one offset.
 *           |  1  |           | 3 |   |4 |  Two items collide where a part of one and a part of the other share
 *           |     +-----------+   |   |  |  a section and a byte; parts of one item never share a section.
 *           |     |     2     |   |   |  |
 *           +-----+-----------+---+---+--+ time
 *
 * Each part is cut into sections as an item of its own.
 */
#include "place/place_priv.h"

/* Items that hold all their bytes all their life: a part each. */
typedef struct pieces {
    ebb_place_item *item;
    uint64_t *low_bytes;
    size_t n;
} pieces;

static void push_piece(pieces *p, ebb_place_item piece, uint64_t low_bytes) {
    if (piece.size_bytes == 0) { return; }
    p->low_bytes[p->n] = low_bytes;
    p->item[p->n++] = piece;
}

/* Of one item; gap [*next_gap ...) are its own and later items'. */
static void push_item(pieces *p, const ebb_place_problem *problem, size_t i, size_t *next_gap) {
    const uint64_t align = problem->alignment_bytes;
    ebb_place_item rest = problem->items[i];
    const uint64_t rounded = ebb_align_up(rest.size_bytes, align);
    for (; *next_gap < problem->n_gaps && problem->gaps[*next_gap].item == i; ++*next_gap) {
        const ebb_place_gap *gap = &problem->gaps[*next_gap];
        if (rest.first < gap->first) { push_piece(p, (ebb_place_item){rounded, rest.first, gap->first}, 0); }
        if (gap->low_bytes < gap->high_bytes) {
            const uint64_t low = gap->low_bytes & ~(align - 1), high = ebb_align_up(gap->high_bytes, align);
            EBB_ASSERT(low < high && high <= rounded && gap->first < gap->last);
            push_piece(p, (ebb_place_item){high - low, gap->first, gap->last}, low);
        }
        rest.first = gap->last;
        if (rest.first == rest.last) { rest.size_bytes = 0; } /* else it would go all around a circle */
    }
    push_piece(p, (ebb_place_item){rest.size_bytes == 0 ? 0 : rounded, rest.first, rest.last}, 0);
}

static ebb_status make_pieces(ebb_bump *bump, ebb_parts *parts, pieces *pieces_out) {
    const ebb_place_problem *problem = parts->problem;
    const size_t max_pieces = problem->n_items + 2 * problem->n_gaps;
    pieces p = {.item = ebb__bump_alloc(bump, max_pieces, sizeof *p.item),
                .low_bytes = ebb__bump_alloc(bump, max_pieces, sizeof *p.low_bytes)};
    if (p.item == NULL || p.low_bytes == NULL) { return EBB_E_NO_MEMORY; }
    size_t next_gap = 0;
    for (size_t i = 0; i < problem->n_items; i++) {
        parts->first[i] = p.n;
        push_item(&p, problem, i, &next_gap);
        if (p.n - parts->first[i] > parts->max_parts) { parts->max_parts = p.n - parts->first[i]; }
    }
    parts->first[problem->n_items] = p.n;
    EBB_ASSERT(next_gap == problem->n_gaps && p.n <= max_pieces);
    *pieces_out = p;
    return EBB_OK;
}

static void finish_item(ebb_parts *parts, size_t i) {
    parts->alignment[i] = ebb__place_alignment(parts->problem, i);
    EBB_ASSERT(parts->alignment[i] > 0 && parts->first[i] <= parts->first[i + 1]);
    parts->top[i] = 0;
    for (size_t k = parts->first[i]; k < parts->first[i + 1]; k++) {
        EBB_ASSERT(parts->part[k].low_bytes < parts->part[k].high_bytes);
        parts->top[i] = ebb_max_u64(parts->top[i], parts->part[k].high_bytes);
    }
    parts->bound_bytes = ebb_max_u64(parts->bound_bytes, parts->top[i]); /* it may never hold all its bytes at once */
    if (parts->top[i] > 0 && ebb__place_is_fixed(parts->problem, i)) {
        parts->bound_bytes = ebb_max_u64(parts->bound_bytes, parts->problem->fixed[i] + parts->top[i]);
    }
}

ebb_status ebb__place_split(const ebb_place_problem *problem, ebb_bump *bump, ebb_parts *parts_out) {
    const size_t n = problem->n_items;
    ebb_parts parts = {.problem = problem,
                       .mem = bump->mem,
                       .first = ebb__bump_alloc(bump, n + 1, sizeof *parts.first),
                       .top = ebb__bump_alloc(bump, n, sizeof *parts.top),
                       .alignment = ebb__bump_alloc(bump, n, sizeof *parts.alignment)};
    pieces p = {0};
    ebb_sections sections;
    if (parts.first == NULL || parts.top == NULL || parts.alignment == NULL) { return EBB_E_NO_MEMORY; }
    EBB_TRY(make_pieces(bump, &parts, &p));
    ebb_place_problem of_pieces = EBB_PLACE_PROBLEM_INIT;
    of_pieces.items = p.item;
    of_pieces.n_items = p.n;
    of_pieces.period = problem->period;
    EBB_TRY(ebb__place_cut(&of_pieces, bump, &sections));
    parts.part = ebb__bump_alloc(bump, p.n, sizeof *parts.part);
    if (parts.part == NULL) { return EBB_E_NO_MEMORY; }
    for (size_t k = 0; k < p.n; k++) {
        const uint64_t low = p.low_bytes[k];
        EBB_ASSERT(sections.range[k].first < sections.n && sections.range[k].last <= sections.n);
        parts.part[k] = (ebb_place_part){sections.range[k], low, low + p.item[k].size_bytes};
    }
    parts.n_sections = sections.n;
    parts.bound_bytes = sections.bound_bytes;
    for (size_t i = 0; i < n; i++) { finish_item(&parts, i); }
    *parts_out = parts;
    return EBB_OK;
}

bool ebb__place_share_time(ebb_place_range a, ebb_place_range b) {
    const bool a_wraps = a.first >= a.last, b_wraps = b.first >= b.last;
    if (a_wraps && b_wraps) { return true; }
    if (a_wraps) { return b.last > a.first || b.first < a.last; }
    if (b_wraps) { return a.last > b.first || a.first < b.last; }
    return a.first < b.last && b.first < a.last;
}

/* ---- two items -------------------------------------------------------------------------------- */

/* From list[from] on, of one pair: by a, and what overlaps made one. */
static void merge_aparts(ebb_aparts *list, size_t from) {
    if (list->n - from < 2) { return; }
    ebb_apart *v = list->data + from;
    const size_t n = list->n - from;
    size_t n_merged = 0;
    for (size_t k = 1; k < n; k++) {
        const ebb_apart moved = v[k];
        size_t at = k;
        for (; at > 0 && v[at - 1].a > moved.a; at--) { v[at] = v[at - 1]; }
        v[at] = moved;
    }
    for (size_t k = 0; k < n; k++) {
        if (n_merged > 0 && v[k].a < v[n_merged - 1].b) {
            if (v[k].b > v[n_merged - 1].b) { v[n_merged - 1].b = v[k].b; }
        } else {
            v[n_merged++] = v[k];
        }
    }
    EBB_ASSERT(n_merged > 0 && n_merged <= n);
    list->n = from + n_merged;
}

ebb_status ebb__place_add_aparts(const ebb_parts *parts, size_t i, size_t j, ebb_apart names, ebb_aparts *list) {
    const size_t from = list->n;
    EBB_ASSERT(i != j && i < parts->problem->n_items && j < parts->problem->n_items);
    for (size_t k = parts->first[i]; k < parts->first[i + 1]; k++) {
        for (size_t l = parts->first[j]; l < parts->first[j + 1]; l++) {
            const ebb_place_part *x = &parts->part[k], *y = &parts->part[l];
            if (!ebb__place_share_time(x->range, y->range)) { continue; }
            names.a = (int64_t)x->low_bytes - (int64_t)y->high_bytes;
            names.b = (int64_t)x->high_bytes - (int64_t)y->low_bytes;
            EBB_ASSERT(names.a < names.b);
            EBB_TRY(EBB_PUSH(parts->mem, list, names));
        }
    }
    merge_aparts(list, from);
    return EBB_OK;
}
