#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# What the examples promise: with nothing chosen but the network, a few steps make the loss fall, and a budget leaves its
# bits alone.
. "$(dirname "$0")/lib.sh"

# learns NAME ARGUMENTS...: the last three losses are lower than the first three, on average and to the last one.
learns() {
    title=$1
    shift
    run "$title" out train "$@" --json || return 1
    sed -n 's/.*"loss": \([0-9.e+-]*\),.*/\1/p' out >loss
    sums=$(awk '{ l[NR] = $1 } END { print l[1] + l[2] + l[3], l[NR - 2] + l[NR - 1] + l[NR] }' loss)
    check "$title: the loss falls" awk -v "s=$sums" 'BEGIN { split(s, t, " "); exit !(t[2] < 0.985 * t[1]) }'
}

learns "mlp" mlp --steps 12
learns "lenet" lenet --steps 12
learns "resnet20" resnet20 --steps 20
# The larger network takes long: where all tests run.
deep=resnet20
[ -z "$EBB_TEST_ALL" ] || deep="resnet50 --batch 16 --image 64x64"
# shellcheck disable=SC2086
learns "$deep" $deep --steps 10
losses out >free
# shellcheck disable=SC2086
learns "$deep in half of the memory" $deep --steps 10 --memory 50%
losses out >half
check "to the same bits" cmp -s free half
exit $status
