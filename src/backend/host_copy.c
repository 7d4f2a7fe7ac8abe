/* SPDX-License-Identifier: Apache-2.0
 *
 * A copy of a tensor to a lower tier or back is larger than what caches hold, or is used long after. memcpy writes
 * through the caches unless a copy is larger than most tensors: each line is read before it is overwritten, and pushes
 * out a line that a kernel at work still needs. Streaming stores do neither. On two cores of an EPYC they copy 1 to 64
 * MiB 1.7 times as fast. SSE2 has them, and every x86-64 processor has SSE2; elsewhere this is memcpy.
 */
#include "backend/host_copy.h"
#include "base/thread.h"

#define MOST_THREADS 4u                    /* few are as fast as the memory */
#define LEAST_SHARED ((uint64_t)512 << 10) /* less is copied before another thread is awake */
#define PAGE_BYTES ((uint64_t)4 << 10)
#define LEAST_BYTES ((size_t)256 << 10) /* past the caches: less may well be read soon */

#if defined(__SSE2__)

#include <emmintrin.h>

#define LINE_BYTES ((size_t)64)

static void copy_lines(char *dst, const char *src, size_t n_lines) {
    for (size_t i = 0; i < n_lines; i++, dst += LINE_BYTES, src += LINE_BYTES) {
        const __m128i *from = (const __m128i *)(const void *)src;
        __m128i *to = (__m128i *)(void *)dst;
        const __m128i a = _mm_loadu_si128(from), b = _mm_loadu_si128(from + 1);
        const __m128i c = _mm_loadu_si128(from + 2), d = _mm_loadu_si128(from + 3);
        _mm_stream_si128(to, a);
        _mm_stream_si128(to + 1, b);
        _mm_stream_si128(to + 2, c);
        _mm_stream_si128(to + 3, d);
    }
    _mm_sfence(); /* before anyone is told that the copy is done */
}

static void stream_bytes(void *dst, const void *src, size_t size_bytes) {
    const size_t to_line = (LINE_BYTES - (uintptr_t)dst % LINE_BYTES) % LINE_BYTES;
    const size_t head_bytes = to_line < size_bytes ? to_line : size_bytes;
    const size_t n_lines = (size_bytes - head_bytes) / LINE_BYTES, done_bytes = head_bytes + n_lines * LINE_BYTES;
    memcpy(dst, src, head_bytes);
    copy_lines((char *)dst + head_bytes, (const char *)src + head_bytes, n_lines);
    memcpy((char *)dst + done_bytes, (const char *)src + done_bytes, size_bytes - done_bytes);
}

#else

static void stream_bytes(void *dst, const void *src, size_t size_bytes) {
    memcpy(dst, src, size_bytes);
}

#endif

void ebb__copy_uncached(void *dst, const void *src, size_t size_bytes) {
    if (size_bytes < LEAST_BYTES) {
        memcpy(dst, src, size_bytes);
    } else {
        stream_bytes(dst, src, size_bytes);
    }
}

/* ---- a crew -------------------------------------------------------------------------------------- */

typedef struct helper {
    ebb_copy_crew *crew;
    uint32_t idx; /* of its part; 0 is that of the thread that asks */
    pthread_t thread;
} helper;

/* The lock guards the fields below it. But helpers read dst, src and the sizes without the lock: these do not change
 * while anyone copies. */
struct ebb_copy_crew {
    const ebb_mem *mem;
    helper helpers[MOST_THREADS - 1];
    uint32_t n_helpers;
    pthread_mutex_t lock;
    pthread_cond_t asked, done;
    char *dst;
    const char *src;
    uint64_t size_bytes, part_bytes, n_asked;
    uint32_t n_busy;
    bool stopping;
};

static void copy_part(const ebb_copy_crew *crew, uint32_t idx) {
    const uint64_t begin = ebb_min_u64(idx * crew->part_bytes, crew->size_bytes);
    const uint64_t bytes = ebb_min_u64(crew->part_bytes, crew->size_bytes - begin);
    stream_bytes(crew->dst + begin, crew->src + begin, (size_t)bytes);
}

static void *help(void *arg) {
    const helper *me = arg;
    ebb_copy_crew *crew = me->crew;
    pthread_mutex_lock(&crew->lock);
    for (uint64_t n_seen = 0;; n_seen++) {
        while (crew->n_asked == n_seen && !crew->stopping) { pthread_cond_wait(&crew->asked, &crew->lock); }
        if (crew->n_asked == n_seen) { break; }
        pthread_mutex_unlock(&crew->lock);
        copy_part(crew, me->idx);
        pthread_mutex_lock(&crew->lock);
        if (--crew->n_busy == 0) { pthread_cond_signal(&crew->done); }
    }
    pthread_mutex_unlock(&crew->lock);
    return NULL;
}

ebb_status ebb__copy_crew_create(const ebb_mem *mem, uint32_t n_threads, ebb_copy_crew **crew_out) {
    ebb_copy_crew *crew = ebb__calloc(mem, 1, sizeof *crew);
    if (crew == NULL) { return EBB_E_NO_MEMORY; }
    crew->mem = mem;
    pthread_mutex_init(&crew->lock, NULL);
    pthread_cond_init(&crew->asked, NULL);
    pthread_cond_init(&crew->done, NULL);
    while (crew->n_helpers + 1 < n_threads && crew->n_helpers < MOST_THREADS - 1) {
        helper *h = &crew->helpers[crew->n_helpers];
        *h = (helper){.crew = crew, .idx = crew->n_helpers + 1};
        if (ebb__thread_start(help, h, &h->thread) != 0) { break; }
        crew->n_helpers++;
    }
    *crew_out = crew;
    return EBB_OK;
}

void ebb__copy_crew_destroy(ebb_copy_crew *crew) {
    if (crew == NULL) { return; }
    pthread_mutex_lock(&crew->lock);
    crew->stopping = true;
    pthread_cond_broadcast(&crew->asked);
    pthread_mutex_unlock(&crew->lock);
    for (uint32_t i = 0; i < crew->n_helpers; i++) { pthread_join(crew->helpers[i].thread, NULL); }
    pthread_cond_destroy(&crew->done);
    pthread_cond_destroy(&crew->asked);
    pthread_mutex_destroy(&crew->lock);
    ebb__free(crew->mem, crew);
}

void ebb__copy_by_crew(ebb_copy_crew *crew, void *dst, const void *src, size_t size_bytes) {
    if (crew == NULL || crew->n_helpers == 0 || size_bytes < LEAST_SHARED) {
        ebb__copy_uncached(dst, src, size_bytes);
        return;
    }
    pthread_mutex_lock(&crew->lock);
    crew->dst = dst;
    crew->src = src;
    crew->size_bytes = size_bytes;
    crew->part_bytes = ebb_align_up(size_bytes / (crew->n_helpers + 1) + 1, PAGE_BYTES);
    crew->n_busy = crew->n_helpers;
    crew->n_asked++;
    pthread_cond_broadcast(&crew->asked);
    pthread_mutex_unlock(&crew->lock);
    copy_part(crew, 0);
    pthread_mutex_lock(&crew->lock);
    while (crew->n_busy > 0) { pthread_cond_wait(&crew->done, &crew->lock); }
    pthread_mutex_unlock(&crew->lock);
}
