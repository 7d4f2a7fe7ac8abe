/* SPDX-License-Identifier: Apache-2.0
 *
 * The same bits whatever the plan (run_bits.h) with the plug-in's own kernels, layouts and scratch over the fake of the
 * runtime, issued and captured; the losses of ref, but for the rounding of sums; and that a plan is proven whose steps
 * add to gradients in place.
 */
#include "backend/cuda/cuda.h"
#include "fake_cuda.h"
#include "run_bits.h"

#include <math.h>

static ebb_device *open_device(uint64_t seed, bool no_capture) {
    ebb_device_options options = EBB_DEVICE_OPTIONS_INIT;
    ebb_device *device = NULL;
    fake_cuda_reset(seed);
    options.mem = ebb__mem_or_default(NULL);
    options.no_capture = no_capture;
    assert_int_equal(ebb__backend_cuda.open(&options, &device), EBB_OK);
    return device;
}

static void streams_give_the_same_bits(void **state) {
    (void)state;
    compare_all(open_device(1, true));
    assert_int_equal(fake.n_live, 0);
}

static void captures_give_the_same_bits(void **state) {
    (void)state;
    compare_all(open_device(2, false));
    assert_true(fake.n_graph_launches > 0);
    assert_int_equal(fake.n_live, 0);
}

static outcome train_on(ebb_device *device) {
    ebb_graph *g = make_graph();
    ebb_lowered *low = NULL;
    assert_int_equal(ebb_lower(g, device, &low), EBB_OK);
    const ebb_plan *plan = make_plan(low, "liveness", UINT64_MAX, EBB_HOST, NULL);
    const outcome out = train(low, plan);
    ebb_lowered_destroy(low);
    ebb_graph_destroy(g);
    ebb_device_close(device);
    return out;
}

static void losses_are_refs(void **state) {
    (void)state;
    ebb_device *ref = NULL;
    assert_int_equal(ebb_device_open("ref", NULL, &ref), EBB_OK);
    const outcome want = train_on(ref), got = train_on(open_device(3, false));
    for (int i = 0; i < N_ITERATIONS; i++) {
        float a = 0.0f, b = 0.0f;
        memcpy(&a, &want.loss_bits[i], sizeof a);
        memcpy(&b, &got.loss_bits[i], sizeof b);
        assert_true(fabsf(a - b) <= 1e-5f * fabsf(a));
    }
}

/* A step of the network adds the gradient of b's convolution to that of the sum. */
static void sums_in_place_are_proven(void **state) {
    (void)state;
    ebb_device *device = open_device(4, false);
    ebb_graph *g = make_graph();
    ebb_lowered *low = NULL;
    ebb_proof proof = {0};
    size_t n_steps = 0, n_sums = 0;
    assert_int_equal(ebb_lower(g, device, &low), EBB_OK);
    const ebb_step *steps = ebb_program_steps(ebb_lowered_program(low), &n_steps);
    for (size_t s = 0; s < n_steps; s++) { n_sums += strcmp(steps[s].kind, "conv_bwd_data_add") == 0; }
    assert_int_equal(n_sums, 1);
    const ebb_plan *liveness = make_plan(low, "liveness", UINT64_MAX, EBB_HOST, NULL);
    const ebb_plan *plan = make_plan(low, "budget", peak_of(liveness) / 2, EBB_HOST, NULL);
    if (ebb_run_prove(g, device, plan, &proof) != EBB_OK) { fail_msg("%s", ebb_last_error()); }
    assert_true(proof.n_commands > 0);
    ebb_lowered_destroy(low);
    ebb_graph_destroy(g);
    ebb_device_close(device);
    assert_int_equal(fake.n_live, 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(streams_give_the_same_bits),
        cmocka_unit_test(captures_give_the_same_bits),
        cmocka_unit_test(losses_are_refs),
        cmocka_unit_test(sums_in_place_are_proven),
    };
    return cmocka_run_group_tests(tests, NULL, forget_plans);
}
