/* SPDX-License-Identifier: Apache-2.0
 *
 * What the fuzz targets of other planners' files share: hostile bytes are refused with a status that fits, or become a
 * program that holds the rules on which plans rely. Needs the format's name.
 */
#ifndef EBB_TESTS_FOREIGN_FUZZ_H
#define EBB_TESTS_FOREIGN_FUZZ_H

#include "program/foreign_priv.h"

#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check_program(const ebb_program *program) {
    ebb_bump bump;
    ebb_versions versions;
    ebb_uses uses;
    uint32_t step = 0;
    ebb__bump_init(&bump, NULL);
    if (ebb__program_versions(program, &bump, &versions) != EBB_OK) { abort(); }
    if (ebb__program_uses(program, &bump, &uses) != EBB_OK) { abort(); }
    if (uses.start[program->tensors.n] != program->accesses.n) { abort(); }
    if (ebb_program_floor_bytes(program, &step) > 2 * EBB_PROGRAM_MAX_BYTES || step >= program->steps.n) { abort(); }
    ebb__bump_fini(&bump);
}

static int fuzz_foreign(const char *format, const uint8_t *data, size_t size) {
    ebb_stream stream = ebb__stream_memory("fuzz", data, size);
    ebb_program_import_options options = EBB_PROGRAM_IMPORT_OPTIONS_INIT;
    ebb_program *program = NULL;
    options.format = format;
    const ebb_status st = ebb__program_import_stream(&stream, &options, &program);
    if (st == EBB_OK) {
        check_program(program);
    } else if ((st != EBB_E_FORMAT && st != EBB_E_LIMIT) || program != NULL) {
        abort();
    }
    ebb_program_destroy(program);
    return 0;
}

#endif
