/* SPDX-License-Identifier: Apache-2.0
 *
 * Joint graphs of PyTorch's partitioner from hostile bytes.
 */
#include "fuzz/foreign_fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    return fuzz_foreign("min-cut", data, size);
}
