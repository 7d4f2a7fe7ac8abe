/* SPDX-License-Identifier: Apache-2.0
 *
 * Advice to programs of PyTorch's, with peaks worked out by hand, and to others none of it.
 */
#include "study_fixture.h"

#define TELLS_TORCH                                                                                                    \
    (EBB_TRACE_TELLS_ACCESSES | EBB_TRACE_TELLS_ROLES | EBB_TRACE_TELLS_STEPS | EBB_TRACE_TELLS_STACKS |               \
     EBB_TRACE_TELLS_BEFORE)

static void begin(study_fixture *f, uint32_t tells, const char *source) {
    study_fixture_init(f, tells);
    assert_int_equal(ebb_trace_writer_note(f->writer, "source", source), EBB_OK);
}

static void step_of(study_fixture *f, uint32_t phase, const char *op) {
    study_add(f, (ebb_trace_event){
                     .kind = EBB_TRACE_STEP_BEGIN, .phase = phase, .op = study_string(f, op), .index = EBB_TRACE_NONE});
}

static void step(study_fixture *f, uint32_t phase) {
    step_of(f, phase, "");
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

/* PyTorch's profiler knows which module of a class it is. */
static void checkpoint_by_profiled_module(void **state) {
    (void)state;
    study_fixture f;
    uint32_t stacks[N_OPS];
    begin(&f, EBB_TRACE_TELLS_STACKS, "chrome trace");
    const uint32_t module = study_frame(&f, study_frame(&f, 0, "main", "/me/train.py", 9), "nn.Module: Layer_0", "", 0);
    const uint32_t forward = study_frame(&f, study_frame(&f, module, "_call_impl", "torch/nn/modules/module.py", 1),
                                         "forward", "/me/layer.py", 10);
    for (unsigned i = 0; i < N_OPS; i++) { stacks[i] = study_frame(&f, forward, "relu", "/me/ops.py", 1 + i); }
    forward_and_back(&f, stacks);
    expect(study_fixture_study(&f, NULL), "checkpoint", 600, "each of Layer_0 through");
    study_fixture_fini(&f);
}

/* Blocks a and out of each of two modules, 100 bytes each, and then a step of the optimizer with 350 bytes, when all of
 * them are gone. 400 at the most; around each module 100 + 100 and, computed again, 100 + 100: the step is the peak. */
static void forward_with_reads(study_fixture *f, unsigned n_times, ebb_role role) {
    static const char *const names[] = {"net.one.a.op", "net.one.b.op", "net.two.a.op", "net.two.b.op"};
    uint64_t made[4];
    for (unsigned time = 0; time < n_times; time++) {
        for (unsigned i = 0; i < 4; i++) {
            step(f, EBB_TRACE_PHASE_FORWARD);
            made[i] = study_alloc(f, 100, role, names[i]);
            study_do(f, EBB_TRACE_WRITE, made[i]);
            end(f);
        }
        for (unsigned i = 4; i-- > 0;) {
            step(f, EBB_TRACE_PHASE_BACKWARD);
            study_do(f, EBB_TRACE_READ, made[i]);
            end(f);
            study_do(f, EBB_TRACE_FREE, made[i]);
        }
        step(f, EBB_TRACE_PHASE_UPDATE);
        const uint64_t temp = study_alloc(f, 350, EBB_ROLE_OTHER, "");
        study_do(f, EBB_TRACE_WRITE, temp);
        end(f);
        study_do(f, EBB_TRACE_FREE, temp);
    }
}

static void checkpoint_by_time(void **state) {
    (void)state;
    study_fixture f;
    begin(&f, TELLS_TORCH, "ebb.torch");
    forward_with_reads(&f, 2, EBB_ROLE_ACTIVATION);
    const ebb_study *s = study_fixture_study(&f, NULL);
    assert_int_equal(ebb_study_get_summary(s).peak_bytes, 400);
    expect(s, "checkpoint", 50, "about 350 B"); /* and not 100 more, which are gone by the step */
    study_fixture_fini(&f);
}

/* net.one makes a, a little, and out, which the step after it reads: that step has begun before it makes the block with
 * which the call ends. The little is read still later. Only a is dropped. */
static void checkpoint_keeps_what_a_longer_step_reads(void **state) {
    (void)state;
    study_fixture f;
    begin(&f, TELLS_TORCH, "ebb.torch");
    for (unsigned time = 0; time < 2; time++) {
        step(&f, EBB_TRACE_PHASE_FORWARD);
        const uint64_t a = study_alloc(&f, 100, EBB_ROLE_ACTIVATION, "net.one.a.op");
        study_do(&f, EBB_TRACE_WRITE, a);
        end(&f);
        step(&f, EBB_TRACE_PHASE_FORWARD);
        const uint64_t little = study_alloc(&f, 10, EBB_ROLE_ACTIVATION, "net.one.b.op");
        const uint64_t out = study_alloc(&f, 100, EBB_ROLE_ACTIVATION, "net.one.b.op");
        study_do(&f, EBB_TRACE_READ, a);
        study_do(&f, EBB_TRACE_WRITE, out);
        end(&f);
        step(&f, EBB_TRACE_PHASE_FORWARD);
        const uint64_t next = study_alloc(&f, 100, EBB_ROLE_ACTIVATION, "net.up.op");
        step(&f, EBB_TRACE_PHASE_FORWARD);
        study_do(&f, EBB_TRACE_WRITE, next);
        end(&f);
        study_do(&f, EBB_TRACE_READ, out);
        end(&f);
        step(&f, EBB_TRACE_PHASE_FORWARD);
        const uint64_t last = study_alloc(&f, 100, EBB_ROLE_ACTIVATION, "net.last.op");
        study_do(&f, EBB_TRACE_READ, little);
        study_do(&f, EBB_TRACE_WRITE, last);
        end(&f);
        const uint64_t made[] = {last, next, little, out, a};
        for (size_t i = 0; i < 5; i++) {
            step(&f, EBB_TRACE_PHASE_BACKWARD);
            study_do(&f, EBB_TRACE_READ, made[i]);
            end(&f);
            study_do(&f, EBB_TRACE_FREE, made[i]);
        }
    }
    const ebb_study *s = study_fixture_study(&f, NULL);
    assert_int_equal(ebb_study_get_summary(s).peak_bytes, 410);
    expect(s, "checkpoint", 100, "calling net.one through");
    study_fixture_fini(&f);
}

/* An execution trace tells no roles; reads and writes do. Its modules are the ranges, of which it notes that they can
 * be called; net is not a list. */
static void checkpoint_by_ranges(void **state) {
    (void)state;
    static const char *const ranges[] = {"class.net.one", "class.net.two", "class.net.one.a"};
    study_fixture f;
    begin(&f, EBB_TRACE_TELLS_ACCESSES | EBB_TRACE_TELLS_STEPS, "pytorch execution trace");
    for (size_t i = 0; i < 3; i++) { assert_int_equal(ebb_trace_writer_note(f.writer, ranges[i], ""), EBB_OK); }
    forward_with_reads(&f, 2, EBB_ROLE_UNKNOWN);
    const ebb_study *s = study_fixture_study(&f, NULL);
    expect(s, "checkpoint", 50, "calling net.one through");
    assert_null(tip(s, "record"));
    study_fixture_fini(&f);
}

/* State that an execution trace does not call so: only updates touch it. Which optimizer it is says its range. */
static void state_by_accesses(void **state) {
    (void)state;
    static const struct {
        const char *range, *names;
    } cases[] = {{"Optimizer.step#SGD.step", "(bitsandbytes.optim.SGD8bit)"},
                 {"Optimizer.step#AdamW.step", "(bitsandbytes.optim.AdamW8bit"},
                 {"Optimizer.step#Adam.step", "(bitsandbytes.optim.Adam8bit, torchao.optim.Adam8bit)"},
                 {"Optimizer.step#RMSprop.step", "(bitsandbytes.optim.RMSprop8bit)"},
                 {"Optimizer.step#Lion.step", "(bitsandbytes.optim and torchao.optim have some that do)"},
                 {"Optimizer.step#NAdam.step", NULL}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        study_fixture f;
        begin(&f, EBB_TRACE_TELLS_ACCESSES | EBB_TRACE_TELLS_STEPS, "pytorch execution trace");
        const uint64_t moment = study_alloc_before(&f, 4000, EBB_ROLE_UNKNOWN, "before the recording");
        const uint64_t weight = study_alloc_before(&f, 4000, EBB_ROLE_UNKNOWN, "before the recording");
        for (unsigned k = 0; k < 2; k++) {
            step(&f, EBB_TRACE_PHASE_FORWARD);
            study_do(&f, EBB_TRACE_READ, weight);
            end(&f);
            study_add(&f, (ebb_trace_event){.kind = EBB_TRACE_STEP_BEGIN,
                                            .phase = EBB_TRACE_PHASE_UPDATE,
                                            .name = study_string(&f, cases[i].range),
                                            .index = EBB_TRACE_NONE});
            study_do(&f, EBB_TRACE_WRITE, moment);
            study_do(&f, EBB_TRACE_WRITE, weight);
            end(&f);
        }
        const ebb_study *s = study_fixture_study(&f, NULL);
        if (cases[i].names != NULL) { expect(s, "optimizer_state", 3000, cases[i].names); }
        if (cases[i].names == NULL) { assert_null(tip(s, "optimizer_state")); } /* nothing has its state in 8 bits */
        study_fixture_fini(&f);
    }
}

/* All names, of which the sentence has three. */
static void names_of_all(void **state) {
    (void)state;
    study_fixture f;
    uint64_t made[20];
    begin(&f, EBB_TRACE_TELLS_ROLES, "ebb.torch");
    for (unsigned i = 0; i < 20; i++) {
        char name[32];
        snprintf(name, sizeof name, "net.layer%u.part%u.op", i / 4, i % 4);
        made[i] = study_alloc(&f, 100 + i, EBB_ROLE_ACTIVATION, name);
    }
    for (unsigned i = 20; i-- > 0;) { study_do(&f, EBB_TRACE_FREE, made[i]); }
    const ebb_study_tip *found = tip(study_fixture_study(&f, NULL), "checkpoint");
    assert_true(found != NULL && found->n_names == 5 && strstr(found->sentence, "and 2 more") != NULL);
    for (size_t i = 0; i < found->n_names; i++) { /* as the program has them, though later ones take more */
        char name[32];
        snprintf(name, sizeof name, "net.layer%zu", i);
        assert_string_equal(found->names[i], name);
    }
    study_fixture_fini(&f);
}

/* A module that is computed again is not to be checkpointed once more, nor what holds it. */
static void no_checkpoint_of_checkpoints(void **state) {
    (void)state;
    for (unsigned phase = EBB_TRACE_PHASE_FORWARD; phase <= EBB_TRACE_PHASE_BACKWARD; phase++) {
        study_fixture f;
        uint64_t made[N_LAYERS * N_OPS];
        begin(&f, TELLS_TORCH, "ebb.torch");
        for (unsigned i = 0; i < N_LAYERS * N_OPS; i++) {
            char name[32];
            snprintf(name, sizeof name, "net.layer%u.part%u.op", i / N_OPS, i % N_OPS);
            step(&f, i % N_OPS < 2 ? EBB_TRACE_PHASE_FORWARD : phase);
            made[i] = study_alloc(&f, 100, EBB_ROLE_ACTIVATION, name);
            study_do(&f, EBB_TRACE_WRITE, made[i]);
            end(&f);
        }
        for (unsigned i = N_LAYERS * N_OPS; i-- > 0;) {
            step(&f, EBB_TRACE_PHASE_BACKWARD);
            study_do(&f, EBB_TRACE_READ, made[i]);
            end(&f);
            study_do(&f, EBB_TRACE_FREE, made[i]);
        }
        const ebb_study *s = study_fixture_study(&f, NULL);
        assert_true((tip(s, "checkpoint") != NULL) == (phase == EBB_TRACE_PHASE_FORWARD));
        study_fixture_fini(&f);
    }
}

/* The same by stacks: below the frame of a checkpoint, or in a forward that a step of the backward pass calls. */
static void no_checkpoint_below_one(void **state) {
    (void)state;
    static const char *const callers[][2] = {{"checkpoint", "/lib/torch/utils/checkpoint.py"},
                                             {"backward", "/lib/torch/_tensor.py"}};
    for (size_t k = 0; k < 2; k++) {
        study_fixture f;
        uint32_t stacks[N_OPS];
        begin(&f, EBB_TRACE_TELLS_STACKS, "pytorch snapshot");
        const uint32_t main_stack = study_frame(&f, 0, "main", "/me/train.py", 9);
        const uint32_t caller = study_frame(&f, main_stack, callers[k][0], callers[k][1], 4);
        for (unsigned i = 0; i < N_OPS; i++) {
            stacks[i] =
                study_frame(&f, study_frame(&f, caller, "forward", "/me/layer.py", 10 + i), "relu", "/me/ops.py", 1);
        }
        forward_and_back(&f, stacks);
        assert_null(tip(study_fixture_study(&f, NULL), "checkpoint"));
        study_fixture_fini(&f);
    }
}

/* Blocks in the order of their names, 100 bytes each, which go in the opposite order; twice. */
static void tell_names(study_fixture *f, const char *const *names, size_t n) {
    uint64_t made[16];
    for (unsigned time = 0; time < 2; time++) {
        for (size_t i = 0; i < n; i++) { made[i] = study_alloc(f, 100, EBB_ROLE_ACTIVATION, names[i]); }
        for (size_t i = n; i-- > 0;) { study_do(f, EBB_TRACE_FREE, made[i]); }
    }
}

/* The network itself has no class among its modules, and a list cannot be called; children are told, and not beside
 * their parent. */
static void no_checkpoint_of_a_list(void **state) {
    (void)state;
    static const char *const names[] = {"layers.0.a.op", "layers.0.b.op", "layers.0.c.op", "Net.cat",
                                        "layers.1.a.op", "layers.1.b.op", "layers.1.c.op", "Net.cat"};
    static const char *const classes[][2] = {{"class.layers", "ModuleList"}, {"class.layers.0", "Block"},
                                             {"class.layers.1", "Block"},    {"class.layers.0.a", "Linear"},
                                             {"class.layers.1.a", "Linear"}, {"class.layers.0.b", "ReLU"},
                                             {"class.layers.1.b", "ReLU"}};
    study_fixture f;
    begin(&f, EBB_TRACE_TELLS_ROLES, "ebb.torch");
    for (size_t i = 0; i < sizeof classes / sizeof *classes; i++) {
        assert_int_equal(ebb_trace_writer_note(f.writer, classes[i][0], classes[i][1]), EBB_OK);
    }
    tell_names(&f, names, 8);
    const ebb_study_tip *found = tip(study_fixture_study(&f, NULL), "checkpoint");
    assert_non_null(found);
    assert_int_equal(found->n_names, 2);
    assert_string_equal(found->names[0], "layers.0 (Block)");
    assert_string_equal(found->names[1], "layers.1 (Block)");
    study_fixture_fini(&f);
}

/* One module that has all activations wins nothing, even where the peak comes before they are back. */
static void no_checkpoint_of_the_whole(void **state) {
    (void)state;
    static const char *const names[] = {"net.a.op", "net.b.op", "net.c.op", "net.d.op"};
    study_fixture f;
    begin(&f, EBB_TRACE_TELLS_ROLES, "ebb.torch");
    uint64_t made[4];
    for (unsigned i = 0; i < 4; i++) { made[i] = study_alloc(&f, 100, EBB_ROLE_ACTIVATION, names[i]); }
    study_do(&f, EBB_TRACE_FREE, study_alloc(&f, 500, EBB_ROLE_TEMP, ""));
    for (unsigned i = 4; i-- > 0;) { study_do(&f, EBB_TRACE_FREE, made[i]); }
    assert_null(tip(study_fixture_study(&f, NULL), "checkpoint"));
    study_fixture_fini(&f);
}

/* One forward is not 'each of forward'. */
static void checkpoint_of_one(void **state) {
    (void)state;
    study_fixture f;
    begin(&f, EBB_TRACE_TELLS_STACKS, "pytorch snapshot");
    const uint32_t net = study_frame(&f, study_frame(&f, 0, "main", "/me/train.py", 9), "forward", "/me/net.py", 5);
    const uint32_t head = study_frame(&f, study_frame(&f, 0, "main", "/me/train.py", 9), "forward", "/me/net.py", 8);
    uint64_t made[8];
    for (unsigned i = 0; i < 8; i++) {
        const uint32_t inner =
            study_frame(&f, i < 6 ? net : head, "forward", i < 6 ? "/me/body.py" : "/me/head.py", 30 + i);
        f.stack = study_frame(&f, inner, "relu", "/me/ops.py", 1);
        made[i] = study_alloc(&f, 100, EBB_ROLE_UNKNOWN, "");
    }
    f.stack = 0;
    study_do(&f, EBB_TRACE_FREE, study_alloc(&f, 400, EBB_ROLE_UNKNOWN, ""));
    for (unsigned i = 8; i-- > 0;) { study_do(&f, EBB_TRACE_FREE, made[i]); }
    const ebb_study_tip *found = tip(study_fixture_study(&f, NULL), "checkpoint");
    assert_non_null(found);
    if (strstr(found->sentence, "calling forward (me/body.py:30) through") == NULL) { fail_msg("%s", found->sentence); }
    assert_int_equal(found->n_names, 1);
    study_fixture_fini(&f);
}

/* ---- leaks ------------------------------------------------------------------------------------- */

#define N_ROUNDS 8u

/* 100 bytes a round that are kept, beside 300 that go and 200 that were made in the first. */
static void tell_rounds(study_fixture *f, bool marks, bool keeps) {
    const uint32_t main_stack = study_frame(f, 0, "train", "/me/leak.py", 7);
    for (unsigned i = 0; i < N_ROUNDS; i++) {
        if (marks) { mark(f, EBB_TRACE_ITERATION_BEGIN, i); }
        f->stack = 0;
        const uint64_t temp = study_alloc(f, 300, EBB_ROLE_TEMP, "");
        if (i == 0) { (void)study_alloc(f, 200, EBB_ROLE_ACTIVATION, "cache"); }
        f->stack = main_stack;
        const uint64_t kept = study_alloc(f, 100, EBB_ROLE_ACTIVATION, "out");
        study_do(f, EBB_TRACE_FREE, temp);
        if (!keeps && i + 1 < N_ROUNDS) { study_do(f, EBB_TRACE_FREE, kept); }
        if (marks) { mark(f, EBB_TRACE_ITERATION_END, i); }
    }
}

/* 1300 at most; if nothing leaked 600. */
static void memory_that_grows(void **state) {
    (void)state;
    static const struct {
        const char *source;
        bool marks, keeps, is_told, is_torch;
    } cases[] = {{"ebb.torch", true, true, true, true},
                 {"ebb.torch", false, true, true, true},
                 {"ebb.torch", true, false, false, true},
                 {"ebb record", true, true, true, false}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        study_fixture f;
        begin(&f, EBB_TRACE_TELLS_ROLES | EBB_TRACE_TELLS_STACKS, cases[i].source);
        tell_rounds(&f, cases[i].marks, cases[i].keeps);
        const ebb_study *s = study_fixture_study(&f, NULL);
        assert_true((tip(s, "leak") != NULL) == cases[i].is_told);
        if (cases[i].is_told) {
            size_t n = 0;
            assert_int_equal(ebb_study_get_summary(s).peak_bytes, 1300);
            expect(s, "leak", 700, "grows by 100 B an iteration: blocks allocated at train (me/leak.py:7) outlive");
            assert_true((strstr(tip(s, "leak")->sentence, "loss.item()") != NULL) == cases[i].is_torch);
            assert_string_equal(ebb_study_advice(s, &n)[0].key, "leak");
        }
        study_fixture_fini(&f);
    }
}

/* ---- the optimizer ----------------------------------------------------------------------------- */

/* 100 bytes of parameters, 200 of state, 400 of temporaries in the step: 700; without those 300; with a quarter of the
 * state 550. */
static void tell_step(study_fixture *f, bool by_role, const char *op) {
    f->stack = by_role ? 0 : study_frame(f, 0, "step", "/lib/torch/optim/adamw.py", 7);
    if (by_role) { (void)study_alloc_before(f, 100, EBB_ROLE_PARAMETER, "w"); }
    (void)study_alloc(f, 200, by_role ? EBB_ROLE_OPTIMIZER_STATE : EBB_ROLE_UNKNOWN, "");
    uint64_t temps[8];
    step_of(f, EBB_TRACE_PHASE_UPDATE, op);
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
    assert_int_equal(ebb_trace_writer_note(f.writer, "optimizer.AdamW", "torch.optim.adamw"), EBB_OK);
    tell_step(&f, true, "aten::_foreach_addcdiv_");
    const ebb_study *s = study_fixture_study(&f, NULL);
    expect(s, "optimizer_state", 150, "200 B of the peak (28.6 %)");
    expect(s, "optimizer_step", 400, "fused=True");
    assert_non_null(strstr(tip(s, "optimizer_step")->sentence, "foreach=False"));
    study_fixture_fini(&f);
    begin(&f, EBB_TRACE_TELLS_ACCESSES | EBB_TRACE_TELLS_STEPS | EBB_TRACE_TELLS_STACKS, "pytorch snapshot");
    tell_step(&f, false, "aten::div");
    s = study_fixture_study(&f, NULL);
    expect(s, "optimizer_state", 150, "torchao.optim.AdamW8bit");
    expect(s, "optimizer_step", 400, "would be 200 B");
    assert_null(strstr(tip(s, "optimizer_step")->sentence, "foreach=False")); /* it does no more than that already */
    study_fixture_fini(&f);
}

/* Some classes have no fused step, others no foreach either, and an unknown class has nothing. 700 bytes at most, 300
 * without temporaries, and 500 with four of them. */
static void step_of_each_optimizer(void **state) {
    (void)state;
    static const struct {
        const char *note;
        uint64_t won_bytes;
        const char *part;
    } cases[] = {{"optimizer.SGD", 400, "fused=True"},
                 {"optimizer.Adagrad", 400, "fused=True"},
                 {"optimizer.Adam", 400, "fused=True"},
                 {"optimizer.RMSprop", 200, "with foreach=False"},
                 {"optimizer.Adamax", 200, "at most 500 B"},
                 {"optimizer.LBFGS", 0, NULL},
                 {"optimizer.MyAdam", 0, NULL},
                 {"other", 0, NULL}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        study_fixture f;
        begin(&f, TELLS_TORCH, "ebb.torch");
        assert_int_equal(ebb_trace_writer_note(f.writer, cases[i].note, ""), EBB_OK);
        tell_step(&f, true, "aten::_foreach_addcdiv_");
        const ebb_study *s = study_fixture_study(&f, NULL);
        if (cases[i].part == NULL) {
            assert_null(tip(s, "optimizer_step"));
        } else {
            expect(s, "optimizer_step", cases[i].won_bytes, cases[i].part);
        }
        study_fixture_fini(&f);
    }
}

/* ---- a budget ---------------------------------------------------------------------------------- */

/* A step that trains: 1000 bytes wait for the backward pass, and 4096 are there meanwhile. */
static void train(study_fixture *f, uint32_t last_role, bool has_backward) {
    const uint64_t saved = study_alloc(f, 1000, EBB_ROLE_ACTIVATION, "net.layer.op");
    study_do(f, EBB_TRACE_WRITE, saved);
    f->now_ns = 500000000;
    const uint64_t temp = study_alloc(f, 4096, EBB_ROLE_TEMP, "");
    study_do(f, EBB_TRACE_WRITE, temp);
    study_do(f, EBB_TRACE_FREE, temp);
    f->now_ns = 1000000000;
    step(f, has_backward ? EBB_TRACE_PHASE_BACKWARD : EBB_TRACE_PHASE_FORWARD);
    study_do(f, EBB_TRACE_READ, saved);
    study_do(f, EBB_TRACE_WRITE, study_alloc(f, 64, last_role, ""));
    end(f);
    study_do(f, EBB_TRACE_FREE, saved);
}

/* A budget is named before what else there is, for a program of PyTorch's that trains. On the CPU it needs a folder. */
static void a_budget_first(void **state) {
    (void)state;
    static const struct {
        const char *source, *space;
        uint32_t role;
        bool is_told, needs_folder;
    } cases[] = {{"ebb.torch", "cuda:0", EBB_ROLE_GRADIENT, true, false},
                 {"ebb.torch", "cpu", EBB_ROLE_GRADIENT, true, true},
                 {"ebb.torch", "cuda:0", EBB_ROLE_OTHER, false, false},
                 {"ebb run", "cpu", EBB_ROLE_GRADIENT, false, false}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        study_fixture f;
        begin(&f, STUDY_TELLS_ALL, cases[i].source);
        assert_int_equal(ebb_trace_writer_note(f.writer, "space.0", cases[i].space), EBB_OK);
        train(&f, cases[i].role, cases[i].role == EBB_ROLE_GRADIENT);
        const ebb_study *s = study_fixture_study(&f, NULL);
        const ebb_study_tip *found = tip(s, "budget");
        assert_true((found != NULL) == cases[i].is_told);
        if (found != NULL) {
            size_t n = 0;
            const ebb_study_tip *all = ebb_study_advice(s, &n);
            assert_string_equal(all[0].key, "budget");
            assert_true(n > 1 || cases[i].needs_folder); /* save_on_cpu is for a card */
            expect(s, "budget", 1000, "ebb.torch.Budget(\"SIZE\"");
            expect(s, "budget", 1000, "as low as 4.00 KiB");
            assert_true((strstr(found->sentence, "spill=\"FOLDER\"") != NULL) == cases[i].needs_folder);
            assert_true(strlen(found->sentence) < 280); /* three lines of a report */
        }
        study_fixture_fini(&f);
    }
}

/* Advice that changes the result says so. */
static void what_changes_the_result(void **state) {
    (void)state;
    study_fixture f;
    begin(&f, TELLS_TORCH, "ebb.torch");
    assert_int_equal(ebb_trace_writer_note(f.writer, "optimizer.AdamW", "torch.optim.adamw"), EBB_OK);
    tell_step(&f, true, "aten::div");
    const ebb_study *s = study_fixture_study(&f, NULL);
    expect(s, "optimizer_state", 150, "which changes the result");
    expect(s, "optimizer_step", 400, "may round differently");
    study_fixture_fini(&f);
    for (unsigned has_norm = 0; has_norm < 2; has_norm++) {
        begin(&f, EBB_TRACE_TELLS_ROLES, "ebb.torch");
        for (unsigned i = 0; has_norm != 0 && i < N_LAYERS; i++) {
            char key[32];
            snprintf(key, sizeof key, "class.net.layer%u", i);
            assert_int_equal(ebb_trace_writer_note(f.writer, key, "BatchNorm2d"), EBB_OK);
        }
        for (unsigned i = 0; i < 2; i++) { forward_and_back(&f, NULL); }
        s = study_fixture_study(&f, NULL);
        assert_non_null(tip(s, "checkpoint"));
        assert_true((strstr(tip(s, "checkpoint")->sentence, "running statistics twice") != NULL) == (has_norm != 0));
        study_fixture_fini(&f);
    }
}

/* ---- gradients --------------------------------------------------------------------------------- */

/* A gradient of 100 bytes that lives on, and an activation of 150 that goes before the gradient comes: 250 with both,
 * 150 where the gradient is not kept. */
static void tell_iterations(study_fixture *f, bool reads, ebb_role role) {
    const uint64_t grad = study_alloc(f, 100, role, "w.grad");
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
        step(f, EBB_TRACE_PHASE_UPDATE);
        study_do(f, EBB_TRACE_READ, grad);
        end(f);
        mark(f, EBB_TRACE_ITERATION_END, i);
    }
}

static void gradients_through_the_forward(void **state) {
    (void)state;
    for (unsigned reads = 0; reads < 2; reads++) {
        study_fixture f;
        begin(&f, TELLS_TORCH, "ebb.torch");
        tell_iterations(&f, reads == 1, EBB_ROLE_GRADIENT);
        const ebb_study *s = study_fixture_study(&f, NULL);
        assert_int_equal(ebb_study_get_summary(s).peak_bytes, 250);
        if (reads == 0) {
            expect(s, "zero_grad", 100,
                   "optimizer.zero_grad(set_to_none=True) right after optimizer.step() frees them, and the peak would "
                   "be 150 B");
        } else {
            assert_null(tip(s, "zero_grad")); /* what is added to cannot go */
        }
        study_fixture_fini(&f);
    }
}

/* Gradients that an execution trace does not call so. */
static void gradients_by_accesses(void **state) {
    (void)state;
    study_fixture f;
    begin(&f, EBB_TRACE_TELLS_ACCESSES | EBB_TRACE_TELLS_STEPS, "pytorch execution trace");
    tell_iterations(&f, false, EBB_ROLE_UNKNOWN);
    expect(study_fixture_study(&f, NULL), "zero_grad", 100, "the peak would be 150 B");
    study_fixture_fini(&f);
}

/* A gradient an iteration, which the next one frees between its forward and backward pass; so the first has none. */
static void gradients_freed_late(void **state) {
    (void)state;
    study_fixture f;
    uint64_t grad = EBB_TRACE_NONE;
    begin(&f, TELLS_TORCH, "ebb.torch");
    for (uint64_t i = 0; i < 4; i++) {
        mark(&f, EBB_TRACE_ITERATION_BEGIN, i);
        step(&f, EBB_TRACE_PHASE_FORWARD);
        const uint64_t a = study_alloc(&f, 150, EBB_ROLE_ACTIVATION, "a");
        study_do(&f, EBB_TRACE_WRITE, a);
        end(&f);
        study_do(&f, EBB_TRACE_FREE, a);
        if (grad != EBB_TRACE_NONE) { study_do(&f, EBB_TRACE_FREE, grad); }
        step(&f, EBB_TRACE_PHASE_BACKWARD);
        grad = study_alloc(&f, 100, EBB_ROLE_GRADIENT, "w.grad");
        study_do(&f, EBB_TRACE_WRITE, grad);
        end(&f);
        mark(&f, EBB_TRACE_ITERATION_END, i);
    }
    const ebb_study *s = study_fixture_study(&f, NULL);
    assert_int_equal(ebb_study_get_summary(s).peak_bytes, 250);
    expect(s, "zero_grad", 100,
           "right after optimizer.step() frees them, and the peak would be 150 B rather than 250 B");
    study_fixture_fini(&f);
}

/* SGD has another 8-bit optimizer than Adam. */
static void state_of_momentum(void **state) {
    (void)state;
    study_fixture f;
    begin(&f, TELLS_TORCH, "ebb.torch");
    const uint64_t momentum = study_alloc(&f, 200, EBB_ROLE_OPTIMIZER_STATE, "fc.weight.momentum_buffer");
    study_do(&f, EBB_TRACE_WRITE, momentum);
    const ebb_study *s = study_fixture_study(&f, NULL);
    expect(s, "optimizer_state", 150, "(bitsandbytes.optim.SGD8bit), which changes the result, the peak would be 50 B");
    study_fixture_fini(&f);
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
        {"ebb.torch", "cpu", EBB_ROLE_ACTIVATION, "save_on_cpu", NULL, NULL}, /* it is there */
        {"ebb.torch", "cpu", EBB_ROLE_OPTIMIZER_STATE, "offload", NULL, NULL},
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
        if (cases[i].part == NULL) {
            assert_null(tip(s, cases[i].key));
            study_fixture_fini(&f);
            continue;
        }
        expect(s, cases[i].key, 1000, cases[i].part);
        assert_null(strstr(tip(s, cases[i].key)->sentence, cases[i].not_part));
        study_fixture_fini(&f);
    }
}

/* What the backward pass does not read is not saved for it. */
static void saved_for_backward(void **state) {
    (void)state;
    for (unsigned phase = EBB_TRACE_PHASE_FORWARD; phase <= EBB_TRACE_PHASE_BACKWARD; phase++) {
        study_fixture f;
        begin(&f, STUDY_TELLS_ALL, "ebb.torch");
        const uint64_t a = study_alloc(&f, 1000, EBB_ROLE_ACTIVATION, "net.layer.op");
        study_do(&f, EBB_TRACE_WRITE, a);
        f.now_ns = 500000000;
        study_do(&f, EBB_TRACE_FREE, study_alloc(&f, 2000, EBB_ROLE_TEMP, ""));
        f.now_ns = 1000000000;
        step(&f, phase);
        study_do(&f, EBB_TRACE_READ, a);
        end(&f);
        study_do(&f, EBB_TRACE_FREE, a);
        const ebb_study *s = study_fixture_study(&f, NULL);
        assert_true((tip(s, "save_on_cpu") != NULL) == (phase == EBB_TRACE_PHASE_BACKWARD));
        study_fixture_fini(&f);
    }
}

/* A list of modules has no parent beside its child: the one that holds more is named. */
static void no_parent_beside_its_child(void **state) {
    (void)state;
    static const struct {
        uint64_t parent, child;
        const char *names;
    } cases[] = {{1000, 4000, "most of them of net.b.mlp, net.bc:"}, {4000, 1000, "most of them of net.b, net.bc:"}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        study_fixture f;
        begin(&f, STUDY_TELLS_ALL, "ebb.torch");
        const uint64_t blocks[] = {study_alloc(&f, cases[i].parent, EBB_ROLE_ACTIVATION, "net.b.add"),
                                   study_alloc(&f, cases[i].child, EBB_ROLE_ACTIVATION, "net.b.mlp.relu"),
                                   study_alloc(&f, 500, EBB_ROLE_ACTIVATION, "net.bc.relu")};
        for (size_t k = 0; k < 3; k++) { study_do(&f, EBB_TRACE_WRITE, blocks[k]); }
        f.now_ns = 500000000;
        study_do(&f, EBB_TRACE_FREE, study_alloc(&f, 9000, EBB_ROLE_TEMP, ""));
        f.now_ns = 1000000000;
        step(&f, EBB_TRACE_PHASE_BACKWARD);
        for (size_t k = 0; k < 3; k++) { study_do(&f, EBB_TRACE_READ, blocks[k]); }
        end(&f);
        for (size_t k = 0; k < 3; k++) { study_do(&f, EBB_TRACE_FREE, blocks[k]); }
        const ebb_study_tip *found = tip(study_fixture_study(&f, NULL), "save_on_cpu");
        assert_non_null(found);
        assert_non_null(strstr(found->sentence, cases[i].names));
        assert_int_equal(found->n_names, 2);
        study_fixture_fini(&f);
    }
}

/* What names no modules sends to a recording that does. */
static void a_recording_without_modules(void **state) {
    (void)state;
    static const struct {
        const char *source;
        bool is_told;
    } cases[] = {{"pytorch execution trace", true},
                 {"pytorch memory timeline", true},
                 {"ebb.torch", false},
                 {"pytorch snapshot", false},
                 {"ebb run", false}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        study_fixture f;
        begin(&f, EBB_TRACE_TELLS_ACCESSES, cases[i].source);
        study_do(&f, EBB_TRACE_WRITE, study_alloc(&f, 100, EBB_ROLE_UNKNOWN, "aten::relu"));
        const ebb_study_tip *found = tip(study_fixture_study(&f, NULL), "record");
        assert_true((found != NULL) == cases[i].is_told);
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
        cmocka_unit_test(checkpoint_by_name),
        cmocka_unit_test(checkpoint_by_stack),
        cmocka_unit_test(checkpoint_by_profiled_module),
        cmocka_unit_test(state_and_step),
        cmocka_unit_test(a_budget_first),
        cmocka_unit_test(what_changes_the_result),
        cmocka_unit_test(step_of_each_optimizer),
        cmocka_unit_test(gradients_through_the_forward),
        cmocka_unit_test(gradients_by_accesses),
        cmocka_unit_test(gradients_freed_late),
        cmocka_unit_test(state_of_momentum),
        cmocka_unit_test(checkpoint_by_time),
        cmocka_unit_test(checkpoint_keeps_what_a_longer_step_reads),
        cmocka_unit_test(checkpoint_by_ranges),
        cmocka_unit_test(state_by_accesses),
        cmocka_unit_test(names_of_all),
        cmocka_unit_test(no_checkpoint_of_checkpoints),
        cmocka_unit_test(no_checkpoint_below_one),
        cmocka_unit_test(no_checkpoint_of_a_list),
        cmocka_unit_test(no_checkpoint_of_the_whole),
        cmocka_unit_test(checkpoint_of_one),
        cmocka_unit_test(memory_that_grows),
        cmocka_unit_test(saved_for_backward),
        cmocka_unit_test(no_parent_beside_its_child),
        cmocka_unit_test(who_is_told_what),
        cmocka_unit_test(a_recording_without_modules),
        cmocka_unit_test(settings_are_for_pytorch),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
