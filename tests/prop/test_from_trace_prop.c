/* SPDX-License-Identifier: Apache-2.0
 *
 * Random programs told as traces, as the policy liveness would run them, and made programs again: these have the same
 * steps over tensors of the same bytes, and the same liveness peak to the byte. Told as malloc and free alone, the peak
 * is the same still. And random traces of any kind become programs that can be planned for, or are refused.
 */
#include "plan_support.h"

#include "ebb/program_trace.h"
#include "trace/trace.h"

#include <stdlib.h>
#include <unistd.h>

#define N_PROGRAMS 150u
#define N_TRACES 300u
#define N_EVENTS 120u

typedef struct teller {
    const ebb_program *program;
    ebb_trace_writer *writer;
    uint64_t *block; /* [n_tensors], UINT64_MAX: not there */
    uint32_t *last;  /* [n_tensors]: step of the last access */
    uint64_t n_blocks, now_ns, live_bytes, peak_bytes;
    bool accesses;
} teller;

static void add(teller *t, ebb_trace_event event) {
    event.time_ns = t->now_ns;
    if (ebb_trace_writer_add(t->writer, &event) != EBB_OK) { fail_msg("%s", ebb_last_error()); }
}

static void tell_alloc(teller *t, uint32_t tensor, bool before) {
    const uint64_t bytes = t->program->tensors.data[tensor].size_bytes;
    t->block[tensor] = t->n_blocks++;
    t->live_bytes += bytes;
    t->peak_bytes = ebb_max_u64(t->peak_bytes, t->live_bytes);
    add(t, (ebb_trace_event){.kind = EBB_TRACE_ALLOC,
                             .block = t->block[tensor],
                             .size_bytes = bytes,
                             .address = EBB_TRACE_NONE,
                             .before = before});
}

static void tell_step(teller *t, uint32_t s) {
    const ebb_step *step = &t->program->steps.data[s];
    const ebb_access *accesses = &t->program->accesses.data[step->first_access];
    for (uint32_t i = 0; i < step->n_accesses; i++) {
        if (t->block[accesses[i].tensor] == UINT64_MAX) { tell_alloc(t, accesses[i].tensor, false); }
    }
    if (t->accesses) { add(t, (ebb_trace_event){.kind = EBB_TRACE_STEP_BEGIN, .index = EBB_TRACE_NONE}); }
    for (uint32_t w = 0; w < 2 && t->accesses; w++) {
        for (uint32_t i = 0; i < step->n_accesses; i++) {
            const uint32_t mode = w == 0 ? EBB_READ : EBB_WRITE;
            if ((accesses[i].mode & mode) == 0) { continue; }
            add(t, (ebb_trace_event){.kind = w == 0 ? EBB_TRACE_READ : EBB_TRACE_WRITE,
                                     .block = t->block[accesses[i].tensor]});
        }
    }
    t->now_ns += 1 + s;
    if (t->accesses) { add(t, (ebb_trace_event){.kind = EBB_TRACE_STEP_END}); }
    for (uint32_t i = 0; i < step->n_accesses; i++) {
        const uint32_t tensor = accesses[i].tensor;
        if (t->last[tensor] != s || t->program->tensors.data[tensor].persistent) { continue; }
        add(t, (ebb_trace_event){.kind = EBB_TRACE_FREE, .block = t->block[tensor]});
        t->live_bytes -= t->program->tensors.data[tensor].size_bytes;
        t->block[tensor] = UINT64_MAX;
    }
}

/* Two marked iterations. */
static void tell_program(teller *t, const char *path) {
    ebb_trace_writer_options options = EBB_TRACE_WRITER_OPTIONS_INIT;
    const uint32_t n_tensors = (uint32_t)t->program->tensors.n;
    options.tells = EBB_TRACE_TELLS_TIMES |
                    (t->accesses ? (uint32_t)EBB_TRACE_TELLS_ACCESSES | (uint32_t)EBB_TRACE_TELLS_STEPS : 0u);
    assert_int_equal(ebb_trace_writer_open(path, &options, &t->writer), EBB_OK);
    t->block = calloc(n_tensors, sizeof *t->block);
    t->last = calloc(n_tensors, sizeof *t->last);
    for (size_t s = 0; s < t->program->steps.n; s++) {
        const ebb_step *step = &t->program->steps.data[s];
        for (uint32_t i = 0; i < step->n_accesses; i++) {
            t->last[t->program->accesses.data[step->first_access + i].tensor] = (uint32_t)s;
        }
    }
    for (uint32_t i = 0; i < n_tensors; i++) {
        t->block[i] = UINT64_MAX;
        if (t->program->tensors.data[i].persistent) { tell_alloc(t, i, true); }
    }
    for (int iteration = 0; iteration < 2; iteration++) {
        add(t, (ebb_trace_event){.kind = EBB_TRACE_MARK, .mark = EBB_TRACE_ITERATION_BEGIN});
        for (uint32_t s = 0; s < t->program->steps.n; s++) { tell_step(t, s); }
        add(t, (ebb_trace_event){.kind = EBB_TRACE_MARK, .mark = EBB_TRACE_ITERATION_END});
    }
    assert_int_equal(ebb_trace_writer_close(t->writer), EBB_OK);
    free(t->block);
    free(t->last);
}

static ebb_program *convert(const char *path, ebb_program_trace_notes *notes) {
    ebb_trace_reader *reader = NULL;
    ebb_program *program = NULL;
    assert_int_equal(ebb_trace_reader_open(NULL, path, &reader), EBB_OK);
    if (ebb_program_from_trace(reader, NULL, &program, notes) != EBB_OK) { fail_msg("%s", ebb_last_error()); }
    ebb_trace_reader_close(reader);
    return program;
}

static uint64_t liveness_peak(const ebb_program *program) {
    ebb_machine *machine = NULL;
    ebb_plan *plan = NULL;
    ebb_plan_options options = EBB_PLAN_OPTIONS_INIT;
    options.policy = "liveness";
    assert_int_equal(ebb_machine_create(NULL, &machine), EBB_OK);
    if (ebb_plan_make(program, machine, &options, &plan, NULL) != EBB_OK) { fail_msg("%s", ebb_last_error()); }
    const uint64_t bound_bytes = ebb_plan_get_summary(plan).bound_bytes;
    ebb_plan_destroy(plan);
    ebb_machine_destroy(machine);
    return bound_bytes;
}

static void expect_same_steps(const ebb_program *a, const ebb_program *b) {
    assert_int_equal(b->steps.n, a->steps.n);
    for (size_t s = 0; s < a->steps.n; s++) {
        const ebb_step *x = &a->steps.data[s], *y = &b->steps.data[s];
        uint64_t read[2] = {0}, written[2] = {0};
        assert_int_equal(y->n_accesses, x->n_accesses);
        for (uint32_t i = 0; i < x->n_accesses; i++) {
            const ebb_access *p = &a->accesses.data[x->first_access + i], *q = &b->accesses.data[y->first_access + i];
            const uint64_t p_bytes = a->tensors.data[p->tensor].size_bytes;
            const uint64_t q_bytes = b->tensors.data[q->tensor].size_bytes;
            read[0] += (p->mode & EBB_READ) != 0 ? p_bytes : 0;
            written[0] += (p->mode & EBB_WRITE) != 0 ? p_bytes : 0;
            read[1] += q->mode == EBB_READ ? q_bytes : 0;
            written[1] += (q->mode & EBB_WRITE) != 0 ? q_bytes : 0;
        }
        assert_int_equal(written[1], written[0]);
        assert_true(read[1] <= read[0]); /* updates aside */
        assert_int_equal(b->choices.data[y->first_choice].time_ns, 1 + s);
    }
}

static void make_path(char *path) {
    strcpy(path, "/tmp/ebb-from-XXXXXX");
    const int fd = mkstemp(path);
    assert_true(fd >= 0 && close(fd) == 0);
}

static void test_programs(void **state) {
    (void)state;
    char path[64];
    make_path(path);
    for (uint64_t seed = 0; seed < N_PROGRAMS; seed++) {
        ebb_program *p = random_program(seed);
        p->alignment_bytes = 1;
        for (size_t i = 0; i < p->choices.n; i++) { p->choices.data[i].scratch_bytes = 0; }
        for (size_t i = 0; i < p->tensors.n; i++) { p->tensors.data[i].kept = false; }
        const uint64_t peak_bytes = liveness_peak(p);
        for (int accesses = 0; accesses < 2; accesses++) {
            ebb_program_trace_notes notes;
            teller t = {.program = p, .accesses = accesses == 1};
            tell_program(&t, path);
            ebb_program *q = convert(path, &notes);
            if (t.peak_bytes != peak_bytes || notes.peak_bytes != peak_bytes || liveness_peak(q) != peak_bytes) {
                fail_msg("seed %u: peaks %u, %u, %u, %u", (unsigned)seed, (unsigned)peak_bytes, (unsigned)t.peak_bytes,
                         (unsigned)notes.peak_bytes, (unsigned)liveness_peak(q));
            }
            assert_int_equal(notes.has_accesses, accesses);
            if (accesses == 1) { expect_same_steps(p, q); }
            ebb_program_destroy(q);
        }
        ebb_program_destroy(p);
    }
    assert_int_equal(unlink(path), 0);
}

/* Anything that a writer takes, for two rows; blocks that are freed are not used. */
static void tell_anything(ebb_rng *rng, const char *path) {
    ebb_trace_writer_options options = EBB_TRACE_WRITER_OPTIONS_INIT;
    options.tells = ebb__rng_u32(rng) & 0xff;
    uint64_t live[N_EVENTS], n_live = 0, n_blocks = 0, depth[2] = {0};
    bool is_copying[2] = {false};
    teller t = {.program = NULL};
    assert_int_equal(ebb_trace_writer_open(path, &options, &t.writer), EBB_OK);
    for (uint32_t i = 0; i < N_EVENTS; i++) {
        ebb_trace_event event = {.row = (uint32_t)ebb__rng_below(rng, 2), .index = EBB_TRACE_NONE};
        const uint64_t dice = n_live == 0 ? 0 : ebb__rng_below(rng, 12),
                       at = n_live == 0 ? 0 : ebb__rng_below(rng, n_live);
        t.now_ns += ebb__rng_below(rng, 5);
        event.block = n_live == 0 ? 0 : live[at];
        if (dice < 2) {
            event.kind = EBB_TRACE_ALLOC;
            event.block = live[n_live++] = n_blocks++;
            event.size_bytes = ebb__rng_below(rng, 50);
            event.address = ebb__rng_below(rng, 3) == 0 ? EBB_TRACE_NONE : 64 * ebb__rng_below(rng, 20);
            event.before = i < 10;
        } else if (dice < 3) {
            event.kind = EBB_TRACE_FREE;
            live[at] = live[--n_live];
        } else if (dice < 9) {
            event.kind = dice < 6 ? EBB_TRACE_READ : EBB_TRACE_WRITE;
        } else if (dice < 10) {
            event.kind = is_copying[event.row] ? EBB_TRACE_COPY_END : EBB_TRACE_COPY_BEGIN;
            is_copying[event.row] = !is_copying[event.row];
            event.direction = (uint32_t)ebb__rng_below(rng, 2);
        } else if (dice < 11 || depth[event.row] == 0) {
            event.kind = EBB_TRACE_STEP_BEGIN;
            event.phase = (uint32_t)ebb__rng_below(rng, 4);
            depth[event.row]++;
        } else {
            event.kind = EBB_TRACE_STEP_END;
            depth[event.row]--;
        }
        if (ebb__rng_below(rng, 100) == 0) {
            add(&t, (ebb_trace_event){.kind = EBB_TRACE_MARK, .mark = (uint32_t)ebb__rng_below(rng, 2)});
        }
        add(&t, event);
    }
    assert_int_equal(ebb_trace_writer_close(t.writer), EBB_OK);
}

static void test_anything(void **state) {
    (void)state;
    char path[64];
    unsigned n_programs = 0;
    make_path(path);
    for (uint64_t seed = 0; seed < N_TRACES; seed++) {
        ebb_rng rng;
        ebb_trace_reader *reader = NULL;
        ebb_program *program = NULL;
        ebb_program_trace_notes notes;
        ebb__rng_init(&rng, seed, 7);
        tell_anything(&rng, path);
        assert_int_equal(ebb_trace_reader_open(NULL, path, &reader), EBB_OK);
        const ebb_status st = ebb_program_from_trace(reader, NULL, &program, &notes);
        if (st == EBB_OK) {
            n_programs++;
            (void)liveness_peak(program); /* a plan that is checked */
        } else if (st != EBB_E_FORMAT) {  /* an iteration may be empty */
            fail_msg("seed %u: %s", (unsigned)seed, ebb_last_error());
        }
        ebb_program_destroy(program);
        ebb_trace_reader_close(reader);
    }
    assert_true(n_programs > N_TRACES * 9 / 10);
    assert_int_equal(unlink(path), 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_programs), cmocka_unit_test(test_anything)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
