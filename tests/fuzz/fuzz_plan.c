/* SPDX-License-Identifier: Apache-2.0
 *
 * Fuzz target: the plan file's reader, and the validator on whatever the reader lets through. The program is a fixed
 * one, to which the seeds of corpus/plan belong; the fingerprint is set right, so that the validator gets past it.
 * A plan that the validator passes is scheduled and simulated too, for they rely on its word.
 */
#include "plan/plan_priv.h"

#include <stdlib.h>

static uint32_t add_tensor(ebb_program *p, uint64_t size_bytes, bool persistent, bool kept) {
    uint32_t idx = 0;
    ebb_tensor t = {.name = "t", .size_bytes = size_bytes, .persistent = persistent, .kept = kept};
    if (ebb_program_add_tensor(p, &t, &idx) != EBB_OK) { abort(); }
    return idx;
}

static void add_step(ebb_program *p, const ebb_access *accesses, uint32_t n, uint64_t scratch_bytes) {
    ebb_choice choice = {.name = "c", .scratch_bytes = scratch_bytes, .key = 1, .flops = 1e6};
    ebb_step step = {.name = "s", .kind = "op", .n_accesses = n, .n_choices = 1};
    if (ebb_program_add_step(p, &step, accesses, &choice) != EBB_OK) { abort(); }
}

static ebb_program *make_program(void) {
    ebb_program *p = NULL;
    if (ebb_program_create(NULL, "fuzz", 64, &p) != EBB_OK) { abort(); }
    uint32_t w = add_tensor(p, 100, true, false), x = add_tensor(p, 64, false, false);
    uint32_t y = add_tensor(p, 64, false, false), k = add_tensor(p, 4, false, true), r = add_tensor(p, 64, true, false);
    add_step(p, (ebb_access[]){{x, EBB_WRITE}}, 1, 0);
    add_step(p, (ebb_access[]){{x, EBB_READ}, {w, EBB_READ}, {y, EBB_WRITE}}, 3, 32);
    add_step(p, (ebb_access[]){{y, EBB_READ}, {r, EBB_READ}, {k, EBB_WRITE}}, 3, 0);
    add_step(p, (ebb_access[]){{x, EBB_READ}, {w, EBB_UPDATE}}, 2, 0);
    if (ebb_program_finish(p) != EBB_OK) { abort(); }
    return p;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    ebb_plan *plan = NULL;
    if (ebb__plan_parse(NULL, "fuzz", (const char *)data, size, &plan) != EBB_OK) { return 0; }
    ebb_program *p = make_program();
    plan->fingerprint = ebb_program_fingerprint(p);
    if (ebb_plan_check(p, plan) == EBB_OK) {
        ebb_machine *m = NULL;
        ebb_timeline timeline;
        if (ebb_machine_create(NULL, &m) != EBB_OK) { abort(); }
        if (ebb_plan_simulate(p, plan, m, &timeline, NULL, NULL) != EBB_OK) { abort(); }
        ebb_machine_destroy(m);
    }
    ebb_program_destroy(p);
    ebb_plan_destroy(plan);
    return 0;
}
