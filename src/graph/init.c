/* SPDX-License-Identifier: Apache-2.0
 *
 * How persistent values begin. Each element is a function of the seed, the value's name and the element's
 * index alone, so that the same weights come out whatever else the network holds, in whatever order it was
 * built, and whether for training or inference.
 *
 * Normal numbers are Box and Muller's: a radius from one uniform number, an angle from another, two results. The
 * logarithm, sine and cosine are series written out here and not the C library's, for two reasons: libraries choose
 * theirs by the processor, and then the same seed would begin with other bits on another machine; and loops without
 * calls run several elements at a time, which matters for the 138 million of a VGG. Their error is below that of
 * one float.
 */
#include "graph/graph_priv.h"

#include <math.h>

#define PI 3.14159265358979f
#define LN_2 0.693147180559945f
#define SQRT_HALF_BITS 0x3f3504f3 /* of sqrt(1/2), as a float */
#define MANTISSA_BITS 23

#define N_PAIRS 128           /* of uniform numbers, taken at a time */
#define N_BLOCK (2 * N_PAIRS) /* elements */

/* -2 ln(u) for u in (0, 1]. u is m * 2^e with m around 1, and ln(m) = 2 artanh((m - 1) / (m + 1)). */
static float minus_two_log(float u) {
    int32_t bits;
    memcpy(&bits, &u, sizeof bits);
    int32_t e = (bits - SQRT_HALF_BITS) >> MANTISSA_BITS; /* rounds down: m in [sqrt(1/2), sqrt(2)) */
    bits -= e * (1 << MANTISSA_BITS);
    float m;
    memcpy(&m, &bits, sizeof m);
    float s = (m - 1.0f) / (m + 1.0f), s2 = s * s;
    float series = 2.0f * s * (1.0f + s2 * (1.0f / 3 + s2 * (1.0f / 5 + s2 * (1.0f / 7 + s2 * (1.0f / 9)))));
    return -2.0f * ((float)e * LN_2 + series);
}

/* cos and sin of 2 pi v for v in [0, 1): of the rest to the nearest quarter turn, then turned. */
static void turn(float v, float *cos_out, float *sin_out) {
    int32_t quarter = (int32_t)(4.0f * v + 0.5f);
    float x = 2.0f * PI * (v - 0.25f * (float)quarter), x2 = x * x;
    float c = 1.0f - x2 * (1.0f / 2 - x2 * (1.0f / 24 - x2 * (1.0f / 720 - x2 * (1.0f / 40320))));
    float s = x * (1.0f - x2 * (1.0f / 6 - x2 * (1.0f / 120 - x2 * (1.0f / 5040 - x2 * (1.0f / 362880)))));
    float first = (quarter & 1) != 0 ? s : c, second = (quarter & 1) != 0 ? c : s;
    *cos_out = ((quarter + 1) & 2) != 0 ? -first : first;
    *sin_out = (quarter & 2) != 0 ? -second : second;
}

/* x[2i], x[2i + 1] from uniform to standard normal. */
static void make_normal(float x[N_BLOCK]) {
    float radius[N_PAIRS];
    for (size_t i = 0; i < N_PAIRS; i++) { radius[i] = minus_two_log(1.0f - x[2 * i]); }
    for (size_t i = 0; i < N_PAIRS; i++) { radius[i] = sqrtf(radius[i]); } /* exact everywhere */
    for (size_t i = 0; i < N_PAIRS; i++) {
        float c, s;
        turn(x[2 * i + 1], &c, &s);
        x[2 * i] = radius[i] * c;
        x[2 * i + 1] = radius[i] * s;
    }
}

static void fill_random(const ebb_value_info *info, uint64_t seed, uint64_t n, float *dst) {
    uint64_t stream = ebb__hash(EBB_HASH_INIT, info->name, strlen(info->name));
    for (uint64_t first = 0; first < n; first += N_BLOCK) {
        uint32_t words[N_BLOCK];
        float x[N_BLOCK];
        for (size_t i = 0; i < N_BLOCK; i += 4) { ebb__philox(seed, stream, (first + i) / 4, &words[i]); }
        for (size_t i = 0; i < N_BLOCK; i++) { x[i] = ebb__unit_float(words[i]); }
        if (info->init == EBB_INIT_NORMAL) {
            make_normal(x);
        } else {
            for (size_t i = 0; i < N_BLOCK; i++) { x[i] = 2.0f * x[i] - 1.0f; }
        }
        size_t n_here = (size_t)ebb_min_u64(N_BLOCK, n - first);
        for (size_t i = 0; i < n_here; i++) { dst[first + i] = info->init_scale * x[i]; }
    }
}

void ebb__graph_init_value(const ebb_graph *graph, ebb_value value, uint64_t seed, float *dst) {
    EBB_ASSERT(value < graph->values.n);
    const ebb_value_info *info = &graph->values.data[value];
    EBB_ASSERT(ebb__value_is_persistent(info->kind) && info->dtype == EBB_F32);
    uint64_t n = (uint64_t)ebb__shape_elements(&info->shape);
    switch (info->init) {
    case EBB_INIT_ZERO:
    case EBB_INIT_ONE: {
        float x = info->init == EBB_INIT_ONE ? 1.0f : 0.0f;
        for (uint64_t i = 0; i < n; i++) { dst[i] = x; }
        break;
    }
    case EBB_INIT_NORMAL:
    case EBB_INIT_UNIFORM: fill_random(info, seed, n, dst); break;
    }
}
