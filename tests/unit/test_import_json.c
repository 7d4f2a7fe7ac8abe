/* SPDX-License-Identifier: Apache-2.0
 *
 * JSON element by element: what is given, in which pieces it comes, what is refused and on which line, memory that
 * fails.
 */
#include "support.h"
#include "trace/import_priv.h"

#include <math.h>

typedef struct seen {
    char text[4096]; /* each value as it would be written, blanks out */
    size_t n;
    size_t fail_at; /* the element that is not liked; 0: none */
    size_t n_elements;
} seen;

static void put(seen *s, const char *text) {
    const int n = snprintf(s->text + s->n, sizeof s->text - s->n, "%s", text);
    assert_true(n >= 0 && (size_t)n < sizeof s->text - s->n);
    s->n += (size_t)n;
}

static void put_value(seen *s, const ebb_json_value *json, uint32_t at) {
    const ebb_json_token *token = &json->tokens[at];
    const bool is_text = token->kind == EBB_JSON_STRING || token->kind == EBB_JSON_KEY;
    if (token->kind == EBB_JSON_NULL) { put(s, "null"); }
    if (is_text) { put(s, "'"); }
    put(s, ebb__json_value_text(json, at));
    if (is_text) { put(s, "'"); }
    if (token->kind != EBB_JSON_ARRAY && token->kind != EBB_JSON_OBJECT) { return; }
    put(s, token->kind == EBB_JSON_ARRAY ? "[" : "{");
    for (uint32_t i = at + 1; i < token->next; i = json->tokens[i].next) {
        put_value(s, json, i);
        put(s, " ");
    }
    put(s, token->kind == EBB_JSON_ARRAY ? "]" : "}");
}

static ebb_status on_element(void *ctx, const ebb_json_value *json) {
    seen *s = ctx;
    if (++s->n_elements == s->fail_at) { return ebb__json_value_fail(json, "not liked"); }
    put_value(s, json, 0);
    put(s, ";");
    return EBB_OK;
}

static bool wants(void *ctx, const char *key) {
    (void)ctx;
    return key[0] == 'w';
}

static ebb_status on_member(void *ctx, const char *key, const ebb_json_value *json) {
    seen *s = ctx;
    put(s, key);
    put(s, "=");
    put_value(s, json, 0);
    put(s, ";");
    return EBB_OK;
}

/* Read text; from_head bytes of it come first, the others after. */
static ebb_status read_text(const ebb_mem *mem, const char *text, size_t n, size_t from_head, seen *s, bool *cut_out) {
    ebb_stream stream = ebb__stream_memory("f", text + from_head, n - from_head);
    const ebb_trace_import_options options = EBB_TRACE_IMPORT_OPTIONS_INIT;
    ebb_importer importer = {.mem = ebb__mem_or_default(mem), .path = "f", .stream = &stream, .n_head = from_head};
    importer.options = &options;
    uint8_t head[256];
    assert_true(from_head <= sizeof head);
    memcpy(head, text, from_head);
    importer.head = head;
    const ebb_json_handler handler = {"list", true, on_element, wants, on_member, s};
    const ebb_status st = ebb__import_json_read(&importer, &handler);
    *cut_out = importer.cut;
    return st;
}

static const char text[] =
    " {\"a\": [1, {\"list\": 2}], \"w\": {\"x\": [null]},\n \"list\": [1, \"t\\u00e9\\n\", [], {\"k\": {}, "
    "\"k\": [true, -1.5e3]}],\n\"wz\": false}\n";
static const char given[] = "w={'x' [null ] };1;'t\xc3\xa9\n';[];{'k' {} 'k' [true -1.5e3 ] };wz=false;";

static void test_pieces(void **state) {
    (void)state;
    for (size_t from_head = 0; from_head < sizeof text - 1; from_head++) {
        seen s = {.n = 0};
        bool cut = true;
        assert_int_equal(read_text(NULL, text, sizeof text - 1, from_head, &s, &cut), EBB_OK);
        assert_string_equal(s.text, given);
        assert_false(cut);
    }
    seen s = {.n = 0};
    bool cut = true;
    assert_int_equal(read_text(NULL, "[[1],2]", 7, 3, &s, &cut), EBB_OK);
    assert_string_equal(s.text, "[1 ];2;");
}

/* Cut anywhere, what was whole is there. */
static void test_cut(void **state) {
    (void)state;
    for (size_t n = 2; n + 3 < sizeof text; n++) {
        seen s = {.n = 0};
        bool cut = false;
        assert_int_equal(read_text(NULL, text, n, 0, &s, &cut), EBB_OK);
        assert_true(cut);
        assert_memory_equal(s.text, given, s.n);
    }
}

static void test_refused(void **state) {
    (void)state;
    static const struct {
        const char *text, *says;
    } cases[] = {
        {"", "f:1: no JSON"},
        {"{\"list\":\n[1,\n2,,3]}", "f:3: parse error"},
        {"{\"list\":[NaN]}", "f:1: lexical error"},
        {"\n\n7 ", "f:3: neither an object nor an array"},
        {"{\"list\": {}}", "its list is no array"},
        {"{\"list\": 1}", "its list is no array"},
        {"{\"list\": [],\n\"list\": []}", "f:2: its list is there twice"},
        {"{\"other\": []}", "there is no member list"},
        {"[1]\n]", "f:2: parse error: trailing garbage"},
        {"[\"\\x\"]", "f:1: lexical error"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        seen s = {.n = 0};
        bool cut = false;
        assert_int_equal(read_text(NULL, cases[i].text, strlen(cases[i].text), 0, &s, &cut), EBB_E_FORMAT);
        expect_message(cases[i].says);
    }
    seen s = {.fail_at = 2};
    bool cut = false;
    assert_int_equal(read_text(NULL, "[1,\n2]", 6, 0, &s, &cut), EBB_E_FORMAT);
    expect_message("f:2: not liked");
}

static void test_depth(void **state) {
    (void)state;
    for (size_t depth = 512; depth <= 513; depth++) {
        seen s = {.n = 0};
        bool cut = false;
        char deep[1100];
        memset(deep, '[', depth);
        memset(deep + depth, ']', depth);
        const ebb_status st = read_text(NULL, deep, 2 * depth, 0, &s, &cut);
        assert_int_equal(st, depth == 512 ? EBB_OK : EBB_E_FORMAT);
        if (st != EBB_OK) { expect_message("deeper than 512"); }
    }
}

/* A text that does not end. */
static void test_long_text(void **state) {
    (void)state;
    const size_t n = (size_t)65 << 20;
    char *endless = malloc(n);
    assert_non_null(endless);
    memset(endless, 'x', n);
    memcpy(endless, "[\"", 2);
    seen s = {.n = 0};
    bool cut = false;
    assert_int_equal(read_text(NULL, endless, n, 0, &s, &cut), EBB_E_LIMIT);
    expect_message("more than 64 MiB");
    free(endless);
}

static void test_numbers(void **state) {
    (void)state;
    static const struct {
        const char *text;
        bool is_right;
        uint64_t thousandths;
    } cases[] = {
        {"0", true, 0},
        {"12.3456", true, 12345},
        {"4433895006140.887", true, 4433895006140887},
        {"1700000000000000.5", true, 1700000000000000500},
        {"1.5e3", true, 1500000},
        {"18446744073709551", true, 18446744073709551000u},
        {"18446744073709552", false, 0},
        {"-1", false, 0},
        {"1e300", false, 0},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        const ebb_json_token token = {EBB_JSON_NUMBER, 0, 1};
        const ebb_json_value json = {&token, cases[i].text, NULL};
        uint64_t number = 0;
        assert_int_equal(ebb__json_value_thousandths(&json, 0, &number), cases[i].is_right);
        assert_true(number == cases[i].thousandths);
    }
}

static void test_doubles(void **state) {
    (void)state;
    char digits[160];
    memset(digits, '1', sizeof digits);
    digits[127] = '\0';
    const struct {
        const char *text;
        double number;
    } cases[] = {{"0", 0}, {"-1.5e3", -1500}, {"0.1", 0.1}, {"1e400", INFINITY}, {"12e-1", 1.2}, {digits, 1e127 / 9}};
    const ebb_json_token token = {EBB_JSON_NUMBER, 0, 1};
    double number = 7;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        const ebb_json_value json = {&token, cases[i].text, NULL};
        assert_true(ebb__json_value_f64(&json, 0, &number));
        if (number != cases[i].number) { fail_msg("%s: %.17g", cases[i].text, number); }
    }
    digits[127] = '1';
    digits[128] = '\0';
    const ebb_json_value longer = {&token, digits, NULL};
    assert_false(ebb__json_value_f64(&longer, 0, &number));
}

static void test_out_of_memory(void **state) {
    (void)state;
    OOM_LOOP(mem, st, {
        seen s = {.n = 0};
        bool cut = false;
        st = read_text(mem, text, sizeof text - 1, 100, &s, &cut);
    });
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_pieces),  cmocka_unit_test(test_cut),           cmocka_unit_test(test_refused),
        cmocka_unit_test(test_depth),   cmocka_unit_test(test_long_text),     cmocka_unit_test(test_numbers),
        cmocka_unit_test(test_doubles), cmocka_unit_test(test_out_of_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
