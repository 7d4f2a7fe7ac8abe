/* SPDX-License-Identifier: Apache-2.0
 *
 * Where an iteration copies in the inputs of the next one, if inputs come early. This must be after the last step that
 * reads the old batch. Later is better, because other tensors use the bytes until then; but the copy has to end in
 * time. There are no times here, so the bytes that steps read and write stand for them.
 */
#include "backend/lower.h"

/* How many bytes of operands a step passes over, for each byte that it feeds, before the next iteration begins: a
 * device's memory is some 50 times as fast as its link to the host, and a batch should be there in good time. */
#define FEED_LEAD 100u

static uint64_t value_bytes(const ebb_graph *graph, ebb_value value) {
    const ebb_value_info *info = &graph->values.data[value];
    return (uint64_t)ebb__shape_elements(&info->shape) * ebb_dtype_bytes(info->dtype);
}

static uint64_t operand_bytes(const ebb_graph *graph, const ebb_op *op) {
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < op->n_in; i++) { bytes += value_bytes(graph, op->in[i]); }
    for (uint32_t i = 0; i < op->n_out; i++) { bytes += value_bytes(graph, op->out[i]); }
    for (uint32_t i = 0; i < op->n_inout; i++) { bytes += value_bytes(graph, op->inout[i]); }
    return bytes;
}

/* Estimates from the graph alone: they do not know which kernels work in place, or take scratch. */
typedef struct outlook {
    uint32_t *read_until; /* [n_values]: the op after the last one that reads it, or a view of it */
    uint64_t *left;       /* [n_ops + 1]: bytes of operands from each op on */
    uint64_t *live;       /* [n_ops + 1]: bytes of values that do not persist, at each op */
    uint64_t peak;        /* of these */
} outlook;

static void find_reads(const ebb_graph *graph, uint32_t *read_until) {
    for (uint32_t o = (uint32_t)graph->ops.n; o-- > 0;) {
        const ebb_op *op = &graph->ops.data[o];
        const uint32_t until = op->kind == EBB_OP_RESHAPE ? read_until[op->out[0]] : 0;
        for (uint32_t i = 0; i < op->n_in; i++) {
            uint32_t *at = &read_until[op->in[i]];
            *at = *at > o + 1 ? *at : o + 1;
            *at = *at > until ? *at : until;
        }
    }
}

static void find_loads(const ebb_graph *graph, outlook *out) {
    const size_t n = graph->ops.n;
    for (size_t o = 0; o < n; o++) { /* first, what comes and goes at each op; wraps below 0 */
        const ebb_op *op = &graph->ops.data[o];
        for (uint32_t i = 0; op->kind != EBB_OP_RESHAPE && i < op->n_out; i++) {
            const ebb_value v = op->out[i];
            const size_t until = out->read_until[v] > o ? out->read_until[v] : o + 1;
            if (ebb__value_is_persistent(graph->values.data[v].kind)) { continue; }
            out->live[o] += value_bytes(graph, v);
            out->live[until] -= value_bytes(graph, v);
        }
    }
    for (size_t o = 0; o < n; o++) {
        if (o > 0) { out->live[o] += out->live[o - 1]; }
        out->peak = ebb_max_u64(out->peak, out->live[o]);
    }
    for (size_t o = n; o-- > 0;) { out->left[o] = out->left[o + 1] + operand_bytes(graph, &graph->ops.data[o]); }
}

/* A feed stands where it has time, but no earlier, nor where it would raise the peak: its bytes serve others until
 * then. In any case it comes after the last read of the batch before. */
static uint32_t place_feed(const ebb_graph *graph, const outlook *out, const ebb_op *feed, uint32_t least) {
    const uint64_t bytes = value_bytes(graph, feed->out[0]);
    uint32_t at = (uint32_t)graph->ops.n;
    if (least < out->read_until[feed->out[0]]) { least = out->read_until[feed->out[0]]; }
    while (at > least && out->live[at - 1] + bytes <= out->peak && out->left[at] < FEED_LEAD * bytes) { at--; }
    return at;
}

ebb_status ebb__place_feeds(const ebb_graph *graph, ebb_bump *bump, uint32_t **feed_at_out) {
    const size_t n = graph->ops.n;
    uint32_t *feed_at = ebb__bump_alloc(bump, n, sizeof *feed_at);
    outlook out = {.read_until = ebb__bump_alloc(bump, graph->values.n, sizeof *out.read_until),
                   .left = ebb__bump_alloc(bump, n + 1, sizeof *out.left),
                   .live = ebb__bump_alloc(bump, n + 1, sizeof *out.live)};
    if (out.read_until == NULL || out.left == NULL || out.live == NULL || feed_at == NULL) { return EBB_E_NO_MEMORY; }
    memset(out.read_until, 0, graph->values.n * sizeof *out.read_until);
    memset(out.left, 0, (n + 1) * sizeof *out.left);
    memset(out.live, 0, (n + 1) * sizeof *out.live);
    find_reads(graph, out.read_until);
    find_loads(graph, &out);
    uint32_t n_feeds = 0;
    while (n_feeds < n && graph->ops.data[n_feeds].kind == EBB_OP_FEED) { n_feeds++; }
    for (uint32_t o = 0; o < n_feeds; o++) { feed_at[o] = place_feed(graph, &out, &graph->ops.data[o], n_feeds); }
    *feed_at_out = feed_at;
    return EBB_OK;
}
