/* SPDX-License-Identifier: Apache-2.0
 *
 * The devices of a trace, and the choice of the one whose events its reader gives.
 *
 * Devices share no memory, so a peak is always of one device. Which there are, and which of
 * them matters, shows at the trace's end only: it is read twice. The processor's spaces (malloc, mmap, cpu) are one
 * device; each other space is one of its own, also where all that was asked for was refused. A space has its name
 * before its first block.
 */
#include "trace/import_priv.h"
#include "trace/trace_priv.h"

#define HOST "cpu"
#define OOM_NOTE "oom."
#define SNAPSHOT "pytorch snapshot" /* whose devices may have no history */

typedef struct scan {
    ebb_trace_reader *reader;
    ebb_trace_devices *d;
    EBB_VEC(uint64_t) live_bytes; /* of each device */
} scan;

void ebb__trace_devices_init(ebb_trace_devices *d, const ebb_mem *mem) {
    *d = (ebb_trace_devices){.mem = mem};
    ebb__bump_init(&d->names, mem);
    ebb__u64_map_init(&d->device_of, mem);
}

void ebb__trace_devices_fini(ebb_trace_devices *d) {
    ebb__u64_map_fini(&d->device_of);
    EBB_VEC_FINI(d->mem, &d->list);
    ebb__bump_fini(&d->names);
    ebb__trace_devices_init(d, d->mem);
}

bool ebb__trace_devices_keep(const ebb_trace_devices *d, uint32_t space) {
    if (d->list.n <= 1) { return true; }
    const uint64_t *device = ebb__u64_map_find(&d->device_of, space);
    return device != NULL && *device == d->chosen;
}

/* ---- what there is ---------------------------------------------------------------------------- */

static const char *name_of(const ebb_trace_reader *reader, uint32_t space) {
    char key[32];
    (void)snprintf(key, sizeof key, "space.%u", space);
    return ebb_trace_reader_note(reader, key);
}

static bool is_host_name(const char *name) {
    return strcmp(name, HOST) == 0 || strcmp(name, "malloc") == 0 || strcmp(name, "mmap") == 0;
}

/* SIZE_MAX: none of this name. */
static size_t find_device(const ebb_trace_devices *d, const char *name) {
    for (size_t i = 0; i < d->list.n; i++) {
        if (strcmp(d->list.data[i].name, name) == 0) { return i; }
    }
    return SIZE_MAX;
}

static ebb_status add_device(scan *s, const char *name, uint32_t space) {
    ebb_trace_devices *d = s->d;
    const char *source = ebb_trace_reader_note(s->reader, "source");
    ebb_trace_device device = {.is_host = name != NULL && strcmp(name, HOST) == 0,
                               .is_named = name != NULL,
                               .is_moment = source != NULL && strcmp(source, SNAPSHOT) == 0};
    device.name = name != NULL ? ebb__bump_strdup(&d->names, name) : ebb__bump_printf(&d->names, "device %u", space);
    if (device.name == NULL) { return EBB_E_NO_MEMORY; }
    EBB_TRY(EBB_PUSH(d->mem, &s->live_bytes, 0));
    return EBB_PUSH(d->mem, &d->list, device);
}

static ebb_status device_at(scan *s, uint32_t space, size_t *device_out) {
    uint64_t *device = NULL;
    bool is_new = false;
    EBB_TRY(ebb__u64_map_add(&s->d->device_of, space, &device, &is_new));
    if (is_new) {
        const char *name = name_of(s->reader, space);
        if (name != NULL && is_host_name(name)) { name = HOST; }
        const size_t known = name != NULL ? find_device(s->d, name) : SIZE_MAX;
        *device = known != SIZE_MAX ? known : s->d->list.n;
        if (known == SIZE_MAX) { EBB_TRY(add_device(s, name, space)); }
    }
    *device_out = (size_t)*device;
    return EBB_OK;
}

static ebb_status take(scan *s, const ebb_trace_event *event) {
    size_t i = 0;
    if (event->kind != EBB_TRACE_ALLOC && event->kind != EBB_TRACE_FREE) { return EBB_OK; }
    EBB_TRY(device_at(s, event->space, &i));
    if (event->kind == EBB_TRACE_FREE || !event->before) { s->d->list.data[i].is_moment = false; }
    if (event->kind == EBB_TRACE_FREE) {
        EBB_ASSERT(s->live_bytes.data[i] >= event->size_bytes);
        s->live_bytes.data[i] -= event->size_bytes;
        return EBB_OK;
    }
    ebb_trace_device *device = &s->d->list.data[i];
    s->live_bytes.data[i] += event->size_bytes;
    device->n_blocks++;
    device->peak_bytes = ebb_max_u64(device->peak_bytes, s->live_bytes.data[i]);
    return EBB_OK;
}

/* What a recorder notes of a space when an allocation failed there, be it the first. */
static ebb_status take_refusals(scan *s) {
    const char *key = NULL;
    for (size_t i = 0; ebb__trace_reader_note_at(s->reader, i, &key) != NULL; i++) {
        uint64_t space = 0;
        size_t device = 0;
        if (strncmp(key, OOM_NOTE, strlen(OOM_NOTE)) != 0) { continue; }
        if (!ebb__parse_u64(key + strlen(OOM_NOTE), &space) || space > UINT32_MAX) { continue; }
        EBB_TRY(device_at(s, (uint32_t)space, &device));
        s->d->list.data[device].is_out_of_memory = true;
    }
    return EBB_OK;
}

static ebb_status look_through(scan *s) {
    for (;;) {
        bool done = false;
        ebb_trace_event event;
        EBB_TRY(ebb_trace_reader_next(s->reader, &event, &done));
        if (done) { break; }
        EBB_TRY(take(s, &event));
    }
    s->d->is_complete = ebb_trace_reader_info(s->reader).complete;
    const char *left_out = ebb_trace_reader_note(s->reader, "left_out"); /* may come last */
    if (left_out != NULL) { s->d->left_out = ebb__bump_strdup(&s->d->names, left_out); }
    if (left_out != NULL && s->d->left_out == NULL) { return EBB_E_NO_MEMORY; }
    return take_refusals(s);
}

/* ---- the choice ------------------------------------------------------------------------------- */

/* One that ran out of memory, then an accelerator, then the higher peak. */
static bool is_before(const ebb_trace_device *a, const ebb_trace_device *b) {
    if (a->is_out_of_memory != b->is_out_of_memory) { return a->is_out_of_memory; }
    if (a->is_host != b->is_host) { return b->is_host; }
    return a->peak_bytes > b->peak_bytes;
}

static size_t first_of(const ebb_trace_devices *d) {
    size_t first = 0;
    for (size_t i = 1; i < d->list.n; i++) {
        if (is_before(&d->list.data[i], &d->list.data[first])) { first = i; }
    }
    return first;
}

/* Whether text is the number in the name of an accelerator: 1 of cuda:1 and of device 1. */
static bool is_number_of(const ebb_trace_device *device, const char *text) {
    const char *digits = device->name + strlen(device->name);
    while (digits > device->name && digits[-1] >= '0' && digits[-1] <= '9') { digits--; }
    const bool is_number = digits > device->name && (digits[-1] == ':' || !device->is_named);
    const char *colon = strrchr(text, ':');
    if (!device->is_named && colon != NULL) { text = colon + 1; } /* cuda:1 may be device 1 */
    return is_number && !device->is_host && strcmp(digits, text) == 0;
}

static ebb_status refuse(const ebb_trace_reader *reader, const ebb_trace_devices *d, const char *wanted) {
    char names[256] = "none";
    for (size_t i = 0, n = 0; i < d->list.n && n < sizeof names; i++) {
        n += (size_t)snprintf(names + n, sizeof names - n, "%s%s", i > 0 ? ", " : "", d->list.data[i].name);
    }
    const char *others = d->left_out;
    return ebb_fail(EBB_E_ARGUMENT, "%s: has no device %s; it has: %s%s%s", ebb__trace_reader_path(reader), wanted,
                    names, others != NULL ? ", " : "", others != NULL ? others : "");
}

static ebb_status choose(const ebb_trace_reader *reader, ebb_trace_devices *d, const char *wanted) {
    d->chosen = first_of(d);
    if (wanted == NULL || d->list.n == 0) { return EBB_OK; }
    d->chosen = find_device(d, is_host_name(wanted) ? HOST : wanted);
    for (size_t i = 0; i < d->list.n && d->chosen == SIZE_MAX; i++) {
        if (is_number_of(&d->list.data[i], wanted)) { d->chosen = i; }
    }
    return d->chosen != SIZE_MAX ? EBB_OK : refuse(reader, d, wanted);
}

ebb_status ebb_trace_reader_choose(ebb_trace_reader *reader, const char *device) {
    EBB_NEED(reader);
    scan s = {.reader = reader, .d = ebb__trace_reader_devices(reader)};
    ebb_trace_devices found;
    ebb__trace_devices_fini(s.d);
    ebb__trace_devices_init(&found, s.d->mem);
    s.d = &found; /* the reader's own stay empty meanwhile, and keep all */
    ebb_status st = ebb__trace_reader_rewind(reader);
    if (st == EBB_OK) { st = look_through(&s); }
    if (st == EBB_OK) { st = choose(reader, &found, device); }
    if (st == EBB_OK) { st = ebb__trace_reader_rewind(reader); }
    EBB_VEC_FINI(found.mem, &s.live_bytes);
    if (st != EBB_OK) {
        ebb__trace_devices_fini(&found);
        return st;
    }
    *ebb__trace_reader_devices(reader) = found;
    return EBB_OK;
}

const ebb_trace_device *ebb_trace_reader_devices(ebb_trace_reader *reader, size_t *n_out, size_t *chosen_out) {
    const ebb_trace_devices *d = ebb__trace_reader_devices(reader);
    *n_out = d->list.n;
    *chosen_out = d->chosen;
    return d->list.data;
}

const char *ebb_trace_reader_left_out(const ebb_trace_reader *reader) {
    return ebb__trace_reader_found(reader)->left_out;
}
