/* SPDX-License-Identifier: Apache-2.0
 *
 * What an operator's schema says of its arguments: `Tensor(a)` may be what is returned, `Tensor(a!)` is written.
 * Written arguments after the `*` are results that the caller gives room for (`out`), and so are not read.
 */
#include "trace/execution.h"

/* Operators that write their first argument without reading it. */
static const char *const overwriting[] = {"copy_",    "zero_",      "fill_",      "normal_",
                                          "uniform_", "random_",    "bernoulli_", "exponential_",
                                          "cauchy_",  "geometric_", "log_normal_"};
/* Operators that give a tensor another size, shape or storage, and touch no content. */
static const char *const reshaping[] = {"resize_", "resize_as_",  "set_",      "record_stream", "requires_grad_",
                                        "detach_", "as_strided_", "squeeze_",  "unsqueeze_",    "transpose_",
                                        "t_",      "swapaxes_",   "swapdims_", "rename_"};

static bool is_any(const char *name, size_t n, const char *const *names, size_t n_names) {
    for (size_t i = 0; i < n_names; i++) {
        if (strlen(names[i]) == n && memcmp(names[i], name, n) == 0) { return true; }
    }
    return false;
}
#define IS_ANY(name, n, names) is_any((name), (n), (names), sizeof(names) / sizeof *(names))

/* The end of the argument that begins at text: a comma or parenthesis that is not within brackets or quotes. */
static const char *end_of_argument(const char *text) {
    unsigned depth = 0;
    char quote = '\0';
    for (; *text != '\0'; text++) {
        if (quote != '\0') {
            quote = *text == quote ? '\0' : quote;
        } else if (*text == '"' || *text == '\'') {
            quote = *text;
        } else if (*text == '(' || *text == '[') {
            depth++;
        } else if (depth > 0 && (*text == ')' || *text == ']')) {
            depth--;
        } else if (depth == 0 && (*text == ',' || *text == ')')) {
            break;
        }
    }
    return text;
}

execution_schema ebb__execution_schema(const char *text) {
    execution_schema s = {.is_there = false};
    const char *open = strchr(text, '('), *name = strstr(text, "::");
    if (open == NULL) { return s; }
    name = name != NULL && name < open ? name + 2 : text;
    const size_t n_name = strcspn(name, ".(");
    bool is_out = false;
    s.is_there = true;
    s.only_allocates = ebb__import_begins_with(name, "empty") || ebb__import_begins_with(name, "new_empty");
    const char *at = open + 1;
    for (unsigned i = 0; i < EXECUTION_MAX_ARGS && *at != '\0' && *at != ')';) {
        at += strspn(at, " ");
        const char *end = end_of_argument(at);
        if (*at == '*') {
            is_out = true;
        } else {
            const uint64_t bit = (uint64_t)1 << i++;
            const size_t n_type = ebb__import_begins_with(at, "Tensor(") ? strcspn(at, ")") : 0;
            const bool is_written = n_type > 0 && memchr(at, '!', n_type) != NULL;
            s.aliased |= n_type > 0 && !is_written ? bit : 0;
            s.written |= is_written ? bit : 0;
            s.overwritten |= is_written && is_out ? bit : 0;
        }
        at = *end == ',' ? end + 1 : end;
    }
    if (IS_ANY(name, n_name, overwriting)) { s.overwritten |= s.written & 1; }
    if (s.only_allocates || IS_ANY(name, n_name, reshaping)) {
        s.ignored = UINT64_MAX;
        s.written = s.overwritten = 0;
    }
    return s;
}
