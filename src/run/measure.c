/* SPDX-License-Identifier: Apache-2.0
 *
 * Measuring what a plan's times rest on: each distinct kernel by itself, and the links by moving a piece each way, and
 * half a piece both ways at once. Kernels run on zeros in an arena that holds one step at a time, so measuring needs no
 * more than the least plan. Where a device says how large its cache is, pieces and tensors are larger.
 */
#include "run/run.h"

#define LINK_BYTES ((uint64_t)64 << 20)
#define LEAST_BOTH_BYTES                                                                                               \
    ((uint64_t)4 << 20) /* for both ways at once; in less, what begins a copy is all of its time                       \
                         */
#define CACHES 4u       /* a piece is so many times as large as the cache, or more */
#define SMALLEST_BYTES ((uint64_t)64)
#define BLOCK_BYTES ((uint64_t)4096) /* the smallest copy of a file that goes to its disk at once */
#define ROUND_FLOPS_PER_S 1e11       /* where nothing that would tell fits the limit */
#define ROUND_BYTES_PER_S 1e10
#define SLOW_FLOPS_PER_S 3e9
#define SOON_NS ((uint64_t)5 * 1000 * 1000) /* a kernel is repeated so long ... */
#define SOON_REPS 20u                       /* ... or so often */
#define LINK_REPS 5

/* One kernel to measure: the first step that has its key. */
typedef struct sample {
    uint64_t key;
    uint32_t step, choice;
} sample;

typedef struct bench {
    ebb_device *device;
    ebb_arena *arena;
    ebb_stream *stream;
    ebb_event *before, *behind;
    ebb_run_state state;
    void **port; /* [n_ports], all one: what feeds carry does not matter */
    uint64_t port_bytes;
} bench;

static ebb_status bench_open(ebb_device *device, uint64_t arena_bytes, size_t n_ports, uint64_t port_bytes, bench *b) {
    *b = (bench){.device = device, .port_bytes = port_bytes, .state = {.update = 1}};
    b->port = ebb__calloc(device->mem, ebb_max_u64(n_ports, 1), sizeof *b->port);
    if (b->port == NULL) { return EBB_E_NO_MEMORY; }
    b->state.port = b->port;
    EBB_TRY(ebb_arena_create(device, arena_bytes, &b->arena));
    EBB_TRY(device->ops->stream_create(device, true, &b->stream));
    EBB_TRY(device->ops->event_create(device, &b->before));
    EBB_TRY(device->ops->event_create(device, &b->behind));
    EBB_TRY(device->ops->host_alloc(device, port_bytes, &b->port[0]));
    for (size_t p = 1; p < n_ports; p++) { b->port[p] = b->port[0]; }
    return EBB_OK;
}

static void bench_close(bench *b) {
    const ebb_backend_ops *ops = b->device->ops;
    if (b->stream != NULL) { ops->stream_destroy(b->stream); }
    if (b->before != NULL) { ops->event_destroy(b->device, b->before); }
    if (b->behind != NULL) { ops->event_destroy(b->device, b->behind); }
    if (b->port != NULL && b->port[0] != NULL) { ops->host_free(b->device, b->port[0], b->port_bytes); }
    ebb__free(b->device->mem, b->port);
    ebb_arena_destroy(b->arena);
}

static ebb_status time_once(bench *b, ebb_kernel *kernel, ebb_bound *bound, uint64_t *ns_out) {
    const ebb_backend_ops *ops = b->device->ops;
    EBB_TRY(ops->event_record(b->stream, b->before));
    EBB_TRY(ops->run(b->stream, kernel, bound));
    EBB_TRY(ops->event_record(b->stream, b->behind));
    EBB_TRY(ops->stream_sync(b->stream));
    const uint64_t before_ns = ops->event_time_ns(b->device, b->before);
    const uint64_t behind_ns = ops->event_time_ns(b->device, b->behind);
    *ns_out = behind_ns - ebb_min_u64(before_ns, behind_ns); /* a device's clock may be rounded */
    return EBB_OK;
}

/* The least of reps runs after one that warms up: on a machine that others use too, the least is the least disturbed. A
 * kernel that is soon done is run more often, since one disturbance is all of its time. */
static ebb_status time_kernel(bench *b, ebb_kernel *kernel, const ebb_binding *binding, uint32_t reps,
                              uint64_t *ns_out) {
    ebb_bound *bound = NULL;
    EBB_TRY(b->device->ops->bind(kernel, binding, &bound));
    uint64_t least_ns = UINT64_MAX, spent_ns = 0;
    ebb_status st = EBB_OK;
    for (uint32_t r = 0; st == EBB_OK && (r <= reps || (r < SOON_REPS && spent_ns < SOON_NS)); r++) {
        uint64_t ns = 0;
        st = time_once(b, kernel, bound, &ns);
        spent_ns += ns;
        if (r > 0 || reps == 0) { least_ns = ebb_min_u64(least_ns, ns); }
    }
    b->device->ops->unbind(kernel, bound);
    EBB_ASSERT(st != EBB_OK || least_ns != UINT64_MAX);
    if (st == EBB_OK) { *ns_out = least_ns; }
    return st;
}

/* ---- steps ------------------------------------------------------------------------------------- */

/* Lay the step's operands one after the other (a tensor that stands twice once); returns where they end. */
static uint64_t lay_out(const ebb_lowered *low, const ebb_lowered_step *step, ebb_arena_mem *arena, ebb_buf *operands) {
    uint64_t end = 0;
    for (uint32_t i = 0; i < step->n_operands; i++) {
        operands[i] = (ebb_buf){.arena = arena, .offset = end, .size_bytes = step->bytes[i]};
        EBB_ASSERT(step->bytes[i] > 0);
        uint32_t twin = 0;
        while (step->operand[twin] != step->operand[i]) { twin++; }
        if (twin < i) {
            EBB_ASSERT(step->bytes[twin] == step->bytes[i]);
            operands[i].offset = operands[twin].offset;
            continue;
        }
        end += ebb_align_up(step->bytes[i], low->program->alignment_bytes);
    }
    return end;
}

/* What the kernels before left there may be no label, or no number. Where the host cannot write, a kernel takes it
 * as it is: it is measured, not checked. */
static void zero_operands(const bench *b, const ebb_lowered_step *step, const ebb_buf *operands) {
    const ebb_backend_ops *ops = b->device->ops;
    if (!ops->host_visible || !ops->has_data) { return; }
    for (uint32_t i = 0; i < step->n_operands; i++) {
        memset(ops->host_address(operands[i]), 0, (size_t)operands[i].size_bytes);
    }
}

/* Every step's first choice, or every choice, in the program's order, but those whose time the machine has; how many.
 */
static size_t list_samples(const ebb_program *program, bool all_choices, const ebb_machine *machine, sample *samples,
                           uint64_t *key, uint32_t *order) {
    uint32_t n = 0;
    for (uint32_t s = 0; s < program->steps.n; s++) {
        const uint32_t n_choices = all_choices ? program->steps.data[s].n_choices : 1;
        for (uint32_t c = 0; c < n_choices; c++) {
            key[n] = program->choices.data[program->steps.data[s].first_choice + c].key;
            if (ebb__machine_has_time(machine, key[n])) { continue; }
            order[n] = n;
            samples[n] = (sample){.key = key[n], .step = s, .choice = c};
            n++;
        }
    }
    EBB_ASSERT(n <= program->choices.n);
    return n;
}

static ebb_status collect_samples(const ebb_lowered *low, bool all_choices, const ebb_machine *machine, ebb_bump *bump,
                                  sample **samples_out, size_t *n_out) {
    size_t n = low->program->choices.n;
    if (n > UINT32_MAX) { return ebb_fail(EBB_E_LIMIT, "more than 2^32 - 1 kernels to measure"); }
    sample *all = ebb__bump_alloc(bump, n, sizeof *all), *distinct = ebb__bump_alloc(bump, n, sizeof *distinct);
    uint64_t *key = ebb__bump_alloc(bump, n, sizeof *key);
    uint32_t *order = ebb__bump_alloc(bump, n, sizeof *order);
    if (all == NULL || distinct == NULL || key == NULL || order == NULL) { return EBB_E_NO_MEMORY; }
    n = list_samples(low->program, all_choices, machine, all, key, order);
    EBB_TRY(ebb__sort_by_key(bump->mem, order, n, key)); /* stable: the first step that has a key stays the first */
    size_t n_distinct = 0;
    for (size_t i = 0; i < n; i++) {
        if (i == 0 || key[order[i]] != key[order[i - 1]]) { distinct[n_distinct++] = all[order[i]]; }
    }
    EBB_ASSERT(n_distinct <= n && (n_distinct > 0) == (n > 0));
    *samples_out = distinct;
    *n_out = n_distinct;
    return EBB_OK;
}

static ebb_status measure_sample(bench *b, const ebb_lowered *low, const sample *s, uint32_t reps, ebb_buf *operands,
                                 ebb_machine *machine) {
    const ebb_lowered_step *step = &low->steps.data[s->step];
    ebb_kernel *kernel = step->kernel[s->choice];
    uint64_t end = lay_out(low, step, b->arena->memory, operands);
    EBB_ASSERT(end + kernel->scratch_bytes <= b->arena->size_bytes);
    ebb_binding binding = {.operand = operands,
                           .scratch = {.arena = b->arena->memory, .offset = end, .size_bytes = kernel->scratch_bytes},
                           .state = &b->state,
                           .rng_stream = step->rng_stream};
    uint64_t ns = 0;
    zero_operands(b, step, operands);
    EBB_TRY(time_kernel(b, kernel, &binding, reps, &ns));
    return ebb_machine_set_time(machine, s->key, ns);
}

static ebb_status measure_samples(const ebb_lowered *low, uint32_t reps, bool all_choices, ebb_bump *bump,
                                  const ebb_progress *progress, ebb_machine *machine) {
    sample *samples = NULL;
    size_t n = 0;
    EBB_TRY(collect_samples(low, all_choices, machine, bump, &samples, &n));
    if (n == 0) { return EBB_OK; }
    uint64_t arena_bytes = 0, port_bytes = 4;
    uint32_t most = 1;
    for (size_t i = 0; i < n; i++) {
        most = most > low->steps.data[samples[i].step].n_operands ? most : low->steps.data[samples[i].step].n_operands;
    }
    ebb_buf *operands = ebb__bump_alloc(bump, most, sizeof *operands);
    if (operands == NULL) { return EBB_E_NO_MEMORY; }
    for (size_t i = 0; i < n; i++) {
        const ebb_lowered_step *step = &low->steps.data[samples[i].step];
        uint64_t end = lay_out(low, step, NULL, operands) + step->kernel[samples[i].choice]->scratch_bytes;
        arena_bytes = ebb_max_u64(arena_bytes, end);
        if (strcmp(low->program->steps.data[samples[i].step].kind, ebb__op_name(EBB_OP_FEED)) == 0) {
            port_bytes = ebb_max_u64(port_bytes, step->bytes[0]);
        }
    }
    bench b;
    ebb_status st = bench_open(low->device, arena_bytes, low->graph->ports.n, port_bytes, &b);
    for (size_t i = 0; i < n && st == EBB_OK; i++) {
        ebb__tell(progress, "measuring kernels", i, n);
        st = measure_sample(&b, low, &samples[i], reps, operands, machine);
    }
    bench_close(&b);
    return st;
}

ebb_status ebb_run_measure_steps(const ebb_lowered *lowered, uint32_t reps, bool all_choices,
                                 const ebb_progress *progress, ebb_machine *machine) {
    if (!lowered->device->ops->has_data) { return EBB_OK; }
    ebb_bump bump;
    ebb__bump_init(&bump, lowered->mem);
    ebb_status st = measure_samples(lowered, reps, all_choices, &bump, progress, machine);
    ebb__bump_fini(&bump);
    return st;
}

/* ---- links ------------------------------------------------------------------------------------- */

/* The least time of those ways d, 0 out and 1 in, whose streams are there, together. */
static ebb_status time_ways(ebb_stream *const stream[2], ebb_transfer transfer[2], uint64_t *ns_out) {
    const ebb_backend_ops *ops = transfer[0].tiers->device->ops;
    uint64_t least_ns = UINT64_MAX;
    for (int r = 0; r < LINK_REPS; r++) {
        const uint64_t begin_ns = ebb__now_ns();
        for (int d = 0; d < 2; d++) {
            if (stream[d] != NULL) { EBB_TRY(ebb__tiers_transfer(stream[d], &transfer[d])); }
        }
        for (int d = 0; d < 2; d++) {
            if (stream[d] != NULL) { EBB_TRY(ops->stream_sync(stream[d])); }
        }
        EBB_TRY(ebb__tiers_drain(transfer[0].tiers));
        if (r > 0) { least_ns = ebb_min_u64(least_ns, ebb__now_ns() - begin_ns); }
    }
    *ns_out = least_ns > 0 ? least_ns : 1;
    return EBB_OK;
}

/* Each way alone. */
static ebb_status time_alone(ebb_stream *const stream[2], ebb_transfer transfer[2], uint64_t ns_out[2]) {
    EBB_TRY(time_ways((ebb_stream *[]){stream[0], NULL}, transfer, &ns_out[0]));
    return time_ways((ebb_stream *[]){NULL, stream[1]}, transfer, &ns_out[1]);
}

/* Both ways of a link, size_bytes each: what goes out lies at the beginning of the arena and of the tier, what comes in
 * `apart` behind it. */
static void set_transfers(bench *b, ebb_tiers *tiers, const ebb_link *link, uint64_t size_bytes, uint64_t apart,
                          ebb_transfer transfer[2]) {
    const ebb_buf out = {b->arena->memory, 0, size_bytes}, in = {b->arena->memory, apart, size_bytes};
    transfer[0] = (ebb_transfer){.tiers = tiers,
                                 .from = EBB_DEVICE,
                                 .to = link->far,
                                 .engine = link->out.engine,
                                 .tensor = "(measured)",
                                 .buf = out,
                                 .size_bytes = size_bytes};
    transfer[1] = (ebb_transfer){.tiers = tiers,
                                 .from = link->far,
                                 .to = EBB_DEVICE,
                                 .engine = link->in.engine,
                                 .tensor = "(measured)",
                                 .buf = in,
                                 .size_bytes = size_bytes,
                                 .from_offset = apart};
}

/* The share of its rate that a way keeps while the other is used: until the sooner one is done, both have it. */
static double share_of(uint64_t ns, const uint64_t alone_ns[2]) {
    const uint64_t sooner = ebb_min_u64(alone_ns[0], alone_ns[1]), later = ebb_max_u64(alone_ns[0], alone_ns[1]);
    return ns <= later ? 1.0 : (double)sooner / (double)(ns - later + sooner);
}

/* Both ways between the arena and one tier, alone and at once; latency is that of the smallest copy. */
static ebb_status measure_link(bench *b, ebb_stream *const stream[2], ebb_tiers *tiers, uint32_t tier,
                               ebb_machine *machine) {
    uint64_t ns[2] = {0}, half_ns[2] = {0}, both_ns = 0, latency_ns = 0;
    const uint64_t piece_bytes = ebb_arena_bytes(b->arena), alignment = b->device->ops->alignment_bytes;
    const uint64_t half_bytes = piece_bytes / 2 / alignment * alignment;
    ebb_transfer transfer[2];
    ebb_link link;
    if (!ebb_machine_link(machine, EBB_DEVICE, tier, &link)) { return EBB_OK; }
    set_transfers(b, tiers, &link, piece_bytes, 0, transfer);
    EBB_TRY(time_alone(stream, transfer, ns));
    EBB_ASSERT(ns[0] > 0 && ns[1] > 0 && piece_bytes >= SMALLEST_BYTES);
    if (piece_bytes >= LEAST_BOTH_BYTES) {
        set_transfers(b, tiers, &link, half_bytes, half_bytes, transfer);
        EBB_TRY(time_alone(stream, transfer, half_ns));
        EBB_TRY(time_ways(stream, transfer, &both_ns));
        link.both_rate = share_of(both_ns, half_ns);
    }
    const bool is_file = ebb_machine_topology(machine)->tier[tier].store == EBB_STORE_FILE;
    set_transfers(b, tiers, &link, ebb_min_u64(is_file ? BLOCK_BYTES : SMALLEST_BYTES, piece_bytes), 0, transfer);
    EBB_TRY(time_ways((ebb_stream *[]){NULL, stream[1]}, transfer, &latency_ns));
    link.out.bytes_per_s = (double)piece_bytes * 1e9 / (double)ns[0];
    link.in.bytes_per_s = (double)piece_bytes * 1e9 / (double)ns[1];
    link.out.latency_ns = link.in.latency_ns = latency_ns;
    return ebb_machine_set_link(machine, &link);
}

/* Copies between host and disk wait for the disk, as those between device and disk do. */
static ebb_status copy_disk_rates(ebb_machine *machine) {
    ebb_link disk, link;
    if (!ebb_machine_link(machine, EBB_DEVICE, EBB_DISK, &disk) ||
        !ebb_machine_link(machine, EBB_HOST, EBB_DISK, &link)) {
        return EBB_OK;
    }
    disk.near = EBB_HOST;
    disk.out.engine = link.out.engine;
    disk.in.engine = link.in.engine;
    return ebb_machine_set_link(machine, &disk);
}

static ebb_status measure_tiers(bench *b, const char *disk_dir, const char *io, ebb_machine *machine) {
    ebb_tiers tiers = {.device = NULL};
    ebb_stream *stream[2] = {NULL, NULL};
    const ebb_backend_ops *ops = b->device->ops;
    const uint64_t piece_bytes = ebb_arena_bytes(b->arena);
    const ebb_tiers_options options = {
        .topology = ebb_machine_topology(machine),
        .bytes = {[EBB_HOST] = piece_bytes, [EBB_DISK] = disk_dir != NULL ? piece_bytes : 0},
        .largest_bytes = piece_bytes,
        .disk_dir = disk_dir,
        .io = io};
    ebb_status st = ops->stream_create(b->device, false, &stream[0]);
    if (st == EBB_OK) { st = ops->stream_create(b->device, false, &stream[1]); }
    if (st == EBB_OK) { st = ebb__tiers_open(b->device, &options, &tiers); }
    if (st == EBB_OK) { st = measure_link(b, stream, &tiers, EBB_HOST, machine); }
    if (st == EBB_OK && disk_dir != NULL) { st = measure_link(b, stream, &tiers, EBB_DISK, machine); }
    if (st == EBB_OK && disk_dir != NULL) { st = copy_disk_rates(machine); }
    for (int d = 0; d < 2; d++) { ops->stream_destroy(stream[d]); }
    ebb__tiers_close(&tiers);
    return st;
}

/* ---- rates ------------------------------------------------------------------------------------- */

/* A kernel that does not fit the arena is not measured, and *per_s_out stays as it is. */
static ebb_status time_op(bench *b, ebb_op_kind kind, const ebb_operand *operands, uint32_t n_in, double *per_s_out) {
    ebb_kernel_desc desc = {.kind = kind, .n_in = n_in, .n_out = 1, .operand = operands};
    desc.attr = (ebb_op_attr){
        .kernel = {3, 3}, .stride = {1, 1}, .pad_begin = {1, 1}, .pad_end = {1, 1}, .dilation = {1, 1}, .groups = 1};
    if (kind != EBB_OP_CONV) { desc.attr = (ebb_op_attr){0}; }
    ebb_kernel *kernel = NULL;
    EBB_TRY(b->device->ops->kernel_create(b->device, &desc, &kernel));
    ebb_buf bufs[4];
    EBB_ASSERT(n_in < sizeof bufs / sizeof bufs[0] && b->arena != NULL);
    uint64_t end = 0;
    for (uint32_t i = 0; i <= n_in; i++) {
        uint64_t bytes = b->device->ops->layout_bytes(b->device, kernel->layout[i]);
        bufs[i] = (ebb_buf){.arena = b->arena->memory, .offset = end, .size_bytes = bytes};
        end += ebb_align_up(bytes, b->device->ops->alignment_bytes);
    }
    ebb_binding binding = {.operand = bufs, .state = &b->state};
    binding.scratch = (ebb_buf){.arena = b->arena->memory, .offset = end, .size_bytes = kernel->scratch_bytes};
    ebb_status st = EBB_OK;
    if (end + kernel->scratch_bytes <= ebb_arena_bytes(b->arena)) {
        uint64_t ns = 1;
        st = time_kernel(b, kernel, &binding, LINK_REPS, &ns);
        const double work = kind == EBB_OP_CONV ? kernel->flops : kernel->traffic_bytes;
        if (st == EBB_OK) { *per_s_out = work * 1e9 / (double)(ns > 0 ? ns : 1); }
    }
    b->device->ops->kernel_destroy(kernel);
    return st;
}

static ebb_status time_conv(bench *b, int64_t n, int64_t channels, int64_t side, double *per_s_out) {
    const ebb_shape image = {.n_dims = 4, .dims = {n, channels, side, side}};
    const ebb_shape weights = {.n_dims = 4, .dims = {channels, channels, 3, 3}};
    const ebb_operand conv[3] = {{.shape = image, .layout = EBB_LAYOUT_ANY},
                                 {.shape = weights, .layout = EBB_LAYOUT_ANY},
                                 {.shape = image, .layout = EBB_LAYOUT_ANY}};
    return time_op(b, EBB_OP_CONV, conv, 2, per_s_out);
}

/* A convolution of the usual kind for arithmetic, a sum of two large tensors for passes over memory: what they touch
 * fills the arena where the device has a cache that they would fit otherwise. A small convolution first: where that is
 * slow already (ref), its rate will do and the other would take long. */
static ebb_status measure_rates(bench *b, uint64_t cache_bytes, ebb_machine *machine) {
    const uint64_t image_bytes = (uint64_t)64 * 56 * 56 * sizeof(float);
    const int64_t n_fit = cache_bytes > 0 ? (int64_t)(ebb_arena_bytes(b->arena) / image_bytes) : 0;
    const ebb_shape large = {.n_dims = 4, .dims = {n_fit / 3 > 16 ? n_fit / 3 : 16, 64, 56, 56}};
    ebb_operand add[3] = {{.shape = large}, {.shape = large}, {.shape = large, .layout = EBB_LAYOUT_ANY}};
    EBB_TRY(b->device->ops->layout_plain(b->device, EBB_F32, &large, &add[0].layout));
    add[1].layout = add[0].layout;
    double flops_per_s = ROUND_FLOPS_PER_S, bytes_per_s = ROUND_BYTES_PER_S;
    EBB_TRY(time_conv(b, 1, 16, 14, &flops_per_s));
    if (flops_per_s > SLOW_FLOPS_PER_S) { EBB_TRY(time_conv(b, n_fit / 4 > 4 ? n_fit / 4 : 4, 64, 56, &flops_per_s)); }
    EBB_TRY(time_op(b, EBB_OP_ADD, add, 2, &bytes_per_s));
    ebb_machine_set_rates(machine, flops_per_s, bytes_per_s, 2000);
    return EBB_OK;
}

ebb_status ebb_run_measure_links(ebb_device *device, const char *disk_dir, const char *io, uint64_t limit_bytes,
                                 ebb_machine *machine) {
    if (!device->ops->has_data) { return EBB_OK; }
    bench b;
    ebb_device_info info;
    EBB_TRY(ebb_device_get_info(device, &info));
    const uint64_t wanted_bytes = ebb_max_u64(LINK_BYTES, CACHES * info.cache_bytes);
    uint64_t arena_bytes = ebb_max_u64(ebb_min_u64(wanted_bytes, limit_bytes), SMALLEST_BYTES);
    ebb_status st = bench_open(device, arena_bytes, 0, 64, &b);
    if (st == EBB_OK) { st = measure_tiers(&b, disk_dir, io, machine); }
    if (st == EBB_OK) { st = measure_rates(&b, info.cache_bytes, machine); }
    bench_close(&b);
    return st;
}
