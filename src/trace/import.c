/* SPDX-License-Identifier: Apache-2.0
 *
 * Other tools' recordings as traces: tells formats apart, and gives each importer its bytes and its writer.
 *
 * A file is read once, front to end, so that a pipe will do. Its first bytes are kept until the importer has taken
 * them. The output goes to its place when it is whole; for ebb_trace_open_any it goes to a file without a name.
 */
#include "base/file.h"
#include "trace/import_priv.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define COPY_BYTES ((size_t)64 * 1024)
#define TEMPORARY "a temporary file" /* in messages */

static bool is_trace(const uint8_t *head, size_t n, const char *path) {
    (void)path;
    return n >= TRACE_MAGIC_BYTES && memcmp(head, TRACE_MAGIC, TRACE_MAGIC_BYTES) == 0;
}

static ebb_status copy_trace(ebb_importer *importer);

static const ebb_import_format formats[] = {
    {"ebb", NULL, "a trace of ebb's own, which is copied", is_trace, copy_trace},
    {"chrome", "chrome trace", "Chrome's trace events with [memory], of torch.profiler with profile_memory",
     ebb__import_is_chrome, ebb__import_chrome},
    {"execution", "pytorch execution trace", "PyTorch's ExecutionTraceObserver: reads and writes of every operator",
     ebb__import_is_execution, ebb__import_execution},
    {"timeline", "pytorch memory timeline", "torch.profiler's export_memory_timeline, exported as raw.json.gz",
     ebb__import_is_timeline, ebb__import_timeline},
    {"csv", "minimalloc csv", "buffers with lifetimes, as minimalloc and `ebb place` have them", ebb__import_is_csv,
     ebb__import_csv},
    {"singa", "singa log", "mallocs, frees, reads and writes as lines of text, as SINGA logs them",
     ebb__import_is_singa, ebb__import_singa},
    {"snapshot", "pytorch snapshot", "a memory snapshot of PyTorch, as torch.cuda.memory._dump_snapshot writes it",
     ebb__import_is_snapshot, ebb__import_snapshot},
};
#define N_FORMATS (sizeof formats / sizeof formats[0])

const char *ebb_trace_format_name(size_t idx, const char **about_out) {
    if (idx >= N_FORMATS) { return NULL; }
    if (about_out != NULL) { *about_out = formats[idx].about; }
    return formats[idx].name;
}

/* ---- what importers call ---------------------------------------------------------------------- */

ebb_status ebb__import_read(ebb_importer *importer, void *buf, size_t n, size_t *n_out) {
    EBB_ASSERT(importer->n_taken <= importer->n_head);
    const size_t n_left = importer->n_head - importer->n_taken;
    if (n_left == 0) {
        const ebb_status st = ebb__stream_read_some(importer->stream, buf, n, n_out);
        importer->cut = importer->cut || importer->stream->is_cut;
        ebb__trace_tell_read(&importer->options->progress, ebb__stream_file_offset(importer->stream),
                             importer->stream->file_bytes);
        return st;
    }
    if (n > n_left) { n = n_left; }
    memcpy(buf, importer->head + importer->n_taken, n);
    importer->n_taken += n;
    *n_out = n;
    return EBB_OK;
}

ebb_status ebb__import_begin(ebb_importer *importer, uint32_t tells, uint64_t start_unix_ns) {
    EBB_ASSERT(importer->writer == NULL && importer->format->source != NULL);
    ebb_trace_writer_options options = EBB_TRACE_WRITER_OPTIONS_INIT;
    options.mem = importer->mem;
    options.tells = tells;
    options.start_unix_ns = start_unix_ns;
    options.at_close = true;
    importer->tells = tells;
    if (importer->out_path != NULL) {
        EBB_TRY(ebb_trace_writer_open(importer->out_path, &options, &importer->writer));
    } else {
        const int fd = importer->out_fd;
        importer->out_fd = -1;
        EBB_TRY(ebb__trace_writer_open_fd(TEMPORARY, fd, &options, &importer->writer));
    }
    ebb__trace_writer_name(importer->writer, importer->path);
    return ebb_trace_writer_note(importer->writer, "source", importer->format->source);
}

static ebb_status read_source(void *ctx, void *buf, size_t n, size_t *n_out) {
    return ebb__import_read(ctx, buf, n, n_out);
}

ebb_status ebb__import_json_read(ebb_importer *importer, const ebb_json_handler *handler) {
    ebb_json_source source = {.mem = importer->mem, .path = importer->path, .read = read_source, .ctx = importer};
    const ebb_status st = ebb__json_read(&source, handler);
    if (st == EBB_OK) { importer->cut = source.is_cut; }
    return st;
}

ebb_status ebb__import_string(ebb_importer *importer, const char *text, uint32_t *string_out) {
    EBB_ASSERT(importer->writer != NULL);
    return ebb__trace_writer_text(importer->writer, text, strlen(text), string_out);
}

ebb_status ebb__import_note(ebb_importer *importer, const char *key, const char *value) {
    EBB_ASSERT(importer->writer != NULL);
    return ebb__trace_writer_note_text(importer->writer, key, value, strlen(value));
}

ebb_status ebb__import_note_u64(ebb_importer *importer, const char *key, uint64_t value) {
    char text[32];
    (void)snprintf(text, sizeof text, "%llu", (unsigned long long)value);
    return ebb_trace_writer_note(importer->writer, key, text);
}

uint32_t ebb__import_phase(const char *name, bool is_forward, uint32_t around) {
    if (ebb__import_begins_with(name, "autograd::engine::evaluate_function")) { return EBB_TRACE_PHASE_BACKWARD; }
    if (ebb__import_begins_with(name, IMPORT_OPTIMIZER)) { return EBB_TRACE_PHASE_UPDATE; }
    return around == EBB_TRACE_PHASE_UNKNOWN && is_forward ? EBB_TRACE_PHASE_FORWARD : around;
}

bool ebb__import_names_blocks(const char *name) {
    return strstr(name, "::") != NULL || ebb__import_begins_with(name, IMPORT_OPTIMIZER);
}

static bool parse_device(const char *text, uint32_t *device_out) {
    const char *number_text = text != NULL ? strrchr(text, ':') : NULL;
    if (text == NULL || strcmp(text, "cpu") == 0 || strcmp(text, "all") == 0) {
        *device_out = text == NULL ? IMPORT_BUSIEST : text[0] == 'c' ? IMPORT_CPU : IMPORT_ALL;
        return true;
    }
    uint64_t number = 0;
    const bool is_right = ebb__parse_u64(number_text != NULL ? number_text + 1 : text, &number) && number < IMPORT_ALL;
    *device_out = (uint32_t)number;
    return is_right;
}

uint32_t ebb__import_device(const ebb_importer *importer) {
    uint32_t device = IMPORT_BUSIEST;
    const bool is_right = parse_device(importer->options->device, &device); /* asked for when the options came */
    EBB_ASSERT(is_right);
    (void)is_right;
    return device;
}

/* ---- devices ---------------------------------------------------------------------------------- */

/* The accelerator with most blocks, else the processor. */
static size_t busiest(const ebb_import_device *devices, size_t n) {
    size_t found = 0;
    for (size_t i = 1; i < n; i++) {
        const ebb_import_device *a = &devices[found], *b = &devices[i];
        if (a->is_cpu != b->is_cpu ? a->is_cpu : b->n_blocks > a->n_blocks) { found = i; }
    }
    return found;
}

static bool is_asked_for(const ebb_import_device *device, uint32_t wanted, bool is_busiest) {
    switch (wanted) {
    case IMPORT_ALL: return true;
    case IMPORT_BUSIEST: return is_busiest;
    case IMPORT_CPU: return device->is_cpu;
    default: return !device->is_cpu && device->index == wanted;
    }
}

static ebb_status refuse_device(const ebb_importer *importer, const ebb_import_device *devices, size_t n_devices) {
    char names[256] = "";
    for (size_t i = 0, n = 0; i < n_devices && n + sizeof devices[i].name + 2 < sizeof names; i++) {
        n += (size_t)snprintf(names + n, sizeof names - n, "%s%s", i > 0 ? ", " : "", devices[i].name);
    }
    return ebb_fail(EBB_E_ARGUMENT, "%s: has no device %s, but %s", importer->path, importer->options->device, names);
}

ebb_status ebb__import_choose_devices(const ebb_importer *importer, const ebb_import_device *devices, size_t n,
                                      uint32_t *space_out) {
    EBB_ASSERT(n > 0);
    const uint32_t wanted = ebb__import_device(importer);
    const size_t most = busiest(devices, n);
    uint32_t n_spaces = 0;
    for (size_t i = 0; i < n; i++) {
        space_out[i] = is_asked_for(&devices[i], wanted, i == most) ? n_spaces++ : IMPORT_NO_SPACE;
    }
    return n_spaces > 0 ? EBB_OK : refuse_device(importer, devices, n);
}

ebb_status ebb__import_leave_out(ebb_importer *importer, const char *name) {
    char *list = importer->left_out;
    const size_t n = strlen(list);
    EBB_ASSERT(n < sizeof importer->left_out);
    (void)snprintf(list + n, sizeof importer->left_out - n, "%s%s", n > 0 ? ", " : "", name);
    return ebb__import_note(importer, "left_out", list); /* the last note of a key counts */
}

ebb_status ebb__import_note_device(ebb_importer *importer, const char *name) {
    (void)snprintf(importer->device, sizeof importer->device, "%s", name);
    return ebb_trace_writer_note(importer->writer, "device", name);
}

ebb_status ebb__import_note_devices(ebb_importer *importer, const ebb_import_device *devices, size_t n,
                                    const uint32_t *space) {
    char key[32];
    const char *name = NULL;
    for (size_t i = 0; i < n; i++) {
        if (space[i] == IMPORT_NO_SPACE) {
            EBB_TRY(ebb__import_leave_out(importer, devices[i].name));
            continue;
        }
        (void)snprintf(key, sizeof key, "space.%u", space[i]);
        EBB_TRY(ebb_trace_writer_note(importer->writer, key, devices[i].name));
        name = name == NULL ? devices[i].name : "all";
    }
    return ebb__import_note_device(importer, name);
}

/* ---- files ------------------------------------------------------------------------------------ */

/* A file without a name; in memory only where no one named a folder and the system's takes none. */
static ebb_status make_temporary(const char *temp_dir, int *fd_out) {
    const char *dir = temp_dir != NULL ? temp_dir : P_tmpdir;
    char path[PATH_MAX];
    int fd = open(dir, O_TMPFILE | O_EXCL | O_RDWR | O_CLOEXEC, 0600);
    if (fd < 0 && (size_t)snprintf(path, sizeof path, "%s/ebb-XXXXXX", dir) < sizeof path) {
        fd = mkostemp(path, O_CLOEXEC);
        if (fd >= 0) { (void)unlink(path); }
    }
    if (fd < 0 && temp_dir == NULL) { fd = memfd_create("ebb-import", MFD_CLOEXEC); }
    if (fd < 0) { return ebb__fail_errno(dir, "make a temporary file in"); }
    *fd_out = fd;
    return EBB_OK;
}

static ebb_status duplicate(int fd, int *fd_out) {
    *fd_out = fcntl(fd, F_DUPFD_CLOEXEC, 0);
    return *fd_out >= 0 ? EBB_OK : ebb__fail_errno(TEMPORARY, "open");
}

/* The bytes of fd, as a trace. fd is the reader's in any case. */
static ebb_status open_from_start(const ebb_mem *mem, const char *name, int fd, ebb_trace_reader **reader_out) {
    if (lseek(fd, 0, SEEK_SET) != 0) {
        const ebb_status st = ebb__fail_errno(name, "read");
        (void)close(fd);
        return st;
    }
    return ebb__trace_reader_open_fd(mem, name, fd, reader_out);
}

/* All that is left of the file, unzipped, into fd, which is closed. */
static ebb_status spool(ebb_importer *importer, int fd) {
    ebb_file_writer *file = NULL;
    uint8_t buf[COPY_BYTES];
    EBB_TRY(ebb__file_writer_open_fd(importer->mem, TEMPORARY, fd, &file));
    for (size_t n = 1; n > 0;) {
        ebb_status st = ebb__import_read(importer, buf, sizeof buf, &n);
        if (st == EBB_OK) { st = ebb__file_writer_write(file, buf, n); }
        if (st != EBB_OK) {
            ebb__file_writer_abandon(file);
            return st;
        }
    }
    return ebb__file_writer_commit(file);
}

ebb_status ebb__import_keep(ebb_importer *importer) {
    int fd = -1, twin = -1;
    EBB_ASSERT(importer->n_taken == 0 && importer->kept.file == NULL);
    if (ebb__stream_rewind(importer->stream)) {
        importer->n_head = 0;
        return EBB_OK;
    }
    EBB_TRY(make_temporary(importer->options->temp_dir, &fd));
    ebb_status st = duplicate(fd, &twin);
    if (st == EBB_OK) { st = spool(importer, twin); }
    if (st == EBB_OK && lseek(fd, 0, SEEK_SET) != 0) { st = ebb__fail_errno(importer->path, "read again"); }
    if (st != EBB_OK) {
        (void)close(fd);
        return st;
    }
    EBB_TRY(ebb__stream_open_fd(importer->path, fd, &importer->kept));
    importer->stream = &importer->kept;
    return EBB_OK;
}

ebb_status ebb__import_rewind(ebb_importer *importer) {
    EBB_ASSERT(importer->n_taken == importer->n_head);
    if (ebb__stream_rewind(importer->stream)) { return EBB_OK; }
    return ebb__fail_errno(importer->path, "read again");
}

/* ---- traces of ebb's own ---------------------------------------------------------------------- */

/* The bytes read from the source are kept, but no more of them than were in order. */
typedef struct keeper {
    ebb_importer *importer;
    ebb_file_writer *file;
} keeper;

static ebb_status read_and_keep(void *ctx, void *buf, size_t n, size_t *n_out) {
    const keeper *k = ctx;
    EBB_TRY(ebb__import_read(k->importer, buf, n, n_out));
    return ebb__file_writer_write(k->file, buf, *n_out);
}

/* Read the trace to its end, and keep it in fd, which is closed. */
static ebb_status look_through(ebb_importer *importer, int fd, ebb_trace_info *info_out) {
    ebb_trace_reader *reader = NULL;
    ebb_trace_event event;
    keeper k = {.importer = importer};
    EBB_TRY(ebb__file_writer_open_fd(importer->mem, TEMPORARY, fd, &k.file));
    ebb_status st = ebb__trace_reader_open_from(importer->mem, importer->path, read_and_keep, &k, &reader);
    for (bool done = false; st == EBB_OK && !done;) { st = ebb_trace_reader_next(reader, &event, &done); }
    if (reader != NULL) { *info_out = ebb_trace_reader_info(reader); }
    ebb_trace_reader_close(reader);
    if (st == EBB_OK) { return ebb__file_writer_commit(k.file); }
    ebb__file_writer_abandon(k.file);
    return st;
}

static ebb_status open_copy(ebb_importer *importer, ebb_file_writer **file_out) {
    EBB_ASSERT((importer->out_path != NULL) != (importer->out_fd >= 0));
    if (importer->out_path != NULL) { return ebb__file_writer_open(importer->mem, importer->out_path, 0, file_out); }
    const int fd = importer->out_fd;
    importer->out_fd = -1;
    return ebb__file_writer_open_fd(importer->mem, TEMPORARY, fd, file_out);
}

/* The first n bytes of fd, which have been looked through. */
static ebb_status copy_out(ebb_importer *importer, int fd, uint64_t n_bytes) {
    uint8_t buf[COPY_BYTES];
    ebb_file_writer *file = NULL;
    EBB_TRY(open_copy(importer, &file));
    for (uint64_t at = 0; at < n_bytes;) {
        const ssize_t n = pread(fd, buf, (size_t)ebb_min_u64(sizeof buf, n_bytes - at), (off_t)at);
        const ebb_status st =
            n > 0 ? ebb__file_writer_write(file, buf, (size_t)n) : ebb__fail_errno(importer->path, "copy");
        if (st != EBB_OK) {
            ebb__file_writer_abandon(file);
            return st;
        }
        at += (uint64_t)n;
    }
    return ebb__file_writer_commit(file);
}

static ebb_status copy_trace(ebb_importer *importer) {
    int fd = -1, twin = -1;
    const char *device = importer->options->device;
    if (importer->out_path != NULL && device != NULL && strcmp(device, "all") != 0) {
        return ebb_fail(EBB_E_ARGUMENT,
                        "%s: a trace is copied with all its devices; report, check, diff and place choose one of them",
                        importer->path);
    }
    EBB_TRY(make_temporary(importer->options->temp_dir, &fd));
    ebb_trace_info info = {0};
    ebb_status st = duplicate(fd, &twin);
    if (st == EBB_OK) { st = look_through(importer, twin, &info); }
    if (st == EBB_OK) { st = copy_out(importer, fd, info.offset); }
    (void)close(fd);
    importer->tells = info.tells;
    importer->n_events = info.n_events;
    importer->n_blocks = info.n_blocks;
    importer->cut = !info.complete; /* whether gzip ended in order does not matter then */
    return st;
}

/* ---- one import ------------------------------------------------------------------------------- */

static const ebb_import_format *format_of(const uint8_t *head, size_t n, const char *path) {
    for (size_t i = 0; i < N_FORMATS && n > 0; i++) {
        if (formats[i].looks_like(head, n, path)) { return &formats[i]; }
    }
    return NULL;
}

const char *ebb_trace_format_of(const void *head, size_t n_bytes, const char *path) {
    const ebb_import_format *format = format_of(head, n_bytes, path);
    return format != NULL ? format->name : NULL;
}

static const ebb_import_format *format_called(const char *name) {
    for (size_t i = 0; i < N_FORMATS; i++) {
        if (strcmp(name, formats[i].name) == 0) { return &formats[i]; }
    }
    return NULL;
}

/* For a file that may hold a recording but is not one: what it is and what to do with it. NULL: it is not known. */
static const char *known_otherwise(const uint8_t *head, size_t n) {
    static const struct {
        size_t at, n_bytes;
        const char *bytes, *what;
    } others[] = {
        {257, 5, "ustar", "a tar archive; unpack it, and name the recording in it"},
        {0, 4, "PK\x03\x04", "a zip archive, as torch.save writes too; unpack it, and name the recording in it"},
        {0, 4, "\x28\xb5\x2f\xfd", "compressed with zstd; unpack it with unzstd (gzip is read as it is)"},
        {0, 6,
         "\xfd"
         "7zXZ",
         "compressed with xz; unpack it with unxz (gzip is read as it is)"},
        {0, 3, "BZh", "compressed with bzip2; unpack it with bunzip2 (gzip is read as it is)"},
        {0, 4,
         "\x7f"
         "ELF",
         "a program; record a run of it with ebb record"},
    };
    for (size_t i = 0; i < sizeof others / sizeof others[0]; i++) {
        if (n < others[i].at + others[i].n_bytes) { continue; }
        if (memcmp(head + others[i].at, others[i].bytes, others[i].n_bytes) == 0) { return others[i].what; }
    }
    return NULL;
}

static ebb_status find_format(ebb_importer *importer) {
    const char *wanted = importer->options->format;
    importer->format =
        wanted != NULL ? format_called(wanted) : format_of(importer->head, importer->n_head, importer->path);
    if (importer->format != NULL) { return EBB_OK; }
    if (wanted != NULL) { return ebb_fail(EBB_E_ARGUMENT, "there is no format %s to import", wanted); }
    if (importer->n_head == 0) { return ebb_fail(EBB_E_FORMAT, "%s: an empty file", importer->path); }
    const char *other = known_otherwise(importer->head, importer->n_head);
    if (other != NULL) { return ebb_fail(EBB_E_UNSUPPORTED, "%s: %s", importer->path, other); }
    return ebb_fail(EBB_E_UNSUPPORTED, "%s: neither a trace nor a recording of a known format", importer->path);
}

/* Take the file's first bytes, and find out what it is. */
static ebb_status begin(ebb_importer *importer, ebb_stream *stream, const ebb_trace_import_options *options) {
    uint32_t device = 0;
    if (options->size_bytes != sizeof *options) {
        return ebb_fail(EBB_E_ARGUMENT, "import: options of another version");
    }
    if (!parse_device(options->device, &device)) {
        return ebb_fail(EBB_E_ARGUMENT, "a device is cpu, all or a number, not %s", options->device);
    }
    *importer = (ebb_importer){.mem = ebb__mem_or_default(options->mem),
                               .path = stream->name,
                               .options = options,
                               .stream = stream,
                               .out_fd = -1};
    importer->head = ebb__alloc(importer->mem, EBB_TRACE_HEAD_BYTES, 1);
    if (importer->head == NULL) { return EBB_E_NO_MEMORY; }
    stream->may_be_cut = true;
    ebb_status st = ebb__stream_read_some(stream, importer->head, EBB_TRACE_HEAD_BYTES, &importer->n_head);
    importer->cut = stream->is_cut;
    if (st == EBB_OK) { st = find_format(importer); }
    if (st != EBB_OK) { ebb__free(importer->mem, importer->head); }
    return st;
}

static ebb_status finish(ebb_importer *importer, ebb_status st) {
    if (importer->out_fd >= 0) { (void)close(importer->out_fd); }
    ebb__stream_close(&importer->kept);
    ebb__free(importer->mem, importer->head);
    if (importer->writer == NULL) { return st; }
    if (st == EBB_OK && importer->cut) {
        st = ebb_trace_writer_note(importer->writer, TRACE_CUT_NOTE, "the recording's end is missing");
    }
    ebb__trace_writer_count(importer->writer, &importer->n_events, &importer->n_blocks);
    if (st == EBB_OK) { return ebb_trace_writer_close(importer->writer); }
    ebb_trace_writer_abandon(importer->writer);
    return st;
}

/* Into out_path, or into out_fd, which is closed. */
static ebb_status import_stream(ebb_stream *stream, const char *out_path, int out_fd,
                                const ebb_trace_import_options *options, ebb_trace_import_result *result_out) {
    const ebb_trace_import_options defaults = EBB_TRACE_IMPORT_OPTIONS_INIT;
    ebb_importer importer;
    ebb_status st = begin(&importer, stream, options != NULL ? options : &defaults);
    if (st != EBB_OK) {
        if (out_fd >= 0) { (void)close(out_fd); }
        return st;
    }
    importer.out_path = out_path;
    importer.out_fd = out_fd;
    st = finish(&importer, importer.format->import(&importer));
    if (st == EBB_OK && result_out != NULL) {
        *result_out = (ebb_trace_import_result){.format = importer.format->name,
                                                .tells = importer.tells,
                                                .n_events = importer.n_events,
                                                .n_blocks = importer.n_blocks,
                                                .n_left_out = importer.n_left_out,
                                                .complete = !importer.cut};
        memcpy(result_out->device, importer.device, sizeof importer.device);
        memcpy(result_out->left_out, importer.left_out, sizeof importer.left_out);
    }
    return st;
}

ebb_status ebb__import_stream(ebb_stream *stream, int out_fd, const ebb_trace_import_options *options,
                              ebb_trace_import_result *result_out) {
    return import_stream(stream, NULL, out_fd, options, result_out);
}

ebb_status ebb_trace_import(const char *path, const char *out_path, const ebb_trace_import_options *options,
                            ebb_trace_import_result *result_out) {
    EBB_NEED(path);
    EBB_NEED(out_path);
    ebb_stream stream;
    EBB_TRY(ebb__stream_open(path, &stream));
    const ebb_status st = import_stream(&stream, out_path, -1, options, result_out);
    ebb__stream_close(&stream);
    return st;
}

/* ---- opening anything ------------------------------------------------------------------------- */

/* Whether path's first bytes are a trace's, and can be read again. */
static bool is_trace_file(const char *path) {
    uint8_t magic[TRACE_MAGIC_BYTES];
    struct stat info;
    if (stat(path, &info) != 0 || !S_ISREG(info.st_mode)) { return false; } /* opening a pipe would be seen */
    const int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0) { return false; }
    const bool is = pread(fd, magic, sizeof magic, 0) == sizeof magic && is_trace(magic, sizeof magic, path);
    (void)close(fd);
    return is;
}

/* A trace of ebb's is opened whole. */
static ebb_status open_any(const char *path, const ebb_trace_import_options *options, ebb_trace_reader **reader_out) {
    ebb_stream stream;
    int fd = -1, twin = -1;
    if (is_trace_file(path)) { return ebb_trace_reader_open(options->mem, path, reader_out); }
    EBB_TRY(ebb__stream_open(path, &stream));
    ebb_status st = make_temporary(options->temp_dir, &fd);
    if (st == EBB_OK) { st = duplicate(fd, &twin); }
    if (st == EBB_OK) { st = import_stream(&stream, NULL, twin, options, NULL); }
    ebb__stream_close(&stream);
    if (st == EBB_OK) { return open_from_start(options->mem, path, fd, reader_out); }
    if (fd >= 0) { (void)close(fd); }
    return st;
}

ebb_status ebb_trace_open_any(const ebb_mem *mem, const char *path, const char *temp_dir,
                              ebb_trace_reader **reader_out) {
    EBB_NEED(path);
    EBB_NEED(reader_out);
    ebb_trace_import_options options = EBB_TRACE_IMPORT_OPTIONS_INIT;
    options.mem = mem;
    options.temp_dir = temp_dir;
    return open_any(path, &options, reader_out);
}

ebb_status ebb_trace_open(const char *path, const ebb_trace_import_options *options, ebb_trace_reader **reader_out) {
    EBB_NEED(path);
    EBB_NEED(reader_out);
    ebb_trace_import_options how = EBB_TRACE_IMPORT_OPTIONS_INIT;
    uint32_t number = 0;
    ebb_trace_reader *reader = NULL;
    if (options != NULL && options->size_bytes != sizeof *options) {
        return ebb_fail(EBB_E_ARGUMENT, "open: options of another version");
    }
    if (options != NULL) { how = *options; }
    const char *device = how.device;
    const bool is_importers = parse_device(device, &number) && number != IMPORT_ALL; /* else a name of a trace's own */
    how.format = NULL;
    how.device = is_importers ? device : NULL;
    EBB_TRY(open_any(path, &how, &reader));
    ebb__trace_reader_tell(reader, &how.progress);
    const ebb_status st = ebb_trace_reader_choose(reader, device);
    if (st != EBB_OK) {
        ebb_trace_reader_close(reader);
        return st;
    }
    *reader_out = reader;
    return EBB_OK;
}

ebb_status ebb_trace_open_device(const ebb_mem *mem, const char *path, const char *temp_dir, const char *device,
                                 ebb_trace_reader **reader_out) {
    EBB_NEED(path);
    EBB_NEED(reader_out);
    ebb_trace_import_options options = EBB_TRACE_IMPORT_OPTIONS_INIT;
    options.mem = mem;
    options.temp_dir = temp_dir;
    options.device = device;
    return ebb_trace_open(path, &options, reader_out);
}
