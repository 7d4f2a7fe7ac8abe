/* SPDX-License-Identifier: Apache-2.0
 *
 * The table of element types. A new type is a line of it and a pair of functions here; backends say for themselves
 * which types their kernels take.
 */
#include "base/base.h"
#include "ebb/dtype.h"

#include <math.h>

static float float_of_bits(uint32_t bits) {
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

static uint32_t bits_of_float(float value) {
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

/* ---- two bytes --------------------------------------------------------------------------------- */

static float float_of_bf16(uint16_t bits) {
    return float_of_bits((uint32_t)bits << 16);
}

/* The bits that are cut off are rounded: half a unit more, less a bit where the result would be odd. */
static uint16_t bf16_of_float(float value) {
    const uint32_t bits = bits_of_float(value);
    if (isnan(value)) { return (uint16_t)(bits >> 16 | 0x40u); } /* the quiet bit: no NaN becomes infinity */
    return (uint16_t)((bits + 0x7fffu + (bits >> 16 & 1u)) >> 16);
}

static float float_of_f16(uint16_t bits) {
    const uint32_t sign = (bits & 0x8000u) << 16, exponent = (bits >> 10) & 31u, fraction = bits & 0x3ffu;
    if (exponent == 31) { return float_of_bits(sign | 0x7f800000u | fraction << 13); }
    if (exponent != 0) { return float_of_bits(sign | (exponent + 112) << 23 | fraction << 13); }
    const float magnitude = (float)fraction * 0x1p-24f;
    return sign != 0 ? -magnitude : magnitude;
}

static uint16_t f16_of_float(float value) {
    const uint32_t bits = bits_of_float(value), sign = bits >> 16 & 0x8000u, magnitude = bits & 0x7fffffffu;
    if (isnan(value)) { return (uint16_t)(sign | 0x7e00u | (bits >> 13 & 0x1ffu)); }
    if (magnitude >= 0x47800000u) { return (uint16_t)(sign | 0x7c00u); } /* 2^16 and more */
    if (magnitude < 0x38800000u) {                                       /* below 2^-14: units of 2^-24 */
        return (uint16_t)(sign | (uint32_t)nearbyintf(fabsf(value) * 0x1p24f));
    }
    const uint32_t rounded = magnitude + 0xfffu + (magnitude >> 13 & 1u); /* may carry into the exponent, up to inf */
    return (uint16_t)(sign | ((rounded >> 13) - (112u << 10)));
}

/* ---- whole numbers ----------------------------------------------------------------------------- */

static int32_t s32_of_float(float value) {
    if (isnan(value)) { return 0; }
    if (value >= 0x1p31f) { return INT32_MAX; }
    return value <= -0x1p31f ? INT32_MIN : (int32_t)nearbyintf(value);
}

static uint8_t u8_of_float(float value) {
    if (!(value > 0)) { return 0; }
    return value >= UINT8_MAX ? UINT8_MAX : (uint8_t)nearbyintf(value);
}

/* ---- the table --------------------------------------------------------------------------------- */

/* One function each way: a loop over elements of a type. */
#define CONVERSIONS(name, type, to_float, from_float)                                                                  \
    static void load_##name(const void *src, size_t n, float *dst) {                                                   \
        const type *from = src;                                                                                        \
        for (size_t i = 0; i < n; i++) { dst[i] = to_float(from[i]); }                                                 \
    }                                                                                                                  \
    static void store_##name(const float *src, size_t n, void *dst) {                                                  \
        type *to = dst;                                                                                                \
        for (size_t i = 0; i < n; i++) { to[i] = from_float(src[i]); }                                                 \
    }

CONVERSIONS(f32, float, , )
CONVERSIONS(bf16, uint16_t, float_of_bf16, bf16_of_float)
CONVERSIONS(f16, uint16_t, float_of_f16, f16_of_float)
CONVERSIONS(s32, int32_t, (float), s32_of_float)
CONVERSIONS(u8, uint8_t, (float), u8_of_float)

static const struct {
    const char *name;
    uint64_t bytes;
    void (*load)(const void *src, size_t n, float *dst);
    void (*store)(const float *src, size_t n, void *dst);
} types[EBB_N_DTYPES] = {
    [EBB_F32] = {"f32", 4, load_f32, store_f32}, [EBB_BF16] = {"bf16", 2, load_bf16, store_bf16},
    [EBB_F16] = {"f16", 2, load_f16, store_f16}, [EBB_S32] = {"s32", 4, load_s32, store_s32},
    [EBB_U8] = {"u8", 1, load_u8, store_u8},
};

static bool is_type(ebb_dtype dtype) {
    return (unsigned)dtype < EBB_N_DTYPES;
}

const char *ebb_dtype_name(ebb_dtype dtype) {
    return is_type(dtype) ? types[dtype].name : NULL;
}

uint64_t ebb_dtype_bytes(ebb_dtype dtype) {
    return is_type(dtype) ? types[dtype].bytes : 0;
}

void ebb_dtype_to_float(ebb_dtype dtype, const void *src, size_t n, float *dst) {
    if (is_type(dtype)) { types[dtype].load(src, n, dst); }
}

void ebb_dtype_from_float(ebb_dtype dtype, const float *src, size_t n, void *dst) {
    if (is_type(dtype)) { types[dtype].store(src, n, dst); }
}
