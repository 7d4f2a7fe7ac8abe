/* SPDX-License-Identifier: Apache-2.0
 *
 * `ebb record`: another program's large allocations as a trace, through a library that is preloaded into it
 * (src/preload). With a limit the program finds itself on a smaller machine.
 *
 * The exit code is the command's: whether a program gets along with less memory is what a limit asks, and only the
 * program knows. 128 + a signal's number where one ended it, 127 and 126 as shells have them.
 */
#include "cli.h"

#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define MAX_PATH_BYTES ((size_t)4096)
#define LIBRARY "libebb_record.so"
#define NAMES "libebb_names.so" /* where the build had libdw */
#define NAMES_ENTRY "ebb_names_find"
#define NAMES_SECONDS 120u
#define SAYS "ebb-record"      /* the name of the file that the library tells us by (src/preload/preload.h) */
#define MERGED ".merged"       /* added to its name while it is rewritten */
#define CALLERS_NOTE "callers" /* a trace whose callers have no names yet (docs/trace-format.md) */
#define STEPS ".steps"         /* added to a trace's name: what the library tells besides */
#define MAX_LINKS 40
#define MOST_SHOWN ((size_t)64) /* characters of the command */

#define MOST_PICKED 9999u
#define MAX_CALLERS 32u
#define MAX_SUFFIX_BYTES ((size_t)19) /* ".PID.N.merged" after the name, while steps are put into it */
#define LEAST_FILE_BYTES ((rlim_t)1024)

enum { EXIT_CANNOT_RUN = 126, EXIT_NOT_FOUND = 127, EXIT_SIGNAL = 128 };

typedef struct record_values {
    const char *out;
    uint64_t limit, min_size, stacks;
    bool no_kernels;
} record_values;

#define AT(member) offsetof(record_values, member)
static const ebb_cli_option record_options[] = {
    {"-o", EBB_CLI_TEXT, AT(out), "OUT.trace",
     "where the trace goes (COMMAND.trace, or COMMAND-2.trace where that is there); of other processes to "
     "OUT.trace.PID"},
    {"--limit", EBB_CLI_BYTES, AT(limit), "SIZE",
     "refuse what goes beyond: of each CUDA device where one is used, else of the host. It counts "
     "what is recorded: nothing below --min-size, no files, no stacks"},
    {"--min-size", EBB_CLI_BYTES, AT(min_size), "SIZE", "leave out smaller allocations (64KiB)"},
    {"--stacks", EBB_CLI_COUNT, AT(stacks), "N", "callers of each allocation, at most 32 (16)"},
    {"--no-kernels", EBB_CLI_FLAG, AT(no_kernels), NULL, "leave CUPTI alone: no kernels and copies of CUDA devices"},
};

/* ---- the library and its environment ------------------------------------------------------------ */

static int fail_errno(const char *what) {
    const int cause = errno;
    ebb__cli_say("record: %s: %s", what, strerror(cause));
    return EBB_EXIT_IO;
}

/* It lies beside libebb.so. */
static bool find_library(const char *name, char *path, size_t n_bytes) {
    Dl_info info;
    const void *symbol = dlsym(RTLD_DEFAULT, "ebb_version");
    if (symbol == NULL || dladdr(symbol, &info) == 0) { return false; }
    char *library = realpath(info.dli_fname, NULL);
    if (library == NULL) { return false; }
    char *slash = strrchr(library, '/');
    const int n = snprintf(path, n_bytes, "%.*s/%s", (int)(slash - library), library, name);
    free(library);
    return n > 0 && (size_t)n < n_bytes && access(path, R_OK) == 0;
}

/* to = the folder of what is there now, then name; or name alone where it begins at the root. */
static bool set_name(char *to, size_t n_bytes, const char *name) {
    char *slash = strrchr(to, '/');
    const size_t n_kept = name[0] == '/' || slash == NULL ? 0 : (size_t)(slash - to) + 1;
    const int n = snprintf(to + n_kept, n_bytes - n_kept, "%s", name);
    errno = ENAMETOOLONG;
    return n >= 0 && (size_t)n < n_bytes - n_kept;
}

/* A path that means the same wherever the command goes, and where its links end: they stay, and what they name is
 * written, be it there or not. false: errno says why. */
static bool find_place(const char *path, char *place, size_t n_bytes) {
    char target[MAX_PATH_BYTES];
    place[0] = '\0';
    if (path[0] != '/') {
        if (getcwd(place, n_bytes - 1) == NULL) { return false; }
        strcat(place, "/"); /* there is room for it */
    }
    if (!set_name(place, n_bytes, path)) { return false; }
    for (int i = 0; i < MAX_LINKS; i++) {
        const ssize_t n = readlink(place, target, sizeof target - 1);
        if (n < 0) { return true; } /* no link, or nothing there */
        target[n] = '\0';
        if (!set_name(place, n_bytes, target)) { return false; }
    }
    errno = ELOOP;
    return false;
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

static void set_environment(const record_values *values, const char *library, const char *out, int says) {
    char preload[2 * MAX_PATH_BYTES], says_path[64];
    const char *others = getenv("LD_PRELOAD");
    snprintf(preload, sizeof preload, "%s%s%s", library, others != NULL ? ":" : "", others != NULL ? others : "");
    (void)setenv("LD_PRELOAD", preload, 1);
    (void)setenv("EBB_RECORD_OUT", out, 1);
    snprintf(says_path, sizeof says_path, "/proc/%ld/fd/%d", (long)getpid(), says);
    (void)setenv("EBB_RECORD_SAYS", says_path, 1);
    set_number("EBB_RECORD_LIMIT", values->limit);
    set_number("EBB_RECORD_MIN_SIZE", values->min_size);
    set_number("EBB_RECORD_NO_KERNELS", values->no_kernels);
    (void)unsetenv("EBB_RECORD_STACKS");
    char stacks[32];
    snprintf(stacks, sizeof stacks, "%" PRIu64, values->stacks);
    if (values->stacks != UINT64_MAX) { (void)setenv("EBB_RECORD_STACKS", stacks, 1); }
}

/* ---- the command --------------------------------------------------------------------------------- */

static volatile sig_atomic_t child_pid;

/* The terminal's signals reach the command by themselves; of others only we know. */
static void hand_on(int number, siginfo_t *info, void *context) {
    (void)context;
    if (child_pid > 0 && info->si_code != SI_KERNEL) { (void)kill((pid_t)child_pid, number); }
}

static const int handed_on[] = {SIGINT, SIGQUIT, SIGTERM, SIGHUP};

static void set_signals(void) {
    struct sigaction hand = {.sa_sigaction = hand_on, .sa_flags = SA_RESTART | SA_SIGINFO};
    sigemptyset(&hand.sa_mask);
    for (size_t i = 0; i < sizeof handed_on / sizeof handed_on[0]; i++) { ebb__cli_catch(handed_on[i], &hand); }
}

/* Why this file cannot be run; 0: it can. */
static int why_not(const char *path) {
    struct stat info;
    if (stat(path, &info) != 0) { return errno; }
    return S_ISREG(info.st_mode) && access(path, X_OK) == 0 ? 0 : EACCES;
}

/* The same of a command, looked for as execvp does, before anything is replaced. */
static int why_no_command(const char *command) {
    const char *folders = getenv("PATH");
    char path[MAX_PATH_BYTES];
    int cause = ENOENT;
    if (strchr(command, '/') != NULL) { return why_not(command); }
    for (const char *at = folders != NULL ? folders : "/bin:/usr/bin"; *command != '\0' && at != NULL;) {
        const int n = (int)strcspn(at, ":");
        snprintf(path, sizeof path, "%.*s%s%s", n, at, n > 0 ? "/" : "", command);
        const int here = why_not(path);
        if (here == 0) { return 0; }
        if (here == EACCES) { cause = EACCES; }
        at = at[n] == ':' ? at + n + 1 : NULL;
    }
    return cause;
}

static int say_cannot_run(const char *command, int cause) {
    ebb__cli_say("record: cannot run %s: %s", command, strerror(cause));
    return cause == ENOENT ? EXIT_NOT_FOUND : EXIT_CANNOT_RUN;
}

/* The pipe says why not; where the command runs it is closed without a word. */
static _Noreturn void become(char **command, int pipe_fd, const sigset_t *signals) {
    (void)signal(SIGXFSZ, SIG_DFL); /* as it was before this program */
    (void)sigprocmask(SIG_SETMASK, signals, NULL);
    (void)execvp(command[0], command);
    const int cause = errno;
    const ssize_t n = write(pipe_fd, &cause, sizeof cause);
    _exit(n == sizeof cause ? EXIT_CANNOT_RUN : EXIT_NOT_FOUND);
}

/* Start it, with signals held back until they are handed on. false: *cause_out says why not. */
static bool start_command(char **command, int *cause_out) {
    int ends[2];
    sigset_t all, before;
    *cause_out = 0;
    if (pipe2(ends, O_CLOEXEC) != 0) {
        *cause_out = errno;
        return false;
    }
    sigfillset(&all);
    (void)sigprocmask(SIG_BLOCK, &all, &before);
    const pid_t pid = fork();
    if (pid == 0) { become(command, ends[1], &before); }
    if (pid < 0) { *cause_out = errno; }
    (void)close(ends[1]);
    child_pid = pid;
    set_signals();
    (void)sigprocmask(SIG_SETMASK, &before, NULL);
    while (pid > 0 && read(ends[0], cause_out, sizeof *cause_out) < 0 && errno == EINTR) {}
    (void)close(ends[0]);
    return *cause_out == 0;
}

/* Its exit code; *has_run_out: it is the command's. */
static int run_command(char **command, bool *has_run_out) {
    int cause = 0, status = 0;
    *has_run_out = start_command(command, &cause);
    if (child_pid < 0) { return fail_errno("fork"); }
    while (child_pid > 0 && waitpid((pid_t)child_pid, &status, 0) < 0) {
        if (errno != EINTR) { return fail_errno("wait"); }
    }
    child_pid = 0;
    if (!*has_run_out) { return say_cannot_run(command[0], cause); }
    return WIFEXITED(status) ? WEXITSTATUS(status) : EXIT_SIGNAL + WTERMSIG(status);
}

/* ---- what came out -------------------------------------------------------------------------------- */

typedef struct totals {
    uint64_t n_blocks, peak_bytes, n_refused;
    bool complete, has_device, has_addresses;
} totals;

static bool is_device(const ebb_trace_reader *reader, uint32_t space) {
    char key[32];
    snprintf(key, sizeof key, "space.%" PRIu32, space);
    const char *name = ebb_trace_reader_note(reader, key);
    return name != NULL && strncmp(name, "cuda:", strlen("cuda:")) == 0;
}

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
        t->has_device |= event.kind == EBB_TRACE_ALLOC && is_device(reader, event.space);
    }
    t->n_blocks = ebb_trace_reader_info(reader).n_blocks;
    t->complete = ebb_trace_reader_info(reader).complete;
    t->has_addresses = ebb_trace_reader_note(reader, CALLERS_NOTE) != NULL;
    return EBB_OK;
}

/* What the library told beside the trace, of kernels and copies, goes into it; not while its process may write on. */
static void add_steps(const char *path, bool may_run) {
    char steps[MAX_PATH_BYTES];
    uint64_t n_steps = 0, n_lost = 0;
    const int n = snprintf(steps, sizeof steps, "%s" STEPS, path);
    if (n < 0 || (size_t)n >= sizeof steps || access(steps, F_OK) != 0) { return; }
    if (may_run) {
        ebb__cli_say("record: %s" STEPS " has its kernels and copies: its process may still run", path);
        return;
    }
    ebb__progress_tell("adding kernels and copies", 0, 0);
    const ebb_status status = ebb_trace_add_late_steps(NULL, path, steps, &n_steps, &n_lost);
    ebb__progress_clear();
    if (status != EBB_OK) {
        (void)ebb__cli_failed(status); /* both files stay as they are */
        return;
    }
    (void)unlink(steps);
    char lost[48] = "";
    if (n_lost > 0) { snprintf(lost, sizeof lost, ", %" PRIu64 " were lost", n_lost); }
    ebb__cli_say("record: %s: %" PRIu64 " kernels and copies%s", path, n_steps, lost);
}

/* Without the plug-in functions keep the names that the recorder knew. */
static int name_callers(const char *path) {
    char plugin[MAX_PATH_BYTES];
    ebb_trace_find_sources find = NULL;
    void *names = NULL;
    (void)unsetenv("DEBUGINFOD_URLS"); /* nothing comes over the network */
    (void)alarm(NAMES_SECONDS);
    if (find_library(NAMES, plugin, sizeof plugin)) {
        void *library = dlopen(plugin, RTLD_NOW | RTLD_LOCAL);
        void *entry = library != NULL ? dlsym(library, NAMES_ENTRY) : NULL;
        memcpy(&find, &entry, sizeof find);
    }
    const ebb_status status = ebb_trace_name_callers(NULL, path, find, &names);
    return status == EBB_OK ? EBB_EXIT_DONE : ebb__cli_failed(status);
}

/* The callers get their names in a process of its own: the files that have them are anyone's, and one that is damaged
 * may end it. Then they stay addresses in their files. */
static void add_names(const char *path) {
    char merged[MAX_PATH_BYTES];
    int status = 0;
    const pid_t pid = fork();
    if (pid == 0) { _exit(name_callers(path)); }
    ebb__progress_tell("naming callers", 0, 0);
    while (pid > 0 && waitpid(pid, &status, 0) < 0 && errno == EINTR) {}
    ebb__progress_clear();
    if (pid > 0 && !WIFSIGNALED(status)) { return; } /* it has said what went wrong */
    snprintf(merged, sizeof merged, "%s" MERGED, path);
    (void)unlink(merged);
    ebb__cli_say("record: %s: %s; its callers stay addresses in their files", path,
                 pid < 0                       ? strerror(errno)
                 : WTERMSIG(status) == SIGALRM ? "reading debug information took too long"
                                               : "debug information could not be read");
}

/* *has_device becomes true where there are blocks of a device. EBB_EXIT_IO: there is no trace in the file. */
static int tell_trace(const char *path, uint64_t limit, bool any_runs, bool *has_device) {
    ebb_trace_reader *reader = NULL;
    totals t = {0};
    char peak[32], most[32], shown_command[MAX_PATH_BYTES];
    ebb__progress_tell("reading the trace", 0, 0);
    ebb_status status = ebb_trace_reader_open(NULL, path, &reader);
    if (status == EBB_OK) { status = add_up(reader, &t); }
    ebb__progress_clear();
    if (status != EBB_OK) {
        (void)ebb__cli_failed(status);
    } else {
        const char *command = ebb_trace_reader_note(reader, "command");
        ebb__cli_say("record: %s: %" PRIu64 " blocks, at most %s at once%s: %s", path, t.n_blocks,
                     ebb_bytes_format(t.peak_bytes, peak, sizeof peak), t.complete ? "" : ", cut off",
                     ebb__cli_shorten(command != NULL ? command : "", MOST_SHOWN, shown_command, sizeof shown_command));
    }
    if (t.n_refused > 0) {
        ebb__cli_say("record: %s: %" PRIu64 " allocation%s past the limit of %s %s refused", path, t.n_refused,
                     t.n_refused == 1 ? "" : "s", ebb_bytes_format(limit, most, sizeof most),
                     t.n_refused == 1 ? "was" : "were");
    }
    *has_device |= t.has_device;
    ebb_trace_reader_close(reader);
    const bool may_run = any_runs && !t.complete;
    if (status == EBB_OK) { add_steps(path, may_run); }
    if (status == EBB_OK && t.has_addresses && !may_run) { add_names(path); }
    return status == EBB_OK ? EBB_EXIT_DONE : EBB_EXIT_IO;
}

/* A command that allocated nothing large has a trace, too: an empty one. One that failed may have other reasons. */
static int write_empty(const char *out, int code, size_t n_running) {
    ebb_trace_writer *writer = NULL;
    ebb_trace_writer_options options = EBB_TRACE_WRITER_OPTIONS_INIT;
    options.tells = EBB_TRACE_TELLS_TIMES | EBB_TRACE_TELLS_ADDRESSES;
    ebb_status status = ebb_trace_writer_open(out, &options, &writer);
    if (status != EBB_OK) { return ebb__cli_failed(status); }
    (void)ebb_trace_writer_note(writer, "source", "ebb record");
    status = ebb_trace_writer_close(writer);
    if (status != EBB_OK) { return ebb__cli_failed(status); }
    if (code != 0) {
        ebb__cli_say("record: %s is empty: the command ended with exit code %d", out, code);
        return EBB_EXIT_DONE;
    }
    const char *so_far = n_running > 0 ? " so far" : "";
    ebb__cli_say("record: %s is empty: the command allocated nothing large%s, or takes no LD_PRELOAD (it is "
                 "static, or runs with other rights)",
                 out, so_far);
    return EBB_EXIT_DONE;
}

/* Of another process: OUT.PID, OUT.PID.N. */
static bool is_others(const char *name, const char *out_name) {
    const size_t n = strlen(out_name);
    return strncmp(name, out_name, n) == 0 && name[n] == '.' && name[n + 1] != '\0' &&
           strspn(name + n + 1, "0123456789.") == strlen(name + n + 1);
}

static bool is_behind(const struct timespec *a, const struct timespec *b) {
    return a->tv_sec != b->tv_sec ? a->tv_sec > b->tv_sec : a->tv_nsec >= b->tv_nsec;
}

/* Remove a recording to which nothing was written, as on a full disk. Whether it was one. */
static bool remove_empty(const char *path) {
    struct stat info;
    if (stat(path, &info) != 0 || info.st_size > 0 || unlink(path) != 0) { return false; }
    ebb__cli_say("record: %s: nothing was written to it, so there is no recording", path);
    return true;
}

/* Those that were written since; older ones are another recording's. */
static void tell_others(const char *out, uint64_t limit, const struct timespec *start, bool any_runs, bool may_be_empty,
                        bool *has_device) {
    char path[MAX_PATH_BYTES];
    struct dirent **entries = NULL;
    struct stat info;
    const char *name = strrchr(out, '/') + 1;
    snprintf(path, sizeof path, "%.*s", (int)(name - out), out);
    const int n = scandir(path, &entries, NULL, alphasort);
    for (int i = 0; i < n; i++) {
        snprintf(path, sizeof path, "%.*s%.255s", (int)(name - out), out, entries[i]->d_name);
        if (is_others(entries[i]->d_name, name) && stat(path, &info) == 0 && is_behind(&info.st_mtim, start)) {
            if (!may_be_empty || !remove_empty(path)) { (void)tell_trace(path, limit, any_runs, has_device); }
        }
        free(entries[i]);
    }
    free(entries);
}

/* Whether this process, still there, has this line in the environment that it began with. */
static bool has_line(const char *pid, const char *line) {
    char path[64], *text = NULL;
    size_t n_bytes = 0;
    bool found = false;
    snprintf(path, sizeof path, "/proc/%.20s/environ", pid);
    FILE *file = fopen(path, "re");
    while (file != NULL && !found && getdelim(&text, &n_bytes, '\0', file) > 0) { found = strcmp(text, line) == 0; }
    free(text);
    if (file != NULL) { fclose(file); }
    return found;
}

/* Processes that the command left running: only they have the name of our file in their environment. */
static size_t count_running(void) {
    const char *says = getenv("EBB_RECORD_SAYS");
    char line[96];
    size_t n = 0;
    DIR *folder = opendir("/proc");
    snprintf(line, sizeof line, "EBB_RECORD_SAYS=%s", says != NULL ? says : "");
    for (struct dirent *entry; folder != NULL && (entry = readdir(folder)) != NULL;) {
        const char *pid = entry->d_name;
        n += pid[0] >= '1' && pid[0] <= '9' && strtol(pid, NULL, 10) != (long)getpid() && has_line(pid, line);
    }
    if (folder != NULL) { closedir(folder); }
    return n;
}

static void tell_running(const char *out, size_t n) {
    if (n == 0) { return; }
    ebb__cli_say("record: %zu of the command's processes still run%s; what they record goes to %s.PID", n,
                 n == 1 ? "s" : "", out);
}

/* A limit counts what is recorded; where that is little of what the command had, it emulates no smaller machine. */
static void tell_beyond(uint64_t limit) {
    struct rusage usage;
    char peak[32], most[32];
    if (limit == 0 || getrusage(RUSAGE_CHILDREN, &usage) != 0) { return; }
    const uint64_t peak_bytes = (uint64_t)usage.ru_maxrss * 1024;
    if (peak_bytes / 5 * 4 <= limit) { return; }
    ebb__cli_say("record: a process had %s in memory, beyond the limit of %s: it counts no allocations below "
                 "--min-size, no files, no stacks",
                 ebb_bytes_format(peak_bytes, peak, sizeof peak), ebb_bytes_format(limit, most, sizeof most));
}

/* What the library could not do: a line a process that ended its recording early. Whether there was any. */
static bool tell_failures(int says) {
    char line[MAX_PATH_BYTES + 256];
    const int fd = dup(says);
    bool any = false;
    FILE *lines = fd >= 0 && lseek(fd, 0, SEEK_SET) == 0 ? fdopen(fd, "r") : NULL;
    while (lines != NULL && fgets(line, sizeof line, lines) != NULL) {
        any = true;
        line[strcspn(line, "\n")] = '\0';
        ebb__cli_say("record: %s; the recording ends there", line);
    }
    if (lines != NULL) {
        fclose(lines);
    } else if (fd >= 0) {
        (void)close(fd);
    }
    return any;
}

/* The trace of another recording, and what was told beside it. */
static bool remove_old(const char *out) {
    char steps[MAX_PATH_BYTES];
    const int n = snprintf(steps, sizeof steps, "%s" STEPS, out);
    return (unlink(out) == 0 || errno == ENOENT) && n > 0 && (size_t)n < sizeof steps &&
           (unlink(steps) == 0 || errno == ENOENT);
}

static int record(const record_values *values, const char *out, char **command) {
    char library[MAX_PATH_BYTES];
    struct timespec start;
    bool has_run = false;
    if (!find_library(LIBRARY, library, sizeof library)) {
        ebb__cli_say("record: there is no %s beside libebb.so", LIBRARY);
        return EBB_EXIT_IO;
    }
    const int cause = why_no_command(command[0]);
    if (cause != 0) { return say_cannot_run(command[0], cause); }
    const int says = memfd_create(SAYS, MFD_CLOEXEC);
    if (says < 0) { return fail_errno(SAYS); }
    if (!remove_old(out)) { return fail_errno(out); }
    (void)clock_gettime(CLOCK_REALTIME_COARSE, &start); /* as files have it */
    set_environment(values, library, out, says);
    int code = run_command(command, &has_run), told = EBB_EXIT_DONE;
    bool has_device = false;
    const size_t n_running = count_running();
    const bool has_failed = tell_failures(says); /* first: they say why a trace is cut off or has nothing in it */
    if (access(out, F_OK) == 0) {
        const bool may_be_empty = has_failed && n_running == 0;
        const bool is_gone = may_be_empty && remove_empty(out);
        told = is_gone ? EBB_EXIT_IO : tell_trace(out, values->limit, n_running > 0, &has_device);
        tell_others(out, values->limit, &start, n_running > 0, may_be_empty, &has_device);
    } else if (has_run) {
        told = write_empty(out, code, n_running);
    }
    tell_running(out, n_running);
    if (has_run && !has_device) { tell_beyond(values->limit); }
    (void)close(says);
    return code == 0 ? told : code;
}

/* The command's name without its folder, with a number if such a file exists. The recordings of its other processes
 * carry the same number, so they stay apart too. */
static bool pick_out(const char *command, char *out, size_t n_bytes) {
    const char *slash = strrchr(command, '/'), *name = slash != NULL ? slash + 1 : command;
    struct stat info;
    for (unsigned i = 1; i <= MOST_PICKED; i++) {
        int n = snprintf(out, n_bytes, "%s.trace", name);
        if (i > 1) { n = snprintf(out, n_bytes, "%s-%u.trace", name, i); }
        if (n < 0 || (size_t)n >= n_bytes) { break; }
        if (lstat(out, &info) != 0) { return true; }
    }
    return false;
}

/* An existing file is removed before the command runs, so it must be a recording's place: no device, and nothing of the
 * command's own. */
static int check_out(const char *out, char **command) {
    struct stat info;
    char shown[MAX_PATH_BYTES];
    (void)ebb__cli_clean(out, shown, sizeof shown);
    if (stat(out, &info) == 0 && !S_ISREG(info.st_mode) && !S_ISDIR(info.st_mode)) {
        return ebb__cli_usage("record: %s is no file", shown);
    }
    for (size_t i = 0; command[i] != NULL; i++) {
        if (access(out, F_OK) == 0 && ebb__cli_is_same_file(out, command[i])) {
            return ebb__cli_usage("record: %s is the command's, and would be replaced", shown);
        }
    }
    return EBB_EXIT_DONE;
}

/* Whether files can be made there: also those of other processes, with something in them. */
static int check_room(const char *out) {
    struct rlimit files;
    const char *name = strrchr(out, '/') + 1;
    char *folder = strndup(out, (size_t)(name - out));
    const long most = folder != NULL ? pathconf(folder, _PC_NAME_MAX) : -1;
    free(folder);
    if ((most >= 0 && strlen(name) + MAX_SUFFIX_BYTES > (size_t)most) ||
        strlen(out) + MAX_SUFFIX_BYTES >= MAX_PATH_BYTES) {
        ebb__cli_say("record: %s: the name is too long for those of other processes, with .PID after it", out);
        return EBB_EXIT_IO;
    }
    if (getrlimit(RLIMIT_FSIZE, &files) == 0 && files.rlim_cur < LEAST_FILE_BYTES) {
        errno = EFBIG; /* ulimit -f */
        return fail_errno(out);
    }
    return EBB_EXIT_DONE;
}

static int run(const ebb_cli_command *command, int argc, char **argv) {
    record_values values = {.stacks = UINT64_MAX};
    ebb_cli_arguments arguments;
    int end = 1, exit_code = EBB_EXIT_DONE;
    while (end < argc && strcmp(argv[end], "--") != 0) { end++; }
    char *behind = end < argc ? argv[end] : NULL;
    argv[end] = NULL; /* an option there takes no value from after */
    if (!ebb__cli_parse(command, end, argv, &values, &arguments, &exit_code)) { return exit_code; }
    if (values.stacks != UINT64_MAX && values.stacks > MAX_CALLERS) {
        return ebb__cli_usage("record: --stacks takes at most %u callers", MAX_CALLERS);
    }
    if (behind == NULL || end + 1 >= argc) {
        return ebb__cli_usage("record: say which command, after --; see ebb record --help");
    }
    char out[MAX_PATH_BYTES], picked[MAX_PATH_BYTES];
    if (values.out == NULL) {
        if (!pick_out(argv[end + 1], picked, sizeof picked)) {
            return ebb__cli_usage("record: no name for the trace was found: say where it goes with -o OUT.trace");
        }
        values.out = picked;
        ebb__cli_say("record: the trace goes to %s", picked);
    }
    exit_code = check_out(values.out, argv + end + 1);
    if (exit_code != EBB_EXIT_DONE) { return exit_code; }
    if (!find_place(values.out, out, sizeof out)) { return fail_errno(values.out); }
    exit_code = check_room(out);
    if (exit_code != EBB_EXIT_DONE) { return exit_code; }
    const ebb_status status = ebb_path_check_writable(out);
    return status == EBB_OK ? record(&values, out, argv + end + 1) : ebb__cli_failed(status);
}

static void more_help(FILE *out) {
    ebb__cli_print_paragraph(out, "The exit code is COMMAND's; 128 + a signal's number when one ended it, 127 when it "
                                  "was not found, 126 when it cannot be run.");
}

const ebb_cli_command ebb__cli_record = {
    .name = "record",
    .arguments = "[-o OUT.trace] [--limit SIZE] -- COMMAND...",
    .about = "record the large allocations of any program, of the host and of CUDA devices",
    .options = record_options,
    .n_options = sizeof record_options / sizeof record_options[0],
    .n_arguments_max = 0,
    .run = run,
    .more_help = more_help,
};
