/* SPDX-License-Identifier: Apache-2.0
 *
 * Stage: from the fullest moment in both directions. What lives at one time can be stacked without waste, whatever it
 * is; a sweep wastes more the longer it goes on, and as much as it likes where the load is low. So what lives at the
 * fullest moment, the summit, is stacked first, and sweeps go from there in both directions (outward.c), down to the
 * least full one. Unlike the stage 'summit', it is made for problems in which nothing but noise says who lies where.
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
 * Before that, on a line of more than a few items, each side is gone through as one, under a cap a little above the
 * bound: where an item would end above it, room is made among what was born lately (room.c), and the cap rises where
 * there is none. Sizes and lifetimes that are noise come within one or two percent of the bound so. What goes on at the
 * front of a sweep has nothing in its way but what lives there, while in a whole placement, pushing one out of its
 * place only moves the hole. One or two places are what raised the cap, as a rule, so of very many items the side is
 * gone through again from a little before the first of them: first as far as a little behind it, and on only where that
 * was of use. Of fewer, going through all of it again is as cheap, and finds more.
 *
 * The stack is ordered by death, roughly, and what dies at about the same time by birth: so what goes together leaves a
 * few large gaps, in both directions.
 *
 * Of very many items this is also the first that is tried, in haste: once, with few looks, and no further than a little
 * above the bound.
 *
 * On a circle each direction is one link, and the second finds what the first has put across the lowest time.
 */
#include "place/search.h"

#define MAX_LINKS 4096u    /* in a direction */
#define CAP_PARTS 256u     /* the first cap is above the bound by such a part of it, */
#define CAP_STEPS 1024u    /* and rises by such */
#define HOPELESS_PARTS 6u  /* a cap that is above it by so much is not worth its work */
#define ENOUGH_PARTS 100u  /* of a great many items, what is above the bound by less is good enough then */
#define LEAST_PATIENCE 16u /* doubled each time */
#define HASTY_PATIENCE 256u
#define MAX_DOUBLED 4u
#define MAX_MOVABLE 16384u /* items at the summit; making room takes as long as there are items alive */
#define ALMOST_PARTS 1024u /* above the bound by more is of no use to a quick look */
#define HEIGHT 16u         /* what is high: lower than the bound by at most this part of it */
#define SWING 32u          /* the load falls by at least this part of the bound to a valley */
#define N_CLASSES 16u      /* of deaths */
#define SHARE_BORN 4u
#define MAX_WORK_AN_ITEM 400u
#define MAX_CAPPED_WORK_AN_ITEM 56u
#define MAX_RUNS 32u     /* of a side, beside the first */
#define WORK_OF_LOOKS 8u /* items looked at to a step */

typedef struct fronts {
    ebb_search *search;
    const ebb_sections *sections;
    ebb_bump *bump;
    ebb_search_load load;
    uint32_t section, lowest;
    bool is_line;             /* nothing lives around the end */
    bool is_first_look;       /* of very many items: each link is tried once, few gaps an item */
    uint32_t *alive, n_alive; /* where the link at hand begins */
    uint32_t *at_summit, n_at_summit;
    uint32_t from;            /* where the side at hand begins */
    uint32_t n_first;         /* under a cap, sections of its first link; 0: it is one */
    unsigned n_runs, n_links; /* of this side, so far */
    ebb_place_cap cap;
    uint64_t peak, give_up_bytes, end_work;
} fronts;

/* So many sections, of which the items that begin in the first n_to_place are placed. */
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

/* The section k behind this one, as the link goes. */
static uint32_t section_at(const fronts *u, const chain_link *l, uint32_t k) {
    const uint32_t n = u->sections->n;
    return l->backward ? (l->section + n - k % n) % n : (l->section + k) % n;
}

/* How many sections until the lowest before the next high place; at most max, and so many that the items that are born
 * on the way are not few beside those that live already. */
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
                                               .cap = u->cap,
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
    const size_t n_tries = u->cap.bytes > 0 || u->is_first_look ? 1 : N_WEIGHTS;
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

/* How long the next link of a side is, of so many sections that are left. */
static uint32_t length_of(const fronts *u, const chain_link *l, uint32_t n_left) {
    if (u->cap.bytes == 0) { return u->n_links < MAX_LINKS ? find_valley(u, l, n_left) : n_left; }
    return u->n_links == 0 && u->n_first > 0 && u->n_first < n_left ? u->n_first : n_left;
}

/* To the end of time, or to its beginning. */
static ebb_status place_line(fronts *u, bool backward) {
    const uint32_t n = backward ? u->from + 1 : u->sections->n - u->from;
    uint32_t done = 0;
    for (u->n_links = 0; done + 1 < n && u->peak != UINT64_MAX; u->n_links++) {
        chain_link l = {.section = backward ? u->from - done : u->from + done, .backward = backward};
        const uint32_t length = length_of(u, &l, n - 1 - done);
        l.n_sections = l.n_to_place = length + 1;
        EBB_ASSERT(length > 0 && done + length < n);
        if (u->cap.bytes > 0) { u->cap.bytes = ebb_max_u64(u->cap.bytes, u->peak); }
        EBB_TRY(place_link(u, &l));
        done += length;
    }
    return EBB_OK;
}

/* To the lowest section and, from the other side, up to that one. */
static ebb_status place_circle(fronts *u, bool backward) {
    const uint32_t forth = ebb__place_distance(u->sections->n, u->section, u->lowest),
                   back = ebb__place_distance(u->sections->n, u->lowest, u->section) + 1;
    EBB_ASSERT(!u->is_line && u->lowest != u->section);
    const chain_link l = {.section = u->section,
                          .n_sections = backward ? back : u->sections->n,
                          .n_to_place = backward ? back : forth,
                          .backward = backward};
    return place_link(u, &l);
}

/* ---- the whole -------------------------------------------------------------------------------- */

static ebb_status alloc_all(fronts *u) {
    const ebb_sections *s = u->sections;
    u->alive = ebb__bump_alloc(u->bump, s->n_items, sizeof *u->alive);
    u->at_summit = ebb__bump_alloc(u->bump, s->n_items, sizeof *u->at_summit);
    return u->alive != NULL && u->at_summit != NULL ? EBB_OK : EBB_E_NO_MEMORY;
}

/* Where a side begins, unless what is there is kept farther. */
static void begin_at_summit(fronts *u) {
    EBB_ASSERT(u->n_at_summit > 0 && u->section < u->sections->n);
    u->from = u->section;
    u->n_first = 0;
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

/* Whether a side meets the item beyond the section. */
static bool is_beyond(const fronts *u, uint32_t item, uint32_t section, bool backward) {
    const ebb_place_range range = u->sections->range[item];
    EBB_ASSERT(u->is_line && range.first < range.last);
    return backward ? range.last <= section : range.first > section;
}

static void forget_side(const fronts *u, uint32_t section, bool backward) {
    for (uint32_t i = 0; i < u->sections->n_items; i++) {
        if (is_beyond(u, i, section, backward)) { u->search->now.offsets[i] = EBB_PLACE_NOWHERE; }
    }
    u->search->work += u->sections->n_items / WORK_OF_LOOKS;
}

/* The section in which a side first meets an item that ends above the cap. */
static uint32_t find_first_above(const fronts *u, bool backward) {
    const ebb_sections *s = u->sections;
    uint32_t first = backward ? 0 : s->n - 1;
    for (uint32_t i = 0; i < s->n_items; i++) {
        const bool is_above = u->search->now.offsets[i] + s->rounded[i] > u->cap.bytes;
        if (!is_above || !is_beyond(u, i, u->section, backward)) { continue; }
        const uint32_t met = backward ? s->range[i].last - 1 : s->range[i].first;
        first = (met > first) == backward ? met : first;
    }
    u->search->work += s->n_items / WORK_OF_LOOKS;
    EBB_ASSERT(first != u->section && (first > u->section) == !backward); /* there is one: this side is the higher */
    return first;
}

/* What is alive in the section where the side is to begin, and the peak of all before it. */
static void begin_there(fronts *u, bool backward) {
    const ebb_sections *s = u->sections;
    u->n_alive = 0;
    for (uint32_t i = 0; i < s->n_items; i++) {
        if (lives_at(u, i, u->from)) { u->alive[u->n_alive++] = i; }
        if (is_beyond(u, i, u->section, backward) && !is_beyond(u, i, u->from, backward)) {
            u->peak = ebb_max_u64(u->peak, u->search->now.offsets[i] + s->rounded[i]);
        }
    }
    u->search->work += s->n_items / WORK_OF_LOOKS;
}

/* Up to where it first is above the cap, a side may stay as it is: it begins again before that, by as long as it takes
 * for twice as many items as live at the summit to be born, and twice as long each time. */
static void go_back(fronts *u, bool backward) {
    const ebb_sections *s = u->sections;
    const uint64_t n_doubled = u->n_runs < MAX_DOUBLED ? u->n_runs : MAX_DOUBLED;
    const uint64_t way = ((uint64_t)u->n_at_summit * s->n / s->n_items + 1) << n_doubled;
    const uint32_t above = find_first_above(u, backward);
    const uint32_t n_before = backward ? u->section - above : above - u->section;
    if (way >= n_before) { return; }
    u->from = backward ? above + (uint32_t)way : above - (uint32_t)way;
    u->n_first = (uint32_t)ebb_min_u64(2 * way, s->n);
    EBB_ASSERT(u->from < s->n && (u->from > u->section) == !backward);
    begin_there(u, backward);
    EBB_ASSERT(u->peak <= u->cap.bytes);
}

/* So near the bound, for what is tried so often. */
static void set_cap(fronts *u, uint64_t excess_bytes, unsigned n_tried) {
    const uint64_t bound = u->sections->bound_bytes;
    EBB_ASSERT(u->is_line && excess_bytes <= bound);
    const unsigned n_doubled = n_tried < MAX_DOUBLED ? n_tried : MAX_DOUBLED;
    const unsigned patience = u->search->is_hasty ? HASTY_PATIENCE : LEAST_PATIENCE;
    u->cap = (ebb_place_cap){bound + excess_bytes, bound / CAP_STEPS + 1, patience << n_doubled};
}

/* The side that is higher again, beginning with other weights, until the other is; if there is a cap, under one that
 * takes away a quarter of what that side has more than the bound, with more patience; of very many items only from
 * where it is above that cap. */
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
        if (u->cap.bytes > 0) {
            set_cap(u, (peak[side] - bound) / 4 * 3, u->n_runs);
            if (s->is_many) { go_back(u, side); }
        }
        forget_side(u, u->from, side);
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
    begin_at_summit(u);
    EBB_TRY(place_side(u, false, give_up_bytes, &peak_out[0]));
    if (u->cap.bytes > 0) { u->cap.bytes = ebb_max_u64(u->cap.bytes, peak_out[0]); }
    begin_at_summit(u);
    if (peak_out[0] != UINT64_MAX) { EBB_TRY(place_side(u, true, give_up_bytes, &peak_out[1])); }
    s->now.peak_bytes = ebb_max_u64(peak_out[0], peak_out[1]);
    s->now.is_order = false;
    (void)ebb__search_keep(s);
    return EBB_OK;
}

/* What all else will hardly better, of a great many items. */
static void settle_for_near(ebb_search *s) {
    const uint64_t bound = s->sections->bound_bytes;
    if (!s->is_hasty) { return; }
    s->enough_bytes = ebb_max_u64(s->enough_bytes, bound + bound / ENOUGH_PARTS);
}

/* Under a cap near the bound at first; while nothing better comes of it, under one that takes away a part of what the
 * best has more than that. */
static ebb_status run_capped(fronts *u) {
    ebb_search *s = u->search;
    const uint64_t bound = u->sections->bound_bytes, hopeless = bound + bound / HOPELESS_PARTS;
    const uint64_t share = ebb__search_left(s) / 4 * 3, most = MAX_CAPPED_WORK_AN_ITEM * u->sections->n_items;
    bool is_found = false;
    u->end_work = s->work + (s->is_hasty ? ebb_min_u64(share, most) : share);
    set_cap(u, bound / CAP_PARTS, 0);
    for (u->n_runs = 0; !is_found && !ebb__search_is_over(s, u->end_work);) {
        uint64_t peak[2];
        EBB_TRY(place_sides(u, ebb_min_u64(s->best.peak_bytes, hopeless), peak));
        is_found = s->now.peak_bytes != UINT64_MAX;
        if (is_found) {
            settle_for_near(s);
            EBB_TRY(run_again(u, peak));
        }
        forget_side(u, u->section, false);
        forget_side(u, u->section, true);
        if (s->best.peak_bytes >= hopeless) { break; }
        set_cap(u, (s->best.peak_bytes - bound) / 4 * 3, ++u->n_runs);
    }
    if (is_found && s->is_hasty) { s->enough_bytes = ebb_max_u64(s->enough_bytes, s->best.peak_bytes); }
    u->cap.bytes = 0;
    u->n_runs = 0;
    return EBB_OK;
}

static ebb_status run(fronts *u) {
    uint64_t peak[2];
    ebb_search *s = u->search;
    EBB_TRY(alloc_all(u));
    EBB_TRY(find_ends(u));
    EBB_TRY(stack(u));
    const uint64_t bound = u->sections->bound_bytes;
    if (u->is_first_look) { return place_sides(u, bound + bound / ALMOST_PARTS + 1, peak); }
    const uint64_t share = u->end_work - s->work;
    const bool is_few = u->sections->n_items <= EBB_PLACE_FEW; /* the exact search makes more of its work */
    if (u->is_line && !is_few && u->n_at_summit <= MAX_MOVABLE) { EBB_TRY(run_capped(u)); }
    u->end_work = s->work + ebb_min_u64(share, ebb__search_left(s) / 2);
    if (ebb__search_is_over(s, u->end_work)) { return EBB_OK; }
    EBB_TRY(place_sides(u, s->best.peak_bytes, peak));
    return u->is_line && s->now.peak_bytes != UINT64_MAX ? run_again(u, peak) : EBB_OK;
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
