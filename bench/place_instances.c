/* SPDX-License-Identifier: Apache-2.0
 *
 * Problems from a seed. Tilings cut a rectangle of arena and time into pieces, so the bound is met by an
 * optimum; the others only look like what they are named after.
 */
#include "place_instances.h"

#include "base/base.h"

#include <math.h>
#include <stdlib.h>

#define TILE_BYTES ((uint64_t)1 << 30)

typedef struct maker {
    ebb_place_item *items;
    size_t n, cap, wanted;
    ebb_rng rng;
} maker;

static void add(maker *m, uint64_t size_bytes, uint64_t first, uint64_t last) {
    if (m->n < m->cap) { m->items[m->n++] = (ebb_place_item){size_bytes, first, last}; }
}

/* Every order of magnitude up to n as likely as any other. */
static uint64_t draw_log(maker *m, double n) {
    return (uint64_t)exp(log(n) * (double)ebb__rng_unit(&m->rng));
}

static uint64_t below(maker *m, uint64_t n) {
    return ebb__rng_below(&m->rng, n);
}

/* ---- without structure ------------------------------------------------------------------------ */

static void make_random(maker *m) {
    const double longest = m->wanted < 40000 ? (double)m->wanted / 2 : 20000;
    for (size_t i = 0; i < m->wanted; i++) {
        const uint64_t first = below(m, m->wanted);
        add(m, draw_log(m, 1 << 20), first, first + draw_log(m, longest));
    }
}

static void make_uniform(maker *m) {
    const uint64_t longest = m->wanted < 4000 ? m->wanted / 2 : 2000;
    for (size_t i = 0; i < m->wanted; i++) {
        const uint64_t first = below(m, m->wanted);
        add(m, 1 + below(m, 1 << 20), first, first + 1 + below(m, longest));
    }
}

/* ---- tilings ---------------------------------------------------------------------------------- */

typedef struct tile {
    uint64_t bytes, first, last;
} tile;

/* A place for a cut that leaves at least a quarter on each side. */
static uint64_t cut_of(maker *m, uint64_t length) {
    return length / 4 + below(m, length / 2 + 1);
}

/* Across the longer side: sides count alike. */
static void cut_guillotine(maker *m, tile t, size_t n) {
    if (n == 1) {
        add(m, t.bytes, t.first, t.last);
        return;
    }
    const size_t n_one = n / 2 + (n > 3 ? below(m, n / 4 + 1) : 0);
    const uint64_t length = t.last - t.first;
    tile one = t, other = t;
    if (t.bytes > length) {
        one.bytes = cut_of(m, t.bytes);
        other.bytes = t.bytes - one.bytes;
    } else {
        one.last = other.first = t.first + cut_of(m, length);
    }
    cut_guillotine(m, one, n_one);
    cut_guillotine(m, other, n - n_one);
}

static void make_guillotine(maker *m) {
    cut_guillotine(m, (tile){TILE_BYTES, 0, TILE_BYTES}, m->wanted);
}

/* Four arms around a middle, which no cut from side to side takes apart: the piece becomes one, the others are added.
 */
static bool cut_pinwheel(maker *m, size_t at) {
    const ebb_place_item piece = m->items[at];
    const uint64_t bytes = piece.size_bytes, first = piece.first, last = piece.last, length = last - first;
    if (bytes < 16 || length < 16) { return false; }
    const uint64_t low = cut_of(m, bytes / 2), high = bytes / 2 + cut_of(m, bytes / 2);
    const uint64_t early = first + cut_of(m, length / 2), late = first + length / 2 + cut_of(m, length / 2);
    m->items[at] = (ebb_place_item){high, first, early};
    add(m, bytes - high, first, late);
    add(m, bytes - low, late, last);
    add(m, low, early, last);
    add(m, high - low, early, late);
    return true;
}

/* Each piece in turn, of the oldest first, until there are as many as can be. */
static void make_pinwheel(maker *m) {
    add(m, TILE_BYTES, 0, TILE_BYTES);
    for (size_t at = 0; at < m->n && m->n + 4 <= m->wanted; at++) { (void)cut_pinwheel(m, at); }
}

/* ---- training --------------------------------------------------------------------------------- */

/* Layers of a few kinds: activations that the backward pass frees last in, first out, scratch within a step, weights'
 * gradients up to the update, now and then a spike. */
static void make_train(maker *m) {
    enum { KINDS = 6, PER_LAYER = 6 };
    uint64_t kept[KINDS], scratch[KINDS], weight[KINDS];
    const uint64_t n_layers = m->wanted / PER_LAYER, end = 4 * n_layers;
    for (unsigned k = 0; k < KINDS; k++) {
        kept[k] = (1 + draw_log(m, 1 << 14)) * 4096;
        scratch[k] = (1 + draw_log(m, 1 << 15)) * 512;
        weight[k] = (1 + draw_log(m, 1 << 12)) * 512;
    }
    for (uint64_t l = 0; l < n_layers; l++) {
        const unsigned k = (unsigned)(l % 7 == 0 ? below(m, KINDS) : l % KINDS);
        const uint64_t forward = 2 * l, backward = end - 2 * l - 2;
        add(m, kept[k], forward, backward + 1);
        add(m, kept[k] / 2, forward, backward);
        add(m, scratch[k], forward, forward + 1);
        add(m, scratch[k] * 2, backward, backward + 1);
        add(m, kept[k], backward, backward + 3);
        add(m, weight[k] * (l % 97 == 0 ? 16 : 1), backward, end + 1 + below(m, 8));
    }
}

/* A mountain of nested lifetimes with short spikes on it. */
static void make_spikes(maker *m) {
    const uint64_t n = m->wanted / 2;
    for (uint64_t k = 0; k < n; k++) {
        add(m, 1 + draw_log(m, 1 << 20), k, 4 * n - k);
        const uint64_t first = below(m, 4 * n);
        add(m, 1 + draw_log(m, 1 << 26), first, first + 1 + below(m, 3));
    }
}

/* A compiler's graph: up to a hundred sizes, the same layer many times over, values that live a few steps, up to the
 * mirrored step or to the end. */
static void make_xla(maker *m) {
    enum { MAX_SIZES = 100, MAX_LAYER = 200 };
    uint64_t size[MAX_SIZES];
    ebb_place_item layer[MAX_LAYER];
    const uint64_t n_sizes = 30 + below(m, MAX_SIZES - 30), n_layer = 100 + below(m, MAX_LAYER - 100);
    const uint64_t n_layers = m->wanted / n_layer + (m->wanted < n_layer), end = 2 * n_layers * n_layer;
    for (unsigned k = 0; k < n_sizes; k++) { size[k] = 4 * (1 + draw_log(m, 1 << 26)); }
    for (unsigned i = 0; i < n_layer; i++) {
        layer[i].size_bytes = size[below(m, n_sizes)];
        layer[i].first = below(m, n_layer);
        layer[i].last = 1 + draw_log(m, 60);
    }
    for (uint64_t l = 0; l < n_layers; l++) {
        for (unsigned i = 0; i < n_layer; i++) {
            const uint64_t at = l * n_layer + layer[i].first;
            uint64_t first = i % 2 == 0 ? at : end - at;
            uint64_t last = first + layer[i].last;
            if (i % 16 == 0) { last = end - at + layer[i].last; }
            if (i % 64 == 1) { last = end + 1; }
            add(m, layer[i].size_bytes, first, last);
        }
    }
}

/* ---- a network's graph ------------------------------------------------------------------------ */

/* What an operation of a layer leaves: until the next few operations have read it, until the layer's end, or until its
 * mirror image in the backward pass. Its gradient lives shortly there, and beside it some have a weight's gradient,
 * which lives up to the update. */
typedef struct operation {
    uint64_t bytes, grad_bytes, weight_bytes;
    uint64_t steps, grad_steps; /* it lives for, unless it is kept */
    bool is_kept, is_residual;
} operation;

enum { MAX_OPERATIONS = 48, LAYER_KINDS = 3 };

static uint64_t draw_bytes(maker *m, const uint64_t *sizes, size_t n_sizes) {
    return sizes[below(m, n_sizes)];
}

static void draw_layer(maker *m, operation *layer, size_t n, const uint64_t *sizes, size_t n_sizes) {
    for (size_t i = 0; i < n; i++) {
        const uint64_t kept = below(m, 100);
        layer[i] = (operation){.bytes = draw_bytes(m, sizes, n_sizes),
                               .grad_bytes = draw_bytes(m, sizes, n_sizes),
                               .weight_bytes = below(m, 4) == 0 ? draw_bytes(m, sizes, n_sizes) : 0,
                               .steps = 1 + draw_log(m, 8),
                               .grad_steps = 1 + draw_log(m, 6),
                               .is_kept = kept < 35,
                               .is_residual = kept >= 90};
    }
}

/* Each tensor's part of a device, if it is split. */
static uint64_t part_of(maker *m, uint64_t bytes, bool is_split) {
    return is_split ? 4 + (bytes >> below(m, 7)) / 4 * 4 : bytes;
}

static void add_layer(maker *m, const operation *layer, size_t n, ebb_place_item span, bool is_split) {
    const uint64_t end = span.last, update = end + 4 + below(m, 64);
    for (size_t i = 0; i < n; i++) {
        const operation *o = &layer[i];
        const uint64_t at = span.first + i, mirror = end - at;
        const uint64_t last = o->is_kept ? mirror + 1 : o->is_residual ? span.first + n + 1 : at + o->steps;
        add(m, part_of(m, o->bytes, is_split), at, last);
        add(m, part_of(m, o->grad_bytes, is_split), mirror, mirror + o->grad_steps);
        if (o->weight_bytes > 0) { add(m, part_of(m, o->weight_bytes, is_split), mirror, update); }
    }
}

static void make_network(maker *m, bool is_split) {
    uint64_t size[150];
    operation layer[LAYER_KINDS][MAX_OPERATIONS];
    const uint64_t n_sizes = 30 + below(m, 120), n_ops = 12 + below(m, MAX_OPERATIONS - 12);
    const uint64_t n_layers = m->wanted * 4 / (n_ops * 9) + 1, end = 2 * n_layers * n_ops + 8 + below(m, 64);
    for (size_t k = 0; k < n_sizes; k++) {
        size[k] = below(m, 3) == 0 ? 4 * draw_log(m, 512) : 512 * draw_log(m, 1 << 16);
    }
    for (size_t k = 0; k < LAYER_KINDS; k++) { draw_layer(m, layer[k], n_ops, size, n_sizes); }
    for (uint64_t l = 0; l < n_layers; l++) {
        const size_t kind = l % 8 == 7 ? 1 : l % 5 == 4 ? 2 : 0;
        add_layer(m, layer[kind], n_ops, (ebb_place_item){0, l * n_ops, end}, is_split);
    }
    for (unsigned k = 0; k < 4; k++) { /* logits, and what the loss makes of them */
        add(m, 512 * (1 + draw_log(m, 1 << 20)), n_layers * n_ops + 2 * k, n_layers * n_ops + 3 + 3 * k);
    }
}

static void make_network_whole(maker *m) {
    make_network(m, false);
}

static void make_network_split(maker *m) {
    make_network(m, true);
}

/* ---- an allocator's trace --------------------------------------------------------------------- */

/* Sizes of objects and buffers; most die young, in bursts, some with their phase, some never. */
static void make_malloc(maker *m) {
    const uint64_t phase = m->wanted / 20 + 1;
    for (uint64_t i = 0; i < m->wanted; i++) {
        uint64_t size_bytes = 16 * (1 + draw_log(m, 16)), life = 1 + draw_log(m, 200);
        const uint64_t kind = below(m, 1000);
        if (kind < 20) { size_bytes = 16 * (1 + draw_log(m, 8192)); }
        if (kind < 2) { size_bytes = 4096 * (1 + draw_log(m, 256)); }
        const uint64_t fate = below(m, 100);
        if (fate < 12) { life = 1 + draw_log(m, (double)m->wanted); }
        if (fate < 6) { life = (i / phase + 1) * phase - i + below(m, 1 + phase / 50); }
        if (fate < 2) { life = 2 * m->wanted - i; }
        add(m, size_bytes, i, i + life);
    }
}

/* ---- by name ---------------------------------------------------------------------------------- */

static const struct {
    const char *name, *about;
    void (*make)(maker *m);
} kinds[] = {
    {"random", "sizes and lifetimes of every order of magnitude", make_random},
    {"uniform", "sizes and lifetimes evenly up to the largest", make_uniform},
    {"guillotine", "a rectangle cut from side to side again and again", make_guillotine},
    {"pinwheel", "a rectangle cut into five that no such cut takes apart", make_pinwheel},
    {"train", "one iteration of a deep network", make_train},
    {"spikes", "nested lifetimes and short large ones", make_spikes},
    {"xla", "a compiler's graph: few sizes, the same layer many times", make_xla},
    {"network", "forward, backward and update of layers of a few kinds", make_network_whole},
    {"split", "the same, each tensor split over a number of devices of its own", make_network_split},
    {"malloc", "an allocator's trace", make_malloc},
};
#define N_KINDS (sizeof kinds / sizeof kinds[0])

const char *ebb_bench_kind(size_t idx, const char **about_out) {
    if (idx >= N_KINDS) { return NULL; }
    if (about_out != NULL) { *about_out = kinds[idx].about; }
    return kinds[idx].name;
}

bool ebb_bench_make_items(const char *kind, size_t n_items, uint64_t seed, ebb_place_item **items_out,
                          size_t *n_items_out) {
    maker m = {.items = malloc((n_items + 8) * sizeof *m.items), .cap = n_items + 8, .wanted = n_items};
    ebb__rng_init(&m.rng, seed, 17);
    for (size_t k = 0; m.items != NULL && k < N_KINDS; k++) {
        if (strcmp(kinds[k].name, kind) != 0) { continue; }
        kinds[k].make(&m);
        *items_out = m.items;
        *n_items_out = m.n;
        return true;
    }
    free(m.items);
    return false;
}
