/* SPDX-License-Identifier: Apache-2.0
 *
 * Sums over rows, of one block and of many, against sums in double: the same bits whatever the order of blocks, tickets
 * back at 0, and nothing written after the room that was asked for. And a loss of an invalid label.
 */
#include "backend/cuda/cuda_each.h"
#include "backend/cuda/cuda_sums.h"
#include "fake_cuda.h"
#include "support.h"

#include <math.h>
#include <stdlib.h>

enum { GUARD = 64 };

static unsigned tickets[EBB_CUDA_MAX_TICKETS];

static void sum_and_check(uint64_t n_rows, uint64_t c, cudaStream_t stream) {
    const uint64_t n_bytes = ebb__cuda_sums_bytes(n_rows, c);
    float *x = malloc(n_rows * c * sizeof *x), *dst = calloc(2 * c, sizeof *dst);
    unsigned char *scratch = malloc(n_bytes + GUARD);
    ebb_rng rng;
    ebb__rng_init(&rng, 17, n_rows);
    for (uint64_t i = 0; i < n_rows * c; i++) { x[i] = ebb__rng_normal(&rng) + (float)(i % c); }
    memset(scratch + n_bytes, 0x5a, GUARD);
    for (int turn = 0; turn < 2; turn++) { /* another order of blocks each, the same bits */
        assert_int_equal(ebb__cuda_sum_rows(stream, x, n_rows, c, scratch, tickets, dst + (uint64_t)turn * c), EBB_OK);
        assert_int_equal(cudaStreamSynchronize(stream), cudaSuccess);
    }
    assert_memory_equal(dst, dst + c, c * sizeof *dst);
    for (uint64_t k = 0; k < c; k++) {
        double sum = 0.0, size = 0.0;
        for (uint64_t r = 0; r < n_rows; r++) { sum += (double)x[r * c + k], size += fabs((double)x[r * c + k]); }
        assert_true(fabs((double)dst[k] - sum) <= 2e-6 * size);
    }
    for (int i = 0; i < GUARD; i++) { assert_int_equal(scratch[n_bytes + (uint64_t)i], 0x5a); }
    for (unsigned i = 0; i < EBB_CUDA_MAX_TICKETS; i++) { assert_int_equal(tickets[i], 0); }
    free(scratch);
    free(dst);
    free(x);
}

static void sums_of_one_part_and_of_many(void **state) {
    (void)state;
    const uint64_t n_rows[] = {1, 2, 31, 32, 33, 127, 128, 129, 1000, 4099, 40000};
    const uint64_t n_channels[] = {1, 3, 4, 6, 8, 12, 32, 33, 36, 68};
    cudaStream_t stream = NULL;
    fake_cuda_reset(3);
    assert_int_equal(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), cudaSuccess);
    for (size_t i = 0; i < sizeof n_rows / sizeof n_rows[0]; i++) {
        for (size_t k = 0; k < sizeof n_channels / sizeof n_channels[0]; k++) {
            sum_and_check(n_rows[i], n_channels[k], stream);
        }
    }
    sum_and_check(9, 20000, stream);   /* more groups than blocks are wanted */
    sum_and_check(1500000, 1, stream); /* as many parts as there may be, chains of several */
    assert_int_equal(cudaStreamDestroy(stream), cudaSuccess);
}

/* A run's tickets are enough for every group of more than one part, and scratch does not grow with the rows. */
static void parts_are_bounded(void **state) {
    (void)state;
    for (uint64_t c = 1; c < 100000; c = c * 5 / 4 + 1) {
        const ebb_cuda_sums_args args = ebb__cuda_sums(NULL, (uint64_t)1 << 40, c, NULL, NULL);
        assert_true(args.n_parts == 1 || args.n_groups <= EBB_CUDA_MAX_TICKETS);
        assert_true(args.n_parts == 1 || args.n_parts * args.n_groups <= EBB_CUDA_SUM_BLOCKS);
        assert_true(args.part_rows * args.n_parts >= args.n_rows && args.part_rows * (args.n_parts - 1) < args.n_rows);
        assert_true((uint64_t)4 * args.n_groups * args.n_lanes >= c);
    }
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
        cmocka_unit_test(sums_of_one_part_and_of_many),
        cmocka_unit_test(parts_are_bounded),
        cmocka_unit_test(a_label_that_is_none),
        cmocka_unit_test(elements_come_in_any_order),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
