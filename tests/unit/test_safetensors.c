/* SPDX-License-Identifier: Apache-2.0
 *
 * Safetensors: what is written is read back, every type converts, and a hostile header is refused with a reason.
 */
#include "train/safetensors.h"

#include "data_files.h"

#include <math.h>

static ebb_status parse(const char *header, uint64_t content_bytes) {
    ebb_safetensors *file = NULL;
    ebb_status status = ebb__safetensors_parse(NULL, "f", header, strlen(header), content_bytes, &file);
    assert_true((file != NULL) == (status == EBB_OK));
    ebb__safetensors_close(file);
    return status;
}

static void expect_refused(const char *header, uint64_t content_bytes, const char *says) {
    assert_int_equal(parse(header, content_bytes), EBB_E_FORMAT);
    expect_message(says);
}

static void test_headers(void **state) {
    (void)state;
    assert_int_equal(parse("{}", 0), EBB_OK);
    assert_int_equal(parse("{\"a\":{\"dtype\":\"F32\",\"shape\":[],\"data_offsets\":[0,4]}}   ", 4), EBB_OK);
    assert_int_equal(parse("{\"__metadata__\":{\"k\":\"v\"},\"e\":{\"dtype\":\"F64\",\"shape\":[0,5],"
                           "\"data_offsets\":[0,0]},\"a\":{\"dtype\":\"U8\",\"shape\":[3],\"data_offsets\":[0,3]}}",
                           3),
                     EBB_OK);
    expect_refused("", 0, "not JSON");
    expect_refused("[1]", 0, "not an object");
    expect_refused("{\"a\":1}", 0, "not dtype, shape and data_offsets");
    expect_refused("{\"__metadata__\":{\"k\":1}}", 0, "not a text");
    expect_refused("{\"a\":{\"dtype\":\"F33\",\"shape\":[],\"data_offsets\":[0,4]}}", 4, "unknown dtype 'F33'");
    expect_refused("{\"a\":{\"dtype\":\"F32\",\"shape\":[-1],\"data_offsets\":[0,4]}}", 4, "dim 0");
    expect_refused("{\"a\":{\"dtype\":\"F32\",\"shape\":[1.5],\"data_offsets\":[0,4]}}", 4, "dim 0");
    expect_refused("{\"a\":{\"dtype\":\"F32\",\"shape\":[1,1,1,1,1,1,1,1,1],\"data_offsets\":[0,4]}}", 4, "at most 8");
    expect_refused("{\"a\":{\"dtype\":\"F32\",\"shape\":[9223372036854775807,9223372036854775807],"
                   "\"data_offsets\":[0,4]}}",
                   4, "dim 1");
    expect_refused("{\"a\":{\"dtype\":\"F32\",\"shape\":[4611686018427387905],\"data_offsets\":[0,4]}}", 4,
                   "do not make");
    expect_refused("{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,4]}}", 4, "do not make 4 bytes");
    expect_refused("{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]}}", 4, "ends at byte 8");
    expect_refused("{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[8,0]}}", 8, "not two places");
    expect_refused("{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[4,8]}}", 8, "after a gap");
    expect_refused("{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]}}", 8, "which has 8");
    expect_refused("{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]},"
                   "\"b\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[2,6]}}",
                   6, "inside another");
    expect_refused("{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]},"
                   "\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[4,8]}}",
                   8, "not JSON");
    expect_refused("{\"__metadata__\":{},\"__metadata__\":{}}", 0, "not JSON");
    expect_refused("{\"__metadata__\":{\"k\":\"a\",\"l\":\"\",\"k\":\"b\"}}", 0, "not JSON");
    expect_refused("{\"__metadata__\":{\"k\":\"\xff\"}}", 0, "not JSON");
    expect_refused("{\"__metadata__\":{\"k\":\"a\"}", 0, "not JSON");
    expect_refused("{} {", 0, "not JSON");
}

static void write_example(const char *name) {
    ebb_st_writer *writer = NULL;
    const int64_t dims[2] = {2, 3};
    const float weights[6] = {1, -2, 0.5f, 3e38f, -0.0f, 1e-40f};
    const int64_t count = 7;
    assert_int_equal(ebb__st_writer_create(NULL, data_path(&test_dir, name), &writer), EBB_OK);
    assert_int_equal(ebb__st_writer_set(writer, "format", "pt"), EBB_OK);
    assert_int_equal(ebb__st_writer_set(writer, "bad", "\xff\xfe"), EBB_E_ARGUMENT);
    assert_int_equal(ebb__st_writer_add(writer, "fc.weight", EBB_ST_F32, 2, dims), EBB_OK);
    assert_int_equal(ebb__st_writer_add(writer, "bn.count", EBB_ST_I64, 0, NULL), EBB_OK);
    assert_int_equal(ebb__st_writer_add(writer, "bn.count", EBB_ST_I64, 0, NULL), EBB_E_ARGUMENT);
    assert_int_equal(ebb__st_writer_begin(writer), EBB_OK);
    assert_int_equal(ebb__st_writer_append(writer, weights, sizeof weights), EBB_OK);
    assert_int_equal(ebb__st_writer_append(writer, &count, sizeof count), EBB_OK);
    assert_int_equal(ebb__st_writer_commit(writer), EBB_OK);
}

static void test_round_trip(void **state) {
    (void)state;
    const float weights[6] = {1, -2, 0.5f, 3e38f, -0.0f, 1e-40f};
    float got[6];
    int32_t count = 0;
    ebb_safetensors *file = NULL;
    write_example("w");
    assert_int_equal(ebb__safetensors_open(NULL, data_path(&test_dir, "w"), &file), EBB_OK);
    assert_int_equal(file->content % 8, 0);
    assert_string_equal(ebb__safetensors_metadata(file, "format"), "pt");
    assert_null(ebb__safetensors_metadata(file, "nothing"));
    assert_null(ebb__safetensors_find(file, "fc"));
    const ebb_st_tensor *tensor = ebb__safetensors_find(file, "fc.weight");
    assert_int_equal(tensor->dims[0] * 10 + tensor->dims[1], 23);
    assert_int_equal(ebb__safetensors_read_f32(file, tensor, 0, 6, got), EBB_OK);
    assert_memory_equal(got, weights, sizeof weights);
    assert_int_equal(ebb__safetensors_read_f32(file, tensor, 4, 2, got), EBB_OK);
    assert_memory_equal(got, weights + 4, 8);
    assert_int_equal(ebb__safetensors_read_s32(file, tensor, 0, 1, &count), EBB_E_FORMAT);
    tensor = ebb__safetensors_find(file, "bn.count");
    assert_int_equal(ebb__safetensors_read_s32(file, tensor, 0, 1, &count), EBB_OK);
    assert_int_equal(count, 7);
    ebb__safetensors_close(file);
}

/* A file of one tensor with these bytes. */
static ebb_safetensors *open_raw(const char *dtype, size_t n, size_t elem_bytes, const void *content) {
    uint8_t bytes[1024] = {0};
    char *header = (char *)bytes + 8;
    int length = sprintf(header, "{\"x\":{\"dtype\":\"%s\",\"shape\":[%zu],\"data_offsets\":[0,%zu]}}", dtype, n,
                         n * elem_bytes);
    bytes[0] = (uint8_t)length;
    memcpy(header + length, content, n * elem_bytes);
    data_put(&test_dir, "raw", bytes, 8 + (size_t)length + n * elem_bytes);
    ebb_safetensors *file = NULL;
    assert_int_equal(ebb__safetensors_open(NULL, data_path(&test_dir, "raw"), &file), EBB_OK);
    return file;
}

static void expect_floats(const char *dtype, size_t n, size_t elem_bytes, const void *content, const float *want) {
    float got[16];
    ebb_safetensors *file = open_raw(dtype, n, elem_bytes, content);
    assert_int_equal(ebb__safetensors_read_f32(file, &file->tensors.data[0], 0, n, got), EBB_OK);
    for (size_t i = 0; i < n; i++) { assert_true(got[i] == want[i]); }
    ebb__safetensors_close(file);
}

static void test_conversions(void **state) {
    (void)state;
    const double wide[3] = {1.5, -1e300, 0.1};
    expect_floats("F64", 3, 8, wide, (const float[]){1.5f, -INFINITY, 0.1f});
    /* one, -2, the largest, the least normal, the least, infinity, -0 */
    const uint16_t half[7] = {0x3c00, 0xc000, 0x7bff, 0x0400, 0x0001, 0x7c00, 0x8000};
    expect_floats("F16", 7, 2, half, (const float[]){1, -2, 65504, 0x1p-14f, 0x1p-24f, INFINITY, 0});
    const uint16_t brain[3] = {0x3f80, 0xc000, 0x3fc0};
    expect_floats("BF16", 3, 2, brain, (const float[]){1, -2, 1.5f});
    const int8_t small[2] = {-128, 127};
    expect_floats("I8", 2, 1, small, (const float[]){-128, 127});
    const uint64_t huge[1] = {UINT64_MAX};
    expect_floats("U64", 1, 8, huge, (const float[]){18446744073709551615.0f});
    int32_t got = 0;
    const int64_t over[2] = {-5, (int64_t)INT32_MAX + 1};
    ebb_safetensors *file = open_raw("I64", 2, 8, over);
    assert_int_equal(ebb__safetensors_read_s32(file, &file->tensors.data[0], 0, 1, &got), EBB_OK);
    assert_int_equal(got, -5);
    assert_int_equal(ebb__safetensors_read_s32(file, &file->tensors.data[0], 1, 1, &got), EBB_E_FORMAT);
    ebb__safetensors_close(file);
    file = open_raw("F8_E5M2", 1, 1, small);
    float value;
    assert_int_equal(ebb__safetensors_read_f32(file, &file->tensors.data[0], 0, 1, &value), EBB_E_FORMAT);
    ebb__safetensors_close(file);
}

/* Cut off at every length: refused each time. */
static void test_truncated(void **state) {
    (void)state;
    write_example("w");
    struct stat info;
    assert_int_equal(stat(data_path(&test_dir, "w"), &info), 0);
    for (off_t n = info.st_size - 1; n >= 0; n--) {
        ebb_safetensors *file = NULL;
        assert_int_equal(truncate(data_path(&test_dir, "w"), n), 0);
        assert_int_equal(ebb__safetensors_open(NULL, test_dir.file, &file), EBB_E_FORMAT);
        assert_non_null(strstr(ebb_last_error(), test_dir.file));
    }
    ebb_safetensors *file = NULL;
    assert_int_equal(ebb__safetensors_open(NULL, data_path(&test_dir, "none"), &file), EBB_E_IO);
    assert_int_equal(ebb__safetensors_open(NULL, test_dir.path, &file), EBB_E_IO);
}

static void test_abandoned_leaves_nothing(void **state) {
    (void)state;
    ebb_st_writer *writer = NULL;
    const int64_t dims[1] = {1000};
    static const float zeros[500];
    assert_int_equal(ebb__st_writer_create(NULL, data_path(&test_dir, "w"), &writer), EBB_OK);
    assert_int_equal(ebb__st_writer_add(writer, "a", EBB_ST_F32, 1, dims), EBB_OK);
    assert_int_equal(ebb__st_writer_begin(writer), EBB_OK);
    assert_int_equal(ebb__st_writer_append(writer, zeros, sizeof zeros), EBB_OK);
    ebb__st_writer_abandon(writer);
    assert_int_equal(rmdir(test_dir.path), 0); /* it was empty */
    assert_int_equal(mkdir(test_dir.path, 0700), 0);
    assert_int_equal(ebb__st_writer_create(NULL, data_path(&test_dir, "no/such/folder"), &writer), EBB_OK);
    assert_int_equal(rmdir(data_path(&test_dir, "no/such")), 0);
    assert_int_equal(rmdir(data_path(&test_dir, "no")), 0);
    assert_int_equal(ebb__st_writer_begin(writer), EBB_E_IO);
    ebb__st_writer_abandon(writer);
}

static void test_out_of_memory(void **state) {
    (void)state;
    write_example("w");
    const char *path = data_path(&test_dir, "w");
    OOM_LOOP(mem, st, {
        ebb_safetensors *file = NULL;
        st = ebb__safetensors_open(mem, path, &file);
        ebb__safetensors_close(file);
    });
    OOM_LOOP(mem, st, {
        ebb_st_writer *writer = NULL;
        st = ebb__st_writer_create(mem, path, &writer);
        if (st == EBB_OK) { st = ebb__st_writer_begin(writer); }
        if (st == EBB_OK) {
            st = ebb__st_writer_commit(writer);
        } else {
            ebb__st_writer_abandon(writer);
        }
    });
}

int main(void) {
    const struct CMUnitTest tests[] = {
        IN_DIR(test_headers),
        IN_DIR(test_round_trip),
        IN_DIR(test_conversions),
        IN_DIR(test_truncated),
        IN_DIR(test_abandoned_leaves_nothing),
        IN_DIR(test_out_of_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
