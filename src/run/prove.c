/* SPDX-License-Identifier: Apache-2.0
 *
 * The proof that a plan's commands are free of hazards (hazard.h): a run on a journal, used in all the ways in which a
 * run can be, and the check of what was written down, in words. The iterations follow one another with nothing between
 * them that waits for copies, but where a user's calls would wait:
 *
 *      set every value, 2 iterations, get every value, 1 iteration, 1 as it is recorded, 1 iteration,
 *      park, get, unpark, 1 iteration
 *
 * and, where the plan makes no host calls, all of it once more with iterations as graphs (journal.h).
 *
 * What each kernel, and the host, must find is told beside the journal, by the program alone: a version of tensor t is
 * what step s of iteration i made of it, and who reads must find that of the last step before it, in the program's
 * order, that writes it. A step that is run again makes the version that it made, of those that it found.
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
    ebb_bump bump;
    float *plain; /* as large as the largest value; never touched */
    void *packed; /* as large as the largest tensor that persists; never touched */
    uint64_t packed_bytes;
    uint64_t begin[N_ITERATIONS + 1]; /* entry at which each iteration begins */
    uint64_t n_iterations;
    EBB_VEC(ebb_hazard_version) versions; /* by access */
    uint64_t *current;                    /* [n_tensors]: the version by the program's order; from 1 */
    uint64_t *first_found;                /* [n_steps]: where in found a step's operands begin */
    uint64_t *found;                      /* by operand: what it found in the iteration at hand */
} proof;

/* ---- versions ----------------------------------------------------------------------------------- */

static ebb_status grow_versions(proof *p) {
    const size_t n = ebb__journal_get(p->journal)->accesses.n, n_before = p->versions.n;
    EBB_TRY(EBB_RESERVE(p->journal->mem, &p->versions, n - n_before));
    if (n > n_before) { memset(&p->versions.data[n_before], 0, (n - n_before) * sizeof *p->versions.data); }
    p->versions.n = n;
    return EBB_OK;
}

static void tell(proof *p, uint64_t access, uint64_t finds, uint64_t makes) {
    const uint32_t mode = ebb__journal_get(p->journal)->accesses.data[access].mode;
    p->versions.data[access] =
        (ebb_hazard_version){.finds = (mode & EBB_READ) != 0 ? finds : 0, .makes = (mode & EBB_WRITE) != 0 ? makes : 0};
}

/* What a step finds and makes, the first time in an iteration or again; its accesses begin with its operands. */
static void tell_step(proof *p, size_t s, bool again, const ebb_journal_entry *entry) {
    const ebb_lowered_step *step = &p->lowered->steps.data[s];
    const size_t n_tensors = p->lowered->program->tensors.n;
    const uint64_t made = 1 + s + p->lowered->steps.n * (p->n_iterations - 1);
    uint64_t *found = &p->found[p->first_found[s]];
    EBB_ASSERT(entry->n_accesses >= step->n_operands);
    for (uint32_t i = 0; i < step->n_operands; i++) {
        if (!again) { found[i] = p->current[step->operand[i]]; }
        tell(p, entry->first_access + i, found[i], 1 + step->operand[i] + n_tensors * made);
    }
    for (uint32_t i = 0; i < step->n_operands && !again; i++) {
        const uint64_t makes = p->versions.data[entry->first_access + i].makes;
        if (makes != 0) { p->current[step->operand[i]] = makes; }
    }
}

/* Of the iteration that has just been written down: a run of the device is one entry. */
static ebb_status tell_iteration(proof *p) {
    const ebb_journal *j = ebb__journal_get(p->journal);
    size_t n_actions = 0;
    const ebb_action *action = ebb_plan_actions(p->plan, &n_actions);
    uint64_t at = p->begin[p->n_iterations - 1];
    EBB_TRY(grow_versions(p));
    for (size_t a = 0; a < n_actions; a++) {
        if (action[a].kind != EBB_ACT_RUN && action[a].kind != EBB_ACT_AGAIN) { continue; }
        while (j->entries.data[at].kind != EBB_JOURNAL_RUN) { at++; }
        tell_step(p, action[a].target, action[a].kind == EBB_ACT_AGAIN, &j->entries.data[at]);
        at++;
    }
    EBB_ASSERT(at <= j->entries.n);
    return EBB_OK;
}

static ebb_status make_room(proof *p) {
    const size_t n_tensors = p->lowered->program->tensors.n, n_steps = p->lowered->steps.n;
    uint64_t n_operands = 0;
    p->current = ebb__bump_alloc(&p->bump, n_tensors, sizeof *p->current);
    p->first_found = ebb__bump_alloc(&p->bump, n_steps, sizeof *p->first_found);
    if (p->current == NULL || p->first_found == NULL) { return EBB_E_NO_MEMORY; }
    for (size_t s = 0; s < n_steps; s++) {
        p->first_found[s] = n_operands;
        n_operands += p->lowered->steps.data[s].n_operands;
    }
    p->found = ebb__bump_alloc(&p->bump, n_operands, sizeof *p->found);
    return p->found != NULL ? EBB_OK : EBB_E_NO_MEMORY;
}

/* ---- the run ------------------------------------------------------------------------------------ */

typedef ebb_status (*value_fn)(ebb_run *run, ebb_value value, float *plain);

static ebb_status set_value(ebb_run *run, ebb_value value, float *plain) {
    return ebb_run_set_value(run, value, plain);
}

/* Where the host packs or unpacks a value, it makes or finds the tensor's version. */
static ebb_status each_value(proof *p, value_fn visit) {
    const ebb_journal *j = ebb__journal_get(p->journal);
    for (ebb_value v = 0; v < p->graph->values.n; v++) {
        const uint32_t tensor = p->lowered->values[v].tensor;
        if (!ebb__value_is_persistent(p->graph->values.data[v].kind) || tensor == UINT32_MAX) { continue; }
        uint64_t at = j->entries.n;
        EBB_TRY(visit(p->run, v, p->plain));
        EBB_TRY(grow_versions(p));
        for (; at < j->entries.n; at++) {
            const ebb_journal_entry *entry = &j->entries.data[at];
            if (entry->kind != EBB_JOURNAL_HOST || entry->n_accesses != 1) { continue; }
            tell(p, entry->first_access, p->current[tensor], p->current[tensor]);
        }
    }
    return EBB_OK;
}

static void begin_iteration(proof *p) {
    EBB_ASSERT(p->n_iterations < N_ITERATIONS);
    p->begin[p->n_iterations++] = ebb__journal_get(p->journal)->entries.n;
}

static ebb_status iterate(proof *p) {
    begin_iteration(p);
    EBB_TRY(ebb_run_iteration(p->run, p->n_iterations - 1, p->n_iterations, 0.1f));
    return tell_iteration(p);
}

static ebb_status create_events(const ebb_run *run, ebb_event **events) {
    for (size_t a = 0; a < 2 * run->n_commands; a++) {
        if (run->commands[a / 2].engine == EBB_NO_ENGINE) { continue; }
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
    begin_iteration(p);
    if (st == EBB_OK) { st = ebb__run_iterate(run, events); }
    if (st == EBB_OK) { st = tell_iteration(p); }
    for (size_t a = 0; a < 2 * run->n_commands; a++) {
        if (events[a] != NULL) { run->device->ops->event_destroy(run->device, events[a]); }
    }
    ebb__free(run->mem, events);
    return st;
}

static ebb_status use_run(proof *p) {
    p->n_iterations = p->versions.n = 0;
    for (size_t t = 0; t < p->lowered->program->tensors.n; t++) { p->current[t] = 1 + t; } /* as the host makes it */
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

/* As it lies on the device a value may be larger, where its layout is padded. */
static ebb_status set_up(proof *p) {
    uint64_t most = 1;
    EBB_TRY(ebb_lower(p->graph, p->journal, &p->lowered));
    EBB_TRY(make_room(p));
    for (size_t v = 0; v < p->graph->values.n; v++) {
        most = ebb_max_u64(most, (uint64_t)ebb__shape_elements(&p->graph->values.data[v].shape));
    }
    for (size_t t = 0; t < p->lowered->program->tensors.n; t++) {
        const ebb_tensor *tensor = &p->lowered->program->tensors.data[t];
        if (tensor->persistent) { p->packed_bytes = ebb_max_u64(p->packed_bytes, tensor->size_bytes); }
    }
    p->plain = ebb__alloc(p->journal->mem, (size_t)most, sizeof *p->plain);
    p->packed = ebb__alloc(p->journal->mem, 1, (size_t)ebb_max_u64(p->packed_bytes, 1));
    return p->plain != NULL && p->packed != NULL ? EBB_OK : EBB_E_NO_MEMORY;
}

/* ---- words -------------------------------------------------------------------------------------- */

/* Commands of the journal that a command of the run became. */
static uint64_t count_entries(const ebb_run *run, size_t idx) {
    const uint32_t engine = run->commands[idx].engine;
    if (engine == EBB_NO_ENGINE) { return 0; }
    return engine == EBB_COMPUTE ? 1 : ebb__tiers_count_commands(&run->made[idx].transfer);
}

static bool is_command(const ebb_journal_entry *entry) {
    return entry->kind == EBB_JOURNAL_RUN || entry->kind == EBB_JOURNAL_COPY || entry->kind == EBB_JOURNAL_CALL;
}

/* The iteration's command that became the entry; n_commands: none. */
static size_t find_command(const proof *p, uint64_t iteration, uint64_t entry) {
    const ebb_journal *j = ebb__journal_get(p->journal);
    uint64_t at = p->begin[iteration];
    for (size_t a = 0; a < p->run->n_commands; a++) {
        for (uint64_t n = count_entries(p->run, a); n > 0; at++) {
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
    if (action->kind != EBB_ACT_RUN && action->kind != EBB_ACT_AGAIN) {
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
    static const char *const kinds[] = {"run", "again", "out", "in", "move", "drop"};
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
    if (c->engine == EBB_COMPUTE) { step = p->lowered->program->steps.data[action->target].name; }
    (void)snprintf(text, n_bytes, "action %zu (%s %s '%s') of iteration %" PRIu64 ", stream %s", a,
                   kinds[c->action.kind], step, find_tensor(p, a, entry, bytes), i,
                   ebb_plan_topology(p->plan)->engine[c->engine]);
}

static ebb_status fail_hazard(const proof *p, const ebb_hazard *hazard) {
    static const char *const spaces[] = {"the host", "the arena", "the file"};
    char first[320], second[320];
    const ebb_journal_space space = ebb__journal_get(p->journal)->spaces.data[hazard->access.space];
    describe(p, hazard->first, &hazard->access, first, sizeof first);
    describe(p, hazard->second, &hazard->access, second, sizeof second);
    const char *what = hazard->kind == EBB_HAZARD_RACE     ? "nothing orders"
                       : hazard->kind == EBB_HAZARD_BROKEN ? "bytes of more than one content:"
                       : hazard->kind == EBB_HAZARD_STALE  ? "not the version that the program means:"
                                                           : "bytes that were never written:";
    return ebb_fail(EBB_E_INTERNAL, "hazard: %s %s and %s, over [%" PRIu64 ", %" PRIu64 ") of %s", what, first, second,
                    hazard->access.begin, hazard->access.end, spaces[space]);
}

/* ---- the proof ---------------------------------------------------------------------------------- */

/* A run from its creation on, and what was written down of it. */
static ebb_status check(proof *p, ebb_hazard_counts *counts_out) {
    ebb_hazard hazard = {.kind = EBB_HAZARD_NONE};
    EBB_TRY(ebb_run_create(p->lowered, p->plan, NULL, &p->run));
    p->run->note_at = p->packed;
    p->run->note_bytes = p->packed_bytes;
    ebb_status st = use_run(p);
    if (st == EBB_OK) { st = grow_versions(p); }
    if (st == EBB_OK) {
        st = ebb__hazard_check(p->journal->mem, ebb__journal_get(p->journal), p->versions.data, counts_out, &hazard);
    }
    if (hazard.kind != EBB_HAZARD_NONE) { st = fail_hazard(p, &hazard); }
    ebb_run_destroy(p->run);
    return st;
}

/* What calls the host is no graph. */
static bool calls_host(const ebb_plan *plan) {
    const ebb_plan_summary summary = ebb_plan_get_summary(plan);
    const ebb_topology *topology = ebb_plan_topology(plan);
    bool calls = summary.moved_on_bytes > 0;
    for (uint32_t t = 1; t < topology->n_tiers; t++) {
        calls = calls || (topology->tier[t].store == EBB_STORE_FILE && summary.tier_bytes[t] > 0);
    }
    return calls;
}

static ebb_status check_both(proof *p, ebb_run_proof *proof_out) {
    ebb_hazard_counts streams = {0}, graphs = {0};
    EBB_TRY(set_up(p));
    EBB_TRY(check(p, &streams));
    if (!calls_host(p->plan)) {
        ebb__journal_restart(p->journal, true);
        EBB_TRY(check(p, &graphs));
    }
    *proof_out = (ebb_run_proof){.n_iterations = p->n_iterations,
                                 .n_commands = streams.n_commands,
                                 .n_pairs = streams.n_pairs,
                                 .n_events = streams.n_records,
                                 .n_waits = streams.n_waits,
                                 .n_implied_waits = streams.n_implied,
                                 .n_versions = streams.n_versions,
                                 .n_graph_pairs = graphs.n_pairs};
    return EBB_OK;
}

ebb_status ebb_run_prove(ebb_graph *graph, ebb_device *device, const ebb_plan *plan, ebb_run_proof *proof_out) {
    proof p = {.graph = graph, .plan = plan};
    EBB_TRY(ebb__journal_open(device, &p.journal));
    const ebb_mem *mem = p.journal->mem;
    ebb__bump_init(&p.bump, mem);
    ebb_status st = check_both(&p, proof_out);
    EBB_VEC_FINI(mem, &p.versions);
    ebb__free(mem, p.plain);
    ebb__free(mem, p.packed);
    ebb__bump_fini(&p.bump);
    ebb_lowered_destroy(p.lowered);
    ebb_device_close(p.journal);
    return st;
}
