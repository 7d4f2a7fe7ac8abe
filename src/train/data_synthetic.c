/* SPDX-License-Identifier: Apache-2.0
 *
 * Random images without end, for memory and speed: of mean 0 and deviation 1 like normalised pictures, uniform.
 * The generator is a counter through a 64-bit mixer (splitmix64's finisher), four values a draw: it must cost
 * nothing beside a training step, and nobody looks at these pictures.
 */
#include "train/data_priv.h"

#define SYNTHETIC_STREAM 0x73796e7468657400u

typedef struct synthetic {
    ebb_source base;
} synthetic;

static ebb_status open_synthetic(const char *path, const ebb_data_options *options, ebb_source **source_out) {
    (void)path;
    synthetic *s = ebb__calloc(options->mem, 1, sizeof *s);
    if (s == NULL) { return EBB_E_NO_MEMORY; }
    s->base = (ebb_source){
        .ops = &ebb__source_synthetic,
        .mem = ebb__mem_or_default(options->mem),
        .n_images = options->split == EBB_SPLIT_TRAIN ? UINT64_MAX : 0,
        .channels = options->channels > 0 ? options->channels : 3,
        .height = options->height > 0 ? options->height : 224,
        .width = options->width > 0 ? options->width : 224,
        .classes = options->classes > 0 ? options->classes : 1000,
        .ordered = true,
    };
    *source_out = &s->base;
    return EBB_OK;
}

static void close_synthetic(ebb_source *source) {
    if (source != NULL) { ebb__free(source->mem, source); }
}

static uint64_t mix(uint64_t x) {
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
    return x ^ (x >> 31);
}

static ebb_status read_synthetic(const ebb_source *source, const ebb_sample *sample, void *scratch, float *dst,
                                 int32_t *label_out) {
    (void)scratch;
    uint32_t words[4];
    ebb__philox(sample->seed, SYNTHETIC_STREAM ^ sample->epoch, sample->image, words);
    const uint64_t key = (uint64_t)words[1] << 32 | words[0];
    const float scale = 1.7320508f / 32768.0f; /* deviation 1: uniform in +-sqrt(3) */
    const size_t n = (size_t)(source->channels * source->height * source->width);
    for (size_t i = 0; i < n; i += 4) {
        uint64_t bits = mix(key + i * 0x9e3779b97f4a7c15u);
        for (size_t k = i; k < i + 4 && k < n; k++, bits >>= 16) {
            dst[k] = ((float)(bits & 0xffff) - 32767.5f) * scale;
        }
    }
    *label_out = (int32_t)(words[2] % (uint64_t)source->classes);
    return EBB_OK;
}

const ebb_source_ops ebb__source_synthetic = {
    .scheme = "synthetic",
    .open = open_synthetic,
    .close = close_synthetic,
    .read = read_synthetic,
};
