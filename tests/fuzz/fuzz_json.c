/* SPDX-License-Identifier: Apache-2.0
 *
 * Fuzz target: the JSON reader. The first byte says how: strict or not, a list of elements or members, and how many
 * bytes a piece of the text has. Whatever is handed over must be sound: each value's end lies within the one around it.
 */
#include "base/json_read.h"

#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

typedef struct input {
    const uint8_t *data;
    size_t n_left, piece_bytes;
} input;

static ebb_status read_piece(void *ctx, void *buf, size_t n, size_t *n_out) {
    input *in = ctx;
    *n_out = ebb_min_u64(ebb_min_u64(n, in->piece_bytes), in->n_left);
    if (*n_out > 0) { memcpy(buf, in->data, *n_out); }
    in->data += *n_out;
    in->n_left -= *n_out;
    return EBB_OK;
}

/* Whatever a value is asked for, it has an answer. */
static void ask(const ebb_json_value *json, uint32_t token) {
    uint64_t number = 0, thousandths = 0;
    int64_t whole = 0;
    double rate = 0;
    const bool is_u64 = ebb__json_value_u64(json, token, &number), is_i64 = ebb__json_value_i64(json, token, &whole);
    if (is_u64 && is_i64 && number != (uint64_t)whole) { abort(); }
    (void)ebb__json_value_thousandths(json, token, &thousandths);
    if (ebb__json_value_f64(json, token, &rate) && rate != rate) { abort(); }
    const uint32_t member = ebb__json_value_member(json, token, "a");
    if (member != EBB_JSON_NONE && (member <= token || member >= json->tokens[token].next)) { abort(); }
    (void)ebb__json_value_string(json, token, "a");
}

static void walk(const ebb_json_value *json) {
    const uint32_t n = json->tokens[0].next;
    for (uint32_t at = 0; at < n; at++) {
        const ebb_json_token *token = &json->tokens[at];
        const bool has_more = token->kind == EBB_JSON_ARRAY || token->kind == EBB_JSON_OBJECT;
        if (token->next <= at || token->next > n || (!has_more && token->next != at + 1)) { abort(); }
        uint32_t child = at + 1;
        while (has_more && child < token->next) { child = json->tokens[child].next; }
        if (has_more && child != token->next) { abort(); }
        ask(json, at);
    }
}

static ebb_status take_element(void *ctx, const ebb_json_value *json) {
    (void)ctx;
    walk(json);
    return EBB_OK;
}

static bool wants_some(void *ctx, const char *key) {
    (void)ctx;
    return key[0] != 'x';
}

static ebb_status take_member(void *ctx, const char *key, const ebb_json_value *json) {
    (void)ctx;
    if (key[0] == '!') { return ebb__json_value_fail(json, "%s", key); }
    walk(json);
    return EBB_OK;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    if (size == 0) { return 0; }
    const uint8_t how = data[0];
    input in = {.data = data + 1, .n_left = size - 1, .piece_bytes = (how & 8) != 0 ? SIZE_MAX : (how >> 4) + 1u};
    ebb_json_source source = {.path = "fuzz", .read = read_piece, .ctx = &in, .is_strict = (how & 1) != 0};
    const ebb_json_handler handler = {.array = (how & 2) != 0 ? "a" : NULL,
                                      .takes_list = (how & 4) != 0,
                                      .element = take_element,
                                      .wants = wants_some,
                                      .member = take_member};
    (void)ebb__json_read(&source, &handler);
    return 0;
}
