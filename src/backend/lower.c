/* SPDX-License-Identifier: Apache-2.0
 *
 * Lowering: from a graph to a program on one device. It walks the operators once, in their order, asks the
 * backend for a kernel for each, and makes visible what that costs in bytes.
 *
 *  - Layouts. A kernel says in which layout it wants each operand. A value that lies otherwise gets a REORDER
 *    step and a second tensor, which later readers of that layout share. A parameter that no one has read yet
 *    has no layout: the first kernel that reads it decides, so that its persistent form needs no reorder there.
 *    An optimiser's state takes its parameter's layout.
 *  - Storage. A value's tensor is its own, but for views (RESHAPE of plain bytes is no step at all) and for
 *    results in place: when the kernel allows it, and nothing reads the operand's tensor afterwards.
 *  - Kernels are made once for equal descriptions, whatever the number of layers.
 *  - Feeds. By default they come first. With early feeds an input persists, and the step that copies it in stands near
 *    the end, where nothing reads the old batch any more: it brings the next iteration's (feed_place.c).
 *  - Sums. Where the backend wants it, a convolution's gradient and the ADD that adds it to another gradient are one
 *    step, which updates that other gradient in place. Nothing else may read it any more: see find_add, may_add_to.
 *
 * Near-linear: each op is touched once, and looks only at its operands and the updates after it.
 */
#include "backend/lower.h"

#define NO_TENSOR UINT32_MAX
#define NO_COPY UINT32_MAX
#define NO_OP UINT32_MAX

/* A value's content in another layout. */
typedef struct copy {
    ebb_layout layout;
    uint32_t tensor;
    uint32_t next; /* in lowering.copies */
} copy;

typedef struct kernel_entry {
    ebb_kernel_desc desc; /* operands in the bump */
    ebb_kernel *kernel;
    uint64_t hash;
} kernel_entry;

typedef struct lowering {
    ebb_lowered *low;
    ebb_device *device;
    const ebb_graph *graph;
    uint32_t *value_last_use;   /* [n_values]: op that reads it last; UINT32_MAX: beyond the iteration */
    uint32_t *first_copy;       /* [n_values]: chain into copies */
    uint32_t *marks;            /* [n_values]: of its tensor */
    EBB_VEC(uint32_t) last_use; /* [n_tensors]: the latest of its values' */
    EBB_VEC(copy) copies;
    kernel_entry *table; /* open addressing; cap a power of two */
    size_t table_cap, table_n;
    uint32_t merged;   /* the latest ADD that is part of an earlier step */
    uint32_t *feed_at; /* see ebb__place_feeds; NULL: feeds come first */
    /* of the op at hand */
    EBB_VEC(ebb_operand) operands;
    EBB_VEC(uint32_t) tensors;
} lowering;

/* ---- kernels, each once ------------------------------------------------------------------------ */

static uint64_t hash_desc(const ebb_kernel_desc *desc) {
    uint32_t head[5] = {(uint32_t)desc->kind, desc->n_in, desc->n_out, desc->n_inout, desc->choice};
    uint64_t h = ebb__hash(EBB_HASH_INIT, head, sizeof head);
    h = ebb__hash(h, &desc->attr, sizeof desc->attr);
    for (uint32_t i = 0; i < desc->n_in + desc->n_out + desc->n_inout; i++) {
        const ebb_operand *o = &desc->operand[i];
        uint32_t rest[4] = {(uint32_t)o->shape.n_dims, (uint32_t)o->dtype, o->opaque, o->layout};
        h = ebb__hash(h, o->shape.dims, sizeof o->shape.dims);
        h = ebb__hash(h, rest, sizeof rest);
    }
    return h;
}

static bool desc_equal(const ebb_kernel_desc *a, const ebb_kernel_desc *b) {
    if (a->kind != b->kind || a->n_in != b->n_in || a->n_out != b->n_out || a->n_inout != b->n_inout ||
        a->choice != b->choice || memcmp(&a->attr, &b->attr, sizeof a->attr) != 0) {
        return false;
    }
    for (uint32_t i = 0; i < a->n_in + a->n_out + a->n_inout; i++) {
        const ebb_operand *x = &a->operand[i], *y = &b->operand[i];
        if (x->dtype != y->dtype || x->opaque != y->opaque || x->layout != y->layout ||
            !ebb__shape_equal(&x->shape, &y->shape)) {
            return false;
        }
    }
    return true;
}

static ebb_status grow_table(lowering *lo) {
    size_t cap = lo->table_cap == 0 ? 256 : lo->table_cap * 2;
    kernel_entry *table = ebb__calloc(lo->low->mem, cap, sizeof *table);
    if (table == NULL) { return EBB_E_NO_MEMORY; }
    for (size_t i = 0; i < lo->table_cap; i++) {
        if (lo->table[i].kernel == NULL) { continue; }
        size_t at = lo->table[i].hash & (cap - 1);
        while (table[at].kernel != NULL) { at = (at + 1) & (cap - 1); }
        table[at] = lo->table[i];
    }
    ebb__free(lo->low->mem, lo->table);
    lo->table = table;
    lo->table_cap = cap;
    return EBB_OK;
}

static ebb_status find_kernel(lowering *lo, const ebb_kernel_desc *desc, ebb_kernel **kernel_out) {
    if (lo->table_n * 2 >= lo->table_cap) { EBB_TRY(grow_table(lo)); }
    uint64_t hash = hash_desc(desc);
    size_t at = hash & (lo->table_cap - 1);
    for (; lo->table[at].kernel != NULL; at = (at + 1) & (lo->table_cap - 1)) {
        if (lo->table[at].hash == hash && desc_equal(&lo->table[at].desc, desc)) {
            *kernel_out = lo->table[at].kernel;
            return EBB_OK;
        }
    }
    size_t n = desc->n_in + desc->n_out + desc->n_inout;
    ebb_operand *operands = ebb__bump_alloc(&lo->low->bump, n, sizeof *operands);
    if (operands == NULL) { return EBB_E_NO_MEMORY; }
    EBB_TRY(EBB_RESERVE(lo->low->mem, &lo->low->kernels, 1));
    ebb_kernel *kernel = NULL;
    EBB_TRY(lo->device->ops->kernel_create(lo->device, desc, &kernel));
    memcpy(operands, desc->operand, n * sizeof *operands);
    lo->table[at] = (kernel_entry){.desc = *desc, .kernel = kernel, .hash = hash};
    lo->table[at].desc.operand = operands;
    lo->table_n++;
    lo->low->kernels.data[lo->low->kernels.n++] = kernel;
    *kernel_out = kernel;
    return EBB_OK;
}

/* What measured times are filed under: the work, by names that are the same in every process. */
static uint64_t time_key(const lowering *lo, const ebb_kernel_desc *desc, const ebb_kernel *kernel) {
    const ebb_backend_ops *ops = lo->device->ops;
    const char *kind = ebb__op_name(desc->kind);
    uint64_t h = ebb__hash(EBB_HASH_INIT, ops->name, strlen(ops->name));
    h = ebb__hash(h, &lo->device->times_key, sizeof lo->device->times_key);
    h = ebb__hash(h, kind, strlen(kind));
    h = ebb__hash(h, &desc->attr, sizeof desc->attr);
    h = ebb__hash(h, &desc->choice, sizeof desc->choice);
    h = ebb__hash(h, kernel->algorithm, strlen(kernel->algorithm));
    for (uint32_t i = 0; i < desc->n_in + desc->n_out + desc->n_inout; i++) {
        const ebb_operand *o = &desc->operand[i];
        const char *layout = ops->layout_name(lo->device, kernel->layout[i]);
        h = ebb__hash(h, o->shape.dims, sizeof o->shape.dims);
        h = ebb__hash(h, &o->dtype, sizeof o->dtype);
        h = ebb__hash(h, layout, strlen(layout));
    }
    return h;
}

/* ---- tensors ----------------------------------------------------------------------------------- */

static ebb_role role_of(const ebb_value_info *info, ebb_phase phase) {
    switch (info->kind) {
    case EBB_VALUE_PARAMETER: return EBB_ROLE_PARAMETER;
    case EBB_VALUE_BUFFER: return EBB_ROLE_BUFFER;
    case EBB_VALUE_STATE: return EBB_ROLE_OPTIMIZER_STATE;
    case EBB_VALUE_GRADIENT: return EBB_ROLE_GRADIENT;
    case EBB_VALUE_INPUT: return EBB_ROLE_INPUT;
    case EBB_VALUE_TEMPORARY: break;
    }
    return phase == EBB_PHASE_FORWARD ? EBB_ROLE_ACTIVATION : EBB_ROLE_TEMP;
}

/* Add the tensor with the bytes that the layout takes. No tensor here is empty and none is a view, so the program's
 * index is the handle. */
static ebb_status add_tensor(lowering *lo, ebb_tensor tensor, ebb_layout layout, uint32_t *tensor_out) {
    tensor.size_bytes = lo->device->ops->layout_bytes(lo->device, layout);
    if (tensor.size_bytes == 0) {
        return ebb_fail(EBB_E_INTERNAL, "backend %s: '%s' has no bytes", lo->device->ops->name, tensor.name);
    }
    EBB_TRY(EBB_PUSH(lo->low->mem, &lo->last_use, 0));
    EBB_TRY(ebb_program_add_tensor(lo->low->program, &tensor, tensor_out));
    EBB_ASSERT(ebb_program_find_tensor(lo->low->program, *tensor_out) == *tensor_out);
    return EBB_OK;
}

static void extend_use(lowering *lo, uint32_t tensor, uint32_t last_use) {
    if (lo->last_use.data[tensor] < last_use) { lo->last_use.data[tensor] = last_use; }
}

/* Whether the value is an input of the iteration that the one before has copied in. */
static bool is_fed_early(const lowering *lo, ebb_value value) {
    return lo->feed_at != NULL && lo->graph->values.data[value].kind == EBB_VALUE_INPUT;
}

/* Give a value its tensor in a layout that is decided now. */
static ebb_status make_value(lowering *lo, ebb_value value, ebb_layout layout, ebb_phase phase) {
    const ebb_value_info *info = &lo->graph->values.data[value];
    ebb_lowered_value *at = &lo->low->values[value];
    uint32_t tensor = 0;
    const ebb_tensor made = {.name = info->name,
                             .role = role_of(info, phase),
                             .marks = lo->marks[value],
                             .persistent = ebb__value_is_persistent(info->kind) || is_fed_early(lo, value),
                             .kept = info->kept};
    EBB_TRY(add_tensor(lo, made, layout, &tensor));
    *at = (ebb_lowered_value){.tensor = tensor, .layout = layout};
    extend_use(lo, tensor, lo->value_last_use[value]);
    return EBB_OK;
}

/* The layout in which a persistent value will lie, as far as it is decided. */
static ebb_layout layout_of(const lowering *lo, ebb_value value) {
    const ebb_value_info *info = &lo->graph->values.data[value];
    const ebb_lowered_value *at = &lo->low->values[value];
    if (at->tensor != NO_TENSOR) { return at->layout; }
    if (info->kind == EBB_VALUE_STATE || info->kind == EBB_VALUE_GRADIENT) {
        return info->of != EBB_NO_VALUE ? lo->low->values[info->of].layout : EBB_LAYOUT_ANY;
    }
    return EBB_LAYOUT_ANY;
}

/* ---- steps ------------------------------------------------------------------------------------- */

/* Once the next batch is there, the one before it is gone: such a step cannot run again. */
static bool copies_in(const lowering *lo, const ebb_kernel_desc *desc) {
    return lo->feed_at != NULL && desc->kind == EBB_OP_FEED;
}

static ebb_status add_choices(lowering *lo, const ebb_kernel_desc *desc, ebb_kernel *first, ebb_kernel ***kernels_out,
                              ebb_choice **choices_out) {
    ebb_kernel **kernels = ebb__bump_alloc(&lo->low->bump, first->n_choices, sizeof(ebb_kernel *));
    ebb_choice *choices = ebb__bump_alloc(&lo->low->bump, first->n_choices, sizeof *choices);
    if (kernels == NULL || choices == NULL) { return EBB_E_NO_MEMORY; }
    for (uint32_t c = 0; c < first->n_choices; c++) {
        ebb_kernel_desc chosen = *desc;
        chosen.choice = c;
        kernels[c] = first;
        if (c > 0) { EBB_TRY(find_kernel(lo, &chosen, &kernels[c])); }
        choices[c] = (ebb_choice){.name = kernels[c]->algorithm,
                                  .scratch_bytes = kernels[c]->scratch_bytes,
                                  .key = time_key(lo, &chosen, kernels[c]),
                                  .flops = kernels[c]->flops,
                                  .traffic_bytes = kernels[c]->traffic_bytes,
                                  .copies_in = copies_in(lo, desc)};
    }
    *kernels_out = kernels;
    *choices_out = choices;
    return EBB_OK;
}

/* A step for desc over lo->tensors: in, out, inout. op: UINT32_MAX for a reorder. */
static ebb_status add_step(lowering *lo, uint32_t op, const ebb_kernel_desc *desc, ebb_kernel *kernel, const char *name,
                           ebb_phase phase) {
    ebb_lowered *low = lo->low;
    uint32_t n = desc->n_in + desc->n_out + desc->n_inout;
    uint32_t *operand = ebb__bump_alloc(&low->bump, n, sizeof *operand);
    uint64_t *bytes = ebb__bump_alloc(&low->bump, n, sizeof *bytes);
    ebb_access *accesses = ebb__bump_alloc(&low->bump, n, sizeof *accesses);
    if (operand == NULL || bytes == NULL || accesses == NULL) { return EBB_E_NO_MEMORY; }
    for (uint32_t i = 0; i < n; i++) {
        operand[i] = lo->tensors.data[i];
        bytes[i] = lo->device->ops->layout_bytes(lo->device, kernel->layout[i]);
        uint32_t mode = i < desc->n_in ? EBB_READ : i < desc->n_in + desc->n_out ? EBB_WRITE : EBB_UPDATE;
        accesses[i] = (ebb_access){.tensor = operand[i], .mode = mode};
    }
    ebb_lowered_step step = {.op = op, .n_operands = n, .operand = operand, .bytes = bytes};
    if (op != UINT32_MAX) { step.rng_stream = lo->graph->ops.data[op].rng_stream; }
    ebb_choice *choices = NULL;
    EBB_TRY(add_choices(lo, desc, kernel, &step.kernel, &choices));
    const ebb_step told = {.name = name,
                           .kind = ebb__op_name(desc->kind),
                           .phase = (uint32_t)phase,
                           .repeat = copies_in(lo, desc) ? EBB_REPEAT_NEVER : EBB_REPEAT_EXACT,
                           .n_accesses = n,
                           .n_choices = kernel->n_choices};
    EBB_TRY(ebb_program_add_step(low->program, &told, accesses, choices));
    return EBB_PUSH(low->mem, &low->steps, step);
}

/* A REORDER step from the value's own tensor into another layout, unless there is such a copy already. */
static ebb_status copy_in_layout(lowering *lo, ebb_value value, ebb_layout layout, uint32_t op, uint32_t *tensor_out) {
    for (uint32_t c = lo->first_copy[value]; c != NO_COPY; c = lo->copies.data[c].next) {
        if (lo->copies.data[c].layout == layout) {
            *tensor_out = lo->copies.data[c].tensor;
            return EBB_OK;
        }
    }
    const ebb_value_info *info = &lo->graph->values.data[value];
    const ebb_lowered_value *at = &lo->low->values[value];
    ebb_phase phase = lo->graph->ops.data[op].phase;
    ebb_operand operands[2] = {
        {.shape = info->shape, .dtype = info->dtype, .opaque = info->opaque, .layout = at->layout},
        {.shape = info->shape, .dtype = info->dtype, .opaque = info->opaque, .layout = layout}};
    ebb_kernel_desc desc = {.kind = EBB_OP_REORDER, .n_in = 1, .n_out = 1, .operand = operands};
    ebb_kernel *kernel = NULL;
    EBB_TRY(find_kernel(lo, &desc, &kernel));
    char *name = ebb__bump_printf(&lo->low->bump, "%s.reorder%u", info->name, layout);
    if (name == NULL) { return EBB_E_NO_MEMORY; }
    uint32_t tensor = 0;
    ebb_role role = ebb__value_is_persistent(info->kind) ? EBB_ROLE_TEMP : role_of(info, phase);
    EBB_TRY(add_tensor(lo, (ebb_tensor){.name = name, .role = role}, layout, &tensor));
    extend_use(lo, tensor, lo->value_last_use[value]); /* any later reader may want it */
    lo->tensors.n = 0;
    EBB_TRY(EBB_PUSH(lo->low->mem, &lo->tensors, at->tensor));
    EBB_TRY(EBB_PUSH(lo->low->mem, &lo->tensors, tensor));
    EBB_TRY(add_step(lo, UINT32_MAX, &desc, kernel, name, phase));
    EBB_TRY(EBB_PUSH(lo->low->mem, &lo->copies,
                     ((copy){.layout = layout, .tensor = tensor, .next = lo->first_copy[value]})));
    lo->first_copy[value] = (uint32_t)(lo->copies.n - 1);
    *tensor_out = tensor;
    return EBB_OK;
}

/* The tensor in which the op finds operand value in the layout that its kernel wants. */
static ebb_status input_tensor(lowering *lo, ebb_value value, ebb_layout want, uint32_t op, uint32_t *tensor_out) {
    ebb_lowered_value *at = &lo->low->values[value];
    if (at->tensor == NO_TENSOR) {
        if (!ebb__value_is_persistent(lo->graph->values.data[value].kind)) {
            return ebb_fail(EBB_E_INTERNAL, "graph %s: op %s reads '%s' before it is made", lo->graph->name,
                            lo->graph->ops.data[op].name, lo->graph->values.data[value].name);
        }
        EBB_TRY(make_value(lo, value, want, lo->graph->ops.data[op].phase));
    }
    if (at->layout != want) { return copy_in_layout(lo, value, want, op, tensor_out); }
    *tensor_out = at->tensor;
    return EBB_OK;
}

/* Whether output 0 may take over input i's tensor. */
static bool may_take_over(const lowering *lo, uint32_t op_idx, uint32_t i, const ebb_kernel *kernel,
                          const uint32_t *tensors) {
    const ebb_op *op = &lo->graph->ops.data[op_idx];
    const ebb_tensor *tensor = &lo->low->program->tensors.data[tensors[i]];
    uint64_t out_bytes = lo->device->ops->layout_bytes(lo->device, kernel->layout[op->n_in]);
    return (kernel->inplace >> i & 1u) != 0 && !tensor->persistent && !tensor->kept &&
           lo->last_use.data[tensors[i]] <= op_idx && tensor->size_bytes == out_bytes &&
           !lo->graph->values.data[op->out[0]].kept;
}

static ebb_status output_tensors(lowering *lo, uint32_t op_idx, const ebb_op *op, const ebb_kernel *kernel,
                                 uint32_t *tensors) {
    for (uint32_t o = 0; o < op->n_out; o++) {
        ebb_layout layout = kernel->layout[op->n_in + o];
        uint32_t taken = NO_TENSOR;
        if (is_fed_early(lo, op->out[o])) { /* it was made beforehand */
            tensors[op->n_in + o] = lo->low->values[op->out[o]].tensor;
            continue;
        }
        for (uint32_t i = 0; o == 0 && i < op->n_in && i < 32 && taken == NO_TENSOR; i++) {
            if (may_take_over(lo, op_idx, i, kernel, tensors)) { taken = tensors[i]; }
        }
        if (taken == NO_TENSOR) {
            EBB_TRY(make_value(lo, op->out[o], layout, op->phase));
        } else {
            lo->low->values[op->out[o]] = (ebb_lowered_value){.tensor = taken, .layout = layout};
            extend_use(lo, taken, lo->value_last_use[op->out[o]]);
        }
        tensors[op->n_in + o] = lo->low->values[op->out[o]].tensor;
    }
    return EBB_OK;
}

static ebb_status describe(lowering *lo, const ebb_op *op) {
    lo->operands.n = 0;
    const ebb_value *lists[3] = {op->in, op->out, op->inout};
    const uint32_t counts[3] = {op->n_in, op->n_out, op->n_inout};
    for (int l = 0; l < 3; l++) {
        for (uint32_t i = 0; i < counts[l]; i++) {
            const ebb_value_info *info = &lo->graph->values.data[lists[l][i]];
            ebb_operand operand = {.shape = info->shape,
                                   .dtype = info->dtype,
                                   .opaque = info->opaque,
                                   .layout = layout_of(lo, lists[l][i])};
            EBB_TRY(EBB_PUSH(lo->low->mem, &lo->operands, operand));
        }
    }
    return EBB_OK;
}

static ebb_kernel_desc describe_kernel(const lowering *lo, const ebb_op *op) {
    return (ebb_kernel_desc){.kind = op->kind,
                             .attr = op->attr,
                             .n_in = op->n_in,
                             .n_out = op->n_out,
                             .n_inout = op->n_inout,
                             .operand = lo->operands.data};
}

static ebb_status inout_tensors(lowering *lo, uint32_t op_idx, const ebb_op *op, const ebb_kernel *kernel,
                                uint32_t *tensors) {
    for (uint32_t i = 0; i < op->n_inout; i++) {
        uint32_t at = op->n_in + op->n_out + i;
        ebb_value value = op->inout[i];
        EBB_TRY(input_tensor(lo, value, kernel->layout[at], op_idx, &tensors[at]));
        if (tensors[at] != lo->low->values[value].tensor) {
            return ebb_fail(EBB_E_INTERNAL, "backend %s: %s wants '%s' changed in a layout that it is not in",
                            lo->device->ops->name, op->name, lo->graph->values.data[value].name);
        }
        lo->first_copy[value] = NO_COPY; /* copies made so far are of the old content */
    }
    return EBB_OK;
}

/* A reshape is a view of plain bytes. */
static ebb_status lower_reshape(lowering *lo, uint32_t op_idx) {
    const ebb_op *op = &lo->graph->ops.data[op_idx];
    const ebb_value_info *src = &lo->graph->values.data[op->in[0]];
    const ebb_value_info *dst = &lo->graph->values.data[op->out[0]];
    ebb_layout src_plain = 0, dst_plain = 0;
    EBB_TRY(lo->device->ops->layout_plain(lo->device, src->dtype, &src->shape, &src_plain));
    EBB_TRY(lo->device->ops->layout_plain(lo->device, dst->dtype, &dst->shape, &dst_plain));
    uint32_t tensor = 0;
    EBB_TRY(input_tensor(lo, op->in[0], src_plain, op_idx, &tensor));
    lo->low->values[op->out[0]] = (ebb_lowered_value){.tensor = tensor, .layout = dst_plain};
    extend_use(lo, tensor, lo->value_last_use[op->out[0]]);
    return EBB_OK;
}

/* A step for op, which is the operator at op_idx or stands for it. */
static ebb_status lower_as(lowering *lo, uint32_t op_idx, const ebb_op *op) {
    EBB_TRY(describe(lo, op));
    const ebb_kernel_desc desc = describe_kernel(lo, op);
    ebb_kernel *kernel = NULL;
    EBB_TRY(find_kernel(lo, &desc, &kernel));
    uint32_t n = op->n_in + op->n_out + op->n_inout;
    uint32_t *tensors = ebb__bump_alloc(&lo->low->bump, n, sizeof *tensors);
    if (tensors == NULL) { return EBB_E_NO_MEMORY; }
    for (uint32_t i = 0; i < op->n_in; i++) {
        EBB_TRY(input_tensor(lo, op->in[i], kernel->layout[i], op_idx, &tensors[i]));
    }
    EBB_TRY(inout_tensors(lo, op_idx, op, kernel, tensors));
    EBB_TRY(output_tensors(lo, op_idx, op, kernel, tensors));
    lo->tensors.n = 0;
    EBB_TRY(EBB_RESERVE(lo->low->mem, &lo->tensors, n));
    memcpy(lo->tensors.data, tensors, n * sizeof *tensors);
    lo->tensors.n = n;
    return add_step(lo, op_idx, &desc, kernel, op->name, op->phase);
}

/* ---- sums in place ------------------------------------------------------------------------------ */

/* Find the ADD that alone reads what op_idx makes. Only updates may stand between the two: they read finished gradients
 * of parameters, which no ADD changes. NO_OP: there is no such ADD. */
static uint32_t find_add(const lowering *lo, uint32_t op_idx) {
    const ebb_op *ops = lo->graph->ops.data;
    const ebb_value made = ops[op_idx].out[0];
    uint32_t at = op_idx + 1;
    while (at < lo->graph->ops.n && ops[at].kind == EBB_OP_UPDATE) { at++; }
    if (at >= lo->graph->ops.n || ops[at].kind != EBB_OP_ADD || ops[at].attr.relu != 0) { return NO_OP; }
    const bool reads = (ops[at].in[0] == made) != (ops[at].in[1] == made);
    return reads && lo->value_last_use[made] == at ? at : NO_OP;
}

/* Whether the step op may write the sum of add over its operand acc: it does not read acc itself, and nothing reads it
 * after add. */
static bool may_add_to(const lowering *lo, ebb_value acc, const ebb_op *op, uint32_t add) {
    const uint32_t tensor = lo->low->values[acc].tensor;
    if (tensor == NO_TENSOR || tensor == lo->low->values[op->in[0]].tensor) { return false; }
    const ebb_tensor *info = &lo->low->program->tensors.data[tensor];
    return !info->persistent && !info->kept && lo->last_use.data[tensor] <= add &&
           !lo->graph->values.data[lo->graph->ops.data[add].out[0]].kept;
}

/* Whether the backend wants the step, and changes the sum in the layout in which it is. */
static ebb_status is_wanted(lowering *lo, const ebb_op *op, bool *wanted_out) {
    ebb_kernel *kernel = NULL;
    EBB_TRY(describe(lo, op));
    const ebb_kernel_desc desc = describe_kernel(lo, op);
    EBB_TRY(lo->device->ops->merges(lo->device, &desc, wanted_out));
    if (!*wanted_out) { return EBB_OK; }
    EBB_TRY(find_kernel(lo, &desc, &kernel));
    *wanted_out = kernel->layout[op->n_in] == lo->low->values[op->inout[0]].layout;
    return EBB_OK;
}

/* A convolution's gradient and the ADD after it as one step, if that is allowed and wanted. */
static ebb_status lower_with_add(lowering *lo, uint32_t op_idx, bool *done_out) {
    const ebb_op *op = &lo->graph->ops.data[op_idx];
    *done_out = false;
    if (op->kind != EBB_OP_CONV_BWD_DATA || lo->device->ops->merges == NULL) { return EBB_OK; }
    const uint32_t add_idx = find_add(lo, op_idx);
    if (add_idx == NO_OP) { return EBB_OK; }
    const ebb_op *add = &lo->graph->ops.data[add_idx];
    ebb_value acc = add->in[add->in[0] == op->out[0]];
    if (!may_add_to(lo, acc, op, add_idx)) { return EBB_OK; }
    ebb_op both = *op;
    both.kind = EBB_OP_CONV_BWD_DATA_ADD;
    both.n_out = 0;
    both.n_inout = 1;
    both.inout = &acc;
    EBB_TRY(is_wanted(lo, &both, done_out));
    if (!*done_out) { return EBB_OK; }
    EBB_TRY(lower_as(lo, op_idx, &both));
    lo->low->values[add->out[0]] = lo->low->values[acc];
    extend_use(lo, lo->low->values[acc].tensor, lo->value_last_use[add->out[0]]);
    lo->merged = add_idx;
    return EBB_OK;
}

static ebb_status lower_op(lowering *lo, uint32_t op_idx) {
    const ebb_op *op = &lo->graph->ops.data[op_idx];
    bool done = op_idx == lo->merged;
    if (op->kind == EBB_OP_RESHAPE) { return lower_reshape(lo, op_idx); }
    if (!done) { EBB_TRY(lower_with_add(lo, op_idx, &done)); }
    return done ? EBB_OK : lower_as(lo, op_idx, op);
}

/* ---- early feeds -------------------------------------------------------------------------------- */

/* The tensor of an input, before anything reads it. */
static ebb_status make_input(lowering *lo, const ebb_op *op) {
    ebb_kernel *kernel = NULL;
    EBB_TRY(describe(lo, op));
    const ebb_kernel_desc desc = describe_kernel(lo, op);
    EBB_TRY(find_kernel(lo, &desc, &kernel));
    return make_value(lo, op->out[0], kernel->layout[0], op->phase);
}

/* The feeds that stand before op o. */
static ebb_status feed_before(lowering *lo, uint32_t o) {
    for (uint32_t f = 0; f < lo->graph->ops.n && lo->graph->ops.data[f].kind == EBB_OP_FEED; f++) {
        if (lo->feed_at[f] == o) { EBB_TRY(lower_as(lo, f, &lo->graph->ops.data[f])); }
    }
    return EBB_OK;
}

static ebb_status lower_ops(lowering *lo) {
    const uint32_t n = (uint32_t)lo->graph->ops.n;
    for (uint32_t o = 0; o < n; o++) {
        const ebb_op *op = &lo->graph->ops.data[o];
        if (lo->feed_at == NULL) {
            EBB_TRY(lower_op(lo, o));
        } else if (op->kind == EBB_OP_FEED) {
            EBB_TRY(make_input(lo, op));
        } else {
            EBB_TRY(feed_before(lo, o));
            EBB_TRY(lower_op(lo, o));
        }
    }
    return lo->feed_at != NULL ? feed_before(lo, n) : EBB_OK;
}

/* ---- the whole --------------------------------------------------------------------------------- */

/* Checkpoints are what is costly to make again, and what joins several values: the results of SuperNeurons' layers of
 * that kind. Convolutions compute for long. */
static ebb_status find_marks(lowering *lo) {
    lo->marks = ebb__calloc(lo->low->mem, lo->graph->values.n, sizeof *lo->marks);
    if (lo->marks == NULL) { return EBB_E_NO_MEMORY; }
    for (uint32_t o = 0; o < lo->graph->ops.n; o++) {
        const ebb_op *op = &lo->graph->ops.data[o];
        switch (op->phase == EBB_PHASE_FORWARD ? op->kind : EBB_N_OPS) {
        case EBB_OP_CONV: lo->marks[op->in[0]] |= EBB_MARK_LONG_READ; /* fall through */
        case EBB_OP_LINEAR:
        case EBB_OP_ADD:
        case EBB_OP_CONCAT:
        case EBB_OP_FEED: lo->marks[op->out[0]] |= EBB_MARK_CHECKPOINT; break;
        case EBB_OP_SOFTMAX_LOSS: lo->marks[op->out[1]] |= EBB_MARK_CHECKPOINT; break;
        default: break;
        }
    }
    return EBB_OK;
}

static ebb_status find_last_uses(lowering *lo) {
    const ebb_graph *graph = lo->graph;
    size_t n = graph->values.n;
    lo->value_last_use = ebb__calloc(lo->low->mem, n, sizeof *lo->value_last_use);
    lo->first_copy = ebb__alloc(lo->low->mem, n, sizeof *lo->first_copy);
    if (lo->value_last_use == NULL || lo->first_copy == NULL) { return EBB_E_NO_MEMORY; }
    for (size_t v = 0; v < n; v++) { lo->first_copy[v] = NO_COPY; }
    for (uint32_t o = 0; o < graph->ops.n; o++) {
        const ebb_op *op = &graph->ops.data[o];
        for (uint32_t i = 0; i < op->n_in; i++) { lo->value_last_use[op->in[i]] = o; }
    }
    for (size_t v = 0; v < n; v++) {
        const ebb_value_info *info = &graph->values.data[v];
        if (info->kept || ebb__value_is_persistent(info->kind) || is_fed_early(lo, (ebb_value)v)) {
            lo->value_last_use[v] = UINT32_MAX;
        }
    }
    return EBB_OK;
}

static ebb_status lower_all(lowering *lo) {
    ebb_lowered *low = lo->low;
    low->values = ebb__alloc(low->mem, lo->graph->values.n, sizeof *low->values);
    if (low->values == NULL) { return EBB_E_NO_MEMORY; }
    for (size_t v = 0; v < lo->graph->values.n; v++) {
        low->values[v] = (ebb_lowered_value){.tensor = NO_TENSOR, .layout = EBB_LAYOUT_ANY};
    }
    if (low->feeds_early) { EBB_TRY(ebb__place_feeds(lo->graph, &low->bump, &lo->feed_at)); }
    EBB_TRY(find_last_uses(lo));
    EBB_TRY(find_marks(lo));
    EBB_TRY(ebb_program_create(low->mem, lo->graph->name, lo->device->ops->alignment_bytes, &low->program));
    EBB_TRY(lower_ops(lo));
    return ebb_program_finish(low->program);
}

static ebb_status lower(ebb_graph *graph, ebb_device *device, bool feeds_early, ebb_lowered **lowered_out) {
    EBB_TRY(ebb_graph_check(graph));
    EBB_TRY(ebb__graph_simplify(graph));
    const ebb_mem *mem = graph->mem;
    lowering lo = {.device = device, .graph = graph, .merged = NO_OP};
    lo.low = ebb__calloc(mem, 1, sizeof *lo.low);
    if (lo.low == NULL) { return EBB_E_NO_MEMORY; }
    lo.low->mem = mem;
    lo.low->device = device;
    lo.low->graph = graph;
    lo.low->feeds_early = feeds_early;
    ebb__bump_init(&lo.low->bump, mem);
    ebb_status st = lower_all(&lo);
    ebb__free(mem, lo.value_last_use);
    ebb__free(mem, lo.first_copy);
    ebb__free(mem, lo.marks);
    ebb__free(mem, lo.table);
    EBB_VEC_FINI(mem, &lo.last_use);
    EBB_VEC_FINI(mem, &lo.copies);
    EBB_VEC_FINI(mem, &lo.operands);
    EBB_VEC_FINI(mem, &lo.tensors);
    if (st != EBB_OK) {
        ebb_lowered_destroy(lo.low);
        return st;
    }
    *lowered_out = lo.low;
    return EBB_OK;
}

ebb_status ebb_lower(ebb_graph *graph, ebb_device *device, ebb_lowered **lowered_out) {
    EBB_NEED(graph);
    EBB_NEED(device);
    EBB_NEED(lowered_out);
    return lower(graph, device, false, lowered_out);
}

ebb_status ebb_lower_fed_early(ebb_graph *graph, ebb_device *device, ebb_lowered **lowered_out) {
    EBB_NEED(graph);
    EBB_NEED(device);
    EBB_NEED(lowered_out);
    return lower(graph, device, true, lowered_out);
}

void ebb_lowered_destroy(ebb_lowered *lowered) {
    if (lowered == NULL) { return; }
    const ebb_mem *mem = lowered->mem;
    for (size_t k = 0; k < lowered->kernels.n; k++) { lowered->device->ops->kernel_destroy(lowered->kernels.data[k]); }
    EBB_VEC_FINI(mem, &lowered->kernels);
    EBB_VEC_FINI(mem, &lowered->steps);
    ebb__free(mem, lowered->values);
    ebb_program_destroy(lowered->program);
    ebb__bump_fini(&lowered->bump);
    ebb__free(mem, lowered);
}

const ebb_program *ebb_lowered_program(const ebb_lowered *lowered) {
    return lowered->program;
}
