/* SPDX-License-Identifier: Apache-2.0
 *
 * Sets of gaps by hand: what is a gap, what an iteration takes with some of them chosen, and that the simulator takes
 * as long for the draft. Each step takes 1000 ns, and a copy of 100 bytes 100 ns.
 */
#include "plan_support.h"

#include "plan/away.h"
#include "plan/best.h"

typedef struct fixture {
    ebb_program *program;
    ebb_machine *machine;
    ebb_policy_input input;
    ebb_away away;
} fixture;

static void begin(fixture *f) {
    *f = (fixture){.program = NULL};
    assert_int_equal(ebb_program_create(NULL, "away", 1, &f->program), EBB_OK);
    f->machine = make_plain_machine(EBB_HOST, 1e9, 1e9);
}

static void finish_for(fixture *f, uint64_t limit_bytes, bool may_again, uint32_t n_parts) {
    assert_int_equal(ebb_program_finish(f->program), EBB_OK);
    f->input = (ebb_policy_input){.program = f->program,
                                  .machine = f->machine,
                                  .mem = ebb__mem_or_default(NULL),
                                  .limit_bytes = limit_bytes,
                                  .budget_bytes = limit_bytes,
                                  .copies_only = true};
    f->input.tier_bytes[EBB_HOST] = UINT64_MAX;
    assert_int_equal(ebb__away_init(&f->away, &f->input, may_again, (ebb_away_split){n_parts, n_parts}), EBB_OK);
}

static void finish(fixture *f, uint64_t limit_bytes) {
    finish_for(f, limit_bytes, false, 1);
}

static void end(fixture *f) {
    ebb__away_fini(&f->away);
    ebb_machine_destroy(f->machine);
    ebb_program_destroy(f->program);
}

/* The simulator takes as long for the draft of the latest run, within the limit. */
static void expect_draft(fixture *f, double time_ns) {
    ebb_draft draft;
    double placed_ns = 0;
    uint64_t bytes = 0;
    assert_int_equal(ebb__draft_init(&draft, f->program, f->input.mem), EBB_OK);
    ebb__draft_reset(&draft, f->program);
    assert_int_equal(ebb__away_draft(&f->away, &draft), EBB_OK);
    assert_true(ebb__draft_is_valid(&draft, f->program));
    assert_int_equal(ebb__best_place(&f->input, &draft, EBB_PLACING_QUICK, &placed_ns, &bytes, NULL, NULL), EBB_OK);
    assert_true(placed_ns == time_ns);
    assert_true(bytes <= f->input.limit_bytes);
    ebb__draft_fini(&draft);
}

/* a is away while b and c are made and read. Its copy out and its copy in are both waited for, where there is no room
 * for it and another. */
static void test_waits(void **state) {
    (void)state;
    fixture f;
    begin(&f);
    const uint32_t a = make_tensor(f.program, 100, false, false), b = make_tensor(f.program, 100, false, false);
    const uint32_t c = make_tensor(f.program, 100, false, false);
    STEP(f.program, 0, 1000, {a, EBB_WRITE});
    STEP(f.program, 0, 1000, {b, EBB_WRITE});
    STEP(f.program, 0, 1000, {b, EBB_READ});
    STEP(f.program, 0, 1000, {c, EBB_WRITE});
    STEP(f.program, 0, 1000, {c, EBB_READ});
    STEP(f.program, 0, 1000, {a, EBB_READ});
    finish(&f, 100);
    assert_int_equal(f.away.n_gaps, 1);
    assert_int_equal(f.away.load[ebb__away_peak(&f.away)], 200);
    assert_true(ebb__away_has_room(&f.away, 0, EBB_HOST));
    ebb__away_set(&f.away, 0, true);
    assert_int_equal(f.away.load[ebb__away_peak(&f.away)], 100);
    assert_true(ebb__away_run(&f.away) == 6200);
    expect_draft(&f, 6200);
    const uint64_t enough_bytes[] = {200, UINT64_MAX}; /* it never has to leave */
    for (int i = 0; i < 2; i++) {
        f.input.limit_bytes = f.input.budget_bytes = enough_bytes[i];
        assert_true(ebb__away_run(&f.away) == 6000);
        assert_false(f.away.gaps[0].is_dropped);
    }
    end(&f);
}

/* Copies in of one place go in the order in which they are needed, not in that in which their tensors left. */
static void test_order_of_copies_in(void **state) {
    (void)state;
    fixture f;
    begin(&f);
    const uint32_t a = make_tensor(f.program, 100, false, false), b = make_tensor(f.program, 100, false, false);
    const uint32_t c = make_tensor(f.program, 200, false, false);
    STEP(f.program, 0, 1000, {a, EBB_WRITE});
    STEP(f.program, 0, 1000, {b, EBB_WRITE});
    STEP(f.program, 0, 1000, {c, EBB_WRITE});
    STEP(f.program, 0, 1000, {c, EBB_READ});
    STEP(f.program, 0, 1000, {b, EBB_READ});
    STEP(f.program, 0, 1000, {a, EBB_READ});
    finish(&f, 200);
    assert_int_equal(f.away.n_gaps, 2);
    ebb__away_set(&f.away, 0, true);
    ebb__away_set(&f.away, 1, true);
    assert_true(ebb__away_run(&f.away) == 6200); /* for b out, and for b in */
    assert_true(f.away.gaps[0].in >= f.away.gaps[1].in);
    expect_draft(&f, 6200);
    end(&f);
}

/* Tensors small beside the limit stay, and one of 2^54 bytes is not small. */
static void test_small(void **state) {
    (void)state;
    const uint64_t sizes[] = {(uint64_t)1 << 54, 3, 2};
    fixture f;
    begin(&f);
    for (uint32_t i = 0; i < 3; i++) {
        const uint32_t t = make_tensor(f.program, sizes[i], false, false);
        STEP(f.program, 0, 1000, {t, EBB_WRITE});
    }
    make_step(f.program, NULL, 0, 0, 1000);
    STEP(f.program, 0, 1000, {0, EBB_READ}, {1, EBB_READ}, {2, EBB_READ});
    finish(&f, 2049);
    assert_int_equal(f.away.n_gaps, 2);
    assert_int_equal(f.away.gaps[0].tensor, 0);
    assert_int_equal(f.away.gaps[1].tensor, 1);
    end(&f);
}

/* What is overwritten next is not there in between; a persistent tensor's gap reaches into the next iteration, and a
 * second gap of the same content needs no second copy out. */
static void test_gaps(void **state) {
    (void)state;
    fixture f;
    begin(&f);
    const uint32_t w = make_tensor(f.program, 100, true, false), x = make_tensor(f.program, 40, false, false);
    STEP(f.program, 0, 1000, {x, EBB_WRITE});
    STEP(f.program, 0, 1000, {w, EBB_READ});
    STEP(f.program, 0, 1000, {x, EBB_READ});
    make_step(f.program, NULL, 0, 0, 1000);
    STEP(f.program, 0, 1000, {x, EBB_WRITE});
    STEP(f.program, 0, 1000, {w, EBB_UPDATE}, {x, EBB_READ});
    finish(&f, 140);
    const int64_t base[] = {140, 140, 140, 100, 140, 140};
    assert_int_equal(f.away.n, 6);
    assert_memory_equal(f.away.base, base, sizeof base);
    assert_int_equal(f.away.n_gaps, 3);
    assert_int_equal(f.away.gaps[1].tensor, w);
    assert_int_equal(f.away.gaps[1].version, f.away.gaps[2].next_version);
    assert_int_equal(f.away.gaps[2].need, f.away.n + 1);
    f.input.limit_bytes = f.input.budget_bytes = 140;
    ebb__away_set(&f.away, 1, true);
    ebb__away_set(&f.away, 2, true);
    f.away.drops_early = true;
    (void)ebb__away_run(&f.away);
    assert_false(f.away.gaps[1].copies_out);
    assert_true(f.away.gaps[2].copies_out);
    end(&f);
}

/* A tensor with two gaps, each of one step, and room for it on the host and on a disk that is a tenth as fast. */
static uint32_t begin_two_gaps(fixture *f, ebb_access_mode mode) {
    begin(f);
    set_link(f->machine, EBB_DISK, 1e8, 1e8, 0);
    const uint32_t a = make_tensor(f->program, 100, false, false);
    STEP(f->program, 0, 1000, {a, EBB_WRITE});
    for (int i = 0; i < 2; i++) {
        make_step(f->program, NULL, 0, 100, 1000);
        STEP(f->program, 0, 1000, {a, mode});
    }
    finish(f, 100);
    f->input.tier_bytes[EBB_HOST] = f->input.tier_bytes[EBB_DISK] = 100;
    assert_int_equal(f->away.n_gaps, 2);
    return a;
}

/* All copies of a tensor are on one tier. */
static void test_other_tier(void **state) {
    (void)state;
    fixture f;
    const uint32_t a = begin_two_gaps(&f, EBB_READ);
    ebb__away_set(&f.away, 0, true);
    ebb__away_set(&f.away, 1, true);
    assert_true(ebb__away_run(&f.away) == 5300); /* out, in, and in again */
    assert_int_equal(f.away.tier_used[EBB_HOST], 100);
    ebb__away_move(&f.away, a, EBB_DISK);
    assert_int_equal(f.away.tier_used[EBB_HOST], 0);
    assert_int_equal(f.away.tier_used[EBB_DISK], 100);
    assert_false(ebb__away_is_over(&f.away, EBB_DISK));
    assert_true(ebb__away_run(&f.away) == 8000);
    expect_draft(&f, 8000);
    f.input.tier_bytes[EBB_DISK] = 99;
    assert_true(ebb__away_is_over(&f.away, EBB_DISK));
    end(&f);
}

/* One gap goes to a slower tier, the tensor's other one does not: only the first waits 900 ns more for each copy. */
static void test_one_gap_elsewhere(void **state) {
    (void)state;
    fixture f;
    (void)begin_two_gaps(&f, EBB_UPDATE);
    assert_true(ebb__away_gap_ns(&f.away, &f.away.gaps[0]) == 1000);
    assert_false(ebb__away_covers(&f.away, &f.away.gaps[0], 0));
    assert_true(ebb__away_covers(&f.away, &f.away.gaps[0], 1));
    assert_false(ebb__away_covers(&f.away, &f.away.gaps[0], 2));
    ebb__away_send(&f.away, 0, EBB_DISK);
    ebb__away_set(&f.away, 0, true);
    ebb__away_set(&f.away, 1, true);
    assert_true(ebb__away_run(&f.away) == 5000 + 2 * 1000 + 2 * 100);
    expect_draft(&f, 5000 + 2 * 1000 + 2 * 100);
    end(&f);
}

/* The gap of a tensor that has one. */
static uint32_t gap_of(const fixture *f, uint32_t t) {
    assert_int_equal(f->away.gap_start[t + 1] - f->away.gap_start[t], 1);
    return f->away.gap_of[f->away.gap_start[t]];
}

/* a is made from x in two steps, and made again instead of being copied: it takes these steps once more and no copies,
 * and leaves at once. x has to stay until then. */
static void test_again(void **state) {
    (void)state;
    fixture f;
    begin(&f);
    const uint32_t x = make_tensor(f.program, 10, false, false), a = make_tensor(f.program, 100, false, false);
    const uint32_t b = make_tensor(f.program, 100, false, false);
    STEP(f.program, 0, 1000, {x, EBB_WRITE});
    STEP(f.program, 0, 1000, {x, EBB_READ}, {a, EBB_WRITE});
    STEP(f.program, 0, 1000, {a, EBB_UPDATE});
    STEP(f.program, 0, 1000, {b, EBB_WRITE});
    STEP(f.program, 0, 1000, {b, EBB_READ});
    STEP(f.program, 0, 1000, {a, EBB_READ});
    STEP(f.program, 0, 1000, {x, EBB_READ});
    finish_for(&f, 110, true, 1);
    assert_true(f.away.can_again[a] && f.away.again_ns[a] == 2000);
    assert_true(f.away.can_again[x] && f.away.again_ns[x] == 1000);
    assert_false(f.away.can_again[b]); /* it has no gap */
    ebb__away_compute(&f.away, a, true);
    assert_true(ebb__away_allows(&f.away, gap_of(&f, a)));
    ebb__away_set(&f.away, gap_of(&f, a), true);
    assert_int_equal(f.away.tier_used[EBB_HOST], 0);
    assert_false(ebb__away_allows(&f.away, gap_of(&f, x)));
    assert_int_equal(f.away.load[ebb__away_peak(&f.away)], 110);
    assert_true(ebb__away_run(&f.away) == 9000);
    expect_draft(&f, 9000);
    ebb__away_compute(&f.away, a, false); /* copied: 100 out beside another step, 100 in after b */
    assert_int_equal(f.away.tier_used[EBB_HOST], 100);
    assert_true(ebb__away_allows(&f.away, gap_of(&f, x)));
    assert_true(ebb__away_run(&f.away) == 7200);
    expect_draft(&f, 7200);
    ebb__away_set(&f.away, gap_of(&f, a), false);
    ebb__away_set(&f.away, gap_of(&f, x), true); /* and now the other way round */
    ebb__away_compute(&f.away, a, true);
    assert_false(ebb__away_allows(&f.away, gap_of(&f, a)));
    end(&f);
}

/* Half of a leaves while b is there, by copies half as long; computed again, it leaves as a whole. */
static void test_parts(void **state) {
    (void)state;
    fixture f;
    begin(&f);
    const uint32_t w = make_tensor(f.program, 100, true, false), a = make_tensor(f.program, 201, false, false);
    const uint32_t b = make_tensor(f.program, 100, false, false);
    STEP(f.program, 0, 1000, {w, EBB_READ}, {a, EBB_WRITE});
    STEP(f.program, 0, 1000, {b, EBB_WRITE});
    STEP(f.program, 0, 1000, {b, EBB_READ});
    STEP(f.program, 0, 1000, {w, EBB_READ}, {a, EBB_READ});
    finish_for(&f, 301, true, 2);
    const uint32_t half = f.away.gap_of[f.away.gap_start[a]], other = f.away.gap_of[f.away.gap_start[a] + 1];
    assert_int_equal(f.away.n_gaps, 4);
    assert_int_equal(f.away.gaps[half].begin, 0);
    assert_int_equal(f.away.gaps[half].bytes, 100);
    assert_int_equal(f.away.gaps[other].begin, 100);
    assert_int_equal(f.away.gaps[other].bytes, 101);
    ebb__away_set(&f.away, half, true);
    assert_int_equal(f.away.tier_used[EBB_HOST], 201);
    assert_int_equal(f.away.load[ebb__away_peak(&f.away)], 301);
    assert_true(ebb__away_run(&f.away) == 4200);
    expect_draft(&f, 4200);
    ebb__away_set(&f.away, other, true); /* where one of them would do, both are copied, and one waited for */
    assert_int_equal(f.away.tier_used[EBB_HOST], 201);
    assert_int_equal(f.away.load[ebb__away_peak(&f.away)], 301);
    assert_true(ebb__away_run(&f.away) == 4200);
    ebb__away_set(&f.away, half, false);
    assert_true(ebb__away_run(&f.away) == 4202);
    expect_draft(&f, 4202);
    ebb__away_set(&f.away, other, false);
    assert_int_equal(f.away.tier_used[EBB_HOST], 0);
    ebb__away_compute(&f.away, a, true);
    ebb__away_set(&f.away, other, true);
    assert_true(f.away.chosen[half]);
    assert_true(ebb__away_run(&f.away) == 5000);
    expect_draft(&f, 5000);
    ebb__away_set(&f.away, half, false);
    assert_false(f.away.chosen[other]);
    end(&f);
}

/* Half of m, which is persistent, is away across the end, and only that half has a slot; the rest stays where it is. b
 * fits beside it. */
static void test_parts_around(void **state) {
    (void)state;
    fixture f;
    begin(&f);
    const uint32_t m = make_tensor(f.program, 200, true, false), b = make_tensor(f.program, 100, false, false);
    const uint32_t c = make_tensor(f.program, 50, false, false), d = make_tensor(f.program, 50, false, false);
    STEP(f.program, 0, 1000, {c, EBB_WRITE});
    STEP(f.program, 0, 1000, {b, EBB_WRITE});
    STEP(f.program, 0, 1000, {b, EBB_READ});
    STEP(f.program, 0, 1000, {m, EBB_UPDATE});
    STEP(f.program, 0, 1000, {d, EBB_WRITE});
    finish_for(&f, 250, false, 2);
    assert_int_equal(f.away.n_gaps, 2);
    for (uint32_t half = 0; half < 2; half++) {
        ebb_draft draft;
        assert_int_equal(f.away.gaps[half].tensor, m);
        assert_int_equal(f.away.gaps[half].next_version, 2 * half);
        ebb__away_set(&f.away, half, true);
        assert_true(ebb__away_run(&f.away) == 5100);
        expect_draft(&f, 5100);
        assert_int_equal(ebb__draft_init(&draft, f.program, f.input.mem), EBB_OK);
        ebb__draft_reset(&draft, f.program);
        assert_int_equal(ebb__away_draft(&f.away, &draft), EBB_OK);
        assert_int_equal(draft.resident[m], 1);
        assert_int_equal(draft.absent.n, 1);
        assert_int_equal(draft.absent.data[0].begin, 100 * half);
        assert_int_equal(draft.absent.data[0].end, 100 * (half + 1));
        ebb__draft_fini(&draft);
        ebb__away_set(&f.away, half, false);
    }
    end(&f);
}

/* Tensors that no plan may compute again, each for another reason. */
static void test_never_again(void **state) {
    (void)state;
    fixture f;
    begin(&f);
    const uint32_t x = make_tensor(f.program, 100, false, false), y = make_tensor(f.program, 100, false, false);
    const uint32_t gone = make_tensor(f.program, 100, false, false), a = make_tensor(f.program, 100, false, false);
    const uint32_t changed = make_tensor(f.program, 100, false, false), b = make_tensor(f.program, 100, false, false);
    const uint32_t later = make_tensor(f.program, 100, false, false), kept = make_tensor(f.program, 100, false, true);
    const uint32_t once = make_tensor(f.program, 100, false, false), w = make_tensor(f.program, 100, true, false);
    STEP(f.program, 0, 1000, {x, EBB_WRITE}, {y, EBB_WRITE}); /* two at once */
    STEP(f.program, 0, 1000, {gone, EBB_WRITE}, {changed, EBB_WRITE});
    STEP(f.program, 0, 1000, {gone, EBB_READ}, {a, EBB_WRITE});    /* from what nobody needs any more */
    STEP(f.program, 0, 1000, {changed, EBB_READ}, {b, EBB_WRITE}); /* from what is written before its gap ends */
    STEP(f.program, 0, 1000, {w, EBB_READ}, {later, EBB_WRITE});
    STEP(f.program, 0, 1000, {kept, EBB_WRITE});
    STEP(f.program, 0, 1000, {once, EBB_WRITE});
    STEP(f.program, 0, 1000, {changed, EBB_UPDATE});
    STEP(f.program, 0, 1000, {w, EBB_READ});
    STEP(f.program, 0, 1000, {x, EBB_READ}, {y, EBB_READ}, {a, EBB_READ}, {b, EBB_READ}, {later, EBB_READ},
         {once, EBB_READ});
    STEP(f.program, 0, 1000, {later, EBB_UPDATE}); /* it is not made once */
    STEP(f.program, 0, 1000, {changed, EBB_READ}, {later, EBB_READ});
    f.program->steps.data[6].repeat = EBB_REPEAT_NEVER;
    finish_for(&f, 2000, true, 1);
    for (uint32_t t = 0; t < f.program->tensors.n; t++) { assert_false(f.away.can_again[t]); }
    end(&f);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_waits),
                                       cmocka_unit_test(test_small),
                                       cmocka_unit_test(test_order_of_copies_in),
                                       cmocka_unit_test(test_gaps),
                                       cmocka_unit_test(test_other_tier),
                                       cmocka_unit_test(test_one_gap_elsewhere),
                                       cmocka_unit_test(test_again),
                                       cmocka_unit_test(test_never_again),
                                       cmocka_unit_test(test_parts),
                                       cmocka_unit_test(test_parts_around)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
