/* SPDX-License-Identifier: Apache-2.0
 *
 * The machine that a plan is made for: links to the lower tiers, rates for steps that nobody measured, and
 * measured times by key. Its file is JSON, read and written by jansson, whose memory is jansson's own:
 *
 *   {"format": "ebb-machine", "version": 1,
 *    "links": {"host": {"out_bytes_per_s": .., "in_bytes_per_s": .., "latency_ns": ..}, "disk": {..}},
 *    "rates": {"flops_per_s": .., "bytes_per_s": .., "overhead_ns": ..},
 *    "times_ns": {"00f1e2d3c4b5a697": 125000, ..}}
 *
 * A key is 16 hexadecimal digits, because JSON's numbers do not hold 64 bits everywhere. Parts that are left
 * out keep the round figures that every description starts with.
 */
#include "base/file.h"
#include "plan/plan_priv.h"

#include <inttypes.h>
#include <jansson.h>
#include <math.h>

#define VERSION 1
#define MAX_FILE_BYTES ((uint64_t)256 << 20)
#define MAX_NS ((uint64_t)INT64_MAX)

/* Times by key: open addressing, at most half full. */
typedef struct measured {
    uint64_t key, time_ns;
    bool used;
} measured;

struct ebb_machine {
    const ebb_mem *mem;
    ebb_link links[EBB_N_TIERS];
    double flops_per_s, bytes_per_s;
    uint64_t overhead_ns;
    measured *times;
    size_t cap, n; /* cap is 0 or a power of two */
};

ebb_status ebb_machine_create(const ebb_mem *mem, ebb_machine **machine_out) {
    mem = ebb__mem_or_default(mem);
    ebb_machine *machine = ebb__calloc(mem, 1, sizeof *machine);
    if (machine == NULL) { return EBB_E_NO_MEMORY; }
    machine->mem = mem;
    machine->links[EBB_TIER_HOST] = (ebb_link){.out_bytes_per_s = 8e9, .in_bytes_per_s = 8e9, .latency_ns = 10000};
    machine->links[EBB_TIER_DISK] = (ebb_link){.out_bytes_per_s = 1e9, .in_bytes_per_s = 2e9, .latency_ns = 100000};
    ebb_machine_set_rates(machine, 2e11, 2e10, 5000);
    *machine_out = machine;
    return EBB_OK;
}

void ebb_machine_destroy(ebb_machine *machine) {
    if (machine == NULL) { return; }
    ebb__free(machine->mem, machine->times);
    ebb__free(machine->mem, machine);
}

void ebb_machine_set_link(ebb_machine *machine, ebb_tier tier, const ebb_link *link) {
    EBB_ASSERT(tier < EBB_N_TIERS);
    machine->links[tier] = *link;
}

ebb_link ebb_machine_link(const ebb_machine *machine, ebb_tier tier) {
    EBB_ASSERT(tier < EBB_N_TIERS);
    return machine->links[tier];
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
    double seconds = fmax(choice->flops / machine->flops_per_s, choice->traffic_bytes / machine->bytes_per_s);
    return ebb_min_u64(to_ns(seconds), MAX_NS - ebb_min_u64(machine->overhead_ns, MAX_NS)) +
           ebb_min_u64(machine->overhead_ns, MAX_NS);
}

uint64_t ebb__machine_copy_ns(const ebb_machine *machine, ebb_tier tier, bool out, uint64_t bytes) {
    EBB_ASSERT(tier < EBB_N_TIERS);
    const ebb_link *link = &machine->links[tier];
    uint64_t latency_ns = ebb_min_u64(link->latency_ns, MAX_NS);
    uint64_t ns = to_ns((double)bytes / (out ? link->out_bytes_per_s : link->in_bytes_per_s));
    return ebb_min_u64(ns, MAX_NS - latency_ns) + latency_ns;
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

static ebb_status read_links(const char *path, const json_t *links, ebb_machine *machine) {
    for (uint32_t tier = 0; tier < EBB_N_TIERS; tier++) {
        const json_t *link = json_object_get(links, ebb__tier_name(tier));
        EBB_TRY(read_rate(path, link, "out_bytes_per_s", &machine->links[tier].out_bytes_per_s));
        EBB_TRY(read_rate(path, link, "in_bytes_per_s", &machine->links[tier].in_bytes_per_s));
        EBB_TRY(read_ns(path, link, "latency_ns", &machine->links[tier].latency_ns));
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
    if (json_integer_value(json_object_get(root, "version")) != VERSION) {
        return ebb_fail(EBB_E_FORMAT, "%s: a version of the format that this ebb does not know", path);
    }
    const json_t *rates = json_object_get(root, "rates");
    EBB_TRY(read_rate(path, rates, "flops_per_s", &machine->flops_per_s));
    EBB_TRY(read_rate(path, rates, "bytes_per_s", &machine->bytes_per_s));
    EBB_TRY(read_ns(path, rates, "overhead_ns", &machine->overhead_ns));
    EBB_TRY(read_links(path, json_object_get(root, "links"), machine));
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

static json_t *pack_link(const ebb_link *link) {
    return json_pack("{s:f, s:f, s:I}", "out_bytes_per_s", link->out_bytes_per_s, "in_bytes_per_s",
                     link->in_bytes_per_s, "latency_ns", (json_int_t)ebb_min_u64(link->latency_ns, MAX_NS));
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
    json_t *root = json_pack("{s:s, s:i, s:{s:o, s:o}, s:{s:f, s:f, s:I}, s:o}", "format", "ebb-machine", "version",
                             VERSION, "links", "host", pack_link(&machine->links[EBB_TIER_HOST]), "disk",
                             pack_link(&machine->links[EBB_TIER_DISK]), "rates", "flops_per_s", machine->flops_per_s,
                             "bytes_per_s", machine->bytes_per_s, "overhead_ns",
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
