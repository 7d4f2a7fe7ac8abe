/* SPDX-License-Identifier: Apache-2.0
 *
 * Running one problem on one device: operands at chosen places of an arena, guard bytes between them, and
 * every byte that the kernel had no business with compared afterwards. The host sees the arena through copies
 * alone, so that a device whose memory it cannot read passes too.
 */
#include "conformance.h"

#include <math.h>
#include <stdlib.h>

#define GUARD_BYTES 256u
#define GUARD_VALUE 0xA5
#define UNWRITTEN 0xFF /* a NaN as a float */

void bench_init(bench *b, ebb_device *device) {
    *b = (bench){.ops = device->ops, .device = device};
    MUST(b->ops->arena_create(b->device, BENCH_BYTES, &b->arena));
    MUST(b->ops->stream_create(b->device, true, &b->stream));
    MUST(b->ops->host_alloc(b->device, BENCH_BYTES, (void **)&b->image));
    MUST(b->ops->host_alloc(b->device, BENCH_BYTES, (void **)&b->before));
    b->state = (ebb_run_state){.seed = 7, .iteration = 3, .update = 5, .learning_rate = 0.05f};
    for (size_t i = 0; i < 2; i++) { MUST(b->ops->host_alloc(b->device, BENCH_BYTES, &b->port[i])); }
    b->state.port = b->port;
}

void bench_fini(bench *b) {
    for (size_t i = 0; i < 2; i++) { b->ops->host_free(b->device, b->port[i], BENCH_BYTES); }
    b->ops->host_free(b->device, b->before, BENCH_BYTES);
    b->ops->host_free(b->device, b->image, BENCH_BYTES);
    b->ops->stream_destroy(b->stream);
    b->ops->arena_destroy(b->device, b->arena);
    ebb_device_close(b->device);
}

/* ---- contents ---- */

void contents_set(contents *c, uint32_t idx, const void *data, uint64_t n_bytes) {
    unsigned char *copy = malloc(n_bytes > 0 ? n_bytes : 1);
    memcpy(copy, data, n_bytes);
    free(c->data[idx]);
    c->data[idx] = copy;
    c->n_bytes[idx] = n_bytes;
}

static float draw(ebb_rng *rng, fill how) {
    float x = ebb__rng_normal(rng);
    if (how == FILL_POSITIVE) { return fabsf(x) + 0.1f; }
    return how == FILL_RECTIFIED && x < 0.0f ? 0.0f : x;
}

static void fill_operand(unsigned char *data, const problem *p, uint32_t idx, ebb_rng *rng) {
    const int64_t n = ebb__shape_elements(&p->operand[idx].shape);
    for (int64_t i = 0; i < n; i++) {
        if (p->fill[idx] == FILL_LABELS) {
            ((int32_t *)data)[i] = (int32_t)ebb__rng_below(rng, (uint64_t)p->n_classes);
        } else {
            ((float *)data)[i] = draw(rng, p->fill[idx]);
        }
    }
}

/* Outputs have no content; opaque inputs, and all that comes from a forward problem, get theirs later. */
void contents_init(contents *c, const problem *p, uint64_t seed) {
    *c = (contents){.port = calloc(1, plain_bytes(&p->operand[0]))};
    ebb_rng rng;
    ebb__rng_init(&rng, seed, (uint64_t)p->kind);
    for (uint32_t i = 0; i < n_operands(p); i++) {
        bool output = i >= p->n_in && i < p->n_in + p->n_out;
        if (p->operand[i].opaque || output || p->from[i] > 0) { continue; }
        c->n_bytes[i] = plain_bytes(&p->operand[i]);
        c->data[i] = calloc(1, c->n_bytes[i]);
        fill_operand(c->data[i], p, i, &rng);
    }
    if (p->kind == EBB_OP_FEED) { fill_operand(c->port, p, 0, &rng); }
}

void contents_fini(contents *c) {
    for (uint32_t i = 0; i < MAX_OPERANDS; i++) { free(c->data[i]); }
    free(c->port);
}

/* ---- kernels ---- */

/* The layout in which a 1x1 convolution leaves an image of this shape. */
static ebb_layout conv_layout(bench *b, const ebb_shape *image) {
    const ebb_operand src = {.shape = *image, .layout = EBB_LAYOUT_ANY};
    ebb_operand operand[3] = {src, src, src};
    operand[1].shape = (ebb_shape){.n_dims = 4, .dims = {image->dims[1], image->dims[1], 1, 1}};
    const ebb_kernel_desc desc = {.kind = EBB_OP_CONV,
                                  .attr = {.kernel = {1, 1}, .stride = {1, 1}, .dilation = {1, 1}, .groups = 1},
                                  .n_in = 2,
                                  .n_out = 1,
                                  .operand = operand};
    ebb_kernel *kernel = NULL;
    const ebb_status status = b->ops->kernel_create(b->device, &desc, &kernel);
    if (status == EBB_E_UNSUPPORTED) { return EBB_LAYOUT_ANY; } /* counted where convolutions are checked */
    MUST(status);
    const ebb_layout layout = kernel->layout[2];
    b->ops->kernel_destroy(kernel);
    return layout;
}

static bool is_image(const problem *p, uint32_t idx) {
    const bool weights =
        idx == 1 && (p->kind == EBB_OP_CONV || p->kind == EBB_OP_CONV_BWD_DATA || p->kind == EBB_OP_CONV_BWD_DATA_ADD);
    const ebb_operand *operand = &p->operand[idx];
    return operand->shape.n_dims == 4 && operand->dtype == EBB_F32 && !weights && p->kind != EBB_OP_UPDATE;
}

static ebb_layout input_layout(bench *b, const problem *p, const contents *in, uint32_t idx, input_mode mode) {
    const ebb_operand *operand = &p->operand[idx];
    ebb_layout layout = operand->layout;
    if (operand->opaque) { return in->layout[idx]; }
    if (mode == INPUTS_OF_CONV && is_image(p, idx)) { return conv_layout(b, &operand->shape); }
    if (mode == INPUTS_PLAIN) { MUST(b->ops->layout_plain(b->device, operand->dtype, &operand->shape, &layout)); }
    return layout;
}

ebb_status make_kernel(bench *b, const problem *p, const contents *in, variant v, ebb_kernel **kernel_out) {
    ebb_operand operand[MAX_OPERANDS];
    memcpy(operand, p->operand, sizeof operand);
    for (uint32_t i = 0; i < p->n_in; i++) { operand[i].layout = input_layout(b, p, in, i, v.inputs); }
    const ebb_kernel_desc desc = {.kind = p->kind,
                                  .attr = p->attr,
                                  .n_in = p->n_in,
                                  .n_out = p->n_out,
                                  .n_inout = p->n_inout,
                                  .operand = operand,
                                  .choice = v.choice};
    return b->ops->kernel_create(b->device, &desc, kernel_out);
}

typedef struct places {
    ebb_buf operand[MAX_OPERANDS];
    ebb_buf scratch;
    uint64_t end;
} places;

static ebb_buf take(const bench *b, uint64_t *end, uint64_t size_bytes) {
    const ebb_buf buf = {b->arena, ebb_align_up(*end + GUARD_BYTES, b->ops->alignment_bytes), size_bytes};
    *end = buf.offset + size_bytes;
    assert_true(*end + GUARD_BYTES <= BENCH_BYTES);
    return buf;
}

static places place_operands(const bench *b, const problem *p, const ebb_kernel *kernel, variant v) {
    places at = {.end = v.shift_bytes};
    for (uint32_t i = 0; i < n_operands(p); i++) {
        bool inplace = i == p->n_in && v.inplace_input >= 0;
        at.operand[i] = inplace ? at.operand[v.inplace_input]
                                : take(b, &at.end, b->ops->layout_bytes(b->device, kernel->layout[i]));
    }
    at.scratch = take(b, &at.end, kernel->scratch_bytes);
    at.end += GUARD_BYTES;
    return at;
}

/* Outputs first: the input that output 0 lies over comes out on top. */
static void paint(bench *b, const problem *p, const ebb_kernel *kernel, const contents *in, const places *at) {
    memset(b->image, GUARD_VALUE, at->end);
    for (uint32_t i = n_operands(p); i-- > 0;) {
        unsigned char *to = b->image + at->operand[i].offset;
        if (in->data[i] == NULL) {
            memset(to, UNWRITTEN, at->operand[i].size_bytes);
        } else if (p->operand[i].opaque) { /* as forward left it: nothing can convert it */
            assert_int_equal(kernel->layout[i], in->layout[i]);
            memcpy(to, in->data[i], in->n_bytes[i]);
        } else {
            MUST(b->ops->layout_pack(b->device, kernel->layout[i], in->data[i], to));
        }
    }
    memcpy(b->before, b->image, at->end);
}

static void execute(bench *b, const problem *p, ebb_kernel *kernel, const places *at) {
    const ebb_backend_ops *ops = b->ops;
    const ebb_buf all = {b->arena, 0, at->end};
    const ebb_binding binding = {
        .operand = at->operand, .scratch = at->scratch, .state = &b->state, .rng_stream = 0x1234567812345678u};
    ebb_bound *bound = NULL;
    MUST(ops->bind(kernel, &binding, &bound));
    MUST(ops->copy(b->stream, EBB_COPY_IN, all, b->image));
    ebb_status status = ops->run(b->stream, kernel, bound);
    if (status == EBB_OK) { status = ops->copy(b->stream, EBB_COPY_OUT, all, b->image); }
    if (status == EBB_OK) { status = ops->stream_sync(b->stream); }
    if (status != EBB_OK) { fail_msg("%s: %s", p->text, ebb_last_error()); }
    ops->unbind(kernel, bound);
}

/* What the kernel may write is made equal first, so that all the rest can be compared in one go. */
static void check_untouched(bench *b, const problem *p, const places *at) {
    memcpy(b->before + at->scratch.offset, b->image + at->scratch.offset, at->scratch.size_bytes);
    for (uint32_t i = p->n_in; i < n_operands(p); i++) {
        memcpy(b->before + at->operand[i].offset, b->image + at->operand[i].offset, at->operand[i].size_bytes);
    }
    if (memcmp(b->before, b->image, at->end) == 0) { return; }
    uint64_t k = 0;
    while (b->before[k] == b->image[k]) { k++; }
    for (uint32_t i = 0; i < n_operands(p); i++) {
        print_message("operand %u at %llu, %llu bytes\n", i, (unsigned long long)at->operand[i].offset,
                      (unsigned long long)at->operand[i].size_bytes);
    }
    fail_msg("%s: wrote byte %llu, which is not an output's", p->text, (unsigned long long)k);
}

void run_kernel(bench *b, const problem *p, ebb_kernel *kernel, const contents *in, variant v, contents *out) {
    const places at = place_operands(b, p, kernel, v);
    const uint64_t port_bytes = plain_bytes(&p->operand[0]);
    paint(b, p, kernel, in, &at);
    memcpy(b->state.port[p->attr.port], in->port, port_bytes);
    execute(b, p, kernel, &at);
    if (b->ops->has_data) { check_untouched(b, p, &at); }
    *out = (contents){.port = malloc(port_bytes)};
    memcpy(out->port, b->state.port[p->attr.port], port_bytes);
    for (uint32_t i = p->n_in; i < n_operands(p); i++) {
        contents_set(out, i, b->image + at.operand[i].offset, at.operand[i].size_bytes);
        out->layout[i] = kernel->layout[i];
    }
}

void unpack_outputs(bench *b, const problem *p, const ebb_kernel *kernel, contents *out) {
    for (uint32_t i = p->n_in; i < n_operands(p); i++) {
        if (p->operand[i].opaque) { continue; }
        unsigned char *plain = malloc(plain_bytes(&p->operand[i])), *again = malloc(out->n_bytes[i]);
        MUST(b->ops->layout_unpack(b->device, kernel->layout[i], out->data[i], plain));
        MUST(b->ops->layout_pack(b->device, kernel->layout[i], plain, again));
        if (b->ops->has_data && memcmp(again, out->data[i], out->n_bytes[i]) != 0) {
            fail_msg("%s: operand %u's padding is not zero", p->text, i);
        }
        contents_set(out, i, plain, plain_bytes(&p->operand[i]));
        free(again);
        free(plain);
    }
}
