/* SPDX-License-Identifier: Apache-2.0
 *
 * Whether a tier of compressed memory would pay. A network is trained on `cpu` with the policy none, which keeps every
 * tensor of an iteration. Then each tensor that a budget would move is compressed as it lies in the arena, in pieces of
 * 256 KiB on one core: those that the policy swap copies out at half of what liveness needs, or at the least budget
 * where that is more. One row for each role and kind of step that writes the tensors: bytes, the share of zeros among
 * 32-bit words, the ratio and the bytes per second of processor time each way, for
 *
 *      lz4    LZ4_compress_fast of acceleration 1, which is LZ4_compress_default
 *      zeros  a bit for each 32-bit word, and the words that are not zero: the least that a codec for zeros does
 *
 *      bench_compress NET BATCH IMAGE STEPS DATA        IMAGE 0: the network's; DATA as `ebb train --data`
 */
#include "backend/host_memory.h"
#include "program/program.h"
#include "run/run.h"
#include "train/trainer_priv.h"

#include <lz4.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define PIECE_BYTES ((size_t)1 << 18)
#define LEAST_BYTES ((uint64_t)1 << 14) /* of a tensor */
#define MAX_GROUPS 64

typedef enum codec { CODEC_LZ4, CODEC_ZEROS, N_CODECS } codec;
static const char *const codec_names[N_CODECS] = {"lz4", "zeros"};

typedef struct group {
    const char *role, *kind;
    uint64_t n_tensors, bytes, n_words, n_zeros;
    uint64_t packed_bytes[N_CODECS];
    double out_s[N_CODECS], in_s[N_CODECS];
} group;

typedef struct findings {
    group groups[MAX_GROUPS];
    size_t n;
    unsigned char packed[2 * PIECE_BYTES], back[PIECE_BYTES];
} findings;

static void check(ebb_status status) {
    if (status == EBB_OK) { return; }
    fprintf(stderr, "bench_compress: %s\n", ebb_last_error());
    exit(1);
}

static double cpu_s(void) {
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

/* ---- a codec for zeros --------------------------------------------------------------------------- */

/* 64 words at a time: their bits, then those that are not zero. Every word is written, and the place of the next one
 * goes on only if it is not zero: there is nothing to predict. */
static size_t pack_zeros(const unsigned char *src, size_t n, unsigned char *dst) {
    unsigned char *at = dst;
    for (size_t i = 0; i < n; i += 256) {
        const size_t n_words = (n - i < 256 ? n - i : 256) / 4;
        unsigned char *bits_at = at;
        uint64_t bits = 0;
        at += sizeof bits;
        for (size_t w = 0; w < n_words; w++) {
            uint32_t word;
            memcpy(&word, src + i + 4 * w, sizeof word);
            memcpy(at, &word, sizeof word);
            bits |= (uint64_t)(word != 0) << w;
            at += word != 0 ? sizeof word : 0;
        }
        memcpy(bits_at, &bits, sizeof bits);
    }
    return (size_t)(at - dst);
}

static void unpack_zeros(const unsigned char *src, size_t n, unsigned char *dst) {
    for (size_t i = 0; i < n; i += 256) {
        const size_t n_words = (n - i < 256 ? n - i : 256) / 4;
        uint64_t bits;
        memcpy(&bits, src, sizeof bits);
        src += sizeof bits;
        for (size_t w = 0; w < n_words; w++) {
            uint32_t word;
            const uint32_t is_there = (uint32_t)(bits >> w & 1);
            memcpy(&word, src, sizeof word);
            word &= 0u - is_there;
            memcpy(dst + i + 4 * w, &word, sizeof word);
            src += sizeof word * is_there;
        }
    }
}

static size_t pack(codec c, const unsigned char *src, size_t n, findings *f) {
    if (c == CODEC_ZEROS) { return pack_zeros(src, n, f->packed); }
    return (size_t)LZ4_compress_default((const char *)src, (char *)f->packed, (int)n, sizeof f->packed);
}

static void unpack(codec c, size_t packed_bytes, size_t n, findings *f) {
    if (c == CODEC_ZEROS) {
        unpack_zeros(f->packed, n, f->back);
        return;
    }
    const int got = LZ4_decompress_safe((const char *)f->packed, (char *)f->back, (int)packed_bytes, (int)n);
    if (got != (int)n) { check(ebb_fail(EBB_E_INTERNAL, "lz4: %d bytes came back of %zu", got, n)); }
}

/* ---- a tensor ------------------------------------------------------------------------------------ */

static void measure_piece(const unsigned char *src, size_t n, group *g, findings *f) {
    for (size_t w = 0; w < n / 4; w++) {
        uint32_t word;
        memcpy(&word, src + 4 * w, sizeof word);
        g->n_zeros += word == 0;
    }
    g->n_words += n / 4;
    for (codec c = 0; c < N_CODECS; c++) {
        const double begin_s = cpu_s();
        const size_t packed_bytes = pack(c, src, n, f);
        const double packed_s = cpu_s();
        unpack(c, packed_bytes, n, f);
        g->in_s[c] += cpu_s() - packed_s;
        g->out_s[c] += packed_s - begin_s;
        g->packed_bytes[c] += packed_bytes < n ? packed_bytes : n; /* what does not shrink is kept as it is */
        if (memcmp(f->back, src, n) != 0) { check(ebb_fail(EBB_E_INTERNAL, "%s: other bytes", codec_names[c])); }
    }
}

static group *find_group(findings *f, const char *role, const char *kind) {
    for (size_t i = 0; i < f->n; i++) {
        if (strcmp(f->groups[i].role, role) == 0 && strcmp(f->groups[i].kind, kind) == 0) { return &f->groups[i]; }
    }
    if (f->n == MAX_GROUPS) { check(ebb_fail(EBB_E_LIMIT, "more than %d groups", MAX_GROUPS)); }
    f->groups[f->n] = (group){.role = role, .kind = kind};
    return &f->groups[f->n++];
}

/* The kind of the last step that writes each tensor: what is in the arena when the iteration has ended. */
static const char **find_writers(const ebb_program *program, size_t n_tensors) {
    size_t n_steps = 0;
    const ebb_step *steps = ebb_program_steps(program, &n_steps);
    const char **kinds = calloc(n_tensors, sizeof *kinds);
    if (kinds == NULL) { check(EBB_E_NO_MEMORY); }
    for (size_t s = 0; s < n_steps; s++) {
        for (uint32_t i = 0; i < steps[s].n_accesses; i++) {
            const ebb_access *access = &program->accesses.data[steps[s].first_access + i];
            if ((access->mode & EBB_WRITE) != 0) { kinds[access->tensor] = steps[s].kind; }
        }
    }
    return kinds;
}

/* Which tensors a plan copies out. */
static bool *find_leaving(ebb_session *session, size_t n_tensors) {
    ebb_plan_options options;
    ebb_plan *plan = NULL;
    ebb_no_fit no_fit = {0};
    uint64_t liveness_bytes = 0;
    size_t n = 0;
    bool *leaves = calloc(n_tensors, sizeof *leaves);
    if (leaves == NULL) { check(EBB_E_NO_MEMORY); }
    check(ebb_session_plan_options(session, &options));
    check(ebb_session_liveness_bytes(session, &liveness_bytes));
    options.policy = "swap";
    options.budget_bytes = liveness_bytes / 2;
    ebb_status status = ebb_plan_make(session->program, session->machine, &options, &plan, &no_fit);
    if (status == EBB_E_NO_FIT) {
        options.budget_bytes = no_fit.least_budget_bytes;
        status = ebb_plan_make(session->program, session->machine, &options, &plan, NULL);
    }
    check(status);
    const ebb_action *actions = ebb_plan_actions(plan, &n);
    for (size_t a = 0; a < n; a++) {
        if (actions[a].kind == EBB_ACT_OUT) { leaves[actions[a].target] = true; }
    }
    ebb_plan_destroy(plan);
    return leaves;
}

static void measure_tensors(const ebb_trainer *trainer, findings *f) {
    size_t n_tensors = 0, n_stays = 0;
    const ebb_program *program = trainer->session->program;
    const ebb_tensor *tensors = ebb_program_tensors(program, &n_tensors);
    const ebb_stay *stays = ebb_plan_stays(trainer->plan, &n_stays);
    const char **writers = find_writers(program, n_tensors);
    bool *leaves = find_leaving(trainer->session, n_tensors);
    for (size_t i = 0; i < n_stays; i++) {
        const uint32_t t = stays[i].tensor;
        if (t == EBB_SCRATCH || !leaves[t] || stays[i].size_bytes < LEAST_BYTES) { continue; }
        const unsigned char *src =
            ebb__host_address((ebb_buf){.arena = trainer->arena->memory, .offset = stays[i].offset});
        group *g = find_group(f, ebb_role_name(tensors[t].role), writers[t] != NULL ? writers[t] : "none");
        g->n_tensors++;
        g->bytes += stays[i].size_bytes;
        for (uint64_t at = 0; at < stays[i].size_bytes; at += PIECE_BYTES) {
            measure_piece(src + at, (size_t)ebb_min_u64(PIECE_BYTES, stays[i].size_bytes - at), g, f);
        }
    }
    free(leaves);
    free(writers);
}

/* All groups as one more. */
static void add_up(findings *f) {
    group *all = find_group(f, "all", "all");
    for (size_t i = 0; i + 1 < f->n; i++) {
        const group *g = &f->groups[i];
        all->n_tensors += g->n_tensors;
        all->bytes += g->bytes;
        all->n_words += g->n_words;
        all->n_zeros += g->n_zeros;
        for (codec c = 0; c < N_CODECS; c++) {
            all->packed_bytes[c] += g->packed_bytes[c];
            all->out_s[c] += g->out_s[c];
            all->in_s[c] += g->in_s[c];
        }
    }
}

static void print_groups(const findings *f, char **argv) {
    const size_t n_kind = strcspn(argv[5], ":"); /* of the data, without its place */
    puts("network,batch,data,steps,role,written_by,tensors,bytes,zeros,codec,ratio,out_gb_s,in_gb_s");
    for (size_t i = 0; i < f->n; i++) {
        const group *g = &f->groups[i];
        for (codec c = 0; c < N_CODECS; c++) {
            printf("%s,%s,%.*s,%s,%s,%s,%llu,%llu,%.3f,%s,%.3f,%.2f,%.2f\n", argv[1], argv[2], (int)n_kind, argv[5],
                   argv[4], g->role, g->kind, (unsigned long long)g->n_tensors, (unsigned long long)g->bytes,
                   (double)g->n_zeros / (double)g->n_words, codec_names[c],
                   (double)g->bytes / (double)g->packed_bytes[c], (double)g->bytes / 1e9 / g->out_s[c],
                   (double)g->bytes / 1e9 / g->in_s[c]);
        }
    }
}

int main(int argc, char **argv) {
    static findings f;
    ebb_trainer_options options = EBB_TRAINER_OPTIONS_INIT;
    ebb_trainer *trainer = NULL;
    ebb_step_result step;
    bool done = false;
    if (argc != 6) {
        fprintf(stderr, "usage: bench_compress NET BATCH IMAGE STEPS DATA\n");
        return 2;
    }
    options.session.net = argv[1];
    options.session.batch = strtoll(argv[2], NULL, 10);
    options.session.height = options.session.width = strtoll(argv[3], NULL, 10);
    options.session.backend = "cpu";
    options.session.policy = "none";
    options.n_steps = strtoull(argv[4], NULL, 10);
    options.data = argv[5];
    check(ebb_trainer_create(&options, &trainer, NULL, NULL));
    while (!done) { check(ebb_trainer_step(trainer, &step, &done)); }
    measure_tensors(trainer, &f);
    add_up(&f);
    print_groups(&f, argv);
    ebb_trainer_destroy(trainer);
    return 0;
}
