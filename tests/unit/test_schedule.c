/* SPDX-License-Identifier: Apache-2.0
 *
 * Learning rates at the places where a schedule turns; schedules by name.
 */
#include "train/trainer_priv.h"

#include "support.h"

#include <math.h>

static void expect_rate(const ebb_lr_schedule *s, uint64_t update, double want) {
    double got = (double)ebb__lr_at(s, 0.5f, update);
    if (fabs(got - want) > 1e-6) { fail_msg("update %lu: %g, not %g", (unsigned long)update, got, want); }
}

static void test_constant(void **state) {
    (void)state;
    ebb_lr_schedule s = {.kind = EBB_LR_CONSTANT, .warmup_updates = 4};
    expect_rate(&s, 1, 0.125);
    expect_rate(&s, 4, 0.5);
    expect_rate(&s, 5, 0.5);
    expect_rate(&s, 1000000, 0.5);
}

static void test_step(void **state) {
    (void)state;
    ebb_lr_schedule s = {.kind = EBB_LR_STEP, .step_updates = 10, .step_factor = 0.1f};
    expect_rate(&s, 10, 0.5);
    expect_rate(&s, 11, 0.05);
    expect_rate(&s, 21, 0.005);
    s.step_updates = 0;
    expect_rate(&s, 21, 0.5);
}

static void test_falling(void **state) {
    (void)state;
    ebb_lr_schedule s = {.kind = EBB_LR_COSINE, .warmup_updates = 2, .total_updates = 12, .final_factor = 0.1f};
    expect_rate(&s, 2, 0.5);
    expect_rate(&s, 3, 0.5);
    expect_rate(&s, 8, 0.5 * 0.55);
    expect_rate(&s, 13, 0.05);
    expect_rate(&s, 99, 0.05);
    s.kind = EBB_LR_LINEAR;
    expect_rate(&s, 3, 0.5);
    expect_rate(&s, 8, 0.5 * 0.55);
    expect_rate(&s, 13, 0.05);
    s.total_updates = 1; /* shorter than the warm-up */
    expect_rate(&s, 1, 0.25);
    expect_rate(&s, 9, 0.05);
}

static void test_names(void **state) {
    (void)state;
    ebb_lr_schedule s = {.warmup_updates = 7, .step_updates = 5};
    static const char *const texts[] = {"constant", "step:30", "cosine", "linear"};
    for (int k = 0; k < 4; k++) {
        assert_int_equal(ebb_lr_schedule_parse(texts[k], &s), EBB_OK);
        assert_int_equal(s.kind, k);
        assert_memory_equal(ebb__lr_schedule_name(s.kind), texts[k], strlen(ebb__lr_schedule_name(s.kind)));
    }
    assert_int_equal(s.warmup_updates * 100 + s.step_updates, 730);
    static const char *const bad[] = {"",        "step",    "step:",   "step:0",
                                      "step:-1", "step:3x", "cosines", "step:99999999999999999999"};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        assert_int_equal(ebb_lr_schedule_parse(bad[i], &s), EBB_E_ARGUMENT);
    }
    assert_int_equal(s.kind * 100 + s.step_updates, EBB_LR_LINEAR * 100 + 30);
    assert_null(ebb__lr_schedule_name((ebb_schedule_kind)4));
    assert_null(ebb__lr_schedule_name((ebb_schedule_kind)-1));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_constant),
        cmocka_unit_test(test_step),
        cmocka_unit_test(test_falling),
        cmocka_unit_test(test_names),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
