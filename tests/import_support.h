/* SPDX-License-Identifier: Apache-2.0
 *
 * What tests of importers share: text made a file, imported, and its events at hand.
 */
#ifndef EBB_TESTS_IMPORT_SUPPORT_H
#define EBB_TESTS_IMPORT_SUPPORT_H

#include "support.h"
#include "trace/trace.h"

#define MAX_IMPORTED 256u

typedef struct imported {
    ebb_trace_reader *reader; /* at its end */
    ebb_trace_event events[MAX_IMPORTED];
    size_t n;
    ebb_trace_import_result result;
} imported;

/* Read what is at path to its end. */
static inline void read_all(imported *im) {
    im->n = 0;
    for (bool done = false;;) {
        ebb_trace_event event;
        assert_int_equal(ebb_trace_reader_next(im->reader, &event, &done), EBB_OK);
        if (done) { return; }
        assert_true(im->n < MAX_IMPORTED);
        im->events[im->n++] = event;
    }
}

/* Import the bytes as a file of this name in the test's folder. */
static inline ebb_status import_bytes(const char *name, const void *data, size_t n,
                                      const ebb_trace_import_options *options, imported *im) {
    char out[300];
    (void)snprintf(out, sizeof out, "%s/out.trace", test_dir.path);
    data_put(&test_dir, name, data, n);
    *im = (imported){0};
    const ebb_status st = ebb_trace_import(data_path(&test_dir, name), out, options, &im->result);
    if (st != EBB_OK) {
        assert_int_equal(access(out, F_OK), -1);
        return st;
    }
    assert_int_equal(ebb_trace_reader_open(NULL, out, &im->reader), EBB_OK);
    read_all(im);
    assert_int_equal(im->n, im->result.n_events);
    assert_int_equal(ebb_trace_reader_info(im->reader).n_blocks, im->result.n_blocks);
    assert_int_equal(ebb_trace_reader_info(im->reader).complete, im->result.complete);
    assert_int_equal(unlink(out), 0);
    return EBB_OK;
}

static inline ebb_status import_text(const char *name, const char *text, imported *im) {
    return import_bytes(name, text, strlen(text), NULL, im);
}

/* Blocks have these names, in order of their allocations. */
static inline void expect_names(const imported *im, const char *const *names, size_t n_names) {
    size_t n = 0;
    for (size_t i = 0; i < im->n; i++) {
        if (im->events[i].kind != EBB_TRACE_ALLOC) { continue; }
        assert_true(n < n_names);
        assert_string_equal(ebb_trace_reader_string(im->reader, im->events[i].name), names[n++]);
    }
    assert_int_equal(n, n_names);
}

static inline void imported_fini(imported *im) {
    ebb_trace_reader_close(im->reader);
}

#endif
