/* SPDX-License-Identifier: Apache-2.0
 *
 * Sums over rows that take several levels, against sums in double; that nothing after the room that was asked for is
 * written; and a loss of an invalid label.
 */
#include "backend/cuda/cuda_each.h"
#include "backend/cuda/cuda_sums.h"
#include "fake_cuda.h"
#include "support.h"

#include <math.h>
#include <stdlib.h>

enum { GUARD = 64 };

static void sum_and_check(uint64_t n_rows, uint64_t c, cudaStream_t stream) {
    const uint64_t n_bytes = ebb__cuda_fold_bytes(ebb__cuda_chunks(n_rows), c);
    float *x = malloc(n_rows * c * sizeof *x), *dst = calloc(c, sizeof *dst);
    unsigned char *scratch = malloc(n_bytes + GUARD);
    ebb_rng rng;
    ebb__rng_init(&rng, 17, n_rows);
    for (uint64_t i = 0; i < n_rows * c; i++) { x[i] = ebb__rng_normal(&rng) + (float)(i % c); }
    memset(scratch + n_bytes, 0x5a, GUARD);
    assert_int_equal(ebb__cuda_sum_rows(stream, x, n_rows, c, scratch, dst), EBB_OK);
    assert_int_equal(cudaStreamSynchronize(stream), cudaSuccess);
    for (uint64_t k = 0; k < c; k++) {
        double sum = 0.0, size = 0.0;
        for (uint64_t r = 0; r < n_rows; r++) { sum += (double)x[r * c + k], size += fabs((double)x[r * c + k]); }
        assert_true(fabs((double)dst[k] - sum) <= 2e-6 * size);
    }
    for (int i = 0; i < GUARD; i++) { assert_int_equal(scratch[n_bytes + (uint64_t)i], 0x5a); }
    free(scratch);
    free(dst);
    free(x);
}

static void sums_of_several_levels(void **state) {
    (void)state;
    const uint64_t chunk = EBB_CUDA_CHUNK_ROWS, fold = EBB_CUDA_FOLD;
    const uint64_t n_rows[] = {1, chunk, chunk + 1, chunk * fold, chunk * fold + 1, chunk * fold * 3 + 5};
    cudaStream_t stream = NULL;
    fake_cuda_reset(3);
    assert_int_equal(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), cudaSuccess);
    for (size_t i = 0; i < sizeof n_rows / sizeof n_rows[0]; i++) {
        sum_and_check(n_rows[i], 1, stream);
        sum_and_check(n_rows[i], 3, stream);
    }
    sum_and_check(chunk * fold * fold + 1, 1, stream); /* three levels */
    assert_int_equal(cudaStreamDestroy(stream), cudaSuccess);
}

static void a_label_that_is_none(void **state) {
    (void)state;
    enum { CLASSES = 40 };
    static const int32_t labels[] = {3, -1, CLASSES};
    static float logits[3 * CLASSES], probabilities[3 * CLASSES];
    static ebb_cuda_largest largest[3 * EBB_CUDA_LANES];
    static double exp_sums[3 * EBB_CUDA_LANES];
    ebb_cuda_pair rows[3];
    cudaStream_t stream = NULL;
    fake_cuda_reset(5);
    assert_int_equal(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), cudaSuccess);
    const ebb_cuda_loss_args args = {.logits = logits,
                                     .labels = labels,
                                     .probabilities = probabilities,
                                     .largest = largest,
                                     .exp_sums = exp_sums,
                                     .rows = rows,
                                     .n_classes = CLASSES};
    assert_int_equal(ebb__cuda_launch_loss_largest(stream, &args, 3 * EBB_CUDA_LANES), cudaSuccess);
    assert_int_equal(ebb__cuda_launch_loss_sums(stream, &args, 3 * EBB_CUDA_LANES), cudaSuccess);
    assert_int_equal(ebb__cuda_launch_loss_rows(stream, &args, 3 * EBB_CUDA_LANES), cudaSuccess);
    assert_int_equal(cudaStreamSynchronize(stream), cudaSuccess);
    assert_true(fabs(rows[0].a - log(CLASSES)) < 1e-12);
    assert_true(isnan(rows[1].a) && isnan(rows[2].a));
    assert_true(rows[0].b < 0.5 && rows[1].b < 0.5 && rows[2].b < 0.5); /* the first of equal ones is 0 */
    assert_int_equal(cudaStreamDestroy(stream), cudaSuccess);
}

enum { N_ELEMENTS = 1000 };

typedef struct visits {
    uint64_t *order, *n;
} visits;

static void visit(const void *args, uint64_t i) {
    const visits *v = args;
    v->order[(*v->n)++] = i;
}

/* The fake runs each element once, in no order that a kernel could rely on. */
static void elements_come_in_any_order(void **state) {
    (void)state;
    uint64_t order[2][N_ELEMENTS], n = 0, n_neighbours = 0;
    for (int seed = 0; seed < 2; seed++) {
        bool seen[N_ELEMENTS] = {false};
        cudaStream_t stream = NULL;
        const visits v = {order[seed], &n};
        n = 0;
        fake_cuda_reset((uint64_t)seed + 1);
        assert_int_equal(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), cudaSuccess);
        assert_int_equal(ebb__cuda_each_on_host(stream, visit, &v, sizeof v, N_ELEMENTS), cudaSuccess);
        assert_int_equal(cudaStreamSynchronize(stream), cudaSuccess);
        assert_int_equal(cudaStreamDestroy(stream), cudaSuccess);
        assert_int_equal(n, N_ELEMENTS);
        for (int i = 0; i < N_ELEMENTS; i++) {
            assert_false(seen[order[seed][i]]);
            seen[order[seed][i]] = true;
            n_neighbours += i > 0 && order[seed][i] == order[seed][i - 1] + 1;
        }
    }
    assert_true(n_neighbours < N_ELEMENTS / 10);
    assert_memory_not_equal(order[0], order[1], sizeof order[0]);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sums_of_several_levels),
        cmocka_unit_test(a_label_that_is_none),
        cmocka_unit_test(elements_come_in_any_order),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
