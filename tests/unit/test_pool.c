/* SPDX-License-Identifier: Apache-2.0
 *
 * The pool, case by case, and with several threads on one.
 */
#include "pool/pool_priv.h"
#include "support.h"

#include <pthread.h>
#include <sys/mman.h>

#define BASE ((uint64_t)1 << 30)

static ebb_pool *make(uint64_t n_granules, bool learns, const ebb_mem *mem) {
    ebb_pool_options options = EBB_POOL_OPTIONS_INIT;
    ebb_pool *pool = NULL;
    options.mem = mem;
    options.base = BASE;
    options.capacity_bytes = n_granules * 512;
    options.learns = learns;
    return ebb_pool_create(&options, &pool) == EBB_OK ? pool : NULL;
}

static uint64_t take(ebb_pool *pool, uint64_t n_granules) {
    uint64_t address = 0;
    assert_int_equal(ebb_pool_alloc(pool, n_granules * 512, &address), EBB_OK);
    return address;
}

static void give(ebb_pool *pool, uint64_t address) {
    assert_int_equal(ebb_pool_free(pool, address), EBB_OK);
}

static ebb_pool_stats stats_of(ebb_pool *pool) {
    ebb_pool_stats stats = {.size_bytes = sizeof stats};
    assert_int_equal(ebb_pool_get_stats(pool, &stats), EBB_OK);
    return stats;
}

/* a lives over b; c reuses a's bytes, and lives into the next iteration. */
static const ebb_pool_request three[] = {{1024, 2}, {512, 1}, {1024, 1}};
static const uint64_t three_offsets[] = {0, 1024, 0};

static void test_replays(void **state) {
    (void)state;
    ebb_pool *pool = make(3, false, NULL);
    assert_int_equal(ebb_pool_plan(pool, three, 3, three_offsets), EBB_OK);
    for (unsigned k = 0; k < 5; k++) {
        const uint64_t a = take(pool, 2), b = take(pool, 1);
        assert_true(a == BASE && b == BASE + 1024);
        give(pool, b);
        give(pool, a);
        const uint64_t c = take(pool, 2);
        assert_true(c == BASE);
        give(pool, c);
    }
    const ebb_pool_stats stats = stats_of(pool);
    assert_true(stats.n_hits == 15 && stats.n_requests == 15 && stats.n_mismatches == 0 && stats.live_bytes == 0);
    assert_true(stats.peak_bytes == 1536 && stats.peak_live_bytes == 1536 && stats.plan_bytes == 1536);
    assert_int_equal(ebb_pool_plan(pool, NULL, 0, NULL), EBB_OK);
    assert_true(stats_of(pool).plan_bytes == 0);
    ebb_pool_destroy(pool);
}

static void test_late_free(void **state) {
    (void)state;
    ebb_pool *pool = make(6, false, NULL);
    assert_int_equal(ebb_pool_plan(pool, three, 3, three_offsets), EBB_OK);
    const uint64_t a = take(pool, 2), b = take(pool, 1);
    give(pool, b);
    const uint64_t c = take(pool, 2); /* its place is a's; it gets b's bytes, and some above the plan */
    assert_true(c == BASE + 1024);
    assert_true(stats_of(pool).n_mismatches == 1);
    give(pool, a);
    give(pool, c);
    assert_true(take(pool, 2) == BASE); /* the next iteration */
    ebb_pool_destroy(pool);
}

/* A request that the plan does not have gets bytes that the plan does not need now. If it is still there when the plan
 * needs them, the planned request goes elsewhere. */
static void test_hole(void **state) {
    (void)state;
    static const ebb_pool_request requests[] = {{2048, 1}, {512, 2}, {2048, 1}};
    static const uint64_t offsets[] = {0, 2048, 0};
    ebb_pool *pool = make(16, false, NULL);
    assert_int_equal(ebb_pool_plan(pool, requests, 3, offsets), EBB_OK);
    for (unsigned stays = 0; stays < 2; stays++) {
        give(pool, take(pool, 4));
        const uint64_t b = take(pool, 1), stray = take(pool, 3);
        assert_true(stray == BASE && stats_of(pool).peak_bytes == 2560);
        if (stays == 0) { give(pool, stray); }
        const uint64_t c = take(pool, 4);
        assert_true(stays == 0 ? c == BASE : c == BASE + 2560);
        give(pool, b);
        give(pool, c);
        if (stays == 1) { give(pool, stray); }
    }
    const uint64_t n_hits = stats_of(pool).n_hits;
    give(pool, take(pool, 4));
    assert_int_equal(stats_of(pool).n_hits, n_hits + 1);
    ebb_pool_destroy(pool);
}

static void test_unplanned(void **state) {
    (void)state;
    static const ebb_pool_request requests[] = {{512, 1}, {512, 0}, {512, 4}};
    ebb_pool *pool = make(16, false, NULL);
    assert_int_equal(ebb_pool_plan(pool, requests, 3, NULL), EBB_OK);
    give(pool, take(pool, 1));
    (void)take(pool, 1);
    (void)take(pool, 1);
    const ebb_pool_stats stats = stats_of(pool);
    assert_true(stats.n_hits == 1 && stats.n_unplanned == 2 && stats.plan_bytes == 512);
    ebb_pool_destroy(pool);
}

static void test_no_room(void **state) {
    (void)state;
    ebb_pool *pool = make(4, false, NULL);
    uint64_t address = 7;
    (void)take(pool, 2);
    assert_int_equal(ebb_pool_plan(pool, three, 3, NULL), EBB_E_NO_FIT);
    assert_int_equal(ebb_pool_alloc(pool, 2048, &address), EBB_E_NO_FIT);
    assert_int_equal(ebb_pool_alloc(pool, UINT64_MAX, &address), EBB_E_NO_FIT);
    assert_int_equal(address, 7);
    (void)take(pool, 2);
    assert_int_equal(stats_of(pool).n_requests, 2); /* those that were answered */
    ebb_pool_destroy(pool);
}

static void test_bad_frees(void **state) {
    (void)state;
    ebb_pool *pool = make(8, false, NULL);
    const uint64_t outside = take(pool, 1);
    assert_int_equal(ebb_pool_plan(pool, three, 3, three_offsets), EBB_OK);
    const uint64_t a = take(pool, 2);
    assert_int_equal(ebb_pool_free(pool, a + 512), EBB_E_ARGUMENT);
    assert_int_equal(ebb_pool_free(pool, a + 1), EBB_E_ARGUMENT);
    assert_int_equal(ebb_pool_free(pool, BASE - 512), EBB_E_ARGUMENT);
    assert_int_equal(ebb_pool_free(pool, BASE + 8 * 512), EBB_E_ARGUMENT);
    assert_int_equal(ebb_pool_free(pool, 0), EBB_E_ARGUMENT);
    give(pool, a);
    assert_int_equal(ebb_pool_free(pool, a), EBB_E_ARGUMENT);
    give(pool, outside);
    assert_int_equal(ebb_pool_free(pool, outside), EBB_E_ARGUMENT);
    assert_true(stats_of(pool).live_bytes == 0);
    ebb_pool_destroy(pool);
}

static void test_bad_plans(void **state) {
    (void)state;
    static const uint64_t overlap[] = {0, 512, 0}, skewed[] = {0, 1030, 0};
    ebb_pool *pool = make(8, false, NULL);
    assert_int_equal(ebb_pool_plan(pool, three, 3, overlap), EBB_E_INVALID_PLAN);
    assert_int_equal(ebb_pool_plan(pool, three, 3, skewed), EBB_E_INVALID_PLAN);
    (void)take(pool, 8); /* nothing is held */
    ebb_pool_destroy(pool);
}

static void test_bad_options(void **state) {
    (void)state;
    ebb_pool_options good = EBB_POOL_OPTIONS_INIT, o;
    ebb_pool *pool = NULL;
    good.capacity_bytes = 4096;
    o = good, o.alignment_bytes = 24;
    assert_int_equal(ebb_pool_create(&o, &pool), EBB_E_ARGUMENT);
    o = good, o.alignment_bytes = 0;
    assert_int_equal(ebb_pool_create(&o, &pool), EBB_E_ARGUMENT);
    o = good, o.base = 8;
    assert_int_equal(ebb_pool_create(&o, &pool), EBB_E_ARGUMENT);
    o = good, o.capacity_bytes = 511;
    assert_int_equal(ebb_pool_create(&o, &pool), EBB_E_ARGUMENT);
    o = good, o.capacity_bytes = UINT64_MAX;
    assert_int_equal(ebb_pool_create(&o, &pool), EBB_E_ARGUMENT);
    o = good, o.size_bytes = 1;
    assert_int_equal(ebb_pool_create(&o, &pool), EBB_E_ARGUMENT);
    assert_null(pool);
}

/* A block that nobody expects fits below the plan's end only if two requests to come go elsewhere: b, on whose place it
 * lies, and then c, on whose place b lies.
 *
 *      granule   0 1 2 3 4 5 6 7 8 9 10
 *      as planned a . . . b b b . c c d
 *      as it came a x x x x x b b b c c     (d comes when b and c are gone)
 */
static void test_detour(void **state) {
    (void)state;
    enum { N_BRIEF = 37 };
    ebb_pool_request requests[3 + N_BRIEF] = {{512, 3 + N_BRIEF}, {3 * 512, 2}, {2 * 512, 1}};
    uint64_t offsets[3 + N_BRIEF] = {0, 4 * 512, 8 * 512};
    for (size_t i = 3; i < 3 + N_BRIEF; i++) {
        requests[i] = (ebb_pool_request){512, 1};
        offsets[i] = 10 * 512;
    }
    ebb_pool *pool = make(64, false, NULL);
    assert_int_equal(ebb_pool_plan(pool, requests, 3 + N_BRIEF, offsets), EBB_OK);
    uint64_t planned[3] = {0};
    for (unsigned k = 0; k < 3; k++) { /* the second iteration has x; the others are as planned */
        const uint64_t a = take(pool, 1), x = k == 1 ? take(pool, 5) : 0, b = take(pool, 3), c = take(pool, 2);
        give(pool, b);
        give(pool, c);
        if (k == 1) { give(pool, x); }
        if (k == 0) { memcpy(planned, (uint64_t[]){a, b, c}, sizeof planned); }
        assert_true(a == planned[0] && (b == planned[1]) == (k != 1) && (c == planned[2]) == (k != 1));
        for (size_t i = 0; i < N_BRIEF; i++) { give(pool, take(pool, 1)); }
        give(pool, a);
    }
    const ebb_pool_stats stats = stats_of(pool);
    assert_int_equal(stats.peak_live_bytes, 11 * 512);
    assert_int_equal(stats.peak_bytes, 11 * 512);
    assert_int_equal(stats.n_mismatches, 3);
    ebb_pool_destroy(pool);
}

/* An iteration of n requests with equal layers in it; each block lives over the next. */
static void iterate(ebb_pool *pool, size_t n, uint64_t n_granules) {
    uint64_t before = 0;
    for (size_t i = 0; i < n; i++) {
        const uint64_t now = take(pool, i % 3 == 2 && i + 1 < n ? n_granules : 1 + i % 3);
        if (before != 0) { give(pool, before); }
        before = now;
    }
    give(pool, before);
}

static void test_learns(void **state) {
    (void)state;
    ebb_pool *pool = make(4096, true, NULL);
    const uint64_t weights = take(pool, 100);
    iterate(pool, 10, 3);
    for (unsigned k = 0; k < 20; k++) { iterate(pool, 50, 7); }
    ebb_pool_stats stats = stats_of(pool);
    assert_true(stats.n_plans >= 1 && stats.n_drops == 0); /* perhaps one of its equal layers first */
    const uint64_t n_hits = stats.n_hits, n_requests = stats.n_requests, n_plans = stats.n_plans;
    for (unsigned k = 0; k < 10; k++) { iterate(pool, 50, 7); }
    stats = stats_of(pool);
    assert_int_equal(stats.n_hits - n_hits, stats.n_requests - n_requests); /* nothing searched any more */
    for (unsigned k = 0; k < 40; k++) { iterate(pool, 70, 11); }            /* another phase */
    stats = stats_of(pool);
    assert_true(stats.n_plans > n_plans);
    const uint64_t n_hits_then = stats.n_hits;
    iterate(pool, 70, 11);
    assert_int_equal(stats_of(pool).n_hits - n_hits_then, 70);
    give(pool, weights);
    assert_true(stats_of(pool).live_bytes == 0);
    ebb_pool_destroy(pool);
}

/* A plan that was given and does not hold. */
static void test_replaces(void **state) {
    (void)state;
    ebb_pool *pool = make(4096, true, NULL);
    assert_int_equal(ebb_pool_plan(pool, three, 3, NULL), EBB_OK);
    for (unsigned k = 0; k < 40; k++) { iterate(pool, 50, 7); }
    const ebb_pool_stats before = stats_of(pool);
    assert_true(before.n_plans >= 2);
    iterate(pool, 50, 7);
    assert_int_equal(stats_of(pool).n_hits - before.n_hits, 50);
    ebb_pool_destroy(pool);
}

/* Nothing is read or written in the arena: it may be a device's. */
static void test_never_touches(void **state) {
    (void)state;
    const size_t n = (size_t)512 * 1024;
    void *arena = mmap(NULL, n, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    assert_true(arena != MAP_FAILED);
    ebb_pool_options options = EBB_POOL_OPTIONS_INIT;
    ebb_pool *pool = NULL;
    options.base = (uint64_t)(uintptr_t)arena;
    options.capacity_bytes = n;
    options.learns = true;
    assert_int_equal(ebb_pool_create(&options, &pool), EBB_OK);
    for (unsigned k = 0; k < 40; k++) { iterate(pool, 50, 7 + k / 20); }
    assert_true(stats_of(pool).n_plans > 1 && stats_of(pool).n_hits > 1500);
    ebb_pool_destroy(pool);
    assert_int_equal(munmap(arena, n), 0);
}

/* The plan lies around what lives when it is made, and holds none of it. */
static void test_plans_around(void **state) {
    (void)state;
    static const ebb_pool_request requests[] = {{512, 2}, {512, 2}, {512, 2}};
    ebb_pool *pool = make(6, false, NULL);
    uint64_t held[6];
    for (unsigned k = 0; k < 6; k++) { held[k] = take(pool, 1); }
    for (unsigned k = 0; k < 6; k += 2) { give(pool, held[k]); }
    assert_int_equal(ebb_pool_plan(pool, requests, 3, NULL), EBB_OK); /* three granules, none of them side by side */
    const uint64_t a = take(pool, 1), b = take(pool, 1);
    assert_true(a != b && (a - BASE) / 512 % 2 == 0 && (b - BASE) / 512 % 2 == 0);
    assert_int_equal(stats_of(pool).n_hits, 2);
    const uint64_t inside = BASE + 4 * 512;
    if (a != inside && b != inside) { assert_int_equal(ebb_pool_free(pool, inside), EBB_E_ARGUMENT); }
    for (unsigned k = 1; k < 6; k += 2) { give(pool, held[k]); }
    give(pool, a);
    give(pool, b);
    assert_int_equal(ebb_pool_plan(pool, NULL, 0, NULL), EBB_OK);
    assert_true(take(pool, 6) == BASE); /* all is one piece again */
    ebb_pool_destroy(pool);
}

static void test_nothing_asked(void **state) {
    (void)state;
    static const ebb_pool_request requests[] = {{0, 1}, {513, 1}};
    ebb_pool *pool = make(8, false, NULL);
    assert_int_equal(ebb_pool_plan(pool, requests, 2, NULL), EBB_OK);
    for (unsigned k = 0; k < 6; k++) {
        uint64_t address = 0;
        assert_int_equal(ebb_pool_alloc(pool, k % 2 == 0 ? 0 : 600 + k, &address), EBB_OK); /* of as many granules */
        give(pool, address);
    }
    assert_int_equal(stats_of(pool).n_hits, 6);
    ebb_pool_destroy(pool);
}

static void test_heap(void **state) {
    (void)state;
    ebb_pool_heap *heap = NULL;
    uint64_t start[64], n = 0, note = 0;
    assert_int_equal(ebb__pool_heap_create(NULL, 0, 1000, &heap), EBB_OK);
    ebb_rng rng;
    ebb__rng_init(&rng, 9, 9);
    for (unsigned i = 0; i < 64; i++) { start[i] = EBB_POOL_NOWHERE; }
    for (unsigned k = 0; k < 4000; k++) {
        const uint64_t i = ebb__rng_below(&rng, 64);
        if (start[i] != EBB_POOL_NOWHERE) {
            ebb__pool_heap_give(heap, start[i], &n, &note);
            assert_true(n > 0 && note == i);
            start[i] = EBB_POOL_NOWHERE;
        } else {
            assert_int_equal(ebb__pool_heap_take(heap, 1 + ebb__rng_below(&rng, 90), i, &start[i]), EBB_OK);
        }
        assert_true(ebb__pool_heap_is_valid(heap));
    }
    for (unsigned i = 0; i < 64; i++) {
        if (start[i] != EBB_POOL_NOWHERE) { ebb__pool_heap_give(heap, start[i], &n, &note); }
    }
    assert_int_equal(ebb__pool_heap_take(heap, 1000, 0, &start[0]), EBB_OK); /* all is one piece again */
    assert_int_equal(start[0], 0);
    ebb__pool_heap_destroy(heap);
}

/* Where all that is free is of about the size asked for, the smallest that suffices is found; two of equal size too. */
static void test_heap_of_one_class(void **state) {
    (void)state;
    enum { N = 300, LEAST = 1 << 20, WIDTH = 1 << 15 };
    ebb_pool_heap *heap = NULL;
    uint64_t size[N], start[N], total = 0, wall = 0, n = 0, note = 0;
    bool is_taken[N] = {false};
    ebb_rng rng;
    ebb__rng_init(&rng, 9, 10);
    for (unsigned i = 0; i < N; i++) {
        size[i] = LEAST + (i % 3 == 0 ? 64 * ebb__rng_below(&rng, 8) : ebb__rng_below(&rng, WIDTH));
        total += size[i] + 1;
    }
    assert_int_equal(ebb__pool_heap_create(NULL, 0, total, &heap), EBB_OK);
    for (unsigned i = 0; i < N; i++) {
        assert_int_equal(ebb__pool_heap_take(heap, size[i], i, &start[i]), EBB_OK);
        assert_int_equal(ebb__pool_heap_take(heap, 1, 0, &wall), EBB_OK);
    }
    for (unsigned i = 0; i < N; i++) { ebb__pool_heap_give(heap, start[i], &n, &note); }
    for (unsigned k = 0; k < 20000; k++) {
        const uint64_t asked = LEAST + ebb__rng_below(&rng, WIDTH), any = ebb__rng_below(&rng, N);
        uint64_t best = UINT64_MAX, at = 0;
        if (is_taken[any]) {
            ebb__pool_heap_give(heap, start[any], &n, &note);
            is_taken[any] = false;
        }
        for (unsigned i = 0; i < N; i++) {
            if (!is_taken[i] && size[i] >= asked) { best = ebb_min_u64(best, size[i]); }
        }
        assert_int_equal(ebb__pool_heap_take(heap, asked, 0, &at), EBB_OK);
        assert_true((at == EBB_POOL_NOWHERE) == (best == UINT64_MAX));
        for (unsigned i = 0; i < N && at != EBB_POOL_NOWHERE; i++) {
            if (start[i] != at) { continue; }
            assert_true(!is_taken[i] && size[i] == best);
            is_taken[i] = true;
        }
        assert_true(k % 16 != 0 || ebb__pool_heap_is_valid(heap));
    }
    ebb__pool_heap_destroy(heap);
}

/* Several threads, one pool: no one gets what another one holds. */
typedef struct sharer {
    ebb_pool *pool;
    unsigned char *arena;
    unsigned char id;
    bool failed;
} sharer;

static void *share(void *ctx) {
    sharer *s = ctx;
    for (unsigned k = 0; k < 3000; k++) {
        uint64_t address = 0;
        if (ebb_pool_alloc(s->pool, 512 * (1 + k % 5), &address) != EBB_OK) { continue; }
        memset(s->arena + (address - BASE), s->id, 512);
        for (unsigned i = 0; i < 512; i++) { s->failed |= s->arena[address - BASE + i] != s->id; }
        s->failed |= ebb_pool_free(s->pool, address) != EBB_OK;
    }
    return NULL;
}

static void test_threads(void **state) {
    (void)state;
    ebb_pool_options options = EBB_POOL_OPTIONS_INIT;
    ebb_pool *pool = NULL;
    options.base = BASE;
    options.capacity_bytes = 64 * 512;
    options.learns = true;
    options.locked = true;
    assert_int_equal(ebb_pool_create(&options, &pool), EBB_OK);
    unsigned char *arena = calloc(64, 512);
    sharer sharers[4];
    pthread_t threads[4];
    for (unsigned t = 0; t < 4; t++) {
        sharers[t] = (sharer){pool, arena, (unsigned char)(t + 1), false};
        assert_int_equal(pthread_create(&threads[t], NULL, share, &sharers[t]), 0);
    }
    for (unsigned t = 0; t < 4; t++) {
        assert_int_equal(pthread_join(threads[t], NULL), 0);
        assert_false(sharers[t].failed);
    }
    assert_true(stats_of(pool).live_bytes == 0);
    ebb_pool_destroy(pool);
    free(arena);
}

static void test_out_of_memory(void **state) {
    (void)state;
    OOM_LOOP(mem, st, {
        ebb_pool *pool = make(64, false, mem);
        uint64_t address = 0;
        st = pool != NULL ? ebb_pool_plan(pool, three, 3, NULL) : EBB_E_NO_MEMORY;
        if (st == EBB_OK) { st = ebb_pool_alloc(pool, 1024, &address); }
        if (st == EBB_OK) { st = ebb_pool_alloc(pool, 4096, &address); }
        if (st == EBB_OK) { st = ebb_pool_plan(pool, three, 3, three_offsets); }
        ebb_pool_destroy(pool);
    });
    for (size_t fail_at = 1; fail_at < 60; fail_at++) { /* learning fails, requests do not */
        failing_mem f;
        ebb_pool *pool = make(4096, true, &failing_mem_init(&f, 0)->hooks);
        f.fail_at = f.n_calls + fail_at;
        for (unsigned k = 0; k < 600; k++) {
            uint64_t address = 0;
            if (ebb_pool_alloc(pool, 512 * (1 + k % 30), &address) == EBB_OK) { give(pool, address); }
        }
        ebb_pool_destroy(pool);
        assert_int_equal(f.n_live, 0);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_replays),       cmocka_unit_test(test_late_free),
        cmocka_unit_test(test_hole),          cmocka_unit_test(test_unplanned),
        cmocka_unit_test(test_no_room),       cmocka_unit_test(test_bad_frees),
        cmocka_unit_test(test_bad_plans),     cmocka_unit_test(test_bad_options),
        cmocka_unit_test(test_replaces),      cmocka_unit_test(test_never_touches),
        cmocka_unit_test(test_nothing_asked), cmocka_unit_test(test_plans_around),
        cmocka_unit_test(test_detour),        cmocka_unit_test(test_learns),
        cmocka_unit_test(test_heap),          cmocka_unit_test(test_threads),
        cmocka_unit_test(test_out_of_memory), cmocka_unit_test(test_heap_of_one_class),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
