/* SPDX-License-Identifier: Apache-2.0
 *
 * The program of a benchmark that works on files.
 */
#ifndef EBB_BENCH_PROGRAM_FILE_H
#define EBB_BENCH_PROGRAM_FILE_H

#include "ebb/program_import.h"

/* Load a program's file, or one that `ebb import` reads. The caller destroys the program. */
static inline ebb_status ebb_bench_load_program(const char *path, ebb_program **program_out) {
    const ebb_status st = ebb_program_import(path, NULL, program_out);
    return st == EBB_E_UNSUPPORTED ? ebb_program_load(NULL, path, program_out) : st;
}

#endif
