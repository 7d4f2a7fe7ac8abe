/* SPDX-License-Identifier: Apache-2.0
 *
 * A program from a trace whose first, second, third ... allocation fails: it says so and gives everything back.
 */
#include "study_fixture.h"

#include "ebb/program_trace.h"

static void tell(study_fixture *f) {
    study_fixture_init(f, STUDY_TELLS_ALL);
    const uint64_t w = study_alloc_before(f, 5000, EBB_ROLE_PARAMETER, "w");
    uint64_t old = study_alloc_at(f, 64, 1 << 20, EBB_ROLE_BUFFER, "mean");
    for (uint32_t mark = EBB_TRACE_ITERATION_BEGIN, i = 0; i < 40; i++) {
        if (i % 20 == 0) { study_add(f, (ebb_trace_event){.kind = EBB_TRACE_MARK, .mark = mark}); }
        const uint64_t a = study_alloc_at(f, 1000, 4096 + (uint64_t)1024 * i, EBB_ROLE_ACTIVATION, "a.x");
        study_begin_step(f, "step");
        study_do(f, EBB_TRACE_READ, w);
        study_do(f, EBB_TRACE_READ, old);
        f->now_ns += 1000;
        study_do(f, EBB_TRACE_WRITE, a);
        study_do(f, EBB_TRACE_STEP_END, 0);
        if (i % 3 == 0) { study_do(f, EBB_TRACE_FREE, a); }
        if (i % 20 != 10) { continue; }
        study_do(f, EBB_TRACE_FREE, old);
        old = study_alloc_at(f, 64, 1 << 20, EBB_ROLE_BUFFER, "mean");
    }
}

static void each_allocation_may_fail(void **state) {
    (void)state;
    study_fixture f;
    tell(&f);
    assert_int_equal(ebb_trace_writer_close(f.writer), EBB_OK);
    OOM_LOOP(mem, st, {
        ebb_program_trace_options options = EBB_PROGRAM_TRACE_OPTIONS_INIT;
        ebb_program_trace_notes notes;
        ebb_program *program = NULL;
        options.mem = mem;
        assert_int_equal(ebb_trace_reader_open(NULL, f.path, &f.reader), EBB_OK);
        st = ebb_program_from_trace(f.reader, &options, &program, &notes);
        assert_true((st == EBB_OK) == (program != NULL));
        ebb_program_destroy(program);
        ebb_trace_reader_close(f.reader);
    });
    f.reader = NULL;
    study_fixture_fini(&f);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(each_allocation_may_fail)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
