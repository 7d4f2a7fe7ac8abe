/* SPDX-License-Identifier: Apache-2.0
 *
 * Call stacks, by the compiler's unwinding tables: programs are seldom built with frame pointers. Some microseconds,
 * for large allocations alone.
 */
#include "preload/preload.h"

#include <unwind.h>

typedef struct walk {
    preload_stack *stack;
    size_t n_max;
} walk;

/* This library, from its first byte to its last; the linker gives both. */
extern const char __ehdr_start[] __attribute__((visibility("hidden")));
extern const char _end[] __attribute__((visibility("hidden")));

static bool is_own(uintptr_t pc) {
    return pc >= (uintptr_t)__ehdr_start && pc < (uintptr_t)_end;
}

static _Unwind_Reason_Code add_frame(struct _Unwind_Context *context, void *ctx) {
    walk *w = ctx;
    const uintptr_t pc = (uintptr_t)_Unwind_GetIP(context);
    if (pc == 0) { return _URC_END_OF_STACK; }
    if (w->stack->n == 0 && is_own(pc)) { return _URC_NO_REASON; }
    if (w->stack->n == w->n_max) { return _URC_END_OF_STACK; }
    w->stack->pc[w->stack->n++] = pc - 1; /* of the call, not of what comes after it */
    return _URC_NO_REASON;
}

void ebb__preload_stack_take(preload_stack *stack, size_t n_max) {
    EBB_ASSERT(n_max <= PRELOAD_MAX_FRAMES);
    stack->n = 0;
    walk w = {stack, n_max};
    if (n_max > 0) { (void)_Unwind_Backtrace(add_frame, &w); }
    EBB_ASSERT(stack->n <= n_max);
}
