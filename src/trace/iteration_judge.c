/* SPDX-License-Identifier: Apache-2.0
 *
 * From stretches that are one iteration each to the answer: the usual iteration is the one that comes most often (the
 * first of those that come as often), or if no two are the same, one of the length that comes most often, or the last:
 * the first ones make what then stays, such as an optimizer's state; each is compared with it, and the trace is cut
 * into parts. In front and at the end only usual ones count, or if no two are the same, those that have half of their
 * events in common with it.
 */
#include "trace/iteration_priv.h"
#include "base/u64_map.h"

static ebb_stretch stretch_of(const ebb_iteration_finder *finder, const ebb_iteration_part *part) {
    return (ebb_stretch){ebb__iteration_at_of(finder, part->first_event),
                         ebb__iteration_at_of(finder, part->first_event + part->n_events)};
}

/* ---- whether it is training ------------------------------------------------------------------- */

/* Whether a repetition is training, as far as the sizes of its blocks tell. Parameters stay for the whole recording. In
 * each iteration of training a gradient as large as each of them is made; an evaluation makes none. An optimizer with a
 * state makes it once, in its first step, while the gradients of that iteration are there: blocks that stay, made
 * beside younger blocks of the same size that do not. If those gradients are older than one repetition, the repetition
 * is a part of a batch. */

#define MOST_SHARE 0.5 /* of the bytes that stay, and of their blocks */
#define ALL_SHARE 0.9  /* of the bytes that stay: all but a teacher's or so */
#define WRITTEN_SHARE 0.0625
#define OFTEN_SHARE 5u   /* of the repetitions: one in this many is often */
#define PASS_SHARE 0.125 /* of the other bytes that a repetition makes: what another pass makes */
#define STATE_SHARE 0.25 /* of the bytes that stay: the optimizer's state */

typedef struct sizes {
    uint32_t n_staying;     /* blocks of this size */
    uint32_t last_gradient; /* kept event that made the last block of this size that goes; UINT32_MAX: none */
    uint32_t last_death;    /* of that block */
    bool is_made;           /* in the repetition */
    uint32_t making;        /* the last one that made such a block */
} sizes;

typedef struct weigher {
    const ebb_iteration_text *all;
    ebb_stretch one, span; /* a usual repetition; all of them */
    ebb_u64_map index;     /* by size: into sizes */
    EBB_VEC(sizes) sizes;
    uint32_t n_makings; /* that were looked at */
} weigher;

/* Without the frees at its end, with which a program may end, too. */
static ebb_stretch without_frees(const ebb_iteration_finder *finder, ebb_stretch span) {
    while (span.last > span.first && ebb__symbol_is_free(finder->symbols.data[span.last - 1])) { span.last--; }
    return span;
}

static bool stays(const weigher *w, uint32_t block) {
    return w->all->born[block] < w->span.first && w->all->died[block] >= w->span.last;
}

static ebb_status count_staying(weigher *w) {
    const ebb_iteration_finder *finder = w->all->finder;
    for (uint32_t b = 0; b < finder->sizes.n; b++) {
        uint64_t *at = NULL;
        bool is_new = false;
        if (!stays(w, b)) { continue; }
        EBB_TRY(ebb__u64_map_add(&w->index, finder->sizes.data[b], &at, &is_new));
        if (is_new) {
            *at = w->sizes.n;
            const sizes fresh = {.last_gradient = UINT32_MAX};
            EBB_TRY(EBB_PUSH(finder->mem, &w->sizes, fresh));
        }
        w->sizes.data[*at].n_staying++;
    }
    return EBB_OK;
}

static bool is_alloc(const ebb_iteration_finder *finder, uint32_t at) {
    return (finder->symbols.data[at] & EBB_SYMBOL_MASK) == EBB_SYMBOL_ALLOC;
}

static void find_gradients(weigher *w, ebb_iteration_weight *weight) {
    const ebb_iteration_finder *finder = w->all->finder;
    double bytes = 0.0, made_bytes = 0.0, n = 0.0, n_made = 0.0;
    for (uint32_t at = w->one.first; at < w->one.last; at++) {
        if (!is_alloc(finder, at)) { continue; }
        const uint64_t *found = ebb__u64_map_find(&w->index, finder->sizes.data[finder->blocks.data[at]]);
        if (found != NULL) { w->sizes.data[*found].is_made = true; }
    }
    for (uint32_t b = 0; b < finder->sizes.n; b++) {
        if (!stays(w, b)) { continue; }
        const sizes *of = &w->sizes.data[*ebb__u64_map_find(&w->index, finder->sizes.data[b])];
        const double size = (double)finder->sizes.data[b];
        bytes += size;
        made_bytes += of->is_made ? size : 0.0;
        n += 1.0;
        n_made += of->is_made;
    }
    weight->is_known = n > 0.0;
    weight->has_gradients = n > 0.0 && made_bytes >= MOST_SHARE * bytes && n_made >= MOST_SHARE * n;
    weight->has_all_gradients = weight->has_gradients && made_bytes >= ALL_SHARE * bytes;
}

/* What some events make: the bytes of blocks that are as large as one that stays, how many such sizes there are, and
 * the bytes of all other blocks. */
typedef struct making {
    double like_staying_bytes, other_bytes;
    uint32_t n_sizes;
} making;

static void add_making(weigher *w, ebb_stretch part, making *made) {
    const ebb_iteration_finder *finder = w->all->finder;
    for (uint32_t at = part.first; at < part.last; at++) {
        if (!is_alloc(finder, at)) { continue; }
        const uint64_t size = finder->sizes.data[finder->blocks.data[at]];
        const uint64_t *found = ebb__u64_map_find(&w->index, size);
        if (found == NULL) {
            made->other_bytes += (double)size;
            continue;
        }
        made->like_staying_bytes += (double)size;
        made->n_sizes += w->sizes.data[*found].making != w->n_makings;
        w->sizes.data[*found].making = w->n_makings;
    }
}

static making making_of(weigher *w, const ebb_stretch *parts, size_t n) {
    making made = {0};
    w->n_makings++;
    for (size_t p = 0; p < n; p++) { add_making(w, parts[p], &made); }
    return made;
}

/* Whether what makes this is a pass of another optimizer: it makes gradients as a repetition does, and what else a pass
 * needs, which a copy of the weights does not. */
static bool is_pass(const making *other, const making *one) {
    return other->n_sizes > 0 && 2 * other->n_sizes >= one->n_sizes &&
           other->like_staying_bytes >= MOST_SHARE * one->like_staying_bytes &&
           other->other_bytes >= PASS_SHARE * one->other_bytes;
}

/* Whether something often comes between repetitions that is another optimizer's pass. */
static bool is_half(weigher *w, const ebb_iteration_part *parts, size_t n) {
    const making one = making_of(w, &w->one, 1);
    size_t n_iterations = 0, n_others = 0;
    for (size_t p = 0; p < n; p++) {
        n_iterations += parts[p].kind == EBB_ITERATION_PART_ITERATION;
        if (parts[p].kind == EBB_ITERATION_PART_BETWEEN) {
            const ebb_stretch between = stretch_of(w->all->finder, &parts[p]);
            const making other = making_of(w, &between, 1);
            n_others += is_pass(&other, &one);
        }
    }
    return n_others * OFTEN_SHARE >= n_iterations;
}

/* Blocks that stay, made beside a block of the same size that goes and is younger than a repetition. */
static void find_state(weigher *w, ebb_iteration_weight *weight) {
    const ebb_iteration_finder *finder = w->all->finder;
    const uint32_t length = w->one.last - w->one.first;
    double bytes = 0.0, state_bytes = 0.0;
    for (uint32_t at = 0; at < w->span.first; at++) {
        if (!is_alloc(finder, at)) { continue; }
        const uint32_t block = finder->blocks.data[at];
        const uint64_t *found = ebb__u64_map_find(&w->index, finder->sizes.data[block]);
        if (found == NULL) { continue; }
        sizes *of = &w->sizes.data[*found];
        const double size = (double)finder->sizes.data[block];
        if (!stays(w, block)) {
            of->last_gradient = at;
            of->last_death = w->all->died[block];
            continue;
        }
        bytes += size;
        const bool is_beside = of->last_gradient != UINT32_MAX && of->last_death > at;
        if (is_beside && at - of->last_gradient <= length) { state_bytes += size; }
    }
    weight->makes_state = bytes > 0.0 && state_bytes >= STATE_SHARE * bytes;
}

static ebb_status weigh(weigher *w, ebb_iteration_weight *weight) {
    EBB_TRY(count_staying(w));
    find_gradients(w, weight);
    find_state(w, weight);
    return EBB_OK;
}

/* Whether the repetition writes a good share of the bytes that stay and that it touches: parameters, not statistics. */
static ebb_status find_writes(const weigher *w, ebb_iteration_weight *weight) {
    const ebb_iteration_finder *finder = w->all->finder;
    uint8_t *is_seen = ebb__calloc(finder->mem, finder->sizes.n + 1, sizeof *is_seen); /* 1: read, 2: written */
    double touched_bytes = 0.0, written_bytes = 0.0;
    if (is_seen == NULL) { return EBB_E_NO_MEMORY; }
    for (uint32_t at = w->one.first; at < w->one.last; at++) {
        const uint32_t kind = finder->symbols.data[at] & EBB_SYMBOL_MASK, block = finder->blocks.data[at];
        if ((kind != EBB_SYMBOL_READ && kind != EBB_SYMBOL_WRITE) || !stays(w, block)) { continue; }
        const double size = (double)finder->sizes.data[block];
        const uint8_t bit = kind == EBB_SYMBOL_WRITE ? 2 : 1;
        touched_bytes += is_seen[block] == 0 ? size : 0.0;
        written_bytes += (is_seen[block] & 2) == 0 && bit == 2 ? size : 0.0;
        is_seen[block] |= bit;
    }
    ebb__free(finder->mem, is_seen);
    weight->writes = written_bytes > 0.0 && written_bytes >= WRITTEN_SHARE * touched_bytes;
    return EBB_OK;
}

ebb_status ebb__iteration_weigh(const ebb_iteration_text *all, const ebb_iteration_part *parts, size_t n,
                                ebb_iteration_weight *weight_out) {
    const ebb_iteration_finder *finder = all->finder;
    ebb_iteration_weight weight = {.is_known = false};
    weigher w = {.all = all, .span.first = UINT32_MAX};
    double most = -1.0;
    for (size_t p = 0; p < n; p++) {
        if (parts[p].kind != EBB_ITERATION_PART_ITERATION) { continue; }
        const ebb_stretch part = stretch_of(finder, &parts[p]);
        w.span.first = (uint32_t)ebb_min_u64(w.span.first, part.first);
        w.span.last = part.last;
        if (parts[p].regularity > most) {
            most = parts[p].regularity;
            w.one = part;
        }
    }
    w.span = without_frees(finder, w.span);
    ebb__u64_map_init(&w.index, finder->mem);
    ebb_status st = weigh(&w, &weight);
    if (st == EBB_OK) { st = find_writes(&w, &weight); }
    if (st == EBB_OK) { weight.is_half = is_half(&w, parts, n); }
    ebb__u64_map_fini(&w.index);
    EBB_VEC_FINI(finder->mem, &w.sizes);
    if (st == EBB_OK) { *weight_out = weight; }
    return st;
}

ebb_status ebb__iteration_has_pass(const ebb_iteration_text *all, ebb_stretch span, ebb_stretch one,
                                   const ebb_stretches *rest, bool *has_out) {
    weigher w = {.all = all, .one = one, .span = without_frees(all->finder, span)};
    ebb__u64_map_init(&w.index, all->finder->mem);
    const ebb_status st = count_staying(&w);
    if (st == EBB_OK) {
        const making once = making_of(&w, &w.one, 1), other = making_of(&w, rest->data, rest->n);
        *has_out = w.sizes.n > 0 && is_pass(&other, &once);
    }
    ebb__u64_map_fini(&w.index);
    EBB_VEC_FINI(all->finder->mem, &w.sizes);
    return st;
}

/* ---- the answer ------------------------------------------------------------------------------- */

#define MIN_REGULARITY 0.5
#define MIN_TOLD 0.95   /* where updates are told, this regularity makes an iteration a usual one */
#define DOUBT_SHARE 4.0 /* of the doubt that each repetition leaves */

/* Of all but frees, which may be seen elsewhere: what is left of their symbols under a mask. */
static uint64_t hash_under(const ebb_iteration_finder *finder, const ebb_iteration_part *part, uint32_t mask) {
    const ebb_stretch of = stretch_of(finder, part);
    uint64_t hash = EBB_HASH_INIT;
    for (uint32_t at = of.first; at < of.last; at++) {
        const uint32_t symbol = finder->symbols.data[at] & mask;
        if (!ebb__symbol_is_free(finder->symbols.data[at])) { hash = ebb__hash(hash, &symbol, sizeof symbol); }
    }
    return hash;
}

static uint64_t hash_of_work(const ebb_iteration_finder *finder, const ebb_iteration_part *part) {
    return hash_under(finder, part, UINT32_MAX);
}

/* The same events with blocks of any size: a batch of another shape. */
static bool is_alike(const ebb_iteration_finder *finder, const ebb_iteration_part *a, const ebb_iteration_part *b) {
    return hash_under(finder, a, EBB_SYMBOL_MASK) == hash_under(finder, b, EBB_SYMBOL_MASK);
}

static uint64_t hash_of(const ebb_iteration_finder *finder, const uint32_t *symbols, const ebb_iteration_part *part) {
    const ebb_stretch at = stretch_of(finder, part);
    const uint64_t h = ebb__hash(EBB_HASH_INIT, &part->n_events, sizeof part->n_events);
    if (at.first == at.last) { return h; } /* marks with no event of a block between them; there may be no symbols */
    return ebb__hash(h, symbols + at.first, (size_t)(at.last - at.first) * sizeof(uint32_t));
}

/* The index of the first of those keys that come most often, and how often; if none comes twice, the last. */
static ebb_status find_usual(const ebb_mem *mem, const uint64_t *key, size_t n, size_t *usual_out,
                             size_t *n_usual_out) {
    EBB_ASSERT(n > 0);
    uint32_t *order = ebb__alloc(mem, n, sizeof *order);
    if (order == NULL) { return EBB_E_NO_MEMORY; }
    for (size_t i = 0; i < n; i++) { order[i] = (uint32_t)i; }
    ebb_status st = ebb__sort_by_key(mem, order, n, key);
    size_t usual = 0, n_usual = 0;
    for (size_t i = 0, end = 0; st == EBB_OK && i < n; i = end) {
        for (end = i + 1; end < n && key[order[end]] == key[order[i]];) { end++; }
        const bool is_better = n_usual == 1 ? order[i] > usual : order[i] < usual;
        if (end - i > n_usual || (end - i == n_usual && is_better)) {
            n_usual = end - i;
            usual = order[i]; /* the sort is stable: the first */
        }
    }
    ebb__free(mem, order);
    if (st != EBB_OK) { return st; }
    *usual_out = usual;
    *n_usual_out = n_usual;
    return EBB_OK;
}

static void compare_with(const ebb_iteration_finder *finder, const uint32_t *symbols, ebb_iteration_part *parts,
                         size_t n, size_t usual) {
    const ebb_stretch reference = stretch_of(finder, &parts[usual]);
    const uint64_t wanted = hash_of(finder, symbols, &parts[usual]);
    for (size_t i = 0; i < n; i++) {
        const ebb_stretch at = stretch_of(finder, &parts[i]);
        const uint32_t n_longer = (uint32_t)ebb_max_u64(at.last - at.first, reference.last - reference.first);
        parts[i].regularity = 1.0;
        if (hash_of(finder, symbols, &parts[i]) == wanted || n_longer == 0) { continue; }
        parts[i].regularity = ebb__iteration_n_common(symbols, reference, at) / (double)n_longer;
    }
}

/* Into work the hashes of what they do. The usual one has a length that comes most often, of those that do what is
 * done most often; else of all. */
static ebb_status compare(const ebb_iteration_finder *finder, const uint32_t *symbols, ebb_iteration_part *parts,
                          size_t n, uint64_t *work, size_t *usual_out, size_t *n_usual_out) {
    uint64_t *key = ebb__alloc(finder->mem, n, sizeof *key);
    size_t usual = 0, n_usual = 0, n_as_long = 0;
    if (key == NULL) { return EBB_E_NO_MEMORY; }
    for (size_t i = 0; i < n; i++) { work[i] = hash_of_work(finder, &parts[i]); }
    ebb_status st = find_usual(finder->mem, work, n, &usual, &n_usual);
    for (size_t i = 0; st == EBB_OK && i < n; i++) {
        const bool counts = n_usual == 1 || work[i] == work[usual];
        key[i] = counts ? parts[i].n_events : UINT64_MAX - i;
    }
    if (st == EBB_OK) { st = find_usual(finder->mem, key, n, &usual, &n_as_long); }
    ebb__free(finder->mem, key);
    if (st != EBB_OK) { return st; }
    compare_with(finder, symbols, parts, n, usual);
    *usual_out = usual;
    *n_usual_out = n_usual;
    return EBB_OK;
}

/* A part of another kind up to this event, if there are events between. */
static ebb_status fill_up(ebb_iteration_finder *finder, ebb_iteration_part_kind kind, uint64_t *event,
                          uint64_t to_event) {
    EBB_ASSERT(*event <= to_event);
    if (*event == to_event) { return EBB_OK; }
    ebb_iteration_part part = {.kind = kind, .first_event = *event, .n_events = to_event - *event};
    *event = to_event;
    return EBB_PUSH(finder->mem, &finder->parts, part);
}

static ebb_status cut(ebb_iteration_finder *finder, const ebb_iteration_part *iterations, size_t n) {
    uint64_t event = 0;
    for (size_t i = 0; i < n; i++) {
        EBB_TRY(fill_up(finder, i == 0 ? EBB_ITERATION_PART_BEFORE : EBB_ITERATION_PART_BETWEEN, &event,
                        iterations[i].first_event));
        EBB_TRY(EBB_PUSH(finder->mem, &finder->parts, iterations[i]));
        event += iterations[i].n_events;
    }
    return fill_up(finder, EBB_ITERATION_PART_AFTER, &event, finder->symbols.n + finder->passed.n);
}

double ebb__iteration_share(const ebb_iteration_part *iterations, size_t n) {
    EBB_ASSERT(n > 0);
    const ebb_iteration_part *last = &iterations[n - 1];
    const uint64_t n_spanned = last->first_event + last->n_events - iterations[0].first_event;
    uint64_t n_events = 0;
    for (size_t i = 0; i < n; i++) { n_events += iterations[i].n_events; }
    EBB_ASSERT(n_events > 0 && n_events <= n_spanned);
    return (double)n_events / (double)n_spanned;
}

double ebb__iteration_doubt(uint64_t count) {
    double doubt = 1.0;
    for (uint64_t i = 1; i < count && i < 32; i++) { doubt /= DOUBT_SHARE; }
    return doubt;
}

static void sum_up(const ebb_iteration_part *iterations, size_t n, size_t usual, ebb_iteration *iteration_out) {
    double regularity = 0.0;
    for (size_t i = 0; i < n; i++) { regularity += iterations[i].regularity; }
    const double share = ebb__iteration_share(iterations, n);
    iteration_out->found = true;
    iteration_out->first_event = iterations[0].first_event;
    iteration_out->length_events = iterations[usual].n_events;
    iteration_out->count = n;
    iteration_out->regularity = regularity / (double)n;
    iteration_out->confidence =
        iteration_out->regularity * (1.0 - ebb__iteration_doubt(n)) * (share < 0.5 ? 2.0 * share : 1.0);
}

/* The symbols, with frees in a row in one order within each iteration. */
static ebb_status copy_sorted(const ebb_iteration_finder *finder, const ebb_iteration_parts *iterations,
                              uint32_t **symbols_out) {
    uint32_t *symbols = ebb__alloc(finder->mem, finder->symbols.n, sizeof *symbols);
    if (symbols == NULL) { return EBB_E_NO_MEMORY; }
    if (finder->symbols.n > 0) { memcpy(symbols, finder->symbols.data, finder->symbols.n * sizeof *symbols); }
    for (size_t i = 0; i < iterations->n; i++) {
        ebb__iteration_sort_frees(symbols, stretch_of(finder, &iterations->data[i]));
    }
    *symbols_out = symbols;
    return EBB_OK;
}

typedef struct judgement {
    const ebb_iteration_finder *finder;
    const ebb_iteration_parts *parts;
    const uint64_t *work;
    size_t usual;
    bool has_usual;
    bool is_told; /* by updates */
} judgement;

static bool counts(const judgement *j, size_t i) {
    const double regularity = j->parts->data[i].regularity;
    if (!j->has_usual) { return regularity >= MIN_REGULARITY; }
    if (j->work[i] == j->work[j->usual]) { return true; }
    const ebb_iteration_part *part = &j->parts->data[i];
    return j->is_told && (regularity >= MIN_TOLD || is_alike(j->finder, part, &j->parts->data[j->usual]));
}

/* The iterations without those in front and at the end that do something else than the usual one (where updates are
 * told, also with blocks of other sizes), or if no two do the same, that have less than half of their events in common
 * with it. */
static ebb_stretch trim(const judgement *j) {
    ebb_stretch inner = {0, (uint32_t)j->parts->n};
    EBB_ASSERT(j->usual < j->parts->n);
    for (; !counts(j, inner.first); inner.first++) {}
    for (; !counts(j, inner.last - 1); inner.last--) {}
    EBB_ASSERT(inner.first <= j->usual && j->usual < inner.last);
    return inner;
}

ebb_status ebb__iteration_judge(ebb_iteration_finder *finder, const ebb_iteration_parts *iterations,
                                ebb_iteration_source source, ebb_iteration *iteration_out) {
    const bool is_marked = source == EBB_ITERATION_FROM_MARKS;
    const ebb_mem *mem = finder->mem;
    ebb_iteration_part *parts = iterations->data;
    size_t usual = 0, n_usual = 0;
    ebb_stretch inner = {0, (uint32_t)iterations->n};
    uint32_t *symbols = NULL;
    uint64_t *work = ebb__alloc(mem, iterations->n, sizeof *work);
    ebb_status st = work != NULL ? copy_sorted(finder, iterations, &symbols) : EBB_E_NO_MEMORY;
    if (st == EBB_OK) { st = compare(finder, symbols, parts, iterations->n, work, &usual, &n_usual); }
    if (st == EBB_OK && !is_marked) {
        inner = trim(&(judgement){.finder = finder,
                                  .parts = iterations,
                                  .work = work,
                                  .usual = usual,
                                  .has_usual = n_usual > 1,
                                  .is_told = source == EBB_ITERATION_FROM_ANNOTATIONS});
    }
    ebb__free(mem, symbols);
    ebb__free(mem, work);
    EBB_TRY(st);
    finder->parts.n = 0;
    if (!is_marked && inner.last - inner.first < 2) { return EBB_OK; } /* what comes once is no repetition */
    EBB_TRY(cut(finder, parts + inner.first, inner.last - inner.first));
    sum_up(parts + inner.first, inner.last - inner.first, usual - inner.first, iteration_out);
    iteration_out->source = source;
    if (is_marked) { iteration_out->confidence = 1.0; }
    return EBB_OK;
}
