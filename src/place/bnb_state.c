/* SPDX-License-Identifier: Apache-2.0
 *
 * The state of the exact search: what is placed, what follows from that, and for what reasons.
 *
 * Invariants, in the words of bnb_priv.h:
 * 1. An unplaced item's least offset is no lower than the sky of each of its sections.
 * 2. After ebb__bnb_propagate, each section's sky is the least offset of some unplaced item in it: were it lower, what
 *    is between would be lost, so it is taken from the slack.
 * 3. The reason kept for a section are decisions from which alone it follows that no other item lies below its sky;
 *    that of an item, decisions from which it follows that it lies at ruled_out or higher.
 * 4. Every change is on a trail and taken back in reverse.
 */
#include "place/bnb_priv.h"

/* ---- what must hold --------------------------------------------------------------------------- */

bool ebb__bnb_is_valid(const ebb_bnb *b) {
    for (uint32_t t = 0; t < b->m; t++) {
        int64_t rest = 0;
        for (uint32_t k = 0; k < b->n_list[t]; k++) {
            const uint32_t item = b->list[b->list_at[t] + k];
            if (b->is_placed[item] || b->least[item] < b->sky[t] || b->least[item] < b->least_top[item]) {
                return false;
            }
            rest += b->size[item];
        }
        if (b->sky[t] + rest + b->slack[t] != b->cap || b->top[t] > b->sky[t]) { return false; }
    }
    return true;
}

/* ---- taking back ------------------------------------------------------------------------------ */

static void set(ebb_bnb *b, int64_t *at, int64_t value) {
    EBB_ASSERT(b->n_trail < b->max_trail && *at != value);
    b->trail[b->n_trail++] = (ebb_bnb_undo){at, *at};
    *at = value;
}

/* Keep the reason of a section, or of an item after all sections, before it is changed. */
static uint64_t *change_reason(ebb_bnb *b, uint32_t of) {
    uint64_t *reason = b->reason + (size_t)of * b->n_words;
    EBB_ASSERT(of < b->m + b->n && b->n_old_reasons < b->max_old_reasons);
    memcpy(b->old_reason + b->n_old_reasons * b->n_words, reason, b->n_words * sizeof *reason);
    b->old_reason_of[b->n_old_reasons++] = of;
    return reason;
}

/* Out of its sections' lists, to after the unplaced. */
static void take_out(ebb_bnb *b, uint32_t item) {
    const ebb_place_range range = b->range[item];
    uint32_t *place = b->place_in + b->place_in_at[item];
    EBB_ASSERT(!b->is_placed[item] && b->class_left[b->class_of[item]] > 0);
    for (uint32_t t = range.first; t < range.last; t++, place++) {
        uint32_t *list = b->list + b->list_at[t];
        EBB_ASSERT(*place < b->n_list[t] && list[*place] == item);
        const uint32_t last = --b->n_list[t], other = list[last];
        list[*place] = other;
        b->place_in[b->place_in_at[other] + t - b->range[other].first] = *place;
        list[last] = item;
        *place = last;
        b->crossing[t] -= t > range.first;
    }
    b->is_placed[item] = true;
    b->class_left[b->class_of[item]]--;
}

static void put_back(ebb_bnb *b, uint32_t item) {
    const ebb_place_range range = b->range[item];
    EBB_ASSERT(b->is_placed[item]);
    for (uint32_t t = range.first; t < range.last; t++) {
        EBB_ASSERT(b->list[b->list_at[t] + b->n_list[t]] == item);
        b->n_list[t]++;
        b->crossing[t] += t > range.first;
    }
    b->is_placed[item] = false;
    b->class_left[b->class_of[item]]++;
}

ebb_bnb_mark ebb__bnb_mark(const ebb_bnb *b) {
    return (ebb_bnb_mark){b->n_trail, b->n_old_reasons, b->n_placed};
}

void ebb__bnb_undo(ebb_bnb *b, ebb_bnb_mark mark) {
    EBB_ASSERT(mark.n_placed <= b->n_placed && mark.n_trail <= b->n_trail && mark.n_old_reasons <= b->n_old_reasons);
    while (b->n_placed > mark.n_placed) { put_back(b, b->placed_order[--b->n_placed]); }
    while (b->n_trail > mark.n_trail) {
        const ebb_bnb_undo *u = &b->trail[--b->n_trail];
        *u->at = u->old;
    }
    while (b->n_old_reasons > mark.n_old_reasons) {
        const size_t i = --b->n_old_reasons;
        memcpy(b->reason + (size_t)b->old_reason_of[i] * b->n_words, b->old_reason + i * b->n_words,
               b->n_words * sizeof *b->reason);
    }
}

bool ebb__bnb_has_room(const ebb_bnb *b) {
    return b->n_trail + 8 * ((size_t)b->n + b->m) <= b->max_trail &&
           b->n_old_reasons + 4 * ((size_t)b->n + b->m) <= b->max_old_reasons;
}

/* ---- reasons ---------------------------------------------------------------------------------- */

static void add(const ebb_bnb *b, ebb_bnb_reason to, const uint64_t *reason) {
    for (uint32_t w = 0; w < b->n_words; w++) { to[w] |= reason[w]; }
}

static void clear(const ebb_bnb *b, ebb_bnb_reason reason) {
    memset(reason, 0, b->n_words * sizeof *reason);
}

void ebb__bnb_why_least(const ebb_bnb *b, uint32_t item, int64_t offset, ebb_bnb_reason to) {
    const ebb_place_range range = b->range[item];
    EBB_ASSERT(b->least[item] >= offset);
    for (uint32_t t = range.first; t < range.last; t++) {
        if (b->sky[t] < offset) { continue; }
        add(b, to, ebb__bnb_reason_of_section(b, t));
        return;
    }
    EBB_ASSERT(b->ruled_out[item] >= offset);
    add(b, to, ebb__bnb_reason_of_item(b, item));
}

void ebb__bnb_why_sections(const ebb_bnb *b, ebb_place_range range, ebb_bnb_reason to) {
    for (uint32_t t = range.first; t < range.last; t++) { add(b, to, ebb__bnb_reason_of_section(b, t)); }
}

void ebb__bnb_why_part(ebb_bnb *b, ebb_place_range part) {
    clear(b, b->why);
    ebb__bnb_why_sections(b, part, b->why);
    for (uint32_t i = b->begin_at[part.first]; i < b->begin_at[part.last]; i++) {
        if (!b->is_placed[i] && b->ruled_out[i] == b->least[i]) { add(b, b->why, ebb__bnb_reason_of_item(b, i)); }
    }
}

/* ---- placing ---------------------------------------------------------------------------------- */

static void lift(ebb_bnb *b, uint32_t item, int64_t to) {
    if (b->least[item] < to) { set(b, &b->least[item], to); }
    if (b->least_top[item] < to) { set(b, &b->least_top[item], to); }
}

void ebb__bnb_place(ebb_bnb *b, uint32_t item) {
    const ebb_place_range range = b->range[item];
    const int64_t end = b->least[item] + b->size[item];
    const uint32_t level = b->n_placed;
    EBB_ASSERT(level < b->n && end <= b->cap); /* no section has lost more than its slack */
    b->offset[item] = b->least[item];
    b->placed_order[b->n_placed++] = item;
    take_out(b, item);
    for (uint32_t t = range.first; t < range.last; t++) {
        EBB_ASSERT(b->sky[t] == b->least[item]);
        change_reason(b, t)[level / 64] |= (uint64_t)1 << level % 64;
        set(b, &b->sky[t], end);
        set(b, &b->top[t], end);
        set(b, &b->top_item[t], (int64_t)item);
    }
    const uint32_t *list = b->list + b->list_at[range.first];
    for (uint32_t k = 0; k < b->n_list[range.first]; k++) { lift(b, list[k], end); }
    for (uint32_t i = b->begin_at[range.first + 1]; i < b->begin_at[range.last]; i++) {
        if (!b->is_placed[i]) { lift(b, i, end); }
    }
}

/* ---- what follows ----------------------------------------------------------------------------- */

/* An item that fits between top and sky of all its sections could lie there in any completion of this state, and leave
 * one of a lower sum of size times offset; so the one of the lowest sum is not among these. */
static bool leaves_hole(ebb_bnb *b, uint32_t section) {
    const uint32_t *list = b->list + b->list_at[section];
    for (uint32_t k = 0; k < b->n_list[section]; k++) {
        const ebb_place_range range = b->range[list[k]];
        const int64_t end = b->least_top[list[k]] + b->size[list[k]];
        if (end > b->sky[section]) { continue; }
        uint32_t t = range.first;
        while (t < range.last && b->sky[t] >= end) { t++; }
        if (t < range.last) { continue; }
        clear(b, b->why);
        ebb__bnb_why_sections(b, range, b->why);
        return true;
    }
    return false;
}

/* All unplaced items of the section lie at this or higher, which is too high. This may follow from the largest
 * alone. */
static void why_too_high(ebb_bnb *b, uint32_t section, int64_t offset, int64_t n_too_much) {
    const uint32_t *list = b->list + b->list_at[section];
    clear(b, b->why);
    for (uint32_t k = 0; k < b->n_list[section]; k++) {
        if (b->size[list[k]] < n_too_much) {
            n_too_much -= b->size[list[k]];
        } else {
            ebb__bnb_why_least(b, list[k], offset, b->why);
        }
    }
}

static bool raise(ebb_bnb *b, uint32_t section, int64_t to) {
    const int64_t n_lost = to - b->sky[section];
    const uint32_t *list = b->list + b->list_at[section];
    EBB_ASSERT(n_lost > 0 && b->n_list[section] > 0);
    if (b->slack[section] < n_lost) {
        b->n_failed[section]++;
        why_too_high(b, section, to, n_lost - b->slack[section]);
        return false;
    }
    uint64_t *reason = change_reason(b, section);
    for (uint32_t k = 0; k < b->n_list[section]; k++) { ebb__bnb_why_least(b, list[k], to, reason); }
    set(b, &b->slack[section], b->slack[section] - n_lost);
    set(b, &b->sky[section], to);
    return !leaves_hole(b, section);
}

static uint32_t find_lowest(const ebb_bnb *b, uint32_t section) {
    const uint32_t *list = b->list + b->list_at[section];
    uint32_t lowest = list[0];
    EBB_ASSERT(b->n_list[section] > 0);
    for (uint32_t k = 0; k < b->n_list[section]; k++) {
        if (b->least[list[k]] < b->least[lowest]) { lowest = list[k]; }
        if (b->least[lowest] == b->sky[section]) { break; }
    }
    return lowest;
}

bool ebb__bnb_propagate(ebb_bnb *b, ebb_place_range part) {
    for (uint32_t t = part.first; t < part.last; t++) {
        if (b->n_list[t] == 0) { continue; }
        const uint32_t seen = b->witness[t];
        if (!b->is_placed[seen] && b->least[seen] == b->sky[t]) { continue; }
        b->witness[t] = find_lowest(b, t);
        const int64_t least = b->least[b->witness[t]];
        EBB_ASSERT(least >= b->sky[t]);
        if (least > b->sky[t] && !raise(b, t, least)) { return false; }
    }
    return true;
}

/* An item lies on another: on one that is placed, if at least_top, or on one that is still to be placed. */
static int64_t find_next(const ebb_bnb *b, uint32_t item) {
    const ebb_place_range range = b->range[item];
    const uint32_t *list = b->list + b->list_at[range.first];
    int64_t next = INT64_MAX;
    for (uint32_t k = 0; k < b->n_list[range.first]; k++) {
        const int64_t end = b->least[list[k]] + b->size[list[k]];
        if (list[k] != item && end < next) { next = end; }
    }
    for (uint32_t i = b->begin_at[range.first + 1]; i < b->begin_at[range.last]; i++) {
        const int64_t end = b->least[i] + b->size[i];
        if (!b->is_placed[i] && end < next) { next = end; }
    }
    return next;
}

static void why_next(const ebb_bnb *b, uint32_t item, int64_t next, ebb_bnb_reason to) {
    const ebb_place_range range = b->range[item];
    const uint32_t *list = b->list + b->list_at[range.first];
    ebb__bnb_why_sections(b, range, to);
    for (uint32_t k = 0; k < b->n_list[range.first]; k++) {
        if (list[k] != item) { ebb__bnb_why_least(b, list[k], next - b->size[list[k]], to); }
    }
    for (uint32_t i = b->begin_at[range.first + 1]; i < b->begin_at[range.last]; i++) {
        if (!b->is_placed[i]) { ebb__bnb_why_least(b, i, next - b->size[i], to); }
    }
}

bool ebb__bnb_rule_out(ebb_bnb *b, uint32_t item, const uint64_t *reason) {
    const int64_t was = b->least[item];
    int64_t next = was + 1;
    EBB_ASSERT(!b->is_placed[item]);
    clear(b, b->scratch);
    ebb__bnb_why_least(b, item, was, b->scratch);
    if (reason != NULL) {
        add(b, b->scratch, reason);
    } else {
        next = find_next(b, item);
        if (next == INT64_MAX) {
            ebb__bnb_why_sections(b, b->range[item], b->scratch);
        } else {
            why_next(b, item, next, b->scratch);
        }
    }
    if (next == INT64_MAX) {
        memcpy(b->why, b->scratch, b->n_words * sizeof *b->why);
        return false;
    }
    EBB_ASSERT(next > was);
    memcpy(change_reason(b, b->m + item), b->scratch, b->n_words * sizeof *b->scratch);
    set(b, &b->ruled_out[item], next);
    set(b, &b->least[item], next);
    return true;
}

/* ---- keys ------------------------------------------------------------------------------------- */

static uint64_t mix(uint64_t x) {
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
    return x ^ (x >> 31);
}

/* Which items there are and where each may go; and what lies on top, where one of the same range may not lie on it. */
uint64_t ebb__bnb_key(const ebb_bnb *b, ebb_place_range part) {
    uint64_t sum = 0, tops = mix(mix((uint64_t)b->cap) ^ ((uint64_t)part.first << 32 | part.last));
    for (uint32_t i = b->begin_at[part.first]; i < b->begin_at[part.last]; i++) {
        if (b->is_placed[i]) { continue; }
        const uint64_t x = ((uint64_t)b->least[i] * 0x9e3779b97f4a7c15u + (uint64_t)b->least_top[i]) * b->item_hash[i];
        sum += (x ^ (x >> 32)) * 0x9e3779b97f4a7c15u + (b->item_hash[i] >> 7);
    }
    for (uint32_t t = part.first; t < part.last; t++) {
        const int64_t i = b->top_item[t];
        if (i < 0 || b->class_left[b->class_of[i]] == 0 || b->sky[t] != b->top[t]) { continue; }
        tops = mix(tops + b->item_hash[i] + t);
    }
    return mix(sum ^ tops) | 1;
}

/* ---- beginning -------------------------------------------------------------------------------- */

void ebb__bnb_reset(ebb_bnb *b) {
    memset(b->n_list, 0, b->m * sizeof *b->n_list);
    memset(b->crossing, 0, ((size_t)b->m + 1) * sizeof *b->crossing);
    memset(b->class_left, 0, b->n * sizeof *b->class_left);
    memset(b->reason, 0, ((size_t)b->m + b->n) * b->n_words * sizeof *b->reason);
    for (uint32_t i = 0; i < b->n; i++) {
        b->is_placed[i] = false;
        b->least[i] = b->least_top[i] = b->ruled_out[i] = 0;
        b->class_left[b->class_of[i]]++;
        for (uint32_t t = b->range[i].first; t < b->range[i].last; t++) {
            b->place_in[b->place_in_at[i] + t - b->range[i].first] = b->n_list[t];
            b->list[b->list_at[t] + b->n_list[t]++] = i;
            b->crossing[t] += t > b->range[i].first;
        }
    }
    for (uint32_t t = 0; t < b->m; t++) {
        b->sky[t] = b->top[t] = 0;
        b->top_item[t] = -1;
        b->slack[t] = b->cap - (int64_t)b->load[t];
        b->witness[t] = b->n_list[t] > 0 ? b->list[b->list_at[t]] : 0;
    }
    b->n_trail = b->n_old_reasons = 0;
    b->n_placed = 0;
    b->work = 0;
    b->last_at = 0;
    if (EBB_DEBUG >= 2) { EBB_ASSERT(ebb__bnb_is_valid(b)); }
}

/* Arrays from the bump until one fails. */
typedef struct taker {
    ebb_bump *bump;
    bool failed;
} taker;

static void *take(taker *from, size_t n, size_t elem_bytes) {
    void *ptr = from->failed ? NULL : ebb__bump_alloc(from->bump, n + 1, elem_bytes);
    from->failed = ptr == NULL;
    return ptr;
}

static void *take_zeroed(taker *from, size_t n, size_t elem_bytes) {
    void *ptr = take(from, n, elem_bytes);
    if (ptr != NULL) { memset(ptr, 0, (n + 1) * elem_bytes); }
    return ptr;
}
#define TAKE(from, array, n) ((array) = take_zeroed((from), (n), sizeof *(array)))

/* For arrays that are written before they are read. A large stack is never used whole, and nothing touches the rest. */
#define TAKE_RAW(from, array, n) ((array) = take((from), (n), sizeof *(array)))

ebb_status ebb__bnb_create(ebb_bump *bump, uint32_t n, uint32_t m, ebb_bnb *b_out) {
    ebb_bnb b = {.n = n, .m = m, .n_words = (n + 63) / 64};
    taker from = {bump, false};
    EBB_ASSERT(n <= EBB_BNB_MAX_ITEMS && m <= UINT16_MAX);
    TAKE(&from, b.range, n);
    TAKE(&from, b.size, n);
    TAKE(&from, b.rank, n);
    if (from.failed) { return EBB_E_NO_MEMORY; }
    *b_out = b;
    return EBB_OK;
}

/* A power of two: no more than what the work can fill, because a table that is hardly used costs its zeroing. */
static uint64_t n_refuted_of(const ebb_bnb *b) {
    uint64_t n = (uint64_t)1 << 12;
    while (b->n >= 64 && n < (uint64_t)1 << 19 && n < b->most_work / 16) { n *= 2; }
    return n;
}

static void take_state(ebb_bnb *b, taker *from) {
    const uint32_t n = b->n, m = b->m;
    TAKE(from, b->sky, m);
    TAKE(from, b->top, m);
    TAKE(from, b->top_item, m);
    TAKE(from, b->slack, m);
    TAKE(from, b->witness, m);
    TAKE(from, b->crossing, m);
    TAKE(from, b->n_failed, m);
    TAKE(from, b->least, n);
    TAKE(from, b->least_top, n);
    TAKE(from, b->ruled_out, n);
    TAKE(from, b->offset, n);
    TAKE(from, b->is_placed, n);
    TAKE_RAW(from, b->placed_order, n);
    TAKE(from, b->class_left, n);
    TAKE(from, b->n_list, m);
    TAKE_RAW(from, b->list, b->n_list_total);
    TAKE_RAW(from, b->place_in, b->n_list_total);
    b->max_trail = 8 * (size_t)b->n_list_total + 64 * ((size_t)n + m);
    TAKE_RAW(from, b->trail, b->max_trail);
    b->max_old_reasons = 2 * (size_t)b->n_list_total + 16 * ((size_t)n + m);
    TAKE_RAW(from, b->old_reason, b->max_old_reasons * b->n_words);
    TAKE_RAW(from, b->old_reason_of, b->max_old_reasons);
    TAKE(from, b->reason, ((size_t)n + m) * b->n_words);
    TAKE(from, b->why, b->n_words);
    TAKE(from, b->scratch, b->n_words);
    b->n_refuted = n_refuted_of(b);
    TAKE(from, b->refuted, b->n_refuted);
}

static void find_classes(ebb_bnb *b) {
    for (uint32_t i = 0; i < b->n; i++) {
        b->class_of[i] = i;
        b->twin[i] = EBB_BNB_NONE;
        for (uint32_t j = b->begin_at[b->range[i].first]; j < i; j++) {
            if (b->range[j].last != b->range[i].last) { continue; }
            b->class_of[i] = b->class_of[j];
            if (b->size[j] == b->size[i]) { b->twin[i] = j; }
        }
    }
}

ebb_status ebb__bnb_prepare(ebb_bnb *b, ebb_bump *bump) {
    taker from = {bump, false};
    TAKE(&from, b->begin_at, b->m + 1);
    TAKE(&from, b->class_of, b->n);
    TAKE(&from, b->twin, b->n);
    TAKE(&from, b->load, b->m);
    TAKE(&from, b->list_at, b->m);
    TAKE(&from, b->place_in_at, b->n);
    TAKE(&from, b->item_hash, b->n);
    if (from.failed) { return EBB_E_NO_MEMORY; }
    for (uint32_t i = 0; i < b->n; i++) {
        b->place_in_at[i] = b->n_list_total;
        b->n_list_total += b->range[i].last - b->range[i].first;
        b->item_hash[i] = mix(((uint64_t)i + 1) * 0x9e3779b97f4a7c15u) | 1;
        b->begin_at[b->range[i].first + 1]++;
        for (uint32_t t = b->range[i].first; t < b->range[i].last; t++) {
            b->load[t] += (uint64_t)b->size[i];
            b->list_at[t + 1]++;
        }
    }
    for (uint32_t t = 0; t < b->m; t++) {
        b->begin_at[t + 1] += b->begin_at[t];
        b->list_at[t + 1] += b->list_at[t];
    }
    find_classes(b);
    take_state(b, &from);
    return from.failed ? EBB_E_NO_MEMORY : EBB_OK;
}
