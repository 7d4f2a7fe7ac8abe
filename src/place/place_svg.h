/* SPDX-License-Identifier: Apache-2.0
 *
 * The picture of a placement inside: rectangles in pixels of the plot, and the grid of those too many to be drawn each.
 */
#ifndef EBB_SRC_PLACE_SVG_H
#define EBB_SRC_PLACE_SVG_H

#include "base/file.h"

#define EBB_SVG_PLOT_WIDTH 1200u
#define EBB_SVG_PLOT_HEIGHT 640u
#define EBB_SVG_N_CLASSES 8u

/* A part of an item's life in which it holds the same bytes; in pixels from the plot's upper left corner. */
typedef struct ebb_svg_rect {
    float x0, x1, y0, y1;
    uint32_t item;
    uint16_t size_class; /* below EBB_SVG_N_CLASSES */
    bool is_gap;         /* it holds none of them: shown as an outline */
} ebb_svg_rect;

/* What rectangles cover of each cell of a grid over the plot, added up exactly, for each class. */
typedef struct ebb_svg_grid ebb_svg_grid;

ebb_status ebb__svg_grid_create(const ebb_mem *mem, ebb_svg_grid **grid_out);
void ebb__svg_grid_destroy(ebb_svg_grid *grid);
void ebb__svg_grid_add(ebb_svg_grid *grid, const ebb_svg_rect *rect);

/* Write a path for each class that has cells. At most 2 MB, whatever was added. Leaves the grid unusable. */
void ebb__svg_grid_write(ebb_svg_grid *grid, ebb_file_writer *out);

/* A number with at most two decimals, whatever the locale; below 0 is 0. */
void ebb__svg_put_number(ebb_file_writer *out, double x);

#endif
