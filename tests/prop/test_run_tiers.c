/* SPDX-License-Identifier: Apache-2.0
 *
 * What no policy asks of the runtime yet: tensors in parts, more tiers than the usual, moves between them. Plans by
 * chance for a small network are proven and run, and end with the bits of a run that moves nothing. So do plans of
 * policies in which copies move on from a full host to the disk, or from a full disk that is faster to the host. Moves
 * from file to file on two engines do not get into each other's way, and copies to and from a file go on at both ends
 * at once.
 */
#include "plan_chance.h"

#include "run_support.h"

#include <sched.h>
#include <stdatomic.h>

#define N_ITERATIONS 3
#define MOVE_BYTES ((uint64_t)1 << 22)
#define MOVE_ROUNDS 24

/* The first iterations with a plan, as a hash of what is there between them. */
static uint64_t hash_iterations(const run_fixture *f, const ebb_plan *plan, ebb_run_stats *stats_out) {
    ebb_run_options options = EBB_RUN_OPTIONS_INIT;
    options.disk_dir = "/tmp";
    ebb_run *run = NULL;
    uint64_t h = EBB_HASH_INIT;
    if (ebb_run_create(f->lowered, plan, &options, &run) != EBB_OK) { fail_msg("%s", ebb_last_error()); }
    assert_int_equal(ebb_run_init_values(run, 3), EBB_OK);
    for (int i = 0; i < RUN_BATCH * 64; i++) { run_images(run)[i] = (float)(i % 7) - 3.0f; }
    for (int i = 0; i < RUN_BATCH; i++) { run_labels(run)[i] = i; }
    for (uint64_t i = 0; i < N_ITERATIONS; i++) {
        assert_int_equal(ebb_run_iteration(run, i, i + 1, 0.05f), EBB_OK);
        h = run_hash_values(f, run, h);
    }
    *stats_out = ebb_run_get_stats(run);
    ebb_run_destroy(run);
    return h;
}

static void plans_by_chance_run(void **state) {
    (void)state;
    run_fixture f;
    ebb_run_stats stats;
    uint64_t moved_on_bytes = 0, n_again = 0;
    const uint64_t n = getenv("EBB_TEST_ALL") != NULL ? 100 : 10;
    run_fixture_init(&f, NULL);
    const uint64_t expected = hash_iterations(&f, f.plan, &stats);
    for (uint64_t seed = 1; seed <= n; seed++) {
        ebb_machine *machine = NULL;
        ebb_proof proof;
        ebb_plan *plan = make_plan(ebb_lowered_program(f.lowered), seed, &machine);
        if (ebb_plan_check(ebb_lowered_program(f.lowered), plan) != EBB_OK ||
            ebb_run_prove(f.graph, f.device, plan, &proof) != EBB_OK) {
            fail_msg("seed %zu: %s", (size_t)seed, ebb_last_error());
        }
        assert_int_equal(hash_iterations(&f, plan, &stats), expected);
        assert_int_equal(stats.moved_on_bytes, ebb_plan_get_summary(plan).moved_on_bytes);
        moved_on_bytes += stats.moved_on_bytes;
        n_again += stats.n_recomputed_steps;
        ebb_plan_destroy(plan);
        ebb_machine_destroy(machine);
    }
    assert_true(moved_on_bytes > 0 && n_again > 0);
    run_fixture_fini(&f);
}

/* ---- a full host --------------------------------------------------------------------------------- */

/* A near tier and a far one of a tenth of its speed; the way between the two as fast as the far one, or so slow that
 * nothing is worth moving. */
static ebb_machine *make_pool(uint32_t near, uint32_t far, double between_per_s) {
    ebb_machine *machine = NULL;
    ebb_link fast, slow, between;
    assert_int_equal(ebb_machine_create(NULL, &machine), EBB_OK);
    assert_true(ebb_machine_link(machine, EBB_DEVICE, near, &fast));
    assert_true(ebb_machine_link(machine, EBB_DEVICE, far, &slow));
    assert_true(ebb_machine_link(machine, EBB_HOST, EBB_DISK, &between));
    fast.out.bytes_per_s = fast.in.bytes_per_s = 1e9;
    slow.out.bytes_per_s = slow.in.bytes_per_s = 1e8;
    between.out.bytes_per_s = between.in.bytes_per_s = between_per_s;
    fast.out.latency_ns = fast.in.latency_ns = slow.out.latency_ns = slow.in.latency_ns = 0;
    between.out.latency_ns = between.in.latency_ns = 0;
    assert_int_equal(ebb_machine_set_link(machine, &fast), EBB_OK);
    assert_int_equal(ebb_machine_set_link(machine, &slow), EBB_OK);
    assert_int_equal(ebb_machine_set_link(machine, &between), EBB_OK);
    ebb_machine_set_rates(machine, 4e9, 4e9, 0);
    return machine;
}

static uint64_t predict(const run_fixture *f, const ebb_plan *plan, const ebb_machine *machine) {
    ebb_timeline timeline;
    assert_int_equal(ebb_plan_simulate(ebb_lowered_program(f->lowered), plan, machine, &timeline, NULL, NULL), EBB_OK);
    return timeline.iteration_ns;
}

static void move_on_from(uint32_t near, uint32_t far) {
    static const char *const policies[] = {"utp", "tensor-cache", "budget", "swap"};
    run_fixture f;
    ebb_run_stats stats;
    ebb_machine *pool = make_pool(near, far, 1e8), *apart = make_pool(near, far, 1);
    run_fixture_init(&f, NULL);
    const uint64_t expected = hash_iterations(&f, f.plan, &stats);
    const ebb_program *program = ebb_lowered_program(f.lowered);
    uint64_t moved_on_bytes = 0;
    for (size_t p = 0; p < sizeof policies / sizeof policies[0]; p++) {
        for (uint64_t near_bytes = 8 << 10; near_bytes <= 24 << 10; near_bytes += 8 << 10) {
            ebb_plan *plan = NULL, *without = NULL;
            ebb_proof proof;
            ebb_plan_options options = EBB_PLAN_OPTIONS_INIT;
            options.policy = policies[p];
            options.no_recompute = true;
            options.budget_bytes = 76 << 10;
            options.tier_bytes[near] = near_bytes;
            options.tier_bytes[far] = UINT64_MAX;
            if (ebb_plan_make(program, pool, &options, &plan, NULL) != EBB_OK) { fail_msg("%s", ebb_last_error()); }
            assert_int_equal(ebb_plan_make(program, apart, &options, &without, NULL), EBB_OK);
            const ebb_plan_summary sum = ebb_plan_get_summary(plan);
            assert_true(sum.tier_bytes[near] <= near_bytes);
            assert_int_equal(ebb_plan_get_summary(without).moved_on_bytes, 0);
            assert_true(predict(&f, plan, pool) <= predict(&f, without, pool));
            if (sum.moved_on_bytes > 0) {
                assert_true(predict(&f, plan, pool) < predict(&f, without, pool));
                assert_int_equal(ebb_run_prove(f.graph, f.device, plan, &proof), EBB_OK);
                assert_int_equal(hash_iterations(&f, plan, &stats), expected);
                assert_int_equal(stats.moved_on_bytes, sum.moved_on_bytes);
                moved_on_bytes += sum.moved_on_bytes;
            }
            ebb_plan_destroy(without);
            ebb_plan_destroy(plan);
        }
    }
    assert_true(moved_on_bytes > 0);
    ebb_machine_destroy(pool);
    ebb_machine_destroy(apart);
    run_fixture_fini(&f);
}

static void copies_move_on_from_a_full_host(void **state) {
    (void)state;
    move_on_from(EBB_HOST, EBB_DISK);
}

static void copies_move_on_from_a_fast_disk(void **state) {
    (void)state;
    move_on_from(EBB_DISK, EBB_HOST);
}

/* ---- moves side by side -------------------------------------------------------------------------- */

/* Disk and two more files. Whatever disk and far move to slow has an engine of its own. */
enum { FROM_A = EBB_DISK, TO, FROM_B };
enum { ENGINE_A = 1, ENGINE_B };

static ebb_machine *make_files(void) {
    ebb_machine *machine = NULL;
    const ebb_tier slow = {"slow", EBB_STORE_FILE, UINT64_MAX}, far = {"far", EBB_STORE_FILE, UINT64_MAX};
    const ebb_way a = {1e9, 0, ENGINE_A}, b = {1e9, 0, ENGINE_B};
    uint32_t tier = 0;
    assert_int_equal(ebb_machine_create(NULL, &machine), EBB_OK);
    assert_int_equal(ebb_machine_add_tier(machine, &slow, &tier), EBB_OK);
    assert_int_equal(tier, TO);
    assert_int_equal(ebb_machine_add_tier(machine, &far, &tier), EBB_OK);
    assert_int_equal(tier, FROM_B);
    const ebb_link links[] = {{FROM_A, TO, a, a, EBB_LINK_SHARES_ONE}, {FROM_B, TO, b, b, EBB_LINK_SHARES_ONE}};
    for (size_t i = 0; i < 2; i++) { assert_int_equal(ebb_machine_set_link(machine, &links[i]), EBB_OK); }
    return machine;
}

static void moves_between_files_go_side_by_side(void **state) {
    (void)state;
    ebb_device *device = NULL;
    ebb_machine *machine = make_files();
    ebb_tiers tiers;
    ebb_stream *stream[2] = {NULL};
    unsigned char *bytes = malloc(MOVE_BYTES), *got = malloc(MOVE_BYTES);
    const ebb_tiers_options options = {.topology = ebb_machine_topology(machine),
                                       .bytes = {[FROM_A] = MOVE_BYTES, [TO] = 2 * MOVE_BYTES, [FROM_B] = MOVE_BYTES},
                                       .largest_bytes = MOVE_BYTES,
                                       .disk_dir = "/tmp"};
    assert_int_equal(ebb_device_open("ref", NULL, &device), EBB_OK);
    assert_int_equal(ebb__tiers_open(device, &options, &tiers), EBB_OK);
    ebb_transfer move[2] = {
        {.tiers = &tiers, .from = FROM_A, .to = TO, .engine = ENGINE_A, .tensor = "t", .size_bytes = MOVE_BYTES},
        {.tiers = &tiers,
         .from = FROM_B,
         .to = TO,
         .engine = ENGINE_B,
         .tensor = "t",
         .to_offset = MOVE_BYTES,
         .size_bytes = MOVE_BYTES},
    };
    for (int i = 0; i < 2; i++) {
        const ebb_home home = {.size_bytes = MOVE_BYTES, .tier = move[i].from};
        memset(bytes, i + 1, MOVE_BYTES);
        assert_int_equal(ebb__tiers_move(&tiers, EBB_COPY_OUT, "t", &home, bytes), EBB_OK);
        assert_int_equal(device->ops->stream_create(device, false, &stream[i]), EBB_OK);
    }
    for (int round = 0; round < MOVE_ROUNDS; round++) {
        for (int i = 0; i < 2; i++) { assert_int_equal(ebb__tiers_transfer(stream[i], &move[i]), EBB_OK); }
        for (int i = 0; i < 2; i++) { assert_int_equal(device->ops->stream_sync(stream[i]), EBB_OK); }
        for (int i = 0; i < 2; i++) {
            const ebb_home home = {.size_bytes = MOVE_BYTES, .tier = TO, .offset = move[i].to_offset};
            assert_int_equal(ebb__tiers_move(&tiers, EBB_COPY_IN, "t", &home, got), EBB_OK);
            memset(bytes, i + 1, MOVE_BYTES);
            assert_memory_equal(got, bytes, MOVE_BYTES);
        }
    }
    for (int i = 0; i < 2; i++) { device->ops->stream_destroy(stream[i]); }
    ebb__tiers_close(&tiers);
    ebb_device_close(device);
    ebb_machine_destroy(machine);
    free(bytes);
    free(got);
}

/* ---- staged copies ------------------------------------------------------------------------------- */

#define STAGED_BYTES ((uint64_t)6 << 20) /* six pieces */
#define PATIENCE_NS ((uint64_t)20 * 1000 * 1000 * 1000)

static atomic_int n_copied, n_called, n_overlapped;
static const ebb_backend_ops *inner_ops;

static bool comes_to_be(const atomic_int *count, int at_least) {
    const uint64_t begin_ns = ebb__now_ns();
    while (atomic_load(count) < at_least && ebb__now_ns() - begin_ns < PATIENCE_NS) { sched_yield(); }
    return atomic_load(count) >= at_least;
}

static ebb_status count_copy(void *ctx) {
    (void)ctx;
    (void)atomic_fetch_add(&n_copied, 1);
    return EBB_OK;
}

/* A copy is counted when it has been made. */
static ebb_status copy_counted(ebb_stream *stream, ebb_copy_direction direction, ebb_buf buf, void *host) {
    const ebb_status st = inner_ops->copy(stream, direction, buf, host);
    return st == EBB_OK ? inner_ops->call(stream, count_copy, NULL) : st;
}

typedef struct slow_call {
    ebb_call_fn fn;
    void *ctx;
    bool out;
} slow_call;

static slow_call slow_calls[64];
static size_t n_slow_calls;
static bool is_out;

/* The file's part of a piece: out, it lasts until the next piece has been copied to the other buffer; in, the second
 * one begins without a copy of the first. */
static ebb_status call_slowly(void *ctx) {
    const slow_call *c = ctx;
    const int number = atomic_fetch_add(&n_called, 1) + 1;
    if (c->out && number < 6) { (void)atomic_fetch_add(&n_overlapped, comes_to_be(&n_copied, number + 1)); }
    return c->fn(c->ctx);
}

static ebb_status call_counted(ebb_stream *stream, ebb_call_fn fn, void *ctx) {
    slow_calls[n_slow_calls] = (slow_call){fn, ctx, is_out};
    return inner_ops->call(stream, call_slowly, &slow_calls[n_slow_calls++]);
}

/* In: the device's copy of a piece lasts until the file's next piece is being read. */
static ebb_status wait_for_call(void *ctx) {
    const int number = (int)(intptr_t)ctx;
    if (number < 6) { (void)atomic_fetch_add(&n_overlapped, comes_to_be(&n_called, number + 1)); }
    return EBB_OK;
}

static int n_copies_in;

static ebb_status copy_slowly(ebb_stream *stream, ebb_copy_direction direction, ebb_buf buf, void *host) {
    if (is_out) { return copy_counted(stream, direction, buf, host); }
    const ebb_status st = inner_ops->call(stream, wait_for_call, (void *)(intptr_t)++n_copies_in);
    return st == EBB_OK ? inner_ops->copy(stream, direction, buf, host) : st;
}

static void transfer_staged(ebb_tiers *tiers, ebb_stream *stream, ebb_transfer *transfer) {
    atomic_store(&n_copied, 0);
    atomic_store(&n_called, 0);
    atomic_store(&n_overlapped, 0);
    n_slow_calls = 0;
    is_out = transfer->from == EBB_DEVICE;
    assert_int_equal(ebb__tiers_count_commands(transfer), 12);
    assert_int_equal(ebb__tiers_transfer(stream, transfer), EBB_OK);
    assert_int_equal(inner_ops->stream_sync(stream), EBB_OK);
    assert_int_equal(ebb__tiers_drain(tiers), EBB_OK);
    assert_int_equal(ebb__tiers_check(tiers), EBB_OK);
    assert_int_equal(atomic_load(&n_called), 6);
    assert_int_equal(atomic_load(&n_overlapped), 5);
}

/* A device out of the host's sight: each piece of a copy is on its way between device and buffer while the file has its
 * neighbour. And the bytes are right. */
static void a_file_and_the_device_copy_at_once(void **state) {
    (void)state;
    ebb_device *device = NULL;
    ebb_arena *arena = NULL;
    ebb_stream *stream = NULL;
    ebb_machine *machine = NULL;
    ebb_tiers tiers;
    assert_int_equal(ebb_machine_create(NULL, &machine), EBB_OK);
    assert_int_equal(ebb_device_open("ref", NULL, &device), EBB_OK);
    inner_ops = device->ops;
    ebb_backend_ops ops = *device->ops;
    ops.host_visible = false;
    ops.copy = copy_slowly;
    ops.call = call_counted;
    device->ops = &ops;
    assert_int_equal(ebb_arena_create(device, STAGED_BYTES, &arena), EBB_OK);
    assert_int_equal(inner_ops->stream_create(device, false, &stream), EBB_OK);
    const ebb_topology *topology = ebb_machine_topology(machine);
    const ebb_tiers_options options = {
        .topology = topology, .bytes = {[EBB_DISK] = STAGED_BYTES}, .largest_bytes = STAGED_BYTES, .disk_dir = "/tmp"};
    assert_int_equal(ebb__tiers_open(device, &options, &tiers), EBB_OK);
    const ebb_buf buf = {arena->memory, 0, STAGED_BYTES};
    unsigned char *bytes = inner_ops->host_address(buf);
    ebb_transfer way[2] = {
        {.tiers = &tiers, .from = EBB_DEVICE, .to = EBB_DISK, .engine = topology->way[EBB_DEVICE][EBB_DISK]},
        {.tiers = &tiers, .from = EBB_DISK, .to = EBB_DEVICE, .engine = topology->way[EBB_DISK][EBB_DEVICE]},
    };
    for (uint64_t i = 0; i < STAGED_BYTES; i++) { bytes[i] = (unsigned char)(i >> 12 ^ i); }
    for (int d = 0; d < 2; d++) {
        way[d].buf = buf;
        way[d].size_bytes = STAGED_BYTES;
        way[d].tensor = "t";
        transfer_staged(&tiers, stream, &way[d]);
        if (d == 0) { memset(bytes, 0, STAGED_BYTES); }
    }
    for (uint64_t i = 0; i < STAGED_BYTES; i++) { assert_int_equal(bytes[i], (unsigned char)(i >> 12 ^ i)); }
    inner_ops->stream_destroy(stream);
    ebb__tiers_close(&tiers);
    ebb_arena_destroy(arena);
    device->ops = inner_ops;
    ebb_machine_destroy(machine);
    ebb_device_close(device);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(plans_by_chance_run),
        cmocka_unit_test(copies_move_on_from_a_full_host),
        cmocka_unit_test(copies_move_on_from_a_fast_disk),
        cmocka_unit_test(moves_between_files_go_side_by_side),
        cmocka_unit_test(a_file_and_the_device_copy_at_once),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
