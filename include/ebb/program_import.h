/* SPDX-License-Identifier: Apache-2.0
 *
 * Programs from files of other planners: graphs and logs in which others have published what they planned for
 * (docs/import.md says what becomes what). A file that tells what happened to blocks of memory is a recording and
 * becomes a trace first (ebb/trace.h, ebb/program_trace.h).
 */
#ifndef EBB_PROGRAM_IMPORT_H
#define EBB_PROGRAM_IMPORT_H

#include "ebb/program.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct ebb_program_import_options {
    size_t size_bytes;
    const ebb_mem *mem;    /* must outlive the program */
    const char *format;    /* ebb_program_format_name lists them; NULL: told by the file's first bytes */
    ebb_progress progress; /* bytes of the file */
} ebb_program_import_options;
#define EBB_PROGRAM_IMPORT_OPTIONS_INIT EBB_INIT(ebb_program_import_options, )

/* Read the file, gzipped or not, as a program, which the caller destroys. options may be NULL. Takes memory for the
 * program, not for the file. EBB_E_FORMAT: the file breaks its format, or its program a rule of ebb/program.h; the
 * message names file, place and cause. EBB_E_UNSUPPORTED: it is in none of the formats. EBB_E_ARGUMENT: there is no
 * such format. EBB_E_LIMIT: a value of more than 64 MiB, or 2^32 - 2 tensors or steps. EBB_E_IO: it cannot be read. */
EBB_API ebb_status ebb_program_import(const char *path, const ebb_program_import_options *options,
                                      ebb_program **program_out);

/* Name number idx, with *about_out a line about it (may be NULL); NULL past the last. */
EBB_API const char *ebb_program_format_name(size_t idx, const char **about_out);

/* The format whose files begin like this (unpacked) head of n_bytes, at most EBB_PROGRAM_HEAD_BYTES of them matter;
 * NULL: none. */
#define EBB_PROGRAM_HEAD_BYTES 4096u
EBB_API const char *ebb_program_format_of(const void *head, size_t n_bytes);

#ifdef __cplusplus
}
#endif

#endif
