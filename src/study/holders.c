/* SPDX-License-Identifier: Apache-2.0
 *
 * Who holds the peak: its blocks by call site, call stack, module, name.
 *
 * The site of a stack is the innermost of its frames of the highest rank that it has: a Python file of the user's, one
 * of an installed package, the backward of an operator of PyTorch (its threads have no Python below them), an operator,
 * another source file or program, a library, an allocator. A frame's caller has a smaller number, so one pass over the
 * frames finds the site of each.
 */
#include "study/study_priv.h"

#include "trace/trace.h"

#include <inttypes.h>
#include <stdlib.h>

/* ---- sites ------------------------------------------------------------------------------------ */

static bool ends_with(const char *text, const char *end) {
    const size_t n = strlen(text), n_end = strlen(end);
    return n >= n_end && strcmp(text + n - n_end, end) == 0;
}

/* Python's own files on Windows: C:/Users/me/AppData/Local/Programs/Python/Python311/Lib/contextlib.py. */
static bool is_of_windows_python(const char *file) {
    const char *library = file[0] != '\0' && file[1] == ':' ? strstr(file, "/Lib/") : NULL;
    const char *python = strstr(file, "Python"), *conda = strstr(file, "conda");
    return library != NULL && ((python != NULL && python < library) || (conda != NULL && conda < library));
}

static bool is_of_package(const char *file) {
    return strstr(file, "/site-packages/") != NULL || strstr(file, "/dist-packages/") != NULL ||
           strstr(file, "/lib/python") != NULL || strstr(file, "/torch/") != NULL ||
           study_begins_with(file, "torch/") || file[0] == '<' || is_of_windows_python(file);
}

/* A library's own business; what a program is that only runs another one. */
static bool is_library(const char *file) {
    const char *slash = strrchr(file, '/'), *base = slash != NULL ? slash + 1 : file;
    return strstr(base, ".so") != NULL || study_begins_with(file, "/usr/") || study_begins_with(base, "python");
}

static unsigned rank_of(const ebb_study *s, uint32_t stack) {
    if (stack == 0) { return 0; }
    const ebb_trace_frame f = ebb_trace_reader_frame(s->reader, stack);
    const char *file = ebb_trace_reader_string(s->reader, f.file);
    const char *function = ebb_trace_reader_string(s->reader, f.function);
    if (ends_with(file, ".py")) { return is_of_package(file) ? 5 : 6; }
    if (strcmp(function, "_start") == 0) { return 0; } /* calls all there is */
    if (study_begins_with(function, "torch::autograd::generated::")) { return 4; }
    if (study_begins_with(function, "at::_ops::")) { return 3; }
    if (file[0] != '\0' && file[0] != '?' && !is_library(file)) { return 2; }
    return ebb__trace_is_allocator(function, file) ? 0 : 1;
}

static ebb_status find_sites(ebb_study *s) {
    const size_t n = (size_t)s->max_stack + 1;
    s->site_of = ebb__alloc(s->mem, n, sizeof *s->site_of);
    uint8_t *rank = ebb__alloc(s->mem, n, sizeof *rank);
    if (s->site_of == NULL || rank == NULL) {
        ebb__free(s->mem, rank);
        return EBB_E_NO_MEMORY;
    }
    s->site_of[0] = rank[0] = 0;
    for (uint32_t stack = 1; stack < n; stack++) {
        const uint32_t caller = ebb_trace_reader_frame(s->reader, stack).caller;
        EBB_ASSERT(caller < stack);
        const unsigned here = rank_of(s, stack);
        const bool is_it = caller == 0 || here >= rank[caller];
        s->site_of[stack] = is_it ? stack : s->site_of[caller];
        rank[stack] = (uint8_t)(is_it ? here : rank[caller]);
    }
    ebb__free(s->mem, rank);
    return EBB_OK;
}

/* The last two parts of a path. */
static const char *tail_of(const char *path) {
    const char *tail = path, *before = path;
    for (const char *at = path; *at != '\0'; at++) {
        if (*at != '/') { continue; }
        tail = before;
        before = at + 1;
    }
    return tail;
}

/* A C++ function without its arguments: up to the first parenthesis that is not within a template's, nor of its name.
 */
static int name_length(const char *function) {
    unsigned depth = 0;
    const size_t n = strlen(function);
    if (strstr(function, "::") == NULL) { return (int)n; }
    for (size_t i = 1; i < n; i++) {
        const bool is_operator = i >= 8 && memcmp(function + i - 8, "operator", 8) == 0;
        depth += function[i] == '<' && !is_operator;
        depth -= function[i] == '>' && depth > 0;
        if (function[i] != '(' || depth > 0 || is_operator) { continue; }
        if (!study_begins_with(function + i, "(anonymous")) { return (int)i; }
    }
    return (int)n;
}

/* The recorder of a native program knew where in its file it was, and no name. */
static bool is_unnamed(const ebb_study *s, uint32_t stack) {
    const ebb_trace_frame f = ebb_trace_reader_frame(s->reader, stack);
    return study_begins_with(ebb_trace_reader_string(s->reader, f.function), "+0x") &&
           ebb_trace_reader_string(s->reader, f.file)[0] != '\0';
}

/* The nearest caller with a name of a site without one; 0: the site has a name, or none of its callers has. */
static uint32_t named_caller(const ebb_study *s, uint32_t site) {
    if (!is_unnamed(s, site)) { return 0; }
    while (site != 0 && (is_unnamed(s, site) || rank_of(s, site) == 0)) {
        site = ebb_trace_reader_frame(s->reader, site).caller;
    }
    return site;
}

const char *ebb__study_frame_label(const ebb_study *s, uint32_t stack, ebb_bump *bump) {
    const ebb_trace_frame f = ebb_trace_reader_frame(s->reader, stack);
    const char *function = ebb_trace_reader_string(s->reader, f.function);
    const char *file = ebb_trace_reader_string(s->reader, f.file);
    const int n = name_length(function);
    if (is_unnamed(s, stack)) {
        const char *slash = strrchr(file, '/');
        return ebb__bump_printf(bump, "%s%s", slash != NULL ? slash + 1 : file, function);
    }
    if (file[0] == '\0' || file[0] == '?') { return ebb__bump_printf(bump, "%.*s", n, function); }
    if (f.line == 0) { return ebb__bump_printf(bump, "%.*s (%s)", n, function, tail_of(file)); }
    return ebb__bump_printf(bump, "%.*s (%s:%" PRIu32 ")", n, function, tail_of(file), f.line);
}

const char *ebb__study_site_label(const ebb_study *s, uint32_t stack, ebb_bump *bump) {
    if (stack == 0) { return ""; }
    const uint32_t site = s->site_of[stack], caller = named_caller(s, site);
    const char *label = ebb__study_frame_label(s, site, bump);
    if (caller == 0 || label == NULL) { return label; }
    const char *of_caller = ebb__study_frame_label(s, caller, bump);
    return of_caller != NULL ? ebb__bump_printf(bump, "%s, called by %s", label, of_caller) : NULL;
}

/* ---- groups ----------------------------------------------------------------------------------- */

static ebb_status find_group(const ebb_study *s, ebb_study_group group, const study_block *b, ebb_trace_keys *keys,
                             uint32_t *number_out) {
    bool is_new = false;
    const char *name = ebb_trace_reader_string(s->reader, b->name);
    const ebb_trace_frame f = ebb_trace_reader_frame(s->reader, s->site_of[b->stack]);
    const ebb_trace_frame by = ebb_trace_reader_frame(s->reader, named_caller(s, s->site_of[b->stack]));
    const uint32_t site[] = {f.function, f.file, f.line, by.function, by.file, by.line};
    switch (group) {
    case EBB_STUDY_BY_SITE: return ebb__trace_keys_add(keys, site, sizeof site, number_out, &is_new);
    case EBB_STUDY_BY_STACK: return ebb__trace_keys_add(keys, &b->stack, sizeof b->stack, number_out, &is_new);
    case EBB_STUDY_BY_MODULE:
        return ebb__trace_keys_add(keys, name, ebb__study_module_length(b, name), number_out, &is_new);
    case EBB_STUDY_BY_NAME:
    case EBB_STUDY_N_GROUPS: break;
    }
    return ebb__trace_keys_add(keys, name, strlen(name), number_out, &is_new);
}

static const char *make_label(ebb_study *s, ebb_study_group group, const study_block *b) {
    const char *name = ebb_trace_reader_string(s->reader, b->name);
    if (group == EBB_STUDY_BY_SITE || group == EBB_STUDY_BY_STACK) {
        return ebb__study_site_label(s, b->stack, &s->bump);
    }
    if (group == EBB_STUDY_BY_NAME) { return ebb__bump_strdup(&s->bump, name); }
    return ebb__study_module_label(s, name, ebb__study_module_length(b, name));
}

static void add_to_holder(const ebb_study *s, ebb_study_holder *h, uint32_t block, uint64_t bytes) {
    const study_block *b = &s->blocks.data[block];
    if (h->n_blocks == 0 || b->size_bytes > s->blocks.data[h->largest_block].size_bytes) {
        h->largest_block = block;
        h->stack = b->stack;
    }
    h->n_blocks++;
    h->bytes = study_add(h->bytes, bytes);
    h->role_bytes[b->likely_role] = study_add(h->role_bytes[b->likely_role], bytes);
}

static uint64_t falling_bytes(const void *item) {
    return ~((const ebb_study_holder *)item)->bytes;
}

ebb_status ebb__study_sort_holders(const ebb_study *s, study_holders *holders) {
    return ebb__sort_items(s->mem, holders->data, holders->n, sizeof *holders->data, falling_bytes);
}

static ebb_status gather(ebb_study *s, ebb_study_group group, const study_set *set, ebb_trace_keys *keys,
                         study_holders *holders) {
    for (size_t i = 0; i < set->n; i++) {
        const study_block *b = &s->blocks.data[set->blocks[i]];
        uint32_t number = 0;
        EBB_TRY(find_group(s, group, b, keys, &number));
        EBB_ASSERT(number >= 1 && number <= holders->n + 1);
        if (number > holders->n) {
            const ebb_study_holder holder = {.label = make_label(s, group, b)};
            if (holder.label == NULL) { return EBB_E_NO_MEMORY; }
            EBB_TRY(EBB_PUSH(s->mem, holders, holder));
        }
        add_to_holder(s, &holders->data[number - 1], set->blocks[i],
                      set->bytes != NULL ? set->bytes[i] : b->size_bytes);
    }
    return ebb__study_sort_holders(s, holders);
}

/* A table of blocks that have nothing to be grouped by tells nothing. */
static bool has_labels(const ebb_study *s, ebb_study_group group, const study_set *set) {
    const bool by_stack = group == EBB_STUDY_BY_SITE || group == EBB_STUDY_BY_STACK;
    for (size_t i = 0; i < set->n; i++) {
        const study_block *b = &s->blocks.data[set->blocks[i]];
        if ((by_stack ? b->stack : b->name) != 0) { return true; }
    }
    return false;
}

ebb_status ebb__study_group(ebb_study *s, ebb_study_group group, const study_set *set, study_holders *holders) {
    if (!has_labels(s, group, set)) { return EBB_OK; }
    ebb_trace_keys keys;
    ebb__trace_keys_init(&keys, s->mem);
    const ebb_status st = gather(s, group, set, &keys, holders);
    ebb__trace_keys_fini(&keys);
    return st;
}

/* ---- the door --------------------------------------------------------------------------------- */

ebb_status ebb__study_find_holders(ebb_study *s) {
    EBB_TRY(find_sites(s));
    const size_t n_live = (size_t)s->summary.n_live_at_peak;
    uint32_t *live = ebb__alloc(s->mem, n_live, sizeof *live);
    if (live == NULL) { return EBB_E_NO_MEMORY; }
    size_t n = 0;
    for (size_t b = 0; b < s->blocks.n; b++) {
        if (s->blocks.data[b].live_at_peak) { live[n++] = (uint32_t)b; }
    }
    EBB_ASSERT(n == n_live);
    ebb_status st = EBB_OK;
    for (unsigned g = 0; st == EBB_OK && g < EBB_STUDY_N_GROUPS; g++) {
        st = ebb__study_group(s, (ebb_study_group)g, &(study_set){.blocks = live, .n = n}, &s->holders[g]);
    }
    ebb__free(s->mem, live);
    return st;
}

const ebb_study_holder *ebb_study_holders(const ebb_study *study, ebb_study_group group, size_t *n_out) {
    EBB_ASSERT((unsigned)group < EBB_STUDY_N_GROUPS);
    *n_out = study->holders[group].n;
    return study->holders[group].data;
}

uint32_t ebb_study_site(const ebb_study *study, uint32_t stack) {
    EBB_ASSERT(stack <= study->max_stack);
    return study->site_of[stack];
}

/* Note the limit that ebb record was given, and what was left of it. */
static void use_limit(const ebb_study *s, ebb_study_refusal *r) {
    const char *limit = ebb_trace_reader_note(s->reader, "limit_bytes");
    if (limit == NULL || r->capacity_bytes != EBB_STUDY_UNKNOWN) { return; }
    r->capacity_bytes = strtoull(limit, NULL, 10);
    r->free_bytes = r->capacity_bytes > r->live_bytes ? r->capacity_bytes - r->live_bytes : 0;
}

static void find_reserved(const ebb_study *s, ebb_study_refusal *r) {
    if (!study_tells(s, EBB_TRACE_TELLS_SEGMENTS)) { return; }
    r->reserved_bytes = 0;
    for (size_t i = 0; i < s->segment_log.n && study_segment_event(s, s->segment_log.data[i]) < r->event; i++) {
        const uint64_t bytes = s->segments.data[s->segment_log.data[i] >> 1].size_bytes;
        r->reserved_bytes += (s->segment_log.data[i] & 1u) != 0 ? 0 - bytes : bytes;
    }
}

ebb_status ebb__study_name_refusals(ebb_study *s) {
    for (size_t i = 0; i < s->refusals.n; i++) {
        ebb_study_refusal *r = &s->refusals.data[i];
        const bool is_as_before = i > 0 && r[-1].stack == r->stack;
        use_limit(s, r);
        if (i + 1 == s->refusals.n) { find_reserved(s, r); } /* of the last alone, which is told */
        r->site = is_as_before ? r[-1].site : ebb__study_site_label(s, r->stack, &s->bump);
        if (r->site == NULL) { return EBB_E_NO_MEMORY; }
    }
    return EBB_OK;
}

const ebb_study_refusal *ebb_study_refusals(const ebb_study *study, size_t *n_out) {
    *n_out = study->refusals.n;
    return study->refusals.data;
}
