/* SPDX-License-Identifier: Apache-2.0
 *
 * The schedule: what each action must wait for.
 *
 * Two actions conflict when they touch the same byte of the arena or of a tier and one of them writes it. Such
 * pairs must happen in the list's order, across the border of the iteration too. A map from bytes to their
 * history (the last write, and each engine's last read since) yields the pairs that matter: writes wait for
 * both, reads for the write. As every engine works in order, the latest of each other engine is enough. A copy that is
 * held waits for the last action before it in the lap that computes, too.
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

/* Ranges of one address space by number (of the stay or slot), and the history of its bytes. */
typedef struct byte_map {
    uint64_t *begin, *end; /* of each range: indices of coordinates */
    ebb_ordset starts;
    /* of the segment that begins at a coordinate, for those of starts: */
    uint64_t *write; /* time of the last */
    uint8_t *writer; /* its engine */
    uint64_t *read;  /* [n_engines] each: since then */
} byte_map;

typedef struct tracker {
    const ebb_plan *plan;
    ebb_program_view view;
    ebb_bump bump; /* what dies with the call */
    uint32_t n_engines;
    byte_map space[EBB_MAX_TIERS]; /* of the arena and the lower tiers */
    ebb_plan_cursor cursor;
    uint64_t *clock; /* [n_engines] each, by time */
    uint64_t known[EBB_MAX_ENGINES][EBB_MAX_ENGINES];
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
static ebb_status init_map(byte_map *map, const uint64_t *ranges, size_t n, uint32_t n_engines, ebb_bump *bump) {
    uint64_t n_coordinates = 0;
    map->begin = ebb__bump_alloc(bump, n, sizeof *map->begin);
    map->end = ebb__bump_alloc(bump, n, sizeof *map->end);
    if (map->begin == NULL || map->end == NULL) { return EBB_E_NO_MEMORY; }
    EBB_TRY(number_ends(map, ranges, n, bump, &n_coordinates));
    map->write = ebb__bump_alloc(bump, n_coordinates, sizeof *map->write);
    map->writer = ebb__bump_alloc(bump, n_coordinates, sizeof *map->writer);
    map->read = ebb__bump_alloc(bump, n_coordinates * n_engines, sizeof *map->read);
    if (map->write == NULL || map->writer == NULL || map->read == NULL) { return EBB_E_NO_MEMORY; }
    EBB_TRY(ebb__ordset_init(&map->starts, n_coordinates, bump));
    ebb__ordset_add(&map->starts, 0);
    map->write[0] = map->writer[0] = 0;
    memset(map->read, 0, n_engines * sizeof *map->read);
    return EBB_OK;
}

static void split_at(const tracker *t, byte_map *map, uint64_t at) {
    uint64_t start = ebb__ordset_prev(&map->starts, at);
    EBB_ASSERT(start != EBB_ORDSET_NONE && start <= at); /* 0 is always a start */
    if (start == at) { return; }
    ebb__ordset_add(&map->starts, at);
    map->write[at] = map->write[start];
    map->writer[at] = map->writer[start];
    memcpy(&map->read[at * t->n_engines], &map->read[start * t->n_engines], t->n_engines * sizeof *map->read);
}

/* Gather what an access to a range must wait for. */
static void gather(const tracker *t, byte_map *map, uint64_t range, bool writes, uint64_t need[EBB_MAX_ENGINES]) {
    uint64_t end = map->end[range];
    EBB_ASSERT(map->begin[range] <= end);
    split_at(t, map, map->begin[range]);
    split_at(t, map, end);
    for (uint64_t at = map->begin[range]; at < end; at = ebb__ordset_next(&map->starts, at + 1)) {
        const uint64_t *read = &map->read[at * t->n_engines];
        const uint8_t writer = map->writer[at];
        EBB_ASSERT(writer < t->n_engines);
        need[writer] = ebb_max_u64(need[writer], map->write[at]);
        for (uint32_t e = 0; writes && e < t->n_engines; e++) { need[e] = ebb_max_u64(need[e], read[e]); }
    }
}

/* Enter the access into the history; the range was split by gather. */
static void enter(const tracker *t, byte_map *map, uint64_t range, bool writes, uint8_t engine, uint64_t time) {
    uint64_t begin = map->begin[range], end = map->end[range];
    EBB_ASSERT(ebb__ordset_has(&map->starts, begin) && ebb__ordset_has(&map->starts, end));
    if (!writes) {
        for (uint64_t at = begin; at < end; at = ebb__ordset_next(&map->starts, at + 1)) {
            map->read[at * t->n_engines + engine] = time;
        }
        return;
    }
    if (begin == end) { return; }
    for (uint64_t at = ebb__ordset_next(&map->starts, begin + 1); at < end;
         at = ebb__ordset_next(&map->starts, at + 1)) {
        ebb__ordset_remove(&map->starts, at);
    }
    map->write[begin] = time;
    map->writer[begin] = engine;
    memset(&map->read[begin * t->n_engines], 0, t->n_engines * sizeof *map->read);
}

typedef void (*visit_fn)(const tracker *t, byte_map *map, uint64_t range, bool writes, void *ctx);

/* The live stays of a tensor that have bytes of [begin, end). Where the action is on a part of one, all of it counts.
 */
static void visit_stays(tracker *t, uint32_t tensor, uint64_t begin, uint64_t end, bool writes, visit_fn visit,
                        void *ctx) {
    for (uint32_t i = ebb__plan_cursor_stay(&t->cursor, tensor, begin); i != EBB_NO_PIECE;
         i = ebb__plan_cursor_next_stay(&t->cursor, i)) {
        if (t->plan->stays.data[i].begin >= end) { break; }
        visit(t, &t->space[EBB_DEVICE], i, writes, ctx);
    }
}

static void visit_slot(tracker *t, const ebb_action *action, uint32_t tier, bool writes, visit_fn visit, void *ctx) {
    const uint32_t slot = ebb__plan_cursor_slot(&t->cursor, action->target, tier, action->begin);
    EBB_ASSERT(slot != EBB_NO_PIECE);
    visit(t, &t->space[tier], slot, writes, ctx);
}

/* Visit all ranges that an action touches. */
static void visit_ranges(tracker *t, const ebb_action *action, visit_fn visit, void *ctx) {
    if (!ebb__action_computes(action)) {
        const uint64_t end = ebb__action_end(action, t->view.tensors[action->target].size_bytes);
        const bool is_in = action->kind == EBB_ACT_IN, is_out = action->kind == EBB_ACT_OUT;
        if (is_in || is_out) { visit_stays(t, action->target, action->begin, end, is_in, visit, ctx); }
        visit_slot(t, action, action->tier, is_out, visit, ctx);
        if (action->kind == EBB_ACT_MOVE) { visit_slot(t, action, action->to, true, visit, ctx); }
        return;
    }
    const ebb_step *step = &t->view.steps[action->target];
    for (uint32_t i = 0; i < step->n_accesses; i++) {
        const ebb_access *access = &t->view.accesses[step->first_access + i];
        visit_stays(t, access->tensor, 0, UINT64_MAX, (access->mode & EBB_WRITE) != 0, visit, ctx);
    }
    if (t->cursor.scratch != EBB_NO_PIECE) { visit(t, &t->space[EBB_DEVICE], t->cursor.scratch, true, ctx); }
}

static void visit_gather(const tracker *t, byte_map *map, uint64_t range, bool writes, void *need) {
    gather(t, map, range, writes, need);
}

typedef struct entry {
    uint8_t engine;
    uint64_t time;
} entry;

static void visit_enter(const tracker *t, byte_map *map, uint64_t range, bool writes, void *ctx) {
    const entry *e = ctx;
    enter(t, map, range, writes, e->engine, e->time);
}

static uint64_t *clock_at(const tracker *t, uint64_t time) {
    return &t->clock[time * t->n_engines];
}

/* Leave of the needs those that are not implied; 0 stands for none. */
static void reduce(const tracker *t, uint8_t engine, uint64_t need[EBB_MAX_ENGINES]) {
    for (uint32_t e = 0; e < t->n_engines; e++) {
        if (e == engine || need[e] <= t->known[engine][e]) { need[e] = 0; }
    }
    for (uint32_t e = 0; e < t->n_engines; e++) {
        for (uint32_t other = 0; other < t->n_engines; other++) {
            if (other != e && need[other] != 0 && need[e] != 0 && clock_at(t, need[other])[e] >= need[e]) {
                need[e] = 0;
            }
        }
    }
}

static void advance_clock(tracker *t, uint8_t engine, uint64_t time, const uint64_t need[EBB_MAX_ENGINES]) {
    uint64_t *known = t->known[engine];
    EBB_ASSERT(engine < t->n_engines && known[engine] < time);
    for (uint32_t e = 0; e < t->n_engines; e++) {
        if (need[e] == 0) { continue; }
        EBB_ASSERT(e != engine && need[e] < time && clock_at(t, need[e])[e] == need[e]);
        for (uint32_t f = 0; f < t->n_engines; f++) { known[f] = ebb_max_u64(known[f], clock_at(t, need[e])[f]); }
    }
    known[engine] = time;
    memcpy(clock_at(t, time), known, t->n_engines * sizeof *known);
}

static uint8_t engine_of(const tracker *t, const ebb_action *action) {
    const ebb_topology *topology = &t->plan->topology;
    if (ebb__action_computes(action)) {
        const ebb_step *step = &t->view.steps[action->target];
        const uint32_t tier = ebb__topology_feeds_from(topology);
        if (t->view.choices[step->first_choice + action->choice].copies_in) { return topology->way[tier][EBB_DEVICE]; }
    }
    return ebb__topology_engine_of(topology, action);
}

/* One lap; first_time is the time of action 0. schedule may be NULL: only the history is wanted. */
static void walk_lap(tracker *t, uint64_t first_time, ebb_schedule *schedule) {
    uint64_t n = t->plan->actions.n, n_deps = 0, computed = 0;
    for (uint64_t a = 0; a < n; a++) {
        const ebb_action *action = &t->plan->actions.data[a];
        entry now = {.engine = engine_of(t, action), .time = first_time + a};
        if (schedule != NULL) {
            schedule->start[a] = n_deps;
            schedule->engine[a] = now.engine;
        }
        ebb__plan_cursor_next(&t->cursor);
        if (now.engine == EBB_NO_ENGINE) { continue; }
        uint64_t need[EBB_MAX_ENGINES] = {0};
        visit_ranges(t, action, visit_gather, need);
        visit_ranges(t, action, visit_enter, &now);
        if (action->held) { need[EBB_COMPUTE] = ebb_max_u64(need[EBB_COMPUTE], computed); }
        computed = now.engine == EBB_COMPUTE ? now.time : computed;
        reduce(t, now.engine, need);
        advance_clock(t, now.engine, now.time, need);
        for (uint32_t e = 0; schedule != NULL && e < t->n_engines; e++) {
            if (need[e] == 0) { continue; }
            uint64_t on = (need[e] - 1) % n;
            EBB_ASSERT((need[e] >= first_time) == (on < a));
            schedule->dep[n_deps++] = on;
        }
    }
    EBB_ASSERT(n_deps <= n * (t->n_engines - 1));
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
    EBB_TRY(init_map(&t->space[EBB_DEVICE], ranges, plan->stays.n, t->n_engines, &t->bump));
    for (uint32_t tier = 1; tier < plan->topology.n_tiers; tier++) {
        bool is_used = false;
        for (size_t i = 0; i < plan->slots.n; i++) {
            const ebb_slot *slot = &plan->slots.data[i];
            ranges[2 * i] = slot->tier == tier ? slot->offset : 0;
            ranges[2 * i + 1] = slot->tier == tier ? slot->offset + slot->size_bytes : 0;
            is_used = is_used || slot->tier == tier;
        }
        if (is_used) { EBB_TRY(init_map(&t->space[tier], ranges, plan->slots.n, t->n_engines, &t->bump)); }
    }
    return EBB_OK;
}

static ebb_status walk_laps(tracker *t, ebb_schedule *schedule) {
    const uint64_t n = t->plan->actions.n;
    t->clock = ebb__bump_alloc(&t->bump, (2 * n + 1) * t->n_engines, sizeof *t->clock);
    if (t->clock == NULL) { return EBB_E_NO_MEMORY; }
    EBB_TRY(init_maps(t));
    EBB_TRY(ebb__plan_cursor_init(t->plan, &t->bump, &t->cursor));
    walk_lap(t, 1, NULL);
    ebb__plan_cursor_rewind(&t->cursor);
    walk_lap(t, n + 1, schedule);
    return EBB_OK;
}

ebb_status ebb__plan_schedule(const ebb_program *program, const ebb_plan *plan, ebb_bump *bump,
                              ebb_schedule *schedule_out) {
    const uint64_t n = plan->actions.n;
    tracker t = {.plan = plan, .view = ebb__plan_view(program), .n_engines = plan->topology.n_engines};
    ebb_schedule schedule = {
        .start = ebb__bump_alloc(bump, n + 1, sizeof *schedule.start),
        .dep = ebb__bump_alloc(bump, n * (t.n_engines - 1), sizeof *schedule.dep),
        .engine = ebb__bump_alloc(bump, n, sizeof *schedule.engine),
    };
    if (schedule.start == NULL || schedule.dep == NULL || schedule.engine == NULL) { return EBB_E_NO_MEMORY; }
    ebb__bump_init(&t.bump, bump->mem);
    ebb_status st = walk_laps(&t, &schedule);
    if (st == EBB_OK) { *schedule_out = schedule; }
    ebb__bump_fini(&t.bump);
    return st;
}
