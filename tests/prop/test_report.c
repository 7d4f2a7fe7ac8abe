/* SPDX-License-Identifier: Apache-2.0
 *
 * Reports on random recordings, whose sources tell different things and whose names are hostile: the JSON has the fixed
 * members, with null for what is not told; its sums agree with the recording's; text and page have the same numbers; no
 * name gets out of its place.
 */
#include "ebb/report.h"
#include "report_support.h"

#include <inttypes.h>
#include <jansson.h>

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

static json_t *member(json_t *object, const char *key) {
    json_t *value = json_object_get(object, key);
    if (value == NULL) { fail_msg("there is no member %s", key); }
    return value;
}

static void expect_number_or_null(json_t *object, const char *key, bool known) {
    json_t *value = member(object, key);
    if (known ? !json_is_number(value) : !json_is_null(value)) { fail_msg("%s is %sknown", key, known ? "" : "not "); }
}

static uint64_t sum_of_bytes(json_t *shares) {
    uint64_t sum = 0;
    size_t i = 0;
    json_t *share = NULL;
    json_array_foreach(shares, i, share) {
        assert_true(json_is_string(member(share, "role")));
        sum += (uint64_t)json_integer_value(member(share, "bytes"));
    }
    return sum;
}

static void check_schema(json_t *object, const recorder *r) {
    const bool times = (r->tells & EBB_TRACE_TELLS_TIMES) != 0, accesses = (r->tells & EBB_TRACE_TELLS_ACCESSES) != 0;
    const bool segments = (r->tells & EBB_TRACE_TELLS_SEGMENTS) != 0 && r->n_events > 0;
    assert_int_equal(json_integer_value(member(object, "schema_version")), 1);
    assert_true(json_is_string(member(object, "source")));
    assert_int_equal(json_integer_value(member(object, "events")), r->n_events);
    assert_int_equal(json_integer_value(member(object, "blocks")), r->n_blocks);
    assert_int_equal(json_integer_value(member(object, "peak_bytes")), r->peak_bytes);
    assert_int_equal(sum_of_bytes(member(object, "live_at_peak")), r->peak_bytes);
    expect_number_or_null(object, "duration_s", times);
    expect_number_or_null(object, "peak_time_s", times && r->n_blocks > 0);
    json_t *iteration = member(object, "iteration");
    const bool found = json_is_true(member(iteration, "found"));
    const char *const of_iteration[] = {"first_event", "length_events", "count", "confidence"};
    for (size_t i = 0; i < 4; i++) { expect_number_or_null(iteration, of_iteration[i], found); }
    json_t *intervals = member(object, "intervals");
    expect_number_or_null(intervals, "count", times && accesses);
    const bool any = json_integer_value(member(intervals, "count")) > 0;
    expect_number_or_null(intervals, "p50_s", any);
    expect_number_or_null(intervals, "p90_s", any);
    expect_number_or_null(intervals, "p99_s", any);
    json_t *swappable = member(object, "swappable"), *fragmentation = member(object, "fragmentation");
    expect_number_or_null(swappable, "bytes", times && accesses);
    expect_number_or_null(swappable, "blocks", times && accesses);
    expect_number_or_null(fragmentation, "reserved_peak_bytes", segments);
    expect_number_or_null(fragmentation, "lost_bytes", segments);
    assert_true(json_is_array(member(object, "holders")));
    assert_true(json_is_array(member(object, "advice")));
}

/* ---- the others ------------------------------------------------------------------------------- */

/* A number of the JSON, when it is known, is in the text to the byte. */
static void expect_same(const written *text, json_t *object, const char *part, const char *key) {
    json_t *value = member(member(object, part), key);
    char number[32];
    if (json_is_null(value)) { return; }
    (void)snprintf(number, sizeof number, " %" PRIu64 "\n", (uint64_t)json_integer_value(value));
    if (strstr(text->text, number) == NULL) { fail_msg("the text does not have %s.%s,%s", part, key, number); }
}

static void check_text(const written *text, const recorder *r, json_t *object) {
    char number[32];
    (void)snprintf(number, sizeof number, "(%" PRIu64 " bytes)", r->peak_bytes);
    if (r->n_blocks > 0) { assert_non_null(strstr(text->text, number)); }
    expect_same(text, object, "swappable", "bytes");
    expect_same(text, object, "swappable", "blocks");
    expect_same(text, object, "swappable", "bytes_at_peak");
    expect_same(text, object, "fragmentation", "reserved_peak_bytes");
    expect_same(text, object, "fragmentation", "lost_bytes");
    expect_same(text, object, "iteration", "first_event");
    expect_same(text, object, "iteration", "length_events");
    expect_same(text, object, "iteration", "count");
    if (json_integer_value(member(member(object, "intervals"), "count")) > 0) {
        expect_same(text, object, "intervals", "count");
    }
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
    json_error_t error;
    json_t *object = json_loadb(data, (size_t)(strstr(data, "</script>") - data), 0, &error);
    if (object == NULL) { fail_msg("the page's data: %s, at %d", error.text, error.position); }
    json_decref(object);
}

static void check_perfetto(const written *events, const recorder *r) {
    json_error_t error;
    json_t *object = json_loadb(events->text, events->n, 0, &error);
    if (object == NULL) { fail_msg("perfetto: %s, line %d", error.text, error.line); }
    json_t *list = member(object, "traceEvents"), *event = NULL;
    uint64_t peak = 0, n_begun = 0, n_ended = 0;
    size_t i = 0;
    json_array_foreach(list, i, event) {
        const char *name = json_string_value(member(event, "name")), *phase = json_string_value(member(event, "ph"));
        n_begun += phase[0] == 'b';
        n_ended += phase[0] == 'e';
        if (strcmp(name, "live") != 0) { continue; }
        peak = ebb_max_u64(peak, (uint64_t)json_integer_value(member(member(event, "args"), "bytes")));
    }
    assert_int_equal(peak, r->peak_bytes);
    assert_int_equal(n_begun, r->n_blocks);
    assert_int_equal(n_ended, r->n_blocks);
    json_decref(object);
}

static void check_report(uint64_t seed, uint32_t tells, size_t n_events) {
    print_message("seed %" PRIu64 "\n", seed);
    recorder r;
    char path[256];
    (void)snprintf(path, sizeof path, "%s", data_path(&test_dir, "recording"));
    record_random(&r, path, seed, tells, n_events);
    written json = write_report(path, "json"), text = write_report(path, "text");
    written page = write_report(path, "html"), events = write_report(path, "perfetto");
    json_error_t error;
    json_t *object = json_loadb(json.text, json.n, 0, &error);
    if (object == NULL) { fail_msg("%s at %d", error.text, error.position); }
    check_schema(object, &r);
    check_text(&text, &r, object);
    check_page(&page);
    check_perfetto(&events, &r);
    json_decref(object);
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
