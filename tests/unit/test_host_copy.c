/* SPDX-License-Identifier: Apache-2.0
 *
 * A copy past the caches moves the bytes that it is told, from and to any address, and no others; so does one by
 * several threads.
 */
#include "backend/host_copy.h"
#include "support.h"

#define MOST_BYTES ((size_t)2 << 20)
#define MARGIN ((size_t)128)

static void copy_any_address_and_size(ebb_copy_crew *crew) {
    unsigned char *src = malloc(MOST_BYTES + 2 * MARGIN), *dst = malloc(MOST_BYTES + 2 * MARGIN);
    assert_true(src != NULL && dst != NULL);
    ebb_rng rng;
    ebb__rng_init(&rng, 1, 1);
    for (size_t i = 0; i < MOST_BYTES + 2 * MARGIN; i++) { src[i] = (unsigned char)(1 + ebb__rng_below(&rng, 255)); }
    for (int i = 0; i < 300; i++) {
        const size_t from = ebb__rng_below(&rng, MARGIN), to = ebb__rng_below(&rng, MARGIN);
        const size_t n = i < 3 ? (size_t)i : MOST_BYTES >> ebb__rng_below(&rng, 4) >> ebb__rng_below(&rng, 2) * 16;
        const size_t size = n - ebb__rng_below(&rng, n / 2 + 1);
        memset(dst, 0, MOST_BYTES + 2 * MARGIN);
        ebb__copy_by_crew(crew, dst + to, src + from, size);
        assert_memory_equal(dst + to, src + from, size);
        assert_true(to == 0 || dst[to - 1] == 0);
        assert_true(dst[to + size] == 0);
    }
    free(src);
    free(dst);
}

static void test_any_address_and_size(void **state) {
    (void)state;
    copy_any_address_and_size(NULL);
}

static void test_by_several_threads(void **state) {
    (void)state;
    static const uint32_t n_threads[] = {0, 1, 2, 4, 5, 9}; /* more than copy together, too */
    for (size_t i = 0; i < sizeof n_threads / sizeof *n_threads; i++) {
        ebb_copy_crew *crew = NULL;
        assert_int_equal(ebb__copy_crew_create(ebb__mem_or_default(NULL), n_threads[i], &crew), EBB_OK);
        copy_any_address_and_size(crew);
        ebb__copy_crew_destroy(crew);
    }
    ebb__copy_crew_destroy(NULL);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_any_address_and_size),
                                       cmocka_unit_test(test_by_several_threads)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
