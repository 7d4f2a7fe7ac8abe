/* SPDX-License-Identifier: Apache-2.0
 *
 * The same bits whatever the plan (run_bits.h), on devices of host memory, and on one whose memory the host cannot see:
 * then values go by copies, and the file tier through staging.
 */
#include "run_bits.h"

static ebb_device *open_device(const char *backend) {
    ebb_device *device = NULL;
    if (ebb_device_open(backend, NULL, &device) != EBB_OK) { skip(); }
    return device;
}

static void ref_gives_the_same_bits(void **state) {
    (void)state;
    compare_all(open_device("ref"));
}

static void cpu_gives_the_same_bits(void **state) {
    (void)state;
    compare_all(open_device("cpu"));
}

static void a_device_out_of_sight_gives_the_same_bits(void **state) {
    (void)state;
    ebb_device *device = open_device("ref");
    ebb_backend_ops ops = *device->ops;
    ops.host_visible = false;
    ops.host_address = NULL;
    device->ops = &ops;
    compare_all(device);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ref_gives_the_same_bits),
        cmocka_unit_test(cpu_gives_the_same_bits),
        cmocka_unit_test(a_device_out_of_sight_gives_the_same_bits),
    };
    return cmocka_run_group_tests(tests, NULL, forget_plans);
}
