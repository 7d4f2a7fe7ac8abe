/* SPDX-License-Identifier: Apache-2.0
 *
 * Descriptions that are one step away from a right one, for each family of operators: each must be refused with
 * the operator's name. (That right ones pass is what the conformance suite shows.)
 */
#include "backend/kernel_check.h"

#include <setjmp.h>
#include <stdarg.h>
#include <cmocka.h>

#define IMAGE(n, c, h, w)                                                                                              \
    {                                                                                                                  \
        .shape = {.n_dims = 4, .dims = {n, c, h, w} }                                                                  \
    }
#define MATRIX(n, c)                                                                                                   \
    {                                                                                                                  \
        .shape = {.n_dims = 2, .dims = {n, c} }                                                                        \
    }
#define VECTOR(n)                                                                                                      \
    {                                                                                                                  \
        .shape = {.n_dims = 1, .dims = {n} }                                                                           \
    }
#define LABELS(n)                                                                                                      \
    { .shape = {.n_dims = 1, .dims = {n}}, .dtype = EBB_S32 }
#define OPAQUE(n, c, h, w)                                                                                             \
    { .shape = {.n_dims = 4, .dims = {n, c, h, w}}, .dtype = EBB_U8, .opaque = true }
#define POOL_2X2 .kernel = {2, 2}, .stride = {2, 2}, .dilation = {1, 1}

typedef struct row {
    bool ok;
    ebb_op_kind kind;
    ebb_op_attr attr;
    uint32_t n_in, n_out, n_inout;
    ebb_operand operand[8];
} row;

/* Each right one is followed by its wrong neighbours. */
static const row rows[] = {
    {true, EBB_OP_LINEAR, {.groups = 0}, 2, 1, 0, {IMAGE(2, 3, 2, 2), MATRIX(5, 12), MATRIX(2, 5)}},
    {false, EBB_OP_LINEAR, {.groups = 0}, 2, 1, 0, {IMAGE(2, 3, 2, 2), MATRIX(5, 11), MATRIX(2, 5)}},
    {false, EBB_OP_LINEAR, {.groups = 0}, 2, 1, 0, {IMAGE(2, 3, 2, 2), MATRIX(5, 12), MATRIX(3, 5)}},
    {false, EBB_OP_LINEAR, {.groups = 0}, 3, 1, 0, {IMAGE(2, 3, 2, 2), MATRIX(5, 12), VECTOR(4), MATRIX(2, 5)}},
    {true,
     EBB_OP_BATCH_NORM,
     {.groups = 0},
     3,
     3,
     0,
     {IMAGE(2, 3, 2, 2), VECTOR(3), VECTOR(3), IMAGE(2, 3, 2, 2), VECTOR(3), VECTOR(3)}},
    {false,
     EBB_OP_BATCH_NORM,
     {.groups = 0},
     3,
     3,
     0,
     {IMAGE(2, 3, 2, 2), VECTOR(3), VECTOR(2), IMAGE(2, 3, 2, 2), VECTOR(3), VECTOR(3)}},
    {false,
     EBB_OP_BATCH_NORM,
     {.groups = 0},
     3,
     4,
     0, /* a mask without a ReLU */
     {IMAGE(2, 3, 2, 2), VECTOR(3), VECTOR(3), IMAGE(2, 3, 2, 2), VECTOR(3), VECTOR(3), OPAQUE(2, 3, 2, 2)}},
    {false,
     EBB_OP_BATCH_NORM_BWD,
     {.relu = 1},
     5,
     3,
     0, /* a ReLU without its mask */
     {IMAGE(2, 3, 2, 2), IMAGE(2, 3, 2, 2), VECTOR(3), VECTOR(3), VECTOR(3), IMAGE(2, 3, 2, 2), VECTOR(3), VECTOR(3)}},
    {true, EBB_OP_MAX_POOL, {POOL_2X2}, 1, 1, 0, {IMAGE(1, 3, 4, 4), IMAGE(1, 3, 2, 2)}},
    {false, EBB_OP_MAX_POOL, {POOL_2X2}, 1, 1, 0, {IMAGE(1, 3, 4, 4), IMAGE(1, 4, 2, 2)}},
    {false, EBB_OP_MAX_POOL, {POOL_2X2, .pad_begin = {2, 2}}, 1, 1, 0, {IMAGE(1, 3, 4, 4), IMAGE(1, 3, 3, 3)}},
    {false, EBB_OP_MAX_POOL, {POOL_2X2, .pad_end = {2, 2}}, 1, 1, 0, {IMAGE(1, 3, 4, 4), IMAGE(1, 3, 3, 3)}},
    {true, EBB_OP_LRN, {.size = 3}, 1, 1, 0, {IMAGE(1, 3, 4, 4), IMAGE(1, 3, 4, 4)}},
    {false, EBB_OP_LRN, {.size = 0}, 1, 1, 0, {IMAGE(1, 3, 4, 4), IMAGE(1, 3, 4, 4)}},
    {true, EBB_OP_CONCAT, {.groups = 0}, 2, 1, 0, {IMAGE(1, 3, 4, 4), IMAGE(1, 2, 4, 4), IMAGE(1, 5, 4, 4)}},
    {false, EBB_OP_CONCAT, {.groups = 0}, 2, 1, 0, {IMAGE(1, 3, 4, 4), IMAGE(1, 3, 4, 4), IMAGE(1, 5, 4, 4)}},
    {false, EBB_OP_CONCAT, {.groups = 0}, 2, 1, 0, {IMAGE(1, 3, 4, 4), IMAGE(1, 2, 4, 3), IMAGE(1, 5, 4, 4)}},
    {true, EBB_OP_SLICE, {.offset = 2}, 1, 1, 0, {IMAGE(1, 5, 4, 4), IMAGE(1, 3, 4, 4)}},
    {false, EBB_OP_SLICE, {.offset = 3}, 1, 1, 0, {IMAGE(1, 5, 4, 4), IMAGE(1, 3, 4, 4)}},
    {false, EBB_OP_SLICE, {.offset = -1}, 1, 1, 0, {IMAGE(1, 5, 4, 4), IMAGE(1, 3, 4, 4)}},
    {true, EBB_OP_RESHAPE, {.groups = 0}, 1, 1, 0, {IMAGE(2, 5, 4, 1), MATRIX(2, 20)}},
    {false, EBB_OP_RESHAPE, {.groups = 0}, 1, 1, 0, {IMAGE(2, 5, 4, 1), MATRIX(2, 21)}},
    {true, EBB_OP_SOFTMAX_LOSS, {.groups = 0}, 2, 3, 0, {MATRIX(4, 3), LABELS(4), VECTOR(1), MATRIX(4, 3), VECTOR(1)}},
    {false, EBB_OP_SOFTMAX_LOSS, {.groups = 0}, 2, 3, 0, {MATRIX(4, 3), VECTOR(4), VECTOR(1), MATRIX(4, 3), VECTOR(1)}},
    {false, EBB_OP_SOFTMAX_LOSS, {.groups = 0}, 2, 3, 0, {MATRIX(4, 3), LABELS(3), VECTOR(1), MATRIX(4, 3), VECTOR(1)}},
    {false, EBB_OP_SOFTMAX_LOSS, {.groups = 0}, 2, 1, 0, {MATRIX(4, 3), LABELS(4), VECTOR(1)}},
    {true, EBB_OP_UPDATE, {.optimizer = EBB_OPT_ADAM}, 1, 0, 3, {VECTOR(4), VECTOR(4), VECTOR(4), VECTOR(4)}},
    {false, EBB_OP_UPDATE, {.optimizer = EBB_OPT_SGD}, 1, 0, 3, {VECTOR(4), VECTOR(4), VECTOR(4), VECTOR(4)}},
    {false, EBB_OP_UPDATE, {.optimizer = 5}, 1, 0, 1, {VECTOR(4), VECTOR(4)}},
    {false, EBB_OP_UPDATE, {.optimizer = EBB_OPT_SGD}, 1, 0, 1, {VECTOR(4), VECTOR(5)}},
    {true, EBB_OP_FEED, {.port = 1}, 0, 1, 0, {LABELS(4)}},
    {false, EBB_OP_FEED, {.port = -1}, 0, 1, 0, {LABELS(4)}},
    {true, EBB_OP_RELU, {.groups = 0}, 1, 1, 0, {VECTOR(4), VECTOR(4)}},
    {false, EBB_OP_RELU, {.groups = 0}, 1, 1, 0, {VECTOR(4), VECTOR(3)}},
    {false, EBB_OP_RELU, {.groups = 0}, 2, 1, 0, {VECTOR(4), VECTOR(4), VECTOR(4)}},
    {false, EBB_OP_RELU, {.groups = 0}, 1, 1, 0, {VECTOR(0), VECTOR(0)}},
};

static void neighbours_of_right_ones_are_refused(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        const row *r = &rows[i];
        const ebb_kernel_desc desc = {.kind = r->kind,
                                      .attr = r->attr,
                                      .n_in = r->n_in,
                                      .n_out = r->n_out,
                                      .n_inout = r->n_inout,
                                      .operand = r->operand};
        ebb_status status = ebb__kernel_check(&desc);
        if (status != (r->ok ? EBB_OK : EBB_E_ARGUMENT)) { fail_msg("row %zu: status %d", i, (int)status); }
        if (!r->ok) { assert_non_null(strstr(ebb_last_error(), ebb__op_name(r->kind))); }
    }
}

static void unknown_operators_are_refused(void **state) {
    (void)state;
    const ebb_kernel_desc desc = {.kind = EBB_N_OPS};
    assert_int_equal(ebb__kernel_check(&desc), EBB_E_ARGUMENT);
}

/* They can be moved in and out, and no more. */
static void elements_that_no_kernel_takes_are_refused(void **state) {
    (void)state;
    ebb_operand operands[2] = {VECTOR(4), VECTOR(4)};
    ebb_kernel_desc desc = {.kind = EBB_OP_RELU, .n_in = 1, .n_out = 1, .operand = operands};
    for (int type = 0; type < EBB_N_DTYPES; type++) {
        operands[1].dtype = (ebb_dtype)type;
        const bool is_short = type == EBB_BF16 || type == EBB_F16;
        assert_int_equal(ebb__kernel_check(&desc), is_short ? EBB_E_UNSUPPORTED : EBB_OK);
        if (is_short) { assert_non_null(strstr(ebb_last_error(), ebb_dtype_name((ebb_dtype)type))); }
        const ebb_kernel_desc feed = {.kind = EBB_OP_FEED, .n_out = 1, .operand = &operands[1]};
        assert_int_equal(ebb__kernel_check(&feed), EBB_OK);
    }
    operands[1].dtype = EBB_N_DTYPES;
    assert_int_equal(ebb__kernel_check(&desc), EBB_E_ARGUMENT);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(neighbours_of_right_ones_are_refused),
        cmocka_unit_test(unknown_operators_are_refused),
        cmocka_unit_test(elements_that_no_kernel_takes_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
