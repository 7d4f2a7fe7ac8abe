/* SPDX-License-Identifier: Apache-2.0
 *
 * Memory snapshots as traces: what becomes of events that fit and of those that do not, of what was there before, of
 * settings and annotations; and the shapes that are refused. Snapshots are written here as text and made pickles.
 */
#include "import_support.h"

/* ---- pickles from text ------------------------------------------------------------------------ */

typedef struct maker {
    uint8_t data[8192];
    size_t n;
} maker;

static void put(maker *m, const void *data, size_t n) {
    assert_true(m->n + n <= sizeof m->data);
    memcpy(m->data + m->n, data, n);
    m->n += n;
}

static void put_le(maker *m, uint64_t x, size_t n) {
    for (size_t i = 0; i < n; i++) { put(m, &(uint8_t){(uint8_t)(x >> (8 * i))}, 1); }
}

/* [1, "a", {"b": 2}] and so on; T, F, N are the constants, &3 stores what came last in the memo, *3 gets it. */
static void make_pickle(maker *m, const char *text) {
    put(m, "\x80\x02", 2);
    for (const char *c = text; *c != '\0'; c++) {
        char *end = NULL;
        switch (*c) {
        case '[': put(m, "](", 2); break;
        case ']': put(m, "e", 1); break;
        case '{': put(m, "}(", 2); break;
        case '}': put(m, "u", 1); break;
        case 'T': put(m, "\x88", 1); break;
        case 'F': put(m, "\x89", 1); break;
        case 'N': put(m, "N", 1); break;
        case '&':
        case '*':
            put(m, (uint8_t[]){*c == '&' ? 'q' : 'h', (uint8_t)(c[1] - '0')}, 2);
            c++;
            break;
        case '"': {
            const char *close = strchr(c + 1, '"');
            put(m, "X", 1);
            put_le(m, (uint64_t)(close - c - 1), 4);
            put(m, c + 1, (size_t)(close - c - 1));
            c = close;
            break;
        }
        default: {
            const long long x = strtoll(c, &end, 10);
            if (end == c || *c == ' ') { break; } /* between values */
            put(m, "\x8a\x08", 2);
            put_le(m, (uint64_t)x, 8);
            c = end - 1;
            break;
        }
        }
    }
    put(m, ".", 1);
}

static ebb_status import(const char *text, const char *device, imported *im) {
    maker m = {.n = 0};
    ebb_trace_import_options options = EBB_TRACE_IMPORT_OPTIONS_INIT;
    options.device = device;
    make_pickle(&m, text);
    return import_bytes("f", m.data, m.n, &options, im);
}

#define EVENTS(text) "{\"device_traces\": [[" text "]]}"
#define EVENT(action, addr, size, time)                                                                                \
    "{\"action\": \"" action "\", \"addr\": " addr ", \"size\": " size ", \"stream\": 0, \"time_us\": " time "}"

/* "+0:100@5" an alloc, "-0" a free, "[4096@0" and "]4096" segments, "mark" a mark, each after its microsecond. */
static void expect(const imported *im, const char *events) {
    char text[4096] = "";
    for (size_t i = 0; i < im->n; i++) {
        const ebb_trace_event *e = &im->events[i];
        char *at = text + strlen(text);
        const size_t room = sizeof text - strlen(text);
        const long long block = (long long)e->block, size = (long long)e->size_bytes, address = (long long)e->address;
        (void)snprintf(at, room, "%s%d", i > 0 ? " " : "", (int)(e->time_ns / 1000));
        at += strlen(at);
        switch (e->kind) {
        case EBB_TRACE_ALLOC:
            (void)snprintf(at, room - 20, "%s+%lld:%lld@%lld", e->before ? "before" : "", block, size, address);
            break;
        case EBB_TRACE_FREE: (void)snprintf(at, room - 20, "-%lld", block); break;
        case EBB_TRACE_MARK: (void)snprintf(at, room - 20, "'%s'", ebb_trace_reader_string(im->reader, e->name)); break;
        case EBB_TRACE_SEGMENT_ALLOC: (void)snprintf(at, room - 20, "[%lld@%lld", size, address); break;
        case EBB_TRACE_SEGMENT_FREE: (void)snprintf(at, room - 20, "]%lld", address); break;
        default: fail_msg("kind %d", e->kind);
        }
    }
    assert_string_equal(text, events);
}

/* ---- events ----------------------------------------------------------------------------------- */

static void expect_import(const char *text, const char *device, uint64_t n_left_out, const char *events) {
    imported im;
    if (import(text, device, &im) != EBB_OK) { fail_msg("%s", ebb_last_error()); }
    expect(&im, events);
    assert_int_equal(im.result.n_left_out, n_left_out);
    imported_fini(&im);
}

static void test_lives(void **state) {
    (void)state;
    /* A block dies when that is asked for. */
    expect_import(EVENTS(EVENT("alloc", "512", "100", "7") EVENT("free_requested", "512", "100", "9")
                             EVENT("free_completed", "512", "100", "12")),
                  NULL, 0, "0+0:100@512 2-0");
    /* Only where no one asks, when it is complete. */
    expect_import(EVENTS(EVENT("alloc", "512", "100", "7") EVENT("free_completed", "512", "100", "12")), NULL, 0,
                  "0+0:100@512 5-0");
    /* Freed though never allocated: it was there before. Freed twice: the second is left out. */
    expect_import(EVENTS(EVENT("free_requested", "512", "100", "7") EVENT("free_requested", "512", "100", "8")), NULL,
                  1, "0before+0:100@512 0-0");
    /* Its free is missing; the address is taken again. */
    expect_import(EVENTS(EVENT("alloc", "512", "100", "7") EVENT("alloc", "512", "50", "8")), NULL, 1,
                  "0+0:100@512 1-0 1+1:50@512");
    /* Time goes back, and what has no time is where the time is. */
    expect_import(
        EVENTS(EVENT("alloc", "512", "1", "7") EVENT("alloc", "1024", "2", "3") EVENT("alloc", "2048", "3", "9")), NULL,
        0, "0+0:1@512 0+1:2@1024 2+2:3@2048");
    /* Actions that no one knows, invalid records, keys that mean nothing. */
    expect_import(
        EVENTS(
            EVENT("resize", "512", "1",
                  "7") "{\"x\": 1} 5 N [1, [2]] "
                       "{\"action\": \"alloc\", \"addr\": 512, \"size\": 9, \"new\": [{\"a\": [1]}], \"time_us\": 8}"),
        NULL, 1, "1+0:9@512");
}

static void test_marks(void **state) {
    (void)state;
    expect_import("{\"device_traces\": [[" EVENT(
                      "alloc", "512", "1", "10") "{\"action\": \"oom\", \"device_free\": 3, \"size\": 4, \"time_us\": "
                                                 "20}" EVENT("snapshot", "0", "0",
                                                             "30") "{\"action\": \"annotate\", \"user_metadata\": "
                                                                   "\"here\", \"time_us\": 31}"
                                                                   "]], \"external_annotations\": ["
                                                                   "{\"name\": \"late\", \"stage\": \"START\", "
                                                                   "\"device\": 0, \"time_us\": 99}"
                                                                   "{\"name\": \"a\", \"stage\": \"START\", "
                                                                   "\"device\": 0, \"time_us\": 5}"
                                                                   "{\"name\": \"a\", \"stage\": \"END\", \"device\": "
                                                                   "0, \"time_us\": 20}"
                                                                   "{\"name\": \"b\", \"stage\": \"START\", "
                                                                   "\"device\": 1, \"time_us\": 6}]}",
                  NULL, 0,
                  "0'a' 5+0:1@512 15'end of a' 15'out of memory: 4 bytes asked for, 3 left on the device' 25'snapshot' "
                  "26'here' 94'late'");
}

#define SEGMENT(address, total, device, blocks)                                                                        \
    "{\"device\": " device ", \"address\": " address ", \"total_size\": " total ", \"allocated_size\": 512,"           \
    " \"active_size\": 600, \"stream\": 0, \"blocks\": [" blocks "]}"

static void test_before(void **state) {
    (void)state;
    static const char text[] = "{\"segments\": [" SEGMENT(
        "4096", "4096", "0",
        "{\"size\": 512, \"requested_size\": 500, \"state\": \"active_allocated\"}"
        "{\"size\": 1024, \"requested_size\": 900, \"state\": \"active_pending_free\"}"
        "{\"size\": 512, \"state\": \"active_allocated\", \"history\":"
        " [{\"addr\": 0, \"real_size\": 7}, {\"addr\": 0, \"real_size\": 8}]}"
        "{\"address\": 6144, \"size\": 1024, \"requested_size\": 1000,"
        " \"state\": \"active_allocated\"}"
        "{\"size\": 1024, \"state\": \"inactive\"}")
        SEGMENT("90112", "512", "1",
                "{\"size\": 512, \"state\": \"active_allocated\"}") "],"
                                                                    " \"device_traces\": [[" EVENT("segment_free",
                                                                                                   "16384", "4096", "1")
                                                                        EVENT("segment_map", "6144", "2048",
                                                                              "2") EVENT("alloc", "6144", "1000", "3")
                                                                            EVENT("segment_map", "12288", "2048", "4")
                                                                                EVENT("segment_unmap", "12288", "1024",
                                                                                      "5")
                                                                                    EVENT("segment_unmap", "13312",
                                                                                          "1024", "6") "]]}";
    expect_import(text, "0", 0,
                  "0[2048@4096 0[4096@16384 0before+0:500@4096 0before+1:7@5632 0]16384 1[2048@6144 2+2:1000@6144 "
                  "3[2048@12288 4]12288 4[1024@13312 5]13312");
    expect_import(text, "1", 0, "0[512@90112 0before+0:512@90112");
    imported im;
    assert_int_equal(import(text, NULL, &im), EBB_OK);
    assert_string_equal(ebb_trace_reader_note(im.reader, "stated.reserved_bytes"), "4096");
    assert_string_equal(ebb_trace_reader_note(im.reader, "stated.allocated_bytes"), "512");
    assert_string_equal(ebb_trace_reader_note(im.reader, "stated.active_bytes"), "600");
    assert_null(ebb_trace_reader_note(im.reader, "stated.requested_bytes"));
    assert_string_equal(ebb_trace_reader_note(im.reader, "device"), "0");
    assert_string_equal(ebb_trace_reader_note(im.reader, "devices"), "2");
    assert_true((im.result.tells & EBB_TRACE_TELLS_BEFORE) != 0);
    imported_fini(&im);
    /* A list of segments, nothing else. */
    expect_import("[" SEGMENT("90112", "512", "0", "{\"size\": 512, \"state\": \"active_allocated\"}") "]", NULL, 0,
                  "0[512@90112 0before+0:512@90112");
}

static void test_devices(void **state) {
    (void)state;
    static const char text[] = "{\"device_traces\": [[], [" EVENT("alloc", "512", "1", "10")
        EVENT("alloc", "1024", "2", "30") "], [" EVENT("alloc", "512", "3", "20") "]]}";
    imported im;
    expect_import(text, NULL, 0, "0+0:1@512 20+1:2@1024");
    expect_import(text, "2", 0, "0+0:3@512");
    expect_import(text, "0", 0, "");
    assert_int_equal(import(text, "all", &im), EBB_OK);
    expect(&im, "0+0:1@512 10+1:3@512 20+2:2@1024");
    assert_int_equal(im.events[0].space, 1);
    assert_int_equal(im.events[1].space, 2);
    assert_int_equal(im.events[2].space, 1);
    imported_fini(&im);
    assert_int_equal(import(text, "3", &im), EBB_E_ARGUMENT);
    expect_message("there is no device 3");
    expect_import("{\"device_traces\": []}", NULL, 0, "");
    expect_import("{\"segments\": []}", "all", 0, "");
}

/* Settings as notes, roles, names, and stacks that share what they share. */
static void test_details(void **state) {
    (void)state;
    static const char text[] =
        "{\"device_traces\": [["
        "{\"action\": \"alloc\", \"addr\": 1, \"size\": 1, \"category\": \"TEMPORARY\", \"user_metadata\": \"\","
        " \"compile_context\": \"N/A\", \"frames\":"
        " [{\"name\": \"inner\", \"filename\": \"a.py\", \"line\": 3}, {\"name\": \"\x01\xff\", \"filename\": \"b.py\","
        " \"line\": 4}&1, {\"name\": \"main\", \"filename\": \"b.py\", \"line\": -5}&2]&3}"
        "{\"action\": \"alloc\", \"addr\": 2, \"size\": 1, \"category\": \"Optimizer_State\", \"user_metadata\": "
        "\"warm\","
        " \"compile_context\": \"0/0\", \"frames\": [*1, *2]}"
        "{\"action\": \"alloc\", \"addr\": 3, \"size\": 1, \"category\": \"new\", \"compile_context\": \"0/1\","
        " \"frames\": *3}"
        "]], \"allocator_settings\": {\"PYTORCH_CUDA_ALLOC_CONF\": \"a:b\", \"max_split_size\": -1,"
        " \"expandable_segments\": T, \"none\": N, \"roundup_power2_divisions\": {\"1\": 0, \"2\": 4}}}";
    imported im;
    assert_int_equal(import(text, NULL, &im), EBB_OK);
    assert_int_equal(im.n, 3);
    assert_int_equal(im.events[0].role, EBB_ROLE_TEMP);
    assert_int_equal(im.events[1].role, EBB_ROLE_OPTIMIZER_STATE);
    assert_int_equal(im.events[2].role, EBB_ROLE_UNKNOWN);
    assert_string_equal(ebb_trace_reader_string(im.reader, im.events[0].name), "");
    assert_string_equal(ebb_trace_reader_string(im.reader, im.events[1].name), "warm");
    assert_string_equal(ebb_trace_reader_string(im.reader, im.events[2].name), "0/1");
    assert_int_equal(im.events[0].stack, im.events[2].stack);
    const ebb_trace_frame top = ebb_trace_reader_frame(im.reader, im.events[0].stack);
    assert_int_equal(top.caller, im.events[1].stack);
    assert_int_equal(top.line, 3);
    assert_string_equal(ebb_trace_reader_string(im.reader, top.function), "inner");
    const ebb_trace_frame middle = ebb_trace_reader_frame(im.reader, top.caller);
    assert_string_equal(ebb_trace_reader_string(im.reader, middle.function), "\x01?");
    assert_int_equal(ebb_trace_reader_frame(im.reader, middle.caller).line, 0);
    assert_string_equal(ebb_trace_reader_note(im.reader, "allocator.PYTORCH_CUDA_ALLOC_CONF"), "a:b");
    assert_string_equal(ebb_trace_reader_note(im.reader, "allocator.max_split_size"), "-1");
    assert_string_equal(ebb_trace_reader_note(im.reader, "allocator.expandable_segments"), "true");
    assert_string_equal(ebb_trace_reader_note(im.reader, "allocator.none"), "");
    assert_string_equal(ebb_trace_reader_note(im.reader, "allocator.roundup_power2_divisions"), "1:0,2:4");
    const uint32_t tells = EBB_TRACE_TELLS_ADDRESSES | EBB_TRACE_TELLS_ROLES | EBB_TRACE_TELLS_STACKS;
    assert_int_equal(im.result.tells, tells);
    assert_int_equal(im.events[2].time_ns, 3); /* an order alone */
    imported_fini(&im);
}

static void test_refused(void **state) {
    (void)state;
    static const struct {
        const char *text;
        ebb_status status;
        const char *says;
    } cases[] = {
        {"{\"weights\": [1, 2]}", EBB_E_UNSUPPORTED, "no memory snapshot of PyTorch"},
        {"5", EBB_E_UNSUPPORTED, "no memory snapshot of PyTorch"},
        {"[1, 2]", EBB_E_UNSUPPORTED, "no memory snapshot of PyTorch"},
        {"{\"device_traces\": [[{\"action\": \"alloc\"}&1], [*1]]}", EBB_E_FORMAT, "stands in two lists"},
        {"{\"device_traces\": [[{\"action\": \"alloc\"}&1, *1]]}", EBB_E_FORMAT, "stands in two lists"},
        {"{\"device_traces\": [[{\"action\": \"alloc\"}]&1, *1]}", EBB_E_FORMAT, "lies in two others"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        imported im;
        assert_int_equal(import(cases[i].text, NULL, &im), cases[i].status);
        expect_message(cases[i].says);
    }
    /* A dictionary in two pieces, and more frames for a stack that an event has. */
    imported im;
    static const char pieces[] = "\x80\x02}(X\x06\x00\x00\x00"
                                 "actionX\x05\x00\x00\x00"
                                 "allocuX\x04\x00\x00\x00"
                                 "sizeK\x01s.";
    assert_int_equal(import_bytes("f", pieces, sizeof pieces - 1, NULL, &im), EBB_E_FORMAT);
    expect_message("come in pieces");
    static const char frames[] = "\x80\x02](]q\x00(}(X\x04\x00\x00\x00lineK\x01ueq\x01"
                                 "0}(X\x06\x00\x00\x00"
                                 "actionNX\x06\x00\x00\x00"
                                 "framesh\x00uh\x00(}(X\x04\x00\x00\x00lineK\x02ue0e.";
    assert_int_equal(import_bytes("f", frames, sizeof frames - 1, NULL, &im), EBB_E_FORMAT);
    expect_message("items for what is no list");
}

static void test_no_memory(void **state) {
    (void)state;
    maker m = {.n = 0};
    make_pickle(
        &m,
        "{\"segments\": [" SEGMENT(
            "4096", "4096", "0",
            "{\"size\": 512, \"state\": \"active_allocated\", \"frames\":"
            " [{\"name\": \"f\", \"filename\": \"a.py\", \"line\": 3}]}") "], \"device_traces\": [[" EVENT("alloc",
                                                                                                           "512", "1",
                                                                                                           "10")
            EVENT("free_requested", "512", "1", "11") "], [" EVENT(
                "free_requested", "512", "3", "20") "]], \"allocator_settings\": {\"max_split_size\": 1,"
                                                    " \"roundup_power2_divisions\": {\"1\": 0}}, "
                                                    "\"external_annotations\": [{\"name\": \"a\", \"stage\":"
                                                    " \"END\", \"device\": 0, \"time_us\": 20}]}");
    data_put(&test_dir, "f", m.data, m.n);
    char in[300], out[300];
    (void)snprintf(in, sizeof in, "%s/f", test_dir.path);
    (void)snprintf(out, sizeof out, "%s/out", test_dir.path);
    OOM_LOOP(mem, st, {
        ebb_trace_import_options options = EBB_TRACE_IMPORT_OPTIONS_INIT;
        options.mem = mem;
        options.device = "all";
        st = ebb_trace_import(in, out, &options, NULL);
    });
}

int main(void) {
    const struct CMUnitTest tests[] = {IN_DIR(test_lives),    IN_DIR(test_marks),   IN_DIR(test_before),
                                       IN_DIR(test_devices),  IN_DIR(test_details), IN_DIR(test_refused),
                                       IN_DIR(test_no_memory)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
