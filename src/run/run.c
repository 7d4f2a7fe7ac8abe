/* SPDX-License-Identifier: Apache-2.0
 *
 * The run's life: take everything, issue iterations, give everything back. See run.h for the picture.
 */
#include "backend/kernel_check.h"
#include "run/run.h"

#include <math.h>
#include <sys/mman.h>
#include <unistd.h>

/* ---- taking everything ------------------------------------------------------------------------- */

static ebb_value port_value(const ebb_graph *graph, ebb_port port) {
    switch (port) {
    case EBB_PORT_IMAGES: return graph->images;
    case EBB_PORT_LABELS: return graph->labels;
    case EBB_PORT_LOSS: return graph->loss;
    case EBB_PORT_CORRECT: return graph->correct;
    case EBB_N_PORTS: break;
    }
    return EBB_NO_VALUE;
}

static ebb_status open_ports(ebb_run *run) {
    const ebb_graph *graph = run->lowered->graph;
    for (int p = 0; p < EBB_N_PORTS; p++) {
        ebb_value value = port_value(graph, (ebb_port)p);
        if (value == EBB_NO_VALUE) { continue; }
        const ebb_value_info *info = &graph->values.data[value];
        uint64_t bytes = (uint64_t)ebb__shape_elements(&info->shape) * (info->dtype == EBB_U8 ? 1 : 4);
        EBB_ASSERT(bytes > 0 && run->state.port[p] == NULL);
        EBB_TRY(run->device->ops->host_alloc(run->device, bytes, &run->state.port[p]));
        run->port_bytes[p] = bytes;
    }
    return EBB_OK;
}

/* Whether a tensor's content counts between iterations. A plan may leave others in the arena, but their content is the
 * backend's. */
static bool lasts(const ebb_run *run, uint32_t tensor) {
    const ebb_tensor *info = &run->lowered->program->tensors.data[tensor];
    return info->persistent || info->kept;
}

/* Where tensors that last are at the border of two iterations: the stays and slots that reach it. */
static ebb_status find_homes(ebb_run *run) {
    size_t n_tensors = run->lowered->program->tensors.n, n_stays = 0, n_slots = 0;
    run->homes = ebb__bump_alloc(&run->bump, n_tensors, sizeof *run->homes);
    if (run->homes == NULL) { return EBB_E_NO_MEMORY; }
    for (size_t t = 0; t < n_tensors; t++) { run->homes[t] = (ebb_home){.offset = UINT64_MAX, .slot = UINT64_MAX}; }
    const ebb_stay *stays = ebb_plan_stays(run->plan, &n_stays);
    for (size_t s = 0; s < n_stays; s++) {
        EBB_ASSERT(stays[s].tensor == EBB_SCRATCH || stays[s].tensor < n_tensors);
        EBB_ASSERT(stays[s].first <= run->n_commands && stays[s].last <= run->n_commands);
        bool at_border = stays[s].first >= stays[s].last || stays[s].last == run->n_commands;
        if (stays[s].tensor == EBB_SCRATCH || !lasts(run, stays[s].tensor)) { continue; }
        if (at_border) { run->homes[stays[s].tensor].offset = stays[s].offset; }
    }
    const ebb_slot *slots = ebb_plan_slots(run->plan, &n_slots);
    for (size_t s = 0; s < n_slots; s++) {
        EBB_ASSERT(slots[s].tensor < n_tensors);
        if (slots[s].first >= slots[s].last) { run->homes[slots[s].tensor].slot = s; }
    }
    return EBB_OK;
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
    run->arena = borrowed;
    return EBB_OK;
}

static ebb_status open_tiers(ebb_run *run, const char *disk_dir) {
    size_t n_slots = 0;
    const ebb_slot *slots = ebb_plan_slots(run->plan, &n_slots);
    uint64_t largest_bytes = 0;
    for (size_t s = 0; s < n_slots; s++) {
        if (slots[s].tier == EBB_TIER_DISK) { largest_bytes = ebb_max_u64(largest_bytes, slots[s].size_bytes); }
    }
    ebb_plan_summary summary = ebb_plan_get_summary(run->plan);
    return ebb__tiers_open(run->device, summary.tier_bytes, disk_dir, largest_bytes, &run->tiers);
}

static ebb_status set_up(ebb_run *run, const ebb_run_options *options) {
    const ebb_program *program = run->lowered->program;
    if (ebb_plan_get_summary(run->plan).fingerprint != ebb_program_fingerprint(program)) {
        return ebb_fail(EBB_E_INVALID_PLAN, "the plan is for another program than %s", program->name);
    }
    EBB_TRY(take_arena(run, options->arena));
    EBB_TRY(open_tiers(run, options->disk_dir));
    EBB_TRY(open_ports(run));
    for (int e = 0; e < EBB_N_ENGINES; e++) {
        EBB_TRY(run->device->ops->stream_create(run->device, e == EBB_ENGINE_COMPUTE, &run->stream[e]));
    }
    EBB_TRY(ebb__plan_schedule(program, run->plan, &run->bump, &run->schedule));
    EBB_TRY(ebb__run_bind(run));
    EBB_TRY(find_homes(run));
    EBB_RUN_DEEP_CHECK(run);
    return EBB_OK;
}

ebb_status ebb_run_create(const ebb_lowered *lowered, const ebb_plan *plan, const ebb_run_options *options,
                          ebb_run **run_out) {
    if (lowered == NULL) { return ebb_fail(EBB_E_ARGUMENT, "run: there is no network"); }
    if (plan == NULL) { return ebb_fail(EBB_E_ARGUMENT, "run: there is no plan"); }
    if (run_out == NULL) { return ebb_fail(EBB_E_ARGUMENT, "run: there is no place for it"); }
    ebb_run_options defaults = EBB_RUN_OPTIONS_INIT;
    if (options == NULL) { options = &defaults; }
    if (options->size_bytes != sizeof *options) { return ebb_fail(EBB_E_ARGUMENT, "run: options of another version"); }
    ebb_run *run = ebb__calloc(options->mem, 1, sizeof *run);
    if (run == NULL) { return EBB_E_NO_MEMORY; }
    run->mem = ebb__mem_or_default(options->mem);
    run->lowered = lowered;
    run->plan = plan;
    run->device = lowered->device;
    run->tiers.fd = -1;
    run->state.seed = options->seed;
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
    for (int e = 0; e < EBB_N_ENGINES; e++) {
        if (run->stream[e] != NULL) { run->device->ops->stream_destroy(run->stream[e]); }
    }
    ebb__run_unbind(run);
    for (int p = 0; p < EBB_N_PORTS; p++) {
        if (run->state.port[p] != NULL) {
            run->device->ops->host_free(run->device, run->state.port[p], run->port_bytes[p]);
        }
    }
    ebb__tiers_close(&run->tiers);
    ebb_arena_destroy(run->own_arena);
    ebb__free(run->mem, run->parked);
    ebb__free(run->mem, run->record_message);
    ebb__bump_fini(&run->bump);
    ebb__free(run->mem, run);
}

/* ---- an iteration ------------------------------------------------------------------------------ */

static ebb_status issue_kind(ebb_run *run, ebb_command *command, ebb_stream *stream) {
    switch (command->kind) {
    case EBB_ACT_RUN:
    case EBB_ACT_AGAIN: return run->device->ops->run(stream, command->kernel, command->bound);
    case EBB_ACT_OUT:
    case EBB_ACT_IN: return ebb__tiers_transfer(stream, &command->transfer);
    case EBB_ACT_DROP: break;
    }
    return EBB_OK;
}

static ebb_status issue(ebb_run *run, size_t idx, ebb_event *before, ebb_event *behind) {
    EBB_ASSERT(idx < run->n_commands);
    const ebb_backend_ops *ops = run->device->ops;
    ebb_command *command = &run->commands[idx];
    if (command->engine == EBB_N_ENGINES) { return EBB_OK; }
    ebb_stream *stream = run->stream[command->engine];
    EBB_ASSERT((before == NULL) == (behind == NULL));
    for (uint64_t d = run->schedule.start[idx]; d < run->schedule.start[idx + 1]; d++) {
        EBB_TRY(ops->event_wait(stream, run->commands[run->schedule.dep[d]].done));
    }
    if (before != NULL) { EBB_TRY(ops->event_record(stream, before)); }
    EBB_TRY(issue_kind(run, command, stream));
    if (command->done != NULL) { EBB_TRY(ops->event_record(stream, command->done)); }
    return behind != NULL ? ops->event_record(stream, behind) : EBB_OK;
}

static ebb_status issue_all(ebb_run *run) {
    const ebb_backend_ops *ops = run->device->ops;
    bool wanted = true;
    uint64_t run_id = (uint64_t)(uintptr_t)run;
    if (ops->iteration_begin != NULL) { EBB_TRY(ops->iteration_begin(run->device, run_id, &wanted)); }
    for (size_t a = 0; wanted && a < run->n_commands; a++) { EBB_TRY(issue(run, a, NULL, NULL)); }
    return ops->iteration_end != NULL ? ops->iteration_end(run->device, run_id) : EBB_OK;
}

/* Not as an iteration that a backend may replay: its events are no part of that. */
static ebb_status issue_between(ebb_run *run, ebb_event *const *events) {
    for (size_t a = 0; a < run->n_commands; a++) { EBB_TRY(issue(run, a, events[2 * a], events[2 * a + 1])); }
    return EBB_OK;
}

ebb_status ebb__run_drain(ebb_run *run) {
    EBB_ASSERT(run->stream[EBB_ENGINE_COMPUTE] != NULL);
    ebb_status first = EBB_OK;
    for (int e = 0; e < EBB_N_ENGINES; e++) {
        ebb_status st = run->device->ops->stream_sync(run->stream[e]);
        if (first == EBB_OK) { first = st; }
    }
    return first;
}

ebb_status ebb__run_iterate(ebb_run *run, ebb_event *const *events) {
    EBB_ASSERT(!run->failed && run->parked == NULL);
    const uint64_t begin_ns = ebb__now_ns();
    EBB_TRY(events == NULL ? issue_all(run) : issue_between(run, events));
    EBB_TRY(events == NULL ? run->device->ops->stream_sync(run->stream[EBB_ENGINE_COMPUTE]) : ebb__run_drain(run));
    run->stats.iteration_ns = ebb__now_ns() - begin_ns;
    return ebb__tiers_check(&run->tiers);
}

/* What the host does to state and ports between iterations, as far as it may: it fills the inputs, and reads results.
 */
static ebb_status touch_ports(ebb_run *run, ebb_access_mode mode) {
    ebb_touch touches[EBB_N_PORTS + 1] = {{.base = &run->state, .size_bytes = sizeof run->state, .mode = mode}};
    size_t n = mode == EBB_WRITE ? 1 : 0;
    for (int p = 0; p < EBB_N_PORTS; p++) {
        const bool input = p == EBB_PORT_IMAGES || p == EBB_PORT_LABELS;
        if (input != (mode == EBB_WRITE) || run->state.port[p] == NULL) { continue; }
        touches[n++] = (ebb_touch){.base = run->state.port[p], .size_bytes = run->port_bytes[p], .mode = mode};
    }
    return ebb__touch(run->device, NULL, touches, n);
}

/* Comes before anything is issued, so a batch that is refused changes nothing. */
static ebb_status check_iteration(const ebb_run *run, uint64_t update, float learning_rate) {
    if (update == 0) { return ebb_fail(EBB_E_ARGUMENT, "update 0: updates count from 1"); }
    if (!(learning_rate >= 0 && isfinite(learning_rate))) {
        return ebb_fail(EBB_E_ARGUMENT, "update %llu: the learning rate must be finite and not negative",
                        (unsigned long long)update);
    }
    const int32_t *labels = run->state.port[EBB_PORT_LABELS];
    if (labels == NULL || !run->device->ops->has_data) { return EBB_OK; }
    const int64_t n = (int64_t)(run->port_bytes[EBB_PORT_LABELS] / sizeof *labels);
    return ebb__kernel_check_labels(labels, n, run->lowered->graph->classes);
}

ebb_status ebb_run_iteration(ebb_run *run, uint64_t iteration, uint64_t update, float learning_rate) {
    if (run->failed) { return ebb_fail(EBB_E_DEVICE, "an earlier iteration of this run failed halfway"); }
    if (run->parked != NULL) { return ebb_fail(EBB_E_ARGUMENT, "the run has left its arena to another (unpark it)"); }
    EBB_TRY(check_iteration(run, update, learning_rate));
    run->state.iteration = iteration;
    run->state.update = update;
    run->state.learning_rate = learning_rate;
    EBB_TRY(touch_ports(run, EBB_WRITE));
    ebb_status st = run->recording != NULL ? ebb__run_record(run) : ebb__run_iterate(run, NULL);
    run->failed = st != EBB_OK;
    EBB_ASSERT(run->recording == NULL || st == EBB_OK);
    EBB_RUN_DEEP_CHECK(run);
    return st == EBB_OK ? touch_ports(run, EBB_READ) : st;
}

/* ---- what the host sees ------------------------------------------------------------------------ */

float *ebb_run_images(ebb_run *run) {
    return run->state.port[EBB_PORT_IMAGES];
}

int32_t *ebb_run_labels(ebb_run *run) {
    return run->state.port[EBB_PORT_LABELS];
}

static float read_port(const ebb_run *run, ebb_port port) {
    EBB_ASSERT(port == EBB_PORT_LOSS || port == EBB_PORT_CORRECT);
    const float *value = run->state.port[port];
    return value != NULL ? *value : 0.0f;
}

float ebb_run_loss(const ebb_run *run) {
    return read_port(run, EBB_PORT_LOSS);
}

float ebb_run_correct(const ebb_run *run) {
    return read_port(run, EBB_PORT_CORRECT);
}

/* Bytes of the arena that are in memory, as the kernel counts pages; 0 where it cannot say. */
static uint64_t resident_bytes(const ebb_run *run) {
    const ebb_backend_ops *ops = run->device->ops;
    if (!ops->host_visible || !ops->has_data || run->arena->size_bytes == 0) { return 0; }
    uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE), size_bytes = run->arena->size_bytes;
    unsigned char *begin = ops->host_address((ebb_buf){.arena = run->arena->memory, .size_bytes = size_bytes});
    unsigned char seen[1024];
    uint64_t resident = 0;
    for (uint64_t at = 0; at < size_bytes; at += page * sizeof seen) {
        EBB_ASSERT(resident <= at);
        uint64_t piece = ebb_min_u64(page * sizeof seen, size_bytes - at);
        if (mincore(begin + at, (size_t)piece, seen) != 0) { return 0; }
        for (uint64_t p = 0; p < (piece + page - 1) / page; p++) { resident += (seen[p] & 1u) ? page : 0; }
    }
    return resident;
}

ebb_run_stats ebb_run_get_stats(const ebb_run *run) {
    ebb_run_stats stats = run->stats;
    stats.arena_bytes = run->arena->size_bytes;
    stats.arena_resident_bytes = resident_bytes(run);
    stats.slab_bytes = run->tiers.slab_bytes;
    stats.file_bytes = run->tiers.file_bytes;
    return stats;
}
