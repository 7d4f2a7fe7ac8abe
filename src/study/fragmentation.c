/* SPDX-License-Identifier: Apache-2.0
 *
 * The bytes that are reserved and not live, and the blocks that cause it: at the moment at which most is live, of those
 * at which at least 99 % of the most is reserved. Just when the last segment is taken, what it is taken for is not yet
 * live; and an allocator that keeps what it has may hold the most when next to nothing is live.
 *
 *      segment  |#### live ####|r|........ free ........|## live ##|r|...|     r: rounding, up to a multiple of 512
 *
 * A segment with a live block cannot go back to the device, so its free bytes are pinned by the blocks in it; each of
 * them is charged with its share, equal for all. The bytes after a block up to the next multiple of 512 are rounding,
 * where the allocator is PyTorch's and no other block begins there.
 */
#include "study/study_priv.h"

#define GRANULE_BYTES ((uint64_t)512)
#define NEAR_PEAK 100u /* within one part of this many of the most */

typedef struct layout {
    ebb_study *study;
    uint32_t *segments; /* that are there at the moment, by space and address */
    uint32_t *blocks;   /* alike */
    size_t n_segments, n_blocks;
    bool rounds;
} layout;

/* ---- over time -------------------------------------------------------------------------------- */

typedef struct lost_walk {
    const ebb_study *study;
    bool by_time;
    uint64_t at, reserved_bytes, live_bytes;
    uint64_t enough_bytes; /* a moment counts at which at least so much is reserved */
    uint64_t most_bytes;   /* live at such a moment */
    bool has_moment;
    double area;
} lost_walk;

static void pass(lost_walk *w, uint64_t at) {
    EBB_ASSERT(at >= w->at);
    w->area += ((double)w->reserved_bytes - (double)w->live_bytes) * (double)(at - w->at);
    w->at = at;
}

static void note_moment(lost_walk *w, ebb_study_fragmentation *f, uint32_t event, uint64_t ns) {
    if (w->reserved_bytes < w->enough_bytes || (w->has_moment && w->live_bytes <= w->most_bytes)) { return; }
    w->has_moment = true;
    w->most_bytes = w->live_bytes;
    f->reserved_bytes = w->reserved_bytes;
    f->moment_event = event;
    f->moment_ns = ns;
}

static void take_block(lost_walk *w, ebb_study_fragmentation *f, uint32_t entry) {
    const uint64_t size_bytes = w->study->blocks.data[entry >> 1].size_bytes, ns = study_log_ns(w->study, entry);
    const uint32_t event = study_log_event(w->study, entry);
    pass(w, w->by_time ? ns : event);
    w->live_bytes += (entry & 1u) != 0 ? 0 - size_bytes : size_bytes;
    note_moment(w, f, event, ns);
}

static void take_segment(lost_walk *w, ebb_study_fragmentation *f, uint32_t entry) {
    const uint64_t size_bytes = w->study->segments.data[entry >> 1].size_bytes, ns = study_segment_ns(w->study, entry);
    const uint32_t event = study_segment_event(w->study, entry);
    pass(w, w->by_time ? ns : event);
    w->reserved_bytes += (entry & 1u) != 0 ? 0 - size_bytes : size_bytes;
    note_moment(w, f, event, ns);
}

/* The moment, and what is lost on average. */
static void walk_time(ebb_study *s) {
    ebb_study_fragmentation *f = &s->fragmentation;
    const bool by_time = study_tells(s, EBB_TRACE_TELLS_TIMES);
    const uint64_t peak_bytes = s->summary.reserved_peak_bytes;
    lost_walk w = {.study = s,
                   .by_time = by_time,
                   .at = by_time ? s->summary.first_ns : 0,
                   .enough_bytes = peak_bytes - peak_bytes / NEAR_PEAK};
    const uint64_t first_at = w.at, end_at = by_time ? s->summary.last_ns : s->summary.n_events;
    for (size_t i = 0, k = 0; i < s->log.n || k < s->segment_log.n;) {
        const uint32_t block_event = i < s->log.n ? study_log_event(s, s->log.data[i]) : STUDY_NONE;
        const uint32_t event = k < s->segment_log.n ? study_segment_event(s, s->segment_log.data[k]) : STUDY_NONE;
        if (block_event < event) {
            take_block(&w, f, s->log.data[i++]);
        } else {
            take_segment(&w, f, s->segment_log.data[k++]);
        }
    }
    pass(&w, end_at);
    const double mean = end_at > first_at ? w.area / (double)(end_at - first_at) : 0;
    f->mean_lost_bytes = mean > 0 ? (uint64_t)(mean + 0.5) : 0;
}

/* ---- the moment ------------------------------------------------------------------------------- */

static bool is_there(uint32_t born_event, uint32_t died_event, uint32_t event) {
    return born_event <= event && died_event > event;
}

static ebb_status sort_places(const ebb_study *s, uint32_t *idx, size_t n, const uint64_t *address,
                              const uint64_t *space) {
    EBB_TRY(ebb__sort_by_key(s->mem, idx, n, address));
    return ebb__sort_by_key(s->mem, idx, n, space);
}

static ebb_status list_segments(layout *l, uint32_t event, ebb_bump *scratch) {
    ebb_study *s = l->study;
    const size_t n = s->segments.n;
    uint64_t *address = ebb__bump_alloc(scratch, n, sizeof *address);
    uint64_t *space = ebb__bump_alloc(scratch, n, sizeof *space);
    l->segments = ebb__bump_alloc(scratch, n, sizeof *l->segments);
    if (address == NULL || space == NULL || l->segments == NULL) { return EBB_E_NO_MEMORY; }
    for (size_t k = 0; k < s->segment_log.n; k++) {
        const uint32_t entry = s->segment_log.data[k];
        const study_segment *g = &s->segments.data[entry >> 1];
        address[entry >> 1] = g->address;
        space[entry >> 1] = g->space;
        if ((entry & 1u) != 0 || !is_there(g->born_event, g->died_event, event)) { continue; }
        l->segments[l->n_segments++] = entry >> 1;
    }
    return sort_places(s, l->segments, l->n_segments, address, space);
}

static ebb_status list_blocks(layout *l, uint32_t event, ebb_bump *scratch) {
    ebb_study *s = l->study;
    const size_t n = s->blocks.n;
    uint64_t *address = ebb__bump_alloc(scratch, n, sizeof *address);
    uint64_t *space = ebb__bump_alloc(scratch, n, sizeof *space);
    l->blocks = ebb__bump_alloc(scratch, n, sizeof *l->blocks);
    if (address == NULL || space == NULL || l->blocks == NULL) { return EBB_E_NO_MEMORY; }
    for (size_t b = 0; b < n; b++) {
        const study_block *block = &s->blocks.data[b];
        address[b] = block->address;
        space[b] = block->space;
        if (!is_there(block->born_event, block->died_event, event)) { continue; }
        s->fragmentation.live_bytes += block->size_bytes;
        if (block->size_bytes > 0 && block->address != EBB_TRACE_NONE) { l->blocks[l->n_blocks++] = (uint32_t)b; }
    }
    return sort_places(s, l->blocks, l->n_blocks, address, space);
}

/* ---- segments and what lies in them ----------------------------------------------------------- */

typedef struct filling {
    const layout *layout;
    ebb_study_segment row;
    uint64_t at, end; /* [address, at) is gone through */
    uint64_t rounding_bytes;
    bool behind_block;
} filling;

/* Nothing lies in [at, to), but for rounding. */
static void pass_free(filling *f, uint64_t to) {
    if (to <= f->at) { return; }
    const uint64_t rounded = ebb_min_u64(ebb_align_up(f->at, GRANULE_BYTES), to);
    const bool rounds = f->layout->rounds && f->behind_block && rounded > f->at;
    const uint64_t rounding = rounds ? rounded - f->at : 0;
    f->rounding_bytes += rounding;
    f->row.largest_free_bytes = ebb_max_u64(f->row.largest_free_bytes, to - f->at - rounding);
    f->at = to;
}

static void pass_block(filling *f, const study_block *b) {
    const uint64_t end = ebb_min_u64(study_add(b->address, b->size_bytes), f->end);
    pass_free(f, b->address);
    if (end > f->at) {
        f->row.live_bytes += end - f->at;
        f->at = end;
    }
    f->behind_block = true;
    f->row.n_pins++;
}

/* The blocks of a segment are those from *next on. One that goes on after its end belongs to the one after it too, as
 * in expandable segments; it is the only one that is gone through again. */
static ebb_status fill_segment(layout *l, filling *f, size_t *next) {
    ebb_study *s = l->study;
    for (; *next < l->n_blocks; (*next)++) {
        const study_block *b = &s->blocks.data[l->blocks[*next]];
        const uint64_t end = study_add(b->address, b->size_bytes);
        if (b->space > f->row.space || (b->space == f->row.space && b->address >= f->end)) { return EBB_OK; }
        if (b->space < f->row.space || end <= f->row.address) { continue; }
        pass_block(f, b);
        EBB_TRY(EBB_PUSH(s->mem, &s->pins, l->blocks[*next]));
        if (end > f->end) { return EBB_OK; }
    }
    return EBB_OK;
}

static ebb_status measure_segment(layout *l, const study_segment *g, size_t *next) {
    ebb_study *s = l->study;
    ebb_study_fragmentation *sum = &s->fragmentation;
    filling f = {.layout = l, .at = g->address, .end = study_add(g->address, g->size_bytes)};
    f.row = (ebb_study_segment){
        .address = g->address, .size_bytes = g->size_bytes, .space = g->space, .born_event = g->born_event};
    EBB_TRY(EBB_PUSH(s->mem, &s->first_pin, s->pins.n));
    EBB_TRY(fill_segment(l, &f, next));
    pass_free(&f, f.end);
    EBB_ASSERT(f.row.live_bytes <= f.row.size_bytes);
    f.row.free_bytes = f.row.size_bytes - f.row.live_bytes;
    sum->rounding_bytes += f.rounding_bytes;
    if (f.row.n_pins == 0) {
        sum->empty_bytes += f.row.free_bytes;
        sum->n_empty++;
    } else {
        sum->pinned_bytes += f.row.free_bytes - f.rounding_bytes;
    }
    return EBB_PUSH(s->mem, &s->segment_rows, f.row);
}

/* A row, and where its pins begin. */
typedef struct pinned_row {
    ebb_study_segment row;
    size_t first_pin;
} pinned_row;

static uint64_t falling_free_bytes(const void *item) {
    return ~((const pinned_row *)item)->row.free_bytes;
}

/* Those with the most free bytes first. */
static ebb_status sort_rows(ebb_study *s, ebb_bump *scratch) {
    const size_t n = s->segment_rows.n;
    pinned_row *rows = ebb__bump_alloc(scratch, n, sizeof *rows);
    if (rows == NULL) { return EBB_E_NO_MEMORY; }
    for (size_t i = 0; i < n; i++) { rows[i] = (pinned_row){s->segment_rows.data[i], s->first_pin.data[i]}; }
    EBB_TRY(ebb__sort_items(s->mem, rows, n, sizeof *rows, falling_free_bytes));
    for (size_t i = 0; i < n; i++) {
        s->segment_rows.data[i] = rows[i].row;
        s->first_pin.data[i] = rows[i].first_pin;
    }
    return EBB_OK;
}

/* Each pin with its share of its segment's free bytes. A block that pins several is several. */
static ebb_status find_pinners(ebb_study *s, ebb_bump *scratch) {
    study_set set = {.blocks = s->pins.data, .n = 0};
    uint32_t *blocks = ebb__bump_alloc(scratch, s->pins.n, sizeof *blocks);
    uint64_t *bytes = ebb__bump_alloc(scratch, s->pins.n, sizeof *bytes);
    if (blocks == NULL || bytes == NULL) { return EBB_E_NO_MEMORY; }
    for (size_t g = 0; g < s->segment_rows.n; g++) {
        const ebb_study_segment *row = &s->segment_rows.data[g];
        for (size_t i = 0; i < row->n_pins; i++) {
            blocks[set.n] = s->pins.data[s->first_pin.data[g] + i];
            bytes[set.n++] = row->free_bytes / row->n_pins + (i < row->free_bytes % row->n_pins);
        }
    }
    set.blocks = blocks;
    set.bytes = bytes;
    return ebb__study_group(s, EBB_STUDY_BY_SITE, &set, &s->pinners);
}

static ebb_status lay_out(layout *l, uint32_t event, ebb_bump *scratch) {
    ebb_study *s = l->study;
    EBB_TRY(list_segments(l, event, scratch));
    EBB_TRY(list_blocks(l, event, scratch));
    s->fragmentation.n_segments = l->n_segments;
    if (!study_tells(s, EBB_TRACE_TELLS_ADDRESSES)) {
        s->fragmentation.rounding_bytes = s->fragmentation.pinned_bytes = EBB_STUDY_UNKNOWN;
        s->fragmentation.empty_bytes = s->fragmentation.n_empty = EBB_STUDY_UNKNOWN;
        return EBB_OK;
    }
    size_t next = 0;
    for (size_t i = 0; i < l->n_segments; i++) {
        EBB_TRY(measure_segment(l, &s->segments.data[l->segments[i]], &next));
    }
    EBB_TRY(sort_rows(s, scratch));
    return find_pinners(s, scratch);
}

/* ---- the door --------------------------------------------------------------------------------- */

ebb_status ebb__study_find_fragmentation(ebb_study *s) {
    ebb_study_fragmentation f = {.known = false};
    s->fragmentation = f;
    if (s->summary.reserved_peak_bytes == EBB_STUDY_UNKNOWN || s->summary.reserved_peak_bytes == 0) { return EBB_OK; }
    walk_time(s);
    layout l = {.study = s, .rounds = study_is_pytorch(s)};
    ebb_bump scratch;
    ebb__bump_init(&scratch, s->mem);
    const ebb_status st = lay_out(&l, (uint32_t)s->fragmentation.moment_event, &scratch);
    ebb__bump_fini(&scratch);
    EBB_TRY(st);
    s->fragmentation.known = s->fragmentation.live_bytes <= s->fragmentation.reserved_bytes;
    if (!s->fragmentation.known) { /* not all segments were told */
        s->fragmentation = f;
        s->segment_rows.n = s->pinners.n = 0;
        return EBB_OK;
    }
    s->fragmentation.reserved_peak_bytes = s->summary.reserved_peak_bytes;
    s->fragmentation.lost_bytes = s->fragmentation.reserved_bytes - s->fragmentation.live_bytes;
    return EBB_OK;
}

ebb_study_fragmentation ebb_study_get_fragmentation(const ebb_study *study) {
    return study->fragmentation;
}

const ebb_study_segment *ebb_study_segments(const ebb_study *study, size_t *n_out) {
    *n_out = study->segment_rows.n;
    return study->segment_rows.data;
}

size_t ebb_study_segment_pins(const ebb_study *study, size_t segment, size_t first, size_t n, uint64_t *blocks_out) {
    EBB_ASSERT(segment < study->segment_rows.n);
    const size_t n_pins = (size_t)study->segment_rows.data[segment].n_pins;
    const size_t first_pin = study->first_pin.data[segment];
    size_t n_given = 0;
    for (; n_given < n && first < n_pins; n_given++, first++) {
        blocks_out[n_given] = study->pins.data[first_pin + first];
    }
    return n_given;
}

const ebb_study_holder *ebb_study_pinners(const ebb_study *study, size_t *n_out) {
    *n_out = study->pinners.n;
    return study->pinners.data;
}

bool ebb_study_get_segment_life(const ebb_study *study, uint64_t i, ebb_study_segment_life *life_out) {
    if (i >= study->born_segments.n) { return false; }
    const study_segment *g = &study->segments.data[study->born_segments.data[i]];
    *life_out = (ebb_study_segment_life){.address = g->address,
                                         .size_bytes = g->size_bytes,
                                         .born_ns = g->born_ns,
                                         .born_event = g->born_event,
                                         .died_ns = g->died_ns,
                                         .died_event = g->died_event == STUDY_NONE ? EBB_STUDY_UNKNOWN : g->died_event,
                                         .space = g->space};
    return true;
}
