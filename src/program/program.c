/* SPDX-License-Identifier: Apache-2.0
 *
 * Building a program, finishing it, and its views.
 *
 * The builder refuses what is wrong in itself (an access to a tensor that is not there, a step that cannot
 * be computed); finish looks at the whole (reads before writes, sums). After it:
 *  1. every step has at least one choice, and at most one access a tensor;
 *  2. a tensor that is not persistent is written, whole, before it is read;
 *  3. all tensors and any one step's scratch, each rounded up, add up to at most EBB_PROGRAM_MAX_BYTES.
 */
#include "program/program.h"

#include <math.h>

/* ---- building --------------------------------------------------------------------------------- */

ebb_status ebb_program_create(const ebb_mem *mem, const char *name, uint64_t alignment_bytes,
                              ebb_program **program_out) {
    EBB_NEED(program_out);
    if (alignment_bytes == 0 || (alignment_bytes & (alignment_bytes - 1)) != 0 ||
        alignment_bytes > EBB_PROGRAM_MAX_ALIGNMENT) {
        return ebb_fail(EBB_E_ARGUMENT, "an alignment of %llu bytes is not a power of two up to %llu",
                        (unsigned long long)alignment_bytes, (unsigned long long)EBB_PROGRAM_MAX_ALIGNMENT);
    }
    mem = ebb__mem_or_default(mem);
    ebb_program *program = ebb__calloc(mem, 1, sizeof *program);
    if (program == NULL) { return EBB_E_NO_MEMORY; }
    program->mem = mem;
    program->alignment_bytes = alignment_bytes;
    ebb__bump_init(&program->bump, mem);
    program->name = ebb__bump_strdup(&program->bump, name != NULL ? name : "");
    if (program->name == NULL) {
        ebb_program_destroy(program);
        return EBB_E_NO_MEMORY;
    }
    *program_out = program;
    return EBB_OK;
}

void ebb_program_destroy(ebb_program *program) {
    if (program == NULL) { return; }
    const ebb_mem *mem = program->mem;
    EBB_VEC_FINI(mem, &program->tensors);
    EBB_VEC_FINI(mem, &program->steps);
    EBB_VEC_FINI(mem, &program->accesses);
    EBB_VEC_FINI(mem, &program->choices);
    EBB_VEC_FINI(mem, &program->handles);
    EBB_VEC_FINI(mem, &program->last_access);
    EBB_VEC_FINI(mem, &program->has_content);
    ebb__bump_fini(&program->bump);
    ebb__free(mem, program);
}

/* A copy of a word that was likely seen before. */
static const char *copy_word(ebb_program *program, const char *word) {
    const char **recent = &program->recent_words[ebb__hash(EBB_HASH_INIT, word, strlen(word)) % EBB_N_RECENT_WORDS];
    if (*recent == NULL || strcmp(*recent, word) != 0) {
        const char *copy = ebb__bump_strdup(&program->bump, word);
        if (copy == NULL) { return NULL; }
        *recent = copy;
    }
    return *recent;
}

static ebb_status check_open(const ebb_program *program) {
    return program->finished ? ebb_fail(EBB_E_ARGUMENT, "program %s: it is finished", program->name) : EBB_OK;
}

static ebb_status add_handle(ebb_program *program, ebb_handle handle, uint32_t *handle_out) {
    if (program->handles.n >= UINT32_MAX - 1) { return ebb_fail(EBB_E_LIMIT, "more than 2^32 - 2 tensors and views"); }
    EBB_TRY(EBB_PUSH(program->mem, &program->handles, handle));
    *handle_out = (uint32_t)(program->handles.n - 1);
    return EBB_OK;
}

ebb_status ebb_program_add_tensor(ebb_program *program, const ebb_tensor *tensor, uint32_t *handle_out) {
    EBB_NEED(program);
    EBB_NEED(tensor);
    EBB_NEED(handle_out);
    EBB_TRY(check_open(program));
    if (tensor->name == NULL || tensor->size_bytes > EBB_PROGRAM_MAX_BYTES || (unsigned)tensor->role >= EBB_N_ROLES ||
        (tensor->marks & ~(uint32_t)EBB_MARKS_ALL) != 0) {
        return ebb_fail(EBB_E_ARGUMENT, "tensor %zu: %s", program->handles.n,
                        tensor->name == NULL                         ? "it has no name"
                        : tensor->size_bytes > EBB_PROGRAM_MAX_BYTES ? "it has too many bytes"
                        : (unsigned)tensor->role >= EBB_N_ROLES      ? "it has an unknown role"
                                                                     : "it has an unknown mark");
    }
    if (tensor->size_bytes == 0) { return add_handle(program, (ebb_handle){.tensor = EBB_NO_TENSOR}, handle_out); }
    EBB_TRY(EBB_RESERVE(program->mem, &program->tensors, 1));
    EBB_TRY(EBB_RESERVE(program->mem, &program->last_access, 1));
    EBB_TRY(EBB_RESERVE(program->mem, &program->has_content, 1));
    ebb_tensor copy = *tensor;
    copy.name = ebb__bump_strdup(&program->bump, tensor->name);
    if (copy.name == NULL) { return EBB_E_NO_MEMORY; }
    const ebb_handle whole = {.tensor = (uint32_t)program->tensors.n, .size_bytes = tensor->size_bytes};
    EBB_TRY(add_handle(program, whole, handle_out));
    program->tensors.data[program->tensors.n++] = copy;
    program->last_access.data[program->last_access.n++] = 0;
    program->has_content.data[program->has_content.n++] = tensor->persistent;
    return EBB_OK;
}

ebb_status ebb_program_add_view(ebb_program *program, uint32_t base, uint64_t offset_bytes, uint64_t size_bytes,
                                uint32_t *handle_out) {
    EBB_NEED(program);
    EBB_NEED(handle_out);
    EBB_TRY(check_open(program));
    if (base >= program->handles.n) {
        return ebb_fail(EBB_E_ARGUMENT, "view %zu: there is no tensor %u", program->handles.n, base);
    }
    const ebb_handle of = program->handles.data[base];
    if (offset_bytes > of.size_bytes || size_bytes > of.size_bytes - offset_bytes) {
        return ebb_fail(EBB_E_ARGUMENT, "view %zu: %llu bytes from %llu on are not within the %llu bytes of tensor %u",
                        program->handles.n, (unsigned long long)size_bytes, (unsigned long long)offset_bytes,
                        (unsigned long long)of.size_bytes, base);
    }
    ebb_handle view = {.tensor = EBB_NO_TENSOR};
    if (size_bytes > 0) {
        view =
            (ebb_handle){.tensor = of.tensor, .offset_bytes = of.offset_bytes + offset_bytes, .size_bytes = size_bytes};
    }
    return add_handle(program, view, handle_out);
}

uint32_t ebb_program_find_tensor(const ebb_program *program, uint32_t handle) {
    return handle < program->handles.n ? program->handles.data[handle].tensor : EBB_NO_TENSOR;
}

static bool is_work(double x) {
    return isfinite(x) && x >= 0;
}

static ebb_status check_new_step(const ebb_program *program, const ebb_step *step, const ebb_access *accesses,
                                 const ebb_choice *choices) {
    if (step->name == NULL || step->kind == NULL) {
        return ebb_fail(EBB_E_ARGUMENT, "step %zu: it has no name or no kind", program->steps.n);
    }
    if (step->phase >= EBB_N_PHASES || step->repeat >= EBB_N_REPEATS || step->n_choices == 0) {
        return ebb_fail(EBB_E_ARGUMENT, "step %zu (%s): %s", program->steps.n, step->name,
                        step->n_choices == 0          ? "it has no choice"
                        : step->phase >= EBB_N_PHASES ? "it has an unknown phase"
                                                      : "it has an unknown way to repeat it");
    }
    for (uint32_t i = 0; i < step->n_accesses; i++) {
        if (accesses[i].tensor >= program->handles.n || accesses[i].mode < EBB_READ || accesses[i].mode > EBB_UPDATE) {
            return ebb_fail(EBB_E_ARGUMENT, "step %zu (%s): access %u is of mode %u to tensor %u of %zu",
                            program->steps.n, step->name, i, accesses[i].mode, accesses[i].tensor, program->handles.n);
        }
    }
    for (uint32_t i = 0; i < step->n_choices; i++) {
        const ebb_choice *c = &choices[i];
        if (c->name == NULL || c->scratch_bytes > EBB_PROGRAM_MAX_BYTES || !is_work(c->flops) ||
            !is_work(c->traffic_bytes)) {
            return ebb_fail(EBB_E_ARGUMENT, "step %zu (%s): choice %u has no name, or bytes or work out of range",
                            program->steps.n, step->name, i);
        }
    }
    return EBB_OK;
}

/* An access as one to its tensor. A part is written as an update where the rest has a content to keep. */
static ebb_access fold_access(const ebb_program *program, const ebb_access *access) {
    const ebb_handle *handle = &program->handles.data[access->tensor];
    ebb_access folded = {.tensor = handle->tensor, .mode = access->mode};
    if (folded.tensor != EBB_NO_TENSOR && handle->size_bytes < program->tensors.data[folded.tensor].size_bytes &&
        (folded.mode & EBB_WRITE) != 0 && program->has_content.data[folded.tensor]) {
        folded.mode = EBB_UPDATE;
    }
    return folded;
}

/* Append the step's accesses; the second of one tensor goes into the first. Room is there. */
static void push_accesses(ebb_program *program, const ebb_access *accesses, uint32_t n_accesses) {
    uint64_t first = program->accesses.n;
    for (uint32_t i = 0; i < n_accesses; i++) {
        const ebb_access access = fold_access(program, &accesses[i]);
        if (access.tensor == EBB_NO_TENSOR) { continue; }
        uint64_t *last = &program->last_access.data[access.tensor];
        if (*last > first) {
            program->accesses.data[*last - 1].mode |= access.mode; /* READ | WRITE is UPDATE */
        } else {
            program->accesses.data[program->accesses.n++] = access;
            *last = program->accesses.n;
        }
    }
    for (uint64_t a = first; a < program->accesses.n; a++) {
        program->has_content.data[program->accesses.data[a].tensor] = true; /* or it is read too early: see finish */
    }
}

ebb_status ebb_program_add_step(ebb_program *program, const ebb_step *step, const ebb_access *accesses,
                                const ebb_choice *choices) {
    EBB_NEED(program);
    EBB_NEED(step);
    EBB_NEED_ARRAY(accesses, step->n_accesses);
    EBB_NEED_ARRAY(choices, step->n_choices);
    EBB_TRY(check_open(program));
    EBB_TRY(check_new_step(program, step, accesses, choices));
    if (program->steps.n >= UINT32_MAX - 1) { return ebb_fail(EBB_E_LIMIT, "more than 2^32 - 2 steps"); }
    EBB_TRY(EBB_RESERVE(program->mem, &program->steps, 1));
    EBB_TRY(EBB_RESERVE(program->mem, &program->accesses, step->n_accesses));
    EBB_TRY(EBB_RESERVE(program->mem, &program->choices, step->n_choices));
    ebb_step copy = *step;
    copy.first_access = program->accesses.n;
    copy.first_choice = program->choices.n;
    copy.name = ebb__bump_strdup(&program->bump, step->name);
    copy.kind = copy_word(program, step->kind);
    if (copy.name == NULL || copy.kind == NULL) { return EBB_E_NO_MEMORY; }
    for (uint32_t i = 0; i < step->n_choices; i++) {
        ebb_choice *choice = &program->choices.data[program->choices.n + i]; /* not yet counted */
        *choice = choices[i];
        choice->name = copy_word(program, choices[i].name);
        if (choice->name == NULL) { return EBB_E_NO_MEMORY; }
    }
    program->choices.n += step->n_choices;
    push_accesses(program, accesses, step->n_accesses);
    copy.n_accesses = (uint32_t)(program->accesses.n - copy.first_access);
    program->steps.data[program->steps.n++] = copy;
    return EBB_OK;
}

/* ---- finishing -------------------------------------------------------------------------------- */

static uint64_t round_up(const ebb_program *program, uint64_t size_bytes) {
    EBB_ASSERT(size_bytes <= EBB_PROGRAM_MAX_BYTES);
    return ebb_align_up(size_bytes, program->alignment_bytes);
}

static ebb_status check_sums(const ebb_program *program) {
    uint64_t tensor_bytes = 0, scratch_bytes = 0;
    for (size_t t = 0; t < program->tensors.n && tensor_bytes <= EBB_PROGRAM_MAX_BYTES; t++) {
        tensor_bytes += round_up(program, program->tensors.data[t].size_bytes);
    }
    for (size_t c = 0; c < program->choices.n; c++) {
        scratch_bytes = ebb_max_u64(scratch_bytes, round_up(program, program->choices.data[c].scratch_bytes));
    }
    if (tensor_bytes > EBB_PROGRAM_MAX_BYTES || scratch_bytes > EBB_PROGRAM_MAX_BYTES - tensor_bytes) {
        return ebb_fail(EBB_E_FORMAT, "program %s: tensors and scratch are more than %llu bytes", program->name,
                        (unsigned long long)EBB_PROGRAM_MAX_BYTES);
    }
    return EBB_OK;
}

static bool is_touched_rightly(const ebb_tensor *tensor, uint64_t last_access) {
    return last_access > 0 || !(tensor->kept || tensor->persistent);
}

/* One step against what came before it; written[t] is set once t has content. */
static ebb_status check_step(const ebb_program *program, size_t step_idx, bool *written) {
    const ebb_step *step = &program->steps.data[step_idx];
    for (uint64_t a = step->first_access; a < step->first_access + step->n_accesses; a++) {
        const ebb_access *access = &program->accesses.data[a];
        EBB_ASSERT(access->tensor < program->tensors.n); /* the builder's promise */
        if ((access->mode & EBB_READ) != 0 && !written[access->tensor]) {
            return ebb_fail(EBB_E_FORMAT, "program %s: step %zu (%s) reads tensor %u (%s) before it is written",
                            program->name, step_idx, step->name, access->tensor,
                            program->tensors.data[access->tensor].name);
        }
        if ((access->mode & EBB_WRITE) != 0) { written[access->tensor] = true; }
        const uint32_t released = program->tensors.data[access->tensor].released;
        if (released > 0 && released <= step_idx) {
            return ebb_fail(EBB_E_FORMAT, "program %s: step %zu (%s) accesses tensor %u (%s) after it was released",
                            program->name, step_idx, step->name, access->tensor,
                            program->tensors.data[access->tensor].name);
        }
    }
    return EBB_OK;
}

static ebb_status check_tensors(const ebb_program *program) {
    for (size_t t = 0; t < program->tensors.n; t++) {
        const ebb_tensor *tensor = &program->tensors.data[t];
        if (!is_touched_rightly(tensor, program->last_access.data[t])) {
            return ebb_fail(EBB_E_FORMAT, "program %s: tensor %zu (%s) is %s, but no step accesses it", program->name,
                            t, tensor->name, tensor->kept ? "kept" : "persistent");
        }
        if (tensor->released > program->steps.n || (tensor->released > 0 && (tensor->kept || tensor->persistent))) {
            return ebb_fail(EBB_E_FORMAT, "program %s: tensor %zu (%s) is %s, and released", program->name, t,
                            tensor->name,
                            tensor->kept         ? "kept"
                            : tensor->persistent ? "persistent"
                                                 : "there to the end");
        }
    }
    return EBB_OK;
}

ebb_status ebb_program_keep_order(ebb_program *program) {
    EBB_NEED(program);
    EBB_TRY(check_open(program));
    program->keeps_order = true;
    return EBB_OK;
}

static ebb_status check_steps(const ebb_program *program) {
    bool *written = ebb__alloc(program->mem, program->tensors.n, sizeof *written);
    if (written == NULL) { return EBB_E_NO_MEMORY; }
    for (size_t t = 0; t < program->tensors.n; t++) { written[t] = program->tensors.data[t].persistent; }
    ebb_status st = EBB_OK;
    for (size_t s = 0; s < program->steps.n && st == EBB_OK; s++) { st = check_step(program, s, written); }
    ebb__free(program->mem, written);
    return st;
}

ebb_status ebb_program_finish(ebb_program *program) {
    EBB_NEED(program);
    EBB_TRY(check_open(program));
    if (program->steps.n == 0) { return ebb_fail(EBB_E_FORMAT, "program %s: it has no steps", program->name); }
    EBB_TRY(check_sums(program));
    EBB_TRY(check_tensors(program));
    EBB_TRY(check_steps(program));
    program->finished = true;
    return EBB_OK;
}

/* ---- another order ---------------------------------------------------------------------------- */

static ebb_status add_reordered(const ebb_program *from, const uint32_t *order, ebb_program *to) {
    for (size_t t = 0; t < from->tensors.n; t++) {
        uint32_t handle = 0;
        ebb_tensor tensor = from->tensors.data[t];
        tensor.released = 0;
        EBB_TRY(ebb_program_add_tensor(to, &tensor, &handle));
        EBB_ASSERT(handle == t);
    }
    for (size_t i = 0; i < from->steps.n; i++) {
        const ebb_step *step = &from->steps.data[order[i]];
        EBB_TRY(ebb_program_add_step(to, step, &from->accesses.data[step->first_access],
                                     &from->choices.data[step->first_choice]));
    }
    return ebb_program_finish(to);
}

ebb_status ebb__program_reorder(const ebb_program *program, const uint32_t *order, const ebb_mem *mem,
                                ebb_program **program_out) {
    EBB_ASSERT(!program->keeps_order);
    ebb_program *to = NULL;
    EBB_TRY(ebb_program_create(mem, program->name, program->alignment_bytes, &to));
    const ebb_status st = add_reordered(program, order, to);
    if (st != EBB_OK) {
        ebb_program_destroy(to);
        return st;
    }
    *program_out = to;
    return EBB_OK;
}

/* ---- views ------------------------------------------------------------------------------------ */

const char *ebb_program_name(const ebb_program *program) {
    return program->name;
}

uint64_t ebb_program_alignment_bytes(const ebb_program *program) {
    return program->alignment_bytes;
}

bool ebb_program_keeps_order(const ebb_program *program) {
    return program->keeps_order;
}

const ebb_tensor *ebb_program_tensors(const ebb_program *program, size_t *n_out) {
    *n_out = program->tensors.n;
    return program->tensors.data;
}

const ebb_step *ebb_program_steps(const ebb_program *program, size_t *n_out) {
    *n_out = program->steps.n;
    return program->steps.data;
}

const ebb_access *ebb_program_accesses(const ebb_program *program, size_t *n_out) {
    *n_out = program->accesses.n;
    return program->accesses.data;
}

const ebb_choice *ebb_program_choices(const ebb_program *program, size_t *n_out) {
    *n_out = program->choices.n;
    return program->choices.data;
}

/* ---- what follows from it --------------------------------------------------------------------- */

static uint64_t hash_u64(uint64_t h, uint64_t x) {
    unsigned char bytes[8]; /* the same on every machine: plans carry the result */
    for (unsigned i = 0; i < 8; i++) { bytes[i] = (unsigned char)(x >> (8 * i)); }
    return ebb__hash(h, bytes, sizeof bytes);
}

uint64_t ebb_program_fingerprint(const ebb_program *program) {
    uint64_t h = hash_u64(EBB_HASH_INIT, program->alignment_bytes);
    h = hash_u64(h, program->tensors.n);
    for (size_t t = 0; t < program->tensors.n; t++) {
        const ebb_tensor *tensor = &program->tensors.data[t];
        h = hash_u64(h, tensor->size_bytes);
        h = hash_u64(h, (tensor->persistent ? 1u : 0u) | (tensor->kept ? 2u : 0u));
    }
    h = hash_u64(h, program->steps.n);
    for (size_t s = 0; s < program->steps.n; s++) {
        const ebb_step *step = &program->steps.data[s];
        h = hash_u64(h, ((uint64_t)step->n_accesses << 32) | step->n_choices);
        h = hash_u64(h, step->repeat);
    }
    for (size_t a = 0; a < program->accesses.n; a++) {
        h = hash_u64(h, ((uint64_t)program->accesses.data[a].tensor << 32) | program->accesses.data[a].mode);
    }
    for (size_t c = 0; c < program->choices.n; c++) {
        h = hash_u64(h, program->choices.data[c].scratch_bytes);
        if (program->choices.data[c].copies_in) { h = hash_u64(h, c); }
    }
    if (program->keeps_order) { h = hash_u64(h, 1); }
    return h;
}

uint64_t ebb__program_step_bytes(const ebb_program *program, const ebb_step *step, uint64_t scratch_bytes) {
    uint64_t total_bytes = round_up(program, scratch_bytes), most_padding_bytes = total_bytes - scratch_bytes;
    for (uint64_t a = step->first_access; a < step->first_access + step->n_accesses; a++) {
        const uint64_t size_bytes = program->tensors.data[program->accesses.data[a].tensor].size_bytes;
        const uint64_t padding_bytes = round_up(program, size_bytes) - size_bytes;
        total_bytes += size_bytes + padding_bytes;
        most_padding_bytes = ebb_max_u64(most_padding_bytes, padding_bytes);
    }
    EBB_ASSERT(most_padding_bytes <= total_bytes);
    return total_bytes - most_padding_bytes; /* nothing follows what lies highest */
}

static uint64_t least_step_bytes(const ebb_program *program, const ebb_step *step) {
    uint64_t scratch_bytes = UINT64_MAX;
    for (uint64_t c = step->first_choice; c < step->first_choice + step->n_choices; c++) {
        scratch_bytes = ebb_min_u64(scratch_bytes, program->choices.data[c].scratch_bytes);
    }
    return ebb__program_step_bytes(program, step, scratch_bytes);
}

uint64_t ebb_program_floor_bytes(const ebb_program *program, uint32_t *step_out) {
    uint64_t floor_bytes = 0;
    size_t step_idx = 0;
    for (size_t s = 0; s < program->steps.n; s++) {
        uint64_t size_bytes = least_step_bytes(program, &program->steps.data[s]);
        if (size_bytes > floor_bytes) {
            floor_bytes = size_bytes;
            step_idx = s;
        }
    }
    if (step_out != NULL) { *step_out = (uint32_t)step_idx; }
    return floor_bytes;
}

ebb_status ebb__program_versions(const ebb_program *program, ebb_bump *bump, ebb_versions *versions_out) {
    ebb_versions v = {.read = ebb__bump_alloc(bump, program->accesses.n, sizeof *v.read),
                      .after = ebb__bump_alloc(bump, program->accesses.n, sizeof *v.after),
                      .final = ebb__bump_alloc(bump, program->tensors.n, sizeof *v.final)};
    if (v.read == NULL || v.after == NULL || v.final == NULL) { return EBB_E_NO_MEMORY; }
    memset(v.final, 0, program->tensors.n * sizeof *v.final);
    for (size_t a = 0; a < program->accesses.n; a++) { /* accesses lie in step order */
        const ebb_access *access = &program->accesses.data[a];
        uint32_t *current = &v.final[access->tensor];
        v.read[a] = (access->mode & EBB_READ) != 0 ? *current : UINT32_MAX;
        if ((access->mode & EBB_WRITE) != 0) { (*current)++; }
        v.after[a] = *current;
    }
    *versions_out = v;
    return EBB_OK;
}

ebb_status ebb__program_uses(const ebb_program *program, ebb_bump *bump, ebb_uses *uses_out) {
    const size_t n_tensors = program->tensors.n;
    ebb_uses u = {.start = ebb__bump_alloc(bump, n_tensors + 1, sizeof *u.start),
                  .use = ebb__bump_alloc(bump, program->accesses.n, sizeof *u.use)};
    if (u.start == NULL || u.use == NULL) { return EBB_E_NO_MEMORY; }
    memset(u.start, 0, (n_tensors + 1) * sizeof *u.start);
    for (size_t a = 0; a < program->accesses.n; a++) { u.start[program->accesses.data[a].tensor + 1]++; }
    for (size_t t = 0; t < n_tensors; t++) { u.start[t + 1] += u.start[t]; }
    /* Filling moves start[t] to the row's end, which is the next row's start; then they move back by one. */
    for (size_t s = 0; s < program->steps.n; s++) {
        const ebb_step *step = &program->steps.data[s];
        for (uint64_t a = step->first_access; a < step->first_access + step->n_accesses; a++) {
            const ebb_access *access = &program->accesses.data[a];
            u.use[u.start[access->tensor]++] = (ebb_use){.step = (uint32_t)s, .mode = access->mode, .access = a};
        }
    }
    memmove(u.start + 1, u.start, n_tensors * sizeof *u.start);
    u.start[0] = 0;
    *uses_out = u;
    return EBB_OK;
}
