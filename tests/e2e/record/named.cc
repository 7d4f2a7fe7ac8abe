/* SPDX-License-Identifier: Apache-2.0
 *
 * A program of C++ for test_record.sh: who allocates has a name that a compiler mangles.
 */
#include <stdlib.h>

namespace outer {
template <class T, int N> __attribute__((noinline)) void *take(T x) {
    void *volatile p = malloc(N + (size_t)x);
    return p;
}
}  // namespace outer

int main() {
    void *p = outer::take<float, 200000>(1.0f);
    free(p);
    return p == NULL;
}
