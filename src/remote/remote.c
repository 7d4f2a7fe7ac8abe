/* SPDX-License-Identifier: Apache-2.0
 *
 * A remote: its transport's functions, and which of its bytes are whose.
 */
#include "remote/remote.h"

struct ebb_remote {
    const ebb_mem *mem;
    ebb_remote_ops ops;
    void *ctx;
    uint64_t size_bytes;
    ebb_remote_claim *first; /* by begin; none overlap */
};

ebb_status ebb_remote_create(const ebb_mem *mem, const ebb_remote_ops *ops, void *ctx, uint64_t size_bytes,
                             ebb_remote **remote_out) {
    EBB_NEED(ops);
    EBB_NEED(remote_out);
    if (ops->size_bytes != sizeof *ops) { return ebb_fail(EBB_E_ARGUMENT, "remote: functions of another version"); }
    if (ops->move == NULL) { return ebb_fail(EBB_E_ARGUMENT, "remote: there is no function that moves bytes"); }
    if (size_bytes == 0) { return ebb_fail(EBB_E_ARGUMENT, "remote: it has no bytes"); }
    ebb_remote *remote = ebb__calloc(mem, 1, sizeof *remote);
    if (remote == NULL) { return EBB_E_NO_MEMORY; }
    *remote = (ebb_remote){.mem = ebb__mem_or_default(mem), .ops = *ops, .ctx = ctx, .size_bytes = size_bytes};
    *remote_out = remote;
    return EBB_OK;
}

void ebb_remote_destroy(ebb_remote *remote) {
    if (remote == NULL) { return; }
    EBB_ASSERT(remote->first == NULL);
    if (remote->ops.close != NULL) { remote->ops.close(remote->ctx); }
    ebb__free(remote->mem, remote);
}

uint64_t ebb_remote_bytes(const ebb_remote *remote) {
    return remote->size_bytes;
}

bool ebb__remote_claim(ebb_remote *remote, uint64_t size_bytes, ebb_remote_claim *claim) {
    uint64_t begin = 0;
    ebb_remote_claim **link = &remote->first;
    while (*link != NULL && (*link)->begin - begin < size_bytes) {
        begin = (*link)->begin + (*link)->size_bytes;
        link = &(*link)->next;
    }
    if (remote->size_bytes - begin < size_bytes) { return false; }
    *claim = (ebb_remote_claim){.remote = remote, .begin = begin, .size_bytes = size_bytes, .next = *link};
    *link = claim;
    return true;
}

void ebb__remote_release(ebb_remote_claim *claim) {
    if (claim->remote == NULL) { return; }
    ebb_remote_claim **link = &claim->remote->first;
    while (*link != claim) {
        EBB_ASSERT(*link != NULL);
        link = &(*link)->next;
    }
    *link = claim->next;
    *claim = (ebb_remote_claim){.remote = NULL};
}

bool ebb__remote_move(const ebb_remote_claim *claim, bool out, void *memory, uint64_t n, uint64_t at,
                      char why_out[EBB_REMOTE_WHY_BYTES]) {
    EBB_ASSERT(claim->remote != NULL && at <= claim->size_bytes && n <= claim->size_bytes - at);
    const ebb_remote *remote = claim->remote;
    why_out[0] = '\0';
    return remote->ops.move(remote->ctx, out, memory, n, claim->begin + at, why_out);
}
