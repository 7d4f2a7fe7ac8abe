/* SPDX-License-Identifier: Apache-2.0
 *
 * Names that traces and programs share: the role of a block or tensor, and the phase of a step.
 */
#ifndef EBB_ROLE_H
#define EBB_ROLE_H

#include "ebb/base.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The purpose of a block or tensor; the names are those of PyTorch's component tracking where it has one. workspace is
 * scratch of kernels. unknown: the source does not tell the role; other: the source says that it is another one.
 * X(code, name) */
#define EBB_ROLE_TABLE(X)                                                                                              \
    X(PARAMETER, "parameter")                                                                                          \
    X(BUFFER, "buffer")                                                                                                \
    X(GRADIENT, "gradient")                                                                                            \
    X(ACTIVATION, "activation")                                                                                        \
    X(OPTIMIZER_STATE, "optimizer_state")                                                                              \
    X(TEMP, "temp")                                                                                                    \
    X(INPUT, "input")                                                                                                  \
    X(OTHER, "other")                                                                                                  \
    X(WORKSPACE, "workspace")                                                                                          \
    X(UNKNOWN, "unknown")

typedef enum ebb_role {
#define EBB_ROLE_ENUM(code, name) EBB_ROLE_##code,
    EBB_ROLE_TABLE(EBB_ROLE_ENUM)
#undef EBB_ROLE_ENUM
        EBB_N_ROLES
} ebb_role;

/* Static; "other" for a number out of range. */
EBB_API const char *ebb_role_name(ebb_role role);

/* The part of an iteration that a step belongs to; unknown: the source does not tell. */
typedef enum ebb_phase {
    EBB_PHASE_FORWARD,
    EBB_PHASE_BACKWARD,
    EBB_PHASE_UPDATE,
    EBB_PHASE_UNKNOWN,
    EBB_N_PHASES
} ebb_phase;

#ifdef __cplusplus
}
#endif

#endif
