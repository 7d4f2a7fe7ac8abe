/* SPDX-License-Identifier: Apache-2.0
 *
 * The recorder's call stacks: what the linker calls the functions of their callers, told once each.
 */
#include "preload/preload_recorder_priv.h"

#include <dlfcn.h>
#include <stdio.h>

static size_t find_unknown(const preload_stack *stack, uintptr_t *unknown) {
    size_t n = 0;
    for (size_t i = 0; i < stack->n; i++) {
        if (ebb__preload_blocks_find(&ebb__recorder.symbols, stack->pc[i]) == NULL) { unknown[n++] = stack->pc[i]; }
    }
    return n;
}

/* A function's name of C++ as its program has it; any other as it is. */
static const char *readable(const char *function, char *buf, size_t buf_bytes) {
    ebb_recorder *r = &ebb__recorder;
    if (strncmp(function, "_Z", 2) != 0) { return function; }
    if (r->demangler == NULL) { r->demangler = ebb__alloc(&ebb__preload_mem, 1, sizeof *r->demangler); }
    return r->demangler != NULL && ebb__demangle(r->demangler, function, buf, buf_bytes) ? buf : function;
}

static void learn_symbol(uintptr_t pc, const Dl_info *info) {
    char offset[32], name[EBB_DEMANGLE_NAME_BYTES];
    const char *function = info->dli_sname, *file = info->dli_fname != NULL ? info->dli_fname : "";
    if (function == NULL) {
        (void)snprintf(offset, sizeof offset, "+%#zx", (size_t)(pc - (uintptr_t)info->dli_fbase));
        function = offset;
    }
    uint32_t function_string = 0, file_string = 0;
    if (ebb__preload_blocks_find(&ebb__recorder.symbols, pc) != NULL || !ebb__recorder_open() ||
        ebb_trace_writer_string(ebb__recorder.writer, readable(function, name, sizeof name), &function_string) !=
            EBB_OK ||
        ebb_trace_writer_string(ebb__recorder.writer, file, &file_string) != EBB_OK) {
        return;
    }
    const preload_block symbol = {.key = pc, .block = function_string, .size_bytes = file_string};
    (void)ebb__preload_blocks_add(&ebb__recorder.symbols, &symbol);
}

uint32_t ebb__recorder_number_stack(const preload_stack *stack) {
    uintptr_t unknown[PRELOAD_MAX_FRAMES];
    Dl_info info[PRELOAD_MAX_FRAMES] = {0};
    const size_t n_unknown = find_unknown(stack, unknown);
    if (n_unknown > 0) {
        ebb__recorder_unlock();
        for (size_t i = 0; i < n_unknown; i++) { (void)dladdr((const void *)unknown[i], &info[i]); }
        ebb__recorder_lock();
        for (size_t i = 0; i < n_unknown; i++) { learn_symbol(unknown[i], &info[i]); }
    }
    uint32_t number = 0;
    for (size_t i = stack->n; i-- > 0;) {
        const preload_block *symbol = ebb__preload_blocks_find(&ebb__recorder.symbols, stack->pc[i]);
        if (symbol == NULL || ebb__recorder.writer == NULL) { return 0; }
        if (ebb_trace_writer_frame(ebb__recorder.writer, number, (uint32_t)symbol->block, (uint32_t)symbol->size_bytes,
                                   0, &number) != EBB_OK) {
            return 0;
        }
    }
    return number;
}
