/* SPDX-License-Identifier: Apache-2.0
 *
 * The raw memory timeline of PyTorch's profiler (export_memory_timeline with a name that ends in raw.json.gz): a list
 * of
 *
 *     [time, action, bytes, category]
 *
 * with the actions preexisting, create, increment version and destroy. Bytes are negative where a tensor leaves a
 * category: when it is destroyed, and as the first half of an increment, whose second half is the next entry.
 *
 * The entries do not say which tensor they mean, only its size and category. A free therefore goes to the youngest live
 * block of that size and category. Sizes, times and categories at every moment are exact; which of two equal blocks
 * lives longer is not known.
 */
#include "base/u64_map.h"
#include "trace/import_priv.h"

#define MIN_NS ((int64_t)100 * 1000 * 1000 * 1000 * 1000 * 1000) /* times below it are in us */
#define NO_BLOCK UINT64_MAX

enum { PREEXISTING = 1, CREATE, INCREMENT, DESTROY }; /* as the profiler numbers them */

static const ebb_role roles[] = {EBB_ROLE_PARAMETER,  EBB_ROLE_OPTIMIZER_STATE, EBB_ROLE_INPUT, EBB_ROLE_TEMP,
                                 EBB_ROLE_ACTIVATION, EBB_ROLE_GRADIENT,        EBB_ROLE_OTHER, EBB_ROLE_UNKNOWN};
#define N_CATEGORIES (sizeof roles / sizeof roles[0])

typedef struct entry {
    int64_t time, bytes;
    uint64_t action, category;
} entry;

typedef struct timeline {
    ebb_importer *importer;
    ebb_u64_map youngest;    /* of size and category: the number plus one of its youngest live block, or 0 */
    EBB_VEC(uint64_t) older; /* [block]: the next older one of its size and category, plus one, or 0 */
    uint64_t changing;       /* the block that an increment has taken out of its category; NO_BLOCK: none */
    uint64_t now_ns;
    int64_t first_time; /* 0: no time yet */
} timeline;

bool ebb__import_is_timeline(const uint8_t *head, size_t n, const char *path) {
    (void)path;
    size_t at = 0;
    for (unsigned brackets = 0; brackets < 2; at++) {
        while (at < n && memchr(" \t\r\n", head[at], 4) != NULL) { at++; }
        if (at == n || head[at] != '[') { return false; }
        brackets++;
    }
    while (at < n && memchr(" \t\r\n", head[at], 4) != NULL) { at++; }
    return at < n && (head[at] == '-' || (head[at] >= '0' && head[at] <= '9'));
}

/* ---- blocks ------------------------------------------------------------------------------------- */

static ebb_status push_block(timeline *t, uint64_t size_bytes, uint64_t category, uint64_t block) {
    uint64_t *youngest = NULL;
    bool is_new = false;
    EBB_TRY(ebb__u64_map_add(&t->youngest, size_bytes * N_CATEGORIES + category, &youngest, &is_new));
    t->older.data[block] = *youngest;
    *youngest = block + 1;
    return EBB_OK;
}

static uint64_t pop_block(timeline *t, uint64_t size_bytes, uint64_t category) {
    uint64_t *youngest = ebb__u64_map_find(&t->youngest, size_bytes * N_CATEGORIES + category);
    if (youngest == NULL || *youngest == 0) { return NO_BLOCK; }
    const uint64_t block = *youngest - 1;
    *youngest = t->older.data[block];
    return block;
}

/* ---- entries ------------------------------------------------------------------------------------ */

static ebb_status read_entry(const ebb_json_value *json, entry *entry_out) {
    uint32_t at[4], n = 0;
    if (ebb__json_value_is(json, 0, EBB_JSON_ARRAY)) {
        for (uint32_t token = 1; token < json->tokens[0].next && n < 5; token = json->tokens[token].next) {
            if (n < 4) { at[n] = token; }
            n++;
        }
    }
    if (n == 4 && ebb__json_value_is(json, at[0], EBB_JSON_NUMBER) &&
        ebb__json_value_i64(json, at[0], &entry_out->time) && ebb__json_value_u64(json, at[1], &entry_out->action) &&
        ebb__json_value_i64(json, at[2], &entry_out->bytes) && ebb__json_value_u64(json, at[3], &entry_out->category) &&
        entry_out->action >= PREEXISTING && entry_out->action <= DESTROY && entry_out->category < N_CATEGORIES &&
        entry_out->bytes >= -(INT64_MAX / (int64_t)N_CATEGORIES) &&
        entry_out->bytes <= INT64_MAX / (int64_t)N_CATEGORIES) {
        return EBB_OK;
    }
    return ebb__json_value_fail(json, "not [time, action, bytes, category]; only timelines that were exported with a "
                                      "name that ends in raw.json.gz tell each block");
}

static void move_time(timeline *t, int64_t time) {
    if (time <= 0) { return; } /* blocks from before have none */
    if (t->first_time == 0) { t->first_time = time; }
    const uint64_t unit_ns = t->first_time < MIN_NS ? 1000 : 1;
    uint64_t ns = 0;
    if (time > t->first_time && ebb_mul_u64((uint64_t)(time - t->first_time), unit_ns, &ns)) {
        t->now_ns = ebb_max_u64(t->now_ns, ns);
    }
}

static ebb_status begin_block(timeline *t, const entry *e) {
    const uint64_t block = t->older.n;
    const ebb_trace_event event = {.kind = EBB_TRACE_ALLOC,
                                   .time_ns = t->now_ns,
                                   .block = block,
                                   .size_bytes = (uint64_t)e->bytes,
                                   .address = EBB_TRACE_NONE,
                                   .role = roles[e->category],
                                   .before = e->action == PREEXISTING && t->first_time == 0};
    EBB_TRY(EBB_PUSH(t->importer->mem, &t->older, 0));
    EBB_TRY(push_block(t, event.size_bytes, e->category, block));
    return ebb_trace_writer_add(t->importer->writer, &event);
}

/* The second half of an increment: the block has another category now. */
static ebb_status change_block(timeline *t, const entry *e) {
    const uint64_t block = t->changing;
    t->changing = NO_BLOCK;
    if (block == NO_BLOCK) { return EBB_OK; } /* counted with the first half */
    EBB_TRY(push_block(t, (uint64_t)e->bytes, e->category, block));
    const ebb_trace_event event = {
        .kind = EBB_TRACE_LABEL, .time_ns = t->now_ns, .block = block, .role = roles[e->category]};
    return ebb_trace_writer_add(t->importer->writer, &event);
}

static ebb_status leave_category(timeline *t, const entry *e) {
    const uint64_t block = pop_block(t, (uint64_t)-e->bytes, e->category);
    t->importer->n_left_out += block == NO_BLOCK;
    if (e->action == INCREMENT) {
        t->importer->n_left_out += t->changing != NO_BLOCK; /* its second half never came */
        t->changing = block;
        return EBB_OK;
    }
    if (block == NO_BLOCK) { return EBB_OK; }
    const ebb_trace_event event = {.kind = EBB_TRACE_FREE, .time_ns = t->now_ns, .block = block};
    return ebb_trace_writer_add(t->importer->writer, &event);
}

static ebb_status take_entry(void *ctx, const ebb_json_value *json) {
    timeline *t = ctx;
    entry e;
    EBB_TRY(read_entry(json, &e));
    if (e.bytes == 0) { return EBB_OK; }
    move_time(t, e.time);
    if (e.bytes < 0) { return leave_category(t, &e); }
    if (e.action == INCREMENT) { return change_block(t, &e); }
    if (e.action == DESTROY) { return ebb__json_value_fail(json, "a block that is destroyed has negative bytes"); }
    return begin_block(t, &e);
}

static bool wants(void *ctx, const char *key) {
    (void)ctx;
    (void)key;
    return false;
}

ebb_status ebb__import_timeline(ebb_importer *importer) {
    timeline t = {.importer = importer, .changing = NO_BLOCK};
    ebb__u64_map_init(&t.youngest, importer->mem);
    const uint32_t tells = EBB_TRACE_TELLS_TIMES | EBB_TRACE_TELLS_ROLES | EBB_TRACE_TELLS_BEFORE;
    const ebb_json_handler handler = {
        .array = "timeline", .takes_list = true, .element = take_entry, .wants = wants, .ctx = &t};
    ebb_status st = ebb__import_begin(importer, tells, 0);
    if (st == EBB_OK) { st = ebb__import_json_read(importer, &handler); }
    ebb__u64_map_fini(&t.youngest);
    EBB_VEC_FINI(importer->mem, &t.older);
    return st;
}
