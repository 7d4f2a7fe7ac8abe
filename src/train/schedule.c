/* SPDX-License-Identifier: Apache-2.0
 *
 * Schedules of learning rates: their names, and the rate as a pure function of the update's number, so that going
 * on from a checkpoint needs no state.
 */
#include "train/trainer_priv.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>

#define PI 3.14159265358979323846

static const char *const names[] = {
    [EBB_LR_CONSTANT] = "constant",
    [EBB_LR_STEP] = "step",
    [EBB_LR_COSINE] = "cosine",
    [EBB_LR_LINEAR] = "linear",
};
#define N_KINDS (sizeof names / sizeof names[0])

static ebb_status refuse(const char *text) {
    static const char *const known[] = {"constant", "cosine", "linear", "step:N", NULL};
    char suggested[EBB_SUGGESTION_BYTES];
    return ebb_fail(EBB_E_ARGUMENT, "there is no schedule '%s'%s", text,
                    ebb__suggest_or_list(text, ebb__name_in_list, known, suggested));
}

/* The number after "step:". */
static bool read_every(const char *text, uint64_t *every_out) {
    char *end = NULL;
    if (text[0] < '1' || text[0] > '9') { return false; }
    errno = 0;
    unsigned long long every = strtoull(text, &end, 10);
    if (*end != '\0' || errno != 0) { return false; }
    *every_out = every;
    return true;
}

ebb_status ebb_lr_schedule_parse(const char *text, ebb_lr_schedule *schedule_io) {
    EBB_NEED(text);
    EBB_NEED(schedule_io);
    for (size_t k = 0; k < N_KINDS; k++) {
        const size_t n = strlen(names[k]);
        if (strncmp(text, names[k], n) != 0) { continue; }
        bool fine =
            k == EBB_LR_STEP ? text[n] == ':' && read_every(text + n + 1, &schedule_io->step_updates) : text[n] == '\0';
        if (!fine) { break; }
        schedule_io->kind = (ebb_schedule_kind)k;
        return EBB_OK;
    }
    return refuse(text);
}

const char *ebb__lr_schedule_name(ebb_schedule_kind kind) {
    return (size_t)kind < N_KINDS ? names[kind] : NULL;
}

static ebb_status check_factor(const char *name, float factor) {
    if (factor >= 0 && isfinite(factor)) { return EBB_OK; }
    return ebb_fail(EBB_E_ARGUMENT, "schedule %s: it must be finite and not negative, not %g", name,
                    ebb__shown((double)factor));
}

ebb_status ebb__lr_schedule_check(const ebb_lr_schedule *schedule) {
    if (ebb__lr_schedule_name(schedule->kind) == NULL) {
        return ebb_fail(EBB_E_ARGUMENT, "there is no schedule of number %d", (int)schedule->kind);
    }
    if (schedule->kind == EBB_LR_STEP && schedule->step_updates == 0) {
        return ebb_fail(EBB_E_ARGUMENT, "schedule step: it needs step_updates of 1 or more");
    }
    EBB_TRY(check_factor("step_factor", schedule->step_factor));
    return check_factor("final_factor", schedule->final_factor);
}

float ebb__lr_at(const ebb_lr_schedule *schedule, float learning_rate, uint64_t update) {
    EBB_ASSERT(update > 0);
    const uint64_t warmup = schedule->warmup_updates;
    if (update <= warmup) { return (float)((double)learning_rate * (double)update / (double)warmup); }
    const uint64_t past = update - 1 - warmup; /* 0 for the first update after the warm-up */
    const uint64_t span = schedule->total_updates > warmup ? schedule->total_updates - warmup : 1;
    const double way = past >= span ? 1.0 : (double)past / (double)span, last = schedule->final_factor;
    double factor = 1.0;
    switch (schedule->kind) {
    case EBB_LR_CONSTANT: break;
    case EBB_LR_STEP:
        if (schedule->step_updates > 0) {
            factor = pow((double)schedule->step_factor, (double)(past / schedule->step_updates));
        }
        break;
    case EBB_LR_COSINE: factor = last + (1.0 - last) * 0.5 * (1.0 + cos(PI * way)); break;
    case EBB_LR_LINEAR: factor = last + (1.0 - last) * (1.0 - way); break;
    }
    return (float)((double)learning_rate * factor);
}
