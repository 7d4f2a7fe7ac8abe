/* SPDX-License-Identifier: Apache-2.0
 *
 * Other planners' files as programs: what becomes what in each format, what tells formats apart, and what is refused.
 */
#include "program/foreign_priv.h"
#include "support.h"

#include <inttypes.h>

static ebb_status import(const char *text, const char *format, ebb_program **program_out) {
    ebb_stream stream = ebb__stream_memory("f", text, strlen(text));
    ebb_program_import_options options = EBB_PROGRAM_IMPORT_OPTIONS_INIT;
    options.format = format;
    return ebb__program_import_stream(&stream, &options, program_out);
}

#define TEXT_BYTES 2048

static void append(char text[TEXT_BYTES], const char *fmt, ...) EBB_PRINTF(2, 3);
static void append(char text[TEXT_BYTES], const char *fmt, ...) {
    const size_t n = strlen(text);
    va_list args;
    va_start(args, fmt);
    assert_true(vsnprintf(text + n, TEXT_BYTES - n, fmt, args) < (int)(TEXT_BYTES - n));
    va_end(args);
}

/* The program in few letters: tensors as name:bytes, P persistent, k kept, @ released after so many steps; steps as
 * name=kind phase time, ! if it cannot run again, and its accesses. */
static void expect(const char *text, const char *format, const char *expected) {
    ebb_program *program = NULL;
    char got[TEXT_BYTES] = "";
    if (import(text, format, &program) != EBB_OK) { fail_msg("%s", ebb_last_error()); }
    for (size_t t = 0; t < program->tensors.n; t++) {
        const ebb_tensor *tensor = &program->tensors.data[t];
        append(got, "%s:%" PRIu64 "%s%s", tensor->name, tensor->size_bytes, tensor->persistent ? "P" : "",
               tensor->kept ? "k" : "");
        if (tensor->released > 0) { append(got, "@%u", tensor->released); }
        append(got, " ");
    }
    for (size_t s = 0; s < program->steps.n; s++) {
        const ebb_step *step = &program->steps.data[s];
        assert_int_equal(step->n_choices, 1);
        append(got, "| %s=%s %c %" PRIu64 "%s", step->name, step->kind, "fbu?"[step->phase],
               program -> choices.data[step->first_choice].time_ns, step->repeat == EBB_REPEAT_EXACT ? "" : "!");
        for (uint32_t i = 0; i < step->n_accesses; i++) {
            const ebb_access *access = &program->accesses.data[step->first_access + i];
            append(got, " %c%u", " rwu"[access->mode], access -> tensor);
        }
    }
    assert_string_equal(got, expected);
    ebb_program_destroy(program);
}

static void refuse(const char *format, const char *const (*cases)[2], size_t n) {
    for (size_t i = 0; i < n; i++) {
        ebb_program *program = NULL;
        assert_int_equal(import(cases[i][0], format, &program), EBB_E_FORMAT);
        assert_null(program);
        expect_message(cases[i][1]);
    }
}
#define REFUSE(format, cases) refuse(format, cases, sizeof(cases) / sizeof(cases)[0])

/* ---- DTR -------------------------------------------------------------------------------------- */

#define LINE(what, rest) "{\"INSTRUCTION\":\"" what "\"," rest "}\n"
#define CONSTANT(name, bytes) LINE("CONSTANT", "\"NAME\":\"" name "\"") MEMORY(name, bytes)
#define MEMORY(name, bytes) LINE("MEMORY", "\"NAME\":\"" name "\",\"MEMORY\":\"" bytes "\"")
#define ALIAS(name, alias) LINE("ALIAS", "\"NAME\":\"" name "\",\"ALIAS\":\"" alias "\"")
#define CALL(name, arguments, results, time)                                                                           \
    LINE("CALL", "\"NAME\":\"" name "\",\"ARGS\":[" arguments "],\"RESULT\":[" results "],\"TIME\":\"" time "\"")
#define RELEASE(name) LINE("RELEASE", "\"NAME\":\"" name "\"")
#define START LINE("ANNOTATE", "\"ANNOTATION\":\"START\"")

/* Results, views, views alone, the constant that nothing reads, what comes before the start, what lives at the end. */
static void test_dtr(void **state) {
    (void)state;
    expect(CONSTANT("gone", "9") START CONSTANT("w", "100") CONSTANT("idle", "7")
               CALL("conv", "\"w\"", "\"a\",\"b\"", "50") MEMORY("a", "10") ALIAS("a", "-1") MEMORY("b", "20")
                   ALIAS("b", "-1") CALL("view", "\"a\"", "\"v\"", "3") MEMORY("v", "10") ALIAS("v", "0") RELEASE("a")
                       RELEASE("b") CALL("conv_backward", "\"v\",\"w\"", "\"g\",\"h\"", "70") MEMORY("g", "40")
                           ALIAS("g", "-1") MEMORY("h", "0") ALIAS("h", "0") RELEASE("before"),
           NULL,
           "w:100P idle:7P a:10k b:20@2 g:40k | constants=constants f 0 r1| conv/0=conv f 50 r0 w2 w3"
           "| conv_backward/1=conv_backward b 70 r2 r0 w4");
}

/* A changed value is a new one; the old one is released by it. COPY and COPY_FROM move references. */
static void test_dtr_changes(void **state) {
    (void)state;
    const char *made = CALL("make", "", "\"a\"", "1") MEMORY("a", "8") ALIAS("a", "-1");
    char text[TEXT_BYTES] = START;
    append(text, "%s%s", made,
           LINE("MUTATE", "\"NAME\":\"add_\",\"ARGS\":[\"a\",\"a\"],\"MUTATE\":[1],\"TIME\":\"2\""));
    expect(text, NULL, "a:8@2 a:8k | make/0=make f 1 w0| add_/1=add_ f 2 r0 w1");
    append(text, "%s", LINE("COPY", "\"DST\":\"c\",\"SRC\":\"a\"") RELEASE("a"));
    expect(text, NULL, "a:8@2 a:8k | make/0=make f 1 w0| add_/1=add_ f 2 r0 w1");
    append(text, "%s", CALL("make", "", "\"d\"", "0") MEMORY("d", "4") ALIAS("d", "-1"));
    append(text, "%s", LINE("COPY_FROM", "\"DST\":\"c\",\"SRC\":\"d\""));
    expect(text, NULL, "a:8@2 a:8@3 d:4k | make/0=make f 1 w0| add_/1=add_ f 2 r0 w1| make/2=make f 0 w2");
}

/* A constant after the first call is an input, made once, and stays. Calls before the start do not count. */
static void test_dtr_late_constant(void **state) {
    (void)state;
    const char *made = CALL("make", "", "\"a\"", "1") MEMORY("a", "8") ALIAS("a", "-1");
    char text[TEXT_BYTES] = "";
    append(text, "%s%s%s", made, START, CONSTANT("w", "100"));
    append(text, "%s", CALL("make", "\"w\"", "\"b\"", "1") MEMORY("b", "8") ALIAS("b", "-1") CONSTANT("noise", "6"));
    append(text, "%s%s", RELEASE("noise"), CALL("add", "\"b\",\"noise\"", "\"c\"", "2"));
    append(text, "%s%s", MEMORY("c", "8") ALIAS("c", "-1"), RELEASE("b") RELEASE("c"));
    expect(text, NULL,
           "w:100P b:8@3 noise:6k c:8@3 | make/0=make f 1 r0 w1| noise=constant f 0! w2| add/2=add f 2 r1 r2 w3");
}

static void test_dtr_refused(void **state) {
    (void)state;
    static const char *const cases[][2] = {
        {START "{\"A\":1}\n", "f:2: there is no text INSTRUCTION"},
        {START "\n" LINE("JUMP", "\"NAME\":\"a\""), "f:3: JUMP is no INSTRUCTION"},
        {START LINE("CONSTANT", "\"NAME\":\"a\"") RELEASE("a"), "f:3: the MEMORY of a was expected"},
        {START LINE("CONSTANT", "\"NAME\":\"a\""), "f: it ends before"},
        {START CONSTANT("a", "-1"), "f:3: MEMORY is no whole number"},
        {START CONSTANT("a", "1") CONSTANT("a", "1"), "f:4: a is defined twice"},
        {START CALL("x", "\"q\"", "\"a\"", "1"), "f:2: q is not defined"},
        {START CALL("x", "", "\"a\"", "1") MEMORY("b", "1"), "f:3: the MEMORY of a was expected"},
        {START CALL("x", "", "\"a\"", "1") MEMORY("a", "1") ALIAS("a", "0"), "f:4: ALIAS is neither"},
        {START CALL("x", "", "\"a\"", "1") MEMORY("a", "1"), "f: it ends before"},
        {START CONSTANT("a", "1") LINE("MUTATE", "\"NAME\":\"m\",\"ARGS\":[\"a\"],\"MUTATE\":[1],\"TIME\":\"1\""),
         "f:4: MUTATE is not the place"},
        {START LINE("COPY", "\"DST\":\"b\",\"SRC\":\"a\""), "f:2: a is not defined"},
        {START "{\"INSTRUCTION\":\n", "f:"},
        {START, "f: "},
    };
    REFUSE("dtr", cases);
}

/* ---- node-link -------------------------------------------------------------------------------- */

#define GRAPH(graph, nodes, links)                                                                                     \
    "{\"directed\": true, \"multigraph\": false, \"graph\": {" graph "}, \"nodes\": [" nodes "], \"links\": [" links   \
    "]}"
#define NODE(id, bytes, time) "{\"id\": " id ", \"name\": \"n" id "\", \"cost_cpu\": " time ", \"cost_ram\": " bytes "}"
#define EDGE(from, to) "{\"source\": " from ", \"target\": " to "}"

/* By ids, whatever the order in the file; a node waits for what it reads. */
static void test_node_link(void **state) {
    (void)state;
    expect(GRAPH("\"name\": \"g\"", NODE("2", "3", "30") "," NODE("0", "1", "10") "," NODE("1", "2", "20.6"),
                 EDGE("0", "2") "," EDGE("1", "2") "," EDGE("0", "2")),
           NULL, "n0:1 n1:2 n2:3 | n0=node f 10 w0| n1=node f 21 w1| n2=node f 30 r0 r1 w2");
    expect(GRAPH("", NODE("0", "1", "1") "," NODE("1", "2", "2") "," NODE("2", "3", "3"), EDGE("2", "0")), NULL,
           "n1:2 n2:3 n0:1 | n1=node f 2 w0| n2=node f 3 w1| n0=node f 1 r1 w2");
}

static void test_node_link_layered(void **state) {
    (void)state;
    expect(GRAPH("\"order\": [0, 2, 1]",
                 "{\"name\": 0, \"duration\": 1, \"out_cost\": 5}, {\"name\": 1, \"duration\": 2, \"out_cost\": 6},"
                 "{\"name\": 2, \"duration\": 3, \"out_cost\": 7}",
                 "{\"0\": 0, \"1\": 1}"),
           NULL, "0:5 2:7 1:6 | 0=node f 1 w0| 2=node f 3 w1| 1=node f 2 r0 w2");
    expect(GRAPH("",
                 "{\"id\": \"b\", \"duration\": 1, \"out_cost\": 5, \"backward\": true},"
                 "{\"id\": \"a\", \"duration\": 2, \"out_cost\": 6}",
                 ""),
           NULL, "b:5 a:6 | b=node b 1 w0| a=node f 2 w1");
}

static void test_node_link_refused(void **state) {
    (void)state;
    static const char *const cases[][2] = {
        {GRAPH("", NODE("0", "1", "1"), EDGE("0", "0")), "f: its links run in a circle"},
        {GRAPH("", NODE("0", "1", "1"), EDGE("0", "7")), "f: a link names 7, which is no node"},
        {GRAPH("", NODE("0", "1", "1") "," NODE("0", "1", "1"), ""), "f:1: a second node of the id 0"},
        {GRAPH("", "{\"id\": 0, \"cost_ram\": 1}", ""), "f:1: a node has neither cost_cpu nor duration"},
        {GRAPH("", NODE("0", "-1", "1"), ""), "f:1: a node's cost_ram is not from 0"},
        {GRAPH("", NODE("0", "1", "1e400"), ""), "f:1: a node's cost_cpu is not from 0"},
        {GRAPH("", NODE("null", "1", "1"), ""), "f:1: a node's id is neither"},
        {GRAPH("", NODE("0", "1", "1"), "{\"source\": 0}"), "f:1: a link has no source and target"},
        {GRAPH("\"order\": [0, 0]", NODE("0", "1", "1"), ""), "f: the order names 0, which is in it twice"},
        {GRAPH("\"order\": []", NODE("0", "1", "1"), ""), "f: the order has 0 of 1 nodes"},
        {"{\"directed\": true, \"graph\": {}, \"nodes\": []}", "f: there is no member links"},
        {"{\"directed\": true, \"graph\": {}, \"links\": []}", "f: there is no member nodes"},
        {"{\"directed\": true, \"graph\": {}, \"links\": [], \"nodes\": [", "f:1: not JSON: it is cut off"},
        {GRAPH("", "", ""), "f: "},
    };
    REFUSE("node-link", cases);
}

/* ---- min-cut ---------------------------------------------------------------------------------- */

#define CUT(nodes, costs) "{\"Joint Graph Size\": 1, \"Joint Graph Node Information\": {" nodes "}, " costs "}"
#define INFO(name, index, target, shape, inputs)                                                                       \
    "\"" name "\": {\"index\": " index ", \"name\": \"" name "\", \"target\": \"" target "\", \"shape\": \"" shape     \
    "\", \"input_arguments\": [" inputs "]}"
#define COSTS(names, memories, runtimes)                                                                               \
    "\"Recomputable Banned Nodes Order\": [" names "], \"Absolute Memories\": [" memories                              \
    "], \"Knapsack Input Runtimes\": [" runtimes "]"
#define X INFO("x", "0", "primals_1", "torch.Size([2, 3])", "")

/* Two bytes an element, as the candidate has; a view; a tuple and its parts; outputs; a size that is not a number. */
static void test_min_cut(void **state) {
    (void)state;
    expect(
        CUT(X
            "," INFO("mm", "1", "aten.mm.default", "torch.Size([4])", "\"x\"") "," INFO("v", "2", "aten.view.default", "torch.Size([2, 2])", "\"mm\"") "," INFO(
                "n", "3", "aten.norm.default", "[]",
                "\"v\"") "," INFO("p", "5", "<built-in function getitem>", "torch.Size([1])",
                                  "\"n\"") "," INFO("q", "4", "<built-in function getitem>", "torch.Size([5])",
                                                    "\"n\"") "," INFO("s", "6", "aten.sum.default", "torch.Size([s0])",
                                                                      "\"q\", \"v\"") "," INFO("t", "7",
                                                                                               "aten.sum.default",
                                                                                               "torch.Size([])",
                                                                                               "\"p\"") "," INFO("outpu"
                                                                                                                 "t",
                                                                                                                 "8",
                                                                                                                 "outpu"
                                                                                                                 "t",
                                                                                                                 "[]",
                                                                                                                 "\"t\""
                                                                                                                 ", "
                                                                                                                 "\"x"
                                                                                                                 "\""),
            COSTS("\"mm\"", "8", "64.5")),
        NULL,
        "x:12P mm:8 q:10 p:2 t:2k | mm=aten.mm.default ? 65 r0 w1| n=aten.norm.default ? 0 r1 w2 w3"
        "| s=aten.sum.default ? 0 r2 r1| t=aten.sum.default ? 0 r3 w4");
}

static void test_min_cut_refused(void **state) {
    (void)state;
    static const char *const cases[][2] = {
        {CUT(X, COSTS("\"x\"", "1, 2", "3")), "f: 1 candidates, but 2 memories and 1 runtimes"},
        {CUT(X, COSTS("\"y\"", "1", "3")), "f: y is named, but no node"},
        {CUT(X, COSTS("\"x\"", "1", "-3")), "f:1: Knapsack Input Runtimes has a cost"},
        {CUT(X "," X, COSTS("", "", "")), "f:1: node x is there twice"},
        {CUT(INFO("x", "-1", "a", "[]", ""), COSTS("", "", "")), "f:1: node x has no index"},
        {CUT(INFO("x", "1", "aten.a", "[]", "\"x\""), COSTS("", "", "")), "f: node x reads x, which does not come"},
        {CUT(INFO("x", "1", "a", "torch.Size([99999999999, 99999999999])", ""), COSTS("", "", "")),
         "f:1: node x has 2^64"},
        {CUT("\"x\": {\"index\": 0}", COSTS("", "", "")), "f:1: node x lacks target"},
        {"{\"Joint Graph Size\": 1}", "f: there is no member Joint Graph Node Information"},
    };
    REFUSE("min-cut", cases);
}

/* ---- G10 -------------------------------------------------------------------------------------- */

#define KERNEL(id, name, time) "Kernel ID: " id ", Name: " name "\nExecution Time: " time "\n"
#define IN "Input Tensors:\n"
#define OUT "Output Tensors:\n"
#define TENSOR(id, global, bytes)                                                                                      \
    "tensor" id " Is weight (global)?: " global ", Size in byte: " bytes ", Range:0--4096\n"
#define END "____\n"

static void test_g10(void **state) {
    (void)state;
    expect(KERNEL("0", "Conv2d_Forward", "12") IN TENSOR("5", "1", "40") TENSOR("3", "0", "8")
               OUT TENSOR("4", "0", "16")
                   END KERNEL("1", "Conv2d_Backward_Weight",
                              "7") "Parent Layer ID:6; Name:Conv2d\n(1,2,3,4)\n" IN TENSOR("4", "0", "16")
                       TENSOR("4", "0", "16") OUT TENSOR("5", "1", "40") TENSOR("4", "0", "16") END,
           NULL,
           "tensor5:40P tensor3:8 tensor4:16 | tensor3=input f 0! w1| Conv2d_Forward/0=Conv2d_Forward f 10 r0 r1 w2"
           "| Conv2d 6/1=Conv2d_Backward_Weight b 6 u2 u0");
}

/* The backward pass begins with makeLoss; a sum of gradients is not named as one. */
static void test_g10_turn(void **state) {
    (void)state;
    expect(KERNEL("0", "Tanh_Forward", "12") OUT TENSOR("4", "0", "16") END KERNEL("1", "makeLoss", "12")
               IN TENSOR("4", "0", "16") OUT TENSOR("5", "0", "16") END KERNEL("2", "Add_MultiGredient", "12")
                   IN TENSOR("5", "0", "16") OUT TENSOR("6", "1", "16") END KERNEL("3", "Apply_Grad", "12")
                       IN TENSOR("5", "0", "16") OUT TENSOR("6", "1", "16") END,
           NULL,
           "tensor4:16 tensor5:16 tensor6:16P | Tanh_Forward/0=Tanh_Forward f 10 w0| makeLoss/1=makeLoss b 10 r0 w1"
           "| Add_MultiGredient/2=Add_MultiGredient b 10 r1 u2| Apply_Grad/3=Apply_Grad b 10 r1 u2");
}

static void test_g10_refused(void **state) {
    (void)state;
    static const char *const cases[][2] = {
        {KERNEL("0", "A", "1"), "f:3: the file ends within a kernel"},
        {KERNEL("0", "A", "1") KERNEL("1", "A", "1"), "f:3: a kernel begins within a kernel"},
        {"Kernel ID: 0, Name: A\n" END, "f:2: a kernel ends without its execution time"},
        {KERNEL("0", "A", "x"), "f:2: an execution time"},
        {KERNEL("0", "A", "1000000000000000001"), "f:2: an execution time"},
        {KERNEL("0", "A", "1") TENSOR("1", "0", "1"), "f:3: a tensor outside of a list"},
        {KERNEL("0", "A", "1") IN TENSOR("1", "2", "1"), "f:4: 'Is weight (global)?: 0' or 1"},
        {KERNEL("0", "A", "1") OUT TENSOR("1", "0", "1") TENSOR("1", "0", "2"), "f:5: a tensor that had another size"},
        {KERNEL("0", "A", "1") "else\n", "f:3: a line that no kernel has"},
        {END, "f:1: a kernel ends"},
    };
    REFUSE("g10", cases);
}

/* ---- all -------------------------------------------------------------------------------------- */

static void test_formats(void **state) {
    (void)state;
    ebb_program *program = NULL;
    static const char other[] = "{\"schema\": \"1.0.1\", \"nodes\": []}";
    assert_int_equal(import(other, NULL, &program), EBB_E_UNSUPPORTED);
    expect_message("f: a program of no known format");
    assert_int_equal(import(other, "none", &program), EBB_E_ARGUMENT);
    assert_null(ebb_program_format_of(other, strlen(other)));
    const char *dtr = "\n " START;
    assert_string_equal(ebb_program_format_of(dtr + 2, strlen(dtr + 2)), "dtr");
    assert_null(ebb_program_format_of("{}\n{\"INSTRUCTION\": 1}", 22));
    assert_null(ebb_program_format_of("", 0));
    size_t n = 0;
    for (const char *about = NULL; ebb_program_format_name(n, &about) != NULL; n++) { assert_non_null(about); }
    assert_int_equal(n, 4);
}

/* Equal names have one number, others another. */
static void test_names(void **state) {
    (void)state;
    ebb_bump bump;
    ebb_foreign_names names;
    char text[32];
    ebb__bump_init(&bump, NULL);
    ebb__foreign_names_init(&names, ebb__mem_or_default(NULL), &bump);
    for (uint32_t round = 0; round < 2; round++) {
        for (uint32_t i = 0; i < 1000; i++) {
            uint32_t name = 0;
            bool is_new = false;
            (void)snprintf(text, sizeof text, "x%u", i);
            assert_int_equal(ebb__foreign_names_add(&names, text, &name, &is_new), EBB_OK);
            assert_int_equal(name, i);
            assert_int_equal(is_new, round == 0);
            assert_int_equal(ebb__foreign_names_find(&names, text), i);
        }
    }
    assert_int_equal(ebb__foreign_names_find(&names, "y"), FOREIGN_NONE);
    ebb__foreign_names_fini(&names);
    ebb__bump_fini(&bump);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_dtr),
        cmocka_unit_test(test_dtr_changes),
        cmocka_unit_test(test_dtr_late_constant),
        cmocka_unit_test(test_dtr_refused),
        cmocka_unit_test(test_node_link),
        cmocka_unit_test(test_node_link_layered),
        cmocka_unit_test(test_node_link_refused),
        cmocka_unit_test(test_min_cut),
        cmocka_unit_test(test_min_cut_refused),
        cmocka_unit_test(test_g10),
        cmocka_unit_test(test_g10_turn),
        cmocka_unit_test(test_g10_refused),
        cmocka_unit_test(test_formats),
        cmocka_unit_test(test_names),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
