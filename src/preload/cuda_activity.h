/* SPDX-License-Identifier: Apache-2.0
 *
 * Kernels and copies of the program with their times, from CUPTI where it is there.
 */
#ifndef EBB_SRC_PRELOAD_CUDA_ACTIVITY_H
#define EBB_SRC_PRELOAD_CUDA_ACTIVITY_H

/* With the first call of CUDA that the recorder sees: ask CUPTI, or note why none exists. Later calls do nothing. */
void ebb__preload_activity_start(void);

#endif
