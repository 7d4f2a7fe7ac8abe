/* SPDX-License-Identifier: Apache-2.0
 *
 * Evaluation within the budget: training leaves the arena, the evaluated network (planned at setup) takes it,
 * gets the weights by their names, runs over the test split, and training takes the arena back.
 *
 * The last batch is filled up with black pictures of label 0. A network in inference mode treats each picture by
 * itself, so one batch of nothing but those says what each adds to the loss and to the count of right answers, and
 * that is taken off again.
 */
#include "train/trainer_priv.h"

static ebb_value find_value(const ebb_graph *graph, const char *name, size_t *hint) {
    /* both graphs were built in the same order: the search begins after the last hit */
    for (size_t i = 0; i < graph->values.n; i++) {
        size_t v = (*hint + i) % graph->values.n;
        const ebb_value_info *info = &graph->values.data[v];
        if (!ebb__value_is_persistent(info->kind) || strcmp(info->name, name) != 0) { continue; }
        *hint = v + 1;
        return (ebb_value)v;
    }
    return EBB_NO_VALUE;
}

static ebb_status copy_values(ebb_trainer *trainer, ebb_run *eval) {
    const ebb_graph *from = trainer->session->graph, *to = trainer->eval.graph;
    size_t hint = 0;
    for (size_t v = 0; v < to->values.n; v++) {
        const ebb_value_info *info = &to->values.data[v];
        if (!ebb__value_is_persistent(info->kind)) { continue; }
        ebb_value source = find_value(from, info->name, &hint);
        if (source == EBB_NO_VALUE || !ebb__shape_equal(&from->values.data[source].shape, &info->shape)) {
            return ebb_fail(EBB_E_ARGUMENT, "evaluation: the trained network has no '%s' of this shape", info->name);
        }
        EBB_TRY(ebb_run_get_value(trainer->run, source, trainer->staging));
        EBB_TRY(ebb_run_set_value(eval, (ebb_value)v, trainer->staging));
    }
    return EBB_OK;
}

/* What one filled-up place adds. */
static ebb_status run_black(const ebb_trainer *trainer, ebb_run *eval, const ebb_trainer_ports *ports, double *loss_out,
                            double *correct_out) {
    const ebb_session_options *o = &trainer->session->options;
    const size_t n = (size_t)o->batch;
    memset(ports->images, 0, n * (size_t)(o->channels * o->height * o->width) * sizeof(float));
    memset(ports->labels, 0, n * sizeof(int32_t));
    EBB_TRY(ebb_run_iteration(eval, 0, 1, 0));
    *loss_out = (double)*ports->loss;
    *correct_out = (double)*ports->correct / (double)n;
    return EBB_OK;
}

static ebb_status run_batches(ebb_trainer *trainer, ebb_run *eval, ebb_eval_result *result) {
    const int64_t batch = trainer->session->options.batch;
    const uint64_t n_images = ebb_data_get_info(trainer->test).n_images;
    double loss = 0, correct = 0;
    int64_t n_black = 0;
    ebb_trainer_ports ports;
    EBB_TRY(ebb__trainer_ports(eval, &ports));
    EBB_TRY(copy_values(trainer, eval));
    for (uint64_t done = 0, b = 0; done < n_images; b++) {
        int64_t n_valid = 0;
        ebb__tell(&trainer->options.progress, "evaluating", done, n_images);
        EBB_TRY(ebb_data_read(trainer->test, (ebb_batch){.idx = b, .n = batch}, ports.images, ports.labels, &n_valid));
        EBB_TRY(ebb_run_iteration(eval, b, 1, 0));
        loss += (double)*ports.loss * (double)batch;
        correct += (double)*ports.correct;
        n_black += batch - n_valid;
        done += (uint64_t)n_valid;
    }
    if (n_black > 0) {
        double black_loss = 0, black_correct = 0;
        EBB_TRY(run_black(trainer, eval, &ports, &black_loss, &black_correct));
        loss -= (double)n_black * black_loss;
        correct -= (double)n_black * black_correct;
    }
    result->n_images = n_images;
    result->loss = loss / (double)n_images;
    result->accuracy = correct / (double)n_images;
    return EBB_OK;
}

static ebb_status run_parked(ebb_trainer *trainer, ebb_eval_result *result) {
    ebb_run *eval = NULL;
    EBB_TRY(ebb__trainer_create_run(trainer, trainer->eval.lowered, trainer->eval.plan, &eval));
    ebb_status status = run_batches(trainer, eval, result);
    ebb_run_destroy(eval);
    return status;
}

ebb_status ebb_trainer_evaluate(ebb_trainer *trainer, ebb_eval_result *result_out) {
    EBB_NEED(trainer);
    EBB_NEED(result_out);
    if (trainer->eval_status != EBB_OK) { return ebb__fail_adopt(trainer->eval_status, trainer->eval_message); }
    ebb_eval_result result;
    EBB_TRY(ebb_run_park(trainer->run));
    ebb_status status = run_parked(trainer, &result);
    ebb_status back = ebb_run_unpark(trainer->run); /* its message is the one that matters if both fail */
    if (back != EBB_OK) { return back; }
    if (status == EBB_OK) { *result_out = result; }
    return status;
}
