/* SPDX-License-Identifier: Apache-2.0
 *
 * The names of roles, both ways.
 */
#include "base/base.h"

static const char *const names[] = {
#define ROLE_NAME(code, name) name,
    EBB_ROLE_TABLE(ROLE_NAME)
#undef ROLE_NAME
};

const char *ebb_role_name(ebb_role role) {
    return names[(unsigned)role < EBB_N_ROLES ? role : EBB_ROLE_OTHER];
}

bool ebb__role_find(const char *name, size_t n_bytes, ebb_role *role_out) {
    for (unsigned i = 0; i < EBB_N_ROLES; i++) {
        if (strlen(names[i]) == n_bytes && memcmp(names[i], name, n_bytes) == 0) {
            *role_out = (ebb_role)i;
            return true;
        }
    }
    return false;
}
