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
    choice.time_ns = 77; /* measured, but not on this machine */
    assert_int_equal(ebb_machine_step_time_ns(m, &choice), 77);
    choice.key = 999;
    assert_int_equal(ebb_machine_step_time_ns(m, &choice), 2997);
    choice = (ebb_choice){.key = UINT64_MAX, .flops = 1};
    set_link(m, EBB_DISK, 1e9, 5e8, 3);
    assert_int_equal(ebb_machine_copy_time_ns(m, EBB_DEVICE, EBB_DISK, 100), 103);
    assert_int_equal(ebb_machine_copy_time_ns(m, EBB_DISK, EBB_DEVICE, 100), 203);
    assert_true(ebb_machine_copy_time_ns(m, EBB_DISK, EBB_DISK, 100) == UINT64_MAX);
    assert_true(ebb_machine_copy_time_ns(m, EBB_DISK, 3, 100) == UINT64_MAX);
    ebb_machine_set_rates(m, 0, 0, UINT64_MAX); /* nonsense does not overflow */
    assert_int_equal(ebb_machine_step_time_ns(m, &choice), INT64_MAX);
    ebb_machine_destroy(m);
    ebb_machine_destroy(NULL);
}

static void test_round_trip(void **state) {
    (void)state;
    ebb_machine *m = NULL, *read = NULL;
    assert_int_equal(ebb_machine_create(NULL, &m), EBB_OK);
    const ebb_tier nvme = {"nvme", EBB_STORE_FILE, 12345};
    uint32_t tier = 0, engine = 0;
    assert_int_equal(ebb_machine_add_tier(m, &nvme, &tier), EBB_OK);
    assert_int_equal(ebb_machine_add_engine(m, "dma", &engine), EBB_OK);
    set_link(m, EBB_HOST, 1.0 / 3.0, 7e11, 12345);
    const ebb_link link = {.near = EBB_HOST,
                           .far = tier,
                           .out = {.bytes_per_s = 5e9, .latency_ns = 1, .engine = engine},
                           .in = {.bytes_per_s = 6e9, .latency_ns = 2, .engine = 1},
                           .both_rate = 0.5,
                           .work_rate = 0.25};
    assert_int_equal(ebb_machine_set_link(m, &link), EBB_OK);
    ebb_machine_set_rates(m, 3.5e11, 2.25e10, 99);
    assert_int_equal(ebb_machine_set_time(m, UINT64_MAX, 1), EBB_OK);
    assert_int_equal(ebb_machine_set_time(m, 0x0123456789abcdef, 4242), EBB_OK);
    assert_int_equal(ebb_machine_save(m, path), EBB_OK);
    assert_int_equal(ebb_machine_load(NULL, path, &read), EBB_OK);
    ebb_link got;
    assert_true(ebb_machine_link(read, EBB_DEVICE, EBB_HOST, &got));
    assert_true(got.out.bytes_per_s == 1.0 / 3.0 && got.in.bytes_per_s == 7e11);
    assert_int_equal(got.out.latency_ns, 12345);
    const ebb_topology *a = ebb_machine_topology(m), *b = ebb_machine_topology(read);
    assert_int_equal(b->n_tiers, 4);
    assert_int_equal(b->n_engines, 6);
    for (uint32_t t = 0; t < b->n_tiers; t++) {
        assert_string_equal(b->tier[t].name, a->tier[t].name);
        assert_int_equal(b->tier[t].store, a->tier[t].store);
        assert_int_equal(b->tier[t].capacity_bytes, a->tier[t].capacity_bytes);
    }
    assert_memory_equal(b->engine, a->engine, sizeof a->engine);
    assert_memory_equal(b->way, a->way, sizeof a->way);
    assert_false(ebb_machine_link(read, EBB_DEVICE, tier, &got));
    assert_true(ebb_machine_link(read, tier, EBB_HOST, &got)); /* from the other end */
    assert_true(got.out.bytes_per_s == 6e9 && got.out.latency_ns == 2 && got.out.engine == 1);
    assert_true(got.in.bytes_per_s == 5e9 && got.in.latency_ns == 1 && got.in.engine == engine);
    assert_true(got.both_rate == 0.5 && got.work_rate == 0.25);
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
        "{\"format\": \"ebb-machine\", \"version\": 3}",
        "{\"format\": \"ebb-machine\", \"version\": 1, \"rates\": {\"flops_per_s\": 0}}",
        "{\"format\": \"ebb-machine\", \"version\": 1, \"rates\": {\"bytes_per_s\": \"x\"}}",
        "{\"format\": \"ebb-machine\", \"version\": 1, \"links\": {\"host\": {\"latency_ns\": -1}}}",
        "{\"format\": \"ebb-machine\", \"version\": 1, \"times_ns\": {\"12\": 1}}",
        "{\"format\": \"ebb-machine\", \"version\": 1, \"times_ns\": {\"0123456789abcdeg\": 1}}",
        "{\"format\": \"ebb-machine\", \"version\": 1, \"times_ns\": {\"0123456789abcdef\": 1.5}}",
#define V2 "{\"format\": \"ebb-machine\", \"version\": 2, "
        V2 "\"tiers\": [{\"name\": \"a b\", \"store\": \"file\"}]}",
        V2 "\"tiers\": [{\"name\": \"a\", \"store\": \"device\"}]}",
        V2 "\"tiers\": [{\"name\": \"host\", \"store\": \"file\"}]}",
        V2 "\"tiers\": [{\"name\": \"a\"}]}",
        V2 "\"engines\": [1]}",
        V2 "\"engines\": [\"\"]}",
        V2 "\"links\": [{\"near\": \"device\"}]}",
        V2 "\"links\": [{\"near\": \"device\", \"far\": \"tape\"}]}",
        V2 "\"links\": [{\"near\": \"device\", \"far\": \"host\", \"both_rate\": 2}]}",
        V2 "\"links\": [{\"near\": \"device\", \"far\": \"host\", \"out\": {\"engine\": \"compute\"}}]}",
        V2 "\"links\": [{\"near\": \"device\", \"far\": \"host\", \"out\": {\"bytes_per_s\": -1}}]}",
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
