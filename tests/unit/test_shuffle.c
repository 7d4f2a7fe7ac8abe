/* SPDX-License-Identifier: Apache-2.0
 *
 * The order of an epoch is a permutation, another one each epoch and seed, and evenly spread.
 */
#include "train/data_priv.h"

#include "support.h"

static void test_is_a_permutation(void **state) {
    (void)state;
    static const uint64_t sizes[] = {1, 2, 3, 4, 5, 16, 17, 255, 1438, 4096, 5000};
    static uint8_t seen[5000];
    for (size_t s = 0; s < sizeof sizes / sizeof sizes[0]; s++) {
        for (uint64_t epoch = 0; epoch < 3; epoch++) {
            memset(seen, 0, sizeof seen);
            for (uint64_t i = 0; i < sizes[s]; i++) {
                uint64_t at = ebb__data_shuffle(7, epoch, sizes[s], i);
                assert_true(at < sizes[s]);
                assert_int_equal(seen[at]++, 0);
            }
        }
    }
}

static void test_large_counts(void **state) {
    (void)state;
    const uint64_t n = (uint64_t)1 << 63;
    assert_true(ebb__data_shuffle(1, 0, n, n - 1) < n);
    assert_int_not_equal(ebb__data_shuffle(1, 0, n, 0), ebb__data_shuffle(1, 0, n, 1));
}

/* How often an order repeats another's places: once on average for a random one. */
static uint64_t n_same(uint64_t seed_a, uint64_t epoch_a, uint64_t seed_b, uint64_t epoch_b) {
    uint64_t n = 0;
    for (uint64_t i = 0; i < 1000; i++) {
        n += ebb__data_shuffle(seed_a, epoch_a, 1000, i) == ebb__data_shuffle(seed_b, epoch_b, 1000, i);
    }
    return n;
}

static void test_differs_by_epoch_and_seed(void **state) {
    (void)state;
    assert_int_equal(n_same(1, 0, 1, 0), 1000);
    assert_true(n_same(1, 0, 1, 1) < 12);
    assert_true(n_same(1, 0, 2, 0) < 12);
}

/* Each place gets each image about equally often over many epochs: chi-squared over 16 x 16 cells. */
static void test_is_even(void **state) {
    (void)state;
    static uint32_t count[16][16];
    const double n_epochs = 4096;
    for (uint64_t epoch = 0; epoch < 4096; epoch++) {
        for (uint64_t i = 0; i < 16; i++) { count[i][ebb__data_shuffle(3, epoch, 16, i)]++; }
    }
    double chi2 = 0;
    for (int i = 0; i < 16; i++) {
        for (int j = 0; j < 16; j++) {
            double d = count[i][j] - n_epochs / 16;
            chi2 += d * d / (n_epochs / 16);
        }
    }
    assert_true(chi2 > 150 && chi2 < 320); /* 225 degrees of freedom, deviation 21 */
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_is_a_permutation),
        cmocka_unit_test(test_large_counts),
        cmocka_unit_test(test_differs_by_epoch_and_seed),
        cmocka_unit_test(test_is_even),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
