/* SPDX-License-Identifier: Apache-2.0
 *
 * Traces go round: random events written and read are the same events; a file cut at any byte reads up to the
 * cut; no mutated byte does harm; what cannot be written is refused.
 */
#include "base/file.h"
#include "support.h"
#include "trace/trace.h"

#include <unistd.h>

#define MAX_EVENTS 400u

/* A random trace: what is written, and what a reader should give. */
typedef struct model {
    ebb_rng rng;
    ebb_trace_event events[MAX_EVENTS], expected[MAX_EVENTS];
    size_t n_events;
    ebb_trace_event live[MAX_EVENTS]; /* the allocs */
    size_t n_live;
    uint64_t n_blocks, n_steps, time_ns;
    uint64_t open_steps[4][MAX_EVENTS];
    size_t n_open[4];
    ebb_trace_event copy[4];
    bool is_copying[4];
    uint32_t strings[5], stacks[3];
} model;

static uint64_t below(model *m, uint64_t n) {
    return ebb__rng_below(&m->rng, n);
}

static uint64_t any_u64(model *m) {
    uint64_t x = (uint64_t)ebb__rng_u32(&m->rng) << 32 | ebb__rng_u32(&m->rng);
    return x >> below(m, 64);
}

static void describe(ebb_trace_event *e, const ebb_trace_event *alloc) {
    e->block = alloc->block;
    e->size_bytes = alloc->size_bytes;
    e->address = alloc->address;
    e->name = alloc->name;
    e->role = alloc->role;
    e->space = alloc->space;
}

static void draw_alloc(model *m, ebb_trace_event *e) {
    e->block = m->n_blocks++;
    e->size_bytes = any_u64(m) >> 10; /* their sum fits */
    e->address = below(m, 4) == 0 ? EBB_TRACE_NONE : any_u64(m) >> 1;
    e->space = (uint32_t)below(m, 3);
    e->role = (ebb_role)below(m, EBB_N_ROLES);
    e->name = m->strings[below(m, 5)];
    e->before = below(m, 2) == 0;
    m->live[m->n_live++] = *e;
}

/* An event on a block: what is written names the block only. */
static void draw_access(model *m, ebb_trace_event *e, ebb_trace_event *x) {
    size_t i = below(m, m->n_live);
    e->block = m->live[i].block;
    if (e->kind == EBB_TRACE_LABEL) {
        e->role = m->live[i].role = (ebb_role)below(m, EBB_N_ROLES);
        e->name = m->live[i].name = m->strings[below(m, 5)];
    }
    *x = *e;
    describe(x, &m->live[i]);
    if (e->kind == EBB_TRACE_COPY_BEGIN) {
        e->size_bytes = x->size_bytes = any_u64(m);
        e->direction = x->direction = (uint32_t)below(m, 2);
        e->tier = x->tier = (uint32_t)below(m, 2);
        m->copy[e->row] = *x;
        m->is_copying[e->row] = true;
    }
    if (e->kind == EBB_TRACE_FREE) { m->live[i] = m->live[--m->n_live]; }
}

static void draw_other(model *m, ebb_trace_event *e, ebb_trace_event *x) {
    if (e->kind == EBB_TRACE_STEP_BEGIN) {
        e->name = m->strings[below(m, 5)];
        e->op = m->strings[below(m, 5)];
        e->phase = (uint32_t)below(m, 4);
        e->index = below(m, 3) == 0 ? EBB_TRACE_NONE : any_u64(m) >> 1;
    } else if (e->kind == EBB_TRACE_MARK) {
        e->mark = (uint32_t)below(m, 3);
        e->name = m->strings[below(m, 5)];
        e->number = any_u64(m);
    } else if (e->kind == EBB_TRACE_SEGMENT_ALLOC || e->kind == EBB_TRACE_SEGMENT_FREE) {
        e->space = (uint32_t)below(m, 3);
        e->address = any_u64(m);
        e->size_bytes = e->kind == EBB_TRACE_SEGMENT_ALLOC ? any_u64(m) : 0;
    }
    const uint64_t step = x->step;
    *x = *e;
    x->step = step;
}

static bool is_possible(const model *m, ebb_trace_kind kind, uint32_t row) {
    switch (kind) {
    case EBB_TRACE_FREE:
    case EBB_TRACE_READ:
    case EBB_TRACE_WRITE:
    case EBB_TRACE_LABEL: return m->n_live > 0;
    case EBB_TRACE_COPY_BEGIN: return m->n_live > 0 && !m->is_copying[row];
    case EBB_TRACE_COPY_END: return m->is_copying[row];
    case EBB_TRACE_STEP_END: return m->n_open[row] > 0;
    default: return true;
    }
}

static void draw_event(model *m) {
    ebb_trace_event e = {0}, x;
    do {
        e.kind = (ebb_trace_kind)below(m, EBB_TRACE_N_KINDS);
        e.row = (uint32_t)below(m, 4);
    } while (!is_possible(m, e.kind, e.row));
    m->time_ns += below(m, 3) == 0 ? any_u64(m) >> 12 : below(m, 100);
    e.time_ns = m->time_ns;
    e.stack = below(m, 3) == 0 ? m->stacks[below(m, 3)] : 0;
    size_t *n_open = &m->n_open[e.row];
    const uint64_t step = *n_open > 0 ? m->open_steps[e.row][*n_open - 1] : EBB_TRACE_NONE;
    x = e;
    x.step = step;
    if (e.kind == EBB_TRACE_ALLOC) {
        draw_alloc(m, &e);
        x = e;
    } else if (e.kind == EBB_TRACE_COPY_END) {
        x = m->copy[e.row];
        x.kind = e.kind;
        x.time_ns = e.time_ns;
        x.stack = e.stack;
        m->is_copying[e.row] = false;
    } else if (is_possible(m, e.kind, e.row) && e.kind <= EBB_TRACE_COPY_BEGIN && e.kind != EBB_TRACE_STEP_BEGIN &&
               e.kind != EBB_TRACE_STEP_END) {
        draw_access(m, &e, &x);
    } else {
        draw_other(m, &e, &x);
    }
    x.step = step;
    if (e.kind == EBB_TRACE_STEP_BEGIN) { x.step = m->open_steps[e.row][(*n_open)++] = m->n_steps++; }
    if (e.kind == EBB_TRACE_STEP_END) { (*n_open)--; }
    m->events[m->n_events] = e;
    m->expected[m->n_events++] = x;
}

/* Write what the model draws. */
static void write_model(model *m, uint64_t seed, size_t n_events) {
    memset(m, 0, sizeof *m);
    ebb__rng_init(&m->rng, seed, 0);
    ebb_trace_writer_options options = EBB_TRACE_WRITER_OPTIONS_INIT;
    options.tells = (uint32_t)below(m, 256);
    options.start_unix_ns = seed;
    ebb_trace_writer *w = NULL;
    assert_int_equal(ebb_trace_writer_open(test_path, &options, &w), EBB_OK);
    assert_int_equal(ebb_trace_writer_note(w, "source", "random"), EBB_OK);
    const char *texts[] = {"", "conv1", "a name with \"quotes\" and \xc3\xa9", "relu", "w"};
    for (size_t i = 0; i < 5; i++) { assert_int_equal(ebb_trace_writer_string(w, texts[i], &m->strings[i]), EBB_OK); }
    for (uint32_t i = 0; i < 3; i++) {
        assert_int_equal(ebb_trace_writer_frame(w, i == 0 ? 0 : m->stacks[i - 1], m->strings[1], m->strings[2],
                                                i * 1000, &m->stacks[i]),
                         EBB_OK);
    }
    while (m->n_events < n_events) {
        draw_event(m);
        assert_int_equal(ebb_trace_writer_add(w, &m->events[m->n_events - 1]), EBB_OK);
    }
    assert_int_equal(ebb_trace_writer_close(w), EBB_OK);
}

static bool same_event(const ebb_trace_event *a, const ebb_trace_event *b) {
    return a->kind == b->kind && a->row == b->row && a->time_ns == b->time_ns && a->stack == b->stack &&
           a->name == b->name && a->role == b->role && a->space == b->space && a->block == b->block &&
           a->size_bytes == b->size_bytes && a->address == b->address && a->before == b->before && a->op == b->op &&
           a->phase == b->phase && a->index == b->index && a->direction == b->direction && a->tier == b->tier &&
           a->mark == b->mark && a->number == b->number && a->step == b->step;
}

/* Read all; how many events came, all as expected. */
static size_t read_and_compare(ebb_trace_reader *r, const model *m, uint64_t seed) {
    for (size_t i = 0;; i++) {
        ebb_trace_event e;
        bool done = false;
        if (ebb_trace_reader_next(r, &e, &done) != EBB_OK) {
            fail_msg("seed %llu, event %zu: %s", (unsigned long long)seed, i, ebb_last_error());
        }
        if (done) { return i; }
        if (i >= m->n_events || !same_event(&e, &m->expected[i])) {
            fail_msg("seed %llu: event %zu of kind %d differs", (unsigned long long)seed, i, (int)e.kind);
        }
    }
}

static void test_round_trip(void **state) {
    (void)state;
    static model m;
    for (uint64_t seed = 0; seed < 300; seed++) {
        ebb_rng rng;
        ebb__rng_init(&rng, seed, 9);
        write_model(&m, seed, ebb__rng_below(&rng, MAX_EVENTS + 1));
        ebb_trace_reader *r = NULL;
        assert_int_equal(ebb_trace_reader_open(NULL, test_path, &r), EBB_OK);
        assert_int_equal(read_and_compare(r, &m, seed), m.n_events);
        ebb_trace_info info = ebb_trace_reader_info(r);
        assert_true(info.complete);
        assert_int_equal(info.n_events, m.n_events);
        assert_int_equal(info.n_blocks, m.n_blocks);
        assert_int_equal(info.n_live_blocks, m.n_live);
        assert_int_equal(info.start_unix_ns, seed);
        uint64_t live_bytes = 0;
        for (size_t i = 0; i < m.n_live; i++) { live_bytes += m.live[i].size_bytes; }
        assert_true(info.live_bytes == live_bytes);
        assert_string_equal(ebb_trace_reader_string(r, m.strings[1]), "conv1");
        assert_string_equal(ebb_trace_reader_string(r, 1000), "");
        assert_string_equal(ebb_trace_reader_note(r, "source"), "random");
        assert_null(ebb_trace_reader_note(r, "device"));
        assert_int_equal(ebb_trace_reader_frame(r, m.stacks[2]).caller, m.stacks[1]);
        assert_int_equal(ebb_trace_reader_frame(r, m.stacks[2]).line, 2000);
        assert_int_equal(ebb_trace_reader_frame(r, 99).function, 0);
        ebb_trace_reader_close(r);
    }
}

static char *slurp(size_t *n_out) {
    char *data = NULL;
    assert_int_equal(ebb__file_read_all(NULL, test_path, UINT64_MAX, &data, n_out), EBB_OK);
    return data;
}

static void test_cut_at_every_byte(void **state) {
    (void)state;
    static model m;
    write_model(&m, 7, 120);
    size_t n = 0, n_before = 0;
    char *data = slurp(&n);
    for (size_t cut = 0; cut < n; cut++) {
        ebb_trace_reader *r = NULL;
        char *copy = malloc(cut + 1); /* its end is the sanitizer's */
        memcpy(copy, data, cut);
        char *exact = realloc(copy, cut > 0 ? cut : 1);
        ebb_status st = ebb__trace_reader_open_memory(NULL, "cut", exact, cut, &r);
        assert_int_equal(st, cut < 32 ? EBB_E_FORMAT : EBB_OK);
        if (st == EBB_OK) {
            size_t n_events = read_and_compare(r, &m, 7);
            assert_true(n_events >= n_before && n_events <= m.n_events);
            n_before = n_events;
            ebb_trace_info info = ebb_trace_reader_info(r);
            assert_false(info.complete);
            assert_true(info.offset <= cut);
            ebb_trace_reader_close(r);
        }
        free(exact);
    }
    assert_int_equal(n_before, m.n_events);
    free(data);
}

static void test_mutations(void **state) {
    (void)state;
    static model m;
    unsigned n_bad = 0, n_good = 0;
    for (uint64_t seed = 0; seed < 40; seed++) {
        write_model(&m, seed, 60);
        size_t n = 0;
        char *data = slurp(&n);
        ebb_rng rng;
        ebb__rng_init(&rng, seed, 3);
        for (unsigned k = 0; k < 200; k++) {
            char *copy = malloc(n);
            memcpy(copy, data, n);
            for (uint64_t j = 1 + ebb__rng_below(&rng, 3); j > 0; j--) {
                copy[ebb__rng_below(&rng, n)] = (char)ebb__rng_u32(&rng);
            }
            ebb_trace_reader *r = NULL;
            ebb_status st = ebb__trace_reader_open_memory(NULL, "mutated", copy, n, &r);
            ebb_trace_event e;
            for (bool done = false; st == EBB_OK && !done;) { st = ebb_trace_reader_next(r, &e, &done); }
            assert_true(st == EBB_OK || st == EBB_E_FORMAT || st == EBB_E_UNSUPPORTED);
            if (st == EBB_E_FORMAT && r != NULL) {
                assert_non_null(strstr(ebb_last_error(), "mutated: offset "));
                assert_int_equal(ebb_trace_reader_next(r, &e, &(bool){false}), EBB_E_FORMAT);
            }
            n_bad += st != EBB_OK;
            n_good += st == EBB_OK;
            ebb_trace_reader_close(r);
            free(copy);
        }
        free(data);
    }
    assert_true(n_bad > 1000 && n_good > 100);
}

/* Strings longer than the reader's buffer, and a record of a later version between events. */
static void test_long_and_unknown_records(void **state) {
    (void)state;
    const size_t n_long = (size_t)1 << 20;
    char *text = malloc(n_long + 2);
    memset(text, 'n', n_long + 1);
    text[n_long + 1] = '\0';
    ebb_trace_writer *w = NULL;
    assert_int_equal(ebb_trace_writer_open(test_path, NULL, &w), EBB_OK);
    uint32_t name = 0, same = 0;
    assert_int_equal(ebb_trace_writer_string(w, text, &name), EBB_E_LIMIT);
    text[n_long] = '\0';
    assert_int_equal(ebb_trace_writer_string(w, text, &name), EBB_OK);
    assert_int_equal(ebb_trace_writer_string(w, text, &same), EBB_OK);
    assert_int_equal(name, same);
    ebb_trace_event e = {.kind = EBB_TRACE_ALLOC, .size_bytes = 5, .name = name, .address = EBB_TRACE_NONE};
    assert_int_equal(ebb_trace_writer_add(w, &e), EBB_OK);
    assert_int_equal(ebb_trace_writer_close(w), EBB_OK);

    size_t n = 0;
    char *data = slurp(&n);
    const size_t n_end = 3, n_skipped = 300000; /* the end: its kind and two numbers */
    ebb_file_writer *f = NULL;
    assert_int_equal(ebb__file_writer_open(NULL, test_path, 0, &f), EBB_OK);
    (void)ebb__file_writer_write(f, data, n - n_end);
    (void)ebb__file_writer_write(f, "\x7f\xe0\xa7\x12", 4); /* 300000 bytes */
    for (size_t i = 0; i < n_skipped; i++) { (void)ebb__file_writer_write(f, "\xff", 1); }
    (void)ebb__file_writer_write(f, data + n - n_end, n_end);
    assert_int_equal(ebb__file_writer_commit(f), EBB_OK);

    ebb_trace_reader *r = NULL;
    bool done = false;
    assert_int_equal(ebb_trace_reader_open(NULL, test_path, &r), EBB_OK);
    assert_int_equal(ebb_trace_reader_next(r, &e, &done), EBB_OK);
    assert_string_equal(ebb_trace_reader_string(r, e.name), text);
    assert_int_equal(ebb_trace_reader_next(r, &e, &done), EBB_OK);
    assert_true(done && ebb_trace_reader_info(r).complete);
    assert_int_equal(ebb_trace_reader_info(r).offset, n + 4 + n_skipped);
    ebb_trace_reader_close(r);
    free(data);
    free(text);
}

static void refuse(ebb_trace_writer *w, ebb_trace_event e, const char *message) {
    assert_int_equal(ebb_trace_writer_add(w, &e), EBB_E_ARGUMENT);
    if (strstr(ebb_last_error(), message) == NULL) { fail_msg("'%s' lacks '%s'", ebb_last_error(), message); }
}

static void test_writer_refuses(void **state) {
    (void)state;
    ebb_trace_writer *w = NULL;
    uint32_t stack = 0;
    ebb_trace_writer_options other = EBB_TRACE_WRITER_OPTIONS_INIT;
    other.size_bytes++;
    assert_int_equal(ebb_trace_writer_open("/tmp/no/such/folder/x", &other, &w), EBB_E_ARGUMENT);
    assert_int_equal(ebb_trace_writer_open("/tmp/no/such/folder/x", NULL, &w), EBB_E_IO);
    assert_int_equal(ebb_trace_writer_open(test_path, NULL, &w), EBB_OK);
    ebb_trace_event good = {.kind = EBB_TRACE_ALLOC, .time_ns = 10};
    assert_int_equal(ebb_trace_writer_add(w, &good), EBB_OK);
    refuse(w, (ebb_trace_event){.kind = EBB_TRACE_READ, .time_ns = 9}, "time goes back");
    refuse(w, (ebb_trace_event){.kind = EBB_TRACE_ALLOC, .time_ns = 10}, "the next is 1");
    refuse(w, (ebb_trace_event){.kind = EBB_TRACE_FREE, .time_ns = 10, .block = 1}, "no block 1");
    refuse(w, (ebb_trace_event){.kind = EBB_TRACE_MARK, .time_ns = 10, .name = 1}, "no string 1");
    refuse(w, (ebb_trace_event){.kind = EBB_TRACE_MARK, .time_ns = 10, .stack = 1}, "no stack 1");
    refuse(w, (ebb_trace_event){.kind = EBB_TRACE_MARK, .time_ns = 10, .row = 256}, "row 256");
    refuse(w, (ebb_trace_event){.kind = EBB_TRACE_COPY_BEGIN, .time_ns = 10, .tier = 256}, "tier 256");
    refuse(w, (ebb_trace_event){.kind = EBB_TRACE_N_KINDS, .time_ns = 10}, "kind");
    ebb_trace_event large = {.kind = EBB_TRACE_ALLOC, .time_ns = 10, .block = 1, .size_bytes = UINT64_MAX - 5};
    assert_int_equal(ebb_trace_writer_add(w, &large), EBB_OK);
    large.block = 2;
    large.size_bytes = 6; /* which no reader could add up */
    assert_int_equal(ebb_trace_writer_add(w, &large), EBB_E_LIMIT);
    assert_int_equal(ebb_trace_writer_frame(w, 1, 0, 0, 0, &stack), EBB_E_ARGUMENT);
    assert_int_equal(access(test_path, F_OK), 0);
    ebb_trace_writer_abandon(w);
    assert_int_not_equal(access(test_path, F_OK), 0); /* an abandoned trace leaves nothing */
}

static void test_header(void **state) {
    (void)state;
    static model m;
    write_model(&m, 1, 5);
    size_t n = 0;
    char *data = slurp(&n);
    ebb_trace_reader *r = NULL;
    data[8] = 2;
    assert_int_equal(ebb__trace_reader_open_memory(NULL, "t", data, n, &r), EBB_E_UNSUPPORTED);
    assert_non_null(strstr(ebb_last_error(), "version 2"));
    data[8] = 1;
    data[10] = 9; /* a minor version is no obstacle */
    assert_int_equal(ebb__trace_reader_open_memory(NULL, "t", data, n, &r), EBB_OK);
    ebb_trace_reader_close(r);
    data[0] = 'x';
    assert_int_equal(ebb__trace_reader_open_memory(NULL, "t", data, n, &r), EBB_E_FORMAT);
    free(data);
    assert_int_equal(ebb_trace_reader_open(NULL, "/tmp/no/such/file", &r), EBB_E_IO);
    assert_int_equal(ebb_trace_reader_open(NULL, "/tmp", &r), EBB_E_IO);
    ebb_trace_reader_close(NULL);
}

/* Bytes that are no characters are written as question marks, and refused where a file has them all the same. */
static void test_texts(void **state) {
    (void)state;
    static const char *const texts[][2] = {
        {"\xc3\xa9t\xc3\xa9", "\xc3\xa9t\xc3\xa9"}, {"\xe9t\xe9", "?t?"}, {"end\xe2\x82", "end??"}, {"\xff", "?"}};
    const size_t n_texts = sizeof texts / sizeof texts[0];
    ebb_trace_writer *w = NULL;
    ebb_trace_reader *r = NULL;
    ebb_trace_event e;
    bool done = false;
    uint32_t number = 0;
    assert_int_equal(ebb_trace_writer_open(test_path, NULL, &w), EBB_OK);
    for (size_t i = 0; i < n_texts; i++) { assert_int_equal(ebb_trace_writer_string(w, texts[i][0], &number), EBB_OK); }
    assert_int_equal(ebb_trace_writer_note(w, "k\xff", "\x80v"), EBB_OK);
    assert_int_equal(ebb__trace_writer_text(w, "a\0b", 3, &number), EBB_OK);
    assert_int_equal(ebb_trace_writer_close(w), EBB_OK);
    assert_int_equal(ebb_trace_reader_open(NULL, test_path, &r), EBB_OK);
    assert_int_equal(ebb_trace_reader_next(r, &e, &done), EBB_OK);
    assert_true(done && ebb_trace_reader_info(r).complete);
    for (uint32_t i = 0; i < n_texts; i++) { assert_string_equal(ebb_trace_reader_string(r, i + 1), texts[i][1]); }
    assert_string_equal(ebb_trace_reader_note(r, "k?"), "?v");
    assert_string_equal(ebb_trace_reader_string(r, number), "a?b");
    ebb_trace_reader_close(r);

    size_t n = 0;
    char *data = slurp(&n);
    size_t mark = 32;
    while (mark + 3 < n && memcmp(data + mark, "?t?", 3) != 0) { mark++; }
    assert_memory_equal(data + mark, "?t?", 3);
    data[mark] = '\xe9';
    assert_int_equal(ebb__trace_reader_open_memory(NULL, "t", data, n, &r), EBB_OK);
    assert_int_equal(ebb_trace_reader_next(r, &e, &done), EBB_E_FORMAT);
    assert_non_null(strstr(ebb_last_error(), "a string that is not UTF-8"));
    ebb_trace_reader_close(r);
    free(data);
}

static ebb_status write_some(const ebb_mem *mem) {
    ebb_trace_writer_options options = EBB_TRACE_WRITER_OPTIONS_INIT;
    options.mem = mem;
    ebb_trace_writer *w = NULL;
    ebb_status st = ebb_trace_writer_open(test_path, &options, &w);
    uint32_t name = 0, stack = 0;
    for (int i = 0; i < 40 && st == EBB_OK; i++) {
        char text[32];
        (void)snprintf(text, sizeof text, "name %d", i);
        ebb_trace_event e = {.kind = EBB_TRACE_ALLOC, .block = (uint64_t)i, .size_bytes = 1};
        st = ebb_trace_writer_string(w, text, &name);
        if (st == EBB_OK) { st = ebb_trace_writer_frame(w, stack, name, name, 1, &stack); }
        e.name = name;
        if (st == EBB_OK) { st = ebb_trace_writer_add(w, &e); }
    }
    if (st == EBB_OK) { return ebb_trace_writer_close(w); }
    ebb_trace_writer_abandon(w);
    return st;
}

static ebb_status read_some(const ebb_mem *mem) {
    ebb_trace_reader *r = NULL;
    ebb_trace_event e;
    ebb_status st = ebb_trace_reader_open(mem, test_path, &r);
    for (bool done = false; st == EBB_OK && !done;) { st = ebb_trace_reader_next(r, &e, &done); }
    ebb_trace_reader_close(r);
    return st;
}

static void test_out_of_memory(void **state) {
    (void)state;
    OOM_LOOP(mem, st, { st = write_some(mem); });
    OOM_LOOP(mem, st, { st = read_some(mem); });
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_round_trip, setup_path, teardown_path),
        cmocka_unit_test_setup_teardown(test_cut_at_every_byte, setup_path, teardown_path),
        cmocka_unit_test_setup_teardown(test_mutations, setup_path, teardown_path),
        cmocka_unit_test_setup_teardown(test_long_and_unknown_records, setup_path, teardown_path),
        cmocka_unit_test_setup_teardown(test_writer_refuses, setup_path, teardown_path),
        cmocka_unit_test_setup_teardown(test_texts, setup_path, teardown_path),
        cmocka_unit_test_setup_teardown(test_header, setup_path, teardown_path),
        cmocka_unit_test_setup_teardown(test_out_of_memory, setup_path, teardown_path),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
