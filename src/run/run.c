/* SPDX-License-Identifier: Apache-2.0
 *
 * The run's life: take everything, issue iterations, give everything back. See run.h for the picture.
 */
#include "backend/kernel_check.h"
#include "run/run.h"

#include <math.h>

/* ---- taking everything ------------------------------------------------------------------------- */

static ebb_status open_ports(ebb_run *run) {
    const ebb_graph *graph = run->lowered->graph;
    const uint64_t n = ebb_max_u64(graph->ports.n, 1);
    run->port = ebb__bump_alloc(&run->bump, n, sizeof *run->port);
    run->touches = ebb__bump_alloc(&run->bump, n + 1, sizeof *run->touches);
    void **other_port = ebb__bump_alloc(&run->bump, n, sizeof *other_port);
    if (run->port == NULL || run->touches == NULL || other_port == NULL) { return EBB_E_NO_MEMORY; }
    memset(run->port, 0, n * sizeof *run->port);
    memset(other_port, 0, n * sizeof *other_port);
    run->other_port = other_port; /* from here on there is something to close */
    run->state.port = run->port;
    run->state.ports_move = run->lowered->feeds_early;
    for (; run->n_ports < graph->ports.n; run->n_ports++) {
        const ebb_port *port = &graph->ports.data[run->n_ports];
        void **other = &run->other_port[run->n_ports];
        EBB_TRY(run->device->ops->host_alloc(run->device, port->size_bytes, &run->port[run->n_ports]));
        if (!run->lowered->feeds_early || !port->is_input) { continue; }
        EBB_TRY(run->device->ops->host_alloc(run->device, port->size_bytes, other));
    }
    return EBB_OK;
}

static void close_ports(ebb_run *run) {
    for (size_t p = 0; run->other_port != NULL && p < run->lowered->graph->ports.n; p++) {
        const uint64_t size_bytes = run->lowered->graph->ports.data[p].size_bytes;
        if (run->port[p] != NULL) { run->device->ops->host_free(run->device, run->port[p], size_bytes); }
        if (run->other_port[p] != NULL) { run->device->ops->host_free(run->device, run->other_port[p], size_bytes); }
    }
}

static ebb_status take_arena(ebb_run *run, ebb_arena *borrowed) {
    uint64_t peak_bytes = ebb_plan_get_summary(run->plan).peak_bytes;
    if (borrowed == NULL) {
        EBB_TRY(ebb_arena_create(run->device, peak_bytes, &run->own_arena));
        borrowed = run->own_arena;
    }
    if (borrowed->size_bytes < peak_bytes) {
        return ebb_fail(EBB_E_ARGUMENT, "the arena's %llu bytes are less than the plan's %llu",
                        (unsigned long long)borrowed->size_bytes, (unsigned long long)peak_bytes);
    }
    if (borrowed->device != run->device) { return ebb_fail(EBB_E_ARGUMENT, "the arena is another device's"); }
    EBB_TRY(ebb__arena_take(borrowed, run));
    run->arena = borrowed;
    return EBB_OK;
}

static ebb_status open_tiers(ebb_run *run, const ebb_run_options *options) {
    size_t n_slots = 0;
    const ebb_slot *slots = ebb_plan_slots(run->plan, &n_slots);
    ebb_tiers_options wanted = {.topology = ebb_plan_topology(run->plan),
                                .disk_dir = options->disk_dir,
                                .io = options->io,
                                .remote = options->remote};
    for (size_t s = 0; s < n_slots; s++) {
        const bool is_called = ebb__moves_by_calls(wanted.topology->tier[slots[s].tier].store);
        if (is_called) { wanted.largest_bytes = ebb_max_u64(wanted.largest_bytes, slots[s].size_bytes); }
    }
    const ebb_plan_summary summary = ebb_plan_get_summary(run->plan);
    memcpy(wanted.bytes, summary.tier_bytes, sizeof wanted.bytes);
    return ebb__tiers_open(run->device, &wanted, &run->tiers);
}

/* Streams for computing, for the ways between host and arena outside of iterations, and for what else the plan uses. */
static ebb_status open_streams(ebb_run *run) {
    bool is_used[EBB_MAX_ENGINES] = {[EBB_COMPUTE] = true};
    for (size_t a = 0; a < run->n_commands; a++) {
        if (run->commands[a].engine != EBB_NO_ENGINE) { is_used[run->commands[a].engine] = true; }
    }
    run->n_engines = ebb_plan_topology(run->plan)->n_engines;
    for (uint32_t e = 0; e < run->n_engines; e++) {
        if (!is_used[e]) { continue; }
        EBB_TRY(run->device->ops->stream_create(run->device, e == EBB_COMPUTE, &run->stream[e]));
    }
    return run->device->ops->stream_create(run->device, false, &run->border);
}

static ebb_status set_up(ebb_run *run, const ebb_run_options *options) {
    const ebb_program *program = run->lowered->program;
    EBB_TRY(ebb_executor_create(run->mem, program, run->plan, &run->executor));
    run->commands = ebb_executor_commands(run->executor, &run->n_commands);
    EBB_TRY(take_arena(run, options->arena));
    EBB_TRY(open_tiers(run, options));
    EBB_TRY(open_ports(run));
    EBB_TRY(open_streams(run));
    EBB_TRY(ebb__run_bind(run));
    run->parked_at = ebb__bump_alloc(&run->bump, program->tensors.n, sizeof *run->parked_at);
    if (run->parked_at == NULL) { return EBB_E_NO_MEMORY; }
    if (run->arena->was_used) { EBB_TRY(ebb__run_clear(run)); }
    run->arena->was_used = true;
    EBB_RUN_DEEP_CHECK(run);
    return EBB_OK;
}

ebb_status ebb_run_create(const ebb_lowered *lowered, const ebb_plan *plan, const ebb_run_options *options,
                          ebb_run **run_out) {
    EBB_NEED(lowered);
    EBB_NEED(plan);
    EBB_NEED(run_out);
    ebb_run_options defaults = EBB_RUN_OPTIONS_INIT;
    if (options == NULL) { options = &defaults; }
    if (options->size_bytes != sizeof *options) { return ebb_fail(EBB_E_ARGUMENT, "run: options of another version"); }
    ebb_run *run = ebb__calloc(options->mem, 1, sizeof *run);
    if (run == NULL) { return EBB_E_NO_MEMORY; }
    run->mem = ebb__mem_or_default(options->mem);
    run->lowered = lowered;
    run->plan = plan;
    run->device = lowered->device;
    run->state.seed = options->seed;
    for (uint32_t e = 0; e < EBB_MAX_ENGINES; e++) { run->stats.stall_ns[e] = UINT64_MAX; }
    ebb__bump_init(&run->bump, run->mem);
    ebb_status st = set_up(run, options);
    if (st != EBB_OK) {
        ebb_run_destroy(run);
        return st;
    }
    *run_out = run;
    return EBB_OK;
}

void ebb_run_destroy(ebb_run *run) {
    if (run == NULL) { return; }
    ebb__run_record_end(run);
    for (uint32_t e = 0; e < EBB_MAX_ENGINES; e++) {
        if (run->stream[e] != NULL) { run->device->ops->stream_destroy(run->stream[e]); }
    }
    if (run->border != NULL) { run->device->ops->stream_destroy(run->border); }
    ebb__run_unbind(run);
    ebb_executor_destroy(run->executor);
    close_ports(run);
    ebb__tiers_close(&run->tiers);
    if (run->arena != NULL) { ebb__arena_leave(run->arena, run); }
    ebb_arena_destroy(run->own_arena);
    ebb__run_give_parked(run);
    ebb__free(run->mem, run->record_message);
    ebb__bump_fini(&run->bump);
    ebb__free(run->mem, run);
}

/* ---- an iteration ------------------------------------------------------------------------------ */

/* An iteration that is being issued. timed: NULL, or two events for each command but drops, to be recorded before and
 * after it. */
typedef struct issuing {
    ebb_run *run;
    ebb_event *const *timed;
    ebb_stream *last[EBB_MAX_ENGINES]; /* where each engine's latest command ends */
    size_t next;                       /* command, or drops before it */
} issuing;

static ebb_status record_timed(const issuing *it, const ebb_command *command, size_t which) {
    const size_t idx = (size_t)(command - it->run->commands);
    if (it->timed == NULL) { return EBB_OK; }
    return it->run->device->ops->event_record(it->last[command->engine], it->timed[2 * idx + which]);
}

static ebb_status issue_step(void *ctx, const ebb_command *command) {
    issuing *it = ctx;
    const ebb_run_command *made = &it->run->made[command - it->run->commands];
    it->next = (size_t)(command - it->run->commands) + 1;
    ebb_stream *stream = it->run->stream[command->engine];
    it->last[command->engine] = stream;
    EBB_TRY(record_timed(it, command, 0));
    EBB_TRY(it->run->device->ops->run(stream, made->kernel, made->bound));
    if (command->engine != EBB_COMPUTE) { EBB_TRY(it->run->device->ops->event_record(stream, it->run->fed)); }
    return record_timed(it, command, 1);
}

static ebb_status issue_copy(void *ctx, const ebb_command *command) {
    issuing *it = ctx;
    ebb_run_command *made = &it->run->made[command - it->run->commands];
    ebb_stream *stream = it->run->stream[command->engine];
    it->next = (size_t)(command - it->run->commands) + 1;
    it->last[command->engine] = ebb__tiers_last_stream(stream, &made->transfer);
    EBB_TRY(record_timed(it, command, 0));
    EBB_TRY(ebb__tiers_transfer(stream, &made->transfer));
    return record_timed(it, command, 1);
}

static ebb_status issue_wait(void *ctx, uint32_t engine, uint32_t event) {
    issuing *it = ctx;
    const ebb_run *run = it->run;
    ebb_stream *stream = run->stream[engine];
    while (run->commands[it->next].engine == EBB_NO_ENGINE) { it->next++; }
    EBB_ASSERT(run->commands[it->next].engine == engine);
    if (!ebb__action_computes(&run->commands[it->next].action)) {
        stream = ebb__tiers_first_stream(stream, &run->made[it->next].transfer);
    }
    return run->device->ops->event_wait(stream, run->events[event]);
}

static ebb_status issue_record(void *ctx, uint32_t engine, uint32_t event) {
    const issuing *it = ctx;
    return it->run->device->ops->event_record(it->last[engine], it->run->events[event]);
}

static ebb_status issue(ebb_run *run, ebb_event *const *timed) {
    issuing it = {.run = run, .timed = timed};
    ebb_executor_ops ops = EBB_EXECUTOR_OPS_INIT;
    ops.compute = issue_step;
    ops.copy = issue_copy;
    ops.wait = issue_wait;
    ops.record = issue_record;
    EBB_TRY(ebb_executor_iterate(run->executor, &ops, &it));
    return run->fed != NULL ? run->device->ops->event_wait(run->stream[EBB_COMPUTE], run->fed) : EBB_OK;
}

/* With timed events not as an iteration that a backend may replay: they are no part of that. */
static ebb_status issue_all(ebb_run *run) {
    const ebb_backend_ops *ops = run->device->ops;
    const uint64_t run_id = (uint64_t)(uintptr_t)run;
    if (ops->iteration_begin == NULL) { return issue(run, NULL); }
    for (bool again = true; again;) {
        bool wanted = true;
        EBB_TRY(ops->iteration_begin(run->device, run_id, &wanted));
        const ebb_status issued = wanted ? issue(run, NULL) : EBB_OK;
        EBB_TRY(ops->iteration_end(run->device, run_id, issued, &again));
    }
    return EBB_OK;
}

ebb_status ebb__run_drain(ebb_run *run) {
    EBB_ASSERT(run->stream[EBB_COMPUTE] != NULL);
    ebb_status first = EBB_OK;
    for (uint32_t e = 0; e < run->n_engines; e++) {
        if (run->stream[e] == NULL) { continue; }
        ebb_status st = run->device->ops->stream_sync(run->stream[e]);
        if (first == EBB_OK) { first = st; }
    }
    const ebb_status files = ebb__tiers_drain(&run->tiers);
    return first == EBB_OK ? files : first;
}

/* Streams count on and on, and copies may go on after the iteration that issued them: an iteration's waits are those
 * that ended since the end of the one before. */
static void count_stalls(ebb_run *run) {
    const ebb_backend_ops *ops = run->device->ops;
    if (ops->stream_waited_ns == NULL) { return; }
    for (uint32_t e = 0; e < EBB_MAX_ENGINES; e++) {
        const uint64_t waited_ns = run->stream[e] != NULL ? ops->stream_waited_ns(run->stream[e]) : 0;
        run->stats.stall_ns[e] = waited_ns - run->waited_ns[e];
        run->waited_ns[e] = waited_ns;
    }
}

ebb_status ebb__run_iterate(ebb_run *run, ebb_event *const *events) {
    EBB_ASSERT(!run->failed && run->parked == NULL);
    const uint64_t begin_ns = ebb__now_ns();
    ebb_status status = events == NULL ? issue_all(run) : issue(run, events);
    if (status == EBB_OK) {
        status = events == NULL ? run->device->ops->stream_sync(run->stream[EBB_COMPUTE]) : ebb__run_drain(run);
    }
    EBB_TRY(ebb__tiers_check(&run->tiers)); /* a step that refuses what a failed copy left is not the cause */
    EBB_TRY(status);
    run->stats.iteration_ns = ebb__now_ns() - begin_ns;
    count_stalls(run);
    return EBB_OK;
}

/* What the host does to state and ports between iterations, as far as it may: it fills the inputs, and reads results.
 */
static ebb_status touch_ports(ebb_run *run, ebb_access_mode mode) {
    size_t n = 0;
    if (mode == EBB_WRITE) {
        run->touches[n++] = (ebb_touch){.base = &run->state, .size_bytes = sizeof run->state, .mode = mode};
    }
    for (size_t p = 0; p < run->n_ports; p++) {
        const ebb_port *port = &run->lowered->graph->ports.data[p];
        if (port->is_input != (mode == EBB_WRITE)) { continue; }
        run->touches[n++] = (ebb_touch){.base = run->port[p], .size_bytes = port->size_bytes, .mode = mode};
    }
    return ebb__touch(run->device, NULL, run->touches, n);
}

static ebb_status check_inputs(const ebb_run *run) {
    for (size_t p = 0; p < run->n_ports && run->device->ops->has_data; p++) {
        const ebb_port *port = &run->lowered->graph->ports.data[p];
        if (port->below == 0) { continue; }
        EBB_ASSERT(port->is_input && port->dtype == EBB_S32);
        const int64_t n = (int64_t)(port->size_bytes / ebb_dtype_bytes(port->dtype));
        EBB_TRY(ebb__kernel_check_labels(run->port[p], n, port->below));
    }
    return EBB_OK;
}

static ebb_status check_usable(const ebb_run *run) {
    if (run->failed) { return ebb_fail(EBB_E_DEVICE, "an earlier iteration of this run failed halfway"); }
    if (run->parked != NULL) { return ebb_fail(EBB_E_ARGUMENT, "the run has left its arena to another (unpark it)"); }
    return EBB_OK;
}

/* Comes before anything is issued, so a batch that is refused changes nothing. */
static ebb_status check_iteration(const ebb_run *run, uint64_t update, float learning_rate) {
    if (update == 0) { return ebb_fail(EBB_E_ARGUMENT, "update 0: updates count from 1"); }
    if (!(learning_rate >= 0 && isfinite(learning_rate))) {
        return ebb_fail(EBB_E_ARGUMENT, "update %llu: the learning rate must be finite and not negative",
                        (unsigned long long)update);
    }
    if (run->lowered->feeds_early && !run->is_fed) {
        return ebb_fail(EBB_E_ARGUMENT, "the network is fed early, and has no batch yet (feed it)");
    }
    return check_inputs(run);
}

/* The inputs' memories change places. */
static void turn_ports(ebb_run *run) {
    for (size_t p = 0; p < run->n_ports; p++) {
        if (run->other_port[p] == NULL) { continue; }
        void *const other = run->other_port[p];
        run->other_port[p] = run->port[p];
        run->port[p] = other;
    }
}

ebb_status ebb_run_feed(ebb_run *run) {
    EBB_NEED(run);
    if (!run->lowered->feeds_early) { return ebb_fail(EBB_E_ARGUMENT, "the network is not fed early"); }
    EBB_TRY(check_usable(run));
    EBB_TRY(check_inputs(run));
    EBB_TRY(ebb__run_set_inputs(run));
    run->is_fed = true;
    turn_ports(run);
    return EBB_OK;
}

ebb_status ebb_run_iteration(ebb_run *run, uint64_t iteration, uint64_t update, float learning_rate) {
    EBB_NEED(run);
    EBB_TRY(check_usable(run));
    EBB_TRY(check_iteration(run, update, learning_rate));
    run->state.iteration = iteration;
    run->state.update = update;
    run->state.learning_rate = learning_rate;
    EBB_TRY(touch_ports(run, EBB_WRITE));
    ebb_status st = run->recording != NULL ? ebb__run_record(run) : ebb__run_iterate(run, NULL);
    run->failed = st != EBB_OK;
    EBB_ASSERT(run->recording == NULL || st == EBB_OK);
    EBB_RUN_DEEP_CHECK(run);
    EBB_TRY(st);
    turn_ports(run);
    return touch_ports(run, EBB_READ);
}

/* ---- what the host sees ------------------------------------------------------------------------ */

ebb_status ebb_run_port(ebb_run *run, const char *name, void **memory_out, ebb_port *port_out) {
    EBB_NEED(run);
    EBB_NEED(name);
    EBB_NEED(memory_out);
    const ebb_graph *graph = run->lowered->graph;
    const ebb_port *port = ebb__graph_port(graph, name);
    if (port == NULL) {
        char names[256] = "";
        for (size_t p = 0, n = 0; p < graph->ports.n && n < sizeof names; p++) {
            n += (size_t)snprintf(names + n, sizeof names - n, "%s%s", p > 0 ? ", " : "", graph->ports.data[p].name);
        }
        return ebb_fail(EBB_E_ARGUMENT, "network %s has no port '%s'; it has: %s", graph->name, name, names);
    }
    *memory_out = run->port[port - graph->ports.data];
    if (port_out != NULL) { *port_out = *port; }
    return EBB_OK;
}

ebb_run_stats ebb_run_get_stats(const ebb_run *run) {
    ebb_run_stats stats = run->stats;
    const ebb_backend_ops *ops = run->device->ops;
    ebb_arena_use use = {.peak_bytes = UINT64_MAX};
    if (ops->arena_measure != NULL) { use = ops->arena_measure(run->device, run->arena->memory); }
    stats.peak_bytes = use.peak_bytes;
    stats.arena_bytes = run->arena->size_bytes;
    stats.arena_resident_bytes = use.resident_bytes;
    stats.slab_bytes = ebb__tiers_bytes(&run->tiers, EBB_STORE_MEMORY);
    stats.file_bytes = ebb__tiers_bytes(&run->tiers, EBB_STORE_FILE);
    stats.file_io = ebb__tiers_io(&run->tiers);
    stats.remote_bytes = ebb__tiers_bytes(&run->tiers, EBB_STORE_REMOTE);
    return stats;
}
