#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# The same bits whatever the memory: some steps of networks with dropout, batch-norm and LRN under every policy, at
# half, a quarter and the least of what liveness needs, with the host or a file as the lower tier. Compared are
# each step's loss and the final weights' digest; and that every run had the peak that it planned. ON, as in
# "--backend cuda", says where. KEPT names a folder in which the bits of each network are kept, and, where they are
# already, compared: for runs of this script with different options. SMALL is a line of the table below to run in place of it.
. "$(dirname "$0")/lib.sh"

# A card's driver gives whole granules, and they are what is measured there.
granule=1
case $ON in *cuda*) granule=$((2 << 20)) ;; esac

granules() { # bytes
    echo $((($1 + granule - 1) / granule * granule))
}

# A run's losses and weights; its peak is checked on the way.
bits() { # name, arguments...
    name=$1
    shift
    run "$name" out train "$@" --steps $steps --seed 7 --json || return 1
    as_planned "$name: measured peak is planned peak" "$(member out peak_measured_bytes)" \
        "$(granules "$(member out peak_planned_bytes)")" "$scratch"
    echo "$(losses out) $(member out weights_sha256)" | tr '\n' ' ' >bits
}

same() { # name, arguments...
    bits "$@" && equal "$1: the same bits" "$(cat bits)" "$wanted"
}

# The least budget, from the answer to one that is too small.
least() {
    "$EBB" plan "$@" --memory 4KiB --json >out 2>err
    equal "$1: too little is exit code 1" $? 1
    least_bytes=$(member out least_budget_bytes)
}

# The first has dropout and LRN, the second batch-norm; larger ones are tried where all tests run.
networks="alexnet --image 67x67 --batch 4 --classes 10
resnet20 --batch 4"
[ -z "$EBB_TEST_ALL" ] || networks="$networks
resnet50 --image 32x32 --batch 4 --classes 10
densenet121 --image 32x32 --batch 4 --classes 10"

steps=4
[ -z "$EBB_TEST_ALL$ON" ] || steps=10
machine
while read -r net options; do
    # shellcheck disable=SC2086
    set -- $net $options --machine machine $ON
    scratch=$(largest_scratch "$@")
    bits "$net none" "$@" --policy none || continue
    wanted=$(cat bits)
    equal "$net: a loss for each step" "$(losses out | wc -l)" $steps
    if [ -e "${KEPT:-.}/$net" ]; then
        equal "$net: the bits that were kept" "$wanted" "$(cat "$KEPT/$net")"
    elif [ -n "$KEPT" ]; then
        cp bits "$KEPT/$net"
    fi
    same "$net liveness" "$@" --policy liveness
    same "$net order" "$@" --policy order
    for percent in 50% 25%; do
        # Of all that a network takes here a search is the longest, so there is one, and none for the deepest network.
        # What `budget` fits, `best` fits.
        policy="--policy budget"
        case "$net $percent" in densenet121*) ;; *25%) policy="--policy best --effort 0" ;; esac
        fit $percent "$@" --policy budget
        # shellcheck disable=SC2086
        same "$net $percent" "$@" $policy --memory "$budget"
        check "$net $percent: inside the budget" test "$(member out peak_measured_bytes)" -le \
            "$(granules "$(member out budget_bytes)")"
    done
    set -- "$@" --policy budget
    least "$@"
    same "$net least" "$@" --memory "$least_bytes"
    check "$net least: something moved or was computed again" \
        test $(($(member out moved_out_bytes) + $(member out recomputed_steps))) -gt 0
    # With no more of the host's memory than data and weights take, everything that leaves goes to the file.
    mkdir -p disk
    "$EBB" train "$@" --memory "$least_bytes" --host-memory 1 --disk disk >out 2>err
    host_bytes=$(sed -n 's/.* need \([0-9]*\) bytes.*/\1/p' err)
    "$EBB" train "$@" --memory 4KiB --host-memory "$host_bytes" --disk disk --json >out 2>err
    same "$net least, file tier" "$@" --memory "$(member out least_budget_bytes)" --host-memory "$host_bytes" --disk disk
    equal "$net least, file tier: nothing in the host's memory" "$(member out slab_bytes)" 0
    check "$net least, file tier: it was the file" test "$(member out file_bytes)" -gt 0
    empty "$net: nothing is left on the disk" "$(ls disk)"
done <<END
${SMALL:-$networks}
END
exit $status
