/* SPDX-License-Identifier: Apache-2.0
 *
 * Equal layers as one row: holders whose labels differ only in numbers between dots.
 *
 *      h.0.attn (Attention)   10 MiB
 *      h.1.attn (Attention)   10 MiB        h.*.attn (Attention) x2    20 MiB
 *      h.0.mlp (MLP)           9 MiB        h.0.mlp (MLP)               9 MiB
 *
 * Modules of which only a number is left, as the children of a network that is a Sequential, are listed: 0, 2, 4
 * (Linear). A number that all members of a row share is kept. Members keep the order of the holders, the greatest
 * first; rows are sorted by the sum of their members.
 */
#include "report/report_priv.h"
#include "trace/trace.h"

#define MAX_LISTED 8u   /* children of the network in one label */
#define MAX_NUMBERS 64u /* of a label; later ones are part of its pattern */

/* How many digits from `at` on fill a part between dots; 0: it is not a number. */
static size_t number_bytes(const char *label, size_t at) {
    if (at > 0 && label[at - 1] != '.') { return 0; }
    const size_t n = strspn(label + at, "0123456789");
    return strchr(". ", label[at + n]) != NULL ? n : 0;
}

/* The label with a star for each number whose bit is set. NULL: no memory. */
static char *star(const char *label, uint64_t stars, ebb_bump *bump) {
    char *text = ebb__bump_strdup(bump, label);
    if (text == NULL) { return NULL; }
    size_t n = 0;
    unsigned number = 0;
    for (size_t at = 0; label[at] != '\0';) {
        const size_t n_digits = number < MAX_NUMBERS ? number_bytes(label, at) : 0;
        const bool is_star = n_digits > 0 && (stars >> number & 1u) != 0;
        number += n_digits > 0;
        const size_t n_taken = n_digits > 0 ? n_digits : 1;
        if (is_star) {
            text[n++] = '*';
        } else {
            memmove(text + n, label + at, n_taken);
            n += n_taken;
        }
        at += n_taken;
    }
    text[n] = '\0';
    return text;
}

/* The numbers in which two labels of one pattern differ. */
static uint64_t compare(const char *a, const char *b) {
    uint64_t differ = 0;
    unsigned number = 0;
    for (size_t i = 0, k = 0; a[i] != '\0' && b[k] != '\0';) {
        const size_t n_a = number < MAX_NUMBERS ? number_bytes(a, i) : 0;
        const size_t n_b = number < MAX_NUMBERS ? number_bytes(b, k) : 0;
        if (n_a > 0 && (n_a != n_b || memcmp(a + i, b + k, n_a) != 0)) { differ |= (uint64_t)1 << number; }
        number += n_a > 0;
        i += n_a > 0 ? n_a : 1;
        k += n_b > 0 ? n_b : 1;
    }
    return differ;
}

static void add_member(ebb_report_fold *fold, const ebb_study_holder *h) {
    fold->n_members++;
    fold->bytes += h->bytes;
    fold->n_blocks += h->n_blocks;
    for (size_t role = 0; role < EBB_N_ROLES; role++) { fold->role_bytes[role] += h->role_bytes[role]; }
}

static uint64_t falling_bytes(const void *item) {
    return ~((const ebb_report_fold *)item)->bytes;
}

/* row_of[i]: the row of holder i. */
static ebb_status list_members(const ebb_study_holder *holders, size_t n, const uint32_t *row_of, ebb_report_fold *rows,
                               size_t n_rows, ebb_bump *bump) {
    const ebb_study_holder **members = ebb__bump_alloc(bump, n, sizeof *members);
    size_t *next = ebb__bump_alloc(bump, n_rows, sizeof *next);
    if (members == NULL || next == NULL) { return EBB_E_NO_MEMORY; }
    for (size_t r = 0, first = 0; r < n_rows; first += rows[r++].n_members) {
        rows[r].members = members + first;
        next[r] = first;
    }
    for (size_t i = 0; i < n; i++) { members[next[row_of[i]]++] = &holders[i]; }
    return EBB_OK;
}

/* Whether a starred label is "*", or that and a class. */
static bool is_bare(const char *starred) {
    return starred[0] == '*' && (starred[1] == '\0' || starred[1] == ' ');
}

static bool is_less(const char *a, const char *b) {
    const size_t n_a = number_bytes(a, 0), n_b = number_bytes(b, 0);
    return n_a != n_b ? n_a < n_b : memcmp(a, b, n_a) < 0;
}

/* "0, 2, 4 (Linear)": the greatest by bytes, in order of their numbers. */
static const char *list_numbers(const ebb_report_fold *row, const char *starred, ebb_bump *bump) {
    const char *listed[MAX_LISTED], *text = "";
    size_t n = 0;
    for (; n < row->n_members && n < MAX_LISTED; n++) {
        size_t at = n;
        for (; at > 0 && is_less(row->members[n]->label, listed[at - 1]); at--) { listed[at] = listed[at - 1]; }
        listed[at] = row->members[n]->label;
    }
    for (size_t i = 0; i < n && text != NULL; i++) {
        text = ebb__bump_printf(bump, "%s%s%.*s", text, i > 0 ? ", " : "", (int)number_bytes(listed[i], 0), listed[i]);
    }
    if (text != NULL && row->n_members > n) {
        text = ebb__bump_printf(bump, "%s and %zu more", text, row->n_members - n);
    }
    return text != NULL ? ebb__bump_printf(bump, "%s%s", text, starred + 1) : NULL;
}

static ebb_status name_rows(ebb_report_fold *rows, size_t n_rows, ebb_bump *bump) {
    for (size_t r = 0; r < n_rows; r++) {
        uint64_t stars = 0;
        const char *first = rows[r].members[0]->label;
        for (size_t i = 1; i < rows[r].n_members; i++) { stars |= compare(first, rows[r].members[i]->label); }
        const char *starred = star(first, stars, bump);
        if (starred == NULL) { return EBB_E_NO_MEMORY; }
        rows[r].label = rows[r].n_members == 1 ? first
                        : is_bare(starred)     ? list_numbers(&rows[r], starred, bump)
                                               : ebb__bump_printf(bump, "%s \xc3\x97%zu", starred, rows[r].n_members);
        if (rows[r].label == NULL) { return EBB_E_NO_MEMORY; }
    }
    return EBB_OK;
}

static ebb_status gather(const ebb_study_holder *holders, size_t n, bool folds, uint32_t *row_of,
                         ebb_trace_keys *patterns, ebb_report_fold *rows, size_t *n_rows, ebb_bump *bump) {
    for (size_t i = 0; i < n; i++) {
        const char *pattern = star(holders[i].label, UINT64_MAX, bump);
        uint32_t number = (uint32_t)i + 1;
        bool is_new = true;
        if (pattern == NULL) { return EBB_E_NO_MEMORY; }
        if (folds) { EBB_TRY(ebb__trace_keys_add(patterns, pattern, strlen(pattern), &number, &is_new)); }
        EBB_ASSERT(number >= 1 && number <= *n_rows + 1);
        *n_rows += is_new;
        row_of[i] = number - 1;
        add_member(&rows[number - 1], &holders[i]);
    }
    return EBB_OK;
}

ebb_status ebb__report_fold(const ebb_report *report, ebb_study_group group, ebb_bump *bump,
                            const ebb_report_fold **rows_out, size_t *n_out) {
    size_t n = 0, n_rows = 0;
    const ebb_study_holder *holders = ebb_study_holders(report->study, group, &n);
    ebb_report_fold *rows = ebb__bump_alloc(bump, n, sizeof *rows);
    uint32_t *row_of = ebb__bump_alloc(bump, n, sizeof *row_of);
    if (rows == NULL || row_of == NULL) { return EBB_E_NO_MEMORY; }
    memset(rows, 0, n * sizeof *rows);
    ebb_trace_keys patterns;
    ebb__trace_keys_init(&patterns, report->mem);
    const bool folds = group == EBB_STUDY_BY_MODULE || group == EBB_STUDY_BY_NAME;
    ebb_status status = gather(holders, n, folds, row_of, &patterns, rows, &n_rows, bump);
    ebb__trace_keys_fini(&patterns);
    if (status == EBB_OK) { status = list_members(holders, n, row_of, rows, n_rows, bump); }
    if (status == EBB_OK) { status = name_rows(rows, n_rows, bump); }
    if (status == EBB_OK) { status = ebb__sort_items(report->mem, rows, n_rows, sizeof *rows, falling_bytes); }
    if (status != EBB_OK) { return status; }
    *rows_out = rows;
    *n_out = n_rows;
    return EBB_OK;
}
