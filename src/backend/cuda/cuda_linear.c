/* SPDX-License-Identifier: Apache-2.0
 *
 * Fully connected layers by cuBLASLt. It counts columns first, so a row-major (n, m) is its (m, n) without a copy:
 *
 *                 D (first)           A                      B
 *   forward       dst      (O, N)   weights  (I, O), turned   src      (I, N)
 *   bwd_data      diff_src (I, N)   weights  (I, O)           diff_dst (O, N)
 *   bwd_weights   diff_w   (I, O)   src      (I, N)           diff_dst (O, N), turned
 *
 * The algorithms are the library's for the shapes, in its order, each with a workspace that counts as scratch; one that
 * needs none is among them if the library has one. Sums that are split are added from the workspace, in order, unless
 * the device was opened for what is not deterministic. A bias without a ReLU is the product's epilogue. With a ReLU
 * both are an own kernel's: the library does not say that its ReLU leaves a NaN as it is, and a training that diverges
 * must not go on as if nothing had happened. The bias's gradient is an own kernel's, too. The library's calls have
 * never run on a GPU.
 */
#include "backend/cuda/cuda_library.h"
#include "backend/cuda/cuda_sums.h"

#define WORKSPACE_LIMIT_BYTES ((uint64_t)32 << 20) /* what the library asks for on the largest GPUs */
#define MAX_ALGORITHMS 8

typedef struct product {
    cublasLtHandle_t handle;
    cublasLtMatmulDesc_t desc;
    cublasLtMatrixLayout_t a, b, d;
    cublasLtMatmulAlgo_t algo;
    size_t workspace_bytes;
    bool adds_bias;               /* as its epilogue */
    uint32_t a_idx, b_idx, d_idx; /* operands */
    uint64_t batch, n_in, n_out;
} product;

/* (n_rows, n_columns), columns first, without gaps; which of them the product takes turned. */
typedef struct matrix {
    uint64_t n_rows, n_columns;
    cublasOperation_t op;
} matrix;

static void destroy_product(const ebb_cuda_kernel *kernel) {
    product *p = kernel->extra;
    if (p == NULL) { return; }
    if (p->d != NULL) { (void)cublasLtMatrixLayoutDestroy(p->d); }
    if (p->b != NULL) { (void)cublasLtMatrixLayoutDestroy(p->b); }
    if (p->a != NULL) { (void)cublasLtMatrixLayoutDestroy(p->a); }
    if (p->desc != NULL) { (void)cublasLtMatmulDescDestroy(p->desc); }
    ebb__free(kernel->mem, p);
}

/* ---- making them ------------------------------------------------------------------------------- */

static ebb_status describe_product(const ebb_cuda_device *device, const char *op, const matrix m[3], product *p) {
    const cublasComputeType_t compute = device->tf32 ? CUBLAS_COMPUTE_32F_FAST_TF32 : CUBLAS_COMPUTE_32F;
    const int32_t op_a = (int32_t)m[0].op, op_b = (int32_t)m[1].op; /* the attribute has four bytes */
    EBB_CUDA_BLAS(op, cublasLtMatmulDescCreate, &p->desc, compute, CUDA_R_32F);
    EBB_CUDA_BLAS(op, cublasLtMatmulDescSetAttribute, p->desc, CUBLASLT_MATMUL_DESC_TRANSA, &op_a, sizeof op_a);
    EBB_CUDA_BLAS(op, cublasLtMatmulDescSetAttribute, p->desc, CUBLASLT_MATMUL_DESC_TRANSB, &op_b, sizeof op_b);
    cublasLtMatrixLayout_t *const layouts[] = {&p->a, &p->b, &p->d};
    for (int i = 0; i < 3; i++) {
        EBB_CUDA_BLAS(op, cublasLtMatrixLayoutCreate, layouts[i], CUDA_R_32F, m[i].n_rows, m[i].n_columns,
                      (int64_t)m[i].n_rows);
    }
    return EBB_OK;
}

static ebb_status set_epilogue(const char *op, cublasLtEpilogue_t epilogue, product *p) {
    const uint32_t value = (uint32_t)epilogue; /* the attribute has four bytes */
    EBB_CUDA_BLAS(op, cublasLtMatmulDescSetAttribute, p->desc, CUBLASLT_MATMUL_DESC_EPILOGUE, &value, sizeof value);
    p->adds_bias = epilogue == CUBLASLT_EPILOGUE_BIAS;
    return EBB_OK;
}

/* ---- algorithms -------------------------------------------------------------------------------- */

typedef struct algorithms {
    cublasLtMatmulHeuristicResult_t of[MAX_ALGORITHMS];
    int n;
} algorithms;

static ebb_status set_preference(const ebb_cuda_device *device, const char *op, uint64_t limit_bytes,
                                 cublasLtMatmulPreference_t preference) {
    const uint32_t schemes =
        device->nondeterministic ? CUBLASLT_REDUCTION_SCHEME_MASK : CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE;
    EBB_CUDA_BLAS(op, cublasLtMatmulPreferenceSetAttribute, preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES,
                  &limit_bytes, sizeof limit_bytes);
    EBB_CUDA_BLAS(op, cublasLtMatmulPreferenceSetAttribute, preference, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK,
                  &schemes, sizeof schemes);
    return EBB_OK;
}

/* Up to n_wanted more. The library marks those of its list that cannot run. */
static ebb_status ask(const char *op, cublasLtMatmulPreference_t preference, const product *p, int n_wanted,
                      algorithms *all) {
    cublasLtMatmulHeuristicResult_t results[MAX_ALGORITHMS];
    int n = 0;
    EBB_CUDA_BLAS(op, cublasLtMatmulAlgoGetHeuristic, p->handle, p->desc, p->a, p->b, p->d, p->d, preference, n_wanted,
                  results, &n);
    for (int i = 0; i < n; i++) {
        if (results[i].state == CUBLAS_STATUS_SUCCESS) { all->of[all->n++] = results[i]; }
    }
    return EBB_OK;
}

static ebb_status add_within(const ebb_cuda_device *device, const char *op, const product *p, uint64_t limit_bytes,
                             int n_wanted, algorithms *all) {
    cublasLtMatmulPreference_t preference = NULL;
    EBB_CUDA_BLAS(op, cublasLtMatmulPreferenceCreate, &preference);
    ebb_status st = set_preference(device, op, limit_bytes, preference);
    if (st == EBB_OK) { st = ask(op, preference, p, n_wanted, all); }
    (void)cublasLtMatmulPreferenceDestroy(preference);
    return st == EBB_E_UNSUPPORTED ? EBB_OK : st; /* so it has none */
}

static bool has_small(const algorithms *all) {
    for (int i = 0; i < all->n; i++) {
        if (all->of[i].workspaceSize == 0) { return true; }
    }
    return false;
}

static ebb_status find_algorithms(const ebb_cuda_device *device, const char *op, const product *p, algorithms *all) {
    EBB_TRY(add_within(device, op, p, WORKSPACE_LIMIT_BYTES, MAX_ALGORITHMS - 1, all));
    return has_small(all) ? EBB_OK : add_within(device, op, p, 0, 1, all);
}

/* Without an algorithm of the library that has an epilogue, the bias is a pass of its own. */
static ebb_status choose_algorithm(const ebb_cuda_device *device, const char *op, bool with_bias, uint32_t choice,
                                   ebb_cuda_kernel *kernel) {
    product *p = kernel->extra;
    algorithms all = {.n = 0};
    if (with_bias) {
        EBB_TRY(set_epilogue(op, CUBLASLT_EPILOGUE_BIAS, p));
        EBB_TRY(find_algorithms(device, op, p, &all));
        if (all.n == 0) { EBB_TRY(set_epilogue(op, CUBLASLT_EPILOGUE_DEFAULT, p)); }
    }
    if (all.n == 0) { EBB_TRY(find_algorithms(device, op, p, &all)); }
    if (all.n == 0) { return ebb__cuda_fail_blas(CUBLAS_STATUS_NOT_SUPPORTED, op, "cublasLtMatmulAlgoGetHeuristic"); }
    kernel->base.n_choices = (uint32_t)all.n;
    if (choice >= kernel->base.n_choices) { return EBB_OK; } /* refused by who called */
    p->algo = all.of[choice].algo;
    p->workspace_bytes = all.of[choice].workspaceSize;
    return EBB_OK;
}

static void shape_product(const ebb_kernel_desc *desc, product *p, matrix m[3]) {
    const ebb_operand *weights =
        desc->kind == EBB_OP_LINEAR_BWD_WEIGHTS ? ebb__kernel_out(desc, 0) : ebb__kernel_in(desc, 1);
    p->n_out = (uint64_t)weights->shape.dims[0];
    p->n_in = (uint64_t)weights->shape.dims[1];
    p->batch = (uint64_t)desc->operand[0].shape.dims[0];
    p->d_idx = desc->n_in;
    const matrix src = {p->n_in, p->batch, CUBLAS_OP_N}, dst = {p->n_out, p->batch, CUBLAS_OP_N};
    const matrix w = {p->n_in, p->n_out, CUBLAS_OP_N};
    if (desc->kind == EBB_OP_LINEAR_BWD_WEIGHTS) {
        p->a_idx = 0, p->b_idx = 1;
        m[0] = src, m[1] = dst, m[2] = w;
        m[1].op = CUBLAS_OP_T;
        return;
    }
    const bool forward = desc->kind == EBB_OP_LINEAR;
    p->a_idx = 1, p->b_idx = 0;
    m[0] = w, m[1] = forward ? src : dst, m[2] = forward ? dst : src;
    m[0].op = forward ? CUBLAS_OP_T : CUBLAS_OP_N;
}

/* ---- running them ------------------------------------------------------------------------------ */

static ebb_status multiply(const ebb_bound *bound, const product *p, const char *op, cudaStream_t stream) {
    static const float one = 1.0f, zero = 0.0f;
    void *d = bound->at[p->d_idx];
    EBB_CUDA_BLAS(op, cublasLtMatmul, p->handle, p->desc, &one, bound->at[p->a_idx], p->a, bound->at[p->b_idx], p->b,
                  &zero, d, p->d, d, p->d, &p->algo, p->workspace_bytes > 0 ? bound->scratch : NULL, p->workspace_bytes,
                  stream);
    return EBB_OK;
}

static ebb_status run_linear(const ebb_cuda_kernel *kernel, const ebb_bound *bound, cudaStream_t stream) {
    const product *p = kernel->extra;
    const ebb_cuda_bias_args args = {.x = bound->at[p->d_idx],
                                     .bias = kernel->n_in > 2 ? bound->at[2] : NULL,
                                     .n = p->batch * p->n_out,
                                     .c = p->n_out,
                                     .relu = kernel->attr.relu != 0};
    if (p->adds_bias) {
        EBB_CUDA_BLAS("linear", cublasLtMatmulDescSetAttribute, p->desc, CUBLASLT_MATMUL_DESC_BIAS_POINTER, &args.bias,
                      sizeof args.bias);
    }
    EBB_TRY(multiply(bound, p, "linear", stream));
    if (p->adds_bias || (args.bias == NULL && !args.relu)) { return EBB_OK; }
    EBB_CUDA(ebb__cuda_launch_bias(stream, &args), "linear");
    return EBB_OK;
}

static ebb_status run_bwd_data(const ebb_cuda_kernel *kernel, const ebb_bound *bound, cudaStream_t stream) {
    return multiply(bound, kernel->extra, "linear_bwd_data", stream);
}

/* The workspace is free again when the product is done, so the bias's sums lie in it. */
static ebb_status run_bwd_weights(const ebb_cuda_kernel *kernel, const ebb_bound *bound, cudaStream_t stream) {
    const product *p = kernel->extra;
    EBB_TRY(multiply(bound, p, "linear_bwd_weights", stream));
    if (kernel->n_out < 2) { return EBB_OK; }
    return ebb__cuda_sum_rows(stream, bound->at[1], p->batch, p->n_out, bound->scratch, bound->tickets, bound->at[3]);
}

ebb_status ebb__cuda_make_linear(ebb_cuda_device *device, const ebb_kernel_desc *desc, ebb_cuda_kernel *kernel) {
    const char *op = ebb__op_name(desc->kind);
    matrix m[3];
    product *p = ebb__calloc(kernel->mem, 1, sizeof *p);
    if (p == NULL) { return EBB_E_NO_MEMORY; }
    kernel->extra = p;
    kernel->extra_destroy = destroy_product;
    kernel->base.algorithm = "cublasLt";
    switch (desc->kind) {
    case EBB_OP_LINEAR: kernel->run = run_linear; break;
    case EBB_OP_LINEAR_BWD_DATA: kernel->run = run_bwd_data; break;
    default: kernel->run = run_bwd_weights; break;
    }
    EBB_TRY(ebb__kernel_all_plain(&device->base, desc, kernel->layout));
    EBB_TRY(ebb__cuda_blas(device, op, &p->handle));
    shape_product(desc, p, m);
    EBB_TRY(describe_product(device, op, m, p));
    const bool with_bias = desc->kind == EBB_OP_LINEAR && desc->n_in > 2 && desc->attr.relu == 0;
    EBB_TRY(choose_algorithm(device, op, with_bias, desc->choice, kernel));
    kernel->base.scratch_bytes = p->workspace_bytes;
    if (desc->kind == EBB_OP_LINEAR_BWD_WEIGHTS && desc->n_out > 1) {
        kernel->base.scratch_bytes = ebb_max_u64(p->workspace_bytes, ebb__cuda_sums_bytes(p->batch, p->n_out));
        kernel->adds_rows = true;
    }
    return EBB_OK;
}
