/* SPDX-License-Identifier: Apache-2.0
 *
 * Equal layers are one row for people, and one row each for programs; the title says what was recorded.
 */
#include "ebb/report.h"
#include "report_support.h"
#include "study_fixture.h"

static written write_report(const char *path, const char *format) {
    written w = {.text = NULL};
    ebb_report *report = NULL;
    ebb_report_options options = EBB_REPORT_OPTIONS_INIT;
    options.name = "it";
    assert_int_equal(ebb_report_create(path, &options, &report), EBB_OK);
    assert_int_equal(ebb_report_write(report, format, keep_written, &w), EBB_OK);
    ebb_report_destroy(report);
    return w;
}

static void expect(const written *w, const char *part, bool wanted) {
    if ((strstr(w->text, part) != NULL) != wanted) { fail_msg("%s'%s' in\n%s", wanted ? "no " : "", part, w->text); }
}

static void equal_layers(void **state) {
    (void)state;
    static const char *const names[] = {"net.0.h.0.attn.w", "net.0.h.10.attn.w", "net.0.h.2.attn.w",
                                        "net.0.h.0.mlp.w",  "net.0.h.10.mlp.w",  "net.0.h1.mlp.w",
                                        "net.0.12",         "net.0.h.2x.mlp.w"};
    study_fixture f;
    study_fixture_init(&f, EBB_TRACE_TELLS_ROLES);
    assert_int_equal(ebb_trace_writer_note(f.writer, "class.net.0.h.0.attn", "Attention"), EBB_OK);
    assert_int_equal(ebb_trace_writer_note(f.writer, "class.net.0.h.2.attn", "Attention"), EBB_OK);
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        (void)study_alloc(&f, 4096 << i, EBB_ROLE_ACTIVATION, names[i]);
    }
    assert_non_null(study_fixture_study(&f, NULL));
    written text = write_report(f.path, "text"), json = write_report(f.path, "json");
    expect(&text,
           "  net.0.h.*.attn (Attention) \xc3\x97"
           "2 ",
           true);
    expect(&text, "  net.0.h.10.attn ", true); /* of another class, as far as is known */
    expect(&text,
           "  net.0.h.*.mlp \xc3\x97"
           "2 ",
           true);
    expect(&text, "  net.0.h1.mlp ", true);
    expect(&text, "  net.0.h.2x.mlp ", true);
    expect(&json, "\"label\": \"net.0.h.10.mlp\"", true);
    expect(&json, "*", false);
    free(text.text);
    free(json.text);
    study_fixture_fini(&f);
}

/* A network that is a Sequential names its children by numbers alone. */
static void children_of_the_network(void **state) {
    (void)state;
    static const struct {
        size_t n;
        const char *label;
    } cases[] = {{3, "  0, 2, 10 (Linear) "}, {9, "  0, 2, 4, 6, 8, 10, 12, 14 and 1 more (Linear) "}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        study_fixture f;
        study_fixture_init(&f, EBB_TRACE_TELLS_ROLES);
        for (size_t k = 0; k < cases[i].n; k++) {
            char name[32];
            const unsigned number = cases[i].n == 3 && k == 2 ? 10 : 2 * (unsigned)k;
            snprintf(name, sizeof name, "class.%u", number);
            assert_int_equal(ebb_trace_writer_note(f.writer, name, "Linear"), EBB_OK);
            snprintf(name, sizeof name, "%u.addmm", number);
            (void)study_alloc(&f, k < 8 ? 4096 : 1024, EBB_ROLE_ACTIVATION, name);
        }
        (void)study_alloc(&f, 4096, EBB_ROLE_ACTIVATION, "1.gelu"); /* of another kind, and so by its own name */
        assert_non_null(study_fixture_study(&f, NULL));
        written text = write_report(f.path, "text");
        expect(&text, cases[i].label, true);
        expect(&text, "  1 ", true);
        expect(&text, "*", false);
        free(text.text);
        study_fixture_fini(&f);
    }
}

static void what_was_recorded(void **state) {
    (void)state;
    study_fixture f;
    study_fixture_init(&f, EBB_TRACE_TELLS_STACKS);
    assert_int_equal(ebb_trace_writer_note(f.writer, "source", "ebb.torch"), EBB_OK);
    assert_int_equal(ebb_trace_writer_note(f.writer, "net", "ResNet"), EBB_OK);
    const uint32_t main_stack = study_frame(&f, 0, "<module>", "/me/here/train.py", 9);
    f.stack = study_frame(&f, main_stack, "conv", "/usr/lib/python3/dist-packages/torch/nn.py", 9);
    (void)study_alloc(&f, 4096, EBB_ROLE_UNKNOWN, "");
    assert_non_null(study_fixture_study(&f, NULL));
    written text = write_report(f.path, "text");
    expect(&text, "it: ResNet, train.py, PyTorch, recorded by ebb.torch, 1 event, 1 block\n", true);
    free(text.text);
    study_fixture_fini(&f);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(equal_layers), cmocka_unit_test(children_of_the_network),
                                       cmocka_unit_test(what_was_recorded)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
