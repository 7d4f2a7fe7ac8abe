/* SPDX-License-Identifier: Apache-2.0
 *
 * Recordings for tests of reports: random ones by a seed, whose source tells what its bits say, with hostile names.
 */
#ifndef EBB_TESTS_REPORT_SUPPORT_H
#define EBB_TESTS_REPORT_SUPPORT_H

#include "ebb/trace.h"
#include "support.h"

/* Names that would be markup, the end of a script, a terminal's command, or no text at all. */
static const char *const hostile_names[] = {"</script><script>alert(1)</script>",
                                            "<img src=x onerror=alert(1)>",
                                            "\"quoted\" 'twice' \\ & more",
                                            "\x1b[31mred\x07\r\n\t",
                                            "\xff\xfe no text \xc0\x80 \xed\xa0\x80",
                                            "@@DATA@@ %s %n <!--",
                                            "layer1.conv.weight",
                                            "\xe2\x80\xae turned \xe2\x80\xa8 line"};
#define N_HOSTILE (sizeof hostile_names / sizeof hostile_names[0])

typedef struct recorder {
    ebb_trace_writer *writer;
    ebb_rng rng;
    uint64_t time_ns, n_blocks;
    uint64_t live[64], sizes[64];
    size_t n_live;
    uint64_t live_bytes, peak_bytes, n_events; /* counted here, for comparison */
    uint32_t names[N_HOSTILE], stacks[4];
    uint32_t tells;
} recorder;

static inline void record_one(recorder *r, ebb_trace_event event) {
    r->time_ns += 1 + ebb__rng_below(&r->rng, 100000);
    event.time_ns = r->time_ns;
    if ((r->tells & EBB_TRACE_TELLS_STACKS) != 0) { event.stack = r->stacks[ebb__rng_below(&r->rng, 4)]; }
    assert_int_equal(ebb_trace_writer_add(r->writer, &event), EBB_OK);
    r->n_events++;
}

static inline void record_alloc(recorder *r) {
    const uint64_t size = ebb__rng_below(&r->rng, 1 << 22);
    const bool has_role = (r->tells & EBB_TRACE_TELLS_ROLES) != 0;
    const bool has_address = (r->tells & EBB_TRACE_TELLS_ADDRESSES) != 0;
    record_one(r,
               (ebb_trace_event){.kind = EBB_TRACE_ALLOC,
                                 .block = r->n_blocks,
                                 .size_bytes = size,
                                 .address = has_address ? 0x7f0000000000u + r->n_live * (4u << 20) : EBB_TRACE_NONE,
                                 .role = has_role ? (ebb_role)ebb__rng_below(&r->rng, EBB_N_ROLES) : EBB_ROLE_UNKNOWN,
                                 .name = r->names[ebb__rng_below(&r->rng, N_HOSTILE)]});
    r->live[r->n_live] = r->n_blocks++;
    r->sizes[r->n_live++] = size;
    r->live_bytes += size;
    r->peak_bytes = ebb_max_u64(r->peak_bytes, r->live_bytes);
}

static inline void record_free(recorder *r) {
    r->n_live--; /* the last one, so that addresses above are free */
    r->live_bytes -= r->sizes[r->n_live];
    record_one(r, (ebb_trace_event){.kind = EBB_TRACE_FREE, .block = r->live[r->n_live]});
}

static inline void record_access(recorder *r) {
    const uint64_t block = r->live[ebb__rng_below(&r->rng, r->n_live)];
    const ebb_trace_kind kind = ebb__rng_below(&r->rng, 2) == 0 ? EBB_TRACE_READ : EBB_TRACE_WRITE;
    record_one(r, (ebb_trace_event){.kind = kind, .block = block});
}

static inline void open_recorder(recorder *r, const char *path, uint64_t seed, uint32_t tells) {
    *r = (recorder){.tells = tells};
    ebb__rng_init(&r->rng, seed, 0);
    ebb_trace_writer_options options = EBB_TRACE_WRITER_OPTIONS_INIT;
    options.tells = tells;
    assert_int_equal(ebb_trace_writer_open(path, &options, &r->writer), EBB_OK);
    assert_int_equal(ebb_trace_writer_note(r->writer, "source", "</script> \xff of tests"), EBB_OK);
    for (size_t i = 0; i < N_HOSTILE; i++) {
        assert_int_equal(ebb_trace_writer_string(r->writer, hostile_names[i], &r->names[i]), EBB_OK);
    }
    for (size_t i = 0; i < 4; i++) {
        const uint32_t caller = i > 0 ? r->stacks[i - 1] : 0;
        assert_int_equal(
            ebb_trace_writer_frame(r->writer, caller, r->names[i], r->names[N_HOSTILE - 1 - i], 7, &r->stacks[i]),
            EBB_OK);
    }
}

/* n events of a kind that the bits allow. Segments: one large one around all. */
static inline void record_random(recorder *r, const char *path, uint64_t seed, uint32_t tells, size_t n) {
    open_recorder(r, path, seed, tells);
    if (n > 0 && (tells & EBB_TRACE_TELLS_SEGMENTS) != 0) {
        record_one(r, (ebb_trace_event){.kind = EBB_TRACE_SEGMENT_ALLOC,
                                        .address = 0x7f0000000000u,
                                        .size_bytes = (uint64_t)1 << 28});
    }
    while (r->n_events < n) {
        const uint64_t what = ebb__rng_below(&r->rng, 4);
        if (r->n_live == 0 || (what == 0 && r->n_live < 64)) {
            record_alloc(r);
        } else if (what == 1) {
            record_free(r);
        } else if ((tells & EBB_TRACE_TELLS_ACCESSES) != 0) {
            record_access(r);
        }
    }
    assert_int_equal(ebb_trace_writer_close(r->writer), EBB_OK);
}

/* What a report writes, in memory. */
typedef struct written {
    char *text;
    size_t n;
} written;

static inline ebb_status keep_written(void *ctx, const void *data, size_t n_bytes) {
    written *w = ctx;
    w->text = realloc(w->text, w->n + n_bytes + 1);
    assert_non_null(w->text);
    memcpy(w->text + w->n, data, n_bytes);
    w->n += n_bytes;
    w->text[w->n] = '\0';
    return EBB_OK;
}

#endif
