/* SPDX-License-Identifier: Apache-2.0
 *
 * Optimisers as data: their names, what each keeps beside a parameter, and which of its figures it reads.
 */
#include "graph/graph_priv.h"

static const char *const names[] = {
    [EBB_OPT_SGD] = "sgd",   [EBB_OPT_MOMENTUM] = "momentum", [EBB_OPT_NESTEROV] = "nesterov",
    [EBB_OPT_ADAM] = "adam", [EBB_OPT_ADAMW] = "adamw",       NULL,
};
#define N_KINDS (sizeof names / sizeof names[0] - 1)

ebb_status ebb_optimizer_parse(const char *name, ebb_optimizer_kind *kind_out) {
    EBB_NEED(name);
    EBB_NEED(kind_out);
    for (size_t i = 0; i < N_KINDS; i++) {
        if (strcmp(name, names[i]) == 0) {
            *kind_out = (ebb_optimizer_kind)i;
            return EBB_OK;
        }
    }
    char known[EBB_SUGGESTION_BYTES];
    return ebb_fail(EBB_E_ARGUMENT, "there is no optimizer '%s'%s", name,
                    ebb__suggest_or_list(name, ebb__name_in_list, names, known));
}

const char *ebb__optimizer_name(ebb_optimizer_kind kind) {
    EBB_ASSERT((unsigned)kind < N_KINDS);
    return names[kind];
}

static bool in_unit(float x) {
    return x >= 0.0f && x < 1.0f;
}

ebb_status ebb__optimizer_check(const ebb_optimizer *optimizer) {
    if (optimizer->size_bytes != sizeof *optimizer || (unsigned)optimizer->kind >= N_KINDS) {
        return ebb_fail(EBB_E_ARGUMENT, "optimizer: options of an unknown size or kind");
    }
    if (!(optimizer->weight_decay >= 0.0f) || !(optimizer->weight_decay < 1e30f)) {
        return ebb_fail(EBB_E_ARGUMENT, "optimizer %s: weight decay must be from 0 to below 1e30",
                        names[optimizer->kind]);
    }
    if (!in_unit(optimizer->momentum) || !in_unit(optimizer->beta1) || !in_unit(optimizer->beta2)) {
        return ebb_fail(EBB_E_ARGUMENT, "optimizer %s: momentum, beta1 and beta2 must be in [0, 1)",
                        names[optimizer->kind]);
    }
    if (!(optimizer->epsilon > 0.0f) || !(optimizer->epsilon < 1e30f)) {
        return ebb_fail(EBB_E_ARGUMENT, "optimizer %s: epsilon must be above 0 and below 1e30", names[optimizer->kind]);
    }
    return EBB_OK;
}
