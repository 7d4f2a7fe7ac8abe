/* SPDX-License-Identifier: Apache-2.0
 *
 * Files read whole, and files written whole or not at all.
 *
 * The writer fills a file without a name in the target's folder (O_TMPFILE), which vanishes by itself if the
 * process is killed. commit syncs it, gives it a name of its own and renames that over the target. Where the
 * file system knows no such files it has that name from the start, and only a kill can leave it behind.
 */
#include "base/file.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#define BUFFER_BYTES ((size_t)256 * 1024)
#define MAX_NAME_TRIES 1000u
#define PIPE_WAIT_MS 3000 /* for the first writer */
#define PIPE_LOOK_MS 20

struct ebb_file_writer {
    const ebb_mem *mem;
    char *name;      /* the target, as the caller calls it: for messages */
    char *path;      /* the same with links followed */
    char *dir;       /* its folder */
    char *temp_path; /* NULL while the file has no name of its own */
    int fd;
    bool direct;   /* the target is a device or pipe */
    bool in_place; /* temp_path is the target: giving the file up removes it */
    char *buf;
    size_t n_used;
    uint64_t n_flushed;
    ebb_status status; /* of the first failure */
    char *message;     /* and its text; NULL where there was no memory for it */
};

ebb_status ebb__fail_errno(const char *path, const char *what) {
    return ebb_fail(EBB_E_IO, "%s: cannot %s: %s", path, what, strerror(errno));
}

const char *ebb__base_name(const char *path) {
    const char *base = path;
    for (const char *at = path; *at != '\0'; at++) {
        if (*at == '/' && at[1] != '\0') { base = at + 1; }
    }
    return base;
}

/* ---- reading ---------------------------------------------------------------------------------- */

/* Whether a program has the pipe open for writing, or has left something in it. tee() copies, so nothing is taken out.
 */
static bool has_writer(int fd) {
    int ends[2];
    if (pipe2(ends, O_CLOEXEC | O_NONBLOCK) != 0) { return true; }
    const bool none = tee(fd, ends[1], 1, SPLICE_F_NONBLOCK) == 0;
    (void)close(ends[0]);
    (void)close(ends[1]);
    return !none;
}

/* The writer may come a moment later. A pipe that no program ever opens would be waited for without end. */
static ebb_status await_writer(const char *path, int fd) {
    for (int waited_ms = 0; !has_writer(fd); waited_ms += PIPE_LOOK_MS) {
        if (waited_ms >= PIPE_WAIT_MS) { return ebb_fail(EBB_E_IO, "%s: no program writes to this pipe", path); }
        (void)poll(NULL, 0, PIPE_LOOK_MS);
    }
    return EBB_OK;
}

static ebb_status block(const char *path, int fd) {
    const int flags = fcntl(fd, F_GETFL);
    if (flags >= 0 && fcntl(fd, F_SETFL, flags & ~O_NONBLOCK) == 0) { return EBB_OK; }
    return ebb__fail_errno(path, "open");
}

/* Terminals and /dev/null end; /dev/zero and its like do not. */
static bool is_endless(int fd, const struct stat *info) {
    struct stat null;
    if (!S_ISCHR(info->st_mode)) { return S_ISBLK(info->st_mode); }
    return isatty(fd) != 1 && (stat("/dev/null", &null) != 0 || null.st_rdev != info->st_rdev);
}

ebb_status ebb_path_open_input(const char *path, int *fd_out) {
    EBB_NEED(path);
    EBB_NEED(fd_out);
    struct stat info;
    const int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    if (fd < 0) { return ebb__fail_errno(path, "open"); }
    ebb_status st = EBB_OK;
    if (fstat(fd, &info) != 0) {
        st = ebb__fail_errno(path, "open");
    } else if (S_ISDIR(info.st_mode)) {
        st = ebb_fail(EBB_E_IO, "%s: this is a folder, not a file", path);
    } else if (is_endless(fd, &info)) {
        st = ebb_fail(EBB_E_FORMAT, "%s: this is a device, not a file", path);
    } else if (S_ISFIFO(info.st_mode)) {
        st = await_writer(path, fd);
    }
    if (st == EBB_OK) { st = block(path, fd); }
    if (st != EBB_OK) {
        (void)close(fd);
        return st;
    }
    *fd_out = fd;
    return EBB_OK;
}

/* How much to read at first: the file's size where it has one. */
static size_t first_read_bytes(int fd, uint64_t max_bytes) {
    struct stat st;
    uint64_t size_bytes = 4096;
    if (fstat(fd, &st) == 0 && S_ISREG(st.st_mode) && st.st_size > 0) { size_bytes = (uint64_t)st.st_size; }
    return (size_t)ebb_min_u64(size_bytes, ebb_min_u64(max_bytes, SIZE_MAX / 4)) + 2; /* one to see the end, one NUL */
}

static ebb_status read_fd(const ebb_mem *mem, int fd, const char *path, uint64_t max_bytes, char **data_out,
                          size_t *n_bytes_out) {
    EBB_VEC(char) text = {0};
    ebb_status st = EBB_OK;
    size_t n_more = first_read_bytes(fd, max_bytes);
    for (;;) {
        st = EBB_RESERVE(mem, &text, n_more);
        if (st != EBB_OK) { goto out; }
        n_more = 4096;
        ssize_t n = read(fd, text.data + text.n, text.cap - text.n - 1);
        if (n < 0 && errno == EINTR) { continue; }
        if (n < 0) {
            st = ebb__fail_errno(path, "read");
            goto out;
        }
        if (n == 0) { break; }
        text.n += (size_t)n;
        if (text.n > max_bytes) {
            st = ebb_fail(EBB_E_LIMIT, "%s: more than %llu bytes", path, (unsigned long long)max_bytes);
            goto out;
        }
    }
    text.data[text.n] = '\0';
    *data_out = text.data;
    *n_bytes_out = text.n;
    text.data = NULL; /* handed over */
out:
    EBB_VEC_FINI(mem, &text);
    return st;
}

ebb_status ebb__file_read_all(const ebb_mem *mem, const char *path, uint64_t max_bytes, char **data_out,
                              size_t *n_bytes_out) {
    int fd = -1;
    EBB_TRY(ebb_path_open_input(path, &fd));
    ebb_status st = read_fd(mem, fd, path, max_bytes, data_out, n_bytes_out);
    (void)close(fd);
    return st;
}

/* ---- writing ---------------------------------------------------------------------------------- */

/* Remember the thread's last failure as this writer's. */
static ebb_status keep_failure(ebb_file_writer *writer, ebb_status status) {
    if (writer->status == EBB_OK) {
        writer->status = status;
        writer->message = ebb__strdup(writer->mem, ebb_last_error());
    }
    return status;
}

static ebb_status repeat_failure(const ebb_file_writer *writer) {
    return ebb_fail(writer->status, "%s", writer->message != NULL ? writer->message : writer->name);
}

static ebb_status write_fd(ebb_file_writer *writer, const char *data, size_t n_bytes) {
    while (n_bytes > 0) {
        ssize_t n = write(writer->fd, data, n_bytes);
        if (n < 0 && errno == EINTR) { continue; }
        if (n < 0) { return keep_failure(writer, ebb__fail_errno(writer->name, "write")); }
        data += n;
        n_bytes -= (size_t)n;
        writer->n_flushed += (uint64_t)n;
    }
    return EBB_OK;
}

/* Paths: the target with links followed, and its folder. */
static ebb_status set_paths(ebb_file_writer *writer, const char *path) {
    char real[PATH_MAX];
    writer->name = ebb__strdup(writer->mem, path);
    writer->path = ebb__strdup(writer->mem, realpath(path, real) != NULL ? real : path);
    if (writer->name == NULL || writer->path == NULL) { return EBB_E_NO_MEMORY; }
    const char *slash = strrchr(writer->path, '/');
    writer->dir = ebb__strdup(writer->mem, slash == NULL ? "." : writer->path);
    if (writer->dir == NULL) { return EBB_E_NO_MEMORY; }
    if (slash != NULL) { writer->dir[slash == writer->path ? 1 : slash - writer->path] = '\0'; }
    return EBB_OK;
}

/* Put a new name beside the target into temp_path: attempt number try_idx. A long name loses its end. */
static ebb_status make_temp_path(ebb_file_writer *writer, unsigned try_idx) {
    char suffix[48];
    const int n_suffix = snprintf(suffix, sizeof suffix, ".tmp-%ld-%u", (long)getpid(), try_idx);
    const char *slash = strrchr(writer->path, '/');
    const size_t n_dir = slash == NULL ? 0 : (size_t)(slash - writer->path) + 1;
    const size_t n_kept = strnlen(writer->path, n_dir + NAME_MAX - (size_t)n_suffix);
    const size_t n = n_kept + sizeof suffix;
    char *temp = ebb__alloc(writer->mem, n, 1);
    if (temp == NULL) { return EBB_E_NO_MEMORY; }
    (void)snprintf(temp, n, "%.*s%s", (int)n_kept, writer->path, suffix);
    ebb__free(writer->mem, writer->temp_path);
    writer->temp_path = temp;
    return EBB_OK;
}

static ebb_status drop_temp_path(ebb_file_writer *writer, ebb_status status) {
    ebb__free(writer->mem, writer->temp_path);
    writer->temp_path = NULL;
    return status;
}

/* Create the unfinished file under a name of its own; or, where fd is open already, give it one. */
static ebb_status make_named(ebb_file_writer *writer) {
    char link[64];
    (void)snprintf(link, sizeof link, "/proc/self/fd/%d", writer->fd);
    for (unsigned i = 0; i < MAX_NAME_TRIES; i++) {
        EBB_TRY(make_temp_path(writer, i));
        int result = 0;
        if (writer->fd >= 0) {
            result = linkat(AT_FDCWD, link, AT_FDCWD, writer->temp_path, AT_SYMLINK_FOLLOW);
        } else {
            result = writer->fd = open(writer->temp_path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
        }
        if (result >= 0) { return EBB_OK; }
        if (errno != EEXIST) { break; }
    }
    return drop_temp_path(writer, ebb__fail_errno(writer->name, "create"));
}

static ebb_status open_in_place(ebb_file_writer *writer) {
    writer->in_place = true;
    writer->fd = open(writer->path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    if (writer->fd < 0) { return ebb__fail_errno(writer->name, "create"); }
    writer->temp_path = ebb__strdup(writer->mem, writer->path);
    if (writer->temp_path != NULL) { return EBB_OK; }
    (void)unlink(writer->path);
    return EBB_E_NO_MEMORY;
}

/* Refuse a link to a file that is not there: the new file would replace the link, or appear somewhere else. */
static ebb_status refuse_dangling(const char *path) {
    struct stat st;
    char aim[PATH_MAX];
    if (lstat(path, &st) != 0 || !S_ISLNK(st.st_mode) || stat(path, &st) == 0 || errno != ENOENT) { return EBB_OK; }
    const ssize_t n = readlink(path, aim, sizeof aim - 1);
    aim[n > 0 ? n : 0] = '\0';
    return ebb_fail(EBB_E_IO, "%s: cannot create: it is a link to %s, which is not there", path, aim);
}

/* Open a pipe, a terminal or a device. Without O_NONBLOCK, a pipe that no program reads would be waited for without
 * end. */
static ebb_status open_direct(ebb_file_writer *writer) {
    writer->direct = true;
    writer->fd = open(writer->path, O_WRONLY | O_CLOEXEC | O_NONBLOCK);
    if (writer->fd >= 0) { return block(writer->name, writer->fd); }
    if (errno == ENXIO) { return ebb_fail(EBB_E_IO, "%s: no program reads from this pipe", writer->name); }
    return ebb__fail_errno(writer->name, "open");
}

static ebb_status open_fd(ebb_file_writer *writer, unsigned flags) {
    struct stat st;
    if (stat(writer->path, &st) == 0 && !S_ISREG(st.st_mode)) { return open_direct(writer); }
    EBB_TRY(refuse_dangling(writer->path));
    if ((flags & EBB_FILE_IN_PLACE) != 0) { return open_in_place(writer); }
    if ((flags & EBB_FILE_NAMED) == 0 && access("/proc/self/fd", F_OK) == 0) {
        writer->fd = open(writer->dir, O_TMPFILE | O_WRONLY | O_CLOEXEC, 0666);
        if (writer->fd >= 0) { return EBB_OK; }
    }
    return make_named(writer);
}

ebb_status ebb_path_check_writable(const char *path) {
    EBB_NEED(path);
    ebb_file_writer writer = {.mem = ebb__mem_or_default(NULL)};
    struct stat st;
    ebb_status status = set_paths(&writer, path);
    if (status != EBB_OK) { goto out; }
    bool exists = stat(path, &st) == 0;
    if (exists && S_ISDIR(st.st_mode)) {
        errno = EISDIR;
        status = ebb__fail_errno(path, "open");
    } else if (exists && !S_ISREG(st.st_mode)) {
        status = access(path, W_OK) == 0 ? EBB_OK : ebb__fail_errno(path, "open");
    } else if (!exists && errno != ENOENT) {
        status = ebb__fail_errno(path, "create");
    } else if (!exists && refuse_dangling(path) != EBB_OK) {
        status = EBB_E_IO;
    } else if (access(writer.dir, W_OK | X_OK) != 0) {
        status = ebb__fail_errno(path, "create");
    }
out:
    ebb__free(writer.mem, writer.name);
    ebb__free(writer.mem, writer.path);
    ebb__free(writer.mem, writer.dir);
    return status;
}

static ebb_status create_writer(const ebb_mem *mem, int fd, ebb_file_writer **writer_out) {
    mem = ebb__mem_or_default(mem);
    ebb_file_writer *writer = ebb__calloc(mem, 1, sizeof *writer);
    char *buf = ebb__alloc(mem, BUFFER_BYTES, 1);
    if (writer == NULL || buf == NULL) {
        ebb__free(mem, writer);
        ebb__free(mem, buf);
        return EBB_E_NO_MEMORY;
    }
    writer->mem = mem;
    writer->fd = fd;
    writer->buf = buf;
    *writer_out = writer;
    return EBB_OK;
}

ebb_status ebb__file_writer_open(const ebb_mem *mem, const char *path, unsigned flags, ebb_file_writer **writer_out) {
    ebb_file_writer *writer = NULL;
    EBB_TRY(create_writer(mem, -1, &writer));
    ebb_status st = set_paths(writer, path);
    if (st != EBB_OK) { goto out; }
    st = open_fd(writer, flags);
    if (st != EBB_OK) { goto out; }
    *writer_out = writer;
    writer = NULL; /* handed over */
out:
    ebb__file_writer_abandon(writer);
    return st;
}

ebb_status ebb__file_writer_open_fd(const ebb_mem *mem, const char *name, int fd, ebb_file_writer **writer_out) {
    ebb_file_writer *writer = NULL;
    ebb_status st = create_writer(mem, fd, &writer);
    if (st != EBB_OK) {
        (void)close(fd);
        return st;
    }
    writer->direct = true;
    writer->name = ebb__strdup(writer->mem, name);
    if (writer->name == NULL) {
        ebb__file_writer_abandon(writer);
        return EBB_E_NO_MEMORY;
    }
    *writer_out = writer;
    return EBB_OK;
}

ebb_status ebb__file_writer_flush(ebb_file_writer *writer) {
    if (writer->status != EBB_OK) { return repeat_failure(writer); }
    size_t n = writer->n_used;
    writer->n_used = 0;
    return write_fd(writer, writer->buf, n);
}

ebb_status ebb__file_writer_write(ebb_file_writer *writer, const void *data, size_t n_bytes) {
    if (writer->status != EBB_OK) { return repeat_failure(writer); }
    if (n_bytes > BUFFER_BYTES - writer->n_used) { EBB_TRY(ebb__file_writer_flush(writer)); }
    if (n_bytes >= BUFFER_BYTES) { return write_fd(writer, data, n_bytes); }
    if (n_bytes > 0) { memcpy(writer->buf + writer->n_used, data, n_bytes); }
    writer->n_used += n_bytes;
    return EBB_OK;
}

ebb_status ebb__file_writer_printf(ebb_file_writer *writer, const char *fmt, ...) {
    if (writer->status != EBB_OK) { return repeat_failure(writer); }
    va_list args;
    va_start(args, fmt);
    size_t room = BUFFER_BYTES - writer->n_used;
    int n = vsnprintf(writer->buf + writer->n_used, room, fmt, args);
    va_end(args);
    EBB_ASSERT(n >= 0);
    if ((size_t)n < room) {
        writer->n_used += (size_t)n;
        return EBB_OK;
    }
    char *text = ebb__alloc(writer->mem, (size_t)n + 1, 1); /* rare: once a buffer, or a very long text */
    if (text == NULL) { return keep_failure(writer, EBB_E_NO_MEMORY); }
    va_start(args, fmt);
    (void)vsnprintf(text, (size_t)n + 1, fmt, args);
    va_end(args);
    ebb_status st = ebb__file_writer_write(writer, text, (size_t)n);
    ebb__free(writer->mem, text);
    return st;
}

uint64_t ebb__file_writer_offset(const ebb_file_writer *writer) {
    return writer->n_flushed + writer->n_used;
}

/* The rename itself must reach the disk too; a folder that cannot be synced is no failure. */
static void sync_dir(const ebb_file_writer *writer) {
    int fd = open(writer->dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0) { return; }
    (void)fsync(fd);
    (void)close(fd);
}

/* Keep the permissions of the file that is replaced. */
static void copy_mode(const ebb_file_writer *writer) {
    struct stat st;
    if (stat(writer->path, &st) == 0) { (void)fchmod(writer->fd, st.st_mode & 0777); }
}

static ebb_status replace_target(ebb_file_writer *writer) {
    if (writer->in_place) { return drop_temp_path(writer, EBB_OK); } /* it is there; no one's state hangs on it */
    copy_mode(writer);
    if (fsync(writer->fd) != 0) { return ebb__fail_errno(writer->name, "sync"); }
    if (writer->temp_path == NULL) { EBB_TRY(make_named(writer)); }
    if (rename(writer->temp_path, writer->path) != 0) { return ebb__fail_errno(writer->name, "replace"); }
    (void)drop_temp_path(writer, EBB_OK); /* it is the target now */
    sync_dir(writer);
    return EBB_OK;
}

ebb_status ebb__file_writer_commit(ebb_file_writer *writer) {
    ebb_status st = ebb__file_writer_flush(writer);
    if (st == EBB_OK && !writer->direct) { st = replace_target(writer); }
    ebb__file_writer_abandon(writer);
    return st;
}

void ebb__file_writer_abandon(ebb_file_writer *writer) {
    if (writer == NULL) { return; }
    if (writer->fd >= 0) { (void)close(writer->fd); }
    if (writer->temp_path != NULL) { (void)unlink(writer->temp_path); }
    const ebb_mem *mem = writer->mem;
    ebb__free(mem, writer->temp_path);
    ebb__free(mem, writer->name);
    ebb__free(mem, writer->path);
    ebb__free(mem, writer->dir);
    ebb__free(mem, writer->buf);
    ebb__free(mem, writer->message);
    ebb__free(mem, writer);
}
