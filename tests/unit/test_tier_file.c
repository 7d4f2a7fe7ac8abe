/* SPDX-License-Identifier: Apache-2.0
 *
 * Files as tiers: each way moves the bytes it is asked for and no others, side by side too, and an error of the kernel
 * is an error of the iteration that names tensor and tier. Errors come from the kernel: /dev/full for a full disk,
 * /proc/self/mem at an address that nothing is mapped at for a failing one, /dev/null for a file that was cut off, a
 * limit on files' sizes.
 */
#include "run_support.h"

#include "run/tier_file.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <signal.h>
#include <stddef.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#define FILE_BYTES ((uint64_t)(6 << 20) + 123)

/* A directory on a disk where there is one: /tmp may be memory, which takes direct I/O too. */
static const char *const dir = ".";

static ebb_device *open_ref(void) {
    ebb_device *device = NULL;
    assert_int_equal(ebb_device_open("ref", NULL, &device), EBB_OK);
    return device;
}

/* NULL: the kernel refuses io_uring here. */
static ebb_lane *open_lane(ebb_device *device, ebb_io io) {
    ebb_lane *lane = NULL;
    const ebb_status status = ebb__lane_open(device, io, &lane);
    if (io == EBB_IO_URING && status == EBB_E_UNSUPPORTED) { return NULL; }
    assert_int_equal(status, EBB_OK);
    return lane;
}

static ebb_tier_file open_file(uint64_t bytes, bool direct) {
    ebb_tier_file file = EBB_TIER_FILE_INIT;
    if (ebb__tier_file_open("disk", dir, bytes, direct, &file) != EBB_OK) { fail_msg("%s", ebb_last_error()); }
    return file;
}

/* ---- bytes --------------------------------------------------------------------------------------- */

static void each_way_moves_just_its_bytes(void **state) {
    (void)state;
    static const uint64_t sizes[] = {1, 511, 4095, 4096, 4097, 8191, 12289, (1 << 19) + 1, (5 << 20) + 77};
    static const uint64_t places[] = {0, 1, 64, 4095, 4096, 5000};
    ebb_device *device = open_ref();
    unsigned char *all = malloc(FILE_BYTES), *got = malloc(FILE_BYTES), *memory = malloc(FILE_BYTES + 64);
    for (int way = 0; way < 3; way++) { /* plain, through the cache, direct */
        ebb_lane *lane = open_lane(device, way == 0 ? EBB_IO_PLAIN : EBB_IO_URING);
        if (lane == NULL) { continue; }
        ebb_tier_file file = open_file(FILE_BYTES, way == 2);
        memset(all, 0, FILE_BYTES);
        for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
            const uint64_t n = sizes[i], at = places[i % (sizeof places / sizeof places[0])];
            unsigned char *part = memory + i % 3 * 32;
            for (uint64_t b = 0; b < n; b++) { part[b] = (unsigned char)(b * 31 + i + 1); }
            memcpy(all + at, part, n);
            assert_int_equal(ebb__lane_move(lane, &file, EBB_COPY_OUT, part, n, at), 0);
            memset(part, 0, n);
            assert_int_equal(ebb__lane_move(lane, &file, EBB_COPY_IN, part, n, at), 0);
            assert_memory_equal(part, all + at, n);
            assert_int_equal(ebb__lane_move(lane, &file, EBB_COPY_IN, got, FILE_BYTES, 0), 0);
            assert_memory_equal(got, all, FILE_BYTES); /* and nothing else changed */
        }
        ebb__tier_file_close(&file);
        ebb__lane_close(lane);
    }
    ebb_device_close(device);
    free(all);
    free(got);
    free(memory);
}

/* Two neighbours whose border is inside a page. */
#define BORDER ((uint64_t)50000)
#define ROUNDS 60

typedef struct neighbour {
    ebb_lane *lane;
    const ebb_tier_file *file;
    uint64_t at, size_bytes;
    unsigned char first;
    int n_wrong;
} neighbour;

static void *write_and_read(void *arg) {
    neighbour *it = arg;
    unsigned char *bytes = malloc(it->size_bytes);
    for (int round = 0; round < ROUNDS; round++) {
        const unsigned char value = (unsigned char)(it->first + round);
        memset(bytes, value, it->size_bytes);
        it->n_wrong += ebb__lane_move(it->lane, it->file, EBB_COPY_OUT, bytes, it->size_bytes, it->at) != 0;
        memset(bytes, 0, it->size_bytes);
        it->n_wrong += ebb__lane_move(it->lane, it->file, EBB_COPY_IN, bytes, it->size_bytes, it->at) != 0;
        for (uint64_t b = 0; b < it->size_bytes; b++) { it->n_wrong += bytes[b] != value; }
    }
    free(bytes);
    return NULL;
}

static void neighbours_do_not_change_each_other(void **state) {
    (void)state;
    ebb_device *device = open_ref();
    ebb_tier_file file = open_file(3 * BORDER, true);
    neighbour two[2] = {{.file = &file, .at = 0, .size_bytes = BORDER, .first = 1},
                        {.file = &file, .at = BORDER, .size_bytes = 2 * BORDER, .first = 101}};
    pthread_t thread[2];
    for (int i = 0; i < 2; i++) {
        two[i].lane = open_lane(device, EBB_IO_AUTO);
        assert_int_equal(pthread_create(&thread[i], NULL, write_and_read, &two[i]), 0);
    }
    for (int i = 0; i < 2; i++) {
        assert_int_equal(pthread_join(thread[i], NULL), 0);
        assert_int_equal(two[i].n_wrong, 0);
        ebb__lane_close(two[i].lane);
    }
    ebb__tier_file_close(&file);
    ebb_device_close(device);
}

/* ---- what the kernel refuses ----------------------------------------------------------------------- */

/* As in many containers: io_uring_setup is not permitted. */
static void forbid_rings(void) {
    struct sock_filter code[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_io_uring_setup, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    const struct sock_fprog filter = {.len = sizeof code / sizeof code[0], .filter = code};
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0 || prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter) != 0) {
        _exit(77);
    }
}

static int use_no_ring(void) {
    ebb_device *device = NULL;
    ebb_lane *lane = NULL;
    unsigned char byte = 7;
    if (ebb_device_open("ref", NULL, &device) != EBB_OK) { return 1; }
    forbid_rings();
    if (ebb__lane_open(device, EBB_IO_URING, &lane) != EBB_E_UNSUPPORTED || lane != NULL) { return 2; }
    if (strstr(ebb_last_error(), "io_uring cannot be had here") == NULL) { return 3; }
    if (ebb__lane_open(device, EBB_IO_AUTO, &lane) != EBB_OK || ebb__lane_has_ring(lane)) { return 4; }
    ebb_tier_file file = EBB_TIER_FILE_INIT;
    if (ebb__tier_file_open("disk", dir, 1, false, &file) != EBB_OK) { return 5; }
    if (ebb__lane_move(lane, &file, EBB_COPY_OUT, &byte, 1, 0) != 0) { return 6; }
    byte = 0;
    return ebb__lane_move(lane, &file, EBB_COPY_IN, &byte, 1, 0) == 0 && byte == 7 ? 0 : 7;
}

static void without_io_uring_it_is_plain(void **state) {
    (void)state;
    int result = 0;
    fflush(NULL);
    const pid_t child = fork();
    if (child == 0) { _exit(use_no_ring()); }
    assert_int_equal(waitpid(child, &result, 0), child);
    assert_true(WIFEXITED(result));
    if (WEXITSTATUS(result) == 77) { skip(); }
    assert_int_equal(WEXITSTATUS(result), 0);
}

static void unknown_ways_are_refused(void **state) {
    (void)state;
    ebb_io io = EBB_IO_PLAIN;
    assert_int_equal(ebb__io_parse("fast", &io), EBB_E_ARGUMENT);
    assert_int_equal(ebb__io_parse(NULL, &io), EBB_OK);
    assert_int_equal(io, EBB_IO_AUTO);
    assert_int_equal(ebb__io_parse("uring", &io), EBB_OK);
    assert_int_equal(io, EBB_IO_URING);
}

/* ---- faults ---------------------------------------------------------------------------------------- */

static const char *const ways[] = {"plain", "uring"};

static ebb_plan *plan_for_disk(const run_fixture *f) {
    ebb_machine *machine = NULL;
    ebb_plan *plan = NULL;
    ebb_no_fit no_fit = {0};
    ebb_plan_options options = EBB_PLAN_OPTIONS_INIT;
    assert_int_equal(ebb_machine_create(NULL, &machine), EBB_OK);
    options.policy = "budget";
    options.no_recompute = true;
    options.tier_bytes[EBB_HOST] = 0;
    options.tier_bytes[EBB_DISK] = UINT64_MAX;
    options.budget_bytes = 1;
    const ebb_program *program = ebb_lowered_program(f->lowered);
    assert_int_equal(ebb_plan_make(program, machine, &options, &plan, &no_fit), EBB_E_NO_FIT);
    options.budget_bytes = no_fit.least_budget_bytes;
    assert_int_equal(ebb_plan_make(program, machine, &options, &plan, &no_fit), EBB_OK);
    ebb_machine_destroy(machine);
    return plan;
}

/* What happens to the file after a good iteration, and the message that has to follow. */
typedef enum fault { FAULT_FULL, FAULT_BROKEN, FAULT_SHORT, FAULT_LIMIT, N_FAULTS } fault;

static void put_in_place(const ebb_tier_file *file, const char *path) {
    const int other = open(path, O_RDWR | O_CLOEXEC);
    assert_true(other >= 0);
    assert_true(dup2(other, file->fd) >= 0);
    if (file->direct_fd >= 0) { assert_true(dup2(other, file->direct_fd) >= 0); }
    close(other);
}

static void inject(fault what, const ebb_tier_file *file) {
    switch (what) {
    case FAULT_FULL: put_in_place(file, "/dev/full"); break;
    case FAULT_BROKEN: put_in_place(file, "/proc/self/mem"); break;
    case FAULT_SHORT: put_in_place(file, "/dev/null"); break; /* takes all and keeps nothing */
    default: break;
    }
}

static const struct {
    const char *what, *why; /* where reads fail as well as writes, either may come first */
} expected[N_FAULTS] = {[FAULT_FULL] = {"cannot write", "No space left on device"},
                        [FAULT_BROKEN] = {"cannot ", "Input/output error"},
                        [FAULT_SHORT] = {"cannot read", "the file ends there"},
                        [FAULT_LIMIT] = {"cannot write", "File too large"}};

static void limit_files(rlim_t bytes) {
    struct rlimit limit;
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &limit), 0);
    limit.rlim_cur = bytes;
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &limit), 0);
}

/* Whether the message names the tier and one of the program's tensors. */
static bool names_both(const run_fixture *f, const char *message) {
    size_t n = 0;
    char name[300];
    bool found = false;
    const ebb_tensor *tensors = ebb_program_tensors(ebb_lowered_program(f->lowered), &n);
    for (size_t t = 0; t < n; t++) {
        (void)snprintf(name, sizeof name, "tensor '%s'", tensors[t].name);
        found = found || strstr(message, name) != NULL;
    }
    return found && strncmp(message, "disk tier: cannot ", 18) == 0;
}

static void fail_once(const run_fixture *f, const ebb_plan *plan, const char *way, fault what) {
    ebb_run_options options = EBB_RUN_OPTIONS_INIT;
    ebb_run *run = NULL;
    options.disk_dir = dir;
    options.io = way;
    if (ebb_run_create(f->lowered, plan, &options, &run) != EBB_OK) { fail_msg("%s", ebb_last_error()); }
    assert_string_equal(ebb_run_get_stats(run).file_io, strcmp(way, "plain") == 0 ? "plain" : "uring direct");
    assert_int_equal(ebb_run_init_values(run, 3), EBB_OK);
    for (int i = 0; i < RUN_BATCH; i++) { run_labels(run)[i] = i; }
    assert_int_equal(ebb_run_iteration(run, 0, 1, 0.05f), EBB_OK);
    if (what == FAULT_SHORT) { assert_true(run->stats.moved_in_bytes > 0); }
    inject(what, &run->tiers.store[EBB_DISK].file);
    if (what == FAULT_LIMIT) { limit_files(1); }
    ebb_status status = EBB_OK; /* a copy that nothing has waited for yet may fail in the next iteration */
    for (uint64_t i = 1; i < 4 && status == EBB_OK; i++) { status = ebb_run_iteration(run, i, i + 1, 0.05f); }
    if (what == FAULT_LIMIT) { limit_files(RLIM_INFINITY); }
    if (status != EBB_E_IO) { fail_msg("%s, fault %d: status %d", way, (int)what, (int)status); }
    if (!names_both(f, ebb_last_error()) || strstr(ebb_last_error(), expected[what].why) == NULL ||
        strstr(ebb_last_error(), expected[what].what) == NULL) {
        fail_msg("%s, fault %d: %s", way, (int)what, ebb_last_error());
    }
    assert_int_equal(ebb_run_iteration(run, 4, 5, 0.05f), EBB_E_DEVICE); /* its content is not to be trusted */
    ebb_run_destroy(run);
}

static void faults_name_tensor_and_tier(void **state) {
    (void)state;
    run_fixture f;
    run_fixture_init(&f, NULL);
    ebb_plan *plan = plan_for_disk(&f);
    (void)signal(SIGXFSZ, SIG_IGN);
    ebb_lane *lane = open_lane(f.device, EBB_IO_URING);
    for (size_t w = 0; w < (lane != NULL ? 2 : 1); w++) {
        for (fault what = 0; what < N_FAULTS; what++) { fail_once(&f, plan, ways[w], what); }
    }
    ebb__lane_close(lane);
    ebb_plan_destroy(plan);
    run_fixture_fini(&f);
}

static void a_tier_without_room_is_an_error_at_the_start(void **state) {
    (void)state;
    ebb_tier_file file = EBB_TIER_FILE_INIT;
    (void)signal(SIGXFSZ, SIG_IGN);
    limit_files(1000);
    assert_int_equal(ebb__tier_file_open("slow", dir, 2000, true, &file), EBB_E_IO);
    limit_files(RLIM_INFINITY);
    assert_string_equal(ebb_last_error(), "slow tier .: no room for 2000 bytes: File too large");
    ebb__tier_file_close(&file);
    assert_int_equal(ebb__tier_file_open("slow", NULL, 2000, true, &file), EBB_E_ARGUMENT);
    assert_int_equal(ebb__tier_file_open("slow", "no/such/folder", 2000, true, &file), EBB_E_IO);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(without_io_uring_it_is_plain),
                                       cmocka_unit_test(unknown_ways_are_refused),
                                       cmocka_unit_test(each_way_moves_just_its_bytes),
                                       cmocka_unit_test(neighbours_do_not_change_each_other),
                                       cmocka_unit_test(faults_name_tensor_and_tier),
                                       cmocka_unit_test(a_tier_without_room_is_an_error_at_the_start)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
