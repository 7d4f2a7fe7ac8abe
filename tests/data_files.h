/* SPDX-License-Identifier: Apache-2.0
 *
 * Files that data tests write for themselves into a test's folder: gzipped bytes, idx, rows of digits, pictures.
 */
#ifndef EBB_TESTS_DATA_FILES_H
#define EBB_TESTS_DATA_FILES_H

#include "support.h"

#include <jpeglib.h>
#include <png.h>
#include <zlib.h>

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

/* How a picture is written: one colour with a brighter left half. */
typedef struct data_picture {
    size_t height, width;
    uint8_t rgb[3];
    bool in_passes;      /* a progressive JPEG, an interlaced PNG */
    bool one_scan_each;  /* a JPEG with a scan for each component */
    J_COLOR_SPACE space; /* JPEG: JCS_UNKNOWN is RGB */
    int sampling;        /* JPEG: of the first component, each way; 0: the library's choice */
    unsigned restart;    /* JPEG: blocks between restart markers */
    int png_type, depth; /* PNG: PNG_COLOR_TYPE_..., 0 bits: RGB of 8 bits */
    const char *text;    /* PNG: a comment that is put in before the pixels */
} data_picture;

static inline data_picture data_picture_of(size_t height, size_t width, const uint8_t rgb[3], bool in_passes) {
    return (data_picture){.height = height, .width = width, .rgb = {rgb[0], rgb[1], rgb[2]}, .in_passes = in_passes};
}

/* Each channel as this many bytes, all the same. */
static inline void data_fill_row(const data_picture *p, uint8_t *row, size_t n_channels, size_t n_bytes) {
    for (size_t x = 0; x < p->width; x++) {
        for (size_t c = 0; c < n_channels * n_bytes; c++) {
            row[n_channels * n_bytes * x + c] = (uint8_t)(p->rgb[c / n_bytes % 3] / (x < p->width / 2 ? 1 : 2));
        }
    }
}

/* One scan a component, all of its coefficients at once. */
static inline void data_set_scans(struct jpeg_compress_struct *info, jpeg_scan_info scans[MAX_COMPONENTS]) {
    for (int c = 0; c < info->num_components; c++) {
        scans[c] = (jpeg_scan_info){.comps_in_scan = 1, .component_index = {c}, .Se = DCTSIZE2 - 1};
    }
    info->scan_info = scans;
    info->num_scans = info->num_components;
}

static inline void data_put_jpeg(data_dir *d, const char *name, data_picture p) {
    struct jpeg_compress_struct info;
    struct jpeg_error_mgr errors;
    jpeg_scan_info scans[MAX_COMPONENTS];
    FILE *file = fopen(data_path(d, name), "wb");
    assert_non_null(file);
    info.err = jpeg_std_error(&errors);
    jpeg_create_compress(&info);
    jpeg_stdio_dest(&info, file);
    info.image_width = (JDIMENSION)p.width;
    info.image_height = (JDIMENSION)p.height;
    info.in_color_space = p.space == JCS_UNKNOWN ? JCS_RGB : p.space;
    info.input_components = p.space == JCS_CMYK ? 4 : p.space == JCS_GRAYSCALE ? 1 : 3;
    jpeg_set_defaults(&info);
    jpeg_set_quality(&info, 95, TRUE);
    info.restart_interval = p.restart;
    if (p.sampling > 0) { info.comp_info[0].h_samp_factor = info.comp_info[0].v_samp_factor = p.sampling; }
    if (p.in_passes) { jpeg_simple_progression(&info); }
    if (p.one_scan_each) { data_set_scans(&info, scans); }
    jpeg_start_compress(&info, TRUE);
    uint8_t *row = malloc((size_t)info.input_components * p.width);
    assert_non_null(row);
    data_fill_row(&p, row, (size_t)info.input_components, 1);
    while (info.next_scanline < info.image_height) { (void)jpeg_write_scanlines(&info, &row, 1); }
    jpeg_finish_compress(&info);
    jpeg_destroy_compress(&info);
    assert_int_equal(fclose(file), 0);
    free(row);
}

static inline void data_write_png(FILE *file, const data_picture *p, uint8_t *row) {
    static const png_color palette[2] = {{200, 100, 40}, {100, 50, 20}};
    const int type = p->depth == 0 ? PNG_COLOR_TYPE_RGB : p->png_type, depth = p->depth == 0 ? 8 : p->depth;
    png_structp png = png_create_write_struct(PNG_LIBPNG_VER_STRING, NULL, NULL, NULL);
    png_infop info = png_create_info_struct(png);
    png_init_io(png, file);
    png_set_IHDR(png, info, (png_uint_32)p->width, (png_uint_32)p->height, depth, type,
                 p->in_passes ? PNG_INTERLACE_ADAM7 : PNG_INTERLACE_NONE, PNG_COMPRESSION_TYPE_DEFAULT,
                 PNG_FILTER_TYPE_DEFAULT);
    if (type == PNG_COLOR_TYPE_PALETTE) { png_set_PLTE(png, info, palette, 2); }
    if (p->text != NULL) {
        png_text text = {.compression = PNG_TEXT_COMPRESSION_zTXt, .key = (char[]){"Comment"}, .text = (char *)p->text};
        png_set_text(png, info, &text, 1);
    }
    png_write_info(png, info);
    if (depth == 1) { png_set_packing(png); }
    for (int pass = png_set_interlace_handling(png); pass > 0; pass--) {
        for (size_t y = 0; y < p->height; y++) { png_write_row(png, row); }
    }
    png_write_end(png, NULL);
    png_destroy_write_struct(&png, &info);
}

static inline void data_put_png(data_dir *d, const char *name, data_picture p) {
    static const uint8_t n_channels[] = {[PNG_COLOR_TYPE_GRAY] = 1,
                                         [PNG_COLOR_TYPE_RGB] = 3,
                                         [PNG_COLOR_TYPE_PALETTE] = 1,
                                         [PNG_COLOR_TYPE_GRAY_ALPHA] = 2,
                                         [PNG_COLOR_TYPE_RGB_ALPHA] = 4};
    const size_t n = p.depth == 0 ? 3 : n_channels[p.png_type], bytes = p.depth == 16 ? 2 : 1;
    FILE *file = fopen(data_path(d, name), "wb");
    uint8_t *row = malloc(n * bytes * p.width);
    assert_true(file != NULL && row != NULL);
    data_fill_row(&p, row, n, bytes);
    if (p.depth > 0 && p.depth < 8) {
        for (size_t x = 0; x < p.width; x++) { row[x] = x >= p.width / 2; }
    }
    data_write_png(file, &p, row);
    assert_int_equal(fclose(file), 0);
    free(row);
}

#endif
