/* SPDX-License-Identifier: Apache-2.0
 *
 * What a malloc and a free cost: the pool beside the C library's malloc and beside lists as CnMem keeps them, for the
 * calls of one iteration.
 *
 *   bench_pool [rounds=N] TRACE|model:PAIRS[:DEEP]...
 *
 * The iteration is the last one of a recorded trace, or one that is made up: PAIRS requests of network-like lifetimes,
 * of which up to DEEP (200) are out, always the same for the same numbers. It is replayed over and over, by each
 * contender in turn, round by round; a contender's figure is the median of its rounds, in ns a pair of malloc and free,
 * the loop around the calls included. What the loop takes is a row of its own, 'loop alone': the same with calls that
 * do nothing. Nothing is read or written in what is handed out. The library is called as programs call it, from
 * outside. Where very many blocks are out, lists, which take longer the more there are, and malloc itself, to which
 * each is a page at least, are left out. A pool's row ends with the host memory that its books have in the end. Prints
 * CSV. Not a test; `cmake --build build --target bench_pool`.
 */
#include "ebb/ebb.h"

#include <malloc.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define NONE UINT32_MAX
#define PAIRS_A_ROUND 2000000u
#define MAX_ROUNDS 99
#define GRANULE ((uint64_t)512)
#define BASE ((uint64_t)1 << 40)
#define SEVERAL 4096u
#define DEEP 200u
#define MANY 20000u                          /* blocks out */
#define KEEP_APART __attribute__((noinline)) /* is called, as the others are */

/* A call: of a request, which size_bytes it asks for; of a free, 0. The address is kept at `slot`, as a program keeps
 * it in its own structures: what is out has distinct slots, as few as there can be. */
typedef struct event {
    uint64_t size_bytes;
    uint32_t slot;
} event;

typedef struct iteration {
    const char *name;
    event *events;
    size_t n_events, n_slots;
    ebb_pool_request *requests;
    size_t n_requests;
} iteration;

/* The requests as read or made, before they have slots: frees name their request. */
typedef struct raw {
    uint64_t *sizes; /* of requests */
    uint32_t *calls; /* the request; with IS_FREE, its free */
    size_t n_sizes, n_calls, cap_sizes, cap_calls;
} raw;
#define IS_FREE 0x80000000u

static void fail(const char *what) {
    (void)fprintf(stderr, "bench_pool: %s\n", what);
    exit(1);
}

static void must(ebb_status st) {
    if (st != EBB_OK) { fail(ebb_last_error()); }
}

static void *take_memory(void *ptr, size_t n, size_t elem_bytes) {
    ptr = realloc(ptr, n * elem_bytes + 1);
    if (ptr == NULL) { fail("out of memory"); }
    return ptr;
}

/* ---- the iteration ---------------------------------------------------------------------------- */

static uint32_t add_request(raw *w, uint64_t size_bytes) {
    if (w->n_sizes == w->cap_sizes) {
        w->cap_sizes = 2 * w->cap_sizes + SEVERAL;
        w->sizes = take_memory(w->sizes, w->cap_sizes, sizeof *w->sizes);
    }
    w->sizes[w->n_sizes] = size_bytes;
    return (uint32_t)w->n_sizes++;
}

static void add_call(raw *w, uint32_t call) {
    if (w->n_calls == w->cap_calls) {
        w->cap_calls = 2 * w->cap_calls + SEVERAL;
        w->calls = take_memory(w->calls, w->cap_calls, sizeof *w->calls);
    }
    w->calls[w->n_calls++] = call;
}

/* The requests of a trace's last iteration; blocks from an earlier one are not among them. */
static void read_raw(const char *path, raw *w) {
    ebb_trace_reader *reader = NULL;
    uint32_t *request_of = NULL;
    size_t n_blocks = 0, cap = 0;
    ebb_trace_event e;
    bool done = false;
    must(ebb_trace_reader_open(NULL, path, &reader));
    for (must(ebb_trace_reader_next(reader, &e, &done)); !done; must(ebb_trace_reader_next(reader, &e, &done))) {
        if (e.kind == EBB_TRACE_MARK && e.mark == EBB_TRACE_ITERATION_BEGIN) {
            w->n_calls = w->n_sizes = 0;
            for (size_t b = 0; b < n_blocks; b++) { request_of[b] = NONE; }
        }
        if (e.kind == EBB_TRACE_ALLOC) {
            if (n_blocks == cap) {
                cap = 2 * cap + SEVERAL;
                request_of = take_memory(request_of, cap, sizeof *request_of);
            }
            request_of[n_blocks] = e.before ? NONE : add_request(w, e.size_bytes);
            if (!e.before) { add_call(w, request_of[n_blocks]); }
            n_blocks++;
        }
        if (e.kind == EBB_TRACE_FREE && request_of[e.block] != NONE) { add_call(w, request_of[e.block] | IS_FREE); }
    }
    ebb_trace_reader_close(reader);
    free(request_of);
}

static uint64_t draw(uint64_t *state) {
    *state += 0x9e3779b97f4a7c15u;
    uint64_t x = (*state ^ *state >> 30) * 0xbf58476d1ce4e5b9u;
    x = (x ^ x >> 27) * 0x94d049bb133111ebu;
    return x ^ x >> 31;
}

/* Blocks stack up and go in turn, as activations do; one request in two is a workspace, gone before the next but two.
 */
static void make_raw(size_t n_pairs, size_t max_deep, raw *w) {
    uint32_t *deep = take_memory(NULL, max_deep, sizeof *deep), brief[2] = {NONE, NONE};
    size_t n_deep = 0;
    bool grows = true;
    uint64_t state = n_pairs;
    for (size_t i = 0; i < n_pairs; i++) {
        const uint64_t n_granules = 1 + draw(&state) % 40, shift = draw(&state) % 6;
        const uint32_t request = add_request(w, 512 * n_granules << shift);
        add_call(w, request);
        if (i % 2 == 0) {
            const size_t k = draw(&state) % 2;
            if (brief[k] != NONE) { add_call(w, brief[k] | IS_FREE); }
            brief[k] = request;
            continue;
        }
        deep[n_deep++] = request;
        grows = grows ? n_deep < max_deep : n_deep < 2;
        for (int k = 0; k < 2 && !grows && n_deep > 0; k++) { add_call(w, deep[--n_deep] | IS_FREE); }
    }
    while (n_deep > 0) { add_call(w, deep[--n_deep] | IS_FREE); }
    for (int k = 0; k < 2; k++) {
        if (brief[k] != NONE) { add_call(w, brief[k] | IS_FREE); }
    }
    free(deep);
}

/* Slots, and how long each request lives; what is not freed within the iteration would fill any pool, and is left out.
 */
static iteration finish(const char *name, const raw *w) {
    iteration it = {.name = name};
    uint32_t *number = take_memory(NULL, w->n_sizes, sizeof *number);
    uint32_t *slot = take_memory(NULL, w->n_sizes, sizeof *slot),
             *unused = take_memory(NULL, w->n_sizes, sizeof *unused);
    size_t n_unused = 0;
    it.events = take_memory(NULL, w->n_calls, sizeof *it.events);
    it.requests = take_memory(NULL, w->n_sizes, sizeof *it.requests);
    memset(number, 0xff, w->n_sizes * sizeof *number);
    for (size_t k = 0; k < w->n_calls; k++) {
        if (w->calls[k] >= IS_FREE) { number[w->calls[k] - IS_FREE] = 0; }
    }
    for (size_t k = 0; k < w->n_calls; k++) {
        const uint32_t request = w->calls[k] & ~IS_FREE;
        if (number[request] == NONE) { continue; }
        if (w->calls[k] >= IS_FREE) {
            it.requests[number[request]].span = it.n_requests - number[request];
            it.events[it.n_events++] = (event){0, slot[request]};
            unused[n_unused++] = slot[request];
            continue;
        }
        slot[request] = n_unused > 0 ? unused[--n_unused] : (uint32_t)it.n_slots++;
        number[request] = (uint32_t)it.n_requests;
        it.requests[it.n_requests++] = (ebb_pool_request){w->sizes[request], 0};
        it.events[it.n_events++] = (event){w->sizes[request], slot[request]};
    }
    free(number);
    free(slot);
    free(unused);
    return it;
}

static iteration get_iteration(const char *name) {
    raw w = {0};
    unsigned long long n_pairs = 0, max_deep = DEEP;
    if (sscanf(name, "model:%llu:%llu", &n_pairs, &max_deep) > 0) {
        if (max_deep == 0) { fail("a model that holds nothing"); }
        make_raw(n_pairs, max_deep, &w);
    } else {
        read_raw(name, &w);
    }
    const iteration it = finish(name, &w);
    if (it.n_requests == 0) { fail("an iteration in which nothing comes and goes"); }
    free(w.sizes);
    free(w.calls);
    return it;
}

/* ---- lists as CnMem's ------------------------------------------------------------------------- */

/* The smallest hole that holds it, from a list in order of address, cut at its end; what is out stands in a list,
 * latest first, where a free looks for it; what is freed is joined to its neighbours. Without CnMem's lock. */
typedef struct piece {
    uint64_t start, n;
    struct piece *next;
} piece;

typedef struct lists {
    piece *holes, *used, *spare, *all;
} lists;

static lists make_lists(size_t n_slots) {
    lists l = {.all = take_memory(NULL, 2 * n_slots + 2, sizeof *l.all)};
    for (size_t i = 1; i < 2 * n_slots + 2; i++) {
        l.all[i].next = l.spare;
        l.spare = &l.all[i];
    }
    l.all[0] = (piece){BASE, (uint64_t)1 << 60, NULL};
    l.holes = &l.all[0];
    return l;
}

static piece *make_piece(lists *l, uint64_t start, uint64_t n, piece *next) {
    piece *p = l->spare;
    l->spare = p->next;
    *p = (piece){start, n, next};
    return p;
}

static void unlink_piece(lists *l, piece **at) {
    piece *p = *at;
    *at = p->next;
    p->next = l->spare;
    l->spare = p;
}

static KEEP_APART uint64_t take_from_lists(lists *l, uint64_t size_bytes) {
    const uint64_t n = (size_bytes + GRANULE - 1) / GRANULE * GRANULE;
    piece **best = NULL;
    for (piece **h = &l->holes; *h != NULL; h = &(*h)->next) {
        if ((*h)->n >= n && (best == NULL || (*h)->n < (*best)->n)) { best = h; }
    }
    if (best == NULL) { fail("the lists are too small"); }
    const uint64_t start = (*best)->start;
    (*best)->start += n;
    (*best)->n -= n;
    if ((*best)->n == 0) { unlink_piece(l, best); }
    l->used = make_piece(l, start, n, l->used);
    return start;
}

static KEEP_APART void give_to_lists(lists *l, uint64_t start) {
    piece **used = &l->used, **at = &l->holes, *before = NULL;
    while ((*used)->start != start) { used = &(*used)->next; }
    const uint64_t n = (*used)->n;
    unlink_piece(l, used);
    for (; *at != NULL && (*at)->start < start; at = &(*at)->next) { before = *at; }
    if (before != NULL && before->start + before->n == start) {
        before->n += n;
    } else {
        *at = before = make_piece(l, start, n, *at);
    }
    if (before->next != NULL && before->start + before->n == before->next->start) {
        before->n += before->next->n;
        unlink_piece(l, &before->next);
    }
}

/* ---- a pool's books --------------------------------------------------------------------------- */

/* Memory that knows how much of it is out. */
typedef struct books {
    ebb_mem hooks;
    size_t n_bytes;
} books;

static void *books_alloc(void *ctx, size_t size_bytes) {
    void *ptr = malloc(size_bytes);
    ((books *)ctx)->n_bytes += malloc_usable_size(ptr);
    return ptr;
}

static void *books_resize(void *ctx, void *ptr, size_t size_bytes) {
    const size_t n_before = malloc_usable_size(ptr);
    void *grown = realloc(ptr, size_bytes);
    if (grown != NULL) { ((books *)ctx)->n_bytes += malloc_usable_size(grown) - n_before; }
    return grown;
}

static void books_free(void *ctx, void *ptr) {
    ((books *)ctx)->n_bytes -= malloc_usable_size(ptr);
    free(ptr);
}

/* ---- contenders ------------------------------------------------------------------------------- */

typedef struct contender {
    const char *name;
    void (*replay)(void *state, const iteration *it, size_t n_times, uint64_t *address);
    void *state;
    books books;
    double ns[MAX_ROUNDS];
} contender;

/* The one loop: TAKE a request of `size_bytes`, to *at; GIVE *at. */
#define REPLAY(name, TAKE, GIVE)                                                                                       \
    static void name(void *state, const iteration *it, size_t n_times, uint64_t *address) {                            \
        for (size_t t = 0; t < n_times; t++) {                                                                         \
            for (const event *e = it->events; e < it->events + it->n_events; e++) {                                    \
                const uint64_t size_bytes = e->size_bytes;                                                             \
                uint64_t *at = &address[e->slot];                                                                      \
                if (size_bytes > 0) {                                                                                  \
                    TAKE;                                                                                              \
                } else {                                                                                               \
                    GIVE;                                                                                              \
                }                                                                                                      \
            }                                                                                                          \
        }                                                                                                              \
        (void)state;                                                                                                   \
    }

static KEEP_APART ebb_status take_nothing(void *state, uint64_t size_bytes, uint64_t *address_out) {
    __asm__ volatile("" : : "r"(state) : "memory");
    *address_out = size_bytes;
    return EBB_OK;
}

static KEEP_APART ebb_status give_nothing(void *state, uint64_t address) {
    __asm__ volatile("" : : "r"(state), "r"(address) : "memory");
    return EBB_OK;
}

REPLAY(replay_pool, must(ebb_pool_alloc(state, size_bytes, at)), must(ebb_pool_free(state, *at)))
REPLAY(replay_malloc, *at = (uint64_t)(uintptr_t)malloc(size_bytes), free((void *)(uintptr_t)*at))
REPLAY(replay_small_malloc, *at = (uint64_t)(uintptr_t)malloc(size_bytes / 1024 + 1), free((void *)(uintptr_t)*at))
REPLAY(replay_lists, *at = take_from_lists(state, size_bytes), give_to_lists(state, *at))
REPLAY(replay_nothing, must(take_nothing(state, size_bytes, at)), must(give_nothing(state, *at)))

static void make_pool(contender *c, const iteration *it, bool learns, bool locked) {
    ebb_pool_options options = EBB_POOL_OPTIONS_INIT;
    ebb_pool *pool = NULL;
    c->books.hooks = (ebb_mem){books_alloc, books_resize, books_free, &c->books};
    options.mem = &c->books.hooks;
    options.base = BASE;
    options.capacity_bytes = (uint64_t)1 << 60;
    options.alignment_bytes = GRANULE;
    options.learns = learns;
    options.locked = locked;
    must(ebb_pool_create(&options, &pool));
    if (it != NULL) { must(ebb_pool_plan(pool, it->requests, it->n_requests, NULL)); }
    c->state = pool;
}

/* The thread's own time, which neighbours on the machine hardly disturb. */
static uint64_t thread_ns(void) {
    struct timespec t;
    (void)clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static int compare(const void *a, const void *b) {
    const double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

/* Rounds of all contenders by turns; the one before the first warms up. */
static void measure(contender *contenders, int n, const iteration *it, int n_rounds) {
    const size_t n_times = PAIRS_A_ROUND / (it->n_requests + 1) + 1;
    uint64_t *address = take_memory(NULL, it->n_slots, sizeof *address);
    for (int round = -1; round < n_rounds; round++) {
        for (contender *c = contenders; c < contenders + n; c++) {
            const uint64_t begin = thread_ns();
            c->replay(c->state, it, n_times, address);
            if (round >= 0) { c->ns[round] = (double)(thread_ns() - begin) / (double)(n_times * it->n_requests); }
        }
    }
    for (contender *c = contenders; c < contenders + n; c++) {
        qsort(c->ns, (size_t)n_rounds, sizeof c->ns[0], compare);
    }
    free(address);
}

/* The last part of a path. */
static const char *short_name(const char *name) {
    const char *slash = strrchr(name, '/');
    return slash != NULL ? slash + 1 : name;
}

static void print_row(const contender *c, const iteration *it, int n_rounds, double pool_ns) {
    ebb_pool_stats stats = {.size_bytes = sizeof stats};
    const double median_ns = c->ns[n_rounds / 2];
    if (c->replay == replay_pool) { must(ebb_pool_get_stats(c->state, &stats)); }
    printf("%s,%s,%zu,%zu,%d,%.2f,%.2f,%.2f,%.3f,", short_name(it->name), c->name, it->n_requests, it->n_slots,
           n_rounds, median_ns, c->ns[n_rounds / 10], c->ns[n_rounds - 1 - n_rounds / 10], median_ns / pool_ns);
    if (stats.n_requests > 0) {
        printf("%.4f,%zu", (double)stats.n_hits / (double)stats.n_requests, c->books.n_bytes);
    } else {
        printf(",");
    }
    printf("\n");
}

static void compare_all(const iteration *it, int n_rounds) {
    enum { POOL, LEARNED, LOCKED, WITHOUT, SMALL_MALLOC, NOTHING, N_ALWAYS, LISTS = N_ALWAYS, MALLOC, N_ALL };
    const bool is_many = it->n_slots > MANY;
    const int n = is_many ? N_ALWAYS : N_ALL;
    lists l = make_lists(is_many ? 0 : it->n_slots);
    contender contenders[] = {
        [POOL] = {.name = "pool", .replay = replay_pool},
        [LEARNED] = {.name = "pool that learned", .replay = replay_pool},
        [LOCKED] = {.name = "pool with a lock", .replay = replay_pool},
        [WITHOUT] = {.name = "pool without a plan", .replay = replay_pool},
        [SMALL_MALLOC] = {.name = "malloc of a 1024th", .replay = replay_small_malloc}, /* nothing goes to the system */
        [NOTHING] = {.name = "loop alone", .replay = replay_nothing},
        [LISTS] = {.name = "lists as CnMem's", .replay = replay_lists, .state = &l},
        [MALLOC] = {.name = "malloc", .replay = replay_malloc},
    };
    make_pool(&contenders[POOL], it, false, false);
    make_pool(&contenders[LEARNED], NULL, true, false);
    make_pool(&contenders[LOCKED], it, false, true);
    make_pool(&contenders[WITHOUT], NULL, false, false);
    measure(contenders, n, it, n_rounds);
    for (int c = 0; c < n; c++) {
        print_row(&contenders[c], it, n_rounds, contenders[POOL].ns[n_rounds / 2]);
        if (contenders[c].replay == replay_pool) { ebb_pool_destroy(contenders[c].state); }
    }
    free(l.all);
}

int main(int argc, char **argv) {
    int n_rounds = 9, first = 1;
    if (argc > 1 && strncmp(argv[1], "rounds=", 7) == 0) { n_rounds = atoi(argv[first++] + 7); }
    if (first >= argc || n_rounds < 1 || n_rounds > MAX_ROUNDS) {
        (void)fprintf(stderr, "usage: bench_pool [rounds=N] TRACE|model:PAIRS[:DEEP]...\n");
        return 2;
    }
    printf("iteration,contender,pairs,most_out,rounds,median_ns,p10_ns,p90_ns,times_pool,hits,books_bytes\n");
    for (int i = first; i < argc; i++) {
        iteration it = get_iteration(argv[i]);
        compare_all(&it, n_rounds);
        free(it.events);
        free(it.requests);
    }
    return 0;
}
