/* SPDX-License-Identifier: Apache-2.0
 *
 * The plan file: reading and writing the text form of docs/plan-format.md. Reading takes memory only as lines
 * come, never as much as a header claims, so a hostile file cannot ask for more than a few times its size.
 */
#include "base/file.h"
#include "plan/plan_priv.h"

#include <ctype.h>
#include <inttypes.h>

#define VERSION 1u
#define MAX_FIELDS 6
#define MAX_FILE_BYTES ((uint64_t)8 << 30)

/* One line at a time, cut into fields. */
typedef struct reader {
    const char *name;
    const char *at, *end;
    uint64_t line;
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
    return ebb__plan_create(mem, policy, plan_out);
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
    uint64_t version = 0, fingerprint = 0;
    EBB_TRY(read_count(r, "ebb-plan", &version));
    if (version != VERSION) { return refuse(r, "a version of the format that this ebb does not know"); }
    EBB_TRY(read_fingerprint(r, &fingerprint));
    EBB_TRY(read_policy(r, mem, plan_out));
    ebb_plan *plan = *plan_out;
    plan->fingerprint = fingerprint;
    EBB_TRY(next_line(r, 2));
    if (field_is(r, 0, "algorithms")) {
        EBB_TRY(read_algorithms(r, plan));
        EBB_TRY(next_line(r, 2));
    }
    if (!field_is(r, 0, "budget")) { return refuse(r, "'budget' was expected"); }
    plan->budget_bytes = UINT64_MAX;
    return field_is(r, 1, "unlimited") ? EBB_OK : read_number(r, 1, UINT64_MAX - 1, &plan->budget_bytes);
}

static ebb_status read_action(reader *r, ebb_action *action_out) {
    EBB_TRY(next_line(r, 0));
    ebb_action action = {0};
    while (action.kind <= EBB_ACT_DROP && !field_is(r, 0, ebb__action_name(action.kind))) { action.kind++; }
    if (action.kind > EBB_ACT_DROP) { return refuse(r, "no such action"); }
    bool computes = action.kind == EBB_ACT_RUN || action.kind == EBB_ACT_AGAIN;
    if (r->n_fields != (computes ? 3u : 2u)) { return refuse(r, "wrong number of fields"); }
    EBB_TRY(read_u32(r, 1, &action.target));
    if (computes) { EBB_TRY(read_u32(r, 2, &action.choice)); }
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
    EBB_TRY(next_line(r, 5));
    if (!field_is(r, 0, "-")) { EBB_TRY(read_u32(r, 0, &stay.tensor)); }
    EBB_TRY(read_interval(r, 1, n_actions, interval));
    stay.first = interval[0];
    stay.last = interval[1];
    EBB_TRY(read_number(r, 3, UINT64_MAX, &stay.offset));
    EBB_TRY(read_number(r, 4, UINT64_MAX, &stay.size_bytes));
    *stay_out = stay;
    return EBB_OK;
}

static ebb_status read_slot(reader *r, uint64_t n_actions, ebb_slot *slot_out) {
    ebb_slot slot = {0};
    uint64_t interval[2];
    EBB_TRY(next_line(r, 6));
    EBB_TRY(read_u32(r, 0, &slot.tensor));
    while (slot.tier < EBB_N_TIERS && !field_is(r, 1, ebb__tier_name(slot.tier))) { slot.tier++; }
    if (slot.tier == EBB_N_TIERS) { return refuse(r, "no such tier"); }
    EBB_TRY(read_interval(r, 2, n_actions, interval));
    slot.first = interval[0];
    slot.last = interval[1];
    EBB_TRY(read_number(r, 4, UINT64_MAX, &slot.offset));
    EBB_TRY(read_number(r, 5, UINT64_MAX, &slot.size_bytes));
    *slot_out = slot;
    return EBB_OK;
}

static bool comes_after(uint64_t first_a, uint32_t tensor_a, uint64_t first_b, uint32_t tensor_b) {
    return first_a > first_b || (first_a == first_b && tensor_a > tensor_b);
}

static ebb_status read_body(reader *r, ebb_plan *plan) {
    uint64_t n = 0, n_actions = 0;
    EBB_TRY(read_count(r, "actions", &n_actions));
    for (uint64_t i = 0; i < n_actions; i++) {
        ebb_action action;
        EBB_TRY(read_action(r, &action));
        EBB_TRY(EBB_PUSH(plan->mem, &plan->actions, action));
    }
    EBB_TRY(read_count(r, "stays", &n));
    for (uint64_t i = 0; i < n; i++) {
        ebb_stay stay;
        EBB_TRY(read_stay(r, n_actions, &stay));
        const ebb_stay *before = i > 0 ? &plan->stays.data[i - 1] : NULL;
        if (before != NULL && comes_after(before->first, before->tensor, stay.first, stay.tensor)) {
            return refuse(r, "stays out of order");
        }
        EBB_TRY(EBB_PUSH(plan->mem, &plan->stays, stay));
    }
    EBB_TRY(read_count(r, "slots", &n));
    for (uint64_t i = 0; i < n; i++) {
        ebb_slot slot;
        EBB_TRY(read_slot(r, n_actions, &slot));
        const ebb_slot *before = i > 0 ? &plan->slots.data[i - 1] : NULL;
        if (before != NULL && comes_after(before->first, before->tensor, slot.first, slot.tensor)) {
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
    char *text = NULL;
    size_t n = 0;
    EBB_TRY(ebb__file_read_all(mem, path, MAX_FILE_BYTES, &text, &n));
    ebb_status st = ebb__plan_parse(mem, path, text, n, plan_out);
    ebb__free(mem, text);
    return st;
}

/* The writer remembers its first failure and reports it at commit, so the calls between are not looked at. */
static void write_header(ebb_file_writer *w, const ebb_plan *plan) {
    (void)ebb__file_writer_printf(w, "ebb-plan %u\nfingerprint %016" PRIx64 "\npolicy %s\n", VERSION, plan->fingerprint,
                                  plan->policy);
    if (plan->algorithms != EBB_ALGORITHMS_GIVEN) {
        (void)ebb__file_writer_printf(w, "algorithms %s\n", ebb_algorithms_name((size_t)plan->algorithms, NULL));
    }
    if (plan->budget_bytes == UINT64_MAX) {
        (void)ebb__file_writer_printf(w, "budget unlimited\n");
    } else {
        (void)ebb__file_writer_printf(w, "budget %" PRIu64 "\n", plan->budget_bytes);
    }
}

static void write_actions(ebb_file_writer *w, const ebb_plan *plan) {
    (void)ebb__file_writer_printf(w, "actions %zu\n", plan->actions.n);
    for (size_t i = 0; i < plan->actions.n; i++) {
        const ebb_action *a = &plan->actions.data[i];
        if (a->kind == EBB_ACT_RUN || a->kind == EBB_ACT_AGAIN) {
            (void)ebb__file_writer_printf(w, "%s %u %u\n", ebb__action_name(a->kind), a->target, a->choice);
        } else {
            (void)ebb__file_writer_printf(w, "%s %u\n", ebb__action_name(a->kind), a->target);
        }
    }
}

static void write_places(ebb_file_writer *w, const ebb_plan *plan) {
    (void)ebb__file_writer_printf(w, "stays %zu\n", plan->stays.n);
    for (size_t i = 0; i < plan->stays.n; i++) {
        const ebb_stay *s = &plan->stays.data[i];
        char tensor[16] = "-";
        if (s->tensor != EBB_SCRATCH) { (void)snprintf(tensor, sizeof tensor, "%u", s->tensor); }
        (void)ebb__file_writer_printf(w, "%s %" PRIu64 " %" PRIu64 " %" PRIu64 " %" PRIu64 "\n", tensor, s->first,
                                      s->last, s->offset, s->size_bytes);
    }
    (void)ebb__file_writer_printf(w, "slots %zu\n", plan->slots.n);
    for (size_t i = 0; i < plan->slots.n; i++) {
        const ebb_slot *s = &plan->slots.data[i];
        (void)ebb__file_writer_printf(w, "%u %s %" PRIu64 " %" PRIu64 " %" PRIu64 " %" PRIu64 "\n", s->tensor,
                                      ebb__tier_name(s->tier), s->first, s->last, s->offset, s->size_bytes);
    }
    (void)ebb__file_writer_printf(w, "end\n");
}

ebb_status ebb_plan_save(const ebb_plan *plan, const char *path) {
    ebb_file_writer *w = NULL;
    EBB_TRY(ebb__file_writer_open(plan->mem, path, 0, &w));
    write_header(w, plan);
    write_actions(w, plan);
    write_places(w, plan);
    return ebb__file_writer_commit(w);
}
