/* SPDX-License-Identifier: Apache-2.0
 *
 * What the files of study share: the trace, as it lies in memory, and the tables that are made of it.
 *
 *      log       alloc 0 | alloc 1 | free 0 | alloc 2 | ...     births and deaths, in the order of the file
 *      accesses  read 1 | write 0 | ...                         in the order of the file
 *      by_block  the accesses again, block by block          those of b: [first_access(b), first_access(b + 1))
 *
 * Invariants
 *  1. A block is in the log once as born, and at most once as freed, after that.
 *  2. Times and events grow along log, accesses, and each block's part of by_block.
 *  3. Once it is created nothing of a study changes.
 */
#ifndef EBB_SRC_STUDY_PRIV_H
#define EBB_SRC_STUDY_PRIV_H

#include "ebb/study.h"
#include "trace/trace.h"

#define STUDY_NONE UINT32_MAX /* no event, no index */

typedef struct study_block {
    uint64_t size_bytes, address;
    uint64_t born_ns, died_ns;
    uint64_t longest_idle_ns;
    uint32_t born_event, died_event; /* died: STUDY_NONE */
    uint32_t first_access;           /* its first in by_block */
    uint32_t n_reads, n_writes, n_copies;
    uint32_t name, stack, space;
    uint8_t role, use, row;
    uint8_t likely_role; /* role, or where that is unknown what the call stack says; advice goes by role */
    bool before, live_at_peak;
} study_block;

typedef enum study_touch { TOUCH_READ, TOUCH_WRITE, TOUCH_COPY_BEGIN, TOUCH_COPY_END } study_touch;

typedef struct study_access {
    uint64_t time_ns;
    uint32_t block;
    uint32_t event;
    uint32_t step_touch; /* step << 2 | study_touch */
} study_access;
#define STUDY_NO_STEP (UINT32_MAX >> 2)

typedef struct study_step {
    uint64_t begin_ns, end_ns, index;
    uint32_t begin_event, end_event; /* end: STUDY_NONE */
    uint32_t name, op;
    uint8_t phase, row;
} study_step;

typedef struct study_segment {
    uint64_t address, size_bytes;
    uint64_t born_ns, died_ns;
    uint32_t born_event, died_event;
    uint32_t space;
} study_segment;

typedef struct study_release {
    uint64_t bytes; /* of the segments that went */
    uint32_t event; /* of the first */
    bool is_part;   /* other segments without a live block stayed */
} study_release;

#define STUDY_N_PAIRS ((size_t)EBB_STUDY_N_KINDS * EBB_STUDY_N_KINDS)

typedef EBB_VEC(ebb_study_holder) study_holders;
typedef EBB_VEC(ebb_study_what_if) study_what_ifs;
typedef EBB_VEC(ebb_study_tip) study_tips;

struct ebb_study {
    const ebb_mem *mem;
    ebb_study_options options;
    ebb_trace_reader *reader; /* borrowed; for texts and stacks */
    ebb_bump bump;            /* texts that the study makes */

    EBB_VEC(study_block) blocks;
    EBB_VEC(uint32_t) log; /* block << 1 | freed */
    EBB_VEC(study_access) accesses;
    uint32_t *by_block; /* [accesses.n] */
    EBB_VEC(study_step) steps;
    EBB_VEC(study_segment) segments;
    EBB_VEC(uint32_t) segment_log;   /* segment << 1 | freed */
    EBB_VEC(uint32_t) born_segments; /* those that the log has as born */
    EBB_VEC(study_release) releases; /* for what ifs */
    uint32_t max_stack;
    uint32_t *site_of; /* [max_stack + 1]: the stack whose topmost frame is the call site */
    uint32_t peak_log; /* of the log: the alloc that makes the peak; STUDY_NONE */

    ebb_study_summary summary;
    ebb_iteration iteration;
    EBB_VEC(ebb_iteration_part) parts;
    size_t usual_part; /* of parts: the most regular iteration; SIZE_MAX: none */
    ebb_study_breakdown breakdown;
    study_holders holders[EBB_STUDY_N_GROUPS];
    ebb_trace_keys class_keys; /* modules whose class is noted */
    EBB_VEC(const char *) classes;

    ebb_study_times lifetimes;
    uint64_t *sorted_ns, *pair_ns;            /* all intervals in order; and those of each pair of kinds */
    size_t pair_first[STUDY_N_PAIRS + 1];     /* in pair_ns */
    ebb_study_times times[STUDY_N_PAIRS + 1]; /* the last: of all */
    EBB_VEC(ebb_study_cell) density;
    EBB_VEC(ebb_study_interval) outliers;
    uint64_t n_outliers;
    double fence_byte_s;
    ebb_study_swappable swappable;
    ebb_study_churn churn;
    ebb_study_fragmentation fragmentation;
    EBB_VEC(ebb_study_segment) segment_rows; /* at its moment */
    EBB_VEC(size_t) first_pin;               /* of each, in pins */
    EBB_VEC(uint32_t) pins;
    study_holders pinners;
    study_what_ifs what_ifs;
    EBB_VEC(ebb_study_refusal) refusals;
    study_tips tips;
};

/* ---- asking ----------------------------------------------------------------------------------- */

/* How far the replay of an allocator may be from what was reserved. */
#define STUDY_MAX_REPLAY_ERROR 0.02

static inline bool study_tells(const ebb_study *s, uint32_t tells) {
    return (s->summary.tells & tells) == tells;
}

static inline bool study_begins_with(const char *text, const char *begin) {
    return strncmp(text, begin, strlen(begin)) == 0;
}

/* Who says it, and so who is to be told what to do. */
typedef enum study_speaker {
    SPEAKER_OTHER,   /* a log, a list of buffers */
    SPEAKER_EBB,     /* a run of ebb's */
    SPEAKER_PYTORCH, /* a program of PyTorch's */
    SPEAKER_HEAP,    /* a program whose large allocations of the host were seen, and nothing else of it */
} study_speaker;

/* By the note `source`, which each recorder and importer writes as it stands here. */
static inline study_speaker study_speaker_of(const ebb_study *s) {
    const char *source = s->summary.source;
    if (strcmp(source, "ebb run") == 0) { return SPEAKER_EBB; }
    if (strcmp(source, "ebb record") == 0) { return SPEAKER_HEAP; }
    const bool is_torch = strcmp(source, "ebb.torch") == 0 || strcmp(source, "chrome trace") == 0;
    return is_torch || study_begins_with(source, "pytorch") ? SPEAKER_PYTORCH : SPEAKER_OTHER;
}

/* Whether the allocator that was recorded is PyTorch's. */
static inline bool study_is_pytorch(const ebb_study *s) {
    return study_begins_with(s->summary.source, "pytorch");
}

static inline size_t study_first_access(const ebb_study *s, size_t block) {
    return block < s->blocks.n ? s->blocks.data[block].first_access : s->accesses.n;
}

static inline study_touch study_touch_of(const study_access *access) {
    return (study_touch)(access->step_touch & 3u);
}

static inline ebb_study_kind study_kind_of(study_touch touch) {
    if (touch == TOUCH_READ) { return EBB_STUDY_READ; }
    return touch == TOUCH_WRITE ? EBB_STUDY_WRITE : EBB_STUDY_COPY;
}

static inline uint32_t study_step_of(const study_access *access) {
    return access->step_touch >> 2;
}

/* Whether a block lives in a part of the trace. */
static inline bool study_is_in(const study_block *block, const ebb_iteration_part *part) {
    return block->born_event < part->first_event + part->n_events && block->died_event >= part->first_event;
}

/* When an entry of the log, or of the segments' log, happened. */
static inline uint32_t study_log_event(const ebb_study *s, uint32_t entry) {
    const study_block *b = &s->blocks.data[entry >> 1];
    return (entry & 1u) != 0 ? b->died_event : b->born_event;
}

static inline uint64_t study_log_ns(const ebb_study *s, uint32_t entry) {
    const study_block *b = &s->blocks.data[entry >> 1];
    return (entry & 1u) != 0 ? b->died_ns : b->born_ns;
}

static inline uint32_t study_segment_event(const ebb_study *s, uint32_t entry) {
    const study_segment *g = &s->segments.data[entry >> 1];
    return (entry & 1u) != 0 ? g->died_event : g->born_event;
}

static inline uint64_t study_segment_ns(const ebb_study *s, uint32_t entry) {
    const study_segment *g = &s->segments.data[entry >> 1];
    return (entry & 1u) != 0 ? g->died_ns : g->born_ns;
}

/* A sum beyond 64 bits becomes the largest number: sums of sizes that nothing can have. */
static inline uint64_t study_add(uint64_t a, uint64_t b) {
    uint64_t sum = UINT64_MAX;
    (void)ebb_add_u64(a, b, &sum);
    return sum;
}

/* x * a / b, rounded down, for a <= b, without overflow. */
static inline uint64_t study_part(uint64_t x, uint64_t a, uint64_t b) {
    EBB_ASSERT(a <= b && b > 0 && b <= UINT32_MAX);
    return x / b * a + x % b * a / b;
}

/* ---- the parts, in the order in which they are made ------------------------------------------- */

ebb_status ebb__study_collect(ebb_study *s);
ebb_status ebb__study_take_parts(ebb_study *s, ebb_iteration_finder *finder);
ebb_status ebb__study_infer_roles(ebb_study *s);
void ebb__study_find_peak(ebb_study *s);
void ebb__study_break_down(ebb_study *s);
ebb_status ebb__study_find_holders(ebb_study *s);

ebb_status ebb__study_find_intervals(ebb_study *s);
ebb_status ebb__study_find_swappable(ebb_study *s);

/* The same of some blocks alone: where are is NULL all, else those b with are[b]; away: those that are out at the peak.
 * Fini it. */
typedef struct study_away {
    ebb_study_swappable sum;
    EBB_VEC(uint32_t) blocks;
} study_away;
ebb_status ebb__study_find_away(const ebb_study *s, const bool *are, study_away *away);

void ebb__study_find_churn(ebb_study *s);

/* The peak if each block lived from its first access to its last; UNKNOWN where there are no accesses. */
ebb_status ebb__study_nothing_idle(const ebb_study *s, uint64_t *peak_bytes_out);

ebb_status ebb__study_find_fragmentation(ebb_study *s);
ebb_status ebb__study_name_refusals(ebb_study *s); /* needs the sites of find_holders */
ebb_status ebb__study_find_releases(ebb_study *s);
ebb_status ebb__study_find_what_ifs(ebb_study *s);
ebb_status ebb__study_advise(ebb_study *s);

typedef struct study_set {
    const uint32_t *blocks;
    const uint64_t *bytes; /* for each; NULL: its size */
    size_t n;
} study_set;

/* modules.c: which classes are noted. How much of a block's name is its module; and the label of a module, with its
 * class where that is known, in the study's bump (NULL: no memory). */
ebb_status ebb__study_find_classes(ebb_study *s);
size_t ebb__study_module_length(const study_block *b, const char *name);
const char *ebb__study_module_label(ebb_study *s, const char *name, size_t n_bytes);

/* holders.c: the words for the call site of a stack, in bump; "" for stack 0, NULL where there is no memory. */
const char *ebb__study_site_label(const ebb_study *s, uint32_t stack, ebb_bump *bump);
/* The words for a stack's innermost frame, likewise. */
const char *ebb__study_frame_label(const ebb_study *s, uint32_t stack, ebb_bump *bump);
/* The greatest first. */
ebb_status ebb__study_sort_holders(const ebb_study *s, study_holders *holders);
/* These blocks by group, the greatest first. Needs the sites of find_holders. */
ebb_status ebb__study_group(ebb_study *s, ebb_study_group group, const study_set *set, study_holders *holders);

#endif
