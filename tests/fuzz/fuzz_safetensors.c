/* SPDX-License-Identifier: Apache-2.0
 *
 * Safetensors from hostile bytes: opening, and reading every tensor that opening let through.
 */
#include "train/safetensors.h"

#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void read_all(const ebb_safetensors *file) {
    for (size_t i = 0; i < file->tensors.n; i++) {
        const ebb_st_tensor *tensor = &file->tensors.data[i];
        if (ebb__safetensors_find(file, tensor->name) != tensor) { abort(); }
        uint64_t n = ebb_min_u64(tensor->n_elements, 3000);
        float floats[3000];
        int32_t whole[3000];
        (void)ebb__safetensors_read_f32(file, tensor, tensor->n_elements - n, n, floats);
        (void)ebb__safetensors_read_s32(file, tensor, 0, n, whole);
    }
    (void)ebb__safetensors_metadata(file, "format");
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    int fd = memfd_create("fuzz", MFD_CLOEXEC);
    if (fd < 0) { return 0; }
    char path[64];
    (void)snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    ebb_safetensors *file = NULL;
    if (write(fd, data, size) == (ssize_t)size && ebb__safetensors_open(NULL, path, &file) == EBB_OK) {
        read_all(file);
        ebb__safetensors_close(file);
    }
    (void)close(fd);
    return 0;
}
