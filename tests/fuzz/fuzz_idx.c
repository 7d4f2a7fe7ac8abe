/* SPDX-License-Identifier: Apache-2.0
 *
 * Idx files from hostile bytes. The first byte says how many images were read before labels are, 0 that these are
 * images.
 */
#include "base/byte_stream.h"
#include "train/data_priv.h"

#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    ebb_memory_source *source = NULL;
    if (size == 0 || ebb__memory_source_create(&ebb__source_mnist, NULL, &source) != EBB_OK) { return 0; }
    ebb_stream stream = ebb__stream_memory("fuzz", data + 1, size - 1);
    source->base.n_images = data[0];
    if (data[0] > 0) {
        (void)ebb__idx_read_labels(&stream, source);
    } else if (ebb__idx_read_images(&stream, source) == EBB_OK) {
        uint64_t n = source->base.n_images * (uint64_t)source->height * (uint64_t)source->width;
        if (n + 17 != size) { abort(); } /* all of it, and nothing else */
    }
    ebb__memory_source_close(&source->base);
    return 0;
}
