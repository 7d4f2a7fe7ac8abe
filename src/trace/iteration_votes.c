/* SPDX-License-Identifier: Apache-2.0
 *
 * Which lengths an iteration may have. Windows of 1, 2, 4, ... symbols are looked up where they were last seen, and
 * each such distance is a vote for itself. Short windows vote for whatever repeats, equal layers above all; but windows
 * that are longer than all equal layers together are found again in the next iteration only, so at some width the
 * length of the iteration is among the first, however often something within it repeats. What repeats so rarely that no
 * window finds it is no iteration.
 *
 * Of long traces a share of the windows votes, chosen by what is in them, so that the same ones are chosen whenever
 * they come: time is linear in the events for each of the log n widths, but for the votes, of which there is a limit.
 * Where no window comes again, no wider one does: noise is left after a few widths.
 */
#include "trace/iteration_priv.h"

#define MAX_VOTERS ((uint32_t)1 << 16) /* about; at a width: both tables stay in a core's cache */
#define N_ELECTED 12u                  /* at a width */
#define N_SHORTEST 16u                 /* lengths that are candidates anyway: few windows would speak for them */

typedef struct seen {
    uint64_t key; /* 0: free */
    uint32_t value;
} seen;

typedef struct votes {
    seen *windows, *gaps; /* hashed; [n_slots], a power of two */
    uint32_t n_slots, n_gaps, mask;
} votes;

static uint64_t mix(uint64_t x) {
    x = (x ^ x >> 31) * 0x9e3779b97f4a7c15u;
    return x ^ x >> 29;
}

/* The key's place, or a free one. */
static seen *look_up(seen *table, uint32_t n_slots, uint64_t key) {
    EBB_ASSERT(key != 0);
    uint32_t slot = (uint32_t)(mix(key) >> 32) & (n_slots - 1);
    while (table[slot].key != 0 && table[slot].key != key) { slot = (slot + 1) & (n_slots - 1); }
    return &table[slot];
}

/* One window more was seen again behind so many events. */
static void count_gap(votes *v, uint32_t gap) {
    seen *counted = look_up(v->gaps, v->n_slots, gap);
    if (counted->key == 0) {
        if (v->n_gaps == v->n_slots / 2) { return; }
        v->n_gaps++;
        counted->key = gap;
    }
    counted->value++;
}

/* Whether a window that is wider may come again, for all that is known. */
static bool vote(votes *v, const ebb_iteration_text *text, uint32_t width) {
    const uint64_t power = ebb__iteration_power(width);
    uint32_t n_windows = 0;
    v->n_gaps = 0;
    memset(v->windows, 0, v->n_slots * sizeof *v->windows);
    memset(v->gaps, 0, v->n_slots * sizeof *v->gaps);
    for (uint32_t at = 0; at + width <= text->n; at++) {
        const uint64_t key = mix(ebb__iteration_window(text, at, width, power) + width) | 1u;
        if ((key >> 40 & v->mask) != 0) { continue; }
        seen *window = look_up(v->windows, v->n_slots, key);
        if (window->key == 0) {
            if (n_windows == v->n_slots / 2) { continue; }
            n_windows++;
            window->key = key;
        } else {
            count_gap(v, at - window->value);
        }
        window->value = at;
    }
    return n_windows == 0 || v->n_gaps > 0;
}

ebb_status ebb__iteration_add_length(const ebb_mem *mem, ebb_u32s *lengths, uint32_t length) {
    EBB_TRY(EBB_RESERVE(mem, lengths, 1));
    size_t place = lengths->n;
    while (place > 0 && lengths->data[place - 1] >= length) { place--; }
    if (place < lengths->n && lengths->data[place] == length) { return EBB_OK; }
    memmove(&lengths->data[place + 1], &lengths->data[place], (lengths->n - place) * sizeof length);
    lengths->data[place] = length;
    lengths->n++;
    return EBB_OK;
}

/* The gaps with the most votes; of as many, the shortest. */
static ebb_status elect(const votes *v, const ebb_mem *mem, ebb_u32s *lengths) {
    seen first[N_ELECTED];
    uint32_t n = 0;
    for (uint32_t slot = 0; slot < v->n_slots; slot++) {
        const seen *gap = &v->gaps[slot];
        if (gap->key == 0) { continue; }
        uint32_t place = n;
        while (place > 0 && (first[place - 1].value < gap->value ||
                             (first[place - 1].value == gap->value && first[place - 1].key > gap->key))) {
            place--;
        }
        if (place == N_ELECTED) { continue; }
        n += n < N_ELECTED;
        memmove(&first[place + 1], &first[place], (n - 1 - place) * sizeof *first);
        first[place] = *gap;
    }
    for (uint32_t i = 0; i < n; i++) { EBB_TRY(ebb__iteration_add_length(mem, lengths, (uint32_t)first[i].key)); }
    return EBB_OK;
}

ebb_status ebb__iteration_candidates(const ebb_iteration_text *text, ebb_u32s *lengths) {
    const ebb_mem *mem = text->finder->mem;
    votes v = {.n_slots = 16};
    ebb_status st = EBB_OK;
    while (v.n_slots < 2 * MAX_VOTERS && v.n_slots / 2 < text->n) { v.n_slots *= 2; }
    while (text->n / (v.mask + 1) > MAX_VOTERS) { v.mask = 2 * v.mask + 1; }
    v.windows = ebb__alloc(mem, v.n_slots, sizeof *v.windows);
    v.gaps = ebb__alloc(mem, v.n_slots, sizeof *v.gaps);
    if (v.windows == NULL || v.gaps == NULL) { st = EBB_E_NO_MEMORY; }
    for (uint32_t width = 1; st == EBB_OK && width <= text->n / 2; width *= 2) {
        if (!vote(&v, text, width)) { break; }
        st = elect(&v, mem, lengths);
    }
    for (uint32_t length = 1; st == EBB_OK && length <= N_SHORTEST; length++) {
        st = ebb__iteration_add_length(mem, lengths, length);
    }
    ebb__free(mem, v.windows);
    ebb__free(mem, v.gaps);
    return st;
}
