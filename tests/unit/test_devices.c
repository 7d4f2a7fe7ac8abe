/* SPDX-License-Identifier: Apache-2.0
 *
 * The devices of a trace: which there are, which is chosen, and that what is given then is that one's alone.
 */
#include "study_fixture.h"

#include <unistd.h>

static const char *const all_names[] = {"cpu", "cuda:0", "cuda:1"};

static void note(study_fixture *f, const char *key, const char *value) {
    assert_int_equal(ebb_trace_writer_note(f->writer, key, value), EBB_OK);
}

static uint64_t alloc_in(study_fixture *f, uint32_t space, uint64_t size_bytes) {
    study_add(f, (ebb_trace_event){.kind = EBB_TRACE_ALLOC,
                                   .block = f->n_blocks,
                                   .size_bytes = size_bytes,
                                   .address = 4096 * f->n_blocks,
                                   .space = space});
    f->now_ns += 1000;
    return f->n_blocks++;
}

/* 2000 bytes on the processor, 1000 on the one accelerator, 500 on the other, in turns. */
static void tell(study_fixture *f, const char *const *names) {
    char key[32];
    study_fixture_init(f, STUDY_TELLS_ALL | EBB_TRACE_TELLS_SEGMENTS);
    for (uint32_t i = 0; names != NULL && i < 3; i++) {
        (void)snprintf(key, sizeof key, "space.%u", i);
        note(f, key, names[i]);
    }
    for (uint32_t i = 0; i < 3; i++) {
        study_add(f, (ebb_trace_event){.kind = EBB_TRACE_SEGMENT_ALLOC,
                                       .space = i,
                                       .address = (uint64_t)i << 32,
                                       .size_bytes = 10000u * (i + 1)});
    }
    const uint64_t first = alloc_in(f, 1, 400);
    (void)alloc_in(f, 0, 1500);
    study_begin_step(f, "step");
    study_do(f, EBB_TRACE_READ, first);
    study_do(f, EBB_TRACE_READ, first + 1);
    study_do(f, EBB_TRACE_FREE, first);
    (void)alloc_in(f, 2, 500);
    (void)alloc_in(f, 1, 700);
    (void)alloc_in(f, 1, 300);
    const uint64_t last = alloc_in(f, 0, 500);
    study_do(f, EBB_TRACE_STEP_END, 0);
    study_do(f, EBB_TRACE_FREE, last);
}

static void open_and_choose(study_fixture *f, const char *device, const char *name) {
    size_t n = 0, chosen = 0;
    assert_int_equal(ebb_trace_writer_close(f->writer), EBB_OK);
    if (ebb_trace_open_device(NULL, f->path, NULL, device, &f->reader) != EBB_OK) { fail_msg("%s", ebb_last_error()); }
    const ebb_trace_device *devices = ebb_trace_reader_devices(f->reader, &n, &chosen);
    assert_true(chosen < n);
    assert_string_equal(devices[chosen].name, name);
}

static void test_study(void **state) {
    static const struct {
        const char *asked, *name;
        uint64_t n_blocks, peak_bytes, n_accesses, reserved_bytes;
    } cases[] = {{NULL, "cuda:0", 3, 1000, 1, 20000},
                 {"0", "cuda:0", 3, 1000, 1, 20000},
                 {"cuda:1", "cuda:1", 1, 500, 0, 30000},
                 {"1", "cuda:1", 1, 500, 0, 30000},
                 {"cpu", "cpu", 2, 2000, 1, 10000}};
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        study_fixture f;
        tell(&f, all_names);
        open_and_choose(&f, cases[i].asked, cases[i].name);
        assert_int_equal(ebb_study_create(f.reader, NULL, &f.study), EBB_OK);
        const ebb_study_summary s = ebb_study_get_summary(f.study);
        assert_int_equal(s.n_blocks, cases[i].n_blocks);
        assert_int_equal(s.peak_bytes, cases[i].peak_bytes);
        assert_int_equal(s.n_accesses, cases[i].n_accesses);
        assert_int_equal(s.reserved_peak_bytes, cases[i].reserved_bytes);
        assert_int_equal(s.n_steps, 1);
        assert_true(s.complete && !s.several_spaces);
        study_fixture_fini(&f);
    }
}

static void test_found(void **state) {
    size_t n = 0, chosen = 0;
    study_fixture f;
    (void)state;
    tell(&f, all_names);
    open_and_choose(&f, NULL, "cuda:0");
    const ebb_trace_device *devices = ebb_trace_reader_devices(f.reader, &n, &chosen);
    assert_int_equal(n, 3);
    assert_string_equal(devices[1].name, "cpu");
    assert_int_equal(devices[1].peak_bytes, 2000);
    assert_true(devices[1].is_host && devices[1].is_named && !devices[0].is_host);
    assert_int_equal(devices[2].n_blocks, 1);
    assert_int_equal(ebb_trace_reader_choose(f.reader, "cuda:1"), EBB_OK); /* and once more */
    devices = ebb_trace_reader_devices(f.reader, &n, &chosen);
    assert_string_equal(devices[chosen].name, "cuda:1");
    assert_int_equal(ebb_trace_reader_choose(f.reader, "cuda:2"), EBB_E_ARGUMENT);
    assert_non_null(strstr(ebb_last_error(), "cuda:0, cpu, cuda:1"));
    study_fixture_fini(&f);
}

static const ebb_study_what_if *find_row(const ebb_study_what_if *rows, size_t n, const char *key) {
    size_t i = 0;
    while (i < n && strcmp(rows[i].key, key) != 0) { i++; }
    assert_true(i < n);
    return &rows[i];
}

/* malloc and mmap are one; with an accelerator that is the default all the same. */
static void test_host(void **state) {
    static const char *const host_names[] = {"malloc", "mmap", "cuda:0"};
    study_fixture f;
    (void)state;
    tell(&f, host_names);
    open_and_choose(&f, NULL, "cuda:0");
    study_fixture_fini(&f);
    tell(&f, host_names);
    open_and_choose(&f, "mmap", "cpu");
    assert_int_equal(ebb_study_create(f.reader, NULL, &f.study), EBB_OK);
    assert_int_equal(ebb_study_get_summary(f.study).peak_bytes, 3000);
    assert_int_equal(ebb_study_get_summary(f.study).n_blocks, 5);
    size_t n = 0;
    const ebb_study_what_if *rows = ebb_study_what_ifs(f.study, &n);
    assert_int_equal(find_row(rows, n, "placement")->bytes, 3572); /* offsets are multiples of 512 */
    study_fixture_fini(&f);
}

/* Without names; one that ran out of memory comes first. */
static void test_unnamed(void **state) {
    study_fixture f;
    (void)state;
    tell(&f, NULL);
    open_and_choose(&f, NULL, "device 0");
    study_fixture_fini(&f);
    tell(&f, NULL);
    open_and_choose(&f, "cuda:1", "device 1");
    study_fixture_fini(&f);
    study_fixture_init(&f, STUDY_TELLS_ALL);
    note(&f, "oom.2", "1");
    (void)alloc_in(&f, 1, 5000);
    (void)alloc_in(&f, 2, 500);
    open_and_choose(&f, NULL, "device 2");
    study_fixture_fini(&f);
    study_fixture_init(&f, STUDY_TELLS_ALL);
    (void)alloc_in(&f, 1, 5000);
    (void)alloc_in(&f, 2, 500);
    note(&f, "oom.2", "1"); /* when it happened */
    open_and_choose(&f, NULL, "device 2");
    study_fixture_fini(&f);
}

/* The first allocation on a device may be refused: it then has no blocks. Others' reports say nothing of it. */
static void test_refused_from_the_beginning(void **state) {
    static const struct {
        const char *wanted, *name;
        size_t n_refusals;
    } rows[] = {{NULL, "cuda:1", 1}, {"cuda:0", "cuda:0", 0}};
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        study_fixture f;
        size_t n = 0;
        study_fixture_init(&f, STUDY_TELLS_ALL);
        note(&f, "space.1", "cuda:0");
        (void)alloc_in(&f, 1, 5000);
        note(&f, "space.2", "cuda:1");
        note(&f, "oom.2", "1");
        note(&f, "oom.x", "1"); /* anybody's */
        study_add(&f, (ebb_trace_event){.kind = EBB_TRACE_MARK,
                                        .mark = EBB_TRACE_ANNOTATION,
                                        .number = 700,
                                        .name = study_string(&f, "refused")});
        open_and_choose(&f, rows[i].wanted, rows[i].name);
        assert_int_equal(ebb_study_create(f.reader, NULL, &f.study), EBB_OK);
        const ebb_study_refusal *all = ebb_study_refusals(f.study, &n);
        assert_int_equal(n, rows[i].n_refusals);
        if (n > 0) { assert_int_equal(all[0].live_bytes, 0); }
        study_fixture_fini(&f);
    }
}

/* The progress that was told while reading. */
typedef struct told {
    uint64_t n_done, n;
    size_t n_times, n_begun;
    bool is_end; /* the last was told after all was read */
} told;

static void take_progress(void *ctx, const char *what, uint64_t n_done, uint64_t n) {
    told *t = ctx;
    t->is_end = strcmp(what, "reading MiB") != 0;
    if (t->is_end) { return; }
    assert_in_range(n_done, 0, n);
    if (t->n_times == 0 || n_done < t->n_done) { t->n_begun++; }
    t->n_done = n_done;
    t->n = n;
    t->n_times++;
}

/* A file of three MiB: how much is read is told of the file, then of the trace that is made from it, each time. */
static void test_progress(void **state) {
    char path[] = "/tmp/ebb-test-XXXXXX";
    told t = {0};
    ebb_trace_import_options options = EBB_TRACE_IMPORT_OPTIONS_INIT;
    ebb_trace_reader *reader = NULL;
    (void)state;
    const int fd = mkstemp(path);
    FILE *file = fdopen(fd, "w");
    assert_non_null(file);
    fprintf(file, "id,lower,upper,size\n");
    for (int i = 0; i < 30000; i++) { fprintf(file, "a_name_%090d,%d,%d,1\n", i, i, i + 2); }
    assert_int_equal(fclose(file), 0);
    options.progress = (ebb_progress){.tell = take_progress, .ctx = &t};
    const ebb_status status = ebb_trace_open(path, &options, &reader);
    (void)unlink(path);
    if (status != EBB_OK) { fail_msg("%s", ebb_last_error()); }
    assert_int_equal(t.n_begun, 3); /* and it is at the trace's front again */
    assert_true(t.n_times > 4);
    for (bool done = false; !done;) {
        ebb_trace_event event;
        assert_int_equal(ebb_trace_reader_next(reader, &event, &done), EBB_OK);
    }
    assert_int_equal(t.n_begun, 3);
    assert_true(t.n > 0 && t.n_done == t.n);
    assert_true(t.is_end);
    ebb_trace_reader_close(reader);
}

static void test_every_allocation(void **state) {
    study_fixture f;
    size_t n = 0, chosen = 0;
    (void)state;
    tell(&f, all_names);
    assert_int_equal(ebb_trace_writer_close(f.writer), EBB_OK);
    OOM_LOOP(mem, st, {
        ebb_trace_reader *reader = NULL;
        st = ebb_trace_open_device(mem, f.path, NULL, NULL, &reader);
        if (st == EBB_OK) { (void)ebb_trace_reader_devices(reader, &n, &chosen); }
        ebb_trace_reader_close(reader);
    });
    assert_int_equal(n, 3);
    study_fixture_fini(&f);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_study),
                                       cmocka_unit_test(test_found),
                                       cmocka_unit_test(test_host),
                                       cmocka_unit_test(test_unnamed),
                                       cmocka_unit_test(test_refused_from_the_beginning),
                                       cmocka_unit_test(test_progress),
                                       cmocka_unit_test(test_every_allocation)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
