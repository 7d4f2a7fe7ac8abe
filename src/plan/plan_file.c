/* SPDX-License-Identifier: Apache-2.0
 *
 * The plan file: reading and writing the text form of docs/plan-format.md. Reading takes memory only as lines
 * come, never as much as a header claims, so a hostile file cannot ask for more than a few times its size.
 */
#include "base/file.h"
#include "plan/plan_priv.h"

#include <ctype.h>
#include <inttypes.h>

#define VERSION 3u
#define VERSION_WITHOUT_HELD 2u /* written where nothing is held, so that older readers know it */
#define MAX_FIELDS 7
#define MAX_FILE_BYTES ((uint64_t)8 << 30)

/* One line at a time, cut into fields. */
typedef struct reader {
    const char *name;
    const char *at, *end;
    uint64_t line, version;
    const char *field[MAX_FIELDS];
    size_t length[MAX_FIELDS];
    uint32_t n_fields; /* MAX_FIELDS + 1: there were more */
} reader;

static ebb_status refuse(const reader *r, const char *what) {
    return ebb_fail(EBB_E_FORMAT, "%s:%" PRIu64 ": %s", r->name, r->line, what);
}

static void split_line(reader *r, const char *from, const char *to) {
    r->n_fields = 0;
    while (from < to && r->n_fields <= MAX_FIELDS) {
        while (from < to && (*from == ' ' || *from == '\t' || *from == '\r')) { from++; }
        const char *start = from;
        while (from < to && *from != ' ' && *from != '\t' && *from != '\r') { from++; }
        if (from == start) { break; }
        if (r->n_fields < MAX_FIELDS) {
            r->field[r->n_fields] = start;
            r->length[r->n_fields] = (size_t)(from - start);
        }
        r->n_fields++;
    }
}

/* The next line that says something; it must have n fields. */
static ebb_status next_line(reader *r, uint32_t n_fields) {
    do {
        if (r->at == r->end) { return refuse(r, "the file ends too soon"); }
        const char *stop = memchr(r->at, '\n', (size_t)(r->end - r->at));
        const char *to = stop != NULL ? stop : r->end;
        split_line(r, r->at, to);
        r->at = stop != NULL ? stop + 1 : r->end;
        EBB_ASSERT(r->at <= r->end && r->n_fields <= MAX_FIELDS + 1);
        r->line++;
    } while (r->n_fields == 0 || r->field[0][0] == '#');
    if (n_fields != 0 && r->n_fields != n_fields) { return refuse(r, "wrong number of fields"); }
    return EBB_OK;
}

static bool field_is(const reader *r, uint32_t idx, const char *word) {
    EBB_ASSERT(idx < MAX_FIELDS);
    return idx < r->n_fields && strlen(word) == r->length[idx] && memcmp(r->field[idx], word, r->length[idx]) == 0;
}

static ebb_status read_number(const reader *r, uint32_t idx, uint64_t max, uint64_t *value_out) {
    uint64_t value = 0;
    EBB_ASSERT(idx < MAX_FIELDS && idx < r->n_fields && r->length[idx] > 0);
    for (size_t i = 0; i < r->length[idx]; i++) {
        char c = r->field[idx][i];
        if (c < '0' || c > '9') { return refuse(r, "not a number"); }
        if (!ebb_mul_u64(value, 10, &value) || !ebb_add_u64(value, (uint64_t)(c - '0'), &value)) {
            return refuse(r, "a number beyond 64 bits");
        }
    }
    if (value > max) { return refuse(r, "a number is too large"); }
    *value_out = value;
    return EBB_OK;
}

static ebb_status read_u32(const reader *r, uint32_t idx, uint32_t *value_out) {
    uint64_t value = 0;
    EBB_TRY(read_number(r, idx, UINT32_MAX - 1, &value));
    *value_out = (uint32_t)value;
    return EBB_OK;
}

/* "WORD N" */
static ebb_status read_count(reader *r, const char *word, uint64_t *count_out) {
    EBB_TRY(next_line(r, 2));
    if (!field_is(r, 0, word)) {
        return ebb_fail(EBB_E_FORMAT, "%s:%" PRIu64 ": '%s' was expected", r->name, r->line, word);
    }
    return read_number(r, 1, UINT64_MAX, count_out);
}

static ebb_status read_fingerprint(reader *r, uint64_t *fingerprint_out) {
    EBB_TRY(next_line(r, 2));
    if (!field_is(r, 0, "fingerprint") || r->length[1] != 16) { return refuse(r, "'fingerprint' was expected"); }
    uint64_t value = 0;
    for (size_t i = 0; i < 16; i++) {
        char c = r->field[1][i];
        if (!isxdigit((unsigned char)c)) { return refuse(r, "not a hexadecimal number"); }
        uint64_t digit = c <= '9' ? (uint64_t)(c - '0') : (uint64_t)((c | 32) - 'a' + 10);
        value = value << 4 | digit;
    }
    *fingerprint_out = value;
    return EBB_OK;
}

static ebb_status read_policy(reader *r, const ebb_mem *mem, ebb_plan **plan_out) {
    char policy[64];
    EBB_TRY(next_line(r, 2));
    if (!field_is(r, 0, "policy") || r->length[1] >= sizeof policy) { return refuse(r, "'policy' was expected"); }
    for (size_t i = 0; i < r->length[1]; i++) {
        char c = r->field[1][i];
        if (!isalnum((unsigned char)c) && c != '_' && c != '-') { return refuse(r, "not a policy's name"); }
        policy[i] = c;
    }
    policy[r->length[1]] = '\0';
    const ebb_topology none = {0};
    return ebb__plan_create(mem, policy, &none, plan_out);
}

/* A field as a name; false: it is too long for one. */
static bool read_name(const reader *r, uint32_t idx, char name[EBB_NAME_BYTES]) {
    EBB_ASSERT(idx < MAX_FIELDS && idx < r->n_fields);
    if (r->length[idx] >= EBB_NAME_BYTES) { return false; }
    memcpy(name, r->field[idx], r->length[idx]);
    name[r->length[idx]] = '\0';
    return true;
}

static ebb_status read_tier(const reader *r, const ebb_topology *topology, uint32_t idx, uint16_t *tier_out) {
    char name[EBB_NAME_BYTES];
    const uint32_t tier = read_name(r, idx, name) ? ebb_topology_tier(topology, name) : EBB_MAX_TIERS;
    if (tier == EBB_MAX_TIERS) { return refuse(r, "no such tier"); }
    *tier_out = (uint16_t)tier;
    return EBB_OK;
}

/* "tier NAME STORE" */
static ebb_status add_tier(const reader *r, ebb_topology *topology) {
    char store[EBB_NAME_BYTES];
    ebb_tier tier = {.capacity_bytes = UINT64_MAX};
    uint32_t added = 0;
    if (r->n_fields != 3 || !read_name(r, 1, tier.name) || !read_name(r, 2, store)) { return refuse(r, "not a tier"); }
    tier.store = ebb__store_find(store);
    return ebb__topology_add_tier(topology, &tier, &added) == EBB_OK ? EBB_OK : refuse(r, ebb_last_error());
}

/* "engine NAME" */
static ebb_status add_engine(const reader *r, ebb_topology *topology) {
    char name[EBB_NAME_BYTES];
    uint32_t added = 0;
    if (r->n_fields != 2 || !read_name(r, 1, name)) { return refuse(r, "not an engine"); }
    return ebb__topology_add_engine(topology, name, &added) == EBB_OK ? EBB_OK : refuse(r, ebb_last_error());
}

/* "way FROM TO ENGINE" */
static ebb_status add_way(const reader *r, ebb_topology *topology) {
    char name[EBB_NAME_BYTES];
    uint16_t from = 0, to = 0;
    if (r->n_fields != 4) { return refuse(r, "not a way"); }
    EBB_TRY(read_tier(r, topology, 1, &from));
    EBB_TRY(read_tier(r, topology, 2, &to));
    const uint32_t engine = read_name(r, 3, name) ? ebb__topology_engine(topology, name) : EBB_MAX_ENGINES;
    if (engine == EBB_MAX_ENGINES || engine == EBB_COMPUTE || from == to) { return refuse(r, "not a way"); }
    topology->way[from][to] = (uint8_t)engine;
    return EBB_OK;
}

/* "bound bytes|ns N RULE" */
static ebb_status read_bound(const reader *r, ebb_certificate *c) {
    char name[EBB_NAME_BYTES];
    const bool is_ns = field_is(r, 1, "ns");
    if (r->n_fields != 4 || !(is_ns || field_is(r, 1, "bytes"))) { return refuse(r, "not a bound"); }
    const char *rule = read_name(r, 3, name) ? ebb__certificate_rule(name) : NULL;
    if (rule == NULL) { return refuse(r, "no such rule"); }
    *(is_ns ? &c->ns_rule : &c->bytes_rule) = rule;
    return read_number(r, 2, UINT64_MAX, is_ns ? &c->bound_ns : &c->bound_bytes);
}

/* The lines up to "actions N", of which this reads the number too. */
static ebb_status read_topology(reader *r, ebb_plan *plan, uint64_t *n_actions_out) {
    ebb_topology *topology = &plan->topology;
    for (;;) {
        EBB_TRY(next_line(r, 0));
        if (field_is(r, 0, "bound")) {
            EBB_TRY(read_bound(r, &plan->certificate));
        } else if (field_is(r, 0, "times")) {
            if (r->n_fields != 2 || !field_is(r, 1, "nominal")) { return refuse(r, "'times nominal' was expected"); }
            plan->has_nominal_times = true;
        } else if (field_is(r, 0, "tier")) {
            EBB_TRY(add_tier(r, topology));
        } else if (field_is(r, 0, "engine")) {
            EBB_TRY(add_engine(r, topology));
        } else if (field_is(r, 0, "way")) {
            EBB_TRY(add_way(r, topology));
        } else {
            break;
        }
    }
    if (topology->n_tiers == 0 || topology->n_engines == 0) { return refuse(r, "'tier' and 'engine' were expected"); }
    if (!field_is(r, 0, "actions") || r->n_fields != 2) { return refuse(r, "'actions' was expected"); }
    return read_number(r, 1, UINT64_MAX, n_actions_out);
}

static ebb_status read_algorithms(const reader *r, ebb_plan *plan) {
    for (size_t i = 0; i < EBB_N_ALGORITHMS; i++) {
        if (!field_is(r, 1, ebb_algorithms_name(i, NULL))) { continue; }
        plan->algorithms = (ebb_algorithms)i;
        return EBB_OK;
    }
    return refuse(r, "no such way to choose algorithms");
}

static ebb_status read_header(reader *r, const ebb_mem *mem, ebb_plan **plan_out) {
    uint64_t fingerprint = 0;
    EBB_TRY(read_count(r, "ebb-plan", &r->version));
    if (r->version < VERSION_WITHOUT_HELD || r->version > VERSION) {
        return refuse(r, "a version of the format that this ebb does not know");
    }
    EBB_TRY(read_fingerprint(r, &fingerprint));
    EBB_TRY(read_policy(r, mem, plan_out));
    ebb_plan *plan = *plan_out;
    plan->fingerprint = fingerprint;
    EBB_TRY(next_line(r, 2));
    if (field_is(r, 0, "algorithms")) {
        EBB_TRY(read_algorithms(r, plan));
        EBB_TRY(next_line(r, 0));
    }
    if (!field_is(r, 0, "budget") || r->n_fields != 2) { return refuse(r, "'budget' was expected"); }
    plan->budget_bytes = UINT64_MAX;
    if (!field_is(r, 1, "unlimited")) { EBB_TRY(read_number(r, 1, UINT64_MAX - 1, &plan->budget_bytes)); }
    EBB_TRY(read_count(r, "alignment", &plan->alignment_bytes));
    const bool is_power = plan->alignment_bytes != 0 && (plan->alignment_bytes & (plan->alignment_bytes - 1)) == 0;
    return is_power && plan->alignment_bytes <= EBB_PROGRAM_MAX_ALIGNMENT ? EBB_OK : refuse(r, "not an alignment");
}

/* "[BEGIN SIZE] [held]" from field idx on, where the line may end. */
static ebb_status read_part(const reader *r, uint32_t idx, ebb_action *action) {
    const bool may_be_held = action->kind != EBB_ACT_DROP && r->version > VERSION_WITHOUT_HELD;
    action->size_bytes = EBB_WHOLE;
    action->held =
        may_be_held && r->n_fields > idx && r->n_fields <= MAX_FIELDS && field_is(r, r->n_fields - 1, "held");
    const uint32_t n_fields = r->n_fields - action->held;
    if (n_fields == idx) { return EBB_OK; }
    if (n_fields != idx + 2) { return refuse(r, "wrong number of fields"); }
    EBB_TRY(read_number(r, idx, UINT64_MAX / 2, &action->begin));
    return read_number(r, idx + 1, UINT64_MAX / 2, &action->size_bytes);
}

static ebb_status read_action(reader *r, const ebb_topology *topology, ebb_action *action_out) {
    EBB_TRY(next_line(r, 0));
    ebb_action action = {0};
    while (action.kind <= EBB_ACT_DROP && !field_is(r, 0, ebb__action_name(action.kind))) { action.kind++; }
    if (action.kind > EBB_ACT_DROP) { return refuse(r, "no such action"); }
    const uint32_t n_fixed = action.kind == EBB_ACT_DROP ? 2 : action.kind == EBB_ACT_MOVE ? 4 : 3;
    if (r->n_fields < n_fixed) { return refuse(r, "wrong number of fields"); }
    EBB_TRY(read_u32(r, 1, &action.target));
    if (ebb__action_computes(&action)) {
        if (r->n_fields != n_fixed) { return refuse(r, "wrong number of fields"); }
        EBB_TRY(read_u32(r, 2, &action.choice));
    } else {
        if (action.kind != EBB_ACT_DROP) { EBB_TRY(read_tier(r, topology, 2, &action.tier)); }
        if (action.kind == EBB_ACT_MOVE) { EBB_TRY(read_tier(r, topology, 3, &action.to)); }
        EBB_TRY(read_part(r, n_fixed, &action));
    }
    *action_out = action;
    return EBB_OK;
}

/* "first last" from field idx on. */
static ebb_status read_interval(const reader *r, uint32_t idx, uint64_t n_actions, uint64_t out[2]) {
    if (n_actions == 0) { return refuse(r, "an interval in a plan without actions"); }
    EBB_TRY(read_number(r, idx, n_actions - 1, &out[0]));
    return read_number(r, idx + 1, n_actions, &out[1]);
}

static ebb_status read_stay(reader *r, uint64_t n_actions, ebb_stay *stay_out) {
    ebb_stay stay = {.tensor = EBB_SCRATCH};
    uint64_t interval[2];
    EBB_TRY(next_line(r, 0));
    if (r->n_fields != 5 && r->n_fields != 6) { return refuse(r, "wrong number of fields"); }
    if (!field_is(r, 0, "-")) { EBB_TRY(read_u32(r, 0, &stay.tensor)); }
    EBB_TRY(read_interval(r, 1, n_actions, interval));
    stay.first = interval[0];
    stay.last = interval[1];
    EBB_TRY(read_number(r, 3, UINT64_MAX, &stay.offset));
    EBB_TRY(read_number(r, 4, UINT64_MAX, &stay.size_bytes));
    if (r->n_fields == 6) { EBB_TRY(read_number(r, 5, UINT64_MAX, &stay.begin)); }
    *stay_out = stay;
    return EBB_OK;
}

static ebb_status read_slot(reader *r, const ebb_topology *topology, uint64_t n_actions, ebb_slot *slot_out) {
    ebb_slot slot = {0};
    uint64_t interval[2];
    uint16_t tier = 0;
    EBB_TRY(next_line(r, 0));
    if (r->n_fields != 6 && r->n_fields != 7) { return refuse(r, "wrong number of fields"); }
    EBB_TRY(read_u32(r, 0, &slot.tensor));
    EBB_TRY(read_tier(r, topology, 1, &tier));
    slot.tier = tier;
    EBB_TRY(read_interval(r, 2, n_actions, interval));
    slot.first = interval[0];
    slot.last = interval[1];
    EBB_TRY(read_number(r, 4, UINT64_MAX, &slot.offset));
    EBB_TRY(read_number(r, 5, UINT64_MAX, &slot.size_bytes));
    if (r->n_fields == 7) { EBB_TRY(read_number(r, 6, UINT64_MAX, &slot.begin)); }
    *slot_out = slot;
    return EBB_OK;
}

static ebb_status read_body(reader *r, ebb_plan *plan) {
    uint64_t n = 0, n_actions = 0;
    EBB_TRY(read_topology(r, plan, &n_actions));
    for (uint64_t i = 0; i < n_actions; i++) {
        ebb_action action;
        EBB_TRY(read_action(r, &plan->topology, &action));
        EBB_TRY(EBB_PUSH(plan->mem, &plan->actions, action));
    }
    EBB_TRY(read_count(r, "stays", &n));
    for (uint64_t i = 0; i < n; i++) {
        ebb_stay stay;
        EBB_TRY(read_stay(r, n_actions, &stay));
        const ebb_stay *before = i > 0 ? &plan->stays.data[i - 1] : NULL;
        if (before != NULL &&
            ebb__comes_after(before->first, before->tensor, before->begin, stay.first, stay.tensor, stay.begin)) {
            return refuse(r, "stays out of order");
        }
        EBB_TRY(EBB_PUSH(plan->mem, &plan->stays, stay));
    }
    EBB_TRY(read_count(r, "slots", &n));
    for (uint64_t i = 0; i < n; i++) {
        ebb_slot slot;
        EBB_TRY(read_slot(r, &plan->topology, n_actions, &slot));
        const ebb_slot *before = i > 0 ? &plan->slots.data[i - 1] : NULL;
        if (before != NULL &&
            ebb__comes_after(before->first, before->tensor, before->begin, slot.first, slot.tensor, slot.begin)) {
            return refuse(r, "slots out of order");
        }
        EBB_TRY(EBB_PUSH(plan->mem, &plan->slots, slot));
    }
    EBB_TRY(next_line(r, 1));
    if (!field_is(r, 0, "end")) { return refuse(r, "'end' was expected"); }
    return next_line(r, 0) == EBB_E_FORMAT ? EBB_OK : refuse(r, "something follows 'end'");
}

ebb_status ebb__plan_parse(const ebb_mem *mem, const char *name, const char *text, size_t n, ebb_plan **plan_out) {
    reader r = {.name = name, .at = text, .end = text + n};
    ebb_plan *plan = NULL;
    ebb_status st = read_header(&r, mem, &plan);
    if (st == EBB_OK) { st = read_body(&r, plan); }
    if (st == EBB_OK) {
        st = ebb__plan_seal(plan);
        if (st == EBB_E_FORMAT) { st = ebb_fail(st, "%s: %s", name, ebb_last_error()); }
    }
    if (st != EBB_OK) {
        ebb_plan_destroy(plan);
        return st;
    }
    *plan_out = plan;
    return EBB_OK;
}

ebb_status ebb_plan_load(const ebb_mem *mem, const char *path, ebb_plan **plan_out) {
    EBB_NEED(path);
    EBB_NEED(plan_out);
    char *text = NULL;
    size_t n = 0;
    EBB_TRY(ebb__file_read_all(mem, path, MAX_FILE_BYTES, &text, &n));
    ebb_status st = ebb__plan_parse(mem, path, text, n, plan_out);
    ebb__free(mem, text);
    return st;
}

static bool has_held(const ebb_plan *plan) {
    bool has = false;
    for (size_t i = 0; i < plan->actions.n; i++) { has = has || plan->actions.data[i].held; }
    return has;
}

/* The writer remembers its first failure and reports it at commit, so the calls between are not looked at. */
static void write_header(ebb_file_writer *w, const ebb_plan *plan) {
    const unsigned version = has_held(plan) ? VERSION : VERSION_WITHOUT_HELD;
    (void)ebb__file_writer_printf(w, "ebb-plan %u\nfingerprint %016" PRIx64 "\npolicy %s\n", version, plan->fingerprint,
                                  plan->policy);
    if (plan->algorithms != EBB_ALGORITHMS_GIVEN) {
        (void)ebb__file_writer_printf(w, "algorithms %s\n", ebb_algorithms_name((size_t)plan->algorithms, NULL));
    }
    if (plan->budget_bytes == UINT64_MAX) {
        (void)ebb__file_writer_printf(w, "budget unlimited\n");
    } else {
        (void)ebb__file_writer_printf(w, "budget %" PRIu64 "\n", plan->budget_bytes);
    }
    (void)ebb__file_writer_printf(w, "alignment %" PRIu64 "\n", plan->alignment_bytes);
    const ebb_certificate *c = &plan->certificate;
    if (c->bytes_rule != NULL) {
        (void)ebb__file_writer_printf(w, "bound bytes %" PRIu64 " %s\n", c->bound_bytes, c->bytes_rule);
    }
    if (c->ns_rule != NULL) { (void)ebb__file_writer_printf(w, "bound ns %" PRIu64 " %s\n", c->bound_ns, c->ns_rule); }
    if (plan->has_nominal_times) { (void)ebb__file_writer_printf(w, "times nominal\n"); }
}

static void write_topology(ebb_file_writer *w, const ebb_topology *topology) {
    for (uint32_t t = 0; t < topology->n_tiers; t++) {
        (void)ebb__file_writer_printf(w, "tier %s %s\n", topology->tier[t].name,
                                      ebb__store_name(topology->tier[t].store));
    }
    for (uint32_t e = 0; e < topology->n_engines; e++) {
        (void)ebb__file_writer_printf(w, "engine %s\n", topology->engine[e]);
    }
    for (uint32_t from = 0; from < topology->n_tiers; from++) {
        for (uint32_t to = 0; to < topology->n_tiers; to++) {
            if (topology->way[from][to] == 0) { continue; }
            (void)ebb__file_writer_printf(w, "way %s %s %s\n", topology->tier[from].name, topology->tier[to].name,
                                          topology->engine[topology->way[from][to]]);
        }
    }
}

static void write_action(ebb_file_writer *w, const ebb_topology *topology, const ebb_action *a) {
    (void)ebb__file_writer_printf(w, "%s %u", ebb__action_name(a->kind), a->target);
    if (ebb__action_computes(a)) { (void)ebb__file_writer_printf(w, " %u", a->choice); }
    if (a->kind == EBB_ACT_OUT || a->kind == EBB_ACT_IN || a->kind == EBB_ACT_MOVE) {
        (void)ebb__file_writer_printf(w, " %s", topology->tier[a->tier].name);
    }
    if (a->kind == EBB_ACT_MOVE) { (void)ebb__file_writer_printf(w, " %s", topology->tier[a->to].name); }
    if (!ebb__action_computes(a) && a->size_bytes != EBB_WHOLE) {
        (void)ebb__file_writer_printf(w, " %" PRIu64 " %" PRIu64, a->begin, a->size_bytes);
    }
    (void)ebb__file_writer_printf(w, a->held ? " held\n" : "\n");
}

/* The rest of a line of a stay or slot. */
static void write_place(ebb_file_writer *w, uint64_t first, uint64_t last, uint64_t offset, uint64_t size_bytes,
                        uint64_t begin) {
    (void)ebb__file_writer_printf(w, " %" PRIu64 " %" PRIu64 " %" PRIu64 " %" PRIu64, first, last, offset, size_bytes);
    if (begin != 0) { (void)ebb__file_writer_printf(w, " %" PRIu64, begin); }
    (void)ebb__file_writer_printf(w, "\n");
}

static void write_body(ebb_file_writer *w, const ebb_plan *plan) {
    (void)ebb__file_writer_printf(w, "actions %zu\n", plan->actions.n);
    for (size_t i = 0; i < plan->actions.n; i++) { write_action(w, &plan->topology, &plan->actions.data[i]); }
    (void)ebb__file_writer_printf(w, "stays %zu\n", plan->stays.n);
    for (size_t i = 0; i < plan->stays.n; i++) {
        const ebb_stay *s = &plan->stays.data[i];
        if (s->tensor == EBB_SCRATCH) {
            (void)ebb__file_writer_printf(w, "-");
        } else {
            (void)ebb__file_writer_printf(w, "%u", s->tensor);
        }
        write_place(w, s->first, s->last, s->offset, s->size_bytes, s->begin);
    }
    (void)ebb__file_writer_printf(w, "slots %zu\n", plan->slots.n);
    for (size_t i = 0; i < plan->slots.n; i++) {
        const ebb_slot *s = &plan->slots.data[i];
        (void)ebb__file_writer_printf(w, "%u %s", s->tensor, plan->topology.tier[s->tier].name);
        write_place(w, s->first, s->last, s->offset, s->size_bytes, s->begin);
    }
    (void)ebb__file_writer_printf(w, "end\n");
}

ebb_status ebb_plan_save(const ebb_plan *plan, const char *path) {
    EBB_NEED(plan);
    EBB_NEED(path);
    ebb_file_writer *w = NULL;
    EBB_TRY(ebb__file_writer_open(plan->mem, path, 0, &w));
    write_header(w, plan);
    write_topology(w, &plan->topology);
    write_body(w, plan);
    return ebb__file_writer_commit(w);
}
