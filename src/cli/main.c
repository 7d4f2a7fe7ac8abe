/* SPDX-License-Identifier: Apache-2.0
 *
 * ebb, the program: finds the command, and turns statuses into messages and exit codes.
 */
#include "cli.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const ebb_cli_command *const commands[] = {&ebb__cli_train,  &ebb__cli_plan,   &ebb__cli_place, &ebb__cli_probe,
                                                  &ebb__cli_report, &ebb__cli_import, &ebb__cli_diff,  &ebb__cli_check,
                                                  &ebb__cli_record, &ebb__cli_compare};
#define MAX_MESSAGE_BYTES 32768 /* two paths and what is said of them, or a word that is far too long */
#define SPEAKER "ebb: "         /* in front of each message */
#define N_COMMANDS (sizeof commands / sizeof commands[0])

int ebb__cli_exit_code(ebb_status status) {
    switch (status) {
    case EBB_OK: return EBB_EXIT_DONE;
    case EBB_E_NO_FIT:
    case EBB_E_NOT_FINITE:
    case EBB_E_INVALID_PLAN: return EBB_EXIT_NO;
    case EBB_E_ARGUMENT: return EBB_EXIT_USAGE;
    case EBB_E_FORMAT:
    case EBB_E_LIMIT: return EBB_EXIT_INPUT;
    case EBB_E_NO_DEVICE:
    case EBB_E_UNSUPPORTED:
    case EBB_E_DEVICE: return EBB_EXIT_NO_DEVICE;
    case EBB_E_IO:
    case EBB_E_NO_MEMORY:
    case EBB_E_INTERNAL: return EBB_EXIT_IO;
    }
    return EBB_EXIT_IO;
}

int ebb__cli_failed(ebb_status status) {
    const char *message = ebb_last_error();
    ebb__cli_say("%s", message[0] != '\0' ? message : ebb_status_text(status));
    return ebb__cli_exit_code(status);
}

int ebb__cli_file_exit_code(ebb_status status) {
    return status == EBB_E_UNSUPPORTED ? EBB_EXIT_INPUT : ebb__cli_exit_code(status);
}

void ebb__cli_warn_of_cut(const char *path) {
    ebb__cli_say("warning: %s: the recording is cut off; what it has was read", path);
}

void ebb__cli_warn_of_moment(const char *path) {
    ebb__cli_say("warning: %s: the snapshot shows one moment and has no history; its peak is not known", path);
}

int ebb__cli_file_failed(ebb_status status) {
    (void)ebb__cli_failed(status);
    return ebb__cli_file_exit_code(status);
}

EBB_PRINTF(1, 0) static void say(const char *fmt, va_list args) {
    char text[MAX_MESSAGE_BYTES], shown[MAX_MESSAGE_BYTES];
    ebb__progress_clear();
    fflush(stdout);
    const int n = snprintf(text, sizeof text, SPEAKER);
    (void)vsnprintf(text + n, sizeof text - (size_t)n, fmt, args);
    ebb__cli_print_words(stderr, 0, strlen(SPEAKER), ebb__cli_clean_message(text, shown, sizeof shown));
}

void ebb__cli_say(const char *fmt, ...) {
    va_list args;
    va_start(args, fmt);
    say(fmt, args);
    va_end(args);
}

void ebb__cli_wrote(const char *path) {
    ebb__cli_say("wrote %s", path);
}

int ebb__cli_usage(const char *fmt, ...) {
    va_list args;
    va_start(args, fmt);
    say(fmt, args);
    va_end(args);
    return EBB_EXIT_USAGE;
}

int ebb__cli_close_output(void) {
    ebb__progress_clear();
    if (fflush(stdout) == 0 && !ferror(stdout)) { return EBB_EXIT_DONE; }
    fprintf(stderr, "ebb: standard output could not be written\n");
    return EBB_EXIT_IO;
}

void ebb__cli_catch(int number, const struct sigaction *action) {
    struct sigaction before;
    if (sigaction(number, NULL, &before) == 0 && before.sa_handler == SIG_IGN) { return; }
    (void)sigaction(number, action, NULL);
}

static volatile sig_atomic_t caught_signal;

static void on_signal(int number) {
    caught_signal = number;
}

void ebb__cli_catch_ends(void) {
    struct sigaction action = {.sa_handler = on_signal, .sa_flags = SA_RESTART};
    sigemptyset(&action.sa_mask);
    ebb__cli_catch(SIGHUP, &action); /* comes twice when a terminal closes: from the kernel and from the shell */
    action.sa_flags |= (int)SA_RESETHAND;
    ebb__cli_catch(SIGINT, &action);
    ebb__cli_catch(SIGTERM, &action);
}

void ebb__cli_catch_pipe(void) {
    struct sigaction action = {.sa_handler = on_signal, .sa_flags = (int)SA_RESETHAND | SA_RESTART};
    sigemptyset(&action.sa_mask);
    (void)sigaction(SIGPIPE, &action, NULL);
}

int ebb__cli_caught(void) {
    return (int)caught_signal;
}

static void print_overview(void) {
    printf("usage: ebb COMMAND ...\n\nebb trains neural networks inside a memory budget.\n\ncommands:\n");
    for (size_t i = 0; i < N_COMMANDS; i++) { ebb__cli_print_about(stdout, 8, commands[i]->name, commands[i]->about); }
    printf("  %-8s %s\n  %-8s %s\n\n", "help", "this, or with a command's name its options", "version", "the version");
    printf("exit codes: 0 done, 1 an answer that is 'no' (does not fit), 2 wrong command line, 3 bad input,\n"
           "4 input or output failed, 5 no such device; 128 + a signal's number after that signal\n");
}

static const ebb_cli_command *find_command(const char *name) {
    for (size_t i = 0; i < N_COMMANDS; i++) {
        if (strcmp(commands[i]->name, name) == 0) { return commands[i]; }
    }
    return NULL;
}

const ebb_cli_command *ebb__cli_command(size_t i) {
    return i < N_COMMANDS ? commands[i] : NULL;
}

static const char *command_name(const void *ctx, size_t i) {
    static const char *const others[] = {"help", "version", "--help", "--version"};
    (void)ctx;
    if (i < N_COMMANDS) { return commands[i]->name; }
    return i < N_COMMANDS + sizeof others / sizeof others[0] ? others[i - N_COMMANDS] : NULL;
}

/* Words that are no command, and what to type instead. */
static const struct {
    const char *word, *instead;
} replies[] = {
    {"budget", "ebb plan NET --memory 60% shows what one costs, ebb train NET --memory 60% trains inside it"},
    {"memory", "ebb plan NET shows what a network needs, ebb report FILE what a recording took"},
    {"profile", "ebb record -- COMMAND records a program's memory, ebb report FILE shows it"},
    {"trace", "ebb record -- COMMAND makes a trace, ebb report FILE shows it"},
    {"show", "ebb report FILE shows a recording"},
    {"run", "ebb train NET trains, ebb record -- COMMAND records another program"},
    {"convert", "ebb import FILE -o OUT.trace reads other tools' recordings"},
};

static int say_unknown(const char *name) {
    char near[128];
    for (size_t i = 0; i < sizeof replies / sizeof replies[0]; i++) {
        if (strcmp(replies[i].word, name) != 0) { continue; }
        return ebb__cli_usage("there is no command %s: %s; see ebb help", name, replies[i].instead);
    }
    return ebb__cli_usage("there is no command %s%s; see ebb help", name,
                          ebb_suggest(name, strlen(name), command_name, NULL, near, sizeof near));
}

/* `help --man [COMMAND]` and `help --completion SHELL`: for installing, so the overview leaves them out. */
static int print_page(const char *what, const char *name) {
    const ebb_cli_command *command = name != NULL ? find_command(name) : NULL;
    if (strcmp(what, "--completion") == 0) {
        if (name == NULL || !ebb__cli_print_completion(name)) {
            return ebb__cli_usage("help: --completion takes bash, zsh or fish");
        }
        return ebb__cli_close_output();
    }
    if (name != NULL && command == NULL) { return say_unknown(name); }
    ebb__cli_print_man(command);
    return ebb__cli_close_output();
}

static int help(const char *name, const char *next) {
    const ebb_cli_command *command = name != NULL ? find_command(name) : NULL;
    if (name != NULL && (strcmp(name, "--man") == 0 || strcmp(name, "--completion") == 0)) {
        return print_page(name, next);
    }
    if (name != NULL && command == NULL) { return say_unknown(name); }
    if (command != NULL) {
        ebb__cli_print_help(command);
    } else {
        print_overview();
    }
    return ebb__cli_close_output();
}

static void print_log(void *ctx, ebb_log_level level, const char *message) {
    char text[MAX_MESSAGE_BYTES];
    (void)ctx;
    snprintf(text, sizeof text, SPEAKER "%s%s", level == EBB_LOG_WARN ? "warning: " : "", message);
    ebb__progress_hold();
    ebb__cli_print_words(stderr, 0, strlen(SPEAKER), text);
    ebb__progress_go_on();
}

/* A standard stream that the caller closed would be the number of the next file opened, and what is printed would
 * go into that one. Held for reading only, so that printing still fails. */
static void hold_standard_streams(void) {
    int fd = open("/dev/null", O_RDONLY);
    while (fd >= 0 && fd <= STDERR_FILENO) { fd = open("/dev/null", O_RDONLY); }
    if (fd > STDERR_FILENO) { (void)close(fd); }
}

/* OpenMP's threads spin while they wait and so take the processors from other work; beside such work a step takes ten
 * times as long. With OMP_WAIT_POLICY=passive they sleep, but the runtime reads that while it is loaded, before main.
 * So the program sets it and starts itself once more, except where
 *  - the user has chosen how to wait;
 *  - no such runtime is loaded;
 *  - `ebb record` records it, and would take it for two programs.
 * If it cannot start itself, it goes on as it is. */
static void wait_asleep(char **argv) {
    static const char *const chosen[] = {"OMP_WAIT_POLICY", "GOMP_SPINCOUNT", "KMP_BLOCKTIME", "EBB_RECORD_OUT"};
    char path[4096];
    for (size_t i = 0; i < sizeof chosen / sizeof chosen[0]; i++) {
        if (getenv(chosen[i]) != NULL) { return; }
    }
    if (dlsym(RTLD_DEFAULT, "omp_get_max_threads") == NULL) { return; }
    const ssize_t n = readlink("/proc/self/exe", path, sizeof path - 1);
    if (n <= 0 || setenv(chosen[0], "passive", 1) != 0) { return; }
    path[n] = '\0';
    (void)execv(path, argv);
}

int main(int argc, char **argv) {
    hold_standard_streams();
    (void)signal(SIGXFSZ, SIG_IGN); /* a file that must not grow is an output that failed, not the program's end */
    const char *name = argc > 1 ? argv[1] : NULL;
    if (name == NULL) { return ebb__cli_usage("say what to do; see ebb help"); }
    if (strcmp(name, "help") == 0 || strcmp(name, "--help") == 0 || strcmp(name, "-h") == 0) {
        return help(argc > 2 ? argv[2] : NULL, argc > 3 ? argv[3] : NULL);
    }
    if (strcmp(name, "version") == 0 || strcmp(name, "--version") == 0) {
        printf("ebb %s\n", ebb_version());
        return ebb__cli_close_output();
    }
    const ebb_cli_command *command = find_command(name);
    if (command == NULL) { return say_unknown(name); }
    if (command->computes) { wait_asleep(argv); }
    ebb_log_set(print_log, NULL, EBB_LOG_WARN);
    ebb__progress_begin();
    const int code = command->run(command, argc - 1, argv + 1);
    ebb__progress_end();
    return code;
}
