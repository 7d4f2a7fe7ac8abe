/* SPDX-License-Identifier: Apache-2.0
 *
 * Data from inside. A source knows one kind of data: how many images there are, and how to make image number
 * i, normalised, at the size that was asked for. Everything around it is the same for all: the order of an
 * epoch (shuffle.c), the threads that decode (data_loader.c), batches and prefetching (data.c).
 *
 *      data.c  ── which images make this batch ──►  data_loader.c  ── image i ──►  a source
 *                                                    (n threads)                   idx, cifar, digits, tensors:
 *                                                                                  data_memory.c holds the pixels
 *                                                                                  images: files, image_decode.c
 *                                                                                  synthetic: nothing held
 *
 * A sample is a pure function of the source, the sample's description and nothing else, so that order of
 * threads cannot show.
 */
#ifndef EBB_SRC_DATA_PRIV_H
#define EBB_SRC_DATA_PRIV_H

#include "base/base.h"
#include "ebb/train.h"

/* ---- order and draws (shuffle.c, augment.c) --------------------------------------------------- */

/* Where image number idx of the epoch stands among n: a permutation, without a table. */
uint64_t ebb__data_shuffle(uint64_t seed, uint64_t epoch, uint64_t n, uint64_t idx);

/* One image of one epoch. */
typedef struct ebb_sample {
    uint64_t seed, epoch, image;
    bool augment;
} ebb_sample;

/* A part of an image, in pixels; what lies outside is black. */
typedef struct ebb_crop {
    double top, left, height, width;
    bool flip;
} ebb_crop;

/* Where a picture is moved to; black comes in at the edge. */
typedef struct ebb_shift {
    int64_t down, right;
    bool flip;
} ebb_shift;

/* By at most limit pixels each way, and flip half of them if flip. Without augmentation: neither. */
ebb_shift ebb__data_draw_shift(const ebb_sample *sample, int64_t limit, bool flip);
/* A random part of random aspect, flipped half the time; without augmentation the middle, which leaves an eighth of
 * the shorter side away. */
ebb_crop ebb__data_draw_crop(const ebb_sample *sample, int64_t image_height, int64_t image_width, int64_t height,
                             int64_t width);

/* ---- resampling (image_resample.c) ------------------------------------------------------------ */

/* Rows go in one after the other, the picture comes out at another size: a triangle filter, widened where the
 * picture shrinks. Holds no picture, only what it is given. */
typedef struct ebb_axis {
    int64_t n_out;
    uint32_t *first; /* [n_out] first source pixel */
    uint32_t *start; /* [n_out + 1] into weight */
    float *weight;
} ebb_axis;

typedef struct ebb_resample {
    ebb_axis x, y;
    int64_t channels;
    float *row;    /* (channels, width) of the source, for the caller to fill */
    float *narrow; /* (channels, x.n_out) */
    bool flip;
    int64_t next; /* first output row that is not complete */
} ebb_resample;

/* From which size to which. */
typedef struct ebb_resize {
    int64_t channels, in_height, in_width, height, width;
} ebb_resize;

/* Bytes of scratch for it, and for any picture that is smaller each way. */
size_t ebb__resample_scratch_bytes(const ebb_resize *size);
/* Lay it out in scratch, which lives as long. */
void ebb__resample_init(ebb_resample *rs, void *scratch, const ebb_resize *size, bool flip);
/* rs->row is row y of the source, y = 0, 1 ...; adds it to dst (channels, height, width), zeroed before the first. */
void ebb__resample_add_row(ebb_resample *rs, int64_t y, float *dst);

/* ---- bytes that threads share (allowance.c) --------------------------------------------------- */

typedef struct ebb_allowance ebb_allowance;

ebb_status ebb__allowance_create(const ebb_mem *mem, uint64_t total_bytes, ebb_allowance **allowance_out);
void ebb__allowance_destroy(ebb_allowance *allowance);         /* all was given back */
uint64_t ebb__allowance_bytes(const ebb_allowance *allowance); /* in all */
uint64_t ebb__allowance_peak(ebb_allowance *allowance);        /* the most that was ever taken */
/* No more than this many from now on; nothing is taken. */
void ebb__allowance_limit(ebb_allowance *allowance, uint64_t total_bytes);
/* Waits until this many are there. false: there are never this many. A thread gives back before it takes again. */
bool ebb__allowance_take(ebb_allowance *allowance, uint64_t n_bytes);
void ebb__allowance_give(ebb_allowance *allowance, uint64_t n_bytes);

/* ---- decoding (image_decode.c) ---------------------------------------------------------------- */

#define EBB_IMAGE_MAX_SIDE 16384           /* pixels; larger pictures are refused */
#define EBB_IMAGE_START_BYTES (256u << 10) /* what a library takes at most in a thread, whatever the picture */
#define EBB_IMAGE_COLUMN_BYTES 240u        /* and to decode row by row, for each pixel of the picture's width */
/* The widest picture, row by row. */
#define EBB_IMAGE_THREAD_BYTES (EBB_IMAGE_START_BYTES + EBB_IMAGE_COLUMN_BYTES * EBB_IMAGE_MAX_SIDE)
#define EBB_IMAGE_WHOLE_BYTES (64u << 20)  /* a picture that has to be held whole */
#define EBB_IMAGE_LEAST_BYTES (512u << 10) /* the least allowance: a picture of 2184 pixels' width, row by row */

/* Gets a picture's rows as they are decoded. */
typedef struct ebb_row_sink {
    /* The picture's size is known: say by what it may be reduced while it is decoded, 1, 2, 4 or 8. */
    int (*reduce)(void *ctx, int64_t height, int64_t width);
    /* Its size after that. */
    void (*begin)(void *ctx, int64_t height, int64_t width);
    /* Row y, as RGB. false: no more rows are wanted. */
    bool (*row)(void *ctx, int64_t y, const uint8_t *rgb);
    void *ctx;
} ebb_row_sink;

#define EBB_IMAGE_SCRATCH_BYTES ((size_t)EBB_IMAGE_MAX_SIDE * 4)

/* Decode a JPEG or PNG file, told apart by their first bytes. scratch: EBB_IMAGE_SCRATCH_BYTES. What
 * the picture takes beyond EBB_IMAGE_START_BYTES is of the allowance; a progressive or interlaced one is held whole. */
ebb_status ebb__image_decode(const char *path, const ebb_row_sink *sink, void *scratch, ebb_allowance *allowance);

/* ---- sources ---------------------------------------------------------------------------------- */

typedef struct ebb_source ebb_source;

typedef struct ebb_source_ops {
    const char *scheme; /* "mnist" of mnist:DIR */
    const char *path;   /* what follows the colon; NULL: nothing */
    ebb_status (*open)(const char *path, const ebb_data_options *options, ebb_source **source_out);
    void (*close)(ebb_source *source);
    /* Threads. scratch: scratch_bytes, aligned to 64, this thread's. dst (channels, height, width). */
    ebb_status (*read)(const ebb_source *source, const ebb_sample *sample, void *scratch, float *dst,
                       int32_t *label_out);
} ebb_source_ops;

/* Every source begins with it. */
struct ebb_source {
    const ebb_source_ops *ops;
    const ebb_mem *mem;
    uint64_t n_images; /* UINT64_MAX: endless; 0: this split is not there */
    int64_t channels, height, width, classes;
    uint64_t held_bytes;
    size_t scratch_bytes;   /* a thread's */
    uint64_t library_bytes; /* at most, a thread's: what a decoding library takes whatever the image */
    bool ordered;           /* the train split is not shuffled */
    bool decodes;           /* out of the allowance, which is there before the first read */
    ebb_allowance *allowance;
};

extern const ebb_source_ops ebb__source_synthetic, ebb__source_mnist, ebb__source_cifar10, ebb__source_cifar100,
    ebb__source_images, ebb__source_digits, ebb__source_tensors;

/* ---- pixels in memory (data_memory.c) --------------------------------------------------------- */

typedef struct ebb_memory_source {
    ebb_source base;
    /* (n_images, channels, height, width) as stored, one of both; and labels. From mem's hooks. */
    uint8_t *pixels;
    float *values;
    int32_t *labels;
    size_t label_cap, pixel_cap;
    int64_t channels, height, width;
    float mean[3], deviation[3], full; /* of pixels: (pixel / full - mean) / deviation; values are as they are */
    int64_t shift;                     /* augmentation */
    bool flip;
} ebb_memory_source;

ebb_status ebb__memory_source_create(const ebb_source_ops *ops, const ebb_mem *mem, ebb_memory_source **source_out);
/* Everything is filled in: take size and classes from the options where they say, check every label. file: for
 * messages. default_classes: where options do not say; 0: the largest label's. */
ebb_status ebb__memory_source_finish(ebb_memory_source *source, const ebb_data_options *options,
                                     int64_t default_classes, const char *file);
void ebb__memory_source_close(ebb_source *source);
ebb_status ebb__memory_source_read(const ebb_source *source, const ebb_sample *sample, void *scratch, float *dst,
                                   int32_t *label_out);

/* The parsers alone, on any stream, for tests and fuzzing; each fills the source's arrays. */
struct ebb_stream;
ebb_status ebb__idx_read_images(struct ebb_stream *stream, ebb_memory_source *source);
ebb_status ebb__idx_read_labels(struct ebb_stream *stream, ebb_memory_source *source);
/* n_label_bytes before the pixels, of which the last is the label: 1 for CIFAR-10, 2 for CIFAR-100. */
ebb_status ebb__cifar_read(struct ebb_stream *stream, size_t n_label_bytes, ebb_memory_source *source);
ebb_status ebb__digits_read(struct ebb_stream *stream, ebb_split split, ebb_memory_source *source);

/* ---- the loader (data_loader.c) --------------------------------------------------------------- */

typedef struct ebb_loader ebb_loader;

typedef struct ebb_load_job {
    ebb_sample sample; /* of all but the image */
    bool shuffle;
    uint64_t first; /* place in the epoch of the first */
    uint64_t n;
    float *images;
    int32_t *labels;
} ebb_load_job;

ebb_status ebb__loader_create(const ebb_source *source, int32_t n_threads, ebb_loader **loader_out);
void ebb__loader_destroy(ebb_loader *loader);
uint64_t ebb__loader_bytes(const ebb_loader *loader);
/* One job at a time: start is only called when there was none or wait has returned. */
void ebb__loader_start(ebb_loader *loader, const ebb_load_job *job);
/* The failure of the first image, if there are several, whatever the threads' order. */
ebb_status ebb__loader_wait(ebb_loader *loader);

/* ---- data as the trainer needs it ------------------------------------------------------------- */

/* As ebb_data_open; what decoding takes is of an allowance that several data share, and is not in host_bytes. */
ebb_status ebb__data_open_within(const char *spec, const ebb_data_options *options, ebb_allowance *allowance,
                                 ebb_data **data_out);
/* Whether it takes anything of an allowance. */
bool ebb__data_decodes(const ebb_data *data);
/* What it can make use of: the largest picture that has to be held whole. */
#define EBB_DATA_ALLOWANCE_BYTES (EBB_IMAGE_WHOLE_BYTES + EBB_IMAGE_THREAD_BYTES)
/* Take the buffer for prefetching batches of n now, so that it is counted. */
ebb_status ebb__data_reserve(ebb_data *data, int64_t n);
/* Wait until no memory is read to, and forget the batch that was read ahead. */
void ebb__data_forget_ahead(ebb_data *data);
/* What must not change between a checkpoint and going on from it, for people: "digits, 1437 images ...". */
void ebb__data_describe(const ebb_data *data, char *buf, size_t buf_bytes);
/* Whether the data of this description has a size of its own; else the network's default is asked for. */
bool ebb__data_has_size(const char *spec);

#endif
