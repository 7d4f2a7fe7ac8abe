/* SPDX-License-Identifier: Apache-2.0
 *
 * What the conformance suite cannot ask of every backend: that cpu's own kernels give the same bits for any
 * number of threads, that no signal's handler runs on a stack that a library's kernel made up, that binding writes
 * nothing into the arena, and that it gives back all it took when memory runs out at any point.
 */
#include "backend/backend.h"
#include "support.h"

#include <pthread.h>
#include <signal.h>
#include <sys/time.h>

#define ARENA_BYTES ((uint64_t)8 << 20)
#define MAX_OPERANDS 8u
#define CHECK_OK(expr) assert_int_equal((expr), EBB_OK)

typedef struct problem {
    ebb_kernel_desc desc;
    ebb_operand operand[MAX_OPERANDS];
} problem;

static ebb_operand image(int64_t n, int64_t c, int64_t hw) {
    return (ebb_operand){.shape = {.n_dims = 4, .dims = {n, c, hw, hw}}, .layout = EBB_LAYOUT_ANY};
}

static ebb_operand vector(int64_t n) {
    return (ebb_operand){.shape = {.n_dims = 1, .dims = {n}}, .layout = EBB_LAYOUT_ANY};
}

static ebb_operand mask(int64_t n, int64_t c, int64_t hw) {
    ebb_operand o = image(n, c, hw);
    o.dtype = EBB_U8;
    o.opaque = true;
    return o;
}

/* 40 channels: no vector divides them; 48: whole blocks. */
static void batch_norm(problem *p, int64_t channels) {
    const ebb_operand x = image(5, channels, 9), c = vector(channels);
    const ebb_operand all[] = {x, c, c, x, c, c, mask(5, channels, 9)};
    memcpy(p->operand, all, sizeof all);
    p->desc = (ebb_kernel_desc){.kind = EBB_OP_BATCH_NORM, .n_in = 3, .n_out = 4, .operand = p->operand};
    p->desc.attr.epsilon = 1e-5f;
    p->desc.attr.relu = 1;
}

static void batch_norm_bwd(problem *p, int64_t channels) {
    const ebb_operand x = image(5, channels, 9), c = vector(channels);
    const ebb_operand all[] = {x, x, c, c, c, x, c, c};
    memcpy(p->operand, all, sizeof all);
    p->desc = (ebb_kernel_desc){.kind = EBB_OP_BATCH_NORM_BWD, .n_in = 5, .n_out = 3, .operand = p->operand};
    p->desc.attr.epsilon = 1e-5f;
}

static void add(problem *p, int64_t channels) {
    for (int i = 0; i < 3; i++) { p->operand[i] = image(5, channels, 33); }
    p->desc = (ebb_kernel_desc){.kind = EBB_OP_ADD, .n_in = 2, .n_out = 1, .operand = p->operand};
    p->desc.attr.relu = 1;
}

static void concat(problem *p, int64_t channels) {
    p->operand[0] = image(3, channels, 17);
    p->operand[1] = image(3, 16, 17);
    p->operand[2] = image(3, channels + 16, 17);
    p->desc = (ebb_kernel_desc){.kind = EBB_OP_CONCAT, .n_in = 2, .n_out = 1, .operand = p->operand};
}

/* 17 channels to 33: padded blocks on either side. */
static void conv(problem *p, int64_t channels) {
    p->operand[0] = image(2, channels, 6);
    p->operand[1] = image(33, channels, 3);
    p->operand[2] = image(2, 33, 4);
    p->desc = (ebb_kernel_desc){.kind = EBB_OP_CONV, .n_in = 2, .n_out = 1, .operand = p->operand};
    p->desc.attr = (ebb_op_attr){.kernel = {3, 3}, .stride = {1, 1}, .dilation = {1, 1}, .groups = 1};
}

/* Of LeNet's size, in which oneDNN's product keeps its workspace on the heap and its stack in it. */
static void linear(problem *p, int64_t channels) {
    p->operand[0] = (ebb_operand){.shape = {.n_dims = 2, .dims = {32, channels}}, .layout = EBB_LAYOUT_ANY};
    p->operand[1] = (ebb_operand){.shape = {.n_dims = 2, .dims = {500, channels}}, .layout = EBB_LAYOUT_ANY};
    p->operand[2] = (ebb_operand){.shape = {.n_dims = 2, .dims = {32, 500}}, .layout = EBB_LAYOUT_ANY};
    p->desc = (ebb_kernel_desc){.kind = EBB_OP_LINEAR, .n_in = 2, .n_out = 1, .operand = p->operand};
}

typedef struct place {
    ebb_buf operand[MAX_OPERANDS];
    ebb_buf scratch;
} place;

static place lay_out(ebb_device *device, const ebb_kernel *kernel, const ebb_kernel_desc *desc, ebb_arena_mem *arena) {
    place at = {0};
    uint64_t offset = 0;
    for (uint32_t i = 0; i < desc->n_in + desc->n_out + desc->n_inout; i++) {
        const uint64_t n_bytes = device->ops->layout_bytes(device, kernel->layout[i]);
        at.operand[i] = (ebb_buf){arena, offset, n_bytes};
        offset = ebb_align_up(offset + n_bytes, device->ops->alignment_bytes);
    }
    at.scratch = (ebb_buf){arena, offset, kernel->scratch_bytes};
    assert_true(offset + kernel->scratch_bytes <= ARENA_BYTES);
    return at;
}

static void fill_inputs(ebb_device *device, const place *at, uint32_t n_in) {
    ebb_rng rng;
    ebb__rng_init(&rng, 7, 0);
    for (uint32_t i = 0; i < n_in; i++) {
        float *data = device->ops->host_address(at->operand[i]);
        for (uint64_t k = 0; k < at->operand[i].size_bytes / sizeof *data; k++) { data[k] = ebb__rng_unit(&rng); }
    }
}

/* A hash of the outputs' bytes, after n_runs. */
static uint64_t run_with(problem *p, int32_t n_threads, int n_runs) {
    ebb_device_options options = EBB_DEVICE_OPTIONS_INIT;
    options.n_threads = n_threads;
    ebb_device *device = NULL;
    ebb_arena_mem *arena = NULL;
    ebb_kernel *kernel = NULL;
    ebb_bound *bound = NULL;
    ebb_stream *stream = NULL;
    CHECK_OK(ebb_device_open("cpu", &options, &device));
    const ebb_backend_ops *ops = device->ops;
    CHECK_OK(ops->arena_create(device, ARENA_BYTES, &arena));
    CHECK_OK(ops->stream_create(device, true, &stream));
    CHECK_OK(ops->kernel_create(device, &p->desc, &kernel));
    const place at = lay_out(device, kernel, &p->desc, arena);
    const ebb_run_state state = {0};
    fill_inputs(device, &at, p->desc.n_in);
    CHECK_OK(ops->bind(kernel, &(ebb_binding){.operand = at.operand, .scratch = at.scratch, .state = &state}, &bound));
    for (int i = 0; i < n_runs; i++) { CHECK_OK(ops->run(stream, kernel, bound)); }
    CHECK_OK(ops->stream_sync(stream));
    uint64_t h = EBB_HASH_INIT;
    for (uint32_t i = p->desc.n_in; i < p->desc.n_in + p->desc.n_out; i++) {
        h = ebb__hash(h, ops->host_address(at.operand[i]), (size_t)at.operand[i].size_bytes);
    }
    ops->unbind(kernel, bound);
    ops->kernel_destroy(kernel);
    ops->stream_destroy(stream);
    ops->arena_destroy(device, arena);
    ops->close(device);
    return h;
}

static bool have_cpu(void) {
    return ebb__backend_find("cpu") != NULL;
}

static void any_number_of_threads_gives_the_same_bits(void **state) {
    (void)state;
    static void (*const make[])(problem *, int64_t) = {batch_norm, batch_norm_bwd, add, concat};
    static const int64_t channels[] = {40, 48, 16};
    if (!have_cpu()) { skip(); }
    for (size_t m = 0; m < sizeof make / sizeof make[0]; m++) {
        for (size_t c = 0; c < sizeof channels / sizeof channels[0]; c++) {
            problem p;
            make[m](&p, channels[c]);
            const uint64_t want = run_with(&p, 1, 1);
            for (int32_t n = 2; n <= 5; n++) { assert_true(run_with(&p, n, 1) == want); }
        }
    }
}

static char *stack_begin, *stack_end;
static volatile sig_atomic_t n_signals, n_astray;

static void note_stack(int number) {
    (void)number;
    char here = 0;
    n_signals++;
    n_astray += &here < stack_begin || &here >= stack_end;
}

static void find_stack(void) {
    pthread_attr_t attr;
    void *begin = NULL;
    size_t n_bytes = 0;
    assert_int_equal(pthread_getattr_np(pthread_self(), &attr), 0);
    assert_int_equal(pthread_attr_getstack(&attr, &begin, &n_bytes), 0);
    pthread_attr_destroy(&attr);
    stack_begin = begin;
    stack_end = stack_begin + n_bytes;
}

static void set_timer(long period_us) {
    const struct itimerval timer = {{0, period_us}, {0, period_us}};
    assert_int_equal(setitimer(ITIMER_REAL, &timer, NULL), 0);
}

static void handlers_run_on_the_threads_own_stack(void **state) {
    (void)state;
    if (!have_cpu()) { skip(); }
    problem p;
    linear(&p, 800);
    const uint64_t want[] = {run_with(&p, 1, 1), run_with(&p, 2, 1)};
    struct sigaction action = {.sa_handler = note_stack, .sa_flags = SA_RESTART}, before;
    find_stack();
    assert_int_equal(sigaction(SIGALRM, &action, &before), 0);
    set_timer(500);
    for (int i = 0; n_signals < 200; i++) { assert_true(run_with(&p, 1 + i % 2, 100) == want[i % 2]); }
    set_timer(0);
    assert_int_equal(sigaction(SIGALRM, &before, NULL), 0);
    assert_int_equal(n_astray, 0);
}

static void binding_writes_nothing(void **state) {
    (void)state;
    if (!have_cpu()) { skip(); }
    problem p;
    ebb_device *device = NULL;
    ebb_arena_mem *arena = NULL;
    ebb_kernel *kernel = NULL;
    ebb_bound *bound = NULL;
    CHECK_OK(ebb_device_open("cpu", NULL, &device));
    const ebb_backend_ops *ops = device->ops;
    CHECK_OK(ops->arena_create(device, ARENA_BYTES, &arena));
    unsigned char *base = ops->host_address((ebb_buf){arena, 0, ARENA_BYTES});
    memset(base, 0xa5, ARENA_BYTES);
    conv(&p, 17);
    CHECK_OK(ops->kernel_create(device, &p.desc, &kernel));
    const place at = lay_out(device, kernel, &p.desc, arena);
    const ebb_run_state run_state = {0};
    CHECK_OK(
        ops->bind(kernel, &(ebb_binding){.operand = at.operand, .scratch = at.scratch, .state = &run_state}, &bound));
    for (uint64_t i = 0; i < ARENA_BYTES; i++) { assert_int_equal(base[i], 0xa5); }
    ops->unbind(kernel, bound);
    ops->kernel_destroy(kernel);
    ops->arena_destroy(device, arena);
    ops->close(device);
}

/* ---- running out of memory ---- */

static ebb_status make_all(ebb_device *device) {
    static void (*const make[])(problem *, int64_t) = {batch_norm, add, concat, conv};
    for (size_t m = 0; m < sizeof make / sizeof make[0]; m++) {
        problem p;
        ebb_kernel *kernel = NULL;
        make[m](&p, 16);
        EBB_TRY(device->ops->kernel_create(device, &p.desc, &kernel));
        device->ops->kernel_destroy(kernel);
    }
    return EBB_OK;
}

static ebb_status open_and_make(const ebb_mem *mem) {
    ebb_device_options options = EBB_DEVICE_OPTIONS_INIT;
    options.mem = mem;
    ebb_device *device = NULL;
    EBB_TRY(ebb_device_open("cpu", &options, &device));
    const ebb_status st = make_all(device);
    device->ops->close(device);
    return st;
}

static void any_allocation_may_fail(void **state) {
    (void)state;
    if (!have_cpu()) { skip(); }
    OOM_LOOP(mem, st, { st = open_and_make(mem); });
}

/* 2^15 by 2^15 pixels, 16 channels deep, are 0 in 32 bits. */
static void a_huge_image_is_refused(void **state) {
    (void)state;
    if (!have_cpu()) { skip(); }
    ebb_device *device = NULL;
    ebb_kernel *kernel = NULL;
    problem p = {0};
    CHECK_OK(ebb_device_open("cpu", &EBB_DEVICE_OPTIONS_INIT, &device));
    conv(&p, 16);
    p.operand[0] = image(1, 16, 32768);
    p.operand[2] = image(1, 33, 32766);
    assert_int_equal(device->ops->kernel_create(device, &p.desc, &kernel), EBB_E_UNSUPPORTED);
    assert_non_null(strstr(ebb_last_error(), "32768x32768"));
    assert_null(kernel);
    device->ops->close(device);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(any_number_of_threads_gives_the_same_bits),
        cmocka_unit_test(handlers_run_on_the_threads_own_stack),
        cmocka_unit_test(binding_writes_nothing),
        cmocka_unit_test(any_allocation_may_fail),
        cmocka_unit_test(a_huge_image_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
