/* SPDX-License-Identifier: Apache-2.0
 *
 * What the same blocks would need elsewhere: a placement that knows their future, other allocators, PyTorch's with
 * other settings, blocks that live no longer than they are used.
 *
 * The order of births and deaths is the recorded one, whatever the allocator; so is the moment at which a recorded
 * allocator gave segments back: there each one gives back its free ones. Blocks from before the recording come first.
 * Where the recorded one gave back a part, by garbage_collection_threshold or max_split_size, that was its own doing:
 * the same settings do it in their way, others do nothing. The recording does not tell when those would have given back
 * something, so their error is unknown.
 * Allocators of devices say nothing about a program's heap; settings of PyTorch's are for programs of PyTorch's.
 */
#include "place/caching.h"
#include "place/driver.h"
#include "study/study_priv.h"

#include "ebb/place.h"

#include <inttypes.h>
#include <stdlib.h>

#define ALIGNMENT_BYTES 512u /* PyTorch's, and enough for any kernel */
#define MANY_BLOCKS ((size_t)200 * 1000)
#define PLACE_STEPS ((uint64_t)4 * 1000 * 1000)
#define PLACE_STEPS_AN_ITEM ((uint64_t)32)
#define MIB ((uint64_t)1 << 20)
#define RECORDED "pytorch-recorded" /* the key of the row with the recorded settings */
#define SINGA_BYTES (256 * MIB)     /* the initial size of its CnMem */

/* ---- rows ------------------------------------------------------------------------------------- */

/* A row that cannot be computed is unknown; only a lack of memory fails the study. */
static ebb_status forgive(ebb_status st, uint64_t *bytes) {
    if (st == EBB_OK || st == EBB_E_NO_MEMORY) { return st; }
    *bytes = EBB_STUDY_UNKNOWN;
    return EBB_OK;
}

static ebb_status add_row(ebb_study *s, const ebb_study_what_if *row) {
    ebb_study_what_if copy = *row;
    copy.key = ebb__bump_strdup(&s->bump, row->key);
    copy.setting = ebb__bump_strdup(&s->bump, row->setting);
    if (copy.key == NULL || copy.setting == NULL) { return EBB_E_NO_MEMORY; }
    return EBB_PUSH(s->mem, &s->what_ifs, copy);
}

/* ---- placements ------------------------------------------------------------------------------- */

typedef struct problem {
    EBB_VEC(ebb_place_item) items;
    bool of_iteration;
} problem;

/* Time is the index in the log. */
static ebb_status make_problem(ebb_study *s, problem *p) {
    const ebb_iteration_part *part = s->usual_part < s->parts.n ? &s->parts.data[s->usual_part] : NULL;
    p->of_iteration = part != NULL && s->blocks.n > MANY_BLOCKS;
    uint32_t *item_of = ebb__alloc(s->mem, s->blocks.n, sizeof *item_of);
    if (item_of == NULL) { return EBB_E_NO_MEMORY; }
    ebb_status st = EBB_OK;
    for (size_t i = 0; st == EBB_OK && i < s->log.n; i++) {
        const uint32_t entry = s->log.data[i], b = entry >> 1;
        if ((entry & 1u) != 0) {
            if (item_of[b] != STUDY_NONE) { p->items.data[item_of[b]].last = i; }
            continue;
        }
        const study_block *block = &s->blocks.data[b];
        const bool is_in = block->size_bytes > 0 && (!p->of_iteration || study_is_in(block, part));
        item_of[b] = is_in ? (uint32_t)p->items.n : STUDY_NONE;
        if (!is_in) { continue; }
        const ebb_place_item item = {.size_bytes = block->size_bytes, .first = i, .last = s->log.n};
        st = EBB_PUSH(s->mem, &p->items, item);
    }
    ebb__free(s->mem, item_of);
    return st;
}

static ebb_status place(ebb_study *s, const problem *p, const char *solver, uint64_t first_segment_bytes,
                        uint64_t *bytes_out) {
    ebb_place_problem posed = EBB_PLACE_PROBLEM_INIT;
    ebb_place_options options = EBB_PLACE_OPTIONS_INIT;
    options.any_end = true;
    ebb_place_result result = {.peak_bytes = 0};
    posed.items = p->items.data;
    posed.n_items = p->items.n;
    posed.alignment_bytes = ALIGNMENT_BYTES;
    options.mem = s->mem;
    options.solver = solver;
    options.first_segment_bytes = first_segment_bytes;
    if (solver == NULL) {
        options.max_steps = s->options.max_place_steps != 0 ? s->options.max_place_steps
                                                            : PLACE_STEPS + PLACE_STEPS_AN_ITEM * p->items.n;
        options.stop = s->options.stop;
        options.stop_ctx = s->options.stop_ctx;
    }
    uint64_t *offsets = ebb__alloc(s->mem, p->items.n, sizeof *offsets);
    if (offsets == NULL) { return EBB_E_NO_MEMORY; }
    const ebb_status st = ebb_place_solve(&posed, &options, offsets, &result);
    ebb__free(s->mem, offsets);
    *bytes_out = result.peak_bytes;
    return forgive(st, bytes_out);
}

/* Whether what lies in several spaces (malloc and mmap) lies in one memory: a device was chosen, or there is one space.
 */
static bool is_one_memory(const ebb_study *s) {
    size_t n_devices = 0, chosen = 0;
    (void)ebb_trace_reader_devices(s->reader, &n_devices, &chosen);
    return n_devices > 0 || !s->summary.several_spaces;
}

static ebb_status add_placements(ebb_study *s) {
    const bool is_device = study_speaker_of(s) != SPEAKER_HEAP;
    problem p = {.of_iteration = false};
    ebb_study_what_if best = {.key = "placement",
                              .about = "each block at an offset that is planned ahead, multiples of 512",
                              .setting = "",
                              .bytes = EBB_STUDY_UNKNOWN};
    ebb_study_what_if cnmem = {.key = "cnmem",
                               .about = "Nvidia's CnMem: the smallest free block that is large enough",
                               .setting = "",
                               .bytes = EBB_STUDY_UNKNOWN,
                               .is_reserved = true};
    ebb_study_what_if singa = {.key = "cnmem:init_size:256MiB",
                               .about = "the same, which takes 256 MiB at the beginning, as in SINGA",
                               .setting = "",
                               .bytes = EBB_STUDY_UNKNOWN,
                               .is_reserved = true};
    ebb_status st = EBB_OK;
    if (is_one_memory(s)) {
        st = make_problem(s, &p);
        if (st == EBB_OK) { st = place(s, &p, NULL, 0, &best.bytes); }
        if (st == EBB_OK && is_device) { st = place(s, &p, "best-fit", 0, &cnmem.bytes); }
        if (st == EBB_OK && is_device) { st = place(s, &p, "best-fit", SINGA_BYTES, &singa.bytes); }
    }
    EBB_VEC_FINI(s->mem, &p.items);
    best.of_iteration = cnmem.of_iteration = singa.of_iteration = p.of_iteration;
    EBB_TRY(st);
    EBB_TRY(add_row(s, &best));
    if (!is_device) { return EBB_OK; }
    EBB_TRY(add_row(s, &cnmem));
    return add_row(s, &singa);
}

/* ---- no allocator ----------------------------------------------------------------------------- */

static ebb_status pass_driver(const ebb_study *s, ebb_driver *driver, uint32_t *handle) {
    for (size_t i = 0; i < s->log.n; i++) {
        const uint32_t entry = s->log.data[i], b = entry >> 1;
        const uint64_t size_bytes = s->blocks.data[b].size_bytes;
        if ((entry & 1u) != 0) {
            ebb__driver_give(driver, handle[b], size_bytes);
        } else {
            EBB_TRY(ebb__driver_take(driver, size_bytes, &handle[b]));
        }
    }
    return EBB_OK;
}

static ebb_status add_driver(ebb_study *s) {
    ebb_study_what_if row = {.key = "cudaMalloc",
                             .about = "no allocator: each block is a cudaMalloc, in pages of 2 MiB (assumed)",
                             .setting = "",
                             .bytes = EBB_STUDY_UNKNOWN,
                             .is_reserved = true};
    ebb_driver *driver = NULL;
    uint32_t *handle = ebb__alloc(s->mem, s->blocks.n, sizeof *handle);
    ebb_status st = handle != NULL ? ebb__driver_create(s->mem, &driver) : EBB_E_NO_MEMORY;
    if (st == EBB_OK) { st = pass_driver(s, driver, handle); }
    if (st == EBB_OK) { row.bytes = ebb__driver_peak(driver); }
    ebb__driver_destroy(driver);
    ebb__free(s->mem, handle);
    EBB_TRY(forgive(st, &row.bytes));
    return add_row(s, &row);
}

/* ---- what the recording tells of settings -------------------------------------------------------------------- */

static bool is_true(const char *text) {
    return text != NULL && (study_begins_with(text, "True") || study_begins_with(text, "true") || text[0] == '1');
}

/* The text after "key:" in a list of such pairs; NULL when it is not there. */
static const char *value_in(const char *conf, const char *key) {
    const size_t n = strlen(key);
    for (const char *at = conf; (at = strstr(at, key)) != NULL; at += n) {
        const bool begins = at == conf || at[-1] == ',' || at[-1] == ' ';
        if (begins && at[n] == ':') { return at + n + 1; }
    }
    return NULL;
}

/* "8", or "[256:1,512:2,>:4]" with sizes in MB: as PyTorch reads it, the first counts for all below it too, and '>' for
 * all above the last (until 2.8 for the last too). */
static void read_roundup(const char *text, uint32_t divisions[EBB_CACHING_N_ROUNDUPS]) {
    size_t first = 0, last = 0;
    if (text[0] != '[') {
        for (size_t k = 0; k < EBB_CACHING_N_ROUNDUPS; k++) { divisions[k] = (uint32_t)strtoul(text, NULL, 10); }
        return;
    }
    for (const char *at = text + 1; *at != '\0' && *at != ']';) {
        const char *colon = strchr(at, ':');
        if (colon == NULL) { return; }
        const uint32_t value = (uint32_t)strtoul(colon + 1, NULL, 10);
        if (*at == '>') {
            first = last + 1;
            last = EBB_CACHING_N_ROUNDUPS - 1;
        } else {
            const bool is_first = at == text + 1;
            last = 0;
            for (unsigned long mb = strtoul(at, NULL, 10); mb > 1; mb >>= 1) { last++; }
            if (last >= EBB_CACHING_N_ROUNDUPS) { last = EBB_CACHING_N_ROUNDUPS - 1; }
            first = is_first ? 0 : last;
        }
        for (size_t k = first; k <= last; k++) { divisions[k] = value; }
        at = colon + strcspn(colon, ",]");
        at += *at == ',';
    }
}

static bool read_settings(const ebb_study *s, ebb_caching_settings *c) {
    const char *conf = ebb_trace_reader_note(s->reader, "allocator.PYTORCH_CUDA_ALLOC_CONF");
    const char *expandable = ebb_trace_reader_note(s->reader, "allocator.expandable_segments");
    const char *split = ebb_trace_reader_note(s->reader, "allocator.max_split_size");
    const char *gc = ebb_trace_reader_note(s->reader, "allocator.garbage_collection_threshold"), *end = NULL;
    if (conf == NULL && expandable == NULL && split == NULL && gc == NULL) { return false; }
    if (conf != NULL) {
        const char *split_mb = value_in(conf, "max_split_size_mb"),
                   *threshold = value_in(conf, "garbage_collection_threshold");
        const char *roundup = value_in(conf, "roundup_power2_divisions");
        c->expandable_segments = is_true(value_in(conf, "expandable_segments"));
        if (split_mb != NULL) { c->max_split_bytes = (strtoull(split_mb, NULL, 10) & 0xFFFFFFFF) * MIB; }
        if (threshold != NULL) { c->gc_threshold = ebb__parse_f64(threshold, &end); }
        if (roundup != NULL) { read_roundup(roundup, c->roundup_power2); }
    }
    if (expandable != NULL) { c->expandable_segments = is_true(expandable); }
    if (split != NULL && split[0] != '-') { c->max_split_bytes = strtoull(split, NULL, 10); }
    if (gc != NULL) { c->gc_threshold = ebb__parse_f64(gc, &end); }
    if (c->max_split_bytes >= (uint64_t)1 << 60) { c->max_split_bytes = 0; } /* PyTorch's way to say none */
    return true;
}

static ebb_caching_settings defaults_of(const ebb_study *s) {
    return (ebb_caching_settings){.capacity_bytes = s->options.capacity_bytes};
}

/* Whether the recorded allocator may give back a part of what it keeps free. */
static bool releases_parts(const ebb_study *s) {
    ebb_caching_settings c = defaults_of(s);
    return read_settings(s, &c) && !c.expandable_segments && (c.gc_threshold > 0 || c.max_split_bytes != 0);
}

static bool is_own(const study_release *release, bool knows_parts) {
    return knows_parts && release->is_part;
}

/* ---- PyTorch's allocator ---------------------------------------------------------------------- */

typedef struct replay {
    ebb_study *study;
    ebb_caching *caching;
    uint32_t *handle; /* [blocks.n]: in caching */
    size_t next_release;
    bool knows_parts; /* what is released in parts is its own doing */
    bool is_recorded; /* with the recorded settings */
} replay;

static uint64_t stream_of(const study_block *block) {
    return (uint64_t)block->space << 8 | block->row;
}

/* The recorded allocator gave segments back before this entry of the log. */
static ebb_status release_until(replay *r, uint32_t entry) {
    const ebb_study *s = r->study;
    const study_block *block = &s->blocks.data[entry >> 1];
    const bool is_request = (entry & 1u) == 0;
    const uint32_t event = study_log_event(s, entry);
    for (; r->next_release < s->releases.n && s->releases.data[r->next_release].event < event; r->next_release++) {
        const study_release *release = &s->releases.data[r->next_release];
        if (!is_own(release, r->knows_parts)) {
            EBB_TRY(ebb__caching_empty(r->caching));
        } else if (r->is_recorded && is_request) {
            EBB_TRY(ebb__caching_release(r->caching, release->bytes, block->size_bytes, stream_of(block)));
        }
    }
    return EBB_OK;
}

static ebb_status pass_log(replay *r) {
    const ebb_study *s = r->study;
    for (size_t i = 0; i < s->log.n; i++) {
        const uint32_t entry = s->log.data[i], b = entry >> 1;
        const study_block *block = &s->blocks.data[b];
        EBB_TRY(release_until(r, entry));
        if ((entry & 1u) != 0) {
            ebb__caching_give(r->caching, r->handle[b]);
        } else {
            EBB_TRY(ebb__caching_take(r->caching, block->size_bytes, stream_of(block), &r->handle[b]));
        }
    }
    return EBB_OK;
}

static ebb_status reserve(ebb_study *s, const ebb_caching_settings *settings, bool is_recorded, uint64_t *bytes_out) {
    replay r = {.study = s,
                .handle = ebb__alloc(s->mem, s->blocks.n, sizeof *r.handle),
                .knows_parts = releases_parts(s),
                .is_recorded = is_recorded};
    ebb_status st = r.handle != NULL ? ebb__caching_create(s->mem, settings, &r.caching) : EBB_E_NO_MEMORY;
    if (st == EBB_OK) { st = pass_log(&r); }
    if (st == EBB_OK) { (void)ebb__caching_reserved(r.caching, bytes_out); }
    ebb__caching_destroy(r.caching);
    ebb__free(s->mem, r.handle);
    return forgive(st, bytes_out);
}

/* What a row of PyTorch's allocator is of; other settings are told beside it. */
static const char *allocator_of(const char *key) {
    if (strcmp(key, RECORDED) == 0) { return "PyTorch's caching allocator with the recorded settings"; }
    return strcmp(key, "pytorch") == 0 ? "PyTorch's caching allocator with its defaults"
                                       : "PyTorch's caching allocator";
}

static ebb_status add_pytorch_row(ebb_study *s, const char *key, const char *setting, uint64_t bytes) {
    const ebb_study_what_if row = {
        .key = key, .about = allocator_of(key), .setting = setting, .bytes = bytes, .is_reserved = true};
    return add_row(s, &row);
}

static ebb_status add_pytorch(ebb_study *s, const char *key, const char *setting,
                              const ebb_caching_settings *settings) {
    uint64_t bytes = EBB_STUDY_UNKNOWN;
    EBB_TRY(reserve(s, settings, strcmp(key, RECORDED) == 0, &bytes));
    return add_pytorch_row(s, key, setting, bytes);
}

static uint64_t largest_block(const ebb_study *s) {
    uint64_t largest_bytes = 0;
    for (size_t b = 0; b < s->blocks.n; b++) {
        largest_bytes = ebb_max_u64(largest_bytes, s->blocks.data[b].size_bytes);
    }
    return largest_bytes;
}

static ebb_status add_settings(ebb_study *s) {
    static const uint64_t splits_mb[] = {64, 128, 256, 512};
    static const uint32_t divisions[] = {4, 8};
    char key[80], setting[64];
    ebb_caching_settings c = defaults_of(s);
    EBB_TRY(add_pytorch(s, "pytorch", "", &c));
    const uint64_t default_bytes = s->what_ifs.data[s->what_ifs.n - 1].bytes, largest_bytes = largest_block(s);
    if (study_speaker_of(s) != SPEAKER_PYTORCH) { return EBB_OK; }
    c.expandable_segments = true;
    EBB_TRY(add_pytorch(s, "pytorch:expandable_segments", "expandable_segments:True", &c));
    for (size_t i = 0; i < sizeof splits_mb / sizeof *splits_mb; i++) {
        c = defaults_of(s);
        c.max_split_bytes = splits_mb[i] * MIB;
        (void)snprintf(setting, sizeof setting, "max_split_size_mb:%" PRIu64, splits_mb[i]);
        (void)snprintf(key, sizeof key, "pytorch:%s", setting);
        EBB_TRY(ebb__caching_max_split_matters(&c, largest_bytes) ? add_pytorch(s, key, setting, &c)
                                                                  : add_pytorch_row(s, key, setting, default_bytes));
    }
    for (size_t i = 0; i < sizeof divisions / sizeof *divisions; i++) {
        c = defaults_of(s);
        for (size_t k = 0; k < EBB_CACHING_N_ROUNDUPS; k++) { c.roundup_power2[k] = divisions[i]; }
        (void)snprintf(setting, sizeof setting, "roundup_power2_divisions:%" PRIu32, divisions[i]);
        (void)snprintf(key, sizeof key, "pytorch:%s", setting);
        EBB_TRY(add_pytorch(s, key, setting, &c));
    }
    if (s->options.capacity_bytes == 0) { return EBB_OK; } /* without one it collects nothing */
    c = defaults_of(s);
    c.gc_threshold = 0.8;
    return add_pytorch(s, "pytorch:garbage_collection_threshold:0.8", "garbage_collection_threshold:0.8", &c);
}

/* ---- the recorded settings --------------------------------------------------------------------- */

static ebb_status add_recorded(ebb_study *s) {
    ebb_caching_settings c = defaults_of(s);
    const char *conf = ebb_trace_reader_note(s->reader, "allocator.PYTORCH_CUDA_ALLOC_CONF");
    if (!read_settings(s, &c)) { return EBB_OK; }
    return add_pytorch(s, RECORDED, conf != NULL ? conf : "", &c);
}

/* ---- how far a replay is off ------------------------------------------------------------------ */

static const ebb_study_what_if *find_checked(const ebb_study *s) {
    const ebb_study_what_if *found = NULL;
    for (size_t i = 0; i < s->what_ifs.n; i++) {
        const ebb_study_what_if *row = &s->what_ifs.data[i];
        if (strcmp(row->key, RECORDED) == 0) { return row; }
        if (strcmp(row->key, "pytorch") == 0) { found = row; }
    }
    return found;
}

/* Let a row of PyTorch's allocator say this of its replay. */
static ebb_status say_of_replay(ebb_study *s, ebb_study_what_if *row, const char *what) {
    row->about = ebb__bump_printf(&s->bump, "%s, replayed; %s", allocator_of(row->key), what);
    return row->about != NULL ? EBB_OK : EBB_E_NO_MEMORY;
}

/* What all rows of this allocator say; NULL: no memory. error: of the bytes that were reserved, where that is known. */
static const char *replay_about(ebb_study *s, const double *error) {
    if (error != NULL) {
        return ebb__bump_printf(&s->bump, "not to be relied on here: %+.1f %% from what was reserved", 100 * *error);
    }
    const bool has_any = s->summary.reserved_peak_bytes != EBB_STUDY_UNKNOWN && s->summary.reserved_peak_bytes != 0;
    return has_any ? "error unknown: the recording does not tell all segments"
                   : "error unknown: the recording tells no segments";
}

static bool has_own_releases(const ebb_study *s) {
    const bool knows_parts = releases_parts(s);
    for (size_t i = 0; i < s->releases.n; i++) {
        if (is_own(&s->releases.data[i], knows_parts)) { return true; }
    }
    return false;
}

/* Other settings than the recorded ones, where the recorded allocator gave back a part of what it kept. */
static ebb_status mark_others(ebb_study *s) {
    if (!has_own_releases(s)) { return EBB_OK; }
    for (size_t i = 0; i < s->what_ifs.n; i++) {
        ebb_study_what_if *row = &s->what_ifs.data[i];
        if (!study_begins_with(row->key, "pytorch") || strcmp(row->key, RECORDED) == 0) { continue; }
        EBB_TRY(say_of_replay(s, row,
                              "error unknown: the recorded settings gave back a part of what was free, and these "
                              "settings would do so at other moments"));
    }
    return EBB_OK;
}

/* For a program of PyTorch's, all rows of this allocator say how far they may be off, unless the replay of the recorded
 * settings agrees with what the recording tells to be reserved: they are no better than that one. */
static ebb_status mark_replays(ebb_study *s) {
    const ebb_study_what_if *checked = find_checked(s);
    if (checked == NULL || checked->bytes == EBB_STUDY_UNKNOWN || study_speaker_of(s) != SPEAKER_PYTORCH) {
        return EBB_OK;
    }
    const bool is_told = s->fragmentation.known && study_is_pytorch(s);
    const double recorded = (double)s->summary.reserved_peak_bytes;
    const double error = is_told ? ((double)checked->bytes - recorded) / recorded : 0;
    if (is_told && error <= STUDY_MAX_REPLAY_ERROR && error >= -STUDY_MAX_REPLAY_ERROR) { return EBB_OK; }
    const char *about = replay_about(s, is_told ? &error : NULL);
    if (about == NULL) { return EBB_E_NO_MEMORY; }
    for (size_t i = 0; i < s->what_ifs.n; i++) {
        ebb_study_what_if *row = &s->what_ifs.data[i];
        if (study_begins_with(row->key, "pytorch")) { EBB_TRY(say_of_replay(s, row, about)); }
    }
    return EBB_OK;
}

/* ---- the door --------------------------------------------------------------------------------- */

ebb_status ebb__study_find_what_ifs(ebb_study *s) {
    const bool is_wanted = (s->options.wants & (EBB_STUDY_WHAT_IF | EBB_STUDY_ADVICE)) != 0;
    if (!is_wanted || s->summary.is_moment) { return EBB_OK; }
    ebb_study_what_if live = {.key = "live",
                              .about = "what is live at the peak: nothing that keeps these blocks needs less",
                              .setting = "",
                              .bytes = s->summary.peak_bytes};
    ebb_study_what_if idle = {.key = "nothing-idle",
                              .about = "each block from the step of its first access to that of its last",
                              .setting = ""};
    EBB_TRY(add_row(s, &live));
    EBB_TRY(ebb__study_nothing_idle(s, &idle.bytes));
    EBB_TRY(add_row(s, &idle));
    EBB_TRY(add_placements(s));
    if (study_speaker_of(s) == SPEAKER_HEAP) { return EBB_OK; }
    EBB_TRY(add_driver(s));
    EBB_TRY(ebb__study_find_releases(s));
    EBB_TRY(add_recorded(s));
    EBB_TRY(add_settings(s));
    EBB_TRY(mark_replays(s));
    return mark_others(s);
}

const ebb_study_what_if *ebb_study_what_ifs(const ebb_study *study, size_t *n_out) {
    *n_out = study->what_ifs.n;
    return study->what_ifs.data;
}
