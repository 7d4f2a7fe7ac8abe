/* SPDX-License-Identifier: Apache-2.0
 *
 * The trainer on a small network with batch-norm and dropout over digits of our own making: it learns, goes on
 * from a checkpoint as if nothing had been, gives the same bits under every policy, evaluates inside its arena,
 * and says what does not fit together.
 */
#include "ebb/train.h"

#include "base/file.h"
#include "data_files.h"
#include "train/safetensors.h"

#include <malloc.h>
#include <math.h>
#include <signal.h>
#include <sys/resource.h>

static ebb_status build_net(void *ctx, const ebb_zoo_options *o, ebb_graph **graph_out) {
    const int64_t hidden = ctx != NULL ? *(const int64_t *)ctx : 8;
    ebb_graph_options g = EBB_GRAPH_OPTIONS_INIT;
    g.mem = o->mem;
    g.name = "small";
    g.inference = o->inference;
    ebb_graph *graph = NULL;
    ebb_status status = ebb_graph_create(&g, &graph);
    if (status != EBB_OK) { return status; }
    const int64_t side = o->height > 0 ? o->height : 8, channels = o->channels > 0 ? o->channels : 1;
    const int64_t classes = o->classes > 0 ? o->classes : 10;
    const ebb_window three = ebb_window_square(3, 1, 1), two = ebb_window_square(2, 2, 0);
    ebb_value x = ebb_graph_images(graph, o->batch, channels, side, side);
    ebb_value labels = ebb_graph_labels(graph, o->batch, classes);
    x = ebb_graph_conv(graph, "conv1", x, hidden, &three, false);
    x = ebb_graph_batch_norm(graph, "bn1", x, 1e-5f, 0.1f);
    x = ebb_graph_relu(graph, "relu1", x);
    x = ebb_graph_max_pool(graph, "pool", x, &two);
    x = ebb_graph_conv(graph, "conv2", x, hidden, &three, true);
    x = ebb_graph_relu(graph, "relu2", x);
    x = ebb_graph_dropout(graph, "drop", x, 0.2f);
    x = ebb_graph_linear(graph, "fc", x, classes, true);
    (void)ebb_graph_softmax_loss(graph, x, labels);
    status = ebb_graph_check(graph);
    if (status != EBB_OK) {
        ebb_graph_destroy(graph);
        return status;
    }
    *graph_out = graph;
    return EBB_OK;
}

static char data_spec[512];
static char machine_file[512]; /* round figures: measuring takes longer than the tests that do not ask for it */

static ebb_trainer_options base_options(void) {
    ebb_trainer_options o = EBB_TRAINER_OPTIONS_INIT;
    o.session.network_fn = build_net;
    o.session.backend = "ref";
    o.data = data_spec;
    o.session.machine_path = machine_file;
    o.session.batch = 16;
    o.session.effort = 0;
    o.n_steps = 10;
    o.seed = 3;
    o.learning_rate = 0.02f;
    o.augment = true;
    o.schedule.kind = EBB_LR_COSINE;
    o.schedule.warmup_updates = 3;
    return o;
}

static ebb_trainer *make(ebb_trainer_options o) {
    ebb_trainer *trainer = NULL;
    if (ebb_trainer_create(&o, &trainer, NULL, NULL) != EBB_OK) { fail_msg("%s", ebb_last_error()); }
    return trainer;
}

static void step(ebb_trainer *trainer, uint64_t n, float *losses) {
    for (uint64_t i = 0; i < n; i++) {
        ebb_step_result result;
        bool done = true;
        if (ebb_trainer_step(trainer, &result, &done) != EBB_OK) { fail_msg("%s", ebb_last_error()); }
        assert_false(done);
        if (losses != NULL) { losses[i] = result.loss; }
    }
}

static void hash(ebb_trainer *trainer, char hex[65]) {
    ebb_trainer_summary summary;
    assert_int_equal(ebb_trainer_summarize(trainer, &summary), EBB_OK);
    memcpy(hex, summary.weights_sha256, 65);
}

static void expect_refused(ebb_trainer_options o, ebb_status status, const char *says) {
    ebb_trainer *trainer = NULL;
    assert_int_equal(ebb_trainer_create(&o, &trainer, NULL, NULL), status);
    assert_null(trainer);
    expect_message(says);
}

/* ---- learning --------------------------------------------------------------------------------- */

static void test_learns(void **state) {
    (void)state;
    ebb_trainer_options o = base_options();
    o.n_steps = 0;
    o.n_epochs = 4;
    o.augment = false;
    o.session.budget_percent = 80;
    o.session.machine_path = NULL; /* measured */
    ebb_trainer *trainer = make(o);
    ebb_trainer_info info = ebb_trainer_get_info(trainer);
    assert_string_equal(info.net, "small");
    assert_string_equal(info.policy, "best");
    assert_int_equal(info.n_train_images, 160);
    assert_int_equal(info.n_test_images, 40);
    assert_int_equal(info.n_steps, 40);
    assert_int_equal(info.n_parameters, 72 + 8 + 8 + 584 + 10 * 128 + 10);
    assert_true(info.plan.budget_bytes == (uint64_t)((double)info.liveness_bytes * 0.8));
    assert_true(info.plan.peak_bytes <= info.plan.budget_bytes);
    float losses[40];
    ebb_trainer_summary summary;
    assert_int_equal(ebb_trainer_summarize(trainer, &summary), EBB_OK);
    for (uint32_t e = 0; e < info.n_engines; e++) { assert_true(isnan(summary.stall_median_s[e])); } /* no step yet */
    ebb_eval_result before, after;
    assert_int_equal(ebb_trainer_evaluate(trainer, &before), EBB_OK);
    assert_int_equal(before.n_images, 40);
    step(trainer, 40, losses);
    assert_true(losses[39] < losses[0] / 4);
    assert_int_equal(ebb_trainer_evaluate(trainer, &after), EBB_OK);

    assert_true(after.accuracy > 0.95 && after.accuracy <= 1.0);
    assert_true(after.loss < before.loss && after.loss > 0);
    ebb_step_result unused;
    bool done = false;
    assert_int_equal(ebb_trainer_step(trainer, &unused, &done), EBB_OK);
    assert_true(done);
    assert_int_equal(ebb_trainer_summarize(trainer, &summary), EBB_OK);
    assert_int_equal(summary.run.peak_bytes, info.plan.peak_bytes);
    assert_true(summary.step_time_median_s > 0 && summary.images_per_s > 0);
    assert_int_equal(info.n_engines, 5);
    assert_string_equal(info.engine_name[EBB_COMPUTE], "compute");
    assert_string_equal(info.engine_name[1], "host-out");
    for (uint32_t e = 0; e < info.n_engines; e++) {
        assert_true(info.stall_predicted_s[e] >= 0 && info.stall_predicted_s[e] <= info.step_time_predicted_s);
        assert_true(summary.stall_median_s[e] >= 0 && summary.stall_median_s[e] <= summary.step_time_median_s);
    }
    assert_true(info.busy_predicted_s[EBB_COMPUTE] > 0 && info.busy_predicted_s[1] > 0);
    assert_true(info.busy_predicted_s[4] == 0 && summary.stall_median_s[4] == 0); /* there is no disk */
    assert_int_equal(strlen(summary.weights_sha256), 64);
    ebb_trainer_destroy(trainer);
    ebb_trainer_destroy(NULL);
}

/* Evaluation changes nothing of training, nor does the size of its last batch. */
static void test_evaluation_leaves_no_trace(void **state) {
    (void)state;
    char with[65], without[65];
    ebb_eval_result eval[2];
    ebb_trainer *trainer = make(base_options());
    step(trainer, 10, NULL);
    hash(trainer, without);
    ebb_trainer_destroy(trainer);
    trainer = make(base_options());
    for (int i = 0; i < 5; i++) {
        step(trainer, 2, NULL);
        assert_int_equal(ebb_trainer_evaluate(trainer, &eval[0]), EBB_OK);
    }
    hash(trainer, with);
    assert_string_equal(with, without);
    assert_int_equal(ebb_trainer_save(trainer, data_path(&test_dir, "w")), EBB_OK);
    ebb_trainer_destroy(trainer);
    ebb_trainer_options o = base_options();
    o.load_path = data_path(&test_dir, "w");
    o.session.batch = 7;
    trainer = make(o);
    assert_int_equal(ebb_trainer_evaluate(trainer, &eval[1]), EBB_OK);
    assert_true(eval[0].accuracy == eval[1].accuracy);
    assert_true(fabs(eval[0].loss - eval[1].loss) < 1e-4 * eval[0].loss);
    ebb_trainer_destroy(trainer);
}

static void test_same_bits_under_every_policy(void **state) {
    (void)state;
    static const struct {
        const char *policy;
        double percent;
    } runs[] = {{"none", 0}, {"liveness", 0}, {NULL, 100}, {NULL, 80}, {NULL, 70}};
    char hex[2][65];
    float losses[2][10];
    for (size_t r = 0; r < sizeof runs / sizeof runs[0]; r++) {
        ebb_trainer_options o = base_options();
        o.session.policy = runs[r].policy;
        o.session.budget_percent = runs[r].percent;
        if (r == 4) { o.session.disk_dir = test_dir.path; }
        ebb_trainer *trainer = make(o);
        step(trainer, 10, losses[r > 0]);
        hash(trainer, hex[r > 0]);
        ebb_trainer_summary summary;
        assert_int_equal(ebb_trainer_summarize(trainer, &summary), EBB_OK);
        assert_int_equal(summary.run.peak_bytes, ebb_trainer_get_info(trainer).plan.peak_bytes);
        assert_memory_equal(losses[0], losses[r > 0], sizeof losses[0]);
        assert_string_equal(hex[0], hex[r > 0]);
        ebb_trainer_destroy(trainer);
    }
}

/* ---- checkpoints ------------------------------------------------------------------------------ */

static void test_goes_on_as_if_nothing_had_been(void **state) {
    (void)state;
    static const ebb_optimizer_kind kinds[] = {EBB_OPT_MOMENTUM, EBB_OPT_ADAMW};
    for (size_t k = 0; k < 2; k++) {
        float straight[10], resumed[10];
        char hex[2][65];
        ebb_trainer_options o = base_options();
        o.session.optimizer.kind = kinds[k];
        o.learning_rate = k == 0 ? 0.02f : 0.002f;
        ebb_trainer *trainer = make(o);
        step(trainer, 10, straight);
        hash(trainer, hex[0]);
        ebb_trainer_destroy(trainer);
        o.checkpoint_path = data_path(&test_dir, k == 0 ? "c0" : "c1");
        o.checkpoint_every = 4;                    /* steps 4, 8, and 10, the last */
        static const uint64_t parts[] = {5, 4, 2}; /* lost: step 5; then step 9 */
        uint64_t at = 0;
        for (size_t p = 0; p < 3; p++) {
            trainer = make(o);
            assert_int_equal(ebb_trainer_get_info(trainer).first_step, at);
            step(trainer, parts[p], resumed + at);
            if (p == 2) { hash(trainer, hex[1]); }
            ebb_trainer_destroy(trainer);
            at = (at + parts[p]) / 4 * 4;
        }
        assert_memory_equal(straight, resumed, sizeof straight);
        assert_string_equal(hex[0], hex[1]);
        trainer = make(o); /* it is at the end */
        ebb_step_result unused;
        bool done = false;
        assert_int_equal(ebb_trainer_step(trainer, &unused, &done), EBB_OK);
        assert_true(done);
        ebb_trainer_destroy(trainer);
    }
}

static void test_checkpoints_that_do_not_fit(void **state) {
    (void)state;
    char path[256];
    ebb_trainer *trainer = make(base_options());
    step(trainer, 2, NULL);
    (void)snprintf(path, sizeof path, "%s", data_path(&test_dir, "c"));
    assert_int_equal(ebb_trainer_checkpoint(trainer, path), EBB_OK);
    ebb_trainer_destroy(trainer);
    ebb_trainer_options o = base_options();
    o.checkpoint_path = path;
    ebb_trainer_options other = o;
    other.seed = 4;
    expect_refused(other, EBB_E_ARGUMENT, "checkpoint's seed is '3', not '4'");
    other = o;
    other.session.batch = 8;
    expect_refused(other, EBB_E_ARGUMENT, "checkpoint's batch is '16', not '8'");
    other = o;
    other.session.optimizer.kind = EBB_OPT_ADAM;
    expect_refused(other, EBB_E_ARGUMENT, "checkpoint's optimizer is 'momentum");
    other = o;
    other.augment = false;
    expect_refused(other, EBB_E_ARGUMENT, "checkpoint's data is 'digits, 160 images");
    int64_t hidden = 9;
    other = o;
    other.session.network_ctx = &hidden;
    expect_refused(other, EBB_E_FORMAT, "is of dims");
    other = o;
    other.learning_rate = 0.5f; /* may be changed on purpose */
    ebb_trainer_destroy(make(other));
    assert_int_equal(truncate(path, 1000), 0);
    expect_refused(o, EBB_E_FORMAT, path);
    data_put(&test_dir, "c", "", 0);
    expect_refused(o, EBB_E_FORMAT, path);
}

/* ---- losses and weights that are no numbers ----------------------------------------------------- */

/* So large a rate that the second loss overflows. */
static ebb_trainer_options steep_options(void) {
    static char path[256];
    ebb_trainer_options o = base_options();
    (void)snprintf(path, sizeof path, "%s/steep", test_dir.path);
    o.schedule = (ebb_lr_schedule){.kind = EBB_LR_CONSTANT};
    o.learning_rate = 1e30f;
    o.checkpoint_path = path;
    o.checkpoint_every = 1;
    return o;
}

static void read_whole(const char *path, char **data, size_t *n) {
    assert_int_equal(ebb__file_read_all(NULL, path, UINT64_MAX, data, n), EBB_OK);
}

static void expect_not_finite(ebb_trainer *trainer, const char *says) {
    ebb_step_result untouched = {.step = 77};
    bool done = true;
    assert_int_equal(ebb_trainer_step(trainer, &untouched, &done), EBB_E_NOT_FINITE);
    expect_message(says);
    assert_int_equal(untouched.step, 77);
    assert_true(done);
}

static void test_a_loss_that_is_not_finite_stops(void **state) {
    (void)state;
    ebb_trainer_options o = steep_options();
    char *before = NULL, *after = NULL;
    size_t n_before = 0, n_after = 0;
    ebb_trainer *trainer = make(o);
    step(trainer, 1, NULL);
    read_whole(o.checkpoint_path, &before, &n_before);
    expect_not_finite(trainer, "step 2: the loss is nan at a learning rate of 1e+30");
    read_whole(o.checkpoint_path, &after, &n_after);
    assert_int_equal(n_before, n_after);
    assert_memory_equal(before, after, n_before);
    assert_int_equal(ebb_trainer_checkpoint(trainer, o.checkpoint_path), EBB_E_NOT_FINITE);
    expect_message("not written: after step 2 '");
    ebb__free(NULL, after);
    read_whole(o.checkpoint_path, &after, &n_after);
    assert_memory_equal(before, after, n_before);
    assert_int_equal(ebb_trainer_save(trainer, data_path(&test_dir, "w")), EBB_E_NOT_FINITE);
    expect_message("/w: not written: after step 2 '");
    assert_int_not_equal(access(data_path(&test_dir, "w"), F_OK), 0);
    ebb_trainer_destroy(trainer);

    o.keep_going = true; /* from step 1, to the end; the checkpoint is still that of step 1 */
    trainer = make(o);
    assert_int_equal(ebb_trainer_get_info(trainer).first_step, 1);
    float losses[9];
    step(trainer, 9, losses);
    assert_true(isnan(losses[8]));
    assert_int_equal(ebb_trainer_save(trainer, data_path(&test_dir, "w")), EBB_OK);
    ebb_trainer_destroy(trainer);
    ebb__free(NULL, after);
    read_whole(o.checkpoint_path, &after, &n_after);
    assert_memory_equal(before, after, n_before);
    ebb__free(NULL, before);
    ebb__free(NULL, after);
}

/* The loss is of the weights before the update: it may be fine where they are not any more. */
static void test_weights_that_are_not_finite_are_no_checkpoint(void **state) {
    (void)state;
    ebb_trainer_options o = steep_options();
    o.learning_rate = 3e38f;
    o.session.optimizer.weight_decay = 1e29f;
    ebb_trainer *trainer = make(o);
    expect_not_finite(trainer, "not written: after step 1 '");
    assert_int_not_equal(access(o.checkpoint_path, F_OK), 0);
    ebb_trainer_destroy(trainer);
}

static void test_checkpoint_cannot_be_written(void **state) {
    (void)state;
    ebb_trainer_options o = base_options();
    char path[256];
    (void)snprintf(path, sizeof path, "%s/none/c", test_dir.path);
    o.checkpoint_path = path;
    o.checkpoint_every = 1;
    ebb_trainer *trainer = make(o);
    ebb_step_result unused;
    bool done = false;
    assert_int_equal(ebb_trainer_step(trainer, &unused, &done), EBB_E_IO);
    assert_non_null(strstr(ebb_last_error(), path));
    ebb_trainer_destroy(trainer);
}

/* Only a file that is not there begins a run from the start: what cannot be reached may be a checkpoint. */
static void test_checkpoint_out_of_reach(void **state) {
    (void)state;
    ebb_trainer_options o = base_options();
    char path[256];
    (void)snprintf(path, sizeof path, "%s", data_path(&test_dir, "loop"));
    assert_int_equal(symlink("loop", path), 0);
    o.checkpoint_path = path;
    expect_refused(o, EBB_E_IO, path);
    (void)snprintf(path, sizeof path, "%s", data_path(&test_dir, "d.csv.gz/c")); /* a file is no folder */
    expect_refused(o, EBB_E_IO, path);
    (void)snprintf(path, sizeof path, "%s", data_path(&test_dir, "locked/c"));
    data_put(&test_dir, "locked/c", "", 0);
    (void)snprintf(test_dir.file, sizeof test_dir.file, "%s/locked", test_dir.path);
    assert_int_equal(chmod(test_dir.file, 0), 0);
    if (geteuid() != 0) { expect_refused(o, EBB_E_IO, path); } /* root may look anywhere */
    assert_int_equal(chmod(test_dir.file, 0700), 0);
}

/* A file may not grow beyond what a checkpoint needs: the old one stays, nothing new remains. */
static void test_full_disk(void **state) {
    (void)state;
    char path[256];
    (void)snprintf(path, sizeof path, "%s", data_path(&test_dir, "c"));
    ebb_trainer *trainer = make(base_options());
    step(trainer, 1, NULL);
    assert_int_equal(ebb_trainer_checkpoint(trainer, path), EBB_OK);
    step(trainer, 1, NULL);
    struct rlimit old, small = {.rlim_cur = 5000, .rlim_max = RLIM_INFINITY};
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &old), 0);
    small.rlim_max = old.rlim_max;
    (void)signal(SIGXFSZ, SIG_IGN);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &small), 0);
    ebb_status status = ebb_trainer_checkpoint(trainer, path);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &old), 0);
    assert_int_equal(status, EBB_E_IO);
    assert_non_null(strstr(ebb_last_error(), path));
    ebb_trainer_destroy(trainer);
    ebb_trainer_options o = base_options();
    o.checkpoint_path = path;
    trainer = make(o);
    assert_int_equal(ebb_trainer_get_info(trainer).first_step, 1);
    ebb_trainer_destroy(trainer);
    assert_int_equal(unlink(path), 0);
    assert_int_equal(unlink(data_path(&test_dir, "d.csv.gz")), 0);
    assert_int_equal(unlink(machine_file), 0);
    assert_int_equal(rmdir(test_dir.path), 0); /* it is empty now */
    assert_int_equal(mkdir(test_dir.path, 0700), 0);
}

/* ---- weights ---------------------------------------------------------------------------------- */

static int32_t tracked(const char *path) {
    ebb_safetensors *file = NULL;
    int32_t n = 0;
    assert_int_equal(ebb__safetensors_open(NULL, path, &file), EBB_OK);
    const ebb_st_tensor *tensor = ebb__safetensors_find(file, "bn1.num_batches_tracked");
    assert_non_null(tensor);
    assert_int_equal(tensor->n_dims, 0);
    assert_int_equal(ebb__safetensors_read_s32(file, tensor, 0, 1, &n), EBB_OK);
    ebb__safetensors_close(file);
    return n;
}

/* Batches that batch-norm has seen add up, through weights and through checkpoints. */
static void test_batches_tracked(void **state) {
    (void)state;
    char path[256], checkpoint[256];
    (void)snprintf(path, sizeof path, "%s", data_path(&test_dir, "w"));
    (void)snprintf(checkpoint, sizeof checkpoint, "%s", data_path(&test_dir, "c"));
    ebb_trainer *trainer = make(base_options());
    step(trainer, 3, NULL);
    assert_int_equal(ebb_trainer_save(trainer, path), EBB_OK);
    ebb_trainer_destroy(trainer);
    assert_int_equal(tracked(path), 3);
    ebb_trainer_options o = base_options();
    o.load_path = path;
    o.checkpoint_path = checkpoint;
    for (int run = 0; run < 2; run++) { /* the second goes on from the checkpoint of the first */
        trainer = make(o);
        step(trainer, 2, NULL);
        assert_int_equal(ebb_trainer_checkpoint(trainer, checkpoint), EBB_OK);
        assert_int_equal(ebb_trainer_save(trainer, path), EBB_OK);
        ebb_trainer_destroy(trainer);
        assert_int_equal(tracked(path), 5 + 2 * run);
    }
}

static void test_weights_travel(void **state) {
    (void)state;
    char path[256], hex[2][65];
    (void)snprintf(path, sizeof path, "%s", data_path(&test_dir, "w"));
    ebb_trainer *trainer = make(base_options());
    step(trainer, 3, NULL);
    hash(trainer, hex[0]);
    assert_int_equal(ebb_trainer_save(trainer, path), EBB_OK);
    assert_int_equal(ebb_trainer_save_gradients(trainer, path), EBB_E_ARGUMENT);
    ebb_trainer_destroy(trainer);
    ebb_trainer_options o = base_options();
    o.load_path = path;
    o.seed = 77;
    o.session.budget_percent = 80; /* another policy lays them elsewhere */
    trainer = make(o);
    hash(trainer, hex[1]);
    assert_string_equal(hex[0], hex[1]);
    ebb_trainer_destroy(trainer);
    ebb_safetensors *file = NULL;
    assert_int_equal(ebb__safetensors_open(NULL, path, &file), EBB_OK);
    assert_int_equal(file->tensors.n, 1 + 4 + 1 + 2 + 2);
    assert_non_null(ebb__safetensors_find(file, "bn1.running_var"));
    assert_null(ebb__safetensors_find(file, "conv1.bias"));
    ebb__safetensors_close(file);
    int64_t hidden = 4;
    o.session.network_ctx = &hidden;
    expect_refused(o, EBB_E_FORMAT, "tensor 'conv1.weight' is of dims (8, 1, 3, 3), the network's of (4, 1, 3, 3)");
    o = base_options();
    data_put(&test_dir, "w", "\x02\0\0\0\0\0\0\0{}", 10);
    o.load_path = path;
    expect_refused(o, EBB_E_FORMAT, "9 of the network's tensors are missing, 'conv1.weight' is the first");
    o.load_path = "/nonexistent/w";
    expect_refused(o, EBB_E_IO, "/nonexistent/w");
}

static void test_gradients(void **state) {
    (void)state;
    char path[256], hex[2][65];
    (void)snprintf(path, sizeof path, "%s", data_path(&test_dir, "g"));
    ebb_trainer_options o = base_options();
    o.session.keep_gradients = true;
    o.n_steps = 1;
    ebb_trainer *trainer = make(o);
    step(trainer, 1, NULL);
    hash(trainer, hex[0]);
    assert_int_equal(ebb_trainer_save_gradients(trainer, path), EBB_OK);
    ebb_trainer_destroy(trainer);
    ebb_safetensors *file = NULL;
    float gradient[10], sum = 0;
    assert_int_equal(ebb__safetensors_open(NULL, path, &file), EBB_OK);
    assert_int_equal(file->tensors.n, 7);
    const ebb_st_tensor *tensor = ebb__safetensors_find(file, "fc.bias");
    assert_int_equal(ebb__safetensors_read_f32(file, tensor, 0, 10, gradient), EBB_OK);
    for (int i = 0; i < 10; i++) { sum += gradient[i]; }
    assert_true(fabsf(sum) < 1e-5f && gradient[0] != 0); /* softmax: they add up to nothing */
    ebb__safetensors_close(file);
}

/* ---- limits and refusals ---------------------------------------------------------------------- */

static void test_too_small_budgets(void **state) {
    (void)state;
    ebb_trainer_options o = base_options();
    ebb_trainer *trainer = NULL;
    ebb_no_fit no_fit = {0};
    char step_name[128] = "";
    o.session.budget_percent = 1;
    assert_int_equal(ebb_trainer_create(&o, &trainer, &no_fit, step_name), EBB_E_NO_FIT);
    assert_true(no_fit.least_budget_bytes > 0);
    assert_true(step_name[0] != '\0');
    o.session.budget_percent = 0;
    o.session.budget_bytes = no_fit.least_budget_bytes;
    trainer = make(o);
    step(trainer, 2, NULL);
    ebb_trainer_destroy(trainer);
    o.session.budget_bytes--;
    assert_int_equal(ebb_trainer_create(&o, &trainer, NULL, NULL), EBB_E_NO_FIT);
}

static void test_too_little_host_memory(void **state) {
    (void)state;
    ebb_trainer_options o = base_options();
    ebb_trainer *trainer = NULL;
    ebb_no_fit no_fit = {0};
    o.session.host_bytes = 1000;
    assert_int_equal(ebb_trainer_create(&o, &trainer, &no_fit, NULL), EBB_E_NO_FIT);
    assert_non_null(strstr(ebb_last_error(), "host memory"));
    assert_int_equal(no_fit.least_budget_bytes, 0);
    assert_true(no_fit.least_host_bytes > 1000);
    o.session.host_bytes = no_fit.least_host_bytes - 1;
    assert_int_equal(ebb_trainer_create(&o, &trainer, NULL, NULL), EBB_E_NO_FIT);
    o.session.host_bytes = no_fit.least_host_bytes; /* enough where nothing has to leave the device */
    ebb_trainer_destroy(make(o));
    o.session.host_bytes = 1u << 20; /* and some for a slab */
    o.session.budget_percent = 80;
    trainer = make(o);
    step(trainer, 1, NULL);
    ebb_trainer_summary summary;
    assert_int_equal(ebb_trainer_summarize(trainer, &summary), EBB_OK);
    assert_true(summary.run.slab_bytes + summary.data_bytes <= o.session.host_bytes);
    ebb_trainer_destroy(trainer);
}

/* Pictures are decoded out of what the host's memory has left; counted is what they took, a whole one too. */
/* Bytes that are out, and the most there were. */
typedef struct counted_mem {
    ebb_mem hooks;
    size_t n_live, n_most;
} counted_mem;

static void *count_bytes(counted_mem *c, void *ptr, size_t n_before) {
    if (ptr != NULL) { c->n_live += malloc_usable_size(ptr) - n_before; }
    if (c->n_live > c->n_most) { c->n_most = c->n_live; }
    return ptr;
}

static void *counted_alloc(void *ctx, size_t size_bytes) {
    return count_bytes(ctx, malloc(size_bytes), 0);
}

static void *counted_resize(void *ctx, void *ptr, size_t size_bytes) {
    const size_t n_before = ptr != NULL ? malloc_usable_size(ptr) : 0;
    return count_bytes(ctx, realloc(ptr, size_bytes), n_before);
}

static void counted_free(void *ctx, void *ptr) {
    counted_mem *c = ctx;
    c->n_live -= ptr != NULL ? malloc_usable_size(ptr) : 0;
    free(ptr);
}

#define BOOKS_BYTES (512 * 1024) /* of a run, more than enough: commands, events, kernels */

/* While it evaluates, training leaves on the host what lasts, and nothing else of the arena, under any policy. */
static void test_evaluation_in_little_host_memory(void **state) {
    (void)state;
    static const char *const policies[] = {"none", "liveness", "budget"};
    for (size_t p = 0; p < sizeof policies / sizeof policies[0]; p++) {
        counted_mem mem = {.hooks = {counted_alloc, counted_resize, counted_free, &mem}};
        ebb_trainer_options o = base_options();
        ebb_trainer *trainer = NULL;
        ebb_no_fit no_fit = {0};
        int64_t hidden = 16;
        o.session.mem = &mem.hooks;
        o.session.policy = policies[p];
        o.session.network_ctx = &hidden;
        o.session.batch = 80;
        o.session.host_bytes = 1;
        assert_int_equal(ebb_trainer_create(&o, &trainer, &no_fit, NULL), EBB_E_NO_FIT);
        assert_int_equal(mem.n_live, 0);
        o.session.host_bytes = no_fit.least_host_bytes;
        trainer = make(o);
        step(trainer, 1, NULL);
        const size_t n_live = mem.n_most = mem.n_live;
        ebb_eval_result eval;
        assert_int_equal(ebb_trainer_evaluate(trainer, &eval), EBB_OK);
        assert_int_equal(mem.n_live, n_live);
        assert_in_range(mem.n_most - n_live, 1, o.session.host_bytes + BOOKS_BYTES);
        ebb_trainer_summary summary;
        assert_int_equal(ebb_trainer_summarize(trainer, &summary), EBB_OK);
        assert_in_range(summary.run.slab_bytes + summary.data_bytes, 1, o.session.host_bytes);
        assert_true(summary.run.arena_bytes > o.session.host_bytes + BOOKS_BYTES);
        ebb_trainer_destroy(trainer);
        assert_int_equal(mem.n_live, 0);
    }
}

static void test_no_evaluation_needs_no_room(void **state) {
    (void)state;
    ebb_trainer_options o = base_options();
    ebb_trainer *trainer = NULL;
    ebb_no_fit with = {0}, without = {0};
    ebb_eval_result eval;
    o.session.host_bytes = 1;
    assert_int_equal(ebb_trainer_create(&o, &trainer, &with, NULL), EBB_E_NO_FIT);
    o.no_evaluation = true;
    assert_int_equal(ebb_trainer_create(&o, &trainer, &without, NULL), EBB_E_NO_FIT);
    assert_true(without.least_host_bytes < with.least_host_bytes);
    o.session.host_bytes = without.least_host_bytes;
    trainer = make(o);
    step(trainer, 1, NULL);
    assert_int_equal(ebb_trainer_get_info(trainer).n_test_images, 0);
    assert_int_equal(ebb_trainer_evaluate(trainer, &eval), EBB_E_ARGUMENT);
    assert_non_null(strstr(ebb_last_error(), "not wanted"));
    ebb_trainer_destroy(trainer);
}

static void test_pictures_in_little_host_memory(void **state) {
    (void)state;
    const uint8_t rgb[3] = {200, 100, 40};
    char spec[512], name[64];
    for (int i = 0; i < 12; i++) {
        (void)snprintf(name, sizeof name, "pictures/%s/%d.png", i % 2 == 0 ? "train/a" : "test/a", i);
        data_put_png(&test_dir, name, data_picture_of(160, 200, rgb, i < 2));
    }
    (void)snprintf(spec, sizeof spec, "images:%s/pictures", test_dir.path);
    ebb_trainer_options o = base_options();
    o.data = spec;
    o.session.batch = 2;
    o.n_steps = 3;
    o.session.channels = 3;
    o.session.height = o.session.width = 16;
    o.session.host_bytes = 1000;
    ebb_no_fit no_fit = {0};
    ebb_trainer *trainer = NULL;
    assert_int_equal(ebb_trainer_create(&o, &trainer, &no_fit, NULL), EBB_E_NO_FIT);
    assert_true(no_fit.least_host_bytes > 1000 && no_fit.least_host_bytes < 4u << 20);
    o.session.host_bytes = no_fit.least_host_bytes;
    trainer = make(o);
    ebb_trainer_summary before, after;
    assert_int_equal(ebb_trainer_summarize(trainer, &before), EBB_OK);
    step(trainer, 3, NULL);
    ebb_eval_result eval;
    assert_int_equal(ebb_trainer_evaluate(trainer, &eval), EBB_OK);
    assert_int_equal(ebb_trainer_summarize(trainer, &after), EBB_OK);
    assert_true(after.data_bytes >= before.data_bytes + 200 * 160 * 3); /* it was held whole */
    assert_true(after.run.slab_bytes + after.data_bytes <= o.session.host_bytes);
    ebb_trainer_destroy(trainer);

    data_put_jpeg(&test_dir, "pictures/train/a/0.png", data_picture_of(1000, 1000, rgb, true));
    trainer = make(o);
    ebb_status status = EBB_OK;
    bool done = false;
    ebb_step_result result;
    while (status == EBB_OK && !done) { status = ebb_trainer_step(trainer, &result, &done); }
    assert_int_equal(status, EBB_E_FORMAT);
    expect_message("a/0.png: byte ");
    expect_message("bytes to decode; at most ");
    ebb_trainer_destroy(trainer);
}

static void put_pictures(void) {
    char name[64];
    for (uint8_t i = 0; i < 12; i++) {
        const uint8_t rgb[3] = {(uint8_t)(20 * i), 100, (uint8_t)(255 - 9 * i)};
        (void)snprintf(name, sizeof name, "mended/train/%s/%d.png", i % 2 == 0 ? "a" : "b", i);
        data_put_png(&test_dir, name, data_picture_of(20, 20, rgb, false));
    }
}

/* Steps that are made before one fails. */
static uint64_t step_until_it_fails(ebb_trainer *trainer) {
    uint64_t n = 0;
    bool done = false;
    ebb_step_result result;
    while (ebb_trainer_step(trainer, &result, &done) == EBB_OK) {
        assert_false(done);
        n++;
    }
    return n;
}

/* A picture that cannot be decoded fails its step, or the one before if batches come early, as often as that is tried.
 * Once it is mended, training goes on as if nothing had been. */
static void test_a_damaged_picture_can_be_mended(void **state) {
    (void)state;
    char spec[512], whole[65], mended[65];
    uint64_t first_made = 0;
    (void)snprintf(spec, sizeof spec, "images:%s/mended", test_dir.path);
    ebb_trainer_options o = base_options();
    o.data = spec;
    o.session.batch = 4;
    o.n_steps = 6;
    o.session.channels = 3;
    o.session.height = o.session.width = 16;
    for (int early = 0; early < 2; early++) {
        o.session.feed = early ? "early" : "first";
        put_pictures();
        ebb_trainer *trainer = make(o);
        step(trainer, 6, NULL);
        hash(trainer, whole);
        ebb_trainer_destroy(trainer);

        data_put(&test_dir, "mended/train/b/7.png", "oops", 4);
        trainer = make(o);
        const uint64_t made = step_until_it_fails(trainer);
        expect_message("b/7.png");
        assert_true(step_until_it_fails(trainer) == 0);
        expect_message("b/7.png");
        assert_true(made < 3 && (early ? made + 1 == first_made : made > 0));
        first_made = made;
        put_pictures();
        step(trainer, 6 - made, NULL);
        hash(trainer, mended);
        assert_string_equal(mended, whole);
        ebb_trainer_destroy(trainer);

        trainer = make(o);
        step(trainer, 2, NULL);
        ebb_trainer_destroy(trainer); /* while the next batch is read */
    }
}

static void test_bad_options(void **state) {
    (void)state;
    ebb_trainer_options o = base_options();
    o.size_bytes = 0;
    expect_refused(o, EBB_E_ARGUMENT, "ebb_trainer_options of 0 bytes");
    o = base_options();
    o.session.net = "lenet"; /* and a function */
    expect_refused(o, EBB_E_ARGUMENT, "one of both");
    o = base_options();
    o.session.network_fn = NULL;
    expect_refused(o, EBB_E_ARGUMENT, "one of both");
    o = base_options();
    o.session.backend = "abacus";
    expect_refused(o, EBB_E_NO_DEVICE, "abacus");
    o = base_options();
    o.session.batch = 161;
    expect_refused(o, EBB_E_ARGUMENT, "160 images make no batch of 161");
    o = base_options();
    o.session.classes = 7;
    expect_refused(o, EBB_E_FORMAT, "label 7 is not among 7 classes");
    o = base_options();
    o.session.policy = "magic";
    expect_refused(o, EBB_E_ARGUMENT, "magic");
    o = base_options();
    o.schedule.kind = (ebb_schedule_kind)9;
    expect_refused(o, EBB_E_ARGUMENT, "no schedule of number 9");
    o = base_options();
    o.session.budget_percent = NAN;
    expect_refused(o, EBB_E_ARGUMENT, "not possible");
    o = base_options();
    o.learning_rate = -1;
    expect_refused(o, EBB_E_ARGUMENT, "a learning rate of -1 is not possible");
    o = base_options();
    o.session.optimizer.momentum = INFINITY;
    expect_refused(o, EBB_E_ARGUMENT, "a momentum of inf is not possible");
    o = base_options();
    o.session.optimizer.weight_decay = NAN;
    expect_refused(o, EBB_E_ARGUMENT, "a weight decay of nan is not possible");
    o = base_options();
    o.data = "synthetic";
    o.n_steps = 0;
    o.n_epochs = 1;
    expect_refused(o, EBB_E_ARGUMENT, "endless");
}

static void test_numbers_that_make_no_sense(void **state) {
    (void)state;
    ebb_trainer_options o = base_options();
    o.schedule.kind = EBB_LR_STEP; /* and no period */
    expect_refused(o, EBB_E_ARGUMENT, "schedule step: it needs step_updates of 1 or more");
    static const float factors[] = {-0.1f, NAN, INFINITY, -INFINITY};
    for (size_t i = 0; i < sizeof factors / sizeof factors[0]; i++) {
        o = base_options();
        o.schedule.step_factor = factors[i];
        expect_refused(o, EBB_E_ARGUMENT, "schedule step_factor: it must be finite and not negative, not ");
        o = base_options();
        o.schedule.final_factor = factors[i];
        expect_refused(o, EBB_E_ARGUMENT, "schedule final_factor");
    }
    o = base_options();
    o.session.optimizer.weight_decay = -NAN;
    expect_refused(o, EBB_E_ARGUMENT, "a weight decay of nan is not possible");
    o = base_options();
    o.session.optimizer.beta2 = NAN;
    expect_refused(o, EBB_E_ARGUMENT, "beta2 must be in [0, 1)");
    o = base_options();
    o.session.optimizer.epsilon = 0;
    expect_refused(o, EBB_E_ARGUMENT, "epsilon must be above 0");
    o = base_options();
    o.session.n_threads = -1;
    expect_refused(o, EBB_E_ARGUMENT, "-1 threads");
    o = base_options();
    o.session.device_index = -1;
    expect_refused(o, EBB_E_ARGUMENT, "no device of number -1");
    o = base_options();
    o.session.height = -1;
    expect_refused(o, EBB_E_ARGUMENT, "cannot be negative");
    o = base_options();
    o.session.budget_percent = INFINITY;
    expect_refused(o, EBB_E_ARGUMENT, "a budget of inf % is not possible");
}

static void test_synthetic_has_no_test_split(void **state) {
    (void)state;
    ebb_trainer_options o = base_options();
    o.data = NULL;
    o.n_steps = 2;
    ebb_trainer *trainer = make(o);
    ebb_trainer_info info = ebb_trainer_get_info(trainer);
    assert_int_equal(info.height, 8); /* the network's default */
    assert_int_equal(info.classes, 10);
    assert_true(info.n_train_images == UINT64_MAX);
    assert_int_equal(info.n_test_images, 0);
    step(trainer, 2, NULL);
    ebb_eval_result eval;
    assert_int_equal(ebb_trainer_evaluate(trainer, &eval), EBB_E_ARGUMENT);
    assert_non_null(strstr(ebb_last_error(), "no test split"));
    ebb_trainer_destroy(trainer);
}

static ebb_status count_and_build(void *ctx, const ebb_zoo_options *options, ebb_graph **graph_out) {
    ++*(int *)ctx;
    return build_net(NULL, options, graph_out);
}

/* One for training and, where there is a test split, one for evaluation. */
static void test_networks_are_built_once(void **state) {
    (void)state;
    int n_built = 0;
    ebb_trainer_options o = base_options();
    o.session.network_fn = count_and_build;
    o.session.network_ctx = &n_built;
    ebb_trainer_destroy(make(o));
    assert_int_equal(n_built, 2);
    n_built = 0;
    o.data = NULL; /* the sizes of synthetic data are the network's */
    o.augment = false;
    ebb_trainer_destroy(make(o));
    assert_int_equal(n_built, 1);
}

static int setup(void **state) {
    (void)setup_dir(state);
    data_put_digits(&test_dir, "d.csv.gz", 200);
    (void)snprintf(data_spec, sizeof data_spec, "digits:%s/d.csv.gz", test_dir.path);
    (void)snprintf(machine_file, sizeof machine_file, "%s", data_path(&test_dir, "machine"));
    ebb_machine *machine = NULL;
    const ebb_status st = ebb_machine_create(NULL, &machine);
    const bool is_saved = st == EBB_OK && ebb_machine_save(machine, machine_file) == EBB_OK;
    ebb_machine_destroy(machine);
    return is_saved ? 0 : -1;
}

#define IN_DIR_OF_DIGITS(test) cmocka_unit_test_setup_teardown(test, setup, teardown_dir)

int main(void) {
    const struct CMUnitTest tests[] = {
        IN_DIR_OF_DIGITS(test_learns),
        IN_DIR_OF_DIGITS(test_evaluation_leaves_no_trace),
        IN_DIR_OF_DIGITS(test_same_bits_under_every_policy),
        IN_DIR_OF_DIGITS(test_goes_on_as_if_nothing_had_been),
        IN_DIR_OF_DIGITS(test_checkpoints_that_do_not_fit),
        IN_DIR_OF_DIGITS(test_a_loss_that_is_not_finite_stops),
        IN_DIR_OF_DIGITS(test_weights_that_are_not_finite_are_no_checkpoint),
        IN_DIR_OF_DIGITS(test_checkpoint_cannot_be_written),
        IN_DIR_OF_DIGITS(test_checkpoint_out_of_reach),
        IN_DIR_OF_DIGITS(test_full_disk),
        IN_DIR_OF_DIGITS(test_weights_travel),
        IN_DIR_OF_DIGITS(test_batches_tracked),
        IN_DIR_OF_DIGITS(test_gradients),
        IN_DIR_OF_DIGITS(test_too_small_budgets),
        IN_DIR_OF_DIGITS(test_too_little_host_memory),
        IN_DIR_OF_DIGITS(test_evaluation_in_little_host_memory),
        IN_DIR_OF_DIGITS(test_no_evaluation_needs_no_room),
        IN_DIR_OF_DIGITS(test_pictures_in_little_host_memory),
        IN_DIR_OF_DIGITS(test_a_damaged_picture_can_be_mended),
        IN_DIR_OF_DIGITS(test_bad_options),
        IN_DIR_OF_DIGITS(test_numbers_that_make_no_sense),
        IN_DIR_OF_DIGITS(test_synthetic_has_no_test_split),
        IN_DIR_OF_DIGITS(test_networks_are_built_once),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
