/* SPDX-License-Identifier: Apache-2.0
 *
 * Replays stored inputs through a fuzz target without libFuzzer, so that whatever a fuzzer once found, and the
 * seeds it started from, run in every test. Arguments name files; without any, all files of
 * tests/fuzz/corpus/<target> are run, from the project's root. A small one is also run cut off at each of its bytes.
 * No stored input at all is a failure. A target that misbehaves crashes the program or trips a sanitizer; reaching the
 * end is passing.
 */
#include <dirent.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>

#define MAX_CUT_BYTES ((size_t)1200)

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* A copy of the exact size, so that a sanitizer sees a read past the end. */
static void replay(const uint8_t *data, size_t size) {
    uint8_t *exact = malloc(size > 0 ? size : 1);
    if (exact == NULL) { exit(1); }
    for (size_t i = 0; i < size; i++) { exact[i] = data[i]; }
    LLVMFuzzerTestOneInput(exact, size);
    free(exact);
}

static int replay_file(const char *path) {
    FILE *file = fopen(path, "rb");
    if (file == NULL) {
        printf("not ok - replay %s: cannot be opened\n", path);
        return 1;
    }
    uint8_t *data = NULL;
    size_t size = 0, cap = 0, n = 0;
    do {
        if (size == cap) {
            cap = cap == 0 ? 65536 : 2 * cap;
            data = realloc(data, cap);
            if (data == NULL) { exit(1); }
        }
        n = fread(data + size, 1, cap - size, file);
        size += n;
    } while (n > 0);
    fclose(file);
    replay(data, size);
    for (size_t cut = 0; cut < size && size <= MAX_CUT_BYTES; cut++) { replay(data, cut); }
    free(data);
    return 0;
}

static int replay_corpus(const char *dir_path) {
    DIR *dir = opendir(dir_path);
    if (dir == NULL) {
        printf("not ok - replay %s: there is no such folder\n", dir_path);
        return 1;
    }
    int n_failed = 0, n_files = 0;
    for (struct dirent *entry = readdir(dir); entry != NULL; entry = readdir(dir)) {
        char path[4096];
        struct stat info;
        snprintf(path, sizeof path, "%s/%s", dir_path, entry->d_name);
        if (stat(path, &info) != 0 || !S_ISREG(info.st_mode)) { continue; }
        n_failed += replay_file(path);
        n_files++;
    }
    closedir(dir);
    if (n_files == 0) {
        printf("not ok - replay %s: the folder has no inputs\n", dir_path);
        return 1;
    }
    if (n_failed == 0) { printf("ok - replay %s (%d inputs)\n", dir_path, n_files); }
    return n_failed > 0;
}

int main(int argc, char **argv) {
    if (argc < 2) { return replay_corpus("tests/fuzz/corpus/" EBB_FUZZ_TARGET); }
    int n_failed = 0;
    for (int i = 1; i < argc; i++) { n_failed += replay_file(argv[i]); }
    return n_failed > 0;
}
