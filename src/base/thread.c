/* SPDX-License-Identifier: Apache-2.0
 *
 * Threads of the library's own: see thread.h.
 */
#include "base/thread.h"

#include <signal.h>
#include <stdbool.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#define NICE 10 /* against 0, Linux gives about a tenth */

int ebb__thread_start(void *(*fn)(void *), void *arg, pthread_t *thread_out) {
    sigset_t all, before;
    sigfillset(&all);
    (void)pthread_sigmask(SIG_SETMASK, &all, &before); /* a thread begins with its maker's mask */
    int error = pthread_create(thread_out, NULL, fn, arg);
    (void)pthread_sigmask(SIG_SETMASK, &before, NULL);
    return error;
}

void ebb__thread_stand_back(void) {
    (void)setpriority(PRIO_PROCESS, (id_t)syscall(SYS_gettid), NICE); /* Linux: of this thread alone */
}

typedef struct sharer {
    void (*fn)(void *ctx, uint32_t i);
    void *ctx;
    uint32_t first, by, n;
    bool is_thread;
    pthread_t thread;
} sharer;

static void *do_share(void *arg) {
    const sharer *me = arg;
    for (uint32_t i = me->first; i < me->n; i += me->by) { me->fn(me->ctx, i); }
    return NULL;
}

void ebb__thread_share(uint32_t n_threads, uint32_t n, void (*fn)(void *ctx, uint32_t i), void *ctx) {
    sharer sharers[EBB_MAX_SHARERS];
    uint32_t by = n_threads < n ? n_threads : n;
    by = by < 1 ? 1 : by > EBB_MAX_SHARERS ? EBB_MAX_SHARERS : by;
    for (uint32_t i = 0; i < by; i++) {
        sharers[i] = (sharer){.fn = fn, .ctx = ctx, .first = i, .by = by, .n = n};
        sharers[i].is_thread = i > 0 && ebb__thread_start(do_share, &sharers[i], &sharers[i].thread) == 0;
    }
    for (uint32_t i = 0; i < by; i++) {
        if (!sharers[i].is_thread) { (void)do_share(&sharers[i]); }
    }
    for (uint32_t i = 0; i < by; i++) {
        if (sharers[i].is_thread) { (void)pthread_join(sharers[i].thread, NULL); }
    }
}
