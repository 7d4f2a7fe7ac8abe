/* SPDX-License-Identifier: Apache-2.0
 *
 * Bytes that threads share: a thread that needs some waits until they are there. What a data set's pictures need for
 * decoding differs a thousandfold; so the few large ones wait for each other, and memory is counted once instead of
 * once a thread. A thread takes once and gives back before it takes again, so no one waits for ever.
 */
#include "train/data_priv.h"

#include <pthread.h>

struct ebb_allowance {
    const ebb_mem *mem;
    pthread_mutex_t lock;
    pthread_cond_t given;
    uint64_t total_bytes, free_bytes, peak_bytes;
};

ebb_status ebb__allowance_create(const ebb_mem *mem, uint64_t total_bytes, ebb_allowance **allowance_out) {
    ebb_allowance *allowance = ebb__calloc(mem, 1, sizeof *allowance);
    if (allowance == NULL) { return EBB_E_NO_MEMORY; }
    allowance->mem = ebb__mem_or_default(mem);
    (void)pthread_mutex_init(&allowance->lock, NULL);
    (void)pthread_cond_init(&allowance->given, NULL);
    allowance->total_bytes = allowance->free_bytes = total_bytes;
    *allowance_out = allowance;
    return EBB_OK;
}

void ebb__allowance_destroy(ebb_allowance *allowance) {
    if (allowance == NULL) { return; }
    EBB_ASSERT(allowance->free_bytes == allowance->total_bytes);
    (void)pthread_cond_destroy(&allowance->given);
    (void)pthread_mutex_destroy(&allowance->lock);
    ebb__free(allowance->mem, allowance);
}

uint64_t ebb__allowance_bytes(const ebb_allowance *allowance) {
    return allowance->total_bytes;
}

uint64_t ebb__allowance_peak(ebb_allowance *allowance) {
    (void)pthread_mutex_lock(&allowance->lock);
    const uint64_t peak_bytes = allowance->peak_bytes;
    (void)pthread_mutex_unlock(&allowance->lock);
    return peak_bytes;
}

void ebb__allowance_limit(ebb_allowance *allowance, uint64_t total_bytes) {
    EBB_ASSERT(allowance->free_bytes == allowance->total_bytes);
    if (total_bytes < allowance->total_bytes) { allowance->total_bytes = allowance->free_bytes = total_bytes; }
}

bool ebb__allowance_take(ebb_allowance *allowance, uint64_t n_bytes) {
    if (n_bytes > allowance->total_bytes) { return false; }
    (void)pthread_mutex_lock(&allowance->lock);
    while (n_bytes > allowance->free_bytes) { (void)pthread_cond_wait(&allowance->given, &allowance->lock); }
    allowance->free_bytes -= n_bytes;
    allowance->peak_bytes = ebb_max_u64(allowance->peak_bytes, allowance->total_bytes - allowance->free_bytes);
    (void)pthread_mutex_unlock(&allowance->lock);
    return true;
}

void ebb__allowance_give(ebb_allowance *allowance, uint64_t n_bytes) {
    (void)pthread_mutex_lock(&allowance->lock);
    allowance->free_bytes += n_bytes;
    EBB_ASSERT(allowance->free_bytes <= allowance->total_bytes);
    (void)pthread_cond_broadcast(&allowance->given);
    (void)pthread_mutex_unlock(&allowance->lock);
}
