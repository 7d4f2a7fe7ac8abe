/* SPDX-License-Identifier: Apache-2.0
 *
 * The inner loops for AVX2.
 */
#include "backend/cpu/cpu_simd.h"

#if defined(__x86_64__)

#include <immintrin.h>

#if defined(__clang__)
#pragma clang attribute push(__attribute__((target("avx2,fma"))), apply_to = function)
#else
#pragma GCC target("avx2,fma")
#endif

#define LANES 8
#define TABLE ebb__cpu_simd_avx2
#define TABLE_NAME "avx2"
#define pack(lanes) ((unsigned)_mm256_movemask_ps((__m256)(lanes)))

#include "backend/cpu/cpu_simd_body.h"

#if defined(__clang__)
#pragma clang attribute pop
#endif

#endif
