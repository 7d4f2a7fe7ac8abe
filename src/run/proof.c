/* SPDX-License-Identifier: Apache-2.0
 *
 * Telling versions, and a hazard in words. See proof.h.
 */
#include "run/proof.h"

#include <inttypes.h>

#define NO_COMMAND UINT32_MAX

/* ---- life --------------------------------------------------------------------------------------- */

ebb_status ebb__proof_init(const ebb_mem *mem, const ebb_program *program, const ebb_plan *plan, ebb_proof_book *book) {
    size_t n_actions = 0;
    const ebb_action *actions = ebb_plan_actions(plan, &n_actions);
    *book = (ebb_proof_book){.mem = ebb__mem_or_default(mem), .program = program, .plan = plan};
    ebb__bump_init(&book->bump, book->mem);
    book->n_entries = ebb__bump_alloc(&book->bump, n_actions, sizeof *book->n_entries);
    if (book->n_entries == NULL) { return EBB_E_NO_MEMORY; }
    for (size_t a = 0; a < n_actions; a++) { book->n_entries[a] = actions[a].kind != EBB_ACT_DROP; }
    return ebb__program_versions(program, &book->bump, &book->versions);
}

void ebb__proof_fini(ebb_proof_book *book) {
    EBB_VEC_FINI(book->mem, &book->begin);
    EBB_VEC_FINI(book->mem, &book->command);
    EBB_VEC_FINI(book->mem, &book->told);
    ebb__bump_fini(&book->bump);
}

void ebb__proof_begin(ebb_proof_book *book, const ebb_journal *journal, const ebb_command *commands) {
    book->journal = journal;
    book->commands = commands;
    book->n_sets = book->begin.n = book->command.n = book->told.n = 0;
}

/* ---- versions ----------------------------------------------------------------------------------- */

/* Each set, and each write of an iteration, is one more: so each version has a number of its own. */
static uint64_t number_version(const ebb_proof_book *book, uint32_t tensor, uint64_t iteration, uint32_t version) {
    const uint64_t n_made = book->n_sets + iteration * book->versions.final[tensor] + version;
    return 1 + tensor + book->program->tensors.n * n_made;
}

/* Room for what the journal has by now. */
static ebb_status grow(ebb_proof_book *book) {
    const size_t n_entries = book->journal->entries.n, n_accesses = book->journal->accesses.n;
    EBB_ASSERT(n_entries >= book->command.n && n_accesses >= book->told.n);
    EBB_TRY(EBB_RESERVE(book->mem, &book->command, n_entries - book->command.n));
    EBB_TRY(EBB_RESERVE(book->mem, &book->told, n_accesses - book->told.n));
    while (book->command.n < n_entries) { book->command.data[book->command.n++] = NO_COMMAND; }
    while (book->told.n < n_accesses) { book->told.data[book->told.n++] = (ebb_hazard_version){0}; }
    return EBB_OK;
}

static void tell(ebb_proof_book *book, uint64_t access, uint64_t finds, uint64_t makes) {
    const uint32_t mode = book->journal->accesses.data[access].mode;
    book->told.data[access] =
        (ebb_hazard_version){.finds = (mode & EBB_READ) != 0 ? finds : 0, .makes = (mode & EBB_WRITE) != 0 ? makes : 0};
}

static uint64_t first_operand(const ebb_proof_book *book, uint32_t step) {
    return book->first_operand != NULL ? book->first_operand[step] : book->program->steps.data[step].first_access;
}

static uint64_t count_operands(const ebb_proof_book *book, uint32_t step) {
    return book->first_operand != NULL ? book->first_operand[step + 1] - book->first_operand[step]
                                       : book->program->steps.data[step].n_accesses;
}

/* The program's access that a step's operand is. */
static uint64_t access_of(const ebb_proof_book *book, uint32_t step, uint64_t idx) {
    const uint64_t at = first_operand(book, step) + idx;
    return book->first_operand != NULL ? book->operand[at] : at;
}

static void tell_step(ebb_proof_book *book, uint32_t step, const ebb_journal_entry *entry) {
    const ebb_versions *v = &book->versions;
    const uint64_t n = count_operands(book, step), iteration = book->begin.n - 1;
    EBB_ASSERT(entry->kind == EBB_JOURNAL_RUN && entry->n_accesses >= n);
    for (uint64_t i = 0; i < n; i++) {
        const uint64_t a = access_of(book, step, i);
        const ebb_access *access = &book->program->accesses.data[a];
        const bool reads = (access->mode & EBB_READ) != 0;
        tell(book, entry->first_access + i, reads ? number_version(book, access->tensor, iteration, v->read[a]) : 0,
             number_version(book, access->tensor, iteration, v->after[a]));
    }
}

void ebb__proof_set(ebb_proof_book *book) {
    book->n_sets++;
}

ebb_status ebb__proof_tell_host(ebb_proof_book *book, uint64_t entry, uint32_t tensor) {
    const ebb_journal_entry *e = &book->journal->entries.data[entry];
    const uint64_t version = number_version(book, tensor, book->begin.n, 0);
    EBB_ASSERT(e->kind == EBB_JOURNAL_HOST && e->n_accesses == 1);
    EBB_TRY(grow(book));
    tell(book, e->first_access, version, version);
    return EBB_OK;
}

ebb_status ebb__proof_begin_iteration(ebb_proof_book *book) {
    return EBB_PUSH(book->mem, &book->begin, book->journal->entries.n);
}

static bool is_command(const ebb_journal_entry *entry) {
    return entry->kind == EBB_JOURNAL_RUN || entry->kind == EBB_JOURNAL_COPY || entry->kind == EBB_JOURNAL_CALL;
}

ebb_status ebb__proof_end_iteration(ebb_proof_book *book) {
    size_t n_actions = 0;
    const ebb_action *actions = ebb_plan_actions(book->plan, &n_actions);
    uint64_t at = book->begin.data[book->begin.n - 1];
    EBB_TRY(grow(book));
    for (uint32_t a = 0; a < n_actions; a++) {
        for (uint32_t n = book->n_entries[a]; n > 0; at++) {
            EBB_ASSERT(at < book->journal->entries.n);
            const ebb_journal_entry *entry = &book->journal->entries.data[at];
            if (!is_command(entry)) { continue; }
            book->command.data[at] = a;
            if (ebb__action_computes(&actions[a])) { tell_step(book, actions[a].target, entry); }
            n--;
        }
    }
    return EBB_OK;
}

/* ---- words -------------------------------------------------------------------------------------- */

/* The tensor of an operand that lies over the bytes in question. */
static const char *find_tensor(const ebb_proof_book *book, const ebb_action *action, const ebb_journal_entry *entry,
                               const ebb_journal_access *bytes) {
    const ebb_program *program = book->program;
    if (action->kind != EBB_ACT_RUN && action->kind != EBB_ACT_AGAIN) {
        return program->tensors.data[action->target].name;
    }
    const ebb_journal_access *a = &book->journal->accesses.data[entry->first_access];
    for (uint32_t i = 0; i < entry->n_accesses; i++) {
        if (a[i].space != bytes->space || a[i].begin >= bytes->end || bytes->begin >= a[i].end) { continue; }
        if (i >= count_operands(book, action->target)) { return "scratch, state or a port"; }
        return program->tensors.data[program->accesses.data[access_of(book, action->target, i)].tensor].name;
    }
    return "nothing";
}

static void describe(const ebb_proof_book *book, uint64_t idx, const ebb_journal_access *bytes, char *text, size_t n) {
    static const char *const kinds[] = {"run", "again", "out", "in", "move", "drop"};
    const ebb_journal_entry *entry = &book->journal->entries.data[idx];
    const uint32_t a = idx < book->command.n ? book->command.data[idx] : NO_COMMAND;
    if (a == NO_COMMAND) {
        (void)snprintf(text, n, "%s (entry %" PRIu64 ")",
                       entry->kind == EBB_JOURNAL_HOST ? "the host" : "a copy between iterations", idx);
        return;
    }
    size_t i = 0;
    while (i + 1 < book->begin.n && book->begin.data[i + 1] <= idx) { i++; }
    const ebb_command *c = &book->commands[a];
    const char *step = ebb__action_computes(&c->action) ? book->program->steps.data[c->action.target].name : "of";
    (void)snprintf(text, n, "action %" PRIu32 " (%s %s '%s') of iteration %zu, stream %s", a, kinds[c->action.kind],
                   step, find_tensor(book, &c->action, entry, bytes), i,
                   ebb_plan_topology(book->plan)->engine[c->engine]);
}

static ebb_status fail_hazard(const ebb_proof_book *book, const ebb_hazard *hazard) {
    static const char *const spaces[] = {"the host", "the arena", "the file"};
    char first[320], second[320];
    const ebb_journal_space space = book->journal->spaces.data[hazard->access.space];
    describe(book, hazard->first, &hazard->access, first, sizeof first);
    describe(book, hazard->second, &hazard->access, second, sizeof second);
    const char *what = hazard->kind == EBB_HAZARD_RACE     ? "nothing orders"
                       : hazard->kind == EBB_HAZARD_BROKEN ? "bytes of more than one content:"
                       : hazard->kind == EBB_HAZARD_STALE  ? "not the version that the program means:"
                                                           : "bytes that were never written:";
    return ebb_fail(EBB_E_INTERNAL, "hazard: %s %s and %s, over [%" PRIu64 ", %" PRIu64 ") of %s", what, first, second,
                    hazard->access.begin, hazard->access.end, spaces[space]);
}

ebb_status ebb__proof_check(ebb_proof_book *book, ebb_hazard_counts *counts_out) {
    ebb_hazard hazard = {.kind = EBB_HAZARD_NONE};
    EBB_TRY(grow(book));
    EBB_TRY(ebb__hazard_check(book->mem, book->journal, book->told.data, counts_out, &hazard));
    return hazard.kind == EBB_HAZARD_NONE ? EBB_OK : fail_hazard(book, &hazard);
}

ebb_proof ebb__proof_sum(const ebb_proof_book *book, const ebb_hazard_counts *counts) {
    return (ebb_proof){.n_iterations = book->begin.n,
                       .n_commands = counts->n_commands,
                       .n_pairs = counts->n_pairs,
                       .n_events = counts->n_records,
                       .n_waits = counts->n_waits,
                       .n_implied_waits = counts->n_implied,
                       .n_versions = counts->n_versions};
}
