/* SPDX-License-Identifier: Apache-2.0
 *
 * A graph run as it stands on ref: every value in a place of its own, one operator after the other, no program
 * and no plan. So tests of the graph depend on the graph and on ref alone.
 */
#ifndef EBB_TESTS_INTERPRETER_H
#define EBB_TESTS_INTERPRETER_H

#include "backend/backend.h"
#include "support.h"

typedef struct interpreter {
    const ebb_graph *graph;
    ebb_device *device;
    ebb_stream *stream;
    ebb_arena_mem *arena;
    ebb_buf *place;      /* [n_values] */
    ebb_layout *layout;  /* [n_values] */
    ebb_kernel **kernel; /* [n_ops] */
    ebb_bound **bound;   /* [n_ops] */
    ebb_run_state state;
    void *port[4];
    float loss, correct;
} interpreter;

static inline void expect_ok(ebb_status st) {
    if (st != EBB_OK) { fail_msg("%s", ebb_last_error()); }
}

static inline const ebb_value *interpreter_operand(const ebb_op *op, uint32_t idx) {
    if (idx < op->n_in) { return &op->in[idx]; }
    idx -= op->n_in;
    return idx < op->n_out ? &op->out[idx] : &op->inout[idx - op->n_out];
}

static inline void interpreter_make_kernel(interpreter *it, size_t op_idx) {
    const ebb_op *op = &it->graph->ops.data[op_idx];
    uint32_t n = op->n_in + op->n_out + op->n_inout;
    ebb_operand *operand = calloc(n, sizeof *operand);
    for (uint32_t i = 0; i < n; i++) {
        ebb_value v = *interpreter_operand(op, i);
        const ebb_value_info *info = &it->graph->values.data[v];
        operand[i] = (ebb_operand){info->shape, info->dtype, info->opaque, it->layout[v]};
    }
    ebb_kernel_desc desc = {op->kind, op->attr, op->n_in, op->n_out, op->n_inout, operand, 0};
    expect_ok(it->device->ops->kernel_create(it->device, &desc, &it->kernel[op_idx]));
    assert_int_equal(it->kernel[op_idx]->scratch_bytes, 0);
    for (uint32_t i = op->n_in; i < n; i++) { it->layout[*interpreter_operand(op, i)] = it->kernel[op_idx]->layout[i]; }
    free(operand);
}

static inline uint64_t interpreter_place(interpreter *it) {
    const ebb_backend_ops *ops = it->device->ops;
    uint64_t end = 0;
    for (size_t v = 0; v < it->graph->values.n; v++) {
        if (it->layout[v] == EBB_LAYOUT_ANY) { continue; }
        it->place[v].offset = end;
        it->place[v].size_bytes = ops->layout_bytes(it->device, it->layout[v]);
        end = ebb_align_up(end + it->place[v].size_bytes, ops->alignment_bytes);
    }
    return end;
}

static inline void interpreter_bind(interpreter *it, size_t op_idx) {
    const ebb_op *op = &it->graph->ops.data[op_idx];
    ebb_buf operand[64];
    uint32_t n = op->n_in + op->n_out + op->n_inout;
    assert_true(n <= 64);
    for (uint32_t i = 0; i < n; i++) { operand[i] = it->place[*interpreter_operand(op, i)]; }
    ebb_binding binding = {.operand = operand, .state = &it->state, .rng_stream = op->rng_stream};
    binding.scratch.arena = it->arena;
    expect_ok(it->device->ops->bind(it->kernel[op_idx], &binding, &it->bound[op_idx]));
}

static inline float *interpreter_value(interpreter *it, ebb_value v) {
    return it->device->ops->host_address(it->place[v]);
}

/* Persistent values begin as ebb__graph_init_value says; images and labels are the caller's. */
static inline void interpreter_init(interpreter *it, const ebb_graph *graph, float *images, int32_t *labels) {
    size_t n_values = graph->values.n, n_ops = graph->ops.n;
    *it = (interpreter){.graph = graph};
    expect_ok(ebb_device_open("ref", NULL, &it->device));
    const ebb_backend_ops *ops = it->device->ops;
    it->place = calloc(n_values, sizeof *it->place);
    it->layout = calloc(n_values, sizeof *it->layout);
    it->kernel = calloc(n_ops, sizeof *it->kernel);
    it->bound = calloc(n_ops, sizeof *it->bound);
    for (size_t v = 0; v < n_values; v++) {
        const ebb_value_info *info = &graph->values.data[v];
        it->layout[v] = EBB_LAYOUT_ANY;
        if (!ebb__value_is_persistent(info->kind)) { continue; }
        expect_ok(ops->layout_plain(it->device, info->dtype, &info->shape, &it->layout[v]));
    }
    for (size_t i = 0; i < n_ops; i++) { interpreter_make_kernel(it, i); }
    expect_ok(ops->arena_create(it->device, ebb_max_u64(interpreter_place(it), 1), &it->arena));
    expect_ok(ops->stream_create(it->device, true, &it->stream));
    it->state = (ebb_run_state){.seed = 7, .update = 1, .learning_rate = 0.1f};
    assert_true(graph->ports.n <= sizeof it->port / sizeof it->port[0]);
    for (size_t p = 0; p < graph->ports.n; p++) {
        const char *name = graph->ports.data[p].name;
        it->port[p] = strcmp(name, "images") == 0   ? (void *)images
                      : strcmp(name, "labels") == 0 ? (void *)labels
                      : strcmp(name, "loss") == 0   ? (void *)&it->loss
                                                    : (void *)&it->correct;
    }
    it->state.port = it->port;
    for (size_t v = 0; v < n_values; v++) {
        it->place[v].arena = it->arena;
        if (!ebb__value_is_persistent(graph->values.data[v].kind)) { continue; }
        ebb__graph_init_value(graph, (ebb_value)v, 1, interpreter_value(it, (ebb_value)v));
    }
    for (size_t i = 0; i < n_ops; i++) { interpreter_bind(it, i); }
}

static inline void interpreter_run(interpreter *it) {
    const ebb_backend_ops *ops = it->device->ops;
    for (size_t i = 0; i < it->graph->ops.n; i++) { expect_ok(ops->run(it->stream, it->kernel[i], it->bound[i])); }
    expect_ok(ops->stream_sync(it->stream));
}

static inline void interpreter_fini(interpreter *it) {
    const ebb_backend_ops *ops = it->device->ops;
    for (size_t i = 0; i < it->graph->ops.n; i++) {
        ops->unbind(it->kernel[i], it->bound[i]);
        ops->kernel_destroy(it->kernel[i]);
    }
    ops->stream_destroy(it->stream);
    ops->arena_destroy(it->device, it->arena);
    ebb_device_close(it->device);
    free(it->place);
    free(it->layout);
    free(it->kernel);
    free(it->bound);
}

#endif
