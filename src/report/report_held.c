/* SPDX-License-Identifier: Apache-2.0
 *
 * The allocator's segments over time, for the page's map of a moment: where each lies, from when to when, and of which
 * stream and pool it is. Events of segments do not say the last two; the blocks that lie in them do. A stream's
 * segments serve that stream alone, and PyTorch's allocator keeps blocks of at most 1 MiB apart from larger ones.
 */
#include "report/report_page_priv.h"

#include <inttypes.h>

#define MAX_SEGMENTS ((size_t)4000)
#define MAX_SAME_PLACE 64u /* segments below a block that are looked at */
#define SMALL_BYTES ((uint64_t)1 << 20)
#define NO_ROW UINT32_MAX

typedef struct held {
    ebb_study_segment_life life;
    uint64_t largest_block;
    uint32_t row;
} held;

typedef struct held_list {
    ebb_report_page *page;
    EBB_VEC(held) segments; /* by space, then address, then birth */
} held_list;

static uint64_t by_address(const void *item) {
    return ((const held *)item)->life.address;
}

static uint64_t by_space(const void *item) {
    return ((const held *)item)->life.space;
}

static uint64_t falling_bytes(const void *item) {
    return ~((const held *)item)->life.size_bytes;
}

static ebb_status list_segments(held_list *l) {
    held one = {.row = NO_ROW};
    for (uint64_t i = 0; ebb_study_get_segment_life(l->page->report->study, i, &one.life); i++) {
        EBB_TRY(EBB_PUSH(l->page->mem, &l->segments, one));
    }
    EBB_TRY(ebb__sort_items(l->page->mem, l->segments.data, l->segments.n, sizeof one, by_address));
    return ebb__sort_items(l->page->mem, l->segments.data, l->segments.n, sizeof one, by_space);
}

static bool lies_below(const held *s, const ebb_study_block *block) {
    return s->life.space != block->space ? s->life.space < block->space : s->life.address <= block->address;
}

/* The segment that a block is born in; NULL: not known. */
static held *segment_of(held_list *l, const ebb_study_block *block) {
    size_t low = 0, high = l->segments.n;
    while (low < high) { /* the first that lies above */
        const size_t middle = low + (high - low) / 2;
        if (lies_below(&l->segments.data[middle], block)) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    for (size_t n = 0; low-- > 0 && n < MAX_SAME_PLACE; n++) {
        held *s = &l->segments.data[low];
        const bool is_in = s->life.space == block->space && block->address - s->life.address < s->life.size_bytes;
        if (is_in && s->life.born_event <= block->born_event && block->born_event < s->life.died_event) { return s; }
    }
    return NULL;
}

static void ask_blocks(held_list *l) {
    for (uint64_t b = 0; b < l->page->report->summary.n_blocks && l->segments.n > 0; b++) {
        const ebb_study_block block = ebb_study_get_block(l->page->report->study, b);
        held *s = block.address != EBB_TRACE_NONE ? segment_of(l, &block) : NULL;
        if (s == NULL) { continue; }
        if (s->row == NO_ROW) { s->row = block.row; }
        s->largest_block = ebb_max_u64(s->largest_block, block.size_bytes);
    }
}

static void put_one(ebb_report_page *page, const held *s) {
    ebb_json *json = &page->json;
    const bool is_pytorch = strncmp(page->report->summary.source, "pytorch", strlen("pytorch")) == 0;
    const uint64_t largest = s->largest_block > 0 ? s->largest_block : s->life.size_bytes / 2;
    const bool is_kept = s->life.died_event == EBB_STUDY_UNKNOWN;
    char address[24];
    (void)snprintf(address, sizeof address, "0x%" PRIx64, s->life.address);
    ebb_json_open(json, NULL, '[');
    ebb_json_text(json, NULL, address);
    ebb_json_u64(json, NULL, s->life.size_bytes);
    ebb_json_u64(json, NULL, ebb__report_page_x(page, s->life.born_ns, s->life.born_event));
    ebb_json_u64(json, NULL, is_kept ? page->end : ebb__report_page_x(page, s->life.died_ns, s->life.died_event));
    ebb_json_u64(json, NULL, is_kept);
    ebb__report_page_i64(page, NULL, s->row == NO_ROW ? -1 : (int64_t)s->row);
    ebb__report_page_i64(page, NULL, !is_pytorch ? -1 : largest > SMALL_BYTES);
    ebb_json_close(json, ']');
}

static void put_rows(ebb_report_page *page) {
    ebb_json_open(&page->json, "rows", '[');
    for (unsigned row = 0; row < EBB_TRACE_MAX_ROWS; row++) {
        char key[24];
        (void)snprintf(key, sizeof key, "row.%u", row);
        const char *name = ebb_trace_reader_note(page->report->reader, key);
        if (name == NULL) { break; }
        ebb_json_text(&page->json, NULL, name);
    }
    ebb_json_close(&page->json, ']');
}

ebb_status ebb__report_put_held(ebb_report_page *page) {
    held_list l = {.page = page};
    ebb_status status = list_segments(&l);
    const size_t n = l.segments.n;
    if (status == EBB_OK) {
        ask_blocks(&l);
        status = ebb__sort_items(page->mem, l.segments.data, n, sizeof *l.segments.data, falling_bytes);
    }
    ebb_json_open(&page->json, "held", '[');
    for (size_t i = 0; i < n && i < MAX_SEGMENTS && status == EBB_OK; i++) { put_one(page, &l.segments.data[i]); }
    ebb_json_close(&page->json, ']');
    ebb_json_u64(&page->json, "held_left_out", n > MAX_SEGMENTS ? n - MAX_SEGMENTS : 0);
    put_rows(page);
    EBB_VEC_FINI(page->mem, &l.segments);
    return status;
}
