/* SPDX-License-Identifier: Apache-2.0
 *
 * Layouts: row-major, channels last for images (what cuDNN's tensor cores and own kernels are at home in), and plain
 * bytes that one operator's kernels understand. None has padding. Interned in a hash table: a network of 100,000
 * layers asks a million times.
 */
#include "backend/cuda/cuda_priv.h"

static size_t hash_layout(const ebb_cuda_layout *layout) {
    return ebb__shape_hash((uint64_t)layout->dtype * 4 + (uint64_t)layout->order, &layout->shape);
}

static bool is_same_layout(const ebb_cuda_layout *a, const ebb_cuda_layout *b) {
    return a->dtype == b->dtype && a->order == b->order && ebb__shape_equal(&a->shape, &b->shape);
}

/* The slot that holds layout, or the empty one where it belongs. */
static size_t find_slot(const ebb_cuda_device *device, const ebb_cuda_layout *layout) {
    size_t i = hash_layout(layout) & (device->n_layout_slots - 1);
    while (device->layout_slots[i] != EBB_LAYOUT_ANY &&
           !is_same_layout(&device->layouts.data[device->layout_slots[i]], layout)) {
        i = (i + 1) & (device->n_layout_slots - 1);
    }
    return i;
}

static ebb_status grow_slots(ebb_cuda_device *device) {
    const ebb_mem *mem = device->base.mem;
    const size_t n_slots = device->n_layout_slots == 0 ? 64 : 2 * device->n_layout_slots;
    ebb_layout *slots = ebb__alloc(mem, n_slots, sizeof *slots);
    if (slots == NULL) { return EBB_E_NO_MEMORY; }
    memset(slots, 0xff, n_slots * sizeof *slots);
    ebb__free(mem, device->layout_slots);
    device->layout_slots = slots;
    device->n_layout_slots = n_slots;
    for (size_t i = 0; i < device->layouts.n; i++) {
        device->layout_slots[find_slot(device, &device->layouts.data[i])] = (ebb_layout)i;
    }
    return EBB_OK;
}

static ebb_status intern(ebb_cuda_device *device, const ebb_cuda_layout *layout, ebb_layout *layout_out) {
    if (device->layouts.n * 2 >= device->n_layout_slots) { EBB_TRY(grow_slots(device)); }
    const size_t slot = find_slot(device, layout);
    if (device->layout_slots[slot] == EBB_LAYOUT_ANY) {
        EBB_TRY(EBB_PUSH(device->base.mem, &device->layouts, *layout));
        device->layout_slots[slot] = (ebb_layout)(device->layouts.n - 1);
    }
    *layout_out = device->layout_slots[slot];
    return EBB_OK;
}

static ebb_status intern_shape(ebb_device *device, ebb_dtype dtype, const ebb_shape *shape, int order,
                               ebb_layout *layout_out) {
    ebb_cuda_layout layout = {.shape = {.n_dims = shape->n_dims}, .dtype = dtype, .size_bytes = ebb_dtype_bytes(dtype)};
    layout.order = order;
    for (int32_t i = 0; i < shape->n_dims; i++) {
        layout.shape.dims[i] = shape->dims[i];
        if (shape->dims[i] < 1 || !ebb_mul_u64(layout.size_bytes, (uint64_t)shape->dims[i], &layout.size_bytes)) {
            return ebb_fail(EBB_E_ARGUMENT, "a shape of no or too many elements");
        }
    }
    return intern(ebb__cuda_of(device), &layout, layout_out);
}

ebb_status ebb__cuda_layout_plain(ebb_device *device, ebb_dtype dtype, const ebb_shape *shape, ebb_layout *layout_out) {
    return intern_shape(device, dtype, shape, EBB_CUDA_PLAIN, layout_out);
}

ebb_status ebb__cuda_layout_channels_last(ebb_device *device, ebb_dtype dtype, const ebb_shape *shape,
                                          ebb_layout *layout_out) {
    if (shape->n_dims != 4) { return ebb_fail(EBB_E_ARGUMENT, "channels last of %d dimensions", (int)shape->n_dims); }
    return intern_shape(device, dtype, shape, EBB_CUDA_CHANNELS_LAST, layout_out);
}

ebb_status ebb__cuda_layout_of_bytes(ebb_device *device, uint64_t size_bytes, ebb_layout *layout_out) {
    const ebb_shape shape = {.n_dims = 1, .dims = {(int64_t)size_bytes}};
    return intern_shape(device, EBB_U8, &shape, EBB_CUDA_BYTES, layout_out);
}

void ebb__cuda_layouts_fini(ebb_cuda_device *device) {
    EBB_VEC_FINI(device->base.mem, &device->layouts);
    ebb__free(device->base.mem, device->layout_slots);
}

const ebb_cuda_layout *ebb__cuda_layout(const ebb_device *base, ebb_layout layout) {
    const ebb_cuda_device *device = (const ebb_cuda_device *)base;
    EBB_ASSERT(layout < device->layouts.n);
    return &device->layouts.data[layout];
}

uint64_t ebb__cuda_layout_bytes(const ebb_device *device, ebb_layout layout) {
    return ebb__cuda_layout(device, layout)->size_bytes;
}

const char *ebb__cuda_layout_name(const ebb_device *device, ebb_layout layout) {
    static const char *const names[] = {
        [EBB_CUDA_PLAIN] = "plain", [EBB_CUDA_CHANNELS_LAST] = "nhwc", [EBB_CUDA_BYTES] = "opaque"};
    return names[ebb__cuda_layout(device, layout)->order];
}

/* One image after the other between (c, hw) and (hw, c); element i, j of the source is j, i of the other. */
static void transpose(const unsigned char *src, unsigned char *dst, uint64_t n_rows, uint64_t n_columns,
                      uint64_t bytes) {
    for (uint64_t i = 0; i < n_rows; i++) {
        for (uint64_t j = 0; j < n_columns; j++) {
            memcpy(dst + (j * n_rows + i) * bytes, src + (i * n_columns + j) * bytes, (size_t)bytes);
        }
    }
}

static void convert(const ebb_cuda_layout *layout, const unsigned char *src, unsigned char *dst, bool pack) {
    if (layout->order != EBB_CUDA_CHANNELS_LAST) {
        memcpy(dst, src, (size_t)layout->size_bytes);
        return;
    }
    const uint64_t n = (uint64_t)layout->shape.dims[0], c = (uint64_t)layout->shape.dims[1];
    const uint64_t hw = (uint64_t)(layout->shape.dims[2] * layout->shape.dims[3]);
    const uint64_t image_bytes = layout->size_bytes / n;
    for (uint64_t i = 0; i < n; i++) {
        transpose(src + i * image_bytes, dst + i * image_bytes, pack ? c : hw, pack ? hw : c,
                  ebb_dtype_bytes(layout->dtype));
    }
}

ebb_status ebb__cuda_layout_pack(ebb_device *device, ebb_layout layout, const void *plain, void *packed) {
    convert(ebb__cuda_layout(device, layout), plain, packed, true);
    return EBB_OK;
}

ebb_status ebb__cuda_layout_unpack(ebb_device *device, ebb_layout layout, const void *packed, void *plain) {
    convert(ebb__cuda_layout(device, layout), packed, plain, false);
    return EBB_OK;
}
