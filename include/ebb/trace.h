/* SPDX-License-Identifier: Apache-2.0
 *
 * Traces: what happened to every block of device memory, in time order. The file format is described in
 * docs/trace-format.md.
 */
#ifndef EBB_TRACE_H
#define EBB_TRACE_H

#include "ebb/base.h"

#ifdef __cplusplus
extern "C" {
#endif

/* What a block or tensor is for; the names are those of PyTorch's component tracking where it has one.
 * X(code, name) */
#define EBB_ROLE_TABLE(X)                                                                                              \
    X(PARAMETER, "parameter")                                                                                          \
    X(BUFFER, "buffer")                                                                                                \
    X(GRADIENT, "gradient")                                                                                            \
    X(ACTIVATION, "activation")                                                                                        \
    X(OPTIMIZER_STATE, "optimizer_state")                                                                              \
    X(TEMP, "temp")                                                                                                    \
    X(INPUT, "input")                                                                                                  \
    X(OTHER, "other")

typedef enum ebb_role {
#define EBB_ROLE_ENUM(code, name) EBB_ROLE_##code,
    EBB_ROLE_TABLE(EBB_ROLE_ENUM)
#undef EBB_ROLE_ENUM
        EBB_N_ROLES
} ebb_role;

/* Static; "other" for what is out of range. */
EBB_API const char *ebb_role_name(ebb_role role);

#ifdef __cplusplus
}
#endif

#endif
