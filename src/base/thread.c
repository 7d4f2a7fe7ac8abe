/* SPDX-License-Identifier: Apache-2.0
 *
 * Threads of the library's own: see thread.h.
 */
#include "base/thread.h"

#include <signal.h>

int ebb__thread_start(void *(*fn)(void *), void *arg, pthread_t *thread_out) {
    sigset_t all, before;
    sigfillset(&all);
    (void)pthread_sigmask(SIG_SETMASK, &all, &before); /* a thread begins with its maker's mask */
    int error = pthread_create(thread_out, NULL, fn, arg);
    (void)pthread_sigmask(SIG_SETMASK, &before, NULL);
    return error;
}
