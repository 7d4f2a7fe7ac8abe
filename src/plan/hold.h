/* SPDX-License-Identifier: Apache-2.0
 *
 * Copies that wait for a better moment.
 */
#ifndef EBB_SRC_HOLD_H
#define EBB_SRC_HOLD_H

#include "plan/plan_priv.h"

/* Replace a plan in which no copy is held by one that is predicted to be faster because some are (ebb/plan.h), if there
 * is one. Everything keeps its place on the device and on the tiers. The options count for effort (0: copies are tried
 * all at once only), progress and stop. The caller seals the plan. */
ebb_status ebb__plan_hold(const ebb_program *program, const ebb_machine *machine, const ebb_plan_options *options,
                          ebb_plan **plan_io);

#endif
