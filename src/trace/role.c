/* SPDX-License-Identifier: Apache-2.0
 *
 * The names of roles, both ways, and of what sources tell.
 */
#include "trace/trace.h"

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

const char *ebb_trace_tells_name(size_t idx, const char **words_out) {
    /* In the order of the bits EBB_TRACE_TELLS_... */
    static const struct {
        const char *name, *words;
    } things[] = {{"times", "times"},         {"accesses", "reads and writes"},
                  {"addresses", "addresses"}, {"roles", "roles"},
                  {"steps", "steps"},         {"segments", "what the allocator holds"},
                  {"stacks", "call stacks"},  {"before", "what was there before the recording"}};
    if (idx >= sizeof things / sizeof things[0]) { return NULL; }
    if (words_out != NULL) { *words_out = things[idx].words; }
    return things[idx].name;
}
