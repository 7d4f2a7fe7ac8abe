#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# Programs and plans of very deep networks: 10,000 layers are made in two seconds each (with a budget and without),
# and ten times the layers take little more than ten times that.
. "$(dirname "$0")/lib.sh"

# at_most NAME VALUE LIMIT, with fractions.
at_most() {
    if awk "BEGIN { exit !($2 <= $3) }"; then pass "$1: $2 s"; else fail "$1" "$2 s, more than $3 s"; fi
}

for policy in "--policy liveness" "--memory 50%"; do
    for layers in 10000 100000; do
        # Three convolutions a block, and four blocks' shortcuts.
        n=$(((layers - 5) / 12))
        # shellcheck disable=SC2086
        run "$layers layers" out plan "resnet:$n,$n,$n,$n" --image 64x64 --batch 16 --backend dry $policy --json || continue
        limit=$((layers / 5000))
        [ $layers = 100000 ] && limit=$((limit * 3 / 2)) # log-linear, and caches end
        at_most "$layers layers, program" "$(member out program_made_s)" $limit
        at_most "$layers layers, plan, $policy" "$(member out plan_made_s)" $limit
    done
done
exit $status
