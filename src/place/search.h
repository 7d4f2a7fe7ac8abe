/* SPDX-License-Identifier: Apache-2.0
 *
 * What the stages of the solver 'best' share: the problem, the attempt at hand and the best so far, and the work that
 * is left.
 */
#ifndef EBB_SRC_PLACE_SEARCH_H
#define EBB_SRC_PLACE_SEARCH_H

#include "place/place_priv.h"

typedef enum ebb_order_key {
    EBB_BY_NOTHING,
    EBB_BY_SIZE,
    EBB_BY_LIFETIME,
    EBB_BY_SHORTNESS,
    EBB_BY_AREA,
    EBB_BY_BIRTH,
    EBB_BY_LOAD, /* most bytes in one of its sections */
} ebb_order_key;
#define EBB_N_ORDER_KEYS 3u

typedef struct ebb_order {
    ebb_order_key key[EBB_N_ORDER_KEYS]; /* the most important first; ties of all: by birth, larger first */
    ebb_place_fit fit;
    uint32_t n_large; /* this many of the largest go before all others */
} ebb_order;

/* Offsets, and the order that they came of. */
typedef struct ebb_attempt {
    uint32_t *idx;     /* [n_items] */
    uint64_t *offsets; /* [n_items] */
    ebb_place_fit fit;
    bool is_order;       /* it came of going through idx with this fit */
    uint64_t peak_bytes; /* UINT64_MAX: given up */
    uint32_t stuck;      /* where in idx, if an order was given up for its peak; else n_items */
} ebb_attempt;

typedef struct ebb_search {
    const ebb_place_job *job;
    const ebb_compact *compact;
    const ebb_sections *sections; /* the compact's: in here, what is called bytes is granules */
    uint64_t *key;                /* [n_items] */
    uint64_t *load;               /* [n_items]: as EBB_BY_LOAD; NULL: not known yet */
    ebb_bump *bump;               /* of the whole search */
    ebb_attempt now, best;
    uint64_t enough_bytes;
    bool is_many;          /* this many items that they are gone through but a few times, */
    bool is_hasty;         /* and near the bound is enough: see best.c */
    uint64_t proved_bytes; /* no placement has a lower peak */
    uint64_t work, max_work;
    unsigned n_exact; /* how often the exact search has been tried */
    unsigned n_hybrids;
} ebb_search;

/* How many bytes live when. */
typedef struct ebb_search_load {
    uint64_t *bytes;  /* [sections + 1] */
    uint32_t fullest; /* section, the first of equals; */
    uint32_t least;   /* likewise, on a circle; on a line it is where that begins */
    bool is_circle;
} ebb_search_load;

/* Work that may still be done. */
static inline uint64_t ebb__search_left(const ebb_search *s) {
    return s->max_work - ebb_min_u64(s->max_work, s->work);
}

/* Whether the best is nearer to the bound than by a 64th of it. */
bool ebb__search_is_near(const ebb_search *s);

/* Whether work has been done up to this much, or the best is good enough, or the caller says stop. */
bool ebb__search_is_over(const ebb_search *s, uint64_t work);

/* In a hasty search: from here on, a peak near the bound is good enough. */
void ebb__search_be_content(ebb_search *s);

/* Whether the best of a hasty search is so near the bound that a look at what is missing is worth it. */
bool ebb__search_is_almost(const ebb_search *s);

/* Keep a copy of the attempt at hand if it is better than the best so far; whether it was. */
bool ebb__search_keep(ebb_search *s);

/* Sort all items into s->now.idx. */
ebb_status ebb__search_sort(ebb_search *s, const ebb_order *order);

/* The array comes from the bump. */
ebb_status ebb__search_find_load(const ebb_search *s, ebb_bump *bump, ebb_search_load *load_out);

/* Put all that live at the fullest moment one upon the other, in this order. */
void ebb__search_stack(ebb_search *s, const uint32_t *items, size_t n_items);

/* Whether one order might take more than such a part of all work. */
bool ebb__search_is_large(const ebb_search *s, unsigned parts);

/* Each item of the order at hand where it fits among those before it. It is given up when the peak reaches
 * give_up_bytes, or when more than free_work is done, if so much is left, and too much for the items so far. */
ebb_status ebb__search_place(ebb_search *s, uint64_t give_up_bytes, uint64_t free_work);

/* As that, but items before first in the order have their offsets, and are taken. */
ebb_status ebb__search_place_from(ebb_search *s, ebb_taken *taken, size_t first, uint64_t give_up_bytes,
                                  uint64_t free_work);

/* Lower offsets of the attempt at hand first: placed so again, each item lies where it did or lower. Keeps it. */
ebb_status ebb__search_settle(ebb_search *s);

/* Stages that stand in files of their own. All may find nothing, if another has found something. */
ebb_status ebb__search_summit(ebb_search *s);
ebb_status ebb__search_quick_fronts(ebb_search *s); /* of very many items, once */
ebb_status ebb__search_fronts(ebb_search *s);
ebb_status ebb__search_hybrids(ebb_search *s);
ebb_status ebb__search_orders(ebb_search *s);
ebb_status ebb__search_exact_briefly(ebb_search *s); /* of few items, with little work */
ebb_status ebb__search_exact(ebb_search *s);         /* first with some of the work that is left, then with all */
ebb_status ebb__search_repair(ebb_search *s);

#endif
