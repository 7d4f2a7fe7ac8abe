/* SPDX-License-Identifier: Apache-2.0
 *
 * Memory of other processes as a tier, without other processes: the remote is a piece of this one's memory. Ranges of
 * it are apart, a run that keeps its tensors there ends with the bits of one that copies nothing, and a transport that
 * fails, or has too little, is an error that names tensor and tier.
 */
#include "run_support.h"

#include <stdatomic.h>
#include <unistd.h>

#define REMOTE_BYTES ((uint64_t)1 << 20)
#define N_ITERATIONS 3

typedef struct far_memory {
    unsigned char bytes[REMOTE_BYTES];
    atomic_ullong n_out_bytes, n_in_bytes;
    atomic_int n_moves;
    atomic_int fails_at; /* this move and all after it; 0: none */
    bool fails_out;
    bool is_closed;
} far_memory;

static bool move(void *ctx, bool out, void *memory, uint64_t n, uint64_t at, char why_out[EBB_REMOTE_WHY_BYTES]) {
    far_memory *far = ctx;
    assert_true(at <= REMOTE_BYTES && n <= REMOTE_BYTES - at);
    const int number = atomic_fetch_add(&far->n_moves, 1) + 1;
    const int fails_at = atomic_load(&far->fails_at);
    if (fails_at > 0 && number >= fails_at && out == far->fails_out) {
        (void)snprintf(why_out, EBB_REMOTE_WHY_BYTES, "the line is cut");
        return false;
    }
    (void)atomic_fetch_add(out ? &far->n_out_bytes : &far->n_in_bytes, n);
    if (out) {
        memcpy(far->bytes + at, memory, (size_t)n);
    } else {
        memcpy(memory, far->bytes + at, (size_t)n);
    }
    return true;
}

static void close_far(void *ctx) {
    ((far_memory *)ctx)->is_closed = true;
}

static far_memory *make_far(uint64_t size_bytes, ebb_remote **remote_out) {
    far_memory *far = calloc(1, sizeof *far);
    ebb_remote_ops ops = EBB_REMOTE_OPS_INIT;
    assert_non_null(far);
    ops.move = move;
    ops.close = close_far;
    assert_int_equal(ebb_remote_create(NULL, &ops, far, size_bytes, remote_out), EBB_OK);
    return far;
}

static void end_far(far_memory *far, ebb_remote *remote) {
    ebb_remote_destroy(remote);
    assert_true(far->is_closed);
    free(far);
}

/* ---- the object ---------------------------------------------------------------------------------- */

static void *give_nothing(void *ctx, size_t size_bytes) {
    (void)ctx;
    (void)size_bytes;
    return NULL;
}

static void arguments_are_checked(void **state) {
    (void)state;
    far_memory far;
    ebb_remote *remote = NULL;
    ebb_remote_ops ops = EBB_REMOTE_OPS_INIT;
    assert_int_equal(ebb_remote_create(NULL, &ops, &far, 1, &remote), EBB_E_ARGUMENT); /* nothing moves */
    ops.move = move;
    assert_int_equal(ebb_remote_create(NULL, &ops, &far, 0, &remote), EBB_E_ARGUMENT);
    ops.size_bytes--;
    assert_int_equal(ebb_remote_create(NULL, &ops, &far, 1, &remote), EBB_E_ARGUMENT);
    assert_int_equal(ebb_remote_open_mpi(NULL, 0, &remote), EBB_E_ARGUMENT);
    assert_null(remote);
    ops.size_bytes++;
    const ebb_mem nothing = {.alloc = give_nothing};
    assert_int_equal(ebb_remote_create(&nothing, &ops, &far, 1, &remote), EBB_E_NO_MEMORY);
    assert_int_equal(ebb_remote_create(NULL, &ops, &far, 1, &remote), EBB_OK);
    ebb_remote_destroy(remote); /* there is no close to call */
}

static void claims_are_apart(void **state) {
    (void)state;
    ebb_remote *remote = NULL;
    far_memory *far = make_far(100, &remote);
    ebb_remote_claim a = {0}, b = {0}, c = {0}, d = {0};
    assert_int_equal(ebb_remote_bytes(remote), 100);
    assert_false(ebb__remote_claim(remote, 101, &a));
    assert_true(ebb__remote_claim(remote, 30, &a));
    assert_true(ebb__remote_claim(remote, 20, &b));
    assert_true(ebb__remote_claim(remote, 50, &c));
    assert_false(ebb__remote_claim(remote, 1, &d));
    ebb__remote_release(&d); /* it holds nothing */
    ebb__remote_release(&b);
    assert_false(ebb__remote_claim(remote, 21, &d));
    assert_true(ebb__remote_claim(remote, 15, &b)); /* the hole, twice */
    assert_true(ebb__remote_claim(remote, 5, &d));
    assert_true(a.begin == 0 && b.begin == 30 && d.begin == 45 && c.begin == 50);
    ebb__remote_release(&a);
    ebb__remote_release(&b);
    assert_true(ebb__remote_claim(remote, 45, &a) && a.begin == 0);
    char why[EBB_REMOTE_WHY_BYTES], bytes[5] = "abcd", got[5] = "";
    assert_true(ebb__remote_move(&d, true, bytes, 5, 0, why));
    assert_string_equal((char *)far->bytes + 45, "abcd");
    assert_true(ebb__remote_move(&d, false, got, 3, 2, why));
    assert_string_equal(got, "cd");
    ebb__remote_release(&a);
    ebb__remote_release(&c);
    ebb__remote_release(&d);
    assert_true(ebb__remote_claim(remote, 100, &a));
    ebb__remote_release(&a);
    end_far(far, remote);
}

/* ---- the machine --------------------------------------------------------------------------------- */

static void a_machine_has_one_remote_tier(void **state) {
    (void)state;
    char path[] = "/tmp/ebb-remote-XXXXXX";
    ebb_machine *machine = NULL, *read = NULL;
    ebb_link link;
    uint32_t tier = 0, again = 0;
    assert_int_equal(ebb_machine_create(NULL, &machine), EBB_OK);
    assert_int_equal(ebb_topology_tier_of(ebb_machine_topology(machine), EBB_STORE_REMOTE), EBB_MAX_TIERS);
    assert_int_equal(ebb_topology_tier_of(ebb_machine_topology(machine), EBB_STORE_FILE), EBB_DISK);
    assert_int_equal(ebb_machine_add_remote(machine, &tier), EBB_OK);
    assert_int_equal(ebb_machine_add_remote(machine, &again), EBB_OK);
    assert_true(tier == again && ebb_topology_tier(ebb_machine_topology(machine), "remote") == tier);
    assert_true(ebb_machine_link(machine, EBB_DEVICE, tier, &link) && ebb_machine_link(machine, EBB_HOST, tier, &link));
    link.out.bytes_per_s = 123;
    assert_int_equal(ebb_machine_set_link(machine, &link), EBB_OK);
    close(mkstemp(path));
    assert_int_equal(ebb_machine_save(machine, path), EBB_OK);
    assert_int_equal(ebb_machine_load(NULL, path, &read), EBB_OK);
    unlink(path);
    assert_int_equal(ebb_machine_add_remote(read, &again), EBB_OK);
    assert_true(again == tier && ebb_machine_topology(read)->n_tiers == ebb_machine_topology(machine)->n_tiers);
    assert_true(ebb_machine_link(read, EBB_HOST, tier, &link) && link.out.bytes_per_s == 123);
    ebb_machine_destroy(read);
    ebb_machine_destroy(machine);
}

static void its_link_is_measured(void **state) {
    (void)state;
    ebb_remote *remote = NULL;
    far_memory *far = make_far(REMOTE_BYTES, &remote);
    ebb_device *device = NULL;
    ebb_machine *machine = NULL;
    ebb_link link, between;
    uint32_t tier = 0;
    assert_int_equal(ebb_device_open("ref", NULL, &device), EBB_OK);
    assert_int_equal(ebb_machine_create(NULL, &machine), EBB_OK);
    assert_int_equal(ebb_machine_add_remote(machine, &tier), EBB_OK);
    assert_true(ebb_machine_link(machine, EBB_DEVICE, tier, &link));
    link.out.bytes_per_s = link.in.bytes_per_s = 1;
    assert_int_equal(ebb_machine_set_link(machine, &link), EBB_OK);
    assert_int_equal(ebb_run_measure_links(device, NULL, NULL, NULL, 8 << 20, machine), EBB_OK);
    assert_true(ebb_machine_link(machine, EBB_DEVICE, tier, &link) && link.out.bytes_per_s == 1);
    assert_int_equal(ebb_run_measure_links(device, NULL, NULL, remote, 8 << 20, machine), EBB_OK);
    assert_true(ebb_machine_link(machine, EBB_DEVICE, tier, &link));
    assert_true(link.out.bytes_per_s > 1 && link.in.bytes_per_s > 1);
    assert_true(ebb_machine_link(machine, EBB_HOST, tier, &between));
    assert_true(between.out.bytes_per_s == link.out.bytes_per_s && between.in.bytes_per_s == link.in.bytes_per_s);
    ebb_machine_destroy(machine);
    ebb_device_close(device);
    end_far(far, remote);
}

/* ---- runs ---------------------------------------------------------------------------------------- */

/* A remote of a tenth of the host's speed. */
static ebb_machine *make_pool(uint32_t *tier_out) {
    ebb_machine *machine = NULL;
    assert_int_equal(ebb_machine_create(NULL, &machine), EBB_OK);
    assert_int_equal(ebb_machine_add_remote(machine, tier_out), EBB_OK);
    const uint32_t ends[3][2] = {{EBB_DEVICE, EBB_HOST}, {EBB_DEVICE, *tier_out}, {EBB_HOST, *tier_out}};
    for (int i = 0; i < 3; i++) {
        ebb_link link;
        assert_true(ebb_machine_link(machine, ends[i][0], ends[i][1], &link));
        link.out.bytes_per_s = link.in.bytes_per_s = i == 0 ? 1e9 : 1e8;
        link.out.latency_ns = link.in.latency_ns = 0;
        assert_int_equal(ebb_machine_set_link(machine, &link), EBB_OK);
    }
    ebb_machine_set_rates(machine, 4e9, 4e9, 0);
    return machine;
}

/* Without a host at the least budget; else at one at which copies move on from a host of so many bytes. */
static ebb_plan *plan_for_remote(const run_fixture *f, uint64_t host_bytes) {
    ebb_plan *plan = NULL;
    ebb_no_fit no_fit = {0};
    uint32_t tier = 0;
    ebb_machine *machine = make_pool(&tier);
    ebb_plan_options options = EBB_PLAN_OPTIONS_INIT;
    options.policy = host_bytes > 0 ? "tensor-cache" : "budget";
    options.no_recompute = true;
    options.tier_bytes[EBB_HOST] = host_bytes;
    options.tier_bytes[tier] = REMOTE_BYTES;
    options.budget_bytes = 1;
    const ebb_program *program = ebb_lowered_program(f->lowered);
    assert_int_equal(ebb_plan_make(program, machine, &options, &plan, &no_fit), EBB_E_NO_FIT);
    options.budget_bytes = host_bytes > 0 ? 76 << 10 : no_fit.least_budget_bytes;
    assert_int_equal(ebb_plan_make(program, machine, &options, &plan, &no_fit), EBB_OK);
    assert_true(ebb_plan_get_summary(plan).tier_bytes[tier] > 0);
    ebb_machine_destroy(machine);
    return plan;
}

static uint64_t remote_bytes_of(const ebb_plan *plan) {
    return ebb_plan_get_summary(plan).tier_bytes[ebb_topology_tier_of(ebb_plan_topology(plan), EBB_STORE_REMOTE)];
}

static ebb_run *start(const run_fixture *f, const ebb_plan *plan, ebb_remote *remote) {
    ebb_run_options options = EBB_RUN_OPTIONS_INIT;
    ebb_run *run = NULL;
    options.remote = remote;
    if (ebb_run_create(f->lowered, plan, &options, &run) != EBB_OK) { fail_msg("%s", ebb_last_error()); }
    assert_int_equal(ebb_run_init_values(run, 3), EBB_OK);
    for (int i = 0; i < RUN_BATCH * 64; i++) { run_images(run)[i] = (float)(i % 7) - 3.0f; }
    for (int i = 0; i < RUN_BATCH; i++) { run_labels(run)[i] = i; }
    return run;
}

/* The losses, and then all that persists or is kept, as a hash. */
static uint64_t train(const run_fixture *f, ebb_run *run) {
    uint64_t h = EBB_HASH_INIT;
    for (uint64_t i = 0; i < N_ITERATIONS; i++) {
        if (ebb_run_iteration(run, i, i + 1, 0.05f) != EBB_OK) { fail_msg("%s", ebb_last_error()); }
        const float loss = run_loss(run);
        h = ebb__hash(h, &loss, sizeof loss);
    }
    return run_hash_values(f, run, h);
}

/* With the remote alone, and with a host that is full, from which copies move on to it. */
static void check_bits(bool host_visible) {
    static const uint64_t host_bytes[] = {0, 8 << 10};
    run_fixture f;
    ebb_remote *remote = NULL;
    run_fixture_init(&f, NULL);
    const ebb_backend_ops *inner = f.device->ops;
    ebb_backend_ops ops = *inner;
    ops.host_visible = host_visible;
    f.device->ops = &ops;
    ebb_run *run = start(&f, f.plan, NULL);
    const uint64_t expected = train(&f, run);
    ebb_run_destroy(run);
    for (size_t i = 0; i < sizeof host_bytes / sizeof host_bytes[0]; i++) {
        far_memory *far = make_far(REMOTE_BYTES, &remote);
        ebb_proof proof;
        ebb_plan *plan = plan_for_remote(&f, host_bytes[i]);
        const ebb_plan_summary sum = ebb_plan_get_summary(plan);
        run = start(&f, plan, remote);
        assert_true(train(&f, run) == expected);
        const ebb_run_stats stats = ebb_run_get_stats(run);
        assert_int_equal(stats.remote_bytes, remote_bytes_of(plan));
        assert_int_equal(stats.arena_bytes, sum.peak_bytes);
        assert_int_equal(stats.moved_on_bytes, sum.moved_on_bytes);
        uint64_t moved = 0;
        for (uint32_t e = 0; e < EBB_MAX_ENGINES; e++) { moved += stats.engine_bytes[e]; }
        assert_int_equal(moved, sum.moved_out_bytes + sum.moved_in_bytes + sum.moved_on_bytes);
        if (host_bytes[i] == 0) {
            assert_true(far->n_out_bytes >= N_ITERATIONS * sum.moved_out_bytes);
            assert_true(far->n_in_bytes >= N_ITERATIONS * sum.moved_in_bytes);
        } else {
            assert_true(sum.moved_on_bytes > 0);
        }
        assert_true(far->n_in_bytes > 0 && stats.file_io == NULL);
        ebb_run_destroy(run);
        assert_int_equal(ebb_run_prove(f.graph, f.device, plan, &proof), EBB_OK);
        ebb_plan_destroy(plan);
        end_far(far, remote);
    }
    f.device->ops = inner;
    run_fixture_fini(&f);
}

static void a_run_in_it_has_the_same_bits(void **state) {
    (void)state;
    check_bits(true);
}

static void from_a_device_that_the_host_cannot_read_too(void **state) {
    (void)state;
    check_bits(false);
}

/* Whether the message names the tier and one of the program's tensors. */
static bool names_both(const run_fixture *f, const char *what) {
    size_t n = 0;
    char begins[300];
    bool found = false;
    const char *message = ebb_last_error(), *why = "of the tier's memory: the line is cut";
    const ebb_tensor *tensors = ebb_program_tensors(ebb_lowered_program(f->lowered), &n);
    for (size_t t = 0; t < n; t++) {
        (void)snprintf(begins, sizeof begins, "remote tier: cannot %s tensor '%s', ", what, tensors[t].name);
        found = found || strncmp(message, begins, strlen(begins)) == 0;
    }
    const size_t end = strlen(message), tail = strlen(why);
    return found && end > tail && strcmp(message + end - tail, why) == 0;
}

static void faults_name_tensor_and_tier(void **state) {
    (void)state;
    run_fixture f;
    ebb_remote *remote = NULL;
    run_fixture_init(&f, NULL);
    ebb_plan *plan = plan_for_remote(&f, 0);
    for (int out = 0; out < 2; out++) {
        far_memory *far = make_far(REMOTE_BYTES, &remote);
        far->fails_out = out == 1;
        ebb_run *run = start(&f, plan, remote);
        assert_int_equal(ebb_run_iteration(run, 0, 1, 0.05f), EBB_OK);
        atomic_store(&far->fails_at, far->n_moves + 3);
        ebb_status status = EBB_OK; /* a copy that nothing has waited for yet may fail in the next iteration */
        for (uint64_t i = 1; i < 4 && status == EBB_OK; i++) { status = ebb_run_iteration(run, i, i + 1, 0.05f); }
        assert_int_equal(status, EBB_E_IO);
        if (!names_both(&f, out == 1 ? "write" : "read")) { fail_msg("%s", ebb_last_error()); }
        atomic_store(&far->fails_at, 0);
        assert_int_equal(ebb_run_iteration(run, 4, 5, 0.05f), EBB_E_DEVICE); /* its content is not to be trusted */
        ebb_run_destroy(run);
        end_far(far, remote);
    }
    ebb_plan_destroy(plan);
    run_fixture_fini(&f);
}

static void too_little_is_an_error_at_the_start(void **state) {
    (void)state;
    run_fixture f;
    ebb_remote *remote = NULL;
    ebb_run *run = NULL, *second = NULL;
    ebb_run_options options = EBB_RUN_OPTIONS_INIT;
    char wanted[200];
    run_fixture_init(&f, NULL);
    ebb_plan *plan = plan_for_remote(&f, 0);
    const unsigned long long bytes = remote_bytes_of(plan);
    assert_int_equal(ebb_run_create(f.lowered, plan, &options, &run), EBB_E_ARGUMENT);
    (void)snprintf(
        wanted, sizeof wanted,
        "the plan needs %llu bytes in the remote tier, and no process lends memory; set ebb_run_options.remote", bytes);
    assert_string_equal(ebb_last_error(), wanted);
    far_memory *far = make_far(bytes - 1, &remote);
    options.remote = remote;
    assert_int_equal(ebb_run_create(f.lowered, plan, &options, &run), EBB_E_NO_MEMORY);
    (void)snprintf(wanted, sizeof wanted, "remote tier: no room for %llu bytes in the %llu that other processes lend",
                   bytes, bytes - 1);
    assert_string_equal(ebb_last_error(), wanted);
    end_far(far, remote);
    far = make_far(bytes, &remote);
    options.remote = remote;
    assert_int_equal(ebb_run_create(f.lowered, plan, &options, &run), EBB_OK);
    assert_int_equal(ebb_run_create(f.lowered, plan, &options, &second), EBB_E_NO_MEMORY);
    ebb_run_destroy(run); /* then it is free again */
    assert_int_equal(ebb_run_create(f.lowered, plan, &options, &second), EBB_OK);
    ebb_run_destroy(second);
    end_far(far, remote);
    ebb_plan_destroy(plan);
    run_fixture_fini(&f);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(arguments_are_checked),         cmocka_unit_test(claims_are_apart),
        cmocka_unit_test(a_machine_has_one_remote_tier), cmocka_unit_test(its_link_is_measured),
        cmocka_unit_test(a_run_in_it_has_the_same_bits), cmocka_unit_test(from_a_device_that_the_host_cannot_read_too),
        cmocka_unit_test(faults_name_tensor_and_tier),   cmocka_unit_test(too_little_is_an_error_at_the_start),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
