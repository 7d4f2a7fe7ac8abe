/* SPDX-License-Identifier: Apache-2.0
 *
 * The program from inside: what it is made of, and what follows from it.
 */
#ifndef EBB_SRC_PROGRAM_H
#define EBB_SRC_PROGRAM_H

#include "base/base.h"
#include "ebb/program.h"

/* Tensors and the largest scratch together; leaves room for sums over accesses and copies. */
#define EBB_PROGRAM_MAX_BYTES ((uint64_t)1 << 56)
#define EBB_PROGRAM_MAX_ALIGNMENT ((uint64_t)1 << 30)

#define EBB_N_RECENT_WORDS 64u

/* What a handle of the builder means: bytes of a tensor. */
typedef struct ebb_handle {
    uint32_t tensor; /* index; EBB_NO_TENSOR: no bytes */
    uint64_t offset_bytes, size_bytes;
} ebb_handle;

struct ebb_program {
    const ebb_mem *mem;
    bool finished;
    bool keeps_order;
    ebb_bump bump; /* names */
    const char *name;
    uint64_t alignment_bytes; /* a power of two */
    EBB_VEC(ebb_tensor) tensors;
    EBB_VEC(ebb_step) steps;
    EBB_VEC(ebb_access) accesses;
    EBB_VEC(ebb_choice) choices;
    EBB_VEC(ebb_handle) handles;
    EBB_VEC(uint64_t) last_access;                /* of each tensor, plus 1; 0: none. Merges a step's accesses */
    EBB_VEC(bool) has_content;                    /* of each tensor, after the last step */
    const char *recent_words[EBB_N_RECENT_WORDS]; /* kinds and algorithms repeat: each is stored about once */
};

/* For each access, by access index: the version it reads (0: the content at the start of the iteration;
 * a WRITE reads none and gets UINT32_MAX) and the version that it leaves; for each tensor the version at
 * the end. One pass, O(accesses). */
typedef struct ebb_versions {
    uint32_t *read;  /* [n_accesses] */
    uint32_t *after; /* [n_accesses] */
    uint32_t *final; /* [n_tensors] */
} ebb_versions;
ebb_status ebb__program_versions(const ebb_program *program, ebb_bump *bump, ebb_versions *versions_out);

/* For each tensor the accesses in step order, as a compressed row: accesses of tensor t are
 * use[start[t] .. start[t + 1]), each naming its step and its access. */
typedef struct ebb_use {
    uint32_t step;
    uint32_t mode;
    uint64_t access;
} ebb_use;
typedef struct ebb_uses {
    uint64_t *start; /* [n_tensors + 1] */
    ebb_use *use;    /* [n_accesses] */
} ebb_uses;
ebb_status ebb__program_uses(const ebb_program *program, ebb_bump *bump, ebb_uses *uses_out);

/* The same program with its steps in another order, order[i] the step at place i, in which each read finds the version
 * that it has in the program. Without notes of what was released. The caller destroys it. */
ebb_status ebb__program_reorder(const ebb_program *program, const uint32_t *order, const ebb_mem *mem,
                                ebb_program **program_out);

/* The fewest bytes in which all that a step touches, with this scratch, can be placed at multiples of the alignment. */
uint64_t ebb__program_step_bytes(const ebb_program *program, const ebb_step *step, uint64_t scratch_bytes);

/* The text form from memory; name is what messages call the text. It need not end in a NUL. */
ebb_status ebb__program_parse(const ebb_mem *mem, const char *name, const char *text, size_t n_bytes,
                              ebb_program **program_out);

#endif
