/* SPDX-License-Identifier: Apache-2.0
 *
 * Lowering: equal layers share a kernel, results in place and views take no tensor of their own, what is read later
 * is never overwritten, a convolution's gradient and its ADD are one step where the backend wants that and nothing is
 * in the way, inputs that come early are copied in behind their last read, the program passes its own check, and every
 * allocation may fail.
 */
#include "backend/lower.h"
#include "ebb/ebb.h"
#include "support.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>

#include <cmocka.h>

typedef struct net {
    ebb_device *device;
    ebb_graph *graph;
    ebb_lowered *low;
} net;

/* A training graph, which is taken over, lowered for a device, which is taken over too. */
static net lower_graph(ebb_graph *graph, ebb_device *device) {
    net n = {.device = device, .graph = graph};
    ebb_optimizer optimizer = EBB_OPTIMIZER_INIT;
    if (ebb_graph_train(graph, &optimizer, false) != EBB_OK) { fail_msg("%s", ebb_last_error()); }
    if (ebb_lower(graph, device, &n.low) != EBB_OK) { fail_msg("%s", ebb_last_error()); }
    return n;
}

static ebb_graph *build(const char *name, int64_t batch, int64_t image) {
    ebb_graph *graph = NULL;
    ebb_zoo_options options = EBB_ZOO_OPTIONS_INIT;
    options.batch = batch;
    options.height = options.width = image;
    if (ebb_zoo_build(name, &options, &graph) != EBB_OK) { fail_msg("%s", ebb_last_error()); }
    return graph;
}

static ebb_device *open_device(const char *backend) {
    ebb_device *device = NULL;
    assert_int_equal(ebb_device_open(backend, NULL, &device), EBB_OK);
    return device;
}

static net open_net(const char *name, const char *backend, int64_t batch, int64_t image) {
    return lower_graph(build(name, batch, image), open_device(backend));
}

static ebb_status merge_all(ebb_device *device, const ebb_kernel_desc *desc, bool *merges_out) {
    (void)device;
    *merges_out = desc->kind == EBB_OP_CONV_BWD_DATA_ADD;
    return EBB_OK;
}

/* dry as a backend that wants all sums in place. */
static ebb_device *open_merging(void) {
    static ebb_backend_ops ops;
    ebb_device *device = open_device("dry");
    ops = *device->ops;
    ops.merges = merge_all;
    device->ops = &ops;
    return device;
}

static void close_net(net *n) {
    ebb_lowered_destroy(n->low);
    ebb_graph_destroy(n->graph);
    ebb_device_close(n->device);
}

static void equal_layers_share_a_kernel(void **state) {
    (void)state;
    net small = open_net("resnet:3,4,6,3", "dry", 2, 64);
    net large = open_net("resnet:3,4,96,3", "dry", 2, 64);
    assert_true(large.low->steps.n > 5 * small.low->steps.n);
    assert_int_equal(large.low->kernels.n, small.low->kernels.n);
    close_net(&small);
    close_net(&large);
}

/* What the device says of its options and libraries is in the key that a kernel's time is filed under. */
static void times_are_of_one_device(void **state) {
    (void)state;
    net n = open_net("lenet", "dry", 2, 0);
    ebb_lowered *other = NULL;
    size_t n_choices = 0;
    const ebb_choice *choices = ebb_program_choices(ebb_lowered_program(n.low), &n_choices);
    for (uint64_t device = 0; device < 2; device++) {
        n.device->times_key += device;
        assert_int_equal(ebb_lower(n.graph, n.device, &other), EBB_OK);
        const ebb_choice *others = ebb_program_choices(ebb_lowered_program(other), &n_choices);
        for (size_t c = 0; c < n_choices; c++) { assert_int_equal(others[c].key == choices[c].key, device == 0); }
        ebb_lowered_destroy(other);
    }
    close_net(&n);
}

static void every_step_has_its_program_step(void **state) {
    (void)state;
    net n = open_net("densenet121", "dry", 2, 64);
    const ebb_program *program = ebb_lowered_program(n.low);
    size_t n_steps = 0;
    const ebb_step *steps = ebb_program_steps(program, &n_steps);
    assert_int_equal(n_steps, n.low->steps.n);
    for (size_t s = 0; s < n_steps; s++) {
        const ebb_lowered_step *step = &n.low->steps.data[s];
        for (uint32_t o = 0; o < step->n_operands; o++) {
            bool found = false;
            for (uint32_t a = 0; a < steps[s].n_accesses; a++) {
                found = found || program->accesses.data[steps[s].first_access + a].tensor == step->operand[o];
            }
            assert_true(found);
            assert_true(step->bytes[o] <= program->tensors.data[step->operand[o]].size_bytes);
        }
    }
    close_net(&n);
}

static bool adds_in_place(const net *n, size_t step) {
    return strcmp(n->low->program->steps.data[step].kind, "conv_bwd_data_add") == 0;
}

/* The ADD that reads what op makes. */
static const ebb_op *find_add(const ebb_graph *g, uint32_t op) {
    const ebb_value made = g->ops.data[op].out[0];
    while (g->ops.data[op].kind != EBB_OP_ADD || (g->ops.data[op].in[0] != made && g->ops.data[op].in[1] != made)) {
        assert_true(++op < g->ops.n);
    }
    return &g->ops.data[op];
}

/* A tensor that should hold `want` now. */
static void check_held(const net *n, ebb_value held, ebb_value want) {
    const ebb_graph *g = n->graph;
    if (held == EBB_NO_VALUE || held == want) { return; }
    assert_int_equal(n->low->values[held].tensor, n->low->values[want].tensor);
    /* only a view may stand for another value */
    assert_int_equal(ebb__shape_elements(&g->values.data[held].shape),
                     ebb__shape_elements(&g->values.data[want].shape));
    assert_false(ebb__shape_equal(&g->values.data[held].shape, &g->values.data[want].shape));
}

/* A value's content must be what its producer left when its last reader comes: replay storage by storage. */
static void replay(const net *n) {
    const ebb_graph *g = n->graph;
    const size_t n_tensors = n->low->program->tensors.n;
    ebb_value *holds = malloc(n_tensors * sizeof *holds);
    for (size_t t = 0; t < n_tensors; t++) { holds[t] = EBB_NO_VALUE; }
    for (size_t s = 0; s < n->low->steps.n; s++) {
        const ebb_lowered_step *step = &n->low->steps.data[s];
        if (step->op == UINT32_MAX) { continue; }
        const ebb_op *op = &g->ops.data[step->op];
        const ebb_op *add = adds_in_place(n, s) ? find_add(g, step->op) : NULL;
        for (uint32_t o = 0; o < op->n_in; o++) { check_held(n, holds[step->operand[o]], op->in[o]); }
        if (add != NULL) { check_held(n, holds[step->operand[op->n_in]], add->in[add->in[0] == op->out[0]]); }
        for (uint32_t o = 0; o < op->n_out; o++) {
            holds[step->operand[op->n_in + o]] = add != NULL ? add->out[0] : op->out[o];
        }
    }
    free(holds);
}

static void nothing_is_overwritten_before_it_is_read(void **state) {
    (void)state;
    const char *const names[] = {"resnet50", "densenet121", "inception4", "alexnet", "vgg11_bn", "lenet", "mlp"};
    for (size_t i = 0; i < 2 * sizeof names / sizeof names[0]; i++) {
        net n = lower_graph(build(names[i / 2], 2, 0), i % 2 == 0 ? open_device("dry") : open_merging());
        replay(&n);
        close_net(&n);
    }
}

static void results_are_made_in_place(void **state) {
    (void)state;
    net n = open_net("resnet18", "dry", 2, 64);
    size_t n_in_place = 0;
    for (size_t s = 0; s < n.low->steps.n; s++) {
        const ebb_lowered_step *step = &n.low->steps.data[s];
        if (step->op == UINT32_MAX || n.low->graph->ops.data[step->op].n_out == 0) { continue; }
        const ebb_op *op = &n.low->graph->ops.data[step->op];
        for (uint32_t i = 0; i < op->n_in; i++) { n_in_place += step->operand[i] == step->operand[op->n_in]; }
    }
    assert_true(n_in_place >= 8 + 8); /* at least each block's sum and its ReLU's backward */
    close_net(&n);
}

/* ---- sums in place ------------------------------------------------------------------------------ */

static size_t count_steps(const net *n, const char *kind, ebb_phase phase) {
    size_t n_steps = 0;
    for (size_t s = 0; s < n->low->steps.n; s++) {
        const ebb_step *step = &n->low->program->steps.data[s];
        n_steps += strcmp(step->kind, kind) == 0 && step->phase == (uint32_t)phase;
    }
    return n_steps;
}

/* A residual branch begins at each of ResNet-50's blocks, and at each sum's one step is less; forward sums stay. */
static void branches_are_added_in_place(void **state) {
    (void)state;
    net apart = open_net("resnet50", "dry", 2, 64), merged = lower_graph(build("resnet50", 2, 64), open_merging());
    const size_t n_blocks = 3 + 4 + 6 + 3;
    assert_int_equal(count_steps(&apart, "add", EBB_PHASE_BACKWARD), n_blocks);
    assert_int_equal(count_steps(&apart, "conv_bwd_data_add", EBB_PHASE_BACKWARD), 0);
    assert_int_equal(count_steps(&merged, "add", EBB_PHASE_BACKWARD), 0);
    assert_int_equal(count_steps(&merged, "conv_bwd_data_add", EBB_PHASE_BACKWARD), n_blocks);
    assert_int_equal(count_steps(&merged, "add", EBB_PHASE_FORWARD), n_blocks);
    assert_int_equal(merged.low->steps.n, apart.low->steps.n - n_blocks);
    for (size_t s = 0; s < merged.low->steps.n; s++) {
        const ebb_lowered_step *step = &merged.low->steps.data[s];
        if (!adds_in_place(&merged, s)) { continue; }
        const ebb_op *add = find_add(merged.graph, step->op);
        const ebb_step *told = &merged.low->program->steps.data[s];
        const ebb_access *accesses = &merged.low->program->accesses.data[told->first_access];
        assert_int_equal(told->n_accesses, 3);
        assert_int_equal(merged.low->values[add->out[0]].tensor, step->operand[2]);
        for (uint32_t a = 0; a < 3; a++) {
            assert_int_equal(accesses[a].mode, accesses[a].tensor == step->operand[2] ? EBB_UPDATE : EBB_READ);
        }
    }
    close_net(&apart);
    close_net(&merged);
}

/* Measured times of the one are not the other's, and those of all other steps are what they were. */
static void times_tell_sums_apart(void **state) {
    (void)state;
    net apart = open_net("resnet18", "dry", 2, 64), merged = lower_graph(build("resnet18", 2, 64), open_merging());
    size_t n_apart = 0, n_merged = 0;
    const ebb_choice *old = ebb_program_choices(ebb_lowered_program(apart.low), &n_apart);
    const ebb_choice *now = ebb_program_choices(ebb_lowered_program(merged.low), &n_merged);
    assert_int_equal(n_merged, merged.low->steps.n); /* one choice a step */
    for (size_t s = 0; s < n_merged; s++) {
        bool found = false;
        for (size_t c = 0; c < n_apart; c++) { found = found || old[c].key == now[s].key; }
        assert_int_equal(found, !adds_in_place(&merged, s));
    }
    close_net(&apart);
    close_net(&merged);
}

typedef ebb_value (*tail_fn)(ebb_graph *g, ebb_value a, ebb_value b);

static ebb_value convolve(ebb_graph *g, const char *name, ebb_value x) {
    const ebb_window three = ebb_window_square(3, 1, 1);
    return ebb_graph_conv(g, name, x, 4, &three, false);
}

static ebb_value normalize(ebb_graph *g, const char *name, ebb_value x) {
    return ebb_graph_batch_norm(g, name, x, 1e-5f, 0.1f);
}

/* The convolution's own gradient is what it would be added to. */
static ebb_value reads_it_itself(ebb_graph *g, ebb_value a, ebb_value b) {
    (void)b;
    return ebb_graph_add(g, "sum", convolve(g, "c", a), a);
}

/* A batch-norm between them: it makes another gradient, which is the usual block. */
static ebb_value reads_another(ebb_graph *g, ebb_value a, ebb_value b) {
    (void)b;
    return ebb_graph_add(g, "sum", normalize(g, "n", convolve(g, "c", a)), a);
}

/* The sums' gradient goes to b as well, whose layer comes later backward. */
static ebb_value is_read_later(ebb_graph *g, ebb_value a, ebb_value b) {
    const ebb_value c = normalize(g, "n", convolve(g, "c", a));
    return ebb_graph_add(g, "both", ebb_graph_add(g, "sum", a, b), c);
}

/* The same with nothing else that reads it. */
static ebb_value is_not_read_later(ebb_graph *g, ebb_value a, ebb_value b) {
    const ebb_value c = normalize(g, "n", convolve(g, "c", a));
    return ebb_graph_add(g, "both", ebb_graph_add(g, "sum", a, normalize(g, "m", b)), c);
}

/* What comes between the convolution's gradient and the sum is no update: a pool's gradient. */
static ebb_value comes_first(ebb_graph *g, ebb_value a, ebb_value b) {
    const ebb_window pool = ebb_window_square(3, 1, 1);
    (void)b;
    const ebb_value pooled = normalize(g, "m", ebb_graph_avg_pool(g, "pool", a, &pool));
    return ebb_graph_add(g, "sum", normalize(g, "n", convolve(g, "c", a)), pooled);
}

/* The sum has two readers, of which the first could make its result in place. */
static ebb_value is_read_twice(ebb_graph *g, ebb_value a, ebb_value b) {
    const ebb_value p = ebb_graph_relu(g, "p", a), q = ebb_graph_relu(g, "q", b);
    return reads_another(g, ebb_graph_add(g, "x", p, q), b);
}

static ebb_graph *build_tail(tail_fn tail) {
    ebb_graph_options options = EBB_GRAPH_OPTIONS_INIT;
    ebb_graph *g = NULL;
    assert_int_equal(ebb_graph_create(&options, &g), EBB_OK);
    const ebb_value images = ebb_graph_images(g, 2, 3, 6, 6), labels = ebb_graph_labels(g, 2, 5);
    const ebb_value a = convolve(g, "a", images), b = convolve(g, "b", images);
    const ebb_value x = ebb_graph_relu(g, "relu", tail(g, a, b));
    (void)ebb_graph_softmax_loss(g, ebb_graph_linear(g, "fc", ebb_graph_flatten(g, "flat", x), 5, true), labels);
    return g;
}

static void sums_stay_where_something_is_in_the_way(void **state) {
    (void)state;
    static const struct {
        tail_fn tail;
        size_t n_merged, n_apart;
    } cases[] = {{reads_it_itself, 0, 1},   {reads_another, 1, 0}, {is_read_later, 0, 1},
                 {is_not_read_later, 1, 0}, {comes_first, 0, 1},   {is_read_twice, 1, 0}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        net n = lower_graph(build_tail(cases[i].tail), open_merging());
        assert_int_equal(count_steps(&n, "conv_bwd_data_add", EBB_PHASE_BACKWARD), cases[i].n_merged);
        assert_int_equal(count_steps(&n, "add", EBB_PHASE_BACKWARD), cases[i].n_apart);
        replay(&n);
        close_net(&n);
    }
}

/* The gradient that is added to is read between the convolution's and the ADD, by what read it after the ADD. */
static void read_between(ebb_graph *g) {
    size_t add = 0, reader = 0;
    while (g->ops.data[add].kind != EBB_OP_ADD || g->ops.data[add].phase != EBB_PHASE_BACKWARD) { add++; }
    const ebb_value acc = g->ops.data[add].in[0];
    for (reader = add + 1; g->ops.data[reader].n_in < 2 || g->ops.data[reader].in[1] != acc; reader++) {}
    const ebb_op moved = g->ops.data[reader];
    memmove(&g->ops.data[add + 1], &g->ops.data[add], (reader - add) * sizeof moved);
    g->ops.data[add] = moved;
}

static void sums_stay_where_another_reads_first(void **state) {
    (void)state;
    ebb_optimizer optimizer = EBB_OPTIMIZER_INIT;
    net n = {.device = open_merging(), .graph = build_tail(is_read_later)};
    assert_int_equal(ebb_graph_train(n.graph, &optimizer, false), EBB_OK);
    read_between(n.graph);
    assert_int_equal(ebb__graph_validate(n.graph), EBB_OK);
    assert_int_equal(ebb_lower(n.graph, n.device, &n.low), EBB_OK);
    assert_int_equal(count_steps(&n, "conv_bwd_data_add", EBB_PHASE_BACKWARD), 0);
    replay(&n);
    close_net(&n);
}

typedef ebb_status (*lower_fn)(ebb_graph *graph, ebb_device *device, ebb_lowered **lowered_out);

static ebb_status lower_with(const ebb_mem *mem, ebb_device *device, const char *name, lower_fn lower) {
    ebb_zoo_options options = EBB_ZOO_OPTIONS_INIT;
    options.mem = mem;
    options.batch = 2;
    ebb_graph *graph = NULL;
    ebb_lowered *low = NULL;
    ebb_optimizer optimizer = EBB_OPTIMIZER_INIT;
    ebb_status st = ebb_zoo_build(name, &options, &graph);
    if (st == EBB_OK) { st = ebb_graph_train(graph, &optimizer, false); }
    if (st == EBB_OK) { st = lower(graph, device, &low); }
    ebb_lowered_destroy(low);
    ebb_graph_destroy(graph);
    return st;
}

static void every_allocation_may_fail(void **state) {
    (void)state;
    ebb_device *device = open_device("ref");
    OOM_LOOP(mem, st, { st = lower_with(mem, device, "lenet", ebb_lower); });
    OOM_LOOP(mem, st, { st = lower_with(mem, device, "lenet", ebb_lower_fed_early); });
    ebb_device_close(device);
    device = open_merging();
    OOM_LOOP(mem, st, { st = lower_with(mem, device, "resnet_cifar:1", ebb_lower); });
    ebb_device_close(device);
}

/* An input persists, its step alone writes it and never runs again, and all reads come before that. */
static void inputs_come_early(void **state) {
    (void)state;
    net n = open_net("alexnet", "dry", 4, 67);
    ebb_lowered *early = NULL;
    assert_int_equal(ebb_lower_fed_early(n.graph, n.device, &early), EBB_OK);
    const ebb_program *p = early->program;
    assert_int_equal(p->steps.n, n.low->program->steps.n);
    uint32_t n_feeds = 0;
    bool is_fed[2] = {false};
    for (size_t s = 0; s < p->steps.n; s++) {
        const ebb_step *step = &p->steps.data[s];
        const bool feeds = strcmp(step->kind, "feed") == 0;
        assert_int_equal(p->choices.data[step->first_choice].copies_in, feeds);
        assert_int_equal(step->repeat, feeds ? EBB_REPEAT_NEVER : EBB_REPEAT_EXACT);
        for (uint32_t i = 0; i < step->n_accesses; i++) {
            const ebb_access *access = &p->accesses.data[step->first_access + i];
            if (p->tensors.data[access->tensor].role != EBB_ROLE_INPUT) { continue; }
            assert_true(access->tensor < 2 && p->tensors.data[access->tensor].persistent);
            assert_int_equal(access->mode, feeds ? EBB_WRITE : EBB_READ);
            assert_false(is_fed[access->tensor]);
            is_fed[access->tensor] = feeds;
        }
        n_feeds += feeds;
    }
    assert_int_equal(n_feeds, 2);
    const uint32_t last = (uint32_t)p->steps.n - 1;
    assert_int_not_equal(strcmp(p->steps.data[last].kind, "feed"), 0); /* dry reads images nearly to the end */
    ebb_lowered_destroy(early);
    close_net(&n);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(equal_layers_share_a_kernel),
        cmocka_unit_test(every_step_has_its_program_step),
        cmocka_unit_test(times_are_of_one_device),
        cmocka_unit_test(nothing_is_overwritten_before_it_is_read),
        cmocka_unit_test(results_are_made_in_place),
        cmocka_unit_test(branches_are_added_in_place),
        cmocka_unit_test(times_tell_sums_apart),
        cmocka_unit_test(sums_stay_where_something_is_in_the_way),
        cmocka_unit_test(sums_stay_where_another_reads_first),
        cmocka_unit_test(inputs_come_early),
        cmocka_unit_test(every_allocation_may_fail),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
