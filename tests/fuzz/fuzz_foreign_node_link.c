/* SPDX-License-Identifier: Apache-2.0
 *
 * Node-link graphs from hostile bytes.
 */
#include "fuzz/foreign_fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    return fuzz_foreign("node-link", data, size);
}
