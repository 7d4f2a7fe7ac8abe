/* SPDX-License-Identifier: Apache-2.0
 *
 * Finding the iteration in a pool's requests.
 *
 * Each request has a signature: its size, and a sum over the ages of what was freed since the request before, which
 * does not depend on the order of those frees. The requests are periodic if the sequence, read backward, has a long
 * prefix in common with itself moved by a period; the lengths of all such prefixes are found in linear time (the Z
 * function; Gusfield, 'Algorithms on Strings, Trees, and Sequences', 1997, section 1.4). The least move that repeats at
 * least half of all records is the iteration: inner repetition, as of equal layers, is shorter than half, and the
 * beginning, which is not repeated, becomes so as the records grow. They are looked at whenever they have grown by
 * half, so that the cost a request is constant. Where a run of equal layers is longer than all records, it is taken for
 * the iteration; that plan does not hold, and each time one did not, the first look comes twice as late.
 */
#include "pool/pool_priv.h"

#define FIRST_CHECK ((uint64_t)256)
#define MAX_DOUBLINGS 12u
#define MAX_RECORDS ((uint64_t)1 << 24) /* then all begins anew */
#define MAX_WAITS 8u

void ebb__pool_learner_reset(ebb_pool_learner *learner) {
    learner->first += learner->records.n;
    learner->records.n = 0;
    learner->next_check = FIRST_CHECK << ebb_min_u64(learner->n_failed, MAX_DOUBLINGS);
    learner->freed = 0;
    learner->n_waits = 0;
}

static uint64_t mix(uint64_t x) {
    x = (x ^ x >> 31) * 0x9e3779b97f4a7c15u;
    return x ^ x >> 29;
}

ebb_status ebb__pool_learner_take(ebb_pool_learner *learner, const ebb_mem *mem, uint64_t n, uint64_t *number_out) {
    if (learner->records.n == MAX_RECORDS) { ebb__pool_learner_reset(learner); }
    const ebb_pool_record record = {.n = n, .freed = learner->freed};
    EBB_ASSERT(n > 0 && learner->records.n < MAX_RECORDS);
    EBB_TRY(EBB_PUSH(mem, &learner->records, record));
    learner->freed = 0;
    *number_out = learner->first + learner->records.n - 1;
    return EBB_OK;
}

void ebb__pool_learner_give(ebb_pool_learner *learner, uint64_t number) {
    if (number < learner->first) { return; }
    const uint64_t next = learner->first + learner->records.n;
    EBB_ASSERT(number < next && learner->records.data[number - learner->first].death == 0);
    learner->records.data[number - learner->first].death = next;
    learner->freed += mix(next - number);
}

bool ebb__pool_learner_is_due(const ebb_pool_learner *learner) {
    return learner->records.n >= learner->next_check;
}

static uint64_t signature(const ebb_pool_learner *learner, size_t back) {
    const ebb_pool_record *record = &learner->records.data[learner->records.n - 1 - back];
    return mix(mix(record->n)) + record->freed;
}

/* same[p]: how many of the last records equal those p before them. */
static void find_repeats(const ebb_pool_learner *learner, size_t n, uint32_t *same) {
    size_t left = 0, right = 0; /* the last records [left, right), counted backward, are known to repeat */
    for (size_t p = 1; p < n; p++) {
        size_t k = p < right ? ebb_min_u64(right - p, same[p - left]) : 0;
        while (p + k < n && signature(learner, k) == signature(learner, p + k)) { k++; }
        same[p] = (uint32_t)k;
        EBB_ASSERT(k <= n - p && left <= p);
        if (p + k > right) {
            left = p;
            right = p + k;
        }
    }
}

ebb_status ebb__pool_learner_find(ebb_pool_learner *learner, const ebb_mem *mem, size_t *length_out) {
    const size_t n = learner->records.n;
    EBB_ASSERT(n <= MAX_RECORDS);
    learner->next_check = n + n / 2 + 1;
    uint32_t *same = ebb__alloc(mem, n, sizeof *same);
    if (same == NULL) { return EBB_E_NO_MEMORY; }
    find_repeats(learner, n, same);
    *length_out = 0;
    for (size_t p = n / 2; p > 0; p--) {
        if (same[p] >= n - n / 2) { *length_out = p; }
    }
    ebb__free(mem, same);
    return EBB_OK;
}

void ebb__pool_learner_get(const ebb_pool_learner *learner, size_t length, ebb_pool_planned *requests) {
    EBB_ASSERT(2 * length <= learner->records.n);
    const size_t first = learner->records.n - 2 * length;
    for (size_t i = 0; i < length; i++) {
        const ebb_pool_record *record = &learner->records.data[first + i];
        const uint64_t number = learner->first + first + i;
        requests[i] = (ebb_pool_planned){.n = record->n, .span = record->death > 0 ? record->death - number : 0};
    }
}

ebb_status ebb__pool_learner_wait(ebb_pool_learner *learner, const ebb_mem *mem, const ebb_pool_planned *requests,
                                  size_t length) {
    if (learner->n_waits++ >= MAX_WAITS) { return EBB_OK; }
    uint64_t *change = ebb__calloc(mem, length, sizeof *change); /* before each request, modulo 2^64 */
    if (change == NULL) { return EBB_E_NO_MEMORY; }
    uint64_t live = 0, least = UINT64_MAX;
    size_t calmest = 0;
    for (size_t i = 0; i < length; i++) {
        if (requests[i].span == 0 || requests[i].span > length) { continue; }
        change[(i + 1) % length] += requests[i].n;
        change[(i + requests[i].span) % length] -= requests[i].n;
        if (i + requests[i].span >= length && i + 1 < length) { live += requests[i].n; }
    }
    for (size_t i = 0; i < length; i++) {
        live += change[i];
        if (live < least) {
            least = live;
            calmest = i;
        }
    }
    ebb__free(mem, change);
    learner->next_check = learner->records.n + (calmest > 0 ? calmest : length);
    return EBB_OK;
}
