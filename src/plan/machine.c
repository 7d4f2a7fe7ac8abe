/* SPDX-License-Identifier: Apache-2.0
 *
 * The machine that a plan is made for: tiers, engines, the links between tiers, rates for steps that were not measured,
 * and measured times by key. Its file is read and written in machine_file.c.
 */
#include "plan/machine_priv.h"

#include <float.h>
#include <math.h>

#define MAX_NS EBB_MACHINE_MAX_NS

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
    const ebb_link links[] = {{EBB_DEVICE, EBB_HOST, host_out, host_in, EBB_LINK_SHARES_ONE},
                              {EBB_DEVICE, EBB_DISK, disk_out, disk_in, EBB_LINK_SHARES_ONE},
                              {EBB_HOST, EBB_DISK, disk_out, disk_in, EBB_LINK_SHARES_ONE}};
    for (size_t i = 0; i < sizeof links / sizeof *links; i++) { EBB_TRY(ebb_machine_set_link(machine, &links[i])); }
    return EBB_OK;
}

ebb_status ebb_machine_create(const ebb_mem *mem, ebb_machine **machine_out) {
    EBB_NEED(machine_out);
    mem = ebb__mem_or_default(mem);
    ebb_machine *machine = ebb__calloc(mem, 1, sizeof *machine);
    if (machine == NULL) { return EBB_E_NO_MEMORY; }
    machine->mem = mem;
    machine->feed_times = 1;
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
    EBB_NEED(machine);
    EBB_NEED(tier);
    EBB_NEED(tier_out);
    return ebb__topology_add_tier(&machine->topology, tier, tier_out);
}

ebb_status ebb_machine_add_engine(ebb_machine *machine, const char *name, uint32_t *engine_out) {
    EBB_NEED(machine);
    EBB_NEED(name);
    EBB_NEED(engine_out);
    return ebb__topology_add_engine(&machine->topology, name, engine_out);
}

void ebb__machine_set_capacity(ebb_machine *machine, uint32_t tier, uint64_t capacity_bytes) {
    EBB_ASSERT(tier < machine->topology.n_tiers);
    machine->topology.tier[tier].capacity_bytes = capacity_bytes;
}

bool ebb__machine_is_rate(double x) {
    return x > 0 && isfinite(x);
}

static bool is_share(double x) {
    return x > 0 && x <= 1;
}

static bool are_shares(const ebb_link *link) {
    bool are = is_share(link->both_rate);
    for (int k = 0; k < EBB_N_STEP_KINDS; k++) {
        are = are && is_share(link->work_rate[k]) && is_share(link->copy_rate[k]);
    }
    return are;
}

static ebb_rate make_rate(const ebb_link *link, const ebb_way *way) {
    ebb_rate rate = {way->bytes_per_s, ebb_min_u64(way->latency_ns, MAX_NS), link->both_rate, {0}, {0}};
    memcpy(rate.work_rate, link->work_rate, sizeof rate.work_rate);
    memcpy(rate.copy_rate, link->copy_rate, sizeof rate.copy_rate);
    return rate;
}

ebb_status ebb_machine_set_link(ebb_machine *machine, const ebb_link *link) {
    EBB_NEED(machine);
    EBB_NEED(link);
    ebb_topology *topology = &machine->topology;
    const uint32_t near = link->near, far = link->far;
    const char *what = NULL;
    if (near >= topology->n_tiers || far >= topology->n_tiers || near == far) {
        what = "it is not between two tiers that are there";
    } else if (link->out.engine == EBB_COMPUTE || link->out.engine >= topology->n_engines ||
               link->in.engine == EBB_COMPUTE || link->in.engine >= topology->n_engines) {
        what = "it has no engine for copies";
    } else if (!ebb__machine_is_rate(link->out.bytes_per_s) || !ebb__machine_is_rate(link->in.bytes_per_s)) {
        what = "its bytes a second are not positive and finite";
    } else if (!are_shares(link)) {
        what = "what it leaves of a rate is not above 0 and at most 1";
    }
    if (what != NULL) { return ebb_fail(EBB_E_ARGUMENT, "link of tiers %u and %u: %s", near, far, what); }
    topology->way[near][far] = (uint8_t)link->out.engine;
    topology->way[far][near] = (uint8_t)link->in.engine;
    machine->rates[near][far] = make_rate(link, &link->out);
    machine->rates[far][near] = make_rate(link, &link->in);
    return EBB_OK;
}

/* With links as of a network of 10 Gb/s. The tier comes after its engines, so that a failure leaves no tier without
 * links. */
static ebb_status make_remote(ebb_machine *machine, uint32_t *tier_out) {
    const ebb_tier remote = {"remote", EBB_STORE_REMOTE, UINT64_MAX};
    ebb_way out = {1e9, 50000, 0}, in = {1e9, 50000, 0};
    EBB_TRY(ebb_machine_add_engine(machine, "remote-out", &out.engine));
    EBB_TRY(ebb_machine_add_engine(machine, "remote-in", &in.engine));
    EBB_TRY(ebb_machine_add_tier(machine, &remote, tier_out));
    for (uint32_t near = EBB_DEVICE; near <= EBB_HOST; near++) {
        const ebb_link link = {near, *tier_out, out, in, EBB_LINK_SHARES_ONE};
        EBB_TRY(ebb_machine_set_link(machine, &link));
    }
    return EBB_OK;
}

ebb_status ebb_machine_add_remote(ebb_machine *machine, uint32_t *tier_out) {
    EBB_NEED(machine);
    EBB_NEED(tier_out);
    uint32_t tier = ebb_topology_tier_of(&machine->topology, EBB_STORE_REMOTE);
    if (tier == EBB_MAX_TIERS) { EBB_TRY(make_remote(machine, &tier)); }
    *tier_out = tier;
    return EBB_OK;
}

ebb_machine ebb__machine_slow_links(const ebb_machine *machine, double times) {
    ebb_machine slower = *machine;
    slower.feed_times = machine->feed_times * times;
    for (uint32_t from = 0; from < EBB_MAX_TIERS; from++) {
        for (uint32_t to = 0; to < EBB_MAX_TIERS; to++) {
            ebb_rate *rate = &slower.rates[from][to];
            const double latency_ns = (double)rate->latency_ns * times;
            rate->bytes_per_s = fmax(rate->bytes_per_s / times, DBL_MIN);
            rate->latency_ns = latency_ns < (double)MAX_NS ? (uint64_t)latency_ns : MAX_NS;
        }
    }
    return slower;
}

static ebb_way make_way(const ebb_machine *machine, uint32_t from, uint32_t to) {
    const ebb_rate *r = &machine->rates[from][to];
    return (ebb_way){r->bytes_per_s, r->latency_ns, machine->topology.way[from][to]};
}

bool ebb_machine_link(const ebb_machine *machine, uint32_t near, uint32_t far, ebb_link *link_out) {
    const uint32_t n = machine->topology.n_tiers;
    if (near >= n || far >= n || machine->topology.way[near][far] == 0) { return false; }
    const ebb_rate *rate = &machine->rates[near][far];
    *link_out = (ebb_link){.near = near,
                           .far = far,
                           .out = make_way(machine, near, far),
                           .in = make_way(machine, far, near),
                           .both_rate = rate->both_rate};
    memcpy(link_out->work_rate, rate->work_rate, sizeof rate->work_rate);
    memcpy(link_out->copy_rate, rate->copy_rate, sizeof rate->copy_rate);
    return true;
}

void ebb_machine_set_rates(ebb_machine *machine, double flops_per_s, double bytes_per_s, uint64_t overhead_ns) {
    machine->flops_per_s = flops_per_s;
    machine->bytes_per_s = bytes_per_s;
    machine->overhead_ns = overhead_ns;
}

/* The key's entry, or the free one where it belongs. */
static ebb_measured *find_time(ebb_measured *times, size_t cap, uint64_t key) {
    EBB_ASSERT(cap > 0 && (cap & (cap - 1)) == 0);
    size_t i = (size_t)ebb__hash(EBB_HASH_INIT, &key, sizeof key) & (cap - 1);
    while (times[i].used && times[i].key != key) { i = (i + 1) & (cap - 1); }
    return &times[i];
}

static ebb_status grow_times(ebb_machine *machine) {
    size_t cap = machine->cap == 0 ? 64 : machine->cap * 2;
    ebb_measured *times = ebb__calloc(machine->mem, cap, sizeof *times);
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
    EBB_NEED(machine);
    if (machine->n >= machine->cap / 2) { EBB_TRY(grow_times(machine)); }
    ebb_measured *entry = find_time(machine->times, machine->cap, key);
    machine->n += !entry->used;
    EBB_ASSERT(machine->n <= machine->cap / 2);
    *entry = (ebb_measured){.key = key, .time_ns = time_ns, .used = true};
    return EBB_OK;
}

/* Seconds as whole nanoseconds, at most MAX_NS; a rate of 0 makes it that. */
static uint64_t to_ns(double seconds) {
    double ns = ceil(seconds * 1e9);
    return ns > 0 && ns < (double)MAX_NS ? (uint64_t)ns : ns > 0 ? MAX_NS : 0;
}

bool ebb__machine_has_time(const ebb_machine *machine, uint64_t key) {
    return machine->cap > 0 && find_time(machine->times, machine->cap, key)->used;
}

ebb_step_kind ebb_machine_step_kind(const ebb_machine *machine, const ebb_choice *choice) {
    const bool is_traffic = choice->traffic_bytes / machine->bytes_per_s > choice->flops / machine->flops_per_s;
    return is_traffic ? EBB_STEP_TRAFFIC : EBB_STEP_ARITHMETIC;
}

static bool is_told(const ebb_machine *machine, const ebb_choice *choice, uint64_t *time_ns_out) {
    const bool is_measured = ebb__machine_has_time(machine, choice->key);
    if (is_measured) {
        *time_ns_out = find_time(machine->times, machine->cap, choice->key)->time_ns;
    } else {
        *time_ns_out = ebb_min_u64(choice->time_ns, MAX_NS);
    }
    return is_measured || choice->time_ns > 0;
}

uint64_t ebb_machine_step_time_ns(const ebb_machine *machine, const ebb_choice *choice) {
    uint64_t time_ns = 0;
    if (choice->copies_in && ebb__topology_feeds_from(&machine->topology) != EBB_DEVICE) { return 0; }
    if (is_told(machine, choice, &time_ns)) { return time_ns; }
    double seconds = fmax(choice->flops / machine->flops_per_s, choice->traffic_bytes / machine->bytes_per_s);
    return ebb_min_u64(to_ns(seconds), MAX_NS - ebb_min_u64(machine->overhead_ns, MAX_NS)) +
           ebb_min_u64(machine->overhead_ns, MAX_NS);
}

uint64_t ebb_machine_copy_time_ns(const ebb_machine *machine, uint32_t from, uint32_t to, uint64_t bytes) {
    const uint32_t n = machine->topology.n_tiers;
    if (from >= n || to >= n || machine->topology.way[from][to] == 0) { return UINT64_MAX; }
    const ebb_rate *r = &machine->rates[from][to];
    return ebb_min_u64(to_ns((double)bytes / r->bytes_per_s), MAX_NS - r->latency_ns) + r->latency_ns;
}

uint64_t ebb__machine_feed_time_ns(const ebb_machine *machine, uint32_t from, const ebb_choice *choice,
                                   uint64_t bytes) {
    uint64_t told_ns = 0;
    EBB_ASSERT(choice->copies_in);
    const uint64_t copy_ns = ebb_machine_copy_time_ns(machine, from, EBB_DEVICE, bytes);
    if (copy_ns == UINT64_MAX || !is_told(machine, choice, &told_ns)) { return copy_ns; }
    const double time_ns = (double)told_ns * machine->feed_times;
    return time_ns < (double)MAX_NS ? (uint64_t)time_ns : MAX_NS;
}
