/* SPDX-License-Identifier: Apache-2.0
 *
 * Types of elements: what each is called, how many bytes it has, and what it holds as a float.
 */
#ifndef EBB_DTYPE_H
#define EBB_DTYPE_H

#include "ebb/base.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef enum ebb_dtype {
    EBB_F32,
    EBB_BF16, /* the upper half of an f32 */
    EBB_F16,  /* IEEE 754 binary16 */
    EBB_S32,
    EBB_U8,
    EBB_N_DTYPES,
} ebb_dtype;

EBB_API const char *ebb_dtype_name(ebb_dtype dtype); /* "f32"; static */
EBB_API uint64_t ebb_dtype_bytes(ebb_dtype dtype);

/* n elements between a type and float; src and dst do not overlap. To a type: the nearest value that it has, of two the
 * even one. Above the largest finite value a float type has infinity and a whole number stays at its largest (or
 * least); of a NaN a float type keeps a NaN and a whole number is 0. */
EBB_API void ebb_dtype_to_float(ebb_dtype dtype, const void *src, size_t n, float *dst);
EBB_API void ebb_dtype_from_float(ebb_dtype dtype, const float *src, size_t n, void *dst);

#ifdef __cplusplus
}
#endif

#endif
