/* SPDX-License-Identifier: Apache-2.0
 *
 * Every allocation of a trainer's whole life failed in turn: from data to arena, a step, an evaluation, a
 * checkpoint. Whatever fails, it says so and everything is given back.
 */
#include "ebb/train.h"

#include "data_files.h"

static ebb_status build_net(void *ctx, const ebb_zoo_options *o, ebb_graph **graph_out) {
    (void)ctx;
    ebb_graph_options g = EBB_GRAPH_OPTIONS_INIT;
    g.mem = o->mem;
    g.name = "tiny";
    g.inference = o->inference;
    ebb_graph *graph = NULL;
    ebb_status status = ebb_graph_create(&g, &graph);
    if (status != EBB_OK) { return status; }
    ebb_value x = ebb_graph_images(graph, o->batch, o->channels, o->height, o->width);
    ebb_value labels = ebb_graph_labels(graph, o->batch, o->classes);
    x = ebb_graph_linear(graph, "fc", x, o->classes, true);
    (void)ebb_graph_softmax_loss(graph, x, labels);
    status = ebb_graph_check(graph);
    if (status != EBB_OK) {
        ebb_graph_destroy(graph);
        return status;
    }
    *graph_out = graph;
    return EBB_OK;
}

static ebb_status live(const ebb_mem *mem, const char *data, const char *path, const char *feed) {
    ebb_trainer_options o = EBB_TRAINER_OPTIONS_INIT;
    ebb_trainer *trainer = NULL;
    ebb_step_result step;
    ebb_eval_result eval;
    bool done = false;
    o.session.mem = mem;
    o.session.network_fn = build_net;
    o.session.backend = "ref";
    o.session.policy = "none"; /* a plan that nothing is searched for; see test_plan_oom */
    o.data = data;
    o.session.batch = 2;
    o.session.feed = feed;
    o.n_steps = 1;
    ebb_status st = ebb_trainer_create(&o, &trainer, NULL, NULL);
    if (st == EBB_OK) { st = ebb_trainer_step(trainer, &step, &done); }
    if (st == EBB_OK) { st = ebb_trainer_evaluate(trainer, &eval); }
    if (st == EBB_OK) { st = ebb_trainer_checkpoint(trainer, path); }
    ebb_trainer_destroy(trainer);
    return st;
}

static void test_whole_life(void **state) {
    (void)state;
    data_dir dir;
    char data[512], path[256];
    data_dir_make(&dir);
    data_put_digits(&dir, "d.csv.gz", 10);
    (void)snprintf(data, sizeof data, "digits:%s/d.csv.gz", dir.path);
    (void)snprintf(path, sizeof path, "%s", data_path(&dir, "c"));
    OOM_LOOP(mem, st, { st = live(mem, data, path, "first"); });
    OOM_LOOP(mem, st, { st = live(mem, data, path, "early"); });
    data_dir_remove(&dir);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_whole_life)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
