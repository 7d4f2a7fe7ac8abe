/* SPDX-License-Identifier: Apache-2.0
 *
 * MNIST's idx files, plain or gzipped: a big-endian magic 00 00 TYPE N_DIMS, the dims as 32-bit words, the
 * content. Images are type 08 (bytes) of three dims, labels of one. Fashion-MNIST, KMNIST and EMNIST's files
 * are of the same form.
 */
#include "base/byte_stream.h"
#include "train/data_priv.h"

#include <inttypes.h>
#include <unistd.h>

#define MAX_SIDE 4096
#define PATH_BYTES 4096

/* The header: n_dims sizes, the first of which counts records. */
static ebb_status read_header(ebb_stream *stream, uint8_t n_dims, uint32_t *dims_out) {
    uint8_t magic[4];
    EBB_TRY(ebb__stream_read(stream, magic, sizeof magic, "the magic number"));
    if (magic[0] != 0 || magic[1] != 0 || magic[2] != 8 || magic[3] != n_dims) {
        return ebb_fail(EBB_E_FORMAT, "%s: byte 0: not an idx file of bytes in %u dims (%02x%02x%02x%02x)",
                        stream->name, n_dims, magic[0], magic[1], magic[2], magic[3]);
    }
    for (uint8_t d = 0; d < n_dims; d++) {
        uint8_t word[4];
        EBB_TRY(ebb__stream_read(stream, word, sizeof word, "the dims"));
        dims_out[d] = (uint32_t)word[0] << 24 | (uint32_t)word[1] << 16 | (uint32_t)word[2] << 8 | word[3];
    }
    return EBB_OK;
}

ebb_status ebb__idx_read_images(ebb_stream *stream, ebb_memory_source *source) {
    uint32_t dims[3];
    EBB_TRY(read_header(stream, 3, dims));
    if (dims[1] == 0 || dims[2] == 0 || dims[1] > MAX_SIDE || dims[2] > MAX_SIDE) {
        return ebb_fail(EBB_E_FORMAT, "%s: byte 8: images of %" PRIu32 " x %" PRIu32 " pixels", stream->name, dims[1],
                        dims[2]);
    }
    size_t n_bytes = (size_t)dims[0] * dims[1] * dims[2]; /* below 2^56 */
    EBB_TRY(ebb__stream_read_new(stream, source->base.mem, n_bytes, "the images", &source->pixels));
    EBB_TRY(ebb__stream_expect_end(stream));
    source->base.n_images = dims[0];
    source->channels = 1;
    source->height = dims[1];
    source->width = dims[2];
    return EBB_OK;
}

static ebb_status widen_labels(const ebb_mem *mem, const uint8_t *bytes, size_t n, int32_t **labels_out) {
    int32_t *labels = ebb__alloc(mem, n, sizeof *labels);
    if (labels == NULL) { return EBB_E_NO_MEMORY; }
    for (size_t i = 0; i < n; i++) { labels[i] = bytes[i]; }
    *labels_out = labels;
    return EBB_OK;
}

ebb_status ebb__idx_read_labels(ebb_stream *stream, ebb_memory_source *source) {
    uint32_t n = 0;
    EBB_TRY(read_header(stream, 1, &n));
    if (n != source->base.n_images) {
        return ebb_fail(EBB_E_FORMAT, "%s: byte 4: %" PRIu32 " labels for %" PRIu64 " images", stream->name, n,
                        source->base.n_images);
    }
    uint8_t *bytes = NULL;
    EBB_TRY(ebb__stream_read_new(stream, source->base.mem, n, "the labels", &bytes));
    ebb_status status = ebb__stream_expect_end(stream);
    if (status == EBB_OK) { status = widen_labels(source->base.mem, bytes, n, &source->labels); }
    ebb__free(source->base.mem, bytes);
    return status;
}

/* DIR/name or DIR/name.gz. */
static ebb_status find_file(const char *dir, const char *name, char path_out[PATH_BYTES]) {
    static const char *const endings[] = {"", ".gz"};
    for (size_t i = 0; i < 2; i++) {
        int n = snprintf(path_out, PATH_BYTES, "%s/%s%s", dir, name, endings[i]);
        if (n < 0 || n >= PATH_BYTES) { return ebb_fail(EBB_E_ARGUMENT, "%s: the name is too long", dir); }
        if (access(path_out, F_OK) == 0) { return EBB_OK; }
    }
    return ebb_fail(EBB_E_IO, "%s/%s: cannot open: no such file, and none with .gz", dir, name);
}

static ebb_status read_file(const char *dir, const char *name, char path_out[PATH_BYTES],
                            ebb_status (*read)(ebb_stream *, ebb_memory_source *), ebb_memory_source *source) {
    ebb_stream stream;
    EBB_TRY(find_file(dir, name, path_out));
    EBB_TRY(ebb__stream_open(path_out, &stream));
    ebb_status status = read(&stream, source);
    ebb__stream_close(&stream);
    return status;
}

static ebb_status read_split(const char *dir, const ebb_data_options *options, ebb_memory_source *source) {
    const bool train = options->split == EBB_SPLIT_TRAIN;
    char path[PATH_BYTES];
    EBB_TRY(read_file(dir, train ? "train-images-idx3-ubyte" : "t10k-images-idx3-ubyte", path, ebb__idx_read_images,
                      source));
    EBB_TRY(read_file(dir, train ? "train-labels-idx1-ubyte" : "t10k-labels-idx1-ubyte", path, ebb__idx_read_labels,
                      source));
    source->mean[0] = 0.1307f; /* of MNIST's training images */
    source->deviation[0] = 0.3081f;
    source->shift = 2;
    return ebb__memory_source_finish(source, options, 10, path);
}

static ebb_status open_mnist(const char *dir, const ebb_data_options *options, ebb_source **source_out) {
    ebb_memory_source *source = NULL;
    EBB_TRY(ebb__memory_source_create(&ebb__source_mnist, options->mem, &source));
    ebb_status status = read_split(dir, options, source);
    if (status != EBB_OK) {
        ebb__memory_source_close(&source->base);
        return status;
    }
    *source_out = &source->base;
    return EBB_OK;
}

const ebb_source_ops ebb__source_mnist = {
    .scheme = "mnist",
    .path = "DIR",
    .open = open_mnist,
    .close = ebb__memory_source_close,
    .read = ebb__memory_source_read,
};
