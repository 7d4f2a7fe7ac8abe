/* SPDX-License-Identifier: Apache-2.0
 *
 * The picture's axis of addresses. Addresses of a process lie terabytes apart, so the axis is made of pieces: stretches
 * that blocks ever held, one above the other, with the holes between them cut to a mark. Where a source tells no
 * addresses, blocks are laid out by a quick placement and the page says so.
 */
#include "ebb/place.h"
#include "report/report_page_priv.h"

#include <inttypes.h>

#define MAX_PIECES 4096u
#define HOLE_SHARE 100u /* a cut hole is drawn as this part of all */

typedef struct axis {
    ebb_report_page *page;
    size_t n;
    uint32_t *order; /* [n]: blocks with an address by space, then address */
    uint64_t *key;   /* [blocks] */
    uint64_t *y;     /* [blocks] */
    uint64_t used;   /* bytes that blocks ever held */
    uint64_t hole;   /* as it is drawn */
    size_t n_pieces;
} axis;

static ebb_status sort_by(axis *a, bool by_space) {
    for (size_t i = 0; i < a->n; i++) {
        const ebb_study_block block = ebb_study_get_block(a->page->report->study, a->order[i]);
        a->key[a->order[i]] = by_space ? block.space : block.address;
    }
    return ebb__sort_by_key(a->page->mem, a->order, a->n, a->key);
}

static uint64_t end_of(const ebb_study_block *block) {
    return block->address + ebb_min_u64(block->size_bytes, UINT64_MAX - block->address);
}

/* What stretches sum up to, and which holes between them are worth a cut. */
static void measure(axis *a) {
    uint64_t end = 0, used = 0;
    uint32_t space = 0;
    for (size_t i = 0; i < a->n; i++) {
        const ebb_study_block block = ebb_study_get_block(a->page->report->study, a->order[i]);
        EBB_ASSERT(block.address != EBB_TRACE_NONE && end_of(&block) >= block.address);
        const bool follows = i > 0 && block.space == space && block.address <= end;
        const uint64_t from = follows ? end : block.address;
        if (end_of(&block) > from) { used += end_of(&block) - from; }
        end = follows ? ebb_max_u64(end, end_of(&block)) : end_of(&block);
        space = block.space;
    }
    a->used = used;
    a->hole = used / HOLE_SHARE + 1;
}

static void put_piece(axis *a, uint64_t y, const ebb_study_block *block) {
    if (a->n_pieces++ >= MAX_PIECES) { return; }
    char address[24];
    (void)snprintf(address, sizeof address, "0x%" PRIx64, block->address);
    ebb_json_open(&a->page->json, NULL, '{');
    ebb_json_u64(&a->page->json, "y", y);
    ebb_json_text(&a->page->json, "address", address);
    ebb_json_u64(&a->page->json, "space", block->space);
    ebb_json_close(&a->page->json, '}');
}

/* Addresses to y: within a piece y grows as the address does. */
static uint64_t lay_pieces(axis *a) {
    uint64_t end = 0, base = 0, start = 0, top = 0; /* of the piece: y base stands for address start */
    uint32_t space = 0;
    for (size_t i = 0; i < a->n; i++) {
        const ebb_study_block block = ebb_study_get_block(a->page->report->study, a->order[i]);
        const bool is_new = i == 0 || block.space != space || (block.address > end && block.address - end > a->hole);
        if (is_new) {
            base = i == 0 ? 0 : top + a->hole;
            start = block.address;
            end = start;
            put_piece(a, base, &block);
        }
        EBB_ASSERT(block.address >= start); /* they are sorted, and a piece is of one space */
        a->y[a->order[i]] = base + (block.address - start);
        end = ebb_max_u64(end, end_of(&block));
        top = base + (end - start);
        space = block.space;
    }
    return top;
}

static ebb_status lay_told(axis *a, uint64_t *top_out) {
    EBB_TRY(sort_by(a, false));
    EBB_TRY(sort_by(a, true)); /* equal keys keep their order */
    measure(a);
    ebb_json_open(&a->page->json, "pieces", '[');
    *top_out = lay_pieces(a);
    ebb_json_close(&a->page->json, ']');
    return EBB_OK;
}

static ebb_status lay_placed(axis *a, uint64_t *top_out) {
    const size_t n = (size_t)a->page->report->summary.n_blocks;
    ebb_place_item *items = ebb__alloc(a->page->mem, n + 1, sizeof *items);
    if (items == NULL) { return EBB_E_NO_MEMORY; }
    const uint64_t most_bytes = ((uint64_t)1 << 62) / (n + 1); /* a solver takes no more; no machine has so much */
    for (size_t i = 0; i < n; i++) {
        const ebb_study_block block = ebb_study_get_block(a->page->report->study, i);
        const uint64_t died =
            block.died_event == EBB_STUDY_UNKNOWN ? a->page->report->summary.n_events : block.died_event;
        items[i] = (ebb_place_item){.size_bytes = ebb_min_u64(block.size_bytes, most_bytes),
                                    .first = block.born_event,
                                    .last = ebb_max_u64(died, block.born_event + 1)};
    }
    ebb_place_problem problem = EBB_PLACE_PROBLEM_INIT;
    problem.items = items;
    problem.n_items = n;
    ebb_place_options options = EBB_PLACE_OPTIONS_INIT;
    options.any_end = true;
    options.mem = a->page->mem;
    options.max_steps = 1; /* a picture's, not a plan's */
    ebb_place_result result = {0};
    const ebb_status status = ebb_place_solve(&problem, &options, a->y, &result);
    ebb__free(a->page->mem, items);
    if (status != EBB_OK) { return status; }
    ebb_json_null(&a->page->json, "pieces");
    *top_out = result.peak_bytes;
    return EBB_OK;
}

ebb_status ebb__report_put_addresses(ebb_report_page *page, uint64_t *y_out, uint64_t *top_out) {
    const size_t n = (size_t)page->report->summary.n_blocks;
    axis a = {.page = page, .y = y_out};
    a.order = ebb__alloc(page->mem, n + 1, sizeof *a.order);
    a.key = ebb__alloc(page->mem, n + 1, sizeof *a.key);
    ebb_status status = a.order != NULL && a.key != NULL ? EBB_OK : EBB_E_NO_MEMORY;
    for (size_t i = 0; i < n && status == EBB_OK; i++) {
        const ebb_study_block block = ebb_study_get_block(page->report->study, i);
        y_out[i] = EBB_TRACE_NONE;
        if (block.address != EBB_TRACE_NONE) { a.order[a.n++] = (uint32_t)i; }
    }
    uint64_t top = 0;
    if (status == EBB_OK) { status = a.n > 0 ? lay_told(&a, &top) : lay_placed(&a, &top); }
    ebb__free(page->mem, a.order);
    ebb__free(page->mem, a.key);
    if (status == EBB_OK) { *top_out = ebb_max_u64(top, 1); }
    return status;
}
