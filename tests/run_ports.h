/* SPDX-License-Identifier: Apache-2.0
 *
 * The ports of a run of a network that learns from pictures, for tests; include cmocka.h before.
 */
#ifndef EBB_TESTS_RUN_PORTS_H
#define EBB_TESTS_RUN_PORTS_H

#include "ebb/run.h"

static inline void *run_port(ebb_run *run, const char *name) {
    void *memory = NULL;
    assert_int_equal(ebb_run_port(run, name, &memory, NULL), EBB_OK);
    return memory;
}

static inline float *run_images(ebb_run *run) {
    return run_port(run, "images");
}

static inline int32_t *run_labels(ebb_run *run) {
    return run_port(run, "labels");
}

static inline float run_loss(ebb_run *run) {
    return *(const float *)run_port(run, "loss");
}

#endif
