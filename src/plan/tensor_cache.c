/* SPDX-License-Identifier: Apache-2.0
 *
 * SuperNeurons' tensor cache: Wang et al., PPoPP 2018, section 3.3.2, algorithm 2. While a step computes, what it
 * touches is locked. What is absent is copied in when a step reads it. If there is no room, the tensors that are not
 * locked go out, from the least recently used on, until there is. So nothing moves where everything fits.
 *
 * Three things differ from the algorithm as printed. It adds up freed bytes wherever they lie; here the placer finds
 * offsets for the result, and the maker asks again with a lower limit where it cannot. A tensor of which a copy is on a
 * tier already, unchanged, is not copied again. And with Belady's rule in place of the list, which the authors name as
 * future work, the tensor goes whose next use is farthest away.
 */
#include "plan/tensor_cache.h"

#define NONE UINT32_MAX
#define NEVER UINT64_MAX

/* A tensor as the cache knows it. */
typedef struct entry {
    uint64_t bytes;    /* rounded up */
    uint64_t next_use; /* computation that uses it next, while it is here */
    uint64_t absence;  /* while it is away: its number; else NEVER */
    uint32_t newer, older;
    uint32_t tier;                    /* of its copy; EBB_DEVICE: there is none */
    bool is_here, is_locked, is_held; /* held: it never leaves */
} entry;

/* For Belady's rule; stale where the tensor has other figures now. */
typedef struct candidate {
    uint64_t next_use;
    uint32_t tensor;
} candidate;

typedef struct cache {
    const ebb_policy_input *input;
    ebb_program_view view;
    ebb_eviction eviction;
    ebb_sequence *sequence;
    ebb_bump bump;
    uint64_t *first; /* of each computation, in the next two */
    bool *drops;
    uint64_t *next_use; /* of each access: the next computation that uses the tensor */
    entry *entries;     /* [n_tensors] */
    uint32_t newest, oldest;
    EBB_VEC(candidate) heap;  /* the farthest first */
    EBB_VEC(candidate) aside; /* locked ones that were met */
    uint64_t load_bytes, tier_used[EBB_MAX_TIERS];
} cache;

/* ---- the list, of what may leave ---------------------------------------------------------------- */

static void unlink_entry(cache *k, uint32_t t) {
    entry *it = &k->entries[t];
    if (it->is_held) { return; }
    *(it->newer != NONE ? &k->entries[it->newer].older : &k->newest) = it->older;
    *(it->older != NONE ? &k->entries[it->older].newer : &k->oldest) = it->newer;
    it->newer = it->older = NONE;
}

static void link_newest(cache *k, uint32_t t) {
    entry *it = &k->entries[t];
    if (it->is_held) { return; }
    it->older = k->newest;
    it->newer = NONE;
    *(k->newest != NONE ? &k->entries[k->newest].newer : &k->oldest) = t;
    k->newest = t;
}

/* ---- the heap ----------------------------------------------------------------------------------- */

static bool is_farther(const candidate *a, const candidate *b) {
    return a->next_use != b->next_use ? a->next_use > b->next_use : a->tensor < b->tensor;
}

static ebb_status push_candidate(cache *k, candidate added) {
    EBB_TRY(EBB_PUSH(k->input->mem, &k->heap, added));
    candidate *heap = k->heap.data;
    size_t at = k->heap.n - 1;
    for (; at > 0 && is_farther(&added, &heap[(at - 1) / 2]); at = (at - 1) / 2) { heap[at] = heap[(at - 1) / 2]; }
    heap[at] = added;
    return EBB_OK;
}

static candidate pop_candidate(cache *k) {
    candidate *heap = k->heap.data;
    const candidate top = heap[0], last = heap[--k->heap.n];
    size_t at = 0;
    for (size_t child = 1; child < k->heap.n; child = 2 * at + 1) {
        if (child + 1 < k->heap.n && is_farther(&heap[child + 1], &heap[child])) { child++; }
        if (!is_farther(&heap[child], &last)) { break; }
        heap[at] = heap[child];
        at = child;
    }
    heap[at] = last;
    return top;
}

/* ---- coming and going --------------------------------------------------------------------------- */

static void arrive(cache *k, uint32_t t) {
    entry *it = &k->entries[t];
    EBB_ASSERT(!it->is_here);
    it->is_here = true;
    k->load_bytes += it->bytes;
    link_newest(k, t);
}

static void leave(cache *k, uint32_t t) {
    entry *it = &k->entries[t];
    EBB_ASSERT(it->is_here && k->load_bytes >= it->bytes);
    it->is_here = false;
    k->load_bytes -= it->bytes;
    unlink_entry(k, t);
}

static void forget_copy(cache *k, uint32_t t) {
    entry *it = &k->entries[t];
    if (it->tier == EBB_DEVICE) { return; }
    k->tier_used[it->tier] -= it->bytes;
    it->tier = EBB_DEVICE;
}

static bool may_leave(const entry *it) {
    return it->is_here && !it->is_locked && !it->is_held;
}

static uint32_t find_oldest(const cache *k) {
    uint32_t t = k->oldest;
    while (t != NONE && !may_leave(&k->entries[t])) { t = k->entries[t].newer; }
    return t;
}

/* Candidates that are stale go; locked ones come back. */
static ebb_status find_farthest(cache *k, uint32_t *tensor_out) {
    uint32_t found = NONE;
    k->aside.n = 0;
    while (found == NONE && k->heap.n > 0) {
        const candidate top = pop_candidate(k);
        const entry *it = &k->entries[top.tensor];
        if (!it->is_here || it->next_use != top.next_use) { continue; }
        if (may_leave(it)) {
            found = top.tensor;
        } else {
            EBB_TRY(EBB_PUSH(k->input->mem, &k->aside, top));
        }
    }
    for (size_t i = 0; i < k->aside.n; i++) { EBB_TRY(push_candidate(k, k->aside.data[i])); }
    *tensor_out = found;
    return EBB_OK;
}

/* Before computation c. */
static ebb_status evict(cache *k, uint32_t t, uint64_t c) {
    entry *it = &k->entries[t];
    ebb_absence absence = {.tensor = t, .tier = it->tier, .out = EBB_NO_OUT, .drop = c};
    if (it->tier == EBB_DEVICE) {
        const uint32_t tier = ebb__pick_tier(k->input, k->tier_used, it->bytes);
        if (tier == EBB_MAX_TIERS) { return EBB_E_NO_FIT; }
        k->tier_used[tier] += it->bytes;
        absence.tier = it->tier = tier;
        absence.out = c;
    }
    it->absence = k->sequence->absences.n;
    leave(k, t);
    return EBB_PUSH(k->input->mem, &k->sequence->absences, absence);
}

static ebb_status make_room(cache *k, uint64_t bytes, uint64_t c) {
    const uint64_t limit = k->input->limit_bytes;
    while (k->load_bytes > limit || bytes > limit - k->load_bytes) {
        uint32_t t = NONE;
        if (k->eviction == EBB_EVICT_OLDEST) {
            t = find_oldest(k);
        } else {
            EBB_TRY(find_farthest(k, &t));
        }
        if (t == NONE) { return EBB_E_NO_FIT; }
        EBB_TRY(evict(k, t, c));
    }
    return EBB_OK;
}

/* ---- the run ------------------------------------------------------------------------------------ */

static const ebb_step *step_of(const cache *k, uint64_t c) {
    return &k->view.steps[k->sequence->computes.data[c].step];
}

/* Tensors of the step that are here go to the front, as hits. None of its tensors may leave. */
static void lock(cache *k, uint64_t c) {
    const ebb_step *step = step_of(k, c);
    for (uint32_t i = 0; i < step->n_accesses; i++) {
        const uint32_t t = k->view.accesses[step->first_access + i].tensor;
        k->entries[t].is_locked = true;
        if (!k->entries[t].is_here) { continue; }
        unlink_entry(k, t);
        link_newest(k, t);
    }
}

/* Bring in what is read, and make room for what is written and for scratch. */
static ebb_status bring(cache *k, uint64_t c) {
    const ebb_step *step = step_of(k, c);
    const uint32_t choice = ebb__choice_of(k->input->choice, k->sequence->computes.data[c].step);
    uint64_t bytes = ebb_align_up(k->view.choices[step->first_choice + choice].scratch_bytes, k->view.alignment);
    for (uint32_t i = 0; i < step->n_accesses; i++) {
        const ebb_access *access = &k->view.accesses[step->first_access + i];
        entry *it = &k->entries[access->tensor];
        if (it->is_here) { continue; }
        if (it->absence == NEVER) {
            bytes += it->bytes;
            continue;
        }
        EBB_TRY(make_room(k, it->bytes, c));
        k->sequence->absences.data[it->absence].in = c;
        it->absence = NEVER;
        arrive(k, access->tensor);
    }
    return make_room(k, bytes, c);
}

static ebb_status compute(cache *k, uint64_t c) {
    const ebb_step *step = step_of(k, c);
    for (uint32_t i = 0; i < step->n_accesses; i++) {
        const ebb_access *access = &k->view.accesses[step->first_access + i];
        const uint32_t t = access->tensor;
        entry *it = &k->entries[t];
        if (!it->is_here) { arrive(k, t); }
        if ((access->mode & EBB_WRITE) != 0) { forget_copy(k, t); }
        it->is_locked = false;
        it->next_use = k->next_use[k->first[c] + i];
        if (k->drops[k->first[c] + i]) {
            leave(k, t);
            forget_copy(k, t);
        } else if (k->eviction == EBB_EVICT_FARTHEST && !it->is_held) {
            EBB_TRY(push_candidate(k, (candidate){.next_use = it->next_use, .tensor = t}));
        }
    }
    return EBB_OK;
}

/* From the last computation to the first. */
static ebb_status find_next_uses(cache *k) {
    const size_t n = k->sequence->computes.n;
    uint64_t *next = ebb__bump_alloc(&k->bump, k->view.n_tensors, sizeof *next);
    k->next_use = ebb__bump_alloc(&k->bump, k->first[n], sizeof *k->next_use);
    if (next == NULL || k->next_use == NULL) { return EBB_E_NO_MEMORY; }
    for (size_t t = 0; t < k->view.n_tensors; t++) { next[t] = NEVER; }
    for (size_t c = n; c-- > 0;) {
        const ebb_step *step = step_of(k, c);
        for (uint32_t i = 0; i < step->n_accesses; i++) {
            const uint32_t t = k->view.accesses[step->first_access + i].tensor;
            k->next_use[k->first[c] + i] = next[t];
            next[t] = c;
        }
    }
    return EBB_OK;
}

static ebb_status run(cache *k) {
    EBB_TRY(ebb__sequence_find_drops(k->sequence, &k->view, &k->bump, &k->first, &k->drops));
    EBB_TRY(find_next_uses(k));
    k->entries = ebb__bump_alloc(&k->bump, k->view.n_tensors, sizeof *k->entries);
    if (k->entries == NULL) { return EBB_E_NO_MEMORY; }
    k->newest = k->oldest = NONE;
    for (uint32_t t = 0; t < k->view.n_tensors; t++) {
        const ebb_tensor *tensor = &k->view.tensors[t];
        k->entries[t] = (entry){.bytes = ebb_align_up(tensor->size_bytes, k->view.alignment),
                                .next_use = NEVER,
                                .absence = NEVER,
                                .newer = NONE,
                                .older = NONE,
                                .is_held = tensor->persistent || tensor->kept};
    }
    for (uint32_t t = 0; t < k->view.n_tensors; t++) {
        if (k->view.tensors[t].persistent) { arrive(k, t); }
    }
    for (uint64_t c = 0; c < k->sequence->computes.n; c++) {
        lock(k, c);
        EBB_TRY(bring(k, c));
        EBB_TRY(compute(k, c));
    }
    return k->load_bytes <= k->input->limit_bytes ? EBB_OK : EBB_E_NO_FIT;
}

ebb_status ebb__tensor_cache_run(const ebb_policy_input *input, ebb_eviction eviction, ebb_sequence *sequence) {
    cache k = {.input = input, .view = ebb__plan_view(input->program), .eviction = eviction, .sequence = sequence};
    ebb__bump_init(&k.bump, input->mem);
    const ebb_status status = run(&k);
    EBB_VEC_FINI(input->mem, &k.heap);
    EBB_VEC_FINI(input->mem, &k.aside);
    ebb__bump_fini(&k.bump);
    return status;
}
