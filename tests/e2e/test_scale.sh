#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# Programs and plans of very deep networks are made, with a budget and without, keep to the budget and use it. The
# seconds that it took are shown and not judged: on a loaded machine they say nothing (see bench/README.md). A deeper
# one is tried only where all tests run (EBB_TEST_ALL); LAYERS=100000 is a minute and more.
. "$(dirname "$0")/lib.sh"

deep() { # LAYERS PLAN_OPTIONS: three convolutions a block, and four blocks' shortcuts
    n=$((($1 - 5) / 12))
    # shellcheck disable=SC2086
    run "$1 layers, $2" out plan "resnet:$n,$n,$n,$n" --image 64x64 --batch 16 --backend dry $2 --json || return
    pass "$1 layers, $2: program in $(member out program_made_s) s, plan in $(member out plan_made_s) s"
}

# BLOCKS: where something has to leave, the plan fills the budget or has its load's peak, but for a fiftieth.
filled() {
    deep_net=resnet:6,32,$1,6
    run "$deep_net in 12 GB" out plan "$deep_net" --batch 16 --backend dry --memory 12GB --policy budget --json || return
    peak=$(member out peak_planned_bytes)
    check "$deep_net fills 12 GB: $peak, made in $(member out plan_made_s) s" \
        test "$peak" -ge 11760000000 -o $((peak * 50)) -le $(($(member out bound_bytes) * 51))
    check "$deep_net keeps to 12 GB" test "$peak" -le 12000000000
}

filled 788
[ -z "$EBB_TEST_MORE" ] || filled 3500
deep 10000 "--policy liveness"
if [ -z "$EBB_TEST_ALL" ]; then
    deep 10000 "--memory 50% --effort 0"
else
    deep 10000 "--memory 50%"
    deep "${LAYERS:-30000}" "--memory 50% --effort 0" # a search of 10000 layers is as one of these
    # Small tensors and a slow link: copies that are allowed must not make the plan slower.
    small="resnet:60,150,500,60 --batch 4 --backend dry --memory 50%"
    # shellcheck disable=SC2086
    run "a large program with copies" copies plan $small --json &&
        run "without" alone plan $small --host-memory 0 --json &&
        check "copies make it no slower" awk "BEGIN { exit !($(member copies step_time_predicted_s) <= $(member alone step_time_predicted_s)) }"
fi
exit $status
