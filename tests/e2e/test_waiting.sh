#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# Threads sleep while they wait for each other, unless the user says otherwise: a busy machine is shared, not fought for.
. "$(dirname "$0")/lib.sh"
unset OMP_WAIT_POLICY GOMP_SPINCOUNT KMP_BLOCKTIME

# Start the training in the background with these settings of the environment, and take its environment down.
environment_of() {
    env "$@" "$EBB" train mlp --batch 4 --steps 100000000 >out 2>err </dev/null &
    pid=$!
    for _ in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20; do
        sleep 0.1
        [ -s out ] && break # it trains
    done
    tr '\0' '\n' <"/proc/$pid/environ" >environment
    program=$(cat "/proc/$pid/comm")
    tr '\0' ' ' <"/proc/$pid/cmdline" >line
    kill "$pid"
    wait "$pid" 2>/dev/null
}

"$EBB" help train | grep -q '^  cpu ' || {
    skip "threads sleep" "this build has no OpenMP"
    exit $status
}
environment_of A=b
check "threads sleep" grep -qx 'OMP_WAIT_POLICY=passive' environment
equal "the program keeps its name" "$program" "$(basename "$EBB")"
equal "and its arguments" "$(cat line)" "$EBB train mlp --batch 4 --steps 100000000 "
for own in OMP_WAIT_POLICY=active GOMP_SPINCOUNT=1000 KMP_BLOCKTIME=5; do
    environment_of $own
    check "$own is kept" grep -qx $own environment
    check "$own alone" test -z "$(grep OMP_WAIT_POLICY environment | grep -v "^$own$")"
done

"$EBB" record -o recorded -- "$EBB" train mlp --batch 4 --steps 2 >out 2>err
equal "a recording has it in one file" "$(echo recorded*)" recorded

run "asleep" asleep train resnet20 --batch 4 --steps 3 --json
OMP_WAIT_POLICY=active run "awake" awake train resnet20 --batch 4 --steps 3 --json
equal "the same bits" "$(member awake weights_sha256)" "$(member asleep weights_sha256)"
exit $status
