/* SPDX-License-Identifier: Apache-2.0
 *
 * Writing safetensors: the header is known before the first byte of content, so content streams through and
 * the file needs no memory but its header.
 */
#include "base/u64_map.h"
#include "ebb/json.h"
#include "train/safetensors.h"

#define CONTENT_ALIGN 8 /* readers map the file; the header is padded with spaces */

typedef struct declared {
    ebb_st_tensor tensor;
    size_t n_before; /* 1 + the one before it whose name has the same hash; 0: none */
} declared;

struct ebb_st_writer {
    const ebb_mem *mem;
    ebb_bump bump; /* all texts */
    const char *path;
    EBB_VEC(declared) tensors;
    ebb_u64_map by_hash; /* of the name: 1 + the last tensor */
    EBB_VEC(ebb_st_pair) metadata;
    ebb_file_writer *file;
    uint64_t declared, appended; /* bytes of content */
};

ebb_status ebb__st_writer_create(const ebb_mem *mem, const char *path, ebb_st_writer **writer_out) {
    ebb_st_writer *writer = ebb__calloc(mem, 1, sizeof *writer);
    if (writer == NULL) { return EBB_E_NO_MEMORY; }
    writer->mem = ebb__mem_or_default(mem);
    ebb__bump_init(&writer->bump, writer->mem);
    ebb__u64_map_init(&writer->by_hash, writer->mem);
    writer->path = ebb__bump_strdup(&writer->bump, path);
    if (writer->path == NULL) {
        ebb__st_writer_abandon(writer);
        return EBB_E_NO_MEMORY;
    }
    *writer_out = writer;
    return EBB_OK;
}

/* A copy of the text, which is what of it. */
static ebb_status keep(ebb_st_writer *writer, const char *what, const char *text, const char **kept_out) {
    const size_t n = strlen(text);
    if (ebb__utf8_sound_bytes(text, n) != n) {
        return ebb_fail(EBB_E_ARGUMENT, "%s: '%s' is not UTF-8: %s", writer->path, what, text);
    }
    *kept_out = ebb__bump_strdup(&writer->bump, text);
    return *kept_out != NULL ? EBB_OK : EBB_E_NO_MEMORY;
}

ebb_status ebb__st_writer_set(ebb_st_writer *writer, const char *key, const char *value) {
    ebb_st_pair pair = {NULL, NULL};
    for (size_t i = 0; i < writer->metadata.n; i++) { EBB_ASSERT(strcmp(writer->metadata.data[i].key, key) != 0); }
    EBB_TRY(keep(writer, "a key", key, &pair.key));
    EBB_TRY(keep(writer, key, value, &pair.value));
    return EBB_PUSH(writer->mem, &writer->metadata, pair);
}

/* File the name; the tensor's place will be the next. */
static ebb_status add_name(ebb_st_writer *writer, const char *name, size_t *n_before_out) {
    uint64_t *last = NULL;
    bool is_new = false;
    EBB_TRY(ebb__u64_map_add(&writer->by_hash, ebb__hash(EBB_HASH_INIT, name, strlen(name)), &last, &is_new));
    for (size_t n = (size_t)*last; n > 0; n = writer->tensors.data[n - 1].n_before) {
        if (strcmp(writer->tensors.data[n - 1].tensor.name, name) == 0) {
            return ebb_fail(EBB_E_ARGUMENT, "%s: tensor '%s' twice", writer->path, name);
        }
    }
    *n_before_out = (size_t)*last;
    *last = writer->tensors.n + 1;
    return EBB_OK;
}

ebb_status ebb__st_writer_add(ebb_st_writer *writer, const char *name, ebb_st_type type, uint32_t n_dims,
                              const int64_t *dims) {
    EBB_ASSERT(writer->file == NULL && n_dims <= EBB_SAFETENSORS_MAX_DIMS);
    declared d = {.tensor = {.type = type, .n_dims = n_dims, .begin = writer->declared}};
    uint64_t bytes = ebb__st_type_bytes(type);
    for (uint32_t i = 0; i < n_dims; i++) {
        d.tensor.dims[i] = dims[i];
        if (!ebb_mul_u64(bytes, (uint64_t)dims[i], &bytes)) {
            return ebb_fail(EBB_E_LIMIT, "%s: tensor '%s' is too large", writer->path, name);
        }
    }
    if (!ebb_add_u64(writer->declared, bytes, &d.tensor.end) || d.tensor.end > INT64_MAX) {
        return ebb_fail(EBB_E_LIMIT, "%s: more than 64 bits count", writer->path);
    }
    EBB_TRY(keep(writer, "a tensor's name", name, &d.tensor.name));
    EBB_TRY(EBB_RESERVE(writer->mem, &writer->tensors, 1));
    EBB_TRY(add_name(writer, name, &d.n_before));
    writer->tensors.data[writer->tensors.n++] = d;
    writer->declared = d.tensor.end;
    return EBB_OK;
}

static void write_tensor(ebb_json *json, const ebb_st_tensor *tensor) {
    ebb_json_open(json, tensor->name, '{');
    ebb_json_text(json, "dtype", ebb__st_type_name(tensor->type));
    ebb_json_open(json, "shape", '[');
    for (uint32_t d = 0; d < tensor->n_dims; d++) { ebb_json_u64(json, NULL, (uint64_t)tensor->dims[d]); }
    ebb_json_close(json, ']');
    ebb_json_open(json, "data_offsets", '[');
    ebb_json_u64(json, NULL, tensor->begin);
    ebb_json_u64(json, NULL, tensor->end);
    ebb_json_close(json, ']');
    ebb_json_close(json, '}');
}

static void write_header(const ebb_st_writer *writer, ebb_json json) {
    ebb_json_open(&json, NULL, '{');
    for (size_t i = 0; i < writer->tensors.n; i++) { write_tensor(&json, &writer->tensors.data[i].tensor); }
    if (writer->metadata.n > 0) {
        ebb_json_open(&json, "__metadata__", '{');
        for (size_t i = 0; i < writer->metadata.n; i++) {
            ebb_json_text(&json, writer->metadata.data[i].key, writer->metadata.data[i].value);
        }
        ebb_json_close(&json, '}');
    }
    ebb_json_close(&json, '}');
}

static void count_text(void *ctx, const char *text, size_t n_bytes) {
    (void)text;
    *(uint64_t *)ctx += n_bytes;
}

/* The file's writer remembers its failure until commit. */
static void append_text(void *file, const char *text, size_t n_bytes) {
    (void)ebb__file_writer_write(file, text, n_bytes);
}

/* The header's length stands before it, so the header is made twice: to be counted, then to be written. */
ebb_status ebb__st_writer_begin(ebb_st_writer *writer) {
    EBB_ASSERT(writer->file == NULL);
    uint64_t n = 0;
    write_header(writer, (ebb_json){.put = count_text, .ctx = &n});
    const uint64_t padded = ebb_align_up(n, CONTENT_ALIGN);
    uint8_t prefix[8];
    for (int i = 0; i < 8; i++) { prefix[i] = (uint8_t)(padded >> (8 * i)); }
    EBB_TRY(ebb__file_writer_open(writer->mem, writer->path, 0, &writer->file));
    EBB_TRY(ebb__file_writer_write(writer->file, prefix, sizeof prefix));
    write_header(writer, (ebb_json){.put = append_text, .ctx = writer->file});
    return ebb__file_writer_write(writer->file, "       ", (size_t)(padded - n));
}

ebb_status ebb__st_writer_append(ebb_st_writer *writer, const void *data, size_t n_bytes) {
    EBB_ASSERT(writer->file != NULL);
    writer->appended += n_bytes;
    return ebb__file_writer_write(writer->file, data, n_bytes);
}

ebb_status ebb__st_writer_commit(ebb_st_writer *writer) {
    EBB_ASSERT(writer->file != NULL && writer->appended == writer->declared);
    ebb_status status = ebb__file_writer_commit(writer->file);
    writer->file = NULL;
    ebb__st_writer_abandon(writer);
    return status;
}

void ebb__st_writer_abandon(ebb_st_writer *writer) {
    if (writer == NULL) { return; }
    const ebb_mem *mem = writer->mem;
    ebb__file_writer_abandon(writer->file);
    ebb__u64_map_fini(&writer->by_hash);
    EBB_VEC_FINI(mem, &writer->tensors);
    EBB_VEC_FINI(mem, &writer->metadata);
    ebb__bump_fini(&writer->bump);
    ebb__free(mem, writer);
}
