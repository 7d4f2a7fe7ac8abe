/* SPDX-License-Identifier: Apache-2.0
 *
 * cuDNN's graph API as the fake has it: descriptors that keep their attributes, one convolution a graph, perhaps with
 * a bias and a ReLU after it, backward to data perhaps added to what is there (beta 1), and engines that differ in what
 * they say of themselves:
 *
 *   0 rounds to TF32   1 is not deterministic   2 needs more workspace than the operands have bytes
 *   3 does not run on this machine   4 needs no workspace   5 needs a little, as others do   6 rounds its
 *   inputs to half
 *
 * The first list of heuristics has all but 4, and the list of fallbacks has 2 and 4. Those that must not be chosen
 * compute nonsense. A descriptor that is used before it is finalised, or changed afterwards, fails.
 */
#include "fake_priv.h"

#include <cudnn_backend.h>

#define DNN_CALL()                                                                                                     \
    do {                                                                                                               \
        if (fake_begin(__func__) != cudaSuccess) { return CUDNN_STATUS_INTERNAL_ERROR; }                               \
    } while (0)

enum { MAX_ATTRIBUTES = 8, SMALL_WORKSPACE = 700 };

typedef struct attribute {
    cudnnBackendAttributeName_t name;
    cudnnBackendAttributeType_t type;
    int64_t n;
    unsigned char value[4 * sizeof(int64_t)];
} attribute;

typedef struct descriptor {
    cudnnBackendDescriptorType_t type;
    bool finalized;
    attribute attributes[MAX_ATTRIBUTES];
    size_t n;
    int engine;                     /* of configurations and engines */
    const struct descriptor *graph; /* of configurations */
} descriptor;

struct cudnnContext {
    cudaStream_t stream;
};

typedef struct tensor {
    int64_t dims[4], strides[4], id;
    bool is_virtual;
    float *at;
} tensor;

/* What a launch reads: it lives as long as the execution plan. */
typedef struct conv_args {
    const descriptor *graph;
    float *src, *weights, *dst, *bias;
    bool nonsense;
} conv_args;

/* ---- handles, words ---------------------------------------------------------------------------- */

cudnnStatus_t cudnnCreate(cudnnHandle_t *handle_out) {
    DNN_CALL();
    fake.n_live++;
    *handle_out = calloc(1, sizeof **handle_out);
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnDestroy(cudnnHandle_t handle) {
    fake.n_live--;
    free(handle);
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnSetStream(cudnnHandle_t handle, cudaStream_t stream) {
    DNN_CALL();
    handle->stream = stream;
    return CUDNN_STATUS_SUCCESS;
}

size_t cudnnGetVersion(void) {
    return fake.dnn_version;
}

const char *cudnnGetErrorString(cudnnStatus_t status) {
    return status == CUDNN_STATUS_SUCCESS ? "success" : "failure";
}

void cudnnGetLastErrorString(char *message, size_t max_size) {
    (void)snprintf(message, max_size, "the fake's");
}

/* ---- descriptors ------------------------------------------------------------------------------- */

cudnnStatus_t cudnnBackendCreateDescriptor(cudnnBackendDescriptorType_t type, cudnnBackendDescriptor_t *desc_out) {
    DNN_CALL();
    descriptor *d = calloc(1, sizeof *d);
    d->type = type;
    fake.n_live++;
    *desc_out = d;
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnBackendDestroyDescriptor(cudnnBackendDescriptor_t desc) {
    fake.n_live--;
    free(desc);
    return CUDNN_STATUS_SUCCESS;
}

static size_t element_bytes(cudnnBackendAttributeType_t type) {
    switch (type) {
    case CUDNN_TYPE_INT64: return sizeof(int64_t);
    case CUDNN_TYPE_HANDLE:
    case CUDNN_TYPE_VOID_PTR:
    case CUDNN_TYPE_BACKEND_DESCRIPTOR: return sizeof(void *);
    case CUDNN_TYPE_BOOLEAN: return sizeof(bool);
    default: return 4;
    }
}

cudnnStatus_t cudnnBackendSetAttribute(cudnnBackendDescriptor_t desc, cudnnBackendAttributeName_t name,
                                       cudnnBackendAttributeType_t type, int64_t n, const void *values) {
    descriptor *d = desc;
    DNN_CALL();
    if (d->finalized || d->n == MAX_ATTRIBUTES || n < 1 || n > 4) { return CUDNN_STATUS_BAD_PARAM; }
    if (type == CUDNN_TYPE_BACKEND_DESCRIPTOR && !(*(descriptor *const *)values)->finalized) {
        return CUDNN_STATUS_BAD_PARAM_NOT_FINALIZED;
    }
    attribute *a = &d->attributes[d->n++];
    *a = (attribute){.name = name, .type = type, .n = n};
    memcpy(a->value, values, (size_t)n * element_bytes(type));
    return CUDNN_STATUS_SUCCESS;
}

/* false: it has none of that name and type. */
static bool find(const descriptor *d, cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type, int64_t n,
                 void *values) {
    for (size_t i = 0; i < d->n; i++) {
        const attribute *a = &d->attributes[i];
        if (a->name == name && a->type == type && a->n == n) {
            memcpy(values, a->value, (size_t)n * element_bytes(type));
            return true;
        }
    }
    return false;
}

static const descriptor *find_desc(const descriptor *d, cudnnBackendAttributeName_t name) {
    const descriptor *value = NULL;
    return find(d, name, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, (void *)&value) ? value : NULL;
}

cudnnStatus_t cudnnBackendFinalize(cudnnBackendDescriptor_t desc) {
    descriptor *d = desc;
    DNN_CALL();
    if (d->type == CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR) {
        const descriptor *config = find_desc(d, CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG);
        if (config == NULL) { return CUDNN_STATUS_BAD_PARAM; }
        if (fake.broken_engines) { return CUDNN_STATUS_EXECUTION_FAILED; }
        if (config->engine == 3) { return CUDNN_STATUS_NOT_SUPPORTED_ARCH_MISMATCH; }
    }
    d->finalized = true;
    return CUDNN_STATUS_SUCCESS;
}

/* ---- a convolution ----------------------------------------------------------------------------- */

/* How the three directions number the same attributes: from the first one's ALPHA. */
static int first_of(const descriptor *operation) {
    switch (operation->type) {
    case CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR: return CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_ALPHA;
    case CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR:
        return CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_ALPHA;
    default: return CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_ALPHA;
    }
}

static tensor get_tensor(const descriptor *operation, cudnnBackendAttributeName_t name) {
    tensor t = {.id = -1};
    const descriptor *d = find_desc(operation, name);
    int32_t type = 0;
    if (d == NULL || !find(d, CUDNN_ATTR_TENSOR_IS_VIRTUAL, CUDNN_TYPE_BOOLEAN, 1, &t.is_virtual) ||
        !find(d, CUDNN_ATTR_TENSOR_DIMENSIONS, CUDNN_TYPE_INT64, 4, t.dims) ||
        !find(d, CUDNN_ATTR_TENSOR_STRIDES, CUDNN_TYPE_INT64, 4, t.strides) ||
        !find(d, CUDNN_ATTR_TENSOR_DATA_TYPE, CUDNN_TYPE_DATA_TYPE, 1, &type) || type != CUDNN_DATA_FLOAT ||
        !find(d, CUDNN_ATTR_TENSOR_UNIQUE_ID, CUDNN_TYPE_INT64, 1, &t.id)) {
        t.id = -1;
    }
    return t;
}

typedef struct convolution {
    cudnnBackendDescriptorType_t type;
    tensor src, weights, dst;
    tensor bias; /* id -1: none */
    bool relu, adds;
    int64_t pre[2], post[2], dilation[2], stride[2];
} convolution;

static bool get_convolution(const descriptor *operation, convolution *c) {
    const int first = first_of(operation);
    c->type = operation->type;
    c->weights = get_tensor(operation, (cudnnBackendAttributeName_t)(first + 3));
    c->src = get_tensor(operation, (cudnnBackendAttributeName_t)(first + 4));
    c->dst = get_tensor(operation, (cudnnBackendAttributeName_t)(first + 5));
    _Static_assert(
        CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_W - CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_ALPHA == 3 &&
            CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DX - CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_ALPHA == 4 &&
            CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DY - CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_ALPHA == 5,
        "the header's numbers");
    const descriptor *d = find_desc(operation, (cudnnBackendAttributeName_t)(first + 2));
    const bool data = c->type == CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR;
    float alpha = 0.0f, beta = -1.0f;
    int64_t n_spatial = 0;
    int32_t mode = -1;
    if (!find(operation, (cudnnBackendAttributeName_t)(first + 1), CUDNN_TYPE_FLOAT, 1, &beta)) { return false; }
    c->adds = beta == 1.0f;
    return (beta == 0.0f || (c->adds && data)) && d != NULL && c->weights.id >= 0 && c->src.id >= 0 && c->dst.id >= 0 &&
           find(operation, (cudnnBackendAttributeName_t)first, CUDNN_TYPE_FLOAT, 1, &alpha) && alpha > 0.5f &&
           find(d, CUDNN_ATTR_CONVOLUTION_SPATIAL_DIMS, CUDNN_TYPE_INT64, 1, &n_spatial) && n_spatial == 2 &&
           find(d, CUDNN_ATTR_CONVOLUTION_CONV_MODE, CUDNN_TYPE_CONVOLUTION_MODE, 1, &mode) &&
           mode == CUDNN_CROSS_CORRELATION &&
           find(d, CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS, CUDNN_TYPE_INT64, 2, c->pre) &&
           find(d, CUDNN_ATTR_CONVOLUTION_POST_PADDINGS, CUDNN_TYPE_INT64, 2, c->post) &&
           find(d, CUDNN_ATTR_CONVOLUTION_DILATIONS, CUDNN_TYPE_INT64, 2, c->dilation) &&
           find(d, CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES, CUDNN_TYPE_INT64, 2, c->stride);
}

/* What comes after it, from what c->dst was before to what it is now: each in the place of the one before. */
static bool add_pointwise(const descriptor *operation, convolution *c) {
    const descriptor *d = find_desc(operation, CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR);
    const tensor from = get_tensor(operation, CUDNN_ATTR_OPERATION_POINTWISE_XDESC);
    const tensor to = get_tensor(operation, CUDNN_ATTR_OPERATION_POINTWISE_YDESC);
    int32_t mode = -1, type = -1, propagation = -1;
    if (d == NULL || !find(d, CUDNN_ATTR_POINTWISE_MODE, CUDNN_TYPE_POINTWISE_MODE, 1, &mode) ||
        !find(d, CUDNN_ATTR_POINTWISE_MATH_PREC, CUDNN_TYPE_DATA_TYPE, 1, &type) || type != CUDNN_DATA_FLOAT ||
        from.id != c->dst.id || !from.is_virtual || to.id < 0 || c->relu ||
        memcmp(from.dims, to.dims, sizeof to.dims) != 0) {
        return false;
    }
    c->dst = to;
    if (mode == CUDNN_POINTWISE_ADD) {
        c->bias = get_tensor(operation, CUDNN_ATTR_OPERATION_POINTWISE_BDESC);
        return c->bias.id >= 0 && c->bias.dims[1] == to.dims[1] && c->bias.dims[0] * c->bias.dims[2] == 1 &&
               c->bias.dims[3] == 1;
    }
    c->relu = true;
    return mode == CUDNN_POINTWISE_RELU_FWD &&
           find(d, CUDNN_ATTR_POINTWISE_NAN_PROPAGATION, CUDNN_TYPE_NAN_PROPOGATION, 1, &propagation) &&
           propagation == CUDNN_PROPAGATE_NAN;
}

/* A graph's convolution with what comes after it. false: it is described wrongly. */
static bool get_graph(const descriptor *graph, convolution *c) {
    const descriptor *operation[3] = {NULL};
    int64_t n = 1;
    while (n <= 3 && !find(graph, CUDNN_ATTR_OPERATIONGRAPH_OPS, CUDNN_TYPE_BACKEND_DESCRIPTOR, n, (void *)operation)) {
        n++;
    }
    *c = (convolution){.bias = {.id = -1}};
    if (n > 3 || !get_convolution(operation[0], c)) { return false; }
    for (int64_t i = 1; i < n; i++) {
        if (!add_pointwise(operation[i], c)) { return false; }
    }
    return !c->dst.is_virtual;
}

static int64_t n_elements(const tensor *t) {
    return t->dims[0] * t->dims[1] * t->dims[2] * t->dims[3];
}

/* Dimensions that belong together, as the library demands them. */
static bool is_consistent(const convolution *c) {
    if (c->src.dims[0] != c->dst.dims[0] || c->weights.dims[0] != c->dst.dims[1]) { return false; }
    if (c->src.dims[1] % c->weights.dims[1] != 0) { return false; }
    for (int i = 0; i < 2; i++) {
        const int64_t extent = (c->weights.dims[2 + i] - 1) * c->dilation[i] + 1;
        const int64_t room = c->src.dims[2 + i] + c->pre[i] + c->post[i] - extent;
        if (room < 0 || room / c->stride[i] + 1 != c->dst.dims[2 + i]) { return false; }
    }
    return true;
}

static int64_t offset(const tensor *t, const int64_t at[4]) {
    return at[0] * t->strides[0] + at[1] * t->strides[1] + at[2] * t->strides[2] + at[3] * t->strides[3];
}

static void unravel(const tensor *t, int64_t i, int64_t at[4]) {
    for (int k = 3; k >= 0; k--) {
        at[k] = i % t->dims[k];
        i /= t->dims[k];
    }
}

/* All terms that dst element d has part in go where the output has their sum: by offset, tensors have no gaps. */
static void add_terms(const convolution *c, const int64_t d[4], double *sums) {
    const bool forward = c->type == CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR;
    const bool data = c->type == CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR;
    const int64_t n_groups = c->src.dims[1] / c->weights.dims[1], at = offset(&c->dst, d);
    const int64_t first = d[1] / (c->dst.dims[1] / n_groups) * c->weights.dims[1];
    const int64_t n_taps = c->weights.dims[2] * c->weights.dims[3];
    for (int64_t k = 0; k < n_taps; k++) {
        const int64_t ky = k / c->weights.dims[3], kx = k % c->weights.dims[3];
        const int64_t y = d[2] * c->stride[0] - c->pre[0] + ky * c->dilation[0];
        const int64_t x = d[3] * c->stride[1] - c->pre[1] + kx * c->dilation[1];
        if (y < 0 || y >= c->src.dims[2] || x < 0 || x >= c->src.dims[3]) { continue; }
        int64_t w = offset(&c->weights, (int64_t[]){d[1], 0, ky, kx});
        int64_t s = offset(&c->src, (int64_t[]){d[0], first, y, x});
        for (int64_t i = 0; i < c->weights.dims[1]; i++, w += c->weights.strides[1], s += c->src.strides[1]) {
            if (forward) {
                sums[at] += (double)c->src.at[s] * (double)c->weights.at[w];
            } else if (data) {
                sums[s] += (double)c->dst.at[at] * (double)c->weights.at[w];
            } else {
                sums[w] += (double)c->dst.at[at] * (double)c->src.at[s];
            }
        }
    }
}

/* One launch of one thread, in double, whichever side is the output. */
static void convolve(const void *args, uint64_t unused) {
    const conv_args *a = args;
    convolution c;
    int64_t d[4];
    (void)unused;
    if (!get_graph(a->graph, &c)) { abort(); }
    c.src.at = a->src, c.weights.at = a->weights, c.dst.at = a->dst;
    const bool forward = c.type == CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR;
    const bool data = c.type == CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR;
    const tensor *out = forward ? &c.dst : data ? &c.src : &c.weights;
    double *sums = calloc((size_t)n_elements(out), sizeof *sums);
    for (int64_t i = 0; c.adds && i < n_elements(out); i++) { sums[i] = (double)out->at[i]; }
    for (int64_t i = 0; i < n_elements(&c.dst); i++) {
        unravel(&c.dst, i, d);
        add_terms(&c, d, sums);
    }
    for (int64_t i = 0; i < n_elements(out); i++) {
        float x = (float)sums[i];
        if (c.bias.id >= 0) { x += a->bias[i / out->strides[1] % out->dims[1]]; }
        out->at[i] = a->nonsense ? 12345.0f : c.relu && x < 0.0f ? 0.0f : x;
    }
    free(sums);
}

/* ---- what descriptors tell --------------------------------------------------------------------- */

static int64_t workspace_of(const descriptor *plan) {
    const descriptor *config = find_desc(plan, CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG);
    convolution c;
    if (config->engine == 4) { return 0; }
    if (config->engine != 2) { return SMALL_WORKSPACE; }
    if (!get_graph(config->graph, &c)) { abort(); }
    return 8 * (n_elements(&c.src) + n_elements(&c.weights) + n_elements(&c.dst)) + 1;
}

typedef struct engines {
    int64_t n;
    int engine[6];
} engines;

static const engines first_list = {6, {0, 1, 2, 3, 5, 6}}, only_large = {2, {1, 2}}, fallbacks = {2, {2, 4}},
                     no_list = {0, {0}};

static const engines *list_of(const descriptor *heuristics) {
    int32_t mode = -1;
    if (!find(heuristics, CUDNN_ATTR_ENGINEHEUR_MODE, CUDNN_TYPE_HEUR_MODE, 1, &mode)) { abort(); }
    if (mode == CUDNN_HEUR_MODE_FALLBACK) { return &fallbacks; }
    return fake.no_small_engines ? &only_large : &first_list;
}

static cudnnStatus_t get_configs(const descriptor *heuristics, int64_t n_wanted, int64_t *n_out, descriptor **configs) {
    const descriptor *graph = find_desc(heuristics, CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH);
    convolution c;
    if (graph == NULL || !get_graph(graph, &c) || !is_consistent(&c)) { return CUDNN_STATUS_BAD_PARAM; }
    const engines *list = list_of(heuristics);
    if (fake.broken_list && list == &first_list) { return CUDNN_STATUS_EXECUTION_FAILED; }
    const bool tail = c.bias.id >= 0 || c.relu;
    if (fake.no_engines || (fake.no_tails && tail) || (fake.no_sums && c.adds)) { list = &no_list; }
    *n_out = list->n;
    for (int64_t i = 0; i < n_wanted && i < list->n; i++) {
        if (configs[i]->type != CUDNN_BACKEND_ENGINECFG_DESCRIPTOR) { return CUDNN_STATUS_BAD_PARAM; }
        configs[i]->engine = list->engine[i];
        configs[i]->graph = graph;
        configs[i]->finalized = true;
    }
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnBackendGetAttribute(cudnnBackendDescriptor_t const desc, cudnnBackendAttributeName_t name,
                                       cudnnBackendAttributeType_t type, int64_t n_wanted, int64_t *n_out,
                                       void *values) {
    const descriptor *d = desc;
    DNN_CALL();
    if (!d->finalized) { return CUDNN_STATUS_BAD_PARAM_NOT_FINALIZED; }
    if (name == CUDNN_ATTR_ENGINEHEUR_RESULTS) { return get_configs(d, n_wanted, n_out, values); }
    *n_out = 1;
    if (name == CUDNN_ATTR_ENGINECFG_ENGINE && n_wanted == 1) {
        descriptor *engine = *(descriptor **)values;
        engine->engine = d->engine;
        engine->finalized = true;
        return CUDNN_STATUS_SUCCESS;
    }
    if (name == CUDNN_ATTR_ENGINE_GLOBAL_INDEX && type == CUDNN_TYPE_INT64 && n_wanted == 1) {
        *(int64_t *)values = d->engine;
        *n_out = 1;
        return CUDNN_STATUS_SUCCESS;
    }
    if (name == CUDNN_ATTR_ENGINE_NUMERICAL_NOTE && type == CUDNN_TYPE_NUMERICAL_NOTE) {
        const cudnnBackendNumericalNote_t note = d->engine == 0   ? CUDNN_NUMERICAL_NOTE_TENSOR_CORE
                                                 : d->engine == 1 ? CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC
                                                                  : CUDNN_NUMERICAL_NOTE_DOWN_CONVERT_INPUTS;
        *n_out = d->engine < 2 || d->engine == 6;
        if (*n_out > 0) { memcpy(values, &note, sizeof note); }
        return CUDNN_STATUS_SUCCESS;
    }
    if (name == CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE && type == CUDNN_TYPE_INT64) {
        const int64_t n_bytes = workspace_of(d);
        memcpy(values, &n_bytes, sizeof n_bytes);
        return CUDNN_STATUS_SUCCESS;
    }
    return CUDNN_STATUS_BAD_PARAM;
}

cudnnStatus_t cudnnBackendExecute(cudnnHandle_t handle, cudnnBackendDescriptor_t plan, cudnnBackendDescriptor_t pack) {
    const descriptor *p = plan, *v = pack;
    int64_t ids[4] = {0};
    float *at[4] = {NULL}, *by_id[5] = {NULL};
    void *workspace = NULL;
    DNN_CALL();
    if (!p->finalized || !v->finalized) { return CUDNN_STATUS_BAD_PARAM_NOT_FINALIZED; }
    const descriptor *config = find_desc(p, CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG);
    conv_args args = {.graph = config->graph, .nonsense = config->engine < 2 || config->engine == 6};
    convolution c;
    if (!get_graph(args.graph, &c)) { return CUDNN_STATUS_BAD_PARAM; }
    const int64_t n = c.bias.id >= 0 ? 4 : 3; /* as many as there are tensors in memory */
    if (!find(v, CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, CUDNN_TYPE_INT64, n, ids) ||
        !find(v, CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, CUDNN_TYPE_VOID_PTR, n, (void *)at) ||
        !find(v, CUDNN_ATTR_VARIANT_PACK_WORKSPACE, CUDNN_TYPE_VOID_PTR, 1, (void *)&workspace)) {
        return CUDNN_STATUS_BAD_PARAM;
    }
    for (int64_t i = 0; i < n; i++) {
        if (ids[i] < 0 || ids[i] > 4) { return CUDNN_STATUS_BAD_PARAM; }
        by_id[ids[i]] = at[i];
    }
    if (c.src.id > 4 || c.weights.id > 4 || c.dst.id > 4 || c.bias.id > 4) { return CUDNN_STATUS_BAD_PARAM; }
    args.src = by_id[c.src.id], args.weights = by_id[c.weights.id], args.dst = by_id[c.dst.id];
    args.bias = c.bias.id >= 0 ? by_id[c.bias.id] : NULL;
    cudaError_t error = fake_spoil(handle->stream, workspace, (uint64_t)workspace_of(p));
    if (error == cudaSuccess) { error = ebb__cuda_each_on_host(handle->stream, convolve, &args, sizeof args, 1); }
    return error == cudaSuccess ? CUDNN_STATUS_SUCCESS : CUDNN_STATUS_EXECUTION_FAILED_CUDART;
}
