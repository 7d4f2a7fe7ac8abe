/* SPDX-License-Identifier: Apache-2.0
 *
 * Endless pictures that a network can learn, for measuring memory and speed and for a first look. Each class has a
 * pattern; each picture is the pattern of its class with noise added. Mean 0 and deviation 1, like normalised pictures.
 *
 * Only the first N_PATTERNS classes occur. With a thousand, a run of a few steps would see no class twice, and its loss
 * could not fall.
 *
 * A pattern is a grid of cells in each channel, each a little above or below the mean. Noise is uniform; its generator
 * is a counter through a 64-bit mixer (splitmix64's finisher), four values a draw, since it must cost nothing beside a
 * training step.
 */
#include "train/data_priv.h"

#define SYNTHETIC_STREAM 0x73796e7468657400u
#define PATTERN_KEY 0x7061747465726e00u
#define N_PATTERNS 10
#define N_CELLS 4   /* of a pattern's side */
#define SIGNAL 0.8f /* deviation of the pattern */
#define NOISE 0.6f  /* and of what is added: 0.64 + 0.36 = 1 */

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

static void write_noise(uint64_t key, size_t n, float *dst) {
    const float scale = NOISE * 1.7320508f / 32768.0f; /* uniform in +-sqrt(3): deviation 1 */
    for (size_t i = 0; i < n; i += 4) {
        uint64_t bits = mix(key + i * 0x9e3779b97f4a7c15u);
        for (size_t k = i; k < i + 4 && k < n; k++, bits >>= 16) {
            dst[k] = ((float)(bits & 0xffff) - 32767.5f) * scale;
        }
    }
}

/* One channel of a label's pattern. */
static void add_pattern(const ebb_source *source, int32_t label, int64_t channel, float *dst) {
    for (int64_t y = 0; y < source->height; y++) {
        const int64_t row = y * N_CELLS / source->height;
        const uint64_t bits = mix(PATTERN_KEY + (uint64_t)((label * source->channels + channel) * N_CELLS + row));
        for (int64_t x = 0; x < source->width; x++, dst++) {
            const int64_t cell = x * N_CELLS / source->width;
            *dst += (bits >> cell & 1) != 0 ? SIGNAL : -SIGNAL;
        }
    }
}

static ebb_status read_synthetic(const ebb_source *source, const ebb_sample *sample, void *scratch, float *dst,
                                 int32_t *label_out) {
    (void)scratch;
    uint32_t words[4];
    ebb__philox(sample->seed, SYNTHETIC_STREAM ^ sample->epoch, sample->image, words);
    const uint64_t key = (uint64_t)words[1] << 32 | words[0];
    const uint64_t n_patterns = ebb_min_u64(N_PATTERNS, (uint64_t)source->classes);
    const int32_t label = (int32_t)(words[2] % n_patterns);
    const size_t plane = (size_t)(source->height * source->width);
    write_noise(key, (size_t)source->channels * plane, dst);
    for (int64_t c = 0; c < source->channels; c++) { add_pattern(source, label, c, dst + (size_t)c * plane); }
    *label_out = label;
    return EBB_OK;
}

const ebb_source_ops ebb__source_synthetic = {
    .scheme = "synthetic",
    .open = open_synthetic,
    .close = close_synthetic,
    .read = read_synthetic,
};
