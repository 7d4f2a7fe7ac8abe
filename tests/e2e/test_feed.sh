#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# `--feed early`: each batch is copied in during the iteration before. The bits are those of `--feed first`, with a
# budget, a checkpoint in the middle, a plan from a file, a limit of the host's memory, and an evaluation after each
# epoch.
. "$(dirname "$0")/lib.sh"
machine
net="lenet --batch 32 --seed 4 --machine machine"

# shellcheck disable=SC2086
for way in first early; do
    run "24 steps, $way" $way train $net $ON --feed $way --steps 24 --json &&
        run "within a budget, $way" tight_$way train $net $ON --feed $way --steps 24 --memory 70% $effort --json
    equal "$way: its peak" "$(member tight_$way peak_measured_bytes)" "$(member tight_$way peak_planned_bytes)"
done
wanted=$(member first weights_sha256)
equal "the same bits" "$(losses early) $(member early weights_sha256)" "$(losses first) $wanted"
equal "the same bits within a budget" "$(losses tight_early) $(member tight_early weights_sha256)" "$(losses first) $wanted"

# shellcheck disable=SC2086
run "the first steps" out train $net $ON --feed early --steps 11 --checkpoint state --json &&
    run "the others, fed first" out train $net $ON --feed first --steps 24 --checkpoint state --json &&
    equal "the weights after a checkpoint" "$(member out weights_sha256)" "$wanted"
# shellcheck disable=SC2086
run "one step alone" one train $net $ON --feed early --steps 1 --json &&
    equal "its loss" "$(losses one)" "$(losses first | head -n 1)"

# shellcheck disable=SC2086
run "a plan" made plan lenet --batch 32 $ON --machine machine --feed early --memory 70% $effort -o early.plan \
    --check-hazards --json &&
    run "following it" out train $net $ON --feed early --steps 24 --plan early.plan --json &&
    equal "the weights of the plan" "$(member out weights_sha256)" "$wanted"
# shellcheck disable=SC2086
complains "the plan of the other program" 1 "another program" train $net $ON --feed first --steps 2 --plan early.plan
# shellcheck disable=SC2086
complains "another word" 2 "a batch comes first or early" train $net $ON --feed late
# shellcheck disable=SC2086
run "host memory" out train $net $ON --feed early --steps 24 --memory 70% --host-memory 64MiB $effort --json &&
    equal "the weights within it" "$(member out weights_sha256)" "$wanted"

if [ -f "$digits" ]; then
    # shellcheck disable=SC2086
    for way in first early; do
        run "digits, $way" $way train mlp $ON --data "digits:$digits" --feed $way --epochs 3 --eval --json
    done
    equal "the same losses and weights" "$(losses early) $(member early weights_sha256)" \
        "$(losses first) $(member first weights_sha256)"
    equal "the same accuracy" "$(member early accuracy)" "$(member first accuracy)"
fi
exit $status
