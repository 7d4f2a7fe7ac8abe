#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# Lower tiers from the command line: each way of input and output gives the same bits, and a tier that fails, is full or
# is too small ends the training with a message that names tensor and tier, and leaves a checkpoint from which it goes on.
. "$(dirname "$0")/lib.sh"

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
complains "an unknown way" 2 "no such way of input and output: 'fast'; there are auto, plain and uring" \
    $train --steps 1 --disk disk --io fast
# shellcheck disable=SC2086
complains "a folder that is not there" 4 "disk tier nowhere: cannot make a file there: No such file" \
    $train --steps 1 $(echo "$on_disk" | sed 's/--disk disk/--disk nowhere/')

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
