/* SPDX-License-Identifier: Apache-2.0
 *
 * Room at the front of a sweep: an item is born, the arena ends at a cap, and no gap holds the item. Bytes enough are
 * free as a rule, but in many small gaps. So it is put where what it overlaps is least worth; that is taken out and
 * put back likewise, the largest first, until nothing is left over, or it has taken too long and all stays as it was.
 *
 *           t0              now
 *            |    ###########|####x x x x        Nothing lies to the right of the front but what lives there, so small
 *            | ######   #####|##                 items find a place where ejection from a whole placement (eject.c)
 *            |#########  ####|#######            finds none. Only what was born since t0 is moved: of the past, only
 *                                                what lived then is looked at.
 *
 * Worth is size, up to nine times as much the longer the item has lived since t0: what was just born finds another
 * place easily, as nothing is there yet in its future, while an older one needs a gap that has been there as long. It
 * is a quarter more each time that an item had to be put back by force.
 *
 * The past is as long as it took for as many items as live now to be born. t0 never goes back, so who is dead by then
 * is forgotten, and finding who lives costs O(1) an item over all calls.
 */
#include "place/place_priv.h"

#define WORK_OF_SORT 4u   /* a lodger */
#define LITTLE 16u        /* is left of a gap: by less than this part of the item */
#define WORK_OF_LOOKS 4u  /* lodgers looked at to a step */
#define WORK_OF_SHIFTS 8u /* tops put up by one to a step */
#define NEWBORN 16u       /* worth of a byte that has not lived yet; */
#define MAX_AGE 128u      /* what one that has lived since t0 has more; */
#define MAX_GROWTH 64u    /* newborns' worth that one comes to by being put back */

typedef struct lodger {
    uint64_t offset, size_bytes, worth;
    ebb_place_range range;
    uint32_t item;
    bool is_fixed, is_moved;
} lodger;

/* Where a lodger begins, or ends, and what it is worth. */
typedef struct edge {
    uint64_t at, worth;
    uint32_t n_fixed;
} edge;

typedef EBB_VEC(lodger) lodgers;

struct ebb_room {
    const ebb_sections *sections;
    lodgers in, before, out; /* those that have a place, by address; those at first; those to be put back */
    EBB_VEC(edge) bottoms;   /* of those that live together with the one looked at, by address */
    EBB_VEC(edge) tops;
    EBB_VEC(uint32_t) idx; /* scratch for sorting, and who has been moved */
    EBB_VEC(uint64_t) key;
    uint32_t n_seen;  /* items before it are in, if they have to be */
    uint32_t horizon; /* t0 */
    uint64_t work;
};

/* ---- who lives here --------------------------------------------------------------------------- */

/* How many of them, and of those before the item that have not been seen, live when it is born. */
static uint32_t count_alive(const ebb_room *r, uint32_t item) {
    const uint32_t section = r->sections->range[item].first;
    uint32_t n = 0;
    for (size_t i = 0; i < r->in.n; i++) { n += r->in.data[i].range.last > section; }
    for (uint32_t i = r->n_seen; i < item; i++) { n += r->sections->range[i].last > section; }
    return n;
}

/* How much of the time from t0 until now it has lived. */
static uint64_t worth_of(const ebb_room *r, const lodger *l, uint32_t now) {
    const uint32_t first = l->range.first > r->horizon ? l->range.first : r->horizon;
    const uint32_t last = l->range.last < now ? l->range.last : now;
    EBB_ASSERT(r->horizon <= now);
    if (first >= last) { return l->size_bytes * NEWBORN; }
    return l->size_bytes * (NEWBORN + (uint64_t)MAX_AGE * (last - first) / (now - r->horizon));
}

static void forget(ebb_room *r, uint32_t now) {
    size_t n = 0;
    for (size_t i = 0; i < r->in.n; i++) {
        lodger l = r->in.data[i];
        l.is_fixed = l.is_fixed || l.range.first < r->horizon;
        l.is_moved = false;
        l.worth = worth_of(r, &l, now);
        if (l.range.last > r->horizon) { r->in.data[n++] = l; }
    }
    r->in.n = n;
}

/* Those before this item that the past has not forgotten. */
static ebb_status update(ebb_room *r, uint32_t item, const uint64_t *offsets) {
    const ebb_sections *s = r->sections;
    const uint32_t now = s->range[item].first, n_alive = count_alive(r, item);
    const uint32_t since = s->range[item > n_alive ? item - n_alive : 0].first;
    r->horizon = since > r->horizon ? since : r->horizon;
    forget(r, now);
    for (; r->n_seen < item; r->n_seen++) {
        const uint32_t i = r->n_seen;
        lodger l = {.offset = offsets[i],
                    .size_bytes = s->rounded[i],
                    .range = s->range[i],
                    .item = i,
                    .is_fixed = s->range[i].first < r->horizon};
        l.worth = worth_of(r, &l, now);
        EBB_ASSERT(l.offset != EBB_PLACE_NOWHERE);
        if (l.range.last > r->horizon) { EBB_TRY(EBB_PUSH(s->mem, &r->in, l)); }
    }
    return EBB_OK;
}

/* For all that are in, and one more. */
static ebb_status reserve(ebb_room *r) {
    const ebb_mem *mem = r->sections->mem;
    const size_t n = r->in.n + 1;
    r->before.n = r->out.n = r->bottoms.n = r->tops.n = r->idx.n = r->key.n = 0;
    EBB_TRY(EBB_RESERVE(mem, &r->in, 1));
    EBB_TRY(EBB_RESERVE(mem, &r->before, n));
    EBB_TRY(EBB_RESERVE(mem, &r->out, n));
    EBB_TRY(EBB_RESERVE(mem, &r->bottoms, n));
    EBB_TRY(EBB_RESERVE(mem, &r->tops, n));
    EBB_TRY(EBB_RESERVE(mem, &r->idx, n));
    return EBB_RESERVE(mem, &r->key, n);
}

static ebb_status sort_by_address(ebb_room *r) {
    for (uint32_t i = 0; i < r->in.n; i++) {
        r->idx.data[i] = i;
        r->key.data[i] = r->in.data[i].offset;
        r->before.data[i] = r->in.data[i];
    }
    EBB_TRY(ebb__sort_by_key(r->sections->mem, r->idx.data, r->in.n, r->key.data));
    for (size_t i = 0; i < r->in.n; i++) { r->in.data[i] = r->before.data[r->idx.data[i]]; }
    memcpy(r->before.data, r->in.data, r->in.n * sizeof *r->in.data);
    r->before.n = r->in.n;
    return EBB_OK;
}

/* ---- one move --------------------------------------------------------------------------------- */

static bool live_together(const lodger *a, const lodger *b) {
    return (a->range.first < b->range.last) & (b->range.first < a->range.last); /* no branch: either is as likely */
}

static void add_edges(ebb_room *r, const lodger *l) {
    const uint64_t end = l->offset + l->size_bytes;
    r->bottoms.data[r->bottoms.n++] = (edge){l->offset, l->worth, l->is_fixed};
    size_t at = r->tops.n++;
    for (; at > 0 && r->tops.data[at - 1].at > end; at--) { r->tops.data[at] = r->tops.data[at - 1]; }
    r->work += (r->tops.n - 1 - at) / WORK_OF_SHIFTS;
    r->tops.data[at] = (edge){end, l->worth, l->is_fixed};
}

/* The smallest gap below the cap that holds it, or NOWHERE; lists the edges of what it lives together with. */
static uint64_t find_gap(ebb_room *r, const lodger *x, uint64_t cap_bytes) {
    uint64_t top = 0, best = EBB_PLACE_NOWHERE, least = UINT64_MAX;
    r->bottoms.n = r->tops.n = 0;
    size_t i = 0;
    for (; i <= r->in.n; i++) {
        const lodger *l = i < r->in.n ? &r->in.data[i] : NULL;
        if (l != NULL && !live_together(l, x)) { continue; }
        const uint64_t end = l != NULL ? l->offset : cap_bytes;
        if (end >= top && end - top >= x->size_bytes && end - top < least) {
            least = end - top;
            best = top;
            if (least - x->size_bytes <= x->size_bytes / LITTLE) { break; }
        }
        if (l != NULL) {
            add_edges(r, l);
            top = ebb_max_u64(top, l->offset + l->size_bytes);
        }
    }
    r->work += 1 + i / WORK_OF_LOOKS;
    return best;
}

/* Above each top in turn, for if it overlaps less elsewhere, it overlaps no more at the next top below; NOWHERE where
 * something that is fixed is always in the way. */
static uint64_t find_cheapest(const ebb_room *r, const lodger *x, uint64_t cap_bytes) {
    uint64_t begun = 0, ended = 0, least = UINT64_MAX, best = EBB_PLACE_NOWHERE; /* worth may go round, and back */
    uint32_t n_fixed = 0;
    size_t n_begun = 0;
    for (size_t k = 0; k <= r->tops.n; k++) {
        const edge top = k > 0 ? r->tops.data[k - 1] : (edge){0, 0, 0};
        if (top.at > cap_bytes - x->size_bytes) { break; }
        ended += top.worth;
        n_fixed -= top.n_fixed;
        for (; n_begun < r->bottoms.n && r->bottoms.data[n_begun].at < top.at + x->size_bytes; n_begun++) {
            begun += r->bottoms.data[n_begun].worth;
            n_fixed += r->bottoms.data[n_begun].n_fixed;
        }
        if (n_fixed == 0 && begun - ended < least) {
            least = begun - ended;
            best = top.at;
        }
    }
    return best;
}

static void push_out(ebb_room *r, const lodger *x) {
    EBB_ASSERT(!x->is_fixed && x->offset != EBB_PLACE_NOWHERE);
    size_t n = 0;
    for (size_t i = 0; i < r->in.n; i++) {
        const lodger l = r->in.data[i];
        const bool is_in_the_way =
            live_together(&l, x) && l.offset < x->offset + x->size_bytes && x->offset < l.offset + l.size_bytes;
        EBB_ASSERT(!is_in_the_way || !l.is_fixed);
        if (is_in_the_way) {
            r->out.data[r->out.n++] = l;
        } else {
            r->in.data[n++] = l;
        }
    }
    r->in.n = n;
}

static void put_in(ebb_room *r, lodger x) {
    size_t lo = 0, hi = r->in.n;
    while (lo < hi) {
        const size_t mid = lo + (hi - lo) / 2;
        if (r->in.data[mid].offset < x.offset) {
            lo = mid + 1;
        } else {
            hi = mid;
        }
    }
    x.is_moved = true;
    EBB_ASSERT(r->in.n < r->in.cap);
    memmove(&r->in.data[lo + 1], &r->in.data[lo], (r->in.n - lo) * sizeof *r->in.data);
    r->in.data[lo] = x;
    r->in.n++;
}

static lodger take_largest(ebb_room *r) {
    size_t at = 0;
    EBB_ASSERT(r->out.n > 0);
    for (size_t i = 1; i < r->out.n; i++) {
        if (r->out.data[i].size_bytes > r->out.data[at].size_bytes) { at = i; }
    }
    const lodger taken = r->out.data[at];
    r->out.data[at] = r->out.data[--r->out.n];
    return taken;
}

/* Whether there is any place for it. */
static bool put_back(ebb_room *r, lodger x, uint64_t cap_bytes) {
    x.offset = find_gap(r, &x, cap_bytes);
    if (x.offset == EBB_PLACE_NOWHERE) {
        x.offset = find_cheapest(r, &x, cap_bytes);
        if (x.offset == EBB_PLACE_NOWHERE) { return false; }
        x.worth = ebb_min_u64(x.worth + x.worth / 4, MAX_GROWTH * NEWBORN * x.size_bytes);
        push_out(r, &x);
    }
    EBB_ASSERT(x.offset <= cap_bytes && x.size_bytes <= cap_bytes - x.offset);
    put_in(r, x);
    return true;
}

static uint64_t bytes_out(const ebb_room *r) {
    uint64_t bytes = 0;
    for (size_t i = 0; i < r->out.n; i++) { bytes += r->out.data[i].size_bytes; }
    return bytes;
}

/* Until so many moves in a row have not left less over than ever. */
static bool put_all_back(ebb_room *r, ebb_place_cap cap) {
    uint64_t least = UINT64_MAX;
    unsigned n_since = 0;
    while (r->out.n > 0 && n_since < cap.patience) {
        if (!put_back(r, take_largest(r), cap.bytes)) { return false; }
        const uint64_t bytes = bytes_out(r);
        n_since = bytes < least ? 0 : n_since + 1;
        least = ebb_min_u64(bytes, least);
    }
    return r->out.n == 0;
}

/* ---- the whole -------------------------------------------------------------------------------- */

ebb_status ebb__room_create(const ebb_sections *sections, ebb_bump *bump, ebb_room **room_out) {
    ebb_room *r = ebb__bump_alloc(bump, 1, sizeof *r);
    if (r == NULL) { return EBB_E_NO_MEMORY; }
    *r = (ebb_room){.sections = sections};
    *room_out = r;
    return EBB_OK;
}

void ebb__room_fini(ebb_room *r) {
    if (r == NULL) { return; }
    const ebb_mem *mem = r->sections->mem;
    EBB_VEC_FINI(mem, &r->in);
    EBB_VEC_FINI(mem, &r->before);
    EBB_VEC_FINI(mem, &r->out);
    EBB_VEC_FINI(mem, &r->bottoms);
    EBB_VEC_FINI(mem, &r->tops);
    EBB_VEC_FINI(mem, &r->idx);
    EBB_VEC_FINI(mem, &r->key);
}

ebb_status ebb__room_add_fixed(ebb_room *r, uint32_t item, uint64_t offset) {
    const lodger l = {.offset = offset,
                      .size_bytes = r->sections->rounded[item],
                      .range = {0, r->sections->range[item].last},
                      .item = item,
                      .is_fixed = true};
    return EBB_PUSH(r->sections->mem, &r->in, l);
}

ebb_status ebb__room_make(ebb_room *r, uint32_t item, ebb_place_cap cap, uint64_t *offsets, ebb_room_moved *moved_out,
                          uint64_t *work) {
    const uint64_t size_bytes = r->sections->rounded[item];
    EBB_ASSERT(size_bytes <= cap.bytes && item >= r->n_seen);
    EBB_TRY(update(r, item, offsets));
    EBB_TRY(reserve(r));
    EBB_TRY(sort_by_address(r));
    r->work = WORK_OF_SORT * r->in.n;
    r->out.data[r->out.n++] = (lodger){
        .size_bytes = size_bytes, .worth = size_bytes * NEWBORN, .range = r->sections->range[item], .item = item};
    const bool is_found = put_all_back(r, cap);
    *work += r->work;
    *moved_out = (ebb_room_moved){r->idx.data, 0};
    if (!is_found) {
        const lodgers swap = r->in;
        r->in = r->before;
        r->before = swap;
        return EBB_OK;
    }
    for (size_t i = 0; i < r->in.n; i++) {
        const lodger *l = &r->in.data[i];
        if (!l->is_moved) { continue; }
        EBB_ASSERT(!l->is_fixed && l->item <= item);
        offsets[l->item] = l->offset;
        r->idx.data[moved_out->n++] = l->item;
    }
    r->n_seen = item + 1; /* it is in by now */
    return EBB_OK;
}
