/* SPDX-License-Identifier: Apache-2.0
 *
 * The table of element types: sizes, names, and conversions against a search for the nearest value.
 */
#include "base/base.h"
#include "ebb/dtype.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

static void types_have_names_and_sizes(void **state) {
    (void)state;
    static const char *const names[] = {"f32", "bf16", "f16", "s32", "u8"};
    static const uint64_t bytes[] = {4, 2, 2, 4, 1};
    assert_int_equal(sizeof names / sizeof names[0], EBB_N_DTYPES);
    for (int t = 0; t < EBB_N_DTYPES; t++) {
        assert_string_equal(ebb_dtype_name((ebb_dtype)t), names[t]);
        assert_int_equal(ebb_dtype_bytes((ebb_dtype)t), bytes[t]);
    }
}

/* A caller's number may be anything. */
static void a_number_that_is_no_type_does_no_harm(void **state) {
    (void)state;
    static const int numbers[] = {EBB_N_DTYPES, EBB_N_DTYPES + 1, 99, -1};
    for (size_t i = 0; i < sizeof numbers / sizeof numbers[0]; i++) {
        const ebb_dtype type = (ebb_dtype)numbers[i];
        float value = 1.5f;
        uint32_t bits = 7;
        assert_null(ebb_dtype_name(type));
        assert_int_equal(ebb_dtype_bytes(type), 0);
        ebb_dtype_to_float(type, &bits, 1, &value);
        ebb_dtype_from_float(type, &value, 1, &bits);
        assert_true(value == 1.5f && bits == 7);
    }
}

static float load(ebb_dtype type, uint16_t bits) {
    float value = 0;
    ebb_dtype_to_float(type, &bits, 1, &value);
    return value;
}

static uint16_t store(ebb_dtype type, float value) {
    uint16_t bits = 0;
    ebb_dtype_from_float(type, &value, 1, &bits);
    return bits;
}

/* Every value of two bytes is its own nearest one, and a NaN stays one. */
static void short_floats_come_back(void **state) {
    (void)state;
    for (int t = EBB_BF16; t <= EBB_F16; t++) {
        for (uint32_t bits = 0; bits <= UINT16_MAX; bits++) {
            const float value = load((ebb_dtype)t, (uint16_t)bits);
            const uint16_t back = store((ebb_dtype)t, value);
            if (isnan(value)) {
                assert_true(isnan(load((ebb_dtype)t, back)) && (back & 0x8000u) == (bits & 0x8000u));
            } else {
                assert_int_equal(back, bits);
            }
        }
    }
    assert_true(load(EBB_F16, 1) == 0x1p-24f && load(EBB_F16, 0x3c00) == 1.0f && load(EBB_F16, 0x7bff) == 65504.0f);
    assert_true(load(EBB_BF16, 0x3f80) == 1.0f && load(EBB_BF16, 0xff80) == -INFINITY);
}

/* Between neighbours the nearer one, in the middle the even one; after the largest, infinity. */
static void short_floats_are_rounded_to_the_nearest(void **state) {
    (void)state;
    static const uint16_t infinity[] = {[EBB_BF16] = 0x7f80, [EBB_F16] = 0x7c00};
    for (int t = EBB_BF16; t <= EBB_F16; t++) {
        const ebb_dtype type = (ebb_dtype)t;
        for (uint16_t bits = 0; bits + 1 < infinity[t]; bits++) {
            const double low = (double)load(type, bits), high = (double)load(type, (uint16_t)(bits + 1));
            const float middle = (float)((low + high) / 2);
            const uint16_t even = bits % 2 == 0 ? bits : (uint16_t)(bits + 1);
            assert_int_equal(store(type, middle), even);
            assert_int_equal(store(type, -middle), even | 0x8000u);
            assert_int_equal(store(type, nextafterf(middle, 0)), bits);
            assert_int_equal(store(type, nextafterf(middle, INFINITY)), bits + 1);
        }
        assert_int_equal(store(type, INFINITY), infinity[t]);
    }
    assert_int_equal(store(EBB_F16, 65519.996f), 0x7bff);
    assert_int_equal(store(EBB_F16, 65520.0f), 0x7c00);
    assert_int_equal(store(EBB_F16, 1e30f), 0x7c00);
    assert_int_equal(store(EBB_F16, -0x1p-30f), 0x8000);
    assert_int_equal(store(EBB_BF16, 0x1.fffffep127f), 0x7f80);
}

static void whole_numbers_stay_in_range(void **state) {
    (void)state;
    const float values[] = {0.0f, -1.0f, 0.5f, 1.5f, 2.5f, 254.6f, 1e10f, -1e10f, NAN, INFINITY};
    const int32_t wide[] = {0, -1, 0, 2, 2, 255, INT32_MAX, INT32_MIN, 0, INT32_MAX};
    const uint8_t narrow[] = {0, 0, 0, 2, 2, 255, 255, 0, 0, 255};
    const size_t n = sizeof values / sizeof values[0];
    int32_t wide_out[10];
    uint8_t narrow_out[10];
    float back[10];
    ebb_dtype_from_float(EBB_S32, values, n, wide_out);
    ebb_dtype_from_float(EBB_U8, values, n, narrow_out);
    for (size_t i = 0; i < n; i++) {
        assert_int_equal(wide_out[i], wide[i]);
        assert_int_equal(narrow_out[i], narrow[i]);
    }
    ebb_dtype_to_float(EBB_U8, narrow, n, back);
    assert_true(back[5] == 255.0f);
    ebb_dtype_to_float(EBB_S32, wide, n, back);
    assert_true(back[1] == -1.0f);
    ebb_dtype_from_float(EBB_F32, values, n, back);
    assert_memory_equal(back, values, sizeof values);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(types_have_names_and_sizes),  cmocka_unit_test(a_number_that_is_no_type_does_no_harm),
        cmocka_unit_test(short_floats_come_back),      cmocka_unit_test(short_floats_are_rounded_to_the_nearest),
        cmocka_unit_test(whole_numbers_stay_in_range),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
