/* SPDX-License-Identifier: Apache-2.0
 *
 * The conformance suite on the backend cuda, where there is a GPU.
 */
#include "conformance.h"

int main(void) {
    return conformance_main("cuda");
}
