/* SPDX-License-Identifier: Apache-2.0
 *
 * Pulling steps forwards or backwards in an order without making the load of any other step higher.
 *
 * A step that ends at least as many bytes as it makes can go at once: between its old and its new place no more is live
 * than before, because what it ends at the new place it would also have ended at the old one. From the end, the same
 * holds of a step that makes at least as many bytes as are live on its behalf alone. Its own load is what is there when
 * it runs; so it waits until that is below the peak, or until its turn comes in the order at hand.
 *
 * One walk over the order, with a heap of those that may go, by what they need besides what is live.
 */
#include "plan/order_priv.h"

typedef struct entry {
    uint64_t need_bytes;
    uint32_t step;
} entry;

typedef struct pull {
    ebb_order_search *s;
    bool back;
    uint32_t *n_waits; /* of each step: how many it must come after that have not run */
    uint64_t *bytes;   /* of each step: that it ends if it runs now; back: that become live if it is put here */
    uint32_t *n_users; /* of each tensor: that have not run; back: that have been put */
    uint32_t *xor_of;  /* of each tensor: those users, so that the last one left is known */
    bool *is_done;
    EBB_VEC(entry) heap;
    uint64_t live_bytes;
    size_t n_done;
} pull;

static bool is_lower(entry a, entry b) {
    return a.need_bytes != b.need_bytes ? a.need_bytes < b.need_bytes : a.step < b.step;
}

static ebb_status push(pull *p, entry new) {
    EBB_TRY(EBB_PUSH(p->s->mem, &p->heap, new));
    size_t at = p->heap.n - 1;
    for (; at > 0 && is_lower(new, p->heap.data[(at - 1) / 2]); at = (at - 1) / 2) {
        p->heap.data[at] = p->heap.data[(at - 1) / 2];
    }
    p->heap.data[at] = new;
    return EBB_OK;
}

static void pop(pull *p) {
    EBB_ASSERT(p->heap.n > 0);
    const entry moved = p->heap.data[--p->heap.n];
    const size_t n = p->heap.n;
    size_t at = 0;
    for (;;) {
        size_t child = 2 * at + 1;
        if (child + 1 < n && is_lower(p->heap.data[child + 1], p->heap.data[child])) { child++; }
        if (child >= n || !is_lower(p->heap.data[child], moved)) { break; }
        p->heap.data[at] = p->heap.data[child];
        at = child;
    }
    if (n > 0) { p->heap.data[at] = moved; }
}

/* Enter a step in the heap if it may go and makes nothing worse. */
static ebb_status offer(pull *p, uint32_t step) {
    const ebb_order_graph *g = &p->s->graph;
    const uint64_t made = g->made_bytes[step];
    if (p->is_done[step] || p->n_waits[step] > 0) { return EBB_OK; }
    if (p->back ? p->bytes[step] > made : p->bytes[step] < made) { return EBB_OK; }
    return push(p, (entry){g->own_bytes[step] + (p->back ? p->bytes[step] : made), step});
}

/* A user of a tensor has been done. */
static ebb_status use_forwards(pull *p, uint32_t t, uint32_t step) {
    const uint64_t size = p->s->graph.size_bytes[t];
    p->xor_of[t] ^= step;
    if (--p->n_users[t] == 0) { p->live_bytes -= size; }
    if (p->n_users[t] != 1) { return EBB_OK; }
    p->bytes[p->xor_of[t]] += size; /* the only one left */
    return offer(p, p->xor_of[t]);
}

static ebb_status use_backwards(pull *p, uint32_t t) {
    const ebb_order_graph *g = &p->s->graph;
    if (p->n_users[t]++ > 0) { return EBB_OK; }
    p->live_bytes += g->size_bytes[t];
    for (uint64_t u = g->users.start[t]; u < g->users.start[t + 1]; u++) {
        const uint32_t step = g->users.list[u];
        p->bytes[step] -= g->size_bytes[t];
        EBB_TRY(offer(p, step));
    }
    return EBB_OK;
}

/* The step has its place: the next one, or the one before the others. */
static ebb_status put(pull *p, uint32_t step) {
    const ebb_order_graph *g = &p->s->graph;
    const ebb_order_rows *rows = p->back ? &g->before : &g->after;
    EBB_ASSERT(!p->is_done[step] && p->n_waits[step] == 0);
    p->is_done[step] = true;
    p->s->trial[p->back ? g->n_steps - 1 - p->n_done : p->n_done] = step;
    p->n_done++;
    if (!p->back) { p->live_bytes += g->made_bytes[step]; }
    for (uint64_t u = g->used.start[step]; u < g->used.start[step + 1]; u++) {
        EBB_TRY(p->back ? use_backwards(p, g->used.list[u]) : use_forwards(p, g->used.list[u], step));
    }
    if (p->back) { p->live_bytes -= g->made_bytes[step]; }
    for (uint64_t i = rows->start[step]; i < rows->start[step + 1]; i++) {
        const uint32_t next = rows->list[i];
        EBB_ASSERT(p->n_waits[next] > 0);
        if (--p->n_waits[next] == 0) { EBB_TRY(offer(p, next)); }
    }
    return EBB_OK;
}

static ebb_status put_eager(pull *p) {
    while (p->heap.n > 0) {
        const entry top = p->heap.data[0];
        if (!p->is_done[top.step] && p->live_bytes + top.need_bytes >= p->s->peak_bytes) { return EBB_OK; }
        pop(p);
        if (!p->is_done[top.step]) { EBB_TRY(put(p, top.step)); }
    }
    return EBB_OK;
}

static ebb_status init_pull(pull *p) {
    const ebb_order_graph *g = &p->s->graph;
    const ebb_mem *mem = p->s->mem;
    const ebb_order_rows *rows = p->back ? &g->after : &g->before;
    p->n_waits = ebb__calloc(mem, g->n_steps, sizeof *p->n_waits);
    p->bytes = ebb__calloc(mem, g->n_steps, sizeof *p->bytes);
    p->n_users = ebb__calloc(mem, g->n_tensors, sizeof *p->n_users);
    p->xor_of = ebb__calloc(mem, g->n_tensors, sizeof *p->xor_of);
    p->is_done = ebb__calloc(mem, g->n_steps, sizeof *p->is_done);
    if (p->n_waits == NULL || p->bytes == NULL || p->n_users == NULL || p->xor_of == NULL || p->is_done == NULL) {
        return EBB_E_NO_MEMORY;
    }
    p->live_bytes = p->s->live[p->back ? g->n_steps : 0];
    for (size_t t = 0; t < g->n_tensors; t++) {
        const uint64_t begin = g->users.start[t], end = g->users.start[t + 1];
        if (!p->back) { p->n_users[t] = (uint32_t)(end - begin); }
        for (uint64_t u = begin; u < end; u++) {
            p->xor_of[t] ^= g->users.list[u];
            if (p->back || end - begin == 1) { p->bytes[g->users.list[u]] += g->size_bytes[t]; }
        }
    }
    for (uint32_t i = 0; i < g->n_steps; i++) {
        p->n_waits[i] = (uint32_t)(rows->start[i + 1] - rows->start[i]);
        EBB_TRY(offer(p, i));
    }
    return EBB_OK;
}

ebb_status ebb__order_pull(ebb_order_search *s, bool back) {
    pull p = {.s = s, .back = back};
    const size_t n = s->graph.n_steps;
    ebb_status st = init_pull(&p);
    for (size_t i = 0; st == EBB_OK && i < n; i++) {
        const uint32_t step = s->order[back ? n - 1 - i : i];
        st = put_eager(&p);
        if (st == EBB_OK && !p.is_done[step]) { st = put(&p, step); }
    }
    EBB_ASSERT(st != EBB_OK || p.n_done == n);
    EBB_VEC_FINI(s->mem, &p.heap);
    ebb__free(s->mem, p.n_waits);
    ebb__free(s->mem, p.bytes);
    ebb__free(s->mem, p.n_users);
    ebb__free(s->mem, p.xor_of);
    ebb__free(s->mem, p.is_done);
    return st;
}
