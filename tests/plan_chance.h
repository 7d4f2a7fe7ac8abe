/* SPDX-License-Identifier: Apache-2.0
 *
 * Plans by chance, which no policy makes: steps in any order that the versions allow, tensors in parts, copies on
 * several tiers at one time, moves between tiers, recomputation wherever it can be.
 */
#ifndef EBB_TESTS_PLAN_CHANCE_H
#define EBB_TESTS_PLAN_CHANCE_H

#include "plan_support.h"

#define MAX_PARTS 3u
#define N_TIERS 4u /* host, disk, and two more */

typedef struct piece {
    uint64_t begin, end;
    bool present, is_away; /* away: absent where the circle closes */
    uint32_t home;         /* then the tier of its copy there */
    bool copied[EBB_MAX_TIERS];
} piece;

typedef struct content {
    piece parts[MAX_PARTS];
    uint32_t n_parts, version, final;
    uint64_t last_use; /* position in the order */
    bool is_written;
} content;

typedef struct maker {
    ebb_rng rng;
    const ebb_program *program;
    ebb_machine *machine;
    ebb_draft draft;
    ebb_bump bump;
    ebb_versions versions;
    content *tensors;
    uint32_t *order; /* of steps */
    size_t n_run;
} maker;

static inline uint64_t below(maker *m, uint64_t n) {
    return ebb__rng_below(&m->rng, n);
}

/* ---- an order ----------------------------------------------------------------------------------- */

/* A step may go when no unrun step before it touches one of its tensors, unless both only read it. */
static inline bool may_go(const maker *m, const bool *done, size_t s) {
    const ebb_program *p = m->program;
    for (size_t before = 0; before < s; before++) {
        if (done[before]) { continue; }
        for (uint32_t i = 0; i < p->steps.data[s].n_accesses; i++) {
            const ebb_access *mine = &p->accesses.data[p->steps.data[s].first_access + i];
            for (uint32_t k = 0; k < p->steps.data[before].n_accesses; k++) {
                const ebb_access *other = &p->accesses.data[p->steps.data[before].first_access + k];
                const bool only_read = mine->mode == EBB_READ && other->mode == EBB_READ;
                if (mine->tensor == other->tensor && !only_read) { return false; }
            }
        }
    }
    return true;
}

static inline void make_order(maker *m) {
    const size_t n = m->program->steps.n;
    bool *done = calloc(n, sizeof *done);
    m->order = calloc(n, sizeof *m->order);
    for (size_t at = 0; at < n; at++) {
        uint32_t ready[256], n_ready = 0;
        for (uint32_t s = 0; s < n && n_ready < 256; s++) {
            if (!done[s] && may_go(m, done, s)) { ready[n_ready++] = s; }
        }
        assert_true(n_ready > 0);
        m->order[at] = ready[below(m, n_ready)];
        done[m->order[at]] = true;
    }
    free(done);
}

/* ---- actions ------------------------------------------------------------------------------------ */

static inline void act(maker *m, ebb_action_kind kind, uint32_t t, const piece *p, uint32_t tier, uint32_t to) {
    const bool is_whole = p->begin == 0 && p->end == m->program->tensors.data[t].size_bytes && below(m, 2) == 0;
    const ebb_action action = {.kind = kind,
                               .target = t,
                               .tier = (uint16_t)tier,
                               .to = (uint16_t)to,
                               .begin = is_whole ? 0 : p->begin,
                               .size_bytes = is_whole ? EBB_WHOLE : p->end - p->begin};
    assert_int_equal(ebb__draft_add(&m->draft, &action, EBB_DRAFT_FIXED), EBB_OK);
}

static inline uint32_t some_copy(maker *m, const piece *p) {
    uint32_t tier = 1 + (uint32_t)below(m, N_TIERS);
    for (uint32_t i = 0; i < N_TIERS; i++, tier = tier % N_TIERS + 1) {
        if (p->copied[tier]) { return tier; }
    }
    return 0;
}

static inline void bring(maker *m, uint32_t t) {
    for (uint32_t i = 0; i < m->tensors[t].n_parts; i++) {
        piece *p = &m->tensors[t].parts[i];
        if (p->present) { continue; }
        const uint32_t tier = some_copy(m, p);
        assert_true(tier != 0);
        act(m, EBB_ACT_IN, t, p, tier, 0);
        p->present = true;
    }
}

static inline bool is_dead(const maker *m, uint32_t t, size_t at) {
    const ebb_tensor *info = &m->program->tensors.data[t];
    return !info->persistent && !info->kept && m->tensors[t].last_use < at;
}

/* Something by chance on a part of a tensor that has content. A persistent tensor that is never written has its copy on
 * its home tier always, so nothing is copied there. */
static inline void fidget(maker *m, uint32_t t, size_t at) {
    content *tensor = &m->tensors[t];
    piece *p = &tensor->parts[below(m, tensor->n_parts)];
    const uint32_t tier = 1 + (uint32_t)below(m, N_TIERS), from = some_copy(m, p);
    const bool may_fill = tensor->is_written || !m->program->tensors.data[t].persistent || tier != p->home;
    switch (below(m, 4)) {
    case 0:
        if (!p->present || !may_fill) { return; }
        act(m, EBB_ACT_OUT, t, p, tier, 0);
        p->copied[tier] = true;
        return;
    case 1:
        if (from == 0 || from == tier || !may_fill) { return; }
        act(m, EBB_ACT_MOVE, t, p, from, tier);
        p->copied[tier] = true;
        return;
    case 2:
        if (!p->present || !(from != 0 || is_dead(m, t, at))) { return; }
        act(m, EBB_ACT_DROP, t, p, 0, 0);
        p->present = false;
        return;
    default:
        if (p->present || from == 0) { return; }
        act(m, EBB_ACT_IN, t, p, from, 0);
        p->present = true;
        return;
    }
}

static inline bool has_content(const maker *m, uint32_t t) {
    return m->program->tensors.data[t].persistent || m->tensors[t].version > 0;
}

static inline void fidget_some(maker *m, size_t at) {
    for (uint64_t n = below(m, 6); n > 0; n--) {
        const uint32_t t = (uint32_t)below(m, m->program->tensors.n);
        if (has_content(m, t)) { fidget(m, t, at); }
    }
}

static inline void write_all(content *t, uint32_t version) {
    for (uint32_t i = 0; i < t->n_parts; i++) {
        memset(t->parts[i].copied, 0, sizeof t->parts[i].copied);
        t->parts[i].present = true;
    }
    t->version = version;
}

static inline void run(maker *m, uint32_t s) {
    const ebb_program *p = m->program;
    for (uint32_t i = 0; i < p->steps.data[s].n_accesses; i++) {
        const ebb_access *access = &p->accesses.data[p->steps.data[s].first_access + i];
        if ((access->mode & EBB_READ) != 0) { bring(m, access->tensor); }
    }
    assert_int_equal(ebb__draft_step(&m->draft, EBB_ACT_RUN, s, 0), EBB_OK);
    for (uint32_t i = 0; i < p->steps.data[s].n_accesses; i++) {
        const uint64_t at = p->steps.data[s].first_access + i;
        const ebb_access *access = &p->accesses.data[at];
        if ((access->mode & EBB_WRITE) != 0) { write_all(&m->tensors[access->tensor], m->versions.after[at]); }
    }
}

/* Run a step again that was run, where what it reads and writes is at the right versions. */
static inline void run_again(maker *m, size_t n_run) {
    if (n_run == 0) { return; }
    const ebb_program *p = m->program;
    const uint32_t s = m->order[below(m, n_run)];
    if (p->steps.data[s].repeat != EBB_REPEAT_EXACT) { return; }
    for (uint32_t i = 0; i < p->steps.data[s].n_accesses; i++) {
        const uint64_t at = p->steps.data[s].first_access + i;
        const ebb_access *access = &p->accesses.data[at];
        const content *t = &m->tensors[access->tensor];
        if (access->mode == EBB_UPDATE) { return; }
        if (t->version != (access->mode == EBB_READ ? m->versions.read[at] : m->versions.after[at])) { return; }
        for (uint32_t k = 0; access->mode == EBB_READ && k < t->n_parts; k++) {
            if (!t->parts[k].present && some_copy(m, &t->parts[k]) == 0) { return; }
        }
    }
    for (uint32_t i = 0; i < p->steps.data[s].n_accesses; i++) {
        const ebb_access *access = &p->accesses.data[p->steps.data[s].first_access + i];
        if (access->mode == EBB_READ) { bring(m, access->tensor); }
    }
    assert_int_equal(ebb__draft_step(&m->draft, EBB_ACT_AGAIN, s, 0), EBB_OK);
    for (uint32_t i = 0; i < p->steps.data[s].n_accesses; i++) {
        const ebb_access *access = &p->accesses.data[p->steps.data[s].first_access + i];
        content *t = &m->tensors[access->tensor];
        for (uint32_t k = 0; access->mode == EBB_WRITE && k < t->n_parts; k++) { t->parts[k].present = true; }
    }
}

/* ---- the whole ---------------------------------------------------------------------------------- */

static inline void cut(maker *m, uint32_t t) {
    const uint64_t alignment = m->program->alignment_bytes, size = m->program->tensors.data[t].size_bytes;
    content *tensor = &m->tensors[t];
    uint64_t begin = 0;
    tensor->n_parts = 0;
    while (begin < size) {
        uint64_t end = begin + alignment * (1 + below(m, size / alignment + 1));
        if (tensor->n_parts == MAX_PARTS - 1 || end > size || below(m, 3) == 0) { end = size; }
        tensor->parts[tensor->n_parts++] = (piece){.begin = begin, .end = end};
        begin = end;
    }
}

static inline void begin_tensors(maker *m) {
    const ebb_program *p = m->program;
    m->tensors = calloc(p->tensors.n, sizeof *m->tensors);
    for (size_t at = 0; at < p->steps.n; at++) {
        const ebb_step *step = &p->steps.data[m->order[at]];
        for (uint32_t i = 0; i < step->n_accesses; i++) {
            const ebb_access *access = &p->accesses.data[step->first_access + i];
            content *tensor = &m->tensors[access->tensor];
            tensor->last_use = at;
            tensor->is_written = tensor->is_written || (access->mode & EBB_WRITE) != 0;
        }
    }
    for (uint32_t t = 0; t < p->tensors.n; t++) {
        cut(m, t);
        const uint32_t home = 1 + (uint32_t)below(m, N_TIERS);
        m->draft.home[t] = (uint8_t)home;
        for (uint32_t i = 0; i < m->tensors[t].n_parts; i++) {
            piece *part = &m->tensors[t].parts[i];
            part->home = m->tensors[t].is_written ? 1 + (uint32_t)below(m, N_TIERS) : home;
            if (!p->tensors.data[t].persistent) { continue; }
            part->is_away = !p->tensors.data[t].kept && below(m, 2) == 0;
            part->present = !part->is_away;
            part->copied[part->home] = part->is_away;
            const ebb_part absent = {t, part->begin, part->end};
            if (part->is_away) { assert_int_equal(EBB_PUSH(NULL, &m->draft.absent, absent), EBB_OK); }
        }
    }
}

/* Close the circle: what is away has its copy at home, everything else persistent or kept is there. */
static inline void end_tensor(maker *m, uint32_t t) {
    const ebb_tensor *info = &m->program->tensors.data[t];
    content *tensor = &m->tensors[t];
    if (!info->persistent && !info->kept) {
        for (uint32_t i = 0; i < tensor->n_parts; i++) {
            if (tensor->parts[i].present) { act(m, EBB_ACT_DROP, t, &tensor->parts[i], 0, 0); }
        }
        return;
    }
    for (uint32_t i = 0; i < tensor->n_parts; i++) {
        piece *p = &tensor->parts[i];
        if (!p->present && (!p->is_away || (tensor->is_written && !p->copied[p->home]))) {
            act(m, EBB_ACT_IN, t, p, some_copy(m, p), 0);
            p->present = true;
        }
        if (!p->is_away) { continue; }
        if (tensor->is_written && !p->copied[p->home]) { act(m, EBB_ACT_OUT, t, p, p->home, 0); }
        if (p->present) { act(m, EBB_ACT_DROP, t, p, 0, 0); }
    }
}

static inline ebb_machine *make_tiers(maker *m) {
    ebb_machine *machine = NULL;
    assert_int_equal(ebb_machine_create(NULL, &machine), EBB_OK);
    const ebb_tier far = {"far", EBB_STORE_MEMORY, UINT64_MAX}, slow = {"slow", EBB_STORE_FILE, UINT64_MAX};
    uint32_t tier = 0, engine = 0;
    assert_int_equal(ebb_machine_add_tier(machine, &far, &tier), EBB_OK);
    assert_int_equal(ebb_machine_add_tier(machine, &slow, &tier), EBB_OK);
    assert_int_equal(ebb_machine_add_engine(machine, "other", &engine), EBB_OK);
    for (uint32_t near = 0; near <= N_TIERS; near++) {
        for (uint32_t to = near + 1; to <= N_TIERS; to++) {
            const ebb_link link = {.near = near,
                                   .far = to,
                                   .out = {1e9, below(m, 100), 1 + (uint32_t)below(m, engine)},
                                   .in = {1e9, below(m, 100), 1 + (uint32_t)below(m, engine)},
                                   .both_rate = below(m, 2) ? 1 : 0.5,
                                   .work_rate = {below(m, 2) ? 1 : 0.75, 0.5},
                                   .copy_rate = {1, below(m, 2) ? 1 : 0.25}};
            assert_int_equal(ebb_machine_set_link(machine, &link), EBB_OK);
        }
    }
    ebb_machine_set_rates(machine, 1e10, 1e10, 10);
    return machine;
}

/* A plan by chance; *machine_out is what it is for. */
static inline ebb_plan *make_plan(const ebb_program *program, uint64_t seed, ebb_machine **machine_out) {
    maker m = {.program = program};
    ebb_plan *plan = NULL;
    ebb_placed placed;
    ebb__rng_init(&m.rng, seed, 7);
    ebb__bump_init(&m.bump, NULL);
    assert_int_equal(ebb__draft_init(&m.draft, program, NULL), EBB_OK);
    assert_int_equal(ebb__program_versions(program, &m.bump, &m.versions), EBB_OK);
    make_order(&m);
    begin_tensors(&m);
    for (size_t at = 0; at < program->steps.n; at++) {
        fidget_some(&m, at);
        if (below(&m, 4) == 0) { run_again(&m, at); }
        run(&m, m.order[at]);
    }
    fidget_some(&m, program->steps.n);
    for (uint32_t t = 0; t < program->tensors.n; t++) { end_tensor(&m, t); }
    m.machine = make_tiers(&m);
    assert_int_equal(ebb__plan_create(NULL, "chance", ebb_machine_topology(m.machine), &plan), EBB_OK);
    plan->fingerprint = ebb_program_fingerprint(program);
    plan->alignment_bytes = program->alignment_bytes;
    plan->budget_bytes = UINT64_MAX;
    assert_int_equal(ebb__draft_to_plan(&m.draft, program, plan), EBB_OK);
    ebb_placing_options options = {.alignment = program->alignment_bytes, .work = 10000, .limit_bytes = UINT64_MAX};
    for (uint32_t t = 1; t <= N_TIERS; t++) { options.tier_bytes[t] = UINT64_MAX; }
    assert_int_equal(ebb__plan_place(plan, &options, &placed), EBB_OK);
    assert_int_equal(ebb__plan_seal(plan), EBB_OK);
    assert_int_equal(ebb_plan_get_summary(plan).peak_bytes, placed.peak_bytes);
    *machine_out = m.machine;
    ebb__draft_fini(&m.draft);
    ebb__bump_fini(&m.bump);
    free(m.tensors);
    free(m.order);
    return plan;
}

#endif
