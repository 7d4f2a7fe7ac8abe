/* SPDX-License-Identifier: Apache-2.0
 *
 * The handwritten digits of the UCI repository ('Optical recognition of handwritten digits', its test set) as
 * scikit-learn ships them, digits.csv.gz: a line an image, 64 pixels of 0..16 and the digit. Every fifth line
 * (the 5th, 10th ...) is the test split.
 */
#include "base/byte_stream.h"
#include "train/data_priv.h"

#include <inttypes.h>

#define SIDE 8
#define N_PIXELS (SIDE * SIDE)
#define FULL 16
#define TEST_EVERY 5
#define BLOCK_BYTES 4096

typedef struct csv {
    ebb_stream *stream;
    uint8_t block[BLOCK_BYTES];
    size_t n, at;
    uint64_t line; /* from 1 */
} csv;

/* The next character without taking it; -1 at the end. */
static ebb_status peek(csv *c, int *char_out) {
    if (c->at == c->n) {
        EBB_TRY(ebb__stream_read_some(c->stream, c->block, sizeof c->block, &c->n));
        c->at = 0;
    }
    *char_out = c->n == 0 ? -1 : c->block[c->at];
    return EBB_OK;
}

/* A whole number of at most four digits and what ends it, taken as well: a comma, a newline or the end (-1). */
static ebb_status read_number(csv *c, unsigned *value_out, int *end_out) {
    unsigned value = 0, n_digits = 0;
    int ch = 0;
    for (;; c->at++, n_digits++) {
        EBB_TRY(peek(c, &ch));
        if (ch < '0' || ch > '9' || n_digits == 4) { break; }
        value = 10 * value + (unsigned)(ch - '0');
    }
    if (ch == '\r') {
        c->at++;
        EBB_TRY(peek(c, &ch));
    }
    if (n_digits == 0 || (ch != ',' && ch != '\n' && ch != -1)) {
        return ebb_fail(EBB_E_FORMAT, "%s: line %" PRIu64 ": not a row of whole numbers", c->stream->name, c->line);
    }
    if (ch != -1) { c->at++; }
    *value_out = value;
    *end_out = ch;
    return EBB_OK;
}

static ebb_status read_line(csv *c, uint8_t pixels_out[N_PIXELS], int32_t *label_out) {
    unsigned value = 0;
    int end = ',';
    for (int i = 0; i <= N_PIXELS; i++) {
        EBB_TRY(read_number(c, &value, &end));
        if ((end == ',') != (i < N_PIXELS)) {
            return ebb_fail(EBB_E_FORMAT, "%s: line %" PRIu64 ": a row of %s than %d numbers", c->stream->name, c->line,
                            end == ',' ? "more" : "fewer", N_PIXELS + 1);
        }
        if (i < N_PIXELS && value > FULL) {
            return ebb_fail(EBB_E_FORMAT, "%s: line %" PRIu64 ": pixel %d is %u, more than %d", c->stream->name,
                            c->line, i, value, FULL);
        }
        if (i < N_PIXELS) { pixels_out[i] = (uint8_t)value; }
    }
    *label_out = (int32_t)value;
    return EBB_OK;
}

static ebb_status keep(ebb_memory_source *source, const uint8_t pixels[N_PIXELS], int32_t label) {
    const ebb_mem *mem = source->base.mem;
    const size_t n = (size_t)source->base.n_images;
    EBB_TRY(ebb__grow(mem, (void **)&source->labels, &source->label_cap, n, 1, sizeof *source->labels));
    EBB_TRY(ebb__grow(mem, (void **)&source->pixels, &source->pixel_cap, n * N_PIXELS, N_PIXELS, 1));
    memcpy(source->pixels + n * N_PIXELS, pixels, N_PIXELS);
    source->labels[n] = label;
    source->base.n_images++;
    return EBB_OK;
}

ebb_status ebb__digits_read(ebb_stream *stream, ebb_split split, ebb_memory_source *source) {
    csv c = {.stream = stream, .line = 1};
    source->channels = 1;
    source->height = source->width = SIDE;
    source->full = FULL;
    for (;; c.line++) {
        int ch = 0;
        EBB_TRY(peek(&c, &ch));
        if (ch == -1) { break; }
        uint8_t pixels[N_PIXELS];
        int32_t label = 0;
        EBB_TRY(read_line(&c, pixels, &label));
        if (label > 9) {
            return ebb_fail(EBB_E_FORMAT, "%s: line %" PRIu64 ": label %d is not among 10 classes", stream->name,
                            c.line, label);
        }
        if ((c.line % TEST_EVERY == 0) == (split == EBB_SPLIT_TEST)) { EBB_TRY(keep(source, pixels, label)); }
    }
    if (source->base.n_images == 0) { return ebb_fail(EBB_E_FORMAT, "%s: line 1: no images", stream->name); }
    return EBB_OK;
}

static ebb_status open_digits(const char *path, const ebb_data_options *options, ebb_source **source_out) {
    ebb_memory_source *source = NULL;
    ebb_stream stream = {0};
    EBB_TRY(ebb__memory_source_create(&ebb__source_digits, options->mem, &source));
    source->mean[0] = 0.3053f; /* of these images */
    source->deviation[0] = 0.3761f;
    source->shift = 1;
    ebb_status status = ebb__stream_open(path, &stream);
    if (status == EBB_OK) { status = ebb__digits_read(&stream, options->split, source); }
    ebb__stream_close(&stream);
    if (status == EBB_OK) { status = ebb__memory_source_finish(source, options, 10, path); }
    if (status != EBB_OK) {
        ebb__memory_source_close(&source->base);
        return status;
    }
    *source_out = &source->base;
    return EBB_OK;
}

const ebb_source_ops ebb__source_digits = {
    .scheme = "digits",
    .path = "FILE",
    .open = open_digits,
    .close = ebb__memory_source_close,
    .read = ebb__memory_source_read,
};
