/* SPDX-License-Identifier: Apache-2.0
 *
 * Trains a convolutional network on handwritten digits inside a budget, with ebb as a library:
 *
 *   cc train_digits.c $(pkg-config --cflags --libs ebb) -o train_digits
 *   OMP_WAIT_POLICY=passive ./train_digits digits.csv.gz 4MiB
 */
#include <ebb/ebb.h>

#include <stdio.h>

static int failed(const char *what) {
    fprintf(stderr, "%s: %s\n", what, ebb_last_error());
    return 1;
}

static int train(ebb_trainer *trainer) {
    ebb_trainer_info info = ebb_trainer_get_info(trainer);
    printf("%s: %llu bytes planned\n", info.net, (unsigned long long)info.plan.peak_bytes);
    ebb_step_result step = {.loss = 0.0f};
    for (bool done = false; !done;) {
        if (ebb_trainer_step(trainer, &step, &done) != EBB_OK) { return failed("step"); }
    }
    ebb_eval_result eval;
    ebb_trainer_summary summary;
    if (ebb_trainer_evaluate(trainer, &eval) != EBB_OK) { return failed("evaluation"); }
    if (ebb_trainer_summarize(trainer, &summary) != EBB_OK) { return failed("summary"); }
    printf("%llu steps, accuracy %.2f %%, %llu bytes at the peak\n", (unsigned long long)step.step,
           100.0 * eval.accuracy, (unsigned long long)summary.run.peak_bytes);
    return summary.run.peak_bytes == info.plan.peak_bytes ? 0 : 1;
}

int main(int argc, char **argv) {
    char data[4096];
    ebb_trainer_options options = EBB_TRAINER_OPTIONS_INIT;
    if (argc != 3 || ebb_bytes_parse(argv[2], &options.session.budget_bytes) != EBB_OK) {
        fprintf(stderr, "usage: train_digits digits.csv.gz BUDGET\n");
        return 2;
    }
    snprintf(data, sizeof data, "digits:%s", argv[1]);
    options.session.net = "resnet20";
    options.data = data;
    options.session.batch = 64;
    options.n_epochs = 15;
    options.learning_rate = 0.1f;
    options.session.optimizer.kind = EBB_OPT_NESTEROV;
    options.schedule.kind = EBB_LR_COSINE;
    ebb_trainer *trainer = NULL;
    if (ebb_trainer_create(&options, &trainer, NULL, NULL) != EBB_OK) { return failed("setup"); }
    int code = train(trainer);
    ebb_trainer_destroy(trainer);
    return code;
}
