/* SPDX-License-Identifier: Apache-2.0
 *
 * The recorder of a process: what lives, how much that is, and the trace.
 *
 * Each event goes to the kernel at once, so that a process that is killed leaves all it did: a write of some 20 bytes,
 * for large allocations alone. The file is made with the first event. A child of fork has a trace of its own, which
 * begins with what it inherited.
 *
 * Invariants, under the lock (is_valid walks them)
 *  1. live_bytes[s] is the sum over the blocks of space s; admitted_bytes[s] is what has been allowed and is not done.
 *  2. filter counts the blocks by the hash of their key.
 *  3. Each range of mapped is a block of the space mmap, and the other way round.
 *  4. Each range of views, a mapping of a handle, is in handle_of; while that handle has uses, it is a block.
 */
#include "preload/preload.h"

#include "base/file.h"
#include "trace/ranges.h"
#include "trace/trace.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define DEFAULT_MIN_BYTES ((size_t)64 * 1024)
#define DEFAULT_FRAMES 16u
#define FILTER_BITS 14

static struct {
    pthread_mutex_t lock;
    bool is_set_up, is_over;
    bool has_file_limit; /* a write beyond it ends a process, and that must not be ours */
    pid_t pid;           /* of the process that this is for */
    char path[PRELOAD_MAX_PATH_BYTES], says[64];
    char trace_path[PRELOAD_MAX_PATH_BYTES]; /* of this process; "": nothing happened yet */
    uint64_t limit_bytes;
    size_t n_frames;
    ebb_trace_writer *writer; /* NULL: nothing happened yet */
    int fd;                   /* the writer's, and which file that was */
    struct stat file;
    uint64_t n_blocks;
    int64_t start_ns;
    preload_blocks blocks;
    uint64_t live_bytes[PRELOAD_MAX_SPACES], admitted_bytes[PRELOAD_MAX_SPACES];
    bool is_named[PRELOAD_MAX_SPACES]; /* in the trace */
    bool has_device;
    ebb_ranges mapped;        /* the blocks of the space mmap */
    ebb_ranges views;         /* where CUDA's handles are mapped */
    preload_blocks handle_of; /* by a view's address: block is the handle */
    preload_blocks symbols;   /* by program counter: block is the function's string, size_bytes the file's */
} recorder = {
    .lock = PTHREAD_MUTEX_INITIALIZER,
    .mapped = {.mem = &ebb__preload_mem},
    .views = {.mem = &ebb__preload_mem},
};

size_t ebb__preload_min_bytes = DEFAULT_MIN_BYTES; /* until the environment was read */
bool ebb__preload_no_kernels;

static _Atomic uint16_t filter[1u << FILTER_BITS];
/* Of this thread: it is in here (a handler of a signal may call malloc then); it is in an allocation that is recorded.
 */
static _Thread_local bool is_inside __attribute__((tls_model("initial-exec")));
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

/* The recording is over, because of the last error; the program goes on. */
static void give_up(void) {
    if (!recorder.is_over) { ebb__preload_tell(recorder.says, ebb_last_error()); }
    recorder.is_over = true;
    ebb__preload_min_bytes = SIZE_MAX;
}

/* A program may close what is not its own; a file that it opens behind that has our number. And a child that was made
 * without fork's handlers has its parent's file. */
static bool has_file(void) {
    struct stat now;
    const bool is_ours = getpid() == recorder.pid;
    const bool is_there =
        fstat(recorder.fd, &now) == 0 && now.st_dev == recorder.file.st_dev && now.st_ino == recorder.file.st_ino;
    if (!is_ours) {
        (void)ebb_fail(EBB_E_IO, "%s: a copy that a process made of itself without fork", recorder.trace_path);
    }
    if (is_ours && !is_there) { (void)ebb_fail(EBB_E_IO, "%s: the program closed its recording", recorder.trace_path); }
    return is_ours && is_there;
}

static void write_notes(void) {
    char text[512];
    (void)ebb_trace_writer_note(recorder.writer, "source", "ebb record");
    ebb__preload_read_command(text, sizeof text);
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
    EBB_ASSERT(space < PRELOAD_MAX_SPACES && recorder.writer != NULL);
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
    EBB_ASSERT(recorder.writer != NULL);
    if (ebb_trace_writer_add(recorder.writer, event) != EBB_OK) { give_up(); }
}

static void write_alloc(preload_block *block, bool before) {
    ebb_trace_event event = {.kind = EBB_TRACE_ALLOC, .time_ns = now_ns(), .role = EBB_ROLE_UNKNOWN};
    EBB_ASSERT(block->key != 0 && block->size_bytes > 0);
    name_space(block->space);
    event.block = block->block = recorder.n_blocks++;
    event.size_bytes = block->size_bytes;
    event.space = block->space;
    event.stack = block->stack;
    event.before = before;
    event.address = (block->key & PRELOAD_HANDLE) != 0 ? EBB_TRACE_NONE : block->key & ~(uint64_t)PRELOAD_MAPPED;
    add_event(&event);
}

/* Open the trace unless it is open; what lives already (in a child of fork) comes first. */
static bool open_trace(void) {
    if (recorder.writer != NULL || recorder.is_over) { return !recorder.is_over; }
    char *path = recorder.trace_path;
    const int fd = recorder.fd = ebb__preload_make_file(recorder.path, path);
    ebb_trace_writer_options options = EBB_TRACE_WRITER_OPTIONS_INIT;
    options.mem = &ebb__preload_mem;
    options.tells = EBB_TRACE_TELLS_TIMES | EBB_TRACE_TELLS_ADDRESSES;
    if (recorder.n_frames > 0) { options.tells |= EBB_TRACE_TELLS_STACKS; }
    options.start_unix_ns = unix_ns();
    recorder.start_ns = 0;
    (void)now_ns();
    EBB_ASSERT(recorder.n_blocks == 0);
    if (fd < 0 || fstat(fd, &recorder.file) != 0 ||
        ebb__trace_writer_open_fd(path, fd, &options, &recorder.writer) != EBB_OK) {
        give_up();
        return false;
    }
    write_notes();
    for (size_t i = 0; i < recorder.blocks.n_slots; i++) {
        if (recorder.blocks.slot[i].key != 0) { write_alloc(&recorder.blocks.slot[i], true); }
    }
    return true;
}

static void flush(void) {
    if (recorder.writer == NULL || recorder.is_over) { return; }
    if (!has_file() || ebb__trace_writer_flush(recorder.writer) != EBB_OK) { give_up(); }
}

/* ---- the invariants -------------------------------------------------------------------------------- */

static bool are_blocks_valid(void) {
    uint64_t live_bytes[PRELOAD_MAX_SPACES] = {0};
    size_t n = 0, n_mapped = 0, n_filtered = 0;
    for (size_t i = 0; i < recorder.blocks.n_slots; i++) {
        const preload_block *block = &recorder.blocks.slot[i];
        if (block->key == 0) { continue; }
        const bool is_mapped = block->space == PRELOAD_MMAP;
        if (!ebb__preload_may_be(block->key) || is_mapped != ((block->key & PRELOAD_MAPPED) != 0)) { return false; }
        live_bytes[block->space] += block->size_bytes;
        n_mapped += is_mapped;
        n++;
    }
    for (size_t i = 0; i < sizeof filter / sizeof filter[0]; i++) { n_filtered += filter[i]; }
    return n == recorder.blocks.n && n == n_filtered && n_mapped == recorder.mapped.ranges.n &&
           memcmp(live_bytes, recorder.live_bytes, sizeof live_bytes) == 0;
}

/* Of a recording that goes on; one that is over may have ended anywhere. */
static bool is_valid(void) {
    if (recorder.is_over) { return true; }
    for (size_t i = 0; i < recorder.mapped.ranges.n; i++) {
        const ebb_range *range = &recorder.mapped.ranges.data[i];
        const preload_block *block = ebb__preload_blocks_find(&recorder.blocks, range->address | PRELOAD_MAPPED);
        if (block == NULL || block->size_bytes != range->size_bytes) { return false; }
    }
    for (size_t i = 0; i < recorder.views.ranges.n; i++) {
        if (ebb__preload_blocks_find(&recorder.handle_of, recorder.views.ranges.data[i].address) == NULL) {
            return false;
        }
    }
    return recorder.views.ranges.n == recorder.handle_of.n && are_blocks_valid();
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
    recorder.pid = getpid();
    recorder.n_blocks = 0;
    for (size_t i = 0; i < recorder.blocks.n_slots; i++) { recorder.blocks.slot[i].stack = 0; } /* the parent's, too */
    for (size_t i = 0; i < recorder.mapped.ranges.n; i++) { recorder.mapped.ranges.data[i].stack = 0; }
    memset(recorder.is_named, 0, sizeof recorder.is_named);
    recorder.symbols = (preload_blocks){0};
    (void)pthread_mutex_unlock(&recorder.lock);
}

/* Not before there is an environment: a program may have code that comes before the C library's own. */
static void set_up(void) {
    if (recorder.is_set_up || environ == NULL) { return; }
    recorder.is_set_up = true;
    const char *path = getenv("EBB_RECORD_OUT"), *says = getenv("EBB_RECORD_SAYS");
    const uint64_t n_frames = number_of("EBB_RECORD_STACKS", DEFAULT_FRAMES);
    struct rlimit files;
    (void)snprintf(recorder.says, sizeof recorder.says, "%s", says != NULL ? says : "");
    recorder.pid = getpid();
    recorder.has_file_limit = getrlimit(RLIMIT_FSIZE, &files) == 0 && files.rlim_cur != RLIM_INFINITY;
    recorder.limit_bytes = number_of("EBB_RECORD_LIMIT", UINT64_MAX);
    recorder.n_frames = (size_t)(n_frames < PRELOAD_MAX_FRAMES ? n_frames : PRELOAD_MAX_FRAMES);
    if (path == NULL || strlen(path) >= sizeof recorder.path) {
        (void)ebb_fail(EBB_E_ARGUMENT, "%s: is no place for a recording", path != NULL ? path : "nothing");
        give_up();
        return;
    }
    memcpy(recorder.path, path, strlen(path) + 1);
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
    if (recorder.is_over && sigismember(&signals_before, SIGXFSZ) == 0) { (void)sigtimedwait(&one, NULL, &now); }
    (void)pthread_sigmask(SIG_SETMASK, &signals_before, NULL);
}

static bool enter(void) {
    if (is_inside) { return false; }
    is_inside = true;
    (void)pthread_mutex_lock(&recorder.lock);
    set_up();
    if (recorder.has_file_limit) { block_signal(); }
    return true;
}

static void leave(void) {
    EBB_ASSERT(is_inside && (EBB_DEBUG < 2 || is_valid()));
    if (recorder.has_file_limit) { unblock_signal(); }
    (void)pthread_mutex_unlock(&recorder.lock);
    is_inside = false;
}

__attribute__((constructor)) static void start(void) {
    if (enter()) { leave(); }
}

__attribute__((destructor)) static void end(void) {
    if (!enter()) { return; }
    if (recorder.writer != NULL && !recorder.is_over && has_file()) { (void)ebb_trace_writer_close(recorder.writer); }
    recorder.writer = NULL;
    recorder.is_over = true;
    ebb__preload_min_bytes = SIZE_MAX;
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
    EBB_ASSERT(recorder.live_bytes[block->space] >= block->size_bytes && ebb__preload_may_be(block->key));
    recorder.live_bytes[block->space] -= block->size_bytes;
    atomic_fetch_sub_explicit(&filter[filter_of(block->key)], 1, memory_order_relaxed);
    ebb__preload_blocks_remove(&recorder.blocks, block);
}

/* What was there under this key is gone without a word (freed inside of another call, or by a signal's handler). */
static void begin_block(preload_block block) {
    if (!open_trace()) { return; }
    preload_block *old = ebb__preload_blocks_find(&recorder.blocks, block.key);
    if (old != NULL) { end_block(old); }
    write_alloc(&block, false);
    if (!ebb__preload_blocks_add(&recorder.blocks, &block)) {
        give_up();
        return;
    }
    recorder.live_bytes[block.space] += block.size_bytes;
    const uint16_t n = atomic_fetch_add_explicit(&filter[filter_of(block.key)], 1, memory_order_relaxed);
    EBB_ASSERT(n < UINT16_MAX);
    (void)n;
}

/* A mapped block is no more, or what is left of one comes. *ctx: the bytes that went. */
static ebb_status follow_mapped(void *ctx, const ebb_range *range, bool comes) {
    uint64_t *n_bytes = ctx;
    const uint64_t key = range->address | PRELOAD_MAPPED;
    EBB_ASSERT(range->size_bytes > 0 && (range->address & PRELOAD_MAPPED) == 0);
    if (comes) {
        begin_block(
            (preload_block){.key = key, .size_bytes = range->size_bytes, .space = PRELOAD_MMAP, .stack = range->stack});
        *n_bytes -= range->size_bytes;
        return EBB_OK;
    }
    preload_block *block = ebb__preload_blocks_find(&recorder.blocks, key);
    EBB_ASSERT(recorder.is_over || (block != NULL && block->size_bytes == range->size_bytes));
    if (block != NULL) { end_block(block); }
    *n_bytes += range->size_bytes;
    return EBB_OK;
}

static void begin_mapped(uint64_t address, uint64_t size_bytes, uint32_t stack) {
    const ebb_range range = {address, size_bytes, stack};
    uint64_t n_bytes = 0;
    if (ebb__ranges_add(&recorder.mapped, &range, follow_mapped, &n_bytes) != EBB_OK) { give_up(); }
}

/* With what is being allocated now; the host's spaces are one. */
static uint64_t used_bytes(uint32_t space) {
    const uint32_t first = space >= PRELOAD_DEVICE ? space : 0,
                   last = space >= PRELOAD_DEVICE ? space + 1 : PRELOAD_DEVICE;
    uint64_t used = 0;
    for (uint32_t s = first; s < last; s++) { used += recorder.live_bytes[s] + recorder.admitted_bytes[s]; }
    return used;
}

/* The limit is the device's: of CUDA's devices where the process has used one, of the host until then. */
static bool is_past_limit(uint32_t space, uint64_t size_bytes) {
    if (recorder.limit_bytes == UINT64_MAX || (space < PRELOAD_DEVICE && recorder.has_device)) { return false; }
    const uint64_t used = used_bytes(space);
    return size_bytes > recorder.limit_bytes || used > recorder.limit_bytes - size_bytes;
}

static void begin(preload_block block) {
    if (block.space == PRELOAD_MMAP) {
        begin_mapped(block.key & ~(uint64_t)PRELOAD_MAPPED, block.size_bytes, block.stack);
    } else {
        block.n_uses = 1;
        begin_block(block);
    }
}

static void note_refused(uint64_t size_bytes) {
    preload_stack stack = {0};
    is_nested = true; /* as in ebb__preload_done */
    ebb__preload_stack_take(&stack, recorder.n_frames);
    is_nested = false;
    if (!enter()) { return; }
    ebb_trace_event event = {.kind = EBB_TRACE_MARK, .mark = EBB_TRACE_ANNOTATION, .number = size_bytes};
    if (open_trace() && has_file() && ebb_trace_writer_string(recorder.writer, "refused", &event.name) == EBB_OK) {
        event.stack = number_stack(&stack);
        event.time_ns = now_ns();
        add_event(&event);
    }
    leave();
}

preload_answer ebb__preload_ask(uint32_t space, uint64_t size_bytes) {
    if (space >= PRELOAD_MAX_SPACES || is_nested || !enter()) { return PRELOAD_PASS; }
    preload_answer answer =
        !recorder.is_set_up || recorder.is_over || size_bytes < ebb__preload_min_bytes ? PRELOAD_PASS : PRELOAD_RECORD;
    if (answer == PRELOAD_RECORD && space >= PRELOAD_DEVICE) { recorder.has_device = true; }
    if (answer == PRELOAD_RECORD && is_past_limit(space, size_bytes)) { answer = PRELOAD_REFUSE; }
    if (answer == PRELOAD_RECORD) { recorder.admitted_bytes[space] += size_bytes; }
    leave();
    if (answer == PRELOAD_REFUSE) { note_refused(size_bytes); }
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
    EBB_ASSERT(recorder.admitted_bytes[space] >= asked_bytes);
    recorder.admitted_bytes[space] -= asked_bytes;
    if (key != 0) {
        begin((preload_block){.key = key, .size_bytes = size_bytes, .space = space, .stack = number_stack(&stack)});
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
    const bool found = block != NULL && block->space != PRELOAD_MMAP && !recorder.is_over;
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
    const int saved_errno = errno;
    if (!enter()) { return; }
    begin_block(*was);
    flush();
    leave();
    errno = saved_errno;
}

void ebb__preload_reset(uint32_t space) {
    if (space < PRELOAD_DEVICE || space >= PRELOAD_MAX_SPACES || !enter()) { return; }
    for (size_t i = 0; i < recorder.blocks.n_slots && !recorder.is_over; i++) {
        preload_block *block = &recorder.blocks.slot[i];
        while (block->key != 0 && block->space == space) { end_block(block); } /* another one may come up to here */
    }
    EBB_ASSERT(recorder.is_over || recorder.live_bytes[space] == 0);
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

uint64_t ebb__preload_unmap(uint64_t address, uint64_t size_bytes) {
    if (recorder.mapped.ranges.n == 0) { return 0; } /* a glance; this thread sees its own mappings */
    const int saved_errno = errno;
    const uint64_t page_bytes = (uint64_t)getpagesize();
    if (address % page_bytes != 0 || size_bytes > INT64_MAX || !enter()) { return 0; } /* the kernel refuses those */
    const ebb_range range = {address, ebb_align_up(size_bytes, page_bytes), 0};
    uint64_t n_bytes = 0;
    if (!recorder.is_over && ebb__ranges_remove(&recorder.mapped, &range, follow_mapped, &n_bytes) != EBB_OK) {
        give_up();
    }
    if (n_bytes > 0) { flush(); }
    leave();
    errno = saved_errno;
    return n_bytes;
}

void ebb__preload_map_back(uint64_t address, uint64_t size_bytes) {
    const int saved_errno = errno;
    if (size_bytes == 0 || !enter()) { return; }
    if (!recorder.is_over) { begin_mapped(address, size_bytes, 0); }
    flush();
    leave();
    errno = saved_errno;
}

/* A physical handle's block; NULL: it is a small one, or imported. */
static preload_block *find_handle(uint64_t handle) {
    preload_block *block = ebb__preload_blocks_find(&recorder.blocks, handle | PRELOAD_HANDLE);
    EBB_ASSERT(block == NULL || block->n_uses > 0);
    return recorder.is_over ? NULL : block;
}

/* One use of it more: the program's own, or a mapping. */
static void use_handle(uint64_t handle) {
    preload_block *block = find_handle(handle);
    if (block != NULL) { block->n_uses++; }
}

/* One use of it less; without any it is no more. */
static void release_handle(uint64_t handle) {
    preload_block *block = find_handle(handle);
    if (block == NULL || --block->n_uses > 0) { return; }
    end_block(block);
    flush();
}

/* *ctx: the handle of what comes. CUDA unmaps no part of a mapping; were one left, it would be nobody's. */
static ebb_status follow_view(void *ctx, const ebb_range *range, bool comes) {
    const uint64_t *handle = ctx;
    const preload_block view = {.key = range->address, .block = *handle};
    preload_block *old = ebb__preload_blocks_find(&recorder.handle_of, range->address);
    EBB_ASSERT((old == NULL) == comes);
    if (!comes) {
        release_handle(old->block);
        ebb__preload_blocks_remove(&recorder.handle_of, old);
        return EBB_OK;
    }
    use_handle(*handle);
    return ebb__preload_blocks_add(&recorder.handle_of, &view) ? EBB_OK : EBB_E_NO_MEMORY;
}

void ebb__preload_handle_mapped(uint64_t address, uint64_t size_bytes, uint64_t handle) {
    const ebb_range range = {address, size_bytes, 0};
    if (!enter()) { return; }
    if (!recorder.is_over && ebb__ranges_add(&recorder.views, &range, follow_view, &handle) != EBB_OK) { give_up(); }
    leave();
}

void ebb__preload_handle_unmapped(uint64_t address, uint64_t size_bytes) {
    const ebb_range range = {address, size_bytes, 0};
    uint64_t nobodys = 0;
    if (!enter()) { return; }
    if (!recorder.is_over && ebb__ranges_remove(&recorder.views, &range, follow_view, &nobodys) != EBB_OK) {
        give_up();
    }
    leave();
}

void ebb__preload_handle_retained(uint64_t handle) {
    if (!enter()) { return; }
    use_handle(handle);
    leave();
}

void ebb__preload_handle_released(uint64_t handle) {
    if (!enter()) { return; }
    release_handle(handle);
    leave();
}

/* ---- beside the trace ---------------------------------------------------------------------------- */

bool ebb__preload_set_nested(bool nested) {
    const bool was = is_nested;
    is_nested = nested;
    return was;
}

void ebb__preload_note(const char *key, const char *value) {
    const int saved_errno = errno;
    if (!enter()) { return; }
    if (recorder.is_set_up && open_trace()) {
        if (ebb_trace_writer_note(recorder.writer, key, value) != EBB_OK) { give_up(); }
        flush();
    }
    leave();
    errno = saved_errno;
}

bool ebb__preload_begin_beside(char *path, uint64_t *zero_ns_out) {
    if (!enter()) { return false; }
    static const char suffix[] = ".steps";
    const bool is_there = recorder.is_set_up && open_trace() && has_file();
    const size_t n = strlen(recorder.trace_path);
    const bool is_whole = is_there && n + sizeof suffix <= PRELOAD_MAX_PATH_BYTES;
    if (is_whole) {
        memcpy(path, recorder.trace_path, n);
        memcpy(path + n, suffix, sizeof suffix);
        (void)unlink(path); /* another recording's */
        *zero_ns_out = (uint64_t)recorder.start_ns;
    }
    leave();
    return is_whole;
}

/* Opened anew each time: what the program does with open files is its own business. */
void ebb__preload_append(const char *path, const char *text, size_t n_bytes) {
    const int saved_errno = errno;
    if (!enter()) { return; }
    const int fd = recorder.is_over ? -1 : open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
    for (ssize_t n = 0; fd >= 0 && n_bytes > 0; text += n, n_bytes -= (size_t)n) {
        n = write(fd, text, n_bytes);
        if (n <= 0) { /* a last line that is no whole one is left out */
            (void)ebb__fail_errno(path, "write");
            give_up();
            break;
        }
    }
    if (fd >= 0) { (void)close(fd); }
    leave();
    errno = saved_errno;
}
