/* SPDX-License-Identifier: Apache-2.0
 *
 * AutoSwap's rules against tests/golden/autoswap.py, which has them once more: the same candidates in the same order,
 * and the same overhead to the last bit, as coded and corrected. With an argument the file is another one, such as what
 * the script makes of the authors' trace, which is theirs and not here.
 */
#include "plan/autoswap.h"

#include "plan_support.h"

#include <inttypes.h>
#include <stdlib.h>

#define MAX_BLOCKS 256

static const char *path = "tests/golden/autoswap.txt";
static const char *const rules[] = {"doa", "aoa", "wdoa", "swdoa", "vote"};

typedef struct golden {
    int64_t n;
    double *time, *load; /* [3 * n] */
    ebb_autoswap_block blocks[MAX_BLOCKS];
    size_t n_blocks;
} golden;

static void read_event(golden *g, const char *line, size_t *n_events) {
    assert_true(*n_events < (size_t)(3 * g->n));
    assert_int_equal(sscanf(line, "event %lf %lf", &g->time[*n_events], &g->load[*n_events]), 2);
    (*n_events)++;
}

static void read_candidate(golden *g, const char *line) {
    ebb_autoswap_block *b = &g->blocks[g->n_blocks];
    assert_true(g->n_blocks < MAX_BLOCKS);
    *b = (ebb_autoswap_block){.id = (uint32_t)g->n_blocks};
    assert_int_equal(sscanf(line, "candidate %lf %" SCNd64 " %" SCNd64 " %lf %lf", &b->bytes, &b->leave, &b->need,
                            &b->out_ns, &b->in_ns),
                     5);
    b->ready = b->leave + 1;
    g->n_blocks++;
}

static ebb_autoswap make_planner(const golden *g, ebb_autoswap_block *blocks, bool as_coded, ebb_bump *bump) {
    memcpy(blocks, g->blocks, sizeof g->blocks);
    ebb_autoswap a = {.n = g->n,
                      .time = g->time,
                      .load = g->load,
                      .blocks = blocks,
                      .n_blocks = g->n_blocks,
                      .as_coded = as_coded,
                      .bump = bump};
    assert_int_equal(ebb__autoswap_init(&a), EBB_OK);
    return a;
}

static ebb_autoswap_rule find_rule(const char *name) {
    size_t rule = 0;
    while (strcmp(rules[rule], name) != 0) {
        rule++;
        assert_true(rule < sizeof rules / sizeof rules[0]);
    }
    return (ebb_autoswap_rule)rule;
}

static void check_choice(const golden *g, const char *line) {
    static ebb_autoswap_block blocks[MAX_BLOCKS];
    char mode[16], rule[16];
    double limit = 0, overhead_ns = 0, peak = 0;
    size_t n = 0;
    int at = 0;
    ebb_bump bump;
    assert_int_equal(sscanf(line, "expect %15s %15s %lf %lf %zu%n", mode, rule, &limit, &overhead_ns, &n, &at), 5);
    ebb__bump_init(&bump, NULL);
    ebb_autoswap a = make_planner(g, blocks, strcmp(mode, "coded") == 0, &bump);
    assert_int_equal(ebb__autoswap_rank(&a, find_rule(rule), limit), EBB_OK);
    assert_int_equal(ebb__autoswap_select(&a, limit, &peak), n);
    for (size_t i = 0; i < n; i++) {
        char *end = NULL;
        const size_t wanted = strtoull(line + at, &end, 10);
        if (a.order[i] != wanted) { fail_msg("number %zu is %zu: %s", i, a.order[i], line); }
        at = (int)(end - line);
    }
    const double mine_ns = ebb__autoswap_stick_to(&a, n, limit);
    if (mine_ns != overhead_ns) { fail_msg("%.17g: %s", mine_ns, line); }
    /* a mix is never worse than the four scores, and the same each time */
    double least_ns = mine_ns;
    assert_int_equal(ebb__autoswap_rank(&a, EBB_AUTOSWAP_BO, limit), EBB_OK);
    n = ebb__autoswap_select(&a, limit, &peak);
    const double mixed_ns = ebb__autoswap_stick_to(&a, n, limit);
    if (find_rule(rule) <= EBB_AUTOSWAP_AOA && !(a.as_coded && find_rule(rule) == EBB_AUTOSWAP_DOA)) {
        assert_true(mixed_ns <= least_ns);
    }
    assert_int_equal(ebb__autoswap_rank(&a, EBB_AUTOSWAP_BO, limit), EBB_OK);
    assert_int_equal(ebb__autoswap_select(&a, limit, &peak), n);
    assert_true(ebb__autoswap_stick_to(&a, n, limit) == mixed_ns);
    ebb__bump_fini(&bump);
}

/* Without a limit nothing waits, and what more candidates free is free of charge. */
static void check_no_overhead(const golden *g) {
    static ebb_autoswap_block blocks[MAX_BLOCKS];
    ebb_bump bump;
    ebb__bump_init(&bump, NULL);
    ebb_autoswap a = make_planner(g, blocks, false, &bump);
    assert_int_equal(ebb__autoswap_rank(&a, EBB_AUTOSWAP_SWDOA, 0), EBB_OK);
    const double all = ebb__autoswap_no_overhead(&a, 0), some = ebb__autoswap_no_overhead(&a, g->n_blocks / 3);
    assert_true(some < all);
    for (size_t i = 0; i < g->n_blocks / 3; i++) {
        const ebb_autoswap_block *b = &blocks[a.order[i]];
        assert_true(b->ready <= b->gone && b->gone <= b->back && b->back <= b->need);
        if (b->gone == b->back) { continue; }
        assert_true(a.time[b->gone + a.n] >= a.time[b->ready + a.n] + b->out_ns);
        assert_true(a.time[b->back + a.n] + b->in_ns <= a.time[b->need + a.n]);
    }
    ebb__bump_fini(&bump);
}

static void choices_are_those_of_the_script(void **state) {
    static golden g;
    static char line[65536];
    size_t n_events = 0, n_choices = 0;
    FILE *file = fopen(path, "r");
    (void)state;
    if (file == NULL) { fail_msg("%s cannot be read", path); }
    while (fgets(line, sizeof line, file) != NULL) {
        if (sscanf(line, "length %" SCNd64, &g.n) == 1) {
            g.time = calloc((size_t)(3 * g.n), sizeof *g.time);
            g.load = calloc((size_t)(3 * g.n), sizeof *g.load);
        } else if (strncmp(line, "event", 5) == 0) {
            read_event(&g, line, &n_events);
        } else if (strncmp(line, "candidate", 9) == 0) {
            read_candidate(&g, line);
        } else {
            check_choice(&g, line);
            n_choices++;
        }
    }
    (void)fclose(file);
    assert_int_equal(n_events, 3 * g.n);
    assert_true(n_choices >= 40);
    check_no_overhead(&g);
    free(g.time);
    free(g.load);
}

/* ---- drafts ------------------------------------------------------------------------------------- */

static uint64_t used_bytes_of(const ebb_draft *draft, const ebb_program *program, uint32_t tier) {
    const ebb_program_view view = ebb__plan_view(program);
    uint64_t bytes = 0;
    for (size_t a = 0; a < draft->actions.n; a++) {
        const ebb_action *action = &draft->actions.data[a].action;
        if (action->kind != EBB_ACT_OUT || action->tier != tier) { continue; }
        bytes += ebb_align_up(view.tensors[action->target].size_bytes, view.alignment);
    }
    return bytes;
}

/* Links so slow that absences of persistent tensors lie before, across and after the border of two iterations, and a
 * host that has room for a part of them. */
static void absences_fit_together(void **state) {
    static const ebb_policy *const policies[] = {&ebb__policy_autoswap_doa, &ebb__policy_autoswap_aoa,
                                                 &ebb__policy_autoswap_wdoa, &ebb__policy_autoswap_bo};
    uint64_t n_drafts = 0, n_disk = 0;
    (void)state;
    for (uint64_t seed = 601; seed <= 800; seed++) {
        ebb_rng rng;
        ebb__rng_init(&rng, seed, 6);
        ebb_program *p = random_program(seed);
        ebb_machine *machine = NULL;
        ebb_draft draft;
        assert_int_equal(ebb_machine_create(NULL, &machine), EBB_OK);
        const uint64_t floor = ebb_program_floor_bytes(p, NULL), top = liveness_bytes(p, machine);
        const double rate = 1e5 * (double)(1 + ebb__rng_below(&rng, 1000));
        set_link(machine, EBB_HOST, rate, rate * (double)(1 + ebb__rng_below(&rng, 4)), 0);
        ebb_policy_input input = {.program = p, .machine = machine, .mem = ebb__mem_or_default(NULL)};
        input.limit_bytes = floor + (top > floor ? ebb__rng_below(&rng, top - floor) : 0);
        input.budget_bytes = UINT64_MAX;
        input.tier_bytes[EBB_HOST] = top / (1 + ebb__rng_below(&rng, 8));
        input.tier_bytes[EBB_DISK] = UINT64_MAX;
        assert_int_equal(ebb__draft_init(&draft, p, NULL), EBB_OK);
        const ebb_status st = policies[seed % 4]->draft(&input, &draft);
        if (st == EBB_OK) {
            if (!ebb__draft_is_valid(&draft, p)) { fail_msg("seed %" PRIu64 ": absences contradict each other", seed); }
            assert_true(used_bytes_of(&draft, p, EBB_HOST) <= input.tier_bytes[EBB_HOST]);
            n_disk += used_bytes_of(&draft, p, EBB_DISK) > 0;
            n_drafts++;
        } else {
            assert_int_equal(st, EBB_E_NO_FIT);
        }
        ebb__draft_fini(&draft);
        ebb_machine_destroy(machine);
        ebb_program_destroy(p);
    }
    assert_true(n_drafts > 50 && n_disk > 20);
}

/* A tensor that persists and is kept is there when the iteration ends, though the peak comes before its first use. */
static void what_is_kept_stays_to_the_end(void **state) {
    (void)state;
    ebb_program *p = NULL;
    ebb_machine *m = NULL;
    ebb_plan *plan = NULL;
    assert_int_equal(ebb_machine_create(NULL, &m), EBB_OK);
    assert_int_equal(ebb_program_create(NULL, "kept", 1, &p), EBB_OK);
    const uint32_t kept = make_tensor(p, 4096, true, true), other = make_tensor(p, 4096, true, false);
    const uint32_t big = make_tensor(p, 8192, false, false);
    STEP(p, 0, 1e9, {big, EBB_WRITE});
    STEP(p, 0, 1e9, {big, EBB_READ});
    STEP(p, 0, 1e9, {kept, EBB_UPDATE});
    STEP(p, 0, 1e9, {other, EBB_UPDATE});
    assert_int_equal(ebb_program_finish(p), EBB_OK);
    ebb_plan_options options = EBB_PLAN_OPTIONS_INIT;
    options.policy = "autoswap-doa";
    options.budget_bytes = 4 * 4096 - 1024; /* one of the two has to go */
    if (ebb_plan_make(p, m, &options, &plan, NULL) != EBB_OK) { fail_msg("%s", ebb_last_error()); }
    assert_int_equal(ebb_plan_check(p, plan), EBB_OK);
    ebb_plan_destroy(plan);
    ebb_machine_destroy(m);
    ebb_program_destroy(p);
}

int main(int argc, char **argv) {
    if (argc > 1) { path = argv[1]; }
    const struct CMUnitTest tests[] = {cmocka_unit_test(choices_are_those_of_the_script),
                                       cmocka_unit_test(absences_fit_together),
                                       cmocka_unit_test(what_is_kept_stays_to_the_end)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
