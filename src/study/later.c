/* SPDX-License-Identifier: Apache-2.0
 *
 * What the header names and no file makes yet: unknown, all of it. This file goes as they come.
 */
#include "study/study_priv.h"

#include <math.h>

static const ebb_study_times no_times = {.min_ns = EBB_STUDY_UNKNOWN,
                                         .max_ns = EBB_STUDY_UNKNOWN,
                                         .p50_ns = EBB_STUDY_UNKNOWN,
                                         .p75_ns = EBB_STUDY_UNKNOWN,
                                         .p90_ns = EBB_STUDY_UNKNOWN,
                                         .p99_ns = EBB_STUDY_UNKNOWN};

ebb_study_times ebb_study_lifetimes(const ebb_study *study) {
    (void)study;
    return no_times;
}

ebb_study_times ebb_study_intervals(const ebb_study *study, ebb_study_kind from, ebb_study_kind to) {
    (void)study, (void)from, (void)to;
    return no_times;
}

uint64_t ebb_study_interval_quantile(const ebb_study *study, ebb_study_kind from, ebb_study_kind to, double share) {
    (void)study, (void)from, (void)to, (void)share;
    return EBB_STUDY_UNKNOWN;
}

uint64_t ebb_study_intervals_until(const ebb_study *study, ebb_study_kind from, ebb_study_kind to,
                                   uint64_t interval_ns) {
    (void)study, (void)from, (void)to, (void)interval_ns;
    return 0;
}

const ebb_study_cell *ebb_study_density(const ebb_study *study, size_t *n_out) {
    (void)study;
    *n_out = 0;
    return NULL;
}

ebb_study_outliers ebb_study_get_outliers(const ebb_study *study) {
    (void)study;
    return (ebb_study_outliers){0};
}

ebb_study_swappable ebb_study_get_swappable(const ebb_study *study) {
    (void)study;
    return (ebb_study_swappable){.known = false};
}

ebb_study_churn ebb_study_get_churn(const ebb_study *study) {
    (void)study;
    return (ebb_study_churn){.allocs_per_s = NAN, .bytes_per_s = NAN, .turnover = NAN};
}

ebb_study_fragmentation ebb_study_get_fragmentation(const ebb_study *study) {
    (void)study;
    return (ebb_study_fragmentation){.known = false};
}

const ebb_study_segment *ebb_study_segments(const ebb_study *study, size_t *n_out) {
    (void)study;
    *n_out = 0;
    return NULL;
}

size_t ebb_study_segment_pins(const ebb_study *study, size_t segment, size_t first, size_t n, uint64_t *blocks_out) {
    (void)study, (void)segment, (void)first, (void)n, (void)blocks_out;
    return 0;
}

const ebb_study_holder *ebb_study_pinners(const ebb_study *study, size_t *n_out) {
    (void)study;
    *n_out = 0;
    return NULL;
}

const ebb_study_what_if *ebb_study_what_ifs(const ebb_study *study, size_t *n_out) {
    (void)study;
    *n_out = 0;
    return NULL;
}

const ebb_study_hint *ebb_study_advice(const ebb_study *study, size_t *n_out) {
    (void)study;
    *n_out = 0;
    return NULL;
}
