/* SPDX-License-Identifier: Apache-2.0
 *
 * The same bits whatever the plan (run_bits.h), through the plug-in's memory, streams, events, copies and captured
 * iterations over the fake of the runtime, with ref's arithmetic in place of kernels: the fake runs commands in any
 * order that no event forbids, so a plan whose events are too few gives other bits. And that a recorded iteration
 * between captured ones, also of a network that is fed early, changes no bit, has its times from the device in order,
 * and lets the host wait after its last command only.
 */
#include "backend/cuda/cuda_each.h"
#include "backend/cuda/cuda_priv.h"
#include "backend/plain.h"
#include "backend/ref/ref.h"
#include "fake_cuda.h"
#include "run_bits.h"

#include <unistd.h>

/* ref's kernels and layouts, which are made on a device of its own. */
static ebb_device *ref;

typedef struct ref_bound {
    ebb_ref_call call;
    void *operand[];
} ref_bound;

static ebb_status create_kernel(ebb_device *device, const ebb_kernel_desc *desc, ebb_kernel **kernel_out) {
    EBB_TRY(ref->ops->kernel_create(ref, desc, kernel_out));
    (*kernel_out)->device = device;
    return EBB_OK;
}

static ebb_status bind_kernel(ebb_kernel *kernel, const ebb_binding *binding, ebb_bound **bound_out) {
    const ebb_kernel_desc *desc = &((const ebb_plain_kernel *)kernel)->desc;
    const uint32_t n = ebb__kernel_n_operands(desc);
    ref_bound *bound = malloc(sizeof *bound + n * sizeof(void *));
    assert_non_null(bound);
    for (uint32_t i = 0; i < n; i++) { bound->operand[i] = ebb__cuda_address(binding->operand[i]); }
    bound->call = (ebb_ref_call){desc, bound->operand, binding->state, binding->rng_stream};
    *bound_out = (ebb_bound *)bound;
    return EBB_OK;
}

static void unbind_kernel(ebb_kernel *kernel, ebb_bound *bound) {
    (void)kernel;
    free(bound);
}

static void run_element(const void *args, uint64_t i) {
    const ref_bound *bound = *(const ref_bound *const *)args;
    (void)i;
    assert_int_equal(ebb__ref_function(bound->call.desc->kind)(&bound->call), EBB_OK);
}

static ebb_status run_kernel(ebb_stream *stream, ebb_kernel *kernel, ebb_bound *bound) {
    (void)kernel;
    EBB_TRY(ebb__cuda_begin_command(stream));
    EBB_CUDA(ebb__cuda_each_on_host(stream->handle, run_element, &bound, sizeof bound, 1), "a kernel of ref's");
    return EBB_OK;
}

static ebb_status plain_layout(ebb_device *device, ebb_dtype dtype, const ebb_shape *shape, ebb_layout *layout_out) {
    (void)device;
    return ref->ops->layout_plain(ref, dtype, shape, layout_out);
}

static uint64_t layout_bytes(const ebb_device *device, ebb_layout layout) {
    (void)device;
    return ref->ops->layout_bytes(ref, layout);
}

static const char *layout_name(const ebb_device *device, ebb_layout layout) {
    (void)device;
    return ref->ops->layout_name(ref, layout);
}

static ebb_status copy_layout(ebb_device *device, ebb_layout layout, const void *src, void *dst) {
    (void)device;
    return ref->ops->layout_pack(ref, layout, src, dst);
}

static ebb_backend_ops ops; /* the device's, while a test runs */
static uint64_t n_awaited;  /* how often the host had waited when the last command was issued */

static ebb_status run_and_count(ebb_stream *stream, ebb_kernel *kernel, ebb_bound *bound) {
    n_awaited = fake.n_syncs;
    return run_kernel(stream, kernel, bound);
}

static ebb_device *open_device(uint64_t seed, bool no_capture) {
    fake_cuda_reset(seed);
    ops = ebb__backend_cuda;
    ops.kernel_create = create_kernel;
    ops.kernel_destroy = ref->ops->kernel_destroy;
    ops.bind = bind_kernel;
    ops.unbind = unbind_kernel;
    ops.run = run_and_count;
    ops.layout_plain = plain_layout;
    ops.layout_bytes = layout_bytes;
    ops.layout_name = layout_name;
    ops.layout_pack = ops.layout_unpack = copy_layout;
    ebb_device_options options = EBB_DEVICE_OPTIONS_INIT;
    options.mem = ebb__mem_or_default(NULL);
    options.no_capture = no_capture;
    ebb_device *device = NULL;
    assert_int_equal(ops.open(&options, &device), EBB_OK);
    device->ops = &ops;
    return device;
}

static void compare_with_seed(uint64_t seed, bool no_capture) {
    compare_all(open_device(seed, no_capture));
    assert_int_equal(fake.n_graph_launches > 0, !no_capture);
    assert_int_equal(fake.n_live, 0);
}

static void streams_give_the_same_bits(void **state) {
    (void)state;
    compare_with_seed(1, true);
}

static void captures_give_the_same_bits(void **state) {
    (void)state;
    compare_with_seed(2, false);
}

/* ---- recordings --------------------------------------------------------------------------------- */

#define FIRST_RECORDED 2u /* after one that was issued and one that was captured */
#define N_RECORDED 2u
#define N_STREAMS 3u   /* compute, and copies out and in */
#define LEAST_NS 1000u /* that a command of the fake takes */

/* Steps and copies of each row one after the other, none of no time, all inside their iteration. */
static void check_times(const char *path, const ebb_plan *plan) {
    ebb_trace_reader *r = NULL;
    ebb_trace_event event;
    uint64_t n_steps = 0, n_copies = 0, begun_ns[EBB_MAX_ENGINES] = {0}, last_ns = 0;
    bool is_open[EBB_MAX_ENGINES] = {false}, in_iteration = false;
    assert_int_equal(ebb_trace_reader_open(NULL, path, &r), EBB_OK);
    for (bool done = false; !done;) {
        if (ebb_trace_reader_next(r, &event, &done) != EBB_OK) { fail_msg("%s", ebb_last_error()); }
        if (done) { break; }
        assert_true(event.time_ns >= last_ns);
        last_ns = event.time_ns;
        if (event.kind == EBB_TRACE_MARK) { in_iteration = event.mark == EBB_TRACE_ITERATION_BEGIN; }
        const bool begins = event.kind == EBB_TRACE_STEP_BEGIN || event.kind == EBB_TRACE_COPY_BEGIN;
        const bool ends = event.kind == EBB_TRACE_STEP_END || event.kind == EBB_TRACE_COPY_END;
        if (!begins && !ends) { continue; }
        assert_true(in_iteration && event.row < EBB_MAX_ENGINES && is_open[event.row] == ends);
        is_open[event.row] = begins;
        n_steps += event.kind == EBB_TRACE_STEP_END;
        n_copies += event.kind == EBB_TRACE_COPY_END;
        if (ends) { assert_true(event.time_ns - begun_ns[event.row] >= LEAST_NS); }
        begun_ns[event.row] = event.time_ns;
    }
    assert_true(ebb_trace_reader_info(r).complete);
    ebb_trace_reader_close(r);
    size_t n_actions = 0, n_drops = 0;
    const ebb_action *actions = ebb_plan_actions(plan, &n_actions);
    for (size_t a = 0; a < n_actions; a++) { n_drops += actions[a].kind == EBB_ACT_DROP; }
    assert_true(n_copies > 0);
    assert_int_equal(n_steps + n_copies, N_RECORDED * (n_actions - n_drops));
}

/* What an iteration of the recorded run may do: launch a graph unless it is the first or recorded, and wait at its end
 * alone, for the streams and the clock's anchors. */
static void check_iteration(uint64_t i, bool is_recorded, uint64_t n_syncs, uint64_t n_graphs) {
    assert_int_equal(fake.n_graph_launches - n_graphs, i > 0 && !is_recorded);
    if (!is_recorded) { return; }
    assert_int_equal(n_awaited, n_syncs);
    assert_in_range(fake.n_syncs - n_syncs, N_STREAMS, 2 * N_STREAMS);
}

/* As train, with two iterations recorded unless path is NULL, and two more after them. */
static outcome record(const ebb_lowered *low, const ebb_plan *plan, const char *path) {
    ebb_run_options options = EBB_RUN_OPTIONS_INIT;
    options.seed = 11;
    ebb_run *run = NULL;
    assert_int_equal(ebb_run_create(low, plan, &options, &run), EBB_OK);
    assert_int_equal(ebb_run_init_values(run, 5), EBB_OK);
    outcome out = {0};
    if (low->feeds_early) {
        fill_batch(run, 0);
        assert_int_equal(ebb_run_feed(run), EBB_OK);
    }
    for (uint64_t i = 0; i < N_ITERATIONS + 2; i++) {
        const uint64_t n_syncs = fake.n_syncs, n_graphs = fake.n_graph_launches;
        const bool is_recorded = path != NULL && i >= FIRST_RECORDED && i < FIRST_RECORDED + N_RECORDED;
        if (is_recorded && i == FIRST_RECORDED) {
            assert_int_equal(ebb_run_record_next(run, path, N_RECORDED), EBB_OK);
        }
        fill_batch(run, i + low->feeds_early);
        assert_int_equal(ebb_run_iteration(run, i, i + 1, 0.05f), EBB_OK);
        check_iteration(i, is_recorded, n_syncs, n_graphs);
        float loss = run_loss(run);
        memcpy(&out.loss_bits[i % N_ITERATIONS], &loss, sizeof loss);
    }
    assert_int_equal(ebb_run_record_status(run), EBB_OK);
    out.state_hash = hash_state(run, low->graph);
    ebb_run_destroy(run);
    return out;
}

/* old_anchor: the clock is due for a new anchor at each wait, between the iterations and in the middle of an end. */
static void record_with_seed(uint64_t seed, bool old_anchor, bool early) {
    char path[] = "/tmp/ebb-cuda-record-XXXXXX";
    const int fd = mkstemp(path);
    assert_true(fd >= 0);
    (void)close(fd);
    ebb_device *device = open_device(seed, false);
    if (old_anchor) { ebb__cuda_of(device)->anchors[0].ns = 0; }
    ebb_graph *g = make_graph();
    ebb_lowered *low = NULL;
    const ebb_status lowered = early ? ebb_lower_fed_early(g, device, &low) : ebb_lower(g, device, &low);
    if (lowered != EBB_OK) { fail_msg("%s", ebb_last_error()); }
    const ebb_plan *liveness = make_plan(low, "liveness", UINT64_MAX, EBB_HOST, NULL);
    const ebb_plan *plan = make_plan(low, "budget", peak_of(liveness) / 2, EBB_HOST, NULL);
    const outcome want = record(low, liveness, NULL), got = record(low, plan, path);
    assert_memory_equal(got.loss_bits, want.loss_bits, sizeof got.loss_bits);
    assert_true(got.state_hash == want.state_hash);
    check_times(path, plan);
    if (old_anchor) { assert_true(ebb__cuda_of(device)->n_anchors > EBB_CUDA_N_ANCHORS); }
    ebb_lowered_destroy(low);
    ebb_graph_destroy(g);
    ebb_device_close(device);
    assert_int_equal(fake.n_live, 0);
    assert_int_equal(unlink(path), 0);
}

static void recordings_have_the_devices_times(void **state) {
    (void)state;
    for (uint64_t seed = 3; seed < 3 + N_RECORDED_SEEDS; seed++) { record_with_seed(seed, false, seed % 2 == 0); }
}

static void recordings_go_on_over_anchors(void **state) {
    (void)state;
    for (uint64_t seed = 7; seed < 7 + N_RECORDED_SEEDS; seed++) { record_with_seed(seed, true, seed % 2 == 0); }
}

static int set_up(void **state) {
    (void)state;
    return ebb_device_open("ref", NULL, &ref) == EBB_OK ? 0 : -1;
}

static int tear_down(void **state) {
    (void)state;
    ebb_device_close(ref);
    return forget_plans(state);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(streams_give_the_same_bits),
        cmocka_unit_test(captures_give_the_same_bits),
        cmocka_unit_test(recordings_have_the_devices_times),
        cmocka_unit_test(recordings_go_on_over_anchors),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
