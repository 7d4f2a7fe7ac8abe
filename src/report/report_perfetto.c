/* SPDX-License-Identifier: Apache-2.0
 *
 * Chrome's trace events, which ui.perfetto.dev and chrome://tracing open: live bytes of each role and what the
 * allocator holds as counters, each block's life as an asynchronous slice, steps and copies as slices of their row,
 * iterations as asynchronous slices, other marks as instants.
 *
 * Written while the recording is read: a byte a block is all that is kept of them, since a label does not say which
 * role it replaces. Where a source tells no times, an event takes a microsecond.
 */
#include "report/report_priv.h"
#include "trace/trace.h"

#include <inttypes.h>

#define DEAD UINT8_MAX
#define MAX_FRAMES 64u

typedef struct perfetto {
    ebb_report_out *out;
    ebb_json json;
    ebb_trace_reader *reader;
    const ebb_mem *mem;
    uint64_t time_ns;
    uint64_t live_bytes[EBB_N_ROLES], all_bytes, reserved_bytes;
    EBB_VEC(uint8_t) role_of;             /* [blocks so far]: DEAD or the role that it counts for */
    ebb_trace_keys segments;              /* by address and space, from 1 */
    EBB_VEC(uint64_t) segment_bytes;      /* of each; 0: it is gone */
    uint64_t n_begun[EBB_TRACE_MAX_ROWS]; /* open slices */
    bool has_row[EBB_TRACE_MAX_ROWS];
    bool in_iteration;
    uint64_t iteration;
} perfetto;

/* ---- one event -------------------------------------------------------------------------------- */

static void begin_event(perfetto *p, const char *name, const char *phase) {
    EBB_ASSERT(p->json.depth > 0);
    ebb__report_put(p->out, p->json.has_member[p->json.depth - 1] ? ",\n" : "\n");
    p->json.has_member[p->json.depth - 1] = false; /* the comma stands in front of the line's end */
    ebb_json_open(&p->json, NULL, '{');
    ebb_json_text(&p->json, "name", name);
    ebb_json_text(&p->json, "ph", phase);
    ebb__report_printf(p->out, ", \"ts\": %" PRIu64 ".%03" PRIu64 ", \"pid\": 1", p->time_ns / 1000, p->time_ns % 1000);
}

static void end_event(perfetto *p) {
    ebb_json_close(&p->json, '}');
}

static void put_counter(perfetto *p, const char *name, uint64_t bytes) {
    begin_event(p, name, "C");
    ebb_json_open(&p->json, "args", '{');
    ebb_json_u64(&p->json, "bytes", bytes);
    ebb_json_close(&p->json, '}');
    end_event(p);
}

static void put_async(perfetto *p, const char *name, const char *category, const char *phase, uint64_t id) {
    begin_event(p, name, phase);
    ebb_json_text(&p->json, "cat", category);
    ebb_json_u64(&p->json, "id", id);
}

/* ---- blocks ----------------------------------------------------------------------------------- */

static void put_live(perfetto *p, ebb_role role) {
    char name[64];
    (void)snprintf(name, sizeof name, "live: %s", ebb_role_name(role));
    put_counter(p, name, p->live_bytes[role]);
}

static const char *block_name(const perfetto *p, const ebb_trace_event *event) {
    const char *name = ebb_trace_reader_string(p->reader, event->name);
    return name[0] != '\0' ? name : ebb_role_name(event->role);
}

static void put_stack(perfetto *p, uint32_t stack) {
    if (stack == 0) { return; }
    ebb_json_open(&p->json, "stack", '[');
    for (unsigned i = 0; stack != 0 && i < MAX_FRAMES; i++) {
        const ebb_trace_frame frame = ebb_trace_reader_frame(p->reader, stack);
        ebb_json_text(&p->json, NULL, ebb_trace_reader_string(p->reader, frame.function));
        stack = frame.caller;
    }
    ebb_json_close(&p->json, ']');
}

static ebb_status tell_alloc(perfetto *p, const ebb_trace_event *event) {
    EBB_ASSERT(event->block == p->role_of.n);
    EBB_TRY(EBB_PUSH(p->mem, &p->role_of, (uint8_t)event->role));
    p->live_bytes[event->role] += event->size_bytes;
    p->all_bytes += event->size_bytes;
    put_async(p, block_name(p, event), "block", "b", event->block);
    ebb_json_open(&p->json, "args", '{');
    ebb_json_u64(&p->json, "bytes", event->size_bytes);
    ebb_json_text(&p->json, "role", ebb_role_name(event->role));
    if (event->address != EBB_TRACE_NONE) { ebb_json_u64(&p->json, "address", event->address); }
    put_stack(p, event->stack);
    ebb_json_close(&p->json, '}');
    end_event(p);
    put_live(p, event->role);
    put_counter(p, "live", p->all_bytes);
    return EBB_OK;
}

static void tell_free(perfetto *p, const ebb_trace_event *event) {
    const ebb_role role = (ebb_role)p->role_of.data[event->block];
    EBB_ASSERT(role < EBB_N_ROLES);
    EBB_ASSERT(p->live_bytes[role] >= event->size_bytes && p->all_bytes >= p->live_bytes[role]);
    p->role_of.data[event->block] = DEAD;
    p->live_bytes[role] -= event->size_bytes;
    p->all_bytes -= event->size_bytes;
    put_async(p, block_name(p, event), "block", "e", event->block);
    end_event(p);
    put_live(p, role);
    put_counter(p, "live", p->all_bytes);
}

static void tell_label(perfetto *p, const ebb_trace_event *event) {
    EBB_ASSERT(event->block < p->role_of.n && event->role < EBB_N_ROLES);
    const ebb_role old = (ebb_role)p->role_of.data[event->block];
    if (old == event->role || (uint8_t)old == DEAD) { return; }
    p->role_of.data[event->block] = (uint8_t)event->role;
    EBB_ASSERT(p->live_bytes[old] >= event->size_bytes);
    p->live_bytes[old] -= event->size_bytes;
    p->live_bytes[event->role] += event->size_bytes;
    put_live(p, old);
    put_live(p, event->role);
}

static ebb_status tell_segment(perfetto *p, const ebb_trace_event *event) {
    const uint64_t key[] = {event->address, event->space};
    uint32_t number = 0;
    bool is_new = false;
    EBB_TRY(ebb__trace_keys_add(&p->segments, key, sizeof key, &number, &is_new));
    EBB_ASSERT(number >= 1);
    if (is_new) { EBB_TRY(EBB_PUSH(p->mem, &p->segment_bytes, 0)); }
    EBB_ASSERT(number <= p->segment_bytes.n);
    uint64_t *bytes = &p->segment_bytes.data[number - 1];
    EBB_ASSERT(p->reserved_bytes >= *bytes);
    p->reserved_bytes -= *bytes;
    *bytes = event->kind == EBB_TRACE_SEGMENT_ALLOC ? event->size_bytes : 0;
    p->reserved_bytes += *bytes;
    put_counter(p, "reserved", p->reserved_bytes);
    return EBB_OK;
}

/* ---- rows and marks --------------------------------------------------------------------------- */

static void put_row(perfetto *p, uint32_t row) {
    static const char *const names[] = {"compute", "copies out", "copies in"};
    char key[16], name[32];
    (void)snprintf(key, sizeof key, "row.%" PRIu32, row);
    (void)snprintf(name, sizeof name, "row %" PRIu32, row);
    const char *note = ebb_trace_reader_note(p->reader, key);
    p->has_row[row] = true;
    begin_event(p, "thread_name", "M");
    ebb_json_u64(&p->json, "tid", row);
    ebb_json_open(&p->json, "args", '{');
    ebb_json_text(&p->json, "name", note != NULL ? note : row < 3 ? names[row] : name);
    ebb_json_close(&p->json, '}');
    end_event(p);
}

static void begin_slice(perfetto *p, const ebb_trace_event *event, const char *name) {
    if (!p->has_row[event->row]) { put_row(p, event->row); }
    p->n_begun[event->row]++;
    begin_event(p, name[0] != '\0' ? name : "step", "B");
    ebb_json_u64(&p->json, "tid", event->row);
    ebb_json_open(&p->json, "args", '{');
    if (event->kind == EBB_TRACE_STEP_BEGIN) {
        ebb_json_text(&p->json, "op", ebb_trace_reader_string(p->reader, event->op));
    } else {
        ebb_json_u64(&p->json, "bytes", event->size_bytes);
    }
    ebb_json_close(&p->json, '}');
    end_event(p);
}

static void end_slice(perfetto *p, uint32_t row) {
    if (p->n_begun[row] == 0) { return; }
    p->n_begun[row]--;
    begin_event(p, "", "E");
    ebb_json_u64(&p->json, "tid", row);
    end_event(p);
}

static void end_iteration(perfetto *p) {
    if (!p->in_iteration) { return; }
    p->in_iteration = false;
    put_async(p, "iteration", "iteration", "e", p->iteration);
    end_event(p);
}

static void tell_mark(perfetto *p, const ebb_trace_event *event) {
    if (event->mark != EBB_TRACE_ANNOTATION) { end_iteration(p); }
    if (event->mark == EBB_TRACE_ITERATION_BEGIN) {
        p->in_iteration = true;
        p->iteration = event->number;
        put_async(p, "iteration", "iteration", "b", event->number);
        end_event(p);
    } else if (event->mark == EBB_TRACE_ANNOTATION) {
        begin_event(p, ebb_trace_reader_string(p->reader, event->name), "i");
        ebb_json_text(&p->json, "s", "p");
        end_event(p);
    }
}

/* ---- the recording ---------------------------------------------------------------------------- */

static ebb_status tell(perfetto *p, const ebb_trace_event *event) {
    switch (event->kind) {
    case EBB_TRACE_ALLOC: return tell_alloc(p, event);
    case EBB_TRACE_FREE: tell_free(p, event); break;
    case EBB_TRACE_LABEL: tell_label(p, event); break;
    case EBB_TRACE_STEP_BEGIN: begin_slice(p, event, ebb_trace_reader_string(p->reader, event->name)); break;
    case EBB_TRACE_COPY_BEGIN: begin_slice(p, event, event->direction == EBB_TRACE_OUT ? "copy out" : "copy in"); break;
    case EBB_TRACE_STEP_END:
    case EBB_TRACE_COPY_END: end_slice(p, event->row); break;
    case EBB_TRACE_MARK: tell_mark(p, event); break;
    case EBB_TRACE_SEGMENT_ALLOC:
    case EBB_TRACE_SEGMENT_FREE: return tell_segment(p, event);
    default: break; /* reads and writes are too many to see */
    }
    return EBB_OK;
}

static ebb_status tell_all(perfetto *p) {
    for (uint64_t i = 0;; i++) {
        ebb_trace_event event;
        bool done = false;
        EBB_TRY(ebb_trace_reader_next(p->reader, &event, &done));
        if (done) { break; }
        const bool has_times = (ebb_trace_reader_info(p->reader).tells & EBB_TRACE_TELLS_TIMES) != 0;
        p->time_ns = has_times ? event.time_ns : i * 1000;
        EBB_TRY(tell(p, &event));
        EBB_TRY(p->out->status);
    }
    for (uint32_t row = 0; row < EBB_TRACE_MAX_ROWS; row++) {
        while (p->n_begun[row] > 0) { end_slice(p, row); }
    }
    end_iteration(p);
    for (size_t b = 0; b < p->role_of.n; b++) { /* viewers do without names at an end */
        if (p->role_of.data[b] == DEAD) { continue; }
        put_async(p, "", "block", "e", b);
        end_event(p);
    }
    return EBB_OK;
}

static void put_process(perfetto *p, const char *name) {
    begin_event(p, "process_name", "M");
    ebb_json_open(&p->json, "args", '{');
    ebb_json_text(&p->json, "name", name);
    ebb_json_close(&p->json, '}');
    end_event(p);
}

ebb_status ebb__report_render_perfetto(ebb_report *report, ebb_report_out *out) {
    perfetto *p = ebb__calloc(report->mem, 1, sizeof *p);
    if (p == NULL) { return EBB_E_NO_MEMORY; }
    p->mem = report->mem;
    ebb__trace_keys_init(&p->segments, p->mem);
    p->out = out;
    p->json = ebb__report_json(out);
    ebb_status status = ebb__report_open(report, &p->reader);
    if (status == EBB_OK) {
        ebb_json_open(&p->json, NULL, '{');
        ebb_json_text(&p->json, "displayTimeUnit", "ms");
        ebb_json_open(&p->json, "traceEvents", '[');
        put_process(p, report->name);
        status = tell_all(p);
        ebb_json_close(&p->json, ']');
        ebb_json_close(&p->json, '}');
        ebb__report_put(out, "\n");
    }
    ebb_trace_reader_close(p->reader);
    EBB_VEC_FINI(p->mem, &p->role_of);
    ebb__trace_keys_fini(&p->segments);
    EBB_VEC_FINI(p->mem, &p->segment_bytes);
    ebb__free(p->mem, p);
    return status;
}
