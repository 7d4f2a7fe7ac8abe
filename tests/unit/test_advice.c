/* SPDX-License-Identifier: Apache-2.0
 *
 * Advice to programs of PyTorch's, with peaks reckoned by hand, and to others none of it.
 */
#include "study_fixture.h"

#define TELLS_TORCH                                                                                                    \
    (EBB_TRACE_TELLS_ACCESSES | EBB_TRACE_TELLS_ROLES | EBB_TRACE_TELLS_STEPS | EBB_TRACE_TELLS_STACKS |               \
     EBB_TRACE_TELLS_BEFORE)

static void begin(study_fixture *f, uint32_t tells, const char *source) {
    study_fixture_init(f, tells);
    assert_int_equal(ebb_trace_writer_note(f->writer, "source", source), EBB_OK);
}

static void step(study_fixture *f, uint32_t phase) {
    study_add(f, (ebb_trace_event){.kind = EBB_TRACE_STEP_BEGIN, .phase = phase, .index = EBB_TRACE_NONE});
}

static void end(study_fixture *f) {
    study_do(f, EBB_TRACE_STEP_END, 0);
}

static void mark(study_fixture *f, uint32_t kind, uint64_t number) {
    study_add(f, (ebb_trace_event){.kind = EBB_TRACE_MARK, .mark = kind, .number = number});
}

static const ebb_study_tip *tip(const ebb_study *s, const char *key) {
    size_t n = 0;
    const ebb_study_tip *tips = ebb_study_advice(s, &n);
    for (size_t i = 0; i < n; i++) {
        if (strcmp(tips[i].key, key) == 0) { return &tips[i]; }
    }
    return NULL;
}

static void expect(const ebb_study *s, const char *key, uint64_t won_bytes, const char *part) {
    const ebb_study_tip *found = tip(s, key);
    if (found == NULL) { fail_msg("no advice %s", key); }
    assert_int_equal(found->won_bytes, won_bytes);
    if (strstr(found->sentence, part) == NULL) { fail_msg("%s: %s", key, found->sentence); }
}

/* ---- checkpoints ------------------------------------------------------------------------------- */

#define N_LAYERS 3u
#define N_OPS 4u

/* Layers of four operators that make 100 bytes each; all of them wait for the backward pass. */
static void forward_and_back(study_fixture *f, const uint32_t *stacks) {
    uint64_t made[N_LAYERS * N_OPS];
    for (unsigned i = 0; i < N_LAYERS * N_OPS; i++) {
        char name[32] = "";
        if (stacks == NULL) { snprintf(name, sizeof name, "net.layer%u.part%u.op", i / N_OPS, i % N_OPS); }
        f->stack = stacks != NULL ? stacks[i % N_OPS] : 0;
        made[i] = study_alloc(f, 100, stacks != NULL ? EBB_ROLE_UNKNOWN : EBB_ROLE_ACTIVATION, name);
    }
    for (unsigned i = N_LAYERS * N_OPS; i-- > 0;) { study_do(f, EBB_TRACE_FREE, made[i]); }
}

/* Around each layer: 3 outputs stay, and 300 bytes of one are computed again, so 600 rather than 1200. Around each part
 * or the whole nothing is won. */
static void checkpoint_by_name(void **state) {
    (void)state;
    study_fixture f;
    begin(&f, EBB_TRACE_TELLS_ROLES, "ebb.torch");
    for (unsigned i = 0; i < 2; i++) { forward_and_back(&f, NULL); }
    const ebb_study *s = study_fixture_study(&f, NULL);
    assert_int_equal(ebb_study_get_summary(s).peak_bytes, 1200);
    expect(s, "checkpoint", 600, "net.layer0, net.layer1, net.layer2 through torch.utils.checkpoint");
    assert_non_null(strstr(tip(s, "checkpoint")->sentence, "about 600 B"));
    study_fixture_fini(&f);
}

/* A snapshot tells no modules, but the frames of their forward; the loop over layers calls the same lines again. */
static void checkpoint_by_stack(void **state) {
    (void)state;
    study_fixture f;
    uint32_t stacks[N_OPS];
    begin(&f, EBB_TRACE_TELLS_STACKS, "pytorch snapshot");
    const uint32_t net = study_frame(&f, study_frame(&f, 0, "main", "/me/train.py", 9), "forward", "/me/net.py", 5);
    for (unsigned i = 0; i < N_OPS; i++) {
        stacks[i] = study_frame(&f, study_frame(&f, net, "forward", "/me/layer.py", 10 + i), "relu", "/me/ops.py", 1);
    }
    forward_and_back(&f, stacks);
    const ebb_study *s = study_fixture_study(&f, NULL);
    expect(s, "checkpoint", 600, "each of forward (me/layer.py:10) through");
    study_fixture_fini(&f);
}

/* ---- the optimizer ----------------------------------------------------------------------------- */

/* 100 bytes of parameters, 200 of state, 400 of temporaries in the step: 700; without those 300; with a quarter of the
 * state 550. */
static void tell_step(study_fixture *f, bool by_role) {
    f->stack = by_role ? 0 : study_frame(f, 0, "step", "/lib/torch/optim/adamw.py", 7);
    if (by_role) { (void)study_alloc_before(f, 100, EBB_ROLE_PARAMETER, "w"); }
    (void)study_alloc(f, 200, by_role ? EBB_ROLE_OPTIMIZER_STATE : EBB_ROLE_UNKNOWN, "");
    uint64_t temps[8];
    step(f, EBB_TRACE_PHASE_UPDATE);
    for (unsigned i = 0; i < 8; i++) {
        temps[i] = study_alloc(f, 50, by_role ? EBB_ROLE_TEMP : EBB_ROLE_UNKNOWN, "");
        study_do(f, EBB_TRACE_WRITE, temps[i]);
    }
    end(f);
    for (unsigned i = 0; i < 8; i++) { study_do(f, EBB_TRACE_FREE, temps[i]); }
    f->stack = 0;
}

static void state_and_step(void **state) {
    (void)state;
    study_fixture f;
    begin(&f, TELLS_TORCH, "ebb.torch");
    tell_step(&f, true);
    const ebb_study *s = study_fixture_study(&f, NULL);
    expect(s, "optimizer_state", 150, "200 B of the peak (28.6 %)");
    expect(s, "optimizer_step", 400, "fused=True");
    assert_non_null(strstr(tip(s, "optimizer_step")->sentence, "foreach=False"));
    study_fixture_fini(&f);
    begin(&f, EBB_TRACE_TELLS_ACCESSES | EBB_TRACE_TELLS_STEPS | EBB_TRACE_TELLS_STACKS, "pytorch snapshot");
    tell_step(&f, false);
    s = study_fixture_study(&f, NULL);
    expect(s, "optimizer_state", 150, "torchao.optim.AdamW8bit");
    expect(s, "optimizer_step", 400, "would be 200 B");
    study_fixture_fini(&f);
}

/* ---- gradients --------------------------------------------------------------------------------- */

/* A gradient of 100 bytes that lives on, and an activation of 150 that goes before the gradient comes: 250 with both,
 * 150 where the gradient is not kept. */
static void tell_iterations(study_fixture *f, bool reads) {
    const uint64_t grad = study_alloc(f, 100, EBB_ROLE_GRADIENT, "w.grad");
    for (uint64_t i = 0; i < 4; i++) {
        mark(f, EBB_TRACE_ITERATION_BEGIN, i);
        step(f, EBB_TRACE_PHASE_FORWARD);
        if (reads) { study_do(f, EBB_TRACE_READ, grad); }
        study_do(f, EBB_TRACE_WRITE, grad);
        end(f);
        step(f, EBB_TRACE_PHASE_FORWARD);
        const uint64_t a = study_alloc(f, 150, EBB_ROLE_ACTIVATION, "a");
        study_do(f, EBB_TRACE_WRITE, a);
        end(f);
        study_do(f, EBB_TRACE_FREE, a);
        step(f, EBB_TRACE_PHASE_BACKWARD);
        study_do(f, EBB_TRACE_READ, grad);
        study_do(f, EBB_TRACE_WRITE, grad);
        end(f);
        mark(f, EBB_TRACE_ITERATION_END, i);
    }
}

static void gradients_through_the_forward(void **state) {
    (void)state;
    for (unsigned reads = 0; reads < 2; reads++) {
        study_fixture f;
        begin(&f, TELLS_TORCH, "ebb.torch");
        tell_iterations(&f, reads == 1);
        const ebb_study *s = study_fixture_study(&f, NULL);
        assert_int_equal(ebb_study_get_summary(s).peak_bytes, 250);
        if (reads == 0) {
            expect(s, "zero_grad", 100,
                   "optimizer.zero_grad(set_to_none=True) frees them, and the peak would be 150 B");
        } else {
            assert_null(tip(s, "zero_grad")); /* what is added to cannot go */
        }
        study_fixture_fini(&f);
    }
}

/* ---- what could leave -------------------------------------------------------------------------- */

/* 1000 bytes idle for a second, 2000 come meanwhile: the peak is 2000 if the activation leaves. */
static void tell_idle(study_fixture *f, ebb_role role) {
    const uint64_t a = study_alloc(f, 1000, role, "net.layer.op");
    study_do(f, EBB_TRACE_WRITE, a);
    f->now_ns = 500000000;
    const uint64_t b = study_alloc(f, 2000, EBB_ROLE_TEMP, "");
    study_do(f, EBB_TRACE_FREE, b);
    f->now_ns = 1000000000;
    study_do(f, EBB_TRACE_READ, a);
    study_do(f, EBB_TRACE_FREE, a);
}

static void who_is_told_what(void **state) {
    (void)state;
    static const struct {
        const char *source, *device;
        ebb_role role;
        const char *key, *part, *not_part;
    } cases[] = {
        {"ebb.torch", "cuda:0", EBB_ROLE_ACTIVATION, "save_on_cpu", "most of them of net.layer:", "on a device"},
        {"ebb.torch", "cpu", EBB_ROLE_ACTIVATION, "save_on_cpu", "on a device with memory of its own", "offload"},
        {"ebb.torch", "cuda:0", EBB_ROLE_OPTIMIZER_STATE, "offload", "CPUOffloadOptimizer", "save_on_cpu"},
        {"ebb run", "cpu", EBB_ROLE_ACTIVATION, "swap", "ebb train --memory SIZE", "torch"},
        {"ebb record", "cpu", EBB_ROLE_ACTIVATION, "swap", "could be as low as 1.95 KiB", "torch"},
        {"singa log", "cpu", EBB_ROLE_ACTIVATION, "swap", "could be as low as 1.95 KiB", "torch"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        study_fixture f;
        begin(&f, STUDY_TELLS_ALL, cases[i].source);
        assert_int_equal(ebb_trace_writer_note(f.writer, "space.0", cases[i].device), EBB_OK);
        tell_idle(&f, cases[i].role);
        const ebb_study *s = study_fixture_study(&f, NULL);
        expect(s, cases[i].key, 1000, cases[i].part);
        assert_null(strstr(tip(s, cases[i].key)->sentence, cases[i].not_part));
        study_fixture_fini(&f);
    }
}

/* Rows of what if: settings of PyTorch's allocator are for PyTorch's programs, and no device's allocator for a heap. */
static void settings_are_for_pytorch(void **state) {
    (void)state;
    static const struct {
        const char *source;
        bool has_pytorch, has_settings;
    } cases[] = {{"ebb.torch", true, true},       {"pytorch snapshot", true, true}, {"chrome trace", true, true},
                 {"minimalloc csv", true, false}, {"ebb run", true, false},         {"ebb record", false, false}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        study_fixture f;
        bool has_pytorch = false, has_settings = false;
        begin(&f, STUDY_TELLS_ALL, cases[i].source);
        tell_idle(&f, EBB_ROLE_ACTIVATION);
        size_t n = 0;
        const ebb_study_what_if *rows = ebb_study_what_ifs(study_fixture_study(&f, NULL), &n);
        for (size_t k = 0; k < n; k++) {
            has_pytorch = has_pytorch || strcmp(rows[k].key, "pytorch") == 0;
            has_settings = has_settings || strncmp(rows[k].key, "pytorch:", 8) == 0;
        }
        assert_true(has_pytorch == cases[i].has_pytorch && has_settings == cases[i].has_settings);
        study_fixture_fini(&f);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(checkpoint_by_name), cmocka_unit_test(checkpoint_by_stack),
        cmocka_unit_test(state_and_step),     cmocka_unit_test(gradients_through_the_forward),
        cmocka_unit_test(who_is_told_what),   cmocka_unit_test(settings_are_for_pytorch),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
