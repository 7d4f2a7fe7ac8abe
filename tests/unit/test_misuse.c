/* SPDX-License-Identifier: Apache-2.0
 *
 * Misuse: every public function that returns a status, called with NULL for each pointer that it
 * needs, in turn, and with real objects for all others. It returns EBB_E_ARGUMENT, its message names the function and
 * the argument, and nothing is written to its outputs. What destroys or closes takes NULL and does nothing.
 * tools/check-headers checks that no function is missing here.
 */
#include "run_support.h"
#include "study_fixture.h"

#include "ebb/ebb.h"

#define OUT_BYTES 8192u

typedef struct world {
    data_dir dir;
    char path[256];          /* of a trace */
    void *out;               /* [OUT_BYTES]: for every output; nothing is ever written to it */
    study_fixture recording; /* its trace, read and studied */
    ebb_trace_reader *reader;
    ebb_trace_writer *writer;
    ebb_study *study;
    ebb_iteration_finder *finder;
    ebb_report *report;
    run_fixture net;
    ebb_graph *graph, *forward;
    ebb_device *device;
    ebb_lowered *lowered;
    ebb_run *run;
    ebb_value persistent;
    const ebb_program *program;
    ebb_program *open; /* not finished */
    ebb_plan *plan;
    ebb_machine *machine;
    ebb_comparison *comparison;
    ebb_executor *executor;
    ebb_place_file *file;
    ebb_pool *pool;
    ebb_session *session;
    ebb_trainer *trainer;
    ebb_data *data;

    ebb_trace_event event;
    ebb_place_item item;
    ebb_place_problem problem;
    uint64_t offsets[1];
    ebb_tier tier;
    ebb_link link;
    ebb_tensor tensor;
    ebb_access access;
    ebb_choice choice;
    ebb_step step;
    ebb_pool_request request;
    ebb_compared_run measured;
    ebb_batch batch;
    float plain[4096];
    int32_t numbers[64];
    uint64_t budget_bytes;
    ebb_plan_options plan_options;
    ebb_comparison_options comparison_options;
    ebb_pool_options pool_options;
    ebb_session_options session_options;
    ebb_trainer_options trainer_options;
    ebb_executor_ops executor_ops;
    ebb_measure_options measuring;
    ebb_remote_ops remote_ops;
} world;

/* ---- the objects ------------------------------------------------------------------------------ */

#define MADE(call)                                                                                                     \
    do {                                                                                                               \
        if ((call) != EBB_OK) { fail_msg("%s: %s", #call, ebb_last_error()); }                                         \
    } while (0)

static bool move_nothing(void *ctx, bool out, void *memory, uint64_t n_bytes, uint64_t at,
                         char why_out[EBB_REMOTE_WHY_BYTES]) {
    (void)ctx, (void)out, (void)memory, (void)n_bytes, (void)at, (void)why_out;
    return true;
}

static ebb_status do_nothing(void *ctx, const ebb_command *command) {
    (void)ctx, (void)command;
    return EBB_OK;
}

static int64_t give_nothing(void *ctx, void *buf, size_t n_bytes) {
    (void)ctx, (void)buf, (void)n_bytes;
    return 0;
}

static ebb_status take_all(void *ctx, const void *data, size_t n_bytes) {
    (void)ctx, (void)data, (void)n_bytes;
    return EBB_OK;
}

static void make_traces(world *w) {
    study_fixture *f = &w->recording;
    study_fixture_init(f, STUDY_TELLS_ALL);
    (void)study_alloc(f, 512, EBB_ROLE_ACTIVATION, "a");
    MADE(ebb_trace_writer_close(f->writer));
    MADE(ebb_trace_reader_open(NULL, f->path, &f->reader));
    MADE(ebb_study_create(f->reader, NULL, &w->study));
    (void)snprintf(w->path, sizeof w->path, "%s", f->path);
    MADE(ebb_trace_reader_open(NULL, w->path, &w->reader));
    MADE(ebb_trace_writer_open(data_path(&w->dir, "trace"), NULL, &w->writer));
    MADE(ebb_iteration_finder_create(NULL, NULL, &w->finder));
    MADE(ebb_report_create(w->path, NULL, &w->report));
    w->event.kind = EBB_TRACE_ALLOC;
    w->event.address = EBB_TRACE_NONE;
}

static void make_placement(world *w) {
    w->item = (ebb_place_item){.size_bytes = 8, .first = 0, .last = 1};
    w->problem = EBB_PLACE_PROBLEM_INIT;
    w->problem.items = &w->item;
    w->problem.n_items = 1;
    MADE(ebb_place_file_create(NULL, &w->problem, NULL, &w->file));
    w->pool_options = EBB_POOL_OPTIONS_INIT;
    w->pool_options.capacity_bytes = 4096;
    MADE(ebb_pool_create(&w->pool_options, &w->pool));
    w->request = (ebb_pool_request){.size_bytes = 512, .span = 1};
}

static void make_program(world *w) {
    uint32_t handle;
    w->tensor = (ebb_tensor){.name = "x", .size_bytes = 8};
    w->access = (ebb_access){.tensor = 0, .mode = EBB_WRITE};
    w->choice = (ebb_choice){.name = "plain"};
    w->step = (ebb_step){.name = "s", .kind = "make", .n_accesses = 1, .n_choices = 1};
    MADE(ebb_program_create(NULL, "open", 1, &w->open));
    MADE(ebb_program_add_tensor(w->open, &w->tensor, &handle));
}

static ebb_value persistent_of(const ebb_graph *graph) {
    ebb_value v = 0;
    while (!ebb__value_is_persistent(graph->values.data[v].kind)) { v++; }
    return v;
}

static void make_run(world *w) {
    run_fixture_init(&w->net, NULL);
    w->graph = w->net.graph;
    w->device = w->net.device;
    w->lowered = w->net.lowered;
    w->plan = w->net.plan;
    w->program = ebb_lowered_program(w->lowered);
    w->persistent = persistent_of(w->graph);
    w->run = run_fixture_start(&w->net, NULL);
    MADE(ebb_zoo_build("lenet", NULL, &w->forward));
    MADE(ebb_executor_create(NULL, w->program, w->plan, &w->executor));
    w->executor_ops = EBB_EXECUTOR_OPS_INIT;
    w->executor_ops.compute = w->executor_ops.copy = do_nothing;
    w->remote_ops = EBB_REMOTE_OPS_INIT;
    w->measuring = EBB_MEASURE_OPTIONS_INIT;
    w->remote_ops.move = move_nothing;
}

static void make_plans(world *w) {
    MADE(ebb_machine_create(NULL, &w->machine));
    w->tier = (ebb_tier){.name = "more", .store = EBB_STORE_FILE, .capacity_bytes = UINT64_MAX};
    assert_true(ebb_machine_link(w->machine, EBB_DEVICE, EBB_HOST, &w->link));
    w->plan_options = EBB_PLAN_OPTIONS_INIT;
    w->plan_options.policy = "liveness";
    w->budget_bytes = UINT64_MAX;
    w->comparison_options = EBB_COMPARISON_OPTIONS_INIT;
    w->comparison_options.policies = &w->plan_options.policy;
    w->comparison_options.budgets = &w->budget_bytes;
    w->comparison_options.n_policies = w->comparison_options.n_budgets = 1;
    MADE(ebb_comparison_create(w->program, w->machine, &w->comparison_options, &w->comparison));
}

static void make_training(world *w) {
    w->session_options = EBB_SESSION_OPTIONS_INIT;
    w->session_options.net = "mlp";
    w->session_options.backend = "ref";
    w->session_options.batch = 2;
    w->session_options.effort = 0;
    MADE(ebb_session_open(&w->session_options, &w->session));
    w->trainer_options = EBB_TRAINER_OPTIONS_INIT;
    w->trainer_options.session = w->session_options;
    w->trainer_options.session.keep_gradients = true;
    w->trainer_options.n_steps = 2;
    MADE(ebb_trainer_create(&w->trainer_options, &w->trainer, NULL, NULL));
    ebb_data_options options = EBB_DATA_OPTIONS_INIT;
    options.channels = 1;
    options.height = options.width = 8;
    MADE(ebb_data_open("synthetic", &options, &w->data));
    w->batch.n = 1;
}

static int set_up(void **state) {
    world *w = calloc(1, sizeof *w);
    assert_non_null(w);
    w->out = calloc(1, OUT_BYTES);
    assert_non_null(w->out);
    data_dir_make(&w->dir);
    make_traces(w);
    make_placement(w);
    make_program(w);
    make_run(w);
    make_plans(w);
    make_training(w);
    *state = w;
    return 0;
}

/* Everything still works after all those calls, too. */
static int tear_down(void **state) {
    world *w = *state;
    ebb_step_result result;
    bool done = true;
    MADE(ebb_trainer_step(w->trainer, &result, &done));
    MADE(ebb_run_iteration(w->run, 0, 1, 0.1f));
    MADE(ebb_trace_writer_close(w->writer));
    ebb_data_close(w->data);
    ebb_trainer_destroy(w->trainer);
    ebb_session_close(w->session);
    ebb_comparison_destroy(w->comparison);
    ebb_machine_destroy(w->machine);
    ebb_executor_destroy(w->executor);
    ebb_graph_destroy(w->forward);
    ebb_run_destroy(w->run);
    run_fixture_fini(&w->net);
    ebb_program_destroy(w->open);
    ebb_pool_destroy(w->pool);
    ebb_place_file_destroy(w->file);
    ebb_report_destroy(w->report);
    ebb_iteration_finder_destroy(w->finder);
    ebb_study_destroy(w->study);
    ebb_trace_reader_close(w->reader);
    ebb_trace_reader_close(w->recording.reader);
    assert_int_equal(unlink(w->path), 0);
    data_dir_remove(&w->dir);
    free(w->out);
    free(w);
    return 0;
}

/* ---- statuses --------------------------------------------------------------------------------- */

/* The call is to a function with `argument` NULL: what it returned, and said. */
static void expect_refusal(const world *w, const char *call, const char *argument, ebb_status status) {
    char wanted[256];
    (void)snprintf(wanted, sizeof wanted, "%.*s: %s is NULL", (int)strcspn(call, "("), call, argument);
    if (status != EBB_E_ARGUMENT || strcmp(ebb_last_error(), wanted) != 0) {
        fail_msg("%s: %s: %s", call, ebb_status_text(status), ebb_last_error());
    }
    for (size_t i = 0; i < OUT_BYTES; i++) {
        if (((const char *)w->out)[i] != 0) { fail_msg("%s: its output is written", call); }
    }
}

#define REFUSED(argument, call) expect_refusal(w, #call, #argument, (call))

/* ebb/base.h */
static void base(void **state) {
    world *w = *state;
    REFUSED(text, ebb_bytes_parse(NULL, w->out));
    REFUSED(bytes_out, ebb_bytes_parse("1", NULL));
    REFUSED(path, ebb_path_open_input(NULL, w->out));
    REFUSED(fd_out, ebb_path_open_input(w->path, NULL));
    REFUSED(path, ebb_path_check_writable(NULL));
}

/* ebb/trace.h, ebb/iteration.h */
static void traces(void **state) {
    world *w = *state;
    REFUSED(path, ebb_trace_writer_open(NULL, NULL, w->out));
    REFUSED(writer_out, ebb_trace_writer_open(w->path, NULL, NULL));
    REFUSED(writer, ebb_trace_writer_string(NULL, NULL, w->out));
    REFUSED(string_out, ebb_trace_writer_string(w->writer, NULL, NULL));
    REFUSED(writer, ebb_trace_writer_frame(NULL, 0, 0, 0, 1, w->out));
    REFUSED(stack_out, ebb_trace_writer_frame(w->writer, 0, 0, 0, 1, NULL));
    REFUSED(writer, ebb_trace_writer_note(NULL, NULL, NULL));
    REFUSED(writer, ebb_trace_writer_add(NULL, &w->event));
    REFUSED(event, ebb_trace_writer_add(w->writer, NULL));
    REFUSED(writer, ebb_trace_writer_close(NULL));
    REFUSED(path, ebb_trace_reader_open(NULL, NULL, w->out));
    REFUSED(reader_out, ebb_trace_reader_open(NULL, w->path, NULL));
    REFUSED(reader, ebb_trace_reader_next(NULL, w->out, w->out));
    REFUSED(event_out, ebb_trace_reader_next(w->reader, NULL, w->out));
    REFUSED(done_out, ebb_trace_reader_next(w->reader, w->out, NULL));
    REFUSED(path, ebb_trace_add_late_steps(NULL, NULL, w->path, NULL, NULL));
    REFUSED(steps_path, ebb_trace_add_late_steps(NULL, w->path, NULL, NULL, NULL));
    REFUSED(path, ebb_trace_name_callers(NULL, NULL, NULL, NULL));
    REFUSED(reader, ebb_trace_reader_choose(NULL, NULL));
    REFUSED(path, ebb_trace_import(NULL, w->path, NULL, NULL));
    REFUSED(out_path, ebb_trace_import(w->path, NULL, NULL, NULL));
    REFUSED(path, ebb_trace_open_any(NULL, NULL, NULL, w->out));
    REFUSED(reader_out, ebb_trace_open_any(NULL, w->path, NULL, NULL));
    REFUSED(path, ebb_trace_open_device(NULL, NULL, NULL, NULL, w->out));
    REFUSED(reader_out, ebb_trace_open_device(NULL, w->path, NULL, NULL, NULL));
    REFUSED(path, ebb_trace_open(NULL, NULL, w->out));
    REFUSED(reader_out, ebb_trace_open(w->path, NULL, NULL));
    REFUSED(finder_out, ebb_iteration_finder_create(NULL, NULL, NULL));
    REFUSED(finder, ebb_iteration_finder_add(NULL, &w->event));
    REFUSED(event, ebb_iteration_finder_add(w->finder, NULL));
    REFUSED(finder, ebb_iteration_finder_find(NULL, w->out));
    REFUSED(iteration_out, ebb_iteration_finder_find(w->finder, NULL));
}

/* ebb/study.h, ebb/diff.h, ebb/report.h */
static void studies(void **state) {
    world *w = *state;
    REFUSED(reader, ebb_study_create(NULL, NULL, w->out));
    REFUSED(study_out, ebb_study_create(w->reader, NULL, NULL));
    REFUSED(study, ebb_study_curve(NULL, EBB_STUDY_BY_EVENT, 1, w->out, w->out));
    REFUSED(bins_out, ebb_study_curve(w->study, EBB_STUDY_BY_EVENT, 1, NULL, w->out));
    REFUSED(axis_out, ebb_study_curve(w->study, EBB_STUDY_BY_EVENT, 1, w->out, NULL));
    REFUSED(a, ebb_diff_create(NULL, NULL, w->study, w->out));
    REFUSED(b, ebb_diff_create(NULL, w->study, NULL, w->out));
    REFUSED(diff_out, ebb_diff_create(NULL, w->study, w->study, NULL));
    REFUSED(path, ebb_report_create(NULL, NULL, w->out));
    REFUSED(report_out, ebb_report_create(w->path, NULL, NULL));
    REFUSED(format, ebb_report_check_format(NULL));
    REFUSED(report, ebb_report_write(NULL, "text", take_all, NULL));
    REFUSED(format, ebb_report_write(w->report, NULL, take_all, NULL));
    REFUSED(sink, ebb_report_write(w->report, "text", NULL, NULL));
    REFUSED(report, ebb_report_save(NULL, "text", w->path));
    REFUSED(format, ebb_report_save(w->report, NULL, w->path));
    REFUSED(path, ebb_report_save(w->report, "text", NULL));
}

/* ebb/place.h, ebb/place_file.h, ebb/pool.h */
static void placement(void **state) {
    world *w = *state;
    REFUSED(problem, ebb_place_solve(NULL, NULL, w->out, w->out));
    REFUSED(offsets_out, ebb_place_solve(&w->problem, NULL, NULL, w->out));
    REFUSED(result_out, ebb_place_solve(&w->problem, NULL, w->out, NULL));
    REFUSED(problem, ebb_place_bound(NULL, NULL, w->out));
    REFUSED(bound_bytes_out, ebb_place_bound(&w->problem, NULL, NULL));
    REFUSED(problem, ebb_place_check(NULL, NULL, w->offsets, NULL));
    REFUSED(offsets, ebb_place_check(&w->problem, NULL, NULL, NULL));
    REFUSED(path, ebb_place_file_read(NULL, NULL, w->out));
    REFUSED(file_out, ebb_place_file_read(NULL, w->path, NULL));
    REFUSED(name, ebb_place_file_read_from(NULL, NULL, give_nothing, NULL, w->out));
    REFUSED(source, ebb_place_file_read_from(NULL, "source", NULL, NULL, w->out));
    REFUSED(file_out, ebb_place_file_read_from(NULL, "source", give_nothing, NULL, NULL));
    REFUSED(problem, ebb_place_file_create(NULL, NULL, NULL, w->out));
    REFUSED(file_out, ebb_place_file_create(NULL, &w->problem, NULL, NULL));
    REFUSED(file, ebb_place_file_write(NULL, w->offsets, w->path));
    REFUSED(offsets, ebb_place_file_write(w->file, NULL, w->path));
    REFUSED(path, ebb_place_file_write(w->file, w->offsets, NULL));
    REFUSED(file, ebb_place_file_draw(NULL, w->offsets, NULL, w->path));
    REFUSED(offsets, ebb_place_file_draw(w->file, NULL, NULL, w->path));
    REFUSED(path, ebb_place_file_draw(w->file, w->offsets, NULL, NULL));
    REFUSED(options, ebb_pool_create(NULL, w->out));
    REFUSED(pool_out, ebb_pool_create(&w->pool_options, NULL));
    REFUSED(pool, ebb_pool_plan(NULL, &w->request, 1, NULL));
    REFUSED(requests, ebb_pool_plan(w->pool, NULL, 1, NULL));
    REFUSED(pool, ebb_pool_alloc(NULL, 1, w->out));
    REFUSED(address_out, ebb_pool_alloc(w->pool, 1, NULL));
    REFUSED(pool, ebb_pool_free(NULL, 1));
    REFUSED(pool, ebb_pool_get_stats(NULL, w->out));
    REFUSED(stats_out, ebb_pool_get_stats(w->pool, NULL));
}

/* ebb/program.h, ebb/program_import.h, ebb/program_trace.h */
static void programs(void **state) {
    world *w = *state;
    REFUSED(program_out, ebb_program_create(NULL, NULL, 1, NULL));
    REFUSED(program, ebb_program_add_tensor(NULL, &w->tensor, w->out));
    REFUSED(tensor, ebb_program_add_tensor(w->open, NULL, w->out));
    REFUSED(handle_out, ebb_program_add_tensor(w->open, &w->tensor, NULL));
    REFUSED(program, ebb_program_add_view(NULL, 0, 0, 1, w->out));
    REFUSED(handle_out, ebb_program_add_view(w->open, 0, 0, 1, NULL));
    REFUSED(program, ebb_program_add_step(NULL, &w->step, &w->access, &w->choice));
    REFUSED(step, ebb_program_add_step(w->open, NULL, &w->access, &w->choice));
    REFUSED(accesses, ebb_program_add_step(w->open, &w->step, NULL, &w->choice));
    REFUSED(choices, ebb_program_add_step(w->open, &w->step, &w->access, NULL));
    REFUSED(program, ebb_program_keep_order(NULL));
    REFUSED(program, ebb_program_finish(NULL));
    REFUSED(path, ebb_program_load(NULL, NULL, w->out));
    REFUSED(program_out, ebb_program_load(NULL, w->path, NULL));
    REFUSED(program, ebb_program_save(NULL, w->path));
    REFUSED(path, ebb_program_save(w->program, NULL));
    REFUSED(path, ebb_program_import(NULL, NULL, w->out));
    REFUSED(program_out, ebb_program_import(w->path, NULL, NULL));
    REFUSED(reader, ebb_program_from_trace(NULL, NULL, w->out, NULL));
    REFUSED(program_out, ebb_program_from_trace(w->reader, NULL, NULL, NULL));
}

/* ebb/plan.h, ebb/comparison.h, ebb/executor.h */
static void plans(void **state) {
    world *w = *state;
    REFUSED(machine_out, ebb_machine_create(NULL, NULL));
    REFUSED(path, ebb_machine_load(NULL, NULL, w->out));
    REFUSED(machine_out, ebb_machine_load(NULL, w->path, NULL));
    REFUSED(machine, ebb_machine_save(NULL, w->path));
    REFUSED(path, ebb_machine_save(w->machine, NULL));
    REFUSED(machine, ebb_machine_add_tier(NULL, &w->tier, w->out));
    REFUSED(tier, ebb_machine_add_tier(w->machine, NULL, w->out));
    REFUSED(tier_out, ebb_machine_add_tier(w->machine, &w->tier, NULL));
    REFUSED(machine, ebb_machine_add_engine(NULL, "more", w->out));
    REFUSED(name, ebb_machine_add_engine(w->machine, NULL, w->out));
    REFUSED(engine_out, ebb_machine_add_engine(w->machine, "more", NULL));
    REFUSED(machine, ebb_machine_add_remote(NULL, w->out));
    REFUSED(tier_out, ebb_machine_add_remote(w->machine, NULL));
    REFUSED(machine, ebb_machine_set_link(NULL, &w->link));
    REFUSED(link, ebb_machine_set_link(w->machine, NULL));
    REFUSED(machine, ebb_machine_set_time(NULL, 1, 1));
    REFUSED(program, ebb_plan_make(NULL, w->machine, &w->plan_options, w->out, NULL));
    REFUSED(machine, ebb_plan_make(w->program, NULL, &w->plan_options, w->out, NULL));
    REFUSED(options, ebb_plan_make(w->program, w->machine, NULL, w->out, NULL));
    REFUSED(plan_out, ebb_plan_make(w->program, w->machine, &w->plan_options, NULL, NULL));
    REFUSED(program, ebb_plan_certify(NULL, w->machine, &w->plan_options, w->out));
    REFUSED(machine, ebb_plan_certify(w->program, NULL, &w->plan_options, w->out));
    REFUSED(options, ebb_plan_certify(w->program, w->machine, NULL, w->out));
    REFUSED(certificate_out, ebb_plan_certify(w->program, w->machine, &w->plan_options, NULL));
    REFUSED(path, ebb_plan_load(NULL, NULL, w->out));
    REFUSED(plan_out, ebb_plan_load(NULL, w->path, NULL));
    REFUSED(plan, ebb_plan_save(NULL, w->path));
    REFUSED(path, ebb_plan_save(w->plan, NULL));
    REFUSED(program, ebb_plan_check(NULL, w->plan));
    REFUSED(plan, ebb_plan_check(w->program, NULL));
    REFUSED(program, ebb_plan_simulate(NULL, w->plan, w->machine, w->out, NULL, NULL));
    REFUSED(plan, ebb_plan_simulate(w->program, NULL, w->machine, w->out, NULL, NULL));
    REFUSED(machine, ebb_plan_simulate(w->program, w->plan, NULL, w->out, NULL, NULL));
    REFUSED(timeline_out, ebb_plan_simulate(w->program, w->plan, w->machine, NULL, NULL, NULL));
    REFUSED(program, ebb_comparison_create(NULL, w->machine, &w->comparison_options, w->out));
    REFUSED(machine, ebb_comparison_create(w->program, NULL, &w->comparison_options, w->out));
    REFUSED(options, ebb_comparison_create(w->program, w->machine, NULL, w->out));
    REFUSED(comparison_out, ebb_comparison_create(w->program, w->machine, &w->comparison_options, NULL));
    REFUSED(comparison, ebb_comparison_set_run(NULL, 0, &w->measured));
    REFUSED(run, ebb_comparison_set_run(w->comparison, 0, NULL));
    REFUSED(comparison, ebb_comparison_save(NULL, w->path));
    REFUSED(path, ebb_comparison_save(w->comparison, NULL));
    REFUSED(program, ebb_executor_create(NULL, NULL, w->plan, w->out));
    REFUSED(plan, ebb_executor_create(NULL, w->program, NULL, w->out));
    REFUSED(executor_out, ebb_executor_create(NULL, w->program, w->plan, NULL));
    REFUSED(executor, ebb_executor_iterate(NULL, &w->executor_ops, NULL));
    REFUSED(ops, ebb_executor_iterate(w->executor, NULL, NULL));
    REFUSED(program, ebb_executor_prove(NULL, NULL, w->plan, w->out));
    REFUSED(plan, ebb_executor_prove(NULL, w->program, NULL, w->out));
    REFUSED(proof_out, ebb_executor_prove(NULL, w->program, w->plan, NULL));
}

/* ebb/graph.h, ebb/device.h */
static void networks(void **state) {
    world *w = *state;
    REFUSED(graph_out, ebb_graph_create(NULL, NULL));
    REFUSED(graph, ebb_graph_check(NULL));
    REFUSED(graph, ebb_graph_value_shape(NULL, 0, w->out, w->out));
    REFUSED(dims_out, ebb_graph_value_shape(w->graph, 0, NULL, w->out));
    REFUSED(n_dims_out, ebb_graph_value_shape(w->graph, 0, w->out, NULL));
    REFUSED(name, ebb_optimizer_parse(NULL, w->out));
    REFUSED(kind_out, ebb_optimizer_parse("sgd", NULL));
    REFUSED(graph, ebb_graph_train(NULL, NULL, true));
    REFUSED(name, ebb_zoo_build(NULL, NULL, w->out));
    REFUSED(graph_out, ebb_zoo_build("lenet", NULL, NULL));
    REFUSED(backend, ebb_device_open(NULL, NULL, w->out));
    REFUSED(device_out, ebb_device_open("ref", NULL, NULL));
    REFUSED(device, ebb_device_get_info(NULL, w->out));
    REFUSED(info_out, ebb_device_get_info(w->device, NULL));
    REFUSED(graph, ebb_lower(NULL, w->device, w->out));
    REFUSED(device, ebb_lower(w->graph, NULL, w->out));
    REFUSED(lowered_out, ebb_lower(w->graph, w->device, NULL));
    REFUSED(graph, ebb_lower_fed_early(NULL, w->device, w->out));
    REFUSED(device, ebb_lower_fed_early(w->graph, NULL, w->out));
    REFUSED(lowered_out, ebb_lower_fed_early(w->graph, w->device, NULL));
    REFUSED(graph, ebb_lower_paper(NULL, w->out));
    REFUSED(program_out, ebb_lower_paper(w->forward, NULL));
}

/* ebb/run.h, ebb/remote.h */
static void runs(void **state) {
    world *w = *state;
    REFUSED(device, ebb_arena_create(NULL, 1, w->out));
    REFUSED(arena_out, ebb_arena_create(w->device, 1, NULL));
    REFUSED(lowered, ebb_run_create(NULL, w->plan, NULL, w->out));
    REFUSED(plan, ebb_run_create(w->lowered, NULL, NULL, w->out));
    REFUSED(run_out, ebb_run_create(w->lowered, w->plan, NULL, NULL));
    REFUSED(run, ebb_run_port(NULL, "images", w->out, NULL));
    REFUSED(name, ebb_run_port(w->run, NULL, w->out, NULL));
    REFUSED(memory_out, ebb_run_port(w->run, "images", NULL, NULL));
    REFUSED(run, ebb_run_feed(NULL));
    REFUSED(run, ebb_run_iteration(NULL, 0, 1, 0.1f));
    REFUSED(run, ebb_run_set_value(NULL, w->persistent, w->plain));
    REFUSED(plain, ebb_run_set_value(w->run, w->persistent, NULL));
    REFUSED(run, ebb_run_get_value(NULL, w->persistent, w->out));
    REFUSED(plain_out, ebb_run_get_value(w->run, w->persistent, NULL));
    REFUSED(run, ebb_run_init_values(NULL, 1));
    REFUSED(run, ebb_run_park(NULL));
    REFUSED(run, ebb_run_unpark(NULL));
    REFUSED(run, ebb_run_record_next(NULL, w->path, 1));
    REFUSED(path, ebb_run_record_next(w->run, NULL, 1));
    REFUSED(run, ebb_run_record_status(NULL));
    REFUSED(graph, ebb_run_prove(NULL, w->device, w->plan, w->out));
    REFUSED(device, ebb_run_prove(w->graph, NULL, w->plan, w->out));
    REFUSED(plan, ebb_run_prove(w->graph, w->device, NULL, w->out));
    REFUSED(proof_out, ebb_run_prove(w->graph, w->device, w->plan, NULL));
    REFUSED(lowered, ebb_run_measure_steps(NULL, &w->measuring, w->machine));
    REFUSED(options, ebb_run_measure_steps(w->lowered, NULL, w->machine));
    REFUSED(machine, ebb_run_measure_steps(w->lowered, &w->measuring, NULL));
    REFUSED(device, ebb_run_measure_links(NULL, NULL, NULL, NULL, 1, w->machine));
    REFUSED(machine, ebb_run_measure_links(w->device, NULL, NULL, NULL, 1, NULL));
    REFUSED(device, ebb_run_measure_copies(NULL, 1, w->out, w->out));
    REFUSED(pinned_out, ebb_run_measure_copies(w->device, 1, NULL, w->out));
    REFUSED(pageable_out, ebb_run_measure_copies(w->device, 1, w->out, NULL));
    REFUSED(ops, ebb_remote_create(NULL, NULL, NULL, 1, w->out));
    REFUSED(remote_out, ebb_remote_create(NULL, &w->remote_ops, NULL, 1, NULL));
    REFUSED(remote_out, ebb_remote_open_mpi(NULL, 1, NULL));
}

/* ebb/session.h, ebb/train.h */
static void training(void **state) {
    world *w = *state;
    REFUSED(options, ebb_session_open(NULL, w->out));
    REFUSED(session_out, ebb_session_open(&w->session_options, NULL));
    REFUSED(session, ebb_session_liveness_bytes(NULL, w->out));
    REFUSED(bytes_out, ebb_session_liveness_bytes(w->session, NULL));
    REFUSED(session, ebb_session_plan_options(NULL, w->out));
    REFUSED(options_out, ebb_session_plan_options(w->session, NULL));
    REFUSED(session, ebb_session_plan(NULL, w->out, NULL));
    REFUSED(plan_out, ebb_session_plan(w->session, NULL, NULL));
    REFUSED(spec, ebb_data_open(NULL, NULL, w->out));
    REFUSED(data_out, ebb_data_open("synthetic", NULL, NULL));
    REFUSED(data, ebb_data_read(NULL, w->batch, w->out, w->out, NULL));
    REFUSED(images_out, ebb_data_read(w->data, w->batch, NULL, w->out, NULL));
    REFUSED(labels_out, ebb_data_read(w->data, w->batch, w->out, NULL, NULL));
    REFUSED(data, ebb_data_prefetch(NULL, w->batch));
    REFUSED(data, ebb_data_prefetch_to(NULL, w->batch, w->plain, w->numbers));
    REFUSED(images, ebb_data_prefetch_to(w->data, w->batch, NULL, w->numbers));
    REFUSED(labels, ebb_data_prefetch_to(w->data, w->batch, w->plain, NULL));
    REFUSED(text, ebb_lr_schedule_parse(NULL, w->out));
    REFUSED(schedule_io, ebb_lr_schedule_parse("1", NULL));
    REFUSED(options, ebb_trainer_create(NULL, w->out, NULL, NULL));
    REFUSED(trainer_out, ebb_trainer_create(&w->trainer_options, NULL, NULL, NULL));
    REFUSED(trainer, ebb_trainer_step(NULL, w->out, w->out));
    REFUSED(result_out, ebb_trainer_step(w->trainer, NULL, w->out));
    REFUSED(done_out, ebb_trainer_step(w->trainer, w->out, NULL));
    REFUSED(trainer, ebb_trainer_record_status(NULL));
    REFUSED(trainer, ebb_trainer_evaluate(NULL, w->out));
    REFUSED(result_out, ebb_trainer_evaluate(w->trainer, NULL));
    REFUSED(trainer, ebb_trainer_save(NULL, w->path));
    REFUSED(path, ebb_trainer_save(w->trainer, NULL));
    REFUSED(trainer, ebb_trainer_save_gradients(NULL, w->path));
    REFUSED(path, ebb_trainer_save_gradients(w->trainer, NULL));
    REFUSED(trainer, ebb_trainer_checkpoint(NULL, w->path));
    REFUSED(path, ebb_trainer_checkpoint(w->trainer, NULL));
    REFUSED(trainer, ebb_trainer_summarize(NULL, w->out));
    REFUSED(summary_out, ebb_trainer_summarize(w->trainer, NULL));
}

/* Arrays that are NULL though they have elements, and pointers that only some calls need. */
static void what_depends_on_other_arguments(void **state) {
    world *w = *state;
    w->problem.items = NULL;
    assert_int_equal(ebb_place_bound(&w->problem, NULL, &w->offsets[0]), EBB_E_ARGUMENT);
    expect_message("items or gaps is NULL");
    assert_int_equal(ebb_place_check(&w->problem, NULL, w->offsets, NULL), EBB_E_ARGUMENT);
    expect_message("items or gaps is NULL");
    w->problem.items = &w->item;
    w->problem.n_gaps = 1;
    assert_int_equal(ebb_place_bound(&w->problem, NULL, &w->offsets[0]), EBB_E_ARGUMENT);
    expect_message("items or gaps is NULL");
    assert_int_equal(ebb_place_check(&w->problem, NULL, w->offsets, NULL), EBB_E_ARGUMENT);
    expect_message("items or gaps is NULL");
    assert_int_equal(ebb_graph_train(w->forward, NULL, false), EBB_E_ARGUMENT);
    expect_message("training needs an optimizer");
    assert_int_equal(ebb_pool_plan(w->pool, NULL, 0, NULL), EBB_OK);
    w->problem.n_items = w->problem.n_gaps = 0;
    w->problem.items = NULL;
    MADE(ebb_place_check(&w->problem, NULL, NULL, NULL));
}

/* ---- what returns a value of a graph ---------------------------------------------------------- */

#define NO_VALUE(says, call)                                                                                           \
    do {                                                                                                               \
        assert_int_equal((call), EBB_NO_VALUE);                                                                        \
        expect_message(says);                                                                                          \
    } while (0)

static void builders_without_a_graph(void **state) {
    (void)state;
    const int64_t dims[1] = {4};
    const ebb_value src = 0;
    const char *says = "graph is NULL";
    NO_VALUE(says, ebb_graph_input(NULL, "x", EBB_F32, dims, 1));
    NO_VALUE(says, ebb_graph_output(NULL, "x", src));
    NO_VALUE(says, ebb_graph_images(NULL, 1, 1, 8, 8));
    NO_VALUE(says, ebb_graph_labels(NULL, 1, 2));
    NO_VALUE(says, ebb_graph_conv(NULL, "c", src, 1, NULL, false));
    NO_VALUE(says, ebb_graph_linear(NULL, "l", src, 1, false));
    NO_VALUE(says, ebb_graph_batch_norm(NULL, "b", src, 1e-5f, 0.1f));
    NO_VALUE(says, ebb_graph_relu(NULL, "r", src));
    NO_VALUE(says, ebb_graph_max_pool(NULL, "p", src, NULL));
    NO_VALUE(says, ebb_graph_avg_pool(NULL, "p", src, NULL));
    NO_VALUE(says, ebb_graph_global_avg_pool(NULL, "p", src));
    NO_VALUE(says, ebb_graph_lrn(NULL, "n", src, 5, 1, 0.75f, 1));
    NO_VALUE(says, ebb_graph_dropout(NULL, "d", src, 0.5f));
    NO_VALUE(says, ebb_graph_add(NULL, "a", src, src));
    NO_VALUE(says, ebb_graph_concat(NULL, "c", &src, 1));
    NO_VALUE(says, ebb_graph_flatten(NULL, "f", src));
    NO_VALUE(says, ebb_graph_softmax_loss(NULL, src, src));
}

/* A layer makes up a name, and a window of NULL is one of zeros; a port needs its name, and arrays their elements. */
static void builders_without_something_else(void **state) {
    (void)state;
    const int64_t dims[1] = {4};
    for (int i = 0; i < 4; i++) {
        ebb_graph *g = NULL;
        MADE(ebb_graph_create(NULL, &g));
        const ebb_value x = ebb_graph_images(g, 1, 1, 8, 8);
        assert_int_not_equal(ebb_graph_relu(g, NULL, ebb_graph_conv(g, NULL, x, 1, NULL, false)), EBB_NO_VALUE);
        assert_int_not_equal(ebb_graph_avg_pool(g, NULL, ebb_graph_max_pool(g, NULL, x, NULL), NULL), EBB_NO_VALUE);
        switch (i) {
        case 0: NO_VALUE("a port needs a name", ebb_graph_input(g, NULL, EBB_F32, dims, 1)); break;
        case 1: NO_VALUE("x: 1 dimensions; 1 to 4 work", ebb_graph_input(g, "x", EBB_F32, NULL, 1)); break;
        case 2: NO_VALUE("a port needs a name", ebb_graph_output(g, NULL, x)); break;
        default: NO_VALUE("nothing to put together", ebb_graph_concat(g, "c", NULL, 2)); break;
        }
        assert_int_equal(ebb_graph_check(g), EBB_E_ARGUMENT);
        ebb_graph_destroy(g);
    }
}

/* ---- what destroys ---------------------------------------------------------------------------- */

static void to_destroy_nothing_does_nothing(void **state) {
    (void)state;
    ebb_comparison_destroy(NULL);
    ebb_device_close(NULL);
    ebb_lowered_destroy(NULL);
    ebb_diff_destroy(NULL);
    ebb_executor_destroy(NULL);
    ebb_graph_destroy(NULL);
    ebb_iteration_finder_destroy(NULL);
    ebb_place_file_destroy(NULL);
    ebb_machine_destroy(NULL);
    ebb_plan_destroy(NULL);
    ebb_pool_destroy(NULL);
    ebb_program_destroy(NULL);
    ebb_remote_destroy(NULL);
    ebb_report_destroy(NULL);
    ebb_arena_destroy(NULL);
    ebb_run_destroy(NULL);
    ebb_session_close(NULL);
    ebb_study_destroy(NULL);
    ebb_trace_writer_abandon(NULL);
    ebb_trace_reader_close(NULL);
    ebb_data_close(NULL);
    ebb_trainer_destroy(NULL);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(base),
        cmocka_unit_test(traces),
        cmocka_unit_test(studies),
        cmocka_unit_test(placement),
        cmocka_unit_test(programs),
        cmocka_unit_test(plans),
        cmocka_unit_test(networks),
        cmocka_unit_test(runs),
        cmocka_unit_test(training),
        cmocka_unit_test(what_depends_on_other_arguments),
        cmocka_unit_test(builders_without_a_graph),
        cmocka_unit_test(builders_without_something_else),
        cmocka_unit_test(to_destroy_nothing_does_nothing),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
