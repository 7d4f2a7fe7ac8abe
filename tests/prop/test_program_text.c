/* SPDX-License-Identifier: Apache-2.0
 *
 * The program file: random programs go round to the last bit; each malformed line is named with its cause; cut
 * and mutated files do no harm.
 */
#include "base/file.h"
#include "program/program.h"
#include "support.h"

#include <math.h>
#include <unistd.h>

#define MAX_TENSORS 30u
#define MAX_STEPS 40u

static char path[64];

static int make_path(void **state) {
    (void)state;
    strcpy(path, "/tmp/ebb-program-XXXXXX");
    int fd = mkstemp(path);
    return fd < 0 || close(fd) != 0 ? -1 : 0;
}

static int remove_path(void **state) {
    (void)state;
    return unlink(path);
}

static const char *draw_text(ebb_rng *rng, char text[16]) {
    size_t n = ebb__rng_below(rng, 15);
    for (size_t i = 0; i < n; i++) {
        text[i] = (char)(1 + ebb__rng_below(rng, 255)); /* any byte but 0 */
        if (ebb__rng_below(rng, 2) == 0) { text[i] = "ab\"\\ \n\t#"[ebb__rng_below(rng, 8)]; }
    }
    text[n] = '\0';
    return text;
}

static double draw_real(ebb_rng *rng) {
    uint64_t bits = (uint64_t)ebb__rng_u32(rng) << 32 | ebb__rng_u32(rng);
    double x = 0;
    switch (ebb__rng_below(rng, 4)) {
    case 0: return (double)(bits >> ebb__rng_below(rng, 64));
    case 1: return (double)ebb__rng_below(rng, 3);
    case 2: return (double)(bits >> 20) / 1048576.0;
    default:
        bits &= ~((uint64_t)1 << 63);
        memcpy(&x, &bits, sizeof x);
        return isfinite(x) ? x : 1.5;
    }
}

/* A random program that holds the rules: temporaries are written first. */
static ebb_program *draw_program(ebb_rng *rng) {
    char text[16], text2[16];
    ebb_program *p = NULL;
    assert_int_equal(ebb_program_create(NULL, draw_text(rng, text), (uint64_t)1 << ebb__rng_below(rng, 31), &p),
                     EBB_OK);
    uint32_t n_tensors = 1 + (uint32_t)ebb__rng_below(rng, MAX_TENSORS), idx = 0;
    const uint32_t n_steps = 1 + (uint32_t)ebb__rng_below(rng, MAX_STEPS);
    bool written[MAX_TENSORS] = {false};
    if (ebb__rng_below(rng, 3) == 0) { assert_int_equal(ebb_program_keep_order(p), EBB_OK); }
    for (uint32_t i = 0; i < n_tensors; i++) {
        ebb_tensor t = {.name = draw_text(rng, text),
                        .size_bytes = 1 + (ebb__rng_below(rng, UINT64_MAX) >> (9 + ebb__rng_below(rng, 50))) / 64,
                        .role = (ebb_role)ebb__rng_below(rng, EBB_N_ROLES),
                        .marks = ebb__rng_below(rng, 4) == 0 ? EBB_MARK_CHECKPOINT : 0,
                        .persistent = ebb__rng_below(rng, 3) == 0,
                        .kept = ebb__rng_below(rng, 5) == 0};
        t.released = !t.persistent && !t.kept && ebb__rng_below(rng, 3) == 0 ? n_steps : 0;
        written[i] = t.persistent;
        assert_int_equal(ebb_program_add_tensor(p, &t, &idx), EBB_OK);
    }
    for (uint32_t s = 0; s < n_steps; s++) {
        ebb_access accesses[MAX_TENSORS];
        uint32_t n = s == 0 ? n_tensors : (uint32_t)ebb__rng_below(rng, 6);
        for (uint32_t a = 0; a < n; a++) { /* the first step touches all */
            uint32_t t = s == 0 ? a : (uint32_t)ebb__rng_below(rng, n_tensors);
            accesses[a] = (ebb_access){t, written[t] ? 1 + (uint32_t)ebb__rng_below(rng, 3) : EBB_WRITE};
            written[t] = true;
        }
        ebb_choice choices[3];
        uint32_t n_choices = 1 + (uint32_t)ebb__rng_below(rng, 3);
        for (uint32_t c = 0; c < n_choices; c++) {
            choices[c] = (ebb_choice){.name = c == 0 ? "a" : "b",
                                      .scratch_bytes = ebb__rng_below(rng, 1000000),
                                      .key = (uint64_t)ebb__rng_u32(rng) << 32 | ebb__rng_u32(rng),
                                      .time_ns = ebb__rng_below(rng, 2) == 0 ? 0 : ebb__rng_u32(rng),
                                      .flops = draw_real(rng),
                                      .traffic_bytes = draw_real(rng)};
        }
        ebb_step step = {.n_accesses = n, .n_choices = n_choices};
        step.name = draw_text(rng, text);
        step.kind = draw_text(rng, text2);
        step.phase = (uint32_t)ebb__rng_below(rng, EBB_N_PHASES);
        step.repeat = (uint32_t)ebb__rng_below(rng, EBB_N_REPEATS);
        assert_int_equal(ebb_program_add_step(p, &step, accesses, choices), EBB_OK);
    }
    return p;
}

static bool same_steps(const ebb_program *a, const ebb_program *b) {
    for (size_t i = 0; i < a->steps.n; i++) {
        const ebb_step *x = &a->steps.data[i], *y = &b->steps.data[i];
        if (strcmp(x->name, y->name) != 0 || strcmp(x->kind, y->kind) != 0 || x->phase != y->phase ||
            x->repeat != y->repeat || x->n_accesses != y->n_accesses || x->n_choices != y->n_choices ||
            x->first_access != y->first_access || x->first_choice != y->first_choice) {
            return false;
        }
    }
    for (size_t i = 0; i < a->choices.n; i++) {
        const ebb_choice *x = &a->choices.data[i], *y = &b->choices.data[i];
        if (strcmp(x->name, y->name) != 0 || x->scratch_bytes != y->scratch_bytes || x->key != y->key ||
            x->time_ns != y->time_ns || x->flops != y->flops || x->traffic_bytes != y->traffic_bytes) {
            return false;
        }
    }
    return memcmp(a->accesses.data, b->accesses.data, a->accesses.n * sizeof *a->accesses.data) == 0;
}

static bool same_program(const ebb_program *a, const ebb_program *b) {
    if (strcmp(a->name, b->name) != 0 || a->alignment_bytes != b->alignment_bytes || a->tensors.n != b->tensors.n ||
        a->steps.n != b->steps.n || a->accesses.n != b->accesses.n || a->choices.n != b->choices.n) {
        return false;
    }
    for (size_t i = 0; i < a->tensors.n; i++) {
        const ebb_tensor *x = &a->tensors.data[i], *y = &b->tensors.data[i];
        if (strcmp(x->name, y->name) != 0 || x->size_bytes != y->size_bytes || x->role != y->role ||
            x->marks != y->marks || x->persistent != y->persistent || x->kept != y->kept ||
            x->released != y->released) {
            return false;
        }
    }
    return same_steps(a, b) && ebb_program_fingerprint(a) == ebb_program_fingerprint(b);
}

static void test_round_trip(void **state) {
    (void)state;
    for (uint64_t seed = 0; seed < 150; seed++) {
        ebb_rng rng;
        ebb__rng_init(&rng, seed, 0);
        ebb_program *p = draw_program(&rng), *q = NULL;
        bool ok =
            ebb_program_save(p, path) == EBB_OK && ebb_program_load(NULL, path, &q) == EBB_OK && same_program(p, q);
        if (!ok) { fail_msg("seed %llu: %s", (unsigned long long)seed, ebb_last_error()); }
        ebb_program_destroy(p);
        ebb_program_destroy(q);
    }
}

#define HEAD "ebb-program 1\nname \"n\"\nalignment 64\n"
#define TENSORS "tensor 0 \"w\" 8 parameter persistent\ntensor 1 \"x\" 8 temp\n"
#define STEP "step 0 \"s\" \"k\" forward read 0 write 1 choice \"c\" 0 00000000000000ff 1 3p-1\n"
#define GOOD HEAD TENSORS STEP "end 2 1\n"

static void test_example(void **state) {
    (void)state;
    const char text[] = "ebb-program 1\r\nname \"a \\\"b\\\" \\\\ \\x0a\"\n\n# a comment\n  alignment 64 \n" TENSORS
                        "# another\n" STEP "end 2 1";
    ebb_program *p = NULL;
    assert_int_equal(ebb__program_parse(NULL, "t", text, sizeof text - 1, &p), EBB_OK);
    assert_string_equal(ebb_program_name(p), "a \"b\" \\ \n");
    size_t n = 0;
    assert_true(ebb_program_choices(p, &n)[0].traffic_bytes == 1.5);
    assert_int_equal(ebb_program_choices(p, &n)[0].key, 255);
    assert_int_equal(ebb_program_accesses(p, &n)[1].mode, EBB_WRITE);
    ebb_program_destroy(p);
}

/* What the format's page shows is read, and is written as it stands there. */
static void test_documented_example(void **state) {
    (void)state;
    char *page = NULL, *back = NULL;
    size_t n = 0;
    assert_int_equal(ebb__file_read_all(NULL, "docs/program-format.md", 1 << 20, &page, &n), EBB_OK);
    char *begin = strstr(page, "```\n") + 4, *end = strstr(begin, "```");
    ebb_program *p = NULL;
    if (ebb__program_parse(NULL, "page", begin, (size_t)(end - begin), &p) != EBB_OK) {
        fail_msg("%s", ebb_last_error());
    }
    assert_int_equal(ebb_program_save(p, path), EBB_OK);
    assert_int_equal(ebb__file_read_all(NULL, path, 1 << 20, &back, &n), EBB_OK);
    *end = '\0';
    assert_string_equal(back, begin);
    ebb_program_destroy(p);
    ebb__free(NULL, page);
    ebb__free(NULL, back);
}

static void test_refusals(void **state) {
    (void)state;
    static const struct {
        const char *text, *message;
    } cases[] = {
        {"", "t:1: not a program"},
        {HEAD "tensor 0 \"x\" 8 temp released 4294967296\n", "t:4: it is released after more steps"},
        {"ebb-programs 1\n", "t:1: not a program"},
        {"ebb-program 2\n", "t:1: a version"},
        {"ebb-program 1 1\n", "t:1: a field too many"},
        {"ebb-program 1\nalignment 64\n", "t:2: 'name' was expected"},
        {"ebb-program 1\nname n\n", "t:2: a text in quotes"},
        {"ebb-program 1\nname \"n\nalignment 64\n", "t:2: a text without its end"},
        {"ebb-program 1\nname \"n\\q\"\n", "t:2: a backslash"},
        {"ebb-program 1\nname \"n\\x00\"\n", "t:2: a backslash"},
        {"ebb-program 1\nname \"n\"64\n", "t:2: a space was expected"},
        {"ebb-program 1\nname \"n\"\nalignment 65\n", "t:3: an alignment of 65"},
        {"ebb-program 1\nname \"n\"\nalignment 64x\n", "t:3: not a number"},
        {"ebb-program 1\nname \"n\"\nalignment -1\n", "t:3: a number was expected"},
        {"ebb-program 1\nname \"n\"\nalignment 18446744073709551616\n", "t:3: a number beyond 64 bits"},
        {HEAD "tensor 1 \"x\" 8 temp\n", "t:4: index 1, but the next is 0"},
        {HEAD "tensor 0 \"x\" 0 temp\n", "t:4: it has no bytes"},
        {HEAD "tensor 0 \"x\" 8 tempo\n", "t:4: an unknown role"},
        {HEAD "tensor 0 \"x\" 8 temp keep\n", "t:4: a field that does not belong"},
        {HEAD "tenser 0 \"x\" 8 temp\n", "t:4: 'tensor', 'step' or 'end'"},
        {HEAD TENSORS "step 0 \"s\" \"k\" sideways\n", "t:6: an unknown phase"},
        {HEAD TENSORS "step 0 \"s\" \"k\" forward read 2 choice \"c\" 0 00000000000000ff 1 1\n", "t:6: step 0 (s)"},
        {HEAD TENSORS "step 0 \"s\" \"k\" forward 0 choice \"c\" 0 00000000000000ff 1 1\n", "t:6: not an access"},
        {HEAD TENSORS "step 0 \"s\" \"k\" forward read 0\n", "t:6: step 0 (s): it has no choice"},
        {HEAD TENSORS "step 0 \"s\" \"k\" forward choice \"c\" 0 ff 1 1\n", "t:6: a key of 16"},
        {HEAD TENSORS "step 0 \"s\" \"k\" forward choice \"c\" 0 00000000000000ff 1p 1\n", "t:6: an exponent"},
        {HEAD TENSORS "step 0 \"s\" \"k\" forward choice \"c\" 0 00000000000000ff 1p9999 1\n",
         "t:6: a number that is too"},
        {HEAD TENSORS "step 0 \"s\" \"k\" forward choice \"c\" 0 00000000000000ff 1.5 1\n", "t:6: not a number"},
        {HEAD TENSORS "step 0 \"s\" \"k\" forward exact choice \"c\" 0 00000000000000ff 1 1\n",
         "t:6: step 0 (s): it has no"},
        {HEAD TENSORS "step 0 \"s\" \"k\" forward choice \"c\" 0 00000000000000ff 1 1 time\n", "t:6: a number was"},
        {HEAD TENSORS "step 0 \"s\" \"k\" forward choice \"c\" 0 00000000000000ff 1 1 time -1\n", "t:6: a number was"},
        {HEAD TENSORS STEP, "the file is cut off"},
        {HEAD TENSORS STEP "end 2 2\n", "t:7: the end counts other"},
        {HEAD TENSORS STEP "end 2 1 0\n", "t:7: a field too many"},
        {HEAD "in-order\nin-order\n", "t:5: 'tensor', 'step' or 'end' was expected"},
        {HEAD TENSORS "in-order\n", "t:6: 'tensor', 'step' or 'end' was expected"},
        {GOOD "tensor", "t:8: a line after the end"},
        {HEAD TENSORS "end 2 0\n", "t: program n: it has no steps"},
        {HEAD TENSORS "step 0 \"s\" \"k\" forward read 0 1 choice \"c\" 0 00000000000000ff 1 1\nend 2 1\n",
         "t: program n: step 0 (s) reads tensor 1 (x) before"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        ebb_program *p = NULL;
        ebb_status st = ebb__program_parse(NULL, "t", cases[i].text, strlen(cases[i].text), &p);
        if (st != EBB_E_FORMAT || strstr(ebb_last_error(), cases[i].message) == NULL) {
            fail_msg("case %zu: status %d, '%s' lacks '%s'", i, st, ebb_last_error(), cases[i].message);
        }
        assert_null(p);
    }
}

/* Only the last newline may be missing. */
static void test_cut_at_every_byte(void **state) {
    (void)state;
    const size_t n = sizeof GOOD - 1;
    for (size_t cut = 0; cut <= n; cut++) {
        char *exact = malloc(cut > 0 ? cut : 1);
        memcpy(exact, GOOD, cut);
        ebb_program *p = NULL;
        assert_int_equal(ebb__program_parse(NULL, "t", exact, cut, &p), cut + 1 >= n ? EBB_OK : EBB_E_FORMAT);
        ebb_program_destroy(p);
        free(exact);
    }
}

static void test_mutations(void **state) {
    (void)state;
    for (uint64_t seed = 0; seed < 5000; seed++) {
        ebb_rng rng;
        ebb__rng_init(&rng, seed, 0);
        const size_t n = sizeof GOOD - 1;
        char *copy = malloc(n);
        memcpy(copy, GOOD, n);
        for (uint64_t k = 1 + ebb__rng_below(&rng, 3); k > 0; k--) {
            char c = ebb__rng_below(&rng, 2) == 0 ? (char)ebb__rng_u32(&rng) : GOOD[ebb__rng_below(&rng, n)];
            copy[ebb__rng_below(&rng, n)] = c;
        }
        ebb_program *p = NULL;
        ebb_status st = ebb__program_parse(NULL, "t", copy, n, &p);
        if (st != EBB_OK && st != EBB_E_FORMAT) { fail_msg("seed %llu: %d", (unsigned long long)seed, st); }
        ebb_program_destroy(p);
        free(copy);
    }
}

static void test_no_file(void **state) {
    (void)state;
    ebb_program *p = NULL;
    assert_int_equal(ebb_program_load(NULL, "/tmp/no/such/file", &p), EBB_E_IO);
    assert_int_equal(ebb__program_parse(NULL, "t", GOOD, sizeof GOOD - 1, &p), EBB_OK);
    assert_int_equal(ebb_program_save(p, "/tmp/no/such/folder/x"), EBB_E_IO);
    ebb_program_destroy(p);
}

static void test_out_of_memory(void **state) {
    (void)state;
    ebb_rng rng;
    ebb__rng_init(&rng, 8, 0);
    ebb_program *p = draw_program(&rng);
    assert_int_equal(ebb_program_save(p, path), EBB_OK);
    OOM_LOOP(mem, st, {
        ebb_program *q = NULL;
        st = ebb_program_load(mem, path, &q);
        assert_true(st != EBB_OK || same_program(p, q));
        ebb_program_destroy(q);
    });
    const ebb_mem *own = p->mem;
    OOM_LOOP(mem, st, {
        p->mem = mem;
        st = ebb_program_save(p, path);
    });
    p->mem = own;
    ebb_program_destroy(p);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_round_trip, make_path, remove_path),
        cmocka_unit_test(test_example),
        cmocka_unit_test_setup_teardown(test_documented_example, make_path, remove_path),
        cmocka_unit_test(test_refusals),
        cmocka_unit_test(test_cut_at_every_byte),
        cmocka_unit_test(test_mutations),
        cmocka_unit_test(test_no_file),
        cmocka_unit_test_setup_teardown(test_out_of_memory, make_path, remove_path),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
