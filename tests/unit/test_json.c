/* SPDX-License-Identifier: Apache-2.0
 *
 * Writing JSON: commas, escapes and numbers, byte for byte.
 */
#include "ebb/json.h"

#include "support.h"

#include <math.h>

typedef struct sink {
    char text[1024];
    size_t n;
} sink;

static void put(void *ctx, const char *text, size_t n_bytes) {
    sink *s = ctx;
    assert_true(s->n + n_bytes < sizeof s->text);
    memcpy(s->text + s->n, text, n_bytes);
    s->n += n_bytes;
    s->text[s->n] = '\0';
}

static void test_members(void **state) {
    (void)state;
    for (int is_for_page = 0; is_for_page < 2; is_for_page++) {
        sink s = {.n = 0};
        ebb_json json = {.put = put, .ctx = &s, .is_for_page = is_for_page};
        ebb_json_open(&json, NULL, '{');
        ebb_json_open(&json, "none", '[');
        ebb_json_close(&json, ']');
        ebb_json_open(&json, "list", '[');
        ebb_json_u64(&json, NULL, 0);
        ebb_json_u64(&json, NULL, UINT64_MAX);
        ebb_json_open(&json, NULL, '{');
        ebb_json_bool(&json, "yes", true);
        ebb_json_bool(&json, "no", false);
        ebb_json_close(&json, '}');
        ebb_json_close(&json, ']');
        ebb_json_null(&json, "null");
        ebb_json_text(&json, "text", NULL);
        ebb_json_close(&json, '}');
        assert_string_equal(s.text, is_for_page
                                        ? "{\"none\": [], \"list\": [0,18446744073709551615,{\"yes\": true, \"no\": "
                                          "false}], \"null\": null, \"text\": null}"
                                        : "{\"none\": [], \"list\": [0, 18446744073709551615, {\"yes\": true, \"no\": "
                                          "false}], \"null\": null, \"text\": null}");
    }
}

/* Down to a depth each member is on a line of its own. */
static void test_lines(void **state) {
    (void)state;
    sink s = {.n = 0};
    ebb_json json = {.put = put, .ctx = &s, .line_depth = 2};
    ebb_json_open(&json, NULL, '{');
    ebb_json_open(&json, "none", '[');
    ebb_json_close(&json, ']');
    ebb_json_open(&json, "list", '[');
    ebb_json_u64(&json, NULL, 0);
    ebb_json_open(&json, NULL, '{');
    ebb_json_bool(&json, "a", true);
    ebb_json_bool(&json, "b", false);
    ebb_json_close(&json, '}');
    ebb_json_close(&json, ']');
    ebb_json_close(&json, '}');
    assert_string_equal(s.text, "{\n  \"none\": [],\n  \"list\": [\n    0,\n    {\"a\": true, \"b\": false}\n  ]\n}");
}

/* Quotes, control characters, what would end a script, and bytes that are not UTF-8. */
static void test_text(void **state) {
    (void)state;
    static const struct {
        const char *text, *plain, *for_page;
    } cases[] = {
        {"", "\"\"", "\"\""},
        {"a\"b\\", "\"a\\\"b\\\\\"", "\"a\\\"b\\\\\""},
        {"\n\x1f", "\"\\u000a\\u001f\"", "\"\\u000a\\u001f\""},
        {"</script>&'", "\"</script>&'\"", "\"\\u003c/script\\u003e\\u0026\\u0027\""},
        {"\xc3\xa4\xe2\x82\xac", "\"\xc3\xa4\xe2\x82\xac\"", "\"\xc3\xa4\xe2\x82\xac\""},
        {"\xe2\x80\xa8", "\"\xe2\x80\xa8\"", "\"\\u2028\""},
        {"a\xff\xe2\x82", "\"a\\ufffd\\ufffd\\ufffd\"", "\"a\\ufffd\\ufffd\\ufffd\""},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        sink plain = {.n = 0}, for_page = {.n = 0};
        ebb_json json = {.put = put, .ctx = &plain}, page = {.put = put, .ctx = &for_page, .is_for_page = true};
        ebb_json_text(&json, NULL, cases[i].text);
        ebb_json_text(&page, NULL, cases[i].text);
        assert_string_equal(plain.text, cases[i].plain);
        assert_string_equal(for_page.text, cases[i].for_page);
    }
}

static void test_numbers(void **state) {
    (void)state;
    static const struct {
        double value;
        int n_digits;
        const char *text;
    } cases[] = {
        {0.5, EBB_JSON_F64_DIGITS, "0.5"},          {0.1, EBB_JSON_F64_DIGITS, "0.1"},
        {0.1f, EBB_JSON_F32_DIGITS, "0.100000001"}, {1.0 / 3.0, EBB_JSON_F64_DIGITS, "0.33333333333333331"},
        {-1e300, EBB_JSON_F64_DIGITS, "-1e+300"},   {1.0 / 3.0, 7, "0.3333333"},
        {NAN, EBB_JSON_F64_DIGITS, "null"},         {-INFINITY, EBB_JSON_F64_DIGITS, "null"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        sink s = {.n = 0};
        ebb_json json = {.put = put, .ctx = &s};
        ebb_json_f64(&json, NULL, cases[i].value, cases[i].n_digits);
        assert_string_equal(s.text, cases[i].text);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_members),
        cmocka_unit_test(test_lines),
        cmocka_unit_test(test_text),
        cmocka_unit_test(test_numbers),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
