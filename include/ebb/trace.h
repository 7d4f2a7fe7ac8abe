/* SPDX-License-Identifier: Apache-2.0
 *
 * Traces: what happened to every block of device memory, in time order. The file format is described in
 * docs/trace-format.md.
 */
#ifndef EBB_TRACE_H
#define EBB_TRACE_H

#include "ebb/role.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- events ----------------------------------------------------------------------------------- */

typedef enum ebb_trace_kind {
    EBB_TRACE_ALLOC,
    EBB_TRACE_FREE,
    EBB_TRACE_READ,
    EBB_TRACE_WRITE,
    EBB_TRACE_LABEL, /* another role and name */
    EBB_TRACE_STEP_BEGIN,
    EBB_TRACE_STEP_END,
    EBB_TRACE_COPY_BEGIN,
    EBB_TRACE_COPY_END,
    EBB_TRACE_MARK,
    EBB_TRACE_SEGMENT_ALLOC, /* what the allocator takes from the device ... */
    EBB_TRACE_SEGMENT_FREE,  /* ... and gives back */
    EBB_TRACE_N_KINDS
} ebb_trace_kind;

/* The things that a source tells, as bits; everything else is unknown, not zero. */
enum {
    EBB_TRACE_TELLS_TIMES = 1u << 0, /* in ns; otherwise they only give an order */
    EBB_TRACE_TELLS_ACCESSES = 1u << 1,
    EBB_TRACE_TELLS_ADDRESSES = 1u << 2,
    EBB_TRACE_TELLS_ROLES = 1u << 3,
    EBB_TRACE_TELLS_STEPS = 1u << 4,
    EBB_TRACE_TELLS_SEGMENTS = 1u << 5,
    EBB_TRACE_TELLS_STACKS = 1u << 6,
    EBB_TRACE_TELLS_BEFORE = 1u << 7, /* the blocks that were there before the recording */
};

/* The name of the idx-th of these bits, "times", "accesses" ...; NULL after the last one. *words_out (may be NULL): an
 * explanation for people. Both static. */
EBB_API const char *ebb_trace_tells_name(size_t idx, const char **words_out);

/* Rows of the timeline; others are free for streams and threads. */
enum { EBB_TRACE_ROW_COMPUTE, EBB_TRACE_ROW_OUT, EBB_TRACE_ROW_IN, EBB_TRACE_MAX_ROWS = 256 };

enum { EBB_TRACE_ITERATION_BEGIN, EBB_TRACE_ITERATION_END, EBB_TRACE_ANNOTATION }; /* marks */
enum { EBB_TRACE_OUT, EBB_TRACE_IN };                                              /* directions of copies */
/* Phases of steps: ebb_phase under the names of the file's format. */
enum {
    EBB_TRACE_PHASE_FORWARD = EBB_PHASE_FORWARD,
    EBB_TRACE_PHASE_BACKWARD = EBB_PHASE_BACKWARD,
    EBB_TRACE_PHASE_UPDATE = EBB_PHASE_UPDATE,
    EBB_TRACE_PHASE_UNKNOWN = EBB_PHASE_UNKNOWN
};

#define EBB_TRACE_NONE UINT64_MAX

/* One event. The comment says for which kinds a member has a meaning; a writer ignores it for the others, a
 * reader gives 0. Zero-initialise it. Strings and stacks are numbers; 0 means none. */
typedef struct ebb_trace_event {
    ebb_trace_kind kind;
    uint32_t row;        /* all */
    uint64_t time_ns;    /* all; never goes back */
    uint32_t stack;      /* all: the call stack that made it */
    uint32_t name;       /* alloc, label, step begin, mark. From a reader also free, read, write, copies: the block's */
    ebb_role role;       /* alloc, label. From a reader also free, read, write, copies: the block's */
    uint32_t space;      /* alloc, segments: the device or pool. From a reader also of a block's events */
    uint64_t block;      /* alloc, free, read, write, label, copies: the first alloc's block is 0, the next one's 1 */
    uint64_t size_bytes; /* alloc, segments, copy begin. From a reader also free, read, write, copy end */
    uint64_t address;    /* alloc (or EBB_TRACE_NONE), segments. From a reader also of a block's events */
    bool before;         /* alloc: the block was there before the recording began */
    uint32_t op;         /* step begin: the operator's name, a string */
    uint32_t phase;      /* step begin: EBB_TRACE_PHASE_... */
    uint64_t index;      /* step begin: in the program, or EBB_TRACE_NONE */
    uint32_t direction;  /* copy begin; from a reader also copy end */
    uint32_t tier;       /* copy begin; from a reader also copy end: which of the lower tiers, from 0 */
    uint32_t mark;       /* mark */
    uint64_t number;     /* mark: of the iteration; of another mark what its writer says, 0 at a range's beginning */
    uint64_t step;       /* from a reader: the innermost open step of the row (the first step begin of the file is
                            0; a begin and an end belong to their own step), or EBB_TRACE_NONE */
} ebb_trace_event;

/* ---- writing ---------------------------------------------------------------------------------- */

typedef struct ebb_trace_writer ebb_trace_writer;

typedef struct ebb_trace_writer_options {
    size_t size_bytes;
    const ebb_mem *mem;
    uint32_t tells;         /* EBB_TRACE_TELLS_... */
    uint64_t start_unix_ns; /* of time 0; 0: unknown */
    bool at_close; /* an existing file at path stays until close replaces it; if the process is killed, it stays */
} ebb_trace_writer_options;
#define EBB_TRACE_WRITER_OPTIONS_INIT EBB_INIT(ebb_trace_writer_options, )

/* Begin a trace file at path; what was there is gone. The file grows while events are added, so that a killed
 * process leaves what it has recorded (but see at_close). options may be NULL. EBB_E_ARGUMENT: options of another
 * version. EBB_E_IO: it cannot be made. */
EBB_API ebb_status ebb_trace_writer_open(const char *path, const ebb_trace_writer_options *options,
                                         ebb_trace_writer **writer_out);

/* The number of a text; each distinct text is stored and written once. "" and NULL are 0. At most 1 MiB. Each byte that
 * is not part of a UTF-8 character is written as '?'. */
EBB_API ebb_status ebb_trace_writer_string(ebb_trace_writer *writer, const char *text, uint32_t *string_out);

/* The number of the stack that adds one frame to the stack caller (0: none). function and file are strings. */
EBB_API ebb_status ebb_trace_writer_frame(ebb_trace_writer *writer, uint32_t caller, uint32_t function, uint32_t file,
                                          uint32_t line, uint32_t *stack_out);

/* A pair of texts about the whole trace, such as "source" and "ebb run". NULL is "". */
EBB_API ebb_status ebb_trace_writer_note(ebb_trace_writer *writer, const char *key, const char *value);

/* Append an event. Takes no memory. EBB_E_ARGUMENT: time goes back, an alloc's block is not the next number, a block
 * that was not allocated, a number that was never given, a row or tier of 256 or more. It does not check whether a
 * block is still live. EBB_E_LIMIT: the sizes of all blocks add up to 2^64 bytes or more. EBB_E_IO: the file is
 * lost. */
EBB_API ebb_status ebb_trace_writer_add(ebb_trace_writer *writer, const ebb_trace_event *event);

/* Finish the file; frees the writer in any case. On failure, and when it is abandoned, the file is removed. */
EBB_API ebb_status ebb_trace_writer_close(ebb_trace_writer *writer);
EBB_API void ebb_trace_writer_abandon(ebb_trace_writer *writer);

/* ---- reading ---------------------------------------------------------------------------------- */

typedef struct ebb_trace_reader ebb_trace_reader;

/* EBB_E_IO: it cannot be read; EBB_E_FORMAT: not a trace; EBB_E_UNSUPPORTED: of another version. */
EBB_API ebb_status ebb_trace_reader_open(const ebb_mem *mem, const char *path, ebb_trace_reader **reader_out);
EBB_API void ebb_trace_reader_close(ebb_trace_reader *reader);

/* The next event. *done_out: there was no more event, and *event_out is unchanged. A file that was cut off ends at the
 * cut; see complete below. EBB_E_FORMAT names the file, the offset and the cause; the reader then gives no more. */
EBB_API ebb_status ebb_trace_reader_next(ebb_trace_reader *reader, ebb_trace_event *event_out, bool *done_out);

typedef struct ebb_trace_info {
    uint32_t tells;
    uint64_t start_unix_ns;
    uint64_t n_events, n_blocks, n_steps; /* so far */
    uint64_t n_live_blocks, live_bytes;   /* after the last event */
    uint64_t offset;                      /* in the file, after the last whole record */
    bool complete; /* the end was read, also by choose; false at the end: it, or what it was made from, is cut off */
} ebb_trace_info;
EBB_API ebb_trace_info ebb_trace_reader_info(const ebb_trace_reader *reader);

/* Borrowed until the reader is closed; "" for 0 and for numbers not seen so far. */
EBB_API const char *ebb_trace_reader_string(const ebb_trace_reader *reader, uint32_t string);

typedef struct ebb_trace_frame {
    uint32_t caller; /* the stack below; 0: none */
    uint32_t function, file, line;
} ebb_trace_frame;

/* The topmost frame of a stack; zeros for 0 and for numbers not seen so far. */
EBB_API ebb_trace_frame ebb_trace_reader_frame(const ebb_trace_reader *reader, uint32_t stack);

/* The value of the last note of this key so far; NULL when there was none. */
EBB_API const char *ebb_trace_reader_note(const ebb_trace_reader *reader, const char *key);

/* ---- steps that were told late ----------------------------------------------------------------- */

/* Put the steps of a file that `ebb record` makes beside a trace (docs/trace-format.md) into the trace at path, by
 * their times, each on a row of its device and stream. A time before the trace's begin becomes its begin. The trace is
 * replaced once all is written; a trace that was cut off stays so. n_steps_out, and n_lost_out: steps that the source
 * had lost, or for which there was no row; both may be NULL. EBB_E_FORMAT names place and cause. EBB_E_IO. */
EBB_API ebb_status ebb_trace_add_late_steps(const ebb_mem *mem, const char *path, const char *steps_path,
                                            uint64_t *n_steps_out, uint64_t *n_lost_out);

/* ---- names of native callers -------------------------------------------------------------------- */

/* A program or library that a process had loaded. */
typedef struct ebb_trace_object {
    const char *path;          /* where it was; "": unknown */
    const char *build_id;      /* its identity, hexadecimal; "": none, or unknown */
    uint64_t recorded_unix_ns; /* a file that changed after this is another one; 0: unknown */
    bool wants_lines;          /* also find inlined functions and source lines: it is not an installed library */
} ebb_trace_object;

/* A function at an address, as debug information has it. */
typedef struct ebb_trace_source {
    const char *function; /* a name of C++ may be mangled */
    const char *file;     /* the source; "": unknown, as is the line */
    uint32_t line;
} ebb_trace_source;

/* Find names for an address of the object's file: first the functions that were inlined there, the innermost first,
 * then the function itself. Write at most n to sources_out and return how many; 0: unknown. The texts stay until the
 * next call. */
typedef size_t (*ebb_trace_find_sources)(void *ctx, const ebb_trace_object *object, uint64_t address,
                                         ebb_trace_source *sources_out, size_t n);

/* Give names to the callers in a trace of `ebb record` at path, which has addresses for them (docs/trace-format.md).
 * The trace is replaced once all is written; a trace that was cut off stays so. Any other trace is not changed. find
 * may be NULL: then functions keep the name that the recorder knew, or an offset in their file. EBB_E_FORMAT,
 * EBB_E_IO. */
EBB_API ebb_status ebb_trace_name_callers(const ebb_mem *mem, const char *path, ebb_trace_find_sources find, void *ctx);

/* ---- devices ---------------------------------------------------------------------------------- */

typedef struct ebb_trace_device {
    const char *name;      /* what the trace calls it, as "cuda:0"; "device N" where it says nothing of space N */
    uint64_t peak_bytes;   /* the most bytes of its blocks that are live at once */
    uint64_t n_blocks;     /* in all */
    bool is_host;          /* the processor, "cpu": all of the spaces cpu, malloc and mmap */
    bool is_named;         /* the trace has a name for it */
    bool is_out_of_memory; /* the trace says that an allocation failed on it */
    bool is_moment; /* a snapshot without history: its blocks as they were at one moment, so its peak is not known */
} ebb_trace_device;

/* Read the whole file to find its devices, and begin again at its front. From now on the reader gives only the events
 * of one device's blocks, which are numbered from 0, and steps and marks; info still counts all events. device: its
 * name, or the number of an accelerator. NULL: a device that ran out of memory, else an accelerator, else any; if there
 * are several, the one with the highest peak. EBB_E_ARGUMENT: no such device; the message names the existing ones.
 * EBB_E_IO: a pipe. EBB_E_FORMAT. After a failure the reader can only be closed. */
EBB_API ebb_status ebb_trace_reader_choose(ebb_trace_reader *reader, const char *device);

/* The devices that were found, in the order in which they come, and the index of the chosen one. n is 0 before that
 * call, and if there are no blocks and no refused ones. Borrowed until the reader is closed or another device is
 * chosen. */
EBB_API const ebb_trace_device *ebb_trace_reader_devices(ebb_trace_reader *reader, size_t *n_out, size_t *chosen_out);

/* The names, with commas, of the devices whose blocks an import left out of this trace; NULL: it left out none. Found
 * and kept like the devices. */
EBB_API const char *ebb_trace_reader_left_out(const ebb_trace_reader *reader);

/* ---- recordings of other tools ---------------------------------------------------------------- */

typedef struct ebb_trace_import_options {
    size_t size_bytes;
    const ebb_mem *mem;
    const char *format; /* NULL: by the file's first bytes or, if these could be of several formats, by its name */
    /* Whose blocks: "cpu", the number of an accelerator ("1", "cuda:1"), or "all", each device in a space of its own.
     * NULL: the accelerator that ran out of memory, else the one with most blocks, else the processor. A trace of ebb's
     * is copied with all its devices, so only NULL and "all" are taken for it. */
    const char *device;
    const char *temp_dir;  /* a folder for temporary copies of pipes that are read twice; NULL: the system's */
    ebb_progress progress; /* told how many MiB of the file are read */
} ebb_trace_import_options;
#define EBB_TRACE_IMPORT_OPTIONS_INIT EBB_INIT(ebb_trace_import_options, )

typedef struct ebb_trace_import_result {
    const char *format; /* static */
    uint32_t tells;
    uint64_t n_events, n_blocks; /* written */
    uint64_t n_left_out;         /* records of the file that fit no block, such as the free of one never allocated */
    bool complete;               /* false: the file was cut off, and its end is missing */
    char device[64];             /* whose blocks; "": not told, or all that a trace has */
    char left_out[192];          /* the other devices' names, with commas; "" where none exist */
} ebb_trace_import_result;

/* Read a recording, plain or gzipped, and write it as a trace to out_path, whole or not at all. A trace is copied.
 * docs/import.md says what is made of each format. options and result_out may be NULL. EBB_E_ARGUMENT: options
 * of another version, no such format or device. EBB_E_UNSUPPORTED: an unknown format, or a version or content that ebb
 * cannot read. EBB_E_FORMAT names place and cause. EBB_E_IO. */
EBB_API ebb_status ebb_trace_import(const char *path, const char *out_path, const ebb_trace_import_options *options,
                                    ebb_trace_import_result *result_out);

/* Open a trace as it is, and a recording of another tool through a temporary file in the folder temp_dir (NULL: the
 * system's), which no other program sees and which is gone with the reader. Failures as of ebb_trace_import and
 * ebb_trace_reader_open. */
EBB_API ebb_status ebb_trace_open_any(const ebb_mem *mem, const char *path, const char *temp_dir,
                                      ebb_trace_reader **reader_out);

/* The same for one device, which is chosen as by ebb_trace_reader_choose. For Chrome's traces and execution traces
 * ebb_trace_import makes the choice, and only the names of the other devices are known. */
EBB_API ebb_status ebb_trace_open_device(const ebb_mem *mem, const char *path, const char *temp_dir, const char *device,
                                         ebb_trace_reader **reader_out);

/* The same with options: format is not used, device is as of ebb_trace_reader_choose. The reader tells progress each
 * time it is read through, also later. options may be NULL. */
EBB_API ebb_status ebb_trace_open(const char *path, const ebb_trace_import_options *options,
                                  ebb_trace_reader **reader_out);

/* The name of a file's format, told by its first n_bytes; static. NULL: not a format that can be imported. Gzipped
 * bytes are not unpacked. path is the file's name, which decides where the bytes could be of several formats; no file
 * is opened. EBB_TRACE_HEAD_BYTES are always enough. */
#define EBB_TRACE_HEAD_BYTES ((size_t)64 * 1024)
EBB_API const char *ebb_trace_format_of(const void *head, size_t n_bytes, const char *path);

/* The idx-th format that can be imported; NULL after the last. *about_out, unless NULL: a line about it. Static. */
EBB_API const char *ebb_trace_format_name(size_t idx, const char **about_out);

#ifdef __cplusplus
}
#endif

#endif
