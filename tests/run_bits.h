/* SPDX-License-Identifier: Apache-2.0
 *
 * The same bits whatever the plan, on any device: one network with every kind of operator that carries state or chance
 * (dropout, batch-norm's running statistics, in-place sums, concatenation, momentum), trained a few iterations under
 * every policy, at budgets down to the least that the planner finds, with the lower tier on the host and on disk.
 * Losses and all persistent content must equal those of the plan that frees nothing, bit for bit; and the peak
 * that the run saw must be the plan's. The same where batches come early, during the iteration before.
 */
#ifndef EBB_TESTS_RUN_BITS_H
#define EBB_TESTS_RUN_BITS_H

#include "backend/host_memory.h"
#include "backend/lower.h"
#include "ebb/ebb.h"
#include "run/run.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>

#include <cmocka.h>

#include "run_ports.h"
#include "support.h"

#define BATCH 3
#define CLASSES 5
#define N_ITERATIONS 4

static ebb_value block(ebb_graph *g, const char *name, ebb_value x, int64_t channels) {
    char text[64];
    ebb_window three = ebb_window_square(3, 1, 1);
    (void)snprintf(text, sizeof text, "%s.conv", name);
    ebb_value y = ebb_graph_conv(g, text, x, channels, &three, false);
    (void)snprintf(text, sizeof text, "%s.bn", name);
    y = ebb_graph_batch_norm(g, text, y, 1e-5f, 0.1f);
    return ebb_graph_relu(g, name, y);
}

static ebb_graph *make_graph(void) {
    ebb_graph_options options = EBB_GRAPH_OPTIONS_INIT;
    options.name = "all_kinds";
    ebb_graph *g = NULL;
    assert_int_equal(ebb_graph_create(&options, &g), EBB_OK);
    ebb_window pool = ebb_window_square(2, 2, 0);
    ebb_value x = ebb_graph_images(g, BATCH, 3, 8, 8);
    ebb_value labels = ebb_graph_labels(g, BATCH, CLASSES);
    ebb_value a = block(g, "a", x, 8);
    a = ebb_graph_lrn(g, "lrn", a, 5, 1e-4f, 0.75f, 2.0f);
    ebb_value b = block(g, "b", a, 8);
    ebb_value sum = ebb_graph_relu(g, "sum_relu", ebb_graph_add(g, "sum", a, b));
    ebb_value c = block(g, "c", sum, 4);
    ebb_value parts[3] = {sum, c, b};
    ebb_value all = ebb_graph_concat(g, "concat", parts, 3);
    all = ebb_graph_max_pool(g, "max", all, &pool);
    ebb_value d = ebb_graph_dropout(g, "drop", block(g, "d", all, 8), 0.3f);
    d = ebb_graph_avg_pool(g, "avg", d, &pool);
    ebb_value logits = ebb_graph_linear(g, "fc", ebb_graph_flatten(g, "flat", d), CLASSES, true);
    (void)ebb_graph_softmax_loss(g, logits, labels);
    ebb_optimizer optimizer = EBB_OPTIMIZER_INIT;
    optimizer.weight_decay = 1e-3f;
    assert_int_equal(ebb_graph_train(g, &optimizer, false), EBB_OK);
    return g;
}

typedef struct outcome {
    uint32_t loss_bits[N_ITERATIONS];
    uint64_t state_hash;
    ebb_run_stats stats;
    uint64_t bound_end_bytes; /* in the arena: of the highest byte that a command was given */
} outcome;

static void fill_batch(ebb_run *run, uint64_t iteration) {
    ebb_rng rng;
    ebb__rng_init(&rng, 7, iteration);
    float *images = run_images(run);
    for (int i = 0; i < BATCH * 3 * 8 * 8; i++) { images[i] = ebb__rng_normal(&rng); }
    for (int i = 0; i < BATCH; i++) { run_labels(run)[i] = (int32_t)ebb__rng_below(&rng, CLASSES); }
}

static uint64_t hash_state(ebb_run *run, const ebb_graph *g) {
    uint64_t h = EBB_HASH_INIT;
    for (ebb_value v = 0; v < g->values.n; v++) {
        const ebb_value_info *info = &g->values.data[v];
        if (!ebb__value_is_persistent(info->kind)) { continue; }
        size_t n = (size_t)ebb__shape_elements(&info->shape);
        float *plain = malloc(n * sizeof *plain);
        assert_int_equal(ebb_run_get_value(run, v, plain), EBB_OK);
        h = ebb__hash(h, plain, n * sizeof *plain);
        free(plain);
    }
    return h;
}

static outcome train(const ebb_lowered *low, const ebb_plan *plan) {
    ebb_run_options options = EBB_RUN_OPTIONS_INIT;
    options.seed = 11;
    options.disk_dir = "/tmp";
    ebb_run *run = NULL;
    assert_int_equal(ebb_run_create(low, plan, &options, &run), EBB_OK);
    assert_int_equal(ebb_run_init_values(run, 5), EBB_OK);
    outcome out = {0};
    if (low->feeds_early) {
        fill_batch(run, 0);
        assert_int_equal(ebb_run_iteration(run, 0, 1, 0.05f), EBB_E_ARGUMENT); /* there is no batch yet */
        assert_int_equal(ebb_run_feed(run), EBB_OK);
    }
    for (uint64_t i = 0; i < N_ITERATIONS; i++) {
        fill_batch(run, i + low->feeds_early);
        if (i == 2) { /* leaving the arena and coming back changes nothing */
            assert_int_equal(ebb_run_park(run), EBB_OK);
            assert_int_equal(ebb_run_iteration(run, i, i + 1, 0.05f), EBB_E_ARGUMENT);
            assert_int_equal(ebb_run_unpark(run), EBB_OK);
        }
        assert_int_equal(ebb_run_iteration(run, i, i + 1, 0.05f), EBB_OK);
        float loss = run_loss(run);
        memcpy(&out.loss_bits[i], &loss, sizeof loss);
    }
    out.state_hash = hash_state(run, low->graph);
    out.stats = ebb_run_get_stats(run);
    out.bound_end_bytes = run->bound_end_bytes;
    ebb_run_destroy(run);
    return out;
}

/* Plans are made once for all devices that lower to the same program: making them takes most of the time here. */
typedef struct asked {
    uint64_t program, budget;
    const char *policy;
    uint32_t tier;
    ebb_status status;
    ebb_plan *plan;
    ebb_no_fit no_fit;
} asked;
#define MAX_ASKED 256u
static asked all_asked[MAX_ASKED];
static size_t n_asked;

static ebb_status ask_plan(const ebb_lowered *low, asked *a) {
    ebb_machine *machine = NULL;
    assert_int_equal(ebb_machine_create(NULL, &machine), EBB_OK);
    ebb_plan_options options = EBB_PLAN_OPTIONS_INIT;
    options.policy = a->policy;
    options.effort = 0;
    options.budget_bytes = a->budget;
    options.tier_bytes[EBB_HOST] = a->tier == EBB_HOST ? UINT64_MAX : 0;
    options.tier_bytes[EBB_DISK] = a->tier == EBB_DISK ? UINT64_MAX : 0;
    const ebb_status st = ebb_plan_make(ebb_lowered_program(low), machine, &options, &a->plan, &a->no_fit);
    ebb_machine_destroy(machine);
    return st;
}

/* At the end of a test program. */
static inline int forget_plans(void **state) {
    (void)state;
    while (n_asked > 0) { ebb_plan_destroy(all_asked[--n_asked].plan); }
    return 0;
}

/* Make a plan; it lives until forget_plans. If no plan fits, the result is NULL for a caller that asks for no_fit; for
 * others the test fails. */
static const ebb_plan *make_plan(const ebb_lowered *low, const char *policy, uint64_t budget, uint32_t tier,
                                 ebb_no_fit *no_fit) {
    const uint64_t program = ebb_program_fingerprint(ebb_lowered_program(low));
    asked *a = NULL;
    for (size_t i = 0; i < n_asked && a == NULL; i++) {
        const asked *q = &all_asked[i];
        const bool is_same = q->program == program && q->budget == budget && q->tier == tier;
        if (is_same && strcmp(q->policy, policy) == 0) { a = &all_asked[i]; }
    }
    if (a == NULL) {
        assert_true(n_asked < MAX_ASKED);
        a = &all_asked[n_asked++];
        *a = (asked){.program = program, .budget = budget, .policy = policy, .tier = tier};
        a->status = ask_plan(low, a);
    }
    if (a->status != EBB_OK && no_fit == NULL) {
        fail_msg("%s at %llu: %s", policy, (unsigned long long)budget, ebb_last_error());
    }
    if (no_fit != NULL) { *no_fit = a->no_fit; }
    return a->plan;
}

static uint64_t peak_of(const ebb_plan *plan) {
    return ebb_plan_get_summary(plan).peak_bytes;
}

/* Where the scratch of a step is the highest stay, its bytes: a kernel need not touch all of it. */
static uint64_t top_scratch_bytes(const ebb_plan *plan) {
    size_t n_stays = 0;
    const ebb_stay *stays = ebb_plan_stays(plan, &n_stays);
    for (size_t i = 0; i < n_stays; i++) {
        const bool is_top = stays[i].offset + stays[i].size_bytes == peak_of(plan);
        if (is_top && stays[i].tensor == EBB_SCRATCH) { return stays[i].size_bytes; }
    }
    return 0;
}

/* Of pages exactly, as the arena ends at a closed one; of a driver in its granules. */
static void expect_peak(const outcome *got, const ebb_lowered *low, uint64_t peak_bytes, uint64_t scratch_bytes) {
    const uint64_t granule = low->device->ops->arena_measure == ebb__host_arena_measure ? 1 : (uint64_t)2 << 20;
    assert_int_equal(got->bound_end_bytes, peak_bytes);
    assert_int_equal(got->stats.arena_bytes, peak_bytes);
    if (got->stats.peak_bytes == UINT64_MAX) { return; } /* no page table to read */
    if (scratch_bytes > 0) {
        assert_in_range(got->stats.peak_bytes, peak_bytes - scratch_bytes, ebb_align_up(peak_bytes, granule));
        return;
    }
    assert_int_equal(got->stats.peak_bytes, ebb_align_up(peak_bytes, granule));
}

static void compare(const ebb_lowered *low, const outcome *want, const ebb_plan *plan) {
    assert_non_null(plan);
    outcome got = train(low, plan);
    ebb_plan_summary summary = ebb_plan_get_summary(plan);
    assert_memory_equal(got.loss_bits, want->loss_bits, sizeof got.loss_bits);
    assert_true(got.state_hash == want->state_hash);
    expect_peak(&got, low, summary.peak_bytes, top_scratch_bytes(plan));
    assert_int_equal(got.stats.moved_out_bytes, summary.moved_out_bytes);
    assert_int_equal(got.stats.moved_in_bytes, summary.moved_in_bytes);
    assert_int_equal(got.stats.n_recomputed_steps, summary.n_recomputed_steps);
}

/* The thread sanitizer sees as much in a few, and takes long for each. Parts are of what liveness needs; ruled policies
 * keep no budget, cached ones do. */
#if defined(__SANITIZE_THREAD__)
static const double parts_of_liveness[] = {0.5, 0.0};
static const char *const ruled_policies[] = {"recompute-speed", "vdnn-all"};
static const char *const cached_policies[] = {"superneurons"};
static const char *const searched_policies[] = {"budget"};
#define N_RECORDED_SEEDS 1u
#else
static const double parts_of_liveness[] = {1.0, 0.75, 0.5, 0.35, 0.25, 0.0};
static const char *const ruled_policies[] = {
    "recompute-speed",
    "recompute-memory",
    "recompute-cost-aware",
    "recompute-printed",
    "sqrt-n",
    "vdnn-all",
    "vdnn-conv",
    "utp",
};
static const char *const cached_policies[] = {"tensor-cache", "tensor-cache-next", "superneurons"};
static const char *const searched_policies[] = {"budget", "best"};
#define N_RECORDED_SEEDS 4u
#endif

static void compare_early(ebb_device *device, const outcome *want) {
    ebb_graph *g = make_graph();
    ebb_lowered *low = NULL;
    if (ebb_lower_fed_early(g, device, &low) != EBB_OK) { fail_msg("%s", ebb_last_error()); }
    ebb_no_fit no_fit = {0};
    assert_null(make_plan(low, "budget", 64, EBB_HOST, &no_fit));
    const ebb_plan *liveness = make_plan(low, "liveness", UINT64_MAX, EBB_HOST, NULL);
    compare(low, want, liveness);
    compare(low, want, make_plan(low, "vdnn-all", UINT64_MAX, EBB_HOST, NULL));
    compare(low, want, make_plan(low, "budget", no_fit.least_budget_bytes, EBB_HOST, NULL));
    compare(low, want, make_plan(low, "best", (peak_of(liveness) + no_fit.least_budget_bytes) / 2, EBB_DISK, NULL));
    ebb_lowered_destroy(low);
    ebb_graph_destroy(g);
}

/* device is closed. */
static inline void compare_all(ebb_device *device) {
    ebb_graph *g = make_graph();
    ebb_lowered *low = NULL;
    if (ebb_lower(g, device, &low) != EBB_OK) { fail_msg("%s", ebb_last_error()); }
    const ebb_plan *none = make_plan(low, "none", UINT64_MAX, EBB_HOST, NULL);
    outcome want = train(low, none);
    expect_peak(&want, low, peak_of(none), top_scratch_bytes(none));
    const ebb_plan *liveness = make_plan(low, "liveness", UINT64_MAX, EBB_HOST, NULL);
    uint64_t full = peak_of(liveness);
    assert_true(full < peak_of(none));
    compare(low, &want, liveness);
    for (size_t i = 0; i < sizeof ruled_policies / sizeof ruled_policies[0]; i++) {
        const ebb_plan *plan = make_plan(low, ruled_policies[i], UINT64_MAX, EBB_HOST, NULL);
        const ebb_plan_summary sum = ebb_plan_get_summary(plan);
        assert_true(sum.n_recomputed_steps > 0 || sum.moved_in_bytes > 0);
        compare(low, &want, plan);
    }
    for (uint32_t tier = EBB_HOST; tier <= EBB_DISK;
         tier++) { /* the disk is slower, so plans and their least budget differ */
        for (size_t i = 0; i < sizeof cached_policies / sizeof cached_policies[0]; i++) {
            ebb_no_fit least = {0};
            assert_null(make_plan(low, cached_policies[i], 64, tier, &least));
            compare(low, &want, make_plan(low, cached_policies[i], least.least_budget_bytes, tier, NULL));
        }
        ebb_no_fit no_fit = {0};
        assert_null(make_plan(low, "budget", 64, tier, &no_fit));
        assert_true(no_fit.least_budget_bytes > 64);
        uint64_t budget = 0;
        const size_t n_parts = sizeof parts_of_liveness / sizeof parts_of_liveness[0];
        for (size_t p = by_form(1, 0, 0); p < n_parts && budget != no_fit.least_budget_bytes; p += by_form(2, 1, 1)) {
            budget = ebb_max_u64((uint64_t)(parts_of_liveness[p] * (double)full), no_fit.least_budget_bytes);
            for (size_t i = 0; i < sizeof searched_policies / sizeof searched_policies[0]; i++) {
                if (i > 0 && p != 3 && by_form(1, 0, 0)) { continue; } /* the quick form searches once */
                const ebb_plan *plan = make_plan(low, searched_policies[i], budget, tier, NULL);
                assert_true(peak_of(plan) <= budget);
                compare(low, &want, plan);
            }
        }
    }
    compare_early(device, &want);
    ebb_lowered_destroy(low);
    ebb_graph_destroy(g);
    ebb_device_close(device);
}

#endif
