/* SPDX-License-Identifier: Apache-2.0
 *
 * The walk over a journal. A time is the number of an entry, from 1; 0 is never. Before the walk the ends of all
 * accesses are numbered, space by space. The history of bytes is an array with an element for each number, and a set
 * has the numbers at which a piece begins:
 *
 *      space 1      |      piece     |  piece |      ...      | space 2 ...
 *      number       7       8        9        10              31
 *      in the set   x                x        x               x
 *
 * A write makes its range one piece. It removes the pieces that were there; each was made by one write and is removed
 * once, so the walk stays near-linear.
 */
#include "run/hazard.h"
#include "plan/ordset.h"

#define NOTHING ((uint64_t)0)      /* content of bytes that were never written */
#define BROKEN ((uint64_t)1 << 63) /* content of a copy of more than one content; with the entry that made it */

typedef struct byte_piece {
    uint64_t write;   /* time of the last */
    uint64_t content; /* number of the access that wrote it first, from 1 */
    uint64_t origin;  /* address at which that content begins, if it has its place */
} byte_piece;

typedef struct walk {
    const ebb_journal *journal;
    const ebb_hazard_version *versions; /* NULL: not told */
    ebb_bump bump;
    uint64_t n_threads;
    uint32_t *low, *high; /* [n_accesses]: numbers of ends */
    uint64_t *address;    /* by number */
    ebb_ordset starts;
    byte_piece *piece; /* by number */
    uint64_t *read;    /* [n_threads] each, by number: times since the write */
    uint64_t *clock;   /* [n_threads] each, by thread */
    uint64_t *event;   /* [n_threads] each, by event; all 0: not recorded */
    bool *recorded;    /* by event */
    ebb_hazard_counts counts;
    ebb_hazard hazard;
} walk;

/* ---- numbering ---------------------------------------------------------------------------------- */

static uint64_t end_address(const ebb_journal *j, uint32_t end) {
    const ebb_journal_access *a = &j->accesses.data[end / 2];
    return end % 2 == 0 ? a->begin : a->end;
}

/* All ends by space, then address. */
static ebb_status order_ends(walk *w, uint32_t *order, uint64_t *key, size_t n_ends) {
    const ebb_journal *j = w->journal;
    for (uint32_t i = 0; i < n_ends; i++) {
        order[i] = i;
        key[i] = end_address(j, i);
    }
    EBB_TRY(ebb__sort_by_key(w->bump.mem, order, n_ends, key));
    for (uint32_t i = 0; i < n_ends; i++) { key[i] = j->accesses.data[i / 2].space; }
    return ebb__sort_by_key(w->bump.mem, order, n_ends, key);
}

static ebb_status number_ends(walk *w, uint64_t *n_out) {
    const ebb_journal *j = w->journal;
    const size_t n_ends = 2 * j->accesses.n;
    if (n_ends >= UINT32_MAX) { return ebb_fail(EBB_E_LIMIT, "a journal of more than 2^31 accesses"); }
    uint32_t *order = ebb__bump_alloc(&w->bump, n_ends, sizeof *order);
    uint64_t *key = ebb__bump_alloc(&w->bump, n_ends, sizeof *key);
    if (order == NULL || key == NULL) { return EBB_E_NO_MEMORY; }
    EBB_TRY(order_ends(w, order, key, n_ends));
    uint64_t n = 0;
    for (size_t i = 0; i < n_ends; i++) {
        const uint64_t address = end_address(j, order[i]);
        const bool new_space = i == 0 || key[order[i]] != key[order[i - 1]];
        if (new_space || address != w->address[n - 1]) { w->address[n++] = address; }
        if (new_space) { ebb__ordset_add(&w->starts, n - 1); }
        *(order[i] % 2 == 0 ? &w->low[order[i] / 2] : &w->high[order[i] / 2]) = (uint32_t)(n - 1);
    }
    *n_out = n;
    return EBB_OK;
}

static void *take(walk *w, uint64_t n, size_t bytes) {
    void *ptr = ebb__bump_alloc(&w->bump, (size_t)n, bytes);
    if (ptr != NULL) { memset(ptr, 0, (size_t)n * bytes); }
    return ptr;
}

static ebb_status init_walk(walk *w) {
    const ebb_journal *j = w->journal;
    const uint64_t n_accesses = j->accesses.n, threads = w->n_threads = j->n_threads;
    uint64_t n_numbers = 0;
    w->low = take(w, n_accesses, sizeof *w->low);
    w->high = take(w, n_accesses, sizeof *w->high);
    w->address = take(w, 2 * n_accesses, sizeof *w->address);
    w->clock = take(w, threads * threads, sizeof *w->clock);
    w->event = take(w, j->n_events * threads, sizeof *w->event);
    w->recorded = take(w, j->n_events, sizeof *w->recorded);
    if (w->low == NULL || w->high == NULL || w->address == NULL || w->clock == NULL || w->event == NULL ||
        w->recorded == NULL) {
        return EBB_E_NO_MEMORY;
    }
    EBB_TRY(ebb__ordset_init(&w->starts, 2 * n_accesses + 1, &w->bump));
    EBB_TRY(number_ends(w, &n_numbers));
    w->piece = take(w, n_numbers, sizeof *w->piece);
    w->read = take(w, n_numbers * threads, sizeof *w->read);
    return w->piece != NULL && w->read != NULL ? EBB_OK : EBB_E_NO_MEMORY;
}

/* ---- bytes -------------------------------------------------------------------------------------- */

static void split_at(walk *w, uint64_t at) {
    const uint64_t start = ebb__ordset_prev(&w->starts, at);
    EBB_ASSERT(start != EBB_ORDSET_NONE); /* each space's first number is a start */
    if (start == at) { return; }
    ebb__ordset_add(&w->starts, at);
    w->piece[at] = w->piece[start];
    memcpy(&w->read[at * w->n_threads], &w->read[start * w->n_threads], w->n_threads * sizeof *w->read);
}

static void note_hazard(walk *w, ebb_hazard_kind kind, uint64_t first_time, uint64_t time, uint64_t access) {
    if (w->hazard.kind != EBB_HAZARD_NONE) { return; }
    w->hazard = (ebb_hazard){.kind = kind,
                             .first = first_time > 0 ? first_time - 1 : time - 1,
                             .second = time - 1,
                             .access = w->journal->accesses.data[access]};
}

/* That the piece's access at other_time comes before this one; 0: there was none. */
static void check_pair(walk *w, uint64_t other_time, uint64_t time, uint64_t access, uint64_t at) {
    if (other_time == 0) { return; }
    const ebb_journal_entry *entries = w->journal->entries.data;
    const uint32_t thread = entries[time - 1].thread, other = entries[other_time - 1].thread;
    if (other == thread) { return; }
    w->counts.n_pairs++;
    if (other_time <= w->clock[thread * w->n_threads + other] || w->hazard.kind != EBB_HAZARD_NONE) { return; }
    note_hazard(w, EBB_HAZARD_RACE, other_time, time, access);
    const uint64_t next = ebb__ordset_next(&w->starts, at + 1);
    w->hazard.access.begin = w->address[at];
    if (next != EBB_ORDSET_NONE && next < w->high[access]) { w->hazard.access.end = w->address[next]; }
}

static void check_order(walk *w, uint64_t time, uint64_t access) {
    const bool writes = (w->journal->accesses.data[access].mode & EBB_WRITE) != 0;
    split_at(w, w->low[access]);
    split_at(w, w->high[access]);
    for (uint64_t at = w->low[access]; at < w->high[access]; at = ebb__ordset_next(&w->starts, at + 1)) {
        check_pair(w, w->piece[at].write, time, access, at);
        for (uint32_t t = 0; writes && t < w->n_threads; t++) {
            check_pair(w, w->read[at * w->n_threads + t], time, access, at);
        }
    }
}

/* A step that is run again writes the same version once more: its bytes and those of a copy from before are one
 * content. */
static bool is_same(const walk *w, const byte_piece *a, const byte_piece *b) {
    if (a->origin != b->origin) { return false; }
    if (a->content == b->content) { return true; }
    if (w->versions == NULL || a->content == NOTHING || b->content == NOTHING) { return false; }
    if (((a->content | b->content) & BROKEN) != 0) { return false; }
    const uint64_t made = w->versions[a->content - 1].makes;
    return made != 0 && made == w->versions[b->content - 1].makes;
}

/* Whose content the range is: *origin_out from its begin. BROKEN where it is more than one. */
static uint64_t find_content(const walk *w, uint64_t access, uint64_t *origin_out) {
    const byte_piece *first = &w->piece[w->low[access]];
    *origin_out = first->origin;
    for (uint64_t at = w->low[access]; at < w->high[access]; at = ebb__ordset_next(&w->starts, at + 1)) {
        const byte_piece *p = &w->piece[at];
        if (is_same(w, p, first)) { continue; }
        const uint64_t later = p->write > first->write ? p->write : first->write;
        return BROKEN | later;
    }
    return first->content;
}

static void check_version(walk *w, uint64_t content, uint64_t time, uint64_t access) {
    if (w->versions == NULL || w->versions[access].finds == 0) { return; }
    if (w->versions[content - 1].makes == w->versions[access].finds) {
        w->counts.n_versions++;
        return;
    }
    note_hazard(w, EBB_HAZARD_STALE, w->piece[w->low[access]].write, time, access);
}

static void check_content(walk *w, uint64_t time, uint64_t access) {
    uint64_t origin = 0;
    const uint64_t content = find_content(w, access, &origin);
    if (content == NOTHING) {
        note_hazard(w, EBB_HAZARD_VOID, 0, time, access);
    } else if ((content & BROKEN) != 0) {
        note_hazard(w, EBB_HAZARD_BROKEN, content & ~BROKEN, time, access);
    } else if (origin != w->journal->accesses.data[access].begin) {
        note_hazard(w, EBB_HAZARD_BROKEN, w->piece[w->low[access]].write, time, access);
    } else {
        check_version(w, content, time, access);
    }
}

static void enter_read(walk *w, uint32_t thread, uint64_t time, uint64_t access) {
    for (uint64_t at = w->low[access]; at < w->high[access]; at = ebb__ordset_next(&w->starts, at + 1)) {
        w->read[at * w->n_threads + thread] = time;
    }
}

static void enter_write(walk *w, uint64_t time, uint64_t access, uint64_t content, uint64_t origin) {
    const uint64_t begin = w->low[access], end = w->high[access];
    if (begin == end) { return; }
    for (uint64_t at = ebb__ordset_next(&w->starts, begin + 1); at < end; at = ebb__ordset_next(&w->starts, at + 1)) {
        ebb__ordset_remove(&w->starts, at);
    }
    w->piece[begin] = (byte_piece){.write = time, .content = content, .origin = origin};
    memset(&w->read[begin * w->n_threads], 0, w->n_threads * sizeof *w->read);
}

/* ---- entries ------------------------------------------------------------------------------------ */

/* What moves bytes as they are: one read, one write. */
static bool is_move(const ebb_journal *j, const ebb_journal_entry *entry) {
    const ebb_journal_access *a = &j->accesses.data[entry->first_access];
    return entry->kind != EBB_JOURNAL_RUN && entry->n_accesses == 2 && (a[0].mode ^ a[1].mode) == EBB_UPDATE;
}

static void move_content(walk *w, const ebb_journal_entry *entry, uint64_t time) {
    const ebb_journal_access *a = w->journal->accesses.data;
    uint64_t src = entry->first_access, dst = src + 1, origin = 0;
    if (a[src].mode == EBB_WRITE) {
        src++;
        dst--;
    }
    uint64_t content = find_content(w, src, &origin);
    if ((content & BROKEN) != 0) { content = BROKEN | time; }
    enter_read(w, entry->thread, time, src);
    enter_write(w, time, dst, content, origin - a[src].begin + a[dst].begin);
}

static void take_command(walk *w, const ebb_journal_entry *entry, uint64_t time) {
    const ebb_journal_access *a = w->journal->accesses.data;
    const uint64_t first = entry->first_access, end = first + entry->n_accesses;
    const bool move = is_move(w->journal, entry);
    for (uint64_t i = first; i < end; i++) { check_order(w, time, i); }
    for (uint64_t i = first; !move && i < end; i++) {
        if ((a[i].mode & EBB_READ) != 0) { check_content(w, time, i); }
    }
    if (move) { move_content(w, entry, time); }
    for (uint64_t i = first; !move && i < end; i++) {
        if (a[i].mode == EBB_READ) { enter_read(w, entry->thread, time, i); }
    }
    for (uint64_t i = first; !move && i < end; i++) {
        if ((a[i].mode & EBB_WRITE) != 0) { enter_write(w, time, i, i + 1, a[i].begin); }
    }
    w->clock[entry->thread * w->n_threads + entry->thread] = time;
    w->counts.n_commands += entry->kind != EBB_JOURNAL_HOST;
}

/* Whether the clock learned something. */
static bool learn(const walk *w, uint64_t *clock, const uint64_t *from) {
    bool learned = false;
    for (uint64_t t = 0; t < w->n_threads; t++) {
        learned = learned || from[t] > clock[t];
        clock[t] = ebb_max_u64(clock[t], from[t]);
    }
    return learned;
}

static void take_wait(walk *w, uint64_t *clock, uint32_t event) {
    w->counts.n_waits++;
    w->counts.n_early += !w->recorded[event];
    const bool learned = learn(w, clock, &w->event[event * w->n_threads]);
    w->counts.n_implied += w->recorded[event] && !learned;
}

static void take_entry(walk *w, const ebb_journal_entry *entry, uint64_t time) {
    uint64_t *host = w->clock, *clock = &w->clock[entry->thread * w->n_threads];
    uint64_t *event = &w->event[entry->event * w->n_threads];
    if (entry->thread != 0) { (void)learn(w, clock, host); }
    switch (entry->kind) {
    case EBB_JOURNAL_RUN:
    case EBB_JOURNAL_COPY:
    case EBB_JOURNAL_CALL:
    case EBB_JOURNAL_HOST: take_command(w, entry, time); break;
    case EBB_JOURNAL_RECORD:
        w->counts.n_records++;
        w->recorded[entry->event] = true;
        memcpy(event, clock, w->n_threads * sizeof *event);
        break;
    case EBB_JOURNAL_WAIT: take_wait(w, clock, entry->event); break;
    case EBB_JOURNAL_EVENT_SYNC: (void)learn(w, host, event); break;
    case EBB_JOURNAL_STREAM_SYNC: (void)learn(w, host, clock); break;
    }
}

ebb_status ebb__hazard_check(const ebb_mem *mem, const ebb_journal *journal, const ebb_hazard_version *versions,
                             ebb_hazard_counts *counts_out, ebb_hazard *hazard_out) {
    walk w = {.journal = journal, .versions = versions};
    ebb__bump_init(&w.bump, ebb__mem_or_default(mem));
    ebb_status st = init_walk(&w);
    for (uint64_t i = 0; st == EBB_OK && i < journal->entries.n && w.hazard.kind == EBB_HAZARD_NONE; i++) {
        take_entry(&w, &journal->entries.data[i], i + 1);
    }
    ebb__bump_fini(&w.bump);
    if (st != EBB_OK) { return st; }
    *counts_out = w.counts;
    *hazard_out = w.hazard;
    return EBB_OK;
}
