/* SPDX-License-Identifier: Apache-2.0
 *
 * A program that allocates in a known way, for test_record.sh: the first argument says which. What it prints is what it
 * found; what it took stands in the test.
 */
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <malloc.h>
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#define K ((size_t)1024)
#define M (K * K)

#define SYMBOL(library, name, ...)                                                                                     \
    int (*name)(__VA_ARGS__) = NULL;                                                                                   \
    *(void **)&name = dlsym(library, #name)

/* noinline, so that it is a frame of its own. */
__attribute__((noinline, visibility("default"))) void *take_here(size_t n_bytes);
void *take_here(size_t n_bytes) {
    void *memory = malloc(n_bytes);
    __asm__ volatile("" : : "r"(memory) : "memory");
    return memory;
}

static int do_family(void) {
    void *a = take_here(100 * K), *b = calloc(100, 2 * K), *c = realloc(NULL, 300 * K), *d = NULL;
    void *e = aligned_alloc(4096, 400 * K), *f = malloc(1000);
    if (posix_memalign(&d, 64, 500 * K) != 0) { return 1; }
    c = realloc(c, 600 * K);
    f = realloc(f, 700 * K);
    f = realloc(f, 10);
    free(a);
    free(b);
    free(c);
    free(d);
    free(e);
    free(f);
    volatile size_t too_many = SIZE_MAX / 2;
    return calloc(too_many, 4) != NULL || reallocarray(NULL, too_many, 4) != NULL;
}

static int do_mmap(void) {
    char *a = mmap(NULL, 8 * M, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    char *reserved = mmap(NULL, 64 * M, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    munmap(a + 2 * M, 1 * M); /* leaves 2 MiB and 5 MiB */
    a = mremap(a, 2 * M, 3 * M, MREMAP_MAYMOVE);
    munmap(reserved, 64 * M);
    return a == MAP_FAILED;
}

/* A block that cannot be moved is still there, and goes. */
static int do_stuck(void) {
    char *a = mmap(NULL, 1 * M, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    const bool moved = mremap(a, 1 * M, M * M, 0) != MAP_FAILED;
    return moved || munmap(a, 1 * M) != 0;
}

/* A program that closes all that it can, and has files of its own then. */
static int do_close(void) {
    void *a = take_here(1 * M);
    for (int fd = 3; fd < 256; fd++) { (void)close(fd); }
    for (int i = 0; i < 8; i++) { (void)open("mine", O_WRONLY | O_CREAT | O_APPEND, 0666); }
    void *b = take_here(2 * M);
    free(a);
    free(b);
    return write(3, "mine", 4) != 4;
}

static void *allocate_a_lot(void *arg) {
    unsigned seed = (unsigned)(uintptr_t)arg;
    void *at[16] = {0};
    for (int i = 0; i < 20000; i++) {
        const unsigned k = (seed = seed * 1103515245u + 12345u) >> 16;
        void **slot = &at[k % 16];
        if (k % 5 == 0 && *slot != NULL) {
            void *grown = realloc(*slot, (seed >> 8) % (300 * K) + 1);
            *slot = grown != NULL ? grown : *slot;
        } else {
            free(*slot);
            *slot = malloc((seed >> 8) % (200 * K));
        }
    }
    for (int i = 0; i < 16; i++) { free(at[i]); }
    return NULL;
}

static int do_threads(void) {
    pthread_t threads[4];
    for (uintptr_t i = 0; i < 4; i++) { pthread_create(&threads[i], NULL, allocate_a_lot, (void *)(i + 1)); }
    for (int i = 0; i < 4; i++) { pthread_join(threads[i], NULL); }
    return 0;
}

static void map_some(int number) {
    (void)number;
    void *memory = mmap(NULL, 1 * M, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    munmap(memory, 1 * M);
}

static int do_signals(void) {
    struct itimerval often = {{0, 200}, {0, 200}}, never = {{0, 0}, {0, 0}};
    signal(SIGALRM, map_some);
    setitimer(ITIMER_REAL, &often, NULL);
    allocate_a_lot((void *)7);
    setitimer(ITIMER_REAL, &never, NULL);
    return 0;
}

static void fork_one(int number) {
    (void)number;
    const pid_t pid = fork();
    if (pid == 0) { _exit(0); }
    while (waitpid(pid, NULL, 0) < 0 && errno == EINTR) {}
}

/* A handler that forks, most often while this thread is in the recorder. */
static int do_handler(void) {
    struct itimerval often = {{0, 2000}, {0, 2000}}, never = {{0, 0}, {0, 0}};
    signal(SIGALRM, fork_one);
    setitimer(ITIMER_REAL, &often, NULL);
    for (int i = 0; i < 20000; i++) { free(take_here(100 * K)); }
    setitimer(ITIMER_REAL, &never, NULL);
    return 0;
}

static int is_child;

static void fork_another(int number) {
    (void)number;
    const pid_t pid = fork();
    is_child |= pid == 0;
    while (pid > 0 && waitpid(pid, NULL, 0) < 0 && errno == EINTR) {}
}

static void *map_a_lot(void *arg) {
    for (;;) { map_some(0); }
    return arg;
}

/* The same while another thread most often has the recorder's lock; each child goes on for a while. */
static int do_handler_beside(void) {
    struct itimerval often = {{0, 2000}, {0, 2000}}, never = {{0, 0}, {0, 0}};
    sigset_t one;
    pthread_t beside;
    sigemptyset(&one);
    sigaddset(&one, SIGALRM);
    pthread_sigmask(SIG_BLOCK, &one, NULL);
    pthread_create(&beside, NULL, map_a_lot, NULL);
    signal(SIGALRM, fork_another);
    setitimer(ITIMER_REAL, &often, NULL);
    pthread_sigmask(SIG_UNBLOCK, &one, NULL);
    for (int i = 0, n_more = 10; i < 5000 && n_more > 0; i++) {
        map_some(0);
        n_more -= is_child;
    }
    setitimer(ITIMER_REAL, &never, NULL);
    _exit(0); /* the other thread goes on to the end */
}

static int lowest_free_fd(void) {
    const int fd = dup(STDOUT_FILENO);
    (void)close(fd);
    return fd;
}

static int do_fork(void) {
    const int free_fd = lowest_free_fd();
    void *a = take_here(1 * M);
    if (fork() == 0) {
        if (lowest_free_fd() != free_fd) { _exit(3); } /* it has not kept its parent's recording open */
        free(a);
        a = take_here(2 * M);
        exit(0);
    }
    int status = 0;
    wait(&status);
    free(a);
    return status;
}

static int do_aligned(void) {
    void *a = memalign(4096, 100 * K), *b = valloc(200 * K), *c = reallocarray(NULL, 3, 100 * K), *d = NULL;
    void *small = aligned_alloc(64, 640);
    int wrong = posix_memalign(&d, 3, 400 * K) != EINVAL; /* no power of two */
    wrong += ((uintptr_t)a | (uintptr_t)b) % 4096 != 0;
    c = reallocarray(c, 5, 100 * K);
    free(a);
    free(b);
    free(c);
    free(small);
    return wrong;
}

#define MAP(at, n, protection, flags) mmap(at, n, protection, MAP_PRIVATE | MAP_ANONYMOUS | (flags), -1, 0)

/* Over a part of what is there, over all of it, where it fails, and where nothing may be. */
static int do_fixed(void) {
    const int rw = PROT_READ | PROT_WRITE;
    char *a = MAP(NULL, 8 * M, rw, 0), *odd = MAP(NULL, 100 * K - 1, rw, 0);
    int wrong = MAP(a + 2 * M, 1 * M, rw, MAP_FIXED) != a + 2 * M;     /* 2, 5 and 1 MiB */
    wrong += MAP(a + 4 * M, 1 * M, PROT_NONE, MAP_FIXED) != a + 4 * M; /* 1 and 3 of the 5 */
    wrong += MAP(a + 1, 1 * M, rw, MAP_FIXED) != MAP_FAILED;           /* stays as it is */
    wrong += MAP(a, 1 * M, rw, MAP_FIXED_NOREPLACE) != MAP_FAILED;     /* the same */
    wrong += munmap(a + 1, 1 * M) == 0;                                /* the same */
    wrong += munmap(odd, 97 * K) != 0;                                 /* leaves nothing: pages are whole */
    return wrong + munmap(a, 8 * M);
}

/* A part moved away, moved over another one, and moved without leaving. */
static int do_remap(void) {
    const int rw = PROT_READ | PROT_WRITE;
    char *a = MAP(NULL, 8 * M, rw, 0), *b = MAP(NULL, 1 * M, rw, 0), *room = MAP(NULL, 16 * M, PROT_NONE, 0);
    char *c = mremap(a + 2 * M, 1 * M, 1 * M, MREMAP_MAYMOVE | MREMAP_FIXED, room); /* 2 and 5 stay, 1 there */
    char *d = mremap(b, 1 * M, 1 * M, MREMAP_MAYMOVE | MREMAP_FIXED, c);            /* over it */
    char *e = mremap(d, 1 * M, 1 * M, MREMAP_MAYMOVE | MREMAP_DONTUNMAP);
    const int wrong = c != room || d != c || e == MAP_FAILED || e == d;
    return wrong + munmap(a, 8 * M) + munmap(room, 16 * M) + munmap(e, 1 * M);
}

/* Thousands of mappings that live at once, and go in another order, each third in two halves. */
static int do_many(void) {
    enum { N = 3000 };
    char *at[N];
    for (int i = 0; i < N; i++) {
        at[i] = MAP(NULL, 256 * K, PROT_READ | (i % 2 != 0 ? PROT_WRITE : PROT_WRITE | PROT_EXEC), 0);
    }
    for (int i = 0; i < N; i++) {
        char *gone = at[i * 1009 % N];
        const size_t n_first = i % 3 == 0 ? 128 * K : 256 * K;
        if (munmap(gone, n_first) != 0 || (n_first < 256 * K && munmap(gone + n_first, 128 * K) != 0)) { return 1; }
    }
    return 0;
}

static int do_exec(char *self) {
    void *a = take_here(1 * M);
    char *args[] = {self, "family", NULL};
    if (a != NULL) { execv(self, args); }
    return 1;
}

/* Without fork's handlers the child has the parent's file, and must leave it alone. */
static int do_clone(void) {
    void *a = take_here(1 * M);
    const pid_t pid = (pid_t)syscall(SYS_clone, SIGCHLD, NULL, NULL, NULL, NULL);
    if (pid == 0) {
        void *b = take_here(2 * M);
        _exit(b == NULL);
    }
    int status = 0;
    waitpid(pid, &status, 0);
    free(a);
    return status;
}

/* Until a signal ends it. */
static int do_wait(void) {
    void *a = take_here(1 * M);
    (void)!write(STDOUT_FILENO, "ready\n", 6);
    while (a != NULL) { pause(); }
    return 0;
}

#ifdef EARLY
static void *(*early_malloc)(size_t);
static void *before_main;

static void take_before_main(void) {
    *(void **)&early_malloc = dlsym(RTLD_DEFAULT, "malloc");
    before_main = early_malloc(2 * M);
}
__attribute__((section(".preinit_array"), used)) static void (*const first)(void) = take_before_main;

int early_is_there(void);

static int do_early(void) {
    return !early_is_there() || before_main == NULL;
}
#endif

static int do_own(void) {
    void *library = dlopen("./own.so", RTLD_NOW | RTLD_LOCAL);
    void *(*own_malloc)(size_t) = NULL;
    void (*own_free)(void *) = NULL;
    *(void **)&own_malloc = dlsym(library, "malloc");
    *(void **)&own_free = dlsym(library, "free");
    void *a = own_malloc(1 * M), *b = own_malloc(1 * M), *c = take_here(500 * K);
    own_free(b);
    own_free(a);
    free(c);
    return (char *)b != (char *)a + 1 * M;
}

static int do_limit(void) {
    void *a = malloc(6 * M), *b = malloc(6 * M);
    const int cause = errno;
    void *c = realloc(a, 20 * M);
    void *d = mmap(NULL, 8 * M, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    void *e = malloc(3 * M);
    printf("%d %d %d %d %d\n", a != NULL, b == NULL && cause == ENOMEM, c == NULL, d == MAP_FAILED, e != NULL);
    free(c != NULL ? c : a);
    a = malloc(6 * M);
    printf("%d\n", a != NULL);
    return 0;
}

static int do_cuda(void *runtime) {
    uint64_t a = 0, b = 0, c = 0, d = 0;
    size_t free_bytes = 0, total_bytes = 0;
    SYMBOL(runtime, cudaMalloc, uint64_t *, size_t);
    SYMBOL(runtime, cudaMallocAsync, uint64_t *, size_t, void *);
    SYMBOL(runtime, cudaMallocHost, uint64_t *, size_t);
    SYMBOL(runtime, cudaFree, uint64_t);
    SYMBOL(runtime, cudaFreeHost, uint64_t);
    SYMBOL(runtime, cudaMemGetInfo, size_t *, size_t *);
    const int first = cudaMalloc(&a, 4 * M), second = cudaMallocAsync(&b, 3 * M, NULL);
    const int third = cudaMallocHost(&c, 20 * M), fourth = cudaMalloc(&d, 5 * M);
    cudaMemGetInfo(&free_bytes, &total_bytes);
    printf("%d %d %d %d, %zu of %zu MiB\n", first, second, third, fourth, free_bytes / M, total_bytes / M);
    cudaFree(a);
    if (fourth == 0) { cudaFree(d); }
    return cudaFree(b) + cudaFreeHost(c);
}

/* One after the other, at this many addresses that of any filter of addresses each part is hit, and none is freed. */
static int do_null(void *runtime) {
    int wrong = 0;
    SYMBOL(runtime, cudaMalloc, uint64_t *, size_t);
    SYMBOL(runtime, cudaFree, uint64_t);
    for (int i = 0; i < 40000; i++) {
        uint64_t a = 0;
        wrong += cudaMalloc(&a, 100 * K) + cudaFree(0) + cudaFree(a);
    }
    return wrong;
}

#ifdef LINKED
int cudaMalloc(uint64_t *out, size_t n);
int cudaFree(uint64_t at);

static int do_linked(void) {
    uint64_t a = 0;
    return cudaMalloc(&a, 2 * M) + cudaFree(a);
}
#endif

static int do_driver(void) {
    void *driver = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    uint64_t handle = 0, a = 0;
    const int prop[4] = {1, 0, 1, 2};
    int (*take)(uint64_t *, size_t, void *) = NULL;
    SYMBOL(driver, cuGetProcAddress_v2, const char *, void **, int, uint64_t, int *);
    SYMBOL(driver, cuMemCreate, uint64_t *, size_t, const int *, unsigned long long);
    SYMBOL(driver, cuMemMap, uint64_t, size_t, size_t, uint64_t, unsigned long long);
    SYMBOL(driver, cuMemUnmap, uint64_t, size_t);
    SYMBOL(driver, cuMemRelease, uint64_t);
    SYMBOL(driver, cuMemFreeAsync, uint64_t, void *);
    cuMemCreate(&handle, 2 * M, prop, 0);
    cuMemMap(0x1000000, 1 * M, 0, handle, 0);
    cuMemMap(0x2000000, 1 * M, 1 * M, handle, 0);
    cuMemRelease(handle);
    cuMemUnmap(0x1000000, 1 * M);
    cuGetProcAddress_v2("cuMemAllocAsync", (void **)&take, 12000, 2, NULL);
    take(&a, 7 * M, NULL); /* while the handle lives */
    cuMemUnmap(0x2000000, 1 * M);
    return cuMemFreeAsync(a, NULL);
}

/* Many small ones, for the cost. */
static int do_small(void) {
    void *at[1000] = {0};
    for (int i = 0; i < 20000000; i++) {
        void **slot = &at[(unsigned)i * 2654435761u % 1000];
        free(*slot);
        *slot = malloc(16 + (unsigned)i % 500);
    }
    return 0;
}

static int do_large(void) {
    for (int i = 0; i < 200000; i++) { free(take_here(100 * K)); }
    return 0;
}

int main(int argc, char **argv) {
    const char *what = argc > 1 ? argv[1] : "";
    if (strcmp(what, "family") == 0) { return do_family(); }
    if (strcmp(what, "mmap") == 0) { return do_mmap(); }
    if (strcmp(what, "stuck") == 0) { return do_stuck(); }
    if (strcmp(what, "close") == 0) { return do_close(); }
    if (strcmp(what, "threads") == 0) { return do_threads(); }
    if (strcmp(what, "signals") == 0) { return do_signals(); }
    if (strcmp(what, "handler") == 0) { return do_handler(); }
    if (strcmp(what, "handler-beside") == 0) { return do_handler_beside(); }
    if (strcmp(what, "fork") == 0) { return do_fork(); }
    if (strcmp(what, "aligned") == 0) { return do_aligned(); }
    if (strcmp(what, "fixed") == 0) { return do_fixed(); }
    if (strcmp(what, "remap") == 0) { return do_remap(); }
    if (strcmp(what, "many") == 0) { return do_many(); }
    if (strcmp(what, "exec") == 0) { return do_exec(argv[0]); }
    if (strcmp(what, "clone") == 0) { return do_clone(); }
    if (strcmp(what, "wait") == 0) { return do_wait(); }
    if (strcmp(what, "own") == 0) { return do_own(); }
    if (strcmp(what, "limit") == 0) { return do_limit(); }
    if (strcmp(what, "cuda") == 0) { return do_cuda(dlopen("libcudart.so.12", RTLD_NOW | RTLD_LOCAL)); }
    if (strcmp(what, "null") == 0) { return do_null(dlopen("libcudart.so.12", RTLD_NOW | RTLD_LOCAL)); }
    if (strcmp(what, "driver") == 0) { return do_driver(); }
    if (strcmp(what, "small") == 0) { return do_small(); }
    if (strcmp(what, "large") == 0) { return do_large(); }
#ifdef EARLY
    if (strcmp(what, "early") == 0) { return do_early(); }
#endif
#ifdef LINKED
    if (strcmp(what, "linked") == 0) { return do_linked(); }
#endif
    return 2;
}
