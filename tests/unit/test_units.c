/* SPDX-License-Identifier: Apache-2.0
 *
 * Bytes as people write and read them: what is rounded up for the command line reads back as no less, and as little
 * more.
 */
#include "support.h"

static void test_round_up_texts(void **state) {
    (void)state;
    static const struct {
        uint64_t bytes;
        const char *text;
    } cases[] = {{0, "0"},
                 {1, "1"},
                 {999, "999"},
                 {1000, "0.98KiB"},
                 {1024, "1KiB"},
                 {1025, "1.01KiB"},
                 {16u << 20, "16MiB"},
                 {(16u << 20) + 1, "16.1MiB"},
                 {30722048, "29.3MiB"},
                 {185618688, "178MiB"},
                 {(uint64_t)3 << 29, "1.5GiB"},
                 {(uint64_t)5 << 50, "5120TiB"}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char buf[24];
        assert_ptr_equal(ebb_bytes_round_up(cases[i].bytes, buf, sizeof buf), buf);
        assert_string_equal(buf, cases[i].text);
    }
}

static void test_round_up_is_no_less(void **state) {
    (void)state;
    ebb_rng rng;
    ebb__rng_init(&rng, 1, 1);
    for (int i = 0; i < 200000; i++) {
        const uint64_t bytes = ebb__rng_below(&rng, UINT64_C(1) << ebb__rng_below(&rng, 63));
        char buf[24];
        uint64_t back = 0;
        assert_int_equal(ebb_bytes_parse(ebb_bytes_round_up(bytes, buf, sizeof buf), &back), EBB_OK);
        if (back < bytes) { fail_msg("%llu is rounded up to %s", (unsigned long long)bytes, buf); }
        assert_true(back - bytes <= bytes / 64);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_round_up_texts),
                                       cmocka_unit_test(test_round_up_is_no_less)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
