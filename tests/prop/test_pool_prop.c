/* SPDX-License-Identifier: Apache-2.0
 *
 * The pool against a stream that follows an iteration and leaves it: requests left out, put in, resized and reordered,
 * frees that come late or early, jumps, other iterations. Whatever comes, no block is handed out that overlaps a live
 * one. The books of the test are an owner for every granule, and share nothing with the pool's.
 */
#include "pool/pool_priv.h"
#include "support.h"

#define GRANULE 64u
#define BASE ((uint64_t)1 << 40)
#define MAX_LIVE 512u
#define MAX_LENGTH 96u
#define N_SEEDS 250u

/* A seed. The first argument, where there is one, is another number. */
static uint64_t n_requests_a_seed = EBB_DEBUG > 0 ? 3000 : 10000;

typedef struct live_block {
    uint64_t address, n_granules;
    uint64_t dies; /* freed before this request of the stream */
} live_block;

typedef struct stream {
    ebb_rng rng;
    uint64_t seed;
    ebb_pool *pool;
    uint32_t *owner; /* [granules] */
    uint64_t n_granules;
    live_block live[MAX_LIVE];
    size_t n_live;
    uint64_t n_requests, n_refused;
    bool learns;
    ebb_pool_request requests[MAX_LENGTH];
    size_t length;
} stream;

static void fail_seed(const stream *s, const char *what) {
    fail_msg("seed %llu, request %llu: %s (%s)", (unsigned long long)s->seed, (unsigned long long)s->n_requests, what,
             ebb_last_error());
}

static void own(stream *s, uint64_t address, uint64_t n, uint32_t from, uint32_t to) {
    const uint64_t first = (address - BASE) / GRANULE;
    if (address < BASE || address % GRANULE != 0 || first + n > s->n_granules) { fail_seed(s, "outside of the arena"); }
    for (uint64_t g = first; g < first + n; g++) {
        if (s->owner[g] != from) { fail_seed(s, "a live block was handed out"); }
        s->owner[g] = to;
    }
}

static void request(stream *s, uint64_t size_bytes, uint64_t span) {
    uint64_t address = 0;
    s->n_requests++;
    if (s->n_live == MAX_LIVE) { return; }
    const ebb_status st = ebb_pool_alloc(s->pool, size_bytes, &address);
    if (st == EBB_E_NO_FIT) {
        s->n_refused++;
        return;
    }
    if (st != EBB_OK) { fail_seed(s, "a request failed"); }
    const uint64_t n = size_bytes == 0 ? 1 : (size_bytes + GRANULE - 1) / GRANULE;
    own(s, address, n, 0, 1);
    s->live[s->n_live++] = (live_block){address, n, s->n_requests + span};
}

static void release(stream *s, size_t idx) {
    const live_block b = s->live[idx];
    own(s, b.address, b.n_granules, 1, 0);
    if (ebb_pool_free(s->pool, b.address) != EBB_OK) { fail_seed(s, "a free failed"); }
    s->live[idx] = s->live[--s->n_live];
}

/* What is due; now and then something stays for longer, or goes before. */
static void release_due(stream *s, bool wild) {
    for (size_t i = s->n_live; i-- > 0;) {
        const bool due = s->live[i].dies <= s->n_requests + 1;
        if (wild && ebb__rng_below(&s->rng, due ? 20 : 200) == 0) {
            if (!due) { release(s, i); }
        } else if (due) {
            release(s, i);
        }
    }
}

static void draw_iteration(stream *s) {
    const uint64_t n_sizes = 1 + ebb__rng_below(&s->rng, 12);
    s->length = 1 + ebb__rng_below(&s->rng, MAX_LENGTH);
    for (size_t i = 0; i < s->length; i++) {
        s->requests[i].size_bytes = (1 + ebb__rng_below(&s->rng, n_sizes)) * 97 % 1000;
        s->requests[i].span = 1 + ebb__rng_below(&s->rng, ebb__rng_below(&s->rng, 4) == 0 ? s->length + 3 : 6);
    }
}

/* One request of the iteration, or a mismatch of some kind. Returns the next place. */
static size_t follow(stream *s, size_t at, bool wild) {
    ebb_pool_request r = s->requests[at];
    if (wild && ebb__rng_below(&s->rng, 8) == 0) {
        switch (ebb__rng_below(&s->rng, 6)) {
        case 0: return (at + 1) % s->length;
        case 1: r.size_bytes += GRANULE * ebb__rng_below(&s->rng, 9); break;
        case 2: request(s, ebb__rng_below(&s->rng, 2000), 1 + ebb__rng_below(&s->rng, 40)); break;
        case 3: return ebb__rng_below(&s->rng, s->length);
        case 4: r.span += ebb__rng_below(&s->rng, 2 * s->length); break;
        case 5: r = s->requests[(at + 1) % s->length]; break;
        }
    }
    release_due(s, wild);
    request(s, r.size_bytes, r.span);
    return (at + 1) % s->length;
}

static void open_stream(stream *s, uint64_t seed, const ebb_mem *mem) {
    *s = (stream){.seed = seed};
    ebb__rng_init(&s->rng, seed, 77);
    s->n_granules = 200 + ebb__rng_below(&s->rng, 3000);
    s->owner = calloc(s->n_granules, sizeof *s->owner);
    ebb_pool_options options = EBB_POOL_OPTIONS_INIT;
    options.mem = mem;
    options.base = BASE;
    options.capacity_bytes = s->n_granules * GRANULE + ebb__rng_below(&s->rng, GRANULE);
    options.alignment_bytes = GRANULE;
    options.learns = s->learns = seed % 2 == 0;
    options.locked = seed % 3 == 0;
    assert_int_equal(ebb_pool_create(&options, &s->pool), EBB_OK);
    draw_iteration(s);
}

static void close_stream(stream *s) {
    while (s->n_live > 0) { release(s, s->n_live - 1); }
    ebb_pool_stats stats = {.size_bytes = sizeof stats};
    assert_int_equal(ebb_pool_get_stats(s->pool, &stats), EBB_OK);
    assert_true(stats.live_bytes == 0);
    ebb_pool_destroy(s->pool);
    free(s->owner);
}

/* What lives may leave no room. */
static void plan(stream *s) {
    const ebb_status st = ebb_pool_plan(s->pool, s->requests, s->length, NULL);
    if (st != EBB_OK && st != EBB_E_NO_FIT) { fail_seed(s, "a plan failed"); }
}

static void test_mismatches(void **state) {
    (void)state;
    uint64_t n_hits = 0, n_mismatches = 0, n_plans = 0, n_drops = 0;
    for (uint64_t seed = 0; seed < N_SEEDS; seed++) {
        stream s;
        open_stream(&s, seed, NULL);
        size_t at = 0;
        if (!s.learns) { plan(&s); }
        while (s.n_requests < n_requests_a_seed) {
            at = follow(&s, at, s.n_requests % 1000 > 500);
            if (ebb__rng_below(&s.rng, 1500) != 0) { continue; }
            draw_iteration(&s);
            at = 0;
            if (!s.learns) { plan(&s); }
        }
        ebb_pool_stats stats = {.size_bytes = sizeof stats};
        assert_int_equal(ebb_pool_get_stats(s.pool, &stats), EBB_OK);
        n_hits += stats.n_hits;
        n_mismatches += stats.n_mismatches;
        n_plans += stats.n_plans;
        n_drops += stats.n_drops;
        close_stream(&s);
    }
    print_message("%llu hits, %llu mismatches, %llu plans, %llu dropped\n", (unsigned long long)n_hits,
                  (unsigned long long)n_mismatches, (unsigned long long)n_plans, (unsigned long long)n_drops);
    assert_true(n_hits > N_SEEDS * n_requests_a_seed / 8); /* else the streams show nothing */
    assert_true(n_mismatches > N_SEEDS * n_requests_a_seed / 100);
    assert_true(n_plans > N_SEEDS * 3 / 4 && n_drops > 10);
}

/* After any mess, a few iterations as planned are answered from the plan again, all of them. */
static void test_comes_back(void **state) {
    (void)state;
    for (uint64_t seed = 1; seed < 400; seed += 2) {
        stream s;
        open_stream(&s, seed, NULL);
        for (size_t i = 0; i < s.length; i++) { /* each of its own size: a place is known by four requests */
            s.requests[i].size_bytes = GRANULE * (1 + i);
            s.requests[i].span = ebb_min_u64(s.requests[i].span, s.length);
        }
        s.length = ebb_min_u64(s.length, 40);
        if (ebb_pool_plan(s.pool, s.requests, s.length, NULL) == EBB_OK) {
            size_t at = 0;
            for (unsigned k = 0; k < 500; k++) { at = follow(&s, at, true); }
            for (size_t k = 0; k < 4 * s.length + 400; k++) { at = follow(&s, at, false); }
            ebb_pool_stats before = {.size_bytes = sizeof before}, after = {.size_bytes = sizeof after};
            assert_int_equal(ebb_pool_get_stats(s.pool, &before), EBB_OK);
            for (size_t k = 0; k < s.length; k++) { at = follow(&s, at, false); }
            assert_int_equal(ebb_pool_get_stats(s.pool, &after), EBB_OK);
            uint64_t n_unplanned = 0;
            for (size_t i = 0; i < s.length; i++) { n_unplanned += s.requests[i].span > s.length; }
            if (after.n_hits - before.n_hits + n_unplanned != s.length) { fail_seed(&s, "it did not come back"); }
        }
        close_stream(&s);
    }
}

int main(int argc, char **argv) {
    if (argc > 1) { n_requests_a_seed = strtoull(argv[1], NULL, 10); }
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_mismatches),
        cmocka_unit_test(test_comes_back),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
