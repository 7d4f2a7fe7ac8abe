/* SPDX-License-Identifier: Apache-2.0
 *
 * Names for an address of a program or library: from its symbols, its debug information, and the separate debug files
 * that its build id or .gnu_debuglink names (.debug beside it, /usr/lib/debug), through elfutils' libdw.
 *
 * A plug-in of its own, libebb_names.so: only `ebb record` loads it, after its command has ended, and neither libebb
 * nor the recorder in the program needs libdw. It runs in a process of its own, since the files are anyone's: a
 * damaged one may end that process, and no more. The program that loads this switches libdw's fetching over the
 * network off (DEBUGINFOD_URLS).
 *
 * A file is read where it is the one that was recorded: its build id is the recorded one, or, where there was none, it
 * has not changed since. Everything that is opened stays open to the end.
 */
#include "base/base.h"
#include "ebb/trace.h"

#include <dwarf.h>
#include <elfutils/libdwfl.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define MAX_SOURCES ((size_t)32)
#define MAX_PATH_BYTES ((size_t)4096)
#define MAX_ID_BYTES ((size_t)64)

typedef struct elf_file {
    struct elf_file *next;
    Dwfl *dwfl;
    Dwfl_Module *module; /* NULL: it cannot be read, or is another file by now */
    char path[];
} elf_file;

typedef struct elf_names {
    elf_file *files;
    char paths[MAX_SOURCES][MAX_PATH_BYTES]; /* of the sources of the last answer */
} elf_names;

EBB_API size_t ebb_names_find(void *ctx, const ebb_trace_object *object, uint64_t address,
                              ebb_trace_source *sources_out, size_t n);

/* ---- files --------------------------------------------------------------------------------------- */

/* Only plain files are opened: a pipe would wait, and a device may do something. -1: it is not a plain file. */
static int open_file(const ebb_trace_object *object, struct stat *info) {
    if (stat(object->path, info) != 0 || !S_ISREG(info->st_mode)) { return -1; }
    const int fd = open(object->path, O_RDONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
    if (fd >= 0 && fstat(fd, info) == 0 && S_ISREG(info->st_mode)) { return fd; }
    if (fd >= 0) { (void)close(fd); }
    return -1;
}

static bool is_same(Dwfl_Module *module, const ebb_trace_object *object, const struct stat *info) {
    const unsigned char *id = NULL;
    GElf_Addr place = 0;
    char text[2 * MAX_ID_BYTES + 1] = "";
    const int n = dwfl_module_build_id(module, &id, &place);
    for (int i = 0; i < n && i < (int)MAX_ID_BYTES; i++) { (void)snprintf(text + 2 * i, 3, "%02x", id[i]); }
    if (object->build_id[0] != '\0') { return strcmp(text, object->build_id) == 0; }
    const uint64_t changed_ns = (uint64_t)info->st_ctim.tv_sec * 1000000000u + (uint64_t)info->st_ctim.tv_nsec;
    return object->recorded_unix_ns != 0 && changed_ns < object->recorded_unix_ns;
}

static int find_nothing(Dwfl_Module *module, void **data, const char *name, Dwarf_Addr base, char **path, Elf **elf) {
    (void)module, (void)data, (void)name, (void)base, (void)path, (void)elf;
    return -1;
}

static void open_module(elf_file *file, const ebb_trace_object *object) {
    static const Dwfl_Callbacks callbacks = {.find_elf = find_nothing,
                                             .find_debuginfo = dwfl_standard_find_debuginfo,
                                             .section_address = dwfl_offline_section_address};
    struct stat info;
    GElf_Addr bias = 0;
    const int fd = open_file(object, &info);
    if (fd < 0) { return; }
    file->dwfl = dwfl_begin(&callbacks);
    Dwfl_Module *module = NULL;
    if (file->dwfl != NULL) {
        dwfl_report_begin(file->dwfl);
        module = dwfl_report_offline(file->dwfl, file->path, file->path, fd);
        (void)dwfl_report_end(file->dwfl, NULL, NULL);
    }
    if (module == NULL) {
        (void)close(fd); /* else it is the module's */
    } else if (dwfl_module_getelf(module, &bias) != NULL && is_same(module, object, &info)) {
        file->module = module;
    }
}

static elf_file *find_file(elf_names *names, const ebb_trace_object *object) {
    for (elf_file *f = names->files; f != NULL; f = f->next) {
        if (strcmp(f->path, object->path) == 0) { return f; }
    }
    const size_t n_path = strlen(object->path) + 1;
    elf_file *file = ebb__calloc(NULL, 1, sizeof *file + n_path);
    if (file == NULL) { return NULL; }
    memcpy(file->path, object->path, n_path);
    file->next = names->files;
    names->files = file;
    open_module(file, object);
    return file;
}

/* ---- functions ----------------------------------------------------------------------------------- */

/* A function without a size ends at an unknown place. */
static const char *find_symbol(Dwfl_Module *module, GElf_Addr address) {
    GElf_Off offset = 0;
    GElf_Sym symbol = {0};
    const char *name = dwfl_module_addrinfo(module, address, &offset, &symbol, NULL, NULL, NULL);
    return name != NULL && name[0] != '\0' && offset < symbol.st_size ? name : NULL;
}

static bool is_function(Dwarf_Die *die) {
    return dwarf_tag(die) == DW_TAG_inlined_subroutine || dwarf_tag(die) == DW_TAG_subprogram;
}

static const char *name_of(Dwarf_Die *die) {
    Dwarf_Attribute attribute;
    const char *name = dwarf_formstring(dwarf_attr_integrate(die, DW_AT_linkage_name, &attribute));
    return name != NULL ? name : dwarf_diename(die);
}

/* The unit with this address. clang writes no index of them by default. */
static Dwarf_Die *find_unit(Dwfl_Module *module, GElf_Addr address, Dwarf_Addr *bias) {
    Dwarf_Die *unit = dwfl_module_addrdie(module, address, bias);
    if (unit != NULL) { return unit; }
    while ((unit = dwfl_module_nextcu(module, unit, bias)) != NULL) {
        if (dwarf_haspc(unit, address - *bias) > 0) { return unit; }
    }
    return NULL;
}

/* A source's path is as the compiler was told it, from where it was started. */
static const char *path_of(elf_names *names, size_t i, Dwarf_Die *unit, const char *file) {
    Dwarf_Attribute attribute;
    if (file == NULL) { return ""; }
    const char *folder = file[0] != '/' ? dwarf_formstring(dwarf_attr(unit, DW_AT_comp_dir, &attribute)) : NULL;
    (void)snprintf(names->paths[i], MAX_PATH_BYTES, "%s%s%s", folder != NULL ? folder : "", folder != NULL ? "/" : "",
                   file);
    return names->paths[i];
}

static void find_line(elf_names *names, Dwarf_Die *unit, Dwarf_Addr address, ebb_trace_source *source) {
    Dwarf_Line *line = dwarf_getsrc_die(unit, address);
    int number = 0;
    if (line == NULL || dwarf_lineno(line, &number) != 0) { return; }
    source->file = path_of(names, 0, unit, dwarf_linesrc(line, NULL, NULL));
    source->line = number > 0 ? (uint32_t)number : 0;
}

/* Where an inlined function was called. */
static void find_call(elf_names *names, Dwarf_Die *unit, Dwarf_Die *inlined, size_t i, ebb_trace_source *source) {
    Dwarf_Attribute attribute;
    Dwarf_Word file = 0, line = 0;
    Dwarf_Files *files = NULL;
    size_t n_files = 0;
    if (dwarf_formudata(dwarf_attr(inlined, DW_AT_call_file, &attribute), &file) != 0 ||
        dwarf_formudata(dwarf_attr(inlined, DW_AT_call_line, &attribute), &line) != 0 || line > UINT32_MAX ||
        dwarf_getsrcfiles(unit, &files, &n_files) != 0 || file >= n_files) {
        return;
    }
    source->file = path_of(names, i, unit, dwarf_filesrc(files, (size_t)file, NULL, NULL));
    source->line = (uint32_t)line;
}

/* The functions around an address, the innermost first; dwarf_getscopes leaves what is inlined by its definition, so
 * its own place is looked for by itself. */
static size_t find_scopes(Dwarf_Die *unit, Dwarf_Addr address, Dwarf_Die **scopes_out) {
    Dwarf_Die *around = NULL;
    const int n_around = dwarf_getscopes(unit, address, &around);
    int n = 0, i = 0;
    while (i < n_around && !is_function(&around[i])) { i++; }
    if (i < n_around) { n = dwarf_getscopes_die(&around[i], scopes_out); }
    free(around);
    return n > 0 ? (size_t)n : 0;
}

static size_t find_lines(elf_names *names, Dwfl_Module *module, GElf_Addr address, ebb_trace_source *sources,
                         size_t n_max) {
    Dwarf_Addr bias = 0;
    Dwarf_Die *unit = find_unit(module, address, &bias), *scopes = NULL, *inner = NULL;
    size_t n = 0;
    if (unit == NULL) { return 0; }
    const size_t n_scopes = find_scopes(unit, address - bias, &scopes);
    for (size_t i = 0; i < n_scopes && n < n_max; i++) {
        if (!is_function(&scopes[i])) { continue; }
        const char *name = name_of(&scopes[i]);
        sources[n] = (ebb_trace_source){.function = name != NULL ? name : "?", .file = ""};
        if (n == 0) { find_line(names, unit, address - bias, &sources[n]); }
        if (n > 0) { find_call(names, unit, inner, n, &sources[n]); }
        inner = &scopes[i];
        n++;
        if (dwarf_tag(inner) == DW_TAG_subprogram) { break; }
    }
    free(scopes);
    return n;
}

size_t ebb_names_find(void *ctx, const ebb_trace_object *object, uint64_t address, ebb_trace_source *sources_out,
                      size_t n) {
    elf_names **names = ctx;
    GElf_Addr bias = 0;
    if (*names == NULL) { *names = ebb__calloc(NULL, 1, sizeof **names); }
    const elf_file *file = *names != NULL ? find_file(*names, object) : NULL;
    if (file == NULL || file->module == NULL || n == 0) { return 0; }
    (void)dwfl_module_getelf(file->module, &bias);
    if (object->wants_lines) {
        const size_t n_lines =
            find_lines(*names, file->module, address + bias, sources_out, ebb_min_u64(n, MAX_SOURCES));
        if (n_lines > 0) { return n_lines; }
    }
    const char *symbol = find_symbol(file->module, address + bias);
    if (symbol == NULL) { return 0; }
    sources_out[0] = (ebb_trace_source){.function = symbol, .file = ""};
    return 1;
}
