/* SPDX-License-Identifier: Apache-2.0
 *
 * Row-major devices: the table of layouts, and kernels that have a description but no code yet.
 */
#include "backend/plain.h"
#include "backend/kernel_check.h"
#include "backend/work.h"

#include <inttypes.h>

ebb_status ebb__plain_open(const ebb_device_options *options, const ebb_plain_device *kind, ebb_device **device_out) {
    const ebb_backend_ops *ops = kind->host.base.ops;
    if (options->index != 0) { return ebb_fail(EBB_E_NO_DEVICE, "%s has one device, number 0", ops->name); }
    ebb_plain_device *device = ebb__alloc(options->mem, 1, sizeof *device);
    if (device == NULL) { return EBB_E_NO_MEMORY; }
    *device = *kind;
    device->host.base.mem = options->mem;
    *device_out = &device->host.base;
    return EBB_OK;
}

void ebb__plain_close(ebb_device *base) {
    if (base == NULL) { return; }
    ebb_plain_device *device = (ebb_plain_device *)base;
    const ebb_mem *mem = base->mem;
    EBB_VEC_FINI(mem, &device->layouts);
    ebb__free(mem, device->slots);
    ebb__free(mem, device);
}

/* ---- layouts ---------------------------------------------------------------------------------- */

static size_t hash_layout(const ebb_plain_layout *layout) {
    return ebb__shape_hash((uint64_t)layout->dtype * 2 + layout->opaque, &layout->shape);
}

static bool is_same_layout(const ebb_plain_layout *a, const ebb_plain_layout *b) {
    return a->dtype == b->dtype && a->opaque == b->opaque && ebb__shape_equal(&a->shape, &b->shape);
}

/* The slot that holds layout, or the empty one where it belongs. */
static size_t find_slot(const ebb_plain_device *device, const ebb_plain_layout *layout) {
    size_t i = hash_layout(layout) & (device->n_slots - 1);
    while (device->slots[i] != EBB_LAYOUT_ANY && !is_same_layout(&device->layouts.data[device->slots[i]], layout)) {
        i = (i + 1) & (device->n_slots - 1);
    }
    return i;
}

static ebb_status grow_slots(ebb_plain_device *device) {
    const ebb_mem *mem = device->host.base.mem;
    const size_t n_slots = device->n_slots == 0 ? 64 : 2 * device->n_slots;
    ebb_layout *slots = ebb__alloc(mem, n_slots, sizeof *slots);
    if (slots == NULL) { return EBB_E_NO_MEMORY; }
    memset(slots, 0xff, n_slots * sizeof *slots);
    ebb__free(mem, device->slots);
    device->slots = slots;
    device->n_slots = n_slots;
    for (size_t i = 0; i < device->layouts.n; i++) {
        device->slots[find_slot(device, &device->layouts.data[i])] = (ebb_layout)i;
    }
    return EBB_OK;
}

static ebb_status intern(ebb_plain_device *device, const ebb_plain_layout *layout, ebb_layout *layout_out) {
    if (device->layouts.n * 2 >= device->n_slots) { EBB_TRY(grow_slots(device)); }
    size_t slot = find_slot(device, layout);
    if (device->slots[slot] == EBB_LAYOUT_ANY) {
        EBB_TRY(EBB_PUSH(device->host.base.mem, &device->layouts, *layout));
        device->slots[slot] = (ebb_layout)(device->layouts.n - 1);
    }
    *layout_out = device->slots[slot];
    return EBB_OK;
}

static ebb_status intern_plain(ebb_plain_device *device, ebb_dtype dtype, const ebb_shape *shape,
                               ebb_layout *layout_out) {
    ebb_plain_layout layout = {.shape = {.n_dims = shape->n_dims}, .dtype = dtype};
    layout.size_bytes = ebb_dtype_bytes(dtype);
    for (int32_t i = 0; i < shape->n_dims; i++) {
        layout.shape.dims[i] = shape->dims[i];
        if (shape->dims[i] < 1 || !ebb_mul_u64(layout.size_bytes, (uint64_t)shape->dims[i], &layout.size_bytes)) {
            return ebb_fail(EBB_E_ARGUMENT, "a shape of no or too many elements");
        }
    }
    return intern(device, &layout, layout_out);
}

static ebb_status intern_opaque(ebb_plain_device *device, uint64_t size_bytes, ebb_layout *layout_out) {
    const ebb_plain_layout layout = {.shape = {.n_dims = 1, .dims = {(int64_t)size_bytes}},
                                     .dtype = EBB_U8,
                                     .opaque = true,
                                     .size_bytes = size_bytes};
    return intern(device, &layout, layout_out);
}

static const ebb_plain_layout *get_layout(const ebb_device *device, ebb_layout layout) {
    const ebb_plain_device *plain = (const ebb_plain_device *)device;
    EBB_ASSERT(layout < plain->layouts.n);
    return &plain->layouts.data[layout];
}

ebb_status ebb__plain_layout_plain(ebb_device *device, ebb_dtype dtype, const ebb_shape *shape,
                                   ebb_layout *layout_out) {
    return intern_plain((ebb_plain_device *)device, dtype, shape, layout_out);
}

uint64_t ebb__plain_layout_bytes(const ebb_device *device, ebb_layout layout) {
    return get_layout(device, layout)->size_bytes;
}

const char *ebb__plain_layout_name(const ebb_device *device, ebb_layout layout) {
    return get_layout(device, layout)->opaque ? "opaque" : "plain";
}

ebb_status ebb__plain_layout_copy(ebb_device *device, ebb_layout layout, const void *src, void *dst) {
    memcpy(dst, src, (size_t)get_layout(device, layout)->size_bytes);
    return EBB_OK;
}

/* ---- kernels ---------------------------------------------------------------------------------- */

/* Which inputs output 0 may overwrite: those that are read at element i for the last time before element i
 * is written. */
static uint32_t inplace_inputs(ebb_op_kind kind) {
    switch (kind) {
    case EBB_OP_BATCH_NORM:
    case EBB_OP_BATCH_NORM_INFER:
    case EBB_OP_RELU:
    case EBB_OP_DROPOUT:
    case EBB_OP_DROPOUT_BWD:
    case EBB_OP_RESHAPE:
    case EBB_OP_REORDER:
    case EBB_OP_SOFTMAX_LOSS_BWD: return 1u << 0;
    case EBB_OP_RELU_BWD:
    case EBB_OP_ADD:
    case EBB_OP_BATCH_NORM_BWD: return 1u << 0 | 1u << 1;
    default: return 0;
    }
}

static ebb_status choose_layout(ebb_plain_device *device, const ebb_kernel_desc *desc, uint32_t idx,
                                ebb_layout *layout_out) {
    const ebb_operand *operand = &desc->operand[idx];
    if (!operand->opaque) { return intern_plain(device, operand->dtype, &operand->shape, layout_out); }
    if (idx >= desc->n_in) { return intern_opaque(device, device->opaque_bytes(desc, idx - desc->n_in), layout_out); }
    if (operand->layout >= device->layouts.n) {
        return ebb_fail(EBB_E_ARGUMENT, "%s: an opaque input without its layout", ebb__op_name(desc->kind));
    }
    *layout_out = operand->layout;
    return EBB_OK;
}

static ebb_status describe(ebb_plain_device *device, ebb_plain_kernel *kernel, ebb_layout *layout) {
    const ebb_kernel_desc *desc = &kernel->desc;
    for (uint32_t i = 0; i < ebb__kernel_n_operands(desc); i++) { EBB_TRY(choose_layout(device, desc, i, &layout[i])); }
    kernel->base = (ebb_kernel){.device = &device->host.base,
                                .layout = layout,
                                .algorithm = "plain",
                                .n_choices = 1,
                                .inplace = inplace_inputs(desc->kind)};
    if (desc->kind == EBB_OP_SLICE && desc->n_in == 2) { kernel->base.inplace = 1u << 1; }
    return ebb__work_measure(desc, &kernel->base);
}

/* One block: the kernel, its operands, their layouts. */
ebb_status ebb__plain_kernel_create(ebb_device *device, const ebb_kernel_desc *desc, ebb_kernel **kernel_out) {
    EBB_TRY(ebb__kernel_check(desc));
    if (desc->choice != 0) { return ebb_fail(EBB_E_LIMIT, "%s: one algorithm only", ebb__op_name(desc->kind)); }
    const uint32_t n = ebb__kernel_n_operands(desc);
    ebb_plain_kernel *kernel =
        ebb__alloc(device->mem, 1, sizeof *kernel + n * (sizeof *desc->operand + sizeof(ebb_layout)));
    if (kernel == NULL) { return EBB_E_NO_MEMORY; }
    ebb_operand *operand = (ebb_operand *)(kernel + 1);
    kernel->desc = *desc;
    ebb_status status = describe((ebb_plain_device *)device, kernel, (ebb_layout *)(operand + n));
    if (status != EBB_OK) {
        ebb__free(device->mem, kernel);
        return status;
    }
    memcpy(operand, desc->operand, n * sizeof *operand);
    kernel->desc.operand = operand;
    *kernel_out = &kernel->base;
    return EBB_OK;
}

void ebb__plain_kernel_destroy(ebb_kernel *kernel) {
    if (kernel != NULL) { ebb__free(kernel->device->mem, kernel); }
}

void ebb__plain_unbind(ebb_kernel *kernel, ebb_bound *bound) {
    ebb__free(kernel->device->mem, bound);
}
