/* SPDX-License-Identifier: Apache-2.0
 *
 * A thread that works out a certificate (certifier.h). It is told to stop early where its answer is not wanted: no plan
 * was found, or one in another order of steps.
 */
#include "plan/certifier.h"

#include "base/thread.h"
#include "plan/maker.h"

static void *run_thread(void *arg) {
    ebb_certifier *c = arg;
    c->status =
        ebb__plan_certify_unless(&c->is_unwanted, c->program, c->machine, c->limits, true, c->care, &c->certificate);
    if (c->status != EBB_OK) { (void)snprintf(c->message, sizeof c->message, "%s", ebb_last_error()); }
    return NULL;
}

void ebb__certifier_init(ebb_certifier *c, const ebb_program *program, const ebb_machine *machine,
                         const ebb_plan_options *limits, ebb_bound_care care) {
    *c = (ebb_certifier){.program = program, .machine = machine, .limits = limits, .care = care};
}

/* A small program keeps all threads busy with plans, often in another order; a first plan has a bound in no time. */
static bool is_worth_a_thread(const ebb_certifier *c) {
    return c->care != EBB_BOUND_AT_ONCE && ebb__plan_view(c->program).n_steps > EBB_SMALL_STEPS;
}

void ebb__certifier_begin(ebb_certifier *c) {
    if (!is_worth_a_thread(c) || c->limits->n_threads < 2 ||
        c->limits->budget_bytes < ebb_program_floor_bytes(c->program, NULL)) {
        return;
    }
    c->has_thread = ebb__thread_start(run_thread, c, &c->thread) == 0;
}

void ebb__certifier_drop(ebb_certifier *c) {
    atomic_store(&c->is_unwanted, true);
    if (c->has_thread) { (void)pthread_join(c->thread, NULL); }
    c->has_thread = false;
}

ebb_status ebb__certifier_end(ebb_certifier *c, bool in_order, ebb_certificate *certificate_out) {
    if (!c->has_thread || !in_order) {
        ebb__certifier_drop(c);
        return ebb__plan_certify(c->program, c->machine, c->limits, in_order, c->care, certificate_out);
    }
    (void)pthread_join(c->thread, NULL);
    c->has_thread = false;
    if (c->status != EBB_OK) { return ebb__fail_adopt(c->status, c->message); }
    *certificate_out = c->certificate;
    return EBB_OK;
}
