/* SPDX-License-Identifier: Apache-2.0
 *
 * Iterations captured and replayed, over the fake: the same results as without, in whatever order the device does
 * what no event orders; when nothing is captured; and what becomes of a capture that fails.
 */
#include "backend/cuda/cuda_priv.h"
#include "fake_bench.h"

#define MUST(expr) assert_int_equal((expr), EBB_OK)

static void end_iteration(fake_bench *b, uint64_t run_id) {
    bool again = true;
    MUST(b->ops->iteration_end(b->device, run_id, EBB_OK, &again));
    assert_false(again);
}

static void replays_compute_what_streams_do(void **state) {
    (void)state;
    for (uint64_t seed = 1; seed <= 40; seed++) {
        fake_bench b;
        fake_cuda_reset(seed);
        MUST(fake_bench_open(&b, NULL, seed % 4 == 0));
        for (int i = 0; i < 6; i++) {
            fake_bench_fill(&b, i);
            MUST(fake_bench_iterate(&b, 77));
            fake_bench_check(&b);
        }
        assert_int_equal(fake.n_graph_launches, seed % 4 == 0 ? 0 : 5);
        assert_int_equal(fake.n_pageable_copies, 0);
        fake_bench_close(&b);
        assert_int_equal(fake.n_live, 0);
    }
}

/* Of graph and streams the faster one goes on, and what is computed is the same before, while and after it is tried. */
static void the_faster_way_goes_on(void **state) {
    (void)state;
    for (int i = 0; i < 10; i++) {
        const bool graph_is_slow = i % 2 == 0;
        enum { N = 24, N_TRIED = 11 }; /* issued, captured, five launches, five by streams; one may be captured again */
        fake_bench b;
        fake_cuda_reset((uint64_t)i + 1);
        fake.graph_ms = graph_is_slow ? 20 : 0;
        fake.launch_ms = graph_is_slow ? 0 : 20;
        MUST(fake_bench_open(&b, NULL, false));
        uint64_t n_launches = 0;
        for (int k = 0; k < N; k++) {
            fake_bench_fill(&b, k);
            MUST(fake_bench_iterate(&b, 3));
            fake_bench_check(&b);
            if (k == N_TRIED) { n_launches = fake.n_graph_launches; }
        }
        assert_int_equal(fake.n_graph_launches - n_launches, graph_is_slow ? 0 : N - 1 - N_TRIED);
        fake_bench_close(&b);
        assert_int_equal(fake.n_live, 0);
    }
}

/* Commands between iterations keep their place among them, on the same streams and with the same events. */
static void commands_between_replays_are_ordered(void **state) {
    (void)state;
    for (uint64_t seed = 1; seed <= 20; seed++) {
        fake_bench b;
        fake_cuda_reset(seed);
        MUST(fake_bench_open(&b, NULL, false));
        for (int i = 0; i < 5; i++) {
            fake_bench_fill(&b, i);
            MUST(fake_bench_iterate(&b, 5));
            fake_bench_check(&b);
            fake_bench_fill(&b, 100 + i);
            MUST(fake_bench_issue(&b)); /* as when it is recorded: no iteration to the backend */
            MUST(b.ops->event_sync(b.device, b.event[EVENT_OUT]));
            for (int s = 0; s < N_STREAMS; s++) { MUST(b.ops->stream_sync(b.stream[s])); }
            fake_bench_check(&b);
            assert_true(b.ops->event_time_ns(b.device, b.event[EVENT_OUT]) >=
                        b.ops->event_time_ns(b.device, b.event[EVENT_ADDED]));
        }
        fake_bench_close(&b);
    }
}

/* Nobody waits between two launches: what the first left is taken before the second writes over it. */
static void a_launch_comes_behind_what_streams_were_given(void **state) {
    (void)state;
    for (uint64_t seed = 1; seed <= 20; seed++) {
        fake_bench b;
        float *taken = NULL;
        fake_cuda_reset(seed);
        MUST(fake_bench_open(&b, NULL, false));
        MUST(b.ops->host_alloc(b.device, FAKE_BYTES, (void **)&taken));
        for (int i = 0; i < 3; i++) {
            fake_bench_fill(&b, i);
            MUST(fake_bench_iterate(&b, 1));
        }
        fake_bench_fill(&b, 0);
        MUST(b.ops->copy(b.stream[STREAM_OUT], EBB_COPY_OUT, fake_buf(&b, BUF_A), taken));
        MUST(fake_bench_iterate(&b, 1));
        fake_bench_check(&b);
        for (int i = 0; i < FAKE_N; i++) { assert_true(taken[i] == (float)(-60 - i)); }
        b.ops->host_free(b.device, taken, FAKE_BYTES);
        fake_bench_close(&b);
    }
}

/* An event whose record is in a graph stands for the graph's latest launch, but has no time. */
static void captured_events_mean_the_launch(void **state) {
    (void)state;
    fake_bench b;
    fake_cuda_reset(3);
    MUST(fake_bench_open(&b, NULL, false));
    for (int i = 0; i < 4; i++) {
        bool issue = true;
        fake_bench_fill(&b, i);
        MUST(b.ops->iteration_begin(b.device, 1, &issue));
        assert_int_equal(issue, i < 2);
        if (issue) { MUST(fake_bench_issue(&b)); }
        end_iteration(&b, 1);
        MUST(b.ops->event_sync(b.device, b.event[EVENT_OUT]));
        for (int k = 0; k < FAKE_N; k++) { assert_true(b.out[k] == (float)(-30 * i - k) + b.in[k]); }
        assert_int_equal(b.ops->event_time_ns(b.device, b.event[EVENT_OUT]) > 0, i == 0); /* graphs tell no times */
        ebb_stream *other = NULL; /* not of the run: waits for the launch as well */
        MUST(b.ops->stream_create(b.device, false, &other));
        MUST(b.ops->event_wait(other, b.event[EVENT_OUT]));
        MUST(b.ops->stream_sync(other));
        b.ops->stream_destroy(other);
        for (int s = 0; s < N_STREAMS; s++) { MUST(b.ops->stream_sync(b.stream[s])); }
    }
    fake_bench_close(&b);
    assert_int_equal(fake.n_live, 0);
}

static ebb_status count_call(void *ctx) {
    ++*(int *)ctx;
    return EBB_OK;
}

static void iterations_that_call_the_host_stay_with_streams(void **state) {
    (void)state;
    fake_bench b;
    int n_calls = 0;
    fake_cuda_reset(4);
    MUST(fake_bench_open(&b, NULL, false));
    for (int i = 0; i < 4; i++) {
        bool issue = false;
        fake_bench_fill(&b, i);
        MUST(b.ops->iteration_begin(b.device, 9, &issue));
        assert_true(issue);
        MUST(fake_bench_issue(&b));
        MUST(b.ops->call(b.stream[STREAM_OUT], count_call, &n_calls));
        end_iteration(&b, 9);
        for (int s = 0; s < N_STREAMS; s++) { MUST(b.ops->stream_sync(b.stream[s])); }
        fake_bench_check(&b);
    }
    assert_int_equal(n_calls, 4);
    assert_int_equal(fake.n_graph_launches, 0);
    fake_bench_close(&b);
}

/* What comes with the first iteration's number after its streams have gone is another run. */
static void a_number_that_comes_again_is_another_run(void **state) {
    (void)state;
    fake_bench b;
    fake_cuda_reset(5);
    MUST(fake_bench_open(&b, NULL, false));
    for (int run = 0; run < 3; run++) {
        for (int i = 0; i < 4; i++) {
            fake_bench_fill(&b, i);
            MUST(fake_bench_iterate(&b, 42));
            fake_bench_check(&b);
        }
        assert_int_equal(fake.n_graph_launches, 3 * (run + 1));
        fake_bench_streams_fini(&b);
        for (int s = 0; s < N_STREAMS; s++) { MUST(b.ops->stream_create(b.device, s == 0, &b.stream[s])); }
    }
    fake_bench_close(&b);
    assert_int_equal(fake.n_live, 0);
}

/* A port that moves is found where it is at the launch, be it a graph's or the streams'. */
static void graphs_are_fed_from_ports_that_move(void **state) {
    (void)state;
    for (int way = 0; way < 3; way++) {
        fake_bench b;
        void *memory[3] = {NULL};
        fake_cuda_reset((uint64_t)way + 9);
        fake.graph_ms = way == 1 ? 20 : 0;
        fake.launch_ms = way == 2 ? 20 : 0;
        MUST(fake_bench_open(&b, NULL, false));
        b.state.ports_move = true;
        memory[0] = b.port[0];
        for (int m = 1; m < 3; m++) { MUST(b.ops->host_alloc(b.device, FAKE_BYTES, &memory[m])); }
        for (int i = 0; i < 24; i++) {
            b.port[0] = memory[i % 3];
            fake_bench_fill(&b, i);
            MUST(fake_bench_iterate(&b, 4));
            fake_bench_check(&b);
            memset(b.port[0], 0xff, FAKE_BYTES); /* nothing reads it any more */
        }
        assert_true(fake.n_graph_launches > 4);
        b.port[0] = memory[0];
        for (int m = 1; m < 3; m++) { b.ops->host_free(b.device, memory[m], FAKE_BYTES); }
        fake_bench_close(&b);
        assert_int_equal(fake.n_live, 0);
    }
}

/* The caller stops between begin and end: nothing is left in the way of what comes then. */
static void a_capture_that_is_left_is_given_up(void **state) {
    (void)state;
    fake_bench b;
    bool issue = false;
    fake_cuda_reset(6);
    MUST(fake_bench_open(&b, NULL, false));
    fake_bench_fill(&b, 0);
    MUST(fake_bench_iterate(&b, 1));
    MUST(b.ops->iteration_begin(b.device, 1, &issue));
    MUST(b.ops->run(b.stream[STREAM_COMPUTE], b.kernel[KERNEL_FEED], b.bound[KERNEL_FEED]));
    int unused = 0;
    assert_int_equal(b.ops->call(b.stream[STREAM_OUT], count_call, &unused), EBB_E_INTERNAL);
    MUST(b.ops->stream_sync(b.stream[STREAM_COMPUTE]));
    for (int i = 1; i < 4; i++) {
        fake_bench_fill(&b, i);
        MUST(fake_bench_iterate(&b, 1));
        fake_bench_check(&b);
    }
    fake_bench_close(&b);
    assert_int_equal(fake.n_live, 0);
}

static void count_warning(void *ctx, ebb_log_level level, const char *message) {
    assert_int_equal(level, EBB_LOG_WARN);
    assert_non_null(strstr(message, "goes on with streams alone: cuda: "));
    ++*(int *)ctx;
}

/* Whichever call of the second iteration fails before its graph is launched: the iteration is done as streams, as are
 * all that follow, with one warning and the right numbers. */
static void fail_captures(bool ports_move) {
    uint64_t n_given_up = 0;
    bool launched = false;
    for (uint64_t call = 1; !launched; call++) {
        fake_bench b;
        int n_warnings = 0;
        fake_cuda_reset(call);
        MUST(fake_bench_open(&b, NULL, false));
        b.state.ports_move = ports_move;
        fake_bench_fill(&b, 0);
        MUST(fake_bench_iterate(&b, 1));
        ebb_log_set(count_warning, &n_warnings, EBB_LOG_WARN);
        fake_cuda_fail(call, cudaErrorUnknown);
        fake_bench_fill(&b, 1);
        const ebb_status st = fake_bench_iterate(&b, 1);
        launched = fake.n_graph_launches > 0;
        fake_cuda_fail(0, cudaSuccess);
        ebb_log_set(NULL, NULL, EBB_LOG_WARN);
        for (int i = 2; i < 4 && n_warnings > 0; i++) {
            MUST(st);
            fake_bench_check(&b);
            fake_bench_fill(&b, i);
            MUST(fake_bench_iterate(&b, 1));
        }
        assert_true(n_warnings == 0 || fake.n_graph_launches == 0);
        assert_int_equal(n_warnings, st == EBB_OK && !launched);
        n_given_up += (uint64_t)n_warnings;
        fake_bench_close(&b);
        assert_int_equal(fake.n_live, 0);
    }
    assert_true(n_given_up > 20);
}

static void a_capture_that_fails_goes_on_with_streams(void **state) {
    (void)state;
    fail_captures(false);
    fail_captures(true);
}

/* What a captured kernel reads of the iteration is the launch's, not the capture's. */
static void the_state_is_the_launchs(void **state) {
    (void)state;
    fake_bench b;
    uint32_t slot = 0;
    bool issue = false;
    fake_cuda_reset(7);
    MUST(fake_bench_open(&b, NULL, false));
    ebb_cuda_device *device = (ebb_cuda_device *)b.device;
    MUST(ebb__cuda_state_hold(device, &b.state, &slot));
    for (uint64_t i = 0; i < 5; i++) {
        b.state.iteration = 10 + i;
        b.state.learning_rate = (float)i;
        MUST(b.ops->iteration_begin(b.device, 1, &issue));
        if (issue && !ebb__cuda_capture_keeps_state(device, slot)) {
            MUST(ebb__cuda_state_send(device, slot, b.stream[STREAM_COMPUTE]->handle));
        }
        if (issue) { MUST(fake_bench_issue(&b)); }
        end_iteration(&b, 1);
        for (int s = 0; s < N_STREAMS; s++) { MUST(b.ops->stream_sync(b.stream[s])); }
        fake_cuda_unlock();
        assert_int_equal(device->states[slot].iteration, 10 + i);
        assert_true(device->states[slot].learning_rate == (float)i);
        fake_cuda_lock();
    }
    ebb__cuda_state_release(device, slot);
    fake_bench_close(&b);
}

static void runs_on_one_device_are_counted(void **state) {
    (void)state;
    fake_bench b;
    ebb_run_state states[EBB_CUDA_MAX_STATES + 1];
    uint32_t slot = 0, slots[EBB_CUDA_MAX_STATES];
    fake_cuda_reset(8);
    MUST(fake_bench_open(&b, NULL, false));
    ebb_cuda_device *device = (ebb_cuda_device *)b.device;
    for (uint32_t i = 0; i < EBB_CUDA_MAX_STATES; i++) { MUST(ebb__cuda_state_hold(device, &states[i], &slots[i])); }
    MUST(ebb__cuda_state_hold(device, &states[7], &slot));
    assert_int_equal(slot, slots[7]);
    assert_int_equal(ebb__cuda_state_hold(device, &states[EBB_CUDA_MAX_STATES], &slot), EBB_E_LIMIT);
    expect_message("64 runs");
    ebb__cuda_state_release(device, slots[7]);
    for (uint32_t i = 0; i < EBB_CUDA_MAX_STATES; i++) { ebb__cuda_state_release(device, slots[i]); }
    MUST(ebb__cuda_state_hold(device, &states[EBB_CUDA_MAX_STATES], &slot));
    ebb__cuda_state_release(device, slot);
    fake_bench_close(&b);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(replays_compute_what_streams_do),
        cmocka_unit_test(the_faster_way_goes_on),
        cmocka_unit_test(commands_between_replays_are_ordered),
        cmocka_unit_test(a_launch_comes_behind_what_streams_were_given),
        cmocka_unit_test(captured_events_mean_the_launch),
        cmocka_unit_test(iterations_that_call_the_host_stay_with_streams),
        cmocka_unit_test(a_number_that_comes_again_is_another_run),
        cmocka_unit_test(graphs_are_fed_from_ports_that_move),
        cmocka_unit_test(a_capture_that_is_left_is_given_up),
        cmocka_unit_test(the_state_is_the_launchs),
        cmocka_unit_test(runs_on_one_device_are_counted),
        cmocka_unit_test(a_capture_that_fails_goes_on_with_streams),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
