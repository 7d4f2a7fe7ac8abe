/* SPDX-License-Identifier: Apache-2.0
 *
 * What finding the iteration costs: traces of about a million events (or of as many as the argument says) of networks
 * of equal layers, regular, with an event in fifty that is not as usual, and noise. One row a trace: events, whether it
 * was found and its length, nanoseconds an event for adding, milliseconds of processor time for finding.
 */
#include "ebb/iteration.h"

#include <stdio.h>
#include <stdlib.h>
#include <time.h>

typedef struct maker {
    ebb_iteration_finder *finder;
    uint64_t n_events, n_blocks, state;
    bool tells_accesses;
    unsigned odd; /* one event in this many; 0: none */
} maker;

static uint64_t draw(maker *m, uint64_t n) {
    m->state = m->state * 6364136223846793005u + 1442695040888963407u;
    return (m->state >> 33) % n;
}

static void add(maker *m, ebb_trace_kind kind, uint64_t block, uint64_t size_bytes) {
    ebb_trace_event event = {.kind = kind, .block = block, .size_bytes = size_bytes};
    if (ebb_iteration_finder_add(m->finder, &event) != EBB_OK) {
        fprintf(stderr, "%s\n", ebb_last_error());
        exit(1);
    }
    m->n_events++;
}

static uint64_t alloc(maker *m, uint64_t size_bytes) {
    add(m, EBB_TRACE_ALLOC, m->n_blocks, size_bytes);
    return m->n_blocks++;
}

static void touch(maker *m, ebb_trace_kind kind, uint64_t block) {
    if (m->tells_accesses) { add(m, kind, block, 0); }
    if (m->odd > 0 && draw(m, m->odd) == 0) { add(m, EBB_TRACE_FREE, alloc(m, 8 + draw(m, 99)), 0); }
}

enum { N_LAYERS = 24, N_OPS = 20 };

static void play(maker *m, const uint64_t *weights) {
    uint64_t kept[N_LAYERS][N_OPS];
    for (int l = 0; l < N_LAYERS; l++) {
        for (int o = 0; o < N_OPS; o++) {
            kept[l][o] = alloc(m, 4096u << o % 5);
            touch(m, EBB_TRACE_READ, weights[l]);
            touch(m, EBB_TRACE_WRITE, kept[l][o]);
        }
    }
    for (int l = N_LAYERS; l-- > 0;) {
        for (int o = N_OPS; o-- > 0;) {
            const uint64_t gradient = alloc(m, 4096u << o % 5);
            touch(m, EBB_TRACE_READ, kept[l][o]);
            touch(m, EBB_TRACE_WRITE, gradient);
            add(m, EBB_TRACE_FREE, kept[l][o], 0);
            add(m, EBB_TRACE_FREE, gradient, 0);
        }
    }
    for (int l = 0; l < N_LAYERS; l++) { touch(m, EBB_TRACE_WRITE, weights[l]); }
}

static void play_noise(maker *m, uint64_t n_events) {
    uint64_t live[4096], n_live = 0;
    while (m->n_events < n_events) {
        if (n_live == 0 || (n_live < 4096 && draw(m, 2) == 0)) {
            live[n_live++] = alloc(m, 512 * (1 + draw(m, 20)));
        } else {
            const uint64_t i = draw(m, n_live);
            add(m, EBB_TRACE_FREE, live[i], 0);
            live[i] = live[--n_live];
        }
    }
}

static double cpu_s(void) {
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static void measure(const char *name, uint64_t n_events, bool tells_accesses, unsigned odd, bool is_noise) {
    maker m = {.tells_accesses = tells_accesses, .odd = odd, .state = 1};
    uint64_t weights[N_LAYERS];
    ebb_iteration found;
    if (ebb_iteration_finder_create(NULL, NULL, &m.finder) != EBB_OK) { exit(1); }
    const double begin_s = cpu_s();
    if (is_noise) { play_noise(&m, n_events); }
    for (int l = 0; l < N_LAYERS && !is_noise; l++) { weights[l] = alloc(&m, 65536); }
    while (m.n_events < n_events) { play(&m, weights); }
    const double added_s = cpu_s();
    if (ebb_iteration_finder_find(m.finder, &found) != EBB_OK) { exit(1); }
    printf("%-28s %10llu %6s %8llu %8llu %8.1f %10.1f\n", name, (unsigned long long)m.n_events,
           found.found ? "yes" : "no", (unsigned long long)found.length_events, (unsigned long long)found.count,
           (added_s - begin_s) * 1e9 / (double)m.n_events, (cpu_s() - added_s) * 1e3);
    ebb_iteration_finder_destroy(m.finder);
}

int main(int argc, char **argv) {
    const uint64_t n = argc > 1 ? strtoull(argv[1], NULL, 10) : 1000000;
    printf("%-28s %10s %6s %8s %8s %8s %10s\n", "trace", "events", "found", "length", "count", "add ns", "find ms");
    measure("24 layers, malloc and free", n, false, 0, false);
    measure("24 layers, reads and writes", n, true, 0, false);
    measure("one event in 500 is odd", n, true, 500, false);
    measure("one event in 50 is odd", n, true, 50, false);
    measure("noise", n, false, 0, true);
    return 0;
}
