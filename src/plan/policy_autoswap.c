/* SPDX-License-Identifier: Apache-2.0
 *
 * The policies autoswap-doa, -aoa, -wdoa, -swdoa, -vote and -bo: AutoSwap (arXiv 1903.06631) by each of its scores.
 * autoswap.h has the rules; here a program becomes events, and a schedule becomes a draft.
 *
 * An event is a step of the program, at the time at which it begins if nothing waits; its load are all bytes that are
 * there for it, with scratch, when nothing is copied. Candidates lie around the step of the peak, and of persistent
 * tensors also across the iteration's end. Copies take what the machine says, each way by itself, latency and all.
 * Copies out begin when the step that used the tensor has ended.
 *
 * AutoSwap knows one peak and one absence for each tensor there. So it has no plan for a budget that asks for more,
 * and where there is one, it is far from the fastest: these are policies to be compared with. As coded (option
 * as_coded), tensors of less than 1 MiB stay, a copy out begins 4 accesses after one that reads and 6 after one that
 * writes (the buffers of pull request 412, against kernels that are still at work), and scores have the authors'
 * mistakes; the schedule stays ours, since theirs counts loads that are not there.
 *
 * AutoSwap takes steps times candidates. A program of so many that this is more than MAX_WORK has its largest
 * candidates looked at.
 */
#include "plan/autoswap.h"
#include "plan/sequence.h"

#include <math.h>

#define SMALLEST_AS_CODED ((uint64_t)1 << 20)
#define READ_BUFFER_AS_CODED 4u /* accesses */
#define WRITE_BUFFER_AS_CODED 6u
#define MAX_WORK ((uint64_t)1 << 26)
#define MIN_CANDIDATES 16u

typedef struct drafting {
    const ebb_policy_input *input;
    ebb_draft *draft;
    ebb_program_view view;
    ebb_bump bump;
    ebb_uses uses;
    ebb_autoswap swap;
    double *time, *load; /* [3 * n_steps] */
    int64_t peak;        /* the step */
    EBB_VEC(ebb_autoswap_block) blocks;
} drafting;

/* ---- events ------------------------------------------------------------------------------------ */

static uint64_t rounded(const drafting *d, uint64_t bytes) {
    return ebb_align_up(bytes, d->view.alignment);
}

static const ebb_choice *choice_of(const drafting *d, size_t step) {
    return &d->view.choices[d->view.steps[step].first_choice + ebb__choice_of(d->input->choice, step)];
}

static bool lasts(const drafting *d, size_t t) {
    return d->view.tensors[t].persistent || d->view.tensors[t].kept;
}

/* Bytes of all tensors that live and of scratch, at each step; first as changes. */
static void find_loads(drafting *d) {
    const size_t n = d->view.n_steps;
    double *change = d->load;
    memset(change, 0, (n + 1) * sizeof *change);
    for (size_t t = 0; t < d->view.n_tensors; t++) {
        const uint64_t first = d->uses.start[t], end = d->uses.start[t + 1];
        if (first == end) { continue; }
        const double bytes = (double)rounded(d, d->view.tensors[t].size_bytes);
        change[d->view.tensors[t].persistent ? 0 : d->uses.use[first].step] += bytes;
        change[lasts(d, t) ? n : d->uses.use[end - 1].step + 1] -= bytes;
    }
    double live = 0;
    for (size_t s = 0; s < n; s++) {
        live += change[s];
        d->load[s] = live + (double)rounded(d, choice_of(d, s)->scratch_bytes);
        if (d->load[s] > d->load[d->peak]) { d->peak = (int64_t)s; }
    }
    for (size_t i = n; i < 3 * n; i++) { d->load[i] = d->load[i - n]; }
}

static void find_times(drafting *d) {
    const size_t n = d->view.n_steps;
    double now_ns = 0;
    for (size_t i = 0; i < 3 * n; i++) {
        d->time[i] = now_ns;
        now_ns += (double)ebb_machine_step_time_ns(d->input->machine, choice_of(d, i % n));
    }
}

/* ---- candidates -------------------------------------------------------------------------------- */

static void set_tier(const drafting *d, ebb_autoswap_block *b, uint32_t tier) {
    const uint64_t bytes = d->view.tensors[b->id].size_bytes;
    b->tier = tier;
    b->out_ns = (double)ebb_machine_copy_time_ns(d->input->machine, EBB_DEVICE, tier, bytes);
    b->in_ns = (double)ebb_machine_copy_time_ns(d->input->machine, tier, EBB_DEVICE, bytes);
}

/* The step at which a tensor may begin to leave after a use: the next one, or, as coded, the one with an access some
 * accesses on; no later than the step that needs it. The use is in the iteration of step `leave`. */
static int64_t ready_after(const drafting *d, const ebb_use *use, int64_t leave, int64_t need) {
    const uint64_t n_steps = d->view.n_steps, n_accesses = d->view.n_accesses;
    int64_t ready = leave + 1;
    if (!d->input->as_coded) { return ready; }
    const uint64_t access = use->access + (use->mode == EBB_READ ? READ_BUFFER_AS_CODED : WRITE_BUFFER_AS_CODED);
    const int64_t border = leave - (int64_t)use->step; /* the iteration's first step */
    while (ready < need) {
        const uint64_t at = (uint64_t)(ready - border);
        const uint64_t first = d->view.steps[at % n_steps].first_access + at / n_steps * n_accesses;
        if (first >= access) { break; }
        ready++;
    }
    return ready;
}

static ebb_status add_block(drafting *d, uint32_t t, const ebb_use *use, int64_t leave, int64_t need) {
    const uint64_t bytes = d->view.tensors[t].size_bytes, room = rounded(d, bytes);
    const uint64_t none_used[EBB_MAX_TIERS] = {0};
    const uint32_t tier = ebb__pick_tier(d->input, none_used, room);
    if (tier == EBB_MAX_TIERS || (d->input->as_coded && bytes < SMALLEST_AS_CODED)) { return EBB_OK; }
    ebb_autoswap_block block = {
        .id = t, .bytes = (double)room, .leave = leave, .need = need, .ready = ready_after(d, use, leave, need)};
    set_tier(d, &block, tier);
    return EBB_PUSH(d->input->mem, &d->blocks, block);
}

static bool is_written(const drafting *d, uint32_t t) {
    for (uint64_t u = d->uses.start[t]; u < d->uses.start[t + 1]; u++) {
        if ((d->uses.use[u].mode & EBB_WRITE) != 0) { return true; }
    }
    return false;
}

/* The two uses around the peak; of a persistent tensor the last of the iteration before may be one, or the first of the
 * one after, which is the same absence an iteration later. One that is also kept is there at the border. */
static ebb_status consider(drafting *d, uint32_t t) {
    const ebb_use *use = &d->uses.use[d->uses.start[t]], *end = &d->uses.use[d->uses.start[t + 1]];
    const int64_t n = (int64_t)d->view.n_steps;
    const bool goes_round = d->view.tensors[t].persistent && !d->view.tensors[t].kept;
    if (use == end || !is_written(d, t)) { return EBB_OK; }
    const ebb_use *before = &end[-1];
    int64_t leave = goes_round ? (int64_t)before->step - n : n;
    for (; use < end; before = use++) {
        const int64_t step = use->step;
        if (leave < d->peak && d->peak < step && leave + 1 < step) { return add_block(d, t, before, leave, step); }
        leave = step;
    }
    const int64_t again = goes_round ? (int64_t)d->uses.use[d->uses.start[t]].step + n : 0;
    return leave < d->peak && d->peak < again ? add_block(d, t, before, leave, again) : EBB_OK;
}

static uint64_t smallness(const void *item) {
    return UINT64_MAX - (uint64_t)((const ebb_autoswap_block *)item)->bytes;
}

static ebb_status find_blocks(drafting *d) {
    for (uint32_t t = 0; t < d->view.n_tensors; t++) { EBB_TRY(consider(d, t)); }
    const uint64_t most = ebb_max_u64(MAX_WORK / d->view.n_steps, MIN_CANDIDATES);
    if (d->blocks.n <= most) { return EBB_OK; }
    EBB_TRY(ebb__sort_items(d->input->mem, d->blocks.data, d->blocks.n, sizeof *d->blocks.data, smallness));
    d->blocks.n = (size_t)most;
    return EBB_OK;
}

/* ---- the draft --------------------------------------------------------------------------------- */

/* The candidates take room on the tiers in their order. One that finds none stays on the device, and leaves the order.
 */
static void take_tiers(drafting *d) {
    uint64_t used_bytes[EBB_MAX_TIERS] = {0};
    size_t n_kept = 0;
    for (size_t i = 0; i < d->swap.n_blocks; i++) {
        ebb_autoswap_block *b = &d->swap.blocks[d->swap.order[i]];
        const uint64_t room = (uint64_t)b->bytes;
        const uint32_t tier = ebb__pick_tier(d->input, used_bytes, room);
        if (tier == EBB_MAX_TIERS) { continue; }
        used_bytes[tier] += room;
        set_tier(d, b, tier);
        d->swap.order[n_kept++] = d->swap.order[i];
    }
    d->swap.n_blocks = n_kept;
}

/* Where within the iteration an event is that may be in the one before or after. Copies out and drops at the border of
 * two iterations are the last of the one that ends, copies in the first of the one that begins. */
static uint64_t position_of(const drafting *d, int64_t event, ebb_change_kind kind) {
    const int64_t n = (int64_t)d->view.n_steps, within = (event + n) % n;
    EBB_ASSERT(event > -n && event < 2 * n);
    return (uint64_t)(within == 0 && kind != EBB_CHANGE_IN ? n : within);
}

/* Each tensor has one absence at most. That of a persistent one may lie on either side of the border, or across it:
 * only then the tensor is not there when an iteration begins. */
static ebb_status list_changes(drafting *d, size_t n_away, ebb_changes *changes) {
    for (size_t i = 0; i < n_away; i++) {
        const ebb_autoswap_block *b = &d->swap.blocks[d->swap.order[i]];
        if (b->gone >= b->back) { continue; }
        const int64_t border = b->leave < 0 ? 0 : (int64_t)d->view.n_steps;
        const int64_t at[EBB_N_CHANGES] = {
            [EBB_CHANGE_OUT] = b->ready, [EBB_CHANGE_DROP] = b->gone, [EBB_CHANGE_IN] = b->back};
        for (ebb_change_kind kind = 0; kind < EBB_N_CHANGES; kind++) {
            EBB_TRY(ebb__changes_add(changes, kind, position_of(d, at[kind], kind), b->id, b->tier));
        }
        if (b->gone <= border && border <= b->back) { d->draft->resident[b->id] = 0; }
    }
    return ebb__changes_sort(changes);
}

static ebb_status draft_step(drafting *d, uint32_t s) {
    const ebb_step *step = &d->view.steps[s];
    EBB_TRY(ebb__draft_step(d->draft, EBB_ACT_RUN, s, ebb__choice_of(d->input->choice, s)));
    for (uint32_t i = 0; i < step->n_accesses; i++) {
        const uint32_t t = d->view.accesses[step->first_access + i].tensor;
        const bool is_last = d->uses.use[d->uses.start[t + 1] - 1].step == s;
        if (!is_last || lasts(d, t)) { continue; }
        EBB_TRY(ebb__draft_tensor(d->draft, EBB_ACT_DROP, t, EBB_DEVICE, EBB_DRAFT_FIXED));
    }
    return EBB_OK;
}

static ebb_status draft_all(drafting *d, size_t n_away, ebb_changes *changes) {
    EBB_TRY(list_changes(d, n_away, changes));
    for (uint32_t s = 0; s < d->view.n_steps; s++) {
        EBB_TRY(ebb__changes_draft(changes, s, d->draft));
        EBB_TRY(draft_step(d, s));
    }
    return ebb__changes_draft(changes, d->view.n_steps, d->draft);
}

static ebb_status draft_swaps(drafting *d, size_t n_away) {
    ebb_changes changes = {.mem = d->input->mem};
    const ebb_status st = draft_all(d, n_away, &changes);
    ebb__changes_fini(&changes);
    return st;
}

static double peak_of(const drafting *d) {
    double peak = 0;
    for (size_t s = 0; s < d->view.n_steps; s++) { peak = fmax(peak, d->swap.now[d->view.n_steps + s]); }
    return peak;
}

static ebb_status plan_swaps(drafting *d, ebb_autoswap_rule rule) {
    const size_t n = d->view.n_steps;
    const double limit = (double)d->input->limit_bytes;
    double peak = 0;
    EBB_TRY(ebb__program_uses(d->input->program, &d->bump, &d->uses));
    d->time = ebb__bump_alloc(&d->bump, 3 * n + 1, sizeof *d->time);
    d->load = ebb__bump_alloc(&d->bump, 3 * n + 1, sizeof *d->load);
    if (d->time == NULL || d->load == NULL) { return EBB_E_NO_MEMORY; }
    find_loads(d);
    find_times(d);
    EBB_TRY(find_blocks(d));
    d->swap = (ebb_autoswap){.n = (int64_t)n,
                             .time = d->time,
                             .load = d->load,
                             .blocks = d->blocks.data,
                             .n_blocks = d->blocks.n,
                             .as_coded = d->input->as_coded,
                             .bump = &d->bump};
    EBB_TRY(ebb__autoswap_init(&d->swap));
    EBB_TRY(ebb__autoswap_rank(&d->swap, rule, limit));
    take_tiers(d);
    d->swap.as_coded = false; /* from here on: what is away is away */
    const size_t n_away = ebb__autoswap_select(&d->swap, limit, &peak);
    if (peak > limit) { return EBB_E_NO_FIT; }
    (void)ebb__autoswap_stick_to(&d->swap, n_away, limit);
    return peak_of(d) <= limit ? draft_swaps(d, n_away) : EBB_E_NO_FIT;
}

static ebb_status draft_by(const ebb_policy_input *input, ebb_draft *draft, ebb_autoswap_rule rule) {
    drafting d = {.input = input, .draft = draft, .view = ebb__plan_view(input->program)};
    ebb__bump_init(&d.bump, input->mem);
    const ebb_status st = plan_swaps(&d, rule);
    EBB_VEC_FINI(input->mem, &d.blocks);
    ebb__bump_fini(&d.bump);
    return st;
}

static ebb_status draft_doa(const ebb_policy_input *input, ebb_draft *draft) {
    return draft_by(input, draft, EBB_AUTOSWAP_DOA);
}

static ebb_status draft_aoa(const ebb_policy_input *input, ebb_draft *draft) {
    return draft_by(input, draft, EBB_AUTOSWAP_AOA);
}

static ebb_status draft_wdoa(const ebb_policy_input *input, ebb_draft *draft) {
    return draft_by(input, draft, EBB_AUTOSWAP_WDOA);
}

static ebb_status draft_swdoa(const ebb_policy_input *input, ebb_draft *draft) {
    return draft_by(input, draft, EBB_AUTOSWAP_SWDOA);
}

static ebb_status draft_vote(const ebb_policy_input *input, ebb_draft *draft) {
    return draft_by(input, draft, EBB_AUTOSWAP_VOTE);
}

static ebb_status draft_bo(const ebb_policy_input *input, ebb_draft *draft) {
    return draft_by(input, draft, EBB_AUTOSWAP_BO);
}

#define AUTOSWAP(short_name, text)                                                                                     \
    const ebb_policy ebb__policy_autoswap_##short_name = {.name = "autoswap-" #short_name,                             \
                                                          .about = "AutoSwap 2019: around the peak, " text,            \
                                                          .keeps_limit = true,                                         \
                                                          .copies_only = true,                                         \
                                                          .when_it_fits = &ebb__policy_liveness,                       \
                                                          .draft = draft_##short_name}

AUTOSWAP(doa, "what is away longest beyond its copies leaves");
AUTOSWAP(aoa, "what is away longest, times its size, leaves");
AUTOSWAP(wdoa, "what is away while most is loaded leaves");
AUTOSWAP(swdoa, "the same, with what was chosen before away");
AUTOSWAP(vote, "by the ranks of doa, aoa and wdoa");
AUTOSWAP(bo, "by the mix of the scores that costs least");
