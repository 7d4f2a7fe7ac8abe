/* SPDX-License-Identifier: Apache-2.0
 *
 * The rungs under which plans are tried: limits on the load, each a small part above the one before it, from the
 * program's floor on (maker.c says what for). Rungs are made on demand.
 */
#include "plan/maker.h"

/* How far the next rung is above a limit. */
static uint64_t rise_above(const ebb_maker *m, uint64_t limit_bytes) {
    return ebb_align_up(limit_bytes / m->n_ladder_parts + 1, m->alignment);
}

ebb_ladder ebb__ladder_begin(ebb_maker *m) {
    const ebb_ladder former = m->rungs;
    m->rungs = (ebb_ladder){0};
    return former;
}

void ebb__ladder_end(ebb_maker *m, ebb_ladder former) {
    EBB_VEC_FINI(m->mem, &m->rungs);
    m->rungs = former;
}

ebb_status ebb__ladder_extend(ebb_maker *m, uint64_t bytes) {
    uint64_t limit = m->rungs.n > 0 ? m->rungs.data[m->rungs.n - 1].limit_bytes : 0;
    while (m->rungs.n == 0 || (limit <= bytes && limit < UINT64_MAX / 2)) {
        limit = m->rungs.n == 0 ? ebb_align_up(m->floor_bytes, m->alignment) : limit + rise_above(m, limit);
        const uint64_t need_bytes = m->rungs.n == 0 ? m->floor_bytes : limit;
        ebb_rung rung = {.limit_bytes = limit};
        for (uint32_t i = 0; i < EBB_MAKER_NOMINAL; i++) { rung.need_bytes[i] = need_bytes; }
        EBB_TRY(EBB_PUSH(m->mem, &m->rungs, rung));
    }
    return EBB_OK;
}

ebb_status ebb__ladder_find(ebb_maker *m, uint64_t bytes, size_t *rung_out) {
    size_t low = 0;
    EBB_TRY(ebb__ladder_extend(m, bytes));
    for (size_t high = m->rungs.n; high - low > 1;) {
        const size_t middle = low + (high - low) / 2;
        if (m->rungs.data[middle].limit_bytes <= bytes) {
            low = middle;
        } else {
            high = middle;
        }
    }
    *rung_out = low;
    return EBB_OK;
}
