/* SPDX-License-Identifier: Apache-2.0
 *
 * The arena and pinned memory over the fake: what of the card they take, what is said when it has no more, and what
 * counts as the context's.
 */
#include "backend/host_memory.h"
#include "ebb/run.h"
#include "ebb/session.h"
#include "ebb/train.h"
#include "fake_bench.h"

#include <inttypes.h>
#include <stdio.h>
#include <unistd.h>

#define MUST(expr) assert_int_equal((expr), EBB_OK)
#define MIB ((uint64_t)1 << 20)

static ebb_device *open_device(void) {
    ebb_device_options options = EBB_DEVICE_OPTIONS_INIT;
    options.mem = ebb__mem_or_default(NULL);
    ebb_device *device = NULL;
    MUST(ebb__backend_cuda.open(&options, &device));
    return device;
}

static void an_arena_takes_whole_granules(void **state) {
    (void)state;
    const ebb_backend_ops *ops = &ebb__backend_cuda;
    fake_cuda_reset(1);
    ebb_device *device = open_device();
    const uint64_t before = fake.used_bytes, sizes[] = {0, 1, 2 * MIB, 2 * MIB + 1, 30 * MIB};
    const uint64_t granules[] = {1, 1, 1, 2, 15};
    for (int i = 0; i < 5; i++) {
        ebb_arena_mem *arena = NULL;
        ebb_device_info info;
        MUST(ops->arena_create(device, sizes[i], &arena));
        assert_int_equal(fake.used_bytes - before, granules[i] * 2 * MIB);
        assert_int_equal(ops->arena_measure(device, arena).peak_bytes, granules[i] * 2 * MIB); /* as the driver says */
        MUST(ops->info(device, &info));
        assert_int_equal(info.capacity_bytes, 64 * MIB);
        assert_int_equal(info.context_bytes, 3 * MIB + before);
        assert_string_equal(info.name, "Fake GPU");
        ops->arena_destroy(device, arena);
        assert_int_equal(fake.used_bytes, before);
    }
    ops->close(device);
    assert_int_equal(fake.n_live, 0);
}

/* Not the processors of the card: images are decoded on the host. */
static void threads_are_the_hosts(void **state) {
    (void)state;
    ebb_device_info host, info;
    fake_cuda_reset(1);
    ebb__host_describe(&host);
    for (int32_t n = 0; n < 3; n++) {
        ebb_device_options options = EBB_DEVICE_OPTIONS_INIT;
        ebb_device *device = NULL;
        options.mem = ebb__mem_or_default(NULL);
        options.n_threads = n;
        MUST(ebb__backend_cuda.open(&options, &device));
        MUST(ebb__backend_cuda.info(device, &info));
        assert_int_equal(info.n_threads, n > 0 ? n : host.n_threads);
        ebb__backend_cuda.close(device);
    }
}

/* A budget that is no number of granules: what is planned leaves its rest, so that the arena keeps to it; and the least
 * budget that a refusal names is one with which there is a plan. */
static void a_budget_holds_the_last_granule(void **state) {
    (void)state;
    const ebb_backend_ops *ops = &ebb__backend_cuda;
    fake_cuda_reset(6);
    fake.total_bytes = 512 * MIB;
    ebb_session_options o = EBB_SESSION_OPTIONS_INIT;
    o.net = "resnet_cifar:1";
    o.batch = 64;
    o.effort = 0;
    o.device = open_device();
    ebb_session *session = NULL;
    ebb_plan *plan = NULL;
    ebb_no_fit no_fit = {0};
    uint64_t n_refused = 0;
    const uint64_t apart = by_form(3, 1, 1) * (9 * MIB + MIB / 3); /* two or five budgets */
    for (uint64_t budget = 2 * MIB + MIB / 2; budget < 48 * MIB; budget += apart) {
        o.budget_bytes = budget;
        MUST(ebb_session_open(&o, &session));
        ebb_status st = ebb_session_plan(session, &plan, &no_fit);
        if (st == EBB_E_NO_FIT) {
            n_refused++;
            assert_true(no_fit.least_budget_bytes > budget && no_fit.least_budget_bytes % (2 * MIB) == 0);
            ebb_session_close(session);
            o.budget_bytes = no_fit.least_budget_bytes;
            MUST(ebb_session_open(&o, &session));
            st = ebb_session_plan(session, &plan, NULL);
        }
        MUST(st);
        ebb_arena_mem *arena = NULL;
        const uint64_t before = fake.used_bytes;
        MUST(ops->arena_create(o.device, ebb_plan_get_summary(plan).peak_bytes, &arena));
        assert_true(fake.used_bytes - before <= o.budget_bytes);
        ops->arena_destroy(o.device, arena);
        ebb_plan_destroy(plan);
        ebb_session_close(session);
    }
    assert_in_range(n_refused, 1, by_form(1, 4, 4));
    ebb_device_close(o.device);
}

/* All but the context can be had, and a byte more is refused with what is free. */
static void a_full_card_says_what_is_free(void **state) {
    (void)state;
    const ebb_backend_ops *ops = &ebb__backend_cuda;
    for (int mapping = 0; mapping < 2; mapping++) {
        fake_cuda_reset(1);
        fake.has_mapping = mapping != 0;
        ebb_device *device = open_device();
        const uint64_t free_bytes = (61 * MIB - fake.used_bytes) / (2 * MIB) * (2 * MIB);
        ebb_arena_mem *arena = NULL, *more = NULL;
        MUST(ops->arena_create(device, free_bytes, &arena));
        assert_int_equal(ops->arena_create(device, 2 * MIB, &more), EBB_E_NO_MEMORY);
        expect_message("2097152 bytes: ");
        expect_message("of the device's 67108864 are free");
        assert_int_equal(ops->arena_create(device, UINT64_MAX, &more), EBB_E_NO_MEMORY);
        expect_message("beyond any memory");
        ops->arena_destroy(device, arena);
        ops->close(device);
        assert_int_equal(fake.n_live, 0);
    }
}

static void arenas_begin_zero(void **state) {
    (void)state;
    fake_bench b;
    fake_cuda_reset(2);
    MUST(fake_bench_open(&b, NULL, false));
    memset(b.out, 0xff, FAKE_BYTES);
    MUST(b.ops->copy(b.stream[STREAM_OUT], EBB_COPY_OUT, fake_buf(&b, BUF_D), b.out));
    MUST(b.ops->stream_sync(b.stream[STREAM_OUT]));
    for (int i = 0; i < FAKE_N; i++) { assert_true(b.out[i] == 0.0f); }
    fake_bench_close(&b);
}

/* Pinned to the page: no powers of two. */
static void host_pieces_take_what_they_are_asked_for(void **state) {
    (void)state;
    const ebb_backend_ops *ops = &ebb__backend_cuda;
    fake_cuda_reset(3);
    ebb_device *device = open_device();
    unsigned char *piece = NULL;
    const uint64_t size_bytes = 33 * MIB + 4097;
    MUST(ops->host_alloc(device, size_bytes, (void **)&piece));
    assert_in_range(fake.pinned_bytes, size_bytes, size_bytes + 4095);
    assert_int_equal(piece[0] | piece[size_bytes - 1], 0);
    ops->host_free(device, piece, size_bytes);
    ops->host_free(device, NULL, 5);
    assert_int_equal(fake.pinned_bytes, 0);
    ops->close(device);
}

/* Whether the kernel was asked for huge pages where ptr lies: of its mapping's flags one is `hg`. */
static bool asks_for_huge_pages(const void *ptr) {
    char line[512];
    bool is_there = false, asks = false;
    FILE *maps = fopen("/proc/self/smaps", "r");
    assert_non_null(maps);
    while (fgets(line, sizeof line, maps) != NULL) {
        uintptr_t first = 0, end = 0;
        if (sscanf(line, "%" SCNxPTR "-%" SCNxPTR " ", &first, &end) == 2) {
            is_there = first <= (uintptr_t)ptr && (uintptr_t)ptr < end;
        }
        asks = asks || (is_there && strncmp(line, "VmFlags:", 8) == 0 && strstr(line, " hg") != NULL);
    }
    (void)fclose(maps);
    return asks;
}

/* Large pieces begin and are advised as huge pages, and every page is there before the driver pins it. */
static void host_pieces_are_made_before_they_are_pinned(void **state) {
    (void)state;
    const uint64_t sizes[] = {1, 4097, 2 * MIB - 1, 2 * MIB, 70 * MIB + 12345};
    fake_cuda_reset(3);
    ebb_device *device = open_device();
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        void *piece = NULL;
        MUST(device->ops->host_alloc(device, sizes[i], &piece));
        assert_int_equal(fake.n_untouched_pages, 0);
        if (sizes[i] >= 2 * MIB) {
            assert_int_equal((uintptr_t)piece % (2 * MIB), 0);
            if (access("/sys/kernel/mm/transparent_hugepage", F_OK) == 0) { assert_true(asks_for_huge_pages(piece)); }
        }
        device->ops->host_free(device, piece, sizes[i]);
    }
    assert_int_equal(fake.pinned_bytes, 0);
    ebb_device_close(device);
}

/* Both kinds of host memory, each way and both at once; nothing is left of it, nor of a survey that fails. */
static void copies_are_measured(void **state) {
    (void)state;
    ebb_copy_rates pinned, pageable;
    fake_cuda_reset(4);
    ebb_device *device = open_device();
    MUST(ebb_run_measure_copies(device, 4 * MIB, &pinned, &pageable));
    assert_int_equal(fake.n_pageable_copies, 4 * (4 + 1)); /* out, in, both: two; once to warm up */
    assert_true(pinned.out_bytes_per_s > 0 && pinned.in_bytes_per_s > 0 && pinned.both_bytes_per_s > 0);
    assert_true(pageable.out_bytes_per_s > 0 && pageable.in_bytes_per_s > 0 && pageable.both_bytes_per_s > 0);
    const size_t n_live = fake.n_live;
    for (uint64_t call = 1; call < 120; call += 7) {
        fake_cuda_fail(call, cudaErrorUnknown);
        (void)ebb_run_measure_copies(device, 4 * MIB, &pinned, &pageable);
        assert_int_equal(fake.n_live, n_live);
    }
    ebb_device_close(device);
    MUST(ebb_device_open("dry", NULL, &device));
    MUST(ebb_run_measure_copies(device, 4 * MIB, &pinned, &pageable));
    assert_true(pinned.both_bytes_per_s == 0 && pageable.out_bytes_per_s == 0);
    ebb_device_close(device);
}

static uint64_t measure_links(uint64_t cache_bytes, uint64_t limit_bytes, ebb_link *host_out) {
    ebb_machine *machine = NULL;
    fake_cuda_reset(5);
    fake.total_bytes = 256 * MIB;
    fake.cache_bytes = cache_bytes;
    fake.has_no_locks = fake.computes_nothing = true;
    ebb_device *device = open_device();
    const uint64_t before = fake.used_bytes;
    MUST(ebb_machine_create(NULL, &machine));
    MUST(ebb_run_measure_links(device, NULL, NULL, NULL, limit_bytes, machine));
    assert_true(ebb_machine_link(machine, EBB_DEVICE, EBB_HOST, host_out));
    ebb_machine_destroy(machine);
    ebb_device_close(device);
    assert_int_equal(fake.n_live, 0);
    return fake.most_used_bytes - before;
}

/* What is moved is four times as large as the card's cache (without one it is 64 MiB). The fake does one copy at a
 * time, so both ways at once have half the rate of each. Real time is measured, so a busy machine has some tries. */
#define N_TRIES 5
static void links_are_measured_beyond_the_cache(void **state) {
    (void)state;
    ebb_link host = {.both_rate = 0};
#if defined(__SANITIZE_THREAD__) /* it takes a minute for as many bytes, and sees as much in fewer */
    assert_int_equal(measure_links(20 * MIB, 16 * MIB, &host), 16 * MIB);
    return;
#endif
    for (int i = 0; i < N_TRIES && !(host.both_rate > 0.2 && host.both_rate < 0.9); i++) {
        assert_int_equal(measure_links(20 * MIB, UINT64_MAX, &host), 80 * MIB);
    }
    assert_true(host.both_rate > 0.2 && host.both_rate < 0.9);
}

static void count_context_warning(void *ctx, ebb_log_level level, const char *message) {
    assert_int_equal(level, EBB_LOG_WARN);
    if (strstr(message, "more than the memory given") != NULL) {
        if (strstr(message, "taken, 5") == NULL) { fail_msg("%s", message); }
        ++*(int *)ctx;
    }
}

/* Of a training on the whole of a budget that includes the context, which grows by as much after the first step. */
static int count_context_warnings(uint64_t growth_bytes) {
    int n_warnings = 0;
    fake_cuda_reset(7);
    fake.has_no_locks = true;
    ebb_device *device = open_device();
    ebb_trainer_options o = EBB_TRAINER_OPTIONS_INIT;
    ebb_trainer *trainer = NULL;
    ebb_no_fit no_fit = {0};
    o.session.net = "perceptron:8";
    o.session.batch = 2;
    o.session.device = device;
    o.session.budget_bytes = 1;
    o.memory_includes_context = true;
    o.n_steps = 5;
    assert_int_equal(ebb_trainer_create(&o, &trainer, &no_fit, NULL), EBB_E_NO_FIT);
    o.session.budget_bytes = no_fit.least_budget_bytes;
    MUST(ebb_trainer_create(&o, &trainer, NULL, NULL));
    ebb_log_set(count_context_warning, &n_warnings, EBB_LOG_WARN);
    for (bool done = false; !done;) {
        ebb_step_result result;
        MUST(ebb_trainer_step(trainer, &result, &done));
        if (result.step == 1 && !done) { fake.context_bytes += growth_bytes; }
    }
    ebb_log_set(NULL, NULL, EBB_LOG_WARN);
    ebb_trainer_destroy(trainer);
    ebb_device_close(device);
    assert_int_equal(fake.n_live, 0);
    return n_warnings;
}

static void a_context_that_grows_is_told(void **state) {
    (void)state;
    assert_int_equal(count_context_warnings(0), 0);
    assert_int_equal(count_context_warnings(5 * MIB), 1);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_arena_takes_whole_granules),
        cmocka_unit_test(threads_are_the_hosts),
        cmocka_unit_test(a_budget_holds_the_last_granule),
        cmocka_unit_test(a_full_card_says_what_is_free),
        cmocka_unit_test(arenas_begin_zero),
        cmocka_unit_test(host_pieces_take_what_they_are_asked_for),
        cmocka_unit_test(host_pieces_are_made_before_they_are_pinned),
        cmocka_unit_test(copies_are_measured),
        cmocka_unit_test(links_are_measured_beyond_the_cache),
        cmocka_unit_test(a_context_that_grows_is_told),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
