/* SPDX-License-Identifier: Apache-2.0
 *
 * What blocks take of a device when each is a cudaMalloc of its own, and each free a cudaFree.
 */
#ifndef EBB_SRC_PLACE_DRIVER_H
#define EBB_SRC_PLACE_DRIVER_H

#include "base/base.h"

typedef struct ebb_driver ebb_driver;

ebb_status ebb__driver_create(const ebb_mem *mem, ebb_driver **driver_out);
void ebb__driver_destroy(ebb_driver *driver);

/* A block of size_bytes; size 0 gets EBB_OK and no bytes. */
ebb_status ebb__driver_take(ebb_driver *driver, uint64_t size_bytes, uint32_t *block_out);
void ebb__driver_give(ebb_driver *driver, uint32_t block, uint64_t size_bytes);

/* Taken from the device at most so far. */
uint64_t ebb__driver_peak(const ebb_driver *driver);

#endif
