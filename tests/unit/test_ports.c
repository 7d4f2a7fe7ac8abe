/* SPDX-License-Identifier: Apache-2.0
 *
 * Named ports: a network with inputs and outputs of its own, of several types, on each device of the host; more of them
 * than any fixed number; and what is refused.
 */
#include "backend/lower.h"
#include "run/run.h"
#include "support.h"

#define N_EXTRA 20

typedef struct fixture {
    ebb_device *device;
    ebb_graph *graph;
    ebb_lowered *lowered;
    ebb_plan *plan;
    ebb_run *run;
} fixture;

static const int64_t dims[] = {2, 3};

/* sum = a + b, relu of it, and what passes as it is. */
static ebb_graph *make_graph(void) {
    ebb_graph_options options = EBB_GRAPH_OPTIONS_INIT;
    ebb_graph *g = NULL;
    char name[32];
    options.inference = true;
    assert_int_equal(ebb_graph_create(&options, &g), EBB_OK);
    const ebb_value a = ebb_graph_input(g, "a", EBB_F32, dims, 2), b = ebb_graph_input(g, "b", EBB_F32, dims, 2);
    const ebb_value sum = ebb_graph_add(g, "sum", a, b);
    assert_int_equal(ebb_graph_output(g, "sum", sum), sum);
    (void)ebb_graph_output(g, "positive", ebb_graph_relu(g, NULL, sum));
    for (int t = 0; t < EBB_N_DTYPES; t++) {
        const char *type = ebb_dtype_name((ebb_dtype)t);
        (void)snprintf(name, sizeof name, "%s_out", type);
        (void)ebb_graph_output(g, name, ebb_graph_input(g, type, (ebb_dtype)t, dims, 2));
    }
    for (int i = 0; i < N_EXTRA; i++) {
        (void)snprintf(name, sizeof name, "extra%d", i);
        (void)ebb_graph_output(g, name, sum);
    }
    if (ebb_graph_check(g) != EBB_OK) { fail_msg("%s", ebb_last_error()); }
    return g;
}

static void set_up(fixture *f, const char *backend) {
    *f = (fixture){0};
    if (ebb_device_open(backend, NULL, &f->device) != EBB_OK) { skip(); }
    f->graph = make_graph();
    if (ebb_lower(f->graph, f->device, &f->lowered) != EBB_OK) { fail_msg("%s", ebb_last_error()); }
    ebb_machine *machine = NULL;
    assert_int_equal(ebb_machine_create(NULL, &machine), EBB_OK);
    ebb_plan_options options = EBB_PLAN_OPTIONS_INIT;
    options.policy = "liveness";
    assert_int_equal(ebb_plan_make(ebb_lowered_program(f->lowered), machine, &options, &f->plan, NULL), EBB_OK);
    ebb_machine_destroy(machine);
    assert_int_equal(ebb_run_create(f->lowered, f->plan, NULL, &f->run), EBB_OK);
}

static void tear_down(fixture *f) {
    ebb_run_destroy(f->run);
    ebb_plan_destroy(f->plan);
    ebb_lowered_destroy(f->lowered);
    ebb_graph_destroy(f->graph);
    ebb_device_close(f->device);
}

static void *memory_of(const fixture *f, const char *name, ebb_port *port_out) {
    void *memory = NULL;
    assert_int_equal(ebb_run_port(f->run, name, &memory, port_out), EBB_OK);
    assert_non_null(memory);
    return memory;
}

static void expect_values_pass(const char *backend) {
    fixture f;
    set_up(&f, backend);
    float *a = memory_of(&f, "a", NULL), *b = memory_of(&f, "b", NULL);
    for (int i = 0; i < 6; i++) {
        a[i] = (float)(i - 3);
        b[i] = 0.25f;
    }
    for (int t = 0; t < EBB_N_DTYPES; t++) {
        ebb_port port;
        void *memory = memory_of(&f, ebb_dtype_name((ebb_dtype)t), &port);
        assert_true(port.dtype == (ebb_dtype)t && port.is_input && port.n_dims == 2 && port.below == 0);
        assert_true(port.dims[0] == 2 && port.dims[1] == 3 && port.size_bytes == 6 * ebb_dtype_bytes(port.dtype));
        memset(memory, 3 + t, port.size_bytes);
    }
    assert_int_equal(ebb_run_iteration(f.run, 0, 1, 0), EBB_OK);
    const float *sum = memory_of(&f, "sum", NULL), *positive = memory_of(&f, "positive", NULL);
    const float *extra = memory_of(&f, "extra19", NULL);
    for (int i = 0; i < 6; i++) {
        const float want = (float)(i - 3) + 0.25f;
        assert_true(sum[i] == want && extra[i] == want && positive[i] == (want > 0 ? want : 0));
    }
    for (int t = 0; t < EBB_N_DTYPES; t++) {
        char name[32];
        ebb_port port;
        (void)snprintf(name, sizeof name, "%s_out", ebb_dtype_name((ebb_dtype)t));
        const unsigned char *out = memory_of(&f, name, &port);
        assert_true(port.dtype == (ebb_dtype)t && !port.is_input);
        for (uint64_t i = 0; i < port.size_bytes; i++) { assert_int_equal(out[i], 3 + t); }
    }
    tear_down(&f);
}

static void values_pass_through_ports(void **state) {
    (void)state;
    expect_values_pass("ref");
    expect_values_pass("cpu");
}

/* A port's memory is what the journal calls host memory, and takes any number at once. */
static void any_number_of_ports_is_proven(void **state) {
    (void)state;
    fixture f;
    ebb_proof proof;
    set_up(&f, "dry");
    size_t n = 0;
    const ebb_port *ports = ebb_graph_ports(f.graph, &n);
    assert_int_equal(n, 4 + 2 * EBB_N_DTYPES + N_EXTRA);
    assert_string_equal(ports[0].name, "a");
    assert_string_equal(ports[2].name, "sum");
    assert_int_equal(ebb_run_prove(f.graph, f.device, f.plan, &proof), EBB_OK);
    assert_true(proof.n_iterations > 0);
    tear_down(&f);
}

static void unknown_ports_are_named(void **state) {
    (void)state;
    fixture f;
    void *memory = NULL;
    set_up(&f, "ref");
    assert_int_equal(ebb_run_port(f.run, "images", &memory, NULL), EBB_E_ARGUMENT);
    assert_null(memory);
    expect_message("has no port 'images'; it has: a, b, sum, positive, ");
    tear_down(&f);
}

/* Each in a graph of its own, as a graph remembers its first failure. */
static void bad_ports_are_refused(void **state) {
    (void)state;
    static const char *const messages[] = {
        "the graph has its x already",  "the graph has its x already",  "a port needs a name", "a port needs a name",
        "y: 0 dimensions; 1 to 4 work", "y: 5 dimensions; 1 to 4 work", "y: no such type",     "y: it is no value",
    };
    for (size_t i = 0; i < sizeof messages / sizeof messages[0]; i++) {
        static const int64_t many[5] = {1, 1, 1, 1, 1};
        ebb_graph *g = NULL;
        assert_int_equal(ebb_graph_create(NULL, &g), EBB_OK);
        const ebb_value x = ebb_graph_input(g, "x", EBB_F32, dims, 2);
        ebb_value value = 0;
        switch (i) {
        case 0: value = ebb_graph_input(g, "x", EBB_F32, dims, 2); break;
        case 1: value = ebb_graph_output(g, "x", x); break;
        case 2: value = ebb_graph_input(g, NULL, EBB_F32, dims, 2); break;
        case 3: value = ebb_graph_output(g, NULL, x); break;
        case 4: value = ebb_graph_input(g, "y", EBB_F32, many, 0); break;
        case 5: value = ebb_graph_input(g, "y", EBB_F32, many, 5); break;
        case 6: value = ebb_graph_input(g, "y", EBB_N_DTYPES, many, 1); break;
        case 7: value = ebb_graph_output(g, "y", x + 1); break;
        }
        assert_true(value == EBB_NO_VALUE);
        assert_int_equal(ebb_graph_check(g), EBB_E_ARGUMENT);
        expect_message(messages[i]);
        ebb_graph_destroy(g);
    }
}

/* Layers compute with f32 alone, and say so. */
static void layers_refuse_other_types(void **state) {
    (void)state;
    ebb_graph *g = NULL;
    assert_int_equal(ebb_graph_create(NULL, &g), EBB_OK);
    assert_true(ebb_graph_relu(g, "r", ebb_graph_input(g, "x", EBB_BF16, dims, 2)) == EBB_NO_VALUE);
    assert_int_equal(ebb_graph_check(g), EBB_E_ARGUMENT);
    expect_message("r: x is no activation");
    ebb_graph_destroy(g);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(values_pass_through_ports), cmocka_unit_test(any_number_of_ports_is_proven),
        cmocka_unit_test(unknown_ports_are_named),   cmocka_unit_test(bad_ports_are_refused),
        cmocka_unit_test(layers_refuse_other_types),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
