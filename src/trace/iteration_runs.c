/* SPDX-License-Identifier: Apache-2.0
 *
 * Where a trace repeats with a given length: where its symbols are those a length later.
 *
 * Exact runs are looked for backward from the far end of what is needed, so that most of what does not repeat is never
 * looked at. Inexact ones are scored: an event that is the same gains one, another one loses four, and a run ends at
 * its best when it has lost as much as an eighth of a length would, or all that it had.
 */
#include "trace/iteration_priv.h"

#define LOSS 4
#define MIN_DROP 8u     /* events that differ in a row and end no run */
#define DROP_SHARE 8u   /* of a length, as many */
#define ENOUGH_SHARE 8u /* of two lengths an eighth of one may be missing */
#define EXACT_SHARE 16u /* or a sixteenth, with frees: what an evaluation left may be freed behind it */

static ebb_status add_run(const ebb_iteration_text *text, uint32_t first, uint32_t last, ebb_stretches *runs) {
    ebb_stretch run = {first, last};
    EBB_ASSERT(first < last && last <= text->n);
    return EBB_PUSH(text->finder->mem, runs, run);
}

/* Of [at, to) the last place that is not the same a length later, plus one; at: all are. */
static uint32_t behind_difference(const uint32_t *s, uint32_t length, uint32_t at, uint32_t to) {
    while (to > at && s[to - 1] == s[to - 1 + length]) { to--; }
    return to;
}

static ebb_status find_exact(const ebb_iteration_text *text, uint32_t length, ebb_stretches *runs) {
    const uint32_t *s = text->symbols;
    const uint32_t end = text->n - length; /* places that have a place a length later */
    const uint32_t enough = text->places != NULL ? length : length - length / EXACT_SHARE;
    uint32_t at = 0, same_to = 0; /* [at, same_to) are known to be the same */
    while (enough <= end - at) {
        const uint32_t to = at + enough;
        const uint32_t behind = behind_difference(s, length, ebb_max_u64(at, same_to), to);
        if (behind > ebb_max_u64(at, same_to)) {
            at = behind;
            same_to = to;
            continue;
        }
        uint32_t last = to;
        while (last < end && s[last] == s[last + length]) { last++; }
        EBB_TRY(add_run(text, at, last + length, runs));
        if (last == end) { break; }
        at = same_to = last + 1;
    }
    return EBB_OK;
}

static ebb_status find_inexact(const ebb_iteration_text *text, uint32_t length, ebb_stretches *runs) {
    const uint32_t *s = text->symbols;
    const int64_t max_drop = LOSS * (int64_t)ebb_max_u64(MIN_DROP, length / DROP_SHARE);
    int64_t score = 0, best = 0;
    uint32_t first = 0, last = 0;
    for (uint32_t at = 0; at <= text->n - length; at++) {
        const bool is_end = at == text->n - length;
        if (!is_end && s[at] == s[at + length]) {
            if (score == 0) { first = at; }
            if (++score > best) {
                best = score;
                last = at + 1;
            }
            continue;
        }
        score -= LOSS;
        if (!is_end && score > 0 && best - score <= max_drop) { continue; }
        if (best > 0 && last - first >= length - length / ENOUGH_SHARE) {
            EBB_TRY(add_run(text, first, last + length, runs));
        }
        score = best = 0;
    }
    return EBB_OK;
}

ebb_status ebb__iteration_runs(const ebb_iteration_text *text, uint32_t length, bool exact, ebb_stretches *runs) {
    runs->n = 0;
    if (length == 0 || length > text->n / 2) { return EBB_OK; }
    return exact ? find_exact(text, length, runs) : find_inexact(text, length, runs);
}
