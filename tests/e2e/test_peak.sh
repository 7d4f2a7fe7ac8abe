#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# The measured peak is the planned peak, to the byte, for every network of the zoo under every policy; the kernel's count
# of the process agrees with the pieces that ebb names; and nothing moves with all the bytes that liveness needs.
. "$(dirname "$0")/lib.sh"

nets=$("$EBB" train --help | sed -n '/^networks:/,/^$/s/^  \([a-z0-9_]*\) .*/\1/p')

for net in $nets; do
    run "$net 100%" out plan "$net" --backend dry --batch 16 --memory 100% --json || continue
    equal "$net moves nothing at 100%" 0 $(($(member out moved_out_bytes) + $(member out moved_in_bytes) + $(member out recomputed_steps)))
    equal "$net peak at 100%" "$(member out peak_planned_bytes)" "$(member out liveness_bytes)"
done

machine
for net in $nets; do
    case $net in
    inception4) image=75x75 ;;
    alexnet*) image=67x67 ;;
    *) image=32x32 ;;
    esac
    case $net in lenet | mlp) image=28x28 ;; esac
    for policy in none liveness budget; do
        memory=
        if [ $policy = budget ]; then
            fit 50% "$net" --image $image --batch 2 --classes 10 --machine machine
            memory="--memory $budget"
        fi
        # shellcheck disable=SC2086
        run "$net $policy" out train "$net" --image $image --batch 2 --classes 10 --policy $policy $memory --machine machine --steps 1 --json ||
            continue
        equal "$net $policy" "$(member out peak_measured_bytes)" "$(member out peak_planned_bytes)"
    done
done

# Arena, slab, data and the constant add up to what the kernel counts, within 12 %.
run "resident" out train vgg11 --image 64x64 --batch 16 --classes 10 --memory 70% --steps 2 --json
named=$(($(member out arena_bytes) + $(member out slab_bytes) + $(member out data_bytes) + $(member out constant_bytes)))
resident=$(member out resident_peak_bytes)
check "resident memory ($resident) is arena, slab, data and constant ($named)" \
    test $((resident * 100)) -ge $((named * 88)) -a $((resident * 100)) -le $((named * 112))
exit $status
