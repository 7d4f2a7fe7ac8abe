/* SPDX-License-Identifier: Apache-2.0
 *
 * Resampling: the same size gives the same picture, flat stays flat, means survive shrinking, edges are where
 * they belong.
 */
#include "train/data_priv.h"

#include "support.h"

#include <math.h>

/* src (1, in_height, in_width) to dst (1, height, width). */
static void resample(const float *src, ebb_resize size, float *dst, bool flip) {
    void *scratch = malloc(ebb__resample_scratch_bytes(&size)); /* exactly that: the sanitizer watches */
    ebb_resample rs;
    ebb__resample_init(&rs, scratch, &size, flip);
    memset(dst, 0, (size_t)(size.height * size.width) * sizeof *dst);
    for (int64_t y = 0; y < size.in_height; y++) {
        memcpy(rs.row, src + y * size.in_width, (size_t)size.in_width * sizeof *src);
        ebb__resample_add_row(&rs, y, dst);
    }
    free(scratch);
}

static void test_same_size(void **state) {
    (void)state;
    float src[6] = {1, 2, 3, 4, 5, 6}, dst[6];
    resample(src, (ebb_resize){1, 2, 3, 2, 3}, dst, false);
    assert_memory_equal(src, dst, sizeof src);
    const float flipped[6] = {3, 2, 1, 6, 5, 4};
    resample(src, (ebb_resize){1, 2, 3, 2, 3}, dst, true);
    assert_memory_equal(flipped, dst, sizeof dst);
}

static void test_flat_stays_flat(void **state) {
    (void)state;
    float *src = malloc(300 * 200 * sizeof *src), *dst = malloc(64 * 1000 * sizeof *dst);
    for (int i = 0; i < 300 * 200; i++) { src[i] = 0.75f; }
    static const int64_t sizes[][2] = {{1, 1}, {7, 5}, {64, 64}, {64, 1000}, {3, 201}};
    for (size_t s = 0; s < sizeof sizes / sizeof sizes[0]; s++) {
        resample(src, (ebb_resize){1, 300, 200, sizes[s][0], sizes[s][1]}, dst, false);
        for (int64_t i = 0; i < sizes[s][0] * sizes[s][1]; i++) { assert_true(fabsf(dst[i] - 0.75f) < 1e-5f); }
    }
    free(src);
    free(dst);
}

static void test_shrinks_by_weighing_all(void **state) {
    (void)state;
    enum { N = 64 };
    float src[N * N], dst[16];
    double mean = 0, got = 0;
    for (int i = 0; i < N * N; i++) {
        src[i] = (float)((i / N + i % N) % 2); /* a chess board: skipping pixels would give 0 or 1 */
        mean += (double)src[i] / (N * N);
    }
    resample(src, (ebb_resize){1, N, N, 4, 4}, dst, false);
    for (int i = 0; i < 16; i++) {
        assert_true(fabsf(dst[i] - 0.5f) < 0.01f);
        got += (double)dst[i] / 16;
    }
    assert_true(fabs(mean - got) < 1e-3);
}

static void test_ramp_grows_straight(void **state) {
    (void)state;
    float src[8], dst[32];
    for (int i = 0; i < 8; i++) { src[i] = (float)i; }
    resample(src, (ebb_resize){1, 1, 8, 1, 32}, dst, false);
    for (int i = 2; i < 30; i++) { /* linear between the centres of the outer pixels */
        float at = ((float)i + 0.5f) / 4 - 0.5f;
        assert_true(fabsf(dst[i] - at) < 1e-5f);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_same_size),
        cmocka_unit_test(test_flat_stays_flat),
        cmocka_unit_test(test_shrinks_by_weighing_all),
        cmocka_unit_test(test_ramp_grows_straight),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
