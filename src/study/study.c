/* SPDX-License-Identifier: Apache-2.0
 *
 * A study is made in one go, part by part, and then only looked at.
 */
#include "study/study_priv.h"

#include <inttypes.h>

/* ---- making one ------------------------------------------------------------------------------- */

static ebb_status check_options(const ebb_study_options *o) {
    if (o->size_bytes != sizeof *o) { return ebb_fail(EBB_E_ARGUMENT, "options of another version of ebb"); }
    if (!(o->out_bytes_per_s > 0) || !(o->in_bytes_per_s > 0)) {
        return ebb_fail(EBB_E_ARGUMENT, "a study needs bandwidths above 0");
    }
    return EBB_OK;
}

/* The note as a number of bytes; UNKNOWN if none exists, or another text. */
static uint64_t number_note(const ebb_study *s, const char *key) {
    const char *text = ebb_trace_reader_note(s->reader, key);
    if (text == NULL || text[0] == '\0' || strspn(text, "0123456789") != strlen(text)) { return EBB_STUDY_UNKNOWN; }
    uint64_t number = 0;
    for (; *text != '\0'; text++) {
        if (!ebb_mul_u64(number, 10, &number) || !ebb_add_u64(number, (uint64_t)(*text - '0'), &number)) {
            return EBB_STUDY_UNKNOWN;
        }
    }
    return number;
}

static void read_notes(ebb_study *s) {
    const char *source = ebb_trace_reader_note(s->reader, "source");
    s->summary.source = source != NULL ? source : "";
    s->summary.is_moment = s->summary.is_moment && strcmp(s->summary.source, "pytorch snapshot") == 0;
    s->summary.stated_allocated_bytes = number_note(s, "stated.allocated_bytes");
    s->summary.stated_reserved_bytes = number_note(s, "stated.reserved_bytes");
}

static ebb_status make_parts(ebb_study *s) {
    EBB_TRY(ebb__study_collect(s));
    read_notes(s);
    EBB_TRY(ebb__study_infer_roles(s));
    ebb__study_find_peak(s);
    ebb__study_break_down(s);
    ebb__study_find_churn(s);
    EBB_TRY(ebb__study_find_classes(s));
    EBB_TRY(ebb__study_find_holders(s));
    EBB_TRY(ebb__study_name_refusals(s));
    EBB_TRY(ebb__study_find_intervals(s));
    EBB_TRY(ebb__study_find_swappable(s));
    EBB_TRY(ebb__study_find_fragmentation(s));
    EBB_TRY(ebb__study_find_what_ifs(s));
    return ebb__study_advise(s);
}

ebb_status ebb_study_create(ebb_trace_reader *reader, const ebb_study_options *options, ebb_study **study_out) {
    EBB_NEED(reader);
    EBB_NEED(study_out);
    const ebb_study_options defaults = EBB_STUDY_OPTIONS_INIT;
    if (options == NULL) { options = &defaults; }
    EBB_TRY(check_options(options));
    const ebb_mem *mem = ebb__mem_or_default(options->mem);
    ebb_study *s = ebb__calloc(mem, 1, sizeof *s);
    if (s == NULL) { return EBB_E_NO_MEMORY; }
    s->mem = mem;
    s->options = *options;
    s->reader = reader;
    ebb__bump_init(&s->bump, mem);
    ebb__trace_keys_init(&s->class_keys, mem);
    const ebb_status st = make_parts(s);
    if (st != EBB_OK) {
        ebb_study_destroy(s);
        return st;
    }
    *study_out = s;
    return EBB_OK;
}

void ebb_study_destroy(ebb_study *s) {
    if (s == NULL) { return; }
    for (size_t g = 0; g < EBB_STUDY_N_GROUPS; g++) { EBB_VEC_FINI(s->mem, &s->holders[g]); }
    EBB_VEC_FINI(s->mem, &s->classes);
    ebb__trace_keys_fini(&s->class_keys);
    EBB_VEC_FINI(s->mem, &s->tips);
    EBB_VEC_FINI(s->mem, &s->refusals);
    EBB_VEC_FINI(s->mem, &s->what_ifs);
    EBB_VEC_FINI(s->mem, &s->pinners);
    EBB_VEC_FINI(s->mem, &s->pins);
    EBB_VEC_FINI(s->mem, &s->first_pin);
    EBB_VEC_FINI(s->mem, &s->segment_rows);
    EBB_VEC_FINI(s->mem, &s->outliers);
    EBB_VEC_FINI(s->mem, &s->density);
    ebb__free(s->mem, s->pair_ns);
    ebb__free(s->mem, s->sorted_ns);
    ebb__free(s->mem, s->site_of);
    EBB_VEC_FINI(s->mem, &s->parts);
    EBB_VEC_FINI(s->mem, &s->releases);
    EBB_VEC_FINI(s->mem, &s->born_segments);
    EBB_VEC_FINI(s->mem, &s->segment_log);
    EBB_VEC_FINI(s->mem, &s->segments);
    EBB_VEC_FINI(s->mem, &s->steps);
    ebb__free(s->mem, s->by_block);
    EBB_VEC_FINI(s->mem, &s->accesses);
    EBB_VEC_FINI(s->mem, &s->log);
    EBB_VEC_FINI(s->mem, &s->blocks);
    ebb__bump_fini(&s->bump);
    ebb__free(s->mem, s);
}

ebb_study_summary ebb_study_get_summary(const ebb_study *study) {
    return study->summary;
}

/* ---- the iteration ---------------------------------------------------------------------------- */

ebb_status ebb__study_take_parts(ebb_study *s, ebb_iteration_finder *finder) {
    EBB_TRY(ebb_iteration_finder_find(finder, &s->iteration));
    size_t n = 0;
    const ebb_iteration_part *parts = ebb_iteration_finder_parts(finder, &n);
    EBB_TRY(EBB_RESERVE(s->mem, &s->parts, n));
    s->usual_part = SIZE_MAX;
    for (size_t i = 0; i < n; i++) {
        s->parts.data[s->parts.n++] = parts[i];
        if (parts[i].kind != EBB_ITERATION_PART_ITERATION) { continue; }
        if (s->usual_part == SIZE_MAX || parts[i].regularity > s->parts.data[s->usual_part].regularity) {
            s->usual_part = i;
        }
    }
    return EBB_OK;
}

ebb_iteration ebb_study_get_iteration(const ebb_study *study) {
    return study->iteration;
}

const ebb_iteration_part *ebb_study_iteration_parts(const ebb_study *study, size_t *n_out) {
    *n_out = study->parts.n;
    return study->parts.data;
}

/* ---- blocks and steps ------------------------------------------------------------------------- */

static uint64_t event_or_unknown(uint32_t event) {
    return event == STUDY_NONE ? EBB_STUDY_UNKNOWN : event;
}

ebb_study_block ebb_study_get_block(const ebb_study *study, uint64_t block) {
    EBB_ASSERT(block < study->blocks.n);
    const study_block *b = &study->blocks.data[block];
    return (ebb_study_block){.size_bytes = b->size_bytes,
                             .address = b->address,
                             .born_ns = b->born_ns,
                             .born_event = b->born_event,
                             .died_ns = b->died_ns,
                             .died_event = event_or_unknown(b->died_event),
                             .n_reads = b->n_reads,
                             .n_writes = b->n_writes,
                             .n_copies = b->n_copies,
                             .longest_idle_ns = b->longest_idle_ns,
                             .name = ebb_trace_reader_string(study->reader, b->name),
                             .stack = b->stack,
                             .space = b->space,
                             .row = b->row,
                             .role = (ebb_role)b->likely_role,
                             .use = (ebb_study_use)b->use,
                             .before = b->before,
                             .live_at_peak = b->live_at_peak};
}

size_t ebb_study_block_accesses(const ebb_study *study, uint64_t block, size_t first, size_t n,
                                ebb_study_access *accesses_out) {
    EBB_ASSERT(block < study->blocks.n);
    const size_t begin = study_first_access(study, (size_t)block), end = study_first_access(study, (size_t)block + 1);
    size_t n_given = 0;
    for (; n_given < n && first < end - begin; n_given++, first++) {
        const study_access *a = &study->accesses.data[study->by_block[begin + first]];
        const uint32_t step = study_step_of(a);
        accesses_out[n_given] = (ebb_study_access){.time_ns = a->time_ns,
                                                   .step = step == STUDY_NO_STEP ? EBB_TRACE_NONE : step,
                                                   .kind = study_kind_of(study_touch_of(a))};
    }
    return n_given;
}

ebb_study_step ebb_study_get_step(const ebb_study *study, uint64_t step) {
    EBB_ASSERT(step < study->steps.n);
    const study_step *s = &study->steps.data[step];
    return (ebb_study_step){.name = ebb_trace_reader_string(study->reader, s->name),
                            .op = ebb_trace_reader_string(study->reader, s->op),
                            .phase = s->phase,
                            .row = s->row,
                            .index = s->index,
                            .begin_ns = s->begin_ns,
                            .end_ns = s->end_ns,
                            .begin_event = s->begin_event,
                            .end_event = event_or_unknown(s->end_event)};
}

/* ---- words ------------------------------------------------------------------------------------ */

const char *ebb_study_kind_name(ebb_study_kind kind) {
    static const char *const names[] = {"alloc", "write", "read", "copy", "free", "any"};
    return names[(unsigned)kind < EBB_STUDY_N_KINDS ? kind : EBB_STUDY_ANY];
}

const char *ebb_study_use_name(ebb_study_use use) {
    static const char *const names[] = {"input", "parameter", "intermediate", "unknown"};
    return names[(unsigned)use < EBB_STUDY_N_USES ? use : EBB_STUDY_USE_UNKNOWN];
}

char *ebb_study_stack_text(const ebb_study *study, uint32_t stack, char *buf, size_t buf_bytes) {
    size_t n = 0;
    if (buf_bytes > 0) { buf[0] = '\0'; }
    while (stack != 0 && n < buf_bytes) {
        const ebb_trace_frame f = ebb_trace_reader_frame(study->reader, stack);
        char line[16] = "";
        if (f.line != 0) { snprintf(line, sizeof line, ":%" PRIu32, f.line); }
        const int more = snprintf(buf + n, buf_bytes - n, "%s%s (%s%s)", n > 0 ? "\n" : "",
                                  ebb_trace_reader_string(study->reader, f.function),
                                  ebb_trace_reader_string(study->reader, f.file), line);
        if (more < 0 || (size_t)more >= buf_bytes - n) {
            buf[n] = '\0';
            break;
        }
        n += (size_t)more;
        stack = f.caller;
    }
    return buf;
}
