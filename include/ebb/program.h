/* SPDX-License-Identifier: Apache-2.0
 *
 * A program: one iteration as steps over tensors, with bytes and work, and nothing of what computes
 * them. It is the waist of ebb: whatever makes programs (a lowered network, a trace) can be planned,
 * and whatever plans needs no more than this.
 *
 * Time is the index of a step. The program is cyclic: after the last step comes the first again, and a
 * persistent tensor's content goes round.
 *
 * Versions: each write of a tensor makes its next version. A step that reads reads the version that is
 * current at its place in the program. A step may be run again whenever the versions that it reads are
 * there; it then makes the same bytes again. A step that updates (reads and overwrites) a tensor takes
 * version v to v + 1.
 *
 * The text form (docs/program-format.md) holds everything but measured times.
 */
#ifndef EBB_PROGRAM_H
#define EBB_PROGRAM_H

#include "ebb/base.h"
#include "ebb/trace.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct ebb_program ebb_program;

typedef struct ebb_tensor {
    const char *name;
    uint64_t size_bytes; /* as it lies on the device; more than 0 */
    ebb_role role;
    bool persistent; /* content goes round from one iteration into the next */
    bool kept;       /* must be on the device when the iteration ends (what the host then reads) */
} ebb_tensor;

typedef enum ebb_access_mode {
    EBB_READ = 1,
    EBB_WRITE = 2,  /* the whole tensor; what was in it does not matter */
    EBB_UPDATE = 3, /* reads, then writes in place */
} ebb_access_mode;

typedef struct ebb_access {
    uint32_t tensor;
    uint32_t mode; /* ebb_access_mode; a step has one access a tensor */
} ebb_access;

/* One algorithm by which a step can be computed. */
typedef struct ebb_choice {
    const char *name;
    uint64_t scratch_bytes; /* device memory that dies with the step */
    uint64_t key;           /* equal keys: the same work; what measured times are filed under */
    double flops;           /* for a machine that has not measured this key */
    double traffic_bytes;   /* read and written */
} ebb_choice;

typedef struct ebb_step {
    const char *name;
    const char *kind; /* the operator's name; for people and reports */
    uint32_t phase;   /* 0 forward, 1 backward, 2 update */
    uint32_t n_accesses, n_choices;
    uint64_t first_access, first_choice; /* into ebb_program_accesses, ebb_program_choices */
} ebb_step;

EBB_API void ebb_program_destroy(ebb_program *program);

/* Views, borrowed until the program dies. */
EBB_API const char *ebb_program_name(const ebb_program *program);
EBB_API uint64_t ebb_program_alignment_bytes(const ebb_program *program); /* of each tensor and scratch */
EBB_API const ebb_tensor *ebb_program_tensors(const ebb_program *program, size_t *n_out);
EBB_API const ebb_step *ebb_program_steps(const ebb_program *program, size_t *n_out);
EBB_API const ebb_access *ebb_program_accesses(const ebb_program *program, size_t *n_out);
EBB_API const ebb_choice *ebb_program_choices(const ebb_program *program, size_t *n_out);

/* A hash of everything that a plan depends on (tensors, steps, accesses, scratch; not names or times). */
EBB_API uint64_t ebb_program_fingerprint(const ebb_program *program);

/* Most bytes that one step touches at once, scratch of its smallest choice included, each at a multiple of the
 * alignment: no plan needs less. *step_out (may be NULL): which step. */
EBB_API uint64_t ebb_program_floor_bytes(const ebb_program *program, uint32_t *step_out);

/* Read and write the text form. A loaded program is the caller's to destroy. path "-" is not special here.
 * EBB_E_FORMAT names the line. EBB_E_IO: reading or writing failed; a file that is there stays as it was. */
EBB_API ebb_status ebb_program_load(const ebb_mem *mem, const char *path, ebb_program **program_out);
EBB_API ebb_status ebb_program_save(const ebb_program *program, const char *path);

#ifdef __cplusplus
}
#endif

#endif
