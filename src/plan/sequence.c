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

/* ---- copies and drops at positions -------------------------------------------------------------- */

void ebb__changes_fini(ebb_changes *changes) {
    EBB_VEC_FINI(changes->mem, &changes->list);
}

ebb_status ebb__changes_add(ebb_changes *changes, ebb_change_kind kind, uint64_t at, uint32_t tensor, uint32_t tier) {
    const ebb_change whole = {.at = at, .tensor = tensor, .tier = tier, .size_bytes = EBB_WHOLE, .kind = kind};
    return ebb__changes_add_part(changes, &whole);
}

ebb_status ebb__changes_add_part(ebb_changes *changes, const ebb_change *change) {
    return EBB_PUSH(changes->mem, &changes->list, *change);
}

static uint64_t key_of(const void *item) {
    const ebb_change *change = item;
    return change->at * EBB_N_CHANGES + change->kind;
}

ebb_status ebb__changes_sort(ebb_changes *changes) {
    return ebb__sort_items(changes->mem, changes->list.data, changes->list.n, sizeof *changes->list.data, key_of);
}

ebb_status ebb__changes_draft(ebb_changes *changes, uint64_t at, ebb_draft *draft) {
    static const ebb_action_kind kinds[EBB_N_CHANGES] = {
        [EBB_CHANGE_OUT] = EBB_ACT_OUT, [EBB_CHANGE_DROP] = EBB_ACT_DROP, [EBB_CHANGE_IN] = EBB_ACT_IN};
    for (; changes->next < changes->list.n && changes->list.data[changes->next].at == at; changes->next++) {
        const ebb_change *change = &changes->list.data[changes->next];
        const ebb_action action = {.kind = kinds[change->kind],
                                   .target = change->tensor,
                                   .tier = change->kind == EBB_CHANGE_DROP ? EBB_DEVICE : (uint16_t)change->tier,
                                   .begin = change->begin,
                                   .size_bytes = change->size_bytes};
        EBB_TRY(ebb__draft_add(draft, &action, EBB_DRAFT_FIXED));
    }
    return EBB_OK;
}

/* ---- drafting ----------------------------------------------------------------------------------- */

typedef struct drafting {
    const ebb_sequence *sequence;
    const ebb_policy_input *input;
    ebb_program_view view;
    ebb_draft *draft;
    ebb_bump bump;
    ebb_changes changes;
} drafting;

static ebb_status list_changes(drafting *d) {
    for (uint32_t i = 0; i < d->sequence->absences.n; i++) {
        const ebb_absence *a = &d->sequence->absences.data[i];
        EBB_ASSERT((a->out == EBB_NO_OUT || a->out <= a->drop) && a->drop < a->in);
        EBB_ASSERT(a->in < d->sequence->computes.n && !d->view.tensors[a->tensor].persistent);
        if (a->out != EBB_NO_OUT) {
            EBB_TRY(ebb__changes_add(&d->changes, EBB_CHANGE_OUT, a->out, a->tensor, a->tier));
        }
        EBB_TRY(ebb__changes_add(&d->changes, EBB_CHANGE_DROP, a->drop, a->tensor, a->tier));
        EBB_TRY(ebb__changes_add(&d->changes, EBB_CHANGE_IN, a->in, a->tensor, a->tier));
    }
    return ebb__changes_sort(&d->changes);
}

static ebb_status draft_all(drafting *d) {
    uint64_t *first = NULL;
    bool *drops = NULL;
    EBB_TRY(list_changes(d));
    EBB_TRY(ebb__sequence_find_drops(d->sequence, &d->view, &d->bump, &first, &drops));
    for (size_t c = 0; c < d->sequence->computes.n; c++) {
        const ebb_compute *compute = &d->sequence->computes.data[c];
        const ebb_step *step = &d->view.steps[compute->step];
        const uint32_t choice = ebb__choice_of(d->input->choice, compute->step);
        EBB_TRY(ebb__changes_draft(&d->changes, c, d->draft));
        EBB_TRY(ebb__draft_step(d->draft, compute->is_again ? EBB_ACT_AGAIN : EBB_ACT_RUN, compute->step, choice));
        for (uint32_t i = 0; i < step->n_accesses; i++) {
            if (!drops[first[c] + i]) { continue; }
            const uint32_t t = d->view.accesses[step->first_access + i].tensor;
            EBB_TRY(ebb__draft_tensor(d->draft, EBB_ACT_DROP, t, EBB_DEVICE, EBB_DRAFT_FIXED));
        }
    }
    EBB_ASSERT(d->changes.next == d->changes.list.n);
    return EBB_OK;
}

ebb_status ebb__sequence_draft(const ebb_sequence *sequence, const ebb_policy_input *input, ebb_draft *draft) {
    drafting d = {.sequence = sequence, .input = input, .view = ebb__plan_view(input->program), .draft = draft};
    d.changes.mem = input->mem;
    ebb__bump_init(&d.bump, input->mem);
    const ebb_status status = draft_all(&d);
    ebb__changes_fini(&d.changes);
    ebb__bump_fini(&d.bump);
    return status;
}
