/* SPDX-License-Identifier: Apache-2.0
 *
 * The work of each operator. Convolutions and linear layers have exact counts (padding counted as if it were
 * multiplied, as everybody does); the others, which wait for memory, a rough one per element.
 */
#include "backend/work.h"
#include "backend/kernel_check.h"

static double elements(const ebb_operand *operand) {
    return (double)ebb__shape_elements(&operand->shape);
}

/* A multiply-add for each element of dst and each weight of one output channel; dst_idx and weights_idx
 * are places in desc->operand. */
static double product_flops(const ebb_kernel_desc *desc, uint32_t dst_idx, uint32_t weights_idx) {
    const ebb_operand *weights = &desc->operand[weights_idx];
    return 2.0 * elements(&desc->operand[dst_idx]) * elements(weights) / (double)weights->shape.dims[0];
}

static double window_elements(const ebb_op_attr *attr) {
    return (double)attr->kernel[0] * (double)attr->kernel[1];
}

static double update_flops(const ebb_kernel_desc *desc) {
    static const double per_element[] = {
        [EBB_OPT_SGD] = 4, [EBB_OPT_MOMENTUM] = 6, [EBB_OPT_NESTEROV] = 8, [EBB_OPT_ADAM] = 14, [EBB_OPT_ADAMW] = 14};
    return per_element[desc->attr.optimizer] * elements(desc->operand);
}

/* long: one switch over the table */
double ebb__work_flops(const ebb_kernel_desc *desc) {
    const double n = elements(desc->operand);
    switch (desc->kind) {
    case EBB_OP_CONV:
    case EBB_OP_LINEAR: return product_flops(desc, desc->n_in, 1);
    case EBB_OP_CONV_BWD_DATA:
    case EBB_OP_CONV_BWD_DATA_ADD:
    case EBB_OP_LINEAR_BWD_DATA: return product_flops(desc, 0, 1);
    case EBB_OP_CONV_BWD_WEIGHTS:
    case EBB_OP_LINEAR_BWD_WEIGHTS: return product_flops(desc, 1, desc->n_in);
    case EBB_OP_BATCH_NORM: return 7.0 * n;
    case EBB_OP_BATCH_NORM_INFER: return 2.0 * n;
    case EBB_OP_BATCH_NORM_BWD: return 11.0 * n;
    case EBB_OP_BATCH_NORM_STATS: return 6.0 * n;
    case EBB_OP_MAX_POOL:
    case EBB_OP_AVG_POOL: return window_elements(&desc->attr) * elements(&desc->operand[desc->n_in]);
    case EBB_OP_AVG_POOL_BWD: return window_elements(&desc->attr) * n;
    case EBB_OP_LRN: return (2.0 * desc->attr.size + 10.0) * n;
    case EBB_OP_LRN_BWD: return (4.0 * desc->attr.size + 20.0) * n;
    case EBB_OP_SLICE: return desc->n_in > 1 ? elements(&desc->operand[desc->n_in]) : 0.0;
    case EBB_OP_SOFTMAX_LOSS: return 10.0 * n;
    case EBB_OP_SOFTMAX_LOSS_BWD: return 2.0 * n;
    case EBB_OP_UPDATE: return update_flops(desc);
    case EBB_OP_RELU:
    case EBB_OP_RELU_BWD:
    case EBB_OP_MAX_POOL_BWD:
    case EBB_OP_DROPOUT:
    case EBB_OP_DROPOUT_BWD:
    case EBB_OP_ADD: return n;
    case EBB_OP_FEED:
    case EBB_OP_FETCH:
    case EBB_OP_CONCAT:
    case EBB_OP_RESHAPE:
    case EBB_OP_REORDER:
    case EBB_N_OPS: break;
    }
    return 0.0;
}

/* How often operand idx passes: batch-norm goes over what its statistics are of before it can use them. */
static double passes(const ebb_kernel_desc *desc, uint32_t idx) {
    if (idx >= desc->n_in + desc->n_out) { return 2.0; }
    if (desc->kind == EBB_OP_BATCH_NORM) { return idx == 0 ? 2.0 : 1.0; }
    if (desc->kind == EBB_OP_BATCH_NORM_BWD) { return idx <= 1 ? 2.0 : 1.0; }
    return 1.0;
}

double ebb__work_traffic_bytes(const ebb_kernel_desc *desc, const uint64_t *operand_bytes) {
    const bool port = desc->kind == EBB_OP_FEED || desc->kind == EBB_OP_FETCH; /* the host's side is memory too */
    double sum = port ? (double)operand_bytes[0] : 0.0;
    for (uint32_t i = 0; i < ebb__kernel_n_operands(desc); i++) {
        double bytes = (double)operand_bytes[i];
        bool sliced = desc->kind == EBB_OP_SLICE && i == 0; /* reads what dst has of it */
        sum += passes(desc, i) * (sliced ? (double)operand_bytes[desc->n_in] : bytes);
    }
    return sum;
}

ebb_status ebb__work_measure(const ebb_kernel_desc *desc, ebb_kernel *kernel) {
    const ebb_device *device = kernel->device;
    const uint32_t n = ebb__kernel_n_operands(desc);
    uint64_t *bytes = ebb__alloc(device->mem, n, sizeof *bytes);
    if (bytes == NULL) { return EBB_E_NO_MEMORY; }
    for (uint32_t i = 0; i < n; i++) { bytes[i] = device->ops->layout_bytes(device, kernel->layout[i]); }
    kernel->flops = ebb__work_flops(desc);
    kernel->traffic_bytes = ebb__work_traffic_bytes(desc, bytes);
    ebb__free(device->mem, bytes);
    return EBB_OK;
}
