/* SPDX-License-Identifier: Apache-2.0
 *
 * Dropout's mask, the same on every backend: a function of the run's seed, the iteration, the operator's
 * random stream and the element's row-major number, so that it can be drawn again at any time, in any order.
 *
 * Counter c yields four words, for elements 4c .. 4c + 3. The iteration is hashed into the stream, so no
 * iteration continues another's numbers. Element i stays when its word, as a number in [0, 1), is at least p,
 * and is then scaled by 1 / (1 - p).
 */
#ifndef EBB_SRC_DROPOUT_MASK_H
#define EBB_SRC_DROPOUT_MASK_H

#include "backend/backend.h"

typedef struct ebb_dropout_mask {
    uint64_t seed, stream;
    float p, scale;
} ebb_dropout_mask;

ebb_dropout_mask ebb__dropout_mask(const ebb_run_state *state, uint64_t rng_stream, float p);

/* What elements 4 * counter ... are multiplied by: 0 or the scale. */
void ebb__dropout_factors(const ebb_dropout_mask *mask, uint64_t counter, float factors_out[4]);

#endif
