/* SPDX-License-Identifier: Apache-2.0
 *
 * Names of C++ from hostile bytes, into buffers of any size: a text that ends within its buffer, or none; and the same
 * text each time, whatever was read between. The first byte is the buffer's size.
 */
#include "base/demangle.h"

#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* A copy that ends where the bytes do, so that a read after it is seen. */
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
    char *buf = malloc(buf_bytes + 1), first[256];
    if (buf == NULL) { abort(); }
    const bool is_name = ebb__demangle(&demangler, mangled, first, buf_bytes);
    (void)ebb__demangle(&demangler, "_ZN3foo3barIS_S0_EEv", buf, buf_bytes);
    if (ebb__demangle(&demangler, mangled, buf, buf_bytes) != is_name) { abort(); }
    if (is_name && (strlen(buf) >= buf_bytes || strcmp(buf, first) != 0)) { abort(); }
    free(buf);
    free(mangled);
    return 0;
}
