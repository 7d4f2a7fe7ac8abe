/* SPDX-License-Identifier: Apache-2.0
 *
 * Letters to insert, drop or change from one word to another.
 */
#include "support.h"

static size_t between(const char *a, const char *b) {
    return ebb_edit_distance(a, strlen(a), b, strlen(b));
}

static void test_distances(void **state) {
    (void)state;
    assert_int_equal(between("", ""), 0);
    assert_int_equal(between("memory", "memory"), 0);
    assert_int_equal(between("memry", "memory"), 1);
    assert_int_equal(between("memory", "memry"), 1);
    assert_int_equal(between("nemory", "memory"), 1);
    assert_int_equal(between("meomry", "memory"), 2);
    assert_int_equal(between("", "memory"), 6);
    assert_int_equal(ebb_edit_distance("plans", 4, "planned", 4), 0);
}

static void test_long_words_are_far(void **state) {
    (void)state;
    char word[60];
    memset(word, 'a', sizeof word);
    assert_int_equal(ebb_edit_distance(word, 48, word, 47), 1);
    assert_int_equal(ebb_edit_distance(word, 49, word, 49), SIZE_MAX);
    assert_int_equal(ebb_edit_distance(word, 1, word, 49), SIZE_MAX);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_distances), cmocka_unit_test(test_long_words_are_far)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
