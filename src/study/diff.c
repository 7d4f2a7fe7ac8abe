/* SPDX-License-Identifier: Apache-2.0
 *
 * What became of the peak. Roles and holders are put side by side by their labels. Blocks are matched in rounds, each
 * among those that the rounds before left over, and within a round in order of their allocation:
 *
 *  1. the same call stack, name and size: the same block;
 *  2. the same again, but for the lines of the stack's frames: the same block of an edited program;
 *  3. the same call stack but for lines, and name: it grew or shrank;
 *  4. the same name, if it has one: it grew or shrank, and is allocated elsewhere.
 *
 * The rest came or went. A match is a sort of both sides by a hash of what has to be the same.
 */
#include "ebb/diff.h"
#include "study/study_priv.h"

enum { ROUND_SAME, ROUND_EDITED, ROUND_RESIZED, ROUND_NAMED, N_ROUNDS };

typedef EBB_VEC(ebb_diff_row) rows;

/* A block at the peak of a side. */
typedef struct held {
    uint32_t block;
    uint64_t key[N_ROUNDS];
    bool is_matched;
} held;

typedef struct side {
    const ebb_study *study;
    uint64_t *stack_hash, *loose_hash; /* by stack; the second without lines */
    EBB_VEC(held) blocks;
} side;

typedef struct block_change {
    ebb_diff_blocks told; /* of one block */
    uint64_t key;         /* what is the same in changes that are alike */
} block_change;

struct ebb_diff {
    const ebb_mem *mem;
    ebb_bump bump;
    side a, b;
    rows roles, holders[EBB_STUDY_N_GROUPS];
    EBB_VEC(block_change) all;
    EBB_VEC(ebb_diff_blocks) changes;
};

static uint64_t hash_text(uint64_t h, const char *text) {
    return ebb__hash(h, text, strlen(text) + 1);
}

/* ---- rows -------------------------------------------------------------------------------------- */

static uint64_t distance(uint64_t a, uint64_t b) {
    return a > b ? a - b : b - a;
}

static uint64_t label_key(const void *item) {
    return hash_text(EBB_HASH_INIT, ((const ebb_diff_row *)item)->label);
}

static uint64_t falling_distance(const void *item) {
    const ebb_diff_row *row = item;
    return ~distance(row->a_bytes, row->b_bytes);
}

static ebb_status sort_rows(const ebb_mem *mem, rows *all) {
    return ebb__sort_items(mem, all->data, all->n, sizeof *all->data, falling_distance);
}

/* Rows of one label become one. */
static ebb_status merge_rows(const ebb_mem *mem, rows *all) {
    EBB_TRY(ebb__sort_items(mem, all->data, all->n, sizeof *all->data, label_key));
    size_t n = 0;
    for (size_t i = 0; i < all->n; i++) {
        const ebb_diff_row *next = &all->data[i];
        ebb_diff_row *last = n > 0 ? &all->data[n - 1] : NULL;
        if (last == NULL || strcmp(last->label, next->label) != 0) {
            all->data[n++] = *next;
            continue;
        }
        last->a_bytes += next->a_bytes;
        last->b_bytes += next->b_bytes;
        last->a_blocks += next->a_blocks;
        last->b_blocks += next->b_blocks;
    }
    all->n = n;
    return sort_rows(mem, all);
}

static ebb_status compare_roles(ebb_diff *d) {
    const ebb_study_breakdown a = ebb_study_get_breakdown(d->a.study), b = ebb_study_get_breakdown(d->b.study);
    for (int r = 0; r < EBB_N_ROLES; r++) {
        const ebb_study_share *in_a = &a.at_peak[r], *in_b = &b.at_peak[r];
        if (in_a->n_blocks + in_b->n_blocks == 0) { continue; }
        ebb_diff_row row = {ebb_role_name((ebb_role)r), in_a->bytes, in_b->bytes, in_a->n_blocks, in_b->n_blocks};
        EBB_TRY(EBB_PUSH(d->mem, &d->roles, row));
    }
    return sort_rows(d->mem, &d->roles);
}

static ebb_status compare_holders(ebb_diff *d, ebb_study_group group) {
    size_t n_a = 0, n_b = 0;
    const ebb_study_holder *a = ebb_study_holders(d->a.study, group, &n_a);
    const ebb_study_holder *b = ebb_study_holders(d->b.study, group, &n_b);
    rows *all = &d->holders[group];
    for (size_t i = 0; i < n_a; i++) {
        ebb_diff_row row = {.label = a[i].label, .a_bytes = a[i].bytes, .a_blocks = a[i].n_blocks};
        EBB_TRY(EBB_PUSH(d->mem, all, row));
    }
    for (size_t i = 0; i < n_b; i++) {
        ebb_diff_row row = {.label = b[i].label, .b_bytes = b[i].bytes, .b_blocks = b[i].n_blocks};
        EBB_TRY(EBB_PUSH(d->mem, all, row));
    }
    return merge_rows(d->mem, all);
}

/* ---- blocks ------------------------------------------------------------------------------------ */

/* A stack's caller has a lower number, so one pass hashes all. */
static ebb_status hash_stacks(ebb_diff *d, side *s) {
    const size_t n = (size_t)s->study->max_stack + 1;
    s->stack_hash = ebb__alloc(d->mem, n, sizeof *s->stack_hash);
    s->loose_hash = ebb__alloc(d->mem, n, sizeof *s->loose_hash);
    if (s->stack_hash == NULL || s->loose_hash == NULL) { return EBB_E_NO_MEMORY; }
    s->stack_hash[0] = s->loose_hash[0] = EBB_HASH_INIT;
    for (size_t stack = 1; stack < n; stack++) {
        const ebb_trace_frame frame = ebb_trace_reader_frame(s->study->reader, (uint32_t)stack);
        const char *function = ebb_trace_reader_string(s->study->reader, frame.function);
        const char *file = ebb_trace_reader_string(s->study->reader, frame.file);
        EBB_ASSERT(frame.caller < stack);
        const uint64_t exact = hash_text(hash_text(s->stack_hash[frame.caller], function), file);
        s->stack_hash[stack] = ebb__hash(exact, &frame.line, sizeof frame.line);
        s->loose_hash[stack] = hash_text(hash_text(s->loose_hash[frame.caller], function), file);
    }
    return EBB_OK;
}

static const char *name_of(const side *s, uint32_t block) {
    return ebb_trace_reader_string(s->study->reader, s->study->blocks.data[block].name);
}

static ebb_status collect(ebb_diff *d, side *s) {
    for (size_t b = 0; b < s->study->blocks.n; b++) {
        const study_block *block = &s->study->blocks.data[b];
        if (!block->live_at_peak) { continue; }
        const char *name = name_of(s, (uint32_t)b);
        const uint64_t size = block->size_bytes;
        held next = {.block = (uint32_t)b};
        next.key[ROUND_SAME] = ebb__hash(hash_text(s->stack_hash[block->stack], name), &size, sizeof size);
        next.key[ROUND_RESIZED] = hash_text(s->loose_hash[block->stack], name);
        next.key[ROUND_EDITED] = ebb__hash(next.key[ROUND_RESIZED], &size, sizeof size);
        next.key[ROUND_NAMED] = hash_text(EBB_HASH_INIT, name);
        EBB_TRY(EBB_PUSH(d->mem, &s->blocks, next));
    }
    return s->blocks.n < INT32_MAX ? EBB_OK : ebb_fail(EBB_E_LIMIT, "more than 2^31 - 1 blocks at the peak");
}

/* in_a or in_b may be NULL. Blocks without a change are left out. */
static ebb_status add_change(ebb_diff *d, const held *in_a, const held *in_b) {
    const side *s = in_b != NULL ? &d->b : &d->a;
    const held *one = in_b != NULL ? in_b : in_a;
    const study_block *block = &s->study->blocks.data[one->block];
    block_change next = {.told = {.name = name_of(s, one->block), .role = (ebb_role)block->role, .n_blocks = 1}};
    if (in_a != NULL) { next.told.a_bytes = d->a.study->blocks.data[in_a->block].size_bytes; }
    if (in_b != NULL) { next.told.b_bytes = d->b.study->blocks.data[in_b->block].size_bytes; }
    if (in_a != NULL && in_b != NULL && next.told.a_bytes == next.told.b_bytes) { return EBB_OK; }
    next.told.change = in_a == NULL                            ? EBB_DIFF_CAME
                       : in_b == NULL                          ? EBB_DIFF_WENT
                       : next.told.b_bytes > next.told.a_bytes ? EBB_DIFF_GREW
                                                               : EBB_DIFF_SHRANK;
    const uint64_t alike[] = {one->key[ROUND_SAME], (uint64_t)next.told.change, next.told.a_bytes, next.told.b_bytes,
                              block->role};
    next.key = ebb__hash(EBB_HASH_INIT, alike, sizeof alike);
    next.told.site = ebb__study_site_label(s->study, block->stack, &d->bump);
    return next.told.site != NULL ? EBB_PUSH(d->mem, &d->all, next) : EBB_E_NO_MEMORY;
}

/* Those of a side that are left over, by their keys of this round. */
typedef struct line {
    uint32_t *order;
    uint64_t *key; /* in that order */
    size_t n;
} line;

static void line_fini(const ebb_mem *mem, line *l) {
    ebb__free(mem, l->order);
    ebb__free(mem, l->key);
}

static ebb_status line_up(const ebb_mem *mem, const side *s, int round, line *l) {
    l->order = ebb__alloc(mem, s->blocks.n, sizeof *l->order);
    l->key = ebb__alloc(mem, s->blocks.n, sizeof *l->key);
    uint64_t *key = ebb__alloc(mem, s->blocks.n, sizeof *key);
    ebb_status st = l->order != NULL && l->key != NULL && key != NULL ? EBB_OK : EBB_E_NO_MEMORY;
    for (size_t i = 0; st == EBB_OK && i < s->blocks.n; i++) {
        const held *next = &s->blocks.data[i];
        const bool counts = !next->is_matched && (round != ROUND_NAMED || name_of(s, next->block)[0] != '\0');
        key[i] = next->key[round];
        if (counts) { l->order[l->n++] = (uint32_t)i; }
    }
    if (st == EBB_OK) { st = ebb__sort_by_key(mem, l->order, l->n, key); }
    for (size_t i = 0; st == EBB_OK && i < l->n; i++) { l->key[i] = key[l->order[i]]; }
    ebb__free(mem, key);
    return st;
}

static ebb_status match_lines(ebb_diff *d, const line *a, const line *b) {
    for (size_t i = 0, k = 0; i < a->n && k < b->n;) {
        if (a->key[i] != b->key[k]) {
            if (a->key[i] < b->key[k]) {
                i++;
            } else {
                k++;
            }
            continue;
        }
        held *in_a = &d->a.blocks.data[a->order[i++]], *in_b = &d->b.blocks.data[b->order[k++]];
        in_a->is_matched = in_b->is_matched = true;
        EBB_TRY(add_change(d, in_a, in_b));
    }
    return EBB_OK;
}

static ebb_status match_round(ebb_diff *d, int round) {
    line a = {0}, b = {0};
    ebb_status st = line_up(d->mem, &d->a, round, &a);
    if (st == EBB_OK) { st = line_up(d->mem, &d->b, round, &b); }
    if (st == EBB_OK) { st = match_lines(d, &a, &b); }
    line_fini(d->mem, &a);
    line_fini(d->mem, &b);
    return st;
}

/* ---- changes ----------------------------------------------------------------------------------- */

static uint64_t alike_key(const void *item) {
    return ((const block_change *)item)->key;
}

static uint64_t falling_change(const void *item) {
    const ebb_diff_blocks *blocks = item;
    return ~(distance(blocks->a_bytes, blocks->b_bytes) * blocks->n_blocks);
}

/* Changes that are alike become one. */
static ebb_status sum_up(ebb_diff *d) {
    EBB_TRY(ebb__sort_items(d->mem, d->all.data, d->all.n, sizeof *d->all.data, alike_key));
    for (size_t i = 0; i < d->all.n; i++) {
        const block_change *next = &d->all.data[i];
        if (i > 0 && d->all.data[i - 1].key == next->key) {
            d->changes.data[d->changes.n - 1].n_blocks++;
        } else {
            EBB_TRY(EBB_PUSH(d->mem, &d->changes, next->told));
        }
    }
    return ebb__sort_items(d->mem, d->changes.data, d->changes.n, sizeof *d->changes.data, falling_change);
}

static ebb_status compare_blocks(ebb_diff *d) {
    EBB_TRY(hash_stacks(d, &d->a));
    EBB_TRY(hash_stacks(d, &d->b));
    EBB_TRY(collect(d, &d->a));
    EBB_TRY(collect(d, &d->b));
    for (int round = 0; round < N_ROUNDS; round++) { EBB_TRY(match_round(d, round)); }
    for (size_t i = 0; i < d->a.blocks.n; i++) {
        if (!d->a.blocks.data[i].is_matched) { EBB_TRY(add_change(d, &d->a.blocks.data[i], NULL)); }
    }
    for (size_t i = 0; i < d->b.blocks.n; i++) {
        if (!d->b.blocks.data[i].is_matched) { EBB_TRY(add_change(d, NULL, &d->b.blocks.data[i])); }
    }
    return sum_up(d);
}

/* ---- the diff ---------------------------------------------------------------------------------- */

static ebb_status compare(ebb_diff *d) {
    EBB_TRY(compare_roles(d));
    for (int group = 0; group < EBB_STUDY_N_GROUPS; group++) { EBB_TRY(compare_holders(d, (ebb_study_group)group)); }
    return compare_blocks(d);
}

ebb_status ebb_diff_create(const ebb_mem *mem, const ebb_study *a, const ebb_study *b, ebb_diff **diff_out) {
    EBB_NEED(a);
    EBB_NEED(b);
    EBB_NEED(diff_out);
    mem = ebb__mem_or_default(mem);
    ebb_diff *d = ebb__calloc(mem, 1, sizeof *d);
    if (d == NULL) { return EBB_E_NO_MEMORY; }
    d->mem = mem;
    ebb__bump_init(&d->bump, mem);
    d->a.study = a;
    d->b.study = b;
    const ebb_status st = compare(d);
    if (st != EBB_OK) {
        ebb_diff_destroy(d);
        return st;
    }
    *diff_out = d;
    return EBB_OK;
}

static void side_fini(const ebb_mem *mem, side *s) {
    ebb__free(mem, s->stack_hash);
    ebb__free(mem, s->loose_hash);
    EBB_VEC_FINI(mem, &s->blocks);
}

void ebb_diff_destroy(ebb_diff *diff) {
    if (diff == NULL) { return; }
    side_fini(diff->mem, &diff->a);
    side_fini(diff->mem, &diff->b);
    EBB_VEC_FINI(diff->mem, &diff->roles);
    for (int group = 0; group < EBB_STUDY_N_GROUPS; group++) { EBB_VEC_FINI(diff->mem, &diff->holders[group]); }
    EBB_VEC_FINI(diff->mem, &diff->all);
    EBB_VEC_FINI(diff->mem, &diff->changes);
    ebb__bump_fini(&diff->bump);
    ebb__free(diff->mem, diff);
}

const ebb_diff_row *ebb_diff_roles(const ebb_diff *diff, size_t *n_out) {
    *n_out = diff->roles.n;
    return diff->roles.data;
}

const ebb_diff_row *ebb_diff_holders(const ebb_diff *diff, ebb_study_group group, size_t *n_out) {
    const bool is_known = group < EBB_STUDY_N_GROUPS;
    *n_out = is_known ? diff->holders[group].n : 0;
    return is_known ? diff->holders[group].data : NULL;
}

const ebb_diff_blocks *ebb_diff_changes(const ebb_diff *diff, size_t *n_out) {
    *n_out = diff->changes.n;
    return diff->changes.data;
}

const char *ebb_diff_change_name(ebb_diff_change change) {
    static const char *const names[] = {"grew", "shrank", "came", "went"};
    return (size_t)change < sizeof names / sizeof *names ? names[change] : "?";
}
