/* SPDX-License-Identifier: Apache-2.0
 *
 * What the commands share: how one is described, its options, how failures become exit codes, and the
 * description of a network that `train`, `plan` and `probe` take alike. The command line sees include/ebb
 * only. Results go to stdout, messages to stderr; nothing else in ebb prints.
 */
#ifndef EBB_SRC_CLI_H
#define EBB_SRC_CLI_H

#include "ebb/ebb.h"

#include <signal.h>
#include <stdio.h>

/* Exit codes. After a signal that ended a training: 128 + its number, as shells have it. */
enum {
    EBB_EXIT_DONE = 0,
    EBB_EXIT_NO = 1,        /* an answer that is 'no': it does not fit, the plan is not right */
    EBB_EXIT_USAGE = 2,     /* the command line is wrong */
    EBB_EXIT_INPUT = 3,     /* a file's content is wrong */
    EBB_EXIT_IO = 4,        /* reading, writing or the machine's memory failed */
    EBB_EXIT_NO_DEVICE = 5, /* no such backend or device, or it cannot do this */
};

int ebb__cli_exit_code(ebb_status status);

/* The same where a file was read: one that is not known, or of another version, is a fault of the file. */
int ebb__cli_file_exit_code(ebb_status status);

/* Say "ebb: <last error>" on stderr, and the exit code for it. */
int ebb__cli_failed(ebb_status status);
int ebb__cli_file_failed(ebb_status status);

/* Say "ebb: ..." on stderr, with '?' for what a terminal would obey. */
void ebb__cli_say(const char *fmt, ...) EBB_PRINTF(1, 2);

/* The same for a wrong command line; EBB_EXIT_USAGE. */
int ebb__cli_usage(const char *fmt, ...) EBB_PRINTF(1, 2);

/* Say on stderr that this picture or page was written. */
void ebb__cli_wrote(const char *path);

/* Whether --device asks for the list of devices. */
bool ebb__cli_lists_devices(const char *device);
/* Print the devices of the recording at path to stdout; an exit code. */
int ebb__cli_list_devices(const char *path);

/* ebb_trace_open of a recording for the device that was asked for (NULL: none was), with progress. */
ebb_status ebb__cli_open_recording(const char *path, const char *device, ebb_trace_reader **reader_out);

/* Warn that the recording at path is cut off. */
void ebb__cli_warn_of_cut(const char *path);
/* Warn that it shows what was live at one moment. */
void ebb__cli_warn_of_moment(const char *path);

/* Whether two paths name one file, which need not be there yet. */
bool ebb__cli_is_same_file(const char *a, const char *b);

/* Catch a signal, unless it was ignored when this program started, as under nohup. */
void ebb__cli_catch(int number, const struct sigaction *action);
/* From now on SIGINT, SIGTERM and SIGHUP do not end this program, but the first of them, unless it was ignored, is what
 * ebb__cli_caught returns. A second SIGINT or SIGTERM ends it. The other call does the same for SIGPIPE, ignored or
 * not: the output is not read any more. */
void ebb__cli_catch_ends(void);
void ebb__cli_catch_pipe(void);
int ebb__cli_caught(void); /* 0: none */

/* The folder for temporary files that the environment names (TMPDIR); NULL: none. */
const char *ebb__cli_temp_dir(void);

/* EBB_EXIT_DONE, or EBB_EXIT_IO (said on stderr) when what was written to stdout did not arrive. */
int ebb__cli_close_output(void);

/* ---- options ---------------------------------------------------------------------------------- */

/* How an option's value reads, and the type of the member that it goes to. */
typedef enum ebb_cli_kind {
    EBB_CLI_FLAG,           /* bool; takes no value */
    EBB_CLI_TEXT,           /* const char * */
    EBB_CLI_COUNT,          /* uint64_t */
    EBB_CLI_AMOUNT,         /* uint64_t, 1 or more */
    EBB_CLI_SIZE,           /* int64_t, 1 or more */
    EBB_CLI_NUMBER,         /* float, finite */
    EBB_CLI_BYTES,          /* uint64_t, 1 or more, with a unit */
    EBB_CLI_MEMORY,         /* ebb_cli_memory: bytes or per cent, more than none */
    EBB_CLI_BYTES_OR_NONE,  /* as EBB_CLI_BYTES, and 0 */
    EBB_CLI_MEMORY_OR_NONE, /* as EBB_CLI_MEMORY, and 0 */
    EBB_CLI_PERCENT,        /* ebb_cli_percent: 0% or more */
    EBB_CLI_IMAGE,          /* ebb_cli_image: HxW */
} ebb_cli_kind;

typedef struct ebb_cli_memory {
    uint64_t bytes;
    double percent; /* > 0: instead of bytes */
} ebb_cli_memory;

typedef struct ebb_cli_percent {
    bool is_given;
    double percent;
} ebb_cli_percent;

typedef struct ebb_cli_image {
    int64_t height, width;
} ebb_cli_image;

/* "2GiB" or "60%"; false: it is neither. */
bool ebb__cli_read_memory(const char *text, ebb_cli_memory *memory_out);

/* One table per command; parsing and --help come from it. */
typedef struct ebb_cli_option {
    const char *name; /* "--batch" or "-o" */
    ebb_cli_kind kind;
    size_t offset;     /* of the member that it sets */
    const char *value; /* how --help calls it; NULL for a flag */
    const char *help;
} ebb_cli_option;

typedef struct ebb_cli_command {
    const char *name;
    const char *arguments; /* for the usage line */
    const char *about;
    const ebb_cli_option *options;
    size_t n_options;
    size_t n_arguments_max;
    int (*run)(const struct ebb_cli_command *command, int argc, char **argv); /* argv[0]: the command's name */
    void (*more_help)(FILE *out); /* may be NULL: what --help prints below the options */
    bool computes;                /* it computes on the processor with OpenMP's threads */
} ebb_cli_command;

/* The arguments that remain after the options. */
typedef struct ebb_cli_arguments {
    const char *at[16];
    size_t n;
} ebb_cli_arguments;

/* Set the members of *values that the command line names. false: it is done, with *exit_out (help was
 * printed, or the command line is wrong and it has been said). */
bool ebb__cli_parse(const ebb_cli_command *command, int argc, char **argv, void *values,
                    ebb_cli_arguments *arguments_out, int *exit_out);
void ebb__cli_print_help(const ebb_cli_command *command);

/* A file that a command writes, and the option that names it; path NULL: it was not given. */
typedef struct ebb_cli_output {
    const char *option, *path;
} ebb_cli_output;

/* Whether no two outputs are one file, in which the later would destroy the earlier. false: it has been said. */
bool ebb__cli_are_apart(const ebb_cli_command *command, const ebb_cli_output *outputs, size_t n);

/* ---- a network and what it is planned for ------------------------------------------------------ */

typedef struct ebb_cli_network {
    int64_t batch, channels, classes, threads;
    uint64_t device, effort;
    bool tf32, fast_algorithms, no_capture;
    const char *feed;
    ebb_cli_image image;
    bool no_dropout;
    const char *backend;
    const char *optimizer;
    ebb_cli_memory memory;
    ebb_cli_percent slowdown, margin;
    bool no_recompute, as_coded;
    const char *policy;
    const char *algorithms;
    const char *accounting; /* not of every command that has the others */
    uint64_t host_memory;   /* UINT64_MAX: no limit */
    bool runs_here;         /* plans are run on this machine, which has to have room for them */
    const char *disk, *io;
    uint64_t remote;  /* what each other process of an MPI job lends, or, of `ebb plan`, all together; 0: none does */
    ebb_remote *lent; /* once they have */
    const char *machine;
} ebb_cli_network;

/* The rows for it in the table of a command whose values have it as a member called network. */
#define EBB_CLI_NETWORK_OPTIONS(values)                                                                                \
    {"--batch", EBB_CLI_SIZE, offsetof(values, network.batch), "N", "images in a batch (32)"},                         \
        {"--image", EBB_CLI_IMAGE, offsetof(values, network.image), "HxW",                                             \
         "size of an image (the data's, else the network's)"},                                                         \
        {"--channels", EBB_CLI_SIZE, offsetof(values, network.channels), "N",                                          \
         "channels of an image (the data's, else the network's)"},                                                     \
        {"--classes", EBB_CLI_SIZE, offsetof(values, network.classes), "N",                                            \
         "classes to tell apart (the data's, else the network's)"},                                                    \
        {"--no-dropout", EBB_CLI_FLAG, offsetof(values, network.no_dropout), NULL, "leave dropout out"},               \
        {"--backend", EBB_CLI_TEXT, offsetof(values, network.backend), "B", "what computes (below)"},                  \
        {"--device", EBB_CLI_COUNT, offsetof(values, network.device), "N", "which of the backend's devices (0)"},      \
        {"--tf32", EBB_CLI_FLAG, offsetof(values, network.tf32), NULL, "GPU: matrix products in TF32; other bits"},    \
        {"--fast-algorithms", EBB_CLI_FLAG, offsetof(values, network.fast_algorithms), NULL,                           \
         "GPU: also algorithms whose bits differ from run to run"},                                                    \
        {"--no-capture", EBB_CLI_FLAG, offsetof(values, network.no_capture), NULL,                                     \
         "GPU: issue each step by itself, without CUDA graphs"},                                                       \
    {                                                                                                                  \
        "--threads", EBB_CLI_SIZE, offsetof(values, network.threads), "N",                                             \
            "threads that compute (as many as there are)"                                                              \
    }

#define EBB_CLI_PLAN_OPTIONS(values)                                                                                   \
    {"--optimizer", EBB_CLI_TEXT, offsetof(values, network.optimizer), "O",                                            \
     "sgd, momentum (the default), nesterov, adam, adamw"},                                                            \
        {"--memory", EBB_CLI_MEMORY, offsetof(values, network.memory), "SIZE|N%",                                      \
         "the budget: 2GiB, 512MB, or 60% of what the policy liveness needs (no limit)"},                              \
        {"--slowdown", EBB_CLI_PERCENT, offsetof(values, network.slowdown), "N%",                                      \
         "as little memory as this allows, as predicted: 0%, 5% over the time without a budget"},                      \
        {"--margin", EBB_CLI_PERCENT, offsetof(values, network.margin), "N%",                                          \
         "plan for copies that take this much longer than predicted (0%)"},                                            \
        {"--policy", EBB_CLI_TEXT, offsetof(values, network.policy), "P",                                              \
         "how to stay inside it (below; with a budget: best, else: liveness)"},                                        \
        {"--algorithms", EBB_CLI_TEXT, offsetof(values, network.algorithms), "A",                                      \
         "how each step's algorithm is chosen (below; given)"},                                                        \
        {"--effort", EBB_CLI_COUNT, offsetof(values, network.effort), "N",                                             \
         "how long the policies best and swap search: rounds of 1 to 3 s of a processor; 0: a first plan (1)"},        \
        {"--host-memory", EBB_CLI_BYTES_OR_NONE, offsetof(values, network.host_memory), "SIZE",                        \
         "the most for copies and data in the host's memory; 0: copy nothing out (no limit)"},                         \
        {"--no-recompute", EBB_CLI_FLAG, offsetof(values, network.no_recompute), NULL, "compute nothing again"},       \
        {"--feed", EBB_CLI_TEXT, offsetof(values, network.feed), "WHEN",                                               \
         "when a batch comes: first, or early, during the iteration before (early on a GPU)"},                         \
        {"--disk", EBB_CLI_TEXT, offsetof(values, network.disk), "DIR",                                                \
         "let copies go to a file in this folder, too: where the host has no room, or the disk is faster"},            \
    {                                                                                                                  \
        "--machine", EBB_CLI_TEXT, offsetof(values, network.machine), "FILE",                                          \
            "times and bandwidths, as `ebb probe` wrote them"                                                          \
    }

#define EBB_CLI_IO_OPTION(values)                                                                                      \
    {                                                                                                                  \
        "--io", EBB_CLI_TEXT, offsetof(values, network.io), "HOW",                                                     \
            "how --disk's file is read and written: plain, uring, auto (uring where it can be had)"                    \
    }

/* Set in *options_io what the command line says of the network, its device and its budget; net may be NULL. */
ebb_status ebb__cli_session_options(const char *net, const ebb_cli_network *network, ebb_session_options *options_io);
/* --remote (remote.c). Before the command line is read: a process that lends its memory will not say what rank 0 says.
 */
void ebb__cli_hush_lender(int argc, char **argv);
/* Once the command line is right: with --remote, get the memory that other processes lend. false: this process has
 * lent its own and is done, or it failed and that has been said; it ends with *exit_out. */
bool ebb__cli_join(ebb_cli_network *network, int *exit_out);
/* Let the others go. */
void ebb__cli_leave(ebb_cli_network *network);

/* How many processors this process may use. */
uint32_t ebb__cli_count_processors(void);
/* More threads than a few a processor wait for each other instead of computing. false: they are too many, and it has
 * been said. */
bool ebb__cli_check_threads(const ebb_cli_command *command, const ebb_cli_network *network);
/* Warn on stderr where ref computes only because the build lacks cpu. */
void ebb__cli_warn_slow(const ebb_cli_network *network);

/* Print what to type so that a plan fits the network's budget, then why none does; with as_json also an object on
 * stdout. step_name may be NULL. Returns the exit code. */
int ebb__cli_no_fit(const ebb_cli_network *network, const ebb_no_fit *no_fit, const char *step_name, bool as_json);

/* --help's lists of networks and backends; and with policies and ways to choose algorithms between them. */
void ebb__cli_print_networks(FILE *out);
void ebb__cli_print_names(FILE *out);

/* ---- tables for people (row.c) ---------------------------------------------------------------- */

/* A line of --help: a name in its column, and what it is, in as many lines as that takes. */
void ebb__cli_print_about(FILE *out, size_t width, const char *name, const char *about);
void ebb__cli_row(const char *name, const char *fmt, ...) EBB_PRINTF(2, 3);
void ebb__cli_row_bytes(const char *name, uint64_t bytes);

/* ---- the progress line (progress.c) ------------------------------------------------------------ */

/* Where stderr is not a terminal, only work of seconds prints lines. main calls begin and end. */
void ebb__progress_begin(void);
void ebb__progress_end(void);
/* Show what is being done, such as "reading FILE", until the line is cleared. n_done of its n pieces are done; n 0: the
 * number is not known. detail: more for the line, until the next tell. */
void ebb__progress_tell(const char *what, uint64_t n_done, uint64_t n);
void ebb__progress_detail(const char *fmt, ...) EBB_PRINTF(1, 2);
/* The same as a callback for the library. */
ebb_progress ebb__progress(void);
/* Call it before anything is printed: it removes the line until the next tell. */
void ebb__progress_clear(void);
/* Call them around a message that is printed while work goes on, from any thread: hold removes the line, go_on lets it
 * come back. */
void ebb__progress_hold(void);
void ebb__progress_go_on(void);

/* ---- anybody's text (text.c) ------------------------------------------------------------------ */

/* Bytes of the character of UTF-8 with which text begins; 0: it begins with none. */
size_t ebb__cli_character(const char *text);

/* The columns that the variable COLUMNS asks for, else those of the terminal that stdout goes to; 0: it is not a
 * terminal, or its width is not known. */
uint32_t ebb__cli_columns(void);

/* The columns that a line printed on out may have: as above of stdout and stderr, 100 where that says nothing. */
size_t ebb__cli_line_columns(FILE *out);

/* Print text, of valid characters, on out, after n_before columns that are printed already, and end the line. Where out
 * is not wide enough, lines end between words, and the next ones begin after n_indent spaces. */
void ebb__cli_print_words(FILE *out, size_t n_before, size_t n_indent, const char *text);

/* The same for --help, after an empty line. */
void ebb__cli_print_paragraph(FILE *out, const char *text);

/* text for a terminal, in buf: what is no character, and what would steer the terminal, is a question mark; cut where
 * buf ends. Returns buf. */
char *ebb__cli_clean(const char *text, char *buf, size_t buf_bytes);

/* The characters of a text that ebb__cli_clean made. */
size_t ebb__cli_count(const char *text);

/* The same as ebb__cli_clean for a message: a word of more characters than anybody reads, such as a name of 10,000,
 * keeps its beginning and its end. Returns buf. */
char *ebb__cli_clean_message(const char *text, char *buf, size_t buf_bytes);

/* The same as ebb__cli_clean, in at most n_columns: a longer text keeps its beginning and its end, with dots between
 * them. n_columns 0: no limit. Returns buf. */
char *ebb__cli_shorten(const char *text, size_t n_columns, char *buf, size_t buf_bytes);

/* ---- JSON ------------------------------------------------------------------------------------- */

/* One object on one line of stdout, member by member. Floats are printed so that they read back as the same
 * bits; what JSON has no number for (NaN, infinity) becomes null. What of a text is no UTF-8 becomes U+FFFD. */
enum { EBB_CLI_SCHEMA_VERSION = 1 }; /* their "schema_version" */
void ebb__json_begin(void);
void ebb__json_text(const char *key, const char *value); /* NULL becomes null */
void ebb__json_u64(const char *key, uint64_t value);
void ebb__json_limit(const char *key, uint64_t value); /* UINT64_MAX, without limit, becomes null */
void ebb__json_bool(const char *key, bool value);
void ebb__json_f64(const char *key, double value);
void ebb__json_f32(const char *key, float value);
/* A member that is a list of objects: begin, for each object item_begin, members, item_end; end. */
void ebb__json_list_begin(const char *key);
void ebb__json_item_begin(void);
void ebb__json_item_end(void);
void ebb__json_list_end(void);
void ebb__json_u64s(const char *key, const uint64_t *values, size_t n); /* a list of numbers */
void ebb__json_end(void); /* and flush: a reader of the stream sees whole lines at once */

/* ---- choices of algorithm (choices.c) --------------------------------------------------------- */

/* How many steps have which choice, what scratch they take, what time they win: as rows, with indent in front of each
 * name, and as members. No rows where there is nothing to choose and nothing was asked for. */
void ebb__cli_row_choices(const char *indent, const char *algorithms, const ebb_choice_figures *choices);
void ebb__json_choices(const char *algorithms, const ebb_choice_figures *choices);
/* For each step with several algorithms, in the plan's order, the scratch that it has and that of its fastest one: as
 * lines, or as the member "workspaces". */
void ebb__cli_print_workspaces(const ebb_program *program, const ebb_plan *plan, const ebb_machine *machine,
                               bool as_json);

/* ---- man pages and completion (pages.c) -------------------------------------------------------- */

/* The i-th command; NULL after the last. */
const ebb_cli_command *ebb__cli_command(size_t i);

/* Print the man page of a command; NULL: of `ebb` itself. */
void ebb__cli_print_man(const ebb_cli_command *command);
/* Print the completion script for bash, zsh or fish. false: another shell. */
bool ebb__cli_print_completion(const char *shell);

/* ---- the commands ----------------------------------------------------------------------------- */

extern const ebb_cli_command ebb__cli_train, ebb__cli_plan, ebb__cli_place, ebb__cli_probe, ebb__cli_report;
extern const ebb_cli_command ebb__cli_import, ebb__cli_diff, ebb__cli_check, ebb__cli_record, ebb__cli_compare;

#endif
