/* SPDX-License-Identifier: Apache-2.0
 *
 * Arenas and host pieces: aligned, zero, writable to the last byte, closed behind it.
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
        assert_int_equal((uintptr_t)base % ((uintptr_t)2 << 20), 0);
        for (uint64_t k = 0; k < sizes[i]; k++) { assert_int_equal(base[k], 0); }
        memset(base, 7, sizes[i]);
        ebb__host_arena_destroy(&device, arena);
    }
}

static int exit_of_write_behind(ebb_arena_mem *arena, uint64_t open_bytes) {
    pid_t child = fork();
    if (child == 0) {
        signal(SIGSEGV, SIG_DFL); /* cmocka's handler would report a failed test */
        volatile unsigned char *base = base_of(arena);
        base[open_bytes] = 1;
        _exit(0);
    }
    int status = 0;
    assert_int_equal(waitpid(child, &status, 0), child);
    return status;
}

static void writing_behind_an_arena_stops(void **state) {
    (void)state;
    ebb_arena_mem *arena = NULL;
    assert_int_equal(ebb__host_arena_create(&device, 3 * 4096, &arena), EBB_OK);
    assert_int_not_equal(exit_of_write_behind(arena, (uint64_t)3 * (uint64_t)sysconf(_SC_PAGESIZE)), 0);
    ebb__host_arena_destroy(&device, arena);
}

static void too_large_is_a_status(void **state) {
    (void)state;
    ebb_arena_mem *arena = NULL;
    assert_int_equal(ebb__host_arena_create(&device, UINT64_MAX - 5, &arena), EBB_E_NO_MEMORY);
    assert_int_equal(ebb__host_arena_create(&device, (uint64_t)1 << 46, &arena), EBB_E_NO_MEMORY);
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
        cmocka_unit_test(writing_behind_an_arena_stops),
        cmocka_unit_test(too_large_is_a_status),
        cmocka_unit_test(host_pieces_are_zero),
        cmocka_unit_test(host_is_described),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
