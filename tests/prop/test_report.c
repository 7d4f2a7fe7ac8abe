/* SPDX-License-Identifier: Apache-2.0
 *
 * Reports on random recordings, whose sources tell different things and whose names are hostile: the JSON has the fixed
 * members, with null for what is not told; its sums agree with the recording's; text and page have the same numbers; no
 * name gets out of its place.
 */
#include "base/json_read.h"
#include "ebb/report.h"
#include "report_support.h"

#include <inttypes.h>

#define N_SEEDS 24u

static written write_report(const char *path, const char *format) {
    written w = {.text = NULL};
    ebb_report *report = NULL;
    assert_int_equal(ebb_report_create(path, NULL, &report), EBB_OK);
    const ebb_status status = ebb_report_write(report, format, keep_written, &w);
    ebb_report_destroy(report);
    if (status == EBB_E_UNSUPPORTED) {
        expect_message("libjs-chart.js");
        return w;
    }
    if (status != EBB_OK) { fail_msg("%s: %s", format, ebb_last_error()); }
    return w;
}

/* ---- JSON ------------------------------------------------------------------------------------- */

#define MAX_PARTS 64u

/* The members of the outermost object. */
typedef struct document {
    const char *text;
    size_t n_left, n_parts;
    struct {
        char *key, *texts;
        ebb_json_token *tokens;
    } part[MAX_PARTS];
} document;

/* A value in one of them. */
typedef struct node {
    ebb_json_value json;
    uint32_t at;
} node;

static ebb_status read_piece(void *ctx, void *buf, size_t n, size_t *n_out) {
    document *d = ctx;
    *n_out = ebb_min_u64(n, d->n_left);
    memcpy(buf, d->text, *n_out);
    d->text += *n_out;
    d->n_left -= *n_out;
    return EBB_OK;
}

static bool wants_all(void *ctx, const char *key) {
    (void)ctx;
    (void)key;
    return true;
}

static void *copy_of(const void *data, size_t n_bytes) {
    void *copy = malloc(n_bytes);
    assert_non_null(copy);
    memcpy(copy, data, n_bytes);
    return copy;
}

static ebb_status keep_part(void *ctx, const char *key, const ebb_json_value *json) {
    document *d = ctx;
    const uint32_t n_tokens = json->tokens[0].next;
    const size_t last = json->tokens[n_tokens - 1].text; /* texts stand in the order of the tokens */
    assert_true(d->n_parts < MAX_PARTS);
    d->part[d->n_parts].key = copy_of(key, strlen(key) + 1);
    d->part[d->n_parts].tokens = copy_of(json->tokens, n_tokens * sizeof *json->tokens);
    d->part[d->n_parts].texts = copy_of(json->texts, last + strlen(json->texts + last) + 1);
    d->n_parts++;
    return EBB_OK;
}

static document read_document(const char *name, const char *text, size_t n_bytes) {
    document d = {.text = text, .n_left = n_bytes};
    ebb_json_source source = {.path = name, .read = read_piece, .ctx = &d, .is_strict = true};
    const ebb_json_handler handler = {.wants = wants_all, .member = keep_part, .ctx = &d};
    if (ebb__json_read(&source, &handler) != EBB_OK) { fail_msg("%s", ebb_last_error()); }
    return d;
}

static void free_document(document *d) {
    for (size_t i = 0; i < d->n_parts; i++) {
        free(d->part[i].key);
        free(d->part[i].tokens);
        free(d->part[i].texts);
    }
}

static node part_of(const document *d, const char *key) {
    for (size_t i = 0; i < d->n_parts; i++) {
        if (strcmp(d->part[i].key, key) == 0) { return (node){{d->part[i].tokens, d->part[i].texts, NULL}, 0}; }
    }
    fail_msg("there is no member %s", key);
    return (node){.at = EBB_JSON_NONE};
}

static node member(node object, const char *key) {
    object.at = ebb__json_value_member(&object.json, object.at, key);
    if (object.at == EBB_JSON_NONE) { fail_msg("there is no member %s", key); }
    return object;
}

static bool is(node value, ebb_json_kind kind) {
    return ebb__json_value_is(&value.json, value.at, kind);
}

/* 0 for what is no number. */
static uint64_t number_of(node value) {
    uint64_t number = 0;
    (void)ebb__json_value_u64(&value.json, value.at, &number);
    return number;
}

static const char *text_of(node value) {
    assert_true(is(value, EBB_JSON_STRING));
    return ebb__json_value_text(&value.json, value.at);
}

/* The next element of a list, or the first after at the list itself; false: none. */
static bool next_in(node list, node *element) {
    element->at = element->at == list.at ? list.at + 1 : list.json.tokens[element->at].next;
    return element->at < list.json.tokens[list.at].next;
}

static void expect_number_or_null(node object, const char *key, bool known) {
    if (!is(member(object, key), known ? EBB_JSON_NUMBER : EBB_JSON_NULL)) {
        fail_msg("%s is %sknown", key, known ? "" : "not ");
    }
}

static uint64_t sum_of_bytes(node shares) {
    uint64_t sum = 0;
    assert_true(is(shares, EBB_JSON_ARRAY));
    for (node share = shares; next_in(shares, &share);) {
        assert_true(is(member(share, "role"), EBB_JSON_STRING));
        sum += number_of(member(share, "bytes"));
    }
    return sum;
}

static void check_schema(const document *d, const recorder *r) {
    const bool times = (r->tells & EBB_TRACE_TELLS_TIMES) != 0, accesses = (r->tells & EBB_TRACE_TELLS_ACCESSES) != 0;
    const bool segments = (r->tells & EBB_TRACE_TELLS_SEGMENTS) != 0 && r->n_events > 0;
    assert_int_equal(number_of(part_of(d, "schema_version")), 1);
    assert_true(is(part_of(d, "source"), EBB_JSON_STRING));
    assert_int_equal(number_of(part_of(d, "events")), r->n_events);
    assert_int_equal(number_of(part_of(d, "blocks")), r->n_blocks);
    assert_int_equal(number_of(part_of(d, "peak_bytes")), r->peak_bytes);
    assert_int_equal(sum_of_bytes(part_of(d, "live_at_peak")), r->peak_bytes);
    assert_true(is(part_of(d, "duration_s"), times ? EBB_JSON_NUMBER : EBB_JSON_NULL));
    const bool has_peak_time = times && r->n_blocks > 0;
    assert_true(is(part_of(d, "peak_time_s"), has_peak_time ? EBB_JSON_NUMBER : EBB_JSON_NULL));
    const node iteration = part_of(d, "iteration");
    const node is_found = member(iteration, "found");
    assert_true(is(is_found, EBB_JSON_BOOL));
    const bool found = strcmp(ebb__json_value_text(&is_found.json, is_found.at), "true") == 0;
    const char *const of_iteration[] = {"first_event", "length_events", "count", "confidence"};
    for (size_t i = 0; i < 4; i++) { expect_number_or_null(iteration, of_iteration[i], found); }
    const node intervals = part_of(d, "intervals");
    expect_number_or_null(intervals, "count", times && accesses);
    const bool any = number_of(member(intervals, "count")) > 0;
    expect_number_or_null(intervals, "p50_s", any);
    expect_number_or_null(intervals, "p90_s", any);
    expect_number_or_null(intervals, "p99_s", any);
    const node swappable = part_of(d, "swappable"), fragmentation = part_of(d, "fragmentation");
    expect_number_or_null(swappable, "bytes", times && accesses);
    expect_number_or_null(swappable, "blocks", times && accesses);
    expect_number_or_null(fragmentation, "reserved_peak_bytes", segments);
    expect_number_or_null(fragmentation, "lost_bytes", segments);
    assert_true(is(part_of(d, "holders"), EBB_JSON_ARRAY));
    assert_true(is(part_of(d, "advice"), EBB_JSON_ARRAY));
}

/* ---- the others ------------------------------------------------------------------------------- */

/* A number of the JSON, when it is known, is in the text to the byte. */
static void expect_same(const written *text, const document *d, const char *part, const char *key) {
    const node value = member(part_of(d, part), key);
    char number[32];
    if (is(value, EBB_JSON_NULL)) { return; }
    (void)snprintf(number, sizeof number, " %" PRIu64 "\n", number_of(value));
    if (strstr(text->text, number) == NULL) { fail_msg("the text does not have %s.%s,%s", part, key, number); }
}

static void check_text(const written *text, const recorder *r, const document *d) {
    char number[32];
    (void)snprintf(number, sizeof number, "(%" PRIu64 " bytes)", r->peak_bytes);
    if (r->n_blocks > 0) { assert_non_null(strstr(text->text, number)); }
    expect_same(text, d, "swappable", "bytes");
    expect_same(text, d, "swappable", "blocks");
    expect_same(text, d, "swappable", "bytes_at_peak");
    expect_same(text, d, "fragmentation", "reserved_peak_bytes");
    expect_same(text, d, "fragmentation", "lost_bytes");
    expect_same(text, d, "iteration", "first_event");
    expect_same(text, d, "iteration", "length_events");
    expect_same(text, d, "iteration", "count");
    if (number_of(member(part_of(d, "intervals"), "count")) > 0) { expect_same(text, d, "intervals", "count"); }
    for (size_t i = 0; i < text->n; i++) {
        const unsigned char c = (unsigned char)text->text[i];
        assert_true(c == '\n' || c >= 0x20);
    }
    assert_null(strstr(text->text, "\xe2\x80\xae"));
    assert_null(strstr(text->text, "\xff"));
}

static size_t count_in(const char *text, const char *word) {
    size_t n = 0;
    for (const char *at = strstr(text, word); at != NULL; at = strstr(at + 1, word)) { n++; }
    return n;
}

static void check_page(const written *page) {
    if (page->n == 0) { return; } /* built without the library for its pictures */
    assert_int_equal(count_in(page->text, "</script>"), 3);
    assert_null(strstr(page->text, "<img"));
    assert_null(strstr(page->text, "@@STYLE"));
    assert_null(strstr(page->text, "\xff"));
    assert_true(page->n < 5000000);
    const char *data = strstr(page->text, "id=\"ebb-data\">");
    assert_non_null(data);
    data += strlen("id=\"ebb-data\">");
    document d = read_document("the page's data", data, (size_t)(strstr(data, "</script>") - data));
    free_document(&d);
}

static void check_perfetto(const written *events, const recorder *r) {
    document d = read_document("perfetto", events->text, events->n);
    const node list = part_of(&d, "traceEvents");
    assert_true(is(list, EBB_JSON_ARRAY));
    uint64_t peak = 0, n_begun = 0, n_ended = 0;
    for (node event = list; next_in(list, &event);) {
        const char *name = text_of(member(event, "name")), *phase = text_of(member(event, "ph"));
        n_begun += phase[0] == 'b';
        n_ended += phase[0] == 'e';
        if (strcmp(name, "live") != 0) { continue; }
        peak = ebb_max_u64(peak, number_of(member(member(event, "args"), "bytes")));
    }
    assert_int_equal(peak, r->peak_bytes);
    assert_int_equal(n_begun, r->n_blocks);
    assert_int_equal(n_ended, r->n_blocks);
    free_document(&d);
}

static void check_report(uint64_t seed, uint32_t tells, size_t n_events) {
    print_message("seed %" PRIu64 "\n", seed);
    recorder r;
    char path[256];
    (void)snprintf(path, sizeof path, "%s", data_path(&test_dir, "recording"));
    record_random(&r, path, seed, tells, n_events);
    written json = write_report(path, "json"), text = write_report(path, "text");
    written page = write_report(path, "html"), events = write_report(path, "perfetto");
    document d = read_document("json", json.text, json.n);
    check_schema(&d, &r);
    check_text(&text, &r, &d);
    check_page(&page);
    check_perfetto(&events, &r);
    free_document(&d);
    free(json.text);
    free(text.text);
    free(page.text);
    free(events.text);
}

static void test_random(void **state) {
    (void)state;
    for (uint64_t seed = 1; seed <= N_SEEDS; seed++) {
        ebb_rng rng;
        ebb__rng_init(&rng, seed, 1);
        check_report(seed, (uint32_t)ebb__rng_below(&rng, 256), 1 + ebb__rng_below(&rng, 400));
    }
}

static void test_empty(void **state) {
    (void)state;
    check_report(1, 0, 0);
    check_report(2, 255, 0);
}

/* More blocks than are drawn one by one: the rest goes into the grid. */
static void test_many(void **state) {
    (void)state;
    check_report(3, 255, 60000);
    check_report(4, EBB_TRACE_TELLS_ROLES, 60000);
}

/* ---- failures --------------------------------------------------------------------------------- */

static ebb_status refuse(void *ctx, const void *data, size_t n_bytes) {
    (void)ctx;
    (void)data;
    (void)n_bytes;
    return ebb_fail(EBB_E_IO, "no more room");
}

static void test_failures(void **state) {
    (void)state;
    recorder r;
    const char *path = data_path(&test_dir, "recording");
    record_random(&r, path, 5, 255, 100);
    ebb_report *report = NULL;
    ebb_report_options options = EBB_REPORT_OPTIONS_INIT;
    options.size_bytes--;
    assert_int_equal(ebb_report_create(path, &options, &report), EBB_E_ARGUMENT);
    assert_int_equal(ebb_report_create(path, NULL, &report), EBB_OK);
    assert_int_equal(ebb_report_write(report, "poem", refuse, NULL), EBB_E_ARGUMENT);
    expect_message("poem");
    const char *format = NULL, *about = NULL;
    for (size_t i = 0; (format = ebb_report_format_name(i, &about)) != NULL; i++) {
        const ebb_status status = ebb_report_write(report, format, refuse, NULL);
        assert_true(status == EBB_E_IO || status == EBB_E_UNSUPPORTED);
        assert_true(about[0] != '\0');
    }
    ebb_report_destroy(report);
    assert_int_equal(ebb_report_create("/nowhere/at/all", NULL, &report), EBB_OK);
    assert_int_equal(ebb_report_write(report, "json", refuse, NULL), EBB_E_IO);
    ebb_report_destroy(report);
    ebb_report_destroy(NULL);
}

int main(void) {
    const struct CMUnitTest tests[] = {IN_DIR(test_random), IN_DIR(test_empty), IN_DIR(test_many),
                                       IN_DIR(test_failures)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
