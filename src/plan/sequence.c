/* SPDX-License-Identifier: Apache-2.0
 *
 * From computations and absences to a draft. Linear in the accesses of the computations, and in the absences but for
 * sorting them.
 */
#include "plan/sequence.h"

void ebb__sequence_init(ebb_sequence *sequence, const ebb_mem *mem) {
    *sequence = (ebb_sequence){.mem = mem};
}

void ebb__sequence_fini(ebb_sequence *sequence) {
    EBB_VEC_FINI(sequence->mem, &sequence->computes);
    EBB_VEC_FINI(sequence->mem, &sequence->absences);
}

ebb_status ebb__sequence_compute(ebb_sequence *sequence, uint32_t step, bool is_again) {
    return EBB_PUSH(sequence->mem, &sequence->computes, ((ebb_compute){.step = step, .is_again = is_again}));
}

ebb_status ebb__sequence_all(ebb_sequence *sequence, const ebb_policy_input *input) {
    size_t n_steps = 0;
    (void)ebb_program_steps(input->program, &n_steps);
    for (size_t at = 0; at < n_steps; at++) {
        EBB_TRY(ebb__sequence_compute(sequence, ebb__step_at(input, at), false));
    }
    return EBB_OK;
}

ebb_status ebb__sequence_find_drops(const ebb_sequence *sequence, const ebb_program_view *view, ebb_bump *bump,
                                    uint64_t **first_out, bool **drops_out) {
    const size_t n = sequence->computes.n;
    uint64_t *first = ebb__bump_alloc(bump, n + 1, sizeof *first);
    bool *is_needed = ebb__bump_alloc(bump, view->n_tensors, sizeof *is_needed);
    if (first == NULL || is_needed == NULL) { return EBB_E_NO_MEMORY; }
    first[0] = 0;
    for (size_t c = 0; c < n; c++) {
        first[c + 1] = first[c] + view->steps[sequence->computes.data[c].step].n_accesses;
    }
    bool *drops = ebb__bump_alloc(bump, first[n], sizeof *drops);
    if (drops == NULL) { return EBB_E_NO_MEMORY; }
    for (size_t t = 0; t < view->n_tensors; t++) {
        is_needed[t] = view->tensors[t].persistent || view->tensors[t].kept;
    }
    for (size_t c = n; c-- > 0;) {
        const ebb_step *step = &view->steps[sequence->computes.data[c].step];
        for (uint32_t i = 0; i < step->n_accesses; i++) {
            const ebb_access *access = &view->accesses[step->first_access + i];
            const ebb_tensor *tensor = &view->tensors[access->tensor];
            drops[first[c] + i] = !is_needed[access->tensor];
            is_needed[access->tensor] = tensor->persistent || tensor->kept || access->mode != EBB_WRITE;
        }
    }
    *first_out = first;
    *drops_out = drops;
    return EBB_OK;
}

/* ---- loads ------------------------------------------------------------------------------------- */

/* As changes: tensors come with the computation that first touches them, and leave after the one that drops them. */
static ebb_status add_stays(const ebb_sequence *sequence, const ebb_program_view *view, ebb_bump *bump,
                            uint64_t *change) {
    uint64_t *first = NULL;
    bool *drops = NULL;
    bool *is_here = ebb__bump_alloc(bump, view->n_tensors, sizeof *is_here);
    if (is_here == NULL) { return EBB_E_NO_MEMORY; }
    EBB_TRY(ebb__sequence_find_drops(sequence, view, bump, &first, &drops));
    for (size_t t = 0; t < view->n_tensors; t++) {
        is_here[t] = view->tensors[t].persistent;
        if (is_here[t]) { change[0] += ebb_align_up(view->tensors[t].size_bytes, view->alignment); }
    }
    for (size_t c = 0; c < sequence->computes.n; c++) {
        const ebb_step *step = &view->steps[sequence->computes.data[c].step];
        for (uint32_t i = 0; i < step->n_accesses; i++) {
            const uint32_t t = view->accesses[step->first_access + i].tensor;
            const uint64_t bytes = ebb_align_up(view->tensors[t].size_bytes, view->alignment);
            if (!is_here[t]) { change[c] += bytes; }
            is_here[t] = !drops[first[c] + i];
            if (!is_here[t]) { change[c + 1] -= bytes; }
        }
    }
    return EBB_OK;
}

ebb_status ebb__sequence_load(const ebb_sequence *sequence, const ebb_policy_input *input, ebb_bump *bump,
                              uint64_t **load_out) {
    const ebb_program_view view = ebb__plan_view(input->program);
    const size_t n = sequence->computes.n;
    uint64_t *load = ebb__bump_alloc(bump, n + 1, sizeof *load), there = 0;
    if (load == NULL) { return EBB_E_NO_MEMORY; }
    memset(load, 0, (n + 1) * sizeof *load);
    EBB_TRY(add_stays(sequence, &view, bump, load));
    for (size_t i = 0; i < sequence->absences.n; i++) {
        const ebb_absence *absence = &sequence->absences.data[i];
        const uint64_t bytes = ebb_align_up(view.tensors[absence->tensor].size_bytes, view.alignment);
        load[absence->drop] -= bytes;
        load[absence->in] += bytes;
    }
    for (size_t c = 0; c < n; c++) {
        const uint32_t s = sequence->computes.data[c].step;
        const ebb_choice *choice = &view.choices[view.steps[s].first_choice + ebb__choice_of(input->choice, s)];
        there += load[c];
        load[c] = there + ebb_align_up(choice->scratch_bytes, view.alignment);
    }
    *load_out = load;
    return EBB_OK;
}

ebb_status ebb__sequence_peak(const ebb_sequence *sequence, const ebb_policy_input *input, uint64_t *peak_out) {
    ebb_bump bump;
    uint64_t *load = NULL, peak_bytes = 0;
    ebb__bump_init(&bump, input->mem);
    const ebb_status status = ebb__sequence_load(sequence, input, &bump, &load);
    for (size_t c = 0; status == EBB_OK && c < sequence->computes.n; c++) {
        peak_bytes = ebb_max_u64(peak_bytes, load[c]);
    }
    ebb__bump_fini(&bump);
    if (status == EBB_OK) { *peak_out = peak_bytes; }
    return status;
}

/* ---- drafting ----------------------------------------------------------------------------------- */

typedef enum move_kind { MOVE_OUT, MOVE_DROP, MOVE_IN, N_MOVES } move_kind;

/* One end of an absence, as a key to sort by: position, then kind, then number. */
typedef struct move {
    uint64_t at;
    uint32_t absence;
    uint32_t kind;
} move;

typedef struct drafting {
    const ebb_sequence *sequence;
    const ebb_policy_input *input;
    ebb_program_view view;
    ebb_draft *draft;
    ebb_bump bump;
    EBB_VEC(move) moves;
    size_t next; /* of moves */
} drafting;

static uint64_t key_of(const void *item) {
    const move *m = item;
    return m->at * N_MOVES + m->kind;
}

static ebb_status add_move(drafting *d, uint32_t absence, move_kind kind, uint64_t at) {
    return EBB_PUSH(d->input->mem, &d->moves, ((move){.at = at, .absence = absence, .kind = kind}));
}

static ebb_status sort_moves(drafting *d) {
    for (uint32_t i = 0; i < d->sequence->absences.n; i++) {
        const ebb_absence *a = &d->sequence->absences.data[i];
        EBB_ASSERT((a->out == EBB_NO_OUT || a->out <= a->drop) && a->drop < a->in);
        EBB_ASSERT(a->in < d->sequence->computes.n && !d->view.tensors[a->tensor].persistent);
        if (a->out != EBB_NO_OUT) { EBB_TRY(add_move(d, i, MOVE_OUT, a->out)); }
        EBB_TRY(add_move(d, i, MOVE_DROP, a->drop));
        EBB_TRY(add_move(d, i, MOVE_IN, a->in));
    }
    return ebb__sort_items(d->input->mem, d->moves.data, d->moves.n, sizeof *d->moves.data, key_of);
}

static ebb_status draft_moves(drafting *d, uint64_t at) {
    static const ebb_action_kind kinds[] = {
        [MOVE_OUT] = EBB_ACT_OUT, [MOVE_DROP] = EBB_ACT_DROP, [MOVE_IN] = EBB_ACT_IN};
    for (; d->next < d->moves.n && d->moves.data[d->next].at == at; d->next++) {
        const move *m = &d->moves.data[d->next];
        const ebb_absence *a = &d->sequence->absences.data[m->absence];
        const uint32_t tier = m->kind == MOVE_DROP ? EBB_DEVICE : a->tier;
        EBB_TRY(ebb__draft_tensor(d->draft, kinds[m->kind], a->tensor, tier, EBB_DRAFT_FIXED));
    }
    return EBB_OK;
}

static ebb_status draft_all(drafting *d) {
    uint64_t *first = NULL;
    bool *drops = NULL;
    EBB_TRY(sort_moves(d));
    EBB_TRY(ebb__sequence_find_drops(d->sequence, &d->view, &d->bump, &first, &drops));
    for (size_t c = 0; c < d->sequence->computes.n; c++) {
        const ebb_compute *compute = &d->sequence->computes.data[c];
        const ebb_step *step = &d->view.steps[compute->step];
        const uint32_t choice = ebb__choice_of(d->input->choice, compute->step);
        EBB_TRY(draft_moves(d, c));
        EBB_TRY(ebb__draft_step(d->draft, compute->is_again ? EBB_ACT_AGAIN : EBB_ACT_RUN, compute->step, choice));
        for (uint32_t i = 0; i < step->n_accesses; i++) {
            if (!drops[first[c] + i]) { continue; }
            const uint32_t t = d->view.accesses[step->first_access + i].tensor;
            EBB_TRY(ebb__draft_tensor(d->draft, EBB_ACT_DROP, t, EBB_DEVICE, EBB_DRAFT_FIXED));
        }
    }
    EBB_ASSERT(d->next == d->moves.n);
    return EBB_OK;
}

ebb_status ebb__sequence_draft(const ebb_sequence *sequence, const ebb_policy_input *input, ebb_draft *draft) {
    drafting d = {.sequence = sequence, .input = input, .view = ebb__plan_view(input->program), .draft = draft};
    ebb__bump_init(&d.bump, input->mem);
    const ebb_status status = draft_all(&d);
    EBB_VEC_FINI(input->mem, &d.moves);
    ebb__bump_fini(&d.bump);
    return status;
}
