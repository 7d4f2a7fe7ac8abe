/* SPDX-License-Identifier: Apache-2.0
 *
 * The proof of a plan's commands for a program that follows it with an executor: each of the executor's calls becomes
 * an entry of a journal. Nothing of a network is needed. Thread 0 is the host, thread 1 + e the queue of engine e;
 * space t is the memory of tier t, and after the last one comes the caller's own, where each tensor lies whole:
 *
 *      write every home, 3 iterations, read every home, write every home, 2 iterations, read every home
 *
 * Queues are idle where homes are written or read; otherwise an iteration is issued upon the one before.
 */
#include "run/proof.h"

#include <inttypes.h>

typedef struct writer {
    const ebb_mem *mem;
    const ebb_program *program;
    ebb_executor *executor;
    ebb_journal *journal;
    ebb_proof_book *book;
    uint32_t n_tiers, n_engines;
    uint64_t *at;                 /* [n_tensors]: where in the caller's memory each begins */
    ebb_journal_access *accesses; /* room for those of any step */
} writer;

/* ---- what an iteration does --------------------------------------------------------------------- */

/* The bytes of a step's accesses, in their order; then scratch. Gives how many. */
static uint32_t list_accesses(const writer *w, const ebb_command *command, ebb_journal_access *accesses) {
    const ebb_step *step = &w->program->steps.data[command->action.target];
    uint32_t n = 0;
    for (; n < step->n_accesses; n++) {
        const ebb_access *access = &w->program->accesses.data[step->first_access + n];
        const uint64_t begin = command->offsets[n], bytes = w->program->tensors.data[access->tensor].size_bytes;
        accesses[n] = (ebb_journal_access){begin, begin + bytes, EBB_DEVICE, access->mode};
    }
    if (command->scratch_bytes == 0) { return n; }
    const uint64_t begin = command->scratch_offset;
    accesses[n] = (ebb_journal_access){begin, begin + command->scratch_bytes, EBB_DEVICE, EBB_WRITE};
    return n + 1;
}

static ebb_status compute(void *ctx, const ebb_command *command) {
    const writer *w = ctx;
    const uint32_t n = list_accesses(w, command, w->accesses);
    const ebb_journal_entry entry = {.kind = EBB_JOURNAL_RUN, .thread = 1 + command->engine};
    return ebb__journal_write(w->mem, w->journal, entry, w->accesses, n);
}

static ebb_status copy(void *ctx, const ebb_command *command) {
    const writer *w = ctx;
    const ebb_journal_access accesses[] = {
        {command->from_offset, command->from_offset + command->size_bytes, command->from, EBB_READ},
        {command->to_offset, command->to_offset + command->size_bytes, command->to, EBB_WRITE},
    };
    const ebb_journal_entry entry = {.kind = EBB_JOURNAL_COPY, .thread = 1 + command->engine};
    return ebb__journal_write(w->mem, w->journal, entry, accesses, 2);
}

static ebb_status wait(void *ctx, uint32_t engine, uint32_t event) {
    const writer *w = ctx;
    const ebb_journal_entry entry = {.kind = EBB_JOURNAL_WAIT, .thread = 1 + engine, .event = event};
    return ebb__journal_write(w->mem, w->journal, entry, NULL, 0);
}

static ebb_status record(void *ctx, uint32_t engine, uint32_t event) {
    const writer *w = ctx;
    const ebb_journal_entry entry = {.kind = EBB_JOURNAL_RECORD, .thread = 1 + engine, .event = event};
    return ebb__journal_write(w->mem, w->journal, entry, NULL, 0);
}

static ebb_status iterate(writer *w, uint32_t n) {
    ebb_executor_ops ops = EBB_EXECUTOR_OPS_INIT;
    ops.compute = compute;
    ops.copy = copy;
    ops.wait = wait;
    ops.record = record;
    for (uint32_t i = 0; i < n; i++) {
        EBB_TRY(ebb__proof_begin_iteration(w->book));
        EBB_TRY(ebb_executor_iterate(w->executor, &ops, w));
        EBB_TRY(ebb__proof_end_iteration(w->book));
    }
    return EBB_OK;
}

/* ---- what the host does ------------------------------------------------------------------------- */

static ebb_journal_access own_bytes(const writer *w, uint32_t tensor, uint64_t begin, uint64_t bytes, uint32_t mode) {
    const uint64_t at = w->at[tensor] + begin;
    return (ebb_journal_access){at, at + bytes, w->n_tiers, mode};
}

/* The host packs a tensor, or looks at it, in its own memory. */
static ebb_status touch_own(const writer *w, uint32_t tensor, uint32_t mode) {
    const uint64_t bytes = w->program->tensors.data[tensor].size_bytes;
    const ebb_journal_access access = own_bytes(w, tensor, 0, bytes, mode);
    EBB_TRY(ebb__journal_write(w->mem, w->journal, (ebb_journal_entry){.kind = EBB_JOURNAL_HOST}, &access, 1));
    return ebb__proof_tell_host(w->book, w->journal->entries.n - 1, tensor);
}

static ebb_status copy_home(const writer *w, uint32_t tensor, const ebb_home *home, bool to_home) {
    const ebb_journal_access there = {home->offset, home->offset + home->size_bytes, home->tier,
                                      to_home ? EBB_WRITE : EBB_READ};
    const ebb_journal_access own = own_bytes(w, tensor, home->begin, home->size_bytes, to_home ? EBB_READ : EBB_WRITE);
    const ebb_journal_access accesses[] = {to_home ? own : there, to_home ? there : own};
    return ebb__journal_write(w->mem, w->journal, (ebb_journal_entry){.kind = EBB_JOURNAL_HOST}, accesses, 2);
}

static ebb_status write_homes(const writer *w) {
    ebb__proof_set(w->book);
    for (uint32_t t = 0; t < w->program->tensors.n; t++) {
        size_t n = 0;
        const ebb_home *homes = ebb_executor_homes(w->executor, t, &n);
        if (!w->program->tensors.data[t].persistent) { continue; }
        EBB_TRY(touch_own(w, t, EBB_WRITE));
        for (size_t h = 0; h < n; h++) { EBB_TRY(copy_home(w, t, &homes[h], true)); }
    }
    return EBB_OK;
}

/* Homes may hold the same bytes twice, on two tiers: those of each tier are looked at, with what else it takes to have
 * the tensor whole. */
static ebb_status read_homes_of(const writer *w, uint32_t tensor, uint32_t tier) {
    size_t n = 0, n_there = 0;
    const ebb_home *homes = ebb_executor_homes(w->executor, tensor, &n);
    for (size_t h = 0; h < n; h++) { n_there += homes[h].tier == tier; }
    for (size_t h = 0; n_there > 0 && h < n; h++) {
        if (homes[h].tier != tier) { EBB_TRY(copy_home(w, tensor, &homes[h], false)); }
    }
    for (size_t h = 0; h < n; h++) {
        if (homes[h].tier == tier) { EBB_TRY(copy_home(w, tensor, &homes[h], false)); }
    }
    return n_there > 0 ? touch_own(w, tensor, EBB_READ) : EBB_OK;
}

static ebb_status read_homes(const writer *w) {
    for (uint32_t e = 0; e < w->n_engines; e++) {
        const ebb_journal_entry sync = {.kind = EBB_JOURNAL_STREAM_SYNC, .thread = 1 + e};
        EBB_TRY(ebb__journal_write(w->mem, w->journal, sync, NULL, 0));
    }
    for (uint32_t t = 0; t < w->program->tensors.n; t++) {
        for (uint32_t tier = 0; tier < w->n_tiers; tier++) { EBB_TRY(read_homes_of(w, t, tier)); }
    }
    return EBB_OK;
}

/* ---- within a step ------------------------------------------------------------------------------ */

/* No two accesses of one step share bytes: their order is the kernel's. */
static ebb_status check_apart(const writer *w, const ebb_command *command, uint32_t *order, uint64_t *begin) {
    const ebb_step *step = &w->program->steps.data[command->action.target];
    const uint32_t n = list_accesses(w, command, w->accesses);
    for (uint32_t i = 0; i < n; i++) {
        order[i] = i;
        begin[i] = w->accesses[i].begin;
    }
    EBB_TRY(ebb__sort_by_key(w->mem, order, n, begin));
    for (uint32_t i = 1; i < n; i++) {
        if (w->accesses[order[i - 1]].end <= begin[order[i]]) { continue; }
        const char *name[2];
        for (uint32_t k = 0; k < 2; k++) {
            const uint32_t at = order[i - 1 + k];
            const ebb_access *access = &w->program->accesses.data[step->first_access + at];
            name[k] = at < step->n_accesses ? w->program->tensors.data[access->tensor].name : "its scratch";
        }
        return ebb_fail(EBB_E_INTERNAL, "hazard: '%s' and '%s' of step %s share byte %" PRIu64 " of the arena", name[0],
                        name[1], step->name, begin[order[i]]);
    }
    return EBB_OK;
}

static ebb_status check_steps(const writer *w, uint32_t most_accesses) {
    size_t n = 0;
    const ebb_command *commands = ebb_executor_commands(w->executor, &n);
    uint32_t *order = ebb__bump_alloc(&w->book->bump, most_accesses, sizeof *order);
    uint64_t *begin = ebb__bump_alloc(&w->book->bump, most_accesses, sizeof *begin);
    if (order == NULL || begin == NULL) { return EBB_E_NO_MEMORY; }
    for (size_t a = 0; a < n; a++) {
        if (ebb__action_computes(&commands[a].action)) { EBB_TRY(check_apart(w, &commands[a], order, begin)); }
    }
    return EBB_OK;
}

/* ---- the proof ---------------------------------------------------------------------------------- */

static ebb_status init_spaces(const writer *w, const ebb_topology *topology) {
    for (uint32_t t = 0; t <= w->n_tiers; t++) {
        const ebb_store store = t < w->n_tiers ? topology->tier[t].store : EBB_STORE_MEMORY;
        const ebb_journal_space space = store == EBB_STORE_DEVICE    ? EBB_JOURNAL_DEVICE_SPACE
                                        : ebb__moves_by_calls(store) ? EBB_JOURNAL_FILE_SPACE
                                                                     : EBB_JOURNAL_HOST_SPACE;
        EBB_TRY(EBB_PUSH(w->mem, &w->journal->spaces, space));
    }
    return EBB_OK;
}

static ebb_status use_all(writer *w) {
    EBB_TRY(write_homes(w));
    EBB_TRY(iterate(w, 3));
    EBB_TRY(read_homes(w));
    EBB_TRY(write_homes(w));
    EBB_TRY(iterate(w, 2));
    return read_homes(w);
}

ebb_status ebb__proof_write(ebb_proof_book *book, ebb_executor *executor, ebb_journal *journal) {
    const ebb_program *program = book->program;
    const ebb_topology *topology = ebb_plan_topology(book->plan);
    uint32_t most_accesses = 0;
    size_t n = 0;
    for (size_t s = 0; s < program->steps.n; s++) {
        const uint32_t with_scratch = program->steps.data[s].n_accesses + 1;
        if (with_scratch > most_accesses) { most_accesses = with_scratch; }
    }
    writer w = {.mem = book->mem,
                .program = program,
                .executor = executor,
                .journal = journal,
                .book = book,
                .n_tiers = topology->n_tiers,
                .n_engines = topology->n_engines,
                .at = ebb__bump_alloc(&book->bump, program->tensors.n, sizeof *w.at),
                .accesses = ebb__bump_alloc(&book->bump, most_accesses, sizeof *w.accesses)};
    if (w.at == NULL || w.accesses == NULL) { return EBB_E_NO_MEMORY; }
    for (size_t t = 0; t < program->tensors.n; t++) {
        w.at[t] = t > 0 ? w.at[t - 1] + program->tensors.data[t - 1].size_bytes : 0;
    }
    journal->n_threads = 1 + w.n_engines;
    journal->n_events = ebb_executor_n_events(executor);
    EBB_TRY(init_spaces(&w, topology));
    EBB_TRY(check_steps(&w, most_accesses));
    ebb__proof_begin(book, journal, ebb_executor_commands(executor, &n));
    return use_all(&w);
}

static ebb_status prove(const ebb_mem *mem, const ebb_program *program, const ebb_plan *plan, ebb_executor *executor,
                        ebb_proof *proof_out) {
    ebb_proof_book book;
    ebb_journal journal = {.n_threads = 0};
    ebb_hazard_counts counts = {0};
    ebb_status st = ebb__proof_init(mem, program, plan, &book);
    if (st == EBB_OK) { st = ebb__proof_write(&book, executor, &journal); }
    if (st == EBB_OK) { st = ebb__proof_check(&book, &counts); }
    if (st == EBB_OK) { *proof_out = ebb__proof_sum(&book, &counts); }
    ebb__journal_fini(book.mem, &journal);
    ebb__proof_fini(&book);
    return st;
}

ebb_status ebb_executor_prove(const ebb_mem *mem, const ebb_program *program, const ebb_plan *plan,
                              ebb_proof *proof_out) {
    EBB_NEED(program);
    EBB_NEED(plan);
    EBB_NEED(proof_out);
    ebb_executor *executor = NULL;
    EBB_TRY(ebb_executor_create(mem, program, plan, &executor));
    ebb_status st = prove(mem, program, plan, executor, proof_out);
    ebb_executor_destroy(executor);
    return st;
}
