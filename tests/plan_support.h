/* SPDX-License-Identifier: Apache-2.0
 *
 * What tests of plans share: random programs, and an executor that follows a plan with real bytes. A step's result
 * is a hash of the bytes that it reads, spread over the bytes that it writes; so one byte out of place anywhere
 * changes every result after it.
 */
#ifndef EBB_TESTS_PLAN_SUPPORT_H
#define EBB_TESTS_PLAN_SUPPORT_H

#include "support.h"

#include "plan/plan_priv.h"

static inline uint32_t make_tensor(ebb_program *p, uint64_t size_bytes, bool persistent, bool kept) {
    char name[24];
    (void)snprintf(name, sizeof name, "t%zu", p->tensors.n);
    ebb_tensor t = {
        .name = name, .size_bytes = size_bytes, .role = EBB_ROLE_OTHER, .persistent = persistent, .kept = kept};
    uint32_t idx = 0;
    assert_int_equal(ebb_program_add_tensor(p, &t, &idx), EBB_OK);
    return idx;
}

static inline void make_step(ebb_program *p, const ebb_access *accesses, uint32_t n, uint64_t scratch, double flops) {
    char name[24];
    (void)snprintf(name, sizeof name, "s%zu", p->steps.n);
    ebb_choice choice = {.name = "only", .scratch_bytes = scratch, .key = 1000 + p->steps.n, .flops = flops};
    const char *kind = n == 1 && accesses[0].mode == EBB_WRITE ? "feed" : "op";
    ebb_step step = {.name = name, .kind = kind, .n_accesses = n, .n_choices = 1};
    assert_int_equal(ebb_program_add_step(p, &step, accesses, &choice), EBB_OK);
}
#define STEP(p, scratch, flops, ...)                                                                                   \
    make_step((p), (const ebb_access[]){__VA_ARGS__},                                                                  \
              (uint32_t)(sizeof((const ebb_access[]){__VA_ARGS__}) / sizeof(ebb_access)), (scratch), (flops))

/* Actions on whole tensors; copies from and to the host. */
#define ACT_RUN(step)                                                                                                  \
    { .kind = EBB_ACT_RUN, .target = (step) }
#define ACT_AGAIN(step)                                                                                                \
    { .kind = EBB_ACT_AGAIN, .target = (step) }
#define ACT_OUT(t)                                                                                                     \
    { .kind = EBB_ACT_OUT, .target = (t), .tier = EBB_HOST, .size_bytes = EBB_WHOLE }
#define ACT_IN(t)                                                                                                      \
    { .kind = EBB_ACT_IN, .target = (t), .tier = EBB_HOST, .size_bytes = EBB_WHOLE }
#define ACT_DROP(t)                                                                                                    \
    { .kind = EBB_ACT_DROP, .target = (t), .size_bytes = EBB_WHOLE }

/* An empty plan for the machine of ebb_machine_create. */
static inline ebb_plan *make_empty_plan(const ebb_program *p, uint64_t budget_bytes) {
    ebb_machine *machine = NULL;
    ebb_plan *plan = NULL;
    assert_int_equal(ebb_machine_create(NULL, &machine), EBB_OK);
    assert_int_equal(ebb__plan_create(NULL, "hand", ebb_machine_topology(machine), &plan), EBB_OK);
    ebb_machine_destroy(machine);
    plan->fingerprint = ebb_program_fingerprint(p);
    plan->alignment_bytes = ebb_program_alignment_bytes(p);
    plan->budget_bytes = budget_bytes;
    return plan;
}

/* A plan of the policy budget with little room: for a quarter more than the floor, or the least budget. */
static inline ebb_plan *make_tight_plan(const ebb_program *p) {
    ebb_machine *m = NULL;
    ebb_plan *plan = NULL;
    ebb_plan_options options = EBB_PLAN_OPTIONS_INIT;
    ebb_no_fit no_fit = {0};
    assert_int_equal(ebb_machine_create(NULL, &m), EBB_OK);
    options.policy = "budget";
    options.budget_bytes = ebb_program_floor_bytes(p, NULL) * 5 / 4;
    ebb_status st = ebb_plan_make(p, m, &options, &plan, &no_fit);
    options.budget_bytes = no_fit.least_budget_bytes;
    if (st == EBB_E_NO_FIT) { st = ebb_plan_make(p, m, &options, &plan, NULL); }
    assert_int_equal(st, EBB_OK);
    ebb_machine_destroy(m);
    return plan;
}

/* Say anew how fast copies between the device and a tier are. */
static inline void set_link(ebb_machine *machine, uint32_t tier, double out_per_s, double in_per_s, uint64_t latency) {
    ebb_link link;
    assert_true(ebb_machine_link(machine, EBB_DEVICE, tier, &link));
    link.out.bytes_per_s = out_per_s;
    link.in.bytes_per_s = in_per_s;
    link.out.latency_ns = link.in.latency_ns = latency;
    assert_int_equal(ebb_machine_set_link(machine, &link), EBB_OK);
}

/* A machine whose steps take as many ns as they have flops or bytes of traffic. Copies are as fast as is said to and
 * from one tier. */
static inline ebb_machine *make_plain_machine(uint32_t tier, double out_per_s, double in_per_s) {
    ebb_machine *machine = NULL;
    assert_int_equal(ebb_machine_create(NULL, &machine), EBB_OK);
    ebb_machine_set_rates(machine, 1e9, 1e9, 0);
    set_link(machine, tier, out_per_s, in_per_s, 0);
    return machine;
}

static inline uint64_t random_size(ebb_rng *rng) {
    return 1 + ebb__rng_below(rng, ebb__rng_below(rng, 4) == 0 ? 600 : 200);
}

/* To be called on its own, not within the arguments of a call: compilers evaluate those in unlike orders, and a seed
 * must mean one program everywhere. */
static inline double random_flops(ebb_rng *rng) {
    return (double)(1 + ebb__rng_below(rng, 2000)) * 1e4;
}

/* A network in training: layers with weights, in-place activations, shortcuts, masks, running statistics; then
 * backward with gradients and updates in place. */
static inline ebb_program *random_network(ebb_rng *rng) {
    ebb_program *p = NULL;
    assert_int_equal(ebb_program_create(NULL, "net", ebb__rng_below(rng, 2) ? 64 : 1, &p), EBB_OK);
    uint32_t n = 2 + (uint32_t)ebb__rng_below(rng, 14), act[17], weight[17], mask[17], state[17];
    bool keep = ebb__rng_below(rng, 4) == 0;
    act[0] = make_tensor(p, random_size(rng), false, false);
    uint32_t labels = make_tensor(p, random_size(rng), false, false);
    STEP(p, 0, 1e4, {act[0], EBB_WRITE});
    STEP(p, 0, 1e4, {labels, EBB_WRITE});
    for (uint32_t i = 1; i <= n; i++) {
        weight[i] = make_tensor(p, random_size(rng), true, false);
        state[i] = make_tensor(p, random_size(rng), true, false);
        act[i] = make_tensor(p, random_size(rng), false, false);
        mask[i] = make_tensor(p, random_size(rng), false, false);
        uint32_t side = act[ebb__rng_below(rng, i)];
        const double flops = random_flops(rng);
        STEP(p, ebb__rng_below(rng, 3) ? 0 : random_size(rng), flops, {act[i - 1], EBB_READ}, {side, EBB_READ},
             {weight[i], EBB_READ}, {act[i], EBB_WRITE}, {mask[i], EBB_WRITE});
        if (ebb__rng_below(rng, 3) == 0) { STEP(p, 0, 1e5, {act[i], EBB_UPDATE}); }
        if (ebb__rng_below(rng, 3) == 0) { STEP(p, 0, 1e5, {act[i], EBB_READ}, {state[i], EBB_UPDATE}); }
    }
    uint32_t loss = make_tensor(p, 4, false, true), grad = make_tensor(p, random_size(rng), false, false);
    STEP(p, 0, 1e5, {act[n], EBB_READ}, {labels, EBB_READ}, {loss, EBB_WRITE}, {grad, EBB_WRITE});
    for (uint32_t i = n; i >= 1; i--) {
        uint32_t next = make_tensor(p, random_size(rng), false, false);
        uint32_t diff = make_tensor(p, random_size(rng), false, keep);
        const double flops = random_flops(rng);
        STEP(p, ebb__rng_below(rng, 3) ? 0 : random_size(rng), flops, {grad, EBB_READ}, {act[i - 1], EBB_READ},
             {act[i], EBB_READ}, {mask[i], EBB_READ}, {weight[i], EBB_READ}, {next, EBB_WRITE}, {diff, EBB_WRITE});
        STEP(p, 0, random_flops(rng), {diff, EBB_READ}, {weight[i], EBB_UPDATE}, {state[i], EBB_UPDATE});
        grad = next;
    }
    assert_int_equal(ebb_program_finish(p), EBB_OK);
    return p;
}

/* Anything that is a program: tensors written twice, never read, persistent ones overwritten whole. */
static inline ebb_program *random_soup(ebb_rng *rng) {
    ebb_program *p = NULL;
    assert_int_equal(ebb_program_create(NULL, "soup", 1u << ebb__rng_below(rng, 5), &p), EBB_OK);
    uint32_t n_tensors = 2 + (uint32_t)ebb__rng_below(rng, 14), n_steps = 3 + (uint32_t)ebb__rng_below(rng, 40);
    bool written[16] = {false};
    for (uint32_t t = 0; t < n_tensors; t++) {
        written[t] = ebb__rng_below(rng, 3) == 0;
        make_tensor(p, random_size(rng), written[t], ebb__rng_below(rng, 10) == 0);
    }
    for (uint32_t s = 0; s < n_steps; s++) {
        ebb_access accesses[5];
        uint32_t n = 0, wanted = 1 + (uint32_t)ebb__rng_below(rng, 4);
        for (uint32_t i = 0; i < wanted; i++) {
            uint32_t t = s < n_tensors && i == 0 ? s : (uint32_t)ebb__rng_below(rng, n_tensors);
            bool taken = false;
            for (uint32_t k = 0; k < n; k++) { taken |= accesses[k].tensor == t; }
            if (taken) { continue; }
            uint64_t dice = ebb__rng_below(rng, 8);
            uint32_t mode = !written[t] || dice == 0 ? EBB_WRITE : dice == 1 ? EBB_UPDATE : EBB_READ;
            written[t] = true;
            accesses[n++] = (ebb_access){.tensor = t, .mode = mode};
        }
        const double flops = random_flops(rng);
        make_step(p, accesses, n, ebb__rng_below(rng, 3) ? 0 : random_size(rng), flops);
    }
    for (uint32_t t = 0; t < n_tensors; t++) { /* so that each is accessed, as a program must */
        STEP(p, 0, 1e5, {t, written[t] ? EBB_READ : EBB_WRITE});
    }
    assert_int_equal(ebb_program_finish(p), EBB_OK);
    return p;
}

static inline ebb_program *random_program(uint64_t seed) {
    ebb_rng rng;
    ebb__rng_init(&rng, seed, 1);
    return ebb__rng_below(&rng, 3) == 0 ? random_soup(&rng) : random_network(&rng);
}

static inline uint64_t liveness_bytes(const ebb_program *program, const ebb_machine *machine) {
    ebb_plan_options options = EBB_PLAN_OPTIONS_INIT;
    ebb_plan *plan = NULL;
    options.policy = "liveness";
    assert_int_equal(ebb_plan_make(program, machine, &options, &plan, NULL), EBB_OK);
    const uint64_t peak = ebb_plan_get_summary(plan).peak_bytes;
    ebb_plan_destroy(plan);
    return peak;
}

/* Field by field: between them a struct has bytes that say nothing. */
static inline bool is_same_action(const ebb_action *a, const ebb_action *b) {
    return a->kind == b->kind && a->target == b->target && a->choice == b->choice && a->tier == b->tier &&
           a->to == b->to && a->begin == b->begin && a->size_bytes == b->size_bytes && a->held == b->held;
}

static inline void assert_same_actions(const ebb_plan *a, const ebb_plan *b) {
    assert_int_equal(a->actions.n, b->actions.n);
    for (size_t i = 0; i < a->actions.n; i++) { assert_true(is_same_action(&a->actions.data[i], &b->actions.data[i])); }
}

static inline uint64_t hash_draft(const ebb_draft *draft) {
    uint64_t hash = EBB_HASH_INIT;
    for (size_t i = 0; i < draft->actions.n; i++) {
        const ebb_action *a = &draft->actions.data[i].action;
        const uint64_t words[] = {a->kind, a->target, a->tier, a->choice, draft->actions.data[i].bound};
        hash = ebb__hash(hash, words, sizeof words);
    }
    return hash;
}

/* Most bytes at once, by the stays that a draft leads to. */
static inline uint64_t load_of_draft(const ebb_draft *draft, const ebb_program *program, const ebb_machine *machine) {
    const uint64_t alignment = ebb_program_alignment_bytes(program);
    ebb_plan *plan = NULL;
    uint64_t bytes = 0;
    assert_int_equal(ebb__plan_create(NULL, "test", ebb_machine_topology(machine), &plan), EBB_OK);
    plan->alignment_bytes = alignment;
    assert_int_equal(ebb__draft_to_plan(draft, program, plan), EBB_OK);
    assert_int_equal(ebb__plan_bound(plan, alignment, &bytes), EBB_OK);
    ebb_plan_destroy(plan);
    return bytes;
}

/* The same program with other choices beside the first of some steps, at most n_open of them: mostly faster ones that
 * take more scratch. */
static inline ebb_program *with_choices(const ebb_program *p, ebb_rng *rng, uint32_t n_open, uint32_t max_choices) {
    ebb_program *q = NULL;
    assert_int_equal(ebb_program_create(NULL, "choices", p->alignment_bytes, &q), EBB_OK);
    for (size_t t = 0; t < p->tensors.n; t++) {
        uint32_t idx = 0;
        assert_int_equal(ebb_program_add_tensor(q, &p->tensors.data[t], &idx), EBB_OK);
    }
    for (size_t s = 0; s < p->steps.n; s++) {
        ebb_choice choices[8] = {p->choices.data[p->steps.data[s].first_choice]};
        ebb_step step = p->steps.data[s];
        if (n_open > 0 && ebb__rng_below(rng, 2) == 0) {
            step.n_choices = 2 + (uint32_t)ebb__rng_below(rng, max_choices - 1);
            n_open--;
        }
        for (uint32_t c = 1; c < step.n_choices; c++) {
            choices[c] = choices[0];
            choices[c].key = 1000000 * c + s;
            choices[c].scratch_bytes = random_size(rng) * (1 + ebb__rng_below(rng, 3));
            choices[c].flops *= (double)(1 + ebb__rng_below(rng, 5)) / 4;
        }
        assert_int_equal(ebb_program_add_step(q, &step, &p->accesses.data[step.first_access], choices), EBB_OK);
    }
    assert_int_equal(ebb_program_finish(q), EBB_OK);
    return q;
}

/* ---- the executor ------------------------------------------------------------------------------ */

/* What an action touches, in bytes. */
typedef struct bound_action {
    ebb_action action;
    uint64_t offset[8]; /* of each access; of the part that is copied */
    uint64_t scratch, scratch_bytes;
    uint64_t from, to, n_bytes; /* a copy: in lower tiers; how much */
} bound_action;

typedef struct world {
    const ebb_program *program;
    const ebb_plan *plan;
    bound_action *bound;
    uint8_t *arena, *tier[EBB_MAX_TIERS];
    uint64_t *digest;  /* [n_laps * n_steps]: what each run wrote */
    uint64_t *content; /* [n_tensors]: of persistent and kept ones, at the border after the last lap */
    ebb_bump bump;
} world;

static inline uint64_t place_of(const ebb_plan_cursor *cursor, const ebb_action *action, uint32_t tier) {
    const uint32_t idx = ebb__plan_cursor_slot(cursor, action->target, tier, action->begin);
    assert_true(idx < cursor->plan->slots.n);
    const ebb_slot *slot = &cursor->plan->slots.data[idx];
    return slot->offset + action->begin - slot->begin;
}

static inline void bind_actions(world *w) {
    const ebb_plan *plan = w->plan;
    ebb_plan_cursor cursor;
    assert_int_equal(ebb__plan_cursor_init(plan, &w->bump, &cursor), EBB_OK);
    w->bound = calloc(plan->actions.n, sizeof *w->bound);
    for (size_t a = 0; a < plan->actions.n; a++) {
        bound_action *b = &w->bound[a];
        ebb__plan_cursor_next(&cursor);
        assert_int_equal(cursor.position, a);
        b->action = plan->actions.data[a];
        const bool is_out = b->action.kind == EBB_ACT_OUT, is_in = b->action.kind == EBB_ACT_IN;
        if (ebb__action_computes(&b->action)) {
            const ebb_step *step = &w->program->steps.data[b->action.target];
            for (uint32_t i = 0; i < step->n_accesses; i++) {
                b->offset[i] =
                    ebb__plan_cursor_offset(&cursor, w->program->accesses.data[step->first_access + i].tensor, 0);
                assert_true(b->offset[i] != UINT64_MAX);
            }
            if (cursor.scratch != EBB_NO_PIECE) { b->scratch = plan->stays.data[cursor.scratch].offset; }
            b->scratch_bytes = w->program->choices.data[step->first_choice + b->action.choice].scratch_bytes;
        } else if (b->action.kind != EBB_ACT_DROP) {
            const uint64_t whole = w->program->tensors.data[b->action.target].size_bytes;
            b->n_bytes = ebb__action_end(&b->action, whole) - b->action.begin;
            if (is_out || is_in) {
                b->offset[0] = ebb__plan_cursor_offset(&cursor, b->action.target, b->action.begin);
                assert_true(b->offset[0] != UINT64_MAX);
            }
            if (!is_out) { b->from = place_of(&cursor, &b->action, b->action.tier); }
            if (!is_in) { b->to = place_of(&cursor, &b->action, is_out ? b->action.tier : b->action.to); }
        }
    }
}

static inline void spread(uint8_t *dst, uint64_t n, uint64_t h) {
    for (uint64_t i = 0; i < n; i++) {
        h = h * 6364136223846793005u + 1442695040888963407u;
        dst[i] = (uint8_t)(h >> 56);
    }
}

static inline uint64_t tensor_bytes(const world *w, uint32_t t) {
    return w->program->tensors.data[t].size_bytes;
}

/* Do one action of lap number lap. */
static inline void do_action(world *w, size_t a, uint64_t lap) {
    const bound_action *b = &w->bound[a];
    if (b->action.kind == EBB_ACT_DROP) { return; }
    if (!ebb__action_computes(&b->action)) {
        const bool is_out = b->action.kind == EBB_ACT_OUT, is_in = b->action.kind == EBB_ACT_IN;
        const uint8_t *from = is_out ? w->arena + b->offset[0] : w->tier[b->action.tier] + b->from;
        uint8_t *to = is_in ? w->arena + b->offset[0] : w->tier[is_out ? b->action.tier : b->action.to] + b->to;
        memcpy(to, from, b->n_bytes);
        return;
    }
    const ebb_step *step = &w->program->steps.data[b->action.target];
    const ebb_access *accesses = &w->program->accesses.data[step->first_access];
    uint64_t h = ebb__hash(EBB_HASH_INIT, &b->action.target, sizeof b->action.target), digest = EBB_HASH_INIT;
    bool reads = false;
    for (uint32_t i = 0; i < step->n_accesses; i++) {
        if ((accesses[i].mode & EBB_READ) == 0) { continue; }
        h = ebb__hash(h, w->arena + b->offset[i], tensor_bytes(w, accesses[i].tensor));
        reads = true;
    }
    if (!reads) { h = ebb__hash(h, &lap, sizeof lap); } /* what is fed differs from lap to lap */
    if (b->scratch_bytes > 0) { memset(w->arena + b->scratch, 0xee, b->scratch_bytes); }
    for (uint32_t i = 0; i < step->n_accesses; i++) {
        if ((accesses[i].mode & EBB_WRITE) == 0) { continue; }
        uint64_t n = tensor_bytes(w, accesses[i].tensor);
        spread(w->arena + b->offset[i], n, h + i);
        digest = ebb__hash(digest, w->arena + b->offset[i], n);
    }
    digest ^= h;
    uint64_t *said = &w->digest[lap * w->program->steps.n + b->action.target];
    if (b->action.kind == EBB_ACT_RUN) { *said = digest; }
    assert_true(*said == digest);
}

/* Whether a stay or slot is there at the border: around the end, or (at_end) up to it. */
static inline bool is_at_border(const world *w, uint64_t first, uint64_t last, bool at_end) {
    return first >= last || (at_end && last == w->plan->actions.n);
}

static inline void world_begin(world *w, const ebb_program *program, const ebb_plan *plan, uint64_t n_laps) {
    ebb_plan_summary sum = ebb_plan_get_summary(plan);
    *w = (world){.program = program, .plan = plan};
    ebb__bump_init(&w->bump, NULL);
    bind_actions(w);
    w->arena = malloc(sum.peak_bytes + 1); /* to the byte: a sanitizer sees what goes beyond the peak */
    memset(w->arena, 0xaa, sum.peak_bytes);
    for (uint32_t tier = 1; tier < plan->topology.n_tiers; tier++) {
        w->tier[tier] = malloc(sum.tier_bytes[tier] + 1);
        memset(w->tier[tier], 0xbb, sum.tier_bytes[tier]);
    }
    w->digest = calloc(n_laps * program->steps.n, sizeof *w->digest);
    w->content = calloc(program->tensors.n, sizeof *w->content);
    for (uint32_t t = 0; t < program->tensors.n; t++) {
        if (!program->tensors.data[t].persistent) { continue; }
        const uint64_t n = tensor_bytes(w, t);
        uint8_t *bytes = malloc(n);
        spread(bytes, n, t);
        for (size_t i = 0; i < plan->stays.n; i++) {
            const ebb_stay *s = &plan->stays.data[i];
            if (s->tensor == t && is_at_border(w, s->first, s->last, false)) {
                memcpy(w->arena + s->offset, bytes + s->begin, s->size_bytes);
            }
        }
        for (size_t i = 0; i < plan->slots.n; i++) {
            const ebb_slot *s = &plan->slots.data[i];
            if (s->tensor == t && is_at_border(w, s->first, s->last, false)) {
                memcpy(w->tier[s->tier] + s->offset, bytes + s->begin, s->size_bytes);
            }
        }
        free(bytes);
    }
}

/* Take what a home holds of a tensor into bytes; what is there already must be the same. */
static inline void gather_home(uint8_t *bytes, bool *is_there, const uint8_t *home, uint64_t begin, uint64_t n) {
    for (uint64_t i = 0; i < n; i++) {
        if (is_there[begin + i]) { assert_int_equal(bytes[begin + i], home[i]); }
        bytes[begin + i] = home[i];
        is_there[begin + i] = true;
    }
}

/* A tensor's content at the border after the last lap, wherever it is; all of it must be somewhere. */
static inline void gather_tensor(const world *w, uint32_t t, uint8_t *bytes) {
    const uint64_t n = tensor_bytes(w, t);
    bool *is_there = calloc(n, sizeof *is_there);
    for (size_t i = 0; i < w->plan->stays.n; i++) {
        const ebb_stay *s = &w->plan->stays.data[i];
        if (s->tensor != t || !is_at_border(w, s->first, s->last, true)) { continue; }
        gather_home(bytes, is_there, w->arena + s->offset, s->begin, s->size_bytes);
    }
    for (size_t i = 0; i < w->plan->slots.n; i++) {
        const ebb_slot *s = &w->plan->slots.data[i];
        if (s->tensor != t || !is_at_border(w, s->first, s->last, false)) { continue; }
        gather_home(bytes, is_there, w->tier[s->tier] + s->offset, s->begin, s->size_bytes);
    }
    for (uint64_t i = 0; i < n; i++) { assert_true(is_there[i]); }
    free(is_there);
}

/* Look at what must be there, then free all. */
static inline void world_end(world *w) {
    for (uint32_t t = 0; t < w->program->tensors.n; t++) {
        const ebb_tensor *tensor = &w->program->tensors.data[t];
        if (!tensor->persistent && !tensor->kept) { continue; }
        uint8_t *bytes = malloc(tensor->size_bytes);
        gather_tensor(w, t, bytes);
        w->content[t] = ebb__hash(EBB_HASH_INIT, bytes, tensor->size_bytes);
        free(bytes);
    }
    free(w->bound);
    free(w->arena);
    for (uint32_t tier = 0; tier < EBB_MAX_TIERS; tier++) { free(w->tier[tier]); }
    ebb__bump_fini(&w->bump);
}

static inline void world_free(world *w) {
    free(w->digest);
    free(w->content);
}

/* In the list's order. */
static inline void execute_in_order(world *w, const ebb_program *program, const ebb_plan *plan, uint64_t n_laps) {
    world_begin(w, program, plan, n_laps);
    for (uint64_t lap = 0; lap < n_laps; lap++) {
        for (size_t a = 0; a < plan->actions.n; a++) { do_action(w, a, lap); }
    }
    world_end(w);
}

/* Each engine in its order, otherwise in any order that the schedule allows; no wait at the border. */
static inline void execute_any_order(world *w, const ebb_program *program, const ebb_plan *plan, uint64_t n_laps,
                                     ebb_rng *rng) {
    size_t n = plan->actions.n;
    ebb_schedule s;
    world_begin(w, program, plan, n_laps);
    assert_int_equal(ebb__plan_schedule(program, plan, &w->bump, &s), EBB_OK);
    bool *done = calloc(n_laps * n, sizeof *done);
    uint64_t next[EBB_MAX_ENGINES] = {0};
    for (;;) {
        uint32_t ready[EBB_MAX_ENGINES], n_ready = 0, n_over = 0;
        for (uint32_t e = 0; e < EBB_MAX_ENGINES; e++) {
            while (next[e] < n_laps * n && s.engine[next[e] % n] != e) { next[e]++; }
            if (next[e] == n_laps * n) {
                n_over++;
                continue;
            }
            uint64_t a = next[e] % n, lap = next[e] / n;
            bool met = true;
            for (uint64_t i = s.start[a]; i < s.start[a + 1]; i++) {
                uint64_t d = s.dep[i];
                if (d < a) { met &= done[lap * n + d]; }
                if (d >= a && lap > 0) { met &= done[(lap - 1) * n + d]; }
            }
            if (met) { ready[n_ready++] = e; }
        }
        if (n_over == EBB_MAX_ENGINES) { break; }
        assert_true(n_ready > 0);
        uint32_t e = ready[ebb__rng_below(rng, n_ready)];
        do_action(w, next[e] % n, next[e] / n);
        done[next[e]++] = true;
    }
    free(done);
    world_end(w);
}

static inline void assert_same_results(const world *a, const world *b, uint64_t n_laps) {
    assert_memory_equal(a->digest, b->digest, n_laps * a->program->steps.n * sizeof *a->digest);
    assert_memory_equal(a->content, b->content, a->program->tensors.n * sizeof *a->content);
}

/* A plan has these results, in the order of its list and in one by chance that its engines may take. */
static inline void assert_has_results(const ebb_program *program, const ebb_plan *plan, const world *expected,
                                      uint64_t n_laps, ebb_rng *rng) {
    world got;
    execute_in_order(&got, program, plan, n_laps);
    assert_same_results(&got, expected, n_laps);
    world_free(&got);
    execute_any_order(&got, program, plan, n_laps, rng);
    assert_same_results(&got, expected, n_laps);
    world_free(&got);
}

#endif
