/* SPDX-License-Identifier: Apache-2.0
 *
 * Which modules there are.
 *
 *      name   layer1.0.conv1.convolution     layer1, layer1.0, layer1.0.conv1; the last part is an operator
 *      stack  relu < forward < forward < main     a module for each frame of a forward
 *
 * By names, where the recorder notes classes, only what has one is a module that can be called: the network itself has
 * none, and lists of modules have no forward. Modules of one class, or with names that differ in their digits alone,
 * are of one kind, if they are equally deep.
 *
 * By stacks a module is a path of calls down to a forward, whichever line of it runs. Lines that run in one such path
 * belong to the same forward, and modules with the same forward are of one kind. One that is called below another of
 * its kind, such as a Sequential, has none: a program could not tell the two apart.
 */
#include "study/advice/advice_modules.h"

#include "trace/trace.h"

#define MAX_CALLS 4u /* from a module's forward to the frame of the module, _call_impl and its like between them */

/* The kind of code below a stack's frame: a step of the backward pass; a checkpoint, or a module inside of such a
 * step. */
enum { IS_BACKWARD = 1, IS_AGAIN = 2 };

/* ---- modules ---------------------------------------------------------------------------------- */

static ebb_status add_module(advice_modules *m, const void *key, size_t n_bytes, const advice_module *module,
                             uint32_t *number_out) {
    bool is_new = false;
    EBB_TRY(ebb__trace_keys_add(&m->keys, key, n_bytes, number_out, &is_new));
    if (!is_new) { return EBB_OK; }
    EBB_TRY(EBB_PUSH(m->study->mem, &m->all, *module));
    EBB_ASSERT(m->all.n == (size_t)*number_out + 1);
    if (m->by_name) { m->all.data[*number_out].called_at = *number_out; }
    return EBB_OK;
}

/* Its number among kinds; 0 for the last of too many. */
static ebb_status find_kind(advice_modules *m, const void *key, size_t n_bytes, uint32_t *kind_out) {
    bool is_new = false;
    *kind_out = ebb__trace_keys_find(&m->kind_keys, key, n_bytes);
    if (*kind_out != 0 || m->kinds.n == ADVICE_MAX_KINDS) { return EBB_OK; }
    EBB_TRY(ebb__trace_keys_add(&m->kind_keys, key, n_bytes, kind_out, &is_new));
    return EBB_PUSH(m->study->mem, &m->kinds, ((advice_kind){.bytes = 0}));
}

/* ---- by names --------------------------------------------------------------------------------- */

/* NULL: it has no class, and others do. */
static const char *class_of(const ebb_study *s, const char *name, size_t n_bytes) {
    const uint32_t number = ebb__trace_keys_find(&s->class_keys, name, n_bytes);
    if (number == 0) { return s->classes.n > 0 ? NULL : ""; }
    return s->classes.data[number - 1];
}

static bool can_be_called(const char *class_name) {
    return class_name != NULL && strcmp(class_name, "ModuleList") != 0 && strcmp(class_name, "ModuleDict") != 0;
}

/* Its class, else its name with all numbers alike. */
static ebb_status find_kind_of_name(advice_modules *m, const char *name, size_t n_bytes, uint32_t depth,
                                    uint32_t *kind_out) {
    const char *class_name = class_of(m->study, name, n_bytes);
    char key[256];
    *kind_out = 0;
    if (!can_be_called(class_name)) { return EBB_OK; }
    const bool has_class = class_name[0] != '\0';
    const char *text = has_class ? class_name : name;
    const size_t n_text = has_class ? strlen(class_name) : n_bytes;
    size_t n = 0;
    key[n++] = (char)('0' + (depth < 64 ? depth : 64));
    for (size_t i = 0; i < n_text && n < sizeof key; i++) {
        const bool is_digit = !has_class && text[i] >= '0' && text[i] <= '9';
        if (is_digit && key[n - 1] == '#') { continue; }
        key[n++] = is_digit ? '#' : text[i];
    }
    return find_kind(m, key, n, kind_out);
}

static ebb_status add_names(advice_modules *m, uint32_t leaf) {
    const char *name = ebb_trace_reader_string(m->study->reader, leaf);
    uint32_t depth = 0;
    for (size_t i = 0; name[i] != '\0'; i++) {
        if (name[i] != '.') { continue; }
        advice_module module = {.parent = m->of_leaf[leaf], .leaf = leaf, .depth = ++depth};
        uint32_t number = ebb__trace_keys_find(&m->keys, name, i);
        if (number == 0) {
            EBB_TRY(find_kind_of_name(m, name, i, depth, &module.kind));
            EBB_TRY(add_module(m, name, i, &module, &number));
        }
        m->of_leaf[leaf] = number;
    }
    return EBB_OK;
}

/* ---- by stacks -------------------------------------------------------------------------------- */

static uint8_t again_by(const advice_modules *m, uint32_t stack, uint32_t caller) {
    const ebb_study *s = m->study;
    const advice_frame here = ebb__study_frame_of(s, stack);
    const char *file = ebb_trace_reader_string(s->reader, ebb_trace_reader_frame(s->reader, stack).file);
    uint8_t is = m->again_of[caller];
    if (here == FRAME_BACKWARD) { is |= IS_BACKWARD; }
    if (here == FRAME_FORWARD && (is & IS_BACKWARD) != 0) { is |= IS_AGAIN; }
    if (strstr(file, "torch/utils/checkpoint.py") != NULL) { is |= IS_AGAIN; }
    return is;
}

static uint32_t set_of(advice_modules *m, uint32_t line) {
    while (m->line_set.data[line] != line) {
        m->line_set.data[line] = m->line_set.data[m->line_set.data[line]];
        line = m->line_set.data[line];
    }
    return line;
}

/* The frame's line is one of its module's forward. */
static ebb_status add_line(advice_modules *m, uint32_t module, const ebb_trace_frame *f) {
    const uint32_t key[] = {f->function, f->file, f->line};
    uint32_t line = 0;
    bool is_new = false;
    EBB_TRY(ebb__trace_keys_add(&m->line_keys, key, sizeof key, &line, &is_new));
    if (is_new) { EBB_TRY(EBB_PUSH(m->study->mem, &m->line_set, line)); }
    while (m->line_of.n <= module) { EBB_TRY(EBB_PUSH(m->study->mem, &m->line_of, 0)); }
    if (m->line_of.data[module] == 0) { m->line_of.data[module] = line; }
    const uint32_t mine = set_of(m, line), its = set_of(m, m->line_of.data[module]);
    m->line_set.data[mine > its ? mine : its] = mine > its ? its : mine;
    return EBB_OK;
}

/* The frame of the module around it from which a forward's frame is reached. */
static uint32_t frame_around(const advice_modules *m, uint32_t caller) {
    const ebb_study *s = m->study;
    while (caller != 0 && ebb__study_frame_of(s, caller) != FRAME_FORWARD) {
        caller = ebb_trace_reader_frame(s->reader, caller).caller;
    }
    return caller;
}

/* A frame's caller has a smaller number. */
static ebb_status add_stacks(advice_modules *m) {
    const ebb_study *s = m->study;
    for (uint32_t stack = 1; stack < m->n_leaves; stack++) {
        const ebb_trace_frame f = ebb_trace_reader_frame(s->reader, stack);
        EBB_ASSERT(f.caller < stack);
        m->again_of[stack] = again_by(m, stack, f.caller);
        m->of_leaf[stack] = m->of_leaf[f.caller];
        if (ebb__study_frame_of(s, stack) != FRAME_FORWARD) { continue; }
        const uint32_t key[] = {f.caller, f.function, f.file}, parent = m->of_leaf[f.caller];
        const uint32_t depth = m->all.data[parent].depth + 1;
        const advice_module module = {
            .parent = parent, .leaf = stack, .depth = depth, .called_at = frame_around(m, f.caller)};
        EBB_TRY(add_module(m, key, sizeof key, &module, &m->of_leaf[stack]));
        EBB_TRY(add_line(m, m->of_leaf[stack], &f));
    }
    return EBB_OK;
}

/* By the lines of their forwards, once all are known. */
static ebb_status find_kinds_of_stacks(advice_modules *m) {
    for (uint32_t i = 1; i < m->all.n; i++) {
        const uint32_t set = set_of(m, m->line_of.data[i]);
        EBB_TRY(find_kind(m, &set, sizeof set, &m->all.data[i].kind));
    }
    return EBB_OK;
}

/* ---- kinds ------------------------------------------------------------------------------------ */

static uint64_t bit_of(uint32_t kind) {
    return kind != 0 ? (uint64_t)1 << (kind - 1) : 0;
}

/* Modules that run again, which blocks tell, and so what holds them. */
static void note_again(advice_modules *m, size_t block) {
    const study_block *b = &m->study->blocks.data[block];
    const uint32_t leaf = advice_leaf_of(m, b);
    const bool is_again = m->by_name ? ebb__study_birth_phase(m->study, block) == EBB_TRACE_PHASE_BACKWARD
                                     : (m->again_of[leaf] & IS_AGAIN) != 0;
    for (uint32_t i = m->of_leaf[leaf]; i != 0; i = m->all.data[i].parent) {
        m->all.data[i].is_again = m->all.data[i].is_again || is_again;
        const uint32_t kind = m->all.data[i].kind;
        if (kind != 0) { m->kinds.data[kind - 1].bytes = study_add(m->kinds.data[kind - 1].bytes, b->size_bytes); }
    }
}

static void find_nests(advice_modules *m) {
    for (uint32_t i = 1; i < m->all.n; i++) {
        const uint32_t kind = m->all.data[i].kind;
        for (uint32_t p = m->all.data[i].parent; p != 0 && kind != 0; p = m->all.data[p].parent) {
            const uint32_t around = m->all.data[p].kind;
            if (around == 0) { continue; }
            m->kinds.data[kind - 1].nests |= bit_of(around);
            m->kinds.data[around - 1].nests |= bit_of(kind);
        }
    }
}

uint32_t ebb__advice_module_of(const advice_modules *m, const study_block *b, uint64_t kinds, uint32_t *place_out) {
    uint32_t i = m->of_leaf[advice_leaf_of(m, b)];
    *place_out = 0;
    while (i != 0 && (bit_of(m->all.data[i].kind) & kinds) == 0) {
        *place_out = m->all.data[i].called_at;
        i = m->all.data[i].parent;
    }
    return i != 0 && !m->all.data[i].is_again ? i : 0;
}

/* ---- words ------------------------------------------------------------------------------------ */

/* What PyTorch's profiler calls the module of a forward, in a frame of its own around it; NULL: it does not. */
static const char *profiled_module(const ebb_study *s, uint32_t frame) {
    static const char prefix[] = "nn.Module: ";
    for (unsigned i = 0; i < MAX_CALLS && frame != 0; i++) {
        const ebb_trace_frame f = ebb_trace_reader_frame(s->reader, frame);
        const char *function = ebb_trace_reader_string(s->reader, f.function);
        if (study_begins_with(function, prefix)) { return function + sizeof prefix - 1; }
        frame = f.caller;
    }
    return NULL;
}

/* All modules of a kind have the label of the first, since all have its forward. */
static uint32_t first_of_kind(const advice_modules *m, uint32_t module) {
    for (uint32_t i = 1; i < module; i++) {
        if (m->all.data[i].kind == m->all.data[module].kind) { return i; }
    }
    return module;
}

/* How much of its leaf's name is the module's. */
static size_t name_length(const advice_modules *m, uint32_t module) {
    const char *name = ebb_trace_reader_string(m->study->reader, m->all.data[module].leaf);
    size_t n = 0;
    for (uint32_t depth = 0; name[n] != '\0'; n++) {
        if (name[n] == '.' && ++depth == m->all.data[module].depth) { break; }
    }
    return n;
}

bool ebb__advice_module_has_step(const advice_modules *m, uint32_t module, const study_step *step) {
    if (!m->by_name) { return false; }
    const char *name = ebb_trace_reader_string(m->study->reader, m->all.data[module].leaf);
    const char *of_step = ebb_trace_reader_string(m->study->reader, step->name);
    const size_t n = name_length(m, module);
    return strncmp(name, of_step, n) == 0 && (of_step[n] == '.' || of_step[n] == '\0');
}

const char *ebb__advice_module_label(const advice_modules *m, uint32_t module) {
    ebb_study *s = m->study;
    const uint32_t leaf = m->all.data[module].leaf;
    if (m->by_name) {
        return ebb__study_module_label(s, ebb_trace_reader_string(s->reader, leaf), name_length(m, module));
    }
    const char *profiled = profiled_module(s, leaf);
    if (profiled != NULL) { return profiled; }
    return ebb__study_frame_label(s, m->all.data[first_of_kind(m, module)].leaf, &s->bump);
}

/* ---- the door --------------------------------------------------------------------------------- */

/* By names where most activations have one, else by stacks. */
static bool choose_leaves(advice_modules *m, const uint8_t *purpose) {
    const ebb_study *s = m->study;
    uint64_t n_named = 0, n_stacked = 0, n = 0;
    uint32_t max_name = 0;
    for (size_t b = 0; b < s->blocks.n; b++) {
        const study_block *block = &s->blocks.data[b];
        max_name = block->name > max_name ? block->name : max_name;
        if (purpose[b] != PURPOSE_ACTIVATION) { continue; }
        n++;
        n_named += strchr(ebb_trace_reader_string(s->reader, block->name), '.') != NULL;
        n_stacked += block->stack != 0;
    }
    m->by_name = n_named * 2 > n;
    m->n_leaves = (size_t)(m->by_name ? max_name : s->max_stack) + 1;
    return m->by_name || n_stacked > 0;
}

static ebb_status find_modules(advice_modules *m, const uint8_t *purpose) {
    const ebb_study *s = m->study;
    m->of_leaf = ebb__calloc(s->mem, m->n_leaves, sizeof *m->of_leaf);
    m->again_of = ebb__calloc(s->mem, m->n_leaves, sizeof *m->again_of);
    if (m->of_leaf == NULL || m->again_of == NULL) { return EBB_E_NO_MEMORY; }
    EBB_TRY(EBB_PUSH(s->mem, &m->all, ((advice_module){.parent = 0})));
    EBB_TRY(EBB_PUSH(s->mem, &m->line_set, 0));
    EBB_TRY(EBB_PUSH(s->mem, &m->line_of, 0));
    if (!m->by_name) { EBB_TRY(add_stacks(m)); }
    for (size_t b = 0; b < s->blocks.n; b++) {
        const uint32_t leaf = advice_leaf_of(m, &s->blocks.data[b]);
        if (purpose[b] != PURPOSE_ACTIVATION) { continue; }
        if (m->by_name && m->of_leaf[leaf] == 0) { EBB_TRY(add_names(m, leaf)); }
    }
    return m->by_name ? EBB_OK : find_kinds_of_stacks(m);
}

ebb_status ebb__advice_modules_find(advice_modules *m, ebb_study *s, const uint8_t *purpose, bool *found_out) {
    *m = (advice_modules){.study = s};
    ebb__trace_keys_init(&m->keys, s->mem);
    ebb__trace_keys_init(&m->kind_keys, s->mem);
    ebb__trace_keys_init(&m->line_keys, s->mem);
    *found_out = choose_leaves(m, purpose);
    if (!*found_out) { return EBB_OK; }
    EBB_TRY(find_modules(m, purpose));
    for (size_t b = 0; b < s->blocks.n; b++) {
        if (purpose[b] == PURPOSE_ACTIVATION && s->blocks.data[b].size_bytes > 0) { note_again(m, b); }
    }
    find_nests(m);
    return EBB_OK;
}

void ebb__advice_modules_fini(advice_modules *m) {
    const ebb_mem *mem = m->study->mem;
    ebb__trace_keys_fini(&m->keys);
    ebb__trace_keys_fini(&m->kind_keys);
    ebb__trace_keys_fini(&m->line_keys);
    ebb__free(mem, m->of_leaf);
    ebb__free(mem, m->again_of);
    EBB_VEC_FINI(mem, &m->all);
    EBB_VEC_FINI(mem, &m->kinds);
    EBB_VEC_FINI(mem, &m->line_set);
    EBB_VEC_FINI(mem, &m->line_of);
}
