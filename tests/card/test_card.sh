#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# The backend cuda on a card (`make test-cuda`, which builds without the host's sanitizers: they and CUDA's do not go
# together): the conformance suite, the same bits under every plan, with and without graphs, and training and the suite
# under compute-sanitizer's tools, where it is. EBB names the program, beside or below which test_conformance_cuda lies;
# BACKEND another backend. Without a card all is skipped.
. "$(dirname "$0")/../e2e/lib.sh"
on="--backend ${BACKEND:=cuda}"

suite=$(find "$(dirname "$EBB")" -name "test_conformance_$BACKEND" -type f -perm -u+x 2>/dev/null | head -n 1)
sanitizer=$(PATH=$PATH:${CUDA_HOME:-/usr/local/cuda}/bin:/usr/local/cuda/compute-sanitizer command -v compute-sanitizer)
tools="memcheck racecheck initcheck"
small="train resnet18 --image 32x32 --batch 4 --classes 10 --steps 5 $on --memory 60% --json"

# good NAME COMMAND...: it ends well; what it said is shown if not.
good() {
    name=$1
    shift
    if "$@" >said 2>&1 </dev/null; then pass "$name"; else fail "$name" "$*" "$(tail -n 40 said)"; fi
}

# shellcheck disable=SC2086
"$EBB" probe $on >out 2>err
if [ $? = 5 ]; then
    why=$(sed 's/^ebb: //' err)
    for case in "conformance" "bits" "captured beside streams"; do skip "$case" "$why"; done
    for tool in $tools; do skip "$tool: conformance" "$why" && skip "$tool: training" "$why"; done
    exit $status
fi

[ -z "$suite" ] || good "conformance" "$suite"
[ -n "$suite" ] || fail "conformance" "there is no test_conformance_$BACKEND beside $EBB"
ON=$on EBB=$EBB "$root/tests/e2e/test_bits.sh" | sed 's/^\(not ok\|ok\) - /&captured: /'
ON="$on --no-capture" EBB=$EBB "$root/tests/e2e/test_bits.sh" | sed 's/^\(not ok\|ok\) - /&streams: /'
# shellcheck disable=SC2086
run "captured" captured $small && run "streams" streams $small --no-capture &&
    equal "captured beside streams" "$(losses captured) $(member captured weights_sha256)" \
        "$(losses streams) $(member streams weights_sha256)"

for tool in $tools; do
    if [ -z "$sanitizer" ]; then
        skip "$tool" "there is no compute-sanitizer"
        continue
    fi
    check="$sanitizer --tool $tool --error-exitcode 9 --target-processes all"
    # shellcheck disable=SC2086
    [ -z "$suite" ] || good "$tool: conformance" $check "$suite"
    # shellcheck disable=SC2086
    good "$tool: training" $check "$EBB" $small
done
exit $status
