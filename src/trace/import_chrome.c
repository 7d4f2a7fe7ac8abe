/* SPDX-License-Identifier: Apache-2.0
 *
 * Chrome's trace events as torch.profiler writes them, {"traceEvents": [...]} or just the list: instants `[memory]` are
 * allocs and frees, spans of operators and kernels are steps, Python functions call stacks, ProfilerStep#N iterations.
 *
 * Events in the file are not in order of time, so all of them that count are held (some 40 bytes each, of several
 * hundred in the file) and sorted. All but allocs, frees, steps, frames and names of threads is passed over.
 */
#include "trace/chrome.h"

#define MAX_TEXT_BYTES 512u /* of what is kept of a pid and a tid */

static const char *const step_categories[] = {
    "cpu_op", "Operator",   "user_annotation", "gpu_user_annotation", "kernel", "Kernel", "gpu_memcpy",
    "Memcpy", "gpu_memset", "Memset",          "mtia_ccp_events",
};

void ebb__chrome_device_name(const chrome_device *device, char *buf, size_t buf_bytes) {
    static const char *const names[] = {"cpu",  "cuda", "mkldnn", "opengl", "opencl", "ideep", "hip",
                                        "fpga", "maia", "xla",    "vulkan", "metal",  "xpu",   "mps",
                                        "meta", "hpu",  "ve",     "lazy",   "ipu",    "mtia",  "privateuse"};
    const char *name = device->type < sizeof names / sizeof names[0] ? names[device->type] : "device";
    (void)snprintf(buf, buf_bytes, device->type == 0 ? "%s" : "%s:%llu", name, (unsigned long long)device->index);
}

bool ebb__import_is_chrome(const uint8_t *head, size_t n, const char *path) {
    (void)path;
    size_t at = 0;
    while (at < n && strchr(" \t\r\n\xef\xbb\xbf", head[at]) != NULL && head[at] != '\0') { at++; }
    if (at == n || (head[at] != '{' && head[at] != '[')) { return false; }
    if (memmem(head, n, "\"traceEvents\"", 13) != NULL) { return true; }
    return head[at] == '[' && memmem(head, n, "\"ph\"", 4) != NULL && memmem(head, n, "\"name\"", 6) != NULL;
}

/* ---- texts and threads ------------------------------------------------------------------------ */

static ebb_status intern(chrome *c, const char *text, uint32_t *number_out) {
    bool is_new = false;
    return ebb__trace_keys_add(&c->texts, text, strlen(text) + 1, number_out, &is_new);
}

static ebb_status find_thread(chrome *c, const ebb_json_value *json, uint32_t *thread_out) {
    char key[MAX_TEXT_BYTES];
    uint32_t number = 0;
    bool is_new = false;
    const uint32_t pid = ebb__json_value_member(json, 0, "pid"), tid = ebb__json_value_member(json, 0, "tid");
    const int n = snprintf(key, sizeof key, "%s/%s", pid == EBB_JSON_NONE ? "" : ebb__json_value_text(json, pid),
                           tid == EBB_JSON_NONE ? "" : ebb__json_value_text(json, tid));
    const size_t n_key = n < 0 ? 0 : (size_t)ebb_min_u64((uint64_t)n, sizeof key - 1);
    EBB_TRY(ebb__trace_keys_add(&c->thread_keys, key, n_key + 1, &number, &is_new));
    const chrome_thread thread = {0};
    if (is_new) { EBB_TRY(EBB_PUSH(c->importer->mem, &c->threads, thread)); }
    EBB_ASSERT(number > 0 && number <= c->threads.n);
    *thread_out = number - 1;
    return EBB_OK;
}

/* {"ph": "M", "name": "thread_name", "args": {"name": ...}} */
static ebb_status read_metadata(chrome *c, const ebb_json_value *json, const char *name) {
    const char *value = ebb__json_value_string(json, ebb__json_value_member(json, 0, "args"), "name");
    uint32_t thread = 0;
    if (strcmp(name, "thread_name") != 0 || value == NULL) { return EBB_OK; }
    EBB_TRY(find_thread(c, json, &thread));
    return intern(c, value, &c->threads.data[thread].name);
}

/* ---- spans ------------------------------------------------------------------------------------ */

static bool is_step(const char *category) {
    if (category == NULL) { return true; } /* the form without categories has operators alone */
    for (size_t i = 0; i < sizeof step_categories / sizeof step_categories[0]; i++) {
        if (strcmp(category, step_categories[i]) == 0) { return true; }
    }
    return false;
}

static ebb_status read_span(chrome *c, const ebb_json_value *json, const char *name) {
    const char *category = ebb__json_value_string(json, 0, "cat");
    const bool is_frame = category != NULL && strcmp(category, "python_function") == 0;
    chrome_span span = {.kind = is_frame ? CHROME_FRAME : CHROME_STEP};
    uint64_t duration_ns = 0;
    uint32_t thread = 0;
    int64_t sequence = -1;
    if (!is_frame && !is_step(category)) { return EBB_OK; }
    if (!ebb__json_value_thousandths(json, ebb__json_value_member(json, 0, "ts"), &span.begin_ns) ||
        !ebb__json_value_thousandths(json, ebb__json_value_member(json, 0, "dur"), &duration_ns) ||
        !ebb_add_u64(span.begin_ns, duration_ns, &span.end_ns)) {
        c->importer->n_left_out++;
        return EBB_OK;
    }
    if (strncmp(name, "ProfilerStep", 12) == 0) {
        if (category != NULL && strcmp(category, "gpu_user_annotation") == 0) { return EBB_OK; }
        span.kind = CHROME_ITERATION;
    }
    const uint32_t args = ebb__json_value_member(json, 0, "args");
    span.is_forward =
        ebb__json_value_i64(json, ebb__json_value_member(json, args, "Sequence number"), &sequence) && sequence >= 0;
    EBB_TRY(find_thread(c, json, &thread));
    span.thread = thread & 0x7ffffffu;
    c->threads.data[thread].n_steps += span.kind == CHROME_STEP;
    c->any_frame = c->any_frame || is_frame;
    EBB_TRY(intern(c, name, &span.name));
    return EBB_PUSH(c->importer->mem, &c->spans, span);
}

/* ---- points ----------------------------------------------------------------------------------- */

/* false: there are too many. */
static bool find_device(chrome *c, uint64_t type, uint64_t index, size_t *device_out) {
    for (size_t i = 0; i < c->n_devices; i++) {
        *device_out = i;
        if (c->devices[i].type == type && c->devices[i].index == index) { return true; }
    }
    if (c->n_devices == CHROME_MAX_DEVICES) { return false; }
    *device_out = c->n_devices++;
    c->devices[*device_out] = (chrome_device){.type = type, .index = index, .first_ns = UINT64_MAX};
    return true;
}

/* Keep the totals of the earliest and of the latest point of a device; of the file's order among those of one time. */
static void note_totals(chrome_device *d, const ebb_json_value *json, uint32_t args, const chrome_point *p) {
    uint64_t allocated = 0, reserved = 0, before = 0;
    if (!ebb__json_value_u64(json, ebb__json_value_member(json, args, "Total Allocated"), &allocated)) { return; }
    (void)ebb__json_value_u64(json, ebb__json_value_member(json, args, "Total Reserved"), &reserved);
    d->is_unsound = d->is_unsound || (!p->is_free && allocated < p->size_bytes);
    d->tells_totals = !d->is_unsound;
    if (!d->tells_totals) { return; }
    if (p->time_ns < d->first_ns) {
        d->first_ns = p->time_ns;
        d->before_bytes = !p->is_free                                      ? allocated - p->size_bytes
                          : ebb_add_u64(allocated, p->size_bytes, &before) ? before
                                                                           : 0;
    }
    if (p->time_ns >= d->last_ns) {
        d->last_ns = p->time_ns;
        d->allocated_bytes = allocated;
        d->reserved_bytes = reserved;
    }
}

/* Type and index out of a memory event's args. */
static bool read_device(chrome *c, const ebb_json_value *json, uint32_t args, size_t *device_out) {
    uint64_t type = 0;
    int64_t index = 0;
    if (!ebb__json_value_u64(json, ebb__json_value_member(json, args, "Device Type"), &type)) { return false; }
    (void)ebb__json_value_i64(json, ebb__json_value_member(json, args, "Device Id"), &index);
    return find_device(c, type, index < 0 ? 0 : (uint64_t)index, device_out);
}

static ebb_status read_memory(chrome *c, const ebb_json_value *json) {
    const uint32_t args = ebb__json_value_member(json, 0, "args");
    chrome_point p = {0};
    int64_t bytes = 0;
    size_t device = 0;
    c->any_memory = true;
    const bool is_whole = ebb__json_value_thousandths(json, ebb__json_value_member(json, 0, "ts"), &p.time_ns) &&
                          ebb__json_value_u64(json, ebb__json_value_member(json, args, "Addr"), &p.address) &&
                          ebb__json_value_i64(json, ebb__json_value_member(json, args, "Bytes"), &bytes) && bytes != 0;
    if (!is_whole || p.address > UINT64_MAX / CHROME_MAX_DEVICES || !read_device(c, json, args, &device)) {
        c->importer->n_left_out++;
        return EBB_OK;
    }
    EBB_ASSERT(device < c->n_devices);
    p.is_free = bytes < 0;
    p.size_bytes = (uint64_t)(bytes < 0 ? -bytes : bytes);
    p.device = (uint16_t)device;
    note_totals(&c->devices[device], json, args, &p);
    c->devices[device].n_points++;
    EBB_TRY(find_thread(c, json, &p.thread));
    return EBB_PUSH(c->importer->mem, &c->points, p);
}

static ebb_status read_instant(chrome *c, const ebb_json_value *json, const char *name) {
    if (strcmp(name, "[memory]") == 0) { return read_memory(c, json); }
    if (strcmp(name, "[OutOfMemory]") != 0) { return EBB_OK; }
    chrome_point p = {0};
    if (!ebb__json_value_thousandths(json, ebb__json_value_member(json, 0, "ts"), &p.time_ns)) { return EBB_OK; }
    EBB_TRY(intern(c, name, &p.name));
    EBB_TRY(find_thread(c, json, &p.thread));
    return EBB_PUSH(c->importer->mem, &c->points, p);
}

/* ---- the file --------------------------------------------------------------------------------- */

static ebb_status read_event(void *ctx, const ebb_json_value *json) {
    chrome *c = ctx;
    const char *phase = ebb__json_value_string(json, 0, "ph"), *name = ebb__json_value_string(json, 0, "name");
    if (!ebb__json_value_is(json, 0, EBB_JSON_OBJECT)) {
        return ebb__json_value_fail(json, "an event that is no object");
    }
    if (phase == NULL || name == NULL) { return EBB_OK; }
    switch (phase[0]) {
    case 'X': return read_span(c, json, name);
    case 'i':
    case 'I': return read_instant(c, json, name);
    case 'M': return read_metadata(c, json, name);
    default: return EBB_OK;
    }
}

static bool wants(void *ctx, const char *key) {
    (void)ctx;
    return strcmp(key, "baseTimeNanoseconds") == 0;
}

static ebb_status read_member(void *ctx, const char *key, const ebb_json_value *json) {
    chrome *c = ctx;
    (void)key;
    (void)ebb__json_value_u64(json, 0, &c->base_unix_ns);
    return EBB_OK;
}

static ebb_status check(const chrome *c) {
    if (c->n_devices > 0) { return EBB_OK; }
    return ebb_fail(EBB_E_UNSUPPORTED,
                    c->any_memory
                        ? "%s: its [memory] events have no addresses, so that frees fit no allocs (PyTorch 1.11 "
                          "and later write them)"
                        : "%s: no [memory] events: record with torch.profiler.profile(profile_memory=True)",
                    c->importer->path);
}

ebb_status ebb__import_chrome(ebb_importer *importer) {
    chrome *c = ebb__calloc(importer->mem, 1, sizeof *c);
    if (c == NULL) { return EBB_E_NO_MEMORY; }
    c->importer = importer;
    ebb__trace_keys_init(&c->texts, importer->mem);
    ebb__trace_keys_init(&c->thread_keys, importer->mem);
    const ebb_json_handler handler = {"traceEvents", true, read_event, wants, read_member, c};
    ebb_status st = ebb__import_json_read(importer, &handler);
    if (st == EBB_OK) { st = check(c); }
    if (st == EBB_OK) { st = ebb__chrome_write(c); }
    ebb__trace_keys_fini(&c->texts);
    ebb__trace_keys_fini(&c->thread_keys);
    EBB_VEC_FINI(importer->mem, &c->threads);
    EBB_VEC_FINI(importer->mem, &c->spans);
    EBB_VEC_FINI(importer->mem, &c->points);
    ebb__free(importer->mem, c);
    return st;
}
