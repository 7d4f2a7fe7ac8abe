/* SPDX-License-Identifier: Apache-2.0
 *
 * The finder of iterations on traces whose iteration is known: training of networks with equal layers in all its
 * variations (warm-up, evaluations, parts of a batch, leaks, what is told and what is not), random programs, and
 * traces without an iteration.
 */
#include "iteration_fixture.h"

#define MAX_LAYERS 32u
#define KIB ((uint64_t)1024)

static made_trace m;

static uint64_t below(ebb_rng *rng, uint64_t n) {
    return ebb__rng_below(rng, n);
}

/* ---- a network of equal layers in training ------------------------------------------------------ */

typedef struct training {
    uint64_t n_layers;
    bool tells_accesses;
    bool keeps_gradients; /* from one iteration to the next */
    bool recomputes;      /* layers leave only their input behind */
    uint64_t n_parts;     /* of a batch */
    uint64_t n_temps;     /* of a layer */
    uint64_t n_loops;     /* how often a large one comes and goes, at three places */
    uint64_t leak_bytes;  /* an iteration */
    bool is_odd;          /* something is done that is not usually done */
    uint64_t weights[MAX_LAYERS], gradients[MAX_LAYERS], momenta[MAX_LAYERS];
    bool has_gradients, has_momenta;
    uint64_t kept[MAX_LAYERS];
} training;

static void touch(const training *t, ebb_trace_kind kind, uint64_t block) {
    if (t->tells_accesses) { made_touch(&m, kind, block); }
}

static void drop(uint64_t block) {
    made_touch(&m, EBB_TRACE_FREE, block);
}

static void play_temps(const training *t, uint64_t bytes) {
    for (uint64_t i = 0; i < t->n_temps; i++) {
        uint64_t temp = made_alloc(&m, bytes << i);
        touch(t, EBB_TRACE_WRITE, temp);
        drop(temp);
    }
}

static void play_layer(training *t, uint64_t layer, uint64_t input, uint64_t batch) {
    uint64_t output = made_alloc(&m, batch * 64 * KIB);
    touch(t, EBB_TRACE_READ, input);
    touch(t, EBB_TRACE_READ, t->weights[layer]);
    play_temps(t, batch * 16 * KIB);
    touch(t, EBB_TRACE_WRITE, output);
    t->kept[layer] = output;
}

static void play_loop(const training *t, uint64_t bytes) {
    for (uint64_t i = 0; i < t->n_loops; i++) { drop(made_alloc(&m, bytes)); }
}

static void play_part(training *t, uint64_t part) {
    uint64_t input = made_alloc(&m, 128 * KIB);
    play_loop(t, 2048 * KIB);
    for (uint64_t l = 0; l < t->n_layers; l++) { play_layer(t, l, l == 0 ? input : t->kept[l - 1], 2); }
    play_loop(t, 1024 * KIB);
    uint64_t loss = made_alloc(&m, 4), error = made_alloc(&m, 128 * KIB);
    touch(t, EBB_TRACE_WRITE, loss);
    for (uint64_t l = t->n_layers; l-- > 0;) {
        if (t->recomputes) { play_temps(t, 512 * KIB); }
        if (part == 0 && !t->has_gradients) { t->gradients[l] = made_alloc(&m, 32 * KIB); }
        uint64_t next = made_alloc(&m, 128 * KIB);
        touch(t, EBB_TRACE_READ, error);
        touch(t, EBB_TRACE_READ, t->weights[l]);
        touch(t, EBB_TRACE_WRITE, t->gradients[l]);
        touch(t, EBB_TRACE_WRITE, next);
        drop(error);
        drop(t->kept[l]);
        error = next;
    }
    t->has_gradients = true;
    drop(error);
    drop(loss);
    drop(input);
}

static void play_update(training *t) {
    for (uint64_t l = 0; l < t->n_layers; l++) {
        if (!t->has_momenta) { t->momenta[l] = made_alloc(&m, 32 * KIB); }
        uint64_t temp = made_alloc(&m, 32 * KIB);
        touch(t, EBB_TRACE_READ, t->gradients[l]);
        touch(t, EBB_TRACE_WRITE, t->momenta[l]);
        touch(t, EBB_TRACE_WRITE, t->weights[l]);
        drop(temp);
    }
    t->has_momenta = true;
    play_loop(t, 3072 * KIB);
    for (uint64_t l = 0; !t->keeps_gradients && l < t->n_layers; l++) { drop(t->gradients[l]); }
    t->has_gradients = t->keeps_gradients;
}

static void play_iteration(training *t) {
    if (t->leak_bytes > 0) { made_alloc(&m, t->leak_bytes); }
    for (uint64_t p = 0; p < t->n_parts; p++) { play_part(t, p); }
    if (t->is_odd) { drop(made_alloc(&m, 77)); }
    play_update(t);
}

static void play_evaluation(training *t, uint64_t n_batches) {
    for (uint64_t b = 0; b < n_batches; b++) {
        uint64_t input = made_alloc(&m, 192 * KIB);
        for (uint64_t l = 0; l < t->n_layers; l++) {
            play_layer(t, l, input, 3);
            drop(input);
            input = t->kept[l];
        }
        drop(input);
    }
}

static void play_setup(training *t) {
    for (uint64_t l = 0; l < t->n_layers; l++) {
        t->weights[l] = made_alloc(&m, 32 * KIB);
        touch(t, EBB_TRACE_WRITE, t->weights[l]);
    }
}

typedef struct expectation {
    uint64_t first, length, count;
} expectation;

static void check(const expectation *want, double bound) {
    ebb_iteration found = made_find(&m);
    made_check_parts(&m, &found);
    assert_true(found.found);
    assert_int_equal(found.source, EBB_ITERATION_FROM_EVENTS);
    assert_int_equal(found.length_events, want->length);
    assert_int_equal(found.first_event, want->first);
    assert_int_equal(found.count, want->count);
    made_check_confidence(&m, &found, bound);
}

/* Without accesses, gradients alone tell of training. */
static double bound_of(const training *t) {
    return t->tells_accesses ? MADE_SURE : MADE_LIKELY;
}

static training plain(uint64_t n_layers, bool tells_accesses) {
    return (training){.n_layers = n_layers, .tells_accesses = tells_accesses, .n_parts = 1, .n_temps = 2};
}

/* Setup, a first iteration that makes the momenta, and n regular ones. */
static expectation play_training(training *t, uint64_t n) {
    expectation want = {.count = n};
    play_setup(t);
    play_iteration(t);
    want.first = m.n_events;
    for (uint64_t i = 0; i < n; i++) { play_iteration(t); }
    want.length = (m.n_events - want.first) / n;
    return want;
}

/* In the middle of an iteration. */
static void stop_early(training *t) {
    const uint64_t input = made_alloc(&m, 128 * KIB);
    for (uint64_t l = 0; l < t->n_layers / 2; l++) { play_layer(t, l, l == 0 ? input : t->kept[l - 1], 2); }
}

static void equal_layers_are_no_iterations(void **state) {
    (void)state;
    for (int variant = 0; variant < 16; variant++) {
        for (uint64_t n = 2; n < 6; n++) {
            made_init(&m);
            training t = plain(24, (variant & 1) != 0);
            t.keeps_gradients = (variant & 2) != 0;
            t.recomputes = (variant & 4) != 0;
            expectation want = play_training(&t, n);
            if ((variant & 8) != 0) { stop_early(&t); }
            check(&want, bound_of(&t));
            made_fini(&m);
        }
    }
}

/* As of convolutions whose workspaces are as large as all activations. */
static void loops_are_no_iterations(void **state) {
    (void)state;
    for (int variant = 0; variant < 4; variant++) {
        made_init(&m);
        training t = plain(6, (variant & 1) != 0);
        t.keeps_gradients = (variant & 2) != 0;
        t.n_loops = 60;
        expectation want = play_training(&t, 5);
        check(&want, bound_of(&t));
        made_fini(&m);
    }
}

static void one_iteration_is_not_found(void **state) {
    (void)state;
    for (int variant = 0; variant < 8; variant++) {
        made_init(&m);
        training t = plain(24, (variant & 1) != 0);
        t.keeps_gradients = (variant & 2) != 0;
        t.recomputes = (variant & 4) != 0;
        play_setup(&t);
        play_iteration(&t);
        assert_false(made_find(&m).found);
        made_fini(&m);
    }
}

static void evaluations_do_not_belong(void **state) {
    (void)state;
    for (int variant = 0; variant < 4; variant++) {
        for (uint64_t every = 2; every < 6; every++) {
            made_init(&m);
            training t = plain(12, (variant & 1) != 0);
            t.keeps_gradients = (variant & 2) != 0;
            expectation want = play_training(&t, every);
            for (uint64_t i = 0; i < 3; i++) {
                play_evaluation(&t, 7);
                for (uint64_t k = 0; k < every; k++) { play_iteration(&t); }
            }
            want.count = 4 * every;
            check(&want, bound_of(&t));
            size_t n = 0, n_between = 0;
            const ebb_iteration_part *parts = ebb_iteration_finder_parts(m.finder, &n);
            for (size_t i = 0; i < n; i++) { n_between += parts[i].kind == EBB_ITERATION_PART_BETWEEN; }
            assert_int_equal(n_between, 3);
            made_fini(&m);
        }
    }
}

/* With accesses told, for without them nothing tells a part from an iteration. */
static void parts_of_a_batch_are_no_iterations(void **state) {
    (void)state;
    for (int keeps = 0; keeps < 2; keeps++) {
        made_init(&m);
        training t = plain(12, true);
        t.keeps_gradients = keeps != 0;
        t.n_parts = 4;
        expectation want = play_training(&t, 5);
        check(&want, bound_of(&t));
        made_fini(&m);
    }
}

static void a_leak_is_no_other_iteration(void **state) {
    (void)state;
    for (int variant = 0; variant < 2; variant++) {
        made_init(&m);
        training t = plain(12, variant != 0);
        t.leak_bytes = 5 * KIB;
        expectation want = play_training(&t, 20);
        check(&want, bound_of(&t));
        made_fini(&m);
    }
}

static void an_irregular_one_is_counted(void **state) {
    (void)state;
    made_init(&m);
    training t = plain(8, true);
    expectation want = play_training(&t, 4);
    uint64_t begin = m.n_events;
    t.is_odd = true;
    play_iteration(&t);
    t.is_odd = false;
    uint64_t length = m.n_events - begin;
    for (uint64_t i = 0; i < 4; i++) { play_iteration(&t); }
    want.count = 9;
    check(&want, bound_of(&t));
    size_t n = 0;
    const ebb_iteration_part *parts = ebb_iteration_finder_parts(m.finder, &n);
    assert_int_equal(n, 10);
    assert_int_equal(parts[5].first_event, begin);
    assert_int_equal(parts[5].n_events, length);
    assert_true(parts[5].regularity > 0.9 && parts[5].regularity < 1.0);
    made_fini(&m);
}

/* ---- random programs ---------------------------------------------------------------------------- */

enum { MAX_PROGRAM = 400 };

typedef struct random_program {
    size_t n;
    uint32_t kind[MAX_PROGRAM];
    uint64_t block[MAX_PROGRAM]; /* its own, or a persistent one */
    uint64_t size[MAX_PROGRAM];
} random_program;

static void make_program(ebb_rng *rng, random_program *p, uint64_t n_persistent, bool tells_accesses) {
    uint64_t live[MAX_PROGRAM], n_live = 0, n_own = 0;
    const size_t n_wanted = 6 + below(rng, 150);
    *p = (random_program){.n = 0};
    while (p->n < n_wanted || n_live > 0) {
        const bool may_grow = p->n < n_wanted;
        uint64_t what = below(rng, tells_accesses ? 4 : 2);
        if (n_live == 0) { what = may_grow ? 0 : 1; }
        if (what == 0 && may_grow) {
            p->kind[p->n] = EBB_TRACE_ALLOC;
            p->size[p->n] = (1 + below(rng, 6)) * KIB;
            p->block[p->n++] = n_persistent + n_own;
            live[n_live++] = n_persistent + n_own++;
        } else if (what == 1) {
            const uint64_t i = below(rng, n_live);
            p->kind[p->n] = EBB_TRACE_FREE;
            p->block[p->n++] = live[i];
            live[i] = live[--n_live];
        } else {
            p->kind[p->n] = what == 2 ? EBB_TRACE_READ : EBB_TRACE_WRITE;
            const bool own = below(rng, 2) == 0 || n_persistent == 0;
            p->block[p->n++] = own ? live[below(rng, n_live)] : below(rng, n_persistent);
        }
    }
}

/* Whether it writes to a block that stays. It makes none as large as those. */
static bool writes(const random_program *p, uint64_t n_persistent) {
    for (size_t i = 0; i < p->n; i++) {
        if (p->kind[i] == EBB_TRACE_WRITE && p->block[i] < n_persistent) { return true; }
    }
    return false;
}

static void run_program(const random_program *p, uint64_t n_persistent) {
    uint64_t number[MAX_PROGRAM + 8];
    for (size_t i = 0; i < n_persistent; i++) { number[i] = i; }
    for (size_t i = 0; i < p->n; i++) {
        if (p->kind[i] == EBB_TRACE_ALLOC) {
            number[p->block[i]] = made_alloc(&m, p->size[i]);
        } else {
            made_touch(&m, (ebb_trace_kind)p->kind[i], number[p->block[i]]);
        }
    }
}

static void random_programs_have_their_length(void **state) {
    (void)state;
    for (uint64_t seed = 0; seed < 400; seed++) {
        ebb_rng rng;
        random_program p;
        ebb__rng_init(&rng, seed, 1);
        print_message("seed %llu\n", (unsigned long long)seed);
        made_init(&m);
        const uint64_t n_persistent = below(&rng, 6), n = 4 + below(&rng, 20);
        for (uint64_t i = 0; i < n_persistent; i++) { made_alloc(&m, 8 * KIB + i); }
        make_program(&rng, &p, n_persistent, seed % 2 == 0);
        uint64_t base = made_alloc(&m, 7); /* a size of its own: the program does not begin before */
        expectation want = {.first = m.n_events, .length = p.n, .count = n};
        for (uint64_t i = 0; i < n; i++) { run_program(&p, n_persistent); }
        drop(base);
        check(&want, writes(&p, n_persistent) ? MADE_SURE : MADE_UNLIKELY);
        made_fini(&m);
    }
}

/* ---- no iteration ------------------------------------------------------------------------------- */

static void play_noise(ebb_rng *rng, uint64_t n_events, uint64_t n_sizes) {
    static uint64_t live[1u << 16];
    uint64_t n_live = 0;
    for (uint64_t i = 0; i < n_events; i++) {
        if (n_live == 0 || below(rng, 2) == 0) {
            live[n_live++] = made_alloc(&m, (1 + below(rng, n_sizes)) * KIB);
        } else {
            const uint64_t k = below(rng, n_live);
            drop(live[k]);
            live[k] = live[--n_live];
        }
    }
}

static void noise_has_none(void **state) {
    (void)state;
    for (uint64_t seed = 0; seed < 60; seed++) {
        ebb_rng rng;
        ebb__rng_init(&rng, seed, 2);
        print_message("seed %llu\n", (unsigned long long)seed);
        made_init(&m);
        play_noise(&rng, 100 + below(&rng, 20000), 1 + below(&rng, 20));
        assert_false(made_find(&m).found);
        made_fini(&m);
    }
}

/* A program of which each event may be another one, half of the time. */
static void near_periodic_noise_has_none(void **state) {
    (void)state;
    for (uint64_t seed = 0; seed < 60; seed++) {
        ebb_rng rng;
        ebb__rng_init(&rng, seed, 3);
        print_message("seed %llu\n", (unsigned long long)seed);
        made_init(&m);
        const uint64_t length = 20 + below(&rng, 300);
        uint64_t sizes[320];
        for (uint64_t i = 0; i < length; i++) { sizes[i] = 1 + below(&rng, 50); }
        for (uint64_t i = 0; i < 40 * length; i++) {
            const bool other = below(&rng, 2) == 0;
            drop(made_alloc(&m, other ? 1 + below(&rng, 50) : sizes[i % length]));
        }
        assert_false(made_find(&m).found);
        made_fini(&m);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(equal_layers_are_no_iterations),
        cmocka_unit_test(loops_are_no_iterations),
        cmocka_unit_test(one_iteration_is_not_found),
        cmocka_unit_test(evaluations_do_not_belong),
        cmocka_unit_test(parts_of_a_batch_are_no_iterations),
        cmocka_unit_test(a_leak_is_no_other_iteration),
        cmocka_unit_test(an_irregular_one_is_counted),
        cmocka_unit_test(random_programs_have_their_length),
        cmocka_unit_test(noise_has_none),
        cmocka_unit_test(near_periodic_noise_has_none),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
