/* SPDX-License-Identifier: Apache-2.0
 *
 * Which tests start threads. Every test program is linked with -Wl,--wrap=pthread_create and with this file, so its own
 * calls and the library's come here; those of shared libraries, such as OpenMP's, do not. A program that starts a
 * thread and is not in ebb_threaded_tests (cmake/tests.cmake) fails, and so does one that is in the list and starts
 * none. The list is what the thread sanitizer runs, so it has every program that needs it and no other.
 *
 * A test that sets ebb_test_no_threads is refused any more threads.
 */
#include <errno.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <unistd.h>

int __real_pthread_create(pthread_t *thread, const pthread_attr_t *attr, void *(*fn)(void *), void *arg);
int __wrap_pthread_create(pthread_t *thread, const pthread_attr_t *attr, void *(*fn)(void *), void *arg);

static bool has_started;
extern bool ebb_test_no_threads;
bool ebb_test_no_threads;

static void complain(const char *what) {
    printf("not ok - this program %s: change ebb_threaded_tests in cmake/tests.cmake\n", what);
    fflush(stdout);
    _exit(1);
}

int __wrap_pthread_create(pthread_t *thread, const pthread_attr_t *attr, void *(*fn)(void *), void *arg) {
    if (!EBB_STARTS_THREADS) { complain("starts threads and is not listed"); }
    if (ebb_test_no_threads) { return EAGAIN; }
    __atomic_store_n(&has_started, true, __ATOMIC_RELAXED);
    return __real_pthread_create(thread, attr, fn, arg);
}

__attribute__((destructor)) static void check_started(void) {
    if (EBB_STARTS_THREADS && !__atomic_load_n(&has_started, __ATOMIC_RELAXED)) {
        complain("is listed as starting threads and started none");
    }
}
