/* SPDX-License-Identifier: Apache-2.0
 *
 * Finding the iteration in a pool's requests.
 *
 * Each request is recorded. A few guesses are followed at a time; each says that what comes is what came once before,
 * from some record on:
 *
 *      records   weights | a b c d e f g h | a b c x d e g h | now
 *                          ^ from            ^ begin           here `at`, what the guess expects, has come to `begin`
 *
 * When a guess has gone on for a whole round, the iteration is known, and the next request is its first. A guess stands
 * up to noise: what does not fit is taken for an extra request; if the next one does not fit either, both are looked
 * for a few requests ahead, as pool_replay.c does. A guess that is wrong too often is given up.
 *
 * Guesses come from a table of the last sizes, with what was freed between them: where the last few were seen before,
 * and no guess follows from there, one begins, as far back as the two rounds are equal.
 *
 * Equal layers look like iterations. They are told from them so: what they allocate stays, or they free what was
 * there before, so as much must live at the end of a round as at its begin; and the rounds must be a good part of all
 * that was recorded, or one round a part that no layer is. A run of layers that passes for an iteration makes a plan
 * that does not hold; each time one did not, longer rounds are asked for.
 *
 * A plan is best made where least lives, for what lives then has its place already. So the pool waits for a moment
 * of the round where hardly more lives than anywhere in it.
 *
 * A request costs O(guesses), and now and then a look back, whose length is held to a few records for each request.
 */
#include "pool/pool_priv.h"

#define NONE EBB_POOL_NONE
#define MAX_RECORDS ((uint64_t)1 << 24) /* then all begins anew */
#define MIN_TABLE 256u
#define GRAM EBB_POOL_GRAM
#define MAX_AHEAD 256u
#define MAX_LOST 16u
#define MIN_WRONG 4u
#define MIN_RECORDS 32u /* that a guess has held for */
#define MAX_DOUBLINGS 12u
#define MAX_WRONG 4u   /* of a round's records, one in this many */
#define MANY_ROUNDS 8u /* a round that is such a part of all is a good part of it, though noise has hidden others */
#define MUCH 16u
#define CALM 10u     /* a moment at which such a part more lives than at least is calm */
#define LOOK_BACK 8u /* records for each request */

typedef ebb_pool_record record;
typedef ebb_pool_guess guess;

void ebb__pool_learner_reset(ebb_pool_learner *learner) {
    learner->first += learner->records.n;
    learner->records.n = 0;
    learner->n_guesses = 0;
    learner->freed_bytes = learner->n_looked_back = 0;
    learner->not_before = learner->n_missed = learner->origin = 0;
    for (size_t i = 0; i < learner->table.n; i++) { learner->table.data[i] = NONE; }
}

void ebb__pool_learner_fini(ebb_pool_learner *learner, const ebb_mem *mem) {
    EBB_VEC_FINI(mem, &learner->records);
    EBB_VEC_FINI(mem, &learner->table);
    EBB_ASSERT(learner->records.n == 0 && learner->table.n == 0);
}

/* ---- following a guess ------------------------------------------------------------------------ */

/* The one before, and this one, are found a few records ahead; or the one before was of another size. */
static bool find_ahead(guess *g, const record *records, uint32_t i, uint32_t *match) {
    for (uint32_t k = 0; k < MAX_AHEAD && g->at + k + 2 < i; k++) {
        const uint32_t before = g->at + k, here = before + 1;
        const bool is_before = records[before].n == records[i - 1].n;
        if (records[here].n != records[i].n || (k > 0 && !is_before)) { continue; }
        g->n_wrong = g->n_wrong + k - (is_before ? 2 : 1);
        if (match != NULL) {
            match[i - g->begin] = here;
            if (is_before) { match[i - 1 - g->begin] = before; }
        }
        g->at = here + 1;
        return true;
    }
    return false;
}

/* Records of the last round that do not fit. */
static uint32_t count_wrong(const guess *g) {
    const uint32_t n_now = g->n_wrong - ebb_min_u64(g->n_wrong, g->wrong_before);
    return n_now > g->wrong_in_round ? n_now : g->wrong_in_round;
}

static void end_round(guess *g, uint32_t next) {
    if (g->at < g->round) { return; }
    g->wrong_in_round = g->n_wrong - ebb_min_u64(g->n_wrong, g->wrong_before);
    g->wrong_before = g->n_wrong;
    g->round = next;
}

void ebb__pool_guess_follow(guess *g, const record *records, uint32_t i, uint32_t *match) {
    EBB_ASSERT(i >= g->begin && g->at >= g->from);
    if (g->at >= i) {
        g->is_wrong = true;
        return;
    }
    if (records[g->at].n == records[i].n) {
        if (match != NULL) { match[i - g->begin] = g->at; }
        g->at++;
        g->n_lost = 0;
        end_round(g, i + 1);
        return;
    }
    g->n_wrong++;
    g->n_lost++;
    if (g->n_lost > 1 && i > g->begin && find_ahead(g, records, i, match)) {
        g->n_lost = 0;
        end_round(g, i + 1);
    }
    const uint32_t length = i - g->at, planned = g->begin - g->from;
    const uint32_t drift = length > planned ? length - planned : planned - length;
    g->is_wrong = g->n_lost > MAX_LOST || g->n_wrong > (i - g->begin) / 4 + MIN_WRONG || 4 * drift > planned + 4;
}

/* ---- making guesses --------------------------------------------------------------------------- */

static uint64_t mix(uint64_t x) {
    x = (x ^ x >> 31) * 0x9e3779b97f4a7c15u;
    return x ^ x >> 29;
}

static uint32_t *find_gram(const ebb_pool_learner *learner, uint32_t last) {
    const record *r = &learner->records.data[last + 1 - GRAM];
    uint64_t hash = r[0].n;
    for (unsigned k = 1; k < GRAM; k++) { hash = mix(mix(hash) + r[k].n) + r[k].freed; }
    return &learner->table.data[mix(hash) & (learner->table.n - 1)];
}

static bool is_same(const record *a, const record *b) {
    for (unsigned k = 0; k < GRAM; k++) {
        if (a[k].n != b[k].n || (k > 0 && a[k].freed != b[k].freed)) { return false; }
    }
    return true;
}

/* The table has room for twice the records; a record that falls on another's place takes it. */
static ebb_status reserve_table(ebb_pool_learner *learner, const ebb_mem *mem) {
    const size_t n = learner->table.n, wanted = n == 0 ? MIN_TABLE : 2 * n;
    if (n > 2 * learner->records.n) { return EBB_OK; }
    EBB_TRY(EBB_RESERVE(mem, &learner->table, wanted - n));
    learner->table.n = wanted;
    for (size_t i = 0; i < wanted; i++) { learner->table.data[i] = NONE; }
    for (uint32_t i = GRAM - 1; i < learner->records.n; i++) { *find_gram(learner, i) = i; }
    return EBB_OK;
}

/* As far back as the two rounds are equal, up to a whole one. */
static void look_back(ebb_pool_learner *learner, guess *g) {
    const record *r = learner->records.data;
    const uint32_t length = g->begin - g->from;
    const uint64_t budget = LOOK_BACK * learner->records.n;
    for (uint32_t k = 0; k < length && g->from > 0 && learner->n_looked_back < budget; k++) {
        if (r[g->from - 1].n != r[g->begin - 1].n) { return; }
        g->from--;
        g->begin--;
        learner->n_looked_back++;
    }
}

static void add_guess(ebb_pool_learner *learner, uint32_t before, uint32_t last) {
    guess g = {.begin = last + 1 - GRAM, .from = before + 1 - GRAM, .at = before + 1};
    uint32_t slot = learner->n_guesses;
    for (uint32_t k = 0; k < learner->n_guesses; k++) {
        if (learner->guesses[k].at == g.at && !learner->guesses[k].is_wrong) { return; }
    }
    look_back(learner, &g);
    g.round = g.begin;
    for (uint32_t k = 0; k < learner->n_guesses && slot == EBB_POOL_GUESSES; k++) {
        if (learner->guesses[k].is_wrong) { slot = k; }
    }
    if (slot == EBB_POOL_GUESSES) { /* the one that began last goes, which has shown least */
        slot = 0;
        for (uint32_t k = 1; k < learner->n_guesses; k++) {
            if (learner->guesses[k].begin > learner->guesses[slot].begin) { slot = k; }
        }
        if (learner->guesses[slot].begin < g.begin) { return; }
    }
    learner->guesses[slot] = g;
    learner->n_guesses = ebb_max_u64(learner->n_guesses, slot + 1);
}

/* ---- recording -------------------------------------------------------------------------------- */

/* Guesses go on by the last record, and one may begin. */
static void guess_on(ebb_pool_learner *learner, uint32_t i) {
    for (uint32_t k = 0; k < learner->n_guesses; k++) {
        guess *g = &learner->guesses[k];
        if (!g->is_wrong) { ebb__pool_guess_follow(g, learner->records.data, i, NULL); }
    }
    if (i + 1 < GRAM) { return; }
    uint32_t *before = find_gram(learner, i);
    const record *r = learner->records.data;
    if (*before != NONE && is_same(&r[*before + 1 - GRAM], &r[i + 1 - GRAM])) { add_guess(learner, *before, i); }
    *before = i;
}

ebb_status ebb__pool_learner_take(ebb_pool_learner *learner, const ebb_mem *mem, const record *came, bool is_hit,
                                  uint64_t *note_out) {
    if (learner->records.n == MAX_RECORDS) { ebb__pool_learner_reset(learner); }
    record r = *came;
    EBB_ASSERT(r.n > 0);
    EBB_TRY(reserve_table(learner, mem));
    r.death = 0;
    r.freed = (uint32_t)(mix(learner->freed_bytes) >> 32);
    r.n_missed = learner->n_missed + (is_hit ? 0 : 1);
    EBB_TRY(EBB_PUSH(mem, &learner->records, r));
    learner->freed_bytes = 0;
    learner->n_missed = r.n_missed;
    guess_on(learner, (uint32_t)learner->records.n - 1);
    *note_out = learner->first + learner->records.n;
    return EBB_OK;
}

void ebb__pool_learner_give(ebb_pool_learner *learner, uint64_t note, uint64_t n) {
    if (note <= learner->first) { return; }
    const uint64_t i = note - 1 - learner->first;
    EBB_ASSERT(i < learner->records.n && learner->records.data[i].death == 0);
    learner->records.data[i].death = (uint32_t)learner->records.n;
    learner->freed_bytes += n;
}

/* ---- believing a guess ------------------------------------------------------------------------ */

/* What lived in the last round. */
static void measure(const ebb_pool_learner *learner, guess *g) {
    g->least_bytes = UINT64_MAX;
    g->most_bytes = 0;
    for (size_t i = g->at; i < learner->records.n; i++) {
        const record *r = &learner->records.data[i];
        g->least_bytes = ebb_min_u64(g->least_bytes, r->live_bytes);
        g->most_bytes = ebb_max_u64(g->most_bytes, r->live_bytes + r->n);
    }
    g->measured_at = (uint32_t)learner->records.n;
}

/* It has held for a whole round and more, and that is a good part of all. */
static bool has_shown(const ebb_pool_learner *learner, const guess *g) {
    const uint64_t n = learner->records.n, run = n - g->begin, length = n - g->at;
    const uint64_t n_counted = n - ebb_min_u64(learner->origin, g->begin);
    const uint64_t min_records = (uint64_t)MIN_RECORDS << ebb_min_u64(learner->n_failed, MAX_DOUBLINGS);
    if (g->is_wrong || g->at < g->begin || g->n_lost > 0 || length == 0 || run < min_records) { return false; }
    const bool is_much = 3 * (run + length) >= 2 * n_counted || MANY_ROUNDS * length >= n_counted;
    return MAX_WRONG * (uint64_t)count_wrong(g) <= length && is_much;
}

static uint64_t distance(uint64_t a, uint64_t b) {
    return a > b ? a - b : b - a;
}

/* Several iterations are one too: the shorter one, unless it is much worse. */
static bool is_preferred(const ebb_pool_learner *learner, const guess *a, const guess *b) {
    const uint64_t n = learner->records.n, a_length = n - a->at, b_length = n - b->at;
    const uint64_t a_wrong = count_wrong(a) * b_length, b_wrong = count_wrong(b) * a_length;
    const uint64_t some = a_length * b_length / MUCH;
    return a_length < b_length ? a_wrong <= b_wrong + some : a_wrong + some < b_wrong;
}

/* Whether a plan by this guess would miss less than half as often as the one of n_planned requests that was followed in
 * the last round. A much shorter round is no better: it is a part of the iteration that repeats itself. A much longer
 * one is several iterations, unless the plan is a part of one. */
static bool is_better(const ebb_pool_learner *learner, const guess *g, uint64_t n_planned) {
    const uint64_t n = learner->records.n, length = n - g->at;
    if (4 * length < 3 * n_planned) { return false; }
    EBB_ASSERT(g->at > 0 && length > 0);
    const uint64_t n_missed = learner->n_missed - learner->records.data[g->at - 1].n_missed;
    if (2 * length > 3 * n_planned && length < 4 * n_planned && 4 * n_missed < length) { return false; }
    return 2 * (uint64_t)count_wrong(g) < n_missed;
}

const guess *ebb__pool_learner_find(ebb_pool_learner *learner, uint64_t live_bytes, uint64_t n_planned) {
    const uint64_t n = learner->records.n;
    guess *best = NULL;
    if (n < learner->not_before) { return NULL; }
    for (uint32_t k = 0; k < learner->n_guesses; k++) {
        guess *g = &learner->guesses[k];
        if (!has_shown(learner, g) || (n_planned > 0 && !is_better(learner, g, n_planned))) { continue; }
        if (g->measured_at == 0 || n - g->measured_at > n - g->at) { measure(learner, g); }
        const uint64_t range_bytes = g->most_bytes - ebb_min_u64(g->most_bytes, g->least_bytes);
        const uint64_t grown_bytes = distance(live_bytes, learner->records.data[g->at].live_bytes);
        if (grown_bytes > range_bytes / 8 || live_bytes > g->least_bytes + range_bytes / CALM) { continue; }
        if (best == NULL || is_preferred(learner, g, best)) { best = g; }
    }
    return best;
}

static guess *own(ebb_pool_learner *learner, const guess *g) {
    return &learner->guesses[g - learner->guesses];
}

void ebb__pool_learner_wait(ebb_pool_learner *learner, const guess *g) {
    learner->not_before = (uint32_t)learner->records.n + (uint32_t)(learner->records.n - g->at) / 2 + 1;
}

void ebb__pool_learner_fail(ebb_pool_learner *learner, bool has_held) {
    learner->n_failed++;
    if (has_held) { learner->origin = (uint32_t)learner->records.n; }
}

void ebb__pool_learner_refuse(ebb_pool_learner *learner, const guess *g) {
    own(learner, g)->is_wrong = true;
}
