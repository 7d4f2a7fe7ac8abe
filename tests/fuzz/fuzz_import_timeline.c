/* SPDX-License-Identifier: Apache-2.0
 *
 * Memory timelines from hostile bytes.
 */
#include "fuzz/import_fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    return fuzz_import("timeline", data, size);
}
