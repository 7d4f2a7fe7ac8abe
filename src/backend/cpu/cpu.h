/* SPDX-License-Identifier: Apache-2.0
 *
 * The backend `cpu`: oneDNN's kernels on memory of the host, own loops where a pass over memory is all there is.
 */
#ifndef EBB_SRC_CPU_H
#define EBB_SRC_CPU_H

#include "backend/backend.h"

extern const ebb_backend_ops ebb__backend_cpu;

#endif
