/* SPDX-License-Identifier: Apache-2.0
 *
 * What convolutions and linear layers have in common: which operand plays which role in each of the three
 * directions, and which argument of the library's primitive it then is.
 */
#include "backend/cpu/cpu_priv.h"

static bool is_by_data(ebb_op_kind kind) {
    return kind == EBB_OP_CONV_BWD_DATA || kind == EBB_OP_LINEAR_BWD_DATA;
}

static bool is_by_weights(ebb_op_kind kind) {
    return kind == EBB_OP_CONV_BWD_WEIGHTS || kind == EBB_OP_LINEAR_BWD_WEIGHTS;
}

ebb_cpu_roles ebb__cpu_roles(const ebb_kernel_desc *desc) {
    const ebb_operand *o = desc->operand;
    if (is_by_data(desc->kind)) { return (ebb_cpu_roles){.src = &o[2], .weights = &o[1], .dst = &o[0]}; }
    if (is_by_weights(desc->kind)) {
        return (ebb_cpu_roles){.src = &o[0], .weights = &o[2], .bias = desc->n_out > 1 ? &o[3] : NULL, .dst = &o[1]};
    }
    return (ebb_cpu_roles){
        .src = &o[0], .weights = &o[1], .bias = desc->n_in > 2 ? &o[2] : NULL, .dst = ebb__kernel_out(desc, 0)};
}

void ebb__cpu_product_fini(ebb_cpu_product *product) {
    (void)dnnl_memory_desc_destroy(product->src);
    (void)dnnl_memory_desc_destroy(product->weights);
    (void)dnnl_memory_desc_destroy(product->bias);
    (void)dnnl_memory_desc_destroy(product->dst);
}

ebb_status ebb__cpu_set_product(ebb_cpu_kernel *kernel, const ebb_kernel_desc *desc, dnnl_primitive_desc_t pd) {
    const ebb_cpu_roles r = ebb__cpu_roles(desc);
    const bool by_data = is_by_data(desc->kind), by_weights = is_by_weights(desc->kind);
    const bool forward = !by_data && !by_weights;
    const uint32_t src = (uint32_t)(r.src - desc->operand), weights = (uint32_t)(r.weights - desc->operand);
    const uint32_t dst = (uint32_t)(r.dst - desc->operand);
    const uint32_t bias = r.bias != NULL ? (uint32_t)(r.bias - desc->operand) : 0;
    const dnnl_query_t weights_query = by_weights ? dnnl_query_diff_weights_md : dnnl_query_weights_md;
    const ebb_cpu_wire wires[] = {
        {by_data ? DNNL_ARG_DIFF_SRC : DNNL_ARG_SRC, src, by_data ? dnnl_query_diff_src_md : dnnl_query_src_md, 0},
        {by_weights ? DNNL_ARG_DIFF_WEIGHTS : DNNL_ARG_WEIGHTS, weights, weights_query, 0},
        {forward ? DNNL_ARG_DST : DNNL_ARG_DIFF_DST, dst, forward ? dnnl_query_dst_md : dnnl_query_diff_dst_md, 0},
        {by_weights ? DNNL_ARG_DIFF_BIAS : DNNL_ARG_BIAS, bias, weights_query, 1},
    };
    return ebb__cpu_set_primitive(kernel, pd, wires, r.bias != NULL ? 4 : 3);
}
