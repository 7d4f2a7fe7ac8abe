/* SPDX-License-Identifier: Apache-2.0
 *
 * Schedules of binomial checkpointing, and the walk that follows them over a program.
 *
 * Revolve: with s slots and each stage advanced over at most r times, a chain of binomial(s + r, s) stages can be
 * reversed. Where the next restart is kept follows from this in closed form (Griewank and Walther, "Algorithm 799:
 * Revolve", ACM TOMS 26 (2000)). Mixed: by dynamic programming over stages and slots (Maddison, "Step-based
 * checkpointing with high-level algorithmic differentiation", arXiv 2305.09568), of which a table is made once:
 * O(stages^2 * slots).
 *
 * The walk: when the backward pass needs something of a stage that is not there, the last restart before it is taken
 * from its slot, and the stages from there on run again. On the way the free slots are filled as the schedule says.
 * A tensor is let go if it is in no slot and the stage at hand does not read it.
 */
#include "plan/binomial.h"

struct ebb_binomial {
    ebb_binomial_kind kind;
    uint32_t n_stages, n_slots;
    uint32_t *advance; /* [n_stages + 1][n_slots + 1], of Mixed; 0: keep what is read of the stage */
};

/* ---- Revolve ----------------------------------------------------------------------------------- */

/* binomial(s + r, s), or more than any number of stages; 0: s or r is below 0. */
static uint64_t reach(int64_t s, int64_t r) {
    uint64_t n = 1;
    if (s < 0 || r < 0) { return 0; }
    for (int64_t i = 1; i <= s && i <= INT16_MAX; i++) {
        n = n * (uint64_t)(r + i) / (uint64_t)i;
        if (n > UINT32_MAX) { return n; }
    }
    return n;
}

static uint32_t advance_revolve(uint32_t n, uint32_t n_slots) {
    const int64_t s = n_slots;
    int64_t r = 1;
    uint64_t advance = 0;
    if (s == 1) { return n - 1; }
    while (reach(s, r) < n) { r++; }
    if (n <= reach(s, r - 1) + reach(s - 2, r - 1)) {
        advance = reach(s, r - 2);
    } else if (n >= reach(s, r) - reach(s - 3, r)) {
        advance = reach(s, r - 1);
    } else {
        advance = n - reach(s - 1, r - 1) - reach(s - 2, r - 1);
    }
    return (uint32_t)ebb_min_u64(ebb_max_u64(advance, 1), n - 1);
}

/* ---- Mixed ------------------------------------------------------------------------------------- */

/* All are there: what is read of each stage has a slot, but of the last, which is reversed at once. */
static uint64_t steps_of(const uint64_t *steps, uint32_t width, uint32_t n, uint32_t n_slots) {
    return n <= n_slots + 1 ? n : steps[(size_t)n * width + n_slots];
}

static ebb_status fill_mixed(ebb_binomial *b, ebb_bump *bump) {
    const uint32_t width = b->n_slots + 1;
    const size_t n_cells = ((size_t)b->n_stages + 1) * width;
    uint64_t *steps = ebb__bump_alloc(bump, n_cells, sizeof *steps); /* forward, to reverse so many */
    b->advance = ebb__bump_alloc(bump, n_cells, sizeof *b->advance);
    if (steps == NULL || b->advance == NULL) { return EBB_E_NO_MEMORY; }
    for (uint32_t n = 2; n <= b->n_stages; n++) {
        for (uint32_t s = 1; s < width && s + 1 < n; s++) {
            uint32_t advance = n - 1;
            uint64_t least = (uint64_t)n * (n + 1) / 2 - 1; /* of one slot */
            for (uint32_t i = 2; s > 1 && i < n; i++) {
                const uint64_t these = i + steps_of(steps, width, i, s) + steps_of(steps, width, n - i, s - 1);
                if (i > 2 && these > least) { continue; }
                least = these;
                advance = i;
            }
            if (s > 1 && 1 + steps_of(steps, width, n - 1, s - 1) < least) {
                least = 1 + steps_of(steps, width, n - 1, s - 1);
                advance = 0;
            }
            steps[(size_t)n * width + s] = least;
            b->advance[(size_t)n * width + s] = advance;
        }
    }
    return EBB_OK;
}

/* ---- either ------------------------------------------------------------------------------------ */

ebb_status ebb__binomial_create(ebb_binomial_kind kind, uint32_t n_stages, uint32_t n_slots, ebb_bump *bump,
                                ebb_binomial **binomial_out) {
    ebb_binomial *b = ebb__bump_alloc(bump, 1, sizeof *b);
    EBB_ASSERT(n_stages <= EBB_BINOMIAL_MAX_STAGES && n_slots >= 1 && n_slots <= EBB_BINOMIAL_MAX_SLOTS);
    if (b == NULL) { return EBB_E_NO_MEMORY; }
    *b = (ebb_binomial){.kind = kind, .n_stages = n_stages, .n_slots = n_slots};
    *binomial_out = b;
    return kind == EBB_BINOMIAL_MIXED ? fill_mixed(b, bump) : EBB_OK;
}

bool ebb__binomial_decide(const ebb_binomial *b, uint32_t n, uint32_t n_slots, uint32_t *advance_out) {
    EBB_ASSERT(n >= 2 && n <= b->n_stages && n_slots >= 1 && n_slots <= b->n_slots);
    if (b->kind == EBB_BINOMIAL_REVOLVE) {
        *advance_out = advance_revolve(n, n_slots);
        return true;
    }
    *advance_out = n <= n_slots + 1 ? 0 : b->advance[(size_t)n * (b->n_slots + 1) + n_slots];
    return *advance_out != 0;
}

/* ---- the walk ---------------------------------------------------------------------------------- */

typedef struct slot {
    uint32_t stage;
    bool is_restart;
} slot;

typedef struct walk {
    ebb_rewalk again;
    ebb_remake *r;
    const ebb_stages *stages;
    const ebb_binomial *binomial;
    uint32_t n_slots;
    slot *slots; /* those that are taken; stages ascend */
    uint32_t n_taken;
    uint32_t *need; /* [n_tensors]: the stage whose reversal reads it; EBB_NO_STAGE: none */
    uint8_t *held;  /* [n_stages]: bits, of the slots */
} walk;
enum { HELD_RESTART = 1, HELD_READ = 2 };

/* Tensors that cross into a stage belong to it; the others belong to the stage that makes them. */
static void find_needs(walk *w) {
    const ebb_remake *r = w->r;
    for (uint32_t t = 0; t < r->view.n_tensors; t++) { w->need[t] = EBB_NO_STAGE; }
    for (uint32_t s = 0; s < r->view.n_steps; s++) {
        const ebb_step *step = &r->view.steps[s];
        for (uint32_t i = 0; !ebb__remake_is_forward(r, s) && i < step->n_accesses; i++) {
            const ebb_access *access = &r->view.accesses[step->first_access + i];
            const uint32_t t = access->tensor, made = w->stages->made[t];
            if (!ebb__remake_needs(r, access, s) || made == EBB_NO_STAGE) { continue; }
            const bool crosses = made + 1 < w->stages->n && w->stages->crosser[made + 1] == t;
            w->need[t] = crosses ? made + 1 : made;
        }
    }
}

static void find_held(walk *w) {
    memset(w->held, 0, w->stages->n);
    for (uint32_t i = 0; i < w->n_taken; i++) {
        w->held[w->slots[i].stage] |= w->slots[i].is_restart ? HELD_RESTART : HELD_READ;
    }
}

/* A restart keeps all tensors that cross into its stage; there can be several. */
static bool is_held(const walk *w, uint32_t t) {
    const uint32_t made = w->stages->made[t], need = w->need[t];
    if (need != EBB_NO_STAGE && (w->held[need] & HELD_READ) != 0) { return true; }
    for (uint32_t stage = made + 1; made != EBB_NO_STAGE && stage <= w->stages->read[t]; stage++) {
        if ((w->held[stage] & HELD_RESTART) != 0) { return true; }
    }
    return false;
}

/* Fill slots on the way from one stage to another one. */
static void sweep(walk *w, uint32_t from, uint32_t to) {
    while (from < to && w->n_taken < w->n_slots) {
        uint32_t advance = 0;
        const bool is_restart = ebb__binomial_decide(w->binomial, to + 1 - from, w->n_slots - w->n_taken, &advance);
        w->slots[w->n_taken++] = (slot){.stage = from, .is_restart = is_restart};
        from += is_restart ? advance : 1;
    }
}

/* Give back the slots of later stages. */
static void clear_slots(walk *w, uint32_t stage) {
    while (w->n_taken > 0 && w->slots[w->n_taken - 1].stage > stage) { w->n_taken--; }
    find_held(w);
}

/* Fill slots on the way from the last restart to a stage. */
static void fill_slots(walk *w, uint32_t stage) {
    uint32_t from = 0;
    if (w->n_taken > 0) {
        const slot *last = &w->slots[w->n_taken - 1];
        from = last->is_restart ? last->stage : last->stage + 1;
        if (last->is_restart) { w->n_taken--; } /* it is read now, and may be put back */
    }
    sweep(w, from, stage);
    find_held(w);
}

/* Whether step s reads t, dropped. */
static bool is_read(const walk *w, uint32_t t, uint32_t s) {
    const ebb_step *step = &w->r->view.steps[s];
    for (uint32_t i = 0; i < step->n_accesses; i++) {
        const ebb_access *access = &w->r->view.accesses[step->first_access + i];
        if (access->tensor == t && ebb__remake_needs(w->r, access, s)) { return true; }
    }
    return false;
}

static bool is_wanted(const walk *w, uint32_t t, uint32_t stage, uint32_t s) {
    return w->need[t] == stage || is_held(w, t) || is_read(w, t, s);
}

/* Drop the tensors that are in no slot and that neither the stage nor step s reads. */
static void let_go(walk *w, uint32_t stage, uint32_t s) {
    for (uint32_t t = 0; t < w->r->view.n_tensors; t++) {
        w->again.is_there[t] = w->again.is_there[t] && is_wanted(w, t, stage, s);
    }
}

/* Something that step s needs is not there: reverse from that stage on. */
static ebb_status bring(walk *w, uint32_t stage, uint32_t s) {
    const ebb_remake *r = w->r;
    clear_slots(w, stage);
    let_go(w, stage, s);
    fill_slots(w, stage);
    for (uint32_t t = 0; t < r->view.n_tensors; t++) {
        const bool is_possible = r->is_dropped[t] && s <= r->until[t];
        if (is_possible && is_wanted(w, t, stage, s)) { EBB_TRY(ebb__rewalk_want(&w->again, t)); }
    }
    EBB_TRY(ebb__rewalk_make(&w->again));
    let_go(w, stage, s);
    return w->again.n_again <= w->again.max_again ? EBB_OK : EBB_E_NO_FIT;
}

/* The last stage of which step s needs something that is not there; EBB_NO_STAGE: all is. */
static uint32_t find_missing(const walk *w, uint32_t s) {
    const ebb_step *step = &w->r->view.steps[s];
    uint32_t last = EBB_NO_STAGE;
    for (uint32_t i = 0; !ebb__remake_is_forward(w->r, s) && i < step->n_accesses; i++) {
        const ebb_access *access = &w->r->view.accesses[step->first_access + i];
        if (!ebb__remake_needs(w->r, access, s) || w->again.is_there[access->tensor]) { continue; }
        const uint32_t need = w->need[access->tensor];
        EBB_ASSERT(need != EBB_NO_STAGE);
        if (last == EBB_NO_STAGE || need > last) { last = need; }
    }
    return last;
}

static ebb_status follow(walk *w, ebb_sequence *sequence) {
    const ebb_remake *r = w->r;
    const uint32_t last = w->stages->n - 1;
    w->slots = ebb__bump_alloc(&w->r->bump, w->n_slots, sizeof *w->slots);
    w->need = ebb__bump_alloc(&w->r->bump, r->view.n_tensors, sizeof *w->need);
    w->held = ebb__bump_alloc(&w->r->bump, w->stages->n, sizeof *w->held);
    if (w->slots == NULL || w->need == NULL || w->held == NULL) { return EBB_E_NO_MEMORY; }
    find_needs(w);
    fill_slots(w, last);
    for (uint32_t t = 0; t < r->view.n_tensors; t++) {
        const bool is_last = w->stages->made[t] == last || w->need[t] == last;
        w->again.is_there[t] = r->is_dropped[t] && (is_last || is_held(w, t));
    }
    for (uint32_t s = 0; s < r->view.n_steps; s++) {
        const uint32_t stage = find_missing(w, s);
        if (stage != EBB_NO_STAGE) { EBB_TRY(bring(w, stage, s)); }
        EBB_TRY(ebb__sequence_compute(sequence, s, false));
    }
    return EBB_OK;
}

ebb_status ebb__binomial_sequence(ebb_remake *r, const ebb_stages *stages, const ebb_binomial *binomial,
                                  uint32_t n_slots, ebb_sequence *sequence) {
    walk w = {.r = r, .stages = stages, .binomial = binomial, .n_slots = n_slots};
    ebb_status status = ebb__rewalk_init(&w.again, r, sequence);
    if (status == EBB_OK) { status = follow(&w, sequence); }
    ebb__rewalk_fini(&w.again);
    return status;
}
