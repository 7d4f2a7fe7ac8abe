/* SPDX-License-Identifier: Apache-2.0
 *
 * The logs that the simulator of Dynamic Tensor Rematerialization reads (Kirisame et al., ICLR 2021; its runtime for
 * PyTorch writes them), one JSON object a line: CONSTANT, MEMORY, CALL, ALIAS, MUTATE, COPY, COPY_FROM, RELEASE,
 * ANNOTATE. Only what follows the annotation START counts, if there is one.
 *
 * A name means a value, a value lies in a storage, and storages become tensors:
 *  - a CALL reads its arguments and makes a storage of each result that is no alias. One whose results are all aliases
 *    moves no bytes, and is left out with its time.
 *  - a MUTATE is the copy on write that the simulator makes of it: each changed argument is a new storage of its old
 *    one's bytes.
 *  - a CONSTANT is a persistent tensor: it can be neither made again nor dropped.
 *  - values that are still referred to at the end are kept.
 */
#include "program/foreign_priv.h"

/* A call whose results are not all described yet. */
typedef struct dtr_call {
    char *name;
    uint64_t time_ns;
    bool is_open;
    size_t n_results, n_described;
    bool has_memory; /* of result n_described */
    uint64_t memory_bytes;
} dtr_call;

typedef struct dtr_log {
    ebb_foreign *f;
    ebb_foreign_names names;
    EBB_VEC(uint32_t) value_of;    /* by name; FOREIGN_NONE: it is not defined */
    EBB_VEC(uint32_t) values;      /* the tensor of each */
    EBB_VEC(int64_t) n_references; /* of each tensor, by all its values */
    dtr_call call;
    EBB_VEC(uint32_t) arguments; /* of the call: tensors */
    EBB_VEC(uint32_t) results;   /* of the call: names */
    EBB_VEC(uint32_t) made;      /* of the call: tensors */
    EBB_VEC(uint32_t) changed;   /* of a mutation: places in arguments */
    uint32_t constant;           /* the name whose MEMORY comes next, or FOREIGN_NONE */
    bool is_started, is_backward;
    bool is_within_line, has_line; /* of the lines that become an array */
    bool is_done;
    char text[32768]; /* of the file, to be made an array */
    size_t n_text, n_taken;
} dtr_log;

bool ebb__foreign_is_dtr(const char *head, size_t n) {
    const char *line_end = memchr(head, '\n', n);
    return ebb__foreign_begins(head, n, "{") &&
           ebb__foreign_has(head, line_end != NULL ? (size_t)(line_end - head) : n, "\"INSTRUCTION\"");
}

/* ---- lines as an array ------------------------------------------------------------------------ */

static ebb_status fill(dtr_log *log) {
    log->n_taken = 0;
    return ebb__foreign_read(log->f, log->text, sizeof log->text, &log->n_text);
}

/* The lines with a comma between each two, in brackets, so that each is an element; places of lines stay. */
static ebb_status read_lines(void *ctx, void *buf, size_t n, size_t *n_out) {
    dtr_log *log = ctx;
    char *out = buf, *end = out + n;
    while (out < end && !log->is_done) {
        if (log->n_taken == log->n_text) {
            EBB_TRY(fill(log));
            if (log->n_text == 0) {
                if (!log->has_line) { *out++ = '['; }
                if (out == end) {
                    log->has_line = true;
                    break;
                }
                *out++ = ']';
                log->is_done = true;
                break;
            }
        }
        const char c = log->text[log->n_taken];
        const bool is_blank = c == ' ' || c == '\t' || c == '\r' || c == '\n';
        if (!is_blank && !log->is_within_line) {
            *out++ = log->has_line ? ',' : '[';
            log->has_line = log->is_within_line = true;
            continue;
        }
        if (c == '\n') { log->is_within_line = false; }
        *out++ = c;
        log->n_taken++;
    }
    *n_out = (size_t)(out - (char *)buf);
    return EBB_OK;
}

/* ---- fields ----------------------------------------------------------------------------------- */

static ebb_status get_text(const ebb_json_value *json, const char *key, const char **text_out) {
    const char *text = ebb__json_value_string(json, 0, key);
    if (text == NULL) { return ebb__json_value_fail(json, "there is no text %s", key); }
    *text_out = text;
    return EBB_OK;
}

/* Numbers are texts in these logs. */
static bool is_number(const ebb_json_value *json, uint32_t token, uint64_t *number_out) {
    return (ebb__json_value_is(json, token, EBB_JSON_STRING) || ebb__json_value_is(json, token, EBB_JSON_NUMBER)) &&
           ebb__parse_u64(ebb__json_value_text(json, token), number_out);
}

static ebb_status get_number(const ebb_json_value *json, const char *key, uint64_t *number_out) {
    if (is_number(json, ebb__json_value_member(json, 0, key), number_out)) { return EBB_OK; }
    return ebb__json_value_fail(json, "%s is no whole number", key);
}

static ebb_status get_list(const ebb_json_value *json, const char *key, uint32_t *list_out) {
    *list_out = ebb__json_value_member(json, 0, key);
    if (ebb__json_value_is(json, *list_out, EBB_JSON_ARRAY)) { return EBB_OK; }
    return ebb__json_value_fail(json, "there is no list %s", key);
}

/* ---- names and values ------------------------------------------------------------------------- */

static ebb_status find_value(const dtr_log *log, const ebb_json_value *json, const char *name, uint32_t *value_out) {
    const uint32_t n = ebb__foreign_names_find(&log->names, name);
    if (n == FOREIGN_NONE || log->value_of.data[n] == FOREIGN_NONE) {
        return ebb__json_value_fail(json, "%.64s is not defined", name);
    }
    *value_out = log->value_of.data[n];
    return EBB_OK;
}

static ebb_status new_name(dtr_log *log, const ebb_json_value *json, const char *name, uint32_t *name_out) {
    bool is_new = false;
    EBB_TRY(ebb__foreign_names_add(&log->names, name, name_out, &is_new));
    if (is_new) { EBB_TRY(EBB_PUSH(log->f->mem, &log->value_of, FOREIGN_NONE)); }
    if (log->value_of.data[*name_out] == FOREIGN_NONE) { return EBB_OK; }
    return ebb__json_value_fail(json, "%.64s is defined twice", name);
}

/* One reference more or less. A tensor is released when the last one is gone. */
static void refer(dtr_log *log, uint32_t value, int64_t change) {
    const uint32_t t = log->values.data[value];
    log->n_references.data[t] += change;
    log->f->tensors.data[t].released = log->n_references.data[t] > 0 ? 0 : (uint32_t)log->f->steps.n;
}

static ebb_status new_value(dtr_log *log, uint32_t tensor, uint32_t *value_out) {
    if (log->values.n >= FOREIGN_NONE - 1) { return ebb_fail(EBB_E_LIMIT, "%s: 2^32 - 2 values", log->f->path); }
    EBB_TRY(EBB_PUSH(log->f->mem, &log->values, tensor));
    while (log->n_references.n <= tensor) { EBB_TRY(EBB_PUSH(log->f->mem, &log->n_references, 0)); }
    *value_out = (uint32_t)log->values.n - 1;
    refer(log, *value_out, 1);
    return EBB_OK;
}

static ebb_status new_tensor(dtr_log *log, const char *name, uint64_t size_bytes, uint32_t *tensor_out) {
    const ebb_tensor tensor = {
        .name = name, .size_bytes = size_bytes, .role = log->is_backward ? EBB_ROLE_GRADIENT : EBB_ROLE_ACTIVATION};
    return ebb__foreign_add_tensor(log->f, &tensor, tensor_out);
}

/* ---- steps ------------------------------------------------------------------------------------ */

static ebb_status add_step(dtr_log *log) {
    ebb_foreign *f = log->f;
    const char *name = ebb__bump_printf(&f->bump, "%s/%zu", log->call.name, f->steps.n);
    if (name == NULL) { return EBB_E_NO_MEMORY; }
    const ebb_phase phase = log->is_backward ? EBB_PHASE_BACKWARD : EBB_PHASE_FORWARD;
    EBB_TRY(ebb__foreign_add_step(f, name, log->call.name, phase, log->call.time_ns));
    for (size_t i = 0; i < log->arguments.n; i++) {
        EBB_TRY(ebb__foreign_add_access(f, log->arguments.data[i], EBB_READ));
    }
    for (size_t i = 0; i < log->made.n; i++) { EBB_TRY(ebb__foreign_add_access(f, log->made.data[i], EBB_WRITE)); }
    return EBB_OK;
}

static ebb_status begin_call(dtr_log *log, const ebb_json_value *json) {
    const char *name = NULL;
    uint32_t list = 0, value = 0;
    EBB_TRY(get_text(json, "NAME", &name));
    EBB_TRY(get_number(json, "TIME", &log->call.time_ns));
    EBB_TRY(get_list(json, "ARGS", &list));
    log->call.name = ebb__bump_strdup(&log->f->bump, name);
    if (log->call.name == NULL) { return EBB_E_NO_MEMORY; }
    log->is_backward = log->is_backward || strstr(name, "backward") != NULL;
    log->arguments.n = log->results.n = log->made.n = log->changed.n = 0;
    for (uint32_t at = list + 1; at < json->tokens[list].next; at = json->tokens[at].next) {
        if (!ebb__json_value_is(json, at, EBB_JSON_STRING)) { return ebb__json_value_fail(json, "ARGS are names"); }
        EBB_TRY(find_value(log, json, ebb__json_value_text(json, at), &value));
        EBB_TRY(EBB_PUSH(log->f->mem, &log->arguments, log->values.data[value]));
    }
    return EBB_OK;
}

static ebb_status end_call(dtr_log *log) {
    log->call.is_open = false;
    const bool is_alias_only = log->results.n > 0 && log->made.n == 0;
    return is_alias_only ? EBB_OK : add_step(log);
}

static ebb_status take_call(dtr_log *log, const ebb_json_value *json) {
    uint32_t list = 0, name = 0;
    EBB_TRY(begin_call(log, json));
    EBB_TRY(get_list(json, "RESULT", &list));
    for (uint32_t at = list + 1; at < json->tokens[list].next; at = json->tokens[at].next) {
        if (!ebb__json_value_is(json, at, EBB_JSON_STRING)) { return ebb__json_value_fail(json, "RESULT are names"); }
        EBB_TRY(new_name(log, json, ebb__json_value_text(json, at), &name));
        EBB_TRY(EBB_PUSH(log->f->mem, &log->results, name));
    }
    log->call.n_results = log->results.n;
    log->call.n_described = 0;
    log->call.has_memory = false;
    log->call.is_open = true;
    return log->results.n == 0 ? end_call(log) : EBB_OK;
}

/* ALIAS is -1, or an argument's place. */
static ebb_status get_alias(const dtr_log *log, const ebb_json_value *json, uint32_t *tensor_out) {
    const uint32_t token = ebb__json_value_member(json, 0, "ALIAS");
    uint64_t place = 0;
    const bool is_text = ebb__json_value_is(json, token, EBB_JSON_STRING);
    if ((is_text || ebb__json_value_is(json, token, EBB_JSON_NUMBER)) &&
        strcmp(ebb__json_value_text(json, token), "-1") == 0) {
        *tensor_out = FOREIGN_NONE;
        return EBB_OK;
    }
    if (!is_number(json, token, &place) || place >= log->arguments.n) {
        return ebb__json_value_fail(json, "ALIAS is neither -1 nor the place of an argument");
    }
    *tensor_out = log->arguments.data[place];
    return EBB_OK;
}

/* The MEMORY or the ALIAS of the next result. */
static ebb_status describe_result(dtr_log *log, const ebb_json_value *json, const char *what) {
    dtr_call *call = &log->call;
    const uint32_t result = log->results.data[call->n_described];
    const char *name = NULL;
    uint32_t tensor = FOREIGN_NONE;
    EBB_TRY(get_text(json, "NAME", &name));
    if (strcmp(what, call->has_memory ? "ALIAS" : "MEMORY") != 0 || strcmp(name, log->names.text.data[result]) != 0) {
        return ebb__json_value_fail(json, "the %s of %.64s was expected", call->has_memory ? "ALIAS" : "MEMORY",
                                    log->names.text.data[result]);
    }
    if (!call->has_memory) {
        call->has_memory = true;
        return get_number(json, "MEMORY", &call->memory_bytes);
    }
    call->has_memory = false;
    EBB_TRY(get_alias(log, json, &tensor));
    if (tensor == FOREIGN_NONE) {
        EBB_TRY(new_tensor(log, name, ebb_max_u64(call->memory_bytes, 1), &tensor));
        EBB_TRY(EBB_PUSH(log->f->mem, &log->made, tensor));
    }
    if (log->value_of.data[result] != FOREIGN_NONE) {
        return ebb__json_value_fail(json, "%.64s is defined twice", name);
    }
    EBB_TRY(new_value(log, tensor, &log->value_of.data[result]));
    return ++call->n_described == call->n_results ? end_call(log) : EBB_OK;
}

static ebb_status take_mutate(dtr_log *log, const ebb_json_value *json) {
    uint32_t list = 0, arguments = 0;
    uint64_t place = 0;
    EBB_TRY(begin_call(log, json));
    EBB_TRY(get_list(json, "MUTATE", &list));
    EBB_TRY(get_list(json, "ARGS", &arguments));
    for (uint32_t at = list + 1; at < json->tokens[list].next; at = json->tokens[at].next) {
        uint32_t tensor = 0;
        if (!is_number(json, at, &place) || place >= log->arguments.n) {
            return ebb__json_value_fail(json, "MUTATE is not the place of an argument");
        }
        const ebb_tensor *old = &log->f->tensors.data[log->arguments.data[place]];
        EBB_TRY(new_tensor(log, old->name, old->size_bytes, &tensor));
        EBB_TRY(EBB_PUSH(log->f->mem, &log->made, tensor));
        EBB_TRY(EBB_PUSH(log->f->mem, &log->changed, (uint32_t)place));
    }
    EBB_TRY(add_step(log));
    for (size_t i = 0; i < log->changed.n; i++) {
        uint32_t at = arguments + 1 + log->changed.data[i]; /* texts have no tokens within them */
        const uint32_t name = ebb__foreign_names_find(&log->names, ebb__json_value_text(json, at));
        refer(log, log->value_of.data[name], -1);
        EBB_TRY(new_value(log, log->made.data[i], &log->value_of.data[name]));
    }
    return EBB_OK;
}

/* ---- other lines ------------------------------------------------------------------------------ */

/* A constant before the first call is there from the beginning. A later one is an input: a step makes it, once. Neither
 * is given back. */
static ebb_status take_memory(dtr_log *log, const ebb_json_value *json) {
    ebb_foreign *f = log->f;
    const char *name = NULL;
    const bool is_late = f->steps.n > 0;
    ebb_tensor tensor = {
        .role = is_late ? EBB_ROLE_INPUT : EBB_ROLE_PARAMETER, .persistent = !is_late, .kept = is_late};
    uint32_t made = 0;
    EBB_TRY(get_text(json, "NAME", &name));
    EBB_TRY(get_number(json, "MEMORY", &tensor.size_bytes));
    if (strcmp(name, log->names.text.data[log->constant]) != 0) {
        return ebb__json_value_fail(json, "the MEMORY of %.64s was expected", log->names.text.data[log->constant]);
    }
    tensor.name = name;
    EBB_TRY(ebb__foreign_add_tensor(f, &tensor, &made));
    EBB_TRY(new_value(log, made, &log->value_of.data[log->constant]));
    log->constant = FOREIGN_NONE;
    if (!is_late) { return EBB_OK; }
    EBB_TRY(ebb__foreign_add_step(f, name, "constant", log->is_backward ? EBB_PHASE_BACKWARD : EBB_PHASE_FORWARD, 0));
    f->steps.data[f->steps.n - 1].repeat = EBB_REPEAT_NEVER;
    return ebb__foreign_add_access(f, made, EBB_WRITE);
}

static ebb_status take_constant(dtr_log *log, const ebb_json_value *json) {
    const char *name = NULL;
    EBB_TRY(get_text(json, "NAME", &name));
    return new_name(log, json, name, &log->constant);
}

static ebb_status take_copy(dtr_log *log, const ebb_json_value *json, bool is_from) {
    const char *dst = NULL, *src = NULL;
    uint32_t value = 0, old = 0, name = 0;
    EBB_TRY(get_text(json, "DST", &dst));
    EBB_TRY(get_text(json, "SRC", &src));
    EBB_TRY(find_value(log, json, src, &value));
    if (is_from) {
        EBB_TRY(find_value(log, json, dst, &old));
        name = ebb__foreign_names_find(&log->names, dst);
        refer(log, old, -1);
    } else {
        EBB_TRY(new_name(log, json, dst, &name));
    }
    log->value_of.data[name] = value;
    refer(log, value, 1);
    return EBB_OK;
}

/* Tensors that were made before the log begins are released in it, too. */
static ebb_status take_release(dtr_log *log, const ebb_json_value *json) {
    const char *name = NULL;
    EBB_TRY(get_text(json, "NAME", &name));
    const uint32_t n = ebb__foreign_names_find(&log->names, name);
    const uint32_t value = n != FOREIGN_NONE ? log->value_of.data[n] : FOREIGN_NONE;
    if (value != FOREIGN_NONE) { refer(log, value, -1); }
    return EBB_OK;
}

static ebb_status take_annotation(dtr_log *log, const ebb_json_value *json) {
    const char *annotation = NULL;
    EBB_TRY(get_text(json, "ANNOTATION", &annotation));
    if (strcmp(annotation, "BACKWARD") == 0) { log->is_backward = true; }
    if (strcmp(annotation, "START") == 0 && !log->is_started) {
        log->is_started = true;
        log->is_backward = false;
        for (size_t n = 0; n < log->value_of.n; n++) { log->value_of.data[n] = FOREIGN_NONE; }
        log->n_references.n = log->values.n = log->f->tensors.n = log->f->steps.n = log->f->accesses.n = 0;
    }
    return EBB_OK;
}

static ebb_status take_line(void *ctx, const ebb_json_value *json) {
    dtr_log *log = ctx;
    const char *what = NULL;
    EBB_TRY(get_text(json, "INSTRUCTION", &what));
    if (log->call.is_open) { return describe_result(log, json, what); }
    if (log->constant != FOREIGN_NONE) {
        if (strcmp(what, "MEMORY") == 0) { return take_memory(log, json); }
        return ebb__json_value_fail(json, "the MEMORY of %.64s was expected", log->names.text.data[log->constant]);
    }
    if (strcmp(what, "CALL") == 0) { return take_call(log, json); }
    if (strcmp(what, "MUTATE") == 0) { return take_mutate(log, json); }
    if (strcmp(what, "CONSTANT") == 0) { return take_constant(log, json); }
    if (strcmp(what, "COPY") == 0) { return take_copy(log, json, false); }
    if (strcmp(what, "COPY_FROM") == 0) { return take_copy(log, json, true); }
    if (strcmp(what, "RELEASE") == 0) { return take_release(log, json); }
    if (strcmp(what, "ANNOTATE") == 0) { return take_annotation(log, json); }
    return ebb__json_value_fail(json, "%.64s is no INSTRUCTION here", what);
}

/* ---- the log ---------------------------------------------------------------------------------- */

static bool wants_nothing(void *ctx, const char *key) {
    (void)ctx;
    (void)key;
    return false;
}

/* A step may use what has no name any more. */
static void release_after(ebb_foreign *f, size_t step) {
    const size_t end = step + 1 < f->steps.n ? f->steps.data[step + 1].first_access : f->accesses.n;
    for (size_t a = f->steps.data[step].first_access; a < end; a++) {
        ebb_tensor *tensor = &f->tensors.data[f->accesses.data[a].tensor];
        if (tensor->released > 0 && tensor->released <= step) { tensor->released = (uint32_t)step + 1; }
    }
}

static ebb_status read_log(dtr_log *log) {
    ebb_foreign *f = log->f;
    ebb_json_source source = {.mem = f->mem, .path = f->path, .read = read_lines, .ctx = log, .is_strict = true};
    const ebb_json_handler handler = {.takes_list = true, .element = take_line, .wants = wants_nothing, .ctx = log};
    EBB_TRY(ebb__json_read(&source, &handler));
    if (log->call.is_open || log->constant != FOREIGN_NONE) {
        return ebb_fail(EBB_E_FORMAT, "%s: it ends before the last line says how many bytes its values have", f->path);
    }
    for (size_t t = 0; t < f->tensors.n; t++) {
        ebb_tensor *tensor = &f->tensors.data[t];
        if (tensor->persistent || tensor->kept) { tensor->released = 0; }
        tensor->kept = tensor->kept || (!tensor->persistent && log->n_references.data[t] > 0);
    }
    for (size_t s = 0; s < f->steps.n; s++) { release_after(f, s); }
    return ebb__foreign_read_unused(f);
}

ebb_status ebb__foreign_read_dtr(ebb_foreign *f) {
    dtr_log *log = ebb__calloc(f->mem, 1, sizeof *log);
    if (log == NULL) { return EBB_E_NO_MEMORY; }
    log->f = f;
    log->constant = FOREIGN_NONE;
    ebb__foreign_names_init(&log->names, f->mem, &f->bump);
    const ebb_status st = read_log(log);
    ebb__foreign_names_fini(&log->names);
    EBB_VEC_FINI(f->mem, &log->value_of);
    EBB_VEC_FINI(f->mem, &log->values);
    EBB_VEC_FINI(f->mem, &log->n_references);
    EBB_VEC_FINI(f->mem, &log->arguments);
    EBB_VEC_FINI(f->mem, &log->results);
    EBB_VEC_FINI(f->mem, &log->made);
    EBB_VEC_FINI(f->mem, &log->changed);
    ebb__free(f->mem, log);
    return st;
}
