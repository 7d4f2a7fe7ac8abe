/* SPDX-License-Identifier: Apache-2.0
 *
 * From options to a program, and from there to a plan.
 */
#include "session/session.h"
#include "backend/host_memory.h"

#include <math.h>

/* ---- options ----------------------------------------------------------------------------------- */

static bool is_paper(const ebb_session_options *o) {
    return o->accounting != NULL && strcmp(o->accounting, "paper") == 0;
}

static ebb_status check_accounting(const ebb_session_options *o) {
    if (o->accounting == NULL || strcmp(o->accounting, "device") == 0) { return EBB_OK; }
    if (!is_paper(o)) {
        static const char *const names[] = {"device", "paper", NULL};
        char known[EBB_SUGGESTION_BYTES];
        return ebb_fail(EBB_E_ARGUMENT, "no accounting is called '%.64s'%s", o->accounting,
                        ebb__suggest_or_list(o->accounting, ebb__name_in_list, names, known));
    }
    if (o->net == NULL && o->network_fn == NULL) {
        return ebb_fail(EBB_E_ARGUMENT, "paper accounting is for networks; a program tells its bytes itself");
    }
    if (o->device == NULL && (o->backend == NULL || strcmp(o->backend, "dry") == 0)) { return EBB_OK; }
    return ebb_fail(EBB_E_ARGUMENT, "paper accounting counts bytes and computes nothing; it goes with the backend dry");
}

static ebb_status check_options(const ebb_session_options *o) {
    if ((o->net != NULL) + (o->network_fn != NULL) + (o->program != NULL) > 1) {
        return ebb_fail(EBB_E_ARGUMENT,
                        "session: a network's name, a function that builds it or a program, one of them");
    }
    if (o->batch < 0 || o->channels < 0 || o->height < 0 || o->width < 0 || o->classes < 0) {
        return ebb_fail(EBB_E_ARGUMENT, "batch, channels, height, width and classes cannot be negative");
    }
    EBB_TRY(check_accounting(o));
    if (o->device_index < 0) {
        return ebb_fail(EBB_E_ARGUMENT, "there is no device of number %d", (int)o->device_index);
    }
    if (!(o->budget_percent >= 0 && isfinite(o->budget_percent))) {
        const double shown = isnan(o->budget_percent) ? fabs(o->budget_percent) : o->budget_percent;
        return ebb_fail(EBB_E_ARGUMENT, "a budget of %g %% is not possible", shown);
    }
    if (o->feed != NULL && strcmp(o->feed, "early") != 0 && strcmp(o->feed, "first") != 0) {
        return ebb_fail(EBB_E_ARGUMENT, "feed '%s': a batch comes first or early", o->feed);
    }
    return EBB_OK;
}

static ebb_status set_up(ebb_session *s) {
    ebb_session_options *o = &s->options;
    const char **texts[] = {&o->net,    &o->backend,    &o->machine_path, &o->disk_dir, &o->io,
                            &o->policy, &o->algorithms, &o->accounting,   &o->feed};
    EBB_TRY(check_options(o));
    if (o->batch == 0) { o->batch = EBB_DEFAULT_BATCH; }
    if (o->backend == NULL) { o->backend = is_paper(o) ? "dry" : ebb_backend_name(0, NULL); }
    const bool is_limited = o->budget_bytes > 0 || o->budget_percent > 0 || o->slowdown >= 0;
    if (o->policy == NULL) { o->policy = is_limited ? "best" : "liveness"; }
    if (o->algorithms == NULL) { o->algorithms = "given"; }
    if (o->remote != NULL) {
        const uint64_t has_bytes = ebb_remote_bytes(o->remote);
        o->remote_bytes = o->remote_bytes == 0 ? has_bytes : ebb_min_u64(o->remote_bytes, has_bytes);
    }
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) { EBB_TRY(ebb__bump_own(&s->bump, texts[i])); }
    return EBB_OK;
}

ebb_status ebb__session_create(const ebb_session_options *options, ebb_session **session_out) {
    if (options->size_bytes != sizeof *options) {
        return ebb_fail(EBB_E_ARGUMENT, "session: options of another version");
    }
    ebb_session *s = ebb__calloc(options->mem, 1, sizeof *s);
    if (s == NULL) { return EBB_E_NO_MEMORY; }
    s->mem = ebb__mem_or_default(options->mem);
    s->options = *options;
    s->program = options->program;
    ebb__bump_init(&s->bump, s->mem);
    const ebb_status status = set_up(s);
    if (status != EBB_OK) {
        ebb_session_close(s);
        return status;
    }
    *session_out = s;
    return EBB_OK;
}

/* ---- network and device ------------------------------------------------------------------------ */

static ebb_status check_network(const ebb_graph *graph) {
    EBB_TRY(ebb_graph_check(graph));
    const ebb_port *images = ebb__graph_port(graph, "images");
    const bool has_images = images != NULL && images->is_input && images->n_dims == 4 && images->dtype == EBB_F32;
    if (has_images && graph->loss != EBB_NO_VALUE) { return EBB_OK; }
    return ebb_fail(EBB_E_ARGUMENT, "network %s: it has no images, or no loss", graph->name);
}

ebb_status ebb__session_build(const ebb_session *s, bool inference, ebb_graph **graph_out) {
    const ebb_session_options *o = &s->options;
    ebb_zoo_options zoo = EBB_ZOO_OPTIONS_INIT;
    zoo.mem = s->mem;
    zoo.batch = o->batch;
    zoo.channels = o->channels;
    zoo.height = o->height;
    zoo.width = o->width;
    zoo.classes = o->classes;
    zoo.inference = inference;
    zoo.no_dropout = o->no_dropout;
    ebb_graph *graph = NULL;
    EBB_TRY(o->net != NULL ? ebb_zoo_build(o->net, &zoo, &graph) : o->network_fn(o->network_ctx, &zoo, &graph));
    const ebb_status status = check_network(graph);
    if (status != EBB_OK) {
        ebb_graph_destroy(graph);
        return status;
    }
    *graph_out = graph;
    return EBB_OK;
}

ebb_status ebb__session_take_sizes(ebb_session *s) {
    EBB_ASSERT(s->graph == NULL);
    EBB_TRY(ebb__session_build(s, false, &s->graph));
    const ebb_port *images = ebb__graph_port(s->graph, "images");
    s->options.channels = images->dims[1];
    s->options.height = images->dims[2];
    s->options.width = images->dims[3];
    return EBB_OK;
}

static bool is_size(int64_t wanted, int64_t size) {
    return wanted == 0 || wanted == size;
}

/* Whether it is what the options would build. */
static bool has_sizes(const ebb_graph *graph, const ebb_session_options *o) {
    const int64_t *dims = ebb__graph_port(graph, "images")->dims;
    return is_size(o->channels, dims[1]) && is_size(o->height, dims[2]) && is_size(o->width, dims[3]) &&
           is_size(o->classes, graph->classes);
}

ebb_status ebb__session_lower(ebb_session *s) {
    const ebb_session_options *o = &s->options;
    if (s->graph != NULL && !has_sizes(s->graph, o)) {
        ebb_graph_destroy(s->graph);
        s->graph = NULL;
    }
    if (s->graph == NULL) { EBB_TRY(ebb__session_build(s, false, &s->graph)); }
    EBB_TRY(ebb_graph_train(s->graph, o->keep_gradients ? NULL : &o->optimizer, o->keep_gradients));
    EBB_TRY(s->feeds_early ? ebb_lower_fed_early(s->graph, s->device, &s->lowered)
                           : ebb_lower(s->graph, s->device, &s->lowered));
    s->program = ebb_lowered_program(s->lowered);
    return EBB_OK;
}

static ebb_status open_device(ebb_session *s) {
    ebb_session_options *o = &s->options;
    if (o->device != NULL) {
        s->device = o->device;
        o->backend = ebb_device_backend(s->device);
        return EBB_OK;
    }
    ebb_device_options options = EBB_DEVICE_OPTIONS_INIT;
    options.mem = s->mem;
    options.n_threads = o->n_threads;
    options.index = o->device_index;
    options.tf32 = o->tf32;
    options.nondeterministic = o->nondeterministic;
    options.no_capture = o->no_capture;
    EBB_TRY(ebb_device_open(o->backend, &options, &s->device));
    s->owns_device = true;
    return EBB_OK;
}

ebb_status ebb__session_open_device(ebb_session *s) {
    const char *feed = s->options.feed;
    EBB_TRY(open_device(s));
    s->feeds_early = feed != NULL ? strcmp(feed, "early") == 0 : s->device->ops->feeds_early;
    return EBB_OK;
}

ebb_status ebb__session_open_machine(ebb_session *s) {
    const char *path = s->options.machine_path;
    uint32_t remote = 0;
    EBB_TRY(path != NULL ? ebb_machine_load(s->mem, path, &s->machine) : ebb_machine_create(s->mem, &s->machine));
    return s->options.remote_bytes > 0 ? ebb_machine_add_remote(s->machine, &remote) : EBB_OK;
}

/* ---- open, close ------------------------------------------------------------------------------- */

/* A network that cannot be built is said before its device is looked for. */
static ebb_status open_parts(ebb_session *s) {
    const bool has_network = s->options.net != NULL || s->options.network_fn != NULL;
    if (has_network) { EBB_TRY(ebb__session_build(s, false, &s->graph)); }
    if (is_paper(&s->options)) {
        EBB_TRY(ebb_lower_paper(s->graph, &s->paper));
        s->program = s->paper;
        return ebb__session_open_machine(s);
    }
    if (s->program == NULL) { EBB_TRY(ebb__session_open_device(s)); }
    if (has_network) { EBB_TRY(ebb__session_lower(s)); }
    return ebb__session_open_machine(s);
}

ebb_status ebb_session_open(const ebb_session_options *options, ebb_session **session_out) {
    EBB_NEED(options);
    EBB_NEED(session_out);
    ebb_session *s = NULL;
    EBB_TRY(ebb__session_create(options, &s));
    const ebb_status status = open_parts(s);
    if (status != EBB_OK) {
        ebb_session_close(s);
        return status;
    }
    *session_out = s;
    return EBB_OK;
}

void ebb_session_close(ebb_session *s) {
    if (s == NULL) { return; }
    ebb_machine_destroy(s->machine);
    ebb_program_destroy(s->paper);
    ebb_lowered_destroy(s->lowered);
    ebb_graph_destroy(s->graph);
    if (s->owns_device) { ebb_device_close(s->device); }
    ebb__bump_fini(&s->bump);
    ebb__free(s->mem, s);
}

ebb_session_parts ebb_session_get_parts(const ebb_session *s) {
    ebb_graph *graph = s->paper == NULL ? s->graph : NULL; /* it has no backward */
    return (ebb_session_parts){
        .device = s->device, .graph = graph, .lowered = s->lowered, .program = s->program, .machine = s->machine};
}

/* ---- plans ------------------------------------------------------------------------------------- */

ebb_status ebb_session_liveness_bytes(ebb_session *session, uint64_t *bytes_out) {
    EBB_NEED(session);
    EBB_NEED(bytes_out);
    if (session->program == NULL) { return ebb_fail(EBB_E_ARGUMENT, "session: there is nothing to plan for"); }
    if (session->liveness_bytes == 0) {
        ebb_plan_options options = EBB_PLAN_OPTIONS_INIT;
        ebb_plan *plan = NULL;
        options.mem = session->mem;
        options.policy = "liveness";
        EBB_TRY(ebb_plan_make(session->program, session->machine, &options, &plan, NULL));
        session->liveness_bytes = ebb_plan_get_summary(plan).peak_bytes;
        ebb_plan_destroy(plan);
    }
    *bytes_out = session->liveness_bytes;
    return EBB_OK;
}

uint64_t ebb__session_host_free(void) {
    return ebb__host_free_bytes();
}

/* What copies may take of the host. The arena will lie in the same memory where the host can read the device's. */
static ebb_status find_host_room(ebb_session *s, uint64_t budget_bytes, uint64_t *bytes_out) {
    const ebb_session_options *o = &s->options;
    *bytes_out = o->no_slab ? 0 : o->host_bytes > 0 ? o->host_bytes : UINT64_MAX;
    const bool has_rest = o->disk_dir != NULL || o->remote_bytes > 0;
    const bool is_real = s->device != NULL && s->device->ops->has_data;
    if (*bytes_out != UINT64_MAX || !o->within_free || !has_rest || !is_real) { return EBB_OK; }
    const uint64_t free_bytes = ebb__host_free_bytes();
    uint64_t arena_bytes = 0;
    if (free_bytes == UINT64_MAX) { return EBB_OK; }
    if (s->device->ops->host_visible) {
        EBB_TRY(ebb_session_liveness_bytes(s, &arena_bytes));
        arena_bytes = ebb_min_u64(arena_bytes, budget_bytes);
    }
    const uint64_t usable_bytes = free_bytes - free_bytes / 8;
    *bytes_out = usable_bytes - ebb_min_u64(usable_bytes, arena_bytes);
    return EBB_OK;
}

ebb_status ebb_session_plan_options(ebb_session *session, ebb_plan_options *options_out) {
    EBB_NEED(session);
    EBB_NEED(options_out);
    if (session->program == NULL) { return ebb_fail(EBB_E_ARGUMENT, "session: there is nothing to plan for"); }
    const ebb_session_options *o = &session->options;
    ebb_plan_options options = EBB_PLAN_OPTIONS_INIT;
    options.mem = session->mem;
    options.policy = o->policy;
    options.algorithms = o->algorithms;
    options.effort = o->effort;
    options.n_threads = o->plan_threads;
    options.no_recompute = o->no_recompute;
    options.as_coded = o->as_coded;
    options.slowdown = o->slowdown;
    options.margin = o->margin;
    options.progress = o->progress;
    options.tier_bytes[EBB_DISK] = o->disk_dir != NULL ? UINT64_MAX : 0;
    const uint32_t remote = ebb_topology_tier_of(ebb_machine_topology(session->machine), EBB_STORE_REMOTE);
    if (remote < EBB_MAX_TIERS) { options.tier_bytes[remote] = o->remote_bytes; }
    if (o->budget_percent > 0) {
        uint64_t liveness_bytes = 0;
        EBB_TRY(ebb_session_liveness_bytes(session, &liveness_bytes));
        const double bytes = (double)liveness_bytes * o->budget_percent / 100.0;
        options.budget_bytes = bytes < 9e18 ? (uint64_t)bytes : UINT64_MAX;
    } else if (o->budget_bytes > 0) {
        options.budget_bytes = o->budget_bytes;
    }
    EBB_TRY(find_host_room(session, options.budget_bytes, &options.tier_bytes[EBB_HOST]));
    if (session->device != NULL) {
        ebb_device_info info;
        EBB_TRY(ebb_device_get_info(session->device, &info));
        options.granule_bytes = info.granule_bytes;
    }
    *options_out = options;
    return EBB_OK;
}

ebb_status ebb_session_plan(ebb_session *session, ebb_plan **plan_out, ebb_no_fit *no_fit_out) {
    EBB_NEED(session);
    EBB_NEED(plan_out);
    ebb_plan_options options;
    EBB_TRY(ebb_session_plan_options(session, &options));
    return ebb_plan_make(session->program, session->machine, &options, plan_out, no_fit_out);
}
