/* SPDX-License-Identifier: Apache-2.0
 *
 * Walks of the policy best with random keys, over random programs, with tiers that may be full and links of any speed:
 * the draft is valid and keeps its limit, and the same keys make it again. Builds for tests also check before each
 * choice that no floor in a queue is above its tensor's score (best_price.c).
 */
#include "plan_support.h"

#include "plan/best.h"

#include <math.h>

typedef struct subject {
    ebb_program *program;
    ebb_machine *machine;
    ebb_policy_input input;
    ebb_draft draft;
    ebb_best_walk walk;
    ebb_best_keys keys;
} subject;

static uint64_t random_room(ebb_rng *rng, uint64_t bytes) {
    const uint64_t dice = ebb__rng_below(rng, 4);
    return dice == 0 ? 0 : dice == 1 ? UINT64_MAX : 1 + ebb__rng_below(rng, bytes);
}

static float random_weight(ebb_rng *rng) {
    return ebb__rng_below(rng, 3) == 0 ? (float)ebb__rng_below(rng, 9) - 4 : 0;
}

static void open_machine(subject *s, ebb_rng *rng, uint64_t peak) {
    assert_int_equal(ebb_machine_create(NULL, &s->machine), EBB_OK);
    for (uint32_t tier = 1; tier <= EBB_DISK; tier++) {
        const double speed = pow(10, 5 + (double)ebb__rng_below(rng, 6));
        const double in_speed = speed * (1 + (double)ebb__rng_below(rng, 3));
        set_link(s->machine, tier, speed, in_speed, ebb__rng_below(rng, 3) * 1000);
        s->input.tier_bytes[tier] = random_room(rng, peak);
    }
}

static void open_keys(subject *s, ebb_rng *rng) {
    const size_t n = s->walk.view.n_tensors;
    ebb_best_duals *duals = NULL;
    double bound_ns = 0;
    assert_int_equal(ebb__best_find_duals(&s->walk, &duals, &bound_ns), EBB_OK);
    s->walk.duals = duals;
    s->keys = (ebb_best_keys){.weight = calloc(n, sizeof(float)),
                              .no_again = calloc(n, sizeof(bool)),
                              .copy = calloc(n, sizeof(float)),
                              .resident = calloc(n, 1),
                              .link_price = 1.0f / (float)(1 + ebb__rng_below(rng, 8)),
                              .reach = (float)ebb__rng_below(rng, 5) * 0.5f,
                              .patience = ebb__rng_below(rng, 2) == 0 ? INFINITY : (float)ebb__rng_below(rng, 3),
                              .limit_bytes = s->input.limit_bytes,
                              .by_duals = duals != NULL && ebb__rng_below(rng, 2) == 0,
                              .keeps_parts = ebb__rng_below(rng, 3) == 0};
    for (size_t t = 0; t < n; t++) {
        s->keys.copy[t] = random_weight(rng);
        s->keys.weight[t] = random_weight(rng);
        s->keys.no_again[t] = ebb__rng_below(rng, 8) == 0;
    }
}

static void open_subject(subject *s, uint64_t seed) {
    ebb_rng rng;
    ebb__rng_init(&rng, seed, 21);
    *s = (subject){.program = random_program(seed)};
    const uint64_t floor = ebb_program_floor_bytes(s->program, NULL);
    ebb_machine *plain = NULL;
    assert_int_equal(ebb_machine_create(NULL, &plain), EBB_OK);
    const uint64_t peak = liveness_bytes(s->program, plain);
    ebb_machine_destroy(plain);
    const uint64_t limit = floor + ebb__rng_below(&rng, peak - ebb_min_u64(floor, peak - 1));
    s->input = (ebb_policy_input){.program = s->program,
                                  .mem = ebb__mem_or_default(NULL),
                                  .limit_bytes = ebb_align_up(limit, ebb_program_alignment_bytes(s->program)),
                                  .budget_bytes = UINT64_MAX,
                                  .early_out = true,
                                  .early_in = true};
    open_machine(s, &rng, peak);
    s->input.machine = s->machine;
    assert_int_equal(ebb__draft_init(&s->draft, s->program, NULL), EBB_OK);
    assert_int_equal(ebb__best_walk_init(&s->walk, &s->input, &s->draft), EBB_OK);
    open_keys(s, &rng);
}

static void close_subject(subject *s) {
    ebb__best_walk_fini(&s->walk);
    ebb__draft_fini(&s->draft);
    free(s->keys.weight);
    free(s->keys.no_again);
    free(s->keys.copy);
    free(s->keys.resident);
    ebb_machine_destroy(s->machine);
    ebb_program_destroy(s->program);
}

static uint64_t count(const ebb_draft *draft, uint32_t kind) {
    uint64_t n = 0;
    for (size_t i = 0; i < draft->actions.n; i++) { n += draft->actions.data[i].action.kind == kind; }
    return n;
}

static void test_walks_with_any_keys(void **state) {
    (void)state;
    uint64_t n_walked = 0, n_again = 0, n_out = 0, n_by_duals = 0;
    const uint64_t n = by_form(400, 2000, 30000);
    for (uint64_t seed = 1; seed <= n; seed++) {
        subject s;
        open_subject(&s, seed);
        const ebb_status st = ebb__best_walk(&s.walk, &s.keys, INFINITY, true);
        assert_true(st == EBB_OK || st == EBB_E_NO_FIT);
        if (st == EBB_OK) {
            assert_true(ebb__draft_is_valid(&s.draft, s.program));
            assert_true(load_of_draft(&s.draft, s.program, s.machine) <= s.input.limit_bytes);
            const uint64_t hash = hash_draft(&s.draft);
            n_walked++;
            n_again += count(&s.draft, EBB_ACT_AGAIN);
            n_out += count(&s.draft, EBB_ACT_OUT);
            n_by_duals += s.keys.by_duals;
            assert_int_equal(ebb__best_walk(&s.walk, &s.keys, INFINITY, true), EBB_OK);
            assert_true(hash_draft(&s.draft) == hash);
        }
        close_subject(&s);
    }
    assert_true(n_walked > n / 3 && n_again > n && n_out > n && n_by_duals > n / 50);
}

#define N_TENSORS 50u

/* The queue beside a list that is searched from end to end. */
static void test_a_queue_is_a_heap(void **state) {
    (void)state;
    ebb_rng rng;
    ebb_bump bump;
    ebb_best_queue q = {0};
    double score[N_TENSORS];
    bool is_in[N_TENSORS] = {false};
    ebb__rng_init(&rng, 1, 22);
    ebb__bump_init(&bump, NULL);
    assert_int_equal(ebb__best_queue_init(&q, &bump, N_TENSORS), EBB_OK);
    ebb__best_queue_empty(&q, N_TENSORS);
    for (int i = 0; i < 20000; i++) {
        const uint32_t t = (uint32_t)ebb__rng_below(&rng, N_TENSORS);
        const double other = (double)ebb__rng_below(&rng, 40);
        uint32_t n = 0, least = EBB_BEST_NONE;
        if (!is_in[t]) {
            ebb__best_queue_add(&q, (ebb_best_floor){.score = score[t] = other, .tensor = t});
            is_in[t] = true;
        } else if (ebb__rng_below(&rng, 2) == 0) {
            ebb__best_queue_remove(&q, t);
            is_in[t] = false;
        } else {
            ebb__best_queue_lower(&q, t, other);
            score[t] = fmin(score[t], other);
        }
        for (uint32_t k = 0; k < N_TENSORS; k++) {
            n += is_in[k];
            if (is_in[k] && (least == EBB_BEST_NONE || score[k] < score[least])) { least = k; }
            assert_true(is_in[k] == (q.place[k] != EBB_BEST_NONE));
            assert_true(!is_in[k] || q.entry[q.place[k]].tensor == k);
        }
        assert_int_equal(q.n, n);
        if (n == 0) { continue; }
        assert_true(q.entry[0].score == score[least]);
        score[q.entry[0].tensor] += 5;
        ebb__best_queue_raise_top(&q, score[q.entry[0].tensor]);
    }
    ebb__bump_fini(&bump);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_walks_with_any_keys),
        cmocka_unit_test(test_a_queue_is_a_heap),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
