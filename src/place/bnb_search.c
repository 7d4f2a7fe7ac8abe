/* SPDX-License-Identifier: Apache-2.0
 *
 * The exact search: can all items of a part be placed within a cap?
 *
 * It looks at niches: sections next to one another of equal sky, between higher ones. An item that lives in a section
 * of a niche lies either exactly on its ground, which only an item can that lives nowhere beyond the niche, or higher;
 * and where no item lies on the ground of a section, something is lost there, which must be within the section's slack.
 * So the search takes an item and a ground, places it there, and if that leads nowhere, rules it out there and draws
 * the conclusions (bnb_state.c). Each placement of all items is met at most once. Where only one choice is left it is
 * taken first, then where there are fewest.
 *
 *        |   |         |            a can lie on the ground, b cannot; if neither a nor another does,
 *        |   |    b ========        the ground of a's sections rises to the least height at which one
 *        |___|  a ===  |___|        of the items that live there can lie on another
 *            |_________|
 *             the niche
 *
 * Beyond that:
 * 1. Only placements of least sum of size times offset are looked for, in which each item lies on another and none
 *    would fit into a hole below it. To exchange two of one range that touch does not change that sum, so of these the
 *    larger is below, of equal ones the first: ranks put the larger first too, and against them the search finds far
 *    less.
 * 2. A failure comes with the decisions that it follows from. If the last is not among them, another choice there does
 *    not help, and the search goes back at once to one that is (conflict-directed backjumping: Prosser 1993).
 * 3. Where no unplaced item connects what is before with what comes after, both are solved apart.
 * 4. A state that cannot be completed is remembered by a hash of what its completion depends on, and not tried again.
 *    Two states of the same 64 bits are taken for the same one.
 */
#include "place/bnb_priv.h"

#define ASK_EVERY 256u /* whether to stop */

/* ---- niches and choices ----------------------------------------------------------------------- */

/* Whether the item can lie on the ground of the niche that it lives in. */
static bool can_lie(const ebb_bnb *b, uint32_t item, int64_t ground) {
    if (b->least[item] != ground || b->least_top[item] != ground) { return false; }
    if (b->twin[item] != EBB_BNB_NONE && !b->is_placed[b->twin[item]]) { return false; }
    const int64_t below = b->top_item[b->range[item].first];
    if (below < 0 || b->class_of[below] != b->class_of[item]) { return true; }
    if (b->offset[below] + b->size[below] != ground || b->size[item] < b->size[below]) { return true; }
    return b->size[item] == b->size[below] && item > (uint32_t)below;
}

static uint32_t count_choices(const ebb_bnb *b, uint32_t section, uint32_t enough) {
    const uint32_t *list = b->list + b->list_at[section];
    uint32_t n = 0;
    for (uint32_t k = 0; k < b->n_list[section] && n < enough; k++) { n += can_lie(b, list[k], b->sky[section]); }
    return n;
}

typedef struct choice {
    uint32_t section;
    uint32_t n_choices; /* of items; 0: nothing can lie on its ground */
    bool is_forced;
} choice;

/* The end of the niche that begins here; false if it is not one, because one of its neighbours is lower. */
static bool is_niche(const ebb_bnb *b, ebb_place_range part, uint32_t first, uint32_t *last_out) {
    uint32_t last = first + 1;
    EBB_ASSERT(part.first <= first && first < part.last);
    while (last < part.last && b->sky[last] == b->sky[first]) { last++; }
    *last_out = last;
    return (first == part.first || b->sky[first - 1] > b->sky[first]) &&
           (last == part.last || b->sky[last] > b->sky[first]);
}

/* Lower is better. Sections are told apart by their distance from the last. */
static uint64_t cost_of(const ebb_bnb *b, uint32_t section, uint32_t n_choices) {
    const uint64_t distance = section > b->last_at ? section - b->last_at : b->last_at - section;
    const uint64_t n_options = n_choices + (b->slack[section] > 0);
    switch (b->mode) {
    case EBB_BNB_LOWEST: return (uint64_t)b->sky[section];
    case EBB_BNB_NEAREST: return n_options << 16 | distance;
    default: return (n_options << 40) / (1 + b->n_failed[section]);
    }
}

/* The section to go on with. */
static choice choose_section(const ebb_bnb *b, ebb_place_range part) {
    choice best = {EBB_BNB_NONE, 0, false};
    uint64_t best_cost = UINT64_MAX;
    for (uint32_t first = part.first, last = 0; first < part.last; first = last) {
        if (!is_niche(b, part, first, &last)) { continue; }
        for (uint32_t t = first; t < last; t++) {
            const uint32_t n = count_choices(b, t, b->mode == EBB_BNB_LOWEST ? 2 : UINT32_MAX);
            if (n == 0 || (n == 1 && b->slack[t] == 0)) { return (choice){t, n, true}; }
            const uint64_t cost = cost_of(b, t, n);
            if (cost >= best_cost) { continue; }
            best_cost = cost;
            best = (choice){t, n, false};
        }
    }
    EBB_ASSERT(best.section != EBB_BNB_NONE); /* the lowest section is in a niche */
    return best;
}

/* The first in rank of the items that can lie on the section's ground. */
static uint32_t first_in_rank(const ebb_bnb *b, uint32_t section) {
    const uint32_t *list = b->list + b->list_at[section];
    uint32_t best = EBB_BNB_NONE;
    for (uint32_t k = 0; k < b->n_list[section]; k++) {
        if (best != EBB_BNB_NONE && b->rank[list[k]] > b->rank[best]) { continue; }
        if (can_lie(b, list[k], b->sky[section])) { best = list[k]; }
    }
    EBB_ASSERT(best != EBB_BNB_NONE && !b->is_placed[best]);
    return best;
}

/* Of its sections. */
static int64_t least_slack(const ebb_bnb *b, uint32_t item) {
    int64_t least = INT64_MAX;
    for (uint32_t t = b->range[item].first; t < b->range[item].last; t++) {
        if (b->slack[t] < least) { least = b->slack[t]; }
    }
    return least;
}

/* Of all items that can lie on grounds as low as this section's, the one of the section of least slack, or the first of
 * these in rank. */
static uint32_t first_of_lowest(const ebb_bnb *b, ebb_place_range part, uint32_t section) {
    uint32_t best = EBB_BNB_NONE;
    int64_t best_slack = INT64_MAX;
    for (uint32_t i = b->begin_at[part.first]; i < b->begin_at[part.last]; i++) {
        if (b->is_placed[i] || !can_lie(b, i, b->sky[section])) { continue; }
        const int64_t slack = least_slack(b, i);
        if (slack > best_slack || (slack == best_slack && b->rank[i] > b->rank[best])) { continue; }
        best = i;
        best_slack = slack;
    }
    EBB_ASSERT(best != EBB_BNB_NONE && best_slack >= 0);
    return best;
}

/* ---- the search ------------------------------------------------------------------------------- */

/* Nothing can lie on the section's ground: its items are ruled out there. */
static bool leave_ground(ebb_bnb *b, uint32_t section) {
    const uint32_t *list = b->list + b->list_at[section];
    const int64_t ground = b->sky[section];
    EBB_ASSERT(count_choices(b, section, 1) == 0);
    for (uint32_t k = 0; k < b->n_list[section]; k++) {
        const uint32_t i = list[k], twin = b->twin[i];
        if (b->least[i] != ground) { continue; }
        const uint64_t *reason = ebb__bnb_reason_of_section(b, b->range[i].first); /* that of the same range below it */
        if (b->least_top[i] != ground) {
            reason = NULL;
        } else if (twin != EBB_BNB_NONE && !b->is_placed[twin]) {
            memset(b->why, 0, b->n_words * sizeof *b->why);
            ebb__bnb_why_least(b, twin, ground, b->why); /* it lies there or higher, and below this one */
            reason = b->why;
        }
        if (!ebb__bnb_rule_out(b, i, reason)) { return false; }
    }
    return true;
}

static ebb_bnb_verdict solve(ebb_bnb *b, ebb_place_range part);

/* The item at its least offset, and if that leads nowhere, not there. */
static ebb_bnb_verdict branch(ebb_bnb *b, ebb_place_range part, uint32_t item) {
    const ebb_bnb_mark mark = ebb__bnb_mark(b);
    const uint32_t word = mark.n_placed / 64;
    const uint64_t bit = (uint64_t)1 << mark.n_placed % 64;
    ebb__bnb_place(b, item);
    const ebb_bnb_verdict verdict = solve(b, part);
    if (verdict != EBB_BNB_NO) { return verdict; }
    ebb__bnb_undo(b, mark);
    EBB_ASSERT(b->n_placed == mark.n_placed && !b->is_placed[item]);
    if ((b->why[word] & bit) == 0) { return EBB_BNB_NO; }
    b->why[word] &= ~bit;
    return ebb__bnb_rule_out(b, item, b->why) ? EBB_BNB_AGAIN : EBB_BNB_NO;
}

/* Unplaced items fall into this many groups that share no section; the one of fewest sections. */
static uint32_t find_groups(const ebb_bnb *b, ebb_place_range part, ebb_place_range *narrowest_out) {
    uint32_t n = 0;
    for (uint32_t first = part.first, last = 0; first < part.last; first = last) {
        last = first + 1;
        if (b->n_list[first] == 0) { continue; }
        while (last < part.last && b->crossing[last] > 0) { last++; }
        if (n == 0 || last - first < narrowest_out->last - narrowest_out->first) {
            *narrowest_out = (ebb_place_range){first, last};
        }
        n++;
    }
    return n;
}

static ebb_bnb_verdict step(ebb_bnb *b, ebb_place_range part, uint64_t *key) {
    ebb_place_range group;
    if (!ebb__bnb_propagate(b, part)) { return EBB_BNB_NO; }
    const uint32_t n_groups = find_groups(b, part, &group);
    if (n_groups == 0) { return EBB_BNB_YES; }
    if (n_groups > 1) {
        const ebb_bnb_verdict verdict = solve(b, group);
        return verdict == EBB_BNB_YES ? EBB_BNB_AGAIN : verdict;
    }
    const uint64_t now = ebb__bnb_key(b, group);
    if (b->refuted[now & (b->n_refuted - 1)] == now) {
        ebb__bnb_why_part(b, group);
        return EBB_BNB_NO;
    }
    EBB_ASSERT(now != 0);
    if (*key == 0) { *key = now; }
    const choice c = choose_section(b, group);
    if (c.n_choices == 0) { return leave_ground(b, c.section) ? EBB_BNB_AGAIN : EBB_BNB_NO; }
    b->last_at = c.section;
    const bool by_rank = b->mode == EBB_BNB_LOWEST && !c.is_forced;
    return branch(b, group, by_rank ? first_of_lowest(b, group, c.section) : first_in_rank(b, c.section));
}

/* Place all items that are left in the part. */
static ebb_bnb_verdict solve(ebb_bnb *b, ebb_place_range part) {
    ebb_bnb_verdict verdict = EBB_BNB_AGAIN;
    uint64_t key = 0;
    EBB_ASSERT(part.first < part.last && part.last <= b->m);
    while (verdict == EBB_BNB_AGAIN) {
        b->work += ebb__bnb_step_work(b, part);
        if (b->work > b->max_work || !ebb__bnb_has_room(b)) { return EBB_BNB_OUT; }
        if (++b->n_asked % ASK_EVERY == 0) {
            if (EBB_DEBUG >= 2) { EBB_ASSERT(ebb__bnb_is_valid(b)); }
            if (b->stop(b->stop_ctx)) { return EBB_BNB_OUT; }
        }
        verdict = step(b, part, &key);
    }
    if (verdict == EBB_BNB_NO && key != 0) { b->refuted[key & (b->n_refuted - 1)] = key; }
    return verdict;
}

ebb_bnb_verdict ebb__bnb_run(ebb_bnb *b) {
    EBB_ASSERT(b->mode < EBB_BNB_N_MODES && b->stop != NULL && (b->n_refuted & (b->n_refuted - 1)) == 0);
    ebb__bnb_reset(b);
    for (uint32_t t = 0; t < b->m; t++) {
        if (b->slack[t] < 0) { return EBB_BNB_NO; }
    }
    const ebb_bnb_verdict verdict = solve(b, (ebb_place_range){0, b->m});
    EBB_ASSERT(verdict != EBB_BNB_YES || b->n_placed == b->n);
    return verdict;
}
