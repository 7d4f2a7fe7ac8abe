/* SPDX-License-Identifier: Apache-2.0
 *
 * Steps that were told after they were done, put into a trace by their times. A trace's times never go back, so the
 * whole of it is written anew: its own events, and between them begins and ends of the steps, in one order of time.
 *
 * A row's steps nest, and what a stream does may overlap all the same (the kernels of one graph do). So a stream has as
 * many rows as steps of it are open at once, the first free one taken each time; they begin after compute and copies,
 * so that no allocation seems to lie inside a kernel. Memory for all steps, and for the trace's strings.
 */
#include "base/demangle.h"
#include "base/file.h"
#include "trace/trace_priv.h"

#include <stdlib.h>

#define FIRST_ROW 3u
#define MAX_LANES (EBB_TRACE_MAX_ROWS - FIRST_ROW)
#define NO_LANE UINT32_MAX

typedef struct late_name {
    const char *op, *name; /* in the text, or in bump */
} late_name;

typedef struct late_step {
    uint64_t start_ns, end_ns; /* of the trace */
    uint32_t name, device, stream;
    uint32_t lane;
} late_step;

/* A begin or an end. */
typedef struct late_event {
    uint64_t time_ns;
    uint32_t step;
    bool begins;
} late_event;

typedef struct late_lane {
    uint32_t device, stream, number; /* number: among those of its stream */
    bool is_taken, is_told;
} late_lane;

typedef struct merge {
    const ebb_mem *mem;
    const char *steps_path;
    char *text;
    size_t n_bytes;
    ebb_bump bump;
    ebb_demangler demangler;
    EBB_VEC(late_name) names;
    EBB_VEC(late_step) steps;
    EBB_VEC(late_event) events;
    late_lane lane[MAX_LANES];
    uint32_t n_lanes;
    size_t next; /* of events */
    uint64_t n_steps, n_lost;
} merge;

/* ---- the file of steps -------------------------------------------------------------------------- */

static ebb_status malformed(const merge *m, size_t line) {
    return ebb_fail(EBB_E_FORMAT, "%s: line %zu is no line of steps", m->steps_path, line);
}

/* n numbers, each after one blank but the first; false: it is something else. */
static bool read_numbers(const char *text, uint64_t *number, size_t n) {
    char *end = NULL;
    for (size_t i = 0; i < n; i++) {
        if (i > 0 && *text++ != ' ') { return false; }
        if (*text < '0' || *text > '9') { return false; }
        number[i] = strtoull(text, &end, 10);
        text = end;
    }
    return *text == '\0';
}

static ebb_status read_name(merge *m, char *text, size_t line) {
    char readable[EBB_DEMANGLE_NAME_BYTES], *blank = strchr(text, ' ');
    if (blank == NULL) { return malformed(m, line); }
    *blank = '\0';
    late_name name = {text, blank + 1};
    if (ebb__demangle(&m->demangler, name.name, readable, sizeof readable)) {
        name.name = ebb__bump_strdup(&m->bump, readable);
        if (name.name == NULL) { return EBB_E_NO_MEMORY; }
    }
    return EBB_PUSH(m->mem, &m->names, name);
}

static ebb_status read_step(merge *m, const char *text, uint64_t zero_ns, size_t line) {
    uint64_t number[5]; /* name, start, end, device, stream */
    if (!read_numbers(text, number, 5) || number[0] >= m->names.n || number[1] > number[2] ||
        number[2] >= UINT64_MAX / 4 || number[3] > UINT32_MAX || number[4] > UINT32_MAX) {
        return malformed(m, line);
    }
    if (m->steps.n == UINT32_MAX / 2) { return ebb_fail(EBB_E_LIMIT, "%s: more than 2^31 steps", m->steps_path); }
    late_step step = {.name = (uint32_t)number[0], .device = (uint32_t)number[3], .stream = (uint32_t)number[4]};
    step.start_ns = number[1] > zero_ns ? number[1] - zero_ns : 0;
    step.end_ns = number[2] > zero_ns ? number[2] - zero_ns : 0;
    step.end_ns = ebb_max_u64(step.end_ns, step.start_ns + 1); /* an end is after its begin */
    return EBB_PUSH(m->mem, &m->steps, step);
}

static ebb_status read_line(merge *m, char *text, uint64_t *zero_ns, size_t line) {
    const size_t n_head = strlen(EBB_TRACE_LATE_STEPS_HEAD);
    uint64_t n = 0;
    if (line == 1) {
        const bool is_head =
            strncmp(text, EBB_TRACE_LATE_STEPS_HEAD, n_head) == 0 && read_numbers(text + n_head, zero_ns, 1);
        return is_head ? EBB_OK : malformed(m, line);
    }
    if (text[0] == '\0' || text[1] != ' ') { return malformed(m, line); }
    if (text[0] == 'n') { return read_name(m, text + 2, line); }
    if (text[0] == 'e') { return read_step(m, text + 2, *zero_ns, line); }
    if (text[0] != 'd' || !read_numbers(text + 2, &n, 1)) { return malformed(m, line); }
    m->n_lost += n;
    return EBB_OK;
}

/* Text after the last line's end was cut off. */
static ebb_status read_steps(merge *m) {
    uint64_t zero_ns = 0;
    size_t line = 1;
    EBB_TRY(ebb__file_read_all(m->mem, m->steps_path, SIZE_MAX / 2, &m->text, &m->n_bytes));
    for (char *at = m->text, *end = NULL; (end = memchr(at, '\n', m->n_bytes - (size_t)(at - m->text))) != NULL;
         at = end + 1) {
        *end = '\0';
        EBB_TRY(read_line(m, at, &zero_ns, line++));
    }
    return line > 1 ? EBB_OK : malformed(m, 1);
}

/* ---- their order and rows ----------------------------------------------------------------------- */

/* An end comes before a begin of the same time. */
static uint64_t key_of(const void *item) {
    const late_event *event = item;
    return 2 * event->time_ns + event->begins;
}

static uint32_t find_lane(merge *m, const late_step *step) {
    uint32_t n_of_stream = 0;
    for (uint32_t i = 0; i < m->n_lanes; i++) {
        if (m->lane[i].device != step->device || m->lane[i].stream != step->stream) { continue; }
        if (!m->lane[i].is_taken) { return i; }
        n_of_stream++;
    }
    if (m->n_lanes == MAX_LANES) { return NO_LANE; }
    m->lane[m->n_lanes] = (late_lane){.device = step->device, .stream = step->stream, .number = n_of_stream};
    return m->n_lanes++;
}

static ebb_status order_steps(merge *m) {
    EBB_TRY(EBB_RESERVE(m->mem, &m->events, 2 * m->steps.n));
    for (size_t i = 0; i < m->steps.n; i++) {
        const late_step *step = &m->steps.data[i];
        m->events.data[m->events.n++] = (late_event){step->start_ns, (uint32_t)i, true};
        m->events.data[m->events.n++] = (late_event){step->end_ns, (uint32_t)i, false};
    }
    EBB_TRY(ebb__sort_items(m->mem, m->events.data, m->events.n, sizeof *m->events.data, key_of));
    for (size_t i = 0; i < m->events.n; i++) {
        late_step *step = &m->steps.data[m->events.data[i].step];
        if (m->events.data[i].begins) { step->lane = find_lane(m, step); }
        m->n_lost += step->lane == NO_LANE && m->events.data[i].begins;
        if (step->lane != NO_LANE) { m->lane[step->lane].is_taken = m->events.data[i].begins; }
    }
    return EBB_OK;
}

/* ---- writing ------------------------------------------------------------------------------------ */

static ebb_status name_row(merge *m, ebb_trace_writer *writer, uint32_t lane) {
    char key[32], value[96], number[32] = "";
    const late_lane *l = &m->lane[lane];
    if (l->is_told) { return EBB_OK; }
    if (l->number > 0) { (void)snprintf(number, sizeof number, ", %u", l->number + 1); }
    (void)snprintf(key, sizeof key, "row.%u", FIRST_ROW + lane);
    (void)snprintf(value, sizeof value, "cuda:%u stream %u%s", l->device, l->stream, number);
    m->lane[lane].is_told = true;
    return ebb_trace_writer_note(writer, key, value);
}

static ebb_status write_late(merge *m, trace_rewriting *r, const late_event *late) {
    const late_step *step = &m->steps.data[late->step];
    if (step->lane == NO_LANE) { return EBB_OK; }
    ebb_trace_event event = {.kind = late->begins ? EBB_TRACE_STEP_BEGIN : EBB_TRACE_STEP_END,
                             .row = FIRST_ROW + step->lane,
                             .time_ns = ebb_max_u64(late->time_ns, r->last_ns),
                             .phase = EBB_TRACE_PHASE_UNKNOWN,
                             .index = EBB_TRACE_NONE};
    if (late->begins) {
        const late_name *name = &m->names.data[step->name];
        EBB_TRY(name_row(m, r->writer, step->lane));
        EBB_TRY(ebb__trace_writer_text(r->writer, name->name, strlen(name->name), &event.name));
        EBB_TRY(ebb__trace_writer_text(r->writer, name->op, strlen(name->op), &event.op));
        m->n_steps++;
    }
    r->last_ns = event.time_ns;
    return ebb_trace_writer_add(r->writer, &event);
}

/* All that come before this time. */
static ebb_status write_until(void *ctx, trace_rewriting *r, uint64_t time_ns) {
    merge *m = ctx;
    for (; m->next < m->events.n && m->events.data[m->next].time_ns < time_ns; m->next++) {
        EBB_TRY(write_late(m, r, &m->events.data[m->next]));
    }
    return EBB_OK;
}

/* ---- the merge ---------------------------------------------------------------------------------- */

ebb_status ebb_trace_add_late_steps(const ebb_mem *mem, const char *path, const char *steps_path, uint64_t *n_steps_out,
                                    uint64_t *n_lost_out) {
    EBB_NEED(path);
    EBB_NEED(steps_path);
    merge *m = ebb__calloc(ebb__mem_or_default(mem), 1, sizeof *m);
    if (m == NULL) { return EBB_E_NO_MEMORY; }
    m->mem = ebb__mem_or_default(mem);
    ebb__bump_init(&m->bump, m->mem);
    m->steps_path = steps_path;
    ebb_status st = read_steps(m);
    if (st == EBB_OK) { st = order_steps(m); }
    const trace_rewrite rewrite = {.ctx = m, .tells = EBB_TRACE_TELLS_STEPS, .before = write_until};
    if (st == EBB_OK) { st = ebb__trace_rewrite(m->mem, path, &rewrite); }
    if (st == EBB_OK && n_steps_out != NULL) { *n_steps_out = m->n_steps; }
    if (st == EBB_OK && n_lost_out != NULL) { *n_lost_out = m->n_lost; }
    EBB_VEC_FINI(m->mem, &m->names);
    EBB_VEC_FINI(m->mem, &m->steps);
    EBB_VEC_FINI(m->mem, &m->events);
    ebb__bump_fini(&m->bump);
    ebb__free(m->mem, m->text);
    ebb__free(m->mem, m);
    return st;
}
