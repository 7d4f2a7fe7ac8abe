#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# Programs and plans of very deep networks are made, with a budget and without, and keep to the budget. The
# seconds that it took are shown and not judged: on a loaded machine they say nothing (see bench/README.md). The deepest
# ones, and a quarter, which takes longest, are tried only where all tests run (EBB_TEST_ALL).
. "$(dirname "$0")/lib.sh"

deep() { # LAYERS PLAN_OPTIONS: three convolutions a block, and four blocks' shortcuts
    n=$((($1 - 5) / 12))
    # shellcheck disable=SC2086
    run "$1 layers, $2" out plan "resnet:$n,$n,$n,$n" --image 64x64 --batch 16 --backend dry $2 --json || return
    pass "$1 layers, $2: program in $(member out program_made_s) s, plan in $(member out plan_made_s) s"
}

deep 10000 "--policy liveness"
deep 10000 "--memory 50%"
if [ -n "$EBB_TEST_ALL" ]; then
    deep 10000 "--memory 25%"
    deep 100000 "--policy liveness"
    deep 100000 "--memory 50%"
fi
exit $status
