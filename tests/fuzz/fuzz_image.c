/* SPDX-License-Identifier: Apache-2.0
 *
 * Pictures from hostile bytes, on the way that a training picture takes: the libraries, crop and resampling. The
 * folder of pictures has one, a link to a file in memory that each input fills anew. The last byte says which crop,
 * and whether a PNG's check sums are set right first, without which no change gets past them.
 */
#include "train/data_priv.h"

#include <stdlib.h>
#include <zlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { HEIGHT = 9, WIDTH = 7 };

static ebb_source *source;
static void *scratch;
static int memory_file = -1;
static char dir[] = "/tmp/ebb-fuzz-XXXXXX", class_dir[64], link_path[64];

static void remove_folder(void) {
    ebb_allowance *allowance = source->allowance;
    source->ops->close(source);
    ebb__allowance_destroy(allowance);
    free(scratch);
    (void)unlink(link_path);
    (void)rmdir(class_dir);
    (void)rmdir(dir);
}

static void open_source(void) {
    char target[64];
    ebb_data_options options = EBB_DATA_OPTIONS_INIT;
    options.height = HEIGHT;
    options.width = WIDTH;
    memory_file = memfd_create("fuzz", MFD_CLOEXEC);
    if (memory_file < 0 || mkdtemp(dir) == NULL) { abort(); }
    (void)snprintf(target, sizeof target, "/proc/self/fd/%d", memory_file);
    (void)snprintf(class_dir, sizeof class_dir, "%s/class", dir);
    (void)snprintf(link_path, sizeof link_path, "%s/class/a.jpg", dir);
    if (mkdir(class_dir, 0700) != 0 || symlink(target, link_path) != 0) { abort(); }
    if (ebb__source_images.open(dir, &options, &source) != EBB_OK || source->n_images != 1) { abort(); }
    if (ebb__allowance_create(NULL, EBB_DATA_ALLOWANCE_BYTES, &source->allowance) != EBB_OK) { abort(); }
    scratch = malloc(source->scratch_bytes);
    if (scratch == NULL) { abort(); }
    (void)atexit(remove_folder);
}

static uint32_t load_be(const uint8_t *at) {
    return (uint32_t)at[0] << 24 | (uint32_t)at[1] << 16 | (uint32_t)at[2] << 8 | at[3];
}

/* Chunks after the eight bytes of the signature: length, four letters, content, sum of the latter two. */
static void set_sums(uint8_t *data, size_t size) {
    for (size_t at = 8; size >= 12 && at <= size - 12;) {
        const size_t length = load_be(data + at);
        if (length > size - 12 - at) { return; }
        const uint32_t sum = (uint32_t)crc32(0, data + at + 4, (uInt)length + 4);
        for (size_t i = 0; i < 4; i++) { data[at + 8 + length + i] = (uint8_t)(sum >> (24 - 8 * i)); }
        at += 12 + length;
    }
}

static void put(const uint8_t *data, size_t size, bool is_mended) {
    uint8_t *copy = malloc(size + 1);
    if (copy == NULL) { abort(); }
    if (size > 0) { memcpy(copy, data, size); }
    if (is_mended) { set_sums(copy, size); }
    if (ftruncate(memory_file, 0) != 0 || pwrite(memory_file, copy, size, 0) != (ssize_t)size) { abort(); }
    free(copy);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    float pixels[3 * HEIGHT * WIDTH];
    int32_t label = -1;
    if (source == NULL) { open_source(); }
    const unsigned last = size > 0 ? data[size - 1] : 0;
    put(data, size, last / 2 % 2 == 1 && size > 8 && data[0] == 0x89);
    const ebb_sample sample = {.seed = last, .augment = last % 2 == 1};
    ebb_status status = source->ops->read(source, &sample, scratch, pixels, &label);
    if (status != EBB_OK && status != EBB_E_FORMAT) { abort(); }
    for (size_t i = 0; status == EBB_OK && i < sizeof pixels / sizeof pixels[0]; i++) {
        if (!(pixels[i] > -3 && pixels[i] < 3)) { abort(); }
    }
    return 0;
}
