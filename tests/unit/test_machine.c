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
                           .work_rate = {0.25, 0.125},
                           .copy_rate = {0.75, 1}};
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
    assert_true(got.both_rate == 0.5);
    assert_memory_equal(got.work_rate, link.work_rate, sizeof link.work_rate);
    assert_memory_equal(got.copy_rate, link.copy_rate, sizeof link.copy_rate);
    ebb_choice choice = {.key = 0x0123456789abcdef};
    assert_int_equal(ebb_machine_step_time_ns(read, &choice), 4242);
    choice = (ebb_choice){.key = 1, .flops = 3.5e11};
    assert_int_equal(ebb_machine_step_time_ns(read, &choice), 1000000099);
    ebb_machine_destroy(m);
    ebb_machine_destroy(read);
}

/* Files from before the kinds of steps were told apart have one share for both. */
static void test_one_share(void **state) {
    (void)state;
    ebb_machine *m = NULL;
    ebb_link link;
    write_text("{\"format\": \"ebb-machine\", \"version\": 2, \"links\": [{\"near\": \"device\", \"far\": \"host\", "
               "\"work_rate\": 0.5, \"copy_rate\": 0.25, \"traffic_copy_rate\": 0.75}]}");
    assert_int_equal(ebb_machine_load(NULL, path, &m), EBB_OK);
    assert_true(ebb_machine_link(m, EBB_DEVICE, EBB_HOST, &link));
    assert_true(link.work_rate[EBB_STEP_ARITHMETIC] == 0.5 && link.work_rate[EBB_STEP_TRAFFIC] == 0.5);
    assert_true(link.copy_rate[EBB_STEP_ARITHMETIC] == 0.25 && link.copy_rate[EBB_STEP_TRAFFIC] == 0.75);
    ebb_machine_destroy(m);
}

static void test_step_kinds(void **state) {
    (void)state;
    ebb_machine *m = NULL;
    assert_int_equal(ebb_machine_create(NULL, &m), EBB_OK);
    ebb_machine_set_rates(m, 1e12, 1e9, 0);
    const ebb_choice sum = {.flops = 1e6, .traffic_bytes = 12e6}, product = {.flops = 1e9, .traffic_bytes = 1e5};
    const ebb_choice unknown = {.key = 1};
    assert_int_equal(ebb_machine_step_kind(m, &sum), EBB_STEP_TRAFFIC);
    assert_int_equal(ebb_machine_step_kind(m, &product), EBB_STEP_ARITHMETIC);
    assert_int_equal(ebb_machine_step_kind(m, &unknown), EBB_STEP_ARITHMETIC);
    ebb_machine_destroy(m);
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
        V2 "\"links\": [{\"near\": \"device\", \"far\": \"host\", \"work_rate\": 1.5}]}",
        V2 "\"links\": [{\"near\": \"device\", \"far\": \"host\", \"traffic_copy_rate\": 7}]}",
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

/* Refusals: where in the file, and why. */
static void test_refused_members(void **state) {
    (void)state;
#define V1 "{\"format\": \"ebb-machine\", \"version\": 1, "
    static const struct {
        const char *text, *why;
    } cases[] = {
        {V2 "\"tier\": []}", ": tier: a machine has no such member"},
        {V2 "\"\": []}", ": '': a machine has no such member"},
        {V1 "\"tiers\": []}", ": tiers: a machine of version 1 has no such member"},
        {V1 "\"engines\": []}", ": engines: a machine of version 1 has no such member"},
        {V2 "\"tiers\": {}}", ": tiers: not a list"},
        {V2 "\"tiers\": [1]}", ": tiers[0]: not an object"},
        {V2 "\"tiers\": [{\"name\": 5, \"store\": \"file\"}]}", ": tiers[0].name: not a text"},
        {V2 "\"tiers\": [{\"name\": \"a\", \"store\": null}]}", ": tiers[0].store: not a text"},
        {V2 "\"tiers\": [{\"name\": \"a\", \"store\": \"file\", \"capacity_bytes\": 1.5}]}",
         ": tiers[0].capacity_bytes: not a whole number from 0 to 2^63 - 1"},
        {V2 "\"tiers\": [{\"name\": \"a\", \"store\": \"file\", \"capacity_bytes\": 9223372036854775808}]}",
         ": tiers[0].capacity_bytes: not a whole number from 0 to 2^63 - 1"},
        {V2 "\"tiers\": [{\"name\": \"a\", \"store\": \"file\", \"bytes\": 1}]}",
         ": tiers[0].bytes: a machine has no such member"},
        {V2 "\"tiers\": [{\"name\": \"a\", \"name\": \"b\", \"store\": \"file\"}]}",
         ": tiers[0].name: this member is there twice"},
        {V2 "\"tiers\": [{\"name\": \"host\", \"store\": \"memory\"}, {\"name\": \"host\", \"store\": \"memory\"}]}",
         ": tiers[1]: a tier of this name is there already"},
        {V2 "\"tiers\": [], \"tiers\": []}", ": tiers: this member is there twice"},
        {V2 "\"engines\": \"dma\"}", ": engines: not a list"},
        {V2 "\"engines\": [\"dma\", 1]}", ": engines[1]: not a text"},
        {V2 "\"engines\": [\"dma\", \"dma\"]}", ": engines[1]: an engine of this name is there already"},
        {V2 "\"links\": {\"host\": {}}}", ": links: not a list"},
        {V2 "\"links\": [[]]}", ": links[0]: not an object"},
        {V2 "\"links\": [{\"near\": \"device\", \"far\": \"tape\"}]}", ": links[0].far: there is no tier of this name"},
        {V2 "\"links\": [{\"near\": \"device\", \"far\": 1}]}", ": links[0].far: not a text"},
        {V2 "\"links\": [{\"near\": \"device\", \"far\": \"host\", \"out\": 1e9}]}", ": links[0].out: not an object"},
        {V2 "\"links\": [{\"near\": \"device\", \"far\": \"host\", \"in\": {\"engine\": 2}}]}",
         ": links[0].in.engine: not a text"},
        {V2 "\"links\": [{\"near\": \"device\", \"far\": \"host\", \"in\": {\"engine\": \"x\"}}]}",
         ": links[0].in: there is no engine of this name"},
        {V2 "\"links\": [{\"near\": \"device\", \"far\": \"host\", \"in\": {\"rate\": 2}}]}",
         ": links[0].in.rate: a machine has no such member"},
        {V2 "\"links\": [{\"near\": \"device\", \"far\": \"host\", \"work_rate\": \"1\"}]}",
         ": links[0].work_rate: not a number above 0"},
        {V2 "\"links\": [{\"near\": \"device\", \"far\": \"host\"}, {\"near\": \"host\", \"far\": \"device\"}]}",
         ": links[1]: these two tiers are linked already"},
        {V2 "\"rates\": []}", ": rates: not an object"},
        {V2 "\"rates\": {\"flops_per_s\": true}}", ": rates.flops_per_s: not a number above 0"},
        {V2 "\"rates\": {\"flops_per_s\": 1e400}}", ": rates.flops_per_s: not a number above 0"},
        {V2 "\"rates\": {\"flops\": 1}}", ": rates.flops: a machine has no such member"},
        {V2 "\"times_ns\": []}", ": times_ns: not an object"},
        {V2 "\"times_ns\": {\"12\": 1}}", ": times_ns.12: a key is 16 of the digits 0-9 and a-f"},
        {V2 "\"times_ns\": {\"0123456789abcdef\": \"1\"}}",
         ": times_ns.0123456789abcdef: not a whole number from 0 to 2^63 - 1"},
        {V2 "\"times_ns\": {\"0123456789abcdef\": 1, \"0123456789abcdef\": 2}}",
         ": times_ns.0123456789abcdef: this key is there twice"},
        {V1 "\"links\": []}", ": links: not an object"},
        {V1 "\"links\": {\"tape\": {}}}", ": links.tape: a machine has no such member"},
        {V1 "\"links\": {\"disk\": []}}", ": links.disk: not an object"},
        {V1 "\"links\": {\"host\": {\"bytes_per_s\": 1}}}", ": links.host.bytes_per_s: a machine has no such member"},
        {"{\"format\": \"ebb-machine\", \"version\": \"2\"}", ": version: not a whole number from 0 to 2^63 - 1"},
        {"{\"format\": \"ebb-machine\",\n \"version\": 2,,}", ":2: "},
    };
    ebb_machine *m = NULL;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        write_text(cases[i].text);
        assert_int_equal(ebb_machine_load(NULL, path, &m), EBB_E_FORMAT);
        assert_int_equal(strncmp(ebb_last_error(), path, strlen(path)), 0);
        const char *why = ebb_last_error() + strlen(path);
        if (strncmp(why, cases[i].why, strlen(cases[i].why)) != 0) { fail_msg("%s: %s", cases[i].text, why); }
    }
    assert_null(m);
}

/* Members in any order, as older ebbs sorted them by name: a link before its tiers, the version last. */
static void test_order(void **state) {
    (void)state;
    write_text(
        "{\"links\": [{\"near\": \"host\", \"far\": \"nvme\", \"out\": {\"bytes_per_s\": 1e9, \"engine\": \"dma\"},"
        " \"in\": {\"bytes_per_s\": 2.5e9, \"engine\": \"dma\"}}], \"engines\": [\"dma\"],"
        " \"tiers\": [{\"name\": \"nvme\", \"store\": \"file\"}], \"format\": \"ebb-machine\", \"version\": 2}");
    ebb_machine *m = NULL;
    ebb_link link;
    assert_int_equal(ebb_machine_load(NULL, path, &m), EBB_OK);
    const uint32_t nvme = ebb_topology_tier(ebb_machine_topology(m), "nvme");
    assert_true(ebb_machine_link(m, EBB_HOST, nvme, &link));
    assert_true(link.out.bytes_per_s == 1e9 && link.in.bytes_per_s == 2.5e9 && link.both_rate == 1);
    ebb_machine_destroy(m);
}

/* Version 1, with all that it had. */
static void test_version_1(void **state) {
    (void)state;
    write_text(V1 "\"links\": {\"host\": {\"in_bytes_per_s\": 1.25e10, \"out_bytes_per_s\": 12e9, \"latency_ns\": 7}},"
                  " \"rates\": {\"flops_per_s\": 7e12, \"bytes_per_s\": 4e11, \"overhead_ns\": 5000}, "
                  "\"times_ns\": {}}");
    ebb_machine *m = NULL;
    ebb_link link;
    assert_int_equal(ebb_machine_load(NULL, path, &m), EBB_OK);
    assert_true(ebb_machine_link(m, EBB_DEVICE, EBB_HOST, &link));
    assert_true(link.in.bytes_per_s == 1.25e10 && link.out.bytes_per_s == 12e9);
    assert_true(link.in.latency_ns == 7 && link.out.latency_ns == 7);
    ebb_machine_destroy(m);
}

/* A machine whose file could not be read again is not written. */
static void test_not_written(void **state) {
    (void)state;
    ebb_machine *m = NULL;
    assert_int_equal(ebb_machine_create(NULL, &m), EBB_OK);
    ebb_machine_set_rates(m, 0, 1, 0);
    (void)unlink(path);
    assert_int_equal(ebb_machine_save(m, path), EBB_E_ARGUMENT);
    assert_int_equal(access(path, F_OK), -1);
    ebb_machine_destroy(m);
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
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_times),       cmocka_unit_test(test_round_trip),
                                       cmocka_unit_test(test_one_share),   cmocka_unit_test(test_step_kinds),
                                       cmocka_unit_test(test_refused),     cmocka_unit_test(test_refused_members),
                                       cmocka_unit_test(test_order),       cmocka_unit_test(test_version_1),
                                       cmocka_unit_test(test_not_written), cmocka_unit_test(test_oom)};
    return cmocka_run_group_tests(tests, NULL, remove_file);
}
