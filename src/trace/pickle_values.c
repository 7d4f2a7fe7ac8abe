/* SPDX-License-Identifier: Apache-2.0
 *
 * What the values of a pickle say.
 */
#include "trace/pickle_priv.h"

ebb_pickle_value ebb__pickle_resolve(const ebb_pickle *p, ebb_pickle_value value) {
    const ebb_pickle_kind kind = ebb__pickle_kind(value);
    if (kind != EBB_PICKLE_LIST && kind != EBB_PICKLE_DICT) { return value; }
    EBB_ASSERT(ebb__pickle_payload(value) < p->objects.n);
    const ebb_pickle_value became = p->objects.data[ebb__pickle_payload(value)];
    return ebb__pickle_kind(became) == EBB_PICKLE_ABSENT ? value : became;
}

void ebb__pickle_become(ebb_pickle *p, ebb_pickle_value target, ebb_pickle_value mine) {
    EBB_ASSERT(ebb__pickle_kind(target) == EBB_PICKLE_LIST || ebb__pickle_kind(target) == EBB_PICKLE_DICT);
    EBB_ASSERT(ebb__pickle_kind(mine) == EBB_PICKLE_MINE && ebb__pickle_payload(target) < p->objects.n);
    p->objects.data[ebb__pickle_payload(target)] = mine;
}

static int64_t small_int(ebb_pickle_value value) {
    return (int64_t)value.bits >> 4; /* the sign comes down with it */
}

bool ebb__pickle_u64(const ebb_pickle *p, ebb_pickle_value value, uint64_t *x_out) {
    switch (ebb__pickle_kind(value)) {
    case EBB_PICKLE_INT:
        if (small_int(value) < 0) { return false; }
        *x_out = (uint64_t)small_int(value);
        return true;
    case EBB_PICKLE_WIDE_INT: *x_out = p->wide.data[ebb__pickle_payload(value)]; return true;
    default: return false;
    }
}

const char *ebb__pickle_text(const ebb_pickle *p, uint64_t string, size_t *n_bytes_out) {
    EBB_ASSERT(string > 0 && string <= p->strings.keys.n);
    *n_bytes_out = p->strings.keys.data[string - 1].n_bytes;
    return p->strings.keys.data[string - 1].data;
}

uint32_t ebb__pickle_n_strings(const ebb_pickle *p) {
    return (uint32_t)p->strings.keys.n;
}

void ebb__pickle_show(const ebb_pickle *p, ebb_pickle_value value, char *buf, size_t cap, size_t *n_bytes) {
    EBB_ASSERT(*n_bytes < cap);
    char *at = buf + *n_bytes;
    const size_t room = cap - *n_bytes;
    const uint64_t payload = ebb__pickle_payload(value);
    size_t n_text = 0;
    const char *text = NULL;
    double x = 0;
    int n = 0;
    switch (ebb__pickle_kind(value)) {
    case EBB_PICKLE_BOOL: n = snprintf(at, room, "%s", payload != 0 ? "true" : "false"); break;
    case EBB_PICKLE_INT: n = snprintf(at, room, "%lld", (long long)small_int(value)); break;
    case EBB_PICKLE_WIDE_INT: n = snprintf(at, room, "%llu", (unsigned long long)p->wide.data[payload]); break;
    case EBB_PICKLE_FLOAT:
        memcpy(&x, &p->wide.data[payload], sizeof x);
        n = snprintf(at, room, "%.9g", x);
        break;
    case EBB_PICKLE_STRING:
        text = ebb__pickle_text(p, payload, &n_text);
        n = snprintf(at, room, "%.*s", (int)ebb_min_u64(n_text, cap), text);
        break;
    case EBB_PICKLE_PAIR:
        n = snprintf(at, room, "%llu,%llu", (unsigned long long)(payload >> PICKLE_PAIR_BITS),
                     (unsigned long long)(payload & (((uint64_t)1 << PICKLE_PAIR_BITS) - 1)));
        break;
    default: break;
    }
    *n_bytes += n < 0 ? 0 : (size_t)ebb_min_u64((uint64_t)n, room - 1);
}
