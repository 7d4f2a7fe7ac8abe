/* SPDX-License-Identifier: Apache-2.0
 *
 * Programs from hostile bytes: what the parser lets through holds the rules that liveness relies on.
 */
#include "program/program.h"

#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void use(const ebb_program *program) {
    ebb_bump bump;
    ebb__bump_init(&bump, NULL);
    ebb_versions versions;
    ebb_uses uses;
    uint32_t step = 0;
    if (ebb__program_versions(program, &bump, &versions) != EBB_OK) { abort(); }
    if (ebb__program_uses(program, &bump, &uses) != EBB_OK) { abort(); }
    if (uses.start[program->tensors.n] != program->accesses.n) { abort(); }
    if (ebb_program_floor_bytes(program, &step) > 2 * EBB_PROGRAM_MAX_BYTES) { abort(); }
    if (step >= program->steps.n) { abort(); }
    (void)ebb_program_fingerprint(program);
    ebb__bump_fini(&bump);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    ebb_program *program = NULL;
    ebb_status st = ebb__program_parse(NULL, "fuzz", (const char *)data, size, &program);
    if (st == EBB_OK) {
        use(program);
    } else if (st != EBB_E_FORMAT || program != NULL) {
        abort();
    }
    ebb_program_destroy(program);
    return 0;
}
