/* SPDX-License-Identifier: Apache-2.0
 *
 * The machine that a plan is made for: tiers, engines, the links between tiers, rates for steps that were not measured,
 * and measured times by key. Its file is JSON, read and written by jansson, whose memory is jansson's own:
 *
 *   {"format": "ebb-machine", "version": 2,
 *    "tiers": [{"name": "device", "store": "device"}, {"name": "host", "store": "memory", "capacity_bytes": ..}, ..],
 *    "engines": ["compute", "host-out", "host-in", ..],
 *    "links": [{"near": "device", "far": "host", "both_rate": 1, "work_rate": 1,
 *               "out": {"bytes_per_s": .., "latency_ns": .., "engine": "host-out"}, "in": {..}}, ..],
 *    "rates": {"flops_per_s": .., "bytes_per_s": .., "overhead_ns": ..},
 *    "times_ns": {"00f1e2d3c4b5a697": 125000, ..}}
 *
 * A key is 16 hexadecimal digits, because JSON's numbers do not hold 64 bits everywhere. Tiers and engines that a file
 * names beside the usual ones are added to them; what is left out keeps the round figures that every description starts
 * with. Version 1, which is still read, knew the tiers host and disk, in "links": {"host": {"out_bytes_per_s": ..,
 * "in_bytes_per_s": .., "latency_ns": ..}, "disk": {..}}.
 */
#include "base/file.h"
#include "plan/plan_priv.h"

#include <inttypes.h>
#include <jansson.h>
#include <math.h>

#define VERSION 2
#define OLD_VERSION 1
#define MAX_FILE_BYTES ((uint64_t)256 << 20)
#define MAX_NS ((uint64_t)INT64_MAX)

/* Times by key: open addressing, at most half full. */
typedef struct measured {
    uint64_t key, time_ns;
    bool used;
} measured;

/* From one tier to another. */
typedef struct rate {
    double bytes_per_s;
    uint64_t latency_ns;
    double both_rate, work_rate; /* the same for both directions */
} rate;

struct ebb_machine {
    const ebb_mem *mem;
    ebb_topology topology;
    rate rates[EBB_MAX_TIERS][EBB_MAX_TIERS]; /* [from][to]; of those that have a way */
    double flops_per_s, bytes_per_s;
    uint64_t overhead_ns;
    measured *times;
    size_t cap, n; /* cap is 0 or a power of two */
};

static ebb_status add_usual_tiers(ebb_machine *machine) {
    static const ebb_tier tiers[] = {{"device", EBB_STORE_DEVICE, UINT64_MAX},
                                     {"host", EBB_STORE_MEMORY, UINT64_MAX},
                                     {"disk", EBB_STORE_FILE, UINT64_MAX}};
    static const char *const engines[] = {"compute", "host-out", "host-in", "disk-out", "disk-in"};
    uint32_t added = 0;
    for (size_t i = 0; i < sizeof tiers / sizeof *tiers; i++) {
        EBB_TRY(ebb__topology_add_tier(&machine->topology, &tiers[i], &added));
    }
    for (size_t i = 0; i < sizeof engines / sizeof *engines; i++) {
        EBB_TRY(ebb__topology_add_engine(&machine->topology, engines[i], &added));
    }
    return EBB_OK;
}

static ebb_status set_usual_links(ebb_machine *machine) {
    const ebb_way host_out = {8e9, 10000, 1}, host_in = {8e9, 10000, 2};
    const ebb_way disk_out = {1e9, 100000, 3}, disk_in = {2e9, 100000, 4};
    const ebb_link links[] = {{EBB_DEVICE, EBB_HOST, host_out, host_in, 1, 1},
                              {EBB_DEVICE, EBB_DISK, disk_out, disk_in, 1, 1},
                              {EBB_HOST, EBB_DISK, disk_out, disk_in, 1, 1}};
    for (size_t i = 0; i < sizeof links / sizeof *links; i++) { EBB_TRY(ebb_machine_set_link(machine, &links[i])); }
    return EBB_OK;
}

ebb_status ebb_machine_create(const ebb_mem *mem, ebb_machine **machine_out) {
    mem = ebb__mem_or_default(mem);
    ebb_machine *machine = ebb__calloc(mem, 1, sizeof *machine);
    if (machine == NULL) { return EBB_E_NO_MEMORY; }
    machine->mem = mem;
    ebb_machine_set_rates(machine, 2e11, 2e10, 5000);
    ebb_status st = add_usual_tiers(machine);
    if (st == EBB_OK) { st = set_usual_links(machine); }
    if (st != EBB_OK) {
        ebb_machine_destroy(machine);
        return st;
    }
    *machine_out = machine;
    return EBB_OK;
}

void ebb_machine_destroy(ebb_machine *machine) {
    if (machine == NULL) { return; }
    ebb__free(machine->mem, machine->times);
    ebb__free(machine->mem, machine);
}

const ebb_topology *ebb_machine_topology(const ebb_machine *machine) {
    return &machine->topology;
}

ebb_status ebb_machine_add_tier(ebb_machine *machine, const ebb_tier *tier, uint32_t *tier_out) {
    return ebb__topology_add_tier(&machine->topology, tier, tier_out);
}

ebb_status ebb_machine_add_engine(ebb_machine *machine, const char *name, uint32_t *engine_out) {
    return ebb__topology_add_engine(&machine->topology, name, engine_out);
}

static bool is_rate(double x) {
    return x > 0 && isfinite(x);
}

ebb_status ebb_machine_set_link(ebb_machine *machine, const ebb_link *link) {
    ebb_topology *topology = &machine->topology;
    const uint32_t near = link->near, far = link->far;
    const char *what = NULL;
    if (near >= topology->n_tiers || far >= topology->n_tiers || near == far) {
        what = "it is not between two tiers that are there";
    } else if (link->out.engine == EBB_COMPUTE || link->out.engine >= topology->n_engines ||
               link->in.engine == EBB_COMPUTE || link->in.engine >= topology->n_engines) {
        what = "it has no engine for copies";
    } else if (!is_rate(link->out.bytes_per_s) || !is_rate(link->in.bytes_per_s)) {
        what = "its bytes a second are not positive and finite";
    } else if (!(link->both_rate > 0 && link->both_rate <= 1 && link->work_rate > 0 && link->work_rate <= 1)) {
        what = "what it leaves of a rate is not above 0 and at most 1";
    }
    if (what != NULL) { return ebb_fail(EBB_E_ARGUMENT, "link of tiers %u and %u: %s", near, far, what); }
    topology->way[near][far] = (uint8_t)link->out.engine;
    topology->way[far][near] = (uint8_t)link->in.engine;
    machine->rates[near][far] =
        (rate){link->out.bytes_per_s, ebb_min_u64(link->out.latency_ns, MAX_NS), link->both_rate, link->work_rate};
    machine->rates[far][near] =
        (rate){link->in.bytes_per_s, ebb_min_u64(link->in.latency_ns, MAX_NS), link->both_rate, link->work_rate};
    return EBB_OK;
}

static ebb_way make_way(const ebb_machine *machine, uint32_t from, uint32_t to) {
    const rate *r = &machine->rates[from][to];
    return (ebb_way){r->bytes_per_s, r->latency_ns, machine->topology.way[from][to]};
}

bool ebb_machine_link(const ebb_machine *machine, uint32_t near, uint32_t far, ebb_link *link_out) {
    const uint32_t n = machine->topology.n_tiers;
    if (near >= n || far >= n || machine->topology.way[near][far] == 0) { return false; }
    *link_out = (ebb_link){.near = near,
                           .far = far,
                           .out = make_way(machine, near, far),
                           .in = make_way(machine, far, near),
                           .both_rate = machine->rates[near][far].both_rate,
                           .work_rate = machine->rates[near][far].work_rate};
    return true;
}

void ebb_machine_set_rates(ebb_machine *machine, double flops_per_s, double bytes_per_s, uint64_t overhead_ns) {
    machine->flops_per_s = flops_per_s;
    machine->bytes_per_s = bytes_per_s;
    machine->overhead_ns = overhead_ns;
}

/* The key's entry, or the free one where it belongs. */
static measured *find_time(measured *times, size_t cap, uint64_t key) {
    EBB_ASSERT(cap > 0 && (cap & (cap - 1)) == 0);
    size_t i = (size_t)ebb__hash(EBB_HASH_INIT, &key, sizeof key) & (cap - 1);
    while (times[i].used && times[i].key != key) { i = (i + 1) & (cap - 1); }
    return &times[i];
}

static ebb_status grow_times(ebb_machine *machine) {
    size_t cap = machine->cap == 0 ? 64 : machine->cap * 2;
    measured *times = ebb__calloc(machine->mem, cap, sizeof *times);
    if (times == NULL) { return EBB_E_NO_MEMORY; }
    for (size_t i = 0; i < machine->cap; i++) {
        if (machine->times[i].used) { *find_time(times, cap, machine->times[i].key) = machine->times[i]; }
    }
    ebb__free(machine->mem, machine->times);
    machine->times = times;
    machine->cap = cap;
    return EBB_OK;
}

ebb_status ebb_machine_set_time(ebb_machine *machine, uint64_t key, uint64_t time_ns) {
    if (machine->n >= machine->cap / 2) { EBB_TRY(grow_times(machine)); }
    measured *entry = find_time(machine->times, machine->cap, key);
    machine->n += !entry->used;
    EBB_ASSERT(machine->n <= machine->cap / 2);
    *entry = (measured){.key = key, .time_ns = time_ns, .used = true};
    return EBB_OK;
}

/* Seconds as whole nanoseconds, at most MAX_NS; a rate of 0 makes it that. */
static uint64_t to_ns(double seconds) {
    double ns = ceil(seconds * 1e9);
    return ns > 0 && ns < (double)MAX_NS ? (uint64_t)ns : ns > 0 ? MAX_NS : 0;
}

uint64_t ebb_machine_step_time_ns(const ebb_machine *machine, const ebb_choice *choice) {
    if (machine->cap > 0) {
        const measured *entry = find_time(machine->times, machine->cap, choice->key);
        if (entry->used) { return entry->time_ns; }
    }
    if (choice->time_ns > 0) { return ebb_min_u64(choice->time_ns, MAX_NS); }
    double seconds = fmax(choice->flops / machine->flops_per_s, choice->traffic_bytes / machine->bytes_per_s);
    return ebb_min_u64(to_ns(seconds), MAX_NS - ebb_min_u64(machine->overhead_ns, MAX_NS)) +
           ebb_min_u64(machine->overhead_ns, MAX_NS);
}

uint64_t ebb_machine_copy_time_ns(const ebb_machine *machine, uint32_t from, uint32_t to, uint64_t bytes) {
    const uint32_t n = machine->topology.n_tiers;
    if (from >= n || to >= n || machine->topology.way[from][to] == 0) { return UINT64_MAX; }
    const rate *r = &machine->rates[from][to];
    return ebb_min_u64(to_ns((double)bytes / r->bytes_per_s), MAX_NS - r->latency_ns) + r->latency_ns;
}

/* ---- the file ---------------------------------------------------------------------------------- */

static ebb_status refuse(const char *path, const char *what, const char *name) {
    return ebb_fail(EBB_E_FORMAT, "%s: %s '%s'", path, what, name);
}

/* A positive figure, if it is there. */
static ebb_status read_rate(const char *path, const json_t *object, const char *name, double *value) {
    const json_t *member = json_object_get(object, name);
    if (member == NULL) { return EBB_OK; }
    double read = json_number_value(member);
    if (!json_is_number(member) || !(read > 0) || !isfinite(read)) { return refuse(path, "not a rate:", name); }
    *value = read;
    return EBB_OK;
}

static ebb_status read_ns(const char *path, const json_t *object, const char *name, uint64_t *value) {
    const json_t *member = json_object_get(object, name);
    if (member == NULL) { return EBB_OK; }
    if (!json_is_integer(member) || json_integer_value(member) < 0) { return refuse(path, "not a time:", name); }
    *value = (uint64_t)json_integer_value(member);
    return EBB_OK;
}

/* Of version 1. */
static ebb_status read_old_links(const char *path, const json_t *links, ebb_machine *machine) {
    for (uint32_t tier = EBB_HOST; tier <= EBB_DISK; tier++) {
        const json_t *old = json_object_get(links, machine->topology.tier[tier].name);
        ebb_link link;
        (void)ebb_machine_link(machine, EBB_DEVICE, tier, &link);
        EBB_TRY(read_rate(path, old, "out_bytes_per_s", &link.out.bytes_per_s));
        EBB_TRY(read_rate(path, old, "in_bytes_per_s", &link.in.bytes_per_s));
        EBB_TRY(read_ns(path, old, "latency_ns", &link.out.latency_ns));
        link.in.latency_ns = link.out.latency_ns;
        EBB_TRY(ebb_machine_set_link(machine, &link));
    }
    return EBB_OK;
}

/* The member's text; NULL if it is none. */
static const char *text_of(const json_t *object, const char *name) {
    return json_string_value(json_object_get(object, name));
}

static ebb_status read_tiers(const char *path, const json_t *tiers, ebb_machine *machine) {
    for (size_t i = 0; i < json_array_size(tiers); i++) {
        const json_t *member = json_array_get(tiers, i);
        const char *name = text_of(member, "name"), *store = text_of(member, "store");
        ebb_tier tier = {.capacity_bytes = UINT64_MAX};
        if (name == NULL || store == NULL || strlen(name) >= sizeof tier.name) {
            return ebb_fail(EBB_E_FORMAT, "%s: tier %zu has no name or no store", path, i);
        }
        memcpy(tier.name, name, strlen(name) + 1);
        tier.store = ebb__store_find(store);
        EBB_TRY(read_ns(path, member, "capacity_bytes", &tier.capacity_bytes));
        uint32_t idx = ebb_topology_tier(&machine->topology, name);
        if (idx == EBB_MAX_TIERS && ebb__topology_add_tier(&machine->topology, &tier, &idx) != EBB_OK) {
            return refuse(path, "not a tier:", name);
        }
        if (machine->topology.tier[idx].store != tier.store) {
            return refuse(path, "another store was expected of", name);
        }
        machine->topology.tier[idx].capacity_bytes = tier.capacity_bytes;
    }
    return EBB_OK;
}

static ebb_status read_engines(const char *path, const json_t *engines, ebb_machine *machine) {
    for (size_t i = 0; i < json_array_size(engines); i++) {
        const char *name = json_string_value(json_array_get(engines, i));
        uint32_t added = 0;
        if (name == NULL) { return ebb_fail(EBB_E_FORMAT, "%s: engine %zu is not a name", path, i); }
        if (ebb__topology_engine(&machine->topology, name) != EBB_MAX_ENGINES) { continue; }
        if (ebb__topology_add_engine(&machine->topology, name, &added) != EBB_OK) {
            return refuse(path, "not an engine:", name);
        }
    }
    return EBB_OK;
}

static ebb_status read_way(const char *path, const json_t *object, const ebb_machine *machine, ebb_way *way) {
    const char *engine = text_of(object, "engine");
    EBB_TRY(read_rate(path, object, "bytes_per_s", &way->bytes_per_s));
    EBB_TRY(read_ns(path, object, "latency_ns", &way->latency_ns));
    if (engine != NULL) { way->engine = ebb__topology_engine(&machine->topology, engine); }
    return EBB_OK;
}

static ebb_status read_links(const char *path, const json_t *links, ebb_machine *machine) {
    for (size_t i = 0; i < json_array_size(links); i++) {
        const json_t *object = json_array_get(links, i);
        const char *near = text_of(object, "near"), *far = text_of(object, "far");
        ebb_link link = {.both_rate = 1, .work_rate = 1};
        if (near != NULL) { link.near = ebb_topology_tier(&machine->topology, near); }
        if (far != NULL) { link.far = ebb_topology_tier(&machine->topology, far); }
        const ebb_link ends = link;
        if (ebb_machine_link(machine, link.near, link.far, &link)) { EBB_ASSERT(link.near == ends.near); }
        EBB_TRY(read_way(path, json_object_get(object, "out"), machine, &link.out));
        EBB_TRY(read_way(path, json_object_get(object, "in"), machine, &link.in));
        EBB_TRY(read_rate(path, object, "both_rate", &link.both_rate));
        EBB_TRY(read_rate(path, object, "work_rate", &link.work_rate));
        if (near == NULL || far == NULL || ebb_machine_set_link(machine, &link) != EBB_OK) {
            return ebb_fail(EBB_E_FORMAT, "%s: link %zu: %s", path, i,
                            near == NULL || far == NULL ? "it names no two tiers" : ebb_last_error());
        }
    }
    return EBB_OK;
}

static ebb_status read_times(const char *path, const json_t *times, ebb_machine *machine) {
    const char *name;
    json_t *value;
    json_object_foreach((json_t *)times, name, value) {
        if (strlen(name) != 16 || strspn(name, "0123456789abcdef") != 16) { return refuse(path, "not a key:", name); }
        uint64_t time_ns = 0, key = 0;
        EBB_TRY(read_ns(path, times, name, &time_ns));
        for (const char *c = name; *c != '\0'; c++) {
            key = key << 4 | (uint64_t)(*c <= '9' ? *c - '0' : *c - 'a' + 10);
        }
        EBB_TRY(ebb_machine_set_time(machine, key, time_ns));
    }
    return EBB_OK;
}

static ebb_status read_machine(const char *path, const json_t *root, ebb_machine *machine) {
    const char *format = json_string_value(json_object_get(root, "format"));
    if (format == NULL || strcmp(format, "ebb-machine") != 0) {
        return ebb_fail(EBB_E_FORMAT, "%s: not the description of a machine", path);
    }
    const json_int_t version = json_integer_value(json_object_get(root, "version"));
    if (version != VERSION && version != OLD_VERSION) {
        return ebb_fail(EBB_E_FORMAT, "%s: a version of the format that this ebb does not know", path);
    }
    const json_t *rates = json_object_get(root, "rates");
    EBB_TRY(read_rate(path, rates, "flops_per_s", &machine->flops_per_s));
    EBB_TRY(read_rate(path, rates, "bytes_per_s", &machine->bytes_per_s));
    EBB_TRY(read_ns(path, rates, "overhead_ns", &machine->overhead_ns));
    const json_t *links = json_object_get(root, "links");
    if (version == OLD_VERSION) {
        EBB_TRY(read_old_links(path, links, machine));
    } else {
        EBB_TRY(read_tiers(path, json_object_get(root, "tiers"), machine));
        EBB_TRY(read_engines(path, json_object_get(root, "engines"), machine));
        EBB_TRY(read_links(path, links, machine));
    }
    return read_times(path, json_object_get(root, "times_ns"), machine);
}

ebb_status ebb_machine_load(const ebb_mem *mem, const char *path, ebb_machine **machine_out) {
    char *text = NULL;
    size_t n = 0;
    ebb_machine *machine = NULL;
    json_t *root = NULL;
    EBB_TRY(ebb__file_read_all(mem, path, MAX_FILE_BYTES, &text, &n));
    ebb_status st = ebb_machine_create(mem, &machine);
    if (st != EBB_OK) { goto out; }
    json_error_t error;
    root = json_loadb(text, n, JSON_REJECT_DUPLICATES, &error);
    if (root == NULL) {
        st = ebb_fail(EBB_E_FORMAT, "%s:%d: %s", path, error.line, error.text);
        goto out;
    }
    st = read_machine(path, root, machine);
    if (st != EBB_OK) { goto out; }
    *machine_out = machine;
    machine = NULL;
out:
    json_decref(root);
    ebb_machine_destroy(machine);
    ebb__free(mem, text);
    return st;
}

static json_t *pack_way(const ebb_machine *machine, const ebb_way *way) {
    return json_pack("{s:f, s:I, s:s}", "bytes_per_s", way->bytes_per_s, "latency_ns", (json_int_t)way->latency_ns,
                     "engine", machine->topology.engine[way->engine]);
}

/* Append to an array; a failure makes the array NULL, and stays. */
static json_t *append(json_t *array, json_t *member) {
    if (array != NULL && json_array_append_new(array, member) == 0) { return array; }
    if (array == NULL) { json_decref(member); }
    json_decref(array);
    return NULL;
}

static json_t *pack_links(const ebb_machine *machine) {
    const ebb_topology *topology = &machine->topology;
    json_t *links = json_array();
    for (uint32_t near = 0; near < topology->n_tiers; near++) {
        for (uint32_t far = near + 1; far < topology->n_tiers; far++) {
            ebb_link link;
            if (!ebb_machine_link(machine, near, far, &link)) { continue; }
            links = append(links, json_pack("{s:s, s:s, s:o, s:o, s:f, s:f}", "near", topology->tier[near].name, "far",
                                            topology->tier[far].name, "out", pack_way(machine, &link.out), "in",
                                            pack_way(machine, &link.in), "both_rate", link.both_rate, "work_rate",
                                            link.work_rate));
        }
    }
    return links;
}

static json_t *pack_tiers(const ebb_topology *topology) {
    json_t *tiers = json_array();
    for (uint32_t t = 0; t < topology->n_tiers; t++) {
        const ebb_tier *tier = &topology->tier[t];
        json_t *member = json_pack("{s:s, s:s}", "name", tier->name, "store", ebb__store_name(tier->store));
        if (member != NULL && tier->capacity_bytes <= MAX_NS) {
            (void)json_object_set_new(member, "capacity_bytes", json_integer((json_int_t)tier->capacity_bytes));
        }
        tiers = append(tiers, member);
    }
    return tiers;
}

static json_t *pack_engines(const ebb_topology *topology) {
    json_t *engines = json_array();
    for (uint32_t e = 0; e < topology->n_engines; e++) { engines = append(engines, json_string(topology->engine[e])); }
    return engines;
}

static json_t *pack_times(const ebb_machine *machine) {
    json_t *times = json_object();
    for (size_t i = 0; i < machine->cap; i++) {
        if (!machine->times[i].used) { continue; }
        char key[17];
        (void)snprintf(key, sizeof key, "%016" PRIx64, machine->times[i].key);
        json_t *value = json_integer((json_int_t)ebb_min_u64(machine->times[i].time_ns, MAX_NS));
        if (json_object_set_new(times, key, value) != 0) {
            json_decref(times);
            return NULL;
        }
    }
    return times;
}

/* The writer remembers its failure until commit. */
static int append_text(const char *text, size_t n, void *writer) {
    return ebb__file_writer_write(writer, text, n) == EBB_OK ? 0 : -1;
}

ebb_status ebb_machine_save(const ebb_machine *machine, const char *path) {
    json_t *root = json_pack("{s:s, s:i, s:o, s:o, s:o, s:{s:f, s:f, s:I}, s:o}", "format", "ebb-machine", "version",
                             VERSION, "tiers", pack_tiers(&machine->topology), "engines",
                             pack_engines(&machine->topology), "links", pack_links(machine), "rates", "flops_per_s",
                             machine->flops_per_s, "bytes_per_s", machine->bytes_per_s, "overhead_ns",
                             (json_int_t)ebb_min_u64(machine->overhead_ns, MAX_NS), "times_ns", pack_times(machine));
    if (root == NULL) { return ebb_fail(EBB_E_ARGUMENT, "%s: a figure of the machine cannot be written", path); }
    ebb_file_writer *w = NULL;
    ebb_status st = ebb__file_writer_open(machine->mem, path, 0, &w);
    if (st == EBB_OK) {
        (void)json_dump_callback(root, append_text, w, JSON_INDENT(2) | JSON_SORT_KEYS);
        (void)ebb__file_writer_write(w, "\n", 1);
        st = ebb__file_writer_commit(w);
    }
    json_decref(root);
    return st;
}
