/* SPDX-License-Identifier: Apache-2.0
 *
 * What the files of this folder share: the device with its interned layouts, the kernel in its two forms, and
 * the helpers that build them.
 *
 *   library kernel   a oneDNN primitive; args say which operand is which argument. bind makes the memory objects
 *                    and the argument array, run only executes
 *   own kernel       a function over addresses, for what is bound by memory: batch-norm, add, ReLU, update, copy
 *
 * Images lie in blocks of `block` channels (nChw16c, nChw8c) wherever the channel count is a multiple of it:
 * oneDNN's direct convolutions are at home there, and a channel block of all images is small enough for a
 * core's cache, which batch-norm makes use of. Two channels-last forms (nhwc and 2-D) are the same thing with one
 * block as wide as there are channels; an ebb_cpu_rows describes all of them.
 *
 * Threads: every call that may reach OpenMP stands between ebb__cpu_enter and ebb__cpu_leave, so that the
 * number of threads is the device's and the caller's setting stays as it was. Reductions never depend on it.
 *
 * Signals wait until a call is over, and OpenMP's threads, begun within one, take none: some of oneDNN's matrix
 * products (jit_avx_gemm_f32, jit_avx512_common_gemm_f32; 3.2) point the stack register at a workspace on the heap,
 * and a handler's frame would be written below it, over whatever lies there. Faults are not held back. Threads that
 * a program's own OpenMP regions began before ebb's are as that program made them.
 */
#ifndef EBB_SRC_CPU_PRIV_H
#define EBB_SRC_CPU_PRIV_H

#include "backend/cpu/cpu.h"
#include "backend/cpu/cpu_simd.h"
#include "backend/host_memory.h"
#include "backend/host_stream.h"
#include "backend/kernel_check.h"

#include <signal.h>

#include <oneapi/dnnl/dnnl.h>

/* A status of oneDNN as ours, with what was being done. */
#define EBB_CPU_DNNL(expr, what)                                                                                       \
    do {                                                                                                               \
        dnnl_status_t ebb_dnnl_status_ = (expr);                                                                       \
        if (ebb_dnnl_status_ != dnnl_success) { return ebb__cpu_fail(ebb_dnnl_status_, (what)); }                      \
    } while (0)
ebb_status ebb__cpu_fail(dnnl_status_t status, const char *what);

/* An image tensor as rows of `width` channels: row r of block b of image n begins at element
 * ((n * n_blocks + b) * n_rows + r) * width. width 0: not of that form. */
typedef struct ebb_cpu_rows {
    int64_t n_images, n_blocks, n_rows, width;
    int64_t channels; /* those beyond it in the last block are padding: zero, and to be kept zero */
} ebb_cpu_rows;

typedef struct ebb_cpu_layout {
    dnnl_memory_desc_t md; /* NULL: bytes that only our own kernels understand */
    bool plain;            /* row-major without gaps */
    uint64_t size_bytes;
    ebb_cpu_rows rows;
    char name[64];
} ebb_cpu_layout;

typedef struct ebb_cpu_device {
    ebb_host_device host;
    int32_t n_threads;
    int64_t block; /* channels in a block: the processor's vector */
    const ebb_cpu_simd *simd;
    dnnl_engine_t engine;
    dnnl_stream_t stream;
    dnnl_primitive_attr_t attr, attr_relu; /* scratchpad by user; with a ReLU at the end */
    EBB_VEC(ebb_cpu_layout *) layouts;
} ebb_cpu_device;

typedef struct ebb_cpu_kernel ebb_cpu_kernel;
typedef ebb_status (*ebb_cpu_run_fn)(const ebb_cpu_kernel *kernel, const ebb_bound *bound);

typedef struct ebb_cpu_arg {
    int arg; /* DNNL_ARG_... */
    uint32_t operand;
    dnnl_memory_desc_t md;
} ebb_cpu_arg;

#define EBB_CPU_MAX_ARGS 8

struct ebb_cpu_kernel {
    ebb_kernel base;
    const ebb_mem *mem;
    ebb_op_attr attr;
    uint32_t n_in, n_out, n_inout;
    ebb_cpu_run_fn run;
    /* library kernels */
    dnnl_primitive_t primitive;
    dnnl_memory_desc_t scratch_md;
    ebb_cpu_arg args[EBB_CPU_MAX_ARGS];
    uint32_t n_args;
    /* own kernels */
    ebb_shape shape; /* of operand 0 */
    ebb_cpu_rows rows;
    uint64_t n_elements; /* physical ones, for what goes over bytes as they lie */
    ebb_layout *layout;  /* base.layout, writable while it is built */
};

struct ebb_bound {
    const ebb_run_state *state;
    uint64_t rng_stream;
    void *scratch;
    void **at; /* address of each operand */
    dnnl_exec_arg_t *args;
    uint32_t n_args;
};

static inline ebb_cpu_device *ebb__cpu_of(const ebb_cpu_kernel *kernel) {
    return (ebb_cpu_device *)kernel->base.device;
}

/* What the calling thread had, to be given back. */
typedef struct ebb_cpu_before {
    int n_threads;
    sigset_t signals;
} ebb_cpu_before;

ebb_cpu_before ebb__cpu_enter(const ebb_cpu_device *device);
void ebb__cpu_leave(const ebb_cpu_before *before);

/* ---- layouts (cpu_layout.c) -------------------------------------------------------------------- */

const ebb_cpu_layout *ebb__cpu_layout(const ebb_cpu_device *device, ebb_layout layout);
void ebb__cpu_layouts_fini(ebb_cpu_device *device);
/* The layout of a description, which is copied. */
ebb_status ebb__cpu_intern(ebb_cpu_device *device, const_dnnl_memory_desc_t md, ebb_layout *layout_out);
ebb_status ebb__cpu_intern_bytes(ebb_cpu_device *device, uint64_t size_bytes, ebb_layout *layout_out);
ebb_status ebb__cpu_intern_tag(ebb_cpu_device *device, const ebb_shape *shape, dnnl_format_tag_t tag,
                               ebb_layout *layout_out);
/* A float32 description over dims[0..n_dims); the caller's to destroy. */
ebb_status ebb__cpu_describe(int n_dims, const int64_t *dims, dnnl_format_tag_t tag, dnnl_memory_desc_t *md_out);
/* nChw16c or nChw8c. */
dnnl_format_tag_t ebb__cpu_blocked_tag(const ebb_cpu_device *device);
/* Row-major tag of n_dims dimensions. */
dnnl_format_tag_t ebb__cpu_plain_tag(int n_dims);
/* Where own kernels go row by row: the layout that is given if it has rows, else the blocked one where channels
 * are a multiple of the block, else channels last. Two dimensions: plain. */
ebb_status ebb__cpu_rows_layout(ebb_cpu_device *device, const ebb_operand *operand, ebb_layout *layout_out);
/* Reorder between two layouts of the same elements, on the host, now. */
ebb_status ebb__cpu_reorder_now(ebb_cpu_device *device, const_dnnl_memory_desc_t src_md, const void *src,
                                const_dnnl_memory_desc_t dst_md, void *dst);
/* Row-major description with the dimensions of md; the caller's to destroy. */
ebb_status ebb__cpu_plain_like(const_dnnl_memory_desc_t md, dnnl_memory_desc_t *md_out);

/* ---- kernels (cpu_kernel.c) -------------------------------------------------------------------- */

/* Argument arg is operand idx in description md, which is copied; its layout is the caller's to set. */
ebb_status ebb__cpu_add_arg(ebb_cpu_kernel *kernel, int arg, uint32_t operand, const_dnnl_memory_desc_t md);
/* Make the primitive of pd, which is taken over even on failure. Each wire says which operand is which argument;
 * its description is asked of pd and becomes the operand's layout. */
typedef struct ebb_cpu_wire {
    int arg; /* DNNL_ARG_... */
    uint32_t operand;
    dnnl_query_t query;
    int index;
} ebb_cpu_wire;
ebb_status ebb__cpu_set_primitive(ebb_cpu_kernel *kernel, dnnl_primitive_desc_t pd, const ebb_cpu_wire *wires,
                                  uint32_t n_wires);
/* Convolutions and linear layers (cpu_product.c): their operands by role, whatever the direction, ... */
typedef struct ebb_cpu_roles {
    const ebb_operand *src, *weights, *bias, *dst; /* bias: NULL without */
} ebb_cpu_roles;
ebb_cpu_roles ebb__cpu_roles(const ebb_kernel_desc *desc);
/* ... descriptions of these for the library, of which none needs to be there, ... */
typedef struct ebb_cpu_product {
    dnnl_memory_desc_t src, weights, bias, dst;
} ebb_cpu_product;
void ebb__cpu_product_fini(ebb_cpu_product *product);
/* ... and set_primitive for pd, of the direction that desc says. */
ebb_status ebb__cpu_set_product(ebb_cpu_kernel *kernel, const ebb_kernel_desc *desc, dnnl_primitive_desc_t pd);

/* ---- table entries ----------------------------------------------------------------------------- */

ebb_status ebb__cpu_layout_plain(ebb_device *device, ebb_dtype dtype, const ebb_shape *shape, ebb_layout *layout_out);
uint64_t ebb__cpu_layout_bytes(const ebb_device *device, ebb_layout layout);
const char *ebb__cpu_layout_name(const ebb_device *device, ebb_layout layout);
ebb_status ebb__cpu_layout_pack(ebb_device *device, ebb_layout layout, const void *plain, void *packed);
ebb_status ebb__cpu_layout_unpack(ebb_device *device, ebb_layout layout, const void *packed, void *plain);
ebb_status ebb__cpu_kernel_create(ebb_device *device, const ebb_kernel_desc *desc, ebb_kernel **kernel_out);
void ebb__cpu_kernel_destroy(ebb_kernel *kernel);
ebb_status ebb__cpu_bind(ebb_kernel *kernel, const ebb_binding *binding, ebb_bound **bound_out);
void ebb__cpu_unbind(ebb_kernel *kernel, ebb_bound *bound);
ebb_status ebb__cpu_run(ebb_kernel *kernel, ebb_bound *bound);

/* ---- families of operators: fill in a kernel whose common parts are there ---------------------- */

typedef ebb_status (*ebb_cpu_make_fn)(ebb_cpu_device *device, const ebb_kernel_desc *desc, ebb_cpu_kernel *kernel);

ebb_status ebb__cpu_make_conv(ebb_cpu_device *device, const ebb_kernel_desc *desc, ebb_cpu_kernel *kernel);
ebb_status ebb__cpu_make_linear(ebb_cpu_device *device, const ebb_kernel_desc *desc, ebb_cpu_kernel *kernel);
ebb_status ebb__cpu_make_pool(ebb_cpu_device *device, const ebb_kernel_desc *desc, ebb_cpu_kernel *kernel);
ebb_status ebb__cpu_make_pool_bwd(ebb_cpu_device *device, const ebb_kernel_desc *desc, ebb_cpu_kernel *kernel);
ebb_status ebb__cpu_make_lrn(ebb_cpu_device *device, const ebb_kernel_desc *desc, ebb_cpu_kernel *kernel);
ebb_status ebb__cpu_make_lrn_bwd(ebb_cpu_device *device, const ebb_kernel_desc *desc, ebb_cpu_kernel *kernel);
ebb_status ebb__cpu_make_batch_norm(ebb_cpu_device *device, const ebb_kernel_desc *desc, ebb_cpu_kernel *kernel);
ebb_status ebb__cpu_make_batch_norm_infer(ebb_cpu_device *device, const ebb_kernel_desc *desc, ebb_cpu_kernel *kernel);
ebb_status ebb__cpu_make_batch_norm_bwd(ebb_cpu_device *device, const ebb_kernel_desc *desc, ebb_cpu_kernel *kernel);
ebb_status ebb__cpu_make_batch_norm_stats(ebb_cpu_device *device, const ebb_kernel_desc *desc, ebb_cpu_kernel *kernel);
ebb_status ebb__cpu_make_flat(ebb_cpu_device *device, const ebb_kernel_desc *desc, ebb_cpu_kernel *kernel);
ebb_status ebb__cpu_make_update(ebb_cpu_device *device, const ebb_kernel_desc *desc, ebb_cpu_kernel *kernel);
ebb_status ebb__cpu_make_dropout(ebb_cpu_device *device, const ebb_kernel_desc *desc, ebb_cpu_kernel *kernel);
ebb_status ebb__cpu_make_concat(ebb_cpu_device *device, const ebb_kernel_desc *desc, ebb_cpu_kernel *kernel);
ebb_status ebb__cpu_make_slice(ebb_cpu_device *device, const ebb_kernel_desc *desc, ebb_cpu_kernel *kernel);
ebb_status ebb__cpu_make_port(ebb_cpu_device *device, const ebb_kernel_desc *desc, ebb_cpu_kernel *kernel);
ebb_status ebb__cpu_make_reshape(ebb_cpu_device *device, const ebb_kernel_desc *desc, ebb_cpu_kernel *kernel);
ebb_status ebb__cpu_make_reorder(ebb_cpu_device *device, const ebb_kernel_desc *desc, ebb_cpu_kernel *kernel);
ebb_status ebb__cpu_make_loss(ebb_cpu_device *device, const ebb_kernel_desc *desc, ebb_cpu_kernel *kernel);

#endif
