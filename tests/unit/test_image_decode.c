/* SPDX-License-Identifier: Apache-2.0
 *
 * JPEG and PNG of every form give the pixels that were written, within the memory that is counted for them, also on
 * several threads at once; damaged, hostile and too large ones a message.
 */
#include "train/data_priv.h"

#include "data_files.h"

#include <malloc.h>
#include <pthread.h>

typedef struct picture {
    int64_t height, width, n_rows;
    int reduce;
    uint8_t left[3], right[3]; /* of row 1 */
    size_t most_bytes;         /* of the process's heap, seen at a row */
} picture;

/* The sanitizers count for themselves what malloc has given. */
size_t __sanitizer_get_current_allocated_bytes(void) __attribute__((weak));

static size_t heap_bytes(void) {
    if (__sanitizer_get_current_allocated_bytes != NULL) { return __sanitizer_get_current_allocated_bytes(); }
    struct mallinfo2 info = mallinfo2();
    return info.uordblks + info.hblkhd;
}

static int reduce(void *ctx, int64_t height, int64_t width) {
    (void)height;
    (void)width;
    return ((picture *)ctx)->reduce;
}

static void begin(void *ctx, int64_t height, int64_t width) {
    picture *p = ctx;
    p->height = height;
    p->width = width;
}

static bool row(void *ctx, int64_t y, const uint8_t *rgb) {
    picture *p = ctx;
    assert_int_equal(y, p->n_rows);
    p->n_rows++;
    if (y % 16 == 0) { p->most_bytes = (size_t)ebb_max_u64(p->most_bytes, heap_bytes()); }
    if (y == 1) {
        memcpy(p->left, rgb, 3);
        memcpy(p->right, rgb + 3 * (p->width - 1), 3);
    }
    return true;
}

static ebb_status decode_with(const char *path, picture *p, ebb_allowance *whole) {
    const ebb_row_sink sink = {reduce, begin, row, p};
    void *scratch = malloc(EBB_IMAGE_SCRATCH_BYTES);
    ebb_status status = ebb__image_decode(path, &sink, scratch, whole);
    free(scratch);
    return status;
}

static ebb_status decode(const char *path, picture *p) {
    ebb_allowance *whole = NULL;
    assert_int_equal(ebb__allowance_create(NULL, EBB_DATA_ALLOWANCE_BYTES, &whole), EBB_OK);
    ebb_status status = decode_with(path, p, whole);
    ebb__allowance_destroy(whole);
    return status;
}

static const uint8_t colour[3] = {200, 100, 40};

static void expect_picture(const char *name, int by, int tolerance) {
    picture p = {.reduce = by};
    assert_int_equal(decode(data_path(&test_dir, name), &p), EBB_OK);
    if (strstr(name, ".png") != NULL) { by = 1; }
    assert_int_equal(p.height, 48 / by);
    assert_int_equal(p.width, 64 / by);
    assert_int_equal(p.n_rows, p.height);
    for (int c = 0; c < 3; c++) {
        assert_true(abs(p.left[c] - colour[c]) <= tolerance);
        assert_true(abs(p.right[c] - colour[c] / 2) <= tolerance);
    }
}

static void test_pictures(void **state) {
    (void)state;
    data_put_png(&test_dir, "a.png", data_picture_of(48, 64, colour, false));
    data_put_png(&test_dir, "b.png", data_picture_of(48, 64, colour, true));
    data_put_jpeg(&test_dir, "c.jpg", data_picture_of(48, 64, colour, false));
    data_put_jpeg(&test_dir, "d.jpg", data_picture_of(48, 64, colour, true));
    for (int by = 1; by <= 8; by *= 2) {
        expect_picture("a.png", by, 0);
        expect_picture("b.png", by, 0);
        expect_picture("c.jpg", by, 3);
        expect_picture("d.jpg", by, 3);
    }
}

/* Rare but legal pictures. */
static void test_forms(void **state) {
    (void)state;
    const data_picture base = data_picture_of(48, 64, colour, false);
    data_picture p = base;
    p.one_scan_each = true;
    data_put_jpeg(&test_dir, "scans.jpg", p);
    expect_picture("scans.jpg", 1, 3);
    p = base;
    p.restart = 2;
    p.sampling = 1;
    data_put_jpeg(&test_dir, "restart.jpg", p);
    expect_picture("restart.jpg", 2, 3);
    for (int in_passes = 0; in_passes < 2; in_passes++) {
        static const int types[] = {PNG_COLOR_TYPE_RGB, PNG_COLOR_TYPE_RGB_ALPHA};
        for (int i = 0; i < 4; i++) {
            p = data_picture_of(48, 64, colour, in_passes == 1);
            p.png_type = types[i / 2];
            p.depth = i % 2 == 0 ? 8 : 16;
            p.text = "words";
            data_put_png(&test_dir, "form.png", p);
            expect_picture("form.png", 1, 0);
        }
        p.png_type = PNG_COLOR_TYPE_PALETTE;
        p.depth = 1;
        data_put_png(&test_dir, "palette.png", p);
        expect_picture("palette.png", 1, 0);
    }
}

/* ---- memory ----------------------------------------------------------------------------------- */

/* How many bytes of the heap the decoding had at its height. */
static size_t most_bytes(const char *name) {
    picture p = {.reduce = 1};
    const size_t before = heap_bytes();
    if (decode(data_path(&test_dir, name), &p) != EBB_OK) { fail_msg("%s", ebb_last_error()); }
    assert_true(p.most_bytes > before);
    return p.most_bytes - before - EBB_IMAGE_SCRATCH_BYTES;
}

static void expect_rows_within(size_t width) {
    const size_t limit = EBB_IMAGE_START_BYTES + EBB_IMAGE_COLUMN_BYTES * width;
    data_picture p = {.height = 64, .width = width, .rgb = {200, 100, 40}, .space = JCS_CMYK};
    data_put_jpeg(&test_dir, "wide.jpg", p);
    assert_true(most_bytes("wide.jpg") <= limit);
    p.space = JCS_UNKNOWN;
    p.sampling = 2;
    data_put_jpeg(&test_dir, "wide.jpg", p);
    assert_true(most_bytes("wide.jpg") <= limit);
    p.png_type = PNG_COLOR_TYPE_RGB_ALPHA;
    p.depth = 16;
    data_put_png(&test_dir, "wide.png", p);
    assert_true(most_bytes("wide.png") <= limit);
}

static void test_memory_row_by_row(void **state) {
    (void)state;
    for (size_t width = 16; width <= EBB_IMAGE_MAX_SIDE; width *= 4) { expect_rows_within(width); }
    expect_rows_within(EBB_IMAGE_MAX_SIDE);
}

static void test_memory_of_whole_pictures(void **state) {
    (void)state;
    const size_t height = 1000, width = 1500;
    data_picture p = {.height = height, .width = width, .rgb = {200, 100, 40}, .in_passes = true, .sampling = 1};
    data_put_jpeg(&test_dir, "whole.jpg", p);
    size_t bytes = most_bytes("whole.jpg");
    assert_true(bytes >= height * width * 3 * sizeof(JCOEF));
    assert_true(bytes <= height * width * 3 * sizeof(JCOEF) * 11 / 10 + EBB_IMAGE_THREAD_BYTES);
    data_put_png(&test_dir, "whole.png", p);
    bytes = most_bytes("whole.png");
    assert_true(bytes >= height * width * 3 && bytes <= height * width * 3 + EBB_IMAGE_THREAD_BYTES);
}

/* An allowance for one at a time; what never fits is refused. */
static void *decode_often(void *arg) {
    for (int i = 0; i < 5; i++) {
        char path[300];
        picture p = {.reduce = 1};
        (void)snprintf(path, sizeof path, "%s/%s", test_dir.path, i % 2 == 0 ? "w.jpg" : "w.png");
        if (decode_with(path, &p, arg) != EBB_OK || p.n_rows != 96) { return NULL; }
    }
    return arg;
}

static void test_threads_share_an_allowance(void **state) {
    (void)state;
    enum { N_THREADS = 6 };
    pthread_t threads[N_THREADS];
    ebb_allowance *whole = NULL;
    data_picture p = {.height = 96, .width = 128, .rgb = {200, 100, 40}, .in_passes = true, .sampling = 1};
    data_put_jpeg(&test_dir, "w.jpg", p);
    data_put_png(&test_dir, "w.png", p);
    /* the JPEG takes 73,728, its pointers, and its rows */
    assert_int_equal(ebb__allowance_create(NULL, 80000 + 128 * EBB_IMAGE_COLUMN_BYTES, &whole), EBB_OK);
    for (int i = 0; i < N_THREADS; i++) { assert_int_equal(pthread_create(&threads[i], NULL, decode_often, whole), 0); }
    for (int i = 0; i < N_THREADS; i++) {
        void *done = NULL;
        assert_int_equal(pthread_join(threads[i], &done), 0);
        assert_ptr_equal(done, whole);
    }
    const uint64_t peak_bytes = ebb__allowance_peak(whole);
    assert_true(peak_bytes > 73728 + 128 * EBB_IMAGE_COLUMN_BYTES && peak_bytes <= ebb__allowance_bytes(whole));
    ebb__allowance_limit(whole, 70000);
    picture refused = {.reduce = 1};
    assert_int_equal(decode_with(data_path(&test_dir, "w.jpg"), &refused, whole), EBB_E_FORMAT);
    expect_message("at most 70000 are taken");
    ebb__allowance_destroy(whole);
}

static void expect_failure(const char *name, ebb_status status, const char *says) {
    picture p = {.reduce = 1};
    assert_int_equal(decode(data_path(&test_dir, name), &p), status);
    assert_non_null(strstr(ebb_last_error(), test_dir.file)); /* the file */
    expect_message(says);
}

static void truncate_to(const char *name, double part) {
    struct stat info;
    assert_int_equal(stat(data_path(&test_dir, name), &info), 0);
    assert_int_equal(truncate(test_dir.file, (off_t)((double)info.st_size * part)), 0);
}

static void test_damaged_files(void **state) {
    (void)state;
    static const double parts[] = {0.9, 0.6, 0.3, 0.05};
    for (size_t i = 0; i < sizeof parts / sizeof parts[0]; i++) {
        data_put_png(&test_dir, "t.png", data_picture_of(48, 64, colour, i % 2 == 0));
        truncate_to("t.png", parts[i]);
        expect_failure("t.png", EBB_E_FORMAT, "byte ");
        data_put_jpeg(&test_dir, "t.jpg", data_picture_of(48, 64, colour, false));
        truncate_to("t.jpg", parts[i]);
        expect_failure("t.jpg", EBB_E_FORMAT, "byte ");
    }
    data_put(&test_dir, "text.jpg", "this is no picture", 18);
    expect_failure("text.jpg", EBB_E_FORMAT, "neither");
    data_put(&test_dir, "empty.png", "", 0);
    expect_failure("empty.png", EBB_E_FORMAT, "neither");
    expect_failure("none.png", EBB_E_IO, "No such file");
}

static void test_too_large(void **state) {
    (void)state;
    data_picture p = {.height = 4, .width = EBB_IMAGE_MAX_SIDE + 1, .rgb = {200, 100, 40}};
    data_put_png(&test_dir, "long.png", p);
    expect_failure("long.png", EBB_E_FORMAT, "a picture of 4 x 16385 pixels; at most 16384");
    data_put_jpeg(&test_dir, "long.jpg", p);
    expect_failure("long.jpg", EBB_E_FORMAT, "a picture of 4 x 16385 pixels; at most 16384");
    p = (data_picture){.height = 1500, .width = 16000, .rgb = {200, 100, 40}, .in_passes = true, .sampling = 1};
    data_put_jpeg(&test_dir, "whole.jpg", p);
    expect_failure("whole.jpg", EBB_E_FORMAT, "a JPEG in several scans, which takes 148228512 bytes");
    data_put_png(&test_dir, "whole.png", p);
    expect_failure("whole.png", EBB_E_FORMAT,
                   "an interlaced PNG, which takes 75840000 bytes to decode; at most 71303168");
}

/* A header that promises little and a content that wants much: the library gets what the header was given. */
static void test_scans_without_end(void **state) {
    (void)state;
    static uint8_t bytes[1 << 16];
    data_put_jpeg(&test_dir, "s.jpg",
                  (data_picture){.height = 8, .width = 8, .space = JCS_GRAYSCALE, .in_passes = true});
    FILE *file = fopen(data_path(&test_dir, "s.jpg"), "rb");
    size_t n = fread(bytes, 1, sizeof bytes, file);
    (void)fclose(file);
    size_t sos = 0;
    for (size_t i = 2; i + 1 < n; i++) {
        if (bytes[i] == 0xff && bytes[i + 1] == 0xda) { sos = i; }
    }
    const size_t n_scan = n - 2 - sos; /* the last scan, up to the end's marker */
    assert_true(sos > 0 && n + 600 * n_scan < sizeof bytes);
    for (int i = 0; i < 600; i++) { memcpy(bytes + n - 2 + (size_t)i * n_scan, bytes + sos, n_scan); }
    memcpy(bytes + n - 2 + 600 * n_scan, "\xff\xd9", 2);
    data_put(&test_dir, "s.jpg", bytes, n + 600 * n_scan);
    expect_failure("s.jpg", EBB_E_FORMAT, "more than 500 scans");
}

/* Every byte of a small file flipped in turn: it decodes or says why not. */
static void test_flipped_bytes(void **state) {
    (void)state;
    static uint8_t bytes[1 << 16];
    for (int kind = 0; kind < 2; kind++) {
        if (kind == 0) { data_put_png(&test_dir, "f", data_picture_of(8, 8, colour, true)); }
        if (kind == 1) { data_put_jpeg(&test_dir, "f", data_picture_of(8, 8, colour, true)); }
        FILE *file = fopen(data_path(&test_dir, "f"), "rb");
        size_t n = fread(bytes, 1, sizeof bytes, file);
        (void)fclose(file);
        for (size_t i = 0; i < n; i++) {
            bytes[i] ^= 0x40;
            data_put(&test_dir, "f", bytes, n);
            picture p = {.reduce = 1};
            ebb_status status = decode(data_path(&test_dir, "f"), &p);
            assert_true(status == EBB_OK || status == EBB_E_FORMAT);
            bytes[i] ^= 0x40;
        }
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        IN_DIR(test_pictures),
        IN_DIR(test_forms),
        IN_DIR(test_memory_row_by_row),
        IN_DIR(test_memory_of_whole_pictures),
        IN_DIR(test_threads_share_an_allowance),
        IN_DIR(test_damaged_files),
        IN_DIR(test_too_large),
        IN_DIR(test_scans_without_end),
        IN_DIR(test_flipped_bytes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
