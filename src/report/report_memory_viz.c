/* SPDX-License-Identifier: Apache-2.0
 *
 * What PyTorch's memory viewer reads (pytorch.org/memory_viz, torch/cuda/_memory_viz.py): a snapshot, as a pickle of
 * protocol 4 with the opcodes that the viewer knows.
 *
 * The recording is read once to learn its devices and what blocks turn out to be for, and once more for each device.
 * A block's free is requested and complete at once. Blocks that were there before are in the segments if they are at
 * the end, and else the viewer sees them by their free. Reads, writes, steps and copies have no place in a snapshot.
 * Where a source tells no addresses, each block gets one that no other has.
 */
#include "report/report_viz.h"

#include "trace/trace.h"

#include <inttypes.h>
#include <stdlib.h>

/* ---- the first pass --------------------------------------------------------------------------- */

/* A space below VIZ_MAX_SPACES keeps its number, others take what is free. */
static ebb_status note_space(viz *v, uint32_t space) {
    size_t free_idx = VIZ_MAX_SPACES;
    for (size_t i = 0; i < v->n_devices; i++) {
        if (v->device[i].is_used && v->device[i].space == space) { return EBB_OK; }
        if (!v->device[i].is_used) { free_idx = i; }
    }
    if (space < VIZ_MAX_SPACES && !v->device[space].is_used) { free_idx = space; }
    if (free_idx == VIZ_MAX_SPACES) { free_idx = v->n_devices; }
    if (free_idx == VIZ_MAX_SPACES) {
        return ebb_fail(EBB_E_UNSUPPORTED, "%s: more than %u devices, too many for PyTorch's viewer", v->report->path,
                        VIZ_MAX_SPACES);
    }
    v->device[free_idx].is_used = true;
    v->device[free_idx].space = space;
    v->n_devices = free_idx >= v->n_devices ? free_idx + 1 : v->n_devices;
    return EBB_OK;
}

static ebb_status note_mark(viz *v, const ebb_trace_event *event) {
    viz_mark mark = {.time_ns = event->time_ns};
    const char *name = ebb_trace_reader_string(v->reader, event->name);
    if (event->mark == EBB_TRACE_ANNOTATION) {
        mark.is_end = strncmp(name, EBB_TRACE_END_PREFIX, sizeof EBB_TRACE_END_PREFIX - 1) == 0;
        mark.name = ebb__bump_strdup(&v->bump, mark.is_end ? name + sizeof EBB_TRACE_END_PREFIX - 1 : name);
    } else { /* as PyTorch's profiler calls an iteration */
        mark.is_end = event->mark == EBB_TRACE_ITERATION_END;
        mark.name = ebb__bump_printf(&v->bump, "ProfilerStep#%" PRIu64, event->number);
    }
    return mark.name == NULL ? EBB_E_NO_MEMORY : EBB_PUSH(v->mem, &v->marks, mark);
}

static ebb_status look(viz *v, const ebb_trace_event *event) {
    switch (event->kind) {
    case EBB_TRACE_ALLOC:
        EBB_TRY(note_space(v, event->space));
        return EBB_PUSH(v->mem, &v->role_of, (uint8_t)event->role);
    case EBB_TRACE_LABEL:
        EBB_ASSERT(event->block < v->role_of.n);
        v->role_of.data[event->block] = (uint8_t)event->role;
        return EBB_OK;
    case EBB_TRACE_SEGMENT_ALLOC: return note_space(v, event->space);
    case EBB_TRACE_MARK: return note_mark(v, event);
    default: return EBB_OK;
    }
}

/* ---- events ----------------------------------------------------------------------------------- */

static uint64_t to_us(const viz *v, uint64_t time_ns) {
    return v->info.start_unix_ns / 1000 + time_ns / 1000;
}

/* Where the recording still grows, a block may not have been there in the first pass. */
static ebb_role final_role(const viz *v, const ebb_trace_event *alloc) {
    return alloc->block < v->role_of.n ? (ebb_role)v->role_of.data[alloc->block] : alloc->role;
}

static ebb_status put_event(viz *v, viz_word action, uint64_t address, const ebb_trace_event *event) {
    ebb__report_viz_next(v);
    ebb__report_viz_open_dict(v);
    ebb__report_viz_pair(v, WORD_ACTION, action);
    ebb__report_viz_number(v, WORD_ADDR, address);
    ebb__report_viz_number(v, WORD_SIZE, event->size_bytes);
    ebb__report_viz_number(v, WORD_STREAM, v->stream_of[event->row]);
    if ((v->info.tells & EBB_TRACE_TELLS_TIMES) != 0) {
        ebb__report_viz_number(v, WORD_TIME_US, to_us(v, event->time_ns));
    }
    if (event->kind == EBB_TRACE_ALLOC && event->name != 0) {
        ebb__report_viz_word(v, WORD_USER_METADATA);
        EBB_TRY(ebb__report_viz_string(v, event->name));
    }
    if (event->kind == EBB_TRACE_ALLOC && (v->info.tells & EBB_TRACE_TELLS_ROLES) != 0) {
        const ebb_role role = final_role(v, event);
        ebb__report_viz_word(v, WORD_CATEGORY);
        ebb__report_pickle_again(&v->pickle, ebb_role_name(role), &v->role_word_of[role]);
    }
    EBB_TRY(ebb__report_viz_frames(v, event->stack));
    ebb__report_viz_close_dict(v);
    return EBB_OK;
}

static ebb_status tell_alloc(viz *v, const ebb_trace_event *event) {
    viz_block b = {event->block, event->address, event->size_bytes, event->stack, event->row};
    if (b.address == EBB_TRACE_NONE) {
        b.address = v->d->next_address;
        v->d->next_address += ebb_align_up(ebb_min_u64(b.size_bytes, (uint64_t)1 << 50) + 1, VIZ_BLOCK_ALIGN);
    }
    uint64_t *idx = NULL;
    bool is_new = false;
    EBB_TRY(ebb__u64_map_add(&v->d->live_of, b.block, &idx, &is_new));
    *idx = v->d->live.n;
    EBB_TRY(EBB_PUSH(v->mem, &v->d->live, b));
    v->d->live_bytes += b.size_bytes;
    v->d->peak_bytes = ebb_max_u64(v->d->peak_bytes, v->d->live_bytes);
    if (b.size_bytes <= UINT64_MAX - b.address) {
        v->d->first_address = ebb_min_u64(v->d->first_address, b.address);
        v->d->last_address = ebb_max_u64(v->d->last_address, b.address + b.size_bytes);
    }
    return event->before ? EBB_OK : put_event(v, WORD_ALLOC, b.address, event);
}

static ebb_status tell_free(viz *v, const ebb_trace_event *event) {
    const uint64_t *found = ebb__u64_map_find(&v->d->live_of, event->block);
    EBB_ASSERT(found != NULL); /* the reader frees what is live */
    const size_t idx = (size_t)*found;
    EBB_ASSERT(idx < v->d->live.n && v->d->live.data[idx].block == event->block);
    const uint64_t address = v->d->live.data[idx].address;
    EBB_ASSERT(v->d->live_bytes >= v->d->live.data[idx].size_bytes);
    v->d->live_bytes -= v->d->live.data[idx].size_bytes;
    ebb_trace_event end = *event;
    end.row = v->d->live.data[idx].row;
    v->d->live.data[idx] = v->d->live.data[--v->d->live.n];
    if (idx < v->d->live.n) { *ebb__u64_map_find(&v->d->live_of, v->d->live.data[idx].block) = idx; }
    ebb__u64_map_remove(&v->d->live_of, event->block);
    EBB_TRY(put_event(v, WORD_FREE_REQUESTED, address, &end));
    return put_event(v, WORD_FREE_COMPLETED, address, &end);
}

static ebb_status tell_segment(viz *v, const ebb_trace_event *event) {
    if (event->kind == EBB_TRACE_SEGMENT_ALLOC) {
        const ebb_range range = {event->address, event->size_bytes, event->stack};
        EBB_TRY(ebb__ranges_add(&v->d->held, &range, NULL, NULL));
        return put_event(v, WORD_SEGMENT_ALLOC, event->address, event);
    }
    const ebb_range *found = ebb__ranges_find(&v->d->held, event->address);
    if (found == NULL) { return EBB_OK; }
    const ebb_range range = *found;
    ebb_trace_event whole = *event;
    whole.size_bytes = range.size_bytes;
    EBB_TRY(ebb__ranges_remove(&v->d->held, &range, NULL, NULL));
    return put_event(v, WORD_SEGMENT_FREE, event->address, &whole);
}

static ebb_status tell(viz *v, const ebb_trace_event *event) {
    switch (event->kind) {
    case EBB_TRACE_ALLOC: return tell_alloc(v, event);
    case EBB_TRACE_FREE: return tell_free(v, event);
    case EBB_TRACE_SEGMENT_ALLOC:
    case EBB_TRACE_SEGMENT_FREE: return tell_segment(v, event);
    default: return EBB_OK;
    }
}

/* Read the recording once; without a device it is looked at, with one its events are written. */
static ebb_status pass(viz *v) {
    ebb_trace_reader_close(v->reader);
    v->reader = NULL;
    const ebb_report *r = v->report;
    EBB_TRY(r->device != NULL ? ebb__report_open(r, &v->reader)
                              : ebb_trace_open_any(v->mem, r->path, r->temp_dir, &v->reader));
    for (;;) {
        bool done = false;
        ebb_trace_event event;
        EBB_TRY(ebb_trace_reader_next(v->reader, &event, &done));
        if (done) { break; }
        if (v->d == NULL) {
            EBB_TRY(look(v, &event));
        } else if (event.space == v->d->space) {
            EBB_TRY(tell(v, &event));
        }
        EBB_TRY(v->pickle.out->status);
    }
    v->info = ebb_trace_reader_info(v->reader);
    return EBB_OK;
}

/* ---- the whole -------------------------------------------------------------------------------- */

/* A setting as what it looks like: a whole number, a truth value, a text. */
static void put_setting(viz *v, const char *key) {
    char note[64];
    (void)snprintf(note, sizeof note, "allocator.%s", key);
    const char *value = ebb_trace_reader_note(v->reader, note);
    if (value == NULL) { return; }
    ebb__report_pickle_text(&v->pickle, key);
    const bool is_number = value[0] != '\0' && strlen(value) < 19 && strspn(value, "0123456789") == strlen(value);
    if (is_number) {
        ebb__report_pickle_u64(&v->pickle, strtoull(value, NULL, 10));
    } else if (strcmp(value, "true") == 0 || strcmp(value, "false") == 0) {
        ebb__report_pickle_op(&v->pickle, value[0] == 't' ? 0x88 : 0x89);
    } else if (strcmp(value, "-1") == 0) {
        ebb__report_pickle_minus_one(&v->pickle);
    } else {
        ebb__report_pickle_text(&v->pickle, value);
    }
}

static void put_settings(viz *v) {
    static const char *const keys[] = {"PYTORCH_CUDA_ALLOC_CONF", "max_split_size", "expandable_segments",
                                       "garbage_collection_threshold", "roundup_power2_divisions"};
    ebb__report_viz_word(v, WORD_ALLOCATOR_SETTINGS);
    ebb__report_viz_open_dict(v);
    for (size_t i = 0; i < sizeof keys / sizeof keys[0]; i++) { put_setting(v, keys[i]); }
    ebb__report_viz_close_dict(v);
}

/* Marks are of no device; the first that is used stands for it. */
static void put_annotations(viz *v) {
    uint32_t device = 0;
    while (device + 1 < v->n_devices && !v->device[device].is_used) { device++; }
    ebb__report_viz_word(v, WORD_EXTERNAL_ANNOTATIONS);
    ebb__report_viz_open_list(v);
    for (size_t i = 0; i < v->marks.n; i++) {
        const viz_mark *mark = &v->marks.data[i];
        ebb__report_viz_next(v);
        ebb__report_viz_open_dict(v);
        ebb__report_viz_word(v, WORD_NAME);
        ebb__report_pickle_text(&v->pickle, mark->name);
        ebb__report_viz_pair(v, WORD_STAGE, mark->is_end ? WORD_END : WORD_START);
        ebb__report_viz_number(v, WORD_DEVICE, device);
        ebb__report_viz_number(v, WORD_TIME_US, to_us(v, mark->time_ns));
        ebb__report_viz_close_dict(v);
    }
    ebb__report_viz_close_list(v);
}

static ebb_status put_devices(viz *v) {
    ebb__report_viz_word(v, WORD_DEVICE_TRACES);
    ebb__report_pickle_op(&v->pickle, ']');
    (void)ebb__report_pickle_memoize(&v->pickle);
    for (size_t i = 0; i < v->n_devices; i++) {
        v->d = &v->device[i];
        v->d->next_address = (uint64_t)1 << 40;
        v->d->first_address = UINT64_MAX;
        ebb__u64_map_init(&v->d->live_of, v->mem);
        ebb__ranges_init(&v->d->held, v->mem);
        ebb__report_viz_open_list(v);
        if (v->d->is_used) { EBB_TRY(pass(v)); }
        ebb__report_viz_close_list(v);
        ebb__report_pickle_op(&v->pickle, 'a');
    }
    return EBB_OK;
}

/* The streams that rows stand for; the import of snapshots notes which. */
static void find_streams(viz *v) {
    for (uint32_t row = 0; row < EBB_TRACE_MAX_ROWS; row++) {
        char key[32];
        (void)snprintf(key, sizeof key, "row.%" PRIu32, row);
        const char *note = ebb_trace_reader_note(v->reader, key);
        const bool is_stream = note != NULL && strncmp(note, "stream ", 7) == 0;
        v->stream_of[row] = is_stream ? strtoull(note + 7, NULL, 10) : row;
    }
}

static ebb_status write_all(viz *v) {
    EBB_TRY(pass(v));
    find_streams(v);
    ebb__report_pickle_op(&v->pickle, 0x80);
    ebb__report_pickle_op(&v->pickle, 4);
    ebb__report_viz_open_dict(v);
    EBB_TRY(put_devices(v));
    ebb__report_viz_word(v, WORD_SEGMENTS);
    ebb__report_viz_open_list(v);
    for (size_t i = 0; i < v->n_devices; i++) {
        v->d = &v->device[i];
        if (v->d->is_used) { EBB_TRY(ebb__report_viz_segments(v, (uint32_t)i)); }
    }
    ebb__report_viz_close_list(v);
    put_settings(v);
    put_annotations(v);
    ebb__report_viz_close_dict(v);
    ebb__report_pickle_op(&v->pickle, '.');
    return EBB_OK;
}

ebb_status ebb__report_render_memory_viz(ebb_report *report, ebb_report_out *out) {
    viz *v = ebb__calloc(report->mem, 1, sizeof *v);
    if (v == NULL) { return EBB_E_NO_MEMORY; }
    v->mem = report->mem;
    v->report = report;
    v->pickle.out = out;
    ebb__bump_init(&v->bump, v->mem);
    const ebb_status st = write_all(v);
    for (size_t i = 0; i < v->n_devices; i++) {
        EBB_VEC_FINI(v->mem, &v->device[i].live);
        ebb__u64_map_fini(&v->device[i].live_of);
        ebb__ranges_fini(&v->device[i].held);
    }
    EBB_VEC_FINI(v->mem, &v->marks);
    EBB_VEC_FINI(v->mem, &v->role_of);
    EBB_VEC_FINI(v->mem, &v->string_of);
    EBB_VEC_FINI(v->mem, &v->frame_of);
    EBB_VEC_FINI(v->mem, &v->list_of);
    ebb__bump_fini(&v->bump);
    ebb_trace_reader_close(v->reader);
    ebb__free(v->mem, v);
    return st;
}
