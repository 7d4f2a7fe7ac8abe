/* SPDX-License-Identifier: Apache-2.0
 *
 * Copies that move on from a full tier to the next one.
 */
#ifndef EBB_SRC_MOVE_ON_H
#define EBB_SRC_MOVE_ON_H

#include "plan/plan_priv.h"

/* Put a plan in the place of this one that is faster, as predicted, because copies move on to a slower tier when the
 * faster one is full; or leave it. The device's bytes stay as they are. limits: of the tiers. */
ebb_status ebb__plan_move_on(const ebb_program *program, const ebb_machine *machine, const ebb_plan_options *limits,
                             ebb_plan **plan_io);

#endif
