/* SPDX-License-Identifier: Apache-2.0
 *
 * Stage: sweeps around obstacles, with more and fewer of the largest items as obstacles, and neighbours' times of death
 * weighed more and less. The best one cannot be told beforehand, and a sweep is cheap.
 *
 * With a great many items, as in allocators' traces, a sweep takes a good part of a second, and only a few are
 * tried, which look at few gaps. Large items are then not all that should be obstacles: what takes up much of size
 * times lifetime is one too, and what sticks out above the bound after a sweep is often just a handful of items that
 * found no gap wide enough. A repair makes obstacles of these as well, and sweeps again.
 */
#include "place/search.h"

#define MAX_WRAPPING 4096u
#define MAX_LARGE 4096u
#define NEAR 32u /* the bound: by less than this part of it */
#define NOT_FAR 8u
#define HASTY_WORK_AN_ITEM 36u
#define MAX_LASTING 64u   /* of the largest by size times lifetime */
#define MAX_REPAIRED 256u /* at once */

typedef struct hybrids {
    ebb_search *search;
    const ebb_compact *compact; /* as seen in this direction */
    uint32_t *by_size;          /* its items around the end, and the largest, first of all the former */
    uint32_t n_wrapping, n_by_size;
    uint32_t *lasting, n_lasting; /* the largest by size times lifetime */
    uint32_t *chosen, n_chosen;   /* to be obstacles, in the order in which they are placed */
    uint32_t *obstacles;          /* the same, by birth */
    uint32_t *of_best, n_of_best; /* that were chosen for the best so far; none: it came of something else */
    uint64_t *offsets;
    uint64_t end; /* of the work */
} hybrids;

/* Enough of the largest, largest first: those of this many orders of magnitude. */
static ebb_status list_large(hybrids *h, uint32_t n_wanted) {
    const ebb_sections *s = &h->compact->sections;
    size_t n_of_log[64] = {0}, n = 0;
    for (size_t i = 0; i < s->n_items; i++) {
        EBB_ASSERT(s->rounded[i] > 0);
        n_of_log[63 - __builtin_clzll(s->rounded[i])]++;
    }
    int log = 63;
    for (; log > 0 && n + n_of_log[log] < n_wanted; log--) { n += n_of_log[log]; }
    for (uint32_t i = 0; i < s->n_items; i++) {
        const ebb_place_range range = s->range[i];
        h->search->key[i] = range.first >= range.last ? 0 : UINT64_MAX - s->rounded[i];
        if (range.first >= range.last) {
            h->n_wrapping++;
        } else if (s->rounded[i] >> log == 0) {
            continue;
        }
        h->by_size[h->n_by_size++] = i;
    }
    EBB_ASSERT(h->n_wrapping <= h->n_by_size && h->n_by_size <= s->n_items);
    return ebb__sort_by_key(s->mem, h->by_size, h->n_by_size, h->search->key);
}

/* The largest by size times lifetime, in no order: the least of those so far makes room for one that is larger. */
static void list_lasting(hybrids *h) {
    const ebb_sections *s = &h->compact->sections;
    uint64_t area[MAX_LASTING], least = 0;
    uint32_t least_at = 0;
    for (uint32_t i = 0; i < s->n_items; i++) {
        uint64_t own = 0;
        if (!ebb_mul_u64(s->rounded[i], ebb__place_n_sections(s, i), &own)) { own = UINT64_MAX; }
        if (h->n_lasting == MAX_LASTING && own <= least) { continue; }
        if (h->n_lasting < MAX_LASTING) { least_at = h->n_lasting++; }
        area[least_at] = own;
        h->lasting[least_at] = i;
        for (uint32_t k = 0; k < h->n_lasting; k++) { least_at = area[k] < area[least_at] ? k : least_at; }
        EBB_ASSERT(h->n_lasting <= MAX_LASTING && least_at < h->n_lasting);
        least = area[least_at];
    }
}

/* Time as those that are chosen see it: in which of their own sections, cut at their births and deaths alone, each of
 * all sections begins. What they take is then found in a tree over a few sections, and not over a million. */
static uint32_t number_sections(const hybrids *h, uint32_t *number) {
    const ebb_sections *s = &h->compact->sections;
    memset(number, 0, ((size_t)s->n + 1) * sizeof *number);
    for (uint32_t i = 0; i < h->n_chosen; i++) {
        const ebb_place_range range = s->range[h->chosen[i]];
        EBB_ASSERT(range.first < s->n && range.last <= s->n);
        number[range.first] = number[range.last] = 1;
    }
    number[0] = 0;
    for (uint32_t t = 1; t <= s->n; t++) { number[t] += number[t - 1]; }
    return number[s->n - 1] + 1;
}

/* Each as low as it can lie. */
static ebb_status place_obstacles(const hybrids *h, ebb_bump *bump) {
    const ebb_sections *s = &h->compact->sections;
    ebb_taken *taken = NULL;
    EBB_ASSERT(h->n_chosen <= s->n_items);
    uint32_t *number = ebb__bump_alloc(bump, (size_t)s->n + 1, sizeof *number);
    if (number == NULL) { return EBB_E_NO_MEMORY; }
    EBB_TRY(ebb__taken_create(bump, number_sections(h, number), &taken));
    for (uint32_t i = 0; i < h->n_chosen; i++) {
        const uint32_t item = h->chosen[i];
        const ebb_place_range range = {number[s->range[item].first], number[s->range[item].last]};
        const uint64_t size_bytes = s->rounded[item];
        EBB_ASSERT(range.first != range.last || s->range[item].first >= s->range[item].last);
        h->obstacles[i] = item;
        h->search->key[item] = item;
        h->offsets[item] = ebb__taken_find(taken, range, size_bytes, 0, EBB_PLACE_LOWEST);
        EBB_TRY(ebb__taken_add(taken, range, h->offsets[item], size_bytes));
    }
    h->search->work += ebb__taken_work(taken);
    return ebb__sort_by_key(s->mem, h->obstacles, h->n_chosen, h->search->key);
}

typedef struct try {
    uint32_t n_large, n_lasting;
    uint64_t weight;
}
try;

/* In order of size, but what lives around the end first. */
static ebb_status sort_chosen(hybrids *h) {
    const ebb_sections *s = &h->compact->sections;
    for (uint32_t i = 0; i < h->n_chosen; i++) {
        const uint32_t item = h->chosen[i];
        const bool wraps = s->range[item].first >= s->range[item].last;
        h->search->key[item] = wraps ? 0 : UINT64_MAX - s->rounded[item];
    }
    return ebb__sort_by_key(s->mem, h->chosen, h->n_chosen, h->search->key);
}

static bool is_in(const uint32_t *items, uint32_t n, uint32_t item) {
    for (uint32_t i = 0; i < n; i++) {
        if (items[i] == item) { return true; }
    }
    return false;
}

static ebb_status choose(hybrids *h, const try *t) {
    const uint32_t n_most = h->n_wrapping + t->n_large, n = n_most < h->n_by_size ? n_most : h->n_by_size;
    EBB_ASSERT(n >= h->n_wrapping && n <= h->compact->sections.n_items);
    memcpy(h->chosen, h->by_size, n * sizeof *h->chosen);
    h->n_chosen = n;
    for (uint32_t i = 0; i < t->n_lasting && i < h->n_lasting; i++) {
        if (!is_in(h->chosen, n, h->lasting[i])) { h->chosen[h->n_chosen++] = h->lasting[i]; }
    }
    return t->n_lasting > 0 ? sort_chosen(h) : EBB_OK;
}

/* What sticks out of the best above the bound, in the array of obstacles, which are to be written anew. */
static uint32_t list_out(const hybrids *h) {
    const ebb_sections *s = &h->compact->sections;
    uint32_t n_out = 0;
    for (uint32_t i = 0; i < s->n_items; i++) {
        if (h->search->best.offsets[i] + s->rounded[i] > s->bound_bytes) { h->obstacles[n_out++] = i; }
    }
    EBB_ASSERT(n_out > 0 || h->search->best.peak_bytes <= s->bound_bytes);
    return n_out;
}

/* Those that were chosen for the best, and the largest that stick out of it. */
static ebb_status choose_repaired(hybrids *h) {
    const ebb_sections *s = &h->compact->sections;
    const uint32_t *out = h->obstacles, n_out = list_out(h);
    for (uint32_t i = 0; i < n_out; i++) { h->search->key[out[i]] = UINT64_MAX - s->rounded[out[i]]; }
    EBB_TRY(ebb__sort_by_key(s->mem, h->obstacles, n_out, h->search->key));
    memcpy(h->chosen, h->of_best, h->n_of_best * sizeof *h->chosen);
    h->n_chosen = h->n_of_best;
    for (uint32_t i = 0; i < n_out && h->n_chosen < h->n_of_best + MAX_REPAIRED; i++) {
        if (!is_in(h->of_best, h->n_of_best, out[i])) { h->chosen[h->n_chosen++] = out[i]; }
    }
    EBB_ASSERT(h->n_chosen >= h->n_of_best && h->n_chosen <= s->n_items);
    return sort_chosen(h);
}

static ebb_status try_chosen(hybrids *h, uint64_t weight) {
    ebb_search *s = h->search;
    ebb_bump bump;
    ebb__bump_init(&bump, s->job->mem);
    const bool is_first = s->best.peak_bytes == UINT64_MAX; /* then it is gone through whatever it takes */
    const uint64_t max_work = is_first ? UINT64_MAX : ebb__search_left(s);
    const ebb_place_hybrid_options options = {.by_death = h->compact->by_death,
                                              .obstacles = h->obstacles,
                                              .n_obstacles = h->n_chosen,
                                              .weight = weight,
                                              .is_hasty = s->is_hasty,
                                              .give_up_bytes = s->best.peak_bytes,
                                              .max_work = max_work};
    ebb_status st = place_obstacles(h, &bump);
    ebb__bump_fini(&bump);
    if (st == EBB_OK) {
        st = ebb__place_hybrid(&h->compact->sections, &options, h->offsets, &s->now.peak_bytes, &s->work);
    }
    if (st != EBB_OK || !ebb__search_keep(s)) { return st; }
    EBB_ASSERT(s->best.peak_bytes < options.give_up_bytes);
    memcpy(h->of_best, h->chosen, h->n_chosen * sizeof *h->chosen);
    h->n_of_best = h->n_chosen;
    return EBB_OK;
}

static ebb_status try_all(hybrids *h, const try *tries, size_t n_tries) {
    const ebb_search *s = h->search;
    for (size_t i = 0; i < n_tries; i++) {
        if (s->best.peak_bytes != UINT64_MAX && ebb__search_is_over(s, h->end)) { return EBB_OK; }
        EBB_TRY(choose(h, &tries[i]));
        EBB_TRY(try_chosen(h, tries[i].weight));
    }
    return EBB_OK;
}

/* ---- of a great many items -------------------------------------------------------------------- */

/* Near the bound, or a few are all that is in the way of that. */
static bool is_promising(const hybrids *h) {
    const uint64_t bound_bytes = h->search->sections->bound_bytes, excess = h->search->best.peak_bytes - bound_bytes;
    return excess < bound_bytes / NEAR || (excess < bound_bytes / NOT_FAR && list_out(h) <= MAX_REPAIRED);
}

/* Over where all is there but for a thousandth, and where a few sweeps have not helped. */
static bool is_worth_more(const hybrids *h) {
    const ebb_search *s = h->search;
    const bool is_over = ebb__search_is_over(s, ebb_min_u64(h->end, HASTY_WORK_AN_ITEM * s->sections->n_items));
    return !is_over && !ebb__search_is_almost(s);
}

/* The last try, repaired as long as that helps; before: the peak before it. */
static ebb_status repair(hybrids *h, uint64_t before) {
    const ebb_search *s = h->search;
    EBB_ASSERT(s->is_hasty && s->best.peak_bytes <= before);
    while (s->best.peak_bytes < before && is_worth_more(h)) {
        before = s->best.peak_bytes;
        EBB_TRY(choose_repaired(h));
        EBB_TRY(try_chosen(h, 0));
    }
    return EBB_OK;
}

/* With a great many items: more where the first is promising, and many obstacles only where that is not enough. */
static ebb_status try_in_haste(hybrids *h) {
    static const try tries[] = {{16, MAX_LASTING, 0}, {64, 0, 0}, {64, MAX_LASTING, 0}}, many = {1024, 0, 0};
    ebb_search *s = h->search;
    for (size_t i = 0; i < sizeof tries / sizeof *tries; i++) {
        const uint64_t before = s->best.peak_bytes;
        EBB_TRY(try_all(h, &tries[i], 1));
        if (!is_promising(h)) { break; }
        EBB_TRY(repair(h, before));
        if (!is_worth_more(h)) { break; }
    }
    ebb__search_be_content(s);
    if (!is_promising(h)) { return EBB_OK; }
    return try_all(h, &many, 1);
}

/* Where the smallest gap alone comes near the bound, more of it is tried first, else what weighs lives. */
static ebb_status try_some(hybrids *h) {
    static const try first = {64, 0, 0},
                     smallest[] = {{1024, 0, 0}, {16, 0, 0}, {256, 0, 0}, {0, 0, 0}, {MAX_LARGE, 0, 0}},
                     weighed[] = {{64, 0, 5}, {0, 0, 5}, {0, 0, 3}, {16, 0, 2}, {0, 0, 10}, {256, 0, 5}, {64, 0, 2}};
    const ebb_search *s = h->search;
    if (s->n_hybrids == 1) { return s->is_hasty ? try_in_haste(h) : try_all(h, &first, 1); }
    const bool is_near = ebb__search_is_near(s);
    if (is_near) { EBB_TRY(try_all(h, smallest, sizeof smallest / sizeof *smallest)); }
    EBB_TRY(try_all(h, weighed, sizeof weighed / sizeof *weighed));
    return try_all(h, smallest, is_near ? 0 : sizeof smallest / sizeof *smallest);
}

ebb_status ebb__search_hybrids(ebb_search *s) {
    const size_t n = s->sections->n_items;
    const uint64_t end = s->work + ebb__search_left(s) / 2;
    if (s->n_hybrids++ > 0 && ebb__search_is_over(s, end)) { return EBB_OK; }
    ebb_bump bump;
    ebb__bump_init(&bump, s->job->mem);
    hybrids h = {.search = s, .compact = s->compact, .offsets = s->now.offsets};
    h.end = s->work + ebb__search_left(s) / 2;
    h.by_size = ebb__bump_alloc(&bump, n, sizeof *h.by_size);
    h.obstacles = ebb__bump_alloc(&bump, n, sizeof *h.obstacles);
    h.chosen = ebb__bump_alloc(&bump, n, sizeof *h.chosen);
    h.of_best = ebb__bump_alloc(&bump, n, sizeof *h.of_best);
    h.lasting = ebb__bump_alloc(&bump, MAX_LASTING, sizeof *h.lasting);
    const bool has_all = h.by_size != NULL && h.obstacles != NULL && h.chosen != NULL && h.of_best != NULL;
    ebb_status st = has_all && h.lasting != NULL ? list_large(&h, MAX_LARGE) : EBB_E_NO_MEMORY;
    s->now.is_order = false;
    if (st == EBB_OK && s->is_hasty) { list_lasting(&h); }
    if (st == EBB_OK && h.n_wrapping <= MAX_WRAPPING) { st = try_some(&h); }
    ebb__bump_fini(&bump);
    return st;
}
