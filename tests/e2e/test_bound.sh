#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# What `ebb plan` says of the time that no plan can beat: above computing alone where memory is short, never above what
# the plan takes, and close to it. And the least budget that it names: plans for budgets just above need no less.
. "$(dirname "$0")/lib.sh"

# 7 TFLOP/s, and a link of 12 GB/s each way.
cat >machine.json <<END
{"format": "ebb-machine", "version": 1,
 "links": {"host": {"in_bytes_per_s": 1.2e10, "out_bytes_per_s": 1.2e10, "latency_ns": 10000}},
 "rates": {"flops_per_s": 7e12, "bytes_per_s": 4e11, "overhead_ns": 5000}}
END
options="--backend dry --batch 64 --machine machine.json --json"

at_most() { # name, number, limit
    check "$1: $2 is at most $3" awk -v a="$2" -v b="$3" 'BEGIN { exit !(a <= b) }'
}

# Larger networks, and more budgets, are asked where all tests run.
gaps="resnet20 30% 0.05"
[ -z "$EBB_TEST_ALL" ] || gaps="$gaps
resnet50 30% 0.03
resnet50 50% 0.02
densenet121 50% 0.06"
# shellcheck disable=SC2086
while read -r net percent most; do
    run "$net at $percent" out plan "$net" $options --memory "$percent" -o "$net.plan" || continue
    [ "$net" != resnet20 ] || cp out usual # what follows compares with it
    at_most "$net at $percent: the bound" "$(member out bound_step_time_s)" "$(member out step_time_predicted_s)"
    at_most "$net at $percent: the gap" "$(member out gap)" "$most"
    at_most "$net at $percent: it is not below" 0 "$(member out gap)"
    equal "$net at $percent: by prices" "$(member out bound_step_time_rule)" prices
done <<END
$gaps
END

# Near the least budget of VGG16 nothing of its first layers can be computed again while their gradients are there: what
# is behind them has to be copied instead. A card's rates: copying is dear beside computing.
cat >card.json <<END
{"format": "ebb-machine", "version": 1,
 "links": {"host": {"in_bytes_per_s": 5.5e10, "out_bytes_per_s": 5.5e10, "latency_ns": 7000}},
 "rates": {"flops_per_s": 1.67e14, "bytes_per_s": 3.75e12, "overhead_ns": 2000}}
END
run "little room" out plan vgg16 --backend dry --batch 128 --machine card.json --memory 42% --effort 0 --json &&
    at_most "little room: the gap" "$(member out gap)" 0.7

# shellcheck disable=SC2086
run "all that is needed" out plan resnet50 $options --memory 100% &&
    equal "all that is needed: no gap" "$(member out bound_step_time_rule) $(member out gap)" "compute 0"
# shellcheck disable=SC2086
run "another order" out plan resnet50 $options --policy order &&
    equal "another order: prices are for the program's own" "$(member out bound_step_time_rule)" compute
# shellcheck disable=SC2086
run "more effort" out plan resnet20 $options --memory 30% --effort 0 && quick=$(member out bound_step_time_s) &&
    at_most "more effort, a higher bound" "$quick" "$(member usual bound_step_time_s)"
# shellcheck disable=SC2086
check "a plan: its file has the bound" grep -qE '^bound ns [0-9]+ prices$' resnet20.plan &&
    run "a plan that is checked" out plan resnet20 $options --check resnet20.plan &&
    check "a plan that is checked: no gap, as its bound may be another machine's" [ "$(grep -c '"gap"' out)" = 0 ] &&
    equal "a plan that is checked: its bound" "$(member out bound_step_time_rule)" prices

# The question the other way round: how little memory, for how much time.
least=
for slowdown in 0% 5%; do
    # shellcheck disable=SC2086
    run "within $slowdown" out plan resnet20 $options --slowdown $slowdown --effort 0 || continue
    check "within $slowdown: less than liveness" \
        test "$(member out peak_planned_bytes)" -lt "$(member out liveness_bytes)"
    check "within $slowdown: less than before" test "$(member out peak_planned_bytes)" -lt "${least:-$(member out liveness_bytes)}"
    least=$(member out peak_planned_bytes)
    took=$(member out step_time_predicted_s)
    run "all that is needed" out plan resnet20 $options --memory 100% &&
        check "within $slowdown: it is" awk -v a="$took" -v b="$(member out step_time_predicted_s)" -v s="$slowdown" \
            'BEGIN { exit !(a <= b * (1 + s / 100) + 1e-8) }'
done
# shellcheck disable=SC2086
complains "too fast for a budget" 1 "no plan that fast was found: within the budget an iteration takes [0-9.]+ % more than without" \
    plan resnet20 --backend dry --batch 64 --machine machine.json --memory 30% --slowdown 0% --effort 0

# Nothing that a larger budget finds is far below the least that is named, and what is named is accepted.
least_of="mlp 50 28x28
mlp 256 28x28"
long "the named least budget of a residual network" && least_of="$least_of
resnet:1,1,1,1 4 24x24"
while read -r net batch image; do
    "$EBB" plan "$net" --backend dry --batch "$batch" --image "$image" --memory 1 --json >out 2>err
    least=$(member out least_budget_bytes)
    for percent in 100 102 105; do
        run "$net at $percent % of its least budget" out plan "$net" --backend dry --batch "$batch" --image "$image" --json \
            --effort 0 --memory $((least * percent / 100)) || continue
        at_most "$net: the named least budget, 99 % of it" "$((least * 99 / 100))" "$(member out peak_planned_bytes)"
    done
done <<END
$least_of
END
says "a slowdown that is no per cent" 2 "ebb: plan: --slowdown takes a per cent, as in 5%, not '5'" plan lenet --slowdown 5
exit $status
