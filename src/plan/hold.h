/* SPDX-License-Identifier: Apache-2.0
 *
 * Copies that wait for a better moment.
 */
#ifndef EBB_SRC_HOLD_H
#define EBB_SRC_HOLD_H

#include "plan/plan_priv.h"

/* Put a plan in the place of this one that is faster, as predicted, because some of its copies are held (ebb/plan.h),
 * or leave it. What is where on the device and the tiers stays as it is. Of the options counts the effort, of which 0
 * tries all copies at once only, and who is told and may stop it. */
ebb_status ebb__plan_hold(const ebb_program *program, const ebb_machine *machine, const ebb_plan_options *options,
                          ebb_plan **plan_io);

#endif
