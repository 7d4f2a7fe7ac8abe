/* SPDX-License-Identifier: Apache-2.0
 *
 * A session's options from those of the command line, the names that the library knows, and what is said when a budget
 * is too small.
 */
#include "cli.h"

#include <inttypes.h>
#include <sched.h>
#include <string.h>

#define THREADS_A_PROCESSOR 4

ebb_status ebb__cli_session_options(const char *net, const ebb_cli_network *network, ebb_session_options *options_io) {
    ebb_session_options options = *options_io;
    options.net = net;
    options.batch = network->batch;
    options.channels = network->channels;
    options.height = network->image.height;
    options.width = network->image.width;
    options.classes = network->classes;
    options.no_dropout = network->no_dropout;
    options.backend = network->backend;
    options.n_threads = (int32_t)network->threads;
    options.device_index = network->device < INT32_MAX ? (int32_t)network->device : INT32_MAX;
    options.tf32 = network->tf32;
    options.nondeterministic = network->fast_algorithms;
    options.no_capture = network->no_capture;
    options.feed = network->feed;
    options.machine_path = network->machine;
    options.budget_bytes = network->memory.bytes;
    options.budget_percent = network->memory.percent;
    options.host_bytes = network->host_memory != UINT64_MAX ? network->host_memory : 0;
    options.no_slab = network->host_memory == 0;
    options.within_free = network->runs_here || network->machine == NULL;
    options.disk_dir = network->disk;
    options.io = network->io;
    options.remote = network->lent;
    options.remote_bytes = network->lent != NULL ? ebb_remote_bytes(network->lent) : network->remote;
    options.policy = network->policy;
    options.algorithms = network->algorithms;
    options.accounting = network->accounting;
    options.effort = network->effort < UINT32_MAX ? (uint32_t)network->effort : UINT32_MAX;
    options.plan_threads = ebb__cli_count_processors();
    options.no_recompute = network->no_recompute;
    options.as_coded = network->as_coded;
    options.slowdown = network->slowdown.is_given ? network->slowdown.percent / 100 : -1;
    options.margin = network->margin.percent / 100;
    options.progress = ebb__progress();
    ebb_status status = EBB_OK;
    if (net != NULL && network->optimizer != NULL) {
        status = ebb_optimizer_parse(network->optimizer, &options.optimizer.kind);
    }
    if (status == EBB_OK) { *options_io = options; }
    return status;
}

uint32_t ebb__cli_count_processors(void) {
    cpu_set_t set;
    return sched_getaffinity(0, sizeof set, &set) == 0 ? (uint32_t)CPU_COUNT(&set) : 1;
}

bool ebb__cli_check_threads(const ebb_cli_command *command, const ebb_cli_network *network) {
    cpu_set_t set;
    if (sched_getaffinity(0, sizeof set, &set) != 0) { return true; } /* more processors than the set has room for */
    const int64_t limit = (int64_t)THREADS_A_PROCESSOR * CPU_COUNT(&set);
    if (network->threads <= limit) { return true; }
    ebb__cli_usage("%s: --threads takes at most %" PRId64 " here, %d for each processor, not %" PRId64, command->name,
                   limit, THREADS_A_PROCESSOR, network->threads);
    return false;
}

void ebb__cli_warn_slow(const ebb_cli_network *network) {
    const char *chosen = ebb_backend_name(0, NULL);
    if (network->backend != NULL || chosen == NULL || strcmp(chosen, "ref") != 0) { return; }
    ebb__cli_say(
        "warning: this build has no backend cpu, because oneDNN 3 was not found; ref computes instead, which is "
        "far slower. Run tools/demo.sh, or install oneDNN 3 and run make again");
}

static void print_list(FILE *out, const char *title, const char *(*name)(size_t idx, const char **about_out)) {
    fprintf(out, "\n%s:\n", title);
    const char *about = "";
    for (size_t i = 0; name(i, &about) != NULL; i++) { ebb__cli_print_about(out, 18, name(i, NULL), about); }
}

void ebb__cli_print_networks(FILE *out) {
    print_list(out, "networks", ebb_zoo_name);
    print_list(out, "backends (the first is the default)", ebb_backend_name);
}

void ebb__cli_print_names(FILE *out) {
    print_list(out, "networks", ebb_zoo_name);
    print_list(out, "policies", ebb_policy_name);
    print_list(out, "ways to choose algorithms (given is the default)", ebb_algorithms_name);
    print_list(out, "backends (the first is the default)", ebb_backend_name);
}

#define MOST_PERCENT 100u /* a budget of no more bytes was to be this many per cent */

/* Write what to type so that it fits to buf; NULL: not known. */
static const char *remedy(const ebb_no_fit *no_fit, char *buf, size_t buf_bytes) {
    char text[24];
    const bool is_host = no_fit->least_host_bytes > 0;
    const uint64_t bytes = is_host ? no_fit->least_host_bytes : no_fit->least_budget_bytes;
    if (bytes == 0) { return NULL; }
    snprintf(buf, buf_bytes, "%s %s", is_host ? "--host-memory" : "--memory",
             ebb_bytes_round_up(bytes, text, sizeof text));
    return buf;
}

static void print_no_fit(const ebb_no_fit *no_fit, const char *step_name, const char *option) {
    ebb__json_begin();
    ebb__json_u64("schema_version", EBB_CLI_SCHEMA_VERSION);
    ebb__json_text("error", ebb_last_error());
    ebb__json_text("remedy", option);
    if (no_fit->least_host_bytes > 0) {
        ebb__json_text("least_budget_bytes", NULL);
        ebb__json_text("step", NULL);
        ebb__json_u64("least_host_bytes", no_fit->least_host_bytes);
    } else {
        ebb__json_u64("least_budget_bytes", no_fit->least_budget_bytes);
        ebb__json_text("step", no_fit->step_bytes > 0 ? step_name : NULL);
        ebb__json_u64("step_bytes", no_fit->step_bytes);
    }
    ebb__json_end();
}

int ebb__cli_no_fit(const ebb_cli_network *network, const ebb_no_fit *no_fit, const char *step_name, bool as_json) {
    char buf[64], slip[96] = "";
    const uint64_t bytes = network->memory.bytes;
    if (bytes > 0 && bytes <= MOST_PERCENT) {
        snprintf(slip, sizeof slip, "did you mean --memory %" PRIu64 "%%? ", bytes);
    }
    const char *option = remedy(no_fit, buf, sizeof buf);
    if (option != NULL) { ebb__cli_say("%sit needs %s or more: %s", slip, option, ebb_last_error()); }
    const int code = option != NULL ? ebb__cli_exit_code(EBB_E_NO_FIT) : ebb__cli_failed(EBB_E_NO_FIT);
    if (as_json) { print_no_fit(no_fit, step_name, option); }
    return code;
}
