/* SPDX-License-Identifier: Apache-2.0
 *
 * Gaps, what an iteration takes with some of them chosen, and the draft of that (away.h). A run costs two visits of
 * each place, and what each copy in looks at to find when there is room for it.
 */
#include "plan/away.h"
#include "plan/sequence.h"

#include <math.h>

#define SMALL 1024u      /* of the limit: less than such a share stays */
#define LARGE 64u        /* of the limit: from such a share on a tensor may leave in parts */
#define MAX_PLACES 1024u /* about, beside those that gaps make */

typedef ebb_away away;
typedef ebb_away_gap gap;

/* ---- gaps --------------------------------------------------------------------------------------- */

static uint64_t rounded(const away *a, uint64_t bytes) {
    return ebb_align_up(bytes, a->view.alignment);
}

static const ebb_choice *chosen_for(const away *a, size_t step) {
    return &a->view.choices[a->view.steps[step].first_choice + ebb__choice_of(a->input->choice, step)];
}

static double step_ns(const away *a, size_t s) {
    return (double)ebb_machine_step_time_ns(a->input->machine, chosen_for(a, s));
}

static bool lasts(const away *a, size_t t) {
    return a->view.tensors[t].persistent || a->view.tensors[t].kept;
}

static bool is_written(const ebb_uses *uses, size_t t) {
    bool written = false;
    for (uint64_t u = uses->start[t]; u < uses->start[t + 1]; u++) {
        written = written || (uses->use[u].mode & EBB_WRITE) != 0;
    }
    return written;
}

/* The bytes that are copied. */
static uint64_t copied_bytes(const away *a, const gap *g) {
    return g->size_bytes == EBB_WHOLE ? a->view.tensors[g->tensor].size_bytes : g->size_bytes;
}

uint64_t ebb__away_tensor_bytes(const ebb_away *a, uint32_t t) {
    return rounded(a, a->view.tensors[t].size_bytes);
}

static void set_tier(const away *a, gap *g, uint32_t tier) {
    const uint64_t bytes = copied_bytes(a, g);
    g->tier = tier;
    g->out_ns = (double)ebb_machine_copy_time_ns(a->input->machine, EBB_DEVICE, tier, bytes);
    g->in_ns = (double)ebb_machine_copy_time_ns(a->input->machine, tier, EBB_DEVICE, bytes);
}

/* Bytes of a tensor times 1024 may be too many for a number. */
static bool is_small(const away *a, uint64_t bytes) {
    return a->input->limit_bytes > 0 && bytes <= (a->input->limit_bytes - 1) / SMALL;
}

/* What leaves of a tensor at once. */
typedef struct part {
    uint32_t tensor;
    uint64_t begin, size_bytes; /* as actions have them */
} part;

static void add_gap(away *a, const part *p, uint32_t ready, uint32_t leave, uint32_t need, bool has_copy) {
    const uint64_t none_used[EBB_MAX_TIERS] = {0};
    const uint32_t t = p->tensor, tier = ebb__pick_tier(a->input, none_used, ebb__away_tensor_bytes(a, t));
    if (tier == EBB_MAX_TIERS || leave + 1 >= need || is_small(a, a->view.tensors[t].size_bytes)) { return; }
    gap *g = &a->gaps[a->n_gaps++];
    *g = (gap){.tensor = t,
               .begin = p->begin,
               .size_bytes = p->size_bytes,
               .leave = leave,
               .need = need,
               .ready = ready,
               .version = a->n_versions,
               .has_copy = has_copy};
    g->bytes = rounded(a, copied_bytes(a, g));
    a->tier[t] = (uint8_t)tier;
    set_tier(a, g, tier);
}

/* A tensor that is overwritten next needs no copies: until then it does not have to be anywhere, and its first part
 * counts all of it. One that is both persistent and kept stays between its last use and its first. */
static void add_gaps(away *a, const ebb_uses *uses, const part *p) {
    const uint32_t t = p->tensor;
    const ebb_use *use = &uses->use[uses->start[t]], *end = &uses->use[uses->start[t + 1]];
    const uint32_t n = (uint32_t)a->view.n_steps;
    const bool has_copy = !is_written(uses, t), is_kept = a->view.tensors[t].kept;
    const bool is_round = a->view.tensors[t].persistent;
    const int64_t bytes = p->begin == 0 ? (int64_t)ebb__away_tensor_bytes(a, t) : 0;
    const uint32_t first_version = a->n_versions, first_gap = a->n_gaps;
    uint32_t ready = 0;
    for (; use < end; use++) {
        const bool is_last = use + 1 == end;
        if ((use->mode & EBB_WRITE) != 0) {
            a->n_versions++;
            ready = use->step + 1;
        }
        if (!is_last && use[1].mode == EBB_WRITE) {
            for (uint32_t s = use->step + 1; s < use[1].step; s++) { a->base[s] -= bytes; }
        } else if (!is_last) {
            add_gap(a, p, ready, use->step, use[1].step, has_copy);
        } else if (is_round && !is_kept && uses->use[uses->start[t]].mode != EBB_WRITE) {
            add_gap(a, p, ready, use->step, uses->use[uses->start[t]].step + n, has_copy);
        } else if (is_kept && !is_round) {
            add_gap(a, p, ready, use->step, n, has_copy);
        }
    }
    for (uint32_t g = first_gap; g < a->n_gaps; g++) { a->gaps[g].next_version = first_version; }
    a->n_versions++;
}

bool ebb__away_is_large(const ebb_policy_input *input, const ebb_tensor *tensor) {
    return tensor->size_bytes >= input->limit_bytes / LARGE;
}

static uint32_t count_parts(const away *a, uint32_t t) {
    const ebb_tensor *tensor = &a->view.tensors[t];
    const uint32_t n = tensor->persistent ? a->split.persistent : a->split.passing;
    return ebb__away_is_large(a->input, tensor) && tensor->size_bytes / n >= a->view.alignment ? n : 1;
}

static void add_all_gaps(away *a, const ebb_uses *uses, uint32_t t) {
    const uint32_t n_parts = count_parts(a, t);
    const uint64_t size_bytes = a->view.tensors[t].size_bytes;
    const uint64_t each = size_bytes / n_parts / a->view.alignment * a->view.alignment;
    for (uint32_t i = 0; i < n_parts; i++) {
        const uint64_t begin = each * i, end = i + 1 < n_parts ? begin + each : size_bytes;
        const part p = {t, begin, n_parts == 1 ? EBB_WHOLE : end - begin};
        add_gaps(a, uses, &p);
    }
}

/* ---- what can be computed again ----------------------------------------------------------------- */

/* A use that makes a tensor's content by a step that makes nothing else and can run again. */
static bool makes_alone(const away *a, const ebb_use *use) {
    const ebb_step *step = &a->view.steps[use->step];
    for (uint32_t i = 0; i < step->n_accesses; i++) {
        const ebb_access *access = &a->view.accesses[step->first_access + i];
        if (access->mode != EBB_READ && step->first_access + i != use->access) { return false; }
    }
    return step->repeat == EBB_REPEAT_EXACT;
}

/* Whether what a step read of a tensor lives on until another step, and nothing writes it meanwhile. */
static bool lasts_until(const away *a, const ebb_uses *uses, uint32_t t, uint32_t from, uint32_t until) {
    const ebb_use *use = &uses->use[uses->start[t]], *end = &uses->use[uses->start[t + 1]];
    for (; use < end && use->step < until; use++) {
        if (use->step > from && use->mode != EBB_READ) { return false; }
    }
    return use < end ? use->mode != EBB_WRITE : lasts(a, t);
}

/* Add what the uses that make a tensor read; false: not all of it is there where its gaps end. */
static bool add_reads(away *a, const ebb_uses *uses, uint32_t t, uint32_t *n_reads) {
    const uint32_t n_before = *n_reads;
    for (uint64_t u = uses->start[t]; u < uses->start[t + 1] && uses->use[u].mode != EBB_READ; u++) {
        const ebb_step *step = &a->view.steps[uses->use[u].step];
        a->again_ns[t] += step_ns(a, uses->use[u].step);
        for (uint32_t i = 0; i < step->n_accesses; i++) {
            const ebb_access *access = &a->view.accesses[step->first_access + i];
            if (access->mode != EBB_READ) { continue; }
            a->reads[(*n_reads)++] = access->tensor;
            for (uint32_t k = a->gap_start[t]; k < a->gap_start[t + 1]; k++) {
                if (lasts_until(a, uses, access->tensor, uses->use[u].step, a->gaps[k].need)) { continue; }
                *n_reads = n_before;
                return false;
            }
        }
    }
    return true;
}

/* It is written at first, by steps that make it alone, and then only read. */
static bool is_made_once(const away *a, const ebb_uses *uses, uint32_t t) {
    const ebb_use *use = &uses->use[uses->start[t]], *end = &uses->use[uses->start[t + 1]];
    if (lasts(a, t) || use == end || use->mode != EBB_WRITE) { return false; }
    for (; use < end && use->mode != EBB_READ; use++) {
        if (!makes_alone(a, use)) { return false; }
    }
    for (; use < end; use++) {
        if (use->mode != EBB_READ) { return false; }
    }
    return true;
}

/* Before gaps are sorted: those of a tensor follow one another, and are by steps. */
static ebb_status find_again(away *a, const ebb_uses *uses) {
    const size_t n = a->view.n_tensors + 1, n_accesses = a->view.n_accesses + 1;
    uint32_t n_reads = 0;
    a->can_again = ebb__bump_alloc(&a->bump, n, sizeof *a->can_again);
    a->again_ns = ebb__bump_alloc(&a->bump, n, sizeof *a->again_ns);
    a->read_start = ebb__bump_alloc(&a->bump, n, sizeof *a->read_start);
    a->make_start = ebb__bump_alloc(&a->bump, n, sizeof *a->make_start);
    a->reads = ebb__bump_alloc(&a->bump, n_accesses, sizeof *a->reads);
    a->makes = ebb__bump_alloc(&a->bump, n_accesses, sizeof *a->makes);
    a->gap_of = ebb__bump_alloc(&a->bump, a->n_gaps + 1, sizeof *a->gap_of);
    if (a->can_again == NULL || a->again_ns == NULL || a->read_start == NULL || a->make_start == NULL ||
        a->reads == NULL || a->makes == NULL || a->gap_of == NULL) {
        return EBB_E_NO_MEMORY;
    }
    memset(a->again_ns, 0, n * sizeof *a->again_ns);
    memset(a->make_start, 0, n * sizeof *a->make_start);
    for (uint32_t t = 0; t < a->view.n_tensors; t++) {
        a->read_start[t] = n_reads;
        a->can_again[t] =
            a->gap_start[t] < a->gap_start[t + 1] && is_made_once(a, uses, t) && add_reads(a, uses, t, &n_reads);
    }
    a->read_start[a->view.n_tensors] = n_reads;
    for (uint32_t i = 0; i < n_reads; i++) { a->make_start[a->reads[i] + 1]++; }
    for (uint32_t t = 0; t < a->view.n_tensors; t++) { a->make_start[t + 1] += a->make_start[t]; }
    for (uint32_t t = (uint32_t)a->view.n_tensors; t-- > 0;) {
        for (uint32_t k = a->read_start[t]; k < a->read_start[t + 1]; k++) {
            a->makes[--a->make_start[a->reads[k] + 1]] = t;
        }
    }
    memmove(a->make_start, a->make_start + 1, a->view.n_tensors * sizeof *a->make_start);
    a->make_start[a->view.n_tensors] = n_reads;
    return EBB_OK;
}

/* Bytes of all tensors that live, and scratch; first as changes. */
static void find_base(away *a, const ebb_uses *uses) {
    const size_t n = a->view.n_steps;
    for (size_t t = 0; t < a->view.n_tensors; t++) {
        const uint64_t first = uses->start[t], end = uses->start[t + 1];
        if (first == end) { continue; }
        const int64_t bytes = (int64_t)ebb__away_tensor_bytes(a, (uint32_t)t);
        a->base[a->view.tensors[t].persistent ? 0 : uses->use[first].step] += bytes;
        a->base[lasts(a, t) ? n : uses->use[end - 1].step + 1] -= bytes;
    }
    for (size_t s = 1; s < n; s++) { a->base[s] += a->base[s - 1]; }
    for (size_t s = 0; s < n; s++) { a->base[s] += (int64_t)rounded(a, chosen_for(a, s)->scratch_bytes); }
}

static double computing_ns(const away *a) {
    double sum_ns = 0;
    for (size_t s = 0; s < a->view.n_steps; s++) { sum_ns += step_ns(a, s); }
    return sum_ns;
}

/* From steps to places: where gaps begin and end, and where a place would take too long. */
static ebb_status find_places(away *a) {
    const uint32_t n = (uint32_t)a->view.n_steps;
    uint32_t *place = ebb__bump_alloc(&a->bump, n + 1, sizeof *place);
    bool *is_first = ebb__bump_alloc(&a->bump, n + 1, sizeof *is_first);
    if (place == NULL || is_first == NULL) { return EBB_E_NO_MEMORY; }
    memset(is_first, 0, (n + 1) * sizeof *is_first);
    is_first[0] = true;
    for (uint32_t i = 0; i < a->n_gaps; i++) {
        is_first[a->gaps[i].ready] = true;
        is_first[a->gaps[i].leave + 1] = true;
        is_first[a->gaps[i].need > n ? a->gaps[i].need - n : a->gaps[i].need] = true;
    }
    const double longest_ns = computing_ns(a) / MAX_PLACES;
    a->begin_ns[0] = 0;
    for (uint32_t s = 0; s < n; s++) {
        const double ns = step_ns(a, s);
        const bool is_long = a->n > 0 && a->begin_ns[a->n] - a->begin_ns[a->n - 1] + ns > longest_ns;
        if (is_first[s] || is_long) {
            a->step[a->n] = s;
            a->base[a->n] = a->base[s];
            a->begin_ns[a->n + 1] = a->begin_ns[a->n];
            a->n++;
        }
        place[s] = a->n - 1;
        a->begin_ns[a->n] += ns;
        a->base[a->n - 1] = a->base[s] > a->base[a->n - 1] ? a->base[s] : a->base[a->n - 1];
    }
    a->step[a->n] = n;
    place[n] = a->n;
    for (uint32_t i = 0; i < a->n_gaps; i++) {
        gap *g = &a->gaps[i];
        g->ready = place[g->ready];
        g->leave = place[g->leave];
        g->need = g->need > n ? place[g->need - n] + a->n : place[g->need];
    }
    return EBB_OK;
}

static uint64_t leave_of(const void *item) {
    return ((const gap *)item)->leave;
}

/* A need at place 0 of the next iteration is n, as is the end: no kept tensor that is persistent has a gap there. */
static bool goes_round(const away *a, const gap *g) {
    return g->need > a->n || (g->need == a->n && a->view.tensors[g->tensor].persistent);
}

/* The place within an iteration by which it is back. */
static uint32_t due(const away *a, const gap *g) {
    return goes_round(a, g) ? g->need - a->n : g->need;
}

static ebb_status sort_gaps(away *a) {
    const ebb_mem *mem = a->input->mem;
    EBB_TRY(ebb__sort_items(mem, a->gaps, a->n_gaps, sizeof *a->gaps, leave_of));
    uint64_t *key = ebb__bump_alloc(&a->bump, a->n_gaps + 1, sizeof *key);
    if (key == NULL) { return EBB_E_NO_MEMORY; }
    for (uint32_t i = 0; i < a->n_gaps; i++) {
        a->by_need[i] = i;
        key[i] = due(a, &a->gaps[i]);
    }
    return ebb__sort_by_key(mem, a->by_need, a->n_gaps, key);
}

/* The gaps of each tensor, when they are sorted. */
static void index_gaps(away *a) {
    for (uint32_t i = 0; i < a->n_gaps; i++) {
        const uint32_t t = a->gaps[i].tensor;
        a->gap_of[a->gap_start[t] + a->n_away[t]++] = i;
    }
    memset(a->n_away, 0, a->view.n_tensors * sizeof *a->n_away);
}

ebb_status ebb__away_init(ebb_away *a, const ebb_policy_input *input, bool may_again, ebb_away_split split) {
    ebb_uses uses;
    *a = (away){.input = input, .view = ebb__plan_view(input->program), .may_again = may_again, .split = split};
    a->n_tiers = ebb_machine_topology(input->machine)->n_tiers;
    ebb__bump_init(&a->bump, input->mem);
    EBB_TRY(ebb__program_uses(input->program, &a->bump, &uses));
    const size_t n = a->view.n_steps, n_parts = ebb_max_u64(split.passing, split.persistent);
    const size_t n_gaps = n_parts * a->view.n_accesses + 1;
    a->step = ebb__bump_alloc(&a->bump, n + 1, sizeof *a->step);
    a->begin_ns = ebb__bump_alloc(&a->bump, n + 1, sizeof *a->begin_ns);
    a->meant_ns = ebb__bump_alloc(&a->bump, n + 1, sizeof *a->meant_ns);
    a->run_ns = ebb__bump_alloc(&a->bump, n + 1, sizeof *a->run_ns);
    a->base = ebb__bump_alloc(&a->bump, n + 1, sizeof *a->base);
    a->load = ebb__bump_alloc(&a->bump, n + 1, sizeof *a->load);
    a->gaps = ebb__bump_alloc(&a->bump, n_gaps, sizeof *a->gaps);
    a->chosen = ebb__bump_alloc(&a->bump, n_gaps, sizeof *a->chosen);
    a->by_need = ebb__bump_alloc(&a->bump, n_gaps, sizeof *a->by_need);
    a->arriving = ebb__bump_alloc(&a->bump, n_gaps, sizeof *a->arriving);
    a->returning = ebb__bump_alloc(&a->bump, n_gaps, sizeof *a->returning);
    a->leaving = ebb__bump_alloc(&a->bump, n_gaps, sizeof *a->leaving);
    a->gap_start = ebb__bump_alloc(&a->bump, a->view.n_tensors + 1, sizeof *a->gap_start);
    a->again = ebb__bump_alloc(&a->bump, a->view.n_tensors, sizeof *a->again);
    a->n_away = ebb__bump_alloc(&a->bump, a->view.n_tensors, sizeof *a->n_away);
    a->tier = ebb__bump_alloc(&a->bump, a->view.n_tensors, sizeof *a->tier);
    a->has_out = ebb__bump_alloc(&a->bump, n_parts * (a->view.n_accesses + a->view.n_tensors) + 1, sizeof *a->has_out);
    if (a->step == NULL || a->begin_ns == NULL || a->meant_ns == NULL || a->run_ns == NULL || a->base == NULL ||
        a->load == NULL || a->gaps == NULL || a->chosen == NULL || a->by_need == NULL || a->arriving == NULL ||
        a->leaving == NULL || a->returning == NULL || a->has_out == NULL || a->n_away == NULL || a->tier == NULL ||
        a->gap_start == NULL || a->again == NULL) {
        return EBB_E_NO_MEMORY;
    }
    memset(a->base, 0, (n + 1) * sizeof *a->base);
    memset(a->chosen, 0, n_gaps * sizeof *a->chosen);
    memset(a->again, 0, a->view.n_tensors * sizeof *a->again);
    memset(a->n_away, 0, a->view.n_tensors * sizeof *a->n_away);
    memset(a->tier, EBB_DEVICE, a->view.n_tensors * sizeof *a->tier);
    find_base(a, &uses);
    for (uint32_t t = 0; t < a->view.n_tensors; t++) {
        a->gap_start[t] = a->n_gaps;
        add_all_gaps(a, &uses, t);
    }
    a->gap_start[a->view.n_tensors] = a->n_gaps;
    if (may_again) { EBB_TRY(find_again(a, &uses)); }
    EBB_TRY(find_places(a));
    memcpy(a->load, a->base, a->n * sizeof *a->load);
    memcpy(a->meant_ns, a->begin_ns, (a->n + 1) * sizeof *a->meant_ns);
    EBB_TRY(sort_gaps(a));
    if (may_again) { index_gaps(a); }
    return EBB_OK;
}

void ebb__away_fini(ebb_away *a) {
    ebb__bump_fini(&a->bump);
}

/* ---- choosing ----------------------------------------------------------------------------------- */

/* Add bytes to the steps from first to before end, of which those past an iteration's end are in the next one. */
static void add_load(away *a, uint32_t first, uint32_t end, int64_t bytes) {
    const uint32_t n = a->n;
    for (uint32_t s = first; s < end && s < n; s++) { a->load[s] += bytes; }
    for (uint32_t s = first > n ? first : n; s < end; s++) { a->load[s - n] += bytes; }
    a->n_visits += end - first;
}

static void set_gap(away *a, uint32_t i, bool chosen) {
    const gap *g = &a->gaps[i];
    const uint64_t bytes = ebb__away_tensor_bytes(a, g->tensor);
    a->chosen[i] = chosen;
    if (!chosen) { a->n_away[g->tensor]--; }
    if (a->n_away[g->tensor] == 0 && !a->again[g->tensor]) { a->tier_used[g->tier] += chosen ? bytes : -bytes; }
    if (chosen) { a->n_away[g->tensor]++; }
    add_load(a, g->leave + 1, g->need, chosen ? -(int64_t)g->bytes : (int64_t)g->bytes);
}

void ebb__away_set(ebb_away *a, uint32_t i, bool chosen) {
    const gap *g = &a->gaps[i];
    EBB_ASSERT(a->chosen[i] != chosen);
    if (!a->again[g->tensor]) {
        set_gap(a, i, chosen);
        return;
    }
    for (uint32_t k = a->gap_start[g->tensor]; k < a->gap_start[g->tensor + 1]; k++) {
        const uint32_t other = a->gap_of[k];
        if (a->gaps[other].need == g->need && a->chosen[other] != chosen) { set_gap(a, other, chosen); }
    }
}

bool ebb__away_has_room(const ebb_away *a, uint32_t i, uint32_t tier) {
    const gap *g = &a->gaps[i];
    const bool is_there = tier == g->tier && a->n_away[g->tensor] > 0;
    return is_there ||
           ebb__has_room(a->input->tier_bytes[tier], a->tier_used[tier], ebb__away_tensor_bytes(a, g->tensor));
}

void ebb__away_move(ebb_away *a, uint32_t t, uint32_t tier) {
    const bool is_there = a->n_away[t] > 0 && !a->again[t];
    const uint64_t bytes = is_there ? ebb__away_tensor_bytes(a, t) : 0;
    EBB_ASSERT(tier != EBB_DEVICE && tier < EBB_MAX_TIERS && a->tier[t] != EBB_DEVICE);
    a->tier_used[a->tier[t]] -= bytes;
    a->tier_used[tier] += bytes;
    a->tier[t] = (uint8_t)tier;
    for (uint32_t i = 0; i < a->n_gaps; i++) {
        if (a->gaps[i].tensor == t) { set_tier(a, &a->gaps[i], tier); }
    }
    a->n_visits += a->n_gaps;
}

void ebb__away_compute(ebb_away *a, uint32_t t, bool again) {
    const uint64_t bytes = a->n_away[t] > 0 ? ebb__away_tensor_bytes(a, t) : 0;
    EBB_ASSERT(a->may_again && a->can_again[t] && a->again[t] != again);
    a->tier_used[a->tier[t]] += again ? -bytes : bytes;
    a->again[t] = again;
}

/* Whether a gap, if it is chosen, leaves its tensor on the device at a place, or brings it back there by a copy. */
static bool leaves(const away *a, const gap *g, uint32_t place) {
    return !ebb__away_covers(a, g, place) && !(a->again[g->tensor] && g->need == place);
}

/* Whether all chosen gaps of a tensor do. */
static bool is_there(const away *a, uint32_t t, uint32_t place) {
    for (uint32_t k = a->gap_start[t]; k < a->gap_start[t + 1]; k++) {
        const uint32_t i = a->gap_of[k];
        if (a->chosen[i] && !leaves(a, &a->gaps[i], place)) { return false; }
    }
    return true;
}

/* Whether a gap, if it is chosen, leaves its tensor there wherever another one is computed again. */
static bool leaves_for(const away *a, const gap *g, uint32_t other) {
    for (uint32_t k = a->gap_start[other]; k < a->gap_start[other + 1]; k++) {
        const uint32_t i = a->gap_of[k];
        if (a->chosen[i] && !leaves(a, g, a->gaps[i].need)) { return false; }
    }
    return true;
}

bool ebb__away_allows(const ebb_away *a, uint32_t i) {
    const gap *g = &a->gaps[i];
    const uint32_t t = g->tensor;
    if (!a->may_again) { return true; }
    for (uint32_t k = a->read_start[t]; a->again[t] && k < a->read_start[t + 1]; k++) {
        if (!is_there(a, a->reads[k], g->need)) { return false; }
    }
    for (uint32_t k = a->make_start[t]; k < a->make_start[t + 1]; k++) {
        if (a->again[a->makes[k]] && !leaves_for(a, g, a->makes[k])) { return false; }
    }
    return true;
}

void ebb__away_send(ebb_away *a, uint32_t i, uint32_t tier) {
    EBB_ASSERT(!a->chosen[i] && tier != EBB_DEVICE && tier < EBB_MAX_TIERS);
    set_tier(a, &a->gaps[i], tier);
}

double ebb__away_gap_ns(const ebb_away *a, const gap *g) {
    const double end_ns = g->need > a->n ? a->begin_ns[a->n] + a->begin_ns[g->need - a->n] : a->begin_ns[g->need];
    return end_ns - a->begin_ns[g->leave + 1];
}

bool ebb__away_covers(const ebb_away *a, const gap *g, uint32_t place) {
    return (g->leave < place && place < g->need) || place + a->n < g->need;
}

bool ebb__away_is_over(const ebb_away *a, uint32_t tier) {
    return a->tier_used[tier] > a->input->tier_bytes[tier];
}

uint32_t ebb__away_peak(const ebb_away *a) {
    uint32_t peak = 0;
    for (uint32_t s = 1; s < a->n; s++) { peak = a->load[s] > a->load[peak] ? s : peak; }
    return peak;
}

/* ---- copies in ---------------------------------------------------------------------------------- */

/* From the last to the first, each as late as it and those after it allow, and then where there is room until it is
 * needed. That of a gap across the end comes within the next iteration. */
static void time_copies_in(away *a) {
    double is_free[EBB_MAX_TIERS];
    for (uint32_t t = 0; t < EBB_MAX_TIERS; t++) { is_free[t] = INFINITY; }
    for (uint32_t i = a->n_gaps; i-- > 0;) {
        gap *g = &a->gaps[a->by_need[i]];
        if (!a->chosen[a->by_need[i]]) { continue; }
        if (a->again[g->tensor]) {
            g->in = g->need;
            continue;
        }
        const uint32_t need = due(a, g), earliest = goes_round(a, g) ? 0 : g->leave + 1;
        is_free[g->tier] = fmin(is_free[g->tier], a->meant_ns[need]) - g->in_ns;
        uint32_t in = (uint32_t)ebb__last_at_most(a->meant_ns, need + 1, is_free[g->tier]);
        in = in > earliest ? in : earliest;
        uint32_t first = need;
        while (first > in && a->load[first - 1] + (int64_t)g->bytes <= ebb__away_limit(a)) { first--; }
        g->in = first;
        add_load(a, first, need, (int64_t)g->bytes);
    }
}

static void untime_copies_in(away *a) {
    for (uint32_t i = 0; i < a->n_gaps; i++) {
        const gap *g = &a->gaps[i];
        if (a->chosen[i]) { add_load(a, g->in, due(a, g), -(int64_t)g->bytes); }
    }
}

/* ---- a run -------------------------------------------------------------------------------------- */

/* Gaps in the order of their copies, as a run goes through them. */
typedef struct run {
    away *a;
    double now_ns, out_ns[EBB_MAX_TIERS], in_ns[EBB_MAX_TIERS];
    double again_ns;                         /* to be computed again before the step at hand */
    int64_t absent;                          /* bytes */
    uint32_t n_arriving, next_in, next_back; /* arriving is by `in` */
    uint32_t n_leaving, next_out;
    uint32_t next_drop[EBB_MAX_TIERS]; /* of the leaving ones: each tier's are dropped in their order */
} run;

/* Among whose drops a gap's is: its tier's, or the device's if it is computed again. */
static uint32_t queue_of(const away *a, const gap *g) {
    return a->again[g->tensor] ? EBB_DEVICE : g->tier;
}

/* They are nearly in order. */
static void sort_arriving(run *r) {
    const gap *gaps = r->a->gaps;
    uint32_t *list = r->a->arriving;
    for (uint32_t i = 1; i < r->n_arriving; i++) {
        const uint32_t item = list[i];
        uint32_t at = i;
        for (; at > 0 && gaps[list[at - 1]].in > gaps[item].in; at--) { list[at] = list[at - 1]; }
        list[at] = item;
    }
}

/* The tier whose next copy out ends first; the device, if something is computed again; EBB_MAX_TIERS: nothing is left
 * to drop. */
static uint32_t first_tier(run *r) {
    const away *a = r->a;
    uint32_t first = EBB_MAX_TIERS;
    for (uint32_t t = a->may_again ? EBB_DEVICE : 1; t < a->n_tiers; t++) {
        uint32_t *at = &r->next_drop[t];
        while (*at < r->n_leaving && queue_of(a, &a->gaps[a->leaving[*at]]) != t) { (*at)++; }
        if (*at == r->n_leaving) { continue; }
        const double end_ns = a->gaps[a->leaving[*at]].out_end_ns;
        if (first == EBB_MAX_TIERS || end_ns < a->gaps[a->leaving[r->next_drop[first]]].out_end_ns) { first = t; }
    }
    return first;
}

/* The next one of a tier, if it has not come back without being dropped. */
static void drop_one(run *r, uint32_t tier, uint32_t step) {
    gap *g = &r->a->gaps[r->a->leaving[r->next_drop[tier]++]];
    if (!goes_round(r->a, g) && g->in <= step) { return; }
    g->is_dropped = true;
    g->drop = step;
    r->absent += (int64_t)g->bytes;
    r->now_ns = fmax(r->now_ns, g->out_end_ns);
}

/* If a tensor is computed again, all of its parts are dropped together. They follow one another. */
static void drop_next(run *r, uint32_t tier, uint32_t step) {
    const away *a = r->a;
    const uint32_t t = a->gaps[a->leaving[r->next_drop[tier]]].tensor;
    drop_one(r, tier, step);
    while (tier == EBB_DEVICE && r->next_drop[tier] < r->n_leaving &&
           a->gaps[a->leaving[r->next_drop[tier]]].tensor == t) {
        drop_one(r, tier, step);
    }
}

/* Drop tensors until these bytes fit beside what is on the device at a step. */
static void make_room(run *r, uint32_t step, int64_t bytes) {
    const int64_t limit = ebb__away_limit(r->a);
    while (r->a->base[step] - r->absent + bytes > limit) {
        const uint32_t tier = first_tier(r);
        if (tier == EBB_MAX_TIERS) { break; }
        drop_next(r, tier, step);
    }
}

/* Drop what has been copied out. */
static void drop_copied(run *r, uint32_t step) {
    const away *a = r->a;
    for (uint32_t tier; (tier = first_tier(r)) != EBB_MAX_TIERS;) {
        if (a->gaps[a->leaving[r->next_drop[tier]]].out_end_ns > r->now_ns) { break; }
        drop_next(r, tier, step);
    }
}

static void arrive(run *r, uint32_t step) {
    away *a = r->a;
    for (; r->next_in < r->n_arriving && a->gaps[a->arriving[r->next_in]].in <= step; r->next_in++) {
        gap *g = &a->gaps[a->arriving[r->next_in]];
        if (!g->is_dropped) { continue; }
        if (step < a->n) { make_room(r, step, (int64_t)g->bytes); }
        r->absent -= (int64_t)g->bytes;
        g->in_end_ns = 0;
        if (a->again[g->tensor]) {
            r->again_ns += g->begin == 0 ? a->again_ns[g->tensor] : 0;
            continue;
        }
        r->in_ns[g->tier] = g->in_end_ns = fmax(r->in_ns[g->tier], fmax(r->now_ns, g->out_end_ns)) + g->in_ns;
    }
}

/* Wait for what is needed by a step. */
static void wait_for(run *r, uint32_t step) {
    const away *a = r->a;
    for (; r->next_back < r->n_arriving; r->next_back++) {
        const gap *g = &a->gaps[a->returning[r->next_back]];
        if (due(a, g) > step) { break; }
        if (g->is_dropped) { r->now_ns = fmax(r->now_ns, g->in_end_ns); }
    }
}

/* The copies out of what has been made before a place. */
static void copy_out(run *r, uint32_t place) {
    away *a = r->a;
    for (; r->next_out < r->n_arriving && a->gaps[a->leaving[r->next_out]].ready <= place; r->next_out++) {
        gap *g = &a->gaps[a->leaving[r->next_out]];
        g->out = place;
        g->copies_out = !g->has_copy && !a->has_out[g->version] && !a->again[g->tensor];
        a->has_out[g->version] = true;
        g->out_end_ns = 0;
        if (g->copies_out) { r->out_ns[g->tier] = g->out_end_ns = fmax(r->out_ns[g->tier], r->now_ns) + g->out_ns; }
    }
}

/* A tensor whose gap begins in a place may be dropped after that place. */
static void leave(run *r, uint32_t place) {
    away *a = r->a;
    for (; r->n_leaving < r->n_arriving && a->gaps[a->leaving[r->n_leaving]].leave == place; r->n_leaving++) {
        a->gaps[a->leaving[r->n_leaving]].is_dropped = false;
    }
}

static void begin_run(run *r) {
    away *a = r->a;
    for (uint32_t i = 0; i < a->n_gaps; i++) {
        gap *g = &a->gaps[i];
        if (a->chosen[i]) { a->leaving[r->n_leaving++] = i; }
        if (a->chosen[a->by_need[i]]) { a->returning[r->n_arriving++] = a->by_need[i]; }
        g->out_end_ns = 0;
        g->is_dropped = a->chosen[i] && goes_round(a, g);
        r->absent += g->is_dropped ? (int64_t)g->bytes : 0;
    }
    memcpy(a->arriving, a->returning, r->n_arriving * sizeof *a->arriving);
    sort_arriving(r);
    a->n_chosen = r->n_arriving;
}

static void begin_lap(run *r) {
    away *a = r->a;
    r->n_leaving = r->next_in = r->next_back = r->next_out = 0;
    memset(r->next_drop, 0, sizeof r->next_drop);
    for (uint32_t i = 0; i < r->n_arriving; i++) { a->has_out[a->gaps[a->leaving[i]].version] = false; }
    for (uint32_t i = 0; i < r->n_arriving; i++) {
        const gap *g = &a->gaps[a->leaving[i]];
        if (goes_round(a, g)) { a->has_out[g->next_version] = true; }
    }
}

/* A tensor that is away when the iteration ends is dropped at the end at the latest. Times continue from there. */
static void end_lap(run *r) {
    away *a = r->a;
    const uint32_t n = a->n;
    copy_out(r, n);
    arrive(r, n);
    wait_for(r, n);
    for (uint32_t tier; (tier = first_tier(r)) != EBB_MAX_TIERS;) {
        if (goes_round(a, &a->gaps[a->leaving[r->next_drop[tier]]])) {
            drop_next(r, tier, n);
        } else {
            r->next_drop[tier]++;
        }
    }
    for (uint32_t i = 0; i < r->n_arriving; i++) { a->gaps[a->leaving[i]].out_end_ns -= r->now_ns; }
    for (uint32_t t = 0; t < EBB_MAX_TIERS; t++) {
        r->out_ns[t] -= r->now_ns;
        r->in_ns[t] -= r->now_ns;
    }
}

static double run_lap(run *r) {
    away *a = r->a;
    const uint32_t n = a->n;
    r->now_ns = 0;
    begin_lap(r);
    for (uint32_t s = 0; s < n; s++) {
        copy_out(r, s);
        if (a->drops_early) { drop_copied(r, s); }
        make_room(r, s, 0);
        arrive(r, s);
        wait_for(r, s);
        r->now_ns += r->again_ns;
        r->again_ns = 0;
        a->run_ns[s] = r->now_ns;
        r->now_ns += a->begin_ns[s + 1] - a->begin_ns[s];
        leave(r, s);
    }
    end_lap(r);
    a->run_ns[n] = r->now_ns;
    a->n_visits += n;
    return r->now_ns;
}

double ebb__away_run(ebb_away *a) {
    run r = {.a = a};
    time_copies_in(a);
    begin_run(&r);
    (void)run_lap(&r);
    const double time_ns = run_lap(&r);
    untime_copies_in(a);
    return time_ns;
}

/* ---- the draft ---------------------------------------------------------------------------------- */

static ebb_status add_change(const away *a, ebb_changes *changes, ebb_change_kind kind, const gap *g) {
    const uint32_t place[EBB_N_CHANGES] = {
        [EBB_CHANGE_OUT] = g->out, [EBB_CHANGE_DROP] = g->drop, [EBB_CHANGE_IN] = g->in};
    return ebb__changes_add_part(changes, &(ebb_change){.at = a->step[place[kind]],
                                                        .tensor = g->tensor,
                                                        .tier = g->tier,
                                                        .begin = g->begin,
                                                        .size_bytes = g->size_bytes,
                                                        .kind = kind});
}

/* A tensor that is computed again is dropped once, as a whole; its first part stands for all of it. */
static ebb_status drop_whole(const away *a, ebb_changes *changes, const gap *g) {
    if (g->begin > 0) { return EBB_OK; }
    return ebb__changes_add(changes, EBB_CHANGE_DROP, a->step[g->drop], g->tensor, EBB_DEVICE);
}

/* What a gap keeps away is not there where the circle closes. */
static ebb_status leave_at_end(const gap *g, ebb_draft *draft) {
    if (g->size_bytes == EBB_WHOLE) {
        draft->resident[g->tensor] = 0;
        return EBB_OK;
    }
    const ebb_part away_part = {.tensor = g->tensor, .begin = g->begin, .end = g->begin + g->size_bytes};
    return EBB_PUSH(draft->mem, &draft->absent, away_part);
}

/* Copies of one position are in the order of the run. */
static ebb_status list_changes(const away *a, ebb_changes *changes, ebb_draft *draft) {
    for (uint32_t i = 0; i < a->n_chosen; i++) {
        const gap *out = &a->gaps[a->leaving[i]], *in = &a->gaps[a->arriving[i]];
        if (out->copies_out) { EBB_TRY(add_change(a, changes, EBB_CHANGE_OUT, out)); }
        if (!in->is_dropped) { continue; }
        if (a->again[in->tensor]) {
            EBB_TRY(drop_whole(a, changes, in));
            continue;
        }
        EBB_TRY(add_change(a, changes, EBB_CHANGE_DROP, in));
        EBB_TRY(add_change(a, changes, EBB_CHANGE_IN, in));
        if (in->has_copy || goes_round(a, in)) { draft->home[in->tensor] = (uint8_t)in->tier; }
        if (goes_round(a, in)) { EBB_TRY(leave_at_end(in, draft)); }
    }
    return ebb__changes_sort(changes);
}

/* After a step, drop the tensors that nothing needs any more, or that are overwritten next. */
static ebb_status draft_step(const away *a, const ebb_uses *uses, uint64_t *next_use, uint32_t s, ebb_draft *draft) {
    const ebb_step *step = &a->view.steps[s];
    EBB_TRY(ebb__draft_step(draft, EBB_ACT_RUN, s, ebb__choice_of(a->input->choice, s)));
    for (uint32_t i = 0; i < step->n_accesses; i++) {
        const uint32_t t = a->view.accesses[step->first_access + i].tensor;
        const uint64_t next = ++next_use[t];
        const bool is_dead = next < uses->start[t + 1] ? uses->use[next].mode == EBB_WRITE : !lasts(a, t);
        const bool is_at_once = next < uses->start[t + 1] && uses->use[next].step == s + 1;
        if (is_dead && !is_at_once) { EBB_TRY(ebb__draft_tensor(draft, EBB_ACT_DROP, t, EBB_DEVICE, EBB_DRAFT_FIXED)); }
    }
    return EBB_OK;
}

/* Compute again what has to be back for a step. arriving is by `in`, which is the need of these. */
static ebb_status draft_again(const away *a, const ebb_uses *uses, uint32_t s, uint32_t *next, ebb_draft *draft) {
    for (; *next < a->n_chosen && a->step[a->gaps[a->arriving[*next]].in] <= s; (*next)++) {
        const gap *g = &a->gaps[a->arriving[*next]];
        if (!a->again[g->tensor] || !g->is_dropped || g->begin > 0) { continue; }
        for (uint64_t u = uses->start[g->tensor]; uses->use[u].mode != EBB_READ; u++) {
            const uint32_t step = uses->use[u].step;
            EBB_TRY(ebb__draft_step(draft, EBB_ACT_AGAIN, step, ebb__choice_of(a->input->choice, step)));
        }
    }
    return EBB_OK;
}

static ebb_status draft_all(away *a, ebb_changes *changes, ebb_draft *draft) {
    ebb_uses uses;
    uint32_t next_again = 0;
    EBB_TRY(ebb__program_uses(a->input->program, &a->bump, &uses));
    uint64_t *next_use = ebb__bump_alloc(&a->bump, a->view.n_tensors, sizeof *next_use);
    if (next_use == NULL) { return EBB_E_NO_MEMORY; }
    for (size_t t = 0; t < a->view.n_tensors; t++) { next_use[t] = uses.start[t]; }
    EBB_TRY(list_changes(a, changes, draft));
    for (uint32_t s = 0; s < a->view.n_steps; s++) {
        EBB_TRY(ebb__changes_draft(changes, s, draft));
        EBB_TRY(draft_again(a, &uses, s, &next_again, draft));
        EBB_TRY(draft_step(a, &uses, next_use, s, draft));
    }
    return ebb__changes_draft(changes, a->view.n_steps, draft);
}

ebb_status ebb__away_draft(ebb_away *a, ebb_draft *draft) {
    ebb_changes changes = {.mem = a->input->mem};
    const ebb_status st = draft_all(a, &changes, draft);
    ebb__changes_fini(&changes);
    return st;
}
