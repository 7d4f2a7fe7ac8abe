/* SPDX-License-Identifier: Apache-2.0
 *
 * Measuring: every kernel of a network gets its time, in an arena of its floor; what it finds in the cache; links and
 * rates are positive; and memory that runs out at any point is given back.
 */
#include "run/measure_cache.h"
#include "run/measure_slow.h"
#include "run_support.h"

#define UNMEASURED_NS ((uint64_t)1 << 50)
#define ODD_SHARE 1e-6 /* that no one measures */

static ebb_machine *make_machine(const ebb_mem *mem) {
    ebb_machine *machine = NULL;
    assert_int_equal(ebb_machine_create(mem, &machine), EBB_OK);
    ebb_machine_set_rates(machine, 1e12, 1e12, UNMEASURED_NS); /* what is not measured shows */
    return machine;
}

static ebb_measure_options every_choice_once(void) {
    ebb_measure_options options = EBB_MEASURE_OPTIONS_INIT;
    options.reps = 1;
    options.all_choices = true;
    return options;
}

static void every_kernel_gets_its_time(void **state) {
    (void)state;
    run_fixture f;
    run_fixture_init(&f, NULL);
    ebb_machine *machine = make_machine(NULL);
    size_t n = 0;
    const ebb_choice *choices = ebb_program_choices(ebb_lowered_program(f.lowered), &n);
    assert_true(n > 20);
    assert_true(ebb_machine_step_time_ns(machine, &choices[0]) >= UNMEASURED_NS);
    ebb_measure_options options = every_choice_once();
    options.size_bytes--;
    assert_int_equal(ebb_run_measure_steps(f.lowered, &options, machine), EBB_E_ARGUMENT);
    options.size_bytes++;
    assert_int_equal(ebb_run_measure_steps(f.lowered, &options, machine), EBB_OK);
    for (size_t c = 0; c < n; c++) { assert_true(ebb_machine_step_time_ns(machine, &choices[c]) < UNMEASURED_NS); }
    ebb_machine_destroy(machine);
    run_fixture_fini(&f);
}

/* An algorithm that was far too slow at two steps is not measured at a third one where it would be so again. */
static void slow_algorithms_are_guessed(void **state) {
    (void)state;
    static ebb_slow_kernels slow;
    const ebb_choice small = {.name = "a", .flops = 1e3}, large = {.name = "a", .flops = 1e6};
    const ebb_choice other = {.name = "b", .flops = 1e6}, none = {.name = "a"};
    uint64_t ns = 0;
    ebb__slow_note(&slow, "conv", &small, 4000);
    assert_false(ebb__slow_guess(&slow, "conv", &large, 100, &ns));
    ebb__slow_note(&slow, "conv", &small, 3000);
    assert_true(ebb__slow_guess(&slow, "conv", &large, 100, &ns));
    assert_int_equal(ns, 3000000);                                      /* by the faster of the two */
    assert_false(ebb__slow_guess(&slow, "conv", &large, 4000000, &ns)); /* it may be worth it */
    assert_false(ebb__slow_guess(&slow, "linear", &large, 100, &ns));
    assert_false(ebb__slow_guess(&slow, "conv", &other, 100, &ns));
    assert_false(ebb__slow_guess(&slow, "conv", &none, 100, &ns));
    for (int i = 0; i < 100; i++) { /* more kinds than there is room for */
        static char names[100][12];
        (void)snprintf(names[i], sizeof names[i], "%d", i);
        const ebb_choice one = {.name = names[i], .flops = 1};
        ebb__slow_note(&slow, "conv", &one, 5);
        ebb__slow_note(&slow, "conv", &one, 5);
    }
    assert_true(ebb__slow_guess(&slow, "conv", &large, 100, &ns));
}

static void note_progress(void *ctx, const char *what, uint64_t n_done, uint64_t n) {
    uint64_t *n_told = ctx;
    assert_string_equal(what, "measuring kernels");
    assert_true(n_done == *n_told && n_done < n);
    (*n_told)++;
}

static void each_kernel_is_told(void **state) {
    (void)state;
    run_fixture f;
    run_fixture_init(&f, NULL);
    ebb_machine *machine = make_machine(NULL);
    uint64_t n_told = 0;
    ebb_measure_options options = every_choice_once();
    options.progress = (ebb_progress){note_progress, &n_told};
    assert_int_equal(ebb_run_measure_steps(f.lowered, &options, machine), EBB_OK);
    assert_true(n_told > 10);
    const uint64_t n_first = n_told;
    assert_int_equal(ebb_run_measure_steps(f.lowered, &options, machine), EBB_OK);
    assert_int_equal(n_told, n_first); /* the machine has them */
    ebb_machine_destroy(machine);
    run_fixture_fini(&f);
}

static bool stop_after_three(void *ctx) {
    const uint64_t *n_told = ctx;
    return *n_told == 3;
}

/* A stop loses nothing: a second call measures only the rest. */
static void a_stop_keeps_what_was_measured(void **state) {
    (void)state;
    run_fixture f;
    run_fixture_init(&f, NULL);
    ebb_machine *machine = make_machine(NULL);
    uint64_t n_all = 0, n_first = 0, n_rest = 0;
    ebb_measure_options options = every_choice_once();
    options.progress = (ebb_progress){note_progress, &n_all};
    assert_int_equal(ebb_run_measure_steps(f.lowered, &options, machine), EBB_OK);
    ebb_machine_destroy(machine);
    machine = make_machine(NULL);
    options.progress.ctx = options.stop_ctx = &n_first;
    options.stop = stop_after_three;
    assert_int_equal(ebb_run_measure_steps(f.lowered, &options, machine), EBB_OK);
    assert_int_equal(n_first, 3);
    options.progress.ctx = options.stop_ctx = &n_rest;
    options.stop = NULL;
    assert_int_equal(ebb_run_measure_steps(f.lowered, &options, machine), EBB_OK);
    assert_int_equal(n_first + n_rest, n_all);
    ebb_machine_destroy(machine);
    run_fixture_fini(&f);
}

#define MOST_OPERANDS 32
static uint32_t count_warm(const ebb_lowered *low, uint32_t step, uint64_t cache_bytes) {
    static const ebb_buf operands[MOST_OPERANDS];
    static ebb_buf warm[MOST_OPERANDS];
    assert_true(low->steps.data[step].n_operands <= MOST_OPERANDS);
    ebb_bench_cache cache = {.size_bytes = cache_bytes, .seen = calloc(low->program->tensors.n, sizeof(uint32_t))};
    const uint32_t n = ebb__cache_find_warm(&cache, low, step, operands, warm);
    free(cache.seen);
    return n;
}

/* In an endless cache everything stays from one iteration to the next, in none nothing does. A cache with room
 * for a tensor four times holds it from one step to the next. */
static void what_was_just_touched_is_warm(void **state) {
    (void)state;
    run_fixture f;
    run_fixture_init(&f, NULL);
    uint32_t n_shared = 0;
    for (uint32_t s = 0; s < f.lowered->steps.n; s++) {
        const ebb_lowered_step *step = &f.lowered->steps.data[s], *before = step - (s > 0);
        uint64_t least_bytes = UINT64_MAX;
        assert_int_equal(count_warm(f.lowered, s, UINT64_MAX), step->n_operands);
        for (uint32_t i = 0; i < step->n_operands; i++) {
            least_bytes = ebb_min_u64(least_bytes, step->bytes[i]);
            for (uint32_t k = 0; k < before->n_operands; k++) {
                if (s == 0 || before->operand[k] != step->operand[i]) { continue; }
                assert_true(count_warm(f.lowered, s, 4 * step->bytes[i]) > 0);
                n_shared++;
            }
        }
        assert_int_equal(count_warm(f.lowered, s, 4 * least_bytes - 1), 0);
    }
    assert_true(n_shared > 10);
    run_fixture_fini(&f);
}

static ebb_lowered *lower_relu(ebb_device *device, int64_t side, ebb_graph **graph_out) {
    ebb_lowered *lowered = NULL;
    assert_int_equal(ebb_graph_create(NULL, graph_out), EBB_OK);
    (void)ebb_graph_relu(*graph_out, NULL, ebb_graph_images(*graph_out, 1, 1, side, side));
    assert_int_equal(ebb_lower(*graph_out, device, &lowered), EBB_OK);
    return lowered;
}

/* The cache is filled with other bytes only for a network that it does not hold. */
static void a_large_network_finds_the_cache_cold(void **state) {
    (void)state;
    ebb_device *device = NULL;
    ebb_device_info info;
    assert_int_equal(ebb_device_open("ref", NULL, &device), EBB_OK);
    assert_int_equal(ebb_device_get_info(device, &info), EBB_OK);
    for (int64_t side = 16; side <= 16384; side *= 1024) {
        ebb_graph *graph = NULL;
        ebb_lowered *lowered = lower_relu(device, side, &graph);
        ebb_bench_cache cache;
        const ebb_run_state at = {.update = 1};
        ebb_stream *stream = NULL;
        assert_int_equal(device->ops->stream_create(device, true, &stream), EBB_OK);
        assert_int_equal(ebb__cache_open(lowered, &at, &cache), EBB_OK);
        assert_true((cache.bound != NULL) == (side > 16 && info.cache_bytes > 0));
        assert_true(cache.size_bytes <= EBB_MOST_CACHE);
        const ebb_warm warm = {&cache.operand[2], cache.bound != NULL};
        assert_int_equal(ebb__cache_prepare(&cache, stream, &warm), EBB_OK);
        device->ops->stream_destroy(stream);
        ebb__cache_close(&cache);
        ebb_lowered_destroy(lowered);
        ebb_graph_destroy(graph);
    }
    ebb_device_close(device);
}

static void set_odd_shares(ebb_link *link) {
    for (int k = 0; k < EBB_N_STEP_KINDS; k++) { link->work_rate[k] = link->copy_rate[k] = ODD_SHARE; }
}

static bool has_odd_shares(const ebb_link *link) {
    bool has = false;
    for (int k = 0; k < EBB_N_STEP_KINDS; k++) {
        has = has || link->work_rate[k] == ODD_SHARE || link->copy_rate[k] == ODD_SHARE;
    }
    return has;
}

static void links_are_measured_within_a_limit(void **state) {
    (void)state;
    ebb_device *device = NULL;
    assert_int_equal(ebb_device_open("ref", NULL, &device), EBB_OK);
    ebb_machine *machine = make_machine(NULL);
    for (uint32_t t = EBB_HOST; t <= EBB_DISK; t++) { /* so that it is seen whether they are measured */
        ebb_link link;
        assert_true(ebb_machine_link(machine, EBB_DEVICE, t, &link));
        link.out.bytes_per_s = link.in.bytes_per_s = 1;
        link.out.latency_ns = link.in.latency_ns = 0;
        set_odd_shares(&link);
        assert_int_equal(ebb_machine_set_link(machine, &link), EBB_OK);
    }
    assert_int_equal(ebb_run_measure_links(device, "/tmp/no/such/folder", NULL, NULL, 1 << 20, machine), EBB_E_IO);
    assert_int_equal(ebb_run_measure_links(device, "/tmp", "plain", NULL, 1 << 20, machine), EBB_OK);
    for (uint32_t t = EBB_HOST; t <= EBB_DISK; t++) {
        ebb_link link;
        assert_true(ebb_machine_link(machine, EBB_DEVICE, t, &link));
        assert_true(link.out.bytes_per_s > 1 && link.in.bytes_per_s > 1 && link.out.latency_ns > 0);
        assert_true(link.both_rate == 1 && has_odd_shares(&link)); /* it would tell nothing in so little */
        link.both_rate = ODD_SHARE;
        assert_int_equal(ebb_machine_set_link(machine, &link), EBB_OK);
    }
    assert_int_equal(ebb_run_measure_links(device, "/tmp", NULL, NULL, 8 << 20, machine), EBB_OK);
    for (uint32_t t = EBB_HOST; t <= EBB_DISK; t++) {
        ebb_link link;
        assert_true(ebb_machine_link(machine, EBB_DEVICE, t, &link));
        assert_true(link.both_rate > ODD_SHARE && link.both_rate <= 1 && !has_odd_shares(&link));
    }
    ebb_link disk, between; /* the disk is what both wait for */
    assert_true(ebb_machine_link(machine, EBB_DEVICE, EBB_DISK, &disk));
    assert_true(ebb_machine_link(machine, EBB_HOST, EBB_DISK, &between));
    assert_true(between.out.bytes_per_s == disk.out.bytes_per_s && between.in.bytes_per_s == disk.in.bytes_per_s);
    ebb_machine_destroy(machine);
    ebb_device_close(device);
}

static ebb_status measure(const ebb_mem *mem) {
    ebb_device_options options = EBB_DEVICE_OPTIONS_INIT;
    options.mem = mem;
    ebb_device *device = NULL;
    EBB_TRY(ebb_device_open("ref", &options, &device));
    ebb_machine *machine = make_machine(NULL);
    ebb_status st = ebb_run_measure_links(device, "/tmp", NULL, NULL, 4096, machine);
    ebb_machine_destroy(machine);
    ebb_device_close(device);
    return st;
}

static void any_allocation_may_fail(void **state) {
    (void)state;
    OOM_LOOP(mem, st, { st = measure(mem); });
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_kernel_gets_its_time),
        cmocka_unit_test(slow_algorithms_are_guessed),
        cmocka_unit_test(each_kernel_is_told),
        cmocka_unit_test(a_stop_keeps_what_was_measured),
        cmocka_unit_test(what_was_just_touched_is_warm),
        cmocka_unit_test(a_large_network_finds_the_cache_cold),
        cmocka_unit_test(links_are_measured_within_a_limit),
        cmocka_unit_test(any_allocation_may_fail),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
