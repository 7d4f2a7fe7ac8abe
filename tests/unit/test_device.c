/* SPDX-License-Identifier: Apache-2.0
 *
 * The backends by name, and devices opened and closed through the public calls, also with memory that ends.
 */
#include "backend/backend.h"

#include <setjmp.h>
#include <stdarg.h>
#include <cmocka.h>
#include <stdlib.h>

static void names_are_listed(void **state) {
    (void)state;
    const char *about = NULL;
    size_t n = 0;
    for (const char *name; (name = ebb_backend_name(n, &about)) != NULL; n++) {
        assert_ptr_equal(ebb__backend_find(name), ebb__backend_get(n));
        assert_int_not_equal(about[0], '\0');
    }
    assert_true(n >= 2);
    assert_null(ebb__backend_get(n));
    assert_non_null(ebb__backend_find("ref"));
    assert_non_null(ebb__backend_find("dry"));
}

static void unknown_names_tell_what_there_is(void **state) {
    (void)state;
    ebb_device *device = NULL;
    assert_int_equal(ebb_device_open("gpu9", NULL, &device), EBB_E_NO_DEVICE);
    assert_non_null(strstr(ebb_last_error(), "'gpu9'"));
    assert_null(device);
    assert_int_equal(ebb_device_open("vulkan", NULL, &device), EBB_E_NO_DEVICE);
    assert_non_null(strstr(ebb_last_error(), "'vulkan'"));
    assert_non_null(strstr(ebb_last_error(), "ref, dry"));
    assert_null(device);
    ebb_device_options options = EBB_DEVICE_OPTIONS_INIT;
    options.index = 7;
    assert_int_equal(ebb_device_open("ref", &options, &device), EBB_E_NO_DEVICE);
    assert_int_equal(ebb_device_open("dry", &options, &device), EBB_E_NO_DEVICE);
    options.index = 0;
    options.n_threads = -1;
    assert_int_equal(ebb_device_open("ref", &options, &device), EBB_E_ARGUMENT);
    options.n_threads = 0;
    options.size_bytes--;
    assert_int_equal(ebb_device_open("ref", &options, &device), EBB_E_ARGUMENT);
    assert_null(device);
}

static void devices_open_and_tell_of_themselves(void **state) {
    (void)state;
    for (size_t i = 0; ebb_backend_name(i, NULL) != NULL; i++) {
        ebb_device *device = NULL;
        ebb_device_info info;
        const ebb_status st = ebb_device_open(ebb_backend_name(i, NULL), NULL, &device);
        if (st == EBB_E_NO_DEVICE && ebb__backend_get(i)->info == NULL) { continue; } /* a plug-in without hardware */
        assert_int_equal(st, EBB_OK);
        assert_string_equal(ebb_device_backend(device), ebb_backend_name(i, NULL));
        assert_int_equal(ebb_device_get_info(device, &info), EBB_OK);
        assert_int_not_equal(info.name[0], '\0');
        assert_true(info.capacity_bytes > 0);
        ebb_device_close(device);
    }
    ebb_device_close(NULL);
}

/* ---- memory that ends ---- */

typedef struct purse {
    size_t n_left, n_live;
} purse;

static void *spend(void *ctx, void *ptr, size_t size_bytes) {
    purse *p = ctx;
    if (p->n_left == 0) { return NULL; }
    p->n_left--;
    p->n_live += ptr == NULL;
    return realloc(ptr, size_bytes);
}

static void *spend_new(void *ctx, size_t size_bytes) {
    return spend(ctx, NULL, size_bytes);
}

static void give_back(void *ctx, void *ptr) {
    ((purse *)ctx)->n_live -= ptr != NULL;
    free(ptr);
}

static const ebb_shape shape = {.n_dims = 2, .dims = {3, 5}};

/* Everything that a device makes, once; the first failure ends it, and all is given back either way. */
static ebb_status use_device(const char *backend, const ebb_device_options *options) {
    ebb_device *device = NULL;
    EBB_TRY(ebb_device_open(backend, options, &device));
    const ebb_backend_ops *ops = device->ops;
    ebb_arena_mem *arena = NULL;
    ebb_stream *stream = NULL;
    ebb_event *event = NULL;
    ebb_kernel *kernel = NULL;
    ebb_bound *bound = NULL;
    const ebb_operand operand[2] = {{.shape = shape, .layout = EBB_LAYOUT_ANY},
                                    {.shape = shape, .layout = EBB_LAYOUT_ANY}};
    const ebb_kernel_desc desc = {.kind = EBB_OP_RELU, .n_in = 1, .n_out = 1, .operand = operand};
    const ebb_run_state run_state = {0};
    ebb_status status = ops->arena_create(device, 4096, &arena);
    const ebb_buf buf[2] = {{arena, 0, 60}, {arena, 0, 60}};
    const ebb_binding binding = {.operand = buf, .scratch = {.arena = arena}, .state = &run_state};
    if (status == EBB_OK) { status = ops->stream_create(device, false, &stream); }
    if (status == EBB_OK) { status = ops->event_create(device, &event); }
    if (status == EBB_OK) { status = ops->kernel_create(device, &desc, &kernel); }
    if (status == EBB_OK) { status = ops->bind(kernel, &binding, &bound); }
    if (bound != NULL) { ops->unbind(kernel, bound); }
    ops->kernel_destroy(kernel);
    ops->event_destroy(device, event);
    ops->stream_destroy(stream);
    ops->arena_destroy(device, arena);
    ebb_device_close(device);
    return status;
}

static void each_allocation_may_fail(void **state) {
    (void)state;
    static const char *const backends[] = {"ref", "dry"};
    for (size_t b = 0; b < 2; b++) {
        ebb_status status = EBB_E_NO_MEMORY;
        for (size_t n = 0; status != EBB_OK; n++) {
            purse p = {.n_left = n};
            const ebb_mem mem = {spend_new, spend, give_back, &p};
            ebb_device_options options = EBB_DEVICE_OPTIONS_INIT;
            options.mem = &mem;
            status = use_device(backends[b], &options);
            assert_true(status == EBB_OK || status == EBB_E_NO_MEMORY);
            assert_int_equal(p.n_live, 0);
            assert_true(n < 100);
        }
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(names_are_listed),
        cmocka_unit_test(unknown_names_tell_what_there_is),
        cmocka_unit_test(devices_open_and_tell_of_themselves),
        cmocka_unit_test(each_allocation_may_fail),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
