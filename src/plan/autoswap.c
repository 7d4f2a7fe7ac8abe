/* SPDX-License-Identifier: Apache-2.0
 *
 * Scores, selection and schedules of AutoSwap: see autoswap.h.
 */
#include "plan/autoswap.h"

#include <math.h>

static int64_t later(int64_t a, int64_t b) {
    return a > b ? a : b;
}

static int64_t earlier(int64_t a, int64_t b) {
    return a < b ? a : b;
}

/* As fmax of numbers, without a call: schedules are made of little else. */
static double greater(double a, double b) {
    return a > b ? a : b;
}

/* ---- loads ------------------------------------------------------------------------------------- */

static double time_of(const ebb_autoswap *a, int64_t event) {
    EBB_ASSERT(event >= -a->n && event < 2 * a->n);
    return a->time[event + a->n];
}

/* Add to the events [first, last), and, corrected, to the same ones of the other iterations. */
static void add_load(ebb_autoswap *a, int64_t first, int64_t last, double bytes) {
    const int64_t n = a->n, end = earlier(last, 2 * n);
    for (int64_t i = later(first, -n), n_next; i < end; i += n_next) { /* to the end of an iteration at most */
        const int64_t at = (i + n) % n;
        double *now = a->as_coded ? &a->now[i + n] : &a->now[at];
        n_next = earlier(end - i, n - at);
        for (int64_t lap = 0; lap < (a->as_coded ? 1 : 3); lap++, now += n) {
            for (int64_t k = 0; k < n_next; k++) { now[k] += bytes; }
        }
    }
}

static void reset_load(ebb_autoswap *a) {
    memcpy(a->now, a->load, (size_t)(3 * a->n) * sizeof *a->now);
}

static double peak_of(const ebb_autoswap *a) {
    double peak = 0;
    for (int64_t i = a->n; i < 2 * a->n; i++) { peak = greater(peak, a->now[i]); }
    return peak;
}

/* ---- scores ------------------------------------------------------------------------------------ */

static double sum_between(const ebb_autoswap *a, int64_t first, int64_t last) {
    return a->sum[last + a->n] - a->sum[first + a->n];
}

static void sum_up(ebb_autoswap *a) {
    a->sum[0] = 0;
    for (int64_t i = 0; i < 3 * a->n; i++) { a->sum[i + 1] = a->sum[i] + a->now[i]; }
}

static void score_durations(ebb_autoswap *a) {
    for (size_t i = 0; i < a->n_blocks; i++) {
        ebb_autoswap_block *b = &a->blocks[i];
        const double whole = time_of(a, b->need) - time_of(a, b->leave) - b->out_ns;
        const double doa = a->as_coded ? whole : whole - b->in_ns;
        b->score[EBB_AUTOSWAP_DOA] = doa;
        b->score[EBB_AUTOSWAP_AOA] = doa >= 0 ? doa * b->bytes : doa / b->bytes;
    }
}

static void score_loads(ebb_autoswap *a) {
    reset_load(a);
    sum_up(a);
    for (size_t i = 0; i < a->n_blocks; i++) {
        ebb_autoswap_block *b = &a->blocks[i];
        const double coded = (double)(b->need - b->leave) * a->load[i % (size_t)(3 * a->n)];
        b->score[EBB_AUTOSWAP_WDOA] = a->as_coded ? coded : sum_between(a, b->leave, b->need);
    }
}

/* SWDOA, and the order that comes with it. Take the highest, take it from the load, score the others anew. The list is
 * kept sorted, so that of equal scores the one that came first before does so again. */
static void score_greedily(ebb_autoswap *a) {
    size_t *left = a->order;
    reset_load(a);
    for (size_t i = 0; i < a->n_blocks; i++) { left[i] = i; }
    for (size_t n = a->n_blocks; n > 0; n--, left++) {
        sum_up(a);
        for (size_t i = 0; i < n; i++) {
            const ebb_autoswap_block *b = &a->blocks[left[i]];
            a->key[left[i]] = sum_between(a, b->leave, b->need);
        }
        ebb__autoswap_sort(a, left, n);
        ebb_autoswap_block *b = &a->blocks[left[0]];
        b->score[EBB_AUTOSWAP_SWDOA] = a->key[left[0]];
        add_load(a, b->leave, b->need, -b->bytes);
    }
}

ebb_status ebb__autoswap_init(ebb_autoswap *a) {
    const size_t n_events = (size_t)a->n * 3;
    a->now = ebb__bump_alloc(a->bump, n_events, sizeof *a->now);
    a->sum = ebb__bump_alloc(a->bump, n_events + 1, sizeof *a->sum);
    a->order = ebb__bump_alloc(a->bump, a->n_blocks, sizeof *a->order);
    a->mine = ebb__bump_alloc(a->bump, a->n_blocks, sizeof *a->mine);
    a->key = ebb__bump_alloc(a->bump, a->n_blocks, sizeof *a->key);
    if (a->now == NULL || a->sum == NULL || a->order == NULL || a->mine == NULL || a->key == NULL) {
        return EBB_E_NO_MEMORY;
    }
    score_durations(a);
    score_loads(a);
    return EBB_OK;
}

/* ---- orders ------------------------------------------------------------------------------------ */

/* Merge sort, from short runs to long ones. */
void ebb__autoswap_sort(ebb_autoswap *a, size_t *items, size_t n) {
    for (size_t width = 1; width < n; width *= 2) {
        for (size_t low = 0; low < n; low += 2 * width) {
            const size_t middle = ebb_min_u64(low + width, n), high = ebb_min_u64(low + 2 * width, n);
            size_t i = low, j = middle;
            for (size_t k = low; k < high; k++) {
                const bool takes_first = i < middle && (j == high || !(a->key[items[j]] > a->key[items[i]]));
                a->mine[k] = takes_first ? items[i++] : items[j++];
            }
        }
        memcpy(items, a->mine, n * sizeof *items);
    }
}

static void order_by_score(ebb_autoswap *a, size_t score) {
    for (size_t i = 0; i < a->n_blocks; i++) {
        a->order[i] = i;
        a->key[i] = a->blocks[i].score[score];
    }
    ebb__autoswap_sort(a, a->order, a->n_blocks);
}

/* The least sum of ranks first. */
static ebb_status order_by_votes(ebb_autoswap *a) {
    double *votes = ebb__bump_alloc(a->bump, a->n_blocks, sizeof *votes);
    if (votes == NULL) { return EBB_E_NO_MEMORY; }
    for (size_t i = 0; i < a->n_blocks; i++) { votes[i] = 0; }
    for (size_t score = EBB_AUTOSWAP_DOA; score <= EBB_AUTOSWAP_WDOA; score++) {
        order_by_score(a, score);
        for (size_t rank = 0; rank < a->n_blocks; rank++) { votes[a->order[rank]] -= (double)rank; }
    }
    for (size_t i = 0; i < a->n_blocks; i++) {
        a->order[i] = i;
        a->key[i] = votes[i];
    }
    ebb__autoswap_sort(a, a->order, a->n_blocks);
    return EBB_OK;
}

/* As coded, SWDOA sorts what the greedy order left, so equal scores keep the order in which they were taken. */
static void order_by_swdoa(ebb_autoswap *a) {
    score_greedily(a);
    for (size_t i = 0; i < a->n_blocks; i++) { a->key[i] = a->blocks[i].score[EBB_AUTOSWAP_SWDOA]; }
    ebb__autoswap_sort(a, a->order, a->n_blocks);
}

ebb_status ebb__autoswap_rank(ebb_autoswap *a, ebb_autoswap_rule rule, double limit_bytes) {
    switch (rule) {
    case EBB_AUTOSWAP_SWDOA: order_by_swdoa(a); return EBB_OK;
    case EBB_AUTOSWAP_VOTE: return order_by_votes(a);
    case EBB_AUTOSWAP_BO: score_greedily(a); return ebb__autoswap_mix(a, limit_bytes);
    default: order_by_score(a, rule); return EBB_OK;
    }
}

/* ---- selection --------------------------------------------------------------------------------- */

size_t ebb__autoswap_select(ebb_autoswap *a, double limit_bytes, double *peak_out) {
    size_t n = 0;
    reset_load(a);
    *peak_out = peak_of(a);
    for (; n < a->n_blocks && (*peak_out > limit_bytes || (a->as_coded && n == 0)); n++) {
        const ebb_autoswap_block *b = &a->blocks[a->order[n]];
        add_load(a, a->as_coded ? b->leave : b->ready, b->need, -b->bytes);
        *peak_out = peak_of(a);
    }
    return n;
}

/* ---- schedules ---------------------------------------------------------------------------------- */

/* The first n of order by their first access, or by their second from the last. */
static void sort_selected(ebb_autoswap *a, size_t n, bool by_need) {
    for (size_t i = 0; i < n; i++) {
        const ebb_autoswap_block *b = &a->blocks[a->order[i]];
        a->key[a->order[i]] = by_need ? (double)b->need : -(double)b->leave;
    }
    ebb__autoswap_sort(a, a->order, n);
}

/* The first event at or after `event` that is not before a time; at most the last of all. */
static int64_t event_at(const ebb_autoswap *a, int64_t event, double time_ns) {
    while (event < 2 * a->n - 1 && time_of(a, event) < time_ns) { event++; }
    return event;
}

/* The last event at or before `event` that is not after a time; at least the first of all. */
static int64_t event_before(const ebb_autoswap *a, int64_t event, double time_ns) {
    while (event > -a->n && time_of(a, event) > time_ns) { event--; }
    return event;
}

/* As coded: the first event of the iteration that is over the limit, and the event before the last one, of which the
 * next iteration's first is the last that counts; -1: none, or the very first, or the very last. */
static void find_over(const ebb_autoswap *a, double limit_bytes, int64_t *first_out, int64_t *last_out) {
    int64_t first = 0, last = a->n;
    for (int64_t i = 0; i < a->n; i++) {
        if (a->now[i + a->n] > limit_bytes) {
            first = i;
            break;
        }
    }
    for (int64_t i = a->n; i > first; i--) {
        if (a->now[i + a->n] > limit_bytes) {
            last = i - 1;
            break;
        }
    }
    *first_out = first == 0 ? -1 : first;
    *last_out = last == a->n ? -1 : last;
}

static double coded_outs(ebb_autoswap *a, size_t n, double limit_bytes) {
    double overhead_ns = 0;
    sort_selected(a, n, false);
    for (size_t i = 0; i < n; i++) {
        ebb_autoswap_block *b = &a->blocks[a->order[i]];
        int64_t gone = i > 0 ? later(b->leave, a->blocks[a->order[i - 1]].gone) : b->leave, first, last;
        const double end_ns = time_of(a, gone) + b->out_ns;
        gone = earlier(event_at(a, gone, end_ns), b->need - 1);
        add_load(a, gone, b->need, -b->bytes);
        find_over(a, limit_bytes, &first, &last);
        if (first != -1 && first <= gone) {
            add_load(a, first - 1, gone + 1, -b->bytes);
            gone = first - 1;
        }
        b->gone = gone;
        overhead_ns += greater(end_ns - time_of(a, gone), 0);
    }
    return overhead_ns;
}

/* The search for where to begin compares with the times of the iteration before, and so it stays where it is. */
static double coded_ins(ebb_autoswap *a, size_t n, double limit_bytes) {
    double overhead_ns = 0;
    sort_selected(a, n, true);
    for (size_t i = 0; i < n; i++) {
        ebb_autoswap_block *b = &a->blocks[a->order[i]];
        int64_t back = i > 0 ? earlier(b->need, a->blocks[a->order[i - 1]].back) : b->need, first, last;
        const double begin_ns = time_of(a, back) - b->in_ns;
        while (back > 0 && begin_ns < a->time[back]) { back--; }
        back = later(back, b->leave);
        add_load(a, back, b->need, b->bytes);
        find_over(a, limit_bytes, &first, &last);
        if (last != -1 && last >= back) {
            add_load(a, back, last + 1, -b->bytes);
            overhead_ns += time_of(a, last) - begin_ns;
        }
        b->back = back;
    }
    return overhead_ns;
}

/* The first event of [first, last) over the limit; last: none. */
static int64_t first_over(const ebb_autoswap *a, int64_t first, int64_t last, double limit_bytes) {
    while (first < last && a->now[first + a->n] <= limit_bytes) { first++; }
    return first;
}

/* One past the last event of [first, last) over the limit; first: none. */
static int64_t end_of_over(const ebb_autoswap *a, int64_t first, int64_t last, double limit_bytes) {
    while (last > first && a->now[last - 1 + a->n] <= limit_bytes) { last--; }
    return last;
}

/* A block is gone when its copy has ended, or, with a stall, before the limit is passed. */
static double schedule_outs(ebb_autoswap *a, size_t n, double limit_bytes) {
    double overhead_ns = 0, free_ns = -INFINITY;
    sort_selected(a, n, false);
    for (size_t i = 0; i < n; i++) {
        ebb_autoswap_block *b = &a->blocks[a->order[i]];
        free_ns = greater(time_of(a, b->ready), free_ns) + b->out_ns;
        const int64_t ended = earlier(event_at(a, b->ready, free_ns), b->need);
        b->gone = first_over(a, b->ready, ended, limit_bytes);
        add_load(a, b->gone, b->need, -b->bytes);
        if (b->gone < ended) { overhead_ns += greater(free_ns - time_of(a, b->gone), 0); }
    }
    return overhead_ns;
}

/* As late as it can be without a stall, or, with one, when there is room. The load is without all that is away. */
static double schedule_ins(ebb_autoswap *a, size_t n, double limit_bytes) {
    double overhead_ns = 0, end_ns = INFINITY;
    sort_selected(a, n, true);
    for (size_t i = 0; i < n; i++) {
        ebb_autoswap_block *b = &a->blocks[a->order[i]];
        end_ns = (time_of(a, b->need) < end_ns ? time_of(a, b->need) : end_ns) - b->in_ns;
        const int64_t begun = later(event_before(a, b->need, end_ns), b->gone);
        add_load(a, begun, b->need, b->bytes);
        b->back = end_of_over(a, begun, b->need, limit_bytes);
        add_load(a, begun, b->back, -b->bytes);
        if (b->back == begun) { continue; }
        overhead_ns += greater(time_of(a, b->back) - end_ns, 0);
        end_ns = greater(time_of(a, b->back), end_ns);
    }
    return overhead_ns;
}

double ebb__autoswap_stick_to(ebb_autoswap *a, size_t n, double limit_bytes) {
    reset_load(a);
    if (a->as_coded) {
        const double out_ns = coded_outs(a, n, limit_bytes), in_ns = coded_ins(a, n, limit_bytes);
        return out_ns + in_ns;
    }
    const double out_ns = schedule_outs(a, n, limit_bytes), in_ns = schedule_ins(a, n, limit_bytes);
    return out_ns + in_ns;
}

double ebb__autoswap_no_overhead(ebb_autoswap *a, size_t n) {
    reset_load(a);
    (void)schedule_outs(a, n, INFINITY);
    (void)schedule_ins(a, n, INFINITY);
    return peak_of(a);
}
