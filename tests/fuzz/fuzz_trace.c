/* SPDX-License-Identifier: Apache-2.0
 *
 * Traces from hostile bytes: the reader gives events that agree with each other, or an error that lasts, and what can
 * be made a program is one.
 */
#include "trace/trace.h"

#include "ebb/program_trace.h"

#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check(const ebb_trace_reader *reader, const ebb_trace_event *event, uint64_t *time_ns) {
    const ebb_trace_info info = ebb_trace_reader_info(reader);
    if ((unsigned)event->kind >= EBB_TRACE_N_KINDS || event->row >= EBB_TRACE_MAX_ROWS) { abort(); }
    if (event->time_ns < *time_ns || info.n_live_blocks > info.n_blocks || info.n_blocks > info.n_events) { abort(); }
    if (event->step != EBB_TRACE_NONE && event->step >= info.n_steps) { abort(); }
    (void)ebb_trace_reader_string(reader, event->name);
    (void)ebb_trace_reader_string(reader, event->op);
    for (uint32_t stack = event->stack, below = 0; stack != 0; stack = below) {
        below = ebb_trace_reader_frame(reader, stack).caller;
        if (below >= stack) { abort(); } /* callers come first, so a walk ends */
    }
    *time_ns = event->time_ns;
}

static void make_program(const uint8_t *data, size_t size) {
    ebb_trace_reader *reader = NULL;
    ebb_program *program = NULL;
    ebb_program_trace_notes notes;
    if (ebb__trace_reader_open_memory(NULL, "fuzz", data, size, &reader) != EBB_OK) { abort(); }
    const ebb_status st = ebb_program_from_trace(reader, NULL, &program, &notes);
    if (st != EBB_OK && st != EBB_E_FORMAT) { abort(); }
    size_t n = 0;
    if (st == EBB_OK) {
        (void)ebb_program_steps(program, &n);
        if (n == 0 || notes.n_joined > notes.n_blocks || notes.n_persistent > notes.n_blocks) { abort(); }
    }
    ebb_program_destroy(program);
    ebb_trace_reader_close(reader);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    ebb_trace_reader *reader = NULL;
    ebb_trace_event event;
    uint64_t time_ns = 0;
    ebb_status st = ebb__trace_reader_open_memory(NULL, "fuzz", data, size, &reader);
    if (st != EBB_OK) { return 0; }
    for (bool done = false; st == EBB_OK && !done;) {
        st = ebb_trace_reader_next(reader, &event, &done);
        if (st == EBB_OK && !done) { check(reader, &event, &time_ns); }
    }
    if (st != EBB_OK) {
        bool done = false;
        if (st != EBB_E_FORMAT || ebb_trace_reader_next(reader, &event, &done) != st) { abort(); }
    }
    const ebb_trace_info info = ebb_trace_reader_info(reader);
    if (info.offset > size || (st != EBB_OK && info.complete)) { abort(); }
    (void)ebb_trace_reader_note(reader, "source");
    ebb_trace_reader_close(reader);
    make_program(data, size);
    return 0;
}
