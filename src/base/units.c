/* SPDX-License-Identifier: Apache-2.0
 *
 * Numbers and bytes as people write and read them, and the clock. The point is '.', whatever the locale.
 */
#include "base/base.h"

#include <ctype.h>
#include <errno.h>
#include <locale.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <time.h>

double ebb__parse_f64(const char *text, const char **end_out) {
    enum { MOST = 128 };
    char number[MOST + 16], *end = NULL; /* the locale's point may have more than one byte */
    const char *locale_point = localeconv()->decimal_point;
    const size_t n = strspn(text, "+-.0123456789eE"), n_before = strcspn(text, ".");
    *end_out = text;
    if (n >= MOST || strlen(locale_point) > 16) { return 0.0; }
    const bool has_point = n_before < n;
    (void)snprintf(number, sizeof number, "%.*s%s%.*s", (int)(has_point ? n_before : n), text,
                   has_point ? locale_point : "", (int)(has_point ? n - n_before - 1 : 0), text + n_before + has_point);
    const double value = strtod(number, &end);
    const size_t n_read = (size_t)(end - number);
    *end_out = text + n_read - (has_point && n_read > n_before ? strlen(locale_point) - 1 : 0);
    return value;
}

char *ebb__set_point(char *text) {
    const char *locale_point = localeconv()->decimal_point;
    char *point = strstr(text, locale_point);
    if (point == NULL) { return text; }
    const char *rest = point + strlen(locale_point);
    *point = '.';
    memmove(point + 1, rest, strlen(rest) + 1);
    return text;
}

char *ebb__format_f64(double value, int n_digits, char buf[EBB_F64_BYTES]) {
    (void)snprintf(buf, EBB_F64_BYTES, "%.*g", n_digits, value);
    return ebb__set_point(buf);
}

static const struct {
    const char *name;
    uint64_t bytes;
} units[] = {
    {"", 1},
    {"b", 1},
    {"kb", 1000u},
    {"mb", 1000000u},
    {"gb", 1000000000u},
    {"tb", 1000000000000u},
    {"kib", 1u << 10},
    {"mib", 1u << 20},
    {"gib", 1u << 30},
    {"tib", (uint64_t)1 << 40},
    {"k", 1u << 10},
    {"m", 1u << 20},
    {"g", 1u << 30},
    {"t", (uint64_t)1 << 40},
};

ebb_status ebb_bytes_parse(const char *text, uint64_t *bytes_out) {
    EBB_NEED(text);
    EBB_NEED(bytes_out);
    if (!isdigit((unsigned char)text[0]) && text[0] != '.') {
        return ebb_fail(EBB_E_ARGUMENT, "'%s' is not a number of bytes (such as 2GiB or 512MB)", text);
    }
    if (text[0] == '0' && (text[1] == 'x' || text[1] == 'X')) {
        return ebb_fail(EBB_E_ARGUMENT, "'%s' is not a number of bytes (such as 2GiB or 512MB)", text);
    }
    const char *end = NULL;
    const double value = ebb__parse_f64(text, &end);
    while (*end == ' ') { end++; }
    for (size_t i = 0; i < sizeof units / sizeof units[0]; i++) {
        if (strcasecmp(end, units[i].name) != 0) { continue; }
        bool whole = strcspn(text, ".eE") >= (size_t)(end - text);
        uint64_t exact = whole ? strtoull(text, NULL, 10) : 0;
        double bytes = value * (double)units[i].bytes;
        if (!isfinite(bytes) || bytes >= 18446744073709551615.0) {
            return ebb_fail(EBB_E_ARGUMENT, "'%s' is more bytes than 64 bits hold", text);
        }
        *bytes_out = whole ? exact * units[i].bytes : (uint64_t)bytes;
        return EBB_OK;
    }
    return ebb_fail(EBB_E_ARGUMENT, "'%s' has an unknown unit (KiB, MiB, GiB, TiB, KB, MB, GB, TB)", text);
}

char *ebb_bytes_format(uint64_t bytes, char *buf, size_t buf_bytes) {
    static const char *const names[] = {"B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
    double value = (double)bytes;
    size_t unit = 0;
    while (value >= 1024.0 && unit + 1 < sizeof names / sizeof names[0]) {
        value /= 1024.0;
        unit++;
    }
    (void)snprintf(buf, buf_bytes, unit == 0 ? "%.0f %s" : "%.2f %s", value, names[unit]);
    return ebb__set_point(buf);
}

char *ebb_bytes_round_up(uint64_t bytes, char *buf, size_t buf_bytes) {
    static const char *const names[] = {"", "KiB", "MiB", "GiB", "TiB"};
    uint64_t unit_bytes = 1, scale = 1;
    size_t unit = 0;
    int n_decimals = 0;
    for (; bytes / unit_bytes >= 1000 && unit + 1 < sizeof names / sizeof names[0]; unit++) { unit_bytes *= 1024; }
    const uint64_t whole = bytes / unit_bytes, rest_bytes = bytes % unit_bytes;
    for (; unit > 0 && whole * scale < 100 && n_decimals < 2; n_decimals++) { scale *= 10; }
    uint64_t n = whole * scale + (rest_bytes * scale + unit_bytes - 1) / unit_bytes;
    for (; n_decimals > 0 && n % 10 == 0; n_decimals--) {
        n /= 10;
        scale /= 10;
    }
    (void)snprintf(buf, buf_bytes, "%.*f%s", n_decimals, (double)n / (double)scale, names[unit]);
    return ebb__set_point(buf);
}

uint64_t ebb__now_ns(void) {
    struct timespec t;
    (void)clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

bool ebb__parse_u64(const char *text, uint64_t *number_out) {
    char *end = NULL;
    text += strspn(text, " \t");
    if (*text < '0' || *text > '9') { return false; }
    errno = 0;
    const unsigned long long number = strtoull(text, &end, 10);
    if (errno != 0 || end[strspn(end, " \t")] != '\0') { return false; }
    *number_out = number;
    return true;
}
