/* SPDX-License-Identifier: Apache-2.0
 *
 * The machine for pickles: what it shows of each opcode, and what it refuses, by name.
 */
#include "support.h"
#include "trace/pickle.h"

typedef struct source {
    const uint8_t *data;
    size_t n, n_at_once;
} source;

static ebb_status read_source(void *ctx, void *buf, size_t n, size_t *n_out) {
    source *s = ctx;
    *n_out = (size_t)ebb_min_u64(ebb_min_u64(n, s->n), s->n_at_once);
    memcpy(buf, s->data, *n_out);
    s->data += *n_out;
    s->n -= *n_out;
    return EBB_OK;
}

static ebb_status open_source(const ebb_mem *mem, source *s, ebb_pickle **pickle_out) {
    static const char *const keys[] = {"key"};
    const ebb_pickle_source from = {"file", read_source, s, keys, 1};
    return ebb__pickle_open(mem, &from, pickle_out);
}

/* A value as people write it, after what is in text. */
static void show(const ebb_pickle *p, ebb_pickle_value value, char *text, size_t cap) {
    size_t n = strlen(text);
    value = ebb__pickle_resolve(p, value);
    switch (ebb__pickle_kind(value)) {
    case EBB_PICKLE_NONE: strcat(text, "None"); break;
    case EBB_PICKLE_LIST: strcat(text, "[]"); break;
    case EBB_PICKLE_DICT: strcat(text, "{}"); break;
    case EBB_PICKLE_OTHER: strcat(text, "?"); break;
    case EBB_PICKLE_MINE: (void)snprintf(text + n, cap - n, "#%d", (int)ebb__pickle_payload(value)); break;
    default:
        ebb__pickle_show(p, value, text, cap, &n);
        text[n] = '\0';
        break;
    }
}

/* Steps as text: "+[1,a] ={k:1} .2"; the i-th target becomes #i. */
static ebb_status run(const ebb_mem *mem, const void *data, size_t n, size_t n_at_once, char *text, size_t cap) {
    source s = {data, n, n_at_once};
    ebb_pickle *p = NULL;
    text[0] = '\0';
    EBB_TRY(open_source(mem, &s, &p));
    ebb_status st = EBB_OK;
    for (uint64_t i = 1;; i++) {
        ebb_pickle_step step;
        st = ebb__pickle_next(p, &step);
        if (st != EBB_OK) { break; }
        strcat(text, step.kind == EBB_PICKLE_APPEND ? "+[" : step.kind == EBB_PICKLE_SET ? "={" : ".");
        const size_t n_items = step.kind == EBB_PICKLE_SET ? 2 * step.n : step.n;
        for (size_t k = 0; k < n_items; k++) {
            show(p, step.items[k], text, cap);
            strcat(text, k + 1 == n_items ? "" : step.kind == EBB_PICKLE_SET && k % 2 == 0 ? ":" : ",");
        }
        if (step.kind == EBB_PICKLE_END) {
            show(p, step.target, text, cap);
            break;
        }
        strcat(text, step.kind == EBB_PICKLE_SET ? "} " : "] ");
        ebb__pickle_become(p, step.target, ebb__pickle_mine(i));
    }
    ebb__pickle_close(p);
    return st;
}

#define BYTES(text) (text), sizeof(text) - 1

static const struct {
    const char *data;
    size_t n;
    const char *shows;
} good[] = {
    {BYTES("\x80\x04N."), ".None"},
    {BYTES("\x80\x02(\x88\x89K\xffM\xff\xffJ\xff\xff\xff\xff\x8a\x00\x8a\x01\x80l."),
     "+[true,false,255,65535,-1,0,-128] .#1"},
    {BYTES("\x80\x02(\x8a\x08\x00\x00\x00\x00\x00\x00\x00\x80\x8a\x08\xff\xff\xff\xff\xff\xff\xff\x7f"
           "\x8a\x09\xff\xff\xff\xff\xff\xff\xff\xff\x00\x8a\x0a..........\x8b\x02\x00\x00\x00\x00\x01l."),
     "+[?,9223372036854775807,18446744073709551615,?,256] .#1"},
    {BYTES("\x80\x02(G?\xf8\x00\x00\x00\x00\x00\x00U\x01"
           "aT\x01\x00\x00\x00"
           "bX\x01\x00\x00\x00"
           "c\x8c\x01"
           "d\x8d\x01\x00\x00\x00\x00\x00\x00\x00"
           "el."),
     "+[1.5,a,b,c,d,e] .#1"},
    {BYTES("\x80\x05(C\x01"
           "aB\x02\x00\x00\x00"
           "bb\x8e\x01\x00\x00\x00\x00\x00\x00\x00"
           "c\x96\x01\x00\x00\x00\x00\x00\x00\x00"
           "d\x8f(K\x01\x90(K\x01\x91l."),
     "+[?,?,?,?,?,?] .#1"},
    {BYTES("\x80\x04()K\x01\x85K\x01K\x02\x86K\x01K\x02K\x03\x87(K\x03K\x04t(tl."), "+[?,?,1,2,?,3,4,?] .#1"},
    /* A list in batches, and its elements one by one. */
    {BYTES("\x80\x04\x95\x00\x00\x00\x00\x00\x00\x00\x00]\x94(K\x01K\x02"
           "e(K\x03"
           "eK\x04"
           "a."),
     "+[1,2] +[3] +[4] .#3"},
    /* What a list has become is what the memo has. */
    {BYTES("\x80\x04](]\x94(K\x05"
           "eh\x00h\x00"
           "e."),
     "+[5] +[#1,#1,#1] .#2"},
    {BYTES("\x80\x02}q\x00(X\x03\x00\x00\x00keyq\x01K\x01h\x01K\x02u."), "={key:1,key:2} .#1"},
    {BYTES("\x80\x02}U\x01kNs(K\x01K\x02"
           "d0."),
     "={k:None} ={1:2} .#1"},
    {BYTES("\x80\x02K\x01K\x02"
           "0K\x05(K\x03K\x04"
           "1(02\x86."),
     ".5,5"},
    {BYTES("\x80\x02]r\x05\x00\x00\x00j\x05\x00\x00\x00\x86."), ".?"},
    {BYTES("\x80\x02(d(l)\x86."), "={} +[] .?"},
    {BYTES("\x80\x02)."), ".?"},
    /* A list that contains itself. */
    {BYTES("\x80\x02]q\x00h\x00"
           "a."),
     "+[[]] .#1"},
};

static void test_shows(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof good / sizeof good[0]; i++) {
        for (size_t n_at_once = 1; n_at_once < 100; n_at_once += 98) {
            char text[1024];
            if (run(NULL, good[i].data, good[i].n, n_at_once, text, sizeof text) != EBB_OK) {
                fail_msg("case %d: %s", (int)i, ebb_last_error());
            }
            assert_string_equal(text, good[i].shows);
        }
    }
}

/* Wherever it is cut off, it says so. */
static void test_cut(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof good / sizeof good[0]; i++) {
        for (size_t n = 0; n < good[i].n; n++) {
            char text[1024];
            assert_int_equal(run(NULL, good[i].data, n, 1000, text, sizeof text), EBB_E_FORMAT);
            expect_message(n < 2 ? "no pickle" : "is cut off here");
        }
    }
}

static void test_refused(void **state) {
    (void)state;
    static const struct {
        const char *data;
        size_t n;
        ebb_status status;
        const char *says;
    } cases[] = {
        {BYTES("\x80\x02"
               "cos\nsystem\n."),
         EBB_E_UNSUPPORTED, "file: offset 2: the opcode GLOBAL names code"},
        {BYTES("\x80\x04\x8c\x02os\x8c\x06system\x93."), EBB_E_UNSUPPORTED, "offset 14: the opcode STACK_GLOBAL"},
        {BYTES("\x80\x02NNR."), EBB_E_UNSUPPORTED, "the opcode REDUCE calls code"},
        {BYTES("\x80\x02NNb."), EBB_E_UNSUPPORTED, "the opcode BUILD"},
        {BYTES("\x80\x02(ios\n."), EBB_E_UNSUPPORTED, "the opcode INST"},
        {BYTES("\x80\x02(o."), EBB_E_UNSUPPORTED, "the opcode OBJ"},
        {BYTES("\x80\x02NN\x81."), EBB_E_UNSUPPORTED, "the opcode NEWOBJ"},
        {BYTES("\x80\x04NNN\x92."), EBB_E_UNSUPPORTED, "the opcode NEWOBJ_EX"},
        {BYTES("\x80\x02\x82\x01."), EBB_E_UNSUPPORTED, "the opcode EXT1"},
        {BYTES("\x80\x02\x83\x01."), EBB_E_UNSUPPORTED, "the opcode EXT2"},
        {BYTES("\x80\x02\x84\x01."), EBB_E_UNSUPPORTED, "the opcode EXT4"},
        {BYTES("\x80\x02Pa\n."), EBB_E_UNSUPPORTED, "the opcode PERSID"},
        {BYTES("\x80\x02NQ."), EBB_E_UNSUPPORTED, "the opcode BINPERSID"},
        {BYTES("\x80\x05\x97."), EBB_E_UNSUPPORTED, "the opcode NEXT_BUFFER"},
        {BYTES("\x80\x02I1\n."), EBB_E_UNSUPPORTED, "the opcode INT is of protocol 0"},
        {BYTES("\x80\x06N."), EBB_E_UNSUPPORTED, "protocol 6"},
        {BYTES("\x80\x01N."), EBB_E_UNSUPPORTED, "protocol 1"},
        {BYTES("(lp0\n."), EBB_E_FORMAT, "no pickle"},
        {BYTES("\x80\x02\xff."), EBB_E_FORMAT, "0xff is no opcode"},
        {BYTES("\x80\x02."), EBB_E_FORMAT, "values are missing"},
        {BYTES("\x80\x02K\x01("
               "0."),
         EBB_OK, ""},
        {BYTES("\x80\x02K\x01(."), EBB_E_FORMAT, "values are missing"},
        {BYTES("\x80\x02("
               "e."),
         EBB_E_FORMAT, "values are missing"},
        {BYTES("\x80\x02]("
               "(K\x01"
               "e."),
         EBB_E_FORMAT, "values are missing"},
        {BYTES("\x80\x02]K\x01"
               "e."),
         EBB_E_FORMAT, "a mark is missing"},
        {BYTES("\x80\x02N(K\x01"
               "e."),
         EBB_E_FORMAT, "no list"},
        {BYTES("\x80\x02](K\x01K\x02u."), EBB_E_FORMAT, "no dictionary"},
        {BYTES("\x80\x02}(K\x01u."), EBB_E_FORMAT, "a key without a value"},
        {BYTES("\x80\x02h\x00."), EBB_E_FORMAT, "never stored"},
        {BYTES("\x80\x02Nr\xff\xff\xff\x7f."), EBB_E_FORMAT, "far beyond"},
        {BYTES("\x80\x02Nq\x03h\x02."), EBB_E_FORMAT, "never stored"},
        {BYTES("\x80\x02\x8b\xff\xff\xff\xff."), EBB_E_FORMAT, "a negative length"},
        {BYTES("\x80\x04\x8d\xff\xff\xff\xff\xff\xff\xff\xff."), EBB_E_FORMAT, "is cut off here"},
        {BYTES("\x80\x04\x8e\xff\xff\xff\xff\xff\xff\xff\xff."), EBB_E_FORMAT, "is cut off here"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char text[1024];
        assert_int_equal(run(NULL, cases[i].data, cases[i].n, 1000, text, sizeof text), cases[i].status);
        if (cases[i].status != EBB_OK) { expect_message(cases[i].says); }
    }
}

/* Texts across the buffer's end are whole; one that is too long for a name is passed over. */
static void test_long_texts(void **state) {
    (void)state;
    const size_t n_text = TRACE_MAX_STRING_BYTES, n_texts = 9, n = 2 + 1 + n_texts * (5 + n_text + 1) + 8;
    uint8_t *data = malloc(n), *at = data;
    char *text = malloc(n);
    assert_true(data != NULL && text != NULL);
    memcpy(at, "\x80\x02(", 3);
    at += 3;
    for (size_t i = 0; i < n_texts; i++) {
        const size_t n_here = n_text + (i == 4);
        const uint8_t head[5] = {'X', (uint8_t)n_here, (uint8_t)(n_here >> 8), (uint8_t)(n_here >> 16), 0};
        memcpy(at, head, sizeof head);
        memset(at + 5, (int)('a' + i), n_here);
        at += 5 + n_here;
    }
    memcpy(at, "l.", 2);
    at += 2;
    source s = {data, (size_t)(at - data), 12345};
    ebb_pickle *p = NULL;
    ebb_pickle_step step;
    assert_int_equal(open_source(NULL, &s, &p), EBB_OK);
    assert_int_equal(ebb__pickle_next(p, &step), EBB_OK);
    assert_int_equal(step.n, n_texts);
    for (size_t i = 0; i < n_texts; i++) {
        if (i == 4) {
            assert_int_equal(ebb__pickle_kind(step.items[i]), EBB_PICKLE_OTHER);
            continue;
        }
        size_t n_bytes = 0;
        const char *bytes = ebb__pickle_text(p, ebb__pickle_payload(step.items[i]), &n_bytes);
        assert_int_equal(n_bytes, n_text);
        for (size_t k = 0; k < n_bytes; k++) { assert_int_equal(bytes[k], 'a' + (int)i); }
    }
    ebb__pickle_close(p);
    free(data);
    free(text);
}

/* Nesting takes no stack of the machine that runs this, and ends. */
static void test_nesting(void **state) {
    (void)state;
    const size_t n = (size_t)3 << 20;
    uint8_t *data = malloc(2 * n + 3);
    char text[64] = "";
    assert_non_null(data);
    data[0] = 0x80;
    data[1] = 2;
    memset(data + 2, ']', n);
    memset(data + 2 + n, 'a', n - 1);
    data[2 * n + 1] = '.';
    source s = {data, 2 * n + 2, SIZE_MAX};
    ebb_pickle *p = NULL;
    ebb_pickle_step step;
    assert_int_equal(open_source(NULL, &s, &p), EBB_OK);
    do { assert_int_equal(ebb__pickle_next(p, &step), EBB_OK); } while (step.kind != EBB_PICKLE_END);
    ebb__pickle_close(p);
    memset(data + 2, '(', n);
    assert_int_equal(run(NULL, data, 2 * n + 2, SIZE_MAX, text, sizeof text), EBB_E_LIMIT);
    expect_message("more nested values than a snapshot has");
    free(data);
}

static void test_no_memory(void **state) {
    (void)state;
    char text[1024];
    OOM_LOOP(mem, st, st = run(mem, good[3].data, good[3].n, 1000, text, sizeof text));
    OOM_LOOP(mem, st, st = run(mem, good[8].data, good[8].n, 1000, text, sizeof text));
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_shows),   cmocka_unit_test(test_cut),
                                       cmocka_unit_test(test_refused), cmocka_unit_test(test_long_texts),
                                       cmocka_unit_test(test_nesting), cmocka_unit_test(test_no_memory)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
