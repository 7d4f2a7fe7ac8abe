/* SPDX-License-Identifier: Apache-2.0
 *
 * Reading safetensors. Checked before anything is believed: the header's length against the file and
 * a limit, that it is JSON of the right form without a name twice, each type and shape, that every tensor's bytes
 * are what its shape needs, and that the tensors cover the content without gap or overlap. So a place in the
 * file is in bounds from then on, and the largest block taken is the header.
 */
#include "train/safetensors.h"

#include "base/json_read.h"
#include "ebb/dtype.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#define PREFIX_BYTES 8
#define MAX_HEADER_BYTES ((uint64_t)100 * 1000 * 1000) /* as the format's own readers */

static const struct {
    const char *name;
    uint64_t bytes;
} types[] = {
#define TYPE_ROW(name, bytes) {#name, bytes},
    EBB_SAFETENSORS_TYPES(TYPE_ROW)
#undef TYPE_ROW
};

const char *ebb__st_type_name(ebb_st_type type) {
    EBB_ASSERT(type < EBB_ST_N_TYPES);
    return types[type].name;
}

uint64_t ebb__st_type_bytes(ebb_st_type type) {
    EBB_ASSERT(type < EBB_ST_N_TYPES);
    return types[type].bytes;
}

/* ---- the header ------------------------------------------------------------------------------- */

static ebb_status parse_type(const char *path, const char *name, const ebb_json_value *json, ebb_st_tensor *tensor) {
    const char *text = ebb__json_value_string(json, 0, "dtype");
    for (int t = 0; text != NULL && t < EBB_ST_N_TYPES; t++) {
        if (strcmp(text, types[t].name) != 0) { continue; }
        tensor->type = (ebb_st_type)t;
        return EBB_OK;
    }
    return ebb_fail(EBB_E_FORMAT, "%s: tensor '%s': unknown dtype '%s'", path, name, text != NULL ? text : "");
}

/* The tokens in the container at token, each of which is followed by what lies in it; an object's keys count too. */
static uint32_t count_in(const ebb_json_value *json, uint32_t token) {
    uint32_t n = 0;
    for (uint32_t at = token + 1; at < json->tokens[token].next; at = json->tokens[at].next) { n++; }
    return n;
}

static ebb_status parse_shape(const char *path, const char *name, const ebb_json_value *json, ebb_st_tensor *tensor) {
    const uint32_t shape = ebb__json_value_member(json, 0, "shape");
    const bool is_array = ebb__json_value_is(json, shape, EBB_JSON_ARRAY);
    if (!is_array || count_in(json, shape) > EBB_SAFETENSORS_MAX_DIMS) {
        return ebb_fail(EBB_E_FORMAT, "%s: tensor '%s': its shape is not a list of at most %d dims", path, name,
                        EBB_SAFETENSORS_MAX_DIMS);
    }
    tensor->n_elements = 1;
    for (uint32_t at = shape + 1; at < json->tokens[shape].next; at = json->tokens[at].next, tensor->n_dims++) {
        int64_t dim = -1;
        const bool is_whole = ebb__json_value_i64(json, at, &dim);
        if (!is_whole || dim < 0 || !ebb_mul_u64(tensor->n_elements, (uint64_t)dim, &tensor->n_elements)) {
            return ebb_fail(EBB_E_FORMAT, "%s: tensor '%s': dim %u of its shape is not possible", path, name,
                            tensor->n_dims);
        }
        tensor->dims[tensor->n_dims] = dim;
    }
    return EBB_OK;
}

static ebb_status parse_place(const char *path, const char *name, const ebb_json_value *json, uint64_t content_bytes,
                              ebb_st_tensor *tensor) {
    const uint32_t places = ebb__json_value_member(json, 0, "data_offsets");
    int64_t begin = -1, end = -1;
    const bool are_two = ebb__json_value_is(json, places, EBB_JSON_ARRAY) && count_in(json, places) == 2 &&
                         ebb__json_value_i64(json, places + 1, &begin) && ebb__json_value_i64(json, places + 2, &end);
    if (!are_two || begin < 0 || end < begin) {
        return ebb_fail(EBB_E_FORMAT, "%s: tensor '%s': data_offsets are not two places", path, name);
    }
    tensor->begin = (uint64_t)begin;
    tensor->end = (uint64_t)end;
    if (tensor->end > content_bytes) {
        return ebb_fail(EBB_E_FORMAT, "%s: tensor '%s' ends at byte %" PRIu64 " of the content, which has %" PRIu64,
                        path, name, tensor->end, content_bytes);
    }
    uint64_t bytes = 0;
    if (!ebb_mul_u64(tensor->n_elements, types[tensor->type].bytes, &bytes) || bytes != tensor->end - tensor->begin) {
        return ebb_fail(EBB_E_FORMAT, "%s: tensor '%s': its shape and dtype do not make %" PRIu64 " bytes", path, name,
                        tensor->end - tensor->begin);
    }
    return EBB_OK;
}

static ebb_status parse_tensor(ebb_safetensors *file, const char *name, const ebb_json_value *json,
                               uint64_t content_bytes) {
    ebb_st_tensor tensor = {.name = ebb__bump_strdup(&file->bump, name)};
    if (tensor.name == NULL) { return EBB_E_NO_MEMORY; }
    if (!ebb__json_value_is(json, 0, EBB_JSON_OBJECT) || count_in(json, 0) != 2 * 3) {
        return ebb_fail(EBB_E_FORMAT, "%s: tensor '%s': not dtype, shape and data_offsets", file->path, name);
    }
    EBB_TRY(parse_type(file->path, name, json, &tensor));
    EBB_TRY(parse_shape(file->path, name, json, &tensor));
    EBB_TRY(parse_place(file->path, name, json, content_bytes, &tensor));
    return EBB_PUSH(file->mem, &file->tensors, tensor);
}

static int order_pairs(const void *a, const void *b) {
    return strcmp(((const ebb_st_pair *)a)->key, ((const ebb_st_pair *)b)->key);
}

static ebb_status refuse_twice(const ebb_safetensors *file, const char *key) {
    return ebb_fail(EBB_E_FORMAT, "%s: byte %d: the header is not JSON: '%s' is there twice", file->path, PREFIX_BYTES,
                    key);
}

static ebb_status parse_metadata(ebb_safetensors *file, const ebb_json_value *json) {
    if (!ebb__json_value_is(json, 0, EBB_JSON_OBJECT)) {
        return ebb_fail(EBB_E_FORMAT, "%s: __metadata__ is not an object of texts", file->path);
    }
    for (uint32_t at = 1; at < json->tokens[0].next; at = json->tokens[at + 1].next) {
        const char *key = ebb__json_value_text(json, at);
        if (!ebb__json_value_is(json, at + 1, EBB_JSON_STRING)) {
            return ebb_fail(EBB_E_FORMAT, "%s: __metadata__ '%s' is not a text", file->path, key);
        }
        ebb_st_pair pair = {ebb__bump_strdup(&file->bump, key),
                            ebb__bump_strdup(&file->bump, ebb__json_value_text(json, at + 1))};
        if (pair.key == NULL || pair.value == NULL) { return EBB_E_NO_MEMORY; }
        EBB_TRY(EBB_PUSH(file->mem, &file->metadata, pair));
    }
    if (file->metadata.n > 1) {
        qsort(file->metadata.data, file->metadata.n, sizeof *file->metadata.data, order_pairs);
    }
    for (size_t i = 1; i < file->metadata.n; i++) {
        const ebb_st_pair *pair = &file->metadata.data[i];
        if (strcmp(pair[-1].key, pair->key) == 0) { return refuse_twice(file, pair->key); }
    }
    return EBB_OK;
}

static int order_by_place(const void *a, const void *b) {
    const ebb_st_tensor *ta = a, *tb = b;
    if (ta->begin != tb->begin) { return ta->begin < tb->begin ? -1 : 1; }
    return ta->end < tb->end ? -1 : ta->end > tb->end;
}

/* Neighbours touch, the last ends with the content. */
static ebb_status check_cover(const ebb_safetensors *file, uint64_t content_bytes) {
    uint64_t at = 0;
    for (size_t i = 0; i < file->tensors.n; i++) {
        const ebb_st_tensor *tensor = &file->tensors.data[i];
        if (tensor->begin != at) {
            return ebb_fail(EBB_E_FORMAT, "%s: tensor '%s' begins at byte %" PRIu64 " of the content, %s byte %" PRIu64,
                            file->path, tensor->name, tensor->begin,
                            tensor->begin < at ? "inside another, before" : "after a gap from", at);
        }
        at = tensor->end;
    }
    if (at == content_bytes) { return EBB_OK; }
    return ebb_fail(EBB_E_FORMAT, "%s: the tensors end at byte %" PRIu64 " of the content, which has %" PRIu64,
                    file->path, at, content_bytes);
}

static int order_by_name(const void *a, const void *b, void *ctx) {
    const ebb_st_tensor *tensors = ctx;
    return strcmp(tensors[*(const uint32_t *)a].name, tensors[*(const uint32_t *)b].name);
}

static ebb_status index_names(ebb_safetensors *file) {
    file->by_name = ebb__alloc(file->mem, file->tensors.n, sizeof *file->by_name);
    if (file->by_name == NULL) { return EBB_E_NO_MEMORY; }
    for (uint32_t i = 0; i < file->tensors.n; i++) { file->by_name[i] = i; }
    if (file->tensors.n > 1) {
        qsort_r(file->by_name, file->tensors.n, sizeof *file->by_name, order_by_name, file->tensors.data);
    }
    for (size_t i = 1; i < file->tensors.n; i++) {
        const char *name = file->tensors.data[file->by_name[i]].name;
        if (strcmp(file->tensors.data[file->by_name[i - 1]].name, name) == 0) { return refuse_twice(file, name); }
    }
    return EBB_OK;
}

/* The header's bytes, from which tensors are read one after the other. */
typedef struct header_reader {
    ebb_safetensors *file;
    const char *at;
    size_t n_left;
    uint64_t content_bytes;
    bool has_metadata;
} header_reader;

static ebb_status read_bytes(void *ctx, void *buf, size_t n, size_t *n_out) {
    header_reader *h = ctx;
    *n_out = n < h->n_left ? n : h->n_left;
    if (*n_out > 0) { memcpy(buf, h->at, *n_out); }
    h->at += *n_out;
    h->n_left -= *n_out;
    return EBB_OK;
}

static bool wants_all(void *ctx, const char *key) {
    (void)ctx;
    (void)key;
    return true;
}

static ebb_status parse_member(void *ctx, const char *key, const ebb_json_value *json) {
    header_reader *h = ctx;
    if (strcmp(key, "__metadata__") == 0) {
        if (h->has_metadata) { return refuse_twice(h->file, key); }
        h->has_metadata = true;
        return parse_metadata(h->file, json);
    }
    return parse_tensor(h->file, key, json, h->content_bytes);
}

ebb_status ebb__safetensors_parse(const ebb_mem *mem, const char *path, const char *header, size_t header_bytes,
                                  uint64_t content_bytes, ebb_safetensors **file_out) {
    ebb_safetensors *file = ebb__calloc(mem, 1, sizeof *file);
    if (file == NULL) { return EBB_E_NO_MEMORY; }
    file->mem = ebb__mem_or_default(mem);
    file->file = -1;
    ebb__bump_init(&file->bump, file->mem);
    header_reader reader = {file, header, header_bytes, content_bytes, false};
    ebb_json_source source = {.mem = file->mem, .path = path, .read = read_bytes, .ctx = &reader, .is_strict = true};
    source.part = "the header";
    source.first_byte = PREFIX_BYTES;
    const ebb_json_handler handler = {.wants = wants_all, .member = parse_member, .ctx = &reader};
    ebb_status status = EBB_E_NO_MEMORY;
    file->path = ebb__bump_strdup(&file->bump, path);
    if (file->path != NULL) { status = ebb__json_read(&source, &handler); }
    if (status == EBB_OK && file->tensors.n > 1) {
        qsort(file->tensors.data, file->tensors.n, sizeof *file->tensors.data, order_by_place);
    }
    if (status == EBB_OK) { status = index_names(file); }
    if (status == EBB_OK) { status = check_cover(file, content_bytes); }
    if (status == EBB_OK) {
        *file_out = file;
    } else {
        ebb__safetensors_close(file);
    }
    return status;
}

/* ---- the file --------------------------------------------------------------------------------- */

static ebb_status read_at(int fd, const char *path, uint64_t offset, void *dst, size_t n) {
    for (size_t done = 0; done < n;) {
        ssize_t got = pread(fd, (char *)dst + done, n - done, (off_t)(offset + done));
        if (got < 0 && errno == EINTR) { continue; }
        if (got < 0) { return ebb__fail_errno(path, "read"); }
        if (got == 0) {
            return ebb_fail(EBB_E_FORMAT, "%s: byte %" PRIu64 ": the file ends, %zu bytes are missing", path,
                            offset + done, n - done);
        }
        done += (size_t)got;
    }
    return EBB_OK;
}

static ebb_status read_header_bytes(int fd, uint64_t *header_bytes_out, uint64_t *file_bytes_out, const char *path) {
    struct stat info;
    if (fstat(fd, &info) != 0) { return ebb__fail_errno(path, "read"); }
    if (!S_ISREG(info.st_mode)) { return ebb_fail(EBB_E_IO, "%s: cannot read: not a regular file", path); }
    const uint64_t file_bytes = (uint64_t)info.st_size;
    if (file_bytes < PREFIX_BYTES) {
        return ebb_fail(EBB_E_FORMAT, "%s: byte %" PRIu64 ": the file ends within the header's length", path,
                        file_bytes);
    }
    uint8_t prefix[PREFIX_BYTES];
    EBB_TRY(read_at(fd, path, 0, prefix, sizeof prefix));
    uint64_t n = 0;
    for (int i = 0; i < PREFIX_BYTES; i++) { n |= (uint64_t)prefix[i] << (8 * i); }
    if (n > MAX_HEADER_BYTES || n > file_bytes - PREFIX_BYTES) {
        return ebb_fail(EBB_E_FORMAT, "%s: byte 0: a header of %" PRIu64 " bytes in a file of %" PRIu64, path, n,
                        file_bytes);
    }
    *header_bytes_out = n;
    *file_bytes_out = file_bytes;
    return EBB_OK;
}

static ebb_status open_from(const ebb_mem *mem, const char *path, int fd, ebb_safetensors **file_out) {
    uint64_t header_bytes = 0, file_bytes = 0;
    EBB_TRY(read_header_bytes(fd, &header_bytes, &file_bytes, path));
    char *header = ebb__alloc(mem, (size_t)header_bytes, 1);
    if (header == NULL) { return EBB_E_NO_MEMORY; }
    const uint64_t content = PREFIX_BYTES + header_bytes;
    ebb_status status = read_at(fd, path, PREFIX_BYTES, header, (size_t)header_bytes);
    if (status == EBB_OK) {
        status = ebb__safetensors_parse(mem, path, header, (size_t)header_bytes, file_bytes - content, file_out);
    }
    ebb__free(mem, header);
    if (status == EBB_OK) {
        (*file_out)->content = content;
        (*file_out)->file = fd;
    }
    return status;
}

ebb_status ebb__safetensors_open(const ebb_mem *mem, const char *path, ebb_safetensors **file_out) {
    int fd = -1;
    EBB_TRY(ebb_path_open_input(path, &fd));
    ebb_status status = open_from(mem, path, fd, file_out);
    if (status != EBB_OK) { (void)close(fd); }
    return status;
}

void ebb__safetensors_close(ebb_safetensors *file) {
    if (file == NULL) { return; }
    const ebb_mem *mem = file->mem;
    if (file->file >= 0) { (void)close(file->file); }
    ebb__free(mem, file->by_name);
    EBB_VEC_FINI(mem, &file->metadata);
    EBB_VEC_FINI(mem, &file->tensors);
    ebb__bump_fini(&file->bump);
    ebb__free(mem, file);
}

const ebb_st_tensor *ebb__safetensors_find(const ebb_safetensors *file, const char *name) {
    size_t low = 0, high = file->tensors.n;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        const ebb_st_tensor *tensor = &file->tensors.data[file->by_name[middle]];
        int order = strcmp(tensor->name, name);
        if (order == 0) { return tensor; }
        if (order < 0) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return NULL;
}

const char *ebb__safetensors_metadata(const ebb_safetensors *file, const char *key) {
    for (size_t i = 0; i < file->metadata.n; i++) {
        if (strcmp(file->metadata.data[i].key, key) == 0) { return file->metadata.data[i].value; }
    }
    return NULL;
}

/* ---- content ---------------------------------------------------------------------------------- */

#define BLOCK_ELEMENTS 1024

static uint64_t load_le(const uint8_t *src, uint64_t n) {
    uint64_t bits = 0;
    for (uint64_t i = 0; i < n; i++) { bits |= (uint64_t)src[i] << (8 * i); }
    return bits;
}

static float float_of_bits(uint32_t bits) {
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

static float float_of_short(ebb_dtype type, uint64_t bits) {
    const uint16_t element = (uint16_t)bits;
    float value;
    ebb_dtype_to_float(type, &element, 1, &value);
    return value;
}

/* Whole numbers as they are; false: the type has none. */
static bool whole_of(ebb_st_type type, uint64_t bits, int64_t *value_out) {
    switch (type) {
    case EBB_ST_BOOL:
    case EBB_ST_U8:
    case EBB_ST_U16:
    case EBB_ST_U32: *value_out = (int64_t)bits; return true;
    case EBB_ST_I8: *value_out = (int8_t)bits; return true;
    case EBB_ST_I16: *value_out = (int16_t)bits; return true;
    case EBB_ST_I32: *value_out = (int32_t)bits; return true;
    case EBB_ST_U64:
    case EBB_ST_I64: *value_out = (int64_t)bits; return true;
    default: return false;
    }
}

static bool float_of(ebb_st_type type, uint64_t bits, float *value_out) {
    double wide;
    int64_t whole = 0;
    switch (type) {
    case EBB_ST_F32: *value_out = float_of_bits((uint32_t)bits); return true;
    case EBB_ST_BF16: *value_out = float_of_short(EBB_BF16, bits); return true;
    case EBB_ST_F16: *value_out = float_of_short(EBB_F16, bits); return true;
    case EBB_ST_F64:
        memcpy(&wide, &bits, sizeof wide);
        *value_out = (float)wide;
        return true;
    default:
        if (!whole_of(type, bits, &whole)) { return false; }
        *value_out = type == EBB_ST_U64 ? (float)bits : (float)whole;
        return true;
    }
}

static ebb_status refuse_type(const ebb_safetensors *file, const ebb_st_tensor *tensor, const char *wanted) {
    return ebb_fail(EBB_E_FORMAT, "%s: tensor '%s': %s does not convert to %s", file->path, tensor->name,
                    types[tensor->type].name, wanted);
}

/* n <= BLOCK_ELEMENTS raw elements into block. */
static ebb_status read_block(const ebb_safetensors *file, const ebb_st_tensor *tensor, uint64_t first, uint64_t n,
                             uint8_t *block) {
    EBB_ASSERT(first + n <= tensor->n_elements);
    const uint64_t bytes = types[tensor->type].bytes;
    return read_at(file->file, file->path, file->content + tensor->begin + first * bytes, block, (size_t)(n * bytes));
}

ebb_status ebb__safetensors_read_f32(const ebb_safetensors *file, const ebb_st_tensor *tensor, uint64_t first,
                                     uint64_t n, float *dst) {
    uint8_t block[BLOCK_ELEMENTS * 8];
    const uint64_t bytes = types[tensor->type].bytes;
    for (uint64_t done = 0; done < n;) {
        uint64_t some = ebb_min_u64(n - done, BLOCK_ELEMENTS);
        EBB_TRY(read_block(file, tensor, first + done, some, block));
        for (uint64_t i = 0; i < some; i++) {
            if (!float_of(tensor->type, load_le(block + i * bytes, bytes), &dst[done + i])) {
                return refuse_type(file, tensor, "F32");
            }
        }
        done += some;
    }
    return EBB_OK;
}

ebb_status ebb__safetensors_read_s32(const ebb_safetensors *file, const ebb_st_tensor *tensor, uint64_t first,
                                     uint64_t n, int32_t *dst) {
    uint8_t block[BLOCK_ELEMENTS * 8];
    const uint64_t bytes = types[tensor->type].bytes;
    for (uint64_t done = 0; done < n;) {
        uint64_t some = ebb_min_u64(n - done, BLOCK_ELEMENTS);
        EBB_TRY(read_block(file, tensor, first + done, some, block));
        for (uint64_t i = 0; i < some; i++) {
            int64_t whole = 0;
            if (!whole_of(tensor->type, load_le(block + i * bytes, bytes), &whole)) {
                return refuse_type(file, tensor, "I32");
            }
            if (whole < INT32_MIN || whole > INT32_MAX) {
                return ebb_fail(EBB_E_FORMAT, "%s: tensor '%s': element %" PRIu64 " does not fit 32 bits", file->path,
                                tensor->name, first + done + i);
            }
            dst[done + i] = (int32_t)whole;
        }
        done += some;
    }
    return EBB_OK;
}
