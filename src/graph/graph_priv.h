/* SPDX-License-Identifier: Apache-2.0
 *
 * What the files of this folder share: adding values and operators, and the frame of a builder call.
 */
#ifndef EBB_SRC_GRAPH_PRIV_H
#define EBB_SRC_GRAPH_PRIV_H

#include "graph/graph.h"

#define EBB_NO_OP UINT32_MAX

/* (n), (n, c), (n, c, h, w). */
ebb_shape ebb__shape_1d(int64_t n);
ebb_shape ebb__shape_2d(int64_t n, int64_t c);
ebb_shape ebb__shape_4d(int64_t n, int64_t c, int64_t h, int64_t w);

/* prefix and suffix as one text in the graph's bump; NULL when there is no memory. */
const char *ebb__graph_join(ebb_graph *graph, const char *prefix, const char *suffix);

/* Add a value named prefix suffix; the rest as info has it, but that `of` holds only for gradients and state.
 * EBB_E_ARGUMENT: a persistent name is taken, or the shape is not valid. */
ebb_status ebb__graph_add_value(ebb_graph *graph, const char *prefix, const char *suffix, const ebb_value_info *info,
                                ebb_value *value_out);

/* Copy op after the last; its name is the graph's already, its operand lists are copied. out gets room for
 * what a pass may add (a mask). */
ebb_status ebb__graph_add_op(ebb_graph *graph, const ebb_op *op);

/* A copy of op whose operand lists are in the graph's bump. */
ebb_status ebb__graph_copy_op(ebb_graph *graph, const ebb_op *op, ebb_op *copy_out);

/* The frame of a builder call. begin: false where the graph has failed or is finished; puts *name (NULL: one is
 * made up) into the graph. end: remembers the first failure, with the graph's name before it. */
bool ebb__graph_begin(ebb_graph *graph, ebb_op_kind kind, const char **name);
ebb_status ebb__graph_end(ebb_graph *graph, ebb_status status);

/* Whether src may be read by the layer `name`: a float32 value made in this graph, with n_dims dimensions in
 * [min, max]. */
ebb_status ebb__graph_check_src(const ebb_graph *graph, const char *name, ebb_value src, int32_t min_dims,
                                int32_t max_dims);

/* The usual op: name, one new float32 temporary of this shape as output. */
ebb_status ebb__graph_add_layer(ebb_graph *graph, const ebb_op *op, const ebb_shape *shape, ebb_value *dst_out);

/* Kept for backward, bytes known to the backend alone. */
ebb_status ebb__graph_add_opaque(ebb_graph *graph, const char *name, const char *suffix, const ebb_shape *shape,
                                 ebb_value *value_out);

/* Set how the parameters of the last op with weights begin: what zoo networks do after a layer. */
void ebb__graph_init_weights(ebb_graph *graph, ebb_init init, float scale);
void ebb__graph_init_bias(ebb_graph *graph, ebb_init init, float scale);

/* EBB_E_ARGUMENT: a figure that is out of its range. */
ebb_status ebb__optimizer_check(const ebb_optimizer *optimizer);

/* For each value how many operands read it. The caller frees it with the graph's hooks. */
ebb_status ebb__graph_count_uses(const ebb_graph *graph, uint32_t **uses_out);

#if EBB_DEBUG >= 2
#define EBB_GRAPH_DEEP_CHECK(graph) EBB_TRY(ebb__graph_validate(graph))
#else
#define EBB_GRAPH_DEEP_CHECK(graph) ((void)0)
#endif

#endif
