/* SPDX-License-Identifier: Apache-2.0
 *
 * `ebb record`: another program's large allocations as a trace, through a library that is preloaded into it
 * (src/preload). With a limit the program finds itself on a smaller machine.
 *
 * The exit code is the command's: whether a program gets along with less memory is what a limit asks, and only the
 * program knows. 128 + a signal's number where one ended it, 127 and 126 as shells have them.
 */
#include "cli.h"

#include <dlfcn.h>
#include <errno.h>
#include <glob.h>
#include <inttypes.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define MAX_PATH_BYTES ((size_t)4096)
#define LIBRARY "libebb_record.so"

enum { EXIT_CANNOT_RUN = 126, EXIT_NOT_FOUND = 127, EXIT_SIGNAL = 128 };

typedef struct record_values {
    const char *out;
    uint64_t limit, min_size, stacks;
} record_values;

#define AT(member) offsetof(record_values, member)
static const ebb_cli_option record_options[] = {
    {"-o", EBB_CLI_TEXT, AT(out), "OUT.trace", "where the trace goes; must be given. Other processes: OUT.trace.PID"},
    {"--limit", EBB_CLI_BYTES, AT(limit), "SIZE",
     "refuse what goes beyond: of each CUDA device where one is used, else of the host"},
    {"--min-size", EBB_CLI_BYTES, AT(min_size), "SIZE", "leave out smaller allocations (64KiB)"},
    {"--stacks", EBB_CLI_COUNT, AT(stacks), "N", "callers of each allocation, at most 32 (16)"},
};

/* ---- the library and its environment ------------------------------------------------------------ */

static int fail_errno(const char *what) {
    fprintf(stderr, "ebb: record: %s: %s\n", what, strerror(errno));
    return EBB_EXIT_IO;
}

/* It lies beside libebb.so. */
static bool find_library(char *path, size_t n_bytes) {
    Dl_info info;
    const void *symbol = dlsym(RTLD_DEFAULT, "ebb_version");
    if (symbol == NULL || dladdr(symbol, &info) == 0) { return false; }
    char *library = realpath(info.dli_fname, NULL);
    if (library == NULL) { return false; }
    char *slash = strrchr(library, '/');
    const int n = snprintf(path, n_bytes, "%.*s/%s", (int)(slash - library), library, LIBRARY);
    free(library);
    return n > 0 && (size_t)n < n_bytes && access(path, R_OK) == 0;
}

/* A path that means the same wherever the command goes. */
static bool make_absolute(const char *path, char *absolute, size_t n_bytes) {
    char cwd[MAX_PATH_BYTES] = "";
    if (path[0] != '/' && getcwd(cwd, sizeof cwd - 1) == NULL) { return false; }
    const int n = snprintf(absolute, n_bytes, "%s%s%s", cwd, path[0] != '/' ? "/" : "", path);
    return n > 0 && (size_t)n < n_bytes;
}

static void set_number(const char *name, uint64_t value) {
    char text[32];
    if (value == 0) {
        (void)unsetenv(name);
        return;
    }
    snprintf(text, sizeof text, "%" PRIu64, value);
    (void)setenv(name, text, 1);
}

static void set_environment(const record_values *values, const char *library, const char *out) {
    char preload[2 * MAX_PATH_BYTES];
    const char *others = getenv("LD_PRELOAD");
    snprintf(preload, sizeof preload, "%s%s%s", library, others != NULL ? ":" : "", others != NULL ? others : "");
    (void)setenv("LD_PRELOAD", preload, 1);
    (void)setenv("EBB_RECORD_OUT", out, 1);
    set_number("EBB_RECORD_LIMIT", values->limit);
    set_number("EBB_RECORD_MIN_SIZE", values->min_size);
    (void)unsetenv("EBB_RECORD_STACKS");
    char stacks[32];
    snprintf(stacks, sizeof stacks, "%" PRIu64, values->stacks);
    if (values->stacks != UINT64_MAX) { (void)setenv("EBB_RECORD_STACKS", stacks, 1); }
}

/* ---- the command --------------------------------------------------------------------------------- */

static volatile sig_atomic_t child_pid;

static void hand_on(int number) {
    if (child_pid > 0) { (void)kill((pid_t)child_pid, number); }
}

/* The terminal's signals reach the command by themselves; of others only we know. */
static void set_signals(void) {
    struct sigaction ignore = {.sa_handler = SIG_IGN}, hand = {.sa_handler = hand_on};
    sigemptyset(&ignore.sa_mask);
    sigemptyset(&hand.sa_mask);
    hand.sa_flags = SA_RESTART;
    (void)sigaction(SIGINT, &ignore, NULL);
    (void)sigaction(SIGQUIT, &ignore, NULL);
    (void)sigaction(SIGTERM, &hand, NULL);
    (void)sigaction(SIGHUP, &hand, NULL);
}

static _Noreturn void become(char **command) {
    (void)signal(SIGXFSZ, SIG_DFL); /* as it was before this program */
    (void)execvp(command[0], command);
    const int cause = errno;
    fprintf(stderr, "ebb: record: cannot run %s: %s\n", command[0], strerror(cause));
    _exit(cause == ENOENT ? EXIT_NOT_FOUND : EXIT_CANNOT_RUN);
}

static int run_command(char **command) {
    const pid_t pid = fork();
    if (pid < 0) { return fail_errno("fork"); }
    if (pid == 0) { become(command); }
    child_pid = pid;
    set_signals();
    int status = 0;
    while (waitpid(pid, &status, 0) < 0) {
        if (errno != EINTR) { return fail_errno("wait"); }
    }
    child_pid = 0;
    return WIFEXITED(status) ? WEXITSTATUS(status) : EXIT_SIGNAL + WTERMSIG(status);
}

/* ---- what came out -------------------------------------------------------------------------------- */

typedef struct totals {
    uint64_t n_blocks, peak_bytes, n_refused;
    bool complete;
} totals;

static ebb_status add_up(ebb_trace_reader *reader, totals *t) {
    bool done = false;
    for (;;) {
        ebb_trace_event event;
        ebb_status status = ebb_trace_reader_next(reader, &event, &done);
        if (status != EBB_OK) { return status; }
        if (done) { break; }
        const uint64_t live_bytes = ebb_trace_reader_info(reader).live_bytes;
        if (live_bytes > t->peak_bytes) { t->peak_bytes = live_bytes; }
        t->n_refused += event.kind == EBB_TRACE_MARK;
    }
    t->n_blocks = ebb_trace_reader_info(reader).n_blocks;
    t->complete = ebb_trace_reader_info(reader).complete;
    return EBB_OK;
}

static void tell_trace(const char *path, uint64_t limit) {
    ebb_trace_reader *reader = NULL;
    totals t = {0};
    char peak[32], most[32];
    ebb_status status = ebb_trace_reader_open(NULL, path, &reader);
    if (status == EBB_OK) { status = add_up(reader, &t); }
    if (status != EBB_OK) {
        (void)ebb__cli_failed(status);
    } else {
        const char *command = ebb_trace_reader_note(reader, "command");
        fprintf(stderr, "ebb: record: %s: %" PRIu64 " blocks, at most %s at once%s: %.60s\n", path, t.n_blocks,
                ebb_bytes_format(t.peak_bytes, peak, sizeof peak), t.complete ? "" : ", cut off",
                command != NULL ? command : "");
    }
    if (t.n_refused > 0) {
        fprintf(stderr, "ebb: record: %s: %" PRIu64 " allocation%s past the limit of %s %s refused\n", path,
                t.n_refused, t.n_refused == 1 ? "" : "s", ebb_bytes_format(limit, most, sizeof most),
                t.n_refused == 1 ? "was" : "were");
    }
    ebb_trace_reader_close(reader);
}

/* A command that allocated nothing large has a trace, too: an empty one. */
static int write_empty(const char *out) {
    ebb_trace_writer *writer = NULL;
    ebb_trace_writer_options options = EBB_TRACE_WRITER_OPTIONS_INIT;
    options.tells = EBB_TRACE_TELLS_TIMES | EBB_TRACE_TELLS_ADDRESSES;
    ebb_status status = ebb_trace_writer_open(out, &options, &writer);
    if (status != EBB_OK) { return ebb__cli_failed(status); }
    (void)ebb_trace_writer_note(writer, "source", "ebb record");
    status = ebb_trace_writer_close(writer);
    if (status != EBB_OK) { return ebb__cli_failed(status); }
    fprintf(stderr,
            "ebb: record: %s is empty: the command allocated nothing large, or takes no LD_PRELOAD (it is "
            "static, or runs with other rights)\n",
            out);
    return EBB_EXIT_DONE;
}

static void tell_others(const char *out, uint64_t limit, const struct timespec *start) {
    char pattern[MAX_PATH_BYTES + 16];
    glob_t found;
    snprintf(pattern, sizeof pattern, "%s.[0-9]*", out);
    if (glob(pattern, 0, NULL, &found) != 0) { return; }
    for (size_t i = 0; i < found.gl_pathc; i++) {
        struct stat info;
        const bool is_new = stat(found.gl_pathv[i], &info) == 0 && info.st_mtim.tv_sec >= start->tv_sec;
        if (is_new) { tell_trace(found.gl_pathv[i], limit); }
    }
    globfree(&found);
}

static int record(const record_values *values, char **command) {
    char library[MAX_PATH_BYTES], out[MAX_PATH_BYTES];
    struct timespec start;
    if (!find_library(library, sizeof library)) {
        fprintf(stderr, "ebb: record: there is no %s beside libebb.so\n", LIBRARY);
        return EBB_EXIT_IO;
    }
    if (!make_absolute(values->out, out, sizeof out)) { return fail_errno(values->out); }
    if (unlink(out) != 0 && errno != ENOENT) { return fail_errno(values->out); }
    (void)clock_gettime(CLOCK_REALTIME, &start);
    set_environment(values, library, out);
    const int code = run_command(command);
    if (access(out, F_OK) == 0) {
        tell_trace(out, values->limit);
        tell_others(out, values->limit, &start);
    } else if (code < EXIT_CANNOT_RUN || code > EXIT_NOT_FOUND) {
        const int written = write_empty(out);
        return code == 0 ? written : code;
    }
    return code;
}

/* What is there goes before the command runs, so it must be a recording's place: no device, and nothing of the
 * command's own. */
static int check_out(const char *out, char **command) {
    struct stat info;
    if (stat(out, &info) == 0 && !S_ISREG(info.st_mode) && !S_ISDIR(info.st_mode)) {
        return ebb__cli_usage("record: %s is no file", out);
    }
    for (size_t i = 0; command[i] != NULL; i++) {
        if (access(out, F_OK) == 0 && ebb__cli_is_same_file(out, command[i])) {
            return ebb__cli_usage("record: %s is the command's, and would be replaced", out);
        }
    }
    const ebb_status status = ebb_path_check_writable(out);
    return status == EBB_OK ? EBB_EXIT_DONE : ebb__cli_failed(status);
}

static int run(const ebb_cli_command *command, int argc, char **argv) {
    record_values values = {.stacks = UINT64_MAX};
    ebb_cli_arguments arguments;
    int end = 1, exit_code = EBB_EXIT_DONE;
    while (end < argc && strcmp(argv[end], "--") != 0) { end++; }
    char *behind = end < argc ? argv[end] : NULL;
    argv[end] = NULL; /* an option there takes no value from behind */
    if (!ebb__cli_parse(command, end, argv, &values, &arguments, &exit_code)) { return exit_code; }
    if (values.out == NULL) { return ebb__cli_usage("record: say where the trace goes: -o OUT.trace"); }
    if (behind == NULL || end + 1 >= argc) {
        return ebb__cli_usage("record: say which command, behind --; see ebb record --help");
    }
    exit_code = check_out(values.out, argv + end + 1);
    return exit_code == EBB_EXIT_DONE ? record(&values, argv + end + 1) : exit_code;
}

static void more_help(void) {
    printf(
        "\nThe exit code is COMMAND's; 128 + a signal's number when one ended it, 127 when it was not found, 126 when\n"
        "it cannot be run.\n");
}

const ebb_cli_command ebb__cli_record = {
    .name = "record",
    .arguments = "-o OUT.trace [--limit SIZE] -- COMMAND...",
    .about = "record the large allocations of any program, of the host and of CUDA devices",
    .options = record_options,
    .n_options = sizeof record_options / sizeof record_options[0],
    .n_arguments_max = 0,
    .run = run,
    .more_help = more_help,
};
