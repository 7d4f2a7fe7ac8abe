#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# --algorithms: the default is the backend's choice and its bits are the same at every budget; each other way trains, gives
# equal bits in equal runs, and is told; a checkpoint goes on with another way, and that is said.
. "$(dirname "$0")/lib.sh"

# Strided convolutions of one pixel are among those for which the backend may have several.
net="resnet:1,2,4,2 --image 32x32 --batch 2 --classes 10"
[ -z "$EBB_TEST_ALL" ] || net="resnet50 --image 32x32 --batch 2 --classes 10"
"$EBB" probe $net -o machine >out 2>err || fail "machine" "$(cat err)"
# The choice of algorithms is the same for all policies; the default, which searches longest, is asked where all tests run.
policy="--policy budget"
[ -z "$EBB_TEST_ALL" ] || policy=
train="train $net $policy --steps 3 --seed 5 --machine machine --effort 0 --json"

bits() { # file
    echo "$(losses "$1") $(member "$1" weights_sha256)" | tr '\n' ' '
}

# shellcheck disable=SC2086
run "default" out $train || exit 1
equal "default: it is given" "$(member out algorithms)" given
wanted=$(bits out)
for percent in 70% 40%; do
    # shellcheck disable=SC2086
    run "given at $percent" out $train --algorithms given --memory $percent &&
        equal "given at $percent: the same bits" "$(bits out)" "$wanted"
done
for way in least fitting fastest; do
    for round in 1 2; do
        # shellcheck disable=SC2086
        run "$way" out$round $train --memory 50% --algorithms $way || exit 1
    done
    equal "$way: the same bits in equal runs" "$(bits out1)" "$(bits out2)"
    equal "$way: it is told" "$(member out1 algorithms)" $way
    equal "$way: measured peak is planned peak" "$(member out1 peak_measured_bytes)" "$(member out1 peak_planned_bytes)"
done

# shellcheck disable=SC2086
run "a plan" out plan $net $policy --machine machine --memory 40% --effort 0 --algorithms fitting -o fitting.plan --json &&
    equal "a plan: told" "$(member out algorithms)" fitting
equal "a plan: the file says it" "$(grep '^algorithms' fitting.plan)" "algorithms fitting"
fitting_s=$(member out step_time_predicted_s)
for way in given least fastest; do
    # shellcheck disable=SC2086
    run "a plan of $way" out plan $net $policy --machine machine --memory 40% --effort 0 --algorithms $way --json || continue
    check "fitting is not slower than $way" \
        awk "BEGIN { exit !($fitting_s <= $(member out step_time_predicted_s)) }"
done
# shellcheck disable=SC2086
run "its check" out plan $net --machine machine --check fitting.plan && check "its check: told" grep -q '^algorithms  *fitting$' out

# shellcheck disable=SC2086
run "a checkpoint" out $train --checkpoint state --algorithms fitting &&
    run "goes on with another" out train $net $policy --steps 4 --seed 5 --machine machine --checkpoint state &&
    check "goes on with another: it is said" grep -q "algorithms was 'fitting, choices [0-9a-f]*', is now 'given'" err
complains "a way that is none" 2 "no way to choose algorithms is called 'quick'" plan lenet --algorithms quick
check "help names the ways" sh -c "\"$EBB\" help train | grep -q '^  fitting '"
exit $status
