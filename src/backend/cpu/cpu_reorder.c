/* SPDX-License-Identifier: Apache-2.0
 *
 * From one layout to another: the steps that lowering puts where a kernel wants an operand otherwise. Weights
 * of a linear layer may be described with two dimensions on one side and four on the other (the image that they
 * look at); a row-major side is then seen with the other's dimensions.
 */
#include "backend/cpu/cpu_priv.h"

static int n_dims_of(const_dnnl_memory_desc_t md) {
    int n = 0;
    (void)dnnl_memory_desc_query(md, dnnl_query_ndims_s32, &n);
    return n;
}

/* Both sides with the same dimensions; *own_out is what was made for it (NULL: nothing), to be destroyed. */
static ebb_status match(const ebb_cpu_layout *src, const ebb_cpu_layout *dst, const_dnnl_memory_desc_t *src_out,
                        const_dnnl_memory_desc_t *dst_out, dnnl_memory_desc_t *own_out) {
    *src_out = src->md;
    *dst_out = dst->md;
    *own_out = NULL;
    if (n_dims_of(src->md) == n_dims_of(dst->md)) { return EBB_OK; }
    if (src->plain) {
        EBB_TRY(ebb__cpu_plain_like(dst->md, own_out));
        *src_out = *own_out;
    } else if (dst->plain) {
        EBB_TRY(ebb__cpu_plain_like(src->md, own_out));
        *dst_out = *own_out;
    } else {
        return ebb_fail(EBB_E_UNSUPPORTED, "cpu: reorder from %s to %s", src->name, dst->name);
    }
    return EBB_OK;
}

ebb_status ebb__cpu_make_reorder(ebb_cpu_device *device, const ebb_kernel_desc *desc, ebb_cpu_kernel *kernel) {
    for (uint32_t i = 0; i < 2; i++) {
        if (kernel->layout[i] != EBB_LAYOUT_ANY) { continue; }
        const ebb_operand *o = &desc->operand[i];
        EBB_TRY(ebb__cpu_layout_plain(&device->host.base, o->dtype, &o->shape, &kernel->layout[i]));
    }
    const ebb_cpu_layout *src = ebb__cpu_layout(device, kernel->layout[0]);
    const ebb_cpu_layout *dst = ebb__cpu_layout(device, kernel->layout[1]);
    if (src->md == NULL || dst->md == NULL) {
        return ebb_fail(EBB_E_UNSUPPORTED, "cpu: reorder from %s to %s", src->name, dst->name);
    }
    const_dnnl_memory_desc_t from = NULL, to = NULL;
    dnnl_memory_desc_t own = NULL;
    dnnl_primitive_desc_t pd = NULL;
    EBB_TRY(match(src, dst, &from, &to, &own));
    dnnl_status_t described =
        dnnl_reorder_primitive_desc_create(&pd, from, device->engine, to, device->engine, device->attr);
    ebb_status st = described == dnnl_success ? EBB_OK : ebb__cpu_fail(described, "reorder");
    if (st == EBB_OK) { st = ebb__cpu_add_arg(kernel, DNNL_ARG_FROM, 0, from); }
    if (st == EBB_OK) { st = ebb__cpu_add_arg(kernel, DNNL_ARG_TO, 1, to); }
    if (st == EBB_OK) {
        st = ebb__cpu_set_primitive(kernel, pd, NULL, 0);
    } else {
        (void)dnnl_primitive_desc_destroy(pd);
    }
    (void)dnnl_memory_desc_destroy(own);
    return st;
}
