/* SPDX-License-Identifier: Apache-2.0
 *
 * The proof of plans that no policy makes, followed with an executor and nothing of a network: each is proven. Then
 * mistakes are planted into what was written down, one at a time: a wait that is left out, a copy that is too short,
 * a copy that is left out from the first or the second iteration on (bytes that were never written, or of an older
 * version), a home that was not written, two steps in each other's place. Whether one does harm is found out with real
 * bytes, or by what a wait orders; what does harm must be found.
 */
#include "plan_chance.h"

#include "run/proof.h"

#define N_LAPS 3

typedef struct subject {
    ebb_program *program;
    ebb_machine *machine;
    ebb_plan *plan;
    ebb_executor *executor;
    const ebb_command *commands;
    size_t n_commands;
    ebb_proof_book book;
    ebb_journal journal;
    ebb_hazard_counts counts;
} subject;

/* With a plan by chance, or one of the policy none: nothing moves, and there is one order. */
static void subject_init(subject *s, uint64_t seed, bool by_chance) {
    *s = (subject){.program = random_program(seed)};
    if (by_chance) {
        s->plan = make_plan(s->program, seed, &s->machine);
    } else {
        ebb_plan_options options = EBB_PLAN_OPTIONS_INIT;
        options.policy = "none";
        assert_int_equal(ebb_machine_create(NULL, &s->machine), EBB_OK);
        assert_int_equal(ebb_plan_make(s->program, s->machine, &options, &s->plan, NULL), EBB_OK);
    }
    assert_int_equal(ebb_executor_create(NULL, s->program, s->plan, &s->executor), EBB_OK);
    s->commands = ebb_executor_commands(s->executor, &s->n_commands);
    assert_int_equal(ebb__proof_init(NULL, s->program, s->plan, &s->book), EBB_OK);
    if (ebb__proof_write(&s->book, s->executor, &s->journal) != EBB_OK ||
        ebb__proof_check(&s->book, &s->counts) != EBB_OK) {
        fail_msg("seed %zu: %s", (size_t)seed, ebb_last_error());
    }
}

static void subject_fini(subject *s) {
    ebb__journal_fini(NULL, &s->journal);
    ebb__proof_fini(&s->book);
    ebb_executor_destroy(s->executor);
    ebb_plan_destroy(s->plan);
    ebb_machine_destroy(s->machine);
    ebb_program_destroy(s->program);
}

/* ---- with real bytes ---------------------------------------------------------------------------- */

/* A mistake in one copy: from lap number from_lap on it is left out, or moves half of its bytes. Or a home, by the
 * order in which they are filled, that is left as it is. */
typedef struct mistake {
    size_t command, home; /* SIZE_MAX: not that */
    uint64_t from_lap;
    bool halves;
} mistake;

typedef struct bytes {
    const subject *subject;
    const mistake *mistake;
    const size_t *order; /* of commands; NULL: the plan's */
    uint8_t *tier[EBB_MAX_TIERS];
    uint64_t lap, hash; /* of all that was computed, in any order */
} bytes;

static uint64_t halved(uint64_t n) {
    return n - n / 2;
}

static ebb_status copy(const bytes *b, const ebb_command *c) {
    const bool is_hit = (size_t)(c - b->subject->commands) == b->mistake->command && b->lap >= b->mistake->from_lap;
    if (is_hit && !b->mistake->halves) { return EBB_OK; }
    memcpy(b->tier[c->to] + c->to_offset, b->tier[c->from] + c->from_offset,
           is_hit ? halved(c->size_bytes) : c->size_bytes);
    return EBB_OK;
}

static ebb_status compute(bytes *b, const ebb_command *c) {
    const ebb_program *p = b->subject->program;
    const ebb_step *step = &p->steps.data[c->action.target];
    const ebb_access *access = &p->accesses.data[step->first_access];
    uint64_t h = ebb__hash(EBB_HASH_INIT, &c->action.target, sizeof c->action.target);
    bool reads = false;
    for (uint32_t i = 0; i < step->n_accesses; i++) {
        if ((access[i].mode & EBB_READ) == 0) { continue; }
        h = ebb__hash(h, b->tier[EBB_DEVICE] + c->offsets[i], p->tensors.data[access[i].tensor].size_bytes);
        reads = true;
    }
    if (!reads) { h = ebb__hash(h, &b->lap, sizeof b->lap); } /* what is fed differs from lap to lap */
    if (c->scratch_bytes > 0) { memset(b->tier[EBB_DEVICE] + c->scratch_offset, 0xee, c->scratch_bytes); }
    for (uint32_t i = 0; i < step->n_accesses; i++) {
        if ((access[i].mode & EBB_WRITE) == 0) { continue; }
        spread(b->tier[EBB_DEVICE] + c->offsets[i], p->tensors.data[access[i].tensor].size_bytes, h + i);
    }
    b->hash += ebb__hash(b->lap, &h, sizeof h);
    return EBB_OK;
}

static void fill_homes(const bytes *b) {
    const ebb_program *p = b->subject->program;
    size_t n_seen = 0;
    for (uint32_t t = 0; t < p->tensors.n; t++) {
        size_t n = 0;
        const ebb_home *homes = ebb_executor_homes(b->subject->executor, t, &n);
        if (!p->tensors.data[t].persistent) { continue; }
        uint8_t *whole = malloc(p->tensors.data[t].size_bytes);
        spread(whole, p->tensors.data[t].size_bytes, t);
        for (size_t h = 0; h < n; h++) {
            if (n_seen++ == b->mistake->home) { continue; }
            memcpy(b->tier[homes[h].tier] + homes[h].offset, whole + homes[h].begin, homes[h].size_bytes);
        }
        free(whole);
    }
}

static void execute_lap(bytes *b) {
    for (size_t i = 0; i < b->subject->n_commands; i++) {
        const ebb_command *c = &b->subject->commands[b->order != NULL ? b->order[i] : i];
        if (c->engine == EBB_NO_ENGINE) { continue; }
        assert_int_equal(c->engine == EBB_COMPUTE ? compute(b, c) : copy(b, c), EBB_OK);
    }
}

/* What computing comes to, and what lies at homes after each lap. */
static uint64_t execute(const subject *s, const mistake *m, const size_t *order) {
    const ebb_plan_summary sum = ebb_plan_get_summary(s->plan);
    bytes b = {.subject = s, .mistake = m, .order = order, .hash = EBB_HASH_INIT};
    for (uint32_t t = 0; t < EBB_MAX_TIERS; t++) {
        const uint64_t n = t == EBB_DEVICE ? sum.peak_bytes : sum.tier_bytes[t];
        b.tier[t] = malloc(n + 1);
        memset(b.tier[t], 0xaa, n);
    }
    fill_homes(&b);
    for (b.lap = 0; b.lap < N_LAPS; b.lap++) {
        execute_lap(&b);
        for (uint32_t t = 0; t < s->program->tensors.n; t++) {
            size_t n = 0;
            const ebb_home *homes = ebb_executor_homes(s->executor, t, &n);
            for (size_t h = 0; h < n; h++) {
                b.hash = ebb__hash(b.hash, b.tier[homes[h].tier] + homes[h].offset, homes[h].size_bytes);
            }
        }
    }
    for (uint32_t t = 0; t < EBB_MAX_TIERS; t++) { free(b.tier[t]); }
    return b.hash;
}

/* ---- mistakes ----------------------------------------------------------------------------------- */

typedef struct tally {
    size_t n, n_harmful, n_found;
} tally;

typedef enum word { WORD_RACE, WORD_BROKEN, WORD_VOID, WORD_STALE, N_WORDS } word;
static const char *const words[N_WORDS] = {"nothing orders", "more than one content", "never written",
                                           "not the version"};

typedef struct tallies {
    tally waits, short_copies, missing_copies, homes;
    size_t n_said[N_WORDS];
} tallies;

static bool is_found(subject *s, tallies *all) {
    ebb_hazard_counts counts;
    if (ebb__proof_check(&s->book, &counts) == EBB_OK) { return false; }
    for (word w = 0; w < N_WORDS; w++) { all->n_said[w] += strstr(ebb_last_error(), words[w]) != NULL; }
    return true;
}

/* Whether the wait orders something: it is for an event that was recorded, and says what its engine did not know. */
static bool orders(const subject *s, size_t wait) {
    ebb_journal before = s->journal;
    ebb_hazard_counts with, without;
    ebb_hazard hazard;
    before.entries.n = wait;
    assert_int_equal(ebb__hazard_check(NULL, &before, s->book.told.data, &without, &hazard), EBB_OK);
    before.entries.n = wait + 1;
    assert_int_equal(ebb__hazard_check(NULL, &before, s->book.told.data, &with, &hazard), EBB_OK);
    return with.n_early + with.n_implied == without.n_early + without.n_implied;
}

/* An entry that waits for an event which nothing records: as good as not there. */
static void leave_out_a_wait(subject *s, ebb_rng *rng, tallies *all) {
    if (s->counts.n_waits == 0) { return; }
    size_t at = ebb__rng_below(rng, s->journal.entries.n);
    while (s->journal.entries.data[at].kind != EBB_JOURNAL_WAIT) { at = (at + 1) % s->journal.entries.n; }
    const bool is_harmful = orders(s, at);
    ebb_journal_entry *entry = &s->journal.entries.data[at];
    const ebb_journal_entry kept = *entry;
    entry->event = s->journal.n_events++;
    const bool found = is_found(s, all);
    s->journal.n_events--;
    *entry = kept;
    all->waits.n++;
    all->waits.n_harmful += is_harmful;
    all->waits.n_found += is_harmful && found;
}

/* Plant it into the journal, in each iteration that it is for. */
static void plant(subject *s, const mistake *m) {
    for (size_t i = 0; i < s->journal.entries.n; i++) {
        ebb_journal_entry *entry = &s->journal.entries.data[i];
        const bool is_early = m->from_lap >= s->book.begin.n || i < s->book.begin.data[m->from_lap];
        if (is_early || s->book.command.data[i] != m->command) { continue; }
        for (uint32_t a = 0; a < entry->n_accesses; a++) {
            ebb_journal_access *access = &s->journal.accesses.data[entry->first_access + a];
            access->end = m->halves ? access->begin + halved(access->end - access->begin) : access->begin;
        }
    }
}

static void break_a_copy(subject *s, ebb_rng *rng, uint64_t expected, bool halves, tallies *all) {
    mistake m = {.command = ebb__rng_below(rng, s->n_commands),
                 .home = SIZE_MAX,
                 .from_lap = ebb__rng_below(rng, 2),
                 .halves = halves};
    size_t n_seen = 0;
    while (s->commands[m.command].engine == EBB_COMPUTE || s->commands[m.command].engine == EBB_NO_ENGINE) {
        m.command = (m.command + 1) % s->n_commands;
        if (++n_seen == s->n_commands) { return; }
    }
    const size_t n_bytes = s->journal.accesses.n * sizeof *s->journal.accesses.data;
    ebb_journal_access *kept = malloc(n_bytes);
    memcpy(kept, s->journal.accesses.data, n_bytes);
    plant(s, &m);
    const bool found = is_found(s, all), is_harmful = execute(s, &m, NULL) != expected;
    memcpy(s->journal.accesses.data, kept, n_bytes);
    free(kept);
    tally *t = halves ? &all->short_copies : &all->missing_copies;
    t->n++;
    t->n_harmful += is_harmful;
    t->n_found += is_harmful && found;
}

/* One of the host's copies to a home before the first iteration. */
static void leave_out_a_home(subject *s, ebb_rng *rng, uint64_t expected, tallies *all) {
    size_t n_homes = 0, at = 0;
    for (size_t i = 0; i < s->book.begin.data[0]; i++) { n_homes += s->journal.entries.data[i].n_accesses == 2; }
    if (n_homes == 0) { return; }
    const mistake m = {.command = SIZE_MAX, .home = ebb__rng_below(rng, n_homes)};
    for (size_t n_seen = 0; s->journal.entries.data[at].n_accesses != 2 || n_seen++ < m.home;) { at++; }
    ebb_journal_access *a = &s->journal.accesses.data[s->journal.entries.data[at].first_access];
    const ebb_journal_access kept[2] = {a[0], a[1]};
    a[0].end = a[0].begin;
    a[1].end = a[1].begin;
    const bool found = is_found(s, all), is_harmful = execute(s, &m, NULL) != expected;
    a[0] = kept[0];
    a[1] = kept[1];
    all->homes.n++;
    all->homes.n_harmful += is_harmful;
    all->homes.n_found += is_harmful && found;
}

static void tell(const char *what, const tally *t) {
    print_message("%s: %zu planted, %zu of %zu harmful ones found\n", what, t->n, t->n_found, t->n_harmful);
    assert_int_equal(t->n_found, t->n_harmful);
}

static void test_plans_by_chance(void **state) {
    (void)state;
    const uint64_t first = number("EBB_SEED", 1), n = number("EBB_COUNT", getenv("EBB_TEST_ALL") != NULL ? 2000 : 100);
    const mistake none = {.command = SIZE_MAX, .home = SIZE_MAX};
    tallies all = {0};
    uint64_t n_pairs = 0, n_versions = 0;
    for (uint64_t seed = first; seed < first + n; seed++) {
        subject s;
        ebb_rng rng;
        ebb__rng_init(&rng, seed, 13);
        subject_init(&s, seed, true);
        n_pairs += s.counts.n_pairs;
        n_versions += s.counts.n_versions;
        const uint64_t expected = execute(&s, &none, NULL);
        leave_out_a_wait(&s, &rng, &all);
        break_a_copy(&s, &rng, expected, true, &all);
        break_a_copy(&s, &rng, expected, false, &all);
        leave_out_a_home(&s, &rng, expected, &all);
        assert_false(is_found(&s, &all));
        subject_fini(&s);
    }
    print_message("%zu pairs in order, %zu versions found\n", (size_t)n_pairs, (size_t)n_versions);
    tell("waits left out", &all.waits);
    tell("copies too short", &all.short_copies);
    tell("copies left out", &all.missing_copies);
    tell("homes not written", &all.homes);
    for (word w = 0; w < N_WORDS; w++) { print_message("'%s': %zu\n", words[w], all.n_said[w]); }
    if (n < 100) { return; }
    assert_true(all.waits.n_harmful > n / 2 && all.short_copies.n_harmful > n / 4);
    assert_true(all.missing_copies.n_harmful > n / 4 && all.homes.n_harmful > n / 4);
    for (word w = 0; w < N_WORDS; w++) { assert_true(all.n_said[w] > n / 20); }
}

/* ---- orders ------------------------------------------------------------------------------------- */

static void exchange(subject *s, size_t a, size_t b) {
    const ebb_journal_entry entry = s->journal.entries.data[a];
    const uint32_t command = s->book.command.data[a];
    s->journal.entries.data[a] = s->journal.entries.data[b];
    s->book.command.data[a] = s->book.command.data[b];
    s->journal.entries.data[b] = entry;
    s->book.command.data[b] = command;
}

/* Where everything is always there and one engine does it all, an order is right or not by versions alone: two steps
 * change places, and the proof says no just where the bits differ. */
static void test_orders_by_chance(void **state) {
    (void)state;
    const uint64_t first = number("EBB_SEED", 1), n = number("EBB_COUNT", getenv("EBB_TEST_ALL") != NULL ? 2000 : 200);
    const mistake none = {.command = SIZE_MAX, .home = SIZE_MAX};
    tallies all = {0};
    size_t n_right = 0, n_wrong = 0;
    for (uint64_t seed = first; seed < first + n; seed++) {
        subject s;
        ebb_rng rng;
        ebb__rng_init(&rng, seed, 17);
        subject_init(&s, seed, false);
        size_t *order = calloc(s.n_commands, sizeof *order);
        for (size_t i = 0; i < s.n_commands; i++) { order[i] = i; }
        const size_t a = ebb__rng_below(&rng, s.n_commands);
        const size_t b = ebb_min_u64(a + 1 + ebb__rng_below(&rng, 4), s.n_commands - 1);
        order[a] = b;
        order[b] = a;
        for (size_t i = 0; i < s.book.begin.n; i++) {
            exchange(&s, s.book.begin.data[i] + a, s.book.begin.data[i] + b);
        }
        const bool is_wrong = execute(&s, &none, order) != execute(&s, &none, NULL);
        if (is_found(&s, &all) != is_wrong) {
            fail_msg("seed %zu: %zu and %zu, %s", (size_t)seed, a, b, is_wrong ? "not found" : ebb_last_error());
        }
        n_wrong += is_wrong;
        n_right += !is_wrong && a != b;
        free(order);
        subject_fini(&s);
    }
    print_message("orders: %zu wrong ones found, %zu right ones accepted\n", n_wrong, n_right);
    if (n < 100) { return; }
    assert_true(n_wrong > n / 4 && n_right > n / 20 && all.n_said[WORD_STALE] > n / 20);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_plans_by_chance), cmocka_unit_test(test_orders_by_chance)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
