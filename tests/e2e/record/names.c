/* SPDX-License-Identifier: Apache-2.0
 *
 * A program whose callers have names in different places: a static function, one that the compiler puts into its
 * caller, one that is exported, and those of a library that is stripped. The lines that the test looks for are marked.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define APART __attribute__((noinline))

#ifdef LIBRARY

static APART void *reach(size_t n_bytes) {
    char *p = malloc(n_bytes);
    if (p != NULL) { p[0] = 1; }
    return p;
}

void *library_take(size_t n_bytes);
void *library_take(size_t n_bytes) {
    char *p = reach(n_bytes);
    if (p != NULL) { p[1] = 1; }
    return p;
}

#else

void *library_take(size_t n_bytes);

static inline __attribute__((always_inline)) void *take(size_t n_bytes) {
    char *p = malloc(n_bytes); /* LINE take */
    if (p != NULL) { p[0] = 1; }
    return p;
}

static APART void *make_batch(size_t n_bytes) {
    char *p = take(n_bytes); /* LINE make_batch */
    if (p != NULL) { p[1] = 1; }
    return p;
}

void *train_step(size_t n_bytes);
APART void *train_step(size_t n_bytes) {
    char *p = make_batch(n_bytes); /* LINE train_step */
    if (p != NULL) { p[2] = 1; }
    return p;
}

int main(int argc, char **argv) {
    char *a = train_step((size_t)200 << 10);
    char *b = library_take((size_t)300 << 10); /* LINE main */
    if (a == NULL || b == NULL) { return 1; }
    a[3] = b[3] = 1;
    if (argc > 2) { /* change a file that this was loaded from */
        char command[256];
        snprintf(command, sizeof command, argv[1], argv[2], argv[2], argv[2]);
        if (system(command) != 0) { return 1; }
    }
    free(a);
    free(b);
    return 0;
}

#endif
