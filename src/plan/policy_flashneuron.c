/* SPDX-License-Identifier: Apache-2.0
 *
 * The policy flashneuron: Bae et al., "FlashNeuron: SSD-Enabled Large-Batch Training of Very Deep Neural Networks",
 * FAST 2021, with its linear selection alone, as the simulator of G10 (Zhang et al., MICRO 2023) runs it.
 *
 * Selection. The turn is the first step after the forward pass. A tensor may leave if it is used before the turn and
 * read after it. Such tensors leave in the order of their first uses, until those that are left take less than the
 * line. The line is the memory, less the tensors that never leave, less the most that one step touches.
 *
 * Out. A tensor that leaves is copied out after its last use before the turn, one after the other. Its bytes are free
 * when the copy has ended. The step at the turn waits for all copies out.
 *
 * In. After each step from the turn on, copies in are asked for in the order of need, as long as the largest hole has
 * more than the most that one step touches. What a step needs and is still away is copied in then, and the step waits.
 *
 * Places. Memory is given out from both ends (two_ends.h): from the upper one to tensors that leave, from the lower one
 * to all others. A step that finds no hole waits for the next copy to end. What never leaves, and the most that lives
 * for one step alone, has its place from the beginning.
 *
 * Of one step's tensors the last one listed comes first. So all decisions follow from the times of the steps and of the
 * copies, and the time of an iteration comes out with them. In the plan a tensor leaves before the step that came next
 * when its copy had ended, and copies in begin where they were asked for.
 *
 * The plan's own time may be shorter. Its steps wait only for bytes and for contents that they need, not for all copies
 * at the turn, and its stays are placed by ebb's placer.
 *
 * Two tensors that leave at one step go in the order of the selection. The authors sort them by std::sort, which keeps
 * no order among equals. As coded, ebb sorts in the same way (sort_unstable), and so they leave in the same order.
 *
 * Takes accesses * log(accesses), and the holes of each allocation.
 */
#include "plan/flashneuron.h"
#include "plan/two_ends.h"

#define NEVER UINT64_MAX
#define NO_STEP UINT32_MAX

typedef enum state { STATE_NOWHERE, STATE_HERE, STATE_LEAVING, STATE_AWAY, STATE_COMING } state;

typedef struct item {
    uint64_t bytes; /* rounded up */
    uint64_t at;    /* in memory, while it is there */
    state state;
    bool is_fixed; /* it never leaves, and has its place from the beginning */
    bool leaves;
    uint32_t tier;
    uint32_t leave, need; /* steps: its last use before the turn, the first one after */
    ebb_absence absence;
} item;

typedef struct queue { /* of tensors, one copy after the other */
    EBB_VEC(uint32_t) list;
    size_t next;
    uint64_t end_ns; /* of the copy at hand; NEVER: none is */
} queue;

typedef struct flash {
    const ebb_policy_input *input;
    ebb_program_view view;
    ebb_bump bump;
    ebb_uses uses;
    uint64_t *first; /* of each step, in drops */
    bool *drops;     /* [n_accesses] */
    item *items;     /* [n_tensors] */
    uint32_t turn;
    uint64_t most_touched; /* by one step */
    uint64_t most_local;   /* likewise, without what is fixed */
    uint64_t most_short;   /* likewise, only what lives for the step alone */
    uint64_t fixed_bytes;
    EBB_VEC(uint32_t) chosen;           /* that leave, in the order in which they do */
    EBB_VEC(uint32_t) by_need;          /* the same in the order of need */
    size_t next_out, next_in;           /* of them */
    uint64_t used_bytes[EBB_MAX_TIERS]; /* of tiers */
    ebb_two_ends space;
    queue out, in;
    uint64_t now_ns;
    uint64_t position; /* before which step something happens now */
    ebb_flashneuron told;
} flash;

/* ---- what there is ------------------------------------------------------------------------------ */

static const ebb_choice *chosen_of(const flash *f, uint32_t s) {
    return &f->view.choices[f->view.steps[s].first_choice + ebb__choice_of(f->input->choice, s)];
}

/* The step's access number i, the last one listed first. */
static const ebb_access *access_at(const flash *f, uint32_t s, uint32_t i, bool *drops_out) {
    const ebb_step *step = &f->view.steps[s];
    const uint32_t back = step->n_accesses - 1 - i;
    if (drops_out != NULL) { *drops_out = f->drops[f->first[s] + back]; }
    return &f->view.accesses[step->first_access + back];
}

/* Whether the tensor is made in a step and dropped after it; it never leaves. A tensor of several lives may have both
 * kinds. */
static bool is_short(const flash *f, const ebb_access *access, bool drops) {
    const item *it = &f->items[access->tensor];
    return access->mode == EBB_WRITE && drops && it->state == STATE_NOWHERE && !it->is_fixed;
}

/* The last use before the turn and the first one after it, if the second one reads. */
static bool find_gap(flash *f, uint32_t t) {
    item *it = &f->items[t];
    it->leave = it->need = NO_STEP;
    for (uint64_t u = f->uses.start[t]; u < f->uses.start[t + 1]; u++) {
        const ebb_use *use = &f->uses.use[u];
        if (use->step < f->turn) {
            it->leave = use->step;
            continue;
        }
        it->need = use->step;
        return it->leave != NO_STEP && (use->mode & EBB_READ) != 0;
    }
    return false;
}

static void find_turn(flash *f) {
    f->turn = 0;
    while (f->turn < f->view.n_steps && f->view.steps[f->turn].phase == EBB_PHASE_FORWARD) { f->turn++; }
}

static void measure_step(flash *f, uint32_t s) {
    const uint64_t scratch = ebb_align_up(chosen_of(f, s)->scratch_bytes, f->view.alignment);
    uint64_t touched = scratch, local = scratch, short_lived = scratch;
    for (uint32_t i = 0; i < f->view.steps[s].n_accesses; i++) {
        bool drops = false;
        const ebb_access *access = access_at(f, s, i, &drops);
        item *it = &f->items[access->tensor];
        touched += it->bytes;
        if (!it->is_fixed) { local += it->bytes; }
        if (is_short(f, access, drops)) { short_lived += it->bytes; }
        it->state = drops ? STATE_NOWHERE : STATE_HERE;
    }
    f->most_touched = ebb_max_u64(f->most_touched, touched);
    f->most_local = ebb_max_u64(f->most_local, local);
    f->most_short = ebb_max_u64(f->most_short, short_lived);
}

static ebb_status measure(flash *f, const ebb_sequence *sequence) {
    EBB_TRY(ebb__program_uses(f->input->program, &f->bump, &f->uses));
    EBB_TRY(ebb__sequence_find_drops(sequence, &f->view, &f->bump, &f->first, &f->drops));
    f->items = ebb__bump_alloc(&f->bump, f->view.n_tensors, sizeof *f->items);
    if (f->items == NULL) { return EBB_E_NO_MEMORY; }
    find_turn(f);
    for (uint32_t t = 0; t < f->view.n_tensors; t++) {
        const ebb_tensor *tensor = &f->view.tensors[t];
        f->items[t] = (item){.bytes = ebb_align_up(tensor->size_bytes, f->view.alignment),
                             .is_fixed = tensor->persistent || tensor->kept};
        if (f->items[t].is_fixed) { f->fixed_bytes += f->items[t].bytes; }
    }
    for (uint32_t s = 0; s < f->view.n_steps; s++) { measure_step(f, s); }
    for (uint32_t t = 0; t < f->view.n_tensors; t++) { f->items[t].state = STATE_NOWHERE; }
    return EBB_OK;
}

/* ---- selection ---------------------------------------------------------------------------------- */

typedef struct leaver {
    uint32_t tensor, leave;
} leaver;

/* How std::sort of libstdc++ sorts: it splits ranges of more than 16 at the median of three, and then sorts all of them
 * by insertion. This matters only for the order among equals. Its heap sort, for ranges that splits hardly make
 * smaller, is left out. */
static void swap_leavers(leaver *a, leaver *b) {
    const leaver kept = *a;
    *a = *b;
    *b = kept;
}

static void median_to_front(leaver *front, leaver *a, leaver *b, leaver *c) {
    const bool is_ab = a->leave < b->leave, is_bc = b->leave < c->leave, is_ac = a->leave < c->leave;
    leaver *median = is_ab ? (is_bc ? b : is_ac ? c : a) : (is_ac ? a : is_bc ? c : b);
    swap_leavers(front, median);
}

static leaver *split(leaver *begin, leaver *end) {
    const uint32_t pivot = begin->leave;
    leaver *low = begin + 1, *high = end;
    for (;;) {
        while (low->leave < pivot) { low++; }
        high--;
        while (pivot < high->leave) { high--; }
        if (low >= high) { return low; }
        swap_leavers(low++, high);
    }
}

/* The order of the two parts makes no difference, so the smaller one comes first: the stack stays small. */
static void split_all(leaver *begin, leaver *end) {
    while (end - begin > 16) {
        median_to_front(begin, begin + 1, begin + (end - begin) / 2, end - 1);
        leaver *middle = split(begin, end);
        if (middle - begin < end - middle) {
            split_all(begin, middle);
            begin = middle;
        } else {
            split_all(middle, end);
            end = middle;
        }
    }
}

static void sort_unstable(leaver *leavers, size_t n) {
    split_all(leavers, leavers + n);
    for (size_t i = 1; i < n; i++) {
        const leaver moved = leavers[i];
        size_t at = i;
        for (; at > 0 && moved.leave < leavers[at - 1].leave; at--) { leavers[at] = leavers[at - 1]; }
        leavers[at] = moved;
    }
}

static uint64_t leave_of(const void *at) {
    return ((const leaver *)at)->leave;
}

/* What may leave, in the order of selection. Returns how many there are. */
static size_t list_candidates(flash *f, uint32_t *candidates, uint64_t *bytes_out) {
    size_t n = 0;
    for (uint32_t s = 0; s < f->turn && f->turn < f->view.n_steps; s++) {
        for (uint32_t i = 0; i < f->view.steps[s].n_accesses; i++) {
            const uint32_t t = access_at(f, s, i, NULL)->tensor;
            item *it = &f->items[t];
            if (it->is_fixed || it->leaves || !find_gap(f, t)) { continue; }
            it->leaves = true; /* for now: it is listed */
            candidates[n++] = t;
            *bytes_out += it->bytes;
        }
    }
    for (size_t i = 0; i < n; i++) { f->items[candidates[i]].leaves = false; }
    return n;
}

/* false: it has to stay. */
static bool choose(flash *f, uint32_t t) {
    item *it = &f->items[t];
    if (it->need == it->leave + 1) { return false; }
    const uint32_t tier = ebb__pick_tier(f->input, f->used_bytes, it->bytes);
    if (tier == EBB_MAX_TIERS) { return false; }
    f->used_bytes[tier] += it->bytes;
    it->leaves = true;
    it->tier = tier;
    return true;
}

static ebb_status list_by_need(flash *f) {
    for (uint32_t s = f->turn; s < f->view.n_steps; s++) {
        for (uint32_t i = 0; i < f->view.steps[s].n_accesses; i++) {
            const uint32_t t = access_at(f, s, i, NULL)->tensor;
            if (!f->items[t].leaves || f->items[t].need != s) { continue; }
            EBB_TRY(EBB_PUSH(f->input->mem, &f->by_need, t));
        }
    }
    return EBB_OK;
}

static ebb_status select_leavers(flash *f, uint64_t line_bytes) {
    uint32_t *candidates = ebb__bump_alloc(&f->bump, f->view.n_tensors, sizeof *candidates);
    leaver *leavers = ebb__bump_alloc(&f->bump, f->view.n_tensors, sizeof *leavers);
    size_t n_leavers = 0;
    uint64_t stays_bytes = 0;
    if (candidates == NULL || leavers == NULL) { return EBB_E_NO_MEMORY; }
    const uint64_t taken_bytes = f->fixed_bytes + f->most_touched;
    if (taken_bytes >= line_bytes) { return EBB_E_NO_FIT; }
    line_bytes -= taken_bytes;
    const size_t n = list_candidates(f, candidates, &stays_bytes);
    for (size_t i = 0; i < n && stays_bytes >= line_bytes; i++) {
        const uint32_t t = candidates[i];
        if (!choose(f, t)) { continue; }
        stays_bytes -= f->items[t].bytes;
        leavers[n_leavers++] = (leaver){.tensor = t, .leave = f->items[t].leave};
    }
    if (stays_bytes > line_bytes) { return EBB_E_NO_FIT; }
    if (f->input->as_coded) {
        sort_unstable(leavers, n_leavers);
    } else {
        EBB_TRY(ebb__sort_items(f->input->mem, leavers, n_leavers, sizeof *leavers, leave_of));
    }
    for (size_t i = 0; i < n_leavers; i++) { EBB_TRY(EBB_PUSH(f->input->mem, &f->chosen, leavers[i].tensor)); }
    return list_by_need(f);
}

/* ---- copies ------------------------------------------------------------------------------------- */

static uint64_t copy_ns(const flash *f, const item *it, uint32_t t, bool is_out) {
    const uint64_t bytes = f->view.tensors[t].size_bytes;
    return ebb_machine_copy_time_ns(f->input->machine, is_out ? EBB_DEVICE : it->tier, is_out ? it->tier : EBB_DEVICE,
                                    bytes);
}

static void begin_copy(flash *f, queue *q) {
    q->end_ns = NEVER;
    if (q->next == q->list.n) { return; }
    const uint32_t t = q->list.data[q->next];
    q->end_ns = ebb__add_ns(f->now_ns, copy_ns(f, &f->items[t], t, q == &f->out));
}

static ebb_status ask_for_copy(flash *f, queue *q, uint32_t t) {
    EBB_TRY(EBB_PUSH(f->input->mem, &q->list, t));
    if (q->end_ns == NEVER) { begin_copy(f, q); }
    return EBB_OK;
}

static bool any_copy(const flash *f) {
    return f->out.next < f->out.list.n || f->in.next < f->in.list.n;
}

/* Go to the end of the copy that ends first. */
static ebb_status end_copy(flash *f) {
    const bool is_out = f->in.next == f->in.list.n || (f->out.next < f->out.list.n && f->out.end_ns <= f->in.end_ns);
    queue *q = is_out ? &f->out : &f->in;
    item *it = &f->items[q->list.data[q->next++]];
    f->now_ns = q->end_ns;
    begin_copy(f, q);
    it->state = is_out ? STATE_AWAY : STATE_HERE;
    if (!is_out) { return EBB_OK; }
    it->absence.drop = f->position;
    return ebb__two_ends_give_back(&f->space, it->at, it->bytes);
}

static ebb_status run_until(flash *f, uint64_t ns) {
    while (any_copy(f)) {
        const uint64_t out_ns = f->out.next < f->out.list.n ? f->out.end_ns : NEVER;
        const uint64_t in_ns = f->in.next < f->in.list.n ? f->in.end_ns : NEVER;
        if (ebb_min_u64(out_ns, in_ns) > ns) { break; }
        EBB_TRY(end_copy(f));
    }
    f->now_ns = ns;
    return EBB_OK;
}

/* ---- the iteration ------------------------------------------------------------------------------ */

/* Wait for copies until there is a place. */
static ebb_status find_place(flash *f, uint32_t t) {
    item *it = &f->items[t];
    while ((it->at = ebb__two_ends_take(&f->space, it->bytes, it->leaves)) == EBB_NO_ROOM) {
        if (!any_copy(f)) { return EBB_E_NO_FIT; }
        EBB_TRY(end_copy(f));
    }
    return EBB_OK;
}

static ebb_status ask_for_in(flash *f, uint32_t t) {
    item *it = &f->items[t];
    it->state = STATE_COMING;
    it->absence.in = f->position;
    f->told.moved_bytes += it->bytes;
    f->told.n_moved++;
    return ask_for_copy(f, &f->in, t);
}

static ebb_status bring(flash *f, const ebb_access *access, bool drops) {
    const uint32_t t = access->tensor;
    item *it = &f->items[t];
    if (it->is_fixed || is_short(f, access, drops)) { return EBB_OK; }
    if (it->state == STATE_NOWHERE || it->state == STATE_AWAY) {
        EBB_TRY(find_place(f, t));
        if (it->state == STATE_NOWHERE) { it->state = STATE_HERE; }
    }
    if (it->state == STATE_AWAY) { EBB_TRY(ask_for_in(f, t)); }
    while (it->state == STATE_COMING) { EBB_TRY(end_copy(f)); }
    return EBB_OK;
}

static ebb_status begin_outs(flash *f, uint32_t s) {
    for (; f->next_out < f->chosen.n; f->next_out++) {
        const uint32_t t = f->chosen.data[f->next_out];
        item *it = &f->items[t];
        if (s >= f->turn || it->leave + 1 > s) { break; }
        it->state = STATE_LEAVING;
        it->absence = (ebb_absence){.tensor = t, .tier = it->tier, .out = s};
        EBB_TRY(ask_for_copy(f, &f->out, t));
    }
    while (s >= f->turn && f->out.next < f->out.list.n) { EBB_TRY(end_copy(f)); }
    return EBB_OK;
}

static ebb_status begin_ins(flash *f) {
    const uint64_t most = ebb__two_ends_largest(&f->space);
    uint64_t rest = most > f->most_local ? most - f->most_local : 0;
    for (; f->next_in < f->by_need.n; f->next_in++) {
        const uint32_t t = f->by_need.data[f->next_in];
        item *it = &f->items[t];
        if (it->state != STATE_AWAY) { continue; }
        if (rest <= it->bytes) { break; }
        rest -= it->bytes;
        it->at = ebb__two_ends_take(&f->space, it->bytes, true);
        EBB_ASSERT(it->at != EBB_NO_ROOM);
        EBB_TRY(ask_for_in(f, t));
    }
    return EBB_OK;
}

static ebb_status drop_dead(flash *f, uint32_t s) {
    for (uint32_t i = 0; i < f->view.steps[s].n_accesses; i++) {
        bool drops = false;
        const ebb_access *access = access_at(f, s, i, &drops);
        item *it = &f->items[access->tensor];
        if (!drops || it->is_fixed || is_short(f, access, drops)) { continue; }
        it->state = STATE_NOWHERE;
        EBB_TRY(ebb__two_ends_give_back(&f->space, it->at, it->bytes));
    }
    return EBB_OK;
}

static ebb_status run_step(flash *f, uint32_t s) {
    f->position = f->told.stuck_at = s;
    EBB_TRY(begin_outs(f, s));
    for (uint32_t i = 0; i < f->view.steps[s].n_accesses; i++) {
        bool drops = false;
        const ebb_access *access = access_at(f, s, i, &drops);
        EBB_TRY(bring(f, access, drops));
    }
    f->position = s + (uint64_t)1;
    EBB_TRY(run_until(f, ebb__add_ns(f->now_ns, ebb_machine_step_time_ns(f->input->machine, chosen_of(f, s)))));
    EBB_TRY(drop_dead(f, s));
    return s >= f->turn ? begin_ins(f) : EBB_OK;
}

static ebb_status take_places(flash *f) {
    const uint64_t whole = f->input->limit_bytes - f->input->limit_bytes % f->view.alignment;
    EBB_TRY(ebb__two_ends_init(&f->space, f->input->mem, whole));
    const bool has_room = ebb__two_ends_take(&f->space, f->fixed_bytes, false) != EBB_NO_ROOM &&
                          ebb__two_ends_take(&f->space, f->most_short, false) != EBB_NO_ROOM;
    return has_room ? EBB_OK : EBB_E_NO_FIT;
}

/* A tensor that is back before the step at which it would be gone never left. */
static ebb_status list_absences(const flash *f, ebb_sequence *sequence) {
    for (size_t i = 0; i < f->in.list.n; i++) {
        const ebb_absence *absence = &f->items[f->in.list.data[i]].absence;
        if (absence->drop < absence->in) { EBB_TRY(EBB_PUSH(sequence->mem, &sequence->absences, *absence)); }
    }
    return EBB_OK;
}

static ebb_status decide(flash *f, uint64_t line_bytes, ebb_sequence *sequence) {
    ebb_policy_input in_order = *f->input;
    in_order.order = NULL;
    EBB_TRY(ebb__sequence_all(sequence, &in_order));
    EBB_TRY(measure(f, sequence));
    EBB_TRY(select_leavers(f, line_bytes));
    EBB_TRY(take_places(f));
    for (uint32_t s = 0; s < f->view.n_steps; s++) { EBB_TRY(run_step(f, s)); }
    f->told.time_ns = f->now_ns;
    return list_absences(f, sequence);
}

ebb_status ebb__flashneuron_decide(const ebb_policy_input *input, uint64_t line_bytes, ebb_sequence *sequence,
                                   ebb_flashneuron *told_out) {
    flash f = {.input = input, .view = ebb__plan_view(input->program), .told.stuck_at = NO_STEP};
    f.out.end_ns = f.in.end_ns = NEVER;
    ebb__bump_init(&f.bump, input->mem);
    f.space.mem = input->mem;
    const ebb_status status = decide(&f, line_bytes, sequence);
    *told_out = f.told;
    ebb__two_ends_fini(&f.space);
    EBB_VEC_FINI(input->mem, &f.chosen);
    EBB_VEC_FINI(input->mem, &f.by_need);
    EBB_VEC_FINI(input->mem, &f.out.list);
    EBB_VEC_FINI(input->mem, &f.in.list);
    ebb__bump_fini(&f.bump);
    return status;
}

static ebb_status draft_flashneuron(const ebb_policy_input *input, ebb_draft *draft) {
    ebb_policy_input in_order = *input;
    ebb_sequence sequence;
    ebb_flashneuron told;
    in_order.order = NULL;
    ebb__sequence_init(&sequence, input->mem);
    ebb_status status = ebb__flashneuron_decide(&in_order, input->limit_bytes, &sequence, &told);
    if (status == EBB_OK) { status = ebb__sequence_draft(&sequence, &in_order, draft); }
    ebb__sequence_fini(&sequence);
    return status;
}

const ebb_policy ebb__policy_flashneuron = {
    .name = "flashneuron",
    .about = "FlashNeuron 2021: what is used first goes out until the rest fits, and comes back as room is left",
    .keeps_limit = true,
    .copies_only = true,
    .when_it_fits = &ebb__policy_liveness,
    .draft = draft_flashneuron,
};
