/* SPDX-License-Identifier: Apache-2.0
 *
 * A comparison as comma-separated values: a line for each policy at each budget. Fields that a row lacks are empty.
 * Seconds have nine digits after a point, whatever the locale.
 */
#include "plan/comparison.h"

#include <inttypes.h>

static void put_seconds(ebb_file_writer *out, uint64_t ns) {
    (void)ebb__file_writer_printf(out, ",%" PRIu64 ".%09" PRIu64, ns / 1000000000, ns % 1000000000);
}

/* "a_to_b_bytes" for each way that there is. */
static void put_ways(const ebb_topology *t, ebb_file_writer *out) {
    for (uint32_t from = 0; from < t->n_tiers; from++) {
        for (uint32_t to = 0; to < t->n_tiers; to++) {
            if (t->way[from][to] == 0) { continue; }
            (void)ebb__file_writer_printf(out, ",%s_to_%s_bytes", t->tier[from].name, t->tier[to].name);
        }
    }
}

static void put_copies(const ebb_comparison *c, const ebb_compared *row, ebb_file_writer *out) {
    for (uint32_t from = 0; from < c->topology.n_tiers; from++) {
        for (uint32_t to = 0; to < c->topology.n_tiers; to++) {
            if (c->topology.way[from][to] == 0) { continue; }
            (void)ebb__file_writer_printf(out, ",");
            if (row->plan == NULL) { continue; }
            (void)ebb__file_writer_printf(out, "%" PRIu64, row->copied_bytes[from][to]);
        }
    }
}

static void put_run(const ebb_compared_run *run, ebb_file_writer *out) {
    if (!run->has_run) {
        (void)ebb__file_writer_printf(out, ",,,");
        return;
    }
    put_seconds(out, (uint64_t)(run->time_s * 1e9 + 0.5));
    if (run->peak_bytes == UINT64_MAX) {
        (void)ebb__file_writer_printf(out, ",");
    } else {
        (void)ebb__file_writer_printf(out, ",%" PRIu64, run->peak_bytes);
    }
    (void)ebb__file_writer_printf(out, ",%08" PRIx32, run->loss_bits);
}

/* In millionths; no plan is far below its bound. */
static void put_gap(double gap, ebb_file_writer *out) {
    const uint64_t millionths = gap > 0 ? (uint64_t)(gap * 1e6 + 0.5) : 0;
    (void)ebb__file_writer_printf(out, ",%" PRIu64 ".%06" PRIu64, millionths / 1000000, millionths % 1000000);
}

void ebb__comparison_write_csv(const ebb_comparison *c, ebb_file_writer *out) {
    (void)ebb__file_writer_printf(out, "policy,budget_bytes,peak_bytes");
    put_ways(&c->topology, out);
    (void)ebb__file_writer_printf(out, ",recomputed_steps,stall_s,time_s,bound_s,gap,measured_time_s,"
                                       "measured_peak_bytes,loss_hex\n");
    for (size_t i = 0; i < c->n_budgets * c->n_policies; i++) {
        const ebb_compared *row = &c->rows[i];
        const ebb_compared_budget *budget = &c->budgets[row->budget];
        (void)ebb__file_writer_printf(out, "%s,%" PRIu64 ",", row->policy, budget->bytes);
        if (row->plan != NULL) { (void)ebb__file_writer_printf(out, "%" PRIu64, row->summary.peak_bytes); }
        put_copies(c, row, out);
        if (row->plan != NULL) {
            (void)ebb__file_writer_printf(out, ",%" PRIu64, row->summary.n_recomputed_steps);
            put_seconds(out, row->timeline.stall_ns[EBB_COMPUTE]);
            put_seconds(out, row->timeline.iteration_ns);
            put_seconds(out, ebb__comparison_bound(c, row));
            put_gap(row->gap, out);
        } else {
            (void)ebb__file_writer_printf(out, ",,,");
            put_seconds(out, budget->certificate.bound_ns);
            (void)ebb__file_writer_printf(out, ",");
        }
        put_run(&row->run, out);
        (void)ebb__file_writer_printf(out, "\n");
    }
}
