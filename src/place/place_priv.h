/* SPDX-License-Identifier: Apache-2.0
 *
 * The solver's parts: the problem in sections, and what of arena and time is taken already.
 */
#ifndef EBB_SRC_PLACE_PRIV_H
#define EBB_SRC_PLACE_PRIV_H

#include "base/base.h"
#include "ebb/place.h"

/* ---- solvers ---------------------------------------------------------------------------------- */

/* A solver's input: a problem that has been checked, options without defaults left open. */
typedef struct ebb_place_job {
    const ebb_place_problem *problem;
    const ebb_mem *mem;
    uint64_t enough_bytes, max_steps;
    uint64_t first_segment_bytes; /* to the replays of CnMem: see place.h */
    uint64_t default_steps;       /* of a search with more: these first, then twice as many, and so on */
    bool any_end;                 /* see ebb_place_options */
    uint64_t below_bytes;         /* to a rule: it may give up when its peak reaches this; 0: never */
    const uint64_t *starts;       /* [n_starts]: as of the options */
    size_t n_starts;
    bool is_default;         /* the caller asks neither for a peak nor for fewer steps */
    bool (*stop)(void *ctx); /* never NULL */
    void *stop_ctx;
} ebb_place_job;

/* A solver is a row of the table in place.c. It writes an offset for every item, and fills in *result. One that
 * searches finds bound_bytes itself, on its way, and raises it by what it proves; else it is ebb_place_bound's already.
 */
typedef struct ebb_place_solver {
    const char *name, *about;
    bool searches;    /* else it is a rule, which is done or gives up */
    bool takes_fixed; /* offsets */
    bool is_quick;    /* O(n log n), whatever the problem */
    ebb_status (*solve)(const ebb_place_job *job, uint64_t *offsets, ebb_place_result *result);
} ebb_place_solver;

/* For a solver that is a rule and no search, before each item or so: EBB_E_LIMIT when its steps are used up, or its
 * caller says stop. work is what it has done; *asked_work, 0 at first, what it had done when the caller was asked. */
ebb_status ebb__place_go_on(const ebb_place_job *job, uint64_t work, uint64_t *asked_work);

/* Likewise: EBB_E_LIMIT when the peak of what is placed so far is no longer below what the job asks for. */
ebb_status ebb__place_stay_below(const ebb_place_job *job, uint64_t peak_bytes);

/* The solver "best": one search or several, and the rules. */
ebb_status ebb__place_search(const ebb_place_job *job, uint64_t *offsets, ebb_place_result *result);

/* Solve a problem whose iterations begin at job->starts: equal ones as a circle, the others around them. *found_out:
 * they are alike; else nothing is written. */
ebb_status ebb__place_repeating(const ebb_place_job *job, uint64_t *offsets, ebb_place_result *result, bool *found_out);

/* A plain circle of two turns: where they are alike and an item outlives one, search for a placement that is better
 * than the one in offsets and *result. */
ebb_status ebb__place_in_turns(const ebb_place_job *job, uint64_t *offsets, ebb_place_result *result);

/* The highest end in those iterations, and the most bytes that live at one time in them. */
ebb_status ebb__place_judge_steady(const ebb_place_job *job, const uint64_t *offsets, ebb_place_result *result);

/* The steps of one search by default, whatever the problem. */
static inline uint64_t ebb__place_search_steps(size_t n_items) {
    return EBB_PLACE_STEPS + EBB_PLACE_STEPS_AN_ITEM * n_items;
}

/* One search. */
ebb_status ebb__place_any(const ebb_place_job *job, uint64_t *offsets, ebb_place_result *result);
ebb_status ebb__place_first_fit(const ebb_place_job *job, uint64_t *offsets, ebb_place_result *result);
ebb_status ebb__place_best_fit(const ebb_place_job *job, uint64_t *offsets, ebb_place_result *result);
ebb_status ebb__place_pytorch(const ebb_place_job *job, uint64_t *offsets, ebb_place_result *result);
ebb_status ebb__place_by_size(const ebb_place_job *job, uint64_t *offsets, ebb_place_result *result);
ebb_status ebb__place_smartpool_ff(const ebb_place_job *job, uint64_t *offsets, ebb_place_result *result);
ebb_status ebb__place_smartpool_bf(const ebb_place_job *job, uint64_t *offsets, ebb_place_result *result);
ebb_status ebb__place_smartpool_cyclic(const ebb_place_job *job, uint64_t *offsets, ebb_place_result *result);

/* As a solver, of plain problems only: gaps and what single items ask for are not looked at. */
ebb_status ebb__place_best(const ebb_place_job *job, uint64_t *offsets, ebb_place_result *result);

/* ---- the problem ------------------------------------------------------------------------------ */

/* Every rule that place.h states, but that fixed items do not overlap. EBB_E_ARGUMENT names what is malformed. */
ebb_status ebb__place_check_problem(const ebb_place_problem *problem);

/* Whether it is said by items, alignment_bytes and period alone. */
bool ebb__place_is_plain(const ebb_place_problem *problem);

/* The item's offset is a multiple of this. */
uint64_t ebb__place_alignment(const ebb_place_problem *problem, size_t item);

/* Whether the item has its offset. */
bool ebb__place_is_fixed(const ebb_place_problem *problem, size_t item);

/* Birth and death of an item, the moment that is the end and the beginning of a period told as its side of the life:
 * birth < death unless it lives around the end, or always. */
static inline uint64_t ebb__place_birth(uint64_t period, const ebb_place_item *item) {
    return period != 0 && item->first == period ? 0 : item->first;
}

static inline uint64_t ebb__place_death(uint64_t period, const ebb_place_item *item) {
    return period != 0 && item->last == 0 && item->first != 0 ? period : item->last;
}

/* How long it lives; a period: always. */
static inline uint64_t ebb__place_life_length(uint64_t period, const ebb_place_item *item) {
    const uint64_t birth = ebb__place_birth(period, item), death = ebb__place_death(period, item);
    EBB_ASSERT(birth < death || (birth < period && death <= birth));
    return birth < death ? death - birth : period - birth + death;
}

uint64_t ebb__place_common_divisor(uint64_t a, uint64_t b);

/* For numbers that are not 0; 0 where it has more than 63 bits. */
uint64_t ebb__place_common_multiple(uint64_t a, uint64_t b);

#define EBB_PLACE_NOWHERE UINT64_MAX /* an offset: not placed yet */

/* ---- sections --------------------------------------------------------------------------------- */

/* Time, cut where an item is born after another has died. All items that touch a section are alive together
 * at some time in it, so two items conflict exactly if they share a section, and there are far fewer sections
 * than times. */
typedef struct ebb_place_range {
    uint32_t first, last; /* sections [first, last); around the end where first >= last, as in place.h */
} ebb_place_range;

typedef struct ebb_sections {
    const ebb_mem *mem; /* where what uses them takes its memory */
    size_t n_items;
    uint32_t n;
    ebb_place_range *range; /* [n_items]; of items with no bytes: any */
    uint64_t *rounded;      /* [n_items]: sizes rounded up to the alignment */
    uint64_t bound_bytes;   /* most bytes in one section */
} ebb_sections;

/* Cut the time of a problem that has been checked, as if each item held all its bytes all its life. Arrays come from
 * the bump. */
ebb_status ebb__place_cut(const ebb_place_problem *problem, ebb_bump *bump, ebb_sections *sections_out);

/* How many sections of a circle of n there are from one on to another: fewer than n. */
static inline uint32_t ebb__place_distance(uint32_t n, uint32_t from, uint32_t to) {
    return to >= from ? to - from : n - from + to;
}

/* How many sections of this many there are in a range. */
static inline uint32_t ebb__place_length(uint32_t n, ebb_place_range range) {
    return range.first < range.last ? range.last - range.first : n - range.first + range.last;
}

/* How many sections the item lives in. */
uint32_t ebb__place_n_sections(const ebb_sections *sections, size_t item);

/* The bytes of each section; bytes has room for one more than there are. */
void ebb__place_add_up(const ebb_sections *sections, uint64_t *bytes);

/* Whether an item of a compact lives around the end. */
bool ebb__place_is_circle(const ebb_sections *sections);

/* Whether the item lives in all sections. */
bool ebb__place_lives_always(const ebb_sections *sections, size_t item);

/* A node of a tree over sections, kept as in a heap: the sections [first, last), and their halves below it. */
typedef struct ebb_place_node {
    size_t idx;
    uint32_t first, last;
} ebb_place_node;

static inline ebb_place_node ebb__place_left_of(ebb_place_node v) {
    return (ebb_place_node){2 * v.idx + 1, v.first, v.first + (v.last - v.first) / 2};
}

static inline ebb_place_node ebb__place_right_of(ebb_place_node v) {
    return (ebb_place_node){2 * v.idx + 2, v.first + (v.last - v.first) / 2, v.last};
}

/* ---- parts ------------------------------------------------------------------------------------ */

/* Bytes [low, high) of its own that an item holds in these sections. */
typedef struct ebb_place_part {
    ebb_place_range range;
    uint64_t low_bytes, high_bytes; /* rounded outwards to the alignment; low < high */
} ebb_place_part;

/* The items of any problem; those that hold nothing have no parts. */
typedef struct ebb_parts {
    const ebb_place_problem *problem;
    const ebb_mem *mem;
    uint32_t n_sections;
    ebb_place_part *part; /* by item, of one item by time */
    size_t *first;        /* [n_items + 1]: item i has the parts [first[i], first[i + 1]) */
    uint64_t *top;        /* [n_items]: end of the highest of its bytes that it ever holds */
    uint64_t *alignment;  /* [n_items] */
    size_t max_parts;     /* of an item */
    uint64_t bound_bytes; /* most bytes held in one section, and the end of the highest fixed item */
} ebb_parts;

/* For a problem that has been checked. Arrays come from the bump. */
ebb_status ebb__place_split(const ebb_place_problem *problem, ebb_bump *bump, ebb_parts *parts_out);

/* Whether there is a section in both. */
bool ebb__place_share_time(ebb_place_range a, ebb_place_range b);

/* ---- without what is easy --------------------------------------------------------------------- */

/* The items that hold something and do not live always, numbered by birth, the larger first of those born together. */
typedef struct ebb_compact {
    ebb_sections sections; /* of these items; what is called bytes in it, and in what works on it, are granules */
    uint32_t *item;        /* [sections.n_items]: its number before */
    uint32_t *by_death;    /* [sections.n_items] */
    uint64_t granule_bytes, base_bytes; /* of those that live always; they lie at the bottom */
} ebb_compact;

ebb_status ebb__place_compact(const ebb_sections *from, ebb_bump *bump, ebb_compact *compact_out);

/* Offsets of all items, from those of a compact's. */
void ebb__place_expand(const ebb_compact *compact, const ebb_place_problem *problem, const uint64_t *compact_offsets,
                       uint64_t *offsets);

/* ---- from the bottom up ----------------------------------------------------------------------- */

typedef struct ebb_place_dive_options {
    const uint64_t *rank;   /* [n_items]: lower first among items of equal offset; no two are equal */
    uint64_t cap_bytes;     /* to begin with; the lower bound or more */
    uint64_t give_up_bytes; /* when the cap reaches this */
    uint64_t max_work;
} ebb_place_dive_options;

/* For a compact's items: write their offsets. *peak_out is UINT64_MAX when it was given up. The work done is added to
 * *work. */
ebb_status ebb__place_dive(const ebb_sections *sections, const ebb_place_dive_options *options, uint64_t *offsets,
                           uint64_t *peak_out, uint64_t *work);

/* ---- through time ----------------------------------------------------------------------------- */

typedef struct ebb_place_sweep_options {
    const uint32_t *idx; /* [n_items]: in this order if born together */
    uint32_t cut;        /* the section with which it begins */
    bool backward;
    uint64_t give_up_bytes; /* when the peak reaches this */
} ebb_place_sweep_options;

/* As a dive. */
ebb_status ebb__place_sweep(const ebb_sections *sections, const ebb_place_sweep_options *options, uint64_t *offsets,
                            uint64_t *peak_out, uint64_t *work);

/* ---- through time around obstacles ------------------------------------------------------------ */

typedef struct ebb_place_span {
    uint64_t start, end; /* of the arena */
} ebb_place_span;

typedef struct ebb_place_hybrid_options {
    const uint32_t *by_death;  /* [n_items] */
    const uint32_t *obstacles; /* by birth: they have their offsets; all that live around the end are among them,
                                  those of a birth that never comes (n) last */
    uint32_t n_obstacles;
    uint64_t weight;        /* of a neighbour that dies at another time, against half a gap that is left over; 0: the
                               smallest gap is taken */
    bool is_hasty;          /* only a few gaps are looked at for an item */
    uint64_t give_up_bytes; /* when the peak reaches this */
    uint64_t max_work;
} ebb_place_hybrid_options;

/* For a compact's items. As a dive, but for the obstacles. */
ebb_status ebb__place_hybrid(const ebb_sections *sections, const ebb_place_hybrid_options *options, uint64_t *offsets,
                             uint64_t *peak_out, uint64_t *work);

/* ---- from a section outwards ------------------------------------------------------------------ */

typedef struct ebb_place_outward_options {
    const uint32_t *by_death; /* [n_items] */
    uint32_t section;         /* where it begins, */
    uint32_t n_sections;      /* and this many, that one included */
    uint32_t n_to_place;      /* of them; what begins in the others stays unplaced if it is */
    bool backward;
    const uint32_t *alive; /* all that live in the section; they have their offsets */
    uint32_t n_alive;
    bool is_hasty;
    uint64_t weight, give_up_bytes, max_work; /* as of a hybrid */
} ebb_place_outward_options;

typedef struct ebb_place_outward_result {
    uint32_t *item; /* [n_items]: items that got an offset, and some that had theirs */
    uint64_t *offset;
    size_t n_items;
    uint64_t peak; /* of all that have a place and live in the sections; UINT64_MAX: it was given up */
} ebb_place_outward_result;

/* Place a compact's items without an offset whose beginning (backward: end) lies in the first n_to_place of these
 * sections, and that live in no others. The work done is added to *work; arrays come from the bump. */
ebb_status ebb__place_outward(const ebb_sections *sections, const ebb_place_outward_options *options,
                              const uint64_t *offsets, ebb_bump *bump, ebb_place_outward_result *result_out,
                              uint64_t *work);

/* ---- exact search ----------------------------------------------------------------------------- */

typedef struct ebb_place_bnb_options {
    uint64_t enough_bytes; /* of no use is a peak below this */
    uint64_t n_before;     /* how often it was asked the same before */
    uint64_t max_work;
    bool (*stop)(void *ctx); /* never NULL */
    void *stop_ctx;
} ebb_place_bnb_options;

typedef struct ebb_place_bnb_result {
    uint64_t bound_bytes; /* no placement has a lower peak */
    uint64_t work;        /* in the measure of taken.c */
} ebb_place_bnb_result;

/* For a compact's items. offsets is a placement; each of its parts between which nothing lives is brought lower if that
 * can be done. Nothing is done where some item lives at each time of a circle, and to parts that are too large. It
 * recurses once an item, up to 2048 times. */
ebb_status ebb__place_bnb(const ebb_sections *sections, const ebb_place_bnb_options *options, uint64_t *offsets,
                          ebb_place_bnb_result *result);

/* ---- by ejection ------------------------------------------------------------------------------ */

typedef struct ebb_place_eject_options {
    uint64_t cap_bytes; /* the lower bound or more */
    uint64_t max_work;
    const ebb_place_job *job; /* its caller may stop the search; NULL: it is never stopped */
} ebb_place_eject_options;

/* Again and again, each time under a cap that takes away this many parts of the peak's excess over the bound: half of
 * them at first, then more or less as that succeeds or fails, until no part is left. */
#define EBB_EJECT_PARTS 64u
#define EBB_EJECT_FIRST_PARTS (EBB_EJECT_PARTS / 2)
#define EBB_N_EJECTIONS 4u /* that may use up their work */

static inline uint64_t ebb__place_eject_cap(uint64_t bound_bytes, uint64_t peak_bytes, uint64_t n_parts) {
    EBB_ASSERT(peak_bytes > bound_bytes && n_parts > 0 && n_parts <= EBB_EJECT_PARTS);
    const uint64_t excess = peak_bytes - bound_bytes;
    return peak_bytes - (n_parts == EBB_EJECT_PARTS ? excess : ebb_max_u64(excess / EBB_EJECT_PARTS * n_parts, 1));
}

static inline uint64_t ebb__place_eject_next_parts(uint64_t n_parts, bool gained) {
    return gained ? ebb_min_u64(2 * n_parts, EBB_EJECT_PARTS) : n_parts / 2;
}

#define EBB_EJECT_ASK_EVERY 256u /* items put back */

static inline bool ebb__place_eject_stops(const ebb_place_eject_options *options, uint32_t n_steps) {
    return n_steps % EBB_EJECT_ASK_EVERY == 0 && options->job != NULL && options->job->stop(options->job->stop_ctx);
}

/* For a compact's items: from offsets, a placement, to one under the cap. *peak_out is UINT64_MAX, and offsets are as
 * they were, when the work did not suffice. */
ebb_status ebb__place_eject(const ebb_sections *sections, const ebb_place_eject_options *options, uint64_t *offsets,
                            uint64_t *peak_out, uint64_t *work);

/* ---- what is taken ---------------------------------------------------------------------------- */

typedef struct ebb_taken ebb_taken;

typedef enum ebb_place_fit {
    EBB_PLACE_LOWEST,   /* the lowest gap that holds it */
    EBB_PLACE_TIGHTEST, /* the smallest; above all others when none does */
    EBB_PLACE_BETWEEN,  /* as TIGHTEST, but what lies below the lowest that is taken counts only when there is no other
                           gap at all */
} ebb_place_fit;

/* Everything comes from the bump and dies with it. */
ebb_status ebb__taken_create(ebb_bump *bump, uint32_t n_sections, ebb_taken **taken_out);

/* The copy has the same bytes taken; its work begins with that of copying. */
ebb_status ebb__taken_copy(const ebb_taken *from, ebb_bump *bump, ebb_taken **taken_out);

/* Before items of this many parts are looked for; one is allowed from the beginning. */
ebb_status ebb__taken_reserve(ebb_taken *taken, size_t max_parts);

/* An offset, no lower than base, at which size_bytes are free in all sections of the range. */
uint64_t ebb__taken_find(ebb_taken *taken, ebb_place_range range, uint64_t size_bytes, uint64_t base,
                         ebb_place_fit fit);

/* As find, for the parts of an item; the offset is a multiple of alignment. */
uint64_t ebb__taken_find_parts(ebb_taken *taken, const ebb_parts *parts, size_t item, uint64_t base, ebb_place_fit fit);

/* Take them. */
ebb_status ebb__taken_add(ebb_taken *taken, ebb_place_range range, uint64_t offset, uint64_t size_bytes);

/* The work of find and add so far, in steps. */
uint64_t ebb__taken_work(const ebb_taken *taken);

/* ---- filling ---------------------------------------------------------------------------------- */

/* Items with a place so far; one that holds nothing has offset 0. */
typedef struct ebb_fill {
    const ebb_parts *parts;
    ebb_taken *taken;
    uint64_t *offsets;
    uint64_t peak_bytes; /* end of the highest byte that is held */
} ebb_fill;

/* With the fixed items. EBB_E_NO_FIT names two that overlap. What it takes comes from the bump. */
ebb_status ebb__fill_begin(const ebb_parts *parts, ebb_bump *bump, uint64_t *offsets, ebb_fill *fill_out);

/* No placement of the items that are not there yet has a lower peak: the end of the one that must lie highest, alone
 * among those that are there. Fewer are looked at where all would take more work. */
uint64_t ebb__fill_bound(const ebb_fill *fill, uint64_t max_work);

/* Put the item, which holds something, at the offset; *done_out: it is free. */
ebb_status ebb__fill_put_at(ebb_fill *fill, size_t item, uint64_t offset, bool *done_out);

/* Give the item a place at or above base, unless it has one. */
ebb_status ebb__fill_put(ebb_fill *fill, size_t item, uint64_t base, ebb_place_fit fit);

/* ---- wishes ------------------------------------------------------------------------------------ */

/* Move items of an answer to their hints where that does not raise its peak. */
ebb_status ebb__place_please(const ebb_place_job *job, uint64_t *offsets, ebb_place_result *result);

/* ---- two items -------------------------------------------------------------------------------- */

/* The second's offset less the first's is at most a, or at least b. */
typedef struct ebb_apart {
    uint32_t first, second; /* as the caller calls them */
    int64_t a, b;           /* a < b */
} ebb_apart;

typedef struct ebb_aparts {
    ebb_apart *data;
    size_t n, cap;
} ebb_aparts;

/* Append what two items i and j ask for of each other, none of which overlaps another, by a. Looks at each two parts.
 */
ebb_status ebb__place_add_aparts(const ebb_parts *parts, size_t i, size_t j, ebb_apart names, ebb_aparts *list);

/* ---- by ejection, of any items ---------------------------------------------------------------- */

typedef struct ebb_ejector ebb_ejector;

/* Everything comes from the bump; NULL where there are too many that live together. */
ebb_status ebb__ejector_create(const ebb_parts *parts, ebb_bump *bump, ebb_ejector **ejector_out, uint64_t *work);

/* As ebb__place_eject, of a placement of all items. */
void ebb__ejector_run(ebb_ejector *ejector, const ebb_place_eject_options *options, uint64_t *offsets,
                      uint64_t *peak_out, uint64_t *work);

#endif
