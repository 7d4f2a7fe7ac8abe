/* SPDX-License-Identifier: Apache-2.0
 *
 * The constants of Philox 4x32-10 (rng.c), for other implementations: C, C++ and CUDA read this.
 */
#ifndef EBB_SRC_PHILOX_H
#define EBB_SRC_PHILOX_H

#define EBB_PHILOX_ROUNDS 10
#define EBB_PHILOX_M0 0xD2511F53u /* multipliers */
#define EBB_PHILOX_M1 0xCD9E8D57u
#define EBB_PHILOX_W0 0x9E3779B9u /* what the key grows by each round */
#define EBB_PHILOX_W1 0xBB67AE85u

#endif
