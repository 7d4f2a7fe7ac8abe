/* SPDX-License-Identifier: Apache-2.0
 *
 * Every network of the zoo under every policy, at several budgets and on both tiers: the commands that a run issues are
 * free of hazards.
 */
#include "support.h"

#include "ebb/run.h"

#include <inttypes.h>

/* Tight budgets of large networks take long to plan: from here on fewer of them, and none unless all tests run. */
#define QUICK_STEPS 60
#define LARGE_STEPS 150
#define HUGE_STEPS 600

typedef struct sums {
    uint64_t n_plans;
    ebb_proof proof;
} sums;

static void add_proof(sums *s, const ebb_proof *proof) {
    s->n_plans++;
    s->proof.n_commands += proof->n_commands;
    s->proof.n_pairs += proof->n_pairs;
    s->proof.n_events += proof->n_events;
    s->proof.n_waits += proof->n_waits;
    s->proof.n_implied_waits += proof->n_implied_waits;
    s->proof.n_versions += proof->n_versions;
    s->proof.n_graph_pairs += proof->n_graph_pairs;
}

typedef struct net {
    ebb_device *device;
    ebb_graph *graph;
    ebb_lowered *lowered;
    ebb_machine *machine;
} net;

/* Images as small as a network takes them: its plan has as many actions, and its parameters are small. */
static int64_t least_side(const char *name) {
    if (strncmp(name, "alexnet", 7) == 0) { return 67; }
    if (strncmp(name, "inception", 9) == 0) { return 75; }
    if (strncmp(name, "lenet", 5) == 0 || strncmp(name, "mlp", 3) == 0 || strncmp(name, "perceptron", 10) == 0) {
        return 0;
    }
    return 32;
}

static void net_init(net *n, const char *name) {
    ebb_zoo_options options = EBB_ZOO_OPTIONS_INIT;
    options.batch = 64;
    options.height = options.width = least_side(name);
    ebb_optimizer optimizer = EBB_OPTIMIZER_INIT;
    assert_int_equal(ebb_device_open("dry", NULL, &n->device), EBB_OK);
    if (ebb_zoo_build(name, &options, &n->graph) != EBB_OK) { fail_msg("%s: %s", name, ebb_last_error()); }
    assert_int_equal(ebb_graph_train(n->graph, &optimizer, false), EBB_OK);
    assert_int_equal(ebb_lower(n->graph, n->device, &n->lowered), EBB_OK);
    assert_int_equal(ebb_machine_create(NULL, &n->machine), EBB_OK);
}

static void net_fini(net *n) {
    ebb_machine_destroy(n->machine);
    ebb_lowered_destroy(n->lowered);
    ebb_graph_destroy(n->graph);
    ebb_device_close(n->device);
}

/* What the lower tiers may hold. */
typedef struct tiers {
    uint64_t host_bytes, disk_bytes;
} tiers;

static uint64_t prove(net *n, const char *policy, uint64_t budget_bytes, const tiers *lower, sums *s) {
    ebb_plan_options options = EBB_PLAN_OPTIONS_INIT;
    options.policy = policy;
    options.effort = 0; /* its plans are proven, not judged */
    options.budget_bytes = budget_bytes;
    options.tier_bytes[EBB_HOST] = lower->host_bytes;
    options.tier_bytes[EBB_DISK] = lower->disk_bytes;
    ebb_plan *plan = NULL;
    ebb_no_fit no_fit = {0};
    ebb_proof proof;
    ebb_status st = ebb_plan_make(ebb_lowered_program(n->lowered), n->machine, &options, &plan, &no_fit);
    if (st == EBB_E_NO_FIT && no_fit.least_budget_bytes > budget_bytes) {
        return prove(n, policy, no_fit.least_budget_bytes, lower, s);
    }
    if (st != EBB_OK) { fail_msg("%s: %s", policy, ebb_last_error()); }
    if (ebb_run_prove(n->graph, n->device, plan, &proof) != EBB_OK) { fail_msg("%s: %s", policy, ebb_last_error()); }
    add_proof(s, &proof);
    const uint64_t peak_bytes = ebb_plan_get_summary(plan).peak_bytes;
    ebb_plan_destroy(plan);
    return peak_bytes;
}

/* The names of the zoo are patterns: those with a colon take numbers. */
static const char *example_of(const char *name) {
    if (strcmp(name, "perceptron:N") == 0) { return "perceptron:64"; }
    if (strcmp(name, "resnet:N1,N2,N3,N4") == 0) { return "resnet:1,2,2,1"; }
    if (strcmp(name, "resnet_cifar:N") == 0) { return "resnet_cifar:2"; }
    assert_null(strchr(name, ':'));
    return name;
}

static void prove_network(const char *name, sums *all) {
    static const tiers some[] = {{UINT64_MAX, 0}, {1u << 20, UINT64_MAX}, {0, UINT64_MAX}};
    net n;
    sums s = {0};
    net_init(&n, name);
    (void)prove(&n, "none", UINT64_MAX, &some[0], &s);
    const uint64_t whole = prove(&n, "liveness", UINT64_MAX, &some[0], &s);
    assert_true(prove(&n, "order", UINT64_MAX, &some[0], &s) <= whole);
    size_t n_steps = 0;
    ebb_program_steps(ebb_lowered_program(n.lowered), &n_steps);
    const bool in_full = getenv("EBB_TEST_ALL") != NULL;
    const bool large = n_steps > (in_full ? LARGE_STEPS : QUICK_STEPS);
    if (in_full || !large) { (void)prove(&n, "budget", whole / 5 * 2, &some[1], &s); }
    if (n_steps <= (in_full ? HUGE_STEPS : QUICK_STEPS)) { (void)prove(&n, "budget", whole / 5 * 3, &some[0], &s); }
    if (!large) {
        (void)prove(&n, "budget", whole / 5, &some[2], &s);
        (void)prove(&n, "best", whole / 5 * 2, &some[0], &s);
        (void)prove(&n, "budget", 1, &some[0], &s); /* the least that there is */
        ebb_lowered_destroy(n.lowered);
        if (ebb_lower_fed_early(n.graph, n.device, &n.lowered) != EBB_OK) { fail_msg("%s", ebb_last_error()); }
        (void)prove(&n, "liveness", UINT64_MAX, &some[0], &s);
        (void)prove(&n, "budget", whole / 5 * 2, &some[1], &s);
    }
    net_fini(&n);
    print_message("%-20s %2" PRIu64 " plans %7" PRIu64 " commands %8" PRIu64 " pairs %6" PRIu64 " events %6" PRIu64
                  " waits %4" PRIu64 " implied\n",
                  name, s.n_plans, s.proof.n_commands, s.proof.n_pairs, s.proof.n_events, s.proof.n_waits,
                  s.proof.n_implied_waits);
    all->n_plans += s.n_plans - 1;
    add_proof(all, &s.proof);
}

static void every_plan_is_free_of_hazards(void **state) {
    (void)state;
    sums all = {0};
    const char *name = NULL;
    for (size_t i = 0; (name = ebb_zoo_name(i, NULL)) != NULL; i++) { prove_network(example_of(name), &all); }
    print_message("%" PRIu64 " plans, %" PRIu64 " pairs of conflicting accesses proven, %" PRIu64
                  " more as graphs, %" PRIu64 " versions found, %" PRIu64 " events, %" PRIu64 " waits, %" PRIu64
                  " of them implied by others\n",
                  all.n_plans, all.proof.n_pairs, all.proof.n_graph_pairs, all.proof.n_versions, all.proof.n_events,
                  all.proof.n_waits, all.proof.n_implied_waits);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(every_plan_is_free_of_hazards)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
