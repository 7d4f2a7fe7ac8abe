/* SPDX-License-Identifier: Apache-2.0
 *
 * The iteration, from the rounds that a guess has seen.
 *
 *      round 0 (maybe) | round 1 | round 2 | now
 *
 * What round 1 has in common with its neighbours is the iteration; what is in one of them alone is noise. Where a block
 * is freed is told by round 1, whose blocks have died by now or live for longer than an iteration, and by round 2; the
 * later of the two counts, for a free that comes late costs more than one that comes early. But the iteration as
 * planned must not need more bytes than have ever lived. Blocks of round 2 that live into the next one are there when
 * the plan begins.
 */
#include "pool/pool_priv.h"

#define NONE EBB_POOL_NONE

typedef ebb_pool_record record;

typedef struct maker {
    const record *records;
    uint32_t n; /* records */
    ebb_pool_guess guess;
    uint32_t first, second; /* records with which rounds 1 and 2 begin */
    uint32_t *match;        /* [n - guess.begin]: the record a round before */
    uint32_t *kept;         /* [n_kept]: records of round 1 */
    uint32_t *next;         /* [n_kept]: the same of round 2, or NONE */
    uint32_t *kept_before;  /* [second - first + 1]: before this record of round 1 */
    uint32_t *next_before;  /* [n - second + 1]: before this record of round 2 */
    uint32_t n_kept;
    bool is_exact; /* rounds 1 and 2 are equal */
} maker;

static ebb_status align_rounds(maker *m, const ebb_pool_guess *g, ebb_bump *bump) {
    const uint32_t n_match = m->n - g->begin;
    m->guess = (ebb_pool_guess){.begin = g->begin, .from = g->from, .at = g->from};
    m->second = g->at;
    m->is_exact = g->n_wrong == g->wrong_before && g->wrong_in_round == 0;
    m->first = g->from;
    m->match = ebb__bump_alloc(bump, n_match, sizeof *m->match);
    if (m->match == NULL) { return EBB_E_NO_MEMORY; }
    memset(m->match, 0xff, n_match * sizeof *m->match);
    for (uint32_t i = g->begin; i < m->n; i++) {
        if (i == m->second) { m->first = m->guess.at; }
        ebb__pool_guess_follow(&m->guess, m->records, i, m->match);
    }
    EBB_ASSERT(m->guess.at == m->second && m->first < m->second && m->second >= g->begin);
    return EBB_OK;
}

/* One record of round 1 and one of round 2 between the same two that both have: the same request in another size. */
static void pair_resized(const maker *m, uint32_t *next) {
    for (uint32_t a = m->first + 1; a + 1 < m->second; a++) {
        const uint32_t before = next[a - 1 - m->first], after = next[a + 1 - m->first];
        if (next[a - m->first] != NONE || before == NONE || after != before + 2) { continue; }
        if (m->match[before + 1 - m->guess.begin] == NONE) { next[a - m->first] = before + 1; }
    }
}

static ebb_status keep_common(maker *m, ebb_bump *bump) {
    const uint32_t begin = m->guess.begin, n_first = m->second - m->first, n_second = m->n - m->second;
    uint32_t *next = ebb__bump_alloc(bump, n_first, sizeof *next);
    m->kept = ebb__bump_alloc(bump, n_first, sizeof *m->kept);
    m->next = ebb__bump_alloc(bump, n_first, sizeof *m->next);
    m->kept_before = ebb__bump_alloc(bump, (uint64_t)n_first + 1, sizeof *m->kept_before);
    m->next_before = ebb__bump_alloc(bump, (uint64_t)n_second + 1, sizeof *m->next_before);
    if (next == NULL || m->kept == NULL || m->next == NULL || m->kept_before == NULL || m->next_before == NULL) {
        return EBB_E_NO_MEMORY;
    }
    memset(next, 0xff, n_first * sizeof *next);
    for (uint32_t b = m->second; b < m->n; b++) {
        const uint32_t a = m->match[b - begin];
        if (a != NONE && a >= m->first && a < m->second) { next[a - m->first] = b; }
    }
    pair_resized(m, next);
    for (uint32_t a = m->first; a < m->second; a++) {
        m->kept_before[a - m->first] = m->n_kept;
        const bool has_before = !m->is_exact && a >= begin && m->match[a - begin] != NONE;
        if (next[a - m->first] == NONE && !has_before) { continue; }
        m->kept[m->n_kept] = a;
        m->next[m->n_kept++] = next[a - m->first];
    }
    m->kept_before[n_first] = m->n_kept;
    uint32_t k = 0;
    for (uint32_t b = m->second, i = 0; b <= m->n; b++) {
        for (; i < m->n_kept && (m->next[i] == NONE || m->next[i] < b); i++) {
            if (m->next[i] != NONE) { k = i + 1; }
        }
        m->next_before[b - m->second] = b == m->n ? m->n_kept : k;
    }
    return EBB_OK;
}

/* By when the block of round 1 died; 0: later than the plan can say. */
static uint32_t first_span(const maker *m, uint32_t i) {
    const uint32_t death = m->records[m->kept[i]].death;
    if (death == 0) { return 0; }
    if (death <= m->second) { return m->kept_before[death - m->first] - i; }
    const uint32_t span = m->n_kept - i + m->next_before[death - m->second];
    return span <= m->n_kept ? span : 0;
}

/* The same of round 2; 0: it lives, or was not there. */
static uint32_t second_span(const maker *m, uint32_t i) {
    const uint32_t death = m->next[i] != NONE ? m->records[m->next[i]].death : 0;
    return death == 0 ? 0 : m->next_before[death - m->second] - i;
}

/* The most bytes that live at once in an iteration as planned, with live_bytes at its begin. */
static ebb_status find_most(const ebb_pool_template *t, uint64_t live_bytes, ebb_bump *bump, uint64_t *most_out) {
    uint64_t *freed = ebb__bump_alloc(bump, t->n, sizeof *freed); /* before each request */
    if (freed == NULL) { return EBB_E_NO_MEMORY; }
    memset(freed, 0, t->n * sizeof *freed);
    for (size_t i = 0; i < t->n; i++) {
        const ebb_pool_planned *r = &t->requests[i];
        const uint64_t death = i + r->span;
        if (r->span > 0 && r->span <= t->n && death != t->n) { freed[death % t->n] += r->n; }
    }
    *most_out = live_bytes;
    for (size_t i = 0; i < t->n; i++) {
        live_bytes -= ebb_min_u64(live_bytes, freed[i]);
        live_bytes += t->requests[i].n;
        *most_out = ebb_max_u64(*most_out, live_bytes);
    }
    return EBB_OK;
}

static ebb_status fill(const maker *m, const ebb_pool_learner *learner, ebb_bump *bump, ebb_pool_template *t) {
    size_t n_odd = 0;
    t->n = m->n_kept;
    t->n_last = m->n - m->second;
    t->first = learner->first + m->second;
    t->requests = ebb__bump_alloc(bump, t->n, sizeof *t->requests);
    t->request_of = ebb__bump_alloc(bump, t->n_last, sizeof *t->request_of);
    if (t->requests == NULL || t->request_of == NULL) { return EBB_E_NO_MEMORY; }
    memset(t->request_of, 0xff, t->n_last * sizeof *t->request_of);
    for (uint32_t i = 0; i < m->n_kept; i++) {
        const uint32_t first = first_span(m, i), second = second_span(m, i);
        const uint32_t last = m->next[i] != NONE ? m->next[i] : m->kept[i];
        t->requests[i] = (ebb_pool_planned){.n = m->records[last].n, .span = ebb_max_u64(first, second)};
        n_odd += first != 0 && second != 0 && first != second;
        if (m->next[i] != NONE) { t->request_of[m->next[i] - m->second] = i; }
    }
    t->is_sound = t->n > 0 && 4 * n_odd <= t->n;
    return EBB_OK;
}

/* More than ever lived cannot live at once: one of the two rounds has told a block that lives for too long. So where
 * they differ, the sooner of the two frees counts. */
static ebb_status mend(const maker *m, uint64_t live_bytes, uint64_t peak_bytes, ebb_bump *bump, ebb_pool_template *t) {
    uint64_t most = 0;
    EBB_TRY(find_most(t, live_bytes, bump, &most));
    for (uint32_t i = 0; i < m->n_kept && most > peak_bytes; i++) {
        const uint32_t first = first_span(m, i), second = second_span(m, i);
        if (first != 0 && second != 0) { t->requests[i].span = ebb_min_u64(first, second); }
    }
    EBB_TRY(find_most(t, live_bytes, bump, &most));
    t->is_likely = most <= peak_bytes;
    return EBB_OK;
}

ebb_status ebb__pool_template_make(const ebb_pool_learner *learner, const ebb_pool_guess *guess, uint64_t live_bytes,
                                   uint64_t peak_bytes, ebb_bump *bump, ebb_pool_template *template_out) {
    maker m = {.records = learner->records.data, .n = (uint32_t)learner->records.n};
    EBB_TRY(align_rounds(&m, guess, bump));
    EBB_TRY(keep_common(&m, bump));
    EBB_TRY(fill(&m, learner, bump, template_out));
    return mend(&m, live_bytes, peak_bytes, bump, template_out);
}
