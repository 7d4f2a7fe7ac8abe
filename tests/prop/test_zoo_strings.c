/* SPDX-License-Identifier: Apache-2.0
 *
 * Names that people mistype and images of any small size: each either makes a graph that keeps its contract in
 * training and inference, or one line that says why not.
 */
#include "graph/graph.h"
#include "support.h"

#define N_SEEDS 400u

/* A name of the zoo with figures where it wants some, and up to two slips. */
static void draw_name(ebb_rng *rng, char text[64]) {
    static const char alphabet[] = "resnt:,0123456789vgbl_-%\n";
    size_t n_names = 0;
    while (ebb_zoo_name(n_names, NULL) != NULL) { n_names++; }
    const char *name = ebb_zoo_name((size_t)ebb__rng_below(rng, n_names), NULL);
    (void)snprintf(text, 64, "%s", name);
    for (char *c = text; *c != '\0'; c++) { /* N1,N2 becomes 11,02 */
        if (*c == 'N') { *c = (char)('0' + ebb__rng_below(rng, 2)); }
    }
    for (size_t n_slips = (size_t)ebb__rng_below(rng, 3); n_slips > 0; n_slips--) {
        size_t at = (size_t)ebb__rng_below(rng, strlen(text));
        text[at] = alphabet[ebb__rng_below(rng, sizeof alphabet - 1)];
    }
}

static void expect_one_line(const char *text) {
    assert_true(text[0] != '\0' && strlen(text) < 800);
    assert_null(strchr(text, '\n'));
}

static void check_graph(uint64_t seed, ebb_graph *graph) {
    static const ebb_optimizer_kind kinds[] = {EBB_OPT_SGD, EBB_OPT_NESTEROV, EBB_OPT_ADAMW};
    ebb_optimizer optimizer = EBB_OPTIMIZER_INIT;
    optimizer.kind = kinds[seed % 3];
    ebb_status st = ebb__graph_validate(graph);
    if (st == EBB_OK && !graph->inference) {
        st = ebb_graph_train(graph, seed % 5 == 0 ? NULL : &optimizer, seed % 5 == 0);
    }
    if (st == EBB_OK) { st = ebb__graph_validate(graph); }
    if (st != EBB_OK) { fail_msg("seed %llu: %s", (unsigned long long)seed, ebb_last_error()); }
}

static void test_any_string_any_size(void **state) {
    (void)state;
    size_t n_built = 0, n_refused = 0;
    for (uint64_t seed = 0; seed < N_SEEDS; seed++) {
        ebb_rng rng;
        char name[64];
        ebb__rng_init(&rng, seed, 0);
        draw_name(&rng, name);
        ebb_zoo_options options = EBB_ZOO_OPTIONS_INIT;
        options.batch = 1 + (int64_t)ebb__rng_below(&rng, 3);
        options.channels = (int64_t)ebb__rng_below(&rng, 4);
        options.height = (int64_t)ebb__rng_below(&rng, 130);
        options.width = (int64_t)ebb__rng_below(&rng, 130);
        options.inference = ebb__rng_below(&rng, 3) == 0;
        ebb_graph *graph = NULL;
        ebb_status st = ebb_zoo_build(name, &options, &graph);
        assert_int_equal(st == EBB_OK, graph != NULL);
        if (st == EBB_OK) {
            check_graph(seed, graph);
        } else {
            assert_int_equal(st, EBB_E_ARGUMENT);
            expect_one_line(ebb_last_error());
        }
        n_built += st == EBB_OK;
        n_refused += st != EBB_OK;
        ebb_graph_destroy(graph);
    }
    print_message("%zu built, %zu refused\n", n_built, n_refused);
    assert_true(n_built > N_SEEDS / 8 && n_refused > N_SEEDS / 8);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_any_string_any_size)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
