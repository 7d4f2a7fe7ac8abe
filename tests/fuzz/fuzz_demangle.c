/* SPDX-License-Identifier: Apache-2.0
 *
 * Names of C++ from hostile bytes, into buffers of any size: a text that ends within its buffer, or none. What a large
 * buffer gets, a small one gets the beginning of. The first byte is the small one's size.
 */
#include "base/demangle.h"

#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* A copy that ends where the bytes do, so that a read behind it is seen. */
static char *copy_text(const uint8_t *data, size_t size) {
    char *text = malloc(size + 1);
    if (text == NULL) { abort(); }
    if (size > 0) { memcpy(text, data, size); }
    text[size] = '\0';
    return text;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static ebb_demangler demangler;
    if (size == 0) { return 0; }
    char *mangled = copy_text(data + 1, size - 1);
    const size_t buf_bytes = data[0];
    char *buf = malloc(buf_bytes + 1), whole[4096];
    if (buf == NULL) { abort(); }
    const bool is_name = ebb__demangle(&demangler, mangled, whole, sizeof whole);
    const bool is_begin = ebb__demangle(&demangler, mangled, buf, buf_bytes);
    if (is_begin && strlen(buf) >= buf_bytes) { abort(); }
    if (is_name && is_begin != (buf_bytes > 0)) { abort(); }
    if (is_name && is_begin && strncmp(whole, buf, strlen(buf)) != 0) { abort(); }
    free(buf);
    free(mangled);
    return 0;
}
