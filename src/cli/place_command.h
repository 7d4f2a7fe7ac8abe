/* SPDX-License-Identifier: Apache-2.0
 *
 * `ebb place` in parts: where the problem comes from, and how answers are shown.
 */
#ifndef EBB_SRC_PLACE_COMMAND_H
#define EBB_SRC_PLACE_COMMAND_H

#include "cli.h"

/* ---- the problem ------------------------------------------------------------------------------ */

typedef struct ebb_cli_placing {
    ebb_place_file *file;
    const char *time_name; /* what its times are */
    uint64_t *starts;      /* [n_starts]: times at which a recording's iterations begin; malloc's */
    size_t n_starts;
} ebb_cli_placing;

/* Read what is at path, known by its content: a CSV, a program, a plan, a recording. "-" is standard input. device: of
 * a recording, as of ebb_trace_open_device; NULL for anything else. An exit code; what was wrong has been said. */
int ebb__cli_place_load(const char *path, const char *device, ebb_cli_placing *placing_out);

/* ---- answers ---------------------------------------------------------------------------------- */

typedef struct ebb_cli_answer {
    const char *solver;
    char refused[256]; /* why it cannot take this problem, or has no answer; "" */
    bool gave_up;      /* for the latter */
    ebb_place_result result;
    double time_s; /* of the solver alone */
} ebb_cli_answer;

/* What all answers share. */
typedef struct ebb_cli_place_facts {
    size_t n_buffers;
    uint64_t alignment_bytes;
    uint64_t capacity_bytes; /* 0: not asked for */
    uint64_t bound_bytes;    /* before any search; 0 where it is of no use */
} ebb_cli_place_facts;

static inline bool ebb__cli_place_fits(const ebb_cli_place_facts *facts, const ebb_cli_answer *answer) {
    return answer->refused[0] == '\0' && answer->result.peak_bytes <= facts->capacity_bytes;
}

/* Peak over bound; 1 where there are no bytes. */
double ebb__cli_place_ratio(const ebb_place_result *result);

/* One answer as rows for people, as a row of the table that compares, or as an object. */
void ebb__cli_place_print(const ebb_cli_place_facts *facts, const ebb_cli_answer *answer);
void ebb__cli_place_print_head(const ebb_cli_place_facts *facts);
void ebb__cli_place_print_row(const ebb_cli_place_facts *facts, const ebb_cli_answer *answer);
void ebb__cli_place_print_json(const ebb_cli_place_facts *facts, const ebb_cli_answer *answer);

/* The object for a problem that no solver could place: its fixed offsets overlap, or a capacity is known to be too
 * small before any search. */
void ebb__cli_place_print_no_fit(const ebb_cli_place_facts *facts, const char *why);

#endif
