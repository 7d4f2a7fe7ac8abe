/* SPDX-License-Identifier: Apache-2.0
 *
 * The recorder of a process from inside: its state, and what its files do for each other. There is one a process; all
 * of it is read and written between enter and leave, which hold its lock.
 */
#ifndef EBB_SRC_PRELOAD_RECORDER_PRIV_H
#define EBB_SRC_PRELOAD_RECORDER_PRIV_H

#include "base/demangle.h"
#include "preload/preload.h"
#include "trace/ranges.h"
#include "trace/trace.h"

#include <pthread.h>
#include <sys/stat.h>

typedef struct ebb_recorder {
    pthread_mutex_t lock;
    bool is_set_up, is_over;
    bool has_file_limit; /* a write beyond it ends a process, and that must not be ours */
    pid_t pid;           /* of the process that this is for */
    char path[PRELOAD_MAX_PATH_BYTES], says[64];
    char trace_path[PRELOAD_MAX_PATH_BYTES]; /* of this process; "": nothing happened yet */
    uint64_t limit_bytes;
    size_t n_frames;
    ebb_trace_writer *writer; /* NULL: nothing happened yet */
    int fd;                   /* the writer's, and which file that was */
    struct stat file;
    uint64_t n_blocks;
    int64_t start_ns;
    preload_blocks blocks;
    uint64_t live_bytes[PRELOAD_MAX_SPACES], admitted_bytes[PRELOAD_MAX_SPACES];
    bool is_named[PRELOAD_MAX_SPACES]; /* in the trace */
    bool is_out[PRELOAD_MAX_SPACES];   /* the trace says that of it something was refused */
    bool has_device;
    ebb_ranges mapped;        /* the blocks of the space mmap */
    ebb_ranges views;         /* where CUDA's handles are mapped */
    preload_blocks handle_of; /* by a view's address: block is the handle, size_bytes its block's number */
    preload_blocks symbols;   /* by program counter: block is the function's string, size_bytes the file's */
    preload_blocks objects;   /* by the file's string: the trace says which file it is */
    ebb_demangler *demangler; /* NULL: no name of C++ has come yet */
} ebb_recorder;
extern ebb_recorder ebb__recorder;

/* ---- preload_recorder.c ------------------------------------------------------------------------- */

/* false: this thread is in here already. */
bool ebb__recorder_enter(void);
void ebb__recorder_leave(void);

/* Between them the lock may be given back for a while; others are in here then. */
void ebb__recorder_lock(void);
void ebb__recorder_unlock(void);

/* Since the trace's time 0. */
uint64_t ebb__recorder_now_ns(void);

/* The recording is over, because of the last error; the program goes on. */
void ebb__recorder_give_up(void);

/* Open the trace unless it is open; what lives already (in a child of fork) comes first. false: the recording is over.
 */
bool ebb__recorder_open(void);

/* Write the added events to the kernel. */
void ebb__recorder_flush(void);

/* An older block under the block's key is gone without a word (freed inside of another call, or by a signal's handler).
 */
void ebb__recorder_begin_block(preload_block block);
void ebb__recorder_end_block(preload_block *block);

/* ---- preload_symbols.c, preload_ranges.c --------------------------------------------------------- */

/* The number that a stack has in the trace. The lock is given back while the linker is asked. */
uint32_t ebb__recorder_number_stack(const preload_stack *stack);

/* A block of the space mmap. The parts of older blocks outside of it live on as blocks of their own; the rest is no
 * more.
 */
void ebb__recorder_begin_mapped(uint64_t address, uint64_t size_bytes, uint32_t stack);

#endif
