/* SPDX-License-Identifier: Apache-2.0
 *
 * The algorithms of a convolution by cuDNN's graph API, which tells of each what it is: deterministic or not, by tensor
 * cores (TF32) or not, and the bytes of its workspace. (The older calls are deprecated and know less.)
 *
 *   tensors + convolution -> operation -> operation graph -> heuristics -> engine configurations -> execution plans
 *
 * A forward convolution's bias and ReLU (its tail) are operations of the same graph, so that an algorithm does them
 * before it stores anything. Where the library has none for that graph, the convolution is asked for alone.
 *
 * Configurations are taken in the order of the library's heuristics. One that is not deterministic, or that computes in
 * TF32, is left out unless the device was opened with the option that allows it; one that rounds its inputs to fewer
 * bytes always.
 *
 * Choice 0 is what a run takes whatever its budget: the first of the library's list whose workspace is at most a
 * quarter larger than the convolution's operands together. With channels last many fp32 engines turn their images
 * round in the workspace, so it often is about as large; engines that need none are ten to a thousand times slower
 * (docs/cuda.md has the times of a card). The least workspace of the list of fallbacks is the last choice, if nothing
 * of the first list is as small: it is choice 0 only where the first list has nothing of that size.
 *
 * What the library offers and gets wrong on a card is left out: see is_wrong and is_lopsided.
 *
 * The list of convolutions is searched one by one: a network has few different ones, and each costs the library
 * milliseconds.
 */
#include "backend/cuda/cuda_conv_algorithms.h"

static const char *name_of(const ebb_cuda_conv *conv) {
    return ebb__op_name((ebb_op_kind)conv->key.direction);
}

/* ---- descriptors ------------------------------------------------------------------------------- */

/* One that is being made: after the first failure nothing more happens, and finish returns it. */
typedef struct maker {
    const char *op, *what;
    cudnnBackendDescriptor_t desc;
    ebb_status status;
} maker;

static ebb_status create(const char *op, const char *what, cudnnBackendDescriptorType_t type,
                         cudnnBackendDescriptor_t *desc_out) {
    EBB_CUDA_DNN(op, what, cudnnBackendCreateDescriptor, type, desc_out);
    return EBB_OK;
}

static maker begin(const ebb_cuda_conv *conv, const char *what, cudnnBackendDescriptorType_t type) {
    maker m = {.op = name_of(conv), .what = what};
    m.status = create(m.op, what, type, &m.desc);
    return m;
}

static void put(maker *m, cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type, int64_t n,
                const void *values) {
    if (m->status != EBB_OK) { return; }
    cudnnStatus_t status = cudnnBackendSetAttribute(m->desc, name, type, n, values);
    if (status != CUDNN_STATUS_SUCCESS) {
        m->status = ebb__cuda_fail_dnn(status, m->op, "cudnnBackendSetAttribute", m->what);
    }
}

static void put_numbers(maker *m, cudnnBackendAttributeName_t name, int64_t n, const int64_t *values) {
    put(m, name, CUDNN_TYPE_INT64, n, values);
}

static void put_desc(maker *m, cudnnBackendAttributeName_t name, cudnnBackendDescriptor_t desc) {
    put(m, name, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &desc);
}

/* Finalised and the caller's, or destroyed. */
static ebb_status finish(maker *m, cudnnBackendDescriptor_t *desc_out) {
    if (m->status == EBB_OK) {
        cudnnStatus_t status = cudnnBackendFinalize(m->desc);
        if (status != CUDNN_STATUS_SUCCESS) {
            m->status = ebb__cuda_fail_dnn(status, m->op, "cudnnBackendFinalize", m->what);
        }
    }
    if (m->status != EBB_OK) {
        if (m->desc != NULL) { (void)cudnnBackendDestroyDescriptor(m->desc); }
        return m->status;
    }
    *desc_out = m->desc;
    return EBB_OK;
}

/* The convolution's from now on, whatever happens. */
static ebb_status keep(ebb_cuda_conv *conv, cudnnBackendDescriptor_t desc) {
    ebb_status st = EBB_PUSH(conv->mem, &conv->made, desc);
    if (st != EBB_OK) { (void)cudnnBackendDestroyDescriptor(desc); }
    return st;
}

static ebb_status finish_and_keep(ebb_cuda_conv *conv, maker *m, cudnnBackendDescriptor_t *desc_out) {
    cudnnBackendDescriptor_t desc = NULL;
    EBB_TRY(finish(m, &desc));
    EBB_TRY(keep(conv, desc));
    *desc_out = desc;
    return EBB_OK;
}

/* ---- the operation ----------------------------------------------------------------------------- */

/* Tensors between operations of one graph have ids from here on; they are nowhere in memory. */
enum { FIRST_VIRTUAL = 100 };

/* (n, c, h, w) with c innermost; of weights (o, i, h, w) with i innermost. */
static ebb_status make_tensor(ebb_cuda_conv *conv, int64_t id, const int64_t dims[4],
                              cudnnBackendDescriptor_t *desc_out) {
    const bool is_virtual = id >= FIRST_VIRTUAL;
    const cudnnDataType_t type = CUDNN_DATA_FLOAT;
    const int64_t alignment_bytes = 16; /* at least; more would only rule out engines */
    const int64_t strides[4] = {dims[1] * dims[2] * dims[3], 1, dims[3] * dims[1], dims[1]};
    maker m = begin(conv, "a tensor", CUDNN_BACKEND_TENSOR_DESCRIPTOR);
    put(&m, CUDNN_ATTR_TENSOR_DATA_TYPE, CUDNN_TYPE_DATA_TYPE, 1, &type);
    put_numbers(&m, CUDNN_ATTR_TENSOR_DIMENSIONS, 4, dims);
    put_numbers(&m, CUDNN_ATTR_TENSOR_STRIDES, 4, strides);
    put_numbers(&m, CUDNN_ATTR_TENSOR_UNIQUE_ID, 1, &id);
    put_numbers(&m, CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, 1, &alignment_bytes);
    put(&m, CUDNN_ATTR_TENSOR_IS_VIRTUAL, CUDNN_TYPE_BOOLEAN, 1, &is_virtual);
    return finish_and_keep(conv, &m, desc_out);
}

static ebb_status make_convolution(ebb_cuda_conv *conv, cudnnBackendDescriptor_t *desc_out) {
    const ebb_cuda_conv_key *k = &conv->key;
    const cudnnDataType_t compute = CUDNN_DATA_FLOAT;
    const cudnnConvolutionMode_t mode = CUDNN_CROSS_CORRELATION;
    const int64_t n_spatial = 2;
    maker m = begin(conv, "a convolution", CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR);
    put_numbers(&m, CUDNN_ATTR_CONVOLUTION_SPATIAL_DIMS, 1, &n_spatial);
    put(&m, CUDNN_ATTR_CONVOLUTION_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, 1, &compute);
    put(&m, CUDNN_ATTR_CONVOLUTION_CONV_MODE, CUDNN_TYPE_CONVOLUTION_MODE, 1, &mode);
    put_numbers(&m, CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS, 2, k->pad_begin);
    put_numbers(&m, CUDNN_ATTR_CONVOLUTION_POST_PADDINGS, 2, k->pad_end);
    put_numbers(&m, CUDNN_ATTR_CONVOLUTION_DILATIONS, 2, k->dilation);
    put_numbers(&m, CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES, 2, k->stride);
    return finish_and_keep(conv, &m, desc_out);
}

/* How each direction names the same things. */
typedef struct direction {
    ebb_op_kind kind;
    cudnnBackendDescriptorType_t type;
    cudnnBackendAttributeName_t conv, src, weights, dst, alpha, beta;
} direction;

static const direction directions[] = {
    {EBB_OP_CONV, CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR,
     CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_CONV_DESC, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_X,
     CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_W, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_Y,
     CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_ALPHA, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_BETA},
    {EBB_OP_CONV_BWD_DATA, CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR,
     CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_CONV_DESC, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DX,
     CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_W, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DY,
     CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_ALPHA, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_BETA},
    {EBB_OP_CONV_BWD_WEIGHTS, CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_FILTER_DESCRIPTOR,
     CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_CONV_DESC, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_X,
     CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DW, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DY,
     CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_ALPHA, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_BETA},
};

/* The operation on conv's three tensors, with dst as it is given. */
static ebb_status make_operation(ebb_cuda_conv *conv, cudnnBackendDescriptor_t dst,
                                 cudnnBackendDescriptor_t *desc_out) {
    const bool adds = conv->key.direction == EBB_OP_CONV_BWD_DATA_ADD;
    const ebb_op_kind kind = adds ? EBB_OP_CONV_BWD_DATA : (ebb_op_kind)conv->key.direction;
    const direction *d = &directions[0];
    const float one = 1.0f, beta = adds ? 1.0f : 0.0f;
    cudnnBackendDescriptor_t convolution = NULL, src = NULL, weights = NULL;
    while (d->kind != kind) { d++; }
    EBB_TRY(make_convolution(conv, &convolution));
    EBB_TRY(make_tensor(conv, EBB_CUDA_CONV_SRC, conv->key.src, &src));
    EBB_TRY(make_tensor(conv, EBB_CUDA_CONV_WEIGHTS, conv->key.weights, &weights));
    maker m = begin(conv, "an operation", d->type);
    put_desc(&m, d->conv, convolution);
    put_desc(&m, d->src, src);
    put_desc(&m, d->weights, weights);
    put_desc(&m, d->dst, dst);
    put(&m, d->alpha, CUDNN_TYPE_FLOAT, 1, &one);
    put(&m, d->beta, CUDNN_TYPE_FLOAT, 1, &beta);
    return finish_and_keep(conv, &m, desc_out);
}

/* to = from + other, or, without other, the ReLU of from. A NaN stays one. */
static ebb_status make_pointwise(ebb_cuda_conv *conv, cudnnBackendDescriptor_t from, cudnnBackendDescriptor_t other,
                                 cudnnBackendDescriptor_t to, cudnnBackendDescriptor_t *desc_out) {
    const cudnnPointwiseMode_t mode = other != NULL ? CUDNN_POINTWISE_ADD : CUDNN_POINTWISE_RELU_FWD;
    const cudnnDataType_t compute = CUDNN_DATA_FLOAT;
    const cudnnNanPropagation_t propagation = CUDNN_PROPAGATE_NAN;
    cudnnBackendDescriptor_t pointwise = NULL;
    maker m = begin(conv, "what comes after a convolution", CUDNN_BACKEND_POINTWISE_DESCRIPTOR);
    put(&m, CUDNN_ATTR_POINTWISE_MODE, CUDNN_TYPE_POINTWISE_MODE, 1, &mode);
    put(&m, CUDNN_ATTR_POINTWISE_MATH_PREC, CUDNN_TYPE_DATA_TYPE, 1, &compute);
    if (other == NULL) { put(&m, CUDNN_ATTR_POINTWISE_NAN_PROPAGATION, CUDNN_TYPE_NAN_PROPOGATION, 1, &propagation); }
    EBB_TRY(finish_and_keep(conv, &m, &pointwise));
    m = begin(conv, "what comes after a convolution", CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR);
    put_desc(&m, CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR, pointwise);
    put_desc(&m, CUDNN_ATTR_OPERATION_POINTWISE_XDESC, from);
    if (other != NULL) { put_desc(&m, CUDNN_ATTR_OPERATION_POINTWISE_BDESC, other); }
    put_desc(&m, CUDNN_ATTR_OPERATION_POINTWISE_YDESC, to);
    return finish_and_keep(conv, &m, desc_out);
}

typedef struct operations {
    int64_t n;
    cudnnBackendDescriptor_t operation[3]; /* convolution, bias, ReLU */
} operations;

static ebb_status make_operations(ebb_cuda_conv *conv, bool has_tail, operations *ops) {
    const int64_t channels[4] = {1, conv->key.dst[1], 1, 1};
    const bool bias = has_tail && conv->key.bias != 0, relu = has_tail && conv->key.relu != 0;
    cudnnBackendDescriptor_t to[3] = {NULL}, vector = NULL; /* what each operation makes; the last is dst */
    ops->n = 1 + bias + relu;
    for (int64_t i = 0; i < ops->n; i++) {
        const int64_t id = i == ops->n - 1 ? EBB_CUDA_CONV_DST : FIRST_VIRTUAL + i;
        EBB_TRY(make_tensor(conv, id, conv->key.dst, &to[i]));
    }
    EBB_TRY(make_operation(conv, to[0], &ops->operation[0]));
    if (bias) {
        EBB_TRY(make_tensor(conv, EBB_CUDA_CONV_BIAS, channels, &vector));
        EBB_TRY(make_pointwise(conv, to[0], vector, to[1], &ops->operation[1]));
    }
    return relu ? make_pointwise(conv, to[ops->n - 2], NULL, to[ops->n - 1], &ops->operation[ops->n - 1]) : EBB_OK;
}

static ebb_status make_graph(ebb_cuda_conv *conv, bool has_tail, cudnnHandle_t handle,
                             cudnnBackendDescriptor_t *desc_out) {
    operations ops;
    EBB_TRY(make_operations(conv, has_tail, &ops));
    maker m = begin(conv, "an operation graph", CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR);
    if (handle != NULL) { put(&m, CUDNN_ATTR_OPERATIONGRAPH_HANDLE, CUDNN_TYPE_HANDLE, 1, &handle); }
    put(&m, CUDNN_ATTR_OPERATIONGRAPH_OPS, CUDNN_TYPE_BACKEND_DESCRIPTOR, ops.n, (const void *)ops.operation);
    return finish_and_keep(conv, &m, desc_out);
}

/* Both since cuDNN 9.8: the device that is described, in place of the handle's. */
#if CUDNN_VERSION < 90800
#define CUDNN_ATTR_ENGINEHEUR_DEVICEPROP ((cudnnBackendAttributeName_t)204)
#define CUDNN_ATTR_EXECUTION_PLAN_DEVICEPROP ((cudnnBackendAttributeName_t)407)
#endif

/* ---- algorithms -------------------------------------------------------------------------------- */

static bool is_allowed(const ebb_cuda_device *device, cudnnBackendNumericalNote_t note) {
    switch (note) {
    case CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC: return device->nondeterministic;
    case CUDNN_NUMERICAL_NOTE_TENSOR_CORE: return device->tf32;
    case CUDNN_NUMERICAL_NOTE_DOWN_CONVERT_INPUTS:
    case CUDNN_NUMERICAL_NOTE_REDUCED_PRECISION_REDUCTION: return false;
    default: return true;
    }
}

/* The engines' names, by the library's numbers for them. */
#define TEN(tens)                                                                                                      \
    "cudnn " #tens "0", "cudnn " #tens "1", "cudnn " #tens "2", "cudnn " #tens "3", "cudnn " #tens "4",                \
        "cudnn " #tens "5", "cudnn " #tens "6", "cudnn " #tens "7", "cudnn " #tens "8", "cudnn " #tens "9"
static const char *const engine_names[] = {TEN(),  TEN(1), TEN(2), TEN(3), TEN(4),  TEN(5),
                                           TEN(6), TEN(7), TEN(8), TEN(9), TEN(10), TEN(11)};
enum { N_ENGINE_NAMES = sizeof engine_names / sizeof engine_names[0] };

/* What the library says of a configuration's engine. */
typedef struct engine_facts {
    int64_t number;
    bool allowed;
} engine_facts;

static const char *name_engine(int64_t number) {
    return number >= 0 && number < N_ENGINE_NAMES ? engine_names[number] : "cudnn";
}

/* cuDNN 9.19's engine 17 for the gradient of weights (5x5 windows, no note) is off by 5e-4 in fp32, on an H200. */
static bool is_wrong(const ebb_cuda_conv *conv, int64_t engine) {
    return conv->key.direction == EBB_OP_CONV_BWD_WEIGHTS && engine == 17;
}

static ebb_status ask_engine(const ebb_cuda_device *device, const ebb_cuda_conv *conv, cudnnBackendDescriptor_t config,
                             cudnnBackendDescriptor_t engine, engine_facts *facts_out) {
    cudnnBackendNumericalNote_t notes[CUDNN_NUMERICAL_NOTE_TYPE_COUNT];
    int64_t n_engines = 0, n_notes = 0, n_numbers = 0, number = -1;
    bool allowed = true;
    EBB_CUDA_DNN(name_of(conv), "an engine", cudnnBackendGetAttribute, config, CUDNN_ATTR_ENGINECFG_ENGINE,
                 CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &n_engines, (void *)&engine);
    EBB_CUDA_DNN(name_of(conv), "an engine's number", cudnnBackendGetAttribute, engine, CUDNN_ATTR_ENGINE_GLOBAL_INDEX,
                 CUDNN_TYPE_INT64, 1, &n_numbers, &number);
    EBB_CUDA_DNN(name_of(conv), "an engine's notes", cudnnBackendGetAttribute, engine, CUDNN_ATTR_ENGINE_NUMERICAL_NOTE,
                 CUDNN_TYPE_NUMERICAL_NOTE, CUDNN_NUMERICAL_NOTE_TYPE_COUNT, &n_notes, notes);
    for (int64_t i = 0; i < n_notes && i < CUDNN_NUMERICAL_NOTE_TYPE_COUNT; i++) {
        allowed = allowed && is_allowed(device, notes[i]);
    }
    *facts_out = (engine_facts){number, allowed && !is_wrong(conv, number)};
    return EBB_OK;
}

static ebb_status find_facts(const ebb_cuda_device *device, const ebb_cuda_conv *conv, cudnnBackendDescriptor_t config,
                             engine_facts *facts_out) {
    cudnnBackendDescriptor_t engine = NULL;
    EBB_TRY(create(name_of(conv), "an engine", CUDNN_BACKEND_ENGINE_DESCRIPTOR, &engine));
    ebb_status st = ask_engine(device, conv, config, engine, facts_out);
    (void)cudnnBackendDestroyDescriptor(engine);
    return st;
}

/* EBB_E_UNSUPPORTED and the like: this configuration is none for this GPU, the next may be. */
static ebb_status make_algorithm(ebb_cuda_conv *conv, const ebb_cuda_libraries *libraries,
                                 cudnnBackendDescriptor_t config, ebb_cuda_conv_algorithm *algorithm_out) {
    cudnnBackendDescriptor_t execution = NULL;
    int64_t workspace_bytes = 0, n = 0;
    maker m = begin(conv, "an execution plan", CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR);
    if (libraries->described == NULL) {
        put(&m, CUDNN_ATTR_EXECUTION_PLAN_HANDLE, CUDNN_TYPE_HANDLE, 1, &libraries->dnn);
    } else {
        put_desc(&m, CUDNN_ATTR_EXECUTION_PLAN_DEVICEPROP, libraries->described);
    }
    put_desc(&m, CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, config);
    EBB_TRY(finish_and_keep(conv, &m, &execution));
    EBB_CUDA_DNN(name_of(conv), "an execution plan's workspace", cudnnBackendGetAttribute, execution,
                 CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE, CUDNN_TYPE_INT64, 1, &n, &workspace_bytes);
    if (n != 1 || workspace_bytes < 0) {
        return ebb_fail(EBB_E_DEVICE, "cuda: %s: an execution plan that does not tell its workspace", name_of(conv));
    }
    *algorithm_out = (ebb_cuda_conv_algorithm){.execution = execution, .workspace_bytes = (uint64_t)workspace_bytes};
    return EBB_OK;
}

/* The first of those with the least workspace; 0 of none. */
static uint32_t find_least(const ebb_cuda_conv *conv) {
    uint32_t least = 0;
    for (uint32_t i = 1; i < conv->n_algorithms; i++) {
        if (conv->algorithms[i].workspace_bytes < conv->algorithms[least].workspace_bytes) { least = i; }
    }
    return least;
}

static bool is_least(const ebb_cuda_conv *conv, uint64_t workspace_bytes) {
    return conv->n_algorithms == 0 || workspace_bytes < conv->algorithms[find_least(conv)].workspace_bytes;
}

#define MESSAGE_BYTES 512

/* The first failure that was no word of what is supported. One engine that fails is passed over; where no engine is
 * left, it is the device that is broken, and this is why. */
typedef struct engine_failure {
    ebb_status status; /* EBB_OK: there was none */
    char message[MESSAGE_BYTES];
} engine_failure;

static void note_failure(engine_failure *failure, ebb_status status) {
    if (failure->status != EBB_OK || status == EBB_OK || status == EBB_E_UNSUPPORTED) { return; }
    failure->status = status;
    (void)snprintf(failure->message, sizeof failure->message, "%s", ebb_last_error());
}

/* One search for algorithms. */
typedef struct search {
    const ebb_cuda_device *device;
    const ebb_cuda_libraries *libraries;
    ebb_cuda_conv *conv;
    cudnnBackendDescriptor_t graph;
    uint32_t n_listed; /* algorithms of the first list; what comes after them is the fallbacks' smallest */
    engine_failure failure;
} search;

/* A place for one of the mode's list. NULL: it gets none. */
static ebb_cuda_conv_algorithm *find_place(search *s, cudnnBackendHeurMode_t mode, uint64_t workspace_bytes) {
    ebb_cuda_conv *conv = s->conv;
    if (mode != CUDNN_HEUR_MODE_FALLBACK) {
        s->n_listed = conv->n_algorithms + 1;
    } else if (!is_least(conv, workspace_bytes)) {
        return NULL;
    }
    conv->n_algorithms = mode == CUDNN_HEUR_MODE_FALLBACK ? s->n_listed + 1 : s->n_listed;
    return &conv->algorithms[conv->n_algorithms - 1];
}

static ebb_status add_algorithm(search *s, cudnnBackendHeurMode_t mode, cudnnBackendDescriptor_t config) {
    ebb_cuda_conv_algorithm made;
    engine_facts facts;
    EBB_TRY(find_facts(s->device, s->conv, config, &facts));
    if (!facts.allowed) { return EBB_OK; }
    EBB_TRY(make_algorithm(s->conv, s->libraries, config, &made));
    made.name = name_engine(facts.number);
    ebb_cuda_conv_algorithm *place = find_place(s, mode, made.workspace_bytes);
    if (place != NULL) { *place = made; }
    return EBB_OK;
}

static ebb_status add_algorithms(search *s, cudnnBackendHeurMode_t mode, const cudnnBackendDescriptor_t *configs,
                                 int64_t n) {
    const bool fallback = mode == CUDNN_HEUR_MODE_FALLBACK;
    for (int64_t i = 0; i < n && (fallback || s->n_listed < EBB_CUDA_CONV_MAX_ALGORITHMS - 1); i++) {
        ebb_status st = add_algorithm(s, mode, configs[i]);
        if (st == EBB_E_NO_MEMORY) { return st; }
        note_failure(&s->failure, st);
    }
    return EBB_OK;
}

/* ---- heuristics -------------------------------------------------------------------------------- */

static ebb_status count_configs(const ebb_cuda_conv *conv, cudnnBackendDescriptor_t heuristics, int64_t *n_out) {
    int64_t n = 0;
    EBB_CUDA_DNN(name_of(conv), "heuristics", cudnnBackendGetAttribute, heuristics, CUDNN_ATTR_ENGINEHEUR_RESULTS,
                 CUDNN_TYPE_BACKEND_DESCRIPTOR, 0, &n, NULL);
    *n_out = n;
    return EBB_OK;
}

/* Descriptors that the library fills in; they stay as long as the algorithms that are made of them. */
static ebb_status get_configs(ebb_cuda_conv *conv, cudnnBackendDescriptor_t heuristics,
                              cudnnBackendDescriptor_t *configs, int64_t *n) {
    const int64_t n_wanted = *n;
    for (int64_t i = 0; i < n_wanted; i++) {
        EBB_TRY(create(name_of(conv), "an engine configuration", CUDNN_BACKEND_ENGINECFG_DESCRIPTOR, &configs[i]));
        EBB_TRY(keep(conv, configs[i]));
    }
    EBB_CUDA_DNN(name_of(conv), "heuristics", cudnnBackendGetAttribute, heuristics, CUDNN_ATTR_ENGINEHEUR_RESULTS,
                 CUDNN_TYPE_BACKEND_DESCRIPTOR, n_wanted, n, configs);
    return EBB_OK;
}

static ebb_status add_by_heuristics(search *s, cudnnBackendHeurMode_t mode) {
    ebb_cuda_conv *conv = s->conv;
    cudnnBackendDescriptor_t heuristics = NULL;
    int64_t n = 0;
    maker m = begin(conv, "heuristics", CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR);
    put_desc(&m, CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, s->graph);
    put(&m, CUDNN_ATTR_ENGINEHEUR_MODE, CUDNN_TYPE_HEUR_MODE, 1, &mode);
    if (s->libraries->described != NULL) { put_desc(&m, CUDNN_ATTR_ENGINEHEUR_DEVICEPROP, s->libraries->described); }
    EBB_TRY(finish_and_keep(conv, &m, &heuristics));
    EBB_TRY(count_configs(conv, heuristics, &n));
    if (n < 1) { return EBB_OK; }
    cudnnBackendDescriptor_t *configs = ebb__calloc(conv->mem, (size_t)n, sizeof *configs);
    if (configs == NULL) { return EBB_E_NO_MEMORY; }
    ebb_status st = get_configs(conv, heuristics, configs, &n);
    if (st == EBB_OK) { st = add_algorithms(s, mode, configs, n); }
    ebb__free(conv->mem, configs);
    return st;
}

static uint64_t operand_bytes(const ebb_cuda_conv_key *k) {
    const int64_t *const dims[] = {k->src, k->weights, k->dst};
    uint64_t n = 0;
    for (int i = 0; i < 3; i++) { n += (uint64_t)(dims[i][0] * dims[i][1] * dims[i][2] * dims[i][3]); }
    return n * sizeof(float);
}

/* Choice 0 to the front; the others stay in order. */
static void choose_first(ebb_cuda_conv *conv, uint32_t n_listed) {
    const uint64_t limit = operand_bytes(&conv->key) / 4 * 5;
    uint32_t best = find_least(conv);
    for (uint32_t i = n_listed; i-- > 0;) {
        if (conv->algorithms[i].workspace_bytes <= limit) { best = i; }
    }
    const ebb_cuda_conv_algorithm first = conv->algorithms[best];
    memmove(&conv->algorithms[1], &conv->algorithms[0], best * sizeof first);
    conv->algorithms[0] = first;
}

/* The first list, and the fallbacks unless they could add nothing. A list that fails leaves it to the other. */
static ebb_status add_by_lists(search *s) {
    static const cudnnBackendHeurMode_t modes[] = {CUDNN_HEUR_MODE_A, CUDNN_HEUR_MODE_FALLBACK};
    for (int i = 0; i < 2 && is_least(s->conv, 0); i++) {
        ebb_status st = add_by_heuristics(s, modes[i]);
        if (st == EBB_E_NO_MEMORY) { return st; }
        note_failure(&s->failure, st);
    }
    return EBB_OK;
}

static ebb_status find_in_graph(search *s, bool has_tail) {
    EBB_TRY(make_graph(s->conv, has_tail, s->libraries->dnn, &s->graph));
    return add_by_lists(s);
}

/* Backward, cuDNN 9.19's engines 1 (weights) and 50 (data) give wrong results for such a convolution on an H200, and
 * say nothing. The others were right in the conformance suite; an own kernel is right by how it is written. */
static bool is_lopsided(const ebb_cuda_conv_key *k) {
    return k->pad_begin[0] != k->pad_end[0] || k->pad_begin[1] != k->pad_end[1];
}

/* If the library has no algorithm with this tail, for whatever reason, the tail is left out. */
static ebb_status find_algorithms(const ebb_cuda_device *device, ebb_cuda_conv *conv,
                                  const ebb_cuda_libraries *libraries) {
    const bool has_tail = conv->key.bias != 0 || conv->key.relu != 0;
    if (is_lopsided(&conv->key) && conv->key.direction != EBB_OP_CONV) {
        return ebb_fail(EBB_E_UNSUPPORTED, "cuda: %s: cuDNN is wrong where the padding before and after differ",
                        name_of(conv));
    }
    search s = {.device = device, .libraries = libraries, .conv = conv};
    if (has_tail && find_in_graph(&s, true) == EBB_E_NO_MEMORY) { return EBB_E_NO_MEMORY; }
    conv->has_tail = conv->n_algorithms > 0 && has_tail;
    if (conv->n_algorithms == 0) {
        s = (search){.device = device, .libraries = libraries, .conv = conv};
        EBB_TRY(find_in_graph(&s, false));
    }
    if (conv->n_algorithms == 0 && s.failure.status != EBB_OK) {
        return ebb__fail_adopt(s.failure.status, s.failure.message);
    }
    if (conv->n_algorithms == 0) {
        return ebb_fail(EBB_E_UNSUPPORTED,
                        "cuda: %s: cuDNN has no algorithm for it that the device's options tf32 and nondeterministic "
                        "allow",
                        name_of(conv));
    }
    choose_first(conv, s.n_listed);
    return EBB_OK;
}

/* ---- the device's ------------------------------------------------------------------------------ */

void ebb__cuda_conv_destroy(ebb_cuda_conv *conv) {
    if (conv == NULL) { return; }
    for (size_t i = conv->made.n; i-- > 0;) { (void)cudnnBackendDestroyDescriptor(conv->made.data[i]); }
    EBB_VEC_FINI(conv->mem, &conv->made);
    ebb__free(conv->mem, conv);
}

ebb_status ebb__cuda_conv_find(ebb_cuda_device *device, const ebb_cuda_conv_key *key, const ebb_cuda_conv **conv_out) {
    ebb_cuda_libraries *libraries = NULL;
    EBB_TRY(ebb__cuda_dnn(device, ebb__op_name((ebb_op_kind)key->direction), &libraries));
    for (size_t i = 0; i < libraries->convs.n; i++) {
        if (memcmp(&libraries->convs.data[i]->key, key, sizeof *key) == 0) {
            *conv_out = libraries->convs.data[i];
            return EBB_OK;
        }
    }
    ebb_cuda_conv *conv = ebb__calloc(device->base.mem, 1, sizeof *conv);
    if (conv == NULL) { return EBB_E_NO_MEMORY; }
    conv->mem = device->base.mem;
    conv->key = *key;
    ebb_status st = find_algorithms(device, conv, libraries);
    if (st == EBB_OK) { st = EBB_PUSH(device->base.mem, &libraries->convs, conv); }
    if (st != EBB_OK) {
        ebb__cuda_conv_destroy(conv);
        return st;
    }
    *conv_out = conv;
    return EBB_OK;
}

ebb_status ebb__cuda_conv_pack(const ebb_cuda_conv *conv, const ebb_cuda_conv_places *at,
                               cudnnBackendDescriptor_t *pack_out) {
    const int64_t ids[] = {EBB_CUDA_CONV_SRC, EBB_CUDA_CONV_WEIGHTS, EBB_CUDA_CONV_DST, EBB_CUDA_CONV_BIAS};
    void *const addresses[] = {at->src, at->weights, at->dst, at->bias};
    const int64_t n = conv->has_tail && conv->key.bias != 0 ? 4 : 3;
    maker m = begin(conv, "a variant pack", CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR);
    put_numbers(&m, CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, n, ids);
    put(&m, CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, CUDNN_TYPE_VOID_PTR, n, (const void *)addresses);
    put(&m, CUDNN_ATTR_VARIANT_PACK_WORKSPACE, CUDNN_TYPE_VOID_PTR, 1, &at->workspace);
    return finish(&m, pack_out);
}
