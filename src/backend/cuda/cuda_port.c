/* SPDX-License-Identifier: Apache-2.0
 *
 * Ports: through them the host gives the device its batches, and gets the loss. A port's memory is pinned and stays
 * where it is, so a captured copy finds each iteration's content there; one that moves is noted for the graph. A replay
 * runs nothing on the host, so the kernel that reads labels must bear wrong ones.
 */
#include "backend/cuda/cuda_priv.h"

static ebb_status run_feed(const ebb_cuda_kernel *kernel, const ebb_bound *bound, cudaStream_t stream) {
    const ebb_run_state *state = bound->host_state;
    const int32_t port = kernel->attr.port;
    const uint64_t bytes = ebb__cuda_layout_bytes(kernel->base.device, kernel->layout[0]);
    EBB_CUDA(cudaMemcpyAsync(bound->at[0], state->port[port], bytes, cudaMemcpyHostToDevice, stream), "feed");
    return ebb__cuda_capture_note_feed(ebb__cuda_of(kernel->base.device), state, port, bound->at[0], bytes);
}

static ebb_status run_fetch(const ebb_cuda_kernel *kernel, const ebb_bound *bound, cudaStream_t stream) {
    EBB_CUDA(cudaMemcpyAsync(bound->host_state->port[kernel->attr.port], bound->at[0],
                             ebb__cuda_layout_bytes(kernel->base.device, kernel->layout[0]), cudaMemcpyDeviceToHost,
                             stream),
             "fetch");
    return EBB_OK;
}

ebb_status ebb__cuda_make_port(ebb_cuda_device *device, const ebb_kernel_desc *desc, ebb_cuda_kernel *kernel) {
    kernel->run = desc->kind == EBB_OP_FEED ? run_feed : run_fetch;
    return ebb__kernel_all_plain(&device->base, desc, kernel->layout);
}
