/* SPDX-License-Identifier: Apache-2.0
 *
 * What a malloc and a free cost: the pool beside the C library's malloc and beside a list of holes as CnMem keeps it,
 * for the requests of one iteration of a recorded trace.
 *
 *   bench_pool TRACE [ROUNDS]
 *
 * The last iteration of the trace is replayed over and over, by each contender in turn, round by round; a
 * contender's figure is the median of its rounds, in ns a pair. Nothing is read or written in what is handed out.
 * Prints CSV rows. Not a test; `cmake --build build --target bench_pool`.
 */
#include "base/base.h"
#include "ebb/ebb.h"

#include <stdlib.h>
#include <time.h>

#define NONE UINT32_MAX
#define PAIRS_A_ROUND 2000000u
#define MAX_ROUNDS 99
#define GRANULE ((uint64_t)512)

/* A request, or the free of what it took. */
typedef struct event {
    uint32_t request;
    bool is_free;
} event;

typedef struct iteration {
    EBB_VEC(event) events;
    EBB_VEC(uint64_t) sizes;    /* of all requests */
    ebb_pool_request *requests; /* those that are replayed */
    size_t n_requests;
} iteration;

static void must(ebb_status st) {
    if (st == EBB_OK) { return; }
    (void)fprintf(stderr, "bench_pool: %s\n", ebb_last_error());
    exit(1);
}

static void *take_memory(size_t n, size_t elem_bytes) {
    void *ptr = ebb__calloc(NULL, n, elem_bytes);
    if (ptr == NULL) { must(EBB_E_NO_MEMORY); }
    return ptr;
}

/* ---- the iteration ---------------------------------------------------------------------------- */

/* Only the last iteration is kept; what a block took in one before is no request of it. */
static void begin_iteration(iteration *it, uint32_t *request_of, size_t n_blocks) {
    it->events.n = it->sizes.n = 0;
    for (size_t b = 0; b < n_blocks; b++) { request_of[b] = NONE; }
}

static void add_event(iteration *it, const ebb_trace_event *e, uint32_t *request_of) {
    if (e->kind == EBB_TRACE_ALLOC) {
        request_of[e->block] = e->before ? NONE : (uint32_t)it->sizes.n;
        if (e->before) { return; }
        must(EBB_PUSH(NULL, &it->events, ((event){(uint32_t)it->sizes.n, false})));
        must(EBB_PUSH(NULL, &it->sizes, e->size_bytes));
    }
    if (e->kind == EBB_TRACE_FREE && request_of[e->block] != NONE) {
        must(EBB_PUSH(NULL, &it->events, ((event){request_of[e->block], true})));
    }
}

/* How long each request lives; what is not freed within the iteration would fill any pool, and is left out. */
static void finish(iteration *it) {
    uint32_t *kept = take_memory(it->sizes.n + 1, sizeof *kept);
    size_t n_events = 0, n_requests = 0;
    for (size_t k = 0; k < it->events.n; k++) {
        if (it->events.data[k].is_free) { kept[it->events.data[k].request] = 1; }
    }
    it->requests = take_memory(it->sizes.n + 1, sizeof *it->requests);
    for (size_t k = 0; k < it->events.n; k++) {
        event e = it->events.data[k];
        if (kept[e.request] == 0) { continue; }
        if (!e.is_free) {
            it->requests[n_requests].size_bytes = it->sizes.data[e.request];
            kept[e.request] = (uint32_t)++n_requests; /* from 1 */
        }
        e.request = kept[e.request] - 1;
        if (e.is_free) { it->requests[e.request].span = n_requests - e.request; }
        it->events.data[n_events++] = e;
    }
    it->events.n = n_events;
    it->n_requests = n_requests;
    ebb__free(NULL, kept);
}

static iteration read_iteration(const char *path) {
    iteration it = {0};
    ebb_trace_reader *reader = NULL;
    EBB_VEC(uint32_t) request_of = {0};
    must(ebb_trace_reader_open(NULL, path, &reader));
    for (bool done = false; !done;) {
        ebb_trace_event e;
        must(ebb_trace_reader_next(reader, &e, &done));
        if (done) { break; }
        if (e.kind == EBB_TRACE_ALLOC) { must(EBB_PUSH(NULL, &request_of, NONE)); }
        if (e.kind == EBB_TRACE_MARK && e.mark == EBB_TRACE_ITERATION_BEGIN) {
            begin_iteration(&it, request_of.data, request_of.n);
        }
        add_event(&it, &e, request_of.data);
    }
    ebb_trace_reader_close(reader);
    EBB_VEC_FINI(NULL, &request_of);
    finish(&it);
    if (it.events.n == 0) { must(ebb_fail(EBB_E_FORMAT, "%s: nothing comes and goes in it", path)); }
    return it;
}

/* ---- a list of holes, in order of address ------------------------------------------------------ */

/* As CnMem answers: the smallest hole that holds it, cut at its end; what is freed is joined to its neighbours. */
typedef struct hole {
    uint64_t start, n;
    struct hole *next;
} hole;

typedef struct hole_list {
    hole *first, *unused;
} hole_list;

static uint64_t take_from_list(hole_list *l, uint64_t n) {
    hole **best = NULL;
    for (hole **h = &l->first; *h != NULL; h = &(*h)->next) {
        if ((*h)->n >= n && (best == NULL || (*h)->n < (*best)->n)) { best = h; }
    }
    if (best == NULL) { must(ebb_fail(EBB_E_NO_FIT, "the list is too small")); }
    hole *h = *best;
    const uint64_t start = h->start;
    h->start += n;
    h->n -= n;
    if (h->n == 0) {
        *best = h->next;
        h->next = l->unused;
        l->unused = h;
    }
    return start;
}

static void give_to_list(hole_list *l, uint64_t start, uint64_t n) {
    hole **at = &l->first, *before = NULL;
    for (; *at != NULL && (*at)->start < start; at = &(*at)->next) { before = *at; }
    hole *behind = *at;
    if (before != NULL && before->start + before->n == start) {
        before->n += n;
    } else {
        hole *h = l->unused;
        l->unused = h->next;
        *h = (hole){start, n, behind};
        *at = before = h;
    }
    if (behind != NULL && before->start + before->n == behind->start) {
        before->n += behind->n;
        before->next = behind->next;
        behind->next = l->unused;
        l->unused = behind;
    }
}

/* ---- contenders ------------------------------------------------------------------------------- */

typedef struct contender {
    const char *name;
    void (*replay)(struct contender *c, const iteration *it, size_t n_times);
    void *state;
    uint64_t *address; /* [requests] of what is out */
} contender;

static void replay_pool(contender *c, const iteration *it, size_t n_times) {
    for (size_t t = 0; t < n_times; t++) {
        for (size_t k = 0; k < it->events.n; k++) {
            const event e = it->events.data[k];
            uint64_t *address = &c->address[e.request];
            if (!e.is_free) {
                must(ebb_pool_alloc(c->state, it->requests[e.request].size_bytes, address));
            } else {
                must(ebb_pool_free(c->state, *address));
            }
        }
    }
}

static void replay_malloc(contender *c, const iteration *it, size_t n_times) {
    for (size_t t = 0; t < n_times; t++) {
        for (size_t k = 0; k < it->events.n; k++) {
            const event e = it->events.data[k];
            uint64_t *address = &c->address[e.request];
            if (!e.is_free) {
                *address = (uint64_t)(uintptr_t)malloc(it->requests[e.request].size_bytes);
            } else {
                free((void *)(uintptr_t)*address);
            }
        }
    }
}

static void replay_list(contender *c, const iteration *it, size_t n_times) {
    for (size_t t = 0; t < n_times; t++) {
        for (size_t k = 0; k < it->events.n; k++) {
            const event e = it->events.data[k];
            uint64_t *address = &c->address[e.request];
            const uint64_t n = ebb_align_up(it->requests[e.request].size_bytes, GRANULE);
            if (!e.is_free) {
                *address = take_from_list(c->state, n);
            } else {
                give_to_list(c->state, *address, n);
            }
        }
    }
}

static ebb_pool *make_pool(const iteration *it, bool plans, bool locked) {
    ebb_pool_options options = EBB_POOL_OPTIONS_INIT;
    ebb_pool *pool = NULL;
    options.base = (uint64_t)1 << 40;
    options.capacity_bytes = (uint64_t)1 << 60;
    options.alignment_bytes = GRANULE;
    options.learns = !plans;
    options.locked = locked;
    must(ebb_pool_create(&options, &pool));
    if (!plans) { return pool; }
    must(ebb_pool_plan(pool, it->requests, it->n_requests, NULL));
    return pool;
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
static void measure(contender *contenders, int n, const iteration *it, int n_rounds, double ns[][MAX_ROUNDS]) {
    const size_t n_times = PAIRS_A_ROUND / (it->n_requests + 1) + 1;
    for (int round = -1; round < n_rounds; round++) {
        for (int c = 0; c < n; c++) {
            const uint64_t begin = thread_ns();
            contenders[c].replay(&contenders[c], it, n_times);
            if (round >= 0) { ns[c][round] = (double)(thread_ns() - begin) / (double)(n_times * it->n_requests); }
        }
    }
    for (int c = 0; c < n; c++) { qsort(ns[c], (size_t)n_rounds, sizeof ns[c][0], compare); }
}

static void print_row(const contender *c, const iteration *it, int n_rounds, const double *ns, const double *pool_ns) {
    ebb_pool_stats stats = {.size_bytes = sizeof stats};
    if (c->replay == replay_pool) { must(ebb_pool_get_stats(c->state, &stats)); }
    printf("%s,%zu,%d,%.2f,%.2f,%.2f,%.4f\n", c->name, it->n_requests, n_rounds, ns[n_rounds / 2], ns[0],
           ns[n_rounds / 2] / pool_ns[n_rounds / 2],
           stats.n_requests > 0 ? (double)stats.n_hits / (double)stats.n_requests : 0.0);
}

static void compare_all(const iteration *it, int n_rounds) {
    hole *holes = take_memory(it->n_requests + 1, sizeof *holes);
    for (size_t i = 1; i < it->n_requests; i++) { holes[i].next = &holes[i + 1]; }
    holes[0] = (hole){(uint64_t)1 << 40, (uint64_t)1 << 60, NULL};
    hole_list list = {&holes[0], &holes[1]};
    contender contenders[] = {
        {"pool", replay_pool, make_pool(it, true, false), NULL},
        {"pool that learned", replay_pool, make_pool(it, false, false), NULL},
        {"pool, locked", replay_pool, make_pool(it, true, true), NULL},
        {"list of holes", replay_list, &list, NULL},
        {"malloc", replay_malloc, NULL, NULL},
    };
    enum { N = sizeof contenders / sizeof contenders[0] };
    double ns[N][MAX_ROUNDS];
    for (int c = 0; c < N; c++) { contenders[c].address = take_memory(it->n_requests, sizeof(uint64_t)); }
    measure(contenders, N, it, n_rounds, ns);
    printf("contender,pairs,rounds,median_ns,least_ns,times_pool,hits\n");
    for (int c = 0; c < N; c++) {
        print_row(&contenders[c], it, n_rounds, ns[c], ns[0]);
        if (contenders[c].replay == replay_pool) { ebb_pool_destroy(contenders[c].state); }
        ebb__free(NULL, contenders[c].address);
    }
    ebb__free(NULL, holes);
}

int main(int argc, char **argv) {
    const int n_rounds = argc > 2 ? atoi(argv[2]) : 9;
    if (argc < 2 || n_rounds < 1 || n_rounds > MAX_ROUNDS) {
        (void)fprintf(stderr, "usage: bench_pool TRACE [ROUNDS]\n");
        return 2;
    }
    iteration it = read_iteration(argv[1]);
    compare_all(&it, n_rounds);
    EBB_VEC_FINI(NULL, &it.events);
    EBB_VEC_FINI(NULL, &it.sizes);
    ebb__free(NULL, it.requests);
    return 0;
}
