/* SPDX-License-Identifier: Apache-2.0
 *
 * Arenas and host pieces: aligned, zero, writable to the last byte, closed after it; and what of an arena was touched.
 */
#include "backend/host_memory.h"

#include <setjmp.h>
#include <stdarg.h>
#include <cmocka.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

static ebb_device device;

static unsigned char *base_of(ebb_arena_mem *arena) {
    return ebb__host_address((ebb_buf){.arena = arena});
}

static void arena_is_aligned_zero_and_writable(void **state) {
    (void)state;
    static const uint64_t sizes[] = {0, 1, 4095, 4096, 5000000, (uint64_t)8 << 20};
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        ebb_arena_mem *arena = NULL;
        assert_int_equal(ebb__host_arena_create(&device, sizes[i], &arena), EBB_OK);
        unsigned char *base = base_of(arena);
        assert_int_equal((uintptr_t)base % EBB_HOST_ALIGNMENT, 0);
        for (uint64_t k = 0; k < sizes[i]; k++) { assert_int_equal(base[k], 0); }
        memset(base, 7, sizes[i]);
        ebb__host_arena_destroy(&device, arena);
    }
}

/* How a process ends that writes there and gives the arena back. */
static int exit_of_write(ebb_arena_mem *arena, int64_t offset) {
    pid_t child = fork();
    if (child == 0) {
        signal(SIGSEGV, SIG_DFL); /* cmocka's handlers would report a failed test */
        signal(SIGILL, SIG_DFL);
        volatile unsigned char *base = base_of(arena);
        base[offset] = 1;
        ebb__host_arena_destroy(&device, arena);
        _exit(0);
    }
    int status = 0;
    assert_int_equal(waitpid(child, &status, 0), child);
    return status;
}

/* The page without access follows at the next multiple of the alignment; the bytes up to it are looked at in the end.
 */
static void writing_after_an_arena_stops(void **state) {
    (void)state;
    static const uint64_t sizes[] = {1, 63, 64, 4095, 4096, 4097, 3 * 4096, 5000000, (uint64_t)8 << 20};
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        ebb_arena_mem *arena = NULL;
        const uint64_t end = ebb_align_up(sizes[i], EBB_HOST_ALIGNMENT);
        assert_int_equal(ebb__host_arena_create(&device, sizes[i], &arena), EBB_OK);
        assert_int_equal(exit_of_write(arena, (int64_t)sizes[i] - 1), 0);
        assert_int_not_equal(exit_of_write(arena, (int64_t)end), 0);
        if (end > sizes[i] && EBB_DEBUG >= 1) { assert_int_not_equal(exit_of_write(arena, (int64_t)sizes[i]), 0); }
        if (EBB_DEBUG >= 1 && end % 4096 != 0) { assert_int_not_equal(exit_of_write(arena, -1), 0); }
        ebb__host_arena_destroy(&device, arena);
    }
}

static uint64_t peak_of(const ebb_arena_mem *arena) {
    return ebb__host_arena_measure(&device, arena).peak_bytes;
}

/* To a page after the last multiple of 2 MiB, where there are no large ones; reading is touching. */
static void touched_pages_are_measured(void **state) {
    (void)state;
    static const uint64_t sizes[] = {1, 5000, (uint64_t)1 << 20, 5000000, (uint64_t)8 << 20};
    const uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE), large = (uint64_t)2 << 20;
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        ebb_arena_mem *arena = NULL;
        assert_int_equal(ebb__host_arena_create(&device, sizes[i], &arena), EBB_OK);
        if (peak_of(arena) == UINT64_MAX) { skip(); } /* no page table to read */
        assert_int_equal(peak_of(arena), 0);
        assert_int_equal(ebb__host_arena_measure(&device, arena).resident_bytes, 0);
        volatile unsigned char *base = base_of(arena);
        base[0] = 1;
        assert_in_range(peak_of(arena), 1, ebb_min_u64(large, sizes[i]));
        const uint64_t n_small = (ebb_align_up(sizes[i], page) - 1) % large;
        for (uint64_t left = n_small; left > 4 * page; left /= 3) {
            const uint64_t at = sizes[i] - left;
            (void)base[at];
            assert_in_range(peak_of(arena), at + 1, at + page);
        }
        base[sizes[i] - 1] = 1;
        assert_int_equal(peak_of(arena), sizes[i]);
        assert_true(ebb__host_arena_measure(&device, arena).resident_bytes >= page);
        ebb__host_arena_destroy(&device, arena);
    }
}

static void too_large_is_a_status(void **state) {
    (void)state;
    ebb_arena_mem *arena = NULL;
    assert_int_equal(ebb__host_arena_create(&device, UINT64_MAX - 5, &arena), EBB_E_NO_MEMORY);
    assert_int_equal(ebb__host_arena_create(&device, (uint64_t)1 << 46, &arena), EBB_E_NO_MEMORY);
    assert_non_null(strstr(ebb_last_error(), "this machine's memory of ")); /* which memory, and how much of it */
    assert_non_null(strstr(ebb_last_error(), "has no room for an arena of 64.00 TiB; a smaller batch or budget needs"));
    assert_null(arena);
    void *ptr = NULL;
    assert_int_equal(ebb__host_alloc(&device, UINT64_MAX - 5, &ptr), EBB_E_NO_MEMORY);
    assert_null(ptr);
}

static void host_pieces_are_zero(void **state) {
    (void)state;
    unsigned char *ptr = NULL;
    const uint64_t size_bytes = 3000001;
    assert_int_equal(ebb__host_alloc(&device, size_bytes, (void **)&ptr), EBB_OK);
    for (uint64_t i = 0; i < size_bytes; i++) { assert_int_equal(ptr[i], 0); }
    memset(ptr, 1, size_bytes);
    ebb__host_free(&device, ptr, size_bytes);
    assert_int_equal(ebb__host_alloc(&device, 0, (void **)&ptr), EBB_OK);
    ebb__host_free(&device, ptr, 0);
}

static void host_is_described(void **state) {
    (void)state;
    ebb_device_info info;
    ebb__host_describe(&info);
    assert_true(info.n_threads >= 1);
    assert_true(info.capacity_bytes > 1u << 20);
    assert_int_not_equal(info.name[0], '\0');
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(arena_is_aligned_zero_and_writable),
        cmocka_unit_test(writing_after_an_arena_stops),
        cmocka_unit_test(touched_pages_are_measured),
        cmocka_unit_test(too_large_is_a_status),
        cmocka_unit_test(host_pieces_are_zero),
        cmocka_unit_test(host_is_described),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
