#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# The progress line: never two seconds of silence. On a terminal it is within the width and gone at the end; where
# stderr is no terminal, work of less than two seconds prints nothing.
. "$(dirname "$0")/lib.sh"
unset EBB_PROGRESS_S

# on NAME COLUMNS ARGUMENTS...: ebb ends well on a terminal of that width; what happened is in the file `terminal`.
on() {
    title=$1 columns=$2
    shift 2
    python3 "$root/tests/e2e/terminal.py" "$columns" "$EBB" "$@" >terminal 2>err || fail "$title" "$(cat err)"
    equal "$title" "$(figure exit)" 0
    check "$title: never silent for two seconds" test "$(figure silence)" -lt 20
    check "$title: no line reaches column $columns" test "$(figure columns)" -lt "$columns"
    check "$title: a line is redrawn" test "$(figure drawn)" -ge 2
    check "$title: no line stays" test -z "$(sed -n 's/^left: //p' terminal | grep -E '^(step [0-9]+ of|measuring|planning|searching|finding|evaluating|placing|reading)')"
}

figure() {
    sed -n "s/^$1 //p" terminal
}

has_terminals || {
    skip "the progress line" "this machine gives no terminals"
    exit 77
}
# The judge itself: a silent program is silent.
python3 "$root/tests/e2e/terminal.py" 80 sleep 1.2 >terminal
check "silence is seen" test "$(figure silence)" -ge 4
# plain C: its kernels and steps take long
on "train" 100 train resnet_cifar:1 --backend ref --batch 12 --steps 2
check "kernels are counted" grep -q '^line: measuring kernels N of N' terminal
check "steps too, with the time left" grep -q '^line: step N of N, N s left: loss N' terminal
check "its output is as without a terminal" grep -q "^left: resnet_cifar:1 on ref: batch 12" terminal
# small steps, and enough of them that the time left is known
on "train on a narrow terminal" 31 train resnet_cifar:1 --backend ref --batch 8 --steps 5
check "what is too long is cut" grep -q '^line: step N of N, N s left: l' terminal
if [ -e "$digits" ]; then
    on "an evaluation" 60 train resnet_cifar:1 --backend ref --data "digits:$digits" --batch 64 --steps 1
    check "it is counted in images" grep -q '^line: evaluating N of N' terminal
else
    skip "an evaluation" "there is no $digits"
fi

# a search that goes on as long as it may
awk 'BEGIN { srand(7); print "id,lower,upper,size"
    for (i = 0; i < 30000; i++) { a = int(rand() * 40000); print i "," a "," a + 1 + int(rand() * 900) "," 1 + int(rand() * 5000) } }' >buffers.csv
on "place" 80 place buffers.csv --time 2.2
check "it says which solver" grep -q '^line: placing by best' terminal
if [ -n "$EBB_TEST_MORE" ]; then
    on "probe" 80 probe resnet_cifar:1 --backend ref --batch 12 --reps 2
    check "it says what is measured" grep -q '^line: measuring' terminal
fi

# a search, and the budgets of a slowdown
on "a search" 60 plan resnet_cifar:1 --batch 64 --memory 50% --host-memory 0 --backend dry
check "it says how far it is" grep -q '^line: searching, part N of N' terminal
long "a slowdown" && on "a slowdown" 60 plan resnet_cifar:1 --batch 64 --slowdown 5% --effort 0 --backend dry &&
    check "its budgets are counted, with the time left" grep -q '^line: planning for budget N of N, N s left' terminal

for command in "train mlp --batch 4 --steps 3" "plan lenet"; do
    # shellcheck disable=SC2086
    run "no terminal: $command" out $command
    empty "no terminal, short work, no line: ${command%% *}" "$(cat err)"
done

# piped NAME CODE ARGUMENTS...: the same without a terminal; what was written is in the file `terminal`.
piped() {
    title="no terminal: $1" code=$2
    shift 2
    python3 "$root/tests/e2e/terminal.py" 0 "$EBB" "$@" >terminal 2>err || fail "$title" "$(cat err)"
    equal "$title" "$(figure exit)" "$code"
    check "$title: never silent for two seconds" test "$(figure silence)" -lt 20
    check "$title: it says what it does" grep -qE '^left: ebb: [a-z ]+( [0-9]+ of [0-9]+)?[:,] [0-9]+ s (left|so far)' terminal
}
piped "work of seconds" 0 place buffers.csv --time 3.5
if long "no terminal: plans of seconds"; then
    piped "a slowdown" 0 plan resnet20 --batch 64 --slowdown 5% --effort 0
    piped "a curve" 0 plan lenet --batch 64 --curve c.svg
    piped "a comparison" 0 compare mlp --batch 64
    piped "a refusal" 1 train resnet50 --batch 4 --memory 1MiB
fi

# Here a line every 0.025 s. The steps are long enough for that, and together for the time left, on a machine several
# times faster than the usual one.
EBB_PROGRESS_S=0.025 "$EBB" train resnet_cifar:1 --backend ref --batch 8 --steps 5 --threads 1 >out 2>err
equal "no terminal, long work: it ends well" $? 0
check "no terminal, long work: kernels are counted" grep -q '^ebb: measuring kernels [0-9]* of [0-9]*$' err
check "no terminal, long work: the first step" grep -q '^ebb: step 0 of 5' err
check "no terminal, long work: the time left" grep -q '^ebb: step [0-9]* of 5, [0-9]* s left: loss' err
equal "no terminal, long work: whole lines" "$(grep -cv '^ebb: [a-z][^[:cntrl:]]*$' err)" 0
check "no terminal, long work: the output is the same" grep -q '^step 5: loss' out
EBB_PROGRESS_S=0 "$EBB" train resnet_cifar:1 --backend ref --batch 2 --steps 1 >out 2>err
equal "no terminal, no lines wanted" "$? $(cat err)" "0 "
exit $status
