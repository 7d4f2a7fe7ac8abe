/* SPDX-License-Identifier: Apache-2.0
 *
 * Choosing gap by gap, and the plan of the choices: see joint.h.
 */
#include "plan/joint.h"

#include <math.h>

#define MAX_ROUNDS 8
#define MAX_LINEAGE 64u

static const ebb_choice *chosen(const ebb_joint *j, uint32_t s) {
    return &j->r.view.choices[j->r.view.steps[s].first_choice + ebb__choice_of(j->input->choice, s)];
}

static double step_ns(const ebb_joint *j, uint32_t s) {
    return (double)ebb_machine_step_time_ns(j->input->machine, chosen(j, s));
}

/* ---- gaps -------------------------------------------------------------------------------------- */

static void find_way(const ebb_joint *j, ebb_gap *gap) {
    const uint64_t bytes = j->r.view.tensors[gap->tensor].size_bytes;
    gap->out_ns = gap->in_ns = INFINITY;
    gap->tier = ebb__pick_tier(j->input, j->used_bytes, gap->bytes);
    if (gap->tier == EBB_MAX_TIERS) { return; }
    gap->out_ns = (double)ebb_machine_copy_time_ns(j->input->machine, EBB_DEVICE, gap->tier, bytes);
    gap->in_ns = (double)ebb_machine_copy_time_ns(j->input->machine, gap->tier, EBB_DEVICE, bytes);
}

static ebb_status add_gaps(ebb_joint *j, uint32_t t) {
    const ebb_tensor *tensor = &j->r.view.tensors[t];
    const uint64_t first = j->r.uses.start[t], end = j->r.uses.start[t + 1];
    j->last_use[t] = end > first ? j->r.uses.use[end - 1].step : 0;
    for (uint64_t u = first + 1; !tensor->persistent && !tensor->kept && u < end; u++) {
        const ebb_use *before = &j->r.uses.use[u - 1], *use = &j->r.uses.use[u];
        if (use->mode == EBB_WRITE || use->step <= before->step + 1) { continue; }
        const bool is_turn = ebb__remake_is_forward(&j->r, before->step) && !ebb__remake_is_forward(&j->r, use->step);
        ebb_gap gap = {.tensor = t,
                       .leave = before->step,
                       .need = use->step,
                       .bytes = ebb_align_up(tensor->size_bytes, j->r.view.alignment),
                       .may_remake = is_turn && j->r.can_drop[t] && !j->input->copies_only};
        EBB_TRY(EBB_PUSH(j->input->mem, &j->gaps, gap));
    }
    return EBB_OK;
}

static uint64_t smallness(const void *item) {
    return UINT64_MAX - ((const ebb_gap *)item)->bytes;
}

static ebb_status find_gaps(ebb_joint *j) {
    for (uint32_t t = 0; t < j->r.view.n_tensors; t++) { EBB_TRY(add_gaps(j, t)); }
    if (j->gaps.n <= EBB_JOINT_MAX_GAPS) { return EBB_OK; }
    EBB_TRY(ebb__sort_items(j->input->mem, j->gaps.data, j->gaps.n, sizeof *j->gaps.data, smallness));
    j->gaps.n = EBB_JOINT_MAX_GAPS;
    return EBB_OK;
}

/* ---- what a choice costs ----------------------------------------------------------------------- */

double ebb__joint_free_ns(const ebb_joint *j, const ebb_gap *gap) {
    const double gone_ns = fmax(j->begin_ns[gap->leave + 1], j->out_free_ns[gap->leave]) + gap->out_ns;
    const double back_ns = fmin(j->begin_ns[gap->need], j->in_begin_ns[gap->need]) - gap->in_ns;
    return back_ns - gone_ns;
}

static void note_links(ebb_joint *j) {
    const size_t n = j->r.view.n_steps;
    double free_ns = 0, begin_ns = INFINITY;
    for (size_t s = 0; s < n; s++) { j->out_free_ns[s] = j->in_begin_ns[s] = 0; }
    for (size_t i = 0; i < j->gaps.n; i++) {
        const ebb_gap *gap = &j->gaps.data[i];
        if (gap->fate != EBB_FATE_SWAPPED) { continue; }
        j->out_free_ns[gap->leave] += gap->out_ns;
        j->in_begin_ns[gap->need] += gap->in_ns;
    }
    for (size_t s = 0; s < n; s++) {
        if (j->out_free_ns[s] > 0) { free_ns = fmax(free_ns, j->begin_ns[s + 1]) + j->out_free_ns[s]; }
        j->out_free_ns[s] = free_ns;
    }
    for (size_t s = n; s-- > 0;) {
        if (j->in_begin_ns[s] > 0) { begin_ns = fmin(begin_ns, j->begin_ns[s]) - j->in_begin_ns[s]; }
        j->in_begin_ns[s] = begin_ns;
    }
}

static void open_tensor(ebb_joint *j, uint32_t t) {
    if (j->mark[t] == j->n_marks) { return; }
    j->mark[t] = j->n_marks;
    j->status = j->status == EBB_OK ? EBB_PUSH(j->input->mem, &j->open, t) : j->status;
}

/* All tensors that have to be made to have that of a gap again, in j->open; false: one cannot be. */
static bool find_lineage(ebb_joint *j, const ebb_gap *gap) {
    const ebb_remake *r = &j->r;
    j->open.n = 0;
    j->n_marks++;
    open_tensor(j, gap->tensor);
    for (size_t i = 0; i < j->open.n && j->status == EBB_OK; i++) {
        const uint32_t t = j->open.data[i];
        if (j->open.n > MAX_LINEAGE) { return false; }
        for (uint64_t u = r->uses.start[t]; u < r->makers_end[t]; u++) {
            const ebb_step *step = &r->view.steps[r->uses.use[u].step];
            for (uint32_t k = 0; (r->uses.use[u].mode & EBB_WRITE) != 0 && k < step->n_accesses; k++) {
                const ebb_access *access = &r->view.accesses[step->first_access + k];
                const uint32_t x = access->tensor;
                const bool stays = r->view.tensors[x].persistent || r->view.tensors[x].kept;
                if ((access->mode & EBB_READ) == 0 || x == t || stays) { continue; }
                const bool is_gone = r->is_dropped[x] || j->last_use[x] < gap->need;
                if (is_gone && !r->can_drop[x]) { return false; }
                if (is_gone) { open_tensor(j, x); }
            }
        }
    }
    return j->status == EBB_OK;
}

double ebb__joint_again_ns(ebb_joint *j, const ebb_gap *gap) {
    double sum_ns = 0;
    if (!gap->may_remake || !find_lineage(j, gap)) { return INFINITY; }
    for (size_t i = 0; i < j->open.n; i++) {
        const uint32_t t = j->open.data[i];
        for (uint64_t u = j->r.uses.start[t]; u < j->r.makers_end[t]; u++) {
            const ebb_use *use = &j->r.uses.use[u];
            if ((use->mode & EBB_WRITE) != 0) { sum_ns += step_ns(j, use->step); }
        }
    }
    return sum_ns;
}

/* ---- choosing ---------------------------------------------------------------------------------- */

static void apply(ebb_joint *j, const ebb_joint_choice *choice) {
    ebb_gap *gap = &j->gaps.data[choice->gap];
    EBB_ASSERT(gap->fate == EBB_FATE_STAYS);
    gap->fate = choice->is_remade ? EBB_FATE_REMADE : EBB_FATE_SWAPPED;
    for (uint32_t s = gap->leave + 1; s < gap->need; s++) { j->load[s] -= gap->bytes; }
    if (choice->is_remade) {
        if (!find_lineage(j, gap)) { return; }
        for (size_t i = 0; i < j->open.n; i++) { j->r.is_dropped[j->open.data[i]] = true; }
        return;
    }
    j->used_bytes[gap->tier] += gap->bytes;
    note_links(j);
    for (size_t i = 0; i < j->gaps.n; i++) {
        if (j->gaps.data[i].fate == EBB_FATE_STAYS) { find_way(j, &j->gaps.data[i]); }
    }
}

static uint32_t find_peak(const ebb_joint *j) {
    uint32_t peak = 0;
    for (uint32_t s = 1; s < j->r.view.n_steps; s++) { peak = j->load[s] > j->load[peak] ? s : peak; }
    return peak;
}

/* Whether a step needs more than aim_bytes even with every tensor away that may be. */
static bool is_hopeless(const ebb_joint *j, uint64_t aim_bytes, uint64_t *away) {
    const size_t n = j->r.view.n_steps;
    uint64_t sum = 0;
    memset(away, 0, (n + 1) * sizeof *away);
    for (size_t i = 0; i < j->gaps.n; i++) { /* differences from step to step, which may wrap */
        const ebb_gap *gap = &j->gaps.data[i];
        if (gap->fate != EBB_FATE_STAYS) { continue; }
        away[gap->leave + 1] += gap->bytes;
        away[gap->need] -= gap->bytes;
    }
    for (size_t s = 0; s < n; s++) {
        sum += away[s];
        if (j->load[s] - sum > aim_bytes) { return true; }
    }
    return false;
}

/* Ask the rule for choices until no step needs more than aim_bytes. */
static ebb_status choose(ebb_joint *j, ebb_joint_rule rule, uint64_t aim_bytes) {
    for (;;) {
        const uint32_t peak = find_peak(j);
        if (j->load[peak] <= aim_bytes) { return EBB_OK; }
        const ebb_joint_choice choice = rule(j, peak);
        if (j->status != EBB_OK) { return j->status; }
        if (choice.gap == SIZE_MAX) { return EBB_E_NO_FIT; }
        apply(j, &choice);
        if (j->status != EBB_OK) { return j->status; }
    }
}

/* ---- the plan of the choices ------------------------------------------------------------------- */

typedef struct building {
    ebb_joint *j;
    ebb_remake r; /* of the choices */
    ebb_sequence *sequence;
    double *begin_ns; /* [n_computes + 1] */
    uint64_t *load;   /* [n_computes] */
    size_t *run_at;   /* [n_steps] */
    size_t *order;    /* gaps that are copied */
    size_t n_swapped;
    ebb_absence *absences; /* [n_swapped] */
    size_t *need_at;       /* [n_swapped] */
} building;

static ebb_status build_computes(building *b) {
    EBB_TRY(ebb__remake_init(&b->r, b->j->input));
    for (uint32_t t = 0; t < b->r.view.n_tensors; t++) { b->r.is_dropped[t] = b->j->r.is_dropped[t]; }
    EBB_TRY(ebb__remake_find_segments(&b->r));
    b->sequence->computes.n = b->sequence->absences.n = 0;
    EBB_TRY(ebb__remake_sequence(&b->r, b->sequence));
    const size_t n = b->sequence->computes.n;
    b->begin_ns = ebb__bump_alloc(&b->r.bump, n + 1, sizeof *b->begin_ns);
    b->run_at = ebb__bump_alloc(&b->r.bump, b->r.view.n_steps, sizeof *b->run_at);
    if (b->begin_ns == NULL || b->run_at == NULL) { return EBB_E_NO_MEMORY; }
    b->begin_ns[0] = 0;
    for (size_t c = 0; c < n; c++) {
        const ebb_compute *compute = &b->sequence->computes.data[c];
        b->begin_ns[c + 1] = b->begin_ns[c] + step_ns(b->j, compute->step);
        if (!compute->is_again) { b->run_at[compute->step] = c; }
    }
    return ebb__sequence_load(b->sequence, b->j->input, &b->r.bump, &b->load);
}

/* How a computation accesses a tensor; 0: not at all. */
static uint32_t mode_of(const building *b, size_t c, uint32_t t) {
    const ebb_step *step = &b->r.view.steps[b->sequence->computes.data[c].step];
    for (uint32_t i = 0; i < step->n_accesses; i++) {
        const ebb_access *access = &b->r.view.accesses[step->first_access + i];
        if (access->tensor == t) { return access->mode; }
    }
    return 0;
}

/* Whether a computation makes a tensor anew, so that it need not be there before. */
static bool makes(const building *b, size_t c, uint32_t t) {
    return mode_of(b, c, t) == EBB_WRITE;
}

/* The computation that needs a gap's tensor: its second use, or one before that is run again and touches it. */
static size_t find_need(const building *b, const ebb_gap *gap) {
    size_t c = b->run_at[gap->leave] + 1;
    while (c < b->run_at[gap->need] && !(b->sequence->computes.data[c].is_again && mode_of(b, c, gap->tensor) != 0)) {
        c++;
    }
    return c;
}

/* Sort what is copied, by leave or, from the last, by what needs it. */
typedef struct key {
    uint64_t key;
    size_t gap;
} key;

static uint64_t key_of(const void *item) {
    return ((const key *)item)->key;
}

static ebb_status sort_gaps(const building *b, bool by_need, key *keys) {
    for (size_t i = 0; i < b->n_swapped; i++) {
        const ebb_gap *gap = &b->j->gaps.data[b->order[i]];
        keys[i] = (key){.gap = i, .key = by_need ? UINT64_MAX - b->need_at[i] : gap->leave};
    }
    return ebb__sort_items(b->j->input->mem, keys, b->n_swapped, sizeof *keys, key_of);
}

static void schedule_outs(building *b, const key *keys) {
    const uint64_t limit = b->j->input->limit_bytes;
    double free_ns = 0;
    for (size_t i = 0; i < b->n_swapped; i++) {
        const ebb_gap *gap = &b->j->gaps.data[b->order[keys[i].gap]];
        ebb_absence *absence = &b->absences[keys[i].gap];
        const size_t need = b->need_at[keys[i].gap];
        absence->out = b->run_at[gap->leave] + 1;
        free_ns = fmax(free_ns, b->begin_ns[absence->out]) + gap->out_ns;
        size_t c = absence->out;
        while (c < need && b->begin_ns[c] < free_ns && b->load[c] <= limit) { c++; }
        free_ns = fmax(free_ns, b->begin_ns[c]);
        absence->drop = c;
        for (; c < need; c++) { b->load[c] -= gap->bytes; }
    }
}

static void schedule_ins(building *b, const key *keys) {
    const uint64_t limit = b->j->input->limit_bytes;
    double begin_ns = INFINITY;
    for (size_t i = 0; i < b->n_swapped; i++) {
        const ebb_gap *gap = &b->j->gaps.data[b->order[keys[i].gap]];
        ebb_absence *absence = &b->absences[keys[i].gap];
        size_t c = b->need_at[keys[i].gap];
        begin_ns = fmin(begin_ns, b->begin_ns[c]) - gap->in_ns;
        while (c > absence->drop && b->begin_ns[c] > begin_ns && b->load[c - 1] + gap->bytes <= limit) {
            c--;
            b->load[c] += gap->bytes;
        }
        absence->in = c;
        begin_ns = fmax(begin_ns, b->begin_ns[c]);
    }
}

static ebb_status build_absences(building *b) {
    ebb_joint *j = b->j;
    b->order = ebb__bump_alloc(&b->r.bump, j->gaps.n, sizeof *b->order);
    b->absences = ebb__bump_alloc(&b->r.bump, j->gaps.n, sizeof *b->absences);
    b->need_at = ebb__bump_alloc(&b->r.bump, j->gaps.n, sizeof *b->need_at);
    key *keys = ebb__bump_alloc(&b->r.bump, j->gaps.n, sizeof *keys);
    if (b->order == NULL || b->absences == NULL || b->need_at == NULL || keys == NULL) { return EBB_E_NO_MEMORY; }
    for (size_t i = 0; i < j->gaps.n; i++) {
        const ebb_gap *gap = &j->gaps.data[i];
        const size_t need = gap->fate == EBB_FATE_SWAPPED ? find_need(b, gap) : SIZE_MAX;
        if (need == SIZE_MAX || makes(b, need, gap->tensor)) { continue; } /* it is dropped, and not brought back */
        b->need_at[b->n_swapped] = need;
        b->absences[b->n_swapped] = (ebb_absence){.tensor = gap->tensor, .tier = gap->tier};
        b->order[b->n_swapped++] = i;
    }
    EBB_TRY(sort_gaps(b, false, keys));
    schedule_outs(b, keys);
    EBB_TRY(sort_gaps(b, true, keys));
    schedule_ins(b, keys);
    for (size_t i = 0; i < b->n_swapped; i++) {
        if (b->absences[i].drop >= b->absences[i].in) { continue; }
        EBB_TRY(EBB_PUSH(b->sequence->mem, &b->sequence->absences, b->absences[i]));
    }
    return EBB_OK;
}

/* *peak_out: the load of the plan. */
static ebb_status build(ebb_joint *j, ebb_sequence *sequence, uint64_t *peak_out) {
    building b = {.j = j, .sequence = sequence};
    ebb_status status = build_computes(&b);
    if (status == EBB_OK) { status = build_absences(&b); }
    if (status == EBB_OK) { status = ebb__sequence_peak(sequence, j->input, peak_out); }
    ebb__remake_fini(&b.r);
    return status;
}

/* ---- drafting ---------------------------------------------------------------------------------- */

static ebb_status set_up(ebb_joint *j) {
    ebb_sequence all;
    const size_t n = j->r.view.n_steps;
    j->begin_ns = ebb__bump_alloc(&j->bump, n + 1, sizeof *j->begin_ns);
    j->out_free_ns = ebb__bump_alloc(&j->bump, n, sizeof *j->out_free_ns);
    j->in_begin_ns = ebb__bump_alloc(&j->bump, n, sizeof *j->in_begin_ns);
    j->last_use = ebb__bump_alloc(&j->bump, j->r.view.n_tensors, sizeof *j->last_use);
    j->mark = ebb__bump_alloc(&j->bump, j->r.view.n_tensors, sizeof *j->mark);
    if (j->begin_ns == NULL || j->out_free_ns == NULL || j->in_begin_ns == NULL || j->last_use == NULL ||
        j->mark == NULL) {
        return EBB_E_NO_MEMORY;
    }
    memset(j->mark, 0, j->r.view.n_tensors * sizeof *j->mark);
    j->begin_ns[0] = 0;
    for (uint32_t s = 0; s < n; s++) { j->begin_ns[s + 1] = j->begin_ns[s] + step_ns(j, s); }
    EBB_TRY(find_gaps(j));
    for (size_t i = 0; i < j->gaps.n; i++) { find_way(j, &j->gaps.data[i]); }
    note_links(j);
    ebb__sequence_init(&all, j->input->mem);
    ebb_policy_input in_order = *j->input;
    in_order.order = NULL;
    ebb_status status = ebb__sequence_all(&all, &in_order);
    if (status == EBB_OK) { status = ebb__sequence_load(&all, &in_order, &j->bump, &j->load); }
    ebb__sequence_fini(&all);
    return status;
}

static ebb_status find_plan(ebb_joint *j, ebb_joint_rule rule, ebb_sequence *sequence) {
    const uint64_t limit = j->input->limit_bytes;
    uint64_t aim_bytes = limit;
    EBB_TRY(set_up(j));
    uint64_t *away = ebb__bump_alloc(&j->bump, (size_t)j->r.view.n_steps + 1, sizeof *away);
    if (away == NULL) { return EBB_E_NO_MEMORY; }
    for (int round = 0; round < MAX_ROUNDS; round++) {
        uint64_t peak_bytes = 0;
        if (is_hopeless(j, aim_bytes, away)) { return EBB_E_NO_FIT; }
        EBB_TRY(choose(j, rule, aim_bytes));
        EBB_TRY(build(j, sequence, &peak_bytes));
        if (peak_bytes <= limit) { return EBB_OK; }
        if (peak_bytes - limit >= aim_bytes) { return EBB_E_NO_FIT; }
        aim_bytes -= peak_bytes - limit;
    }
    return EBB_E_NO_FIT;
}

ebb_status ebb__joint_draft(const ebb_policy_input *input, ebb_joint_rule rule, ebb_draft *draft) {
    ebb_joint j = {.input = input};
    ebb_sequence sequence;
    ebb__bump_init(&j.bump, input->mem);
    ebb__sequence_init(&sequence, input->mem);
    ebb_status status = ebb__remake_init(&j.r, input);
    if (status == EBB_OK) { status = find_plan(&j, rule, &sequence); }
    if (status == EBB_OK) { status = ebb__sequence_draft(&sequence, input, draft); }
    ebb__sequence_fini(&sequence);
    EBB_VEC_FINI(input->mem, &j.gaps);
    EBB_VEC_FINI(input->mem, &j.open);
    ebb__remake_fini(&j.r);
    ebb__bump_fini(&j.bump);
    return status;
}
