/* SPDX-License-Identifier: Apache-2.0
 *
 * Measures three things. Links: a piece is copied each way, then half a piece both ways at once. Rates, for steps that
 * are not measured one by one: two kernels are timed, one that does arithmetic and one that waits for memory. And how
 * much copies and kernels slow each other: these two kernels run while copies go on. Pieces and tensors are larger than
 * the cache where a device says how large that is (a processor's counts as 64 MiB at most).
 */
#include "run/measure.h"
#include "backend/host_memory.h"

#include <math.h>

#define LINK_BYTES ((uint64_t)64 << 20)
#define LEAST_BOTH_BYTES ((uint64_t)4 << 20) /* copies beside others; less is mostly latency */
#define LEAST_LINK_BYTES ((uint64_t)1 << 20) /* of a tier; copies of less are mostly latency */
#define CACHES 4u                            /* a piece is at least this many times as large as the cache */
#define SMALLEST_BYTES ((uint64_t)64)
#define BLOCK_BYTES ((uint64_t)4096) /* the smallest copy of a file that goes to its disk at once */
#define ROUND_FLOPS_PER_S 1e11       /* where nothing that would tell fits the limit */
#define ROUND_BYTES_PER_S 1e10
#define SLOW_FLOPS_PER_S 3e9
#define LINK_REPS 5
#define BESIDE_COPIES 8u
#define BESIDE_REPS 3
#define BESIDE_NS 2e6                     /* that a copy takes alone, at most, unless it is as small as ... */
#define LEAST_BESIDE_BYTES (256.0 * 1024) /* ... this: a slow disk's would take long */
#define BESIDE_TIMES 3u                   /* a copy's own time, that kernels run for it */
#define MOST_BESIDE 256u                  /* kernels */
#define LEAST_SHARE 0.05
#define SLOW_KERNEL_NS ((uint64_t)50 * 1000 * 1000) /* of such a device shares are not worth the wait: they are 1 */

/* ---- rates ------------------------------------------------------------------------------------- */

/* A kernel with its operands at the beginning of the arena. */
typedef struct usual {
    ebb_kernel *kernel;
    ebb_buf operand[3];
    ebb_binding binding;
    uint64_t end_bytes;
    uint64_t time_ns; /* the least, if it fits */
} usual;

static void close_usual(ebb_bench *b, usual *u) {
    if (u->kernel != NULL) { b->device->ops->kernel_destroy(u->kernel); }
    u->kernel = NULL;
}

static bool fits(const ebb_bench *b, const usual *u) {
    return u->end_bytes <= ebb_arena_bytes(b->arena);
}

static ebb_status open_usual(ebb_bench *b, ebb_op_kind kind, const ebb_operand operands[3], usual *u) {
    const ebb_backend_ops *ops = b->device->ops;
    ebb_kernel_desc desc = {.kind = kind, .n_in = 2, .n_out = 1, .operand = operands};
    if (kind == EBB_OP_CONV) {
        desc.attr = (ebb_op_attr){.kernel = {3, 3},
                                  .stride = {1, 1},
                                  .pad_begin = {1, 1},
                                  .pad_end = {1, 1},
                                  .dilation = {1, 1},
                                  .groups = 1};
    }
    *u = (usual){.kernel = NULL};
    EBB_TRY(ops->kernel_create(b->device, &desc, &u->kernel));
    for (uint32_t i = 0; i < 3; i++) {
        const uint64_t bytes = ops->layout_bytes(b->device, u->kernel->layout[i]);
        u->operand[i] = (ebb_buf){.arena = b->arena->memory, .offset = u->end_bytes, .size_bytes = bytes};
        u->end_bytes += ebb_align_up(bytes, ops->alignment_bytes);
    }
    u->binding = (ebb_binding){.operand = u->operand, .state = &b->state};
    u->binding.scratch =
        (ebb_buf){.arena = b->arena->memory, .offset = u->end_bytes, .size_bytes = u->kernel->scratch_bytes};
    u->end_bytes += ebb_align_up(u->kernel->scratch_bytes, ops->alignment_bytes);
    return EBB_OK;
}

static ebb_status open_conv(ebb_bench *b, int64_t n, int64_t channels, int64_t side, usual *u) {
    const ebb_shape image = {.n_dims = 4, .dims = {n, channels, side, side}};
    const ebb_shape weights = {.n_dims = 4, .dims = {channels, channels, 3, 3}};
    const ebb_operand conv[3] = {{.shape = image, .layout = EBB_LAYOUT_ANY},
                                 {.shape = weights, .layout = EBB_LAYOUT_ANY},
                                 {.shape = image, .layout = EBB_LAYOUT_ANY}};
    return open_usual(b, EBB_OP_CONV, conv, u);
}

static ebb_status open_sum(ebb_bench *b, int64_t n, usual *u) {
    const ebb_shape image = {.n_dims = 4, .dims = {n, 64, 56, 56}};
    ebb_operand sum[3] = {{.shape = image}, {.shape = image}, {.shape = image, .layout = EBB_LAYOUT_ANY}};
    EBB_TRY(b->device->ops->layout_plain(b->device, EBB_F32, &image, &sum[0].layout));
    sum[1].layout = sum[0].layout;
    return open_usual(b, EBB_OP_ADD, sum, u);
}

/* If it does not fit the arena, *per_s stays as it is. */
static ebb_status time_usual(ebb_bench *b, usual *u, double work, double *per_s) {
    if (!fits(b, u)) { return EBB_OK; }
    EBB_TRY(ebb__bench_time(b, u->kernel, &u->binding, NULL, LINK_REPS, UINT64_MAX, &u->time_ns));
    *per_s = work * 1e9 / (double)ebb_max_u64(u->time_ns, 1);
    return EBB_OK;
}

/* A convolution of the usual kind for arithmetic, a sum of two large tensors for passes over memory: what they touch
 * fills half of the arena where the device has a cache that they would fit otherwise; but a processor's convolution is
 * slow enough as it is. A small convolution first: where that is slow already (ref), its rate will do and the other
 * would take long. */
static ebb_status open_usuals(ebb_bench *b, uint64_t cache_bytes, usual u[EBB_N_STEP_KINDS], double *flops_per_s) {
    const uint64_t image_bytes = (uint64_t)64 * 56 * 56 * sizeof(float);
    const int64_t n_fit = cache_bytes > 0 ? (int64_t)(ebb_arena_bytes(b->arena) / 2 / image_bytes) : 0;
    usual *conv = &u[EBB_STEP_ARITHMETIC];
    EBB_TRY(open_conv(b, 1, 16, 14, conv));
    EBB_TRY(time_usual(b, conv, conv->kernel->flops, flops_per_s));
    if (*flops_per_s > SLOW_FLOPS_PER_S) {
        close_usual(b, conv);
        const int64_t n_conv = b->device->ops->host_visible ? 0 : n_fit / 4;
        EBB_TRY(open_conv(b, n_conv > 4 ? n_conv : 4, 64, 56, conv));
    }
    return open_sum(b, n_fit / 3 > 16 ? n_fit / 3 : 16, &u[EBB_STEP_TRAFFIC]);
}

static ebb_status measure_rates(ebb_bench *b, usual u[EBB_N_STEP_KINDS], double flops_per_s, ebb_machine *machine) {
    double bytes_per_s = ROUND_BYTES_PER_S;
    usual *conv = &u[EBB_STEP_ARITHMETIC], *sum = &u[EBB_STEP_TRAFFIC];
    EBB_TRY(time_usual(b, conv, conv->kernel->flops, &flops_per_s));
    EBB_TRY(time_usual(b, sum, sum->kernel->traffic_bytes, &bytes_per_s));
    ebb_machine_set_rates(machine, flops_per_s, bytes_per_s, 2000);
    return EBB_OK;
}

/* ---- links ------------------------------------------------------------------------------------- */

/* Copy once each way d, 0 out and 1 in, whose stream is there, together. */
static ebb_status copy_ways(ebb_stream *const stream[2], ebb_transfer transfer[2]) {
    const ebb_backend_ops *ops = transfer[0].tiers->device->ops;
    for (int d = 0; d < 2; d++) {
        if (stream[d] != NULL) { EBB_TRY(ebb__tiers_transfer(stream[d], &transfer[d])); }
    }
    for (int d = 0; d < 2; d++) {
        if (stream[d] != NULL) { EBB_TRY(ops->stream_sync(stream[d])); }
    }
    return ebb__tiers_drain(transfer[0].tiers);
}

/* The least time that copy_ways takes. */
static ebb_status time_ways(ebb_stream *const stream[2], ebb_transfer transfer[2], uint64_t *ns_out) {
    uint64_t least_ns = UINT64_MAX;
    for (int r = 0; r < LINK_REPS; r++) {
        const uint64_t begin_ns = ebb__now_ns();
        EBB_TRY(copy_ways(stream, transfer));
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

/* A copy of size_bytes each way. The one out goes from `at` in the arena to the beginning of the tier; the one in uses
 * bytes that lie `apart` behind these, in the arena and in the tier. */
static void set_transfers(ebb_bench *b, ebb_tiers *tiers, const ebb_link *link, uint64_t at, uint64_t size_bytes,
                          uint64_t apart, ebb_transfer transfer[2]) {
    const ebb_buf out = {b->arena->memory, at, size_bytes}, in = {b->arena->memory, at + apart, size_bytes};
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
static ebb_status measure_link(ebb_bench *b, ebb_stream *const stream[2], ebb_tiers *tiers, uint32_t tier,
                               ebb_machine *machine) {
    uint64_t ns[2] = {0}, half_ns[2] = {0}, both_ns = 0, latency_ns = 0;
    const uint64_t alignment = b->device->ops->alignment_bytes;
    const uint64_t piece_bytes = ebb_min_u64(ebb_arena_bytes(b->arena), tiers->store[tier].size_bytes);
    const uint64_t half_bytes = piece_bytes / 2 / alignment * alignment;
    ebb_transfer transfer[2];
    ebb_link link;
    if (!ebb_machine_link(machine, EBB_DEVICE, tier, &link)) { return EBB_OK; }
    set_transfers(b, tiers, &link, 0, piece_bytes, 0, transfer);
    /* First fill the tier, then the arena, for the reason that ebb__bench_zero gives. */
    EBB_TRY(copy_ways((ebb_stream *[]){stream[0], NULL}, transfer));
    EBB_TRY(copy_ways((ebb_stream *[]){NULL, stream[1]}, transfer));
    EBB_TRY(time_alone(stream, transfer, ns));
    EBB_ASSERT(ns[0] > 0 && ns[1] > 0);
    if (piece_bytes >= LEAST_BOTH_BYTES) {
        set_transfers(b, tiers, &link, 0, half_bytes, half_bytes, transfer);
        EBB_TRY(time_alone(stream, transfer, half_ns));
        EBB_TRY(time_ways(stream, transfer, &both_ns));
        link.both_rate = share_of(both_ns, half_ns);
    }
    const bool is_file = ebb_machine_topology(machine)->tier[tier].store == EBB_STORE_FILE;
    set_transfers(b, tiers, &link, 0, ebb_min_u64(is_file ? BLOCK_BYTES : SMALLEST_BYTES, piece_bytes), 0, transfer);
    EBB_TRY(time_ways((ebb_stream *[]){NULL, stream[1]}, transfer, &latency_ns));
    link.out.bytes_per_s = (double)piece_bytes * 1e9 / (double)ns[0];
    link.in.bytes_per_s = (double)piece_bytes * 1e9 / (double)ns[1];
    link.out.latency_ns = link.in.latency_ns = latency_ns;
    return ebb_machine_set_link(machine, &link);
}

/* ---- copies beside kernels ------------------------------------------------------------------------ */

/* A kernel that runs again and again, and now and then a copy one way of a link. The copy begins when a kernel has
 * ended, and is over long before the next copy. Training is like that, and it matters: a processor's scheduler treats a
 * thread that wakes up for a millisecond differently from one that copies all the time. */
typedef struct beside {
    ebb_bench *b;
    ebb_kernel *kernel;
    ebb_bound *bound;
    ebb_stream *stream;
    ebb_transfer transfer;
    ebb_event *ready, *begun[BESIDE_COPIES], *copied[BESIDE_COPIES];
} beside;

typedef struct beside_time {
    uint64_t kernels_ns, copies_ns;
} beside_time;

static ebb_status open_beside(beside *x) {
    const ebb_backend_ops *ops = x->b->device->ops;
    EBB_TRY(ops->event_create(x->b->device, &x->ready));
    for (uint32_t i = 0; i < BESIDE_COPIES; i++) {
        EBB_TRY(ops->event_create(x->b->device, &x->begun[i]));
        EBB_TRY(ops->event_create(x->b->device, &x->copied[i]));
    }
    return EBB_OK;
}

static void close_event(const beside *x, ebb_event *event) {
    if (event != NULL) { x->b->device->ops->event_destroy(x->b->device, event); }
}

static void close_beside(beside *x) {
    close_event(x, x->ready);
    for (uint32_t i = 0; i < BESIDE_COPIES; i++) {
        close_event(x, x->begun[i]);
        close_event(x, x->copied[i]);
    }
}

static ebb_status copy_beside(beside *x, uint32_t i) {
    const ebb_backend_ops *ops = x->b->device->ops;
    EBB_TRY(ops->event_record(x->b->stream, x->ready));
    EBB_TRY(ops->event_wait(x->stream, x->ready));
    EBB_TRY(ops->event_record(x->stream, x->begun[i]));
    EBB_TRY(ebb__tiers_transfer(x->stream, &x->transfer));
    return ops->event_record(x->stream, x->copied[i]);
}

static ebb_status run_beside(beside *x, uint32_t n_kernels, bool copies, beside_time *time_out) {
    const ebb_backend_ops *ops = x->b->device->ops;
    EBB_TRY(ops->event_record(x->b->stream, x->b->before));
    for (uint32_t i = 0; i < BESIDE_COPIES; i++) {
        if (copies) { EBB_TRY(copy_beside(x, i)); }
        for (uint32_t k = 0; k < n_kernels; k++) { EBB_TRY(ops->run(x->b->stream, x->kernel, x->bound)); }
    }
    EBB_TRY(ops->event_record(x->b->stream, x->b->behind));
    EBB_TRY(ops->stream_sync(x->b->stream));
    EBB_TRY(ops->stream_sync(x->stream));
    EBB_TRY(ebb__tiers_drain(x->transfer.tiers));
    *time_out = (beside_time){.kernels_ns = ebb__bench_elapsed(x->b, x->b->behind)};
    for (uint32_t i = 0; copies && i < BESIDE_COPIES; i++) {
        const uint64_t begun_ns = ops->event_time_ns(x->b->device, x->begun[i]);
        const uint64_t copied_ns = ops->event_time_ns(x->b->device, x->copied[i]);
        time_out->copies_ns += copied_ns - ebb_min_u64(begun_ns, copied_ns);
    }
    return EBB_OK;
}

/* What the kernels lost, and how long the copies took, in times of what the copies take alone. */
static void find_ratios(uint64_t kernels_ns, uint64_t copies_ns, const beside_time *both, double *lost_out,
                        double *took_out) {
    const double alone_ns = (double)ebb_max_u64(copies_ns, 1);
    *lost_out = fmax(0, (double)both->kernels_ns - (double)kernels_ns) / alone_ns;
    *took_out = fmax(1, (double)both->copies_ns / alone_ns);
}

/* A simulation with these shares must lose as much time as was measured. If kernels lost more time than the copies
 * took, even a share of 0 would lose too little, so then we say that the copies took longer. */
static void set_shares(ebb_link *link, ebb_step_kind kind, double lost, double took) {
    took = fmin(fmax(took, lost / (1 - LEAST_SHARE)), 1 / LEAST_SHARE);
    link->work_rate[kind] = fmax(LEAST_SHARE, 1 - lost / took);
    link->copy_rate[kind] = 1 / took;
}

/* Enough kernels for each copy that it is over before the next one begins, up to MOST_BESIDE. */
static uint32_t count_for(uint64_t kernel_ns, uint64_t copy_ns) {
    return (uint32_t)ebb_min_u64(ebb_max_u64(BESIDE_TIMES * copy_ns / ebb_max_u64(kernel_ns, 1), 1), MOST_BESIDE);
}

static ebb_status measure_beside(beside *x, uint64_t kernel_ns, double lost[BESIDE_REPS], double took[BESIDE_REPS]) {
    beside_time alone, none, both;
    EBB_TRY(run_beside(x, 1, true, &both)); /* warms up */
    EBB_TRY(run_beside(x, 0, true, &none));
    const uint32_t n_kernels = count_for(kernel_ns, none.copies_ns / BESIDE_COPIES);
    for (int r = 0; r < BESIDE_REPS; r++) {
        EBB_TRY(run_beside(x, n_kernels, false, &alone));
        EBB_TRY(run_beside(x, 0, true, &none));
        EBB_TRY(run_beside(x, n_kernels, true, &both));
        find_ratios(alone.kernels_ns, none.copies_ns, &both, &lost[r], &took[r]);
    }
    return EBB_OK;
}

static double median(double *values, size_t n) {
    for (size_t i = 1; i < n; i++) {
        const double value = values[i];
        size_t at = i;
        for (; at > 0 && values[at - 1] > value; at--) { values[at] = values[at - 1]; }
        values[at] = value;
    }
    return values[n / 2];
}

/* The shares of a link beside one kind of step, both ways taken together. */
static ebb_status measure_shares(ebb_bench *b, ebb_stream *const stream[2], ebb_tiers *tiers, usual *u,
                                 ebb_step_kind kind, ebb_link *link) {
    const uint64_t alignment = ebb_max_u64(b->device->ops->alignment_bytes, BLOCK_BYTES);
    const uint64_t room_bytes =
        ebb_min_u64(ebb_arena_bytes(b->arena) - u->end_bytes, tiers->store[link->far].size_bytes);
    const double short_bytes = fmin(link->out.bytes_per_s, link->in.bytes_per_s) * BESIDE_NS * 1e-9;
    const double most_bytes = fmin(fmax(short_bytes, LEAST_BESIDE_BYTES), (double)(room_bytes / 2));
    const uint64_t piece_bytes = (uint64_t)most_bytes / alignment * alignment;
    double lost[2 * BESIDE_REPS], took[2 * BESIDE_REPS];
    ebb_transfer transfer[2];
    link->work_rate[kind] = link->copy_rate[kind] = 1;
    if (u->time_ns > SLOW_KERNEL_NS) { return EBB_OK; }
    set_transfers(b, tiers, link, u->end_bytes, piece_bytes, piece_bytes, transfer);
    beside x = {.b = b, .kernel = u->kernel};
    EBB_TRY(b->device->ops->bind(u->kernel, &u->binding, &x.bound));
    ebb_status st = open_beside(&x);
    for (size_t d = 0; st == EBB_OK && d < 2; d++) {
        x.stream = stream[d];
        x.transfer = transfer[d];
        st = measure_beside(&x, u->time_ns, &lost[d * BESIDE_REPS], &took[d * BESIDE_REPS]);
    }
    close_beside(&x);
    b->device->ops->unbind(u->kernel, x.bound);
    const size_t n = sizeof lost / sizeof lost[0];
    if (st == EBB_OK) { set_shares(link, kind, median(lost, n), median(took, n)); }
    return st;
}

static bool leaves_room(const ebb_bench *b, const usual *u) {
    return fits(b, u) && ebb_arena_bytes(b->arena) - u->end_bytes >= LEAST_BOTH_BYTES;
}

/* If the arena has no room for the convolution, the shares stay as they were; if it has none for the sum, which is
 * larger, the sum's shares are the convolution's. */
static ebb_status measure_all_shares(ebb_bench *b, ebb_stream *const stream[2], ebb_tiers *tiers, uint32_t tier,
                                     usual u[EBB_N_STEP_KINDS], ebb_machine *machine) {
    const ebb_step_kind conv = EBB_STEP_ARITHMETIC, sum = EBB_STEP_TRAFFIC;
    ebb_link link;
    if (!ebb_machine_link(machine, EBB_DEVICE, tier, &link) || !leaves_room(b, &u[conv])) { return EBB_OK; }
    if (tiers->store[tier].size_bytes < LEAST_BOTH_BYTES) { return EBB_OK; }
    EBB_TRY(measure_shares(b, stream, tiers, &u[conv], conv, &link));
    link.work_rate[sum] = link.work_rate[conv];
    link.copy_rate[sum] = link.copy_rate[conv];
    if (leaves_room(b, &u[sum])) { EBB_TRY(measure_shares(b, stream, tiers, &u[sum], sum, &link)); }
    return ebb_machine_set_link(machine, &link);
}

/* Copies between the host and a slower tier wait for that tier, as those between the device and it do. */
static ebb_status copy_rates(uint32_t tier, ebb_machine *machine) {
    ebb_link far, link;
    if (!ebb_machine_link(machine, EBB_DEVICE, tier, &far) || !ebb_machine_link(machine, EBB_HOST, tier, &link)) {
        return EBB_OK;
    }
    far.near = EBB_HOST;
    far.out.engine = link.out.engine;
    far.in.engine = link.in.engine;
    return ebb_machine_set_link(machine, &far);
}

static ebb_status measure_tier(ebb_bench *b, ebb_stream *const stream[2], ebb_tiers *tiers, uint32_t tier,
                               usual u[EBB_N_STEP_KINDS], ebb_machine *machine) {
    const uint64_t wanted_bytes = ebb_min_u64(ebb_arena_bytes(b->arena), LEAST_LINK_BYTES);
    if (tiers->store[tier].size_bytes < wanted_bytes) { return EBB_OK; }
    EBB_TRY(measure_link(b, stream, tiers, tier, machine));
    EBB_TRY(measure_all_shares(b, stream, tiers, tier, u, machine));
    return tier == EBB_HOST ? EBB_OK : copy_rates(tier, machine);
}

/* Where the bytes of tiers lie. */
typedef struct places {
    const char *disk_dir, *io;
    ebb_remote *remote;
    uint32_t remote_tier; /* if there is a remote */
} places;

static ebb_status measure_tiers(ebb_bench *b, const places *p, usual u[EBB_N_STEP_KINDS], ebb_machine *machine) {
    ebb_tiers tiers = {.device = NULL};
    ebb_stream *stream[2] = {NULL, NULL};
    const ebb_backend_ops *ops = b->device->ops;
    const uint64_t piece_bytes = ebb_arena_bytes(b->arena);
    ebb_tiers_options options = {
        .topology = ebb_machine_topology(machine),
        .bytes = {[EBB_HOST] = piece_bytes, [EBB_DISK] = p->disk_dir != NULL ? piece_bytes : 0},
        .largest_bytes = piece_bytes,
        .disk_dir = p->disk_dir,
        .io = p->io,
        .remote = p->remote};
    if (p->remote != NULL) { options.bytes[p->remote_tier] = ebb_min_u64(piece_bytes, ebb_remote_bytes(p->remote)); }
    ebb_status st = ops->stream_create(b->device, false, &stream[0]);
    if (st == EBB_OK) { st = ops->stream_create(b->device, false, &stream[1]); }
    if (st == EBB_OK) { st = ebb__tiers_open(b->device, &options, &tiers); }
    for (uint32_t t = EBB_HOST; st == EBB_OK && t < options.topology->n_tiers; t++) {
        st = measure_tier(b, stream, &tiers, t, u, machine);
    }
    for (int d = 0; d < 2; d++) { ops->stream_destroy(stream[d]); }
    ebb__tiers_close(&tiers);
    return st;
}

static ebb_status measure_all(ebb_bench *b, uint64_t cache_bytes, const places *p, ebb_machine *machine) {
    usual u[EBB_N_STEP_KINDS] = {{.kernel = NULL}};
    double flops_per_s = ROUND_FLOPS_PER_S;
    ebb_status st = open_usuals(b, cache_bytes, u, &flops_per_s);
    if (st == EBB_OK) { st = measure_rates(b, u, flops_per_s, machine); }
    if (st == EBB_OK) { st = measure_tiers(b, p, u, machine); }
    for (int k = 0; k < EBB_N_STEP_KINDS; k++) { close_usual(b, &u[k]); }
    return st;
}

ebb_status ebb_run_measure_links(ebb_device *device, const char *disk_dir, const char *io, ebb_remote *remote,
                                 uint64_t limit_bytes, ebb_machine *machine) {
    EBB_NEED(device);
    EBB_NEED(machine);
    places p = {.disk_dir = disk_dir, .io = io, .remote = remote};
    if (remote != NULL) { EBB_TRY(ebb_machine_add_remote(machine, &p.remote_tier)); }
    if (!device->ops->has_data) { return EBB_OK; }
    ebb_bench b;
    ebb_device_info info, host;
    ebb__host_describe(&host);
    ebb__machine_set_capacity(machine, EBB_HOST, host.capacity_bytes);
    EBB_TRY(ebb_device_get_info(device, &info));
    const uint64_t most_bytes = device->ops->host_visible ? EBB_MOST_CACHE : UINT64_MAX / CACHES;
    const uint64_t wanted_bytes = ebb_max_u64(LINK_BYTES, CACHES * ebb_min_u64(info.cache_bytes, most_bytes));
    uint64_t arena_bytes = ebb_max_u64(ebb_min_u64(wanted_bytes, limit_bytes), SMALLEST_BYTES);
    ebb_status st = ebb__bench_open(device, arena_bytes, 0, 64, &b);
    if (st == EBB_OK) { ebb__bench_zero(device, (ebb_buf){b.arena->memory, 0, ebb_arena_bytes(b.arena)}); }
    if (st == EBB_OK) { st = measure_all(&b, info.cache_bytes, &p, machine); }
    ebb__bench_close(&b);
    return st;
}
