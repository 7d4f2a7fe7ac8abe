/* SPDX-License-Identifier: Apache-2.0
 *
 * Learning rates: a pure function of the update's number, so that going on from a checkpoint needs no state.
 */
#include "train/trainer_priv.h"

#include <math.h>

#define PI 3.14159265358979323846

float ebb__lr_at(const ebb_lr_schedule *schedule, float learning_rate, uint64_t update) {
    EBB_ASSERT(update > 0);
    const uint64_t warmup = schedule->warmup_updates;
    if (update <= warmup) { return (float)((double)learning_rate * (double)update / (double)warmup); }
    const uint64_t past = update - 1 - warmup; /* 0 for the first update behind the warm-up */
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
