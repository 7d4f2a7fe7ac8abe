/* SPDX-License-Identifier: Apache-2.0
 *
 * Measuring each distinct kernel of a program by itself. Kernels run on zeros in an arena that holds one step at a
 * time, so measuring needs no more than the least plan.
 */
#include "run/measure.h"
#include "run/measure_slow.h"

#define SOON_NS ((uint64_t)5 * 1000 * 1000)   /* a kernel is repeated so long ... */
#define SOON_REPS 20u                         /* ... or so often, but with ... */
#define SOON_WALL_NS (10 * SOON_NS)           /* ... all that comes between no longer than this */
#define SURE_NS ((uint64_t)100 * 1000 * 1000) /* a first run waits for its code, but not so long */

/* One kernel to measure: the first step that has its key. */
typedef struct sample {
    uint64_t key;
    uint32_t step, choice;
} sample;

ebb_status ebb__bench_open(ebb_device *device, uint64_t arena_bytes, size_t n_ports, uint64_t port_bytes,
                           ebb_bench *b) {
    *b = (ebb_bench){.device = device, .port_bytes = port_bytes, .state = {.update = 1}};
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

void ebb__bench_close(ebb_bench *b) {
    const ebb_backend_ops *ops = b->device->ops;
    if (b->stream != NULL) { ops->stream_destroy(b->stream); }
    if (b->before != NULL) { ops->event_destroy(b->device, b->before); }
    if (b->behind != NULL) { ops->event_destroy(b->device, b->behind); }
    if (b->port != NULL && b->port[0] != NULL) { ops->host_free(b->device, b->port[0], b->port_bytes); }
    ebb__free(b->device->mem, b->port);
    ebb__cache_close(&b->cache);
    ebb_arena_destroy(b->arena);
}

void ebb__bench_zero(const ebb_device *device, ebb_buf buf) {
    const ebb_backend_ops *ops = device->ops;
    if (ops->host_visible && ops->has_data) { memset(ops->host_address(buf), 0, (size_t)buf.size_bytes); }
}

uint64_t ebb__bench_elapsed(const ebb_bench *b, ebb_event *event) {
    const uint64_t before_ns = b->device->ops->event_time_ns(b->device, b->before);
    const uint64_t ns = b->device->ops->event_time_ns(b->device, event);
    return ns - ebb_min_u64(before_ns, ns); /* a device's clock may be rounded */
}

static ebb_status time_once(ebb_bench *b, ebb_kernel *kernel, ebb_bound *bound, uint64_t *ns_out) {
    const ebb_backend_ops *ops = b->device->ops;
    EBB_TRY(ops->event_record(b->stream, b->before));
    EBB_TRY(ops->run(b->stream, kernel, bound));
    EBB_TRY(ops->event_record(b->stream, b->behind));
    EBB_TRY(ops->stream_sync(b->stream));
    *ns_out = ebb__bench_elapsed(b, b->behind);
    return EBB_OK;
}

static bool is_soon_done(uint32_t n_runs, uint64_t spent_ns, uint64_t wall_ns) {
    return n_runs < SOON_REPS && spent_ns < SOON_NS && wall_ns < SOON_WALL_NS;
}

ebb_status ebb__bench_time(ebb_bench *b, ebb_kernel *kernel, const ebb_binding *binding, const ebb_warm *warm,
                           uint32_t reps, uint64_t hopeless_ns, uint64_t *ns_out) {
    ebb_bound *bound = NULL;
    EBB_TRY(b->device->ops->bind(kernel, binding, &bound));
    const uint64_t begin_ns = ebb__now_ns();
    uint64_t least_ns = UINT64_MAX, spent_ns = 0;
    ebb_status st = EBB_OK;
    for (uint32_t r = 0; st == EBB_OK && (r <= reps || is_soon_done(r, spent_ns, ebb__now_ns() - begin_ns)); r++) {
        uint64_t ns = 0;
        st = ebb__cache_prepare(&b->cache, b->stream, warm);
        if (st == EBB_OK) { st = time_once(b, kernel, bound, &ns); }
        spent_ns += ns;
        const bool hopeless = ns > hopeless_ns && (r > 0 || ns > SURE_NS);
        if (r > 0 || reps == 0 || hopeless) { least_ns = ebb_min_u64(least_ns, ns); }
        if (hopeless) { break; }
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
static void zero_operands(const ebb_bench *b, const ebb_lowered_step *step, const ebb_buf *operands) {
    for (uint32_t i = 0; i < step->n_operands; i++) { ebb__bench_zero(b->device, operands[i]); }
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

/* Another choice of the step has been measured: from so long on, this one is not worth a second look. */
static uint64_t hopeless_time(const ebb_program *program, const sample *s, const ebb_machine *machine) {
    const ebb_choice *choices = &program->choices.data[program->steps.data[s->step].first_choice];
    uint64_t least_ns = UINT64_MAX;
    for (uint32_t c = 0; c < s->choice; c++) {
        if (!ebb__machine_has_time(machine, choices[c].key)) { continue; }
        least_ns = ebb_min_u64(least_ns, ebb_machine_step_time_ns(machine, &choices[c]));
    }
    return least_ns > UINT64_MAX / EBB_SLOW_TIMES ? UINT64_MAX : EBB_SLOW_TIMES * least_ns;
}

static ebb_status measure_sample(ebb_bench *b, const ebb_lowered *low, const sample *s, uint32_t reps,
                                 ebb_buf *operands, ebb_buf *warm_bufs, ebb_slow_kernels *slow, ebb_machine *machine) {
    const ebb_lowered_step *step = &low->steps.data[s->step];
    const ebb_step *of = &low->program->steps.data[s->step];
    const ebb_choice *choice = &low->program->choices.data[of->first_choice + s->choice];
    const uint64_t hopeless_ns = hopeless_time(low->program, s, machine);
    uint64_t ns = 0;
    if (ebb__slow_guess(slow, of->kind, choice, hopeless_ns, &ns)) { return ebb_machine_set_time(machine, s->key, ns); }
    ebb_kernel *kernel = step->kernel[s->choice];
    uint64_t end = lay_out(low, step, b->arena->memory, operands);
    EBB_ASSERT(end + kernel->scratch_bytes <= b->arena->size_bytes);
    ebb_binding binding = {.operand = operands,
                           .scratch = {.arena = b->arena->memory, .offset = end, .size_bytes = kernel->scratch_bytes},
                           .state = &b->state,
                           .rng_stream = step->rng_stream};
    zero_operands(b, step, operands);
    const ebb_warm warm = {warm_bufs, ebb__cache_find_warm(&b->cache, low, s->step, operands, warm_bufs)};
    EBB_TRY(ebb__bench_time(b, kernel, &binding, &warm, reps, hopeless_ns, &ns));
    if (ns > hopeless_ns) { ebb__slow_note(slow, of->kind, choice, ns); }
    return ebb_machine_set_time(machine, s->key, ns);
}

static ebb_status measure_samples(const ebb_lowered *low, const ebb_measure_options *options, ebb_bump *bump,
                                  ebb_machine *machine) {
    sample *samples = NULL;
    size_t n = 0;
    EBB_TRY(collect_samples(low, options->all_choices, machine, bump, &samples, &n));
    if (n == 0) { return EBB_OK; }
    uint64_t arena_bytes = 0, port_bytes = 4;
    uint32_t most = 1;
    for (size_t i = 0; i < n; i++) {
        most = most > low->steps.data[samples[i].step].n_operands ? most : low->steps.data[samples[i].step].n_operands;
    }
    ebb_buf *operands = ebb__bump_alloc(bump, most, sizeof *operands);
    ebb_buf *warm = ebb__bump_alloc(bump, most, sizeof *warm);
    if (operands == NULL || warm == NULL) { return EBB_E_NO_MEMORY; }
    for (size_t i = 0; i < n; i++) {
        const ebb_lowered_step *step = &low->steps.data[samples[i].step];
        uint64_t end = lay_out(low, step, NULL, operands) + step->kernel[samples[i].choice]->scratch_bytes;
        arena_bytes = ebb_max_u64(arena_bytes, end);
        if (strcmp(low->program->steps.data[samples[i].step].kind, ebb__op_name(EBB_OP_FEED)) == 0) {
            port_bytes = ebb_max_u64(port_bytes, step->bytes[0]);
        }
    }
    ebb_bench b;
    ebb_slow_kernels slow = {.n = 0};
    ebb_status st = ebb__bench_open(low->device, arena_bytes, low->graph->ports.n, port_bytes, &b);
    if (st == EBB_OK) { st = ebb__cache_open(low, &b.state, &b.cache); }
    for (size_t i = 0; i < n && st == EBB_OK; i++) {
        if (options->stop != NULL && options->stop(options->stop_ctx)) { break; }
        ebb__tell(&options->progress, "measuring kernels", i, n);
        st = measure_sample(&b, low, &samples[i], options->reps, operands, warm, &slow, machine);
    }
    ebb__bench_close(&b);
    return st;
}

ebb_status ebb_run_measure_steps(const ebb_lowered *lowered, const ebb_measure_options *options, ebb_machine *machine) {
    EBB_NEED(lowered);
    EBB_NEED(options);
    EBB_NEED(machine);
    if (options->size_bytes != sizeof *options) {
        return ebb_fail(EBB_E_ARGUMENT, "measuring: options of another version");
    }
    if (!lowered->device->ops->has_data) { return EBB_OK; }
    ebb_bump bump;
    ebb__bump_init(&bump, lowered->mem);
    ebb_status st = measure_samples(lowered, options, &bump, machine);
    ebb__bump_fini(&bump);
    return st;
}
