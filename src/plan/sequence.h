/* SPDX-License-Identifier: Apache-2.0
 *
 * The decisions of a policy of fixed rules: which steps are computed, and again, in which order; and which tensors are
 * away on another tier between two of these computations. The drops follow from it: a tensor leaves after a computation
 * if the next one that touches it makes it anew, or if none comes. From this a draft is made.
 *
 * Positions are numbers of computations. Before computation c, copies out come first, then drops of the tensors that go
 * away, then copies in.
 */
#ifndef EBB_SRC_SEQUENCE_H
#define EBB_SRC_SEQUENCE_H

#include "plan/plan_priv.h"

/* ---- copies and drops at positions ------------------------------------------------------------- */

typedef enum ebb_change_kind { EBB_CHANGE_OUT, EBB_CHANGE_DROP, EBB_CHANGE_IN, EBB_N_CHANGES } ebb_change_kind;

typedef struct ebb_change {
    uint64_t at; /* before this computation; their number: after the last */
    uint32_t tensor, tier;
    uint64_t begin, size_bytes; /* which bytes of it, as actions have them */
    ebb_change_kind kind;
} ebb_change;

/* Copies and drops between computations. At one position copies out come first, then drops, then copies in. */
typedef struct ebb_changes {
    const ebb_mem *mem;
    EBB_VEC(ebb_change) list;
    size_t next; /* that is not drafted yet */
} ebb_changes;

void ebb__changes_fini(ebb_changes *changes);
/* The first adds a change of a whole tensor; for the second, the change says which bytes. */
ebb_status ebb__changes_add(ebb_changes *changes, ebb_change_kind kind, uint64_t at, uint32_t tensor, uint32_t tier);
ebb_status ebb__changes_add_part(ebb_changes *changes, const ebb_change *change);
ebb_status ebb__changes_sort(ebb_changes *changes);
/* Add the changes of this position to a draft. Positions are asked for in ascending order, each once. */
ebb_status ebb__changes_draft(ebb_changes *changes, uint64_t at, ebb_draft *draft);

/* ---- computations and absences ------------------------------------------------------------------ */

typedef struct ebb_compute {
    uint32_t step;
    bool is_again;
} ebb_compute;

/* A tensor is copied out before computation `out` (EBB_NO_OUT: a copy is there already), leaves before `drop`, and is
 * copied in before `in`. out <= drop < in. */
typedef struct ebb_absence {
    uint32_t tensor, tier;
    uint64_t out, drop, in;
} ebb_absence;
#define EBB_NO_OUT UINT64_MAX

typedef struct ebb_sequence {
    const ebb_mem *mem;
    EBB_VEC(ebb_compute) computes;
    EBB_VEC(ebb_absence) absences;
} ebb_sequence;

void ebb__sequence_init(ebb_sequence *sequence, const ebb_mem *mem);
void ebb__sequence_fini(ebb_sequence *sequence);
ebb_status ebb__sequence_compute(ebb_sequence *sequence, uint32_t step, bool is_again);
/* All steps of the program, in the order that the input asks for. */
ebb_status ebb__sequence_all(ebb_sequence *sequence, const ebb_policy_input *input);

/* For each access of each computation, in order, whether its tensor is dropped afterwards, the absences left out of
 * account. first_out[c]: where computation c's accesses begin. Both arrays come from the bump. */
ebb_status ebb__sequence_find_drops(const ebb_sequence *sequence, const ebb_program_view *view, ebb_bump *bump,
                                    uint64_t **first_out, bool **drops_out);

/* The bytes that are there for each computation: tensors, rounded up, and scratch. The array comes from the bump. */
ebb_status ebb__sequence_load(const ebb_sequence *sequence, const ebb_policy_input *input, ebb_bump *bump,
                              uint64_t **load_out);
/* The most of them. */
ebb_status ebb__sequence_peak(const ebb_sequence *sequence, const ebb_policy_input *input, uint64_t *peak_out);

/* Write it into an empty draft. */
ebb_status ebb__sequence_draft(const ebb_sequence *sequence, const ebb_policy_input *input, ebb_draft *draft);

#endif
