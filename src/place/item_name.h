/* SPDX-License-Identifier: Apache-2.0
 *
 * What messages call an item: what the problem calls it, else its number. The checker shares this with the solvers,
 * since it decides nothing.
 */
#ifndef EBB_SRC_PLACE_ITEM_NAME_H
#define EBB_SRC_PLACE_ITEM_NAME_H

#include "ebb/place.h"

#include <stdio.h>

typedef struct ebb_item_name {
    char text[96];
} ebb_item_name;

/* The item may be one that is not there. */
static inline ebb_item_name ebb__item_name(const ebb_place_problem *problem, size_t item) {
    ebb_item_name name;
    if (problem->name != NULL && item < problem->n_items) {
        problem->name(problem->name_ctx, item, name.text, sizeof name.text);
    } else {
        (void)snprintf(name.text, sizeof name.text, "%zu", item);
    }
    return name;
}

#endif
