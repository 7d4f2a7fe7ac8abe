/* SPDX-License-Identifier: Apache-2.0
 *
 * Copies between host memories. Internal.
 */
#ifndef EBB_SRC_HOST_COPY_H
#define EBB_SRC_HOST_COPY_H

#include "base/base.h"

/* As memcpy. What is written goes past the caches: it is not read soon, and the kernels need the caches. */
void ebb__copy_uncached(void *dst, const void *src, size_t size_bytes);

#endif
