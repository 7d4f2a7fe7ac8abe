/* SPDX-License-Identifier: Apache-2.0
 *
 * The validator: a right plan passes, and the same plan with one thing wrong is refused with the rule it breaks.
 */
#include "plan_support.h"

/* w (persistent) is read, copied out, dropped, brought back and updated; x is dropped and computed again; k is
 * kept. r (persistent) is never written and leaves by its copy that is always there. */
enum { W, X, Y, K, R };

static ebb_program *make_program(void) {
    ebb_program *p = NULL;
    assert_int_equal(ebb_program_create(NULL, "check", 64, &p), EBB_OK);
    make_tensor(p, 100, true, false);
    make_tensor(p, 64, false, false);
    make_tensor(p, 64, false, false);
    make_tensor(p, 4, false, true);
    make_tensor(p, 64, true, false);
    STEP(p, 0, 1, {X, EBB_WRITE});
    STEP(p, 32, 1, {X, EBB_READ}, {W, EBB_READ}, {Y, EBB_WRITE});
    STEP(p, 0, 1, {Y, EBB_READ}, {R, EBB_READ}, {K, EBB_WRITE});
    STEP(p, 0, 1, {X, EBB_READ}, {W, EBB_UPDATE});
    assert_int_equal(ebb_program_finish(p), EBB_OK);
    return p;
}

static const ebb_action actions[] = {
    ACT_RUN(0),   /* 0 */
    ACT_IN(W),    /* 1 */
    ACT_RUN(1),   /* 2 */
    ACT_DROP(X),  /* 3 */
    ACT_DROP(W),  /* 4 */
    ACT_IN(R),    /* 5 */
    ACT_RUN(2),   /* 6 */
    ACT_DROP(Y),  /* 7 */
    ACT_DROP(R),  /* 8 */
    ACT_AGAIN(0), /* 9 */
    ACT_IN(W),    /* 10 */
    ACT_RUN(3),   /* 11 */
    ACT_OUT(W),   /* 12 */
    ACT_DROP(W),  /* 13 */
    ACT_DROP(X),  /* 14 */
};
static const ebb_stay stays[] = {
    {X, 0, 3, 0, 64, 0}, {W, 1, 4, 64, 100, 0}, {Y, 2, 7, 192, 64, 0}, {EBB_SCRATCH, 2, 3, 256, 32, 0},
    {R, 5, 8, 0, 64, 0}, {K, 6, 15, 64, 4, 0},  {X, 9, 14, 0, 64, 0},  {W, 10, 13, 128, 100, 0},
};
static const ebb_slot slots[] = {{R, EBB_HOST, 0, 0, 128, 64, 0}, {W, EBB_HOST, 12, 11, 0, 100, 0}};
enum { STAY_X, STAY_W, STAY_Y, STAY_SCRATCH, STAY_R, STAY_K, STAY_X2, STAY_W2, N_STAYS };

static ebb_plan *make_plan(const ebb_program *p) {
    ebb_plan *plan = make_empty_plan(p, 288);
    for (size_t i = 0; i < sizeof actions / sizeof *actions; i++) {
        assert_int_equal(EBB_PUSH(NULL, &plan->actions, actions[i]), EBB_OK);
    }
    for (size_t i = 0; i < N_STAYS; i++) { assert_int_equal(EBB_PUSH(NULL, &plan->stays, stays[i]), EBB_OK); }
    for (size_t i = 0; i < 2; i++) { assert_int_equal(EBB_PUSH(NULL, &plan->slots, slots[i]), EBB_OK); }
    return plan;
}

static void remove_action(ebb_plan *plan, uint64_t at) {
    memmove(&plan->actions.data[at], &plan->actions.data[at + 1], (plan->actions.n - at - 1) * sizeof(ebb_action));
    plan->actions.n--;
    for (size_t i = 0; i < plan->stays.n; i++) {
        plan->stays.data[i].first -= plan->stays.data[i].first > at;
        plan->stays.data[i].last -= plan->stays.data[i].last > at;
    }
    for (size_t i = 0; i < plan->slots.n; i++) {
        plan->slots.data[i].first -= plan->slots.data[i].first > at;
        plan->slots.data[i].last -= plan->slots.data[i].last > at;
    }
}

static void remove_stay(ebb_plan *plan, size_t at) {
    memmove(&plan->stays.data[at], &plan->stays.data[at + 1], (plan->stays.n - at - 1) * sizeof(ebb_stay));
    plan->stays.n--;
}

static void test_right_plan(void **state) {
    (void)state;
    ebb_program *p = make_program();
    ebb_plan *plan = make_plan(p);
    ebb_status st = ebb_plan_check(p, plan);
    if (st != EBB_OK) { print_error("%s\n", ebb_last_error()); }
    assert_int_equal(st, EBB_OK);
    assert_int_equal(ebb__plan_seal(plan), EBB_OK);
    ebb_plan_summary sum = ebb_plan_get_summary(plan);
    assert_int_equal(sum.peak_bytes, 288);
    assert_int_equal(sum.bound_bytes, 288); /* 64 + 128 + 64 + 64, but no more than the peak */
    assert_int_equal(sum.moved_out_bytes, 100);
    assert_int_equal(sum.moved_in_bytes, 264);
    assert_int_equal(sum.n_recomputed_steps, 1);
    assert_int_equal(sum.tier_bytes[EBB_HOST], 192);
    ebb_plan_destroy(plan);
    ebb_program_destroy(p);
}

/* One line a mutation: how, and a part of the message it must bring. */
#define MUTATIONS(X)                                                                                                   \
    X(plan->fingerprint ^= 1, "another program")                                                                       \
    X(plan->budget_bytes = 287, "beyond the budget")                                                                   \
    X(plan->stays.data[STAY_Y].offset = 1, "not aligned")                                                              \
    X(plan->stays.data[STAY_Y].offset = UINT64_MAX - 63, "beyond the budget")                                          \
    X(plan->stays.data[STAY_Y].size_bytes = 63, "not present")                                                         \
    X(plan->stays.data[STAY_Y].tensor = 77, "stay of no tensor")                                                       \
    X(plan->stays.data[STAY_Y].first = 99, "beyond the actions")                                                       \
    X(plan->stays.data[STAY_Y].last = 1, "not persistent")                                                             \
    X(plan->stays.data[STAY_W2].last = 10, "has a beginning")                                                          \
    X(plan->stays.data[STAY_SCRATCH].last = 4, "outlives")                                                             \
    X(plan->stays.data[STAY_SCRATCH].size_bytes = 31, "scratch is missing or too small")                               \
    X(remove_stay(plan, STAY_SCRATCH), "scratch is missing or too small")                                              \
    X(plan->stays.data[STAY_SCRATCH].offset = 192, "overlap")                                                          \
    X(plan->stays.data[STAY_SCRATCH].first = 6; plan->stays.data[STAY_SCRATCH].last = 7, "out of order")               \
    X(plan->stays.data[STAY_R].offset = 192, "overlap")                                                                \
    X(plan->stays.data[STAY_K].last = 14, "not ended by a drop")                                                       \
    X(plan->stays.data[STAY_X].last = 4, "does not end here")                                                          \
    X(remove_stay(plan, STAY_X2), "not present")                                                                       \
    X(remove_stay(plan, STAY_Y), "not present")                                                                        \
    X(plan->stays.data[STAY_X2].first = 10, "out of order")                                                            \
    X(plan->stays.data[STAY_Y].first = 3, "out of order")                                                              \
    X(plan->stays.data[STAY_R].first = 4, "nothing brings")                                                            \
    X(plan->slots.data[1].tensor = 99, "no tensor or tier")                                                            \
    X(plan->slots.data[1].tier = 3, "no tensor or tier")                                                               \
    X(plan->slots.data[1].size_bytes = 4, "it has no slot")                                                            \
    X(plan->slots.data[1].last = 5, "it has no slot")                                                                  \
    X(plan->slots.data[1].last = 15, "it has no slot")                                                                 \
    X(plan->slots.data[1].first = 13, "it has no slot")                                                                \
    X(plan->slots.data[1].offset = 128, "slots of tensors")                                                            \
    X(plan->slots.data[1].offset = UINT64_MAX, "beyond 64 bits")                                                       \
    X(plan->slots.data[0].last = 5, "nothing fills")                                                                   \
    X(plan->slots.n = 1, "it has no slot")                                                                             \
    X(plan->actions.data[0].kind = 9, "no such action")                                                                \
    X(plan->actions.data[0].target = 4, "no such step")                                                                \
    X(plan->actions.data[0].choice = 1, "no such choice")                                                              \
    X(plan->actions.data[9].choice = 1, "no such choice")                                                              \
    X(plan->actions.data[9].kind = EBB_ACT_RUN, "run twice")                                                           \
    X(plan->actions.data[0].kind = EBB_ACT_AGAIN, "before it was run")                                                 \
    X(plan->actions.data[6].target = 3, "nothing brings")                                                              \
    X(plan->actions.data[14].target = K, "does not end here")                                                          \
    X(plan->actions.data[14].target = Y, "not present")                                                                \
    X(plan->actions.data[13] = (ebb_action)ACT_OUT(W), "does not begin here")                                          \
    X(plan->actions.data[11].kind = EBB_ACT_AGAIN; plan->actions.data[11].target = 0, "never run")                     \
    X(remove_action(plan, 0), "out of order")                                                                          \
    X(remove_action(plan, 10), "nothing brings")                                                                       \
    X(remove_action(plan, 13), "is not ended by a drop")

#define MUTATION_FN(how, rule)                                                                                         \
    do {                                                                                                               \
        ebb_plan *plan = make(p);                                                                                      \
        how;                                                                                                           \
        ebb_status st = ebb_plan_check(p, plan);                                                                       \
        if (st != EBB_E_INVALID_PLAN || strstr(ebb_last_error(), rule) == NULL) {                                      \
            print_error("%s: wanted '%s', got %d '%s'\n", #how, rule, st, ebb_last_error());                           \
            n_wrong++;                                                                                                 \
        }                                                                                                              \
        ebb_plan_destroy(plan);                                                                                        \
    } while (0);

static void test_mutations(void **state) {
    (void)state;
    ebb_program *p = make_program();
    ebb_plan *(*const make)(const ebb_program *) = make_plan;
    int n_wrong = 0;
    MUTATIONS(MUTATION_FN)
    assert_int_equal(n_wrong, 0);
    ebb_program_destroy(p);
}

/* Only a step that makes the same bits may be run again. */
static void test_repeats(void **state) {
    (void)state;
    ebb_program *p = make_program();
    ebb_plan *plan = make_plan(p);
    size_t again = 0;
    while (plan->actions.data[again].kind != EBB_ACT_AGAIN) { again++; }
    for (uint32_t r = 0; r < EBB_N_REPEATS; r++) {
        p->steps.data[plan->actions.data[again].target].repeat = r;
        plan->fingerprint = ebb_program_fingerprint(p);
        const ebb_status st = ebb_plan_check(p, plan);
        assert_int_equal(st, r == EBB_REPEAT_EXACT ? EBB_OK : EBB_E_INVALID_PLAN);
        if (st != EBB_OK) { assert_non_null(strstr(ebb_last_error(), "cannot make the same bits again")); }
    }
    ebb_plan_destroy(plan);
    ebb_program_destroy(p);
}

/* Versions: content that is present but not what the program means. */
static void test_versions(void **state) {
    (void)state;
    ebb_program *p = make_program();
    ebb_plan *plan = make_plan(p);
    /* w copied out before its update: the slot goes around stale */
    ebb_action out = plan->actions.data[12];
    plan->actions.data[12] = plan->actions.data[11];
    plan->actions.data[11] = out;
    plan->slots.data[1].first = 11;
    plan->slots.data[1].last = 11;
    assert_int_equal(ebb_plan_check(p, plan), EBB_E_INVALID_PLAN);
    plan->slots.data[1].last = 10; /* then the second in has no slot; before it: */
    assert_int_equal(ebb_plan_check(p, plan), EBB_E_INVALID_PLAN);
    ebb_plan_destroy(plan);
    /* the update run again reads a version that is gone */
    plan = make_plan(p);
    plan->actions.data[12] = (ebb_action)ACT_AGAIN(3);
    plan->slots.n = 1;
    plan->slots.data[0] = (ebb_slot){W, EBB_HOST, 0, 0, 0, 100, 0};
    assert_int_equal(ebb_plan_check(p, plan), EBB_E_INVALID_PLAN);
    ebb_plan_destroy(plan);
    ebb_program_destroy(p);
}

/* A weight that stays, but whose stay holds what was there before the update. */
static void test_stale_circle(void **state) {
    (void)state;
    ebb_program *p = NULL;
    assert_int_equal(ebb_program_create(NULL, "circle", 1, &p), EBB_OK);
    uint32_t w = make_tensor(p, 8, true, false);
    STEP(p, 0, 1, {w, EBB_UPDATE});
    STEP(p, 0, 1, {w, EBB_READ});
    ebb_plan *plan = make_empty_plan(p, UINT64_MAX);
    ebb_action list[] = {ACT_OUT(w), ACT_RUN(0), ACT_RUN(1), ACT_DROP(w), ACT_IN(w)};
    for (size_t i = 0; i < 5; i++) { assert_int_equal(EBB_PUSH(NULL, &plan->actions, list[i]), EBB_OK); }
    ebb_stay stay = {w, 4, 3, 0, 8, 0};
    ebb_slot slot = {w, EBB_HOST, 0, 5, 0, 8, 0};
    assert_int_equal(EBB_PUSH(NULL, &plan->stays, stay), EBB_OK);
    assert_int_equal(EBB_PUSH(NULL, &plan->slots, slot), EBB_OK);
    assert_int_equal(ebb_plan_check(p, plan), EBB_E_INVALID_PLAN);
    assert_non_null(strstr(ebb_last_error(), "stale"));
    plan->stays.data[0] = (ebb_stay){w, 0, 0, 0, 8, 0}; /* always there: then it may be neither dropped nor brought */
    assert_int_equal(ebb_plan_check(p, plan), EBB_E_INVALID_PLAN);
    ebb_plan_destroy(plan);
    ebb_program_destroy(p);
}

/* A weight that goes around on the host, and an old copy of it that is brought back where nothing reads it before the
 * circle ends: who asks for the weight between two iterations would get the old one. */
static void test_stale_end(void **state) {
    (void)state;
    ebb_program *p = NULL;
    assert_int_equal(ebb_program_create(NULL, "end", 1, &p), EBB_OK);
    const uint32_t w = make_tensor(p, 8, true, false);
    STEP(p, 0, 1, {w, EBB_UPDATE});
    ebb_plan *plan = make_empty_plan(p, UINT64_MAX);
    const ebb_action list[] = {
        ACT_IN(w),   {.kind = EBB_ACT_OUT, .target = w, .tier = EBB_DISK, .size_bytes = EBB_WHOLE},
        ACT_RUN(0),  ACT_OUT(w),
        ACT_DROP(w), {.kind = EBB_ACT_IN, .target = w, .tier = EBB_DISK, .size_bytes = EBB_WHOLE}};
    const ebb_stay two[] = {{w, 0, 4, 0, 8, 0}, {w, 5, 6, 0, 8, 0}};
    const ebb_slot copies[] = {{w, EBB_DISK, 1, 6, 0, 8, 0}, {w, EBB_HOST, 3, 1, 0, 8, 0}};
    for (size_t i = 0; i < 6; i++) { assert_int_equal(EBB_PUSH(NULL, &plan->actions, list[i]), EBB_OK); }
    for (size_t i = 0; i < 2; i++) { assert_int_equal(EBB_PUSH(NULL, &plan->stays, two[i]), EBB_OK); }
    for (size_t i = 0; i < 2; i++) { assert_int_equal(EBB_PUSH(NULL, &plan->slots, copies[i]), EBB_OK); }
    assert_int_equal(ebb_plan_check(p, plan), EBB_E_INVALID_PLAN);
    assert_non_null(strstr(ebb_last_error(), "stale"));
    plan->actions.data[5].tier = EBB_HOST; /* what is there at the end is what goes around */
    assert_int_equal(ebb_plan_check(p, plan), EBB_OK);
    ebb_plan_destroy(plan);
    ebb_program_destroy(p);
}

/* A weight that stays on the device, with a copy on the host that is made before its update, or never: nothing reads
 * the copy, but each iteration would take it for the weight. */
static void test_stale_slot(void **state) {
    (void)state;
    ebb_program *p = NULL;
    assert_int_equal(ebb_program_create(NULL, "slot", 1, &p), EBB_OK);
    const uint32_t w = make_tensor(p, 8, true, false);
    STEP(p, 0, 1, {w, EBB_READ});
    STEP(p, 0, 1, {w, EBB_UPDATE});
    ebb_plan *plan = make_empty_plan(p, UINT64_MAX);
    const ebb_action early[] = {ACT_RUN(0), ACT_OUT(w), ACT_RUN(1)}, late[] = {ACT_RUN(0), ACT_RUN(1), ACT_OUT(w)};
    const ebb_stay always = {w, 0, 0, 0, 8, 0};
    for (size_t i = 0; i < 3; i++) { assert_int_equal(EBB_PUSH(NULL, &plan->actions, early[i]), EBB_OK); }
    assert_int_equal(EBB_PUSH(NULL, &plan->stays, always), EBB_OK);
    const ebb_slot copy = {w, EBB_HOST, 1, 0, 0, 8, 0};
    assert_int_equal(EBB_PUSH(NULL, &plan->slots, copy), EBB_OK);
    assert_int_equal(ebb_plan_check(p, plan), EBB_E_INVALID_PLAN);
    assert_non_null(strstr(ebb_last_error(), "its slot goes around with a stale version"));
    memcpy(plan->actions.data, late, sizeof late); /* after the update it holds what goes around */
    plan->slots.data[0].first = 2;
    assert_int_equal(ebb_plan_check(p, plan), EBB_OK);
    plan->actions.n = 2;
    plan->slots.data[0] = (ebb_slot){w, EBB_HOST, 0, 0, 0, 8, 0}; /* never written */
    assert_int_equal(ebb_plan_check(p, plan), EBB_E_INVALID_PLAN);
    assert_non_null(strstr(ebb_last_error(), "its slot goes around with a stale version"));
    ebb_plan_destroy(plan);
    ebb_program_destroy(p);
}

/* ---- parts, tiers, moves ------------------------------------------------------------------------ */

/* v (persistent) lies in two halves: the lower one always on the device, the upper one comes from the host, leaves to
 * the disk and moves on to the host, where it goes around. z (persistent) is written whole in each iteration. */
enum { V, A, Q, Z };

static ebb_program *make_parts_program(void) {
    ebb_program *p = NULL;
    const ebb_choice choices[] = {{.name = "slow", .key = 1}, {.name = "fast", .key = 2}};
    const ebb_step two_ways = {.name = "two ways", .kind = "op", .n_accesses = 1, .n_choices = 2};
    const ebb_access makes_a = {A, EBB_WRITE};
    assert_int_equal(ebb_program_create(NULL, "parts", 64, &p), EBB_OK);
    make_tensor(p, 256, true, false);
    make_tensor(p, 64, false, false);
    make_tensor(p, 64, false, true);
    make_tensor(p, 64, true, false);
    assert_int_equal(ebb_program_add_step(p, &two_ways, &makes_a, choices), EBB_OK);
    STEP(p, 0, 1, {V, EBB_READ}, {A, EBB_READ}, {Q, EBB_WRITE});
    STEP(p, 0, 1, {V, EBB_UPDATE}, {Z, EBB_WRITE});
    assert_int_equal(ebb_program_finish(p), EBB_OK);
    return p;
}

#define UPPER .begin = 128, .size_bytes = 128
static const ebb_action part_actions[] = {
    ACT_RUN(0),                                                                   /* 0 */
    {.kind = EBB_ACT_IN, .target = V, .tier = EBB_HOST, UPPER},                   /* 1 */
    ACT_RUN(1),                                                                   /* 2 */
    ACT_AGAIN(0),                                                                 /* 3 */
    ACT_DROP(A),                                                                  /* 4 */
    ACT_RUN(2),                                                                   /* 5 */
    {.kind = EBB_ACT_OUT, .target = V, .tier = EBB_DISK, UPPER},                  /* 6 */
    {.kind = EBB_ACT_MOVE, .target = V, .tier = EBB_DISK, .to = EBB_HOST, UPPER}, /* 7 */
    {.kind = EBB_ACT_DROP, .target = V, UPPER},                                   /* 8 */
};
static const ebb_stay part_stays[] = {
    {V, 0, 0, 0, 128, 0}, {A, 0, 4, 256, 64, 0}, {Z, 0, 0, 384, 64, 0}, {V, 1, 8, 128, 128, 128}, {Q, 2, 9, 320, 64, 0},
};
static const ebb_slot part_slots[] = {{V, EBB_DISK, 6, 8, 0, 128, 128}, {V, EBB_HOST, 7, 2, 0, 128, 128}};
enum { PART_LOWER, PART_A, PART_Z, PART_UPPER, PART_Q, N_PART_STAYS };

static ebb_plan *make_parts_plan(const ebb_program *p) {
    ebb_plan *plan = make_empty_plan(p, 1024);
    for (size_t i = 0; i < sizeof part_actions / sizeof *part_actions; i++) {
        assert_int_equal(EBB_PUSH(NULL, &plan->actions, part_actions[i]), EBB_OK);
    }
    for (size_t i = 0; i < N_PART_STAYS; i++) { assert_int_equal(EBB_PUSH(NULL, &plan->stays, part_stays[i]), EBB_OK); }
    for (size_t i = 0; i < 2; i++) { assert_int_equal(EBB_PUSH(NULL, &plan->slots, part_slots[i]), EBB_OK); }
    return plan;
}

static void insert_stay(ebb_plan *plan, size_t at, ebb_stay stay) {
    assert_int_equal(EBB_PUSH(NULL, &plan->stays, stay), EBB_OK);
    memmove(&plan->stays.data[at + 1], &plan->stays.data[at], (plan->stays.n - 1 - at) * sizeof stay);
    plan->stays.data[at] = stay;
}

static void insert_slot(ebb_plan *plan, size_t at, ebb_slot slot) {
    assert_int_equal(EBB_PUSH(NULL, &plan->slots, slot), EBB_OK);
    memmove(&plan->slots.data[at + 1], &plan->slots.data[at], (plan->slots.n - 1 - at) * sizeof slot);
    plan->slots.data[at] = slot;
}

/* The upper half is brought back old after the update, and then both halves are copied out as one. */
static void mix_versions(ebb_plan *plan) {
    plan->actions.data[6] = (ebb_action){.kind = EBB_ACT_DROP, .target = V, UPPER};
    plan->actions.data[7] = part_actions[1];
    plan->actions.data[8] = (ebb_action){.kind = EBB_ACT_OUT, .target = V, .tier = EBB_DISK, .size_bytes = EBB_WHOLE};
    plan->stays.data[PART_UPPER].last = 6;
    insert_stay(plan, N_PART_STAYS, (ebb_stay){V, 7, 9, 128, 128, 128});
    plan->slots.data[0] = (ebb_slot){V, EBB_HOST, 0, 0, 0, 128, 128};
    plan->slots.data[1] = (ebb_slot){V, EBB_DISK, 8, 9, 0, 256, 0};
}

#define PART_MUTATIONS(X)                                                                                              \
    X(plan->alignment_bytes = 128, "alignment is not the program's")                                                   \
    X(plan->certificate.bytes_rule = "step"; plan->certificate.bound_bytes = 1, "not what the rule step gives")        \
    X(plan->stays.data[PART_UPPER].begin = 129, "not a part of its tensor")                                            \
    X(plan->stays.data[PART_UPPER].begin = 96, "within the alignment")                                                 \
    X(plan->slots.data[0].size_bytes = 129, "not a part of its tensor")                                                \
    X(plan->actions.data[6].begin = 96, "within the alignment")                                                        \
    X(plan->actions.data[6].size_bytes = 0, "not a part of its tensor")                                                \
    X(plan->stays.data[PART_UPPER].offset = 512, "do not lie side by side")                                            \
    X(plan->actions.data[1].begin = plan->stays.data[PART_UPPER].begin = plan->stays.data[PART_UPPER].offset = 64;     \
      plan->actions.data[1].size_bytes = plan->stays.data[PART_UPPER].size_bytes = 192, "already present")             \
    X(plan->actions.data[6].begin = 0; plan->actions.data[6].size_bytes = 256; plan->slots.data[0].begin = 0;          \
      plan->slots.data[0].size_bytes = 256; plan->stays.data[PART_UPPER].offset = 512, "do not lie side by side")      \
    X(plan->actions.data[2].target = 2; plan->actions.data[5].target = 1;                                              \
      plan->stays.data[PART_Q].first = 5, "not at the version that the step reads")                                    \
    X(plan->actions.data[3].choice = 1, "with another choice")                                                         \
    X(plan->actions.data[6].tier = 9, "no such tier")                                                                  \
    X(plan->actions.data[6].tier = EBB_DEVICE, "no such tier")                                                         \
    X(plan->actions.data[7].to = EBB_DEVICE, "no such tier")                                                           \
    X(plan->topology.way[EBB_DISK][EBB_HOST] = 0, "no way between the tiers")                                          \
    X(plan->topology.way[EBB_HOST][EBB_DEVICE] = 0, "no way between the tiers")                                        \
    X(insert_stay(plan, 4, (ebb_stay){EBB_SCRATCH, 1, 2, 512, 64, 0}), "scratch that it does not need")                \
    X(insert_stay(plan, 5, (ebb_stay){EBB_SCRATCH, 2, 3, 512, 64, 0}), "scratch that it does not need")                \
    X(insert_stay(plan, 5, (ebb_stay){EBB_SCRATCH, 2, 3, 512, 64, 0});                                                 \
      insert_stay(plan, 5, (ebb_stay){EBB_SCRATCH, 2, 3, 576, 64, 0}), "scratch twice")                                \
    X(insert_stay(plan, 1, (ebb_stay){V, 0, 0, 512, 64, 64}), "two stays of a byte around the end")                    \
    X(insert_slot(plan, 2, (ebb_slot){V, EBB_HOST, 7, 2, 512, 128, 128}), "two slots of a byte around the end")        \
    X(plan->actions.data[6].tier = plan->slots.data[0].tier = EBB_HOST;                                                \
      plan->actions.data[7] = plan->actions.data[6], "two slots on one tier")                                          \
    X(plan->slots.data[0].last = 7, "it has no slot")                                                                  \
    X(plan->slots.data[0].tier = EBB_HOST, "nothing fills")                                                            \
    X(plan->slots.data[0].begin = 0, "nothing fills")                                                                  \
    X(plan->actions.data[8].begin = 0; plan->actions.data[8].size_bytes = 256, "does not end here")                    \
    X(plan->actions.data[8].size_bytes = 64, "does not end here")                                                      \
    X(plan->actions.data[4].target = Q; plan->stays.data[PART_Q].last = 4;                                             \
      plan->stays.data[PART_A].last = 9, "kept but not on the device")                                                 \
    X(plan->stays.data[PART_Z].last = 9; plan->stays.data[PART_Z].first = 5, "out of order")                           \
    X(remove_stay(plan, PART_Z); insert_stay(plan, 4, (ebb_stay){Z, 5, 9, 384, 64, 0}), "its content is lost")         \
    X(mix_versions(plan), "of different versions")

static void test_part_mutations(void **state) {
    (void)state;
    ebb_program *p = make_parts_program();
    ebb_plan *(*const make)(const ebb_program *) = make_parts_plan;
    int n_wrong = 0;
    ebb_plan *right = make(p);
    if (ebb_plan_check(p, right) != EBB_OK) { fail_msg("%s", ebb_last_error()); }
    ebb_plan_destroy(right);
    PART_MUTATIONS(MUTATION_FN)
    assert_int_equal(n_wrong, 0);
    ebb_program_destroy(p);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_right_plan),     cmocka_unit_test(test_mutations),
                                       cmocka_unit_test(test_part_mutations), cmocka_unit_test(test_repeats),
                                       cmocka_unit_test(test_versions),       cmocka_unit_test(test_stale_circle),
                                       cmocka_unit_test(test_stale_end),      cmocka_unit_test(test_stale_slot)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
