/* SPDX-License-Identifier: Apache-2.0
 *
 * Segments against an allocator as it is written down: an array of blocks by address, gone through from its beginning.
 * The same blocks for the same requests, whatever the fit, the pool and the rule of splitting.
 */
#include "place/segments.h"
#include "support.h"

#define MAX_BLOCKS 2000u
#define N_LIVE 60u

typedef struct plain_block {
    uint64_t start, size_bytes;
    uint32_t pool;
    bool is_free, is_head; /* of its segment */
} plain_block;

typedef struct plain_heap {
    plain_block blocks[MAX_BLOCKS];
    size_t n;
    uint64_t total_bytes;
} plain_heap;

static void insert_at(plain_heap *h, size_t at, plain_block block) {
    assert_true(h->n < MAX_BLOCKS);
    memmove(&h->blocks[at + 1], &h->blocks[at], (h->n - at) * sizeof block);
    h->blocks[at] = block;
    h->n++;
}

static void remove_at(plain_heap *h, size_t at) {
    h->n--;
    memmove(&h->blocks[at], &h->blocks[at + 1], (h->n - at) * sizeof h->blocks[0]);
}

static uint64_t take(plain_heap *h, const ebb_segment_request *r, ebb_place_fit fit) {
    size_t found = h->n;
    for (size_t i = 0; i < h->n; i++) {
        const plain_block *b = &h->blocks[i];
        if (!b->is_free || b->pool != r->pool || b->size_bytes < r->size_bytes) { continue; }
        if (found == h->n || (fit == EBB_PLACE_TIGHTEST && b->size_bytes < h->blocks[found].size_bytes)) { found = i; }
    }
    if (found == h->n) {
        insert_at(h, h->n, (plain_block){h->total_bytes, r->segment_bytes, r->pool, true, true});
        h->total_bytes += r->segment_bytes;
    }
    const plain_block b = h->blocks[found];
    h->blocks[found].is_free = false;
    const uint64_t rest_bytes = b.size_bytes - r->size_bytes;
    if (rest_bytes >= r->min_rest_bytes) {
        h->blocks[found].size_bytes = r->size_bytes;
        insert_at(h, found + 1, (plain_block){b.start + r->size_bytes, rest_bytes, b.pool, true, false});
    }
    return b.start;
}

static void give(plain_heap *h, uint64_t start) {
    size_t i = 0;
    while (h->blocks[i].start != start) { i++; }
    h->blocks[i].is_free = true;
    if (i + 1 < h->n && h->blocks[i + 1].is_free && !h->blocks[i + 1].is_head) {
        h->blocks[i].size_bytes += h->blocks[i + 1].size_bytes;
        remove_at(h, i + 1);
    }
    if (i > 0 && h->blocks[i - 1].is_free && !h->blocks[i].is_head) {
        h->blocks[i - 1].size_bytes += h->blocks[i].size_bytes;
        remove_at(h, i);
    }
}

static ebb_segment_request draw_request(ebb_rng *rng) {
    ebb_segment_request r = {.size_bytes = 1 + ebb__rng_below(rng, 40), .pool = (uint32_t)ebb__rng_below(rng, 2)};
    r.segment_bytes = r.size_bytes + (ebb__rng_below(rng, 2) == 0 ? 0 : ebb__rng_below(rng, 100));
    r.min_rest_bytes = r.pool == 0 ? 1 : 1 + ebb__rng_below(rng, 20);
    return r;
}

/* As an allocator is used: mostly full, then mostly empty. */
static void run(uint64_t seed, ebb_place_fit fit) {
    static plain_heap heap;
    ebb_segments s;
    ebb_rng rng;
    uint32_t live[N_LIVE], n_live = 0;
    ebb__rng_init(&rng, seed, 21);
    heap.n = 0;
    heap.total_bytes = 0;
    assert_int_equal(ebb__segments_init(&s, NULL, fit), EBB_OK);
    for (unsigned k = 0; k < 600; k++) {
        const bool grows = ebb__rng_below(&rng, 10) < (k / 100 % 2 == 0 ? 7u : 3u);
        if (n_live == 0 || (grows && n_live < N_LIVE)) {
            const ebb_segment_request r = draw_request(&rng);
            assert_int_equal(ebb__segments_take(&s, &r, &live[n_live]), EBB_OK);
            const uint64_t start = s.blocks.data[live[n_live++]].start, expected = take(&heap, &r, fit);
            if (start != expected || s.total_bytes != heap.total_bytes) {
                fail_msg("seed %llu: request %u at %llu, not %llu", (unsigned long long)seed, k,
                         (unsigned long long)start, (unsigned long long)expected);
            }
        } else {
            const uint32_t i = (uint32_t)ebb__rng_below(&rng, n_live);
            give(&heap, s.blocks.data[live[i]].start);
            ebb__segments_give(&s, live[i]);
            live[i] = live[--n_live];
        }
    }
    ebb__segments_fini(&s);
}

static void test_as_written_down(void **state) {
    (void)state;
    for (uint64_t seed = 0; seed < 100; seed++) {
        run(seed, EBB_PLACE_LOWEST);
        run(seed, EBB_PLACE_TIGHTEST);
    }
}

static ebb_status take_some(const ebb_mem *mem) {
    ebb_segments s;
    uint32_t block = 0;
    ebb_status st = ebb__segments_init(&s, mem, EBB_PLACE_TIGHTEST);
    for (unsigned k = 0; k < 40 && st == EBB_OK; k++) {
        const ebb_segment_request r = {.size_bytes = 10 + k, .segment_bytes = 100, .min_rest_bytes = 1};
        st = ebb__segments_take(&s, &r, &block);
    }
    ebb__segments_fini(&s);
    return st;
}

static void test_out_of_memory(void **state) {
    (void)state;
    OOM_LOOP(mem, st, { st = take_some(mem); });
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_as_written_down),
        cmocka_unit_test(test_out_of_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
