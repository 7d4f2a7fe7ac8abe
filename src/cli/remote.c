/* SPDX-License-Identifier: Apache-2.0
 *
 * `--remote SIZE`: of the processes that mpirun starts, all with the same command line, the first one does the work,
 * and the others lend it their memory until it is done. They say nothing that the first one says too.
 */
#include "cli.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define OPTION "--remote"

/* By what MPI's launchers tell a process before it calls MPI. */
static bool is_lender(int argc, char **argv) {
    static const char *const ranks[] = {"OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK"};
    const char *rank = NULL;
    bool has_option = false;
    for (size_t i = 0; i < sizeof ranks / sizeof ranks[0] && rank == NULL; i++) { rank = getenv(ranks[i]); }
    for (int i = 1; i < argc; i++) {
        const size_t n = strlen(OPTION);
        has_option = has_option || (strncmp(argv[i], OPTION, n) == 0 && (argv[i][n] == '\0' || argv[i][n] == '='));
    }
    return has_option && rank != NULL && atoi(rank) > 0;
}

static int held_stderr = -1;

void ebb__cli_hush_lender(int argc, char **argv) {
    if (!is_lender(argc, argv)) { return; }
    const int nothing = open("/dev/null", O_WRONLY | O_CLOEXEC);
    held_stderr = dup(STDERR_FILENO);
    if (nothing < 0 || held_stderr < 0) { return; }
    (void)dup2(nothing, STDOUT_FILENO);
    (void)dup2(nothing, STDERR_FILENO);
    (void)close(nothing);
}

/* What goes wrong in a lender from here on, rank 0 need not know. */
static void speak_again(void) {
    if (held_stderr < 0) { return; }
    (void)dup2(held_stderr, STDERR_FILENO);
    (void)close(held_stderr);
    held_stderr = -1;
}

/* Open MPI gives each of two processes one processor. */
static void warn_of_binding(void) {
    const long n_all = sysconf(_SC_NPROCESSORS_ONLN);
    const uint32_t n = ebb__cli_count_processors();
    if (n_all <= 1 || n > 1 || getenv("OMPI_COMM_WORLD_RANK") == NULL) { return; }
    ebb__cli_say(
        "warning: mpirun has bound this process to one processor of %ld; with mpirun --bind-to none it has all", n_all);
}

bool ebb__cli_join(ebb_cli_network *network, int *exit_out) {
    speak_again();
    if (network->remote == 0) { return true; }
    const ebb_status status = ebb_remote_open_mpi(NULL, network->remote, &network->lent);
    if (status == EBB_OK && network->lent != NULL) {
        warn_of_binding();
        return true;
    }
    *exit_out = status == EBB_OK ? EBB_EXIT_DONE : ebb__cli_failed(status);
    return false;
}

void ebb__cli_leave(ebb_cli_network *network) {
    ebb_remote_destroy(network->lent);
    network->lent = NULL;
}
