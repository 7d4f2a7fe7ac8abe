/* SPDX-License-Identifier: Apache-2.0
 *
 * One suite for every backend: each operator over many shapes against ref, and the contract of streams and
 * memory. A backend's program is conformance_main with its name.
 *
 * A problem is a kernel's description without layouts. Its inputs are drawn from a seed, packed into the layouts
 * that the kernel asks for, and laid into an arena with guard bytes around each operand; a run's outputs are
 * the bytes that it left.
 */
#ifndef EBB_TESTS_CONFORMANCE_H
#define EBB_TESTS_CONFORMANCE_H

#include "backend/kernel_check.h"

#include <setjmp.h>
#include <stdarg.h>
#include <cmocka.h>

#define MAX_OPERANDS 12u
#define MUST(expr) assert_int_equal((expr), EBB_OK)

typedef enum fill { FILL_NORMAL, FILL_POSITIVE, FILL_RECTIFIED, FILL_LABELS } fill;

typedef struct problem {
    ebb_op_kind kind;
    ebb_op_attr attr;
    uint32_t n_in, n_out, n_inout;
    ebb_operand operand[MAX_OPERANDS];
    fill fill[MAX_OPERANDS];
    int32_t n_classes; /* FILL_LABELS: below it */
    char text[160];    /* for messages */
    /* Input i of a backward problem is operand from[i] - 1 of the forward one; 0: drawn. */
    const struct problem *forward;
    uint8_t from[MAX_OPERANDS];
} problem;

static inline uint32_t n_operands(const problem *p) {
    return p->n_in + p->n_out + p->n_inout;
}

static inline uint64_t plain_bytes(const ebb_operand *operand) {
    return (uint64_t)ebb__shape_elements(&operand->shape) * ebb_dtype_bytes(operand->dtype);
}

/* All problems of the suite, made once; conformance_problems.c. */
typedef struct problem_list {
    problem *data;
    size_t n, cap;
} problem_list;
void problems_init(problem_list *list);
void problems_fini(problem_list *list);

/* A device with what running a problem needs; conformance_run.c. */
typedef struct bench {
    const ebb_backend_ops *ops;
    ebb_device *device;
    ebb_arena_mem *arena;
    ebb_stream *stream;
    unsigned char *image, *before; /* of the arena, on the host; host_alloc's */
    ebb_run_state state;
    void *port[2]; /* state.port: FEED's, FETCH's */
} bench;
#define BENCH_BYTES ((uint64_t)40 << 20) /* a library's workspace of 32 MiB, and operands */

void bench_init(bench *b, ebb_device *device); /* takes it over */
void bench_fini(bench *b);

/* Operands' contents: row-major, or raw bytes for opaque ones and before unpack_outputs. */
typedef struct contents {
    unsigned char *data[MAX_OPERANDS];
    uint64_t n_bytes[MAX_OPERANDS];
    ebb_layout layout[MAX_OPERANDS]; /* of opaque operands */
    unsigned char *port;             /* what FEED reads or FETCH wrote, as large as operand 0 */
} contents;

void contents_init(contents *c, const problem *p, uint64_t seed);
void contents_fini(contents *c);
void contents_set(contents *c, uint32_t idx, const void *data, uint64_t n_bytes);

/* What inputs are said to be in: left to the kernel, row-major, or what a convolution would leave them in. (On cpu
 * the first two make 552 kernels of the suite's problems, all three 715.) */
typedef enum input_mode { INPUTS_ANY, INPUTS_PLAIN, INPUTS_OF_CONV, N_INPUT_MODES } input_mode;

typedef struct variant {
    input_mode inputs;
    uint32_t choice;
    uint64_t shift_bytes; /* where in the arena */
    int inplace_input;    /* output 0 lies over it; -1: nowhere */
} variant;

ebb_status make_kernel(bench *b, const problem *p, const contents *in, variant v, ebb_kernel **kernel_out);

/* Run kernel on in; out gets the raw bytes of outputs and inouts. Fails the test when a byte outside of these
 * and the scratch has changed. */
void run_kernel(bench *b, const problem *p, ebb_kernel *kernel, const contents *in, variant v, contents *out);

/* Raw to row-major. Fails the test when padding is not zero. */
void unpack_outputs(bench *b, const problem *p, const ebb_kernel *kernel, contents *out);

/* Streams, events, copies and calls; conformance_streams.c. *state: a bench. */
void copies_round_trip(void **state);
void events_order_streams(void **state);
void late_errors_surface_once(void **state);
void kernels_run_in_stream_order(void **state);

/* Exit code of a test program; 77 when the backend is not in this build or has no device. */
int conformance_main(const char *backend);
/* The same on a device that is open, which is closed. */
int conformance_run(ebb_device *device);

#endif
