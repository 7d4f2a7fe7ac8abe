/* SPDX-License-Identifier: Apache-2.0
 *
 * Programs from other planners' files: tells formats apart, gives each reader its bytes, and builds the program of what
 * the reader has gathered.
 *
 * The models of others agree: a step reads values and makes new ones, and it can run again and then makes the same
 * values. So each step is EBB_REPEAT_EXACT, but for those by which something comes from outside, with one choice, whose
 * time is the file's. No flops and no bytes are told, so a step of no time takes what the machine adds to each step.
 */
#include "program/foreign_priv.h"

#include "base/file.h"

static const ebb_foreign_format formats[] = {
    {"dtr", "a log of the simulator of Dynamic Tensor Rematerialization: calls, sizes, aliases, releases",
     ebb__foreign_is_dtr, ebb__foreign_read_dtr},
    {"node-link", "a graph in NetworkX's node-link JSON with costs and sizes, as of Checkmate and Moccasin",
     ebb__foreign_is_node_link, ebb__foreign_read_node_link},
    {"min-cut", "the joint graph of torch.compile, an artifact min_cut_information of PyTorch's partitioner",
     ebb__foreign_is_min_cut, ebb__foreign_read_min_cut},
    {"g10", "a kernels.config of G10's simulator: kernels with times and tensors", ebb__foreign_is_g10,
     ebb__foreign_read_g10},
};
#define N_FORMATS (sizeof formats / sizeof formats[0])

const char *ebb_program_format_name(size_t idx, const char **about_out) {
    if (idx >= N_FORMATS) { return NULL; }
    if (about_out != NULL) { *about_out = formats[idx].about; }
    return formats[idx].name;
}

static const ebb_foreign_format *format_of(const char *head, size_t n) {
    for (size_t i = 0; i < N_FORMATS; i++) {
        if (formats[i].looks_like(head, n)) { return &formats[i]; }
    }
    return NULL;
}

const char *ebb_program_format_of(const void *head, size_t n_bytes) {
    const ebb_foreign_format *format = format_of(head, (size_t)ebb_min_u64(n_bytes, EBB_PROGRAM_HEAD_BYTES));
    return format != NULL ? format->name : NULL;
}

bool ebb__foreign_begins(const char *head, size_t n, const char *text) {
    size_t at = 0;
    while (at < n && strchr(" \t\r\n", head[at]) != NULL && head[at] != '\0') { at++; }
    return n - at >= strlen(text) && memcmp(head + at, text, strlen(text)) == 0;
}

bool ebb__foreign_has(const char *head, size_t n, const char *text) {
    const size_t n_text = strlen(text);
    for (size_t at = 0; at + n_text <= n; at++) {
        if (memcmp(head + at, text, n_text) == 0) { return true; }
    }
    return false;
}

/* ---- names ------------------------------------------------------------------------------------ */

void ebb__foreign_names_init(ebb_foreign_names *names, const ebb_mem *mem, ebb_bump *bump) {
    *names = (ebb_foreign_names){.mem = mem, .bump = bump};
    ebb__u64_map_init(&names->map, mem);
}

void ebb__foreign_names_fini(ebb_foreign_names *names) {
    ebb__u64_map_fini(&names->map);
    EBB_VEC_FINI(names->mem, &names->text);
    EBB_VEC_FINI(names->mem, &names->before);
}

uint32_t ebb__foreign_names_find(const ebb_foreign_names *names, const char *text) {
    const uint64_t *last = ebb__u64_map_find(&names->map, ebb__hash(EBB_HASH_INIT, text, strlen(text)));
    uint32_t name = last != NULL && *last > 0 ? (uint32_t)(*last - 1) : FOREIGN_NONE;
    while (name != FOREIGN_NONE && strcmp(names->text.data[name], text) != 0) { name = names->before.data[name]; }
    return name;
}

ebb_status ebb__foreign_names_add(ebb_foreign_names *names, const char *text, uint32_t *name_out, bool *is_new_out) {
    uint64_t *last = NULL;
    bool is_new_hash = false;
    uint32_t name = ebb__foreign_names_find(names, text);
    *is_new_out = name == FOREIGN_NONE;
    if (name == FOREIGN_NONE) {
        if (names->text.n >= FOREIGN_NONE - 1) { return ebb_fail(EBB_E_LIMIT, "more than 2^32 - 2 names"); }
        const char *kept = ebb__bump_strdup(names->bump, text);
        if (kept == NULL) { return EBB_E_NO_MEMORY; }
        EBB_TRY(EBB_RESERVE(names->mem, &names->before, 1));
        EBB_TRY(EBB_RESERVE(names->mem, &names->text, 1));
        EBB_TRY(ebb__u64_map_add(&names->map, ebb__hash(EBB_HASH_INIT, text, strlen(text)), &last, &is_new_hash));
        name = (uint32_t)names->text.n;
        names->before.data[names->before.n++] = is_new_hash ? FOREIGN_NONE : (uint32_t)(*last - 1);
        names->text.data[names->text.n++] = kept;
        *last = (uint64_t)name + 1;
    }
    *name_out = name;
    return EBB_OK;
}

/* ---- what readers call ------------------------------------------------------------------------ */

ebb_status ebb__foreign_read(void *ctx, void *buf, size_t n, size_t *n_out) {
    ebb_foreign *f = ctx;
    const size_t n_left = f->n_head - f->n_taken;
    if (n_left == 0) {
        EBB_TRY(ebb__stream_read_some(f->stream, buf, n, n_out));
        if (f->stream->file_bytes > 0) {
            ebb__tell(f->progress, "reading the program", ebb__stream_file_offset(f->stream), f->stream->file_bytes);
        }
        return EBB_OK;
    }
    if (n > n_left) { n = n_left; }
    memcpy(buf, f->head + f->n_taken, n);
    f->n_taken += n;
    *n_out = n;
    return EBB_OK;
}

ebb_status ebb__foreign_add_tensor(ebb_foreign *f, const ebb_tensor *tensor, uint32_t *tensor_out) {
    ebb_tensor own = *tensor;
    if (f->tensors.n >= FOREIGN_NONE - 1) { return ebb_fail(EBB_E_LIMIT, "%s: more than 2^32 - 2 tensors", f->path); }
    EBB_TRY(ebb__bump_own(&f->bump, &own.name));
    *tensor_out = (uint32_t)f->tensors.n;
    return EBB_PUSH(f->mem, &f->tensors, own);
}

ebb_status ebb__foreign_add_step(ebb_foreign *f, const char *name, const char *kind, ebb_phase phase,
                                 uint64_t time_ns) {
    ebb_foreign_step step = {.name = name[0] != '\0' ? name : "step",
                             .kind = kind[0] != '\0' ? kind : "step",
                             .phase = phase,
                             .time_ns = time_ns,
                             .first_access = f->accesses.n};
    if (f->steps.n >= FOREIGN_NONE - 1) { return ebb_fail(EBB_E_LIMIT, "%s: more than 2^32 - 2 steps", f->path); }
    EBB_TRY(ebb__bump_own(&f->bump, &step.name));
    EBB_TRY(ebb__bump_own(&f->bump, &step.kind));
    return EBB_PUSH(f->mem, &f->steps, step);
}

ebb_status ebb__foreign_add_access(ebb_foreign *f, uint32_t tensor, ebb_access_mode mode) {
    const ebb_access access = {.tensor = tensor, .mode = mode};
    EBB_ASSERT(f->steps.n > 0 && tensor < f->tensors.n);
    return EBB_PUSH(f->mem, &f->accesses, access);
}

/* The unused ones are put before all accesses, and a step for them before all steps. */
static ebb_status read_before_all(ebb_foreign *f, const bool *is_used, size_t n) {
    EBB_TRY(EBB_RESERVE(f->mem, &f->accesses, n));
    EBB_TRY(ebb__foreign_add_step(f, "constants", "constants", EBB_PHASE_FORWARD, 0));
    const ebb_foreign_step step = f->steps.data[f->steps.n - 1];
    memmove(f->steps.data + 1, f->steps.data, (f->steps.n - 1) * sizeof *f->steps.data);
    f->steps.data[0] = step;
    for (size_t s = 1; s < f->steps.n; s++) { f->steps.data[s].first_access += n; }
    if (f->accesses.n > 0) {
        memmove(f->accesses.data + n, f->accesses.data, f->accesses.n * sizeof *f->accesses.data);
    }
    f->accesses.n += n;
    ebb_access *access = f->accesses.data;
    for (size_t t = 0; t < f->tensors.n; t++) {
        if (f->tensors.data[t].persistent && !is_used[t]) {
            *access++ = (ebb_access){.tensor = (uint32_t)t, .mode = EBB_READ};
        }
    }
    f->steps.data[0].first_access = 0;
    for (size_t t = 0; t < f->tensors.n; t++) { f->tensors.data[t].released += f->tensors.data[t].released > 0; }
    return EBB_OK;
}

ebb_status ebb__foreign_read_unused(ebb_foreign *f) {
    bool *is_used = ebb__calloc(f->mem, f->tensors.n, sizeof *is_used);
    size_t n = 0;
    if (is_used == NULL) { return EBB_E_NO_MEMORY; }
    for (size_t a = 0; a < f->accesses.n; a++) { is_used[f->accesses.data[a].tensor] = true; }
    for (size_t t = 0; t < f->tensors.n; t++) { n += f->tensors.data[t].persistent && !is_used[t]; }
    const ebb_status st = n > 0 ? read_before_all(f, is_used, n) : EBB_OK;
    ebb__free(f->mem, is_used);
    return st;
}

/* ---- building --------------------------------------------------------------------------------- */

/* Steps of one kind with operands of the same bytes and one time do the same work. */
static uint64_t work_key(const ebb_foreign *f, const ebb_foreign_step *step, size_t n_accesses) {
    uint64_t h = ebb__hash(EBB_HASH_INIT, step->kind, strlen(step->kind));
    h = ebb__hash(h, &step->time_ns, sizeof step->time_ns);
    for (size_t a = step->first_access; a < step->first_access + n_accesses; a++) {
        const ebb_access *access = &f->accesses.data[a];
        const uint64_t same[2] = {access->mode, f->tensors.data[access->tensor].size_bytes};
        h = ebb__hash(h, same, sizeof same);
    }
    return h;
}

static ebb_status build_steps(const ebb_foreign *f, ebb_program *program) {
    for (size_t s = 0; s < f->steps.n; s++) {
        const ebb_foreign_step *own = &f->steps.data[s];
        const size_t end = s + 1 < f->steps.n ? f->steps.data[s + 1].first_access : f->accesses.n;
        const size_t n_accesses = end - own->first_access;
        if (n_accesses >= UINT32_MAX) { return ebb_fail(EBB_E_LIMIT, "%s: 2^32 - 1 operands of a step", f->path); }
        const ebb_choice choice = {.name = "recorded", .time_ns = own->time_ns, .key = work_key(f, own, n_accesses)};
        const ebb_step step = {.name = own->name,
                               .kind = own->kind,
                               .phase = own->phase,
                               .repeat = own->repeat,
                               .n_accesses = (uint32_t)n_accesses,
                               .n_choices = 1};
        EBB_TRY(ebb_program_add_step(program, &step, n_accesses > 0 ? &f->accesses.data[own->first_access] : NULL,
                                     &choice));
    }
    return EBB_OK;
}

static ebb_status build_all(const ebb_foreign *f, ebb_program *program) {
    for (size_t t = 0; t < f->tensors.n; t++) {
        uint32_t handle = 0;
        EBB_TRY(ebb_program_add_tensor(program, &f->tensors.data[t], &handle));
        EBB_ASSERT(handle == t);
    }
    EBB_TRY(build_steps(f, program));
    return ebb_program_finish(program);
}

/* If the builder refuses something, the file is wrong, unless memory is short. */
static ebb_status build(const ebb_foreign *f, ebb_program **program_out) {
    ebb_program *program = NULL;
    EBB_TRY(ebb_program_create(f->mem, f->name, 1, &program));
    const ebb_status st = build_all(f, program);
    if (st == EBB_OK) {
        *program_out = program;
        return EBB_OK;
    }
    ebb_program_destroy(program);
    if (st != EBB_E_ARGUMENT && st != EBB_E_FORMAT) { return st; }
    return ebb_fail(EBB_E_FORMAT, "%s: %s", f->path, ebb_last_error());
}

/* ---- one import ------------------------------------------------------------------------------- */

static ebb_status find_format(const ebb_foreign *f, const char *wanted, const ebb_foreign_format **format_out) {
    const ebb_foreign_format *format = NULL;
    for (size_t i = 0; i < N_FORMATS && wanted != NULL; i++) {
        if (strcmp(formats[i].name, wanted) == 0) { format = &formats[i]; }
    }
    if (wanted != NULL && format == NULL) {
        return ebb_fail(EBB_E_ARGUMENT, "there is no format %.64s of programs to import", wanted);
    }
    if (wanted == NULL) { format = format_of((const char *)f->head, f->n_head); }
    if (format == NULL) { return ebb_fail(EBB_E_UNSUPPORTED, "%s: a program of no known format", f->path); }
    *format_out = format;
    return EBB_OK;
}

static ebb_status read_and_build(ebb_foreign *f, const char *wanted, ebb_program **program_out) {
    const ebb_foreign_format *format = NULL;
    EBB_TRY(ebb__stream_read_some(f->stream, f->head, sizeof f->head, &f->n_head));
    EBB_TRY(find_format(f, wanted, &format));
    EBB_TRY(format->read(f));
    return build(f, program_out);
}

ebb_status ebb__program_import_stream(ebb_stream *stream, const ebb_program_import_options *options,
                                      ebb_program **program_out) {
    const ebb_program_import_options defaults = EBB_PROGRAM_IMPORT_OPTIONS_INIT;
    if (options == NULL) { options = &defaults; }
    if (options->size_bytes != sizeof *options) {
        return ebb_fail(EBB_E_ARGUMENT, "import of a program: options of another version");
    }
    const ebb_mem *mem = ebb__mem_or_default(options->mem);
    ebb_foreign *f = ebb__calloc(mem, 1, sizeof *f);
    if (f == NULL) { return EBB_E_NO_MEMORY; }
    f->mem = mem;
    f->path = stream->name;
    f->name = ebb__base_name(stream->name);
    f->stream = stream;
    f->progress = &options->progress;
    ebb__bump_init(&f->bump, mem);
    const ebb_status st = read_and_build(f, options->format, program_out);
    EBB_VEC_FINI(mem, &f->tensors);
    EBB_VEC_FINI(mem, &f->steps);
    EBB_VEC_FINI(mem, &f->accesses);
    ebb__bump_fini(&f->bump);
    ebb__free(mem, f);
    return st;
}

ebb_status ebb_program_import(const char *path, const ebb_program_import_options *options, ebb_program **program_out) {
    EBB_NEED(path);
    EBB_NEED(program_out);
    ebb_stream stream;
    EBB_TRY(ebb__stream_open(path, &stream));
    const ebb_status st = ebb__program_import_stream(&stream, options, program_out);
    ebb__stream_close(&stream);
    return st;
}
