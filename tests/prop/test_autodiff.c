/* SPDX-License-Identifier: Apache-2.0
 *
 * Random networks with branches, sums, concats of concats and values of many readers: the gradient that the graph
 * computes on ref against differences of the loss, one random direction for each parameter; and the loss itself
 * before and after the passes, to the bit. A failure prints its seed.
 */
#include "interpreter.h"

#include <math.h>

#define N_SEEDS 60u
#define BATCH 3
#define CLASSES 4
#define MAX_POOL 40

/* A network under construction: values that later layers may read, all of (BATCH, ., h, w). */
typedef struct draft {
    ebb_graph *graph;
    ebb_rng rng;
    ebb_value value[MAX_POOL];
    size_t n;
} draft;

static ebb_value any(draft *d) {
    return d->value[ebb__rng_below(&d->rng, d->n)];
}

static int64_t channels_of(const draft *d, ebb_value v) {
    return d->graph->values.data[v].shape.dims[1];
}

static ebb_value conv_to(draft *d, ebb_value x, int64_t channels) {
    ebb_window window = ebb__rng_below(&d->rng, 2) == 0 ? ebb_window_square(3, 1, 1) : ebb_window_square(1, 1, 0);
    bool even = channels % 2 == 0 && channels_of(d, x) % 2 == 0;
    window.groups = even && ebb__rng_below(&d->rng, 3) == 0 ? 2 : 1;
    return ebb_graph_conv(d->graph, NULL, x, channels, &window, ebb__rng_below(&d->rng, 2) == 0);
}

static ebb_value concat(draft *d) {
    ebb_value part[3] = {any(d), any(d), any(d)}; /* the same one twice is legal too */
    return ebb_graph_concat(d->graph, NULL, part, 1 + (size_t)ebb__rng_below(&d->rng, 3));
}

static ebb_value layer(draft *d) {
    ebb_window same = ebb_window_square(3, 1, 1);
    ebb_value x = any(d);
    switch (ebb__rng_below(&d->rng, 11)) {
    case 0: return conv_to(d, x, 1 + (int64_t)ebb__rng_below(&d->rng, 4));
    case 1: return ebb_graph_relu(d->graph, NULL, conv_to(d, x, 2));
    case 2: return ebb_graph_batch_norm(d->graph, NULL, x, 1e-2f, 0.1f);
    case 3: return ebb_graph_relu(d->graph, NULL, ebb_graph_batch_norm(d->graph, NULL, x, 1e-2f, 0.1f));
    case 4:
        return ebb_graph_relu(d->graph, NULL, ebb_graph_add(d->graph, NULL, x, conv_to(d, any(d), channels_of(d, x))));
    case 5: return ebb_graph_add(d->graph, NULL, x, x);
    case 6: return ebb_graph_dropout(d->graph, NULL, x, 0.3f);
    case 7: return ebb_graph_lrn(d->graph, NULL, x, 3, 0.5f, 0.75f, 1.0f);
    case 8:
        return ebb__rng_below(&d->rng, 2) == 0 ? ebb_graph_avg_pool(d->graph, NULL, x, &same)
                                               : ebb_graph_max_pool(d->graph, NULL, x, &same);
    case 9: return ebb_graph_relu(d->graph, NULL, x);
    default: return concat(d);
    }
}

/* Everything that was made reaches the loss: half of it through pools and a concat, the sum of two linears. */
static void finish(draft *d, ebb_value labels) {
    ebb_value flat[MAX_POOL];
    for (size_t i = 0; i < d->n; i++) {
        flat[i] = ebb_graph_flatten(d->graph, NULL, ebb_graph_global_avg_pool(d->graph, NULL, d->value[i]));
    }
    ebb_value all = ebb_graph_concat(d->graph, NULL, flat, d->n);
    ebb_value last = ebb_graph_flatten(d->graph, NULL, d->value[d->n - 1]);
    ebb_value logits = ebb_graph_add(d->graph, NULL, ebb_graph_linear(d->graph, "head", all, CLASSES, true),
                                     ebb_graph_linear(d->graph, "tail", last, CLASSES, false));
    (void)ebb_graph_softmax_loss(d->graph, logits, labels);
}

static ebb_graph *draw(uint64_t seed) {
    ebb_graph *graph = NULL;
    expect_ok(ebb_graph_create(NULL, &graph));
    draft d = {.graph = graph};
    ebb__rng_init(&d.rng, seed, 0);
    ebb_value images = ebb_graph_images(graph, BATCH, 2, 4, 5);
    ebb_value labels = ebb_graph_labels(graph, BATCH, CLASSES);
    d.value[d.n++] = ebb_graph_conv(graph, "stem", images, 3, NULL, true);
    if (ebb__rng_below(&d.rng, 2) == 0) { d.value[d.n++] = images; }
    size_t n_layers = 2 + (size_t)ebb__rng_below(&d.rng, 12);
    for (size_t i = 0; i < n_layers && d.n < MAX_POOL; i++) {
        ebb_value x = layer(&d);
        if (x != EBB_NO_VALUE && channels_of(&d, x) <= 24) { d.value[d.n++] = x; }
    }
    finish(&d, labels);
    expect_ok(ebb_graph_check(graph));
    return graph;
}

typedef struct batch {
    float images[BATCH * 2 * 4 * 5];
    int32_t labels[BATCH];
} batch;

static batch draw_batch(uint64_t seed) {
    batch b;
    ebb_rng rng;
    ebb__rng_init(&rng, seed, 1);
    for (size_t i = 0; i < sizeof b.images / sizeof *b.images; i++) { b.images[i] = ebb__rng_normal(&rng); }
    for (size_t i = 0; i < BATCH; i++) { b.labels[i] = (int32_t)ebb__rng_below(&rng, CLASSES); }
    return b;
}

/* Loss with the parameter moved by step along direction. */
static double loss_at(interpreter *it, ebb_value param, const float *start, const float *direction, double step) {
    size_t n = (size_t)ebb__shape_elements(&it->graph->values.data[param].shape);
    float *w = interpreter_value(it, param);
    for (size_t i = 0; i < n; i++) { w[i] = (float)(start[i] + step * direction[i]); }
    interpreter_run(it);
    memcpy(w, start, n * sizeof *w);
    return (double)it->loss;
}

typedef struct verdicts {
    size_t n_agree, n_kinks;
    size_t n_seen[EBB_N_OPS], n_slice_adds;
} verdicts;

/* The slope along direction from both sides, ever closer. Where the sides differ there is a kink of a ReLU or a
 * pool in between and nothing is learnt; where they agree, want must be what they say. */
static bool slope_is(interpreter *it, ebb_value param, const float *start, const float *direction, double want,
                     double slack, verdicts *v) {
    bool smooth = false;
    interpreter_run(it);
    double here = (double)it->loss;
    for (double step = 1e-2; step > 1e-4; step *= 0.3) {
        double up = (loss_at(it, param, start, direction, step) - here) / step;
        double down = (here - loss_at(it, param, start, direction, -step)) / step;
        if (fabs(up - down) > slack) { continue; }
        smooth = true;
        if (fabs(0.5 * (up + down) - want) <= slack) {
            v->n_agree++;
            return true;
        }
    }
    v->n_kinks += !smooth;
    return !smooth;
}

static void check_direction(interpreter *it, ebb_rng *rng, uint64_t seed, ebb_value gradient, verdicts *v) {
    ebb_value param = it->graph->values.data[gradient].of;
    size_t n = (size_t)ebb__shape_elements(&it->graph->values.data[param].shape);
    float *start = malloc(n * sizeof *start), *direction = malloc(n * sizeof *direction);
    interpreter_run(it);
    double want = 0.0, size = 0.0;
    for (size_t i = 0; i < n; i++) {
        direction[i] = ebb__rng_normal(rng);
        start[i] = interpreter_value(it, param)[i];
        want += (double)direction[i] * interpreter_value(it, gradient)[i];
        size += fabs((double)direction[i] * interpreter_value(it, gradient)[i]);
    }
    if (!slope_is(it, param, start, direction, want, 1e-3 + 0.01 * size, v)) {
        fail_msg("seed %llu: %s is not %g", (unsigned long long)seed, it->graph->values.data[gradient].name, want);
    }
    free(start);
    free(direction);
}

static float forward_loss(const ebb_graph *graph, batch *b) {
    interpreter it;
    interpreter_init(&it, graph, b->images, b->labels);
    interpreter_run(&it);
    float loss = it.loss;
    interpreter_fini(&it);
    return loss;
}

static void count_ops(const ebb_graph *graph, verdicts *v) {
    for (size_t i = 0; i < graph->ops.n; i++) {
        const ebb_op *op = &graph->ops.data[i];
        v->n_seen[op->kind]++;
        v->n_slice_adds += op->kind == EBB_OP_SLICE && op->n_in == 2;
    }
}

static void check_seed(uint64_t seed, verdicts *verdict) {
    batch b = draw_batch(seed);
    ebb_graph *graph = draw(seed);
    float plain = forward_loss(graph, &b);
    expect_ok(ebb_graph_train(graph, NULL, true));
    expect_ok(ebb__graph_validate(graph));
    count_ops(graph, verdict);
    interpreter it;
    interpreter_init(&it, graph, b.images, b.labels);
    interpreter_run(&it);
    if (memcmp(&plain, &it.loss, sizeof plain) != 0) {
        fail_msg("seed %llu: the passes changed the loss from %.9g to %.9g", (unsigned long long)seed, (double)plain,
                 (double)it.loss);
    }
    ebb_rng rng;
    ebb__rng_init(&rng, seed, 2);
    for (size_t v = 0; v < graph->values.n; v++) {
        if (graph->values.data[v].kind == EBB_VALUE_GRADIENT) {
            check_direction(&it, &rng, seed, (ebb_value)v, verdict);
        }
    }
    interpreter_fini(&it);
    ebb_graph_destroy(graph);
}

static void test_gradients_are_differences(void **state) {
    (void)state;
    verdicts v = {0};
    for (uint64_t seed = 0; seed < N_SEEDS; seed++) { check_seed(seed, &v); }
    print_message("%zu gradients agree, %zu lie on a kink\n", v.n_agree, v.n_kinks);
    for (int kind = 0; kind < EBB_N_OPS; kind++) {
        bool never = kind == EBB_OP_BATCH_NORM_INFER || kind == EBB_OP_UPDATE || kind == EBB_OP_REORDER ||
                     kind == EBB_OP_CONV_BWD_DATA_ADD;
        if (!never && v.n_seen[kind] == 0) { fail_msg("%s was never tried", ebb__op_name((ebb_op_kind)kind)); }
    }
    assert_true(v.n_slice_adds > 0);
    assert_true(v.n_agree > 300 && v.n_kinks < v.n_agree / 10);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_gradients_are_differences)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
