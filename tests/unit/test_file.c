/* SPDX-License-Identifier: Apache-2.0
 *
 * The file writer leaves either the old file or the whole new one; the reader gives every byte or a cause.
 */
#include "base/file.h"
#include "support.h"

#include <dirent.h>
#include <fcntl.h>
#include <limits.h>
#include <setjmp.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <signal.h>
#include <unistd.h>

#include <cmocka.h>

static char dir[64];
static char path[96];

static int setup(void **state) {
    (void)state;
    strcpy(dir, "/tmp/ebb-file-XXXXXX");
    if (mkdtemp(dir) == NULL) { return -1; }
    (void)snprintf(path, sizeof path, "%s/target", dir);
    return 0;
}

static int teardown(void **state) {
    (void)state;
    (void)unlink(path);
    return rmdir(dir); /* fails where a temporary file was left */
}

static int count_files(void) {
    DIR *d = opendir(dir);
    int n = -2; /* . and .. */
    while (readdir(d) != NULL) { n++; }
    (void)closedir(d);
    return n;
}

static void put(const char *text, unsigned flags) {
    ebb_file_writer *writer = NULL;
    assert_int_equal(ebb__file_writer_open(NULL, path, flags, &writer), EBB_OK);
    assert_int_equal(ebb__file_writer_printf(writer, "%s", text), EBB_OK);
    assert_int_equal(ebb__file_writer_commit(writer), EBB_OK);
}

static void expect(const char *text) {
    char *data = NULL;
    size_t n = 0;
    assert_int_equal(ebb__file_read_all(NULL, path, 1u << 26, &data, &n), EBB_OK);
    assert_int_equal(n, strlen(text));
    assert_string_equal(data, text);
    ebb__free(NULL, data);
}

static void test_write_and_replace(void **state) {
    (void)state;
    for (unsigned flags = 0; flags <= EBB_FILE_NAMED; flags++) {
        put("first", flags);
        expect("first");
        put("", flags);
        expect("");
        put("second", flags);
        expect("second");
        assert_int_equal(count_files(), 1);
    }
}

/* The unfinished file's own name is longer than the target's, and that may be as long as names can be. */
static void test_longest_name(void **state) {
    (void)state;
    char target[sizeof dir + 1 + NAME_MAX];
    for (unsigned flags = 0; flags <= EBB_FILE_NAMED; flags++) {
        for (int n = NAME_MAX - 15; n <= NAME_MAX; n++) {
            ebb_file_writer *writer = NULL;
            (void)snprintf(target, sizeof target, "%s/%0*d", dir, n, 7);
            assert_int_equal(ebb__file_writer_open(NULL, target, flags, &writer), EBB_OK);
            assert_int_equal(ebb__file_writer_commit(writer), EBB_OK);
            assert_int_equal(count_files(), 1);
            assert_int_equal(unlink(target), 0);
        }
    }
}

static void test_abandon_keeps_the_old(void **state) {
    (void)state;
    put("old", 0);
    for (unsigned flags = 0; flags <= EBB_FILE_NAMED; flags++) {
        ebb_file_writer *writer = NULL;
        assert_int_equal(ebb__file_writer_open(NULL, path, flags, &writer), EBB_OK);
        assert_int_equal(ebb__file_writer_printf(writer, "new"), EBB_OK);
        assert_int_equal(ebb__file_writer_flush(writer), EBB_OK);
        expect("old");
        ebb__file_writer_abandon(writer);
        expect("old");
        assert_int_equal(count_files(), 1);
    }
}

/* Texts across the buffer's end, one longer than the buffer, blocks beyond it. */
static void test_large(void **state) {
    (void)state;
    const size_t n_long = 600000, n_lines = 50000;
    char *text = malloc(n_long + 1);
    memset(text, 'x', n_long);
    text[n_long] = '\0';
    ebb_file_writer *writer = NULL;
    assert_int_equal(ebb__file_writer_open(NULL, path, 0, &writer), EBB_OK);
    for (size_t i = 0; i < n_lines; i++) {
        assert_int_equal(ebb__file_writer_printf(writer, "line %08zu\n", i), EBB_OK);
    }
    assert_int_equal(ebb__file_writer_printf(writer, "%s", text), EBB_OK);
    assert_int_equal(ebb__file_writer_write(writer, text, n_long), EBB_OK);
    assert_int_equal(ebb__file_writer_offset(writer), n_lines * 14 + 2 * n_long);
    assert_int_equal(ebb__file_writer_commit(writer), EBB_OK);
    char *data = NULL;
    size_t n = 0;
    assert_int_equal(ebb__file_read_all(NULL, path, UINT64_MAX, &data, &n), EBB_OK);
    assert_int_equal(n, n_lines * 14 + 2 * n_long);
    for (size_t i = 0; i < n_lines; i++) {
        char line[32];
        (void)snprintf(line, sizeof line, "line %08zu\n", i);
        assert_memory_equal(data + i * 14, line, 14);
    }
    assert_memory_equal(data + n_lines * 14, text, n_long);
    assert_memory_equal(data + n_lines * 14 + n_long, text, n_long);
    ebb__free(NULL, data);
    free(text);
}

static void test_in_place(void **state) {
    (void)state;
    put("old and long", 0);
    ebb_file_writer *writer = NULL;
    assert_int_equal(ebb__file_writer_open(NULL, path, EBB_FILE_IN_PLACE, &writer), EBB_OK);
    assert_int_equal(ebb__file_writer_printf(writer, "new"), EBB_OK);
    assert_int_equal(ebb__file_writer_flush(writer), EBB_OK);
    expect("new"); /* before it is finished */
    assert_int_equal(ebb__file_writer_commit(writer), EBB_OK);
    expect("new");
    assert_int_equal(ebb__file_writer_open(NULL, path, EBB_FILE_IN_PLACE, &writer), EBB_OK);
    ebb__file_writer_abandon(writer);
    assert_int_equal(count_files(), 0);
}

static void test_read_failures(void **state) {
    (void)state;
    char *data = NULL;
    size_t n = 0;
    assert_int_equal(ebb__file_read_all(NULL, path, 10, &data, &n), EBB_E_IO);
    assert_non_null(strstr(ebb_last_error(), path));
    assert_int_equal(ebb__file_read_all(NULL, dir, 10, &data, &n), EBB_E_IO);
    put("0123456789", 0);
    assert_int_equal(ebb__file_read_all(NULL, path, 9, &data, &n), EBB_E_LIMIT);
    assert_null(data);
    assert_int_equal(ebb__file_read_all(NULL, path, 10, &data, &n), EBB_OK);
    ebb__free(NULL, data);
}

static void test_no_such_folder(void **state) {
    (void)state;
    char bad[128];
    (void)snprintf(bad, sizeof bad, "%s/none/target", dir);
    ebb_file_writer *writer = NULL;
    assert_int_equal(ebb__file_writer_open(NULL, bad, 0, &writer), EBB_E_IO);
    assert_non_null(strstr(ebb_last_error(), bad));
    assert_null(writer);
}

/* A limit on file size stands for a full disk: the first failure sticks, the old file stays. */
static void test_disk_full(void **state) {
    (void)state;
    put("old", 0);
    struct rlimit old, small;
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &old), 0);
    (void)signal(SIGXFSZ, SIG_IGN);
    small = old;
    small.rlim_cur = 300000;
    char *block = calloc(1, 200000);
    for (unsigned flags = 0; flags <= EBB_FILE_NAMED; flags++) {
        ebb_file_writer *writer = NULL;
        assert_int_equal(setrlimit(RLIMIT_FSIZE, &small), 0);
        assert_int_equal(ebb__file_writer_open(NULL, path, flags, &writer), EBB_OK);
        for (int i = 0; i < 4; i++) { (void)ebb__file_writer_write(writer, block, 200000); }
        assert_int_equal(ebb__file_writer_printf(writer, "more"), EBB_E_IO);
        (void)ebb_fail(EBB_E_INTERNAL, "another failure");
        ebb_status st = ebb__file_writer_commit(writer);
        assert_int_equal(setrlimit(RLIMIT_FSIZE, &old), 0);
        assert_int_equal(st, EBB_E_IO);
        assert_non_null(strstr(ebb_last_error(), "cannot write"));
        expect("old");
        assert_int_equal(count_files(), 1);
    }
    free(block);
}

static void test_links_and_modes_stay(void **state) {
    (void)state;
    put("old", 0);
    assert_int_equal(chmod(path, 0640), 0);
    char link_path[128], target[96];
    (void)snprintf(link_path, sizeof link_path, "%s/link", dir);
    strcpy(target, path);
    assert_int_equal(symlink(target, link_path), 0);
    strcpy(path, link_path);
    put("through the link", 0);
    strcpy(path, target);
    expect("through the link");
    struct stat st;
    assert_int_equal(lstat(link_path, &st), 0);
    assert_true(S_ISLNK(st.st_mode));
    assert_int_equal(stat(path, &st), 0);
    assert_int_equal(st.st_mode & 0777, 0640);
    assert_int_equal(unlink(link_path), 0);
}

static void test_link_to_nothing_is_refused(void **state) {
    (void)state;
    ebb_file_writer *writer = NULL;
    assert_int_equal(symlink("nowhere", path), 0);
    assert_int_equal(ebb_path_check_writable(path), EBB_E_IO);
    expect_message("it is a link to nowhere, which is not there");
    assert_int_equal(ebb__file_writer_open(NULL, path, 0, &writer), EBB_E_IO);
    assert_int_equal(ebb__file_writer_open(NULL, path, EBB_FILE_IN_PLACE, &writer), EBB_E_IO);
    expect_message("it is a link to nowhere, which is not there");
    assert_int_equal(unlink(path), 0);
    assert_int_equal(count_files(), 0);
}

/* Neither end of a pipe is waited for without end. */
static void test_pipe_of_no_other_end_is_refused(void **state) {
    (void)state;
    ebb_file_writer *writer = NULL;
    char *text = NULL;
    size_t n = 0;
    assert_int_equal(mkfifo(path, 0600), 0);
    assert_int_equal(ebb__file_writer_open(NULL, path, 0, &writer), EBB_E_IO);
    expect_message("no program reads from this pipe");
    assert_int_equal(ebb__file_read_all(NULL, path, 100, &text, &n), EBB_E_IO);
    expect_message("no program writes to this pipe");

    const int reader = open(path, O_RDONLY | O_NONBLOCK); /* and one that has both */
    assert_int_equal(ebb__file_writer_open(NULL, path, 0, &writer), EBB_OK);
    assert_int_equal(ebb__file_writer_printf(writer, "through"), EBB_OK);
    assert_int_equal(ebb__file_writer_flush(writer), EBB_OK);
    int fd = -1;
    assert_int_equal(ebb_path_open_input(path, &fd), EBB_OK);
    assert_int_equal(ebb__file_writer_commit(writer), EBB_OK);
    char got[16] = "";
    assert_int_equal(read(fd, got, sizeof got), 7);
    assert_string_equal(got, "through");
    assert_int_equal(close(fd), 0);
    assert_int_equal(close(reader), 0);
    assert_int_equal(unlink(path), 0);
}

static void test_device_is_not_read(void **state) {
    (void)state;
    char *text = NULL;
    size_t n = 1;
    assert_int_equal(ebb__file_read_all(NULL, "/dev/zero", 100, &text, &n), EBB_E_FORMAT);
    expect_message("/dev/zero: this is a device, not a file");
    assert_int_equal(ebb__file_read_all(NULL, dir, 100, &text, &n), EBB_E_IO);
    expect_message("this is a folder, not a file");
    assert_int_equal(ebb__file_read_all(NULL, "/dev/null", 100, &text, &n), EBB_OK);
    assert_int_equal(n, 0);
    ebb__free(NULL, text);
}

static void test_device_is_written_directly(void **state) {
    (void)state;
    ebb_file_writer *writer = NULL;
    assert_int_equal(ebb__file_writer_open(NULL, "/dev/null", 0, &writer), EBB_OK);
    assert_int_equal(ebb__file_writer_printf(writer, "gone"), EBB_OK);
    assert_int_equal(ebb__file_writer_commit(writer), EBB_OK);
    struct stat st;
    assert_int_equal(stat("/dev/null", &st), 0);
    assert_true(S_ISCHR(st.st_mode));
}

static void test_place_is_checked_without_a_trace(void **state) {
    (void)state;
    char inside[128];
    (void)snprintf(inside, sizeof inside, "%s/none/x", dir);
    assert_int_equal(ebb_path_check_writable(path), EBB_OK);
    assert_int_equal(count_files(), 0);
    assert_int_equal(ebb_path_check_writable("/dev/null"), EBB_OK);
    assert_int_equal(ebb_path_check_writable(inside), EBB_E_IO);
    assert_non_null(strstr(ebb_last_error(), inside));
    assert_int_equal(ebb_path_check_writable(dir), EBB_E_IO);
    assert_int_equal(ebb_path_check_writable("/dev/null/x"), EBB_E_IO);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_write_and_replace, setup, teardown),
        cmocka_unit_test_setup_teardown(test_longest_name, setup, teardown),
        cmocka_unit_test_setup_teardown(test_abandon_keeps_the_old, setup, teardown),
        cmocka_unit_test_setup_teardown(test_in_place, setup, teardown),
        cmocka_unit_test_setup_teardown(test_large, setup, teardown),
        cmocka_unit_test_setup_teardown(test_read_failures, setup, teardown),
        cmocka_unit_test_setup_teardown(test_no_such_folder, setup, teardown),
        cmocka_unit_test_setup_teardown(test_place_is_checked_without_a_trace, setup, teardown),
        cmocka_unit_test_setup_teardown(test_disk_full, setup, teardown),
        cmocka_unit_test_setup_teardown(test_links_and_modes_stay, setup, teardown),
        cmocka_unit_test_setup_teardown(test_link_to_nothing_is_refused, setup, teardown),
        cmocka_unit_test_setup_teardown(test_pipe_of_no_other_end_is_refused, setup, teardown),
        cmocka_unit_test_setup_teardown(test_device_is_not_read, setup, teardown),
        cmocka_unit_test_setup_teardown(test_device_is_written_directly, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
