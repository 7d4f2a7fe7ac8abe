/* SPDX-License-Identifier: Apache-2.0
 *
 * Threads of the library's own.
 */
#ifndef EBB_SRC_THREAD_H
#define EBB_SRC_THREAD_H

#include <pthread.h>

/* Begins fn(arg) in a thread that takes no signal: signals are the program's business. An errno code, 0: begun. */
int ebb__thread_start(void *(*fn)(void *), void *arg, pthread_t *thread_out);

#endif
