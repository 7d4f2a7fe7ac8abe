/* SPDX-License-Identifier: Apache-2.0
 *
 * Layouts: oneDNN's memory descriptions, each kept once, so that equal ones have equal numbers; and pieces of
 * bytes that only our own kernels understand (batch-norm's mask). A network has few different ones, and kernels
 * are made once for equal shapes, so a linear search will do.
 */
#include "backend/cpu/cpu_priv.h"

#include <inttypes.h>

const ebb_cpu_layout *ebb__cpu_layout(const ebb_cpu_device *device, ebb_layout layout) {
    EBB_ASSERT(layout < device->layouts.n);
    return device->layouts.data[layout];
}

static void destroy_layout(const ebb_mem *mem, ebb_cpu_layout *layout) {
    if (layout == NULL) { return; }
    if (layout->md != NULL) { (void)dnnl_memory_desc_destroy(layout->md); }
    ebb__free(mem, layout);
}

void ebb__cpu_layouts_fini(ebb_cpu_device *device) {
    for (size_t i = 0; i < device->layouts.n; i++) { destroy_layout(device->host.base.mem, device->layouts.data[i]); }
    EBB_VEC_FINI(device->host.base.mem, &device->layouts);
}

static ebb_status describe(int n_dims, const int64_t *dims, ebb_dtype dtype, dnnl_format_tag_t tag,
                           dnnl_memory_desc_t *md_out) {
    static const dnnl_data_type_t types[EBB_N_DTYPES] = {
        [EBB_F32] = dnnl_f32, [EBB_BF16] = dnnl_bf16, [EBB_F16] = dnnl_f16, [EBB_S32] = dnnl_s32, [EBB_U8] = dnnl_u8};
    dnnl_dims_t all = {0}; /* the library's functions are declared to read as many as there may be */
    memcpy(all, dims, (size_t)n_dims * sizeof dims[0]);
    EBB_CPU_DNNL(dnnl_memory_desc_create_with_tag(md_out, n_dims, all, types[dtype], tag), "a layout");
    return EBB_OK;
}

ebb_status ebb__cpu_describe(int n_dims, const int64_t *dims, dnnl_format_tag_t tag, dnnl_memory_desc_t *md_out) {
    return describe(n_dims, dims, EBB_F32, tag, md_out);
}

dnnl_format_tag_t ebb__cpu_blocked_tag(const ebb_cpu_device *device) {
    return device->block == 16 ? dnnl_nChw16c : dnnl_nChw8c;
}

dnnl_format_tag_t ebb__cpu_plain_tag(int n_dims) {
    static const dnnl_format_tag_t tags[] = {dnnl_a, dnnl_ab, dnnl_abc, dnnl_abcd, dnnl_abcde};
    EBB_ASSERT(n_dims >= 1 && n_dims <= 5);
    return tags[n_dims - 1];
}

/* ---- what a description says ------------------------------------------------------------------- */

typedef struct md_view {
    int n_dims, n_blocks;
    const dnnl_dims_t *dims, *padded, *strides, *block, *block_dim;
} md_view;

/* false: not a blocked format, so only oneDNN knows where what lies. */
static bool look(const_dnnl_memory_desc_t md, md_view *view_out) {
    dnnl_format_kind_t kind = dnnl_format_kind_undef;
    md_view v = {0};
    if (dnnl_memory_desc_query(md, dnnl_query_format_kind, &kind) != dnnl_success || kind != dnnl_blocked ||
        dnnl_memory_desc_query(md, dnnl_query_ndims_s32, &v.n_dims) != dnnl_success ||
        dnnl_memory_desc_query(md, dnnl_query_dims, (void *)&v.dims) != dnnl_success ||
        dnnl_memory_desc_query(md, dnnl_query_padded_dims, (void *)&v.padded) != dnnl_success ||
        dnnl_memory_desc_query(md, dnnl_query_strides, (void *)&v.strides) != dnnl_success ||
        dnnl_memory_desc_query(md, dnnl_query_inner_nblks_s32, &v.n_blocks) != dnnl_success ||
        dnnl_memory_desc_query(md, dnnl_query_inner_blks, (void *)&v.block) != dnnl_success ||
        dnnl_memory_desc_query(md, dnnl_query_inner_idxs, (void *)&v.block_dim) != dnnl_success) {
        return false;
    }
    *view_out = v;
    return true;
}

static bool is_plain(const md_view *v) {
    dnnl_dim_t stride = 1;
    if (v->n_blocks != 0) { return false; }
    for (int d = v->n_dims - 1; d >= 0; d--) {
        if ((*v->padded)[d] != (*v->dims)[d]) { return false; }
        if ((*v->dims)[d] != 1 && (*v->strides)[d] != stride) { return false; }
        stride *= (*v->dims)[d];
    }
    return true;
}

/* Dimensions from the outermost in, by stride. */
static void order_dims(const md_view *v, int order[DNNL_MAX_NDIMS]) {
    for (int d = 0; d < v->n_dims; d++) { order[d] = d; }
    for (int i = 1; i < v->n_dims; i++) {
        for (int j = i; j > 0 && (*v->strides)[order[j]] > (*v->strides)[order[j - 1]]; j--) {
            int t = order[j];
            order[j] = order[j - 1];
            order[j - 1] = t;
        }
    }
}

static ebb_cpu_rows find_rows(const md_view *v, bool plain) {
    const dnnl_dim_t *dims = *v->dims, *strides = *v->strides;
    ebb_cpu_rows rows = {.n_images = dims[0], .n_blocks = 1, .n_rows = 1, .channels = v->n_dims > 1 ? dims[1] : 0};
    if (v->n_dims == 2 && plain) {
        rows.width = dims[1];
        return rows;
    }
    if (v->n_dims != 4) { return (ebb_cpu_rows){0}; }
    rows.n_rows = dims[2] * dims[3];
    if (v->n_blocks == 1 && (*v->block_dim)[0] == 1) {
        rows.width = (*v->block)[0];
        rows.n_blocks = (*v->padded)[1] / rows.width;
    } else if (v->n_blocks == 0) {
        rows.width = dims[1];
    }
    const dnnl_dim_t width = rows.width, block_stride = rows.n_rows * width;
    bool ok = width > 0 && (dims[3] == 1 || strides[3] == width) && (dims[2] == 1 || strides[2] == width * dims[3]) &&
              (dims[0] == 1 || strides[0] == block_stride * rows.n_blocks) &&
              (v->n_blocks == 0 ? dims[1] == 1 || strides[1] == 1 : rows.n_blocks == 1 || strides[1] == block_stride);
    return ok ? rows : (ebb_cpu_rows){0};
}

/* As oneDNN's own names go: dimensions from the outermost in, then blocks: "abcd", "aBcd16b". */
static void name_layout(const md_view *v, char *name, size_t name_bytes) {
    int order[DNNL_MAX_NDIMS] = {0};
    order_dims(v, order);
    size_t at = 0;
    for (int d = 0; d < v->n_dims && at + 1 < name_bytes; d++) {
        bool blocked = false;
        for (int b = 0; b < v->n_blocks; b++) { blocked = blocked || (*v->block_dim)[b] == order[d]; }
        name[at++] = (char)((blocked ? 'A' : 'a') + order[d]);
    }
    for (int b = 0; b < v->n_blocks && at < name_bytes; b++) {
        int n = snprintf(name + at, name_bytes - at, "%d%c", (int)(*v->block)[b], 'a' + (char)(*v->block_dim)[b]);
        at += n > 0 ? (size_t)n : 0;
    }
    name[at < name_bytes ? at : name_bytes - 1] = '\0';
}

/* ---- interning --------------------------------------------------------------------------------- */

static ebb_status push_layout(ebb_cpu_device *device, ebb_cpu_layout *layout, ebb_layout *layout_out) {
    ebb_status st = EBB_PUSH(device->host.base.mem, &device->layouts, layout);
    if (st != EBB_OK) {
        destroy_layout(device->host.base.mem, layout);
        return st;
    }
    *layout_out = (ebb_layout)(device->layouts.n - 1);
    return EBB_OK;
}

ebb_status ebb__cpu_intern(ebb_cpu_device *device, const_dnnl_memory_desc_t md, ebb_layout *layout_out) {
    for (size_t i = 0; i < device->layouts.n; i++) {
        const ebb_cpu_layout *known = device->layouts.data[i];
        if (known->md != NULL && dnnl_memory_desc_equal(known->md, md)) {
            *layout_out = (ebb_layout)i;
            return EBB_OK;
        }
    }
    ebb_cpu_layout *layout = ebb__calloc(device->host.base.mem, 1, sizeof *layout);
    if (layout == NULL) { return EBB_E_NO_MEMORY; }
    dnnl_status_t cloned = dnnl_memory_desc_clone(&layout->md, md);
    if (cloned != dnnl_success) {
        ebb__free(device->host.base.mem, layout);
        return ebb__cpu_fail(cloned, "a layout");
    }
    layout->size_bytes = dnnl_memory_desc_get_size(md);
    md_view view;
    if (look(layout->md, &view)) {
        layout->plain = is_plain(&view);
        layout->rows = find_rows(&view, layout->plain);
        name_layout(&view, layout->name, sizeof layout->name);
    } else {
        (void)snprintf(layout->name, sizeof layout->name, "onednn%" PRIu64, layout->size_bytes);
    }
    return push_layout(device, layout, layout_out);
}

ebb_status ebb__cpu_intern_bytes(ebb_cpu_device *device, uint64_t size_bytes, ebb_layout *layout_out) {
    for (size_t i = 0; i < device->layouts.n; i++) {
        if (device->layouts.data[i]->md == NULL && device->layouts.data[i]->size_bytes == size_bytes) {
            *layout_out = (ebb_layout)i;
            return EBB_OK;
        }
    }
    ebb_cpu_layout *layout = ebb__calloc(device->host.base.mem, 1, sizeof *layout);
    if (layout == NULL) { return EBB_E_NO_MEMORY; }
    layout->size_bytes = size_bytes;
    (void)snprintf(layout->name, sizeof layout->name, "bytes%" PRIu64, size_bytes);
    return push_layout(device, layout, layout_out);
}

static ebb_status intern_tag(ebb_cpu_device *device, const ebb_shape *shape, ebb_dtype dtype, dnnl_format_tag_t tag,
                             ebb_layout *layout_out) {
    dnnl_memory_desc_t md = NULL;
    EBB_TRY(describe(shape->n_dims, shape->dims, dtype, tag, &md));
    ebb_status st = ebb__cpu_intern(device, md, layout_out);
    (void)dnnl_memory_desc_destroy(md);
    return st;
}

ebb_status ebb__cpu_intern_tag(ebb_cpu_device *device, const ebb_shape *shape, dnnl_format_tag_t tag,
                               ebb_layout *layout_out) {
    return intern_tag(device, shape, EBB_F32, tag, layout_out);
}

ebb_status ebb__cpu_rows_layout(ebb_cpu_device *device, const ebb_operand *operand, ebb_layout *layout_out) {
    const ebb_shape *s = &operand->shape;
    const ebb_layout given = operand->layout;
    if (given != EBB_LAYOUT_ANY && ebb__cpu_layout(device, given)->rows.width > 0) {
        *layout_out = given;
        return EBB_OK;
    }
    if (s->n_dims == 2) { return ebb__cpu_intern_tag(device, s, dnnl_ab, layout_out); }
    if (s->n_dims != 4) { return ebb_fail(EBB_E_UNSUPPORTED, "cpu: channels of %d dimensions", (int)s->n_dims); }
    bool blocks = s->dims[1] % device->block == 0;
    return ebb__cpu_intern_tag(device, s, blocks ? ebb__cpu_blocked_tag(device) : dnnl_nhwc, layout_out);
}

/* ---- the host's view --------------------------------------------------------------------------- */

ebb_status ebb__cpu_plain_like(const_dnnl_memory_desc_t md, dnnl_memory_desc_t *md_out) {
    int n_dims = 0;
    const dnnl_dims_t *dims = NULL;
    dnnl_data_type_t type = dnnl_data_type_undef;
    EBB_CPU_DNNL(dnnl_memory_desc_query(md, dnnl_query_ndims_s32, &n_dims), "a layout");
    EBB_CPU_DNNL(dnnl_memory_desc_query(md, dnnl_query_dims, (void *)&dims), "a layout");
    EBB_CPU_DNNL(dnnl_memory_desc_query(md, dnnl_query_data_type, &type), "a layout");
    EBB_CPU_DNNL(dnnl_memory_desc_create_with_tag(md_out, n_dims, *dims, type, ebb__cpu_plain_tag(n_dims)), "a layout");
    return EBB_OK;
}

ebb_status ebb__cpu_reorder_now(ebb_cpu_device *device, const_dnnl_memory_desc_t src_md, const void *src,
                                const_dnnl_memory_desc_t dst_md, void *dst) {
    dnnl_primitive_desc_t pd = NULL;
    dnnl_primitive_t primitive = NULL;
    dnnl_memory_t from = NULL, to = NULL;
    ebb_cpu_before before = ebb__cpu_enter(device);
    dnnl_status_t st = dnnl_reorder_primitive_desc_create(&pd, src_md, device->engine, dst_md, device->engine, NULL);
    if (st == dnnl_success) { st = dnnl_primitive_create(&primitive, pd); }
    /* oneDNN has one type for memory that is read and that is written. */
    if (st == dnnl_success) { st = dnnl_memory_create(&from, src_md, device->engine, (void *)(uintptr_t)src); }
    if (st == dnnl_success) { st = dnnl_memory_create(&to, dst_md, device->engine, dst); }
    if (st == dnnl_success) {
        const dnnl_exec_arg_t args[2] = {{DNNL_ARG_FROM, from}, {DNNL_ARG_TO, to}};
        st = dnnl_primitive_execute(primitive, device->stream, 2, args);
    }
    ebb__cpu_leave(&before);
    (void)dnnl_memory_destroy(to);
    (void)dnnl_memory_destroy(from);
    (void)dnnl_primitive_destroy(primitive);
    (void)dnnl_primitive_desc_destroy(pd);
    return st == dnnl_success ? EBB_OK : ebb__cpu_fail(st, "a reorder");
}

/* ---- table entries ----------------------------------------------------------------------------- */

ebb_status ebb__cpu_layout_plain(ebb_device *device, ebb_dtype dtype, const ebb_shape *shape, ebb_layout *layout_out) {
    return intern_tag((ebb_cpu_device *)device, shape, dtype, ebb__cpu_plain_tag(shape->n_dims), layout_out);
}

uint64_t ebb__cpu_layout_bytes(const ebb_device *device, ebb_layout layout) {
    return ebb__cpu_layout((const ebb_cpu_device *)device, layout)->size_bytes;
}

const char *ebb__cpu_layout_name(const ebb_device *device, ebb_layout layout) {
    return ebb__cpu_layout((const ebb_cpu_device *)device, layout)->name;
}

static ebb_status convert(ebb_cpu_device *device, ebb_layout layout, bool pack, const void *src, void *dst) {
    const ebb_cpu_layout *l = ebb__cpu_layout(device, layout);
    if (l->plain || l->md == NULL) {
        memcpy(dst, src, l->size_bytes);
        return EBB_OK;
    }
    dnnl_memory_desc_t plain = NULL;
    EBB_TRY(ebb__cpu_plain_like(l->md, &plain));
    ebb_status st = pack ? ebb__cpu_reorder_now(device, plain, src, l->md, dst)
                         : ebb__cpu_reorder_now(device, l->md, src, plain, dst);
    (void)dnnl_memory_desc_destroy(plain);
    return st;
}

ebb_status ebb__cpu_layout_pack(ebb_device *device, ebb_layout layout, const void *plain, void *packed) {
    return convert((ebb_cpu_device *)device, layout, true, plain, packed);
}

ebb_status ebb__cpu_layout_unpack(ebb_device *device, ebb_layout layout, const void *packed, void *plain) {
    return convert((ebb_cpu_device *)device, layout, false, packed, plain);
}
