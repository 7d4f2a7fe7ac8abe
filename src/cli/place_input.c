/* SPDX-License-Identifier: Apache-2.0
 *
 * What `ebb place` takes, told apart by its first bytes: a CSV of buffers; a program, whose stays are those of the
 * policy liveness; a plan's stays; a recording, ebb's trace or anything else that `ebb import` reads, whose blocks live
 * from their alloc to their free, or to the end where none came. A recording's times are its allocs and frees, counted:
 * only their order matters for placing.
 */
#include "place_command.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define GZIP_MAGIC "\x1f\x8b"
#define MAX_KEPT_BYTES ((uint64_t)8 << 30)
#define ID_BYTES 96u /* more of a name is cut off */

/* The input. Its first bytes, which tell the kind, are taken from fd already. */
typedef struct source {
    const char *name;   /* in messages */
    const char *path;   /* to open it again; NULL: a pipe or the like gives its bytes once */
    const char *device; /* of a recording */
    int fd;
    char *first;             /* [EBB_TRACE_HEAD_BYTES] */
    size_t n_first, n_given; /* of these */
} source;

static int complain(const source *s, const char *what) {
    ebb__cli_say("%s: %s", s->name, what);
    return EBB_EXIT_INPUT;
}

static int complain_io(const source *s, const char *what) {
    ebb__cli_say("%s: cannot %s: %s", s->name, what, strerror(errno));
    return EBB_EXIT_IO;
}

/* The library's message, with the name in place of the path. */
static int failed(const source *s, ebb_status status) {
    const char *message = ebb_last_error();
    const size_t n_path = s->path != NULL ? strlen(s->path) : 0;
    if (n_path == 0 || strcmp(s->path, s->name) == 0 || strncmp(message, s->path, n_path) != 0) {
        return ebb__cli_file_failed(status);
    }
    fflush(stdout);
    ebb__cli_say("%s%s", s->name, message + n_path);
    return ebb__cli_file_exit_code(status);
}

static int no_memory(void) {
    ebb__cli_say("out of host memory");
    return EBB_EXIT_IO;
}

/* ---- bytes that come once --------------------------------------------------------------------- */

static int64_t read_source(void *ctx, void *buf, size_t n_bytes) {
    source *s = ctx;
    if (s->n_given < s->n_first) {
        const size_t n_left = s->n_first - s->n_given, n = n_left < n_bytes ? n_left : n_bytes;
        memcpy(buf, s->first + s->n_given, n);
        s->n_given += n;
        return (int64_t)n;
    }
    ssize_t n = -1;
    do { n = read(s->fd, buf, n_bytes); } while (n < 0 && errno == EINTR);
    return n;
}

static bool write_all(int fd, const char *buf, int64_t n) {
    for (int64_t done = 0; done < n;) {
        const ssize_t written = write(fd, buf + done, (size_t)(n - done));
        if (written < 0 && errno != EINTR) { return false; }
        done += written > 0 ? written : 0;
    }
    return true;
}

static int copy_all(source *s, int to) {
    char buf[65536];
    for (uint64_t n_bytes = 0;;) {
        const int64_t n = read_source(s, buf, sizeof buf);
        if (n < 0) { return complain_io(s, "read"); }
        if (n == 0) { return EBB_EXIT_DONE; }
        n_bytes += (uint64_t)n;
        if (n_bytes > MAX_KEPT_BYTES) { return complain(s, "more than 8 GiB that are no CSV: put them in a file"); }
        if (!write_all(to, buf, n)) { return complain_io(s, "keep"); }
    }
}

/* For readers that want a path: all bytes in a file without a name, which is open until *fd_out is closed. */
static int keep(source *s, char *path, size_t path_bytes, int *fd_out) {
    const int fd = memfd_create("ebb-place", MFD_CLOEXEC);
    if (fd < 0) { return complain_io(s, "keep"); }
    *fd_out = fd;
    snprintf(path, path_bytes, "/proc/self/fd/%d", fd);
    s->path = path;
    return copy_all(s, fd);
}

/* Open, and take the first bytes: a pipe may give them one by one. */
static int open_source(source *s) {
    struct stat info;
    const bool is_stdin = strcmp(s->name, "-") == 0;
    if (is_stdin) { s->name = "standard input"; }
    s->fd = STDIN_FILENO;
    const ebb_status status = is_stdin ? EBB_OK : ebb_path_open_input(s->name, &s->fd);
    if (status != EBB_OK) {
        s->fd = -1;
        return ebb__cli_file_failed(status);
    }
    if (fstat(s->fd, &info) != 0) { return complain_io(s, "open"); }
    if (!is_stdin && S_ISREG(info.st_mode)) { s->path = s->name; }
    while (s->n_first < EBB_TRACE_HEAD_BYTES) {
        const ssize_t n = read(s->fd, s->first + s->n_first, EBB_TRACE_HEAD_BYTES - s->n_first);
        if (n < 0 && errno == EINTR) { continue; }
        if (n < 0) { return complain_io(s, "read"); }
        if (n == 0) { break; }
        s->n_first += (size_t)n;
    }
    return EBB_EXIT_DONE;
}

/* ---- buffers that are no CSV's ---------------------------------------------------------------- */

typedef struct buffers {
    ebb_place_item *items;
    size_t *id; /* where in text */
    size_t n, cap;
    char *text;
    size_t n_text, text_cap;
} buffers;

static void buffers_fini(buffers *b) {
    free(b->items);
    free(b->id);
    free(b->text);
}

static bool grow(void **data, size_t *cap, size_t elem_bytes, size_t n_wanted) {
    const size_t wider = n_wanted > 2 * *cap ? n_wanted : 2 * *cap;
    void *grown = realloc(*data, wider * elem_bytes);
    if (grown == NULL) { return false; }
    *data = grown;
    *cap = wider;
    return true;
}

static int add_buffer(buffers *b, ebb_place_item item, const char *id) {
    const size_t n_id = strlen(id) + 1;
    if (b->n == b->cap) {
        size_t cap = b->cap;
        if (!grow((void **)&b->id, &cap, sizeof *b->id, b->n + 1024)) { return no_memory(); }
        if (!grow((void **)&b->items, &b->cap, sizeof *b->items, b->n + 1024)) { return no_memory(); }
    }
    if (b->text_cap - b->n_text < n_id && !grow((void **)&b->text, &b->text_cap, 1, b->n_text + n_id)) {
        return no_memory();
    }
    memcpy(b->text + b->n_text, id, n_id);
    b->id[b->n] = b->n_text;
    b->n_text += n_id;
    b->items[b->n++] = item;
    return EBB_EXIT_DONE;
}

static int make_file(const source *s, const buffers *b, uint64_t alignment_bytes, uint64_t period,
                     ebb_place_file **file_out) {
    ebb_place_problem problem = EBB_PLACE_PROBLEM_INIT;
    problem.items = b->items;
    problem.n_items = b->n;
    problem.alignment_bytes = alignment_bytes;
    problem.period = period;
    const char **ids = malloc((b->n > 0 ? b->n : 1) * sizeof *ids);
    if (ids == NULL) { return no_memory(); }
    for (size_t i = 0; i < b->n; i++) { ids[i] = b->text + b->id[i]; }
    ebb_status status = ebb_place_file_create(NULL, &problem, ids, file_out);
    free(ids);
    if (status == EBB_OK) { return EBB_EXIT_DONE; }
    return status == EBB_E_ARGUMENT ? complain(s, ebb_last_error()) : ebb__cli_failed(status);
}

/* ---- programs and plans ----------------------------------------------------------------------- */

/* A stay's id: tensor, name where there is a program, and the action that begins it, which no two stays share. */
static void name_stay(const ebb_stay *stay, const ebb_tensor *tensors, char *id) {
    if (stay->tensor == EBB_SCRATCH) {
        snprintf(id, ID_BYTES, "scratch@%" PRIu64, stay->first);
    } else if (tensors == NULL) {
        snprintf(id, ID_BYTES, "%" PRIu32 "@%" PRIu64, stay->tensor, stay->first);
    } else {
        snprintf(id, ID_BYTES, "%" PRIu32 "@%" PRIu64 ":%s", stay->tensor, stay->first, tensors[stay->tensor].name);
    }
}

static int place_stays(const source *s, const ebb_plan *plan, const ebb_program *program, ebb_cli_placing *placing) {
    size_t n_stays = 0, n_actions = 0, n_tensors = 0;
    const ebb_stay *stays = ebb_plan_stays(plan, &n_stays);
    const ebb_tensor *tensors = program != NULL ? ebb_program_tensors(program, &n_tensors) : NULL;
    buffers b = {.n = 0};
    int code = EBB_EXIT_DONE;
    (void)ebb_plan_actions(plan, &n_actions);
    for (size_t i = 0; i < n_stays && code == EBB_EXIT_DONE; i++) {
        const ebb_place_item item = {stays[i].size_bytes, stays[i].first, stays[i].last};
        char id[ID_BYTES];
        name_stay(&stays[i], tensors, id);
        code = add_buffer(&b, item, id);
    }
    const uint64_t alignment_bytes = ebb_plan_get_summary(plan).alignment_bytes;
    if (code == EBB_EXIT_DONE) { code = make_file(s, &b, alignment_bytes, n_actions, &placing->file); }
    placing->time_name = "action of the plan";
    buffers_fini(&b);
    return code;
}

static int load_program(const source *s, ebb_cli_placing *placing) {
    ebb_plan_options options = EBB_PLAN_OPTIONS_INIT;
    ebb_program *program = NULL;
    ebb_machine *machine = NULL;
    ebb_plan *plan = NULL;
    options.policy = "liveness";
    ebb_status status = ebb_program_load(NULL, s->path, &program);
    if (status == EBB_OK) { status = ebb_machine_create(NULL, &machine); }
    if (status == EBB_OK) { status = ebb_plan_make(program, machine, &options, &plan, NULL); }
    const int code = status == EBB_OK ? place_stays(s, plan, program, placing) : failed(s, status);
    ebb_plan_destroy(plan);
    ebb_machine_destroy(machine);
    ebb_program_destroy(program);
    return code;
}

static int load_plan(const source *s, ebb_cli_placing *placing) {
    ebb_plan *plan = NULL;
    ebb_status status = ebb_plan_load(NULL, s->path, &plan);
    const int code = status == EBB_OK ? place_stays(s, plan, NULL, placing) : failed(s, status);
    ebb_plan_destroy(plan);
    return code;
}

/* ---- recordings ------------------------------------------------------------------------------- */

typedef struct recording {
    const source *source;
    ebb_trace_reader *reader;
    buffers b; /* a block's index is its number */
    ebb_iteration_finder *finder;
    uint64_t tick;   /* allocs and frees so far */
    uint64_t *event; /* [tick]: of each alloc and free, its number among all events */
    size_t event_cap;
    uint64_t n_events;
} recording;

static int begin_block(recording *r, const ebb_trace_event *event) {
    const ebb_place_item item = {event->size_bytes, event->before ? 0 : r->tick, UINT64_MAX};
    const char *name = ebb_trace_reader_string(r->reader, event->name);
    char id[ID_BYTES];
    snprintf(id, sizeof id, "%" PRIu64 "%s%s", event->block, name[0] != '\0' ? ":" : "", name);
    return add_buffer(&r->b, item, id);
}

static int note_event(recording *r) {
    if (r->tick == r->event_cap && !grow((void **)&r->event, &r->event_cap, sizeof *r->event, r->tick + 1024)) {
        return no_memory();
    }
    r->event[r->tick++] = r->n_events;
    return EBB_EXIT_DONE;
}

static int read_event(recording *r, const ebb_trace_event *event) {
    int code = EBB_EXIT_DONE;
    const ebb_status status = ebb_iteration_finder_add(r->finder, event);
    if (status != EBB_OK) { return failed(r->source, status); }
    if (event->kind == EBB_TRACE_ALLOC) { code = begin_block(r, event); }
    if (event->kind == EBB_TRACE_FREE) { r->b.items[event->block].last = r->tick; }
    if (code == EBB_EXIT_DONE && (event->kind == EBB_TRACE_ALLOC || event->kind == EBB_TRACE_FREE)) {
        code = note_event(r);
    }
    r->n_events++;
    return code;
}

static int read_events(recording *r) {
    ebb_trace_event event;
    for (bool done = false;;) {
        ebb_status status = ebb_trace_reader_next(r->reader, &event, &done);
        if (status != EBB_OK) { return failed(r->source, status); }
        if (done) { break; }
        const int code = read_event(r, &event);
        if (code != EBB_EXIT_DONE) { return code; }
    }
    if (!ebb_trace_reader_info(r->reader).complete) {
        ebb__cli_say("warning: %s: the recording is cut off; what it has is placed", r->source->name);
    }
    for (size_t i = 0; i < r->b.n; i++) {
        if (r->b.items[i].last == UINT64_MAX) { r->b.items[i].last = r->tick; }
    }
    return EBB_EXIT_DONE;
}

/* How many allocs and frees come before this event. */
static uint64_t time_of(const recording *r, uint64_t event) {
    uint64_t low = 0, high = r->tick;
    while (low < high) {
        const uint64_t middle = low + (high - low) / 2;
        if (r->event[middle] < event) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return low;
}

/* Note where each part of the recording after the warm-up begins. */
static int find_iterations(recording *r, ebb_cli_placing *placing) {
    ebb_iteration found;
    size_t n = 0;
    const ebb_status status = ebb_iteration_finder_find(r->finder, &found);
    if (status != EBB_OK) { return failed(r->source, status); }
    const ebb_iteration_part *part = ebb_iteration_finder_parts(r->finder, &n);
    if (n == 0) { return EBB_EXIT_DONE; }
    placing->starts = malloc((n + 1) * sizeof *placing->starts);
    if (placing->starts == NULL) { return no_memory(); }
    for (size_t i = 0; i < n; i++) {
        if (part[i].kind == EBB_ITERATION_PART_BEFORE) { continue; }
        placing->starts[placing->n_starts++] = time_of(r, part[i].first_event);
    }
    if (part[n - 1].kind == EBB_ITERATION_PART_ITERATION) { placing->starts[placing->n_starts++] = r->tick; }
    return EBB_EXIT_DONE;
}

/* What shares no device shares no arena; others are left out, and said. */
static void say_device(const recording *r) {
    size_t n = 0, chosen = 0;
    const ebb_trace_device *devices = ebb_trace_reader_devices(r->reader, &n, &chosen);
    char name[64];
    if (n < 2 || r->source->device != NULL) { return; }
    ebb__cli_say("%s: has blocks of %zu devices; those of %s are placed, --device chooses", r->source->name, n,
                 ebb__cli_clean(devices[chosen].name, name, sizeof name));
}

static int load_recording(const source *s, ebb_cli_placing *placing) {
    recording r = {.source = s};
    const ebb_status status = ebb__cli_open_recording(s->path, s->device, &r.reader);
    if (status != EBB_OK) { return failed(s, status); }
    say_device(&r);
    const ebb_status created = ebb_iteration_finder_create(NULL, r.reader, &r.finder);
    int code = created == EBB_OK ? read_events(&r) : failed(s, created);
    if (code == EBB_EXIT_DONE) { code = find_iterations(&r, placing); }
    if (code == EBB_EXIT_DONE) { code = make_file(s, &r.b, 1, 0, &placing->file); }
    placing->time_name = "alloc or free of the recording";
    ebb_iteration_finder_destroy(r.finder);
    ebb_trace_reader_close(r.reader);
    buffers_fini(&r.b);
    free(r.event);
    return code;
}

/* ---- telling them apart ----------------------------------------------------------------------- */

static int load_csv(source *s, ebb_cli_placing *placing) {
    ebb_status status = ebb_place_file_read_from(NULL, s->name, read_source, s, &placing->file);
    placing->time_name = "time";
    return status == EBB_OK ? EBB_EXIT_DONE : ebb__cli_failed(status);
}

typedef int (*loader)(const source *s, ebb_cli_placing *placing);

static bool begins_with(const source *s, const char *text) {
    return s->n_first >= strlen(text) && memcmp(s->first, text, strlen(text)) == 0;
}

/* NULL: a CSV, or a file of no known kind. */
static loader find_loader(const source *s) {
    if (begins_with(s, "ebb-program ")) { return load_program; }
    if (begins_with(s, "ebb-plan ")) { return load_plan; }
    if (begins_with(s, GZIP_MAGIC)) { return load_recording; }
    const char *format = ebb_trace_format_of(s->first, s->n_first, s->name);
    return format != NULL && strcmp(format, "csv") != 0 ? load_recording : NULL;
}

static int load(source *s, ebb_cli_placing *placing) {
    const loader load_it = find_loader(s);
    if (s->device != NULL && load_it != load_recording) {
        return ebb__cli_usage("place: %s: --device is for recordings", s->name);
    }
    if (load_it == NULL) { return load_csv(s, placing); }
    char path[64];
    int kept = -1;
    int code = s->path != NULL ? EBB_EXIT_DONE : keep(s, path, sizeof path, &kept);
    if (code == EBB_EXIT_DONE) { code = load_it(s, placing); }
    if (kept >= 0) { (void)close(kept); }
    return code;
}

int ebb__cli_place_load(const char *path, const char *device, ebb_cli_placing *placing_out) {
    source s = {.name = path, .device = device, .fd = -1, .first = malloc(EBB_TRACE_HEAD_BYTES)};
    int code = s.first != NULL ? open_source(&s) : no_memory();
    if (code == EBB_EXIT_DONE) { code = load(&s, placing_out); }
    if (s.fd > STDIN_FILENO) { (void)close(s.fd); }
    free(s.first);
    return code;
}
