#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# `ebb plan` takes a recording: one iteration of it becomes a program, whose liveness peak is that of the recording to
# the byte where the recording tells when each block is used, or nothing but malloc and free.
. "$(dirname "$0")/lib.sh"

# How much the search does is not what this asks; its default is tried where all tests run.
effort="--effort 0"
[ -z "$EBB_TEST_ALL" ] || effort=

# plan NAME ARGUMENTS...: its figures in out, its notes in err.
plan() {
    name=$1
    shift
    # shellcheck disable=SC2086
    "$EBB" plan "$@" $effort --json >out 2>err </dev/null && return 0
    fail "$name" "ebb plan $*" "exit $?" "$(cat err)"
    return 1
}

run "record ResNet-50" out train resnet50 --backend dry --batch 2 --steps 4 --record-steps 3 --record r.trace &&
    "$EBB" report r.trace --json >report
plan "ResNet-50" ./r.trace --policy liveness
cp out from_trace
equal "the liveness peak is the recording's own" "$(member out bound_bytes)" "$(member out recording_peak_bytes)"
check "which is the report's" grep -q "\"peak_bytes\":* *$(member out bound_bytes)[,}]" report
equal "three iterations were found" "$(member out recording_iterations)" 3
check "a note says which iteration it is" grep -q "note: ./r.trace: of 3 iterations found" err
check "a note says that no step is run again" grep -q "does not tell which steps can be run again" err
plan "the network itself" resnet50 --backend dry --batch 2 --policy liveness
for figure in tensors steps; do
    equal "as many $figure as the network" "$(member from_trace $figure)" "$(member out $figure)"
done

plan "ResNet-50 in less" ./r.trace --memory 60% --program-out r.program
equal "nothing is computed again" "$(member out recomputed_steps)" 0
check "but something moves" [ "$(member out moved_in_bytes)" -gt 0 ]
cp out in_less
plan "the program that was written" ./r.program --memory 60%
for figure in peak_planned_bytes moved_in_bytes step_time_predicted_s; do
    equal "its file gives the same $figure" "$(member out $figure)" "$(member in_less $figure)"
done
check "a program has no notes" [ ! -s err ]
check "steps of a recording are told never to be repeated" grep -q '^step .* backward never ' r.program
check "and have their time" grep -q '^step .* time [0-9]*$' r.program

plan "the recording, proven" ./r.trace --memory 60% --check-hazards -o r.plan
cp out of_trace
plan "its program, proven" ./r.program --memory 60% --check-hazards
for figure in proven_iterations proven_pairs proven_versions waits; do
    check "there are $figure" test "$(member out $figure)" -gt 0
    equal "the program has the same $figure" "$(member out $figure)" "$(member of_trace $figure)"
done
equal "a program has no graphs" "$(member out proven_pairs_as_graphs)" 0
plan "a plan that was written, proven" ./r.program --check r.plan --check-hazards
equal "it is the same" "$(member out proven_pairs)" "$(member of_trace proven_pairs)"
# shellcheck disable=SC2086
run "the proof as a table" table plan ./r.program $effort --memory 60% --check-hazards &&
    check "the proof as a table" grep -q "^free of hazards  *5 iterations" table &&
    check "the table has no graphs" grep -q "^conflicts in order  *[0-9]*$" table

printf 'pointer_lifetimes\n' >other.txt
complains "a file that is neither" 3 "not a program" plan ./other.txt
printf '{"traceEvents": [{"ph": "X", "name": "a", "ts": 1, "dur": 2, "pid": 1, "tid": 1}]}' >bare.json
complains "a recording without memory" 3 "no .memory. events" plan ./bare.json
complains "the same, compared" 3 "no .memory. events" compare ./bare.json
gzip -k r.trace
plan "a gzipped recording" ./r.trace.gz --policy liveness
equal "is the same" "$(member out bound_bytes)" "$(member from_trace bound_bytes)"
head -c 150000 r.trace >cut.trace
plan "a recording that was cut off" ./cut.trace && check "is said to be" grep -q "cut" err

# What ebb.torch records takes longer than the program alone, as Python sees each operator.
check "a run of ebb's is not slowed by its recording" [ "$(grep -c slowed err)" = 0 ]
PYTHONDONTWRITEBYTECODE=1 PYTHONPATH=$root/python python3 -c '
from ebb import trace
w = trace.Writer("slow.trace", trace.TELLS_TIMES)
w.note("source", "ebb.torch")
for i in range(3):
    w.alloc(i, 1000, 9)
w.close()' || fail "a trace of ebb.torch" "none was made"
plan "a recording of ebb.torch" ./slow.trace --policy liveness
check "a note says that its steps were slowed" grep -q "^ebb: note: ./slow.trace: recording slowed its steps" err
check "and who plans for the program itself" grep -q "^ebb: note: ebb.torch.plan and ebb.torch.Budget" err

# Mallocs and frees alone: 100 bytes stay, 50 and 70 come and go.
printf 'id,lower,upper,size\nw,0,9,100\na,1,3,50\nb,2,4,70\nc,5,7,50\nd,6,8,70\n' >m.csv
plan "mallocs and frees alone" ./m.csv --policy liveness
equal "their peak is the recording's" "$(member out bound_bytes)" 220
check "a note says that all of it is taken" grep -q "no iteration was found" err
check "a note says what is not told" grep -q "tells no reads and writes" err
exit $status
