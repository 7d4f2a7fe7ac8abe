/* SPDX-License-Identifier: Apache-2.0
 *
 * libebb_mpi.so: memory of other processes over MPI's one-sided calls. Each process but the first lends one piece of
 * memory, and all pieces are one MPI window. The first process, rank 0, writes (MPI_Put) and reads (MPI_Get) them; the
 * others have nothing to do but to wait for its end.
 *
 *      rank 0          the remote's bytes   | 0 .......... | n ............. | ...
 *                                                 |                |
 *      rank 1, 2 ...   window               pad | lent |     pad | lent |
 *
 * Bytes that begin on one rank and end on the next are moved in two calls, so a tensor may lie across two ranks.
 *
 * Rules
 *  1. One thread at a time is inside MPI (MPI_THREAD_SERIALIZED), by turns. A move gives its turn away after each
 *     piece, so two engines share the link. Open MPI 4 has windows over TCP only on this level.
 *  2. A piece ends with MPI_Win_flush. Then its bytes are there for whoever reads them next.
 *  3. Before rank 0 uses anything, all processes tell each other what they have, and each judges the same. So all go
 *     on, or all end.
 *  4. A lender writes each page of its memory first. The kernel gives shared memory page by page, and where it has no
 *     page left it ends the process (SIGBUS); here that becomes a message.
 *
 * If all processes are on one machine, lenders sleep between looks for the end: MPI's own waits take a whole processor,
 * which rank 0 needs to compute. On several machines they do not, because some transports move bytes only while the
 * target is inside MPI.
 */
#include "remote/mpi/mpi_plugin.h"

#include <mpi.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define PIECE_BYTES ((uint64_t)4 << 20) /* of a move, in one turn */
#define ALIGN_BYTES 64u                 /* of the lent bytes; copies to and from others can be several times slower */
#define MOST_BYTES ((uint64_t)1 << 48)  /* of one process */
#define TAG_END 1
#define TAG_GONE 2
#define NAP_NS 1000000L
#define END_WAIT_S 10 /* rank 0's for the others */
#define HOST_BYTES 64

/* What one process tells all others. */
typedef struct offer {
    uint64_t size_bytes, free_bytes, pad_bytes;
    bool has_window;
    char host[HOST_BYTES];
    char problem[128]; /* why it cannot lend; "": it can */
} offer;

typedef struct job {
    const ebb_mem *mem;
    bool began_mpi, has_comm;
    bool has_window;   /* and so have all others: it is freed together */
    bool lenders_wait; /* for rank 0 to say that it is over */
    MPI_Comm comm;
    MPI_Win window;
    void *memory; /* of this process in the window */
    int rank, n_ranks;
    bool on_one_machine;
    offer *offers;         /* [n_ranks] */
    MPI_Request *requests; /* [2 * n_ranks]: rank 0's, at the end */
    pthread_mutex_t lock;
    pthread_cond_t turn_ends;
    uint64_t next_turn, turn;
} job;

static void describe(int error, char *why_out, size_t why_bytes) {
    char text[MPI_MAX_ERROR_STRING] = "";
    int n = 0;
    if (MPI_Error_string(error, text, &n) != MPI_SUCCESS) { (void)snprintf(text, sizeof text, "error %d", error); }
    (void)snprintf(why_out, why_bytes, "%s", text);
}

static ebb_status fail_mpi(const char *what, int error, char why_out[EBB_MPI_WHY_BYTES]) {
    char text[MPI_MAX_ERROR_STRING];
    describe(error, text, sizeof text);
    (void)snprintf(why_out, EBB_MPI_WHY_BYTES, "MPI: %s: %s", what, text);
    return EBB_E_IO;
}

/* ---- beginning and end -------------------------------------------------------------------------- */

static ebb_status begin_mpi(job *j, char why_out[EBB_MPI_WHY_BYTES]) {
    int is_there = 0, level = MPI_THREAD_SINGLE;
    (void)MPI_Initialized(&is_there);
    if (is_there) {
        (void)MPI_Query_thread(&level);
    } else {
        const int error = MPI_Init_thread(NULL, NULL, MPI_THREAD_SERIALIZED, &level);
        if (error != MPI_SUCCESS) { return fail_mpi("it cannot begin", error, why_out); }
        j->began_mpi = true;
    }
    if (level >= MPI_THREAD_SERIALIZED) { return EBB_OK; }
    (void)snprintf(why_out, EBB_MPI_WHY_BYTES,
                   "MPI was initialized below MPI_THREAD_SERIALIZED; use that level or a higher one");
    return EBB_E_ARGUMENT;
}

/* A communicator of our own, whose errors come back to us. */
static ebb_status make_comm(job *j, char why_out[EBB_MPI_WHY_BYTES]) {
    MPI_Comm near = MPI_COMM_NULL;
    int n_near = 0;
    int error = MPI_Comm_dup(MPI_COMM_WORLD, &j->comm);
    if (error != MPI_SUCCESS) { return fail_mpi("no communicator", error, why_out); }
    j->has_comm = true;
    (void)MPI_Comm_set_errhandler(j->comm, MPI_ERRORS_RETURN);
    (void)MPI_Comm_rank(j->comm, &j->rank);
    (void)MPI_Comm_size(j->comm, &j->n_ranks);
    if (j->n_ranks < 2) {
        (void)snprintf(why_out, EBB_MPI_WHY_BYTES,
                       "no other process is there to lend its memory; begin the command with mpirun -n 2");
        return EBB_E_ARGUMENT;
    }
    error = MPI_Comm_split_type(j->comm, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &near);
    if (error != MPI_SUCCESS) { return fail_mpi("no communicator of one machine", error, why_out); }
    (void)MPI_Comm_size(near, &n_near);
    (void)MPI_Comm_free(&near);
    j->on_one_machine = n_near == j->n_ranks;
    return EBB_OK;
}

/* In all processes, or in none. */
static ebb_status make_room(job *j, char why_out[EBB_MPI_WHY_BYTES]) {
    const size_t n = (size_t)j->n_ranks;
    int all_have = 0;
    j->offers = j->mem->alloc(j->mem->ctx, n * sizeof *j->offers);
    j->requests = j->mem->alloc(j->mem->ctx, 2 * n * sizeof *j->requests);
    const int has = j->offers != NULL && j->requests != NULL;
    const int error = MPI_Allreduce(&has, &all_have, 1, MPI_INT, MPI_MIN, j->comm);
    if (error != MPI_SUCCESS) { return fail_mpi("the processes cannot reach each other", error, why_out); }
    if (all_have) { return EBB_OK; }
    (void)snprintf(why_out, EBB_MPI_WHY_BYTES, "out of host memory: a list of %zu processes", n);
    return EBB_E_NO_MEMORY;
}

/* All processes at the same time. */
static void leave(job *j) {
    if (j->has_window) { (void)MPI_Win_free(&j->window); }
    if (j->has_comm) { (void)MPI_Comm_free(&j->comm); }
    if (j->began_mpi) { (void)MPI_Finalize(); }
}

static void destroy(job *j) {
    pthread_cond_destroy(&j->turn_ends);
    pthread_mutex_destroy(&j->lock);
    j->mem->free(j->mem->ctx, j->offers);
    j->mem->free(j->mem->ctx, j->requests);
    j->mem->free(j->mem->ctx, j);
}

/* ---- what each one has -------------------------------------------------------------------------- */

/* What the kernel can give to programs without swapping; UINT64_MAX: it does not say. */
static uint64_t free_bytes(void) {
    char line[128];
    unsigned long long kib = 0;
    uint64_t bytes = UINT64_MAX;
    FILE *file = fopen("/proc/meminfo", "re");
    if (file == NULL) { return bytes; }
    while (fgets(line, sizeof line, file) != NULL) {
        if (sscanf(line, "MemAvailable: %llu kB", &kib) == 1) { bytes = (uint64_t)kib * 1024; }
    }
    (void)fclose(file);
    return bytes;
}

static offer make_offer(const job *j, uint64_t lend_bytes) {
    char host[MPI_MAX_PROCESSOR_NAME] = "";
    int n = 0;
    offer mine = {.size_bytes = j->rank == 0 ? 0 : lend_bytes, .free_bytes = free_bytes()};
    (void)MPI_Get_processor_name(host, &n);
    (void)snprintf(mine.host, sizeof mine.host, "%.*s", HOST_BYTES - 1, host);
    return mine;
}

static ebb_status tell_all(job *j, const offer *mine, char why_out[EBB_MPI_WHY_BYTES]) {
    const int n = (int)sizeof *mine;
    const int error = MPI_Allgather(mine, n, MPI_BYTE, j->offers, n, MPI_BYTE, j->comm);
    return error == MPI_SUCCESS ? EBB_OK
                                : fail_mpi("the processes cannot tell each other what they have", error, why_out);
}

static ebb_status refuse(const job *j, int rank, const char *why, char why_out[EBB_MPI_WHY_BYTES]) {
    (void)snprintf(why_out, EBB_MPI_WHY_BYTES, "remote tier: rank %d on %s cannot lend %llu bytes: %s", rank,
                   j->offers[rank].host, (unsigned long long)j->offers[rank].size_bytes, why);
    return EBB_E_NO_MEMORY;
}

/* Whether the memory of each machine is enough for all that lend there. */
static ebb_status judge_sizes(const job *j, char why_out[EBB_MPI_WHY_BYTES]) {
    char why[128];
    for (int r = 1; r < j->n_ranks; r++) {
        uint64_t on_host = 0;
        const offer *its = &j->offers[r];
        if (its->size_bytes > MOST_BYTES) { return refuse(j, r, "no machine has that much", why_out); }
        for (int other = 1; other <= r; other++) {
            if (strcmp(j->offers[other].host, its->host) == 0) { on_host += j->offers[other].size_bytes; }
        }
        if (on_host <= its->free_bytes) { continue; }
        (void)snprintf(why, sizeof why, "its machine has %llu free bytes for the %llu that are lent there",
                       (unsigned long long)its->free_bytes, (unsigned long long)on_host);
        return refuse(j, r, why, why_out);
    }
    return EBB_OK;
}

static bool have_all_windows(const job *j) {
    for (int r = 0; r < j->n_ranks; r++) {
        if (!j->offers[r].has_window) { return false; }
    }
    return true;
}

static ebb_status judge_problems(const job *j, char why_out[EBB_MPI_WHY_BYTES]) {
    for (int r = j->n_ranks - 1; r >= 0; r--) {
        if (j->offers[r].problem[0] != '\0') { return refuse(j, r, j->offers[r].problem, why_out); }
    }
    return EBB_OK;
}

/* ---- the window --------------------------------------------------------------------------------- */

static sigjmp_buf no_page;

static void on_no_page(int number) {
    siglongjmp(no_page, number);
}

/* Write each page once; whether the kernel had them all. */
static bool touch(unsigned char *memory, uint64_t size_bytes) {
    struct sigaction action = {.sa_handler = on_no_page}, before;
    volatile bool has_all = false;
    sigemptyset(&action.sa_mask);
    if (sigaction(SIGBUS, &action, &before) != 0) { return false; }
    if (sigsetjmp(no_page, 1) == 0) {
        memset(memory, 0, (size_t)size_bytes);
        has_all = true;
    }
    (void)sigaction(SIGBUS, &before, NULL);
    return has_all;
}

/* Allocate the window; what went wrong here is in the offer. */
static void make_window(job *j, offer *mine) {
    const uint64_t size_bytes = mine->size_bytes > 0 ? mine->size_bytes + ALIGN_BYTES : 0;
    const int error = MPI_Win_allocate((MPI_Aint)size_bytes, 1, MPI_INFO_NULL, j->comm, &j->memory, &j->window);
    if (error != MPI_SUCCESS) {
        char text[MPI_MAX_ERROR_STRING];
        describe(error, text, sizeof text);
        (void)snprintf(mine->problem, sizeof mine->problem, "%.60s; on one machine /dev/shm has to hold it", text);
        return;
    }
    (void)MPI_Win_set_errhandler(j->window, MPI_ERRORS_RETURN);
    mine->has_window = true;
    if (size_bytes == 0) { return; }
    mine->pad_bytes = (ALIGN_BYTES - (uintptr_t)j->memory % ALIGN_BYTES) % ALIGN_BYTES;
    if (!touch(j->memory, size_bytes)) {
        (void)snprintf(mine->problem, sizeof mine->problem, "%s",
                       "its machine has too few pages for it; on one machine /dev/shm has to hold it");
    }
}

static ebb_status share_memory(job *j, uint64_t lend_bytes, char why_out[EBB_MPI_WHY_BYTES]) {
    offer mine = make_offer(j, lend_bytes);
    ebb_status status = tell_all(j, &mine, why_out);
    if (status == EBB_OK) { status = judge_sizes(j, why_out); }
    if (status != EBB_OK) { return status; }
    make_window(j, &mine);
    status = tell_all(j, &mine, why_out);
    j->has_window = status == EBB_OK && have_all_windows(j);
    if (status == EBB_OK) { status = judge_problems(j, why_out); }
    if (status != EBB_OK || j->rank != 0) { return status; }
    j->lenders_wait = true;
    const int error = MPI_Win_lock_all(MPI_MODE_NOCHECK, j->window);
    return error == MPI_SUCCESS ? EBB_OK : fail_mpi("the window cannot be used", error, why_out);
}

/* ---- moving ------------------------------------------------------------------------------------- */

static void take_turn(job *j) {
    pthread_mutex_lock(&j->lock);
    const uint64_t mine = j->next_turn++;
    while (j->turn != mine) { (void)pthread_cond_wait(&j->turn_ends, &j->lock); }
    pthread_mutex_unlock(&j->lock);
}

static void end_turn(job *j) {
    pthread_mutex_lock(&j->lock);
    j->turn++;
    (void)pthread_cond_broadcast(&j->turn_ends);
    pthread_mutex_unlock(&j->lock);
}

/* Some bytes of one rank. */
static int move_piece(job *j, bool out, void *memory, int n, int rank, uint64_t at) {
    const MPI_Aint place = (MPI_Aint)(j->offers[rank].pad_bytes + at);
    take_turn(j);
    int error = out ? MPI_Put(memory, n, MPI_BYTE, rank, place, n, MPI_BYTE, j->window)
                    : MPI_Get(memory, n, MPI_BYTE, rank, place, n, MPI_BYTE, j->window);
    if (error == MPI_SUCCESS) { error = MPI_Win_flush(rank, j->window); }
    end_turn(j);
    return error;
}

static bool move(void *ctx, bool out, void *memory, uint64_t n_bytes, uint64_t at, char why_out[EBB_REMOTE_WHY_BYTES]) {
    job *j = ctx;
    unsigned char *ptr = memory;
    int rank = 1;
    if (n_bytes == 0) { return true; }
    for (; at >= j->offers[rank].size_bytes; rank++) { at -= j->offers[rank].size_bytes; }
    while (n_bytes > 0) {
        const uint64_t left = j->offers[rank].size_bytes - at, most = left < PIECE_BYTES ? left : PIECE_BYTES;
        const uint64_t n = n_bytes < most ? n_bytes : most;
        const int error = move_piece(j, out, ptr, (int)n, rank, at);
        if (error != MPI_SUCCESS) {
            char text[MPI_MAX_ERROR_STRING];
            describe(error, text, sizeof text);
            (void)snprintf(why_out, EBB_REMOTE_WHY_BYTES, "rank %d on %s: %.150s", rank, j->offers[rank].host, text);
            return false;
        }
        ptr += n;
        at += n;
        n_bytes -= n;
        if (at == j->offers[rank].size_bytes) {
            at = 0;
            rank++;
        }
    }
    return true;
}

/* ---- rank 0's end ------------------------------------------------------------------------------- */

static void nap(void) {
    const struct timespec time = {.tv_nsec = NAP_NS};
    (void)nanosleep(&time, NULL);
}

static int64_t now_s(void) {
    struct timespec now = {.tv_sec = 0};
    (void)clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec;
}

/* Tell the others that it is over. Whether all have heard it. */
static bool say_end(job *j) {
    const int n = 2 * (j->n_ranks - 1);
    const int64_t until_s = now_s() + END_WAIT_S;
    int done = 0;
    for (int r = 1; r < j->n_ranks; r++) {
        MPI_Request *two = &j->requests[2 * (r - 1)];
        two[0] = two[1] = MPI_REQUEST_NULL;
        if (MPI_Irecv(NULL, 0, MPI_BYTE, r, TAG_GONE, j->comm, &two[0]) != MPI_SUCCESS ||
            MPI_Isend(NULL, 0, MPI_BYTE, r, TAG_END, j->comm, &two[1]) != MPI_SUCCESS) {
            return false;
        }
    }
    while (MPI_Testall(n, j->requests, &done, MPI_STATUSES_IGNORE) == MPI_SUCCESS && !done && now_s() < until_s) {
        nap();
    }
    return done != 0;
}

/* If one of the others is gone, what all have to do together cannot be done: then MPI ends with this process. */
static void close_job(void *ctx) {
    job *j = ctx;
    (void)MPI_Win_unlock_all(j->window);
    if (say_end(j)) { leave(j); }
    destroy(j);
}

static void wait_for_end(job *j) {
    MPI_Request end = MPI_REQUEST_NULL;
    int done = 0;
    int error = MPI_Irecv(NULL, 0, MPI_BYTE, 0, TAG_END, j->comm, &end);
    while (error == MPI_SUCCESS && !done) {
        error = MPI_Test(&end, &done, MPI_STATUS_IGNORE);
        if (j->on_one_machine && !done) { nap(); }
    }
    if (error == MPI_SUCCESS) { (void)MPI_Send(NULL, 0, MPI_BYTE, 0, TAG_GONE, j->comm); }
}

/* ---- entry -------------------------------------------------------------------------------------- */

static uint64_t sum_sizes(const job *j) {
    uint64_t size_bytes = 0;
    for (int r = 1; r < j->n_ranks; r++) { size_bytes += j->offers[r].size_bytes; }
    return size_bytes;
}

static ebb_status join(const ebb_mem *mem, uint64_t lend_bytes, ebb_mpi_joined *joined_out,
                       char why_out[EBB_MPI_WHY_BYTES]) {
    job *j = mem->alloc(mem->ctx, sizeof *j);
    if (j == NULL) {
        (void)snprintf(why_out, EBB_MPI_WHY_BYTES, "out of host memory");
        return EBB_E_NO_MEMORY;
    }
    memset(j, 0, sizeof *j);
    j->mem = mem;
    pthread_mutex_init(&j->lock, NULL);
    pthread_cond_init(&j->turn_ends, NULL);
    ebb_status status = begin_mpi(j, why_out);
    if (status == EBB_OK) { status = make_comm(j, why_out); }
    if (status == EBB_OK) { status = make_room(j, why_out); }
    if (status == EBB_OK) { status = share_memory(j, lend_bytes, why_out); }
    if (status == EBB_OK && j->rank == 0) {
        *joined_out = (ebb_mpi_joined){.ctx = j, .size_bytes = sum_sizes(j), .ops = EBB_REMOTE_OPS_INIT};
        joined_out->ops.move = move;
        joined_out->ops.close = close_job;
        return EBB_OK;
    }
    if (status == EBB_OK) { wait_for_end(j); }
    if (status == EBB_E_NO_MEMORY && j->rank != 0) { status = EBB_OK; } /* rank 0 says it */
    if (!j->lenders_wait || say_end(j)) { leave(j); }
    destroy(j);
    return status;
}

EBB_API const ebb_mpi_plugin ebb_mpi_plugin_table;
const ebb_mpi_plugin ebb_mpi_plugin_table = {.abi = EBB_MPI_PLUGIN_ABI, .join = join};
