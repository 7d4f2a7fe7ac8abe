#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# Lower tiers from the command line: each way of input and output gives the same bits, and a tier that fails, is full or
# is too small ends the training with a message that names tensor and tier, and leaves a checkpoint from which it goes on.
. "$(dirname "$0")/lib.sh"
export COLUMNS=$wide

machine
mkdir disk
steps=5
train="train resnet20 --batch 4 --machine machine --policy budget --seed 5 --no-eval"

# shellcheck disable=SC2086
"$EBB" $train --steps $steps --memory 4KiB --host-memory 1 --disk disk >out 2>err
host_bytes=$(sed -n 's/.* need \([0-9]*\) bytes.*/\1/p' err)
# shellcheck disable=SC2086
"$EBB" $train --steps $steps --memory 4KiB --host-memory "$host_bytes" --disk disk --json >out 2>err
on_disk="--memory $(member out least_budget_bytes) --host-memory $host_bytes --disk disk --json"
# shellcheck disable=SC2086
run "without tiers" out $train --steps $steps --json || exit 1
wanted="$(losses out | tr '\n' ' ')$(member out weights_sha256)"

for io in plain uring auto; do
    # shellcheck disable=SC2086
    "$EBB" $train --steps $steps $on_disk --io $io >out 2>err
    code=$?
    if [ $io = uring ] && grep -q 'io_uring cannot be had here' err; then
        equal "--io uring where there is none: exit code" $code 5
        skip "--io uring" "the kernel or this build has no io_uring"
        continue
    fi
    equal "--io $io: the same bits" "$(losses out | tr '\n' ' ')$(member out weights_sha256)" "$wanted"
    check "--io $io: everything goes to the file" test "$(member out file_bytes)" -gt 0 -a "$(member out slab_bytes)" = 0
    equal "--io $io: planned peak is measured" "$(member out peak_measured_bytes)" "$(member out peak_planned_bytes)"
    used=$(member out file_io)
    case "$io $used" in
    "plain plain" | "uring uring"* | "auto uring"* | "auto plain") pass "--io $io: $used" ;;
    *) fail "--io $io: which way was used" "$used" ;;
    esac
done
# shellcheck disable=SC2086
complains "an unknown way" 2 "no such way of input and output: 'fast'; there are: auto, plain, uring" \
    $train --steps 1 --disk disk --io fast
# shellcheck disable=SC2086
complains "a folder that is not there" 4 "disk tier nowhere: cannot make a file there: No such file" \
    $train --steps 1 $(echo "$on_disk" | sed 's/--disk disk/--disk nowhere/')

# Without --host-memory each tier is used by its speed: a slow disk only for what the free memory has no room for.
echo '{"format": "ebb-machine", "version": 2}' >round
echo '{"format": "ebb-machine", "version": 2, "links": [{"near": "device", "far": "disk", "out": {"bytes_per_s": 9e10,
    "latency_ns": 0}, "in": {"bytes_per_s": 9e10, "latency_ns": 0}}]}' >fast
echo '{"format": "ebb-machine", "version": 2, "tiers": [{"name": "device", "store": "device"},
    {"name": "host", "store": "memory", "capacity_bytes": 1048576}]}' >small_host
half="resnet20 --batch 4 --policy budget --no-recompute --memory 50%"
alone="train $half --seed 5 --no-eval --steps $steps --disk disk --json --machine"
cc -std=gnu11 -O2 -shared -fPIC -o few_free.so "$root/tests/e2e/few_free.c" -ldl || fail "the library with few free"
# shellcheck disable=SC2086
run "--disk alone" out $alone round &&
    equal "--disk alone: the host has room and is faster" "$(member out file_bytes)" 0
slab=$(member out slab_bytes)
check "--disk alone: the host is used" test "$slab" -gt 0
room=$(($(member out arena_bytes) + $(member out data_bytes) + slab / 2))
echo "MemAvailable: $((room / 7 * 8 / 1024)) kB" >meminfo
# shellcheck disable=SC2086
LD_PRELOAD=./few_free.so FEW_FREE=meminfo "$EBB" $alone round >out 2>err
check "--disk alone, half of it free: the host takes at most that" test "$(member out slab_bytes)" -le $((slab / 2))
check "--disk alone, half of it free: the host takes some" test "$(member out slab_bytes)" -gt 0
check "--disk alone, half of it free: the disk takes the rest" test "$(member out file_bytes)" -ge $((slab / 2))
equal "--disk alone, half of it free: the same bits" "$(losses out | tr '\n' ' ')$(member out weights_sha256)" "$wanted"
# shellcheck disable=SC2086
LD_PRELOAD=./few_free.so FEW_FREE=meminfo "$EBB" plan $half --disk disk --json >out 2>err
check "a plan for this machine: the disk is used" test "$(member out disk_bytes)" -gt 0
# shellcheck disable=SC2086
LD_PRELOAD=./few_free.so FEW_FREE=meminfo "$EBB" plan $half --disk disk --machine round --json >out 2>err
equal "a plan for a machine of a file: its memory is not this one's" "$(member out disk_bytes)" 0
# shellcheck disable=SC2086
run "a disk that is faster" out $alone fast &&
    equal "a disk that is faster: everything goes there" \
        "$(member out slab_bytes) $(losses out | tr '\n' ' ')$(member out weights_sha256)" "0 $wanted"
# shellcheck disable=SC2086
run "a machine with little host memory" out plan $half --disk disk --machine small_host --json
check "a machine with little host memory: no more is taken" test "$(member out host_bytes)" -le 1048576
check "a machine with little host memory: the disk is used" test "$(member out disk_bytes)" -gt 0

# A disk that breaks while it trains.
cc -std=gnu11 -O2 -shared -fPIC -o fail_io.so "$root/tests/e2e/fail_io.c" -ldl || fail "the library that fails"
for what in read write; do
    rm -f state
    # shellcheck disable=SC2086
    LD_PRELOAD=./fail_io.so FAIL_IO=$what FAIL_IO_AFTER=900 "$EBB" $train --steps $steps $on_disk --io plain \
        --checkpoint state --checkpoint-every 1 >out 2>err
    equal "a $what that fails: exit code" $? 4
    check "a $what that fails: tier and tensor are named" \
        grep -qE "^ebb: disk tier: cannot $what tensor '[^']+', [0-9]+ bytes at [0-9]+ of the tier's file: Input/output error" err
    n_done=$(losses out | wc -l)
    check "a $what that fails: some steps were done ($n_done)" test "$n_done" -ge 1 -a "$n_done" -lt $steps
    # shellcheck disable=SC2086
    run "a $what that fails: goes on from the checkpoint" rest $train --steps $steps $on_disk --io plain --checkpoint state &&
        equal "a $what that fails: the bits of a training that nothing disturbed" \
            "$(cat out rest | losses /dev/stdin | tr '\n' ' ')$(member rest weights_sha256)" "$wanted"
done

# A disk that breaks as copies move on to it from a full host, and back.
moving="train resnet20 --batch 4 --machine round --policy tensor-cache --seed 5 --no-eval --memory 60% --host-memory 1500KiB
    --disk disk --io plain --json"
# shellcheck disable=SC2086
run "moving on" out $moving --steps $steps
check "moving on: copies do" test "$(member out moved_on_bytes)" -gt 0
equal "moving on: the same bits" "$(losses out | tr '\n' ' ')$(member out weights_sha256)" "$wanted"
for what in read write; do
    rm -f state
    # shellcheck disable=SC2086
    LD_PRELOAD=./fail_io.so FAIL_IO=$what FAIL_IO_AFTER=2 "$EBB" $moving --steps $steps \
        --checkpoint state >out 2>err
    equal "moving on, a $what that fails: exit code" $? 4
    check "moving on, a $what that fails: tier and tensor are named" \
        grep -qE "^ebb: disk tier: cannot $what tensor '[^']+', [0-9]+ bytes at [0-9]+ of the tier's file: Input/output error" err
    check "moving on, a $what that fails: nothing is saved" test ! -e state
done

# Memory that is too small for the host tier says so before the first step.
host="train resnet20 --batch 2048 --threads 1 --machine round --policy budget --no-recompute --memory 30% --steps 1"
# shellcheck disable=SC2016,SC2086
sh -c 'ulimit -v 2500000; exec "$0" "$@"' "$EBB" $host >out 2>err
equal "a host that is too small: exit code" $? 4
check "a host that is too small: the tier is named" grep -qE "^ebb: host tier: this machine's memory of .* has no room for" err
check "a host that is too small: before the first step" test ! -s out

# A disk that is too small says so before the first step.
mkdir small
# shellcheck disable=SC2016,SC2086
unshare -rm sh -c 'mount -t tmpfs -o size=64k none small || exit 99; shift; exec "$0" "$@"' "$EBB" x \
    $train --steps $steps $(echo "$on_disk" | sed 's/--disk disk/--disk small/') >out 2>err
code=$?
if [ $code = 99 ] || grep -q 'unshare' err; then
    skip "a full disk" "no file system of its own"
else
    equal "a full disk: exit code" $code 4
    check "a full disk: said" grep -qE "^ebb: disk tier small: no room for [0-9]+ bytes: No space left on device" err
    check "a full disk: before the first step" test ! -s out
fi
empty "nothing is left on the disk" "$(ls disk)"
exit $status
