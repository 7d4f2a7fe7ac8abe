/* SPDX-License-Identifier: Apache-2.0
 *
 * Walks that are made at once, each by a hand of its own: each answer is the one that a hand alone gives. A hand lowers
 * the limit of what it cannot place. And a search that was kept after its first walks goes on as one that makes them.
 */
#include "plan/best.h"
#include "plan_support.h"

#include <math.h>

typedef struct answer {
    double time_ns, placed_ns;
    uint64_t placed_bytes, n_looks, looks_at_step, draft;
} answer;

/* The k-th keys, from scratch. */
static void set_up(ebb_best_hand *hand, uint32_t k, uint64_t max_looks) {
    hand->keys.link_price = 1.0f / (float)(1 + k);
    hand->keys.reach = 0.5f * (float)k;
    hand->keys.limit_bytes = hand->walk.input->limit_bytes;
    hand->max_looks = max_looks;
    hand->max_lower_looks = UINT64_MAX;
    hand->limit_ns = hand->place_ns = INFINITY;
    hand->find_resident = true;
}

static answer answer_of(const ebb_best_hand *hand) {
    assert_int_equal(hand->status, EBB_OK);
    return (answer){.time_ns = hand->time_ns,
                    .placed_ns = hand->placed_ns,
                    .placed_bytes = hand->time_ns < INFINITY ? hand->placed_bytes : 0,
                    .n_looks = hand->n_looks,
                    .looks_at_step = hand->looks_at_step,
                    .draft = hand->time_ns < INFINITY ? hash_draft(&hand->draft) : 0};
}

static void assert_same(const answer *a, const answer *b) {
    assert_true(a->time_ns == b->time_ns && a->placed_ns == b->placed_ns);
    assert_int_equal(a->placed_bytes, b->placed_bytes);
    assert_int_equal(a->n_looks, b->n_looks);
    assert_int_equal(a->looks_at_step, b->looks_at_step);
    assert_int_equal(a->draft, b->draft);
}

/* All hands twice, the second time with other keys in each; then one hand for all of these keys. */
static uint64_t compare(const ebb_policy_input *input) {
    ebb_best_hand hands[EBB_BEST_HANDS], one;
    answer answers[2][EBB_BEST_HANDS];
    uint64_t n_found = 0;
    assert_int_equal(ebb__best_hands_init(hands, EBB_BEST_HANDS, input), EBB_OK);
    for (uint32_t round = 0; round < 2; round++) {
        for (uint32_t k = 0; k < EBB_BEST_HANDS; k++) { set_up(&hands[k], (k + round) % EBB_BEST_HANDS, UINT64_MAX); }
        ebb__best_hands_run(hands, EBB_BEST_HANDS);
        for (uint32_t k = 0; k < EBB_BEST_HANDS; k++) {
            answers[round][(k + round) % EBB_BEST_HANDS] = answer_of(&hands[k]);
        }
    }
    ebb__best_hands_fini(hands, EBB_BEST_HANDS);
    assert_int_equal(ebb__best_hands_init(&one, 1, input), EBB_OK);
    for (uint32_t k = 0; k < EBB_BEST_HANDS; k++) {
        set_up(&one, k, UINT64_MAX);
        ebb__best_hands_run(&one, 1);
        const answer alone = answer_of(&one);
        for (uint32_t round = 0; round < 2; round++) { assert_same(&answers[round][k], &alone); }
        n_found += alone.placed_ns < INFINITY;
    }
    ebb__best_hands_fini(&one, 1);
    return n_found;
}

static ebb_policy_input ask(const ebb_program *p, const ebb_machine *m) {
    const uint64_t floor = ebb_program_floor_bytes(p, NULL), live = liveness_bytes(p, m);
    return (ebb_policy_input){.program = p,
                              .machine = m,
                              .limit_bytes = floor + (live - floor) / 2,
                              .budget_bytes = live,
                              .tier_bytes[EBB_HOST] = UINT64_MAX,
                              .early_out = true,
                              .early_in = true};
}

/* Programs for which many hands walk at once. The thread sanitizer, twenty times as slow, looks at how they share,
 * which a few show; what they answer is the other builds' affair. */
#if defined(__SANITIZE_THREAD__)
#define N_SHARED (uint64_t)5
#else
#define N_SHARED by_form(5, 20, 20)
#endif

static void test_each_answers_as_if_alone(void **state) {
    (void)state;
    uint64_t n_found = 0;
    for (uint64_t seed = 1; seed <= N_SHARED; seed++) {
        ebb_program *p = random_program(seed);
        ebb_machine *m = NULL;
        assert_int_equal(ebb_machine_create(NULL, &m), EBB_OK);
        const ebb_policy_input input = ask(p, m);
        n_found += compare(&input);
        ebb_machine_destroy(m);
        ebb_program_destroy(p);
    }
    assert_true(n_found > 2 * N_SHARED);
}

/* With a limit that is the budget, gaps between addresses are too much for some drafts. */
static void test_limits_are_lowered(void **state) {
    (void)state;
    uint64_t n_lowered = 0, n_placed = 0;
    const uint64_t n = ebb_min_u64(4 * N_SHARED, 60);
    for (uint64_t seed = 1; seed <= n; seed++) {
        ebb_program *p = random_program(seed);
        ebb_machine *m = NULL;
        ebb_best_hand hand;
        assert_int_equal(ebb_machine_create(NULL, &m), EBB_OK);
        ebb_policy_input input = ask(p, m);
        input.budget_bytes = input.limit_bytes;
        if (seed <= 3 * N_SHARED) { (void)compare(&input); }
        assert_int_equal(ebb__best_hands_init(&hand, 1, &input), EBB_OK);
        set_up(&hand, 1, UINT64_MAX);
        ebb__best_hands_run(&hand, 1);
        assert_int_equal(hand.status, EBB_OK);
        assert_int_equal(hand.first_limit_bytes, input.limit_bytes);
        assert_int_equal(hand.n_lowered > 0, hand.keys.limit_bytes < input.limit_bytes);
        assert_true(hand.placed_ns == INFINITY || hand.placed_bytes <= input.budget_bytes);
        n_lowered += hand.n_lowered > 0;
        n_placed += hand.n_lowered > 0 && hand.placed_ns < INFINITY;
        ebb__best_hands_fini(&hand, 1);
        ebb_machine_destroy(m);
        ebb_program_destroy(p);
    }
    assert_true(n_lowered > 5 && n_placed > 0);
}

static uint64_t draft_of(const ebb_policy_input *input) {
    ebb_draft draft;
    assert_int_equal(ebb__draft_init(&draft, input->program, NULL), EBB_OK);
    ebb__draft_reset(&draft, input->program);
    assert_int_equal(ebb__policy_best.draft(input, &draft), EBB_OK);
    const uint64_t hash = hash_draft(&draft);
    ebb__draft_fini(&draft);
    return hash;
}

static void test_a_kept_search_goes_on(void **state) {
    (void)state;
    ebb_rng rng;
    ebb_machine *m = NULL;
    struct ebb_best_kept *kept = NULL;
    ebb__rng_init(&rng, 3, 1);
    ebb_program *p = random_network(&rng);
    assert_int_equal(ebb_machine_create(NULL, &m), EBB_OK);
    ebb_policy_input input = ask(p, m);
    const uint64_t first = draft_of(&input);
    input.effort = 1;
    const uint64_t whole = draft_of(&input);
    input.kept = &kept;
    input.effort = 0;
    assert_true(draft_of(&input) == first && kept != NULL);
    const struct ebb_best_kept *was = kept;
    assert_true(draft_of(&input) == first && kept == was); /* it is not faster */
    input.effort = 1;
    assert_true(draft_of(&input) == whole && kept == NULL);
    input.effort = 0;
    (void)draft_of(&input);
    input.limit_bytes -= ebb_program_alignment_bytes(p);
    input.effort = 1;
    (void)draft_of(&input);
    assert_non_null(kept); /* it was for another limit */
    ebb__best_forget(&kept);
    assert_null(kept);
    ebb_machine_destroy(m);
    ebb_program_destroy(p);
}

/* Looks are compared when a step begins. */
static void test_looks_are_limited(void **state) {
    (void)state;
    ebb_rng rng;
    ebb_best_hand hand;
    ebb_machine *m = NULL;
    ebb__rng_init(&rng, 3, 1);
    ebb_program *p = random_network(&rng);
    assert_int_equal(ebb_machine_create(NULL, &m), EBB_OK);
    const ebb_policy_input input = ask(p, m);
    assert_int_equal(ebb__best_hands_init(&hand, 1, &input), EBB_OK);
    set_up(&hand, 0, UINT64_MAX);
    ebb__best_hands_run(&hand, 1);
    const answer whole = answer_of(&hand);
    assert_true(whole.time_ns < INFINITY && whole.looks_at_step > 0);
    set_up(&hand, 0, whole.looks_at_step);
    ebb__best_hands_run(&hand, 1);
    const answer same = answer_of(&hand);
    assert_same(&same, &whole);
    set_up(&hand, 0, whole.looks_at_step - 1);
    ebb__best_hands_run(&hand, 1);
    assert_int_equal(hand.status, EBB_OK);
    assert_true(hand.time_ns == INFINITY && hand.placed_ns == INFINITY);
    ebb__best_hands_fini(&hand, 1);
    ebb_machine_destroy(m);
    ebb_program_destroy(p);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_each_answers_as_if_alone),
        cmocka_unit_test(test_looks_are_limited),
        cmocka_unit_test(test_limits_are_lowered),
        cmocka_unit_test(test_a_kept_search_goes_on),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
