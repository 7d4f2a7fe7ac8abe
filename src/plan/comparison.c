/* SPDX-License-Identifier: Apache-2.0
 *
 * Plans side by side. First the bound of each budget is worked out, which is then that of all plans within it. Then
 * each cell, a policy at a budget, is made by itself. Threads take one after the other. The caller's thread only waits
 * and tells how far they are; it does the work itself if no thread can be started.
 */
#include "plan/comparison.h"
#include "base/thread.h"
#include "plan/plan_priv.h"

#include <math.h>
#include <time.h>

#define MAX_THREADS 64u
#define MAX_BUDGETS 4096u /* and policies */
#define MESSAGE_BYTES 1024

/* Shared by the threads. */
typedef struct work {
    const ebb_program *program;
    const ebb_machine *machine;
    const ebb_comparison_options *options;
    ebb_comparison *c;
    pthread_mutex_t lock; /* of the rest */
    pthread_cond_t done;
    size_t n, n_begun, n_done, n_threads;
    size_t end; /* of the pieces that may begin */
    ebb_status status;
    char message[MESSAGE_BYTES]; /* of the first failure */
} work;

/* ---- a cell ------------------------------------------------------------------------------------ */

static double now_s(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

/* Add up what its copies carry, between which tiers. */
static void count_copies(const ebb_program *program, const ebb_plan *plan, ebb_compared *row) {
    size_t n_tensors = 0;
    const ebb_tensor *tensors = ebb_program_tensors(program, &n_tensors);
    for (size_t i = 0; i < plan->actions.n; i++) {
        const ebb_action *a = &plan->actions.data[i];
        if (a->kind != EBB_ACT_OUT && a->kind != EBB_ACT_IN && a->kind != EBB_ACT_MOVE) { continue; }
        EBB_ASSERT(a->target < n_tensors);
        const uint64_t bytes = ebb__action_end(a, tensors[a->target].size_bytes) - a->begin;
        const uint32_t from = a->kind == EBB_ACT_OUT ? EBB_DEVICE : a->tier;
        const uint32_t to = a->kind == EBB_ACT_OUT ? a->tier : a->kind == EBB_ACT_IN ? EBB_DEVICE : a->to;
        row->copied_bytes[from][to] += bytes;
    }
}

/* Keep the message why there is no plan. */
static ebb_status keep_why(work *w, ebb_compared *row) {
    (void)pthread_mutex_lock(&w->lock);
    row->why = ebb__bump_strdup(&w->c->bump, ebb_last_error());
    (void)pthread_mutex_unlock(&w->lock);
    return row->why != NULL ? EBB_OK : EBB_E_NO_MEMORY;
}

static ebb_status make_row(work *w, size_t idx) {
    ebb_comparison *c = w->c;
    ebb_compared *row = &c->rows[idx];
    ebb_plan_options options = w->options->plan;
    ebb_plan *plan = NULL;
    const double begin_s = now_s();
    options.policy = row->policy;
    options.n_threads = 1;                /* the others make other plans */
    options.progress = (ebb_progress){0}; /* this is not the caller's thread */
    options.budget_bytes = c->budgets[row->budget].bytes;
    const ebb_plan_asked asked = {.known = &c->budgets[row->budget].certificate};
    const ebb_status st = ebb__plan_make(w->program, w->machine, &options, &asked, &plan, &row->no_fit);
    row->made_s = now_s() - begin_s;
    if (st == EBB_E_NO_FIT) { return keep_why(w, row); }
    if (st != EBB_OK) { return st; }
    row->no_fit = (ebb_no_fit){0};
    row->plan = c->plans[idx] = plan;
    row->summary = ebb_plan_get_summary(plan);
    count_copies(w->program, plan, row);
    return ebb_plan_simulate(w->program, plan, w->machine, &row->timeline, NULL, NULL);
}

static ebb_status certify(work *w, size_t budget) {
    ebb_plan_options options = w->options->plan;
    options.budget_bytes = w->c->budgets[budget].bytes;
    return ebb_plan_certify(w->program, w->machine, &options, &w->c->budgets[budget].certificate);
}

/* Piece of work number idx: the bounds, then the rows. */
static ebb_status do_piece(work *w, size_t idx) {
    const size_t n_bounds = w->c->n_budgets;
    return idx < n_bounds ? certify(w, idx) : make_row(w, idx - n_bounds);
}

/* ---- the threads ------------------------------------------------------------------------------- */

static void *run_thread(void *arg) {
    work *w = arg;
    (void)pthread_mutex_lock(&w->lock);
    while (w->n_begun < w->end && w->status == EBB_OK) {
        const size_t idx = w->n_begun++;
        (void)pthread_mutex_unlock(&w->lock);
        const ebb_status st = do_piece(w, idx);
        (void)pthread_mutex_lock(&w->lock);
        w->n_done++;
        if (st != EBB_OK && w->status == EBB_OK) {
            w->status = st;
            snprintf(w->message, sizeof w->message, "%s", ebb_last_error());
        }
        (void)pthread_cond_signal(&w->done);
    }
    w->n_threads--;
    (void)pthread_cond_signal(&w->done);
    (void)pthread_mutex_unlock(&w->lock);
    return arg;
}

/* Wait for the threads, and tell how far they are. */
static void wait_for_threads(work *w) {
    (void)pthread_mutex_lock(&w->lock);
    while (w->n_threads > 0) {
        const uint64_t n_done = w->n_done;
        (void)pthread_mutex_unlock(&w->lock);
        ebb__tell(&w->options->progress, "planning", n_done, w->n);
        (void)pthread_mutex_lock(&w->lock);
        while (w->n_threads > 0 && w->n_done == n_done) { (void)pthread_cond_wait(&w->done, &w->lock); }
    }
    (void)pthread_mutex_unlock(&w->lock);
}

/* All pieces before `end`. */
static ebb_status do_until(work *w, size_t end) {
    pthread_t threads[MAX_THREADS];
    const uint64_t wanted = ebb_max_u64(w->options->n_threads, 1);
    const size_t n = (size_t)ebb_min_u64(ebb_min_u64(wanted, end - w->n_begun), MAX_THREADS);
    size_t n_begun = 0;
    w->end = end;
    w->n_threads = n;
    for (; n_begun < n && ebb__thread_start(run_thread, w, &threads[n_begun]) == 0; n_begun++) {}
    (void)pthread_mutex_lock(&w->lock);
    w->n_threads -= n - n_begun;
    const bool is_alone = n_begun == 0;
    if (is_alone) { w->n_threads = 1; }
    (void)pthread_mutex_unlock(&w->lock);
    if (is_alone) { (void)run_thread(w); }
    wait_for_threads(w);
    for (size_t i = 0; i < n_begun; i++) { (void)pthread_join(threads[i], NULL); }
    return w->status == EBB_OK ? EBB_OK : ebb__fail_adopt(w->status, w->message);
}

static ebb_status do_all(work *w) {
    ebb__tell(&w->options->progress, "planning", 0, w->n);
    EBB_TRY(do_until(w, w->c->n_budgets));
    return do_until(w, w->n);
}

/* ---- what follows from all rows ---------------------------------------------------------------- */

uint64_t ebb__comparison_bound(const ebb_comparison *c, const ebb_compared *row) {
    const uint64_t own_ns = row->summary.certificate.bound_ns;
    if (!ebb__plan_is_in_order(row->plan)) { return own_ns; }
    return c->budgets[row->budget].certificate.bound_ns;
}

static void find_gap(const ebb_comparison *c, ebb_compared *row) {
    const double bound_ns = row->plan != NULL ? (double)ebb__comparison_bound(c, row) : 0;
    row->gap = bound_ns > 0 ? (double)row->timeline.iteration_ns / bound_ns - 1 : 0;
}

/* If no plan within a larger budget beats a time, no plan within a smaller one does. */
static void raise_bounds(ebb_comparison *c) {
    for (size_t i = c->n_budgets - 1; i-- > 0;) {
        ebb_certificate *mine = &c->budgets[c->by_bytes[i]].certificate;
        const ebb_certificate *larger = &c->budgets[c->by_bytes[i + 1]].certificate;
        if (larger->bound_ns > mine->bound_ns) { *mine = *larger; }
    }
}

static bool is_better(const ebb_compared *a, const ebb_compared *b) {
    if (a->plan == NULL || b->plan == NULL) { return a->plan != NULL && b->plan == NULL; }
    return a->timeline.iteration_ns < b->timeline.iteration_ns;
}

/* From the least budget up: a policy's plan for the budget below is taken where it is faster. */
static void make_monotone(ebb_comparison *c) {
    for (size_t i = 1; i < c->n_budgets; i++) {
        for (size_t p = 0; p < c->n_policies; p++) {
            const size_t budget = c->by_bytes[i];
            const ebb_compared *below = &c->rows[c->by_bytes[i - 1] * c->n_policies + p];
            ebb_compared *row = &c->rows[budget * c->n_policies + p];
            if (!is_better(below, row)) { continue; }
            *row = *below;
            row->budget = budget;
        }
    }
}

/* ---- create, destroy --------------------------------------------------------------------------- */

static ebb_status find_liveness(work *w) {
    ebb_plan_options options = w->options->plan;
    ebb_plan *plan = NULL;
    options.policy = "liveness";
    options.budget_bytes = UINT64_MAX;
    options.slowdown = -1;
    options.progress = (ebb_progress){0};
    EBB_TRY(ebb_plan_make(w->program, w->machine, &options, &plan, NULL));
    w->c->liveness_bytes = ebb_plan_get_summary(plan).peak_bytes;
    ebb_plan_destroy(plan);
    return EBB_OK;
}

static size_t count_policies(void) {
    size_t n = 0;
    while (ebb_policy_name(n, NULL) != NULL) { n++; }
    return n;
}

/* By insertion: there are few. */
static void order_budgets(ebb_comparison *c) {
    for (size_t i = 0; i < c->n_budgets; i++) {
        size_t at = i;
        for (; at > 0 && c->budgets[c->by_bytes[at - 1]].bytes > c->budgets[i].bytes; at--) {
            c->by_bytes[at] = c->by_bytes[at - 1];
        }
        c->by_bytes[at] = i;
    }
}

static ebb_status set_up(ebb_comparison *c, const ebb_program *program, const ebb_machine *machine,
                         const ebb_comparison_options *options) {
    c->topology = *ebb_machine_topology(machine);
    c->n_budgets = options->n_budgets;
    c->n_policies = options->n_policies > 0 ? options->n_policies : count_policies();
    if (c->n_budgets > MAX_BUDGETS || c->n_policies > MAX_BUDGETS) {
        return ebb_fail(EBB_E_LIMIT, "comparison: %zu budgets and %zu policies; at most %u of either", c->n_budgets,
                        c->n_policies, MAX_BUDGETS);
    }
    const size_t n = c->n_budgets * c->n_policies;
    c->program = ebb__bump_strdup(&c->bump, ebb_program_name(program));
    c->budgets = ebb__bump_alloc(&c->bump, c->n_budgets, sizeof *c->budgets);
    c->by_bytes = ebb__bump_alloc(&c->bump, c->n_budgets, sizeof *c->by_bytes);
    c->rows = ebb__bump_alloc(&c->bump, n, sizeof *c->rows);
    c->plans = ebb__bump_alloc(&c->bump, n, sizeof *c->plans);
    if (c->program == NULL || c->budgets == NULL || c->by_bytes == NULL || c->rows == NULL || c->plans == NULL) {
        c->plans = NULL;
        return EBB_E_NO_MEMORY;
    }
    memset(c->plans, 0, n * sizeof *c->plans);
    for (size_t i = 0; i < c->n_budgets; i++) { c->budgets[i] = (ebb_compared_budget){.bytes = options->budgets[i]}; }
    order_budgets(c);
    for (size_t i = 0; i < n; i++) {
        const size_t p = i % c->n_policies;
        const char *wanted = options->n_policies > 0 ? options->policies[p] : ebb_policy_name(p, NULL);
        c->rows[i] = (ebb_compared){.budget = i / c->n_policies};
        const ebb_policy *policy = NULL;
        EBB_TRY(ebb__policy_find(wanted, &policy));
        c->rows[i].policy = policy->name;
    }
    return EBB_OK;
}

static ebb_status fill(ebb_comparison *c, const ebb_program *program, const ebb_machine *machine,
                       const ebb_comparison_options *options) {
    work w = {.program = program,
              .machine = machine,
              .options = options,
              .c = c,
              .lock = PTHREAD_MUTEX_INITIALIZER,
              .done = PTHREAD_COND_INITIALIZER};
    EBB_TRY(set_up(c, program, machine, options));
    EBB_TRY(find_liveness(&w));
    w.n = c->n_budgets * c->n_policies + c->n_budgets;
    const ebb_status st = do_all(&w);
    (void)pthread_cond_destroy(&w.done);
    (void)pthread_mutex_destroy(&w.lock);
    if (st != EBB_OK) { return st; }
    raise_bounds(c);
    if (options->is_monotone) { make_monotone(c); }
    for (size_t i = 0; i < c->n_budgets * c->n_policies; i++) { find_gap(c, &c->rows[i]); }
    return EBB_OK;
}

ebb_status ebb_comparison_create(const ebb_program *program, const ebb_machine *machine,
                                 const ebb_comparison_options *options, ebb_comparison **comparison_out) {
    EBB_NEED(program);
    EBB_NEED(machine);
    EBB_NEED(options);
    EBB_NEED(comparison_out);
    if (options->size_bytes != sizeof *options) {
        return ebb_fail(EBB_E_ARGUMENT, "comparison: options of another version");
    }
    if (options->n_budgets == 0) { return ebb_fail(EBB_E_ARGUMENT, "comparison: there is no budget"); }
    ebb_comparison *c = ebb__calloc(options->plan.mem, 1, sizeof *c);
    if (c == NULL) { return EBB_E_NO_MEMORY; }
    c->mem = ebb__mem_or_default(options->plan.mem);
    ebb__bump_init(&c->bump, c->mem);
    const ebb_status st = fill(c, program, machine, options);
    if (st != EBB_OK) {
        ebb_comparison_destroy(c);
        return st;
    }
    *comparison_out = c;
    return EBB_OK;
}

void ebb_comparison_destroy(ebb_comparison *c) {
    if (c == NULL) { return; }
    for (size_t i = 0; c->plans != NULL && i < c->n_budgets * c->n_policies; i++) { ebb_plan_destroy(c->plans[i]); }
    ebb__bump_fini(&c->bump);
    ebb__free(c->mem, c);
}

/* ---- views ------------------------------------------------------------------------------------- */

const ebb_compared_budget *ebb_comparison_budgets(const ebb_comparison *c, size_t *n_out) {
    *n_out = c->n_budgets;
    return c->budgets;
}

const ebb_compared *ebb_comparison_rows(const ebb_comparison *c, size_t *n_out) {
    *n_out = c->n_budgets * c->n_policies;
    return c->rows;
}

const ebb_topology *ebb_comparison_topology(const ebb_comparison *c) {
    return &c->topology;
}

ebb_status ebb_comparison_set_run(ebb_comparison *comparison, size_t row, const ebb_compared_run *run) {
    EBB_NEED(comparison);
    EBB_NEED(run);
    if (row >= comparison->n_budgets * comparison->n_policies || comparison->rows[row].plan == NULL) {
        return ebb_fail(EBB_E_ARGUMENT, "comparison: there is no plan of number %zu", row);
    }
    if (!(run->time_s >= 0 && run->time_s < 1e9)) {
        return ebb_fail(EBB_E_ARGUMENT, "comparison: a run that took %g s", run->time_s);
    }
    comparison->rows[row].run = *run;
    return EBB_OK;
}

static bool ends_in(const char *path, const char *ending) {
    const size_t n = strlen(path), m = strlen(ending);
    return n > m && strcmp(path + n - m, ending) == 0;
}

ebb_status ebb_comparison_save(const ebb_comparison *comparison, const char *path) {
    EBB_NEED(comparison);
    EBB_NEED(path);
    ebb_file_writer *out = NULL;
    const bool is_csv = ends_in(path, ".csv");
    if (!is_csv && !ends_in(path, ".svg")) {
        return ebb_fail(EBB_E_ARGUMENT, "%s: a comparison is written to a file that ends in .csv or .svg", path);
    }
    EBB_TRY(ebb__file_writer_open(comparison->mem, path, 0, &out));
    if (is_csv) {
        ebb__comparison_write_csv(comparison, out);
    } else {
        ebb__comparison_write_svg(comparison, out);
    }
    return ebb__file_writer_commit(out);
}
