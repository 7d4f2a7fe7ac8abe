/* SPDX-License-Identifier: Apache-2.0
 *
 * Following a plan: which calls need the books, how frees find their order, what the books say after many rounds.
 */
#include "pool/pool_priv.h"
#include "support.h"

#define N 200u
#define NO_LIMIT ((uint64_t)1 << 40)

/* Follows as a pool does. */
typedef struct follower {
    ebb_pool_replay *r;
    const ebb_pool_event *next; /* NULL: the books are kept */
    unsigned n_slow;            /* calls that did not just follow */
    uint64_t held[N];           /* start + 1 of the requests that live */
} follower;

static void go_round(follower *f) {
    if (f->next != &f->r->events[f->r->n_events]) { return; }
    f->next = f->r->events;
    f->r->n_rounds++;
}

static void halt(follower *f) {
    if (f->next != NULL) { ebb__pool_replay_catch_up(f->r, f->next); }
    f->next = NULL;
    f->n_slow++;
}

static void go_on(follower *f) {
    assert_true(ebb__pool_replay_is_valid(f->r));
    f->next = ebb__pool_replay_get_next(f->r);
}

static uint64_t take(follower *f, uint64_t n) {
    uint64_t start = EBB_POOL_NOWHERE;
    go_round(f);
    if (f->next != NULL && ebb__pool_follow_alloc(&f->next, n, 0, NO_LIMIT, &start)) { return start; }
    halt(f);
    (void)ebb__pool_replay_search(f->r, n, &start);
    go_on(f);
    return start;
}

static bool give(follower *f, uint64_t start) {
    go_round(f);
    if (f->next != NULL && ebb__pool_follow_free(&f->next, start)) { return true; }
    halt(f);
    uint64_t note = 0;
    const bool gave = ebb__pool_replay_give(f->r, start, &note) > 0;
    go_on(f);
    return gave;
}

/* Requests of distinct sizes, each at a place of its own. */
static follower open_plan(const uint64_t spans[N]) {
    ebb_pool_planned requests[N];
    follower f = {0};
    for (size_t i = 0; i < N; i++) {
        requests[i] = (ebb_pool_planned){.n = 10 + i, .span = spans[i], .start = 1000 * i};
    }
    assert_int_equal(ebb__pool_replay_create(NULL, requests, N, &f.r), EBB_OK);
    f.next = ebb__pool_replay_get_next(f.r);
    return f;
}

static void close_plan(follower *f) {
    ebb__pool_replay_destroy(f->r);
}

/* An iteration in which request i is freed before request i + spans[i], what goes together in an order that seed
 * tells (0: in that of the plan); how many calls did not just follow. */
static unsigned iterate(follower *f, const uint64_t spans[N], unsigned seed) {
    const unsigned n_slow_before = f->n_slow;
    for (size_t i = 0; i < N; i++) {
        for (size_t k = 0; k < N; k++) {
            const size_t dead = (k * (seed > 0 ? 7 : 1) + seed) % N;
            if ((dead + spans[dead]) % N != i || f->held[dead] == 0) { continue; }
            assert_true(give(f, f->held[dead] - 1));
            f->held[dead] = 0;
        }
        assert_int_equal(f->held[i], 0);
        f->held[i] = take(f, 10 + i) + 1;
        assert_int_equal(f->held[i], 1000 * i + 1);
    }
    return f->n_slow - n_slow_before;
}

static void draw_spans(uint64_t seed, uint64_t most, uint64_t spans[N]) {
    ebb_rng rng;
    ebb__rng_init(&rng, seed, 3);
    for (size_t i = 0; i < N; i++) { spans[i] = 1 + ebb__rng_below(&rng, most); }
}

static void test_order_of_frees(void **state) {
    (void)state;
    uint64_t spans[N];
    for (size_t i = 0; i < N; i++) { spans[i] = i < N / 2 ? N / 2 - i : N - i; } /* half of them go together */
    follower f = open_plan(spans);
    (void)iterate(&f, spans, 1);
    (void)iterate(&f, spans, 1);
    assert_int_equal(iterate(&f, spans, 1), 0);
    assert_true(iterate(&f, spans, 5) > 0); /* another order, */
    (void)iterate(&f, spans, 5);
    assert_int_equal(iterate(&f, spans, 5), 0); /* which it is from then on */
    close_plan(&f);
}

/* Blocks that go before they must are awaited there from then on, and later again when they stay for longer. */
static void test_early_frees(void **state) {
    (void)state;
    for (unsigned seed = 0; seed < 40; seed++) {
        uint64_t spans[N], early[N];
        draw_spans(seed, 1 + seed % 20, spans);
        for (size_t i = 0; i < N; i++) { early[i] = spans[i] > 3 ? spans[i] - i % 4 : 1; }
        follower f = open_plan(spans);
        for (unsigned k = 0; k < 3; k++) { (void)iterate(&f, early, seed); }
        assert_true(iterate(&f, early, seed) <= 3 * 3); /* frees do not move over the end of the iteration */
        for (unsigned k = 0; k < 3; k++) { (void)iterate(&f, spans, seed); }
        assert_true(iterate(&f, spans, seed) <= 3 * 3);
        close_plan(&f);
    }
}

/* The knowledge of calls that were followed without the books. */
static void test_catches_up(void **state) {
    (void)state;
    uint64_t spans[N], n = 0, live = 0, peak = 0;
    for (size_t i = 0; i < N; i++) { spans[i] = i < N - 10 ? 1 : 12; } /* most lives after the end of an iteration */
    for (unsigned n_rounds = 0; n_rounds < 9; n_rounds++) {
        follower f = open_plan(spans);
        for (n = 0; n < n_rounds; n++) { (void)iterate(&f, spans, 0); }
        live = peak = 0;
        for (size_t i = 0; i < N; i++) { /* by the plan alone */
            uint64_t bytes = 0;
            for (size_t k = 0; k < N; k++) {
                if ((i + N - k) % N < spans[k] && (n_rounds > 1 || k <= i)) { bytes += 10 + k; }
            }
            live = bytes;
            peak = ebb_max_u64(peak, bytes);
        }
        halt(&f);
        assert_int_equal(f.r->n_hits, n_rounds * N);
        assert_int_equal(f.r->live_bytes, n_rounds > 0 ? live : 0);
        assert_int_equal(f.r->peak_bytes, n_rounds > 0 ? peak : 0);
        go_on(&f);
        close_plan(&f);
    }
}

/* A free of what is expected to be freed next, but was freed already or never taken. */
static void test_wrong_frees(void **state) {
    (void)state;
    uint64_t spans[N];
    for (size_t i = 0; i < N; i++) { spans[i] = i % 2 == 0 ? N / 2 : 1; }
    follower f = open_plan(spans);
    assert_false(give(&f, 1000 * (N / 2))); /* lives around the end, but is not yet */
    const uint64_t start = take(&f, 10);
    assert_true(start == 0 && take(&f, 11) == 1000);
    assert_true(give(&f, 0)); /* long before it must */
    assert_false(give(&f, 0));
    assert_true(give(&f, 1000));
    assert_false(give(&f, 1000));
    for (size_t i = 2; i <= N / 2; i++) {
        assert_false(give(&f, 0));
        if (i == N / 2) { break; }
        assert_true(take(&f, 10 + i) == 1000 * i);
        if (i % 2 == 1) { assert_true(give(&f, 1000 * i)); }
    }
    assert_true(take(&f, 10 + N / 2) == 1000 * (N / 2));
    close_plan(&f);
}

/* Requests that do not come: if it is one, the next one tells. If they are more, it is known by the second of those
 * that come where it goes on; by the fourth, if it is far. */
static void test_finds_its_place(void **state) {
    (void)state;
    uint64_t spans[N];
    for (size_t i = 0; i < N; i++) { spans[i] = 1; }
    for (size_t n_left_out = 1; n_left_out < N - 10; n_left_out++) {
        follower f = open_plan(spans);
        const size_t n_lost = n_left_out == 1 ? 0 : n_left_out < 64 ? 1 : 3;
        for (size_t i = 0; i < 5; i++) { assert_true(take(&f, 10 + i) == 1000 * i && give(&f, 1000 * i)); }
        for (size_t i = 5 + n_left_out; i < N; i++) {
            const uint64_t start = take(&f, 10 + i);
            if (i < 5 + n_left_out + n_lost) {
                assert_true(start == EBB_POOL_NOWHERE);
            } else {
                assert_true(start == 1000 * i && give(&f, start));
            }
        }
        close_plan(&f);
    }
}

/* One too many, one of another size: nothing else is lost. */
static void test_odd_requests(void **state) {
    (void)state;
    uint64_t spans[N];
    for (size_t i = 0; i < N; i++) { spans[i] = 2; }
    follower f = open_plan(spans);
    for (size_t k = 0; k < 4 * N; k++) {
        const size_t i = k % N;
        if (k % 31 == 0) { assert_true(take(&f, 9) == EBB_POOL_NOWHERE); }
        if (f.held[(i + N - 2) % N] > 0) { assert_true(give(&f, f.held[(i + N - 2) % N] - 1)); }
        f.held[(i + N - 2) % N] = 0;
        const uint64_t start = take(&f, k % 47 == 0 ? 1000 : 10 + i);
        assert_true(start == (k % 47 == 0 ? EBB_POOL_NOWHERE : 1000 * i));
        f.held[i] = start != EBB_POOL_NOWHERE ? start + 1 : 0;
    }
    close_plan(&f);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_finds_its_place), cmocka_unit_test(test_odd_requests),
        cmocka_unit_test(test_order_of_frees),  cmocka_unit_test(test_early_frees),
        cmocka_unit_test(test_catches_up),      cmocka_unit_test(test_wrong_frees),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
