/* SPDX-License-Identifier: Apache-2.0
 *
 * The machine: times of steps and copies, its file there and back, and files that are not one.
 */
#include "plan_support.h"

#include <stdio.h>
#include <unistd.h>

static char path[64];

static void write_text(const char *text) {
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    assert_true(fputs(text, file) >= 0);
    assert_int_equal(fclose(file), 0);
}

static void test_times(void **state) {
    (void)state;
    ebb_machine *m = NULL;
    assert_int_equal(ebb_machine_create(NULL, &m), EBB_OK);
    ebb_machine_set_rates(m, 1e9, 1e6, 7);
    ebb_choice choice = {.key = 5, .flops = 2000, .traffic_bytes = 1};
    assert_int_equal(ebb_machine_step_time_ns(m, &choice), 2007);
    choice.traffic_bytes = 10;
    assert_int_equal(ebb_machine_step_time_ns(m, &choice), 10007);
    for (uint64_t key = 0; key < 1000; key++) { assert_int_equal(ebb_machine_set_time(m, key, key * 3), EBB_OK); }
    assert_int_equal(ebb_machine_set_time(m, 5, 16), EBB_OK);
    assert_int_equal(ebb_machine_step_time_ns(m, &choice), 16);
    choice.key = 999;
    assert_int_equal(ebb_machine_step_time_ns(m, &choice), 2997);
    choice.key = UINT64_MAX;
    assert_int_equal(ebb_machine_step_time_ns(m, &choice), 10007);
    ebb_link link = {.out_bytes_per_s = 1e9, .in_bytes_per_s = 5e8, .latency_ns = 3};
    ebb_machine_set_link(m, EBB_TIER_DISK, &link);
    assert_int_equal(ebb__machine_copy_ns(m, EBB_TIER_DISK, true, 100), 103);
    assert_int_equal(ebb__machine_copy_ns(m, EBB_TIER_DISK, false, 100), 203);
    ebb_machine_set_rates(m, 0, 0, UINT64_MAX); /* nonsense does not overflow */
    assert_int_equal(ebb_machine_step_time_ns(m, &choice), INT64_MAX);
    ebb_machine_destroy(m);
    ebb_machine_destroy(NULL);
}

static void test_round_trip(void **state) {
    (void)state;
    ebb_machine *m = NULL, *read = NULL;
    assert_int_equal(ebb_machine_create(NULL, &m), EBB_OK);
    ebb_link link = {.out_bytes_per_s = 1.0 / 3.0, .in_bytes_per_s = 7e11, .latency_ns = 12345};
    ebb_machine_set_link(m, EBB_TIER_HOST, &link);
    ebb_machine_set_rates(m, 3.5e11, 2.25e10, 99);
    assert_int_equal(ebb_machine_set_time(m, UINT64_MAX, 1), EBB_OK);
    assert_int_equal(ebb_machine_set_time(m, 0x0123456789abcdef, 4242), EBB_OK);
    assert_int_equal(ebb_machine_save(m, path), EBB_OK);
    assert_int_equal(ebb_machine_load(NULL, path, &read), EBB_OK);
    ebb_link got = ebb_machine_link(read, EBB_TIER_HOST);
    assert_true(got.out_bytes_per_s == link.out_bytes_per_s && got.in_bytes_per_s == link.in_bytes_per_s);
    assert_int_equal(got.latency_ns, 12345);
    ebb_choice choice = {.key = 0x0123456789abcdef};
    assert_int_equal(ebb_machine_step_time_ns(read, &choice), 4242);
    choice = (ebb_choice){.key = 1, .flops = 3.5e11};
    assert_int_equal(ebb_machine_step_time_ns(read, &choice), 1000000099);
    ebb_machine_destroy(m);
    ebb_machine_destroy(read);
}

static void test_refused(void **state) {
    (void)state;
    static const char *const texts[] = {
        "",
        "[1, 2",
        "[]",
        "{\"format\": \"other\", \"version\": 1}",
        "{\"format\": \"ebb-machine\", \"version\": 2}",
        "{\"format\": \"ebb-machine\", \"version\": 1, \"rates\": {\"flops_per_s\": 0}}",
        "{\"format\": \"ebb-machine\", \"version\": 1, \"rates\": {\"bytes_per_s\": \"x\"}}",
        "{\"format\": \"ebb-machine\", \"version\": 1, \"links\": {\"host\": {\"latency_ns\": -1}}}",
        "{\"format\": \"ebb-machine\", \"version\": 1, \"times_ns\": {\"12\": 1}}",
        "{\"format\": \"ebb-machine\", \"version\": 1, \"times_ns\": {\"0123456789abcdeg\": 1}}",
        "{\"format\": \"ebb-machine\", \"version\": 1, \"times_ns\": {\"0123456789abcdef\": 1.5}}",
    };
    ebb_machine *m = NULL;
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        write_text(texts[i]);
        assert_int_equal(ebb_machine_load(NULL, path, &m), EBB_E_FORMAT);
        assert_non_null(strstr(ebb_last_error(), path));
        assert_null(m);
    }
    write_text("{\"format\": \"ebb-machine\", \"version\": 1}");
    assert_int_equal(ebb_machine_load(NULL, path, &m), EBB_OK);
    ebb_machine_destroy(m);
    m = NULL;
    assert_int_equal(ebb_machine_load(NULL, "/nowhere/machine.json", &m), EBB_E_IO);
}

static void test_oom(void **state) {
    (void)state;
    write_text("{\"format\": \"ebb-machine\", \"version\": 1, \"times_ns\": {\"0123456789abcdef\": 1}}");
    OOM_LOOP(mem, st, {
        ebb_machine *m = NULL;
        st = ebb_machine_load(mem, path, &m);
        ebb_machine_destroy(m);
    });
}

static int remove_file(void **state) {
    (void)state;
    (void)unlink(path);
    return 0;
}

int main(void) {
    (void)snprintf(path, sizeof path, "/tmp/ebb-test-machine-%d.json", (int)getpid());
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_times), cmocka_unit_test(test_round_trip),
                                       cmocka_unit_test(test_refused), cmocka_unit_test(test_oom)};
    return cmocka_run_group_tests(tests, NULL, remove_file);
}
