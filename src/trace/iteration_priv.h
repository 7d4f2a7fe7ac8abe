/* SPDX-License-Identifier: Apache-2.0
 *
 * The finder of iterations from inside. For each event that says what a program does, a symbol is kept: its kind and a
 * hash of what is the same whenever the program does it again (sizes, operators; never addresses, times or numbers of
 * blocks), and its block. The rest (marks, labels, copies, segments) depends on timing or on what came before, and is
 * passed over: places are counted in kept events ('at') inside, in events of the trace outside.
 */
#ifndef EBB_SRC_TRACE_ITERATION_PRIV_H
#define EBB_SRC_TRACE_ITERATION_PRIV_H

#include "base/base.h"
#include "ebb/iteration.h"

#define EBB_ITERATION_NO_BLOCK UINT32_MAX

/* The low bits of a symbol. */
enum {
    EBB_SYMBOL_STEP_END,
    EBB_SYMBOL_ALLOC,
    EBB_SYMBOL_FREE,
    EBB_SYMBOL_READ,
    EBB_SYMBOL_WRITE,
    EBB_SYMBOL_STEP, /* its beginning */
    EBB_SYMBOL_MASK = 7
};

static inline bool ebb__symbol_is_free(uint32_t symbol) {
    return (symbol & EBB_SYMBOL_MASK) == EBB_SYMBOL_FREE;
}

typedef struct ebb_iteration_mark {
    uint32_t event; /* in the trace */
    uint32_t mark;
} ebb_iteration_mark;

/* How updates are known, the best way first: by a name, a call stack, a step's phase. */
typedef enum ebb_iteration_evidence {
    EBB_ITERATION_BY_NAME,
    EBB_ITERATION_BY_STACK,
    EBB_ITERATION_BY_PHASE,
    EBB_ITERATION_N_EVIDENCE
} ebb_iteration_evidence;

typedef struct ebb_iteration_update {
    uint32_t first, last; /* kept events */
    uint64_t who;         /* equal for updates that do the same */
} ebb_iteration_update;
typedef EBB_VEC(ebb_iteration_update) ebb_iteration_updates;

/* Kept events [first, last). */
typedef struct ebb_stretch {
    uint32_t first, last;
} ebb_stretch;
typedef EBB_VEC(ebb_stretch) ebb_stretches;
typedef EBB_VEC(ebb_iteration_part) ebb_iteration_parts;
typedef EBB_VEC(uint32_t) ebb_u32s;

struct ebb_iteration_finder {
    const ebb_mem *mem;
    const ebb_trace_reader *reader;
    EBB_VEC(uint32_t) symbols; /* of the kept events */
    EBB_VEC(uint32_t) blocks;  /* as many; or EBB_ITERATION_NO_BLOCK */
    EBB_VEC(uint64_t) sizes;   /* by block */
    EBB_VEC(uint32_t) passed;  /* the events of the trace that are not kept */
    EBB_VEC(ebb_iteration_mark) marks;
    ebb_iteration_updates updates[EBB_ITERATION_N_EVIDENCE];
    bool is_open[EBB_ITERATION_N_EVIDENCE]; /* the last update has not ended */
    uint64_t update_step;                   /* the step of the one by name, or EBB_TRACE_NONE */
    ebb_u32s callers;                 /* [stack]: the stack that called the optimizer's step in it, plus 1; 0: none */
    bool sees_forward, sees_backward; /* a step's phase said so */
    uint64_t n_guesses;               /* ends of iterations that a recorder marked by itself, after each update */
    bool has_guesses;                 /* there are some, so marks are not taken at their word */
    uint32_t first_guess;             /* where the first of them begins, a kept event */
    ebb_iteration_parts parts;        /* the answer */
};

/* The event of the trace that is the kept event at, and the first kept event at or after an event of the trace. */
uint64_t ebb__iteration_event_of(const ebb_iteration_finder *finder, uint32_t at);
uint32_t ebb__iteration_at_of(const ebb_iteration_finder *finder, uint64_t event);

/* What the search looks things up in: a sequence of symbols, all kept events or some, and what memory is at them. */
typedef struct ebb_iteration_text {
    const ebb_iteration_finder *finder;
    const uint32_t *symbols;
    uint32_t n;
    bool is_sorted;             /* frees in a row have no order */
    uint64_t *prefix;           /* [n + 1]: hashes of what comes before each place */
    const uint64_t *least;      /* [n + 1]: the least live bytes between the place before and each place */
    const uint32_t *places;     /* [n + 1]: the kept events, and how many there are; NULL: all are */
    const uint64_t *live_bytes; /* before each kept event, and after the last */
    uint64_t peak_bytes;
    const uint32_t *born, *died; /* by block: the kept events of its alloc and its free, or after the last */
} ebb_iteration_text;

ebb_status ebb__iteration_text_init(ebb_iteration_text *text, const ebb_iteration_finder *finder, ebb_bump *bump);
/* Frees in a row into one order. */
void ebb__iteration_sort_frees(uint32_t *symbols, ebb_stretch part);
/* The same trace with frees in a row in one order, whatever order they came in. */
ebb_status ebb__iteration_text_init_sorted(ebb_iteration_text *text, const ebb_iteration_text *all, ebb_bump *bump);
/* The same trace with only the symbols of these kinds, as bits. */
ebb_status ebb__iteration_text_init_part(ebb_iteration_text *text, const ebb_iteration_text *all, uint32_t kinds,
                                         ebb_bump *bump);
static inline uint32_t ebb__iteration_place(const ebb_iteration_text *text, uint32_t at) {
    return text->places != NULL ? text->places[at] : at;
}
/* Equal for equal windows of n symbols; power is that of n. */
uint64_t ebb__iteration_power(uint32_t n);
static inline uint64_t ebb__iteration_window(const ebb_iteration_text *text, uint32_t at, uint32_t n, uint64_t power) {
    EBB_ASSERT(at <= text->n && n <= text->n - at);
    return text->prefix[at + n] - text->prefix[at] * power;
}

/* What a repetition does, as far as its blocks tell. */
typedef struct ebb_iteration_weight {
    bool is_known;          /* there are blocks that stay, such as parameters; else nothing below is known */
    bool has_gradients;     /* it makes blocks as large as most of those */
    bool has_all_gradients; /* as large as nearly all of them */
    bool is_half;           /* another pass often comes between, which makes such blocks too */
    bool makes_state;       /* before the first one, blocks as large as its gradients were made beside them, and stay */
    bool writes;            /* it writes to what stays */
} ebb_iteration_weight;

/* iteration_choose.c: lengths that an iteration may have, ascending, into an empty vector. */
ebb_status ebb__iteration_candidates(const ebb_iteration_text *text, ebb_u32s *lengths);
/* Into the ascending lengths, once; there are few. */
ebb_status ebb__iteration_add_length(const ebb_mem *mem, ebb_u32s *lengths, uint32_t length);

/* Which of the candidates is the iteration, 0 for none; its runs: the stretches that repeat with its length, in order.
 * *is_joined_out: it holds a shorter repetition several times and another optimizer's pass. */
ebb_status ebb__iteration_choose(const ebb_iteration_text *text, const ebb_u32s *lengths, bool exact,
                                 uint32_t *length_out, ebb_stretches *runs, bool *is_joined_out);

/* iteration_events.c: where in the first run the first whole iteration begins. */
ebb_status ebb__iteration_start(const ebb_iteration_text *text, uint32_t length, const ebb_stretches *runs,
                                uint32_t *start_out);

/* iteration_events.c: the iterations by the events alone, or by these events, in order, of one of the lengths. None:
 * none exist. *is_joined_out as above. */
ebb_status ebb__iteration_from_events(const ebb_iteration_text *text, const ebb_u32s *lengths, bool exact,
                                      ebb_iteration_parts *iterations, bool *is_joined_out);

/* Without the first one, if more of what it makes stays than of the second: it makes gradients that are kept. */
void ebb__iteration_drop_first(const ebb_iteration_text *text, ebb_iteration_parts *iterations);

/* iteration_text.c: how many events of b come in the same order in a, about: step by step as long as both have the same
 * steps, and places where both go on alike are looked for nearby only. Linear. */
uint32_t ebb__iteration_n_common(const uint32_t *symbols, ebb_stretch a, ebb_stretch b);

/* iteration_updates.c: the iterations that are marked, in order. */
ebb_status ebb__iteration_from_marks(const ebb_iteration_finder *finder, ebb_iteration_parts *iterations);
/* iteration_text.c: of the places [first, last) that with the least live bytes after which most is added, in bytes
 * times events. */
uint32_t ebb__iteration_least(const uint64_t *live_bytes, uint32_t first, uint32_t last);

/* iteration_updates.c: whether a block is made at one of these kept events. */
bool ebb__iteration_makes(const ebb_iteration_finder *finder, uint32_t first, uint32_t last);

/* iteration_updates.c: note what an event tells of updates. Then, with all events there: the groups of updates, after
 * how many of them an iteration ends, and the iterations. *source_out: how the updates are known. By call stacks, those
 * that allocate nothing are missing. */
ebb_status ebb__iteration_note(ebb_iteration_finder *finder, const ebb_trace_event *event);
ebb_status ebb__iteration_from_updates(const ebb_iteration_text *all, ebb_bump *bump, ebb_iteration_updates *groups,
                                       uint32_t *period_out, ebb_iteration_evidence *source_out,
                                       ebb_iteration_parts *iterations);

/* iteration_judge.c: what blocks alone tell of a repetition; parts are those of the answer. */
ebb_status ebb__iteration_weigh(const ebb_iteration_text *all, const ebb_iteration_part *parts, size_t n,
                                ebb_iteration_weight *weight_out);

/* iteration_judge.c: whether the rest of an iteration, in which a repetition comes several times, holds another
 * optimizer's pass. span: all that repeats; in kept events. */
ebb_status ebb__iteration_has_pass(const ebb_iteration_text *all, ebb_stretch span, ebb_stretch one,
                                   const ebb_stretches *rest, bool *has_out);

/* iteration_judge.c: the answer and the parts, from iterations in order that do not overlap, one or more. But for
 * marked ones, those in front and at the end that are irregular are none, and one alone is none: then nothing is
 * written. */
ebb_status ebb__iteration_judge(ebb_iteration_finder *finder, const ebb_iteration_parts *iterations,
                                ebb_iteration_source source, ebb_iteration *iteration_out);
/* The doubt that this many iterations leave, from 0 to 1. */
double ebb__iteration_doubt(uint64_t count);
/* The share of the events from the first one's begin to the last one's end that lies in them. */
double ebb__iteration_share(const ebb_iteration_part *iterations, size_t n);

#endif
