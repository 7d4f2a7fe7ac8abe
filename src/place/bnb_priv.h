/* SPDX-License-Identifier: Apache-2.0
 *
 * The state of the exact search (bnb.c), and what its two halves ask of each other: bnb_state.c places, takes back and
 * draws conclusions, bnb_search.c chooses and branches.
 */
#ifndef EBB_SRC_PLACE_BNB_PRIV_H
#define EBB_SRC_PLACE_BNB_PRIV_H

#include "place/place_priv.h"

/* Heights add up to less than this, so that the sum of a few fits. */
#define EBB_BNB_TOO_HIGH ((int64_t)1 << 60)
#define EBB_BNB_MAX_ITEMS EBB_PLACE_FEW /* the search recurses once an item, and every reason has a bit for each */
#define EBB_BNB_NONE UINT32_MAX

/* Where the search goes on when several places are open. */
typedef enum ebb_bnb_mode {
    EBB_BNB_LOWEST,  /* at the lowest, with what is first in rank */
    EBB_BNB_NEAREST, /* where there are fewest choices; if equally few, near the last */
    EBB_BNB_LEARNT,  /* where there are fewest choices for each time that a section has failed */
    EBB_BNB_N_MODES
} ebb_bnb_mode;

typedef enum ebb_bnb_verdict { EBB_BNB_NO, EBB_BNB_YES, EBB_BNB_OUT, EBB_BNB_AGAIN } ebb_bnb_verdict;

typedef struct ebb_bnb_undo {
    int64_t *at, old;
} ebb_bnb_undo;

/* A set of levels; n_words words. Level l is the decision about the (l + 1)th item in placed_order. */
typedef uint64_t *ebb_bnb_reason;

typedef struct ebb_bnb {
    uint32_t n, m; /* items, sections */
    /* The problem: items in order of their first section. */
    ebb_place_range *range;
    int64_t *size;
    uint32_t *begin_at;    /* [m + 1]: the first item that begins at this section or later */
    uint32_t *class_of;    /* [n]: the first item of the same range */
    uint32_t *twin;        /* [n]: the item before this of the same range and size, or NONE: it goes first */
    uint64_t *load;        /* [m] */
    uint32_t n_list_total; /* of all items' sections */
    /* How it is searched: set before a run. */
    uint32_t *rank; /* [n] */
    ebb_bnb_mode mode;
    int64_t cap;
    uint64_t max_work;  /* of a run */
    uint64_t most_work; /* of all runs; before ebb__bnb_prepare */
    bool (*stop)(void *ctx);
    void *stop_ctx;
    /* The state. */
    int64_t *sky;       /* [m]: nothing more is placed below */
    int64_t *top;       /* [m]: the end of the highest item placed; below sky something is lost */
    int64_t *top_item;  /* [m]: which that is, or -1 */
    int64_t *slack;     /* [m]: what may still be lost */
    int64_t *least;     /* [n]: lowest offset still possible */
    int64_t *least_top; /* [n]: the highest top below it: it lies there or on something still to be placed */
    int64_t *ruled_out; /* [n]: 'least' as of when its last offset was ruled out, for the reason kept for the item */
    int64_t *offset;    /* [n] */
    bool *is_placed;    /* [n] */
    uint32_t *placed_order, n_placed;
    uint32_t *class_left; /* [n]: of a class, items to be placed */
    uint32_t *witness;    /* [m]: an item whose least offset is sky, while that is so */
    uint32_t *crossing;   /* [m + 1]: unplaced items that live in the sections on both sides of this beginning */
    /* Unplaced items of section t: list[list_at[t] ... + n_list[t]]; after them those placed, last first. */
    uint32_t *list, *list_at, *n_list;
    /* Where item i is in the list of its k-th section: place_in[place_in_at[i] + k]. */
    uint32_t *place_in, *place_in_at;
    /* To take back. */
    ebb_bnb_undo *trail;
    size_t n_trail, max_trail;
    uint64_t *old_reason; /* n_words for each */
    uint32_t *old_reason_of;
    size_t n_old_reasons, max_old_reasons;
    /* Why: of sections, that sky is no lower; of items, that the offset was ruled out; of the last failure. */
    uint32_t n_words;
    uint64_t *reason; /* [m + n] of n_words */
    ebb_bnb_reason why, scratch;
    /* Everything learnt, for all runs. */
    uint64_t *refuted; /* [n_refuted]: hashes of states that cannot be completed; 0: none. */
    uint64_t n_refuted;
    uint64_t *item_hash;
    uint32_t *n_failed; /* [m] */
    uint64_t work;      /* of this run */
    uint64_t n_asked;   /* steps, for asking whether to stop */
    uint32_t last_at;
} ebb_bnb;

/* In items, range and size are the caller's to fill in before ebb__bnb_prepare, sorted by range.first; n and m too. All
 * comes from the bump. */
ebb_status ebb__bnb_create(ebb_bump *bump, uint32_t n, uint32_t m, ebb_bnb *b_out);
ebb_status ebb__bnb_prepare(ebb_bnb *b, ebb_bump *bump);

/* All into b->offset within b->cap, by b->rank and b->mode: YES; NO: it cannot be; OUT: max_work did not suffice. */
ebb_bnb_verdict ebb__bnb_run(ebb_bnb *b);

/* ---- the state, for bnb_search.c -------------------------------------------------------------- */

void ebb__bnb_reset(ebb_bnb *b);

/* Sky, sizes still to be placed, and slack make up the cap of each section, and no least offset is below the sky. Goes
 * through all lists. */
bool ebb__bnb_is_valid(const ebb_bnb *b);

void ebb__bnb_place(ebb_bnb *b, uint32_t item); /* at its least offset, which its sections all have as sky */
typedef struct ebb_bnb_mark {
    size_t n_trail, n_old_reasons;
    uint32_t n_placed;
} ebb_bnb_mark;
ebb_bnb_mark ebb__bnb_mark(const ebb_bnb *b);
void ebb__bnb_undo(ebb_bnb *b, ebb_bnb_mark mark);
bool ebb__bnb_has_room(const ebb_bnb *b); /* for another round of changes to take back */

/* These return false for a contradiction, with b->why. */
bool ebb__bnb_propagate(ebb_bnb *b, ebb_place_range part);
/* The item lies above its least offset, for the reason given or, without one, because nothing there is below it. */
bool ebb__bnb_rule_out(ebb_bnb *b, uint32_t item, const uint64_t *reason);

/* Add to 'to' why the item's offset is no lower than that; why all its sections are as they are. */
void ebb__bnb_why_least(const ebb_bnb *b, uint32_t item, int64_t offset, ebb_bnb_reason to);
void ebb__bnb_why_sections(const ebb_bnb *b, ebb_place_range range, ebb_bnb_reason to);
void ebb__bnb_why_part(ebb_bnb *b, ebb_place_range part);

/* What the rest of the part depends on. */
uint64_t ebb__bnb_key(const ebb_bnb *b, ebb_place_range part);

/* What a step in this part counts as. */
static inline uint64_t ebb__bnb_step_work(const ebb_bnb *b, ebb_place_range part) {
    return 8 + (3 * (part.last - part.first) + b->begin_at[part.last] - b->begin_at[part.first]) / 4;
}

static inline uint64_t *ebb__bnb_reason_of_section(const ebb_bnb *b, uint32_t section) {
    return b->reason + (size_t)section * b->n_words;
}

static inline uint64_t *ebb__bnb_reason_of_item(const ebb_bnb *b, uint32_t item) {
    return b->reason + ((size_t)b->m + item) * b->n_words;
}

#endif
