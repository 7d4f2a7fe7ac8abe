/* SPDX-License-Identifier: Apache-2.0
 *
 * Data by its description: which source, which images make a batch, and the batch that is asked for ahead of
 * its time. A prefetched batch is made by the same job as any other, into a buffer of our own unless the caller lends
 * one.
 */
#include "train/data_priv.h"

#include <inttypes.h>

static const ebb_source_ops *const sources[] = {
    &ebb__source_synthetic, &ebb__source_mnist,  &ebb__source_cifar10, &ebb__source_cifar100,
    &ebb__source_images,    &ebb__source_digits, &ebb__source_tensors,
};

struct ebb_data {
    const ebb_mem *mem;
    ebb_data_options options;
    ebb_source *source;
    ebb_loader *loader;
    ebb_allowance *allowance; /* our own, where no one lends one */
    struct {
        bool running; /* or finished, but not waited for */
        ebb_batch batch;
        float *to_images; /* where it is made */
        int32_t *to_labels;
        float *images; /* our own, of room images */
        int32_t *labels;
        int64_t room;
    } ahead;
};

/* ---- opening ---------------------------------------------------------------------------------- */

/* The source that spec names, and what stands after its colon. NULL: none. */
static const ebb_source_ops *find_source(const char *spec, const char **path_out) {
    for (size_t i = 0; i < sizeof sources / sizeof sources[0]; i++) {
        size_t n = strlen(sources[i]->scheme);
        if (strncmp(spec, sources[i]->scheme, n) != 0) { continue; }
        if (spec[n] == '\0' && sources[i]->path == NULL) {
            *path_out = "";
            return sources[i];
        }
        if (spec[n] == ':' && spec[n + 1] != '\0' && sources[i]->path != NULL) {
            *path_out = spec + n + 1;
            return sources[i];
        }
    }
    return NULL;
}

static ebb_status check_options(const ebb_data_options *options) {
    if (options->size_bytes != sizeof *options) {
        return ebb_fail(EBB_E_ARGUMENT, "ebb_data_options of %zu bytes", options->size_bytes);
    }
    const int64_t limit = (int64_t)1 << 20; /* a side or a count of channels; keeps every product within 64 bits */
    bool fine = options->channels >= 0 && options->channels <= limit && options->height >= 0 &&
                options->height <= limit && options->width >= 0 && options->width <= limit && options->classes >= 0 &&
                options->classes <= INT32_MAX;
    if (!fine) { return ebb_fail(EBB_E_ARGUMENT, "data: channels, height, width or classes out of range"); }
    if (options->n_threads < 0 || options->n_threads > EBB_DATA_MAX_THREADS) {
        return ebb_fail(EBB_E_ARGUMENT, "data: %d threads; 1 to %d are possible", options->n_threads,
                        EBB_DATA_MAX_THREADS);
    }
    return EBB_OK;
}

/* The source's allowance: the lent one or our own. */
static ebb_status set_allowance(ebb_data *data, ebb_allowance *lent) {
    data->source->allowance = lent;
    if (lent != NULL || !data->source->decodes) { return EBB_OK; }
    EBB_TRY(ebb__allowance_create(data->mem, EBB_DATA_ALLOWANCE_BYTES, &data->allowance));
    data->source->allowance = data->allowance;
    return EBB_OK;
}

ebb_status ebb_data_open(const char *spec, const ebb_data_options *options, ebb_data **data_out) {
    EBB_NEED(spec);
    EBB_NEED(data_out);
    return ebb__data_open_within(spec, options, NULL, data_out);
}

ebb_status ebb__data_open_within(const char *spec, const ebb_data_options *options, ebb_allowance *allowance,
                                 ebb_data **data_out) {
    const ebb_data_options defaults = EBB_DATA_OPTIONS_INIT;
    if (options == NULL) { options = &defaults; }
    EBB_TRY(check_options(options));
    const char *path = NULL;
    const ebb_source_ops *ops = find_source(spec, &path);
    if (ops == NULL) {
        static const char *const kinds[] = {"synthetic",  "mnist:DIR",   "cifar10:DIR",  "cifar100:DIR",
                                            "images:DIR", "digits:FILE", "tensors:FILE", NULL};
        char known[EBB_SUGGESTION_BYTES];
        return ebb_fail(EBB_E_ARGUMENT, "data '%s': there is no such kind of data%s", spec,
                        ebb__suggest_or_list(spec, ebb__name_in_list, kinds, known));
    }
    ebb_data *data = ebb__calloc(options->mem, 1, sizeof *data);
    if (data == NULL) { return EBB_E_NO_MEMORY; }
    data->mem = ebb__mem_or_default(options->mem);
    data->options = *options;
    ebb_status status = ops->open(path, options, &data->source);
    if (status == EBB_OK) { status = set_allowance(data, allowance); }
    if (status == EBB_OK) {
        status = ebb__loader_create(data->source, options->n_threads > 0 ? options->n_threads : 1, &data->loader);
    }
    if (status != EBB_OK) {
        ebb_data_close(data);
        return status;
    }
    *data_out = data;
    return EBB_OK;
}

void ebb_data_close(ebb_data *data) {
    if (data == NULL) { return; }
    const ebb_mem *mem = data->mem;
    ebb__loader_destroy(data->loader);
    if (data->source != NULL) { data->source->ops->close(data->source); }
    ebb__allowance_destroy(data->allowance);
    ebb__free(mem, data->ahead.images);
    ebb__free(mem, data->ahead.labels);
    ebb__free(mem, data);
}

static uint64_t image_elements(const ebb_data *data) {
    return (uint64_t)(data->source->channels * data->source->height * data->source->width);
}

ebb_data_info ebb_data_get_info(const ebb_data *data) {
    const ebb_source *source = data->source;
    uint64_t ahead = (uint64_t)data->ahead.room * (image_elements(data) * sizeof(float) + sizeof(int32_t));
    const uint64_t own = data->allowance != NULL ? ebb__allowance_bytes(data->allowance) : 0;
    return (ebb_data_info){
        .n_images = source->n_images,
        .channels = source->channels,
        .height = source->height,
        .width = source->width,
        .classes = source->classes,
        .host_bytes = source->held_bytes + ebb__loader_bytes(data->loader) + ahead + own,
    };
}

bool ebb__data_decodes(const ebb_data *data) {
    return data->source->decodes;
}

bool ebb__data_has_size(const char *spec) {
    const char *path = NULL;
    const ebb_source_ops *ops = find_source(spec, &path);
    return ops != NULL && ops != &ebb__source_synthetic && ops != &ebb__source_images;
}

void ebb__data_describe(const ebb_data *data, char *buf, size_t buf_bytes) {
    const ebb_source *s = data->source;
    char count[40] = "endless";
    if (s->n_images != UINT64_MAX) { (void)snprintf(count, sizeof count, "%" PRIu64 " images", s->n_images); }
    (void)snprintf(buf, buf_bytes, "%s, %s of %" PRId64 "x%" PRId64 "x%" PRId64 ", %" PRId64 " classes, %s",
                   s->ops->scheme, count, s->channels, s->height, s->width, s->classes,
                   data->options.augment ? "augmented" : "not augmented");
}

/* ---- batches ---------------------------------------------------------------------------------- */

/* Which images make the batch. */
static ebb_status make_job(const ebb_data *data, ebb_batch batch, ebb_load_job *job_out) {
    const uint64_t n_images = data->source->n_images;
    const bool train = data->options.split == EBB_SPLIT_TRAIN;
    uint64_t first = 0, end = 0;
    if (batch.n < 1) { return ebb_fail(EBB_E_ARGUMENT, "data: a batch of %" PRId64 " images", batch.n); }
    bool fine = ebb_mul_u64(batch.idx, (uint64_t)batch.n, &first) && ebb_add_u64(first, (uint64_t)batch.n, &end);
    if (!fine || (train ? end > n_images : first >= n_images)) {
        return ebb_fail(EBB_E_ARGUMENT, "data: there is no batch %" PRIu64 " of %" PRId64 " among %" PRIu64 " images",
                        batch.idx, batch.n, n_images);
    }
    *job_out = (ebb_load_job){
        .sample = {.seed = data->options.seed, .epoch = batch.epoch, .augment = train && data->options.augment},
        .shuffle = train && !data->source->ordered,
        .first = first,
        .n = ebb_min_u64(end, n_images) - first,
    };
    return EBB_OK;
}

static ebb_status finish_ahead(ebb_data *data) {
    if (!data->ahead.running) { return EBB_OK; }
    data->ahead.running = false;
    return ebb__loader_wait(data->loader);
}

void ebb__data_forget_ahead(ebb_data *data) {
    (void)finish_ahead(data);
}

static ebb_status fail_reserve(const ebb_data *data, int64_t n) {
    char all[32], one[32];
    uint64_t bytes = 0;
    const uint64_t image_bytes = image_elements(data) * sizeof(float);
    if (!ebb_mul_u64((uint64_t)n, image_bytes, &bytes)) { bytes = UINT64_MAX; }
    return ebb_fail(EBB_E_NO_MEMORY,
                    "the host's memory has no room for a batch's data: %" PRId64 " images of %s are %s; a smaller "
                    "batch needs less",
                    n, ebb_bytes_format(image_bytes, one, sizeof one), ebb_bytes_format(bytes, all, sizeof all));
}

ebb_status ebb__data_reserve(ebb_data *data, int64_t n) {
    if (n <= data->ahead.room) { return EBB_OK; }
    (void)finish_ahead(data); /* into the buffers that go now */
    ebb__free(data->mem, data->ahead.images);
    ebb__free(data->mem, data->ahead.labels);
    data->ahead.room = 0;
    data->ahead.images = ebb__alloc(data->mem, (size_t)n, image_elements(data) * sizeof(float));
    data->ahead.labels = ebb__alloc(data->mem, (size_t)n, sizeof(int32_t));
    if (data->ahead.images == NULL || data->ahead.labels == NULL) { return fail_reserve(data, n); }
    data->ahead.room = n;
    return EBB_OK;
}

static bool is_ahead(const ebb_data *data, ebb_batch batch) {
    const ebb_batch ahead = data->ahead.batch;
    return data->ahead.running && ahead.epoch == batch.epoch && ahead.idx == batch.idx && ahead.n == batch.n;
}

static void start_ahead(ebb_data *data, ebb_batch batch, ebb_load_job *job, float *images, int32_t *labels) {
    job->images = data->ahead.to_images = images;
    job->labels = data->ahead.to_labels = labels;
    ebb__loader_start(data->loader, job);
    data->ahead.running = true;
    data->ahead.batch = batch;
}

ebb_status ebb_data_prefetch(ebb_data *data, ebb_batch batch) {
    EBB_NEED(data);
    if (is_ahead(data, batch)) { return EBB_OK; }
    ebb_load_job job;
    EBB_TRY(make_job(data, batch, &job));
    (void)finish_ahead(data); /* no one wants that one any more, or its failure */
    EBB_TRY(ebb__data_reserve(data, batch.n));
    start_ahead(data, batch, &job, data->ahead.images, data->ahead.labels);
    return EBB_OK;
}

ebb_status ebb_data_prefetch_to(ebb_data *data, ebb_batch batch, float *images, int32_t *labels) {
    EBB_NEED(data);
    EBB_NEED(images);
    EBB_NEED(labels);
    ebb_load_job job;
    EBB_TRY(make_job(data, batch, &job));
    (void)finish_ahead(data);
    start_ahead(data, batch, &job, images, labels);
    return EBB_OK;
}

ebb_status ebb_data_read(ebb_data *data, ebb_batch batch, float *images_out, int32_t *labels_out,
                         int64_t *n_valid_out) {
    EBB_NEED(data);
    EBB_NEED(images_out);
    EBB_NEED(labels_out);
    ebb_load_job job;
    EBB_TRY(make_job(data, batch, &job));
    const uint64_t elements = image_elements(data);
    if (is_ahead(data, batch)) {
        EBB_TRY(finish_ahead(data));
        if (images_out != data->ahead.to_images) {
            memcpy(images_out, data->ahead.to_images, job.n * elements * sizeof *images_out);
        }
        if (labels_out != data->ahead.to_labels) {
            memcpy(labels_out, data->ahead.to_labels, job.n * sizeof *labels_out);
        }
    } else {
        (void)finish_ahead(data);
        job.images = images_out;
        job.labels = labels_out;
        ebb__loader_start(data->loader, &job);
        EBB_TRY(ebb__loader_wait(data->loader));
    }
    const uint64_t n_short = (uint64_t)batch.n - job.n;
    memset(images_out + job.n * elements, 0, n_short * elements * sizeof *images_out);
    memset(labels_out + job.n, 0, n_short * sizeof *labels_out);
    if (n_valid_out != NULL) { *n_valid_out = (int64_t)job.n; }
    return EBB_OK;
}
