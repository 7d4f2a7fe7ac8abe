/* SPDX-License-Identifier: Apache-2.0
 *
 * A reader of other planners' files is a line in the table of foreign.c, and a function that gathers tensors and
 * steps. It refuses what breaks its format with EBB_E_FORMAT, the path and the place.
 *
 * Names in such files are texts; each gets a number here, in the order in which they come.
 */
#ifndef EBB_SRC_FOREIGN_PRIV_H
#define EBB_SRC_FOREIGN_PRIV_H

#include "base/byte_stream.h"
#include "base/json_read.h"
#include "base/u64_map.h"
#include "ebb/program_import.h"
#include "program/program.h"

#define FOREIGN_NONE UINT32_MAX

typedef struct ebb_foreign_names {
    const ebb_mem *mem;
    ebb_bump *bump;  /* where texts are kept */
    ebb_u64_map map; /* of hashes, to the last name with this one, plus 1 */
    EBB_VEC(const char *) text;
    EBB_VEC(uint32_t) before; /* the one before of the same hash, or FOREIGN_NONE */
} ebb_foreign_names;

void ebb__foreign_names_init(ebb_foreign_names *names, const ebb_mem *mem, ebb_bump *bump);
void ebb__foreign_names_fini(ebb_foreign_names *names);
/* FOREIGN_NONE: it has not come yet. */
uint32_t ebb__foreign_names_find(const ebb_foreign_names *names, const char *text);
/* The number of a text that may be new. */
ebb_status ebb__foreign_names_add(ebb_foreign_names *names, const char *text, uint32_t *name_out, bool *is_new_out);

typedef struct ebb_foreign_step {
    const char *name, *kind;
    ebb_phase phase;
    ebb_repeat repeat; /* exact, until the reader says otherwise */
    uint64_t time_ns;
    size_t first_access; /* up to the next one's */
} ebb_foreign_step;

/* A reader's source, and where it gathers. All texts are the bump's. */
typedef struct ebb_foreign {
    const ebb_mem *mem;
    const char *path; /* for messages */
    const char *name; /* of the program; the reader may set it */
    ebb_bump bump;
    EBB_VEC(ebb_tensor) tensors;
    EBB_VEC(ebb_foreign_step) steps;
    EBB_VEC(ebb_access) accesses; /* of tensors by number */

    /* foreign.c's own */
    ebb_stream *stream;
    const ebb_progress *progress;
    uint8_t head[EBB_PROGRAM_HEAD_BYTES];
    size_t n_head, n_taken;
} ebb_foreign;

typedef struct ebb_foreign_format {
    const char *name, *about;
    bool (*looks_like)(const char *head, size_t n);
    ebb_status (*read)(ebb_foreign *f);
} ebb_foreign_format;

/* At most n bytes of the file; *n_out is 0 at the end only. ctx is the ebb_foreign: a source of JSON takes it as it is.
 */
ebb_status ebb__foreign_read(void *ctx, void *buf, size_t n, size_t *n_out);

/* Texts are copied. A tensor of no bytes takes no part in the program. */
ebb_status ebb__foreign_add_tensor(ebb_foreign *f, const ebb_tensor *tensor, uint32_t *tensor_out);
/* Begin a step; the accesses that follow are its. Empty texts become "step". */
ebb_status ebb__foreign_add_step(ebb_foreign *f, const char *name, const char *kind, ebb_phase phase, uint64_t time_ns);
ebb_status ebb__foreign_add_access(ebb_foreign *f, uint32_t tensor, ebb_access_mode mode);

/* A program must access each persistent tensor. Those that no step accesses are read by a first step, which takes no
 * time. For readers, when all steps are there. */
ebb_status ebb__foreign_read_unused(ebb_foreign *f);

/* The head begins with this, after blanks. */
bool ebb__foreign_begins(const char *head, size_t n, const char *text);
/* The text is in the head. */
bool ebb__foreign_has(const char *head, size_t n, const char *text);

bool ebb__foreign_is_dtr(const char *head, size_t n);
ebb_status ebb__foreign_read_dtr(ebb_foreign *f);

bool ebb__foreign_is_node_link(const char *head, size_t n);
ebb_status ebb__foreign_read_node_link(ebb_foreign *f);

bool ebb__foreign_is_min_cut(const char *head, size_t n);
ebb_status ebb__foreign_read_min_cut(ebb_foreign *f);

bool ebb__foreign_is_g10(const char *head, size_t n);
ebb_status ebb__foreign_read_g10(ebb_foreign *f);

/* ---- from anywhere ---------------------------------------------------------------------------- */

/* A program of what a stream gives. For tests. */
ebb_status ebb__program_import_stream(ebb_stream *stream, const ebb_program_import_options *options,
                                      ebb_program **program_out);

#endif
