/* SPDX-License-Identifier: Apache-2.0
 *
 * Builder, check, fingerprint, floor, versions and uses of programs.
 */
#include "program/program.h"

#include <math.h>
#include <setjmp.h>
#include <stdlib.h>

#include <cmocka.h>

static ebb_program *make(uint64_t alignment_bytes) {
    ebb_program *program = NULL;
    assert_int_equal(ebb_program_create(NULL, "test", alignment_bytes, &program), EBB_OK);
    return program;
}

static uint32_t tensor(ebb_program *program, const char *name, uint64_t size_bytes, bool persistent) {
    ebb_tensor t = {.name = name, .size_bytes = size_bytes, .role = EBB_ROLE_OTHER, .persistent = persistent};
    uint32_t idx = UINT32_MAX;
    assert_int_equal(ebb_program_add_tensor(program, &t, &idx), EBB_OK);
    return idx;
}

static ebb_status step(ebb_program *program, const char *name, const ebb_access *accesses, uint32_t n_accesses,
                       uint64_t scratch_bytes) {
    ebb_choice choice = {.name = "only", .scratch_bytes = scratch_bytes, .key = 1, .flops = 1, .traffic_bytes = 1};
    ebb_step s = {.name = name, .kind = "test", .n_accesses = n_accesses, .n_choices = 1};
    return ebb_program_add_step(program, &s, accesses, &choice);
}
#define STEP(program, name, scratch, ...)                                                                              \
    step((program), (name), (const ebb_access[]){__VA_ARGS__},                                                         \
         (uint32_t)(sizeof((const ebb_access[]){__VA_ARGS__}) / sizeof(ebb_access)), (scratch))

/* w is updated from x and y, which come and go. */
static ebb_program *make_small(void) {
    ebb_program *p = make(64);
    uint32_t w = tensor(p, "w", 100, true), x = tensor(p, "x", 64, false), y = tensor(p, "y", 1, false);
    assert_int_equal(STEP(p, "feed", 0, {x, EBB_WRITE}), EBB_OK);
    assert_int_equal(STEP(p, "forward", 65, {w, EBB_READ}, {x, EBB_READ}, {y, EBB_WRITE}), EBB_OK);
    assert_int_equal(STEP(p, "update", 0, {y, EBB_READ}, {w, EBB_UPDATE}), EBB_OK);
    return p;
}

static void test_views(void **state) {
    (void)state;
    ebb_program *p = make_small();
    size_t n = 0;
    assert_string_equal(ebb_program_name(p), "test");
    assert_int_equal(ebb_program_alignment_bytes(p), 64);
    const ebb_tensor *tensors = ebb_program_tensors(p, &n);
    assert_int_equal(n, 3);
    assert_string_equal(tensors[1].name, "x");
    const ebb_step *steps = ebb_program_steps(p, &n);
    assert_int_equal(n, 3);
    assert_string_equal(steps[1].name, "forward");
    assert_int_equal(steps[2].first_access, 4);
    assert_int_equal(steps[2].n_accesses, 2);
    const ebb_access *accesses = ebb_program_accesses(p, &n);
    assert_int_equal(n, 6);
    assert_int_equal(accesses[5].mode, EBB_UPDATE);
    const ebb_choice *choices = ebb_program_choices(p, &n);
    assert_int_equal(n, 3);
    assert_int_equal(choices[1].scratch_bytes, 65);
    assert_ptr_equal(choices[0].name, choices[1].name); /* stored once */
    assert_int_equal(ebb_program_finish(p), EBB_OK);
    ebb_program_destroy(p);
    ebb_program_destroy(NULL);
}

static void test_floor(void **state) {
    (void)state;
    ebb_program *p = make_small();
    uint32_t at = UINT32_MAX;
    assert_int_equal(ebb_program_floor_bytes(p, &at), 128 + 64 + 128 + 1); /* y lies highest */
    assert_int_equal(at, 1);
    ebb_choice two[2] = {{.name = "fast", .scratch_bytes = 1u << 20, .key = 1},
                         {.name = "small", .scratch_bytes = 1000, .key = 2}};
    ebb_access access = {.tensor = 0, .mode = EBB_READ};
    ebb_step choose = {.name = "choose", .kind = "test", .n_accesses = 1, .n_choices = 2};
    assert_int_equal(ebb_program_add_step(p, &choose, &access, two), EBB_OK);
    assert_int_equal(ebb_program_floor_bytes(p, &at), 1024 + 100);
    assert_int_equal(at, 3);
    ebb_program_destroy(p);
}

static void test_accesses_merge(void **state) {
    (void)state;
    ebb_program *p = make(1);
    uint32_t a = tensor(p, "a", 1, true), b = tensor(p, "b", 1, true);
    assert_int_equal(STEP(p, "s", 0, {a, EBB_READ}, {b, EBB_READ}, {a, EBB_WRITE}, {b, EBB_READ}), EBB_OK);
    assert_int_equal(STEP(p, "t", 0, {a, EBB_READ}), EBB_OK);
    size_t n = 0;
    const ebb_access *accesses = ebb_program_accesses(p, &n);
    assert_int_equal(n, 3);
    assert_int_equal(accesses[0].tensor, a);
    assert_int_equal(accesses[0].mode, EBB_UPDATE);
    assert_int_equal(accesses[1].mode, EBB_READ);
    assert_int_equal(accesses[2].mode, EBB_READ);
    assert_int_equal(ebb_program_steps(p, &n)[0].n_accesses, 2);
    ebb_program_destroy(p);
}

static void test_builder_refuses(void **state) {
    (void)state;
    ebb_program *p = NULL;
    assert_int_equal(ebb_program_create(NULL, "x", 0, &p), EBB_E_ARGUMENT);
    assert_int_equal(ebb_program_create(NULL, "x", 48, &p), EBB_E_ARGUMENT);
    assert_int_equal(ebb_program_create(NULL, "x", (uint64_t)1 << 31, &p), EBB_E_ARGUMENT);
    p = make(1);
    uint32_t idx = 77;
    ebb_tensor bad[] = {{.name = NULL, .size_bytes = 1},
                        {.name = "x", .size_bytes = 1, .marks = EBB_MARKS_ALL + 1},
                        {.name = "x", .size_bytes = UINT64_MAX},
                        {.name = "x", .size_bytes = 1, .role = EBB_N_ROLES}};
    for (size_t i = 0; i < 4; i++) { assert_int_equal(ebb_program_add_tensor(p, &bad[i], &idx), EBB_E_ARGUMENT); }
    assert_int_equal(idx, 77);
    uint32_t t = tensor(p, "t", 1, true);
    assert_int_equal(STEP(p, "s", 0, {t, EBB_READ}, {t + 1, EBB_READ}), EBB_E_ARGUMENT);
    assert_int_equal(STEP(p, "s", 0, {t, 0}), EBB_E_ARGUMENT);
    assert_int_equal(STEP(p, "s", 0, {t, 4}), EBB_E_ARGUMENT);
    ebb_access read = {.tensor = t, .mode = EBB_READ};
    ebb_choice choice = {.name = "c", .flops = 1};
    const ebb_step wrong[] = {{.name = "s", .kind = "k", .n_accesses = 1, .n_choices = 0},
                              {.name = "s", .kind = "k", .n_accesses = 1, .n_choices = 1, .phase = EBB_N_PHASES},
                              {.name = "s", .kind = "k", .n_accesses = 1, .n_choices = 1, .repeat = EBB_N_REPEATS},
                              {.name = NULL, .kind = "k", .n_accesses = 1, .n_choices = 1},
                              {.name = "s", .kind = NULL, .n_accesses = 1, .n_choices = 1}};
    for (size_t i = 0; i < 5; i++) {
        assert_int_equal(ebb_program_add_step(p, &wrong[i], &read, &choice), EBB_E_ARGUMENT);
    }
    const ebb_step right = {.name = "s", .kind = "k", .n_accesses = 1, .n_choices = 1};
    choice.flops = INFINITY;
    assert_int_equal(ebb_program_add_step(p, &right, &read, &choice), EBB_E_ARGUMENT);
    choice.flops = -1;
    assert_int_equal(ebb_program_add_step(p, &right, &read, &choice), EBB_E_ARGUMENT);
    size_t n = 1;
    (void)ebb_program_steps(p, &n);
    assert_int_equal(n, 0);
    (void)ebb_program_accesses(p, &n);
    assert_int_equal(n, 0);
    ebb_program_destroy(p);
}

/* Access i of a step, as the program has it. */
static void expect_access(const ebb_program *p, size_t step, uint32_t i, uint32_t tensor, uint32_t mode) {
    size_t n = 0;
    const ebb_step *steps = ebb_program_steps(p, &n);
    assert_true(step < n && i < steps[step].n_accesses);
    const ebb_access *access = &ebb_program_accesses(p, &n)[steps[step].first_access + i];
    assert_int_equal(access->tensor, tensor);
    assert_int_equal(access->mode, mode);
}

static uint32_t view(ebb_program *p, uint32_t base, uint64_t offset_bytes, uint64_t size_bytes) {
    uint32_t handle = UINT32_MAX;
    assert_int_equal(ebb_program_add_view(p, base, offset_bytes, size_bytes, &handle), EBB_OK);
    return handle;
}

static void test_views_are_folded(void **state) {
    (void)state;
    ebb_program *p = make(1);
    const uint32_t empty = tensor(p, "empty", 0, true), t = tensor(p, "t", 100, false);
    const uint32_t left = view(p, t, 0, 40), right = view(p, t, 40, 60), all = view(p, t, 0, 100);
    const uint32_t inner = view(p, right, 10, 50), none = view(p, t, 100, 0), of_empty = view(p, empty, 0, 0);
    const uint32_t w = tensor(p, "w", 10, true), half = view(p, w, 5, 5);
    size_t n = 0;
    assert_string_equal(ebb_program_tensors(p, &n)[1].name, "w");
    assert_int_equal(n, 2);
    for (uint32_t h = 0; h < 10; h++) {
        const bool is_empty = h == empty || h == none || h == of_empty;
        assert_int_equal(ebb_program_find_tensor(p, h), is_empty ? EBB_NO_TENSOR : h < w ? 0 : 1);
    }
    assert_int_equal(ebb_program_find_tensor(p, 10), EBB_NO_TENSOR);

    assert_int_equal(STEP(p, "first half", 0, {left, EBB_WRITE}, {empty, EBB_READ}), EBB_OK);
    assert_int_equal(STEP(p, "second", 0, {inner, EBB_WRITE}, {none, EBB_UPDATE}), EBB_OK);
    assert_int_equal(STEP(p, "whole", 0, {all, EBB_WRITE}, {half, EBB_WRITE}), EBB_OK);
    assert_int_equal(STEP(p, "read", 0, {right, EBB_READ}, {left, EBB_READ}), EBB_OK);
    assert_int_equal(STEP(p, "both", 0, {left, EBB_READ}, {right, EBB_WRITE}), EBB_OK);
    assert_int_equal(STEP(p, "nothing", 0, {of_empty, EBB_WRITE}), EBB_OK);
    assert_int_equal(ebb_program_finish(p), EBB_OK);
    expect_access(p, 0, 0, 0, EBB_WRITE); /* there is nothing to keep */
    expect_access(p, 1, 0, 0, EBB_UPDATE);
    expect_access(p, 2, 0, 0, EBB_WRITE);
    expect_access(p, 2, 1, 1, EBB_UPDATE); /* it is persistent */
    expect_access(p, 3, 0, 0, EBB_READ);
    expect_access(p, 4, 0, 0, EBB_UPDATE);
    const ebb_step *steps = ebb_program_steps(p, &n);
    const uint32_t n_accesses[] = {1, 1, 2, 1, 1, 0};
    for (size_t s = 0; s < 6; s++) { assert_int_equal(steps[s].n_accesses, n_accesses[s]); }
    ebb_program_destroy(p);
}

static void test_wrong_views(void **state) {
    (void)state;
    ebb_program *p = make(1);
    const uint32_t t = tensor(p, "t", 100, false), part = view(p, t, 50, 10);
    uint32_t handle = 77;
    assert_int_equal(ebb_program_add_view(p, 2, 0, 1, &handle), EBB_E_ARGUMENT);
    assert_int_equal(ebb_program_add_view(p, t, 101, 0, &handle), EBB_E_ARGUMENT);
    assert_int_equal(ebb_program_add_view(p, t, 1, UINT64_MAX, &handle), EBB_E_ARGUMENT);
    assert_int_equal(ebb_program_add_view(p, part, 0, 11, &handle), EBB_E_ARGUMENT);
    assert_non_null(strstr(ebb_last_error(), "11 bytes from 0 on are not within the 10 bytes of tensor 1"));
    assert_int_equal(handle, 77);
    ebb_program_destroy(p);
}

static void test_finished_is_const(void **state) {
    (void)state;
    ebb_program *p = make_small();
    const ebb_tensor t = {.name = "late", .size_bytes = 1};
    uint32_t handle = 77;
    assert_int_equal(ebb_program_finish(p), EBB_OK);
    assert_int_equal(ebb_program_finish(p), EBB_E_ARGUMENT);
    assert_int_equal(ebb_program_add_tensor(p, &t, &handle), EBB_E_ARGUMENT);
    assert_int_equal(ebb_program_add_view(p, 0, 0, 1, &handle), EBB_E_ARGUMENT);
    assert_int_equal(STEP(p, "late", 0, {0, EBB_READ}), EBB_E_ARGUMENT);
    assert_int_equal(handle, 77);
    ebb_program_destroy(p);
}

static void expect_bad(ebb_program *p, const char *message) {
    assert_int_equal(ebb_program_finish(p), EBB_E_FORMAT);
    if (strstr(ebb_last_error(), message) == NULL) { fail_msg("'%s' lacks '%s'", ebb_last_error(), message); }
    ebb_program_destroy(p);
}

static void test_check(void **state) {
    (void)state;
    expect_bad(make(1), "no steps");

    ebb_program *p = make(1);
    uint32_t t = tensor(p, "temp", 1, false);
    assert_int_equal(STEP(p, "early", 0, {t, EBB_READ}), EBB_OK);
    assert_int_equal(STEP(p, "late", 0, {t, EBB_WRITE}), EBB_OK);
    expect_bad(p, "step 0 (early) reads tensor 0 (temp) before it is written");

    p = make(1);
    t = tensor(p, "temp", 1, false);
    assert_int_equal(STEP(p, "early", 0, {t, EBB_UPDATE}), EBB_OK);
    expect_bad(p, "before it is written");

    p = make_small();
    (void)tensor(p, "idle", 1, true);
    expect_bad(p, "tensor 3 (idle) is persistent, but no step accesses it");

    static const struct {
        ebb_tensor tensor;
        const char *message;
    } released[] = {
        {{.name = "x", .size_bytes = 1, .released = 1}, "step 1 (read) accesses tensor 0 (x) after it was released"},
        {{.name = "x", .size_bytes = 1, .released = 3}, "tensor 0 (x) is there to the end, and released"},
        {{.name = "x", .size_bytes = 1, .released = 2, .kept = true}, "tensor 0 (x) is kept, and released"},
        {{.name = "x", .size_bytes = 1, .released = 2, .persistent = true}, "tensor 0 (x) is persistent, and released"},
    };
    for (size_t i = 0; i < sizeof released / sizeof released[0]; i++) {
        p = make(1);
        assert_int_equal(ebb_program_add_tensor(p, &released[i].tensor, &t), EBB_OK);
        assert_int_equal(STEP(p, "write", 0, {t, EBB_WRITE}), EBB_OK);
        assert_int_equal(STEP(p, "read", 0, {t, EBB_READ}), EBB_OK);
        expect_bad(p, released[i].message);
    }

    p = make_small();
    for (int i = 0; i < 2; i++) { (void)tensor(p, "huge", EBB_PROGRAM_MAX_BYTES / 2, false); }
    expect_bad(p, "are more than");
}

static void test_fingerprint(void **state) {
    (void)state;
    ebb_program *a = make_small(), *b = make_small();
    const uint64_t same = ebb_program_fingerprint(a);
    assert_true(same == ebb_program_fingerprint(b));
    b->steps.data[0].name = "other";
    b->choices.data[0].flops = 7;
    b->choices.data[0].key = 7;
    b->choices.data[0].time_ns = 7;
    b->tensors.data[0].role = EBB_ROLE_INPUT;
    b->tensors.data[0].marks = EBB_MARK_CHECKPOINT;
    assert_true(same == ebb_program_fingerprint(b));
    b->tensors.data[0].size_bytes++;
    assert_true(same != ebb_program_fingerprint(b));
    b->tensors.data[0].size_bytes--;
    b->tensors.data[0].kept = true;
    assert_true(same != ebb_program_fingerprint(b));
    b->tensors.data[0].kept = false;
    b->accesses.data[1].mode = EBB_WRITE;
    assert_true(same != ebb_program_fingerprint(b));
    b->accesses.data[1].mode = EBB_READ;
    b->choices.data[2].scratch_bytes++;
    assert_true(same != ebb_program_fingerprint(b));
    b->choices.data[2].scratch_bytes--;
    b->steps.data[1].repeat = EBB_REPEAT_NEVER;
    assert_true(same != ebb_program_fingerprint(b));
    b->steps.data[1].repeat = EBB_REPEAT_EXACT;
    b->keeps_order = true;
    assert_true(same != ebb_program_fingerprint(b));
    b->keeps_order = false;
    assert_true(same == ebb_program_fingerprint(b));
    ebb_program_destroy(a);
    ebb_program_destroy(b);
}

static void test_versions_and_uses(void **state) {
    (void)state;
    ebb_program *p = make_small();
    ebb_bump bump;
    ebb__bump_init(&bump, NULL);
    ebb_versions v;
    ebb_uses u;
    assert_int_equal(ebb__program_versions(p, &bump, &v), EBB_OK);
    assert_int_equal(ebb__program_uses(p, &bump, &u), EBB_OK);
    const uint32_t none = UINT32_MAX;
    const uint32_t read[] = {none, 0, 1, none, 1, 0}, after[] = {1, 0, 1, 1, 1, 1}, final[] = {1, 1, 1};
    assert_memory_equal(v.read, read, sizeof read);
    assert_memory_equal(v.after, after, sizeof after);
    assert_memory_equal(v.final, final, sizeof final);
    const uint64_t start[] = {0, 2, 4, 6};
    assert_memory_equal(u.start, start, sizeof start);
    const uint32_t steps[] = {1, 2, 0, 1, 1, 2}, modes[] = {1, 3, 2, 1, 2, 1};
    const uint64_t accesses[] = {1, 5, 0, 2, 3, 4};
    for (size_t i = 0; i < 6; i++) {
        assert_int_equal(u.use[i].step, steps[i]);
        assert_int_equal(u.use[i].mode, modes[i]);
        assert_int_equal(u.use[i].access, accesses[i]);
    }
    ebb__bump_fini(&bump);
    ebb_program_destroy(p);
}

static void test_roles(void **state) {
    (void)state;
    for (int r = 0; r < EBB_N_ROLES; r++) {
        ebb_role found = EBB_N_ROLES;
        const char *name = ebb_role_name((ebb_role)r);
        assert_true(ebb__role_find(name, strlen(name), &found));
        assert_int_equal(found, r);
    }
    ebb_role found;
    assert_string_equal(ebb_role_name(EBB_N_ROLES), "other");
    assert_false(ebb__role_find("othe", 4, &found));
    assert_false(ebb__role_find("", 0, &found));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_views),
        cmocka_unit_test(test_floor),
        cmocka_unit_test(test_accesses_merge),
        cmocka_unit_test(test_builder_refuses),
        cmocka_unit_test(test_views_are_folded),
        cmocka_unit_test(test_wrong_views),
        cmocka_unit_test(test_finished_is_const),
        cmocka_unit_test(test_check),
        cmocka_unit_test(test_fingerprint),
        cmocka_unit_test(test_versions_and_uses),
        cmocka_unit_test(test_roles),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
