/* SPDX-License-Identifier: Apache-2.0
 *
 * Kernels, copies and fills of the program, told by CUPTI's activity interface some time after they are done, while a
 * trace's times never go back. So they go as lines into a file beside the trace, OUT.steps, and `ebb record` puts
 * them into it when the command has ended (ebb_trace_add_late_steps).
 *
 * CUPTI calls back on threads of its own or of the program, with locks of its own held: nothing here allocates (its
 * buffers are mapped by the kernel itself and used again), and the recorder's lock, which is taken to write, is never
 * held where CUPTI is called. What CUPTI's start and its last flush take is not the program's, and goes unrecorded.
 *
 * The members of CUPTI's records that are read here lie at the same places in all versions from CUDA 11 on.
 */
#include "preload/cuda_activity.h"

#include "preload/preload.h"
#include "trace/trace.h"

#include <stdatomic.h>
#include <stdio.h>

#define NOTE "kernels"

#ifndef EBB_HAVE_CUPTI

void ebb__preload_activity_start(void) {
    static atomic_bool is_started;
    if (!atomic_exchange(&is_started, true)) { ebb__preload_note(NOTE, "none: built without CUPTI's headers"); }
}

#else

#include <cupti.h>
#include <dlfcn.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define LEAST_VERSION 13u /* CUDA 11's */
#define BUFFER_BYTES ((size_t)256 * 1024)
#define TEXT_BYTES ((size_t)32 * 1024)
#define MAX_MANGLED_BYTES (16 * 1024) /* of a name; cut off it could not be read */
#define N_NAMES 4096u

static struct {
    pthread_mutex_t lock; /* of all below */
    pid_t pid;            /* whose: a child of fork has no CUPTI */
    char path[PRELOAD_MAX_PATH_BYTES];
    uint8_t *free_buffers;    /* each begins with the next one's address */
    uint64_t name[N_NAMES];   /* by their hash: the latest name of that slot ... */
    uint32_t number[N_NAMES]; /* ... and its number in the file */
    uint32_t n_names;
    size_t n_text;
    char text[TEXT_BYTES];
} activity = {.lock = PTHREAD_MUTEX_INITIALIZER};

static struct {
    CUptiResult (*get_version)(uint32_t *version);
    CUptiResult (*get_timestamp)(uint64_t *ns);
    CUptiResult (*register_callbacks)(CUpti_BuffersCallbackRequestFunc request, CUpti_BuffersCallbackCompleteFunc done);
    CUptiResult (*enable)(CUpti_ActivityKind kind);
    CUptiResult (*flush_all)(uint32_t flags);
    CUptiResult (*next_record)(uint8_t *buffer, size_t n_bytes, CUpti_Activity **record);
    CUptiResult (*n_dropped)(CUcontext context, uint32_t stream, size_t *n);
} cupti;

/* ---- the file ----------------------------------------------------------------------------------- */

static void hand_on(void) {
    if (activity.n_text > 0) { ebb__preload_append(activity.path, activity.text, activity.n_text); }
    activity.n_text = 0;
}

__attribute__((format(printf, 1, 2))) static void put(const char *format, ...) {
    if (TEXT_BYTES - activity.n_text < MAX_MANGLED_BYTES + 64) { hand_on(); }
    va_list args;
    va_start(args, format);
    const int n = vsnprintf(activity.text + activity.n_text, TEXT_BYTES - activity.n_text, format, args);
    va_end(args);
    EBB_ASSERT(n > 0 && (size_t)n < TEXT_BYTES - activity.n_text);
    activity.n_text += (size_t)n;
}

/* The number of a step's name, which is told once; again where others had its slot meanwhile. */
static uint32_t number_name(const char *op, const char *name) {
    const uint64_t hash = ebb__hash(ebb__hash(EBB_HASH_INIT, op, strlen(op)), name, strlen(name)) | 1;
    const size_t slot = (size_t)(hash >> 8) % N_NAMES;
    if (activity.name[slot] != hash) {
        put("n %s %.*s\n", op, MAX_MANGLED_BYTES, name);
        activity.name[slot] = hash;
        activity.number[slot] = activity.n_names++;
    }
    return activity.number[slot];
}

/* ---- records ------------------------------------------------------------------------------------ */

typedef struct step {
    const char *op, *name;
    uint64_t start, end; /* CUPTI's times; 0: not known */
    uint32_t device, stream;
} step;

/* The difference from CUPTI's clock to the recorder's. */
static uint64_t clock_offset(void) {
    struct timespec now;
    uint64_t ns = 0;
    (void)clock_gettime(CLOCK_MONOTONIC, &now);
    if (cupti.get_timestamp(&ns) != CUPTI_SUCCESS) { return 0; }
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec - ns;
}

static void put_step(const step *s, uint64_t offset) {
    if (s->start == 0 || s->end < s->start) { return; } /* the end of the program came before its own */
    const uint32_t name = number_name(s->op, s->name);
    put("e %u %llu %llu %u %u\n", name, (unsigned long long)(s->start + offset), (unsigned long long)(s->end + offset),
        s->device, s->stream);
}

static const char *direction_of(uint8_t kind) {
    switch (kind) {
    case CUPTI_ACTIVITY_MEMCPY_KIND_HTOD:
    case CUPTI_ACTIVITY_MEMCPY_KIND_HTOA: return "in";
    case CUPTI_ACTIVITY_MEMCPY_KIND_DTOH:
    case CUPTI_ACTIVITY_MEMCPY_KIND_ATOH: return "out";
    case CUPTI_ACTIVITY_MEMCPY_KIND_HTOH: return "on the host";
    case CUPTI_ACTIVITY_MEMCPY_KIND_PTOP: return "between devices";
    default: return "on the device";
    }
}

static void tell_record(const CUpti_Activity *record, uint64_t offset) {
    char text[64];
    step s = {.name = text};
    if (record->kind == CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL || record->kind == CUPTI_ACTIVITY_KIND_KERNEL) {
        const CUpti_ActivityKernel4 *k = (const CUpti_ActivityKernel4 *)(const void *)record;
        s = (step){"kernel", k->name != NULL ? k->name : "?", k->start, k->end, k->deviceId, k->streamId};
    } else if (record->kind == CUPTI_ACTIVITY_KIND_MEMCPY) {
        const CUpti_ActivityMemcpy3 *c = (const CUpti_ActivityMemcpy3 *)(const void *)record;
        (void)snprintf(text, sizeof text, "copy %s, %llu bytes", direction_of(c->copyKind),
                       (unsigned long long)c->bytes);
        s = (step){"copy", text, c->start, c->end, c->deviceId, c->streamId};
    } else if (record->kind == CUPTI_ACTIVITY_KIND_MEMSET) {
        const CUpti_ActivityMemset2 *f = (const CUpti_ActivityMemset2 *)(const void *)record;
        (void)snprintf(text, sizeof text, "fill, %llu bytes", (unsigned long long)f->bytes);
        s = (step){"fill", text, f->start, f->end, f->deviceId, f->streamId};
    } else {
        return;
    }
    put_step(&s, offset);
}

/* ---- CUPTI's callbacks -------------------------------------------------------------------------- */

static uint8_t *take_buffer(void) {
    uint8_t *buffer = activity.free_buffers;
    if (buffer != NULL) {
        memcpy(&activity.free_buffers, buffer, sizeof activity.free_buffers);
        return buffer;
    }
    const long at = syscall(SYS_mmap, NULL, BUFFER_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0L);
    return at == -1 ? NULL : (uint8_t *)(intptr_t)at;
}

static void CUPTIAPI request_buffer(uint8_t **buffer, size_t *n_bytes, size_t *n_records_max) {
    (void)pthread_mutex_lock(&activity.lock);
    *buffer = take_buffer();
    (void)pthread_mutex_unlock(&activity.lock);
    *n_bytes = *buffer != NULL ? BUFFER_BYTES : 0;
    *n_records_max = 0; /* as many as it holds */
}

static void CUPTIAPI take_records(CUcontext context, uint32_t stream, uint8_t *buffer, size_t n_bytes, size_t n_used) {
    (void)n_bytes;
    if (buffer == NULL) { return; }
    CUpti_Activity *record = NULL;
    size_t n_dropped = 0;
    const bool is_ours = getpid() == activity.pid;
    const uint64_t offset = clock_offset();
    if (cupti.n_dropped(context, stream, &n_dropped) != CUPTI_SUCCESS) { n_dropped = 0; }
    (void)pthread_mutex_lock(&activity.lock);
    while (is_ours && n_used > 0 && cupti.next_record(buffer, n_used, &record) == CUPTI_SUCCESS) {
        tell_record(record, offset);
    }
    if (is_ours && n_dropped > 0) { put("d %zu\n", n_dropped); }
    hand_on();
    memcpy(buffer, &activity.free_buffers, sizeof activity.free_buffers);
    activity.free_buffers = buffer;
    (void)pthread_mutex_unlock(&activity.lock);
}

/* ---- start and end ------------------------------------------------------------------------------ */

/* The library that the program has already, else the one that the linker finds. */
static bool find(void *library, const char *name, void *function_out) {
    void *found = library != NULL ? ebb__preload_dlsym(library, name) : ebb__preload_in_library("libcupti.so", name);
    memcpy(function_out, &found, sizeof found);
    return found != NULL;
}

static bool find_functions(void *library) {
    return find(library, "cuptiGetVersion", &cupti.get_version) &&
           find(library, "cuptiGetTimestamp", &cupti.get_timestamp) &&
           find(library, "cuptiActivityRegisterCallbacks", &cupti.register_callbacks) &&
           find(library, "cuptiActivityEnable", &cupti.enable) &&
           find(library, "cuptiActivityFlushAll", &cupti.flush_all) &&
           find(library, "cuptiActivityGetNextRecord", &cupti.next_record) &&
           find(library, "cuptiActivityGetNumDroppedRecords", &cupti.n_dropped);
}

static bool find_cupti(void) {
    static const char *const names[] = {"libcupti.so", "libcupti.so.13", "libcupti.so.12",
                                        "/usr/local/cuda/extras/CUPTI/lib64/libcupti.so"};
    if (find_functions(NULL)) { return true; }
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        void *library = dlopen(names[i], RTLD_LAZY | RTLD_LOCAL);
        if (library != NULL && find_functions(library)) { return true; }
    }
    return false;
}

static void flush_at_exit(void) {
    if (getpid() != activity.pid) { return; }
    const bool was = ebb__preload_set_nested(true);
    (void)cupti.flush_all(CUPTI_ACTIVITY_FLAG_FLUSH_FORCED);
    (void)ebb__preload_set_nested(was);
}

static CUptiResult enable_kinds(void) {
    static const CUpti_ActivityKind kinds[] = {CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL, CUPTI_ACTIVITY_KIND_MEMCPY,
                                               CUPTI_ACTIVITY_KIND_MEMSET};
    CUptiResult result = cupti.register_callbacks(request_buffer, take_records);
    for (size_t i = 0; i < sizeof kinds / sizeof kinds[0] && result == CUPTI_SUCCESS; i++) {
        result = cupti.enable(kinds[i]);
    }
    return result;
}

static void start(void) {
    char text[64];
    uint32_t version = 0;
    uint64_t zero_ns = 0;
    if (ebb__preload_no_kernels) {
        ebb__preload_note(NOTE, "none: by --no-kernels");
        return;
    }
    if (!find_cupti()) {
        ebb__preload_note(NOTE, "none: no libcupti.so was found");
        return;
    }
    CUptiResult result = cupti.get_version(&version);
    if (result == CUPTI_SUCCESS && version < LEAST_VERSION) {
        ebb__preload_note(NOTE, "none: CUPTI is older than CUDA 11's");
        return;
    }
    if (!ebb__preload_begin_beside(activity.path, &zero_ns)) { return; }
    activity.pid = getpid();
    activity.n_text = 0;
    put(EBB_TRACE_LATE_STEPS_HEAD "%llu\n", (unsigned long long)zero_ns);
    if (result == CUPTI_SUCCESS) { result = enable_kinds(); }
    (void)snprintf(text, sizeof text, result == CUPTI_SUCCESS ? "CUPTI %u" : "none: CUPTI answers with error %u",
                   result == CUPTI_SUCCESS ? version : (unsigned)result);
    ebb__preload_note(NOTE, text);
    if (result == CUPTI_SUCCESS) { (void)atexit(flush_at_exit); }
}

void ebb__preload_activity_start(void) {
    static atomic_bool is_started;
    if (atomic_load_explicit(&is_started, memory_order_relaxed) || atomic_exchange(&is_started, true)) { return; }
    const bool was = ebb__preload_set_nested(true);
    start();
    (void)ebb__preload_set_nested(was);
}

#endif
