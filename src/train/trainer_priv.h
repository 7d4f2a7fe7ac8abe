/* SPDX-License-Identifier: Apache-2.0
 *
 * The trainer from inside: what it owns, and which file does what.
 *
 *      trainer_setup.c   data and the session, which has network, device and machine: what comes before the plan
 *      trainer_plan.c    budgets of device and host, plans, arena, run
 *      trainer_improve.c a better plan while training goes on
 *      trainer.c         steps and the summary
 *      trainer_eval.c    evaluation inside the same arena
 *      trainer_state.c   weights, gradients and their hash; checkpoint.c: everything else
 *
 * A network's values are known by their names: the evaluated network, weight files and checkpoints all go by
 * them.
 */
#ifndef EBB_SRC_TRAINER_PRIV_H
#define EBB_SRC_TRAINER_PRIV_H

#include "ebb/train.h"
#include "graph/graph.h"
#include "session/session.h"
#include "train/data_priv.h"
#include "train/safetensors.h"

#include <math.h>

#define EBB_TRAINER_N_TIMES 1024 /* the median is over the last this many steps */

/* The ports of a run of a network that learns from pictures. */
typedef struct ebb_trainer_ports {
    float *images;
    int32_t *labels;
    const float *loss, *correct;
} ebb_trainer_ports;

/* trainer_improve.c */
typedef struct ebb_trainer_improving ebb_trainer_improving;

struct ebb_trainer {
    const ebb_mem *mem;
    ebb_bump bump;
    ebb_trainer_options options; /* its texts are ours; counts are the real ones, never 0; of session only the next */
    ebb_session *session;        /* what learns; its options' sizes are the real ones */
    ebb_plan *plan;              /* for learning */
    struct {
        ebb_graph *graph;
        ebb_lowered *lowered;
        ebb_plan *plan;
    } eval;         /* what is evaluated, on the session's device */
    bool keep_test; /* evaluation is possible as far as the data goes */
    ebb_data *train, *test;
    ebb_allowance *decoding; /* of both */
    ebb_status eval_status;  /* why there is no evaluation, and in words */
    const char *eval_message;
    ebb_arena *arena;
    ebb_run *run;
    ebb_trainer_improving *improving; /* NULL: no plan is being made */
    ebb_trainer_ports ports;          /* of run */
    ebb_trainer_ports other_ports;    /* fed early: where the batch after the next can already be read to */
    bool is_fed;                      /* early: the run has the batch of this step */
    float *staging;                   /* the largest value, on its way between run and file */
    uint64_t staging_elements;
    uint64_t batches_per_epoch; /* UINT64_MAX: endless */
    uint64_t step;              /* done so far */
    uint64_t tracked_before;    /* batches that the weights had seen when they were loaded */
    bool warned;                /* of a loss that is not finite */
    float times_s[EBB_TRAINER_N_TIMES], stalls_s[EBB_MAX_ENGINES][EBB_TRAINER_N_TIMES];
    uint64_t n_times;
    bool is_recorded;                           /* asked for */
    uint64_t before_bytes, data_resident_bytes; /* anonymous: before memory was taken, data's part of it */
    uint64_t again_ns;
    ebb_trainer_info info;
};

/* schedule.c: a schedule's name, NULL if none exists of this number; the learning rate of an update, counted
 * from 1. */
const char *ebb__lr_schedule_name(ebb_schedule_kind kind);
/* EBB_E_ARGUMENT: there is no such schedule, its period is 0, or a factor is negative or not finite. */
ebb_status ebb__lr_schedule_check(const ebb_lr_schedule *schedule);
float ebb__lr_at(const ebb_lr_schedule *schedule, float learning_rate, uint64_t update);

/* For messages: a NaN without its sign, which says nothing. */
static inline double ebb__shown(double x) {
    return isnan(x) ? fabs(x) : x;
}

/* resident.c: memory of this process, as the kernel counts. Pages of files are code: arena, slab and data are
 * anonymous. */
typedef struct ebb_resident {
    uint64_t anonymous_bytes, file_bytes, peak_bytes;
} ebb_resident;
ebb_resident ebb__resident_get(void);
/* Let the peak be that of what comes from now on. */
void ebb__resident_reset_peak(void);

/* trainer_setup.c. EBB_E_ARGUMENT: the network lacks one of them. */
ebb_status ebb__trainer_ports(ebb_run *run, ebb_trainer_ports *ports_out);
ebb_status ebb__trainer_open(ebb_trainer *trainer);

/* trainer_plan.c */
ebb_status ebb__trainer_plan(ebb_trainer *trainer, ebb_no_fit *no_fit_out, char *step_name_out);
/* What of the host the trainer takes besides the slab; of decoding, what it has taken at most so far. */
uint64_t ebb__trainer_buffer_bytes(const ebb_trainer *trainer);

/* What the options ask for, with what others take of budget and host taken off. */
ebb_status ebb__trainer_plan_options(const ebb_trainer *trainer, uint64_t slab_bytes, ebb_plan_options *options_out);
/* A run in the trainer's arena, which no other run may have. */
ebb_status ebb__trainer_create_run(const ebb_trainer *trainer, const ebb_lowered *lowered, const ebb_plan *plan,
                                   ebb_run **run_out);
/* Fill in what the plan predicts. */
ebb_status ebb__trainer_predict(ebb_trainer *trainer);
/* What there is between iterations. */
uint64_t ebb__lasting_bytes(const ebb_lowered *lowered);

/* trainer_improve.c: between two steps. begin does nothing if it is not asked for. take_better: take the better plan if
 * it is there; a failure is that of the run, which cannot go on. end: make no more plans. has_planned: the plan is
 * there, or there will be none. */
ebb_status ebb__trainer_improve_begin(ebb_trainer *trainer);
ebb_status ebb__trainer_take_better(ebb_trainer *trainer);
bool ebb__trainer_has_planned(const ebb_trainer *trainer);
void ebb__trainer_improve_end(ebb_trainer *trainer);

/* trainer_state.c */
typedef enum ebb_value_set { EBB_VALUES_WEIGHTS, EBB_VALUES_ALL, EBB_VALUES_GRADIENTS } ebb_value_set;

/* Declare and write the values of a set after what the caller has declared of metadata. */
ebb_status ebb__trainer_write_values(ebb_trainer *trainer, ebb_value_set set, ebb_st_writer *writer);
/* All of the set must be there in the right shape; what else is there is warned of. */
ebb_status ebb__trainer_read_values(ebb_trainer *trainer, ebb_value_set set, const ebb_safetensors *file);
ebb_status ebb__trainer_load(ebb_trainer *trainer, const char *path);
/* SHA-256 of the set's values, in the network's order, row-major float32. *not_finite_out (may be NULL): the name of
 * the first value that is not finite; NULL: all are finite. */
ebb_status ebb__trainer_hash(ebb_trainer *trainer, ebb_value_set set, char hex_out[65], const char **not_finite_out);
/* EBB_E_NOT_FINITE, with a message that the value of this name keeps path from being written; EBB_OK for NULL. */
ebb_status ebb__trainer_refuse_values(const ebb_trainer *trainer, const char *path, const char *not_finite);

/* checkpoint.c: *found_out false: there is no such file. One that cannot be looked at is EBB_E_IO. */
ebb_status ebb__trainer_resume(ebb_trainer *trainer, const char *path, bool *found_out);

#endif
