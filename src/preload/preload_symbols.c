/* SPDX-License-Identifier: Apache-2.0
 *
 * The recorder's call stacks: where in their files the callers are, with the names that the linker has for them, told
 * once each. Names from debug information are put in after the program has ended (src/trace/late_names.c), so they cost
 * it nothing; which file it was that they belong to is told here.
 */
#include "preload/preload_recorder_priv.h"

#include <dlfcn.h>
#include <elf.h>
#include <link.h>
#include <stdio.h>
#include <unistd.h>

#define MAX_ID_BYTES ((size_t)32)
#define FIRST_PAGE_BYTES ((size_t)4096)
#define MAX_FUNCTION_BYTES ((size_t)2048)

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

/* ---- where a caller is --------------------------------------------------------------------------- */

typedef struct caller {
    Dl_info info;
    uintptr_t offset; /* in its file, as the file numbers its addresses */
    bool is_program;  /* its file's name is what the program was called by */
    char build_id[2 * MAX_ID_BYTES + 1];
} caller;

static void write_id(const unsigned char *id, size_t n, char *text) {
    static const char digits[] = "0123456789abcdef";
    for (size_t i = 0; i < n; i++) {
        *text++ = digits[id[i] >> 4];
        *text++ = digits[id[i] & 15];
    }
    *text = '\0';
}

/* Each note is its three numbers, its name and its content, both filled up to 4 bytes. */
static bool read_notes(const unsigned char *at, size_t n_bytes, char *id_out) {
    ElfW(Nhdr) note;
    while (n_bytes >= sizeof note) {
        memcpy(&note, at, sizeof note);
        const size_t n_name = (note.n_namesz + (size_t)3) & ~(size_t)3,
                     n_desc = (note.n_descsz + (size_t)3) & ~(size_t)3;
        at += sizeof note;
        n_bytes -= sizeof note;
        if (n_name > n_bytes || n_desc > n_bytes - n_name) { return false; }
        if (note.n_type == NT_GNU_BUILD_ID && n_name == 4 && memcmp(at, "GNU", 4) == 0 && note.n_descsz > 0 &&
            note.n_descsz <= MAX_ID_BYTES) {
            write_id(at + n_name, note.n_descsz, id_out);
            return true;
        }
        at += n_name + n_desc;
        n_bytes -= n_name + n_desc;
    }
    return false;
}

static bool is_loaded(const ElfW(Phdr) * header, size_t n, const ElfW(Phdr) * notes) {
    for (size_t i = 0; i < n; i++) {
        if (header[i].p_type == PT_LOAD && (header[i].p_flags & PF_R) != 0 && notes->p_vaddr >= header[i].p_vaddr &&
            notes->p_vaddr - header[i].p_vaddr <= header[i].p_filesz &&
            notes->p_filesz <= header[i].p_filesz - (notes->p_vaddr - header[i].p_vaddr)) {
            return true;
        }
    }
    return false;
}

/* The identity of a loaded file, out of its memory: no lock of the linker is taken. Headers that are not on its first
 * page may not be in memory; such a file has none. */
static void find_id(const unsigned char *base, uintptr_t bias, char *id_out) {
    ElfW(Ehdr) file;
    memcpy(&file, base, sizeof file);
    if (memcmp(file.e_ident, ELFMAG, SELFMAG) != 0 || file.e_phentsize != sizeof(ElfW(Phdr)) ||
        file.e_phoff % sizeof(uintptr_t) != 0 || file.e_phoff > FIRST_PAGE_BYTES ||
        file.e_phnum > (FIRST_PAGE_BYTES - file.e_phoff) / sizeof(ElfW(Phdr))) {
        return;
    }
    const ElfW(Phdr) *header = (const ElfW(Phdr) *)(const void *)(base + file.e_phoff);
    for (size_t i = 0; i < file.e_phnum; i++) {
        if (header[i].p_type == PT_NOTE && is_loaded(header, file.e_phnum, &header[i]) &&
            read_notes((const unsigned char *)bias + header[i].p_vaddr, header[i].p_filesz, id_out)) {
            return;
        }
    }
}

static void find_caller(uintptr_t pc, caller *c) {
    struct link_map *map = NULL;
    c->offset = pc;
    if (dladdr1((const void *)pc, &c->info, (void **)&map, RTLD_DL_LINKMAP) == 0 || map == NULL) { return; }
    c->offset = pc - map->l_addr;
    c->is_program = map->l_name != NULL && map->l_name[0] == '\0';
    if (c->info.dli_fbase != NULL) { find_id(c->info.dli_fbase, map->l_addr, c->build_id); }
}

/* ---- what the trace says of it ------------------------------------------------------------------- */

static bool find_path(const caller *c, char *path, size_t n_bytes) {
    const char *file = c->info.dli_fname;
    if (c->is_program) {
        const ssize_t n = readlink("/proc/self/exe", path, n_bytes - 1);
        if (n > 0) { path[n] = '\0'; }
        return n > 0;
    }
    if (file[0] != '/' && getcwd(path, n_bytes) == NULL) { return false; }
    const size_t n_folder = file[0] != '/' ? strlen(path) : 0;
    const int n = snprintf(path + n_folder, n_bytes - n_folder, "%s%s", file[0] != '/' ? "/" : "", file);
    return n > 0 && (size_t)n < n_bytes - n_folder;
}

/* Which file it is, once for each, so that it can be told from one that takes its place later. */
static void learn_object(const caller *c, const char *file, uint32_t file_string) {
    static char key[sizeof EBB_TRACE_OBJECT_PREFIX + PRELOAD_MAX_PATH_BYTES];
    static char path[PRELOAD_MAX_PATH_BYTES], value[sizeof path + sizeof c->build_id + 1];
    const preload_block object = {.key = file_string};
    if (file_string == 0 || ebb__preload_blocks_find(&ebb__recorder.objects, file_string) != NULL ||
        strlen(file) >= sizeof path || !find_path(c, path, sizeof path)) {
        return;
    }
    (void)snprintf(key, sizeof key, EBB_TRACE_OBJECT_PREFIX "%s", file);
    (void)snprintf(value, sizeof value, "%s %s", c->build_id[0] != '\0' ? c->build_id : "-", path);
    if (ebb__recorder.objects.n == 0) {
        (void)ebb_trace_writer_note(ebb__recorder.writer, EBB_TRACE_CALLERS_NOTE, EBB_TRACE_CALLERS_OFFSETS);
    }
    (void)ebb_trace_writer_note(ebb__recorder.writer, key, value);
    (void)ebb__preload_blocks_add(&ebb__recorder.objects, &object);
}

static void learn_symbol(uintptr_t pc, const caller *c) {
    char text[MAX_FUNCTION_BYTES], name[EBB_DEMANGLE_NAME_BYTES];
    const char *file = c->info.dli_fname != NULL ? c->info.dli_fname : "";
    const char *function = c->info.dli_sname != NULL ? readable(c->info.dli_sname, name, sizeof name) : "";
    (void)snprintf(text, sizeof text, "%.*s%s+%#zx", (int)(sizeof text - 32), function, function[0] != '\0' ? " " : "",
                   (size_t)c->offset);
    uint32_t function_string = 0, file_string = 0;
    if (ebb__preload_blocks_find(&ebb__recorder.symbols, pc) != NULL || !ebb__recorder_open() ||
        ebb_trace_writer_string(ebb__recorder.writer, text, &function_string) != EBB_OK ||
        ebb_trace_writer_string(ebb__recorder.writer, file, &file_string) != EBB_OK) {
        return;
    }
    learn_object(c, file, file_string);
    const preload_block symbol = {.key = pc, .block = function_string, .size_bytes = file_string};
    (void)ebb__preload_blocks_add(&ebb__recorder.symbols, &symbol);
}

uint32_t ebb__recorder_number_stack(const preload_stack *stack) {
    uintptr_t unknown[PRELOAD_MAX_FRAMES];
    caller callers[PRELOAD_MAX_FRAMES];
    const size_t n_unknown = find_unknown(stack, unknown);
    if (n_unknown > 0) {
        ebb__recorder_unlock();
        for (size_t i = 0; i < n_unknown; i++) {
            callers[i] = (caller){0};
            find_caller(unknown[i], &callers[i]);
        }
        ebb__recorder_lock();
        for (size_t i = 0; i < n_unknown; i++) { learn_symbol(unknown[i], &callers[i]); }
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
