/* SPDX-License-Identifier: Apache-2.0
 *
 * The plan file: there and back, every refusal with its line, and mutated files, which must be refused or harmless.
 */
#include "plan_support.h"

#include "base/file.h"

#include <unistd.h>

static char path[64];

static const char good[] = "ebb-plan 2\n"
                           "fingerprint 00000000deadBEEF\n"
                           "# a remark\n"
                           "policy budget\n"
                           "budget 4096\n"
                           "alignment 16\n"
                           "bound bytes 80 step\n"
                           "tier device device\n"
                           "tier host memory\n"
                           "tier disk file\n"
                           "engine compute\n"
                           "engine copy\n"
                           "way device disk copy\n"
                           "actions 3\n"
                           "run 0 0\n"
                           "out 1 disk\n"
                           "again 0 0\n"
                           "\n"
                           "stays 2\n"
                           "1 0 0 0 64\n"
                           "- 0 1 64 16\n"
                           "slots 1\n"
                           "1 disk 1 3 128 64\n"
                           "end\n";

static ebb_status parse(const char *text, ebb_plan **plan_out) {
    return ebb__plan_parse(NULL, "p.plan", text, strlen(text), plan_out);
}

static void test_good(void **state) {
    (void)state;
    ebb_plan *plan = NULL;
    assert_int_equal(parse(good, &plan), EBB_OK);
    ebb_plan_summary sum = ebb_plan_get_summary(plan);
    assert_string_equal(sum.policy, "budget");
    assert_int_equal(sum.fingerprint, 0xdeadbeef);
    assert_int_equal(sum.budget_bytes, 4096);
    assert_int_equal(sum.peak_bytes, 80);
    assert_int_equal(sum.bound_bytes, 80);
    assert_int_equal(sum.tier_bytes[EBB_DISK], 192);
    assert_int_equal(sum.moved_out_bytes, 64);
    assert_int_equal(sum.n_recomputed_steps, 1);
    ebb_plan_destroy(plan);
}

/* What to put in place of what, and the message. */
static void test_refused(void **state) {
    (void)state;
    static const char *const cases[][3] = {
        {"ebb-plan 2", "ebb-plan 1", "p.plan:1: a version"},
        {"ebb-plan 2", "ebb-plan 4", "p.plan:1: a version"},
        {"ebb-plan 2", "ebb-program 1", "p.plan:1: 'ebb-plan' was expected"},
        {"00000000deadBEEF", "deadbeef", "p.plan:2: 'fingerprint' was expected"},
        {"00000000deadBEEF", "00000000deadBEEG", "p.plan:2: not a hexadecimal"},
        {"policy budget", "policy a/b", "p.plan:4: not a policy's name"},
        {"budget 4096", "algorithms slow\nbudget 4096", "p.plan:5: no such way"},
        {"budget 4096", "algorithms\nbudget 4096", "p.plan:5: wrong number of fields"},
        {"budget 4096", "algorithms least", "p.plan:6: 'budget' was expected"},
        {"budget 4096", "budget -1", "p.plan:5: not a number"},
        {"budget 4096", "budget 18446744073709551616", "p.plan:5: a number beyond 64 bits"},
        {"actions 3", "actions 4", "p.plan:19: no such action"},
        {"actions 3", "actions 18446744073709551615", "p.plan:19: no such action"},
        {"actions 3", "actions 2", "p.plan:17: wrong number of fields"},
        {"run 0 0", "run 0", "p.plan:15: wrong number of fields"},
        {"run 0 0", "walk 0 0", "p.plan:15: no such action"},
        {"out 1 disk", "out 1 disk 2", "p.plan:16: wrong number of fields"},
        {"out 1 disk", "out 1 disk held", "p.plan:16: wrong number of fields"}, /* it is version 2 */
        {"out 1 disk", "out 4294967295 disk", "p.plan:16: a number is too large"},
        {"alignment 16", "alignment 24", "p.plan:6: not an alignment"},
        {"alignment 16", "aligned 16", "p.plan:6: 'alignment' was expected"},
        {"bound bytes 80 step", "bound bytes 80", "p.plan:7: not a bound"},
        {"bound bytes 80 step", "bound bytes 80 guess", "p.plan:7: no such rule"},
        {"bound bytes 80 step", "times mine", "p.plan:7: 'times nominal' was expected"},
        {"out 1 disk", "out 1", "p.plan:16: wrong number of fields"},
        {"out 1 disk", "out 1 tape", "p.plan:16: no such tier"},
        {"out 1 disk", "move 1 disk", "p.plan:16: wrong number of fields"},
        {"tier host memory", "tier device memory", "p.plan:9: tier 'device': there are two"},
        {"tier host memory", "tier host device", "p.plan:9: tier 1:"},
        {"tier host memory", "tier host", "p.plan:9: not a tier"},
        {"engine copy", "engine a/b", "p.plan:12: engine 1:"},
        {"engine copy", "engine", "p.plan:12: not an engine"},
        {"way device disk copy", "way device disk", "p.plan:13: not a way"},
        {"way device disk copy", "way device disk tape", "p.plan:13: not a way"},
        {"way device disk copy", "way device device copy", "p.plan:13: not a way"},
        {"- 0 1 64 16", "- 3 3 64 16", "p.plan:21: a number is too large"},
        {"- 0 1 64 16", "- 0 4 64 16", "p.plan:21: a number is too large"},
        {"- 0 1 64 16", "0 0 1 64 16", "p.plan:21: stays out of order"},
        {"- 0 1 64 16", "- 0 1 64 18446744073709551615", "do not add up"},
        {"1 disk 1 3", "1 tape 1 3", "p.plan:23: no such tier"},
        {"end\n", "", "p.plan:23: the file ends too soon"},
        {"end\n", "end\nmore\n", "p.plan:25: something follows"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const char *at = strstr(good, cases[i][0]);
        assert_non_null(at);
        char text[sizeof good + 64];
        (void)snprintf(text, sizeof text, "%.*s%s%s", (int)(at - good), good, cases[i][1], at + strlen(cases[i][0]));
        ebb_plan *plan = NULL;
        assert_int_equal(parse(text, &plan), EBB_E_FORMAT);
        if (strstr(ebb_last_error(), cases[i][2]) == NULL) { print_error("case %zu: %s\n", i, ebb_last_error()); }
        assert_non_null(strstr(ebb_last_error(), cases[i][2]));
        assert_null(plan);
    }
}

/* What a plan of version 3 may say of its copies, and no more. */
static void test_held(void **state) {
    (void)state;
    static const struct {
        const char *line;
        bool is_right, is_held;
    } cases[] = {
        {"out 1 disk held", true, true},
        {"out 1 disk 0 64 held", true, true},
        {"out 1 disk 0 64", true, false},
        {"move 1 disk host held", true, true},
        {"in 1 disk held", true, true},
        {"out 1 disk held 64", false, false},
        {"out 1 disk 0 64 kept", false, false},
        {"out 1 disk 0 held", false, false},
        {"out 1 disk held held", false, false},
        {"drop 1 held", false, false},
        {"drop 1 0 64 held", false, false},
        {"run 0 0 held", false, false},
        {"move 1 disk host 0 64 held", true, true},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const char *at = strstr(good, "out 1 disk");
        const size_t head = (size_t)(at - good) - strlen("ebb-plan 2");
        char text[sizeof good + 64];
        (void)snprintf(text, sizeof text, "ebb-plan 3%.*s%s%s", (int)head, good + strlen("ebb-plan 2"), cases[i].line,
                       at + strlen("out 1 disk"));
        ebb_plan *plan = NULL;
        assert_int_equal(parse(text, &plan), cases[i].is_right ? EBB_OK : EBB_E_FORMAT);
        if (!cases[i].is_right) { continue; }
        assert_int_equal(plan->actions.data[1].held, cases[i].is_held);
        ebb_plan *read = NULL;
        char *written = NULL;
        size_t n = 0;
        assert_int_equal(ebb_plan_save(plan, path), EBB_OK);
        assert_int_equal(ebb__file_read_all(NULL, path, 1 << 20, &written, &n), EBB_OK);
        assert_true(strncmp(written, cases[i].is_held ? "ebb-plan 3\n" : "ebb-plan 2\n", 11) == 0);
        assert_int_equal(ebb_plan_load(NULL, path, &read), EBB_OK);
        assert_int_equal(read->actions.data[1].held, cases[i].is_held);
        ebb__free(NULL, written);
        ebb_plan_destroy(read);
        ebb_plan_destroy(plan);
    }
}

static void test_truncated(void **state) {
    (void)state;
    for (size_t n = 0; n + 1 < strlen(good); n++) {
        ebb_plan *plan = NULL;
        assert_int_equal(ebb__plan_parse(NULL, "p.plan", good, n, &plan), EBB_E_FORMAT);
    }
}

/* Field by field: between them a struct has bytes that say nothing. */
static void assert_same_summary(const ebb_plan_summary *a, const ebb_plan_summary *b) {
    assert_string_equal(a->policy, b->policy);
    assert_int_equal(a->budget_bytes, b->budget_bytes);
    assert_int_equal(a->peak_bytes, b->peak_bytes);
    assert_int_equal(a->bound_bytes, b->bound_bytes);
    assert_memory_equal(a->tier_bytes, b->tier_bytes, sizeof a->tier_bytes);
    assert_int_equal(a->moved_out_bytes, b->moved_out_bytes);
    assert_int_equal(a->moved_in_bytes, b->moved_in_bytes);
    assert_int_equal(a->moved_on_bytes, b->moved_on_bytes);
    assert_int_equal(a->n_recomputed_steps, b->n_recomputed_steps);
    assert_int_equal(a->fingerprint, b->fingerprint);
    assert_ptr_equal(a->algorithms, b->algorithms);
    assert_int_equal(a->has_nominal_times, b->has_nominal_times);
    assert_int_equal(a->certificate.bound_bytes, b->certificate.bound_bytes);
    assert_int_equal(a->certificate.bound_ns, b->certificate.bound_ns);
    assert_ptr_equal(a->certificate.bytes_rule, b->certificate.bytes_rule);
    assert_ptr_equal(a->certificate.ns_rule, b->certificate.ns_rule);
}

static void test_round_trip(void **state) {
    (void)state;
    for (uint64_t seed = 1; seed <= 20; seed++) {
        ebb_program *p = random_program(seed);
        ebb_plan *plan = make_tight_plan(p), *read = NULL;
        if (seed % 2 == 0) { plan->budget_bytes = UINT64_MAX; }
        plan->algorithms = (ebb_algorithms)(seed % EBB_N_ALGORITHMS);
        plan->has_nominal_times = seed % 3 == 0;
        assert_int_equal(ebb__plan_seal(plan), EBB_OK);
        assert_int_equal(ebb_plan_save(plan, path), EBB_OK);
        assert_int_equal(ebb_plan_load(NULL, path, &read), EBB_OK);
        assert_int_equal(ebb_plan_check(p, read), EBB_OK);
        const ebb_plan_summary a = ebb_plan_get_summary(plan), b = ebb_plan_get_summary(read);
        assert_same_summary(&a, &b);
        assert_same_actions(plan, read);
        ebb_plan_destroy(plan);
        ebb_plan_destroy(read);
        ebb_program_destroy(p);
    }
    ebb_plan *plan = NULL;
    assert_int_equal(ebb_plan_load(NULL, "/nowhere/x.plan", &plan), EBB_E_IO);
    assert_int_equal(parse(good, &plan), EBB_OK);
    assert_int_equal(ebb_plan_save(plan, "/nowhere/x.plan"), EBB_E_IO);
    ebb_plan_destroy(plan);
}

/* One number or word of a right plan's file changed: the reader or the validator refuses it, or it still is right
 * (then it runs, with the same results). */
static void test_mutated(void **state) {
    (void)state;
    size_t n_format = 0, n_invalid = 0, n_fine = 0;
    for (uint64_t seed = 30; seed < 36; seed++) {
        ebb_program *p = random_program(seed);
        ebb_plan *plan = make_tight_plan(p);
        char *text = NULL;
        size_t n = 0;
        world expected, got;
        execute_in_order(&expected, p, plan, 2);
        assert_int_equal(ebb_plan_save(plan, path), EBB_OK);
        assert_int_equal(ebb__file_read_all(NULL, path, 1 << 20, &text, &n), EBB_OK);
        ebb_rng rng;
        ebb__rng_init(&rng, seed, 3);
        for (int i = 0; i < 400; i++) {
            size_t at = (size_t)ebb__rng_below(&rng, n);
            char was = text[at];
            text[at] = was >= '0' && was <= '9' ? (char)('0' + ebb__rng_below(&rng, 10)) : was;
            ebb_plan *read = NULL;
            ebb_status st = ebb__plan_parse(NULL, "p", text, n, &read);
            if (st == EBB_OK) { st = ebb_plan_check(p, read); }
            assert_true(st == EBB_OK || st == EBB_E_FORMAT || st == EBB_E_INVALID_PLAN);
            if (st == EBB_OK) {
                execute_in_order(&got, p, read, 2);
                assert_same_results(&got, &expected, 2);
                world_free(&got);
            }
            n_fine += st == EBB_OK;
            n_format += st == EBB_E_FORMAT;
            n_invalid += st == EBB_E_INVALID_PLAN;
            ebb_plan_destroy(read);
            text[at] = was;
        }
        world_free(&expected);
        ebb__free(NULL, text);
        ebb_plan_destroy(plan);
        ebb_program_destroy(p);
    }
    print_message("%zu malformed, %zu invalid, %zu fine\n", n_format, n_invalid, n_fine);
    assert_true(n_format > 50 && n_invalid > 100);
}

static int remove_file(void **state) {
    (void)state;
    (void)unlink(path);
    return 0;
}

int main(void) {
    (void)snprintf(path, sizeof path, "/tmp/ebb-test-plan-%d.plan", (int)getpid());
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_good),       cmocka_unit_test(test_refused),
                                       cmocka_unit_test(test_held),       cmocka_unit_test(test_truncated),
                                       cmocka_unit_test(test_round_trip), cmocka_unit_test(test_mutated)};
    return cmocka_run_group_tests(tests, NULL, remove_file);
}
