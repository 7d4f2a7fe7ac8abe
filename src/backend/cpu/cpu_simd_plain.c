/* SPDX-License-Identifier: Apache-2.0
 *
 * The inner loops for any processor.
 */
#include "backend/cpu/cpu_simd.h"

/* Vectors wider than the processor's are taken apart by the compiler; none crosses a call. */
#pragma GCC diagnostic ignored "-Wpsabi"

#define LANES 8
#define TABLE ebb__cpu_simd_plain
#define TABLE_NAME "plain"
#define pack(lanes) pack_lanes((const int32_t *)&(lanes))

static unsigned pack_lanes(const int32_t *lanes) {
    unsigned bits = 0;
    for (int i = 0; i < LANES; i++) { bits |= (lanes[i] != 0 ? 1u : 0u) << i; }
    return bits;
}

#include "backend/cpu/cpu_simd_body.h"
