/* SPDX-License-Identifier: Apache-2.0
 *
 * What tests of orders share: programs with branches, and the least load of any order.
 */
#ifndef EBB_TESTS_ORDER_SUPPORT_H
#define EBB_TESTS_ORDER_SUPPORT_H

#include "plan_support.h"

/* Branches begin anywhere and are joined later or never. trains: after them comes a backward in the opposite order,
 * with gradients that are added up, and updates. */
static inline ebb_program *random_branches(ebb_rng *rng, uint32_t max_nodes, bool trains) {
    enum { MAX_NODES = 512, MAX_INPUTS = 3 };
    ebb_program *p = NULL;
    assert_int_equal(ebb_program_create(NULL, "branches", ebb__rng_below(rng, 2) ? 64 : 1, &p), EBB_OK);
    const uint32_t n = 2 + (uint32_t)ebb__rng_below(rng, max_nodes - 1), reach = 1 + (uint32_t)ebb__rng_below(rng, n);
    uint32_t act[MAX_NODES], weight[MAX_NODES], diff[MAX_NODES], input[MAX_NODES][MAX_INPUTS], n_inputs[MAX_NODES];
    bool has_diff[MAX_NODES] = {false};
    assert_true(max_nodes < MAX_NODES);
    for (uint32_t i = 0; i < n; i++) {
        ebb_access accesses[MAX_INPUTS + 3];
        uint32_t n_accesses = 0;
        act[i] = make_tensor(p, random_size(rng), false, i > 0 && ebb__rng_below(rng, 20) == 0);
        weight[i] = trains ? make_tensor(p, random_size(rng), true, false) : 0;
        n_inputs[i] = i > 0 ? 1 + (uint32_t)ebb__rng_below(rng, MAX_INPUTS) : 0;
        if (i > 0 && ebb__rng_below(rng, 6) == 0) { n_inputs[i] = 0; }
        for (uint32_t k = 0; k < n_inputs[i]; k++) {
            input[i][k] = i - 1 - (uint32_t)ebb__rng_below(rng, ebb_min_u64(i, reach));
            accesses[n_accesses++] = (ebb_access){act[input[i][k]], EBB_READ};
        }
        if (trains) { accesses[n_accesses++] = (ebb_access){weight[i], EBB_READ}; }
        accesses[n_accesses++] = (ebb_access){act[i], EBB_WRITE};
        const double flops = random_flops(rng);
        make_step(p, accesses, n_accesses, ebb__rng_below(rng, 3) ? 0 : random_size(rng), flops);
        if (n > 6 && ebb__rng_below(rng, 8) == 0) { STEP(p, 0, 1e5, {act[i], EBB_UPDATE}); }
    }
    for (uint32_t i = n; trains && i-- > 0;) {
        const uint32_t dw = make_tensor(p, p->tensors.data[weight[i]].size_bytes, false, false);
        if (!has_diff[i]) { /* nothing reads it: it is an output */
            diff[i] = make_tensor(p, p->tensors.data[act[i]].size_bytes, false, false);
            STEP(p, 0, 1e5, {act[i], EBB_READ}, {diff[i], EBB_WRITE});
        }
        for (uint32_t k = 0; k < n_inputs[i]; k++) {
            const uint32_t to = input[i][k];
            const uint32_t part = make_tensor(p, p->tensors.data[act[to]].size_bytes, false, false);
            STEP(p, ebb__rng_below(rng, 3) ? 0 : random_size(rng), 1e6, {diff[i], EBB_READ}, {weight[i], EBB_READ},
                 {part, EBB_WRITE});
            if (has_diff[to]) { STEP(p, 0, 1e5, {part, EBB_READ}, {diff[to], EBB_UPDATE}); }
            if (!has_diff[to]) { diff[to] = part; }
            has_diff[to] = true;
        }
        ebb_access accesses[MAX_INPUTS + 2] = {{diff[i], EBB_READ}, {dw, EBB_WRITE}};
        for (uint32_t k = 0; k < n_inputs[i]; k++) { accesses[2 + k] = (ebb_access){act[input[i][k]], EBB_READ}; }
        make_step(p, accesses, 2 + n_inputs[i], 0, 1e6);
        STEP(p, 0, 1e5, {dw, EBB_READ}, {weight[i], EBB_UPDATE});
    }
    assert_int_equal(ebb_program_finish(p), EBB_OK);
    return p;
}

/* ---- the least load of any order ------------------------------------------------------------------ */

#define MAX_EXACT_STEPS 18u

static inline uint64_t rounded(const ebb_program *p, uint64_t bytes) {
    return ebb_align_up(bytes, p->alignment_bytes);
}

static inline uint32_t mode_of(const ebb_program *p, size_t step, uint32_t t) {
    for (uint32_t i = 0; i < p->steps.data[step].n_accesses; i++) {
        const ebb_access *access = &p->accesses.data[p->steps.data[step].first_access + i];
        if (access->tensor == t) { return access->mode; }
    }
    return 0;
}

/* Bytes of tensors at a step, where these have run before it: by its accesses alone, tensor by tensor. A tensor is
 * there if a step that accesses it has run or runs now, and one that accesses it has not run before. */
static inline uint64_t load_of(const ebb_program *p, const uint32_t *accesses_of, uint32_t done, uint32_t step) {
    uint64_t bytes = rounded(p, p->choices.data[p->steps.data[step].first_choice].scratch_bytes);
    for (uint32_t t = 0; t < p->tensors.n; t++) {
        const ebb_tensor *tensor = &p->tensors.data[t];
        const bool has_begun = (accesses_of[t] & (done | 1u << step)) != 0, goes_on = (accesses_of[t] & ~done) != 0;
        const bool is_there = tensor->persistent || (has_begun && (goes_on || tensor->kept));
        if (is_there) { bytes += rounded(p, tensor->size_bytes); }
    }
    return bytes;
}

/* By all sets of steps that may have run: of each, the least peak on a way there. */
static inline uint64_t least_load(const ebb_program *p) {
    const uint32_t n = (uint32_t)p->steps.n;
    uint32_t before[MAX_EXACT_STEPS] = {0};
    assert_true(n <= MAX_EXACT_STEPS);
    uint32_t *accesses_of = calloc(p->tensors.n, sizeof *accesses_of);
    for (uint32_t t = 0; t < p->tensors.n; t++) {
        for (uint32_t s = 0; s < n; s++) {
            const uint32_t mode = mode_of(p, s, t);
            if (mode == 0) { continue; }
            for (uint32_t b = 0; b < s; b++) {
                if ((mode_of(p, b, t) | mode) > EBB_READ && mode_of(p, b, t) != 0) { before[s] |= 1u << b; }
            }
            accesses_of[t] |= 1u << s;
        }
    }
    uint64_t *least = malloc(sizeof *least << n);
    for (size_t set = 0; set < (size_t)1 << n; set++) { least[set] = UINT64_MAX; }
    least[0] = 0;
    for (uint32_t set = 0; set < (1u << n) - 1; set++) {
        if (least[set] == UINT64_MAX) { continue; }
        for (uint32_t s = 0; s < n; s++) {
            if ((set >> s & 1) != 0 || (before[s] & ~set) != 0) { continue; }
            const uint64_t peak = ebb_max_u64(least[set], load_of(p, accesses_of, set, s));
            uint64_t *to = &least[set | 1u << s];
            *to = ebb_min_u64(*to, peak);
        }
    }
    const uint64_t result = least[(1u << n) - 1];
    free(least);
    free(accesses_of);
    return result;
}

#endif
