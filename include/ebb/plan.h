/* SPDX-License-Identifier: Apache-2.0
 *
 * Plans. A plan is for one program, one machine and one budget. It says in which order steps run, which tensors are
 * copied out, copied in, dropped or computed again, and where everything lies.
 *
 * A plan is a list of actions. The list's order is a legal sequential execution; each engine takes its own actions in
 * that order, and waits only for those whose bytes it needs. A copy that is held waits for what is computed before it
 * in the list, too.
 *
 *   run s        compute step s; tensors that it writes and that are absent begin to exist
 *   again s      compute step s once more (recomputation)
 *   out t tier   copy t to its slot there (compute may go on; t must not change until the copy has ended)
 *   in t tier    copy t's slot there to the device, where it comes into being
 *   move t tier to   copy t's slot on one tier to a slot on another
 *   drop t t's stay ends; later actions may use its bytes, once every compute and
 *                copy of the stay has ended
 *
 * The last four may be about a part: a range of the tensor's bytes that begins at a multiple of the program's
 * alignment. Steps see whole tensors: when one runs, the parts of each tensor that it accesses lie side by side.
 *
 * Steps run in any order in which each finds the versions that it reads (program.h).
 *
 * Positions are indices of actions. A stay [first, last) is an interval on the device: first is the
 * action that brings the tensor or the part, last the drop (or the end of the circle). Scratch is a stay of one action,
 * [a, a + 1), with tensor EBB_SCRATCH. A slot is the same for a copy on a lower tier: first is the out or move that
 * fills it; it holds the copy until last. A tensor may have slots on several tiers at one time, and on one tier of
 * several parts. The plan is cyclic with the period n_actions: a stay or slot with first >= last lives past the end
 * into the next iteration (only for persistent tensors); first == last (both 0) means always.
 */
#ifndef EBB_PLAN_H
#define EBB_PLAN_H

#include "ebb/program.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- the machine ------------------------------------------------------------------------------ */

typedef struct ebb_machine ebb_machine;

#define EBB_MAX_TIERS 8u
#define EBB_MAX_ENGINES 16u
#define EBB_NAME_BYTES 32u /* of a tier's or an engine's name, with the NUL; letters, digits, '_', '-' */

#define EBB_DEVICE 0u           /* the first tier of every machine: where steps compute */
#define EBB_COMPUTE 0u          /* the first engine of every machine: what computes steps */
#define EBB_NO_ENGINE UINT8_MAX /* for a drop, which needs no engine */

/* Where a tier keeps its bytes. */
typedef enum ebb_store {
    EBB_STORE_DEVICE, /* memory that kernels reach; only for the tier EBB_DEVICE */
    EBB_STORE_MEMORY, /* the host's */
    EBB_STORE_FILE,
    EBB_STORE_REMOTE, /* memory of other processes */
    EBB_N_STORES,
} ebb_store;

typedef struct ebb_tier {
    char name[EBB_NAME_BYTES];
    ebb_store store;
    uint64_t capacity_bytes; /* UINT64_MAX: not known */
} ebb_tier;

/* The tiers, and the engine that carries copies from one tier to another. An engine does one action after the other;
 * engines work at the same time. */
typedef struct ebb_topology {
    uint32_t n_tiers, n_engines;
    ebb_tier tier[EBB_MAX_TIERS];
    char engine[EBB_MAX_ENGINES][EBB_NAME_BYTES];
    uint8_t way[EBB_MAX_TIERS][EBB_MAX_TIERS]; /* [from][to]: the engine; 0: there is no way */
} ebb_topology;

/* The tier of that name; EBB_MAX_TIERS: none. */
EBB_API uint32_t ebb_topology_tier(const ebb_topology *topology, const char *name);

/* One direction of a link. */
typedef struct ebb_way {
    double bytes_per_s;
    uint64_t latency_ns; /* of each copy */
    uint32_t engine;     /* not EBB_COMPUTE */
} ebb_way;

/* What a step waits for: arithmetic, or passes over memory, whichever takes longer at the machine's rates. */
typedef enum ebb_step_kind { EBB_STEP_ARITHMETIC, EBB_STEP_TRAFFIC, EBB_N_STEP_KINDS } ebb_step_kind;

/* The rates of copies between two tiers. All below the ways are shares, above 0 and at most 1. In predicted times each
 * engine keeps at least 1e-12 of its own rate. */
typedef struct ebb_link {
    uint32_t near, far; /* tiers */
    ebb_way out, in;    /* from near to far; from far to near */
    double both_rate;   /* the share of its bytes per second that a direction keeps while the other copies too */
    double work_rate[EBB_N_STEP_KINDS]; /* of its speed that the compute engine keeps while this link copies one way */
    double copy_rate[EBB_N_STEP_KINDS]; /* of its rate that a direction keeps while such a step is computed */
} ebb_link;

/* Every share 1: nothing slows anything else. */
#define EBB_LINK_SHARES_ONE .both_rate = 1, .work_rate = {1, 1}, .copy_rate = {1, 1}

/* A machine with round figures of a current desktop processor; every description starts from it. Its tiers are the
 * device, "host" (EBB_HOST) and "disk" (EBB_DISK). Each two of them are linked, with an engine of their own for each
 * direction. */
EBB_API ebb_status ebb_machine_create(const ebb_mem *mem, ebb_machine **machine_out);
#define EBB_HOST 1u
#define EBB_DISK 2u
EBB_API void ebb_machine_destroy(ebb_machine *machine);
/* EBB_E_FORMAT: not a machine's description, of an unknown version, or with a member that is not right, whose place in
 * the file is named. EBB_E_IO: reading or writing. EBB_E_ARGUMENT, of save: the rates are not positive and finite. */
EBB_API ebb_status ebb_machine_load(const ebb_mem *mem, const char *path, ebb_machine **machine_out);
EBB_API ebb_status ebb_machine_save(const ebb_machine *machine, const char *path);

EBB_API const ebb_topology *ebb_machine_topology(const ebb_machine *machine); /* borrowed */
/* Add a tier, or an engine, after the last. EBB_E_ARGUMENT: the name is not valid or is taken, or a second device.
 * EBB_E_LIMIT: EBB_MAX_TIERS or EBB_MAX_ENGINES are there. */
EBB_API ebb_status ebb_machine_add_tier(ebb_machine *machine, const ebb_tier *tier, uint32_t *tier_out);
EBB_API ebb_status ebb_machine_add_engine(ebb_machine *machine, const char *name, uint32_t *engine_out);
/* The tier for the memory of other processes: the machine's first of EBB_STORE_REMOTE. If it has none, one is added
 * that is called "remote", with engines "remote-out" and "remote-in", and links with round figures to the device and
 * the host. Failures are those of ebb_machine_add_tier. */
EBB_API ebb_status ebb_machine_add_remote(ebb_machine *machine, uint32_t *tier_out);
/* The first tier with this store, or EBB_MAX_TIERS if there is none. */
EBB_API uint32_t ebb_topology_tier_of(const ebb_topology *topology, ebb_store store);
/* Link two tiers, or change their link. EBB_E_ARGUMENT: tiers or engines that are not there, the same tier
 * twice, rates that are not positive and finite, or shares outside of (0, 1]. */
EBB_API ebb_status ebb_machine_set_link(ebb_machine *machine, const ebb_link *link);
/* How two tiers are linked, seen from near. false: they are not. */
EBB_API bool ebb_machine_link(const ebb_machine *machine, uint32_t near, uint32_t far, ebb_link *link_out);
/* The time that a copy of this many bytes takes alone; UINT64_MAX: the two tiers are not linked. */
EBB_API uint64_t ebb_machine_copy_time_ns(const ebb_machine *machine, uint32_t from, uint32_t to, uint64_t bytes);

EBB_API ebb_step_kind ebb_machine_step_kind(const ebb_machine *machine, const ebb_choice *choice);
/* How a step without a measured time is estimated: max(flops / rate, bytes / bandwidth) + overhead. */
EBB_API void ebb_machine_set_rates(ebb_machine *machine, double flops_per_s, double bytes_per_s, uint64_t overhead_ns);
/* File a measured time under a choice's key; the last one counts. */
EBB_API ebb_status ebb_machine_set_time(ebb_machine *machine, uint64_t key, uint64_t time_ns);
/* The time that the compute engine takes: the machine's measured time of the choice's key, else the time that the
 * choice carries, else the estimated one. 0 for a choice that only copies in, if an engine of the machine does that. */
EBB_API uint64_t ebb_machine_step_time_ns(const ebb_machine *machine, const ebb_choice *choice);

/* ---- the plan --------------------------------------------------------------------------------- */

typedef struct ebb_plan ebb_plan;

#define EBB_SCRATCH UINT32_MAX

typedef enum ebb_action_kind {
    EBB_ACT_RUN,
    EBB_ACT_AGAIN,
    EBB_ACT_OUT,
    EBB_ACT_IN,
    EBB_ACT_MOVE,
    EBB_ACT_DROP,
} ebb_action_kind;

#define EBB_WHOLE UINT64_MAX /* all bytes of a tensor */

typedef struct ebb_action {
    uint32_t kind;
    uint32_t target;            /* a step or a tensor */
    uint32_t choice;            /* run, again: which of the step's choices; again takes the one that run took */
    uint16_t tier, to;          /* out: where to; in, move: where from; move: where to */
    uint64_t begin, size_bytes; /* of a tensor: which bytes, or 0 and EBB_WHOLE; of a step: 0 */
    bool held;                  /* out, in, move: it waits for what is computed before it in the list, too */
} ebb_action;

typedef struct ebb_stay {
    uint32_t tensor; /* or EBB_SCRATCH */
    uint64_t first, last;
    uint64_t offset, size_bytes; /* in the arena */
    uint64_t begin;              /* which byte of the tensor it begins with; of scratch: 0 */
} ebb_stay;

typedef struct ebb_slot {
    uint32_t tensor;
    uint32_t tier;
    uint64_t first, last;
    uint64_t offset, size_bytes; /* in the tier's memory or file */
    uint64_t begin;              /* which byte of the tensor it begins with */
} ebb_slot;

/* The largest margin that a plan can be made with. Times of copies end at 2^63 ns and would all be the same there; with
 * this margin, a copy of a terabyte at 1 GB/s takes 2^50 ns. */
#define EBB_MAX_MARGIN 1000.0

typedef struct ebb_plan_options {
    size_t size_bytes;
    const ebb_mem *mem;
    const char *policy;                 /* ebb_policy_name lists them */
    uint64_t budget_bytes;              /* of the device; UINT64_MAX: no limit */
    uint64_t tier_bytes[EBB_MAX_TIERS]; /* how much each of the machine's tiers may hold; 0: none. A tier's
                                           capacity_bytes limits it, too. Ignored for the device, for tiers that do not
                                           exist, and for tiers without a link to the device. A copy goes to the fastest
                                           tier with room, there and back */
    const char *algorithms; /* the way in which each step gets its algorithm; ebb_algorithms_name lists the ways */
    uint64_t
        granule_bytes;  /* the arena takes whole granules of the device, so only the whole granules of the budget are
                           used, and the least budget is a number of them. 0: the arena takes any number of bytes */
    uint32_t effort;    /* of the policies best and swap: rounds of their search, a few seconds each; 0: no search, but
                         * a first plan at once. Within one budget more effort gives no slower plan, as predicted before
                         * copies are held (ebb_action), with margin 0 and not with "fitting" */
    bool no_recompute;  /* no step is run twice. A policy that would run one again has no plan then */
    bool as_coded;      /* policies of papers make the mistakes of their authors' code, where these are known */
    uint32_t n_threads; /* that a search may use, the caller's among them; 0 is 1. The plan is the same
                         * for any number. With more than one, the memory hooks are called from several threads */
    double slowdown;    /* 0 or more: of the plans within the limits above that take at most 1 + slowdown times what an
                           iteration takes without limits, the one with the least peak that is found, which takes as long
                           as about 15 plans. Below 0: the fastest plan */
    double margin;      /* the plan is made as if all copies took 1 + margin times as long, so that it still holds if
                           they are late, or steps early, by that much. Predictions and bounds are for the machine
                           as it is. 0: none; at most EBB_MAX_MARGIN */
    ebb_progress progress; /* told of what takes long and has a known length: a search, and the plans for a slowdown */
    bool (*stop)(void *ctx); /* asked between parts of a search and while copies are held, once there is a first plan,
                                by the thread that asked for the plan. true ends the search; the plan is the best one so
                                far. NULL: never */
    void *stop_ctx;          /* the caller's */
    bool no_parts;           /* only whole tensors are copied and dropped, for a runtime that has no parts */
} ebb_plan_options;
#define EBB_PLAN_OPTIONS_INIT                                                                                          \
    EBB_INIT(ebb_plan_options,                                                                                         \
             EBB_SET(policy, "best") EBB_SET(budget_bytes, UINT64_MAX) EBB_SET(tier_bytes[EBB_HOST], UINT64_MAX)       \
                 EBB_SET(algorithms, "given") EBB_SET(effort, 1) EBB_SET(n_threads, 1) EBB_SET(slowdown, -1))

/* Why a plan does not fit. If the host's memory is too small, the first three members mean nothing. */
typedef struct ebb_no_fit {
    uint64_t least_budget_bytes; /* the smallest budget for which this policy has a plan; 0: not known */
    uint32_t step;               /* the step that does not fit */
    uint64_t step_bytes;         /* the bytes that it uses at once */
    uint64_t least_host_bytes; /* the least host memory, before anything leaves the device; 0: the host is large enough.
                                  Only the trainer looks at it; ebb_plan_make: 0 */
} ebb_no_fit;

/* Make a plan by a policy. The caller destroys it; of the arguments it keeps only the memory hooks. It has passed
 * ebb_plan_check. EBB_E_NO_FIT: *no_fit_out (may be NULL) is written, and the message says the same. Whether a budget
 * is refused does not depend on the machine's times, except through the choices of "fitting" and "fastest", and with a
 * slowdown.
 * EBB_E_ARGUMENT: options of another version, no such policy, no such way to choose algorithms, a slowdown that is not
 * a number, or a margin that is not from 0 to EBB_MAX_MARGIN. EBB_E_LIMIT: about 2^31 stays or slots, or of "fitting"
 * 2^32 choices, or more. "fitting" takes as long as several plans, up to 68 (docs/algorithms.md). */
EBB_API ebb_status ebb_plan_make(const ebb_program *program, const ebb_machine *machine,
                                 const ebb_plan_options *options, ebb_plan **plan_out, ebb_no_fit *no_fit_out);
EBB_API void ebb_plan_destroy(ebb_plan *plan);

/* Name number idx, with *about_out a line about it (may be NULL); NULL past the last. */
EBB_API const char *ebb_policy_name(size_t idx, const char **about_out);

/* The same for the ways to choose algorithms:
 *   given    choice 0 of each step, the backend's; results do not depend on the budget. The default for comparisons
 *   least    the least scratch; results do not depend on the budget
 *   fitting  what makes the plan fastest: a faster choice where its scratch has room or is worth what has to leave for
 *            it. Its predicted time is not above that of given, least or fastest; it has a plan where one of them has
 *   fastest  the least time
 *   greedy   SuperNeurons' rule: in the plan of least, at each step the fastest whose scratch the free bytes hold
 * If choices are equal, the first is taken. fitting, fastest and greedy depend on the machine's times, and fitting and
 * greedy also on the budget. With other choices, the last bits of results may change. */
EBB_API const char *ebb_algorithms_name(size_t idx, const char **about_out);

/* Views, borrowed until the plan dies. */
EBB_API const ebb_action *ebb_plan_actions(const ebb_plan *plan, size_t *n_out);
EBB_API const ebb_stay *ebb_plan_stays(const ebb_plan *plan, size_t *n_out); /* by first, tensor, begin */
EBB_API const ebb_slot *ebb_plan_slots(const ebb_plan *plan, size_t *n_out); /* in the same order */
EBB_API const ebb_topology *ebb_plan_topology(const ebb_plan *plan);         /* of the machine that it was made for */

/* Bounds that no plan for the program can beat, whatever its policy, and the rule that proves each, the first that
 * proves as much:
 *   step      one step touches this many bytes at once, with its least scratch
 *   compute   each step is computed once, by its fastest choice, on the machine that the plan was made for
 *   prices    what has no room within the plan's budget and tiers has to be copied or computed again (docs/best.md).
 *             This one holds for plans that run the steps in the program's order, as all but those of the policy
 *             "order" do
 * The gap of a plan is how far it is above its bound. If a rule is NULL, nothing is proven (the plan was written by
 * hand). */
typedef struct ebb_certificate {
    uint64_t bound_bytes, bound_ns;
    const char *bytes_rule, *ns_rule; /* static */
} ebb_certificate;

/* The bounds within the limits of these options, which no plan beats that runs the steps in the program's order; more
 * effort gives a higher one. Looks at nothing else of the options. EBB_E_ARGUMENT: options of another version. */
EBB_API ebb_status ebb_plan_certify(const ebb_program *program, const ebb_machine *machine,
                                    const ebb_plan_options *options, ebb_certificate *certificate_out);

typedef struct ebb_plan_summary {
    const char *policy; /* lives as long as the plan */
    uint64_t budget_bytes;
    uint64_t peak_bytes;  /* the arena that it needs: the end of the highest stay */
    uint64_t bound_bytes; /* the most bytes of stays at one position, each rounded up to the alignment, or the peak if
                             that is less: no placement of these stays has a peak that is lower by an alignment */
    uint64_t tier_bytes[EBB_MAX_TIERS];       /* that it takes of each lower tier */
    uint64_t moved_out_bytes, moved_in_bytes; /* an iteration */
    uint64_t moved_on_bytes;                  /* an iteration, from one lower tier to another */
    uint64_t n_recomputed_steps;              /* an iteration */
    uint64_t alignment_bytes;                 /* of every offset */
    uint64_t fingerprint;                     /* of the program that it is for */
    const char *algorithms;                   /* how choices were made; static */
    bool has_nominal_times; /* it was drafted with round figures in place of the machine's times: with these no plan was
                               found or, of the policy best, none that is as fast */
    ebb_certificate certificate;
} ebb_plan_summary;
EBB_API ebb_plan_summary ebb_plan_get_summary(const ebb_plan *plan);

#define EBB_CHOICES_TOLD 8

/* Figures about the choices of a plan. Times are of computing only, including steps that run again. */
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
 * proves that every read finds its tensor present, whole, in one piece and at the version that the program means, no
 * two live stays (or slots) overlap, nothing exceeds the budget, the circle closes. EBB_E_INVALID_PLAN: the message
 * names the action and the rule. EBB_E_LIMIT: 2^32 - 1 stays or slots, or more. O(n log n), and O(parts) an access to a
 * tensor of several parts. */
EBB_API ebb_status ebb_plan_check(const ebb_program *program, const ebb_plan *plan);

/* ---- the timeline ----------------------------------------------------------------------------- */

typedef struct ebb_timeline {
    uint64_t iteration_ns;              /* of the steady iteration: as long as the one before it, or the eighth */
    uint64_t again_ns;                  /* of compute: spent on recomputation, by itself */
    uint64_t busy_ns[EBB_MAX_ENGINES];  /* of each engine within it: what its actions take by themselves */
    uint64_t stall_ns[EBB_MAX_ENGINES]; /* of each engine: it could have gone on, but waited for another one's action */
} ebb_timeline;

/* Predict the timeline. Engines work at the same time, each in order. An action starts when its engine is free and the
 * actions that it waits for have ended, so a stall delays all that follows. Copies slow each other and computing as the
 * links say. start_ns_out and end_ns_out: one entry an action, in the steady iteration, from its beginning (drops: both
 * the same); NULL if not wanted. The plan is one for the program (ebb_plan_check). EBB_E_ARGUMENT: the machine lacks
 * tiers or ways of the plan. EBB_E_LIMIT: the plan has about 2^31 stays or slots, or more. */
EBB_API ebb_status ebb_plan_simulate(const ebb_program *program, const ebb_plan *plan, const ebb_machine *machine,
                                     ebb_timeline *timeline_out, uint64_t *start_ns_out, uint64_t *end_ns_out);

#ifdef __cplusplus
}
#endif

#endif
