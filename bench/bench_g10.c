/* SPDX-License-Identifier: Apache-2.0
 *
 * What the policy g10 decides if freed bytes are one heap, wherever they lie, and what an iteration takes then. Prints
 * one line of CSV for each program.
 *
 *     bench_g10 MEMORY HOST_GB_PER_S SSD_GB_PER_S PROGRAM...
 *
 * As in G10's simulator, loads keep to 99 % of the memory, the host has 128 GiB, and copies take 5 us more, those to
 * the SSD 25 us. The links to the host and to the SSD work side by side. In the simulator they share 15.754 GB/s: with
 * 12.554 and 3.2 a little is lost where only one of them works, with 15.754 and 3.2 a little is won.
 */
#include "plan/g10.h"
#include "program_file.h"

#include <inttypes.h>
#include <stdlib.h>

static ebb_status decide(const char *path, const ebb_program *program, const ebb_machine *machine,
                         uint64_t limit_bytes) {
    ebb_policy_input input = {.program = program, .machine = machine, .mem = ebb__mem_or_default(NULL)};
    ebb_draft draft;
    ebb_g10 told;
    input.limit_bytes = limit_bytes;
    input.tier_bytes[EBB_HOST] = (uint64_t)128 << 30;
    input.tier_bytes[EBB_DISK] = UINT64_MAX;
    EBB_TRY(ebb__draft_init(&draft, program, NULL));
    ebb__draft_reset(&draft, program);
    const ebb_status st = ebb__g10_decide(&input, &draft, &told);
    ebb__draft_fini(&draft);
    if (st != EBB_OK && st != EBB_E_NO_FIT) { return st; }
    const double ideal_ms = (double)ebb__computing_ns(program, machine, NULL) / 1e6, ms = told.time_ns / 1e6;
    printf("%s,%.2f,", path, ideal_ms);
    if (st == EBB_OK) {
        printf("%.2f,%.4f,", ms, ms / ideal_ms);
    } else {
        printf(",,");
    }
    printf("%.2f,%" PRIu32 ",%" PRIu32 "\n", (double)told.hidden_bytes / 1073741824.0, told.n_hidden, told.n_all);
    return EBB_OK;
}

static ebb_status set_link(ebb_machine *machine, uint32_t tier, double gb_per_s, uint64_t latency_ns) {
    ebb_link link = {0};
    if (!ebb_machine_link(machine, EBB_DEVICE, tier, &link)) { return ebb_fail(EBB_E_INTERNAL, "no link"); }
    link.out.bytes_per_s = link.in.bytes_per_s = gb_per_s * 1e9;
    link.out.latency_ns = link.in.latency_ns = latency_ns;
    return ebb_machine_set_link(machine, &link);
}

static ebb_status make_machine(double host_gb_per_s, double ssd_gb_per_s, ebb_machine **machine_out) {
    EBB_TRY(ebb_machine_create(NULL, machine_out));
    ebb_machine_set_rates(*machine_out, 1e18, 1e18, 0);
    EBB_TRY(set_link(*machine_out, EBB_HOST, host_gb_per_s, 5000));
    return set_link(*machine_out, EBB_DISK, ssd_gb_per_s, 25000);
}

int main(int argc, char **argv) {
    uint64_t memory_bytes = 0;
    ebb_machine *machine = NULL;
    if (argc < 5) {
        fprintf(stderr, "use: bench_g10 MEMORY HOST_GB_PER_S SSD_GB_PER_S PROGRAM...\n");
        return 2;
    }
    ebb_status st = ebb_bytes_parse(argv[1], &memory_bytes);
    if (st == EBB_OK) { st = make_machine(atof(argv[2]), atof(argv[3]), &machine); }
    if (st == EBB_OK) { printf("program,ideal_ms,ms,ratio,hidden_load_gib,n_hidden,n_all\n"); }
    for (int i = 4; i < argc && st == EBB_OK; i++) {
        ebb_program *program = NULL;
        st = ebb_bench_load_program(argv[i], &program);
        if (st == EBB_OK) { st = decide(argv[i], program, machine, (uint64_t)((double)memory_bytes * 0.99)); }
        ebb_program_destroy(program);
    }
    ebb_machine_destroy(machine);
    if (st != EBB_OK) { fprintf(stderr, "bench_g10: %s\n", ebb_last_error()); }
    return st == EBB_OK ? 0 : 1;
}
