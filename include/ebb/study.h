/* SPDX-License-Identifier: Apache-2.0
 *
 * The figures of a trace: the holders of the peak, how long blocks lie idle, which could leave for free, the bytes lost
 * to fragmentation, and the needs of other allocators or of a placement. All are numbers, which a report shows, except
 * the advice (ebb_study_advice): sentences for the user, each with the bytes that it would save. docs/study.md defines
 * each figure and says where it comes from.
 *
 * Bytes are uint64_t, times are nanoseconds of the trace, events are counted from 0 as the reader gives them. If the
 * source does not tell a figure, a flag says so, or the number is EBB_STUDY_UNKNOWN, never 0.
 *
 * Results of getters belong to the study; texts and stacks belong to the reader, which must outlive the study. A getter
 * takes no memory and cannot fail, unless its comment says so.
 *
 * Threads: a study may be read from several threads at once.
 */
#ifndef EBB_STUDY_H
#define EBB_STUDY_H

#include "ebb/iteration.h"
#include "ebb/trace.h"

#ifdef __cplusplus
extern "C" {
#endif

#define EBB_STUDY_UNKNOWN UINT64_MAX

typedef struct ebb_study ebb_study;

/* ---- making one ------------------------------------------------------------------------------- */

/* Optional parts of a study, as bits. */
enum {
    EBB_STUDY_WHAT_IF = 1u << 0, /* the rows of ebb_study_what_ifs; the expensive part */
    EBB_STUDY_ADVICE = 1u << 1,  /* ebb_study_advice; asks for WHAT_IF too */
};

typedef struct ebb_study_options {
    size_t size_bytes;
    const ebb_mem *mem;
    uint32_t wants; /* EBB_STUDY_... */
    /* The machine that blocks could leave on: bytes a second out to the host and back in, at once; and what each copy
     * takes before its first byte. */
    double out_bytes_per_s, in_bytes_per_s;
    uint64_t latency_ns;
    uint64_t capacity_bytes;  /* of the device; 0: unknown */
    uint64_t max_place_steps; /* of the search for a placement (place.h); 0: that of place.h */
    uint32_t max_outliers;    /* kept, the greatest */
    bool (*stop)(void *ctx);  /* as in place.h, of the placement alone */
    void *stop_ctx;
} ebb_study_options;
#define EBB_STUDY_OPTIONS_INIT                                                                                         \
    EBB_INIT(ebb_study_options, EBB_SET(wants, EBB_STUDY_WHAT_IF | EBB_STUDY_ADVICE) EBB_SET(out_bytes_per_s, 6.4e9)   \
                                    EBB_SET(in_bytes_per_s, 6.3e9) EBB_SET(max_outliers, 1000))

/* Read all that the reader has left, which should be all, and study it. The reader is borrowed until the study goes.
 * A study is of one device: call ebb_trace_open_device or ebb_trace_reader_choose before. If no device was chosen, the
 * bytes of all devices are added up, and the peak is not that of any device (summary.several_spaces). options may be
 * NULL. EBB_E_ARGUMENT: options of another version, a bandwidth that is not above 0. EBB_E_FORMAT, EBB_E_IO: the
 * reader's. EBB_E_LIMIT: 2^32 - 1 events or more. Memory: about 100 bytes a block, 50 a step, 45 a read or write. Near
 * linear time. */
EBB_API ebb_status ebb_study_create(ebb_trace_reader *reader, const ebb_study_options *options, ebb_study **study_out);
EBB_API void ebb_study_destroy(ebb_study *study);

/* ---- in short --------------------------------------------------------------------------------- */

typedef struct ebb_study_summary {
    const char *source; /* the note; "" if none exists */
    uint32_t tells;     /* EBB_TRACE_TELLS_... */
    bool complete;      /* false: the file was cut off */
    bool is_moment;     /* a snapshot without history, of one moment: the peak is not known */
    uint64_t n_events, n_blocks, n_steps, n_accesses; /* accesses: reads, writes, copies */
    uint64_t n_before;                                /* blocks that were there before the recording */
    uint64_t first_ns, last_ns;
    uint64_t duration_ns; /* UNKNOWN where the source tells no times */
    uint64_t peak_bytes;  /* the most bytes of blocks alive at once, of all spaces; as large as the source says */
    uint64_t peak_ns;     /* when that is first reached ... */
    uint64_t peak_event;  /* ... by this alloc; UNKNOWN in a trace without one */
    uint64_t n_live_at_peak;
    uint64_t end_live_bytes;  /* after the last event */
    uint64_t mean_live_bytes; /* over time; over events where there are no times */
    uint64_t span_bytes;      /* from the lowest to the highest address; UNKNOWN without addresses, or several spaces */
    uint64_t reserved_peak_bytes, reserved_peak_event; /* of segments; UNKNOWN where the source does not tell them */
    uint64_t stated_allocated_bytes, stated_reserved_bytes; /* the notes stated.allocated_bytes, .reserved_bytes */
    bool several_spaces;                                    /* the source has blocks of more than one device or pool */
    bool roles_inferred; /* the source tells no roles; some follow from its call stacks */
} ebb_study_summary;
EBB_API ebb_study_summary ebb_study_get_summary(const ebb_study *study);

/* As ebb_iteration_finder_find and _parts give it (iteration.h). */
EBB_API ebb_iteration ebb_study_get_iteration(const ebb_study *study);
EBB_API const ebb_iteration_part *ebb_study_iteration_parts(const ebb_study *study, size_t *n_out);

/* ---- roles ------------------------------------------------------------------------------------ */

/* The classes of blocks in 'Pinpointing', by accesses alone: an input is read before it is ever written, and never
 * written; a parameter is read first and written later; an intermediate is written first. A block that the source calls
 * an input is an input, whichever step writes it. */
typedef enum ebb_study_use {
    EBB_STUDY_USE_INPUT,
    EBB_STUDY_USE_PARAMETER,
    EBB_STUDY_USE_INTERMEDIATE,
    EBB_STUDY_USE_UNKNOWN, /* never accessed, or the source does not tell accesses */
    EBB_STUDY_N_USES
} ebb_study_use;
EBB_API const char *ebb_study_use_name(ebb_study_use use); /* static: "input", "parameter" ... */

typedef struct ebb_study_share {
    uint64_t bytes, n_blocks;
} ebb_study_share;

/* in_all counts each block once, over the blocks that live in the most regular iteration (the first of these) or, if no
 * iteration was found, over all blocks. A block's role is the last one that the trace gives it. If the trace gives
 * none, it is inferred from the call stack and the life (docs/study.md), or EBB_ROLE_UNKNOWN. */
typedef struct ebb_study_breakdown {
    ebb_study_share at_peak[EBB_N_ROLES];
    ebb_study_share in_all[EBB_N_ROLES];
    ebb_study_share use_at_peak[EBB_STUDY_N_USES];
    ebb_study_share use_in_all[EBB_STUDY_N_USES];
    bool is_of_iteration; /* in_all is that of one iteration */
} ebb_study_breakdown;
EBB_API ebb_study_breakdown ebb_study_get_breakdown(const ebb_study *study);

/* ---- over time -------------------------------------------------------------------------------- */

typedef enum ebb_study_axis { EBB_STUDY_BY_TIME, EBB_STUDY_BY_EVENT } ebb_study_axis;

/* One bin: the moment with the most live bytes, with the bytes by role at that moment; the least live bytes and the
 * most reserved bytes in the bin. A bin begins in the state in which the one before ended. */
typedef struct ebb_study_bin {
    uint64_t first, last; /* of the axis: [first, last) */
    uint64_t high_ns, high_event;
    uint64_t high_bytes, low_bytes;
    uint64_t role_bytes[EBB_N_ROLES]; /* at high */
    uint64_t reserved_bytes;          /* the most; UNKNOWN where not told */
} ebb_study_bin;

/* Cut the axis into n_bins (1 to 2^24) equal bins. By time where the source tells times, else by event, whatever is
 * asked for; *axis_out says which. O(events of blocks). EBB_E_ARGUMENT. */
EBB_API ebb_status ebb_study_curve(const ebb_study *study, ebb_study_axis axis, size_t n_bins, ebb_study_bin *bins_out,
                                   ebb_study_axis *axis_out);

/* ---- blocks ----------------------------------------------------------------------------------- */

typedef struct ebb_study_block {
    uint64_t size_bytes, address; /* EBB_TRACE_NONE: not told */
    uint64_t born_ns, born_event; /* of one that was there before: of its alloc in the file */
    uint64_t died_ns, died_event; /* UNKNOWN: it was not freed */
    uint64_t n_reads, n_writes, n_copies;
    uint64_t longest_idle_ns;   /* its longest interval (below); UNKNOWN if none exists */
    const char *name;           /* "" if none exists */
    uint32_t stack, space, row; /* stack: of its alloc; a number of the reader */
    ebb_role role;
    ebb_study_use use;
    bool before, live_at_peak;
} ebb_study_block;
EBB_API ebb_study_block ebb_study_get_block(const ebb_study *study, uint64_t block); /* below summary.n_blocks */

/* A moment at which something happens to a block. */
typedef enum ebb_study_kind {
    EBB_STUDY_ALLOC,
    EBB_STUDY_WRITE,
    EBB_STUDY_READ,
    EBB_STUDY_COPY, /* a copy to or from a lower tier begins or ends */
    EBB_STUDY_FREE,
    EBB_STUDY_N_KINDS,
    EBB_STUDY_ANY = EBB_STUDY_N_KINDS
} ebb_study_kind;
EBB_API const char *ebb_study_kind_name(ebb_study_kind kind); /* static: "alloc", "write" ...; "any" */

typedef struct ebb_study_access {
    uint64_t time_ns;
    uint64_t step; /* below summary.n_steps, or EBB_TRACE_NONE */
    ebb_study_kind kind;
} ebb_study_access;

/* A block's reads, writes and copies in order of time, from the first-th on; returns how many of at most n it wrote to
 * accesses_out. Copies are two each. */
EBB_API size_t ebb_study_block_accesses(const ebb_study *study, uint64_t block, size_t first, size_t n,
                                        ebb_study_access *accesses_out);

typedef struct ebb_study_step {
    const char *name, *op;
    uint32_t phase, row;
    uint64_t index;
    uint64_t begin_ns, end_ns; /* end: UNKNOWN when it was never ended */
    uint64_t begin_event, end_event;
} ebb_study_step;
EBB_API ebb_study_step ebb_study_get_step(const ebb_study *study, uint64_t step); /* below summary.n_steps */

/* The frames of a stack, the innermost first, a line each, "function (file:line)"; cut where buf ends, at a line.
 * Returns buf, "" for stack 0. */
EBB_API char *ebb_study_stack_text(const ebb_study *study, uint32_t stack, char *buf, size_t buf_bytes);

/* ---- lifetimes and intervals ------------------------------------------------------------------ */

/* Statistics of a set of times; unknown, with count 0, if the source tells no times (or no accesses). Quantiles are
 * exact: the least value that at least that share of all values do not exceed. */
typedef struct ebb_study_times {
    uint64_t count;
    uint64_t min_ns, max_ns, p50_ns, p75_ns, p90_ns, p99_ns; /* UNKNOWN when count is 0 */
    double mean_ns;
    uint64_t log2_counts[64]; /* [k]: of 2^k <= t < 2^(k+1); those of 0 ns are in [0] */
} ebb_study_times;

/* From alloc to free, of blocks that were born and freed within the recording. */
EBB_API ebb_study_times ebb_study_lifetimes(const ebb_study *study);

/* The access-time intervals: between two consecutive events of one block, of these kinds. The interval after the alloc
 * of a block that was there before does not count, nor the time between begin and end of one copy. ANY, ANY: all
 * intervals. Only one ANY: none. */
EBB_API ebb_study_times ebb_study_intervals(const ebb_study *study, ebb_study_kind from, ebb_study_kind to);
/* The interval at this share, from 0 to 1 (UNKNOWN without intervals), and how many intervals are at most this long.
 * For curves. */
EBB_API uint64_t ebb_study_interval_quantile(const ebb_study *study, ebb_study_kind from, ebb_study_kind to,
                                             double share);
EBB_API uint64_t ebb_study_intervals_until(const ebb_study *study, ebb_study_kind from, ebb_study_kind to,
                                           uint64_t interval_ns);

/* How many intervals have 2^(i/4) <= ns < 2^((i+1)/4) and 2^(s/4) <= bytes < 2^((s+1)/4): the cells with any. */
typedef struct ebb_study_cell {
    uint16_t interval_log, size_log;
    uint64_t count;
} ebb_study_cell;
EBB_API const ebb_study_cell *ebb_study_density(const ebb_study *study, size_t *n_out);

/* An interval of a block. */
typedef struct ebb_study_interval {
    uint64_t block;
    uint64_t begin_ns, end_ns;
    uint64_t size_bytes;
    ebb_study_kind from, to;
    bool is_free; /* S_max is at least its size: it could leave and be back in time */
} ebb_study_interval;

/* Intervals whose ns x bytes lie above Q3 x (Q3 / Q1)^1.5, with the quartiles of all of them: Tukey's fence on the log
 * scale, which a few very large products do not move. In descending order, at most options.max_outliers of them. */
typedef struct ebb_study_outliers {
    const ebb_study_interval *intervals;
    size_t n_kept;
    uint64_t count;      /* all of them */
    double fence_byte_s; /* a product above it is one */
} ebb_study_outliers;
EBB_API ebb_study_outliers ebb_study_get_outliers(const ebb_study *study);

/* ---- what could leave ------------------------------------------------------------------------- */

/* The blocks that could be copied out after one access and back before the next without a wait. Each block is treated
 * by itself, as if it had the links alone, so this is an upper bound for any schedule; ebb plan makes a schedule. An
 * interval counts if it is between reads, writes or copies, or between such and the recording's ends for a block that
 * is there before or not freed. */
typedef struct ebb_study_swappable {
    bool known; /* the source tells times and accesses */
    /* The totals are of the intervals that begin in the most regular iteration, so that recordings of different lengths
     * can be compared. false: no iteration was found, and they are of the whole recording. */
    bool is_of_iteration;
    uint64_t bytes, n_blocks; /* of blocks with such an interval */
    uint64_t n_intervals;
    double byte_seconds;                      /* that would be absent: size x (interval - copies) */
    double byte_seconds_all;                  /* of all blocks' lives then, for comparison */
    uint64_t bytes_at_peak, n_blocks_at_peak; /* absent at the peak's moment */
    uint64_t peak_bytes;                      /* the peak if all that can be absent is, always */
    double bytes_per_s; /* 1 / (1/out + 1/in): S_max of an interval is this many, of what the latencies leave */
    /* The share of the recording's time in which each link would copy, if all of it left: above 1 it cannot. */
    double out_busy, in_busy;
} ebb_study_swappable;
EBB_API ebb_study_swappable ebb_study_get_swappable(const ebb_study *study);

/* ---- holders ---------------------------------------------------------------------------------- */

typedef enum ebb_study_group {
    /* The innermost frame of the user's: not of a library, nor of C++. One without a name: with the nearest caller
     * that has one, "libfoo.so+0x123, called by train_step (train.c:42)". */
    EBB_STUDY_BY_SITE,
    EBB_STUDY_BY_STACK,  /* whole call stacks; label is the site */
    EBB_STUDY_BY_MODULE, /* names up to the last '.', those of gradients and state up to the one before */
    EBB_STUDY_BY_NAME,
    EBB_STUDY_N_GROUPS
} ebb_study_group;

typedef struct ebb_study_holder {
    const char *label;        /* "" for those without; the study's */
    uint64_t bytes, n_blocks; /* live at the peak */
    uint64_t role_bytes[EBB_N_ROLES];
    uint64_t largest_block; /* of its blocks, the number of the largest */
    uint32_t stack;         /* of that block; 0: none */
} ebb_study_holder;

/* The holders of the peak, the greatest first; their bytes add up to the peak. Empty if no block has what it is grouped
 * by (a stack, a name). */
EBB_API const ebb_study_holder *ebb_study_holders(const ebb_study *study, ebb_study_group group, size_t *n_out);

/* The stack that ends at the call site of this one, without what was called from there; 0 for 0. */
EBB_API uint32_t ebb_study_site(const ebb_study *study, uint32_t stack);

/* ---- churn ------------------------------------------------------------------------------------ */

typedef struct ebb_study_churn {
    uint64_t n_allocs, n_frees; /* within the recording */
    uint64_t alloc_bytes;
    double allocs_per_s; /* NaN: no times */
    double bytes_per_s;
    double turnover;    /* bytes allocated for each byte live on average; NaN: none was */
    uint64_t n_at_once; /* allocs right after a free of the same size in the same space */
    uint64_t at_once_bytes;
} ebb_study_churn;
EBB_API ebb_study_churn ebb_study_get_churn(const ebb_study *study);

/* ---- fragmentation ---------------------------------------------------------------------------- */

/* The reserved bytes that are not live, and why: at the moment with the most live bytes, among those at which at least
 * 99 % of the most is reserved. */
typedef struct ebb_study_fragmentation {
    bool known; /* the source tells segments, and all of them: not fewer bytes than are live */
    uint64_t reserved_peak_bytes;
    uint64_t moment_ns, moment_event;
    uint64_t reserved_bytes, live_bytes; /* then */
    uint64_t lost_bytes;                 /* reserved - live */
    /* The parts of lost_bytes; UNKNOWN without addresses. */
    uint64_t rounding_bytes; /* after blocks, up to 512 bytes; PyTorch's allocators only */
    uint64_t pinned_bytes;   /* free in segments that hold a live block */
    uint64_t empty_bytes;    /* in segments that hold none */
    uint64_t n_segments, n_empty;
    uint64_t mean_lost_bytes; /* over the axis of the trace */
} ebb_study_fragmentation;
EBB_API ebb_study_fragmentation ebb_study_get_fragmentation(const ebb_study *study);

/* The segments of that moment, those with the most free bytes first. */
typedef struct ebb_study_segment {
    uint64_t address, size_bytes, live_bytes;
    uint64_t free_bytes; /* size - live, rounding included */
    uint64_t largest_free_bytes;
    uint32_t space;
    uint64_t n_pins; /* live blocks in it */
    uint64_t born_event;
} ebb_study_segment;
EBB_API const ebb_study_segment *ebb_study_segments(const ebb_study *study, size_t *n_out);

/* The blocks that lie in a segment of that table, by address, from the first-th on; returns how many of at most n. */
EBB_API size_t ebb_study_segment_pins(const ebb_study *study, size_t segment, size_t first, size_t n,
                                      uint64_t *blocks_out);

/* The call sites whose blocks pin segments. bytes are the free bytes of those segments; those of one segment are shared
 * equally among its pins. */
EBB_API const ebb_study_holder *ebb_study_pinners(const ebb_study *study, size_t *n_out);

/* A segment, from when the allocator takes it from the device to when it gives it back. */
typedef struct ebb_study_segment_life {
    uint64_t address, size_bytes;
    uint64_t born_ns, born_event;
    uint64_t died_ns, died_event; /* UNKNOWN: it was not given back */
    uint32_t space;
} ebb_study_segment_life;
/* The i-th in order of birth; false: there are no more. */
EBB_API bool ebb_study_get_segment_life(const ebb_study *study, uint64_t i, ebb_study_segment_life *life_out);

/* ---- what if ---------------------------------------------------------------------------------- */

typedef struct ebb_study_what_if {
    const char *key;     /* static or the study's: "live", "placement", "cnmem", "cnmem:init_size:256MiB",
                            "cudaMalloc", "pytorch", "pytorch-recorded",
                            "pytorch:expandable_segments", "pytorch:max_split_size_mb:128", "nothing-idle" ... */
    const char *about;   /* a line */
    const char *setting; /* the setting that gives it, "expandable_segments:True"; "" if there is no setting */
    uint64_t bytes;      /* the peak, or what an allocator reserves; UNKNOWN if it could not be computed */
    bool is_reserved;    /* what an allocator takes from the device; else what blocks need */
    bool of_iteration;   /* of the iteration around the peak alone, since the trace is large */
} ebb_study_what_if;
EBB_API const ebb_study_what_if *ebb_study_what_ifs(const ebb_study *study, size_t *n_out);

/* ---- refusals --------------------------------------------------------------------------------- */

/* An allocation that was refused: above the limit of ebb record, or PyTorch's out of memory. */
typedef struct ebb_study_refusal {
    uint64_t time_ns, event;
    uint64_t size_bytes;                 /* what was asked for */
    uint64_t live_bytes;                 /* live in all spaces then */
    uint32_t stack;                      /* whose; 0: not told */
    const char *site;                    /* words for it; "" for stack 0; the study's */
    uint64_t free_bytes, capacity_bytes; /* of the device, or of a limit; UNKNOWN where the source does not tell */
    uint64_t reserved_bytes;             /* by the allocator; likewise */
} ebb_study_refusal;
EBB_API const ebb_study_refusal *ebb_study_refusals(const ebb_study *study, size_t *n_out); /* in order of time */

/* ---- advice ----------------------------------------------------------------------------------- */

typedef struct ebb_study_tip {
    const char *key;          /* "checkpoint", "swap", "placement" ...; docs/study.md has them all */
    const char *sentence;     /* with its numbers */
    uint64_t won_bytes;       /* of the peak or of what is reserved */
    const char *const *names; /* all that the sentence is about, modules or lines, of which it has the first */
    size_t n_names;
} ebb_study_tip;
enum { EBB_STUDY_MAX_NAMED = 3 }; /* how many of its names a sentence has */
/* What to do: a leak first, then the largest saving. The list may be empty. */
EBB_API const ebb_study_tip *ebb_study_advice(const ebb_study *study, size_t *n_out);

#ifdef __cplusplus
}
#endif

#endif
