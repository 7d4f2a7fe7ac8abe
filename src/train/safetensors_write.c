/* SPDX-License-Identifier: Apache-2.0
 *
 * Writing safetensors: the header is known before the first byte of content, so content streams through and
 * the file needs no memory but its header.
 */
#include "train/safetensors.h"

#include <inttypes.h>
#include <stdlib.h>

#include <jansson.h>

#define CONTENT_ALIGN 8 /* readers map the file; the header is padded with spaces */

struct ebb_st_writer {
    const ebb_mem *mem;
    char *path;
    json_t *root, *metadata;
    ebb_file_writer *file;
    uint64_t declared, appended; /* bytes of content */
};

static ebb_status fail_memory(const ebb_st_writer *writer) {
    return ebb_fail(EBB_E_NO_MEMORY, "%s: out of host memory for the header", writer->path);
}

ebb_status ebb__st_writer_create(const ebb_mem *mem, const char *path, ebb_st_writer **writer_out) {
    ebb_st_writer *writer = ebb__calloc(mem, 1, sizeof *writer);
    if (writer == NULL) { return EBB_E_NO_MEMORY; }
    writer->mem = ebb__mem_or_default(mem);
    writer->path = ebb__strdup(mem, path);
    if (writer->path == NULL) {
        ebb__st_writer_abandon(writer);
        return EBB_E_NO_MEMORY;
    }
    writer->root = json_object();
    writer->metadata = json_object();
    if (writer->root == NULL || writer->metadata == NULL) {
        ebb_status status = fail_memory(writer);
        ebb__st_writer_abandon(writer);
        return status;
    }
    *writer_out = writer;
    return EBB_OK;
}

ebb_status ebb__st_writer_set(ebb_st_writer *writer, const char *key, const char *value) {
    json_t *text = json_string(value);
    if (text == NULL) { return ebb_fail(EBB_E_ARGUMENT, "%s: '%s' is not UTF-8: %s", writer->path, key, value); }
    return json_object_set_new(writer->metadata, key, text) == 0 ? EBB_OK : fail_memory(writer);
}

static json_t *make_entry(ebb_st_type type, uint32_t n_dims, const int64_t *dims, uint64_t begin, uint64_t end) {
    json_t *shape = json_array();
    for (uint32_t d = 0; shape != NULL && d < n_dims; d++) {
        if (json_array_append_new(shape, json_integer((json_int_t)dims[d])) != 0) {
            json_decref(shape);
            return NULL;
        }
    }
    /* packing takes the array over, also when it fails */
    return json_pack("{s:s, s:o, s:[I, I]}", "dtype", ebb__st_type_name(type), "shape", shape, "data_offsets",
                     (json_int_t)begin, (json_int_t)end);
}

ebb_status ebb__st_writer_add(ebb_st_writer *writer, const char *name, ebb_st_type type, uint32_t n_dims,
                              const int64_t *dims) {
    EBB_ASSERT(writer->file == NULL && n_dims <= EBB_SAFETENSORS_MAX_DIMS);
    if (json_object_get(writer->root, name) != NULL) {
        return ebb_fail(EBB_E_ARGUMENT, "%s: tensor '%s' twice", writer->path, name);
    }
    uint64_t bytes = ebb__st_type_bytes(type), end = 0;
    for (uint32_t d = 0; d < n_dims; d++) {
        if (!ebb_mul_u64(bytes, (uint64_t)dims[d], &bytes)) {
            return ebb_fail(EBB_E_LIMIT, "%s: tensor '%s' is too large", writer->path, name);
        }
    }
    if (!ebb_add_u64(writer->declared, bytes, &end) || end > INT64_MAX) {
        return ebb_fail(EBB_E_LIMIT, "%s: more than 64 bits count", writer->path);
    }
    json_t *entry = make_entry(type, n_dims, dims, writer->declared, end);
    if (entry == NULL || json_object_set_new(writer->root, name, entry) != 0) { return fail_memory(writer); }
    writer->declared = end;
    return EBB_OK;
}

static ebb_status write_header(ebb_st_writer *writer, const char *text) {
    const uint64_t n = strlen(text), padded = ebb_align_up(n, CONTENT_ALIGN);
    uint8_t prefix[8];
    for (int i = 0; i < 8; i++) { prefix[i] = (uint8_t)(padded >> (8 * i)); }
    EBB_TRY(ebb__file_writer_open(writer->mem, writer->path, 0, &writer->file));
    EBB_TRY(ebb__file_writer_write(writer->file, prefix, sizeof prefix));
    EBB_TRY(ebb__file_writer_write(writer->file, text, (size_t)n));
    return ebb__file_writer_write(writer->file, "       ", (size_t)(padded - n));
}

ebb_status ebb__st_writer_begin(ebb_st_writer *writer) {
    EBB_ASSERT(writer->file == NULL);
    if (json_object_size(writer->metadata) > 0 &&
        json_object_set(writer->root, "__metadata__", writer->metadata) != 0) {
        return fail_memory(writer);
    }
    char *text = json_dumps(writer->root, JSON_COMPACT);
    if (text == NULL) { return fail_memory(writer); }
    ebb_status status = write_header(writer, text);
    free(text); /* jansson's */
    return status;
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
    json_decref(writer->metadata);
    json_decref(writer->root);
    ebb__free(mem, writer->path);
    ebb__free(mem, writer);
}
