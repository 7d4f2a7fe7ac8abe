/* SPDX-License-Identifier: Apache-2.0
 *
 * A library that takes memory before the program's main runs, for test_record.sh.
 */
#include <stdlib.h>

static void *memory;

__attribute__((constructor(101))) static void take(void) {
    memory = malloc((size_t)1 << 20);
}

int early_is_there(void) {
    return memory != NULL;
}
