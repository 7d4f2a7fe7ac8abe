/* SPDX-License-Identifier: Apache-2.0
 *
 * The conformance suite on the backend dry.
 */
#include "conformance.h"

int main(void) {
    return conformance_main("dry");
}
