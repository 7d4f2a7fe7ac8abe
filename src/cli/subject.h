/* SPDX-License-Identifier: Apache-2.0
 *
 * The subject of `plan` and `compare`: a network of the zoo, a program's file, or an iteration of a recording.
 */
#ifndef EBB_SRC_CLI_SUBJECT_H
#define EBB_SRC_CLI_SUBJECT_H

#include "cli.h"

/* Zero-initialise; fini in any case. */
typedef struct ebb_cli_subject {
    ebb_session *session;
    ebb_session_parts parts;
    ebb_program *loaded; /* of a file */
    bool is_recording;
    ebb_program_trace_notes notes; /* of a recording */
    double made_s;                 /* what making the program took */
} ebb_cli_subject;

/* Whether name is one of a network or of a file with a program. false: it has been said. */
bool ebb__cli_is_subject(const ebb_cli_command *command, const char *name);
/* A name with a slash or a dot in it is a file's; the zoo's have neither. */
bool ebb__cli_is_program_file(const char *name);
ebb_status ebb__cli_subject_init(const char *name, const ebb_cli_network *network, ebb_cli_subject *subject_out);
/* Say why init failed, and with which exit code: a file that is not understood is bad input. */
int ebb__cli_subject_failed(const char *name, ebb_status status);
void ebb__cli_subject_fini(ebb_cli_subject *subject);

/* A clock for what work takes. */
double ebb__cli_now_s(void);

#endif
