/* SPDX-License-Identifier: Apache-2.0
 *
 * What a kernel costs, on paper: operations and bytes, the same figures for every backend, so that predicted
 * times and rates can be compared between them.
 */
#ifndef EBB_SRC_WORK_H
#define EBB_SRC_WORK_H

#include "backend/backend.h"

/* Floating-point operations; a multiply-add is two. desc has passed ebb__kernel_check. */
double ebb__work_flops(const ebb_kernel_desc *desc);

/* Bytes read and written when nothing stays in a cache between two passes over an operand; operand_bytes are
 * what the operands take as they lie on the device. */
double ebb__work_traffic_bytes(const ebb_kernel_desc *desc, const uint64_t *operand_bytes);

/* Both, of a kernel whose device and layouts are there. */
ebb_status ebb__work_measure(const ebb_kernel_desc *desc, ebb_kernel *kernel);

#endif
