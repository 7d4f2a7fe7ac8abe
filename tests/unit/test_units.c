/* SPDX-License-Identifier: Apache-2.0
 *
 * Bytes as people write and read them: what is rounded up for the command line reads back as no less, and as little
 * more; and in a program that has set a locale with another decimal point, numbers are read and written as ever.
 */
#include "support.h"

#include <locale.h>
#include <sys/stat.h>

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

static void test_parse_f64(void **state) {
    (void)state;
    static const struct {
        const char *text;
        double number;
        size_t n_read;
    } cases[] = {{"1.5", 1.5, 3}, {"1.5GiB", 1.5, 3}, {"-2.25e2,", -225, 7}, {".5", 0.5, 2},
                 {"7", 7, 1},     {"2eB", 2, 1},      {"1.5.5", 1.5, 3},     {"1,5", 1, 1},
                 {"nan", 0, 0},   {"", 0, 0},         {"0x10", 0, 1}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        const char *end = NULL;
        assert_true(ebb__parse_f64(cases[i].text, &end) == cases[i].number);
        assert_int_equal(end - cases[i].text, cases[i].n_read);
    }
    char text[EBB_F64_BYTES];
    assert_string_equal(ebb__format_f64(0.1, 9, text), "0.1");
    assert_string_equal(ebb__format_f64(-1.25e-30, 9, text), "-1.25e-30");
    assert_string_equal(ebb__format_f64(12, 9, text), "12");
    assert_string_equal(ebb_bytes_format(1536, text, sizeof text), "1.50 KiB");
}

/* A locale whose point is a comma, made here; false: this machine cannot. */
static bool set_comma(void) {
    static const char source[] = "comment_char %\nescape_char /\nLC_NUMERIC\ndecimal_point \"<U002C>\"\n"
                                 "thousands_sep \"\"\ngrouping -1\nEND LC_NUMERIC\n";
    char folder[] = "/tmp/ebb-locale-XXXXXX", command[256];
    if (mkdtemp(folder) == NULL) { return false; }
    (void)snprintf(command, sizeof command, "%s/source", folder);
    FILE *file = fopen(command, "we");
    bool is_set = file != NULL && fputs(source, file) >= 0;
    if (file != NULL) { is_set = fclose(file) == 0 && is_set; }
    (void)snprintf(command, sizeof command, "localedef -c -i %s/source %s/xx_XX >/dev/null 2>&1", folder, folder);
    (void)(is_set && system(command) == 0); /* NOLINT: it warns of what else a locale has */
    is_set = is_set && setenv("LOCPATH", folder, 1) == 0 && setlocale(LC_NUMERIC, "xx_XX") != NULL;
    (void)snprintf(command, sizeof command, "rm -r %s", folder);
    return system(command) == 0 && is_set;
}

static void test_comma_locale(void **state) {
    char text[EBB_F64_BYTES];
    if (!set_comma()) { skip(); }
    (void)snprintf(text, sizeof text, "%.1f", 1.5);
    assert_string_equal(text, "1,5");
    test_parse_f64(state);
    test_round_up_texts(state);
    test_round_up_is_no_less(state);
    assert_non_null(setlocale(LC_NUMERIC, "C"));
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_round_up_texts),
                                       cmocka_unit_test(test_round_up_is_no_less), cmocka_unit_test(test_parse_f64),
                                       cmocka_unit_test(test_comma_locale)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
