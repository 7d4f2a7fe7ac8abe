/* SPDX-License-Identifier: Apache-2.0
 *
 * Letters to insert, drop or change from one word to another, and the names that a mistyped word may mean.
 */
#include "base/base.h"
#include "support.h"

static size_t between(const char *a, const char *b) {
    return ebb__edit_distance(a, strlen(a), b, strlen(b));
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
    assert_int_equal(ebb__edit_distance("plans", 4, "planned", 4), 0);
}

static void test_long_words_are_far(void **state) {
    (void)state;
    char word[60];
    memset(word, 'a', sizeof word);
    assert_int_equal(ebb__edit_distance(word, 48, word, 47), 1);
    assert_int_equal(ebb__edit_distance(word, 49, word, 49), SIZE_MAX);
    assert_int_equal(ebb__edit_distance(word, 1, word, 49), SIZE_MAX);
}

static const char *const words[] = {"--policies", "--memory", "--optimizer", "--json", "step:N", "adam", "adamw", NULL};

static void expect_suggestion(const char *word, const char *wanted) {
    char buf[EBB_SUGGESTION_BYTES];
    assert_string_equal(ebb_suggest(word, strlen(word), ebb__name_in_list, words, buf, sizeof buf), wanted);
}

static void test_suggestions(void **state) {
    (void)state;
    expect_suggestion("--policy", "; near it: --policies");
    expect_suggestion("--memry", "; near it: --memory");
    expect_suggestion("--optim", "; near it: --optimizer");
    expect_suggestion("--xson", "; near it: --json");
    expect_suggestion("admw", "; near it: adamw");
    expect_suggestion("adan", "; near it: adam");
    expect_suggestion("step:0", "; near it: step:N");
    expect_suggestion("stp", "; near it: step:N");
    expect_suggestion("--x", "");
    expect_suggestion("", "");
    expect_suggestion("quantum", "");
}

static void test_all_where_none_is_near(void **state) {
    (void)state;
    static const char *const few[] = {"sgd", "adam", NULL};
    char buf[EBB_SUGGESTION_BYTES], small[20];
    assert_string_equal(ebb__suggest_or_list("quantum", ebb__name_in_list, few, buf), "; there are: sgd, adam");
    assert_string_equal(ebb__suggest_or_list("sdg", ebb__name_in_list, few, buf), "; near it: sgd");
    assert_string_equal(ebb_suggest("ada", 3, ebb__name_in_list, words, small, sizeof small), "; near it: adam");
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_distances), cmocka_unit_test(test_long_words_are_far),
                                       cmocka_unit_test(test_suggestions),
                                       cmocka_unit_test(test_all_where_none_is_near)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
