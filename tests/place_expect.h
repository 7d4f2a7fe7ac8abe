/* SPDX-License-Identifier: Apache-2.0
 *
 * What every answer of a placement solver must be, and the end of each loop over seeds: solve, look at the answer, fail
 * with the seed.
 */
#ifndef EBB_TESTS_PLACE_EXPECT_H
#define EBB_TESTS_PLACE_EXPECT_H

#include "ebb/place.h"
#include "support.h"

/* The fault of an answer; NULL: none. For a solver that reserves, which takes whole segments or regions,
 * the peak may be above all that is held. */
static inline const char *wrong_answer(const ebb_place_problem *p, const uint64_t *offsets,
                                       const ebb_place_result *result, bool reserves) {
    uint64_t held = 0, bound = 0;
    if (ebb_place_check(p, NULL, offsets, &held) != EBB_OK) { return "is refused"; }
    if (ebb_place_bound(p, NULL, &bound) != EBB_OK) { return "has no bound"; }
    const uint64_t least = bound - ebb_min_u64(bound, p->alignment_bytes - 1); /* the highest is not rounded up */
    if (result->bound_bytes < ebb_min_u64(least, result->peak_bytes)) { return "has a lower bound"; }
    if (!reserves && bound > ebb_align_up(result->peak_bytes, p->alignment_bytes)) { return "is below the bound"; }
    if (result->peak_bytes < result->bound_bytes) { return "is below the bound"; }
    if (reserves ? held > result->peak_bytes : held != result->peak_bytes) { return "has another peak"; }
    return NULL;
}

/* The answer of a solver that does not reserve. */
static inline ebb_place_result expect_answer(const ebb_place_problem *p, const ebb_place_options *options,
                                             uint64_t *offsets, uint64_t seed) {
    ebb_place_result result = {0};
    const ebb_status st = ebb_place_solve(p, options, offsets, &result);
    const char *wrong = st != EBB_OK ? "is none" : wrong_answer(p, offsets, &result, false);
    if (wrong != NULL) {
        fail_msg("seed %llu: the answer for %zu items %s: %s", (unsigned long long)seed, p->n_items, wrong,
                 ebb_last_error());
    }
    return result;
}

#endif
