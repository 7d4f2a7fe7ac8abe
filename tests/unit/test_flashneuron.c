/* SPDX-License-Identifier: Apache-2.0
 *
 * What flashneuron decides on programs small enough to follow by hand: what leaves, when it is gone, when it is asked
 * for again, and how long the iteration takes in its own accounting.
 */
#include "plan/flashneuron.h"
#include "plan_support.h"

enum { WEIGHTS, X0, X1, X2, X3, G3, G2, G1, G0, N_TENSORS };

static void add(ebb_program *p, uint32_t phase, const ebb_access *accesses, uint32_t n) {
    const ebb_choice choice = {.name = "only", .key = 1 + p->steps.n, .flops = 100};
    const ebb_step step = {.name = "step", .kind = "op", .phase = phase, .n_accesses = n, .n_choices = 1};
    assert_int_equal(ebb_program_add_step(p, &step, accesses, &choice), EBB_OK);
}
#define N_OF(...) (uint32_t)(sizeof((const ebb_access[]){__VA_ARGS__}) / sizeof(ebb_access))
#define FORWARD(p, ...) add((p), EBB_PHASE_FORWARD, (const ebb_access[]){__VA_ARGS__}, N_OF(__VA_ARGS__))
#define BACKWARD(p, ...) add((p), EBB_PHASE_BACKWARD, (const ebb_access[]){__VA_ARGS__}, N_OF(__VA_ARGS__))

/* Steps of 100 ns. X0 to X3 have 100 bytes, all others 10. X3 is read at once, so it cannot leave. */
static ebb_program *make_program(void) {
    static const uint64_t bytes[N_TENSORS] = {10, 100, 100, 100, 100, 10, 10, 10, 10};
    ebb_program *p = NULL;
    assert_int_equal(ebb_program_create(NULL, "four", 1, &p), EBB_OK);
    for (uint32_t t = 0; t < N_TENSORS; t++) { assert_int_equal(make_tensor(p, bytes[t], t == WEIGHTS, false), t); }
    FORWARD(p, {X0, EBB_WRITE});
    FORWARD(p, {X0, EBB_READ}, {X1, EBB_WRITE});
    FORWARD(p, {X1, EBB_READ}, {X2, EBB_WRITE});
    FORWARD(p, {X2, EBB_READ}, {X3, EBB_WRITE});
    BACKWARD(p, {X3, EBB_READ}, {G3, EBB_WRITE});
    BACKWARD(p, {X2, EBB_READ}, {G3, EBB_READ}, {G2, EBB_WRITE});
    BACKWARD(p, {X1, EBB_READ}, {G2, EBB_READ}, {G1, EBB_WRITE});
    BACKWARD(p, {X0, EBB_READ}, {G1, EBB_READ}, {G0, EBB_WRITE});
    BACKWARD(p, {G0, EBB_READ}, {WEIGHTS, EBB_UPDATE});
    assert_int_equal(ebb_program_finish(p), EBB_OK);
    return p;
}

typedef struct wanted {
    uint64_t line_bytes, memory_bytes, copy_ns; /* of 100 bytes, each way */
    ebb_status status;
    uint32_t stuck_at;
    uint64_t time_ns;
    size_t n_moved, n_away;
    ebb_absence away[2];
} wanted;

static ebb_status decide(const ebb_program *p, const wanted *w, bool as_coded, ebb_sequence *sequence,
                         ebb_flashneuron *told) {
    ebb_machine *m = make_plain_machine(EBB_DISK, 1e11 / (double)w->copy_ns, 1e11 / (double)w->copy_ns);
    ebb_policy_input input = {.program = p, .machine = m, .mem = ebb__mem_or_default(NULL)};
    input.limit_bytes = w->memory_bytes;
    input.tier_bytes[EBB_DISK] = 100000;
    input.as_coded = as_coded;
    ebb__sequence_init(sequence, input.mem);
    const ebb_status st = ebb__flashneuron_decide(&input, w->line_bytes, sequence, told);
    ebb_machine_destroy(m);
    return st;
}

static void decisions(void **state) {
    (void)state;
    static const wanted cases[] = {
        /* Beside what is always there, 210 bytes, 250 may stay: X0 and X1 leave. Copies out are hidden. After step 5
         * the largest hole has 340 bytes, 140 more than the most that a step touches: X1 is asked for when it is
         * needed next. The same for X0. */
        {460, 460, 10, EBB_OK, 8, 920, 2, 2, {{X0, EBB_DISK, 2, 3, 7}, {X1, EBB_DISK, 3, 4, 6}}},
        /* The backward pass waits for both copies out, until 2200. */
        {460, 460, 1000, EBB_OK, 8, 4700, 2, 2, {{X0, EBB_DISK, 2, 4, 7}, {X1, EBB_DISK, 3, 4, 6}}},
        /* In less memory X2 waits for X0 to be gone, X3 for X1; and nothing is asked for before it is needed. */
        {460, 300, 10, EBB_OK, 8, 940, 2, 2, {{X0, EBB_DISK, 2, 2, 7}, {X1, EBB_DISK, 3, 3, 6}}},
        /* With more, X1 and X0 are asked for at once after step 4. */
        {460, 900, 10, EBB_OK, 8, 900, 2, 2, {{X0, EBB_DISK, 2, 3, 5}, {X1, EBB_DISK, 3, 4, 5}}},
        {620, 620, 10, EBB_OK, 8, 900, 0, 0, {{0}}},                     /* everything stays */
        {610, 610, 10, EBB_OK, 8, 900, 1, 1, {{X0, EBB_DISK, 2, 3, 6}}}, /* after step 4 the largest hole has 290 */
        {460, 200, 10, EBB_E_NO_FIT, 1, 0, 0, 0, {{0}}}, /* X1 finds no place, and nothing leaves before step 2 */
        {309, 460, 10, EBB_E_NO_FIT, UINT32_MAX, 0, 0, 0, {{0}}}, /* X3 stays, and is more than the line leaves */
        {210, 460, 10, EBB_E_NO_FIT, UINT32_MAX, 0, 0, 0, {{0}}},
    };
    ebb_program *p = make_program();
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        const wanted *w = &cases[i];
        ebb_sequence sequence;
        ebb_flashneuron told;
        print_message("case %zu\n", i);
        assert_int_equal(decide(p, w, false, &sequence, &told), w->status);
        assert_int_equal(told.stuck_at, w->stuck_at);
        if (w->status == EBB_OK) {
            assert_int_equal(told.time_ns, w->time_ns);
            assert_int_equal(told.n_moved, w->n_moved);
            assert_int_equal(sequence.absences.n, w->n_away);
        }
        for (size_t k = 0; k < w->n_away; k++) {
            const ebb_absence *away = &sequence.absences.data[w->n_away - 1 - k]; /* the last that left is back first */
            assert_memory_equal(away, &w->away[k], sizeof *away);
        }
        ebb__sequence_fini(&sequence);
    }
    ebb_program_destroy(p);
}

/* 18 of 20 tensors leave at one step. As written they go in the order of the selection, the last one listed first. As
 * coded they go as std::sort leaves 18 equals: this order is what libstdc++'s gives. Each copy takes as long as a step,
 * so each is gone one step later than the one before. */
static void equals(void **state) {
    (void)state;
    enum { N = 20, N_LEAVE = 18 };
    static const uint32_t orders[2][N_LEAVE] = {
        {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17},
        {9, 17, 16, 15, 14, 13, 12, 11, 10, 0, 8, 7, 6, 5, 4, 3, 2, 1},
    };
    const wanted w = {.line_bytes = 24, .memory_bytes = 100, .copy_ns = 10000};
    ebb_program *p = NULL;
    ebb_access accesses[N];
    assert_int_equal(ebb_program_create(NULL, "equals", 1, &p), EBB_OK);
    for (uint32_t t = 0; t < N; t++) { accesses[t] = (ebb_access){make_tensor(p, 1, false, false), EBB_WRITE}; }
    const uint32_t other = make_tensor(p, 1, true, false);
    add(p, EBB_PHASE_FORWARD, accesses, N);
    for (uint32_t i = 0; i < N; i++) { FORWARD(p, {other, EBB_READ}); }
    for (uint32_t t = 0; t < N; t++) { accesses[t].mode = EBB_READ; }
    add(p, EBB_PHASE_BACKWARD, accesses, N);
    assert_int_equal(ebb_program_finish(p), EBB_OK);
    for (int as_coded = 0; as_coded < 2; as_coded++) {
        ebb_sequence sequence;
        ebb_flashneuron told;
        assert_int_equal(decide(p, &w, as_coded, &sequence, &told), EBB_OK);
        assert_int_equal(sequence.absences.n, N_LEAVE);
        for (size_t i = 0; i < N_LEAVE; i++) {
            const ebb_absence *away = &sequence.absences.data[i];
            assert_int_equal(away->out, 1);
            assert_int_equal(away->tensor, N - 1 - orders[as_coded][away->drop - 2]);
        }
        ebb__sequence_fini(&sequence);
    }
    ebb_program_destroy(p);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(decisions), cmocka_unit_test(equals)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
