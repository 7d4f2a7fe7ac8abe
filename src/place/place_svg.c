/* SPDX-License-Identifier: Apache-2.0
 *
 * The picture of a placement: time to the right, offsets upwards, a rectangle for each part of an item's life in
 * which it holds the same bytes, an outline where it holds none. Rectangles are drawn by falling area, each with a
 * text that shows when it is pointed at, until N_BYTES_DRAWN are written; what is left is added to a grid of pixels
 * (place_svg_grid.c). So a file is below 5 MB however many items there are.
 *
 * Colours come from style classes, with a second set for dark pages; numbers are written here and not by the C library,
 * whose decimal point depends on the locale.
 */
#include "place/place_csv.h"
#include "place/place_svg.h"

#include <inttypes.h>
#include <math.h>

#define N_BYTES_DRAWN ((uint64_t)2900 * 1000)
#define MAX_SHOWN_CHARS 80u
#define LEFT 100u
#define TOP 76u
#define WIDTH (LEFT + EBB_SVG_PLOT_WIDTH + 30u)
#define HEIGHT (TOP + EBB_SVG_PLOT_HEIGHT + 96u)
#define MAX_TIME_TICKS 12u
#define MAX_BYTE_TICKS 10u

typedef struct drawing {
    const ebb_place_file *file;
    const uint64_t *offsets;
    const ebb_place_picture *picture;
    ebb_file_writer *out; /* remembers its first failure; commit tells it */
    uint64_t first, last; /* the axis of time */
    uint64_t top_bytes;   /* of the axis of offsets */
    uint64_t least, most; /* sizes, of those that have one */
    EBB_VEC(ebb_svg_rect) rects;
} drawing;

/* ---- text ------------------------------------------------------------------------------------- */

static void put(drawing *d, const char *text) {
    (void)ebb__file_writer_write(d->out, text, strlen(text));
}

static void put_u64(drawing *d, uint64_t x) {
    (void)ebb__file_writer_printf(d->out, "%" PRIu64, x);
}

void ebb__svg_put_number(ebb_file_writer *out, double x) {
    const uint64_t hundredths = x > 0.0 ? (uint64_t)(x * 100.0 + 0.5) : 0;
    (void)ebb__file_writer_printf(out, "%" PRIu64, hundredths / 100);
    if (hundredths % 100 == 0) { return; }
    (void)ebb__file_writer_printf(out, hundredths % 10 == 0 ? ".%" PRIu64 : ".%02" PRIu64,
                                  hundredths % 10 == 0 ? hundredths % 100 / 10 : hundredths % 100);
}

/* An attribute whose value is a number. */
static void put_attribute(drawing *d, const char *name, double x) {
    put(d, name);
    put(d, "=\"");
    ebb__svg_put_number(d->out, x);
    put(d, "\"");
}

/* Bytes of the character that begins here; 0: it is not one of UTF-8. */
static size_t character_bytes(const unsigned char *c) {
    const size_t n = c[0] < 0x80 ? 1 : c[0] < 0xc2 ? 0 : c[0] < 0xe0 ? 2 : c[0] < 0xf0 ? 3 : c[0] < 0xf5 ? 4 : 0;
    for (size_t i = 1; i < n; i++) {
        if ((c[i] & 0xc0) != 0x80) { return 0; }
    }
    const bool overlong = (c[0] == 0xe0 && c[1] < 0xa0) || (c[0] == 0xf0 && c[1] < 0x90);
    const bool surrogate = c[0] == 0xed && c[1] >= 0xa0, beyond = c[0] == 0xf4 && c[1] >= 0x90;
    const bool no_character = c[0] == 0xef && c[1] == 0xbf && c[2] >= 0xbe;
    return n > 1 && (overlong || surrogate || beyond || no_character) ? 0 : n;
}

/* Somebody's text inside XML: what would be markup is escaped, what XML cannot hold is a question mark, what is long
 * ends in dots. */
static void put_text(drawing *d, const char *text) {
    const unsigned char *c = (const unsigned char *)text;
    for (size_t n_shown = 0; *c != '\0'; n_shown++) {
        const size_t n = character_bytes(c);
        if (n_shown == MAX_SHOWN_CHARS) {
            put(d, "...");
            return;
        }
        if (n == 0 || *c < 0x20 || *c == 0x7f) {
            put(d, "?");
        } else if (*c == '&' || *c == '<' || *c == '>' || *c == '"') {
            put(d, *c == '&' ? "&amp;" : *c == '<' ? "&lt;" : *c == '>' ? "&gt;" : "&quot;");
        } else {
            (void)ebb__file_writer_write(d->out, c, n);
        }
        c += n > 0 ? n : 1;
    }
}

static void put_bytes(drawing *d, uint64_t bytes) {
    char text[32];
    put(d, ebb_bytes_format(bytes, text, sizeof text));
}

/* ---- where things are ------------------------------------------------------------------------- */

static double x_of(const drawing *d, uint64_t time) {
    EBB_ASSERT(d->first < d->last && time >= d->first);
    return (double)(time - d->first) / (double)(d->last - d->first) * EBB_SVG_PLOT_WIDTH;
}

static double y_of(const drawing *d, uint64_t offset) {
    EBB_ASSERT(offset <= d->top_bytes && d->top_bytes > 0);
    return EBB_SVG_PLOT_HEIGHT - (double)offset / (double)d->top_bytes * EBB_SVG_PLOT_HEIGHT;
}

/* Classes of equal width on a logarithmic scale from the least size to the most. */
static unsigned class_of(const drawing *d, uint64_t size_bytes) {
    EBB_ASSERT(size_bytes >= d->least && size_bytes <= d->most);
    if (d->least >= d->most) { return 0; }
    const double part = log((double)size_bytes / (double)d->least) / log((double)d->most / (double)d->least);
    const double k = part * EBB_SVG_N_CLASSES;
    return k < 0.0 ? 0 : k >= EBB_SVG_N_CLASSES ? EBB_SVG_N_CLASSES - 1 : (unsigned)k;
}

/* The least size of a class. */
static double class_begin(const drawing *d, unsigned size_class) {
    return (double)d->least * pow((double)d->most / (double)d->least, (double)size_class / EBB_SVG_N_CLASSES);
}

static void find_axes(drawing *d) {
    ebb_place_gap around;
    d->least = d->first = UINT64_MAX;
    d->top_bytes = ebb_max_u64(d->picture->peak_bytes, d->picture->bound_bytes);
    for (size_t i = 0; i < d->file->items.n; i++) {
        const ebb_place_item life = ebb__place_file_unwind(d->file, i, &around);
        d->first = ebb_min_u64(d->first, life.first);
        d->last = ebb_max_u64(d->last, life.last);
        if (life.size_bytes == 0) { continue; }
        d->least = ebb_min_u64(d->least, life.size_bytes);
        d->most = ebb_max_u64(d->most, life.size_bytes);
        d->top_bytes = ebb_max_u64(d->top_bytes, d->offsets[i] + life.size_bytes);
    }
    if (d->first >= d->last) {
        d->first = 0;
        d->last = 1;
    }
    d->top_bytes = ebb_max_u64(d->top_bytes, 1);
    EBB_ASSERT(d->first < d->last && (d->most == 0 || d->least <= d->most));
}

/* ---- rectangles ------------------------------------------------------------------------------- */

/* The item's bytes [low, high) in [first, last); or all of them as a gap. */
static ebb_status add_rect(drawing *d, const ebb_place_gap *part, bool is_gap) {
    const uint64_t size_bytes = d->file->items.data[part->item].size_bytes, offset = d->offsets[part->item];
    if (part->first >= part->last || size_bytes == 0 || part->low_bytes >= part->high_bytes) { return EBB_OK; }
    const ebb_svg_rect rect = {.x0 = (float)x_of(d, part->first),
                               .x1 = (float)x_of(d, part->last),
                               .y0 = (float)y_of(d, offset + part->high_bytes),
                               .y1 = (float)y_of(d, offset + part->low_bytes),
                               .item = (uint32_t)part->item,
                               .size_class = (uint16_t)class_of(d, size_bytes),
                               .is_gap = is_gap};
    EBB_ASSERT(rect.x0 <= rect.x1 && rect.y0 <= rect.y1 && rect.size_class < EBB_SVG_N_CLASSES);
    EBB_ASSERT(rect.y0 >= 0.0f && rect.y1 <= (float)EBB_SVG_PLOT_HEIGHT && rect.x1 <= (float)EBB_SVG_PLOT_WIDTH);
    return EBB_PUSH(d->file->mem, &d->rects, rect);
}

/* What the item holds in a gap, and an outline. */
static ebb_status add_gap(drawing *d, const ebb_place_gap *gap) {
    ebb_place_gap outline = *gap;
    outline.low_bytes = 0;
    outline.high_bytes = d->file->items.data[gap->item].size_bytes;
    EBB_ASSERT(gap->low_bytes <= gap->high_bytes && gap->high_bytes <= outline.high_bytes);
    EBB_TRY(add_rect(d, gap, false));
    return add_rect(d, &outline, true);
}

static ebb_status add_item(drawing *d, size_t item, size_t *gap) {
    ebb_place_gap around;
    const ebb_place_item life = ebb__place_file_unwind(d->file, item, &around);
    ebb_place_gap part = {.item = item, .first = life.first, .high_bytes = life.size_bytes};
    if (around.first < around.last) {
        part.last = around.first;
        EBB_TRY(add_rect(d, &part, false));
        EBB_TRY(add_gap(d, &around));
        part.first = around.last;
    }
    for (; *gap < d->file->gaps.n && d->file->gaps.data[*gap].item == item; (*gap)++) {
        const ebb_place_gap *here = &d->file->gaps.data[*gap];
        part.last = here->first;
        EBB_TRY(add_rect(d, &part, false));
        EBB_TRY(add_gap(d, here));
        part.first = here->last;
    }
    part.last = life.last;
    return add_rect(d, &part, false);
}

/* The rectangles' indices by falling area, outlines last: they lie over what uses the gap. */
static ebb_status order_rects(const drawing *d, uint32_t **idx_out) {
    const ebb_mem *mem = d->file->mem;
    const size_t n = d->rects.n;
    if (n >= UINT32_MAX) { return ebb_fail(EBB_E_LIMIT, "a picture of more than 2^32 rectangles"); }
    uint32_t *idx = ebb__alloc(mem, n, sizeof *idx);
    uint64_t *key = ebb__alloc(mem, n, sizeof *key);
    ebb_status st = idx != NULL && key != NULL ? EBB_OK : EBB_E_NO_MEMORY;
    for (size_t i = 0; i < n && st == EBB_OK; i++) {
        const ebb_svg_rect *r = &d->rects.data[i];
        const double area = (double)(r->x1 - r->x0) * (double)(r->y1 - r->y0);
        EBB_ASSERT(area >= 0.0 && area * 65536.0 <= (double)((uint64_t)1 << 60));
        idx[i] = (uint32_t)i;
        key[i] = (r->is_gap ? (uint64_t)1 << 62 : 0) + ((uint64_t)1 << 60) - (uint64_t)(area * 65536.0);
    }
    if (st == EBB_OK) { st = ebb__sort_by_key(mem, idx, n, key); }
    ebb__free(mem, key);
    if (st != EBB_OK) {
        ebb__free(mem, idx);
        return st;
    }
    *idx_out = idx;
    return EBB_OK;
}

static void put_rect(drawing *d, const ebb_svg_rect *rect) {
    const ebb_place_item *item = &d->file->items.data[rect->item];
    EBB_ASSERT(rect->item < d->file->items.n && item->size_bytes > 0);
    (void)ebb__file_writer_printf(d->out, rect->is_gap ? "<rect class=\"gap\"" : "<rect class=\"c%u\"",
                                  (unsigned)rect->size_class);
    put_attribute(d, " x", (double)rect->x0);
    put_attribute(d, " y", (double)rect->y0);
    put_attribute(d, " width", (double)rect->x1 - (double)rect->x0);
    put_attribute(d, " height", (double)rect->y1 - (double)rect->y0);
    put(d, "><title>");
    put_text(d, ebb_place_file_id(d->file, rect->item));
    put(d, "\nsize ");
    put_u64(d, item->size_bytes);
    put(d, "\nlife [");
    put_u64(d, item->first);
    put(d, ", ");
    put_u64(d, item->last);
    put(d, ")\noffset ");
    put_u64(d, d->offsets[rect->item]);
    put(d, rect->is_gap ? "\na gap</title></rect>\n" : "</title></rect>\n");
}

/* Draw the rectangles from *next on while there is room for them, all of one kind. */
static void put_rects(drawing *d, const uint32_t *idx, size_t *next, bool gaps) {
    while (*next < d->rects.n && ebb__file_writer_offset(d->out) < N_BYTES_DRAWN) {
        const ebb_svg_rect *rect = &d->rects.data[idx[*next]];
        if (rect->is_gap != gaps) { return; }
        put_rect(d, rect);
        (*next)++;
    }
}

/* Pixels for those that are left; outlines too small to be seen are left out. */
static ebb_status put_rest(drawing *d, const uint32_t *idx, size_t next) {
    if (next == d->rects.n || d->rects.data[idx[next]].is_gap) { return EBB_OK; }
    ebb_svg_grid *grid = NULL;
    EBB_TRY(ebb__svg_grid_create(d->file->mem, &grid));
    for (; next < d->rects.n && !d->rects.data[idx[next]].is_gap; next++) {
        ebb__svg_grid_add(grid, &d->rects.data[idx[next]]);
    }
    ebb__svg_grid_write(grid, d->out);
    ebb__svg_grid_destroy(grid);
    return EBB_OK;
}

static ebb_status put_items(drawing *d) {
    size_t gap = 0, next = 0;
    uint32_t *idx = NULL;
    for (size_t i = 0; i < d->file->items.n; i++) { EBB_TRY(add_item(d, i, &gap)); }
    EBB_TRY(order_rects(d, &idx));
    put_rects(d, idx, &next, false);
    ebb_status st = put_rest(d, idx, next);
    put_rects(d, idx, &next, true);
    EBB_ASSERT(next <= d->rects.n && gap == d->file->gaps.n);
    ebb__free(d->file->mem, idx);
    return st;
}

/* ---- around the plot -------------------------------------------------------------------------- */

static const char style[] =
    "<style>\n"
    "svg{font:13px system-ui,sans-serif}\n"
    ".bg{fill:#ffffff}.ink{fill:#1f2328}.dim{fill:#59636e}.line{stroke:#818b98}.grid{stroke:#d1d9e0}\n"
    ".mark{stroke:#1f2328;stroke-dasharray:6 4}.title{font-size:17px;font-weight:600}\n"
    "rect[class^=c]{stroke:#ffffff;stroke-width:.6}\n"
    ".gap{fill:none;stroke:#59636e;stroke-width:.8;stroke-dasharray:3 2;pointer-events:stroke}\n"
    ".c0{fill:#6574c4}.c1{fill:#3f8fc4}.c2{fill:#2fa3a0}.c3{fill:#4aa95c}\n"
    ".c4{fill:#9aa833}.c5{fill:#d0a02c}.c6{fill:#d9773a}.c7{fill:#c94f54}\n"
    ".p0{stroke:#6574c4}.p1{stroke:#3f8fc4}.p2{stroke:#2fa3a0}.p3{stroke:#4aa95c}\n"
    ".p4{stroke:#9aa833}.p5{stroke:#d0a02c}.p6{stroke:#d9773a}.p7{stroke:#c94f54}\n"
    "@media(prefers-color-scheme:dark){\n"
    ".bg{fill:#0d1117}.ink{fill:#f0f6fc}.dim{fill:#9198a1}.line{stroke:#656c76}.grid{stroke:#2a313c}\n"
    ".mark{stroke:#f0f6fc}rect[class^=c]{stroke:#0d1117}.gap{stroke:#9198a1}}\n"
    "</style>\n";

static void put_head(drawing *d) {
    const ebb_place_picture *p = d->picture;
    (void)ebb__file_writer_printf(d->out,
                                  "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %u %u\" width=\"%u\" "
                                  "height=\"%u\" role=\"img\" aria-label=\"",
                                  WIDTH, HEIGHT, WIDTH, HEIGHT);
    put_text(d, p->title != NULL ? p->title : "placement");
    put(d, "\">\n");
    put(d, style);
    (void)ebb__file_writer_printf(d->out, "<rect class=\"bg\" width=\"%u\" height=\"%u\"/>\n", WIDTH, HEIGHT);
    (void)ebb__file_writer_printf(d->out, "<text class=\"ink title\" x=\"%u\" y=\"30\">", LEFT);
    put_text(d, p->title != NULL ? p->title : "placement");
    (void)ebb__file_writer_printf(d->out, "</text>\n<text class=\"dim\" x=\"%u\" y=\"52\">peak ", LEFT);
    put_bytes(d, p->peak_bytes);
    (void)ebb__file_writer_printf(d->out, " (%" PRIu64 "), bound ", p->peak_bytes);
    put_bytes(d, p->bound_bytes);
    (void)ebb__file_writer_printf(d->out, " (%" PRIu64 "), %zu buffers%s</text>\n", p->bound_bytes, d->file->items.n,
                                  p->peak_bytes == p->bound_bytes ? ", optimal" : "");
}

/* The least of 1, 2, 5, 10, 20 ... that divides the span into few parts. */
static uint64_t time_step(uint64_t span) {
    uint64_t step = 1;
    for (unsigned i = 0; span / step > MAX_TIME_TICKS; i++) { step = i % 3 == 1 ? step / 2 * 5 : step * 2; }
    return step;
}

static void put_time_axis(drawing *d) {
    const uint64_t step = time_step(d->last - d->first);
    uint64_t time = d->first / step * step;
    if (time < d->first && !ebb_add_u64(time, step, &time)) { return; }
    while (time <= d->last) {
        put(d, "<g transform=\"translate(");
        ebb__svg_put_number(d->out, x_of(d, time));
        (void)ebb__file_writer_printf(d->out, ")\"><path class=\"grid\" d=\"M0 0v%u\"/><text class=\"dim\" ",
                                      EBB_SVG_PLOT_HEIGHT);
        (void)ebb__file_writer_printf(d->out, "y=\"%u\" text-anchor=\"middle\">%" PRIu64 "</text></g>\n",
                                      EBB_SVG_PLOT_HEIGHT + 18, time);
        if (!ebb_add_u64(time, step, &time)) { break; }
    }
    (void)ebb__file_writer_printf(d->out, "<text class=\"dim\" x=\"%u\" y=\"%u\" text-anchor=\"middle\">",
                                  EBB_SVG_PLOT_WIDTH / 2, EBB_SVG_PLOT_HEIGHT + 40);
    put_text(d, d->picture->time_name != NULL ? d->picture->time_name : "time");
    put(d, "</text>\n");
}

static void put_byte_axis(drawing *d) {
    uint64_t step = 1;
    while (d->top_bytes / step > MAX_BYTE_TICKS) { step *= 2; }
    for (uint64_t i = 0; i <= d->top_bytes / step; i++) {
        const uint64_t bytes = i * step;
        put(d, "<g transform=\"translate(0 ");
        ebb__svg_put_number(d->out, y_of(d, bytes));
        (void)ebb__file_writer_printf(d->out, ")\"><path class=\"grid\" d=\"M0 0h%u\"/>", EBB_SVG_PLOT_WIDTH);
        put(d, "<text class=\"dim\" x=\"-8\" y=\"4\" text-anchor=\"end\">");
        put_bytes(d, bytes);
        put(d, "</text></g>\n");
    }
    (void)ebb__file_writer_printf(d->out,
                                  "<text class=\"dim\" transform=\"translate(-84 %u)rotate(-90)\" "
                                  "text-anchor=\"middle\">offset</text>\n",
                                  EBB_SVG_PLOT_HEIGHT / 2);
}

static void put_mark(drawing *d, uint64_t bytes, const char *name) {
    EBB_ASSERT(bytes <= d->top_bytes);
    put(d, "<g transform=\"translate(0 ");
    ebb__svg_put_number(d->out, y_of(d, bytes));
    (void)ebb__file_writer_printf(d->out,
                                  ")\"><path class=\"mark\" d=\"M0 0h%u\"/><text class=\"ink\" x=\"%u\" y=\"-4\" "
                                  "text-anchor=\"end\">%s</text></g>\n",
                                  EBB_SVG_PLOT_WIDTH, EBB_SVG_PLOT_WIDTH, name);
}

static void put_legend(drawing *d) {
    if (d->most == 0) { return; }
    const unsigned n = d->least < d->most ? EBB_SVG_N_CLASSES : 1;
    (void)ebb__file_writer_printf(d->out, "<g transform=\"translate(0 %u)\">\n", EBB_SVG_PLOT_HEIGHT + 58);
    for (unsigned k = 0; k < n; k++) {
        (void)ebb__file_writer_printf(d->out,
                                      "<rect class=\"c%u\" x=\"%u\" width=\"14\" height=\"14\"/>"
                                      "<text class=\"dim\" x=\"%u\" y=\"12\">from ",
                                      k, k * 150, k * 150 + 20);
        put_bytes(d, (uint64_t)class_begin(d, k));
        put(d, "</text>\n");
    }
    put(d, "</g>\n");
}

static ebb_status draw(drawing *d) {
    find_axes(d);
    put_head(d);
    (void)ebb__file_writer_printf(d->out, "<g transform=\"translate(%u %u)\" stroke-width=\"1\" fill=\"none\">\n", LEFT,
                                  TOP);
    put_time_axis(d);
    put_byte_axis(d);
    EBB_TRY(put_items(d));
    const bool one_mark = d->picture->peak_bytes == d->picture->bound_bytes;
    put_mark(d, d->picture->peak_bytes, one_mark ? "peak = bound" : "peak");
    if (!one_mark) { put_mark(d, d->picture->bound_bytes, "bound"); }
    put_legend(d);
    put(d, "</g>\n</svg>\n");
    return EBB_OK;
}

ebb_status ebb_place_file_draw(const ebb_place_file *file, const uint64_t *offsets, const ebb_place_picture *picture,
                               const char *path) {
    EBB_NEED(file);
    EBB_NEED_ARRAY(offsets, file->items.n);
    EBB_NEED(path);
    const ebb_place_picture plain = EBB_PLACE_PICTURE_INIT;
    if (picture == NULL) { picture = &plain; }
    if (picture->size_bytes != sizeof *picture) { return ebb_fail(EBB_E_ARGUMENT, "a picture of another version"); }
    EBB_TRY(ebb__place_file_check_ends(file, offsets));
    drawing d = {.file = file, .offsets = offsets, .picture = picture};
    EBB_TRY(ebb__file_writer_open(file->mem, path, 0, &d.out));
    ebb_status st = draw(&d);
    EBB_VEC_FINI(file->mem, &d.rects);
    if (st == EBB_OK) { return ebb__file_writer_commit(d.out); }
    ebb__file_writer_abandon(d.out);
    return st;
}
