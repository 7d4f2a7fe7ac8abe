#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# The backend cuda on a card (`make test-cuda`, which builds without the host's sanitizers: they and CUDA's do not go
# together): the conformance suite; loss and gradients beside ref's and PyTorch's; what is learned beside the processor;
# the driver's free bytes; the same bits under every plan, with and without graphs; and training and the suite under
# compute-sanitizer's tools, where it is. EBB names the program, beside or below which test_conformance_cuda lies;
# BACKEND another backend; SMALL makes it a rehearsal with little to compute (`make dry-cuda`): a line of test_bits.sh's
# table. Without a card all is skipped.
. "$(dirname "$0")/../e2e/lib.sh"
on="--backend ${BACKEND:=cuda}"

suite=$(find "$(dirname "$EBB")" -name "test_conformance_$BACKEND" -type f -perm -u+x 2>/dev/null | head -n 1)
sanitizer=$(PATH=$PATH:${CUDA_HOME:-/usr/local/cuda}/bin:/usr/local/cuda/compute-sanitizer command -v compute-sanitizer)
tools="memcheck racecheck initcheck"
small="train ${SMALL:-resnet18 --image 32x32 --batch 4 --classes 10} --steps 5 $on --memory 60% --json"
learner="resnet20 --optimizer nesterov --lr 0.05"
steps=500
[ -z "$SMALL" ] || { learner="mlp --lr 0.05" && steps=3; }

# good NAME COMMAND...: it ends well; what it said is shown if not.
good() {
    name=$1
    shift
    if "$@" >said 2>&1 </dev/null; then pass "$name"; else fail "$name" "$*" "$(tail -n 40 said)"; fi
}

# told PREFIX COMMAND...: its cases are ours, by that name.
told() {
    prefix=$1
    shift
    "$@" >said 2>&1 </dev/null
    code=$?
    sed "s/^\(not ok\|ok\) - /&$prefix/" said
    case $code in 0 | 77) ;; *) status=1 ;; esac
}

# within NAME A B LIMIT: two numbers, no further apart than that.
within() {
    check "$1: $2 and $3" awk "BEGIN { d = $2 - $3; exit !(d <= $4 && -d <= $4) }"
}

# shellcheck disable=SC2086
"$EBB" probe $on >out 2>err
if [ $? = 5 ]; then
    why=$(sed 's/^ebb: //' err)
    for case in "conformance" "beside ref" "beside PyTorch" "accuracy" "free bytes" "bits" "captured beside streams"; do
        skip "$case" "$why"
    done
    for tool in $tools; do skip "$tool: conformance" "$why" && skip "$tool: training" "$why"; done
    exit $status
fi

[ -z "$suite" ] || good "conformance" "$suite"
[ -n "$suite" ] || fail "conformance" "there is no test_conformance_$BACKEND beside $EBB"
told "gradients: " python3 "$root/tests/card/beside_ref.py" "$EBB" "$work" "$BACKEND"
[ -z "$SMALL" ] || export NETS="${NETS:-lenet}"
ON=$on EBB=$EBB told "gradients: " "$root/tests/e2e/test_torch.sh"

# What 500 steps learn of the real digits. Without the processor's kernels (oneDNN) beside ref's, in more time.
learn() { # FILE OPTIONS...
    file=$1
    shift
    # shellcheck disable=SC2086
    run "learning on $*" "$file" train $learner --data "digits:$digits" --batch 64 --steps $steps --seed 1 --json "$@"
}
beside=cpu
"$EBB" plan mlp --backend cpu >out 2>err || beside=ref
if [ -e "$digits" ]; then
    # shellcheck disable=SC2086
    learn learned $on && learn wanted --backend $beside &&
        within "accuracy of $steps steps beside $beside" "$(member learned accuracy)" "$(member wanted accuracy)" 0.01
else
    skip "accuracy" "there is no $digits"
fi

# The driver's total less its free bytes is the arenas' granules and what was named as the context's when the plan was
# made; and nvidia-smi, which asks the driver from another process, sees the same while it runs.
granule=$((2 << 20))
# shellcheck disable=SC2086
run "free bytes" out $small --no-capture &&
    within "free bytes: context at the end and when planned" "$(member out context_end_bytes)" \
        "$(member out context_bytes)" $granule
# shellcheck disable=SC2086
if run "free bytes, graphs" graphs $small; then
    end=$(member graphs context_end_bytes) planned=$(member graphs context_bytes)
    echo "    graphs take $((${end:-0} - ${planned:-0})) bytes more"
fi
if command -v nvidia-smi >/dev/null && [ "$BACKEND" = cuda ]; then
    mkfifo steps_out
    # shellcheck disable=SC2086
    "$EBB" $small --no-capture --steps 2000 >steps_out 2>err &
    trainer=$!
    exec 3<steps_out
    read -r _ <&3 && seen=$(nvidia-smi -i 0 --query-gpu=memory.used --format=csv,noheader,nounits)
    cat <&3 >rest
    wait $trainer || fail "free bytes: the trainer" "exit $?" "stderr: $(head -c 800 err)"
    exec 3<&-
    arena=$(member rest arena_bytes) context=$(member rest context_bytes)
    taken=$((${arena:-0} + ${context:-0}))
    within "free bytes: nvidia-smi's and arena with context" "$((${seen:-0} << 20))" "$taken" $((2 * granule))
else
    skip "free bytes: nvidia-smi's" "there is no nvidia-smi"
fi

# Bits of the one are kept for the other.
mkdir kept
ON=$on EBB=$EBB KEPT=$work/kept told "captured: " "$root/tests/e2e/test_bits.sh"
ON="$on --no-capture" EBB=$EBB KEPT=$work/kept told "streams: " "$root/tests/e2e/test_bits.sh"
# shellcheck disable=SC2086
run "captured" captured $small && run "streams" streams $small --no-capture &&
    equal "captured beside streams" "$(losses captured) $(member captured weights_sha256)" \
        "$(losses streams) $(member streams weights_sha256)"

for tool in $tools; do
    if [ -z "$sanitizer" ] || [ -n "$SMALL" ]; then
        skip "$tool" "there is no compute-sanitizer, or nothing for it"
        continue
    fi
    check="$sanitizer --tool $tool --error-exitcode 9 --target-processes all"
    # shellcheck disable=SC2086
    [ -z "$suite" ] || good "$tool: conformance" $check "$suite"
    # shellcheck disable=SC2086
    good "$tool: training" $check "$EBB" $small
done
exit $status
