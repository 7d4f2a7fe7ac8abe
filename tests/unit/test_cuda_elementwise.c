/* SPDX-License-Identifier: Apache-2.0
 *
 * The bodies of cuda_elementwise_body.h, run by the processor beside ref: the same bits, also over their inputs.
 */
#include "backend/cuda/cuda_elementwise_body.h"
#include "backend/ref/ref.h"
#include "support.h"

#include <math.h>

enum { N = 1009 };

static float a[N], b[N], own[N], theirs[N];

static void draw(float *values, uint64_t stream) {
    ebb_rng rng;
    ebb__rng_init(&rng, 11, stream);
    for (int i = 0; i < N; i++) { values[i] = i % 5 == 0 ? 0.0f : ebb__rng_normal(&rng); }
    values[N / 2] = -0.0f;
    values[N / 3] = INFINITY;
    values[N / 4] = NAN;
}

static void run_ref(ebb_ref_fn fn, ebb_op_attr attr, uint32_t n_in) {
    const ebb_operand operand = {.shape = {.n_dims = 1, .dims = {N}}};
    const ebb_operand operands[3] = {operand, operand, operand};
    const ebb_kernel_desc desc = {.attr = attr, .n_in = n_in, .n_out = 1, .operand = operands};
    void *at[3] = {a, n_in == 2 ? b : theirs, theirs};
    const ebb_ref_call call = {.desc = &desc, .operand = at};
    assert_int_equal(fn(&call), EBB_OK);
}

static int set_up(void **state) {
    (void)state;
    draw(a, 1);
    draw(b, 2);
    return 0;
}

static void relu_is_refs(void **state) {
    (void)state;
    const ebb_cuda_relu_args args = {.src = a, .dst = own}, over = {.src = a, .dst = a};
    for (uint64_t i = 0; i < N; i++) { ebb__cuda_relu_element(&args, i); }
    run_ref(ebb__ref_relu, (ebb_op_attr){0}, 1);
    assert_memory_equal(own, theirs, sizeof own);
    for (uint64_t i = 0; i < N; i++) { ebb__cuda_relu_element(&over, i); }
    assert_memory_equal(a, theirs, sizeof a);
}

static void relu_bwd_is_refs(void **state) {
    (void)state;
    const ebb_cuda_relu_bwd_args args = {.diff_dst = a, .dst = b, .diff_src = own};
    for (uint64_t i = 0; i < N; i++) { ebb__cuda_relu_bwd_element(&args, i); }
    run_ref(ebb__ref_relu_bwd, (ebb_op_attr){0}, 2);
    assert_memory_equal(own, theirs, sizeof own);
}

static void add_is_refs(void **state) {
    (void)state;
    for (int relu = 0; relu < 2; relu++) {
        const ebb_cuda_add_args args = {.a = a, .b = b, .dst = own, .relu = relu != 0};
        for (uint64_t i = 0; i < N; i++) { ebb__cuda_add_element(&args, i); }
        run_ref(ebb__ref_add, (ebb_op_attr){.relu = relu != 0}, 2);
        assert_memory_equal(own, theirs, sizeof own);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(relu_is_refs, set_up),
        cmocka_unit_test_setup(relu_bwd_is_refs, set_up),
        cmocka_unit_test_setup(add_is_refs, set_up),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
