#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# Files that are not as they should be, and places that cannot be written: each is one clear line and its exit
# code, and leaves nothing half-written. Whole files are read first, so that a refusal means something.
. "$(dirname "$0")/lib.sh"
export COLUMNS=$wide
python3 "$root/tests/e2e/make_data.py" "$work/data"
train="train lenet --batch 8 --steps 2"

# cut FILE BYTES: all but the last so many bytes.
cut_end() {
    head -c -"$2" "$1" >cut && mv cut "$1"
}

# spoil FILE OFFSET: one byte becomes 255.
spoil() {
    printf '\377' | dd of="$1" bs=1 seek="$2" conv=notrunc status=none
}

for data in mnist:data/mnist "cifar10:data/cifar10 --image 32x32" "cifar100:data/cifar100 --image 32x32" \
    tensors:data/tensors.safetensors; do
    # shellcheck disable=SC2086
    run "read $data" out $train --data $data && pass "read ${data%% *}"
done

# shellcheck disable=SC2086
{
    complains "no such folder" 4 "nowhere" $train --data mnist:nowhere
    complains "no such kind of data" 2 "nosuch" $train --data nosuch:x
    cp -r data bad && cut_end bad/mnist/train-images-idx3-ubyte 5
    complains "idx cut short" 3 "train-images-idx3-ubyte" $train --data mnist:bad/mnist
    cp -r data/mnist bad && spoil bad/mnist/train-images-idx3-ubyte 2
    complains "idx with a wrong magic" 3 "train-images-idx3-ubyte" $train --data mnist:bad/mnist
    cp -r data/mnist bad && spoil bad/mnist/train-images-idx3-ubyte 4
    complains "idx with more images than bytes" 3 "train-images-idx3-ubyte" $train --data mnist:bad/mnist
    cp -r data/mnist bad && spoil bad/mnist/train-labels-idx1-ubyte.gz 30
    complains "damaged gzip" 3 "train-labels-idx1-ubyte" $train --data mnist:bad/mnist
    cut_end bad/cifar10/data_batch_2.bin 7
    complains "CIFAR cut short" 3 "data_batch_2.bin" $train --image 32x32 --data cifar10:bad/cifar10
    cp -r data/cifar10 bad && spoil bad/cifar10/data_batch_3.bin 3073
    complains "CIFAR with a label out of range" 3 "data_batch_3.bin.*255" $train --image 32x32 --data cifar10:bad/cifar10
    complains "a label out of range" 3 "label.safetensors.*10" $train --classes 10 --data tensors:data/label.safetensors
    complains "more classes in the data than told" 3 "label" $train --classes 5 --data tensors:data/tensors.safetensors

    run "weights" out $train --save weights && pass "weights are written"
    run "weights back" out $train --load weights && pass "weights are read"
    cp weights bad/w && cut_end bad/w 100
    complains "weights cut short" 3 "bad/w" $train --load bad/w
    cp weights bad/w && spoil bad/w 7
    complains "weights with a header of no end" 3 "bad/w" $train --load bad/w
    head -c 5 weights >bad/w
    complains "weights of five bytes" 3 "bad/w" $train --load bad/w
    : >bad/w
    complains "empty weights" 3 "bad/w" $train --load bad/w
    complains "weights of another network" 3 "weights" train mlp --batch 8 --steps 1 --load weights
    complains "weights that are not there" 4 "nowhere" $train --load nowhere

    run "checkpoint" out $train --checkpoint state && pass "a checkpoint is written"
    cp state bad/state && cut_end bad/state 9
    complains "checkpoint cut short" 3 "bad/state" $train --checkpoint bad/state
    size=$(wc -c <state)
    cp state bad/state && spoil bad/state $((size / 2)) && spoil bad/state $((size / 2 + 1))
    complains "checkpoint with two bytes changed" 3 "bad/state" $train --checkpoint bad/state
    complains "checkpoint of another network" 2 "state" train mlp --batch 8 --steps 2 --checkpoint state

    run "plan" out plan lenet --batch 8 --memory 90% -o plan && pass "a plan is written"
    run "plan --check" out plan --check plan lenet --batch 8 && pass "a plan is checked"
    complains "plan of another network" 1 "plan: plan: it is for another program .*: another network, batch, image, optimizer or backend" plan --check plan mlp --batch 8
    "$EBB" plan --check plan mlp --batch 8 --json >out 2>err
    equal "plan of another network, as JSON" "$? $(member out ok) $(grep -c '"error": "plan: it is for' out)" "1 false 1"
    cp plan bad/plan && cut_end bad/plan 20
    complains "plan cut short" 3 "bad/plan" plan --check bad/plan lenet --batch 8
    head -c 3000 /dev/urandom >bad/plan
    complains "plan of noise" 3 "bad/plan" plan --check bad/plan lenet --batch 8
    run "program" out plan lenet --batch 8 --program-out ./program && pass "a program is written"
    run "plan for a program" out plan ./program --memory 90% && pass "a program is read"
    cut_end program 30
    complains "program cut short" 3 "program" plan ./program

    complains "too small a budget" 1 "^ebb: it needs --memory [0-9.]+[KM]iB or more: a budget of .* the least budget is [0-9]+ bytes$" $train --memory 10KiB
    complains "plan: too small a budget" 1 "^ebb: it needs --memory [0-9.]+[KM]iB or more: a budget of " plan lenet --batch 8 --memory 10KiB
    "$EBB" $train --memory 10KiB --json >out 2>err
    equal "too small a budget: exit code" $? 1
    check "too small a budget: JSON" \
        grep -qE '^\{"schema_version": 1, "error": ".*", "remedy": "--memory [0-9.]+[KM]iB", "least_budget_bytes": [0-9]+, "step": "[^"]+"' out
    run "the remedy" /dev/null $train $(member out remedy) && pass "the remedy is accepted"
    complains "too little host memory" 1 "^ebb: it needs --host-memory [0-9.]+[KM]iB or more: host memory: .* at least [0-9]+" $train --host-memory 1KiB
    "$EBB" $train --host-memory 1KiB --json >out 2>err
    equal "too little host memory: exit code" $? 1
    check "too little host memory: JSON" \
        grep -qE '^\{"schema_version": 1, "error": ".*", "remedy": "--host-memory [0-9.]+[KM]iB", "least_budget_bytes": null, "step": null, "least_host_bytes": [0-9]+\}$' out
    run "the host's remedy" /dev/null $train $(member out remedy) && pass "the host's remedy is accepted"
    run "the least host memory" out $train --host-memory "$(member out least_host_bytes)" && pass "the least host memory"
}

# A loss that is not finite ends a training, and the last good checkpoint stays.
steep="train lenet --backend ref --batch 8 --lr 1e38 --seed 1"
# shellcheck disable=SC2086
{
    run "a checkpoint before the loss is lost" out $steep --steps 1 --checkpoint good && cp good kept
    nan="ebb: step 2: the loss is nan at a learning rate of 1e+38; a smaller one may help (--keep-going goes on)"
    "$EBB" $steep --steps 3 --checkpoint good >out 2>err
    equal "a loss that is not finite: exit code" $? 1
    equal "a loss that is not finite: says so" "$(tail -n 1 err)" "$nan"
    check "a loss that is not finite: the checkpoint stays" cmp good kept
    "$EBB" $steep --steps 3 --save none --json >out 2>err
    equal "a loss that is not finite: exit code with JSON" "$? $(cat err)" "1 $nan"
    equal "a loss that is not finite: JSON" "$(tail -n 1 out)" \
        '{"schema_version": 1, "error": "step 2: the loss is nan at a learning rate of 1e+38; a smaller one may help"}'
    check "a loss that is not finite: no weights" test ! -e none
    run "--keep-going" out $steep --steps 3 --checkpoint good --keep-going --save lost
    equal "--keep-going: no sign" "$(grep -c 'loss nan' out) $(grep -c -e -nan out err | tr '\n' ' ')" "2 out:0 err:0 "
    equal "--keep-going: warned of" "$(grep -c '^ebb: warning: step 2: the loss is nan$' err)" 1
    check "--keep-going: the checkpoint is refused" grep -q "^ebb: warning: good: not written: after step 3 '" err
    check "--keep-going: the checkpoint stays" cmp good kept
    check "--keep-going: weights are written" test -s lost
    run "--keep-going with JSON" out $steep --steps 3 --keep-going --json &&
        equal "--keep-going: null in JSON" "$(grep -c '"loss": null, ' out)" 2
    check "--keep-going: it is JSON" python3 -c 'import json, sys
for line in open("out"): json.loads(line, parse_constant=sys.exit)'
}

# A recording that cannot be written is lost, and said to be; what was learned is not.
# shellcheck disable=SC2086
{
    run "without a recording" out $train --save kept --json
    "$EBB" $train --save saved --checkpoint state2 --record /dev/full --json >out2 2>err
    equal "--record on a full disk: exit code" $? 4
    check "--record on a full disk: warned of" grep -q '^ebb: warning: iteration 1: its recording is lost: /dev/full' err
    equal "--record on a full disk: said at the end" "$(tail -n 1 err)" \
        "ebb: a recording is lost: /dev/full: cannot write: No space left on device"
    equal "--record on a full disk: two lines" "$(wc -l <err)" 2
    check "--record on a full disk: the weights are there" cmp kept saved
    check "--record on a full disk: the checkpoint is there" test -s state2
    equal "--record on a full disk: the figures are there" \
        "$(member out2 weights_sha256)" "$(member out weights_sha256)"
}

# What is no file is refused, by whatever reads or writes it, before it can take all memory or be waited for.
mkfifo pipe && ln -s nowhere/x dangling
# shellcheck disable=SC2086
{
    for reader in plan "plan lenet --backend dry --machine" "plan lenet --backend dry --check" "report --text" \
        "import -o no" "$train --load" place; do
        complains "$reader /dev/zero" 3 "^ebb: /dev/zero: this is a device, not a file" $reader /dev/zero
    done
    complains "plan of a pipe that nobody writes" 4 "no program writes to this pipe" plan ./pipe
    complains "--checkpoint into a pipe" 4 "pipe: a checkpoint is read again, so this must be a regular file" \
        $train --checkpoint pipe
    "$EBB" $train --save pipe >out 2>err
    equal "--save into a pipe that nobody reads" "$? $(tail -n 1 err)" "4 ebb: pipe: no program reads from this pipe"
    complains "plan -o into a pipe that nobody reads" 4 "^ebb: pipe: no program reads from this pipe" \
        plan lenet --backend dry -o pipe
    ln -s pipe link
    complains "plan -o into a link to it" 4 "^ebb: link: no program reads from this pipe" plan lenet --backend dry -o link
    rm link
    for option in --save --checkpoint --record; do
        complains "$option through a link to nothing" 4 "dangling: .* it is a link to nowhere/x" $train $option dangling
    done
    complains "plan -o through a link to nothing" 4 "dangling: .* link to nowhere/x" plan lenet --backend dry -o dangling
}
rm pipe dangling

: >file
ls -A >before
# shellcheck disable=SC2086
for option in --save --checkpoint --record; do
    complains "$option into a folder that is none" 4 "file/x" $train $option file/x
    complains "$option into a folder that is not there" 4 "nowhere/x" $train $option nowhere/x
    empty "$option into a folder that is not there: said before the first step" "$(cat out)"
    (ulimit -f 2 && exec "$EBB" $train $option full) >/dev/null 2>err
    equal "$option on a full disk: a named file's exit code" $? 4
    check "$option on a full disk: it is named" grep -q '^ebb: .*full' err
done
complains "plan on a full disk's folder" 4 "nowhere/x" plan lenet --batch 8 -o nowhere/x
ls -A >after
empty "nothing half-written" "$(grep -vxFf before after | grep -vx -e after -e before)"
# With stdout closed its number is free; the disk tier's file must not get it, for the steps are printed there.
mkdir tier
# shellcheck disable=SC2086
"$EBB" $train --steps 100000 --memory 90% --disk tier --json >&- 2>err &
pid=$!
for try in $(seq 200); do
    [ -e /proc/$pid/fd/1 ] && ls -l /proc/$pid/fd | grep -q "$work/tier" && break
    sleep 0.05
done
equal "stdout closed: no file is in its place" "$(readlink /proc/$pid/fd/1)" /dev/null
kill $pid
wait $pid
equal "stdout closed: ended" $? 143
if [ "$(id -u)" != 0 ]; then
    mkdir locked && chmod a-w locked
    # shellcheck disable=SC2086
    complains "a folder that may not be written" 4 "locked/x" $train --save locked/x
else
    skip "a folder that may not be written" "root may write anywhere"
fi
exit $status
