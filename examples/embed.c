/* SPDX-License-Identifier: Apache-2.0
 *
 * Following a plan with kernels and memory of one's own, as a framework would:
 *
 *     cc embed.c $(pkg-config --cflags --libs ebb) -o embed && ./embed
 *
 * A chain of N layers, forward and back, is told as a program: tensors, and steps that read and write them. ebb plans
 * it for a third of the memory that it needs. Then the executor hands out what to do. The arena and the host's memory
 * are malloc's, a kernel is a loop over floats, and copies are memcpy. The result is that of a plain run, to the last
 * bit.
 */
#include <ebb/ebb.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define N 24
#define FLOATS 4096
#define TRY(call)                                                                                                      \
    do {                                                                                                               \
        if ((call) != EBB_OK) {                                                                                        \
            fprintf(stderr, "%s\n", ebb_last_error());                                                                 \
            exit(1);                                                                                                   \
        }                                                                                                              \
    } while (0)

static uint32_t add_tensor(ebb_program *program, const char *name, bool kept) {
    const ebb_tensor tensor = {
        .name = name, .size_bytes = FLOATS * sizeof(float), .role = EBB_ROLE_ACTIVATION, .kept = kept};
    uint32_t handle = 0;
    TRY(ebb_program_add_tensor(program, &tensor, &handle));
    return handle;
}

/* A step that reads two tensors and writes a third; it took time_ns when it was measured. */
static void add_step(ebb_program *program, const char *kind, uint32_t a, uint32_t b, uint32_t to, uint64_t time_ns) {
    const ebb_access accesses[] = {{a, EBB_READ}, {b, EBB_READ}, {to, EBB_WRITE}};
    const ebb_choice choice = {.name = "loop", .time_ns = time_ns};
    const ebb_step step = {.name = kind, .kind = kind, .n_accesses = 3, .n_choices = 1};
    TRY(ebb_program_add_step(program, &step, accesses, &choice));
}

/* x[i + 1] = layer(x[i]); then back: g[i] = gradient(g[i + 1], x[i]). Only g[0] is wanted. */
static ebb_program *make_chain(uint32_t *result_out) {
    ebb_program *program = NULL;
    uint32_t x[N + 1], g[N + 1];
    TRY(ebb_program_create(NULL, "chain", 64, &program));
    for (int i = 0; i <= N; i++) { x[i] = add_tensor(program, "x", false); }
    for (int i = 0; i <= N; i++) { g[i] = add_tensor(program, "g", i == 0); }
    const ebb_access fed = {x[0], EBB_WRITE};
    const ebb_choice choice = {.name = "loop", .time_ns = 1000};
    const ebb_step feed = {.name = "feed", .kind = "feed", .n_accesses = 1, .n_choices = 1};
    TRY(ebb_program_add_step(program, &feed, &fed, &choice));
    for (int i = 0; i < N; i++) { add_step(program, "layer", x[i], x[i], x[i + 1], 5000); }
    add_step(program, "loss", x[N], x[N], g[N], 1000);
    for (int i = N - 1; i >= 0; i--) { add_step(program, "gradient", g[i + 1], x[i], g[i], 10000); }
    TRY(ebb_program_finish(program));
    *result_out = g[0];
    return program;
}

/* What the callbacks need: memory for each tier, and the program to know a step's kind. */
typedef struct device {
    const ebb_program *program;
    unsigned char *tier[EBB_MAX_TIERS]; /* the arena is that of EBB_DEVICE */
    uint64_t end_bytes;                 /* of the arena that was touched */
} device;

static float *at(device *d, uint64_t offset) {
    const uint64_t end = offset + FLOATS * sizeof(float);
    if (end > d->end_bytes) { d->end_bytes = end; }
    return (float *)(void *)(d->tier[EBB_DEVICE] + offset);
}

static ebb_status compute(void *ctx, const ebb_command *command) {
    device *d = ctx;
    size_t n = 0;
    const ebb_step *step = &ebb_program_steps(d->program, &n)[command->action.target];
    float *to = at(d, command->offsets[step->n_accesses - 1]);
    if (strcmp(step->kind, "feed") == 0) {
        for (int i = 0; i < FLOATS; i++) { to[i] = (float)i / FLOATS; }
        return EBB_OK;
    }
    const float *a = at(d, command->offsets[0]);
    const float *b = step->n_accesses == 3 ? at(d, command->offsets[1]) : a; /* reading one twice is one access */
    const float bias = step->kind[0] == 'l' ? 0.25f : 0.5f;
    for (int i = 0; i < FLOATS; i++) { to[i] = 0.5f * a[i] * b[i] + bias; }
    return EBB_OK;
}

static ebb_status copy(void *ctx, const ebb_command *command) {
    device *d = ctx;
    if (command->to == EBB_DEVICE) { (void)at(d, command->to_offset); }
    memcpy(d->tier[command->to] + command->to_offset, d->tier[command->from] + command->from_offset,
           (size_t)command->size_bytes);
    return EBB_OK;
}

/* Plan for a budget, run one iteration, and give back what the result is; *peak_out: what the plan needs. */
static float *run(const ebb_program *program, uint32_t result, uint64_t budget_bytes, uint64_t *peak_out) {
    ebb_machine *machine = NULL;
    ebb_plan *plan = NULL;
    ebb_executor *executor = NULL;
    device d = {.program = program};
    TRY(ebb_machine_create(NULL,
                           &machine)); /* round figures of a desktop; ebb_machine_load for one that was measured */
    ebb_plan_options options = EBB_PLAN_OPTIONS_INIT;
    options.budget_bytes = budget_bytes;
    TRY(ebb_plan_make(program, machine, &options, &plan, NULL));
    TRY(ebb_executor_create(NULL, program, plan, &executor));
    const ebb_plan_summary sum = ebb_plan_get_summary(plan);
    d.tier[EBB_DEVICE] = malloc((size_t)sum.peak_bytes);
    for (uint32_t t = 1; t < EBB_MAX_TIERS; t++) { d.tier[t] = malloc((size_t)sum.tier_bytes[t] + 1); }
    ebb_executor_ops ops = EBB_EXECUTOR_OPS_INIT; /* no wait and no record: each command is done when it returns */
    ops.compute = compute;
    ops.copy = copy;
    TRY(ebb_executor_iterate(executor, &ops, &d));
    size_t n = 0;
    const ebb_home *home = ebb_executor_homes(executor, result, &n);
    float *bytes = malloc(FLOATS * sizeof(float));
    memcpy(bytes, d.tier[EBB_DEVICE] + home->offset, FLOATS * sizeof(float));
    printf("budget %8llu: planned peak %8llu, touched %8llu, copied out %8llu, steps computed again %llu\n",
           (unsigned long long)budget_bytes, (unsigned long long)sum.peak_bytes, (unsigned long long)d.end_bytes,
           (unsigned long long)sum.moved_out_bytes, (unsigned long long)sum.n_recomputed_steps);
    if (d.end_bytes != sum.peak_bytes) { exit(1); }
    *peak_out = sum.peak_bytes;
    for (uint32_t t = 0; t < EBB_MAX_TIERS; t++) { free(d.tier[t]); }
    ebb_executor_destroy(executor);
    ebb_plan_destroy(plan);
    ebb_machine_destroy(machine);
    return bytes;
}

int main(void) {
    uint32_t result = 0;
    uint64_t whole = 0, peak = 0;
    ebb_program *program = make_chain(&result);
    float *plain = run(program, result, 100000000, &whole), *planned = run(program, result, whole / 3, &peak);
    const bool same = memcmp(plain, planned, FLOATS * sizeof(float)) == 0;
    printf("%s\n", same && peak <= whole / 3 ? "the same bits" : "WRONG");
    free(plain);
    free(planned);
    ebb_program_destroy(program);
    return same ? 0 : 1;
}
