/* SPDX-License-Identifier: Apache-2.0
 *
 * Copies between host memories. Internal.
 */
#ifndef EBB_SRC_HOST_COPY_H
#define EBB_SRC_HOST_COPY_H

#include "base/base.h"

/* Like memcpy, but large copies do not go through the caches: nobody reads them soon, and the kernels need the room. */
void ebb__copy_uncached(void *dst, const void *src, size_t size_bytes);

#endif
