#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# Copies alone: the policy swap, --no-recompute and --host-memory 0; and the curve of one policy over all budgets.
. "$(dirname "$0")/lib.sh"

# 7 TFLOP/s, and a link of 12 GB/s each way.
cat >machine.json <<END
{"format": "ebb-machine", "version": 1,
 "links": {"host": {"in_bytes_per_s": 1.2e10, "out_bytes_per_s": 1.2e10, "latency_ns": 10000}},
 "rates": {"flops_per_s": 7e12, "bytes_per_s": 4e11, "overhead_ns": 5000}}
END
options="--backend dry --batch 64 --machine machine.json --json"

for policy in "swap" "best --no-recompute --effort 0" "best --no-recompute --effort 1" "budget --no-recompute"; do
    # shellcheck disable=SC2086
    run "$policy" out plan resnet_cifar:1 $options --memory 40% --policy $policy || continue
    equal "$policy: nothing is computed again" "$(member out recomputed_steps)" 0
    check "$policy: something is copied" test "$(member out moved_out_bytes)" -gt 0
    [ "$policy" = "swap" ] && swap=$(member out step_time_predicted_s)
    [ "$policy" = "budget --no-recompute" ] &&
        check "swap is not slower than the farthest next use" awk -v a="$swap" -v b="$(member out step_time_predicted_s)" \
            'BEGIN { exit !(a <= b) }'
done
# Of all rules that best asks, none that computes again is taken; a larger network has more of them.
ruled=resnet20
[ -z "$EBB_TEST_ALL" ] || ruled=resnet50
# shellcheck disable=SC2086
run "with all that there is" out plan $ruled $options --memory 50% &&
    check "with all that there is: something is computed again" test "$(member out recomputed_steps)" -gt 0
# shellcheck disable=SC2086
run "a rule would be faster" out plan $ruled $options --memory 50% --no-recompute &&
    equal "best: nothing is computed again" "$(member out recomputed_steps)" 0
for policy in budget best; do
    # shellcheck disable=SC2086
    run "$policy" out plan resnet_cifar:1 $options --effort 0 --memory 60% --host-memory 0 --policy $policy || continue
    equal "$policy with --host-memory 0: nothing is copied" "$(member out moved_out_bytes) $(member out moved_in_bytes)" "0 0"
    check "$policy with --host-memory 0: something is computed again" test "$(member out recomputed_steps)" -gt 0
done
# shellcheck disable=SC2086
complains "neither copies nor recomputation" 1 "too small for policy best" \
    plan resnet_cifar:1 --backend dry --memory 60% --host-memory 0 --no-recompute --effort 0
complains "a policy that recomputes" 1 "policy recompute-speed computes steps again, and no_recompute forbids it" \
    plan resnet_cifar:1 --backend dry --memory 90% --policy recompute-speed --no-recompute

# AutoSwap by each of its scores; the recorded choices are what the script says.
for score in doa aoa wdoa swdoa vote bo; do
    # shellcheck disable=SC2086
    run "autoswap-$score" out plan resnet_cifar:1 $options --memory 90% --policy autoswap-$score || continue
    check "autoswap-$score: something is copied, nothing is computed again" \
        test "$(member out moved_out_bytes)" -gt 0 -a "$(member out recomputed_steps)" = 0
done
# shellcheck disable=SC2086
run "as coded" out plan resnet_cifar:1 $options --memory 90% --policy autoswap-wdoa --as-coded
check "the recorded choices are the script's" sh -c "python3 '$root/tests/golden/autoswap.py' | cmp - '$root/tests/golden/autoswap.txt'"

# Zero overhead: as long as without a budget, in less memory.
# shellcheck disable=SC2086
run "without a budget" all plan resnet_cifar:1 $options --memory 100% --policy liveness
# shellcheck disable=SC2086
run "zero overhead" out plan resnet_cifar:1 $options --effort 0 --slowdown 0% --policy swap &&
    equal "zero overhead: the same time" "$(member out step_time_predicted_s)" "$(member all step_time_predicted_s)" &&
    check "zero overhead: a tenth less at least" test $((10 * $(member out peak_planned_bytes))) -lt \
        $((9 * $(member all peak_planned_bytes)))

# More effort goes on where less would have stopped.
# shellcheck disable=SC2086
run "more effort" more plan resnet_cifar:1 $options --effort 3 --memory 40% --policy swap && check "more effort is not slower" \
    awk -v more="$(member more step_time_predicted_s)" -v swap="$swap" 'BEGIN { exit !(more <= swap) }'

# A network that has no plan at the smallest budget.
# shellcheck disable=SC2086
run "a curve" out plan alexnet $options --effort 0 --policy swap --curve curve.csv
equal "a curve: it says what it wrote" "$(grep -v '^ebb: note: ' err)" "ebb: wrote curve.csv"
equal "a curve: a line for each budget" "$(wc -l <curve.csv)" 25
check "a curve: more memory is never slower, and once there is a plan there is one from there on" python3 - <<'END'
import csv
rows = sorted(csv.DictReader(open("curve.csv")), key=lambda row: int(row["budget_bytes"]))
times = [float(row["time_s"]) for row in rows if row["time_s"]]
assert len(times) > 8, times
assert times == sorted(times, reverse=True), times
assert len(times) < len(rows), times
assert all(row["time_s"] for row in rows[len(rows) - len(times):])
assert times[0] > times[-1], times
assert all(int(row["peak_bytes"]) <= int(row["budget_bytes"]) for row in rows if row["time_s"])
assert all(row["recomputed_steps"] in ("", "0") for row in rows)
END
run "a curve's table" out plan lenet --backend dry --batch 16 --effort 0 --policy swap --host-memory 0 --curve table.svg
equal "a curve's table: one heading" "$(grep -cE '^ +budget +peak .* bound +gap$' out)" 1
equal "a curve's table: a row for each budget" "$(sed '1,/ peak .* gap$/d' out | grep -cE '^ +[0-9.]+ MiB +(no plan$|[0-9.]+ MiB )')" 24
check "a curve's table: a budget without a plan says so" grep -qE '^ +[0-9.]+ MiB +no plan$' out
complains "a curve of one budget" 2 "--curve is about many plans" plan lenet --curve a.svg --memory 50%
complains "a curve in another format" 2 "--curve does not write .png" plan lenet --curve a.png
says "a curve in no format" 2 "ebb: plan: --curve does not write 5: it writes a file that ends in svg, csv" plan lenet --curve 5
complains "a curve that has nowhere to go" 4 "no/such" plan lenet --curve no/such/a.svg
exit $status
