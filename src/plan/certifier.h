/* SPDX-License-Identifier: Apache-2.0
 *
 * The certificate of a plan, worked out by another thread while the plan is made: all that it needs to know of the plan
 * is whether that keeps the program's order of steps.
 */
#ifndef EBB_SRC_CERTIFIER_H
#define EBB_SRC_CERTIFIER_H

#include "plan/plan_priv.h"

#include <pthread.h>
#include <stdatomic.h>

typedef struct ebb_certifier {
    const ebb_program *program;
    const ebb_machine *machine;
    const ebb_plan_options *limits;
    ebb_bound_care care;
    pthread_t thread;
    bool has_thread;
    atomic_bool is_unwanted;
    /* the thread's answer, for a plan in the program's order */
    ebb_certificate certificate;
    ebb_status status;
    char message[256]; /* of a failure */
} ebb_certifier;

/* Everything is borrowed until end or drop. */
void ebb__certifier_init(ebb_certifier *c, const ebb_program *program, const ebb_machine *machine,
                         const ebb_plan_options *limits, ebb_bound_care care);

/* Have another thread begin, if limits->n_threads allows one, the budget holds the largest step and it is worth it. */
void ebb__certifier_begin(ebb_certifier *c);

/* The certificate. Where no thread has begun, it is worked out now. */
ebb_status ebb__certifier_end(ebb_certifier *c, bool in_order, ebb_certificate *certificate_out);

/* The thread ends, if there still is one. */
void ebb__certifier_drop(ebb_certifier *c);

#endif
