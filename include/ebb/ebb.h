/* SPDX-License-Identifier: Apache-2.0
 *
 * All of ebb's public interface.
 */
#ifndef EBB_EBB_H
#define EBB_EBB_H

#include "ebb/base.h"
#include "ebb/comparison.h"
#include "ebb/device.h"
#include "ebb/diff.h"
#include "ebb/dtype.h"
#include "ebb/executor.h"
#include "ebb/graph.h"
#include "ebb/iteration.h"
#include "ebb/json.h"
#include "ebb/place.h"
#include "ebb/place_file.h"
#include "ebb/plan.h"
#include "ebb/pool.h"
#include "ebb/program.h"
#include "ebb/program_import.h"
#include "ebb/program_trace.h"
#include "ebb/remote.h"
#include "ebb/report.h"
#include "ebb/role.h"
#include "ebb/run.h"
#include "ebb/session.h"
#include "ebb/study.h"
#include "ebb/trace.h"
#include "ebb/train.h"

#endif
