/* SPDX-License-Identifier: Apache-2.0
 *
 * Data by description: every kind's images, labels and splits; batches are a pure function of epoch and place,
 * whatever the threads and whether they were prefetched; bad files are told.
 */
#include "ebb/train.h"

#include "data_files.h"
#include "train/safetensors.h"

#include <math.h>

static const char *spec_of(const char *scheme, const char *name) {
    static char spec[512];
    (void)snprintf(spec, sizeof spec, "%s:%s%s%s", scheme, test_dir.path, name[0] != '\0' ? "/" : "", name);
    return spec;
}

static ebb_data *open_data(const char *spec, ebb_split split, ebb_data_options o) {
    ebb_data *data = NULL;
    o.split = split;
    if (ebb_data_open(spec, &o, &data) != EBB_OK) { fail_msg("%s", ebb_last_error()); }
    return data;
}

static void expect_refused(const char *spec, ebb_split split, ebb_data_options o, ebb_status status, const char *says) {
    ebb_data *data = NULL;
    o.split = split;
    assert_int_equal(ebb_data_open(spec, &o, &data), status);
    assert_null(data);
    expect_message(says);
}

static const ebb_data_options plain = EBB_DATA_OPTIONS_INIT;

/* ---- each kind -------------------------------------------------------------------------------- */

static void test_mnist(void **state) {
    (void)state;
    float images[4 * 25];
    int32_t labels[4];
    int64_t n_valid = 0;
    data_put_mnist(&test_dir, 23, 7, 5);
    ebb_data *test = open_data(spec_of("mnist", ""), EBB_SPLIT_TEST, plain);
    ebb_data_info info = ebb_data_get_info(test);
    assert_int_equal(info.n_images, 7);
    assert_int_equal(info.height * 100 + info.width * 10 + info.channels, 551);
    assert_int_equal(info.classes, 10);
    assert_true(info.host_bytes >= 7 * (25 + 4));
    assert_int_equal(ebb_data_read(test, (ebb_batch){0, 1, 4}, images, labels, &n_valid), EBB_OK);
    assert_int_equal(n_valid, 3);
    for (size_t i = 0; i < 4; i++) {
        assert_int_equal(labels[i], i < 3 ? data_label(4 + i) : 0);
        for (size_t p = 0; p < 25; p++) {
            float want = i < 3 ? ((float)data_pixel(4 + i, p) / 255.0f - 0.1307f) / 0.3081f : 0.0f;
            assert_true(fabsf(images[i * 25 + p] - want) < 1e-5f);
        }
    }
    assert_int_equal(ebb_data_read(test, (ebb_batch){0, 2, 4}, images, labels, &n_valid), EBB_E_ARGUMENT);
    ebb_data_close(test);
    ebb_data *train = open_data(spec_of("mnist", ""), EBB_SPLIT_TRAIN, plain);
    assert_int_equal(ebb_data_read(train, (ebb_batch){0, 4, 4}, images, labels, &n_valid), EBB_OK);
    assert_int_equal(ebb_data_read(train, (ebb_batch){0, 5, 4}, images, labels, &n_valid),
                     EBB_E_ARGUMENT); /* incomplete */
    ebb_data_close(train);
}

static void test_mnist_refusals(void **state) {
    (void)state;
    static uint8_t buf[8192];
    expect_refused(spec_of("mnist", ""), EBB_SPLIT_TRAIN, plain, EBB_E_IO, "no such file");
    data_put_mnist(&test_dir, 23, 7, 5);
    size_t n = data_make_idx(buf, 23, 5);
    data_put(&test_dir, "train-images-idx3-ubyte", buf, n - 1);
    expect_refused(spec_of("mnist", ""), EBB_SPLIT_TRAIN, plain, EBB_E_FORMAT, "1 bytes are missing");
    data_put(&test_dir, "train-images-idx3-ubyte", buf, n + 1);
    expect_refused(spec_of("mnist", ""), EBB_SPLIT_TRAIN, plain, EBB_E_FORMAT, "goes on after its end");
    buf[3] = 1;
    data_put(&test_dir, "train-images-idx3-ubyte", buf, n);
    expect_refused(spec_of("mnist", ""), EBB_SPLIT_TRAIN, plain, EBB_E_FORMAT, "byte 0");
    n = data_make_idx(buf, 23, 5);
    memset(buf + 4, 0xff, 4); /* four thousand million images */
    data_put(&test_dir, "train-images-idx3-ubyte", buf, n);
    expect_refused(spec_of("mnist", ""), EBB_SPLIT_TRAIN, plain, EBB_E_FORMAT, "bytes are missing");
    n = data_make_idx(buf, 22, 0);
    data_put_mnist(&test_dir, 23, 7, 5);
    data_put_gz(&test_dir, "train-labels-idx1-ubyte.gz", buf, n);
    expect_refused(spec_of("mnist", ""), EBB_SPLIT_TRAIN, plain, EBB_E_FORMAT, "22 labels for 23 images");
    n = data_make_idx(buf, 23, 0);
    buf[8 + 17] = 10;
    data_put_gz(&test_dir, "train-labels-idx1-ubyte.gz", buf, n);
    expect_refused(spec_of("mnist", ""), EBB_SPLIT_TRAIN, plain, EBB_E_FORMAT,
                   "train-labels-idx1-ubyte.gz: record 17: label 10 is not among 10 classes");
    struct stat info;
    assert_int_equal(stat(data_path(&test_dir, "train-labels-idx1-ubyte.gz"), &info), 0);
    assert_int_equal(truncate(test_dir.file, info.st_size - 6), 0);
    expect_refused(spec_of("mnist", ""), EBB_SPLIT_TRAIN, plain, EBB_E_FORMAT, "is cut off");
    ebb_data_options o = plain;
    o.classes = 5;
    expect_refused(spec_of("mnist", ""), EBB_SPLIT_TEST, o, EBB_E_FORMAT, "record 5: label 5 is not among 5 classes");
}

static void put_cifar(const char *name, size_t n, size_t n_label_bytes, size_t n_bytes_less) {
    const size_t record = n_label_bytes + 3072;
    uint8_t *buf = calloc(n, record);
    for (size_t i = 0; i < n; i++) {
        buf[i * record + n_label_bytes - 1] = data_label(i);
        for (size_t p = 0; p < 3072; p++) { buf[i * record + n_label_bytes + p] = data_pixel(i, p); }
    }
    data_put(&test_dir, name, buf, n * record - n_bytes_less);
    free(buf);
}

static void test_cifar(void **state) {
    (void)state;
    static float images[3 * 3072];
    int32_t labels[3];
    char name[32];
    for (int i = 1; i <= 5; i++) {
        (void)snprintf(name, sizeof name, "data_batch_%d.bin", i);
        put_cifar(name, (size_t)i, 1, 0);
    }
    put_cifar("test_batch.bin", 3, 1, 0);
    put_cifar("train.bin", 4, 2, 0);
    put_cifar("test.bin", 2, 2, 10);
    ebb_data *train = open_data(spec_of("cifar10", ""), EBB_SPLIT_TRAIN, plain);
    assert_int_equal(ebb_data_get_info(train).n_images, 15);
    ebb_data_close(train);
    ebb_data *test = open_data(spec_of("cifar10", ""), EBB_SPLIT_TEST, plain);
    assert_int_equal(ebb_data_read(test, (ebb_batch){0, 0, 3}, images, labels, NULL), EBB_OK);
    assert_int_equal(labels[2], 2);
    float want = ((float)data_pixel(2, 1024) / 255.0f - 0.4822f) / 0.2435f; /* the first green one */
    assert_true(fabsf(images[2 * 3072 + 1024] - want) < 1e-5f);
    ebb_data_close(test);
    train = open_data(spec_of("cifar100", ""), EBB_SPLIT_TRAIN, plain);
    assert_int_equal(ebb_data_get_info(train).n_images, 4);
    assert_int_equal(ebb_data_get_info(train).classes, 100);
    ebb_data_close(train);
    expect_refused(spec_of("cifar100", ""), EBB_SPLIT_TEST, plain, EBB_E_FORMAT, "10 bytes are missing");
    ebb_data_options o = plain;
    o.classes = 2;
    expect_refused(spec_of("cifar10", ""), EBB_SPLIT_TRAIN, o, EBB_E_FORMAT,
                   "data_batch_3.bin: record 2: label 2 is not among 2 classes");
}

static void test_digits(void **state) {
    (void)state;
    static float images[64];
    int32_t label = 0;
    data_put_digits(&test_dir, "d.csv.gz", 33);
    ebb_data *test = open_data(spec_of("digits", "d.csv.gz"), EBB_SPLIT_TEST, plain);
    assert_int_equal(ebb_data_get_info(test).n_images, 6);
    assert_int_equal(ebb_data_read(test, (ebb_batch){0, 1, 1}, images, &label, NULL), EBB_OK);
    assert_int_equal(label, 3); /* row 9, the tenth */
    ebb_data_close(test);
    ebb_data *train = open_data(spec_of("digits", "d.csv.gz"), EBB_SPLIT_TRAIN, plain);
    assert_int_equal(ebb_data_get_info(train).n_images, 27);
    ebb_data_close(train);
    static const struct {
        const char *text, *says;
    } bad[] = {
        {"1,2,3\n", "line 1: a row of fewer"},
        {"a", "line 1: not a row"},
        {"", "line 1: no images"},
        {"0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,"
         "0,"
         "0,0,0,0,0,0,0,0,0,10\n",
         "line 1: label 10"},
        {"0,17,0", "line 1: pixel 1 is 17"},
        {"0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,"
         "0,"
         "0,0,0,0,0,0,0,0,0,1,1\n",
         "line 1: a row of more"},
    };
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        data_put(&test_dir, "bad.csv", bad[i].text, strlen(bad[i].text));
        expect_refused(spec_of("digits", "bad.csv"), EBB_SPLIT_TRAIN, plain, EBB_E_FORMAT, bad[i].says);
    }
}

static void put_tensors(const char *name, bool test, int32_t last_label) {
    ebb_st_writer *writer = NULL;
    const int64_t dims[4] = {3, 1, 2, 2};
    float images[12];
    const int64_t labels[3] = {2, 0, last_label};
    for (int i = 0; i < 12; i++) { images[i] = (float)i - 4.5f; }
    assert_int_equal(ebb__st_writer_create(NULL, data_path(&test_dir, name), &writer), EBB_OK);
    assert_int_equal(ebb__st_writer_add(writer, test ? "test_images" : "images", EBB_ST_F32, 4, dims), EBB_OK);
    assert_int_equal(ebb__st_writer_add(writer, test ? "test_labels" : "labels", EBB_ST_I64, 1, dims), EBB_OK);
    assert_int_equal(ebb__st_writer_begin(writer), EBB_OK);
    assert_int_equal(ebb__st_writer_append(writer, images, sizeof images), EBB_OK);
    assert_int_equal(ebb__st_writer_append(writer, labels, sizeof labels), EBB_OK);
    assert_int_equal(ebb__st_writer_commit(writer), EBB_OK);
}

static void test_tensors(void **state) {
    (void)state;
    float images[12];
    int32_t labels[3];
    put_tensors("t.safetensors", false, 4);
    ebb_data *data = open_data(spec_of("tensors", "t.safetensors"), EBB_SPLIT_TRAIN, plain);
    assert_int_equal(ebb_data_get_info(data).classes, 5);
    assert_int_equal(ebb_data_read(data, (ebb_batch){3, 0, 3}, images, labels, NULL), EBB_OK);
    for (int i = 0; i < 12; i++) { assert_true(images[i] == (float)i - 4.5f); } /* in order, as they are */
    assert_int_equal(labels[0] * 100 + labels[1] * 10 + labels[2], 204);
    ebb_data_close(data);
    data = open_data(spec_of("tensors", "t.safetensors"), EBB_SPLIT_TEST, plain);
    assert_int_equal(ebb_data_get_info(data).n_images, 0);
    ebb_data_close(data);
    put_tensors("t.safetensors", false, -1);
    expect_refused(spec_of("tensors", "t.safetensors"), EBB_SPLIT_TRAIN, plain, EBB_E_FORMAT, "record 2: label -1");
    put_tensors("t.safetensors", true, 1);
    expect_refused(spec_of("tensors", "t.safetensors"), EBB_SPLIT_TRAIN, plain, EBB_E_FORMAT, "no tensor 'images'");
}

static void test_images(void **state) {
    (void)state;
    static float images[2 * 3 * 16 * 16];
    int32_t labels[2];
    static const uint8_t colours[2][3] = {{220, 40, 90}, {30, 200, 120}};
    data_put_jpeg(&test_dir, "p/train/cat/1.jpg", data_picture_of(40, 30, colours[0], false));
    data_put_png(&test_dir, "p/train/dog/2.PNG", data_picture_of(50, 90, colours[1], false));
    data_put(&test_dir, "p/train/dog/notes.txt", "x", 1);
    data_put_jpeg(&test_dir, "p/val/dog/3.jpeg", data_picture_of(64, 64, colours[1], true));
    ebb_data_options o = plain;
    o.height = o.width = 16;
    ebb_data *test = open_data(spec_of("images", "p"), EBB_SPLIT_TEST, o);
    assert_int_equal(ebb_data_get_info(test).n_images, 1);
    assert_int_equal(ebb_data_get_info(test).classes, 2);
    assert_int_equal(ebb_data_read(test, (ebb_batch){0, 0, 1}, images, labels, NULL), EBB_OK);
    assert_int_equal(labels[0], 1);
    static const float mean[3] = {0.485f, 0.456f, 0.406f}, deviation[3] = {0.229f, 0.224f, 0.225f};
    for (int c = 0; c < 3; c++) { /* the brighter half is on the left */
        float left = ((float)colours[1][c] / 255 - mean[c]) / deviation[c];
        float right = ((float)(colours[1][c] / 2) / 255 - mean[c]) / deviation[c];
        assert_true(fabsf(images[c * 256 + 8 * 16] - left) < 0.08f);
        assert_true(fabsf(images[c * 256 + 8 * 16 + 15] - right) < 0.08f);
    }
    ebb_data_close(test);
    ebb_data *train = open_data(spec_of("images", "p"), EBB_SPLIT_TRAIN, o);
    assert_int_equal(ebb_data_get_info(train).n_images, 2);
    assert_int_equal(ebb_data_read(train, (ebb_batch){0, 0, 2}, images, labels, NULL), EBB_OK);
    assert_int_equal(labels[0] + labels[1], 1);
    ebb_data_close(train);
    o.classes = 1;
    expect_refused(spec_of("images", "p"), EBB_SPLIT_TRAIN, o, EBB_E_FORMAT, "train/dog: label 1 is not among 1");
    expect_refused(spec_of("images", "q"), EBB_SPLIT_TRAIN, plain, EBB_E_IO, "No such file");
    data_put(&test_dir, "r/train/cat/x.txt", "x", 1);
    expect_refused(spec_of("images", "r"), EBB_SPLIT_TRAIN, plain, EBB_E_FORMAT, "no .jpg");
}

/* Folders without a split: every tenth of a class is held out, and nothing is in both. */
static void test_images_without_split(void **state) {
    (void)state;
    static const uint8_t colour[3] = {9, 9, 9};
    char name[64];
    for (int i = 0; i < 25; i++) {
        (void)snprintf(name, sizeof name, "s/%s/%02d.png", i % 2 == 0 ? "a" : "b", i);
        data_put_png(&test_dir, name, data_picture_of(4, 4, colour, false));
    }
    ebb_data_options o = plain;
    o.height = o.width = 4;
    ebb_data *train = open_data(spec_of("images", "s"), EBB_SPLIT_TRAIN, o);
    ebb_data *test = open_data(spec_of("images", "s"), EBB_SPLIT_TEST, o);
    assert_int_equal(ebb_data_get_info(train).n_images, 23);
    assert_int_equal(ebb_data_get_info(test).n_images, 2);
    ebb_data_close(train);
    ebb_data_close(test);
}

static void test_damaged_picture_is_named(void **state) {
    (void)state;
    static const uint8_t colour[3] = {9, 99, 9};
    static float images[6 * 3 * 16];
    int32_t labels[6];
    char name[32];
    for (int i = 0; i < 6; i++) {
        (void)snprintf(name, sizeof name, "s/train/a/%d.png", i);
        data_put_png(&test_dir, name, data_picture_of(4, 4, colour, false));
    }
    for (int i = 2; i < 6; i += 2) {
        (void)snprintf(name, sizeof name, "s/train/a/%d.png", i);
        data_put(&test_dir, name, "oops", 4);
    }
    ebb_data_options o = plain;
    o.height = o.width = 4;
    o.n_threads = 4;
    data_put_png(&test_dir, "s/test/a/0.png", data_picture_of(4, 4, colour, false));
    ebb_data *data = open_data(spec_of("images", "s"), EBB_SPLIT_TRAIN, o);
    char first[512] = "";
    for (int i = 0; i < 20; i++) { /* the same one each time, prefetched or not */
        if (i % 2 == 0) { assert_int_equal(ebb_data_prefetch(data, (ebb_batch){0, 0, 6}), EBB_OK); }
        assert_int_equal(ebb_data_read(data, (ebb_batch){0, 0, 6}, images, labels, NULL), EBB_E_FORMAT);
        if (i == 0) { (void)snprintf(first, sizeof first, "%s", ebb_last_error()); }
        assert_string_equal(ebb_last_error(), first);
    }
    ebb_data_close(data);
}

/* ---- batches ---------------------------------------------------------------------------------- */

typedef enum ahead { AHEAD_NOT, AHEAD_OWN, AHEAD_LENT } ahead;

/* A hash of batches of three epochs, in an order of the caller's. */
static uint64_t hash_batches(const char *spec, ebb_data_options o, int32_t n_threads, ahead prefetch) {
    o.n_threads = n_threads;
    ebb_data *data = open_data(spec, EBB_SPLIT_TRAIN, o);
    ebb_data_info info = ebb_data_get_info(data);
    const int64_t n = 4;
    const size_t elements = (size_t)(n * info.channels * info.height * info.width);
    float *memory = malloc(2 * elements * sizeof *memory);
    int32_t all_labels[2][4];
    uint64_t h = EBB_HASH_INIT;
    for (uint64_t b = 0; b < 9; b++) {
        const bool odd = b % 2 != 0 && b != 7; /* at 7 it was lent other memory than it is read to */
        float *images = memory + odd * elements, *other = memory + !odd * elements;
        const ebb_batch next = {(b + 1) / 3, (b + 1) % 3, n}, elsewhere = {0, 1, n};
        int32_t *labels = all_labels[odd];
        assert_int_equal(ebb_data_read(data, (ebb_batch){b / 3, b % 3, n}, images, labels, NULL), EBB_OK);
        if (prefetch == AHEAD_OWN) { assert_int_equal(ebb_data_prefetch(data, next), EBB_OK); }
        if (prefetch == AHEAD_LENT) {
            assert_int_equal(ebb_data_prefetch_to(data, next, other, all_labels[!odd]), EBB_OK);
        }
        if (prefetch != AHEAD_NOT && b == 4) { assert_int_equal(ebb_data_prefetch(data, elsewhere), EBB_OK); }
        h = ebb__hash(h, images, elements * sizeof *images);
        h = ebb__hash(h, labels, n * sizeof *labels);
    }
    ebb_data_close(data);
    free(memory);
    return h;
}

static void test_threads_and_prefetch_show_nowhere(void **state) {
    (void)state;
    static const uint8_t colours[3][3] = {{220, 40, 90}, {30, 200, 120}, {90, 90, 200}};
    char name[64];
    for (size_t i = 0; i < 14; i++) {
        (void)snprintf(name, sizeof name, "p/train/%c/%02zu.%s", (char)('a' + i % 3), i, i % 2 == 0 ? "jpg" : "png");
        if (i % 2 == 0) {
            data_put_jpeg(&test_dir, name, data_picture_of(20 + 7 * i, 31 + 3 * i, colours[i % 3], i % 4 == 0));
        }
        if (i % 2 == 1) {
            data_put_png(&test_dir, name, data_picture_of(20 + 7 * i, 31 + 3 * i, colours[i % 3], i % 4 == 1));
        }
    }
    data_put_mnist(&test_dir, 23, 7, 5);
    char specs[3][512];
    (void)snprintf(specs[0], sizeof specs[0], "%s", spec_of("images", "p"));
    (void)snprintf(specs[1], sizeof specs[1], "%s", spec_of("mnist", ""));
    (void)snprintf(specs[2], sizeof specs[2], "synthetic");
    ebb_data_options o = plain;
    o.height = o.width = 24;
    o.augment = true;
    for (int s = 0; s < 3; s++) {
        o.seed = 5;
        uint64_t one = hash_batches(specs[s], o, 1, AHEAD_NOT);
        assert_int_equal(hash_batches(specs[s], o, 1, AHEAD_OWN), one);
        assert_int_equal(hash_batches(specs[s], o, 2, AHEAD_LENT), one);
        assert_int_equal(hash_batches(specs[s], o, 4, AHEAD_NOT), one);
        assert_int_equal(hash_batches(specs[s], o, 3, AHEAD_OWN), one);
        o.seed = 6;
        assert_int_not_equal(hash_batches(specs[s], o, 1, AHEAD_NOT), one);
    }
}

/* Random images that can be learned: those of a class are alike, those of two are not. */
static void test_synthetic_classes_have_patterns(void **state) {
    (void)state;
    enum { N = 64, ELEMENTS = 3 * 16 * 16 };
    static float images[N][ELEMENTS];
    int32_t labels[N];
    double sum = 0, squares = 0, alike[2] = {0}, n_pairs[2] = {0};
    ebb_data_options o = plain;
    o.channels = 3;
    o.height = o.width = 16;
    o.classes = 1000;
    ebb_data *data = open_data("synthetic", EBB_SPLIT_TRAIN, o);
    assert_int_equal(ebb_data_read(data, (ebb_batch){0, 0, N}, images[0], labels, NULL), EBB_OK);
    for (int a = 0; a < N; a++) {
        assert_in_range(labels[a], 0, 9);
        for (int i = 0; i < ELEMENTS; i++) {
            sum += (double)images[a][i];
            squares += (double)images[a][i] * (double)images[a][i];
        }
        for (int b = 0; b < a; b++) {
            double product = 0;
            for (int i = 0; i < ELEMENTS; i++) { product += (double)images[a][i] * (double)images[b][i] / ELEMENTS; }
            alike[labels[a] == labels[b]] += product;
            n_pairs[labels[a] == labels[b]]++;
        }
    }
    assert_true(fabs(sum / (N * ELEMENTS)) < 0.1 && fabs(squares / (N * ELEMENTS) - 1) < 0.05);
    assert_true(n_pairs[0] > 0 && n_pairs[1] > 0);
    assert_true(alike[1] / n_pairs[1] > 0.5 && fabs(alike[0] / n_pairs[0]) < 0.2);
    ebb_data_close(data);
}

/* An epoch shows every image at most once, the next one in another order. */
static void test_epochs_are_permutations(void **state) {
    (void)state;
    float images[2][23 * 25];
    int32_t labels[23];
    data_put_mnist(&test_dir, 23, 7, 5);
    ebb_data *data = open_data(spec_of("mnist", ""), EBB_SPLIT_TRAIN, plain);
    for (uint64_t epoch = 0; epoch < 2; epoch++) {
        assert_int_equal(ebb_data_read(data, (ebb_batch){epoch, 0, 23}, images[epoch], labels, NULL), EBB_OK);
        int count[10] = {0};
        for (int i = 0; i < 23; i++) { count[labels[i]]++; }
        for (int c = 0; c < 10; c++) { assert_int_equal(count[c], c < 3 ? 3 : 2); }
    }
    assert_memory_not_equal(images[0], images[1], sizeof images[0]);
    ebb_data_close(data);
}

static void test_sizes_on_request(void **state) {
    (void)state;
    static float images[2 * 3 * 10 * 12];
    int32_t labels[2];
    data_put_mnist(&test_dir, 23, 7, 5);
    ebb_data_options o = plain;
    o.channels = 3;
    o.height = 10;
    o.width = 12;
    ebb_data *data = open_data(spec_of("mnist", ""), EBB_SPLIT_TRAIN, o);
    assert_int_equal(ebb_data_read(data, (ebb_batch){0, 0, 2}, images, labels, NULL), EBB_OK);
    assert_memory_equal(images, images + 120, 120 * sizeof(float)); /* grey thrice */
    ebb_data_close(data);
    o.channels = 2;
    put_cifar("test_batch.bin", 3, 1, 0);
    expect_refused(spec_of("cifar10", ""), EBB_SPLIT_TEST, o, EBB_E_ARGUMENT, "3 channels, not 2");
}

static void test_bad_calls(void **state) {
    (void)state;
    ebb_data_options o = plain;
    static const char *const specs[] = {"", "mnis", "mnist", "mnist:", "synthetic:x", "nothing:here"};
    for (size_t i = 0; i < sizeof specs / sizeof specs[0]; i++) {
        expect_refused(specs[i], EBB_SPLIT_TRAIN, o, EBB_E_ARGUMENT, "no such kind of data");
    }
    o.size_bytes--;
    expect_refused("synthetic", EBB_SPLIT_TRAIN, o, EBB_E_ARGUMENT, "ebb_data_options of ");
    o = plain;
    o.height = -1;
    expect_refused("synthetic", EBB_SPLIT_TRAIN, o, EBB_E_ARGUMENT, "out of range");
    o = plain;
    o.n_threads = 1000;
    expect_refused("synthetic", EBB_SPLIT_TRAIN, o, EBB_E_ARGUMENT, "threads");
    o = plain;
    o.channels = o.height = o.width = 1;
    ebb_data *data = open_data("synthetic", EBB_SPLIT_TRAIN, o);
    float image;
    int32_t label;
    assert_int_equal(ebb_data_read(data, (ebb_batch){0, 0, 0}, &image, &label, NULL), EBB_E_ARGUMENT);
    assert_int_equal(ebb_data_read(data, (ebb_batch){0, UINT64_MAX, 2}, &image, &label, NULL), EBB_E_ARGUMENT);
    assert_int_equal(ebb_data_read(data, (ebb_batch){0, 1u << 30, 1}, &image, &label, NULL), EBB_OK);
    ebb_data_close(data);
    ebb_data_close(NULL);
}

static void test_out_of_memory(void **state) {
    (void)state;
    static const uint8_t colour[3] = {9, 99, 9};
    data_put_mnist(&test_dir, 23, 7, 5);
    data_put_digits(&test_dir, "d.csv.gz", 33);
    put_cifar("test.bin", 2, 2, 0);
    put_tensors("t.safetensors", false, 4);
    data_put_png(&test_dir, "p/a/0.png", data_picture_of(4, 4, colour, false));
    data_put_png(&test_dir, "p/b/0.png", data_picture_of(4, 4, colour, false));
    static const char *const schemes[][3] = {{"mnist", "", ""},
                                             {"digits", "d.csv.gz", ""},
                                             {"cifar100", "", "test"},
                                             {"tensors", "t.safetensors", ""},
                                             {"images", "p", ""}};
    for (size_t i = 0; i < sizeof schemes / sizeof schemes[0]; i++) {
        const char *spec = spec_of(schemes[i][0], schemes[i][1]);
        OOM_LOOP(mem, st, {
            ebb_data_options o = plain;
            ebb_data *data = NULL;
            o.mem = mem;
            o.height = o.width = 8;
            o.split = schemes[i][2][0] != '\0' ? EBB_SPLIT_TEST : EBB_SPLIT_TRAIN;
            st = ebb_data_open(spec, &o, &data);
            if (st == EBB_OK) { st = ebb_data_prefetch(data, (ebb_batch){0, 0, 1}); }
            ebb_data_close(data);
        });
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        IN_DIR(test_mnist),
        IN_DIR(test_mnist_refusals),
        IN_DIR(test_cifar),
        IN_DIR(test_digits),
        IN_DIR(test_tensors),
        IN_DIR(test_images),
        IN_DIR(test_images_without_split),
        IN_DIR(test_damaged_picture_is_named),
        IN_DIR(test_threads_and_prefetch_show_nowhere),
        IN_DIR(test_synthetic_classes_have_patterns),
        IN_DIR(test_epochs_are_permutations),
        IN_DIR(test_sizes_on_request),
        IN_DIR(test_bad_calls),
        IN_DIR(test_out_of_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
