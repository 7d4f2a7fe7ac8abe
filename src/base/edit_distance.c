/* SPDX-License-Identifier: Apache-2.0
 *
 * How far a mistyped word is from one that is known.
 */
#include "base/base.h"

#define MAX_WORD 48

size_t ebb_edit_distance(const char *a, size_t n_a, const char *b, size_t n_b) {
    size_t row[MAX_WORD + 1];
    if (n_a > MAX_WORD || n_b > MAX_WORD) { return SIZE_MAX; }
    for (size_t j = 0; j <= n_b; j++) { row[j] = j; }
    for (size_t i = 1; i <= n_a; i++) {
        size_t diagonal = row[0];
        row[0] = i;
        for (size_t j = 1; j <= n_b; j++) {
            size_t above = row[j];
            size_t change = diagonal + (a[i - 1] != b[j - 1] ? 1 : 0);
            size_t shift = (above < row[j - 1] ? above : row[j - 1]) + 1;
            row[j] = change < shift ? change : shift;
            diagonal = above;
        }
    }
    return row[n_b];
}
