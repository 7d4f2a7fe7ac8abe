/* SPDX-License-Identifier: Apache-2.0
 *
 * What a proof that commands are free of hazards knows beside the journal in which they were written down: which
 * command each entry is, and which version of its tensor each access makes and must find. Whoever issued the commands
 * says where iterations begin and when the host gives tensors new content; versions are the program's:
 *
 *      version v of a tensor in iteration i      what its v-th write in the program leaves, in that iteration
 *      version 0                                 the last one of the iteration before, or what the host put there
 *
 * The plan's order does not count, nor how often it runs a step again: a step always finds and makes the same versions.
 */
#ifndef EBB_SRC_PROOF_H
#define EBB_SRC_PROOF_H

#include "ebb/executor.h"
#include "plan/plan.h"
#include "run/hazard.h"

typedef struct ebb_proof_book {
    const ebb_mem *mem;
    ebb_bump bump;
    const ebb_program *program;
    const ebb_plan *plan;
    ebb_versions versions;
    /* The program's accesses that a step's entry begins with: those from first_operand[step] on. NULL: its own. */
    const uint64_t *first_operand, *operand;
    uint32_t *n_entries; /* [actions]: that each becomes; at first 1, of a drop 0 */
    /* of the journal at hand: */
    const ebb_journal *journal;
    const ebb_command *commands;
    uint64_t n_sets;
    EBB_VEC(uint64_t) begin;          /* by iteration: the entry with which it begins */
    EBB_VEC(uint32_t) command;        /* by entry */
    EBB_VEC(ebb_hazard_version) told; /* by access */
} ebb_proof_book;

/* Program and plan are borrowed. Give it up whatever it returns. */
ebb_status ebb__proof_init(const ebb_mem *mem, const ebb_program *program, const ebb_plan *plan, ebb_proof_book *book);
void ebb__proof_fini(ebb_proof_book *book);
/* Begin with an empty journal, into which these commands of the plan will be written. Both are borrowed. */
void ebb__proof_begin(ebb_proof_book *book, const ebb_journal *journal, const ebb_command *commands);

/* The host gives all persistent tensors new content. */
void ebb__proof_set(ebb_proof_book *book);
/* A host's entry of one access packs, or looks at, a tensor as it is between two iterations. */
ebb_status ebb__proof_tell_host(ebb_proof_book *book, uint64_t entry, uint32_t tensor);
/* From here on, entries belong to an iteration; and its end. */
ebb_status ebb__proof_begin_iteration(ebb_proof_book *book);
ebb_status ebb__proof_end_iteration(ebb_proof_book *book);

/* Check what was written down. EBB_E_INTERNAL: a hazard, in words. EBB_E_LIMIT: of ebb__hazard_check. */
ebb_status ebb__proof_check(ebb_proof_book *book, ebb_hazard_counts *counts_out);
ebb_proof ebb__proof_sum(const ebb_proof_book *book, const ebb_hazard_counts *counts);

/* prove_executor.c: write all uses of an executor of the book's plan into an empty journal. */
ebb_status ebb__proof_write(ebb_proof_book *book, ebb_executor *executor, ebb_journal *journal);

#endif
