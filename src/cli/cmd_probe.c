/* SPDX-License-Identifier: Apache-2.0
 *
 * `ebb probe`: measure this machine, for plans whose predicted times hold: the links to the host's memory and to
 * a disk, the rates of computing, and each kernel of the networks named.
 */
#include "cli.h"

#include <inttypes.h>

#define SCHEMA_VERSION 1

typedef struct probe_values {
    ebb_cli_network network;
    const char *out;
    uint64_t reps;
    bool json;
} probe_values;

#define AT(member) offsetof(probe_values, member)
static const ebb_cli_option probe_options[] = {
    EBB_CLI_NETWORK_OPTIONS(probe_values),
    {"--optimizer", EBB_CLI_TEXT, AT(network.optimizer), "O", "sgd, momentum (the default), nesterov, adam, adamw"},
    {"--disk", EBB_CLI_TEXT, AT(network.disk), "DIR", "measure the disk that this folder is on, too"},
    {"--reps", EBB_CLI_COUNT, AT(reps), "N", "how often each kernel is measured (5)"},
    {"-o", EBB_CLI_TEXT, AT(out), "FILE", "write the machine's description, for --machine"},
    {"--json", EBB_CLI_FLAG, AT(json), NULL, "one object on stdout, for programs"},
};

static ebb_status measure_network(const char *net, const probe_values *values, ebb_device *device,
                                  ebb_machine *machine) {
    ebb_graph *graph = NULL;
    ebb_lowered *lowered = NULL;
    ebb_optimizer optimizer = EBB_OPTIMIZER_INIT;
    ebb_status status = EBB_OK;
    if (values->network.optimizer != NULL) { status = ebb_optimizer_parse(values->network.optimizer, &optimizer.kind); }
    if (status == EBB_OK) { status = ebb__cli_build_network(net, &values->network, &graph); }
    if (status == EBB_OK) { status = ebb_graph_train(graph, &optimizer, false); }
    if (status == EBB_OK) { status = ebb_lower(graph, device, &lowered); }
    if (status == EBB_OK) { status = ebb_run_measure_steps(lowered, (uint32_t)values->reps, machine); }
    ebb_lowered_destroy(lowered);
    ebb_graph_destroy(graph);
    return status;
}

static ebb_status measure(const probe_values *values, const ebb_cli_arguments *nets, ebb_device *device,
                          ebb_machine *machine) {
    ebb_status status = ebb_run_measure_links(device, values->network.disk, UINT64_MAX, machine);
    for (size_t i = 0; i < nets->n && status == EBB_OK; i++) {
        status = measure_network(nets->at[i], values, device, machine);
    }
    if (status == EBB_OK && values->out != NULL) { status = ebb_machine_save(machine, values->out); }
    return status;
}

static void print_link(const char *name, ebb_link link) {
    printf("%-6s out %8.2f GB/s, in %8.2f GB/s, %" PRIu64 " ns a copy\n", name, link.out_bytes_per_s / 1e9,
           link.in_bytes_per_s / 1e9, link.latency_ns);
}

static void print_table(const ebb_device_info *info, const ebb_machine *machine, bool has_disk) {
    char capacity[32];
    printf("device %s, %" PRId32 " threads, %s\n", info->name, info->n_threads,
           ebb_bytes_format(info->capacity_bytes, capacity, sizeof capacity));
    print_link("host", ebb_machine_link(machine, EBB_TIER_HOST));
    if (has_disk) { print_link("disk", ebb_machine_link(machine, EBB_TIER_DISK)); }
}

static void print_json(const ebb_device_info *info, const ebb_machine *machine) {
    ebb_link host = ebb_machine_link(machine, EBB_TIER_HOST), disk = ebb_machine_link(machine, EBB_TIER_DISK);
    ebb__json_begin();
    ebb__json_u64("schema_version", SCHEMA_VERSION);
    ebb__json_text("device", info->name);
    ebb__json_u64("threads", (uint64_t)info->n_threads);
    ebb__json_u64("capacity_bytes", info->capacity_bytes);
    ebb__json_u64("context_bytes", info->context_bytes);
    ebb__json_f64("host_out_bytes_per_s", host.out_bytes_per_s);
    ebb__json_f64("host_in_bytes_per_s", host.in_bytes_per_s);
    ebb__json_u64("host_latency_ns", host.latency_ns);
    ebb__json_f64("disk_out_bytes_per_s", disk.out_bytes_per_s);
    ebb__json_f64("disk_in_bytes_per_s", disk.in_bytes_per_s);
    ebb__json_u64("disk_latency_ns", disk.latency_ns);
    ebb__json_end();
}

static int run_probe(const ebb_cli_command *command, int argc, char **argv) {
    probe_values values = {.reps = 5};
    ebb_cli_arguments nets;
    ebb_device *device = NULL;
    ebb_machine *machine = NULL;
    ebb_device_info info;
    int code = EBB_EXIT_DONE;
    if (!ebb__cli_parse(command, argc, argv, &values, &nets, &code)) { return code; }
    if (!ebb__cli_check_threads(command, &values.network)) { return EBB_EXIT_USAGE; }
    if (values.reps == 0 || values.reps > 1000) { return ebb__cli_usage("probe: --reps is 1 to 1000"); }
    ebb_status status = ebb__cli_open_device(&values.network, &device);
    if (status == EBB_OK) { status = ebb_device_get_info(device, &info); }
    if (status == EBB_OK) { status = ebb_machine_create(NULL, &machine); }
    if (status == EBB_OK) { status = measure(&values, &nets, device, machine); }
    if (status != EBB_OK) {
        code = ebb__cli_failed(status);
    } else {
        if (values.json) {
            print_json(&info, machine);
        } else {
            print_table(&info, machine, values.network.disk != NULL);
        }
        code = ebb__cli_close_output();
    }
    ebb_machine_destroy(machine);
    ebb_device_close(device);
    return code;
}

const ebb_cli_command ebb__cli_probe = {
    .name = "probe",
    .arguments = "[NET ...] [option ...]",
    .about = "measure this machine, and the kernels of networks on it",
    .options = probe_options,
    .n_options = sizeof probe_options / sizeof probe_options[0],
    .n_arguments_max = 16,
    .run = run_probe,
    .more_help = ebb__cli_print_names,
};
