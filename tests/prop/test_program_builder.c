/* SPDX-License-Identifier: Apache-2.0
 *
 * Random calls of the builder, with views of views and tensors of no bytes, beside the same program without any of
 * these: the two are equal. And builders whose first, second, third ... allocation fails.
 */
#include "support.h"

#include "program/program.h"

#include <stdlib.h>

#define N_SEEDS 300u
#define N_HANDLES 24u
#define N_STEPS 30u

/* What a handle means, as the test keeps it. */
typedef struct meaning {
    uint32_t tensor; /* index, or EBB_NO_TENSOR */
    uint64_t size_bytes;
    bool is_whole;
} meaning;

typedef struct pair {
    ebb_program *folded, *plain;
    meaning handles[N_HANDLES];
    bool written[N_HANDLES]; /* by tensor */
    uint32_t n_handles, n_tensors;
} pair;

static void add_tensor(pair *p, ebb_rng *rng) {
    uint32_t handle = 0, idx = 0;
    const bool is_empty = ebb__rng_below(rng, 4) == 0;
    const ebb_tensor tensor = {.name = "t",
                               .size_bytes = is_empty ? 0 : 1 + ebb__rng_below(rng, 100),
                               .role = EBB_ROLE_OTHER,
                               .persistent = ebb__rng_below(rng, 3) == 0};
    assert_int_equal(ebb_program_add_tensor(p->folded, &tensor, &handle), EBB_OK);
    assert_int_equal(handle, p->n_handles);
    p->handles[p->n_handles] = (meaning){.tensor = EBB_NO_TENSOR};
    if (!is_empty) {
        assert_int_equal(ebb_program_add_tensor(p->plain, &tensor, &idx), EBB_OK);
        p->written[idx] = tensor.persistent;
        p->handles[p->n_handles] = (meaning){.tensor = idx, .size_bytes = tensor.size_bytes, .is_whole = true};
        p->n_tensors++;
    }
    p->n_handles++;
}

static void add_view(pair *p, ebb_rng *rng) {
    const uint32_t base = (uint32_t)ebb__rng_below(rng, p->n_handles);
    const meaning *of = &p->handles[base];
    const uint64_t offset = ebb__rng_below(rng, 2) == 0 ? 0 : ebb__rng_below(rng, of->size_bytes + 1);
    const uint64_t most = of->size_bytes - offset,
                   size = ebb__rng_below(rng, 2) == 0 ? most : ebb__rng_below(rng, most + 1);
    uint32_t handle = 0;
    assert_int_equal(ebb_program_add_view(p->folded, base, offset, size, &handle), EBB_OK);
    assert_int_equal(handle, p->n_handles);
    p->handles[p->n_handles++] = (meaning){.tensor = size > 0 ? of->tensor : EBB_NO_TENSOR,
                                           .size_bytes = size,
                                           .is_whole = of->is_whole && size == of->size_bytes};
}

static void add_step(pair *p, ebb_rng *rng) {
    ebb_access folded[5], plain[5];
    uint32_t n_plain = 0;
    const uint32_t n = (uint32_t)ebb__rng_below(rng, 5);
    bool was_written[N_HANDLES];
    memcpy(was_written, p->written, sizeof was_written);
    for (uint32_t i = 0; i < n; i++) {
        const uint32_t handle = (uint32_t)ebb__rng_below(rng, p->n_handles);
        const meaning *means = &p->handles[handle];
        const bool has_content = means->tensor == EBB_NO_TENSOR || was_written[means->tensor];
        uint32_t mode = has_content ? 1 + (uint32_t)ebb__rng_below(rng, 3) : EBB_WRITE;
        folded[i] = (ebb_access){.tensor = handle, .mode = mode};
        if (means->tensor == EBB_NO_TENSOR) { continue; }
        if (mode == EBB_WRITE && !means->is_whole && has_content) { mode = EBB_UPDATE; }
        plain[n_plain++] = (ebb_access){.tensor = means->tensor, .mode = mode};
        p->written[means->tensor] = true;
    }
    const ebb_choice choice = {.name = "c"};
    ebb_step step = {.name = "s", .kind = "k", .n_accesses = n, .n_choices = 1};
    assert_int_equal(ebb_program_add_step(p->folded, &step, folded, &choice), EBB_OK);
    step.n_accesses = n_plain;
    assert_int_equal(ebb_program_add_step(p->plain, &step, plain, &choice), EBB_OK);
}

static void expect_equal(const pair *p) {
    assert_int_equal(p->folded->tensors.n, p->n_tensors);
    assert_int_equal(p->folded->accesses.n, p->plain->accesses.n);
    for (uint32_t h = 0; h < p->n_handles; h++) {
        assert_int_equal(ebb_program_find_tensor(p->folded, h), p->handles[h].tensor);
    }
    for (size_t a = 0; a < p->plain->accesses.n; a++) {
        assert_int_equal(p->folded->accesses.data[a].tensor, p->plain->accesses.data[a].tensor);
        assert_int_equal(p->folded->accesses.data[a].mode, p->plain->accesses.data[a].mode);
    }
    assert_true(ebb_program_fingerprint(p->folded) == ebb_program_fingerprint(p->plain));
}

static void test_folding(void **state) {
    (void)state;
    for (uint64_t seed = 0; seed < N_SEEDS; seed++) {
        ebb_rng rng;
        pair p = {.folded = NULL};
        ebb__rng_init(&rng, seed, 3);
        assert_int_equal(ebb_program_create(NULL, "p", 1, &p.folded), EBB_OK);
        assert_int_equal(ebb_program_create(NULL, "p", 1, &p.plain), EBB_OK);
        add_tensor(&p, &rng);
        for (uint32_t i = 0; i < N_STEPS; i++) {
            const uint64_t dice = ebb__rng_below(&rng, 3);
            if (dice == 0 && p.n_handles < N_HANDLES) { add_tensor(&p, &rng); }
            if (dice == 1 && p.n_handles < N_HANDLES) { add_view(&p, &rng); }
            add_step(&p, &rng);
        }
        expect_equal(&p);
        assert_int_equal(ebb_program_finish(p.folded), ebb_program_finish(p.plain));
        ebb_program_destroy(p.folded);
        ebb_program_destroy(p.plain);
    }
}

static ebb_status build(const ebb_mem *mem, ebb_program **program_out) {
    ebb_program *p = NULL;
    uint32_t t = 0, view = 0;
    ebb_status st = ebb_program_create(mem, "p", 1, &p);
    for (uint32_t i = 0; i < 40 && st == EBB_OK; i++) {
        const ebb_tensor tensor = {.name = "t", .size_bytes = i % 3 * 50, .role = EBB_ROLE_OTHER};
        const ebb_choice choice = {.name = "c"};
        const ebb_step step = {.name = "s", .kind = "k", .n_accesses = 2, .n_choices = 1};
        st = ebb_program_add_tensor(p, &tensor, &t);
        if (st == EBB_OK) { st = ebb_program_add_view(p, t, 0, tensor.size_bytes / 2, &view); }
        const ebb_access accesses[] = {{t, EBB_WRITE}, {view, EBB_WRITE}};
        if (st == EBB_OK) { st = ebb_program_add_step(p, &step, accesses, &choice); }
    }
    if (st == EBB_OK) { st = ebb_program_finish(p); }
    if (st == EBB_OK) {
        *program_out = p;
        p = NULL;
    }
    ebb_program_destroy(p);
    return st;
}

static void each_allocation_may_fail(void **state) {
    (void)state;
    OOM_LOOP(mem, st, {
        ebb_program *program = NULL;
        st = build(mem, &program);
        assert_true((st == EBB_OK) == (program != NULL));
        ebb_program_destroy(program);
    });
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_folding), cmocka_unit_test(each_allocation_may_fail)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
