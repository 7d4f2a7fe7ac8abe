/* SPDX-License-Identifier: Apache-2.0
 *
 * JPEG and PNG, plain, progressive and interlaced, give the pixels that were written; damaged ones a message.
 */
#include "train/data_priv.h"

#include "data_files.h"

static data_dir dir;

typedef struct picture {
    int64_t height, width, n_rows;
    int reduce;
    uint8_t left[3], right[3]; /* of row 1 */
} picture;

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
    if (y == 1) {
        memcpy(p->left, rgb, 3);
        memcpy(p->right, rgb + 3 * (p->width - 1), 3);
    }
    return true;
}

static ebb_status decode(const char *path, picture *p) {
    const ebb_row_sink sink = {reduce, begin, row, p};
    void *scratch = malloc(EBB_IMAGE_SCRATCH_BYTES);
    ebb_status status = ebb__image_decode(path, &sink, scratch);
    free(scratch);
    return status;
}

static const uint8_t colour[3] = {200, 100, 40};

static void expect_picture(const char *name, int by, int tolerance) {
    picture p = {.reduce = by};
    assert_int_equal(decode(data_path(&dir, name), &p), EBB_OK);
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
    data_put_png(&dir, "a.png", 48, 64, colour, false);
    data_put_png(&dir, "b.png", 48, 64, colour, true);
    data_put_jpeg(&dir, "c.jpg", 48, 64, colour, false);
    data_put_jpeg(&dir, "d.jpg", 48, 64, colour, true);
    for (int by = 1; by <= 8; by *= 2) {
        expect_picture("a.png", by, 0);
        expect_picture("b.png", by, 0);
        expect_picture("c.jpg", by, 3);
        expect_picture("d.jpg", by, 3);
    }
}

static void expect_failure(const char *name, ebb_status status, const char *says) {
    picture p = {.reduce = 1};
    assert_int_equal(decode(data_path(&dir, name), &p), status);
    assert_non_null(strstr(ebb_last_error(), dir.file)); /* the file */
    if (strstr(ebb_last_error(), says) == NULL) { fail_msg("'%s' does not say '%s'", ebb_last_error(), says); }
}

static void truncate_to(const char *name, double part) {
    struct stat info;
    assert_int_equal(stat(data_path(&dir, name), &info), 0);
    assert_int_equal(truncate(dir.file, (off_t)((double)info.st_size * part)), 0);
}

static void test_damaged_files(void **state) {
    (void)state;
    static const double parts[] = {0.9, 0.6, 0.3, 0.05};
    for (size_t i = 0; i < sizeof parts / sizeof parts[0]; i++) {
        data_put_png(&dir, "t.png", 48, 64, colour, i % 2 == 0);
        truncate_to("t.png", parts[i]);
        expect_failure("t.png", EBB_E_FORMAT, "byte ");
        data_put_jpeg(&dir, "t.jpg", 48, 64, colour, false);
        truncate_to("t.jpg", parts[i]);
        expect_failure("t.jpg", EBB_E_FORMAT, "byte ");
    }
    data_put(&dir, "text.jpg", "this is no picture", 18);
    expect_failure("text.jpg", EBB_E_FORMAT, "neither");
    data_put(&dir, "empty.png", "", 0);
    expect_failure("empty.png", EBB_E_FORMAT, "neither");
    expect_failure("none.png", EBB_E_IO, "No such file");
}

/* Every byte of a small file flipped in turn: it decodes or says why not. */
static void test_flipped_bytes(void **state) {
    (void)state;
    static uint8_t bytes[1 << 16];
    for (int kind = 0; kind < 2; kind++) {
        if (kind == 0) { data_put_png(&dir, "f", 8, 8, colour, true); }
        if (kind == 1) { data_put_jpeg(&dir, "f", 8, 8, colour, true); }
        FILE *file = fopen(data_path(&dir, "f"), "rb");
        size_t n = fread(bytes, 1, sizeof bytes, file);
        (void)fclose(file);
        for (size_t i = 0; i < n; i++) {
            bytes[i] ^= 0x40;
            data_put(&dir, "f", bytes, n);
            picture p = {.reduce = 1};
            ebb_status status = decode(data_path(&dir, "f"), &p);
            assert_true(status == EBB_OK || status == EBB_E_FORMAT);
            bytes[i] ^= 0x40;
        }
    }
}

static int setup(void **state) {
    (void)state;
    data_dir_make(&dir);
    return 0;
}

static int teardown(void **state) {
    (void)state;
    data_dir_remove(&dir);
    return 0;
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_pictures, setup, teardown),
        cmocka_unit_test_setup_teardown(test_damaged_files, setup, teardown),
        cmocka_unit_test_setup_teardown(test_flipped_bytes, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
