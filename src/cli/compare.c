/* SPDX-License-Identifier: Apache-2.0
 *
 * Files studied for their peaks, and changes between two of them in words and as JSON.
 */
#include "compare.h"

#include <inttypes.h>
#include <math.h>

#define MANY_TIMES 10.0 /* of what was, in which a percentage is hard to read */
#define HUGE_TIMES 1e6  /* of what was: more digits than its column has */
#define SMALLEST 0.0005 /* of what was, that a percentage of one decimal shows */

/* ---- a file ------------------------------------------------------------------------------------ */

static ebb_status open_file(const char *path, const char *device, ebb_cli_studied *studied) {
    return ebb__cli_open_recording(path, device, &studied->reader);
}

/* What it cannot tell of the peak. */
static void note_limits(ebb_cli_studied *studied) {
    size_t n = 0, chosen = 0;
    const ebb_trace_device *devices = ebb_trace_reader_devices(studied->reader, &n, &chosen);
    studied->is_cut = !ebb_trace_reader_info(studied->reader).complete;
    studied->is_moment = n > 0 && devices[chosen].is_moment;
}

static ebb_status study(ebb_cli_studied *studied) {
    ebb_study_options options = EBB_STUDY_OPTIONS_INIT;
    options.wants = 0;
    return ebb_study_create(studied->reader, &options, &studied->study);
}

ebb_status ebb__cli_study(const char *path, const char *device, ebb_cli_studied *studied_out) {
    ebb_status status = open_file(path, device, studied_out);
    if (status == EBB_OK) { status = study(studied_out); }
    if (status != EBB_OK) { return status; }
    note_limits(studied_out);
    studied_out->peak_bytes = ebb_study_get_summary(studied_out->study).peak_bytes;
    return EBB_OK;
}

ebb_status ebb__cli_find_peak(const char *path, const char *device, ebb_cli_studied *studied_out) {
    size_t n = 0, chosen = 0;
    const ebb_status status = open_file(path, device, studied_out); /* which knows the peaks of all devices */
    if (status != EBB_OK) { return status; }
    note_limits(studied_out);
    const ebb_trace_device *devices = ebb_trace_reader_devices(studied_out->reader, &n, &chosen);
    studied_out->peak_bytes = n > 0 ? devices[chosen].peak_bytes : 0;
    return EBB_OK;
}

ebb_status ebb__cli_study_found(const char *device, ebb_cli_studied *studied) {
    const ebb_status status = ebb_trace_reader_choose(studied->reader, device); /* at its front again */
    return status == EBB_OK ? study(studied) : status;
}

const char *ebb__cli_device(const ebb_cli_studied *studied) {
    size_t n = 0, chosen = 0;
    const ebb_trace_device *devices = ebb_trace_reader_devices(studied->reader, &n, &chosen);
    const bool is_one_of = n > 1 || (n == 1 && ebb_trace_reader_left_out(studied->reader) != NULL);
    return is_one_of ? devices[chosen].name : NULL;
}

void ebb__cli_studied_fini(ebb_cli_studied *studied) {
    ebb_study_destroy(studied->study);
    ebb_trace_reader_close(studied->reader);
}

const char *ebb__cli_holder_label(const char *label, ebb_study_group group) {
    if (label[0] != '\0') { return label; }
    switch (group) {
    case EBB_STUDY_BY_SITE:
    case EBB_STUDY_BY_STACK: return "(no call stack)";
    case EBB_STUDY_BY_MODULE: return "(no module)";
    default: return "(no name)";
    }
}

/* ---- differences ------------------------------------------------------------------------------- */

char *ebb__cli_delta(uint64_t a_bytes, uint64_t b_bytes, char *buf, size_t buf_bytes) {
    char text[32];
    const uint64_t bytes = a_bytes > b_bytes ? a_bytes - b_bytes : b_bytes - a_bytes;
    snprintf(buf, buf_bytes, "%s%s", a_bytes > b_bytes ? "-" : "+", ebb_bytes_format(bytes, text, sizeof text));
    return buf;
}

char *ebb__cli_delta_percent(uint64_t a_bytes, uint64_t b_bytes, char *buf, size_t buf_bytes) {
    const double before = (double)a_bytes, now = (double)b_bytes;
    buf[0] = '\0';
    if (a_bytes == 0) {
        snprintf(buf, buf_bytes, "%s", b_bytes > 0 ? "new" : "");
    } else if (a_bytes != b_bytes && fabs(now - before) < SMALLEST * before) {
        snprintf(buf, buf_bytes, "< 0.1 %%");
    } else if (now < MANY_TIMES * before) {
        snprintf(buf, buf_bytes, "%+.1f %%", (now - before) / before * 100.0);
    } else {
        snprintf(buf, buf_bytes, now < HUGE_TIMES * before ? "x %.0f" : "x %.0e", now / before);
    }
    return buf;
}

/* ---- changes ----------------------------------------------------------------------------------- */

#define WIDE_COLUMNS 100         /* a line; a narrower terminal, or a longer name in a file, gets two lines */
#define NUMBER_COLUMNS 61        /* in front of a change's name */
#define NARROW_NUMBER_COLUMNS 25 /* in front of it in two lines */

static bool is_told(const ebb_diff_blocks *change, bool only_more) {
    return !only_more || change->b_bytes > change->a_bytes;
}

static void print_change(const ebb_diff_blocks *change) {
    char each[80], a[32], b[32], delta[32], text[4096], shown[4096];
    const size_t n_columns = ebb__cli_columns();
    const char *site = change->site, *name = change->name[0] != '\0' ? change->name : ebb_role_name(change->role);
    const uint64_t n = change->n_blocks;
    ebb_bytes_format(change->a_bytes, a, sizeof a);
    ebb_bytes_format(change->b_bytes, b, sizeof b);
    if (change->a_bytes > 0 && change->b_bytes > 0) {
        snprintf(each, sizeof each, "%s -> %s", a, b);
    } else {
        snprintf(each, sizeof each, "%s", change->a_bytes > 0 ? a : b);
    }
    snprintf(text, sizeof text, "%s%s%s", name, site[0] != '\0' ? ", " : "", site);
    ebb__cli_delta(change->a_bytes * n, change->b_bytes * n, delta, sizeof delta);
    printf("  %-6s %14s  ", ebb_diff_change_name(change->change), delta);
    const bool is_long =
        n_columns == 0 && NUMBER_COLUMNS + ebb__cli_count(ebb__cli_clean(text, shown, sizeof shown)) > WIDE_COLUMNS;
    if (!is_long && (n_columns == 0 || n_columns >= WIDE_COLUMNS)) {
        const size_t n_name = n_columns > 0 ? n_columns - NUMBER_COLUMNS : 0;
        printf("%6" PRIu64 " x %-26s %s\n", n, each, ebb__cli_shorten(text, n_name, shown, sizeof shown));
    } else {
        const size_t n_left = n_columns > NARROW_NUMBER_COLUMNS ? n_columns - NARROW_NUMBER_COLUMNS : 1;
        const size_t n_name = n_columns > 0 ? n_left : 0;
        printf("%s\n    %" PRIu64 " x %s\n", ebb__cli_shorten(text, n_name, shown, sizeof shown), n, each);
    }
}

void ebb__cli_print_changes(const ebb_diff *diff, size_t n_lines, bool only_more) {
    size_t n = 0, n_printed = 0, n_left = 0;
    const ebb_diff_blocks *changes = ebb_diff_changes(diff, &n);
    for (size_t i = 0; i < n; i++) {
        if (!is_told(&changes[i], only_more)) { continue; }
        if (n_printed < n_lines) {
            print_change(&changes[i]);
            n_printed++;
        } else {
            n_left++;
        }
    }
    if (n_left > 0) { printf("  and %zu more\n", n_left); }
}

void ebb__cli_json_changes(const char *key, const ebb_diff *diff, bool only_more) {
    size_t n = 0;
    const ebb_diff_blocks *changes = ebb_diff_changes(diff, &n);
    ebb__json_list_begin(key);
    for (size_t i = 0; i < n; i++) {
        if (!is_told(&changes[i], only_more)) { continue; }
        ebb__json_item_begin();
        ebb__json_text("change", ebb_diff_change_name(changes[i].change));
        ebb__json_text("name", changes[i].name[0] != '\0' ? changes[i].name : NULL);
        ebb__json_text("site", changes[i].site[0] != '\0' ? changes[i].site : NULL);
        ebb__json_text("role", ebb_role_name(changes[i].role));
        ebb__json_u64("blocks", changes[i].n_blocks);
        ebb__json_u64("a_bytes", changes[i].a_bytes);
        ebb__json_u64("b_bytes", changes[i].b_bytes);
        ebb__json_item_end();
    }
    ebb__json_list_end();
}
