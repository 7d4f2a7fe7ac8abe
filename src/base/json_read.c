/* SPDX-License-Identifier: Apache-2.0
 *
 * JSON through yajl, which calls back for each token it reads.
 *
 * Nothing in the file is trusted: values deeper than 512 levels, larger than 64 MiB, and texts that do not end are
 * refused. yajl cannot be told that there is no memory; where the hooks have none it gets malloc's, and the reading
 * ends with that failure.
 */
#include "base/json_read.h"

#include <stdarg.h>
#include <stdlib.h>

#include <yajl/yajl_parse.h>

#define CHUNK_BYTES ((size_t)64 * 1024)
#define MAX_DEPTH 512u
#define MAX_VALUE_BYTES ((size_t)64 << 20)
#define MAX_TOKENS ((size_t)8 << 20)

typedef struct ebb_json_reader {
    ebb_json_source *source;
    const ebb_json_handler *handler;
    yajl_handle yajl;
    yajl_alloc_funcs hooks;
    bool out_of_memory;
    ebb_status status; /* of what ended the reading */

    uint8_t *chunk;
    size_t chunk_bytes, n_chunk;
    uint64_t n_lines, n_bytes; /* before the chunk */
    size_t n_since_callback;   /* bytes */

    size_t depth;
    size_t element_depth; /* at which the wanted array's elements are; 0: not in it */
    bool is_list, any_value, seen_array, expects_array, is_collecting;
    bool is_member; /* what is collected is no element */
    EBB_VEC(char) key;
    EBB_VEC(ebb_json_token) tokens;
    EBB_VEC(char) texts;
    uint32_t open[MAX_DEPTH]; /* the containers around what is collected */
    size_t n_open;
} ebb_json_reader;

/* ---- failing ---------------------------------------------------------------------------------- */

static uint64_t line_of(const ebb_json_reader *r) {
    uint64_t line = r->n_lines + 1;
    const size_t n = ebb_min_u64(yajl_get_bytes_consumed(r->yajl), r->n_chunk);
    for (size_t i = 0; i < n; i++) { line += r->chunk[i] == '\n'; }
    return line;
}

static ebb_status refuse(ebb_json_reader *r, ebb_status status, const char *what) {
    if (r->source->part != NULL) {
        const uint64_t byte = r->source->first_byte + r->n_bytes + yajl_get_bytes_consumed(r->yajl);
        return ebb_fail(status, "%s: byte %llu: %s: %s", r->source->path, (unsigned long long)byte, r->source->part,
                        what);
    }
    return ebb_fail(status, "%s:%llu: %s", r->source->path, (unsigned long long)line_of(r), what);
}

ebb_status ebb__json_value_fail(const ebb_json_value *json, const char *fmt, ...) {
    char why[256];
    va_list args;
    va_start(args, fmt);
    (void)vsnprintf(why, sizeof why, fmt, args);
    va_end(args);
    return ebb_fail(EBB_E_FORMAT, "%s:%llu: %s", json->reader->source->path, (unsigned long long)line_of(json->reader),
                    why);
}

/* What a callback returns: 0 ends the reading. */
static int go_on(ebb_json_reader *r, ebb_status status) {
    if (status == EBB_OK && r->out_of_memory) {
        status = ebb_fail(EBB_E_NO_MEMORY, "out of host memory: reading %s", r->source->path);
    }
    r->status = status;
    r->n_since_callback = 0;
    return status == EBB_OK;
}

/* ---- memory for yajl -------------------------------------------------------------------------- */

/* Before each piece: its size, and whether it is malloc's. */
typedef union piece {
    struct {
        size_t n_bytes;
        bool is_malloced;
    } head;
    max_align_t align;
} piece;

static void *yajl_take(void *ctx, size_t n_bytes) {
    ebb_json_reader *r = ctx;
    piece *p = ebb__alloc(r->source->mem, n_bytes + sizeof *p, 1);
    const bool is_malloced = p == NULL;
    if (is_malloced) {
        r->out_of_memory = true;
        p = malloc(n_bytes + sizeof *p);
        if (p == NULL) { return NULL; }
    }
    p->head.n_bytes = n_bytes;
    p->head.is_malloced = is_malloced;
    return p + 1;
}

static void yajl_give(void *ctx, void *ptr) {
    const ebb_json_reader *r = ctx;
    if (ptr == NULL) { return; }
    piece *p = (piece *)ptr - 1;
    if (p->head.is_malloced) {
        free(p);
    } else {
        ebb__free(r->source->mem, p);
    }
}

static void *yajl_resize(void *ctx, void *ptr, size_t n_bytes) {
    void *grown = yajl_take(ctx, n_bytes);
    if (ptr == NULL || grown == NULL) { return grown; }
    memcpy(grown, ptr, (size_t)ebb_min_u64(((piece *)ptr - 1)->head.n_bytes, n_bytes));
    yajl_give(ctx, ptr);
    return grown;
}

/* ---- collecting ------------------------------------------------------------------------------- */

static ebb_status add_token(ebb_json_reader *r, ebb_json_kind kind, const void *text, size_t n) {
    if (r->tokens.n >= MAX_TOKENS || r->texts.n > MAX_VALUE_BYTES || n > MAX_VALUE_BYTES - r->texts.n) {
        return refuse(r, EBB_E_LIMIT, "a value of more than 64 MiB");
    }
    if (r->source->is_strict && n > 0 && memchr(text, '\0', n) != NULL) {
        return refuse(r, EBB_E_FORMAT, "a text with a NUL in it");
    }
    EBB_TRY(EBB_RESERVE(r->source->mem, &r->texts, n + 1));
    ebb_json_token token = {kind, (uint32_t)r->texts.n, (uint32_t)r->tokens.n + 1};
    EBB_TRY(EBB_PUSH(r->source->mem, &r->tokens, token));
    if (n > 0) { memcpy(r->texts.data + r->texts.n, text, n); }
    r->texts.n += n;
    r->texts.data[r->texts.n++] = '\0';
    return EBB_OK;
}

/* Hand over what was collected. */
static ebb_status give(ebb_json_reader *r) {
    const ebb_json_value json = {r->tokens.data, r->texts.data, r};
    const ebb_json_handler *h = r->handler;
    EBB_ASSERT(r->is_collecting && r->tokens.n > 0 && r->n_open == 0);
    const bool is_member = r->is_member;
    r->is_collecting = r->is_member = false;
    EBB_TRY(is_member ? h->member(h->ctx, r->key.data, &json) : h->element(h->ctx, &json));
    r->tokens.n = r->texts.n = 0;
    return EBB_OK;
}

/* Whether the value that begins here is to be collected. */
static ebb_status look_at_value(ebb_json_reader *r, ebb_json_kind kind) {
    const bool is_root = r->depth == 0;
    if (r->is_collecting) { return EBB_OK; }
    r->any_value = true;
    if (is_root && kind == EBB_JSON_ARRAY && r->handler->takes_list) {
        r->is_list = true;
    } else if (is_root && kind != EBB_JSON_OBJECT) {
        return refuse(r, EBB_E_FORMAT, r->handler->takes_list ? "neither an object nor an array" : "not an object");
    }
    if (r->expects_array && kind != EBB_JSON_ARRAY) { return refuse(r, EBB_E_FORMAT, "its list is no array"); }
    r->is_collecting = r->is_member || (r->element_depth > 0 && r->depth == r->element_depth);
    r->n_open = 0;
    return EBB_OK;
}

static int take_scalar(ebb_json_reader *r, ebb_json_kind kind, const void *text, size_t n) {
    ebb_status st = look_at_value(r, kind);
    if (st == EBB_OK && r->is_collecting) { st = add_token(r, kind, text, n); }
    if (st == EBB_OK && r->is_collecting && r->n_open == 0) { st = give(r); }
    return go_on(r, st);
}

static ebb_status begin_container(ebb_json_reader *r, ebb_json_kind kind) {
    EBB_TRY(look_at_value(r, kind));
    if (r->depth == MAX_DEPTH) { return refuse(r, EBB_E_FORMAT, "values within values, deeper than 512"); }
    r->depth++;
    if (r->is_collecting) {
        EBB_ASSERT(r->n_open < r->depth);
        r->open[r->n_open++] = (uint32_t)r->tokens.n;
        return add_token(r, kind, NULL, 0);
    }
    if (r->expects_array || (r->is_list && r->depth == 1)) { r->element_depth = r->depth; }
    r->expects_array = false;
    return EBB_OK;
}

static int end_container(ebb_json_reader *r) {
    ebb_status st = EBB_OK;
    if (r->depth == r->element_depth && !r->is_collecting) { r->element_depth = 0; }
    EBB_ASSERT(r->depth > 0 && (!r->is_collecting || r->n_open > 0));
    r->depth--;
    if (r->is_collecting) {
        r->tokens.data[r->open[--r->n_open]].next = (uint32_t)r->tokens.n;
        if (r->n_open == 0) { st = give(r); }
    }
    return go_on(r, st);
}

/* A key of the outermost object: is its value the array, or wanted? */
static ebb_status look_at_key(ebb_json_reader *r, const void *text, size_t n) {
    r->key.n = 0;
    EBB_TRY(EBB_RESERVE(r->source->mem, &r->key, n + 1));
    if (n > 0) { memcpy(r->key.data, text, n); }
    r->key.data[n] = '\0';
    if (r->source->is_strict && memchr(r->key.data, '\0', n) != NULL) {
        return refuse(r, EBB_E_FORMAT, "a key with a NUL in it");
    }
    r->expects_array = r->handler->array != NULL && strcmp(r->key.data, r->handler->array) == 0;
    r->is_member = !r->expects_array && r->handler->wants(r->handler->ctx, r->key.data);
    if (r->expects_array && r->seen_array) { return refuse(r, EBB_E_FORMAT, "its list is there twice"); }
    r->seen_array = r->seen_array || r->expects_array;
    return EBB_OK;
}

/* ---- what yajl calls -------------------------------------------------------------------------- */

static int on_null(void *ctx) {
    return take_scalar(ctx, EBB_JSON_NULL, NULL, 0);
}

static int on_boolean(void *ctx, int is_true) {
    return take_scalar(ctx, EBB_JSON_BOOL, is_true ? "true" : "false", is_true ? 4 : 5);
}

static int on_number(void *ctx, const char *text, size_t n) {
    return take_scalar(ctx, EBB_JSON_NUMBER, text, n);
}

static int on_string(void *ctx, const unsigned char *text, size_t n) {
    return take_scalar(ctx, EBB_JSON_STRING, text, n);
}

static int on_map(void *ctx) {
    return go_on(ctx, begin_container(ctx, EBB_JSON_OBJECT));
}

static int on_key(void *ctx, const unsigned char *text, size_t n) {
    ebb_json_reader *r = ctx;
    ebb_status st = EBB_OK;
    if (r->is_collecting) {
        st = add_token(r, EBB_JSON_KEY, text, n);
    } else if (r->depth == 1 && !r->is_list) {
        st = look_at_key(r, text, n);
    }
    return go_on(r, st);
}

static int on_array(void *ctx) {
    return go_on(ctx, begin_container(ctx, EBB_JSON_ARRAY));
}

static int on_end(void *ctx) {
    return end_container(ctx);
}

static const yajl_callbacks callbacks = {.yajl_null = on_null,
                                         .yajl_boolean = on_boolean,
                                         .yajl_number = on_number,
                                         .yajl_string = on_string,
                                         .yajl_start_map = on_map,
                                         .yajl_map_key = on_key,
                                         .yajl_end_map = on_end,
                                         .yajl_start_array = on_array,
                                         .yajl_end_array = on_end};

/* ---- the file --------------------------------------------------------------------------------- */

/* yajl's words for what is wrong with the chunk, on one line. */
static ebb_status refuse_text(ebb_json_reader *r) {
    char why[128];
    unsigned char *words = yajl_get_error(r->yajl, 0, r->chunk, r->n_chunk);
    (void)snprintf(why, sizeof why, "%s%s", r->source->part != NULL ? "not JSON: " : "",
                   words != NULL ? (const char *)words : "no JSON");
    if (words != NULL) { yajl_free_error(r->yajl, words); }
    why[strcspn(why, "\n")] = '\0';
    return refuse(r, EBB_E_FORMAT, why);
}

/* yajl reads a text that does not end again from its beginning with each chunk, so chunks grow with it. */
static ebb_status make_chunk(ebb_json_reader *r) {
    size_t n_bytes = ebb_min_u64(r->n_since_callback, MAX_VALUE_BYTES - r->n_since_callback + CHUNK_BYTES);
    if (n_bytes < CHUNK_BYTES) { n_bytes = CHUNK_BYTES; }
    if (n_bytes <= r->chunk_bytes) { return EBB_OK; }
    uint8_t *chunk = ebb__alloc(r->source->mem, n_bytes, 1);
    if (chunk == NULL) { return EBB_E_NO_MEMORY; }
    ebb__free(r->source->mem, r->chunk);
    r->chunk = chunk;
    r->chunk_bytes = n_bytes;
    return EBB_OK;
}

static ebb_status read_chunk(ebb_json_reader *r) {
    EBB_TRY(make_chunk(r));
    EBB_TRY(r->source->read(r->source->ctx, r->chunk, r->chunk_bytes, &r->n_chunk));
    r->n_since_callback += r->n_chunk;
    const yajl_status status = yajl_parse(r->yajl, r->chunk, r->n_chunk);
    if (status == yajl_status_client_canceled) { return r->status; }
    if (status != yajl_status_ok) { return refuse_text(r); }
    if (r->out_of_memory) { return refuse(r, EBB_E_NO_MEMORY, "out of host memory"); }
    if (r->n_since_callback > MAX_VALUE_BYTES) { return refuse(r, EBB_E_LIMIT, "a value of more than 64 MiB"); }
    const uint8_t *at = r->chunk, *end = r->chunk + r->n_chunk;
    while (at < end && (at = memchr(at, '\n', (size_t)(end - at))) != NULL) {
        r->n_lines++;
        at++;
    }
    r->n_bytes += r->n_chunk;
    return EBB_OK;
}

static ebb_status read_all(ebb_json_reader *r) {
    do { EBB_TRY(read_chunk(r)); } while (r->n_chunk > 0);
    if (!r->any_value) {
        return refuse(r, EBB_E_FORMAT, r->source->part != NULL ? "not JSON: it is empty" : "no JSON");
    }
    r->source->is_cut = r->depth > 0;
    if (r->source->is_strict && r->depth > 0) { return refuse(r, EBB_E_FORMAT, "not JSON: it is cut off"); }
    if (!r->is_list && !r->seen_array && r->depth == 0 && r->handler->array != NULL) {
        return ebb_fail(EBB_E_FORMAT, "%s: there is no member %s", r->source->path, r->handler->array);
    }
    return EBB_OK;
}

ebb_status ebb__json_read(ebb_json_source *source, const ebb_json_handler *handler) {
    ebb_json_reader *r = ebb__calloc(source->mem, 1, sizeof *r);
    if (r == NULL) { return EBB_E_NO_MEMORY; }
    r->source = source;
    r->handler = handler;
    r->hooks = (yajl_alloc_funcs){yajl_take, yajl_resize, yajl_give, r};
    r->yajl = yajl_alloc(&callbacks, &r->hooks, r);
    ebb_status st = EBB_E_NO_MEMORY;
    if (r->yajl == NULL || r->out_of_memory) { goto out; }
    (void)yajl_config(r->yajl, yajl_dont_validate_strings, !source->is_strict);
    st = read_all(r);
out:
    if (r->yajl != NULL) { yajl_free(r->yajl); }
    EBB_VEC_FINI(source->mem, &r->key);
    EBB_VEC_FINI(source->mem, &r->tokens);
    EBB_VEC_FINI(source->mem, &r->texts);
    ebb__free(source->mem, r->chunk);
    ebb__free(source->mem, r);
    return st;
}

/* ---- looking into a value --------------------------------------------------------------------- */

uint32_t ebb__json_value_member(const ebb_json_value *json, uint32_t token, const char *key) {
    uint32_t found = EBB_JSON_NONE;
    if (!ebb__json_value_is(json, token, EBB_JSON_OBJECT)) { return found; }
    for (uint32_t at = token + 1; at < json->tokens[token].next; at = json->tokens[at + 1].next) {
        if (strcmp(ebb__json_value_text(json, at), key) == 0) { found = at + 1; }
    }
    return found;
}

const char *ebb__json_value_string(const ebb_json_value *json, uint32_t token, const char *key) {
    const uint32_t member = ebb__json_value_member(json, token, key);
    return ebb__json_value_is(json, member, EBB_JSON_STRING) ? ebb__json_value_text(json, member) : NULL;
}

bool ebb__json_value_u64(const ebb_json_value *json, uint32_t token, uint64_t *number_out) {
    return ebb__json_value_is(json, token, EBB_JSON_NUMBER) &&
           ebb__parse_u64(ebb__json_value_text(json, token), number_out);
}

bool ebb__json_value_i64(const ebb_json_value *json, uint32_t token, int64_t *number_out) {
    uint64_t number = 0;
    if (!ebb__json_value_is(json, token, EBB_JSON_NUMBER)) { return false; }
    const char *text = ebb__json_value_text(json, token);
    const bool is_negative = *text == '-';
    if (!ebb__parse_u64(text + is_negative, &number) || number > INT64_MAX) { return false; }
    *number_out = is_negative ? -(int64_t)number : (int64_t)number;
    return true;
}

bool ebb__json_value_f64(const ebb_json_value *json, uint32_t token, double *number_out) {
    const char *end = NULL;
    if (!ebb__json_value_is(json, token, EBB_JSON_NUMBER)) { return false; }
    const double number = ebb__parse_f64(ebb__json_value_text(json, token), &end);
    if (*end != '\0') { return false; }
    *number_out = number;
    return true;
}

/* A number with an exponent, for which a double will do. */
static bool read_scientific(const ebb_json_value *json, uint32_t token, uint64_t *number_out) {
    double number = 0;
    if (!ebb__json_value_f64(json, token, &number) || !(number >= 0.0 && number * 1000.0 < 9e18)) { return false; }
    *number_out = (uint64_t)(number * 1000.0);
    return true;
}

bool ebb__json_value_thousandths(const ebb_json_value *json, uint32_t token, uint64_t *number_out) {
    uint64_t number = 0;
    if (!ebb__json_value_is(json, token, EBB_JSON_NUMBER)) { return false; }
    const char *text = ebb__json_value_text(json, token), *c = text;
    if (strpbrk(text, "eE") != NULL) { return read_scientific(json, token, number_out); }
    unsigned n_decimals = 0;
    for (bool is_behind = false; *c != '\0' && n_decimals < 3; c++) {
        if (*c == '.') {
            is_behind = true;
            continue;
        }
        if (*c < '0' || *c > '9') { return false; }
        n_decimals += is_behind;
        if (!ebb_mul_u64(number, 10, &number) || !ebb_add_u64(number, (uint64_t)(*c - '0'), &number)) { return false; }
    }
    for (; n_decimals < 3; n_decimals++) {
        if (!ebb_mul_u64(number, 10, &number)) { return false; }
    }
    *number_out = number;
    return true;
}
