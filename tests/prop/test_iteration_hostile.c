/* SPDX-License-Identifier: Apache-2.0
 *
 * The finder of iterations on programs that try it, each with seeded random networks: evaluations of another length
 * each time, odd iterations at first, weights saved now and then, parts of a batch with accesses and without, sequences
 * that grow, two shapes in turn, two networks, and frees in any order.
 */
#include "iteration_fixture.h"

#define N_SEEDS 25u
#define MAX_LAYERS 12u
#define KIB ((uint64_t)1024)

static made_trace m;

typedef struct net {
    uint64_t n_layers;
    uint64_t weight_bytes[MAX_LAYERS], output_bytes[MAX_LAYERS];
    uint64_t weights[MAX_LAYERS], kept[MAX_LAYERS];
    bool tells_accesses, tells_steps;
    bool shuffles; /* what dies at the end of an iteration dies in any order */
} net;

static ebb_rng rng;

static uint64_t below(uint64_t n) {
    return ebb__rng_below(&rng, n);
}

static void touch(const net *t, ebb_trace_kind kind, uint64_t block) {
    if (t->tells_accesses) { made_touch(&m, kind, block); }
}

static void drop(uint64_t block) {
    made_touch(&m, EBB_TRACE_FREE, block);
}

static void begin_step(const net *t, uint64_t op) {
    if (t->tells_steps) {
        made_add(&m, &(ebb_trace_event){.kind = EBB_TRACE_STEP_BEGIN, .op = (uint32_t)op, .name = (uint32_t)op});
    }
}

static void end_step(const net *t) {
    if (t->tells_steps) { made_add(&m, &(ebb_trace_event){.kind = EBB_TRACE_STEP_END}); }
}

static net make_net(bool tells_accesses) {
    net t = {.n_layers = 3 + below(MAX_LAYERS - 3), .tells_accesses = tells_accesses};
    for (uint64_t l = 0; l < t.n_layers; l++) {
        t.weight_bytes[l] = (1 + below(8)) * KIB;
        t.output_bytes[l] = (8 + below(24)) * KIB;
        t.weights[l] = made_alloc(&m, t.weight_bytes[l]);
    }
    return t;
}

static void play_forward(net *t, uint64_t scale, bool keeps) {
    for (uint64_t l = 0; l < t->n_layers; l++) {
        begin_step(t, 1 + l);
        t->kept[l] = made_alloc(&m, scale * t->output_bytes[l]);
        touch(t, EBB_TRACE_READ, t->weights[l]);
        touch(t, EBB_TRACE_WRITE, t->kept[l]);
        end_step(t);
        if (!keeps && l > 0) { drop(t->kept[l - 1]); }
    }
    if (!keeps) { drop(t->kept[t->n_layers - 1]); }
}

static void drop_all(const net *t, uint64_t *blocks) {
    for (uint64_t n = t->n_layers; n > 0; n--) {
        const uint64_t i = t->shuffles ? below(n) : n - 1;
        drop(blocks[i]);
        blocks[i] = blocks[n - 1];
    }
}

static void play_backward(net *t, uint64_t scale, uint64_t *gradients, bool makes) {
    for (uint64_t l = t->n_layers; l-- > 0;) {
        begin_step(t, 100 + l);
        const uint64_t error = made_alloc(&m, scale * t->output_bytes[l] + 8);
        if (makes) { gradients[l] = made_alloc(&m, t->weight_bytes[l]); }
        touch(t, EBB_TRACE_READ, t->kept[l]);
        touch(t, EBB_TRACE_WRITE, gradients[l]);
        end_step(t);
        drop(error);
        drop(t->kept[l]);
    }
}

static void play_iteration(net *t, uint64_t scale, uint64_t n_parts) {
    uint64_t gradients[MAX_LAYERS];
    for (uint64_t p = 0; p < n_parts; p++) {
        play_forward(t, scale, true);
        play_backward(t, scale, gradients, p == 0);
    }
    for (uint64_t l = 0; l < t->n_layers; l++) {
        begin_step(t, 200 + l);
        touch(t, EBB_TRACE_READ, gradients[l]);
        touch(t, EBB_TRACE_WRITE, t->weights[l]);
        end_step(t);
    }
    drop_all(t, gradients);
}

static void play_save(net *t) {
    uint64_t copies[MAX_LAYERS];
    for (uint64_t l = 0; l < t->n_layers; l++) { copies[l] = made_alloc(&m, t->weight_bytes[l]); }
    drop_all(t, copies);
}

/* Without accesses, gradients alone tell of training. */
static double bound_of(const net *t) {
    return t->tells_accesses ? MADE_SURE : MADE_LIKELY;
}

static void begin(uint64_t seed, uint64_t stream) {
    print_message("seed %llu\n", (unsigned long long)seed);
    ebb__rng_init(&rng, seed, stream);
    made_init(&m);
}

static void check(uint64_t first, uint64_t length, uint64_t count, double bound) {
    const ebb_iteration found = made_find(&m);
    made_check_parts(&m, &found);
    assert_true(found.found);
    assert_int_equal(found.length_events, length);
    assert_int_equal(found.first_event, first);
    assert_int_equal(found.count, count);
    made_check_confidence(&m, &found, bound);
    made_fini(&m);
}

static void evaluations_may_have_any_length(void **state) {
    (void)state;
    for (uint64_t seed = 0; seed < N_SEEDS; seed++) {
        begin(seed, 10);
        net t = make_net(seed % 2 == 0);
        const uint64_t first = m.n_events;
        play_iteration(&t, 2, 1);
        const uint64_t length = m.n_events - first;
        for (uint64_t i = 1; i < 35; i++) {
            for (uint64_t n = i % 7 == 0 ? 1 + below(9) : 0; n > 0; n--) { play_forward(&t, 1, false); }
            play_iteration(&t, 2, 1);
        }
        check(first, length, 35, bound_of(&t));
    }
}

static void odd_ones_at_first_are_warm_up(void **state) {
    (void)state;
    for (uint64_t seed = 0; seed < N_SEEDS; seed++) {
        begin(seed, 11);
        net t = make_net(seed % 2 == 0);
        const uint64_t n_odd = 3;
        for (uint64_t i = 0; i < n_odd; i++) {
            made_alloc(&m, 100 + below(1000)); /* which stays */
            play_iteration(&t, 3 + i, 1);
            made_alloc(&m, 100 + below(1000));
        }
        const uint64_t first = m.n_events;
        for (uint64_t i = 0; i < 6; i++) { play_iteration(&t, 2, 1); }
        const bool has_most = t.n_layers >= 2 * n_odd; /* of what stays, gradients */
        check(first, (m.n_events - first) / 6, 6, has_most || t.tells_accesses ? bound_of(&t) : MADE_UNLIKELY);
    }
}

static void saved_weights_are_no_part(void **state) {
    (void)state;
    for (uint64_t seed = 0; seed < N_SEEDS; seed++) {
        begin(seed, 12);
        net t = make_net(seed % 2 == 0);
        const uint64_t first = m.n_events;
        play_iteration(&t, 1, 1);
        const uint64_t length = m.n_events - first;
        for (uint64_t i = 1; i < 250; i++) {
            if (i % 100 == 0) { play_save(&t); }
            play_iteration(&t, 1, 1);
        }
        check(first, length, 250, bound_of(&t));
    }
}

/* Parts are told from iterations by what they write. */
static void parts_are_one_iteration(void **state) {
    (void)state;
    for (uint64_t seed = 0; seed < N_SEEDS; seed++) {
        begin(seed, 13);
        net t = make_net(true);
        const uint64_t first = m.n_events;
        for (uint64_t i = 0; i < 5; i++) { play_iteration(&t, 2, 4); }
        check(first, (m.n_events - first) / 5, 5, bound_of(&t));
    }
}

/* A part that adds to gradients makes them anew first, so that only its peak tells the first part from the others. */
static void play_adding_part(net *t, uint64_t *sums, bool is_first) {
    play_forward(t, 2, true);
    for (uint64_t l = t->n_layers; l-- > 0;) {
        const uint64_t error = made_alloc(&m, 2 * t->output_bytes[l] + 8),
                       gradient = made_alloc(&m, t->weight_bytes[l]);
        if (is_first) {
            sums[l] = gradient;
        } else {
            drop(gradient);
        }
        drop(error);
        drop(t->kept[l]);
    }
}

static void parts_are_told_by_their_peaks(void **state) {
    (void)state;
    for (uint64_t seed = 0; seed < N_SEEDS; seed++) {
        begin(seed, 17);
        net t = make_net(false);
        const uint64_t first = m.n_events;
        for (uint64_t i = 0; i < 5; i++) {
            uint64_t sums[MAX_LAYERS];
            for (uint64_t p = 0; p < 4; p++) { play_adding_part(&t, sums, p == 0); }
            drop_all(&t, sums);
        }
        check(first, (m.n_events - first) / 5, 5, bound_of(&t));
    }
}

/* Sizes never come again; the steps do. */
static void sequences_may_grow(void **state) {
    (void)state;
    for (uint64_t seed = 0; seed < N_SEEDS; seed++) {
        begin(seed, 14);
        net t = make_net(true);
        t.tells_steps = true;
        const uint64_t first = m.n_events;
        for (uint64_t i = 0; i < 8; i++) { play_iteration(&t, 4 + i, 1); }
        check(first, (m.n_events - first) / 8, 8, MADE_LIKELY); /* steps with phases and no update */
    }
}

/* What repeats is one of each. */
static void two_in_turn_are_one(void **state) {
    (void)state;
    for (uint64_t seed = 0; seed < 2 * N_SEEDS; seed++) {
        begin(seed, 15);
        const bool is_gan = seed < N_SEEDS;
        net t = make_net(seed % 2 == 0), other = is_gan ? make_net(seed % 2 == 0) : t;
        const uint64_t first = m.n_events;
        for (uint64_t i = 0; i < 6; i++) {
            play_iteration(&t, 2, 1);
            play_iteration(&other, 3, 1);
        }
        check(first, (m.n_events - first) / 6, 6, bound_of(&t));
    }
}

/* The same network after one layer more, as a critic is run after the generator. */
static net with_layer(const net *of) {
    net t = *of;
    t.weight_bytes[t.n_layers] = (1 + below(8)) * KIB;
    t.output_bytes[t.n_layers] = (8 + below(24)) * KIB;
    t.weights[t.n_layers] = made_alloc(&m, t.weight_bytes[t.n_layers]);
    t.n_layers++;
    return t;
}

/* One network steps several times for each step of the other: memory alone does not tell whether the other one's pass
 * is part of an iteration, so that the answer is the whole, and unsure. */
static void unequal_passes_are_one(void **state) {
    (void)state;
    for (uint64_t seed = 0; seed < 2 * N_SEEDS; seed++) {
        begin(seed, 18);
        net critic = make_net(false), both = with_layer(&critic);
        const uint64_t first = m.n_events, n_steps = 2 + seed % 5;
        for (uint64_t i = 0; i < 6; i++) {
            for (uint64_t s = 0; s < n_steps; s++) { play_iteration(&critic, 2, 1); }
            play_iteration(&both, 1, 1);
        }
        check(first, (m.n_events - first) / 6, 6, MADE_LIKELY);
    }
}

static void frees_may_come_in_any_order(void **state) {
    (void)state;
    for (uint64_t seed = 0; seed < N_SEEDS; seed++) {
        begin(seed, 16);
        net t = make_net(seed % 2 == 0);
        t.shuffles = true;
        const uint64_t first = m.n_events;
        for (uint64_t i = 0; i < 12; i++) { play_iteration(&t, 2, 1); }
        check(first, (m.n_events - first) / 12, 12, bound_of(&t));
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(evaluations_may_have_any_length),
        cmocka_unit_test(odd_ones_at_first_are_warm_up),
        cmocka_unit_test(saved_weights_are_no_part),
        cmocka_unit_test(parts_are_one_iteration),
        cmocka_unit_test(parts_are_told_by_their_peaks),
        cmocka_unit_test(sequences_may_grow),
        cmocka_unit_test(two_in_turn_are_one),
        cmocka_unit_test(unequal_passes_are_one),
        cmocka_unit_test(frees_may_come_in_any_order),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
