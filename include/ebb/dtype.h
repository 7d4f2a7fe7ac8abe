/* SPDX-License-Identifier: Apache-2.0
 *
 * Types of elements: their names, their sizes, and conversion from and to float.
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

/* "f32", static, and the bytes of an element. For a number that is no type they return NULL and 0. */
EBB_API const char *ebb_dtype_name(ebb_dtype dtype);
EBB_API uint64_t ebb_dtype_bytes(ebb_dtype dtype);

/* Convert n elements between a type and float; src and dst must not overlap. From float, the nearest value is taken; if
 * two are equally near, the even one. Values above the largest finite one become infinity in a float type and the
 * largest (or least) value in an integer type. NaN stays NaN in a float type and becomes 0 in an integer type. A number
 * that is no type converts nothing. */
EBB_API void ebb_dtype_to_float(ebb_dtype dtype, const void *src, size_t n, float *dst);
EBB_API void ebb_dtype_from_float(ebb_dtype dtype, const float *src, size_t n, void *dst);

#ifdef __cplusplus
}
#endif

#endif
