/* SPDX-License-Identifier: Apache-2.0
 *
 * Live and reserved bytes over time, in as many bins as a picture has columns. Two logs, of blocks and of segments, are
 * gone through side by side in the order of events.
 */
#include "study/study_priv.h"

#define MAX_BINS ((size_t)1 << 24)

typedef struct curve {
    const ebb_study *study;
    bool by_time, has_segments;
    size_t next, next_segment; /* in the two logs */
    uint64_t live_bytes, reserved_bytes;
    uint64_t role_bytes[EBB_N_ROLES];
    uint64_t last_ns, last_event; /* of what has been taken */
} curve;

static void set_high(const curve *c, ebb_study_bin *bin) {
    bin->high_bytes = c->live_bytes;
    bin->high_ns = c->last_ns;
    bin->high_event = c->last_event;
    memcpy(bin->role_bytes, c->role_bytes, sizeof bin->role_bytes);
}

static void take_block(curve *c, ebb_study_bin *bin) {
    const uint32_t entry = c->study->log.data[c->next++];
    const study_block *block = &c->study->blocks.data[entry >> 1];
    const uint64_t change = (entry & 1u) != 0 ? 0 - block->size_bytes : block->size_bytes; /* modulo 2^64 */
    c->live_bytes += change;
    c->role_bytes[block->likely_role] += change;
    c->last_ns = study_log_ns(c->study, entry);
    c->last_event = study_log_event(c->study, entry);
    bin->low_bytes = ebb_min_u64(bin->low_bytes, c->live_bytes);
    if (c->live_bytes > bin->high_bytes) { set_high(c, bin); }
}

static void take_segment(curve *c, ebb_study_bin *bin) {
    const uint32_t entry = c->study->segment_log.data[c->next_segment++];
    const uint64_t size_bytes = c->study->segments.data[entry >> 1].size_bytes;
    c->reserved_bytes += (entry & 1u) != 0 ? 0 - size_bytes : size_bytes;
    bin->reserved_bytes = ebb_max_u64(bin->reserved_bytes, c->reserved_bytes);
}

/* Whether the next entry of a log comes before this place on the axis. */
static bool block_is_due(const curve *c, uint64_t until) {
    if (c->next == c->study->log.n) { return false; }
    const uint32_t entry = c->study->log.data[c->next];
    return (c->by_time ? study_log_ns(c->study, entry) : study_log_event(c->study, entry)) < until;
}

static bool segment_is_due(const curve *c, uint64_t until) {
    if (!c->has_segments || c->next_segment == c->study->segment_log.n) { return false; }
    const uint32_t entry = c->study->segment_log.data[c->next_segment];
    return (c->by_time ? study_segment_ns(c->study, entry) : study_segment_event(c->study, entry)) < until;
}

static void fill_bin(curve *c, ebb_study_bin *bin, bool is_last) {
    const uint64_t until = is_last ? UINT64_MAX : bin->last;
    bin->low_bytes = c->live_bytes;
    bin->reserved_bytes = c->has_segments ? c->reserved_bytes : EBB_STUDY_UNKNOWN;
    set_high(c, bin);
    bin->high_ns = c->by_time ? bin->first : c->last_ns; /* it began so */
    while (block_is_due(c, until)) { take_block(c, bin); }
    while (segment_is_due(c, until)) { take_segment(c, bin); }
}

ebb_status ebb_study_curve(const ebb_study *study, ebb_study_axis axis, size_t n_bins, ebb_study_bin *bins_out,
                           ebb_study_axis *axis_out) {
    EBB_NEED(study);
    EBB_NEED(bins_out);
    EBB_NEED(axis_out);
    if (n_bins == 0 || n_bins > MAX_BINS) { return ebb_fail(EBB_E_ARGUMENT, "a curve of %zu bins", n_bins); }
    const ebb_study_summary *sum = &study->summary;
    curve c = {.study = study,
               .by_time = axis == EBB_STUDY_BY_TIME && study_tells(study, EBB_TRACE_TELLS_TIMES),
               .has_segments = study_tells(study, EBB_TRACE_TELLS_SEGMENTS),
               .last_ns = sum->first_ns};
    const uint64_t first = c.by_time ? sum->first_ns : 0;
    const uint64_t span = c.by_time ? sum->last_ns - sum->first_ns : sum->n_events;
    for (size_t k = 0; k < n_bins; k++) {
        ebb_study_bin bin = {.first = first + study_part(span, k, n_bins),
                             .last = first + study_part(span, k + 1, n_bins)};
        fill_bin(&c, &bin, k + 1 == n_bins);
        bins_out[k] = bin;
    }
    *axis_out = c.by_time ? EBB_STUDY_BY_TIME : EBB_STUDY_BY_EVENT;
    EBB_ASSERT(c.next == study->log.n && c.live_bytes == sum->end_live_bytes);
    return EBB_OK;
}
