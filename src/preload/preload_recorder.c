/* SPDX-License-Identifier: Apache-2.0
 *
 * The recorder of a process: what lives, how much that is, and the trace.
 *
 * Each event goes to the kernel at once, so that a process that is killed leaves all it did: a write of some 20 bytes,
 * for large allocations alone. The file is made with the first event, under the first name that is free: OUT, else
 * OUT.PID, OUT.PID.1 and so on; so the first process that does anything has OUT. A child of fork has a trace of its
 * own, which begins with what it inherited.
 *
 * Invariants, under the lock
 *  1. live_bytes[s] is the sum over the blocks of space s, plus what was admitted and is not done yet.
 *  2. filter counts the blocks by the hash of their key.
 */
#include "preload/preload.h"

#include "base/file.h"
#include "trace/trace.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define DEFAULT_MIN_BYTES ((size_t)64 * 1024)
#define DEFAULT_FRAMES 16u
#define FILTER_BITS 14
#define MAX_PATH_BYTES ((size_t)4096)
#define MAX_TRIES 1000

typedef struct range {
    uint64_t address, size_bytes, handle; /* handle 0: a mapped block */
} range;

typedef struct handle_state {
    uint64_t handle;
    uint32_t n_maps;
    bool is_released;
} handle_state;

static struct {
    pthread_mutex_t lock;
    bool is_set_up, is_over;
    char path[MAX_PATH_BYTES];
    uint64_t limit_bytes;
    size_t n_frames;
    ebb_trace_writer *writer; /* NULL: nothing happened yet */
    int fd;                   /* the writer's, and which file that was */
    struct stat file;
    uint64_t n_blocks;
    int64_t start_ns;
    preload_blocks blocks;
    uint64_t live_bytes[PRELOAD_MAX_SPACES];
    bool is_named[PRELOAD_MAX_SPACES]; /* in the trace */
    bool has_device;
    EBB_VEC(range) ranges; /* few: looked through */
    EBB_VEC(handle_state) handles;
    preload_blocks symbols; /* by program counter: block is the function's string, size_bytes the file's */
} recorder = {.lock = PTHREAD_MUTEX_INITIALIZER};

size_t ebb__preload_min_bytes = DEFAULT_MIN_BYTES; /* until the environment was read */

static _Atomic uint16_t filter[1u << FILTER_BITS];
/* Of this thread: it is in here (a handler of a signal may call malloc then); it is in an allocation that is recorded.
 */
static _Thread_local bool is_inside __attribute__((tls_model("initial-exec")));
static _Thread_local bool is_nested __attribute__((tls_model("initial-exec")));

/* ---- the filter --------------------------------------------------------------------------------- */

static size_t filter_of(uint64_t key) {
    return (size_t)((key * 0x9e3779b97f4a7c15u) >> (64 - FILTER_BITS));
}

bool ebb__preload_may_be(uint64_t key) {
    return atomic_load_explicit(&filter[filter_of(key)], memory_order_relaxed) != 0;
}

/* ---- the file ----------------------------------------------------------------------------------- */

static uint64_t now_ns(void) {
    struct timespec now;
    (void)clock_gettime(CLOCK_MONOTONIC, &now);
    const int64_t ns = (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
    if (recorder.start_ns == 0) { recorder.start_ns = ns; }
    return (uint64_t)(ns - recorder.start_ns);
}

static uint64_t unix_ns(void) {
    struct timespec now;
    (void)clock_gettime(CLOCK_REALTIME, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

/* The recording is over; the program goes on. */
static void give_up(void) {
    recorder.is_over = true;
    ebb__preload_min_bytes = SIZE_MAX;
}

/* A program may close what is not its own; a file that it opens behind that has our number. */
static bool has_file(void) {
    struct stat now;
    return fstat(recorder.fd, &now) == 0 && now.st_dev == recorder.file.st_dev && now.st_ino == recorder.file.st_ino;
}

/* A file that was not there, -1 when none can be made. Its name goes to path. */
static int make_file(char *path) {
    for (int i = 0; i < MAX_TRIES; i++) {
        int n = 0;
        if (i == 0) { n = snprintf(path, MAX_PATH_BYTES, "%s", recorder.path); }
        if (i == 1) { n = snprintf(path, MAX_PATH_BYTES, "%s.%d", recorder.path, (int)getpid()); }
        if (i > 1) { n = snprintf(path, MAX_PATH_BYTES, "%s.%d.%d", recorder.path, (int)getpid(), i - 1); }
        if (n < 0 || (size_t)n >= MAX_PATH_BYTES) { return -1; }
        const int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
        if (fd >= 0 || errno != EEXIST) { return fd; }
    }
    return -1;
}

/* The command line, its words separated by blanks. */
static void read_command(char *text, size_t n_bytes) {
    const int fd = open("/proc/self/cmdline", O_RDONLY | O_CLOEXEC);
    ssize_t n = fd >= 0 ? read(fd, text, n_bytes - 1) : 0;
    if (fd >= 0) { (void)close(fd); }
    n = n > 0 ? n : 0;
    while (n > 0 && text[n - 1] == '\0') { n--; }
    for (ssize_t i = 0; i < n; i++) { text[i] = (unsigned char)text[i] < ' ' ? ' ' : text[i]; }
    text[n] = '\0';
}

static void write_notes(void) {
    char text[512];
    (void)ebb_trace_writer_note(recorder.writer, "source", "ebb record");
    read_command(text, sizeof text);
    (void)ebb_trace_writer_note(recorder.writer, "command", text);
    (void)snprintf(text, sizeof text, "%d", (int)getpid());
    (void)ebb_trace_writer_note(recorder.writer, "pid", text);
    (void)snprintf(text, sizeof text, "%zu", ebb__preload_min_bytes);
    (void)ebb_trace_writer_note(recorder.writer, "min_bytes", text);
    if (recorder.limit_bytes != UINT64_MAX) {
        (void)snprintf(text, sizeof text, "%llu", (unsigned long long)recorder.limit_bytes);
        (void)ebb_trace_writer_note(recorder.writer, "limit_bytes", text);
    }
}

static void name_space(uint32_t space) {
    static const char *const names[] = {"malloc", "mmap", "pinned", "managed"};
    if (recorder.is_named[space]) { return; }
    char key[32], name[32];
    (void)snprintf(key, sizeof key, "space.%u", space);
    if (space < PRELOAD_DEVICE) {
        (void)snprintf(name, sizeof name, "%s", names[space]);
    } else {
        (void)snprintf(name, sizeof name, "cuda:%u", space - PRELOAD_DEVICE);
    }
    (void)ebb_trace_writer_note(recorder.writer, key, name);
    recorder.is_named[space] = true;
}

static void add_event(const ebb_trace_event *event) {
    if (ebb_trace_writer_add(recorder.writer, event) != EBB_OK) { give_up(); }
}

static void write_alloc(preload_block *block, uint32_t stack, bool before) {
    ebb_trace_event event = {.kind = EBB_TRACE_ALLOC, .time_ns = now_ns(), .role = EBB_ROLE_UNKNOWN};
    name_space(block->space);
    event.block = block->block = recorder.n_blocks++;
    event.size_bytes = block->size_bytes;
    event.space = block->space;
    event.stack = stack;
    event.before = before;
    event.address = (block->key & PRELOAD_HANDLE) != 0 ? EBB_TRACE_NONE : block->key & ~(uint64_t)PRELOAD_MAPPED;
    add_event(&event);
}

/* Open the trace unless it is open; what lives already (in a child of fork) comes first. */
static bool open_trace(void) {
    if (recorder.writer != NULL || recorder.is_over) { return !recorder.is_over; }
    char path[MAX_PATH_BYTES];
    const int fd = recorder.fd = make_file(path);
    ebb_trace_writer_options options = EBB_TRACE_WRITER_OPTIONS_INIT;
    options.mem = &ebb__preload_mem;
    options.tells = EBB_TRACE_TELLS_TIMES | EBB_TRACE_TELLS_ADDRESSES;
    if (recorder.n_frames > 0) { options.tells |= EBB_TRACE_TELLS_STACKS; }
    options.start_unix_ns = unix_ns();
    recorder.start_ns = 0;
    (void)now_ns();
    if (fd < 0 || fstat(fd, &recorder.file) != 0 ||
        ebb__trace_writer_open_fd(path, fd, &options, &recorder.writer) != EBB_OK) {
        give_up();
        return false;
    }
    write_notes();
    for (size_t i = 0; i < recorder.blocks.n_slots; i++) {
        if (recorder.blocks.slot[i].key != 0) { write_alloc(&recorder.blocks.slot[i], 0, true); }
    }
    return true;
}

static void flush(void) {
    if (recorder.writer == NULL || recorder.is_over) { return; }
    if (!has_file() || ebb__trace_writer_flush(recorder.writer) != EBB_OK) { give_up(); }
}

/* ---- set-up and end ------------------------------------------------------------------------------ */

static uint64_t number_of(const char *name, uint64_t otherwise) {
    const char *text = getenv(name);
    return text != NULL && *text != '\0' ? strtoull(text, NULL, 10) : otherwise;
}

static void lock_for_fork(void) {
    (void)pthread_mutex_lock(&recorder.lock);
}

static void unlock_after_fork(void) {
    (void)pthread_mutex_unlock(&recorder.lock);
}

static void begin_in_child(void) {
    recorder.writer = NULL; /* the parent's, with what it has not written; its memory is lost */
    recorder.n_blocks = 0;
    memset(recorder.is_named, 0, sizeof recorder.is_named);
    recorder.symbols = (preload_blocks){0};
    (void)pthread_mutex_unlock(&recorder.lock);
}

static void set_up(void) {
    if (recorder.is_set_up) { return; }
    recorder.is_set_up = true;
    const char *path = getenv("EBB_RECORD_OUT");
    const uint64_t n_frames = number_of("EBB_RECORD_STACKS", DEFAULT_FRAMES);
    recorder.limit_bytes = number_of("EBB_RECORD_LIMIT", UINT64_MAX);
    recorder.n_frames = (size_t)(n_frames < PRELOAD_MAX_FRAMES ? n_frames : PRELOAD_MAX_FRAMES);
    if (path == NULL || strlen(path) >= sizeof recorder.path) {
        give_up();
        return;
    }
    memcpy(recorder.path, path, strlen(path) + 1);
    ebb__preload_min_bytes = (size_t)number_of("EBB_RECORD_MIN_SIZE", DEFAULT_MIN_BYTES);
    (void)pthread_atfork(lock_for_fork, unlock_after_fork, begin_in_child);
}

static bool enter(void) {
    if (is_inside) { return false; }
    is_inside = true;
    (void)pthread_mutex_lock(&recorder.lock);
    set_up();
    return true;
}

static void leave(void) {
    (void)pthread_mutex_unlock(&recorder.lock);
    is_inside = false;
}

__attribute__((constructor)) static void begin(void) {
    if (enter()) { leave(); }
}

__attribute__((destructor)) static void end(void) {
    if (!enter()) { return; }
    if (recorder.writer != NULL && !recorder.is_over && has_file()) { (void)ebb_trace_writer_close(recorder.writer); }
    recorder.writer = NULL;
    give_up();
    leave();
}

/* ---- call stacks --------------------------------------------------------------------------------- */

static size_t find_unknown(const preload_stack *stack, uintptr_t *unknown) {
    size_t n = 0;
    for (size_t i = 0; i < stack->n; i++) {
        if (ebb__preload_blocks_find(&recorder.symbols, stack->pc[i]) == NULL) { unknown[n++] = stack->pc[i]; }
    }
    return n;
}

static void learn_symbol(uintptr_t pc, const Dl_info *info) {
    char offset[32];
    const char *function = info->dli_sname, *file = info->dli_fname != NULL ? info->dli_fname : "";
    if (function == NULL) {
        (void)snprintf(offset, sizeof offset, "+%#zx", (size_t)(pc - (uintptr_t)info->dli_fbase));
        function = offset;
    }
    uint32_t function_string = 0, file_string = 0;
    if (ebb__preload_blocks_find(&recorder.symbols, pc) != NULL || !open_trace() ||
        ebb_trace_writer_string(recorder.writer, function, &function_string) != EBB_OK ||
        ebb_trace_writer_string(recorder.writer, file, &file_string) != EBB_OK) {
        return;
    }
    const preload_block symbol = {.key = pc, .block = function_string, .size_bytes = file_string};
    (void)ebb__preload_blocks_add(&recorder.symbols, &symbol);
}

/* The lock is held, and given back while the linker is asked. */
static uint32_t number_stack(const preload_stack *stack) {
    uintptr_t unknown[PRELOAD_MAX_FRAMES];
    Dl_info info[PRELOAD_MAX_FRAMES] = {0};
    const size_t n_unknown = find_unknown(stack, unknown);
    if (n_unknown > 0) {
        (void)pthread_mutex_unlock(&recorder.lock);
        for (size_t i = 0; i < n_unknown; i++) { (void)dladdr((const void *)unknown[i], &info[i]); }
        (void)pthread_mutex_lock(&recorder.lock);
        for (size_t i = 0; i < n_unknown; i++) { learn_symbol(unknown[i], &info[i]); }
    }
    uint32_t number = 0;
    for (size_t i = stack->n; i-- > 0;) {
        const preload_block *symbol = ebb__preload_blocks_find(&recorder.symbols, stack->pc[i]);
        if (symbol == NULL || recorder.writer == NULL) { return 0; }
        if (ebb_trace_writer_frame(recorder.writer, number, (uint32_t)symbol->block, (uint32_t)symbol->size_bytes, 0,
                                   &number) != EBB_OK) {
            return 0;
        }
    }
    return number;
}

/* ---- blocks -------------------------------------------------------------------------------------- */

static void end_block(preload_block *block) {
    if (open_trace()) { /* which may number it anew */
        const ebb_trace_event event = {.kind = EBB_TRACE_FREE, .time_ns = now_ns(), .block = block->block};
        add_event(&event);
    }
    recorder.live_bytes[block->space] -= block->size_bytes;
    atomic_fetch_sub_explicit(&filter[filter_of(block->key)], 1, memory_order_relaxed);
    ebb__preload_blocks_remove(&recorder.blocks, block);
}

/* What was there under this key is gone without a word (freed inside of another call, or by a signal's handler). */
static void begin_block(preload_block block, uint32_t stack) {
    if (!open_trace()) { return; }
    preload_block *old = ebb__preload_blocks_find(&recorder.blocks, block.key);
    if (old != NULL) { end_block(old); }
    write_alloc(&block, stack, false);
    if (!ebb__preload_blocks_add(&recorder.blocks, &block)) {
        give_up();
        return;
    }
    recorder.live_bytes[block.space] += block.size_bytes;
    atomic_fetch_add_explicit(&filter[filter_of(block.key)], 1, memory_order_relaxed);
}

/* Of a mapped block. */
static void add_range(uint64_t key, uint64_t size_bytes) {
    const range mapped = {key & ~(uint64_t)PRELOAD_MAPPED, size_bytes, 0};
    if (EBB_PUSH(&ebb__preload_mem, &recorder.ranges, mapped) != EBB_OK) { give_up(); }
}

static uint64_t used_bytes(uint32_t space) {
    return space >= PRELOAD_DEVICE ? recorder.live_bytes[space]
                                   : recorder.live_bytes[PRELOAD_MALLOC] + recorder.live_bytes[PRELOAD_MMAP] +
                                         recorder.live_bytes[PRELOAD_PINNED] + recorder.live_bytes[PRELOAD_MANAGED];
}

/* The limit is the device's: of CUDA's devices where the process has used one, of the host until then. */
static bool is_past_limit(uint32_t space, uint64_t size_bytes) {
    if (recorder.limit_bytes == UINT64_MAX || (space < PRELOAD_DEVICE && recorder.has_device)) { return false; }
    const uint64_t used = used_bytes(space);
    return size_bytes > recorder.limit_bytes || used > recorder.limit_bytes - size_bytes;
}

preload_answer ebb__preload_ask(uint32_t space, uint64_t size_bytes) {
    if (space >= PRELOAD_MAX_SPACES || is_nested || !enter()) { return PRELOAD_PASS; }
    preload_answer answer = recorder.is_over || size_bytes < ebb__preload_min_bytes ? PRELOAD_PASS : PRELOAD_RECORD;
    if (answer == PRELOAD_RECORD && space >= PRELOAD_DEVICE) { recorder.has_device = true; }
    if (answer == PRELOAD_RECORD && is_past_limit(space, size_bytes)) {
        answer = PRELOAD_REFUSE;
        ebb_trace_event event = {.kind = EBB_TRACE_MARK, .mark = EBB_TRACE_ANNOTATION, .number = size_bytes};
        if (open_trace() && has_file() && ebb_trace_writer_string(recorder.writer, "refused", &event.name) == EBB_OK) {
            event.time_ns = now_ns();
            add_event(&event);
        }
    }
    if (answer == PRELOAD_RECORD) { recorder.live_bytes[space] += size_bytes; }
    leave();
    is_nested = answer == PRELOAD_RECORD; /* what it takes from others meanwhile is its own business */
    return answer;
}

void ebb__preload_done(uint32_t space, uint64_t key, uint64_t asked_bytes, uint64_t size_bytes) {
    const int saved_errno = errno;
    EBB_ASSERT(is_nested && !is_inside);
    preload_stack stack = {0};
    if (key != 0) { ebb__preload_stack_take(&stack, recorder.n_frames); }
    is_nested = false;
    (void)enter();
    recorder.live_bytes[space] -= asked_bytes;
    if (key != 0) {
        const uint32_t number = number_stack(&stack);
        begin_block((preload_block){.key = key, .size_bytes = size_bytes, .space = space}, number);
        if (space == PRELOAD_MMAP) { add_range(key, size_bytes); }
        flush();
    }
    leave();
    errno = saved_errno;
}

/* A free counts inside of another call, too. */
bool ebb__preload_take(uint64_t key, preload_block *was_out) {
    const int saved_errno = errno;
    if (!enter()) { return false; }
    preload_block *block = ebb__preload_blocks_find(&recorder.blocks, key);
    const bool found = block != NULL && !recorder.is_over;
    if (found) {
        *was_out = *block;
        end_block(block);
        flush();
    }
    leave();
    errno = saved_errno;
    return found;
}

void ebb__preload_give_back(const preload_block *was) {
    if (!enter()) { return; }
    begin_block(*was, 0);
    if (was->space == PRELOAD_MMAP) { add_range(was->key, was->size_bytes); }
    flush();
    leave();
}

void ebb__preload_shrink(uint32_t space, uint64_t *free_bytes, uint64_t *total_bytes) {
    if (recorder.limit_bytes == UINT64_MAX || space >= PRELOAD_MAX_SPACES || !enter()) { return; }
    const uint64_t used = used_bytes(space), limit = recorder.limit_bytes;
    *free_bytes = ebb_min_u64(*free_bytes, used < limit ? limit - used : 0);
    *total_bytes = ebb_min_u64(*total_bytes, limit);
    leave();
}

/* ---- ranges: mapped blocks, and where CUDA's handles are mapped ---------------------------------- */

static bool overlaps(const range *r, uint64_t address, uint64_t size_bytes) {
    return r->address < address + size_bytes && address < r->address + r->size_bytes;
}

/* What is left of a mapped block on one side of what was unmapped. */
static void keep_part(uint64_t address, uint64_t size_bytes) {
    if (size_bytes == 0) { return; }
    begin_block((preload_block){.key = address | PRELOAD_MAPPED, .size_bytes = size_bytes, .space = PRELOAD_MMAP}, 0);
    add_range(address, size_bytes);
}

static void unmap_range(size_t i, uint64_t address, uint64_t size_bytes) {
    const range r = recorder.ranges.data[i];
    recorder.ranges.data[i] = recorder.ranges.data[--recorder.ranges.n];
    preload_block *block = ebb__preload_blocks_find(&recorder.blocks, r.address | PRELOAD_MAPPED);
    if (block != NULL) { end_block(block); }
    if (r.address < address) { keep_part(r.address, address - r.address); }
    if (address + size_bytes < r.address + r.size_bytes) {
        keep_part(address + size_bytes, r.address + r.size_bytes - address - size_bytes);
    }
}

void ebb__preload_unmap(uint64_t address, uint64_t size_bytes) {
    if (recorder.ranges.n == 0) { return; } /* a glance; this thread sees its own mappings */
    const int saved_errno = errno;
    if (!enter()) { return; }
    for (size_t i = 0; i < recorder.ranges.n && !recorder.is_over;) {
        const bool hit = recorder.ranges.data[i].handle == 0 && overlaps(&recorder.ranges.data[i], address, size_bytes);
        if (hit) {
            unmap_range(i, address, size_bytes); /* another one is at i now, or a part of it that does not overlap */
        } else {
            i++;
        }
    }
    flush();
    leave();
    errno = saved_errno;
}

static handle_state *find_handle(uint64_t handle) {
    for (size_t i = 0; i < recorder.handles.n; i++) {
        if (recorder.handles.data[i].handle == handle) { return &recorder.handles.data[i]; }
    }
    const handle_state fresh = {.handle = handle};
    if (EBB_PUSH(&ebb__preload_mem, &recorder.handles, fresh) != EBB_OK) {
        give_up();
        return NULL;
    }
    return &recorder.handles.data[recorder.handles.n - 1];
}

static void end_handle_if_unused(handle_state *state) {
    if (!state->is_released || state->n_maps > 0) { return; }
    preload_block *block = ebb__preload_blocks_find(&recorder.blocks, state->handle | PRELOAD_HANDLE);
    if (block != NULL) { end_block(block); }
    *state = recorder.handles.data[--recorder.handles.n];
    flush();
}

void ebb__preload_handle_mapped(uint64_t address, uint64_t size_bytes, uint64_t handle) {
    if (!enter()) { return; }
    handle_state *state = find_handle(handle);
    const range mapped = {address, size_bytes, handle};
    if (state != NULL) { state->n_maps++; }
    if (EBB_PUSH(&ebb__preload_mem, &recorder.ranges, mapped) != EBB_OK) { give_up(); }
    leave();
}

void ebb__preload_handle_unmapped(uint64_t address, uint64_t size_bytes) {
    if (!enter()) { return; }
    for (size_t i = 0; i < recorder.ranges.n;) {
        const range r = recorder.ranges.data[i];
        if (r.handle == 0 || !overlaps(&r, address, size_bytes)) {
            i++;
            continue;
        }
        recorder.ranges.data[i] = recorder.ranges.data[--recorder.ranges.n];
        handle_state *state = find_handle(r.handle);
        if (state == NULL) { break; }
        state->n_maps--;
        end_handle_if_unused(state);
    }
    leave();
}

void ebb__preload_handle_released(uint64_t handle) {
    if (!enter()) { return; }
    handle_state *state = find_handle(handle);
    if (state != NULL) {
        state->is_released = true;
        end_handle_if_unused(state);
    }
    leave();
}
