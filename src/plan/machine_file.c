/* SPDX-License-Identifier: Apache-2.0
 *
 * The machine's file, as docs/machine-format.md describes it. The text is read once for each pass, because members may
 * come in any order while links name tiers and engines, and only the version says which members there may be. Nothing
 * is skipped: a member that is unknown, there twice or of the wrong kind is refused with its place in the file, such as
 * links[2].out.engine.
 */
#include "base/file.h"
#include "base/json_read.h"
#include "ebb/json.h"
#include "plan/machine_priv.h"

#include <inttypes.h>
#include <stdlib.h>

#define VERSION 2u
#define OLD_VERSION 1u
#define MAX_FILE_BYTES ((uint64_t)256 << 20)
#define KEY_DIGITS 16u

/* ---- members ------------------------------------------------------------------------------------ */

typedef struct reading {
    const char *path, *text;
    size_t n_bytes, n_taken;
    ebb_machine *machine;
    const ebb_json_value *json; /* the member of the outermost object that is read now */
    uint64_t version;           /* 0: not read yet */
    bool is_machine;
    uint32_t pass, n_seen[8]; /* [section] */
    char stranger[64];        /* the first member that is no section; empty: none */
    bool has_tier[EBB_MAX_TIERS + 1], has_engine[EBB_MAX_ENGINES + 1], has_link[EBB_MAX_TIERS][EBB_MAX_TIERS];
} reading;

/* Where in the file, for messages. */
typedef struct place {
    char text[160];
} place;

static place place_of(const char *name) {
    place p;
    (void)snprintf(p.text, sizeof p.text, "%s", name);
    return p;
}

static place inside(const place *outer, const char *name) {
    char text[sizeof outer->text];
    (void)snprintf(text, sizeof text, "%.100s.%.58s", outer->text, name);
    return place_of(text);
}

static place nth(const char *list, uint32_t i) {
    place p;
    (void)snprintf(p.text, sizeof p.text, "%s[%u]", list, i);
    return p;
}

static ebb_status refuse(const reading *r, const place *where, const char *why) {
    return ebb_fail(EBB_E_FORMAT, "%s: %s: %s", r->path, where->text, why);
}

typedef enum field_kind {
    FIELD_TEXT,  /* const char * */
    FIELD_RATE,  /* double */
    FIELD_WHOLE, /* uint64_t */
    FIELD_VALUE, /* uint32_t: the token, of any kind */
} field_kind;

typedef struct field {
    const char *name;
    field_kind kind;
    void *to; /* untouched if the member is not there */
} field;

static ebb_status read_text(const reading *r, const place *where, uint32_t token, const char **to) {
    if (!ebb__json_value_is(r->json, token, EBB_JSON_STRING)) { return refuse(r, where, "not a text"); }
    *to = ebb__json_value_text(r->json, token);
    return EBB_OK;
}

static ebb_status read_rate(const reading *r, const place *where, uint32_t token, double *to) {
    double rate = 0;
    if (!ebb__json_value_f64(r->json, token, &rate) || !ebb__machine_is_rate(rate)) {
        return refuse(r, where, "not a number above 0");
    }
    *to = rate;
    return EBB_OK;
}

static ebb_status read_whole(const reading *r, const place *where, uint32_t token, uint64_t *to) {
    int64_t number = -1;
    if (!ebb__json_value_i64(r->json, token, &number) || number < 0) {
        return refuse(r, where, "not a whole number from 0 to 2^63 - 1");
    }
    *to = (uint64_t)number;
    return EBB_OK;
}

static ebb_status read_field(const reading *r, const place *where, uint32_t token, const field *f) {
    switch (f->kind) {
    case FIELD_TEXT: return read_text(r, where, token, f->to);
    case FIELD_RATE: return read_rate(r, where, token, f->to);
    case FIELD_WHOLE: return read_whole(r, where, token, f->to);
    default: *(uint32_t *)f->to = token; return EBB_OK;
    }
}

/* The object's members, each into its field. */
static ebb_status read_fields(const reading *r, const place *where, uint32_t token, const field *fields, uint32_t n) {
    const ebb_json_token *tokens = r->json->tokens;
    uint32_t seen = 0;
    if (!ebb__json_value_is(r->json, token, EBB_JSON_OBJECT)) { return refuse(r, where, "not an object"); }
    for (uint32_t at = token + 1; at < tokens[token].next; at = tokens[at + 1].next) {
        const char *name = ebb__json_value_text(r->json, at);
        const place member = inside(where, name);
        uint32_t f = 0;
        while (f < n && strcmp(fields[f].name, name) != 0) { f++; }
        if (f == n) { return refuse(r, &member, "a machine has no such member"); }
        if ((seen & 1u << f) != 0) { return refuse(r, &member, "this member is there twice"); }
        seen |= 1u << f;
        EBB_TRY(read_field(r, &member, at + 1, &fields[f]));
    }
    return EBB_OK;
}

/* Each element of a list. */
static ebb_status read_list(reading *r, const char *name,
                            ebb_status (*read)(reading *r, const place *where, uint32_t token)) {
    const ebb_json_token *tokens = r->json->tokens;
    const place list = place_of(name);
    uint32_t i = 0;
    if (!ebb__json_value_is(r->json, 0, EBB_JSON_ARRAY)) { return refuse(r, &list, "not a list"); }
    for (uint32_t at = 1; at < tokens[0].next; at = tokens[at].next) {
        const place where = nth(name, i++);
        EBB_TRY(read(r, &where, at));
    }
    return EBB_OK;
}

/* ---- sections ----------------------------------------------------------------------------------- */

static ebb_status read_format(reading *r) {
    r->is_machine =
        ebb__json_value_is(r->json, 0, EBB_JSON_STRING) && strcmp(ebb__json_value_text(r->json, 0), "ebb-machine") == 0;
    return EBB_OK;
}

static ebb_status read_version(reading *r) {
    const place where = place_of("version");
    return read_whole(r, &where, 0, &r->version);
}

static ebb_status read_rates(reading *r) {
    ebb_machine *m = r->machine;
    const place where = place_of("rates");
    const field fields[] = {{"flops_per_s", FIELD_RATE, &m->flops_per_s},
                            {"bytes_per_s", FIELD_RATE, &m->bytes_per_s},
                            {"overhead_ns", FIELD_WHOLE, &m->overhead_ns}};
    return read_fields(r, &where, 0, fields, 3);
}

static ebb_status read_tier(reading *r, const place *where, uint32_t token) {
    ebb_topology *topology = &r->machine->topology;
    ebb_tier tier = {.capacity_bytes = UINT64_MAX};
    const char *name = NULL, *store = NULL;
    const field fields[] = {{"name", FIELD_TEXT, &name},
                            {"store", FIELD_TEXT, &store},
                            {"capacity_bytes", FIELD_WHOLE, &tier.capacity_bytes}};
    EBB_TRY(read_fields(r, where, token, fields, 3));
    if (name == NULL || store == NULL) { return refuse(r, where, "it has no name or no store"); }
    if (strlen(name) >= sizeof tier.name) { return refuse(r, where, "its name is too long"); }
    memcpy(tier.name, name, strlen(name) + 1);
    tier.store = ebb__store_find(store);
    uint32_t idx = ebb_topology_tier(topology, name);
    if (idx == EBB_MAX_TIERS && ebb__topology_add_tier(topology, &tier, &idx) != EBB_OK) {
        return refuse(r, where, ebb_last_error());
    }
    if (r->has_tier[idx]) { return refuse(r, where, "a tier of this name is there already"); }
    if (topology->tier[idx].store != tier.store) { return refuse(r, where, "a tier of this name has another store"); }
    r->has_tier[idx] = true;
    topology->tier[idx].capacity_bytes = tier.capacity_bytes;
    return EBB_OK;
}

static ebb_status read_tiers(reading *r) {
    return read_list(r, "tiers", read_tier);
}

static ebb_status read_engine(reading *r, const place *where, uint32_t token) {
    ebb_topology *topology = &r->machine->topology;
    const char *name = NULL;
    EBB_TRY(read_text(r, where, token, &name));
    uint32_t idx = ebb__topology_engine(topology, name);
    if (idx == EBB_MAX_ENGINES && ebb__topology_add_engine(topology, name, &idx) != EBB_OK) {
        return refuse(r, where, ebb_last_error());
    }
    if (r->has_engine[idx]) { return refuse(r, where, "an engine of this name is there already"); }
    r->has_engine[idx] = true;
    return EBB_OK;
}

static ebb_status read_engines(reading *r) {
    return read_list(r, "engines", read_engine);
}

static ebb_status read_way(const reading *r, const place *link, const char *name, uint32_t token, ebb_way *way) {
    const place where = inside(link, name);
    const char *engine = NULL;
    const field fields[] = {{"bytes_per_s", FIELD_RATE, &way->bytes_per_s},
                            {"latency_ns", FIELD_WHOLE, &way->latency_ns},
                            {"engine", FIELD_TEXT, &engine}};
    if (token == EBB_JSON_NONE) { return EBB_OK; }
    EBB_TRY(read_fields(r, &where, token, fields, 3));
    if (engine == NULL) { return EBB_OK; }
    way->engine = ebb__topology_engine(&r->machine->topology, engine);
    return way->engine < EBB_MAX_ENGINES ? EBB_OK : refuse(r, &where, "there is no engine of this name");
}

static ebb_status find_end(const reading *r, const place *link, const char *name, const char *tier, uint32_t *end) {
    const place where = inside(link, name);
    if (tier == NULL) { return refuse(r, link, "it does not name two tiers, near and far"); }
    *end = ebb_topology_tier(&r->machine->topology, tier);
    return *end < EBB_MAX_TIERS ? EBB_OK : refuse(r, &where, "there is no tier of this name");
}

/* 0: not given. One share alone is that of both kinds of steps. */
static void read_shares(const double given[EBB_N_STEP_KINDS], double share[EBB_N_STEP_KINDS]) {
    if (given[EBB_STEP_ARITHMETIC] > 0) {
        share[EBB_STEP_ARITHMETIC] = share[EBB_STEP_TRAFFIC] = given[EBB_STEP_ARITHMETIC];
    }
    if (given[EBB_STEP_TRAFFIC] > 0) { share[EBB_STEP_TRAFFIC] = given[EBB_STEP_TRAFFIC]; }
}

static ebb_status read_link(reading *r, const place *where, uint32_t token) {
    const char *near = NULL, *far = NULL;
    uint32_t out = EBB_JSON_NONE, in = EBB_JSON_NONE;
    double both_rate = 0, work_rate[EBB_N_STEP_KINDS] = {0}, copy_rate[EBB_N_STEP_KINDS] = {0};
    const field fields[] = {{"near", FIELD_TEXT, &near},
                            {"far", FIELD_TEXT, &far},
                            {"out", FIELD_VALUE, &out},
                            {"in", FIELD_VALUE, &in},
                            {"both_rate", FIELD_RATE, &both_rate},
                            {"work_rate", FIELD_RATE, &work_rate[EBB_STEP_ARITHMETIC]},
                            {"copy_rate", FIELD_RATE, &copy_rate[EBB_STEP_ARITHMETIC]},
                            {"traffic_work_rate", FIELD_RATE, &work_rate[EBB_STEP_TRAFFIC]},
                            {"traffic_copy_rate", FIELD_RATE, &copy_rate[EBB_STEP_TRAFFIC]}};
    ebb_link link = {EBB_LINK_SHARES_ONE};
    EBB_TRY(read_fields(r, where, token, fields, sizeof fields / sizeof fields[0]));
    EBB_TRY(find_end(r, where, "near", near, &link.near));
    EBB_TRY(find_end(r, where, "far", far, &link.far));
    if (r->has_link[link.near][link.far]) { return refuse(r, where, "these two tiers are linked already"); }
    r->has_link[link.near][link.far] = r->has_link[link.far][link.near] = true;
    (void)ebb_machine_link(r->machine, link.near, link.far, &link); /* what is left out stays as it was */
    EBB_TRY(read_way(r, where, "out", out, &link.out));
    EBB_TRY(read_way(r, where, "in", in, &link.in));
    if (both_rate > 0) { link.both_rate = both_rate; }
    read_shares(work_rate, link.work_rate);
    read_shares(copy_rate, link.copy_rate);
    return ebb_machine_set_link(r->machine, &link) == EBB_OK ? EBB_OK : refuse(r, where, ebb_last_error());
}

/* Version 1 has only links of the device. */
static ebb_status read_old_link(const reading *r, const place *where, uint32_t token, uint32_t tier) {
    ebb_link link;
    if (token == EBB_JSON_NONE) { return EBB_OK; }
    if (!ebb_machine_link(r->machine, EBB_DEVICE, tier, &link)) { return refuse(r, where, "there is no such link"); }
    uint64_t latency_ns = link.out.latency_ns;
    const field fields[] = {{"out_bytes_per_s", FIELD_RATE, &link.out.bytes_per_s},
                            {"in_bytes_per_s", FIELD_RATE, &link.in.bytes_per_s},
                            {"latency_ns", FIELD_WHOLE, &latency_ns}};
    EBB_TRY(read_fields(r, where, token, fields, 3));
    link.out.latency_ns = link.in.latency_ns = latency_ns;
    return ebb_machine_set_link(r->machine, &link);
}

static ebb_status read_links(reading *r) {
    if (r->version == VERSION) { return read_list(r, "links", read_link); }
    uint32_t host = EBB_JSON_NONE, disk = EBB_JSON_NONE;
    const place where = place_of("links"), of_host = inside(&where, "host"), of_disk = inside(&where, "disk");
    const field fields[] = {{"host", FIELD_VALUE, &host}, {"disk", FIELD_VALUE, &disk}};
    EBB_TRY(read_fields(r, &where, 0, fields, 2));
    EBB_TRY(read_old_link(r, &of_host, host, EBB_HOST));
    return read_old_link(r, &of_disk, disk, EBB_DISK);
}

static ebb_status read_times(reading *r) {
    const ebb_json_token *tokens = r->json->tokens;
    const place times = place_of("times_ns");
    if (!ebb__json_value_is(r->json, 0, EBB_JSON_OBJECT)) { return refuse(r, &times, "not an object"); }
    for (uint32_t at = 1; at < tokens[0].next; at = tokens[at + 1].next) {
        const char *name = ebb__json_value_text(r->json, at);
        const place where = inside(&times, name);
        uint64_t time_ns = 0, key = 0;
        if (strlen(name) != KEY_DIGITS || strspn(name, "0123456789abcdef") != KEY_DIGITS) {
            return refuse(r, &where, "a key is 16 of the digits 0-9 and a-f");
        }
        for (const char *c = name; *c != '\0'; c++) {
            key = key << 4 | (uint64_t)(*c <= '9' ? *c - '0' : *c - 'a' + 10);
        }
        if (ebb__machine_has_time(r->machine, key)) { return refuse(r, &where, "this key is there twice"); }
        EBB_TRY(read_whole(r, &where, at + 1, &time_ns));
        EBB_TRY(ebb_machine_set_time(r->machine, key, time_ns));
    }
    return EBB_OK;
}

/* ---- the file ----------------------------------------------------------------------------------- */

enum { N_PASSES = 3 };

static const struct section {
    const char *name;
    uint32_t pass;
    uint64_t since; /* version */
    ebb_status (*read)(reading *r);
} sections[] = {{"format", 0, OLD_VERSION, read_format}, {"version", 0, OLD_VERSION, read_version},
                {"rates", 1, OLD_VERSION, read_rates},   {"tiers", 1, VERSION, read_tiers},
                {"engines", 1, VERSION, read_engines},   {"times_ns", 1, OLD_VERSION, read_times},
                {"links", 2, OLD_VERSION, read_links}};

#define N_SECTIONS (sizeof sections / sizeof *sections)
_Static_assert(N_SECTIONS <= sizeof((reading *)0)->n_seen / sizeof(uint32_t), "a count for each section");

static size_t find_section(const char *key) {
    size_t s = 0;
    while (s < N_SECTIONS && strcmp(sections[s].name, key) != 0) { s++; }
    return s;
}

/* The first pass also sees which members there are. */
static bool wants_section(void *ctx, const char *key) {
    reading *r = ctx;
    const size_t s = find_section(key);
    if (r->pass == 0 && s < N_SECTIONS) { r->n_seen[s]++; }
    if (r->pass == 0 && s == N_SECTIONS && r->stranger[0] == '\0') {
        (void)snprintf(r->stranger, sizeof r->stranger, "%s", key[0] != '\0' ? key : "''");
    }
    return s < N_SECTIONS && sections[s].pass == r->pass;
}

static ebb_status read_section(void *ctx, const char *key, const ebb_json_value *json) {
    reading *r = ctx;
    r->json = json;
    return sections[find_section(key)].read(r);
}

static ebb_status read_some(void *ctx, void *buf, size_t n, size_t *n_out) {
    reading *r = ctx;
    *n_out = n < r->n_bytes - r->n_taken ? n : r->n_bytes - r->n_taken;
    if (*n_out > 0) { memcpy(buf, r->text + r->n_taken, *n_out); }
    r->n_taken += *n_out;
    return EBB_OK;
}

/* After the first pass: whether it is a machine, of a known version, with the members that one has. */
static ebb_status check_members(const reading *r) {
    if (!r->is_machine) { return ebb_fail(EBB_E_FORMAT, "%s: not the description of a machine", r->path); }
    if (r->version != VERSION && r->version != OLD_VERSION) {
        return ebb_fail(EBB_E_FORMAT, "%s: a version of the format that this ebb does not know", r->path);
    }
    const place stranger = place_of(r->stranger);
    if (r->stranger[0] != '\0') { return refuse(r, &stranger, "a machine has no such member"); }
    for (size_t s = 0; s < N_SECTIONS; s++) {
        const place where = place_of(sections[s].name);
        if (r->n_seen[s] > 1) { return refuse(r, &where, "this member is there twice"); }
        if (r->n_seen[s] > 0 && r->version < sections[s].since) {
            return refuse(r, &where, "a machine of version 1 has no such member");
        }
    }
    return EBB_OK;
}

static ebb_status read_passes(reading *r, const ebb_mem *mem) {
    const ebb_json_handler handler = {.wants = wants_section, .member = read_section, .ctx = r};
    for (; r->pass < N_PASSES; r->pass++) {
        ebb_json_source source = {.mem = mem, .path = r->path, .read = read_some, .ctx = r, .is_strict = true};
        r->n_taken = 0;
        EBB_TRY(ebb__json_read(&source, &handler));
        if (r->pass == 0) { EBB_TRY(check_members(r)); }
    }
    return EBB_OK;
}

ebb_status ebb__machine_parse(const ebb_mem *mem, const char *path, const char *text, size_t n_bytes,
                              ebb_machine **machine_out) {
    reading r = {.path = path, .text = text, .n_bytes = n_bytes};
    EBB_TRY(ebb_machine_create(mem, &r.machine));
    const ebb_status st = read_passes(&r, r.machine->mem);
    if (st != EBB_OK) {
        ebb_machine_destroy(r.machine);
        return st;
    }
    *machine_out = r.machine;
    return EBB_OK;
}

ebb_status ebb_machine_load(const ebb_mem *mem, const char *path, ebb_machine **machine_out) {
    EBB_NEED(path);
    EBB_NEED(machine_out);
    char *text = NULL;
    size_t n = 0;
    EBB_TRY(ebb__file_read_all(mem, path, MAX_FILE_BYTES, &text, &n));
    const ebb_status st = ebb__machine_parse(mem, path, text, n, machine_out);
    ebb__free(mem, text);
    return st;
}

/* ---- writing ------------------------------------------------------------------------------------ */

static void write_way(ebb_json *json, const char *key, const ebb_machine *machine, const ebb_way *way) {
    ebb_json_open(json, key, '{');
    ebb_json_f64(json, "bytes_per_s", way->bytes_per_s, EBB_JSON_F64_DIGITS);
    ebb_json_u64(json, "latency_ns", way->latency_ns);
    ebb_json_text(json, "engine", machine->topology.engine[way->engine]);
    ebb_json_close(json, '}');
}

static void write_link(ebb_json *json, const ebb_machine *machine, const ebb_link *link) {
    ebb_json_open(json, NULL, '{');
    ebb_json_text(json, "near", machine->topology.tier[link->near].name);
    ebb_json_text(json, "far", machine->topology.tier[link->far].name);
    write_way(json, "out", machine, &link->out);
    write_way(json, "in", machine, &link->in);
    ebb_json_f64(json, "both_rate", link->both_rate, EBB_JSON_F64_DIGITS);
    ebb_json_f64(json, "work_rate", link->work_rate[EBB_STEP_ARITHMETIC], EBB_JSON_F64_DIGITS);
    ebb_json_f64(json, "copy_rate", link->copy_rate[EBB_STEP_ARITHMETIC], EBB_JSON_F64_DIGITS);
    ebb_json_f64(json, "traffic_work_rate", link->work_rate[EBB_STEP_TRAFFIC], EBB_JSON_F64_DIGITS);
    ebb_json_f64(json, "traffic_copy_rate", link->copy_rate[EBB_STEP_TRAFFIC], EBB_JSON_F64_DIGITS);
    ebb_json_close(json, '}');
}

static void write_links(ebb_json *json, const ebb_machine *machine) {
    const uint32_t n = machine->topology.n_tiers;
    ebb_json_open(json, "links", '[');
    for (uint32_t near = 0; near < n; near++) {
        for (uint32_t far = near + 1; far < n; far++) {
            ebb_link link;
            if (ebb_machine_link(machine, near, far, &link)) { write_link(json, machine, &link); }
        }
    }
    ebb_json_close(json, ']');
}

static void write_topology(ebb_json *json, const ebb_topology *topology) {
    ebb_json_open(json, "tiers", '[');
    for (uint32_t t = 0; t < topology->n_tiers; t++) {
        const ebb_tier *tier = &topology->tier[t];
        ebb_json_open(json, NULL, '{');
        ebb_json_text(json, "name", tier->name);
        ebb_json_text(json, "store", ebb__store_name(tier->store));
        if (tier->capacity_bytes <= INT64_MAX) { ebb_json_u64(json, "capacity_bytes", tier->capacity_bytes); }
        ebb_json_close(json, '}');
    }
    ebb_json_close(json, ']');
    ebb_json_open(json, "engines", '[');
    for (uint32_t e = 0; e < topology->n_engines; e++) { ebb_json_text(json, NULL, topology->engine[e]); }
    ebb_json_close(json, ']');
}

static int order_by_key(const void *a, const void *b) {
    const uint64_t ka = ((const ebb_measured *)a)->key, kb = ((const ebb_measured *)b)->key;
    return ka < kb ? -1 : ka > kb;
}

static void write_machine(ebb_json *json, const ebb_machine *machine, const ebb_measured *times) {
    ebb_json_open(json, NULL, '{');
    ebb_json_text(json, "format", "ebb-machine");
    ebb_json_u64(json, "version", VERSION);
    write_topology(json, &machine->topology);
    write_links(json, machine);
    ebb_json_open(json, "rates", '{');
    ebb_json_f64(json, "flops_per_s", machine->flops_per_s, EBB_JSON_F64_DIGITS);
    ebb_json_f64(json, "bytes_per_s", machine->bytes_per_s, EBB_JSON_F64_DIGITS);
    ebb_json_u64(json, "overhead_ns", ebb_min_u64(machine->overhead_ns, EBB_MACHINE_MAX_NS));
    ebb_json_close(json, '}');
    ebb_json_open(json, "times_ns", '{');
    for (size_t i = 0; i < machine->n; i++) {
        char key[KEY_DIGITS + 1];
        (void)snprintf(key, sizeof key, "%016" PRIx64, times[i].key);
        ebb_json_u64(json, key, ebb_min_u64(times[i].time_ns, EBB_MACHINE_MAX_NS));
    }
    ebb_json_close(json, '}');
    ebb_json_close(json, '}');
}

/* The writer remembers its failure until commit. */
static void append_text(void *writer, const char *text, size_t n) {
    (void)ebb__file_writer_write(writer, text, n);
}

ebb_status ebb_machine_save(const ebb_machine *machine, const char *path) {
    EBB_NEED(machine);
    EBB_NEED(path);
    if (!ebb__machine_is_rate(machine->flops_per_s) || !ebb__machine_is_rate(machine->bytes_per_s)) {
        return ebb_fail(EBB_E_ARGUMENT, "%s: the machine's rates are not positive and finite", path);
    }
    ebb_measured *times = ebb__alloc(machine->mem, machine->n, sizeof *times);
    if (times == NULL) { return EBB_E_NO_MEMORY; }
    size_t n = 0;
    for (size_t i = 0; i < machine->cap; i++) {
        if (machine->times[i].used) { times[n++] = machine->times[i]; }
    }
    EBB_ASSERT(n == machine->n);
    if (n > 1) { qsort(times, n, sizeof *times, order_by_key); }
    ebb_file_writer *w = NULL;
    ebb_status st = ebb__file_writer_open(machine->mem, path, 0, &w);
    if (st == EBB_OK) {
        ebb_json json = {.put = append_text, .ctx = w, .line_depth = 2};
        write_machine(&json, machine, times);
        (void)ebb__file_writer_write(w, "\n", 1);
        st = ebb__file_writer_commit(w);
    }
    ebb__free(machine->mem, times);
    return st;
}
