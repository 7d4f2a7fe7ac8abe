/* SPDX-License-Identifier: Apache-2.0
 *
 * Rows of digits from hostile bytes. The first byte says which split.
 */
#include "base/byte_stream.h"
#include "train/data_priv.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    ebb_memory_source *source = NULL;
    if (size == 0 || ebb__memory_source_create(&ebb__source_digits, NULL, &source) != EBB_OK) { return 0; }
    ebb_stream stream = ebb__stream_memory("fuzz", data + 1, size - 1);
    (void)ebb__digits_read(&stream, data[0] % 2 == 0 ? EBB_SPLIT_TRAIN : EBB_SPLIT_TEST, source);
    ebb__memory_source_close(&source->base);
    return 0;
}
