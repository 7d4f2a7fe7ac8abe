/* SPDX-License-Identifier: Apache-2.0
 *
 * PyTorch execution traces, of both kinds of schema: who reads, writes, makes and frees which storage, in which order.
 */
#include "import_support.h"

#define T(id, storage, n) "[" #id "," #storage ",0," #n ",4,\"cpu\"]"
#define GPU(id, storage, n) "[" #id "," #storage ",0," #n ",4,\"cuda:1\"]"
/* A node of schema 1.0.1: name, id, parent, tid, seq_id, op_schema, inputs, outputs. */
#define NODE(name, id, parent, tid, seq, schema, inputs, outputs)                                                      \
    "{\"name\":\"" name "\",\"id\":" #id ",\"rf_id\":1,\"parent\":" #parent ",\"seq_id\":" #seq ",\"tid\":" #tid       \
    ",\"op_schema\":\"" schema "\",\"inputs\":[" inputs "],\"input_shapes\":[],\"outputs\":[" outputs                  \
    "],\"output_shapes\":[]}"
#define FILE_OF(nodes) "{\"schema\":\"1.0.1\",\"pid\":1,\"nodes\":[" nodes "],\"finish_ts\":5}"

#define EMPTY(id, parent, out) NODE("aten::empty", id, parent, 1, -1, "aten::empty(int[] size) -> Tensor", "[2]", out)
#define FILL(id, parent, t)                                                                                            \
    NODE("aten::fill_", id, parent, 1, -1, "aten::fill_(Tensor(a!) self, Scalar value) -> Tensor(a!)", t ",1", t)
#define ADD(id, parent, a, b, out)                                                                                     \
    NODE("aten::add", id, parent, 1, 3, "aten::add(Tensor self, Tensor other) -> Tensor", a "," b, out)
#define VIEW(id, parent, a, out)                                                                                       \
    NODE("aten::view", id, parent, 1, -1, "aten::view(Tensor(a) self, int[] size) -> Tensor(a)", a ",[2]", out)

/* The events as text: +block:size (b: before), -block, R, W, (name/phase/row, ), M. */
static void describe(const imported *im, char *out, size_t cap) {
    size_t n = 0;
    out[0] = '\0';
    for (size_t i = 0; i < im->n; i++) {
        const ebb_trace_event *e = &im->events[i];
        const char *name = ebb_trace_reader_string(im->reader, e->name);
        static const char kinds[] = "+-RWL()CcMSs";
        n += (size_t)snprintf(out + n, cap - n, "%c", kinds[e->kind]);
        if (e->kind <= EBB_TRACE_WRITE) { n += (size_t)snprintf(out + n, cap - n, "%d", (int)e->block); }
        if (e->kind == EBB_TRACE_ALLOC) {
            n += (size_t)snprintf(out + n, cap - n, ":%d%s", (int)e->size_bytes, e->before ? "b" : "");
        }
        if (e->kind == EBB_TRACE_STEP_BEGIN) {
            const char *base = strncmp(name, "aten::", 6) == 0 ? name + 6 : name;
            n += (size_t)snprintf(out + n, cap - n, "%s/%u/%u", base, e->phase, e->row);
        }
        if (e->kind == EBB_TRACE_MARK) { n += (size_t)snprintf(out + n, cap - n, "%u#%d", e->mark, (int)e->number); }
        n += (size_t)snprintf(out + n, cap - n, " ");
        assert_true(n < cap);
    }
}

static void expect_events(const char *json, const char *expected) {
    imported im;
    char text[4096];
    assert_int_equal(import_text("et.json", json, &im), EBB_OK);
    assert_string_equal(im.result.format, "execution");
    assert_int_equal(im.result.tells, EBB_TRACE_TELLS_ACCESSES | EBB_TRACE_TELLS_STEPS);
    describe(&im, text, sizeof text);
    assert_string_equal(text, expected);
    for (size_t i = 1; i < im.n; i++) { assert_true(im.events[i].time_ns > im.events[i - 1].time_ns); }
    imported_fini(&im);
}

/* Blocks from before are called so; the rest after the outermost operator around it, or the update, and not after
 * what the program calls a stretch of itself. */
static void test_names(void **state) {
    (void)state;
    static const char *const names[] = {"before the recording", "aten::add", "aten::empty", "Optimizer.step#SGD.step"};
    imported im;
    assert_int_equal(
        import_text(
            "names.json",
            FILE_OF(
                NODE("mine", 2, 1, 1, -1, "", "", "") "," ADD(3, 2, T(10, 5, 8), T(10, 5, 8), T(11, 6, 8)) "," EMPTY(
                    4, 2, T(12, 7, 4)) "," NODE("Optimizer.step#SGD.step", 5, 1, 1, -1, "", "",
                                                "") "," ADD(6, 5, T(11, 6, 8), T(12, 7, 4), T(13, 8, 8))),
            &im),
        EBB_OK);
    expect_names(&im, names, sizeof names / sizeof names[0]);
    imported_fini(&im);
}

/* A node with a scope: an operator, one of the backward pass, a range of the program's. */
#define SCOPED(scope, name, id, parent, seq, inputs, outputs)                                                          \
    "{\"name\":\"" name "\",\"id\":" #id ",\"rf_id\":1,\"parent\":" #parent ",\"seq_id\":" #seq ",\"scope\":" #scope   \
    ",\"tid\":1,\"fw_tid\":1,\"op_schema\":\"aten::relu(Tensor self) -> Tensor\""                                      \
    ",\"inputs\":[" inputs "],\"input_shapes\":[],\"outputs\":[" outputs "],\"output_shapes\":[]}"
#define RELU(id, parent, seq, in, out) SCOPED(0, "aten::relu", id, parent, seq, in, out)
#define BACK(id, parent, seq) SCOPED(1, "ReluBackward0", id, parent, seq, "", "")
#define RANGE(name, id, parent) SCOPED(7, name, id, parent, -1, "", "")
#define ENGINE(id, parent) NODE("autograd::engine::evaluate_function: ReluBackward0", id, parent, 1, -1, "", "", "")

/* Ranges of the program's are modules: what is made within is named after them, and so are steps, in the backward pass
 * too. A range whose name goes on from that of the one around it is not told twice; those of PyTorch's do not count. */
static void test_ranges(void **state) {
    (void)state;
    static const char *const names[] = {"before the recording",   "aten::relu",
                                        "net.layers.0.act.relu",  "net.layers.0.relu",
                                        "net.last.relu",          "autograd::engine::evaluate_function: ReluBackward0",
                                        "Optimizer.step#SGD.step"};
    static const char *const steps[] = {"enumerate(DataLoader)#x",
                                        "aten::relu",
                                        "net",
                                        "net.layers.0",
                                        "net.layers.0.act",
                                        "net.layers.0.act",
                                        "net.layers.0",
                                        "net.last",
                                        "net.last",
                                        "autograd::engine::evaluate_function: ReluBackward0",
                                        "net.layers.0.act",
                                        "net.layers.0.act",
                                        "Optimizer.step#SGD.step",
                                        "mine",
                                        "aten::relu"};
    static const char *const nodes[] = {
        RANGE("enumerate(DataLoader)#x", 2, 1),
        RELU(3, 2, 0, T(10, 5, 8), T(11, 6, 8)),
        RANGE("net", 4, 1),
        RANGE("layers.0", 5, 4),
        RANGE("layers.0.act", 6, 5),
        RELU(7, 6, 0, T(11, 6, 8), T(12, 7, 8)),
        RELU(8, 5, 1, T(12, 7, 8), T(13, 8, 8)),
        RANGE("last", 9, 4),
        RELU(10, 9, 2, T(13, 8, 8), T(14, 9, 8)),
        ENGINE(11, 1),
        BACK(12, 11, 0),
        RELU(13, 12, -1, T(12, 7, 8), T(15, 10, 8)),
        NODE("Optimizer.step#SGD.step", 14, 1, 1, -1, "", "", ""),
        RANGE("mine", 15, 14),
        RELU(16, 15, -1, T(15, 10, 8), T(16, 11, 8)),
    };
    imported im;
    char json[8192];
    size_t n = (size_t)snprintf(json, sizeof json, "{\"schema\":\"1.0.1\",\"nodes\":[%s", nodes[0]);
    for (size_t i = 1; i < sizeof nodes / sizeof nodes[0]; i++) {
        n += (size_t)snprintf(json + n, sizeof json - n, ",%s", nodes[i]);
    }
    n += (size_t)snprintf(json + n, sizeof json - n, "]}");
    assert_true(n < sizeof json);
    assert_int_equal(import_text("ranges.json", json, &im), EBB_OK);
    n = 0;
    expect_names(&im, names, sizeof names / sizeof names[0]);
    for (size_t i = 0; i < im.n; i++) {
        if (im.events[i].kind != EBB_TRACE_STEP_BEGIN) { continue; }
        assert_true(n < sizeof steps / sizeof steps[0]);
        assert_string_equal(ebb_trace_reader_string(im.reader, im.events[i].name), steps[n++]);
    }
    assert_int_equal(n, sizeof steps / sizeof steps[0]);
    assert_string_equal(ebb_trace_reader_note(im.reader, "class.net.layers.0"), "");
    assert_string_equal(ebb_trace_reader_note(im.reader, "class.net.layers.0.act"), "");
    assert_null(ebb_trace_reader_note(im.reader, "class.net.layers"));
    assert_null(ebb_trace_reader_note(im.reader, "class.mine"));
    imported_fini(&im);
}

/* Made by an operator within another, written, read, over; what is read first was there before and stays. */
static void test_lives(void **state) {
    (void)state;
    expect_events(FILE_OF(EMPTY(3, 2, T(4, 5, 2)) "," FILL(6, 2, T(4, 5, 2)) "," NODE(
                      "aten::ones", 2, 1, 1, -1, "aten::ones(int[] size) -> Tensor", "[2]",
                      T(4, 5, 2)) "," ADD(7, 1, T(4, 5, 2), T(8, 9, 2), T(10, 11, 2))),
                  "+0:8b (ones/3/0 (empty/3/0 +1:8 ) (fill_/3/0 W1 ) ) (add/0/0 +2:8 R1 R0 W2 ) -1 -2 ");
}

/* The same number again is another block; without an operator that makes it within, too. */
static void test_numbers_again(void **state) {
    (void)state;
    expect_events(FILE_OF(EMPTY(2, 1, T(4, 5, 2)) "," FILL(6, 1, T(4, 5, 2)) "," EMPTY(7, 1, T(4, 5, 6)) "," FILL(
                      8, 1, T(4, 5, 6))),
                  "(empty/3/0 +0:8 ) (fill_/3/0 W0 ) -0 (empty/3/0 +1:24 ) (fill_/3/0 W1 ) -1 ");
    expect_events(FILE_OF(EMPTY(2, 1, T(4, 5, 2)) "," FILL(4, 3, T(4, 5, 2)) "," ADD(
                      3, 1, T(8, 9, 1), T(8, 9, 1), T(4, 5, 2)) "," FILL(11, 1, T(4, 5, 2))),
                  "+0:4b (empty/3/0 +1:8 ) -1 (add/0/0 +2:8 (fill_/0/0 W2 ) R0 ) (fill_/3/0 W2 ) -2 ");
    /* ... which is larger: what had the number before does not grow */
    expect_events(
        FILE_OF(EMPTY(2, 1, T(4, 5, 2)) "," FILL(4, 3, T(4, 5, 4)) "," ADD(3, 1, T(8, 9, 1), T(8, 9, 1), T(4, 5, 4))),
        "+0:4b (empty/3/0 +1:8 ) -1 (add/0/0 +2:16 (fill_/0/0 W2 ) R0 ) -2 ");
    /* ... of a number that was not seen before */
    expect_events(FILE_OF(FILL(4, 3, T(4, 5, 2)) "," ADD(3, 1, T(8, 9, 1), T(8, 9, 1),
                                                         T(4, 5, 2)) "," VIEW(11, 1, T(4, 5, 2), T(12, 5, 2))),
                  "+0:4b (add/0/0 +1:8 (fill_/0/0 W1 ) R0 ) (view/3/0 ) -1 ");
}

/* Views neither read nor write; what a node within has read is not read again; in place is both. */
static void test_accesses(void **state) {
    (void)state;
    expect_events(
        FILE_OF(VIEW(2, 1, T(4, 5, 2), T(6, 5, 2)) "," ADD(8, 7, T(4, 5, 2), T(6, 5, 2), T(9, 10, 2)) "," NODE(
            "aten::sum2", 7, 1, 1, -1, "aten::sum2(Tensor self, Tensor o) -> Tensor", T(4, 5, 2) "," T(11, 12, 1),
            T(9, 10, 2))),
        "+0:8b +1:4b (view/3/0 ) (sum2/3/0 (add/0/0 +2:8 R0 W2 ) R1 ) -2 ");
    expect_events(
        FILE_OF(NODE("aten::add_", 2, 1, 1, -1, "aten::add_(Tensor(a!) self, Tensor o) -> Tensor(a!)",
                     T(4, 5, 2) "," T(6, 7, 2),
                     T(4, 5, 2)) "," NODE("aten::add", 3, 1, 1, -1,
                                          "aten::add.out(Tensor self, Tensor o, *, Tensor(a!) out) -> Tensor(a!)",
                                          T(4, 5, 2) "," T(6, 7, 2) "," T(8, 9, 2), T(8, 9, 2))),
        "+0:8b +1:8b +2:8b (add_/3/0 R0 R1 W0 ) (add/3/0 R0 R1 W2 ) ");
}

/* Lists of tensors; autograd's nodes hold and do not read; phases, marks; threads are rows. */
static void test_scopes(void **state) {
    (void)state;
    expect_events(
        FILE_OF(NODE("[pytorch|profiler|execution_graph|thread]", 2, 1, 1, -1, "", "", "") "," NODE(
            "aten::cat", 4, 3, 1, 2, "aten::cat(Tensor[] t, int dim) -> Tensor", "[" T(5, 6, 1) "," T(7, 8, 1) "],0",
            T(9, 10,
              2)) "," NODE("ProfilerStep#4", 3, 2, 1, -1, "", "",
                           "") "," NODE("aten::neg", 22, 21, 2, -1, "aten::neg(Tensor self) -> Tensor", T(9, 10, 2),
                                        T(11, 12,
                                          2)) "," NODE("NegBackward0", 21, 20, 2, 5, "", T(9, 10, 2),
                                                       "") "," NODE("autograd::engine::evaluate_function: NegBackward0",
                                                                    20, 19, 2, -1, "", "",
                                                                    "") "," NODE("aten::neg", 31, 30, 1, -1,
                                                                                 "aten::neg(Tensor self) -> Tensor",
                                                                                 T(5, 6, 1),
                                                                                 T(13, 14, 1)) "," NODE("Optimizer."
                                                                                                        "step#SGD.step",
                                                                                                        30, 2, 1, -1,
                                                                                                        "", "", "")),
        "+0:4b +1:4b M0#4 (ProfilerStep#4/3/0 (cat/0/0 +2:8 (autograd::engine::evaluate_function: NegBackward0/1/3 "
        "(NegBackward0/1/3 (neg/1/3 +3:8 R0 R1 W2 ) ) M1#4 M2#0 (Optimizer.step#SGD.step/2/0 (neg/2/0 +4:4 R0 W4 ) -4 "
        ") R2 "
        "W3 ) -3 ) -2 ) ");
}

/* An operator that ends with an exception is not in the file, and nodes after it name it, or what it was in, as their
 * parent: which node ends first says what is within what. */
static void test_exception(void **state) {
    (void)state;
    expect_events(FILE_OF(RELU(3, 9, 0, T(4, 5, 2), T(6, 7, 2)) "," RANGE("r", 12, 11) "," RELU(
                      15, 14, -1, T(6, 7, 2),
                      T(16, 17, 2)) "," BACK(11, 10, 0) "," ENGINE(10, 1) "," RELU(22, 21, -1, T(16, 17, 2),
                                                                                   T(23, 24, 2)) "," ENGINE(20, 11)),
                  "+0:8b (relu/0/0 +1:8 R0 W1 ) (autograd::engine::evaluate_function: ReluBackward0/1/0 "
                  "(ReluBackward0/1/0 (r/1/0 ) (relu/1/0 +2:8 R1 W2 ) -1 ) ) (autograd::engine::evaluate_function: "
                  "ReluBackward0/1/0 (relu/1/0 +3:8 R2 W3 ) -2 -3 ) ");
}

#define ATTR(name, value) "{\"name\":\"" name "\",\"type\":\"x\",\"value\":" value "}"
#define LATER(name, id, parent, schema, inputs, shapes, strides, outputs)                                              \
    "{\"id\":" #id ",\"name\":\"" name "\",\"ctrl_deps\":" #parent ",\"inputs\":{\"values\":[" inputs                  \
    "],\"shapes\":[" shapes "],\"types\":[],\"strides\":[" strides "]},\"outputs\":{\"values\":[" outputs              \
    "],\"shapes\":[],\"types\":[]},\"attrs\":[" ATTR("rf_id", "3") "," ATTR("tid", "1") "," ATTR(                      \
        "seq_id", "-1") "," ATTR("op_schema", "\"" schema "\"") "]}"

/* The later schema: strides say how much of its storage a tensor needs; a tensor without storage does not count. */
static void test_later(void **state) {
    (void)state;
    expect_events("{\"schema\":\"1.1.1-chakra.0.0.4\",\"nodes\":[" LATER(
                      "aten::neg", 2, 1, "aten::neg(Tensor self) -> Tensor", T(4, 5, 12) ",[1,0,0,0,0,\"\"]",
                      "[3,4],[]", "[1,0],[]", T(6, 7, 12)) "]}",
                  "+0:12b (neg/3/0 +1:48 R0 W1 ) -1 ");
}

static void test_devices(void **state) {
    (void)state;
    const char *json =
        FILE_OF(NODE("aten::to", 2, 1, 1, -1, "aten::to(Tensor self) -> Tensor", T(4, 5, 2), GPU(6, 7, 2)));
    static const struct {
        const char *device;
        const char *events;
    } cases[] = {{NULL, "(to/3/0 +0:8 W0 ) -0 "},
                 {"cpu", "+0:8b (to/3/0 R0 ) "},
                 {"1", "(to/3/0 +0:8 W0 ) -0 "},
                 {"all", "+0:8b (to/3/0 +1:8 R0 W1 ) -1 "}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        ebb_trace_import_options options = EBB_TRACE_IMPORT_OPTIONS_INIT;
        imported im;
        char text[512];
        options.device = cases[i].device;
        assert_int_equal(import_bytes("f", json, strlen(json), &options, &im), EBB_OK);
        describe(&im, text, sizeof text);
        assert_string_equal(text, cases[i].events);
        imported_fini(&im);
    }
}

static void test_refused(void **state) {
    (void)state;
    static const struct {
        const char *text, *says;
        ebb_status status;
    } cases[] = {
        {"{\"schema\":\"2.0\",\"nodes\":[{\"rf_id\":1}]}", "f: an execution trace of schema '2.0'", EBB_E_UNSUPPORTED},
        {"{\"schema\":\"1.0\",\n\"nodes\":[{\"rf_id\":1}]}", "f:2: a node without a name or an id", EBB_E_FORMAT},
        {FILE_OF(NODE("x", 1, 1, 1, 1, "", "", "")), "f: no operator in it has a tensor", EBB_E_UNSUPPORTED},
        {"{\"schema\":\"1.0\",\"nodes\":5,\"rf_id\":1}", "f:1: its list is no array", EBB_E_FORMAT},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        imported im;
        assert_int_equal(import_text("f", cases[i].text, &im), cases[i].status);
        expect_message(cases[i].says);
    }
}

/* Ids in no order do no harm: each block is made once and freed once. */
static void test_disorder(void **state) {
    (void)state;
    expect_events(FILE_OF(FILL(9, 9, T(4, 5, 2)) "," EMPTY(8, 8, T(4, 5, 2)) "," FILL(3, 9, T(4, 5, 2)) "," ADD(
                      3, 3, T(4, 5, 2), T(4, 5, 2), T(4, 5, 2))),
                  "(fill_/3/0 ) (add/0/0 (empty/0/0 +0:8 (fill_/0/0 W0 ) ) ) -0 ");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        IN_DIR(test_names),    IN_DIR(test_ranges),   IN_DIR(test_lives),     IN_DIR(test_numbers_again),
        IN_DIR(test_accesses), IN_DIR(test_scopes),   IN_DIR(test_later),     IN_DIR(test_devices),
        IN_DIR(test_refused),  IN_DIR(test_disorder), IN_DIR(test_exception),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
