/* SPDX-License-Identifier: Apache-2.0
 *
 * Placement files: every column in, every column out, each rule broken once with the message that names line and
 * column, what comes from elsewhere, and every allocation failing in turn.
 */
#include "base/file.h"
#include "place/place_csv.h"
#include "support.h"

#include <errno.h>
#include <unistd.h>

#define N_ITEMS(array) (sizeof(array) / sizeof(array)[0])

static char path[64];

static ebb_status parse(const ebb_mem *mem, const char *text, size_t n_bytes, ebb_place_file **file_out) {
    ebb_csv csv;
    EBB_TRY(ebb__csv_open_memory(mem, "f", text, n_bytes, &csv));
    ebb_status st = ebb__place_file_parse(&csv, file_out);
    ebb__csv_close(&csv);
    return st;
}

static ebb_place_file *parsed(const char *text) {
    ebb_place_file *file = NULL;
    if (parse(NULL, text, strlen(text), &file) != EBB_OK) { fail_msg("%s: %s", text, ebb_last_error()); }
    return file;
}

static char *written(const ebb_place_file *file, const uint64_t *offsets) {
    char *text = NULL;
    size_t n = 0;
    assert_int_equal(ebb_place_file_write(file, offsets, path), EBB_OK);
    assert_int_equal(ebb__file_read_all(NULL, path, 1 << 20, &text, &n), EBB_OK);
    return text;
}

/* Read text; what is written with these offsets is wanted. */
static void becomes(const char *text, const uint64_t *offsets, const char *wanted) {
    ebb_place_file *file = parsed(text);
    char *got = written(file, offsets);
    assert_string_equal(got, wanted);
    free(got);
    ebb_place_file_destroy(file);
}

/* ---- reading ---------------------------------------------------------------------------------- */

static void test_all_columns(void **state) {
    (void)state;
    ebb_place_file *file = parsed("size,note,offset,gaps,upper,id,hint,alignment,lower\n"
                                  "100,x,,,9,a,7,16,2\n"
                                  "50,,32,8-9 4-6@10:20,11,b,,,3\n");
    const ebb_place_problem p = ebb_place_file_problem(file);
    assert_int_equal(p.n_items, 2);
    assert_int_equal(p.alignment_bytes, 1);
    assert_int_equal(p.period, 0);
    assert_int_equal(p.items[0].size_bytes, 100);
    assert_int_equal(p.items[0].first, 2);
    assert_int_equal(p.items[0].last, 9);
    assert_int_equal(p.alignments[0], 16);
    assert_int_equal(p.alignments[1], 1);
    assert_true(p.fixed[0] == EBB_PLACE_ANYWHERE);
    assert_int_equal(p.fixed[1], 32);
    assert_int_equal(p.n_gaps, 2);
    assert_int_equal(p.gaps[0].item, 1);
    assert_int_equal(p.gaps[0].first, 4);
    assert_int_equal(p.gaps[0].last, 6);
    assert_int_equal(p.gaps[0].low_bytes, 10);
    assert_int_equal(p.gaps[0].high_bytes, 20);
    assert_int_equal(p.gaps[1].first, 8);
    assert_int_equal(p.gaps[1].high_bytes, 0);
    assert_string_equal(ebb_place_file_id(file, 0), "a");
    assert_string_equal(ebb_place_file_id(file, 1), "b");
    ebb_place_file_destroy(file);
}

static void test_defaults_are_absent(void **state) {
    (void)state;
    ebb_place_file *file = parsed("id,lower,upper,size,alignment,hint,gaps,offset\na,0,1,5,1,,,\nb,0,1,5,,-1, ,\n");
    const ebb_place_problem p = ebb_place_file_problem(file);
    assert_null(p.alignments);
    assert_null(p.fixed);
    assert_null(p.gaps);
    assert_int_equal(p.n_gaps, 0);
    ebb_place_file_destroy(file);
}

static void test_inclusive_end(void **state) {
    (void)state;
    ebb_place_file *file = parsed("buffer_id,start,end,size,gaps\na,3,3,5,\nb,0,9,5,2-2 4-5\n");
    const ebb_place_problem p = ebb_place_file_problem(file);
    assert_int_equal(p.items[0].last, 4);
    assert_int_equal(p.items[1].last, 10);
    assert_int_equal(p.gaps[0].last, 3);
    assert_int_equal(p.gaps[1].last, 6);
    ebb_place_file_destroy(file);
    becomes("buffer,begin,end,size,gaps\na,3,3,5,\nb,0,9,5,2-2 4-5\n", (uint64_t[]){0, 7},
            "buffer,begin,end,size,gaps,offset\na,3,3,5,,0\nb,0,9,5,2-2 4-5,7\n");
}

static void test_forms_of_text(void **state) {
    (void)state;
    static const char *const forms[] = {
        "id,lower,upper,size\na,0,1,5\nb,1,2,6\n",
        "id,lower,upper,size\r\na,0,1,5\r\nb,1,2,6\r\n",
        "id,lower,upper,size\na,0,1,5\nb,1,2,6",
        "id,lower,upper,size\r\na,0,1,5\r\nb,1,2,6\r",
        "\xef\xbb\xbfid,lower,upper,size\na,0,1,5\nb,1,2,6\n",
        "\n\n id , lower,\tupper,size\n\na,0,1,5\n \t\r\n\nb,1,2,6\n\n\n",
        "\"id\",\"lower\",\"upper\",\"size\"\n\"a\",\"0\",\"1\",\"5\"\r\nb,1,2,\"6\"",
        "id,lower,upper,size\na, 0,1\t,5 \nb,01,0002,6\n",
    };
    for (size_t i = 0; i < N_ITEMS(forms); i++) {
        becomes(forms[i], (uint64_t[]){0, 8}, "id,lower,upper,size,offset\na,0,1,5,0\nb,1,2,6,8\n");
    }
}

static void test_quotes(void **state) {
    (void)state;
    const char *text = "id,lower,upper,size,\"a, \"\"b\"\"\"\n\"x,\"\"y\",0,1,5,\"two\nlines\"\nin\"side,0,1,5,\" \"\n";
    const char *wanted = "id,lower,upper,size,\"a, \"\"b\"\"\",offset\n\"x,\"\"y\",0,1,5,\"two\nlines\",0\n"
                         "\"in\"\"side\",0,1,5, ,9\n";
    becomes(text, (uint64_t[]){0, 9}, wanted);
    ebb_place_file *file = parsed(text);
    assert_string_equal(ebb_place_file_id(file, 0), "x,\"y");
    ebb_place_file_destroy(file);
}

static void test_no_buffers(void **state) {
    (void)state;
    becomes("id,lower,upper,size", NULL, "id,lower,upper,size,offset\n");
    becomes("lower,offset,upper,size,id\n\n", NULL, "lower,offset,upper,size,id\n");
}

/* A file that is written, read and written again is the same; and offsets stand where the column is. */
static void test_round_trip(void **state) {
    (void)state;
    const char *wanted = "size,note,offset,gaps,upper,id,hint,alignment,lower\n"
                         "100,x,16,,9,a,7,16,2\n"
                         "50,,32,4-6@10:20 8-9,11,b,-1,1,3\n";
    becomes("size,note,offset,gaps,upper,id,hint,alignment,lower\n"
            "100,x,,,9,a,7,16,2\n"
            "50,,32,8-9 4-6@10:20,11,b,,,3\n",
            (uint64_t[]){16, 32}, wanted);
    becomes(wanted, (uint64_t[]){16, 32}, wanted);
}

/* A field, and a record, longer than the reader's buffer, and pieces that its end cuts, come whole. */
static void test_long_records(void **state) {
    (void)state;
    enum { N = 200 * 1000 };
    char *text = malloc(N + 200);
    assert_non_null(text);
    size_t n = (size_t)sprintf(text, "id,lower,upper,size\n\"");
    for (size_t i = 0; i < N; i++) { text[n++] = (char)(i % 3 == 0 ? '"' : i % 3 == 1 ? '"' : 'z'); }
    n += (size_t)sprintf(text + n, "\"\"\",0,1,5\nb,0,1,5\n");
    FILE *out = fopen(path, "wb");
    assert_int_equal(fwrite(text, 1, n, out), n);
    assert_int_equal(fclose(out), 0);
    ebb_place_file *file = NULL;
    assert_int_equal(ebb_place_file_read(NULL, path, &file), EBB_OK);
    const char *id = ebb_place_file_id(file, 0);
    assert_int_equal(strlen(id), (N / 3) * 2 + 2);
    for (size_t i = 0; i + 1 < strlen(id); i++) { assert_int_equal(id[i], i % 2 == 0 ? '"' : 'z'); }
    assert_string_equal(ebb_place_file_id(file, 1), "b");
    ebb_place_file_destroy(file);
    free(text);
}

static void test_many_rows(void **state) {
    (void)state;
    enum { N = 20 * 1000 };
    char *text = malloc((size_t)N * 40);
    assert_non_null(text);
    size_t n = (size_t)sprintf(text, "id,lower,upper,size,alignment\n");
    for (size_t i = 0; i < N; i++) { n += (size_t)sprintf(text + n, "b%zu,%zu,%zu,%zu,4\n", i, i, i + 3, i * 7); }
    ebb_place_file *file = parsed(text);
    const ebb_place_problem p = ebb_place_file_problem(file);
    assert_int_equal(p.n_items, N);
    for (size_t i = 0; i < N; i++) {
        char id[16];
        sprintf(id, "b%zu", i);
        assert_string_equal(ebb_place_file_id(file, i), id);
        assert_int_equal(p.items[i].size_bytes, i * 7);
        assert_int_equal(p.alignments[i], 4);
    }
    ebb_place_file_destroy(file);
    (void)sprintf(text + n, "b%d,0,1,2,3\n", N / 2);
    ebb_place_file *none = NULL;
    assert_int_equal(parse(NULL, text, strlen(text), &none), EBB_E_FORMAT);
    assert_string_equal(ebb_last_error(), "f:20002: id: 'b10000' is there already, on line 10002");
    assert_null(none);
    free(text);
}

/* ---- refusing --------------------------------------------------------------------------------- */

static void test_refusals(void **state) { /* long: one table */
    (void)state;
#define HEAD "id,lower,upper,size\n"
#define MORE "id,lower,upper,size,alignment,hint,gaps,offset\n"
#define BIG "99999999999999999999"
    static const struct {
        const char *text, *message;
    } cases[] = {
        {"", "f: the file is empty: it has no line of columns"},
        {"\n\r\n", "f: the file is empty: it has no line of columns"},
        {"\xef\xbb\xbf", "f: the file is empty: it has no line of columns"},
        {"\nid,lower,size\n",
         "f:2: there is no column 'upper': the first line names them, in lower case, with commas between"},
        {"a,0,1,5\n", "f:1: there is no column 'id': the first line names them, in lower case, with commas between"},
        {"id,lower,upper,size,size\n", "f:1: column: 'size' is there twice"},
        {"id,note,lower,upper,note,size\n", "f:1: column: 'note' is there twice"},
        {"id,lower,upper,end,size\n", "f:1: column: 'end' is the same as the column 'upper'"},
        {"id,lower,start,upper,size\n", "f:1: column: 'start' is the same as the column 'lower'"},
        {"id,lower,upper,size,\n", "f:1: column: '' is no name"},
        {HEAD "a,0,1\n", "f:2: 3 fields, but 4 columns"},
        {HEAD "a,0,1,5\n\nb,0,1,5,\n", "f:4: 5 fields, but 4 columns"},
        {HEAD ",0,1,5\n", "f:2: id: '' is no name"},
        {HEAD "a,0,1,5\nb,0,1,5\na,0,1,5\n", "f:4: id: 'a' is there already, on line 2"},
        {HEAD "b,0,1,5\na,0,1,5\na,0,1,5\nb,0,1,5\nc,0,1\n", "f:4: id: 'a' is there already, on line 3"},
        {HEAD "b,0,1,5\na,0,1,5\nb,0,x,5\n", "f:4: id: 'b' is there already, on line 2"},
        {HEAD "b,0,1,5\na,0,x,5\nb,0,1,5\n", "f:3: upper: 'x' is not a whole number"},
        {HEAD "a,-3,1,5\n", "f:2: lower: '-3' is negative"},
        {HEAD "a,0,-1,5\n", "f:2: upper: '-1' is negative"},
        {HEAD "a,0,1,-5\n", "f:2: size: '-5' is negative"},
        {HEAD "a,x,1,5\n", "f:2: lower: 'x' is not a whole number"},
        {HEAD "a,0,1.5,5\n", "f:2: upper: '1.5' is not a whole number"},
        {HEAD "a,0,1,5 6\n", "f:2: size: '5 6' is not a whole number"},
        {HEAD "a,0,1,0x10\n", "f:2: size: '0x10' is not a whole number"},
        {HEAD "a,+1,2,5\n", "f:2: lower: '+1' is not a whole number"},
        {HEAD "a,0,1, \n", "f:2: size: ' ' is no number"},
        {HEAD "a," BIG ",1,5\n", "f:2: lower: '" BIG "' is beyond 64 bits"},
        {HEAD "a,0,18446744073709551616,5\n", "f:2: upper: '18446744073709551616' is beyond 64 bits"},
        {HEAD "a,0,1," BIG "\n", "f:2: size: '" BIG "' is beyond 64 bits"},
        {HEAD "a,0,1,9223372036854775807\nb,0,1,1\n",
         "f:3: size: '1' makes sizes and alignments add up to 2^63 or more"},
        {HEAD "a,5,3,1\n", "f:2: upper: '3' is not above lower, 5"},
        {HEAD "a,5,5,1\n", "f:2: upper: '5' is not above lower, 5"},
        {"id,start,end,size\na,5,4,1\n", "f:2: end: '4' is below start, 5"},
        {"id,lower,end,size\na,0,18446744073709551615,1\n", "f:2: end: '18446744073709551615' is beyond 64 bits"},
        {MORE "a,0,1,5,0,,,\n", "f:2: alignment: '0' is no alignment"},
        {MORE "a,0,1,5,-8,,,\n", "f:2: alignment: '-8' is negative"},
        {MORE "a,0,1,5,,x,,\n", "f:2: hint: 'x' is not a whole number"},
        {MORE "a,0,1,5,,-2,,\n", "f:2: hint: '-2' is negative"},
        {MORE "a,0,1,5,,,,-1\n", "f:2: offset: '-1' is negative"},
        {MORE "a,0,1,5,8,,,12\n", "f:2: offset: '12' is not a multiple of the alignment"},
        {MORE "a,0,1,5,9223372036854775805,,,\n",
         "f:2: alignment: '9223372036854775805' makes sizes and alignments add up to 2^63 or more"},
        {MORE "a,0,1,5,,,,9223372036854775800\nb,0,1,3,,,,\n",
         "f:2: offset: '9223372036854775800' and the sizes and alignments of buffers without an offset add up to 2^63 "
         "or more"},
        {MORE "a,0,1,8,,,,9223372036854775800\n",
         "f:2: offset: '9223372036854775800' makes the buffer end at 2^63 or beyond"},
        {MORE "a,0,1,5,,,,18446744073709551615\n",
         "f:2: offset: '18446744073709551615' makes the buffer end at 2^63 or beyond"},
        {MORE "a,0,1,5,,9223372036854775808,,\n", "f:2: hint: '9223372036854775808' is 2^63 or more"},
        {MORE "a,0,9,5,,,3,\n", "f:2: gaps: '3' is not a gap, t0-t1 or t0-t1@lo:hi"},
        {MORE "a,0,9,5,,,1-2 3-x,\n", "f:2: gaps: '3-x' is not a gap, t0-t1 or t0-t1@lo:hi"},
        {MORE "a,0,9,5,,,3-4@1,\n", "f:2: gaps: '3-4@1' is not a gap, t0-t1 or t0-t1@lo:hi"},
        {MORE "a,0,9,5,,,3-4@1:2:3,\n", "f:2: gaps: '3-4@1:2:3' is not a gap, t0-t1 or t0-t1@lo:hi"},
        {MORE "a,0,9,5,,,3-" BIG ",\n", "f:2: gaps: '3-" BIG "' is beyond 64 bits"},
        {MORE "a,0,9,5,,,4-4,\n", "f:2: gaps: '4-4' ends before it begins"},
        {MORE "a,2,9,5,,,1-4,\n", "f:2: gaps: '1-4' is not within the buffer's life"},
        {MORE "a,2,9,5,,,3-10,\n", "f:2: gaps: '3-10' is not within the buffer's life"},
        {MORE "a,0,9,5,,,1-4@3:2,\n", "f:2: gaps: '1-4@3:2' has a window that ends before it begins"},
        {MORE "a,0,9,5,,,1-4@3:6,\n", "f:2: gaps: '1-4@3:6' has a window beyond the buffer's size"},
        {MORE "a,0,9,5,,,5-8 1-6,\n", "f:2: gaps: '5-8 1-6' has gaps that overlap"},
        {HEAD "\"a,0,1,5\nb,0,1,5\n", "f:2: a quote without its end"},
        {HEAD "\"a\"b,0,1,5\n", "f:2: text after the end of a quote"},
        {HEAD "\"a\nb\nc\",0,1,5\nd,0,1,x\n", "f:5: size: 'x' is not a whole number"},
        {HEAD "\"two\nlines\",0,1,x\n", "f:2: size: 'x' is not a whole number"},
        {HEAD "a,0,1,\"1\n2\"\n", "f:2: size: '1?2' is not a whole number"},
        {HEAD "a,0,1,a23456789b123456789c123456789d123456789e123456789f\n",
         "f:2: size: 'a23456789b123456789c123456789d123456789e1234...' is not a whole number"},
    };
    for (size_t i = 0; i < N_ITEMS(cases); i++) {
        ebb_place_file *file = NULL;
        assert_int_equal(parse(NULL, cases[i].text, strlen(cases[i].text), &file), EBB_E_FORMAT);
        assert_string_equal(ebb_last_error(), cases[i].message);
        assert_null(file);
    }
}

static void test_refused_bytes_and_columns(void **state) {
    (void)state;
    static const char nul[] = "id,lower,upper,size\na\0b,0,1,5\n", quoted[] = "id,lower,upper,size\n\"a\0b\",0,1,5\n";
    char many[2 * 300 + 1];
    ebb_place_file *file = NULL;
    assert_int_equal(parse(NULL, nul, sizeof nul - 1, &file), EBB_E_FORMAT);
    assert_string_equal(ebb_last_error(), "f:2: a byte 0: this is no text");
    assert_int_equal(parse(NULL, quoted, sizeof quoted - 1, &file), EBB_E_FORMAT);
    assert_string_equal(ebb_last_error(), "f:2: a byte 0: this is no text");
    for (size_t i = 0; i < sizeof many; i++) { many[i] = (char)(i % 2 == 0 ? 'a' : ','); }
    assert_int_equal(parse(NULL, many, sizeof many, &file), EBB_E_FORMAT);
    assert_string_equal(ebb_last_error(), "f:1: more than 256 columns");
    assert_int_equal(ebb_place_file_read(NULL, "/nowhere/f.csv", &file), EBB_E_IO);
    assert_string_equal(ebb_last_error(), "/nowhere/f.csv: cannot open: No such file or directory");
    assert_null(file);
}

/* A pattern without an end. */
typedef struct endless {
    const char *begin, *pattern;
    size_t n_begin, n_pattern, at; /* in begin, and after it round the pattern */
    uint64_t n_given;
} endless;

static int64_t read_endless(void *ctx, void *buf, size_t n_bytes) {
    endless *e = ctx;
    char *to = buf;
    for (size_t i = 0; i < n_bytes; i++) {
        to[i] = e->at < e->n_begin ? e->begin[e->at] : e->pattern[e->at - e->n_begin];
        if (++e->at == e->n_begin + e->n_pattern) { e->at = e->n_begin; }
    }
    e->n_given += n_bytes;
    return (int64_t)n_bytes;
}

/* What never ends is refused after bounded memory. */
static void test_endless(void **state) {
    (void)state;
#define ENDLESS(begin, pattern)                                                                                        \
    { begin, pattern, sizeof begin - 1, sizeof pattern - 1, 0, 0 }
    static const struct {
        endless source;
        const char *message;
    } cases[] = {
        {ENDLESS("", "\0"), "f:1: a byte 0: this is no text"},
        {ENDLESS("", "a"), "f:1: a line of more than 16 MiB"},
        {ENDLESS(HEAD "a,", "1"), "f:2: a line of more than 16 MiB"},
        {ENDLESS(HEAD "\"", "a\n"), "f:2: a line of more than 16 MiB"},
        {ENDLESS(HEAD "\"", "\"\""), "f:2: a line of more than 16 MiB"},
        {ENDLESS("", "a,"), "f:1: more than 256 columns"},
        {ENDLESS("", "y\n"),
         "f:1: there is no column 'id': the first line names them, in lower case, with commas between"},
        {ENDLESS(HEAD, "\n"), "f:1000002: the end of a million empty lines"},
        {ENDLESS(HEAD, "a,0,1,5\n"), "f:3: id: 'a' is there already, on line 2"},
    };
    for (size_t i = 0; i < N_ITEMS(cases); i++) {
        endless source = cases[i].source;
        ebb_place_file *file = NULL;
        assert_int_equal(ebb_place_file_read_from(NULL, "f", read_endless, &source, &file), EBB_E_FORMAT);
        assert_string_equal(ebb_last_error(), cases[i].message);
        assert_null(file);
        assert_true(source.n_given < (uint64_t)40 << 20);
    }
}

static int64_t read_nothing(void *ctx, void *buf, size_t n_bytes) {
    (void)ctx;
    (void)buf;
    (void)n_bytes;
    errno = EIO;
    return -1;
}

static void test_source_fails(void **state) {
    (void)state;
    ebb_place_file *file = NULL;
    assert_int_equal(ebb_place_file_read_from(NULL, "f", read_nothing, NULL, &file), EBB_E_IO);
    assert_string_equal(ebb_last_error(), "f: cannot read: Input/output error");
    assert_null(file);
}

/* An answer has a column more than its problem, and offsets as high as there are. */
static void test_limits_round_trip(void **state) {
    (void)state;
    char text[4096], wanted[4096];
    size_t n = (size_t)sprintf(text, "id,lower,upper,size");
    for (unsigned i = 4; i < EBB_CSV_MAX_COLUMNS; i++) { n += (size_t)sprintf(text + n, ",c%u", i); }
    const size_t n_head = n;
    n += (size_t)sprintf(text + n, "\na,0,1,5");
    for (unsigned i = 4; i < EBB_CSV_MAX_COLUMNS; i++) { text[n++] = ','; }
    text[n] = '\0';
    (void)sprintf(wanted, "%.*s,offset%s,7\n", (int)n_head, text, text + n_head);
    becomes(text, (uint64_t[]){7}, wanted);
    becomes(wanted, (uint64_t[]){7}, wanted);
    const char *high = "id,lower,upper,size,offset\na,0,1,4611686018427387904,0\n"
                       "b,0,1,4611686018427387900,4611686018427387907\n";
    becomes(high, (uint64_t[]){0, 4611686018427387907}, high);
    ebb_place_file *file = parsed(high);
    assert_int_equal(ebb_place_file_write(file, (uint64_t[]){0, 4611686018427387908}, path), EBB_E_ARGUMENT);
    expect_message("item 'b' (line 3): 4611686018427387900 bytes at offset 4611686018427387908 end at 2^63 or beyond");
    assert_int_equal(ebb_place_file_draw(file, (uint64_t[]){0, UINT64_MAX}, NULL, path), EBB_E_ARGUMENT);
    ebb_place_file_destroy(file);
}

/* What messages call the file's items: lines are kept where there are offsets, of a file that was read. */
static void test_names_of_items(void **state) {
    (void)state;
    ebb_place_file *file = parsed("id,lower,upper,size,offset\na,0,9,4,8\n\n\"b\n\",0,9,4,10\n");
    ebb_place_problem p = ebb_place_file_problem(file);
    uint64_t offsets[2] = {8, 10}, bound_bytes = 0;
    ebb_place_result result;
    assert_int_equal(ebb_place_solve(&p, NULL, offsets, &result), EBB_E_NO_FIT);
    expect_message("items 'a' (line 2) and 'b?' (line 4) overlap where they are fixed, at offsets 8 and 10");
    assert_int_equal(ebb_place_check(&p, NULL, offsets, NULL), EBB_E_INVALID_PLAN);
    expect_message("items 'a' (line 2) and 'b?' (line 4) overlap at time 0: bytes [8, 12) and [10, 14)");
    p.alignment_bytes = 16;
    assert_int_equal(ebb_place_bound(&p, NULL, &bound_bytes), EBB_E_ARGUMENT);
    expect_message("item 'a' (line 2): its fixed offset 8 is not aligned to 16");
    ebb_place_file_destroy(file);
    file = parsed("id,lower,upper,size\na,0,9,4\nb,0,9,4\n");
    p = ebb_place_file_problem(file);
    assert_int_equal(ebb_place_check(&p, NULL, (uint64_t[]){0, 3}, NULL), EBB_E_INVALID_PLAN);
    expect_message("items 'a' and 'b' overlap at time 0: bytes [0, 4) and [3, 7)");
    ebb_place_file_destroy(file);
}

/* ---- from elsewhere --------------------------------------------------------------------------- */

static void test_created(void **state) {
    (void)state;
    const ebb_place_item items[] = {{10, 0, 4}, {20, 6, 2}, {30, 6, 0}, {40, 3, 3}, {50, 0, 0}, {60, 8, 5}};
    ebb_place_problem p = EBB_PLACE_PROBLEM_INIT;
    ebb_place_file *file = NULL;
    p.items = items;
    p.n_items = N_ITEMS(items);
    p.alignment_bytes = 64;
    p.period = 8;
    const char *const ids[] = {"a", "b", "c", "d", "e", "f,"};
    assert_int_equal(ebb_place_file_create(NULL, &p, ids, &file), EBB_OK);
    const ebb_place_problem got = ebb_place_file_problem(file);
    assert_int_equal(got.period, 8);
    assert_int_equal(got.alignment_bytes, 64);
    assert_null(got.alignments);
    assert_memory_equal(got.items, items, sizeof items);
    char *text = written(file, (uint64_t[]){0, 64, 128, 192, 256, 320});
    assert_string_equal(text, "id,lower,upper,size,alignment,gaps,offset\na,0,4,10,64,,0\nb,0,8,20,64,2-6,64\n"
                              "c,6,8,30,64,,128\nd,0,8,40,64,,192\ne,0,8,50,64,,256\n\"f,\",0,5,60,64,,320\n");
    ebb_place_file_destroy(parsed(text));
    free(text);
    ebb_place_file_destroy(file);
}

static void test_created_plain(void **state) {
    (void)state;
    const ebb_place_item items[] = {{10, 0, 4}, {20, 1, 2}};
    const ebb_place_gap gap = {0, 1, 3, 2, 5};
    const uint64_t alignments[] = {3, 1}, fixed[] = {9, EBB_PLACE_ANYWHERE};
    ebb_place_problem p = EBB_PLACE_PROBLEM_INIT;
    ebb_place_file *file = NULL;
    p.items = items;
    p.n_items = N_ITEMS(items);
    assert_int_equal(ebb_place_file_create(NULL, &p, NULL, &file), EBB_OK);
    char *text = written(file, (uint64_t[]){0, 10});
    assert_string_equal(text, "id,lower,upper,size,offset\n0,0,4,10,0\n1,1,2,20,10\n");
    free(text);
    ebb_place_file_destroy(file);
    p.alignments = alignments;
    p.fixed = fixed;
    p.gaps = &gap;
    p.n_gaps = 1;
    assert_int_equal(ebb_place_file_create(NULL, &p, NULL, &file), EBB_OK);
    const ebb_place_problem got = ebb_place_file_problem(file);
    assert_memory_equal(got.alignments, alignments, sizeof alignments);
    assert_memory_equal(got.fixed, fixed, sizeof fixed);
    assert_memory_equal(got.gaps, &gap, sizeof gap);
    text = written(file, (uint64_t[]){9, 19});
    assert_string_equal(text, "id,lower,upper,size,alignment,gaps,offset\n0,0,4,10,3,1-3@2:5,9\n1,1,2,20,1,,19\n");
    free(text);
    ebb_place_file_destroy(file);
    p.alignment_bytes = 2; /* and 3 together */
    const uint64_t high[] = {12, EBB_PLACE_ANYWHERE};
    p.fixed = high;
    assert_int_equal(ebb_place_file_create(NULL, &p, NULL, &file), EBB_OK);
    text = written(file, (uint64_t[]){12, 22});
    assert_string_equal(text, "id,lower,upper,size,alignment,gaps,offset\n0,0,4,10,6,1-3@2:5,12\n1,1,2,20,2,,22\n");
    free(text);
    ebb_place_file_destroy(file);
    p.n_items = 0; /* the gap is no one's */
    assert_int_equal(ebb_place_file_create(NULL, &p, NULL, &file), EBB_E_ARGUMENT);
    p.size_bytes--;
    assert_int_equal(ebb_place_file_create(NULL, &p, NULL, &file), EBB_E_ARGUMENT);
}

static void test_write_fails(void **state) {
    (void)state;
    ebb_place_file *file = parsed("id,lower,upper,size\na,0,1,5\n");
    assert_int_equal(ebb_place_file_write(file, (uint64_t[]){0}, "/nowhere/out.csv"), EBB_E_IO);
    assert_int_equal(ebb_place_file_write(file, (uint64_t[]){0}, "/dev/full"), EBB_E_IO);
    ebb_place_file_destroy(file);
    ebb_place_file_destroy(NULL);
}

/* ---- memory ----------------------------------------------------------------------------------- */

static ebb_status read_and_write(const ebb_mem *mem, const char *from) {
    ebb_place_file *file = NULL;
    const uint64_t offsets[100] = {0};
    ebb_status st = ebb_place_file_read(mem, from, &file);
    if (st == EBB_OK) { st = ebb_place_file_write(file, offsets, path); }
    ebb_place_file_destroy(file);
    return st;
}

static void test_oom(void **state) {
    (void)state;
    char from[80];
    (void)snprintf(from, sizeof from, "%s.in", path);
    FILE *out = fopen(from, "w");
    fputs("id,lower,upper,size,alignment,hint,gaps,offset,note\n", out);
    for (int i = 0; i < 100; i++) { fprintf(out, "b%d,%d,%d,8,4,8,%d-%d,,n%d\n", i, i, i + 5, i + 2, i + 3, i); }
    fclose(out);
    OOM_LOOP(mem, st, st = read_and_write(mem, from));
    (void)unlink(from);
    const ebb_place_item items[] = {{10, 5, 4}, {20, 1, 2}};
    ebb_place_problem p = EBB_PLACE_PROBLEM_INIT;
    p.items = items;
    p.n_items = N_ITEMS(items);
    p.period = 9;
    p.alignment_bytes = 8;
    OOM_LOOP(mem, st, {
        ebb_place_file *file = NULL;
        st = ebb_place_file_create(mem, &p, NULL, &file);
        ebb_place_file_destroy(file);
    });
}

static int remove_file(void **state) {
    (void)state;
    (void)unlink(path);
    return 0;
}

int main(void) {
    (void)snprintf(path, sizeof path, "/tmp/ebb-test-place-csv-%d.csv", (int)getpid());
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_all_columns),
        cmocka_unit_test(test_defaults_are_absent),
        cmocka_unit_test(test_inclusive_end),
        cmocka_unit_test(test_forms_of_text),
        cmocka_unit_test(test_quotes),
        cmocka_unit_test(test_no_buffers),
        cmocka_unit_test(test_round_trip),
        cmocka_unit_test(test_long_records),
        cmocka_unit_test(test_many_rows),
        cmocka_unit_test(test_refusals),
        cmocka_unit_test(test_created),
        cmocka_unit_test(test_refused_bytes_and_columns),
        cmocka_unit_test(test_created_plain),
        cmocka_unit_test(test_write_fails),
        cmocka_unit_test(test_oom),
        cmocka_unit_test(test_endless),
        cmocka_unit_test(test_source_fails),
        cmocka_unit_test(test_limits_round_trip),
        cmocka_unit_test(test_names_of_items),
    };
    return cmocka_run_group_tests(tests, NULL, remove_file);
}
