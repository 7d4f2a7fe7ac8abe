/* SPDX-License-Identifier: Apache-2.0
 *
 * C++ names: what compilers made of functions that were thought out, and bytes that no compiler would make.
 */
#include "base/demangle.h"
#include "support.h"

static ebb_demangler d;

static void names_read_as_programs_have_them(void **state) {
    (void)state;
    static const char *const names[][2] = {
        {"_Z5alphaPf", "alpha"},
        {"_ZN2at6native3addIfEEvRKNS_6TensorE", "at::native::add<float>"},
        {"_ZNK2at6Tensor4sizeEl", "at::Tensor::size"},
        {"_ZN3foo3barC1Ev", "foo::bar::bar"},
        {"_ZN3foo3barIiED0Ev", "foo::bar<int>::~bar"},
        {"_ZNSt6vectorIfSaIfEE17_M_realloc_insertIJRKfEEEvN9__gnu_cxx17__normal_iteratorIPfS1_EEDpOT_",
         "std::vector<float, std::allocator<float>>::_M_realloc_insert<float const&>"},
        {"_ZNSt8functionIFvPKcS1_EE3runEv", "std::function<void (char const*, char const*)>::run"},
        {"_Z3runIPFiiEEvT_", "run<int (*)(int)>"},
        {"_Z3runIRA5_KcEvT_", "run<char const (&)[5]>"},
        {"_Z3runIM3fooFvvEEvT_", "run<void (foo::*)()>"},
        {"_Z3runIM3fooiEvT_", "run<int foo::*>"},
        {"_Z3runIM3fooFvvREEvT_", "run<void (foo::*)()>"},
        {"_Z3runIM3fooFviOEEvT_", "run<void (foo::*)(int)>"},
        {"_Z3runILi5ELb1ELj7ELln2EL4kind3EEvv", "run<5, true, 7u, -2l, (kind)3>"},
        {"_Z3runIJEEvDpT_", "run<>"},
        {"_Z3runIJidEEvDpT_", "run<int, double>"},
        {"_Z3runIXadL_Z3foovEEEvv", NULL}, /* an expression */
        {"_ZN12_GLOBAL__N_13runEv", "(anonymous namespace)::run"},
        {"_ZZ4mainENKUliE0_clEi", "main::{lambda#2}::operator()"},
        {"_ZZN3foo3runEvE5value", "foo::run::value"},
        {"_ZN3fooeqERKS_", "foo::operator=="},
        {"_ZN3foocvPiEv", "foo::operator int*"},
        {"_Znwm", "operator new"},
        {"_ZdaPv", "operator delete[]"},
        {"_ZTVN3foo3barE", "vtable for foo::bar"},
        {"_ZThn16_N3foo3runEv", "thunk to foo::run"},
        {"_ZN3foo3runB5cxx11Ev.cold", "foo::run"},
        {"main", NULL},
        {"_Z", NULL},
        {"_Z9fewbytes", NULL},
        {"_ZN3foo", NULL},
        {"_ZN3fooES5_", "foo"},
        {"_ZNS5_3fooE", NULL},
    };
    char buf[256];
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        const bool is_read = ebb__demangle(&d, names[i][0], buf, sizeof buf);
        if (is_read != (names[i][1] != NULL)) { fail_msg("%s: %s", names[i][0], is_read ? buf : "not read"); }
        if (is_read) { assert_string_equal(buf, names[i][1]); }
    }
}

static void a_long_name_is_cut(void **state) {
    (void)state;
    char buf[8] = "as was", all[8] = "as was";
    assert_true(ebb__demangle(&d, "_ZN2at6native3addE", buf, sizeof buf));
    assert_string_equal(buf, "at::nat");
    assert_false(ebb__demangle(&d, "_ZN2at6native3add", all, sizeof all));
    assert_string_equal(all, "as was");
    assert_true(ebb__demangle(&d, "_ZN2at6native3addE", buf, 1));
    assert_string_equal(buf, "");
    assert_false(ebb__demangle(&d, "_ZN2at6native3addE", buf, 0));
}

static void a_deep_name_is_none(void **state) {
    (void)state;
    static const char *const repeated[][3] = {
        {"_Z3runI", "P", "iEvv"}, {"_Z3runI", "J", "Evv"}, {"_Z", "Th", "3run"}, {"_Z", "Tv", ""}};
    static char deep[1 << 20]; /* a stack's worth of calls, if they had no bound */
    char buf[64];
    for (size_t i = 0; i < sizeof repeated / sizeof *repeated; i++) {
        size_t n = (size_t)snprintf(deep, sizeof deep, "%s", repeated[i][0]);
        const size_t n_letters = strlen(repeated[i][1]), n_end = strlen(repeated[i][2]);
        for (; n + n_letters + n_end < sizeof deep; n += n_letters) { memcpy(deep + n, repeated[i][1], n_letters); }
        memcpy(deep + n, repeated[i][2], n_end + 1);
        assert_false(ebb__demangle(&d, deep, buf, sizeof buf));
    }
}

static void doubled(char *name, size_t n_bytes, const char *first, int n_times) {
    size_t n = (size_t)snprintf(name, n_bytes, "_Z3runI1aI%sE", first); /* S0_ is a, and what follows S1_, S2_ ... */
    for (int i = 0; i < n_times; i++) { n += (size_t)snprintf(name + n, n_bytes - n, "S0_IS%d_S%d_E", i + 1, i + 1); }
    (void)snprintf(name + n, n_bytes - n, "Evv");
}

static void shared_parts_are_bounded(void **state) {
    (void)state;
    char name[512], buf[4096];
    doubled(name, sizeof name, "i", 3);
    assert_true(ebb__demangle(&d, name, buf, sizeof buf));
    assert_string_equal(buf, "run<a<int>, a<a<int>, a<int>>, a<a<a<int>, a<int>>, a<a<int>, a<int>>>, "
                             "a<a<a<a<int>, a<int>>, a<a<int>, a<int>>>, a<a<a<int>, a<int>>, a<a<int>, a<int>>>>>");
    doubled(name, sizeof name, "i", 8);
    assert_true(ebb__demangle(&d, name, buf, sizeof buf));
    assert_true(strlen(buf) <= 1024);
    doubled(name, sizeof name, "JE", 8); /* a name of nothing is still one */
    assert_true(ebb__demangle(&d, name, buf, sizeof buf));
}

/* Letters that mean something, in any order. */
static void anything_is_read_or_not(void **state) {
    (void)state;
    static const char letters[] = "NSTLIJEZKPRFMADvifjclUtCD_01239aBXYGsdenwopq";
    ebb_rng rng;
    char name[96], buf[200];
    ebb__rng_init(&rng, 7, 0);
    for (int round = 0; round < 200000; round++) {
        const size_t n = 2 + (size_t)ebb__rng_below(&rng, sizeof name - 3);
        memcpy(name, "_Z", 2);
        for (size_t i = 2; i < n; i++) { name[i] = letters[ebb__rng_below(&rng, sizeof letters - 1)]; }
        name[n] = '\0';
        if (ebb__demangle(&d, name, buf, sizeof buf)) { assert_true(strlen(buf) < sizeof buf); }
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(names_read_as_programs_have_them),
        cmocka_unit_test(a_long_name_is_cut),
        cmocka_unit_test(a_deep_name_is_none),
        cmocka_unit_test(shared_parts_are_bounded),
        cmocka_unit_test(anything_is_read_or_not),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
