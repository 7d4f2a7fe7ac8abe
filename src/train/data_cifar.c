/* SPDX-License-Identifier: Apache-2.0
 *
 * CIFAR's binary files: records of one label (CIFAR-10) or a coarse and a fine one (CIFAR-100), and 3 x 32 x 32
 * bytes, channels first; no header, so that a file's length is all that can be checked.
 */
#include "base/byte_stream.h"
#include "train/data_priv.h"

#include <inttypes.h>

#define SIDE 32
#define IMAGE_BYTES ((size_t)3 * SIDE * SIDE)
#define PATH_BYTES 4096

/* One record after the others; *end_out: there was none. */
static ebb_status read_record(ebb_stream *stream, size_t n_label_bytes, ebb_memory_source *source, bool *end_out) {
    const size_t n = (size_t)source->base.n_images;
    const ebb_mem *mem = source->base.mem;
    uint8_t label[2];
    size_t got = 0;
    EBB_TRY(ebb__stream_read_some(stream, label, n_label_bytes, &got));
    *end_out = got == 0;
    if (got == 0) { return EBB_OK; }
    EBB_TRY(ebb__grow(mem, (void **)&source->labels, &source->label_cap, n, 1, sizeof *source->labels));
    EBB_TRY(ebb__grow(mem, (void **)&source->pixels, &source->pixel_cap, n * IMAGE_BYTES, IMAGE_BYTES, 1));
    EBB_TRY(ebb__stream_read(stream, source->pixels + n * IMAGE_BYTES, IMAGE_BYTES, "a record"));
    source->labels[n] = label[n_label_bytes - 1];
    source->base.n_images++;
    return EBB_OK;
}

ebb_status ebb__cifar_read(ebb_stream *stream, size_t n_label_bytes, ebb_memory_source *source) {
    EBB_ASSERT(n_label_bytes == 1 || n_label_bytes == 2);
    source->channels = 3;
    source->height = source->width = SIDE;
    const uint64_t before = source->base.n_images;
    for (bool end = false; !end;) { EBB_TRY(read_record(stream, n_label_bytes, source, &end)); }
    if (source->base.n_images == before) { return ebb_fail(EBB_E_FORMAT, "%s: byte 0: no records", stream->name); }
    return EBB_OK;
}

/* Doubling arrays end up to twice too large. */
static ebb_status shrink(ebb_memory_source *source) {
    const ebb_mem *mem = source->base.mem;
    void *labels = mem->resize(mem->ctx, source->labels, source->base.n_images * sizeof *source->labels);
    if (labels == NULL) { return ebb_fail(EBB_E_NO_MEMORY, "out of host memory: CIFAR's labels"); }
    source->labels = labels;
    void *pixels = mem->resize(mem->ctx, source->pixels, source->base.n_images * IMAGE_BYTES);
    if (pixels == NULL) { return ebb_fail(EBB_E_NO_MEMORY, "out of host memory: CIFAR's images"); }
    source->pixels = pixels;
    return EBB_OK;
}

static ebb_status read_files(const char *dir, const char *const *names, size_t n_label_bytes,
                             const ebb_data_options *options, ebb_memory_source *source) {
    const int64_t default_classes = n_label_bytes == 1 ? 10 : 100;
    char path[PATH_BYTES];
    for (size_t i = 0; names[i] != NULL; i++) {
        int n = snprintf(path, sizeof path, "%s/%s", dir, names[i]);
        if (n < 0 || (size_t)n >= sizeof path) { return ebb_fail(EBB_E_ARGUMENT, "%s: the name is too long", dir); }
        ebb_stream stream;
        EBB_TRY(ebb__stream_open(path, &stream));
        const uint64_t first = source->base.n_images;
        ebb_status status = ebb__cifar_read(&stream, n_label_bytes, source);
        ebb__stream_close(&stream);
        EBB_TRY(status);
        /* here and not only at the end, so that the message has the file's own numbers */
        const int64_t classes = options->classes > 0 ? options->classes : default_classes;
        for (uint64_t r = first; r < source->base.n_images; r++) {
            if (source->labels[r] < classes) { continue; }
            return ebb_fail(EBB_E_FORMAT, "%s: record %" PRIu64 ": label %d is not among %" PRId64 " classes", path,
                            r - first, source->labels[r], classes);
        }
    }
    EBB_TRY(shrink(source));
    return ebb__memory_source_finish(source, options, default_classes, dir);
}

static ebb_status open_cifar(const ebb_source_ops *ops, const char *dir, const char *const *names,
                             const ebb_data_options *options, ebb_source **source_out) {
    static const float mean[2][3] = {{0.4914f, 0.4822f, 0.4465f}, {0.5071f, 0.4865f, 0.4409f}};
    static const float deviation[2][3] = {{0.2470f, 0.2435f, 0.2616f}, {0.2673f, 0.2564f, 0.2762f}};
    const size_t kind = ops == &ebb__source_cifar100;
    ebb_memory_source *source = NULL;
    EBB_TRY(ebb__memory_source_create(ops, options->mem, &source));
    memcpy(source->mean, mean[kind], sizeof source->mean);
    memcpy(source->deviation, deviation[kind], sizeof source->deviation);
    source->shift = 4;
    source->flip = true;
    ebb_status status = read_files(dir, names, kind + 1, options, source);
    if (status != EBB_OK) {
        ebb__memory_source_close(&source->base);
        return status;
    }
    *source_out = &source->base;
    return EBB_OK;
}

static ebb_status open_cifar10(const char *dir, const ebb_data_options *options, ebb_source **source_out) {
    static const char *const train[] = {"data_batch_1.bin", "data_batch_2.bin", "data_batch_3.bin",
                                        "data_batch_4.bin", "data_batch_5.bin", NULL};
    static const char *const test[] = {"test_batch.bin", NULL};
    return open_cifar(&ebb__source_cifar10, dir, options->split == EBB_SPLIT_TRAIN ? train : test, options, source_out);
}

static ebb_status open_cifar100(const char *dir, const ebb_data_options *options, ebb_source **source_out) {
    static const char *const train[] = {"train.bin", NULL};
    static const char *const test[] = {"test.bin", NULL};
    return open_cifar(&ebb__source_cifar100, dir, options->split == EBB_SPLIT_TRAIN ? train : test, options,
                      source_out);
}

const ebb_source_ops ebb__source_cifar10 = {
    .scheme = "cifar10",
    .path = "DIR",
    .open = open_cifar10,
    .close = ebb__memory_source_close,
    .read = ebb__memory_source_read,
};

const ebb_source_ops ebb__source_cifar100 = {
    .scheme = "cifar100",
    .path = "DIR",
    .open = open_cifar100,
    .close = ebb__memory_source_close,
    .read = ebb__memory_source_read,
};
