/* SPDX-License-Identifier: Apache-2.0
 *
 * A session: what its options come to as program and plan, how often the network is built for them, and what they
 * refuse.
 */
#include "ebb/session.h"

#include "support.h"

#include <math.h>

static ebb_session_options some_options(void) {
    ebb_session_options o = EBB_SESSION_OPTIONS_INIT;
    o.net = "resnet_cifar:1";
    o.backend = "ref";
    o.batch = 4;
    o.effort = 0;
    return o;
}

static ebb_session *open_session(const ebb_session_options *o) {
    ebb_session *session = NULL;
    if (ebb_session_open(o, &session) != EBB_OK) { fail_msg("%s", ebb_last_error()); }
    return session;
}

static ebb_plan_summary summary_of(const ebb_session_options *o, uint64_t *liveness_bytes_out) {
    static char policy[32];
    ebb_session *session = open_session(o);
    ebb_plan *plan = NULL;
    if (ebb_session_plan(session, &plan, NULL) != EBB_OK) { fail_msg("%s", ebb_last_error()); }
    assert_int_equal(ebb_plan_check(ebb_session_get_parts(session).program, plan), EBB_OK);
    assert_int_equal(ebb_session_liveness_bytes(session, liveness_bytes_out), EBB_OK);
    ebb_plan_summary summary = ebb_plan_get_summary(plan);
    (void)snprintf(policy, sizeof policy, "%s", summary.policy);
    summary.policy = policy;
    ebb_plan_destroy(plan);
    ebb_session_close(session);
    return summary;
}

/* ---- programs ---------------------------------------------------------------------------------- */

static void it_is_what_one_makes_step_by_step(void **state) {
    (void)state;
    ebb_session_options o = some_options();
    o.height = o.width = 20;
    o.classes = 7;
    o.optimizer.kind = EBB_OPT_ADAM;
    ebb_session *session = open_session(&o);
    const ebb_session_parts parts = ebb_session_get_parts(session);
    ebb_zoo_options zoo = EBB_ZOO_OPTIONS_INIT;
    zoo.batch = 4;
    zoo.height = zoo.width = 20;
    zoo.classes = 7;
    ebb_graph *graph = NULL;
    ebb_lowered *lowered = NULL;
    assert_int_equal(ebb_zoo_build("resnet_cifar:1", &zoo, &graph), EBB_OK);
    assert_int_equal(ebb_graph_train(graph, &o.optimizer, false), EBB_OK);
    assert_int_equal(ebb_lower(graph, parts.device, &lowered), EBB_OK);
    assert_true(ebb_program_fingerprint(parts.program) == ebb_program_fingerprint(ebb_lowered_program(lowered)));
    assert_true(parts.program == ebb_lowered_program(parts.lowered));
    assert_string_equal(ebb_device_backend(parts.device), "ref");
    ebb_lowered_destroy(lowered);
    ebb_graph_destroy(graph);
    ebb_session_close(session);
    ebb_session_close(NULL);
}

static ebb_status count_and_build(void *ctx, const ebb_zoo_options *options, ebb_graph **graph_out) {
    ++*(int *)ctx;
    assert_int_equal(options->batch, EBB_DEFAULT_BATCH);
    return ebb_zoo_build("resnet_cifar:1", options, graph_out);
}

static void a_network_is_built_once(void **state) {
    (void)state;
    int n_built = 0;
    ebb_session_options o = some_options();
    o.net = NULL;
    o.network_fn = count_and_build;
    o.network_ctx = &n_built;
    o.batch = 0;
    o.budget_percent = 70;
    uint64_t liveness_bytes = 0;
    (void)summary_of(&o, &liveness_bytes);
    assert_int_equal(n_built, 1);
}

static void networks_share_a_device(void **state) {
    (void)state;
    ebb_session_options o = some_options();
    o.net = NULL;
    ebb_session *alone = open_session(&o);
    const ebb_session_parts parts = ebb_session_get_parts(alone);
    assert_non_null(parts.device);
    assert_non_null(parts.machine);
    assert_true(parts.program == NULL && parts.graph == NULL && parts.lowered == NULL);
    o = some_options();
    o.backend = "abacus"; /* is not looked for */
    o.device = parts.device;
    for (int i = 0; i < 2; i++) {
        ebb_session *session = open_session(&o);
        assert_true(ebb_session_get_parts(session).device == parts.device);
        ebb_session_close(session);
    }
    uint64_t bytes = 5;
    ebb_plan *plan = NULL;
    assert_int_equal(ebb_session_liveness_bytes(alone, &bytes), EBB_E_ARGUMENT);
    assert_int_equal(ebb_session_plan(alone, &plan, NULL), EBB_E_ARGUMENT);
    expect_message("nothing to plan for");
    assert_true(bytes == 5 && plan == NULL);
    ebb_session_close(alone);
}

/* ---- plans ------------------------------------------------------------------------------------- */

static void budgets_are_kept(void **state) {
    (void)state;
    uint64_t liveness_bytes = 0;
    ebb_session_options o = some_options();
    ebb_plan_summary summary = summary_of(&o, &liveness_bytes);
    assert_string_equal(summary.policy, "liveness");
    assert_true(summary.budget_bytes == UINT64_MAX && summary.peak_bytes == liveness_bytes);
    o.budget_percent = 60;
    summary = summary_of(&o, &liveness_bytes);
    assert_string_equal(summary.policy, "best");
    const uint64_t budget_bytes = (uint64_t)((double)liveness_bytes * 0.6);
    assert_true(summary.budget_bytes == budget_bytes && summary.peak_bytes <= budget_bytes);
    assert_true(summary.tier_bytes[EBB_HOST] > 0 && summary.tier_bytes[EBB_DISK] == 0);
    const uint64_t host_bytes = summary.tier_bytes[EBB_HOST];
    o.budget_percent = 0;
    o.budget_bytes = budget_bytes;
    summary = summary_of(&o, &liveness_bytes);
    assert_true(summary.budget_bytes == budget_bytes && summary.tier_bytes[EBB_HOST] == host_bytes);
    o.disk_dir = "."; /* takes what the host has no room for */
    o.no_slab = true;
    summary = summary_of(&o, &liveness_bytes);
    assert_true(summary.tier_bytes[EBB_HOST] == 0 && summary.tier_bytes[EBB_DISK] > 0);
    const uint64_t away_bytes = summary.tier_bytes[EBB_DISK];
    o.disk_dir = NULL; /* so does other processes' memory, within its limit */
    o.remote_bytes = away_bytes / 2;
    summary = summary_of(&o, &liveness_bytes);
    assert_in_range(summary.tier_bytes[EBB_DISK + 1], 1, away_bytes / 2);
    assert_true(summary.tier_bytes[EBB_HOST] == 0 && summary.tier_bytes[EBB_DISK] == 0);
    o.remote_bytes = 0;
    o.disk_dir = ".";
    o.no_slab = false;
    o.host_bytes = host_bytes / 2;
    summary = summary_of(&o, &liveness_bytes);
    assert_in_range(summary.tier_bytes[EBB_HOST], 1, host_bytes / 2);
    o.policy = "none";
    o.budget_bytes = 0;
    assert_string_equal(summary_of(&o, &liveness_bytes).policy, "none");
}

static void a_program_is_planned_for_as_its_network_is(void **state) {
    (void)state;
    uint64_t liveness_bytes = 0, same_bytes = 0;
    ebb_session_options o = some_options();
    o.budget_percent = 60;
    const ebb_plan_summary want = summary_of(&o, &liveness_bytes);
    const uint64_t budget_bytes = want.budget_bytes, peak_bytes = want.peak_bytes;
    ebb_session *network = open_session(&o);
    o.net = NULL;
    o.backend = "abacus"; /* none is needed */
    o.program = ebb_session_get_parts(network).program;
    const ebb_plan_summary got = summary_of(&o, &same_bytes);
    assert_true(got.budget_bytes == budget_bytes && got.peak_bytes == peak_bytes && same_bytes == liveness_bytes);
    ebb_session *session = open_session(&o);
    assert_true(ebb_session_get_parts(session).device == NULL && ebb_session_get_parts(session).program == o.program);
    ebb_session_close(session);
    ebb_session_close(network);
}

static void the_least_budget_is_said(void **state) {
    (void)state;
    ebb_session_options o = some_options();
    o.budget_bytes = 1;
    ebb_session *session = open_session(&o);
    ebb_plan *plan = NULL;
    ebb_no_fit no_fit = {0};
    assert_int_equal(ebb_session_plan(session, &plan, &no_fit), EBB_E_NO_FIT);
    assert_null(plan);
    ebb_session_close(session);
    uint64_t liveness_bytes = 0;
    o.budget_bytes = no_fit.least_budget_bytes;
    assert_true(summary_of(&o, &liveness_bytes).peak_bytes <= no_fit.least_budget_bytes);
}

static void texts_are_copied(void **state) {
    (void)state;
    char net[] = "resnet20", backend[] = "ref", policy[] = "budget", algorithms[] = "least", disk[] = ".";
    ebb_session_options o = some_options();
    o.net = net;
    o.backend = backend;
    o.policy = policy;
    o.algorithms = algorithms;
    o.disk_dir = disk;
    ebb_session *session = open_session(&o);
    net[0] = backend[0] = policy[0] = algorithms[0] = disk[0] = '?';
    ebb_plan *plan = NULL;
    assert_int_equal(ebb_session_plan(session, &plan, NULL), EBB_OK);
    assert_string_equal(ebb_plan_get_summary(plan).policy, "budget");
    assert_string_equal(ebb_plan_get_summary(plan).algorithms, "least");
    ebb_plan_destroy(plan);
    ebb_session_close(session);
}

/* ---- refusals ---------------------------------------------------------------------------------- */

static void refuse(const ebb_session_options *o, ebb_status status, const char *says) {
    ebb_session *session = NULL;
    assert_int_equal(ebb_session_open(o, &session), status);
    assert_null(session);
    expect_message(says);
}

static void what_makes_no_sense_is_refused(void **state) {
    (void)state;
    ebb_session_options o = some_options();
    o.size_bytes--;
    refuse(&o, EBB_E_ARGUMENT, "another version");
    o = some_options();
    o.network_fn = count_and_build;
    refuse(&o, EBB_E_ARGUMENT, "one of them");
    o = some_options();
    o.width = -1;
    refuse(&o, EBB_E_ARGUMENT, "cannot be negative");
    o = some_options();
    o.device_index = -1;
    refuse(&o, EBB_E_ARGUMENT, "no device of number -1");
    o = some_options();
    o.budget_percent = (double)-NAN;
    refuse(&o, EBB_E_ARGUMENT, "a budget of nan %");
    o = some_options();
    o.feed = "late";
    refuse(&o, EBB_E_ARGUMENT, "a batch comes first or early");
    o = some_options();
    o.machine_path = "no/such/machine";
    refuse(&o, EBB_E_IO, "no/such/machine");
    o.backend = "abacus";
    refuse(&o, EBB_E_NO_DEVICE, "abacus");
    o.net = "lenot";
    refuse(&o, EBB_E_ARGUMENT, "no network 'lenot'"); /* is said first */
}

static ebb_status build_without_loss(void *ctx, const ebb_zoo_options *options, ebb_graph **graph_out) {
    (void)ctx;
    const ebb_status status = ebb_graph_create(NULL, graph_out);
    if (status == EBB_OK) { (void)ebb_graph_images(*graph_out, options->batch, 1, 8, 8); }
    return status;
}

static void a_network_without_loss_is_refused(void **state) {
    (void)state;
    ebb_session_options o = some_options();
    o.net = NULL;
    o.network_fn = build_without_loss;
    refuse(&o, EBB_E_ARGUMENT, "no loss");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(it_is_what_one_makes_step_by_step),
        cmocka_unit_test(a_network_is_built_once),
        cmocka_unit_test(networks_share_a_device),
        cmocka_unit_test(budgets_are_kept),
        cmocka_unit_test(a_program_is_planned_for_as_its_network_is),
        cmocka_unit_test(the_least_budget_is_said),
        cmocka_unit_test(texts_are_copied),
        cmocka_unit_test(what_makes_no_sense_is_refused),
        cmocka_unit_test(a_network_without_loss_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
