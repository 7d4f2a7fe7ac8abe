/* SPDX-License-Identifier: Apache-2.0
 *
 * The machine that the fake is when it is loaded as a plug-in (-DEBB_CUDA=FAKE), for rehearsals of what runs on a card:
 * larger than the tests', so that whole networks fit, and with real times: what is slow is not measured often.
 */
#include "fake_cuda.h"

__attribute__((constructor)) static void set_up(void) {
    fake_cuda_reset(1);
    fake.total_bytes = (uint64_t)16 << 30;
    fake.has_no_locks = fake.tells_time = true;
}
