/* SPDX-License-Identifier: Apache-2.0
 *
 * Builder calls: shapes, what training and inference graphs hold, the first failure that stays, and pools with
 * ceil_mode against PyTorch's rule written down a second time.
 */
#include "graph/graph.h"
#include "support.h"

typedef struct fixture {
    ebb_graph *graph;
    ebb_value images;
} fixture;

static fixture make(bool inference, int64_t height, int64_t width) {
    ebb_graph_options options = EBB_GRAPH_OPTIONS_INIT;
    options.inference = inference;
    options.name = "net";
    fixture f = {0};
    assert_int_equal(ebb_graph_create(&options, &f.graph), EBB_OK);
    f.images = ebb_graph_images(f.graph, 2, 6, height, width);
    return f;
}

static void expect_shape(const ebb_graph *graph, ebb_value value, int64_t n, int64_t c, int64_t h, int64_t w) {
    assert_int_equal(ebb_graph_check(graph), EBB_OK);
    int64_t dims[4];
    size_t n_dims = 0;
    assert_int_equal(ebb_graph_value_shape(graph, value, dims, &n_dims), EBB_OK);
    assert_int_equal(n_dims, h == 0 ? 2 : 4);
    assert_true(dims[0] == n && dims[1] == c && (h == 0 || (dims[2] == h && dims[3] == w)));
}

static const ebb_op *last_op(const ebb_graph *graph) {
    return &graph->ops.data[graph->ops.n - 1];
}

static void test_shapes(void **state) {
    (void)state;
    fixture f = make(false, 17, 9);
    ebb_window strided = ebb_window_square(3, 2, 1);
    ebb_window odd = {.kernel = {1, 5}, .dilation = {1, 2}, .pad_begin = {0, 3}, .pad_end = {0, 1}, .groups = 3};
    expect_shape(f.graph, ebb_graph_conv(f.graph, "a", f.images, 8, &strided, true), 2, 8, 9, 5);
    expect_shape(f.graph, ebb_graph_conv(f.graph, "b", f.images, 9, &odd, false), 2, 9, 17, 5);
    assert_int_equal(f.graph->values.data[last_op(f.graph)->in[1]].shape.dims[1], 2);
    expect_shape(f.graph, ebb_graph_conv(f.graph, "c", f.images, 4, NULL, false), 2, 4, 17, 9);
    expect_shape(f.graph, ebb_graph_linear(f.graph, "d", f.images, 5, true), 2, 5, 0, 0);
    expect_shape(f.graph, ebb_graph_flatten(f.graph, "e", f.images), 2, 6 * 17 * 9, 0, 0);
    expect_shape(f.graph, ebb_graph_global_avg_pool(f.graph, "g", f.images), 2, 6, 1, 1);
    expect_shape(f.graph, ebb_graph_concat(f.graph, "h", (ebb_value[]){f.images, f.images}, 2), 2, 12, 17, 9);
    assert_int_equal(ebb__graph_validate(f.graph), EBB_OK);
    ebb_graph_destroy(f.graph);
}

static void test_feeds_come_first(void **state) {
    (void)state;
    fixture f = make(false, 4, 4);
    ebb_value x = ebb_graph_linear(f.graph, "fc", f.images, 3, true);
    ebb_value labels = ebb_graph_labels(f.graph, 2, 3);
    assert_int_not_equal(ebb_graph_softmax_loss(f.graph, x, labels), EBB_NO_VALUE);
    static const ebb_op_kind want[] = {EBB_OP_FEED,         EBB_OP_FEED,  EBB_OP_LINEAR,
                                       EBB_OP_SOFTMAX_LOSS, EBB_OP_FETCH, EBB_OP_FETCH};
    assert_int_equal(f.graph->ops.n, 6);
    for (size_t i = 0; i < 6; i++) { assert_int_equal(f.graph->ops.data[i].kind, want[i]); }
    assert_int_equal(f.graph->ops.data[1].attr.port, 1);
    assert_int_equal(f.graph->ops.data[4].in[0], f.graph->loss);
    assert_int_equal(f.graph->ops.data[5].in[0], ebb__graph_port(f.graph, "correct")->value);
    ebb_graph_destroy(f.graph);
}

static void test_training_keeps_more_than_inference(void **state) {
    (void)state;
    ebb_window window = ebb_window_square(2, 2, 0);
    for (int inference = 0; inference < 2; inference++) {
        fixture f = make(inference != 0, 8, 8);
        uint32_t n_out = inference ? 1 : 2;
        (void)ebb_graph_max_pool(f.graph, "pool", f.images, &window);
        assert_int_equal(last_op(f.graph)->n_out, n_out);
        (void)ebb_graph_lrn(f.graph, "lrn", f.images, 5, 1.0f, 0.75f, 1.0f);
        assert_int_equal(last_op(f.graph)->n_out, n_out);
        ebb_value x = ebb_graph_dropout(f.graph, "drop", f.images, 0.5f);
        assert_int_equal(x == f.images, inference);
        (void)ebb_graph_batch_norm(f.graph, "bn", f.images, 1e-5f, 0.25f);
        assert_int_equal(last_op(f.graph)->kind, inference ? EBB_OP_BATCH_NORM_INFER : EBB_OP_BATCH_NORM_STATS);
        if (!inference) {
            assert_int_equal(last_op(f.graph)->attr.size, 2 * 8 * 8);
            assert_true(last_op(f.graph)->attr.momentum == 0.25f);
        }
        assert_int_equal(ebb_graph_check(f.graph), EBB_OK);
        assert_int_equal(ebb__graph_validate(f.graph), EBB_OK);
        ebb_graph_destroy(f.graph);
    }
}

static void test_masks_differ_between_dropouts(void **state) {
    (void)state;
    fixture f = make(false, 4, 4);
    (void)ebb_graph_dropout(f.graph, "drop", f.images, 0.5f);
    uint64_t first = last_op(f.graph)->rng_stream;
    (void)ebb_graph_dropout(f.graph, "drop", f.images, 0.5f);
    assert_int_not_equal(first, last_op(f.graph)->rng_stream);
    ebb_graph_destroy(f.graph);
}

/* ---- pools ------------------------------------------------------------------------------------ */

/* torch.nn's pooling_output_shape, on its own. */
static int64_t torch_size(int64_t n, int64_t k, int64_t stride, int64_t pad, bool ceil_mode) {
    int64_t top = n + 2 * pad - k + (ceil_mode ? stride - 1 : 0);
    int64_t quotient = top >= 0 ? top / stride : -((-top + stride - 1) / stride);
    int64_t size = quotient + 1;
    if (ceil_mode && (size - 1) * stride >= n + pad) { size--; }
    return size;
}

static void test_pool_sizes(void **state) {
    (void)state;
    size_t n_tried = 0;
    for (int bits = 0; bits < 2 * 12 * 4 * 4 * 3; bits++) {
        bool ceil_mode = bits % 2 != 0;
        int32_t n = 1 + bits / 2 % 12, k = 1 + bits / 24 % 4, stride = 1 + bits / 96 % 4, pad = bits / 384 % 3;
        int64_t want = torch_size(n, k, stride, pad, ceil_mode);
        if (pad > k / 2) { continue; }
        fixture f = make(false, n, n);
        ebb_window window = ebb_window_square(k, stride, pad);
        window.ceil_mode = ceil_mode;
        ebb_value x = ebb_graph_max_pool(f.graph, "pool", f.images, &window);
        if (want < 1) {
            assert_int_equal(x, EBB_NO_VALUE);
        } else {
            expect_shape(f.graph, x, 2, 6, want, want);
            assert_int_equal(ebb__graph_validate(f.graph), EBB_OK);
        }
        n_tried++;
        ebb_graph_destroy(f.graph);
    }
    assert_true(n_tried > 500);
}

/* ---- failures --------------------------------------------------------------------------------- */

static void expect_failure(fixture *f, ebb_value value, ebb_status status, const char *part) {
    assert_int_equal(value, EBB_NO_VALUE);
    size_t n_ops = f->graph->ops.n;
    assert_int_equal(ebb_graph_relu(f->graph, "later", f->images), EBB_NO_VALUE);
    assert_int_equal(f->graph->ops.n, n_ops);
    (void)ebb_fail(EBB_E_IO, "something else");
    assert_int_equal(ebb_graph_check(f->graph), status);
    if (strstr(ebb_last_error(), part) == NULL || strncmp(ebb_last_error(), "net: ", 5) != 0) {
        fail_msg("'%s' does not say '%s'", ebb_last_error(), part);
    }
    assert_int_equal(ebb_graph_train(f->graph, NULL, true), status);
    ebb_graph_destroy(f->graph);
    *f = make(false, 7, 7);
}

static void test_failures_stay(void **state) {
    (void)state;
    fixture f = make(false, 7, 7);
    ebb_window big = ebb_window_square(9, 1, 0), pad = ebb_window_square(3, 1, 2), bad = ebb_window_square(3, -1, 0);
    ebb_window grouped = {.groups = 4}, dilated = {.kernel = {2, 2}, .dilation = {2, 2}};
    ebb_graph *g = f.graph;
#define FAILS(value, status, part) (expect_failure(&f, (value), (status), (part)), g = f.graph)
    FAILS(ebb_graph_conv(g, "c", f.images, 4, &big, true), EBB_E_ARGUMENT, "c: the image is too small here: height 7");
    FAILS(ebb_graph_conv(g, "c", f.images, 4, &bad, true), EBB_E_ARGUMENT, "c: a negative figure");
    FAILS(ebb_graph_conv(g, "c", f.images, 0, NULL, true), EBB_E_ARGUMENT, "c: 6 to 0 channels");
    FAILS(ebb_graph_conv(g, "c", f.images, 8, &grouped, true), EBB_E_ARGUMENT, "6 to 8 channels in 4 groups");
    FAILS(ebb_graph_conv(g, "c", 99, 8, NULL, true), EBB_E_ARGUMENT, "c: its input is no value");
    FAILS(ebb_graph_conv(g, "c", INT64_C(0), INT64_MAX, NULL, true), EBB_E_LIMIT, "c.weight: a tensor of more");
    FAILS(ebb_graph_max_pool(g, "p", f.images, &pad), EBB_E_ARGUMENT, "p: padding of more than half");
    FAILS(ebb_graph_max_pool(g, "p", f.images, &dilated), EBB_E_UNSUPPORTED, "p: a dilated pool");
    FAILS(ebb_graph_avg_pool(g, "p", f.images, &grouped), EBB_E_ARGUMENT, "p: a pool has no groups");
    FAILS(ebb_graph_linear(g, "l", f.images, -3, true), EBB_E_ARGUMENT, "l: -3 output features");
    FAILS(ebb_graph_lrn(g, "n", f.images, 0, 1.0f, 1.0f, 1.0f), EBB_E_ARGUMENT, "n: size and k must be above 0");
    FAILS(ebb_graph_dropout(g, "d", f.images, 1.0f), EBB_E_ARGUMENT, "d: p must be");
    FAILS(ebb_graph_batch_norm(g, "b", f.images, 0.0f, 0.1f), EBB_E_ARGUMENT, "b: epsilon must be");
    FAILS(ebb_graph_add(g, "a", f.images, ebb_graph_flatten(g, "f", f.images)), EBB_E_ARGUMENT, "a: its two inputs");
    FAILS(ebb_graph_concat(g, "k", NULL, 0), EBB_E_ARGUMENT, "k: nothing to put together");
    FAILS(ebb_graph_images(g, 1, 1, 1, 1), EBB_E_ARGUMENT, "the graph has its images already");
    FAILS(ebb_graph_labels(g, 2, 0), EBB_E_ARGUMENT, "labels: 0 classes");
    FAILS(ebb_graph_softmax_loss(g, f.images, EBB_NO_VALUE), EBB_E_ARGUMENT, "its labels are not");
    FAILS(ebb_graph_softmax_loss(g, ebb_graph_linear(g, "l", f.images, 5, true), ebb_graph_labels(g, 2, 6)),
          EBB_E_ARGUMENT, "logits of 2 by 5 for 2 labels of 6 classes");
    (void)ebb_graph_conv(g, "twice", f.images, 4, NULL, false);
    FAILS(ebb_graph_conv(g, "twice", f.images, 4, NULL, false), EBB_E_ARGUMENT, "the name twice.weight is taken");
#undef FAILS
    ebb_graph_destroy(f.graph);
}

static void test_partial_average_windows_that_count_padding(void **state) {
    (void)state;
    ebb_window window = {.kernel = {2, 2}, .stride = {2, 2}, .ceil_mode = true, .count_padding = true};
    fixture f = make(false, 7, 7);
    assert_int_equal(ebb_graph_avg_pool(f.graph, "p", f.images, &window), EBB_NO_VALUE);
    assert_int_equal(ebb_graph_check(f.graph), EBB_E_UNSUPPORTED);
    ebb_graph_destroy(f.graph);
    f = make(false, 8, 8); /* no window is cut here */
    expect_shape(f.graph, ebb_graph_avg_pool(f.graph, "p", f.images, &window), 2, 6, 4, 4);
    ebb_graph_destroy(f.graph);
}

static void test_null_and_sizes(void **state) {
    (void)state;
    ebb_graph_options options = {.size_bytes = 3};
    ebb_graph *graph = NULL;
    assert_int_equal(ebb_graph_create(&options, &graph), EBB_E_ARGUMENT);
    assert_int_equal(ebb_graph_create(NULL, &graph), EBB_OK);
    int64_t dims[4];
    size_t n_dims = 0;
    assert_int_equal(ebb_graph_value_shape(graph, 0, dims, &n_dims), EBB_E_ARGUMENT);
    assert_int_equal(ebb_graph_n_values(graph), 0);
    assert_int_not_equal(ebb_graph_relu(graph, NULL, ebb_graph_images(graph, 1, 1, 1, 1)), EBB_NO_VALUE);
    assert_string_equal(last_op(graph)->name, "relu_1");
    ebb_graph_destroy(graph);
}

/* Whatever allocation fails: the builder says so, and the graph still says so at the end. */
static void test_out_of_memory(void **state) {
    (void)state;
    OOM_LOOP(mem, st, {
        ebb_graph_options options = EBB_GRAPH_OPTIONS_INIT;
        options.mem = mem;
        ebb_graph *graph = NULL;
        st = ebb_graph_create(&options, &graph);
        if (st == EBB_OK) {
            ebb_window window = ebb_window_square(2, 2, 0);
            ebb_value x = ebb_graph_images(graph, 2, 3, 8, 8);
            x = ebb_graph_relu(graph, NULL, ebb_graph_batch_norm(graph, "bn", x, 1e-5f, 0.1f));
            x = ebb_graph_lrn(graph, "n", ebb_graph_max_pool(graph, "p", x, &window), 3, 1.0f, 1.0f, 1.0f);
            x = ebb_graph_concat(graph, "k", (ebb_value[]){x, ebb_graph_dropout(graph, "d", x, 0.5f)}, 2);
            x = ebb_graph_linear(graph, "fc", ebb_graph_flatten(graph, "f", x), 4, true);
            ebb_value loss = ebb_graph_softmax_loss(graph, x, ebb_graph_labels(graph, 2, 4));
            st = ebb_graph_check(graph);
            assert_int_equal(loss != EBB_NO_VALUE, st == EBB_OK);
        }
        ebb_graph_destroy(graph);
    });
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_shapes),
        cmocka_unit_test(test_feeds_come_first),
        cmocka_unit_test(test_training_keeps_more_than_inference),
        cmocka_unit_test(test_masks_differ_between_dropouts),
        cmocka_unit_test(test_pool_sizes),
        cmocka_unit_test(test_failures_stay),
        cmocka_unit_test(test_partial_average_windows_that_count_padding),
        cmocka_unit_test(test_null_and_sizes),
        cmocka_unit_test(test_out_of_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
