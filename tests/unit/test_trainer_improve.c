/* SPDX-License-Identifier: Apache-2.0
 *
 * A better plan, taken while training goes on: the bits of losses and weights are those of training without it, with
 * copies on the host and in a file, fed first and early, with an evaluation and a checkpoint after it; a trainer may
 * end before the plan is there; and one for which there is no memory changes nothing.
 */
#include "ebb/train.h"

#include "data_files.h"
#include "train/trainer_priv.h"

#include <time.h>

#define N_STEPS 4u
#define TAKEN_AFTER 2u /* steps, the better plan is waited for */

static char data_spec[512], machine_file[512];

static ebb_trainer_options base_options(void) {
    ebb_trainer_options o = EBB_TRAINER_OPTIONS_INIT;
    o.session.net = "resnet_cifar:1";
    o.session.backend = "ref";
    o.session.machine_path = machine_file;
    o.session.batch = 16;
    o.session.budget_percent = 70;
    o.session.effort = 0;
    o.data = data_spec;
    o.n_steps = N_STEPS;
    o.seed = 3;
    o.learning_rate = 0.02f;
    return o;
}

static ebb_trainer *make(const ebb_trainer_options *o) {
    ebb_trainer *trainer = NULL;
    if (ebb_trainer_create(o, &trainer, NULL, NULL) != EBB_OK) { fail_msg("%s", ebb_last_error()); }
    return trainer;
}

static void wait_for_plan(const ebb_trainer *trainer) {
    const struct timespec moment = {.tv_nsec = 2000000};
    while (!ebb__trainer_has_planned(trainer)) { (void)nanosleep(&moment, NULL); }
}

/* What a trainer did. */
typedef struct trained {
    float losses[N_STEPS];
    char weights[65];
    ebb_eval_result eval;
    ebb_trainer_info info;
    uint64_t improved_at; /* by the steps' results; 0: never */
} trained;

static void train(ebb_trainer *trainer, bool waits, trained *t) {
    bool done = false;
    ebb_step_result result;
    *t = (trained){0};
    for (uint64_t i = 0; i < N_STEPS; i++) {
        if (waits && i == TAKEN_AFTER) { wait_for_plan(trainer); }
        if (ebb_trainer_step(trainer, &result, &done) != EBB_OK) { fail_msg("%s", ebb_last_error()); }
        assert_false(done);
        t->losses[i] = result.loss;
        if (result.is_improved) {
            assert_int_equal(t->improved_at, 0);
            t->improved_at = result.step;
        }
    }
    assert_int_equal(ebb_trainer_evaluate(trainer, &t->eval), EBB_OK);
    ebb_trainer_summary summary;
    assert_int_equal(ebb_trainer_summarize(trainer, &summary), EBB_OK);
    memcpy(t->weights, summary.weights_sha256, sizeof t->weights);
    t->info = ebb_trainer_get_info(trainer);
    assert_int_equal(t->info.improved_at_step, t->improved_at);
    assert_string_equal(t->info.policy, "best");
    assert_true(summary.run.peak_bytes == UINT64_MAX || summary.run.peak_bytes <= t->info.plan.budget_bytes);
}

static void assert_same_bits(const trained *a, const trained *b) {
    assert_memory_equal(a->losses, b->losses, sizeof a->losses);
    assert_string_equal(a->weights, b->weights);
    assert_memory_equal(&a->eval.loss, &b->eval.loss, sizeof a->eval.loss);
    assert_true(a->eval.accuracy == b->eval.accuracy);
}

/* Train with a better plan and without. */
static void compare(ebb_trainer_options o) {
    trained plain, better;
    o.improve_effort = 0;
    ebb_trainer *trainer = make(&o);
    train(trainer, false, &plain);
    assert_int_equal(plain.improved_at, 0);
    ebb_trainer_destroy(trainer);
    o.improve_effort = 1;
    trainer = make(&o);
    train(trainer, true, &better);
    ebb_trainer_destroy(trainer);
    assert_in_range(better.improved_at, 1, TAKEN_AFTER + 1);
    assert_true(better.info.step_time_predicted_s < plain.info.step_time_predicted_s);
    assert_true(better.info.plan.peak_bytes <= plain.info.plan.budget_bytes);
    assert_same_bits(&plain, &better);
}

static void test_the_same_bits(void **state) {
    (void)state;
    compare(base_options());
}

static void test_fed_early(void **state) {
    (void)state;
    ebb_trainer_options o = base_options();
    o.session.feed = "early";
    compare(o);
}

static void test_copies_in_a_file(void **state) {
    (void)state;
    ebb_trainer_options o = base_options();
    o.session.no_slab = true;
    o.session.disk_dir = test_dir.path;
    compare(o);
}

static void test_goes_on_from_a_checkpoint(void **state) {
    (void)state;
    char path[512];
    trained plain, first, rest;
    (void)snprintf(path, sizeof path, "%s/checkpoint", test_dir.path);
    ebb_trainer_options o = base_options();
    ebb_trainer *trainer = make(&o);
    train(trainer, false, &plain);
    ebb_trainer_destroy(trainer);
    o.improve_effort = 1;
    o.checkpoint_path = path;
    o.checkpoint_every = N_STEPS; /* written before the evaluation */
    trainer = make(&o);
    train(trainer, true, &first);
    ebb_trainer_destroy(trainer);
    assert_true(first.improved_at > 0);
    trainer = make(&o);
    bool done = false;
    ebb_step_result result;
    assert_int_equal(ebb_trainer_step(trainer, &result, &done), EBB_OK);
    assert_true(done);
    ebb_trainer_summary summary;
    assert_int_equal(ebb_trainer_summarize(trainer, &summary), EBB_OK);
    memcpy(rest.weights, summary.weights_sha256, sizeof rest.weights);
    assert_string_equal(rest.weights, plain.weights);
    ebb_trainer_destroy(trainer);
}

/* Destroying the trainer stops the search. Otherwise this would wait for a million rounds. */
static void test_ends_before_the_plan_is_there(void **state) {
    (void)state;
    ebb_trainer_options o = base_options();
    o.improve_effort = 1000000;
    ebb_trainer_destroy(make(&o));
    ebb_trainer *trainer = make(&o);
    bool done = false;
    ebb_step_result result;
    assert_int_equal(ebb_trainer_step(trainer, &result, &done), EBB_OK);
    ebb_trainer_destroy(trainer);
}

/* ---- no memory for it --------------------------------------------------------------------------- */

/* Hooks that two threads may call. Counting begins when the test says so, when there is one thread. */
typedef struct short_mem {
    bool counts;
    size_t n_calls, fail_at;
} short_mem;

static bool is_short(short_mem *m) {
    return m->counts && ++m->n_calls == m->fail_at;
}

static void *short_alloc(void *ctx, size_t size_bytes) {
    return is_short(ctx) ? NULL : malloc(size_bytes);
}

static void *short_resize(void *ctx, void *ptr, size_t size_bytes) {
    return is_short(ctx) ? NULL : realloc(ptr, size_bytes);
}

static void short_free(void *ctx, void *ptr) {
    (void)ctx;
    free(ptr);
}

static void test_without_memory_nothing_changes(void **state) {
    (void)state;
    trained plain, here;
    ebb_trainer_options o = base_options();
    ebb_trainer *trainer = make(&o);
    train(trainer, false, &plain);
    ebb_trainer_destroy(trainer);
    o.improve_effort = 1;
    bool has_failed = true;
    size_t n_kept = 0;
    for (size_t fail_at = 1; has_failed; fail_at *= 4) {
        short_mem m = {.fail_at = fail_at};
        const ebb_mem hooks = {short_alloc, short_resize, short_free, &m};
        bool done = false;
        ebb_step_result result;
        o.session.mem = &hooks;
        trainer = make(&o);
        wait_for_plan(trainer);
        m.counts = true;
        if (ebb_trainer_step(trainer, &result, &done) != EBB_OK) { fail_msg("%s", ebb_last_error()); }
        m.counts = false;
        has_failed = m.n_calls >= fail_at;
        n_kept += result.is_improved ? 0 : 1;
        here.losses[0] = result.loss;
        for (uint64_t i = 1; i < TAKEN_AFTER; i++) {
            assert_int_equal(ebb_trainer_step(trainer, &result, &done), EBB_OK);
            here.losses[i] = result.loss;
        }
        assert_memory_equal(here.losses, plain.losses, TAKEN_AFTER * sizeof *plain.losses);
        ebb_trainer_destroy(trainer);
    }
    assert_true(n_kept > 1);
}

/* ---- what does not go together ----------------------------------------------------------------- */

static void expect_refused(const ebb_trainer_options *o, const char *says) {
    ebb_trainer *trainer = NULL;
    assert_int_equal(ebb_trainer_create(o, &trainer, NULL, NULL), EBB_E_ARGUMENT);
    assert_null(trainer);
    expect_message(says);
}

static void test_bad_options(void **state) {
    (void)state;
    ebb_trainer_options o = base_options();
    o.improve_effort = 1;
    o.session.budget_percent = 0;
    expect_refused(&o, "where there is a budget");
    o.session.budget_percent = 70;
    o.session.policy = "budget";
    expect_refused(&o, "the policy best");
    o.session.policy = "best";
    o.session.slowdown = 0;
    expect_refused(&o, "the fastest");
    o.session.slowdown = -1;
    o.session.algorithms = "fitting";
    expect_refused(&o, "algorithms");
    o.session.algorithms = NULL;
    o.session.host_bytes = 1 << 30;
    expect_refused(&o, "two plans");
}

static int setup(void **state) {
    /* copies take so long that it matters which, and steps, too */
    static const char machine[] = "{\"format\": \"ebb-machine\", \"version\": 2, \"links\": ["
                                  "{\"near\": \"device\", \"far\": \"host\", \"out\": {\"bytes_per_s\": 5e8}, "
                                  "\"in\": {\"bytes_per_s\": 5e8}}], "
                                  "\"rates\": {\"flops_per_s\": 1e10, \"bytes_per_s\": 1e9, \"overhead_ns\": 1000}}";
    (void)setup_dir(state);
    data_put_digits(&test_dir, "d.csv.gz", 200);
    (void)snprintf(data_spec, sizeof data_spec, "digits:%s/d.csv.gz", test_dir.path);
    data_put(&test_dir, "machine", machine, sizeof machine - 1);
    (void)snprintf(machine_file, sizeof machine_file, "%s", data_path(&test_dir, "machine"));
    return 0;
}

#define IN_DIR_OF_DIGITS(test) cmocka_unit_test_setup_teardown(test, setup, teardown_dir)

int main(void) {
    const struct CMUnitTest tests[] = {
        IN_DIR_OF_DIGITS(test_the_same_bits),
        IN_DIR_OF_DIGITS(test_fed_early),
        IN_DIR_OF_DIGITS(test_copies_in_a_file),
        IN_DIR_OF_DIGITS(test_goes_on_from_a_checkpoint),
        IN_DIR_OF_DIGITS(test_ends_before_the_plan_is_there),
        IN_DIR_OF_DIGITS(test_without_memory_nothing_changes),
        IN_DIR_OF_DIGITS(test_bad_options),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
