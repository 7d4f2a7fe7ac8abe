/* SPDX-License-Identifier: Apache-2.0
 *
 * An allocator that a program opens by hand, for test_record.sh: it has a malloc and a free of its own, over one
 * mapping.
 */
#include <stddef.h>
#include <sys/mman.h>

static char *arena, *next;

void *malloc(size_t n) {
    if (arena == NULL) {
        arena = next = mmap(NULL, (size_t)4 << 20, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    }
    next += n;
    return next - n;
}

void free(void *memory) {
    if (memory == arena) {
        munmap(arena, (size_t)4 << 20);
        arena = next = NULL;
    }
}
