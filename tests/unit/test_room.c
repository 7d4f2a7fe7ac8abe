/* SPDX-License-Identifier: Apache-2.0
 *
 * Room at the front of a sweep: what is moved leaves a placement below the cap, whatever is asked for; nothing changes
 * where none is found; what is fixed stays, and what is older if it can; every allocation failed in turn.
 */
#include "place_fixture.h"

typedef struct room_fixture {
    place_fixture base;
    ebb_room *room;
    uint32_t by_birth[N_FIXTURE];
} room_fixture;

static void draw(room_fixture *f, uint64_t seed) {
    draw_line_fixture(&f->base, seed, 30);
    assert_int_equal(ebb__room_create(&f->base.compact.sections, &f->base.bump, &f->room), EBB_OK);
}

static void end(room_fixture *f) {
    ebb__room_fini(f->room);
    ebb__bump_fini(&f->base.bump);
}

static bool overlap(const ebb_sections *s, const uint64_t *offsets, uint32_t a, uint32_t b) {
    return ebb__place_share_time(s->range[a], s->range[b]) && offsets[a] < offsets[b] + s->rounded[b] &&
           offsets[b] < offsets[a] + s->rounded[a];
}

/* The first n items are a placement below the cap. */
static void expect_room(const room_fixture *f, uint32_t n, uint64_t cap_bytes, uint64_t seed) {
    const ebb_sections *s = &f->base.compact.sections;
    for (uint32_t i = 0; i < n; i++) {
        if (f->base.offsets[i] + s->rounded[i] > cap_bytes) { fail_msg("seed %d: too high", (int)seed); }
        for (uint32_t k = 0; k < i; k++) {
            if (overlap(s, f->base.offsets, i, k)) { fail_msg("seed %d: %u and %u overlap", (int)seed, i, k); }
        }
    }
}

/* How often there was no room, of all items in turn; the cap is raised then. */
static unsigned ask_for_all(room_fixture *f, uint64_t seed) {
    const ebb_sections *s = &f->base.compact.sections;
    unsigned n_failed = 0;
    ebb_place_cap cap = {.bytes = s->bound_bytes, .step_bytes = 1, .patience = 1 + (unsigned)seed % 50};
    for (uint32_t i = 0; i < s->n_items; i++) {
        for (;;) {
            ebb_room_moved moved;
            uint64_t work = 0, before[N_FIXTURE];
            f->base.offsets[i] = EBB_PLACE_NOWHERE;
            memcpy(before, f->base.offsets, sizeof before);
            assert_int_equal(ebb__room_make(f->room, i, cap, f->base.offsets, &moved, &work), EBB_OK);
            assert_true(work > 0);
            if (moved.n > 0) { break; }
            assert_memory_equal(before, f->base.offsets, i * sizeof *before);
            cap.bytes += 1 + s->bound_bytes / 16;
            n_failed++;
        }
        expect_room(f, i + 1, cap.bytes, seed);
    }
    return n_failed;
}

static void test_all_in_turn(void **state) {
    (void)state;
    unsigned n_failed = 0;
    for (uint64_t seed = 0; seed < 300; seed++) {
        room_fixture f;
        draw(&f, seed);
        n_failed += ask_for_all(&f, seed);
        end(&f);
    }
    assert_true(n_failed > 0 && n_failed < 300 * 16);
}

/* Two gaps of one byte: an item of two finds room when the small one between them moves, unless that is fixed. */
static void test_one_in_the_way(void **state) {
    (void)state;
    for (uint32_t is_fixed = 0; is_fixed < 2; is_fixed++) {
        const uint32_t small = 2 + is_fixed, asked = 3 - is_fixed;
        ebb_place_range range[4] = {{0, 9}, {1, 9}, {2, 9}, {3, 9}};
        uint64_t bytes[4] = {4, 4}, offsets[4] = {0, 7}, work = 0;
        bytes[small] = 1;
        bytes[asked] = 2;
        offsets[small] = 5;
        offsets[asked] = EBB_PLACE_NOWHERE;
        const ebb_sections s = {.n_items = 4, .n = 9, .range = range, .rounded = bytes, .bound_bytes = 11};
        const ebb_place_cap cap = {.bytes = 11, .step_bytes = 1, .patience = 10};
        ebb_bump bump;
        ebb_room *room = NULL;
        ebb_room_moved moved;
        ebb__bump_init(&bump, NULL);
        assert_int_equal(ebb__room_create(&s, &bump, &room), EBB_OK);
        if (is_fixed != 0) { assert_int_equal(ebb__room_add_fixed(room, small, offsets[small]), EBB_OK); }
        assert_int_equal(ebb__room_make(room, asked, cap, offsets, &moved, &work), EBB_OK);
        assert_int_equal(moved.n, is_fixed != 0 ? 0 : 2);
        assert_true((offsets[small] == 5) == (is_fixed != 0));
        ebb__room_fini(room);
        ebb__bump_fini(&bump);
    }
}

/* Behind either of two there is a byte free, and a third gap holds any of both: the one that was born last moves there,
 * so that one larger by a byte has its place. */
static void test_the_younger_moves(void **state) {
    (void)state;
    for (uint32_t is_swapped = 0; is_swapped < 2; is_swapped++) {
        ebb_place_range range[5] = {{1, 9}, {7, 9}, {8, 9}, {9, 9}, {9, 9}};
        uint64_t bytes[5] = {3, 3, 4, 1, 1}, work = 0; /* .###|.###|... */
        uint64_t offsets[5] = {is_swapped != 0 ? 6 : 1, is_swapped != 0 ? 1 : 6, EBB_PLACE_NOWHERE};
        const uint64_t of_older = offsets[0], of_younger = offsets[1];
        const ebb_sections s = {.n_items = 5, .n = 9, .range = range, .rounded = bytes, .bound_bytes = 13};
        const ebb_place_cap cap = {.bytes = 13, .step_bytes = 1, .patience = 10};
        ebb_bump bump;
        ebb_room *room = NULL;
        ebb_room_moved moved;
        ebb__bump_init(&bump, NULL);
        assert_int_equal(ebb__room_create(&s, &bump, &room), EBB_OK);
        assert_int_equal(ebb__room_add_fixed(room, 3, 4), EBB_OK);
        assert_int_equal(ebb__room_add_fixed(room, 4, 9), EBB_OK);
        assert_int_equal(ebb__room_make(room, 2, cap, offsets, &moved, &work), EBB_OK);
        assert_int_equal(moved.n, 2);
        assert_int_equal(offsets[0], of_older);
        assert_int_equal(offsets[1], 10);
        assert_true(offsets[2] == of_younger || offsets[2] + 1 == of_younger);
        ebb__room_fini(room);
        ebb__bump_fini(&bump);
    }
}

/* As a sweep asks: whatever fails, what it had is given back, and the offsets of others stay. */
static ebb_status make_all(const place_fixture *f, const ebb_mem *mem, uint64_t *offsets) {
    ebb_sections s = f->compact.sections;
    ebb_bump bump;
    ebb_room *room = NULL;
    s.mem = mem;
    ebb__bump_init(&bump, mem);
    ebb_status st = ebb__room_create(&s, &bump, &room);
    ebb_place_cap cap = {.bytes = s.bound_bytes, .step_bytes = 1, .patience = 20};
    for (uint32_t i = 0; st == EBB_OK && i < s.n_items;) {
        ebb_room_moved moved = {0};
        uint64_t work = 0, before[N_FIXTURE];
        memcpy(before, offsets, sizeof before);
        st = ebb__room_make(room, i, cap, offsets, &moved, &work);
        if (moved.n == 0) { assert_memory_equal(before, offsets, sizeof before); }
        i += moved.n > 0;
        cap.bytes += moved.n > 0 ? 0 : 1 + s.bound_bytes / 16;
    }
    ebb__room_fini(room);
    ebb__bump_fini(&bump);
    return st;
}

static void test_memory_runs_out(void **state) {
    (void)state;
    place_fixture f;
    draw_line_fixture(&f, 3, 30);
    ebb_status st = EBB_E_NO_MEMORY;
    size_t at = 1;
    for (; st != EBB_OK; at++) {
        failing_mem mem;
        for (size_t i = 0; i < N_FIXTURE; i++) { f.offsets[i] = EBB_PLACE_NOWHERE; }
        st = make_all(&f, &failing_mem_init(&mem, at)->hooks, f.offsets);
        assert_true(st == EBB_OK || st == EBB_E_NO_MEMORY);
        assert_int_equal(mem.n_live, 0);
    }
    assert_true(at > 8);
    ebb__bump_fini(&f.bump);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_all_in_turn),
        cmocka_unit_test(test_one_in_the_way),
        cmocka_unit_test(test_the_younger_moves),
        cmocka_unit_test(test_memory_runs_out),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
