/* SPDX-License-Identifier: Apache-2.0
 *
 * Devices that know one layout, row-major without gaps, and beside it opaque bytes: what ref and dry share.
 * They differ in the bytes of opaque operands and in whether a kernel is ever run.
 *
 * Layouts are interned in a hash table, so a kernel costs one allocation and a look-up for each operand: a
 * network of 100,000 layers makes a million of them.
 */
#ifndef EBB_SRC_PLAIN_H
#define EBB_SRC_PLAIN_H

#include "backend/host_stream.h"

typedef struct ebb_plain_layout {
    ebb_shape shape; /* opaque: one dimension, its bytes */
    ebb_dtype dtype;
    bool opaque;
    uint64_t size_bytes;
} ebb_plain_layout;

typedef struct ebb_plain_device {
    ebb_host_device host;
    /* Bytes of opaque output out_idx of desc. */
    uint64_t (*opaque_bytes)(const ebb_kernel_desc *desc, uint32_t out_idx);
    EBB_VEC(ebb_plain_layout) layouts;
    ebb_layout *slots; /* [n_slots], a power of two; EBB_LAYOUT_ANY is empty */
    size_t n_slots;
} ebb_plain_device;

typedef struct ebb_plain_kernel {
    ebb_kernel base;
    ebb_kernel_desc desc; /* operand lies after the kernel */
} ebb_plain_kernel;

/* A device that begins as a copy of kind, which says ops, run and opaque_bytes. */
ebb_status ebb__plain_open(const ebb_device_options *options, const ebb_plain_device *kind, ebb_device **device_out);

/* Table entries. layout_copy is pack and unpack; unbind is for what bind took in one piece. */
void ebb__plain_close(ebb_device *device);
ebb_status ebb__plain_layout_plain(ebb_device *device, ebb_dtype dtype, const ebb_shape *shape, ebb_layout *layout_out);
uint64_t ebb__plain_layout_bytes(const ebb_device *device, ebb_layout layout);
const char *ebb__plain_layout_name(const ebb_device *device, ebb_layout layout);
ebb_status ebb__plain_layout_copy(ebb_device *device, ebb_layout layout, const void *src, void *dst);
ebb_status ebb__plain_kernel_create(ebb_device *device, const ebb_kernel_desc *desc, ebb_kernel **kernel_out);
void ebb__plain_kernel_destroy(ebb_kernel *kernel);
void ebb__plain_unbind(ebb_kernel *kernel, ebb_bound *bound);

#endif
