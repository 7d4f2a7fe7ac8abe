/* SPDX-License-Identifier: Apache-2.0
 *
 * What the policy flashneuron decides, in the accounting of G10's simulator: memory given out from both ends, copies in
 * that begin in the middle of a step, and a wait for all copies out before the backward pass. Prints one line of CSV
 * for each program.
 *
 *     bench_flashneuron MEMORY LINE GIB_PER_S PROGRAM...
 *
 * LINE is the part of the memory for which the selection is made: 1, and 0.993 where the simulator takes that
 * (ViT-1024). The bandwidth is that of the SSD, each way. The program is a program's file or one that `ebb import`
 * reads; a kernel trace of G10 for the published figures.
 */
#include "plan/flashneuron.h"
#include "program_file.h"

#include <inttypes.h>
#include <stdlib.h>

static ebb_status decide(const char *path, const ebb_program *program, const ebb_machine *machine,
                         uint64_t memory_bytes, double line, bool as_coded) {
    ebb_policy_input input = {.program = program,
                              .machine = machine,
                              .mem = ebb__mem_or_default(NULL),
                              .limit_bytes = memory_bytes,
                              .as_coded = as_coded};
    ebb_sequence sequence;
    ebb_flashneuron told;
    input.tier_bytes[EBB_DISK] = UINT64_MAX;
    ebb__sequence_init(&sequence, input.mem);
    const ebb_status st = ebb__flashneuron_decide(&input, (uint64_t)((double)memory_bytes * line), &sequence, &told);
    ebb__sequence_fini(&sequence);
    if (st != EBB_OK && st != EBB_E_NO_FIT) { return st; }
    const double ideal_ms = (double)ebb__computing_ns(program, machine, NULL) / 1e6, ms = (double)told.time_ns / 1e6;
    printf("%s,%s,%.2f,", path, as_coded ? "as coded" : "as written", ideal_ms);
    if (st == EBB_OK) {
        printf("%.6g,%.4f,%" PRIu64 ",%zu,\n", ms, ms / ideal_ms, told.moved_bytes, told.n_moved);
    } else if (told.stuck_at == UINT32_MAX) {
        printf(",,,,too much would stay\n");
    } else {
        printf(",,,,no room for step %" PRIu32 "\n", told.stuck_at);
    }
    return EBB_OK;
}

static ebb_status run(const char *path, const ebb_machine *machine, uint64_t memory_bytes, double line) {
    ebb_program *program = NULL;
    EBB_TRY(ebb_bench_load_program(path, &program));
    ebb_status st = decide(path, program, machine, memory_bytes, line, false);
    if (st == EBB_OK) { st = decide(path, program, machine, memory_bytes, line, true); }
    ebb_program_destroy(program);
    return st;
}

static ebb_status make_machine(double gib_per_s, ebb_machine **machine_out) {
    const double rate = gib_per_s * 1024 * 1024 * 1024;
    ebb_link link = {0};
    EBB_TRY(ebb_machine_create(NULL, machine_out));
    ebb_machine_set_rates(*machine_out, 1e18, 1e18, 0);
    if (!ebb_machine_link(*machine_out, EBB_DEVICE, EBB_DISK, &link)) {
        return ebb_fail(EBB_E_INTERNAL, "the disk is not linked");
    }
    link.out.bytes_per_s = link.in.bytes_per_s = rate;
    link.out.latency_ns = link.in.latency_ns = 0;
    return ebb_machine_set_link(*machine_out, &link);
}

int main(int argc, char **argv) {
    uint64_t memory_bytes = 0;
    ebb_machine *machine = NULL;
    if (argc < 5) {
        fprintf(stderr, "use: bench_flashneuron MEMORY LINE GIB_PER_S PROGRAM...\n");
        return 2;
    }
    ebb_status st = ebb_bytes_parse(argv[1], &memory_bytes);
    if (st == EBB_OK) { st = make_machine(atof(argv[3]), &machine); }
    if (st == EBB_OK) { printf("program,order,ideal_ms,ms,ratio,moved_bytes,n_moved,why_not\n"); }
    for (int i = 4; i < argc && st == EBB_OK; i++) { st = run(argv[i], machine, memory_bytes, atof(argv[2])); }
    ebb_machine_destroy(machine);
    if (st != EBB_OK) { fprintf(stderr, "bench_flashneuron: %s\n", ebb_last_error()); }
    return st == EBB_OK ? 0 : 1;
}
