/* SPDX-License-Identifier: Apache-2.0
 *
 * Batch data in, results out: copies between an operand and the host memory of a port.
 */
#include "backend/ref/ref.h"

static size_t operand_bytes(const ebb_operand *operand) {
    return (size_t)ebb__shape_elements(&operand->shape) * (size_t)ebb_dtype_bytes(operand->dtype);
}

static ebb_status fail_port(const ebb_ref_call *call) {
    return ebb_fail(EBB_E_ARGUMENT, "port %d has no host memory", (int)call->desc->attr.port);
}

ebb_status ebb__ref_feed(const ebb_ref_call *call) {
    const void *host = call->state->port[call->desc->attr.port];
    if (host == NULL) { return fail_port(call); }
    memcpy(ebb__ref_out(call, 0), host, operand_bytes(ebb__kernel_out(call->desc, 0)));
    return EBB_OK;
}

ebb_status ebb__ref_fetch(const ebb_ref_call *call) {
    void *host = call->state->port[call->desc->attr.port];
    if (host == NULL) { return fail_port(call); }
    memcpy(host, ebb__ref_in(call, 0), operand_bytes(ebb__kernel_in(call->desc, 0)));
    return EBB_OK;
}
