/* SPDX-License-Identifier: Apache-2.0
 *
 * The page: one file that opens from the disk, with no network. Its template, style and script are files of
 * src/report/page, its pictures are drawn by Chart.js; the build makes bytes of them all (cmake/report.cmake), so that
 * the library needs no file at run time. Words are written here, so that they can be read without a script; numbers go
 * into one object that the script reads.
 */
#include "report/report_embed.h"
#include "report/report_page_priv.h"

/* ---- words ------------------------------------------------------------------------------------ */

static void put_item(ebb_report_out *out, const char *tag, const char *text) {
    ebb__report_printf(out, "<%s>", tag);
    ebb__report_put_html_text(out, text);
    ebb__report_printf(out, "</%s>\n", tag);
}

/* A call stack, a line of the text each. */
static void put_lines(ebb_report_out *out, const char *text) {
    if (text[0] == '\0') { return; }
    ebb__report_put(out, "<ol class=\"frames\">\n");
    while (*text != '\0') {
        char line[REPORT_STACK_BYTES];
        const size_t n = strcspn(text, "\n");
        (void)snprintf(line, sizeof line, "%.*s", (int)n, text);
        put_item(out, "li", line);
        text += n + (text[n] != '\0');
    }
    ebb__report_put(out, "</ol>\n");
}

/* The sentence, and the names for which it has no room. */
static void put_tip(ebb_report_out *out, const ebb_study_tip *tip) {
    ebb__report_put(out, "<li>");
    ebb__report_put_html_text(out, tip->sentence);
    if (tip->n_names > EBB_STUDY_MAX_NAMED) {
        ebb__report_printf(out, "<details><summary>all %zu</summary>", tip->n_names);
        for (size_t i = 0; i < tip->n_names; i++) {
            ebb__report_put(out, i > 0 ? ", " : "");
            ebb__report_put_html_text(out, tip->names[i]);
        }
        ebb__report_put(out, "</details>");
    }
    ebb__report_put(out, "</li>\n");
}

static void put_advice(const ebb_report *report, ebb_report_out *out) {
    size_t n = 0;
    const ebb_study_tip *tips = ebb_study_advice(report->study, &n);
    put_item(out, "h3", "What to set or change");
    if (n == 0) {
        put_item(out, "p", "Nothing that the numbers would support.");
        return;
    }
    ebb__report_put(out, "<ol id=\"advice\">\n");
    for (size_t i = 0; i < n; i++) { put_tip(out, &tips[i]); }
    ebb__report_put(out, "</ol>\n");
}

static ebb_status put_words(ebb_report *report, ebb_report_out *out) {
    ebb_bump bump;
    ebb_report_words words;
    ebb__bump_init(&bump, report->mem);
    const ebb_status status = ebb__report_words(report, &bump, &words);
    if (status == EBB_OK) {
        if (words.device != NULL) { put_item(out, "p", words.device); }
        if (words.refused != NULL) {
            put_item(out, "p", words.refused);
            put_lines(out, words.refused_stack);
            if (words.refused_callees[0] != '\0') { put_item(out, "p", REPORT_CALLEES); }
            put_lines(out, words.refused_callees);
        }
        put_item(out, "p", words.peak);
        if (words.n_causes > 0) {
            ebb__report_put(out, "<ol id=\"causes\">\n");
            for (size_t i = 0; i < words.n_causes; i++) { put_item(out, "li", words.causes[i]); }
            ebb__report_put(out, "</ol>\n");
        }
        put_item(out, "h3", "The largest thing that could leave for free");
        put_item(out, "p", words.win);
        put_advice(report, out);
        if (words.unknown != NULL) { put_item(out, "p", words.unknown); }
    }
    ebb__bump_fini(&bump);
    return status;
}

/* ---- the data --------------------------------------------------------------------------------- */

static ebb_status put_data(ebb_report *report, ebb_report_out *out) {
    const ebb_study_summary *s = &report->summary;
    ebb_report_page page = {.report = report, .mem = report->mem, .json = ebb__report_json(out)};
    page.by_time = s->duration_ns != EBB_STUDY_UNKNOWN;
    page.end = page.by_time ? s->duration_ns : s->n_events;
    ebb__report_index_init(&page.texts, page.mem);
    ebb__report_index_init(&page.frames, page.mem);
    ebb__bump_init(&page.bump, page.mem);
    const ebb_status status = ebb__report_put_page(&page);
    ebb__report_index_fini(&page.texts);
    ebb__report_index_fini(&page.frames);
    ebb__bump_fini(&page.bump);
    return status;
}

/* The recorded program, and its device. */
static ebb_status put_recorded(ebb_report *report, ebb_report_out *out) {
    ebb_bump bump;
    ebb__bump_init(&bump, report->mem);
    const char *title = ebb__report_title(report, &bump);
    const ebb_trace_device *device = ebb__report_device(report);
    if (title != NULL) { ebb__report_put_html_text(out, title); }
    if (device != NULL) {
        ebb__report_put(out, ", on ");
        ebb__report_put_html_text(out, device->name);
    }
    ebb__bump_fini(&bump);
    return title != NULL ? EBB_OK : EBB_E_NO_MEMORY;
}

/* ---- the template ----------------------------------------------------------------------------- */

static ebb_status put_part(ebb_report *report, ebb_report_out *out, const char *name, size_t n) {
    if (strncmp(name, "NAME", n) == 0) {
        ebb__report_put_html_text(out, report->name);
    } else if (strncmp(name, "RECORDED", n) == 0) {
        return put_recorded(report, out);
    } else if (strncmp(name, "STYLE", n) == 0) {
        ebb__report_put_n(out, ebb__report_style.data, ebb__report_style.n_bytes);
    } else if (strncmp(name, "WORDS", n) == 0) {
        return put_words(report, out);
    } else if (strncmp(name, "DATA", n) == 0) {
        return put_data(report, out);
    } else if (strncmp(name, "CHARTS", n) == 0) {
        ebb__report_put_n(out, ebb__report_charts.data, ebb__report_charts.n_bytes);
    } else {
        EBB_ASSERT(strncmp(name, "SCRIPT", n) == 0);
        ebb__report_put_n(out, ebb__report_script.data, ebb__report_script.n_bytes);
    }
    return EBB_OK;
}

ebb_status ebb__report_check_html(void) {
    if (ebb__report_charts.n_bytes > 0) { return EBB_OK; }
    return ebb_fail(EBB_E_UNSUPPORTED,
                    "this ebb was built without Chart.js and cannot write pages; install the package libjs-chart.js "
                    "and build again");
}

/* The template's text, with what stands between two @@ put in. */
ebb_status ebb__report_render_html(ebb_report *report, ebb_report_out *out) {
    EBB_TRY(ebb__report_read(report));
    const char *at = (const char *)ebb__report_template.data, *const end = at + ebb__report_template.n_bytes;
    while (at < end && out->status == EBB_OK) {
        const char *mark = memmem(at, (size_t)(end - at), "@@", 2);
        const char *close = mark != NULL ? memmem(mark + 2, (size_t)(end - mark - 2), "@@", 2) : NULL;
        ebb__report_put_n(out, at, (size_t)((mark != NULL ? mark : end) - at));
        if (close == NULL) { break; }
        EBB_TRY(put_part(report, out, mark + 2, (size_t)(close - mark - 2)));
        at = close + 2;
    }
    return EBB_OK;
}
