/* SPDX-License-Identifier: Apache-2.0
 *
 * Programs from traces that are told event by event: what blocks and operators become, at borders and within.
 */
#include "study_fixture.h"

#include "ebb/plan.h"
#include "ebb/program_trace.h"

typedef struct made {
    ebb_program *program;
    ebb_program_trace_notes notes;
    const ebb_tensor *tensors;
    const ebb_step *steps;
    const ebb_access *accesses;
    const ebb_choice *choices;
    size_t n_tensors, n_steps;
} made;

/* The trace is told; it becomes a program. */
static ebb_status convert(study_fixture *f, made *m) {
    size_t n = 0;
    *m = (made){.program = NULL};
    assert_int_equal(ebb_trace_writer_close(f->writer), EBB_OK);
    assert_int_equal(ebb_trace_reader_open(NULL, f->path, &f->reader), EBB_OK);
    EBB_TRY(ebb_program_from_trace(f->reader, NULL, &m->program, &m->notes));
    m->tensors = ebb_program_tensors(m->program, &m->n_tensors);
    m->steps = ebb_program_steps(m->program, &m->n_steps);
    m->accesses = ebb_program_accesses(m->program, &n);
    m->choices = ebb_program_choices(m->program, &n);
    assert_true(ebb_program_keeps_order(m->program));
    for (size_t s = 0; s < m->n_steps; s++) { assert_int_equal(m->steps[s].repeat, EBB_REPEAT_NEVER); }
    return EBB_OK;
}

static void fini(study_fixture *f, made *m) {
    ebb_program_destroy(m->program);
    study_fixture_fini(f);
}

/* "name kind: r0 w1 u2 @time", as the step is. */
static void expect_step(const made *m, size_t s, const char *wanted) {
    char text[200];
    assert_true(s < m->n_steps);
    const ebb_step *step = &m->steps[s];
    int n = snprintf(text, sizeof text, "%s %s:", step->name, step->kind);
    for (uint32_t i = 0; i < step->n_accesses; i++) {
        const ebb_access *access = &m->accesses[step->first_access + i];
        n += snprintf(text + n, sizeof text - (size_t)n, " %c%u", " rwu"[access->mode], access -> tensor);
    }
    (void)snprintf(text + n, sizeof text - (size_t)n, " @%u", (unsigned)m->choices[step->first_choice].time_ns);
    assert_string_equal(text, wanted);
}

static void expect_tensor(const made *m, size_t t, const char *name, uint64_t size_bytes, bool persistent, bool kept) {
    assert_true(t < m->n_tensors);
    assert_string_equal(m->tensors[t].name, name);
    assert_int_equal(m->tensors[t].size_bytes, size_bytes);
    assert_int_equal(m->tensors[t].persistent, persistent);
    assert_int_equal(m->tensors[t].kept, kept);
}

static uint64_t liveness_peak(const ebb_program *program) {
    ebb_machine *machine = NULL;
    ebb_plan *plan = NULL;
    ebb_plan_options options = EBB_PLAN_OPTIONS_INIT;
    options.policy = "liveness";
    assert_int_equal(ebb_machine_create(NULL, &machine), EBB_OK);
    assert_int_equal(ebb_plan_make(program, machine, &options, &plan, NULL), EBB_OK);
    const uint64_t bound_bytes = ebb_plan_get_summary(plan).bound_bytes;
    ebb_plan_destroy(plan);
    ebb_machine_destroy(machine);
    return bound_bytes;
}

static void mark(study_fixture *f, uint32_t mark) {
    study_add(f, (ebb_trace_event){.kind = EBB_TRACE_MARK, .mark = mark});
}

static void begin_step(study_fixture *f, const char *name, uint32_t row) {
    study_add(f, (ebb_trace_event){.kind = EBB_TRACE_STEP_BEGIN,
                                   .row = row,
                                   .name = study_string(f, name),
                                   .op = study_string(f, "op"),
                                   .phase = EBB_TRACE_PHASE_BACKWARD,
                                   .index = EBB_TRACE_NONE});
}

static void on_row(study_fixture *f, ebb_trace_kind kind, uint64_t block, uint32_t row) {
    study_add(f, (ebb_trace_event){.kind = kind, .block = block, .row = row});
}

/* Of two iterations the first makes the optimizer's state: the program is the second, which needs more. */
static void the_first_iteration_is_not_the_usual_one(void **state) {
    (void)state;
    study_fixture f;
    made m;
    uint64_t momentum = 0;
    study_fixture_init(&f, STUDY_TELLS_ALL);
    const uint64_t w = study_alloc_before(&f, 100, EBB_ROLE_PARAMETER, "w");
    for (int i = 0; i < 2; i++) {
        mark(&f, EBB_TRACE_ITERATION_BEGIN);
        const uint64_t x = study_alloc(&f, 30, EBB_ROLE_INPUT, "x");
        study_do(&f, EBB_TRACE_WRITE, x);
        study_do(&f, EBB_TRACE_READ, w);
        study_do(&f, EBB_TRACE_FREE, x);
        if (i == 0) { momentum = study_alloc(&f, 100, EBB_ROLE_OPTIMIZER_STATE, "momentum"); }
        study_do(&f, EBB_TRACE_WRITE, momentum);
        study_do(&f, EBB_TRACE_WRITE, w);
        mark(&f, EBB_TRACE_ITERATION_END);
    }
    assert_int_equal(convert(&f, &m), EBB_OK);
    assert_int_equal(m.notes.iteration.count, 2);
    assert_int_equal(m.notes.n_persistent, 2);
    assert_int_equal(m.notes.peak_bytes, 230);
    assert_int_equal(liveness_peak(m.program), 230);
    fini(&f, &m);
}

/* Two iterations of w and x -> y, w updated; the second is the program. */
static void test_iteration(void **state) {
    (void)state;
    study_fixture f;
    made m;
    study_fixture_init(&f, STUDY_TELLS_ALL);
    const uint64_t w = study_alloc_before(&f, 100, EBB_ROLE_PARAMETER, "w");
    const uint64_t idle = study_alloc_before(&f, 7, EBB_ROLE_OTHER, "idle");
    for (int i = 0; i < 2; i++) {
        mark(&f, EBB_TRACE_ITERATION_BEGIN);
        const uint64_t x = study_alloc(&f, 30, EBB_ROLE_INPUT, "x");
        study_do(&f, EBB_TRACE_WRITE, x);
        begin_step(&f, "layer", 0);
        f.now_ns += 10;
        const uint64_t y = study_alloc(&f, 20, EBB_ROLE_ACTIVATION, "y");
        study_do(&f, EBB_TRACE_READ, w);
        study_do(&f, EBB_TRACE_READ, x);
        study_do(&f, EBB_TRACE_WRITE, y);
        study_do(&f, EBB_TRACE_READ, y); /* its own result */
        study_do(&f, EBB_TRACE_STEP_END, 0);
        study_do(&f, EBB_TRACE_FREE, x);
        begin_step(&f, "update", 0);
        f.now_ns += 5;
        study_do(&f, EBB_TRACE_READ, y);
        study_do(&f, EBB_TRACE_WRITE, w);
        study_do(&f, EBB_TRACE_STEP_END, 0);
        study_do(&f, EBB_TRACE_FREE, y);
        mark(&f, EBB_TRACE_ITERATION_END);
    }
    (void)idle;
    assert_int_equal(convert(&f, &m), EBB_OK);
    assert_true(m.notes.iteration.found);
    assert_int_equal(m.notes.iteration.count, 2);
    assert_int_equal(m.notes.n_persistent, 2);
    assert_int_equal(m.notes.n_untouched, 1);
    assert_int_equal(m.notes.n_operators, 2);
    assert_int_equal(m.notes.peak_bytes, 157);
    assert_int_equal(m.n_tensors, 4);
    expect_tensor(&m, 0, "w", 100, true, false);
    expect_tensor(&m, 1, "idle", 7, true, false);
    expect_tensor(&m, 2, "x", 30, false, false);
    expect_tensor(&m, 3, "y", 20, false, false);
    assert_int_equal(m.tensors[2].role, EBB_ROLE_INPUT);
    assert_int_equal(m.n_steps, 4);
    expect_step(&m, 0, "x write: w2 @0");
    expect_step(&m, 1, "layer op: r0 r2 w3 @10");
    expect_step(&m, 2, "update op: r3 u0 @5");
    expect_step(&m, 3, "idle held: r1 @0");
    assert_int_equal(m.steps[1].phase, EBB_PHASE_BACKWARD);
    assert_int_equal(m.steps[0].phase, EBB_PHASE_UNKNOWN);
    assert_int_equal(liveness_peak(m.program), 157);
    fini(&f, &m);
}

/* Without accesses a block lives from its allocation to its free; without an iteration all is one. Blocks that reach
 * over a border are as long there as in the trace. */
static void test_malloc_and_free(void **state) {
    (void)state;
    study_fixture f;
    made m;
    study_fixture_init(&f, EBB_TRACE_TELLS_TIMES);
    const uint64_t old = study_alloc_before(&f, 50, EBB_ROLE_OTHER, "");
    const uint64_t stays = study_alloc_before(&f, 9, EBB_ROLE_OTHER, "stays");
    f.now_ns = 3;
    study_do(&f, EBB_TRACE_FREE, old);
    f.now_ns = 7;
    const uint64_t a = study_alloc(&f, 60, EBB_ROLE_OTHER, "a");
    (void)study_alloc(&f, 0, EBB_ROLE_OTHER, "nothing");
    f.now_ns = 8;
    (void)study_alloc(&f, 4, EBB_ROLE_OTHER, "new");
    study_do(&f, EBB_TRACE_FREE, a);
    (void)stays;
    assert_int_equal(convert(&f, &m), EBB_OK);
    assert_false(m.notes.iteration.found);
    assert_false(m.notes.has_accesses);
    assert_int_equal(m.notes.n_blocks, 5);
    assert_int_equal(m.notes.n_from_before, 1);
    assert_int_equal(m.notes.n_to_after, 1);
    assert_int_equal(m.notes.peak_bytes, 73);
    assert_int_equal(m.n_tensors, 4);
    expect_tensor(&m, 0, "block 0", 50, false, false);
    expect_tensor(&m, 1, "stays", 9, true, false);
    expect_tensor(&m, 2, "a", 60, false, false);
    expect_tensor(&m, 3, "new", 4, false, true);
    assert_int_equal(m.n_steps, 6);
    expect_step(&m, 0, "block 0 border: w0 @0");
    expect_step(&m, 1, "block 0 free: r0 @4");
    expect_step(&m, 2, "a alloc: w2 @1");
    expect_step(&m, 3, "new alloc: w3 @0");
    expect_step(&m, 4, "a free: r2 @0");
    expect_step(&m, 5, "stays held: r1 @0");
    assert_int_equal(m.tensors[2].role, EBB_ROLE_UNKNOWN);
    assert_int_equal(liveness_peak(m.program), 73);
    fini(&f, &m);
}

/* A block that was read and freed, and one at its place that outlives the iteration, are one tensor whose content goes
 * round. One that was not read has none to take along. */
static void test_joined(void **state) {
    (void)state;
    study_fixture f;
    made m;
    study_fixture_init(&f, STUDY_TELLS_ALL);
    uint64_t mean = study_alloc_at(&f, 40, 4096, EBB_ROLE_BUFFER, "mean");
    uint64_t grad = study_alloc_at(&f, 80, 8192, EBB_ROLE_GRADIENT, "grad");
    study_do(&f, EBB_TRACE_WRITE, mean);
    study_do(&f, EBB_TRACE_WRITE, grad);
    for (int i = 0; i < 2; i++) {
        mark(&f, EBB_TRACE_ITERATION_BEGIN);
        study_do(&f, EBB_TRACE_READ, mean);
        study_do(&f, EBB_TRACE_FREE, mean);
        study_do(&f, EBB_TRACE_FREE, grad);
        mean = study_alloc_at(&f, 40, 4096, EBB_ROLE_BUFFER, "mean");
        study_do(&f, EBB_TRACE_WRITE, mean);
        grad = study_alloc_at(&f, 80, 8192, EBB_ROLE_GRADIENT, "grad");
        study_do(&f, EBB_TRACE_WRITE, grad);
        mark(&f, EBB_TRACE_ITERATION_END);
    }
    assert_int_equal(convert(&f, &m), EBB_OK);
    assert_int_equal(m.notes.n_joined, 1);
    assert_int_equal(m.notes.n_from_before, 1);
    assert_int_equal(m.notes.n_to_after, 1);
    assert_int_equal(m.n_tensors, 3);
    expect_tensor(&m, 0, "mean", 40, true, false);
    expect_tensor(&m, 1, "grad", 80, false, false);
    expect_tensor(&m, 2, "grad", 80, false, true);
    assert_int_equal(m.n_steps, 5);
    expect_step(&m, 0, "grad border: w1 @0");
    expect_step(&m, 1, "mean read: r0 @0");
    expect_step(&m, 2, "grad free: r1 @0");
    expect_step(&m, 3, "mean write: w0 @0");
    expect_step(&m, 4, "grad write: w2 @0");
    assert_int_equal(liveness_peak(m.program), 120);
    fini(&f, &m);
}

/* A stretch of an operator around an inner one is a step, with the time outside of the inner one. */
static void test_nested(void **state) {
    (void)state;
    study_fixture f;
    made m;
    study_fixture_init(&f, STUDY_TELLS_ALL);
    const uint64_t a = study_alloc(&f, 8, EBB_ROLE_OTHER, "a"), b = study_alloc(&f, 8, EBB_ROLE_OTHER, "b");
    begin_step(&f, "outer", 0);
    f.now_ns += 1;
    study_do(&f, EBB_TRACE_WRITE, a);
    begin_step(&f, "inner", 0);
    f.now_ns += 20;
    study_do(&f, EBB_TRACE_WRITE, b);
    study_do(&f, EBB_TRACE_STEP_END, 0);
    begin_step(&f, "idle", 0);
    f.now_ns += 300;
    study_do(&f, EBB_TRACE_STEP_END, 0);
    f.now_ns += 4000;
    study_do(&f, EBB_TRACE_READ, a);
    study_do(&f, EBB_TRACE_READ, b);
    study_do(&f, EBB_TRACE_STEP_END, 0);
    assert_int_equal(convert(&f, &m), EBB_OK);
    assert_int_equal(m.n_steps, 4);
    expect_step(&m, 0, "outer op: w0 @1");
    expect_step(&m, 1, "inner op: w1 @20");
    expect_step(&m, 2, "idle op: @300");
    expect_step(&m, 3, "outer op: r0 r1 @4000");
    fini(&f, &m);
}

/* Operators of two rows are whole steps unless one reads what the other writes; a copy is a step beside them. */
static void test_rows(void **state) {
    (void)state;
    study_fixture f;
    made m;
    study_fixture_init(&f, STUDY_TELLS_ALL);
    const uint64_t a = study_alloc(&f, 8, EBB_ROLE_OTHER, "a"), b = study_alloc(&f, 8, EBB_ROLE_OTHER, "b");
    const uint64_t c = study_alloc(&f, 8, EBB_ROLE_OTHER, "c"), w = study_alloc_before(&f, 8, EBB_ROLE_OTHER, "w");
    begin_step(&f, "one", 0);
    begin_step(&f, "two", 3);
    on_row(&f, EBB_TRACE_READ, w, 0);
    on_row(&f, EBB_TRACE_READ, w, 3);
    on_row(&f, EBB_TRACE_WRITE, a, 0);
    on_row(&f, EBB_TRACE_WRITE, b, 3);
    study_add(&f, (ebb_trace_event){
                      .kind = EBB_TRACE_COPY_BEGIN, .row = 2, .block = c, .direction = EBB_TRACE_IN, .size_bytes = 8});
    on_row(&f, EBB_TRACE_READ, b, 0); /* what the other has written: its part comes first */
    study_add(&f, (ebb_trace_event){.kind = EBB_TRACE_COPY_END, .row = 2, .block = c, .direction = EBB_TRACE_IN});
    on_row(&f, EBB_TRACE_WRITE, w, 3);
    on_row(&f, EBB_TRACE_STEP_END, 0, 0);
    on_row(&f, EBB_TRACE_STEP_END, 0, 3);
    assert_int_equal(convert(&f, &m), EBB_OK);
    assert_int_equal(m.notes.n_copies, 1);
    assert_int_equal(m.n_steps, 4);
    expect_step(&m, 0, "c copy in: w2 @0");
    expect_step(&m, 1, "two op: r3 w1 @0");
    expect_step(&m, 2, "one op: r3 w0 r1 @0");
    expect_step(&m, 3, "two op: u3 @0");
    fini(&f, &m);
}

static void test_refusals(void **state) {
    (void)state;
    study_fixture f;
    made m;
    study_fixture_init(&f, 0);
    assert_int_equal(convert(&f, &m), EBB_E_FORMAT);
    assert_non_null(strstr(ebb_last_error(), "nothing is allocated"));
    fini(&f, &m);

    study_fixture_init(&f, 0);
    (void)study_alloc(&f, (uint64_t)1 << 57, EBB_ROLE_OTHER, "huge");
    assert_int_equal(convert(&f, &m), EBB_E_FORMAT);
    assert_non_null(strstr(ebb_last_error(), "too many bytes"));
    ebb_program_trace_options options = EBB_PROGRAM_TRACE_OPTIONS_INIT;
    options.size_bytes = 1;
    assert_int_equal(ebb_program_from_trace(f.reader, &options, &m.program, NULL), EBB_E_ARGUMENT);
    fini(&f, &m);
}

/* Python sees each operator while ebb.torch records, which takes longer; other recorders hardly slow a program down. */
static void slowed_by_its_recorder(void **state) {
    (void)state;
    static const struct {
        const char *source;
        uint32_t tells;
        bool is_slowed;
    } cases[] = {{"ebb.torch", STUDY_TELLS_ALL, true},
                 {"ebb.torch", STUDY_TELLS_ALL & ~(uint32_t)EBB_TRACE_TELLS_TIMES, false},
                 {"ebb run", STUDY_TELLS_ALL, false},
                 {NULL, STUDY_TELLS_ALL, false}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        study_fixture f;
        made m;
        study_fixture_init(&f, cases[i].tells);
        if (cases[i].source != NULL) {
            assert_int_equal(ebb_trace_writer_note(f.writer, "source", cases[i].source), EBB_OK);
        }
        study_do(&f, EBB_TRACE_FREE, study_alloc(&f, 10, EBB_ROLE_UNKNOWN, "a"));
        assert_int_equal(convert(&f, &m), EBB_OK);
        assert_int_equal(m.notes.is_slowed, cases[i].is_slowed);
        fini(&f, &m);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(the_first_iteration_is_not_the_usual_one),
                                       cmocka_unit_test(test_iteration),
                                       cmocka_unit_test(test_malloc_and_free),
                                       cmocka_unit_test(test_joined),
                                       cmocka_unit_test(test_nested),
                                       cmocka_unit_test(test_rows),
                                       cmocka_unit_test(slowed_by_its_recorder),
                                       cmocka_unit_test(test_refusals)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
