/* SPDX-License-Identifier: Apache-2.0
 *
 * How far a mistyped word is from the names that are known, and which of them it may mean.
 */
#include "base/base.h"

#define MAX_WORD 48
#define FAR 3u      /* letters: a name as far from a word as this is another word */
#define MIN_STEM 4u /* letters that a word has in common with a name: only its last one differs, as in --policy */

size_t ebb__edit_distance(const char *a, size_t n_a, const char *b, size_t n_b) {
    size_t row[MAX_WORD + 1];
    if (n_a > MAX_WORD || n_b > MAX_WORD) { return SIZE_MAX; }
    for (size_t j = 0; j <= n_b; j++) { row[j] = j; }
    for (size_t i = 1; i <= n_a; i++) {
        size_t diagonal = row[0];
        row[0] = i;
        for (size_t j = 1; j <= n_b; j++) {
            size_t above = row[j];
            size_t change = diagonal + (a[i - 1] != b[j - 1] ? 1 : 0);
            size_t shift = (above < row[j - 1] ? above : row[j - 1]) + 1;
            row[j] = change < shift ? change : shift;
            diagonal = above;
        }
    }
    return row[n_b];
}

/* How many letters a word of n bytes is from a name; 0 for the name's beginning too, FAR for another word. What follows
 * a ':' is an argument. */
static size_t distance_to(const char *word, size_t n, const char *name) {
    const size_t n_dashes = strspn(name, "-"), n_name = strcspn(name, ":");
    const char *colon = memchr(word, ':', n);
    n = colon != NULL ? (size_t)(colon - word) : n;
    if (n > n_dashes + 1 && strncmp(word, name, n) == 0) { return 0; }
    if (n > n_dashes + MIN_STEM && strncmp(word, name, n - 1) == 0) { return 1; }
    const size_t d = ebb__edit_distance(word, n, name, n_name);
    return d < FAR && d + n_dashes < n ? d : FAR;
}

static size_t append(char *buf, size_t buf_bytes, size_t at, const char *before, const char *name) {
    if (at + strlen(before) + strlen(name) >= buf_bytes) { return at; }
    return at + (size_t)snprintf(buf + at, buf_bytes - at, "%s%s", before, name);
}

char *ebb_suggest(const char *word, size_t n, ebb_name_at *name_at, const void *ctx, char *buf, size_t buf_bytes) {
    size_t best = FAR, at = 0;
    const char *name = NULL;
    EBB_ASSERT(buf_bytes > 0);
    for (size_t i = 0; (name = name_at(ctx, i)) != NULL; i++) {
        best = (size_t)ebb_min_u64(best, distance_to(word, n, name));
    }
    buf[0] = '\0';
    for (size_t i = 0; best < FAR && (name = name_at(ctx, i)) != NULL; i++) {
        if (distance_to(word, n, name) > best) { continue; }
        at = append(buf, buf_bytes, at, at == 0 ? "; near it: " : ", ", name);
    }
    return buf;
}

char *ebb__suggest_or_list(const char *word, ebb_name_at *name_at, const void *ctx, char buf[EBB_SUGGESTION_BYTES]) {
    const char *name = NULL;
    ebb_suggest(word, strlen(word), name_at, ctx, buf, EBB_SUGGESTION_BYTES);
    if (buf[0] != '\0') { return buf; }
    for (size_t i = 0, at = 0; (name = name_at(ctx, i)) != NULL; i++) {
        at = append(buf, EBB_SUGGESTION_BYTES, at, at == 0 ? "; there are: " : ", ", name);
    }
    return buf;
}

const char *ebb__name_in_list(const void *names, size_t i) {
    return ((const char *const *)names)[i];
}
