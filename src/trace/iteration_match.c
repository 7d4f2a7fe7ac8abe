/* SPDX-License-Identifier: Apache-2.0
 *
 * Comparing two stretches of a trace. They are walked side by side; where they differ, the nearest pair of places is
 * looked for, at most REACH away in each, from where on they are alike for PROOF events; where there is none, both go
 * on by one. A pair of places is nearer the fewer events it leaves out. The number of such searches is limited, so the
 * whole is linear; what differs more often than that is no repetition anyway.
 */
#include "trace/iteration_priv.h"

#define REACH 32u
#define PROOF 4u

static bool is_alike(const uint32_t *s, ebb_stretch a, ebb_stretch b) {
    const uint32_t n = (uint32_t)ebb_min_u64(PROOF, ebb_min_u64(a.last - a.first, b.last - b.first));
    for (uint32_t i = 0; i < n; i++) {
        if (s[a.first + i] != s[b.first + i]) { return false; }
    }
    return n > 0;
}

/* Move both to the nearest places that are alike. */
static void resume(const uint32_t *s, ebb_stretch *a, ebb_stretch *b) {
    const ebb_stretch from_a = *a, from_b = *b;
    for (uint32_t away = 1; away <= REACH; away++) {
        for (uint32_t i = 0; i <= away; i++) {
            *a = (ebb_stretch){from_a.first + i, from_a.last};
            *b = (ebb_stretch){from_b.first + away - i, from_b.last};
            if (a->first < a->last && b->first < b->last && is_alike(s, *a, *b)) { return; }
        }
    }
    *a = (ebb_stretch){from_a.first + 1, from_a.last};
    *b = (ebb_stretch){from_b.first + 1, from_b.last};
}

uint32_t ebb__iteration_n_common(const uint32_t *symbols, ebb_stretch a, ebb_stretch b) {
    const uint32_t *s = symbols;
    uint32_t n_common = 0, n_searches = 64 + (a.last - a.first) / 64;
    while (a.first < a.last && b.first < b.last) {
        if (s[a.first] == s[b.first]) {
            n_common++;
            a.first++;
            b.first++;
        } else if (n_searches > 0) {
            n_searches--;
            resume(s, &a, &b);
        } else {
            break;
        }
    }
    return n_common;
}
