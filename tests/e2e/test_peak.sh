#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# The measured peak is the planned peak for the networks of the zoo under every policy: the arena is as large as planned
# and ends at a page without access, so a run that ends has used nothing above it, and the kernel's page table says that
# the last page before it was used; where a step's scratch lies on top, a kernel may leave the end of it untouched. A
# device without memory measures none. The kernel's count of the process agrees with the pieces that ebb names; and
# nothing moves with all the bytes that liveness needs.
. "$(dirname "$0")/lib.sh"

nets=$("$EBB" train --help | sed -n '/^networks:/,/^$/s/^  \([a-z0-9_]*\) .*/\1/p')
some "networks of --help" $nets

for net in $nets; do
    run "$net 100%" out plan "$net" --backend dry --batch 16 --memory 100% --json || continue
    equal "$net moves nothing at 100%" 0 $(($(member out moved_out_bytes) + $(member out moved_in_bytes) + $(member out recomputed_steps)))
    equal "$net peak at 100%" "$(member out peak_planned_bytes)" "$(member out liveness_bytes)"
done

# One of each kind that is quick to run has all policies, in the short form fewer; the others of a kind differ in depth, and two of each run
# where all tests do, inside a budget.
quick="mlp lenet alexnet vgg11 resnet18 resnet20 densenet121"
[ -n "$EBB_TEST_MORE" ] || quick="mlp lenet alexnet resnet20"
measured=$quick
[ -z "$EBB_TEST_ALL" ] || measured="$quick alexnet_tv vgg16_bn resnet50 resnet110 resnet50_cifar vgg16_cifar inception4"
machine
for net in $measured; do
    case $net in
    inception4) image=75x75 ;;
    alexnet*) image=67x67 ;;
    *) image=32x32 ;;
    esac
    case $net in lenet | mlp) image=28x28 ;; esac
    scratch=$(largest_scratch "$net" --image $image --batch 2 --classes 10 --machine machine)
    policies=budget
    case " $quick " in *" $net "*) policies="none liveness budget best" ;; esac
    for policy in $policies; do
        memory=
        if [ $policy = budget ] || [ $policy = best ]; then
            fit 50% "$net" --image $image --batch 2 --classes 10 --machine machine --policy budget
            memory="--memory $budget --effort 0"
        fi
        # shellcheck disable=SC2086
        run "$net $policy" out train "$net" --image $image --batch 2 --classes 10 --policy $policy $memory --machine machine --steps 1 --json ||
            continue
        as_planned "$net $policy" "$(member out peak_measured_bytes)" "$(member out peak_planned_bytes)" "$scratch"
        equal "$net $policy: the arena ends there" "$(member out arena_bytes)" "$(member out peak_planned_bytes)"
    done
done
run "dry" out train mlp --batch 2 --backend dry --steps 1 --json &&
    equal "without memory nothing is measured" "$(member out peak_measured_bytes)" null
run "dry, for people" out train mlp --batch 2 --backend dry --steps 1 &&
    check "and that is said" grep -qE "^  measured peak +not known$" out

# Arena, slab, data and the constant add up to what the kernel counts, within 12 %.
steps=1
[ -z "$EBB_TEST_MORE" ] || steps=2
# shellcheck disable=SC2086
run "resident" out train vgg11 --image 64x64 --batch 16 --classes 10 --memory 70% $effort --steps $steps --json
named=$(($(member out arena_bytes) + $(member out slab_bytes) + $(member out data_bytes) + $(member out constant_bytes)))
resident=$(member out resident_peak_bytes)
check "resident memory ($resident) is arena, slab, data and constant ($named)" \
    test $((resident * 100)) -ge $((named * 88)) -a $((resident * 100)) -le $((named * 112))
# For people, what is missing to the sum has a line, be it more or less.
for command in "train mlp --batch 2 --steps 1" "train resnet20 --batch 8 --steps 1 --memory 60% --effort 0"; do
    # shellcheck disable=SC2086
    run "resident, for people" out $command
    equal "resident, for people: the lines add up" \
        "$(awk '/^resident memory/ { on = 1; next } /peak of the process/ { exit } on { sum += $NF } END { printf "%.0f", sum }' out)" \
        "$(sed -n 's/^  peak of the process .* //p' out)"
    equal "resident, for people: four parts and the difference" \
        "$(grep -cE '^  (arena|host slab|data|constant \(code, kernels\)|the rest \(heap, stacks\)|not all in memory at once) ' out)" 5
done
exit $status
