/* SPDX-License-Identifier: Apache-2.0
 *
 * Paper accounting: the program of a network as SuperNeurons counts it (Wang et al., PPoPP 2018, sections 3 and 4.1;
 * the backward needs of each layer are those of the authors' code). It makes the figures of that paper comparable to
 * the byte. Nothing computes it: it has no kernels.
 *
 * Each layer is one step forward and one step backward, and has one tensor forward, its output, and one backward, the
 * gradient of its input. Parameters, their gradients, images, workspaces, dropout's masks and batch-norm's statistics
 * are not there. A value that several layers read goes through a layer of its own, a fork, which copies it once for
 * each.
 *
 *   layer              backward touches        the gradient of its input
 *   conv, linear       x, dy                   new; of the images too
 *   relu, lrn          x, y, dy                in place of dy
 *   pools              x, y, dy                new
 *   batch-norm         x, dy                   new
 *   dropout            dy                      new
 *   softmax and loss   x, y                    in place of y
 *   fork               every dy                the sum, in place of the first
 *   add                dy                      of the first input dy itself, of the second a copy
 *   concat             dy                      new, one for each input
 *   reshape            is no layer: its output is its input
 *
 * Marked as checkpoints are the outputs of conv, linear, add, concat, fork and the loss; as read for long, the inputs
 * of convolutions.
 *
 * Times are estimated from the work of the operators: twice the forward work for the backward of conv and linear.
 * Linear in operators.
 */
#include "backend/work.h"
#include "ebb/device.h"
#include "graph/graph.h"
#include "program/program.h"

#include <inttypes.h>

#define NO_TENSOR UINT32_MAX
#define ALIGNMENT_BYTES 1u /* the paper adds up bytes as they are */

/* A tensor for each reader of a value, in the order of the readers. */
typedef struct outlets {
    uint32_t first, n; /* in paper.outlets */
    uint32_t n_taken;
} outlets;

typedef struct layer {
    uint32_t op; /* of the graph; of a fork: the one that made what it copies */
    bool is_fork;
    uint32_t first_in, n_in; /* tensors in paper.ins; NO_TENSOR: the images */
    uint32_t out;            /* its tensor; of a fork the first of n_out in paper.outlets */
    uint32_t n_out;
} layer;

typedef struct paper {
    const ebb_graph *graph;
    const ebb_mem *mem;
    ebb_program *program;
    ebb_bump bump;
    ebb_value *source;                         /* [n_values]: the value itself, or what it is a reshape of */
    uint32_t *n_readers;                       /* [n_values]: layers that read it, forward */
    bool *read_long;                           /* [n_values] */
    outlets *of_value;                         /* [n_values] */
    EBB_VEC(uint32_t) outlets, ins, gradients; /* gradients: of each tensor, or NO_TENSOR */
    EBB_VEC(layer) layers;
    EBB_VEC(ebb_access) accesses; /* of the step at hand */
} paper;

static const ebb_op *op_of(const paper *p, const layer *it) {
    return &p->graph->ops.data[it->op];
}

static const ebb_value_info *info_of(const paper *p, ebb_value value) {
    return &p->graph->values.data[value];
}

static uint64_t bytes_of(const ebb_value_info *info) {
    return (uint64_t)ebb__shape_elements(&info->shape) * ebb_dtype_bytes(info->dtype);
}

/* How many of its operands are what earlier layers made: the rest are parameters and labels. */
static uint32_t n_sources(const ebb_op *op) {
    switch (op->kind) {
    case EBB_OP_ADD:
    case EBB_OP_CONCAT: return op->n_in;
    default: return 1;
    }
}

static bool is_layer(ebb_op_kind kind) {
    switch (kind) {
    case EBB_OP_CONV:
    case EBB_OP_LINEAR:
    case EBB_OP_BATCH_NORM:
    case EBB_OP_RELU:
    case EBB_OP_MAX_POOL:
    case EBB_OP_AVG_POOL:
    case EBB_OP_LRN:
    case EBB_OP_DROPOUT:
    case EBB_OP_ADD:
    case EBB_OP_CONCAT:
    case EBB_OP_SOFTMAX_LOSS: return true;
    default: return false;
    }
}

/* The operators that move data between host and device, and the running statistics, are not counted. */
static bool is_left_out(ebb_op_kind kind) {
    return kind == EBB_OP_FEED || kind == EBB_OP_FETCH || kind == EBB_OP_BATCH_NORM_STATS || kind == EBB_OP_RESHAPE;
}

static bool is_checkpoint(ebb_op_kind kind) {
    return kind == EBB_OP_CONV || kind == EBB_OP_LINEAR || kind == EBB_OP_ADD || kind == EBB_OP_CONCAT ||
           kind == EBB_OP_SOFTMAX_LOSS;
}

/* The loss is the paper's SOFTMAX; its output is the probabilities. */
static ebb_value output_of(const ebb_op *op) {
    return op->out[op->kind == EBB_OP_SOFTMAX_LOSS ? 1 : 0];
}

/* ---- tensors and steps -------------------------------------------------------------------------- */

static ebb_status add_tensor(paper *p, const char *name, uint64_t size_bytes, ebb_role role, uint32_t marks,
                             uint32_t *tensor_out) {
    const ebb_tensor tensor = {.name = name, .size_bytes = size_bytes, .role = role, .marks = marks};
    if (name == NULL) { return EBB_E_NO_MEMORY; }
    EBB_TRY(EBB_PUSH(p->mem, &p->gradients, NO_TENSOR));
    return ebb_program_add_tensor(p->program, &tensor, tensor_out);
}

/* The images are not there. */
static ebb_status add_access(paper *p, uint32_t tensor, uint32_t mode) {
    if (tensor == NO_TENSOR) { return EBB_OK; }
    return EBB_PUSH(p->mem, &p->accesses, ((ebb_access){.tensor = tensor, .mode = mode}));
}

static double traffic_of(const paper *p) {
    double bytes = 0;
    for (size_t i = 0; i < p->accesses.n; i++) {
        const double once = (double)p->program->tensors.data[p->accesses.data[i].tensor].size_bytes;
        bytes += p->accesses.data[i].mode == EBB_UPDATE ? 2 * once : once;
    }
    return bytes;
}

static double parameter_bytes(const paper *p, const ebb_op *op) {
    double bytes = 0;
    for (uint32_t i = 0; i < op->n_in; i++) {
        const ebb_value_info *info = info_of(p, op->in[i]);
        bytes += ebb__value_is_persistent(info->kind) ? (double)bytes_of(info) : 0;
    }
    return bytes;
}

/* The operations of an operator, by its operands' shapes. */
static ebb_status flops_of(const paper *p, const ebb_op *op, double *flops_out) {
    const uint32_t n = op->n_in + op->n_out;
    ebb_operand *operand = ebb__calloc(p->mem, n, sizeof *operand);
    if (operand == NULL) { return EBB_E_NO_MEMORY; }
    for (uint32_t i = 0; i < n; i++) {
        const ebb_value_info *info = info_of(p, i < op->n_in ? op->in[i] : op->out[i - op->n_in]);
        operand[i] = (ebb_operand){.shape = info->shape, .dtype = info->dtype};
    }
    const ebb_kernel_desc desc = {
        .kind = op->kind, .attr = op->attr, .n_in = op->n_in, .n_out = op->n_out, .operand = operand};
    *flops_out = ebb__work_flops(&desc);
    ebb__free(p->mem, operand);
    return EBB_OK;
}

/* The step over the accesses at hand. */
static ebb_status add_step(paper *p, const layer *it, ebb_phase phase) {
    const ebb_op *op = op_of(p, it);
    const bool is_back = phase == EBB_PHASE_BACKWARD, has_parameters = !it->is_fork && parameter_bytes(p, op) > 0;
    const char *kind = it->is_fork ? "fork" : ebb__op_name(op->kind);
    const char *name =
        ebb__bump_printf(&p->bump, "%s%s%s", op->name, it->is_fork ? ".fork" : "", is_back ? ".bwd" : "");
    char *kind_name = ebb__bump_printf(&p->bump, "%s%s", kind, is_back ? "_bwd" : "");
    ebb_choice choice = {.name = "paper", .traffic_bytes = traffic_of(p)};
    if (name == NULL || kind_name == NULL) { return EBB_E_NO_MEMORY; }
    if (!it->is_fork) {
        const double passes = is_back && has_parameters ? 2 : 1;
        EBB_TRY(flops_of(p, op, &choice.flops));
        choice.flops *= passes;
        choice.traffic_bytes += passes * parameter_bytes(p, op);
    }
    const ebb_step step = {.name = name,
                           .kind = kind_name,
                           .phase = (uint32_t)phase,
                           .n_accesses = (uint32_t)p->accesses.n,
                           .n_choices = 1};
    choice.key = ebb__hash(EBB_HASH_INIT, kind_name, strlen(kind_name));
    choice.key = ebb__hash(choice.key, &choice.flops, sizeof choice.flops);
    choice.key = ebb__hash(choice.key, &choice.traffic_bytes, sizeof choice.traffic_bytes);
    const ebb_status status = ebb_program_add_step(p->program, &step, p->accesses.data, &choice);
    p->accesses.n = 0;
    return status;
}

/* ---- forward ------------------------------------------------------------------------------------ */

static ebb_status check_op(const paper *p, const ebb_op *op) {
    if (is_left_out(op->kind)) { return EBB_OK; }
    if (!is_layer(op->kind) || op->attr.relu != 0) {
        return ebb_fail(EBB_E_UNSUPPORTED, "network %s: paper accounting does not know what %s '%s' keeps",
                        p->graph->name, ebb__op_name(op->kind), op->name);
    }
    return EBB_OK;
}

static ebb_status find_readers(paper *p) {
    const size_t n = p->graph->values.n;
    p->source = ebb__bump_alloc(&p->bump, n, sizeof *p->source);
    p->n_readers = ebb__bump_alloc(&p->bump, n, sizeof *p->n_readers);
    p->read_long = ebb__bump_alloc(&p->bump, n, sizeof *p->read_long);
    p->of_value = ebb__bump_alloc(&p->bump, n, sizeof *p->of_value);
    if (p->source == NULL || p->n_readers == NULL || p->read_long == NULL || p->of_value == NULL) {
        return EBB_E_NO_MEMORY;
    }
    for (ebb_value v = 0; v < n; v++) {
        p->source[v] = v;
        p->n_readers[v] = 0;
        p->read_long[v] = false;
        p->of_value[v] = (outlets){0};
    }
    for (size_t i = 0; i < p->graph->ops.n; i++) {
        const ebb_op *op = &p->graph->ops.data[i];
        EBB_TRY(check_op(p, op));
        if (op->kind == EBB_OP_RESHAPE) { p->source[op->out[0]] = p->source[op->in[0]]; }
        if (!is_layer(op->kind)) { continue; }
        for (uint32_t k = 0; k < n_sources(op); k++) {
            const ebb_value from = p->source[op->in[k]];
            p->n_readers[from]++;
            p->read_long[from] = p->read_long[from] || op->kind == EBB_OP_CONV;
        }
    }
    return EBB_OK;
}

static ebb_status add_fork(paper *p, uint32_t op, ebb_value value, uint32_t from) {
    const char *made = p->graph->ops.data[op].name;
    layer fork = {.op = op, .is_fork = true, .n_in = 1, .n_out = p->n_readers[value]};
    fork.first_in = (uint32_t)p->ins.n;
    fork.out = (uint32_t)p->outlets.n;
    EBB_TRY(EBB_PUSH(p->mem, &p->ins, from));
    EBB_TRY(add_access(p, from, EBB_READ));
    for (uint32_t i = 0; i < fork.n_out; i++) {
        const uint32_t marks = EBB_MARK_CHECKPOINT | (p->read_long[value] ? EBB_MARK_LONG_READ : 0u);
        uint32_t copy = 0;
        EBB_TRY(add_tensor(p, ebb__bump_printf(&p->bump, "%s.fork%" PRIu32, made, i), bytes_of(info_of(p, value)),
                           EBB_ROLE_ACTIVATION, marks, &copy));
        EBB_TRY(EBB_PUSH(p->mem, &p->outlets, copy));
        EBB_TRY(add_access(p, copy, EBB_WRITE));
    }
    p->of_value[value] = (outlets){.first = fork.out, .n = fork.n_out};
    EBB_TRY(EBB_PUSH(p->mem, &p->layers, fork));
    return add_step(p, &fork, EBB_PHASE_FORWARD);
}

static ebb_status add_layer(paper *p, uint32_t op_idx) {
    const ebb_op *op = &p->graph->ops.data[op_idx];
    const ebb_value made = output_of(op);
    const bool forks = p->n_readers[made] > 1;
    layer it = {.op = op_idx, .first_in = (uint32_t)p->ins.n, .n_in = n_sources(op), .n_out = 1};
    for (uint32_t i = 0; i < it.n_in; i++) {
        outlets *from = &p->of_value[p->source[op->in[i]]];
        const uint32_t tensor = from->n == 0 ? NO_TENSOR : p->outlets.data[from->first + from->n_taken];
        from->n_taken += from->n_taken + 1 < from->n;
        EBB_TRY(EBB_PUSH(p->mem, &p->ins, tensor));
        EBB_TRY(add_access(p, tensor, EBB_READ));
    }
    const uint32_t marks =
        (is_checkpoint(op->kind) ? EBB_MARK_CHECKPOINT : 0u) | (p->read_long[made] && !forks ? EBB_MARK_LONG_READ : 0u);
    EBB_TRY(add_tensor(p, op->name, bytes_of(info_of(p, made)), EBB_ROLE_ACTIVATION, marks, &it.out));
    EBB_TRY(add_access(p, it.out, EBB_WRITE));
    EBB_TRY(EBB_PUSH(p->mem, &p->layers, it));
    EBB_TRY(add_step(p, &it, EBB_PHASE_FORWARD));
    if (forks) { return add_fork(p, op_idx, made, it.out); }
    p->of_value[made] = (outlets){.first = (uint32_t)p->outlets.n, .n = 1};
    return EBB_PUSH(p->mem, &p->outlets, it.out);
}

/* ---- backward ----------------------------------------------------------------------------------- */

/* A new tensor for the gradient of input i. */
static ebb_status make_gradient(paper *p, const layer *it, uint32_t i, uint32_t *gradient_out) {
    const ebb_op *op = op_of(p, it);
    const char *name = it->n_in == 1 ? ebb__bump_printf(&p->bump, "%s.grad", op->name)
                                     : ebb__bump_printf(&p->bump, "%s.grad%" PRIu32, op->name, i);
    EBB_TRY(add_tensor(p, name, bytes_of(info_of(p, op->in[i])), EBB_ROLE_TEMP, 0, gradient_out));
    return add_access(p, *gradient_out, EBB_WRITE);
}

static void set_gradient(paper *p, const layer *it, uint32_t i, uint32_t gradient) {
    const uint32_t tensor = p->ins.data[it->first_in + i];
    if (tensor != NO_TENSOR) { p->gradients.data[tensor] = gradient; }
}

static ebb_status make_gradients(paper *p, const layer *it, uint32_t first) {
    for (uint32_t i = first; i < it->n_in; i++) {
        uint32_t gradient = 0;
        EBB_TRY(make_gradient(p, it, i, &gradient));
        set_gradient(p, it, i, gradient);
    }
    return EBB_OK;
}

/* The sum of what comes back, in place of the first that is there. */
static ebb_status add_fork_back(paper *p, const layer *it) {
    uint32_t sum = NO_TENSOR;
    for (uint32_t i = 0; i < it->n_out; i++) {
        const uint32_t gradient = p->gradients.data[p->outlets.data[it->out + i]];
        if (gradient == NO_TENSOR) { continue; }
        EBB_TRY(add_access(p, gradient, sum == NO_TENSOR ? EBB_UPDATE : EBB_READ));
        sum = sum == NO_TENSOR ? gradient : sum;
    }
    set_gradient(p, it, 0, sum);
    return sum == NO_TENSOR ? EBB_OK : add_step(p, it, EBB_PHASE_BACKWARD);
}

/* long: one switch */
static ebb_status add_back(paper *p, const layer *it) {
    if (it->is_fork) { return add_fork_back(p, it); }
    const ebb_op_kind kind = op_of(p, it)->kind;
    const uint32_t x = p->ins.data[it->first_in];
    uint32_t dy = p->gradients.data[it->out];
    if (kind == EBB_OP_SOFTMAX_LOSS) { dy = it->out; }
    if (dy == NO_TENSOR) { return EBB_OK; } /* the loss does not depend on it */
    switch (kind) {
    case EBB_OP_RELU:
    case EBB_OP_LRN:
        EBB_TRY(add_access(p, x, EBB_READ));
        EBB_TRY(add_access(p, it->out, EBB_READ));
        EBB_TRY(add_access(p, dy, EBB_UPDATE));
        set_gradient(p, it, 0, dy);
        break;
    case EBB_OP_SOFTMAX_LOSS:
        EBB_TRY(add_access(p, x, EBB_READ));
        EBB_TRY(add_access(p, dy, EBB_UPDATE));
        set_gradient(p, it, 0, dy);
        break;
    case EBB_OP_MAX_POOL:
    case EBB_OP_AVG_POOL:
        EBB_TRY(add_access(p, x, EBB_READ));
        EBB_TRY(add_access(p, it->out, EBB_READ));
        EBB_TRY(add_access(p, dy, EBB_READ));
        EBB_TRY(make_gradients(p, it, 0));
        break;
    case EBB_OP_CONV:
    case EBB_OP_LINEAR:
    case EBB_OP_BATCH_NORM:
        EBB_TRY(add_access(p, x, EBB_READ));
        EBB_TRY(add_access(p, dy, EBB_READ));
        EBB_TRY(make_gradients(p, it, 0));
        break;
    case EBB_OP_ADD:
        EBB_TRY(add_access(p, dy, EBB_READ));
        set_gradient(p, it, 0, dy);
        EBB_TRY(make_gradients(p, it, 1));
        break;
    default:
        EBB_TRY(add_access(p, dy, EBB_READ));
        EBB_TRY(make_gradients(p, it, 0));
        break;
    }
    return add_step(p, it, EBB_PHASE_BACKWARD);
}

/* ---- the whole ---------------------------------------------------------------------------------- */

static ebb_status lower_all(paper *p) {
    EBB_TRY(ebb_program_create(p->mem, p->graph->name, ALIGNMENT_BYTES, &p->program));
    EBB_TRY(find_readers(p));
    for (uint32_t i = 0; i < p->graph->ops.n; i++) {
        if (is_layer(p->graph->ops.data[i].kind)) { EBB_TRY(add_layer(p, i)); }
    }
    for (size_t i = p->layers.n; i-- > 0;) { EBB_TRY(add_back(p, &p->layers.data[i])); }
    return ebb_program_finish(p->program);
}

ebb_status ebb_lower_paper(const ebb_graph *graph, ebb_program **program_out) {
    EBB_NEED(graph);
    EBB_NEED(program_out);
    EBB_TRY(ebb_graph_check(graph));
    if (graph->differentiated || graph->inference || graph->loss == EBB_NO_VALUE) {
        return ebb_fail(EBB_E_ARGUMENT, "network %s: paper accounting takes a forward graph with a loss", graph->name);
    }
    paper p = {.graph = graph, .mem = graph->mem};
    ebb__bump_init(&p.bump, p.mem);
    const ebb_status status = lower_all(&p);
    EBB_VEC_FINI(p.mem, &p.outlets);
    EBB_VEC_FINI(p.mem, &p.ins);
    EBB_VEC_FINI(p.mem, &p.gradients);
    EBB_VEC_FINI(p.mem, &p.layers);
    EBB_VEC_FINI(p.mem, &p.accesses);
    ebb__bump_fini(&p.bump);
    if (status != EBB_OK) {
        ebb_program_destroy(p.program);
        return status;
    }
    *program_out = p.program;
    return EBB_OK;
}
