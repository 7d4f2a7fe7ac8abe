/* SPDX-License-Identifier: Apache-2.0
 *
 * What the stages of the solver 'best' share: keeping the better, knowing when it is over, sorting.
 */
#include "place/search.h"

#define NEAR 64u         /* the bound: by less than this part of it */
#define NEAR_ENOUGH 320u /* the bound: by no more than this part of it */
#define ALMOST 1024u     /* there: by less than this part of it */

bool ebb__search_is_over(const ebb_search *s, uint64_t work) {
    EBB_ASSERT(s->best.peak_bytes >= s->proved_bytes && s->proved_bytes >= s->sections->bound_bytes);
    if (s->best.peak_bytes <= ebb_max_u64(s->proved_bytes, s->enough_bytes)) { return true; }
    return s->work >= work || s->job->stop(s->job->stop_ctx);
}

void ebb__search_be_content(ebb_search *s) {
    const uint64_t bound_bytes = s->sections->bound_bytes;
    if (s->is_hasty) { s->enough_bytes = ebb_max_u64(s->enough_bytes, bound_bytes + bound_bytes / NEAR_ENOUGH); }
}

bool ebb__search_is_almost(const ebb_search *s) {
    const uint64_t bound_bytes = s->sections->bound_bytes;
    return s->is_hasty && s->best.peak_bytes - bound_bytes < bound_bytes / ALMOST;
}

bool ebb__search_keep(ebb_search *s) {
    EBB_ASSERT(s->now.peak_bytes >= s->sections->bound_bytes);
    if (s->now.peak_bytes >= s->best.peak_bytes) { return false; }
    const size_t n = s->sections->n_items;
    if (n > 0) {
        if (s->now.is_order) { memcpy(s->best.idx, s->now.idx, n * sizeof *s->best.idx); }
        memcpy(s->best.offsets, s->now.offsets, n * sizeof *s->best.offsets);
    }
    s->best.fit = s->now.fit;
    s->best.is_order = s->now.is_order;
    s->best.peak_bytes = s->now.peak_bytes;
    return true;
}

bool ebb__search_is_near(const ebb_search *s) {
    EBB_ASSERT(s->best.peak_bytes >= s->sections->bound_bytes);
    return s->best.peak_bytes - s->sections->bound_bytes < s->sections->bound_bytes / NEAR;
}

/* Larger keys come first. */
static uint64_t key_of(const ebb_search *s, size_t item, ebb_order_key key) {
    const uint64_t size_bytes = s->sections->rounded[item], n_sections = ebb__place_n_sections(s->sections, item);
    uint64_t area = 0;
    switch (key) {
    case EBB_BY_SIZE: return size_bytes;
    case EBB_BY_LIFETIME: return n_sections;
    case EBB_BY_SHORTNESS: return UINT64_MAX - n_sections;
    case EBB_BY_BIRTH: return UINT64_MAX - s->sections->range[item].first;
    case EBB_BY_LOAD: return s->load[item];
    case EBB_BY_AREA: return ebb_mul_u64(size_bytes, n_sections, &area) ? area : UINT64_MAX;
    case EBB_BY_NOTHING: break;
    }
    return 0;
}

/* The bytes of each section, and above them the most of each two, of each two of these ...: node v's are 2v, 2v + 1. */
static ebb_status make_load_tree(const ebb_search *s, uint64_t **tree_out) {
    const size_t n = s->sections->n;
    uint64_t *tree = ebb__calloc(s->job->mem, 2 * n + 1, sizeof *tree);
    if (tree == NULL) { return EBB_E_NO_MEMORY; }
    ebb__place_add_up(s->sections, tree + n);
    for (size_t v = n; v-- > 1;) { tree[v] = ebb_max_u64(tree[2 * v], tree[2 * v + 1]); }
    *tree_out = tree;
    return EBB_OK;
}

static uint64_t most_in(const uint64_t *tree, size_t first, size_t last) {
    uint64_t most = 0;
    EBB_ASSERT(first <= last);
    for (; first < last; first /= 2, last /= 2) {
        if (first % 2 != 0) { most = ebb_max_u64(most, tree[first++]); }
        if (last % 2 != 0) { most = ebb_max_u64(most, tree[--last]); }
    }
    return most;
}

static ebb_status find_loads(ebb_search *s) {
    const size_t n = s->sections->n;
    uint64_t *tree = NULL;
    s->load = ebb__bump_alloc(s->bump, s->sections->n_items, sizeof *s->load);
    if (s->load == NULL) { return EBB_E_NO_MEMORY; }
    EBB_TRY(make_load_tree(s, &tree));
    for (size_t i = 0; i < s->sections->n_items; i++) {
        const ebb_place_range range = s->sections->range[i];
        const bool wraps = range.first >= range.last;
        EBB_ASSERT(range.first < n && range.last <= n);
        s->load[i] = most_in(tree, n + range.first, wraps ? 2 * n : n + range.last);
        if (wraps) { s->load[i] = ebb_max_u64(s->load[i], most_in(tree, n, n + range.last)); }
    }
    ebb__free(s->job->mem, tree);
    return EBB_OK;
}

static ebb_status sort_by(ebb_search *s, ebb_order_key key) {
    for (size_t i = 0; i < s->sections->n_items; i++) { s->key[i] = UINT64_MAX - key_of(s, i, key); }
    return ebb__sort_by_key(s->job->mem, s->now.idx, s->sections->n_items, s->key);
}

/* This many of the largest first. */
static ebb_status put_first(ebb_search *s, uint32_t n_large) {
    const size_t n = s->sections->n_items;
    uint32_t *by_size = ebb__alloc(s->job->mem, n, sizeof *by_size);
    if (by_size == NULL) { return EBB_E_NO_MEMORY; }
    for (size_t i = 0; i < n; i++) {
        by_size[i] = (uint32_t)i;
        s->key[i] = UINT64_MAX - s->sections->rounded[i];
    }
    ebb_status st = ebb__sort_by_key(s->job->mem, by_size, n, s->key);
    for (size_t i = 0; i < n; i++) { s->key[by_size[i]] = ebb_min_u64(i, n_large); }
    ebb__free(s->job->mem, by_size);
    if (st == EBB_OK) { st = ebb__sort_by_key(s->job->mem, s->now.idx, n, s->key); }
    return st;
}

ebb_status ebb__search_sort(ebb_search *s, const ebb_order *o) {
    for (size_t i = 0; i < s->sections->n_items; i++) { s->now.idx[i] = (uint32_t)i; }
    for (unsigned k = EBB_N_ORDER_KEYS; k-- > 0;) {
        if (o->key[k] == EBB_BY_LOAD && s->load == NULL) { EBB_TRY(find_loads(s)); }
        if (o->key[k] != EBB_BY_NOTHING) { EBB_TRY(sort_by(s, o->key[k])); }
    }
    s->now.fit = o->fit;
    return o->n_large > 0 ? put_first(s, o->n_large) : EBB_OK;
}

/* ---- the fullest moment ----------------------------------------------------------------------- */

ebb_status ebb__search_find_load(const ebb_search *s, ebb_bump *bump, ebb_search_load *load_out) {
    const ebb_sections *sections = s->sections;
    ebb_search_load load = {.bytes = ebb__bump_alloc(bump, (size_t)sections->n + 1, sizeof *load.bytes)};
    if (load.bytes == NULL) { return EBB_E_NO_MEMORY; }
    ebb__place_add_up(sections, load.bytes);
    load.is_circle = ebb__place_is_circle(sections);
    for (uint32_t t = 1; t < sections->n; t++) {
        if (load.bytes[t] > load.bytes[load.fullest]) { load.fullest = t; }
        if (load.bytes[t] < load.bytes[load.least] && load.is_circle) { load.least = t; }
    }
    EBB_ASSERT(load.bytes[load.fullest] == sections->bound_bytes);
    *load_out = load;
    return EBB_OK;
}

void ebb__search_stack(ebb_search *s, const uint32_t *items, size_t n_items) {
    uint64_t top = 0;
    for (size_t i = 0; i < n_items; i++) {
        EBB_ASSERT(items[i] < s->sections->n_items);
        s->now.offsets[items[i]] = top;
        top += s->sections->rounded[items[i]];
    }
    EBB_ASSERT(top == s->sections->bound_bytes);
}
