/* SPDX-License-Identifier: Apache-2.0
 *
 * CIFAR files from hostile bytes. The first byte says which of the two kinds.
 */
#include "base/byte_stream.h"
#include "train/data_priv.h"

#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    ebb_memory_source *source = NULL;
    if (size == 0 || ebb__memory_source_create(&ebb__source_cifar10, NULL, &source) != EBB_OK) { return 0; }
    ebb_stream stream = ebb__stream_memory("fuzz", data + 1, size - 1);
    const size_t n_label_bytes = 1 + data[0] % 2;
    if (ebb__cifar_read(&stream, n_label_bytes, source) == EBB_OK) {
        if (source->base.n_images * (3072 + n_label_bytes) + 1 != size) { abort(); }
        const ebb_data_options options = EBB_DATA_OPTIONS_INIT;
        (void)ebb__memory_source_finish(source, &options, 10, "fuzz");
    }
    ebb__memory_source_close(&source->base);
    return 0;
}
