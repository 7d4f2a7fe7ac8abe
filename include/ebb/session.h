/* SPDX-License-Identifier: Apache-2.0
 *
 * A session: a network, the device that trains it, and the memory that it may take; what follows are its program and a
 * plan. It is what `ebb plan`, `ebb probe` and `ebb train` begin with.
 *
 *      ebb_session_options options = EBB_SESSION_OPTIONS_INIT;
 *      options.net = "resnet50";
 *      options.budget_percent = 60;
 *      ebb_session *session = NULL;
 *      ebb_plan *plan = NULL;
 *      if (ebb_session_open(&options, &session) == EBB_OK) { status = ebb_session_plan(session, &plan, NULL); }
 *
 * From there ebb_plan_simulate says how long an iteration takes, and ebb_run_create runs the plan. On a device that
 * copies beside computing the run is fed early, unless options.feed is "first": see ebb_run_feed.
 */
#ifndef EBB_SESSION_H
#define EBB_SESSION_H

#include "ebb/device.h"
#include "ebb/plan.h"
#include "ebb/remote.h"

#ifdef __cplusplus
extern "C" {
#endif

/* One thread at a time. */
typedef struct ebb_session ebb_session;

/* Images in a batch, where nothing says how many. */
#define EBB_DEFAULT_BATCH 32

/* Build the network for training (inference false) or evaluation, with the parameters' names the same in both, an input
 * "images" of (batch, channels, height, width) and a loss. Sizes that are 0 are the network's to choose. */
typedef ebb_status (*ebb_network_fn)(void *ctx, const ebb_zoo_options *options, ebb_graph **graph_out);

typedef struct ebb_session_options {
    size_t size_bytes;
    const ebb_mem *mem; /* outlives the session */

    /* The source of the program: one of these three, or NULL for all if only a device and a machine are wanted. */
    const char *net; /* a name of the zoo */
    ebb_network_fn network_fn;
    void *network_ctx;
    const ebb_program *program;                      /* borrowed for as long as the session lives; takes no device */
    int64_t batch, channels, height, width, classes; /* of a network; 0: its own default; batch EBB_DEFAULT_BATCH */
    bool no_dropout;                                 /* for comparisons with other implementations */
    ebb_optimizer optimizer;
    bool keep_gradients;    /* and update nothing; see ebb_graph_train */
    const char *accounting; /* of a network's memory. NULL, "device": what the device takes. "paper": as SuperNeurons
                               counts (ebb_lower_paper), to be planned for only; without a device, or with "dry" */

    /* The device that computes it. */
    ebb_device *device;  /* borrowed for as long as the session lives; NULL: one is opened */
    const char *backend; /* NULL: the first of this build */
    int32_t n_threads;   /* this and the next four: see ebb_device_options */
    int32_t device_index;
    bool tf32, nondeterministic, no_capture;
    const char *feed; /* when a network's inputs come: "first", at the iteration's beginning; "early", during the one
                         before (ebb_lower_fed_early); NULL: early on a device that copies beside computing */
    const char *machine_path; /* a description that `ebb probe` wrote; NULL: round figures */

    /* The memory that it may take, and how it stays within that. */
    uint64_t budget_bytes; /* of the device; 0: no limit */
    double budget_percent; /* > 0: of what the policy liveness needs, instead of budget_bytes */
    uint64_t host_bytes;   /* of the host; 0: no limit */
    bool no_slab;          /* nothing is copied out to the host, whatever host_bytes is */
    bool within_free; /* where host_bytes is 0, no_slab is not set, and disk_dir or a remote can have the rest: copies
                         on the host take at most what this machine has free as they are planned, but an eighth,
                         and but the budget where the device computes in the host's memory. Always for training */
    const char *disk_dir;   /* NULL: no disk tier */
    const char *io;         /* of the disk tier; see ebb_run_options */
    ebb_remote *remote;     /* borrowed; NULL: no process lends its memory */
    uint64_t remote_bytes;  /* the most in the remote tier; 0: all that remote has. Without remote it is planned for and
                               cannot be run */
    const char *policy;     /* NULL: "best" under a budget or a slowdown, else "liveness" */
    const char *algorithms; /* NULL: "given"; see ebb_algorithms_name */
    uint32_t effort;        /* of the policy best; see ebb_plan_options */
    uint32_t plan_threads;  /* for planning (ebb_plan_options.n_threads); n_threads above is the device's */
    bool no_recompute;      /* nothing is computed again */
    bool as_coded;          /* papers' policies with the mistakes of their code; see ebb_plan_options */
    double slowdown;        /* 0 or more: as little of the device as that allows; see ebb_plan_options */
    double margin;          /* for copies that are late; see ebb_plan_options */
    ebb_progress progress;  /* told while a plan is made; see ebb_plan_options */
} ebb_session_options;
#define EBB_SESSION_OPTIONS_INIT                                                                                       \
    EBB_INIT(ebb_session_options, EBB_SET(optimizer, EBB_OPTIMIZER_INIT) EBB_SET(effort, 1) EBB_SET(slowdown, -1))

/* Build the network, open the device, lower the one for the other, and load the machine. Texts of the options are
 * copied. The session is the caller's (ebb_session_close). EBB_E_ARGUMENT: options are of another version, name more
 * than one of net, network_fn and program, or have a size, a device's number or a per cent that is negative or not
 * finite; there is no such network, or it is too small for the images; paper accounting without a network, or with
 * another device than "dry", or an unknown accounting; feed is another word. EBB_E_NO_DEVICE: no such device.
 * EBB_E_UNSUPPORTED names the operator that the device cannot compute. EBB_E_FORMAT, EBB_E_IO: the machine's file. */
EBB_API ebb_status ebb_session_open(const ebb_session_options *options, ebb_session **session_out);
EBB_API void ebb_session_close(ebb_session *session);

/* Its parts, borrowed until the session is closed. NULL: device, of a program; graph and lowered, of no
 * network; all three with paper accounting; program, where there is nothing to plan for. The machine may be added to,
 * as by ebb_run_measure_steps, before the first plan. */
typedef struct ebb_session_parts {
    ebb_device *device;
    ebb_graph *graph; /* for training */
    const ebb_lowered *lowered;
    const ebb_program *program;
    ebb_machine *machine;
} ebb_session_parts;
EBB_API ebb_session_parts ebb_session_get_parts(const ebb_session *session);

/* The bytes of the device that the policy liveness needs, with the algorithms "given": a budget of 100 %. The session
 * has a program. EBB_E_ARGUMENT: it has none. Else as ebb_plan_make. */
EBB_API ebb_status ebb_session_liveness_bytes(ebb_session *session, uint64_t *bytes_out);

/* The options that ebb_session_plan gives to ebb_plan_make, for plans with another policy or budget: change members and
 * call that. Its texts live as long as the session. Failures are those of ebb_session_liveness_bytes. */
EBB_API ebb_status ebb_session_plan_options(ebb_session *session, ebb_plan_options *options_out);

/* The plan that the options ask for, the caller's to destroy. Failures are those of ebb_plan_make and
 * ebb_session_liveness_bytes; of EBB_E_NO_FIT *no_fit_out (may be NULL) says more. */
EBB_API ebb_status ebb_session_plan(ebb_session *session, ebb_plan **plan_out, ebb_no_fit *no_fit_out);

#ifdef __cplusplus
}
#endif

#endif
