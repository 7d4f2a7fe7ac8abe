#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# The peak that a report promises for checkpoints, beside what is recorded once they are there: bench/checkpoint_advice.py
# with its quick models, under the first Python that has torch (PYTHON names one).
. "$(dirname "$0")/lib.sh"
for python in ${PYTHON:-} /usr/bin/python3 python3; do
    "$python" -c 'import torch; torch.utils.checkpoint, torch.profiler.ExecutionTraceObserver' 2>/dev/null || continue
    "$python" -W ignore "$root/bench/checkpoint_advice.py" --ebb "$EBB" --models mlp,lstm,unet --within 3 >rows 2>err
    check "what checkpoints bring is promised within 3 % ($(tail -n +2 rows | wc -l) recordings)" [ $? = 0 ]
    [ $status = 0 ] || cat rows err
    exit $status
done
skip "the advice for checkpoints" "no Python with torch"
exit 77
