/* SPDX-License-Identifier: Apache-2.0
 *
 * A policy's output: actions in order, and which persistent tensors are on the device where the circle
 * closes. No policy handles positions of stays, slots or offsets; one sweep makes them from this.
 */
#ifndef EBB_SRC_DRAFT_H
#define EBB_SRC_DRAFT_H

#include "plan/plan.h"

#define EBB_DRAFT_FIXED UINT64_MAX

/* bound: for an in or out the least index of an action before which it may go, EBB_DRAFT_FIXED if it may not
 * move. */
typedef struct ebb_draft_action {
    ebb_action action;
    uint64_t bound;
} ebb_draft_action;

/* Bytes [begin, end) of a tensor. */
typedef struct ebb_part {
    uint32_t tensor;
    uint64_t begin, end;
} ebb_part;

typedef struct ebb_draft {
    const ebb_mem *mem;
    EBB_VEC(ebb_draft_action) actions;
    uint8_t *resident;        /* [n_tensors]: a persistent tensor that is on the device where the circle closes */
    EBB_VEC(ebb_part) absent; /* parts of resident ones that are not */
    uint8_t *home; /* [n_tensors]: the tier of a copy that is always there (a tensor that is never written) */
} ebb_draft;

ebb_status ebb__draft_init(ebb_draft *draft, const ebb_program *program, const ebb_mem *mem);
void ebb__draft_fini(ebb_draft *draft);
/* Empty again, every persistent tensor resident. */
void ebb__draft_reset(ebb_draft *draft, const ebb_program *program);

/* Make to the same as from, which has all of its tensors whole. */
ebb_status ebb__draft_copy(const ebb_draft *from, const ebb_program *program, ebb_draft *to);

static inline void ebb__draft_swap(ebb_draft *a, ebb_draft *b) {
    const ebb_draft was_a = *a;
    *a = *b;
    *b = was_a;
}

ebb_status ebb__draft_add(ebb_draft *draft, const ebb_action *action, uint64_t bound);
/* For a step, which does not move; and for a whole tensor, from or to a tier. */
ebb_status ebb__draft_step(ebb_draft *draft, ebb_action_kind kind, uint32_t step, uint32_t choice);
ebb_status ebb__draft_tensor(ebb_draft *draft, ebb_action_kind kind, uint32_t tensor, uint32_t tier, uint64_t bound);

/* A load that fills a budget but for what placing wastes at its best. */
static inline uint64_t ebb__draft_full_load(uint64_t budget_bytes) {
    return budget_bytes - budget_bytes / 512;
}

/* Move copies out up to their bounds (early_out), copies in up as far as the machine's times ask for and
 * limit_bytes allows (early_in). Nothing else changes places. */
ebb_status ebb__draft_move_up(ebb_draft *draft, const ebb_program *program, const ebb_machine *machine,
                              uint64_t limit_bytes, bool early_out, bool early_in);

/* Write the actions anew: before each action those that go there (before[a]: of action a; its own index if it stays),
 * copies out first, in their old order. An action that others go before stays. Copies may not move any more. */
ebb_status ebb__draft_reorder(ebb_draft *draft, const uint64_t *before);

/* The bytes of each tensor on the device where the circle closes; those of a tensor and of a part are rounded up. */
void ebb__draft_resident(const ebb_draft *draft, const ebb_program *program, uint64_t alignment, uint64_t *bytes_out);

/* Whether its drops and copies find their tensors as they must, counted in bytes: deep. */
bool ebb__draft_is_valid(const ebb_draft *draft, const ebb_program *program);

/* Turn it into the actions, stays and slots of an empty plan, in order, offsets all 0. */
ebb_status ebb__draft_to_plan(const ebb_draft *draft, const ebb_program *program, ebb_plan *plan);

#endif
