/* SPDX-License-Identifier: Apache-2.0
 *
 * What PyTorch's viewer reads: a recording that was written for it and is read again has the same blocks at the same
 * moments, for whatever the source tells.
 */
#include "ebb/report.h"
#include "report_support.h"

static char recording[300], snapshot[300];

static ebb_status write_snapshot(const ebb_mem *mem) {
    ebb_report_options options = EBB_REPORT_OPTIONS_INIT;
    ebb_report *report = NULL;
    options.mem = mem;
    EBB_TRY(ebb_report_create(recording, &options, &report));
    const ebb_status st = ebb_report_save(report, "memory-viz", snapshot);
    ebb_report_destroy(report);
    return st;
}

/* Allocs and frees of a recording, in order; annotations counted. */
typedef struct facts {
    uint64_t n_allocs, n_frees, n_before, n_marks, peak_bytes, live_bytes, reserved_bytes, time_ns;
    uint64_t n_of_role[EBB_N_ROLES];
    uint64_t hash; /* of sizes, frames and names, in order; the spaces by themselves */
} facts;

static void hash_text(facts *f, const char *text) {
    f->hash = ebb__hash(f->hash, text, strlen(text) + 1);
}

static void hash_event(facts *f, const ebb_trace_reader *reader, const ebb_trace_event *event) {
    const uint64_t what[] = {event->kind, event->size_bytes};
    f->hash = ebb__hash(f->hash, what, sizeof what);
    for (uint32_t stack = event->stack; stack != 0;) {
        const ebb_trace_frame frame = ebb_trace_reader_frame(reader, stack);
        hash_text(f, ebb_trace_reader_string(reader, frame.function));
        hash_text(f, ebb_trace_reader_string(reader, frame.file));
        f->hash = ebb__hash(f->hash, &frame.line, sizeof frame.line);
        stack = frame.caller;
    }
    if (event->kind == EBB_TRACE_ALLOC) { hash_text(f, ebb_trace_reader_string(reader, event->name)); }
}

static facts read_facts(const char *path, const char *device) {
    facts f = {.hash = EBB_HASH_INIT};
    char out[320];
    ebb_trace_reader *reader = NULL;
    ebb_trace_import_options options = EBB_TRACE_IMPORT_OPTIONS_INIT;
    options.device = device;
    (void)snprintf(out, sizeof out, "%s.trace", path);
    if (ebb_trace_import(path, out, &options, NULL) != EBB_OK) { fail_msg("%s", ebb_last_error()); }
    assert_int_equal(ebb_trace_reader_open(NULL, out, &reader), EBB_OK);
    for (bool done = false;;) {
        ebb_trace_event event;
        assert_int_equal(ebb_trace_reader_next(reader, &event, &done), EBB_OK);
        if (done) { break; }
        f.n_before += event.kind == EBB_TRACE_ALLOC && event.before;
        f.n_marks += event.kind == EBB_TRACE_MARK;
        if (event.kind == EBB_TRACE_ALLOC) {
            f.n_allocs++;
            f.n_of_role[event.role]++;
            f.live_bytes += event.size_bytes;
        } else if (event.kind == EBB_TRACE_FREE) {
            f.n_frees++;
            f.live_bytes -= event.size_bytes;
        } else if (event.kind == EBB_TRACE_SEGMENT_ALLOC) {
            f.reserved_bytes += event.size_bytes;
        }
        if (event.kind == EBB_TRACE_ALLOC || event.kind == EBB_TRACE_FREE) { hash_event(&f, reader, &event); }
        f.peak_bytes = ebb_max_u64(f.peak_bytes, f.live_bytes);
    }
    ebb_trace_reader_close(reader);
    return f;
}

static void set_paths(void) {
    (void)snprintf(recording, sizeof recording, "%s/recording", test_dir.path);
    (void)snprintf(snapshot, sizeof snapshot, "%s/snapshot", test_dir.path);
}

static void expect_same(const facts *a, const facts *b) {
    assert_int_equal(a->n_allocs, b->n_allocs);
    assert_int_equal(a->n_frees, b->n_frees);
    assert_int_equal(a->n_before, b->n_before);
    assert_int_equal(a->peak_bytes, b->peak_bytes);
    assert_int_equal(a->live_bytes, b->live_bytes);
    assert_int_equal(a->n_marks, b->n_marks);
}

/* Events of three devices: a block of 1000 bytes a device, and on the second one also a segment and one from before. */
static void write_devices(void) {
    ebb_trace_writer *w = NULL;
    uint32_t name = 0, frame = 0, odd = 0;
    assert_int_equal(ebb_trace_writer_open(recording, NULL, &w), EBB_OK);
    assert_int_equal(ebb_trace_writer_string(w, "forward", &name), EBB_OK);
    assert_int_equal(ebb_trace_writer_string(w, "\xff odd \xc3\xa4", &odd), EBB_OK);
    assert_int_equal(ebb_trace_writer_frame(w, 0, name, odd, 7, &frame), EBB_OK);
    assert_int_equal(ebb_trace_writer_note(w, "allocator.max_split_size", "-1"), EBB_OK);
    assert_int_equal(ebb_trace_writer_note(w, "row.0", "stream 77"), EBB_OK);
    const uint32_t spaces[] = {0, 2, 100};
    const ebb_trace_event early[] = {
        {.kind = EBB_TRACE_SEGMENT_ALLOC, .space = 2, .address = 1 << 20, .size_bytes = 1 << 20},
        {.kind = EBB_TRACE_ALLOC, .space = 2, .address = 1 << 20, .size_bytes = 300, .before = true, .stack = frame},
        {.kind = EBB_TRACE_MARK, .mark = EBB_TRACE_ITERATION_BEGIN, .number = 4},
        {.kind = EBB_TRACE_MARK, .mark = EBB_TRACE_ANNOTATION, .name = name},
    };
    for (size_t i = 0; i < 4; i++) { assert_int_equal(ebb_trace_writer_add(w, &early[i]), EBB_OK); }
    for (uint32_t i = 0; i < 3; i++) {
        const ebb_trace_event alloc = {.kind = EBB_TRACE_ALLOC,
                                       .time_ns = 10 + i,
                                       .space = spaces[i],
                                       .address = (1 << 20) + 512,
                                       .size_bytes = 1000 + i,
                                       .block = 1 + i,
                                       .row = i == 1 ? 3 : 0,
                                       .stack = frame,
                                       .name = name};
        assert_int_equal(ebb_trace_writer_add(w, &alloc), EBB_OK);
    }
    const ebb_trace_event end = {.kind = EBB_TRACE_FREE, .time_ns = 20, .block = 1};
    assert_int_equal(ebb_trace_writer_add(w, &end), EBB_OK);
    assert_int_equal(ebb_trace_writer_close(w), EBB_OK);
}

static void test_devices(void **state) {
    (void)state;
    set_paths();
    write_devices();
    if (write_snapshot(NULL) != EBB_OK) { fail_msg("%s", ebb_last_error()); }
    const struct {
        const char *device;
        uint64_t n_allocs, n_before, n_frees, live_bytes, reserved_bytes;
    } expected[] = {{"0", 1, 0, 1, 0, 1000}, {"1", 1, 1, 0, 1002, 1002}, {"2", 2, 1, 0, 1301, 1 << 20}};
    for (size_t i = 0; i < 3; i++) {
        const facts f = read_facts(snapshot, expected[i].device);
        assert_int_equal(f.n_allocs, expected[i].n_allocs);
        assert_int_equal(f.n_frees, expected[i].n_frees);
        assert_int_equal(f.live_bytes, expected[i].live_bytes);
        assert_int_equal(f.reserved_bytes, expected[i].reserved_bytes);
        assert_int_equal(f.n_marks, i == 0 ? 2 : 0);
    }
    ebb_trace_reader *reader = NULL; /* streams, in the order in which they come: the events' of device 0 first */
    assert_int_equal(ebb_trace_open_any(NULL, snapshot, NULL, &reader), EBB_OK);
    for (bool done = false; !done;) {
        ebb_trace_event event;
        assert_int_equal(ebb_trace_reader_next(reader, &event, &done), EBB_OK);
    }
    assert_string_equal(ebb_trace_reader_note(reader, "row.0"), "stream 77");
    assert_string_equal(ebb_trace_reader_note(reader, "row.1"), "stream 3");
    ebb_trace_reader_close(reader);
}

/* Blocks in a host's heap and in a mapping, far above: no segment reaches from one to the other. */
static void test_far_apart(void **state) {
    (void)state;
    set_paths();
    ebb_trace_writer *w = NULL;
    assert_int_equal(ebb_trace_writer_open(recording, NULL, &w), EBB_OK);
    static const uint64_t address[] = {0x562df1c7c000, 0x7f2df1c7c000};
    for (uint64_t i = 0; i < 2; i++) {
        const ebb_trace_event alloc = {
            .kind = EBB_TRACE_ALLOC, .time_ns = i, .address = address[i], .size_bytes = 1000, .block = i};
        assert_int_equal(ebb_trace_writer_add(w, &alloc), EBB_OK);
    }
    assert_int_equal(ebb_trace_writer_close(w), EBB_OK);
    if (write_snapshot(NULL) != EBB_OK) { fail_msg("%s", ebb_last_error()); }
    const facts f = read_facts(snapshot, NULL);
    assert_true(f.n_allocs == 2 && f.live_bytes == 2000);
    assert_int_equal(f.reserved_bytes, 2000);
}

/* Random recordings, of sources that tell this and that. */
static void test_round_trip(void **state) {
    (void)state;
    set_paths();
    for (uint64_t seed = 1; seed <= 16; seed++) {
        recorder r;
        const uint32_t bits[] = {EBB_TRACE_TELLS_TIMES, EBB_TRACE_TELLS_ADDRESSES, EBB_TRACE_TELLS_ROLES,
                                 EBB_TRACE_TELLS_STACKS};
        uint32_t tells = 0;
        for (size_t i = 0; i < 4; i++) { tells |= (seed - 1) >> i & 1 ? bits[i] : 0; }
        open_recorder(&r, recording, seed, tells);
        for (size_t i = 0; i < 3000; i++) {
            if (r.n_live == 0 || (r.n_live < 60 && ebb__rng_below(&r.rng, 2) == 0)) {
                record_alloc(&r);
            } else {
                record_free(&r);
            }
        }
        assert_int_equal(ebb_trace_writer_close(r.writer), EBB_OK);
        if (write_snapshot(NULL) != EBB_OK) { fail_msg("seed %d: %s", (int)seed, ebb_last_error()); }
        const facts a = read_facts(recording, NULL), b = read_facts(snapshot, NULL);
        expect_same(&a, &b);
        assert_int_equal(a.n_before, 0);
        for (size_t role = 0; (tells & EBB_TRACE_TELLS_ROLES) != 0 && role < EBB_N_ROLES; role++) {
            assert_int_equal(a.n_of_role[role], b.n_of_role[role]);
        }
        /* The same once more: what it was made of is not in it. */
        assert_int_equal(rename(snapshot, recording), 0);
        assert_int_equal(write_snapshot(NULL), EBB_OK);
        const facts c = read_facts(snapshot, NULL);
        expect_same(&b, &c);
        assert_true(b.hash == c.hash);
    }
}

static void test_no_memory(void **state) {
    (void)state;
    set_paths();
    write_devices();
    OOM_LOOP(mem, st, st = write_snapshot(mem));
}

int main(void) {
    const struct CMUnitTest tests[] = {IN_DIR(test_devices), IN_DIR(test_far_apart), IN_DIR(test_round_trip),
                                       IN_DIR(test_no_memory)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
