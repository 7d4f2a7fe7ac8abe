/* SPDX-License-Identifier: Apache-2.0
 *
 * Placement problems made from a seed, of the kinds that real ones come in; for benchmarks and tests.
 */
#ifndef EBB_BENCH_PLACE_INSTANCES_H
#define EBB_BENCH_PLACE_INSTANCES_H

#include "ebb/place.h"

/* Fill items_out, with malloc's memory, with a problem of this kind, which is not cyclic, and about n_items (exact but
 * for pinwheel, train and xla). false: no such kind, or no memory. */
bool ebb_bench_make_items(const char *kind, size_t n_items, uint64_t seed, ebb_place_item **items_out,
                          size_t *n_items_out);

/* The name of a kind, and a line about it; NULL beyond the last. */
const char *ebb_bench_kind(size_t idx, const char **about_out);

#endif
