#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# ebb.torch.Budget: the same bits and the planned bytes, in steps that are alike and in those that are not. PYTHON names a
# Python with torch 2.4 or newer; EBB_TEST_ALL runs the long form: all networks, kinds of steps and cases.
. "$(dirname "$0")/lib.sh"
unset EBB_PROGRESS_S # some cases are about the lines of long work

torch_python 'import torch; torch._C._current_graph_task_id, torch.UntypedStorage._new_with_weak_ptr' || {
    skip "ebb.torch.Budget" "no Python with torch 2.4 or newer"
    exit $status
}
"$python" -W ignore "$root/tests/e2e/torch_budget.py" "$work" || status=1
"$python" -W ignore "$root/tests/e2e/torch_budget_cases.py" "$work" || status=1
"$python" -W ignore "$root/tests/e2e/torch_budget_unlike.py" "$work" || status=1
"$python" -W ignore "$root/tests/e2e/torch_budget_state.py" "$work" || status=1
"$python" -W ignore "$root/tests/e2e/torch_budget_times.py" "$work" || status=1
"$python" -W ignore "$root/tests/e2e/torch_budget_failures.py" "$work" || status=1
"$python" -W ignore "$root/tests/e2e/torch_budget_unseen.py" "$work" || status=1
if "$python" -c 'import torch.distributed; assert torch.distributed.is_gloo_available()' 2>err; then
    "$python" -W ignore "$root/tests/e2e/torch_budget_ddp.py" "$work" 2>ddp.err || {
        status=1
        tail -n 20 ddp.err >&2
    }
else
    skip "several processes" "no PyTorch with gloo"
fi
if cc -std=gnu11 -O2 -shared -fPIC -o count_alloc.so "$root/tests/e2e/count_alloc.c" -ldl -pthread; then
    KINETO_LOG_LEVEL=99 OMP_NUM_THREADS=1 LD_PRELOAD=$work/count_alloc.so \
        "$python" -W ignore "$root/tests/e2e/torch_budget_counted.py" "$work" "$work/count_alloc.so" || status=1
else
    fail "the counter"
fi
if [ -s "$digits" ]; then
    for budget in 100% 60%; do
        PYTHONPATH=$root/python OMP_NUM_THREADS=1 EBB_PROGRESS_S=0 "$python" -W ignore "$root/examples/torch_digits.py" "$digits" $budget >$budget 2>err ||
            fail "the example at $budget" "$(tail -n 5 err)"
    done
    equal "the example at 60 %: the same loss" "$(grep 'last loss' 60%)" "$(grep 'last loss' 100%)"
    check "its network has learned" test "$(sed -n 's/^right *\([0-9]*\).*/\1/p' 60%)" -ge 90
    check "it moves tensors out" grep -q 'moved out  *[0-9.]* MiB' 60%
    empty "nothing else is said" "$(cat err)"
else
    skip "the example" "no digits"
fi
exit $status
