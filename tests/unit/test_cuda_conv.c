/* SPDX-License-Identifier: Apache-2.0
 *
 * Which of cuDNN's algorithms a convolution offers, and of cuBLASLt's a product, that they are looked for once, where a
 * gradient is added to another one by the same kernel, and that whatever call of making, binding and running fails is
 * told, and nothing is left over. Over the fake, whose engines are named in fake_cudnn.c.
 */
#include "backend/cuda/cuda_library.h"
#include "backend/lower.h"
#include "ebb/ebb.h"
#include "fake_cuda.h"
#include "support.h"

#include <math.h>

enum { N_OPERANDS = 4, SPACING = 4096, ARENA_BYTES = 1 << 16 }; /* the last one is a bias's place */

typedef struct fixture {
    ebb_device *device;
    ebb_arena_mem *arena;
    ebb_stream *stream;
    ebb_operand operand[N_OPERANDS]; /* src, weights, dst; with_bias puts one before dst */
    ebb_kernel_desc desc;
    ebb_run_state state;
} fixture;

static ebb_operand f32(int64_t a, int64_t b, int64_t c, int64_t d) {
    return (ebb_operand){.shape = {.n_dims = 4, .dims = {a, b, c, d}}, .layout = EBB_LAYOUT_ANY};
}

/* Close it whatever this returns. */
static ebb_status open_fixture(fixture *f, const ebb_mem *mem, bool tf32, bool nondeterministic) {
    const ebb_backend_ops *ops = &ebb__backend_cuda;
    ebb_device_options options = EBB_DEVICE_OPTIONS_INIT;
    *f = (fixture){.operand = {f32(2, 4, 6, 6), f32(8, 4, 3, 3), f32(2, 8, 6, 6)}};
    f->desc = (ebb_kernel_desc){.kind = EBB_OP_CONV,
                                .attr = {.kernel = {3, 3},
                                         .stride = {1, 1},
                                         .pad_begin = {1, 1},
                                         .pad_end = {1, 1},
                                         .dilation = {1, 1},
                                         .groups = 1},
                                .n_in = 2,
                                .n_out = 1,
                                .operand = f->operand};
    options.mem = ebb__mem_or_default(mem);
    options.tf32 = tf32;
    options.nondeterministic = nondeterministic;
    EBB_TRY(ops->open(&options, &f->device));
    EBB_TRY(ops->arena_create(f->device, ARENA_BYTES, &f->arena));
    return ops->stream_create(f->device, true, &f->stream);
}

static void close_fixture(fixture *f) {
    const ebb_backend_ops *ops = &ebb__backend_cuda;
    ops->stream_destroy(f->stream);
    if (f->device != NULL) { ops->arena_destroy(f->device, f->arena); }
    ops->close(f->device);
}

static ebb_status make(fixture *f, uint32_t choice, ebb_kernel **kernel_out) {
    f->desc.choice = choice;
    return ebb__backend_cuda.kernel_create(f->device, &f->desc, kernel_out);
}

static void choices(void **state) {
    (void)state;
    static const uint64_t want[] = {700, 8 * (288 + 288 + 576) + 1, 0}; /* engines 5, 2, and of the fallbacks 4 */
    fixture f;
    fake_cuda_reset(1);
    assert_int_equal(open_fixture(&f, NULL, false, false), EBB_OK);
    ebb_kernel *kernel = NULL;
    for (uint32_t i = 0; i < 3; i++) {
        assert_int_equal(make(&f, i, &kernel), EBB_OK);
        assert_int_equal(kernel->n_choices, 3);
        assert_int_equal(kernel->scratch_bytes, want[i]);
        ebb__backend_cuda.kernel_destroy(kernel);
    }
    assert_int_equal(make(&f, 3, &kernel), EBB_E_LIMIT);
    close_fixture(&f);
    assert_int_equal(fake.n_live, 0);
}

static void options_allow_more(void **state) {
    (void)state;
    for (int i = 0; i < 4; i++) {
        fixture f;
        ebb_kernel *kernel = NULL;
        fake_cuda_reset(1);
        assert_int_equal(open_fixture(&f, NULL, (i & 1) != 0, (i & 2) != 0), EBB_OK);
        assert_int_equal(make(&f, 0, &kernel), EBB_OK);
        assert_int_equal(kernel->n_choices, 3 + (i & 1) + (i >> 1));
        ebb__backend_cuda.kernel_destroy(kernel);
        close_fixture(&f);
        assert_int_equal(fake.n_live, 0);
    }
}

/* Whether measured times of one device are another's. */
static uint64_t times_key(const char *name, bool tf32, bool nondeterministic, size_t dnn_version, size_t blas_version) {
    fixture f;
    fake_cuda_reset(1);
    fake.name = name;
    fake.dnn_version = dnn_version;
    fake.blas_version = blas_version;
    assert_int_equal(open_fixture(&f, NULL, tf32, nondeterministic), EBB_OK);
    const uint64_t key = f.device->times_key;
    close_fixture(&f);
    return key;
}

static void times_are_of_a_card_options_and_versions(void **state) {
    (void)state;
    const uint64_t keys[] = {
        times_key("a card", false, false, 90800, 130000), times_key("a card", true, false, 90800, 130000),
        times_key("a card", false, true, 90800, 130000),  times_key("a card", false, false, 90801, 130000),
        times_key("a card", false, false, 90800, 130001), times_key("another card", false, false, 90800, 130000)};
    assert_true(keys[0] == times_key("a card", false, false, 90800, 130000));
    for (size_t i = 0; i < sizeof keys / sizeof keys[0]; i++) {
        for (size_t k = 0; k < i; k++) { assert_true(keys[i] != keys[k]); }
    }
}

/* The same convolution asks the library nothing more. */
static void looked_for_once(void **state) {
    (void)state;
    fixture f;
    ebb_kernel *first = NULL, *second = NULL;
    fake_cuda_reset(1);
    assert_int_equal(open_fixture(&f, NULL, false, false), EBB_OK);
    assert_int_equal(make(&f, 0, &first), EBB_OK);
    const size_t n_live = fake.n_live;
    assert_int_equal(make(&f, 1, &second), EBB_OK);
    assert_int_equal(fake.n_live, n_live);
    assert_int_equal(f.device != NULL ? ((ebb_cuda_device *)f.device)->libraries->convs.n : 0, 1);
    ebb__backend_cuda.kernel_destroy(first);
    ebb__backend_cuda.kernel_destroy(second);
    close_fixture(&f);
    assert_int_equal(fake.n_live, 0);
}

static ebb_status make_bind_run(fixture *f, uint32_t choice) {
    const ebb_backend_ops *ops = &ebb__backend_cuda;
    ebb_buf at[N_OPERANDS];
    ebb_kernel *kernel = NULL;
    ebb_bound *bound = NULL;
    EBB_TRY(make(f, choice, &kernel));
    for (uint32_t i = 0; i < N_OPERANDS; i++) { at[i] = (ebb_buf){f->arena, i * SPACING, SPACING}; }
    const ebb_binding binding = {
        .operand = at, .scratch = {f->arena, N_OPERANDS * SPACING, kernel->scratch_bytes}, .state = &f->state};
    ebb_status st = ops->bind(kernel, &binding, &bound);
    if (st == EBB_OK) { st = ops->run(f->stream, kernel, bound); }
    const ebb_status late = ops->stream_sync(f->stream);
    if (bound != NULL) { ops->unbind(kernel, bound); }
    ops->kernel_destroy(kernel);
    return st != EBB_OK ? st : late;
}

static float element(uint32_t operand, int i) {
    return (float)((int)((uint32_t)i * 7 + operand * 3) % 11 - 5) / 4.0f;
}

/* Numbers in each operand's place; where the first one is. */
static float *fill_operands(const fixture *f) {
    fake_cuda_unlock();
    float *memory = ebb__cuda_address((ebb_buf){f->arena, 0, ARENA_BYTES});
    for (uint32_t o = 0; o < N_OPERANDS; o++) {
        for (int i = 0; i < SPACING / 4; i++) { memory[o * SPACING / 4 + (uint32_t)i] = element(o, i); }
    }
    fake_cuda_lock();
    return memory;
}

/* A convolution with a tail; its result, and how many kernels did it. */
static uint64_t run_tail(bool bias, bool relu, bool no_tails, float *dst, size_t n) {
    static const float nan = __builtin_nanf("");
    fixture f;
    fake_cuda_reset(3);
    fake.no_tails = no_tails;
    assert_int_equal(open_fixture(&f, NULL, false, false), EBB_OK);
    f.desc.attr.relu = relu;
    if (bias) {
        f.operand[3] = f.operand[2];
        f.operand[2] = (ebb_operand){.shape = {.n_dims = 1, .dims = {8}}, .layout = EBB_LAYOUT_ANY};
        f.desc.n_in = 3;
    }
    float *memory = fill_operands(&f);
    fake_cuda_unlock();
    memory[0] = nan;
    fake_cuda_lock();
    const uint64_t n_before = fake.n_launches;
    assert_int_equal(make_bind_run(&f, 0), EBB_OK);
    const uint64_t n_launches = fake.n_launches - n_before;
    fake_cuda_unlock();
    memcpy(dst, memory + (bias ? 3 : 2) * SPACING / 4, n * sizeof *dst);
    fake_cuda_lock();
    close_fixture(&f);
    assert_int_equal(fake.n_live, 0);
    return n_launches;
}

/* Bias and ReLU are the algorithm's, or, where no algorithm does them, an own kernel's after it: with the same bits,
 * and a NaN stays one. */
static void tails(void **state) {
    (void)state;
    enum { N = 2 * 8 * 6 * 6 };
    float alone[N], fused[N], after[N];
    for (int i = 0; i < 4; i++) {
        const bool bias = (i & 1) != 0, relu = (i & 2) != 0;
        const uint64_t n_alone = run_tail(false, false, false, alone, N);
        const uint64_t n_fused = run_tail(bias, relu, false, fused, N), n_after = run_tail(bias, relu, true, after, N);
        int n_nans = 0, n_zeros = 0, n_changed = 0;
        assert_int_equal(n_fused, n_alone);
        assert_int_equal(n_after, n_alone + (i != 0));
        assert_memory_equal(fused, after, sizeof fused);
        for (int k = 0; k < N; k++) {
            n_nans += isnan(fused[k]);
            n_zeros += fused[k] == 0.0f;
            n_changed += fused[k] != alone[k] && !isnan(alone[k]);
        }
        assert_true(n_nans > 0 && n_nans < N);
        assert_true((n_zeros > N / 8) == relu);
        assert_true((n_changed > 0) == (i != 0));
    }
}

/* The fixture's convolution backward to data: diff_dst, weights, and diff_src, which is made or added to. */
static void turn_back(fixture *f, bool adds) {
    const ebb_operand src = f->operand[0];
    f->operand[0] = f->operand[2];
    f->operand[2] = src;
    f->desc.kind = adds ? EBB_OP_CONV_BWD_DATA_ADD : EBB_OP_CONV_BWD_DATA;
    f->desc.n_out = !adds;
    f->desc.n_inout = adds;
}

/* Run a gradient of images, and copy what it leaves to diff_src. */
static void run_data(bool adds, bool no_engines, float *diff_src, size_t n) {
    fixture f;
    fake_cuda_reset(3);
    fake.no_engines = no_engines;
    assert_int_equal(open_fixture(&f, NULL, false, false), EBB_OK);
    turn_back(&f, adds);
    float *memory = fill_operands(&f);
    assert_int_equal(make_bind_run(&f, 0), EBB_OK);
    fake_cuda_unlock();
    memcpy(diff_src, memory + 2 * SPACING / 4, n * sizeof *diff_src);
    fake_cuda_lock();
    close_fixture(&f);
    assert_int_equal(fake.n_live, 0);
}

/* By the library and by the own kernel. The numbers are quarters, so that products and sums are exact. */
static void gradients_are_added(void **state) {
    (void)state;
    enum { N = 2 * 4 * 6 * 6 };
    float alone[N], added[N];
    for (int own = 0; own < 2; own++) {
        run_data(false, own != 0, alone, N);
        run_data(true, own != 0, added, N);
        for (int i = 0; i < N; i++) { assert_true(added[i] == alone[i] + element(2, i)); }
    }
}

/* Only where the library has an algorithm that adds; a library that fails is told. */
static void sums_are_wanted_of_the_library(void **state) {
    (void)state;
    for (int i = 0; i < 3; i++) {
        fixture f;
        bool merges = i != 0;
        fake_cuda_reset(1);
        fake.no_sums = i == 1;
        fake.broken_engines = i == 2;
        assert_int_equal(open_fixture(&f, NULL, false, false), EBB_OK);
        turn_back(&f, true);
        assert_int_equal(ebb__backend_cuda.merges(f.device, &f.desc, &merges), i == 2 ? EBB_E_DEVICE : EBB_OK);
        if (i < 2) { assert_int_equal(merges, i == 0); }
        close_fixture(&f);
        assert_int_equal(fake.n_live, 0);
    }
}

/* Two branches that begin at one convolution's result: a convolution, and before it in backward a linear layer, whose
 * gradient is row-major, or a batch-norm, whose gradient has its channels last as the convolution wants it. */
static ebb_graph *make_branches(bool linear) {
    const ebb_window three = ebb_window_square(3, 1, 1);
    ebb_graph_options options = EBB_GRAPH_OPTIONS_INIT;
    ebb_optimizer optimizer = EBB_OPTIMIZER_INIT;
    ebb_graph *g = NULL;
    assert_int_equal(ebb_graph_create(&options, &g), EBB_OK);
    const ebb_value images = ebb_graph_images(g, 2, 3, 4, 4), labels = ebb_graph_labels(g, 2, 5);
    const ebb_value a = ebb_graph_conv(g, "a", images, 4, &three, false);
    const ebb_value b = ebb_graph_conv(g, "b", a, 4, &three, false);
    const ebb_value flat = ebb_graph_flatten(g, "b.flat", b);
    const ebb_value other = linear ? a : ebb_graph_batch_norm(g, "n", a, 1e-5f, 0.1f);
    const ebb_value fc = ebb_graph_linear(g, "fc", ebb_graph_flatten(g, "flat", other), 5, true);
    const ebb_value sum = ebb_graph_add(g, "sum", ebb_graph_linear(g, "b.fc", flat, 5, true), fc);
    (void)ebb_graph_softmax_loss(g, sum, labels);
    assert_int_equal(ebb_graph_train(g, &optimizer, false), EBB_OK);
    return g;
}

static size_t count_steps(const ebb_lowered *low, const char *kind, ebb_phase phase) {
    size_t n_steps = 0, n = 0;
    const ebb_step *steps = ebb_program_steps(ebb_lowered_program(low), &n_steps);
    for (size_t s = 0; s < n_steps; s++) { n += strcmp(steps[s].kind, kind) == 0 && steps[s].phase == (uint32_t)phase; }
    return n;
}

/* A gradient that would have to be reordered first is added to by a step of its own, as is every one where the library
 * has no algorithm for that. */
static void sums_keep_their_layout(void **state) {
    (void)state;
    for (int i = 0; i < 4; i++) {
        fixture f;
        ebb_lowered *low = NULL;
        const bool linear = (i & 1) != 0, no_sums = (i & 2) != 0;
        ebb_graph *g = make_branches(linear);
        fake_cuda_reset(1);
        fake.no_sums = no_sums;
        assert_int_equal(open_fixture(&f, NULL, false, false), EBB_OK);
        assert_int_equal(ebb_lower(g, f.device, &low), EBB_OK);
        assert_int_equal(count_steps(low, "conv_bwd_data_add", EBB_PHASE_BACKWARD), i == 0);
        assert_int_equal(count_steps(low, "add", EBB_PHASE_BACKWARD), i != 0);
        ebb_lowered_destroy(low);
        ebb_graph_destroy(g);
        close_fixture(&f);
        assert_int_equal(fake.n_live, 0);
    }
}

/* One of the fallbacks is choice 0 where the first list has none that needs little, or cannot be had. */
static void fallbacks_are_small(void **state) {
    (void)state;
    for (int i = 0; i < 2; i++) {
        fixture f;
        ebb_kernel *kernel = NULL;
        fake_cuda_reset(1);
        fake.no_small_engines = i == 0;
        fake.broken_list = i == 1;
        assert_int_equal(open_fixture(&f, NULL, false, false), EBB_OK);
        assert_int_equal(make(&f, 0, &kernel), EBB_OK);
        assert_string_equal(kernel->algorithm, "cudnn 4");
        assert_int_equal(kernel->n_choices, i == 0 ? 2 : 1);
        assert_int_equal(kernel->scratch_bytes, 0);
        ebb__backend_cuda.kernel_destroy(kernel);
        close_fixture(&f);
        assert_int_equal(fake.n_live, 0);
    }
}

static void count_warning(void *ctx, ebb_log_level level, const char *message) {
    assert_int_equal(level, EBB_LOG_WARN);
    assert_non_null(strstr(message, "cuDNN has no algorithm for it"));
    ++*(int *)ctx;
}

/* Then an own kernel does it, with a warning for the first. */
static void nothing_is_allowed(void **state) {
    (void)state;
    int n_warnings = 0;
    ebb_log_set(count_warning, &n_warnings, EBB_LOG_WARN);
    fixture f;
    ebb_kernel *kernel = NULL;
    fake_cuda_reset(1);
    fake.no_engines = true;
    assert_int_equal(open_fixture(&f, NULL, false, false), EBB_OK);
    assert_int_equal(make(&f, 0, &kernel), EBB_OK);
    assert_string_equal(kernel->algorithm, "own");
    assert_int_equal(kernel->n_choices, 1);
    ebb__backend_cuda.kernel_destroy(kernel);
    assert_int_equal(make_bind_run(&f, 0), EBB_OK);
    close_fixture(&f);
    ebb_log_set(NULL, NULL, EBB_LOG_WARN);
    assert_int_equal(n_warnings, 1);
    assert_int_equal(fake.n_live, 0);
}

/* Not for an own kernel: it would fail as well, or hide that. */
static void no_engine_works(void **state) {
    (void)state;
    fixture f;
    ebb_kernel *kernel = NULL;
    fake_cuda_reset(1);
    fake.broken_engines = true;
    assert_int_equal(open_fixture(&f, NULL, false, false), EBB_OK);
    assert_int_equal(make(&f, 0, &kernel), EBB_E_DEVICE);
    expect_message("cudnnBackendFinalize of an execution plan: failure");
    fake.broken_engines = false;
    assert_int_equal(make_bind_run(&f, 0), EBB_OK);
    close_fixture(&f);
    assert_int_equal(fake.n_live, 0);
}

/* A call that fails may only rule an engine out; then the choice may be gone, or what is left does as well. */
static void every_call_failing(void **state) {
    (void)state;
    uint64_t n_failed = 0;
    for (uint64_t call = 1;; call++) {
        fixture f;
        fake_cuda_reset(7);
        assert_int_equal(open_fixture(&f, NULL, false, false), EBB_OK);
        fake_cuda_fail(call, cudaErrorUnknown);
        const ebb_status st = make_bind_run(&f, 1);
        const bool done = fake.failed == NULL;
        n_failed += st != EBB_OK;
        if (!done && st != EBB_OK) { assert_non_null(strstr(ebb_last_error(), "cuda")); }
        if (done) { assert_int_equal(st, EBB_OK); }
        fake_cuda_fail(0, cudaSuccess);
        close_fixture(&f);
        assert_int_equal(fake.n_live, 0);
        if (done) { break; }
        assert_true(call < 10000);
    }
    assert_true(n_failed > 40);
}

static void make_linear(fixture *f) {
    static const ebb_shape src = {.n_dims = 2, .dims = {2, 12}};
    static const ebb_shape weights = {.n_dims = 2, .dims = {5, 12}}, dst = {.n_dims = 2, .dims = {2, 5}};
    f->operand[0].shape = src;
    f->operand[1].shape = weights;
    f->operand[2].shape = dst;
    f->desc.kind = EBB_OP_LINEAR;
    f->desc.attr = (ebb_op_attr){.relu = 1};
}

/* As many as the library says can run, and one that needs no workspace; each computes the same. A bias without a ReLU
 * is the library's, or, where it has no algorithm for that, an own kernel's. */
static void products(void **state) {
    (void)state;
    static const uint64_t want[] = {1000, 2000, 0};
    static const ebb_shape vector = {.n_dims = 1, .dims = {5}};
    for (int i = 0; i < 4; i++) {
        const bool relu = (i & 1) != 0, no_epilogues = (i & 2) != 0;
        float first[10] = {0};
        for (uint32_t choice = 0; choice < 3; choice++) {
            fixture f;
            ebb_kernel *kernel = NULL;
            fake_cuda_reset(5 + choice);
            fake.no_epilogues = no_epilogues;
            assert_int_equal(open_fixture(&f, NULL, false, false), EBB_OK);
            make_linear(&f);
            f.operand[3] = f.operand[2];
            f.operand[2] = (ebb_operand){.shape = vector, .layout = EBB_LAYOUT_ANY};
            f.desc.n_in = 3;
            f.desc.attr.relu = relu;
            assert_int_equal(make(&f, choice, &kernel), EBB_OK);
            assert_int_equal(kernel->n_choices, 3);
            assert_int_equal(kernel->scratch_bytes, want[choice]);
            ebb__backend_cuda.kernel_destroy(kernel);
            float *memory = fill_operands(&f);
            const uint64_t n_before = fake.n_launches;
            assert_int_equal(make_bind_run(&f, choice), EBB_OK);
            assert_int_equal(fake.n_launches - n_before, (want[choice] > 0) + 1 + (relu || no_epilogues));
            fake_cuda_unlock();
            if (choice == 0) { memcpy(first, memory + 3 * SPACING / 4, sizeof first); }
            assert_memory_equal(first, memory + 3 * SPACING / 4, sizeof first);
            fake_cuda_lock();
            double sum = (double)element(2, 1); /* of the first row's second element */
            for (int k = 0; k < 12; k++) { sum += (double)element(0, k) * (double)element(1, 12 + k); }
            assert_true(first[1] == (float)(relu && sum < 0 ? 0 : sum));
            close_fixture(&f);
            assert_int_equal(fake.n_live, 0);
        }
    }
}

static ebb_status live_through(const ebb_mem *mem, bool linear) {
    fixture f;
    fake_cuda_reset(9);
    ebb_status st = open_fixture(&f, mem, false, false);
    if (linear) { make_linear(&f); }
    if (st == EBB_OK) { st = make_bind_run(&f, 0); }
    close_fixture(&f);
    assert_int_equal(fake.n_live, 0);
    return st;
}

/* For a convolution and for a linear layer. */
static void every_allocation_failing(void **state) {
    (void)state;
    OOM_LOOP(mem, st, { st = live_through(mem, false); });
    OOM_LOOP(mem, st, { st = live_through(mem, true); });
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(choices),
        cmocka_unit_test(options_allow_more),
        cmocka_unit_test(tails),
        cmocka_unit_test(gradients_are_added),
        cmocka_unit_test(sums_are_wanted_of_the_library),
        cmocka_unit_test(sums_keep_their_layout),
        cmocka_unit_test(products),
        cmocka_unit_test(fallbacks_are_small),
        cmocka_unit_test(times_are_of_a_card_options_and_versions),
        cmocka_unit_test(nothing_is_allowed),
        cmocka_unit_test(no_engine_works),
        cmocka_unit_test(looked_for_once),
        cmocka_unit_test(every_call_failing),
        cmocka_unit_test(every_allocation_failing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
