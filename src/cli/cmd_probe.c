/* SPDX-License-Identifier: Apache-2.0
 *
 * `ebb probe`: measure this machine, for plans whose predicted times hold: the links to the host's memory, to a disk
 * and to other processes' memory, the rates of computing, and each kernel of the networks named. One device is measured
 * (--device); what others the backend has is listed.
 *
 * Measuring takes minutes, so the file is written anew after the links and after each network. SIGINT, SIGTERM and
 * SIGHUP end it after the kernel at hand: the file has what was measured, and the exit code is 128 plus the signal's
 * number. A second SIGINT or SIGTERM ends it at once.
 */
#include "cli.h"

#include <inttypes.h>
#include <stdlib.h>
#include <sys/stat.h>

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
    EBB_CLI_IO_OPTION(probe_values),
    {"--remote", EBB_CLI_BYTES, AT(network.remote), "SIZE",
     "measure the memory that other processes lend, too (mpirun -n 2): SIZE of each"},
    {"--reps", EBB_CLI_COUNT, AT(reps), "N", "how often each kernel is measured (5)"},
    {"--machine", EBB_CLI_TEXT, AT(network.machine), "FILE",
     "begin with this description: kernels whose times it has are done"},
    {"-o", EBB_CLI_TEXT, AT(out), "FILE",
     "write the machine's description, for --machine; it may be that of --machine"},
    {"--json", EBB_CLI_FLAG, AT(json), NULL, "one object on stdout, for programs"},
};

/* The network on the device that is measured; without a name the device alone. */
static ebb_status open_session(const char *net, const ebb_cli_network *network, ebb_device *device,
                               ebb_session **session_out) {
    ebb_session_options options = EBB_SESSION_OPTIONS_INIT;
    const ebb_status status = ebb__cli_session_options(net, network, &options);
    options.device = device;
    return status == EBB_OK ? ebb_session_open(&options, session_out) : status;
}

static bool is_caught(void *ctx) {
    (void)ctx;
    return ebb__cli_caught() != 0;
}

static ebb_status measure_network(const char *net, const probe_values *values, const ebb_session_parts *measured) {
    ebb_session *session = NULL;
    ebb_measure_options options = EBB_MEASURE_OPTIONS_INIT;
    options.reps = (uint32_t)values->reps;
    options.all_choices = true;
    options.progress = ebb__progress();
    options.stop = is_caught;
    ebb__progress_tell("making the program", 0, 0);
    ebb_status status = open_session(net, &values->network, measured->device, &session);
    if (status != EBB_OK) { return status; }
    status = ebb_run_measure_steps(ebb_session_get_parts(session).lowered, &options, measured->machine);
    ebb_session_close(session);
    return status;
}

/* A pipe or a terminal gets the description once, at the end. */
static bool is_file(const char *path) {
    struct stat info;
    return stat(path, &info) != 0 || S_ISREG(info.st_mode);
}

static ebb_status save(const probe_values *values, const ebb_machine *machine, bool is_last) {
    if (values->out == NULL || (!is_last && !is_file(values->out))) { return EBB_OK; }
    return ebb_machine_save(machine, values->out);
}

/* All that was asked for, or what there is before a signal. */
static ebb_status measure(const probe_values *values, const ebb_cli_arguments *nets,
                          const ebb_session_parts *measured) {
    ebb__progress_tell("measuring the machine", 0, 0);
    ebb_status status = ebb_run_measure_links(measured->device, values->network.disk, values->network.io,
                                              values->network.lent, UINT64_MAX, measured->machine);
    for (size_t i = 0; i < nets->n && status == EBB_OK && !is_caught(NULL); i++) {
        status = save(values, measured->machine, false);
        if (status == EBB_OK) { status = measure_network(nets->at[i], values, measured); }
    }
    return status == EBB_OK ? save(values, measured->machine, true) : status;
}

static int end_by_signal(const probe_values *values) {
    const int number = ebb__cli_caught();
    if (values->out != NULL) {
        ebb__cli_say("ended by signal %d; what was measured is in %s (--machine goes on from there)", number,
                     values->out);
    } else {
        ebb__cli_say("ended by signal %d; without -o, what was measured is lost", number);
    }
    return 128 + number;
}

typedef struct findings {
    ebb_device_info *devices; /* [n_devices], of the backend; malloc's */
    size_t n_devices;
    size_t measured; /* which of them */
    ebb_copy_rates pinned, pageable;
} findings;

/* From number 0 until none exists of the number. The one that is measured is open already. */
static ebb_status list_devices(const ebb_cli_network *network, ebb_device *measured, findings *f) {
    ebb_cli_network each = *network;
    f->measured = (size_t)network->device;
    for (each.device = 0;; each.device++) {
        ebb_session *session = NULL;
        ebb_device *device = each.device == network->device ? measured : NULL;
        ebb_status status = open_session(NULL, &each, device, &session);
        if (status == EBB_E_NO_DEVICE && each.device > network->device) { return EBB_OK; }
        if (status != EBB_OK) { return status; }
        ebb_device_info *grown = realloc(f->devices, (f->n_devices + 1) * sizeof *grown);
        if (grown != NULL) {
            f->devices = grown;
            status = ebb_device_get_info(ebb_session_get_parts(session).device, &f->devices[f->n_devices++]);
        }
        ebb_session_close(session);
        if (grown == NULL) { status = EBB_E_NO_MEMORY; }
        if (status != EBB_OK) { return status; }
    }
}

/* The link between the device and a tier. */
static ebb_link link_to(const ebb_machine *machine, uint32_t tier) {
    ebb_link link = {0};
    (void)ebb_machine_link(machine, EBB_DEVICE, tier, &link);
    return link;
}

static void print_link(const char *name, ebb_link link, double both_bytes_per_s) {
    printf("%-8s out %8.2f GB/s, in %8.2f GB/s", name, link.out.bytes_per_s / 1e9, link.in.bytes_per_s / 1e9);
    if (both_bytes_per_s > 0.0) { printf(", both at once %8.2f GB/s", both_bytes_per_s / 1e9); }
    if (link.out.latency_ns > 0) { printf(", %" PRIu64 " ns a copy", link.out.latency_ns); }
    printf("\n");
}

/* What copies to and from the host and kernels leave each other. */
static void print_shares(const ebb_link *host) {
    const double *work = host->work_rate, *copy = host->copy_rate;
    char text[160];
    snprintf(text, sizeof text,
             "a copy, kernels keep %.0f %% of their speed (those bound by memory %.0f %%), the copy %.0f %% (%.0f %%)",
             100 * work[EBB_STEP_ARITHMETIC], 100 * work[EBB_STEP_TRAFFIC], 100 * copy[EBB_STEP_ARITHMETIC],
             100 * copy[EBB_STEP_TRAFFIC]);
    ebb__cli_print_words(stdout, (size_t)printf("beside   "), 9, text);
}

static void print_device(size_t number, const ebb_device_info *info, bool is_measured) {
    char capacity[32], context[32];
    printf("device %zu %s, %" PRId32 " threads, %s", number, info->name, info->n_threads,
           ebb_bytes_format(info->capacity_bytes, capacity, sizeof capacity));
    if (info->context_bytes > 0) {
        printf(", of it the context's %s", ebb_bytes_format(info->context_bytes, context, sizeof context));
    }
    printf("%s\n", is_measured ? "" : " (not measured)");
}

/* The link to other processes' memory; false: none was measured. */
static bool remote_link(const ebb_machine *machine, const ebb_cli_network *network, ebb_link *link_out) {
    if (network->lent == NULL) { return false; }
    *link_out = link_to(machine, ebb_topology_tier_of(ebb_machine_topology(machine), EBB_STORE_REMOTE));
    return true;
}

static void print_table(const findings *f, const ebb_machine *machine, const ebb_cli_network *network) {
    const ebb_link pageable = {.out.bytes_per_s = f->pageable.out_bytes_per_s,
                               .in.bytes_per_s = f->pageable.in_bytes_per_s};
    for (size_t i = 0; i < f->n_devices; i++) { print_device(i, &f->devices[i], i == f->measured); }
    const ebb_link host = link_to(machine, EBB_HOST);
    print_link("host", host, f->pinned.both_bytes_per_s);
    print_link("pageable", pageable, f->pageable.both_bytes_per_s);
    ebb_link remote;
    if (network->disk != NULL) { print_link("disk", link_to(machine, EBB_DISK), 0.0); }
    if (remote_link(machine, network, &remote)) { print_link("remote", remote, 0.0); }
    print_shares(&host);
}

static void print_json(const findings *f, const ebb_machine *machine, const ebb_cli_network *network) {
    ebb_link remote;
    const ebb_device_info *info = &f->devices[f->measured];
    ebb_link host = link_to(machine, EBB_HOST), disk = link_to(machine, EBB_DISK);
    ebb__json_begin();
    ebb__json_u64("schema_version", EBB_CLI_SCHEMA_VERSION);
    ebb__json_text("device", info->name);
    ebb__json_u64("devices", f->n_devices);
    ebb__json_u64("threads", (uint64_t)info->n_threads);
    ebb__json_u64("capacity_bytes", info->capacity_bytes);
    ebb__json_u64("context_bytes", info->context_bytes);
    ebb__json_f64("host_out_bytes_per_s", host.out.bytes_per_s);
    ebb__json_f64("host_in_bytes_per_s", host.in.bytes_per_s);
    ebb__json_u64("host_latency_ns", host.out.latency_ns);
    ebb__json_f64("host_both_bytes_per_s", f->pinned.both_bytes_per_s);
    ebb__json_f64("host_work_rate", host.work_rate[EBB_STEP_ARITHMETIC]);
    ebb__json_f64("host_copy_rate", host.copy_rate[EBB_STEP_ARITHMETIC]);
    ebb__json_f64("host_traffic_work_rate", host.work_rate[EBB_STEP_TRAFFIC]);
    ebb__json_f64("host_traffic_copy_rate", host.copy_rate[EBB_STEP_TRAFFIC]);
    ebb__json_f64("pageable_out_bytes_per_s", f->pageable.out_bytes_per_s);
    ebb__json_f64("pageable_in_bytes_per_s", f->pageable.in_bytes_per_s);
    ebb__json_f64("pageable_both_bytes_per_s", f->pageable.both_bytes_per_s);
    ebb__json_f64("disk_out_bytes_per_s", disk.out.bytes_per_s);
    ebb__json_f64("disk_in_bytes_per_s", disk.in.bytes_per_s);
    ebb__json_u64("disk_latency_ns", disk.out.latency_ns);
    if (remote_link(machine, network, &remote)) {
        ebb__json_f64("remote_out_bytes_per_s", remote.out.bytes_per_s);
        ebb__json_f64("remote_in_bytes_per_s", remote.in.bytes_per_s);
        ebb__json_f64("remote_both_rate", remote.both_rate);
        ebb__json_u64("remote_latency_ns", remote.out.latency_ns);
    }
    ebb__json_end();
}

static int probe(const probe_values *values, const ebb_cli_arguments *nets) {
    ebb_session *session = NULL;
    ebb_session_parts measured = {.device = NULL};
    findings found = {.devices = NULL};
    int code = EBB_EXIT_DONE;
    ebb__cli_warn_slow(&values->network);
    ebb__cli_catch_ends();
    ebb_status status = values->out != NULL ? ebb_path_check_writable(values->out) : EBB_OK;
    if (status == EBB_OK) { status = open_session(NULL, &values->network, NULL, &session); }
    if (status == EBB_OK) { measured = ebb_session_get_parts(session); }
    if (status == EBB_OK) { status = list_devices(&values->network, measured.device, &found); }
    if (status == EBB_OK) { status = measure(values, nets, &measured); }
    const bool is_ended = status == EBB_OK && is_caught(NULL);
    if (status == EBB_OK && !is_ended) {
        ebb__progress_tell("measuring copies", 0, 0);
        status = ebb_run_measure_copies(measured.device, UINT64_MAX, &found.pinned, &found.pageable);
    }
    if (status != EBB_OK) {
        code = ebb__cli_failed(status);
    } else if (is_ended) {
        code = end_by_signal(values);
    } else {
        ebb__progress_clear();
        if (values->json) {
            print_json(&found, measured.machine, &values->network);
        } else {
            print_table(&found, measured.machine, &values->network);
        }
        code = ebb__cli_close_output();
    }
    free(found.devices);
    ebb_session_close(session);
    return code;
}

static int run_probe(const ebb_cli_command *command, int argc, char **argv) {
    probe_values values = {.reps = 5};
    ebb_cli_arguments nets;
    int code = EBB_EXIT_DONE;
    ebb__cli_hush_lender(argc, argv);
    if (!ebb__cli_parse(command, argc, argv, &values, &nets, &code)) { return code; }
    if (!ebb__cli_check_threads(command, &values.network)) { return EBB_EXIT_USAGE; }
    if (values.reps == 0 || values.reps > 1000) { return ebb__cli_usage("probe: --reps is 1 to 1000"); }
    if (!ebb__cli_join(&values.network, &code)) { return code; }
    code = probe(&values, &nets);
    ebb__cli_leave(&values.network);
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
    .more_help = ebb__cli_print_networks,
    .computes = true,
};
