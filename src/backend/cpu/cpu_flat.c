/* SPDX-License-Identifier: Apache-2.0
 *
 * What goes over bytes as they lie, element by element: ReLU, add, dropout, updates, copies between host and
 * arena. Each thread has one contiguous piece. Padding goes through like everything else and stays zero: none of
 * these makes something of nothing.
 */
#include "backend/cpu/cpu_priv.h"
#include "backend/dropout_mask.h"

#include <math.h>
#include <omp.h>

/* Pieces begin at whole cache lines; below it a thread costs more than it saves. */
#define LINE_FLOATS 16u
#define FLOATS_WORTH_A_THREAD 8192u

typedef struct span {
    uint64_t begin, n;
} span;

/* The part of n elements that is the calling thread's. */
static span my_span(uint64_t n) {
    const uint64_t n_threads = (uint64_t)omp_get_num_threads(), thread = (uint64_t)omp_get_thread_num();
    const uint64_t n_lines = (n + LINE_FLOATS - 1) / LINE_FLOATS;
    const uint64_t begin = n_lines * thread / n_threads * LINE_FLOATS;
    const uint64_t end = ebb_min_u64(n_lines * (thread + 1) / n_threads * LINE_FLOATS, n);
    return (span){.begin = begin, .n = end > begin ? end - begin : 0};
}

/* The layout of operand 0, or of any that has one, for all; plain where none has. */
static ebb_status follow(ebb_cpu_device *device, const ebb_kernel_desc *desc, ebb_layout first,
                         ebb_cpu_kernel *kernel) {
    const uint32_t n = ebb__kernel_n_operands(desc);
    ebb_layout layout = first;
    for (uint32_t i = 0; i < n && layout == EBB_LAYOUT_ANY; i++) { layout = desc->operand[i].layout; }
    if (layout == EBB_LAYOUT_ANY) {
        EBB_TRY(ebb__cpu_layout_plain(&device->host.base, EBB_F32, &desc->operand[0].shape, &layout));
    }
    for (uint32_t i = 0; i < n; i++) { kernel->layout[i] = layout; }
    kernel->n_elements = ebb__cpu_layout(device, layout)->size_bytes / sizeof(float);
    return EBB_OK;
}

/* ---- ReLU and add ------------------------------------------------------------------------------ */

static ebb_status run_relu(const ebb_cpu_kernel *kernel, const ebb_bound *bound) {
    const ebb_cpu_simd *simd = ebb__cpu_of(kernel)->simd;
    const float *src = bound->at[0];
    float *dst = bound->at[1];
#pragma omp parallel if (kernel->n_elements > FLOATS_WORTH_A_THREAD)
    {
        const span s = my_span(kernel->n_elements);
        simd->relu(src + s.begin, (int64_t)s.n, dst + s.begin);
    }
    return EBB_OK;
}

static ebb_status run_binary(const ebb_cpu_kernel *kernel, const ebb_bound *bound,
                             void (*fn)(const float *a, const float *b, int64_t n, float *dst)) {
    const float *a = bound->at[0], *b = bound->at[1];
    float *dst = bound->at[2];
#pragma omp parallel if (kernel->n_elements > FLOATS_WORTH_A_THREAD)
    {
        const span s = my_span(kernel->n_elements);
        fn(a + s.begin, b + s.begin, (int64_t)s.n, dst + s.begin);
    }
    return EBB_OK;
}

static ebb_status run_relu_bwd(const ebb_cpu_kernel *kernel, const ebb_bound *bound) {
    return run_binary(kernel, bound, ebb__cpu_of(kernel)->simd->relu_bwd);
}

static ebb_status run_add(const ebb_cpu_kernel *kernel, const ebb_bound *bound) {
    const ebb_cpu_simd *simd = ebb__cpu_of(kernel)->simd;
    return run_binary(kernel, bound, kernel->attr.relu != 0 ? simd->add_relu : simd->add);
}

/* ADD takes the layout of the operand that is in blocks, so that a plain one does not undo them. */
static ebb_layout better_of(const ebb_cpu_device *device, ebb_layout a, ebb_layout b) {
    bool a_plain = a == EBB_LAYOUT_ANY || ebb__cpu_layout(device, a)->plain;
    return a_plain && b != EBB_LAYOUT_ANY ? b : a;
}

ebb_status ebb__cpu_make_flat(ebb_cpu_device *device, const ebb_kernel_desc *desc, ebb_cpu_kernel *kernel) {
    ebb_layout first = desc->operand[0].layout;
    if (desc->kind == EBB_OP_RELU) {
        kernel->run = run_relu;
        kernel->base.inplace = 1u << 0;
    } else {
        kernel->run = desc->kind == EBB_OP_ADD ? run_add : run_relu_bwd;
        kernel->base.inplace = 1u << 0 | 1u << 1;
        first = better_of(device, first, desc->operand[1].layout);
    }
    return follow(device, desc, first, kernel);
}

/* ---- dropout ----------------------------------------------------------------------------------- */

static ebb_status run_dropout(const ebb_cpu_kernel *kernel, const ebb_bound *bound) {
    const ebb_dropout_mask mask = ebb__dropout_mask(bound->state, bound->rng_stream, kernel->attr.p);
    const float *src = bound->at[0];
    float *dst = bound->at[1];
#pragma omp parallel if (kernel->n_elements > FLOATS_WORTH_A_THREAD)
    {
        const span s = my_span(kernel->n_elements);
        float factors[4] = {0};
        for (uint64_t i = s.begin; i < s.begin + s.n; i++) { /* begin is a multiple of 4 */
            if (i % 4 == 0) { ebb__dropout_factors(&mask, i / 4, factors); }
            dst[i] = src[i] * factors[i % 4];
        }
    }
    return EBB_OK;
}

/* Row-major: the mask is a function of an element's place in the row-major order. */
ebb_status ebb__cpu_make_dropout(ebb_cpu_device *device, const ebb_kernel_desc *desc, ebb_cpu_kernel *kernel) {
    kernel->run = run_dropout;
    kernel->base.inplace = 1u << 0;
    kernel->n_elements = (uint64_t)ebb__shape_elements(&desc->operand[0].shape);
    return ebb__kernel_all_plain(&device->host.base, desc, kernel->layout);
}

/* ---- updates ----------------------------------------------------------------------------------- */

static ebb_cpu_update prepare_update(const ebb_op_attr *a, const ebb_run_state *state) {
    const double rate = (double)state->learning_rate, t = (double)state->update;
    const bool decoupled = a->optimizer == EBB_OPT_ADAMW;
    ebb_cpu_update u = {.learning_rate = state->learning_rate,
                        .momentum = a->momentum,
                        .weight_decay = decoupled ? 0.0f : a->weight_decay,
                        .beta1 = a->beta1,
                        .beta2 = a->beta2,
                        .epsilon = a->epsilon,
                        .shrink = 1.0f};
    if (decoupled) { u.shrink = (float)(1.0 - rate * (double)a->weight_decay); }
    if (decoupled || a->optimizer == EBB_OPT_ADAM) {
        u.step = (float)(rate / (1.0 - pow((double)a->beta1, t)));
        u.root_correction = (float)(1.0 / sqrt(1.0 - pow((double)a->beta2, t)));
    }
    return u;
}

static void update_span(const ebb_cpu_kernel *kernel, const ebb_bound *bound, const ebb_cpu_update *u, span s) {
    const ebb_cpu_simd *simd = ebb__cpu_of(kernel)->simd;
    const float *g = (const float *)bound->at[0] + s.begin;
    float *state[3] = {0};
    for (uint32_t i = 0; i < kernel->n_inout; i++) { state[i] = (float *)bound->at[1 + i] + s.begin; }
    switch ((ebb_optimizer_kind)kernel->attr.optimizer) {
    case EBB_OPT_SGD: simd->sgd(u, g, (int64_t)s.n, state[0]); break;
    case EBB_OPT_MOMENTUM: simd->momentum(u, g, (int64_t)s.n, state[0], state[1]); break;
    case EBB_OPT_NESTEROV: simd->nesterov(u, g, (int64_t)s.n, state[0], state[1]); break;
    case EBB_OPT_ADAM:
    case EBB_OPT_ADAMW: simd->adam(u, g, (int64_t)s.n, state[0], state[1], state[2]); break;
    }
}

static ebb_status run_update(const ebb_cpu_kernel *kernel, const ebb_bound *bound) {
    const ebb_cpu_update u = prepare_update(&kernel->attr, bound->state);
#pragma omp parallel if (kernel->n_elements > FLOATS_WORTH_A_THREAD)
    update_span(kernel, bound, &u, my_span(kernel->n_elements));
    return EBB_OK;
}

/* The weights' layout, which the optimiser's state shares. */
ebb_status ebb__cpu_make_update(ebb_cpu_device *device, const ebb_kernel_desc *desc, ebb_cpu_kernel *kernel) {
    kernel->run = run_update;
    return follow(device, desc, ebb__kernel_inout(desc, 0)->layout, kernel);
}

/* ---- copies as they are ------------------------------------------------------------------------ */

static void copy_bytes(void *dst, const void *src, uint64_t n_bytes) {
#pragma omp parallel if (n_bytes > FLOATS_WORTH_A_THREAD * sizeof(float))
    {
        const span s = my_span(n_bytes);
        memcpy((char *)dst + s.begin, (const char *)src + s.begin, s.n);
    }
}

static ebb_status run_feed(const ebb_cpu_kernel *kernel, const ebb_bound *bound) {
    copy_bytes(bound->at[0], bound->state->port[kernel->attr.port], kernel->n_elements);
    return EBB_OK;
}

static ebb_status run_fetch(const ebb_cpu_kernel *kernel, const ebb_bound *bound) {
    copy_bytes(bound->state->port[kernel->attr.port], bound->at[0], kernel->n_elements);
    return EBB_OK;
}

/* n_elements: bytes, since labels have another type. */
ebb_status ebb__cpu_make_port(ebb_cpu_device *device, const ebb_kernel_desc *desc, ebb_cpu_kernel *kernel) {
    kernel->run = desc->kind == EBB_OP_FEED ? run_feed : run_fetch;
    EBB_TRY(ebb__kernel_all_plain(&device->host.base, desc, kernel->layout));
    kernel->n_elements = ebb__cpu_layout(device, kernel->layout[0])->size_bytes;
    return EBB_OK;
}

static ebb_status run_copy(const ebb_cpu_kernel *kernel, const ebb_bound *bound) {
    if (bound->at[0] != bound->at[1]) { copy_bytes(bound->at[1], bound->at[0], kernel->n_elements); }
    return EBB_OK;
}

ebb_status ebb__cpu_make_reshape(ebb_cpu_device *device, const ebb_kernel_desc *desc, ebb_cpu_kernel *kernel) {
    kernel->run = run_copy;
    kernel->base.inplace = 1u << 0;
    EBB_TRY(ebb__kernel_all_plain(&device->host.base, desc, kernel->layout));
    kernel->n_elements = ebb__cpu_layout(device, kernel->layout[0])->size_bytes;
    return EBB_OK;
}
