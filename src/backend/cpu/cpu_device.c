/* SPDX-License-Identifier: Apache-2.0
 *
 * The device and its table. Memory, streams and events are those of the host (host_memory.h, host_stream.h): what
 * is particular here are layouts and kernels. The compute stream is the caller's thread, which OpenMP's threads
 * join for each kernel.
 */
#include "backend/cpu/cpu_priv.h"

#include <omp.h>

ebb_status ebb__cpu_fail(dnnl_status_t status, const char *what) {
    static const struct {
        dnnl_status_t status;
        ebb_status code;
        const char *text;
    } table[] = {
        {dnnl_out_of_memory, EBB_E_NO_MEMORY, "out of memory"},
        {dnnl_invalid_arguments, EBB_E_INTERNAL, "invalid arguments"},
        {dnnl_unimplemented, EBB_E_UNSUPPORTED, "not implemented"},
        {dnnl_last_impl_reached, EBB_E_UNSUPPORTED, "no implementation"},
        {dnnl_runtime_error, EBB_E_DEVICE, "runtime error"},
        {dnnl_not_required, EBB_E_INTERNAL, "not required"},
    };
    for (size_t i = 0; i < sizeof table / sizeof table[0]; i++) {
        if (table[i].status == status) { return ebb_fail(table[i].code, "oneDNN: %s: %s", what, table[i].text); }
    }
    return ebb_fail(EBB_E_DEVICE, "oneDNN: %s: status %d", what, (int)status);
}

/* All signals that another process or a timer sends; a fault must come when it happens. */
static void hold_signals(sigset_t *before_out) {
    static const int faults[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGABRT, SIGSYS};
    sigset_t set;
    sigfillset(&set);
    for (size_t i = 0; i < sizeof faults / sizeof faults[0]; i++) { sigdelset(&set, faults[i]); }
    (void)pthread_sigmask(SIG_BLOCK, &set, before_out);
}

ebb_cpu_before ebb__cpu_enter(const ebb_cpu_device *device) {
    ebb_cpu_before before = {.n_threads = omp_get_max_threads()};
    hold_signals(&before.signals);
    if (before.n_threads != device->n_threads) { omp_set_num_threads(device->n_threads); }
    return before;
}

void ebb__cpu_leave(const ebb_cpu_before *before) {
    if (omp_get_max_threads() != before->n_threads) { omp_set_num_threads(before->n_threads); }
    (void)pthread_sigmask(SIG_SETMASK, &before->signals, NULL);
}

/* oneDNN's own judgement, which its users can lower (ONEDNN_MAX_CPU_ISA), decides for ours. */
static void choose_loops(ebb_cpu_device *device) {
    device->simd = &ebb__cpu_simd_plain;
    device->block = 8;
#if defined(__x86_64__)
    const unsigned isa = (unsigned)dnnl_get_effective_cpu_isa();
    if ((isa & dnnl_cpu_isa_avx512_core) == dnnl_cpu_isa_avx512_core) {
        device->simd = &ebb__cpu_simd_avx512;
        device->block = 16;
    } else if ((isa & dnnl_cpu_isa_avx2) == dnnl_cpu_isa_avx2) {
        device->simd = &ebb__cpu_simd_avx2;
    }
#endif
}

static ebb_status make_attributes(ebb_cpu_device *device) {
    dnnl_post_ops_t ops = NULL;
    EBB_CPU_DNNL(dnnl_primitive_attr_create(&device->attr), "attributes");
    EBB_CPU_DNNL(dnnl_primitive_attr_set_scratchpad_mode(device->attr, dnnl_scratchpad_mode_user), "attributes");
    EBB_CPU_DNNL(dnnl_primitive_attr_clone(&device->attr_relu, device->attr), "attributes");
    EBB_CPU_DNNL(dnnl_post_ops_create(&ops), "attributes");
    dnnl_status_t st = dnnl_post_ops_append_eltwise(ops, dnnl_eltwise_relu, 0.0f, 0.0f);
    if (st == dnnl_success) { st = dnnl_primitive_attr_set_post_ops(device->attr_relu, ops); }
    (void)dnnl_post_ops_destroy(ops);
    return st == dnnl_success ? EBB_OK : ebb__cpu_fail(st, "attributes");
}

static ebb_status open_library(ebb_cpu_device *device) {
    EBB_CPU_DNNL(dnnl_engine_create(&device->engine, dnnl_cpu, 0), "the processor");
    EBB_CPU_DNNL(dnnl_stream_create(&device->stream, device->engine, dnnl_stream_in_order), "a stream");
    return make_attributes(device);
}

static void close_device(ebb_device *base) {
    if (base == NULL) { return; }
    ebb_cpu_device *device = (ebb_cpu_device *)base;
    ebb__cpu_layouts_fini(device);
    (void)dnnl_primitive_attr_destroy(device->attr_relu);
    (void)dnnl_primitive_attr_destroy(device->attr);
    (void)dnnl_stream_destroy(device->stream);
    (void)dnnl_engine_destroy(device->engine);
    ebb__free(base->mem, device);
}

static ebb_status open_device(const ebb_device_options *options, ebb_device **device_out) {
    if (options->index != 0) { return ebb_fail(EBB_E_NO_DEVICE, "cpu: no device %d", (int)options->index); }
    if (options->n_threads < 0 || options->n_threads > 4096) {
        return ebb_fail(EBB_E_ARGUMENT, "cpu: %d threads", (int)options->n_threads);
    }
    const ebb_mem *mem = ebb__mem_or_default(options->mem);
    ebb_cpu_device *device = ebb__calloc(mem, 1, sizeof *device);
    if (device == NULL) { return EBB_E_NO_MEMORY; }
    ebb_device_info info = {0};
    ebb__host_describe(&info);
    device->host = (ebb_host_device){.base = {.ops = &ebb__backend_cpu, .mem = mem}, .run = ebb__cpu_run};
    device->n_threads = options->n_threads > 0 ? options->n_threads : info.n_threads;
    device->host.n_threads = (uint32_t)device->n_threads;
    choose_loops(device);
    ebb_status st = open_library(device);
    if (st != EBB_OK) {
        close_device(&device->host.base);
        return st;
    }
    *device_out = &device->host.base;
    return EBB_OK;
}

static ebb_status describe(ebb_device *device, ebb_device_info *info_out) {
    ebb_device_info info = {0};
    ebb__host_describe(&info);
    info.n_threads = ((const ebb_cpu_device *)device)->n_threads;
    *info_out = info;
    return EBB_OK;
}

const ebb_backend_ops ebb__backend_cpu = {
    .abi = EBB_BACKEND_ABI,
    .name = "cpu",
    .about = "the processor, with oneDNN's kernels",
    .alignment_bytes = EBB_HOST_ALIGNMENT,
    .host_visible = true,
    .has_data = true,
    .open = open_device,
    .close = close_device,
    .info = describe,
    .arena_create = ebb__host_arena_create,
    .arena_destroy = ebb__host_arena_destroy,
    .arena_measure = ebb__host_arena_measure,
    .host_alloc = ebb__host_alloc,
    .host_free = ebb__host_free,
    .host_address = ebb__host_address,
    .layout_plain = ebb__cpu_layout_plain,
    .layout_bytes = ebb__cpu_layout_bytes,
    .layout_name = ebb__cpu_layout_name,
    .layout_pack = ebb__cpu_layout_pack,
    .layout_unpack = ebb__cpu_layout_unpack,
    .kernel_create = ebb__cpu_kernel_create,
    .kernel_destroy = ebb__cpu_kernel_destroy,
    .bind = ebb__cpu_bind,
    .unbind = ebb__cpu_unbind,
    .stream_create = ebb__host_stream_create,
    .stream_destroy = ebb__host_stream_destroy,
    .event_create = ebb__host_event_create,
    .event_destroy = ebb__host_event_destroy,
    .run = ebb__host_run,
    .copy = ebb__host_copy,
    .call = ebb__host_call,
    .event_record = ebb__host_event_record,
    .event_wait = ebb__host_event_wait,
    .event_sync = ebb__host_event_sync,
    .event_time_ns = ebb__host_event_time_ns,
    .stream_sync = ebb__host_stream_sync,
    .stream_waited_ns = ebb__host_stream_waited_ns,
};
