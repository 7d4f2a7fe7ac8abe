/* SPDX-License-Identifier: Apache-2.0
 *
 * Names of a native program's callers, put into its trace after it has ended. While it runs, the recorder knows
 * exported functions only, and writes down where in its file each caller is: "train_step +0x1234", "+0x1234". Whoever
 * reads debug information is asked for the rest through a callback.
 *
 * One caller may become several frames, since functions are inlined. A program's own frames have the source's file and
 * line. Those of installed libraries and of allocators keep the library as their file, by which a study knows them.
 */
#include "base/demangle.h"
#include "base/file.h"
#include "trace/trace_priv.h"

#include <stdlib.h>

#define MAX_SOURCES ((size_t)32) /* inlined into each other */

/* ---- which file ---------------------------------------------------------------------------------- */

static bool begins_with(const char *text, const char *begin) {
    return strncmp(text, begin, strlen(begin)) == 0;
}

/* Whether a function's name speaks of allocating, but for what its templates are made of: std::allocator is in many. */
static bool names_allocation(const char *function) {
    unsigned depth = 0;
    for (const char *at = function; *at != '\0'; at++) {
        depth += *at == '<';
        depth -= *at == '>' && depth > 0;
        if (depth == 0 && (begins_with(at, "alloc") || begins_with(at, "Alloc"))) { return true; }
    }
    return begins_with(function, "_Znw") || begins_with(function, "_Zna") || begins_with(function, "operator new");
}

bool ebb__trace_is_allocator(const char *function, const char *file) {
    static const char *const files[] = {"libc.so",     "libc-2",      "libstdc++",   "libc++",   "libc10",
                                        "libjemalloc", "libtcmalloc", "libmimalloc", "ld-linux", "libgcc_s"};
    const char *slash = strrchr(file, '/'), *base = slash != NULL ? slash + 1 : file;
    for (size_t i = 0; i < sizeof files / sizeof files[0]; i++) {
        if (begins_with(base, files[i])) { return true; }
    }
    return names_allocation(function);
}

/* Others wrote it: the system, Python, a package of it. */
static bool is_installed(const char *path) {
    return begins_with(path, "/usr/") || begins_with(path, "/lib") || begins_with(ebb__base_name(path), "python") ||
           begins_with(ebb__base_name(path), "libpython") || strstr(path, "/lib/python") != NULL ||
           strstr(path, "/site-packages/") != NULL || strstr(path, "/dist-packages/") != NULL;
}

/* ---- names --------------------------------------------------------------------------------------- */

typedef struct caller_frame {
    uint32_t function, file, line; /* strings of the writer */
} caller_frame;

/* What a function and a file of the reader's become: frames from first on, the outermost first. */
typedef struct caller_name {
    uint32_t first, n;
} caller_name;

typedef struct naming {
    const ebb_mem *mem;
    ebb_trace_find_sources find;
    void *ctx;
    ebb_trace_keys keys; /* { function, file } of the reader: names are in this order */
    EBB_VEC(caller_name) names;
    EBB_VEC(caller_frame) frames;
    ebb_demangler demangler;
} naming;

static ebb_status push_frame(naming *n, ebb_trace_writer *writer, const char *function, const char *file,
                             uint32_t line) {
    char readable[EBB_DEMANGLE_NAME_BYTES];
    caller_frame frame = {.line = line};
    if (ebb__demangle(&n->demangler, function, readable, sizeof readable)) { function = readable; }
    EBB_TRY(ebb_trace_writer_string(writer, function, &frame.function));
    EBB_TRY(ebb_trace_writer_string(writer, file, &frame.file));
    return EBB_PUSH(n->mem, &n->frames, frame);
}

/* "NAME +0xADDRESS" or "+0xADDRESS"; *n_name_out: the length of NAME. */
static bool read_address(const char *function, size_t *n_name_out, uint64_t *address_out) {
    char *end = NULL;
    const char *plus = strrchr(function, '+');
    if (plus == NULL || plus[1] != '0' || plus[2] != 'x' || (plus > function && plus[-1] != ' ')) { return false; }
    *address_out = strtoull(plus + 1, &end, 16);
    *n_name_out = plus > function ? (size_t)(plus - function) - 1 : 0;
    return *end == '\0';
}

/* How many sources there are, the innermost first. */
static size_t find_sources(const naming *n, const ebb_trace_reader *reader, const char *file, uint64_t address,
                           ebb_trace_source *sources) {
    char key[4096 + sizeof EBB_TRACE_OBJECT_PREFIX], build_id[128];
    const int n_key = snprintf(key, sizeof key, EBB_TRACE_OBJECT_PREFIX "%s", file);
    const char *note = n_key > 0 && (size_t)n_key < sizeof key ? ebb_trace_reader_note(reader, key) : NULL;
    const char *blank = note != NULL ? strchr(note, ' ') : NULL;
    if (n->find == NULL || blank == NULL || (size_t)(blank - note) >= sizeof build_id) { return 0; }
    (void)snprintf(build_id, sizeof build_id, "%.*s", note[0] == '-' ? 0 : (int)(blank - note), note);
    const ebb_trace_object object = {.path = blank + 1,
                                     .build_id = build_id,
                                     .recorded_unix_ns = ebb_trace_reader_info(reader).start_unix_ns,
                                     .wants_lines = !is_installed(blank + 1)};
    return n->find(n->ctx, &object, address, sources, MAX_SOURCES);
}

/* An allocator that comes with a program is one of its libraries all the same. */
static bool keeps_file(const char *function, const char *file) {
    return strstr(ebb__base_name(file), ".so") != NULL && ebb__trace_is_allocator(function, file);
}

static ebb_status push_sources(naming *n, ebb_trace_writer *writer, const char *file, const ebb_trace_source *sources,
                               size_t n_sources) {
    for (size_t i = n_sources; i-- > 0;) {
        const ebb_trace_source *s = &sources[i];
        const bool keeps = s->file[0] == '\0' || keeps_file(s->function, file);
        EBB_TRY(push_frame(n, writer, s->function, keeps ? file : s->file, keeps ? 0 : s->line));
    }
    return EBB_OK;
}

static ebb_status push_frames(naming *n, const trace_rewriting *r, const ebb_trace_frame *frame) {
    const char *function = ebb_trace_reader_string(r->reader, frame->function);
    const char *file = ebb_trace_reader_string(r->reader, frame->file);
    ebb_trace_source sources[MAX_SOURCES];
    uint64_t address = 0;
    size_t n_name = 0;
    if (!read_address(function, &n_name, &address)) { return push_frame(n, r->writer, function, file, frame->line); }
    const size_t n_sources = find_sources(n, r->reader, file, address, sources);
    if (n_sources > 0) { return push_sources(n, r->writer, file, sources, n_sources); }
    if (n_name == 0) { return push_frame(n, r->writer, function, file, 0); }
    char *name = ebb__alloc(n->mem, n_name + 1, 1);
    if (name == NULL) { return EBB_E_NO_MEMORY; }
    (void)snprintf(name, n_name + 1, "%s", function);
    const ebb_status st = push_frame(n, r->writer, name, file, 0);
    ebb__free(n->mem, name);
    return st;
}

static ebb_status add_frame(void *ctx, trace_rewriting *r, const ebb_trace_frame *frame, uint32_t caller,
                            uint32_t *stack_out) {
    naming *n = ctx;
    const uint32_t key[] = {frame->function, frame->file, frame->line};
    uint32_t number = 0;
    bool is_new = false;
    EBB_TRY(ebb__trace_keys_add(&n->keys, key, sizeof key, &number, &is_new));
    if (is_new) {
        const size_t first = n->frames.n;
        EBB_TRY(push_frames(n, r, frame));
        EBB_TRY(EBB_PUSH(n->mem, &n->names, ((caller_name){(uint32_t)first, (uint32_t)(n->frames.n - first)})));
    }
    const caller_name name = n->names.data[number - 1];
    for (uint32_t i = name.first; i < name.first + name.n; i++) {
        const caller_frame *f = &n->frames.data[i];
        EBB_TRY(ebb_trace_writer_frame(r->writer, caller, f->function, f->file, f->line, &caller));
    }
    *stack_out = caller;
    return EBB_OK;
}

/* ---- the trace ----------------------------------------------------------------------------------- */

static bool keeps_note(const char *key) {
    return strcmp(key, EBB_TRACE_CALLERS_NOTE) != 0;
}

/* The recorder says so before its first event with a stack; its notes come before that one. */
static ebb_status has_addresses(const ebb_mem *mem, const char *path, bool *has_out) {
    ebb_trace_reader *reader = NULL;
    ebb_trace_event event;
    bool done = false;
    EBB_TRY(ebb_trace_reader_open(mem, path, &reader));
    ebb_status st = EBB_OK;
    while (st == EBB_OK && !done && ebb_trace_reader_note(reader, EBB_TRACE_CALLERS_NOTE) == NULL) {
        st = ebb_trace_reader_next(reader, &event, &done);
    }
    const char *callers = ebb_trace_reader_note(reader, EBB_TRACE_CALLERS_NOTE);
    *has_out = callers != NULL && strcmp(callers, EBB_TRACE_CALLERS_OFFSETS) == 0;
    ebb_trace_reader_close(reader);
    return st;
}

ebb_status ebb_trace_name_callers(const ebb_mem *mem, const char *path, ebb_trace_find_sources find, void *ctx) {
    EBB_NEED(path);
    bool has = false;
    mem = ebb__mem_or_default(mem);
    EBB_TRY(has_addresses(mem, path, &has));
    if (!has) { return EBB_OK; }
    naming *n = ebb__calloc(mem, 1, sizeof *n);
    if (n == NULL) { return EBB_E_NO_MEMORY; }
    n->mem = mem;
    n->find = find;
    n->ctx = ctx;
    ebb__trace_keys_init(&n->keys, mem);
    const trace_rewrite rewrite = {.ctx = n, .add_frame = add_frame, .keeps_note = keeps_note};
    const ebb_status st = ebb__trace_rewrite(mem, path, &rewrite);
    ebb__trace_keys_fini(&n->keys);
    EBB_VEC_FINI(mem, &n->names);
    EBB_VEC_FINI(mem, &n->frames);
    ebb__free(mem, n);
    return st;
}
