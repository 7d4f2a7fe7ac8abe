/* SPDX-License-Identifier: Apache-2.0
 *
 * How persistent values begin. Each element is a function of the seed, the value's name and the element's
 * index alone, so that the same weights come out whatever else the network holds, in whatever order it was
 * built, and whether for training or inference.
 */
#include "graph/graph_priv.h"

#include <math.h>

#define TWO_PI 6.28318530718f

/* Four elements from one draw. */
static void draw_uniform(const uint32_t words[4], float scale, float out[4]) {
    for (int i = 0; i < 4; i++) { out[i] = scale * (2.0f * ebb__unit_float(words[i]) - 1.0f); }
}

/* Box-Muller, both halves of both pairs. */
static void draw_normal(const uint32_t words[4], float scale, float out[4]) {
    for (int i = 0; i < 4; i += 2) {
        float radius = scale * sqrtf(-2.0f * logf(1.0f - ebb__unit_float(words[i])));
        float angle = TWO_PI * ebb__unit_float(words[i + 1]);
        out[i] = radius * cosf(angle);
        out[i + 1] = radius * sinf(angle);
    }
}

static void fill_random(const ebb_value_info *info, uint64_t seed, uint64_t n, float *dst) {
    uint64_t stream = ebb__hash(EBB_HASH_INIT, info->name, strlen(info->name));
    for (uint64_t i = 0; i < n; i += 4) {
        uint32_t words[4];
        float four[4];
        ebb__philox(seed, stream, i / 4, words);
        if (info->init == EBB_INIT_NORMAL) {
            draw_normal(words, info->init_scale, four);
        } else {
            draw_uniform(words, info->init_scale, four);
        }
        memcpy(&dst[i], four, (size_t)ebb_min_u64(4, n - i) * sizeof *dst);
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
