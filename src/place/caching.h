/* SPDX-License-Identifier: Apache-2.0
 *
 * PyTorch's caching allocator, as far as sizes go: what it takes from the device for a row of requests and frees.
 */
#ifndef EBB_SRC_PLACE_CACHING_H
#define EBB_SRC_PLACE_CACHING_H

#include "base/base.h"

#define EBB_CACHING_N_ROUNDUPS 16u /* sizes below 2 MiB, 4 MiB ... 32 GiB, all others */

typedef struct ebb_caching_settings {
    bool expandable_segments;
    uint64_t max_split_bytes;                        /* max_split_size; 0: none */
    uint32_t roundup_power2[EBB_CACHING_N_ROUNDUPS]; /* divisions; 0: none */
    double gc_threshold;                             /* garbage_collection_threshold; 0: none */
    uint64_t capacity_bytes;                         /* that the process may have; 0: without end */
} ebb_caching_settings;

typedef struct ebb_caching ebb_caching;

ebb_status ebb__caching_create(const ebb_mem *mem, const ebb_caching_settings *settings, ebb_caching **caching_out);
void ebb__caching_destroy(ebb_caching *caching);

/* A block of size_bytes for a stream, any number; free blocks are those of the same stream. Size 0 gets EBB_OK and no
 * bytes. Beyond the capacity it first gives back what it keeps free, then takes more all the same. */
ebb_status ebb__caching_take(ebb_caching *caching, uint64_t size_bytes, uint64_t stream, uint32_t *block_out);
void ebb__caching_give(ebb_caching *caching, uint32_t block);

/* torch.cuda.empty_cache(). */
ebb_status ebb__caching_empty(ebb_caching *caching);

/* What PyTorch gives back by itself before it takes a segment for a request of size_bytes, where all that is known of
 * it is how many bytes went: with garbage_collection_threshold the oldest, until those are freed; else with
 * max_split_size what is enough for the request. With neither it is nothing. */
ebb_status ebb__caching_release(ebb_caching *caching, uint64_t freed_bytes, uint64_t size_bytes, uint64_t stream);

/* Taken from the device now, and at most so far. */
uint64_t ebb__caching_reserved(const ebb_caching *caching, uint64_t *peak_bytes_out);

/* false: where no request is for more than largest_bytes, no block is as large as max_split_bytes, which then changes
 * nothing. */
bool ebb__caching_max_split_matters(const ebb_caching_settings *settings, uint64_t largest_bytes);

struct ebb_segment_request;

/* The rounded size. And what is asked of segments for one that is rounded: pool (0 small, 1 large), segment, rest. */
uint64_t ebb__caching_round(const ebb_caching_settings *settings, uint64_t size_bytes);
void ebb__caching_ask(const ebb_caching_settings *settings, struct ebb_segment_request *request);

#endif
