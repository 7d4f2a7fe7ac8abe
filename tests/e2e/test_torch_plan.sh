#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# ebb.torch.plan: what is said of a step before it runs is what is measured when it runs. PYTHON names a Python with torch
# 2.4 or newer; EBB_TEST_ALL asks about all networks.
. "$(dirname "$0")/lib.sh"
PYTHONDONTWRITEBYTECODE=1
EBB_LIBRARY=$(dirname "$EBB")/libebb.so
export PYTHONDONTWRITEBYTECODE EBB_LIBRARY

for python in ${PYTHON:-} /usr/bin/python3 python3; do
    "$python" -c 'import torch; torch._C._current_graph_task_id, torch.UntypedStorage._new_with_weak_ptr' 2>/dev/null || continue
    "$python" -W ignore "$root/tests/e2e/torch_plan.py" "$work" || status=1
    exit $status
done
skip "ebb.torch.plan" "no Python with torch 2.4 or newer"
