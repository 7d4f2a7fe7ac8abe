/* SPDX-License-Identifier: Apache-2.0
 *
 * Lists of budgets on the command line: "2GiB,60%,40%" and ranges, "90%..10%" in steps of 5 %, "4GiB..1GiB:512MiB" in
 * steps of one's own.
 */
#include "budgets.h"

#include <string.h>

#define USUAL_STEPS 16u /* of a range of bytes */
#define USUAL_PERCENT 5.0
#define PIECE_BYTES 96

static bool read_one(const char *text, ebb_cli_memory *memory_out) {
    return ebb__cli_read_memory(text, memory_out) && (memory_out->bytes > 0 || memory_out->percent > 0);
}

static bool add(ebb_cli_budgets *budgets, ebb_cli_memory memory) {
    if (budgets->n == EBB_CLI_MAX_BUDGETS) { return false; }
    budgets->at[budgets->n++] = memory;
    return true;
}

/* From first to last, both of one kind, in steps of step; the last is always there. */
static bool add_range(ebb_cli_budgets *budgets, ebb_cli_memory first, ebb_cli_memory last, ebb_cli_memory step) {
    const bool is_percent = first.percent > 0;
    const double from = is_percent ? first.percent : (double)first.bytes;
    const double to = is_percent ? last.percent : (double)last.bytes;
    const double by = is_percent ? step.percent : (double)step.bytes;
    const double distance = to < from ? from - to : to - from;
    for (uint32_t i = 0; i * by < distance * (1 - 1e-9); i++) {
        const double at = to < from ? from - i * by : from + i * by;
        const ebb_cli_memory each = {is_percent ? 0 : (uint64_t)at, is_percent ? at : 0};
        if (!add(budgets, each)) { return false; }
    }
    return add(budgets, last);
}

/* "A..B" or "A..B:STEP"; text is changed. */
static bool read_range(char *text, char *dots, ebb_cli_budgets *budgets) {
    ebb_cli_memory first, last, step;
    char *colon = strchr(dots, ':');
    *dots = '\0';
    if (colon != NULL) { *colon = '\0'; }
    if (!read_one(text, &first) || !read_one(dots + 2, &last)) { return false; }
    const bool is_percent = first.percent > 0;
    if (is_percent != (last.percent > 0)) { return false; }
    if (colon != NULL) {
        if (!read_one(colon + 1, &step) || is_percent != (step.percent > 0)) { return false; }
    } else {
        const uint64_t a = first.bytes, b = last.bytes, distance = a < b ? b - a : a - b;
        step = (ebb_cli_memory){is_percent ? 0 : distance / USUAL_STEPS + 1, is_percent ? USUAL_PERCENT : 0};
    }
    return add_range(budgets, first, last, step);
}

static bool read_piece(char *text, ebb_cli_budgets *budgets) {
    ebb_cli_memory one;
    char *dots = strstr(text, "..");
    if (dots != NULL) { return read_range(text, dots, budgets); }
    return read_one(text, &one) && add(budgets, one);
}

bool ebb__cli_read_budgets(const char *text, ebb_cli_budgets *budgets_out) {
    budgets_out->n = 0;
    while (true) {
        char piece[PIECE_BYTES];
        const size_t n = strcspn(text, ",");
        if (n == 0 || n >= sizeof piece) { return false; }
        memcpy(piece, text, n);
        piece[n] = '\0';
        if (!read_piece(piece, budgets_out)) { return false; }
        if (text[n] == '\0') { return true; }
        text += n + 1;
    }
}

uint64_t ebb__cli_budget_bytes(ebb_cli_memory memory, uint64_t liveness_bytes) {
    if (memory.percent <= 0) { return memory.bytes; }
    const double bytes = (double)liveness_bytes * memory.percent / 100.0;
    return bytes < 9e18 ? (uint64_t)bytes : UINT64_MAX;
}
