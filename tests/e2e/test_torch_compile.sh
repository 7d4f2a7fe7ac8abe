#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# ebb.torch.compile: the same bits as torch.compile, within the budget; its policy in an eager loop. PYTHON names a Python with torch 2.15 or newer.
. "$(dirname "$0")/lib.sh"

torch_python 'from torch._inductor.custom_graph_pass import CustomPartitionerFn' || {
    skip "ebb.torch.compile" "no Python with torch 2.15 or newer"
    exit $status
}
cc -std=gnu11 -O2 -shared -fPIC -o count_alloc.so "$root/tests/e2e/count_alloc.c" -ldl -pthread || fail "the counter"
OMP_NUM_THREADS=1 LD_PRELOAD=$work/count_alloc.so "$python" -W ignore "$root/tests/e2e/torch_compile.py" "$work/count_alloc.so" || status=1
OMP_NUM_THREADS=1 "$python" -W ignore "$root/tests/e2e/torch_policy.py" || status=1
if torch_python 'import torchtitan.experiments.graph_trainer.make_fx_tracer'; then
    OMP_NUM_THREADS=1 "$python" -W ignore "$root/tests/e2e/torch_titan.py" 2>titan.err || {
        status=1
        tail -n 20 titan.err >&2
    }
else
    skip "torchtitan" "no Python with torchtitan 0.3"
fi
exit $status
