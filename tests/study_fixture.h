/* SPDX-License-Identifier: Apache-2.0
 *
 * A trace that a test tells event by event, and its study.
 */
#ifndef EBB_TESTS_STUDY_FIXTURE_H
#define EBB_TESTS_STUDY_FIXTURE_H

#include "support.h"

#include "ebb/study.h"

typedef struct study_fixture {
    char path[64];
    ebb_trace_writer *writer;
    ebb_trace_reader *reader;
    ebb_study *study;
    uint64_t now_ns, n_blocks;
    uint32_t stack; /* of the next alloc */
} study_fixture;

#define STUDY_TELLS_ALL                                                                                                \
    (EBB_TRACE_TELLS_TIMES | EBB_TRACE_TELLS_ACCESSES | EBB_TRACE_TELLS_ADDRESSES | EBB_TRACE_TELLS_ROLES |            \
     EBB_TRACE_TELLS_STEPS | EBB_TRACE_TELLS_STACKS | EBB_TRACE_TELLS_BEFORE)

static inline void study_fixture_init(study_fixture *f, uint32_t tells) {
    *f = (study_fixture){.writer = NULL};
    strcpy(f->path, "/tmp/ebb-study-XXXXXX");
    const int fd = mkstemp(f->path);
    assert_true(fd >= 0 && close(fd) == 0);
    ebb_trace_writer_options options = EBB_TRACE_WRITER_OPTIONS_INIT;
    options.tells = tells;
    assert_int_equal(ebb_trace_writer_open(f->path, &options, &f->writer), EBB_OK);
}

static inline void study_add(study_fixture *f, ebb_trace_event event) {
    event.time_ns = f->now_ns;
    if (ebb_trace_writer_add(f->writer, &event) != EBB_OK) { fail_msg("%s", ebb_last_error()); }
}

static inline uint32_t study_string(study_fixture *f, const char *text) {
    uint32_t string = 0;
    assert_int_equal(ebb_trace_writer_string(f->writer, text, &string), EBB_OK);
    return string;
}

/* At the end of a stack; 0 begins one. */
static inline uint32_t study_frame(study_fixture *f, uint32_t caller, const char *function, const char *file,
                                   uint32_t line) {
    uint32_t stack = 0;
    const uint32_t function_string = study_string(f, function), file_string = study_string(f, file);
    assert_int_equal(ebb_trace_writer_frame(f->writer, caller, function_string, file_string, line, &stack), EBB_OK);
    return stack;
}

static inline uint64_t study_alloc_at(study_fixture *f, uint64_t size_bytes, uint64_t address, ebb_role role,
                                      const char *name) {
    study_add(f, (ebb_trace_event){.kind = EBB_TRACE_ALLOC,
                                   .block = f->n_blocks,
                                   .size_bytes = size_bytes,
                                   .address = address,
                                   .role = role,
                                   .name = study_string(f, name),
                                   .stack = f->stack});
    return f->n_blocks++;
}

static inline uint64_t study_alloc(study_fixture *f, uint64_t size_bytes, ebb_role role, const char *name) {
    return study_alloc_at(f, size_bytes, EBB_TRACE_NONE, role, name);
}

static inline uint64_t study_alloc_before(study_fixture *f, uint64_t size_bytes, ebb_role role, const char *name) {
    study_add(f, (ebb_trace_event){.kind = EBB_TRACE_ALLOC,
                                   .block = f->n_blocks,
                                   .size_bytes = size_bytes,
                                   .address = EBB_TRACE_NONE,
                                   .role = role,
                                   .name = study_string(f, name),
                                   .before = true});
    return f->n_blocks++;
}

/* A free, read, write or end of a step; time is that of the fixture. */
static inline void study_do(study_fixture *f, ebb_trace_kind kind, uint64_t block) {
    study_add(f, (ebb_trace_event){.kind = kind, .block = block});
}

static inline void study_begin_step(study_fixture *f, const char *name) {
    study_add(f,
              (ebb_trace_event){.kind = EBB_TRACE_STEP_BEGIN, .name = study_string(f, name), .index = EBB_TRACE_NONE});
}

static inline void study_segment_do(study_fixture *f, ebb_trace_kind kind, uint64_t address, uint64_t size_bytes) {
    study_add(f, (ebb_trace_event){.kind = kind, .address = address, .size_bytes = size_bytes});
}

/* The trace is told; the study is made. */
static inline const ebb_study *study_fixture_study(study_fixture *f, const ebb_study_options *options) {
    assert_int_equal(ebb_trace_writer_close(f->writer), EBB_OK);
    assert_int_equal(ebb_trace_reader_open(NULL, f->path, &f->reader), EBB_OK);
    if (ebb_study_create(f->reader, options, &f->study) != EBB_OK) { fail_msg("%s", ebb_last_error()); }
    return f->study;
}

static inline void study_fixture_fini(study_fixture *f) {
    ebb_study_destroy(f->study);
    ebb_trace_reader_close(f->reader);
    (void)unlink(f->path);
}

#endif
