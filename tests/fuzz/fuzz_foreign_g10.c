/* SPDX-License-Identifier: Apache-2.0
 *
 * Kernel traces of G10 from hostile bytes.
 */
#include "fuzz/foreign_fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    return fuzz_foreign("g10", data, size);
}
