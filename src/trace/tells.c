/* SPDX-License-Identifier: Apache-2.0
 *
 * The names of what sources tell.
 */
#include "trace/trace.h"

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
