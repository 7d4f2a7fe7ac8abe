/* SPDX-License-Identifier: Apache-2.0
 *
 * The suite itself: what is asked of every problem, and how close is close enough.
 */
#include "conformance.h"

#include <math.h>
#include <stdlib.h>

static struct {
    ebb_device *device;
    const char *backend;
    bench own, ref;
    problem_list problems;
    size_t n_checked, n_kernels, n_unsupported, n_wrong;
} suite;

static const variant usual = {.inplace_input = -1};

/* The largest difference to ref, as a part of ref's largest value. Ref sums in double, others in float32, whose
 * rounding over the suite's sums of up to some thousand terms stays below 1e-5 of the largest, where a wrong
 * tap, divisor or element is 1e-3 and more. 0: what only moves, selects or scales must be exact. */
static double tolerance(ebb_op_kind kind) {
    switch (kind) {
    case EBB_OP_FEED:
    case EBB_OP_FETCH:
    case EBB_OP_RELU:
    case EBB_OP_RELU_BWD:
    case EBB_OP_MAX_POOL: /* catches a window that is off by one */
    case EBB_OP_DROPOUT:  /* catches one element whose mask differs */
    case EBB_OP_DROPOUT_BWD:
    case EBB_OP_CONCAT:
    case EBB_OP_RESHAPE:
    case EBB_OP_REORDER: return 0.0;
    case EBB_OP_ADD:
    case EBB_OP_SLICE: return 1e-7; /* one addition; catches a sum in less than float32 */
    case EBB_OP_MAX_POOL_BWD:       /* several windows may give to one place; catches the wrong one of two */
    case EBB_OP_AVG_POOL:           /* catches a divisor that counts padding where it should not */
    case EBB_OP_AVG_POOL_BWD:
    case EBB_OP_BATCH_NORM_STATS: /* catches the biased variance for the unbiased one, 1 / n */
    case EBB_OP_UPDATE:           /* catches a bias correction for the wrong update: percents */
    case EBB_OP_SOFTMAX_LOSS:     /* catches a mean over the wrong count */
    case EBB_OP_SOFTMAX_LOSS_BWD: return 2e-6;
    case EBB_OP_BATCH_NORM:     /* catches epsilon left out, or added after the root: 5e-4 */
    case EBB_OP_BATCH_NORM_BWD: /* catches a mean of diff_dst left out: 1 / sqrt(n) */
    case EBB_OP_LRN:            /* catches a window shifted by a channel, with the suite's alpha of 1 */
    default: return 1e-5;
    }
}

static double largest_error(const float *x, const float *ref, int64_t n) {
    double scale = 0.0, error = 0.0;
    for (int64_t i = 0; i < n; i++) {
        if (isnan(x[i]) || isnan(ref[i])) { return INFINITY; }
        error = fmax(error, fabs((double)x[i] - (double)ref[i]));
        scale = fmax(scale, fabs((double)ref[i]));
    }
    return scale > 0.0 ? error / scale : error;
}

/* Print and count each wrong result and go on, so that one does not hide the others. */
static void compare(const problem *p, const ebb_kernel *kernel, const contents *own, const contents *ref) {
    for (uint32_t i = p->n_in; i < n_operands(p); i++) {
        const ebb_operand *operand = &p->operand[i];
        if (operand->opaque) { continue; }
        double error = largest_error((const float *)own->data[i], (const float *)ref->data[i],
                                     ebb__shape_elements(&operand->shape));
        if (error <= tolerance(p->kind)) { continue; }
        print_error("%s: operand %u is off by %g by algorithm %s\n", p->text, i, error, kernel->algorithm);
        suite.n_wrong++;
    }
    if (p->kind == EBB_OP_FETCH) { assert_memory_equal(own->port, ref->port, plain_bytes(&p->operand[0])); }
}

static void compare_bits(const problem *p, const ebb_kernel *kernel, const contents *a, const contents *b,
                         const char *what) {
    for (uint32_t i = p->n_in; i < n_operands(p); i++) {
        if (memcmp(a->data[i], b->data[i], a->n_bytes[i]) == 0) { continue; }
        print_error("%s: other bits %s by algorithm %s\n", p->text, what, kernel->algorithm);
        suite.n_wrong++;
    }
}

/* ---- inputs from a forward problem ---- */

static void run_whole(bench *b, const problem *p, const contents *in, input_mode inputs, contents *out) {
    ebb_kernel *kernel = NULL;
    if (make_kernel(b, p, in, (variant){.inputs = inputs, .inplace_input = -1}, &kernel) != EBB_OK) {
        fail_msg("%s: %s", p->text, ebb_last_error());
    }
    run_kernel(b, p, kernel, in, usual, out);
    unpack_outputs(b, p, kernel, out);
    b->ops->kernel_destroy(kernel);
}

/* Opaque bytes are those that the bench itself made, the rest is ref's. */
static void take_inputs(const problem *p, const contents *in, const contents *made, const contents *by_ref,
                        contents *to) {
    for (uint32_t i = 0; i < p->n_in; i++) {
        if (p->from[i] == 0) { continue; }
        const uint32_t f = p->from[i] - 1u;
        const contents *source = f < p->forward->n_in ? in : p->forward->operand[f].opaque ? made : by_ref;
        contents_set(to, i, source->data[f], source->n_bytes[f]);
        to->layout[i] = made->layout[f];
    }
}

static void run_forward(const problem *p, uint64_t seed, input_mode inputs, contents *own, contents *ref) {
    contents in, made, by_ref;
    contents_init(&in, p->forward, seed + 1);
    run_whole(&suite.own, p->forward, &in, inputs, &made);
    run_whole(&suite.ref, p->forward, &in, INPUTS_ANY, &by_ref);
    take_inputs(p, &in, &made, &by_ref, own);
    take_inputs(p, &in, &by_ref, &by_ref, ref);
    contents_fini(&in);
    contents_fini(&made);
    contents_fini(&by_ref);
}

/* ---- what is asked of a kernel ---- */

/* To the layout and back agrees with pack. */
static void check_reorder(const problem *p, uint32_t idx, ebb_layout from, ebb_layout to) {
    bench *b = &suite.own;
    problem r = {.kind = EBB_OP_REORDER, .n_in = 1, .n_out = 1};
    r.operand[0] = r.operand[1] = p->operand[idx];
    r.operand[0].layout = from;
    r.operand[1].layout = to;
    (void)snprintf(r.text, sizeof r.text, "reorder for operand %u of %.110s", idx, p->text);
    contents in, out;
    contents_init(&in, &r, 11);
    ebb_kernel *kernel = NULL;
    if (make_kernel(b, &r, &in, usual, &kernel) != EBB_OK) { fail_msg("%s: %s", r.text, ebb_last_error()); }
    assert_int_equal(kernel->layout[0], from);
    assert_int_equal(kernel->layout[1], to);
    run_kernel(b, &r, kernel, &in, usual, &out);
    unpack_outputs(b, &r, kernel, &out);
    if (b->ops->has_data && memcmp(out.data[1], in.data[0], in.n_bytes[0]) != 0) { fail_msg("%s: differs", r.text); }
    contents_fini(&out);
    contents_fini(&in);
    b->ops->kernel_destroy(kernel);
}

static void check_reorders(const problem *p, const ebb_kernel *kernel) {
    bench *b = &suite.own;
    for (uint32_t i = 0; i < n_operands(p); i++) {
        const ebb_operand *operand = &p->operand[i];
        if (operand->opaque || operand->dtype != EBB_F32) { continue; }
        ebb_layout plain = 0;
        MUST(b->ops->layout_plain(b->device, operand->dtype, &operand->shape, &plain));
        if (plain == kernel->layout[i]) { continue; }
        check_reorder(p, i, plain, kernel->layout[i]);
        check_reorder(p, i, kernel->layout[i], plain);
    }
}

static void check_description(const problem *p, const ebb_kernel *kernel) {
    bench *b = &suite.own;
    assert_ptr_equal(kernel->device, b->device);
    assert_non_null(kernel->algorithm);
    assert_true(kernel->n_choices >= 1);
    assert_true(kernel->flops >= 0.0);
    assert_true(kernel->traffic_bytes > 0.0);
    assert_int_equal(kernel->inplace >> p->n_in, 0);
    for (uint32_t i = 0; i < n_operands(p); i++) {
        assert_true(b->ops->layout_bytes(b->device, kernel->layout[i]) > 0);
        assert_non_null(b->ops->layout_name(b->device, kernel->layout[i]));
        if (i < p->n_in && (kernel->inplace >> i & 1u) != 0) {
            assert_int_equal(b->ops->layout_bytes(b->device, kernel->layout[i]),
                             b->ops->layout_bytes(b->device, kernel->layout[p->n_in]));
        }
    }
}

/* Asked for with the layouts that it chose, a kernel must want the same ones: lowering settles in one pass. */
static void check_layouts_settle(const problem *p, const ebb_kernel *kernel, const contents *in) {
    bench *b = &suite.own;
    problem settled = *p;
    for (uint32_t i = 0; i < n_operands(p); i++) { settled.operand[i].layout = kernel->layout[i]; }
    ebb_kernel *again = NULL;
    MUST(make_kernel(b, &settled, in, usual, &again));
    for (uint32_t i = 0; i < n_operands(p); i++) { assert_int_equal(again->layout[i], kernel->layout[i]); }
    b->ops->kernel_destroy(again);
}

static void check_variant(const problem *p, ebb_kernel *kernel, const contents *in, variant v, const contents *first) {
    contents out;
    run_kernel(&suite.own, p, kernel, in, v, &out);
    compare_bits(p, kernel, first, &out, v.inplace_input >= 0 ? "in place" : v.shift_bytes > 0 ? "elsewhere" : "again");
    contents_fini(&out);
}

static void check_variants(const problem *p, ebb_kernel *kernel, const contents *in, const contents *first) {
    bench *b = &suite.own;
    check_variant(p, kernel, in, usual, first);
    check_variant(p, kernel, in, (variant){.shift_bytes = 13 * b->ops->alignment_bytes, .inplace_input = -1}, first);
    for (int i = 0; i < (int)p->n_in; i++) {
        if ((kernel->inplace >> i & 1u) != 0) { check_variant(p, kernel, in, (variant){.inplace_input = i}, first); }
    }
}

static void check_kernel(const problem *p, ebb_kernel *kernel, const contents *in, const contents *expected) {
    bench *b = &suite.own;
    contents out;
    check_description(p, kernel);
    run_kernel(b, p, kernel, in, usual, &out);
    if (b->ops->has_data) {
        check_variants(p, kernel, in, &out);
        unpack_outputs(b, p, kernel, &out);
        compare(p, kernel, &out, expected);
    }
    contents_fini(&out);
}

/* Each further algorithm has the layouts of the first; the one past the last is refused. */
static void check_choices(const problem *p, const ebb_kernel *kernel, const contents *in, const contents *expected) {
    ebb_kernel *other = NULL;
    for (uint32_t choice = 1; choice < kernel->n_choices; choice++) {
        MUST(make_kernel(&suite.own, p, in, (variant){.choice = choice, .inplace_input = -1}, &other));
        for (uint32_t i = 0; i < n_operands(p); i++) { assert_int_equal(other->layout[i], kernel->layout[i]); }
        check_kernel(p, other, in, expected);
        suite.own.ops->kernel_destroy(other);
    }
    const variant beyond = {.choice = kernel->n_choices, .inplace_input = -1};
    assert_int_equal(make_kernel(&suite.own, p, in, beyond, &other), EBB_E_LIMIT);
}

/* ---- problems ---- */

/* An operator that the backend leaves to another is counted and told, never taken for passed. */
static bool make_supported(const problem *p, const contents *in, variant v, ebb_kernel **kernel_out) {
    ebb_status status = make_kernel(&suite.own, p, in, v, kernel_out);
    if (status == EBB_OK) { return true; }
    if (status != EBB_E_UNSUPPORTED) { fail_msg("%s: %s", p->text, ebb_last_error()); }
    print_message("unsupported: %s: %s\n", p->text, ebb_last_error());
    suite.n_unsupported++;
    return false;
}

static bool is_supported(const problem *p) {
    contents in;
    ebb_kernel *kernel = NULL;
    contents_init(&in, p, 0);
    bool supported = make_supported(p, &in, usual, &kernel);
    if (supported) { suite.own.ops->kernel_destroy(kernel); }
    contents_fini(&in);
    return supported;
}

/* Layouts of the kernels that a problem has given so far: equal ones make equal kernels. */
typedef struct seen_layouts {
    ebb_layout layout[N_INPUT_MODES][MAX_OPERANDS];
    size_t n;
} seen_layouts;

static bool is_new(seen_layouts *seen, const problem *p, const ebb_kernel *kernel) {
    const size_t n_bytes = n_operands(p) * sizeof kernel->layout[0];
    for (size_t i = 0; i < seen->n; i++) {
        if (memcmp(seen->layout[i], kernel->layout, n_bytes) == 0) { return false; }
    }
    memcpy(seen->layout[seen->n++], kernel->layout, n_bytes);
    return true;
}

static bool check_mode(const problem *p, uint64_t seed, input_mode inputs, seen_layouts *seen) {
    contents own, ref, expected;
    ebb_kernel *kernel = NULL;
    contents_init(&own, p, seed);
    contents_init(&ref, p, seed);
    if (p->forward != NULL) { run_forward(p, seed, inputs, &own, &ref); }
    const bool supported = make_supported(p, &own, (variant){.inputs = inputs, .inplace_input = -1}, &kernel);
    if (supported && is_new(seen, p, kernel)) {
        run_whole(&suite.ref, p, &ref, INPUTS_ANY, &expected);
        check_kernel(p, kernel, &own, &expected);
        check_reorders(p, kernel);
        check_layouts_settle(p, kernel, &own);
        if (inputs == INPUTS_ANY) { check_choices(p, kernel, &own, &expected); }
        contents_fini(&expected);
    }
    if (supported) { suite.own.ops->kernel_destroy(kernel); }
    contents_fini(&own);
    contents_fini(&ref);
    return supported;
}

static void check_problem(const problem *p, uint64_t seed) {
    seen_layouts seen = {.n = 0};
    if (p->forward != NULL && !is_supported(p->forward)) { return; }
    for (int inputs = 0; inputs < N_INPUT_MODES; inputs++) {
        if (!check_mode(p, seed, (input_mode)inputs, &seen)) { return; }
    }
    suite.n_checked++;
    suite.n_kernels += seen.n;
}

/* Operators that only lowering makes, where the backend wants them. */
static bool is_asked(const problem *p) {
    return p->kind != EBB_OP_CONV_BWD_DATA_ADD || suite.own.ops->merges != NULL;
}

static void check_kinds(ebb_op_kind first, ebb_op_kind last) {
    suite.n_wrong = 0;
    for (size_t i = 0; i < suite.problems.n; i++) {
        const problem *p = &suite.problems.data[i];
        if (p->kind >= first && p->kind <= last && is_asked(p)) { check_problem(p, 1000 + i); }
    }
    assert_int_equal(suite.n_wrong, 0);
}

static void convolutions(void **state) {
    (void)state;
    check_kinds(EBB_OP_CONV, EBB_OP_CONV_BWD_DATA_ADD);
}

static void linear_layers(void **state) {
    (void)state;
    check_kinds(EBB_OP_LINEAR, EBB_OP_LINEAR_BWD_WEIGHTS);
}

static void batch_norms(void **state) {
    (void)state;
    check_kinds(EBB_OP_BATCH_NORM, EBB_OP_BATCH_NORM_STATS);
}

static void element_by_element(void **state) {
    (void)state;
    check_kinds(EBB_OP_RELU, EBB_OP_RELU_BWD);
    check_kinds(EBB_OP_DROPOUT, EBB_OP_ADD);
}

static void pools(void **state) {
    (void)state;
    check_kinds(EBB_OP_MAX_POOL, EBB_OP_AVG_POOL_BWD);
}

static void lrns(void **state) {
    (void)state;
    check_kinds(EBB_OP_LRN, EBB_OP_LRN_BWD);
}

static void joins_and_ports(void **state) {
    (void)state;
    check_kinds(EBB_OP_FEED, EBB_OP_FETCH);
    check_kinds(EBB_OP_CONCAT, EBB_OP_RESHAPE);
    check_kinds(EBB_OP_REORDER, EBB_OP_REORDER);
}

static void losses_and_updates(void **state) {
    (void)state;
    check_kinds(EBB_OP_SOFTMAX_LOSS, EBB_OP_UPDATE);
}

/* ---- the contract beyond single kernels ---- */

static void table_is_complete(void **state) {
    (void)state;
    const ebb_backend_ops *ops = suite.own.ops;
    assert_int_equal(ops->abi, EBB_BACKEND_ABI);
    assert_string_equal(ops->name, suite.backend);
    assert_true(ops->alignment_bytes > 0 && (ops->alignment_bytes & (ops->alignment_bytes - 1)) == 0);
    assert_int_equal(ops->host_visible, ops->host_address != NULL);
    assert_int_equal(ops->iteration_begin != NULL, ops->iteration_end != NULL);
    ops->kernel_destroy(NULL);
    ops->arena_destroy(suite.own.device, NULL);
    ops->stream_destroy(NULL);
    ops->event_destroy(suite.own.device, NULL);
    ops->close(NULL);
}

static void layouts_are_interned(void **state) {
    (void)state;
    bench *b = &suite.own;
    for (size_t i = 0; i < suite.problems.n; i++) {
        const ebb_operand *operand = &suite.problems.data[i].operand[0];
        ebb_layout first = 0, second = 0;
        MUST(b->ops->layout_plain(b->device, operand->dtype, &operand->shape, &first));
        MUST(b->ops->layout_plain(b->device, operand->dtype, &operand->shape, &second));
        assert_int_equal(first, second);
        assert_int_equal(b->ops->layout_bytes(b->device, first), plain_bytes(operand));
    }
}

/* Invalid descriptions are refused, by the operator's name. */
static void nonsense_is_refused(void **state) {
    (void)state;
    const problem *conv = &suite.problems.data[0];
    assert_int_equal(conv->kind, EBB_OP_CONV);
    contents in;
    contents_init(&in, conv, 1);
    for (int i = 0; i < 7; i++) {
        problem bad = *conv;
        switch (i) {
        case 0: bad.operand[0].shape.dims[1] = 4; break;
        case 1: bad.operand[2].shape.dims[3]++; break;
        case 2: bad.attr.stride[0] = 0; break;
        case 3: bad.attr.groups = 2; break;
        case 4: bad.operand[1].shape.n_dims = 7; break;
        case 5: bad.operand[0].shape.dims[0] = INT64_MAX / 2; break;
        default: bad.n_in = 1, bad.n_out = 2;
        }
        ebb_kernel *kernel = NULL;
        assert_int_equal(make_kernel(&suite.own, &bad, &in, usual, &kernel), EBB_E_ARGUMENT);
        assert_null(kernel);
        assert_non_null(strstr(ebb_last_error(), "conv"));
    }
    contents_fini(&in);
}

static size_t count_differing(const float *a, const float *b, size_t n) {
    size_t n_differing = 0;
    for (size_t i = 0; i < n; i++) { n_differing += a[i] != b[i]; }
    return n_differing;
}

/* Another iteration or seed is another mask, and p of the elements go. */
static void dropout_masks_vary(void **state) {
    (void)state;
    enum { N = 10000 };
    static const float zeros[N];
    bench *b = &suite.own;
    if (!b->ops->has_data) { skip(); }
    problem p = {.kind = EBB_OP_DROPOUT, .n_in = 1, .n_out = 1, .attr = {.p = 0.3f}, .fill = {FILL_POSITIVE}};
    p.operand[0] = p.operand[1] =
        (ebb_operand){.shape = {.n_dims = 2, .dims = {100, N / 100}}, .layout = EBB_LAYOUT_ANY};
    if (!is_supported(&p)) { skip(); }
    const ebb_run_state before = b->state;
    contents in, base, other;
    contents_init(&in, &p, 5);
    run_whole(b, &p, &in, INPUTS_ANY, &base);
    const float *dropped = (const float *)base.data[1];
    assert_in_range(count_differing(dropped, zeros, N), N * 68 / 100, N * 72 / 100);
    for (int i = 0; i < 2; i++) {
        b->state.seed += i == 0;
        b->state.iteration += i == 1;
        run_whole(b, &p, &in, INPUTS_ANY, &other);
        const size_t n_differing = count_differing(dropped, (const float *)other.data[1], N);
        assert_in_range(n_differing, N * 40 / 100, N * 44 / 100); /* 2 p (1 - p) */
        contents_fini(&other);
        b->state = before;
    }
    contents_fini(&base);
    contents_fini(&in);
}

/* After all others: what the backend leaves to another counts as skipped, not as passed. */
static void everything_is_supported(void **state) {
    (void)state;
    if (suite.n_unsupported > 0) { skip(); }
}

static int set_up(void **state) {
    ebb_device *ref = NULL;
    MUST(ebb_device_open("ref", NULL, &ref));
    bench_init(&suite.own, suite.device);
    bench_init(&suite.ref, ref);
    problems_init(&suite.problems);
    *state = &suite.own;
    return 0;
}

static int tear_down(void **state) {
    (void)state;
    print_message("%s: %zu problems checked in %zu kernels, %zu unsupported\n", suite.backend, suite.n_checked,
                  suite.n_kernels, suite.n_unsupported);
    problems_fini(&suite.problems);
    bench_fini(&suite.ref);
    bench_fini(&suite.own);
    return 0;
}

int conformance_main(const char *backend) {
    ebb_device *device = NULL;
    const ebb_status status = ebb_device_open(backend, NULL, &device);
    if (status != EBB_OK) {
        print_message("%s\n", ebb_last_error());
        return status == EBB_E_NO_DEVICE ? 77 : 1;
    }
    return conformance_run(device);
}

int conformance_run(ebb_device *device) {
    suite.device = device;
    suite.backend = ebb_device_backend(device);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(table_is_complete),
        cmocka_unit_test(layouts_are_interned),
        cmocka_unit_test(nonsense_is_refused),
        cmocka_unit_test(convolutions),
        cmocka_unit_test(linear_layers),
        cmocka_unit_test(batch_norms),
        cmocka_unit_test(element_by_element),
        cmocka_unit_test(pools),
        cmocka_unit_test(lrns),
        cmocka_unit_test(joins_and_ports),
        cmocka_unit_test(losses_and_updates),
        cmocka_unit_test(dropout_masks_vary),
        cmocka_unit_test(copies_round_trip),
        cmocka_unit_test(events_order_streams),
        cmocka_unit_test(late_errors_surface_once),
        cmocka_unit_test(kernels_run_in_stream_order),
        cmocka_unit_test(everything_is_supported),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
