/* SPDX-License-Identifier: Apache-2.0
 *
 * cuBLASLt as the fake has it: products of float32 matrices that count columns first, by the rules of its header, with
 * a workspace that is written all over. It knows nothing of speed.
 */
#include "fake_priv.h"

#include <cublasLt.h>

#define BLAS_CALL()                                                                                                    \
    do {                                                                                                               \
        if (fake_begin(__func__) != cudaSuccess) { return CUBLAS_STATUS_INTERNAL_ERROR; }                              \
    } while (0)

/* Those that it has, in its order: their workspaces, and whether they can run. With a limit of 0 only the last. */
enum { FIRST_ALGORITHM = 4711, N_ALGORITHMS = 4 };
static const size_t workspaces[N_ALGORITHMS] = {1000, 10, 2000, 0};
static const bool can_run[N_ALGORITHMS] = {true, false, true, true};

/* Of a product: what desc->data has where. */
enum { TURN_A, TURN_B, EPILOGUE, BIAS };

typedef struct product_args {
    const float *a, *b, *bias; /* bias NULL: none */
    float *d;
    int64_t lda, ldb, ldd;
    uint64_t n_rows, n_inner;
    bool turn_a, turn_b;
} product_args;

static void *make_object(size_t n_bytes) {
    fake.n_live++;
    return calloc(1, n_bytes);
}

static cublasStatus_t drop_object(void *object) {
    fake.n_live--;
    free(object);
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtCreate(cublasLtHandle_t *handle_out) {
    BLAS_CALL();
    *handle_out = make_object(1);
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtDestroy(cublasLtHandle_t handle) {
    return drop_object(handle);
}

size_t cublasLtGetVersion(void) {
    return fake.blas_version;
}

const char *cublasLtGetStatusString(cublasStatus_t status) {
    return status == CUBLAS_STATUS_SUCCESS ? "success" : "failure";
}

cublasStatus_t cublasLtMatmulDescCreate(cublasLtMatmulDesc_t *desc_out, cublasComputeType_t compute,
                                        cudaDataType_t scale) {
    BLAS_CALL();
    if ((compute != CUBLAS_COMPUTE_32F && compute != CUBLAS_COMPUTE_32F_FAST_TF32) || scale != CUDA_R_32F) {
        return CUBLAS_STATUS_NOT_SUPPORTED;
    }
    *desc_out = make_object(sizeof **desc_out);
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulDescDestroy(cublasLtMatmulDesc_t desc) {
    return drop_object(desc);
}

cublasStatus_t cublasLtMatmulDescSetAttribute(cublasLtMatmulDesc_t desc, cublasLtMatmulDescAttributes_t name,
                                              const void *value, size_t n_bytes) {
    BLAS_CALL();
    uint32_t number = 0;
    if (n_bytes != (name == CUBLASLT_MATMUL_DESC_BIAS_POINTER ? sizeof(void *) : sizeof number)) {
        return CUBLAS_STATUS_INVALID_VALUE;
    }
    memcpy(name == CUBLASLT_MATMUL_DESC_BIAS_POINTER ? (void *)&desc->data[BIAS] : (void *)&number, value, n_bytes);
    switch (name) {
    case CUBLASLT_MATMUL_DESC_TRANSA: desc->data[TURN_A] = number == CUBLAS_OP_T; break;
    case CUBLASLT_MATMUL_DESC_TRANSB: desc->data[TURN_B] = number == CUBLAS_OP_T; break;
    case CUBLASLT_MATMUL_DESC_EPILOGUE: desc->data[EPILOGUE] = number; break;
    case CUBLASLT_MATMUL_DESC_BIAS_POINTER: break;
    default: return CUBLAS_STATUS_INVALID_VALUE;
    }
    return CUBLAS_STATUS_SUCCESS;
}

/* data: rows, columns, from one column to the next. */
cublasStatus_t cublasLtMatrixLayoutCreate(cublasLtMatrixLayout_t *layout_out, cudaDataType type, uint64_t n_rows,
                                          uint64_t n_columns, int64_t ld) {
    BLAS_CALL();
    if (type != CUDA_R_32F || ld < (int64_t)n_rows) { return CUBLAS_STATUS_INVALID_VALUE; }
    *layout_out = make_object(sizeof **layout_out);
    (*layout_out)->data[0] = n_rows;
    (*layout_out)->data[1] = n_columns;
    (*layout_out)->data[2] = (uint64_t)ld;
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatrixLayoutDestroy(cublasLtMatrixLayout_t layout) {
    return drop_object(layout);
}

cublasStatus_t cublasLtMatmulPreferenceCreate(cublasLtMatmulPreference_t *preference_out) {
    BLAS_CALL();
    *preference_out = make_object(sizeof **preference_out);
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulPreferenceDestroy(cublasLtMatmulPreference_t preference) {
    return drop_object(preference);
}

cublasStatus_t cublasLtMatmulPreferenceSetAttribute(cublasLtMatmulPreference_t preference,
                                                    cublasLtMatmulPreferenceAttributes_t name, const void *value,
                                                    size_t n_bytes) {
    BLAS_CALL();
    const bool limit = name == CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES;
    if (n_bytes != (limit ? sizeof(uint64_t) : sizeof(uint32_t))) { return CUBLAS_STATUS_INVALID_VALUE; }
    if (limit) { memcpy(&preference->data[0], value, n_bytes); }
    return CUBLAS_STATUS_SUCCESS;
}

static uint64_t side(const cublasLtMatmulDesc_t desc, const cublasLtMatrixLayout_t layout, int which, int idx) {
    return layout->data[desc->data[which] != 0 ? 1 - idx : idx];
}

static bool fit(const cublasLtMatmulDesc_t desc, cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b,
                cublasLtMatrixLayout_t d) {
    return side(desc, a, 0, 0) == d->data[0] && side(desc, b, 1, 1) == d->data[1] &&
           side(desc, a, 0, 1) == side(desc, b, 1, 0);
}

cublasStatus_t cublasLtMatmulAlgoGetHeuristic(cublasLtHandle_t handle, cublasLtMatmulDesc_t desc,
                                              cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b,
                                              cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d,
                                              cublasLtMatmulPreference_t preference, int n_wanted,
                                              cublasLtMatmulHeuristicResult_t results[], int *n_out) {
    (void)handle;
    BLAS_CALL();
    if (!fit(desc, a, b, d) || c != d || n_wanted < 1) { return CUBLAS_STATUS_INVALID_VALUE; }
    *n_out = 0;
    if (fake.no_epilogues && desc->data[EPILOGUE] == CUBLASLT_EPILOGUE_BIAS) { return CUBLAS_STATUS_NOT_SUPPORTED; }
    for (int i = preference->data[0] == 0 ? N_ALGORITHMS - 1 : 0; i < N_ALGORITHMS && *n_out < n_wanted; i++) {
        if (preference->data[0] > 0 && i == N_ALGORITHMS - 1) { break; }
        cublasLtMatmulHeuristicResult_t *result = &results[(*n_out)++];
        memset(result, 0, sizeof *result);
        result->algo.data[0] = FIRST_ALGORITHM + (uint64_t)i;
        result->workspaceSize = workspaces[i];
        result->state = can_run[i] ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_ARCH_MISMATCH;
    }
    return CUBLAS_STATUS_SUCCESS;
}

static void multiply(const void *args, uint64_t i) {
    const product_args *p = args;
    const int64_t row = (int64_t)(i % p->n_rows), column = (int64_t)(i / p->n_rows);
    double sum = 0.0;
    for (int64_t k = 0; k < (int64_t)p->n_inner; k++) {
        const float a = p->turn_a ? p->a[k + row * p->lda] : p->a[row + k * p->lda];
        const float b = p->turn_b ? p->b[column + k * p->ldb] : p->b[k + column * p->ldb];
        sum += (double)a * (double)b;
    }
    p->d[row + column * p->ldd] = (float)sum + (p->bias != NULL ? p->bias[row] : 0.0f);
}

cublasStatus_t cublasLtMatmul(cublasLtHandle_t handle, cublasLtMatmulDesc_t desc, const void *alpha, const void *a,
                              cublasLtMatrixLayout_t a_layout, const void *b, cublasLtMatrixLayout_t b_layout,
                              const void *beta, const void *c, cublasLtMatrixLayout_t c_layout, void *d,
                              cublasLtMatrixLayout_t d_layout, const cublasLtMatmulAlgo_t *algo, void *workspace,
                              size_t workspace_bytes, cudaStream_t stream) {
    const float one = 1.0f, zero = 0.0f;
    const bool has_bias = desc->data[EPILOGUE] == CUBLASLT_EPILOGUE_BIAS;
    const uint64_t number = algo->data[0] - FIRST_ALGORITHM;
    const product_args args = {.a = a,
                               .b = b,
                               .bias = has_bias ? (const float *)(uintptr_t)desc->data[BIAS] : NULL,
                               .d = d,
                               .lda = (int64_t)a_layout->data[2],
                               .ldb = (int64_t)b_layout->data[2],
                               .ldd = (int64_t)d_layout->data[2],
                               .n_rows = d_layout->data[0],
                               .n_inner = side(desc, a_layout, 0, 1),
                               .turn_a = desc->data[0] != 0,
                               .turn_b = desc->data[1] != 0};
    (void)handle;
    BLAS_CALL();
    const bool plain = memcmp(alpha, &one, sizeof one) == 0 && memcmp(beta, &zero, sizeof zero) == 0 && c == d;
    if (!plain || c_layout != d_layout || !fit(desc, a_layout, b_layout, d_layout)) {
        return CUBLAS_STATUS_INVALID_VALUE;
    }
    if (number >= N_ALGORITHMS || !can_run[number] || workspace_bytes < workspaces[number] ||
        (has_bias && args.bias == NULL)) {
        return CUBLAS_STATUS_INVALID_VALUE;
    }
    if (fake_spoil(stream, workspace, workspace_bytes) != cudaSuccess) { return CUBLAS_STATUS_EXECUTION_FAILED; }
    cudaError_t error =
        ebb__cuda_each_on_host(stream, multiply, &args, sizeof args, d_layout->data[0] * d_layout->data[1]);
    return error == cudaSuccess ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_EXECUTION_FAILED;
}
