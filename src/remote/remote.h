/* SPDX-License-Identifier: Apache-2.0
 *
 * A remote from inside. Each run that uses it claims a range of its bytes, so that the network that is trained and the
 * one that is evaluated may both have some:
 *
 *      the remote's bytes   | claim a ...... | claim b ... |  free  |
 */
#ifndef EBB_SRC_REMOTE_H
#define EBB_SRC_REMOTE_H

#include "base/base.h"
#include "ebb/remote.h"

/* A range of a remote. It lies in its owner's memory and must not be copied while it is held. */
typedef struct ebb_remote_claim {
    ebb_remote *remote; /* NULL: nothing is claimed */
    uint64_t begin, size_bytes;
    struct ebb_remote_claim *next; /* by begin */
} ebb_remote_claim;

/* Take the first free range that is large enough. false: there is none, and claim stays as it was. */
bool ebb__remote_claim(ebb_remote *remote, uint64_t size_bytes, ebb_remote_claim *claim);
void ebb__remote_release(ebb_remote_claim *claim); /* one that holds nothing is fine */

/* Move n bytes; `at` counts from the claim's beginning. See ebb_remote_ops. */
bool ebb__remote_move(const ebb_remote_claim *claim, bool out, void *memory, uint64_t n, uint64_t at,
                      char why_out[EBB_REMOTE_WHY_BYTES]);

#endif
