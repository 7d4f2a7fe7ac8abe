/* SPDX-License-Identifier: Apache-2.0
 *
 * Recording iterations: an event before and one after each command, and after each iteration the plan told again with
 * the times that were measured. So recording costs an iteration nothing but those events; and what goes wrong with it,
 * before the iteration or after it, is no failure of the iteration. A full disk loses the recording, not the training.
 *
 * A block of the trace is a stay; a step's scratch is a block too. It is allocated when the command that brings it
 * begins, and freed when the last command that touches it has ended: that is when its bytes can be used again. A stay
 * that reaches over the end of the iteration goes on as the same block in the next; those that were there when the
 * first one began are told before it. What happens between iterations (evaluations, checkpoints) is not told.
 */
#include "run/run.h"

#include "ebb/trace.h"

#include <inttypes.h>

#define NO_BLOCK UINT32_MAX

typedef struct record_block {
    uint32_t tensor; /* or EBB_SCRATCH */
    bool before;     /* was there when the iteration began */
    uint64_t offset, size_bytes;
    uint64_t last_ns; /* end of the last command that touched it */
    uint64_t number;  /* in the trace */
} record_block;

/* One event to write. */
typedef struct record_entry {
    uint64_t time_ns;
    ebb_trace_kind kind;
    uint32_t action, block;
} record_entry;

typedef ebb_recording recording;

struct ebb_recording {
    ebb_run *run;
    ebb_bump bump;
    char *path;
    uint64_t n_left; /* iterations to come */
    const ebb_action *actions;
    const ebb_stay *stays;
    size_t n_stays;
    ebb_event **events;          /* [2 * n_commands]: before, after */
    uint64_t zero_ns;            /* the device's time when the first iteration began */
    uint64_t *begin_ns, *end_ns; /* [n_commands], from there */
    uint64_t first_ns, last_ns;  /* of this iteration */
    EBB_VEC(record_block) blocks;
    EBB_VEC(record_entry) entries; /* of this iteration */
    uint32_t *order;               /* [entries.n]: by time, and as they were told where times are equal */
    ebb_plan_cursor cursor;
    uint32_t *block_of;                 /* [n_stays] */
    uint64_t n_written;                 /* blocks */
    uint64_t n_told;                    /* iterations */
    uint64_t stall_ns[EBB_MAX_ENGINES]; /* of all told iterations; UINT64_MAX: not known */
    ebb_trace_writer *writer;           /* NULL: no iteration has ended */
};

/* ---- measuring --------------------------------------------------------------------------------- */

static ebb_status create_events(recording *r) {
    ebb_run *run = r->run;
    for (size_t a = 0; a < run->n_commands; a++) {
        if (run->commands[a].engine == EBB_NO_ENGINE) { continue; }
        EBB_TRY(run->device->ops->event_create(run->device, &r->events[2 * a]));
        EBB_TRY(run->device->ops->event_create(run->device, &r->events[2 * a + 1]));
    }
    return EBB_OK;
}

/* A clock may be rounded, and rounded anew from one iteration to the next: CUDA's tells differences in single
 * precision. No time is before the last one of the iteration before, and no end before its beginning. */
static void read_times(recording *r) {
    const ebb_run *run = r->run;
    const ebb_backend_ops *ops = run->device->ops;
    const uint64_t least_ns = r->writer != NULL ? r->zero_ns + r->last_ns : 0;
    uint64_t first_ns = UINT64_MAX, last_ns = 0;
    for (size_t a = 0; a < run->n_commands; a++) {
        if (r->events[2 * a] == NULL) { continue; }
        r->begin_ns[a] = ebb_max_u64(least_ns, ops->event_time_ns(run->device, r->events[2 * a]));
        r->end_ns[a] = ebb_max_u64(r->begin_ns[a], ops->event_time_ns(run->device, r->events[2 * a + 1]));
        first_ns = ebb_min_u64(first_ns, r->begin_ns[a]);
        last_ns = ebb_max_u64(last_ns, r->end_ns[a]);
    }
    if (r->writer == NULL) { r->zero_ns = first_ns; }
    for (size_t a = 0; a < run->n_commands; a++) {
        if (r->events[2 * a] == NULL) { continue; }
        r->begin_ns[a] -= r->zero_ns;
        r->end_ns[a] -= r->zero_ns;
    }
    EBB_ASSERT(least_ns <= first_ns && first_ns <= last_ns);
    r->first_ns = first_ns - r->zero_ns;
    r->last_ns = last_ns - r->zero_ns;
}

/* ---- the plan, told again ---------------------------------------------------------------------- */

static ebb_status add_entry(recording *r, ebb_trace_kind kind, uint64_t time_ns, size_t action, uint32_t block) {
    EBB_ASSERT(r->first_ns <= time_ns && time_ns <= r->last_ns && action < r->run->n_commands);
    EBB_ASSERT(block == NO_BLOCK || block < r->blocks.n);
    record_entry entry = {.time_ns = time_ns, .kind = kind, .action = (uint32_t)action, .block = block};
    return EBB_PUSH(r->run->mem, &r->entries, entry);
}

static ebb_status begin_block(recording *r, uint32_t idx, bool before, uint64_t time_ns) {
    const ebb_stay *stay = &r->stays[idx];
    EBB_ASSERT(r->block_of[idx] == NO_BLOCK && stay->offset <= r->run->arena->size_bytes);
    const record_block block = {.tensor = stay->tensor,
                                .before = before,
                                .offset = stay->offset,
                                .size_bytes = stay->size_bytes,
                                .last_ns = time_ns};
    EBB_TRY(EBB_PUSH(r->run->mem, &r->blocks, block));
    r->block_of[idx] = (uint32_t)(r->blocks.n - 1);
    return add_entry(r, EBB_TRACE_ALLOC, time_ns, 0, r->block_of[idx]);
}

static ebb_status tell_access(recording *r, size_t a, const ebb_access *access, ebb_access_mode mode) {
    if ((access->mode & mode) == 0) { return EBB_OK; }
    const bool read = mode == EBB_READ;
    for (uint32_t i = ebb__plan_cursor_stay(&r->cursor, access->tensor, 0); i != EBB_NO_PIECE;
         i = ebb__plan_cursor_next_stay(&r->cursor, i)) {
        const uint32_t block = r->block_of[i];
        EBB_ASSERT(block != NO_BLOCK);
        r->blocks.data[block].last_ns = ebb_max_u64(r->blocks.data[block].last_ns, r->end_ns[a]);
        EBB_TRY(add_entry(r, read ? EBB_TRACE_READ : EBB_TRACE_WRITE, read ? r->begin_ns[a] : r->end_ns[a], a, block));
    }
    return EBB_OK;
}

static ebb_status free_block(recording *r, size_t a, uint32_t idx, uint64_t time_ns) {
    const uint32_t block = r->block_of[idx];
    EBB_ASSERT(block != NO_BLOCK);
    r->block_of[idx] = NO_BLOCK;
    return add_entry(r, EBB_TRACE_FREE, time_ns, a, block);
}

static ebb_status tell_step(recording *r, size_t a, uint32_t scratch) {
    const ebb_program *program = r->run->lowered->program;
    const ebb_step *step = &program->steps.data[r->actions[a].target];
    const ebb_access *accesses = &program->accesses.data[step->first_access];
    EBB_ASSERT((scratch != NO_BLOCK) == (r->run->made[a].kernel->scratch_bytes > 0));
    EBB_TRY(add_entry(r, EBB_TRACE_STEP_BEGIN, r->begin_ns[a], a, NO_BLOCK));
    for (uint32_t i = 0; i < step->n_accesses; i++) { EBB_TRY(tell_access(r, a, &accesses[i], EBB_READ)); }
    for (uint32_t i = 0; i < step->n_accesses; i++) { EBB_TRY(tell_access(r, a, &accesses[i], EBB_WRITE)); }
    if (scratch != NO_BLOCK) {
        EBB_TRY(add_entry(r, EBB_TRACE_WRITE, r->end_ns[a], a, scratch));
        EBB_TRY(free_block(r, a, r->cursor.scratch, r->end_ns[a]));
    }
    return add_entry(r, EBB_TRACE_STEP_END, r->end_ns[a], a, NO_BLOCK);
}

static ebb_status tell_copied(recording *r, size_t a, uint32_t block) {
    EBB_ASSERT(block != NO_BLOCK);
    r->blocks.data[block].last_ns = ebb_max_u64(r->blocks.data[block].last_ns, r->end_ns[a]);
    EBB_TRY(add_entry(r, EBB_TRACE_COPY_BEGIN, r->begin_ns[a], a, block));
    return add_entry(r, EBB_TRACE_COPY_END, r->end_ns[a], a, block);
}

/* A move between lower tiers touches no block: it is not told. */
static ebb_status tell_copy(recording *r, size_t a) {
    const ebb_action *action = &r->actions[a];
    const uint64_t size_bytes = r->run->commands[a].size_bytes;
    if (action->kind == EBB_ACT_MOVE) { return EBB_OK; }
    for (uint32_t i = ebb__plan_cursor_stay(&r->cursor, action->target, action->begin); i != EBB_NO_PIECE;
         i = ebb__plan_cursor_next_stay(&r->cursor, i)) {
        const uint32_t block = r->block_of[i];
        if (r->stays[i].begin >= action->begin + size_bytes) { break; }
        EBB_TRY(tell_copied(r, a, block));
    }
    return EBB_OK;
}

static ebb_status tell_drop(recording *r, size_t a) {
    const ebb_action *action = &r->actions[a];
    for (uint32_t i = ebb__plan_cursor_stay(&r->cursor, action->target, action->begin); i != EBB_NO_PIECE;
         i = ebb__plan_cursor_next_stay(&r->cursor, i)) {
        if (r->stays[i].begin >= ebb__action_end(action, UINT64_MAX)) { break; }
        if (r->stays[i].last != a || r->stays[i].first == r->stays[i].last) { continue; }
        EBB_TRY(free_block(r, a, i, ebb_max_u64(r->first_ns, r->blocks.data[r->block_of[i]].last_ns)));
    }
    return EBB_OK;
}

/* A step that an engine for copies does: a copy of what it writes. */
static ebb_status tell_feed(recording *r, size_t a) {
    const ebb_program *program = r->run->lowered->program;
    const ebb_step *step = &program->steps.data[r->actions[a].target];
    for (uint32_t i = 0; i < step->n_accesses; i++) {
        const ebb_access *access = &program->accesses.data[step->first_access + i];
        const uint32_t stay = ebb__plan_cursor_stay(&r->cursor, access->tensor, 0);
        EBB_ASSERT(access->mode == EBB_WRITE && stay != EBB_NO_PIECE);
        EBB_TRY(tell_copied(r, a, r->block_of[stay]));
    }
    return EBB_OK;
}

static ebb_status tell_action(recording *r, size_t a) {
    switch (r->actions[a].kind) {
    case EBB_ACT_RUN:
    case EBB_ACT_AGAIN: {
        if (r->run->commands[a].engine != EBB_COMPUTE) { return tell_feed(r, a); }
        const uint32_t scratch = r->cursor.scratch;
        return tell_step(r, a, scratch != EBB_NO_PIECE ? r->block_of[scratch] : NO_BLOCK);
    }
    case EBB_ACT_DROP: return tell_drop(r, a);
    default: return tell_copy(r, a);
    }
}

/* The tensors that are there when the first iteration begins. */
static ebb_status tell_before(recording *r) {
    for (size_t s = 0; s < r->n_stays; s++) { r->block_of[s] = NO_BLOCK; }
    for (uint32_t s = 0; s < r->n_stays; s++) {
        if (r->stays[s].first >= r->stays[s].last) { EBB_TRY(begin_block(r, s, true, 0)); }
    }
    return EBB_OK;
}

/* What lives to the end of the circle and not around it is over there. */
static ebb_status tell_end(recording *r) {
    const size_t n = r->run->n_commands;
    for (uint32_t s = 0; s < r->n_stays; s++) {
        const bool ends = r->stays[s].last == n && r->stays[s].first < n && r->block_of[s] != NO_BLOCK;
        if (ends) { EBB_TRY(free_block(r, n - 1, s, r->last_ns)); }
    }
    return EBB_OK;
}

static ebb_status tell_plan(recording *r) {
    r->entries.n = 0;
    if (r->writer == NULL) { EBB_TRY(tell_before(r)); }
    uint32_t next = 0;
    ebb__plan_cursor_rewind(&r->cursor);
    for (size_t a = 0; a < r->run->n_commands; a++) {
        ebb__plan_cursor_next(&r->cursor);
        for (; next < r->n_stays && r->stays[next].first == a; next++) {
            if (r->stays[next].first == r->stays[next].last) { continue; } /* there all the time */
            EBB_TRY(begin_block(r, next, false, r->begin_ns[a]));
        }
        EBB_TRY(tell_action(r, a));
    }
    EBB_ASSERT(next == r->n_stays);
    return tell_end(r);
}

/* ---- writing ----------------------------------------------------------------------------------- */

static ebb_status order_entries(recording *r) {
    const size_t n = r->entries.n;
    if (n > UINT32_MAX) { return ebb_fail(EBB_E_LIMIT, "more than 2^32 - 1 events of an iteration"); }
    ebb__free(r->run->mem, r->order);
    r->order = ebb__alloc(r->run->mem, n, sizeof *r->order);
    uint64_t *time_ns = ebb__alloc(r->run->mem, n, sizeof *time_ns);
    ebb_status st = r->order != NULL && time_ns != NULL ? EBB_OK : EBB_E_NO_MEMORY;
    for (size_t i = 0; st == EBB_OK && i < n; i++) {
        time_ns[i] = r->entries.data[i].time_ns;
        r->order[i] = (uint32_t)i;
    }
    if (st == EBB_OK) { st = ebb__sort_by_key(r->run->mem, r->order, n, time_ns); }
    ebb__free(r->run->mem, time_ns);
    return st;
}

static ebb_status fill_alloc(recording *r, record_block *block, uint64_t number, ebb_trace_event *event) {
    const ebb_program *program = r->run->lowered->program;
    bool scratch = block->tensor == EBB_SCRATCH;
    block->number = number;
    event->before = block->before;
    event->size_bytes = block->size_bytes;
    event->address = block->offset;
    event->role = scratch ? EBB_ROLE_WORKSPACE : program->tensors.data[block->tensor].role;
    return ebb_trace_writer_string(r->writer, scratch ? "scratch" : program->tensors.data[block->tensor].name,
                                   &event->name);
}

static ebb_status fill_step(recording *r, const record_entry *entry, ebb_trace_event *event) {
    const ebb_step *step = &r->run->lowered->program->steps.data[r->actions[entry->action].target];
    event->phase = step->phase;
    event->index = r->actions[entry->action].target;
    EBB_TRY(ebb_trace_writer_string(r->writer, step->name, &event->name));
    return ebb_trace_writer_string(r->writer, step->kind, &event->op);
}

static ebb_status write_entry(recording *r, const record_entry *entry) {
    ebb_trace_event event = {.kind = entry->kind, .time_ns = entry->time_ns};
    const ebb_command *command = &r->run->commands[entry->action];
    if (entry->kind == EBB_TRACE_COPY_BEGIN || entry->kind == EBB_TRACE_COPY_END) {
        const bool out = command->action.kind == EBB_ACT_OUT, in = command->action.kind == EBB_ACT_IN;
        const ebb_topology *topology = ebb_plan_topology(r->run->plan);
        const uint32_t tier = out ? command->to : in ? command->from : ebb_topology_tier_of(topology, EBB_STORE_MEMORY);
        event.row = command->engine;
        event.direction = out ? EBB_TRACE_OUT : EBB_TRACE_IN;
        event.tier = tier - 1; /* a trace counts the lower ones */
        event.size_bytes = r->blocks.data[entry->block].size_bytes;
        if (out || in) { event.size_bytes = ebb_min_u64(command->size_bytes, event.size_bytes); }
    }
    if (entry->kind == EBB_TRACE_STEP_BEGIN) { EBB_TRY(fill_step(r, entry, &event)); }
    if (entry->kind == EBB_TRACE_ALLOC) {
        EBB_TRY(fill_alloc(r, &r->blocks.data[entry->block], r->n_written++, &event));
    }
    EBB_ASSERT(entry->block == NO_BLOCK || r->blocks.data[entry->block].number < r->n_written);
    if (entry->block != NO_BLOCK) { event.block = r->blocks.data[entry->block].number; }
    return ebb_trace_writer_add(r->writer, &event);
}

static ebb_status write_notes(recording *r) {
    ebb_plan_summary summary = ebb_plan_get_summary(r->run->plan);
    EBB_TRY(ebb_trace_writer_note(r->writer, "source", "ebb run"));
    EBB_TRY(ebb_trace_writer_note(r->writer, "net", r->run->lowered->graph->name));
    EBB_TRY(ebb_trace_writer_note(r->writer, "backend", r->run->device->ops->name));
    EBB_TRY(ebb_trace_writer_note(r->writer, "policy", summary.policy));
    const ebb_topology *topology = ebb_plan_topology(r->run->plan);
    for (uint32_t e = 0; e < topology->n_engines; e++) {
        char name[16];
        if (r->run->stream[e] == NULL) { continue; }
        (void)snprintf(name, sizeof name, "row.%u", e);
        EBB_TRY(ebb_trace_writer_note(r->writer, name, topology->engine[e]));
    }
    return EBB_OK;
}

/* An alloc of what was there before the iteration; these come first. */
static bool is_before(const recording *r, const record_entry *entry) {
    return entry->kind == EBB_TRACE_ALLOC && r->blocks.data[entry->block].before;
}

static ebb_status write_iteration(recording *r) {
    ebb_trace_event mark = {.kind = EBB_TRACE_MARK,
                            .mark = EBB_TRACE_ITERATION_BEGIN,
                            .number = r->run->state.iteration,
                            .time_ns = r->first_ns};
    size_t at = 0;
    for (; at < r->entries.n && is_before(r, &r->entries.data[r->order[at]]); at++) {
        EBB_TRY(write_entry(r, &r->entries.data[r->order[at]]));
    }
    EBB_TRY(ebb_trace_writer_add(r->writer, &mark));
    for (; at < r->entries.n; at++) { EBB_TRY(write_entry(r, &r->entries.data[r->order[at]])); }
    EBB_ASSERT(r->n_written == r->blocks.n);
    mark.mark = EBB_TRACE_ITERATION_END;
    mark.time_ns = r->last_ns;
    return ebb_trace_writer_add(r->writer, &mark);
}

static ebb_status open_trace(recording *r) {
    ebb_trace_writer_options options = EBB_TRACE_WRITER_OPTIONS_INIT;
    options.mem = r->run->mem;
    options.tells = EBB_TRACE_TELLS_TIMES | EBB_TRACE_TELLS_ACCESSES | EBB_TRACE_TELLS_ADDRESSES |
                    EBB_TRACE_TELLS_ROLES | EBB_TRACE_TELLS_STEPS | EBB_TRACE_TELLS_BEFORE;
    EBB_TRY(ebb_trace_writer_open(r->path, &options, &r->writer));
    return write_notes(r);
}

/* How long each engine waited for others in an iteration, the mean of those that are told: the events do not say which
 * pauses between them were waits. */
static ebb_status write_stalls(recording *r) {
    char key[16], value[24];
    for (uint32_t e = 0; e < EBB_MAX_ENGINES && r->n_told > 0; e++) {
        if (r->run->stream[e] == NULL || r->stall_ns[e] == UINT64_MAX) { continue; }
        (void)snprintf(key, sizeof key, "stall.%" PRIu32, e);
        (void)snprintf(value, sizeof value, "%" PRIu64, r->stall_ns[e] / r->n_told);
        EBB_TRY(ebb_trace_writer_note(r->writer, key, value));
    }
    return EBB_OK;
}

static ebb_status close_trace(recording *r) {
    const ebb_status st = write_stalls(r);
    if (st != EBB_OK) { return st; } /* destroy abandons it */
    ebb_trace_writer *writer = r->writer;
    r->writer = NULL;
    return ebb_trace_writer_close(writer);
}

/* ---- the recording ------------------------------------------------------------------------------ */

static ebb_status prepare(recording *r) {
    ebb_run *run = r->run;
    size_t n = run->n_commands;
    r->actions = ebb_plan_actions(run->plan, &n);
    r->stays = ebb_plan_stays(run->plan, &r->n_stays);
    r->begin_ns = ebb__bump_alloc(&r->bump, n, sizeof(uint64_t));
    r->end_ns = ebb__bump_alloc(&r->bump, n, sizeof(uint64_t));
    r->block_of = ebb__bump_alloc(&r->bump, r->n_stays, sizeof(uint32_t));
    EBB_TRY(ebb__plan_cursor_init(run->plan, &r->bump, &r->cursor));
    if (r->begin_ns == NULL || r->end_ns == NULL || r->block_of == NULL) { return EBB_E_NO_MEMORY; }
    r->events = ebb__calloc(run->mem, 2 * n, sizeof(ebb_event *));
    return r->events != NULL ? create_events(r) : EBB_E_NO_MEMORY;
}

static ebb_status tell(recording *r) {
    read_times(r);
    EBB_TRY(tell_plan(r));
    EBB_TRY(order_entries(r));
    if (r->writer == NULL) { EBB_TRY(open_trace(r)); }
    EBB_TRY(write_iteration(r));
    r->n_told++;
    for (uint32_t e = 0; e < EBB_MAX_ENGINES; e++) {
        const uint64_t stall_ns = r->run->stats.stall_ns[e];
        const bool is_known = r->stall_ns[e] != UINT64_MAX && stall_ns != UINT64_MAX;
        r->stall_ns[e] = is_known ? r->stall_ns[e] + stall_ns : UINT64_MAX;
    }
    return EBB_OK;
}

static void destroy(recording *r) {
    ebb_run *run = r->run;
    ebb_trace_writer_abandon(r->writer);
    for (size_t e = 0; r->events != NULL && e < 2 * run->n_commands; e++) {
        if (r->events[e] != NULL) { run->device->ops->event_destroy(run->device, r->events[e]); }
    }
    ebb__free(run->mem, r->events);
    ebb__free(run->mem, r->order);
    EBB_VEC_FINI(run->mem, &r->blocks);
    EBB_VEC_FINI(run->mem, &r->entries);
    ebb__bump_fini(&r->bump);
    ebb__free(run->mem, r);
}

static void note_loss(ebb_run *run, ebb_status why) {
    EBB_ASSERT(why != EBB_OK && run->record_message == NULL);
    run->record_status = why;
    ebb__log(EBB_LOG_WARN, "iteration %llu: its recording is lost: %s", (unsigned long long)run->state.iteration,
             ebb_last_error());
    run->record_message = ebb__strdup(run->mem, ebb_last_error());
}

/* With one more iteration told, or none; the recording ends here if it was the last, or the trace is lost. */
static ebb_status go_on(recording *r) {
    EBB_TRY(tell(r));
    return --r->n_left > 0 ? EBB_OK : close_trace(r);
}

ebb_status ebb__run_record(ebb_run *run) {
    recording *r = run->recording;
    EBB_ASSERT(r->n_left > 0 && run->record_status == EBB_OK);
    ebb_status recorded = r->events == NULL ? prepare(r) : EBB_OK;
    ebb_status st = ebb__run_iterate(run, recorded == EBB_OK ? r->events : NULL);
    if (recorded == EBB_OK) { recorded = st == EBB_OK ? go_on(r) : st; }
    if (recorded != EBB_OK) { note_loss(run, recorded); }
    if (st != EBB_OK) { (void)ebb__run_drain(run); } /* what is queued still names the events */
    if (recorded != EBB_OK || r->n_left == 0) {
        destroy(r);
        run->recording = NULL;
    }
    return st;
}

ebb_status ebb_run_record_next(ebb_run *run, const char *path, uint64_t n_iterations) {
    EBB_NEED(run);
    EBB_NEED(path);
    if (n_iterations == 0) { return ebb_fail(EBB_E_ARGUMENT, "a recording of no iteration"); }
    recording *r = ebb__calloc(run->mem, 1, sizeof *r);
    if (r == NULL) { return EBB_E_NO_MEMORY; }
    ebb__bump_init(&r->bump, run->mem);
    r->run = run;
    r->n_left = n_iterations;
    r->path = ebb__bump_strdup(&r->bump, path);
    if (r->path == NULL) {
        destroy(r);
        return EBB_E_NO_MEMORY;
    }
    ebb__run_record_end(run);
    ebb__free(run->mem, run->record_message);
    run->recording = r;
    run->record_message = NULL;
    run->record_status = EBB_OK;
    return EBB_OK;
}

void ebb__run_record_end(ebb_run *run) {
    recording *r = run->recording;
    if (r == NULL) { return; }
    const ebb_status st = r->writer != NULL ? close_trace(r) : EBB_OK;
    if (st != EBB_OK) { ebb__log(EBB_LOG_WARN, "a recording is lost: %s", ebb_last_error()); }
    destroy(r);
    run->recording = NULL;
}

ebb_status ebb_run_record_status(const ebb_run *run) {
    EBB_NEED(run);
    if (run->record_status == EBB_OK) { return EBB_OK; }
    const char *why = run->record_message != NULL ? run->record_message : ebb_status_text(run->record_status);
    return ebb_fail(run->record_status, "a recording is lost: %s", why);
}
