/* SPDX-License-Identifier: Apache-2.0
 *
 * The inner loops for AVX-512.
 */
#include "backend/cpu/cpu_simd.h"

#if defined(__x86_64__)

#include <immintrin.h>

#if defined(__clang__)
#pragma clang attribute push(__attribute__((target("avx512f,avx512bw,avx512dq,avx512vl,fma"))), apply_to = function)
#else
#pragma GCC target("avx512f,avx512bw,avx512dq,avx512vl,fma,prefer-vector-width=512")
#endif

#define LANES 16
#define TABLE ebb__cpu_simd_avx512
#define TABLE_NAME "avx512"
#define pack(lanes) ((unsigned)_mm512_movepi32_mask((__m512i)(lanes)))

#include "backend/cpu/cpu_simd_body.h"

#if defined(__clang__)
#pragma clang attribute pop
#endif

#endif
