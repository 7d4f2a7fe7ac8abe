/* SPDX-License-Identifier: Apache-2.0
 *
 * The threads that make a batch. Each takes the next image that no one has and writes it to its own place, so
 * the batch does not depend on how many they are or who is faster. All memory is taken when the loader is
 * made.
 *
 * A failure carries its status and message back. Images are handed out in order, so all before the first that
 * fails are done in any case: keeping the failure of the lowest place makes the message the same each time.
 */
#include "base/thread.h"
#include "train/data_priv.h"

#define CAUSE_BYTES 1024

typedef struct loader_thread {
    ebb_loader *loader;
    pthread_t thread;
    void *scratch;
} loader_thread;

struct ebb_loader {
    const ebb_source *source;
    const ebb_mem *mem;
    pthread_mutex_t lock;
    pthread_cond_t work, done;
    ebb_load_job job;
    uint64_t next, n_done; /* of the job's images */
    uint64_t failed_at;    /* UINT64_MAX: none */
    ebb_status status;
    char cause[CAUSE_BYTES];
    bool stop;
    int32_t n_threads, n_started;
    loader_thread *threads;
    void *scratch;
    size_t scratch_stride;
};

static ebb_status load(const ebb_loader *loader, const ebb_load_job *job, uint64_t place, void *scratch) {
    const ebb_source *source = loader->source;
    const size_t n = (size_t)(source->channels * source->height * source->width);
    ebb_sample sample = job->sample;
    sample.image = job->first + place;
    if (job->shuffle) { sample.image = ebb__data_shuffle(sample.seed, sample.epoch, source->n_images, sample.image); }
    return source->ops->read(source, &sample, scratch, job->images + place * n, job->labels + place);
}

static void *run_thread(void *arg) {
    loader_thread *thread = arg;
    ebb_loader *loader = thread->loader;
    (void)pthread_mutex_lock(&loader->lock);
    for (;;) {
        while (!loader->stop && loader->next == loader->job.n) {
            (void)pthread_cond_wait(&loader->work, &loader->lock);
        }
        if (loader->stop) { break; }
        const uint64_t place = loader->next++;
        const ebb_load_job job = loader->job;
        (void)pthread_mutex_unlock(&loader->lock);
        ebb_status status = load(loader, &job, place, thread->scratch);
        (void)pthread_mutex_lock(&loader->lock);
        if (status != EBB_OK && place < loader->failed_at) {
            loader->failed_at = place;
            loader->status = status;
            (void)snprintf(loader->cause, sizeof loader->cause, "%s", ebb_last_error());
        }
        if (++loader->n_done == loader->job.n) { (void)pthread_cond_broadcast(&loader->done); }
    }
    (void)pthread_mutex_unlock(&loader->lock);
    return NULL;
}

static ebb_status start_threads(ebb_loader *loader) {
    for (int32_t i = 0; i < loader->n_threads; i++) {
        loader_thread *thread = &loader->threads[i];
        thread->loader = loader;
        thread->scratch = (char *)loader->scratch + (size_t)i * loader->scratch_stride;
        int code = ebb__thread_start(run_thread, thread, &thread->thread);
        if (code != 0) { return ebb_fail(EBB_E_NO_MEMORY, "cannot start a decoding thread: %s", strerror(code)); }
        loader->n_started++;
    }
    return EBB_OK;
}

ebb_status ebb__loader_create(const ebb_source *source, int32_t n_threads, ebb_loader **loader_out) {
    ebb_loader *loader = ebb__calloc(source->mem, 1, sizeof *loader);
    if (loader == NULL) { return EBB_E_NO_MEMORY; }
    loader->source = source;
    loader->mem = source->mem;
    loader->n_threads = n_threads;
    loader->failed_at = UINT64_MAX;
    (void)pthread_mutex_init(&loader->lock, NULL);
    (void)pthread_cond_init(&loader->work, NULL);
    (void)pthread_cond_init(&loader->done, NULL);
    loader->scratch_stride = (size_t)ebb_align_up(source->scratch_bytes, 64);
    loader->threads = ebb__calloc(loader->mem, (size_t)n_threads, sizeof *loader->threads);
    loader->scratch = ebb__alloc(loader->mem, (size_t)n_threads, loader->scratch_stride);
    ebb_status status = EBB_E_NO_MEMORY;
    if (loader->threads != NULL && loader->scratch != NULL) { status = start_threads(loader); }
    if (status != EBB_OK) {
        ebb__loader_destroy(loader);
        return status;
    }
    *loader_out = loader;
    return EBB_OK;
}

void ebb__loader_destroy(ebb_loader *loader) {
    if (loader == NULL) { return; }
    (void)pthread_mutex_lock(&loader->lock);
    loader->stop = true;
    (void)pthread_cond_broadcast(&loader->work);
    (void)pthread_mutex_unlock(&loader->lock);
    for (int32_t i = 0; i < loader->n_started; i++) { (void)pthread_join(loader->threads[i].thread, NULL); }
    (void)pthread_cond_destroy(&loader->done);
    (void)pthread_cond_destroy(&loader->work);
    (void)pthread_mutex_destroy(&loader->lock);
    ebb__free(loader->mem, loader->scratch);
    ebb__free(loader->mem, loader->threads);
    ebb__free(loader->mem, loader);
}

uint64_t ebb__loader_bytes(const ebb_loader *loader) {
    return (uint64_t)loader->n_threads * (loader->scratch_stride + loader->source->library_bytes);
}

void ebb__loader_start(ebb_loader *loader, const ebb_load_job *job) {
    (void)pthread_mutex_lock(&loader->lock);
    EBB_ASSERT(loader->n_done == loader->job.n);
    loader->job = *job;
    loader->next = loader->n_done = 0;
    loader->failed_at = UINT64_MAX;
    loader->status = EBB_OK;
    (void)pthread_cond_broadcast(&loader->work);
    (void)pthread_mutex_unlock(&loader->lock);
}

ebb_status ebb__loader_wait(ebb_loader *loader) {
    (void)pthread_mutex_lock(&loader->lock);
    while (loader->n_done < loader->job.n) { (void)pthread_cond_wait(&loader->done, &loader->lock); }
    ebb_status status = loader->status;
    (void)pthread_mutex_unlock(&loader->lock);
    return status == EBB_OK ? EBB_OK : ebb__fail_adopt(status, loader->cause);
}
