/* SPDX-License-Identifier: Apache-2.0
 * The facts that are read from operators' schemas.
 */
#include "support.h"
#include "trace/execution.h"

static void test_schemas(void **state) {
    (void)state;
    static const struct {
        const char *text;
        bool only_allocates;
        uint64_t aliased, written, overwritten, ignored;
    } cases[] = {
        {"aten::mm(Tensor self, Tensor mat2) -> Tensor", false, 0, 0, 0, 0},
        {"aten::add_.Tensor(Tensor(a!) self, Tensor other, *, Scalar alpha=1) -> Tensor(a!)", false, 0, 1, 0, 0},
        {"aten::copy_(Tensor(a!) self, Tensor src, bool non_blocking=False) -> Tensor(a!)", false, 0, 1, 1, 0},
        {"aten::view(Tensor(a) self, SymInt[] size) -> Tensor(a)", false, 1, 0, 0, 0},
        {"aten::add.out(Tensor self, Tensor other, *, Scalar alpha=1, Tensor(a!) out) -> Tensor(a!)", false, 0, 8, 8,
         0},
        {"aten::cat(Tensor[] tensors, int dim=0) -> Tensor", false, 0, 0, 0, 0},
        {"aten::_foreach_add_.Scalar(Tensor(a!)[] self, Scalar scalar) -> ()", false, 0, 1, 0, 0},
        {"aten::split.Tensor(Tensor(a -> *) self, SymInt split_size, int dim=0) -> Tensor(a)[]", false, 1, 0, 0, 0},
        {"aten::empty.memory_format(SymInt[] size, *, ScalarType? dtype=None) -> Tensor", true, 0, 0, 0, UINT64_MAX},
        {"aten::resize_(Tensor(a!) self, SymInt[] size, *, MemoryFormat? memory_format=None) -> Tensor(a!)", false, 0,
         0, 0, UINT64_MAX},
        {"x::f(str mode=\"a,)(\", Tensor(b!) t, (Tensor, int)[] u, Tensor(c) v) -> Tensor(c)", false, 8, 2, 0, 0},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        const execution_schema s = ebb__execution_schema(cases[i].text);
        assert_true(s.is_there);
        assert_int_equal(s.only_allocates, cases[i].only_allocates);
        assert_true(s.aliased == cases[i].aliased);
        assert_true(s.written == cases[i].written);
        assert_true(s.overwritten == cases[i].overwritten);
        assert_true(s.ignored == cases[i].ignored);
    }
}

/* A text that is not a schema says nothing, and does no harm. */
static void test_odd(void **state) {
    (void)state;
    static const char *const texts[] = {"",          "x",           "(",    "f(",     "f(*",
                                        "f(Tensor(", "f(Tensor(a!", "f(\"", "f(,,,)", "f([[[)"};
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
        const execution_schema s = ebb__execution_schema(texts[i]);
        assert_int_equal(s.is_there, strchr(texts[i], '(') != NULL);
    }
    char many[4096] = "f(";
    for (size_t i = 0; i < 100; i++) { strcat(many, "Tensor(a!) x, "); }
    strcat(many, "Tensor y)");
    assert_true(ebb__execution_schema(many).written == UINT64_MAX);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_schemas), cmocka_unit_test(test_odd)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
