/* SPDX-License-Identifier: Apache-2.0
 *
 * A study whose first, second, third ... allocation fails: it says so and gives everything back.
 */
#include "study_fixture.h"

/* Some of everything that a study looks at. */
static void tell(study_fixture *f) {
    study_fixture_init(f, STUDY_TELLS_ALL | EBB_TRACE_TELLS_SEGMENTS);
    assert_int_equal(ebb_trace_writer_note(f->writer, "source", "pytorch snapshot"), EBB_OK);
    assert_int_equal(ebb_trace_writer_note(f->writer, "allocator.max_split_size", "-1"), EBB_OK);
    study_segment_do(f, EBB_TRACE_SEGMENT_ALLOC, 4096, 1 << 21);
    const uint64_t w = study_alloc_before(f, 5000, EBB_ROLE_PARAMETER, "w");
    for (unsigned i = 0; i < 30; i++) {
        f->stack = study_frame(f, f->stack, "f", "/home/me/a.py", i);
        const uint64_t a = study_alloc_at(f, 1000, 4096 + (uint64_t)1024 * i, EBB_ROLE_ACTIVATION, "a.x");
        study_begin_step(f, "step");
        study_do(f, EBB_TRACE_READ, w);
        f->now_ns += 1000;
        study_do(f, EBB_TRACE_WRITE, a);
        study_do(f, EBB_TRACE_STEP_END, 0);
        if (i % 3 == 0) { study_do(f, EBB_TRACE_FREE, a); }
    }
    study_segment_do(f, EBB_TRACE_SEGMENT_FREE, 4096, 0);
}

static void each_allocation_may_fail(void **state) {
    (void)state;
    study_fixture f;
    tell(&f);
    assert_int_equal(ebb_trace_writer_close(f.writer), EBB_OK);
    OOM_LOOP(mem, st, {
        ebb_study_options options = EBB_STUDY_OPTIONS_INIT;
        ebb_study *study = NULL;
        options.mem = mem;
        options.max_place_steps = 1000;
        assert_int_equal(ebb_trace_reader_open(NULL, f.path, &f.reader), EBB_OK);
        st = ebb_study_create(f.reader, &options, &study);
        assert_true((st == EBB_OK) == (study != NULL));
        ebb_study_destroy(study);
        ebb_trace_reader_close(f.reader);
    });
    f.reader = NULL;
    study_fixture_fini(&f);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(each_allocation_may_fail)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
