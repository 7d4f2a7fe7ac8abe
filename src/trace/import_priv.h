/* SPDX-License-Identifier: Apache-2.0
 *
 * What an importer is: a line in the table of import.c, and a function that reads one format and writes events.
 *
 * An importer takes bytes with ebb__import_read, front to end, unzipped already; calls ebb__import_begin once it knows
 * what its source tells; then adds strings, notes and events to its writer. It neither closes nor abandons that. What
 * fits nothing (the free of a block that was never allocated) it counts in n_left_out, what breaks the format it
 * refuses with EBB_E_FORMAT, the path and the place. It holds memory for live blocks and distinct texts, not for the
 * file, or says in docs/import.md why not.
 */
#ifndef EBB_SRC_IMPORT_PRIV_H
#define EBB_SRC_IMPORT_PRIV_H

#include "base/byte_stream.h"
#include "base/json_read.h"
#include "trace/trace_priv.h"

typedef struct ebb_importer ebb_importer;

typedef struct ebb_import_format {
    const char *name;   /* of --format */
    const char *source; /* the note of that key; NULL: it has its own */
    const char *about;
    /* Whether the first n bytes of the file at path are of this format. */
    bool (*looks_like)(const uint8_t *head, size_t n, const char *path);
    ebb_status (*import)(ebb_importer *importer);
} ebb_import_format;

struct ebb_importer {
    const ebb_mem *mem;
    const char *path; /* for messages */
    const ebb_trace_import_options *options;
    ebb_trace_writer *writer; /* NULL until ebb__import_begin */
    uint64_t n_left_out;
    bool cut;                       /* the file's end is missing */
    char device[64], left_out[192]; /* as of ebb_trace_import_result */

    /* import.c's own */
    const ebb_import_format *format;
    ebb_stream *stream;
    ebb_stream kept; /* what stream is after ebb__import_keep of a pipe */
    uint8_t *head;
    size_t n_head, n_taken; /* of the head */
    const char *out_path;   /* or */
    int out_fd;
    uint32_t tells;
    uint64_t n_events, n_blocks;
};

/* At most n bytes; *n_out is 0 at the end only. EBB_E_FORMAT: it is gzipped and broken or cut off. */
ebb_status ebb__import_read(ebb_importer *importer, void *buf, size_t n, size_t *n_out);

/* For importers that read twice, before the first byte: a pipe's bytes are kept in a file. */
ebb_status ebb__import_keep(ebb_importer *importer);
/* Begin again at the front. */
ebb_status ebb__import_rewind(ebb_importer *importer);

/* Open importer->writer; writes the note source. */
ebb_status ebb__import_begin(ebb_importer *importer, uint32_t tells, uint64_t start_unix_ns);

/* Read all of the importer's file as ebb__json_read does; importer->cut is set where it ends too early. */
ebb_status ebb__import_json_read(ebb_importer *importer, const ebb_json_handler *handler);

/* The writer's number of a text of another program's: bytes that are no UTF-8 become '?', and of more than 1 MiB the
 * rest is cut off. */
ebb_status ebb__import_string(ebb_importer *importer, const char *text, uint32_t *string_out);

/* A note whose value is another program's text, or a number. */
ebb_status ebb__import_note(ebb_importer *importer, const char *key, const char *value);
ebb_status ebb__import_note_u64(ebb_importer *importer, const char *key, uint64_t value);

/* ---- PyTorch's names -------------------------------------------------------------------------- */

#define IMPORT_OPTIMIZER "Optimizer.step#" /* what an optimiser's update is called, and then its class */

static inline bool ebb__import_begins_with(const char *text, const char *prefix) {
    return strncmp(text, prefix, strlen(prefix)) == 0;
}

/* The phase of a span of this name; around: of the one that it lies in. is_forward: autograd numbered it. */
uint32_t ebb__import_phase(const char *name, bool is_forward, uint32_t around);

#define IMPORT_BEFORE "before the recording" /* the name of what was there, where no one knows another */

/* Whether what is allocated within a span of this name is named after it: an operator, or an optimiser's update; of
 * those within each other the outermost. Annotations of the program are around too much. */
bool ebb__import_names_blocks(const char *name);

/* Rows of other threads than the one with most steps begin here. */
#define IMPORT_FIRST_FREE_ROW 3u

/* ---- devices ---------------------------------------------------------------------------------- */

#define IMPORT_CPU UINT32_MAX /* the processor, as the number of a device */
#define IMPORT_BUSIEST (UINT32_MAX - 1)
#define IMPORT_ALL (UINT32_MAX - 2)

/* What options ask for: IMPORT_CPU, IMPORT_BUSIEST (an accelerator, else the processor), IMPORT_ALL, or the number of
 * an accelerator. */
uint32_t ebb__import_device(const ebb_importer *importer);

/* A device of a source. */
typedef struct ebb_import_device {
    char name[32]; /* "cuda:0" */
    bool is_cpu;
    uint64_t index;
    uint64_t n_blocks;
} ebb_import_device;

#define IMPORT_NO_SPACE UINT32_MAX

/* The space of each of n devices, or IMPORT_NO_SPACE where options do not ask for it. EBB_E_ARGUMENT: for none. */
ebb_status ebb__import_choose_devices(const ebb_importer *importer, const ebb_import_device *devices, size_t n,
                                      uint32_t *space_out);

/* The note device; and left_out, to which a name is added. */
ebb_status ebb__import_note_device(ebb_importer *importer, const char *name);
ebb_status ebb__import_leave_out(ebb_importer *importer, const char *name);

/* The notes device, left_out and space.N. */
ebb_status ebb__import_note_devices(ebb_importer *importer, const ebb_import_device *devices, size_t n,
                                    const uint32_t *space);

/* ---- formats ---------------------------------------------------------------------------------- */

bool ebb__import_is_csv(const uint8_t *head, size_t n, const char *path);
ebb_status ebb__import_csv(ebb_importer *importer);

bool ebb__import_is_chrome(const uint8_t *head, size_t n, const char *path);
ebb_status ebb__import_chrome(ebb_importer *importer);

bool ebb__import_is_execution(const uint8_t *head, size_t n, const char *path);
ebb_status ebb__import_execution(ebb_importer *importer);

bool ebb__import_is_timeline(const uint8_t *head, size_t n, const char *path);
ebb_status ebb__import_timeline(ebb_importer *importer);

bool ebb__import_is_singa(const uint8_t *head, size_t n, const char *path);
ebb_status ebb__import_singa(ebb_importer *importer);

bool ebb__import_is_snapshot(const uint8_t *head, size_t n, const char *path);
ebb_status ebb__import_snapshot(ebb_importer *importer);

/* ---- from anywhere ---------------------------------------------------------------------------- */

/* Import what a stream gives into the open file out_fd, which is closed. For tests. */
ebb_status ebb__import_stream(ebb_stream *stream, int out_fd, const ebb_trace_import_options *options,
                              ebb_trace_import_result *result_out);

#endif
