/* SPDX-License-Identifier: Apache-2.0
 *
 * Ref's backward operators against finite differences of its forward ones. With random r, the gradient of
 * sum(r * dst) by an input is what backward gives for diff_dst = r. The derivative is taken over four points,
 * (8 (f(h) - f(-h)) - (f(2h) - f(-2h))) / 12h, whose error is of order h^4, so that h can be large enough for
 * float32 outputs.
 *
 * An element is left out when a ReLU or a maximum switches between the four points: what switches is seen in
 * the opaque output or in the zeros of dst.
 */
#include "ref_kernel.h"

#include <math.h>

#define STEP 0.03125f
#define TOLERANCE 1e-4 /* of the largest gradient; a wrong term is far above, rounding a tenth of it */

static void fill_normal(ebb_rng *rng, kernel *k, uint32_t idx) {
    float *data = k->data[idx];
    for (int64_t i = 0; i < elements(k, idx); i++) { data[i] = ebb__rng_normal(rng); }
}

static void copy_operand(kernel *to, uint32_t to_idx, const kernel *from, uint32_t from_idx) {
    memcpy(to->data[to_idx], from->data[from_idx], (size_t)elements(from, from_idx) * sizeof(float));
}

/* ---- the derivative ---- */

/* sum(r * dst), and a hash of what has switched. */
static double evaluate(kernel *forward, ebb_ref_fn fn, const float *r, uint64_t *switches_out) {
    run(forward, fn);
    const uint32_t dst_idx = forward->desc.n_in;
    const float *dst = forward->data[dst_idx];
    double sum = 0.0;
    uint64_t hash = EBB_HASH_INIT;
    for (int64_t i = 0; i < elements(forward, dst_idx); i++) {
        const bool zero = dst[i] == 0.0f;
        sum += (double)r[i] * (double)dst[i];
        hash = ebb__hash(hash, &zero, sizeof zero);
    }
    for (uint32_t o = 0; o < forward->desc.n_out; o++) {
        const bool indices = forward->desc.kind == EBB_OP_MAX_POOL;
        if (!forward->operand[dst_idx + o].opaque || forward->desc.kind == EBB_OP_LRN) { continue; }
        const size_t n_bytes = (size_t)elements(forward, dst_idx + o) * (indices ? 4 : 1);
        hash = ebb__hash(hash, forward->data[dst_idx + o], n_bytes);
    }
    *switches_out = hash;
    return sum;
}

/* false: something switches on the way. */
static bool differentiate(kernel *forward, ebb_ref_fn fn, const float *r, float *x, double *derivative_out) {
    static const int steps[] = {1, -1, 2, -2};
    static const double weights[] = {8.0, -8.0, -1.0, 1.0};
    const float at = *x;
    double sum = 0.0;
    uint64_t switches[4];
    for (int k = 0; k < 4; k++) {
        *x = at + (float)steps[k] * STEP;
        sum += weights[k] * evaluate(forward, fn, r, &switches[k]);
    }
    *x = at;
    *derivative_out = sum / (12.0 * (double)STEP);
    return switches[0] == switches[1] && switches[0] == switches[2] && switches[0] == switches[3];
}

/* gradient is what backward says of input idx. */
static void check_gradient(kernel *forward, ebb_ref_fn fn, const float *r, uint32_t idx, const float *gradient) {
    const int64_t n = elements(forward, idx);
    double largest = 0.0, worst = 0.0;
    int64_t n_left_out = 0;
    for (int64_t i = 0; i < n; i++) {
        double derivative = 0.0;
        largest = fmax(largest, fabs((double)gradient[i]));
        if (!differentiate(forward, fn, r, (float *)forward->data[idx] + i, &derivative)) {
            n_left_out++;
            continue;
        }
        worst = fmax(worst, fabs(derivative - (double)gradient[i]));
    }
    const char *name = ebb__op_name(forward->desc.kind);
    if (!(worst <= TOLERANCE * largest)) { fail_msg("%s: by input %u: off by %g of %g", name, idx, worst, largest); }
    if (n_left_out > n * 3 / 4) { fail_msg("%s: %lld of %lld left out", name, (long long)n_left_out, (long long)n); }
}

/* ---- layers with weights ---- */

/* forward: src weights bias -> dst; data and filter as the operator table has them. */
static void check_layer(ebb_op_kind kind, ebb_op_attr attr, const ebb_shape shapes[3], const ebb_ref_fn fns[3]) {
    const ebb_shape src = shapes[0], weights = shapes[1], dst = shapes[2], bias = shape_1d(weights.dims[0]);
    kernel forward = make(kind, attr), data = make((ebb_op_kind)(kind + 1), attr);
    kernel filter = make((ebb_op_kind)(kind + 2), attr);
    ebb_rng rng;
    ebb__rng_init(&rng, 3, (uint64_t)kind);
    add_in(&forward, src), add_in(&forward, weights), add_in(&forward, bias), add_out(&forward, dst);
    add_in(&data, dst), add_in(&data, weights), add_out(&data, src);
    add_in(&filter, src), add_in(&filter, dst), add_out(&filter, weights), add_out(&filter, bias);
    for (uint32_t i = 0; i < 3; i++) { fill_normal(&rng, &forward, i); }
    fill_normal(&rng, &data, 0);
    copy_operand(&data, 1, &forward, 1);
    copy_operand(&filter, 0, &forward, 0);
    copy_operand(&filter, 1, &data, 0);
    run(&data, fns[1]);
    run(&filter, fns[2]);
    check_gradient(&forward, fns[0], data.data[0], 0, data.data[2]);
    check_gradient(&forward, fns[0], data.data[0], 1, filter.data[2]);
    check_gradient(&forward, fns[0], data.data[0], 2, filter.data[3]);
    fini(&forward), fini(&data), fini(&filter);
}

static void convolutions(void **state) {
    (void)state;
    static const ebb_ref_fn fns[3] = {ebb__ref_conv, ebb__ref_conv_bwd_data, ebb__ref_conv_bwd_weights};
    static const struct {
        ebb_op_attr attr;
        ebb_shape src, weights, dst;
    } cases[] = {
        {{.kernel = {3, 3}, .stride = {1, 1}, .pad_begin = {1, 1}, .pad_end = {1, 1}, .dilation = {1, 1}, .groups = 1},
         {.n_dims = 4, .dims = {2, 3, 5, 4}},
         {.n_dims = 4, .dims = {4, 3, 3, 3}},
         {.n_dims = 4, .dims = {2, 4, 5, 4}}},
        {{.kernel = {2, 3}, .stride = {2, 1}, .pad_begin = {1, 0}, .pad_end = {0, 2}, .dilation = {2, 1}, .groups = 2},
         {.n_dims = 4, .dims = {1, 4, 6, 5}},
         {.n_dims = 4, .dims = {6, 2, 2, 3}},
         {.n_dims = 4, .dims = {1, 6, 3, 5}}},
        {{.kernel = {3, 3}, .stride = {2, 2}, .pad_begin = {1, 1}, .pad_end = {1, 1}, .dilation = {1, 1}, .groups = 3},
         {.n_dims = 4, .dims = {2, 3, 4, 5}},
         {.n_dims = 4, .dims = {3, 1, 3, 3}},
         {.n_dims = 4, .dims = {2, 3, 2, 3}}},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        const ebb_shape shapes[3] = {cases[i].src, cases[i].weights, cases[i].dst};
        check_layer(EBB_OP_CONV, cases[i].attr, shapes, fns);
    }
}

static void linear_layers(void **state) {
    (void)state;
    static const ebb_ref_fn fns[3] = {ebb__ref_linear, ebb__ref_linear_bwd_data, ebb__ref_linear_bwd_weights};
    const ebb_shape flat[3] = {shape_2d(3, 7), shape_2d(5, 7), shape_2d(3, 5)};
    const ebb_shape image[3] = {shape_4d(2, 3, 2, 2), shape_2d(4, 12), shape_2d(2, 4)};
    check_layer(EBB_OP_LINEAR, (ebb_op_attr){0}, flat, fns);
    check_layer(EBB_OP_LINEAR, (ebb_op_attr){0}, image, fns);
}

/* ---- normalisation ---- */

static void check_batch_norm(bool relu) {
    const ebb_shape src = shape_4d(3, 2, 3, 4), channel = shape_1d(2);
    const ebb_op_attr attr = {.epsilon = 0.1f, .relu = relu};
    kernel forward = make(EBB_OP_BATCH_NORM, attr), backward = make(EBB_OP_BATCH_NORM_BWD, attr);
    ebb_rng rng;
    ebb__rng_init(&rng, 4, relu);
    for (uint32_t i = 0; i < 3; i++) { add_in(&forward, i == 0 ? src : channel); }
    for (uint32_t i = 0; i < 3; i++) { add_out(&forward, i == 0 ? src : channel); }
    if (relu) { add_opaque_out(&forward, src); }
    for (uint32_t i = 0; i < 5; i++) { add_in(&backward, i < 2 ? src : channel); }
    if (relu) { add_opaque_in(&backward, src); }
    for (uint32_t i = 0; i < 3; i++) { add_out(&backward, i == 0 ? src : channel); }
    for (uint32_t i = 0; i < 3; i++) { fill_normal(&rng, &forward, i); }
    fill_normal(&rng, &backward, 1);
    run(&forward, ebb__ref_batch_norm);
    copy_operand(&backward, 0, &forward, 0);
    copy_operand(&backward, 2, &forward, 4);
    copy_operand(&backward, 3, &forward, 5);
    copy_operand(&backward, 4, &forward, 1);
    if (relu) { memcpy(backward.data[5], forward.data[6], (size_t)elements(&forward, 6)); }
    run(&backward, ebb__ref_batch_norm_bwd);
    for (uint32_t i = 0; i < 3; i++) {
        check_gradient(&forward, ebb__ref_batch_norm, backward.data[1], i, backward.data[backward.desc.n_in + i]);
    }
    fini(&forward), fini(&backward);
}

static void batch_norms(void **state) {
    (void)state;
    check_batch_norm(false);
    check_batch_norm(true);
}

static void lrns(void **state) {
    (void)state;
    for (int32_t size = 1; size <= 5; size++) {
        const ebb_shape src = shape_4d(1, 6, 2, 2);
        const ebb_op_attr attr = {.size = size, .alpha = 0.5f, .beta = 0.75f, .k = 1.5f};
        kernel forward = make(EBB_OP_LRN, attr), backward = make(EBB_OP_LRN_BWD, attr);
        ebb_rng rng;
        ebb__rng_init(&rng, 5, (uint64_t)size);
        add_in(&forward, src), add_out(&forward, src), add_opaque_out(&forward, src);
        add_in(&backward, src), add_in(&backward, src), add_opaque_in(&backward, src), add_out(&backward, src);
        fill_normal(&rng, &forward, 0);
        fill_normal(&rng, &backward, 1);
        run(&forward, ebb__ref_lrn);
        copy_operand(&backward, 0, &forward, 0);
        copy_operand(&backward, 2, &forward, 2);
        run(&backward, ebb__ref_lrn_bwd);
        check_gradient(&forward, ebb__ref_lrn, backward.data[1], 0, backward.data[3]);
        fini(&forward), fini(&backward);
    }
}

/* ---- maps and pools ---- */

/* backward: diff_dst [what forward kept] -> diff_src. kept_idx: forward's operand that it reads; 0: none. */
static void check_map(const kernel *like, uint32_t kept_idx, ebb_ref_fn forward_fn, ebb_op_kind backward_kind,
                      ebb_ref_fn backward_fn) {
    kernel forward = *like, backward = make(backward_kind, like->desc.attr);
    const ebb_shape src = like->operand[0].shape, dst = like->operand[1].shape;
    ebb_rng rng;
    ebb__rng_init(&rng, 6, (uint64_t)backward_kind);
    add_in(&backward, dst);
    if (kept_idx > 0) { add(&backward, &backward.desc.n_in, dst, like->operand[kept_idx].opaque); }
    add_out(&backward, src);
    fill_normal(&rng, &forward, 0);
    fill_normal(&rng, &backward, 0);
    run(&forward, forward_fn);
    if (kept_idx > 0) { copy_operand(&backward, 1, &forward, kept_idx); }
    run(&backward, backward_fn);
    check_gradient(&forward, forward_fn, backward.data[0], 0, backward.data[backward.desc.n_in]);
    fini(&forward), fini(&backward);
}

static void relus_and_dropout(void **state) {
    (void)state;
    const ebb_shape shape = shape_2d(8, 9);
    kernel relu = make(EBB_OP_RELU, (ebb_op_attr){0}), dropout = make(EBB_OP_DROPOUT, (ebb_op_attr){.p = 0.4f});
    add_in(&relu, shape), add_out(&relu, shape);
    add_in(&dropout, shape), add_out(&dropout, shape);
    check_map(&relu, 1, ebb__ref_relu, EBB_OP_RELU_BWD, ebb__ref_relu_bwd);
    check_map(&dropout, 0, ebb__ref_dropout, EBB_OP_DROPOUT_BWD, ebb__ref_dropout);
}

static void pools(void **state) {
    (void)state;
    static const struct {
        ebb_op_attr attr;
        ebb_shape src, dst;
    } cases[] = {
        {{.kernel = {2, 2}, .stride = {2, 2}, .dilation = {1, 1}},
         {.n_dims = 4, .dims = {2, 2, 4, 6}},
         {.n_dims = 4, .dims = {2, 2, 2, 3}}},
        {{.kernel = {3, 2}, .stride = {1, 2}, .pad_begin = {1, 0}, .pad_end = {2, 1}, .dilation = {1, 1}},
         {.n_dims = 4, .dims = {1, 3, 4, 5}},
         {.n_dims = 4, .dims = {1, 3, 5, 3}}},
    };
    for (size_t i = 0; i < 2; i++) {
        for (int32_t count_padding = 0; count_padding < 2; count_padding++) {
            kernel avg = make(EBB_OP_AVG_POOL, cases[i].attr);
            avg.desc.attr.count_padding = count_padding;
            add_in(&avg, cases[i].src), add_out(&avg, cases[i].dst);
            check_map(&avg, 0, ebb__ref_avg_pool, EBB_OP_AVG_POOL_BWD, ebb__ref_avg_pool_bwd);
        }
        kernel max = make(EBB_OP_MAX_POOL, cases[i].attr);
        add_in(&max, cases[i].src), add_out(&max, cases[i].dst), add_opaque_out(&max, cases[i].dst);
        check_map(&max, 2, ebb__ref_max_pool, EBB_OP_MAX_POOL_BWD, ebb__ref_max_pool_bwd);
    }
}

/* ---- loss and joins ---- */

static void losses(void **state) {
    (void)state;
    const ebb_shape logits = shape_2d(4, 5);
    kernel forward = make(EBB_OP_SOFTMAX_LOSS, (ebb_op_attr){0});
    kernel backward = make(EBB_OP_SOFTMAX_LOSS_BWD, (ebb_op_attr){0});
    ebb_rng rng;
    ebb__rng_init(&rng, 8, 0);
    add_in(&forward, logits), add_in(&forward, shape_1d(4));
    add_out(&forward, shape_1d(1)), add_out(&forward, logits), add_out(&forward, shape_1d(1));
    add_in(&backward, logits), add_in(&backward, shape_1d(4)), add_out(&backward, logits);
    forward.operand[1].dtype = backward.operand[1].dtype = EBB_S32;
    fill_normal(&rng, &forward, 0);
    for (int i = 0; i < 4; i++) { ((int32_t *)forward.data[1])[i] = i + 1; }
    run(&forward, ebb__ref_softmax_loss);
    copy_operand(&backward, 0, &forward, 3);
    copy_operand(&backward, 1, &forward, 1);
    run(&backward, ebb__ref_softmax_loss_bwd);
    const float one = 1.0f;
    check_gradient(&forward, ebb__ref_softmax_loss, &one, 0, backward.data[2]);
    fini(&forward), fini(&backward);
}

/* The backward of a join is a slice, with what another reader gave added. */
static void joins(void **state) {
    (void)state;
    kernel forward = make(EBB_OP_CONCAT, (ebb_op_attr){0});
    kernel backward = make(EBB_OP_SLICE, (ebb_op_attr){.offset = 2});
    ebb_rng rng;
    ebb__rng_init(&rng, 10, 0);
    add_in(&forward, shape_4d(2, 2, 3, 2)), add_in(&forward, shape_4d(2, 4, 3, 2));
    add_out(&forward, shape_4d(2, 6, 3, 2));
    add_in(&backward, shape_4d(2, 6, 3, 2)), add_out(&backward, shape_4d(2, 4, 3, 2));
    fill_normal(&rng, &forward, 0);
    fill_normal(&rng, &forward, 1);
    fill_normal(&rng, &backward, 0);
    run(&backward, ebb__ref_slice);
    check_gradient(&forward, ebb__ref_concat, backward.data[0], 1, backward.data[1]);
    fini(&forward), fini(&backward);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(convolutions),
        cmocka_unit_test(linear_layers),
        cmocka_unit_test(batch_norms),
        cmocka_unit_test(lrns),
        cmocka_unit_test(pools),
        cmocka_unit_test(losses),
        cmocka_unit_test(relus_and_dropout),
        cmocka_unit_test(joins),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
