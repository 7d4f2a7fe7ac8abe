/* SPDX-License-Identifier: Apache-2.0
 *
 * From a name on the command line to a session with a program.
 */
#include "subject.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

double ebb__cli_now_s(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

bool ebb__cli_is_program_file(const char *name) {
    return strpbrk(name, "/.") != NULL;
}

/* A file, or a pipe, of the name of no network: it is planned by a path with a slash in it. */
static bool is_file_without_slash(const char *name) {
    const size_t n = strcspn(name, ":");
    const char *network = NULL;
    for (size_t i = 0; (network = ebb_zoo_name(i, NULL)) != NULL; i++) {
        if (strncmp(network, name, n) == 0 && strcspn(network, ":") == n) { return false; }
    }
    return !ebb__cli_is_program_file(name) && access(name, F_OK) == 0;
}

/* FOREIGN: a recording, or a program of another planner's. */
typedef enum file_kind { FILE_OTHER, FILE_PLAN, FILE_FOREIGN } file_kind;

/* By its first bytes. A pipe gives them only once; it is taken for a program. */
static file_kind kind_of_file(const char *name) {
    static const char plan[] = "ebb-plan ", program[] = "ebb-program ", gzip[] = "\x1f\x8b";
    struct stat info;
    file_kind kind = FILE_OTHER;
    FILE *file = stat(name, &info) == 0 && S_ISREG(info.st_mode) ? fopen(name, "re") : NULL;
    char *head = file != NULL ? malloc(EBB_TRACE_HEAD_BYTES) : NULL;
    if (head != NULL) {
        const size_t n = fread(head, 1, EBB_TRACE_HEAD_BYTES, file);
        if (n >= strlen(plan) && memcmp(head, plan, strlen(plan)) == 0) {
            kind = FILE_PLAN;
        } else if (n < strlen(program) || memcmp(head, program, strlen(program)) != 0) {
            const bool is_gzip = n >= strlen(gzip) && memcmp(head, gzip, strlen(gzip)) == 0;
            const bool is_known = ebb_program_format_of(head, n) != NULL || ebb_trace_format_of(head, n, name) != NULL;
            kind = is_gzip || is_known ? FILE_FOREIGN : FILE_OTHER;
        }
    }
    free(head);
    if (file != NULL) { (void)fclose(file); }
    return kind;
}

bool ebb__cli_is_subject(const ebb_cli_command *command, const char *name) {
    if (kind_of_file(name) == FILE_PLAN) {
        ebb__cli_usage("%s: %s is a plan; say which network or program it is for, and --check %s", command->name, name,
                       name);
        return false;
    }
    if (is_file_without_slash(name)) {
        ebb__cli_usage("%s: there is no network %s; if you mean the file, type ./%s", command->name, name, name);
        return false;
    }
    return true;
}

/* Say where the program comes from, and what it does not tell. */
static void tell_notes(const char *name, const ebb_program_trace_notes *notes) {
    ebb__progress_clear();
    if (notes->iteration.found) {
        ebb__cli_say("note: %s: of %" PRIu64 " iterations found (confidence %.0f%%), the one of events %" PRIu64
                     " to %" PRIu64 " is planned for",
                     name, notes->iteration.count, 100.0 * notes->iteration.confidence, notes->first_event,
                     notes->first_event + notes->n_events - 1);
    } else {
        ebb__cli_say("note: %s: no iteration was found in it, so all of it is planned for as one", name);
    }
    if (!notes->has_accesses) {
        ebb__cli_say("note: %s: it tells no reads and writes; a block is taken to be used from its allocation to its "
                     "free",
                     name);
    }
    ebb__cli_say(
        "note: %s: a recording does not tell which steps can be run again, so none is, and all keep their order", name);
    if (notes->is_slowed) {
        ebb__cli_say("note: %s: recording slowed its steps, so copies seem to cost less than they do", name);
        ebb__cli_say("note: ebb.torch.plan and ebb.torch.Budget plan for the program itself, and compute again, too");
    }
}

static ebb_status convert_recording(const char *name, const ebb_cli_network *options, ebb_cli_subject *s) {
    ebb_trace_reader *reader = NULL;
    char device[24];
    snprintf(device, sizeof device, "%" PRIu64, options->device);
    ebb_status status = ebb__cli_open_recording(name, options->device > 0 ? device : NULL, &reader);
    if (status == EBB_OK) { status = ebb_program_from_trace(reader, NULL, &s->loaded, &s->notes); }
    if (status == EBB_OK && !ebb_trace_reader_info(reader).complete) { ebb__cli_warn_of_cut(name); }
    ebb_trace_reader_close(reader);
    if (status == EBB_OK) { tell_notes(name, &s->notes); }
    return status;
}

static ebb_status convert_foreign(const char *name, const ebb_cli_network *options, ebb_cli_subject *s) {
    const ebb_status status = ebb_program_import(name, NULL, &s->loaded);
    if (status != EBB_E_UNSUPPORTED) { return status; }
    s->is_recording = true;
    return convert_recording(name, options, s);
}

ebb_status ebb__cli_subject_init(const char *name, const ebb_cli_network *network, ebb_cli_subject *s) {
    ebb_session_options options = EBB_SESSION_OPTIONS_INIT;
    const bool is_file = ebb__cli_is_program_file(name);
    const double start_s = ebb__cli_now_s();
    ebb__progress_tell("making the program", 0, 0);
    const bool is_foreign = is_file && kind_of_file(name) == FILE_FOREIGN;
    ebb_status status = EBB_OK;
    if (is_file) { status = is_foreign ? convert_foreign(name, network, s) : ebb_program_load(NULL, name, &s->loaded); }
    if (status == EBB_OK) { status = ebb__cli_session_options(is_file ? NULL : name, network, &options); }
    options.program = s->loaded;
    if (status == EBB_OK) { status = ebb_session_open(&options, &s->session); }
    s->made_s = ebb__cli_now_s() - start_s;
    if (status == EBB_OK) { s->parts = ebb_session_get_parts(s->session); }
    return status;
}

int ebb__cli_subject_failed(const char *name, ebb_status status) {
    return ebb__cli_is_program_file(name) ? ebb__cli_file_failed(status) : ebb__cli_failed(status);
}

void ebb__cli_subject_fini(ebb_cli_subject *s) {
    ebb_session_close(s->session);
    ebb_program_destroy(s->loaded);
}
