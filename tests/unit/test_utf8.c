/* SPDX-License-Identifier: Apache-2.0
 *
 * Each code point is a character in its shortest form, and nothing else is.
 */
#include "support.h"

/* The form of a code point with n bytes, right or too long. */
static void encode(uint32_t code, size_t n, uint8_t *c) {
    static const uint8_t first[] = {0, 0, 0xc0, 0xe0, 0xf0};
    for (size_t i = n; i-- > 1;) {
        c[i] = (uint8_t)(0x80 | (code & 0x3f));
        code >>= 6;
    }
    c[0] = (uint8_t)(first[n] | code);
}

static void test_all_characters(void **state) {
    (void)state;
    for (uint32_t code = 0; code < 0x200000; code++) {
        const size_t n_right = code < 0x80 ? 1 : code < 0x800 ? 2 : code < 0x10000 ? 3 : 4;
        const bool is_character = code < 0x110000 && (code < 0xd800 || code >= 0xe000);
        for (size_t n = n_right; n <= 4; n++) {
            uint8_t c[4];
            encode(code, n, c);
            const size_t expected = is_character && n == n_right ? n : 0;
            if (ebb__utf8_character(c, n) != expected || ebb__utf8_character(c, n - 1) != 0) {
                fail_msg("code %x in %d bytes", code, (int)n);
            }
        }
    }
}

static void test_sound_bytes(void **state) {
    (void)state;
    assert_int_equal(ebb__utf8_sound_bytes("", 0), 0);
    assert_int_equal(ebb__utf8_sound_bytes("a\xe2\x82\xac", 4), 4);
    assert_int_equal(ebb__utf8_sound_bytes("a\xe2\x82\xac", 3), 1);
    assert_int_equal(ebb__utf8_sound_bytes("a\0b", 3), 1);
    assert_int_equal(ebb__utf8_sound_bytes("a\xffz", 3), 1);
    assert_int_equal(ebb__utf8_sound_bytes("\x80", 1), 0);
}

static void test_no_character(void **state) {
    (void)state;
    assert_int_equal(ebb__utf8_character("\x80", 1), 0);
    assert_int_equal(ebb__utf8_character("\xff\xff\xff\xff", 4), 0);
    assert_int_equal(ebb__utf8_character("\xc3\x28", 2), 0);
    assert_int_equal(ebb__utf8_character("\xe2\x82\x28", 3), 0);
    assert_int_equal(ebb__utf8_character("\xe2\x82\xac and more", 12), 3);
}

static void test_line(void **state) {
    (void)state;
    char text[] = "a\tb\r\nc \x1b[31m\x7f \xc2\x9b"
                  "31m \xff\xe2\x82\xac \xc3\xa9 \xe2\x82";
    ebb__utf8_make_line(text);
    assert_string_equal(text, "a b  c ?[31m? ?"
                              "?31m ?\xe2\x82\xac \xc3\xa9 ??");
    (void)ebb_fail(EBB_E_FORMAT, "line 3: %s", "\x1b[31m\xff");
    assert_string_equal(ebb_last_error(), "line 3: ?[31m?");
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_all_characters), cmocka_unit_test(test_sound_bytes),
                                       cmocka_unit_test(test_no_character), cmocka_unit_test(test_line)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
