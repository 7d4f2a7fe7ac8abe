/* SPDX-License-Identifier: Apache-2.0
 *
 * The safetensors file: eight bytes with the header's length (little-endian), a JSON header that names each tensor
 * with its type, shape and place, and the content. The reader trusts nothing of it; the writer goes through
 * base/file.h, so that a file is there whole or not at all.
 */
#ifndef EBB_SRC_SAFETENSORS_H
#define EBB_SRC_SAFETENSORS_H

#include "base/base.h"
#include "base/file.h"

#define EBB_SAFETENSORS_MAX_DIMS 8

/* X(name, bytes an element) */
/* clang-format off */
#define EBB_SAFETENSORS_TYPES(X)                                                                                       \
    X(BOOL, 1)                                                                                                         \
    X(U8, 1)                                                                                                           \
    X(I8, 1)                                                                                                           \
    X(F8_E5M2, 1)                                                                                                      \
    X(F8_E4M3, 1)                                                                                                      \
    X(I16, 2)                                                                                                          \
    X(U16, 2)                                                                                                          \
    X(F16, 2)                                                                                                          \
    X(BF16, 2)                                                                                                         \
    X(I32, 4)                                                                                                          \
    X(U32, 4)                                                                                                          \
    X(F32, 4)                                                                                                          \
    X(F64, 8)                                                                                                          \
    X(I64, 8)                                                                                                          \
    X(U64, 8)
/* clang-format on */

typedef enum ebb_st_type {
#define EBB_ST_ENUM(name, bytes) EBB_ST_##name,
    EBB_SAFETENSORS_TYPES(EBB_ST_ENUM)
#undef EBB_ST_ENUM
        EBB_ST_N_TYPES
} ebb_st_type;

const char *ebb__st_type_name(ebb_st_type type);
uint64_t ebb__st_type_bytes(ebb_st_type type);

typedef struct ebb_st_tensor {
    const char *name;
    ebb_st_type type;
    uint32_t n_dims;
    int64_t dims[EBB_SAFETENSORS_MAX_DIMS];
    uint64_t n_elements;
    uint64_t begin, end; /* in the content, bytes */
} ebb_st_tensor;

typedef struct ebb_st_pair {
    const char *key, *value;
} ebb_st_pair;

typedef struct ebb_safetensors {
    const ebb_mem *mem;
    ebb_bump bump; /* all texts */
    const char *path;
    EBB_VEC(ebb_st_tensor) tensors; /* by place in the file */
    EBB_VEC(ebb_st_pair) metadata;
    uint32_t *by_name; /* tensors in order of their names */
    uint64_t content;  /* where it begins in the file */
    int file;          /* -1: none */
} ebb_safetensors;

/* Read and check everything but the content. */
ebb_status ebb__safetensors_open(const ebb_mem *mem, const char *path, ebb_safetensors **file_out);
void ebb__safetensors_close(ebb_safetensors *file);

/* The same on bytes: the header of header_bytes, for a file whose content is content_bytes. */
ebb_status ebb__safetensors_parse(const ebb_mem *mem, const char *path, const char *header, size_t header_bytes,
                                  uint64_t content_bytes, ebb_safetensors **file_out);

/* NULL: no such tensor, no such key. */
const ebb_st_tensor *ebb__safetensors_find(const ebb_safetensors *file, const char *name);
const char *ebb__safetensors_metadata(const ebb_safetensors *file, const char *key);

/* Elements [first, first + n) as float32 (from F32, F64, F16, BF16 and the whole numbers), as int32 (from whole
 * numbers that fit). EBB_E_FORMAT: the type cannot be converted, a number does not fit, the file is cut off. */
ebb_status ebb__safetensors_read_f32(const ebb_safetensors *file, const ebb_st_tensor *tensor, uint64_t first,
                                     uint64_t n, float *dst);
ebb_status ebb__safetensors_read_s32(const ebb_safetensors *file, const ebb_st_tensor *tensor, uint64_t first,
                                     uint64_t n, int32_t *dst);

/* ---- writing: declare everything, begin, append each tensor's bytes in order, commit ------------ */

typedef struct ebb_st_writer ebb_st_writer;

ebb_status ebb__st_writer_create(const ebb_mem *mem, const char *path, ebb_st_writer **writer_out);
/* metadata: text to text. Tensors are written in the order of their declaration. name is copied. */
ebb_status ebb__st_writer_set(ebb_st_writer *writer, const char *key, const char *value);
ebb_status ebb__st_writer_add(ebb_st_writer *writer, const char *name, ebb_st_type type, uint32_t n_dims,
                              const int64_t *dims);
/* Open the file and write its header. */
ebb_status ebb__st_writer_begin(ebb_st_writer *writer);
ebb_status ebb__st_writer_append(ebb_st_writer *writer, const void *data, size_t n_bytes);
/* All that was declared has been appended. Frees the writer in any case. */
ebb_status ebb__st_writer_commit(ebb_st_writer *writer);
void ebb__st_writer_abandon(ebb_st_writer *writer);

#endif
