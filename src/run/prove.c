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
 * What each kernel, and the host, must find is told beside the journal (proof.h).
 */
#include "backend/host_memory.h"
#include "run/proof.h"
#include "run/run.h"

typedef struct proof {
    ebb_graph *graph;
    const ebb_plan *plan;
    ebb_device *journal;
    ebb_lowered *lowered;
    ebb_run *run;
    ebb_proof_book book;
    float *plain; /* as large as the largest value; never touched */
    void *packed; /* as large as the largest tensor that persists, and behind it as all of them; never touched */
    uint64_t packed_bytes, parked_bytes;
} proof;

/* ---- operands ----------------------------------------------------------------------------------- */

static uint64_t find_access(const ebb_program *program, size_t s, uint32_t tensor) {
    uint64_t a = program->steps.data[s].first_access;
    while (program->accesses.data[a].tensor != tensor) { a++; }
    EBB_ASSERT(a < program->steps.data[s].first_access + program->steps.data[s].n_accesses);
    return a;
}

/* A kernel's operands in their order, which may name a tensor twice. */
static ebb_status tell_operands(proof *p) {
    const size_t n_steps = p->lowered->steps.n;
    uint64_t *first = ebb__bump_alloc(&p->book.bump, n_steps + 1, sizeof *first), n = 0;
    if (first == NULL) { return EBB_E_NO_MEMORY; }
    for (size_t s = 0; s < n_steps; s++) {
        first[s] = n;
        n += p->lowered->steps.data[s].n_operands;
    }
    first[n_steps] = n;
    uint64_t *operand = ebb__bump_alloc(&p->book.bump, n, sizeof *operand);
    if (operand == NULL) { return EBB_E_NO_MEMORY; }
    for (size_t s = 0; s < n_steps; s++) {
        const ebb_lowered_step *step = &p->lowered->steps.data[s];
        for (uint32_t i = 0; i < step->n_operands; i++) {
            operand[first[s] + i] = find_access(p->lowered->program, s, step->operand[i]);
        }
    }
    p->book.first_operand = first;
    p->book.operand = operand;
    return EBB_OK;
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
        for (; at < j->entries.n; at++) {
            const ebb_journal_entry *entry = &j->entries.data[at];
            if (entry->kind != EBB_JOURNAL_HOST || entry->n_accesses != 1) { continue; }
            EBB_TRY(ebb__proof_tell_host(&p->book, at, tensor));
        }
    }
    return EBB_OK;
}

/* The host fills a port, which makes the version of its input, and copies it to the input's homes. */
static ebb_status feed(proof *p) {
    const ebb_journal *j = ebb__journal_get(p->journal);
    const ebb_op *next = p->graph->ops.data;
    uint64_t at = j->entries.n;
    if (!p->lowered->feeds_early) { return EBB_OK; }
    EBB_TRY(ebb_run_feed(p->run));
    for (; at < j->entries.n; at++) {
        const ebb_journal_entry *entry = &j->entries.data[at];
        if (entry->kind != EBB_JOURNAL_HOST || entry->n_accesses != 1) { continue; }
        EBB_ASSERT(next->kind == EBB_OP_FEED);
        EBB_TRY(ebb__proof_tell_host(&p->book, at, p->lowered->values[next++->out[0]].tensor));
    }
    return EBB_OK;
}

static ebb_status iterate(proof *p) {
    const uint64_t i = p->book.begin.n;
    EBB_TRY(ebb__proof_begin_iteration(&p->book));
    EBB_TRY(ebb_run_iteration(p->run, i, i + 1, 0.1f));
    return ebb__proof_end_iteration(&p->book);
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
    if (st == EBB_OK) { st = ebb__proof_begin_iteration(&p->book); }
    if (st == EBB_OK) { st = ebb__run_iterate(run, events); }
    if (st == EBB_OK) { st = ebb__proof_end_iteration(&p->book); }
    for (size_t a = 0; a < 2 * run->n_commands; a++) {
        if (events[a] != NULL) { run->device->ops->event_destroy(run->device, events[a]); }
    }
    ebb__free(run->mem, events);
    return st;
}

/* Commands of the journal that a command of the run becomes. */
static uint32_t count_entries(const ebb_run *run, size_t idx) {
    if (run->commands[idx].engine == EBB_NO_ENGINE) { return 0; }
    return ebb__action_computes(&run->commands[idx].action)
               ? 1
               : (uint32_t)ebb__tiers_count_commands(&run->made[idx].transfer);
}

static ebb_status use_run(proof *p) {
    ebb__proof_set(&p->book);
    EBB_TRY(each_value(p, set_value));
    EBB_TRY(feed(p));
    EBB_TRY(iterate(p));
    EBB_TRY(iterate(p));
    EBB_TRY(each_value(p, ebb_run_get_value));
    EBB_TRY(iterate(p));
    EBB_TRY(iterate_with_events(p));
    EBB_TRY(iterate(p));
    EBB_TRY(ebb_run_park(p->run));
    EBB_TRY(each_value(p, ebb_run_get_value));
    EBB_TRY(ebb_run_unpark(p->run));
    return iterate(p);
}

/* As it lies on the device a value may be larger, where its layout is padded. */
static ebb_status set_up(proof *p) {
    uint64_t most = 1;
    EBB_TRY(ebb__proof_init(p->journal->mem, p->lowered->program, p->plan, &p->book));
    EBB_TRY(tell_operands(p));
    for (size_t v = 0; v < p->graph->values.n; v++) {
        most = ebb_max_u64(most, (uint64_t)ebb__shape_elements(&p->graph->values.data[v].shape));
    }
    for (size_t t = 0; t < p->lowered->program->tensors.n; t++) {
        const ebb_tensor *tensor = &p->lowered->program->tensors.data[t];
        if (!tensor->persistent) { continue; }
        p->packed_bytes = ebb_max_u64(p->packed_bytes, tensor->size_bytes);
        p->parked_bytes += tensor->size_bytes;
    }
    p->plain = ebb__alloc(p->journal->mem, (size_t)most, sizeof *p->plain);
    return p->plain != NULL ? ebb__host_alloc(p->journal, p->packed_bytes + p->parked_bytes, &p->packed)
                            : EBB_E_NO_MEMORY;
}

/* ---- the proof ---------------------------------------------------------------------------------- */

/* A run from its creation on, and what was written down of it. */
static ebb_status check(proof *p, ebb_hazard_counts *counts_out) {
    EBB_TRY(ebb_run_create(p->lowered, p->plan, NULL, &p->run));
    p->run->note_at = p->packed;
    p->run->note_bytes = p->packed_bytes;
    EBB_ASSERT(ebb_run_parked_bytes(p->run) <= p->parked_bytes);
    for (size_t a = 0; a < p->run->n_commands; a++) { p->book.n_entries[a] = count_entries(p->run, a); }
    ebb__proof_begin(&p->book, ebb__journal_get(p->journal), p->run->commands);
    ebb_status st = use_run(p);
    if (st == EBB_OK) { st = ebb__proof_check(&p->book, counts_out); }
    ebb_run_destroy(p->run);
    return st;
}

/* What calls the host is no graph. */
static bool calls_host(const ebb_plan *plan) {
    const ebb_plan_summary summary = ebb_plan_get_summary(plan);
    const ebb_topology *topology = ebb_plan_topology(plan);
    bool calls = summary.moved_on_bytes > 0;
    for (uint32_t t = 1; t < topology->n_tiers; t++) {
        calls = calls || (ebb__moves_by_calls(topology->tier[t].store) && summary.tier_bytes[t] > 0);
    }
    return calls;
}

static ebb_status check_both(proof *p, ebb_proof *proof_out) {
    ebb_hazard_counts streams = {0}, graphs = {0};
    EBB_TRY(set_up(p));
    EBB_TRY(check(p, &streams));
    if (!calls_host(p->plan)) {
        ebb__journal_restart(p->journal, true);
        EBB_TRY(check(p, &graphs));
    }
    *proof_out = ebb__proof_sum(&p->book, &streams);
    proof_out->n_graph_pairs = graphs.n_pairs;
    return EBB_OK;
}

/* As the plan's program is fed. */
static ebb_status lower(proof *p) {
    EBB_TRY(ebb_lower(p->graph, p->journal, &p->lowered));
    if (ebb_program_fingerprint(p->lowered->program) == ebb_plan_get_summary(p->plan).fingerprint) { return EBB_OK; }
    ebb_lowered_destroy(p->lowered);
    p->lowered = NULL;
    return ebb_lower_fed_early(p->graph, p->journal, &p->lowered);
}

ebb_status ebb_run_prove(ebb_graph *graph, ebb_device *device, const ebb_plan *plan, ebb_proof *proof_out) {
    EBB_NEED(graph);
    EBB_NEED(device);
    EBB_NEED(plan);
    EBB_NEED(proof_out);
    proof p = {.graph = graph, .plan = plan};
    EBB_TRY(ebb__journal_open(device, &p.journal));
    const ebb_mem *mem = p.journal->mem;
    ebb_status st = lower(&p);
    if (st == EBB_OK) {
        st = check_both(&p, proof_out);
        ebb__proof_fini(&p.book);
    }
    ebb__free(mem, p.plain);
    ebb__host_free(p.journal, p.packed, p.packed_bytes + p.parked_bytes);
    ebb_lowered_destroy(p.lowered);
    ebb_device_close(p.journal);
    return st;
}
