#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# kill -9 at random moments, also while a checkpoint is being written, then resume: the weights are those of the
# run that nobody disturbed. SIGTERM and SIGHUP end a run politely, and it too goes on. SEED repeats a failure.
. "$(dirname "$0")/lib.sh"
seed=${SEED:-$(od -An -N4 -tu4 /dev/urandom | tr -d ' ')}
echo "SEED=$seed"

# Long enough for several kills.
steps=120
[ -z "$EBB_TEST_MORE" ] || steps=200
train="train lenet --batch 32 --steps $steps --seed 3 --optimizer adam --memory 80% --json"
# shellcheck disable=SC2086
run "undisturbed" out $train || exit 1
wanted=$(member out weights_sha256)
n_kills=0

random() { # below $1
    seed=$(((seed * 1103515245 + 12345) % 2147483648))
    value=$((seed / 65536 % $1))
}

rounds=1
[ -z "$EBB_TEST_MORE" ] || rounds="1 2"
for round in $rounds; do
    rm -f state
    # Every step writes a checkpoint, so that most kills hit one being written.
    for kill in 1 2 3 4; do
        # shellcheck disable=SC2086
        "$EBB" $train --checkpoint state --checkpoint-every 1 >out 2>err &
        pid=$!
        random 600
        sleep "0.$(printf %03d $((value + 50)))"
        kill -9 $pid 2>/dev/null && n_kills=$((n_kills + 1))
        wait $pid 2>/dev/null
    done
    # shellcheck disable=SC2086
    run "round $round: goes on" out $train --checkpoint state --checkpoint-every 50 &&
        equal "round $round: the weights" "$(member out weights_sha256)" "$wanted"
    # A new checkpoint gets a name before it takes the old one's place. A kill between the two leaves it, but whole.
    half=
    for file in $(ls | grep -v -x -e state -e out -e err -e polite); do
        # shellcheck disable=SC2086
        "$EBB" $train --checkpoint "$file" --checkpoint-every 50 >out 2>err
        [ "${file#state.tmp-}" != "$file" ] && [ "$(member out weights_sha256)" = "$wanted" ] || half="$half $file"
        rm -f "$file"
    done
    empty "round $round: nothing half-written" "$half"
done
check "runs were killed ($n_kills)" test $n_kills -ge 2

# end FILE SIGNAL...: to the training $pid when FILE has its first steps; ends with its exit code. FILE must be gone
# before the training begins: a signal that is sent before the shell has become ebb may be lost.
end() {
    for try in $(seq 1200); do
        [ -e "$1" ] && [ "$(wc -l <"$1")" -ge 5 ] && break
        sleep 0.05
    done
    shift
    for signal in "$@"; do kill -"$signal" $pid; done
    wait $pid
}

rm -f state polite
# shellcheck disable=SC2086
"$EBB" $train --checkpoint state >polite 2>err &
pid=$!
end polite TERM
equal "SIGTERM: exit code" $? 143
equal "SIGTERM: says so" "$(cat err)" "ebb: ended by signal 15; everything is in state"

# stop NAME ARGUMENTS...: a training that gets SIGTERM after its first steps.
stop() {
    name=$1
    shift
    rm -f stopped
    # shellcheck disable=SC2086
    "$EBB" $train --steps 100000 "$@" >stopped 2>err &
    pid=$!
    end stopped TERM
    equal "$name: exit code" $? 143
}

stop "a trace that was not begun" --record trace
equal "a trace that was not begun: says so" "$(cat err)" \
    "ebb: ended by signal 15; no trace: it was to begin with step 100000"
check "a trace that was not begun: there is none" test ! -e trace
stop "a trace that is cut" --record trace --record-steps 100000
equal "a trace that is cut: says so" "$(cat err)" "ebb: ended by signal 15; the trace up to here is in trace"
run "a trace that is cut: it can be read" report report trace && check "a trace that is cut: events" test -s report
# shellcheck disable=SC2086
run "SIGTERM: goes on" out $train --checkpoint state && equal "SIGTERM: the weights" "$(member out weights_sha256)" "$wanted"

# A flipped bit in the header is no other step.
LC_ALL=C sed "s/\"step\": \"$steps\"/\"step\": \"9${steps#?}\"/" state >spoilt
check "another step is written into it" test "$(cmp -l state spoilt | wc -l)" = 1
# shellcheck disable=SC2086
complains "a damaged header" 3 "^ebb: spoilt: the checkpoint's header is not the one that was written" $train --checkpoint spoilt
rm spoilt

# A terminal that goes sends SIGHUP, and so does its shell: the second one does not end it sooner. Under nohup the signal
# would be ignored.
rm -f state polite
# shellcheck disable=SC2086
env --default-signal=HUP "$EBB" $train --checkpoint state >polite 2>err &
pid=$!
end polite HUP HUP
equal "SIGHUP: exit code" $? 129
equal "SIGHUP: says so" "$(cat err)" "ebb: ended by signal 1; everything is in state"
# shellcheck disable=SC2086
run "SIGHUP: goes on" out $train --checkpoint state && equal "SIGHUP: the weights" "$(member out weights_sha256)" "$wanted"

# What whoever started it ignores stays ignored, as after nohup.
rm -f stopped
# shellcheck disable=SC2086
(trap '' INT HUP && exec "$EBB" $train --steps 100000) >stopped 2>err &
pid=$!
end stopped INT HUP TERM
equal "ignored signals: exit code" $? 143
equal "ignored signals: says so" "$(cat err)" "ebb: ended by signal 15"

# Nobody reads the output any more: that ends it as politely.
rm -f state
# shellcheck disable=SC2086
(
    "$EBB" $train --checkpoint state 2>err
    echo $? >code
) | head -n 1 >out
equal "broken pipe: exit code" "$(cat code)" 141
equal "broken pipe: says so" "$(cat err)" "ebb: ended by signal 13; everything is in state"
# shellcheck disable=SC2086
run "broken pipe: goes on" out $train --checkpoint state &&
    equal "broken pipe: the weights" "$(member out weights_sha256)" "$wanted"
exit $status
