/* SPDX-License-Identifier: Apache-2.0
 *
 * Shared by the files of this folder: the plan itself, and what a policy is.
 */
#ifndef EBB_SRC_PLAN_PRIV_H
#define EBB_SRC_PLAN_PRIV_H

#include "plan/draft.h"
#include "ebb/place.h"
#include "plan/plan.h"

#include <stdatomic.h>

/* All public arrays of a program in one piece; borrowed from it. */
typedef struct ebb_program_view {
    const ebb_tensor *tensors;
    const ebb_step *steps;
    const ebb_access *accesses;
    const ebb_choice *choices;
    size_t n_tensors, n_steps, n_accesses;
    uint64_t alignment;
} ebb_program_view;
ebb_program_view ebb__plan_view(const ebb_program *program);

/* How each step comes to its choice of algorithm. */
typedef enum ebb_algorithms {
    EBB_ALGORITHMS_GIVEN,
    EBB_ALGORITHMS_LEAST,
    EBB_ALGORITHMS_FITTING,
    EBB_ALGORITHMS_FASTEST,
    EBB_ALGORITHMS_GREEDY,
    EBB_N_ALGORITHMS,
} ebb_algorithms;

/* By name; EBB_N_ALGORITHMS if none is called so. */
ebb_algorithms ebb__algorithms_find(const char *name);

/* ---- tiers and engines -------------------------------------------------------------------------- */

const char *ebb__store_name(ebb_store store);
ebb_store ebb__store_find(const char *name);                                   /* EBB_N_STORES: none */
uint32_t ebb__topology_engine(const ebb_topology *topology, const char *name); /* EBB_MAX_ENGINES: none */
/* As ebb_machine_add_tier, ebb_machine_add_engine. */
ebb_status ebb__topology_add_tier(ebb_topology *topology, const ebb_tier *tier, uint32_t *tier_out);
ebb_status ebb__topology_add_engine(ebb_topology *topology, const char *name, uint32_t *engine_out);
/* The engine that does it; EBB_NO_ENGINE: none has to; 0 of a copy: there is no way. */
uint8_t ebb__topology_engine_of(const ebb_topology *topology, const ebb_action *action);
/* The tier of the host's memory, from which steps that copy in read; EBB_DEVICE: nothing but the compute engine can do
 * such steps. */
uint32_t ebb__topology_feeds_from(const ebb_topology *topology);

/* How long the engine from this tier to the device takes for a choice that copies in this many bytes; UINT64_MAX: they
 * are not linked. */
uint64_t ebb__machine_feed_time_ns(const ebb_machine *machine, uint32_t from, const ebb_choice *choice, uint64_t bytes);

/* ---- the plan ----------------------------------------------------------------------------------- */

struct ebb_plan {
    const ebb_mem *mem;
    char *policy;
    ebb_topology topology;
    ebb_algorithms algorithms;
    uint64_t budget_bytes;
    uint64_t fingerprint;
    uint64_t alignment_bytes; /* the program's */
    bool has_nominal_times;
    ebb_certificate certificate;
    EBB_VEC(ebb_action) actions;
    EBB_VEC(ebb_stay) stays;
    EBB_VEC(ebb_slot) slots;
    ebb_plan_summary summary;
};

ebb_status ebb__plan_create(const ebb_mem *mem, const char *policy, const ebb_topology *topology, ebb_plan **plan_out);
/* One of the same kind, without actions, stays or slots. */
ebb_status ebb__plan_create_like(const ebb_plan *plan, ebb_plan **like_out);

/* Put stays and slots in their order. */
ebb_status ebb__plan_sort_pieces(ebb_plan *plan);

/* Whether a comes after b in the order of stays and of slots: by first, tensor, begin. */
static inline bool ebb__comes_after(uint64_t first_a, uint32_t tensor_a, uint64_t begin_a, uint64_t first_b,
                                    uint32_t tensor_b, uint64_t begin_b) {
    if (first_a != first_b) { return first_a > first_b; }
    return tensor_a != tensor_b ? tensor_a > tensor_b : begin_a > begin_b;
}

/* Slots in the order of their last; the array comes from the bump. EBB_E_LIMIT: more than 2^32 - 1 slots. */
ebb_status ebb__plan_order_slot_ends(const ebb_plan *plan, ebb_bump *bump, uint32_t **slots_out);

/* Work out the summary of a plan whose stays and slots are in order. EBB_E_FORMAT: its bytes do not add up
 * within 64 bits. */
ebb_status ebb__plan_seal(ebb_plan *plan);

/* The bytes at each position of a circle of n, from the bytes of each of a number of intervals. The sum of all
 * bytes fits in 64 bits. */
typedef struct ebb_load {
    const ebb_mem *mem;
    uint64_t *change; /* [n + 1] */
    uint64_t n;
} ebb_load;
ebb_status ebb__load_init(ebb_load *load, const ebb_mem *mem, uint64_t n);
void ebb__load_fini(ebb_load *load);
void ebb__load_add(ebb_load *load, uint64_t first, uint64_t last, uint64_t bytes); /* around the end: first >= last */
uint64_t ebb__load_most(const ebb_load *load);

/* The load to aim at: a load of all the budget is hardly ever placed within it. */
static inline uint64_t ebb__load_limit(uint64_t budget_bytes) {
    return budget_bytes - budget_bytes / 64;
}

/* ---- placing ----------------------------------------------------------------------------------- */

#define EBB_PLACING_WORK_AN_ITEM 64u
/* Work for a plan that is one of many, for a set of copies, and for what comes out of a round of a search. The placer
 * divides its work among several ways to place, so with more work it may go another way, and end higher. */
#define EBB_PLACING_QUICK (EBB_PLACE_STEPS / 16)
#define EBB_PLACING_SET (EBB_PLACE_STEPS / 8)
#define EBB_PLACING_ROUND (EBB_PLACE_STEPS / 4)

typedef struct ebb_placing_options {
    uint64_t alignment;
    uint64_t work;         /* of the placer, beside EBB_PLACING_WORK_AN_ITEM for each. 0: its first sweep alone, which
                              any more work begins with, too */
    uint64_t enough_bytes; /* a peak of the arena that will do; nothing lower is looked for */
    uint64_t limit_bytes;  /* above which the plan will not be taken, so that tiers without limit need not be placed */
    uint64_t tier_bytes[EBB_MAX_TIERS]; /* their limits */
} ebb_placing_options;

/* Peaks. A tier that was not placed: 0. */
typedef struct ebb_placed {
    uint64_t peak_bytes, tier_bytes[EBB_MAX_TIERS];
} ebb_placed;

static inline bool ebb__placed_fits(const ebb_placed *placed, uint64_t budget_bytes,
                                    const uint64_t tier_bytes[EBB_MAX_TIERS]) {
    bool fits = placed->peak_bytes <= budget_bytes;
    for (uint32_t tier = 1; tier < EBB_MAX_TIERS; tier++) {
        fits = fits && placed->tier_bytes[tier] <= tier_bytes[tier];
    }
    return fits;
}

/* Give stays and slots their offsets. */
ebb_status ebb__plan_place(ebb_plan *plan, const ebb_placing_options *options, ebb_placed *placed_out);
/* Slots only: the stays have theirs. */
ebb_status ebb__plan_place_slots(ebb_plan *plan, const ebb_placing_options *options, ebb_placed *placed_out);

/* Most bytes that one step touches at once with its choice, and which step, as ebb_program_floor_bytes counts them: no
 * plan with these choices needs less. */
uint64_t ebb__plan_floor(const ebb_program *program, const uint32_t *choice, uint32_t *step_out);

/* The rule of that name, static; NULL: none. */
const char *ebb__certificate_rule(const char *name);
/* How long prices are looked for (bound_prices.c). */
typedef enum ebb_bound_care {
    EBB_BOUND_AT_ONCE, /* a first plan's: of a large program hardly at all */
    EBB_BOUND_QUICK,
    EBB_BOUND_LONG,
} ebb_bound_care;

static inline ebb_bound_care ebb__bound_care(uint32_t effort) {
    return effort > 0 ? EBB_BOUND_LONG : EBB_BOUND_QUICK;
}

/* The bounds that are proven for all plans for a program on a machine within the limits of these options, if they run
 * the steps in the program's order; else in_order is false (bound.c). */
ebb_status ebb__plan_certify(const ebb_program *program, const ebb_machine *machine, const ebb_plan_options *limits,
                             bool in_order, ebb_bound_care care, ebb_certificate *certificate_out);
/* The same for a thread that others may tell that the answer is unwanted: what is found then is a bound, but a low one.
 * is_unwanted may be NULL. */
ebb_status ebb__plan_certify_unless(const atomic_bool *is_unwanted, const ebb_program *program,
                                    const ebb_machine *machine, const ebb_plan_options *limits, bool in_order,
                                    ebb_bound_care care, ebb_certificate *certificate_out);

/* How a plan is asked for. */
typedef struct ebb_plan_asked {
    const ebb_certificate
        *known;        /* of these options, worked out before: plans in the program's order get it; or NULL */
    bool always_walks; /* without effort, too: else its first plan will do then */
} ebb_plan_asked;

/* ebb_plan_make, without a slowdown. */
ebb_status ebb__plan_make(const ebb_program *program, const ebb_machine *machine, const ebb_plan_options *options,
                          const ebb_plan_asked *asked, ebb_plan **plan_out, ebb_no_fit *no_fit_out);

/* The time of a step by its fastest choice. */
uint64_t ebb__least_step_ns(const ebb_program_view *view, const ebb_machine *machine, size_t step);

/* The time to compute each step once with these choices, or with the first of each step if choice is NULL. */
uint64_t ebb__computing_ns(const ebb_program *program, const ebb_machine *machine, const uint32_t *choice);

/* ebb_plan_make with a slowdown (least_peak.c). */
ebb_status ebb__plan_least_peak(const ebb_program *program, const ebb_machine *machine, const ebb_plan_options *options,
                                ebb_plan **plan_out, ebb_no_fit *no_fit_out);

/* Whether its runs are in the program's order. */
bool ebb__plan_is_in_order(const ebb_plan *plan);

/* Most bytes of stays at one position, each rounded up to the alignment. */
ebb_status ebb__plan_bound(const ebb_plan *plan, uint64_t alignment, uint64_t *bound_out);

/* No plan in the program's order with these choices is faster than this, within the limits (bound.c). It is not looked
 * for beyond stop_ns. */
ebb_status ebb__bound_choices(const ebb_program *program, const ebb_machine *machine, const ebb_plan_options *limits,
                              const uint32_t *choice, uint64_t stop_ns, uint64_t *bound_ns_out);

/* The text form in memory; name is for messages. */
ebb_status ebb__plan_parse(const ebb_mem *mem, const char *name, const char *text, size_t n, ebb_plan **plan_out);

/* "run", "again", "out", "in", "move", "drop". "?" for anything else. */
const char *ebb__action_name(uint32_t kind);

/* Times add up to at most UINT64_MAX: a machine may be as slow as it likes. */
static inline uint64_t ebb__add_ns(uint64_t a, uint64_t b) {
    return a > UINT64_MAX - b ? UINT64_MAX : a + b;
}

#define EBB_CLOSE 1.001 /* times a bound: what is as close is not worth a search */

/* ---- policies ---------------------------------------------------------------------------------- */

/* The input of a policy. The load (rounded bytes of stays and scratch at one position) must keep within
 * limit_bytes, copies within tier_bytes. */
typedef struct ebb_policy_input {
    const ebb_program *program;
    const ebb_machine *machine;
    const ebb_mem *mem;
    const uint32_t *choice; /* [n_steps]: the algorithm that each step is to be run with; NULL: 0 everywhere */
    uint64_t limit_bytes;
    uint64_t budget_bytes; /* what the plan may need once it is placed */
    uint64_t worth_ns;     /* a draft that computes for longer need not be made; 0: any is wanted */
    uint64_t tier_bytes[EBB_MAX_TIERS];
    bool early_out;     /* copies out may begin before their tensor has to leave */
    bool early_in;      /* copies in may begin before their tensor is read */
    bool is_hasty;      /* little work is to be spent */
    bool walks;         /* in haste, by a policy that searches: the draft of one walk */
    bool copies_only;   /* nothing is to be computed again */
    bool as_coded;      /* with the mistakes of the authors' code */
    uint32_t effort;    /* of a policy that searches: how many rounds */
    uint32_t other;     /* 1 .. n_others: one of the policy's other drafts, made for its peak; 0: the policy's own */
    uint32_t n_threads; /* that it may work with; the plan does not depend on it */
    const ebb_progress *progress;    /* of a policy that searches, told how far it is; NULL: no calls */
    const ebb_plan_options *options; /* the caller's, with its stop callback; NULL: nothing stops a search */
    const uint32_t *order; /* [n_steps]: the step at each place; NULL: as the program has them. The policy budget takes
                              the program's order all the same */
    const uint32_t *known_order; /* of the policy order, found before; NULL: it has to find it */
    struct ebb_best_kept **kept; /* where the policy best keeps its first walks, for the search that goes on from them;
                                    NULL: it makes them again */
} ebb_policy_input;

/* Whether anything may be copied out. */
static inline bool ebb__has_tiers(const uint64_t tier_bytes[EBB_MAX_TIERS]) {
    for (uint32_t tier = 1; tier < EBB_MAX_TIERS; tier++) {
        if (tier_bytes[tier] > 0) { return true; }
    }
    return false;
}

/* Whether a tier may be too small for what is placed in it. */
static inline bool ebb__has_small_tiers(const uint64_t tier_bytes[EBB_MAX_TIERS]) {
    for (uint32_t tier = 1; tier < EBB_MAX_TIERS; tier++) {
        if (tier_bytes[tier] > 0 && tier_bytes[tier] < UINT64_MAX) { return true; }
    }
    return false;
}

/* Whether the caller wants no more searching. */
static inline bool ebb__is_stopped(const ebb_plan_options *options) {
    return options != NULL && options->stop != NULL && options->stop(options->stop_ctx);
}

/* The choice of a step, where choice may be NULL. */
static inline uint32_t ebb__choice_of(const uint32_t *choice, size_t step) {
    return choice != NULL ? choice[step] : 0;
}

/* The step at a place. */
static inline uint32_t ebb__step_at(const ebb_policy_input *input, size_t place) {
    return input->order != NULL ? input->order[place] : (uint32_t)place;
}

/* Whether these bytes fit beside those in use, within a limit. */
static inline bool ebb__has_room(uint64_t limit_bytes, uint64_t used_bytes, uint64_t bytes) {
    return used_bytes <= limit_bytes && bytes <= limit_bytes - used_bytes;
}

/* A copy to a tier and one back. */
uint64_t ebb__trip_ns(const ebb_machine *machine, uint32_t tier, uint64_t bytes);

/* Pick the fastest tier that has room for these bytes beside those in use: a copy there and back takes the least time.
 * If two are equally fast, the first. EBB_MAX_TIERS: no tier has room. */
uint32_t ebb__pick_tier(const ebb_policy_input *input, const uint64_t used_bytes[EBB_MAX_TIERS], uint64_t bytes);

/* The same without this tier, which counts as full in used_bytes from then on. So one call after the other goes through
 * all tiers with room, the fastest first. */
uint32_t ebb__pick_next_tier(const ebb_policy_input *input, uint64_t used_bytes[EBB_MAX_TIERS], uint64_t bytes,
                             uint32_t tier);

/* EBB_E_NO_FIT without a message: not within these limits. A policy that keeps no limit is told apart by
 * keeps_limit; for it, limits mean nothing. */
typedef struct ebb_policy ebb_policy;
struct ebb_policy {
    const char *name, *about;
    bool keeps_limit;
    bool copies_only;                      /* it computes nothing again */
    bool changes_order;                    /* it may run the steps in an order whose load is lower */
    bool picks_limits;                     /* with work, it tries limits of its own from the budget down */
    bool is_for_copies;                    /* a rival that is asked only of small programs, and where there is a tier */
    const struct ebb_policy *when_it_fits; /* whose plan is taken where the budget holds it; NULL: none's. It keeps no
                                              limit */
    ebb_status (*draft)(const ebb_policy_input *input, ebb_draft *draft);
    uint32_t n_others; /* drafts that a search for the least budget tries, too */
    const ebb_policy *const
        *rivals; /* [n_rivals]: whose plans are taken where they are faster; NULL: it does not search */
    uint32_t n_rivals;
    uint32_t n_quick_rivals;         /* these are asked without any effort, too */
    const ebb_policy *const *lower;  /* [n_lower]: which may have a plan below this one's least budget. They keep a
                                        limit, and have no such policies themselves */
    uint32_t n_lower, n_quick_lower; /* of large programs only these, the first ones, are asked */
    const ebb_policy *yardstick;     /* whose plan is taken where this one's is placed higher; NULL: none */
    bool never_copies;               /* it does not look at links */
};

/* By name. EBB_E_ARGUMENT lists those that there are. */
ebb_status ebb__policy_find(const char *name, const ebb_policy **policy_out);

/* Whether liveness drops a persistent tensor of the program, which the search for an order does not see. */
bool ebb__liveness_drops_persistent(const ebb_program *program);

/* Free what was kept; *kept may be NULL, and is afterwards (policy_best.c). */
void ebb__best_forget(struct ebb_best_kept **kept);

extern const ebb_policy ebb__policy_none;
extern const ebb_policy ebb__policy_liveness;
extern const ebb_policy ebb__policy_order;
extern const ebb_policy ebb__policy_budget;
extern const ebb_policy ebb__policy_best;
extern const ebb_policy ebb__policy_swap;
extern const ebb_policy ebb__policy_exchange; /* the same, and some are computed again instead; not for users */
extern const ebb_policy ebb__policy_dtr;
extern const ebb_policy ebb__policy_dtr_eq;
extern const ebb_policy ebb__policy_autoswap_doa;
extern const ebb_policy ebb__policy_autoswap_aoa;
extern const ebb_policy ebb__policy_autoswap_wdoa;
extern const ebb_policy ebb__policy_autoswap_swdoa;
extern const ebb_policy ebb__policy_autoswap_vote;
extern const ebb_policy ebb__policy_autoswap_bo;
extern const ebb_policy ebb__policy_recompute_speed, ebb__policy_recompute_memory;
extern const ebb_policy ebb__policy_recompute_cost_aware, ebb__policy_recompute_printed;
extern const ebb_policy ebb__policy_sqrt_n, ebb__policy_route;
extern const ebb_policy ebb__policy_revolve, ebb__policy_mixed;
extern const ebb_policy ebb__policy_chen_greedy, ebb__policy_ap_sqrt_n, ebb__policy_ap_greedy;
extern const ebb_policy ebb__policy_capuchin, ebb__policy_mu_two, ebb__policy_g10, ebb__policy_flashneuron;
extern const ebb_policy ebb__policy_vdnn_all, ebb__policy_vdnn_conv, ebb__policy_utp;
extern const ebb_policy ebb__policy_tensor_cache, ebb__policy_tensor_cache_next, ebb__policy_superneurons;

#endif
