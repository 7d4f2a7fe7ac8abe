/* SPDX-License-Identifier: Apache-2.0
 *
 * Calling ref's operators by themselves, without a device: a description and plain memory for each operand.
 */
#ifndef EBB_TESTS_REF_KERNEL_H
#define EBB_TESTS_REF_KERNEL_H

#include "backend/ref/ref.h"

#include <setjmp.h>
#include <stdarg.h>
#include <cmocka.h>
#include <stdlib.h>

#define MAX_OPERANDS 9u

/* A kernel with memory for each operand. */
typedef struct kernel {
    ebb_kernel_desc desc;
    ebb_operand operand[MAX_OPERANDS];
    void *data[MAX_OPERANDS];
    ebb_run_state state;
} kernel;

static inline ebb_shape shape_4d(int64_t n, int64_t c, int64_t h, int64_t w) {
    return (ebb_shape){.n_dims = 4, .dims = {n, c, h, w}};
}

static inline ebb_shape shape_2d(int64_t n, int64_t c) {
    return (ebb_shape){.n_dims = 2, .dims = {n, c}};
}

static inline ebb_shape shape_1d(int64_t n) {
    return (ebb_shape){.n_dims = 1, .dims = {n}};
}

static inline void add(kernel *k, uint32_t *count, ebb_shape shape, bool opaque) {
    const uint32_t idx = k->desc.n_in + k->desc.n_out + k->desc.n_inout;
    k->operand[idx] = (ebb_operand){.shape = shape, .opaque = opaque, .dtype = opaque ? EBB_U8 : EBB_F32};
    k->data[idx] = calloc((size_t)ebb__shape_elements(&shape), sizeof(float));
    ++*count;
}

static inline void add_in(kernel *k, ebb_shape shape) {
    add(k, &k->desc.n_in, shape, false);
}

static inline void add_out(kernel *k, ebb_shape shape) {
    add(k, &k->desc.n_out, shape, false);
}

static inline void add_inout(kernel *k, ebb_shape shape) {
    add(k, &k->desc.n_inout, shape, false);
}

static inline void add_opaque_in(kernel *k, ebb_shape shape) {
    add(k, &k->desc.n_in, shape, true);
}

static inline void add_opaque_out(kernel *k, ebb_shape shape) {
    add(k, &k->desc.n_out, shape, true);
}

static inline kernel make(ebb_op_kind kind, ebb_op_attr attr) {
    return (kernel){.desc = {.kind = kind, .attr = attr}, .state = {.seed = 9, .iteration = 2}};
}

static inline void fini(kernel *k) {
    for (uint32_t i = 0; i < MAX_OPERANDS; i++) { free(k->data[i]); }
}

static inline void run(kernel *k, ebb_ref_fn fn) {
    k->desc.operand = k->operand;
    if (ebb__kernel_check(&k->desc) != EBB_OK) { fail_msg("%s", ebb_last_error()); }
    const ebb_ref_call call = {.desc = &k->desc, .operand = k->data, .state = &k->state, .rng_stream = 77};
    assert_int_equal(fn(&call), EBB_OK);
}

static inline int64_t elements(const kernel *k, uint32_t idx) {
    return ebb__shape_elements(&k->operand[idx].shape);
}

#endif
