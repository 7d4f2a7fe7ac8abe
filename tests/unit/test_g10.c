/* SPDX-License-Identifier: Apache-2.0
 *
 * What g10 decides on a program small enough to follow by hand: what leaves, and to which tier.
 */
#include "plan_support.h"

enum { WEIGHTS, LONG, SHORT, N_TENSORS };
#define STEP_NS 100

/* Twelve steps. LONG and SHORT, 100 bytes each, are there from the first step on; SHORT is read by step 10, LONG by
 * step 11. Step 5 needs 200 bytes of its own, so it has 401. */
static ebb_program *make_program(bool short_lasts) {
    ebb_program *p = NULL;
    assert_int_equal(ebb_program_create(NULL, "two", 1, &p), EBB_OK);
    assert_int_equal(make_tensor(p, 1, true, false), WEIGHTS);
    assert_int_equal(make_tensor(p, 100, false, false), LONG);
    assert_int_equal(make_tensor(p, 100, short_lasts, false), SHORT);
    const ebb_access first[] = {{LONG, EBB_WRITE}, {SHORT, short_lasts ? EBB_UPDATE : EBB_WRITE}};
    make_step(p, first, 2, 0, STEP_NS);
    const ebb_access middle[] = {{WEIGHTS, EBB_READ}};
    for (uint32_t s = 1; s < 10; s++) { make_step(p, middle, 1, s == 5 ? 200 : 0, STEP_NS); }
    const ebb_access last[] = {{SHORT, EBB_READ}}, end[] = {{LONG, EBB_READ}, {WEIGHTS, EBB_UPDATE}};
    make_step(p, last, 1, 0, STEP_NS);
    make_step(p, end, 2, 0, STEP_NS);
    assert_int_equal(ebb_program_finish(p), EBB_OK);
    return p;
}

typedef struct wanted {
    uint64_t limit_bytes, disk_bytes;
    uint64_t host_ns, disk_ns;  /* of a copy of 100 bytes, each way */
    uint32_t long_to, short_to; /* tiers; EBB_DEVICE: it stays */
} wanted;

static void check(const wanted *w, bool short_lasts, bool as_coded) {
    ebb_program *p = make_program(short_lasts);
    ebb_draft draft;
    uint32_t to[N_TENSORS] = {0};
    ebb_machine *m = make_plain_machine(EBB_HOST, 1e11 / (double)w->host_ns, 1e11 / (double)w->host_ns);
    set_link(m, EBB_DISK, 1e11 / (double)w->disk_ns, 1e11 / (double)w->disk_ns, 0);
    ebb_policy_input input = {.program = p, .machine = m, .mem = ebb__mem_or_default(NULL), .as_coded = as_coded};
    input.limit_bytes = w->limit_bytes;
    input.tier_bytes[EBB_HOST] = 1000;
    input.tier_bytes[EBB_DISK] = w->disk_bytes;
    assert_int_equal(ebb__draft_init(&draft, p, NULL), EBB_OK);
    ebb__draft_reset(&draft, p);
    assert_int_equal(ebb__policy_g10.draft(&input, &draft), EBB_OK);
    assert_true(ebb__draft_is_valid(&draft, p));
    for (size_t i = 0; i < draft.actions.n; i++) {
        const ebb_action *action = &draft.actions.data[i].action;
        if (action->kind == EBB_ACT_OUT) { to[action->target] = action->tier; }
    }
    assert_int_equal(to[WEIGHTS], EBB_DEVICE);
    assert_int_equal(to[LONG], w->long_to);
    assert_int_equal(to[SHORT], w->short_to);
    ebb__draft_fini(&draft);
    ebb_machine_destroy(m);
    ebb_program_destroy(p);
}

static void decisions(void **state) {
    (void)state;
    static const wanted cases[] = {
        {450, 1000, 10, 100, EBB_DEVICE, EBB_DEVICE},
        /* Both take the same off step 5. The longer gap is first, and there is time for the slow tier. */
        {350, 1000, 10, 100, EBB_DISK, EBB_DEVICE},
        /* For the second the way to the slow tier is taken until its copy would have ended. */
        {250, 1000, 10, 100, EBB_DISK, EBB_HOST},
        {250, 50, 10, 100, EBB_HOST, EBB_HOST}, /* the slow tier has no room */
        {250, 1000, 10, 200, EBB_DISK, EBB_HOST},
        /* 1000 ns have room for 2.5 copies of 380 ns, 900 ns have not. */
        {250, 1000, 10, 380, EBB_DISK, EBB_HOST},
        {250, 1000, 10, 410, EBB_HOST, EBB_HOST},
        {250, 1000, 410, 500, EBB_HOST, EBB_HOST}, /* too short for any: they leave all the same */
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        print_message("case %zu\n", i);
        for (int how = 0; how < 4; how++) { check(&cases[i], (how & 1) != 0, (how & 2) != 0); }
    }
}

/* A persistent tensor may be away around the end of the iteration, if it need not be there at the end. */
static void around_the_end(void **state) {
    (void)state;
    for (int kept = 0; kept < 2; kept++) {
        ebb_program *p = NULL;
        ebb_draft draft;
        assert_int_equal(ebb_program_create(NULL, "round", 1, &p), EBB_OK);
        const uint32_t w = make_tensor(p, 100, true, kept != 0), x = make_tensor(p, 1, true, false);
        STEP(p, 0, STEP_NS, {w, EBB_UPDATE});
        for (uint32_t s = 1; s < 12; s++) { STEP(p, s == 6 ? 200 : 0, STEP_NS, {x, EBB_READ}); }
        assert_int_equal(ebb_program_finish(p), EBB_OK);
        ebb_machine *m = make_plain_machine(EBB_HOST, 1e9, 1e9);
        ebb_policy_input input = {.program = p, .machine = m, .mem = ebb__mem_or_default(NULL), .limit_bytes = 250};
        input.tier_bytes[EBB_HOST] = 1000;
        assert_int_equal(ebb__draft_init(&draft, p, NULL), EBB_OK);
        ebb__draft_reset(&draft, p);
        assert_int_equal(ebb__policy_g10.draft(&input, &draft), kept ? EBB_E_NO_FIT : EBB_OK);
        assert_true(kept || ebb__draft_is_valid(&draft, p));
        assert_int_equal(draft.resident[w], kept);
        ebb__draft_fini(&draft);
        ebb_machine_destroy(m);
        ebb_program_destroy(p);
    }
}

/* A tensor may be away on one tier in one gap and on another in the next. The weights leave twice: for 400 ns, too
 * short for the disk, and around the end for 1400 ns. */
static void two_tiers(void **state) {
    (void)state;
    enum { N = 20 };
    ebb_program *p = NULL;
    ebb_plan *plan = NULL;
    ebb_plan_options options = EBB_PLAN_OPTIONS_INIT;
    assert_int_equal(ebb_program_create(NULL, "two tiers", 1, &p), EBB_OK);
    const uint32_t w = make_tensor(p, 1000, true, false), x = make_tensor(p, 10, true, false);
    for (uint32_t s = 0; s < N; s++) {
        if (s == 2 || s == 7) {
            STEP(p, 0, STEP_NS, {w, EBB_UPDATE});
        } else {
            STEP(p, s == 4 || s == 14 ? 1000 : 0, STEP_NS, {x, EBB_READ});
        }
    }
    assert_int_equal(ebb_program_finish(p), EBB_OK);
    ebb_machine *m = make_plain_machine(EBB_HOST, 1e11, 1e11);
    set_link(m, EBB_DISK, 2.5e9, 2.5e9, 0);
    options.policy = "g10";
    options.budget_bytes = 1500;
    options.tier_bytes[EBB_HOST] = options.tier_bytes[EBB_DISK] = 1000;
    if (ebb_plan_make(p, m, &options, &plan, NULL) != EBB_OK) { fail_msg("%s", ebb_last_error()); }
    const ebb_plan_summary sum = ebb_plan_get_summary(plan);
    assert_int_equal(sum.tier_bytes[EBB_HOST], 1000);
    assert_int_equal(sum.tier_bytes[EBB_DISK], 1000);
    ebb_plan_destroy(plan);
    ebb_machine_destroy(m);
    ebb_program_destroy(p);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(decisions), cmocka_unit_test(around_the_end),
                                       cmocka_unit_test(two_tiers)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
