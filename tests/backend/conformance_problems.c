/* SPDX-License-Identifier: Apache-2.0
 *
 * The problems of the suite: what real networks have, small, and what is awkward: odd sizes, channels that no
 * vector divides, strides that leave a rest, padding on one side only, windows larger than the image.
 */
#include "conformance.h"

#include <stdlib.h>

#define COUNT(array) (sizeof(array) / sizeof(array)[0])

static ebb_operand f32(int32_t n_dims, int64_t a, int64_t b, int64_t c, int64_t d) {
    return (ebb_operand){.shape = {.n_dims = n_dims, .dims = {a, b, c, d}}, .layout = EBB_LAYOUT_ANY};
}

static ebb_operand vec(int64_t n) {
    return f32(1, n, 0, 0, 0);
}

static ebb_operand shaped(ebb_shape shape) {
    return (ebb_operand){.shape = shape, .layout = EBB_LAYOUT_ANY};
}

static ebb_operand opaque_like(ebb_operand operand) {
    operand.dtype = EBB_U8;
    operand.opaque = true;
    return operand;
}

static void add_operand(problem *p, uint32_t *count, ebb_operand operand, fill how) {
    const uint32_t idx = n_operands(p);
    p->operand[idx] = operand;
    p->fill[idx] = how;
    ++*count;
}

static void add_in(problem *p, ebb_operand operand) {
    add_operand(p, &p->n_in, operand, FILL_NORMAL);
}

static void add_out(problem *p, ebb_operand operand) {
    add_operand(p, &p->n_out, operand, FILL_NORMAL);
}

static void add_inout(problem *p, ebb_operand operand, fill how) {
    add_operand(p, &p->n_inout, operand, how);
}

static void describe(problem *p) {
    const ebb_op_attr *a = &p->attr;
    size_t n = (size_t)snprintf(p->text, sizeof p->text, "%s", ebb__op_name(p->kind));
    for (uint32_t i = 0; i < n_operands(p) && n < sizeof p->text; i++) {
        const ebb_shape *s = &p->operand[i].shape;
        const char *before = i == 0 ? " " : i == p->n_in ? " -> " : ", ";
        n += (size_t)snprintf(p->text + n, sizeof p->text - n, "%s%lld", before, (long long)s->dims[0]);
        for (int32_t d = 1; d < s->n_dims && n < sizeof p->text; d++) {
            n += (size_t)snprintf(p->text + n, sizeof p->text - n, "x%lld", (long long)s->dims[d]);
        }
    }
    if (n < sizeof p->text && a->kernel[0] > 0) {
        (void)snprintf(p->text + n, sizeof p->text - n, " k%d,%d s%d,%d p%d,%d,%d,%d d%d,%d g%d%s", a->kernel[0],
                       a->kernel[1], a->stride[0], a->stride[1], a->pad_begin[0], a->pad_begin[1], a->pad_end[0],
                       a->pad_end[1], a->dilation[0], a->dilation[1], a->groups, a->relu ? " relu" : "");
    }
}

static const problem *push(problem_list *list, const problem *p) {
    assert_true(list->n < list->cap);
    problem *added = &list->data[list->n++];
    *added = *p;
    describe(added);
    return added;
}

/* ---- convolutions ---- */

typedef struct window_row {
    int32_t n, c, h, w, o;
    int32_t kernel[2], stride[2], pad[4] /* top, left, bottom, right */, dilation[2], groups;
} window_row;

static const window_row convs[] = {
    {2, 3, 11, 13, 8, {3, 3}, {1, 1}, {1, 1, 1, 1}, {1, 1}, 1},    /* a first layer's 3 channels */
    {1, 3, 23, 23, 16, {7, 7}, {2, 2}, {3, 3, 3, 3}, {1, 1}, 1},   /* ResNet's first */
    {2, 3, 27, 27, 16, {11, 11}, {4, 4}, {2, 2, 2, 2}, {1, 1}, 1}, /* AlexNet's first */
    {2, 1, 8, 8, 6, {5, 5}, {1, 1}, {2, 2, 2, 2}, {1, 1}, 1},      /* LeNet: one channel */
    {2, 16, 7, 7, 32, {3, 3}, {1, 1}, {1, 1, 1, 1}, {1, 1}, 1},    /* whole vectors */
    {2, 32, 8, 8, 16, {1, 1}, {1, 1}, {0, 0, 0, 0}, {1, 1}, 1},    /* 1x1 */
    {2, 32, 8, 8, 16, {1, 1}, {2, 2}, {0, 0, 0, 0}, {1, 1}, 1},    /* a block's shortcut */
    {1, 64, 5, 5, 48, {1, 1}, {1, 1}, {0, 0, 0, 0}, {1, 1}, 1},    /* wide 1x1 */
    {1, 20, 9, 9, 20, {3, 3}, {1, 1}, {1, 1, 1, 1}, {1, 1}, 1},    /* 20 channels: no vector divides them */
    {2, 96, 5, 5, 24, {3, 3}, {1, 1}, {1, 1, 1, 1}, {1, 1}, 1},    /* 96 to 24 */
    {1, 17, 6, 10, 33, {3, 3}, {2, 2}, {1, 1, 1, 1}, {1, 1}, 1},   /* odd everything */
    {3, 5, 7, 9, 7, {2, 4}, {1, 2}, {0, 1, 1, 2}, {1, 1}, 1},      /* even window, unequal padding */
    {1, 16, 6, 17, 16, {1, 7}, {1, 1}, {0, 3, 0, 3}, {1, 1}, 1},   /* Inception's 1x7 */
    {1, 16, 17, 6, 16, {7, 1}, {1, 1}, {3, 0, 3, 0}, {1, 1}, 1},   /* and 7x1 */
    {2, 8, 12, 12, 8, {3, 3}, {1, 1}, {2, 2, 2, 2}, {2, 2}, 1},    /* dilated */
    {1, 6, 13, 11, 10, {3, 2}, {2, 1}, {3, 0, 2, 1}, {3, 2}, 1},   /* dilated and strided, unequal */
    {2, 16, 8, 8, 16, {3, 3}, {1, 1}, {1, 1, 1, 1}, {1, 1}, 2},    /* groups */
    {1, 12, 6, 6, 18, {3, 3}, {1, 1}, {1, 1, 1, 1}, {1, 1}, 3},    /* groups of 4 and 6 */
    {2, 16, 9, 9, 16, {3, 3}, {2, 2}, {1, 1, 1, 1}, {1, 1}, 16},   /* depthwise */
    {1, 7, 6, 6, 14, {3, 3}, {1, 1}, {1, 1, 1, 1}, {1, 1}, 7},     /* depthwise, two outputs a channel */
    {1, 8, 5, 5, 8, {5, 5}, {1, 1}, {0, 0, 0, 0}, {1, 1}, 1},      /* window as large as the image */
    {1, 4, 3, 3, 4, {5, 5}, {1, 1}, {2, 2, 2, 2}, {1, 1}, 1},      /* and larger */
    {1, 16, 11, 11, 16, {3, 3}, {3, 3}, {0, 0, 0, 0}, {1, 1}, 1},  /* last rows that nothing reads */
    {1, 1, 1, 1, 1, {1, 1}, {1, 1}, {0, 0, 0, 0}, {1, 1}, 1},      /* the least */
    {1, 64, 14, 14, 32, {3, 3}, {1, 1}, {1, 1, 1, 1}, {1, 1}, 1},  /* large enough to be split among threads */
    {3, 64, 7, 7, 96, {1, 1}, {1, 1}, {0, 0, 0, 0}, {1, 1}, 1},
};

static ebb_op_attr window_attr(const window_row *row) {
    return (ebb_op_attr){.kernel = {row->kernel[0], row->kernel[1]},
                         .stride = {row->stride[0], row->stride[1]},
                         .pad_begin = {row->pad[0], row->pad[1]},
                         .pad_end = {row->pad[2], row->pad[3]},
                         .dilation = {row->dilation[0], row->dilation[1]},
                         .groups = row->groups};
}

static int64_t window_places(const ebb_op_attr *a, int axis, int64_t src) {
    const int64_t extent = (int64_t)a->dilation[axis] * (a->kernel[axis] - 1) + 1;
    return (src + a->pad_begin[axis] + a->pad_end[axis] - extent) / a->stride[axis] + 1;
}

/* The kernels of a layer with weights, conv or linear: kind and the two after it in the table; a convolution's fourth
 * adds where the second one writes. */
typedef struct layer {
    ebb_op_kind kind;
    ebb_op_attr attr;
    ebb_operand src, weights, dst;
} layer;

static void add_layer(problem_list *list, const layer *l, bool bias, bool relu) {
    const ebb_operand channel = vec(l->weights.shape.dims[0]);
    problem forward = {.kind = l->kind, .attr = l->attr};
    problem data = {.kind = (ebb_op_kind)(l->kind + 1), .attr = l->attr};
    problem filter = {.kind = (ebb_op_kind)(l->kind + 2), .attr = l->attr};
    problem data_add = {.kind = EBB_OP_CONV_BWD_DATA_ADD, .attr = l->attr};
    forward.attr.relu = relu;
    add_in(&forward, l->src);
    add_in(&forward, l->weights);
    if (bias) { add_in(&forward, channel); }
    add_out(&forward, l->dst);
    add_in(&data, l->dst);
    add_in(&data, l->weights);
    add_out(&data, l->src);
    add_in(&data_add, l->dst);
    add_in(&data_add, l->weights);
    add_inout(&data_add, l->src, FILL_NORMAL);
    add_in(&filter, l->src);
    add_in(&filter, l->dst);
    add_out(&filter, l->weights);
    if (bias) { add_out(&filter, channel); }
    push(list, &forward);
    push(list, &filter);
    if (!bias) { push(list, &data); }
    if (!bias && l->kind == EBB_OP_CONV) { push(list, &data_add); }
}

static void add_conv(problem_list *list, const window_row *row, bool relu) {
    const ebb_op_attr a = window_attr(row);
    const layer l = {.kind = EBB_OP_CONV,
                     .attr = a,
                     .src = f32(4, row->n, row->c, row->h, row->w),
                     .weights = f32(4, row->o, row->c / row->groups, row->kernel[0], row->kernel[1]),
                     .dst = f32(4, row->n, row->o, window_places(&a, 0, row->h), window_places(&a, 1, row->w))};
    add_layer(list, &l, false, false);
    add_layer(list, &l, true, relu);
}

static void add_linear(problem_list *list, ebb_shape src, int64_t n_out, bool relu) {
    const layer l = {.kind = EBB_OP_LINEAR,
                     .src = shaped(src),
                     .weights = f32(2, n_out, ebb__shape_elements(&src) / src.dims[0], 0, 0),
                     .dst = f32(2, src.dims[0], n_out, 0, 0)};
    add_layer(list, &l, false, false);
    add_layer(list, &l, true, relu);
}

static void add_layers(problem_list *list) {
    static const struct {
        ebb_shape src;
        int64_t n_out;
    } linears[] = {
        {{.n_dims = 2, .dims = {4, 64}}, 32},       {{.n_dims = 2, .dims = {1, 17}}, 5},
        {{.n_dims = 2, .dims = {7, 100}}, 10},      {{.n_dims = 2, .dims = {3, 1}}, 1},
        {{.n_dims = 4, .dims = {2, 16, 3, 3}}, 20}, /* counts as flattened */
        {{.n_dims = 4, .dims = {3, 5, 2, 7}}, 11},  {{.n_dims = 4, .dims = {2, 48, 1, 1}}, 10},
    };
    for (size_t i = 0; i < COUNT(convs); i++) { add_conv(list, &convs[i], i % 2 == 0); }
    for (size_t i = 0; i < COUNT(linears); i++) { add_linear(list, linears[i].src, linears[i].n_out, i % 2 == 0); }
}

/* ---- normalisation ---- */

static void add_batch_norm(problem_list *list, ebb_operand src, bool relu) {
    const ebb_operand channel = vec(src.shape.dims[1]);
    const ebb_op_attr attr = {.epsilon = 1e-3f, .relu = relu};
    problem forward = {.kind = EBB_OP_BATCH_NORM, .attr = attr};
    for (int i = 0; i < 3; i++) { add_in(&forward, i == 0 ? src : channel); }
    for (int i = 0; i < 3; i++) { add_out(&forward, i == 0 ? src : channel); }
    if (relu) { add_out(&forward, opaque_like(src)); }
    problem backward = {.kind = EBB_OP_BATCH_NORM_BWD, .attr = attr, .forward = push(list, &forward)};
    for (int i = 0; i < 5; i++) { add_in(&backward, i < 2 ? src : channel); }
    if (relu) { add_in(&backward, opaque_like(src)); }
    for (int i = 0; i < 3; i++) { add_out(&backward, i == 0 ? src : channel); }
    memcpy(backward.from, (uint8_t[]){1, 0, 5, 6, 2, 7}, 6); /* src, drawn, mean, variance, gamma, mask */
    push(list, &backward);
    problem infer = {.kind = EBB_OP_BATCH_NORM_INFER, .attr = attr};
    for (int i = 0; i < 5; i++) { add_in(&infer, i == 0 ? src : channel); }
    infer.fill[4] = FILL_POSITIVE;
    add_out(&infer, src);
    push(list, &infer);
}

static void add_stats(problem_list *list, ebb_shape src) {
    const ebb_operand channel = vec(src.dims[1]);
    problem p = {.kind = EBB_OP_BATCH_NORM_STATS,
                 .attr = {.momentum = 0.1f, .size = (int32_t)(src.dims[0] * src.dims[2] * src.dims[3])}};
    if (p.attr.size < 2) { return; } /* one value has no unbiased variance */
    add_in(&p, channel);
    add_operand(&p, &p.n_in, channel, FILL_POSITIVE);
    add_inout(&p, channel, FILL_NORMAL);
    add_inout(&p, channel, FILL_POSITIVE);
    push(list, &p);
}

static void add_lrn(problem_list *list, ebb_operand src, int32_t size, float alpha, float k) {
    problem forward = {.kind = EBB_OP_LRN, .attr = {.size = size, .alpha = alpha, .beta = 0.75f, .k = k}};
    problem backward = {.kind = EBB_OP_LRN_BWD, .attr = forward.attr};
    add_in(&forward, src);
    add_out(&forward, src);
    push(list, &forward);
    add_out(&forward, opaque_like(src));
    backward.forward = push(list, &forward);
    add_in(&backward, src);
    add_in(&backward, src);
    add_in(&backward, opaque_like(src));
    add_out(&backward, src);
    memcpy(backward.from, (uint8_t[]){1, 0, 3}, 3); /* src, drawn, workspace */
    push(list, &backward);
}

/* ---- element by element ---- */

static void add_map(problem_list *list, ebb_op_kind kind, ebb_op_attr attr, ebb_operand operand, uint32_t n_in) {
    problem p = {.kind = kind, .attr = attr};
    for (uint32_t i = 0; i < n_in; i++) { add_in(&p, operand); }
    if (kind == EBB_OP_RELU_BWD) { p.fill[1] = FILL_RECTIFIED; }
    if (kind != EBB_OP_FETCH) { add_out(&p, operand); }
    push(list, &p);
}

static void add_maps(problem_list *list, ebb_operand operand) {
    add_map(list, EBB_OP_RELU, (ebb_op_attr){0}, operand, 1);
    add_map(list, EBB_OP_RELU_BWD, (ebb_op_attr){0}, operand, 2);
    add_map(list, EBB_OP_ADD, (ebb_op_attr){0}, operand, 2);
    add_map(list, EBB_OP_ADD, (ebb_op_attr){.relu = 1}, operand, 2);
    add_map(list, EBB_OP_DROPOUT, (ebb_op_attr){.p = 0.5f}, operand, 1);
    add_map(list, EBB_OP_DROPOUT_BWD, (ebb_op_attr){.p = 0.2f}, operand, 1);
    add_map(list, EBB_OP_REORDER, (ebb_op_attr){0}, operand, 1);
    add_map(list, EBB_OP_FEED, (ebb_op_attr){.port = 0}, operand, 0);
    add_map(list, EBB_OP_FETCH, (ebb_op_attr){.port = 1}, operand, 1);
}

/* ---- pools ---- */

static const window_row pools[] = {
    {2, 16, 8, 8, 0, {2, 2}, {2, 2}, {0, 0, 0, 0}, {1, 1}, 0},      /* VGG's */
    {1, 20, 13, 13, 0, {3, 3}, {2, 2}, {0, 0, 0, 0}, {1, 1}, 0},    /* AlexNet's: overlapping */
    {2, 3, 12, 12, 0, {3, 3}, {2, 2}, {1, 1, 1, 1}, {1, 1}, 0},     /* ResNet's */
    {2, 3, 12, 12, 0, {3, 3}, {2, 2}, {0, 0, 1, 1}, {1, 1}, 0},     /* as ceil_mode pads */
    {1, 17, 7, 9, 0, {3, 3}, {1, 1}, {1, 1, 1, 1}, {1, 1}, 0},      /* Inception's */
    {1, 5, 9, 7, 0, {2, 3}, {3, 2}, {1, 0, 0, 2}, {1, 1}, 0},       /* unequal everything */
    {3, 33, 7, 7, 0, {7, 7}, {1, 1}, {0, 0, 0, 0}, {1, 1}, 0},      /* global */
    {1, 8, 17, 17, 0, {17, 17}, {17, 17}, {0, 0, 0, 0}, {1, 1}, 0}, /* more places than a byte counts */
    {2, 16, 5, 5, 0, {1, 1}, {2, 2}, {0, 0, 0, 0}, {1, 1}, 0},      /* only picks */
};

static void add_avg_pool(problem_list *list, ebb_operand src, ebb_operand dst, const ebb_op_attr *attr) {
    for (int32_t count_padding = 0; count_padding < 2; count_padding++) {
        problem forward = {.kind = EBB_OP_AVG_POOL, .attr = *attr}, backward = {.kind = EBB_OP_AVG_POOL_BWD};
        forward.attr.count_padding = count_padding;
        backward.attr = forward.attr;
        add_in(&forward, src);
        add_out(&forward, dst);
        add_in(&backward, dst);
        add_out(&backward, src);
        push(list, &forward);
        push(list, &backward);
    }
}

static void add_max_pool(problem_list *list, ebb_operand src, ebb_operand dst, const ebb_op_attr *attr) {
    problem forward = {.kind = EBB_OP_MAX_POOL, .attr = *attr};
    add_in(&forward, src);
    add_out(&forward, dst);
    push(list, &forward);
    add_out(&forward, opaque_like(dst));
    forward.fill[0] = FILL_RECTIFIED; /* after a ReLU zeros are many: the first of equal ones gets the gradient */
    problem backward = {.kind = EBB_OP_MAX_POOL_BWD, .attr = *attr, .forward = push(list, &forward)};
    add_in(&backward, dst);
    add_in(&backward, opaque_like(dst));
    add_out(&backward, src);
    backward.from[1] = 3; /* indices */
    push(list, &backward);
}

static void add_pools(problem_list *list) {
    for (size_t i = 0; i < COUNT(pools); i++) {
        const window_row *row = &pools[i];
        const ebb_op_attr attr = window_attr(row);
        const ebb_operand src = f32(4, row->n, row->c, row->h, row->w);
        const ebb_operand dst =
            f32(4, row->n, row->c, window_places(&attr, 0, row->h), window_places(&attr, 1, row->w));
        add_avg_pool(list, src, dst, &attr);
        add_max_pool(list, src, dst, &attr);
    }
}

/* ---- joins ---- */

static void add_joins(problem_list *list, ebb_operand whole, int32_t split) {
    ebb_operand part[2] = {whole, whole};
    part[0].shape.dims[1] = split;
    part[1].shape.dims[1] -= split;
    problem concat = {.kind = EBB_OP_CONCAT};
    add_in(&concat, part[0]);
    add_in(&concat, part[1]);
    add_out(&concat, whole);
    push(list, &concat);
    for (int k = 0; k < 4; k++) { /* first or second part, alone or added to something */
        problem slice = {.kind = EBB_OP_SLICE, .attr = {.offset = k % 2 == 0 ? 0 : split}};
        add_in(&slice, whole);
        if (k >= 2) { add_in(&slice, part[k % 2]); }
        add_out(&slice, part[k % 2]);
        push(list, &slice);
    }
}

static void add_wide_concat(problem_list *list) {
    static const int64_t channels[] = {16, 3, 32, 1, 20};
    problem p = {.kind = EBB_OP_CONCAT};
    for (size_t i = 0; i < COUNT(channels); i++) { add_in(&p, f32(4, 2, channels[i], 4, 5)); }
    add_out(&p, f32(4, 2, 72, 4, 5));
    push(list, &p);
}

static void add_reshapes(problem_list *list) {
    static const ebb_shape pairs[][2] = {
        {{.n_dims = 4, .dims = {2, 16, 3, 3}}, {.n_dims = 2, .dims = {2, 144}}},
        {{.n_dims = 4, .dims = {3, 20, 2, 5}}, {.n_dims = 2, .dims = {3, 200}}},
        {{.n_dims = 2, .dims = {2, 60}}, {.n_dims = 4, .dims = {2, 15, 2, 2}}},
    };
    for (size_t i = 0; i < COUNT(pairs); i++) {
        problem p = {.kind = EBB_OP_RESHAPE};
        add_in(&p, shaped(pairs[i][0]));
        add_out(&p, shaped(pairs[i][1]));
        push(list, &p);
    }
}

/* ---- loss and updates ---- */

static void add_loss(problem_list *list, int64_t n_rows, int32_t n_classes) {
    const ebb_operand logits = f32(2, n_rows, n_classes, 0, 0);
    ebb_operand labels = vec(n_rows);
    labels.dtype = EBB_S32;
    problem forward = {.kind = EBB_OP_SOFTMAX_LOSS, .n_classes = n_classes};
    add_in(&forward, logits);
    add_operand(&forward, &forward.n_in, labels, FILL_LABELS);
    for (int i = 0; i < 3; i++) { add_out(&forward, i == 1 ? logits : vec(1)); }
    problem backward = {.kind = EBB_OP_SOFTMAX_LOSS_BWD, .forward = push(list, &forward)};
    add_in(&backward, logits);
    add_in(&backward, labels);
    add_out(&backward, logits);
    memcpy(backward.from, (uint8_t[]){4, 2}, 2); /* probabilities, labels */
    push(list, &backward);
}

static void add_update(problem_list *list, int32_t optimizer, ebb_operand operand, float weight_decay) {
    problem p = {.kind = EBB_OP_UPDATE, .attr = {.optimizer = optimizer, .weight_decay = weight_decay}};
    const bool adaptive = optimizer == EBB_OPT_ADAM || optimizer == EBB_OPT_ADAMW;
    add_in(&p, operand);
    add_inout(&p, operand, FILL_NORMAL);
    if (optimizer != EBB_OPT_SGD) { add_inout(&p, operand, FILL_NORMAL); }
    if (adaptive) {
        add_inout(&p, operand, FILL_POSITIVE);
        p.attr.beta1 = 0.9f, p.attr.beta2 = 0.999f, p.attr.epsilon = 1e-8f;
    } else if (optimizer != EBB_OPT_SGD) {
        p.attr.momentum = 0.9f;
    }
    push(list, &p);
}

static void add_updates(problem_list *list) {
    for (int32_t optimizer = 0; optimizer <= EBB_OPT_ADAMW; optimizer++) {
        add_update(list, optimizer, f32(4, 20, 3, 3, 3), 0.0f);
        add_update(list, optimizer, f32(4, 32, 16, 1, 1), 1e-2f);
        add_update(list, optimizer, vec(37), 0.0f);
        add_update(list, optimizer, f32(2, 10, 50, 0, 0), 1e-2f);
    }
}

static void add_image_problems(problem_list *list) {
    static const ebb_shape images[] = {
        {.n_dims = 4, .dims = {2, 16, 6, 6}},   {.n_dims = 4, .dims = {1, 3, 7, 5}},
        {.n_dims = 4, .dims = {3, 20, 4, 3}},   {.n_dims = 4, .dims = {2, 96, 3, 3}},
        {.n_dims = 4, .dims = {5, 33, 1, 1}},   {.n_dims = 4, .dims = {2, 1, 3, 1}},
        {.n_dims = 4, .dims = {3, 40, 17, 13}},
    };
    for (size_t i = 0; i < COUNT(images); i++) {
        const ebb_operand image = shaped(images[i]);
        add_batch_norm(list, image, false);
        add_batch_norm(list, image, true);
        add_stats(list, images[i]);
        add_maps(list, image);
        add_lrn(list, image, 5, 1e-4f, 2.0f);
        add_lrn(list, image, 3, 1.0f, 1.0f);
        if (images[i].dims[1] >= 3) { add_joins(list, image, (int32_t)images[i].dims[1] / 3); }
    }
}

void problems_init(problem_list *list) {
    enum { CAPACITY = 700 }; /* forward problems are pointed to: the array must not move */
    *list = (problem_list){.data = calloc(CAPACITY, sizeof(problem)), .cap = CAPACITY};
    add_layers(list);
    add_pools(list);
    add_image_problems(list);
    add_maps(list, f32(2, 3, 50, 0, 0));
    add_maps(list, vec(1));
    add_joins(list, f32(4, 2, 48, 4, 4), 16);
    add_lrn(list, f32(4, 1, 6, 2, 2), 4, 0.5f, 1.0f); /* an even window is not symmetric */
    add_lrn(list, f32(4, 2, 32, 3, 5), 2, 0.5f, 1.0f);
    add_wide_concat(list);
    add_reshapes(list);
    add_loss(list, 4, 10);
    add_loss(list, 1, 3);
    add_loss(list, 7, 100);
    add_updates(list);
}

void problems_fini(problem_list *list) {
    free(list->data);
}
