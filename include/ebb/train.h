/* SPDX-License-Identifier: Apache-2.0
 *
 * Training: data, the loop, weights and checkpoints. A trainer owns everything between a network's name and
 * its trained weights. If you want the parts, use graph.h, device.h, plan.h and run.h.
 */
#ifndef EBB_TRAIN_H
#define EBB_TRAIN_H

#include "ebb/run.h"
#include "ebb/session.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- data ------------------------------------------------------------------------------------- */

typedef struct ebb_data ebb_data;

typedef enum ebb_split { EBB_SPLIT_TRAIN, EBB_SPLIT_TEST } ebb_split;

#define EBB_DATA_MAX_THREADS 256

typedef struct ebb_data_options {
    size_t size_bytes;
    const ebb_mem *mem;
    ebb_split split;
    int64_t channels, height, width; /* 0: as the images are (folders of images: 3, 224, 224) */
    int64_t classes;   /* synthetic: 0 is 1000; others: 0 is what the data has, else labels must be below */
    bool augment;      /* train split: random crop and flip where that makes sense for the data */
    uint64_t seed;     /* of order, augmentation, synthetic content */
    int32_t n_threads; /* that decode, at most EBB_DATA_MAX_THREADS; 0: one */
} ebb_data_options;
#define EBB_DATA_OPTIONS_INIT EBB_INIT(ebb_data_options, )

/* Open data by its description:
 *   synthetic              random images, endless: noise over a pattern for each of ten classes
 *   mnist:DIR              the four idx files, plain or gzipped (Fashion-MNIST too)
 *   cifar10:DIR            data_batch_*.bin, test_batch.bin
 *   cifar100:DIR           train.bin, test.bin (fine labels)
 *   images:DIR             DIR/train/CLASS/x.jpg and DIR/test/CLASS/y.png (or val for test); without these
 *                          two, every tenth image of DIR/CLASS is the test split. At most 16384 pixels each
 *                          way; progressive JPEG and interlaced PNG up to what takes 64 MiB to decode, which are
 *                          11 to 22 million pixels in colour
 *   digits:FILE            the UCI digits as scikit-learn ships them (digits.csv.gz): 8x8, every fifth is
 *                          the test split
 *   tensors:FILE           safetensors with "images" (N, C, H, W) float32 and "labels" (N) whole numbers, as
 *                          they are; "test_images" and "test_labels" are the test split
 * options may be NULL. EBB_E_ARGUMENT: no such data, or options of another version. EBB_E_FORMAT, EBB_E_IO: the
 * message names the file, the place and the cause. */
EBB_API ebb_status ebb_data_open(const char *spec, const ebb_data_options *options, ebb_data **data_out);
EBB_API void ebb_data_close(ebb_data *data);

typedef struct ebb_data_info {
    uint64_t n_images; /* UINT64_MAX: endless */
    int64_t channels, height, width, classes;
    uint64_t host_bytes; /* the most that the reader holds: images in memory, and memory for decoding */
} ebb_data_info;
EBB_API ebb_data_info ebb_data_get_info(const ebb_data *data);

/* Batch number idx of an epoch, n images. */
typedef struct ebb_batch {
    uint64_t epoch, idx;
    int64_t n;
} ebb_batch;

/* The images (n, channels, height, width), normalised, and labels (n) of a batch: a pure function of the data, the
 * options and these three. The train split is shuffled anew each epoch and an incomplete last batch is left out; the
 * test split comes in order, a last batch short of n is filled up with zeros. *n_valid_out (may be NULL): how many
 * are real. Decodes on the data's threads; call from one thread. EBB_E_ARGUMENT: there is no such batch.
 * EBB_E_FORMAT, EBB_E_IO: a picture; the message names its file. Both arrays are undefined then. */
EBB_API ebb_status ebb_data_read(ebb_data *data, ebb_batch batch, float *images_out, int32_t *labels_out,
                                 int64_t *n_valid_out);

/* Ask for a batch ahead of time: it is decoded in the background, and ebb_data_read of the same batch returns it, or
 * its failure. EBB_E_ARGUMENT: there is no such batch. */
EBB_API ebb_status ebb_data_prefetch(ebb_data *data, ebb_batch batch);

/* The same, into the caller's memory, which must be there, and be left alone, until ebb_data_read of any batch that
 * there is returns, or the data is closed. Read the batch into the same memory, and nothing is copied. */
EBB_API ebb_status ebb_data_prefetch_to(ebb_data *data, ebb_batch batch, float *images, int32_t *labels);

/* ---- the trainer ------------------------------------------------------------------------------ */

typedef struct ebb_trainer ebb_trainer;

typedef enum ebb_schedule_kind { EBB_LR_CONSTANT, EBB_LR_STEP, EBB_LR_COSINE, EBB_LR_LINEAR } ebb_schedule_kind;

typedef struct ebb_lr_schedule {
    ebb_schedule_kind kind;
    uint64_t warmup_updates; /* rises linearly from 0 */
    uint64_t total_updates;  /* cosine and linear: where they reach final; set by the trainer when 0 */
    uint64_t step_updates;   /* step: after this many updates, 1 or more ... */
    float step_factor;       /* ... times this; >= 0, as the next */
    float final_factor;      /* cosine and linear: end at lr times this */
} ebb_lr_schedule;

/* Take kind, and of a step its updates, from "constant", "cosine", "linear" or "step:N"; the rest stays.
 * EBB_E_ARGUMENT: another text; nothing is changed. */
EBB_API ebb_status ebb_lr_schedule_parse(const char *text, ebb_lr_schedule *schedule_io);

typedef struct ebb_trainer_options {
    size_t size_bytes;
    /* A network, by name or function. Sizes that are 0 are the data's, else the network's. host_bytes: what slab, data,
     * decoding and parked state may take. Without machine_path kernels and links are measured before planning. A
     * checkpoint's algorithms may be others: warned of. */
    ebb_session_options session;
    const char *data; /* NULL: synthetic */
    bool augment;
    float learning_rate; /* >= 0 */
    ebb_lr_schedule schedule;
    uint64_t n_steps;  /* 0: by n_epochs */
    uint64_t n_epochs; /* with both 0: one epoch, or 100 steps of endless data */
    uint64_t seed;
    const char *load_path;
    const char *checkpoint_path;
    uint64_t checkpoint_every; /* steps; 0: only at the end */
    const char *record_path;   /* trace of the last steps; see ebb_trainer_record_status */
    uint64_t n_record_steps;   /* how many; 0: one. At most all that this run makes */
    bool keep_going;           /* continue even if the loss is not finite */
    /* A plan file to follow in place of making a plan: for the same network, sizes, optimizer and backend. The
     * session's policy, effort and ways to choose algorithms are not asked then, and it must have no budget. NULL: a
     * plan is made. */
    const char *plan_path;
    /* budget_bytes, which must be given, are the whole card's: the context has its part. What comes to the context
     * after the plan was made (graphs do) is measured after the third step, and warned of if the budget has no room for
     * it. */
    bool memory_includes_context;
    ebb_progress progress; /* told while the trainer is made and while it evaluates */
    bool no_evaluation;    /* the test split is not opened, and host_bytes keep no room for state beside evaluation */
    /* More than 0: while training goes on, a thread of its own plans again with this effort, and its plan is taken
     * between two steps if an iteration should be faster with it. Losses and weights have the same bits as without. For
     * that moment the host holds the copies of both plans, and all that persists; where there is no room, or anything
     * else fails, training goes on with the plan that it has. The thread calls the memory hooks. For a budget, with the
     * policy best and the algorithms "given"; without host_bytes, slowdown or plan_path. */
    uint32_t improve_effort;
} ebb_trainer_options;
#define EBB_TRAINER_OPTIONS_INIT                                                                                       \
    EBB_INIT(ebb_trainer_options, EBB_SET(session, EBB_SESSION_OPTIONS_INIT) EBB_SET(learning_rate, 0.003f)            \
                                      EBB_SET(schedule.step_factor, 0.1f))

/* Do everything up to the first step: data, network, program, plan, memory, and initial, loaded or resumed state.
 * EBB_E_ARGUMENT: options are of another version, make no sense (a rate, factor or size that is negative or not finite,
 * a period of 0), or do not fit each other, the data or the checkpoint. EBB_E_FORMAT, EBB_E_INVALID_PLAN: of plan_path;
 * the message names the file. EBB_E_NO_FIT: *no_fit_out (may be NULL) has the least budget, as options count it, and
 * the step; or the least host_bytes if these are too few. *step_name_out (may be NULL, at least 128 bytes) names the
 * step. */
EBB_API ebb_status ebb_trainer_create(const ebb_trainer_options *options, ebb_trainer **trainer_out,
                                      ebb_no_fit *no_fit_out, char *step_name_out);
EBB_API void ebb_trainer_destroy(ebb_trainer *trainer);

typedef struct ebb_trainer_info {
    const char *net, *backend, *policy;
    uint64_t n_steps, first_step; /* all, and where this run starts (0, or the checkpoint's) */
    int64_t batch, channels, height, width, classes;
    uint64_t n_train_images, n_test_images; /* UINT64_MAX endless, 0 none */
    uint64_t liveness_bytes;                /* what the policy liveness needs for it */
    uint64_t n_parameters;
    ebb_plan_summary plan;
    uint64_t improved_at_step; /* before which a better plan was taken, from 1; 0: none was. All that is of the plan, or
                                  predicted, has changed with it; texts of older answers are not valid any more */
    double step_time_predicted_s;
    /* Predicted, an iteration, for each engine of the machine, of which the first computes: the time that its actions
     * take by themselves (0: the plan does not use it), and for how long it waits for what other engines do. */
    uint32_t n_engines;
    const char *engine_name[EBB_MAX_ENGINES];
    double busy_predicted_s[EBB_MAX_ENGINES], stall_predicted_s[EBB_MAX_ENGINES];
    uint64_t context_bytes; /* of the device beside ebb's, when the plan was made; see ebb_device_info */
    ebb_choice_figures choices;
    ebb_no_fit eval_no_fit; /* as of ebb_trainer_create, where the budget is too small for evaluation; else 0 */
} ebb_trainer_info;
EBB_API ebb_trainer_info ebb_trainer_get_info(const ebb_trainer *trainer);

typedef struct ebb_step_result {
    uint64_t step;  /* from 1 */
    uint64_t epoch; /* from 0 */
    float loss;
    float learning_rate;
    double time_s;      /* the iteration alone */
    double wait_data_s; /* waiting for the batch */
    bool is_improved;   /* this is the first step by a better plan; see improve_effort */
} ebb_step_result;

/* The next step; writes the checkpoint when it is due. *done_out: no step was left, *result_out is untouched.
 * EBB_E_NOT_FINITE: the step ran, but its loss is not finite, or a checkpoint is due and a value in it is not finite.
 * An older checkpoint at its path stays. With options.keep_going there is a warning in the log instead; such a
 * checkpoint is not written even then. EBB_E_FORMAT: the data; fed early, that may be the next step's. EBB_E_IO: the
 * data, too, or the disk tier, or the checkpoint, before which the step has been made. EBB_E_DEVICE: an earlier step
 * failed halfway, and training cannot continue. */
EBB_API ebb_status ebb_trainer_step(ebb_trainer *trainer, ebb_step_result *result_out, bool *done_out);

/* After the last step: whether the trace was written. If it could not be written, training continued with a warning,
 * and this returns the cause, as ebb_run_record_status does. */
EBB_API ebb_status ebb_trainer_record_status(const ebb_trainer *trainer);

typedef struct ebb_eval_result {
    uint64_t n_images;
    double loss, accuracy;
} ebb_eval_result;

/* Evaluate on the test split (inference-mode network, inside the same budget). EBB_E_ARGUMENT: there is no test
 * split. */
EBB_API ebb_status ebb_trainer_evaluate(ebb_trainer *trainer, ebb_eval_result *result_out);

/* Save weights and running statistics as safetensors; gradients of the last step, under their parameters' names;
 * everything that a run needs to continue. EBB_E_IO and EBB_E_NOT_FINITE: what was at path is still there.
 * EBB_E_NOT_FINITE: a value is not finite; gradients, and with options.keep_going weights, are written all the same.
 * EBB_E_ARGUMENT: gradients without options.session.keep_gradients. */
EBB_API ebb_status ebb_trainer_save(ebb_trainer *trainer, const char *path);
EBB_API ebb_status ebb_trainer_save_gradients(ebb_trainer *trainer, const char *path);
EBB_API ebb_status ebb_trainer_checkpoint(ebb_trainer *trainer, const char *path);

typedef struct ebb_trainer_summary {
    ebb_run_stats run;
    double step_time_median_s, images_per_s;
    double
        stall_median_s[EBB_MAX_ENGINES]; /* measured, in a step: what each engine waited. NaN: not known, or no step */
    double again_time_s;                 /* predicted, an iteration: spent on recomputation */
    char weights_sha256[65];             /* of all parameters and buffers, in the network's order, row-major float32 */
    uint64_t data_bytes;                 /* of host memory: the reader's, values between run and file, parked state */
    uint64_t constant_bytes;             /* resident beside arena, slab and data: code, kernels, libraries */
    uint64_t resident_peak_bytes;        /* the kernel's figure of the process (VmHWM), since the memory was taken */
    uint64_t context_bytes; /* of the device beside ebb's, now: the driver's total less its free less arenas */
} ebb_trainer_summary;
/* May be called at any time. EBB_E_IO: values for the hash cannot be read from the disk tier. */
EBB_API ebb_status ebb_trainer_summarize(ebb_trainer *trainer, ebb_trainer_summary *summary_out);

#ifdef __cplusplus
}
#endif

#endif
