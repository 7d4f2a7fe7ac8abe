/* SPDX-License-Identifier: Apache-2.0
 *
 * What the page's script reads: one object with the report of --json in it and, for the pictures, as many points as a
 * picture can show. Texts and stack frames are numbers into two tables at its end.
 */
#include "report/report_page_priv.h"

#include <inttypes.h>
#include <math.h>

#define N_CURVE_BINS ((size_t)800)
#define N_CDF_POINTS 120u
#define MAX_HOLDERS ((size_t)300)
#define MAX_MEMBERS ((size_t)2000) /* of the rows of one group */
#define MAX_SEGMENTS ((size_t)60)
#define MAX_PINS ((size_t)8)
#define MAX_OUTLIERS ((size_t)1000)
#define MAX_PARTS ((size_t)2000)
#define MAX_TEXTS ((size_t)20000)
#define MAX_TEXT_BYTES ((size_t)600 * 1000)
#define MAX_TEXT_SHOWN ((size_t)200)
#define MAX_FRAMES ((size_t)20000)
#define MAX_STACK_DEPTH 64u

/* ---- numbers for what comes again -------------------------------------------------------------- */

void ebb__report_index_init(ebb_report_index *index, const ebb_mem *mem) {
    *index = (ebb_report_index){.keys = {0}};
    ebb__u64_map_init(&index->number_of, mem);
}

void ebb__report_index_fini(ebb_report_index *index) {
    EBB_VEC_FINI(index->number_of.mem, &index->keys);
    ebb__u64_map_fini(&index->number_of);
}

static ebb_status add_key(ebb_report_index *index, uint64_t key, int64_t *number_out) {
    uint64_t *number = NULL;
    bool is_new = false;
    EBB_TRY(ebb__u64_map_add(&index->number_of, key, &number, &is_new));
    if (is_new) {
        *number = index->keys.n;
        EBB_TRY(EBB_PUSH(index->number_of.mem, &index->keys, key));
    }
    *number_out = (int64_t)*number;
    return EBB_OK;
}

/* -1: it is not in. */
static int64_t find_key(const ebb_report_index *index, uint64_t key) {
    const uint64_t *number = ebb__u64_map_find(&index->number_of, key);
    return number != NULL ? (int64_t)*number : -1;
}

ebb_status ebb__report_page_text(ebb_report_page *page, const char *text, int64_t *number_out) {
    *number_out = -1;
    if (text[0] == '\0') { return EBB_OK; }
    const uint64_t key = (uint64_t)(uintptr_t)text;
    const size_t n_before = page->texts.keys.n;
    if (n_before >= MAX_TEXTS || page->text_bytes >= MAX_TEXT_BYTES) { /* only what is there */
        *number_out = find_key(&page->texts, key);
        return EBB_OK;
    }
    EBB_TRY(add_key(&page->texts, key, number_out));
    if (page->texts.keys.n > n_before) { page->text_bytes += strnlen(text, MAX_TEXT_SHOWN); }
    return EBB_OK;
}

ebb_status ebb__report_page_stack(ebb_report_page *page, uint32_t stack, int64_t *number_out) {
    *number_out = -1;
    if (stack == 0 || page->frames.keys.n >= MAX_FRAMES) { return EBB_OK; }
    EBB_TRY(add_key(&page->frames, stack, number_out));
    for (unsigned depth = 0; stack != 0 && depth < MAX_STACK_DEPTH; depth++) {
        const ebb_trace_frame frame = ebb_trace_reader_frame(page->report->reader, stack);
        int64_t number = 0, text = 0;
        EBB_TRY(add_key(&page->frames, stack, &number));
        EBB_TRY(ebb__report_page_text(page, ebb_trace_reader_string(page->report->reader, frame.function), &text));
        EBB_TRY(ebb__report_page_text(page, ebb_trace_reader_string(page->report->reader, frame.file), &text));
        stack = frame.caller;
    }
    return EBB_OK;
}

void ebb__report_page_i64(ebb_report_page *page, const char *key, int64_t value) {
    if (value < 0) {
        ebb_json_f64(&page->json, key, -1.0, EBB_JSON_F64_DIGITS); /* all that is negative here is 'none' */
    } else {
        ebb_json_u64(&page->json, key, (uint64_t)value);
    }
}

uint64_t ebb__report_page_x(const ebb_report_page *page, uint64_t time_ns, uint64_t event) {
    EBB_ASSERT(time_ns >= page->report->summary.first_ns && event < page->report->summary.n_events);
    return page->by_time ? time_ns - page->report->summary.first_ns : event;
}

/* ---- curves ----------------------------------------------------------------------------------- */

/* The roles add up to the bin's height. */
static bool is_bin_valid(const ebb_study_bin *bin) {
    uint64_t bytes = 0;
    for (int role = 0; role < EBB_N_ROLES; role++) { bytes += bin->role_bytes[role]; }
    return bytes == bin->high_bytes && bin->low_bytes <= bin->high_bytes;
}

static void put_curve_bins(ebb_report_page *page, const ebb_study_bin *bins) {
    ebb_json *json = &page->json;
    const ebb_study_breakdown breakdown = ebb_study_get_breakdown(page->report->study);
    ebb_json_open(json, "x", '[');
    for (size_t i = 0; i < N_CURVE_BINS; i++) {
        EBB_ASSERT(is_bin_valid(&bins[i]));
        ebb_json_u64(json, NULL, ebb__report_page_x(page, bins[i].high_ns, bins[i].high_event));
    }
    ebb_json_close(json, ']');
    ebb_json_open(json, "live", '{');
    for (int role = 0; role < EBB_N_ROLES; role++) {
        uint64_t most = breakdown.in_all[role].bytes;
        for (size_t i = 0; i < N_CURVE_BINS; i++) { most = ebb_max_u64(most, bins[i].role_bytes[role]); }
        if (most == 0) { continue; }
        ebb_json_open(json, ebb_role_name((ebb_role)role), '[');
        for (size_t i = 0; i < N_CURVE_BINS; i++) { ebb_json_u64(json, NULL, bins[i].role_bytes[role]); }
        ebb_json_close(json, ']');
    }
    ebb_json_close(json, '}');
    if (!ebb__report_tells(page->report, EBB_TRACE_TELLS_SEGMENTS)) {
        ebb_json_null(json, "reserved");
        return;
    }
    ebb_json_open(json, "reserved", '[');
    for (size_t i = 0; i < N_CURVE_BINS; i++) {
        ebb__report_page_i64(page, NULL, (int64_t)bins[i].reserved_bytes); /* unknown is below 0 */
    }
    ebb_json_close(json, ']');
}

static ebb_status put_curve(ebb_report_page *page) {
    const ebb_study_summary *s = &page->report->summary;
    ebb_study_bin *bins = ebb__calloc(page->mem, N_CURVE_BINS, sizeof *bins);
    if (bins == NULL) { return EBB_E_NO_MEMORY; }
    ebb_study_axis axis = EBB_STUDY_BY_TIME;
    const ebb_status status =
        s->n_blocks > 0 ? ebb_study_curve(page->report->study, axis, N_CURVE_BINS, bins, &axis) : EBB_OK;
    ebb_json_open(&page->json, "curve", '{');
    if (status == EBB_OK && s->n_blocks > 0) {
        put_curve_bins(page, bins);
        ebb_json_u64(&page->json, "peak_x", ebb__report_page_x(page, s->peak_ns, s->peak_event));
    }
    ebb_json_close(&page->json, '}');
    ebb__free(page->mem, bins);
    return status;
}

/* ---- intervals -------------------------------------------------------------------------------- */

static void put_cdf(ebb_report_page *page, ebb_study_kind from, ebb_study_kind to, const ebb_study_times *times) {
    ebb_json *json = &page->json;
    const double low = log((double)ebb_max_u64(times->min_ns, 1)), high = log((double)ebb_max_u64(times->max_ns, 1));
    ebb_json_open(json, "cdf", '[');
    for (unsigned i = 0; i < N_CDF_POINTS; i++) {
        const bool is_last = i + 1 == N_CDF_POINTS;
        const double x = exp(low + (high - low) * (double)i / (N_CDF_POINTS - 1));
        const uint64_t ns = is_last ? times->max_ns : (uint64_t)x;
        const uint64_t n = ebb_study_intervals_until(page->report->study, from, to, ns);
        EBB_ASSERT(n <= times->count && (!is_last || n == times->count));
        ebb_json_u64(json, NULL, ns);
        ebb_json_f64(json, NULL, (double)n / (double)times->count, REPORT_PICTURE_DIGITS);
    }
    ebb_json_close(json, ']');
}

static void put_pair(ebb_report_page *page, ebb_study_kind from, ebb_study_kind to) {
    const ebb_study_times times = ebb_study_intervals(page->report->study, from, to);
    ebb_json *json = &page->json;
    if (times.count == 0) { return; }
    ebb_json_open(json, NULL, '{');
    ebb_json_text(json, "from", ebb_study_kind_name(from));
    ebb_json_text(json, "to", ebb_study_kind_name(to));
    ebb_json_u64(json, "count", times.count);
    ebb_json_u64(json, "p50", times.p50_ns);
    ebb_json_u64(json, "p90", times.p90_ns);
    ebb_json_u64(json, "p99", times.p99_ns);
    ebb_json_u64(json, "max", times.max_ns);
    put_cdf(page, from, to, &times);
    ebb_json_close(json, '}');
}

static ebb_status put_outliers(ebb_report_page *page) {
    const ebb_study_outliers found = ebb_study_get_outliers(page->report->study);
    ebb_json *json = &page->json;
    ebb_json_u64(json, "n_outliers", found.count);
    ebb_json_open(json, "outliers", '[');
    for (size_t i = 0; i < found.n_kept && i < MAX_OUTLIERS; i++) {
        const ebb_study_interval *interval = &found.intervals[i];
        const ebb_study_block block = ebb_study_get_block(page->report->study, interval->block);
        EBB_ASSERT(interval->begin_ns <= interval->end_ns && interval->size_bytes == block.size_bytes);
        int64_t name = -1;
        EBB_TRY(ebb__report_page_text(page, block.name, &name));
        ebb_json_open(json, NULL, '[');
        ebb_json_u64(json, NULL, interval->end_ns - interval->begin_ns);
        ebb_json_u64(json, NULL, interval->size_bytes);
        ebb_json_u64(json, NULL, interval->block);
        ebb__report_page_i64(page, NULL, name);
        ebb_json_u64(json, NULL, (uint64_t)interval->from);
        ebb_json_u64(json, NULL, (uint64_t)interval->to);
        ebb_json_u64(json, NULL, interval->is_free ? 1 : 0);
        ebb_json_close(json, ']');
    }
    ebb_json_close(json, ']');
    return EBB_OK;
}

static ebb_status put_intervals(ebb_report_page *page) {
    ebb_json *json = &page->json;
    size_t n_cells = 0;
    const ebb_study_cell *cells = ebb_study_density(page->report->study, &n_cells);
    ebb_json_open(json, "intervals", '{');
    ebb_json_open(json, "pairs", '[');
    put_pair(page, EBB_STUDY_ANY, EBB_STUDY_ANY);
    for (int from = 0; from < EBB_STUDY_N_KINDS; from++) {
        for (int to = 0; to < EBB_STUDY_N_KINDS; to++) { put_pair(page, (ebb_study_kind)from, (ebb_study_kind)to); }
    }
    ebb_json_close(json, ']');
    ebb_json_open(json, "density", '['); /* at most 256 x 256 cells; a recording has some hundreds */
    for (size_t i = 0; i < n_cells; i++) {
        ebb_json_u64(json, NULL, cells[i].interval_log);
        ebb_json_u64(json, NULL, cells[i].size_log);
        ebb_json_u64(json, NULL, cells[i].count);
    }
    ebb_json_close(json, ']');
    EBB_TRY(put_outliers(page));
    ebb_json_close(json, '}');
    return EBB_OK;
}

/* ---- tables ----------------------------------------------------------------------------------- */

/* What a holder and a row of several have in common. */
static ebb_status put_holder(ebb_report_page *page, const char *label, uint64_t bytes, uint64_t n_blocks,
                             uint32_t stack) {
    int64_t label_number = -1, stack_number = -1;
    EBB_TRY(ebb__report_page_text(page, label, &label_number));
    EBB_TRY(ebb__report_page_stack(page, stack, &stack_number));
    ebb__report_page_i64(page, "label", label_number);
    ebb_json_u64(&page->json, "bytes", bytes);
    ebb_json_u64(&page->json, "blocks", n_blocks);
    ebb__report_page_i64(page, "stack", stack_number);
    return EBB_OK;
}

static ebb_status put_members(ebb_report_page *page, const ebb_report_fold *row, size_t *n_left) {
    ebb_json_open(&page->json, "members", '[');
    for (size_t i = 0; i < row->n_members && row->n_members > 1 && *n_left > 0; i++, --*n_left) {
        const ebb_study_holder *h = row->members[i];
        ebb_json_open(&page->json, NULL, '{');
        EBB_TRY(put_holder(page, h->label, h->bytes, h->n_blocks, h->stack));
        ebb_json_close(&page->json, '}');
    }
    ebb_json_close(&page->json, ']');
    return EBB_OK;
}

static ebb_status put_row(ebb_report_page *page, const ebb_report_fold *row, size_t *n_left) {
    ebb_json *json = &page->json;
    ebb_json_open(json, NULL, '{');
    EBB_TRY(put_holder(page, row->label, row->bytes, row->n_blocks, row->members[0]->stack));
    ebb_json_open(json, "roles", '[');
    for (int role = 0; role < EBB_N_ROLES; role++) { ebb_json_u64(json, NULL, row->role_bytes[role]); }
    ebb_json_close(json, ']');
    EBB_TRY(put_members(page, row, n_left));
    ebb_json_close(json, '}');
    return EBB_OK;
}

static ebb_status put_group(ebb_report_page *page, ebb_study_group group, const char *key) {
    const ebb_report_fold *rows = NULL;
    size_t n = 0, n_left = MAX_MEMBERS;
    EBB_TRY(ebb__report_fold(page->report, group, &page->bump, &rows, &n));
    ebb_json_open(&page->json, key, '[');
    for (size_t i = 0; i < n && i < MAX_HOLDERS; i++) { EBB_TRY(put_row(page, &rows[i], &n_left)); }
    ebb_json_close(&page->json, ']');
    return EBB_OK;
}

static ebb_status put_pinners(ebb_report_page *page) {
    size_t n = 0;
    const ebb_study_holder *pinners = ebb_study_pinners(page->report->study, &n);
    ebb_json_open(&page->json, "pinners", '[');
    for (size_t i = 0; i < n && i < MAX_HOLDERS; i++) {
        ebb_json_open(&page->json, NULL, '{');
        EBB_TRY(put_holder(page, pinners[i].label, pinners[i].bytes, pinners[i].n_blocks, pinners[i].stack));
        ebb_json_close(&page->json, '}');
    }
    ebb_json_close(&page->json, ']');
    return EBB_OK;
}

static ebb_status put_holders(ebb_report_page *page) {
    static const char *const keys[EBB_STUDY_N_GROUPS] = {"site", "stack", "module", "name"};
    ebb_json_open(&page->json, "holders", '{');
    for (int group = 0; group < EBB_STUDY_N_GROUPS; group++) {
        EBB_TRY(put_group(page, (ebb_study_group)group, keys[group]));
    }
    ebb_json_close(&page->json, '}');
    return put_pinners(page);
}

static ebb_status put_segment(ebb_report_page *page, size_t segment, const ebb_study_segment *s) {
    ebb_json *json = &page->json;
    char address[24];
    (void)snprintf(address, sizeof address, "0x%" PRIx64, s->address);
    ebb_json_open(json, NULL, '{');
    ebb_json_text(json, "address", address);
    ebb_json_u64(json, "space", s->space);
    ebb_json_u64(json, "bytes", s->size_bytes);
    ebb_json_u64(json, "free", s->free_bytes);
    ebb_json_u64(json, "largest_free", s->largest_free_bytes);
    ebb_json_u64(json, "n_pins", s->n_pins);
    uint64_t pins[MAX_PINS];
    const size_t n_pins = ebb_study_segment_pins(page->report->study, segment, 0, MAX_PINS, pins);
    ebb_json_open(json, "pins", '[');
    for (size_t i = 0; i < n_pins; i++) {
        int64_t name = -1, stack = -1;
        const ebb_study_block block = ebb_study_get_block(page->report->study, pins[i]);
        EBB_TRY(ebb__report_page_text(page, block.name, &name));
        EBB_TRY(ebb__report_page_stack(page, block.stack, &stack));
        ebb_json_open(json, NULL, '[');
        ebb_json_u64(json, NULL, pins[i]);
        ebb__report_page_i64(page, NULL, name);
        ebb_json_u64(json, NULL, block.size_bytes);
        ebb__report_page_i64(page, NULL, stack);
        ebb_json_close(json, ']');
    }
    ebb_json_close(json, ']');
    ebb_json_close(json, '}');
    return EBB_OK;
}

static ebb_status put_segments(ebb_report_page *page) {
    size_t n = 0;
    const ebb_study_segment *segments = ebb_study_segments(page->report->study, &n);
    ebb_json_open(&page->json, "segments", '[');
    for (size_t i = 0; i < n && i < MAX_SEGMENTS; i++) { EBB_TRY(put_segment(page, i, &segments[i])); }
    ebb_json_close(&page->json, ']');
    return EBB_OK;
}

/* ---- iterations ------------------------------------------------------------------------------- */

/* x of an event: by time that of the last alloc up to it. */
static uint64_t event_x(const ebb_report_page *page, uint64_t event) {
    if (!page->by_time) { return event; }
    size_t low = 0, high = (size_t)page->report->summary.n_blocks;
    while (low < high) { /* the first block born after the event */
        const size_t middle = low + (high - low) / 2;
        if (ebb_study_get_block(page->report->study, middle).born_event <= event) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    if (low == 0) { return 0; }
    return ebb__report_page_x(page, ebb_study_get_block(page->report->study, low - 1).born_ns, event);
}

static void put_parts(ebb_report_page *page) {
    static const char *const kinds[] = {"before", "iteration", "between", "after"};
    size_t n = 0;
    const ebb_iteration_part *parts = ebb_study_iteration_parts(page->report->study, &n);
    ebb_json *json = &page->json;
    ebb_json_open(json, "parts", '[');
    for (size_t i = 0; i < n && i < MAX_PARTS; i++) {
        ebb_json_open(json, NULL, '{');
        ebb_json_text(json, "kind", kinds[parts[i].kind]);
        ebb_json_u64(json, "first", parts[i].first_event);
        ebb_json_u64(json, "events", parts[i].n_events);
        ebb_json_u64(json, "x", event_x(page, parts[i].first_event));
        ebb_json_f64(json, "regularity", parts[i].regularity, REPORT_PICTURE_DIGITS);
        ebb_json_close(json, '}');
    }
    ebb_json_close(json, ']');
}

/* ---- all of it -------------------------------------------------------------------------------- */

/* At most MAX_TEXT_SHOWN bytes of a text, and not half a character: what the cut leaves of one is replaced anyway. */
static void put_texts(ebb_report_page *page) {
    ebb_json_open(&page->json, "texts", '[');
    for (size_t i = 0; i < page->texts.keys.n; i++) {
        char text[MAX_TEXT_SHOWN + 4];
        (void)snprintf(text, MAX_TEXT_SHOWN, "%s", (const char *)(uintptr_t)page->texts.keys.data[i]);
        ebb_json_text(&page->json, NULL, text);
    }
    ebb_json_close(&page->json, ']');
}

/* Five numbers a frame: the frame below, function, file, line, and the frame that is its call site. */
static ebb_status put_frames(ebb_report_page *page) {
    ebb_json_open(&page->json, "frames", '[');
    const size_t n = page->frames.keys.n;
    for (size_t i = 0; i < n; i++) {
        const ebb_trace_frame frame = ebb_trace_reader_frame(page->report->reader, (uint32_t)page->frames.keys.data[i]);
        int64_t function = -1, file = -1;
        const int64_t caller = find_key(&page->frames, frame.caller); /* none at the bottom and where the depth ended */
        EBB_TRY(ebb__report_page_text(page, ebb_trace_reader_string(page->report->reader, frame.function), &function));
        EBB_TRY(ebb__report_page_text(page, ebb_trace_reader_string(page->report->reader, frame.file), &file));
        ebb__report_page_i64(page, NULL, caller);
        ebb__report_page_i64(page, NULL, function);
        ebb__report_page_i64(page, NULL, file);
        ebb_json_u64(&page->json, NULL, frame.line);
        const uint32_t stack = (uint32_t)page->frames.keys.data[i];
        ebb__report_page_i64(page, NULL, find_key(&page->frames, ebb_study_site(page->report->study, stack)));
    }
    ebb_json_close(&page->json, ']');
    return EBB_OK;
}

static void put_names(ebb_report_page *page) {
    ebb_json_open(&page->json, "roles", '[');
    for (int role = 0; role < EBB_N_ROLES; role++) { ebb_json_text(&page->json, NULL, ebb_role_name((ebb_role)role)); }
    ebb_json_close(&page->json, ']');
    ebb_json_open(&page->json, "kinds", '[');
    for (int kind = 0; kind < EBB_STUDY_N_KINDS; kind++) {
        ebb_json_text(&page->json, NULL, ebb_study_kind_name((ebb_study_kind)kind));
    }
    ebb_json_close(&page->json, ']');
}

ebb_status ebb__report_put_page(ebb_report_page *page) {
    ebb_json *json = &page->json;
    ebb_json_open(json, NULL, '{');
    EBB_TRY(ebb__report_put_json(page->report, json, "report"));
    ebb_json_text(json, "version", ebb_version());
    ebb_json_text(json, "axis", page->by_time ? "time" : "event");
    ebb_json_u64(json, "end", page->end);
    put_names(page);
    EBB_TRY(put_curve(page));
    EBB_TRY(ebb__report_put_blocks(page));
    EBB_TRY(put_intervals(page));
    EBB_TRY(put_holders(page));
    EBB_TRY(put_segments(page));
    EBB_TRY(ebb__report_put_held(page));
    put_parts(page);
    EBB_TRY(put_frames(page));
    put_texts(page);
    ebb_json_close(json, '}');
    return EBB_OK;
}
