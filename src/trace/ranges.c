/* SPDX-License-Identifier: Apache-2.0
 *
 * The ranges of ranges.h: a sorted array. Adding one moves those after it, which for the thousands of segments that
 * a device has is less work than a tree would be; MAX_RANGES keeps hostile input from making more of it.
 */
#include "trace/ranges.h"

#define MAX_RANGES ((size_t)1 << 18) /* 256 GiB in segments of 1 MiB */

void ebb__ranges_init(ebb_ranges *r, const ebb_mem *mem) {
    *r = (ebb_ranges){.mem = mem};
}

void ebb__ranges_fini(ebb_ranges *r) {
    EBB_VEC_FINI(r->mem, &r->ranges);
}

static uint64_t end_of(const ebb_range *range) {
    return range->address + range->size_bytes;
}

static bool is_something(const ebb_range *range) {
    uint64_t end = 0;
    return range->size_bytes > 0 && ebb_add_u64(range->address, range->size_bytes, &end);
}

/* The first range that ends after address. */
static size_t find(const ebb_ranges *r, uint64_t address) {
    size_t first = 0, last = r->ranges.n;
    while (first < last) {
        const size_t middle = first + (last - first) / 2;
        if (end_of(&r->ranges.data[middle]) <= address) {
            first = middle + 1;
        } else {
            last = middle;
        }
    }
    return first;
}

static ebb_status tell(ebb_ranges_fn fn, void *ctx, const ebb_range *range, bool comes) {
    return fn != NULL ? fn(ctx, range, comes) : EBB_OK;
}

/* The range at idx begins where the one before it has ended, or later. */
static bool is_apart(const ebb_ranges *r, size_t idx) {
    return idx == 0 || idx >= r->ranges.n || end_of(&r->ranges.data[idx - 1]) <= r->ranges.data[idx].address;
}

/* Put n ranges in the place of those from first to last. */
static ebb_status replace(ebb_ranges *r, size_t first, size_t last, const ebb_range *with, size_t n) {
    EBB_ASSERT(first <= last && last <= r->ranges.n);
    if (r->ranges.n - (last - first) + n > MAX_RANGES) {
        return ebb_fail(EBB_E_LIMIT, "more than %zu segments at once", MAX_RANGES);
    }
    EBB_TRY(EBB_RESERVE(r->mem, &r->ranges, n));
    ebb_range *at = r->ranges.data + first;
    memmove(at + n, r->ranges.data + last, (r->ranges.n - last) * sizeof *at);
    if (n > 0) { memcpy(at, with, n * sizeof *at); }
    r->ranges.n = r->ranges.n - (last - first) + n;
    EBB_ASSERT(is_apart(r, first) && is_apart(r, first + n));
    return EBB_OK;
}

ebb_status ebb__ranges_remove(ebb_ranges *r, const ebb_range *range, ebb_ranges_fn fn, void *ctx) {
    if (!is_something(range)) { return EBB_OK; }
    const uint64_t begin = range->address, end = end_of(range);
    ebb_range rest[2];
    size_t n_rest = 0, last = find(r, begin);
    const size_t first = last;
    for (; last < r->ranges.n && r->ranges.data[last].address < end; last++) {
        const ebb_range held = r->ranges.data[last];
        EBB_TRY(tell(fn, ctx, &held, false));
        if (held.address < begin) { rest[n_rest++] = (ebb_range){held.address, begin - held.address, held.stack}; }
        if (end_of(&held) > end) { rest[n_rest++] = (ebb_range){end, end_of(&held) - end, held.stack}; }
    }
    for (size_t i = 0; i < n_rest; i++) { EBB_TRY(tell(fn, ctx, &rest[i], true)); }
    return last > first ? replace(r, first, last, rest, n_rest) : EBB_OK;
}

ebb_status ebb__ranges_add(ebb_ranges *r, const ebb_range *range, ebb_ranges_fn fn, void *ctx) {
    if (!is_something(range)) { return EBB_OK; }
    EBB_TRY(ebb__ranges_remove(r, range, fn, ctx));
    const size_t at = find(r, range->address);
    EBB_TRY(replace(r, at, at, range, 1));
    return tell(fn, ctx, range, true);
}

const ebb_range *ebb__ranges_find(const ebb_ranges *r, uint64_t address) {
    const size_t i = find(r, address);
    return i < r->ranges.n && r->ranges.data[i].address == address ? &r->ranges.data[i] : NULL;
}
