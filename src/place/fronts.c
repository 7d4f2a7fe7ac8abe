/* SPDX-License-Identifier: Apache-2.0
 *
 * Stage: from the fullest moment in both directions. What lives at one time can be stacked without waste, whatever it
 * is; a sweep wastes more the longer it goes on, and as much as it likes where the load is low. So what lives at the
 * fullest moment, the summit, is stacked first, and sweeps go from there in both directions (outward.c), down to the
 * least full one. It pays most on plans under a budget, which are full nearly all the time.
 *
 *        load              #
 *                  #      ###   #
 *                 ###   ###### ###        #       from the summit to the right, link by link: to the valley before
 *               ####################    ####      the next high place, from there to the next valley ...
 *              ##############################
 *                 <------- | ----> -----> -->
 *
 * A link that comes out higher than all before is tried in several ways, and the lowest is kept.
 *
 * The stack is ordered by death, roughly, and what dies at about the same time by birth: so what goes together leaves a
 * few large gaps, in both directions.
 *
 * Of very many items this is also the first that is tried, in haste: once, with few looks, and no further than a little
 * above the bound.
 *
 * On a circle each direction is one link, and the second finds what the first has put across the lowest time. That is
 * in its way where it is full, so the direction goes first that puts less there. Both are tried once before either is
 * tried again: one direction alone is no placement.
 */
#include "place/search.h"

#define MAX_LINKS 4096u    /* in a direction */
#define ALMOST_PARTS 1024u /* above the bound by more is of no use to a quick look */
#define HEIGHT 16u         /* what is high: lower than the bound by at most this part of it */
#define SWING 32u          /* the load falls by at least this part of the bound to a valley */
#define N_CLASSES 16u      /* of deaths */
#define SHARE_BORN 4u
#define MAX_WORK_AN_ITEM 400u
#define MAX_RUNS 32u    /* of a side, beside the first */
#define CIRCLE_RUNS 16u /* half of them with either direction first */
#define LOAD_PARTS ((uint64_t)1 << 30)
#define WORK_OF_LOOKS 8u /* items looked at to a step */

typedef struct fronts {
    ebb_search *search;
    const ebb_sections *sections;
    ebb_bump *bump;
    ebb_search_load load;
    uint32_t section, lowest;
    bool is_line;             /* nothing lives around the end */
    bool is_first_look;       /* of very many items: each link is tried once, few gaps an item */
    bool backward_first;      /* of the two directions of a circle */
    uint32_t *alive, n_alive; /* where the link at hand begins */
    uint32_t *at_summit, n_at_summit;
    unsigned n_runs; /* of this side, so far */
    uint64_t peak, give_up_bytes, end_work;
} fronts;

/* This many sections, of which the items that begin in the first n_to_place are placed. */
typedef struct chain_link {
    uint32_t section, n_sections, n_to_place;
    bool backward;
} chain_link;

/* ---- where ------------------------------------------------------------------------------------ */

static ebb_status find_ends(fronts *u) {
    EBB_TRY(ebb__search_find_load(u->search, u->bump, &u->load));
    u->section = u->load.fullest;
    u->lowest = u->load.least != u->section ? u->load.least : (u->section + 1) % u->sections->n;
    u->is_line = !u->load.is_circle;
    return EBB_OK;
}

static bool lives_at(const fronts *u, uint32_t item, uint32_t section) {
    const ebb_place_range r = u->sections->range[item];
    return r.first < r.last ? section >= r.first && section < r.last : section >= r.first || section < r.last;
}

/* The section k steps on from the link's first. */
static uint32_t section_at(const fronts *u, const chain_link *l, uint32_t k) {
    const uint32_t n = u->sections->n;
    return l->backward ? (l->section + n - k % n) % n : (l->section + k) % n;
}

/* How many sections until the lowest before the next high place; at most max, and this many that the items that are
 * born on the way are not few beside those that live already. */
static uint32_t find_valley(const fronts *u, const chain_link *l, uint32_t max) {
    const uint64_t bound = u->sections->bound_bytes;
    EBB_ASSERT(max > 0);
    uint64_t high = 0, low = UINT64_MAX;
    uint32_t low_at = 0;
    for (uint32_t k = 1 + u->n_alive / SHARE_BORN; k < max; k++) {
        const uint64_t load = u->load.bytes[section_at(u, l, k)];
        if (load >= bound - bound / HEIGHT && load > low + ebb_min_u64(bound / SWING, UINT64_MAX - low)) {
            return low_at;
        }
        if (load > high) {
            high = load;
            low = UINT64_MAX;
        } else if (high - load >= bound / SWING && load < low) {
            low = load;
            low_at = k;
        }
    }
    return max;
}

/* ---- the stack -------------------------------------------------------------------------------- */

static void list_alive(fronts *u) {
    for (uint32_t i = 0; i < u->sections->n_items; i++) {
        u->search->now.offsets[i] = EBB_PLACE_NOWHERE;
        if (lives_at(u, i, u->section)) { u->at_summit[u->n_at_summit++] = i; }
    }
    u->search->work += u->sections->n_items / WORK_OF_LOOKS;
}

static ebb_status stack(fronts *u) {
    uint64_t *key = u->search->key;
    const ebb_sections *s = u->sections;
    list_alive(u);
    for (uint32_t i = 0; i < u->n_at_summit; i++) {
        const uint32_t item = u->at_summit[i];
        key[item] = s->n - ebb__place_distance(u->sections->n, u->section, s->range[item].last);
    }
    EBB_TRY(ebb__sort_by_key(s->mem, u->at_summit, u->n_at_summit, key));
    for (uint32_t i = 0; i < u->n_at_summit; i++) {
        const uint32_t item = u->at_summit[i],
                       age = ebb__place_distance(u->sections->n, s->range[item].first, u->section);
        key[item] = (uint64_t)i * N_CLASSES / u->n_at_summit << 32 | (UINT32_MAX - age);
    }
    EBB_TRY(ebb__sort_by_key(s->mem, u->at_summit, u->n_at_summit, key));
    ebb__search_stack(u->search, u->at_summit, u->n_at_summit);
    return EBB_OK;
}

/* ---- links ------------------------------------------------------------------------------------ */

static ebb_status try_link(fronts *u, const chain_link *l, uint64_t weight, uint64_t give_up_bytes, ebb_bump *bump,
                           ebb_place_outward_result *result_out) {
    ebb_search *s = u->search;
    const ebb_place_outward_options options = {.by_death = s->compact->by_death,
                                               .section = l->section,
                                               .n_sections = l->n_sections,
                                               .n_to_place = l->n_to_place,
                                               .backward = l->backward,
                                               .alive = u->alive,
                                               .n_alive = u->n_alive,
                                               .weight = weight,
                                               .is_hasty = u->is_first_look,
                                               .give_up_bytes = give_up_bytes,
                                               .max_work = u->end_work - ebb_min_u64(u->end_work, s->work)};
    return ebb__place_outward(u->sections, &options, s->now.offsets, bump, result_out, &s->work);
}

/* Those that live in the last section of a link, of those that live in its first and those that it has placed. */
static void move_on(fronts *u, uint32_t section, const ebb_place_outward_result *placed) {
    uint32_t n = 0;
    EBB_ASSERT(u->is_line);
    for (uint32_t i = 0; i < u->n_alive; i++) {
        if (lives_at(u, u->alive[i], section)) { u->alive[n++] = u->alive[i]; }
    }
    for (size_t i = 0; i < placed->n_items; i++) {
        if (lives_at(u, placed->item[i], section)) { u->alive[n++] = placed->item[i]; }
    }
    EBB_ASSERT(n <= u->sections->n_items);
    u->n_alive = n;
}

/* Until it comes out no higher than what is there already. */
static ebb_status place_link(fronts *u, const chain_link *l) {
    static const uint64_t weights[] = {5, 3, 10, 4, 7, 2, 6, 14};
    enum { N_WEIGHTS = sizeof weights / sizeof *weights };
    ebb_search *s = u->search;
    ebb_bump now, best;
    ebb__bump_init(&best, s->job->mem);
    ebb_place_outward_result result = {.peak = UINT64_MAX};
    ebb_status st = EBB_OK;
    const size_t n_tries = u->is_first_look || !u->is_line ? 1 : N_WEIGHTS;
    for (size_t t = 0; st == EBB_OK && t < n_tries && result.peak > u->peak; t++) {
        ebb_place_outward_result tried = {0};
        if (s->work >= u->end_work || s->job->stop(s->job->stop_ctx)) { break; }
        ebb__bump_init(&now, s->job->mem);
        st = try_link(u, l, weights[(u->n_runs + t) % N_WEIGHTS], ebb_min_u64(result.peak, u->give_up_bytes), &now,
                      &tried);
        if (st == EBB_OK && tried.peak < result.peak) {
            const ebb_bump swap = best;
            best = now;
            now = swap;
            result = tried;
        }
        ebb__bump_fini(&now);
    }
    for (size_t i = 0; i < result.n_items && result.peak != UINT64_MAX; i++) {
        s->now.offsets[result.item[i]] = result.offset[i];
    }
    u->peak = ebb_max_u64(u->peak, result.peak);
    if (u->is_line && result.peak != UINT64_MAX) { move_on(u, section_at(u, l, l->n_sections - 1), &result); }
    ebb__bump_fini(&best);
    return st;
}

/* To the end of time, or to its beginning. */
static ebb_status place_line(fronts *u, bool backward) {
    const uint32_t n = backward ? u->section + 1 : u->sections->n - u->section;
    uint32_t done = 0;
    for (unsigned n_links = 0; done + 1 < n && u->peak != UINT64_MAX; n_links++) {
        const uint32_t n_left = n - 1 - done;
        chain_link l = {.section = backward ? u->section - done : u->section + done, .backward = backward};
        const uint32_t length = n_links < MAX_LINKS ? find_valley(u, &l, n_left) : n_left;
        l.n_sections = l.n_to_place = length + 1;
        EBB_ASSERT(length > 0 && done + length < n);
        EBB_TRY(place_link(u, &l));
        done += length;
    }
    return EBB_OK;
}

/* To the lowest section and, in the direction that comes second, that one included. */
static ebb_status place_circle(fronts *u, bool backward) {
    const uint32_t length = backward ? ebb__place_distance(u->sections->n, u->lowest, u->section)
                                     : ebb__place_distance(u->sections->n, u->section, u->lowest);
    const bool is_first = backward == u->backward_first;
    EBB_ASSERT(!u->is_line && length > 0);
    const chain_link l = {.section = u->section,
                          .n_sections = is_first ? u->sections->n : length + 1,
                          .n_to_place = is_first ? length : length + 1,
                          .backward = backward};
    return place_link(u, &l);
}

/* ---- sides ------------------------------------------------------------------------------------ */

static ebb_status alloc_all(fronts *u) {
    const ebb_sections *s = u->sections;
    u->alive = ebb__bump_alloc(u->bump, s->n_items, sizeof *u->alive);
    u->at_summit = ebb__bump_alloc(u->bump, s->n_items, sizeof *u->at_summit);
    return u->alive != NULL && u->at_summit != NULL ? EBB_OK : EBB_E_NO_MEMORY;
}

/* Where a side begins. */
static void begin_at_summit(fronts *u) {
    EBB_ASSERT(u->n_at_summit > 0 && u->section < u->sections->n);
    u->n_alive = u->n_at_summit;
    memcpy(u->alive, u->at_summit, u->n_at_summit * sizeof *u->alive);
    u->peak = u->sections->bound_bytes;
}

/* In one direction, from where it begins; *peak_out is UINT64_MAX where it was given up. */
static ebb_status place_side(fronts *u, bool backward, uint64_t give_up_bytes, uint64_t *peak_out) {
    u->give_up_bytes = give_up_bytes;
    EBB_TRY((u->is_line ? place_line : place_circle)(u, backward));
    *peak_out = u->peak;
    return EBB_OK;
}

/* Whether the item lives on this side of the summit alone. */
static bool is_beyond(const fronts *u, uint32_t item, bool backward) {
    const ebb_place_range range = u->sections->range[item];
    EBB_ASSERT(u->is_line && range.first < range.last);
    return backward ? range.last <= u->section : range.first > u->section;
}

static void forget_side(const fronts *u, bool backward) {
    for (uint32_t i = 0; i < u->sections->n_items; i++) {
        if (is_beyond(u, i, backward)) { u->search->now.offsets[i] = EBB_PLACE_NOWHERE; }
    }
    u->search->work += u->sections->n_items / WORK_OF_LOOKS;
}

/* The side that is higher again, beginning with other weights, until the other is. */
static ebb_status run_again(fronts *u, uint64_t peak[2]) {
    ebb_search *s = u->search;
    const uint64_t bound = u->sections->bound_bytes;
    unsigned n_tried[2] = {0};
    for (;;) {
        const bool side = peak[1] > peak[0];
        if (peak[side] == bound || ++n_tried[side] > MAX_RUNS || ebb__search_is_over(s, u->end_work)) { return EBB_OK; }
        uint64_t found = UINT64_MAX;
        u->n_runs = n_tried[side];
        begin_at_summit(u);
        forget_side(u, side);
        EBB_TRY(place_side(u, side, peak[side], &found));
        if (found == UINT64_MAX) {
            memcpy(s->now.offsets, s->best.offsets, u->sections->n_items * sizeof *s->now.offsets);
            continue;
        }
        EBB_ASSERT(found < peak[side] && found >= bound);
        peak[side] = found;
        s->now.peak_bytes = ebb_max_u64(peak[0], peak[1]);
        if (!ebb__search_keep(s)) { /* the sides were equal */
            memcpy(s->best.offsets, s->now.offsets, u->sections->n_items * sizeof *s->best.offsets);
        }
    }
}

/* Both sides; their peaks are UINT64_MAX where they were given up. */
static ebb_status place_sides(fronts *u, uint64_t give_up_bytes, uint64_t peak_out[2]) {
    ebb_search *s = u->search;
    peak_out[0] = peak_out[1] = UINT64_MAX;
    const bool first = u->backward_first;
    begin_at_summit(u);
    EBB_TRY(place_side(u, first, give_up_bytes, &peak_out[first]));
    begin_at_summit(u);
    if (peak_out[first] != UINT64_MAX) { EBB_TRY(place_side(u, !first, give_up_bytes, &peak_out[!first])); }
    s->now.peak_bytes = ebb_max_u64(peak_out[0], peak_out[1]);
    s->now.is_order = false;
    (void)ebb__search_keep(s);
    return EBB_OK;
}

/* ---- a circle --------------------------------------------------------------------------------- */

/* How many of the sections before each, counted from the summit, are high. */
static ebb_status count_high(const fronts *u, uint32_t **before_out) {
    const uint32_t n = u->sections->n;
    const uint64_t bound = u->sections->bound_bytes;
    uint32_t *before = ebb__bump_alloc(u->bump, (size_t)n + 1, sizeof *before);
    if (before == NULL) { return EBB_E_NO_MEMORY; }
    before[0] = 0;
    for (uint32_t k = 0; k < n; k++) {
        const uint64_t load = u->load.bytes[(uint32_t)(((uint64_t)u->section + k) % n)];
        before[k + 1] = before[k] + (load >= bound - bound / HEIGHT);
    }
    *before_out = before;
    return EBB_OK;
}

/* What lives across the lowest section, and not at the summit, is placed by the direction that comes first. How much of
 * it lies where the other's sections are high tells which should come first. */
static ebb_status pick_first(fronts *u) {
    const ebb_sections *s = u->sections;
    const uint64_t part_bytes = s->bound_bytes / LOAD_PARTS + 1;
    const uint32_t lowest = ebb__place_distance(s->n, u->section, u->lowest);
    uint32_t *before = NULL;
    uint64_t ahead = 0,
             behind = 0; /* of the lowest section: they hold no more than the bound's parts in each section */
    EBB_TRY(count_high(u, &before));
    for (uint32_t i = 0; i < s->n_items; i++) {
        const ebb_place_range range = s->range[i];
        if (!lives_at(u, i, u->lowest) || lives_at(u, i, u->section)) { continue; }
        const uint32_t first = ebb__place_distance(s->n, u->section, range.first);
        const uint32_t last = first + ebb__place_n_sections(s, i);
        EBB_ASSERT(first <= lowest && lowest < last && last <= s->n);
        ahead += s->rounded[i] / part_bytes * (before[last] - before[lowest]);
        behind += s->rounded[i] / part_bytes * (before[lowest] - before[first]);
    }
    u->backward_first = behind < ahead;
    u->search->work += s->n_items / WORK_OF_LOOKS;
    return EBB_OK;
}

/* Nothing but what lives at the summit has a place again. */
static void forget_sides(const fronts *u) {
    for (uint32_t i = 0; i < u->sections->n_items; i++) {
        if (!lives_at(u, i, u->section)) { u->search->now.offsets[i] = EBB_PLACE_NOWHERE; }
    }
    ebb__search_stack(u->search, u->at_summit, u->n_at_summit);
    u->search->work += u->sections->n_items / WORK_OF_LOOKS;
}

/* With either direction first in turn, and then with other weights. Nothing else comes as near to the bound of a circle
 * that is full nearly all the time, so the first run may take all the work that is left. */
static ebb_status run_circle(fronts *u) {
    ebb_search *s = u->search;
    uint64_t peak[2];
    const uint64_t end_work = u->end_work;
    EBB_TRY(pick_first(u));
    u->end_work = s->max_work;
    EBB_TRY(place_sides(u, s->best.peak_bytes, peak));
    u->end_work = end_work;
    for (unsigned r = 1; r < CIRCLE_RUNS && !ebb__search_is_over(s, end_work); r++) {
        u->n_runs = r / 2;
        u->backward_first = !u->backward_first;
        forget_sides(u);
        EBB_TRY(place_sides(u, s->best.peak_bytes, peak));
    }
    return EBB_OK;
}

/* ---- the whole -------------------------------------------------------------------------------- */

static ebb_status run(fronts *u) {
    uint64_t peak[2];
    ebb_search *s = u->search;
    EBB_TRY(alloc_all(u));
    EBB_TRY(find_ends(u));
    EBB_TRY(stack(u));
    const uint64_t bound = u->sections->bound_bytes;
    if (u->is_first_look) { return place_sides(u, bound + bound / ALMOST_PARTS + 1, peak); }
    if (ebb__search_is_over(s, u->end_work)) { return EBB_OK; }
    if (!u->is_line) { return run_circle(u); }
    EBB_TRY(place_sides(u, s->best.peak_bytes, peak));
    return s->now.peak_bytes != UINT64_MAX ? run_again(u, peak) : EBB_OK;
}

/* Lifetimes of a program, and of the blocks of one that ran, come to the bound at once as a rule; others are given up
 * early. */
ebb_status ebb__search_quick_fronts(ebb_search *s) {
    if (!s->is_many || s->sections->n < 2 || ebb__search_is_over(s, s->max_work)) { return EBB_OK; }
    ebb_bump bump;
    ebb__bump_init(&bump, s->job->mem);
    fronts u = {.search = s, .sections = s->sections, .bump = &bump, .is_first_look = true, .end_work = s->max_work};
    const ebb_status st = run(&u);
    if (ebb__search_is_almost(s)) { ebb__search_be_content(s); }
    ebb__bump_fini(&bump);
    return st;
}

ebb_status ebb__search_fronts(ebb_search *s) {
    const uint64_t share = ebb__search_left(s) / 2;
    const uint64_t end = s->work + ebb_min_u64(share, MAX_WORK_AN_ITEM * s->sections->n_items);
    if (s->sections->n < 2 || ebb__search_is_over(s, end)) { return EBB_OK; }
    ebb_bump bump;
    ebb__bump_init(&bump, s->job->mem);
    fronts u = {.search = s, .sections = s->sections, .bump = &bump, .end_work = end};
    const ebb_status st = run(&u);
    ebb__search_be_content(s);
    ebb__bump_fini(&bump);
    return st;
}
