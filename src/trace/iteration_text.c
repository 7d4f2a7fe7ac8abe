/* SPDX-License-Identifier: Apache-2.0
 *
 * What the search looks things up in: hashes of all prefixes (so that a window's hash is a subtraction; Karp and Rabin,
 * 1987), the live bytes, and the life of each block; and how two stretches of it are compared.
 */
#include "trace/iteration_priv.h"

#include <math.h>

/* ---- looking up ------------------------------------------------------------------------------- */

#define HASH_BASE 0x9ddfea08eb382d69u
#define HASH_SPREAD 0xff51afd7ed558ccdu

uint64_t ebb__iteration_power(uint32_t n) {
    uint64_t power = 1, square = HASH_BASE;
    for (; n > 0; n /= 2) {
        if (n % 2 == 1) { power *= square; }
        square *= square;
    }
    return power;
}

static void hash_prefixes(ebb_iteration_text *text) {
    text->prefix[0] = 0;
    for (uint32_t at = 0; at < text->n; at++) {
        const uint64_t spread = (text->symbols[at] + (uint64_t)1) * HASH_SPREAD;
        text->prefix[at + 1] = text->prefix[at] * HASH_BASE + (spread ^ spread >> 32);
    }
}

/* The arrays of the text, while they are filled. */
typedef struct memory {
    uint64_t *live_bytes;
    uint32_t *born, *died;
} memory;

static void read_memory(ebb_iteration_text *text, const memory *m) {
    const ebb_iteration_finder *finder = text->finder;
    uint64_t live_bytes = 0;
    for (size_t b = 0; b < finder->sizes.n; b++) { m->died[b] = text->n; }
    for (uint32_t at = 0; at < text->n; at++) {
        const uint32_t kind = text->symbols[at] & EBB_SYMBOL_MASK, block = finder->blocks.data[at];
        m->live_bytes[at] = live_bytes;
        if (kind == EBB_SYMBOL_ALLOC) {
            m->born[block] = at;
            live_bytes += finder->sizes.data[block];
        } else if (kind == EBB_SYMBOL_FREE && m->died[block] == text->n) {
            m->died[block] = at;
            live_bytes -= finder->sizes.data[block];
        }
        text->peak_bytes = ebb_max_u64(text->peak_bytes, live_bytes);
    }
    m->live_bytes[text->n] = live_bytes;
}

ebb_status ebb__iteration_text_init(ebb_iteration_text *text, const ebb_iteration_finder *finder, ebb_bump *bump) {
    const size_t n = finder->symbols.n, n_blocks = finder->sizes.n;
    memory m;
    *text = (ebb_iteration_text){.finder = finder, .symbols = finder->symbols.data, .n = (uint32_t)n};
    text->prefix = ebb__bump_alloc(bump, n + 1, sizeof *text->prefix);
    text->live_bytes = text->least = m.live_bytes = ebb__bump_alloc(bump, n + 1, sizeof *m.live_bytes);
    text->born = m.born = ebb__bump_alloc(bump, n_blocks, sizeof *m.born);
    text->died = m.died = ebb__bump_alloc(bump, n_blocks, sizeof *m.died);
    if (text->prefix == NULL || text->least == NULL || text->born == NULL || text->died == NULL) {
        return EBB_E_NO_MEMORY;
    }
    hash_prefixes(text);
    read_memory(text, &m);
    return EBB_OK;
}

/* Shell's sort, for a few, or a few thousand when a program ends. */
static void sort(uint32_t *data, uint32_t n) {
    for (uint32_t gap = n / 2; gap > 0; gap = gap == 2 ? 1 : gap * 5 / 11) {
        for (uint32_t i = gap; i < n; i++) {
            const uint32_t value = data[i];
            uint32_t k = i;
            for (; k >= gap && data[k - gap] > value; k -= gap) { data[k] = data[k - gap]; }
            data[k] = value;
        }
    }
}

void ebb__iteration_sort_frees(uint32_t *symbols, ebb_stretch part) {
    for (uint32_t at = part.first, end = at; at < part.last; at = end + 1) {
        for (end = at; end < part.last && ebb__symbol_is_free(symbols[end]);) { end++; }
        sort(symbols + at, end - at);
    }
}

ebb_status ebb__iteration_text_init_sorted(ebb_iteration_text *text, const ebb_iteration_text *all, ebb_bump *bump) {
    uint32_t *symbols = ebb__bump_alloc(bump, all->n, sizeof *symbols);
    uint64_t *prefix = ebb__bump_alloc(bump, all->n + (size_t)1, sizeof *prefix);
    if (symbols == NULL || prefix == NULL) { return EBB_E_NO_MEMORY; }
    if (all->n > 0) { memcpy(symbols, all->symbols, all->n * sizeof *symbols); }
    ebb__iteration_sort_frees(symbols, (ebb_stretch){0, all->n});
    *text = *all;
    text->is_sorted = true;
    text->symbols = symbols;
    text->prefix = prefix;
    hash_prefixes(text);
    return EBB_OK;
}

static uint64_t least_of(const uint64_t *live_bytes, uint32_t first, uint32_t last) {
    uint64_t least = live_bytes[last];
    for (uint32_t at = first; at < last; at++) { least = ebb_min_u64(least, live_bytes[at]); }
    return least;
}

static bool is_of(const uint32_t *symbol, uint32_t kinds) {
    return (1u << (*symbol & EBB_SYMBOL_MASK) & kinds) != 0;
}

ebb_status ebb__iteration_text_init_part(ebb_iteration_text *text, const ebb_iteration_text *all, uint32_t kinds,
                                         ebb_bump *bump) {
    uint32_t n = 0;
    for (uint32_t at = 0; at < all->n; at++) { n += is_of(&all->symbols[at], kinds); }
    uint32_t *symbols = ebb__bump_alloc(bump, n, sizeof *symbols);
    uint32_t *places = ebb__bump_alloc(bump, n + (size_t)1, sizeof *places);
    uint64_t *least = ebb__bump_alloc(bump, n + (size_t)1, sizeof *least);
    uint64_t *prefix = ebb__bump_alloc(bump, n + (size_t)1, sizeof *prefix);
    if (symbols == NULL || places == NULL || least == NULL || prefix == NULL) { return EBB_E_NO_MEMORY; }
    *text = *all;
    text->n = 0;
    for (uint32_t at = 0; at < all->n; at++) {
        if (!is_of(&all->symbols[at], kinds)) { continue; }
        symbols[text->n] = all->symbols[at];
        places[text->n++] = at;
    }
    places[n] = all->n;
    for (uint32_t at = 0; at <= n; at++) {
        least[at] = least_of(all->live_bytes, at > 0 ? places[at - 1] + 1 : places[0], places[at]);
    }
    text->symbols = symbols;
    text->places = places;
    text->least = least;
    text->prefix = prefix;
    hash_prefixes(text);
    return EBB_OK;
}

uint32_t ebb__iteration_least(const uint64_t *live_bytes, uint32_t first, uint32_t last) {
    uint32_t best = first, low = first;
    double most = -1.0, more = 0.0; /* byte-events above the least, after low */
    for (uint32_t at = first + 1; at <= last; at++) {
        if (at < last && live_bytes[at] > live_bytes[low]) {
            more += (double)(live_bytes[at] - live_bytes[low]);
            continue;
        }
        if (more > most) {
            most = more;
            best = low;
        }
        if (at < last && live_bytes[at] < live_bytes[low]) {
            most = -1.0;
            best = at;
        }
        low = at;
        more = 0.0;
    }
    return best;
}

/* ---- comparing -------------------------------------------------------------------------------- */

/* Comparing two stretches of a trace. They are walked side by side; where they differ, the nearest pair of places is
 * looked for, at most REACH away in each, from where on they are alike for PROOF events; if none exists, both go
 * on by one. A pair of places is nearer the fewer events it leaves out. The number of such searches is limited, so the
 * whole is linear; what differs more often than that is no repetition anyway.
 *
 * As long as both have the same steps, each step is compared with its own counterpart: copies that come a few steps
 * sooner or later would otherwise lead from one layer to the next one, which looks the same, and never back. */

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

static uint32_t n_common(const uint32_t *s, ebb_stretch a, ebb_stretch b, uint32_t *n_searches) {
    uint32_t n = 0;
    while (a.first < a.last && b.first < b.last) {
        if (s[a.first] == s[b.first]) {
            n++;
            a.first++;
            b.first++;
        } else if (*n_searches > 0) {
            (*n_searches)--;
            resume(s, &a, &b);
        } else {
            break;
        }
    }
    return n;
}

/* Where the first step begins from this place on, or the end. */
static uint32_t step_from(const uint32_t *s, uint32_t at, uint32_t last) {
    while (at < last && (s[at] & EBB_SYMBOL_MASK) != EBB_SYMBOL_STEP) { at++; }
    return at;
}

uint32_t ebb__iteration_n_common(const uint32_t *symbols, ebb_stretch a, ebb_stretch b) {
    const uint32_t *s = symbols;
    uint32_t n = 0, n_searches = 64 + (a.last - a.first) / 64;
    uint32_t step_a = step_from(s, a.first, a.last), step_b = step_from(s, b.first, b.last);
    while (step_a < a.last && step_b < b.last && s[step_a] == s[step_b]) {
        n += n_common(s, (ebb_stretch){a.first, step_a}, (ebb_stretch){b.first, step_b}, &n_searches);
        a.first = step_a;
        b.first = step_b;
        step_a = step_from(s, step_a + 1, a.last);
        step_b = step_from(s, step_b + 1, b.last);
    }
    return n + n_common(s, a, b, &n_searches);
}
