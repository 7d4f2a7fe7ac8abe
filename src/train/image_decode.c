/* SPDX-License-Identifier: Apache-2.0
 *
 * JPEG by libjpeg(-turbo), PNG by libpng, row by row into a sink, so that no whole picture is held where the file
 * allows it. Both libraries report errors by jumping; the jumps begin and end in this file. Everything that is live
 * across one stands in a struct whose address the jump cannot lose.
 *
 * What a decoding takes of memory:
 *      at its start   at most EBB_IMAGE_START_BYTES: tables and buffers, whatever the picture
 *      row by row     EBB_IMAGE_COLUMN_BYTES for each pixel of a row. libjpeg holds 40 rows of at most 4 components,
 *                     and a few more of the sink's: 3 MiB at the largest width. libpng asks take_png, which counts.
 *      whole besides  of a JPEG in several scans its coefficients, of an interlaced PNG its pixels
 * The header tells how much the latter two are. They are taken from the allowance, once for each picture, and are the
 * library's limit then.
 *
 * A truncated or damaged JPEG is only a warning to libjpeg, which paints the rest grey: here it is an error. A file of
 * a few bytes can ask for thousands of scans over a large picture; this many are no picture.
 */
#include "train/data_priv.h"

#include <errno.h>
#include <setjmp.h>
#include <stdlib.h>
#include <unistd.h>

#include <jpeglib.h>
/* after jpeglib.h, which needs stdio.h before it and does not include it */
#include <jerror.h>
#include <png.h>

#define MAX_SCANS 500

typedef struct decoding {
    const char *path;
    FILE *file;
    const ebb_row_sink *sink;
    uint8_t *row; /* EBB_IMAGE_SCRATCH_BYTES */
    ebb_allowance *allowance;
    uint64_t taken_bytes; /* of it */
    bool no_memory;       /* there was none, whatever the cause says */
    char cause[JMSG_LENGTH_MAX];
} decoding;

static ebb_status refuse(const decoding *d) {
    long at = ftell(d->file);
    if (d->no_memory) { return ebb_fail(EBB_E_NO_MEMORY, "%s: out of host memory for decoding", d->path); }
    return ebb_fail(EBB_E_FORMAT, "%s: byte %ld: %s", d->path, at, d->cause);
}

static bool is_size_fine(decoding *d, uint64_t height, uint64_t width) {
    if (height > 0 && width > 0 && height <= EBB_IMAGE_MAX_SIDE && width <= EBB_IMAGE_MAX_SIDE) { return true; }
    (void)snprintf(d->cause, sizeof d->cause, "a picture of %ju x %ju pixels; at most %d each way are read",
                   (uintmax_t)height, (uintmax_t)width, EBB_IMAGE_MAX_SIDE);
    return false;
}

/* Besides its rows. */
static bool take(decoding *d, const char *kind, uint64_t width, uint64_t whole_bytes) {
    const uint64_t n_bytes = width * EBB_IMAGE_COLUMN_BYTES + whole_bytes;
    if (ebb__allowance_take(d->allowance, n_bytes)) {
        d->taken_bytes = n_bytes;
        return true;
    }
    (void)snprintf(d->cause, sizeof d->cause, "%s, which takes %ju bytes to decode; at most %ju are taken", kind,
                   (uintmax_t)n_bytes, (uintmax_t)ebb__allowance_bytes(d->allowance));
    return false;
}

/* ---- JPEG ------------------------------------------------------------------------------------- */

typedef struct jpeg_decoding {
    struct jpeg_error_mgr errors; /* first: libjpeg knows only its address */
    struct jpeg_progress_mgr progress;
    struct jpeg_decompress_struct info;
    jmp_buf on_error;
    decoding *d;
} jpeg_decoding;

static void leave_jpeg(j_common_ptr info) {
    jpeg_decoding *j = (jpeg_decoding *)(void *)info->err;
    info->err->format_message(info, j->d->cause);
    j->d->no_memory = info->err->msg_code == JERR_OUT_OF_MEMORY;
    longjmp(j->on_error, 1);
}

static void warn_jpeg(j_common_ptr info, int level) {
    if (level >= 0) { return; } /* traces */
    int code = info->err->msg_code;
    if (code == JWRN_JPEG_EOF || code == JWRN_HIT_MARKER || code == JWRN_HUFF_BAD_CODE) { leave_jpeg(info); }
}

static void count_scans(j_common_ptr info) {
    jpeg_decoding *j = (jpeg_decoding *)(void *)info->err;
    if (j->info.input_scan_number <= MAX_SCANS) { return; }
    (void)snprintf(j->d->cause, sizeof j->d->cause, "more than %d scans", MAX_SCANS);
    longjmp(j->on_error, 1);
}

static uint64_t round_up(uint64_t n, int multiple) {
    const uint64_t m = (uint64_t)multiple;
    return (n + m - 1) / m * m;
}

/* What libjpeg holds of a picture in several scans: every component's blocks, and a pointer a row of them. */
static uint64_t coefficient_bytes(const struct jpeg_decompress_struct *info) {
    uint64_t bytes = 0;
    for (int c = 0; c < info->num_components; c++) {
        const jpeg_component_info *component = &info->comp_info[c];
        const uint64_t row = round_up(component->width_in_blocks, component->h_samp_factor) * sizeof(JBLOCK);
        bytes += round_up(component->height_in_blocks, component->v_samp_factor) * (row + sizeof(JBLOCKROW));
    }
    return bytes;
}

/* CMYK as Adobe's programs write it is inverted. */
static void make_rgb(uint8_t *row, size_t n, bool inverted) {
    for (size_t x = 0; x < n; x++) {
        unsigned k = inverted ? row[4 * x + 3] : 255u - row[4 * x + 3];
        for (size_t c = 0; c < 3; c++) {
            unsigned ink = inverted ? row[4 * x + c] : 255u - row[4 * x + c];
            row[3 * x + c] = (uint8_t)(ink * k / 255u);
        }
    }
}

static bool start_jpeg(jpeg_decoding *j) {
    struct jpeg_decompress_struct *info = &j->info;
    jpeg_stdio_src(info, j->d->file);
    (void)jpeg_read_header(info, TRUE);
    if (!is_size_fine(j->d, info->image_height, info->image_width)) { return false; }
    const bool whole = jpeg_has_multiple_scans(info);
    if (!take(j->d, whole ? "a JPEG in several scans" : "a JPEG", info->image_width,
              whole ? coefficient_bytes(info) : 0)) {
        return false;
    }
    info->mem->max_memory_to_use = (long)(EBB_IMAGE_START_BYTES + j->d->taken_bytes);
    bool cmyk = info->jpeg_color_space == JCS_CMYK || info->jpeg_color_space == JCS_YCCK;
    info->out_color_space = cmyk ? JCS_CMYK : JCS_RGB;
    info->dct_method = JDCT_ISLOW; /* the same bytes on every machine */
    info->scale_num = 1;
    info->scale_denom =
        (unsigned)j->d->sink->reduce(j->d->sink->ctx, (int64_t)info->image_height, (int64_t)info->image_width);
    (void)jpeg_start_decompress(info);
    return true;
}

static bool pump_jpeg(jpeg_decoding *j) {
    struct jpeg_decompress_struct *info = &j->info;
    const ebb_row_sink *sink = j->d->sink;
    sink->begin(sink->ctx, (int64_t)info->output_height, (int64_t)info->output_width);
    while (info->output_scanline < info->output_height) {
        int64_t y = (int64_t)info->output_scanline;
        JSAMPROW row = j->d->row;
        (void)jpeg_read_scanlines(info, &row, 1);
        if (info->out_color_space == JCS_CMYK) {
            make_rgb(j->d->row, info->output_width, info->saw_Adobe_marker != FALSE);
        }
        if (!sink->row(sink->ctx, y, j->d->row)) { break; }
    }
    return true;
}

static ebb_status decode_jpeg(decoding *d) {
    jpeg_decoding j = {.d = d};
    j.info.err = jpeg_std_error(&j.errors);
    j.errors.error_exit = leave_jpeg;
    j.errors.emit_message = warn_jpeg;
    j.progress.progress_monitor = count_scans;
    ebb_status status = EBB_OK;
    if (setjmp(j.on_error) != 0) {
        status = refuse(d);
        jpeg_destroy_decompress(&j.info);
        return status;
    }
    jpeg_create_decompress(&j.info);
    j.info.progress = &j.progress;
    if (!start_jpeg(&j) || !pump_jpeg(&j)) { status = refuse(d); }
    jpeg_destroy_decompress(&j.info);
    return status;
}

/* ---- PNG -------------------------------------------------------------------------------------- */

typedef struct png_decoding {
    decoding *d;
    png_structp png;
    png_infop info;
    png_bytep picture; /* of an interlaced one; libpng's memory */
    size_t n_bytes;    /* taken by libpng */
    bool over_limit;   /* it wanted more */
} png_decoding;

static void leave_png(png_structp png, png_const_charp cause) {
    png_decoding *p = png_get_error_ptr(png);
    (void)snprintf(p->d->cause, sizeof p->d->cause, "%s",
                   p->over_limit ? "it takes more memory than its size says" : cause);
    png_longjmp(png, 1);
}

static void ignore_png_warning(png_structp png, png_const_charp cause) {
    (void)png;
    (void)cause;
}

/* A total is enough of a bound: libpng takes few blocks and they live as long as the decoding. */
static png_voidp take_png(png_structp png, png_alloc_size_t size_bytes) {
    png_decoding *p = png_get_mem_ptr(png);
    p->over_limit = size_bytes > EBB_IMAGE_START_BYTES + p->d->taken_bytes - p->n_bytes;
    if (p->over_limit) { return NULL; }
    void *ptr = malloc(size_bytes);
    p->d->no_memory = ptr == NULL;
    p->n_bytes += size_bytes;
    return ptr;
}

static void give_png(png_structp png, png_voidp ptr) {
    (void)png;
    free(ptr);
}

/* 8 bits, RGB, no alpha; nothing is read that does not change pixels (colour profiles, texts). */
static void start_png(png_decoding *p) {
    static const char left_out[] = "bKGD\0cHRM\0eXIf\0gAMA\0hIST\0iCCP\0iTXt\0oFFs\0pCAL\0pHYs\0sBIT\0sCAL\0"
                                   "sPLT\0sRGB\0tEXt\0tIME\0zTXt";
    png_set_keep_unknown_chunks(p->png, PNG_HANDLE_CHUNK_NEVER, (png_const_bytep)left_out, sizeof left_out / 5);
    png_init_io(p->png, p->d->file);
    png_read_info(p->png, p->info);
    png_set_expand(p->png);
    png_set_scale_16(p->png);
    png_set_strip_alpha(p->png);
    png_set_gray_to_rgb(p->png);
}

static bool pump_png(png_decoding *p) {
    const ebb_row_sink *sink = p->d->sink;
    const uint32_t height = png_get_image_height(p->png, p->info), width = png_get_image_width(p->png, p->info);
    if (!is_size_fine(p->d, height, width)) { return false; }
    const int passes = png_set_interlace_handling(p->png);
    const bool whole = passes > 1;
    if (!take(p->d, whole ? "an interlaced PNG" : "a PNG", width, whole ? (uint64_t)3 * width * height : 0)) {
        return false;
    }
    png_read_update_info(p->png, p->info);
    const size_t row_bytes = png_get_rowbytes(p->png, p->info);
    EBB_ASSERT(row_bytes == 3 * (size_t)width);
    if (whole) {
        p->picture = png_malloc(p->png, row_bytes * height);
        for (int pass = 0; pass < passes; pass++) {
            for (uint32_t y = 0; y < height; y++) { png_read_row(p->png, p->picture + y * row_bytes, NULL); }
        }
    }
    sink->begin(sink->ctx, (int64_t)height, (int64_t)width);
    for (uint32_t y = 0; y < height; y++) {
        if (p->picture == NULL) { png_read_row(p->png, p->d->row, NULL); }
        if (!sink->row(sink->ctx, (int64_t)y, p->picture != NULL ? p->picture + y * row_bytes : p->d->row)) { break; }
    }
    return true;
}

static ebb_status decode_png(decoding *d) {
    png_decoding p = {.d = d};
    p.png = png_create_read_struct_2(PNG_LIBPNG_VER_STRING, &p, leave_png, ignore_png_warning, &p, take_png, give_png);
    p.info = p.png != NULL ? png_create_info_struct(p.png) : NULL;
    ebb_status status = EBB_OK;
    if (p.info == NULL) {
        status = ebb_fail(EBB_E_NO_MEMORY, "%s: out of host memory for decoding", d->path);
        png_destroy_read_struct(&p.png, NULL, NULL);
        return status;
    }
    if (setjmp(png_jmpbuf(p.png)) != 0) {
        status = refuse(d);
    } else {
        start_png(&p);
        if (!pump_png(&p)) { status = refuse(d); }
    }
    png_free(p.png, p.picture);
    png_destroy_read_struct(&p.png, &p.info, NULL);
    return status;
}

ebb_status ebb__image_decode(const char *path, const ebb_row_sink *sink, void *scratch, ebb_allowance *allowance) {
    decoding d = {.path = path, .sink = sink, .row = scratch, .allowance = allowance, .file = NULL};
    int fd = -1;
    EBB_TRY(ebb_path_open_input(path, &fd));
    d.file = fdopen(fd, "rb");
    if (d.file == NULL) {
        (void)close(fd);
        return ebb_fail(EBB_E_NO_MEMORY, "%s: out of host memory", path);
    }
    uint8_t magic[8] = {0};
    size_t n = fread(magic, 1, sizeof magic, d.file);
    ebb_status status = EBB_OK;
    if (fseek(d.file, 0, SEEK_SET) != 0) {
        status = ebb_fail(EBB_E_IO, "%s: cannot read: %s", path, strerror(errno));
    } else if (n >= 3 && magic[0] == 0xff && magic[1] == 0xd8 && magic[2] == 0xff) {
        status = decode_jpeg(&d);
    } else if (n == sizeof magic && png_sig_cmp(magic, 0, sizeof magic) == 0) {
        status = decode_png(&d);
    } else {
        status = ebb_fail(EBB_E_FORMAT, "%s: byte 0: neither a JPEG nor a PNG picture", path);
    }
    (void)fclose(d.file);
    ebb__allowance_give(allowance, d.taken_bytes);
    return status;
}
