#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# Help, version, and what a wrong command line gets.
. "$(dirname "$0")/lib.sh"

says "no command" 2 "ebb: say what to do; see ebb help"
says "unknown command" 2 "ebb: there is no command foo; see ebb help" foo
says "help for an unknown command" 2 "ebb: there is no command foo; see ebb help" help foo
for word in budget memory profile trace show run convert; do
    complains "another word: $word" 2 "^ebb: there is no command $word: ebb (plan|train|record|report|import) .*; see ebb help$" $word
done
says "train without a network" 2 "ebb: train: say which network; see ebb train --help" train
says "plan without a network" 2 "ebb: plan: say which network or program; see ebb plan --help" plan
says "unknown option" 2 "ebb: train: there is no option --unheard; see ebb train --help" train lenet --unheard
says "unknown option with a value" 2 "ebb: plan: there is no option --unheard; see ebb plan --help" plan lenet --unheard=3
says "value missing" 2 "ebb: train: --batch takes a whole number from 1 to 2147483647" train lenet --batch
says "batch of none" 2 "ebb: train: --batch takes a whole number from 1 to 2147483647, not '0'" train lenet --batch 0
says "batch of minus one" 2 "ebb: train: --batch takes a whole number from 1 to 2147483647, not '-1'" train lenet --batch -1
says "batch too large" 2 "ebb: train: --batch takes a whole number from 1 to 2147483647, not '99999999999'" train lenet --batch 99999999999
says "steps in words" 2 "ebb: train: --steps takes a whole number from 1, not 'ten'" train lenet --steps=ten
obeyed=$(printf '\033[2Jx\377')
says "a command that a terminal would obey" 2 "ebb: there is no command ?[2Jx?; see ebb help" "$obeyed"
says "an option" 2 "ebb: train: there is no option --?[2Jx?; see ebb train --help" train lenet "--$obeyed"
says "a value" 2 "ebb: train: --steps takes a whole number from 1, not '?[2Jx?'" train lenet --steps "$obeyed"
says "an argument" 2 "ebb: train: ?[2Jx? is one argument too many; see ebb train --help" train lenet "$obeyed"
printf 'id,lower,upper,size\na,0,2,64\n' >"$obeyed"
says "a file's name" 1 "ebb: ?[2Jx?: the buffer 'a' has 64 bytes, the capacity is 8" \
    place "$obeyed" --capacity 8
rm "$obeyed"
says "no steps" 2 "ebb: train: --steps takes a whole number from 1, not '0'" train lenet --steps 0
says "no epochs" 2 "ebb: train: --epochs takes a whole number from 1, not '0'" train lenet --epochs 0
says "threads beyond 32 bits" 2 "ebb: plan: --threads takes a whole number from 1 to 2147483647, not '4294967297'" \
    plan lenet --threads 4294967297
says "host memory that is no number" 2 "ebb: plan: --host-memory takes bytes, as in 512MB or 2GiB, not 'none'" \
    plan lenet --host-memory none
says "image of one side" 2 "ebb: train: --image takes height and width, as in 224x224, not '3x'" train lenet --image 3x
says "learning rate that is none" 2 "ebb: train: --lr takes a number up to 3.4e38, not 'nan'" train lenet --lr nan
says "learning rate beyond a float" 2 "ebb: train: --lr takes a number up to 3.4e38, not '1e300'" train lenet --lr 1e300
complains "bytes that were a per cent" 1 '^ebb: did you mean --memory 40%\? it needs --memory [0-9.]+MiB or more: ' \
    train lenet --memory 40 --backend dry
complains "bytes that were a per cent, of a plan" 1 '^ebb: did you mean --memory 100%\? it needs ' plan lenet --memory 100
complains "few bytes that were none" 1 '^ebb: it needs --memory [0-9.]+MiB or more: ' plan lenet --memory 101
complains "a batch that no memory has room for" 4 \
    "^ebb: the host's memory has no room for a batch's data: 200000000 images of [0-9.]+ KiB are [0-9.]+ TiB; a smaller " \
    train alexnet --batch 200000000 --backend dry --steps 1
long=$(printf '%10000s' '' | tr ' ' x)y
for command in "$long" "train $long" "train lenet --$long" "train lenet --policy $long" "train lenet --backend $long" \
    "train lenet --lr $long" "train lenet $long" "plan $long/$long" "report $long"; do
    # shellcheck disable=SC2086
    "$EBB" $command >out 2>err
    check "a long word is shortened: $(printf %.20s "$command")" [ "$(wc -c <err)" -lt 1000 ]
done
COLUMNS=$wide "$EBB" "$long" 2>err
check "its beginning and end stay" grep -qE '^ebb: there is no command x{126}\.\.\.x{125}y; see ebb help$' err
mkfifo pipe
says "a file's name without a path" 2 \
    "ebb: plan: there is no network pipe; if you mean the file, type ./pipe" plan pipe
says "a pipe into which nothing is written" 4 "ebb: ./pipe: no program writes to this pipe" plan ./pipe
rm pipe
run "help of probe" out help probe
equal "help of probe: what it has options for" "$(grep -cE '^(policies|ways)' out) $(grep -cE '^(networks|backends)' out)" "0 2"
says "flag with a value" 2 "ebb: train: --json takes no value, not '1'" train lenet --json=1
memory="takes bytes, as in 512MB or 2GiB, or a per cent, as in 60%"
says "no per cent" 2 "ebb: plan: --memory $memory, not '0%'" plan lenet --memory 0%
says "unknown unit" 2 "ebb: plan: --memory $memory, not '3XB'" plan lenet --memory 3XB
says "steps of no recording" 2 "ebb: train: --record-steps without --record" train lenet --record-steps 2
says "times of no checkpoint" 2 "ebb: train: --checkpoint-every without --checkpoint" train lenet --checkpoint-every 2
says "two networks" 2 "ebb: train: vgg16 is one argument too many; see ebb train --help" train lenet vgg16
says "steps and epochs" 2 "ebb: train: --steps or --epochs, not both" train lenet --steps 1 --epochs 1
for schedule in step step: step:0 step:3x step:99999999999999999999; do
    says "schedule $schedule" 2 "ebb: there is no schedule '$schedule'; near it: step:N" \
        train lenet --lr-schedule $schedule
done
says "schedule foo" 2 "ebb: there is no schedule 'foo'; there are: constant, cosine, linear, step:N" \
    train lenet --lr-schedule foo
says "a mistyped schedule" 2 "ebb: there is no schedule 'cosin'; near it: cosine" train lenet --lr-schedule cosin
says "a mistyped optimizer" 2 "ebb: there is no optimizer 'admw'; near it: adamw" plan lenet --optimizer admw
says "no optimizer at all" 2 "ebb: there is no optimizer 'lamb'; there are: sgd, momentum, nesterov, adam, adamw" \
    plan lenet --optimizer lamb
says "a mistyped backend" 5 "ebb: no backend 'cpuu' in this build; near it: cpu" train lenet --backend cpuu
says "mistyped data" 2 "ebb: data 'minst:x': there is no such kind of data; near it: mnist:DIR" train lenet --data minst:x
says "a mistyped accounting" 2 "ebb: no accounting is called 'papre'; near it: paper" \
    plan lenet --backend dry --accounting papre
says "an evaluation of synthetic data" 2 "ebb: train: --eval: the data hold out no images to evaluate with" \
    train lenet --steps 1 --eval
says "a context of no bytes" 2 "ebb: train: --memory-includes-context takes a --memory in bytes" \
    train lenet --memory 60% --memory-includes-context
says "a device beyond" 5 "ebb: ref has one device, number 0" train lenet --backend ref --device 1
says "repetitions" 2 "ebb: probe: --reps is 1 to 1000" probe --reps 0
complains "unknown network" 2 "nosuchnet" train nosuchnet
says "a network of another depth" 2 \
    "ebb: there is no network 'resnet51'; near it: resnet50, resnet56, resnet50_cifar; of any size: resnet:N1,N2,N3,N4, resnet_cifar:N" \
    plan resnet51
complains "resnet without depths" 2 "resnet:" train resnet:
complains "resnet with letters" 2 "resnet:3,x" plan resnet:3,x,4,1
complains "unknown policy" 2 "nosuch" plan lenet --backend dry --policy nosuch
complains "unknown optimizer" 2 "nosuch" plan lenet --backend dry --optimizer nosuch
complains "an image too large for any kernel" 5 "65536x65536" plan vgg11 --batch 1 --image 65536x65536
complains "unknown backend" 5 "nosuch" train lenet --backend nosuch

run "version" out version && equal "version" "$(cat out)" "ebb 0.1.0"
run "--version" out --version && equal "--version" "$(cat out)" "ebb 0.1.0"
for command in train plan probe; do
    run "help $command" a help $command && run "$command --help" b $command --help && check "help of $command" cmp -s a b
    check "help of $command names the networks" grep -q '^  resnet50 ' a
    check "help of $command names the backends" grep -q '^  dry ' a
    [ $command = probe ] || check "help of $command names the policies" grep -q '^  liveness ' a
done

# widest: the columns of the longest line on standard input.
widest() {
    awk '{ if (length($0) > n) n = length($0) } END { print n + 0 }'
}
for command in train plan place probe report import diff check record compare; do
    for columns in "" 60 140; do
        COLUMNS=$columns "$EBB" help $command >shown
        check "help of $command fits ${columns:-100} columns" test "$(widest <shown)" -le "${columns:-100}"
        [ -n "$columns" ] || cp shown usual
        equal "help of $command has the same words in ${columns:-100} columns" "$(tr -s ' \n' '\n' <shown)" "$(tr -s ' \n' '\n' <usual)"
    done
done
check "what an option is hangs in its column" grep -qE '^ {29}[a-z]' usual
for command in "plan nosuch" "plan resnet20 --batch 8 --backend dry --memory 1MiB" "budget" \
    "compare resnet20 --batch 8 --backend dry --memory 1MiB --policies liveness,budget"; do
    # shellcheck disable=SC2086
    "$EBB" $command >out 2>err
    check "a refusal fits 100 columns: $command" test "$(widest <err)" -le 100
    check "a refusal has its words below each other: $command" awk '!/^(ebb: |     [^ ])/ { exit 1 }' err
    check "a refusal is long: $command" test "$(wc -c <err)" -gt 110
done

run "help" a help && run "--help" b --help && check "help" cmp -s a b

most=$((4 * $(env -u OMP_NUM_THREADS -u OMP_THREAD_LIMIT nproc)))
for command in "train mlp" "probe mlp"; do
    # shellcheck disable=SC2086
    says "too many threads for $command" 2 \
        "ebb: ${command% *}: --threads takes at most $most here, 4 for each processor, not $((most + 1))" \
        $command --threads $((most + 1))
done
run "threads for another machine" out plan lenet --threads 1000 && pass "threads for another machine"

run "plan's batch" out plan lenet --backend dry --json && run "a batch of 32" again plan lenet --backend dry --batch 32 --json
equal "plan takes the batch of train" "$(member out peak_planned_bytes)" "$(member again peak_planned_bytes)"
run "train's batch" out train lenet --backend dry --steps 1 --json
equal "train's is 32" "$(member out peak_planned_bytes)" "$(member again peak_planned_bytes)"
budget="resnet20 --batch 8 --backend dry --memory 40% --policy budget"
# shellcheck disable=SC2086
run "plan's stall" out plan $budget --json && run "train's stall" again train $budget --steps 1 --json
check "a stall is predicted" grep -qE '"stall_time_predicted_s": [0-9.e-]*[1-9]' out
equal "train predicts the stall of plan" "$(member out stall_time_predicted_s)" "$(member again stall_time_predicted_s)"
check "train measures the stall" grep -qE '"stall_time_measured_s": [0-9]' again
engines() { grep -oE '"engine": "[a-z-]*", "busy_predicted_s": [0-9.e-]+, "stall_predicted_s": [0-9.e-]+' "$1"; }
equal "plan has each engine" "compute host-out host-in disk-out disk-in" \
    "$(engines out | sed 's/"engine": "\([a-z-]*\)".*/\1/' | tr '\n' ' ' | sed 's/ $//')"
equal "train predicts of each engine what plan does" "$(engines out)" "$(engines again)"
check "an engine of copies is to wait" grep -qE '"host-in", [^}]*"stall_predicted_s": [0-9.e-]*[1-9]' out
equal "train measures each engine" 5 "$(grep -oE '"stall_measured_s": [0-9]' again | wc -l)"
# shellcheck disable=SC2086
run "a table with stalls" table train $budget --steps 1
check "the measured stall is in the table" grep -q "waits for copies (median) .* s$" table
check "the predicted stall is in the table" grep -q "waits for copies (predicted) .* s$" table
check "so is what an engine of copies waits" grep -q "host-out waits (median) .* s$" table
check "and what it is to wait" grep -q "host-out waits (predicted) .* s$" table
empty "an engine without work is not in the table" "$(grep disk- table)"
rm -f table
run "probe's batch" out probe mlp --backend ref --reps 1 -o default && run "32" out probe mlp --backend ref --reps 1 --batch 32 -o given
measured() {
    grep -oE '"[0-9a-f]{16}": *[0-9]+' "$1" | sort
}
run "probe adds to a machine" out probe mlp lenet --backend ref --reps 1 --machine given -o more &&
    equal "what was measured stays" "$(measured given)" "$(measured more | grep -xF "$(measured given)")" &&
    check "and more is" [ "$(measured more | wc -l)" -gt "$(measured given | wc -l)" ]
cp more before
run "probe adds to its own file" out probe lenet --backend ref --reps 1 --machine more -o more &&
    equal "nothing is left to measure" "$(measured more)" "$(measured before)"
equal "probe measures the batch of train" "$(grep -oE '"[0-9a-f]{16}"' default)" "$(grep -oE '"[0-9a-f]{16}"' given)"
rm -f default given more before
complains "probe finds out early that it cannot write" 4 "nowhere/x" probe resnet50 --backend ref -o nowhere/x

# A probe that is stopped: the first network's times are in the file as soon as they are known, and stay.
run "the first network" out probe mlp --backend ref --batch 1 --reps 1 -o first
"$EBB" probe mlp resnet50 --backend ref --batch 1 --reps 1 -o stopped >out 2>err &
pid=$!
for try in $(seq 600); do
    [ -e stopped ] && [ "$(measured stopped | wc -l)" = "$(measured first | wc -l)" ] && break
    sleep 0.05
done
equal "a network's times are in the file before the next one's" "$(measured stopped | cut -d: -f1)" "$(measured first | cut -d: -f1)"
check "the probe goes on" kill -TERM $pid
wait $pid
equal "a stopped probe: exit code" $? 143
equal "a stopped probe: says so" "$(cat err)" \
    "ebb: ended by signal 15; what was measured is in stopped (--machine goes on from there)"
empty "a stopped probe: no table" "$(cat out)"
check "a stopped probe: no other file" [ "$(echo stopped*)" = stopped ]
run "a stopped probe goes on" out probe mlp --backend ref --batch 1 --reps 1 --machine stopped -o more &&
    equal "a stopped probe goes on with what it has" "$(measured more)" "$(measured stopped)"
rm -f first stopped more

outputs="--save --checkpoint --record --save-gradients"
for a in $outputs; do
    outputs=${outputs#"$a"}
    outputs=${outputs# }
    for b in $outputs; do
        says "$a and $b" 2 "ebb: train: $a and $b would both write ./x" train mlp $a x $b ./x
    done
done
run "a program" out plan lenet --batch 4 --backend dry -o plan --program-out prog && cp prog kept
says "two outputs in one file" 2 "ebb: plan: -o and --program-out would both write ./x" \
    plan lenet -o x --program-out ./x
for hazards in "" --check-hazards; do
    # shellcheck disable=SC2086
    says "a plan for a program $hazards" 2 \
        "ebb: plan: plan is a plan; say which network or program it is for, and --check plan" plan plan $hazards
done
says "a plan over its program" 2 "ebb: plan: prog is what is read" plan ./prog -o prog
says "a program over itself" 2 "ebb: plan: prog is what is read" plan ./prog --program-out prog
says "a plan over the one that is checked" 2 "ebb: plan: ./plan is what is read" plan ./prog --check plan -o ./plan
says "a plan over its machine" 2 "ebb: plan: prog is what is read" plan lenet --machine ./prog -o prog
check "outputs refused: nothing is lost" cmp -s prog kept
check "outputs refused: nothing is made" test ! -e x
for command in "plan resnet20" "train resnet20 --steps 1"; do
    budget="--batch 8 --backend dry --memory 60% $effort --json"
    # shellcheck disable=SC2086
    run "${command%% *} with the host" out $command $budget &&
        check "${command%% *} with the host" test "$(member out moved_out_bytes)" -gt 0
    # shellcheck disable=SC2086
    run "${command%% *} without the host" out $command $budget --host-memory 0 &&
        equal "${command%% *} without the host" "$(member out moved_out_bytes)" 0
done
run "a per cent beyond 64 bits" out plan lenet --batch 4 --backend dry --memory 1e300% && pass "a per cent beyond 64 bits"

"$EBB" help >/dev/full 2>err
equal "help to a full disk: exit code" $? 4
equal "help to a full disk" "$(cat err)" "ebb: standard output could not be written"
exit $status
