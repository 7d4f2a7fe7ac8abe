/* SPDX-License-Identifier: Apache-2.0
 *
 * The launchers of cuda_elementwise.cu beside ref: the same bits, also over their inputs, for sizes around those of
 * quads and tiles, with nothing after the last element written. And masks, which are read as they were written.
 */
#include "backend/cuda/cuda_quad.h"
#include "backend/ref/ref.h"
#include "fake_cuda.h"
#include "support.h"

#include <math.h>

enum { TILE = EBB_CUDA_TILE, MOST = 2 * TILE + 9, GUARD = 8 };

static const int sizes[] = {1, 3, 4, 6, 127, 128, 1009, TILE - 4, TILE - 1, TILE, TILE + 1, TILE + 4, 2 * TILE + 9};
enum { N_SIZES = sizeof sizes / sizeof sizes[0] };

static int n;
static _Alignas(16) float a[MOST + GUARD], b[MOST + GUARD], own[MOST + GUARD];
static float theirs[MOST + GUARD];
static cudaStream_t stream;

static void draw(float *values, uint64_t number) {
    ebb_rng rng;
    ebb__rng_init(&rng, 11, number);
    for (int i = 0; i < MOST; i++) { values[i] = i % 5 == 0 ? 0.0f : ebb__rng_normal(&rng); }
    for (int i = 0; i < MOST; i += 100) { values[i + 1] = -0.0f, values[i + 2] = INFINITY, values[i + 3] = NAN; }
    for (int i = 0; i < GUARD; i++) { values[n + i] = 77.0f; }
}

static void run_ref(ebb_ref_fn fn, ebb_op_attr attr, uint32_t n_in) {
    const ebb_operand operand = {.shape = {.n_dims = 1, .dims = {n}}};
    const ebb_operand operands[3] = {operand, operand, operand};
    const ebb_kernel_desc desc = {.attr = attr, .n_in = n_in, .n_out = 1, .operand = operands};
    void *at[3] = {a, n_in == 2 ? b : theirs, theirs};
    const ebb_ref_call call = {.desc = &desc, .operand = at};
    assert_int_equal(fn(&call), EBB_OK);
}

static void set_up(int size) {
    n = size;
    draw(a, 1);
    draw(b, 2);
    memset(own, 0x5a, sizeof own);
    memset(theirs, 0x5a, sizeof theirs);
}

static void finish(cudaError_t launched) {
    assert_int_equal(launched, cudaSuccess);
    assert_int_equal(cudaStreamSynchronize(stream), cudaSuccess);
    assert_memory_equal(own, theirs, sizeof own);
}

static void relu_is_refs(void **state) {
    (void)state;
    for (int i = 0; i < N_SIZES; i++) {
        set_up(sizes[i]);
        const ebb_cuda_relu_args args = {.src = a, .dst = own, .n = (uint64_t)n}, over = {a, a, (uint64_t)n};
        run_ref(ebb__ref_relu, (ebb_op_attr){0}, 1);
        finish(ebb__cuda_launch_relu(stream, &args));
        finish(ebb__cuda_launch_relu(stream, &over));
        assert_memory_equal(a, theirs, (size_t)n * sizeof *a);
        assert_true(a[n] == 77.0f);
    }
}

static void relu_bwd_is_refs(void **state) {
    (void)state;
    for (int i = 0; i < N_SIZES; i++) {
        set_up(sizes[i]);
        const ebb_cuda_relu_bwd_args args = {.diff_dst = a, .dst = b, .diff_src = own, .n = (uint64_t)n};
        run_ref(ebb__ref_relu_bwd, (ebb_op_attr){0}, 2);
        finish(ebb__cuda_launch_relu_bwd(stream, &args));
    }
}

static void add_is_refs(void **state) {
    (void)state;
    for (int i = 0; i < 2 * N_SIZES; i++) {
        set_up(sizes[i / 2]);
        const ebb_cuda_add_args args = {.a = a, .b = b, .dst = own, .n = (uint64_t)n, .relu = i % 2 != 0};
        run_ref(ebb__ref_add, (ebb_op_attr){.relu = i % 2 != 0}, 2);
        finish(ebb__cuda_launch_add(stream, &args));
    }
}

/* Every pattern of four bits in every lane; groups are whole, and what follows them is not touched. */
static void masks_are_read_as_written(void **state) {
    (void)state;
    enum { COUNT = 3 * EBB_CUDA_VOTERS + 52, BYTES = 4 * EBB_CUDA_VOTERS / 8 };
    _Alignas(16) uint8_t mask[BYTES + GUARD];
    for (unsigned turn = 0; turn < 16; turn++) {
        memset(mask, 0x5a, sizeof mask);
        for (uint64_t at = 0; at < 8 * EBB_CUDA_VOTERS; at += 4) {
            ebb__cuda_mask_put(mask, at, COUNT, (unsigned)(at / 4 * 7 + turn) % 16);
        }
        for (uint64_t at = 0; at < COUNT; at += 4) {
            assert_int_equal(ebb__cuda_mask_get(mask, at), (at / 4 * 7 + turn) % 16);
        }
        for (int i = 0; i < GUARD; i++) { assert_int_equal(mask[BYTES + i], 0x5a); }
    }
}

static int open_stream(void **state) {
    (void)state;
    fake_cuda_reset(7);
    return cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking) == cudaSuccess ? 0 : -1;
}

static int close_stream(void **state) {
    (void)state;
    return cudaStreamDestroy(stream) == cudaSuccess ? 0 : -1;
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(relu_is_refs),
        cmocka_unit_test(relu_bwd_is_refs),
        cmocka_unit_test(add_is_refs),
        cmocka_unit_test(masks_are_read_as_written),
    };
    return cmocka_run_group_tests(tests, open_stream, close_stream);
}
