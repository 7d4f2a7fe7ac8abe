/* SPDX-License-Identifier: Apache-2.0
 *
 * The recorded program in one line: the network or the command, its program, the framework and the recorder, as far as
 * notes and call stacks tell.
 */
#include "base/file.h"
#include "report/report_priv.h"

#define MAX_BLOCKS_ASKED 1000u /* for the program's file */

static const char *note_of(const ebb_report *report, const char *key) {
    const char *value = ebb_trace_reader_note(report->reader, key);
    return value != NULL ? value : "";
}

static bool is_program(const char *file) {
    const size_t n = strlen(file);
    const bool is_python = n > 3 && strcmp(file + n - 3, ".py") == 0;
    return is_python && strstr(file, "-packages") == NULL && strstr(file, "/lib/python") == NULL;
}

/* The outermost Python file that is not a library's, of the first call stack with one; "": none. */
static const char *program_of(const ebb_report *report) {
    if (!ebb__report_tells(report, EBB_TRACE_TELLS_STACKS)) { return ""; }
    for (uint64_t b = 0; b < report->summary.n_blocks && b < MAX_BLOCKS_ASKED; b++) {
        const char *found = "";
        for (uint32_t stack = ebb_study_get_block(report->study, b).stack; stack != 0;) {
            const ebb_trace_frame frame = ebb_trace_reader_frame(report->reader, stack);
            const char *file = ebb_trace_reader_string(report->reader, frame.file);
            if (is_program(file)) { found = file; }
            stack = frame.caller;
        }
        if (found[0] != '\0') { return ebb__base_name(found); }
    }
    return "";
}

const char *ebb__report_title(const ebb_report *report, ebb_bump *bump) {
    const char *source = report->summary.source[0] != '\0' ? report->summary.source : "source unknown";
    const char *net = note_of(report, "net"), *command = note_of(report, "command");
    if (strcmp(source, "ebb run") == 0) {
        const char *policy = note_of(report, "policy"), *backend = note_of(report, "backend");
        return ebb__bump_printf(bump, "%s%sebb run%s%s%s%s", net, net[0] != '\0' ? ", " : "",
                                backend[0] != '\0' ? ", backend " : "", backend, policy[0] != '\0' ? ", policy " : "",
                                policy);
    }
    if (command[0] != '\0') { return ebb__bump_printf(bump, "%s, %s", command, source); }
    const char *program = program_of(report);
    return ebb__bump_printf(bump, "%s%s%s%s%s", net, net[0] != '\0' ? ", " : "", program,
                            program[0] != '\0' ? ", " : "",
                            strcmp(source, "ebb.torch") == 0 ? "PyTorch, recorded by ebb.torch" : source);
}
