/* SPDX-License-Identifier: Apache-2.0
 *
 * The backend that computes nothing: bytes, work figures and the order of commands, for asking what a network
 * would need where neither the memory nor the device is there.
 */
#ifndef EBB_SRC_DRY_H
#define EBB_SRC_DRY_H

#include "backend/backend.h"

extern const ebb_backend_ops ebb__backend_dry;

#endif
