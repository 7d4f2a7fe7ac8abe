/* SPDX-License-Identifier: Apache-2.0
 *
 * Threads of the library's own.
 */
#ifndef EBB_SRC_THREAD_H
#define EBB_SRC_THREAD_H

#include <pthread.h>
#include <stdint.h>

#define EBB_MAX_SHARERS 8u

/* Begins fn(arg) in a thread that takes no signal: signals are the program's business. An errno code, 0: begun. */
int ebb__thread_start(void *(*fn)(void *), void *arg, pthread_t *thread_out);

/* Has the calling thread run where others leave a processor idle, and a tenth of the time where they do not. */
void ebb__thread_stand_back(void);

/* Calls fn(ctx, i) for each i below n, on n_threads threads (at most EBB_MAX_SHARERS), of which the caller's is one.
 * Each thread takes every n_threads-th. The caller does the share of threads that cannot be started. */
void ebb__thread_share(uint32_t n_threads, uint32_t n, void (*fn)(void *ctx, uint32_t i), void *ctx);

#endif
