/* SPDX-License-Identifier: Apache-2.0
 *
 * The numerator of DTR's h: a tensor's own time, and that of the evicted ones around it, which its eviction makes
 * dearer or which would have to be made again for it (Kirisame et al., 'Dynamic Tensor Rematerialization', ICLR 2021).
 *
 *  - exact: all evicted ones that are reached through evicted ones from it, among what it is made from and among what
 * is made from it. Each such sum is kept until an eviction or a return at the rim of the region changes it.
 *  - eq: evicted ones make classes, joined when neighbours are evicted (union-find). What returns is subtracted from
 * its class, and the class stays joined. The sum is over the classes of a tensor's evicted neighbours.
 */
#include "plan/dtr.h"

/* Call visit for each tensor from which t is made (or, not is_up, which is made from t) by a step that has run and can
 * run again. A tensor may come several times. */
typedef ebb_status (*visitor)(ebb_dtr_walk *w, uint32_t neighbour, void *ctx);

static ebb_status visit_step(ebb_dtr_walk *w, uint32_t t, uint32_t s, uint32_t mode, visitor visit, void *ctx) {
    const ebb_step *step = &w->view.steps[s];
    w->n_visits += step->n_accesses;
    if (w->n_visits > EBB_DTR_MAX_VISITS) { return EBB_E_NO_FIT; }
    for (uint32_t i = 0; i < step->n_accesses; i++) {
        const ebb_access *access = &w->view.accesses[step->first_access + i];
        if (access->tensor == t || (access->mode & mode) == 0) { continue; }
        EBB_TRY(visit(w, access->tensor, ctx));
    }
    return EBB_OK;
}

static ebb_status visit_neighbours(ebb_dtr_walk *w, uint32_t t, bool is_up, visitor visit, void *ctx) {
    for (uint64_t u = w->uses.start[t]; u < w->uses.start[t + 1]; u++) {
        const ebb_use *use = &w->uses.use[u];
        const uint32_t own = is_up ? EBB_WRITE : EBB_READ, theirs = is_up ? EBB_READ : EBB_WRITE;
        if ((use->mode & own) != 0) { EBB_TRY(visit_step(w, t, use->step, theirs, visit, ctx)); }
    }
    return EBB_OK;
}

/* ---- exact ------------------------------------------------------------------------------------ */

/* A search from a tensor through evicted ones. */
typedef struct region {
    uint64_t ns;   /* of the evicted ones found */
    bool is_aging; /* the tensors at the rim lose their prices */
} region;

static ebb_status enter(ebb_dtr_walk *w, uint32_t t, void *ctx) {
    region *r = ctx;
    ebb_dtr_tensor *tensor = &w->tensor[t];
    if (w->mark[t] == w->n_marks) { return EBB_OK; }
    w->mark[t] = w->n_marks;
    if (tensor->where == EBB_DTR_HERE && r->is_aging) { tensor->is_priced = false; }
    if (tensor->where != EBB_DTR_EVICTED) { return EBB_OK; }
    r->ns = ebb__add_ns(r->ns, tensor->chain_ns);
    return EBB_PUSH(w->input->mem, &w->stack, t);
}

static ebb_status search(ebb_dtr_walk *w, uint32_t t, bool is_up, region *r) {
    w->n_marks++;
    w->mark[t] = w->n_marks;
    w->stack.n = 0;
    EBB_TRY(visit_neighbours(w, t, is_up, enter, r));
    while (w->stack.n > 0) { EBB_TRY(visit_neighbours(w, w->stack.data[--w->stack.n], is_up, enter, r)); }
    return EBB_OK;
}

/* Those at the rim of the regions of t, in both directions, lose their prices, and so does t. */
static ebb_status age(ebb_dtr_walk *w, uint32_t t) {
    region r = {.is_aging = true};
    w->tensor[t].is_priced = false;
    EBB_TRY(search(w, t, true, &r));
    return search(w, t, false, &r);
}

/* ---- classes ---------------------------------------------------------------------------------- */

static uint32_t find_root(ebb_dtr_walk *w, uint32_t node) {
    uint32_t root = node;
    while (w->classes.data[root].parent != root) { root = w->classes.data[root].parent; }
    while (w->classes.data[node].parent != root) {
        const uint32_t parent = w->classes.data[node].parent;
        w->classes.data[node].parent = root;
        node = parent;
    }
    return root;
}

static ebb_status join(ebb_dtr_walk *w, uint32_t t, void *ctx) {
    const uint32_t *own = ctx;
    if (w->tensor[t].where != EBB_DTR_EVICTED) { return EBB_OK; }
    const uint32_t left = find_root(w, w->tensor[t].class), right = find_root(w, *own);
    if (left == right) { return EBB_OK; }
    w->classes.data[left].parent = right;
    w->classes.data[right].sum_ns += w->classes.data[left].sum_ns;
    return EBB_OK;
}

static ebb_status evict_from_class(ebb_dtr_walk *w, uint32_t t) {
    ebb_dtr_tensor *tensor = &w->tensor[t];
    if (w->classes.n >= EBB_DTR_NONE - 1) { return EBB_E_NO_FIT; }
    tensor->class = (uint32_t)w->classes.n;
    const ebb_dtr_class class = {.parent = tensor->class,
                                 .sum_ns = (int64_t)ebb_min_u64(tensor->chain_ns, INT64_MAX / 4)};
    EBB_TRY(EBB_PUSH(w->input->mem, &w->classes, class));
    EBB_TRY(visit_neighbours(w, t, true, join, &tensor->class));
    return visit_neighbours(w, t, false, join, &tensor->class);
}

typedef struct class_sum {
    int64_t ns;
} class_sum;

static ebb_status add_class(ebb_dtr_walk *w, uint32_t t, void *ctx) {
    class_sum *sum = ctx;
    if (w->tensor[t].where != EBB_DTR_EVICTED) { return EBB_OK; }
    const uint32_t root = find_root(w, w->tensor[t].class);
    for (size_t i = 0; i < w->stack.n; i++) {
        if (w->stack.data[i] == root) { return EBB_OK; }
    }
    sum->ns += w->classes.data[root].sum_ns;
    return EBB_PUSH(w->input->mem, &w->stack, root);
}

/* ---- all -------------------------------------------------------------------------------------- */

ebb_status ebb__dtr_evicted(ebb_dtr_walk *w, uint32_t t) {
    EBB_ASSERT(w->tensor[t].where == EBB_DTR_EVICTED);
    return w->has_classes ? evict_from_class(w, t) : age(w, t);
}

ebb_status ebb__dtr_returned(ebb_dtr_walk *w, uint32_t t) {
    ebb_dtr_tensor *tensor = &w->tensor[t];
    EBB_ASSERT(tensor->where == EBB_DTR_HERE);
    if (!w->has_classes) { return age(w, t); }
    if (tensor->class == EBB_DTR_NONE) { return EBB_OK; }
    w->classes.data[find_root(w, tensor->class)].sum_ns -= (int64_t)ebb_min_u64(tensor->chain_ns, INT64_MAX / 4);
    tensor->class = EBB_DTR_NONE;
    return EBB_OK;
}

ebb_status ebb__dtr_region_ns(ebb_dtr_walk *w, uint32_t t, uint64_t *ns_out) {
    ebb_dtr_tensor *tensor = &w->tensor[t];
    if (w->has_classes) {
        class_sum sum = {0};
        w->stack.n = 0;
        EBB_TRY(visit_neighbours(w, t, true, add_class, &sum));
        EBB_TRY(visit_neighbours(w, t, false, add_class, &sum));
        *ns_out = sum.ns > 0 ? (uint64_t)sum.ns : 0;
        return EBB_OK;
    }
    if (!tensor->is_priced) {
        region r = {0};
        EBB_TRY(search(w, t, true, &r));
        EBB_TRY(search(w, t, false, &r));
        tensor->region_ns = r.ns;
        tensor->is_priced = true;
    }
    *ns_out = tensor->region_ns;
    return EBB_OK;
}
