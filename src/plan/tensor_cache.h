/* SPDX-License-Identifier: Apache-2.0
 *
 * The device as a cache of tensors, run over a sequence: what has no room is evicted.
 */
#ifndef EBB_SRC_TENSOR_CACHE_H
#define EBB_SRC_TENSOR_CACHE_H

#include "plan/sequence.h"

typedef enum ebb_eviction {
    EBB_EVICT_OLDEST,  /* least recently used */
    EBB_EVICT_FARTHEST /* needed again last: Belady's rule, as the future is known */
} ebb_eviction;

/* Find the absences with which the sequence keeps within the input's limit. Persistent and kept tensors stay. O(n log
 * n) in the accesses. EBB_E_NO_FIT without a message: what one computation touches and what must stay have no room, or
 * the tiers are full. */
ebb_status ebb__tensor_cache_run(const ebb_policy_input *input, ebb_eviction eviction, ebb_sequence *sequence);

#endif
