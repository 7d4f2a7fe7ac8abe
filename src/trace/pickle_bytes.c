/* SPDX-License-Identifier: Apache-2.0
 *
 * The bytes of a pickle: a buffer that is filled from the file, and grows for a text that is longer.
 */
#include "trace/pickle_priv.h"

#define FIRST_BUFFER_BYTES ((size_t)256 << 10)

uint64_t ebb__pickle_offset(const ebb_pickle *p) {
    EBB_ASSERT(p->at >= p->buf.data && p->at <= p->end);
    return p->base + (uint64_t)(p->at - p->buf.data);
}

ebb_status ebb__pickle_malformed(const ebb_pickle *p, const char *what) {
    return ebb_fail(EBB_E_FORMAT, "%s: offset %llu: %s", p->name, (unsigned long long)ebb__pickle_offset(p), what);
}

ebb_status ebb__pickle_cut_off(const ebb_pickle *p) {
    return ebb__pickle_malformed(p, "the pickle is cut off here");
}

ebb_status ebb__pickle_fill(ebb_pickle *p, size_t n_bytes) {
    EBB_ASSERT(p->at <= p->end);
    size_t n = (size_t)(p->end - p->at);
    if (n >= n_bytes || p->eof) { return EBB_OK; }
    p->base += (uint64_t)(p->at - p->buf.data);
    if (n > 0) { memmove(p->buf.data, p->at, n); }
    const ebb_status st = EBB_RESERVE(p->mem, &p->buf, ebb_max_u64(n_bytes, FIRST_BUFFER_BYTES));
    p->at = p->buf.data;
    p->end = p->buf.data + n;
    EBB_TRY(st);
    while (n < p->buf.cap && !p->eof) {
        size_t n_read = 0;
        EBB_TRY(p->read(p->read_ctx, p->buf.data + n, p->buf.cap - n, &n_read));
        EBB_ASSERT(n_read <= p->buf.cap - n);
        p->eof = n_read == 0;
        n += n_read;
        p->end = p->buf.data + n;
    }
    return EBB_OK;
}

ebb_status ebb__pickle_skip(ebb_pickle *p, uint64_t n_bytes) {
    while (n_bytes > 0) {
        EBB_TRY(ebb__pickle_fill(p, 1));
        const uint64_t n_here = ebb_min_u64((uint64_t)(p->end - p->at), n_bytes);
        if (n_here == 0) { return ebb__pickle_cut_off(p); }
        p->at += n_here;
        n_bytes -= n_here;
    }
    return EBB_OK;
}

ebb_status ebb__pickle_take(ebb_pickle *p, size_t n_bytes, const uint8_t **bytes_out) {
    EBB_TRY(ebb__pickle_fill(p, n_bytes));
    if ((size_t)(p->end - p->at) < n_bytes) { return ebb__pickle_cut_off(p); }
    *bytes_out = p->at;
    p->at += n_bytes;
    return EBB_OK;
}
