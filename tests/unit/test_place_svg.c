/* SPDX-License-Identifier: Apache-2.0
 *
 * Pictures of placements: a rectangle for each part of a life, outlines for gaps, texts that are XML whatever an id
 * holds, few bytes for many items, and every allocation failing in turn.
 */
#include "base/file.h"
#include "place/place_csv.h"
#include "place/place_svg.h"
#include "support.h"

#include <unistd.h>

#define MAX_PICTURE_BYTES ((size_t)5 * 1000 * 1000)

static char path[64];

static ebb_place_file *make(const ebb_place_problem *p, const char *const *ids) {
    ebb_place_file *file = NULL;
    assert_int_equal(ebb_place_file_create(NULL, p, ids, &file), EBB_OK);
    return file;
}

static char *draw(const ebb_place_file *file, const uint64_t *offsets, const ebb_place_picture *picture) {
    char *text = NULL;
    size_t n = 0;
    assert_int_equal(ebb_place_file_draw(file, offsets, picture, path), EBB_OK);
    assert_int_equal(ebb__file_read_all(NULL, path, 1 << 24, &text, &n), EBB_OK);
    assert_true(n < MAX_PICTURE_BYTES);
    assert_int_equal(strlen(text), n);
    return text;
}

/* By hand: the sanitizer's strstr measures the whole text at each call. */
static size_t count(const char *text, const char *what) {
    const size_t n_what = strlen(what);
    size_t n = 0;
    for (const char *at = text; *at != '\0'; at++) { n += *at == *what && strncmp(at, what, n_what) == 0; }
    return n;
}

/* Tags open and close in pairs, and no ampersand is bare: a reader of XML gets through. */
static void check_xml(const char *text) {
    size_t depth = 0;
    for (const char *at = text; *at != '\0'; at++) {
        if (*at == '&') {
            assert_true(strncmp(at, "&amp;", 5) == 0 || strncmp(at, "&lt;", 4) == 0 || strncmp(at, "&gt;", 4) == 0 ||
                        strncmp(at, "&quot;", 6) == 0);
        }
        if (*at != '<') { continue; }
        const char *begin = at;
        while (*at != '>') { assert_int_not_equal(*at++, '\0'); }
        if (begin[1] == '/') {
            assert_true(depth > 0);
            depth--;
        } else if (at[-1] != '/') {
            depth++;
        }
    }
    assert_int_equal(depth, 0);
}

static void test_small(void **state) {
    (void)state;
    const ebb_place_item items[] = {{100, 0, 20}, {60, 5, 10}, {0, 0, 20}};
    const ebb_place_gap gaps[] = {{0, 5, 10, 0, 0}, {0, 12, 15, 0, 40}};
    const char *const ids[] = {"a<b> & \"c\"", "\xc3\xa4\xff\xed\xa0\x80\x01", "none"};
    ebb_place_problem p = EBB_PLACE_PROBLEM_INIT;
    ebb_place_picture picture = EBB_PLACE_PICTURE_INIT;
    p.items = items;
    p.n_items = 3;
    p.gaps = gaps;
    p.n_gaps = 2;
    picture.title = "x & y";
    picture.peak_bytes = 100;
    picture.bound_bytes = 90;
    ebb_place_file *file = make(&p, ids);
    char *text = draw(file, (uint64_t[]){0, 0, 0}, &picture);
    check_xml(text);
    assert_int_equal(count(text, "a&lt;b&gt; &amp; &quot;c&quot;"), 4 + 2); /* parts of its life, and two gaps */
    assert_int_equal(count(text, "class=\"gap\""), 2);
    assert_int_equal(count(text, "\xc3\xa4?????\nsize 60"), 1);
    assert_int_equal(count(text, "none\n"), 0);
    assert_int_equal(count(text, ">x &amp; y</text>"), 1);
    assert_int_equal(count(text, ">peak</text>"), 1);
    assert_int_equal(count(text, ">bound</text>"), 1);
    assert_int_equal(count(text, "peak 100 B (100), bound 90 B (90), 3 buffers</text>"), 1);
    /* [15, 20) of all times, all of its height. */
    assert_int_equal(count(text, "x=\"900\" y=\"0\" width=\"300\" height=\"640\"><title>a&lt;"), 1);
    assert_int_equal(count(text, "x=\"300\" y=\"256\" width=\"300\" height=\"384\"><title>\xc3\xa4"), 1);
    free(text);
    ebb_place_file_destroy(file);
}

/* Around the end of a circle it is two rectangles. */
static void test_circle(void **state) {
    (void)state;
    const ebb_place_item items[] = {{8, 6, 2}, {8, 0, 0}};
    ebb_place_problem p = EBB_PLACE_PROBLEM_INIT;
    p.items = items;
    p.n_items = 2;
    p.period = 8;
    ebb_place_file *file = make(&p, NULL);
    char *text = draw(file, (uint64_t[]){8, 0}, NULL);
    check_xml(text);
    assert_int_equal(count(text, "x=\"0\" y=\"0\" width=\"300\" height=\"320\"><title>0\nsize 8\nlife [6, 2)"), 1);
    assert_int_equal(count(text, "x=\"900\" y=\"0\" width=\"300\" height=\"320\"><title>0\n"), 1);
    assert_int_equal(count(text, "x=\"0\" y=\"320\" width=\"1200\" height=\"320\"><title>1\n"), 1);
    free(text);
    ebb_place_file_destroy(file);
}

static void test_nothing(void **state) {
    (void)state;
    const ebb_place_problem p = EBB_PLACE_PROBLEM_INIT;
    ebb_place_picture other = EBB_PLACE_PICTURE_INIT;
    ebb_place_file *file = make(&p, NULL);
    char *text = draw(file, NULL, NULL);
    check_xml(text);
    free(text);
    other.size_bytes--;
    assert_int_equal(ebb_place_file_draw(file, NULL, &other, path), EBB_E_ARGUMENT);
    assert_int_equal(ebb_place_file_draw(file, NULL, NULL, "/nowhere/a.svg"), EBB_E_IO);
    ebb_place_file_destroy(file);
}

/* Times and offsets at the ends of what 64 bits hold. */
static void test_extremes(void **state) {
    (void)state;
    const ebb_place_item items[] = {{1, 0, 1}, {(uint64_t)1 << 62, UINT64_MAX - 1, UINT64_MAX}, {7, 5, UINT64_MAX}};
    ebb_place_problem p = EBB_PLACE_PROBLEM_INIT;
    p.items = items;
    p.n_items = 3;
    ebb_place_file *file = make(&p, NULL);
    char *text = draw(file, (uint64_t[]){0, ((uint64_t)1 << 62) - 1, 0}, NULL);
    check_xml(text);
    free(text);
    ebb_place_file_destroy(file);
}

/* A plane tiled with more rectangles than are drawn each: large ones are, the rest are pixels without holes. */
static void test_many(void **state) {
    (void)state;
    enum { SIDE = 300, N = SIDE * SIDE };
    ebb_place_item *items = malloc(N * sizeof *items);
    uint64_t *offsets = malloc(N * sizeof *offsets);
    assert_true(items != NULL && offsets != NULL);
    for (uint64_t i = 0; i < N; i++) {
        items[i] = (ebb_place_item){10 + i % 2, i / SIDE, i / SIDE + 1};
        offsets[i] = i % SIDE * 11;
    }
    ebb_place_problem p = EBB_PLACE_PROBLEM_INIT;
    p.items = items;
    p.n_items = N;
    ebb_place_file *file = make(&p, NULL);
    char *text = draw(file, offsets, NULL);
    check_xml(text);
    const size_t n_drawn = count(text, "<rect class=\"c");
    assert_in_range(n_drawn, 10000, N / 2);
    assert_in_range(count(text, "too small to be drawn one by one"), 1, 2);
    free(text);
    ebb_place_file_destroy(file);
    free(items);
    free(offsets);
}

/* The grid alone: a cell is drawn where parts that are each too little cover enough of it together. */
static void test_grid(void **state) {
    (void)state;
    ebb_svg_grid *grid = NULL;
    ebb_file_writer *out = NULL;
    char *text = NULL;
    size_t n = 0;
    assert_int_equal(ebb__svg_grid_create(NULL, &grid), EBB_OK);
    for (unsigned i = 0; i < 8; i++) { /* each a sixteenth of two cells, of the third and fourth column */
        const float y = 10.0f + (float)i / 8.0f;
        ebb__svg_grid_add(grid, &(ebb_svg_rect){.x0 = 4, .x1 = 8, .y0 = y, .y1 = y + 0.125f, .size_class = 2});
    }
    const float left = (float)EBB_SVG_PLOT_WIDTH - 2, bottom = (float)EBB_SVG_PLOT_HEIGHT - 2;
    ebb__svg_grid_add(grid, &(ebb_svg_rect){left, left + 2, bottom, bottom + 2, 0, 7, false});
    ebb__svg_grid_add(grid, &(ebb_svg_rect){.x0 = 100, .x1 = 100.2f, .y0 = 100, .y1 = 100.2f, .size_class = 5});
    assert_int_equal(ebb__file_writer_open(NULL, path, 0, &out), EBB_OK);
    ebb__svg_grid_write(grid, out);
    assert_int_equal(ebb__file_writer_commit(out), EBB_OK);
    ebb__svg_grid_destroy(grid);
    assert_int_equal(ebb__file_read_all(NULL, path, 1 << 20, &text, &n), EBB_OK);
    assert_string_equal(text,
                        "<g transform=\"scale(2)translate(0 .5)\">\n"
                        "<path class=\"p2\" d=\"M2 5h2\"><title>8 too small to be drawn one by one</title></path>\n"
                        "<path class=\"p7\" d=\"M599 319h1\"><title>1 too small to be drawn one by one</title></path>\n"
                        "</g>\n");
    free(text);
}

static void test_oom(void **state) {
    (void)state;
    enum { N = 100 };
    ebb_place_item items[N];
    const uint64_t offsets[N] = {0};
    for (uint64_t i = 0; i < N; i++) { items[i] = (ebb_place_item){1 + i % 5, i, (i + 4) % N}; }
    ebb_place_problem p = EBB_PLACE_PROBLEM_INIT;
    p.items = items;
    p.n_items = N;
    p.period = N;
    OOM_LOOP(mem, st, {
        ebb_place_file *file = NULL;
        st = ebb_place_file_create(mem, &p, NULL, &file);
        if (st == EBB_OK) { st = ebb_place_file_draw(file, offsets, NULL, path); }
        ebb_place_file_destroy(file);
    });
    OOM_LOOP(mem, st, {
        ebb_svg_grid *grid = NULL;
        st = ebb__svg_grid_create(mem, &grid);
        ebb__svg_grid_destroy(grid);
    });
}

static int remove_file(void **state) {
    (void)state;
    (void)unlink(path);
    return 0;
}

int main(void) {
    (void)snprintf(path, sizeof path, "/tmp/ebb-test-place-svg-%d.svg", (int)getpid());
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_small),    cmocka_unit_test(test_circle), cmocka_unit_test(test_nothing),
        cmocka_unit_test(test_extremes), cmocka_unit_test(test_many),   cmocka_unit_test(test_grid),
        cmocka_unit_test(test_oom),
    };
    return cmocka_run_group_tests(tests, NULL, remove_file);
}
