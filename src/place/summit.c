/* SPDX-License-Identifier: Apache-2.0
 *
 * Stage: the fullest moment first. A training iteration, and most programs of a compiler, has one summit: a moment at
 * which more lives than at any other, with some room to spare a few steps away. Only there must nothing be lost. So
 * what lives there is stacked without a gap, and all others, largest first, go into the room beside the stack, each as
 * low as it can. When one sticks out above the bound, it is put right after the stack, and all begins again: as a rule
 * few do.
 *
 * Which room there is beside the stack depends on its order. Lives that nest are a pyramid if the longest lies lowest.
 * But some live long before the summit and die soon after it, and others the other way round, as activations and
 * gradients do. With the ones low and the others high, the room on either side of the summit is one:
 *
 *      |      summit  +-----------------|
 *      |      |   +---+      c          |     what is missing where it is full before the summit (c) lies highest, and
 *      |      +---+---------------------|     what is missing where it is full after it (b) lies lower; for what is
 *      |  +---+---+                     |     missing only where there is room anyway (a), the pyramid is good enough
 *      |--+  b    +---+                 |
 *      |--------------+-----------------|
 *      |              a                 |
 *      +---------------------------------> time
 *
 * How full is full is not known beforehand, nor which of both is better high, so that some of each are tried.
 */
#include "place/search.h"

#define MAX_REPAIRS 12u
#define EARLY 64u     /* what is stuck among the first of this many parts ... */
#define MAX_FAILED 2u /* ... more often than that has no room beside this stack */
#define FULL 1000u    /* thousandths of the bound */

typedef struct shape {
    enum { PYRAMID_AND_ENDS, BY_DEATH, BY_BIRTH } kind;
    uint64_t full;   /* thousandths of the bound */
    bool is_swapped; /* what is missing before the summit lies lower than what is missing after it */
} shape;

typedef struct summit {
    ebb_search *search;
    uint32_t at;
    uint32_t n_left, n_right;       /* sections before and after it, between the least full ones of a circle */
    uint64_t *left_max, *right_max; /* [n_left + 1], [n_right + 1]: most bytes of a section farther away than that */
    uint32_t n_stack;
    uint32_t *farthest; /* [n_items]: the order that got stuck last */
    uint32_t stuck;
} summit;

/* How many sections an item that lives at the summit lives before it and after it. */
typedef struct sides {
    uint32_t before, behind;
} sides;

/* ---- where it is ------------------------------------------------------------------------------ */

static ebb_status find_summit(summit *m) {
    const ebb_sections *s = m->search->sections;
    const uint32_t n = s->n;
    ebb_search_load load;
    EBB_TRY(ebb__search_find_load(m->search, m->search->bump, &load));
    m->left_max = ebb__bump_alloc(m->search->bump, (size_t)n + 1, sizeof *m->left_max);
    m->right_max = ebb__bump_alloc(m->search->bump, (size_t)n + 1, sizeof *m->right_max);
    m->farthest = ebb__bump_alloc(m->search->bump, s->n_items, sizeof *m->farthest);
    if (m->left_max == NULL || m->right_max == NULL || m->farthest == NULL) { return EBB_E_NO_MEMORY; }
    m->at = load.fullest;
    m->n_left = ebb__place_distance(n, load.least, m->at);
    m->n_right = n - 1 - m->n_left;
    m->left_max[m->n_left] = m->right_max[m->n_right] = 0;
    for (uint32_t d = m->n_left; d > 0; d--) {
        m->left_max[d - 1] = ebb_max_u64(m->left_max[d], load.bytes[((uint64_t)m->at + n - d) % n]);
    }
    for (uint32_t d = m->n_right; d > 0; d--) {
        m->right_max[d - 1] = ebb_max_u64(m->right_max[d], load.bytes[((uint64_t)m->at + d) % n]);
    }
    return EBB_OK;
}

/* False: the item does not live at the summit. */
static bool find_sides(const summit *m, uint32_t item, sides *sides_out) {
    const ebb_sections *s = m->search->sections;
    const ebb_place_range range = s->range[item];
    const uint32_t length = ebb__place_n_sections(s, item);
    const uint32_t before = m->at >= range.first ? m->at - range.first : m->at + (s->n - range.first);
    EBB_ASSERT(before < s->n);
    if (before >= length) { return false; }
    *sides_out = (sides){before, length - 1 - before};
    return true;
}

/* ---- orders ----------------------------------------------------------------------------------- */

/* Lower comes first, which is lower in the stack. */
static uint64_t key_of(const summit *m, sides of, const shape *like) {
    const uint64_t end = m->search->sections->n, next = 2 * end;
    const uint64_t full_bytes = m->search->sections->bound_bytes / FULL * like->full;
    const uint64_t left = m->left_max[of.before < m->n_left ? of.before : m->n_left];
    EBB_ASSERT(of.before < end && of.behind < end);
    const uint64_t right = m->right_max[of.behind < m->n_right ? of.behind : m->n_right];
    if (like->kind == BY_DEATH) { return end - of.behind; }
    if (like->kind == BY_BIRTH) { return end - of.before; }
    if (left < full_bytes && right < full_bytes) { return end - 1 - of.before - of.behind; }
    if (like->is_swapped) { return right <= left ? next - of.behind : next + of.before; }
    return left <= right ? next - of.before : next + of.behind;
}

/* The stack, and after it all others, largest first. */
static ebb_status sort_stack_first(summit *m, const shape *like) {
    static const ebb_order rest = {{EBB_BY_SIZE, EBB_BY_LIFETIME}, EBB_PLACE_LOWEST, 0};
    ebb_search *s = m->search;
    EBB_TRY(ebb__search_sort(s, &rest));
    m->n_stack = 0;
    for (uint32_t i = 0; i < s->sections->n_items; i++) {
        sides of = {0, 0};
        const bool is_there = find_sides(m, i, &of);
        s->key[i] = is_there ? key_of(m, of, like) : UINT64_MAX;
        m->n_stack += is_there;
    }
    EBB_ASSERT(m->n_stack > 0);
    return ebb__sort_by_key(s->job->mem, s->now.idx, s->sections->n_items, s->key);
}

/* Items that are stuck go right after the stack. */
static void repair(const summit *m) {
    ebb_attempt *now = &m->search->now;
    const uint32_t item = now->idx[now->stuck];
    EBB_ASSERT(now->stuck >= m->n_stack && now->stuck < m->search->sections->n_items);
    memmove(now->idx + m->n_stack + 1, now->idx + m->n_stack, (now->stuck - m->n_stack) * sizeof *now->idx);
    now->idx[m->n_stack] = item;
}

/* ---- the stage -------------------------------------------------------------------------------- */

static ebb_status take_stack(summit *m, ebb_taken *taken) {
    ebb_search *s = m->search;
    for (uint32_t i = 0; i < m->n_stack; i++) {
        const uint32_t item = s->now.idx[i];
        EBB_TRY(ebb__taken_add(taken, s->sections->range[item], s->now.offsets[item], s->sections->rounded[item]));
    }
    s->work += s->sections->n_items + ebb__taken_work(taken);
    return EBB_OK;
}

/* All others around the stack, until one is stuck. */
static ebb_status place_rest(summit *m, const ebb_taken *stack, uint64_t end) {
    ebb_search *s = m->search;
    ebb_taken *taken = NULL;
    ebb_bump bump;
    EBB_ASSERT(end >= s->work);
    ebb__bump_init(&bump, s->job->mem);
    ebb_status st = ebb__taken_copy(stack, &bump, &taken);
    if (st == EBB_OK) {
        st = ebb__search_place_from(s, taken, m->n_stack, s->sections->bound_bytes + 1, end - s->work);
    }
    ebb__bump_fini(&bump);
    return st;
}

static void note_farthest(summit *m) {
    const ebb_attempt *now = &m->search->now;
    if (now->stuck < m->stuck) { return; }
    m->stuck = now->stuck;
    memcpy(m->farthest, now->idx, m->search->sections->n_items * sizeof *m->farthest);
}

static ebb_status try_rest(summit *m, const ebb_taken *stack, uint64_t end) {
    ebb_search *s = m->search;
    EBB_ASSERT(m->n_stack <= s->sections->n_items);
    const uint32_t n = (uint32_t)s->sections->n_items, early = m->n_stack + (n - m->n_stack) / EARLY;
    unsigned n_failed = 0;
    for (unsigned r = 0; r <= MAX_REPAIRS && n_failed <= MAX_FAILED && !ebb__search_is_over(s, end); r++) {
        EBB_TRY(place_rest(m, stack, end));
        (void)ebb__search_keep(s);
        if (s->now.stuck == n) { return EBB_OK; }
        n_failed += s->now.stuck < early + r;
        note_farthest(m);
        repair(m);
    }
    return EBB_OK;
}

static ebb_status try_shape(summit *m, const shape *like, uint64_t end) {
    ebb_taken *taken = NULL;
    ebb_bump bump;
    EBB_TRY(sort_stack_first(m, like));
    ebb__search_stack(m->search, m->search->now.idx, m->n_stack);
    ebb__bump_init(&bump, m->search->job->mem);
    ebb_status st = ebb__taken_create(&bump, m->search->sections->n, &taken);
    if (st == EBB_OK) { st = take_stack(m, taken); }
    if (st == EBB_OK) { st = try_rest(m, taken, end); }
    ebb__bump_fini(&bump);
    return st;
}

ebb_status ebb__search_summit(ebb_search *s) {
    static const shape shapes[] = {
        {PYRAMID_AND_ENDS, 2 * FULL, false},
        {PYRAMID_AND_ENDS, 970, false},
        {BY_DEATH, 0, false},
        {BY_BIRTH, 0, false},
        {PYRAMID_AND_ENDS, 950, true},
        {PYRAMID_AND_ENDS, 500, false},
        {PYRAMID_AND_ENDS, 850, true},
        {PYRAMID_AND_ENDS, 990, true},
        {PYRAMID_AND_ENDS, 850, false},
        {PYRAMID_AND_ENDS, 990, false},
        {PYRAMID_AND_ENDS, 500, true},
    };
    const uint64_t left = ebb__search_left(s);
    const uint64_t end = s->work + (ebb__search_is_large(s, 4) ? left / 3 : left / 2);
    summit m = {.search = s};
    if (ebb__search_is_large(s, 1) || (s->best.peak_bytes != UINT64_MAX && ebb__search_is_over(s, end))) {
        return EBB_OK;
    }
    EBB_TRY(find_summit(&m));
    for (size_t k = 0; k < sizeof shapes / sizeof *shapes && !ebb__search_is_over(s, end); k++) {
        EBB_TRY(try_shape(&m, &shapes[k], end));
    }
    if (m.stuck == 0 || ebb__search_is_large(s, 4) || ebb__search_is_over(s, end)) { return EBB_OK; }
    memcpy(s->now.idx, m.farthest, s->sections->n_items * sizeof *m.farthest);
    EBB_TRY(ebb__search_place(s, s->best.peak_bytes, end - s->work));
    (void)ebb__search_keep(s);
    return EBB_OK;
}
