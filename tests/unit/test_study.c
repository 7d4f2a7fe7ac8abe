/* SPDX-License-Identifier: Apache-2.0
 *
 * A trace that is small enough to be worked out by hand: summary, roles, curve, blocks, steps, stacks, holders.
 */
#include "study_fixture.h"

/* 0 w 100 (before) | 10 a 50 | 20 b 30 | 30 free a | 40 c 60 | 50 free b, c: live 100 150 180 130 190 100 */
static uint64_t tell_five(study_fixture *f) {
    const uint64_t w = study_alloc_before(f, 100, EBB_ROLE_PARAMETER, "fc.weight");
    f->now_ns = 10;
    const uint64_t a = study_alloc(f, 50, EBB_ROLE_ACTIVATION, "fc.out");
    study_begin_step(f, "fc");
    study_do(f, EBB_TRACE_READ, w);
    f->now_ns = 15;
    study_do(f, EBB_TRACE_WRITE, a);
    study_do(f, EBB_TRACE_STEP_END, 0);
    f->now_ns = 20;
    const uint64_t b = study_alloc(f, 30, EBB_ROLE_TEMP, "relu.out");
    f->now_ns = 30;
    study_do(f, EBB_TRACE_FREE, a);
    f->now_ns = 40;
    const uint64_t c = study_alloc(f, 60, EBB_ROLE_ACTIVATION, "relu.grad");
    study_do(f, EBB_TRACE_WRITE, w);
    f->now_ns = 50;
    study_do(f, EBB_TRACE_FREE, b);
    study_do(f, EBB_TRACE_FREE, c);
    return c;
}

static void what_it_comes_to(void **state) {
    (void)state;
    study_fixture f;
    study_fixture_init(&f, STUDY_TELLS_ALL);
    assert_int_equal(ebb_trace_writer_note(f.writer, "source", "a test"), EBB_OK);
    assert_int_equal(ebb_trace_writer_note(f.writer, "stated.allocated_bytes", "190"), EBB_OK);
    assert_int_equal(ebb_trace_writer_note(f.writer, "stated.reserved_bytes", "19 MB"), EBB_OK);
    (void)tell_five(&f);
    const ebb_study_summary sum = ebb_study_get_summary(study_fixture_study(&f, NULL));
    assert_string_equal(sum.source, "a test");
    assert_true(sum.complete && sum.tells == STUDY_TELLS_ALL && !sum.several_spaces);
    assert_int_equal(sum.n_events, 12);
    assert_int_equal(sum.n_blocks, 4);
    assert_int_equal(sum.n_steps, 1);
    assert_int_equal(sum.n_accesses, 3);
    assert_int_equal(sum.n_before, 1);
    assert_int_equal(sum.duration_ns, 50);
    assert_int_equal(sum.peak_bytes, 190);
    assert_int_equal(sum.peak_ns, 40);
    assert_int_equal(sum.peak_event, 8);
    assert_int_equal(sum.n_live_at_peak, 3);
    assert_int_equal(sum.end_live_bytes, 100);
    assert_int_equal(sum.mean_live_bytes, (100 * 10 + 150 * 10 + 180 * 10 + 130 * 10 + 190 * 10) / 50);
    assert_true(sum.span_bytes == EBB_STUDY_UNKNOWN && sum.reserved_peak_bytes == EBB_STUDY_UNKNOWN);
    assert_int_equal(sum.stated_allocated_bytes, 190);
    assert_true(sum.stated_reserved_bytes == EBB_STUDY_UNKNOWN); /* no number */
    study_fixture_fini(&f);
}

static void shares_of_roles_and_uses(void **state) {
    (void)state;
    study_fixture f;
    study_fixture_init(&f, STUDY_TELLS_ALL);
    (void)tell_five(&f);
    const ebb_study_breakdown b = ebb_study_get_breakdown(study_fixture_study(&f, NULL));
    assert_false(b.is_of_iteration);
    assert_int_equal(b.at_peak[EBB_ROLE_PARAMETER].bytes, 100);
    assert_int_equal(b.at_peak[EBB_ROLE_ACTIVATION].bytes, 60);
    assert_int_equal(b.at_peak[EBB_ROLE_TEMP].n_blocks, 1);
    assert_int_equal(b.in_all[EBB_ROLE_ACTIVATION].bytes, 110);
    assert_int_equal(b.in_all[EBB_ROLE_ACTIVATION].n_blocks, 2);
    assert_int_equal(b.use_in_all[EBB_STUDY_USE_PARAMETER].bytes, 100); /* read, then written */
    assert_int_equal(b.use_in_all[EBB_STUDY_USE_INTERMEDIATE].bytes, 50);
    assert_int_equal(b.use_in_all[EBB_STUDY_USE_UNKNOWN].bytes, 90);
    assert_int_equal(b.use_at_peak[EBB_STUDY_USE_UNKNOWN].n_blocks, 2);
    study_fixture_fini(&f);
}

/* By accesses, but for what is said to be input. */
static void inputs_and_intermediates(void **state) {
    (void)state;
    study_fixture f;
    study_fixture_init(&f, STUDY_TELLS_ALL);
    const uint64_t batch = study_alloc(&f, 8, EBB_ROLE_INPUT, "batch");
    const uint64_t labels = study_alloc_before(&f, 16, EBB_ROLE_OTHER, "labels");
    const uint64_t out = study_alloc(&f, 32, EBB_ROLE_ACTIVATION, "out");
    study_do(&f, EBB_TRACE_WRITE, batch);
    study_do(&f, EBB_TRACE_READ, batch);
    study_do(&f, EBB_TRACE_READ, labels);
    study_do(&f, EBB_TRACE_WRITE, out);
    study_do(&f, EBB_TRACE_READ, out);
    const ebb_study *study = study_fixture_study(&f, NULL);
    assert_int_equal(ebb_study_get_breakdown(study).use_in_all[EBB_STUDY_USE_INPUT].bytes, 24);
    assert_int_equal(ebb_study_get_breakdown(study).use_in_all[EBB_STUDY_USE_INTERMEDIATE].bytes, 32);
    assert_int_equal(ebb_study_get_block(study, batch).use, EBB_STUDY_USE_INPUT);
    study_fixture_fini(&f);
}

static void the_curve_of_it(void **state) {
    (void)state;
    study_fixture f;
    ebb_study_bin bins[12];
    ebb_study_axis axis = EBB_STUDY_BY_EVENT;
    study_fixture_init(&f, STUDY_TELLS_ALL);
    (void)tell_five(&f);
    const ebb_study *study = study_fixture_study(&f, NULL);
    assert_int_equal(ebb_study_curve(study, EBB_STUDY_BY_TIME, 5, bins, &axis), EBB_OK);
    assert_int_equal(axis, EBB_STUDY_BY_TIME);
    static const uint64_t high[] = {100, 150, 180, 180, 190}, low[] = {0, 100, 150, 130, 100};
    for (size_t i = 0; i < 5; i++) {
        assert_true(bins[i].first == 10 * i && bins[i].last == 10 * (i + 1));
        assert_int_equal(bins[i].high_bytes, high[i]);
        assert_int_equal(bins[i].low_bytes, low[i]);
        assert_true(bins[i].reserved_bytes == EBB_STUDY_UNKNOWN);
        uint64_t sum_bytes = 0;
        for (size_t r = 0; r < EBB_N_ROLES; r++) { sum_bytes += bins[i].role_bytes[r]; }
        assert_int_equal(sum_bytes, high[i]);
    }
    assert_int_equal(bins[4].high_ns, 40);
    assert_int_equal(bins[4].high_event, 8);
    assert_int_equal(bins[3].high_ns, 30); /* as it began */
    assert_int_equal(ebb_study_curve(study, EBB_STUDY_BY_EVENT, 12, bins, &axis), EBB_OK);
    assert_int_equal(axis, EBB_STUDY_BY_EVENT);
    assert_true(bins[8].high_bytes == 190 && bins[7].high_bytes == 180 && bins[11].low_bytes == 100);
    assert_int_equal(ebb_study_curve(study, EBB_STUDY_BY_EVENT, 0, bins, &axis), EBB_E_ARGUMENT);
    study_fixture_fini(&f);
}

static void a_block_and_its_story(void **state) {
    (void)state;
    study_fixture f;
    ebb_study_access accesses[4];
    study_fixture_init(&f, STUDY_TELLS_ALL);
    const uint64_t c = tell_five(&f);
    const ebb_study *study = study_fixture_study(&f, NULL);
    ebb_study_block b = ebb_study_get_block(study, 0);
    assert_string_equal(b.name, "fc.weight");
    assert_true(b.before && b.live_at_peak && b.died_ns == EBB_STUDY_UNKNOWN && b.died_event == EBB_STUDY_UNKNOWN);
    assert_true(b.n_reads == 1 && b.n_writes == 1 && b.n_copies == 0 && b.use == EBB_STUDY_USE_PARAMETER);
    assert_int_equal(ebb_study_block_accesses(study, 0, 0, 4, accesses), 2);
    assert_true(accesses[0].kind == EBB_STUDY_READ && accesses[0].time_ns == 10 && accesses[0].step == 0);
    assert_true(accesses[1].kind == EBB_STUDY_WRITE && accesses[1].time_ns == 40 && accesses[1].step == EBB_TRACE_NONE);
    assert_int_equal(ebb_study_block_accesses(study, 0, 1, 4, accesses), 1);
    assert_int_equal(ebb_study_block_accesses(study, 0, 2, 4, accesses), 0);
    assert_int_equal(ebb_study_block_accesses(study, c, 0, 4, accesses), 0);
    b = ebb_study_get_block(study, c);
    assert_true(b.born_ns == 40 && b.died_ns == 50 && b.size_bytes == 60 && b.address == EBB_TRACE_NONE);
    assert_true(b.role == EBB_ROLE_ACTIVATION && b.use == EBB_STUDY_USE_UNKNOWN && b.born_event == 8);
    assert_false(ebb_study_get_block(study, 1).live_at_peak);
    const ebb_study_step step = ebb_study_get_step(study, 0);
    assert_string_equal(step.name, "fc");
    assert_true(step.begin_ns == 10 && step.end_ns == 15 && step.begin_event == 2 && step.end_event == 5);
    study_fixture_fini(&f);
}

/* A label counts from the beginning; without the bit there are no roles. */
static void labels_and_no_roles(void **state) {
    (void)state;
    for (unsigned k = 0; k < 2; k++) {
        study_fixture f;
        study_fixture_init(&f, k == 0 ? EBB_TRACE_TELLS_ROLES : 0);
        const uint64_t a = study_alloc(&f, 8, EBB_ROLE_OTHER, "a");
        study_add(&f, (ebb_trace_event){.kind = EBB_TRACE_LABEL,
                                        .block = a,
                                        .role = EBB_ROLE_GRADIENT,
                                        .name = study_string(&f, "a.grad")});
        const ebb_study *study = study_fixture_study(&f, NULL);
        const ebb_study_block b = ebb_study_get_block(study, a);
        assert_string_equal(b.name, "a.grad");
        assert_int_equal(b.role, k == 0 ? EBB_ROLE_GRADIENT : EBB_ROLE_UNKNOWN);
        assert_true(ebb_study_get_summary(study).duration_ns == EBB_STUDY_UNKNOWN);
        study_fixture_fini(&f);
    }
}

static void holders_of_the_peak(void **state) {
    (void)state;
    study_fixture f;
    study_fixture_init(&f, STUDY_TELLS_ALL);
    const uint32_t main_py = study_frame(&f, 0, "main", "/home/me/train.py", 7);
    const uint32_t package = study_frame(&f, main_py, "forward", "/usr/lib/python3/site-packages/torch/nn.py", 3);
    const uint32_t native = study_frame(&f, package, "at::empty", "??", 0);
    const uint32_t other = study_frame(&f, 0, "step", "/home/me/optim.py", 9);
    const uint32_t engine = study_frame(&f, 0, "thread_main(int)", "??", 0);
    const uint32_t node = study_frame(&f, engine, "torch::autograd::generated::MmBackward0::apply(int)", "??", 0);
    const uint32_t malloc_frame = study_frame(&f, node, "c10::malloc(long)", "alloc.cpp", 12);
    f.stack = malloc_frame;
    (void)study_alloc(&f, 5, EBB_ROLE_GRADIENT, "l0.weight.grad");
    f.stack = native;
    (void)study_alloc(&f, 10, EBB_ROLE_ACTIVATION, "l0.out");
    f.stack = package;
    const uint64_t large = study_alloc(&f, 30, EBB_ROLE_ACTIVATION, "l0.x");
    f.stack = other;
    (void)study_alloc(&f, 25, EBB_ROLE_GRADIENT, "l1.out");
    f.stack = 0;
    (void)study_alloc(&f, 50, EBB_ROLE_OTHER, "");
    const ebb_study *study = study_fixture_study(&f, NULL);
    size_t n = 0;
    const ebb_study_holder *h = ebb_study_holders(study, EBB_STUDY_BY_SITE, &n);
    assert_int_equal(n, 4);
    assert_string_equal(h[0].label, "");
    assert_string_equal(h[3].label, "torch::autograd::generated::MmBackward0::apply");
    assert_string_equal(h[1].label, "main (me/train.py:7)");
    assert_true(h[1].bytes == 40 && h[1].n_blocks == 2 && h[1].largest_block == large && h[1].stack == package);
    assert_int_equal(h[1].role_bytes[EBB_ROLE_ACTIVATION], 40);
    assert_string_equal(h[2].label, "step (me/optim.py:9)");
    (void)ebb_study_holders(study, EBB_STUDY_BY_STACK, &n);
    assert_int_equal(n, 5);
    h = ebb_study_holders(study, EBB_STUDY_BY_MODULE, &n);
    assert_int_equal(n, 3);
    assert_string_equal(h[1].label, "l0");
    assert_int_equal(h[1].bytes, 45);
    h = ebb_study_holders(study, EBB_STUDY_BY_NAME, &n);
    assert_int_equal(n, 5);
    assert_string_equal(h[1].label, "l0.x");
    char text[80];
    assert_string_equal(ebb_study_stack_text(study, other, text, sizeof text), "step (/home/me/optim.py:9)");
    assert_string_equal(ebb_study_stack_text(study, native, text, 30), "at::empty (?"
                                                                       "?)"); /* cut at a line */
    assert_string_equal(ebb_study_stack_text(study, 0, text, sizeof text), "");
    study_fixture_fini(&f);
}

/* Windows has other slashes, and Python's own files elsewhere; a folder may be called after PyTorch. */
static void sites_on_windows(void **state) {
    (void)state;
    static const char *const packages[] = {
        "C:\\Users\\me\\venv\\Lib\\site-packages\\torch\\nn\\modules\\linear.py",
        "C:\\Users\\me\\AppData\\Local\\Programs\\Python\\Python311\\Lib\\contextlib.py",
        "torch\\nn\\modules\\module.py"};
    study_fixture f;
    size_t n = 0;
    study_fixture_init(&f, STUDY_TELLS_ALL);
    f.stack = study_frame(&f, 0, "train", "C:\\Users\\me\\pytorch\\train.py", 7);
    for (size_t i = 0; i < 3; i++) { f.stack = study_frame(&f, f.stack, "forward", packages[i], 3); }
    (void)study_alloc(&f, 9, EBB_ROLE_OTHER, "");
    const ebb_study_holder *h = ebb_study_holders(study_fixture_study(&f, NULL), EBB_STUDY_BY_SITE, &n);
    assert_int_equal(n, 1);
    assert_string_equal(h[0].label, "train (pytorch/train.py:7)");
    study_fixture_fini(&f);
}

/* Some recorders note the class of a module. */
static void a_module_has_a_class(void **state) {
    (void)state;
    study_fixture f;
    size_t n = 0;
    study_fixture_init(&f, STUDY_TELLS_ALL);
    assert_int_equal(ebb_trace_writer_note(f.writer, "class.0", "Conv2d"), EBB_OK);
    assert_int_equal(ebb_trace_writer_note(f.writer, "class.0", "Linear"), EBB_OK); /* the last counts */
    assert_int_equal(ebb_trace_writer_note(f.writer, "class.0.act", "GELU"), EBB_OK);
    (void)study_alloc(&f, 9, EBB_ROLE_ACTIVATION, "0.addmm");
    (void)study_alloc(&f, 8, EBB_ROLE_GRADIENT, "0.weight.grad");
    (void)study_alloc(&f, 7, EBB_ROLE_ACTIVATION, "0.act.gelu");
    (void)study_alloc(&f, 6, EBB_ROLE_ACTIVATION, "1.relu");
    const ebb_study_holder *h = ebb_study_holders(study_fixture_study(&f, NULL), EBB_STUDY_BY_MODULE, &n);
    assert_int_equal(n, 3);
    assert_string_equal(h[0].label, "0 (Linear)");
    assert_int_equal(h[0].bytes, 17);
    assert_string_equal(h[1].label, "0.act (GELU)");
    assert_string_equal(h[2].label, "1");
    study_fixture_fini(&f);
}

/* Arguments are left out, but not what a template is made of; a library's allocator is no one's site. */
static void names_of_cpp(void **state) {
    (void)state;
    study_fixture f;
    size_t n = 0;
    study_fixture_init(&f, STUDY_TELLS_ALL);
    const uint32_t run = study_frame(&f, 0, "a::run<void (int)>::operator()(int) const", "liba.so", 0);
    const uint32_t alloc = study_frame(&f, run, "a::(anonymous namespace)::allocate(long)", "liba.so", 0);
    f.stack = alloc;
    (void)study_alloc(&f, 9, EBB_ROLE_OTHER, "");
    f.stack = study_frame(&f, run, "std::vector<int, std::allocator<int>>::resize", "liba.so", 0);
    (void)study_alloc(&f, 8, EBB_ROLE_OTHER, "");
    f.stack = study_frame(&f, 0, "a::(anonymous namespace)::go(long)", "liba.so", 0);
    (void)study_alloc(&f, 7, EBB_ROLE_OTHER, "");
    const ebb_study_holder *h = ebb_study_holders(study_fixture_study(&f, NULL), EBB_STUDY_BY_SITE, &n);
    assert_int_equal(n, 3);
    assert_string_equal(h[0].label, "a::run<void (int)>::operator() (liba.so)");
    assert_string_equal(h[1].label, "std::vector<int, std::allocator<int>>::resize (liba.so)");
    assert_string_equal(h[2].label, "a::(anonymous namespace)::go (liba.so)");
    study_fixture_fini(&f);
}

/* An interpreter that is all library: not the program's entry, nor an allocator, but who called that. */
static void entry_is_no_site(void **state) {
    (void)state;
    study_fixture f;
    size_t n = 0;
    study_fixture_init(&f, STUDY_TELLS_ALL);
    const uint32_t entry = study_frame(&f, 0, "_start", "/home/me/bin/python3", 0);
    const uint32_t list = study_frame(&f, entry, "new_list", "/home/me/lib/libpython3.so", 0);
    const uint32_t allocator = study_frame(&f, list, "PyObject_Malloc", "/home/me/lib/libpython3.so", 0);
    f.stack = study_frame(&f, allocator, "make", "/home/me/lib/libc10.so", 0);
    (void)study_alloc(&f, 5, EBB_ROLE_OTHER, "");
    const ebb_study_holder *h = ebb_study_holders(study_fixture_study(&f, NULL), EBB_STUDY_BY_SITE, &n);
    assert_int_equal(n, 1);
    assert_string_equal(h[0].label, "new_list (lib/libpython3.so)");
    study_fixture_fini(&f);
}

static void nothing_at_all(void **state) {
    (void)state;
    study_fixture f;
    ebb_study_bin bin;
    ebb_study_axis axis;
    size_t n = 0;
    study_fixture_init(&f, STUDY_TELLS_ALL);
    const ebb_study *study = study_fixture_study(&f, NULL);
    const ebb_study_summary sum = ebb_study_get_summary(study);
    assert_true(sum.n_events == 0 && sum.peak_bytes == 0 && sum.peak_event == EBB_STUDY_UNKNOWN);
    assert_int_equal(ebb_study_curve(study, EBB_STUDY_BY_TIME, 1, &bin, &axis), EBB_OK);
    assert_int_equal(bin.high_bytes, 0);
    (void)ebb_study_holders(study, EBB_STUDY_BY_NAME, &n);
    assert_int_equal(n, 0);
    assert_false(ebb_study_get_iteration(study).found);
    study_fixture_fini(&f);
}

static void segments_and_reserved(void **state) {
    (void)state;
    study_fixture f;
    ebb_study_bin bins[4];
    ebb_study_axis axis;
    study_fixture_init(&f, EBB_TRACE_TELLS_SEGMENTS | EBB_TRACE_TELLS_ADDRESSES);
    study_segment_do(&f, EBB_TRACE_SEGMENT_FREE, 4096, 0); /* of one that no one saw begin */
    study_segment_do(&f, EBB_TRACE_SEGMENT_ALLOC, 4096, 1000);
    (void)study_alloc_at(&f, 200, 4096, EBB_ROLE_OTHER, "");
    study_segment_do(&f, EBB_TRACE_SEGMENT_ALLOC, 8192, 500);
    study_segment_do(&f, EBB_TRACE_SEGMENT_FREE, 4096, 0);
    study_segment_do(&f, EBB_TRACE_SEGMENT_ALLOC, 4096, 700);
    (void)study_alloc_at(&f, 300, 8192, EBB_ROLE_OTHER, "");
    (void)study_alloc_at(&f, 1, 4696, EBB_ROLE_OTHER, "");
    const ebb_study *study = study_fixture_study(&f, NULL);
    const ebb_study_summary sum = ebb_study_get_summary(study);
    assert_int_equal(sum.reserved_peak_bytes, 1500);
    assert_int_equal(sum.reserved_peak_event, 3);
    assert_int_equal(sum.span_bytes, 8192 + 300 - 4096);
    assert_int_equal(ebb_study_curve(study, EBB_STUDY_BY_TIME, 4, bins, &axis), EBB_OK);
    assert_int_equal(axis, EBB_STUDY_BY_EVENT); /* it tells no times */
    assert_true(bins[0].reserved_bytes == 1000 && bins[1].reserved_bytes == 1500 && bins[3].reserved_bytes == 1200);
    assert_true(bins[1].high_bytes == 200 && bins[3].high_bytes == 501);
    study_fixture_fini(&f);
}

static void bad_options(void **state) {
    (void)state;
    study_fixture f;
    study_fixture_init(&f, STUDY_TELLS_ALL);
    (void)study_fixture_study(&f, NULL);
    ebb_study_options options = EBB_STUDY_OPTIONS_INIT;
    ebb_study *study = NULL;
    options.size_bytes--;
    assert_int_equal(ebb_study_create(f.reader, &options, &study), EBB_E_ARGUMENT);
    expect_message("another version");
    options.size_bytes++;
    options.in_bytes_per_s = 0;
    assert_int_equal(ebb_study_create(f.reader, &options, &study), EBB_E_ARGUMENT);
    expect_message("bandwidth");
    assert_null(study);
    study_fixture_fini(&f);
    assert_string_equal(ebb_study_kind_name(EBB_STUDY_COPY), "copy");
    assert_string_equal(ebb_study_use_name(EBB_STUDY_USE_INTERMEDIATE), "intermediate");
}

/* A snapshot without history: a peak that nothing shows is not advised about, nor laid out otherwise. */
static void a_moment(void **state) {
    (void)state;
    for (unsigned has_history = 0; has_history < 2; has_history++) {
        study_fixture f;
        size_t n = 0, n_rows = 0;
        study_fixture_init(&f, EBB_TRACE_TELLS_STACKS | EBB_TRACE_TELLS_BEFORE);
        assert_int_equal(ebb_trace_writer_note(f.writer, "source", "pytorch snapshot"), EBB_OK);
        const uint64_t block = study_alloc_before(&f, 64, EBB_ROLE_UNKNOWN, "");
        (void)study_alloc_before(&f, 32, EBB_ROLE_UNKNOWN, "");
        if (has_history == 1) { study_do(&f, EBB_TRACE_FREE, block); }
        const ebb_study *s = study_fixture_study(&f, NULL);
        assert_true(ebb_study_get_summary(s).is_moment == (has_history == 0));
        (void)ebb_study_advice(s, &n);
        (void)ebb_study_what_ifs(s, &n_rows);
        assert_true((n_rows == 0) == (has_history == 0) && n == 0);
        study_fixture_fini(&f);
    }
}

/* Whose stack says what it is; the last member what it should be. */
static void likely_roles(void **state) {
    (void)state;
    study_fixture f;
    study_fixture_init(&f, EBB_TRACE_TELLS_STACKS);
    assert_int_equal(ebb_trace_writer_note(f.writer, "source", "pytorch snapshot"), EBB_OK);
    const uint32_t main_stack = study_frame(&f, 0, "<module>", "/me/train.py", 9);
    const uint32_t module = study_frame(&f, main_stack, "_call_impl", "torch/nn/modules/module.py", 1);
    const uint32_t forward = study_frame(&f, module, "forward", "/me/net.py", 7);
    const uint32_t workspace = study_frame(&f, forward, "at::cuda::getNewWorkspace()", "??", 0);
    const uint32_t backward = study_frame(&f, main_stack, "backward", "torch/_tensor.py", 5);
    const uint32_t optimizer = study_frame(&f, main_stack, "step", "C:\\torch\\optim\\adam.py", 3);
    const uint32_t setup = study_frame(&f, main_stack, "convert", "torch/nn/modules/module.py", 2);
    const uint32_t data = study_frame(&f, main_stack, "fetch", "torch/utils/data/fetch.py", 2);
    const struct {
        uint32_t stack;
        bool dies;
        ebb_role role;
    } blocks[] = {
        {0, false, EBB_ROLE_UNKNOWN},          {setup, false, EBB_ROLE_PARAMETER},
        {setup, true, EBB_ROLE_TEMP},          {data, false, EBB_ROLE_INPUT},
        {forward, true, EBB_ROLE_ACTIVATION},  {workspace, false, EBB_ROLE_WORKSPACE},
        {backward, true, EBB_ROLE_TEMP},       {backward, false, EBB_ROLE_GRADIENT},
        {optimizer, true, EBB_ROLE_TEMP},      {optimizer, false, EBB_ROLE_OPTIMIZER_STATE},
        {main_stack, false, EBB_ROLE_UNKNOWN},
    };
    for (size_t i = 0; i < sizeof blocks / sizeof blocks[0]; i++) {
        f.stack = blocks[i].stack;
        const uint64_t block = study_alloc(&f, 64, EBB_ROLE_UNKNOWN, "");
        if (blocks[i].dies) { study_do(&f, EBB_TRACE_FREE, block); }
    }
    const ebb_study *s = study_fixture_study(&f, NULL);
    assert_true(ebb_study_get_summary(s).roles_inferred);
    for (size_t i = 0; i < sizeof blocks / sizeof blocks[0]; i++) {
        assert_int_equal(ebb_study_get_block(s, i).role, blocks[i].role);
    }
    assert_true(ebb_study_get_breakdown(s).at_peak[EBB_ROLE_PARAMETER].bytes == 64);
    study_fixture_fini(&f);
}

static void touch_in(study_fixture *f, uint32_t phase, uint64_t block, uint32_t kind) {
    study_add(f, (ebb_trace_event){.kind = EBB_TRACE_STEP_BEGIN, .phase = phase, .index = EBB_TRACE_NONE});
    study_do(f, kind, block);
    study_do(f, EBB_TRACE_STEP_END, 0);
}

/* Where stacks are not told: which passes read and write a block. */
static void likely_roles_by_accesses(void **state) {
    (void)state;
    study_fixture f;
    const uint32_t forward = EBB_TRACE_PHASE_FORWARD, backward = EBB_TRACE_PHASE_BACKWARD;
    const uint32_t update = EBB_TRACE_PHASE_UPDATE;
    study_fixture_init(&f, EBB_TRACE_TELLS_ACCESSES | EBB_TRACE_TELLS_STEPS | EBB_TRACE_TELLS_BEFORE);
    assert_int_equal(ebb_trace_writer_note(f.writer, "source", "pytorch execution trace"), EBB_OK);
    const uint64_t weight = study_alloc_before(&f, 64, EBB_ROLE_UNKNOWN, "");
    const uint64_t moment = study_alloc_before(&f, 128, EBB_ROLE_UNKNOWN, "");
    const uint64_t input = study_alloc_before(&f, 16, EBB_ROLE_UNKNOWN, "");
    touch_in(&f, forward, weight, EBB_TRACE_READ);
    touch_in(&f, forward, input, EBB_TRACE_READ);
    const uint64_t activation = study_alloc(&f, 32, EBB_ROLE_UNKNOWN, "");
    touch_in(&f, forward, activation, EBB_TRACE_WRITE);
    touch_in(&f, backward, activation, EBB_TRACE_READ);
    study_do(&f, EBB_TRACE_FREE, activation);
    const uint64_t gradient = study_alloc(&f, 64, EBB_ROLE_UNKNOWN, "");
    touch_in(&f, backward, gradient, EBB_TRACE_WRITE);
    touch_in(&f, update, gradient, EBB_TRACE_READ);
    touch_in(&f, update, moment, EBB_TRACE_READ);
    touch_in(&f, update, moment, EBB_TRACE_WRITE);
    touch_in(&f, update, weight, EBB_TRACE_WRITE);
    const ebb_study *s = study_fixture_study(&f, NULL);
    assert_true(ebb_study_get_summary(s).roles_inferred);
    const ebb_role wanted[] = {EBB_ROLE_PARAMETER, EBB_ROLE_OPTIMIZER_STATE, EBB_ROLE_UNKNOWN, EBB_ROLE_ACTIVATION,
                               EBB_ROLE_GRADIENT};
    for (size_t i = 0; i < 5; i++) { assert_int_equal(ebb_study_get_block(s, i).role, wanted[i]); }
    study_fixture_fini(&f);
}

/* Two passes forward, back and update each; the recording has no iterations. Last in a row: what the block should be.
 */
static void likely_roles_without_iterations(void **state) {
    (void)state;
    static const uint32_t phases[] = {EBB_TRACE_PHASE_FORWARD, EBB_TRACE_PHASE_BACKWARD, EBB_TRACE_PHASE_UPDATE};
    /* Which of the six passes reads a block, and which writes it; its first one makes it. */
    static const struct {
        const char *passes; /* "fbu FBU": small letters read, great ones write; blanks: nothing; one per pass */
        bool before;
        ebb_role role;
    } cases[] = {
        {"  U  U", false, EBB_ROLE_OPTIMIZER_STATE},
        {"  U   ", false, EBB_ROLE_TEMP},
        {"     U", false, EBB_ROLE_UNKNOWN},
        {"     U", true, EBB_ROLE_OPTIMIZER_STATE},
        {" B    ", false, EBB_ROLE_TEMP},
        {" Bu   ", false, EBB_ROLE_GRADIENT},
        {"    B ", false, EBB_ROLE_TEMP},
        {"Fb    ", false, EBB_ROLE_ACTIVATION},
        {"F     ", false, EBB_ROLE_ACTIVATION},
        {"f Uf U", true, EBB_ROLE_PARAMETER},
        {"F  F  ", true, EBB_ROLE_BUFFER},
        {"fb    ", true, EBB_ROLE_UNKNOWN},
    };
    enum { N_CASES = sizeof cases / sizeof cases[0], N_PASSES = 6 };
    uint64_t blocks[N_CASES];
    study_fixture f;
    study_fixture_init(&f, EBB_TRACE_TELLS_ACCESSES | EBB_TRACE_TELLS_STEPS);
    assert_int_equal(ebb_trace_writer_note(f.writer, "source", "pytorch execution trace"), EBB_OK);
    for (size_t i = 0; i < N_CASES; i++) {
        if (cases[i].before) { blocks[i] = study_alloc_before(&f, 64, EBB_ROLE_UNKNOWN, ""); }
    }
    for (size_t pass = 0; pass < N_PASSES; pass++) {
        for (size_t i = 0; i < N_CASES; i++) {
            const char touch = cases[i].passes[pass];
            const bool is_first = strspn(cases[i].passes, " ") == pass;
            const bool is_last = strspn(cases[i].passes + pass + 1, " ") == N_PASSES - pass - 1;
            if (touch == ' ') { continue; }
            study_add(&f, (ebb_trace_event){
                              .kind = EBB_TRACE_STEP_BEGIN, .phase = phases[pass % 3], .index = EBB_TRACE_NONE});
            if (is_first && !cases[i].before) { blocks[i] = study_alloc(&f, 64, EBB_ROLE_UNKNOWN, ""); }
            study_do(&f, touch >= 'a' ? EBB_TRACE_READ : EBB_TRACE_WRITE, blocks[i]);
            study_do(&f, EBB_TRACE_STEP_END, 0);
            if (is_last && !cases[i].before) { study_do(&f, EBB_TRACE_FREE, blocks[i]); }
        }
    }
    const ebb_study *s = study_fixture_study(&f, NULL);
    for (size_t i = 0; i < N_CASES; i++) {
        const ebb_role role = ebb_study_get_block(s, blocks[i]).role;
        if (role != cases[i].role) { fail_msg("'%s' is %d", cases[i].passes, (int)role); }
    }
    study_fixture_fini(&f);
}

/* A call site has the bytes that it allocated itself, and none of what the functions that it calls allocated. */
static void bytes_of_a_site_are_its_own(void **state) {
    (void)state;
    study_fixture f;
    size_t n = 0;
    study_fixture_init(&f, EBB_TRACE_TELLS_STACKS);
    const uint32_t outer = study_frame(&f, 0, "outer", "/me/train.py", 9);
    const uint32_t inner = study_frame(&f, outer, "inner", "/me/train.py", 4);
    f.stack = outer;
    (void)study_alloc(&f, 100, EBB_ROLE_UNKNOWN, "");
    f.stack = study_frame(&f, inner, "at::empty", "??", 0);
    (void)study_alloc(&f, 1000, EBB_ROLE_UNKNOWN, "");
    const ebb_study_holder *holders = ebb_study_holders(study_fixture_study(&f, NULL), EBB_STUDY_BY_SITE, &n);
    assert_int_equal(n, 2);
    assert_non_null(strstr(holders[0].label, "inner (me/train.py:4)"));
    assert_true(holders[0].bytes == 1000 && holders[1].bytes == 100);
    assert_non_null(strstr(holders[1].label, "outer (me/train.py:9)"));
    study_fixture_fini(&f);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_it_comes_to),
        cmocka_unit_test(shares_of_roles_and_uses),
        cmocka_unit_test(the_curve_of_it),
        cmocka_unit_test(a_block_and_its_story),
        cmocka_unit_test(labels_and_no_roles),
        cmocka_unit_test(holders_of_the_peak),
        cmocka_unit_test(a_module_has_a_class),
        cmocka_unit_test(names_of_cpp),
        cmocka_unit_test(sites_on_windows),
        cmocka_unit_test(entry_is_no_site),
        cmocka_unit_test(nothing_at_all),
        cmocka_unit_test(segments_and_reserved),
        cmocka_unit_test(bad_options),
        cmocka_unit_test(inputs_and_intermediates),
        cmocka_unit_test(likely_roles),
        cmocka_unit_test(a_moment),
        cmocka_unit_test(likely_roles_by_accesses),
        cmocka_unit_test(likely_roles_without_iterations),
        cmocka_unit_test(bytes_of_a_site_are_its_own),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
