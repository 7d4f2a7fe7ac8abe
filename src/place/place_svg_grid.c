/* SPDX-License-Identifier: Apache-2.0
 *
 * Rectangles as cells of a grid. What a rectangle covers of a cell is a product, of the part of the cell's width and of
 * the part of its height, and each of the two changes in at most four places along its axis: so a rectangle of any size
 * is added as sixteen differences, and two running sums over the grid give what is covered. The parts are whole numbers
 * of 1/64, so nothing is rounded on the way.
 */
#include "place/place_svg.h"

#define CELL_PIXELS 2u
#define N_COLUMNS (EBB_SVG_PLOT_WIDTH / CELL_PIXELS)
#define N_ROWS (EBB_SVG_PLOT_HEIGHT / CELL_PIXELS)
#define STRIDE (N_COLUMNS + 2) /* a difference may fall one after the last cell, or two */
#define N_CELLS ((size_t)STRIDE * (N_ROWS + 2))
#define ONE 64               /* parts of a cell's side */
#define SEEN (ONE * ONE / 8) /* a cell is drawn when this much of it is covered */

struct ebb_svg_grid {
    const ebb_mem *mem;
    int64_t *covered;  /* [EBB_SVG_N_CLASSES][N_CELLS]: differences, sums in the end */
    uint8_t *class_at; /* [N_ROWS][N_COLUMNS] in the end; EBB_SVG_N_CLASSES: nothing to draw */
    uint64_t n_rects[EBB_SVG_N_CLASSES];
};

ebb_status ebb__svg_grid_create(const ebb_mem *mem, ebb_svg_grid **grid_out) {
    ebb_svg_grid *grid = ebb__calloc(mem, 1, sizeof *grid);
    if (grid == NULL) { return EBB_E_NO_MEMORY; }
    grid->mem = mem;
    grid->covered = ebb__calloc(mem, EBB_SVG_N_CLASSES * N_CELLS, sizeof *grid->covered);
    grid->class_at = ebb__alloc(mem, N_ROWS * N_COLUMNS, 1);
    if (grid->covered == NULL || grid->class_at == NULL) {
        ebb__svg_grid_destroy(grid);
        return EBB_E_NO_MEMORY;
    }
    *grid_out = grid;
    return EBB_OK;
}

void ebb__svg_grid_destroy(ebb_svg_grid *grid) {
    if (grid == NULL) { return; }
    ebb__free(grid->mem, grid->covered);
    ebb__free(grid->mem, grid->class_at);
    ebb__free(grid->mem, grid);
}

typedef struct change {
    size_t at;
    int64_t by;
} change;

/* What [from, to), in pixels, covers of the cells of an axis, as changes from a cell to the next. */
static void find_changes(float from, float to, uint32_t n_cells, change out[4]) {
    for (unsigned i = 0; i < 2; i++) {
        const float pixels = i == 0 ? from : to;
        const int64_t limit = (int64_t)n_cells * ONE;
        int64_t parts = (int64_t)(pixels * (float)ONE / (float)CELL_PIXELS);
        parts = parts < 0 ? 0 : parts > limit ? limit : parts;
        const int64_t sign = i == 0 ? 1 : -1, rest = parts % ONE;
        EBB_ASSERT(parts >= 0 && parts / ONE + 1 < (int64_t)n_cells + 2);
        out[2 * i] = (change){(size_t)(parts / ONE), sign * (ONE - rest)};
        out[2 * i + 1] = (change){(size_t)(parts / ONE) + 1, sign * rest};
    }
}

void ebb__svg_grid_add(ebb_svg_grid *grid, const ebb_svg_rect *rect) {
    change x[4], y[4];
    EBB_ASSERT(rect->size_class < EBB_SVG_N_CLASSES && rect->x0 <= rect->x1 && rect->y0 <= rect->y1);
    int64_t *covered = grid->covered + rect->size_class * N_CELLS;
    /* An item thinner than a part still counts for one: a thousand of them side by side are no empty plot. */
    const float least = (float)CELL_PIXELS / (float)ONE;
    find_changes(rect->x0, rect->x1 < rect->x0 + least ? rect->x0 + least : rect->x1, N_COLUMNS, x);
    find_changes(rect->y0, rect->y1 < rect->y0 + least ? rect->y0 + least : rect->y1, N_ROWS, y);
    for (unsigned i = 0; i < 4; i++) {
        for (unsigned j = 0; j < 4; j++) { covered[y[j].at * STRIDE + x[i].at] += x[i].by * y[j].by; }
    }
    grid->n_rects[rect->size_class]++;
}

static void sum_up(int64_t *covered) {
    for (size_t row = 0; row < N_ROWS + 2; row++) {
        for (size_t c = 1; c < STRIDE; c++) { covered[row * STRIDE + c] += covered[row * STRIDE + c - 1]; }
    }
    for (size_t i = STRIDE; i < N_CELLS; i++) { covered[i] += covered[i - STRIDE]; }
}

/* The class that covers most of a cell; EBB_SVG_N_CLASSES: all together cover too little. */
static unsigned class_of(const ebb_svg_grid *grid, size_t cell) {
    int64_t most = 0, total = 0;
    unsigned found = EBB_SVG_N_CLASSES;
    for (unsigned k = 0; k < EBB_SVG_N_CLASSES; k++) {
        const int64_t covered = grid->covered[k * N_CELLS + cell];
        EBB_ASSERT(covered >= 0 && cell < N_CELLS);
        total += covered;
        if (covered <= most) { continue; }
        most = covered;
        found = k;
    }
    return total >= SEEN ? found : EBB_SVG_N_CLASSES;
}

static void write_class(const ebb_svg_grid *grid, unsigned size_class, ebb_file_writer *out) {
    bool open = false;
    for (size_t row = 0; row < N_ROWS; row++) {
        for (size_t c = 0; c < N_COLUMNS;) {
            const size_t from = c;
            EBB_ASSERT(grid->class_at[row * N_COLUMNS + c] <= EBB_SVG_N_CLASSES);
            while (c < N_COLUMNS && grid->class_at[row * N_COLUMNS + c] == size_class) { c++; }
            if (c == from) {
                c++;
                continue;
            }
            if (!open) { (void)ebb__file_writer_printf(out, "<path class=\"p%u\" d=\"", size_class); }
            open = true;
            (void)ebb__file_writer_printf(out, "M%zu %zuh%zu", from, row, c - from);
        }
    }
    if (!open) { return; }
    (void)ebb__file_writer_printf(out, "\"><title>%llu too small to be drawn one by one</title></path>\n",
                                  (unsigned long long)grid->n_rects[size_class]);
}

void ebb__svg_grid_write(ebb_svg_grid *grid, ebb_file_writer *out) {
    for (unsigned k = 0; k < EBB_SVG_N_CLASSES; k++) { sum_up(grid->covered + k * N_CELLS); }
    for (size_t row = 0; row < N_ROWS; row++) {
        for (size_t c = 0; c < N_COLUMNS; c++) {
            grid->class_at[row * N_COLUMNS + c] = (uint8_t)class_of(grid, row * STRIDE + c);
        }
    }
    (void)ebb__file_writer_printf(out, "<g transform=\"scale(%u)translate(0 .5)\">\n", CELL_PIXELS);
    for (unsigned k = 0; k < EBB_SVG_N_CLASSES; k++) { write_class(grid, k, out); }
    (void)ebb__file_writer_printf(out, "</g>\n");
}
