/* SPDX-License-Identifier: Apache-2.0
 *
 * The proof that a plan's commands are free of hazards (hazard.h): a run on a journal, used in all the ways in which a
 * run can be, and the check of what was written down, in words. The iterations follow one another with nothing between
 * them that waits for copies, but where a user's calls would wait:
 *
 *      set every value, 2 iterations, get every value, 1 iteration, 1 as it is recorded, 1 iteration,
 *      park, get, unpark, 1 iteration
 */
#include "run/hazard.h"
#include "run/run.h"

#include <inttypes.h>

#define N_ITERATIONS 6

typedef struct proof {
    ebb_graph *graph;
    const ebb_plan *plan;
    ebb_device *journal;
    ebb_lowered *lowered;
    ebb_run *run;
    float *plain;                     /* as large as the largest value; never touched */
    uint64_t begin[N_ITERATIONS + 1]; /* entry at which each iteration begins */
    uint64_t n_iterations;
} proof;

/* ---- the run ------------------------------------------------------------------------------------ */

typedef ebb_status (*value_fn)(ebb_run *run, ebb_value value, float *plain);

static ebb_status set_value(ebb_run *run, ebb_value value, float *plain) {
    return ebb_run_set_value(run, value, plain);
}

static ebb_status each_value(const proof *p, value_fn visit) {
    for (ebb_value v = 0; v < p->graph->values.n; v++) {
        if (!ebb__value_is_persistent(p->graph->values.data[v].kind)) { continue; }
        if (p->lowered->values[v].tensor != UINT32_MAX) { EBB_TRY(visit(p->run, v, p->plain)); }
    }
    return EBB_OK;
}

static ebb_status iterate(proof *p) {
    EBB_ASSERT(p->n_iterations < N_ITERATIONS);
    p->begin[p->n_iterations] = ebb__journal_get(p->journal)->entries.n;
    p->n_iterations++;
    return ebb_run_iteration(p->run, p->n_iterations - 1, p->n_iterations, 0.1f);
}

static ebb_status create_events(const ebb_run *run, ebb_event **events) {
    for (size_t a = 0; a < 2 * run->n_commands; a++) {
        if (run->commands[a / 2].engine == EBB_N_ENGINES) { continue; }
        EBB_TRY(run->device->ops->event_create(run->device, &events[a]));
    }
    return EBB_OK;
}

/* As the recorder does it, without a trace. */
static ebb_status iterate_with_events(proof *p) {
    ebb_run *run = p->run;
    ebb_event **events = ebb__calloc(run->mem, 2 * run->n_commands, sizeof(ebb_event *));
    if (events == NULL) { return EBB_E_NO_MEMORY; }
    ebb_status st = create_events(run, events);
    p->begin[p->n_iterations++] = ebb__journal_get(p->journal)->entries.n;
    if (st == EBB_OK) { st = ebb__run_iterate(run, events); }
    for (size_t a = 0; a < 2 * run->n_commands; a++) {
        if (events[a] != NULL) { run->device->ops->event_destroy(run->device, events[a]); }
    }
    ebb__free(run->mem, events);
    return st;
}

static ebb_status use_run(proof *p) {
    EBB_TRY(each_value(p, set_value));
    EBB_TRY(iterate(p));
    EBB_TRY(iterate(p));
    EBB_TRY(each_value(p, ebb_run_get_value));
    EBB_TRY(iterate(p));
    EBB_TRY(iterate_with_events(p));
    EBB_TRY(iterate(p));
    EBB_TRY(ebb_run_park(p->run));
    EBB_TRY(each_value(p, ebb_run_get_value));
    EBB_TRY(ebb_run_unpark(p->run));
    EBB_TRY(iterate(p));
    p->begin[p->n_iterations] = ebb__journal_get(p->journal)->entries.n;
    return EBB_OK;
}

static ebb_status set_up(proof *p) {
    uint64_t most = 1;
    EBB_TRY(ebb_lower(p->graph, p->journal, &p->lowered));
    EBB_TRY(ebb_run_create(p->lowered, p->plan, NULL, &p->run));
    for (size_t v = 0; v < p->graph->values.n; v++) {
        most = ebb_max_u64(most, (uint64_t)ebb__shape_elements(&p->graph->values.data[v].shape));
    }
    p->plain = ebb__alloc(p->journal->mem, (size_t)most, sizeof *p->plain);
    return p->plain != NULL ? EBB_OK : EBB_E_NO_MEMORY;
}

/* ---- words -------------------------------------------------------------------------------------- */

/* Commands of the journal that a command of the run became. */
static uint64_t count_entries(const ebb_command *c) {
    if (c->engine == EBB_N_ENGINES) { return 0; }
    return c->engine != EBB_ENGINE_COMPUTE && c->transfer.tier == EBB_TIER_DISK ? 2 : 1;
}

static bool is_command(const ebb_journal_entry *entry) {
    return entry->kind == EBB_JOURNAL_RUN || entry->kind == EBB_JOURNAL_COPY || entry->kind == EBB_JOURNAL_CALL;
}

/* The iteration's command that became the entry; n_commands: none. */
static size_t find_command(const proof *p, uint64_t iteration, uint64_t entry) {
    const ebb_journal *j = ebb__journal_get(p->journal);
    uint64_t at = p->begin[iteration];
    for (size_t a = 0; a < p->run->n_commands; a++) {
        for (uint64_t n = count_entries(&p->run->commands[a]); n > 0; at++) {
            if (at >= p->begin[iteration + 1]) { return p->run->n_commands; }
            if (!is_command(&j->entries.data[at])) { continue; }
            if (at == entry) { return a; }
            n--;
        }
    }
    return p->run->n_commands;
}

/* The tensor of an operand that lies over the bytes in question. */
static const char *find_tensor(const proof *p, size_t command, const ebb_journal_entry *entry,
                               const ebb_journal_access *bytes) {
    const ebb_program *program = p->lowered->program;
    size_t n_actions = 0;
    const ebb_action *action = &ebb_plan_actions(p->plan, &n_actions)[command];
    if (action->kind == EBB_ACT_OUT || action->kind == EBB_ACT_IN) {
        return program->tensors.data[action->target].name;
    }
    const ebb_lowered_step *step = &p->lowered->steps.data[action->target];
    const ebb_journal_access *a = &ebb__journal_get(p->journal)->accesses.data[entry->first_access];
    for (uint32_t i = 0; i < entry->n_accesses; i++) {
        if (a[i].space != bytes->space || a[i].begin >= bytes->end || bytes->begin >= a[i].end) { continue; }
        return i < step->n_operands ? program->tensors.data[step->operand[i]].name : "scratch, state or a port";
    }
    return "nothing";
}

static void describe(const proof *p, uint64_t idx, const ebb_journal_access *bytes, char *text, size_t n_bytes) {
    static const char *const kinds[] = {"run", "again", "out", "in", "drop"};
    static const char *const engines[] = {"compute", "out", "in", "none"};
    const ebb_journal_entry *entry = &ebb__journal_get(p->journal)->entries.data[idx];
    uint64_t i = 0;
    while (i < p->n_iterations && p->begin[i + 1] <= idx) { i++; }
    const size_t a = i < p->n_iterations && idx >= p->begin[i] ? find_command(p, i, idx) : p->run->n_commands;
    if (a == p->run->n_commands) {
        (void)snprintf(text, n_bytes, "%s (entry %" PRIu64 ")",
                       entry->kind == EBB_JOURNAL_HOST ? "the host" : "a copy between iterations", idx);
        return;
    }
    const ebb_command *c = &p->run->commands[a];
    const char *step = "of";
    size_t n_actions = 0;
    const ebb_action *action = &ebb_plan_actions(p->plan, &n_actions)[a];
    if (c->engine == EBB_ENGINE_COMPUTE) { step = p->lowered->program->steps.data[action->target].name; }
    (void)snprintf(text, n_bytes, "action %zu (%s %s '%s') of iteration %" PRIu64 ", stream %s", a, kinds[c->kind],
                   step, find_tensor(p, a, entry, bytes), i, engines[c->engine]);
}

static ebb_status fail_hazard(const proof *p, const ebb_hazard *hazard) {
    static const char *const spaces[] = {"the host", "the arena", "the file"};
    char first[320], second[320];
    const ebb_journal_space space = ebb__journal_get(p->journal)->spaces.data[hazard->access.space];
    describe(p, hazard->first, &hazard->access, first, sizeof first);
    describe(p, hazard->second, &hazard->access, second, sizeof second);
    const char *what = hazard->kind == EBB_HAZARD_RACE     ? "nothing orders"
                       : hazard->kind == EBB_HAZARD_BROKEN ? "bytes of more than one content:"
                                                           : "bytes that nobody wrote:";
    return ebb_fail(EBB_E_INTERNAL, "hazard: %s %s and %s, over [%" PRIu64 ", %" PRIu64 ") of %s", what, first, second,
                    hazard->access.begin, hazard->access.end, spaces[space]);
}

/* ---- the proof ---------------------------------------------------------------------------------- */

static ebb_status check(const proof *p, ebb_run_proof *proof_out) {
    ebb_hazard hazard;
    ebb_hazard_counts counts;
    EBB_TRY(ebb__hazard_check(p->journal->mem, ebb__journal_get(p->journal), &counts, &hazard));
    if (hazard.kind != EBB_HAZARD_NONE) { return fail_hazard(p, &hazard); }
    *proof_out = (ebb_run_proof){.n_iterations = p->n_iterations,
                                 .n_commands = counts.n_commands,
                                 .n_pairs = counts.n_pairs,
                                 .n_events = counts.n_records,
                                 .n_waits = counts.n_waits,
                                 .n_implied_waits = counts.n_implied};
    return EBB_OK;
}

ebb_status ebb_run_prove(ebb_graph *graph, ebb_device *device, const ebb_plan *plan, ebb_run_proof *proof_out) {
    proof p = {.graph = graph, .plan = plan};
    EBB_TRY(ebb__journal_open(device, &p.journal));
    ebb_status st = set_up(&p);
    if (st == EBB_OK) { st = use_run(&p); }
    if (st == EBB_OK) { st = check(&p, proof_out); }
    const ebb_mem *mem = p.journal->mem;
    ebb__free(mem, p.plain);
    ebb_run_destroy(p.run);
    ebb_lowered_destroy(p.lowered);
    ebb_device_close(p.journal);
    return st;
}
