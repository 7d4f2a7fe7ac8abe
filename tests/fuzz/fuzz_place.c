/* SPDX-License-Identifier: Apache-2.0
 *
 * Placement files from hostile bytes: what the reader lets through is a well-formed problem, for solvers too, and what
 * is written of it reads as the same one.
 */
#include "place/place_csv.h"

#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>

#define MAX_WRITTEN_INPUT 8192u /* what is written of it fits a pipe */
#define PIPE_BYTES (1 << 20)

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static ebb_status parse(const char *data, size_t n_bytes, ebb_place_file **file_out) {
    ebb_csv csv;
    if (ebb__csv_open_memory(NULL, "fuzz", data, n_bytes, &csv) != EBB_OK) { abort(); }
    ebb_status st = ebb__place_file_parse(&csv, file_out);
    ebb__csv_close(&csv);
    return st;
}

static void check(const ebb_place_file *file) {
    const ebb_place_problem p = ebb_place_file_problem(file);
    uint64_t bound_bytes = 0;
    if (ebb_place_bound(&p, NULL, &bound_bytes) != EBB_OK) { abort(); }
    for (size_t i = 0; i < p.n_items; i++) {
        if (p.items[i].first >= p.items[i].last || ebb_place_file_id(file, i)[0] == '\0') { abort(); }
    }
    for (size_t g = 0; g < p.n_gaps; g++) {
        const ebb_place_gap *gap = &p.gaps[g], *next = gap + 1;
        const ebb_place_item *item = &p.items[gap->item];
        if (gap->first >= gap->last || gap->first < item->first || gap->last > item->last) { abort(); }
        if (gap->low_bytes > gap->high_bytes || gap->high_bytes > item->size_bytes) { abort(); }
        if (g + 1 == p.n_gaps) { break; }
        if (gap->item > next->item || (gap->item == next->item && gap->last > next->first)) { abort(); }
    }
}

/* The file as it is written, with each item at its fixed offset or at 0. */
static char *write_file(const ebb_place_file *file, size_t *n_out) {
    const ebb_place_problem p = ebb_place_file_problem(file);
    uint64_t *offsets = calloc(p.n_items + 1, sizeof *offsets);
    char *text = malloc(PIPE_BYTES), path[32];
    int ends[2];
    if (offsets == NULL || text == NULL || pipe(ends) != 0 || fcntl(ends[1], F_SETPIPE_SZ, PIPE_BYTES) < 0) { abort(); }
    for (size_t i = 0; i < p.n_items && p.fixed != NULL; i++) {
        offsets[i] = p.fixed[i] != EBB_PLACE_ANYWHERE ? p.fixed[i] : 0;
    }
    (void)snprintf(path, sizeof path, "/proc/self/fd/%d", ends[1]);
    if (ebb_place_file_write(file, offsets, path) != EBB_OK) { abort(); }
    (void)close(ends[1]);
    *n_out = 0;
    for (ssize_t n = 1; n > 0; *n_out += (size_t)n) { n = read(ends[0], text + *n_out, PIPE_BYTES - *n_out); }
    (void)close(ends[0]);
    free(offsets);
    return text;
}

static void check_written(const ebb_place_file *file) {
    ebb_place_file *again = NULL;
    size_t n = 0, n_again = 0;
    char *text = write_file(file, &n);
    if (parse(text, n, &again) != EBB_OK) { abort(); }
    const ebb_place_problem a = ebb_place_file_problem(file), b = ebb_place_file_problem(again);
    if (a.n_items != b.n_items || a.n_gaps != b.n_gaps || (a.alignments == NULL) != (b.alignments == NULL)) { abort(); }
    for (size_t i = 0; i < a.n_items; i++) {
        if (memcmp(&a.items[i], &b.items[i], sizeof a.items[i]) != 0) { abort(); }
        if (strcmp(ebb_place_file_id(file, i), ebb_place_file_id(again, i)) != 0) { abort(); }
    }
    char *text_again = write_file(again, &n_again);
    if (n != n_again || memcmp(text, text_again, n) != 0) { abort(); }
    ebb_place_file_destroy(again);
    free(text_again);
    free(text);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    ebb_place_file *file = NULL;
    ebb_status st = parse((const char *)data, size, &file);
    if (st == EBB_OK) {
        check(file);
        if (size <= MAX_WRITTEN_INPUT) { check_written(file); }
    } else if (st != EBB_E_FORMAT || file != NULL) {
        abort();
    }
    ebb_place_file_destroy(file);
    return 0;
}
