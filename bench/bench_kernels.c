/* SPDX-License-Identifier: Apache-2.0
 *
 * What the time of a training step goes to: every step of a network's program run in its order, each timed by
 * itself, on one arena where nothing shares a place. So caches are as cold as they are in training, and
 * nothing is moved.
 *
 *   bench_kernels NET BATCH [image=N] [iterations=N] [threads=N] [backend=B] [steps]
 *
 * prints CSV rows, kind by kind, or step by step: the least time of the iterations in milliseconds, the rates
 * that it means, and how many steps there are. With one thread it is the thread's own time, which neighbours
 * on the machine hardly disturb. Not a test; `cmake --build build --target bench_kernels`.
 */
#include "backend/lower.h"
#include "ebb/ebb.h"

#include <stdlib.h>
#include <time.h>

typedef struct arguments {
    const char *net, *backend;
    int64_t batch, image;
    int n_iterations, n_threads;
    bool steps;
} arguments;

typedef struct bench {
    ebb_graph *graph;
    ebb_device *device;
    const ebb_lowered *low;
    ebb_arena_mem *arena;
    ebb_stream *stream;
    ebb_run_state state;
    void **port;      /* of the graph's ports; state.port */
    uint64_t *offset; /* of each tensor; the scratch is at the end */
    uint64_t scratch_offset, arena_bytes;
    ebb_bound **bound; /* of each step */
    double *best_s;    /* of each step */
    clockid_t clock;
} bench;

static void must(ebb_status st) {
    if (st == EBB_OK) { return; }
    (void)fprintf(stderr, "bench_kernels: %s\n", ebb_last_error());
    exit(1);
}

static void *take(size_t n, size_t elem_bytes) {
    void *ptr = calloc(n, elem_bytes);
    if (ptr == NULL) { must(ebb_fail(EBB_E_NO_MEMORY, "no memory")); }
    return ptr;
}

static double now(const bench *b) {
    struct timespec t;
    (void)clock_gettime(b->clock, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static void build(bench *b, const arguments *a) {
    ebb_session_options options = EBB_SESSION_OPTIONS_INIT;
    ebb_session *session = NULL;
    options.net = a->net;
    options.batch = a->batch;
    options.height = options.width = a->image;
    options.backend = a->backend;
    options.n_threads = a->n_threads;
    b->clock = a->n_threads == 1 ? CLOCK_THREAD_CPUTIME_ID : CLOCK_MONOTONIC;
    must(ebb_session_open(&options, &session));
    const ebb_session_parts parts = ebb_session_get_parts(session);
    b->graph = parts.graph;
    b->device = parts.device;
    b->low = parts.lowered;
}

static void place(bench *b) {
    const ebb_program *program = b->low->program;
    uint64_t at = 0, scratch = 0;
    b->offset = take(program->tensors.n, sizeof *b->offset);
    for (size_t t = 0; t < program->tensors.n; t++) {
        b->offset[t] = at;
        at += ebb_align_up(program->tensors.data[t].size_bytes, program->alignment_bytes);
    }
    for (size_t s = 0; s < b->low->steps.n; s++) {
        scratch = ebb_max_u64(scratch, b->low->steps.data[s].kernel[0]->scratch_bytes);
    }
    b->scratch_offset = at;
    b->arena_bytes = at + scratch;
    must(b->device->ops->arena_create(b->device, b->arena_bytes, &b->arena));
}

/* Persistent values as training begins them; what is fed: small numbers, and label 0. */
static void fill(bench *b) {
    const ebb_backend_ops *ops = b->device->ops;
    b->port = take(b->graph->ports.n, sizeof *b->port);
    b->state.port = b->port;
    for (ebb_value v = 0; v < b->graph->values.n; v++) {
        const ebb_value_info *info = &b->graph->values.data[v];
        const ebb_lowered_value *at = &b->low->values[v];
        const size_t n = (size_t)ebb__shape_elements(&info->shape);
        if (info->kind == EBB_VALUE_INPUT) {
            void *host = NULL;
            must(ops->host_alloc(b->device, n * ebb_dtype_bytes(info->dtype), &host));
            for (size_t i = 0; info->dtype == EBB_F32 && i < n; i++) {
                ((float *)host)[i] = (float)(i * 7919 % 1021) / 1021.0f - 0.5f;
            }
            for (size_t p = 0; p < b->graph->ports.n; p++) {
                if (b->graph->ports.data[p].value == v) { b->port[p] = host; }
            }
        } else if (ebb__value_is_persistent(info->kind) && at->tensor != UINT32_MAX) {
            float *plain = take(n, sizeof *plain);
            ebb__graph_init_value(b->graph, v, 1, plain);
            const ebb_buf buf = {b->arena, b->offset[at->tensor], ops->layout_bytes(b->device, at->layout)};
            must(ops->layout_pack(b->device, at->layout, plain, ops->host_address(buf)));
            free(plain);
        }
    }
    for (size_t p = 0; p < b->graph->ports.n; p++) {
        const ebb_port *port = &b->graph->ports.data[p];
        if (!port->is_input) { must(ops->host_alloc(b->device, port->size_bytes, &b->port[p])); }
    }
}

static void bind_all(bench *b) {
    b->bound = take(b->low->steps.n, sizeof(ebb_bound *));
    b->best_s = take(b->low->steps.n, sizeof *b->best_s);
    for (size_t s = 0; s < b->low->steps.n; s++) {
        const ebb_lowered_step *step = &b->low->steps.data[s];
        ebb_buf *operand = take(step->n_operands, sizeof *operand);
        for (uint32_t i = 0; i < step->n_operands; i++) {
            operand[i] = (ebb_buf){b->arena, b->offset[step->operand[i]], step->bytes[i]};
        }
        const ebb_binding binding = {.operand = operand,
                                     .scratch = {b->arena, b->scratch_offset, step->kernel[0]->scratch_bytes},
                                     .state = &b->state,
                                     .rng_stream = step->rng_stream};
        must(b->device->ops->bind(step->kernel[0], &binding, &b->bound[s]));
        free(operand);
    }
}

static void run_iteration(bench *b, bool first) {
    b->state.iteration++;
    b->state.update++;
    b->state.learning_rate = 1e-4f;
    for (size_t s = 0; s < b->low->steps.n; s++) {
        const double begin_s = now(b);
        must(b->device->ops->run(b->stream, b->low->steps.data[s].kernel[0], b->bound[s]));
        const double time_s = now(b) - begin_s;
        if (first || time_s < b->best_s[s]) { b->best_s[s] = time_s; }
    }
}

static void print_row(const char *name, size_t n, double time_s, double total_s, double flops, double bytes) {
    (void)printf("%s,%zu,%.3f,%.1f,%.1f,%.1f\n", name, n, time_s * 1e3, 100.0 * time_s / total_s, flops / time_s * 1e-9,
                 bytes / time_s * 1e-9);
}

static void print_kinds(const bench *b, double total_s) {
    const ebb_program *program = b->low->program;
    for (int kind = 0; kind < EBB_N_OPS; kind++) {
        double time_s = 0.0, flops = 0.0, bytes = 0.0;
        size_t n = 0;
        for (size_t s = 0; s < b->low->steps.n; s++) {
            if (strcmp(program->steps.data[s].kind, ebb__op_name((ebb_op_kind)kind)) != 0) { continue; }
            n++;
            time_s += b->best_s[s];
            flops += b->low->steps.data[s].kernel[0]->flops;
            bytes += b->low->steps.data[s].kernel[0]->traffic_bytes;
        }
        if (n > 0) { print_row(ebb__op_name((ebb_op_kind)kind), n, time_s, total_s, flops, bytes); }
    }
}

static void print_steps(const bench *b, double total_s) {
    for (size_t s = 0; s < b->low->steps.n; s++) {
        const ebb_step *step = &b->low->program->steps.data[s];
        const ebb_kernel *kernel = b->low->steps.data[s].kernel[0];
        char name[256];
        (void)snprintf(name, sizeof name, "%s %s %s", step->kind, step->name, kernel->algorithm);
        print_row(name, 1, b->best_s[s], total_s, kernel->flops, kernel->traffic_bytes);
    }
}

static bool parse(int argc, char **argv, arguments *a) {
    if (argc < 3) { return false; }
    *a = (arguments){.net = argv[1], .backend = "cpu", .batch = atoi(argv[2]), .n_iterations = 5};
    for (int i = 3; i < argc; i++) {
        const char *equals = strchr(argv[i], '=');
        const int n = equals != NULL ? atoi(equals + 1) : 0;
        if (strncmp(argv[i], "image=", 6) == 0) {
            a->image = n;
        } else if (strncmp(argv[i], "iterations=", 11) == 0) {
            a->n_iterations = n;
        } else if (strncmp(argv[i], "threads=", 8) == 0) {
            a->n_threads = n;
        } else if (strncmp(argv[i], "backend=", 8) == 0) {
            a->backend = equals + 1;
        } else if (strcmp(argv[i], "steps") == 0) {
            a->steps = true;
        } else {
            return false;
        }
    }
    return true;
}

int main(int argc, char **argv) {
    arguments a = {0};
    if (!parse(argc, argv, &a)) {
        (void)fprintf(stderr,
                      "usage: bench_kernels NET BATCH [image=N] [iterations=N] [threads=N] [backend=B] [steps]\n");
        return 2;
    }
    bench b = {0};
    double total_s = 0.0, whole_s = 0.0;
    build(&b, &a);
    place(&b);
    fill(&b);
    bind_all(&b);
    must(b.device->ops->stream_create(b.device, true, &b.stream));
    for (int i = 0; i < a.n_iterations; i++) {
        const double begin_s = now(&b);
        run_iteration(&b, i == 0);
        const double time_s = now(&b) - begin_s;
        if (i == 0 || time_s < whole_s) { whole_s = time_s; }
    }
    for (size_t s = 0; s < b.low->steps.n; s++) { total_s += b.best_s[s]; }
    (void)printf("what,steps,ms,percent,gflop_s,gbyte_s\n");
    if (a.steps) {
        print_steps(&b, total_s);
    } else {
        print_kinds(&b, total_s);
    }
    (void)printf("sum of the least,%zu,%.3f,100,,\nleast iteration,%zu,%.3f,,,\n", b.low->steps.n, total_s * 1e3,
                 b.low->steps.n, whole_s * 1e3);
    return 0; /* the process ends: nothing is taken apart */
}
