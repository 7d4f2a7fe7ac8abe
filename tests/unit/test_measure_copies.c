/* SPDX-License-Identifier: Apache-2.0
 *
 * Measuring copies: rates where there is data, none where there is not, and nothing written when memory runs out.
 */
#include "ebb/run.h"

#include "support.h"

#define LIMIT_BYTES ((uint64_t)1 << 16)
#define UNTOUCHED (-1.0)

static const ebb_copy_rates untouched = {UNTOUCHED, UNTOUCHED, UNTOUCHED};

static void expect_rates(const ebb_copy_rates *rates, bool wanted) {
    assert_true(wanted ? rates->out_bytes_per_s > 0 : rates->out_bytes_per_s == 0);
    assert_true(wanted ? rates->in_bytes_per_s > 0 : rates->in_bytes_per_s == 0);
    assert_true(wanted ? rates->both_bytes_per_s > 0 : rates->both_bytes_per_s == 0);
}

static void rates_are_of_what_has_data(void **state) {
    (void)state;
    static const struct {
        const char *backend;
        uint64_t limit_bytes;
        bool wanted;
    } cases[] = {{"ref", LIMIT_BYTES, true}, {"ref", 0, true}, {"dry", LIMIT_BYTES, false}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        ebb_device *device = NULL;
        ebb_copy_rates pinned = untouched, pageable = untouched;
        assert_int_equal(ebb_device_open(cases[i].backend, NULL, &device), EBB_OK);
        assert_int_equal(ebb_run_measure_copies(device, cases[i].limit_bytes, &pinned, &pageable), EBB_OK);
        expect_rates(&pinned, cases[i].wanted);
        expect_rates(&pageable, cases[i].wanted);
        ebb_device_close(device);
    }
}

static ebb_status measure(const ebb_mem *mem) {
    ebb_device_options options = EBB_DEVICE_OPTIONS_INIT;
    options.mem = mem;
    ebb_device *device = NULL;
    ebb_copy_rates pinned = untouched, pageable = untouched;
    EBB_TRY(ebb_device_open("ref", &options, &device));
    const ebb_status st = ebb_run_measure_copies(device, LIMIT_BYTES, &pinned, &pageable);
    if (st != EBB_OK) {
        assert_memory_equal(&pinned, &untouched, sizeof pinned);
        assert_memory_equal(&pageable, &untouched, sizeof pageable);
    }
    ebb_device_close(device);
    return st;
}

static void any_allocation_may_fail(void **state) {
    (void)state;
    OOM_LOOP(mem, st, { st = measure(mem); });
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rates_are_of_what_has_data),
        cmocka_unit_test(any_allocation_may_fail),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
