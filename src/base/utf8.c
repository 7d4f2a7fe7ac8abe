/* SPDX-License-Identifier: Apache-2.0
 *
 * Tells UTF-8 characters from other bytes: names in other tools' files may contain any bytes.
 */
#include "base/base.h"

size_t ebb__utf8_character(const void *text, size_t n_bytes) {
    const uint8_t *c = text;
    if (n_bytes == 0) { return 0; }
    const size_t n = c[0] < 0x80 ? 1 : c[0] < 0xc2 ? 0 : c[0] < 0xe0 ? 2 : c[0] < 0xf0 ? 3 : c[0] < 0xf5 ? 4 : 0;
    if (n > n_bytes) { return 0; }
    for (size_t i = 1; i < n; i++) {
        if ((c[i] & 0xc0) != 0x80) { return 0; }
    }
    const bool is_too_long = (c[0] == 0xe0 && c[1] < 0xa0) || (c[0] == 0xf0 && c[1] < 0x90);
    const bool is_half_of_pair = c[0] == 0xed && c[1] >= 0xa0;
    const bool is_beyond = c[0] == 0xf4 && c[1] >= 0x90;
    return is_too_long || is_half_of_pair || is_beyond ? 0 : n;
}

uint32_t ebb__utf8_read(const char *text, size_t *n_bytes_out) {
    const uint8_t *c = (const uint8_t *)text;
    *n_bytes_out = 1;
    if (c[0] < 0x80) { return c[0]; }
    const size_t n = ebb__utf8_character(c, strnlen(text, 4));
    if (n == 0) { return EBB_UTF8_NONE; }
    uint32_t code = c[0] & (0xffu >> (n + 1));
    for (size_t i = 1; i < n; i++) { code = code << 6 | (c[i] & 0x3fu); }
    *n_bytes_out = n;
    return code;
}

bool ebb__utf8_is_control(uint32_t code) {
    const bool is_direction = (code >= 0x202a && code <= 0x202e) || (code >= 0x2066 && code <= 0x2069);
    return code < 0x20 || (code >= 0x7f && code < 0xa0) || code == 0x2028 || code == 0x2029 || is_direction;
}

size_t ebb__utf8_sound_bytes(const void *text, size_t n_bytes) {
    const uint8_t *c = text;
    size_t at = 0;
    for (size_t n = 1; n > 0 && at < n_bytes && c[at] != 0; at += n) {
        n = c[at] < 0x80 ? 1 : ebb__utf8_character(c + at, n_bytes - at);
    }
    return at;
}

void ebb__utf8_make_line(char *text) {
    size_t n = strlen(text);
    for (uint8_t *c = (uint8_t *)text; n > 0;) {
        const size_t n_here = ebb__utf8_character(c, n), n_step = n_here > 0 ? n_here : 1;
        const bool is_upper_control = n_here == 2 && c[0] == 0xc2 && c[1] < 0xa0;
        if (*c == '\n' || *c == '\r' || *c == '\t') {
            *c = ' ';
        } else if (n_here == 0 || *c < ' ' || *c == 0x7f || is_upper_control) {
            memset(c, '?', n_step);
        }
        c += n_step;
        n -= n_step;
    }
}
