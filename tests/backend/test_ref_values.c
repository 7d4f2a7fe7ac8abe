/* SPDX-License-Identifier: Apache-2.0
 *
 * Ref's conventions, where two libraries could differ and both be consistent with themselves: the figures on the
 * right come from PyTorch 1.13.1 on the same inputs.
 */
#include "ref_kernel.h"

#include <math.h>

static void set(kernel *k, uint32_t idx, const float *values) {
    memcpy(k->data[idx], values, (size_t)elements(k, idx) * sizeof *values);
}

static void expect(const kernel *k, uint32_t idx, const float *values) {
    const float *data = k->data[idx];
    for (int64_t i = 0; i < elements(k, idx); i++) {
        if (!(fabsf(data[i] - values[i]) <= 1e-6f * fmaxf(1.0f, fabsf(values[i])))) {
            fail_msg("%s: element %d is %.9g, not %.9g", ebb__op_name(k->desc.kind), (int)i, (double)data[i],
                     (double)values[i]);
        }
    }
}

/* An even window reaches one channel further back than forward. */
static void lrn_windows(void **state) {
    (void)state;
    static const float src[12] = {-1, 0.75f, -0.25f, 1.5f, 0.5f, -0.5f, 1.25f, 0.25f, -0.75f, 1, 0, -1};
    static const float dst[3][12] = {{-0.6785534f, 0.45125115f, -0.16654457f, 0.88843715f, 0.32008219f, -0.30569944f,
                                      0.77367735f, 0.16654457f, -0.47200835f, 0.63200933f, 0, -0.6347006f},
                                     {-0.69230551f, 0.47250617f, -0.17063291f, 0.93322414f, 0.31401092f, -0.31011012f,
                                      0.80280215f, 0.15177421f, -0.48325112f, 0.6464439f, 0, -0.6550442f},
                                     {-0.69280273f, 0.48136872f, -0.16171692f, 0.9602465f, 0.31600466f, -0.30744603f,
                                      0.8237527f, 0.15113734f, -0.49558446f, 0.66256756f, 0, -0.66983527f}};
    for (int32_t size = 3; size <= 5; size++) {
        kernel k = make(EBB_OP_LRN, (ebb_op_attr){.size = size, .alpha = 0.5f, .beta = 0.75f, .k = 1.5f});
        add_in(&k, shape_4d(1, 6, 1, 2));
        add_out(&k, shape_4d(1, 6, 1, 2));
        set(&k, 0, src);
        run(&k, ebb__ref_lrn);
        expect(&k, 1, dst[size - 3]);
        fini(&k);
    }
}

static void check_pool(ebb_op_kind kind, ebb_ref_fn fn, ebb_op_attr attr, const float dst[9]) {
    kernel k = make(kind, attr);
    add_in(&k, shape_4d(1, 1, 5, 5));
    add_out(&k, shape_4d(1, 1, 3, 3));
    for (int i = 0; i < 25; i++) { ((float *)k.data[0])[i] = (float)(i * 7 % 13); }
    run(&k, fn);
    expect(&k, 1, dst);
    fini(&k);
}

static void pool_borders(void **state) {
    (void)state;
    ebb_op_attr same = {.kernel = {3, 3}, .stride = {2, 2}, .pad_begin = {1, 1}, .pad_end = {1, 1}, .dilation = {1, 1}};
    const ebb_op_attr ceil = {.kernel = {2, 2}, .stride = {2, 2}, .pad_end = {1, 1}, .dilation = {1, 1}};
    check_pool(EBB_OP_MAX_POOL, ebb__ref_max_pool, same, (float[]){9, 10, 11, 12, 12, 11, 10, 11, 12});
    check_pool(EBB_OP_MAX_POOL, ebb__ref_max_pool, ceil, (float[]){9, 10, 11, 12, 9, 7, 10, 11, 12});
    check_pool(EBB_OP_AVG_POOL, ebb__ref_avg_pool, ceil, (float[]){4.75f, 5.75f, 6.5f, 6.5f, 4.25f, 5, 7, 8, 12});
    check_pool(EBB_OP_AVG_POOL, ebb__ref_avg_pool, same,
               (float[]){4.75f, 5.5f, 6.25f, 6.3333335f, 6, 5.6666665f, 5.75f, 6.5f, 7.25f});
    same.count_padding = 1;
    check_pool(
        EBB_OP_AVG_POOL, ebb__ref_avg_pool, same,
        (float[]){2.1111112f, 3.6666667f, 2.7777777f, 4.2222223f, 6, 3.7777777f, 2.5555556f, 4.3333335f, 3.2222223f});
}

/* The batch is normalised by its biased variance, the running one moves with the unbiased. */
static void batch_norm_variances(void **state) {
    (void)state;
    kernel k = make(EBB_OP_BATCH_NORM, (ebb_op_attr){.epsilon = 1e-5f});
    kernel stats = make(EBB_OP_BATCH_NORM_STATS, (ebb_op_attr){.momentum = 0.1f, .size = 3});
    for (int i = 0; i < 3; i++) { add_in(&k, i == 0 ? shape_2d(3, 2) : shape_1d(2)); }
    for (int i = 0; i < 3; i++) { add_out(&k, i == 0 ? shape_2d(3, 2) : shape_1d(2)); }
    for (int i = 0; i < 2; i++) { add_in(&stats, shape_1d(2)); }
    for (int i = 0; i < 2; i++) { add_inout(&stats, shape_1d(2)); }
    set(&k, 0, (float[]){1, 2, 3, 5, 4, -1});
    set(&k, 1, (float[]){2, -1});
    set(&k, 2, (float[]){0.5f, 0.25f});
    run(&k, ebb__ref_batch_norm);
    expect(&k, 3, (float[]){-2.1726041f, 0.25f, 1.0345205f, -0.97474384f, 2.6380827f, 1.4747438f});
    set(&stats, 0, k.data[4]);
    set(&stats, 1, k.data[5]);
    set(&stats, 3, (float[]){1, 1});
    run(&stats, ebb__ref_batch_norm_stats);
    expect(&stats, 2, (float[]){0.26666668f, 0.2f});
    expect(&stats, 3, (float[]){1.1333333f, 1.8f});
    fini(&k), fini(&stats);
}

/* Three updates with weight decay. */
static void optimisers(void **state) {
    (void)state;
    static const float gradients[3][2] = {{0.5f, -2}, {-1, 0.25f}, {0.125f, 3}};
    static const float weights[][2] = {[EBB_OPT_SGD] = {1.0077939f, -0.6138795f},
                                       [EBB_OPT_MOMENTUM] = {0.98727399f, -0.28501952f},
                                       [EBB_OPT_NESTEROV] = {0.99769866f, -0.42995334f},
                                       [EBB_OPT_ADAM] = {0.93190438f, -0.36737213f},
                                       [EBB_OPT_ADAMW] = {0.92955565f, -0.35883585f}};
    for (int32_t optimizer = 0; optimizer <= EBB_OPT_ADAMW; optimizer++) {
        kernel k = make(EBB_OP_UPDATE, (ebb_op_attr){.optimizer = optimizer,
                                                     .momentum = 0.9f,
                                                     .beta1 = 0.9f,
                                                     .beta2 = 0.999f,
                                                     .epsilon = 1e-8f,
                                                     .weight_decay = 0.1f});
        add_in(&k, shape_1d(2));
        add_inout(&k, shape_1d(2));
        if (optimizer != EBB_OPT_SGD) { add_inout(&k, shape_1d(2)); }
        if (optimizer >= EBB_OPT_ADAM) { add_inout(&k, shape_1d(2)); }
        set(&k, 1, (float[]){1, -0.5f});
        k.state.learning_rate = 0.1f;
        for (int step = 0; step < 3; step++) {
            k.state.update = (uint64_t)step + 1;
            set(&k, 0, gradients[step]);
            run(&k, ebb__ref_update);
        }
        expect(&k, 1, weights[optimizer]);
        fini(&k);
    }
}

/* A row whose label's probability is 0 in float32 still has its loss; a label out of range is an error. */
static void losses(void **state) {
    (void)state;
    kernel k = make(EBB_OP_SOFTMAX_LOSS, (ebb_op_attr){0});
    add_in(&k, shape_2d(3, 3)), add_in(&k, shape_1d(3));
    add_out(&k, shape_1d(1)), add_out(&k, shape_2d(3, 3)), add_out(&k, shape_1d(1));
    k.operand[1].dtype = EBB_S32;
    set(&k, 0, (float[]){1, 2, -1, 0.5f, 0.5f, 3, 100, -100, 0});
    memcpy(k.data[1], (int32_t[]){1, 0, 1}, 3 * sizeof(int32_t));
    run(&k, ebb__ref_softmax_loss);
    expect(&k, 2, (float[]){67.667007f});
    expect(&k, 4, (float[]){1});
    for (int i = 0; i < 2; i++) {
        ((int32_t *)k.data[1])[2] = i == 0 ? 3 : -1;
        const ebb_ref_call call = {.desc = &k.desc, .operand = k.data, .state = &k.state};
        assert_int_equal(ebb__ref_softmax_loss(&call), EBB_E_ARGUMENT);
        assert_non_null(strstr(ebb_last_error(), i == 0 ? "label 3 of image 2" : "label -1 of image 2"));
    }
    fini(&k);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(lrn_windows), cmocka_unit_test(pool_borders), cmocka_unit_test(batch_norm_variances),
        cmocka_unit_test(optimisers),  cmocka_unit_test(losses),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
