#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# `ebb train --plan`: a plan that was made before is followed, with the bits of any other plan; one that is for another
# network, does not fit the host, or is no plan is refused before anything is trained. `--improve`: the bits stay, whenever
# a better plan is taken.
. "$(dirname "$0")/lib.sh"
export COLUMNS=$wide
net="resnet20 --batch 4"
machine

# shellcheck disable=SC2086
run "training without a plan" free train $net $ON --machine machine --steps 3 --seed 2 --json &&
    run "a plan" made plan $net $ON --machine machine --memory 45% --no-recompute $effort -o half.plan --json &&
    run "training with it" followed train $net $ON --machine machine --plan half.plan --steps 3 --seed 2 --json
equal "the same bits" "$(losses followed) $(member followed weights_sha256)" "$(losses free) $(member free weights_sha256)"
equal "its peak" "$(member followed peak_planned_bytes)" "$(member made peak_planned_bytes)"
equal "its copies" "$(member followed moved_out_bytes)" "$(member made moved_out_bytes)"
check "which are some" test "$(member made moved_out_bytes)" -gt 0
equal "its policy" "$(member followed policy)" best
equal "its budget" "$(member followed budget_bytes)" "$(member made budget_bytes)"

# shellcheck disable=SC2086
refused() { # NAME CODE MESSAGE OPTIONS...
    name=$1 code=$2 message=$3
    shift 3
    "$EBB" train $ON --machine machine --steps 1 "$@" >out 2>err
    equal "$name: exit code" $? "$code"
    check "$name: says so" grep -q -- "$message" err
    check "$name: names the file or the option" grep -q -e half.plan -e broken.plan -e nothing.plan -e --plan err
}
sed '4,9d' half.plan >broken.plan
refused "another batch" 1 "half.plan: plan: it is for another program .*: another network, batch, image, optimizer or backend" resnet20 --batch 8 --plan half.plan
refused "another optimizer" 1 "another program" resnet20 --batch 4 --optimizer adam --plan half.plan
refused "lines are missing" 3 "broken.plan:" resnet20 --batch 4 --plan broken.plan
refused "no file" 4 "No such file" resnet20 --batch 4 --plan nothing.plan
refused "no room on the host" 1 "host-memory" resnet20 --batch 4 --plan half.plan --host-memory 0
# shellcheck disable=SC2086
run "a plan with a disk" out plan $net $ON --machine machine --memory 45% --no-recompute --host-memory 0 --disk . $effort -o half.plan &&
    refused "without the disk" 2 "bytes in the tier disk; add --disk DIR" resnet20 --batch 4 --plan half.plan
# shellcheck disable=SC2086
run "a plan with a remote" out plan $net $ON --machine machine --memory 45% --no-recompute --host-memory 0 --remote 1GiB \
    $effort -o half.plan &&
    refused "without the remote" 2 "bytes in the tier remote; add --remote SIZE" resnet20 --batch 4 --plan half.plan
# shellcheck disable=SC2086
complains "checked for a machine without it" 2 "copies between the tiers 'device' and 'remote'; the machine has no such" \
    plan $net $ON --machine machine --check half.plan
for option in "--memory 4MiB" "--memory 40%" "--slowdown 0%" "--margin 5%" "--policy best" "--algorithms given" --no-recompute; do
    # shellcheck disable=SC2086
    refused "with $option" 2 "has decided" resnet20 --batch 4 --plan half.plan $option
done

# How algorithms are chosen is the plan's, and a checkpoint says so.
# shellcheck disable=SC2086
run "a plan with its own algorithms" made plan $net $ON --machine machine --memory 45% --algorithms fitting $effort -o own.plan --json &&
    run "training with them" out train $net $ON --machine machine --plan own.plan --steps 1 --checkpoint state --json &&
    equal "the way is the plan's" "$(member out algorithms)" fitting
# shellcheck disable=SC2086
"$EBB" train $net $ON --machine machine --memory 45% --algorithms fitting $effort --steps 2 --checkpoint state >out 2>err
equal "going on without it: no other algorithms" "$? $(grep -c algorithms err)" "0 0"
# shellcheck disable=SC2086
"$EBB" train $net $ON --machine machine --memory 45% $effort --steps 3 --checkpoint state >out 2>err
check "going on in another way: warned of" grep -q algorithms err

# With evaluation the two networks share one arena, the plan's.
if [ -e "$digits" ]; then
    small="resnet_cifar:1 --batch 32 --classes 10"
    # shellcheck disable=SC2086
    run "a plan for digits" made plan $small --image 8x8 --channels 1 $ON --memory 60% $effort -o digits.plan --json &&
        run "digits" evaluated train $small $ON --data "digits:$digits" --plan digits.plan --steps 4 --eval --json &&
        equal "digits: the plan's peak" "$(member evaluated peak_planned_bytes)" "$(member made peak_planned_bytes)" &&
        check "digits: evaluated" test -n "$(member evaluated accuracy)"
fi

# A better plan while training goes on: how soon it is there is chance, so is whether this sees it. What must hold does.
# shellcheck disable=SC2086
run "training that may improve its plan" improved train $net $ON --machine machine --memory 45% --effort 0 --improve 1 \
    --steps 3 --seed 2 --json &&
    equal "its bits" "$(losses improved) $(member improved weights_sha256)" "$(losses free) $(member free weights_sha256)"
check "its peak is within the budget" test "$(member improved peak_planned_bytes)" -le "$(member improved budget_bytes)"
equal "a step by which it was improved, or none" "$(member improved improved_at_step | grep -cE '^[0-3]$')" 1
# shellcheck disable=SC2086
complains "no budget" 2 "needs a budget: add --memory SIZE" train $net --improve 1
# shellcheck disable=SC2086
complains "--improve with a plan" 2 "does not go with --plan" train $net --plan half.plan --improve 1
# shellcheck disable=SC2086
complains "--improve with another policy" 2 "does not go with other policies" train $net --memory 45% --improve 1 --policy budget
for option in "--slowdown 5%" "--host-memory 1GiB" "--algorithms fitting"; do
    # shellcheck disable=SC2086
    complains "--improve with $option" 2 "does not go with ${option%% *}" train $net --memory 45% --improve 1 $option
done
exit $status
