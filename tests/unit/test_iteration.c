/* SPDX-License-Identifier: Apache-2.0
 *
 * The iteration of small traces that were thought out.
 */
#include "iteration_fixture.h"
#include "trace/iteration_priv.h"

static made_trace m;

static int setup(void **state) {
    (void)state;
    made_init(&m);
    return 0;
}

static int teardown(void **state) {
    (void)state;
    made_fini(&m);
    return 0;
}

static void play(uint64_t base_bytes) {
    uint64_t a = made_alloc(&m, base_bytes), b = made_alloc(&m, base_bytes + 1);
    made_touch(&m, EBB_TRACE_WRITE, a);
    made_touch(&m, EBB_TRACE_FREE, b);
    made_touch(&m, EBB_TRACE_FREE, a);
}

static void nothing_is_no_iteration(void **state) {
    (void)state;
    ebb_iteration found = made_find(&m);
    assert_false(found.found);
    made_check_parts(&m, &found);
    made_alloc(&m, 1);
    assert_false(made_find(&m).found);
}

/* A recording may hold steps and no block at all. */
static void steps_without_blocks_are_looked_at(void **state) {
    (void)state;
    for (uint64_t i = 0; i < 60; i++) {
        made_add(&m, &(ebb_trace_event){.kind = EBB_TRACE_STEP_BEGIN, .step = i, .name = (uint32_t)(1 + i % 3)});
        made_add(&m, &(ebb_trace_event){.kind = EBB_TRACE_STEP_END, .step = i});
    }
    ebb_iteration found = made_find(&m);
    made_check_parts(&m, &found);
}

static void marks_are_taken_at_their_word(void **state) {
    (void)state;
    made_alloc(&m, 7);
    for (uint64_t i = 0; i < 3; i++) {
        made_mark(&m, EBB_TRACE_ITERATION_BEGIN, i);
        play(100);
        if (i == 1) { made_alloc(&m, 3); }
        made_mark(&m, EBB_TRACE_ITERATION_END, i);
        if (i == 0) { play(9); }
    }
    made_mark(&m, EBB_TRACE_ITERATION_BEGIN, 3); /* not whole */
    ebb_iteration found = made_find(&m);
    made_check_parts(&m, &found);
    assert_true(found.found);
    assert_int_equal(found.source, EBB_ITERATION_FROM_MARKS);
    assert_int_equal(found.first_event, 1);
    assert_int_equal(found.length_events, 7);
    assert_int_equal(found.count, 3);
    assert_true(found.confidence == 1.0);
    size_t n = 0;
    const ebb_iteration_part *parts = ebb_iteration_finder_parts(m.finder, &n);
    assert_int_equal(n, 6);
    assert_int_equal(parts[2].kind, EBB_ITERATION_PART_BETWEEN);
    assert_int_equal(parts[2].n_events, 5);
    assert_int_equal(parts[3].n_events, 8);
    assert_true(parts[3].regularity == 5.0 / 6.0);
    assert_true(parts[1].regularity == 1.0 && parts[4].regularity == 1.0);
}

static void marks_without_ends_end_at_the_next(void **state) {
    (void)state;
    for (uint64_t i = 0; i < 3; i++) {
        made_mark(&m, EBB_TRACE_ITERATION_BEGIN, i);
        play(100);
    }
    ebb_iteration found = made_find(&m);
    made_check_parts(&m, &found);
    assert_int_equal(found.count, 2); /* the last may go on */
    assert_int_equal(found.length_events, 6);
}

/* ---- annotations -------------------------------------------------------------------------------- */

static void step(uint32_t name, uint64_t number) {
    made_add(&m,
             &(ebb_trace_event){.kind = EBB_TRACE_MARK, .mark = EBB_TRACE_ANNOTATION, .name = name, .number = number});
}

/* A pass over n blocks, forward and backward. */
static void pass(uint64_t n, uint64_t bytes) {
    uint64_t kept[8];
    for (uint64_t i = 0; i < n; i++) { kept[i] = made_alloc(&m, bytes + i); }
    for (uint64_t i = n; i-- > 0;) { made_touch(&m, EBB_TRACE_FREE, kept[i]); }
}

/* Names of marks come from a reader, so that a file is needed. */
static ebb_trace_reader *open_names(uint32_t *step_out, uint32_t *other_out) {
    const char *path = data_path(&test_dir, "names");
    ebb_trace_writer *w = NULL;
    ebb_trace_reader *r = NULL;
    ebb_trace_event event;
    bool done = false;
    assert_int_equal(ebb_trace_writer_open(path, NULL, &w), EBB_OK);
    assert_int_equal(ebb_trace_writer_string(w, "Optimizer.step#Adam.step", step_out), EBB_OK);
    assert_int_equal(ebb_trace_writer_string(w, "Optimizer.zero_grad#Adam.zero_grad", other_out), EBB_OK);
    assert_int_equal(ebb_trace_writer_close(w), EBB_OK);
    assert_int_equal(ebb_trace_reader_open(NULL, path, &r), EBB_OK);
    assert_int_equal(ebb_trace_reader_next(r, &event, &done), EBB_OK);
    assert_true(done);
    return r;
}

typedef struct names {
    ebb_trace_reader *reader;
    uint32_t step;               /* Optimizer.step#Adam.step */
    uint32_t line[2], update[2]; /* stacks: two lines of a program, and optimizers' steps that these call */
    uint32_t guess;              /* of an end that a recorder marked by itself */
} names;

static names open_stacks(void) {
    const char *path = data_path(&test_dir, "stacks");
    names n;
    ebb_trace_writer *w = NULL;
    ebb_trace_event event;
    bool done = false;
    uint32_t program = 0, train = 0, file = 0, function = 0;
    assert_int_equal(ebb_trace_writer_open(path, NULL, &w), EBB_OK);
    assert_int_equal(ebb_trace_writer_string(w, "train.py", &program), EBB_OK);
    assert_int_equal(ebb_trace_writer_string(w, "train", &train), EBB_OK);
    assert_int_equal(ebb_trace_writer_string(w, "/site-packages/torch/optim/adam.py", &file), EBB_OK);
    assert_int_equal(ebb_trace_writer_string(w, "step", &function), EBB_OK);
    assert_int_equal(ebb_trace_writer_string(w, "Optimizer.step#Adam.step", &n.step), EBB_OK);
    assert_int_equal(ebb_trace_writer_string(w, "after an optimizer's step", &n.guess), EBB_OK);
    for (uint32_t i = 0; i < 2; i++) {
        assert_int_equal(ebb_trace_writer_frame(w, 0, train, program, 10 + i, &n.line[i]), EBB_OK);
        assert_int_equal(ebb_trace_writer_frame(w, n.line[i], function, file, 99, &n.update[i]), EBB_OK);
    }
    assert_int_equal(ebb_trace_writer_close(w), EBB_OK);
    assert_int_equal(ebb_trace_reader_open(NULL, path, &n.reader), EBB_OK);
    assert_int_equal(ebb_trace_reader_next(n.reader, &event, &done), EBB_OK);
    assert_true(done);
    return n;
}

static uint64_t alloc_by(uint32_t stack, uint64_t bytes) {
    const uint64_t block = m.n_blocks++;
    m.sizes[block] = bytes;
    made_add(&m, &(ebb_trace_event){
                     .kind = EBB_TRACE_ALLOC, .block = block, .size_bytes = bytes, .stack = stack, .name = 0});
    return block;
}

static void work_by(uint32_t stack, uint64_t n, uint64_t bytes) {
    uint64_t kept[8];
    for (uint64_t i = 0; i < n; i++) { kept[i] = alloc_by(stack, bytes + i); }
    for (uint64_t i = n; i-- > 0;) { made_touch(&m, EBB_TRACE_FREE, kept[i]); }
}

/* Two optimizers whose passes look alike: the lines that call them tell that one iteration has both. */
static void the_line_that_steps_ends_an_iteration(void **state) {
    (void)state;
    const names n = open_stacks();
    made_init(&m);
    m.finder->reader = n.reader;
    alloc_by(n.line[0], 1000);
    for (int i = 0; i < 6; i++) {
        for (uint32_t o = 0; o < 2; o++) {
            work_by(n.line[0], 8, 5000);
            work_by(n.update[o], 2, 50);
        }
    }
    const ebb_iteration found = made_find(&m);
    made_check_parts(&m, &found);
    assert_true(found.found);
    assert_int_equal(found.source, EBB_ITERATION_FROM_ANNOTATIONS);
    assert_int_equal(found.work, EBB_ITERATION_WORK_TRAINING);
    assert_int_equal(found.length_events, 40);
    assert_int_equal(found.count, 6);
    assert_true(found.confidence > 0.9);
    made_fini(&m);
    ebb_trace_reader_close(n.reader);
}

/* One line steps for each of five layers, within one backward pass: what lies between two steps is never the same, the
 * five of them are. */
static void several_updates_may_be_one_iteration(void **state) {
    (void)state;
    const names n = open_stacks();
    made_init(&m);
    m.finder->reader = n.reader;
    for (int i = 0; i < 6; i++) {
        for (uint64_t layer = 0; layer < 5; layer++) {
            work_by(n.line[0], 8 - layer, 5000 + 100 * layer);
            work_by(n.update[0], 1 + layer % 2, 50 + 8 * layer);
        }
    }
    const ebb_iteration found = made_find(&m);
    made_check_parts(&m, &found);
    assert_true(found.found);
    assert_int_equal(found.source, EBB_ITERATION_FROM_ANNOTATIONS);
    assert_int_equal(found.length_events, m.n_events / 6);
    assert_int_equal(found.count, 6);
    made_fini(&m);
    ebb_trace_reader_close(n.reader);
}

/* Images grow in three stages. What each update ends has the same events, so all of it is iterations. */
static void batches_of_any_shape_count(void **state) {
    (void)state;
    const names n = open_stacks();
    made_init(&m);
    m.finder->reader = n.reader;
    alloc_by(n.line[0], 1000);
    for (uint64_t i = 0; i < 12; i++) {
        work_by(n.line[0], 8, 5000 * (1 + i / 4));
        work_by(n.update[0], 2, 50);
    }
    const ebb_iteration found = made_find(&m);
    made_check_parts(&m, &found);
    assert_true(found.found);
    assert_int_equal(found.length_events, 20);
    assert_true(found.count >= 11);
    made_fini(&m);
    ebb_trace_reader_close(n.reader);
}

/* A recorder ends an iteration after each step; the second optimizer of an iteration ends none. An evaluation that
 * follows belongs to none. */
static void a_recorders_guesses_are_looked_at_again(void **state) {
    (void)state;
    const names n = open_stacks();
    made_init(&m);
    m.finder->reader = n.reader;
    for (uint64_t i = 0; i < 12; i++) {
        made_mark(&m, EBB_TRACE_ITERATION_BEGIN, i);
        if (i == 6) { work_by(n.line[0], 6, 300); } /* an evaluation */
        work_by(n.line[0], i % 2 == 0 ? 8 : 5, 5000);
        made_add(&m, &(ebb_trace_event){
                         .kind = EBB_TRACE_MARK, .mark = EBB_TRACE_ANNOTATION, .name = n.step, .stack = n.line[i % 2]});
        work_by(n.line[i % 2], 2, 50);
        made_add(&m,
                 &(ebb_trace_event){.kind = EBB_TRACE_MARK, .mark = EBB_TRACE_ANNOTATION, .name = n.step, .number = 1});
        made_add(&m, &(ebb_trace_event){
                         .kind = EBB_TRACE_MARK, .mark = EBB_TRACE_ITERATION_END, .number = i, .name = n.guess});
    }
    const ebb_iteration found = made_find(&m);
    made_check_parts(&m, &found);
    assert_true(found.found);
    assert_int_equal(found.count, 6);
    assert_true(found.confidence > 0.9);
    size_t n_parts = 0;
    const ebb_iteration_part *parts = ebb_iteration_finder_parts(m.finder, &n_parts);
    uint64_t n_between = 0;
    for (size_t p = 0; p < n_parts; p++) {
        if (parts[p].kind == EBB_ITERATION_PART_BETWEEN) { n_between += parts[p].n_events; }
    }
    assert_true(n_between >= 12);
    made_fini(&m);
    ebb_trace_reader_close(n.reader);
}

static void play_steps(uint32_t phase, uint64_t n, uint64_t bytes) {
    for (uint64_t i = 0; i < n; i++) {
        made_add(&m, &(ebb_trace_event){.kind = EBB_TRACE_STEP_BEGIN, .op = 1, .phase = phase});
        pass(2, bytes + i);
        made_add(&m, &(ebb_trace_event){.kind = EBB_TRACE_STEP_END});
    }
}

/* However often they repeat, they are no iterations of a training; what they are is told. */
static void passes_without_an_update_are_none(void **state) {
    (void)state;
    for (int backward = 0; backward < 2; backward++) {
        made_init(&m);
        made_alloc(&m, 1000);
        for (int i = 0; i < 9; i++) {
            play_steps(EBB_TRACE_PHASE_FORWARD, 10, 500);
            if (backward != 0) { play_steps(EBB_TRACE_PHASE_BACKWARD, 10, 700); }
        }
        const ebb_iteration found = made_find(&m);
        made_check_parts(&m, &found);
        assert_false(found.found);
        assert_int_equal(found.work, backward != 0 ? EBB_ITERATION_WORK_BACKWARD : EBB_ITERATION_WORK_FORWARD);
        made_fini(&m);
    }
}

enum { N_WEIGHTS = 6 };

/* A pass over malloc and free alone; an optimizer's state is made beside the first gradients. */
static void train_once(bool has_gradients, bool makes_state) {
    uint64_t kept[N_WEIGHTS], gradients[N_WEIGHTS];
    for (uint64_t i = 0; i < N_WEIGHTS; i++) { kept[i] = made_alloc(&m, 9000 + 16 * i); }
    for (uint64_t i = N_WEIGHTS; i-- > 0;) {
        if (has_gradients) { gradients[i] = made_alloc(&m, 1000 + 8 * i); }
        made_touch(&m, EBB_TRACE_FREE, kept[i]);
    }
    for (uint64_t i = 0; makes_state && i < N_WEIGHTS; i++) { made_alloc(&m, 1000 + 8 * i); }
    for (uint64_t i = 0; has_gradients && i < N_WEIGHTS; i++) { made_touch(&m, EBB_TRACE_FREE, gradients[i]); }
}

static void blocks_alone_tell_how_sure_it_is(void **state) {
    (void)state;
    static const double most[3] = {0.25, 0.5, 1.0}, least[3] = {0.2, 0.4, 0.9};
    for (int what = 0; what < 3; what++) { /* an evaluation; a training that may be none; one with a state */
        made_init(&m);
        for (uint64_t i = 0; i < N_WEIGHTS; i++) { made_alloc(&m, 1000 + 8 * i); }
        for (int i = 0; i < 8; i++) { train_once(what > 0, what == 2 && i == 0); }
        const ebb_iteration found = made_find(&m);
        made_check_parts(&m, &found);
        assert_true(found.found);
        assert_int_equal(found.work, EBB_ITERATION_WORK_UNKNOWN);
        assert_int_equal(found.length_events, what == 0 ? 2 * N_WEIGHTS : 4 * N_WEIGHTS);
        assert_true(found.confidence >= least[what] && found.confidence <= most[what]);
        made_fini(&m);
    }
}

/* As sure as they can be made, but most of the trace is something else, or it begins or ends in the middle of one. */
static void little_evidence_lowers_the_confidence(void **state) {
    (void)state;
    for (int what = 0; what < 4; what++) { /* all of it; after other work; cut in front; cut at the end */
        made_init(&m);
        for (uint64_t i = 0; i < N_WEIGHTS; i++) { made_alloc(&m, 1000 + 8 * i); }
        for (uint64_t i = 0; what == 1 && i < 110; i++) {
            made_touch(&m, EBB_TRACE_FREE, made_alloc(&m, 20000 + 8 * i));
        }
        train_once(true, true);
        if (what == 2) { made_touch(&m, EBB_TRACE_FREE, made_alloc(&m, 20000)); }
        for (uint64_t i = N_WEIGHTS; what == 2 && i-- > 0;) {
            made_touch(&m, EBB_TRACE_FREE, made_alloc(&m, 1000 + 8 * i));
        }
        for (int i = 0; i < 7; i++) { train_once(true, false); }
        for (uint64_t i = 0; what == 3 && i < N_WEIGHTS; i++) { made_alloc(&m, 9000 + 16 * i); }
        const ebb_iteration found = made_find(&m);
        made_check_parts(&m, &found);
        assert_true(found.found);
        if (what == 0) {
            assert_true(found.confidence > 0.9);
        } else {
            assert_true(found.confidence == 0.5);
        }
        made_fini(&m);
    }
}

/* Parts of a batch that malloc and free alone do not tell from iterations. */
static void annotations_tell_parts_from_iterations(void **state) {
    (void)state;
    uint32_t of_step = 0, other = 0;
    ebb_trace_reader *r = open_names(&of_step, &other);
    ebb_iteration found;
    for (int annotated = 0; annotated < 2; annotated++) {
        made_init(&m);
        m.finder->reader = annotated != 0 ? r : NULL;
        made_alloc(&m, 1000);
        for (uint64_t i = 0; i < 6; i++) {
            step(other, 0);
            for (int part = 0; part < 4; part++) { pass(8, 5000); }
            step(of_step, 0);
            pass(2, 50);
            step(of_step, 1); /* its end */
        }
        found = made_find(&m);
        made_check_parts(&m, &found);
        assert_true(found.found);
        assert_int_equal(found.length_events < 20, annotated == 0);
        if (annotated != 0) { assert_int_equal(found.source, EBB_ITERATION_FROM_ANNOTATIONS); }
        if (annotated != 0) { assert_true(found.length_events >= 4 * 16 + 4 && found.count >= 5); }
        made_fini(&m);
    }
    ebb_trace_reader_close(r);
}

/* The last repetition lacks its end: the run lies in the text, and so does all that is looked at of it. */
static void a_run_may_be_shorter_than_two_repetitions(void **state) {
    (void)state;
    ebb_iteration_text text;
    ebb_bump bump;
    pass(4, 100); /* 8 events */
    pass(3, 100);
    made_alloc(&m, 103);
    ebb__bump_init(&bump, NULL);
    assert_int_equal(ebb__iteration_text_init(&text, m.finder, &bump), EBB_OK);
    assert_int_equal(text.n, 15);
    for (uint32_t last = 9; last <= text.n; last++) {
        for (uint32_t first = 0; last - first > 8; first++) {
            ebb_stretch run = {first, last};
            const ebb_stretches runs = {.data = &run, .n = 1};
            uint32_t start = UINT32_MAX;
            assert_int_equal(ebb__iteration_start(&text, 8, &runs, &start), EBB_OK);
            assert_true(start >= first && start + 8 <= last);
        }
    }
    ebb__bump_fini(&bump);
}

/* A difference in the third repetition ends the run in the middle of it, but most of it is the same: iterations meet
 * where memory is least, and not there. */
static void a_run_that_a_difference_ends_says_nothing(void **state) {
    (void)state;
    static const uint64_t order[8] = {7, 5, 6, 4, 3, 2, 1, 0};
    ebb_iteration_text text;
    ebb_bump bump;
    uint64_t kept[8];
    pass(8, 100); /* 16 events */
    pass(8, 100);
    for (uint64_t i = 0; i < 8; i++) { kept[i] = made_alloc(&m, 100 + i); }
    for (uint64_t i = 0; i < 8; i++) { made_touch(&m, EBB_TRACE_FREE, kept[order[i]]); }
    ebb__bump_init(&bump, NULL);
    assert_int_equal(ebb__iteration_text_init(&text, m.finder, &bump), EBB_OK);
    ebb_stretch run = {1, 2 * 16 + 9};
    const ebb_stretches runs = {.data = &run, .n = 1};
    uint32_t start = UINT32_MAX;
    assert_int_equal(ebb__iteration_start(&text, 16, &runs, &start), EBB_OK);
    assert_int_equal(start, 16);
    ebb__bump_fini(&bump);
}

enum { N_LAYERS = 60, N_IN_LAYER = 8, N_COPIES = 40 };

/* A step, what it touches, and in one layer a row of copies. */
static uint32_t write_layers(uint32_t *symbols, uint32_t layer_with_copies) {
    uint32_t n = 0;
    for (uint32_t layer = 0; layer < N_LAYERS; layer++) {
        symbols[n++] = layer << 8 | EBB_SYMBOL_STEP;
        for (uint32_t i = 1; i < N_IN_LAYER; i++) { symbols[n++] = layer << 8 | i << 3 | EBB_SYMBOL_READ; }
        for (uint32_t i = 0; layer == layer_with_copies && i < N_COPIES; i++) { symbols[n++] = EBB_SYMBOL_ALLOC; }
    }
    return n;
}

/* Copies come many layers later, more of them than are looked through for the next event that is the same. */
static void each_step_is_compared_with_its_own(void **state) {
    (void)state;
    uint32_t symbols[2 * (N_LAYERS * N_IN_LAYER + N_COPIES)];
    const uint32_t n = write_layers(symbols, 2);
    assert_int_equal(write_layers(symbols + n, N_LAYERS - 2), n);
    const ebb_stretch one = {0, n}, other = {n, 2 * n};
    assert_int_equal(ebb__iteration_n_common(symbols, one, other), N_LAYERS * N_IN_LAYER);
}

static ebb_status live(const ebb_mem *mem) {
    ebb_iteration_finder *finder = NULL;
    ebb_iteration found;
    ebb_status st = ebb_iteration_finder_create(mem, NULL, &finder);
    for (uint64_t i = 0; st == EBB_OK && i < 60; i++) {
        const ebb_trace_event alloc = {.kind = EBB_TRACE_ALLOC, .block = i, .size_bytes = 1 + i % 12};
        const ebb_trace_event free_it = {.kind = EBB_TRACE_FREE, .block = i};
        const ebb_trace_event segment = {.kind = EBB_TRACE_SEGMENT_ALLOC};
        st = ebb_iteration_finder_add(finder, &alloc);
        if (st == EBB_OK) { st = ebb_iteration_finder_add(finder, &free_it); }
        if (st == EBB_OK && i % 12 == 0) { st = ebb_iteration_finder_add(finder, &segment); }
    }
    if (st == EBB_OK) { st = ebb_iteration_finder_find(finder, &found); }
    if (st == EBB_OK) { assert_int_equal(found.count, 5); }
    ebb_iteration_finder_destroy(finder);
    return st;
}

static void any_allocation_may_fail(void **state) {
    (void)state;
    OOM_LOOP(mem, st, { st = live(mem); });
}

static void blocks_come_in_order(void **state) {
    (void)state;
    const ebb_trace_event late = {.kind = EBB_TRACE_ALLOC, .block = 1};
    const ebb_trace_event unknown = {.kind = EBB_TRACE_READ, .block = 0};
    assert_int_equal(ebb_iteration_finder_add(m.finder, &late), EBB_E_ARGUMENT);
    assert_int_equal(ebb_iteration_finder_add(m.finder, &unknown), EBB_E_ARGUMENT);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(nothing_is_no_iteration, setup, teardown),
        cmocka_unit_test_setup_teardown(steps_without_blocks_are_looked_at, setup, teardown),
        cmocka_unit_test_setup_teardown(marks_are_taken_at_their_word, setup, teardown),
        cmocka_unit_test_setup_teardown(marks_without_ends_end_at_the_next, setup, teardown),
        IN_DIR(annotations_tell_parts_from_iterations),
        IN_DIR(the_line_that_steps_ends_an_iteration),
        IN_DIR(several_updates_may_be_one_iteration),
        IN_DIR(batches_of_any_shape_count),
        IN_DIR(a_recorders_guesses_are_looked_at_again),
        IN_DIR(passes_without_an_update_are_none),
        IN_DIR(blocks_alone_tell_how_sure_it_is),
        IN_DIR(little_evidence_lowers_the_confidence),
        cmocka_unit_test_setup_teardown(a_run_may_be_shorter_than_two_repetitions, setup, teardown),
        cmocka_unit_test_setup_teardown(a_run_that_a_difference_ends_says_nothing, setup, teardown),
        cmocka_unit_test(each_step_is_compared_with_its_own),
        cmocka_unit_test(any_allocation_may_fail),
        cmocka_unit_test_setup_teardown(blocks_come_in_order, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
