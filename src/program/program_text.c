/* SPDX-License-Identifier: Apache-2.0
 *
 * The text form of docs/program-format.md, written and read. The reader walks over the text once and takes
 * memory only as lines come. Numbers are written and read here, not by the C library, whose decimal point
 * depends on the locale.
 */
#include "program/program.h"

#include "base/file.h"

#include <math.h>

#define VERSION 1u
#define MAX_FILE_BYTES ((uint64_t)16 << 30)
#define EXACT_BITS 53 /* of a double's whole numbers */

static const char *const phase_words[EBB_N_PHASES] = {"forward", "backward", "update", "unknown"};
static const char *const repeat_words[EBB_N_REPEATS] = {"exact", "other_bits", "never"}; /* the first is not written */
static const char *const mode_words[] = {"", "read", "write", "update"};                 /* by ebb_access_mode */

/* ---- writing ---------------------------------------------------------------------------------- */

static void put(ebb_file_writer *w, const char *text) {
    (void)ebb__file_writer_write(w, text, strlen(text)); /* commit says whether it could be */
}

static void put_u64(ebb_file_writer *w, uint64_t x) {
    char digits[24], *at = digits + sizeof digits;
    do {
        *--at = (char)('0' + x % 10);
        x /= 10;
    } while (x > 0);
    *--at = ' ';
    (void)ebb__file_writer_write(w, at, (size_t)(digits + sizeof digits - at));
}

static void put_hex(ebb_file_writer *w, uint64_t x, unsigned n_digits) {
    char digits[16];
    for (unsigned i = n_digits; i-- > 0; x /= 16) { digits[i] = "0123456789abcdef"[x % 16]; }
    (void)ebb__file_writer_write(w, digits, n_digits);
}

static void put_real(ebb_file_writer *w, double x) {
    if (x < ldexp(1, EXACT_BITS) && x == floor(x)) {
        put_u64(w, (uint64_t)x);
        return;
    }
    int exponent = 0;
    uint64_t mantissa = (uint64_t)ldexp(frexp(x, &exponent), EXACT_BITS);
    for (exponent -= EXACT_BITS; mantissa % 2 == 0; exponent++) { mantissa /= 2; }
    put_u64(w, mantissa);
    char text[16];
    (void)snprintf(text, sizeof text, "p%d", exponent);
    put(w, text);
}

static bool is_plain(unsigned char c) {
    return c >= 0x20 && c != 0x7f && c != '"' && c != '\\';
}

static void put_quoted(ebb_file_writer *w, const char *text) {
    put(w, " \"");
    for (const char *c = text; *c != '\0';) {
        size_t n = 0;
        while (is_plain((unsigned char)c[n])) { n++; }
        (void)ebb__file_writer_write(w, c, n);
        c += n;
        if (*c == '"' || *c == '\\') {
            put(w, *c == '"' ? "\\\"" : "\\\\");
            c++;
        } else if (*c != '\0') {
            put(w, "\\x");
            put_hex(w, (unsigned char)*c++, 2);
        }
    }
    put(w, "\"");
}

static void put_tensor(ebb_file_writer *w, size_t idx, const ebb_tensor *tensor) {
    put(w, "tensor");
    put_u64(w, idx);
    put_quoted(w, tensor->name);
    put_u64(w, tensor->size_bytes);
    put(w, " ");
    put(w, ebb_role_name(tensor->role));
    if (tensor->persistent) { put(w, " persistent"); }
    if (tensor->kept) { put(w, " kept"); }
    if ((tensor->marks & EBB_MARK_CHECKPOINT) != 0) { put(w, " checkpoint"); }
    if ((tensor->marks & EBB_MARK_LONG_READ) != 0) { put(w, " long-read"); }
    if (tensor->released > 0) {
        put(w, " released");
        put_u64(w, tensor->released);
    }
    put(w, "\n");
}

static void put_step(ebb_file_writer *w, const ebb_program *program, size_t idx) {
    const ebb_step *step = &program->steps.data[idx];
    put(w, "step");
    put_u64(w, idx);
    put_quoted(w, step->name);
    put_quoted(w, step->kind);
    put(w, " ");
    put(w, phase_words[step->phase]);
    if (step->repeat != EBB_REPEAT_EXACT) {
        put(w, " ");
        put(w, repeat_words[step->repeat]);
    }
    uint32_t mode = 0;
    for (uint32_t i = 0; i < step->n_accesses; i++) {
        const ebb_access *access = &program->accesses.data[step->first_access + i];
        if (access->mode != mode) {
            put(w, " ");
            put(w, mode_words[access->mode]);
            mode = access->mode;
        }
        put_u64(w, access->tensor);
    }
    for (uint32_t i = 0; i < step->n_choices; i++) {
        const ebb_choice *choice = &program->choices.data[step->first_choice + i];
        put(w, " choice");
        put_quoted(w, choice->name);
        put_u64(w, choice->scratch_bytes);
        put(w, " ");
        put_hex(w, choice->key, 16);
        put_real(w, choice->flops);
        put_real(w, choice->traffic_bytes);
        if (choice->time_ns > 0) {
            put(w, " time");
            put_u64(w, choice->time_ns);
        }
        if (choice->copies_in) { put(w, " copies-in"); }
    }
    put(w, "\n");
}

ebb_status ebb_program_save(const ebb_program *program, const char *path) {
    EBB_NEED(program);
    EBB_NEED(path);
    ebb_file_writer *w = NULL;
    EBB_TRY(ebb__file_writer_open(program->mem, path, 0, &w));
    put(w, "ebb-program");
    put_u64(w, VERSION);
    put(w, "\nname");
    put_quoted(w, program->name);
    put(w, "\nalignment");
    put_u64(w, program->alignment_bytes);
    put(w, program->keeps_order ? "\nin-order\n" : "\n");
    for (size_t t = 0; t < program->tensors.n; t++) { put_tensor(w, t, &program->tensors.data[t]); }
    for (size_t s = 0; s < program->steps.n; s++) { put_step(w, program, s); }
    put(w, "end");
    put_u64(w, program->tensors.n);
    put_u64(w, program->steps.n);
    put(w, "\n");
    return ebb__file_writer_commit(w);
}

/* ---- reading: fields -------------------------------------------------------------------------- */

typedef struct reader {
    const ebb_mem *mem;
    const char *name;
    const char *at, *end;
    size_t line;
    EBB_VEC(char) texts; /* of the line at hand, each with its NUL */
    EBB_VEC(ebb_access) accesses;
    EBB_VEC(ebb_choice) choices;
    EBB_VEC(size_t) choice_names; /* offsets in texts, which may move */
} reader;

static ebb_status refuse(const reader *r, const char *what) {
    return ebb_fail(EBB_E_FORMAT, "%s:%zu: %s", r->name, r->line, what);
}

static bool is_blank(char c) {
    return c == ' ' || c == '\t' || c == '\r';
}

static void skip_blanks(reader *r) {
    while (r->at < r->end && is_blank(*r->at)) { r->at++; }
}

static bool is_line_done(reader *r) {
    skip_blanks(r);
    return r->at == r->end || *r->at == '\n';
}

/* Go to the first field of the next line that has one; false: none. */
static bool next_line(reader *r) {
    for (;;) {
        while (r->at < r->end && *r->at != '\n') { r->at++; }
        if (r->at == r->end) { return false; }
        r->at++;
        r->line++;
        if (!is_line_done(r) && *r->at != '#') { return true; }
    }
}

/* Take the field if it is this word. */
static bool take_word(reader *r, const char *word) {
    skip_blanks(r);
    const size_t n = strlen(word);
    if ((size_t)(r->end - r->at) < n || memcmp(r->at, word, n) != 0) { return false; }
    const char *behind = r->at + n;
    if (behind < r->end && !is_blank(*behind) && *behind != '\n') { return false; }
    r->at = behind;
    return true;
}

static bool take_digit(reader *r, unsigned base, unsigned *digit_out) {
    if (r->at == r->end) { return false; }
    const char c = *r->at;
    unsigned digit = c >= '0' && c <= '9' ? (unsigned)(c - '0') : c >= 'a' && c <= 'f' ? (unsigned)(c - 'a') + 10 : 99;
    if (digit >= base) { return false; }
    r->at++;
    *digit_out = digit;
    return true;
}

static ebb_status end_of_field(const reader *r) {
    return r->at == r->end || is_blank(*r->at) || *r->at == '\n' ? EBB_OK : refuse(r, "not a number");
}

static ebb_status read_digits(reader *r, uint64_t *x_out) {
    uint64_t x = 0;
    unsigned digit = 0;
    skip_blanks(r);
    if (!take_digit(r, 10, &digit)) { return refuse(r, "a number was expected"); }
    do {
        if (!ebb_mul_u64(x, 10, &x) || !ebb_add_u64(x, digit, &x)) { return refuse(r, "a number beyond 64 bits"); }
    } while (take_digit(r, 10, &digit));
    *x_out = x;
    return EBB_OK;
}

static ebb_status read_u64(reader *r, uint64_t *x_out) {
    uint64_t x = 0;
    EBB_TRY(read_digits(r, &x));
    EBB_TRY(end_of_field(r));
    *x_out = x;
    return EBB_OK;
}

static ebb_status read_key(reader *r, uint64_t *key_out) {
    uint64_t key = 0;
    unsigned digit = 0;
    skip_blanks(r);
    for (unsigned i = 0; i < 16; i++) {
        if (!take_digit(r, 16, &digit)) { return refuse(r, "a key of 16 hexadecimal digits was expected"); }
        key = key * 16 + digit;
    }
    EBB_TRY(end_of_field(r));
    *key_out = key;
    return EBB_OK;
}

static ebb_status read_real(reader *r, double *x_out) {
    uint64_t mantissa = 0, exponent = 0;
    EBB_TRY(read_digits(r, &mantissa));
    double x = (double)mantissa;
    if (r->at < r->end && *r->at == 'p') {
        r->at++;
        const bool negative = r->at < r->end && *r->at == '-';
        r->at += negative ? 1 : 0;
        if (r->at == r->end || is_blank(*r->at)) { return refuse(r, "an exponent was expected"); }
        EBB_TRY(read_digits(r, &exponent));
        const int e = (int)ebb_min_u64(exponent, 5000); /* beyond it is 0 or infinite anyway */
        x = ldexp(x, negative ? -e : e);
    }
    EBB_TRY(end_of_field(r));
    if (!isfinite(x)) { return refuse(r, "a number that is too large"); }
    *x_out = x;
    return EBB_OK;
}

/* One character of a text, after its backslash if it has one. */
static ebb_status read_escape(reader *r, char *c_out) {
    unsigned hi = 0, lo = 0;
    const char c = r->at < r->end ? *r->at++ : '\0';
    if (c == '"' || c == '\\') {
        *c_out = c;
        return EBB_OK;
    }
    if (c != 'x' || !take_digit(r, 16, &hi) || !take_digit(r, 16, &lo) || hi * 16 + lo == 0) {
        return refuse(r, "a backslash is followed by \", \\ or xHH");
    }
    *c_out = (char)(hi * 16 + lo);
    return EBB_OK;
}

/* A text in quotes, appended to r->texts; *offset_out is where. */
static ebb_status read_text(reader *r, size_t *offset_out) {
    const size_t offset = r->texts.n;
    skip_blanks(r);
    if (r->at == r->end || *r->at != '"') { return refuse(r, "a text in quotes was expected"); }
    for (r->at++;;) {
        const char *begin = r->at;
        while (r->at < r->end && is_plain((unsigned char)*r->at)) { r->at++; }
        const size_t n = (size_t)(r->at - begin);
        EBB_TRY(EBB_RESERVE(r->mem, &r->texts, n + 1));
        memcpy(r->texts.data + r->texts.n, begin, n);
        r->texts.n += n;
        if (r->at == r->end || (*r->at != '"' && *r->at != '\\')) { return refuse(r, "a text without its end"); }
        if (*r->at++ == '"') { break; }
        EBB_TRY(read_escape(r, &r->texts.data[r->texts.n++]));
    }
    r->texts.data[r->texts.n++] = '\0';
    *offset_out = offset;
    return end_of_field(r) == EBB_OK ? EBB_OK : refuse(r, "a space was expected after a text");
}

/* ---- reading: lines --------------------------------------------------------------------------- */

/* What the builder refuses is the line's fault, but for memory. */
static ebb_status adopt(const reader *r, ebb_status st) {
    return st == EBB_E_ARGUMENT || st == EBB_E_LIMIT ? refuse(r, ebb_last_error()) : st;
}

static ebb_status read_index(reader *r, size_t n_so_far) {
    uint64_t idx = 0;
    EBB_TRY(read_u64(r, &idx));
    if (idx == n_so_far) { return EBB_OK; }
    return ebb_fail(EBB_E_FORMAT, "%s:%zu: index %llu, but the next is %zu", r->name, r->line, (unsigned long long)idx,
                    n_so_far);
}

static ebb_status read_role(reader *r, ebb_role *role_out) {
    skip_blanks(r);
    const char *begin = r->at;
    while (r->at < r->end && !is_blank(*r->at) && *r->at != '\n') { r->at++; }
    if (!ebb__role_find(begin, (size_t)(r->at - begin), role_out)) { return refuse(r, "an unknown role"); }
    return EBB_OK;
}

static ebb_status read_tensor(reader *r, ebb_program *program) {
    ebb_tensor tensor = {0};
    size_t name = 0;
    uint32_t idx = 0;
    uint64_t released = 0;
    EBB_TRY(read_index(r, program->tensors.n));
    EBB_TRY(read_text(r, &name));
    EBB_TRY(read_u64(r, &tensor.size_bytes));
    EBB_TRY(read_role(r, &tensor.role));
    tensor.persistent = take_word(r, "persistent");
    tensor.kept = take_word(r, "kept");
    if (take_word(r, "checkpoint")) { tensor.marks |= EBB_MARK_CHECKPOINT; }
    if (take_word(r, "long-read")) { tensor.marks |= EBB_MARK_LONG_READ; }
    if (take_word(r, "released")) { EBB_TRY(read_u64(r, &released)); }
    if (released > UINT32_MAX) { return refuse(r, "it is released after more steps than a program has"); }
    tensor.released = (uint32_t)released;
    tensor.name = r->texts.data + name;
    if (tensor.size_bytes == 0) { return refuse(r, "it has no bytes"); }
    return adopt(r, ebb_program_add_tensor(program, &tensor, &idx));
}

static ebb_status read_accesses(reader *r) {
    uint32_t mode = 0;
    r->accesses.n = 0;
    for (;;) {
        for (uint32_t m = EBB_READ; m <= EBB_UPDATE; m++) { mode = take_word(r, mode_words[m]) ? m : mode; }
        skip_blanks(r);
        if (r->at == r->end || *r->at < '0' || *r->at > '9') { return EBB_OK; }
        uint64_t tensor = 0;
        EBB_TRY(read_u64(r, &tensor));
        if (mode == 0 || tensor >= UINT32_MAX) { return refuse(r, "not an access"); }
        const ebb_access access = {.tensor = (uint32_t)tensor, .mode = mode};
        EBB_TRY(EBB_PUSH(r->mem, &r->accesses, access));
    }
}

static ebb_status read_choices(reader *r) {
    r->choices.n = r->choice_names.n = 0;
    while (take_word(r, "choice")) {
        ebb_choice choice = {0};
        size_t name = 0;
        EBB_TRY(read_text(r, &name));
        EBB_TRY(read_u64(r, &choice.scratch_bytes));
        EBB_TRY(read_key(r, &choice.key));
        EBB_TRY(read_real(r, &choice.flops));
        EBB_TRY(read_real(r, &choice.traffic_bytes));
        if (take_word(r, "time")) { EBB_TRY(read_u64(r, &choice.time_ns)); }
        choice.copies_in = take_word(r, "copies-in");
        EBB_TRY(EBB_PUSH(r->mem, &r->choices, choice));
        EBB_TRY(EBB_PUSH(r->mem, &r->choice_names, name));
    }
    if (r->choices.n >= UINT32_MAX || r->accesses.n >= UINT32_MAX) { return refuse(r, "too many fields"); }
    for (size_t i = 0; i < r->choices.n; i++) { r->choices.data[i].name = r->texts.data + r->choice_names.data[i]; }
    return EBB_OK;
}

static ebb_status read_step(reader *r, ebb_program *program) {
    size_t name = 0, kind = 0;
    ebb_step step = {0};
    EBB_TRY(read_index(r, program->steps.n));
    EBB_TRY(read_text(r, &name));
    EBB_TRY(read_text(r, &kind));
    while (step.phase < EBB_N_PHASES && !take_word(r, phase_words[step.phase])) { step.phase++; }
    if (step.phase == EBB_N_PHASES) { return refuse(r, "an unknown phase"); }
    for (uint32_t i = 1; i < EBB_N_REPEATS; i++) { step.repeat = take_word(r, repeat_words[i]) ? i : step.repeat; }
    EBB_TRY(read_accesses(r));
    EBB_TRY(read_choices(r));
    step.name = r->texts.data + name;
    step.kind = r->texts.data + kind;
    step.n_accesses = (uint32_t)r->accesses.n;
    step.n_choices = (uint32_t)r->choices.n;
    return adopt(r, ebb_program_add_step(program, &step, r->accesses.data, r->choices.data));
}

static ebb_status read_end(reader *r, const ebb_program *program) {
    uint64_t n_tensors = 0, n_steps = 0;
    EBB_TRY(read_u64(r, &n_tensors));
    EBB_TRY(read_u64(r, &n_steps));
    if (n_tensors != program->tensors.n || n_steps != program->steps.n) {
        return refuse(r, "the end counts other tensors and steps than there were");
    }
    if (!is_line_done(r)) { return refuse(r, "a field too many"); }
    return next_line(r) ? refuse(r, "a line after the end") : EBB_OK;
}

static ebb_status read_header(reader *r, ebb_program **program_out) {
    uint64_t version = 0, alignment_bytes = 0;
    size_t name = 0;
    r->line = 1;
    if (!take_word(r, "ebb-program")) { return refuse(r, "not a program: it does not begin with 'ebb-program'"); }
    EBB_TRY(read_u64(r, &version));
    if (version != VERSION) { return refuse(r, "a version of the format that this ebb does not know"); }
    if (!is_line_done(r)) { return refuse(r, "a field too many"); }
    if (!next_line(r) || !take_word(r, "name")) { return refuse(r, "'name' was expected"); }
    EBB_TRY(read_text(r, &name));
    if (!is_line_done(r)) { return refuse(r, "a field too many"); }
    if (!next_line(r) || !take_word(r, "alignment")) { return refuse(r, "'alignment' was expected"); }
    EBB_TRY(read_u64(r, &alignment_bytes));
    if (!is_line_done(r)) { return refuse(r, "a field too many"); }
    return adopt(r, ebb_program_create(r->mem, r->texts.data + name, alignment_bytes, program_out));
}

static ebb_status read_lines(reader *r, ebb_program *program) {
    while (next_line(r)) {
        r->texts.n = 0;
        if (program->tensors.n + program->steps.n == 0 && !program->keeps_order && take_word(r, "in-order")) {
            EBB_TRY(ebb_program_keep_order(program));
        } else if (take_word(r, "tensor")) {
            EBB_TRY(read_tensor(r, program));
        } else if (take_word(r, "step")) {
            EBB_TRY(read_step(r, program));
        } else if (take_word(r, "end")) {
            return read_end(r, program);
        } else {
            return refuse(r, "'tensor', 'step' or 'end' was expected");
        }
        if (!is_line_done(r)) { return refuse(r, "a field that does not belong here"); }
    }
    return refuse(r, "the file is cut off: it has no end");
}

ebb_status ebb__program_parse(const ebb_mem *mem, const char *name, const char *text, size_t n_bytes,
                              ebb_program **program_out) {
    reader r = {.mem = ebb__mem_or_default(mem), .name = name, .at = text, .end = text + n_bytes};
    ebb_program *program = NULL;
    ebb_status st = read_header(&r, &program);
    if (st == EBB_OK) { st = read_lines(&r, program); }
    if (st == EBB_OK) {
        st = ebb_program_finish(program);
        if (st == EBB_E_FORMAT) { st = ebb_fail(st, "%s: %s", name, ebb_last_error()); }
    }
    if (st == EBB_OK) {
        *program_out = program;
        program = NULL; /* handed over */
    }
    ebb_program_destroy(program);
    EBB_VEC_FINI(r.mem, &r.texts);
    EBB_VEC_FINI(r.mem, &r.accesses);
    EBB_VEC_FINI(r.mem, &r.choices);
    EBB_VEC_FINI(r.mem, &r.choice_names);
    return st;
}

ebb_status ebb_program_load(const ebb_mem *mem, const char *path, ebb_program **program_out) {
    EBB_NEED(path);
    EBB_NEED(program_out);
    char *text = NULL;
    size_t n_bytes = 0;
    EBB_TRY(ebb__file_read_all(mem, path, MAX_FILE_BYTES, &text, &n_bytes));
    ebb_status st = ebb__program_parse(mem, path, text, n_bytes, program_out);
    ebb__free(mem, text);
    return st;
}
