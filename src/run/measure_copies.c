/* SPDX-License-Identifier: Apache-2.0
 *
 * What copies between a device and the host's memory reach: each way alone, and both at once on two streams, with
 * memory that the backend gives (pinned where it pays) and with any other. A plan goes by the first; the rest tells
 * whether the two ways share their road, and what a program loses that does not pin.
 */
#include "run/run.h"

#define PIECE_BYTES ((uint64_t)64 << 20)
#define SMALLEST_BYTES ((uint64_t)4096)
#define REPS 4

typedef struct survey {
    ebb_device *device;
    ebb_arena *arena; /* two pieces: what goes out, what comes in */
    ebb_stream *stream[2];
    void *given[2], *other[2];
    uint64_t piece_bytes;
} survey;

static ebb_status survey_open(ebb_device *device, uint64_t limit_bytes, survey *s) {
    const ebb_backend_ops *ops = device->ops;
    const uint64_t piece = ebb_min_u64(PIECE_BYTES, ebb_max_u64(limit_bytes / 2, SMALLEST_BYTES));
    *s = (survey){.device = device, .piece_bytes = piece / ops->alignment_bytes * ops->alignment_bytes};
    EBB_TRY(ebb_arena_create(device, 2 * s->piece_bytes, &s->arena));
    for (int i = 0; i < 2; i++) {
        EBB_TRY(ops->stream_create(device, false, &s->stream[i]));
        EBB_TRY(ops->host_alloc(device, s->piece_bytes, &s->given[i]));
        s->other[i] = ebb__calloc(device->mem, 1, (size_t)s->piece_bytes);
        if (s->other[i] == NULL) { return EBB_E_NO_MEMORY; }
        memset(s->other[i], 1, (size_t)s->piece_bytes); /* the kernel maps it now and not in the first copy */
    }
    return EBB_OK;
}

static void survey_close(survey *s) {
    const ebb_backend_ops *ops = s->device->ops;
    for (int i = 0; i < 2; i++) {
        if (s->stream[i] != NULL) { ops->stream_destroy(s->stream[i]); }
        if (s->given[i] != NULL) { ops->host_free(s->device, s->given[i], s->piece_bytes); }
        ebb__free(s->device->mem, s->other[i]);
    }
    ebb_arena_destroy(s->arena);
}

/* The ways d with is_on[d], each on a stream of its own, once to warm up and then timed together. */
static ebb_status time_ways(const survey *s, void *const host[2], const bool is_on[2], double *bytes_per_s_out) {
    const ebb_backend_ops *ops = s->device->ops;
    uint64_t begin_ns = 0, moved_bytes = 0;
    for (int rep = 0; rep <= REPS; rep++) {
        for (int d = 0; d < 2; d++) {
            const ebb_buf buf = {s->arena->memory, (uint64_t)d * s->piece_bytes, s->piece_bytes};
            if (!is_on[d]) { continue; }
            EBB_TRY(ops->copy(s->stream[d], d == 0 ? EBB_COPY_OUT : EBB_COPY_IN, buf, host[d]));
            moved_bytes += rep > 0 ? s->piece_bytes : 0;
        }
        if (rep > 0 && rep < REPS) { continue; }
        for (int d = 0; d < 2; d++) { EBB_TRY(ops->stream_sync(s->stream[d])); }
        if (rep == 0) { begin_ns = ebb__now_ns(); }
    }
    const uint64_t ns = ebb__now_ns() - begin_ns;
    *bytes_per_s_out = (double)moved_bytes * 1e9 / (double)ebb_max_u64(ns, 1);
    return EBB_OK;
}

static ebb_status time_memory(const survey *s, void *const host[2], ebb_copy_rates *rates_out) {
    ebb_copy_rates rates;
    EBB_TRY(time_ways(s, host, (const bool[]){true, false}, &rates.out_bytes_per_s));
    EBB_TRY(time_ways(s, host, (const bool[]){false, true}, &rates.in_bytes_per_s));
    EBB_TRY(time_ways(s, host, (const bool[]){true, true}, &rates.both_bytes_per_s));
    *rates_out = rates;
    return EBB_OK;
}

static ebb_status measure(ebb_device *device, uint64_t limit_bytes, ebb_copy_rates *pinned, ebb_copy_rates *pageable) {
    survey s;
    ebb_status st = survey_open(device, limit_bytes, &s);
    if (st == EBB_OK) { st = time_memory(&s, s.given, pinned); }
    if (st == EBB_OK) { st = time_memory(&s, s.other, pageable); }
    survey_close(&s);
    return st;
}

ebb_status ebb_run_measure_copies(ebb_device *device, uint64_t limit_bytes, ebb_copy_rates *pinned_out,
                                  ebb_copy_rates *pageable_out) {
    EBB_NEED(device);
    EBB_NEED(pinned_out);
    EBB_NEED(pageable_out);
    ebb_copy_rates pinned = {0}, pageable = {0};
    if (device->ops->has_data) { EBB_TRY(measure(device, limit_bytes, &pinned, &pageable)); }
    *pinned_out = pinned;
    *pageable_out = pageable;
    return EBB_OK;
}
