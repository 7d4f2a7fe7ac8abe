/* SPDX-License-Identifier: Apache-2.0
 *
 * The placement file as an object: what is kept of a file, or of a problem that comes from elsewhere, and which id is
 * there twice.
 */
#include "place/place_csv.h"

#include "place/item_name.h"
#include "place/place_priv.h"

#include <stdlib.h>

#define TOO_LARGE ((uint64_t)1 << 63)

/* ---- the object ------------------------------------------------------------------------------- */

ebb_status ebb__place_file_new(const ebb_mem *mem, ebb_place_file **file_out) {
    mem = ebb__mem_or_default(mem);
    ebb_place_file *file = ebb__calloc(mem, 1, sizeof *file);
    if (file == NULL) { return EBB_E_NO_MEMORY; }
    file->mem = mem;
    file->alignment_bytes = 1;
    *file_out = file;
    return EBB_OK;
}

void ebb_place_file_destroy(ebb_place_file *file) {
    if (file == NULL) { return; }
    const ebb_mem *mem = file->mem;
    EBB_VEC_FINI(mem, &file->columns);
    EBB_VEC_FINI(mem, &file->names);
    EBB_VEC_FINI(mem, &file->items);
    EBB_VEC_FINI(mem, &file->alignments);
    EBB_VEC_FINI(mem, &file->hints);
    EBB_VEC_FINI(mem, &file->fixed);
    EBB_VEC_FINI(mem, &file->gaps);
    EBB_VEC_FINI(mem, &file->texts);
    EBB_VEC_FINI(mem, &file->row_text);
    EBB_VEC_FINI(mem, &file->line);
    ebb__free(mem, file);
}

ebb_status ebb__place_file_add_column(ebb_place_file *file, ebb_csv_kind kind, const char *name) {
    const ebb_csv_column column = {.kind = kind, .name = file->names.n};
    const size_t n = strlen(name) + 1;
    EBB_ASSERT(n > 1 && kind <= EBB_CSV_OTHER);
    EBB_TRY(EBB_RESERVE(file->mem, &file->names, n));
    memcpy(file->names.data + file->names.n, name, n);
    file->names.n += n;
    return EBB_PUSH(file->mem, &file->columns, column);
}

ebb_status ebb__place_file_add_text(ebb_place_file *file, const char *text) {
    const size_t n = strlen(text) + 1;
    EBB_TRY(EBB_RESERVE(file->mem, &file->texts, n));
    memcpy(file->texts.data + file->texts.n, text, n);
    file->texts.n += n;
    return EBB_OK;
}

const char *ebb__place_file_show(const char *text, char buf[EBB_CSV_SHOWN_BYTES]) {
    size_t n = 0;
    for (; text[n] != '\0' && n < EBB_CSV_SHOWN_BYTES - 4; n++) {
        const unsigned char c = (unsigned char)text[n];
        buf[n] = (char)(c < 0x20 || c == 0x7f ? '?' : c);
    }
    EBB_ASSERT(n + 4 <= EBB_CSV_SHOWN_BYTES);
    (void)snprintf(buf + n, 4, "%s", text[n] != '\0' ? "..." : "");
    return buf;
}

/* Its id, and its line where that is known. */
static void name_item(const void *ctx, size_t item, char *buf, size_t n_bytes) {
    const ebb_place_file *file = ctx;
    char shown[EBB_CSV_SHOWN_BYTES], line[32] = "";
    EBB_ASSERT(file->line.n == 0 || item < file->line.n);
    if (file->line.n > 0) { (void)snprintf(line, sizeof line, " (line %zu)", file->line.data[item]); }
    (void)snprintf(buf, n_bytes, "'%s'%s", ebb__place_file_show(ebb_place_file_id(file, item), shown), line);
}

ebb_place_problem ebb_place_file_problem(const ebb_place_file *file) {
    ebb_place_problem problem = EBB_PLACE_PROBLEM_INIT;
    problem.items = file->items.data;
    problem.n_items = file->items.n;
    problem.alignment_bytes = file->alignment_bytes;
    problem.period = file->period;
    problem.alignments = file->has_alignments ? file->alignments.data : NULL;
    problem.fixed = file->has_fixed ? file->fixed.data : NULL;
    problem.gaps = file->gaps.n > 0 ? file->gaps.data : NULL;
    problem.n_gaps = file->gaps.n;
    problem.hints = file->has_hints ? file->hints.data : NULL;
    problem.name = name_item;
    problem.name_ctx = file;
    EBB_ASSERT(problem.hints == NULL || file->hints.n == problem.n_items);
    EBB_ASSERT(problem.alignments == NULL || file->alignments.n == problem.n_items);
    EBB_ASSERT(problem.fixed == NULL || file->fixed.n == problem.n_items);
    EBB_ASSERT(file->row_text.n == problem.n_items);
    return problem;
}

const char *ebb_place_file_id(const ebb_place_file *file, size_t item) {
    EBB_ASSERT(item < file->items.n);
    return file->texts.data + file->row_text.data[item];
}

ebb_place_item ebb__place_file_unwind(const ebb_place_file *file, size_t item, ebb_place_gap *around_out) {
    EBB_ASSERT(item < file->items.n);
    ebb_place_item life = file->items.data[item];
    *around_out = (ebb_place_gap){.item = item};
    if (file->period == 0) { return life; }
    EBB_ASSERT(life.first <= file->period && life.last <= file->period);
    life.first = ebb__place_birth(file->period, &file->items.data[item]);
    life.last = ebb__place_death(file->period, &file->items.data[item]);
    if (life.first < life.last) { return life; }
    if (life.last > 0) {
        around_out->first = life.last;
        around_out->last = life.first;
        life.first = 0;
    }
    life.last = file->period;
    EBB_ASSERT(life.first < life.last && around_out->last <= life.last);
    return life;
}

ebb_status ebb__place_file_check_ends(const ebb_place_file *file, const uint64_t *offsets) {
    for (size_t i = 0; i < file->items.n; i++) {
        const uint64_t size_bytes = file->items.data[i].size_bytes;
        EBB_ASSERT(size_bytes < TOO_LARGE);
        if (offsets[i] < TOO_LARGE - size_bytes) { continue; }
        const ebb_place_problem problem = ebb_place_file_problem(file);
        return ebb_fail(EBB_E_ARGUMENT, "item %s: %llu bytes at offset %llu end at 2^63 or beyond",
                        ebb__item_name(&problem, i).text, (unsigned long long)size_bytes,
                        (unsigned long long)offsets[i]);
    }
    return EBB_OK;
}

/* ---- one that comes from elsewhere ------------------------------------------------------------ */

static ebb_status add_columns(ebb_place_file *file, const ebb_place_problem *problem, bool any_gaps) {
    EBB_TRY(ebb__place_file_add_column(file, EBB_CSV_ID, "id"));
    EBB_TRY(ebb__place_file_add_column(file, EBB_CSV_LOWER, "lower"));
    EBB_TRY(ebb__place_file_add_column(file, EBB_CSV_UPPER, "upper"));
    EBB_TRY(ebb__place_file_add_column(file, EBB_CSV_SIZE, "size"));
    if (problem->alignments != NULL || problem->alignment_bytes > 1) {
        EBB_TRY(ebb__place_file_add_column(file, EBB_CSV_ALIGNMENT, "alignment"));
    }
    if (problem->hints != NULL) { EBB_TRY(ebb__place_file_add_column(file, EBB_CSV_HINT, "hint")); }
    return any_gaps ? ebb__place_file_add_column(file, EBB_CSV_GAPS, "gaps") : EBB_OK;
}

static ebb_status add_id(ebb_place_file *file, size_t item, const char *const *ids) {
    char digits[24];
    (void)snprintf(digits, sizeof digits, "%zu", item);
    EBB_TRY(EBB_PUSH(file->mem, &file->row_text, file->texts.n));
    return ebb__place_file_add_text(file, ids != NULL ? ids[item] : digits);
}

static ebb_status add_items(ebb_place_file *file, const ebb_place_problem *problem, const char *const *ids) {
    const bool aligned = problem->alignments != NULL || problem->alignment_bytes > 1;
    bool any_around = false;
    ebb_place_gap around;
    for (size_t i = 0; i < problem->n_items; i++) {
        EBB_TRY(EBB_PUSH(file->mem, &file->items, problem->items[i]));
        (void)ebb__place_file_unwind(file, i, &around);
        any_around = any_around || around.first < around.last;
        if (aligned) { EBB_TRY(EBB_PUSH(file->mem, &file->alignments, ebb__place_alignment(problem, i))); }
        if (problem->fixed != NULL) { EBB_TRY(EBB_PUSH(file->mem, &file->fixed, problem->fixed[i])); }
        if (problem->hints != NULL) { EBB_TRY(EBB_PUSH(file->mem, &file->hints, problem->hints[i])); }
        EBB_TRY(add_id(file, i, ids));
    }
    for (size_t g = 0; g < problem->n_gaps; g++) { EBB_TRY(EBB_PUSH(file->mem, &file->gaps, problem->gaps[g])); }
    return add_columns(file, problem, any_around || problem->n_gaps > 0);
}

ebb_status ebb_place_file_create(const ebb_mem *mem, const ebb_place_problem *problem, const char *const *ids,
                                 ebb_place_file **file_out) {
    EBB_NEED(problem);
    EBB_NEED(file_out);
    ebb_place_file *file = NULL;
    EBB_TRY(ebb__place_check_problem(problem));
    EBB_TRY(ebb__place_file_new(mem, &file));
    file->has_alignments = problem->alignments != NULL;
    file->has_fixed = problem->fixed != NULL;
    file->has_hints = problem->hints != NULL;
    file->alignment_bytes = problem->alignment_bytes;
    file->period = problem->period;
    ebb_status st = add_items(file, problem, ids);
    if (st != EBB_OK) {
        ebb_place_file_destroy(file);
        return st;
    }
    *file_out = file;
    return EBB_OK;
}

/* ---- ids that are there twice ----------------------------------------------------------------- */

typedef struct named {
    const char *id;
    size_t row;
} named;

static int compare_named(const void *a, const void *b) {
    const named *x = a, *y = b;
    const int order = strcmp(x->id, y->id);
    return order != 0 ? order : (x->row > y->row) - (x->row < y->row);
}

/* Of rows that have one hash: sorted by what they are called. */
static ebb_status find_in_run(const ebb_place_file *file, const uint32_t *rows, size_t n, ebb_csv_twin *twin) {
    named *run = ebb__alloc(file->mem, n, sizeof *run);
    if (run == NULL) { return EBB_E_NO_MEMORY; }
    for (size_t i = 0; i < n; i++) { run[i] = (named){file->texts.data + file->row_text.data[rows[i]], rows[i]}; }
    qsort(run, n, sizeof *run, compare_named);
    for (size_t i = 1, first = 0; i < n; i++) {
        if (strcmp(run[i].id, run[first].id) != 0) {
            first = i;
        } else if (run[i].row < twin->row) {
            *twin = (ebb_csv_twin){run[i].row, run[first].row};
        }
    }
    ebb__free(file->mem, run);
    return EBB_OK;
}

static ebb_status find_in_runs(const ebb_place_file *file, const uint32_t *rows, const uint64_t *hash,
                               ebb_csv_twin *twin_out) {
    const size_t n = file->row_text.n;
    ebb_csv_twin twin = {SIZE_MAX, SIZE_MAX};
    for (size_t begin = 0, end = 0; begin < n; begin = end) {
        while (end < n && hash[rows[end]] == hash[rows[begin]]) { end++; }
        if (end - begin > 1) { EBB_TRY(find_in_run(file, rows + begin, end - begin, &twin)); }
    }
    EBB_ASSERT(twin.row == SIZE_MAX || twin.earlier < twin.row);
    *twin_out = twin;
    return EBB_OK;
}

/* Sorted by hash, and only what has the same one by its text: a file of ids that were made to have one hash takes no
 * longer than sorting does. */
ebb_status ebb__csv_find_twin(const ebb_place_file *file, ebb_csv_twin *twin_out) {
    const size_t n = file->row_text.n;
    EBB_ASSERT(n <= UINT32_MAX);
    uint32_t *rows = ebb__alloc(file->mem, n, sizeof *rows);
    uint64_t *hash = ebb__alloc(file->mem, n, sizeof *hash);
    ebb_status st = rows != NULL && hash != NULL ? EBB_OK : EBB_E_NO_MEMORY;
    for (size_t i = 0; i < n && st == EBB_OK; i++) {
        const char *id = file->texts.data + file->row_text.data[i];
        rows[i] = (uint32_t)i;
        hash[i] = ebb__hash(EBB_HASH_INIT, id, strlen(id));
    }
    if (st == EBB_OK) { st = ebb__sort_by_key(file->mem, rows, n, hash); }
    if (st == EBB_OK) { st = find_in_runs(file, rows, hash, twin_out); }
    ebb__free(file->mem, hash);
    ebb__free(file->mem, rows);
    return st;
}
