/* SPDX-License-Identifier: Apache-2.0
 *
 * Studies of traces from hostile bytes: whatever a reader gives is studied without harm, and the figures agree.
 */
#include "trace/trace.h"

#include "ebb/study.h"

#include <stdlib.h>

#define N_BINS 9u
#define MAX_STEPS 2000u

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void require(bool condition) {
    if (!condition) { abort(); }
}

static void check_curve(const ebb_study *study, const ebb_study_summary *sum) {
    ebb_study_bin bins[N_BINS];
    ebb_study_axis axis = EBB_STUDY_BY_TIME;
    uint64_t high = 0;
    require(ebb_study_curve(study, EBB_STUDY_BY_TIME, N_BINS, bins, &axis) == EBB_OK);
    for (size_t k = 0; k < N_BINS; k++) {
        require(bins[k].low_bytes <= bins[k].high_bytes && bins[k].first <= bins[k].last);
        high = bins[k].high_bytes > high ? bins[k].high_bytes : high;
    }
    require(high == sum->peak_bytes);
}

static void check_blocks(const ebb_study *study, const ebb_study_summary *sum) {
    uint64_t peak_bytes = 0;
    for (uint64_t b = 0; b < sum->n_blocks; b++) {
        const ebb_study_block block = ebb_study_get_block(study, b);
        ebb_study_access accesses[3];
        char text[100];
        require(block.died_event == EBB_STUDY_UNKNOWN || block.born_event < block.died_event);
        require(ebb_study_block_accesses(study, b, 1, 3, accesses) <= 3);
        (void)ebb_study_stack_text(study, block.stack, text, sizeof text);
        peak_bytes += block.live_at_peak ? block.size_bytes : 0;
    }
    require(peak_bytes == sum->peak_bytes);
    for (uint64_t s = 0; s < sum->n_steps; s++) { require(ebb_study_get_step(study, s).begin_event < sum->n_events); }
}

static void check_holders(const ebb_study *study, const ebb_study_summary *sum) {
    for (unsigned g = 0; g < EBB_STUDY_N_GROUPS; g++) {
        size_t n = 0;
        uint64_t bytes = 0;
        const ebb_study_holder *holders = ebb_study_holders(study, (ebb_study_group)g, &n);
        for (size_t i = 0; i < n; i++) {
            require(i == 0 || holders[i - 1].bytes >= holders[i].bytes);
            bytes += holders[i].bytes;
        }
        require(n == 0 || bytes == sum->peak_bytes);
    }
}

static void check_rest(const ebb_study *study, const ebb_study_summary *sum) {
    const ebb_study_swappable swap = ebb_study_get_swappable(study);
    require(!swap.known || swap.peak_bytes <= sum->peak_bytes);
    require(swap.bytes_at_peak <= sum->peak_bytes);
    const ebb_study_outliers outliers = ebb_study_get_outliers(study);
    require(outliers.n_kept <= outliers.count);
    size_t n = 0;
    const ebb_study_what_if *rows = ebb_study_what_ifs(study, &n);
    for (size_t i = 0; i < n; i++) { /* an allocator holds what is live, and so does a placement */
        const bool idle = strcmp(rows[i].key, "nothing-idle") == 0;
        require(idle || rows[i].of_iteration || rows[i].bytes >= sum->peak_bytes);
    }
    const ebb_study_segment *segments = ebb_study_segments(study, &n);
    for (size_t i = 0; i < n; i++) {
        uint64_t pins[2];
        require(segments[i].live_bytes + segments[i].free_bytes == segments[i].size_bytes);
        require(segments[i].largest_free_bytes <= segments[i].free_bytes);
        require(ebb_study_segment_pins(study, i, 0, 2, pins) <= segments[i].n_pins);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    ebb_trace_reader *reader = NULL;
    ebb_study *study = NULL;
    ebb_study_options options = EBB_STUDY_OPTIONS_INIT;
    options.max_place_steps = MAX_STEPS;
    options.max_outliers = 3;
    if (size > 0) { options.capacity_bytes = (uint64_t)(data[size / 2] & 7) << 24; }
    if (ebb__trace_reader_open_memory(NULL, "fuzz", data, size, &reader) != EBB_OK) { return 0; }
    if (ebb_study_create(reader, &options, &study) == EBB_OK) {
        const ebb_study_summary sum = ebb_study_get_summary(study);
        check_curve(study, &sum);
        check_blocks(study, &sum);
        check_holders(study, &sum);
        check_rest(study, &sum);
    }
    ebb_study_destroy(study);
    ebb_trace_reader_close(reader);
    return 0;
}
