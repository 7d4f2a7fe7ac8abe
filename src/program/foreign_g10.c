/* SPDX-License-Identifier: Apache-2.0
 *
 * The kernels.config that G10's simulator writes (Zhang et al., MICRO 2023): the kernels of one training iteration, in
 * order, as lines of text.
 *
 *     Kernel ID: 17, Name: Conv2d_Forward
 *     Parent Layer ID:5; Name:Conv2d                         (or Parent OP ID:5; Name: aten::bmm)
 *     Execution Time: 12345                                  (cycles at 1.2 GHz)
 *     (256,64,56,56)                                         (of layers)
 *     Input Tensors:
 *     tensor12 Is weight (global)?: 0, Size in byte: 4096, Range:0--4096
 *     Output Tensors:
 *     ...
 *     ______________________
 *
 * A tensor that is global lives on into the next iteration. A kernel that names a tensor as an input and as an output
 * updates it; a tensor that is an output when it was there already is updated too. One that is an input before any
 * kernel made it comes from outside: a step that takes no time and never runs again makes it just before. A kernel
 * that names a tensor twice needs it once. makeLoss makes the gradient of the output, and the backward pass begins with
 * it.
 */
#include "program/foreign_priv.h"

#include <math.h>

#define MAX_LINE_BYTES 65536u
#define NS_PER_CYCLE (1.0 / 1.2)
#define MAX_CYCLES ((uint64_t)1000000000000000000)

typedef struct g10_trace {
    ebb_foreign *f;
    char line[MAX_LINE_BYTES];
    size_t n_line;
    uint64_t line_number;
    char text[32768];
    size_t n_text, n_taken;
    ebb_u64_map tensor_of; /* by its number in the trace */
    EBB_VEC(bool) has_content;
    /* of the kernel at hand */
    bool is_open, has_time, is_in_list, is_output;
    bool is_turned; /* makeLoss has come */
    uint64_t id;
    const char *name, *parent;
    uint64_t cycles;
    EBB_VEC(ebb_access) accesses;
} g10_trace;

bool ebb__foreign_is_g10(const char *head, size_t n) {
    return ebb__foreign_begins(head, n, "Kernel ID:");
}

static ebb_status refuse(const g10_trace *g, const char *what) {
    return ebb_fail(EBB_E_FORMAT, "%s:%llu: %s", g->f->path, (unsigned long long)g->line_number, what);
}

/* The next line without its end; *done_out: there is none. */
static ebb_status next_line(g10_trace *g, bool *done_out) {
    bool any = false;
    g->n_line = 0;
    g->line_number++;
    for (;;) {
        if (g->n_taken == g->n_text) {
            g->n_taken = 0;
            EBB_TRY(ebb__foreign_read(g->f, g->text, sizeof g->text, &g->n_text));
            if (g->n_text == 0) { break; }
        }
        const char c = g->text[g->n_taken++];
        any = true;
        if (c == '\n') { break; }
        if (c == '\0' || g->n_line + 1 == MAX_LINE_BYTES) {
            return refuse(g, c == '\0' ? "a NUL" : "a line of 64 KiB or more");
        }
        if (c != '\r') { g->line[g->n_line++] = c; }
    }
    g->line[g->n_line] = '\0';
    *done_out = !any;
    return EBB_OK;
}

/* The rest of a text after this beginning, without blanks; NULL: it does not begin so. */
static const char *behind(const char *text, const char *beginning) {
    const size_t n = strlen(beginning);
    if (strncmp(text, beginning, n) != 0) { return NULL; }
    return text + n + strspn(text + n, " \t");
}

/* The number with which *at begins; *at goes behind it. */
static bool take_number(const char **at, uint64_t *number_out) {
    uint64_t number = 0;
    const char *c = *at;
    for (; *c >= '0' && *c <= '9'; c++) {
        if (!ebb_mul_u64(number, 10, &number) || !ebb_add_u64(number, (uint64_t)(*c - '0'), &number)) { return false; }
    }
    const bool any = c != *at;
    *at = c;
    *number_out = number;
    return any;
}

/* ---- kernels ---------------------------------------------------------------------------------- */

static ebb_phase phase_of(const char *name, bool is_turned) {
    if (strstr(name, "Backward") != NULL || strstr(name, "backward") != NULL) { return EBB_PHASE_BACKWARD; }
    if (strstr(name, "Gradient") != NULL || strstr(name, "_Grad") != NULL) { return EBB_PHASE_BACKWARD; }
    if (strstr(name, "Apply") != NULL || strstr(name, "Update") != NULL) { return EBB_PHASE_UPDATE; }
    return is_turned ? EBB_PHASE_BACKWARD : EBB_PHASE_FORWARD;
}

static ebb_status begin_kernel(g10_trace *g, const char *at) {
    if (g->is_open) { return refuse(g, "a kernel begins within a kernel"); }
    if (!take_number(&at, &g->id)) { return refuse(g, "a kernel without a number"); }
    const char *name = behind(at, ", Name:");
    if (name == NULL) { return refuse(g, "a kernel without a name"); }
    g->name = ebb__bump_strdup(&g->f->bump, name);
    g->parent = "";
    g->is_open = true;
    g->has_time = g->is_in_list = g->is_output = false;
    g->accesses.n = 0;
    return g->name != NULL ? EBB_OK : EBB_E_NO_MEMORY;
}

static ebb_status take_parent(g10_trace *g, const char *at) {
    const char *name = strstr(at, "; Name:");
    if (name == NULL) { return refuse(g, "a parent without a name"); }
    name = behind(name, "; Name:");
    const int n_id = (int)strcspn(at, ";");
    g->parent = ebb__bump_printf(&g->f->bump, "%s %.*s", name, n_id, at);
    return g->parent != NULL ? EBB_OK : EBB_E_NO_MEMORY;
}

static ebb_status bring_inputs(g10_trace *g) {
    ebb_foreign *f = g->f;
    for (size_t i = 0; i < g->accesses.n; i++) {
        const uint32_t t = g->accesses.data[i].tensor;
        if (g->accesses.data[i].mode != EBB_READ || g->has_content.data[t]) { continue; }
        EBB_TRY(ebb__foreign_add_step(f, f->tensors.data[t].name, "input", EBB_PHASE_FORWARD, 0));
        f->steps.data[f->steps.n - 1].repeat = EBB_REPEAT_NEVER;
        EBB_TRY(ebb__foreign_add_access(f, t, EBB_WRITE));
        f->tensors.data[t].role = EBB_ROLE_INPUT;
        g->has_content.data[t] = true;
    }
    return EBB_OK;
}

static ebb_status end_kernel(g10_trace *g) {
    if (!g->is_open || !g->has_time) { return refuse(g, "a kernel ends without its execution time"); }
    const char *name =
        ebb__bump_printf(&g->f->bump, "%s/%llu", g->parent[0] != '\0' ? g->parent : g->name, (unsigned long long)g->id);
    if (name == NULL) { return EBB_E_NO_MEMORY; }
    const double ns = round((double)g->cycles * NS_PER_CYCLE);
    EBB_TRY(bring_inputs(g));
    g->is_turned = g->is_turned || strcmp(g->name, "makeLoss") == 0;
    const ebb_phase phase = phase_of(g->name, g->is_turned);
    EBB_TRY(ebb__foreign_add_step(g->f, name, g->name, phase, (uint64_t)ns));
    for (size_t i = 0; i < g->accesses.n; i++) {
        const ebb_access *access = &g->accesses.data[i];
        const uint32_t t = access->tensor;
        const bool is_made_new = access->mode == EBB_WRITE && !g->has_content.data[t];
        EBB_TRY(ebb__foreign_add_access(g->f, t, is_made_new || access->mode == EBB_READ ? access->mode : EBB_UPDATE));
    }
    for (size_t i = 0; i < g->accesses.n; i++) { g->has_content.data[g->accesses.data[i].tensor] = true; }
    g->is_open = false;
    return EBB_OK;
}

/* ---- tensors ---------------------------------------------------------------------------------- */

static ebb_status find_tensor(g10_trace *g, uint64_t number, bool is_global, uint64_t size_bytes, uint32_t *t_out) {
    ebb_foreign *f = g->f;
    uint64_t *value = NULL;
    bool is_new = false;
    EBB_TRY(ebb__u64_map_add(&g->tensor_of, number, &value, &is_new));
    if (!is_new) {
        *t_out = (uint32_t)*value;
        if (f->tensors.data[*t_out].size_bytes == size_bytes) { return EBB_OK; }
        return refuse(g, "a tensor that had another size before");
    }
    const char *name = ebb__bump_printf(&f->bump, "tensor%llu", (unsigned long long)number);
    if (name == NULL) { return EBB_E_NO_MEMORY; }
    const ebb_tensor tensor = {.name = name,
                               .size_bytes = size_bytes,
                               .role = is_global ? EBB_ROLE_PARAMETER : EBB_ROLE_ACTIVATION,
                               .persistent = is_global};
    EBB_TRY(ebb__foreign_add_tensor(f, &tensor, t_out));
    *value = *t_out;
    return EBB_PUSH(f->mem, &g->has_content, is_global);
}

static ebb_status take_tensor(g10_trace *g, const char *at) {
    uint64_t number = 0, is_global = 0, size_bytes = 0;
    ebb_access access = {.mode = g->is_output ? EBB_WRITE : EBB_READ};
    if (!g->is_in_list) { return refuse(g, "a tensor outside of a list"); }
    if (!take_number(&at, &number)) { return refuse(g, "a tensor without a number"); }
    at = behind(at + strspn(at, " "), "Is weight (global)?:");
    if (at == NULL || !take_number(&at, &is_global) || is_global > 1) {
        return refuse(g, "'Is weight (global)?: 0' or 1 was expected");
    }
    at = behind(at, ", Size in byte:");
    if (at == NULL || !take_number(&at, &size_bytes)) { return refuse(g, "'Size in byte:' was expected"); }
    EBB_TRY(find_tensor(g, number, is_global == 1, size_bytes, &access.tensor));
    return EBB_PUSH(g->f->mem, &g->accesses, access);
}

/* ---- the trace -------------------------------------------------------------------------------- */

static ebb_status take_line(g10_trace *g) {
    const char *line = g->line + strspn(g->line, " \t"), *at = NULL;
    if (line[0] == '\0') { return EBB_OK; }
    if ((at = behind(line, "Kernel ID:")) != NULL) { return begin_kernel(g, at); }
    if (line[0] == '_') { return end_kernel(g); }
    if (!g->is_open) { return refuse(g, "neither a kernel nor a line of underscores"); }
    if ((at = behind(line, "Parent Layer ID:")) != NULL || (at = behind(line, "Parent OP ID:")) != NULL) {
        return take_parent(g, at);
    }
    if ((at = behind(line, "Execution Time:")) != NULL) {
        g->has_time = take_number(&at, &g->cycles) && g->cycles <= MAX_CYCLES;
        return g->has_time ? EBB_OK : refuse(g, "an execution time that is no whole number up to 10^18");
    }
    if (strcmp(line, "Input Tensors:") == 0 || strcmp(line, "Output Tensors:") == 0) {
        g->is_output = line[0] == 'O';
        g->is_in_list = true;
        return EBB_OK;
    }
    if ((at = behind(line, "tensor")) != NULL) { return take_tensor(g, at); }
    return line[0] == '(' ? EBB_OK : refuse(g, "a line that no kernel has");
}

static ebb_status read_trace(g10_trace *g) {
    for (bool done = false;;) {
        EBB_TRY(next_line(g, &done));
        if (done) { break; }
        EBB_TRY(take_line(g));
    }
    return g->is_open ? refuse(g, "the file ends within a kernel") : EBB_OK;
}

ebb_status ebb__foreign_read_g10(ebb_foreign *f) {
    g10_trace *g = ebb__calloc(f->mem, 1, sizeof *g);
    if (g == NULL) { return EBB_E_NO_MEMORY; }
    g->f = f;
    ebb__u64_map_init(&g->tensor_of, f->mem);
    const ebb_status st = read_trace(g);
    ebb__u64_map_fini(&g->tensor_of);
    EBB_VEC_FINI(f->mem, &g->has_content);
    EBB_VEC_FINI(f->mem, &g->accesses);
    ebb__free(f->mem, g);
    return st;
}
