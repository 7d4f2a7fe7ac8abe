/* SPDX-License-Identifier: Apache-2.0
 *
 * The readable logs of the SINGA line of work (SmartPool, AutoSwap, the instrumented pool behind 'Pinpointing the
 * memory behaviors of DNN training'): a line an event, in the forms that their authors' files have,
 *
 *     [number] ACTION[:] 0xADDRESS [size] [time] [words]
 *
 * where ACTION is malloc, free, read, layer, write or mutable (a write), in any case of letters. A layer line is a read
 * as well, but AutoSwap's rules treat it differently, so it has a row of its own. A number of 13 digits or more is a
 * time since 1970, in ms, us or ns by its length; a smaller one is a size. A line of dashes with the word 'itr' begins
 * an iteration.
 *
 * The log is read twice. The first time finds the blocks that were there before: those of addresses that are used and
 * were never allocated, as far as some line says their size. Memory is for distinct addresses.
 */
#include "base/u64_map.h"
#include "trace/import_priv.h"

#include <strings.h>

#define LINE_BYTES 4096u
#define FIRST_TIME ((uint64_t)1000 * 1000 * 1000 * 1000) /* 13 digits */

#define LAYER_ROW IMPORT_FIRST_FREE_ROW

typedef enum action { MALLOC, FREE, READ, LAYER, WRITE, ITERATION, NOTHING } action;

static const struct {
    const char *word;
    action action;
} words[] = {{"malloc", MALLOC}, {"free", FREE},   {"read", READ},
             {"layer", LAYER},   {"write", WRITE}, {"mutable", WRITE}};

typedef struct record {
    action action;
    uint64_t address, size_bytes, time;
    bool has_size;
} record;

/* ---- a line ----------------------------------------------------------------------------------- */

static const char *skip_blanks(const char *at) {
    return at + strspn(at, " \t\r,");
}

/* A decimal number and the blanks after it. */
static bool take_number(const char **at, uint64_t *number_out) {
    uint64_t number = 0;
    const char *c = *at;
    for (; *c >= '0' && *c <= '9'; c++) {
        if (!ebb_mul_u64(number, 10, &number) || !ebb_add_u64(number, (uint64_t)(*c - '0'), &number)) { return false; }
    }
    if (c == *at || strcspn(c, " \t\r,") > 0) { return false; }
    *at = skip_blanks(c);
    *number_out = number;
    return true;
}

static bool take_address(const char **at, uint64_t *address_out) {
    if (strncasecmp(*at, "0x", 2) != 0) { return false; }
    const char *c = *at + 2;
    const size_t n = strspn(c, "0123456789abcdefABCDEF");
    if (n == 0 || n > 16 || strcspn(c + n, " \t\r,") > 0) { return false; }
    uint64_t address = 0;
    for (size_t i = 0; i < n; i++) {
        const char digit = c[i];
        address = address << 4 | (uint64_t)(digit <= '9' ? digit - '0' : (digit | 0x20) - 'a' + 10);
    }
    *at = skip_blanks(c + n);
    *address_out = address;
    return address != UINT64_MAX;
}

static bool take_action(const char **at, action *action_out) {
    const size_t n = strcspn(*at, " \t\r:");
    for (size_t i = 0; i < sizeof words / sizeof words[0]; i++) {
        if (strlen(words[i].word) == n && strncasecmp(words[i].word, *at, n) == 0) {
            *at = skip_blanks(*at + n + ((*at)[n] == ':'));
            *action_out = words[i].action;
            return true;
        }
    }
    return false;
}

static bool parse_line(const char *line, record *record_out) {
    record r = {.action = NOTHING};
    const char *at = skip_blanks(line);
    uint64_t number = 0;
    const bool is_rule = strncmp(at, "---", 3) == 0;
    if (*at == '\0' || is_rule) {
        r.action = is_rule && strstr(at, "itr") != NULL ? ITERATION : NOTHING;
        *record_out = r;
        return true;
    }
    if (*at >= '0' && *at <= '9' && !take_number(&at, &number)) { return false; }
    if (!take_action(&at, &r.action) || !take_address(&at, &r.address)) { return false; }
    while (*at >= '0' && *at <= '9') {
        if (!take_number(&at, &number)) { return false; }
        if (number >= FIRST_TIME) {
            r.time = number;
        } else {
            r.size_bytes = number;
            r.has_size = true;
        }
    }
    *record_out = r;
    return r.action != MALLOC || r.has_size;
}

bool ebb__import_is_singa(const uint8_t *head, size_t n, const char *path) {
    (void)path;
    char line[256];
    record r;
    const char *text = (const char *)head, *stop = n > 0 ? memchr(text, '\n', n) : NULL;
    const size_t n_line = stop != NULL ? (size_t)(stop - text) : n;
    if (n_line == 0 || n_line >= sizeof line || memchr(text, '\0', n_line) != NULL) { return false; }
    memcpy(line, text, n_line);
    line[n_line] = '\0';
    return parse_line(line, &r) && r.action != NOTHING;
}

/* ---- the log ---------------------------------------------------------------------------------- */

typedef struct before {
    uint64_t address, size_bytes;
} before;

typedef struct text_log {
    ebb_importer *importer;
    char buf[LINE_BYTES + 1];
    size_t at, n; /* in buf */
    bool ended;
    bool is_unended; /* the last line given has no line break */
    uint64_t line;
    ebb_u64_map block_of; /* of every address seen: the number plus one of its live block, or 0 */
    EBB_VEC(before) befores;
    bool any_time, any_access, any_layer;
    uint64_t first_time, ns; /* and how many ns its unit has */
    uint64_t n_blocks, n_events, n_iterations, now_ns;
} text_log;

/* The next line, ended by a NUL; NULL: none. */
static ebb_status next_line(text_log *l, char **line_out) {
    for (;;) {
        EBB_ASSERT(l->at <= l->n && l->n <= LINE_BYTES);
        char *from = l->buf + l->at, *stop = memchr(from, '\n', l->n - l->at);
        l->is_unended = stop == NULL && l->ended && l->at < l->n;
        if (l->is_unended) { stop = l->buf + l->n; }
        *line_out = stop != NULL ? from : NULL;
        if (stop != NULL) {
            *stop = '\0';
            l->at = ebb_min_u64((uint64_t)(stop - l->buf) + 1, l->n);
            l->line++;
            if (strlen(from) == (size_t)(stop - from)) { return EBB_OK; }
            return ebb_fail(EBB_E_FORMAT, "%s:%llu: a byte 0: this is no text", l->importer->path,
                            (unsigned long long)l->line);
        }
        if (l->ended) { return EBB_OK; }
        memmove(l->buf, from, l->n - l->at);
        l->n -= l->at;
        l->at = 0;
        if (l->n == LINE_BYTES) {
            return ebb_fail(EBB_E_FORMAT, "%s:%llu: a line of more than %u bytes", l->importer->path,
                            (unsigned long long)l->line + 1, LINE_BYTES);
        }
        size_t got = 0;
        EBB_TRY(ebb__import_read(l->importer, l->buf + l->n, LINE_BYTES - l->n, &got));
        l->ended = got == 0;
        l->n += got;
    }
}

static ebb_status next_record(text_log *l, record *record_out, bool *done_out) {
    char *line = NULL;
    EBB_TRY(next_line(l, &line));
    *done_out = line == NULL;
    const bool is_right = line == NULL || parse_line(line, record_out);
    /* A last line without a line break may be cut before its time, or within it: the rest of a time is below the first.
     */
    const bool lacks_time =
        is_right && line != NULL && l->any_time && record_out->action < ITERATION && record_out->time < l->first_time;
    if (l->is_unended && (!is_right || lacks_time)) {
        l->importer->cut = true;
        *done_out = true;
        return EBB_OK;
    }
    if (is_right) { return EBB_OK; }
    return ebb_fail(EBB_E_FORMAT, "%s:%llu: not 'ACTION 0xADDRESS SIZE TIME': %.60s", l->importer->path,
                    (unsigned long long)l->line, line);
}

static ebb_status rewind_log(text_log *l) {
    EBB_TRY(ebb__import_rewind(l->importer));
    l->at = l->n = 0;
    l->line = 0;
    l->ended = false;
    ebb__u64_map_fini(&l->block_of);
    return EBB_OK;
}

/* ---- the first reading ------------------------------------------------------------------------ */

static void note_time(text_log *l, const record *r) {
    if (r->time == 0 || l->any_time) { return; }
    l->any_time = true;
    l->first_time = r->time;
    l->ns = r->time < FIRST_TIME * 1000 ? 1000000 : r->time < FIRST_TIME * 1000000 ? 1000 : 1;
    EBB_ASSERT(l->first_time >= FIRST_TIME);
}

static ebb_status look_at(text_log *l, const record *r) {
    note_time(l, r);
    l->any_layer = l->any_layer || r->action == LAYER;
    l->any_access = l->any_access || r->action == READ || r->action == LAYER || r->action == WRITE;
    if (r->action >= ITERATION) { return EBB_OK; }
    if (r->action != MALLOC && !r->has_size) { return EBB_OK; } /* a later line may say it */
    uint64_t *block = NULL;
    bool is_new = false;
    EBB_TRY(ebb__u64_map_add(&l->block_of, r->address, &block, &is_new));
    if (!is_new || r->action == MALLOC) { return EBB_OK; }
    const before b = {r->address, r->size_bytes};
    return EBB_PUSH(l->importer->mem, &l->befores, b);
}

static ebb_status look_through(text_log *l) {
    record r;
    for (bool done = false;;) {
        EBB_TRY(next_record(l, &r, &done));
        if (done) { return EBB_OK; }
        EBB_TRY(look_at(l, &r));
    }
}

/* ---- the second reading ----------------------------------------------------------------------- */

/* What an action does to a live block: an alloc at its address ends it. */
static ebb_trace_kind kind_of(action does) {
    EBB_ASSERT(does < ITERATION);
    return does == READ || does == LAYER ? EBB_TRACE_READ : does == WRITE ? EBB_TRACE_WRITE : EBB_TRACE_FREE;
}

static ebb_status add_event(text_log *l, action does, uint64_t block) {
    const ebb_trace_event event = {
        .kind = kind_of(does), .row = does == LAYER ? LAYER_ROW : 0, .time_ns = l->now_ns, .block = block};
    l->n_events++;
    return ebb_trace_writer_add(l->importer->writer, &event);
}

static ebb_status add_alloc(text_log *l, const record *r, bool was_before) {
    const ebb_trace_event event = {.kind = EBB_TRACE_ALLOC,
                                   .time_ns = l->now_ns,
                                   .block = l->n_blocks,
                                   .size_bytes = r->size_bytes,
                                   .address = r->address,
                                   .role = EBB_ROLE_UNKNOWN,
                                   .before = was_before};
    uint64_t *block = NULL;
    bool is_new = false;
    EBB_TRY(ebb__u64_map_add(&l->block_of, r->address, &block, &is_new));
    EBB_ASSERT(*block == 0); /* its free was written, told or not */
    *block = ++l->n_blocks;
    l->n_events++;
    return ebb_trace_writer_add(l->importer->writer, &event);
}

static ebb_status add_iteration(text_log *l) {
    ebb_trace_event event = {
        .kind = EBB_TRACE_MARK, .time_ns = l->now_ns, .mark = EBB_TRACE_ITERATION_END, .number = l->n_iterations - 1};
    if (l->n_iterations > 0) { EBB_TRY(ebb_trace_writer_add(l->importer->writer, &event)); }
    event.mark = EBB_TRACE_ITERATION_BEGIN;
    event.number = l->n_iterations++;
    return ebb_trace_writer_add(l->importer->writer, &event);
}

/* Lines without a time are of the time before them; where there are no times, lines are counted. */
static void move_time(text_log *l, const record *r) {
    uint64_t time_ns = 0;
    if (!l->any_time) {
        l->now_ns = l->n_events;
    } else if (r->time > l->first_time && ebb_mul_u64(r->time - l->first_time, l->ns, &time_ns)) {
        l->now_ns = ebb_max_u64(l->now_ns, time_ns);
    }
}

static ebb_status write_record(text_log *l, const record *r) {
    if (r->action == NOTHING) { return EBB_OK; }
    move_time(l, r);
    if (r->action == ITERATION) { return add_iteration(l); }
    uint64_t *found = ebb__u64_map_find(&l->block_of, r->address);
    const bool is_live = found != NULL && *found != 0;
    const bool is_alloc = r->action == MALLOC;
    if (is_live == is_alloc) { l->importer->n_left_out++; } /* an alloc's missing free, or what has no alloc */
    if (is_live) {
        const uint64_t block = *found - 1;
        if (is_alloc || r->action == FREE) { *found = 0; }
        EBB_TRY(add_event(l, r->action, block));
    }
    return is_alloc ? add_alloc(l, r, false) : EBB_OK;
}

static uint64_t start_unix_ns(const text_log *l) {
    uint64_t ns = 0;
    return l->any_time && ebb_mul_u64(l->first_time, l->ns, &ns) ? ns : 0;
}

static ebb_status write_log(text_log *l) {
    const uint32_t tells = EBB_TRACE_TELLS_ADDRESSES | (l->any_time ? EBB_TRACE_TELLS_TIMES : 0u) |
                           (l->any_access ? EBB_TRACE_TELLS_ACCESSES : 0u);
    EBB_TRY(ebb__import_begin(l->importer, tells, start_unix_ns(l)));
    if (l->any_layer) {
        char key[32];
        (void)snprintf(key, sizeof key, "row.%u", LAYER_ROW);
        EBB_TRY(ebb_trace_writer_note(l->importer->writer, key, "layer"));
    }
    for (size_t i = 0; i < l->befores.n; i++) {
        const record r = {.address = l->befores.data[i].address, .size_bytes = l->befores.data[i].size_bytes};
        EBB_TRY(add_alloc(l, &r, true));
    }
    record r;
    for (bool done = false;;) {
        EBB_TRY(next_record(l, &r, &done));
        if (done) { break; }
        EBB_TRY(write_record(l, &r));
    }
    if (l->n_iterations == 0) { return EBB_OK; }
    const ebb_trace_event end = {
        .kind = EBB_TRACE_MARK, .time_ns = l->now_ns, .mark = EBB_TRACE_ITERATION_END, .number = l->n_iterations - 1};
    return ebb_trace_writer_add(l->importer->writer, &end);
}

ebb_status ebb__import_singa(ebb_importer *importer) {
    EBB_TRY(ebb__import_keep(importer));
    text_log *l = ebb__calloc(importer->mem, 1, sizeof *l);
    if (l == NULL) { return EBB_E_NO_MEMORY; }
    l->importer = importer;
    ebb__u64_map_init(&l->block_of, importer->mem);
    ebb_status st = look_through(l);
    if (st == EBB_OK) { st = rewind_log(l); }
    if (st == EBB_OK) { st = write_log(l); }
    ebb__u64_map_fini(&l->block_of);
    EBB_VEC_FINI(importer->mem, &l->befores);
    ebb__free(importer->mem, l);
    return st;
}
