/* SPDX-License-Identifier: Apache-2.0
 *
 * Which repetition is the iteration: lengths that it may have, the stretches that repeat with each of them, and which
 * of these is the iteration. Each of the three parts says how.
 */
#include "trace/iteration_priv.h"

#include <math.h>

/* ---- lengths ---------------------------------------------------------------------------------- */

/* Which lengths an iteration may have. Windows of 1, 2, 4, ... symbols are looked up where they were last seen, and
 * each such distance is a vote for itself. Short windows vote for whatever repeats, equal layers above all; but windows
 * that are longer than all equal layers together are found again in the next iteration only, so at some width the
 * length of the iteration is among the first, however often something within it repeats. What repeats so rarely that no
 * window finds it is no iteration.
 *
 * Of long traces a share of the windows votes, chosen by what is in them, so that the same ones are chosen whenever
 * they come: time is linear in the events for each of the log n widths, but for the votes, of which there is a limit.
 * Where no window comes again, no wider one does: noise is left after a few widths. */

#define MAX_VOTERS ((uint32_t)1 << 16) /* about; at a width: both tables stay in a core's cache */
#define N_ELECTED 12u                  /* at a width */
#define N_SHORTEST 16u                 /* lengths that are candidates anyway: few windows would speak for them */

typedef struct entry {
    uint64_t key; /* 0: free */
    uint32_t value;
} entry;

typedef struct votes {
    entry *windows, *gaps; /* hashed; [n_slots], a power of two */
    uint32_t n_slots, n_gaps, mask;
} votes;

static uint64_t mix(uint64_t x) {
    x = (x ^ x >> 31) * 0x9e3779b97f4a7c15u;
    return x ^ x >> 29;
}

/* The key's place, or a free one. */
static entry *look_up(entry *table, uint32_t n_slots, uint64_t key) {
    EBB_ASSERT(key != 0);
    uint32_t slot = (uint32_t)(mix(key) >> 32) & (n_slots - 1);
    while (table[slot].key != 0 && table[slot].key != key) { slot = (slot + 1) & (n_slots - 1); }
    return &table[slot];
}

/* One window more was seen again after this many events. */
static void count_gap(votes *v, uint32_t gap) {
    entry *counted = look_up(v->gaps, v->n_slots, gap);
    if (counted->key == 0) {
        if (v->n_gaps == v->n_slots / 2) { return; }
        v->n_gaps++;
        counted->key = gap;
    }
    counted->value++;
}

/* Whether a window that is wider may come again, for all that is known. */
static bool vote(votes *v, const ebb_iteration_text *text, uint32_t width) {
    const uint64_t power = ebb__iteration_power(width);
    uint32_t n_windows = 0;
    v->n_gaps = 0;
    memset(v->windows, 0, v->n_slots * sizeof *v->windows);
    memset(v->gaps, 0, v->n_slots * sizeof *v->gaps);
    for (uint32_t at = 0; at + width <= text->n; at++) {
        const uint64_t key = mix(ebb__iteration_window(text, at, width, power) + width) | 1u;
        if ((key >> 40 & v->mask) != 0) { continue; }
        entry *window = look_up(v->windows, v->n_slots, key);
        if (window->key == 0) {
            if (n_windows == v->n_slots / 2) { continue; }
            n_windows++;
            window->key = key;
        } else {
            count_gap(v, at - window->value);
        }
        window->value = at;
    }
    return n_windows == 0 || v->n_gaps > 0;
}

ebb_status ebb__iteration_add_length(const ebb_mem *mem, ebb_u32s *lengths, uint32_t length) {
    EBB_TRY(EBB_RESERVE(mem, lengths, 1));
    size_t place = lengths->n;
    while (place > 0 && lengths->data[place - 1] >= length) { place--; }
    if (place < lengths->n && lengths->data[place] == length) { return EBB_OK; }
    memmove(&lengths->data[place + 1], &lengths->data[place], (lengths->n - place) * sizeof length);
    lengths->data[place] = length;
    lengths->n++;
    return EBB_OK;
}

/* The gaps with the most votes; of as many, the shortest. */
static ebb_status elect(const votes *v, const ebb_mem *mem, ebb_u32s *lengths) {
    entry first[N_ELECTED];
    uint32_t n = 0;
    for (uint32_t slot = 0; slot < v->n_slots; slot++) {
        const entry *gap = &v->gaps[slot];
        if (gap->key == 0) { continue; }
        uint32_t place = n;
        while (place > 0 && (first[place - 1].value < gap->value ||
                             (first[place - 1].value == gap->value && first[place - 1].key > gap->key))) {
            place--;
        }
        if (place == N_ELECTED) { continue; }
        n += n < N_ELECTED;
        memmove(&first[place + 1], &first[place], (n - 1 - place) * sizeof *first);
        first[place] = *gap;
    }
    for (uint32_t i = 0; i < n; i++) { EBB_TRY(ebb__iteration_add_length(mem, lengths, (uint32_t)first[i].key)); }
    return EBB_OK;
}

ebb_status ebb__iteration_candidates(const ebb_iteration_text *text, ebb_u32s *lengths) {
    const ebb_mem *mem = text->finder->mem;
    votes v = {.n_slots = 16};
    ebb_status st = EBB_OK;
    while (v.n_slots < 2 * MAX_VOTERS && v.n_slots / 2 < text->n) { v.n_slots *= 2; }
    while (text->n / (v.mask + 1) > MAX_VOTERS) { v.mask = 2 * v.mask + 1; }
    v.windows = ebb__alloc(mem, v.n_slots, sizeof *v.windows);
    v.gaps = ebb__alloc(mem, v.n_slots, sizeof *v.gaps);
    if (v.windows == NULL || v.gaps == NULL) { st = EBB_E_NO_MEMORY; }
    for (uint32_t width = 1; st == EBB_OK && width <= text->n / 2; width *= 2) {
        if (!vote(&v, text, width)) { break; }
        st = elect(&v, mem, lengths);
    }
    for (uint32_t length = 1; st == EBB_OK && length <= N_SHORTEST; length++) {
        st = ebb__iteration_add_length(mem, lengths, length);
    }
    ebb__free(mem, v.windows);
    ebb__free(mem, v.gaps);
    return st;
}

/* ---- runs ------------------------------------------------------------------------------------- */

/* Where a trace repeats with a given length: where its symbols are those a length later.
 *
 * Exact runs are looked for backward from the far end of what is needed, so that most of what does not repeat is never
 * looked at. Inexact ones are scored: an event that is the same gains one, another one loses four, and a run ends at
 * its best when it has lost as much as an eighth of a length would, or all that it had. */

#define LOSS 4
#define MIN_DROP 8u       /* events that differ in a row and end no run */
#define RUN_DROP_SHARE 8u /* of a length, as many */
#define ENOUGH_SHARE 8u   /* of two lengths an eighth of one may be missing */
#define EXACT_SHARE 16u   /* or a sixteenth, with frees: what an evaluation left may be freed behind it */

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
    const int64_t max_drop = LOSS * (int64_t)ebb_max_u64(MIN_DROP, length / RUN_DROP_SHARE);
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

static ebb_status find_runs(const ebb_iteration_text *text, uint32_t length, bool exact, ebb_stretches *runs) {
    runs->n = 0;
    if (length == 0 || length > text->n / 2) { return EBB_OK; }
    return exact ? find_exact(text, length, runs) : find_inexact(text, length, runs);
}

/* ---- which of them ---------------------------------------------------------------------------- */

/* Which repetition is the iteration. A layer repeats within it, an optimiser's loop over the parameters too, and
 * iterations with an evaluation after every ten repeat again. The iteration is the one
 *
 *  1. after which memory is as it was: a layer leaves its activations behind, and the backward pass takes them away;
 *  2. that touches what stays: of the bytes of the blocks that live through all of it and are written, or where none
 *     is, are read, each repetition does so with most; a layer has weights of its own, a part of a batch writes none;
 *  3. in which a third of all different events occur: in a loop, only a few do;
 *  4. that reaches the height of memory, if it writes nothing that stays: the loop over the parameters does not, nor
 *     does an evaluation;
 *  5. that is no accident: too long for chance, and a share of the trace;
 *  6. and of these the shortest. Where no accesses are told, of two at different places the higher one, and of one
 *     within another the longer, if memory is lower there and it has twice as many different events.
 *
 * Where no accesses are told, parts of a batch are told from iterations by what they add to: the gradients that the
 * first part makes are there at the peaks of the others and gone at the next batch's, so that peaks fall again. Where
 * gradients are kept for good, nothing tells them apart. */

#define NEUTRAL_SHARE 8u  /* of the height within: less may be left behind, by all of a run */
#define LEAK_SHARE 64u    /* or by each repetition, in a run that is half of the trace */
#define HEIGHT_SHARE 3u   /* of the height of the trace that a repetition has at least */
#define TOUCHED_NUM 2.0   /* two thirds of the bytes that are touched */
#define TOUCHED_DEN 3.0   /* ... */
#define COVERED_SHARE 10u /* of the trace that its runs have at least, if it writes to what stays */
#define COVERED_ELSE 4u   /* or if no access tells a loop from an iteration */
#define MIN_INEXACT 32u   /* less than that, about the same, is anything */
#define RICH_SHARE 3u     /* of the different symbols */
#define EVEN_SHARE 20u    /* heights that differ by less are equal */
#define DROP_SHARE 128u   /* of the height: peaks that differ by more */

typedef struct repetition {
    uint32_t length;
    uint64_t low_bytes, height_bytes;
    uint64_t n_covered;   /* events of the text */
    uint32_t n_different; /* symbols, about */
    bool writes;
    ebb_stretches runs;
} repetition;

enum { N_SLOTS = 1 << 14 }; /* for symbols, by hash */

typedef struct choice {
    const ebb_iteration_text *text;
    double chance_bits; /* what an event that is the same by chance is worth */
    uint32_t *stamps;   /* [n_blocks] */
    uint32_t stamp;
    bool is_joined; /* the best one is made of unequal passes */
} choice;

static uint32_t slot_of(uint32_t symbol) {
    return (symbol * 0x9e3779b9u) >> 18;
}

/* The entropy of a coincidence: -log2 of the chance that two events have the same symbol. */
static ebb_status measure_chance(choice *c) {
    const ebb_iteration_text *text = c->text;
    uint32_t *count = ebb__calloc(text->finder->mem, N_SLOTS, sizeof *count);
    double same = 0.0;
    if (count == NULL) { return EBB_E_NO_MEMORY; }
    for (uint32_t i = 0; i < text->n; i++) { count[slot_of(text->symbols[i])]++; }
    for (size_t slot = 0; slot < N_SLOTS; slot++) {
        const double share = count[slot] / (double)text->n;
        same += share * share;
    }
    ebb__free(text->finder->mem, count);
    c->chance_bits = -log2(same);
    return EBB_OK;
}

/* [first, whole_end): whole repetitions. */
static uint32_t whole_end(const ebb_stretch *run, uint32_t length) {
    return run->last - (run->last - run->first) % length;
}

static void find_range(const ebb_iteration_text *text, uint32_t first, uint32_t last, uint64_t *low, uint64_t *high) {
    *low = ebb_min_u64(*low, text->least[first]);
    const uint32_t to = ebb__iteration_place(text, last - 1) + 1; /* without the frees after it */
    for (uint32_t at = ebb__iteration_place(text, first); at <= to; at++) {
        *low = ebb_min_u64(*low, text->live_bytes[at]);
        *high = ebb_max_u64(*high, text->live_bytes[at]);
    }
}

/* What the last whole repetition of a run has more or less than the first one at the same place, where that is least:
 * what was left before may be freed late in the first one. */
static uint64_t left_bytes(const ebb_iteration_text *text, uint32_t first, uint32_t last, uint32_t length) {
    uint64_t left = UINT64_MAX;
    EBB_ASSERT(first < last && last <= text->n - length);
    for (uint32_t i = 0; i < length && left > 0; i++) {
        const uint64_t a = text->least[first + i], b = text->least[last + i];
        left = ebb_min_u64(left, a > b ? a - b : b - a);
    }
    return left;
}

static bool is_neutral(const ebb_iteration_text *text, const ebb_stretch *run, uint32_t length) {
    const uint32_t end = whole_end(run, length), n_times = (end - run->first) / length;
    uint64_t low = UINT64_MAX, high = 0;
    if (n_times < 2) { return false; }
    const uint64_t left = left_bytes(text, run->first, end - length, length);
    find_range(text, run->first, end, &low, &high);
    if (left <= (high - low) / NEUTRAL_SHARE) { return true; }
    return left / n_times <= (high - low) / LEAK_SHARE && (end - run->first) > text->n / 2;
}

/* The same for a repetition from wherever it begins. */
static uint64_t word_of(const ebb_iteration_text *text, const ebb_stretch *run, uint32_t length) {
    uint64_t word = 0;
    for (uint32_t at = run->first; at < run->first + length; at++) {
        word += ebb__hash(EBB_HASH_INIT, &text->symbols[at], sizeof text->symbols[at]);
    }
    return word;
}

static void keep_neutral(const ebb_iteration_text *text, repetition *candidate) {
    size_t n_kept = 0;
    for (size_t r = 0; r < candidate->runs.n; r++) {
        const ebb_stretch run = candidate->runs.data[r];
        if (is_neutral(text, &run, candidate->length)) { candidate->runs.data[n_kept++] = run; }
    }
    candidate->runs.n = n_kept;
}

/* The word that covers most, of words in this order. */
static uint64_t find_word(const ebb_stretches *runs, const uint64_t *word, const uint32_t *order) {
    uint64_t best = word[order[0]], most = 0, n_covered = 0;
    for (size_t i = 0; i < runs->n; i++) {
        const ebb_stretch *run = &runs->data[order[i]];
        if (i > 0 && word[order[i]] != word[order[i - 1]]) { n_covered = 0; }
        n_covered += run->last - run->first;
        if (n_covered > most) {
            most = n_covered;
            best = word[order[i]];
        }
    }
    return best;
}

/* Runs may repeat different things of one length, such as a malloc and its free; an iteration is one thing. Keep what
 * is repeated most. */
static ebb_status keep_word(const ebb_iteration_text *text, repetition *candidate) {
    const size_t n = candidate->runs.n;
    const ebb_mem *mem = text->finder->mem;
    uint64_t *word = ebb__alloc(mem, n, sizeof *word);
    uint32_t *order = ebb__alloc(mem, n, sizeof *order);
    ebb_status st = word != NULL && order != NULL ? EBB_OK : EBB_E_NO_MEMORY;
    for (size_t r = 0; st == EBB_OK && r < n; r++) {
        word[r] = word_of(text, &candidate->runs.data[r], candidate->length);
        order[r] = (uint32_t)r;
    }
    if (st == EBB_OK) { st = ebb__sort_by_key(mem, order, n, word); }
    if (st == EBB_OK) {
        const uint64_t best = find_word(&candidate->runs, word, order);
        size_t n_kept = 0;
        for (size_t r = 0; r < n; r++) {
            if (word[r] == best) { candidate->runs.data[n_kept++] = candidate->runs.data[r]; }
        }
        candidate->runs.n = n_kept;
    }
    ebb__free(mem, word);
    ebb__free(mem, order);
    return st;
}

/* Whether this many and so long runs are no accident. */
static bool is_no_accident(const choice *c, repetition *candidate) {
    uint64_t n_covered = 0, n_times = 0, n_longest = 0;
    uint32_t covered_to = 0;
    for (size_t r = 0; r < candidate->runs.n; r++) {
        const ebb_stretch run = candidate->runs.data[r];
        n_covered += run.last - ebb_min_u64(run.last, ebb_max_u64(run.first, covered_to));
        covered_to = (uint32_t)ebb_max_u64(covered_to, run.last);
        n_times = ebb_max_u64(n_times, (run.last - run.first) / candidate->length);
        n_longest = ebb_max_u64(n_longest, run.last - run.first - candidate->length);
    }
    candidate->n_covered = n_covered;
    const bool is_sure = (double)n_longest * c->chance_bits >= 2.0 * log2(c->text->n) + 16.0;
    const bool is_often = n_times >= 3 || candidate->runs.n >= 2 || n_covered >= c->text->n / 2;
    return is_sure && is_often;
}

static bool is_high(const choice *c, repetition *candidate) {
    const ebb_iteration_text *text = c->text;
    uint64_t low = UINT64_MAX, high = 0;
    for (size_t r = 0; r < candidate->runs.n; r++) {
        find_range(text, candidate->runs.data[r].first, candidate->runs.data[r].last, &low, &high);
    }
    candidate->low_bytes = low;
    candidate->height_bytes = high - low;
    return high - low >= (text->peak_bytes - low) / HEIGHT_SHARE;
}

/* The bytes of the blocks that live through all of it and are touched so in part. In kept events. */
static uint64_t touched_bytes(choice *c, ebb_stretch all, uint32_t symbol, ebb_stretch part) {
    const ebb_iteration_text *text = c->text;
    const ebb_iteration_finder *finder = text->finder;
    uint64_t bytes = 0;
    c->stamp++;
    for (uint32_t at = part.first; at < part.last; at++) {
        if ((finder->symbols.data[at] & EBB_SYMBOL_MASK) != symbol) { continue; }
        const uint32_t block = finder->blocks.data[at];
        const bool stays = text->born[block] < all.first && text->died[block] >= all.last;
        if (!stays || c->stamps[block] == c->stamp) { continue; }
        c->stamps[block] = c->stamp;
        bytes += finder->sizes.data[block];
    }
    return bytes;
}

static ebb_stretch places_of(const ebb_iteration_text *text, uint32_t first, uint32_t last) {
    return (ebb_stretch){ebb__iteration_place(text, first), ebb__iteration_place(text, last)};
}

/* How many different symbols, about: those that share a slot count once. */
static uint32_t n_different(const ebb_iteration_text *text, uint32_t first, uint32_t last) {
    bool seen[N_SLOTS] = {false};
    uint32_t n = 0;
    for (uint32_t at = first; at < last; at++) {
        n += !seen[slot_of(text->symbols[at])];
        seen[slot_of(text->symbols[at])] = true;
    }
    return n;
}

/* Whether it has its share of what happens between its first run and its last one. */
static bool is_rich(const choice *c, repetition *candidate) {
    const ebb_stretch *runs = candidate->runs.data;
    const uint32_t first = runs[0].first, last = runs[candidate->runs.n - 1].last;
    candidate->n_different = n_different(c->text, first, first + candidate->length);
    return candidate->n_different >= n_different(c->text, first, last) / RICH_SHARE;
}

/* Most of what stays and is written; where nothing is, of what is read: of a data set each repetition reads a part. */
static bool does_touch(choice *c, repetition *candidate) {
    const ebb_stretch *runs = candidate->runs.data;
    size_t longest = 0;
    for (size_t r = 1; r < candidate->runs.n; r++) {
        if (runs[r].last - runs[r].first > runs[longest].last - runs[longest].first) { longest = r; }
    }
    const uint32_t first = runs[longest].first;
    const ebb_stretch one = places_of(c->text, first, first + candidate->length);
    const ebb_stretch all = places_of(c->text, runs[0].first, runs[candidate->runs.n - 1].last);
    const ebb_stretch rest = {all.first, (uint32_t)c->text->finder->symbols.n};
    uint64_t once = touched_bytes(c, all, EBB_SYMBOL_WRITE, one), ever = touched_bytes(c, all, EBB_SYMBOL_WRITE, rest);
    candidate->writes = once > 0;
    if (ever == 0) {
        once = touched_bytes(c, all, EBB_SYMBOL_READ, one);
        ever = touched_bytes(c, all, EBB_SYMBOL_READ, rest);
    }
    return (double)once * TOUCHED_DEN >= (double)ever * TOUCHED_NUM;
}

/* Whether the shorter one repeats where the other does, and not only at its edge. */
static bool do_overlap(const repetition *longer, const repetition *shorter) {
    const ebb_stretches *a = &longer->runs, *b = &shorter->runs;
    for (size_t i = 0, k = 0; i < a->n && k < b->n;) {
        const uint32_t first = (uint32_t)ebb_max_u64(a->data[i].first, b->data[k].first);
        const uint32_t last = (uint32_t)ebb_min_u64(a->data[i].last, b->data[k].last);
        if (last > first && last - first >= shorter->length) { return true; }
        if (a->data[i].last < b->data[k].last) {
            i++;
        } else {
            k++;
        }
    }
    return false;
}

/* Whether b, which is longer, is better than a. What writes to what stays is, before what does not (an evaluation); if
 * both do, the shorter one. If none does, and they are at different places, the higher one, for the other is an
 * evaluation. Else what is lower, for a loop within an iteration adds to what is there already; but if the shorter
 * one has most of the other's symbols, then weights are saved, or an evaluation takes less. */
static bool is_better(const repetition *b, const repetition *a) {
    if (a->writes || b->writes) { return b->writes && !a->writes; }
    if (!do_overlap(b, a)) { return b->height_bytes > a->height_bytes; }
    const uint64_t lower_bytes = a->low_bytes - ebb_min_u64(a->low_bytes, b->low_bytes);
    return lower_bytes > b->height_bytes / EVEN_SHARE && a->n_different <= b->n_different / 2;
}

/* Its runs, as far as they count; *is_one_out: they may be iterations. */
static ebb_status judge(choice *c, bool exact, repetition *candidate, bool *is_one_out) {
    candidate->writes = false;
    EBB_TRY(find_runs(c->text, candidate->length, exact, &candidate->runs));
    keep_neutral(c->text, candidate);
    if (exact && candidate->runs.n > 1) { EBB_TRY(keep_word(c->text, candidate)); }
    if (!is_no_accident(c, candidate) || !is_rich(c, candidate) || !does_touch(c, candidate)) { return EBB_OK; }
    if (!is_high(c, candidate) && !candidate->writes) { return EBB_OK; }
    *is_one_out = candidate->n_covered >= c->text->n / (candidate->writes ? COVERED_SHARE : COVERED_ELSE);
    return EBB_OK;
}

static uint64_t peak_of(const ebb_iteration_text *text, uint32_t first, uint32_t length) {
    uint64_t low = UINT64_MAX, high = 0;
    find_range(text, first, first + length, &low, &high);
    return high;
}

/* Between two places where memory gets less high from one repetition to the next: gradients that the parts of a batch
 * added to are gone. 0: it does not do so twice. */
static uint32_t length_between_drops(const choice *c, const repetition *of) {
    const uint64_t drop_bytes = of->height_bytes / DROP_SHARE;
    uint32_t last = 0, n_between = 0;
    uint64_t before = 0;
    for (size_t r = 0; r < of->runs.n; r++) {
        const ebb_stretch *run = &of->runs.data[r];
        for (uint32_t at = run->first; at + of->length <= run->last; at += of->length) {
            const uint64_t peak = peak_of(c->text, at, of->length);
            if (before > peak + drop_bytes) {
                n_between = last > 0 ? at - last : 0;
                last = at;
            }
            before = peak;
        }
    }
    return n_between;
}

/* Where no access tells the parts of a batch from iterations, memory may. */
static ebb_status join_parts(choice *c, bool exact, repetition *best) {
    repetition next = {.length = best->length > 0 && !best->writes ? length_between_drops(c, best) : 0};
    bool is_one = false;
    if (next.length <= best->length) { return EBB_OK; }
    const ebb_status st = judge(c, exact, &next, &is_one);
    if (st == EBB_OK && is_one && length_between_drops(c, &next) == 0) {
        const repetition part = *best;
        *best = next;
        next = part;
    }
    EBB_VEC_FINI(c->text->finder->mem, &next.runs);
    return st;
}

static ebb_status choose(choice *c, const ebb_u32s *lengths, bool exact, repetition *best) {
    repetition next = {.length = 0};
    ebb_status st = EBB_OK;
    for (size_t i = 0; st == EBB_OK && i < lengths->n; i++) {
        bool is_one = false;
        next.length = lengths->data[i];
        if (!exact && next.length < MIN_INEXACT) { continue; }
        if (best->n_covered > c->text->n / 2 && next.length % best->length == 0) { continue; }
        st = judge(c, exact, &next, &is_one);
        if (is_one && (best->length == 0 || is_better(&next, best))) {
            const repetition worse = *best;
            *best = next;
            next = worse;
        }
    }
    EBB_VEC_FINI(c->text->finder->mem, &next.runs);
    return st == EBB_OK ? join_parts(c, exact, best) : st;
}

/* From where the repetition within it begins anew, what of an iteration is in no whole one of them; in kept events. */
static ebb_status find_rest(const ebb_iteration_text *text, const repetition *longer, const repetition *within,
                            ebb_stretches *rest) {
    const ebb_stretches *runs = &within->runs;
    size_t r = 0;
    while (r < runs->n && runs->data[r].first <= longer->runs.data[0].first) { r++; }
    if (r == runs->n) { return EBB_OK; }
    const uint32_t last = (uint32_t)ebb_min_u64(runs->data[r].first + (uint64_t)longer->length, text->n);
    while (r < runs->n && runs->data[r].first < last) {
        const uint32_t at = (uint32_t)ebb_min_u64(whole_end(&runs->data[r], within->length), last);
        r++;
        const uint32_t to = r < runs->n ? (uint32_t)ebb_min_u64(runs->data[r].first, last) : last;
        if (to > at) { EBB_TRY(EBB_PUSH(text->finder->mem, rest, places_of(text, at, to))); }
    }
    return EBB_OK;
}

/* Whether what the longer one has beside the shorter one's runs is another optimizer's pass. */
static ebb_status has_pass(const choice *c, const repetition *longer, const repetition *shorter, bool *has_out) {
    const ebb_stretches *runs = &longer->runs;
    const uint32_t inner = shorter->runs.data[0].first;
    const ebb_stretch span = places_of(c->text, runs->data[0].first, runs->data[runs->n - 1].last);
    const ebb_stretch one = places_of(c->text, inner, inner + shorter->length);
    ebb_stretches rest = {0};
    ebb_status st = find_rest(c->text, longer, shorter, &rest);
    if (st == EBB_OK) { st = ebb__iteration_has_pass(c->text, span, one, &rest, has_out); }
    EBB_VEC_FINI(c->text->finder->mem, &rest);
    return st;
}

/* Where no access tells what is written: the shortest iteration in which the best one comes several times, and another
 * optimizer's pass beside it. An evaluation beside it makes no gradients; one more pass of as many events is a batch of
 * another size. */
static ebb_status join_passes(choice *c, const ebb_u32s *lengths, bool exact, repetition *best) {
    repetition next = {.length = 0};
    ebb_status st = EBB_OK;
    bool has = false;
    for (size_t i = 0; st == EBB_OK && !has && i < lengths->n; i++) {
        bool is_one = false;
        next.length = lengths->data[i];
        if (next.length <= best->length || next.length % best->length == 0) { continue; }
        st = judge(c, exact, &next, &is_one);
        const bool holds = is_one && 2 * next.n_covered >= best->n_covered && do_overlap(&next, best);
        if (st == EBB_OK && holds) { st = has_pass(c, &next, best, &has); }
    }
    if (has) {
        const repetition part = *best;
        *best = next;
        next = part;
    }
    EBB_VEC_FINI(c->text->finder->mem, &next.runs);
    c->is_joined = has;
    return st;
}

static bool tells_accesses(const ebb_iteration_finder *finder) {
    for (size_t at = 0; at < finder->symbols.n; at++) {
        const uint32_t kind = finder->symbols.data[at] & EBB_SYMBOL_MASK;
        if (kind == EBB_SYMBOL_READ || kind == EBB_SYMBOL_WRITE) { return true; }
    }
    return false;
}

ebb_status ebb__iteration_choose(const ebb_iteration_text *text, const ebb_u32s *lengths, bool exact,
                                 uint32_t *length_out, ebb_stretches *runs, bool *is_joined_out) {
    const ebb_mem *mem = text->finder->mem;
    choice c = {.text = text};
    repetition best = {.length = 0};
    c.stamps = ebb__calloc(mem, text->finder->sizes.n + 1, sizeof *c.stamps);
    ebb_status st = c.stamps != NULL ? measure_chance(&c) : EBB_E_NO_MEMORY;
    if (st == EBB_OK) { st = choose(&c, lengths, exact, &best); }
    if (st == EBB_OK && best.length > 0 && !tells_accesses(text->finder)) {
        st = join_passes(&c, lengths, exact, &best);
    }
    if (st == EBB_OK) {
        *length_out = best.length;
        *is_joined_out = c.is_joined;
        EBB_VEC_FINI(mem, runs);
        *runs = best.runs;
    } else {
        EBB_VEC_FINI(mem, &best.runs);
    }
    ebb__free(mem, c.stamps);
    return st;
}
