/* SPDX-License-Identifier: Apache-2.0
 *
 * Modules, as the names of blocks tell them: layers.3.self_attn of layers.3.self_attn.add. A recorder may note of which
 * class one is (class.layers.3.self_attn), which says more than a number where it is a child of a Sequential; then it
 * is in the label.
 */
#include "study/study_priv.h"

static size_t dot_before(const char *name, size_t end) {
    while (end > 0 && name[end - 1] != '.') { end--; }
    return end > 0 ? end - 1 : SIZE_MAX;
}

/* The block's name up to its last '.', or all of it without one. A gradient or state is named after
 * it, layer.weight.grad, and is of the parameter's module. */
size_t ebb__study_module_length(const study_block *b, const char *name) {
    const size_t whole = strlen(name), last = dot_before(name, whole);
    if (last == SIZE_MAX) { return whole; }
    const bool is_of_parameter = b->role == EBB_ROLE_GRADIENT || b->role == EBB_ROLE_OPTIMIZER_STATE;
    const size_t second = is_of_parameter ? dot_before(name, last) : SIZE_MAX;
    return second != SIZE_MAX ? second : last;
}

/* If a module has several notes, the last counts, as for all notes. */
ebb_status ebb__study_find_classes(ebb_study *s) {
    const char *key = NULL, *value = NULL;
    for (size_t i = 0; (value = ebb__trace_reader_note_at(s->reader, i, &key)) != NULL; i++) {
        if (!study_begins_with(key, EBB_TRACE_CLASS_PREFIX)) { continue; }
        const char *module = key + strlen(EBB_TRACE_CLASS_PREFIX);
        uint32_t number = 0;
        bool is_new = false;
        EBB_TRY(ebb__trace_keys_add(&s->class_keys, module, strlen(module), &number, &is_new));
        if (is_new) { EBB_TRY(EBB_PUSH(s->mem, &s->classes, value)); }
        EBB_ASSERT(number <= s->classes.n);
        s->classes.data[number - 1] = value;
    }
    return EBB_OK;
}

const char *ebb__study_module_label(ebb_study *s, const char *name, size_t n_bytes) {
    const uint32_t number = ebb__trace_keys_find(&s->class_keys, name, n_bytes);
    const char *class_name = number != 0 ? s->classes.data[number - 1] : "";
    if (class_name[0] == '\0') { return ebb__bump_printf(&s->bump, "%.*s", (int)n_bytes, name); }
    return ebb__bump_printf(&s->bump, "%.*s (%s)", (int)n_bytes, name, class_name);
}
