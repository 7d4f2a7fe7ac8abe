/* SPDX-License-Identifier: Apache-2.0
 *
 * The check for hazards: journals by hand for each of its rules; then the journal of a run with mistakes planted one at
 * a time (each wait and each event removed, each command on each other stream, each neighbours swapped, each copy
 * shortened), each judged by the check and by its definition: a path in the graph of what a device promises, for every
 * pair of conflicting accesses.
 */
#include "run_support.h"

#include "backend/journal.h"
#include "run/hazard.h"

/* ---- by hand ------------------------------------------------------------------------------------ */

enum { HOST, ONE, TWO, THREE, N_THREADS };
#define N_EVENTS 4

static void put(ebb_journal *j, ebb_journal_kind kind, uint32_t thread, uint32_t event) {
    const ebb_journal_entry entry = {
        .kind = kind, .thread = thread, .event = event, .first_access = j->accesses.n, .n_accesses = 0};
    j->n_threads = N_THREADS;
    j->n_events = N_EVENTS;
    assert_int_equal(EBB_PUSH(NULL, &j->entries, entry), EBB_OK);
}

static void command(ebb_journal *j, uint32_t thread, uint32_t mode, uint64_t begin, uint64_t end) {
    put(j, thread == HOST ? EBB_JOURNAL_HOST : EBB_JOURNAL_RUN, thread, 0);
    const ebb_journal_access access = {begin, end, 0, mode};
    j->entries.data[j->entries.n - 1].n_accesses = 1;
    assert_int_equal(EBB_PUSH(NULL, &j->accesses, access), EBB_OK);
}

static void move(ebb_journal *j, uint32_t thread, uint64_t from, uint64_t to, uint64_t size_bytes) {
    command(j, thread, EBB_READ, from, from + size_bytes);
    const ebb_journal_access access = {to, to + size_bytes, 0, EBB_WRITE};
    j->entries.data[j->entries.n - 1].kind = EBB_JOURNAL_COPY;
    j->entries.data[j->entries.n - 1].n_accesses = 2;
    assert_int_equal(EBB_PUSH(NULL, &j->accesses, access), EBB_OK);
}

static ebb_hazard judge(const ebb_journal *j, ebb_hazard_counts *counts) {
    ebb_hazard hazard;
    assert_int_equal(ebb__hazard_check(NULL, j, NULL, counts, &hazard), EBB_OK);
    return hazard;
}

/* Judge, and begin anew. */
static ebb_hazard judge_and_clear(ebb_journal *j) {
    ebb_hazard_counts counts;
    ebb_hazard hazard = judge(j, &counts);
    EBB_VEC_FINI(NULL, &j->entries);
    EBB_VEC_FINI(NULL, &j->accesses);
    return hazard;
}

static void conflicts_need_order(void **state) {
    (void)state;
    ebb_journal j = {0};
    assert_int_equal(judge_and_clear(&j).kind, EBB_HAZARD_NONE);
    command(&j, ONE, EBB_WRITE, 100, 200);
    command(&j, TWO, EBB_WRITE, 150, 300);
    ebb_hazard h = judge_and_clear(&j);
    assert_int_equal(h.kind, EBB_HAZARD_RACE);
    assert_true(h.first == 0 && h.second == 1 && h.access.begin == 150 && h.access.end == 200);
    command(&j, ONE, EBB_WRITE, 100, 200); /* side by side */
    command(&j, TWO, EBB_WRITE, 200, 300);
    assert_int_equal(judge_and_clear(&j).kind, EBB_HAZARD_NONE);
    command(&j, HOST, EBB_WRITE, 0, 10); /* reads do not conflict, and a command is after what the host did */
    command(&j, ONE, EBB_READ, 0, 10);
    command(&j, TWO, EBB_READ, 0, 10);
    command(&j, HOST, EBB_READ, 0, 10);
    assert_int_equal(judge_and_clear(&j).kind, EBB_HAZARD_NONE);
    command(&j, HOST, EBB_WRITE, 0, 10); /* but the host is not after a command */
    command(&j, ONE, EBB_READ, 0, 10);
    command(&j, HOST, EBB_WRITE, 5, 6);
    h = judge_and_clear(&j);
    assert_true(h.kind == EBB_HAZARD_RACE && h.first == 1 && h.second == 2);
    assert_true(h.access.begin == 5 && h.access.end == 6);
}

static void each_promise_orders(void **state) {
    (void)state;
    for (int mistake = 0; mistake < 6; mistake++) {
        ebb_journal j = {0};
        command(&j, ONE, EBB_WRITE, 0, 10);
        if (mistake != 1) { put(&j, EBB_JOURNAL_RECORD, ONE, 2); }
        put(&j, EBB_JOURNAL_WAIT, TWO, mistake == 2 ? 3 : 2);
        if (mistake == 3) { command(&j, ONE, EBB_WRITE, 0, 10); } /* after the record */
        command(&j, mistake == 4 ? THREE : TWO, EBB_WRITE, 0, 10);
        put(&j, EBB_JOURNAL_RECORD, TWO, 1);
        put(&j, EBB_JOURNAL_EVENT_SYNC, HOST, mistake == 5 ? 2 : 1);
        command(&j, HOST, EBB_WRITE, 0, 10);
        command(&j, THREE, EBB_WRITE, 0, 10);
        put(&j, EBB_JOURNAL_STREAM_SYNC, THREE, 0);
        command(&j, HOST, EBB_WRITE, 0, 10);
        assert_int_equal(judge_and_clear(&j).kind, mistake == 0 ? EBB_HAZARD_NONE : EBB_HAZARD_RACE);
    }
}

/* The latest record when the wait is issued counts: neither an earlier nor a later one. */
static void a_wait_is_for_the_latest_record(void **state) {
    (void)state;
    for (int late = 0; late < 2; late++) {
        ebb_journal j = {0};
        ebb_hazard_counts counts;
        put(&j, EBB_JOURNAL_WAIT, TWO, 0); /* early */
        command(&j, ONE, EBB_WRITE, 0, 10);
        put(&j, EBB_JOURNAL_RECORD, ONE, 0);
        command(&j, ONE, EBB_WRITE, 0, 10);
        if (late == 1) { put(&j, EBB_JOURNAL_WAIT, TWO, 0); }
        put(&j, EBB_JOURNAL_RECORD, ONE, 0);
        if (late == 0) { put(&j, EBB_JOURNAL_WAIT, TWO, 0); }
        put(&j, EBB_JOURNAL_WAIT, TWO, 0); /* implied, or in time */
        (void)judge(&j, &counts);
        assert_true(counts.n_waits == 3 && counts.n_early == 1 && counts.n_implied == (late == 0) &&
                    counts.n_records == 2);
        if (late == 1) { j.entries.n--; }
        command(&j, TWO, EBB_READ, 0, 10);
        assert_int_equal(judge_and_clear(&j).kind, late == 1 ? EBB_HAZARD_RACE : EBB_HAZARD_NONE);
    }
}

static void what_is_read_is_one_content(void **state) {
    (void)state;
    ebb_journal j = {0};
    command(&j, ONE, EBB_READ, 0, 10);
    assert_int_equal(judge_and_clear(&j).kind, EBB_HAZARD_VOID);
    command(&j, ONE, EBB_WRITE, 0, 10);
    command(&j, ONE, EBB_WRITE, 5, 10);
    command(&j, ONE, EBB_READ, 0, 10);
    ebb_hazard h = judge_and_clear(&j);
    assert_true(h.kind == EBB_HAZARD_BROKEN && h.first == 1 && h.second == 2);
    for (uint64_t mistake = 0; mistake < 3; mistake++) {
        command(&j, ONE, EBB_WRITE, 100, 110);
        move(&j, ONE, 100, 200, 10 - (mistake == 1));
        command(&j, ONE, EBB_WRITE, 100, 120);
        move(&j, ONE, 200, 100 + (mistake == 2), 10);
        command(&j, ONE, EBB_READ, 100, 110);
        assert_int_equal(judge_and_clear(&j).kind, mistake == 0 ? EBB_HAZARD_NONE : EBB_HAZARD_BROKEN);
    }
    command(&j, ONE, EBB_WRITE, 100, 110);
    command(&j, ONE, EBB_READ, 102, 108); /* not from its begin */
    assert_int_equal(judge_and_clear(&j).kind, EBB_HAZARD_BROKEN);
}

/* A read must find the version that is told, wherever it was carried meanwhile. */
static void what_is_read_is_the_version_told(void **state) {
    (void)state;
    for (uint64_t found = 0; found < 3; found++) {
        ebb_journal j = {0};
        ebb_hazard_counts counts;
        ebb_hazard hazard;
        command(&j, ONE, EBB_WRITE, 0, 10);
        command(&j, ONE, EBB_WRITE, 0, 10);
        move(&j, ONE, 0, 100, 10);
        command(&j, ONE, EBB_WRITE, 0, 10);
        command(&j, ONE, EBB_READ, 100, 110);
        const ebb_hazard_version versions[6] = {{.makes = 1}, {.makes = 2}, {0}, {0}, {.makes = 3}, {.finds = found}};
        assert_int_equal(ebb__hazard_check(NULL, &j, versions, &counts, &hazard), EBB_OK);
        assert_int_equal(counts.n_versions, found == 2);
        assert_int_equal(hazard.kind, found == 1 ? EBB_HAZARD_STALE : EBB_HAZARD_NONE);
        if (found == 1) { assert_true(hazard.first == 2 && hazard.second == 4 && hazard.access.begin == 100); }
        (void)judge_and_clear(&j);
    }
}

/* A step that is run again makes its version once more: a part of it may come from a copy of the first. */
static void a_version_made_twice_is_one_content(void **state) {
    (void)state;
    for (uint64_t again = 0; again < 3; again++) {
        ebb_journal j = {0};
        ebb_hazard_counts counts;
        ebb_hazard hazard;
        command(&j, ONE, EBB_WRITE, 0, 10);
        move(&j, ONE, 0, 100, 5);
        command(&j, ONE, EBB_WRITE, 0, 10);
        move(&j, ONE, 100, 0, 5);
        command(&j, ONE, EBB_READ, 0, 10);
        const ebb_hazard_version versions[7] = {{.makes = 1}, {0}, {0}, {.makes = again}, {0}, {0}, {.finds = 1}};
        assert_int_equal(ebb__hazard_check(NULL, &j, versions, &counts, &hazard), EBB_OK);
        assert_int_equal(hazard.kind, again == 1 ? EBB_HAZARD_NONE : EBB_HAZARD_BROKEN);
        (void)judge_and_clear(&j);
    }
}

/* ---- a run's journal ---------------------------------------------------------------------------- */

typedef struct written {
    ebb_device *dry, *device;
    ebb_graph *graph;
    ebb_lowered *lowered;
    ebb_plan *plan;
    ebb_run *run;
    const ebb_journal *journal;
} written;

#define N_ITERATIONS 3

static void make_plan(written *w, uint32_t tier) {
    ebb_machine *machine = NULL;
    assert_int_equal(ebb_machine_create(NULL, &machine), EBB_OK);
    ebb_plan_options options = EBB_PLAN_OPTIONS_INIT;
    options.effort = 0;
    options.budget_bytes = 1;
    options.tier_bytes[EBB_HOST] = tier == EBB_HOST ? UINT64_MAX : 0;
    options.tier_bytes[EBB_DISK] = tier == EBB_DISK ? UINT64_MAX : 0;
    ebb_no_fit no_fit = {0};
    const ebb_program *program = ebb_lowered_program(w->lowered);
    assert_int_equal(ebb_plan_make(program, machine, &options, &w->plan, &no_fit), EBB_E_NO_FIT);
    options.budget_bytes = no_fit.least_budget_bytes;
    assert_int_equal(ebb_plan_make(program, machine, &options, &w->plan, &no_fit), EBB_OK);
    ebb_machine_destroy(machine);
}

static void write_down(written *w, uint32_t tier, bool graphs) {
    float plain[8 * 8 * 8 * 8] = {0};
    assert_int_equal(ebb_device_open("dry", NULL, &w->dry), EBB_OK);
    assert_int_equal(ebb__journal_open(w->dry, &w->device), EBB_OK);
    w->graph = run_fixture_graph();
    assert_int_equal(ebb_lower(w->graph, w->device, &w->lowered), EBB_OK);
    make_plan(w, tier);
    ebb__journal_restart(w->device, graphs);
    assert_int_equal(ebb_run_create(w->lowered, w->plan, NULL, &w->run), EBB_OK);
    w->run->note_at = plain; /* a dry device pads nothing */
    w->run->note_bytes = sizeof plain;
    for (ebb_value v = 0; v < w->graph->values.n; v++) {
        const ebb_value_info *info = &w->graph->values.data[v];
        if (!ebb__value_is_persistent(info->kind) || w->lowered->values[v].tensor == UINT32_MAX) { continue; }
        assert_true((size_t)ebb__shape_elements(&info->shape) <= sizeof plain / sizeof plain[0]);
        assert_int_equal(ebb_run_set_value(w->run, v, plain), EBB_OK);
    }
    for (uint64_t i = 0; i < N_ITERATIONS; i++) { assert_int_equal(ebb_run_iteration(w->run, i, i + 1, 0.1f), EBB_OK); }
    w->journal = ebb__journal_get(w->device);
}

static void written_fini(written *w) {
    ebb_run_destroy(w->run);
    ebb_plan_destroy(w->plan);
    ebb_lowered_destroy(w->lowered);
    ebb_graph_destroy(w->graph);
    ebb_device_close(w->device);
    ebb_device_close(w->dry);
}

/* ---- the definition ------------------------------------------------------------------------------ */

static bool is_command(const ebb_journal_entry *e) {
    return e->kind <= EBB_JOURNAL_HOST;
}

static bool conflict(const ebb_journal *j, const ebb_journal_entry *a, const ebb_journal_entry *b) {
    for (uint32_t i = 0; i < a->n_accesses; i++) {
        for (uint32_t k = 0; k < b->n_accesses; k++) {
            const ebb_journal_access *x = &j->accesses.data[a->first_access + i];
            const ebb_journal_access *y = &j->accesses.data[b->first_access + k];
            const bool meet = x->space == y->space && x->begin < y->end && y->begin < x->end;
            if (meet && ((x->mode | y->mode) & EBB_WRITE) != 0) { return true; }
        }
    }
    return false;
}

/* Pairs of entries that conflict; the same whatever order they are in. An entry is known by first_access there, as
 * commands alone have any. */
typedef EBB_VEC(uint32_t) pair_list; /* two each */

static void list_pairs(const ebb_journal *j, pair_list *pairs) {
    for (uint32_t b = 0; b < j->entries.n; b++) {
        for (uint32_t a = 0; a < b; a++) {
            if (!conflict(j, &j->entries.data[a], &j->entries.data[b])) { continue; }
            assert_int_equal(EBB_PUSH(NULL, pairs, (uint32_t)j->entries.data[a].first_access), EBB_OK);
            assert_int_equal(EBB_PUSH(NULL, pairs, (uint32_t)j->entries.data[b].first_access), EBB_OK);
        }
    }
}

typedef struct order {
    size_t words;
    uint64_t *before; /* [n * words]: bit a of row b: a happens before b */
    uint32_t *at;     /* by first access: the command's entry */
} order;

static void add_before(order *o, size_t b, size_t a) {
    if (a == SIZE_MAX) { return; }
    for (size_t i = 0; i < o->words; i++) { o->before[b * o->words + i] |= o->before[a * o->words + i]; }
    o->before[b * o->words + a / 64] |= (uint64_t)1 << (a % 64);
}

/* The graph of what a device promises, closed. */
static void close_order(order *o, const ebb_journal *j) {
    size_t last[8], *recorded = malloc(j->n_events * sizeof *recorded);
    assert_true(j->n_threads <= 8);
    for (size_t t = 0; t < 8; t++) { last[t] = SIZE_MAX; }
    for (size_t e = 0; e < j->n_events; e++) { recorded[e] = SIZE_MAX; }
    for (size_t i = 0; i < j->entries.n; i++) {
        const ebb_journal_entry *e = &j->entries.data[i];
        const bool host = e->thread == 0 || e->kind == EBB_JOURNAL_STREAM_SYNC;
        add_before(o, i, last[0]);
        add_before(o, i, last[e->thread]);
        if (e->kind == EBB_JOURNAL_WAIT || e->kind == EBB_JOURNAL_EVENT_SYNC) { add_before(o, i, recorded[e->event]); }
        if (e->kind == EBB_JOURNAL_RECORD) { recorded[e->event] = i; }
        if (is_command(e) && e->n_accesses > 0) { o->at[e->first_access] = (uint32_t)i; }
        last[host ? 0 : e->thread] = i;
    }
    free(recorded);
}

static bool races_by_definition(const ebb_journal *j, const pair_list *pairs) {
    const size_t n = j->entries.n;
    order o = {.words = (n + 63) / 64};
    o.before = calloc(n * o.words, sizeof *o.before);
    o.at = calloc(j->accesses.n, sizeof *o.at);
    close_order(&o, j);
    bool race = false;
    for (size_t i = 0; !race && i < pairs->n; i += 2) {
        const size_t a = o.at[pairs->data[i]], b = o.at[pairs->data[i + 1]];
        race = (o.before[b * o.words + a / 64] >> (a % 64) & 1) == 0 &&
               (o.before[a * o.words + b / 64] >> (b % 64) & 1) == 0;
    }
    free(o.before);
    free(o.at);
    return race;
}

/* ---- planted mistakes ---------------------------------------------------------------------------- */

typedef struct tally {
    size_t n, n_found;
} tally;

static ebb_journal copy_journal(const ebb_journal *from) {
    ebb_journal j = *from;
    j.entries.data = malloc(j.entries.n * sizeof *j.entries.data);
    j.accesses.data = malloc(j.accesses.n * sizeof *j.accesses.data);
    memcpy(j.entries.data, from->entries.data, j.entries.n * sizeof *j.entries.data);
    memcpy(j.accesses.data, from->accesses.data, j.accesses.n * sizeof *j.accesses.data);
    return j;
}

static void free_copy(ebb_journal *j) {
    free(j->entries.data);
    free(j->accesses.data);
}

/* The check must say what the definition says; then the journal is given up. */
static void try_mistake(ebb_journal *j, const pair_list *pairs, tally *t) {
    ebb_hazard_counts counts;
    const ebb_hazard hazard = judge(j, &counts);
    const bool race = races_by_definition(j, pairs);
    if (hazard.kind == EBB_HAZARD_RACE || hazard.kind == EBB_HAZARD_NONE) {
        assert_int_equal(hazard.kind == EBB_HAZARD_RACE, race);
    }
    t->n++;
    t->n_found += hazard.kind != EBB_HAZARD_NONE;
    free_copy(j);
}

static void remove_entry(ebb_journal *j, size_t at) {
    memmove(&j->entries.data[at], &j->entries.data[at + 1], (j->entries.n - at - 1) * sizeof *j->entries.data);
    j->entries.n--;
}

static tally remove_each_wait(const ebb_journal *whole, const pair_list *pairs) {
    tally t = {0};
    for (size_t i = 0; i < whole->entries.n; i++) {
        if (whole->entries.data[i].kind != EBB_JOURNAL_WAIT) { continue; }
        ebb_journal j = copy_journal(whole);
        remove_entry(&j, i);
        try_mistake(&j, pairs, &t);
    }
    return t;
}

static tally remove_each_event(const ebb_journal *whole, const pair_list *pairs) {
    tally t = {0};
    for (uint32_t event = 0; event < whole->n_events; event++) {
        ebb_journal j = copy_journal(whole);
        for (size_t i = j.entries.n; i-- > 0;) {
            const ebb_journal_entry *e = &j.entries.data[i];
            if ((e->kind == EBB_JOURNAL_WAIT || e->kind == EBB_JOURNAL_RECORD) && e->event == event) {
                remove_entry(&j, i);
            }
        }
        if (j.entries.n < whole->entries.n) {
            try_mistake(&j, pairs, &t);
        } else {
            free_copy(&j); /* for what this plan does not do */
        }
    }
    return t;
}

static tally move_each_command(const ebb_journal *whole, const pair_list *pairs) {
    tally t = {0};
    for (size_t i = 0; i < whole->entries.n; i++) {
        const ebb_journal_entry *e = &whole->entries.data[i];
        for (uint32_t s = 1; s < whole->n_threads && e->kind < EBB_JOURNAL_HOST; s++) {
            if (s == e->thread) { continue; }
            ebb_journal j = copy_journal(whole);
            j.entries.data[i].thread = s;
            try_mistake(&j, pairs, &t);
        }
    }
    return t;
}

/* A wait after the command that needs it, or a record before the command that it is for. */
static tally swap_each(const ebb_journal *whole, const pair_list *pairs) {
    tally t = {0};
    for (size_t i = 1; i < whole->entries.n; i++) {
        const ebb_journal_entry *a = &whole->entries.data[i - 1], *b = &whole->entries.data[i];
        const bool late_wait = a->kind == EBB_JOURNAL_WAIT && is_command(b);
        const bool early_record = is_command(a) && b->kind == EBB_JOURNAL_RECORD;
        if (a->thread != b->thread || !(late_wait || early_record)) { continue; }
        ebb_journal j = copy_journal(whole);
        j.entries.data[i - 1] = *b;
        j.entries.data[i] = *a;
        try_mistake(&j, pairs, &t);
    }
    return t;
}

/* Of entries [first, last): those that move bytes as they are, with half of the bytes. */
static tally shorten_each_copy(const ebb_journal *whole, size_t first, size_t last) {
    tally t = {0};
    for (size_t i = first; i < last; i++) {
        const ebb_journal_entry *e = &whole->entries.data[i];
        if ((e->kind != EBB_JOURNAL_COPY && e->kind != EBB_JOURNAL_CALL) || e->n_accesses != 2) { continue; }
        ebb_journal j = copy_journal(whole);
        ebb_hazard_counts counts;
        for (uint32_t a = 0; a < 2; a++) {
            ebb_journal_access *access = &j.accesses.data[e->first_access + a];
            access->end -= (access->end - access->begin) / 2;
        }
        t.n++;
        t.n_found += judge(&j, &counts).kind != EBB_HAZARD_NONE;
        free_copy(&j);
    }
    return t;
}

/* No wait of the schedule follows from its other waits: those that are implied are so by the host, which waits for the
 * end of an iteration, or are for a buffer of the file's that is free by then. The schedule's events are the last ones.
 */
static void check_schedule_alone(const ebb_journal *whole, uint32_t n_schedule_events, uint64_t n_waits) {
    ebb_journal j = copy_journal(whole);
    ebb_hazard_counts counts;
    for (size_t i = j.entries.n; i-- > 0;) {
        ebb_journal_entry *e = &j.entries.data[i];
        const bool hands_over =
            (e->kind == EBB_JOURNAL_WAIT || e->kind == EBB_JOURNAL_RECORD) && e->event < j.n_events - n_schedule_events;
        n_waits -= hands_over && e->kind == EBB_JOURNAL_WAIT;
        if (e->kind < EBB_JOURNAL_HOST) { e->n_accesses = 0; }
        if (hands_over || e->kind == EBB_JOURNAL_HOST || e->kind == EBB_JOURNAL_STREAM_SYNC) { remove_entry(&j, i); }
    }
    assert_int_equal(judge(&j, &counts).kind, EBB_HAZARD_NONE);
    assert_int_equal(counts.n_waits, n_waits);
    assert_int_equal(counts.n_implied, 0);
    free_copy(&j);
}

/* Where iteration number n, from 1, begins: the host writes the state and two inputs. */
static size_t find_iteration(const ebb_journal *j, size_t n) {
    size_t i = 0;
    for (size_t seen = 0; i < j->entries.n; i++) {
        seen += j->entries.data[i].kind == EBB_JOURNAL_HOST && j->entries.data[i].n_accesses == 3;
        if (seen == n) { break; }
    }
    return i;
}

static void check_mistakes(uint32_t tier, bool graphs) {
    written w;
    pair_list pairs = {0};
    ebb_hazard_counts counts;
    write_down(&w, tier, graphs);
    const ebb_journal *j = w.journal;
    assert_int_equal(judge(j, &counts).kind, EBB_HAZARD_NONE);
    list_pairs(j, &pairs);
    assert_false(races_by_definition(j, &pairs));
    if (!graphs) { check_schedule_alone(j, ebb_executor_n_events(w.run->executor), counts.n_waits); }
    tally waits = remove_each_wait(j, &pairs);
    assert_int_equal(waits.n, counts.n_waits);
    print_message("%zu entries, %zu conflicts; %zu waits, %d early, %d implied; %zu found\n", j->entries.n, pairs.n / 2,
                  waits.n, (int)counts.n_early, (int)counts.n_implied, waits.n_found);
    /* of a graph's border a wait may order streams that have no bytes in common */
    const size_t n_needed = counts.n_waits - counts.n_early - counts.n_implied;
    assert_true(waits.n_found == n_needed || (graphs && waits.n_found > n_needed * 4 / 5));
    const tally events = remove_each_event(j, &pairs), moved = move_each_command(j, &pairs);
    const tally swapped = swap_each(j, &pairs);
    /* what the last iteration copies out, no one reads */
    const tally shortened = shorten_each_copy(j, find_iteration(j, 1), find_iteration(j, N_ITERATIONS));
    print_message("events %zu of %zu found, streams %zu of %zu, order %zu of %zu, shorter copies %zu of %zu\n",
                  events.n_found, events.n, moved.n_found, moved.n, swapped.n_found, swapped.n, shortened.n_found,
                  shortened.n);
    assert_true(events.n_found > 0 && events.n_found + (graphs ? 5 : 3) >= events.n);
    assert_true(moved.n_found > moved.n / 2);
    assert_true(swapped.n_found > swapped.n / 2); /* a wait for bytes of the copy after a call may stand between them */
    assert_true(shortened.n_found > shortened.n * 9 / 10); /* what is missing may be where it was before */
    EBB_VEC_FINI(NULL, &pairs);
    written_fini(&w);
}

static void mistakes_are_found_on_the_host_tier(void **state) {
    (void)state;
    check_mistakes(EBB_HOST, false);
}

static void mistakes_are_found_in_graphs(void **state) {
    (void)state;
    check_mistakes(EBB_HOST, true);
}

static void mistakes_are_found_on_the_disk_tier(void **state) {
    (void)state;
    check_mistakes(EBB_DISK, false);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(conflicts_need_order),
        cmocka_unit_test(each_promise_orders),
        cmocka_unit_test(a_wait_is_for_the_latest_record),
        cmocka_unit_test(what_is_read_is_one_content),
        cmocka_unit_test(what_is_read_is_the_version_told),
        cmocka_unit_test(a_version_made_twice_is_one_content),
        cmocka_unit_test(mistakes_are_found_on_the_host_tier),
        cmocka_unit_test(mistakes_are_found_in_graphs),
        cmocka_unit_test(mistakes_are_found_on_the_disk_tier),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
