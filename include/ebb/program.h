/* SPDX-License-Identifier: Apache-2.0
 *
 * A program: one iteration as steps over tensors, with their bytes and work, but without the code that computes them.
 * It is the waist of ebb: everything that can be described as a program (a lowered network, a trace) can be planned,
 * and planners need to know nothing else.
 *
 * Time is the index of a step. The program is cyclic: after the last step the first one follows, and the content of a
 * persistent tensor lives on.
 *
 * Versions: each write of a tensor makes its next version. A step reads the version that is current at its place in the
 * program. It may run again whenever the versions that it reads are there, and then makes the same bytes, unless it
 * says otherwise (ebb_repeat). A step that updates (reads and overwrites) a tensor takes version v to v + 1.
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

/* Notes about a tensor from the maker of the program, for policies that look at them. They change no rule. */
enum {
    EBB_MARK_CHECKPOINT = 1u << 0, /* worth keeping: what lies between two such tensors is made again from the first */
    EBB_MARK_LONG_READ = 1u << 1,  /* what reads it computes for long, so that a copy of it can hide behind that */
    EBB_MARKS_ALL = EBB_MARK_CHECKPOINT | EBB_MARK_LONG_READ
};

typedef struct ebb_tensor {
    const char *name;
    uint64_t size_bytes; /* as it lies on the device; more than 0 in a finished program */
    ebb_role role;
    uint32_t marks;    /* EBB_MARK_... */
    bool persistent;   /* its content lives on into the next iteration */
    bool kept;         /* must be on the device when the iteration ends (what the host then reads) */
    uint32_t released; /* a note, too: how many steps had run when the maker of the program gave it back, after its last
                          access; 0: not told */
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
    uint64_t key;           /* equal keys mean the same work; measured times are stored by key */
    uint64_t time_ns;       /* measured, for a machine that has not measured this key; 0: not measured */
    double flops;           /* to estimate the time if it is not known otherwise */
    double traffic_bytes;   /* read and written */
    bool copies_in; /* it only copies from the host's memory: an engine for that does it, if the machine has one */
} ebb_choice;

/* How a step can be run again. No plan may repeat a step that is not exact. */
typedef enum ebb_repeat {
    EBB_REPEAT_EXACT,      /* it makes the same bits */
    EBB_REPEAT_OTHER_BITS, /* its result is as good, but has other bits */
    EBB_REPEAT_NEVER,      /* it cannot run again, or that is not known */
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

/* An empty program; the caller destroys it. name (may be NULL) is copied. alignment_bytes is for each tensor and
 * scratch: a power of two up to 2^30, else EBB_E_ARGUMENT. mem must outlive the program. */
EBB_API ebb_status ebb_program_create(const ebb_mem *mem, const char *name, uint64_t alignment_bytes,
                                      ebb_program **program_out);

/* Add a tensor; its name is copied. *handle_out is its number for the other functions of the builder: handles count
 * from 0 in the order in which tensors and views are added. A tensor of 0 bytes is accepted, but it and its accesses
 * are left out of the program. EBB_E_ARGUMENT, with the program unchanged: no name, too many bytes, an unknown role or
 * mark, or, as for each function here, the program is finished. EBB_E_LIMIT: 2^32 - 2 handles. */
EBB_API ebb_status ebb_program_add_tensor(ebb_program *program, const ebb_tensor *tensor, uint32_t *handle_out);

/* Add a view: size_bytes from offset_bytes on of the tensor or view base. A view is not a tensor of the program; an
 * access to it counts as an access to its tensor. Writing a part of a tensor is an update, except for the first write
 * of a tensor that is not persistent, because there is no old content to keep. EBB_E_ARGUMENT: no such base, or the
 * bytes are not within it. */
EBB_API ebb_status ebb_program_add_view(ebb_program *program, uint32_t base, uint64_t offset_bytes, uint64_t size_bytes,
                                        uint32_t *handle_out);

/* Add a step after the last one, with step->n_accesses accesses, whose tensors are handles, and step->n_choices choices
 * (one at least). Names are copied; first_access and first_choice are ignored. Accesses to one tensor become one: a
 * read and a write an update. EBB_E_ARGUMENT, with the program as before: no name, kind or choice, an unknown handle,
 * mode, phase or repeat, work that is negative or not finite. */
EBB_API ebb_status ebb_program_add_step(ebb_program *program, const ebb_step *step, const ebb_access *accesses,
                                        const ebb_choice *choices);

/* No plan may run the steps in another order than the program's: the accesses do not tell all that a step depends on.
 * EBB_E_ARGUMENT: the program is finished. */
EBB_API ebb_status ebb_program_keep_order(ebb_program *program);

/* Check the program: it has at least one step; no tensor is read before it is written unless it is persistent; kept and
 * persistent tensors are accessed; none is released before its last access; at most 2^56 bytes in all. EBB_E_FORMAT
 * names the step or tensor that is wrong; the program can then only be destroyed. From EBB_OK on the program is const,
 * and may be planned for and shared between threads. */
EBB_API ebb_status ebb_program_finish(ebb_program *program);

/* The index in ebb_program_tensors for a handle; for a view, the index of its tensor. EBB_NO_TENSOR for a tensor of 0
 * bytes, or if it is not a handle. It is known as soon as the handle is. Without views and empty tensors it equals the
 * handle. */
#define EBB_NO_TENSOR UINT32_MAX
EBB_API uint32_t ebb_program_find_tensor(const ebb_program *program, uint32_t handle);

EBB_API void ebb_program_destroy(ebb_program *program);

/* ---- views ------------------------------------------------------------------------------------ */

/* Views, borrowed until the program dies. */
EBB_API const char *ebb_program_name(const ebb_program *program);
EBB_API uint64_t ebb_program_alignment_bytes(const ebb_program *program); /* of each tensor and scratch */
EBB_API bool ebb_program_keeps_order(const ebb_program *program);
EBB_API const ebb_tensor *ebb_program_tensors(const ebb_program *program, size_t *n_out);
EBB_API const ebb_step *ebb_program_steps(const ebb_program *program, size_t *n_out);
EBB_API const ebb_access *ebb_program_accesses(const ebb_program *program, size_t *n_out);
EBB_API const ebb_choice *ebb_program_choices(const ebb_program *program, size_t *n_out);

/* A hash of everything that a plan depends on: tensors, steps, accesses, scratch, whether the order is kept, and how
 * steps can be repeated, but not names, marks or times. */
EBB_API uint64_t ebb_program_fingerprint(const ebb_program *program);

/* The most bytes that one step uses at once, including the scratch of its smallest choice, each rounded up to the
 * alignment: no plan needs less. *step_out (may be NULL): which step. */
EBB_API uint64_t ebb_program_floor_bytes(const ebb_program *program, uint32_t *step_out);

/* Read and write the text form. The caller destroys a loaded program. path "-" is not special here.
 * EBB_E_FORMAT names the line. EBB_E_IO: reading or writing failed; a file that is there stays as it was. */
EBB_API ebb_status ebb_program_load(const ebb_mem *mem, const char *path, ebb_program **program_out);
EBB_API ebb_status ebb_program_save(const ebb_program *program, const char *path);

#ifdef __cplusplus
}
#endif

#endif
