/* SPDX-License-Identifier: Apache-2.0
 *
 * Dropout's mask from counter-based random numbers.
 */
#include "backend/dropout_mask.h"

ebb_dropout_mask ebb__dropout_mask(const ebb_run_state *state, uint64_t rng_stream, float p) {
    const uint64_t place[2] = {rng_stream, state->iteration};
    return (ebb_dropout_mask){.seed = state->seed,
                              .stream = ebb__hash(EBB_HASH_INIT, place, sizeof place),
                              .p = p,
                              .scale = p < 1.0f ? 1.0f / (1.0f - p) : 0.0f};
}

void ebb__dropout_factors(const ebb_dropout_mask *mask, uint64_t counter, float factors_out[4]) {
    uint32_t words[4];
    ebb__philox(mask->seed, mask->stream, counter, words);
    for (int i = 0; i < 4; i++) { factors_out[i] = ebb__unit_float(words[i]) >= mask->p ? mask->scale : 0.0f; }
}
