/* SPDX-License-Identifier: Apache-2.0
 *
 * The pool against a stream that follows an iteration and leaves it: requests left out, put in, resized and reordered,
 * frees that come late or early or of what does not live, jumps, other iterations; from one thread, and from several.
 * Whatever comes, no block is handed out that overlaps a live one, and the pool knows to the byte what lives and what
 * lived. The books of the test are an owner for every granule, and share nothing with the pool's.
 *
 *   test_pool_prop [MISMATCHES]    go on until the pools have counted this many
 */
#include "pool/pool_priv.h"
#include "support.h"

#include <pthread.h>
#include <stdatomic.h>

#define GRANULE 64u
#define BASE ((uint64_t)1 << 40)
#define MAX_LIVE 512u
#define MAX_LENGTH 96u
#define N_REQUESTS 5000u /* a seed */
#define N_THREADS 4u
#define N_THREAD_CALLS (EBB_DEBUG > 0 ? 20000u : 100000u)

static uint64_t n_wanted = EBB_DEBUG > 0 ? 30000 : 300000;

enum { FREE, INSIDE, FIRST }; /* a granule of a live block, the first one of it */

typedef struct live_block {
    uint64_t address, n_granules;
    uint64_t dies; /* freed before this request of the stream */
} live_block;

typedef struct stream {
    ebb_rng rng;
    uint64_t seed;
    ebb_pool *pool;
    unsigned char *owner; /* [granules] */
    uint64_t n_granules;
    live_block live[MAX_LIVE];
    size_t n_live;
    uint64_t n_requests, n_refused, n_wrong;
    uint64_t live_bytes, peak_bytes;
    uint64_t freed; /* the last address */
    uint64_t haste; /* this many requests before they must, blocks are freed */
    bool learns;
    ebb_pool_request requests[MAX_LENGTH];
    size_t length;
} stream;

static void fail_seed(const stream *s, const char *what) {
    fail_msg("seed %llu, request %llu: %s (%s)", (unsigned long long)s->seed, (unsigned long long)s->n_requests, what,
             ebb_last_error());
}

static void own(stream *s, uint64_t address, uint64_t n, bool takes) {
    const uint64_t first = (address - BASE) / GRANULE;
    if (address < BASE || address % GRANULE != 0 || first + n > s->n_granules) { fail_seed(s, "outside of the arena"); }
    for (uint64_t g = first; g < first + n; g++) {
        const unsigned char live = g == first ? FIRST : INSIDE;
        if (s->owner[g] != (takes ? FREE : live)) { fail_seed(s, "a live block was handed out"); }
        s->owner[g] = takes ? live : FREE;
    }
    s->live_bytes += takes ? n * GRANULE : -(n * GRANULE);
    s->peak_bytes = ebb_max_u64(s->peak_bytes, s->live_bytes);
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
    own(s, address, n, true);
    s->live[s->n_live++] = (live_block){address, n, s->n_requests + (span > s->haste ? span - s->haste : 1)};
}

static void release(stream *s, size_t idx) {
    const live_block b = s->live[idx];
    own(s, b.address, b.n_granules, false);
    if (ebb_pool_free(s->pool, b.address) != EBB_OK) { fail_seed(s, "a free failed"); }
    s->live[idx] = s->live[--s->n_live];
    s->freed = b.address;
}

/* The address of a block that is free again, of somewhere in one, or of nothing. */
static void release_wrongly(stream *s) {
    uint64_t address = s->freed;
    if (ebb__rng_below(&s->rng, 2) == 0) { address = BASE + ebb__rng_below(&s->rng, s->n_granules + 9) * GRANULE; }
    if (ebb__rng_below(&s->rng, 4) == 0) { address += 1 + ebb__rng_below(&s->rng, GRANULE - 1); }
    const uint64_t g = (address - BASE) / GRANULE;
    if (address % GRANULE == 0 && g < s->n_granules && s->owner[g] == FIRST) { return; }
    if (ebb_pool_free(s->pool, address) != EBB_E_ARGUMENT) { fail_seed(s, "a wrong free was taken"); }
    s->n_wrong++;
}

/* Free the blocks that are due; now and then something stays for longer, or goes before. */
static void release_due(stream *s, bool wild) {
    for (size_t i = s->n_live; i-- > 0;) {
        const bool due = s->live[i].dies <= s->n_requests + 1;
        if (wild && ebb__rng_below(&s->rng, due ? 20 : 200) == 0) {
            if (!due) { release(s, i); }
        } else if (due) {
            release(s, i);
        }
    }
    if (ebb__rng_below(&s->rng, wild ? 10 : 100) == 0) { release_wrongly(s); }
}

static ebb_pool_stats check_stats(stream *s) {
    ebb_pool_stats stats = {.size_bytes = sizeof stats};
    assert_int_equal(ebb_pool_get_stats(s->pool, &stats), EBB_OK);
    if (stats.live_bytes != s->live_bytes) { fail_seed(s, "other bytes live than it says"); }
    if (stats.peak_live_bytes != s->peak_bytes) { fail_seed(s, "other bytes lived than it says"); }
    return stats;
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
    *s = (stream){.seed = seed, .freed = BASE, .haste = seed % 5 == 4 ? 1 + seed % 7 : 0};
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
    assert_true(check_stats(s).live_bytes == 0);
    ebb_pool_destroy(s->pool);
    free(s->owner);
}

/* What lives may leave no room. */
static void plan(stream *s) {
    const ebb_status st = ebb_pool_plan(s->pool, s->requests, s->length, NULL);
    if (st != EBB_OK && st != EBB_E_NO_FIT) { fail_seed(s, "a plan failed"); }
}

/* A seed's stream; what the pool says of it in the end. */
static ebb_pool_stats run_stream(uint64_t seed, uint64_t *n_wrong) {
    stream s;
    open_stream(&s, seed, NULL);
    size_t at = 0;
    if (!s.learns) { plan(&s); }
    while (s.n_requests < N_REQUESTS) {
        at = follow(&s, at, s.n_requests % 1000 > 500);
        if (ebb__rng_below(&s.rng, 800) == 0) { (void)check_stats(&s); }
        if (ebb__rng_below(&s.rng, 1500) != 0) { continue; }
        draw_iteration(&s);
        at = 0;
        if (!s.learns) { plan(&s); }
    }
    const ebb_pool_stats stats = check_stats(&s);
    *n_wrong += s.n_wrong;
    close_stream(&s);
    return stats;
}

static void test_mismatches(void **state) {
    (void)state;
    ebb_pool_stats sum = {0};
    uint64_t seed = 0, n_wrong = 0;
    for (; sum.n_mismatches < n_wanted; seed++) {
        const ebb_pool_stats stats = run_stream(seed, &n_wrong);
        sum.n_requests += stats.n_requests;
        sum.n_hits += stats.n_hits;
        sum.n_mismatches += stats.n_mismatches;
        sum.n_plans += stats.n_plans;
        sum.n_drops += stats.n_drops;
        if (seed >= 100 && sum.n_mismatches < seed) {
            fail_msg("hardly a mismatch in %llu seeds", (unsigned long long)seed);
        }
    }
    print_message("%llu seeds: %llu requests, %llu hits, %llu mismatches, %llu plans, %llu dropped, %llu wrong frees\n",
                  (unsigned long long)seed, (unsigned long long)sum.n_requests, (unsigned long long)sum.n_hits,
                  (unsigned long long)sum.n_mismatches, (unsigned long long)sum.n_plans,
                  (unsigned long long)sum.n_drops, (unsigned long long)n_wrong);
    assert_true(sum.n_hits > sum.n_requests / 8); /* else the streams show nothing */
    assert_true(sum.n_plans > seed * 3 / 4 && sum.n_drops > seed / 25 && n_wrong > 10 * seed);
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

/* ---- several threads -------------------------------------------------------------------------- */

typedef struct sharer {
    ebb_pool *pool;
    _Atomic unsigned *owner; /* [granules] of all */
    unsigned id;
    bool failed;
} sharer;

/* Each granule of a block changes its owner; whether it had the one that it should. */
static bool hand_over(const sharer *s, const live_block *b, unsigned from, unsigned to) {
    bool is_good = true;
    for (uint64_t g = 0; g < b->n_granules; g++) {
        is_good &= atomic_exchange(&s->owner[(b->address - BASE) / GRANULE + g], to) == from;
    }
    return is_good;
}

/* A little iteration of its own, over and over; now and then it does something else. */
static void *share(void *ctx) {
    sharer *s = ctx;
    live_block held[8] = {{0}};
    ebb_rng rng;
    ebb__rng_init(&rng, s->id, 5);
    for (uint64_t k = 0; k < N_THREAD_CALLS; k++) {
        live_block *b = &held[ebb__rng_below(&rng, 50) == 0 ? ebb__rng_below(&rng, 8) : k % 8];
        if (b->n_granules > 0) {
            s->failed |= !hand_over(s, b, s->id, 0) || ebb_pool_free(s->pool, b->address) != EBB_OK;
            b->n_granules = 0;
        }
        const uint64_t n = 1 + (k % 8 + s->id) % 5 + (ebb__rng_below(&rng, 50) == 0 ? 1 : 0);
        if (ebb_pool_alloc(s->pool, n * GRANULE, &b->address) != EBB_OK) { continue; }
        b->n_granules = n;
        s->failed |= !hand_over(s, b, 0, s->id);
        if (k % 64 == 0) { s->failed |= ebb_pool_free(s->pool, b->address + 1) != EBB_E_ARGUMENT; }
    }
    for (unsigned i = 0; i < 8; i++) {
        if (held[i].n_granules == 0) { continue; }
        s->failed |= !hand_over(s, &held[i], s->id, 0) || ebb_pool_free(s->pool, held[i].address) != EBB_OK;
    }
    return NULL;
}

static void test_threads(void **state) {
    (void)state;
    static const ebb_pool_request requests[] = {{GRANULE, 3}, {3 * GRANULE, 2}, {2 * GRANULE, 4}, {4 * GRANULE, 1}};
    for (unsigned learns = 0; learns < 2; learns++) {
        ebb_pool_options options = EBB_POOL_OPTIONS_INIT;
        ebb_pool *pool = NULL;
        sharer sharers[N_THREADS];
        pthread_t threads[N_THREADS];
        options.base = BASE;
        options.capacity_bytes = (uint64_t)8 * N_THREADS * 6 * GRANULE;
        options.alignment_bytes = GRANULE;
        options.learns = learns == 1;
        options.locked = true;
        assert_int_equal(ebb_pool_create(&options, &pool), EBB_OK);
        if (learns == 0) { assert_int_equal(ebb_pool_plan(pool, requests, 4, NULL), EBB_OK); }
        _Atomic unsigned *owner = calloc(options.capacity_bytes / GRANULE, sizeof *owner);
        for (unsigned t = 0; t < N_THREADS; t++) {
            sharers[t] = (sharer){pool, owner, t + 1, false};
            assert_int_equal(pthread_create(&threads[t], NULL, share, &sharers[t]), 0);
        }
        ebb_pool_stats stats = {.size_bytes = sizeof stats};
        for (unsigned k = 0; k < 100; k++) { assert_int_equal(ebb_pool_get_stats(pool, &stats), EBB_OK); }
        for (unsigned t = 0; t < N_THREADS; t++) {
            assert_int_equal(pthread_join(threads[t], NULL), 0);
            assert_false(sharers[t].failed);
        }
        assert_int_equal(ebb_pool_get_stats(pool, &stats), EBB_OK);
        assert_true(stats.live_bytes == 0 && stats.n_requests > N_THREADS * N_THREAD_CALLS / 2);
        ebb_pool_destroy(pool);
        free(owner);
    }
}

int main(int argc, char **argv) {
    if (argc > 1) { n_wanted = strtoull(argv[1], NULL, 10); }
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_mismatches),
        cmocka_unit_test(test_comes_back),
        cmocka_unit_test(test_threads),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
