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
 * there, unless it says that it cannot (ebb_repeat); it then makes the same bytes again. A step that updates (reads and
 * overwrites) a tensor takes version v to v + 1.
 *
 * A program is built (below), loaded from its text form (docs/program-format.md), lowered from a network or made from a
 * trace (ebb/program_trace.h). Once finished it does not change.
 */
#ifndef EBB_PROGRAM_H
#define EBB_PROGRAM_H

#include "ebb/role.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct ebb_program ebb_program;

/* What the maker of a program says about a tensor, for policies that ask. It changes no rule. */
enum {
    EBB_MARK_CHECKPOINT = 1u << 0, /* worth keeping: what lies between two such tensors is made again from the first */
    EBB_MARKS_ALL = EBB_MARK_CHECKPOINT
};

typedef struct ebb_tensor {
    const char *name;
    uint64_t size_bytes; /* as it lies on the device; more than 0 in a finished program */
    ebb_role role;
    uint32_t marks;  /* EBB_MARK_... */
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
    uint64_t time_ns;       /* measured, for a machine that has not measured this key; 0: not measured */
    double flops;           /* for a machine where neither is known */
    double traffic_bytes;   /* read and written */
} ebb_choice;

/* How a step can be run again. No plan may repeat a step that is not exact. */
typedef enum ebb_repeat {
    EBB_REPEAT_EXACT,      /* it makes the same bits */
    EBB_REPEAT_OTHER_BITS, /* it makes a result as good, but of other bits */
    EBB_REPEAT_NEVER,      /* it cannot be, or it is not known whether it can */
    EBB_N_REPEATS
} ebb_repeat;

typedef struct ebb_step {
    const char *name;
    const char *kind; /* the operator's name; for people and reports */
    uint32_t phase;   /* ebb_phase */
    uint32_t repeat;  /* ebb_repeat */
    uint32_t n_accesses, n_choices;
    uint64_t first_access, first_choice; /* into ebb_program_accesses, ebb_program_choices */
} ebb_step;

/* ---- building --------------------------------------------------------------------------------- */

/* A program without tensors and steps, the caller's to destroy. name (may be NULL) is copied. alignment_bytes, of each
 * tensor and scratch, is a power of two up to 2^30; else EBB_E_ARGUMENT. mem (may be NULL) must outlive the program. */
EBB_API ebb_status ebb_program_create(const ebb_mem *mem, const char *name, uint64_t alignment_bytes,
                                      ebb_program **program_out);

/* Add a tensor; its name is copied. *handle_out is what the builder's other functions call it: handles count from 0 in
 * the order in which tensors and views are added. One of no bytes is taken and then left out of the program, as are
 * accesses to it. EBB_E_ARGUMENT, with the program as before: no name, too many bytes, an unknown role or mark; the
 * program is finished (so of each function here). EBB_E_LIMIT: 2^32 - 2 handles. */
EBB_API ebb_status ebb_program_add_tensor(ebb_program *program, const ebb_tensor *tensor, uint32_t *handle_out);

/* Add a view: the size_bytes from offset_bytes on of the tensor or view base. It is no tensor of the program. An access
 * to it is one to its tensor; a write of a part is an update, but for the first write of a tensor that is not
 * persistent, before which there is nothing to keep. EBB_E_ARGUMENT: no such base, or the bytes are not within it. */
EBB_API ebb_status ebb_program_add_view(ebb_program *program, uint32_t base, uint64_t offset_bytes, uint64_t size_bytes,
                                        uint32_t *handle_out);

/* Add a step after the last one, with step->n_accesses accesses, whose tensors are handles, and step->n_choices choices
 * (one at least). Names are copied; first_access and first_choice are ignored. Accesses to one tensor become one: a
 * read and a write an update. EBB_E_ARGUMENT, with the program as before: no name, kind or choice, an unknown handle,
 * mode, phase or repeat, work that is not a finite number of 0 or more. */
EBB_API ebb_status ebb_program_add_step(ebb_program *program, const ebb_step *step, const ebb_access *accesses,
                                        const ebb_choice *choices);

/* Check the whole: at least one step, no tensor read before it is written unless it is persistent, kept and persistent
 * tensors accessed, at most 2^56 bytes in all. EBB_E_FORMAT names the step or tensor that is wrong; the program can
 * then only be destroyed. From EBB_OK on the program is const, and may be planned for and shared between threads. */
EBB_API ebb_status ebb_program_finish(ebb_program *program);

/* The index in ebb_program_tensors of what a handle means, of a view its tensor's; EBB_NO_TENSOR for one of no bytes,
 * and for what is not a handle. Known as soon as it is added. Without views and empty tensors it is the handle. */
#define EBB_NO_TENSOR UINT32_MAX
EBB_API uint32_t ebb_program_find_tensor(const ebb_program *program, uint32_t handle);

EBB_API void ebb_program_destroy(ebb_program *program); /* NULL is fine */

/* ---- views ------------------------------------------------------------------------------------ */

/* Views, borrowed until the program dies. */
EBB_API const char *ebb_program_name(const ebb_program *program);
EBB_API uint64_t ebb_program_alignment_bytes(const ebb_program *program); /* of each tensor and scratch */
EBB_API const ebb_tensor *ebb_program_tensors(const ebb_program *program, size_t *n_out);
EBB_API const ebb_step *ebb_program_steps(const ebb_program *program, size_t *n_out);
EBB_API const ebb_access *ebb_program_accesses(const ebb_program *program, size_t *n_out);
EBB_API const ebb_choice *ebb_program_choices(const ebb_program *program, size_t *n_out);

/* A hash of everything that a plan depends on (tensors, steps, accesses, scratch, how steps can be repeated; not names,
 * marks or times). */
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
