#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# ebb.torch.plan: what is said of a step before it runs is what is measured when it runs. PYTHON names a Python with torch
# 2.4 or newer; EBB_TEST_ALL asks about all networks.
. "$(dirname "$0")/lib.sh"
unset EBB_PROGRESS_S # some cases are about the lines of long work

torch_python 'import torch; torch._C._current_graph_task_id, torch.UntypedStorage._new_with_weak_ptr' || {
    skip "ebb.torch.plan" "no Python with torch 2.4 or newer"
    exit $status
}
"$python" -W ignore "$root/tests/e2e/torch_plan.py" "$work" || status=1
exit $status
