#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# Memory of other processes as a tier, on one machine: the bits of a run without it, planned and measured bytes, wrong
# options, a transport that fails, a peer that is killed, and lenders that go when the first process ends.
. "$(dirname "$0")/lib.sh"
export COLUMNS=$wide

net="resnet20 --batch 4 --machine round"
train="train $net --seed 5 --no-eval"
echo '{"format": "ebb-machine", "version": 2}' >round

# What needs no other process.
# shellcheck disable=SC2086
run "a plan for it" out plan $net --policy budget --memory 50% --host-memory 0 --remote 8MiB --json &&
    check "a plan for it: it is used" test "$(member out remote_bytes)" -gt 0
# shellcheck disable=SC2086
complains "too little for a plan" 1 "it needs --memory .*" \
    plan $net --policy swap --memory 30% --host-memory 0 --no-recompute --remote 1KiB
# shellcheck disable=SC2086
complains "nothing to lend" 2 "train: --remote takes bytes, as in 512MB or 2GiB, not '0'" $train --remote 0
# shellcheck disable=SC2086
run "a plan with a disk, too" out plan $net --policy budget --no-recompute --memory 50% --host-memory 256KiB \
    --remote 1MiB --disk . --json && for tier in host disk remote; do
    check "a plan with a disk, too: $tier is used" test "$(member out ${tier}_bytes)" -gt 0
done
compared="compare $net --policies budget,tensor-cache --memory 50% --no-recompute --host-memory 0 --remote 8MiB --json"
# shellcheck disable=SC2086
run "compared" out $compared &&
    equal "compared: both policies use it" "$(grep -o '"to": "remote", "bytes": [1-9]' out | wc -l)" 2
mkdir bare
cp "$(dirname "$EBB")"/libebb.so* bare/
LD_LIBRARY_PATH=$work/bare "$EBB" $train --remote 1MiB >out 2>err
equal "a build without MPI: exit code" $? 5
check "a build without MPI: said" grep -q "^ebb: this build has no MPI: there is no libebb_mpi.so in $work/bare" err

if [ ! -e "$(dirname "$EBB")/libebb_mpi.so" ]; then
    skip "memory of other processes" "this build has no MPI"
    exit $status
fi
if ! command -v mpirun >/dev/null; then
    skip "memory of other processes" "there is no mpirun"
    exit $status
fi
options=
if mpirun --version | grep -q 'Open MPI'; then
    options="--oversubscribe --bind-to none"
    [ "$(id -u)" != 0 ] || options="$options --allow-run-as-root"
fi

# job N ARGUMENTS...: N processes of ebb; stdout goes to out, stderr to err.
job() {
    n=$1
    shift
    # shellcheck disable=SC2086
    mpirun $options -n "$n" "$EBB" "$@" >out 2>err </dev/null
}

# said NAME CODE PATTERN N ARGUMENTS...: N processes end with CODE, and one of them, no more, says this.
said() {
    name=$1 code=$2 pattern=$3
    shift 3
    job "$@"
    got=$?
    if [ $got = "$code" ] && [ "$(grep -c '^ebb: ' err)" = 1 ] && grep '^ebb: ' err | grep -qE -e "$pattern"; then
        pass "$name"
    else
        fail "$name" "exit $got, wanted $code" "stderr: $(head -c 800 err)" "wanted one line with: $pattern"
    fi
}

# The same bits. Neither lender has room for all, so tensors lie on both, and one of them across both.
steps=5
# shellcheck disable=SC2086
run "without tiers" out $train --steps $steps --json || exit 1
wanted="$(losses out | tr '\n' ' ')$(member out weights_sha256)"
away="--policy budget --memory 50% --host-memory 0 --remote 1200KiB --json"
# shellcheck disable=SC2086
job 3 $train --steps $steps $away
equal "two lenders: exit code" $? 0
equal "two lenders: the bits of a run without" "$(losses out | tr '\n' ' ')$(member out weights_sha256)" "$wanted"
equal "two lenders: the measured peak is the planned one" "$(member out peak_measured_bytes)" \
    "$(member out peak_planned_bytes)"
check "two lenders: both are needed" test "$(member out remote_bytes)" -gt 1228800
equal "two lenders: nothing on the host" "$(member out slab_bytes)" 0
for way in out in; do
    equal "two lenders: what went over the link, $way" \
        "$(sed -n 's/.*"remote-'$way'"[^}]*"moved_bytes": \([0-9]*\)}.*/\1/p' out)" "$(member out moved_${way}_bytes)"
done
check "two lenders: something did" test "$(member out moved_in_bytes)" -gt 0

# Host, other processes and disk together.
mkdir disk
# shellcheck disable=SC2086
job 2 $train --steps $steps --policy budget --no-recompute --memory 50% --host-memory 700KiB --remote 1MiB --disk disk --json
equal "with a disk: the bits of a run without" "$(losses out | tr '\n' ' ')$(member out weights_sha256)" "$wanted"
for bytes in slab remote file; do
    check "with a disk: ${bytes}_bytes" test "$(member out ${bytes}_bytes)" -gt 0
done

# Compared by running.
# shellcheck disable=SC2086
job 2 $compared --run --steps 2
equal "compare --run: exit code" $? 0
equal "compare --run: both have run" "$(grep -o '"loss_hex": "[0-9a-f]*"' out | wc -l)" 2
equal "compare --run: with the same bits" "$(grep -o '"loss_hex": "[0-9a-f]*"' out | sort -u | wc -l)" 1
equal "compare --run: planned is measured" "$(grep -o '"peak_measured_bytes": [0-9]*' out | sed 's/.* //')" \
    "$(grep -o '"peak_planned_bytes": [0-9]*' out | sed 's/.* //')"

# The evaluated network has its tensors there beside the trained one's.
if [ -s "$digits" ]; then
    tested="train resnet20 --data digits:$digits --batch 64 --steps 2 --machine round --eval --json"
    # shellcheck disable=SC2086
    run "evaluation without tiers" out $tested
    wanted_there="$(member out accuracy) $(member out weights_sha256)"
    # shellcheck disable=SC2086
    job 2 $tested --policy budget --no-recompute --memory 25% --host-memory 0 --remote 40MiB
    equal "evaluation with a lender: the same" "$(member out accuracy) $(member out weights_sha256)" "$wanted_there"
else
    skip "evaluation with a lender" "there are no digits"
fi

# Its link is measured.
job 2 probe --backend ref --remote 2MiB --json -o measured
equal "probe: exit code" $? 0
check "probe: the link" test "$(member out remote_latency_ns)" -gt 0
check "probe: goes into the file" grep -q '"near": "device", "far": "remote"' measured

# What is refused.
# shellcheck disable=SC2086
complains "no other process" 2 "no other process is there to lend its memory; begin the command with mpirun -n 2" \
    $train --remote 1MiB
# shellcheck disable=SC2086
complains "compare --run: no other process" 2 "no other process is there to lend its memory" $compared --run
# shellcheck disable=SC2086
said "more than there is" 4 "remote tier: rank 1 on .* cannot lend 109951162777600 bytes: its machine has [0-9]* free" \
    2 $train --remote 100TiB
mpicc -std=gnu11 -O2 -shared -fPIC -o fail_mpi.so "$root/tests/e2e/fail_mpi.c" || fail "the library that fails"
options_that_fail="$options -x LD_PRELOAD=$work/fail_mpi.so -x FAIL_MPI_AFTER=130 -x"
# shellcheck disable=SC2086
options="$options_that_fail FAIL_MPI=pages" said "too few pages" 4 \
    "remote tier: rank 1 on .* cannot lend 1048576 bytes: its machine has too few pages" 2 $train --remote 1MiB
job 2 train --help --remote 1MiB
equal "help is said once" "$? $(grep -c '^usage' out)" "0 1"

# Less than a plan needs.
# shellcheck disable=SC2086
run "a plan for much" out plan $net --policy budget --no-recompute --memory 50% --host-memory 0 --remote 8MiB -o away.plan
# shellcheck disable=SC2086
said "less than the plan needs" 4 "remote tier: no room for [0-9]* bytes in the 65536 that other processes lend" \
    2 $train --plan away.plan --remote 64KiB

# A copy that fails in the middle of the training.
for call in Get:read Put:write; do
    what=${call#*:}
    rm -f state
    # shellcheck disable=SC2086
    options="$options_that_fail FAIL_MPI=${call%:*}" job 3 $train --steps $steps $away --checkpoint state --checkpoint-every 1
    equal "a $what that fails: exit code" $? 4
    check "a $what that fails: tier, tensor and rank are named" grep -qE \
        "^ebb: remote tier: cannot $what tensor '[^']+', [0-9]+ bytes at [0-9]+ of the tier's memory: rank [12] on" err
    n_done=$(losses out | wc -l)
    check "a $what that fails: some steps were done ($n_done)" test "$n_done" -ge 1 -a "$n_done" -lt $steps
    # shellcheck disable=SC2086
    run "a $what that fails: goes on from the checkpoint" rest $train --steps $steps --checkpoint state --json &&
        equal "a $what that fails: the bits of a training that nothing disturbed" \
            "$(cat out rest | losses /dev/stdin | tr '\n' ' ')$(member rest weights_sha256)" "$wanted"
done

# process RANK: of the job that trains in this folder.
process() {
    for path in $(grep -las "$work/state" /proc/[0-9]*/cmdline); do
        folder=${path%/cmdline}
        tr '\0' '\n' 2>/dev/null <"$folder/environ" | grep -qE "^(OMPI_COMM_WORLD_RANK|PMI_RANK)=$1\$" && basename "$folder"
    done | head -n 1
}

# until_so COMMAND: waits for some seconds.
until_so() {
    tries=0
    while ! eval "$1" && [ $tries -lt 150 ]; do
        tries=$((tries + 1))
        sleep 0.1
    done
}

# A lender is killed, then the one that trains is told to end; each time all processes go, and the checkpoint is whole.
for victim in 1:KILL 0:TERM; do
    rm -f state
    # shellcheck disable=SC2086
    job 3 $train --steps 100000 $away --checkpoint "$work/state" --checkpoint-every 2 &
    until_so '[ -s state ]'
    kill -"${victim#*:}" "$(process "${victim%:*}")"
    wait $!
    code=$?
    until_so '[ -z "$(process 0)$(process 1)$(process 2)" ]'
    check "rank $victim: the job ends with an error ($code)" test $code != 0
    empty "rank $victim: no process is left" "$(process 0)$(process 1)$(process 2)"
    case $victim in
    *TERM) check "rank $victim: it saves and says so" grep -q "^ebb: ended by signal 15; everything is in" err ;;
    *) check "rank $victim: mpirun says which" grep -q "rank ${victim%:*} .*signal 9" err ;;
    esac
    n_done=$(losses out | wc -l)
    # shellcheck disable=SC2086
    run "rank $victim: goes on from the checkpoint" rest $train --steps $((n_done + 1)) --checkpoint state --json
    check "rank $victim: goes on where it was" test "$(losses rest | wc -l)" -le 3
done
exit $status
