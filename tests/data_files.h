/* SPDX-License-Identifier: Apache-2.0
 *
 * Files that data tests write for themselves, in a folder of their own that goes again: bytes, gzipped bytes, idx,
 * CIFAR records, rows of digits, pictures, safetensors.
 */
#ifndef EBB_TESTS_DATA_FILES_H
#define EBB_TESTS_DATA_FILES_H

#include "support.h"

#include <ftw.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <jpeglib.h>
#include <png.h>
#include <zlib.h>

typedef struct data_dir {
    char path[64];
    char file[256]; /* of the last call of data_path */
} data_dir;

static inline void data_dir_make(data_dir *d) {
    strcpy(d->path, "/tmp/ebb-data-XXXXXX");
    assert_non_null(mkdtemp(d->path));
}

static inline int data_dir_remove_one(const char *path, const struct stat *info, int kind, struct FTW *at) {
    (void)info;
    (void)kind;
    (void)at;
    return remove(path);
}

static inline void data_dir_remove(data_dir *d) {
    assert_int_equal(nftw(d->path, data_dir_remove_one, 8, FTW_DEPTH | FTW_PHYS), 0);
}

/* The path of a file in it, with the folders on the way made. Valid until the next call. */
static inline const char *data_path(data_dir *d, const char *name) {
    (void)snprintf(d->file, sizeof d->file, "%s/%s", d->path, name);
    for (char *c = d->file + strlen(d->path) + 1; *c != '\0'; c++) {
        if (*c != '/') { continue; }
        *c = '\0';
        (void)mkdir(d->file, 0700);
        *c = '/';
    }
    return d->file;
}

static inline void data_put(data_dir *d, const char *name, const void *data, size_t n) {
    FILE *file = fopen(data_path(d, name), "wb");
    assert_non_null(file);
    assert_int_equal(fwrite(data, 1, n, file), n);
    assert_int_equal(fclose(file), 0);
}

static inline void data_put_gz(data_dir *d, const char *name, const void *data, size_t n) {
    gzFile file = gzopen(data_path(d, name), "wb");
    assert_non_null(file);
    assert_int_equal(gzwrite(file, data, (unsigned)n), n);
    assert_int_equal(gzclose(file), Z_OK);
}

/* The pixel and the label that the writers below put at a place. */
static inline uint8_t data_pixel(size_t image, size_t idx) {
    return (uint8_t)(image * 31 + idx * 7);
}

static inline uint8_t data_label(size_t image) {
    return (uint8_t)(image % 10);
}

/* Images or, with side 0, labels. Returns bytes written to buf. */
static inline size_t data_make_idx(uint8_t *buf, size_t n, size_t side) {
    const uint8_t n_dims = side > 0 ? 3 : 1;
    const size_t dims[3] = {n, side, side};
    size_t at = 0;
    const uint8_t magic[4] = {0, 0, 8, n_dims};
    memcpy(buf, magic, sizeof magic);
    for (at = 4; at < 4 + 4 * (size_t)n_dims; at += 4) {
        const uint8_t word[4] = {0, 0, (uint8_t)(dims[at / 4 - 1] >> 8), (uint8_t)dims[at / 4 - 1]};
        memcpy(buf + at, word, sizeof word);
    }
    for (size_t i = 0; i < n; i++) {
        if (side == 0) { buf[at++] = data_label(i); }
        for (size_t p = 0; p < side * side; p++) { buf[at++] = data_pixel(i, p); }
    }
    return at;
}

static inline void data_put_mnist(data_dir *d, size_t n_train, size_t n_test, size_t side) {
    uint8_t *buf = malloc(16 + (n_train + n_test) * (side * side + 1));
    assert_non_null(buf);
    data_put(d, "train-images-idx3-ubyte", buf, data_make_idx(buf, n_train, side));
    data_put_gz(d, "train-labels-idx1-ubyte.gz", buf, data_make_idx(buf, n_train, 0));
    data_put_gz(d, "t10k-images-idx3-ubyte.gz", buf, data_make_idx(buf, n_test, side));
    data_put(d, "t10k-labels-idx1-ubyte", buf, data_make_idx(buf, n_test, 0));
    free(buf);
}

/* Rows whose pixels show the digit: pixel p of a row is high where p mod 10 is the label. */
static inline void data_put_digits(data_dir *d, const char *name, size_t n) {
    char *text = malloc(n * 256);
    assert_non_null(text);
    size_t at = 0;
    for (size_t i = 0; i < n; i++) {
        const size_t digit = (i % 7 + i / 5) % 10; /* every digit among every fifth row, too */
        for (size_t p = 0; p < 64; p++) {
            at += (size_t)sprintf(text + at, "%zu,", p % 10 == digit ? 12 + (i + p) % 5 : (i * p) % 4);
        }
        at += (size_t)sprintf(text + at, "%zu\n", digit);
    }
    data_put_gz(d, name, text, at);
    free(text);
}

/* A picture of one colour with a brighter left half. */
static inline void data_fill_rgb(uint8_t *row, size_t width, const uint8_t rgb[3]) {
    for (size_t x = 0; x < width; x++) {
        for (size_t c = 0; c < 3; c++) { row[3 * x + c] = (uint8_t)(rgb[c] / (x < width / 2 ? 1 : 2)); }
    }
}

static inline void data_put_jpeg(data_dir *d, const char *name, size_t height, size_t width, const uint8_t rgb[3],
                                 bool progressive) {
    struct jpeg_compress_struct info;
    struct jpeg_error_mgr errors;
    uint8_t *row = malloc(3 * width);
    FILE *file = fopen(data_path(d, name), "wb");
    assert_non_null(file);
    info.err = jpeg_std_error(&errors);
    jpeg_create_compress(&info);
    jpeg_stdio_dest(&info, file);
    info.image_width = (JDIMENSION)width;
    info.image_height = (JDIMENSION)height;
    info.input_components = 3;
    info.in_color_space = JCS_RGB;
    jpeg_set_defaults(&info);
    jpeg_set_quality(&info, 95, TRUE);
    if (progressive) { jpeg_simple_progression(&info); }
    jpeg_start_compress(&info, TRUE);
    data_fill_rgb(row, width, rgb);
    while (info.next_scanline < info.image_height) { (void)jpeg_write_scanlines(&info, &row, 1); }
    jpeg_finish_compress(&info);
    jpeg_destroy_compress(&info);
    assert_int_equal(fclose(file), 0);
    free(row);
}

static inline void data_put_png(data_dir *d, const char *name, size_t height, size_t width, const uint8_t rgb[3],
                                bool interlaced) {
    FILE *file = fopen(data_path(d, name), "wb");
    uint8_t *row = malloc(3 * width);
    assert_non_null(file);
    png_structp png = png_create_write_struct(PNG_LIBPNG_VER_STRING, NULL, NULL, NULL);
    png_infop info = png_create_info_struct(png);
    png_init_io(png, file);
    png_set_IHDR(png, info, (png_uint_32)width, (png_uint_32)height, 8, PNG_COLOR_TYPE_RGB,
                 interlaced ? PNG_INTERLACE_ADAM7 : PNG_INTERLACE_NONE, PNG_COMPRESSION_TYPE_DEFAULT,
                 PNG_FILTER_TYPE_DEFAULT);
    png_write_info(png, info);
    data_fill_rgb(row, width, rgb);
    for (int pass = png_set_interlace_handling(png); pass > 0; pass--) {
        for (size_t y = 0; y < height; y++) { png_write_row(png, row); }
    }
    png_write_end(png, NULL);
    png_destroy_write_struct(&png, &info);
    assert_int_equal(fclose(file), 0);
    free(row);
}

#endif
