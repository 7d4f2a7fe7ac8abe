/* SPDX-License-Identifier: Apache-2.0
 *
 * The journal: what is issued stands in it, in order, with the bytes that it touches; it computes nothing; and operands
 * that overlap without leave are refused.
 */
#include "support.h"

#include "backend/journal.h"

typedef struct fixture {
    ebb_device *dry, *device;
    const ebb_backend_ops *ops;
    const ebb_journal *journal;
    ebb_arena_mem *arena;
    ebb_stream *compute, *copies;
    ebb_run_state state;
} fixture;

static void fixture_init(fixture *f) {
    *f = (fixture){.state = {.update = 1}};
    assert_int_equal(ebb_device_open("dry", NULL, &f->dry), EBB_OK);
    assert_int_equal(ebb__journal_open(f->dry, &f->device), EBB_OK);
    f->ops = f->device->ops;
    f->journal = ebb__journal_get(f->device);
    assert_int_equal(f->ops->arena_create(f->device, 4096, &f->arena), EBB_OK);
    assert_int_equal(f->ops->stream_create(f->device, true, &f->compute), EBB_OK);
    assert_int_equal(f->ops->stream_create(f->device, false, &f->copies), EBB_OK);
}

static void fixture_fini(fixture *f) {
    f->ops->stream_destroy(f->copies);
    f->ops->stream_destroy(f->compute);
    f->ops->arena_destroy(f->device, f->arena);
    ebb_device_close(f->device);
    ebb_device_close(f->dry);
}

static const ebb_journal_entry *last_entry(const fixture *f, ebb_journal_kind kind, uint32_t thread) {
    const ebb_journal_entry *e = &f->journal->entries.data[f->journal->entries.n - 1];
    assert_int_equal(e->kind, kind);
    assert_int_equal(e->thread, thread);
    return e;
}

static void check_access(const fixture *f, const ebb_journal_entry *e, uint32_t i, uint64_t begin, uint64_t end,
                         uint32_t mode, ebb_journal_space space) {
    assert_true(i < e->n_accesses);
    const ebb_journal_access *a = &f->journal->accesses.data[e->first_access + i];
    assert_true(a->begin == begin && a->end == end && a->mode == mode);
    assert_int_equal(f->journal->spaces.data[a->space], space);
}

static ebb_kernel *make_kernel(const fixture *f, ebb_op_kind kind, uint32_t n_in, uint32_t n_out) {
    ebb_operand operand[3];
    for (int i = 0; i < 3; i++) {
        operand[i] = (ebb_operand){.shape = {.n_dims = 2, .dims = {4, 16}}, .layout = EBB_LAYOUT_ANY};
    }
    const ebb_kernel_desc desc = {
        .kind = kind, .n_in = n_in, .n_out = n_out, .operand = operand, .attr = {.port = kind == EBB_OP_FETCH}};
    ebb_kernel *kernel = NULL;
    assert_int_equal(f->ops->kernel_create(f->device, &desc, &kernel), EBB_OK);
    assert_ptr_equal(kernel->device, f->device);
    return kernel;
}

static ebb_status bind_at(const fixture *f, ebb_kernel *kernel, const uint64_t *offset, uint32_t n, ebb_bound **bound) {
    ebb_buf bufs[4];
    for (uint32_t i = 0; i < n; i++) { bufs[i] = (ebb_buf){.arena = f->arena, .offset = offset[i], .size_bytes = 256}; }
    const ebb_binding binding = {
        .operand = bufs, .scratch = {.arena = f->arena, .offset = 2048, .size_bytes = 64}, .state = &f->state};
    return f->ops->bind(kernel, &binding, bound);
}

static void commands_stand_in_it(void **state) {
    (void)state;
    fixture f;
    ebb_bound *bound = NULL;
    ebb_event *event = NULL;
    void *slab = NULL;
    fixture_init(&f);
    assert_true(f.ops->has_data && !f.ops->host_visible);
    assert_int_equal(f.ops->alignment_bytes, f.dry->ops->alignment_bytes);
    ebb_kernel *kernel = make_kernel(&f, EBB_OP_ADD, 2, 1);
    assert_int_equal(bind_at(&f, kernel, (uint64_t[]){0, 256, 512}, 3, &bound), EBB_OK);
    assert_int_equal(f.ops->run(f.compute, kernel, bound), EBB_OK);
    const ebb_journal_entry *e = last_entry(&f, EBB_JOURNAL_RUN, 1);
    assert_int_equal(e->n_accesses, 5);
    assert_ptr_equal(e->what, bound);
    check_access(&f, e, 1, 256, 512, EBB_READ, EBB_JOURNAL_DEVICE_SPACE);
    check_access(&f, e, 2, 512, 768, EBB_WRITE, EBB_JOURNAL_DEVICE_SPACE);
    check_access(&f, e, 3, 2048, 2112, EBB_WRITE, EBB_JOURNAL_DEVICE_SPACE);
    check_access(&f, e, 4, (uintptr_t)&f.state, (uintptr_t)(&f.state + 1), EBB_READ, EBB_JOURNAL_HOST_SPACE);

    assert_int_equal(f.ops->event_create(f.device, &event), EBB_OK);
    assert_int_equal(f.ops->event_record(f.compute, event), EBB_OK);
    (void)last_entry(&f, EBB_JOURNAL_RECORD, 1);
    assert_int_equal(f.ops->event_wait(f.copies, event), EBB_OK);
    (void)last_entry(&f, EBB_JOURNAL_WAIT, 2);
    assert_int_equal(f.ops->event_sync(f.device, event), EBB_OK);
    (void)last_entry(&f, EBB_JOURNAL_EVENT_SYNC, 0);
    assert_int_equal(f.ops->stream_sync(f.copies), EBB_OK);
    (void)last_entry(&f, EBB_JOURNAL_STREAM_SYNC, 2);

    assert_int_equal(f.ops->host_alloc(f.device, (uint64_t)1 << 40, &slab), EBB_OK); /* costs nothing */
    const ebb_buf buf = {.arena = f.arena, .offset = 64, .size_bytes = 128};
    assert_int_equal(f.ops->copy(f.copies, EBB_COPY_IN, buf, (char *)slab + 1000), EBB_OK);
    e = last_entry(&f, EBB_JOURNAL_COPY, 2);
    check_access(&f, e, 0, 64, 192, EBB_WRITE, EBB_JOURNAL_DEVICE_SPACE);
    check_access(&f, e, 1, 1000, 1128, EBB_READ, EBB_JOURNAL_HOST_SPACE);
    f.ops->host_free(f.device, slab, (uint64_t)1 << 40);
    f.ops->event_destroy(f.device, event);
    f.ops->unbind(kernel, bound);
    f.ops->kernel_destroy(kernel);
    fixture_fini(&f);
}

static ebb_status never(void *ctx) {
    (void)ctx;
    fail_msg("a journal calls nobody");
    return EBB_OK;
}

static void what_the_host_touches_is_said(void **state) {
    (void)state;
    fixture f;
    int fd = 0;
    char memory[32];
    const ebb_touch touches[2] = {{.base = memory, .offset = 8, .size_bytes = 16, .mode = EBB_READ},
                                  {.base = &fd, .offset = 7, .size_bytes = 16, .mode = EBB_WRITE, .file = true}};
    fixture_init(&f);
    assert_int_equal(ebb__touch(f.device, f.copies, touches, 2), EBB_OK);
    assert_int_equal(f.journal->entries.n, 0); /* it is for the call that comes */
    assert_int_equal(f.ops->call(f.copies, never, &fd), EBB_OK);
    const ebb_journal_entry *e = last_entry(&f, EBB_JOURNAL_CALL, 2);
    assert_ptr_equal(e->what, &fd);
    check_access(&f, e, 0, (uintptr_t)memory + 8, (uintptr_t)memory + 24, EBB_READ, EBB_JOURNAL_HOST_SPACE);
    check_access(&f, e, 1, 7, 23, EBB_WRITE, EBB_JOURNAL_FILE_SPACE);
    const uint32_t file = f.journal->accesses.data[e->first_access + 1].space;
    assert_int_equal(ebb__touch(f.device, NULL, touches, 2), EBB_OK);
    e = last_entry(&f, EBB_JOURNAL_HOST, 0);
    assert_int_equal(f.journal->accesses.data[e->first_access + 1].space, file);
    assert_int_equal(f.ops->call(f.copies, never, NULL), EBB_OK);
    assert_int_equal(last_entry(&f, EBB_JOURNAL_CALL, 2)->n_accesses, 0);
    assert_int_equal(ebb__touch(f.dry, NULL, touches, 2), EBB_OK); /* no one asks */
    fixture_fini(&f);
}

static void a_port_is_read_and_written(void **state) {
    (void)state;
    fixture f;
    ebb_bound *bound = NULL;
    float images[64], loss[64];
    fixture_init(&f);
    f.state.port = (void *[]){images, loss};
    ebb_kernel *feed = make_kernel(&f, EBB_OP_FEED, 0, 1), *fetch = make_kernel(&f, EBB_OP_FETCH, 1, 0);
    ebb_kernel *kernel[2] = {feed, fetch};
    for (int i = 0; i < 2; i++) {
        assert_int_equal(bind_at(&f, kernel[i], (uint64_t[]){0}, 1, &bound), EBB_OK);
        assert_int_equal(f.ops->run(f.compute, kernel[i], bound), EBB_OK);
        const uint64_t port = (uintptr_t)(i == 0 ? images : loss);
        check_access(&f, last_entry(&f, EBB_JOURNAL_RUN, 1), 3, port, port + 256, i == 0 ? EBB_READ : EBB_WRITE,
                     EBB_JOURNAL_HOST_SPACE);
        f.ops->unbind(kernel[i], bound);
        f.ops->kernel_destroy(kernel[i]);
    }
    fixture_fini(&f);
}

static void operands_overlap_by_leave_only(void **state) {
    (void)state;
    static const struct {
        uint64_t offset[3];
        ebb_status status;
    } cases[] = {{{0, 256, 0}, EBB_OK},
                 {{0, 256, 256}, EBB_OK},
                 {{0, 0, 256}, EBB_OK},
                 {{0, 256, 128}, EBB_E_INTERNAL},
                 {{0, 256, 2000}, EBB_E_INTERNAL}};
    fixture f;
    fixture_init(&f);
    ebb_kernel *kernel = make_kernel(&f, EBB_OP_ADD, 2, 1);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        ebb_bound *bound = NULL;
        assert_int_equal(bind_at(&f, kernel, cases[i].offset, 3, &bound), cases[i].status);
        if (bound != NULL) { f.ops->unbind(kernel, bound); }
    }
    assert_non_null(strstr(ebb_last_error(), "overlaps"));
    f.ops->kernel_destroy(kernel);
    fixture_fini(&f);
}

/* Streams that take part in iterations meet before a graph and after it, and its waits are for its own events. */
static void graphs_have_borders(void **state) {
    (void)state;
    fixture f;
    ebb_event *event = NULL;
    bool wanted = false, again = true;
    const ebb_buf buf = {.size_bytes = 128};
    char host[128];
    fixture_init(&f);
    f.ops->stream_destroy(f.copies);
    f.ops->stream_destroy(f.compute);
    ebb__journal_restart(f.device, true);
    assert_int_equal(f.journal->entries.n, 0);
    assert_int_equal(f.ops->stream_create(f.device, true, &f.compute), EBB_OK);
    assert_int_equal(f.ops->stream_create(f.device, false, &f.copies), EBB_OK);
    assert_int_equal(f.ops->event_create(f.device, &event), EBB_OK);
    ebb_buf at = buf;
    at.arena = f.arena;
    for (int iteration = 0; iteration < 2; iteration++) {
        const size_t first = f.journal->entries.n;
        assert_int_equal(f.ops->iteration_begin(f.device, 1, &wanted), EBB_OK);
        assert_true(wanted);
        assert_int_equal(f.journal->entries.n - first, iteration == 0 ? 0 : 4); /* join, fork, a wait for each */
        assert_int_equal(f.ops->event_wait(f.copies, event), EBB_OK);
        assert_int_equal(f.ops->copy(f.copies, EBB_COPY_OUT, at, host), EBB_OK);
        assert_int_equal(f.ops->event_record(f.copies, event), EBB_OK);
        assert_int_equal(f.ops->event_wait(f.copies, event), EBB_OK);
        (void)last_entry(&f, EBB_JOURNAL_WAIT, 3);
        assert_int_equal(f.ops->iteration_end(f.device, 1, EBB_OK, &again), EBB_OK);
        assert_false(again);
    }
    assert_int_equal(f.ops->call(f.copies, never, NULL), EBB_E_UNSUPPORTED);
    f.ops->event_destroy(f.device, event);
    fixture_fini(&f);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(commands_stand_in_it),       cmocka_unit_test(what_the_host_touches_is_said),
        cmocka_unit_test(a_port_is_read_and_written), cmocka_unit_test(operands_overlap_by_leave_only),
        cmocka_unit_test(graphs_have_borders),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
