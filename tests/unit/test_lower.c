/* SPDX-License-Identifier: Apache-2.0
 *
 * Lowering: equal layers share a kernel, results in place and views take no tensor of their own, what is read later
 * is never overwritten, the program passes its own check, and every allocation may fail.
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

static net open_net(const char *name, const char *backend, int64_t batch, int64_t image) {
    net n = {0};
    ebb_zoo_options options = EBB_ZOO_OPTIONS_INIT;
    options.batch = batch;
    options.height = options.width = image;
    ebb_optimizer optimizer = EBB_OPTIMIZER_INIT;
    if (ebb_zoo_build(name, &options, &n.graph) != EBB_OK) { fail_msg("%s", ebb_last_error()); }
    assert_int_equal(ebb_graph_train(n.graph, &optimizer, false), EBB_OK);
    assert_int_equal(ebb_device_open(backend, NULL, &n.device), EBB_OK);
    if (ebb_lower(n.graph, n.device, &n.low) != EBB_OK) { fail_msg("%s", ebb_last_error()); }
    return n;
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

/* A value's content must be what its producer left when its last reader comes: replay storage by storage. */
static void nothing_is_overwritten_before_it_is_read(void **state) {
    (void)state;
    const char *const names[] = {"resnet50", "densenet121", "inception4", "alexnet", "vgg11_bn", "lenet", "mlp"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        net n = open_net(names[i], "dry", 2, 0);
        const ebb_graph *g = n.low->graph;
        size_t n_tensors = n.low->program->tensors.n;
        ebb_value *holds = malloc(n_tensors * sizeof *holds);
        for (size_t t = 0; t < n_tensors; t++) { holds[t] = EBB_NO_VALUE; }
        for (size_t s = 0; s < n.low->steps.n; s++) {
            const ebb_lowered_step *step = &n.low->steps.data[s];
            if (step->op == UINT32_MAX) { continue; }
            const ebb_op *op = &g->ops.data[step->op];
            for (uint32_t o = 0; o < op->n_in; o++) {
                ebb_value held = holds[step->operand[o]];
                bool same = held == op->in[o] || held == EBB_NO_VALUE ||
                            n.low->values[held].tensor == n.low->values[op->in[o]].tensor;
                assert_true(same);
                if (held != EBB_NO_VALUE && held != op->in[o]) { /* only a view may stand for another value */
                    assert_int_equal(ebb__shape_elements(&g->values.data[held].shape),
                                     ebb__shape_elements(&g->values.data[op->in[o]].shape));
                    assert_false(ebb__shape_equal(&g->values.data[held].shape, &g->values.data[op->in[o]].shape));
                }
            }
            for (uint32_t o = 0; o < op->n_out; o++) { holds[step->operand[op->n_in + o]] = op->out[o]; }
        }
        free(holds);
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

static ebb_status lower_with(const ebb_mem *mem, ebb_device *device) {
    ebb_zoo_options options = EBB_ZOO_OPTIONS_INIT;
    options.mem = mem;
    options.batch = 2;
    ebb_graph *graph = NULL;
    ebb_lowered *low = NULL;
    ebb_optimizer optimizer = EBB_OPTIMIZER_INIT;
    ebb_status st = ebb_zoo_build("lenet", &options, &graph);
    if (st == EBB_OK) { st = ebb_graph_train(graph, &optimizer, false); }
    if (st == EBB_OK) { st = ebb_lower(graph, device, &low); }
    ebb_lowered_destroy(low);
    ebb_graph_destroy(graph);
    return st;
}

static void every_allocation_may_fail(void **state) {
    (void)state;
    ebb_device *device = NULL;
    assert_int_equal(ebb_device_open("ref", NULL, &device), EBB_OK);
    OOM_LOOP(mem, st, { st = lower_with(mem, device); });
    ebb_device_close(device);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(equal_layers_share_a_kernel), cmocka_unit_test(every_step_has_its_program_step),
        cmocka_unit_test(times_are_of_one_device),     cmocka_unit_test(nothing_is_overwritten_before_it_is_read),
        cmocka_unit_test(results_are_made_in_place),   cmocka_unit_test(every_allocation_may_fail),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
