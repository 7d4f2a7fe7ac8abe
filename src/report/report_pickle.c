/* SPDX-License-Identifier: Apache-2.0
 *
 * The opcodes of report_pickle.h: protocol 4, and of its integers those that the viewer reads.
 */
#include "report/report_pickle.h"

static void put_le(ebb_report_pickle *p, uint64_t x, unsigned n_bytes) {
    uint8_t bytes[9] = {0};
    EBB_ASSERT(n_bytes <= sizeof bytes);
    for (unsigned i = 0; i < n_bytes && i < 8; i++) { bytes[i] = (uint8_t)(x >> (8 * i)); }
    ebb__report_put_n(p->out, bytes, n_bytes);
}

void ebb__report_pickle_op(ebb_report_pickle *p, uint8_t byte) {
    ebb__report_put_n(p->out, &byte, 1);
}

uint32_t ebb__report_pickle_memoize(ebb_report_pickle *p) {
    ebb__report_pickle_op(p, 0x94);
    return ++p->n_memo;
}

void ebb__report_pickle_get(ebb_report_pickle *p, uint32_t entry) {
    EBB_ASSERT(entry > 0 && entry <= p->n_memo);
    ebb__report_pickle_op(p, entry <= 256 ? 'h' : 'j');
    put_le(p, entry - 1, entry <= 256 ? 1 : 4);
}

void ebb__report_pickle_u64(ebb_report_pickle *p, uint64_t x) {
    if (x < 256) {
        ebb__report_pickle_op(p, 'K');
        put_le(p, x, 1);
    } else if (x < (uint64_t)1 << 31) {
        ebb__report_pickle_op(p, 'J');
        put_le(p, x, 4);
    } else {
        const unsigned n_bytes = x >> 63 != 0 ? 9 : 8; /* the top bit is the sign */
        ebb__report_pickle_op(p, 0x8a);
        ebb__report_pickle_op(p, (uint8_t)n_bytes);
        put_le(p, x, n_bytes);
    }
}

void ebb__report_pickle_minus_one(ebb_report_pickle *p) {
    ebb__report_pickle_op(p, 'J');
    put_le(p, UINT32_MAX, 4);
}

void ebb__report_pickle_text(ebb_report_pickle *p, const char *text) {
    const size_t n = strlen(text);
    ebb__report_pickle_op(p, n < 256 ? 0x8c : 'X');
    put_le(p, n, n < 256 ? 1 : 4);
    for (size_t i = 0; i < n;) {
        const size_t n_here = ebb__utf8_character(text + i, n - i);
        ebb__report_put_n(p->out, n_here > 0 ? text + i : "?", n_here > 0 ? n_here : 1);
        i += n_here > 0 ? n_here : 1;
    }
}

void ebb__report_pickle_again(ebb_report_pickle *p, const char *text, uint32_t *entry) {
    if (*entry != 0) {
        ebb__report_pickle_get(p, *entry);
        return;
    }
    ebb__report_pickle_text(p, text);
    *entry = ebb__report_pickle_memoize(p);
}
