/* SPDX-License-Identifier: Apache-2.0
 *
 * A comparison as a picture: memory to the right, predicted time upwards, a line for each policy, and shaded what no
 * plan reaches. Measured times, where there are some, are rings. A line is broken where a policy has no plan.
 *
 *      +---------------------------------------+
 *      | \ policy a                            |  policies beside the plot, the fastest at the least
 *      |   \_______                            |  budget last
 *      |----------- policy b -------           |
 *      |::::::::::: no plan ::::::::           |
 *      +---------------------------------------+
 *
 * A policy that takes several times as long as the bound would press all others together, so times are then on a
 * logarithmic scale. Coordinates are whole tenths of a pixel, written here and not by the C library, whose decimal
 * point depends on the locale. Colours come from style classes, with a second set for dark pages.
 */
#include "plan/comparison.h"

#include <inttypes.h>
#include <math.h>

#define LEFT 84.0
#define TOP 64.0
#define PLOT_WIDTH 760.0
#define PLOT_HEIGHT 460.0
#define LEGEND 210.0
#define BOTTOM 64.0
#define N_COLOURS 10u
#define LOG_FROM 3.0 /* times the least, from which the scale is logarithmic */
#define N_TICKS 8u

typedef struct drawing {
    const ebb_comparison *c;
    ebb_file_writer *out;
    double x_least, x_most, y_least, y_most;
    bool is_log;
} drawing;

/* ---- text -------------------------------------------------------------------------------------- */

static void put(const drawing *d, const char *text) {
    (void)ebb__file_writer_write(d->out, text, strlen(text));
}

/* Names come from files: what is markup, and what is not plain, is a question mark. */
static void put_name(const drawing *d, const char *name) {
    for (const char *c = name; *c != '\0'; c++) {
        const bool is_plain = *c >= 0x20 && *c < 0x7f && strchr("<>&\"", *c) == NULL;
        (void)ebb__file_writer_write(d->out, is_plain ? c : "?", 1);
    }
}

/* Tenths. */
static void put_number(const drawing *d, double x) {
    const int64_t tenths = (int64_t)floor(x * 10 + 0.5), size = tenths < 0 ? -tenths : tenths;
    (void)ebb__file_writer_printf(d->out, "%s%" PRId64 ".%" PRId64, tenths < 0 ? "-" : "", size / 10, size % 10);
}

static void put_point(const drawing *d, const char *before, double x, double y) {
    put(d, before);
    put_number(d, x);
    put(d, " ");
    put_number(d, y);
}

static void put_attribute(const drawing *d, const char *name, double x) {
    put(d, " ");
    put(d, name);
    put(d, "=\"");
    put_number(d, x);
    put(d, "\"");
}

/* Four digits: "12.34 s", "56.78 ms". */
static const char *time_text(double ns, char buf[40]) {
    static const char *const units[] = {"ns", "us", "ms", "s"};
    size_t unit = 0;
    double x = ns;
    for (; x >= 1000 && unit + 1 < sizeof units / sizeof units[0]; unit++) { x /= 1000; }
    const uint64_t digits = x < 10 ? 1000 : x < 100 ? 100 : x < 1000 ? 10 : 1;
    const uint64_t whole = (uint64_t)(x * (double)digits + 0.5);
    if (digits == 1) {
        snprintf(buf, 40, "%" PRIu64 " %s", whole, units[unit]);
    } else {
        snprintf(buf, 40, "%" PRIu64 ".%0*" PRIu64 " %s", whole / digits,
                 digits == 1000  ? 3
                 : digits == 100 ? 2
                                 : 1,
                 whole % digits, units[unit]);
    }
    return buf;
}

/* ---- scales ------------------------------------------------------------------------------------ */

static double x_of(const drawing *d, double bytes) {
    return LEFT + (bytes - d->x_least) / (d->x_most - d->x_least) * PLOT_WIDTH;
}

static double scaled(const drawing *d, double ns) {
    return d->is_log ? log(ns) : ns;
}

static double y_of(const drawing *d, double ns) {
    const double low = scaled(d, d->y_least), high = scaled(d, d->y_most);
    const double at = (scaled(d, fmax(ns, d->y_least)) - low) / (high - low);
    return TOP + PLOT_HEIGHT - fmin(at, 1) * PLOT_HEIGHT;
}

/* 1, 2 or 5 times a power of ten, so that there are at most n of them in the range. */
static double nice_step(double range, uint32_t n) {
    const double power = pow(10, floor(log10(range / n)));
    for (double step = power;; step *= 10) {
        if (range / step <= n) { return step; }
        if (range / (2 * step) <= n) { return 2 * step; }
        if (range / (5 * step) <= n) { return 5 * step; }
    }
}

static void find_times(drawing *d) {
    const ebb_comparison *c = d->c;
    double least = INFINITY, most = 0;
    for (size_t i = 0; i < c->n_budgets; i++) { least = fmin(least, (double)c->budgets[i].certificate.bound_ns); }
    for (size_t i = 0; i < c->n_budgets * c->n_policies; i++) {
        const ebb_compared *row = &c->rows[i];
        if (row->plan == NULL) { continue; }
        least = fmin(least, (double)row->timeline.iteration_ns);
        most = fmax(most, (double)row->timeline.iteration_ns);
        if (!row->run.has_run) { continue; }
        least = fmin(least, row->run.time_s * 1e9);
        most = fmax(most, row->run.time_s * 1e9);
    }
    least = fmax(least, 1);
    most = fmax(most, least * 1.02);
    d->is_log = most > LOG_FROM * least;
    d->y_least = d->is_log ? least / 1.15 : fmax(least - 0.12 * (most - least), 0);
    d->y_most = d->is_log ? most * 1.08 : most + 0.05 * (most - least);
}

static void find_scales(drawing *d) {
    const ebb_comparison *c = d->c;
    const double least = (double)c->budgets[d->c->by_bytes[0]].bytes;
    const double most = (double)c->budgets[d->c->by_bytes[c->n_budgets - 1]].bytes;
    const double margin = most > least ? 0.03 * (most - least) : 0.1 * least + 1;
    d->x_least = fmax(least - margin, 0);
    d->x_most = most + margin;
    find_times(d);
}

/* ---- the frame --------------------------------------------------------------------------------- */

static void put_style(const drawing *d) {
    static const char *const light[N_COLOURS] = {"#1f5fbf", "#c2410c", "#15803d", "#9333ea", "#b91c1c",
                                                 "#0e7490", "#a16207", "#db2777", "#4d7c0f", "#475569"};
    static const char *const dark[N_COLOURS] = {"#7db4ff", "#ff9a5c", "#6ee79a", "#cfa6ff", "#ff8f8f",
                                                "#67dff5", "#f2cc5c", "#ff9ccf", "#bde36b", "#b6c2d1"};
    put(d, "<style>svg{font:13px system-ui,sans-serif;background:#fff}text{fill:#222}.t{font-size:17px;font-weight:600}"
           ".g{stroke:#e3e3e3}.a{stroke:#888;fill:none}.b{fill:#dfe3e8}.l{fill:none;stroke-width:2}"
           ".m{fill:none;stroke-width:1.5}.s{fill:#666}");
    for (uint32_t i = 0; i < N_COLOURS; i++) {
        (void)ebb__file_writer_printf(d->out, ".c%" PRIu32 "{stroke:%s}.f%" PRIu32 "{fill:%s}", i, light[i], i,
                                      light[i]);
    }
    put(d, "@media(prefers-color-scheme:dark){svg{background:#16181c}text{fill:#ddd}.g{stroke:#33373d}.b{fill:#2b3038}"
           ".s{fill:#999}");
    for (uint32_t i = 0; i < N_COLOURS; i++) {
        (void)ebb__file_writer_printf(d->out, ".c%" PRIu32 "{stroke:%s}.f%" PRIu32 "{fill:%s}", i, dark[i], i, dark[i]);
    }
    put(d, "}</style>\n");
}

static void put_text(const drawing *d, const char *class, const char *anchor, double x, double y, const char *text) {
    put(d, "<text");
    if (class != NULL) { (void)ebb__file_writer_printf(d->out, " class=\"%s\"", class); }
    if (anchor != NULL) { (void)ebb__file_writer_printf(d->out, " text-anchor=\"%s\"", anchor); }
    put_attribute(d, "x", x);
    put_attribute(d, "y", y);
    put(d, ">");
    put_name(d, text);
    put(d, "</text>\n");
}

static void put_line(const drawing *d, const char *class, double x0, double y0, double x1, double y1) {
    (void)ebb__file_writer_printf(d->out, "<line class=\"%s\"", class);
    put_attribute(d, "x1", x0);
    put_attribute(d, "y1", y0);
    put_attribute(d, "x2", x1);
    put_attribute(d, "y2", y1);
    put(d, "/>\n");
}

/* Bytes at whole numbers of a power of 1024, and below them the share of what liveness needs. */
static void put_memory_axis(const drawing *d) {
    double unit = 1;
    while (unit * 1024 <= d->x_most) { unit *= 1024; }
    if (d->x_most / unit < 4) { unit /= 1024; }
    const double step = fmax(nice_step((d->x_most - d->x_least) / unit, N_TICKS) * unit, 1);
    for (double at = ceil(d->x_least / step) * step; at <= d->x_most; at += step) {
        char text[32], share[40];
        const double x = x_of(d, at);
        put_line(d, "g", x, TOP, x, TOP + PLOT_HEIGHT);
        put_text(d, NULL, "middle", x, TOP + PLOT_HEIGHT + 18, ebb_bytes_format((uint64_t)at, text, sizeof text));
        snprintf(share, sizeof share, "%.0f %%", at / (double)d->c->liveness_bytes * 100);
        put_text(d, "s", "middle", x, TOP + PLOT_HEIGHT + 34, share);
    }
    put_text(d, NULL, "middle", LEFT + PLOT_WIDTH / 2, TOP + PLOT_HEIGHT + 54,
             "memory of the device, and its share of what liveness needs");
}

static void put_time_tick(const drawing *d, double ns) {
    char text[40];
    const double y = y_of(d, ns);
    put_line(d, "g", LEFT, y, LEFT + PLOT_WIDTH, y);
    put_text(d, NULL, "end", LEFT - 8, y + 4, time_text(ns, text));
}

static void put_time_axis(const drawing *d) {
    static const double logarithmic[] = {1, 1.5, 2, 3, 5, 7};
    if (!d->is_log) {
        const double step = nice_step(d->y_most - d->y_least, N_TICKS);
        for (double at = ceil(d->y_least / step) * step; at <= d->y_most; at += step) { put_time_tick(d, at); }
        return;
    }
    for (double power = pow(10, floor(log10(d->y_least))); power <= d->y_most; power *= 10) {
        for (size_t i = 0; i < sizeof logarithmic / sizeof logarithmic[0]; i++) {
            const double at = power * logarithmic[i];
            if (at >= d->y_least && at <= d->y_most) { put_time_tick(d, at); }
        }
    }
}

/* ---- what is in it ----------------------------------------------------------------------------- */

static void put_bound(const drawing *d) {
    const ebb_comparison *c = d->c;
    const double bottom = TOP + PLOT_HEIGHT,
                 last_ns = (double)c->budgets[d->c->by_bytes[c->n_budgets - 1]].certificate.bound_ns;
    put(d, "<path class=\"b\" d=\"");
    put_point(d, "M", LEFT, bottom);
    put_point(d, "L", LEFT, y_of(d, (double)c->budgets[d->c->by_bytes[0]].certificate.bound_ns));
    for (size_t i = 0; i < c->n_budgets; i++) {
        const ebb_compared_budget *b = &c->budgets[d->c->by_bytes[i]];
        put_point(d, "L", x_of(d, (double)b->bytes), y_of(d, (double)b->certificate.bound_ns));
    }
    put_point(d, "L", LEFT + PLOT_WIDTH, y_of(d, last_ns));
    put_point(d, "L", LEFT + PLOT_WIDTH, bottom);
    put(d, "Z\"><title>no plan that runs the steps in this order is faster</title></path>\n");
}

static const ebb_compared *row_of(const drawing *d, size_t budget, size_t policy) {
    return &d->c->rows[budget * d->c->n_policies + policy];
}

/* The colours come again with dashes, then with dots. */
static void put_stroke(const drawing *d, const char *class, size_t policy) {
    static const char *const dashes[] = {"", " stroke-dasharray=\"7 4\"", " stroke-dasharray=\"2 3\""};
    (void)ebb__file_writer_printf(d->out, " class=\"%s c%zu\"%s", class, policy % N_COLOURS,
                                  dashes[policy / N_COLOURS % (sizeof dashes / sizeof dashes[0])]);
}

static void put_policy(const drawing *d, size_t policy) {
    bool goes_on = false;
    put(d, "<path");
    put_stroke(d, "l", policy);
    put(d, " d=\"");
    for (size_t i = 0; i < d->c->n_budgets; i++) {
        const ebb_compared *row = row_of(d, d->c->by_bytes[i], policy);
        if (row->plan != NULL) {
            put_point(d, goes_on ? "L" : "M", x_of(d, (double)d->c->budgets[row->budget].bytes),
                      y_of(d, (double)row->timeline.iteration_ns));
        }
        goes_on = row->plan != NULL;
    }
    put(d, "\"/>\n");
}

static void put_dot(const drawing *d, const ebb_compared *row, size_t policy, bool is_run) {
    char bytes[32], time[40], gap[40];
    const double ns = is_run ? row->run.time_s * 1e9 : (double)row->timeline.iteration_ns;
    put(d, "<circle");
    put_attribute(d, "cx", x_of(d, (double)d->c->budgets[row->budget].bytes));
    put_attribute(d, "cy", y_of(d, ns));
    put_attribute(d, "r", is_run ? 5 : 3);
    (void)ebb__file_writer_printf(d->out, is_run ? " class=\"m c%zu\"" : " class=\"f%zu\"", policy % N_COLOURS);
    put(d, "><title>");
    put_name(d, row->policy);
    snprintf(gap, sizeof gap, ", %" PRIu64 " %% above the bound", (uint64_t)(fmax(row->gap, 0) * 100 + 0.5));
    (void)ebb__file_writer_printf(d->out, "%s: %s, %s%s", is_run ? " (measured)" : "",
                                  ebb_bytes_format(row->summary.peak_bytes, bytes, sizeof bytes), time_text(ns, time),
                                  is_run ? "" : gap);
    put(d, "</title></circle>\n");
}

static void put_dots(const drawing *d) {
    for (size_t i = 0; i < d->c->n_budgets * d->c->n_policies; i++) {
        const ebb_compared *row = &d->c->rows[i];
        if (row->plan == NULL) { continue; }
        put_dot(d, row, i % d->c->n_policies, false);
        if (row->run.has_run) { put_dot(d, row, i % d->c->n_policies, true); }
    }
}

/* Names beside the plot; those without any plan are left out. */
static void put_legend(const drawing *d) {
    const double line = fmin(20, PLOT_HEIGHT / (double)(d->c->n_policies + 1));
    double y = TOP + 12;
    const double x = LEFT + PLOT_WIDTH + 18;
    for (size_t p = 0; p < d->c->n_policies; p++) {
        bool has_plan = false;
        for (size_t i = 0; i < d->c->n_budgets; i++) { has_plan = has_plan || row_of(d, i, p)->plan != NULL; }
        if (!has_plan) { continue; }
        put(d, "<path");
        put_stroke(d, "l", p);
        put(d, " d=\"");
        put_point(d, "M", x, y - 4);
        put_point(d, "L", x + 26, y - 4);
        put(d, "\"/>\n");
        put_text(d, NULL, NULL, x + 34, y, row_of(d, 0, p)->policy);
        y += line;
    }
    put(d, "<rect class=\"b\"");
    put_attribute(d, "x", x);
    put_attribute(d, "y", y - 11);
    put_attribute(d, "width", 26);
    put_attribute(d, "height", 13);
    put(d, "/>\n");
    put_text(d, NULL, NULL, x + 34, y, "no plan is this fast");
}

void ebb__comparison_write_svg(const ebb_comparison *c, ebb_file_writer *out) {
    drawing d = {.c = c, .out = out};
    const double width = LEFT + PLOT_WIDTH + LEGEND, height = TOP + PLOT_HEIGHT + BOTTOM;
    find_scales(&d);
    put(&d, "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 ");
    put_number(&d, width);
    put(&d, " ");
    put_number(&d, height);
    put(&d, "\">\n");
    put_style(&d);
    put_text(&d, "t", NULL, LEFT, 28, c->program);
    put_text(&d, "s", NULL, LEFT, 48,
             d.is_log ? "predicted time of an iteration (logarithmic)" : "predicted time of an iteration");
    put_bound(&d);
    put_memory_axis(&d);
    put_time_axis(&d);
    for (size_t p = 0; p < c->n_policies; p++) { put_policy(&d, p); }
    put_dots(&d);
    put_legend(&d);
    put(&d, "<rect class=\"a\"");
    put_attribute(&d, "x", LEFT);
    put_attribute(&d, "y", TOP);
    put_attribute(&d, "width", PLOT_WIDTH);
    put_attribute(&d, "height", PLOT_HEIGHT);
    put(&d, "/>\n</svg>\n");
}
