/* SPDX-License-Identifier: Apache-2.0
 *
 * Placement, one line a problem and solver: how near to the bound, in how much of the processor's time (solvers have
 * one thread, and a shared machine's clock would tell of others).
 *
 *     bench_place [csv] [solver=NAME] [steps=N] [seed=N] PROBLEM...
 *
 * A PROBLEM is a file of 'id,lower,upper,size' lines, or KIND:N, made by place_instances.c, or 'table': all kinds of a
 * thousand, ten thousand ... a million items. No PROBLEM lists the kinds. A row has the commit of the working
 * directory's repository and the machine. With csv, problems are printed as `ebb place` reads
 * them, and not placed.
 */
#include "place_instances.h"

#include "base/base.h"

#include <stdlib.h>
#include <time.h>

#define MAX_TABLE_ITEMS ((size_t)1000 * 1000)

typedef struct bench {
    ebb_place_options options;
    uint64_t seed;
    bool as_csv;
    char commit[64], machine[128];
} bench;

/* ---- where rows come from --------------------------------------------------------------------- */

static void find_commit(bench *b) {
    FILE *git = popen("git describe --always --dirty 2>/dev/null", "r");
    if (git == NULL) { return; }
    if (fgets(b->commit, sizeof b->commit, git) != NULL) { b->commit[strcspn(b->commit, "\n")] = '\0'; }
    (void)pclose(git);
}

static void find_machine(bench *b) {
    FILE *info = fopen("/proc/cpuinfo", "r");
    char line[256];
    if (info == NULL) { return; }
    while (b->machine[0] == '\0' && fgets(line, sizeof line, info) != NULL) {
        (void)sscanf(line, "model name : %127[^\n\"]", b->machine);
    }
    (void)fclose(info);
}

/* ---- problems --------------------------------------------------------------------------------- */

static bool read_items(const char *path, ebb_place_item **items_out, size_t *n_out) {
    FILE *f = fopen(path, "r");
    char line[256], id[100];
    EBB_VEC(ebb_place_item) items = {0};
    if (f == NULL) { return false; }
    while (fgets(line, sizeof line, f) != NULL) {
        unsigned long long first = 0, last = 0, size = 0;
        if (sscanf(line, "%99[^,],%llu,%llu,%llu", id, &first, &last, &size) != 4) { continue; }
        const ebb_place_item item = {.size_bytes = size, .first = first, .last = last};
        if (EBB_PUSH(NULL, &items, item) != EBB_OK) { break; }
    }
    (void)fclose(f);
    *items_out = items.data;
    *n_out = items.n;
    return true;
}

static bool get_items(const bench *b, const char *name, ebb_place_item **items_out, size_t *n_out) {
    char kind[32] = "";
    unsigned long long n = 0;
    if (sscanf(name, "%31[a-z]:%llu", kind, &n) == 2) {
        return ebb_bench_make_items(kind, (size_t)n, b->seed, items_out, n_out);
    }
    return read_items(name, items_out, n_out);
}

static int print_problem(ebb_place_item *items, size_t n) {
    (void)printf("id,lower,upper,size\n");
    for (size_t i = 0; i < n; i++) {
        (void)printf("%zu,%llu,%llu,%llu\n", i, (unsigned long long)items[i].first, (unsigned long long)items[i].last,
                     (unsigned long long)items[i].size_bytes);
    }
    free(items);
    return 0;
}

static int run_problem(const bench *b, const char *name) {
    ebb_place_problem p = EBB_PLACE_PROBLEM_INIT;
    ebb_place_item *items = NULL;
    if (!get_items(b, name, &items, &p.n_items)) {
        (void)fprintf(stderr, "bench_place: %s: no such file or kind\n", name);
        return 2;
    }
    if (b->as_csv) { return print_problem(items, p.n_items); }
    p.items = items;
    uint64_t *offsets = calloc(p.n_items + 1, sizeof *offsets), checked = 0;
    ebb_place_result r = {0};
    const clock_t begin = clock();
    ebb_status st = ebb_place_solve(&p, &b->options, offsets, &r);
    const double seconds = (double)(clock() - begin) / CLOCKS_PER_SEC;
    if (st == EBB_OK) { st = ebb_place_check(&p, NULL, offsets, &checked); }
    if (st != EBB_OK || checked != r.peak_bytes) {
        (void)fprintf(stderr, "bench_place: %s: %s\n", name, ebb_last_error());
    } else {
        const char *solver = b->options.solver != NULL ? b->options.solver : "best";
        (void)printf("%s,\"%s\",%s,%zu,%s,%llu,%llu,%.6f,%d,%.3f,%llu\n", b->commit, b->machine, name, p.n_items,
                     solver, (unsigned long long)r.peak_bytes, (unsigned long long)r.bound_bytes,
                     (double)r.peak_bytes / (double)r.bound_bytes, r.peak_bytes == r.bound_bytes, seconds,
                     (unsigned long long)r.n_steps);
        (void)fflush(stdout);
    }
    free(items);
    free(offsets);
    return st == EBB_OK ? 0 : 1;
}

static int run_table(const bench *b) {
    int status = 0;
    for (size_t k = 0; ebb_bench_kind(k, NULL) != NULL; k++) {
        for (size_t n = 1000; n <= MAX_TABLE_ITEMS; n *= 10) {
            char name[64];
            (void)snprintf(name, sizeof name, "%s:%zu", ebb_bench_kind(k, NULL), n);
            const int st = run_problem(b, name);
            status = st > status ? st : status;
        }
    }
    return status;
}

static int list_kinds(void) {
    const char *about = NULL;
    for (size_t k = 0; ebb_bench_kind(k, &about) != NULL; k++) {
        (void)printf("%s: %s\n", ebb_bench_kind(k, NULL), about);
    }
    return 2;
}

int main(int argc, char **argv) {
    bench b = {.options = EBB_PLACE_OPTIONS_INIT, .seed = 1, .as_csv = argc >= 2 && strcmp(argv[1], "csv") == 0};
    int status = argc < 2 ? list_kinds() : 0;
    find_commit(&b);
    find_machine(&b);
    if (argc >= 2 && !b.as_csv) {
        (void)printf("commit,machine,problem,items,solver,peak_bytes,bound_bytes,ratio,optimal,cpu_s,steps\n");
    }
    for (int i = b.as_csv ? 2 : 1; i < argc; i++) {
        if (strncmp(argv[i], "solver=", 7) == 0) {
            b.options.solver = argv[i] + 7;
        } else if (strncmp(argv[i], "steps=", 6) == 0) {
            b.options.max_steps = strtoull(argv[i] + 6, NULL, 10);
        } else if (strncmp(argv[i], "seed=", 5) == 0) {
            b.seed = strtoull(argv[i] + 5, NULL, 10);
        } else {
            const int st = strcmp(argv[i], "table") == 0 ? run_table(&b) : run_problem(&b, argv[i]);
            status = st > status ? st : status;
        }
    }
    return status;
}
