/* SPDX-License-Identifier: Apache-2.0
 *
 * A trace written anew, with something in it that is known only after the recording: steps (late_steps.c), names of
 * callers (late_names.c). The new file lies beside the old one until it is whole, and then takes its place.
 */
#include "base/file.h"
#include "trace/trace_priv.h"

#include <fcntl.h>
#include <unistd.h>

typedef struct rewriting {
    trace_rewriting both;
    const ebb_mem *mem;
    const char *path;
    const trace_rewrite *what;
    EBB_VEC(uint32_t) stacks; /* the writer's numbers of the reader's stacks */
    size_t n_notes;
} rewriting;

static ebb_status copy_string(rewriting *r, uint32_t *string) {
    return ebb_trace_writer_string(r->both.writer, ebb_trace_reader_string(r->both.reader, *string), string);
}

static ebb_status copy_frame(rewriting *r, ebb_trace_frame frame, uint32_t caller, uint32_t *number_out) {
    if (r->what->add_frame != NULL) { return r->what->add_frame(r->what->ctx, &r->both, &frame, caller, number_out); }
    EBB_TRY(copy_string(r, &frame.function));
    EBB_TRY(copy_string(r, &frame.file));
    return ebb_trace_writer_frame(r->both.writer, caller, frame.function, frame.file, frame.line, number_out);
}

/* Frames come before the stacks above them, so the callers of one that is new are known or new themselves. */
static ebb_status copy_stack(rewriting *r, uint32_t *stack) {
    const uint32_t wanted = *stack;
    if (r->stacks.n == 0) { EBB_TRY(EBB_PUSH(r->mem, &r->stacks, 0)); }
    for (uint32_t s = (uint32_t)r->stacks.n; s <= wanted; s++) {
        const ebb_trace_frame frame = ebb_trace_reader_frame(r->both.reader, s);
        uint32_t number = 0;
        EBB_ASSERT(frame.caller < s);
        EBB_TRY(copy_frame(r, frame, r->stacks.data[frame.caller], &number));
        EBB_TRY(EBB_PUSH(r->mem, &r->stacks, number));
    }
    *stack = r->stacks.data[wanted];
    return EBB_OK;
}

static ebb_status copy_notes(rewriting *r) {
    const char *key = NULL, *value = NULL;
    for (; (value = ebb__trace_reader_note_at(r->both.reader, r->n_notes, &key)) != NULL; r->n_notes++) {
        if (r->what->keeps_note != NULL && !r->what->keeps_note(key)) { continue; }
        EBB_TRY(ebb_trace_writer_note(r->both.writer, key, value));
    }
    return EBB_OK;
}

static ebb_status come_to(rewriting *r, uint64_t time_ns) {
    return r->what->before != NULL ? r->what->before(r->what->ctx, &r->both, time_ns) : EBB_OK;
}

static ebb_status copy_event(rewriting *r, ebb_trace_event *event) {
    EBB_TRY(come_to(r, event->time_ns));
    EBB_TRY(copy_string(r, &event->name));
    EBB_TRY(copy_string(r, &event->op));
    EBB_TRY(copy_stack(r, &event->stack));
    event->time_ns = r->both.last_ns = ebb_max_u64(event->time_ns, r->both.last_ns);
    return ebb_trace_writer_add(r->both.writer, event);
}

static ebb_status copy_all(rewriting *r) {
    ebb_trace_event event;
    for (;;) {
        bool done = false;
        EBB_TRY(ebb_trace_reader_next(r->both.reader, &event, &done));
        EBB_TRY(copy_notes(r));
        if (done) { return come_to(r, UINT64_MAX); }
        EBB_TRY(copy_event(r, &event));
    }
}

/* A trace that was cut off has no end, and gets none: fd is the written file's. */
static ebb_status close_trace(rewriting *r, int fd) {
    EBB_TRY(ebb__trace_writer_flush(r->both.writer));
    const off_t n_bytes = lseek(fd, 0, SEEK_END);
    ebb_trace_writer *writer = r->both.writer;
    r->both.writer = NULL;
    EBB_TRY(ebb_trace_writer_close(writer));
    if (ebb_trace_reader_info(r->both.reader).complete || (n_bytes >= 0 && ftruncate(fd, n_bytes) == 0)) {
        return EBB_OK;
    }
    return ebb__fail_errno(r->path, "write");
}

/* fd stays open. */
static ebb_status write_anew(rewriting *r, int fd) {
    EBB_TRY(ebb_trace_reader_open(r->mem, r->path, &r->both.reader));
    const ebb_trace_info info = ebb_trace_reader_info(r->both.reader);
    ebb_trace_writer_options options = EBB_TRACE_WRITER_OPTIONS_INIT;
    options.mem = r->mem;
    options.tells = info.tells | r->what->tells;
    options.start_unix_ns = info.start_unix_ns;
    const int twin = fcntl(fd, F_DUPFD_CLOEXEC, 0);
    if (twin < 0) { return ebb__fail_errno(r->path, "write"); }
    EBB_TRY(ebb__trace_writer_open_fd(r->path, twin, &options, &r->both.writer));
    EBB_TRY(copy_all(r));
    return close_trace(r, fd);
}

static ebb_status replace(rewriting *r) {
    char *merged = ebb__alloc(r->mem, strlen(r->path) + 16, 1);
    if (merged == NULL) { return EBB_E_NO_MEMORY; }
    (void)snprintf(merged, strlen(r->path) + 16, "%s.merged", r->path);
    const int fd = open(merged, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    ebb_status st = fd >= 0 ? write_anew(r, fd) : ebb__fail_errno(merged, "write");
    if (st == EBB_OK && rename(merged, r->path) != 0) { st = ebb__fail_errno(r->path, "write"); }
    if (fd >= 0) { (void)close(fd); }
    if (st != EBB_OK && fd >= 0) { (void)unlink(merged); }
    ebb__free(r->mem, merged);
    return st;
}

ebb_status ebb__trace_rewrite(const ebb_mem *mem, const char *path, const trace_rewrite *rewrite) {
    rewriting r = {.mem = mem, .path = path, .what = rewrite};
    const ebb_status st = replace(&r);
    ebb_trace_writer_abandon(r.both.writer);
    ebb_trace_reader_close(r.both.reader);
    EBB_VEC_FINI(mem, &r.stacks);
    return st;
}
