/* SPDX-License-Identifier: Apache-2.0
 *
 * Modules, as a program's ranges tell them. PyTorch's execution traces name no modules, but a program may put
 * torch.profiler.record_function around the forward of each.
 *
 *      ranges within each other                  module
 *      layer_3, attention                        layer_3.attention
 *      net, layers.0, layers.0.attention         net.layers.0.attention
 *
 * A name that goes on from that of the range around it takes its place. Each module gets a note class.MODULE without a
 * class: modules without one, such as layers, are only part of names and cannot be called.
 */
#include "trace/execution.h"

#define MAX_NAME_BYTES 1024u /* of a module; ranges within it that would be longer are part of it */

ebb_status ebb__execution_modules_init(execution_modules *m, ebb_importer *importer) {
    *m = (execution_modules){.importer = importer};
    ebb__bump_init(&m->bump, importer->mem);
    ebb__trace_keys_init(&m->keys, importer->mem);
    ebb__u64_map_init(&m->of_sequence, importer->mem);
    return EBB_PUSH(importer->mem, &m->names, ((execution_name){.text = ""}));
}

void ebb__execution_modules_fini(execution_modules *m) {
    EBB_VEC_FINI(m->importer->mem, &m->names);
    ebb__trace_keys_fini(&m->keys);
    ebb__u64_map_fini(&m->of_sequence);
    ebb__bump_fini(&m->bump);
}

bool ebb__execution_is_own_range(const char *name) {
    static const char *const of_pytorch[] = {"Optimizer.",
                                             "ProfilerStep#",
                                             "enumerate(DataLoader)",
                                             "DistributedDataParallel.",
                                             "FullyShardedDataParallel.",
                                             "FSDP::",
                                             "Torch-Compiled Region",
                                             "TorchDynamo Cache Lookup",
                                             "## Call CompiledFxGraph"};
    for (size_t i = 0; i < sizeof of_pytorch / sizeof of_pytorch[0]; i++) {
        if (ebb__import_begins_with(name, of_pytorch[i])) { return false; }
    }
    return name[0] != '\0';
}

/* "layer.0.attention" goes on from "layer.0". */
static bool goes_on_from(const char *name, const char *around) {
    const size_t n = strlen(around);
    return n > 0 && strncmp(name, around, n) == 0 && name[n] == '.';
}

static ebb_status name_module(execution_modules *m, const execution_name *around, const char *text,
                              execution_name *module_out) {
    const bool goes_on = goes_on_from(text, around->text + around->last);
    const size_t n_kept = goes_on ? around->last : strlen(around->text);
    const char *dot = !goes_on && n_kept > 0 ? "." : "";
    char key[sizeof EBB_TRACE_CLASS_PREFIX + MAX_NAME_BYTES];
    if (n_kept + 1 + strlen(text) > MAX_NAME_BYTES) {
        *module_out = *around;
        return EBB_OK;
    }
    execution_name module = {.last = n_kept + strlen(dot)};
    module.text = ebb__bump_printf(&m->bump, "%.*s%s%s", (int)n_kept, around->text, dot, text);
    if (module.text == NULL) { return EBB_E_NO_MEMORY; }
    (void)snprintf(key, sizeof key, EBB_TRACE_CLASS_PREFIX "%s", module.text);
    EBB_TRY(ebb__import_note(m->importer, key, ""));
    EBB_TRY(ebb__import_string(m->importer, module.text, &module.string));
    *module_out = module;
    return EBB_OK;
}

/* "aten::linear" within "layers.0" makes "layers.0.linear". */
static ebb_status name_blocks(execution_modules *m, const execution_name *around, const char *text,
                              execution_name *name_out) {
    for (const char *at; (at = strstr(text, "::")) != NULL;) { text = at + 2; }
    execution_name name = {.text = ebb__bump_printf(&m->bump, "%s.%s", around->text, text)};
    if (name.text == NULL) { return EBB_E_NO_MEMORY; }
    EBB_TRY(ebb__import_string(m->importer, name.text, &name.string));
    *name_out = name;
    return EBB_OK;
}

ebb_status ebb__execution_find_name(execution_modules *m, uint32_t around, uint32_t name, const char *text,
                                    bool is_range, uint32_t *number_out) {
    const uint32_t key[] = {around, name, is_range};
    execution_name found = {.text = NULL};
    bool is_new = false;
    EBB_ASSERT(around < m->names.n);
    EBB_TRY(ebb__trace_keys_add(&m->keys, key, sizeof key, number_out, &is_new));
    if (!is_new) { return EBB_OK; }
    EBB_TRY((is_range ? name_module : name_blocks)(m, &m->names.data[around], text, &found));
    EBB_ASSERT(m->names.n == *number_out);
    return EBB_PUSH(m->importer->mem, &m->names, found);
}

ebb_status ebb__execution_note_sequence(execution_modules *m, uint64_t sequence, uint32_t module) {
    uint64_t *value = NULL;
    bool is_new = false;
    if (m->names.n == 1) { return EBB_OK; } /* there are no modules so far */
    EBB_TRY(ebb__u64_map_add(&m->of_sequence, sequence, &value, &is_new));
    *value = module;
    return EBB_OK;
}

uint32_t ebb__execution_module_of(const execution_modules *m, uint64_t sequence) {
    const uint64_t *module = ebb__u64_map_find(&m->of_sequence, sequence);
    return module != NULL ? (uint32_t)*module : 0;
}
