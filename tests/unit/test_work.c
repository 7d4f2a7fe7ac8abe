/* SPDX-License-Identifier: Apache-2.0
 *
 * Work on paper against counts made by hand, and the figures' relation to one another.
 */
#include "backend/kernel_check.h"
#include "backend/work.h"

#include <setjmp.h>
#include <stdarg.h>
#include <cmocka.h>

/* ResNet-50's first convolution, one image: 118,013,952 multiply-adds. */
static const ebb_operand src = {.shape = {.n_dims = 4, .dims = {1, 3, 224, 224}}};
static const ebb_operand weights = {.shape = {.n_dims = 4, .dims = {64, 3, 7, 7}}};
static const ebb_operand dst = {.shape = {.n_dims = 4, .dims = {1, 64, 112, 112}}};
static const ebb_op_attr attr = {
    .kernel = {7, 7}, .stride = {2, 2}, .pad_begin = {3, 3}, .pad_end = {3, 3}, .dilation = {1, 1}, .groups = 1};

static void convolution_is_counted_exactly(void **state) {
    (void)state;
    const ebb_operand forward[3] = {src, weights, dst}, data[3] = {dst, weights, src}, filter[3] = {src, dst, weights};
    const ebb_operand *operands[3] = {forward, data, filter};
    for (int i = 0; i < 3; i++) {
        const ebb_kernel_desc desc = {
            .kind = (ebb_op_kind)(EBB_OP_CONV + i), .attr = attr, .n_in = 2, .n_out = 1, .operand = operands[i]};
        assert_int_equal(ebb__kernel_check(&desc), EBB_OK);
        assert_true(ebb__work_flops(&desc) == 2.0 * 118013952.0);
    }
}

static void groups_share_the_work(void **state) {
    (void)state;
    const ebb_operand operand[3] = {{.shape = {.n_dims = 4, .dims = {2, 8, 5, 5}}},
                                    {.shape = {.n_dims = 4, .dims = {8, 1, 3, 3}}},
                                    {.shape = {.n_dims = 4, .dims = {2, 8, 3, 3}}}};
    const ebb_kernel_desc desc = {.kind = EBB_OP_CONV,
                                  .attr = {.kernel = {3, 3}, .stride = {1, 1}, .dilation = {1, 1}, .groups = 8},
                                  .n_in = 2,
                                  .n_out = 1,
                                  .operand = operand};
    assert_int_equal(ebb__kernel_check(&desc), EBB_OK);
    assert_true(ebb__work_flops(&desc) == 2.0 * 2 * 8 * 3 * 3 * 9);
}

static void traffic_counts_passes(void **state) {
    (void)state;
    const ebb_operand v = {.shape = {.n_dims = 1, .dims = {10}}};
    const ebb_operand operand[4] = {v, v, v, v};
    const uint64_t bytes[4] = {40, 40, 40, 40};
    const ebb_kernel_desc add = {.kind = EBB_OP_ADD, .n_in = 2, .n_out = 1, .operand = operand};
    const ebb_kernel_desc feed = {.kind = EBB_OP_FEED, .n_out = 1, .operand = operand};
    const ebb_kernel_desc update = {
        .kind = EBB_OP_UPDATE, .attr = {.optimizer = EBB_OPT_MOMENTUM}, .n_in = 1, .n_inout = 2, .operand = operand};
    assert_true(ebb__work_traffic_bytes(&add, bytes) == 120.0);
    assert_true(ebb__work_traffic_bytes(&feed, bytes) == 80.0);    /* the host's side is memory too */
    assert_true(ebb__work_traffic_bytes(&update, bytes) == 200.0); /* gradient, twice weights, twice velocity */
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(convolution_is_counted_exactly),
        cmocka_unit_test(groups_share_the_work),
        cmocka_unit_test(traffic_counts_passes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
