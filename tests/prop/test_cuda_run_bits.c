/* SPDX-License-Identifier: Apache-2.0
 *
 * The same bits whatever the plan (run_bits.h), through the plug-in's memory, streams, events, copies and captured
 * iterations over the fake of the runtime, with ref's arithmetic in place of kernels: the fake runs commands in any
 * order that no event forbids, so a plan whose events are too few gives other bits.
 */
#include "backend/cuda/cuda_each.h"
#include "backend/cuda/cuda_priv.h"
#include "backend/plain.h"
#include "backend/ref/ref.h"
#include "fake_cuda.h"
#include "run_bits.h"

/* ref's kernels and layouts, which are made on a device of its own. */
static ebb_device *ref;

typedef struct ref_bound {
    ebb_ref_call call;
    void *operand[];
} ref_bound;

static ebb_status create_kernel(ebb_device *device, const ebb_kernel_desc *desc, ebb_kernel **kernel_out) {
    EBB_TRY(ref->ops->kernel_create(ref, desc, kernel_out));
    (*kernel_out)->device = device;
    return EBB_OK;
}

static ebb_status bind_kernel(ebb_kernel *kernel, const ebb_binding *binding, ebb_bound **bound_out) {
    const ebb_kernel_desc *desc = &((const ebb_plain_kernel *)kernel)->desc;
    const uint32_t n = ebb__kernel_n_operands(desc);
    ref_bound *bound = malloc(sizeof *bound + n * sizeof(void *));
    assert_non_null(bound);
    for (uint32_t i = 0; i < n; i++) { bound->operand[i] = ebb__cuda_address(binding->operand[i]); }
    bound->call = (ebb_ref_call){desc, bound->operand, binding->state, binding->rng_stream};
    *bound_out = (ebb_bound *)bound;
    return EBB_OK;
}

static void unbind_kernel(ebb_kernel *kernel, ebb_bound *bound) {
    (void)kernel;
    free(bound);
}

static void run_element(const void *args, uint64_t i) {
    const ref_bound *bound = *(const ref_bound *const *)args;
    (void)i;
    assert_int_equal(ebb__ref_function(bound->call.desc->kind)(&bound->call), EBB_OK);
}

static ebb_status run_kernel(ebb_stream *stream, ebb_kernel *kernel, ebb_bound *bound) {
    (void)kernel;
    EBB_TRY(ebb__cuda_begin_command(stream));
    EBB_CUDA(ebb__cuda_each_on_host(stream->handle, run_element, &bound, sizeof bound, 1), "a kernel of ref's");
    return EBB_OK;
}

static ebb_status plain_layout(ebb_device *device, ebb_dtype dtype, const ebb_shape *shape, ebb_layout *layout_out) {
    (void)device;
    return ref->ops->layout_plain(ref, dtype, shape, layout_out);
}

static uint64_t layout_bytes(const ebb_device *device, ebb_layout layout) {
    (void)device;
    return ref->ops->layout_bytes(ref, layout);
}

static const char *layout_name(const ebb_device *device, ebb_layout layout) {
    (void)device;
    return ref->ops->layout_name(ref, layout);
}

static ebb_status copy_layout(ebb_device *device, ebb_layout layout, const void *src, void *dst) {
    (void)device;
    return ref->ops->layout_pack(ref, layout, src, dst);
}

static void compare_with_seed(uint64_t seed, bool no_capture) {
    fake_cuda_reset(seed);
    ebb_backend_ops ops = ebb__backend_cuda;
    ops.kernel_create = create_kernel;
    ops.kernel_destroy = ref->ops->kernel_destroy;
    ops.bind = bind_kernel;
    ops.unbind = unbind_kernel;
    ops.run = run_kernel;
    ops.layout_plain = plain_layout;
    ops.layout_bytes = layout_bytes;
    ops.layout_name = layout_name;
    ops.layout_pack = ops.layout_unpack = copy_layout;
    ebb_device_options options = EBB_DEVICE_OPTIONS_INIT;
    options.mem = ebb__mem_or_default(NULL);
    options.no_capture = no_capture;
    ebb_device *device = NULL;
    assert_int_equal(ops.open(&options, &device), EBB_OK);
    device->ops = &ops;
    compare_all(device);
    assert_int_equal(fake.n_graph_launches > 0, !no_capture);
    assert_int_equal(fake.n_live, 0);
}

static void streams_give_the_same_bits(void **state) {
    (void)state;
    compare_with_seed(1, true);
}

static void captures_give_the_same_bits(void **state) {
    (void)state;
    compare_with_seed(2, false);
}

static int set_up(void **state) {
    (void)state;
    return ebb_device_open("ref", NULL, &ref) == EBB_OK ? 0 : -1;
}

static int tear_down(void **state) {
    (void)state;
    ebb_device_close(ref);
    return 0;
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(streams_give_the_same_bits),
        cmocka_unit_test(captures_give_the_same_bits),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
