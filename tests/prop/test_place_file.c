/* SPDX-License-Identifier: Apache-2.0
 *
 * Placement files, there and back: random problems of every kind with their answers, and random files with every
 * column in any order. A written file reads back the same, and writes the same bytes again.
 */
#include "base/file.h"
#include "place/place_csv.h"
#include "place_expect.h"
#include "place_slow.h"

#include <unistd.h>

#define MAX_ID 24u

typedef unsigned long long ull;

static char path[64];

static char *read_back(size_t *n_out) {
    char *text = NULL;
    assert_int_equal(ebb__file_read_all(NULL, path, 1 << 24, &text, n_out), EBB_OK);
    return text;
}

/* Text that a careless writer would get wrong; the number makes it no other's. */
static void draw_text(ebb_rng *rng, uint64_t number, char *text /* [MAX_ID + 24] */) {
    static const char letters[] = ",\"\r\n \t'aZ0-\xef\xbb\xbf\xc3\xa4@;\\";
    const size_t n = ebb__rng_below(rng, MAX_ID);
    for (size_t i = 0; i < n; i++) { text[i] = letters[ebb__rng_below(rng, sizeof letters - 1)]; }
    text[n] = '\0';
    if (number != UINT64_MAX) { (void)sprintf(text + n, "#%llu", (ull)number); }
}

/* ---- answers ---------------------------------------------------------------------------------- */

static uint64_t alignment_of(const ebb_place_problem *p, size_t i) {
    return p->alignments != NULL ? p->alignments[i] : p->alignment_bytes;
}

/* NULL where an answer's file says what the problem did, but for circles, which it has as gaps. */
static const char *compare(const slow_problem *s, const ebb_place_file *file, const char *const *ids,
                           const uint64_t *offsets) {
    const ebb_place_problem p = ebb_place_file_problem(file);
    if (p.n_items != s->p.n_items) { return "has other items"; }
    for (size_t i = 0; i < p.n_items; i++) {
        const uint64_t own = alignment_of(&p, i);
        if (strcmp(ebb_place_file_id(file, i), ids[i]) != 0) { return "has another id"; }
        if (p.fixed == NULL || p.fixed[i] != offsets[i]) { return "has another offset"; }
        if (p.items[i].size_bytes != s->items[i].size_bytes) { return "has another size"; }
        if (own % s->p.alignment_bytes != 0 || own % alignment_of(&s->p, i) != 0) { return "has another alignment"; }
        if (s->p.period == 0 && memcmp(&p.items[i], &s->items[i], sizeof p.items[i]) != 0) { return "lives else"; }
    }
    if (s->p.period == 0 && p.n_gaps != s->p.n_gaps) { return "has other gaps"; }
    for (size_t g = 0; s->p.period == 0 && g < p.n_gaps; g++) {
        ebb_place_gap wanted = s->gaps[g];
        if (wanted.low_bytes == wanted.high_bytes) { wanted.low_bytes = wanted.high_bytes = 0; }
        if (memcmp(&p.gaps[g], &wanted, sizeof wanted) != 0) { return "has gaps elsewhere"; }
    }
    return NULL;
}

/* Windows are rounded to a problem's alignment, which a file has for each item: here none exists. */
static void test_answers(void **state) {
    (void)state;
    for (uint64_t seed = 0; seed < 1500; seed++) {
        static char text[SLOW_MAX_ITEMS][MAX_ID + 24];
        const char *ids[SLOW_MAX_ITEMS];
        uint64_t offsets[SLOW_MAX_ITEMS + 1], again_peak = 0;
        ebb_rng rng;
        ebb__rng_init(&rng, seed, 21);
        slow_problem s;
        slow_draw(&s, &rng, (unsigned)seed % SLOW_N_KINDS);
        ebb_place_file *file = NULL, *again = NULL;
        ebb_place_options options = EBB_PLACE_OPTIONS_INIT;
        size_t n = 0, n_again = 0;
        options.max_steps = 500;
        for (size_t i = 0; i < s.p.n_items; i++) {
            draw_text(&rng, i, text[i]);
            ids[i] = text[i];
        }
        const uint64_t peak = expect_answer(&s.p, &options, offsets, seed).peak_bytes;
        if (ebb_place_file_create(NULL, &s.p, ids, &file) != EBB_OK ||
            ebb_place_file_write(file, offsets, path) != EBB_OK || ebb_place_file_read(NULL, path, &again) != EBB_OK) {
            fail_msg("seed %llu: %s", (ull)seed, ebb_last_error());
        }
        const char *wrong = s.p.n_items > 0 ? compare(&s, again, ids, offsets) : NULL;
        if (wrong != NULL) { fail_msg("seed %llu: %s", (ull)seed, wrong); }
        const ebb_place_problem p = ebb_place_file_problem(again);
        if (ebb_place_check(&p, NULL, offsets, &again_peak) != EBB_OK || again_peak > peak) {
            fail_msg("seed %llu: %s; peak %llu, not %llu", (ull)seed, ebb_last_error(), (ull)again_peak, (ull)peak);
        }
        char *first = read_back(&n);
        assert_int_equal(ebb_place_file_write(again, offsets, path), EBB_OK);
        char *second = read_back(&n_again);
        if (n != n_again || memcmp(first, second, n) != 0) { fail_msg("seed %llu: other bytes", (ull)seed); }
        free(first);
        free(second);
        ebb_place_file_destroy(again);
        ebb_place_file_destroy(file);
    }
}

/* ---- columns ---------------------------------------------------------------------------------- */

static void put_quoted(FILE *out, const char *text) {
    fputc('"', out);
    for (; *text != '\0'; text++) { fprintf(out, *text == '"' ? "\"\"" : "%c", *text); }
    fputc('"', out);
}

static void put_number(FILE *out, const char *before, uint64_t x, const char *after) {
    fprintf(out, "%s%llu%s", before, (ull)x, after);
}

static void put_gaps(FILE *out, uint64_t row) {
    put_number(out, "", row + 9, "-");
    put_number(out, "", row + 12, "  ");
    put_number(out, "", row + 3, "-");
    put_number(out, "", row + 5, "@0:0");
}

/* One field of a row, often in another form than it is written in. */
static void put_field(FILE *out, ebb_rng *rng, unsigned column, uint64_t row) {
    char text[MAX_ID + 24];
    const uint64_t drawn = ebb__rng_below(rng, UINT64_MAX / 2);
    switch (column) {
    case 1: put_number(out, " 0", row, ""); break;
    case 2: put_number(out, "\" ", row + 20, "\""); break;
    case 3: put_number(out, "", drawn % 1000, " "); break;
    case 4: row % 3 == 0 ? (void)fputs("", out) : put_number(out, "", 1 + row % 7, ""); break;
    case 5: row % 3 == 0 ? (void)fputs(row % 2 == 0 ? "-1" : " ", out) : put_number(out, "", drawn, ""); break;
    case 6: row % 2 == 0 ? (void)fputs(" ", out) : put_gaps(out, row); break;
    case 7: row % 4 == 0 ? put_number(out, "", row * 420, "\t") : (void)fputs("", out); break;
    default: draw_text(rng, column == 0 ? row : UINT64_MAX, text); put_quoted(out, text);
    }
}

static void write_random(ebb_rng *rng) {
    static const char *const names[] = {"id",   "lower", "upper",  "size", "alignment",
                                        "hint", "gaps",  "offset", "x,y",  "\"note\""};
    enum { N = sizeof names / sizeof names[0] };
    unsigned order[N];
    FILE *out = fopen(path, "wb");
    assert_non_null(out);
    for (unsigned c = 0; c < N; c++) {
        const unsigned at = (unsigned)ebb__rng_below(rng, c + 1);
        order[c] = order[at];
        order[at] = c;
    }
    for (unsigned c = 0; c < N; c++) {
        fputs(c > 0 ? "," : "", out);
        put_quoted(out, names[order[c]]);
    }
    for (uint64_t row = 0, n = ebb__rng_below(rng, 30); row < n; row++) {
        for (unsigned c = 0; c < N; c++) {
            fputs(c > 0 ? "," : row % 2 == 0 ? "\r\n" : "\n", out);
            put_field(out, rng, order[c], row);
        }
    }
    assert_int_equal(fclose(out), 0);
}

#define SAME(a, b, member)                                                                                             \
    ((a)->member.n == (b)->member.n && ((a)->member.n == 0 || memcmp((a)->member.data, (b)->member.data,               \
                                                                     (a)->member.n * sizeof *(a)->member.data) == 0))

static bool same_columns(const ebb_place_file *a, const ebb_place_file *b) {
    bool same = a->columns.n == b->columns.n;
    for (size_t c = 0; same && c < a->columns.n; c++) { /* there is padding in them */
        same = a->columns.data[c].kind == b->columns.data[c].kind && a->columns.data[c].name == b->columns.data[c].name;
    }
    return same;
}

static void test_columns(void **state) {
    (void)state;
    for (uint64_t seed = 0; seed < 1000; seed++) {
        ebb_rng rng;
        ebb__rng_init(&rng, seed, 22);
        ebb_place_file *a = NULL, *b = NULL;
        uint64_t offsets[30] = {0};
        write_random(&rng);
        if (ebb_place_file_read(NULL, path, &a) != EBB_OK) { fail_msg("seed %llu: %s", (ull)seed, ebb_last_error()); }
        const ebb_place_problem p = ebb_place_file_problem(a);
        for (size_t i = 0; i < p.n_items && p.fixed != NULL; i++) {
            offsets[i] = p.fixed[i] != EBB_PLACE_ANYWHERE ? p.fixed[i] : 0;
        }
        assert_int_equal(ebb_place_file_write(a, offsets, path), EBB_OK);
        if (ebb_place_file_read(NULL, path, &b) != EBB_OK) { fail_msg("seed %llu: %s", (ull)seed, ebb_last_error()); }
        if (!same_columns(a, b) || !SAME(a, b, names) || !SAME(a, b, items) || !SAME(a, b, alignments) ||
            !SAME(a, b, hints) || !SAME(a, b, gaps) || !SAME(a, b, texts) || !SAME(a, b, row_text)) {
            fail_msg("seed %llu: it comes back as another", (ull)seed);
        }
        ebb_place_file_destroy(a);
        ebb_place_file_destroy(b);
    }
}

static int remove_file(void **state) {
    (void)state;
    (void)unlink(path);
    return 0;
}

int main(void) {
    (void)snprintf(path, sizeof path, "%s/ebb-test-place-file-%d.csv",
                   access("/dev/shm", W_OK) == 0 ? "/dev/shm" : "/tmp", (int)getpid()); /* a disk would sync each */
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_answers),
        cmocka_unit_test(test_columns),
    };
    return cmocka_run_group_tests(tests, NULL, remove_file);
}
