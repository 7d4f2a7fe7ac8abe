/* SPDX-License-Identifier: Apache-2.0
 *
 * Whether a kernel's description is one at all: as many operands as the operator has, of shapes and types that
 * belong together, and attributes in range. Every backend calls it first, so that what follows may rely on it.
 * And of the data itself the one thing that can be wrong, labels. Beside it what backends' makers ask of descriptions.
 */
#ifndef EBB_SRC_KERNEL_CHECK_H
#define EBB_SRC_KERNEL_CHECK_H

#include "backend/backend.h"

/* EBB_E_ARGUMENT names the operator and what is wrong with it. */
ebb_status ebb__kernel_check(const ebb_kernel_desc *desc);

/* The labels of a batch, when it is there. EBB_E_ARGUMENT names the first image whose label is not in [0, n_classes).
 */
ebb_status ebb__kernel_check_labels(const int32_t *labels, int64_t n_images, int64_t n_classes);

/* The layouts of a kernel whose operands are all row-major. */
ebb_status ebb__kernel_all_plain(ebb_device *device, const ebb_kernel_desc *desc, ebb_layout *layouts_out);

static inline const ebb_operand *ebb__kernel_in(const ebb_kernel_desc *desc, uint32_t idx) {
    return &desc->operand[idx];
}

static inline const ebb_operand *ebb__kernel_out(const ebb_kernel_desc *desc, uint32_t idx) {
    return &desc->operand[desc->n_in + idx];
}

static inline const ebb_operand *ebb__kernel_inout(const ebb_kernel_desc *desc, uint32_t idx) {
    return &desc->operand[desc->n_in + desc->n_out + idx];
}

static inline uint32_t ebb__kernel_n_operands(const ebb_kernel_desc *desc) {
    return desc->n_in + desc->n_out + desc->n_inout;
}

#endif
