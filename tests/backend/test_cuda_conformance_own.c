/* SPDX-License-Identifier: Apache-2.0
 *
 * The conformance suite on the backend cuda over the fake of the runtime where cuDNN has no algorithm that is allowed:
 * convolutions by own kernels.
 */
#include "backend/cuda/cuda.h"
#include "conformance.h"
#include "fake_cuda.h"

int main(void) {
    fake_cuda_reset(1);
    fake.no_engines = true;
    ebb_device_options options = EBB_DEVICE_OPTIONS_INIT;
    options.mem = ebb__mem_or_default(NULL);
    ebb_device *device = NULL;
    if (ebb__backend_cuda.open(&options, &device) != EBB_OK) { return 1; }
    const int status = conformance_run(device);
    return status == 0 && fake.n_live != 0 ? 1 : status;
}
