/* SPDX-License-Identifier: Apache-2.0
 *
 * The placement file as an object: what is kept of a file, or of a problem that comes from elsewhere, and the set of
 * ids that finds the one that is there twice.
 */
#include "place/place_csv.h"

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
    ebb__free(mem, file);
}

ebb_status ebb__place_file_add_column(ebb_place_file *file, ebb_csv_kind kind, const char *name) {
    const ebb_csv_column column = {.kind = kind, .name = file->names.n};
    const size_t n = strlen(name) + 1;
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
    return problem;
}

const char *ebb_place_file_id(const ebb_place_file *file, size_t item) {
    EBB_ASSERT(item < file->items.n);
    return file->texts.data + file->row_text.data[item];
}

ebb_place_item ebb__place_file_unwind(const ebb_place_file *file, size_t item, ebb_place_gap *around_out) {
    ebb_place_item life = file->items.data[item];
    *around_out = (ebb_place_gap){.item = item};
    if (file->period == 0) { return life; }
    life.first %= file->period;
    if (life.first < life.last) { return life; }
    if (life.last > 0) {
        around_out->first = life.last;
        around_out->last = life.first;
        life.first = 0;
    }
    life.last = file->period;
    return life;
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
        const uint64_t alignment = problem->alignments != NULL ? problem->alignments[i] : problem->alignment_bytes;
        EBB_TRY(EBB_PUSH(file->mem, &file->items, problem->items[i]));
        (void)ebb__place_file_unwind(file, i, &around);
        any_around = any_around || around.first < around.last;
        if (aligned) { EBB_TRY(EBB_PUSH(file->mem, &file->alignments, alignment)); }
        if (problem->fixed != NULL) { EBB_TRY(EBB_PUSH(file->mem, &file->fixed, problem->fixed[i])); }
        EBB_TRY(add_id(file, i, ids));
    }
    for (size_t g = 0; g < problem->n_gaps; g++) { EBB_TRY(EBB_PUSH(file->mem, &file->gaps, problem->gaps[g])); }
    return add_columns(file, problem, any_around || problem->n_gaps > 0);
}

ebb_status ebb_place_file_create(const ebb_mem *mem, const ebb_place_problem *problem, const char *const *ids,
                                 ebb_place_file **file_out) {
    ebb_place_file *file = NULL;
    if (problem->size_bytes != sizeof *problem) { return ebb_fail(EBB_E_ARGUMENT, "a problem of another version"); }
    EBB_TRY(ebb__place_file_new(mem, &file));
    file->has_alignments = problem->alignments != NULL;
    file->has_fixed = problem->fixed != NULL;
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

/* ---- the set of ids --------------------------------------------------------------------------- */

#define FIRST_SLOTS ((size_t)64)

static void insert(const ebb_csv_ids *ids, ebb_csv_slot slot) {
    size_t s = slot.hash & (ids->n_slots - 1);
    while (ids->slot[s].row != 0) { s = (s + 1) & (ids->n_slots - 1); }
    ids->slot[s] = slot;
}

/* Twice the slots, at most half of them full. */
static ebb_status grow(ebb_csv_ids *ids) {
    ebb_csv_ids wider = {.mem = ids->mem, .n = ids->n, .n_slots = ids->n_slots > 0 ? 2 * ids->n_slots : FIRST_SLOTS};
    wider.slot = ebb__calloc(ids->mem, wider.n_slots, sizeof *wider.slot);
    if (wider.slot == NULL) { return EBB_E_NO_MEMORY; }
    for (size_t s = 0; s < ids->n_slots; s++) {
        if (ids->slot[s].row != 0) { insert(&wider, ids->slot[s]); }
    }
    ebb__csv_ids_fini(ids);
    *ids = wider;
    return EBB_OK;
}

ebb_status ebb__csv_ids_add(ebb_csv_ids *ids, const ebb_place_file *file, size_t *row_out) {
    if (ids->n >= ids->n_slots / 2) { EBB_TRY(grow(ids)); }
    const size_t row = file->row_text.n - 1;
    const char *id = file->texts.data + file->row_text.data[row];
    const uint64_t wide = ebb__hash(EBB_HASH_INIT, id, strlen(id));
    const uint32_t hash = (uint32_t)(wide ^ wide >> 32);
    for (size_t s = hash & (ids->n_slots - 1); ids->slot[s].row != 0; s = (s + 1) & (ids->n_slots - 1)) {
        const size_t other = ids->slot[s].row - 1;
        if (ids->slot[s].hash != hash) { continue; }
        if (strcmp(file->texts.data + file->row_text.data[other], id) != 0) { continue; }
        *row_out = other;
        return EBB_OK;
    }
    insert(ids, (ebb_csv_slot){(uint32_t)row + 1, hash});
    ids->n++;
    *row_out = row;
    return EBB_OK;
}

void ebb__csv_ids_fini(ebb_csv_ids *ids) {
    ebb__free(ids->mem, ids->slot);
    ids->slot = NULL;
}
