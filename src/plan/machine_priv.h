/* SPDX-License-Identifier: Apache-2.0
 *
 * The machine itself, for the two files that make it up: machine.c and machine_file.c.
 */
#ifndef EBB_SRC_MACHINE_PRIV_H
#define EBB_SRC_MACHINE_PRIV_H

#include "plan/plan_priv.h"

#define EBB_MACHINE_MAX_NS ((uint64_t)INT64_MAX)

/* Times by key: open addressing, at most half full. */
typedef struct ebb_measured {
    uint64_t key, time_ns;
    bool used;
} ebb_measured;

/* From one tier to another. */
typedef struct ebb_rate {
    double bytes_per_s;
    uint64_t latency_ns;
    double both_rate, work_rate[EBB_N_STEP_KINDS], copy_rate[EBB_N_STEP_KINDS]; /* the same for both directions */
} ebb_rate;

struct ebb_machine {
    const ebb_mem *mem;
    ebb_topology topology;
    ebb_rate rates[EBB_MAX_TIERS][EBB_MAX_TIERS]; /* [from][to]; of those that have a way */
    double flops_per_s, bytes_per_s;
    uint64_t overhead_ns;
    double feed_times; /* as long as told: what copies in takes; 1 but for ebb__machine_slow_links */
    ebb_measured *times;
    size_t cap, n; /* cap is 0 or a power of two */
};

/* The same machine with all its links this many times as slow. It lives as long as the other does not change, and is
 * not destroyed. */
ebb_machine ebb__machine_slow_links(const ebb_machine *machine, double times);

/* Positive and finite. */
bool ebb__machine_is_rate(double x);

/* The file's text; path is for messages. */
ebb_status ebb__machine_parse(const ebb_mem *mem, const char *path, const char *text, size_t n_bytes,
                              ebb_machine **machine_out);

#endif
