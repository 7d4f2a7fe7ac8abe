/* SPDX-License-Identifier: Apache-2.0
 *
 * The inner loops, to be included by cpu_simd_<isa>.c, which has set the instruction set for what follows and
 * defined
 *
 *   LANES     channels in a block, floats in a vector
 *   TABLE     name of the table; TABLE_NAME: for people
 *   pack      the bits of a comparison's lanes
 *
 * Rows as wide as a vector, which nearly all are, go through vector types; other widths through plain loops, in
 * double (few values a channel cancel badly in the gradient, and few there are).
 * Sums over rows are kept in floats for SUM_ROWS rows, then in doubles: the error stays that of a few hundred
 * additions however large the image.
 *
 * No include guard: no one includes it twice.
 */

#define SUM_ROWS 256

typedef float vec __attribute__((vector_size(LANES * 4), aligned(4), may_alias));
typedef int32_t ivec __attribute__((vector_size(LANES * 4), aligned(4), may_alias));

#define INLINE static inline __attribute__((always_inline))

INLINE vec load(const float *p) {
    return *(const vec *)p;
}

INLINE vec narrow(const double *p) {
    vec v = {0};
    for (int i = 0; i < LANES; i++) { v[i] = (float)p[i]; }
    return v;
}

INLINE void store(float *p, vec v) {
    *(vec *)p = v;
}

INLINE vec keep(vec v, ivec lanes) {
    return (vec)((ivec)v & lanes);
}

/* Lanes that are above zero. */
INLINE ivec positive(vec v) {
    return v > (vec){0};
}

INLINE ivec unpack(const uint8_t *mask, int64_t row) {
    ivec bits = {0};
    const ivec one = bits + 1;
#if LANES == 16
    const ivec lane = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
    const int32_t word = mask[2 * row] | mask[2 * row + 1] << 8;
#else
    const ivec lane = {0, 1, 2, 3, 4, 5, 6, 7};
    const int32_t word = mask[row];
#endif
    bits = (bits + word) & (one << lane);
    return bits != 0;
}

INLINE void put_mask(uint8_t *mask, int64_t row, ivec lanes) {
    const unsigned bits = pack(lanes);
#if LANES == 16
    mask[2 * row] = (uint8_t)bits;
    mask[2 * row + 1] = (uint8_t)(bits >> 8);
#else
    mask[row] = (uint8_t)bits;
#endif
}

static inline bool mask_bit(const uint8_t *mask, int64_t i) {
    return mask == NULL || (mask[i / 8] >> (i % 8) & 1u) != 0;
}

INLINE void flush(vec v, double *sum) {
    for (int i = 0; i < LANES; i++) { sum[i] += (double)v[i]; }
}

/* ---- batch-norm, forward ----------------------------------------------------------------------- */

static void statistics_wide(const float *x, int64_t n_rows, int64_t width, const float *shift, double *sum,
                            double *squares) {
    for (int64_t r = 0; r < n_rows; r++, x += width) {
#pragma omp simd
        for (int64_t i = 0; i < width; i++) {
            const double d = (double)x[i] - (double)shift[i];
            sum[i] += d;
            squares[i] += d * d;
        }
    }
}

static void statistics(const float *x, int64_t n_rows, int64_t width, const float *shift, double *sum,
                       double *squares) {
    if (width != LANES) {
        statistics_wide(x, n_rows, width, shift, sum, squares);
        return;
    }
    const vec k = load(shift);
    for (int64_t begin = 0; begin < n_rows; begin += SUM_ROWS) {
        const int64_t end = begin + SUM_ROWS < n_rows ? begin + SUM_ROWS : n_rows;
        vec s0 = {0}, s1 = {0}, q0 = {0}, q1 = {0}; /* two of each: an addition takes longer than a load */
        int64_t r = begin;
        for (; r + 1 < end; r += 2) {
            const vec d0 = load(x + r * LANES) - k, d1 = load(x + (r + 1) * LANES) - k;
            s0 += d0;
            s1 += d1;
            q0 += d0 * d0;
            q1 += d1 * d1;
        }
        if (r < end) {
            const vec d = load(x + r * LANES) - k;
            s0 += d;
            q0 += d * d;
        }
        flush(s0 + s1, sum);
        flush(q0 + q1, squares);
    }
}

static void normalize_wide(const float *x, int64_t n_rows, int64_t width, const double *coef, bool relu, uint8_t *mask,
                           float *y) {
    const double *mean = coef, *scale = coef + width, *beta = coef + 2 * width;
    const int64_t mask_bytes = ebb__cpu_mask_row_bytes(width);
    for (int64_t r = 0; r < n_rows; r++, x += width, y += width) {
#pragma omp simd
        for (int64_t i = 0; i < width; i++) {
            const float v = (float)(((double)x[i] - mean[i]) * scale[i] + beta[i]);
            y[i] = relu && !(v > 0.0f) ? 0.0f : v;
        }
        if (mask == NULL) { continue; }
        uint8_t *row = mask + r * mask_bytes;
        memset(row, 0, (size_t)mask_bytes);
        for (int64_t i = 0; i < width; i++) { row[i / 8] |= (uint8_t)((y[i] > 0.0f) << (i % 8)); }
    }
}

INLINE void normalize_rows(const float *x, int64_t n_rows, const double *coef, bool relu, uint8_t *mask, float *y) {
    const vec mean = narrow(coef), scale = narrow(coef + LANES), beta = narrow(coef + 2 * LANES);
    for (int64_t r = 0; r < n_rows; r++) {
        vec v = (load(x + r * LANES) - mean) * scale + beta;
        if (relu) {
            const ivec on = positive(v);
            v = keep(v, on);
            if (mask != NULL) { put_mask(mask, r, on); }
        }
        store(y + r * LANES, v);
    }
}

static void normalize(const float *x, int64_t n_rows, int64_t width, const double *coef, bool relu, uint8_t *mask,
                      float *y) {
    if (width != LANES) {
        normalize_wide(x, n_rows, width, coef, relu, mask, y);
    } else if (!relu) {
        normalize_rows(x, n_rows, coef, false, NULL, y);
    } else if (mask == NULL) {
        normalize_rows(x, n_rows, coef, true, NULL, y);
    } else {
        normalize_rows(x, n_rows, coef, true, mask, y);
    }
}

/* ---- batch-norm, backward ---------------------------------------------------------------------- */

static void gradient_sums_wide(const float *x, const float *dy, const uint8_t *mask, int64_t n_rows, int64_t width,
                               const float *mean, double *sum, double *dot) {
    const int64_t mask_bytes = ebb__cpu_mask_row_bytes(width);
    for (int64_t r = 0; r < n_rows; r++, x += width, dy += width) {
        const uint8_t *row = mask == NULL ? NULL : mask + r * mask_bytes;
        for (int64_t i = 0; i < width; i++) {
            const double d = mask_bit(row, i) ? (double)dy[i] : 0.0;
            sum[i] += d;
            dot[i] += d * ((double)x[i] - (double)mean[i]);
        }
    }
}

INLINE void gradient_sums_rows(const float *x, const float *dy, const uint8_t *mask, int64_t n_rows, const float *mean,
                               double *sum, double *dot) {
    const vec m = load(mean);
    for (int64_t begin = 0; begin < n_rows; begin += SUM_ROWS) {
        const int64_t end = begin + SUM_ROWS < n_rows ? begin + SUM_ROWS : n_rows;
        vec s = {0}, p = {0};
        for (int64_t r = begin; r < end; r++) {
            vec d = load(dy + r * LANES);
            if (mask != NULL) { d = keep(d, unpack(mask, r)); }
            s += d;
            p += d * (load(x + r * LANES) - m);
        }
        flush(s, sum);
        flush(p, dot);
    }
}

static void gradient_sums(const float *x, const float *dy, const uint8_t *mask, int64_t n_rows, int64_t width,
                          const float *mean, double *sum, double *dot) {
    if (width != LANES) {
        gradient_sums_wide(x, dy, mask, n_rows, width, mean, sum, dot);
    } else if (mask == NULL) {
        gradient_sums_rows(x, dy, NULL, n_rows, mean, sum, dot);
    } else {
        gradient_sums_rows(x, dy, mask, n_rows, mean, sum, dot);
    }
}

static void gradient_wide(const float *x, const float *dy, const uint8_t *mask, int64_t n_rows, int64_t width,
                          const double *coef, float *dx) {
    const double *mean = coef, *scale = coef + width, *slope = coef + 2 * width, *offset = coef + 3 * width;
    const int64_t mask_bytes = ebb__cpu_mask_row_bytes(width);
    for (int64_t r = 0; r < n_rows; r++, x += width, dy += width, dx += width) {
        const uint8_t *row = mask == NULL ? NULL : mask + r * mask_bytes;
        for (int64_t i = 0; i < width; i++) {
            const double d = mask_bit(row, i) ? (double)dy[i] : 0.0;
            dx[i] = (float)(scale[i] * d - ((double)x[i] - mean[i]) * slope[i] - offset[i]);
        }
    }
}

INLINE void gradient_rows(const float *x, const float *dy, const uint8_t *mask, int64_t n_rows, const double *coef,
                          float *dx) {
    const vec mean = narrow(coef), scale = narrow(coef + LANES);
    const vec slope = narrow(coef + 2 * LANES), offset = narrow(coef + 3 * LANES);
    for (int64_t r = 0; r < n_rows; r++) {
        vec d = load(dy + r * LANES);
        if (mask != NULL) { d = keep(d, unpack(mask, r)); }
        store(dx + r * LANES, scale * d - (load(x + r * LANES) - mean) * slope - offset);
    }
}

static void gradient(const float *x, const float *dy, const uint8_t *mask, int64_t n_rows, int64_t width,
                     const double *coef, float *dx) {
    if (width != LANES) {
        gradient_wide(x, dy, mask, n_rows, width, coef, dx);
    } else if (mask == NULL) {
        gradient_rows(x, dy, NULL, n_rows, coef, dx);
    } else {
        gradient_rows(x, dy, mask, n_rows, coef, dx);
    }
}

/* ---- flat -------------------------------------------------------------------------------------- */

/* A loop over vectors, then one over what is left: both compute the same expression of their operands. */
#define FLAT(n, vector_statement, scalar_statement)                                                                    \
    int64_t i = 0;                                                                                                     \
    for (; i + LANES <= (n); i += LANES) { vector_statement; }                                                         \
    for (; i < (n); i++) { scalar_statement; }

static void add(const float *a, const float *b, int64_t n, float *dst) {
    FLAT(n, store(dst + i, load(a + i) + load(b + i)), dst[i] = a[i] + b[i])
}

static inline float relu_of(float v) {
    return v > 0.0f ? v : 0.0f;
}

INLINE vec relu_of_vec(vec v) {
    return keep(v, positive(v));
}

static void add_relu(const float *a, const float *b, int64_t n, float *dst) {
    FLAT(n, store(dst + i, relu_of_vec(load(a + i) + load(b + i))), dst[i] = relu_of(a[i] + b[i]))
}

static void relu_fwd(const float *src, int64_t n, float *dst) {
    FLAT(n, store(dst + i, relu_of_vec(load(src + i))), dst[i] = relu_of(src[i]))
}

static void relu_bwd(const float *diff_dst, const float *dst, int64_t n, float *diff_src) {
    FLAT(n, store(diff_src + i, keep(load(diff_dst + i), positive(load(dst + i)))),
         diff_src[i] = dst[i] > 0.0f ? diff_dst[i] : 0.0f)
}

/* ---- updates ----------------------------------------------------------------------------------- */

static void sgd(const ebb_cpu_update *u, const float *g, int64_t n, float *w) {
    const float rate = u->learning_rate, decay = u->weight_decay;
#pragma omp simd
    for (int64_t i = 0; i < n; i++) { w[i] -= rate * (g[i] + decay * w[i]); }
}

static void momentum(const ebb_cpu_update *u, const float *g, int64_t n, float *w, float *v) {
    const float rate = u->learning_rate, decay = u->weight_decay, mu = u->momentum;
#pragma omp simd
    for (int64_t i = 0; i < n; i++) {
        const float moved = mu * v[i] + (g[i] + decay * w[i]);
        v[i] = moved;
        w[i] -= rate * moved;
    }
}

static void nesterov(const ebb_cpu_update *u, const float *g, int64_t n, float *w, float *v) {
    const float rate = u->learning_rate, decay = u->weight_decay, mu = u->momentum;
#pragma omp simd
    for (int64_t i = 0; i < n; i++) {
        const float slope = g[i] + decay * w[i], moved = mu * v[i] + slope;
        v[i] = moved;
        w[i] -= rate * (slope + mu * moved);
    }
}

/* AdamW is the same with shrink below 1 and weight_decay 0. */
static void adam(const ebb_cpu_update *u, const float *g, int64_t n, float *w, float *m, float *v) {
    const ebb_cpu_update c = *u;
#pragma omp simd
    for (int64_t i = 0; i < n; i++) {
        const float shrunk = w[i] * c.shrink, slope = g[i] + c.weight_decay * shrunk;
        const float first = c.beta1 * m[i] + (1.0f - c.beta1) * slope;
        const float second = c.beta2 * v[i] + (1.0f - c.beta2) * slope * slope;
        m[i] = first;
        v[i] = second;
        w[i] = shrunk - c.step * first / (__builtin_sqrtf(second) * c.root_correction + c.epsilon);
    }
}

const ebb_cpu_simd TABLE = {
    .name = TABLE_NAME,
    .statistics = statistics,
    .normalize = normalize,
    .gradient_sums = gradient_sums,
    .gradient = gradient,
    .add = add,
    .add_relu = add_relu,
    .relu = relu_fwd,
    .relu_bwd = relu_bwd,
    .sgd = sgd,
    .momentum = momentum,
    .nesterov = nesterov,
    .adam = adam,
};
