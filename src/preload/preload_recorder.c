/* SPDX-License-Identifier: Apache-2.0
 *
 * The recorder of a process: what lives, how much that is, and the trace. Call stacks are preload_symbols.c, what is
 * mapped preload_ranges.c.
 *
 * Each event goes to the kernel at once, so that a process that is killed leaves all it did: a write of some 20 bytes,
 * for large allocations alone. The file is made with the first event, or the first call of CUDA. A child of fork has a
 * trace of its own, which begins with what it inherited.
 *
 * Invariants, under the lock (is_valid walks them)
 *  1. live_bytes[s] is the sum over the blocks of space s; admitted_bytes[s] is what has been allowed and is not done.
 *  2. filter counts the blocks by the hash of their key.
 *  3. Each range of mapped is a block of the space mmap, and the other way round.
 *  4. Each range of views, a mapping of a handle, is in handle_of; while that handle has uses, it is a block.
 */
#include "preload/preload_recorder_priv.h"

#include "base/file.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#define DEFAULT_MIN_BYTES ((size_t)64 * 1024)
#define DEFAULT_FRAMES 16u
#define FILTER_BITS 14

ebb_recorder ebb__recorder = {
    .lock = PTHREAD_MUTEX_INITIALIZER,
    .mapped = {.mem = &ebb__preload_mem},
    .views = {.mem = &ebb__preload_mem},
};

atomic_size_t ebb__preload_min_bytes = DEFAULT_MIN_BYTES; /* until the environment was read */
bool ebb__preload_no_kernels;

static _Atomic uint16_t filter[1u << FILTER_BITS];
/* Of this thread: it is in here (a handler of a signal may call malloc then), with the lock; it is in an allocation
 * that is recorded. */
static _Thread_local bool is_inside __attribute__((tls_model("initial-exec")));
static _Thread_local bool has_lock __attribute__((tls_model("initial-exec")));
static _Thread_local bool is_nested __attribute__((tls_model("initial-exec")));
static _Thread_local sigset_t signals_before __attribute__((tls_model("initial-exec")));

/* ---- the filter --------------------------------------------------------------------------------- */

static size_t filter_of(uint64_t key) {
    return (size_t)((key * 0x9e3779b97f4a7c15u) >> (64 - FILTER_BITS));
}

bool ebb__preload_may_be(uint64_t key) {
    return atomic_load_explicit(&filter[filter_of(key)], memory_order_relaxed) != 0;
}

/* ---- the file ----------------------------------------------------------------------------------- */

uint64_t ebb__recorder_now_ns(void) {
    struct timespec now;
    (void)clock_gettime(CLOCK_MONOTONIC, &now);
    const int64_t ns = (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
    if (ebb__recorder.start_ns == 0) { ebb__recorder.start_ns = ns; }
    return (uint64_t)(ns - ebb__recorder.start_ns);
}

static uint64_t unix_ns(void) {
    struct timespec now;
    (void)clock_gettime(CLOCK_REALTIME, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

void ebb__recorder_give_up(void) {
    if (!ebb__recorder.is_over) { ebb__preload_tell(ebb__recorder.says, ebb_last_error()); }
    ebb__recorder.is_over = true;
    ebb__preload_min_bytes = SIZE_MAX;
}

/* A program may close what is not its own; a file that it opens after that has our number. */
static bool is_file_there(void) {
    struct stat now;
    return fstat(ebb__recorder.fd, &now) == 0 && now.st_dev == ebb__recorder.file.st_dev &&
           now.st_ino == ebb__recorder.file.st_ino;
}

/* And a child that was made without fork's handlers has its parent's file. */
static bool has_file(void) {
    const bool is_ours = getpid() == ebb__recorder.pid, is_there = is_file_there();
    if (!is_ours) {
        (void)ebb_fail(EBB_E_IO, "%s: a copy that a process made of itself without fork", ebb__recorder.trace_path);
    }
    if (is_ours && !is_there) {
        (void)ebb_fail(EBB_E_IO, "%s: the program closed its recording", ebb__recorder.trace_path);
    }
    return is_ours && is_there;
}

static void write_notes(void) {
    char text[512];
    (void)ebb_trace_writer_note(ebb__recorder.writer, "source", "ebb record");
    ebb__preload_read_command(text, sizeof text);
    (void)ebb_trace_writer_note(ebb__recorder.writer, "command", text);
    (void)snprintf(text, sizeof text, "%d", (int)getpid());
    (void)ebb_trace_writer_note(ebb__recorder.writer, "pid", text);
    (void)snprintf(text, sizeof text, "%zu", ebb__preload_min_bytes);
    (void)ebb_trace_writer_note(ebb__recorder.writer, "min_bytes", text);
    if (ebb__recorder.limit_bytes != UINT64_MAX) {
        (void)snprintf(text, sizeof text, "%llu", (unsigned long long)ebb__recorder.limit_bytes);
        (void)ebb_trace_writer_note(ebb__recorder.writer, "limit_bytes", text);
    }
}

static void name_space(uint32_t space) {
    EBB_ASSERT(space < PRELOAD_MAX_SPACES && ebb__recorder.writer != NULL);
    static const char *const names[] = {"malloc", "mmap", "pinned", "managed"};
    if (ebb__recorder.is_named[space]) { return; }
    char key[32], name[32];
    (void)snprintf(key, sizeof key, "space.%u", space);
    if (space < PRELOAD_DEVICE) {
        (void)snprintf(name, sizeof name, "%s", names[space]);
    } else {
        (void)snprintf(name, sizeof name, "cuda:%u", space - PRELOAD_DEVICE);
    }
    (void)ebb_trace_writer_note(ebb__recorder.writer, key, name);
    ebb__recorder.is_named[space] = true;
}

static void add_event(const ebb_trace_event *event) {
    EBB_ASSERT(ebb__recorder.writer != NULL);
    if (ebb_trace_writer_add(ebb__recorder.writer, event) != EBB_OK) { ebb__recorder_give_up(); }
}

static void write_alloc(preload_block *block, bool before) {
    ebb_trace_event event = {.kind = EBB_TRACE_ALLOC, .time_ns = ebb__recorder_now_ns(), .role = EBB_ROLE_UNKNOWN};
    EBB_ASSERT(block->key != 0 && block->size_bytes > 0);
    name_space(block->space);
    event.block = block->block = ebb__recorder.n_blocks++;
    event.size_bytes = block->size_bytes;
    event.space = block->space;
    event.stack = block->stack;
    event.before = before;
    event.address = (block->key & PRELOAD_HANDLE) != 0 ? EBB_TRACE_NONE : block->key & ~(uint64_t)PRELOAD_MAPPED;
    add_event(&event);
}

bool ebb__recorder_open(void) {
    if (ebb__recorder.writer != NULL || ebb__recorder.is_over) { return !ebb__recorder.is_over; }
    char *path = ebb__recorder.trace_path;
    const int fd = ebb__recorder.fd = ebb__preload_make_file(ebb__recorder.path, path);
    ebb_trace_writer_options options = EBB_TRACE_WRITER_OPTIONS_INIT;
    options.mem = &ebb__preload_mem;
    options.tells = EBB_TRACE_TELLS_TIMES | EBB_TRACE_TELLS_ADDRESSES;
    if (ebb__recorder.n_frames > 0) { options.tells |= EBB_TRACE_TELLS_STACKS; }
    options.start_unix_ns = unix_ns();
    ebb__recorder.start_ns = 0;
    (void)ebb__recorder_now_ns();
    EBB_ASSERT(ebb__recorder.n_blocks == 0);
    if (fd < 0 || fstat(fd, &ebb__recorder.file) != 0 ||
        ebb__trace_writer_open_fd(path, fd, &options, &ebb__recorder.writer) != EBB_OK) {
        ebb__recorder_give_up();
        return false;
    }
    write_notes();
    for (size_t i = 0; i < ebb__recorder.blocks.n_slots; i++) {
        if (ebb__recorder.blocks.slot[i].key != 0) { write_alloc(&ebb__recorder.blocks.slot[i], true); }
    }
    return true;
}

void ebb__recorder_flush(void) {
    if (ebb__recorder.writer == NULL || ebb__recorder.is_over) { return; }
    if (!has_file() || ebb__trace_writer_flush(ebb__recorder.writer) != EBB_OK) { ebb__recorder_give_up(); }
}

/* ---- the invariants -------------------------------------------------------------------------------- */

static bool are_blocks_valid(void) {
    uint64_t live_bytes[PRELOAD_MAX_SPACES] = {0};
    size_t n = 0, n_mapped = 0, n_filtered = 0;
    for (size_t i = 0; i < ebb__recorder.blocks.n_slots; i++) {
        const preload_block *block = &ebb__recorder.blocks.slot[i];
        if (block->key == 0) { continue; }
        const bool is_mapped = block->space == PRELOAD_MMAP;
        if (!ebb__preload_may_be(block->key) || is_mapped != ((block->key & PRELOAD_MAPPED) != 0)) { return false; }
        live_bytes[block->space] += block->size_bytes;
        n_mapped += is_mapped;
        n++;
    }
    for (size_t i = 0; i < sizeof filter / sizeof filter[0]; i++) { n_filtered += filter[i]; }
    return n == ebb__recorder.blocks.n && n == n_filtered && n_mapped == ebb__recorder.mapped.ranges.n &&
           memcmp(live_bytes, ebb__recorder.live_bytes, sizeof live_bytes) == 0;
}

/* For a recording that goes on; one that is over may have ended anywhere. */
static bool is_valid(void) {
    if (ebb__recorder.is_over) { return true; }
    for (size_t i = 0; i < ebb__recorder.mapped.ranges.n; i++) {
        const ebb_range *range = &ebb__recorder.mapped.ranges.data[i];
        const preload_block *block = ebb__preload_blocks_find(&ebb__recorder.blocks, range->address | PRELOAD_MAPPED);
        if (block == NULL || block->size_bytes != range->size_bytes) { return false; }
    }
    for (size_t i = 0; i < ebb__recorder.views.ranges.n; i++) {
        if (ebb__preload_blocks_find(&ebb__recorder.handle_of, ebb__recorder.views.ranges.data[i].address) == NULL) {
            return false;
        }
    }
    return ebb__recorder.views.ranges.n == ebb__recorder.handle_of.n && are_blocks_valid();
}

/* ---- set-up and end ------------------------------------------------------------------------------ */

static uint64_t number_of(const char *name, uint64_t otherwise) {
    const char *text = getenv(name);
    return text != NULL && *text != '\0' ? strtoull(text, NULL, 10) : otherwise;
}

/* has_lock is true only while the lock is held: at worst a handler finds it false just before or after. */
void ebb__recorder_lock(void) {
    (void)pthread_mutex_lock(&ebb__recorder.lock);
    has_lock = true;
}

void ebb__recorder_unlock(void) {
    has_lock = false;
    (void)pthread_mutex_unlock(&ebb__recorder.lock);
}

/* A handler of a signal may fork while its own thread is in here, and must not wait for that. */
static void lock_for_fork(void) {
    if (!is_inside) { ebb__recorder_lock(); }
}

static void unlock_after_fork(void) {
    if (!is_inside) { ebb__recorder_unlock(); }
}

/* What a child is in the middle of writing is its parent's to write, into the file that they share. */
static void write_nowhere(void) {
    if (ebb__recorder.writer == NULL || !is_file_there()) { return; }
    const int nowhere = open("/dev/null", O_WRONLY | O_CLOEXEC);
    if (nowhere < 0 || dup3(nowhere, ebb__recorder.fd, O_CLOEXEC) < 0) { (void)close(ebb__recorder.fd); }
    if (nowhere >= 0) { (void)close(nowhere); }
}

/* By a handler, in the middle of something: not recorded. A lock of another thread would never be given back here. */
static void end_in_child(void) {
    static const pthread_mutex_t nobodys = PTHREAD_MUTEX_INITIALIZER;
    ebb__recorder.is_over = true;
    ebb__preload_min_bytes = SIZE_MAX;
    write_nowhere();
    if (!has_lock) { memcpy(&ebb__recorder.lock, &nobodys, sizeof nobodys); }
}

static void begin_in_child(void) {
    if (is_inside) {
        end_in_child();
        return;
    }
    if (ebb__recorder.writer != NULL && is_file_there()) { (void)close(ebb__recorder.fd); }
    ebb__recorder.writer = NULL; /* the parent's, with what it has not written; its memory is lost */
    ebb__recorder.pid = getpid();
    ebb__recorder.n_blocks = 0;
    if (!is_nested) { memset(ebb__recorder.admitted_bytes, 0, sizeof ebb__recorder.admitted_bytes); } /* of others */
    /* Stacks are the parent's, too. */
    for (size_t i = 0; i < ebb__recorder.blocks.n_slots; i++) { ebb__recorder.blocks.slot[i].stack = 0; }
    for (size_t i = 0; i < ebb__recorder.mapped.ranges.n; i++) { ebb__recorder.mapped.ranges.data[i].stack = 0; }
    memset(ebb__recorder.is_named, 0, sizeof ebb__recorder.is_named);
    memset(ebb__recorder.is_out, 0, sizeof ebb__recorder.is_out);
    ebb__recorder.symbols = ebb__recorder.objects = (preload_blocks){0};
    ebb__recorder_unlock();
}

/* Not before there is an environment: a program may have code that comes before the C library's own. */
static void set_up(void) {
    if (ebb__recorder.is_set_up || environ == NULL) { return; }
    ebb__recorder.is_set_up = true;
    const char *path = getenv("EBB_RECORD_OUT"), *says = getenv("EBB_RECORD_SAYS");
    const uint64_t n_frames = number_of("EBB_RECORD_STACKS", DEFAULT_FRAMES);
    struct rlimit files;
    (void)snprintf(ebb__recorder.says, sizeof ebb__recorder.says, "%s", says != NULL ? says : "");
    ebb__recorder.pid = getpid();
    ebb__recorder.has_file_limit = getrlimit(RLIMIT_FSIZE, &files) == 0 && files.rlim_cur != RLIM_INFINITY;
    ebb__recorder.limit_bytes = number_of("EBB_RECORD_LIMIT", UINT64_MAX);
    ebb__recorder.n_frames = (size_t)(n_frames < PRELOAD_MAX_FRAMES ? n_frames : PRELOAD_MAX_FRAMES);
    if (path == NULL || strlen(path) >= sizeof ebb__recorder.path) {
        (void)ebb_fail(EBB_E_ARGUMENT, "%s: is no place for a recording", path != NULL ? path : "nothing");
        ebb__recorder_give_up();
        return;
    }
    memcpy(ebb__recorder.path, path, strlen(path) + 1);
    ebb__preload_min_bytes = (size_t)number_of("EBB_RECORD_MIN_SIZE", DEFAULT_MIN_BYTES);
    ebb__preload_no_kernels = number_of("EBB_RECORD_NO_KERNELS", 0) != 0;
    (void)pthread_atfork(lock_for_fork, unlock_after_fork, begin_in_child);
}

static void block_signal(void) {
    sigset_t one;
    (void)sigemptyset(&one);
    (void)sigaddset(&one, SIGXFSZ);
    (void)pthread_sigmask(SIG_BLOCK, &one, &signals_before);
}

/* A signal that our own write brought is taken back. */
static void unblock_signal(void) {
    sigset_t one;
    const struct timespec now = {0};
    (void)sigemptyset(&one);
    (void)sigaddset(&one, SIGXFSZ);
    if (ebb__recorder.is_over && sigismember(&signals_before, SIGXFSZ) == 0) { (void)sigtimedwait(&one, NULL, &now); }
    (void)pthread_sigmask(SIG_SETMASK, &signals_before, NULL);
}

bool ebb__recorder_enter(void) {
    if (is_inside) { return false; }
    is_inside = true;
    ebb__recorder_lock();
    set_up();
    if (ebb__recorder.has_file_limit) { block_signal(); }
    return true;
}

void ebb__recorder_leave(void) {
    EBB_ASSERT(is_inside && (EBB_DEBUG < 2 || is_valid()));
    if (ebb__recorder.has_file_limit) { unblock_signal(); }
    ebb__recorder_unlock();
    is_inside = false;
}

__attribute__((constructor)) static void start(void) {
    if (ebb__recorder_enter()) { ebb__recorder_leave(); }
}

__attribute__((destructor)) static void end(void) {
    if (!ebb__recorder_enter()) { return; }
    if (ebb__recorder.writer != NULL && !ebb__recorder.is_over && has_file()) {
        (void)ebb_trace_writer_close(ebb__recorder.writer);
    }
    ebb__recorder.writer = NULL;
    ebb__recorder.is_over = true;
    ebb__preload_min_bytes = SIZE_MAX;
    ebb__recorder_leave();
}

/* ---- blocks -------------------------------------------------------------------------------------- */

void ebb__recorder_end_block(preload_block *block) {
    if (ebb__recorder_open()) { /* which may number it anew */
        const ebb_trace_event event = {
            .kind = EBB_TRACE_FREE, .time_ns = ebb__recorder_now_ns(), .block = block->block};
        add_event(&event);
    }
    EBB_ASSERT(ebb__recorder.live_bytes[block->space] >= block->size_bytes && ebb__preload_may_be(block->key));
    ebb__recorder.live_bytes[block->space] -= block->size_bytes;
    atomic_fetch_sub_explicit(&filter[filter_of(block->key)], 1, memory_order_relaxed);
    ebb__preload_blocks_remove(&ebb__recorder.blocks, block);
}

void ebb__recorder_begin_block(preload_block block) {
    if (!ebb__recorder_open()) { return; }
    preload_block *old = ebb__preload_blocks_find(&ebb__recorder.blocks, block.key);
    if (old != NULL) { ebb__recorder_end_block(old); }
    write_alloc(&block, false);
    if (!ebb__preload_blocks_add(&ebb__recorder.blocks, &block)) {
        ebb__recorder_give_up();
        return;
    }
    ebb__recorder.live_bytes[block.space] += block.size_bytes;
    const uint16_t n = atomic_fetch_add_explicit(&filter[filter_of(block.key)], 1, memory_order_relaxed);
    EBB_ASSERT(n < UINT16_MAX);
    (void)n;
}

/* With what is being allocated now; the host's spaces are one. */
static uint64_t used_bytes(uint32_t space) {
    const uint32_t first = space >= PRELOAD_DEVICE ? space : 0,
                   last = space >= PRELOAD_DEVICE ? space + 1 : PRELOAD_DEVICE;
    uint64_t used = 0;
    for (uint32_t s = first; s < last; s++) { used += ebb__recorder.live_bytes[s] + ebb__recorder.admitted_bytes[s]; }
    return used;
}

/* The limit is the device's: of CUDA's devices where the process has used one, of the host until then. */
static bool is_past_limit(uint32_t space, uint64_t size_bytes) {
    if (ebb__recorder.limit_bytes == UINT64_MAX || (space < PRELOAD_DEVICE && ebb__recorder.has_device)) {
        return false;
    }
    const uint64_t used = used_bytes(space);
    return size_bytes > ebb__recorder.limit_bytes || used > ebb__recorder.limit_bytes - size_bytes;
}

static void begin(preload_block block) {
    if (block.space == PRELOAD_MMAP) {
        ebb__recorder_begin_mapped(block.key & ~(uint64_t)PRELOAD_MAPPED, block.size_bytes, block.stack);
    } else {
        block.n_uses = 1;
        ebb__recorder_begin_block(block);
    }
}

/* Which device it was, once, and each time a mark. */
static void note_space(uint32_t space) {
    char key[32];
    if (ebb__recorder.is_out[space]) { return; }
    name_space(space);
    (void)snprintf(key, sizeof key, "oom.%u", space);
    (void)ebb_trace_writer_note(ebb__recorder.writer, key, "yes");
    ebb__recorder.is_out[space] = true;
}

static void note_refused(uint32_t space, uint64_t size_bytes) {
    preload_stack stack = {0};
    is_nested = true; /* as in ebb__preload_done */
    ebb__preload_stack_take(&stack, ebb__recorder.n_frames);
    is_nested = false;
    if (!ebb__recorder_enter()) { return; }
    ebb_trace_event event = {.kind = EBB_TRACE_MARK, .mark = EBB_TRACE_ANNOTATION, .number = size_bytes};
    if (ebb__recorder_open() && has_file() &&
        ebb_trace_writer_string(ebb__recorder.writer, "refused", &event.name) == EBB_OK) {
        note_space(space);
        event.stack = ebb__recorder_number_stack(&stack);
        event.time_ns = ebb__recorder_now_ns();
        add_event(&event);
    }
    ebb__recorder_leave();
}

bool ebb__preload_counts(uint64_t size_bytes) {
    return size_bytes >= ebb__preload_min_bytes && !is_nested && !is_inside;
}

preload_answer ebb__preload_ask(uint32_t space, uint64_t size_bytes) {
    if (space >= PRELOAD_MAX_SPACES || is_nested || !ebb__recorder_enter()) { return PRELOAD_PASS; }
    preload_answer answer = !ebb__recorder.is_set_up || ebb__recorder.is_over || size_bytes < ebb__preload_min_bytes
                                ? PRELOAD_PASS
                                : PRELOAD_RECORD;
    if (answer == PRELOAD_RECORD && space >= PRELOAD_DEVICE) { ebb__recorder.has_device = true; }
    if (answer == PRELOAD_RECORD && is_past_limit(space, size_bytes)) { answer = PRELOAD_REFUSE; }
    if (answer == PRELOAD_RECORD) { ebb__recorder.admitted_bytes[space] += size_bytes; }
    ebb__recorder_leave();
    if (answer == PRELOAD_REFUSE) { note_refused(space, size_bytes); }
    is_nested = answer == PRELOAD_RECORD; /* what it takes from others meanwhile is its own business */
    return answer;
}

void ebb__preload_done(uint32_t space, uint64_t key, uint64_t asked_bytes, uint64_t size_bytes) {
    const int saved_errno = errno;
    EBB_ASSERT(is_nested && !is_inside);
    preload_stack stack = {0};
    if (key != 0) { ebb__preload_stack_take(&stack, ebb__recorder.n_frames); }
    is_nested = false;
    (void)ebb__recorder_enter();
    /* First, for it may give the lock back: until the block lives the limit counts what was admitted. */
    const uint32_t number = key != 0 ? ebb__recorder_number_stack(&stack) : 0;
    EBB_ASSERT(ebb__recorder.admitted_bytes[space] >= asked_bytes);
    ebb__recorder.admitted_bytes[space] -= asked_bytes;
    if (key != 0) {
        begin((preload_block){.key = key, .size_bytes = size_bytes, .space = space, .stack = number});
        ebb__recorder_flush();
    }
    ebb__recorder_leave();
    errno = saved_errno;
}

/* A free counts inside of another call, too. */
bool ebb__preload_take(uint64_t key, preload_block *was_out) {
    const int saved_errno = errno;
    if (!ebb__recorder_enter()) { return false; }
    preload_block *block = ebb__preload_blocks_find(&ebb__recorder.blocks, key);
    const bool found = block != NULL && block->space != PRELOAD_MMAP && !ebb__recorder.is_over;
    if (found) {
        *was_out = *block;
        ebb__recorder_end_block(block);
        ebb__recorder_flush();
    }
    ebb__recorder_leave();
    errno = saved_errno;
    return found;
}

void ebb__preload_give_back(const preload_block *was) {
    const int saved_errno = errno;
    if (!ebb__recorder_enter()) { return; }
    ebb__recorder_begin_block(*was);
    ebb__recorder_flush();
    ebb__recorder_leave();
    errno = saved_errno;
}

void ebb__preload_reset(uint32_t space) {
    if (space < PRELOAD_DEVICE || space >= PRELOAD_MAX_SPACES || !ebb__recorder_enter()) { return; }
    for (size_t i = 0; i < ebb__recorder.blocks.n_slots && !ebb__recorder.is_over; i++) {
        preload_block *block = &ebb__recorder.blocks.slot[i];
        /* Another one may come up to here. */
        while (block->key != 0 && block->space == space) { ebb__recorder_end_block(block); }
    }
    EBB_ASSERT(ebb__recorder.is_over || ebb__recorder.live_bytes[space] == 0);
    ebb__recorder_flush();
    ebb__recorder_leave();
}

void ebb__preload_shrink(uint32_t space, uint64_t *free_bytes, uint64_t *total_bytes) {
    if (ebb__recorder.limit_bytes == UINT64_MAX || space >= PRELOAD_MAX_SPACES || !ebb__recorder_enter()) { return; }
    const uint64_t used = used_bytes(space), limit = ebb__recorder.limit_bytes;
    *free_bytes = ebb_min_u64(*free_bytes, used < limit ? limit - used : 0);
    *total_bytes = ebb_min_u64(*total_bytes, limit);
    ebb__recorder_leave();
}

/* ---- beside the trace ---------------------------------------------------------------------------- */

bool ebb__preload_set_nested(bool nested) {
    const bool was = is_nested;
    is_nested = nested;
    return was;
}

void ebb__preload_note(const char *key, const char *value) {
    const int saved_errno = errno;
    if (!ebb__recorder_enter()) { return; }
    if (ebb__recorder.is_set_up && ebb__recorder_open()) {
        if (ebb_trace_writer_note(ebb__recorder.writer, key, value) != EBB_OK) { ebb__recorder_give_up(); }
        ebb__recorder_flush();
    }
    ebb__recorder_leave();
    errno = saved_errno;
}

bool ebb__preload_begin_beside(char *path, uint64_t *zero_ns_out) {
    if (!ebb__recorder_enter()) { return false; }
    static const char suffix[] = ".steps";
    const bool is_there = ebb__recorder.is_set_up && ebb__recorder_open() && has_file();
    const size_t n = strlen(ebb__recorder.trace_path);
    const bool is_whole = is_there && n + sizeof suffix <= PRELOAD_MAX_PATH_BYTES;
    if (is_whole) {
        memcpy(path, ebb__recorder.trace_path, n);
        memcpy(path + n, suffix, sizeof suffix);
        (void)unlink(path); /* another recording's */
        *zero_ns_out = (uint64_t)ebb__recorder.start_ns;
    }
    ebb__recorder_leave();
    return is_whole;
}

/* Opened anew each time: what the program does with open files is its own business. */
void ebb__preload_append(const char *path, const char *text, size_t n_bytes) {
    const int saved_errno = errno;
    if (!ebb__recorder_enter()) { return; }
    const int fd = ebb__recorder.is_over ? -1 : open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
    for (ssize_t n = 0; fd >= 0 && n_bytes > 0; text += n, n_bytes -= (size_t)n) {
        n = write(fd, text, n_bytes);
        if (n <= 0) { /* a last line that is no whole one is left out */
            (void)ebb__fail_errno(path, "write");
            ebb__recorder_give_up();
            break;
        }
    }
    if (fd >= 0) { (void)close(fd); }
    ebb__recorder_leave();
    errno = saved_errno;
}
