/* SPDX-License-Identifier: Apache-2.0
 *
 * Batch-norm, our own: it is bound by memory, and what counts is how often a byte comes from there. Blocks of
 * channels are independent, so a few at a time (a group) go through both passes while they lie in the cores'
 * caches:
 *
 *   for each group of blocks          group: about CACHE_BYTES a thread
 *     first pass over its images      sums, in double, into partial[block][image]
 *     (all threads meet)
 *     second pass, backwards          what was read last is still in the cache
 *
 * One pass gives mean and variance: squares are of the distance to the channel's first value, which is within a
 * few deviations of the mean, so nothing cancels.
 *
 * The sums of an image are made by one thread and added in the order of images, so no result depends on the
 * number of threads. The mask of a fused ReLU is one bit an element.
 */
#include "backend/cpu/cpu_priv.h"

#include <math.h>
#include <omp.h>

#define CACHE_BYTES ((int64_t)768 << 10)
#define N_COEF 4

typedef struct call {
    const ebb_cpu_kernel *kernel;
    const ebb_cpu_simd *simd;
    ebb_cpu_rows rows;
    int64_t chunk; /* floats of a block of an image */
    const float *src, *gamma, *beta, *diff_dst;
    const float *given_mean, *given_variance;
    float *dst, *mean, *variance; /* dst: diff_src in backward */
    float *diff_gamma, *diff_beta;
    uint8_t *mask;
    double *partial; /* [n_blocks][n_images][2][width] */
    double *coef;    /* [n_threads][N_COEF][width] */
} call;

typedef struct passes {
    void (*first)(const call *c, int64_t block, int64_t image); /* NULL: nothing to sum */
    void (*prepare)(const call *c, int64_t block, bool owner, double *coef);
    void (*second)(const call *c, int64_t block, int64_t image, const double *coef);
} passes;

static double *partial_of(const call *c, int64_t block, int64_t image) {
    return c->partial + (block * c->rows.n_images + image) * 2 * c->rows.width;
}

static int64_t element_of(const call *c, int64_t block, int64_t image) {
    return (image * c->rows.n_blocks + block) * c->chunk;
}

static uint8_t *mask_of(const call *c, int64_t block, int64_t image) {
    if (c->mask == NULL) { return NULL; }
    return c->mask + (image * c->rows.n_blocks + block) * c->rows.n_rows * ebb__cpu_mask_row_bytes(c->rows.width);
}

/* Channels of a block that are not padding. */
static int64_t n_channels(const call *c, int64_t block) {
    const int64_t left = c->rows.channels - block * c->rows.width;
    return left < c->rows.width ? left : c->rows.width;
}

static double n_values(const call *c) {
    return (double)c->rows.n_images * (double)c->rows.n_rows;
}

/* ---- the two passes ---------------------------------------------------------------------------- */

static int64_t group_blocks(const call *c, int n_threads) {
    const int64_t block_bytes = c->chunk * c->rows.n_images * (int64_t)sizeof(float);
    const int64_t n = CACHE_BYTES / block_bytes;
    return (n > 1 ? n : 1) * n_threads;
}

static void run_group(const call *c, const passes *p, int64_t first_block, int64_t n_blocks, int thread,
                      int n_threads) {
    const int64_t n_tasks = n_blocks * c->rows.n_images;
    const int64_t begin = n_tasks * thread / n_threads, end = n_tasks * (thread + 1) / n_threads;
    double *coef = c->coef + (int64_t)thread * N_COEF * c->rows.width;
    int64_t prepared = -1;
    if (p->first != NULL) {
        for (int64_t t = begin; t < end; t++) { p->first(c, first_block + t / c->rows.n_images, t % c->rows.n_images); }
#pragma omp barrier
    }
    for (int64_t t = end - 1; t >= begin; t--) {
        const int64_t block = first_block + t / c->rows.n_images, image = t % c->rows.n_images;
        if (block != prepared || image == 0) { p->prepare(c, block, image == 0, coef); }
        prepared = block;
        p->second(c, block, image, coef);
    }
}

static void run_passes(const call *c, const passes *p) {
#pragma omp parallel
    {
        const int n_threads = omp_get_num_threads(), thread = omp_get_thread_num();
        const int64_t group = group_blocks(c, n_threads);
        for (int64_t b = 0; b < c->rows.n_blocks; b += group) {
            const int64_t left = c->rows.n_blocks - b;
            run_group(c, p, b, left < group ? left : group, thread, n_threads);
        }
    }
}

static void add_partials(const call *c, int64_t block, int64_t lane, double *a_out, double *b_out) {
    double a = 0.0, b = 0.0;
    for (int64_t n = 0; n < c->rows.n_images; n++) {
        const double *partial = partial_of(c, block, n);
        a += partial[lane];
        b += partial[c->rows.width + lane];
    }
    *a_out = a;
    *b_out = b;
}

/* ---- forward ----------------------------------------------------------------------------------- */

static const float *shift_of(const call *c, int64_t block) {
    return c->src + element_of(c, block, 0);
}

static void sum_values(const call *c, int64_t block, int64_t image) {
    double *partial = partial_of(c, block, image);
    memset(partial, 0, (size_t)(2 * c->rows.width) * sizeof *partial);
    c->simd->statistics(c->src + element_of(c, block, image), c->rows.n_rows, c->rows.width, shift_of(c, block),
                        partial, partial + c->rows.width);
}

static void put_coef(const call *c, int64_t lane, int64_t channel, float mean, float variance, double *coef) {
    const int64_t width = c->rows.width;
    const double inverse = 1.0 / sqrt((double)variance + (double)c->kernel->attr.epsilon);
    coef[lane] = (double)mean;
    coef[width + lane] = (double)c->gamma[channel] * inverse;
    coef[2 * width + lane] = (double)c->beta[channel];
}

static void prepare_forward(const call *c, int64_t block, bool owner, double *coef) {
    const double n = n_values(c);
    memset(coef, 0, (size_t)(N_COEF * c->rows.width) * sizeof *coef);
    for (int64_t i = 0; i < n_channels(c, block); i++) {
        const int64_t channel = block * c->rows.width + i;
        double sum = 0.0, squares = 0.0;
        add_partials(c, block, i, &sum, &squares);
        const double distance = sum / n, variance = squares / n - distance * distance;
        const float mean = (float)((double)shift_of(c, block)[i] + distance);
        const float clean = variance > 0.0 ? (float)variance : 0.0f;
        put_coef(c, i, channel, mean, clean, coef);
        if (owner) {
            c->mean[channel] = mean;
            c->variance[channel] = clean;
        }
    }
}

static void prepare_infer(const call *c, int64_t block, bool owner, double *coef) {
    (void)owner;
    memset(coef, 0, (size_t)(N_COEF * c->rows.width) * sizeof *coef);
    for (int64_t i = 0; i < n_channels(c, block); i++) {
        const int64_t channel = block * c->rows.width + i;
        put_coef(c, i, channel, c->given_mean[channel], c->given_variance[channel], coef);
    }
}

static void normalize(const call *c, int64_t block, int64_t image, const double *coef) {
    const int64_t at = element_of(c, block, image);
    c->simd->normalize(c->src + at, c->rows.n_rows, c->rows.width, coef, c->kernel->attr.relu != 0,
                       mask_of(c, block, image), c->dst + at);
}

static call begin_call(const ebb_cpu_kernel *kernel, const ebb_bound *bound) {
    call c = {.kernel = kernel, .simd = ebb__cpu_of(kernel)->simd, .rows = kernel->rows};
    c.chunk = kernel->rows.n_rows * kernel->rows.width;
    c.partial = bound->scratch;
    c.coef = c.partial + kernel->rows.n_blocks * kernel->rows.n_images * 2 * kernel->rows.width;
    return c;
}

static ebb_status run_forward(const ebb_cpu_kernel *kernel, const ebb_bound *bound) {
    static const passes p = {sum_values, prepare_forward, normalize};
    call c = begin_call(kernel, bound);
    c.src = bound->at[0];
    c.gamma = bound->at[1];
    c.beta = bound->at[2];
    c.dst = bound->at[3];
    c.mean = bound->at[4];
    c.variance = bound->at[5];
    c.mask = kernel->n_out > 3 ? bound->at[6] : NULL;
    run_passes(&c, &p);
    return EBB_OK;
}

static ebb_status run_infer(const ebb_cpu_kernel *kernel, const ebb_bound *bound) {
    static const passes p = {NULL, prepare_infer, normalize};
    call c = begin_call(kernel, bound);
    c.src = bound->at[0];
    c.gamma = bound->at[1];
    c.beta = bound->at[2];
    c.given_mean = bound->at[3];
    c.given_variance = bound->at[4];
    c.dst = bound->at[5];
    run_passes(&c, &p);
    return EBB_OK;
}

/* ---- backward ---------------------------------------------------------------------------------- */

static void load_mean(const call *c, int64_t block, float *mean) {
    for (int64_t i = 0; i < c->rows.width; i++) {
        mean[i] = i < n_channels(c, block) ? c->given_mean[block * c->rows.width + i] : 0.0f;
    }
}

static void sum_gradients(const call *c, int64_t block, int64_t image) {
    const int64_t at = element_of(c, block, image);
    float *mean = (float *)(c->coef + (int64_t)omp_get_thread_num() * N_COEF * c->rows.width);
    double *partial = partial_of(c, block, image);
    load_mean(c, block, mean);
    memset(partial, 0, (size_t)(2 * c->rows.width) * sizeof *partial);
    c->simd->gradient_sums(c->src + at, c->diff_dst + at, mask_of(c, block, image), c->rows.n_rows, c->rows.width, mean,
                           partial, partial + c->rows.width);
}

static void prepare_backward(const call *c, int64_t block, bool owner, double *coef) {
    const int64_t width = c->rows.width;
    const double n = n_values(c);
    memset(coef, 0, (size_t)(N_COEF * width) * sizeof *coef);
    for (int64_t i = 0; i < n_channels(c, block); i++) {
        const int64_t channel = block * width + i;
        double sum = 0.0, dot = 0.0;
        add_partials(c, block, i, &sum, &dot);
        const double inverse = 1.0 / sqrt((double)c->given_variance[channel] + (double)c->kernel->attr.epsilon);
        const double scale = (double)c->gamma[channel] * inverse;
        coef[i] = (double)c->given_mean[channel];
        coef[width + i] = scale;
        coef[2 * width + i] = scale * inverse * inverse * dot / n;
        coef[3 * width + i] = scale * sum / n;
        if (owner) {
            c->diff_gamma[channel] = (float)(dot * inverse);
            c->diff_beta[channel] = (float)sum;
        }
    }
}

static void differentiate(const call *c, int64_t block, int64_t image, const double *coef) {
    const int64_t at = element_of(c, block, image);
    c->simd->gradient(c->src + at, c->diff_dst + at, mask_of(c, block, image), c->rows.n_rows, c->rows.width, coef,
                      c->dst + at);
}

static ebb_status run_backward(const ebb_cpu_kernel *kernel, const ebb_bound *bound) {
    static const passes p = {sum_gradients, prepare_backward, differentiate};
    call c = begin_call(kernel, bound);
    void **out = bound->at + kernel->n_in;
    c.src = bound->at[0];
    c.diff_dst = bound->at[1];
    c.given_mean = bound->at[2];
    c.given_variance = bound->at[3];
    c.gamma = bound->at[4];
    c.mask = kernel->n_in > 5 ? bound->at[5] : NULL;
    c.dst = out[0];
    c.diff_gamma = out[1];
    c.diff_beta = out[2];
    run_passes(&c, &p);
    return EBB_OK;
}

/* ---- making them ------------------------------------------------------------------------------- */

/* Like src: itself and what has its shape; the mask; all else one value a channel. */
static ebb_status set_layouts(ebb_cpu_device *device, const ebb_kernel_desc *desc, ebb_cpu_kernel *kernel) {
    ebb_layout image = EBB_LAYOUT_ANY, mask = EBB_LAYOUT_ANY;
    EBB_TRY(ebb__cpu_rows_layout(device, &desc->operand[0], &image));
    const ebb_cpu_rows rows = ebb__cpu_layout(device, image)->rows;
    const uint64_t n_mask_rows = (uint64_t)(rows.n_images * rows.n_blocks * rows.n_rows);
    EBB_TRY(ebb__cpu_intern_bytes(device, n_mask_rows * (uint64_t)ebb__cpu_mask_row_bytes(rows.width), &mask));
    kernel->rows = rows;
    for (uint32_t i = 0; i < ebb__kernel_n_operands(desc); i++) {
        const ebb_operand *o = &desc->operand[i];
        bool like_src = i == 0 || i == desc->n_in || (desc->kind == EBB_OP_BATCH_NORM_BWD && i == 1);
        if (o->opaque || like_src) {
            kernel->layout[i] = o->opaque ? mask : image;
        } else {
            EBB_TRY(ebb__cpu_layout_plain(&device->host.base, o->dtype, &o->shape, &kernel->layout[i]));
        }
    }
    const uint64_t n_partials = (uint64_t)(rows.n_blocks * rows.n_images * 2 * rows.width);
    const uint64_t n_coef = (uint64_t)device->n_threads * N_COEF * (uint64_t)rows.width;
    kernel->base.scratch_bytes = (n_partials + n_coef) * sizeof(double);
    return EBB_OK;
}

ebb_status ebb__cpu_make_batch_norm(ebb_cpu_device *device, const ebb_kernel_desc *desc, ebb_cpu_kernel *kernel) {
    kernel->run = run_forward;
    return set_layouts(device, desc, kernel);
}

ebb_status ebb__cpu_make_batch_norm_infer(ebb_cpu_device *device, const ebb_kernel_desc *desc, ebb_cpu_kernel *kernel) {
    kernel->run = run_infer;
    kernel->base.inplace = 1u << 0;
    return set_layouts(device, desc, kernel);
}

ebb_status ebb__cpu_make_batch_norm_bwd(ebb_cpu_device *device, const ebb_kernel_desc *desc, ebb_cpu_kernel *kernel) {
    kernel->run = run_backward;
    kernel->base.inplace = 1u << 1;
    return set_layouts(device, desc, kernel);
}

/* ---- running statistics ------------------------------------------------------------------------ */

static ebb_status run_stats(const ebb_cpu_kernel *kernel, const ebb_bound *bound) {
    const float *mean = bound->at[0], *variance = bound->at[1];
    float *running_mean = bound->at[2], *running_var = bound->at[3];
    const float momentum = kernel->attr.momentum;
    const float unbias = kernel->attr.size > 1 ? (float)kernel->attr.size / (float)(kernel->attr.size - 1) : 1.0f;
    for (uint64_t i = 0; i < kernel->n_elements; i++) {
        running_mean[i] += momentum * (mean[i] - running_mean[i]);
        running_var[i] += momentum * (variance[i] * unbias - running_var[i]);
    }
    return EBB_OK;
}

ebb_status ebb__cpu_make_batch_norm_stats(ebb_cpu_device *device, const ebb_kernel_desc *desc, ebb_cpu_kernel *kernel) {
    kernel->run = run_stats;
    kernel->n_elements = (uint64_t)ebb__shape_elements(&desc->operand[0].shape);
    return ebb__kernel_all_plain(&device->host.base, desc, kernel->layout);
}
