/* SPDX-License-Identifier: Apache-2.0
 *
 * Placement problems and their answers as files: comma-separated values as minimalloc has them, defined in
 * docs/place-format.md, and a picture.
 */
#ifndef EBB_PLACE_FILE_H
#define EBB_PLACE_FILE_H

#include "ebb/place.h"

#ifdef __cplusplus
extern "C" {
#endif

/* A problem with a name for each item, and with the columns that only the file knows. It does not change, so threads
 * may share it. */
typedef struct ebb_place_file ebb_place_file;

/* Read a file; *file_out is the caller's. Linear in its bytes, which are checked as they come, so even an endless pipe
 * is refused at its first fault. path "-" is not special here. EBB_E_FORMAT: the message names file, line, column and
 * cause. EBB_E_LIMIT: more than 2^31 buffers. EBB_E_IO. */
EBB_API ebb_status ebb_place_file_read(const ebb_mem *mem, const char *path, ebb_place_file **file_out);

/* Put up to n_bytes into buf and say how many; 0: there are no more. Negative: it failed, and errno says why. */
typedef int64_t (*ebb_place_source)(void *ctx, void *buf, size_t n_bytes);

/* As ebb_place_file_read, from a source that gives its bytes once, in order: a pipe, a decompressor, memory. Messages
 * call the source name. */
EBB_API ebb_status ebb_place_file_read_from(const ebb_mem *mem, const char *name, ebb_place_source source, void *ctx,
                                            ebb_place_file **file_out);

/* Make a file of any problem; everything is copied. The caller destroys *file_out. ids[n_items] are distinct
 * texts, none of them empty; NULL: 0, 1, 2 ... The item's alignment in the file combines its own alignment and
 * alignment_bytes. EBB_E_ARGUMENT, EBB_E_LIMIT: as from ebb_place_bound. */
EBB_API ebb_status ebb_place_file_create(const ebb_mem *mem, const ebb_place_problem *problem, const char *const *ids,
                                         ebb_place_file **file_out);
EBB_API void ebb_place_file_destroy(ebb_place_file *file);

/* The problem, and the name of an item; borrowed until the file dies. A file that was read holds a well-formed one. */
EBB_API ebb_place_problem ebb_place_file_problem(const ebb_place_file *file);
EBB_API const char *ebb_place_file_id(const ebb_place_file *file, size_t item);

/* Write problem and answer, offsets[n_items], to path. EBB_E_ARGUMENT: an item would end at 2^63 or beyond, which a
 * file cannot express. EBB_E_IO: writing failed. After a failure an existing file stays as it was. */
EBB_API ebb_status ebb_place_file_write(const ebb_place_file *file, const uint64_t *offsets, const char *path);

/* The texts of a picture; all is borrowed for the call. */
typedef struct ebb_place_picture {
    size_t size_bytes;
    const char *title;     /* NULL: "placement" */
    const char *time_name; /* below the axis of time; NULL: "time" */
    uint64_t peak_bytes, bound_bytes;
} ebb_place_picture;
#define EBB_PLACE_PICTURE_INIT EBB_INIT(ebb_place_picture, )

/* Draw the answer as SVG to path: time to the right, offsets upwards, one rectangle per item. If there are too many,
 * the smallest are drawn together as pixels, so that a file stays below 5 MB. O(n). picture may be NULL. Failures are
 * those of ebb_place_file_write. */
EBB_API ebb_status ebb_place_file_draw(const ebb_place_file *file, const uint64_t *offsets,
                                       const ebb_place_picture *picture, const char *path);

#ifdef __cplusplus
}
#endif

#endif
