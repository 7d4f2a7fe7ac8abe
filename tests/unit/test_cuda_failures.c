/* SPDX-License-Identifier: Apache-2.0
 *
 * Every call of the runtime fails once, and every allocation: the answer is a status with the cause in words, nothing
 * stays behind, and what went wrong once is not told twice. And the machines that have no device to offer.
 */
#include "fake_bench.h"

#define MUST(expr) assert_int_equal((expr), EBB_OK)

/* Everything that a run does, with three iterations: streams, capture, replay. */
static ebb_status live_through(const ebb_mem *mem) {
    fake_bench b;
    ebb_device_info info;
    ebb_status st = fake_bench_open(&b, mem, false);
    if (st == EBB_OK) { st = b.ops->info(b.device, &info); }
    for (int i = 0; i < 3 && st == EBB_OK; i++) {
        fake_bench_fill(&b, i);
        st = fake_bench_iterate(&b, 1);
        if (st == EBB_OK) { fake_bench_check(&b); }
    }
    if (st == EBB_OK) { st = b.ops->event_sync(b.device, b.event[EVENT_OUT]); }
    fake_bench_close(&b);
    return st;
}

/* Calls that give something back have no one to tell; all others do. */
static bool is_told(const char *call) {
    static const char *const quiet[] = {"Destroy", "cudaFree",     "Unregister",  "release",
                                        "unmap",   "address_free", "ElapsedTime", "cudaGetDriverEntryPoint"};
    for (size_t i = 0; i < sizeof quiet / sizeof quiet[0]; i++) {
        if (strstr(call, quiet[i]) != NULL) { return false; }
    }
    return true;
}

static void count_warning(void *ctx, ebb_log_level level, const char *message) {
    (void)level;
    (void)message;
    ++*(int *)ctx;
}

/* A capture's failure is told as a warning, everything else as a status. */
static void each_call_may_fail(cudaError_t error) {
    fake_cuda_reset(1);
    fake_cuda_fail(0, error);
    MUST(live_through(NULL));
    const uint64_t n_calls = fake.n_calls;
    assert_true(n_calls > 200);
    uint64_t n_told = 0;
    for (uint64_t call = 1; call <= n_calls; call++) {
        fake_cuda_reset(call);
        fake_cuda_fail(call, error);
        int n_warnings = 0;
        ebb_log_set(count_warning, &n_warnings, EBB_LOG_WARN);
        const ebb_status st = live_through(NULL);
        ebb_log_set(NULL, NULL, EBB_LOG_WARN);
        assert_non_null(fake.failed);
        if (fake.n_live != 0) { fail_msg("call %d, %s: %zu things left", (int)call, fake.failed, fake.n_live); }
        assert_int_equal(fake.used_bytes, 0);
        assert_int_equal(fake.pinned_bytes, 0);
        n_told += st != EBB_OK || n_warnings > 0;
        if (st != EBB_OK) {
            expect_message("cuda: ");
            assert_int_equal(st, error == cudaErrorMemoryAllocation ? EBB_E_NO_MEMORY : EBB_E_DEVICE);
        } else if (n_warnings == 0 && is_told(fake.failed) && strcmp(fake.failed, "cudaSetDevice") != 0 &&
                   strcmp(fake.failed, "cudaStreamSynchronize") != 0 &&
                   strcmp(fake.failed, "cudaDeviceSynchronize") != 0 && strcmp(fake.failed, "cudaMemGetInfo") != 0) {
            fail_msg("call %d, %s: nobody was told", (int)call, fake.failed);
        }
        fake_cuda_fail(0, error);
        MUST(live_through(NULL));
    }
    assert_true(n_told > n_calls / 2);
}

static void each_call_may_find_the_device_broken(void **state) {
    (void)state;
    each_call_may_fail(cudaErrorUnknown);
}

static void each_call_may_find_no_memory(void **state) {
    (void)state;
    each_call_may_fail(cudaErrorMemoryAllocation);
}

static void each_allocation_may_fail(void **state) {
    (void)state;
    fake_cuda_reset(2);
    OOM_LOOP(mem, st, {
        st = live_through(mem);
        assert_int_equal(fake.n_live, 0);
    });
}

static void expect_no_device(int32_t index, const char *says) {
    ebb_device_options options = EBB_DEVICE_OPTIONS_INIT;
    options.mem = ebb__mem_or_default(NULL);
    options.index = index;
    ebb_device *device = NULL;
    assert_int_equal(ebb__backend_cuda.open(&options, &device), EBB_E_NO_DEVICE);
    expect_message(says);
    assert_null(device);
}

static void machines_without_a_device_say_what_is_missing(void **state) {
    (void)state;
    fake_cuda_reset(3);
    fake.n_devices = 2;
    expect_no_device(2, "no device 2; there are 2, from 0");
    expect_no_device(-1, "no device -1");
    fake.n_devices = 0;
    expect_no_device(0, "finds no GPU");
    fake.driver_version = 11080;
    expect_no_device(0, "the NVIDIA driver is made for CUDA 11.8; install one for");
    fake.driver_version = 0;
    expect_no_device(0, "no NVIDIA driver (libcuda.so.1)");
}

/* A GPU that the build has no code for, or that others keep for themselves, does not count either. */
static void gpus_that_cannot_be_used_are_none(void **state) {
    (void)state;
    static const cudaError_t errors[] = {cudaErrorDevicesUnavailable, cudaErrorNoKernelImageForDevice,
                                         cudaErrorUnsupportedPtxVersion, cudaErrorSystemNotReady};
    for (size_t i = 0; i < sizeof errors / sizeof errors[0]; i++) {
        uint64_t n_none = 0;
        for (uint64_t call = 1; call < 20; call++) {
            ebb_device_options options = EBB_DEVICE_OPTIONS_INIT;
            options.mem = ebb__mem_or_default(NULL);
            ebb_device *device = NULL;
            fake_cuda_reset(call);
            fake_cuda_fail(call, errors[i]);
            const ebb_status st = ebb__backend_cuda.open(&options, &device);
            assert_true(st == EBB_OK || st == EBB_E_NO_DEVICE);
            n_none += st != EBB_OK;
            ebb__backend_cuda.close(device);
        }
        assert_true(n_none > 5);
    }
}

static ebb_status count_call(void *ctx) {
    ++*(int *)ctx;
    return EBB_OK;
}

/* More calls than a stream has places for wait for the oldest; a device that is broken does none, and is asked. */
static void calls_wait_for_a_place(void **state) {
    (void)state;
    enum { N_CALLS = 1024 };
    fake_bench b;
    int n_done = 0;
    fake_cuda_reset(4);
    MUST(fake_bench_open(&b, NULL, false));
    for (int i = 0; i < N_CALLS + 10; i++) { MUST(b.ops->call(b.stream[STREAM_OUT], count_call, &n_done)); }
    assert_in_range(n_done, 10, N_CALLS);
    MUST(b.ops->stream_sync(b.stream[STREAM_OUT]));
    assert_int_equal(n_done, N_CALLS + 10);
    for (int i = 0; i < N_CALLS; i++) { MUST(b.ops->call(b.stream[STREAM_OUT], count_call, &n_done)); }
    fake_cuda_fail(2, cudaErrorUnknown);
    assert_int_equal(b.ops->call(b.stream[STREAM_OUT], count_call, &n_done), EBB_E_DEVICE);
    assert_string_equal(fake.failed, "cudaStreamQuery");
    fake_bench_close(&b);
    assert_int_equal(n_done, 2 * N_CALLS + 10);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_call_may_find_the_device_broken),
        cmocka_unit_test(each_call_may_find_no_memory),
        cmocka_unit_test(each_allocation_may_fail),
        cmocka_unit_test(machines_without_a_device_say_what_is_missing),
        cmocka_unit_test(gpus_that_cannot_be_used_are_none),
        cmocka_unit_test(calls_wait_for_a_place),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
