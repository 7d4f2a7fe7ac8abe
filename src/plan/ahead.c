/* SPDX-License-Identifier: Apache-2.0
 *
 * Plans that a contest will probably ask for, made by other threads in the meantime.
 *
 * In a small program a rival plans as if it were asked alone, and so does the policy for a lower budget: nothing that
 * the contest has found before has a say. So these plans may be made before the contest knows whether it wants them.
 * It asks in the same order as without threads, and compares what it gets in that order. So its plan is the same for
 * any number of threads, and what it does not ask for costs no more than the time of threads that had nothing to do.
 *
 * The contest's own thread makes a plan itself that no thread has begun, and while it waits for one it makes another
 * one. The caller's hooks for progress and stopping are called from that thread alone; the others are stopped by a
 * flag.
 */
#include "plan/ahead.h"

#include "base/thread.h"

#include <errno.h>
#include <stdatomic.h>
#include <time.h>

#define WAIT_NS 20000000L /* between two questions whether to stop */

typedef enum state { WAITING, BEGUN, MADE, GONE } state;

typedef struct piece {
    ebb_ahead_ask ask;
    state state;
    ebb_status status;
    char message[256]; /* of a failure */
    ebb_plan *plan;
} piece;

struct ebb_ahead {
    ebb_maker like; /* a view of the contest's maker, for its program, choices and order */
    ebb_plan_options options;
    atomic_bool is_ended;
    pthread_mutex_t lock; /* of the pieces */
    pthread_cond_t is_made;
    piece pieces[EBB_AHEAD_MAX];
    uint32_t n, n_threads;
    pthread_t threads[EBB_MAX_SHARERS];
};

/* ---- one plan ----------------------------------------------------------------------------------- */

static ebb_status fit(ebb_maker *m, const ebb_ahead *a, piece *p) {
    EBB_TRY(ebb__maker_copy_order(m, &a->like));
    m->policy = p->ask.policy;
    const bool is_own = p->ask.policy == a->like.policy;
    return (is_own ? ebb__maker_fit_own : ebb__maker_fit)(m, p->ask.budget_bytes, &p->plan);
}

static ebb_status make(const ebb_ahead *a, const ebb_plan_options *options, piece *p) {
    ebb_maker m;
    EBB_TRY(ebb__maker_init(&m, a->like.program, a->like.machine, options, a->like.policy));
    ebb__maker_choose(&m, a->like.choice);
    const ebb_status st = fit(&m, a, p);
    ebb__maker_fini(&m);
    return st;
}

/* Make the first plan that no thread has begun. The caller holds the lock, which is given up meanwhile. false: there is
 * none. */
static bool make_next(ebb_ahead *a, const ebb_plan_options *options) {
    piece *p = a->pieces;
    while (p < a->pieces + a->n && p->state != WAITING) { p++; }
    if (p == a->pieces + a->n) { return false; }
    p->state = BEGUN;
    (void)pthread_mutex_unlock(&a->lock);
    p->status = make(a, options, p);
    if (p->status != EBB_OK) { (void)snprintf(p->message, sizeof p->message, "%s", ebb_last_error()); }
    (void)pthread_mutex_lock(&a->lock);
    p->state = MADE;
    (void)pthread_cond_broadcast(&a->is_made);
    return true;
}

/* ---- the threads ------------------------------------------------------------------------------- */

static bool is_ended(void *ctx) {
    const ebb_ahead *a = ctx;
    return atomic_load(&a->is_ended);
}

static void *run_thread(void *arg) {
    ebb_ahead *a = arg;
    ebb_plan_options options = a->options;
    options.progress = (ebb_progress){0}; /* this is not the caller's thread */
    options.stop = is_ended;
    options.stop_ctx = a;
    (void)pthread_mutex_lock(&a->lock);
    while (!atomic_load(&a->is_ended) && make_next(a, &options)) {}
    (void)pthread_mutex_unlock(&a->lock);
    return NULL;
}

ebb_status ebb__ahead_begin(const ebb_maker *m, const ebb_ahead_ask *asks, uint32_t n, ebb_ahead **ahead_out) {
    const uint32_t n_threads = (uint32_t)ebb_min_u64(m->options->n_threads, EBB_MAX_SHARERS);
    *ahead_out = NULL;
    if (n_threads < 2 || n < 2) { return EBB_OK; }
    EBB_ASSERT(n <= EBB_AHEAD_MAX);
    ebb_ahead *a = ebb__alloc(m->mem, 1, sizeof *a);
    if (a == NULL) { return EBB_E_NO_MEMORY; }
    *a = (ebb_ahead){.like = *m, .options = *m->options, .n = n};
    a->options.n_threads = n_threads / 2; /* several of them at the same time */
    for (uint32_t i = 0; i < n; i++) { a->pieces[i].ask = asks[i]; }
    (void)pthread_mutex_init(&a->lock, NULL);
    (void)pthread_cond_init(&a->is_made, NULL);
    const uint32_t n_wanted = (uint32_t)ebb_min_u64(n_threads, n) - 1; /* the caller's thread makes plans, too */
    while (a->n_threads < n_wanted && ebb__thread_start(run_thread, a, &a->threads[a->n_threads]) == 0) {
        a->n_threads++;
    }
    *ahead_out = a;
    return EBB_OK;
}

/* Until another thread has made something, or a moment has passed. */
static void wait_a_moment(ebb_ahead *a) {
    struct timespec until;
    (void)clock_gettime(CLOCK_REALTIME, &until);
    until.tv_nsec += WAIT_NS;
    if (until.tv_nsec >= 1000000000L) {
        until.tv_nsec -= 1000000000L;
        until.tv_sec++;
    }
    const bool is_over = pthread_cond_timedwait(&a->is_made, &a->lock, &until) == ETIMEDOUT;
    if (is_over && ebb__is_stopped(&a->options)) { atomic_store(&a->is_ended, true); }
}

static piece *find(ebb_ahead *a, const ebb_policy *policy, uint64_t budget_bytes) {
    for (uint32_t i = 0; a != NULL && i < a->n; i++) {
        const ebb_ahead_ask *ask = &a->pieces[i].ask;
        if (ask->policy == policy && ask->budget_bytes == budget_bytes) { return &a->pieces[i]; }
    }
    return NULL;
}

bool ebb__ahead_take(ebb_ahead *a, const ebb_policy *policy, uint64_t budget_bytes, ebb_status *status_out,
                     ebb_plan **plan_out) {
    piece *p = find(a, policy, budget_bytes);
    if (p == NULL) { return false; }
    (void)pthread_mutex_lock(&a->lock);
    while (p->state == BEGUN) {
        if (!make_next(a, &a->options)) { wait_a_moment(a); }
    }
    const bool is_made = p->state == MADE;
    p->state = GONE;
    (void)pthread_mutex_unlock(&a->lock);
    if (!is_made) { return false; }
    *status_out = p->status == EBB_OK ? EBB_OK : ebb__fail_adopt(p->status, p->message);
    *plan_out = p->plan;
    p->plan = NULL;
    return true;
}

void ebb__ahead_end(ebb_ahead *a) {
    if (a == NULL) { return; }
    atomic_store(&a->is_ended, true);
    for (uint32_t i = 0; i < a->n_threads; i++) { (void)pthread_join(a->threads[i], NULL); }
    for (uint32_t i = 0; i < a->n; i++) { ebb_plan_destroy(a->pieces[i].plan); }
    (void)pthread_cond_destroy(&a->is_made);
    (void)pthread_mutex_destroy(&a->lock);
    ebb__free(a->like.mem, a);
}
