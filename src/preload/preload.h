/* SPDX-License-Identifier: Apache-2.0
 *
 * libebb_record.so: preloaded into a program that no one can change, it records the program's large allocations as a
 * trace. `ebb record` sets it up through the environment; docs/record.md says what is seen and what is not.
 *
 * It stands between a program and its allocator, so other rules hold here than in the library:
 *  - There is one recorder a process, and it is global.
 *  - Inside the recorder nothing calls malloc: what it needs comes from preload_memory.c.
 *  - A call below the least size costs a comparison; a free below it a look at a filter of 32 KiB.
 *  - The recorder's lock is not held while the dynamic linker is asked: a thread that loads a library holds the
 *    linker's own lock, and may wait for ours with a large allocation.
 *  - A thread that is in the recorder already, or in an allocation that is being recorded (CUDA's allocator calls
 *    malloc, too), is let through unrecorded.
 */
#ifndef EBB_SRC_PRELOAD_H
#define EBB_SRC_PRELOAD_H

#include "base/base.h"

#include <stdatomic.h>

#define PRELOAD_EXPORT __attribute__((visibility("default")))

/* Spaces of the trace; a device's is PRELOAD_DEVICE plus its number. */
enum { PRELOAD_MALLOC, PRELOAD_MMAP, PRELOAD_PINNED, PRELOAD_MANAGED, PRELOAD_DEVICE, PRELOAD_MAX_SPACES = 4 + 64 };

/* ---- real functions (preload_real.c) ----------------------------------------------------------- */

/* The function that the program would have without us; NULL if none exists. */
void *ebb__preload_next(const char *name);

/* glibc's dlsym, to which this library's own is an addition. */
void *ebb__preload_dlsym(void *handle, const char *name);

/* The same in a library that is loaded already, where its file's name begins with this; for one that the program
 * loaded with RTLD_LOCAL. */
void *ebb__preload_in_library(const char *prefix, const char *name);

/* ---- memory of the recorder itself (preload_memory.c) ------------------------------------------ */

extern const ebb_mem ebb__preload_mem;

/* ---- live blocks by address (preload_blocks.c) -------------------------------------------------- */

typedef struct preload_block {
    uint64_t key; /* 0: a free slot */
    uint64_t block, size_bytes;
    uint32_t space, stack;
    uint32_t n_uses; /* of a handle: the program's and its mappings; else 1 */
} preload_block;

typedef struct preload_blocks {
    preload_block *slot; /* [n_slots], open addressing */
    size_t n_slots, n;
} preload_blocks;

preload_block *ebb__preload_blocks_find(const preload_blocks *blocks, uint64_t key);
bool ebb__preload_blocks_add(preload_blocks *blocks, const preload_block *block);
void ebb__preload_blocks_remove(preload_blocks *blocks, preload_block *block);

/* ---- call stacks (preload_stacks.c) -------------------------------------------------------------- */

enum { PRELOAD_MAX_FRAMES = 32 };

typedef struct preload_stack {
    size_t n;
    uintptr_t pc[PRELOAD_MAX_FRAMES]; /* the innermost first */
} preload_stack;

/* The callers of this library, at most n_max. */
void ebb__preload_stack_take(preload_stack *stack, size_t n_max);

/* ---- its files (preload_file.c) ------------------------------------------------------------------- */

#define PRELOAD_MAX_PATH_BYTES ((size_t)4096)
#define PRELOAD_SAYS "ebb-record"

/* A file that was not there, -1 when none can be made (with a message). Its name goes to path[PRELOAD_MAX_PATH_BYTES].
 */
int ebb__preload_make_file(const char *base, char *path);

/* The process's command line, its words separated by blanks. */
void ebb__preload_read_command(char *text, size_t n_bytes);

/* What went wrong, to `ebb record`: a line into a file without a name that it holds open at this path (of /proc). It
 * says so when the command has ended; the command's own stderr is not used. Nothing happens when the path has
 * become another file's. */
void ebb__preload_tell(const char *says, const char *what);

/* ---- the recorder (preload_recorder.c) ----------------------------------------------------------- */

/* Calls for fewer bytes are not recorded; SIZE_MAX while nothing is recorded. */
extern atomic_size_t ebb__preload_min_bytes;
extern bool ebb__preload_no_kernels; /* no one asks CUPTI */

typedef enum preload_answer {
    PRELOAD_PASS,   /* not recorded: do it */
    PRELOAD_REFUSE, /* past the limit: fail */
    PRELOAD_RECORD, /* do it, then say ebb__preload_done */
} preload_answer;

/* Whether a call for this many bytes may be recorded. Where not, no one need find out its space: PRELOAD_MAX_SPACES
 * does.
 */
bool ebb__preload_counts(uint64_t size_bytes);

/* Before an allocation of at least the least size. */
preload_answer ebb__preload_ask(uint32_t space, uint64_t size_bytes);

/* After it: a key (an address; 0 when it failed) under which it will be freed, and what was asked for and taken. */
void ebb__preload_done(uint32_t space, uint64_t key, uint64_t asked_bytes, uint64_t size_bytes);

/* Whether a key may be one of a recorded block. */
bool ebb__preload_may_be(uint64_t key);

/* Before a free: the block of this key, if there is one, is no more. What it was, for ebb__preload_give_back when
 * the program keeps it after all. */
bool ebb__preload_take(uint64_t key, preload_block *was_out);
void ebb__preload_give_back(const preload_block *was);

/* Before the pages of [address, address + size_bytes) are unmapped: of mapped blocks what lies in it is no more. How
 * many bytes that were, for ebb__preload_map_back when they stay after all: as one block at address, without a caller,
 * whatever blocks they were. */
uint64_t ebb__preload_unmap(uint64_t address, uint64_t size_bytes);
void ebb__preload_map_back(uint64_t address, uint64_t size_bytes);
#define PRELOAD_MAPPED 1u /* the lowest bit of a mapped block's key, which an allocator may also give out */

/* A device was reset: of its space there is nothing any more. */
void ebb__preload_reset(uint32_t space);

/* The memory of a device or the host as the limit has it: what is left and what there is. */
void ebb__preload_shrink(uint32_t space, uint64_t *free_bytes, uint64_t *total_bytes);

/* CUDA's own memory: physical handles live until they are released as often as made and retained, and nowhere
 * mapped. All this is said after CUDA's call, when a handle that it let go may be another thread's already: so who
 * releases one says which block's handle it was before the call, by ebb__preload_handle_block. */
void ebb__preload_handle_mapped(uint64_t address, uint64_t size_bytes, uint64_t handle);
void ebb__preload_handle_unmapped(uint64_t address, uint64_t size_bytes);
void ebb__preload_handle_retained(uint64_t handle);
uint64_t ebb__preload_handle_block(uint64_t handle);
void ebb__preload_handle_released(uint64_t handle, uint64_t block);
#define PRELOAD_HANDLE ((uint64_t)1 << 63) /* of a handle's key */

/* For what is told beside the trace, by cuda_activity.c, where nothing may be allocated: a note of the trace; the
 * path[PRELOAD_MAX_PATH_BYTES] of a file beside it and the trace's time 0 on CLOCK_MONOTONIC (false: there is no
 * recording); text at the end of such a file. */
void ebb__preload_note(const char *key, const char *value);
bool ebb__preload_begin_beside(char *path, uint64_t *zero_ns_out);
void ebb__preload_append(const char *path, const char *text, size_t n_bytes);

/* Whether this thread's allocations go unrecorded from now on; what was before. */
bool ebb__preload_set_nested(bool nested);

/* ---- CUDA (preload_cuda.c) ------------------------------------------------------------------------ */

/* The wrapper of a function of CUDA by its name, remembering the real one; NULL when it has none. From any thread;
 * where several libraries have the function, the wrapper calls the one that was found last. */
void *ebb__preload_cuda_wrap(const char *name, void *real);

#endif
