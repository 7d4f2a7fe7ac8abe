/* SPDX-License-Identifier: Apache-2.0
 *
 * Logs of the simulator of Dynamic Tensor Rematerialization from hostile bytes.
 */
#include "fuzz/foreign_fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    return fuzz_foreign("dtr", data, size);
}
