/* SPDX-License-Identifier: Apache-2.0
 *
 * The door of the module: the table of solvers, and what every solve begins with.
 */
#include "place/item_name.h"
#include "place/place_priv.h"

static const ebb_place_solver solvers[] = {
    {"best", "ebb's own search: constructions, an exact search, ejection, repair", true, true, false,
     ebb__place_search},
    {"first-fit", "an allocator, the lowest free block that holds it", false, false, true, ebb__place_first_fit},
    {"best-fit", "CnMem: an allocator, the smallest free block that holds it", false, false, true, ebb__place_best_fit},
    {"pytorch", "PyTorch's caching allocator", false, false, true, ebb__place_pytorch},
    {"size", "TensorFlow Lite, XLA: largest first, into the tightest gap", false, true, false, ebb__place_by_size},
    {"smartpool-ff", "SmartPool as published, first fit", false, true, false, ebb__place_smartpool_ff},
    {"smartpool-bf", "SmartPool as published, best fit", false, true, false, ebb__place_smartpool_bf},
    {"smartpool-cyclic", "SmartPool's pool for swapping, one region", false, true, false, ebb__place_smartpool_cyclic},
};
#define N_SOLVERS (sizeof solvers / sizeof solvers[0])
#define ASK_EVERY ((uint64_t)4096) /* steps */
#define FAR 64u                    /* from the bound: by more than this part of it */
#define TOO_LARGE ((uint64_t)1 << 63)

const char *ebb_place_solver_name(size_t idx, const char **about_out) {
    if (idx >= N_SOLVERS) { return NULL; }
    if (about_out != NULL) { *about_out = solvers[idx].about; }
    return solvers[idx].name;
}

static ebb_status find_solver(const char *name, const ebb_place_solver **solver_out) {
    for (size_t i = 0; i < N_SOLVERS; i++) {
        if (name != NULL && strcmp(name, solvers[i].name) != 0) { continue; }
        *solver_out = &solvers[i];
        return EBB_OK;
    }
    return ebb_fail(EBB_E_ARGUMENT, "no placement solver is called '%s'", name);
}

static bool never(void *ctx) {
    (void)ctx;
    return false;
}

ebb_status ebb__place_go_on(const ebb_place_job *job, uint64_t work, uint64_t *asked_work) {
    EBB_ASSERT(work >= *asked_work);
    if (work > job->max_steps) {
        return ebb_fail(EBB_E_LIMIT, "it takes more than the %llu steps that it may",
                        (unsigned long long)job->max_steps);
    }
    if (work - *asked_work < ASK_EVERY) { return EBB_OK; }
    *asked_work = work;
    if (!job->stop(job->stop_ctx)) { return EBB_OK; }
    return ebb_fail(EBB_E_LIMIT, "it was stopped after %llu steps", (unsigned long long)work);
}

ebb_status ebb__place_stay_below(const ebb_place_job *job, uint64_t peak_bytes) {
    if (job->below_bytes == 0 || peak_bytes < job->below_bytes) { return EBB_OK; }
    return ebb_fail(EBB_E_LIMIT, "its peak is not below %llu bytes", (unsigned long long)job->below_bytes);
}

static uint64_t default_steps(const ebb_place_solver *solver, const ebb_place_problem *problem) {
    const size_t n_items = problem->n_items;
    if (!solver->searches) { return EBB_PLACE_RULE_STEPS + EBB_PLACE_RULE_STEPS_AN_ITEM * n_items; }
    const bool is_plain = ebb__place_is_plain(problem); /* of others, more steps bring little */
    const uint64_t many_steps = is_plain && n_items > EBB_PLACE_RULED
                                    ? ebb_min_u64(EBB_PLACE_MANY_STEPS, EBB_PLACE_MANY_STEPS_AN_ITEM * n_items)
                                    : 0;
    const uint64_t times = !is_plain                                ? 1
                           : n_items <= EBB_PLACE_FEW               ? 4
                           : n_items <= 100 * (size_t)EBB_PLACE_FEW ? 2
                                                                    : 1;
    return ebb_max_u64((times - 1) * EBB_PLACE_STEPS + ebb__place_search_steps(n_items), many_steps);
}

static ebb_status check_takes(const ebb_place_problem *problem, const ebb_place_solver *solver) {
    for (size_t i = 0; !solver->takes_fixed && i < problem->n_items; i++) {
        if (!ebb__place_is_fixed(problem, i)) { continue; }
        return ebb_fail(EBB_E_UNSUPPORTED, "item %s has a fixed offset, which the placement solver '%s' does not take",
                        ebb__item_name(problem, i).text, solver->name);
    }
    return EBB_OK;
}

static ebb_status check_starts(const ebb_place_options *options) {
    if (options->n_iteration_starts > 0 && options->iteration_starts == NULL) {
        return ebb_fail(EBB_E_ARGUMENT, "there are %zu iteration starts, but iteration_starts is NULL",
                        options->n_iteration_starts);
    }
    for (size_t i = 1; i < options->n_iteration_starts; i++) {
        const uint64_t before = options->iteration_starts[i - 1], start = options->iteration_starts[i];
        if (start >= before) { continue; }
        return ebb_fail(EBB_E_ARGUMENT, "iteration_starts[%zu] is %llu, which is before iteration_starts[%zu], %llu", i,
                        (unsigned long long)start, i - 1, (unsigned long long)before);
    }
    return EBB_OK;
}

/* ---- exact ends -------------------------------------------------------------------------------- */

/* The end of the highest byte that item i ever holds, counted from its offset: below its size only if gaps cover its
 * whole life. *gap: its first gap, and afterwards the next item's. */
static uint64_t top_of(const ebb_place_problem *problem, size_t i, size_t *gap) {
    const ebb_place_item *item = &problem->items[i];
    uint64_t time = item->first, top_bytes = 0;
    if (*gap == problem->n_gaps || problem->gaps[*gap].item != i) { return item->size_bytes; }
    for (; *gap < problem->n_gaps && problem->gaps[*gap].item == i; ++*gap) {
        const ebb_place_gap *held = &problem->gaps[*gap];
        if (time < held->first) { top_bytes = item->size_bytes; }
        if (held->low_bytes < held->high_bytes) { top_bytes = ebb_max_u64(top_bytes, held->high_bytes); }
        time = held->last;
    }
    return time < item->last ? item->size_bytes : top_bytes;
}

/* Solvers count in sizes that are rounded up to the alignment. The peak is the end of the highest byte that is held. */
typedef struct ends {
    uint64_t highest_bytes;
    uint64_t most_room_bytes; /* between the end of an item and the next multiple */
} ends;

static ends find_ends(const ebb_place_problem *problem, const uint64_t *offsets) {
    ends e = {0};
    size_t gap = 0;
    for (size_t i = 0; i < problem->n_items; i++) {
        const uint64_t top_bytes = top_of(problem, i, &gap);
        if (top_bytes == 0) { continue; }
        const uint64_t room_bytes = ebb_align_up(top_bytes, problem->alignment_bytes) - top_bytes;
        e.highest_bytes = ebb_max_u64(e.highest_bytes, offsets[i] + top_bytes);
        e.most_room_bytes = ebb_max_u64(e.most_room_bytes, room_bytes);
    }
    return e;
}

/* ---- the search and the rules ----------------------------------------------------------------- */

static bool is_enough(const ebb_place_job *job, const ebb_place_result *result) {
    return result->peak_bytes <= ebb_max_u64(result->bound_bytes, job->enough_bytes);
}

/* Whether another placement may end lower within the same multiple of the alignment, if that is of use. */
static bool may_end_lower(const ebb_place_job *job, const uint64_t *offsets, const ebb_place_result *result) {
    if (job->any_end || job->problem->alignment_bytes == 1) { return false; }
    const ends e = find_ends(job->problem, offsets);
    const uint64_t low_bytes = result->bound_bytes - ebb_min_u64(result->bound_bytes, e.most_room_bytes);
    const uint64_t wanted_bytes = job->enough_bytes > 0 ? job->enough_bytes : low_bytes;
    return e.highest_bytes > wanted_bytes && low_bytes <= wanted_bytes;
}

static bool is_best(const ebb_place_job *job, const uint64_t *offsets, const ebb_place_result *result) {
    return is_enough(job, result) && !may_end_lower(job, offsets, result);
}

/* Not one that may be quadratic, among too many items, nor one that does not take the problem. */
static bool takes_turn(const ebb_place_solver *rule, const ebb_place_problem *problem) {
    if (rule->searches || (!rule->is_quick && problem->n_items > EBB_PLACE_RULED)) { return false; }
    return check_takes(problem, rule) == EBB_OK;
}

static bool ends_lower(const ebb_place_problem *problem, const uint64_t *offsets, const uint64_t *others) {
    return problem->alignment_bytes > 1 &&
           find_ends(problem, offsets).highest_bytes < find_ends(problem, others).highest_bytes;
}

static void keep_better(const ebb_place_job *job, const uint64_t *spare, const ebb_place_result *other,
                        uint64_t *offsets, ebb_place_result *result) {
    result->n_steps += other->n_steps;
    result->bound_bytes = ebb_max_u64(result->bound_bytes, other->bound_bytes);
    if (other->peak_bytes > result->peak_bytes) { return; }
    const bool is_same = other->peak_bytes == result->peak_bytes;
    if (is_same && !ends_lower(job->problem, spare, offsets)) { return; }
    result->peak_bytes = other->peak_bytes;
    memcpy(offsets, spare, job->problem->n_items * sizeof *offsets);
}

/* What a rule gives up is no answer. */
static ebb_status try_rule(const ebb_place_job *job, const ebb_place_solver *rule, uint64_t *spare, uint64_t *offsets,
                           ebb_place_result *result) {
    ebb_place_job own = *job;
    ebb_place_result answer = {.bound_bytes = result->bound_bytes};
    own.below_bytes = result->peak_bytes + 1; /* the same may end lower */
    if (job->is_default) { own.max_steps = rule->is_quick ? default_steps(rule, job->problem) : EBB_PLACE_STEPS; }
    const ebb_status st = rule->solve(&own, spare, &answer);
    if (st == EBB_E_LIMIT || st == EBB_E_UNSUPPORTED) { return EBB_OK; }
    if (st != EBB_OK) { return st; }
    if (answer.peak_bytes <= result->peak_bytes) { /* a replay's own peak is that of its segments */
        EBB_TRY(ebb_place_check(job->problem, job->mem, spare, &answer.peak_bytes));
        answer.peak_bytes = ebb_align_up(answer.peak_bytes, job->problem->alignment_bytes);
    }
    keep_better(job, spare, &answer, offsets, result);
    return EBB_OK;
}

/* With iterations that are alike, or without. *repeats_out: the former. */
static ebb_status search_once(const ebb_place_job *job, uint64_t *offsets, ebb_place_result *result,
                              bool *repeats_out) {
    *repeats_out = false;
    if (job->n_starts > 0) { EBB_TRY(ebb__place_repeating(job, offsets, result, repeats_out)); }
    return *repeats_out ? EBB_OK : ebb__place_any(job, offsets, result);
}

/* Again, with twice the steps each time, until no such search is within what is left. Each has its stages' shares of
 * its steps, so one alone of all steps could well be worse than one of fewer. */
static ebb_status search_again(const ebb_place_job *job, uint64_t *spare, uint64_t *offsets, ebb_place_result *result) {
    ebb_place_job own = *job;
    uint64_t left = job->max_steps - job->default_steps;
    own.is_default = false;
    for (own.max_steps = 2 * job->default_steps; own.max_steps <= left; own.max_steps *= 2) {
        ebb_place_result again = {0};
        bool repeats = false;
        if (is_enough(job, result) || job->stop(job->stop_ctx)) { return EBB_OK; }
        EBB_TRY(search_once(&own, spare, &again, &repeats));
        keep_better(job, spare, &again, offsets, result);
        if (!repeats && again.n_steps < own.max_steps / 2) { return EBB_OK; } /* it ended by itself */
        left -= own.max_steps;
        if (own.max_steps > UINT64_MAX / 2) { return EBB_OK; }
    }
    return EBB_OK;
}

static bool is_far(const ebb_place_result *result) {
    return result->peak_bytes - result->bound_bytes > result->bound_bytes / FAR;
}

/* By a search without iterations, where the one with them has not come near; by the rules; by more steps. */
static ebb_status improve(const ebb_place_job *job, bool repeats, uint64_t *offsets, ebb_place_result *result) {
    ebb_bump bump;
    ebb__bump_init(&bump, job->mem);
    uint64_t *spare = ebb__bump_alloc(&bump, job->problem->n_items, sizeof *spare);
    ebb_status st = spare != NULL ? EBB_OK : EBB_E_NO_MEMORY;
    if (st == EBB_OK && repeats && is_far(result)) {
        ebb_place_result other = {0};
        ebb_place_job own = *job;
        own.max_steps = ebb_min_u64(job->max_steps, job->default_steps);
        st = ebb__place_any(&own, spare, &other);
        if (st == EBB_OK) { keep_better(job, spare, &other, offsets, result); }
    }
    for (size_t i = 0; i < N_SOLVERS && st == EBB_OK && !is_best(job, offsets, result); i++) {
        if (takes_turn(&solvers[i], job->problem)) { st = try_rule(job, &solvers[i], spare, offsets, result); }
    }
    if (st == EBB_OK && job->max_steps > job->default_steps) { st = search_again(job, spare, offsets, result); }
    ebb__bump_fini(&bump);
    return st;
}

ebb_status ebb__place_search(const ebb_place_job *job, uint64_t *offsets, ebb_place_result *result) {
    ebb_place_job first = *job;
    bool repeats = false;
    first.max_steps = ebb_min_u64(job->max_steps, job->default_steps);
    EBB_TRY(search_once(&first, offsets, result, &repeats));
    if (!is_best(job, offsets, result)) { EBB_TRY(improve(job, repeats, offsets, result)); }
    EBB_TRY(ebb__place_please(job, offsets, result));
    return repeats ? ebb__place_judge_steady(job, offsets, result) : EBB_OK;
}

/* ---- the door ---------------------------------------------------------------------------------- */

/* A bound in bytes for what lives together when most does: it all but the room of one item. */
static ebb_status bound_exactly(const ebb_place_problem *problem, ebb_bump *bump, uint64_t *bound_bytes) {
    ebb_sections sections;
    uint32_t fullest = 0;
    uint64_t most_room_bytes = 0;
    EBB_TRY(ebb__place_cut(problem, bump, &sections));
    uint64_t *bytes = ebb__bump_alloc(bump, (size_t)sections.n + 1, sizeof *bytes);
    if (bytes == NULL) { return EBB_E_NO_MEMORY; }
    ebb__place_add_up(&sections, bytes);
    for (uint32_t t = 1; t < sections.n; t++) { fullest = bytes[t] > bytes[fullest] ? t : fullest; }
    for (size_t i = 0; i < problem->n_items; i++) {
        const ebb_place_range range = sections.range[i];
        const bool goes_round = range.first >= range.last;
        const bool lives = goes_round ? fullest >= range.first || fullest < range.last
                                      : fullest >= range.first && fullest < range.last;
        const uint64_t room_bytes = sections.rounded[i] - problem->items[i].size_bytes;
        if (lives) { most_room_bytes = ebb_max_u64(most_room_bytes, room_bytes); }
    }
    *bound_bytes = sections.bound_bytes - ebb_min_u64(sections.bound_bytes, most_room_bytes);
    return EBB_OK;
}

/* The result in bytes. Of any placement the highest item reaches into the last multiple below the bound, and leaves
 * there no more than the most room that an item leaves. The peak of a solver that takes segments is their end. */
static ebb_status end_exactly(const ebb_place_job *job, ebb_bump *bump, const uint64_t *offsets, bool has_segments,
                              ebb_place_result *result) {
    const ends e = find_ends(job->problem, offsets);
    uint64_t bound_bytes = 0;
    const uint64_t end_bytes = ebb_align_up(e.highest_bytes, job->problem->alignment_bytes);
    if (!has_segments && end_bytes == result->peak_bytes) { result->peak_bytes = e.highest_bytes; }
    if (e.most_room_bytes == 0) { return EBB_OK; }
    if (job->problem->n_gaps == 0) { EBB_TRY(bound_exactly(job->problem, bump, &bound_bytes)); }
    result->bound_bytes -= ebb_min_u64(result->bound_bytes, e.most_room_bytes);
    result->bound_bytes = ebb_min_u64(ebb_max_u64(result->bound_bytes, bound_bytes), e.highest_bytes);
    return EBB_OK;
}

ebb_status ebb_place_solve(const ebb_place_problem *problem, const ebb_place_options *options, uint64_t *offsets_out,
                           ebb_place_result *result_out) {
    EBB_NEED(problem);
    EBB_NEED_ARRAY(offsets_out, problem->n_items);
    EBB_NEED(result_out);
    const ebb_place_options defaults = EBB_PLACE_OPTIONS_INIT;
    if (options == NULL) { options = &defaults; }
    if (options->size_bytes != sizeof *options) { return ebb_fail(EBB_E_ARGUMENT, "options of another version"); }
    const ebb_place_solver *solver = NULL;
    ebb_place_result result = {0};
    EBB_TRY(find_solver(options->solver, &solver));
    EBB_TRY(check_starts(options));
    EBB_TRY(solver->searches ? ebb__place_check_problem(problem)
                             : ebb_place_bound(problem, options->mem, &result.bound_bytes));
    EBB_TRY(check_takes(problem, solver));
    EBB_ASSERT(solver->solve != NULL && (solver->takes_fixed || !solver->searches));
    const uint64_t usual_steps = default_steps(solver, problem);
    const ebb_place_job job = {
        .problem = problem,
        .mem = options->mem,
        .enough_bytes = options->enough_bytes,
        .max_steps = options->max_steps != 0 ? options->max_steps : usual_steps,
        .default_steps = usual_steps,
        .starts = options->iteration_starts,
        .n_starts = options->n_iteration_starts,
        .is_default = options->enough_bytes == 0 && (options->max_steps == 0 || options->max_steps >= usual_steps),
        .any_end = options->any_end,
        .first_segment_bytes = solver->searches ? 0 : options->first_segment_bytes,
        .stop = options->stop != NULL ? options->stop : never,
        .stop_ctx = options->stop_ctx,
    };
    ebb_bump bump; /* offsets_out is written on success only */
    ebb__bump_init(&bump, options->mem);
    uint64_t *offsets = ebb__bump_alloc(&bump, problem->n_items, sizeof *offsets);
    ebb_status st = offsets != NULL ? solver->solve(&job, offsets, &result) : EBB_E_NO_MEMORY;
    if (st == EBB_OK && result.peak_bytes >= TOO_LARGE) { /* of two regions, or of whole segments */
        st = ebb_fail(EBB_E_UNSUPPORTED, "the placement solver '%s' would take 2^63 bytes or more", solver->name);
    }
    EBB_ASSERT(st != EBB_OK || result.peak_bytes >= result.bound_bytes);
    if (st == EBB_OK) { st = end_exactly(&job, &bump, offsets, !solver->takes_fixed, &result); }
    if (st == EBB_OK) {
        if (problem->n_items > 0) { memcpy(offsets_out, offsets, problem->n_items * sizeof *offsets); }
        *result_out = result;
    }
    ebb__bump_fini(&bump);
    return st;
}
