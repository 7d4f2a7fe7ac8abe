/* SPDX-License-Identifier: Apache-2.0
 *
 * The ordered set of small integers (ordset.h).
 */
#include "plan/ordset.h"

ebb_status ebb__ordset_init(ebb_ordset *set, uint64_t range, ebb_bump *bump) {
    *set = (ebb_ordset){.range = range};
    uint64_t n_words = range;
    do {
        n_words = n_words / 64 + 1;
        EBB_ASSERT(set->n_levels < EBB_ORDSET_LEVELS);
        uint64_t *word = ebb__bump_alloc(bump, n_words, sizeof *word);
        if (word == NULL) { return EBB_E_NO_MEMORY; }
        memset(word, 0, n_words * sizeof *word);
        set->word[set->n_levels++] = word;
    } while (n_words > 1 && set->n_levels < EBB_ORDSET_LEVELS);
    return n_words == 1 ? EBB_OK : ebb_fail(EBB_E_LIMIT, "a set over too wide a range");
}

#define MAX_WALKED 4096u /* members of a set that is looked through after each change */

/* Whether each bit says of the word below it what it is to say. */
static bool is_valid(const ebb_ordset *set) {
    uint64_t n_words = set->range / 64 + 1;
    for (uint32_t level = 0; level + 1 < set->n_levels; level++, n_words = n_words / 64 + 1) {
        for (uint64_t i = 0; i < n_words; i++) {
            const bool says = (set->word[level + 1][i / 64] >> (i % 64) & 1) != 0;
            if (says != (set->word[level][i] != 0)) { return false; }
        }
    }
    return true;
}

static bool seems_valid(const ebb_ordset *set) {
    return EBB_DEBUG < 2 || set->range > MAX_WALKED || is_valid(set);
}

bool ebb__ordset_has(const ebb_ordset *set, uint64_t member) {
    EBB_ASSERT(member < set->range);
    return (set->word[0][member / 64] >> (member % 64) & 1) != 0;
}

void ebb__ordset_add(ebb_ordset *set, uint64_t member) {
    EBB_ASSERT(member < set->range);
    for (uint32_t level = 0; level < set->n_levels; level++, member /= 64) {
        set->word[level][member / 64] |= (uint64_t)1 << (member % 64);
    }
    const bool is_sound = seems_valid(set);
    EBB_ASSERT(is_sound);
}

void ebb__ordset_remove(ebb_ordset *set, uint64_t member) {
    EBB_ASSERT(member < set->range);
    for (uint32_t level = 0; level < set->n_levels; level++, member /= 64) {
        set->word[level][member / 64] &= ~((uint64_t)1 << (member % 64));
        if (set->word[level][member / 64] != 0) { break; }
    }
    const bool is_sound = seems_valid(set);
    EBB_ASSERT(is_sound);
}

uint64_t ebb__ordset_next(const ebb_ordset *set, uint64_t from) {
    uint32_t level = 0;
    if (from >= set->range) { return EBB_ORDSET_NONE; }
    for (;; level++, from = from / 64 + 1) { /* up until a word has something at from or after */
        if (level == set->n_levels) { return EBB_ORDSET_NONE; }
        uint64_t rest = set->word[level][from / 64] >> (from % 64);
        if (rest != 0) {
            from += (uint64_t)__builtin_ctzll(rest);
            break;
        }
    }
    for (; level > 0; level--) {
        EBB_ASSERT(set->word[level - 1][from] != 0);
        from = from * 64 + (uint64_t)__builtin_ctzll(set->word[level - 1][from]);
    }
    EBB_ASSERT(ebb__ordset_has(set, from));
    return from;
}

uint64_t ebb__ordset_prev(const ebb_ordset *set, uint64_t from) {
    uint32_t level = 0;
    if (set->range == 0) { return EBB_ORDSET_NONE; }
    from = ebb_min_u64(from, set->range - 1);
    for (;; level++, from = from / 64 - 1) { /* up until a word has something at from or before */
        if (level == set->n_levels) { return EBB_ORDSET_NONE; }
        uint64_t rest = set->word[level][from / 64] << (63 - from % 64);
        if (rest != 0) {
            from -= (uint64_t)__builtin_clzll(rest);
            break;
        }
        if (from / 64 == 0) { return EBB_ORDSET_NONE; }
    }
    for (; level > 0; level--) {
        EBB_ASSERT(set->word[level - 1][from] != 0);
        from = from * 64 + 63 - (uint64_t)__builtin_clzll(set->word[level - 1][from]);
    }
    EBB_ASSERT(ebb__ordset_has(set, from));
    return from;
}
