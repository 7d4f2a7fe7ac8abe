/* SPDX-License-Identifier: Apache-2.0
 *
 * A CUPTI that has no device, for test_record.sh: with its own headers' records it tells, at the last flush, kernels,
 * copies and a fill in another order than that of their times, on a clock that is not the recorder's. One kernel takes
 * from the start to the flush; two overlap on one stream; one has no end. FAKE_CUPTI=fails: it answers with an
 * error. A callback that allocates is said on stdout.
 */
#include <cupti.h>
#include <malloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define EXPORT __attribute__((visibility("default")))
#define SLOT ((size_t)512) /* of a record */
#define N_RECORDS 7

static CUpti_BuffersCallbackRequestFunc request;
static CUpti_BuffersCallbackCompleteFunc complete;
static uint64_t start;

EXPORT CUptiResult cuptiGetVersion(uint32_t *version) {
    *version = 24;
    return CUPTI_SUCCESS;
}

EXPORT CUptiResult cuptiGetTimestamp(uint64_t *ns) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    *ns = (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec + 1000000000000000;
    return CUPTI_SUCCESS;
}

EXPORT CUptiResult cuptiActivityRegisterCallbacks(CUpti_BuffersCallbackRequestFunc requested,
                                                  CUpti_BuffersCallbackCompleteFunc completed) {
    request = requested;
    complete = completed;
    return CUPTI_SUCCESS;
}

EXPORT CUptiResult cuptiActivityEnable(CUpti_ActivityKind kind) {
    const char *how = getenv("FAKE_CUPTI");
    free(malloc(1 << 20)); /* its own, which is none of the program's */
    if (kind == CUPTI_ACTIVITY_KIND_MEMSET) { cuptiGetTimestamp(&start); }
    return how != NULL && strcmp(how, "fails") == 0 ? CUPTI_ERROR_NOT_INITIALIZED : CUPTI_SUCCESS;
}

EXPORT CUptiResult cuptiActivityGetNextRecord(uint8_t *buffer, size_t n_bytes, CUpti_Activity **record) {
    uint8_t *next = *record == NULL ? buffer : (uint8_t *)*record + SLOT;
    if (next == buffer + n_bytes) { return CUPTI_ERROR_MAX_LIMIT_REACHED; }
    *record = (CUpti_Activity *)next;
    return CUPTI_SUCCESS;
}

EXPORT CUptiResult cuptiActivityGetNumDroppedRecords(CUcontext context, uint32_t stream, size_t *n) {
    *n = context == NULL && stream == 0 ? 3 : 0;
    return CUPTI_SUCCESS;
}

/* A name of C++ as templates make them: cut off it cannot be read. */
static const char *long_name(void) {
    static char name[3100] = "_Z3000";
    memset(name + 6, 'b', 3000);
    name[3006] = 'v';
    return name;
}

static void put_kernel(uint8_t *at, const char *name, uint64_t begin, uint64_t end) {
    CUpti_ActivityKernel9 kernel = {.kind = CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL, .deviceId = 1, .streamId = 7};
    kernel.name = name;
    kernel.start = begin;
    kernel.end = end;
    memcpy(at, &kernel, sizeof kernel);
}

static void put_copy(uint8_t *at, uint8_t kind, uint64_t n_bytes, uint64_t begin) {
    CUpti_ActivityMemcpy5 copy = {.kind = CUPTI_ACTIVITY_KIND_MEMCPY, .copyKind = kind, .deviceId = 1, .streamId = 8};
    copy.bytes = n_bytes;
    copy.start = begin;
    copy.end = begin + 2000;
    memcpy(at, &copy, sizeof copy);
}

static void put_fill(uint8_t *at, uint64_t begin) {
    CUpti_ActivityMemset4 fill = {.kind = CUPTI_ACTIVITY_KIND_MEMSET, .deviceId = 1, .streamId = 7, .bytes = 64};
    fill.start = begin;
    fill.end = begin + 500;
    memcpy(at, &fill, sizeof fill);
}

EXPORT CUptiResult cuptiActivityFlushAll(uint32_t flags) {
    uint8_t *buffer = NULL;
    size_t n_bytes = 0, n_records = 0, before = mallinfo2().uordblks;
    uint64_t now = 0;
    request(&buffer, &n_bytes, &n_records);
    if (buffer == NULL || n_bytes < N_RECORDS * SLOT || flags == 0) { return CUPTI_ERROR_INVALID_PARAMETER; }
    cuptiGetTimestamp(&now);
    put_fill(buffer, start + 7000);
    put_kernel(buffer + SLOT, "long one", start + 100, now);
    put_kernel(buffer + 2 * SLOT, "unfinished", 0, 0);
    put_copy(buffer + 3 * SLOT, CUPTI_ACTIVITY_MEMCPY_KIND_DTOH, 100, start + 8000);
    put_kernel(buffer + 4 * SLOT, long_name(), start + 3000, start + 6000);
    put_copy(buffer + 5 * SLOT, CUPTI_ACTIVITY_MEMCPY_KIND_HTOD, 4096, start + 2000);
    put_kernel(buffer + 6 * SLOT, "_Z5alphaPf", start + 1000, start + 3000);
    complete(NULL, 0, buffer, n_bytes, N_RECORDS * SLOT);
    if (mallinfo2().uordblks != before) { puts("a callback allocates"); }
    return CUPTI_SUCCESS;
}
