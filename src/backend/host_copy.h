/* SPDX-License-Identifier: Apache-2.0
 *
 * Copies between host memories. Internal.
 */
#ifndef EBB_SRC_HOST_COPY_H
#define EBB_SRC_HOST_COPY_H

#include "base/base.h"

/* Like memcpy, but large copies do not go through the caches: nobody reads them soon, and the kernels need the room. */
void ebb__copy_uncached(void *dst, const void *src, size_t size_bytes);

/* Threads that copy large pieces together. Where all processors compute, a copy by one thread stops the others as well,
 * because they wait for theirs; a copy by as many threads is over sooner. On two cores of an EPYC, two threads copied
 * 28 GB/s in place of 21, and computing lost 0.6 as much to each byte. */
typedef struct ebb_copy_crew ebb_copy_crew;

/* n_threads: with the one that asks for copies; fewer if they cannot be started, and at most 4. Only one thread at a
 * time may ask. Destroy it when its last copy has returned; NULL is none. */
ebb_status ebb__copy_crew_create(const ebb_mem *mem, uint32_t n_threads, ebb_copy_crew **crew_out);
void ebb__copy_crew_destroy(ebb_copy_crew *crew);
/* Like ebb__copy_uncached. */
void ebb__copy_by_crew(ebb_copy_crew *crew, void *dst, const void *src, size_t size_bytes);

#endif
