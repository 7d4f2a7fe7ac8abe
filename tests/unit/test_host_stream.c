/* SPDX-License-Identifier: Apache-2.0
 *
 * Streams and events on host memory. The heart is a random graph of commands over many streams whose result
 * must be that of the same commands in the order of issue; under a thread sanitizer it also shows that events
 * alone order the accesses.
 */
#include "backend/host_memory.h"
#include "backend/host_stream.h"

#include <setjmp.h>
#include <stdarg.h>
#include <cmocka.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <time.h>

#define N_STREAMS 5
#define N_CELLS 12
#define CELL_WORDS 64

struct ebb_bound {
    uint64_t *dst;
    const uint64_t *a, *b;
};

static void mix(uint64_t *dst, const uint64_t *a, const uint64_t *b) {
    for (size_t i = 0; i < CELL_WORDS; i++) { dst[i] = (a[i] ^ (b[i] << 7)) * 0x9E3779B97F4A7C15u + i; }
}

static ebb_status run_mix(ebb_kernel *kernel, ebb_bound *bound) {
    (void)kernel;
    mix(bound->dst, bound->a, bound->b);
    return EBB_OK;
}

static ebb_status call_mix(void *ctx) {
    return run_mix(NULL, ctx);
}

static ebb_host_device device = {.run = run_mix};

static ebb_stream *new_stream(bool compute) {
    ebb_stream *stream = NULL;
    assert_int_equal(ebb__host_stream_create(&device.base, compute, &stream), EBB_OK);
    return stream;
}

static ebb_event *new_event(void) {
    ebb_event *event = NULL;
    assert_int_equal(ebb__host_event_create(&device.base, &event), EBB_OK);
    return event;
}

/* ---- random graphs ---- */

typedef struct world {
    ebb_rng rng;
    ebb_arena_mem *arena;
    ebb_stream *stream[N_STREAMS];
    ebb_event *touched[N_CELLS][N_STREAMS]; /* recorded after each command of the stream on the cell */
    uint64_t host[N_CELLS][CELL_WORDS];     /* host sides of copies: cell i is copied from and to host[i] only */
    uint64_t expected[N_CELLS][CELL_WORDS], expected_host[N_CELLS][CELL_WORDS];
} world;

static ebb_buf cell_buf(const world *w, size_t cell) {
    return (ebb_buf){w->arena, cell * sizeof w->host[0], sizeof w->host[0]};
}

static uint64_t *cell_ptr(const world *w, size_t cell) {
    return ebb__host_address(cell_buf(w, cell));
}

static void wait_cell(world *w, ebb_stream *stream, size_t cell) {
    for (size_t s = 0; s < N_STREAMS; s++) {
        assert_int_equal(ebb__host_event_wait(stream, w->touched[cell][s]), EBB_OK);
    }
}

static void issue_copy(world *w, size_t s, size_t cell, ebb_copy_direction direction) {
    wait_cell(w, w->stream[s], cell);
    assert_int_equal(ebb__host_copy(w->stream[s], direction, cell_buf(w, cell), w->host[cell]), EBB_OK);
    assert_int_equal(ebb__host_event_record(w->stream[s], w->touched[cell][s]), EBB_OK);
    bool out = direction == EBB_COPY_OUT;
    memcpy(out ? w->expected_host[cell] : w->expected[cell], out ? w->expected[cell] : w->expected_host[cell],
           sizeof w->host[0]);
}

static void issue_mix(world *w, size_t s, const size_t cell[3], ebb_bound *bound) {
    *bound = (ebb_bound){cell_ptr(w, cell[0]), cell_ptr(w, cell[1]), cell_ptr(w, cell[2])};
    for (size_t i = 0; i < 3; i++) { wait_cell(w, w->stream[s], cell[i]); }
    ebb_status status = ebb__rng_below(&w->rng, 2) == 0 ? ebb__host_run(w->stream[s], NULL, bound)
                                                        : ebb__host_call(w->stream[s], call_mix, bound);
    assert_int_equal(status, EBB_OK);
    for (size_t i = 0; i < 3; i++) {
        assert_int_equal(ebb__host_event_record(w->stream[s], w->touched[cell[i]][s]), EBB_OK);
    }
    mix(w->expected[cell[0]], w->expected[cell[1]], w->expected[cell[2]]);
}

static void world_init(world *w, uint64_t seed) {
    ebb__rng_init(&w->rng, seed, 0);
    assert_int_equal(ebb__host_arena_create(&device.base, sizeof w->host, &w->arena), EBB_OK);
    for (size_t s = 0; s < N_STREAMS; s++) { w->stream[s] = new_stream(s == 0); }
    for (size_t c = 0; c < N_CELLS; c++) {
        for (size_t s = 0; s < N_STREAMS; s++) { w->touched[c][s] = new_event(); }
        for (size_t i = 0; i < CELL_WORDS; i++) {
            w->expected[c][i] = cell_ptr(w, c)[i] = ebb__rng_u32(&w->rng);
            w->expected_host[c][i] = w->host[c][i] = ebb__rng_u32(&w->rng);
        }
    }
}

static void world_fini(world *w) {
    for (size_t s = 0; s < N_STREAMS; s++) { ebb__host_stream_destroy(w->stream[s]); }
    for (size_t c = 0; c < N_CELLS; c++) {
        for (size_t s = 0; s < N_STREAMS; s++) { ebb__host_event_destroy(&device.base, w->touched[c][s]); }
    }
    ebb__host_arena_destroy(&device.base, w->arena);
}

static void random_graph(uint64_t seed) {
    enum { N_COMMANDS = 400 };
    static ebb_bound bound[N_COMMANDS];
    world *w = calloc(1, sizeof *w);
    world_init(w, seed);
    for (size_t i = 0; i < N_COMMANDS; i++) {
        size_t s = (size_t)ebb__rng_below(&w->rng, N_STREAMS);
        size_t cell[3];
        for (size_t k = 0; k < 3; k++) { cell[k] = (size_t)ebb__rng_below(&w->rng, N_CELLS); }
        switch (ebb__rng_below(&w->rng, 4)) {
        case 0: issue_copy(w, s, cell[0], EBB_COPY_OUT); break;
        case 1: issue_copy(w, s, cell[0], EBB_COPY_IN); break;
        default: issue_mix(w, s, cell, &bound[i]);
        }
    }
    for (size_t s = 0; s < N_STREAMS; s++) { assert_int_equal(ebb__host_stream_sync(w->stream[s]), EBB_OK); }
    bool same = memcmp(cell_ptr(w, 0), w->expected, sizeof w->expected) == 0;
    same = same && memcmp(w->host, w->expected_host, sizeof w->host) == 0;
    if (!same) { fail_msg("seed %llu: another result than in order", (unsigned long long)seed); }
    world_fini(w);
    free(w);
}

static void random_graphs_keep_order(void **state) {
    (void)state;
    for (uint64_t seed = 1; seed <= 20; seed++) { random_graph(seed); }
}

/* ---- the contract, clause by clause ---- */

static void sleep_ms(long ms) {
    nanosleep(&(struct timespec){.tv_nsec = ms * 1000000}, NULL);
}

static ebb_status slow_store(void *ctx) {
    sleep_ms(20);
    *(int *)ctx += 1;
    return EBB_OK;
}

static ebb_status fail_call(void *ctx) {
    return ebb_fail(EBB_E_IO, "the disk of %s is full", (const char *)ctx);
}

static void wait_without_record_passes(void **state) {
    (void)state;
    ebb_stream *stream = new_stream(false), *compute = new_stream(true);
    ebb_event *event = new_event();
    assert_int_equal(ebb__host_event_wait(stream, event), EBB_OK);
    assert_int_equal(ebb__host_event_wait(compute, event), EBB_OK);
    assert_int_equal(ebb__host_event_sync(&device.base, event), EBB_OK);
    assert_int_equal(ebb__host_stream_sync(stream), EBB_OK);
    ebb__host_stream_destroy(compute);
    ebb__host_stream_destroy(stream);
    ebb__host_event_destroy(&device.base, event);
}

static void compute_waits_and_times_rise(void **state) {
    (void)state;
    ebb_stream *stream = new_stream(false), *compute = new_stream(true);
    ebb_event *before = new_event(), *after = new_event();
    int value = 0;
    ebb__host_event_record(stream, before);
    ebb__host_call(stream, slow_store, &value);
    ebb__host_event_record(stream, after);
    ebb__host_event_wait(compute, after);
    assert_int_equal(value, 1);
    ebb__host_event_sync(&device.base, before);
    uint64_t took_ns = ebb__host_event_time_ns(&device.base, after) - ebb__host_event_time_ns(&device.base, before);
    assert_in_range(took_ns, 19000000, 5000000000u);
    ebb__host_stream_destroy(compute);
    ebb__host_stream_destroy(stream);
    ebb__host_event_destroy(&device.base, before);
    ebb__host_event_destroy(&device.base, after);
}

/* What says that both waiters have come, and lasts 20 ms more. */
static ebb_status wait_for_two(void *ctx) {
    while (atomic_load((atomic_int *)ctx) < 2) { sleep_ms(1); }
    sleep_ms(20);
    return EBB_OK;
}

static ebb_status come(void *ctx) {
    atomic_fetch_add((atomic_int *)ctx, 1);
    return EBB_OK;
}

/* A wait counts on the stream that was held up, be it the caller's thread or one of its own, and on no other. */
static void waits_count_where_they_hold_up(void **state) {
    (void)state;
    ebb_stream *slow = new_stream(false), *held = new_stream(false), *idle = new_stream(false);
    ebb_stream *compute = new_stream(true);
    ebb_event *event = new_event();
    atomic_int n_come = 0;
    const uint64_t begin_ns = ebb__now_ns();
    ebb__host_call(slow, wait_for_two, &n_come);
    ebb__host_event_record(slow, event);
    ebb__host_call(held, come, &n_come);
    ebb__host_event_wait(held, event);
    (void)ebb__host_stream_waited_ns(held); /* while it waits */
    ebb__host_call(compute, come, &n_come);
    ebb__host_event_wait(compute, event);
    assert_int_equal(ebb__host_stream_sync(held), EBB_OK);
    const uint64_t took_ns = ebb__now_ns() - begin_ns, waited_ns = ebb__host_stream_waited_ns(compute);
    assert_in_range(waited_ns, 5000000, took_ns); /* 20 ms, less what a busy machine takes to begin the wait */
    assert_in_range(ebb__host_stream_waited_ns(held), 5000000, took_ns);
    assert_int_equal(ebb__host_stream_waited_ns(slow), 0);
    ebb__host_event_wait(compute, event); /* it is there: nothing is held up */
    ebb__host_event_wait(idle, event);
    assert_int_equal(ebb__host_stream_sync(idle), EBB_OK);
    assert_int_equal(ebb__host_stream_waited_ns(compute), waited_ns);
    assert_int_equal(ebb__host_stream_waited_ns(idle), 0);
    ebb__host_stream_destroy(compute);
    ebb__host_stream_destroy(idle);
    ebb__host_stream_destroy(held);
    ebb__host_stream_destroy(slow);
    ebb__host_event_destroy(&device.base, event);
}

/* A record on another stream must not let pass who waits for the earlier one. */
static void records_complete_in_order_across_streams(void **state) {
    (void)state;
    ebb_stream *slow = new_stream(false), *quick = new_stream(false);
    ebb_event *event = new_event();
    int value = 0;
    ebb__host_call(slow, slow_store, &value);
    ebb__host_event_record(slow, event);
    ebb__host_event_record(quick, event);
    ebb__host_event_sync(&device.base, event);
    assert_int_equal(value, 1);
    ebb__host_stream_destroy(slow);
    ebb__host_stream_destroy(quick);
    ebb__host_event_destroy(&device.base, event);
}

static void error_surfaces_once_and_nobody_hangs(void **state) {
    (void)state;
    ebb_stream *stream = new_stream(false), *compute = new_stream(true);
    ebb_event *event = new_event();
    int value = 0;
    char disk[] = "test";
    assert_int_equal(ebb__host_call(stream, fail_call, disk), EBB_OK);
    ebb__host_call(stream, slow_store, &value);
    ebb__host_call(stream, fail_call, &value);
    ebb__host_event_record(stream, event);
    ebb__host_event_wait(compute, event);
    assert_int_equal(ebb__host_stream_sync(stream), EBB_E_IO);
    assert_string_equal(ebb_last_error(), "the disk of test is full");
    assert_int_equal(value, 0);
    assert_int_equal(ebb__host_stream_sync(stream), EBB_OK);
    ebb__host_call(stream, slow_store, &value);
    assert_int_equal(ebb__host_stream_sync(stream), EBB_OK);
    assert_int_equal(value, 1);
    assert_int_equal(ebb__host_call(compute, fail_call, disk), EBB_E_IO);
    assert_int_equal(ebb__host_stream_sync(compute), EBB_OK);
    ebb__host_stream_destroy(compute);
    ebb__host_stream_destroy(stream);
    ebb__host_event_destroy(&device.base, event);
}

static ebb_status count_up(void *ctx) {
    *(uint64_t *)ctx += 1; /* one stream only: no lock */
    return EBB_OK;
}

/* More commands than the ring holds: the issuer blocks and none is lost; destroying finishes the queue. */
static void full_ring_blocks_and_destroy_drains(void **state) {
    (void)state;
    ebb_stream *stream = new_stream(false);
    uint64_t n = 0;
    int value = 0;
    ebb__host_call(stream, slow_store, &value);
    for (size_t i = 0; i < 20000; i++) { ebb__host_call(stream, count_up, &n); }
    ebb__host_stream_destroy(stream);
    assert_int_equal(n, 20000);
}

static void destroy_takes_null(void **state) {
    (void)state;
    ebb__host_stream_destroy(NULL);
    ebb__host_event_destroy(&device.base, NULL);
    ebb__host_arena_destroy(&device.base, NULL);
    ebb__host_free(&device.base, NULL, 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(random_graphs_keep_order),
        cmocka_unit_test(wait_without_record_passes),
        cmocka_unit_test(compute_waits_and_times_rise),
        cmocka_unit_test(waits_count_where_they_hold_up),
        cmocka_unit_test(records_complete_in_order_across_streams),
        cmocka_unit_test(error_surfaces_once_and_nobody_hangs),
        cmocka_unit_test(full_ring_blocks_and_destroy_drains),
        cmocka_unit_test(destroy_takes_null),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
