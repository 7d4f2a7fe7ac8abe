/* SPDX-License-Identifier: Apache-2.0
 *
 * The schedule: what each action must wait for.
 *
 * Two actions conflict when they touch the same byte of the arena or of a tier and one of them writes it. Such
 * pairs must happen in the list's order, across the border of the iteration too. A map from bytes to their
 * history (the last write, and each engine's last read since) yields the pairs that matter: writes wait for
 * both, reads for the write. As every engine works in order, the latest of each other engine is enough.
 *
 * A wait that is implied by another is left out: each action carries a clock, which says for each engine how far
 * it is known to be when the action has ended. What the clock of the engine's action before, or of the other wait,
 * already covers needs no wait of its own.
 *
 * The list is walked twice: the first lap fills the history, the second gives the waits of every lap. Times are
 * counted through both laps, from 1; 0 is never.
 *
 * The history is kept in segments that begin at coordinates known beforehand (the ends of all stays). A write makes
 * its range one segment, so segments that a write removes were paid for by those that made them: O(n log n).
 */
#include "plan/ordset.h"
#include "plan/plan_priv.h"

typedef struct history {
    uint64_t write;               /* time of the last */
    uint64_t read[EBB_N_ENGINES]; /* since then */
    uint8_t writer;
} history;

/* Ranges of one address space by number (of the stay or slot), and the history of its bytes. */
typedef struct byte_map {
    uint64_t *begin, *end; /* of each range: indices of coordinates */
    ebb_ordset starts;
    history *segment; /* by coordinate; of those in starts */
} byte_map;

typedef struct tracker {
    const ebb_plan *plan;
    ebb_program_view view;
    ebb_bump bump; /* what dies with the call */
    byte_map arena, tier[EBB_N_TIERS];
    uint64_t *stay, *slot; /* [n_tensors]: the latest begun */
    size_t next_stay, next_slot;
    uint64_t scratch;                 /* stay of the action at hand, or UINT64_MAX */
    uint64_t (*clock)[EBB_N_ENGINES]; /* by time */
    uint64_t known[EBB_N_ENGINES][EBB_N_ENGINES];
} tracker;

/* Number the ends of the ranges from below, equal ones alike; 0 is the address 0. How many numbers there are. */
static ebb_status number_ends(byte_map *map, const uint64_t *ranges, size_t n, ebb_bump *bump, uint64_t *n_out) {
    if (n >= UINT32_MAX / 2) { return ebb_fail(EBB_E_LIMIT, "plan: more than 2^31 stays or slots"); }
    uint32_t *order = ebb__bump_alloc(bump, 2 * n, sizeof *order);
    if (order == NULL) { return EBB_E_NO_MEMORY; }
    for (size_t i = 0; i < 2 * n; i++) { order[i] = (uint32_t)i; }
    EBB_TRY(ebb__sort_by_key(bump->mem, order, 2 * n, ranges));
    uint64_t number = 0, address = 0;
    for (size_t i = 0; i < 2 * n; i++) {
        const uint32_t end = order[i];
        EBB_ASSERT(ranges[end] >= address);
        number += ranges[end] != address;
        address = ranges[end];
        *(end % 2 == 0 ? &map->begin[end / 2] : &map->end[end / 2]) = number;
    }
    *n_out = number + 1;
    return EBB_OK;
}

/* ranges: low and high of each, one after the other; what another address space holds is [0, 0). */
static ebb_status init_map(byte_map *map, const uint64_t *ranges, size_t n, ebb_bump *bump) {
    uint64_t n_coordinates = 0;
    map->begin = ebb__bump_alloc(bump, n, sizeof *map->begin);
    map->end = ebb__bump_alloc(bump, n, sizeof *map->end);
    if (map->begin == NULL || map->end == NULL) { return EBB_E_NO_MEMORY; }
    EBB_TRY(number_ends(map, ranges, n, bump, &n_coordinates));
    map->segment = ebb__bump_alloc(bump, n_coordinates, sizeof *map->segment);
    if (map->segment == NULL) { return EBB_E_NO_MEMORY; }
    EBB_TRY(ebb__ordset_init(&map->starts, n_coordinates, bump));
    ebb__ordset_add(&map->starts, 0);
    map->segment[0] = (history){0};
    return EBB_OK;
}

static void split_at(byte_map *map, uint64_t at) {
    uint64_t start = ebb__ordset_prev(&map->starts, at);
    EBB_ASSERT(start != EBB_ORDSET_NONE && start <= at); /* 0 is always a start */
    if (start == at) { return; }
    ebb__ordset_add(&map->starts, at);
    map->segment[at] = map->segment[start];
}

/* Gather what an access to a range must wait for. */
static void gather(byte_map *map, uint64_t range, bool writes, uint64_t need[EBB_N_ENGINES]) {
    uint64_t end = map->end[range];
    EBB_ASSERT(map->begin[range] <= end);
    split_at(map, map->begin[range]);
    split_at(map, end);
    for (uint64_t at = map->begin[range]; at < end; at = ebb__ordset_next(&map->starts, at + 1)) {
        const history *past = &map->segment[at];
        EBB_ASSERT(past->writer < EBB_N_ENGINES);
        need[past->writer] = ebb_max_u64(need[past->writer], past->write);
        for (uint32_t e = 0; writes && e < EBB_N_ENGINES; e++) { need[e] = ebb_max_u64(need[e], past->read[e]); }
    }
}

/* Enter the access into the history; the range was split by gather. */
static void enter(byte_map *map, uint64_t range, bool writes, uint8_t engine, uint64_t time) {
    uint64_t begin = map->begin[range], end = map->end[range];
    EBB_ASSERT(ebb__ordset_has(&map->starts, begin) && ebb__ordset_has(&map->starts, end));
    if (!writes) {
        for (uint64_t at = begin; at < end; at = ebb__ordset_next(&map->starts, at + 1)) {
            map->segment[at].read[engine] = time;
        }
        return;
    }
    if (begin == end) { return; }
    for (uint64_t at = ebb__ordset_next(&map->starts, begin + 1); at < end;
         at = ebb__ordset_next(&map->starts, at + 1)) {
        ebb__ordset_remove(&map->starts, at);
    }
    map->segment[begin] = (history){.write = time, .writer = engine};
}

typedef void (*visit_fn)(byte_map *map, uint64_t range, bool writes, void *ctx);

/* Visit all ranges that an action touches. */
static void visit_ranges(tracker *t, const ebb_action *action, visit_fn visit, void *ctx) {
    if (action->kind == EBB_ACT_DROP) { return; }
    if (action->kind == EBB_ACT_OUT || action->kind == EBB_ACT_IN) {
        bool out = action->kind == EBB_ACT_OUT;
        uint64_t slot = t->slot[action->target];
        EBB_ASSERT(t->plan->slots.data[slot].tensor == action->target);
        EBB_ASSERT(t->plan->stays.data[t->stay[action->target]].tensor == action->target);
        visit(&t->arena, t->stay[action->target], !out, ctx);
        visit(&t->tier[t->plan->slots.data[slot].tier], slot, out, ctx);
        return;
    }
    const ebb_step *step = &t->view.steps[action->target];
    for (uint32_t i = 0; i < step->n_accesses; i++) {
        const ebb_access *access = &t->view.accesses[step->first_access + i];
        visit(&t->arena, t->stay[access->tensor], (access->mode & EBB_WRITE) != 0, ctx);
    }
    if (t->scratch != UINT64_MAX) { visit(&t->arena, t->scratch, true, ctx); }
}

static void visit_gather(byte_map *map, uint64_t range, bool writes, void *need) {
    gather(map, range, writes, need);
}

typedef struct entry {
    uint8_t engine;
    uint64_t time;
} entry;

static void visit_enter(byte_map *map, uint64_t range, bool writes, void *ctx) {
    const entry *e = ctx;
    enter(map, range, writes, e->engine, e->time);
}

/* Leave of the needs those that are not implied; 0 stands for none. */
static void reduce(const tracker *t, uint8_t engine, uint64_t need[EBB_N_ENGINES]) {
    for (uint32_t e = 0; e < EBB_N_ENGINES; e++) {
        if (e == engine || need[e] <= t->known[engine][e]) { need[e] = 0; }
    }
    for (uint32_t e = 0; e < EBB_N_ENGINES; e++) {
        for (uint32_t other = 0; other < EBB_N_ENGINES; other++) {
            if (other != e && need[other] != 0 && need[e] != 0 && t->clock[need[other]][e] >= need[e]) { need[e] = 0; }
        }
    }
}

static void advance_clock(tracker *t, uint8_t engine, uint64_t time, const uint64_t need[EBB_N_ENGINES]) {
    uint64_t *known = t->known[engine];
    EBB_ASSERT(engine < EBB_N_ENGINES && known[engine] < time);
    for (uint32_t e = 0; e < EBB_N_ENGINES; e++) {
        if (need[e] == 0) { continue; }
        EBB_ASSERT(e != engine && need[e] < time && t->clock[need[e]][e] == need[e]);
        for (uint32_t f = 0; f < EBB_N_ENGINES; f++) { known[f] = ebb_max_u64(known[f], t->clock[need[e]][f]); }
    }
    known[engine] = time;
    memcpy(t->clock[time], known, sizeof t->clock[time]);
}

static void begin_ranges(tracker *t, uint64_t position) {
    t->scratch = UINT64_MAX;
    for (; t->next_stay < t->plan->stays.n; t->next_stay++) {
        const ebb_stay *stay = &t->plan->stays.data[t->next_stay];
        if (stay->first != position) { break; }
        if (stay->tensor == EBB_SCRATCH) {
            t->scratch = t->next_stay;
        } else {
            t->stay[stay->tensor] = t->next_stay;
        }
    }
    for (; t->next_slot < t->plan->slots.n; t->next_slot++) {
        const ebb_slot *slot = &t->plan->slots.data[t->next_slot];
        if (slot->first != position) { break; }
        t->slot[slot->tensor] = t->next_slot;
    }
}

static uint8_t engine_of(const ebb_action *action) {
    switch (action->kind) {
    case EBB_ACT_OUT: return EBB_ENGINE_OUT;
    case EBB_ACT_IN: return EBB_ENGINE_IN;
    case EBB_ACT_DROP: return EBB_N_ENGINES;
    default: return EBB_ENGINE_COMPUTE;
    }
}

/* One lap; first_time is the time of action 0. schedule may be NULL: only the history is wanted. */
static void walk_lap(tracker *t, uint64_t first_time, ebb_schedule *schedule) {
    uint64_t n = t->plan->actions.n, n_deps = 0;
    t->next_stay = t->next_slot = 0;
    for (uint64_t a = 0; a < n; a++) {
        const ebb_action *action = &t->plan->actions.data[a];
        entry now = {.engine = engine_of(action), .time = first_time + a};
        if (schedule != NULL) {
            schedule->start[a] = n_deps;
            schedule->engine[a] = now.engine;
        }
        begin_ranges(t, a);
        if (now.engine == EBB_N_ENGINES) { continue; }
        uint64_t need[EBB_N_ENGINES] = {0};
        visit_ranges(t, action, visit_gather, need);
        visit_ranges(t, action, visit_enter, &now);
        reduce(t, now.engine, need);
        advance_clock(t, now.engine, now.time, need);
        for (uint32_t e = 0; schedule != NULL && e < EBB_N_ENGINES; e++) {
            if (need[e] == 0) { continue; }
            uint64_t on = (need[e] - 1) % n;
            EBB_ASSERT((need[e] >= first_time) == (on < a));
            schedule->dep[n_deps++] = on;
        }
    }
    EBB_ASSERT(n_deps <= n * (EBB_N_ENGINES - 1));
    EBB_ASSERT(t->next_stay == t->plan->stays.n && t->next_slot == t->plan->slots.n);
    if (schedule != NULL) { schedule->start[n] = n_deps; }
}

static ebb_status init_maps(tracker *t) {
    const ebb_plan *plan = t->plan;
    size_t n = plan->stays.n > plan->slots.n ? plan->stays.n : plan->slots.n;
    uint64_t *ranges = ebb__bump_alloc(&t->bump, 2 * n, sizeof *ranges);
    if (ranges == NULL) { return EBB_E_NO_MEMORY; }
    for (size_t i = 0; i < plan->stays.n; i++) {
        ranges[2 * i] = plan->stays.data[i].offset;
        ranges[2 * i + 1] = plan->stays.data[i].offset + plan->stays.data[i].size_bytes;
    }
    EBB_TRY(init_map(&t->arena, ranges, plan->stays.n, &t->bump));
    for (uint32_t tier = 0; tier < EBB_N_TIERS; tier++) {
        for (size_t i = 0; i < plan->slots.n; i++) {
            const ebb_slot *slot = &plan->slots.data[i];
            ranges[2 * i] = slot->tier == tier ? slot->offset : 0;
            ranges[2 * i + 1] = slot->tier == tier ? slot->offset + slot->size_bytes : 0;
        }
        EBB_TRY(init_map(&t->tier[tier], ranges, plan->slots.n, &t->bump));
    }
    return EBB_OK;
}

static ebb_status init_tracker(tracker *t) {
    const size_t n_tensors = t->view.n_tensors;
    t->stay = ebb__bump_alloc(&t->bump, n_tensors, sizeof *t->stay);
    t->slot = ebb__bump_alloc(&t->bump, n_tensors, sizeof *t->slot);
    t->clock = ebb__bump_alloc(&t->bump, 2 * t->plan->actions.n + 1, sizeof *t->clock);
    if (t->stay == NULL || t->slot == NULL || t->clock == NULL) { return EBB_E_NO_MEMORY; }
    for (size_t i = 0; i < t->plan->stays.n; i++) {
        const ebb_stay *stay = &t->plan->stays.data[i];
        if (stay->first >= stay->last) { t->stay[stay->tensor] = i; }
    }
    for (size_t i = 0; i < t->plan->slots.n; i++) {
        const ebb_slot *slot = &t->plan->slots.data[i];
        if (slot->first >= slot->last) { t->slot[slot->tensor] = i; }
    }
    return init_maps(t);
}

ebb_status ebb__plan_schedule(const ebb_program *program, const ebb_plan *plan, ebb_bump *bump,
                              ebb_schedule *schedule_out) {
    uint64_t n = plan->actions.n;
    ebb_schedule schedule = {
        .start = ebb__bump_alloc(bump, n + 1, sizeof *schedule.start),
        .dep = ebb__bump_alloc(bump, n * (EBB_N_ENGINES - 1), sizeof *schedule.dep),
        .engine = ebb__bump_alloc(bump, n, sizeof *schedule.engine),
    };
    if (schedule.start == NULL || schedule.dep == NULL || schedule.engine == NULL) { return EBB_E_NO_MEMORY; }
    tracker t = {.plan = plan, .view = ebb__plan_view(program)};
    ebb__bump_init(&t.bump, bump->mem);
    ebb_status st = init_tracker(&t);
    if (st == EBB_OK) {
        walk_lap(&t, 1, NULL);
        walk_lap(&t, n + 1, &schedule);
        *schedule_out = schedule;
    }
    ebb__bump_fini(&t.bump);
    return st;
}
