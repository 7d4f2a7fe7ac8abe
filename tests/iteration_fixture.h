/* SPDX-License-Identifier: Apache-2.0
 *
 * Traces for the finder of iterations, made event by event.
 */
#ifndef EBB_TESTS_ITERATION_FIXTURE_H
#define EBB_TESTS_ITERATION_FIXTURE_H

#include "ebb/iteration.h"
#include "support.h"

typedef struct made_trace {
    ebb_iteration_finder *finder;
    uint64_t n_events, n_blocks;
    uint64_t sizes[1u << 16];
} made_trace;

static inline void made_init(made_trace *m) {
    memset(m, 0, sizeof *m);
    assert_int_equal(ebb_iteration_finder_create(NULL, NULL, &m->finder), EBB_OK);
}

static inline void made_fini(made_trace *m) {
    ebb_iteration_finder_destroy(m->finder);
}

static inline void made_add(made_trace *m, const ebb_trace_event *event) {
    assert_int_equal(ebb_iteration_finder_add(m->finder, event), EBB_OK);
    m->n_events++;
}

static inline uint64_t made_alloc(made_trace *m, uint64_t size_bytes) {
    assert_true(m->n_blocks < sizeof m->sizes / sizeof *m->sizes);
    m->sizes[m->n_blocks] = size_bytes;
    made_add(m, &(ebb_trace_event){.kind = EBB_TRACE_ALLOC, .block = m->n_blocks, .size_bytes = size_bytes});
    return m->n_blocks++;
}

static inline void made_touch(made_trace *m, ebb_trace_kind kind, uint64_t block) {
    made_add(m, &(ebb_trace_event){.kind = kind, .block = block, .size_bytes = m->sizes[block]});
}

static inline void made_mark(made_trace *m, uint32_t mark, uint64_t number) {
    made_add(m, &(ebb_trace_event){.kind = EBB_TRACE_MARK, .mark = mark, .number = number});
}

static inline ebb_iteration made_find(made_trace *m) {
    ebb_iteration found;
    assert_int_equal(ebb_iteration_finder_find(m->finder, &found), EBB_OK);
    return found;
}

/* What events can say at most. */
#define MADE_SURE 1.0      /* each iteration writes to blocks that stay, or an optimizer's state was made */
#define MADE_LIKELY 0.5    /* it makes blocks as large as those that stay, or nothing stays */
#define MADE_UNLIKELY 0.25 /* none of this */

/* The confidence is what the iterations' number, regularity and share of the events say, up to this bound. */
static inline void made_check_confidence(const made_trace *m, const ebb_iteration *found, double bound) {
    size_t n = 0;
    uint64_t n_inner = 0, first = 0, last = 0;
    double doubt = 1.0;
    const ebb_iteration_part *parts = ebb_iteration_finder_parts(m->finder, &n);
    for (size_t i = 0; i < n; i++) {
        if (parts[i].kind != EBB_ITERATION_PART_ITERATION) { continue; }
        first = n_inner == 0 ? parts[i].first_event : first;
        last = parts[i].first_event + parts[i].n_events;
        n_inner += parts[i].n_events;
    }
    for (uint64_t i = 1; i < found->count; i++) { doubt /= 4.0; }
    const double share = (double)n_inner / (double)(last - first);
    const double sure = found->regularity * (1.0 - doubt) * (share < 0.5 ? 2.0 * share : 1.0);
    assert_float_equal(found->confidence, sure < bound ? sure : bound, 1e-6);
}

/* The parts are all of the trace, in order, and agree with the answer. */
static inline void made_check_parts(const made_trace *m, const ebb_iteration *found) {
    size_t n = 0;
    uint64_t event = 0, count = 0;
    const ebb_iteration_part *parts = ebb_iteration_finder_parts(m->finder, &n);
    for (size_t i = 0; i < n; i++) {
        assert_int_equal(parts[i].first_event, event);
        assert_true(parts[i].n_events > 0);
        assert_true(parts[i].regularity >= 0.0 && parts[i].regularity <= 1.0);
        if (parts[i].kind == EBB_ITERATION_PART_ITERATION && count++ == 0) {
            assert_int_equal(event, found->first_event);
        }
        assert_true(parts[i].kind != EBB_ITERATION_PART_BEFORE || i == 0);
        assert_true(parts[i].kind != EBB_ITERATION_PART_AFTER || i == n - 1);
        event += parts[i].n_events;
    }
    assert_int_equal(count, found->count);
    assert_int_equal(event, found->found ? m->n_events : 0);
}

#endif
