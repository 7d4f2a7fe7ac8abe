/* SPDX-License-Identifier: Apache-2.0
 *
 * The parts of the bound that no plan can avoid: pivots, the bytes that have no room there, and the intervals between
 * uses in which a tensor can be absent (bound.h).
 *
 * An interval goes from one use of a tensor's content to the next use that reads it; around the end of the iteration,
 * if the tensor is persistent; to the end, if it is kept. The program is cut into equal stretches, and each has
 * one pivot, the step where most bytes have no room. Where all have room it still says when a copy can begin at the
 * earliest.
 *
 * A version that was updated in place needs its whole chain to be computed again: the step that wrote the tensor, and
 * all that updated it since. Or a plan brings back a copy of an older version in the chain, and runs the rest; that
 * costs no less than a copy of this one, if it may have been copied out as early as that.
 *
 * What is done once for several intervals is shared among them, so that no plan pays more than it has to: a copy out
 * among the intervals of one chain, running a step again among all tensors that need it.
 */
#include "plan/bound.h"

#include <math.h>

#define NEVER_MADE UINT64_MAX

/* From a use of a tensor's content to the next one, over pivots or not. Steps of the next iteration count on. */
typedef struct span {
    uint32_t tensor;
    uint64_t from, to;  /* steps */
    uint64_t made;      /* the step that made its version; NEVER_MADE */
    const ebb_use *use; /* that made it; NULL */
} span;

typedef struct finder {
    ebb_program_view view;
    ebb_uses uses;
    ebb_bound_problem *problem;
    ebb_bound_choices choices;
    double *step_ns;       /* [n_steps]: by the fastest choice, or the one that is given */
    int64_t *missing;      /* [n_steps + 1]: bytes that have no room */
    double *made;          /* [n_steps]: bytes of all tensors that one run of the step can help to make again */
    uint32_t *counted;     /* [n_steps]: the tensor added to made last */
    const ebb_use **last;  /* [n_intervals]: the use that made its version; NULL */
    double out_ns, in_ns;  /* of a byte */
    bool copies_only;      /* nothing is computed again */
    uint32_t tensor;       /* of the interval at hand */
    const ebb_use *chain;  /* its version's first use; NULL */
    size_t first_of_chain; /* interval */
} finder;

typedef void take_span(finder *f, const span *s);

/* ---- the spans of a tensor ---------------------------------------------------------------------- */

static bool reads(const ebb_use *use) {
    return (use->mode & EBB_READ) != 0;
}

static bool writes(const ebb_use *use) {
    return (use->mode & EBB_WRITE) != 0;
}

static void walk_passing(finder *f, uint32_t tensor, take_span *take) {
    const ebb_use *use = &f->uses.use[f->uses.start[tensor]], *end = &f->uses.use[f->uses.start[tensor + 1]];
    span s = {.tensor = tensor, .made = NEVER_MADE};
    for (; use < end; use++) {
        const bool is_last = use + 1 == end;
        if (writes(use)) { s.made = use->step, s.use = use; }
        s.from = use->step;
        s.to = is_last ? f->view.n_steps : use[1].step;
        if (is_last ? f->view.tensors[tensor].kept : reads(use + 1)) { take(f, &s); }
    }
}

/* From its last write on around the circle, so that the intervals of each version come one after the other. */
static void walk_persistent(finder *f, uint32_t tensor, take_span *take) {
    const ebb_use *use = &f->uses.use[f->uses.start[tensor]];
    const uint64_t n = f->uses.start[tensor + 1] - f->uses.start[tensor];
    uint64_t last_write = n;
    for (uint64_t i = 0; i < n; i++) { last_write = writes(&use[i]) ? i : last_write; }
    const uint64_t begin = last_write < n ? last_write : 0;
    const bool is_kept = f->view.tensors[tensor].kept; /* on the device at the end, so no interval goes on there */
    span s = {.tensor = tensor, .made = NEVER_MADE};
    for (uint64_t i = begin; i < begin + n; i++) {
        const ebb_use *here = &use[i % n], *next = &use[(i + 1) % n];
        s.from = here->step + (i / n) * f->view.n_steps;
        s.to = next->step + ((i + 1) / n) * f->view.n_steps;
        if (writes(here)) { s.made = s.from, s.use = here; }
        if (is_kept && i % n == n - 1) { s.to = s.from - here->step + f->view.n_steps; }
        if (reads(next)) { take(f, &s); }
    }
}

static void walk(finder *f, take_span *take) {
    for (uint32_t t = 0; t < f->view.n_tensors; t++) {
        if (f->uses.start[t] == f->uses.start[t + 1]) { continue; }
        if (f->view.tensors[t].persistent) {
            walk_persistent(f, t, take);
        } else {
            walk_passing(f, t, take);
        }
    }
}

/* ---- pivots ------------------------------------------------------------------------------------- */

/* Its bytes wait at the steps within it. */
static void wait_within(finder *f, const span *s) {
    const uint64_t n = f->view.n_steps, lap = s->from / n * n;
    const int64_t bytes = (int64_t)f->view.tensors[s->tensor].size_bytes;
    const uint64_t from = s->from - lap + 1, to = s->to - lap;
    f->missing[ebb_min_u64(from, n)] += bytes;
    f->missing[ebb_min_u64(to, n)] -= bytes;
    if (to <= n) { return; }
    f->missing[0] += bytes;
    f->missing[to - n] -= bytes;
}

static const ebb_choice *given_choice(const finder *f, size_t step) {
    return &f->view.choices[f->view.steps[step].first_choice + ebb__choice_of(f->choices.choice, step)];
}

static uint64_t least_scratch(const finder *f, size_t step_idx) {
    const ebb_step *step = &f->view.steps[step_idx];
    uint64_t least = UINT64_MAX;
    if (f->choices.is_given) { return given_choice(f, step_idx)->scratch_bytes; }
    for (uint32_t c = 0; c < step->n_choices; c++) {
        least = ebb_min_u64(least, f->view.choices[step->first_choice + c].scratch_bytes);
    }
    return least;
}

/* From the bytes that wait at each step to those that have no room there. */
static void leave_room(finder *f, uint64_t budget_bytes) {
    int64_t waiting = 0;
    for (size_t i = 0; i < f->view.n_steps; i++) {
        const ebb_step *step = &f->view.steps[i];
        uint64_t used = least_scratch(f, i);
        for (uint32_t a = 0; a < step->n_accesses; a++) {
            used += f->view.tensors[f->view.accesses[step->first_access + a].tensor].size_bytes;
        }
        waiting += f->missing[i];
        f->missing[i] = waiting + (int64_t)used - (int64_t)ebb_min_u64(budget_bytes, INT64_MAX / 2);
    }
}

static void pick_pivots(finder *f) {
    ebb_bound_problem *p = f->problem;
    bool is_tight = false;
    for (uint64_t w = 0; w < p->n_stretches; w++) {
        const uint64_t begin = ebb__bound_stretch(f->view.n_steps, w, p->n_stretches);
        const uint64_t end = ebb__bound_stretch(f->view.n_steps, w + 1, p->n_stretches);
        uint64_t best = begin;
        for (uint64_t i = begin; i < end; i++) { best = f->missing[i] > f->missing[best] ? i : best; }
        if (begin == end) { continue; }
        is_tight = is_tight || f->missing[best] > 0;
        p->missing[p->n_pivots] = (double)f->missing[best];
        p->pivot[p->n_pivots++] = (uint32_t)best;
    }
    if (!is_tight) { p->n_pivots = 0; }
}

/* How many pivots come before the step. */
static uint32_t pivots_before(const ebb_bound_problem *p, uint64_t step) {
    uint32_t n = 0;
    while (n < p->n_pivots && p->pivot[n] < step) { n++; }
    return n;
}

static void cut_segments(finder *f) {
    uint32_t segment = 0;
    for (size_t i = 0; i < f->view.n_steps; i++) {
        while (segment < f->problem->n_pivots && f->problem->pivot[segment] <= i) { segment++; }
        f->problem->computing_ns[segment] += f->step_ns[i];
    }
}

/* ---- intervals --------------------------------------------------------------------------------------- */

/* The segment that the step begins in; with before, the one that ends where it begins. In the next iteration they count
 * on. */
static uint32_t segment_of(const finder *f, uint64_t step, bool before) {
    const uint64_t n = f->view.n_steps, lap = (step - before) / n;
    const uint32_t round = f->problem->n_pivots + 1;
    return (uint32_t)lap * round + pivots_before(f->problem, step - lap * n + !before);
}

static uint32_t tensor_of(const finder *f, const ebb_use *use) {
    return f->view.accesses[use->access].tensor;
}

/* The last write before a use, or NULL if the iteration has none. */
static const ebb_use *write_before(const finder *f, const ebb_use *use) {
    const ebb_use *first = &f->uses.use[f->uses.start[tensor_of(f, use)]];
    while (use > first) {
        if (writes(--use)) { return use; }
    }
    return NULL;
}

/* The first use of the chain of the version that a use made. Where the iteration began with the content of the chain, a
 * copy of that may be there, so the last step may do: that is the chain then. Where nothing is computed again, a
 * version stands for itself. */
static const ebb_use *chain_of(const finder *f, const ebb_use *made) {
    const ebb_use *first = f->copies_only ? NULL : made;
    while (first != NULL && reads(first)) { first = write_before(f, first); }
    return first != NULL ? first : made;
}

static bool can_repeat(const finder *f, const ebb_use *first, const ebb_use *last) {
    for (const ebb_use *use = first; use <= last; use++) {
        if (writes(use) && f->view.steps[use->step].repeat != EBB_REPEAT_EXACT) { return false; }
    }
    return true;
}

/* A run of a step is for one version of a tensor at most. */
static void count_makers(finder *f, const ebb_use *last) {
    const uint32_t tensor = tensor_of(f, last);
    for (const ebb_use *use = f->chain; use <= last; use++) {
        if (!writes(use) || f->counted[use->step] == tensor) { continue; }
        f->made[use->step] += (double)f->view.tensors[tensor].size_bytes;
        f->counted[use->step] = tensor;
    }
}

/* All intervals of a chain are known: the longest pays for the copy out that serves them all. */
static void close_chain(finder *f) {
    ebb_bound_problem *p = f->problem;
    ebb_bound_interval *interval = &p->intervals[f->first_of_chain], *end = &p->intervals[p->n_intervals],
                       *longest = interval;
    for (ebb_bound_interval *g = interval; g < end; g++) {
        if (g->last - g->first > longest->last - longest->first) { longest = g; }
    }
    for (ebb_bound_interval *g = interval; g < end; g++) {
        g->out_ns = g == longest || g->out_ns == INFINITY ? g->out_ns : 0;
    }
    f->first_of_chain = p->n_intervals;
}

static void add_interval(finder *f, const span *s) {
    ebb_bound_problem *p = f->problem;
    const uint32_t n_segments = p->n_pivots + 1, first = segment_of(f, s->from, false);
    const ebb_use *chain = s->use != NULL ? chain_of(f, s->use) : NULL;
    ebb_bound_interval interval = {.first = first % n_segments, .maker = EBB_BOUND_NONE};
    interval.last = interval.first + segment_of(f, s->to, true) - first;
    if (s->tensor != f->tensor || chain != f->chain) { close_chain(f); }
    f->tensor = s->tensor;
    f->chain = chain;
    const bool is_around = interval.last >= n_segments; /* there is no pivot at the end */
    if (interval.last <= interval.first + is_around) { return; }
    interval.bytes = (double)f->view.tensors[s->tensor].size_bytes;
    interval.in_ns = interval.bytes * f->in_ns;
    interval.out_ns = interval.bytes * f->out_ns;
    interval.has_copy = chain == NULL;
    if (chain != NULL) {
        interval.lead = first - segment_of(f, s->made - (s->use->step - chain->step), false);
        if (!f->copies_only && can_repeat(f, chain, s->use)) {
            interval.maker = s->use->step;
            count_makers(f, s->use);
        }
    }
    f->last[p->n_intervals] = s->use;
    p->intervals[p->n_intervals++] = interval;
}

static void share_makers(finder *f) {
    for (size_t i = 0; i < f->problem->n_intervals; i++) {
        ebb_bound_interval *interval = &f->problem->intervals[i];
        if (interval->maker == EBB_BOUND_NONE) { continue; }
        for (const ebb_use *use = chain_of(f, f->last[i]); use <= f->last[i]; use++) {
            if (!writes(use)) { continue; }
            interval->again_ns += f->step_ns[use->step] * interval->bytes / f->made[use->step];
        }
    }
}

/* ---- the machine -------------------------------------------------------------------------------- */

/* All links between the device and usable tiers together: by engine the fastest of its ways. */
static void find_rates(finder *f, const ebb_machine *machine, const uint64_t tier_bytes[EBB_MAX_TIERS]) {
    const ebb_topology *topology = ebb_machine_topology(machine);
    double out[EBB_MAX_ENGINES] = {0}, in[EBB_MAX_ENGINES] = {0}, all_out = 0, all_in = 0;
    for (uint32_t t = 1; t < topology->n_tiers; t++) {
        ebb_link link;
        if (tier_bytes[t] == 0 || !ebb_machine_link(machine, EBB_DEVICE, t, &link)) { continue; }
        out[link.out.engine] = fmax(out[link.out.engine], link.out.bytes_per_s);
        in[link.in.engine] = fmax(in[link.in.engine], link.in.bytes_per_s);
    }
    for (uint32_t e = 0; e < EBB_MAX_ENGINES; e++) { all_out += out[e], all_in += in[e]; }
    f->out_ns = all_out > 0 ? 1e9 / all_out : INFINITY;
    f->in_ns = all_in > 0 ? 1e9 / all_in : INFINITY;
}

/* The most that a nanosecond of copying may count for beside one kind of step, for one link (bound.h): alone, both ways
 * at once, beside computing, or all of them. */
static double drag_beside(const ebb_link *link, ebb_step_kind kind) {
    const double work = link->work_rate[kind], copy = link->copy_rate[kind], both = link->both_rate;
    const double one = fmin(1, (1 - work) / copy);
    const double two = fmin(1 / (2 * both), (1 - work * work) / (2 * copy * both));
    return fmin(one, two);
}

/* With several tiers it is 0: it was never measured what two of them leave each other when both copy. */
static double find_drag(const ebb_machine *machine, const uint64_t tier_bytes[EBB_MAX_TIERS]) {
    double drag = 0;
    uint32_t n_usable = 0;
    for (uint32_t t = 1; t < ebb_machine_topology(machine)->n_tiers; t++) {
        ebb_link link;
        if (tier_bytes[t] == 0 || !ebb_machine_link(machine, EBB_DEVICE, t, &link)) { continue; }
        n_usable++;
        drag = fmin(drag_beside(&link, EBB_STEP_ARITHMETIC), drag_beside(&link, EBB_STEP_TRAFFIC));
    }
    return n_usable == 1 ? drag : 0;
}

static void find_step_times(finder *f, const ebb_machine *machine) {
    for (size_t i = 0; i < f->view.n_steps; i++) {
        f->step_ns[i] = (double)(f->choices.is_given ? ebb_machine_step_time_ns(machine, given_choice(f, i))
                                                     : ebb__least_step_ns(&f->view, machine, i));
    }
}

/* ---- all of it ---------------------------------------------------------------------------------- */

static ebb_status init_finder(finder *f, const ebb_program *program, ebb_bump *bump) {
    f->view = ebb__plan_view(program);
    f->tensor = UINT32_MAX;
    EBB_TRY(ebb__program_uses(program, bump, &f->uses));
    f->step_ns = ebb__bump_alloc(bump, f->view.n_steps, sizeof *f->step_ns);
    f->missing = ebb__bump_alloc(bump, f->view.n_steps + 1, sizeof *f->missing);
    f->made = ebb__bump_alloc(bump, f->view.n_steps, sizeof *f->made);
    f->counted = ebb__bump_alloc(bump, f->view.n_steps, sizeof *f->counted);
    f->problem->intervals =
        ebb__bump_alloc(bump, f->view.n_accesses, sizeof *f->problem->intervals); /* each begins at a use */
    f->last = ebb__bump_alloc(bump, f->view.n_accesses, sizeof *f->last);
    if (f->problem->intervals == NULL || f->last == NULL) { return EBB_E_NO_MEMORY; }
    if (f->step_ns == NULL || f->missing == NULL || f->made == NULL || f->counted == NULL) { return EBB_E_NO_MEMORY; }
    memset(f->missing, 0, (f->view.n_steps + 1) * sizeof *f->missing);
    memset(f->made, 0, f->view.n_steps * sizeof *f->made);
    memset(f->counted, 0xff, f->view.n_steps * sizeof *f->counted); /* no tensor */
    return EBB_OK;
}

ebb_status ebb__bound_problem(const ebb_program *program, const ebb_machine *machine, const ebb_plan_options *limits,
                              ebb_bound_choices choices, ebb_bound_care care, ebb_bump *bump,
                              ebb_bound_problem *problem_out) {
    finder f = {.problem = problem_out, .copies_only = limits->no_recompute, .choices = choices};
    *problem_out = (ebb_bound_problem){0};
    problem_out->n_stretches = care == EBB_BOUND_AT_ONCE ? EBB_BOUND_PIVOTS_AT_ONCE : EBB_BOUND_PIVOTS;
    EBB_TRY(init_finder(&f, program, bump));
    find_rates(&f, machine, limits->tier_bytes);
    find_step_times(&f, machine);
    problem_out->drag = find_drag(machine, limits->tier_bytes);
    walk(&f, wait_within);
    leave_room(&f, limits->budget_bytes);
    pick_pivots(&f);
    cut_segments(&f);
    walk(&f, add_interval);
    close_chain(&f);
    share_makers(&f);
    return EBB_OK;
}
