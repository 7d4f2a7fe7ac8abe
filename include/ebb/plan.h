/* SPDX-License-Identifier: Apache-2.0
 *
 * Plans: for one program, one machine and one budget, what each step does, what is copied out, copied
 * in, dropped or computed again, and where everything lies.
 *
 * A plan is a list of actions. The list's order is a legal sequential execution; each engine (compute,
 * out, in) takes its own actions in that order, and waits only for those whose bytes it needs.
 *
 *   run s     compute step s; the tensors that it writes and that are absent come into being
 *   again s   compute step s once more (recomputation)
 *   out t     copy t to its slot (compute may go on; t must not change until the copy has ended)
 *   in t      copy t's slot to the device; t comes into being
 *   drop t    t's stay ends; its bytes may be used again by what comes behind, once every compute and
 *             copy of the stay has ended
 *
 * Positions are indices of actions. A stay [first, last) is an interval on the device: first is the
 * action that brings the tensor, last the drop (or the end of the circle). Scratch is a stay of one action,
 * [a, a + 1), with tensor EBB_SCRATCH. A slot is the same for a tensor's copy on a lower tier: first is the
 * out; it holds the copy until last. The plan is cyclic with the period n_actions: a stay or slot with
 * first >= last lives around the end, which only persistent tensors' do; first == last (both 0) is always.
 */
#ifndef EBB_PLAN_H
#define EBB_PLAN_H

#include "ebb/program.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- the machine ------------------------------------------------------------------------------ */

typedef struct ebb_machine ebb_machine;

typedef enum ebb_tier { EBB_TIER_HOST, EBB_TIER_DISK, EBB_N_TIERS } ebb_tier;

/* Bytes a second and nanoseconds a copy, from the device to the tier (out) and back (in). */
typedef struct ebb_link {
    double out_bytes_per_s, in_bytes_per_s;
    uint64_t latency_ns;
} ebb_link;

/* A machine with round figures of a present desktop processor; the start of every description. */
EBB_API ebb_status ebb_machine_create(const ebb_mem *mem, ebb_machine **machine_out);
EBB_API void ebb_machine_destroy(ebb_machine *machine);
/* EBB_E_FORMAT: not a machine's description, or of another version; names the member. EBB_E_IO: reading or writing. */
EBB_API ebb_status ebb_machine_load(const ebb_mem *mem, const char *path, ebb_machine **machine_out);
EBB_API ebb_status ebb_machine_save(const ebb_machine *machine, const char *path);

EBB_API void ebb_machine_set_link(ebb_machine *machine, ebb_tier tier, const ebb_link *link);
EBB_API ebb_link ebb_machine_link(const ebb_machine *machine, ebb_tier tier);
/* What a step without a measured time is reckoned with: max(flops / rate, bytes / bandwidth) + overhead. */
EBB_API void ebb_machine_set_rates(ebb_machine *machine, double flops_per_s, double bytes_per_s, uint64_t overhead_ns);
/* File a measured time under a choice's key; the last one counts. */
EBB_API ebb_status ebb_machine_set_time(ebb_machine *machine, uint64_t key, uint64_t time_ns);
/* The measured time of the choice's key, or the reckoned one. */
EBB_API uint64_t ebb_machine_step_time_ns(const ebb_machine *machine, const ebb_choice *choice);

/* ---- the plan --------------------------------------------------------------------------------- */

typedef struct ebb_plan ebb_plan;

#define EBB_SCRATCH UINT32_MAX

typedef enum ebb_action_kind {
    EBB_ACT_RUN,
    EBB_ACT_AGAIN,
    EBB_ACT_OUT,
    EBB_ACT_IN,
    EBB_ACT_DROP,
} ebb_action_kind;

typedef struct ebb_action {
    uint32_t kind;
    uint32_t target; /* a step or a tensor */
    uint32_t choice; /* run, again: which of the step's choices; again takes the one that run took */
} ebb_action;

typedef struct ebb_stay {
    uint32_t tensor; /* or EBB_SCRATCH */
    uint64_t first, last;
    uint64_t offset, size_bytes; /* in the arena */
} ebb_stay;

typedef struct ebb_slot {
    uint32_t tensor;
    uint32_t tier; /* ebb_tier */
    uint64_t first, last;
    uint64_t offset, size_bytes; /* in the tier's slab or file */
} ebb_slot;

typedef struct ebb_plan_options {
    size_t size_bytes;
    const ebb_mem *mem;
    const char *policy;               /* ebb_policy_name lists them */
    uint64_t budget_bytes;            /* of the device; UINT64_MAX: no limit */
    uint64_t tier_bytes[EBB_N_TIERS]; /* what each tier may hold; 0: none. The nearest with room is taken */
    const char *algorithms;           /* how each step comes to its choice; ebb_algorithms_name lists the ways */
} ebb_plan_options;
#define EBB_PLAN_OPTIONS_INIT                                                                                          \
    EBB_INIT(ebb_plan_options, EBB_SET(policy, "budget") EBB_SET(budget_bytes, UINT64_MAX)                             \
                                   EBB_SET(tier_bytes[0], UINT64_MAX) EBB_SET(algorithms, "given"))

/* Why a plan does not fit. Where the host's memory is in the way the first three say nothing. */
typedef struct ebb_no_fit {
    uint64_t least_budget_bytes; /* this policy has a plan from here on, and none below; 0: not known */
    uint32_t step;               /* that is in the way */
    uint64_t step_bytes;         /* what it touches at once */
    uint64_t least_host_bytes;   /* of the host, before anything leaves the device; 0: the host is not in the way.
                                    Only the trainer looks at it; ebb_plan_make: 0 */
} ebb_no_fit;

/* A policy makes a plan, the caller's to destroy, that keeps nothing of the arguments but the memory hooks. It has
 * passed ebb_plan_check. EBB_E_NO_FIT: *no_fit_out (may be NULL) is written, and the message says the same. Whether a
 * budget is refused does not depend on the machine's times, except through the choices of "fitting" and "fastest".
 * EBB_E_ARGUMENT: options of another version, no such policy, or no such way to choose algorithms. EBB_E_LIMIT:
 * about 2^31 stays or slots, or of "fitting" 2^32 choices, or more. "fitting" takes as long as several plans, up to 68
 * (docs/algorithms.md). */
EBB_API ebb_status ebb_plan_make(const ebb_program *program, const ebb_machine *machine,
                                 const ebb_plan_options *options, ebb_plan **plan_out, ebb_no_fit *no_fit_out);
EBB_API void ebb_plan_destroy(ebb_plan *plan);

/* Name number idx, with *about_out a line about it (may be NULL); NULL past the last. */
EBB_API const char *ebb_policy_name(size_t idx, const char **about_out);

/* The same for the ways to choose algorithms:
 *   given    choice 0 of each step, the backend's; results do not depend on the budget. What all else is compared with
 *   least    the least scratch; the same of results
 *   fitting  what makes the plan fastest: a faster choice where its scratch has room or is worth what has to leave for
 *            it. Never slower, as predicted, than the plans of the other three, and there where one of these is
 *   fastest  the least time
 * Of equal ones the first counts. What fitting and fastest come to depends on the machine's times; of fitting also on
 * the budget; and with the choices the last bits of results may change. */
EBB_API const char *ebb_algorithms_name(size_t idx, const char **about_out);

/* Views, borrowed until the plan dies. */
EBB_API const ebb_action *ebb_plan_actions(const ebb_plan *plan, size_t *n_out);
EBB_API const ebb_stay *ebb_plan_stays(const ebb_plan *plan, size_t *n_out); /* by first, then tensor */
EBB_API const ebb_slot *ebb_plan_slots(const ebb_plan *plan, size_t *n_out); /* by first, then tensor */

typedef struct ebb_plan_summary {
    const char *policy; /* lives as long as the plan */
    uint64_t budget_bytes;
    uint64_t peak_bytes;  /* the arena that it needs: the end of the highest stay */
    uint64_t bound_bytes; /* most bytes of stays at one position: no placement of them is lower */
    uint64_t tier_bytes[EBB_N_TIERS];
    uint64_t moved_out_bytes, moved_in_bytes; /* an iteration */
    uint64_t n_recomputed_steps;              /* an iteration */
    uint64_t fingerprint;                     /* of the program that it is for */
    const char *algorithms;                   /* how choices were made; static */
} ebb_plan_summary;
EBB_API ebb_plan_summary ebb_plan_get_summary(const ebb_plan *plan);

#define EBB_CHOICES_TOLD 8

/* What the choices of a plan come to. Times are of computing alone, what is computed again included. */
typedef struct ebb_choice_figures {
    uint64_t n_open_steps;              /* that have several choices */
    uint64_t n_steps[EBB_CHOICES_TOLD]; /* of them, that take choice 0, 1, ...; the last: or a higher one */
    uint64_t most_scratch_bytes;        /* of a step */
    uint64_t given_ns, chosen_ns;       /* with choice 0 everywhere, and with these */
} ebb_choice_figures;
/* The plan is one for the program (ebb_plan_check). */
EBB_API ebb_choice_figures ebb_plan_choice_figures(const ebb_program *program, const ebb_plan *plan,
                                                   const ebb_machine *machine);

/* The plan file (docs/plan-format.md). Loading checks the form only; ebb_plan_check checks the plan. EBB_E_FORMAT names
 * the line. EBB_E_IO: reading or writing failed; a file that is there stays as it was. */
EBB_API ebb_status ebb_plan_load(const ebb_mem *mem, const char *path, ebb_plan **plan_out);
EBB_API ebb_status ebb_plan_save(const ebb_plan *plan, const char *path);

/* The independent validator: replays the actions over the program, sharing no code with any policy, and
 * proves that every read finds its tensor present and at the version that the program means, no two live
 * stays (or slots) overlap, nothing exceeds the budget, the circle closes. EBB_E_INVALID_PLAN: the message
 * names the action and the rule. EBB_E_LIMIT: 2^32 - 1 stays or slots, or more. O(n log n). */
EBB_API ebb_status ebb_plan_check(const ebb_program *program, const ebb_plan *plan);

/* ---- the timeline ----------------------------------------------------------------------------- */

typedef enum ebb_engine { EBB_ENGINE_COMPUTE, EBB_ENGINE_OUT, EBB_ENGINE_IN, EBB_N_ENGINES } ebb_engine;

typedef struct ebb_timeline {
    uint64_t iteration_ns;           /* of the steady iteration: as long as the one before it, or the eighth */
    uint64_t busy_ns[EBB_N_ENGINES]; /* of each engine within it */
    uint64_t again_ns;               /* of compute: spent on recomputation */
} ebb_timeline;

/* Predict: one compute engine and one copy engine each way, each in order; an action starts when its engine
 * is free and what it waits for has ended, so a stall shifts what follows. start_ns_out and end_ns_out: one entry
 * an action, in the steady iteration, from its beginning (drops: both the same); NULL if not wanted. The plan is one
 * for the program (ebb_plan_check). EBB_E_LIMIT: it has about 2^31 stays or slots, or more. */
EBB_API ebb_status ebb_plan_simulate(const ebb_program *program, const ebb_plan *plan, const ebb_machine *machine,
                                     ebb_timeline *timeline_out, uint64_t *start_ns_out, uint64_t *end_ns_out);

#ifdef __cplusplus
}
#endif

#endif
