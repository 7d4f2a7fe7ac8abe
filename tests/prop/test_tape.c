/* SPDX-License-Identifier: Apache-2.0
 *
 * Drafts as tapes, over random programs: a tape says what its draft says, its loads stay right whatever is taken out
 * and put back, and local search on it makes drafts that keep the limit, compute no more again than before, copy no
 * more, and make plans that hold. Drops go to where their bytes are free.
 */
#include "plan_support.h"

#include "plan/tape.h"

#include <inttypes.h>
#include <math.h>

typedef struct subject {
    ebb_program *program;
    ebb_machine *machine;
    ebb_policy_input input;
    ebb_draft draft, other;
    ebb_best_walk walk;
    ebb_bump bump;
    ebb_tape_recipes *recipes;
    ebb_best_keys keys;
} subject;

static void init_subject(subject *s, uint64_t limit, uint64_t host_bytes) {
    s->input = (ebb_policy_input){.program = s->program,
                                  .machine = s->machine,
                                  .mem = ebb__mem_or_default(NULL),
                                  .limit_bytes = limit,
                                  .budget_bytes = UINT64_MAX,
                                  .early_out = true,
                                  .early_in = true};
    s->input.tier_bytes[EBB_HOST] = host_bytes;
    assert_int_equal(ebb__draft_init(&s->draft, s->program, NULL), EBB_OK);
    assert_int_equal(ebb__draft_init(&s->other, s->program, NULL), EBB_OK);
    assert_int_equal(ebb__best_walk_init(&s->walk, &s->input, &s->draft), EBB_OK);
    ebb__bump_init(&s->bump, s->input.mem);
    assert_int_equal(ebb__tape_find_recipes(&s->walk, &s->bump, &s->recipes), EBB_OK);
    const size_t n = s->walk.view.n_tensors;
    s->keys = (ebb_best_keys){.weight = calloc(n, sizeof(float)),
                              .no_again = calloc(n, sizeof(bool)),
                              .copy = calloc(n, sizeof(float)),
                              .resident = calloc(n, 1),
                              .link_price = 1,
                              .reach = 1,
                              .limit_bytes = limit};
}

/* Make a draft by a walk, within a random limit and with or without copies. It returns false if the walk finds none. */
static bool open_program(subject *s, ebb_program *program, uint64_t seed) {
    ebb_rng rng;
    ebb__rng_init(&rng, seed, 11);
    *s = (subject){.program = program};
    assert_int_equal(ebb_machine_create(NULL, &s->machine), EBB_OK);
    const uint64_t floor = ebb_program_floor_bytes(s->program, NULL);
    const uint64_t peak = liveness_bytes(s->program, s->machine);
    const uint64_t alignment = ebb_program_alignment_bytes(s->program);
    const uint64_t limit = ebb_align_up(floor + ebb__rng_below(&rng, peak - ebb_min_u64(floor, peak - 1)), alignment);
    init_subject(s, limit, seed % 2 == 0 ? UINT64_MAX : 0);
    const size_t n = s->walk.view.n_tensors;
    for (size_t t = 0; t < n; t++) { s->keys.copy[t] = ebb__rng_below(&rng, 2) == 0 ? 8 : 0; }
    return ebb__best_walk(&s->walk, &s->keys, INFINITY, true) == EBB_OK;
}

static bool open_subject(subject *s, uint64_t seed) {
    return open_program(s, random_program(seed), seed);
}

static void close_subject(subject *s) {
    ebb__best_walk_fini(&s->walk);
    ebb__draft_fini(&s->draft);
    ebb__draft_fini(&s->other);
    free(s->keys.weight);
    free(s->keys.no_again);
    free(s->keys.copy);
    free(s->keys.resident);
    ebb__bump_fini(&s->bump);
    ebb_machine_destroy(s->machine);
    ebb_program_destroy(s->program);
}

static uint64_t load_of(const subject *s, const ebb_draft *draft) {
    assert_true(ebb__draft_is_valid(draft, s->program));
    return load_of_draft(draft, s->program, s->machine);
}

static double again_ns(const subject *s, const ebb_draft *draft) {
    double sum = 0;
    for (size_t a = 0; a < draft->actions.n; a++) {
        const ebb_action *action = &draft->actions.data[a].action;
        sum += action->kind == EBB_ACT_AGAIN ? s->walk.step_ns[action->target] : 0;
    }
    return sum;
}

static void a_tape_is_its_draft(void **state) {
    (void)state;
    uint64_t n_again = 0, n_copies = 0;
    for (uint64_t seed = 1; seed <= 60; seed++) {
        subject s;
        ebb_tape tape;
        if (open_subject(&s, seed)) {
            assert_int_equal(ebb__tape_init(&tape, &s.walk, s.recipes, NULL), EBB_OK);
            assert_int_equal(ebb__tape_read(&tape, &s.draft), EBB_OK);
            assert_true(ebb__tape_is_valid(&tape));
            memcpy(s.other.resident, s.draft.resident, s.walk.view.n_tensors);
            memcpy(s.other.home, s.draft.home, s.walk.view.n_tensors);
            assert_int_equal(ebb__tape_write(&tape, &s.other), EBB_OK);
            if (load_of(&s, &s.other) > load_of(&s, &s.draft) || again_ns(&s, &s.other) != again_ns(&s, &s.draft)) {
                fail_msg("seed %" PRIu64 ": a tape is not its draft", seed);
            }
            for (size_t a = 0; a < s.draft.actions.n; a++) {
                const uint32_t kind = s.draft.actions.data[a].action.kind;
                n_again += kind == EBB_ACT_AGAIN;
                n_copies += kind == EBB_ACT_OUT;
            }
            ebb__tape_fini(&tape);
        }
        close_subject(&s);
    }
    assert_true(n_again > 20 && n_copies > 20);
}

/* Chains of one node that follow no other node of theirs may go alone. */
static void taking_out_and_putting_back(void **state) {
    (void)state;
    uint64_t n_moved = 0;
    for (uint64_t seed = 1; seed <= 60; seed++) {
        subject s;
        ebb_tape tape;
        ebb_rng rng;
        ebb__rng_init(&rng, seed, 12);
        if (open_subject(&s, seed)) {
            assert_int_equal(ebb__tape_init(&tape, &s.walk, s.recipes, NULL), EBB_OK);
            assert_int_equal(ebb__tape_read(&tape, &s.draft), EBB_OK);
            for (int i = 0; i < 20 && tape.again.n > 0; i++) {
                const uint32_t n = tape.again.data[ebb__rng_below(&rng, tape.again.n)];
                const double before_ns = tape.again_ns;
                if (tape.nodes.data[n].chain != n || tape.links.data[n].prev == EBB_TAPE_NONE) { continue; }
                ebb__tape_unlink(&tape, n);
                assert_true(ebb__tape_is_valid(&tape) && tape.again_ns <= before_ns);
                ebb__tape_link(&tape, n, tape.links.data[n].next);
                assert_true(ebb__tape_is_valid(&tape));
                n_moved++;
            }
            ebb__tape_fini(&tape);
        }
        close_subject(&s);
    }
    assert_true(n_moved > 50);
}

/* If the same number of bytes is wasted everywhere, the limit is lower by that. */
static void what_is_wasted_counts(void **state) {
    (void)state;
    uint64_t n_kept = 0;
    for (uint64_t seed = 1; seed <= 60; seed++) {
        subject s;
        ebb_rng rng;
        ebb__rng_init(&rng, seed, 14);
        if (open_subject(&s, seed)) {
            const uint64_t each = load_of(&s, &s.draft) / 16;
            uint64_t *waste = calloc(s.walk.view.n_steps + 1, sizeof *waste);
            for (size_t p = 0; p <= s.walk.view.n_steps; p++) { waste[p] = each; }
            const ebb_refine_options options = {.limit_bytes = s.input.limit_bytes,
                                                .waste = waste,
                                                .max_looks = 20000,
                                                .rng = &rng,
                                                .recipes = s.recipes};
            const ebb_status st = ebb__best_refine(&s.walk, &s.draft, &options, &s.other);
            assert_true(st == EBB_OK || st == EBB_E_NO_FIT);
            if (st == EBB_OK && load_of(&s, &s.other) > s.input.limit_bytes - each) {
                fail_msg("seed %" PRIu64 ": what is wasted", seed);
            }
            n_kept += st == EBB_OK && load_of(&s, &s.draft) > s.input.limit_bytes - each;
            free(waste);
        }
        close_subject(&s);
    }
    assert_true(n_kept > 5);
}

static bool copies_out(const ebb_draft *draft, uint32_t tensor) {
    for (size_t a = 0; a < draft->actions.n; a++) {
        const ebb_action *action = &draft->actions.data[a].action;
        if (action->kind == EBB_ACT_OUT && action->target == tensor) { return true; }
    }
    return false;
}

/* How many bytes of room are copied out, and of how many tensors that the other draft does not copy. */
static uint64_t bytes_out(const subject *s, const ebb_draft *draft, const ebb_draft *other, uint64_t *n_new) {
    uint64_t bytes = 0;
    for (size_t a = 0; a < draft->actions.n; a++) {
        const ebb_action *action = &draft->actions.data[a].action;
        if (action->kind != EBB_ACT_OUT) { continue; }
        bytes += ebb_align_up(s->walk.view.tensors[action->target].size_bytes, s->walk.view.alignment);
        *n_new += !copies_out(other, action->target);
    }
    return bytes;
}

/* It copies no more bytes than before, but others. */
static void local_search_keeps_the_limit(void **state) {
    (void)state;
    uint64_t n_better = 0, n_new = 0, n_own = 0;
    const uint64_t n = by_form(60, 60, 2000);
    for (uint64_t seed = 1; seed <= n; seed++) {
        subject s;
        ebb_rng rng;
        ebb__rng_init(&rng, seed, 13);
        if (open_subject(&s, seed)) {
            const ebb_refine_options options = {.limit_bytes = s.input.limit_bytes,
                                                .max_looks = 20000,
                                                .heat = (double)(seed % 3) * 0.01,
                                                .rng = &rng,
                                                .recipes = s.recipes};
            const double before_ns = again_ns(&s, &s.draft);
            const ebb_status st = ebb__best_refine(&s.walk, &s.draft, &options, &s.other);
            assert_int_equal(st, EBB_OK);
            if (load_of(&s, &s.other) > s.input.limit_bytes || again_ns(&s, &s.other) > before_ns) {
                fail_msg("seed %" PRIu64 ": local search", seed);
            }
            n_better += again_ns(&s, &s.other) < before_ns;
            if (bytes_out(&s, &s.other, &s.draft, &n_new) > bytes_out(&s, &s.draft, &s.draft, &n_own)) {
                fail_msg("seed %" PRIu64 ": more is copied", seed);
            }
        }
        close_subject(&s);
    }
    assert_true(n_better > 5 && n_own == 0);
}

/* How many actions other than drops come after a tensor's drop number `drop`. If it has fewer drops: UINT64_MAX. */
static uint64_t rest_after(const ebb_draft *draft, uint32_t tensor, uint32_t drop) {
    size_t a = 0;
    for (; a < draft->actions.n; a++) {
        const ebb_action *action = &draft->actions.data[a].action;
        if (action->kind == EBB_ACT_DROP && action->target == tensor && drop-- == 0) { break; }
    }
    uint64_t n = a < draft->actions.n ? 0 : UINT64_MAX;
    for (; a < draft->actions.n; a++) { n += draft->actions.data[a].action.kind != EBB_ACT_DROP; }
    return n;
}

static size_t next_no_drop(const ebb_draft *draft, size_t a) {
    while (a < draft->actions.n && draft->actions.data[a].action.kind == EBB_ACT_DROP) { a++; }
    return a;
}

static bool has_same_others(const ebb_draft *draft, const ebb_draft *other) {
    size_t a = next_no_drop(draft, 0), b = next_no_drop(other, 0);
    while (a < draft->actions.n && b < other->actions.n) {
        if (!is_same_action(&draft->actions.data[a].action, &other->actions.data[b].action)) { break; }
        a = next_no_drop(draft, a + 1);
        b = next_no_drop(other, b + 1);
    }
    return a == draft->actions.n && b == other->actions.n;
}

static void drops_go_to_where_their_bytes_are_free(void **state) {
    (void)state;
    uint64_t n_later = 0;
    for (uint64_t seed = 2; seed <= 120; seed += 2) {
        subject s;
        double time_ns = 0, settled_ns = 0;
        if (open_subject(&s, seed)) {
            assert_int_equal(ebb__draft_copy(&s.draft, s.program, &s.other), EBB_OK);
            assert_int_equal(ebb__best_settle(&s.input, &s.walk.drag, s.input.limit_bytes, &s.other), EBB_OK);
            assert_int_equal(ebb__best_time(&s.input, &s.walk.drag, &s.draft, &time_ns), EBB_OK);
            assert_int_equal(ebb__best_time(&s.input, &s.walk.drag, &s.other, &settled_ns), EBB_OK);
            const bool is_same = has_same_others(&s.other, &s.draft) && s.other.actions.n == s.draft.actions.n;
            if (!is_same || fabs(settled_ns - time_ns) > 1 || load_of(&s, &s.other) > s.input.limit_bytes) {
                fail_msg("seed %" PRIu64 ": a settled draft is another one", seed);
            }
            for (uint32_t t = 0; t < s.walk.view.n_tensors; t++) {
                for (uint32_t drop = 0; rest_after(&s.draft, t, drop) != UINT64_MAX; drop++) {
                    const uint64_t before = rest_after(&s.draft, t, drop), now = rest_after(&s.other, t, drop);
                    if (now > before) { fail_msg("seed %" PRIu64 ": a drop comes earlier", seed); }
                    n_later += now < before;
                }
            }
        }
        close_subject(&s);
    }
    assert_true(n_later > 20);
}

/* A plan of the draft, as the checker sees it; placed anywhere. */
static ebb_status check_draft(const subject *s, const ebb_draft *draft) {
    ebb_placing_options options = {
        .alignment = ebb_program_alignment_bytes(s->program), .enough_bytes = UINT64_MAX, .limit_bytes = UINT64_MAX};
    ebb_placed placed = {0};
    ebb_plan *plan = NULL;
    for (uint32_t t = 0; t < EBB_MAX_TIERS; t++) { options.tier_bytes[t] = UINT64_MAX; }
    assert_int_equal(ebb__plan_create(NULL, "test", ebb_machine_topology(s->machine), &plan), EBB_OK);
    plan->fingerprint = ebb_program_fingerprint(s->program);
    plan->alignment_bytes = options.alignment;
    plan->budget_bytes = UINT64_MAX;
    assert_int_equal(ebb__draft_to_plan(draft, s->program, plan), EBB_OK);
    assert_int_equal(ebb__plan_place(plan, &options, &placed), EBB_OK);
    assert_int_equal(ebb__plan_seal(plan), EBB_OK);
    const ebb_status st = ebb_plan_check(s->program, plan);
    ebb_plan_destroy(plan);
    return st;
}

#define N_READ 6u

/* Tensors that are made first, and then read again and again: a copy may be read more than once. */
static ebb_program *make_reread(ebb_rng *rng) {
    ebb_program *p = NULL;
    uint32_t x[N_READ], last;
    assert_int_equal(ebb_program_create(NULL, "reread", 64, &p), EBB_OK);
    last = make_tensor(p, 1 << 18, false, false);
    STEP(p, 0, 1e6, {last, EBB_WRITE});
    for (uint32_t i = 0; i < N_READ; i++) {
        x[i] = make_tensor(p, (1 + ebb__rng_below(rng, 4)) << 20, false, false);
        STEP(p, 0, 1e9, {last, EBB_READ}, {x[i], EBB_WRITE});
    }
    for (uint32_t i = 0; i < 40; i++) {
        const uint32_t next = make_tensor(p, 1 << 18, false, false);
        STEP(p, 0, 2e9, {last, EBB_READ}, {x[ebb__rng_below(rng, N_READ)], EBB_READ}, {next, EBB_WRITE});
        last = ebb__rng_below(rng, 3) == 0 ? next : last;
    }
    assert_int_equal(ebb_program_finish(p), EBB_OK);
    return p;
}

/* As lanes do, round after round, with limits that differ a little. */
static void refined_drafts_are_plans(void **state) {
    (void)state;
    uint64_t n_plans = 0;
    const uint64_t n = by_form(200, 400, 2000);
    for (uint64_t seed = 2; seed <= 2 * n; seed += 2) {
        subject s;
        ebb_rng rng;
        ebb__rng_init(&rng, seed, 16);
        if (open_program(&s, seed % 4 == 0 ? random_program(seed) : make_reread(&rng), seed)) {
            for (int round = 0; round < 6; round++) {
                const uint64_t limit = s.input.limit_bytes - s.input.limit_bytes / 64 * ebb__rng_below(&rng, 12);
                const ebb_refine_options options = {
                    .limit_bytes = limit, .max_looks = 20000, .heat = 0.02, .rng = &rng, .recipes = s.recipes};
                assert_int_equal(ebb__best_settle(&s.input, &s.walk.drag, limit, &s.draft), EBB_OK);
                if (ebb__best_refine(&s.walk, &s.draft, &options, &s.other) != EBB_OK) { break; }
                assert_int_equal(ebb__draft_move_up(&s.other, s.program, s.machine, limit, false, s.input.early_in),
                                 EBB_OK);
                if (check_draft(&s, &s.other) != EBB_OK) { fail_msg("seed %" PRIu64 ": %s", seed, ebb_last_error()); }
                ebb__draft_swap(&s.draft, &s.other);
                n_plans++;
            }
        }
        close_subject(&s);
    }
    assert_true(n_plans > n / 2);
}

#define LAYERS 16u

/* Layers of one size; every other one takes a thousand times as long. */
static ebb_program *make_layers(void) {
    ebb_program *p = NULL;
    uint32_t x[LAYERS + 1], grad;
    assert_int_equal(ebb_program_create(NULL, "layers", 64, &p), EBB_OK);
    for (uint32_t i = 0; i <= LAYERS; i++) { x[i] = make_tensor(p, 1 << 20, false, false); }
    STEP(p, 0, 1e6, {x[0], EBB_WRITE});
    for (uint32_t i = 1; i <= LAYERS; i++) {
        STEP(p, 0, i % 2 == 0 ? 1e9 : 1e6, {x[i - 1], EBB_READ}, {x[i], EBB_WRITE});
    }
    grad = make_tensor(p, 1 << 20, false, false);
    STEP(p, 0, 1e9, {x[LAYERS], EBB_READ}, {grad, EBB_WRITE});
    for (uint32_t i = LAYERS; i >= 1; i--) {
        const uint32_t next = make_tensor(p, 1 << 20, false, false);
        STEP(p, 0, 2e9, {grad, EBB_READ}, {x[i - 1], EBB_READ}, {next, EBB_WRITE});
        grad = next;
    }
    STEP(p, 0, 1e6, {grad, EBB_READ});
    assert_int_equal(ebb_program_finish(p), EBB_OK);
    return p;
}

/* The walk may copy what is cheap to compute again, and only that. */
static void copies_are_exchanged(void **state) {
    (void)state;
    subject s = {.program = make_layers()};
    ebb_rng rng;
    ebb__rng_init(&rng, 1, 15);
    assert_int_equal(ebb_machine_create(NULL, &s.machine), EBB_OK);
    init_subject(&s, 7 << 20, UINT64_MAX);
    for (uint32_t i = 0; i <= LAYERS; i++) {
        s.keys.no_again[i] = i % 2 != 0;
        s.keys.copy[i] = i % 2 == 0 ? 40 : 0;
    }
    assert_int_equal(ebb__best_walk(&s.walk, &s.keys, INFINITY, true), EBB_OK);
    const ebb_refine_options options = {
        .limit_bytes = s.input.limit_bytes, .max_looks = 100000, .rng = &rng, .recipes = s.recipes};
    uint64_t n_new = 0, n_own = 0;
    assert_int_equal(ebb__best_refine(&s.walk, &s.draft, &options, &s.other), EBB_OK);
    assert_true(load_of(&s, &s.other) <= s.input.limit_bytes);
    assert_true(bytes_out(&s, &s.other, &s.draft, &n_new) <= bytes_out(&s, &s.draft, &s.draft, &n_own));
    assert_true(n_new > 0 && again_ns(&s, &s.other) < again_ns(&s, &s.draft) / 2);
    close_subject(&s);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_tape_is_its_draft),
        cmocka_unit_test(taking_out_and_putting_back),
        cmocka_unit_test(local_search_keeps_the_limit),
        cmocka_unit_test(what_is_wasted_counts),
        cmocka_unit_test(refined_drafts_are_plans),
        cmocka_unit_test(copies_are_exchanged),
        cmocka_unit_test(drops_go_to_where_their_bytes_are_free),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
