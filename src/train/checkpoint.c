/* SPDX-License-Identifier: Apache-2.0
 *
 * Checkpoints: a safetensors file of all persistent values (weights, statistics, the optimiser's) whose metadata
 * says where training stands and what it was. Order of data, augmentation and dropout are functions of seed,
 * epoch, batch and iteration, so the step's number is the generators' whole state.
 *
 * What must be the same to go on is a list of texts, made from the options on writing and again on reading; the
 * first that differs is named. Budget, policy, tiers and threads are not in it: they do not change a bit. The
 * learning rate and its schedule may be changed on purpose; that is logged. So is another choice of algorithms, which
 * may change the last bits from here on: where choices are the plan's, their hash stands beside the option.
 *
 * Two hashes tell a file that was damaged: one of all values, and one of all texts, without which one flipped bit could
 * be another step.
 */
#include "train/trainer_priv.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#define VERSION "2" /* 1 had no batches_before */
#define TEXT_BYTES 256
#define GIVEN "given"
#define TEXTS_HASH "texts_hash" /* of all others; older files have none */

typedef struct fact {
    const char *key;
    bool may_differ;
    const char *before; /* what it was in files that do not say it yet; NULL: all say it */
    char text[TEXT_BYTES];
} fact;

enum {
    FACT_NET,
    FACT_BATCH,
    FACT_IMAGE,
    FACT_OPTIMIZER,
    FACT_DATA,
    FACT_SEED,
    FACT_DROPOUT,
    FACT_RATE,
    FACT_ALGORITHMS,
    N_FACTS
};

typedef struct number_text {
    char buf[EBB_F64_BYTES];
} number_text;

/* Each float has a text of its own, the same in every locale: a checkpoint may be continued in another one. */
static number_text text_of(float number) {
    number_text text;
    (void)ebb__format_f64((double)number, 9, text.buf);
    return text;
}

static void describe_optimizer(const ebb_session_options *o, char text[TEXT_BYTES]) {
    const ebb_optimizer *p = &o->optimizer;
    if (o->keep_gradients) {
        (void)snprintf(text, TEXT_BYTES, "none");
    } else {
        (void)snprintf(text, TEXT_BYTES, "%s, momentum %s, beta %s %s, epsilon %s, weight decay %s",
                       ebb__optimizer_name(p->kind), text_of(p->momentum).buf, text_of(p->beta1).buf,
                       text_of(p->beta2).buf, text_of(p->epsilon).buf, text_of(p->weight_decay).buf);
    }
}

static void describe_rate(const ebb_trainer_options *o, char text[TEXT_BYTES]) {
    const ebb_lr_schedule *s = &o->schedule;
    (void)snprintf(text, TEXT_BYTES,
                   "%s, %s, warm-up %" PRIu64 ", total %" PRIu64 ", every %" PRIu64 " times %s, final %s",
                   text_of(o->learning_rate).buf, ebb__lr_schedule_name(s->kind), s->warmup_updates, s->total_updates,
                   s->step_updates, text_of(s->step_factor).buf, text_of(s->final_factor).buf);
}

/* The backend's choices are its own; all others depend on what was measured. */
static void describe_algorithms(const ebb_trainer *trainer, char text[TEXT_BYTES]) {
    size_t n = 0;
    uint64_t hash = EBB_HASH_INIT;
    const ebb_action *actions = ebb_plan_actions(trainer->plan, &n);
    for (size_t a = 0; a < n; a++) {
        if (actions[a].kind == EBB_ACT_RUN) { hash = ebb__hash(hash, &actions[a].choice, sizeof actions[a].choice); }
    }
    if (strcmp(trainer->session->options.algorithms, GIVEN) == 0) {
        (void)snprintf(text, TEXT_BYTES, "%s", GIVEN);
    } else {
        (void)snprintf(text, TEXT_BYTES, "%s, choices %016" PRIx64, trainer->session->options.algorithms, hash);
    }
}

static void collect(const ebb_trainer *trainer, fact facts[N_FACTS]) {
    static const char *const keys[N_FACTS] = {"net",  "batch",   "images",        "optimizer", "data",
                                              "seed", "dropout", "learning_rate", "algorithms"};
    const ebb_trainer_options *o = &trainer->options;
    const ebb_session_options *s = &trainer->session->options;
    for (int f = 0; f < N_FACTS; f++) {
        facts[f] = (fact){.key = keys[f], .may_differ = f == FACT_RATE || f == FACT_ALGORITHMS};
    }
    facts[FACT_ALGORITHMS].before = GIVEN;
    (void)snprintf(facts[FACT_NET].text, TEXT_BYTES, "%s", trainer->info.net);
    (void)snprintf(facts[FACT_BATCH].text, TEXT_BYTES, "%" PRId64, s->batch);
    (void)snprintf(facts[FACT_IMAGE].text, TEXT_BYTES, "%" PRId64 "x%" PRId64 "x%" PRId64, s->channels, s->height,
                   s->width);
    describe_optimizer(s, facts[FACT_OPTIMIZER].text);
    ebb__data_describe(trainer->train, facts[FACT_DATA].text, TEXT_BYTES);
    (void)snprintf(facts[FACT_SEED].text, TEXT_BYTES, "%" PRIu64, o->seed);
    (void)snprintf(facts[FACT_DROPOUT].text, TEXT_BYTES, "%s", s->no_dropout ? "left out" : "as the network has it");
    describe_rate(o, facts[FACT_RATE].text);
    describe_algorithms(trainer, facts[FACT_ALGORITHMS].text);
}

/* ---- writing ---------------------------------------------------------------------------------- */

/* Texts have no order in a file, so their hashes are added up. */
static uint64_t hash_text(const char *key, const char *text) {
    return ebb__hash(ebb__hash(EBB_HASH_INIT, key, strlen(key) + 1), text, strlen(text) + 1);
}

static ebb_status set(ebb_st_writer *writer, const char *key, const char *text, uint64_t *hash_io) {
    *hash_io += hash_text(key, text);
    return ebb__st_writer_set(writer, key, text);
}

static ebb_status write_all(ebb_trainer *trainer, const char *path, ebb_st_writer *writer) {
    fact facts[N_FACTS];
    char number[32], hash[65];
    uint64_t texts = 0;
    const char *not_finite = NULL;
    EBB_TRY(ebb__trainer_hash(trainer, EBB_VALUES_ALL, hash, &not_finite));
    EBB_TRY(ebb__trainer_refuse_values(trainer, path, not_finite));
    collect(trainer, facts);
    EBB_TRY(set(writer, "ebb_checkpoint", VERSION, &texts));
    for (int f = 0; f < N_FACTS; f++) { EBB_TRY(set(writer, facts[f].key, facts[f].text, &texts)); }
    (void)snprintf(number, sizeof number, "%" PRIu64, trainer->step);
    EBB_TRY(set(writer, "step", number, &texts)); /* updates made; epoch and batch follow from it */
    (void)snprintf(number, sizeof number, "%" PRIu64, trainer->tracked_before);
    EBB_TRY(set(writer, "batches_before", number, &texts));
    EBB_TRY(set(writer, "sha256", hash, &texts));
    (void)snprintf(number, sizeof number, "%016" PRIx64, texts);
    EBB_TRY(ebb__st_writer_set(writer, TEXTS_HASH, number));
    return ebb__trainer_write_values(trainer, EBB_VALUES_ALL, writer);
}

ebb_status ebb_trainer_checkpoint(ebb_trainer *trainer, const char *path) {
    EBB_NEED(trainer);
    EBB_NEED(path);
    ebb_st_writer *writer = NULL;
    EBB_TRY(ebb__st_writer_create(trainer->mem, path, &writer));
    ebb_status status = write_all(trainer, path, writer);
    if (status == EBB_OK) { return ebb__st_writer_commit(writer); }
    ebb__st_writer_abandon(writer);
    return status;
}

/* ---- going on --------------------------------------------------------------------------------- */

static ebb_status compare(const ebb_trainer *trainer, const ebb_safetensors *file) {
    fact facts[N_FACTS];
    collect(trainer, facts);
    for (int f = 0; f < N_FACTS; f++) {
        const char *was = ebb__safetensors_metadata(file, facts[f].key);
        if (was == NULL) { was = facts[f].before; }
        if (was == NULL) { return ebb_fail(EBB_E_FORMAT, "%s: the checkpoint says no %s", file->path, facts[f].key); }
        if (strcmp(was, facts[f].text) == 0) { continue; }
        if (!facts[f].may_differ) {
            return ebb_fail(EBB_E_ARGUMENT, "%s: the checkpoint's %s is '%s', not '%s'", file->path, facts[f].key, was,
                            facts[f].text);
        }
        ebb__log(EBB_LOG_WARN, "%s: %s was '%s', is now '%s'", file->path, facts[f].key, was, facts[f].text);
    }
    return EBB_OK;
}

static ebb_status read_number(const ebb_safetensors *file, const char *key, uint64_t *number_out) {
    const char *text = ebb__safetensors_metadata(file, key);
    char *end = NULL;
    errno = 0;
    uint64_t number = text != NULL && text[0] >= '0' && text[0] <= '9' ? strtoull(text, &end, 10) : 0;
    if (end == NULL || *end != '\0' || errno != 0) {
        return ebb_fail(EBB_E_FORMAT, "%s: the checkpoint's %s is '%s'", file->path, key, text != NULL ? text : "");
    }
    *number_out = number;
    return EBB_OK;
}

/* A value that the disk or a copy has spoilt is a number like any other; only the hash tells. */
static ebb_status compare_hash(ebb_trainer *trainer, const ebb_safetensors *file) {
    const char *was = ebb__safetensors_metadata(file, "sha256");
    char hash[65];
    EBB_TRY(ebb__trainer_hash(trainer, EBB_VALUES_ALL, hash, NULL));
    if (was != NULL && strcmp(was, hash) == 0) { return EBB_OK; }
    return ebb_fail(EBB_E_FORMAT, "%s: the values are not those that were written: their SHA-256 is %s, not %s",
                    file->path, hash, was != NULL ? was : "there");
}

static ebb_status compare_texts_hash(const ebb_safetensors *file) {
    const char *was = ebb__safetensors_metadata(file, TEXTS_HASH);
    char is[17];
    uint64_t texts = 0;
    for (size_t i = 0; i < file->metadata.n; i++) {
        const ebb_st_pair *pair = &file->metadata.data[i];
        if (strcmp(pair->key, TEXTS_HASH) != 0) { texts += hash_text(pair->key, pair->value); }
    }
    (void)snprintf(is, sizeof is, "%016" PRIx64, texts);
    if (was == NULL || strcmp(was, is) == 0) { return EBB_OK; }
    return ebb_fail(EBB_E_FORMAT, "%s: the checkpoint's header is not the one that was written: its hash is %s, not %s",
                    file->path, is, was);
}

static ebb_status resume_from(ebb_trainer *trainer, const ebb_safetensors *file) {
    const char *version = ebb__safetensors_metadata(file, "ebb_checkpoint");
    if (version == NULL || strcmp(version, VERSION) != 0) {
        return ebb_fail(EBB_E_FORMAT, "%s: not a checkpoint of this version", file->path);
    }
    uint64_t step = 0, tracked_before = 0;
    EBB_TRY(compare_texts_hash(file));
    EBB_TRY(read_number(file, "step", &step));
    EBB_TRY(read_number(file, "batches_before", &tracked_before));
    EBB_TRY(compare(trainer, file));
    EBB_TRY(ebb__trainer_read_values(trainer, EBB_VALUES_ALL, file));
    EBB_TRY(compare_hash(trainer, file));
    trainer->step = step;
    trainer->tracked_before = tracked_before;
    return EBB_OK;
}

ebb_status ebb__trainer_resume(ebb_trainer *trainer, const char *path, bool *found_out) {
    *found_out = false;
    if (access(path, F_OK) != 0) {
        /* whatever else the cause, the checkpoint may be there, and a run from the start would replace it */
        return errno == ENOENT ? EBB_OK : ebb__fail_errno(path, "open");
    }
    struct stat info;
    if (stat(path, &info) == 0 && !S_ISREG(info.st_mode)) {
        return ebb_fail(EBB_E_IO, "%s: a checkpoint is read again, so this must be a regular file", path);
    }
    ebb_safetensors *file = NULL;
    EBB_TRY(ebb__safetensors_open(trainer->mem, path, &file));
    ebb_status status = resume_from(trainer, file);
    ebb__safetensors_close(file);
    *found_out = status == EBB_OK;
    return status;
}
