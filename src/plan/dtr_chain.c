/* SPDX-License-Identifier: Apache-2.0
 *
 * Chains: the tensors that DTR may evict. DTR's values never change, so each can be made again at any time. A program's
 * tensors can be updated in place. So a tensor can be evicted only in its last version, and is made again by its chain:
 * the steps that write it, from the one that writes it whole, in order. That needs, until no one needs the tensor any
 * more,
 *
 *  - that each step of the chain may run again,
 *  - that what the chain reads stays at the version that it read,
 *  - that what it writes beside the tensor is written whole, and stays at the version that it leaves.
 *
 * "No one needs it" counts tensors that are made again from this one. They are those that are complete later, so one
 * pass over tensors, the last complete one first, finds both.
 */
#include "plan/dtr.h"

/* Whether the step does as the chain of t needs it until t's need is over. */
static bool serves(const ebb_dtr_walk *w, uint32_t t, uint32_t s) {
    const ebb_step *step = &w->view.steps[s];
    if (step->repeat != EBB_REPEAT_EXACT) { return false; }
    for (uint32_t i = 0; i < step->n_accesses; i++) {
        const uint64_t a = step->first_access + i;
        if (w->view.accesses[a].tensor == t) { continue; }
        if (w->view.accesses[a].mode == EBB_UPDATE || w->next_write[a] < w->tensor[t].needed) { return false; }
    }
    return true;
}

/* The tensors that t's chain reads are needed as long as t is. */
static void pass_need_on(ebb_dtr_walk *w, uint32_t t, uint32_t s) {
    const ebb_step *step = &w->view.steps[s];
    for (uint32_t i = 0; i < step->n_accesses; i++) {
        const ebb_access *access = &w->view.accesses[step->first_access + i];
        ebb_dtr_tensor *input = &w->tensor[access->tensor];
        if (access->tensor == t || (access->mode & EBB_READ) == 0) { continue; }
        if (input->needed < w->tensor[t].needed) { input->needed = w->tensor[t].needed; }
    }
}

static void find_chain(ebb_dtr_walk *w, uint32_t t) {
    ebb_dtr_tensor *tensor = &w->tensor[t];
    uint64_t first = w->uses.start[t + 1];
    tensor->can_again = !w->view.tensors[t].persistent && tensor->end_step != EBB_DTR_NONE;
    for (uint64_t u = w->uses.start[t + 1]; u-- > w->uses.start[t] && tensor->can_again;) {
        if ((w->uses.use[u].mode & EBB_WRITE) == 0) { continue; }
        tensor->can_again = serves(w, t, w->uses.use[u].step);
        tensor->chain_ns = ebb__add_ns(tensor->chain_ns, w->step_ns[w->uses.use[u].step]);
        first = u;
        if (w->uses.use[u].mode == EBB_WRITE) { break; }
    }
    for (uint64_t u = first; u < w->uses.start[t + 1] && tensor->can_again; u++) {
        if ((w->uses.use[u].mode & EBB_WRITE) != 0) { pass_need_on(w, t, w->uses.use[u].step); }
    }
}

ebb_status ebb__dtr_find_chains(ebb_dtr_walk *w) {
    const size_t n = w->view.n_tensors;
    uint32_t *order = ebb__bump_alloc(&w->bump, n, sizeof *order);
    uint64_t *key = ebb__bump_alloc(&w->bump, n, sizeof *key);
    if (order == NULL || key == NULL) { return EBB_E_NO_MEMORY; }
    for (uint32_t t = 0; t < n; t++) {
        ebb_dtr_tensor *tensor = &w->tensor[t];
        uint32_t last = 0, next = (uint32_t)w->view.n_steps;
        tensor->end_step = EBB_DTR_NONE;
        for (uint64_t u = w->uses.start[t + 1]; u-- > w->uses.start[t];) {
            const ebb_use *use = &w->uses.use[u];
            last = last > use->step ? last : use->step;
            w->next_write[use->access] = next;
            if ((use->mode & EBB_WRITE) == 0) { continue; }
            if (tensor->end_step == EBB_DTR_NONE) { tensor->end_step = use->step; }
            next = use->step;
        }
        tensor->needed = w->view.tensors[t].kept ? (uint32_t)w->view.n_steps : last;
        tensor->released = w->view.tensors[t].released > 0 ? w->view.tensors[t].released : last + 1;
        order[t] = t;
        key[t] = ~(uint64_t)tensor->end_step;
    }
    EBB_TRY(ebb__sort_by_key(w->input->mem, order, n, key));
    for (size_t i = 0; i < n; i++) { find_chain(w, order[i]); }
    return EBB_OK;
}
