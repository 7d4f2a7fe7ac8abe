#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# The backend cuda on a card (`make test-cuda`, which builds without the host's sanitizers: they and CUDA's do not go
# together): the conformance suite; loss and gradients beside ref's and PyTorch's; what is learned beside the processor;
# the driver's free bytes; the same bits under every plan, with and without graphs; and training and the suite under
# compute-sanitizer's tools, where it is. EBB names the program, beside or below which test_conformance_cuda lies;
# BACKEND another backend; SMALL makes it a rehearsal with little to compute (`make dry-cuda`): a line of test_bits.sh's
# table. STAGE names one piece of a card's time, the same as bench_cuda.py's. Without a card all is skipped.
#
# Each section is a call of this script with its name, so that one that fails or hangs does not end the rest. In a stage
# each has a share of the time that is left (LIMIT seconds for all); what one does not use is the next one's.
. "$(dirname "$0")/../e2e/lib.sh"
self=$root/tests/card/test_card.sh
on="--backend ${BACKEND:=cuda}"

suite=$(find "$(dirname "$EBB")" -name "test_conformance_$BACKEND" -type f -perm -u+x 2>/dev/null | head -n 1)
tools="memcheck racecheck initcheck"
small="train ${SMALL:-resnet18 --image 32x32 --batch 4 --classes 10} --steps 5 $on --memory 60% --json"
tiny="train resnet_cifar:1 --image 32x32 --batch 8 --classes 10 --steps 3 $on --memory 60% --json"

# good NAME COMMAND...: it ends well; what it says is shown.
good() {
    name=$1
    shift
    { "$@" && echo 0 >code || echo $? >code; } 2>&1 </dev/null | sed -u 's/^/    /'
    if [ "$(cat code)" = 0 ]; then pass "$name"; else fail "$name" "$*" "exit $(cat code)"; fi
}

# told PREFIX COMMAND...: its cases are ours, by that name.
told() {
    prefix=$1
    shift
    { "$@" && echo 0 >code || echo $? >code; } 2>&1 </dev/null | sed -u "s/^\(not ok\|ok\) - /&$prefix/"
    case $(cat code) in 0 | 77) ;; *) status=1 ;; esac
}

# within NAME A B LIMIT: two numbers, no further apart than that.
within() {
    check "$1: $2 and $3" awk "BEGIN { d = $2 - $3; exit !(d <= $4 && -d <= $4) }"
}

# ---- sections ----

section_conformance() {
    if [ -n "$suite" ]; then
        good "conformance" "$suite"
    else
        fail "conformance" "there is no test_conformance_$BACKEND beside $EBB"
    fi
}

section_beside_ref() {
    told "gradients: " python3 "$root/tests/card/beside_ref.py" "$EBB" "$work" "$BACKEND"
}

section_beside_torch() {
    [ -z "$SMALL" ] || export NETS="${NETS:-lenet}"
    ON=$on EBB=$EBB told "gradients: " "$root/tests/e2e/test_torch.sh"
}

section_captured() {
    # shellcheck disable=SC2086
    # With 16 steps, graph and streams are tried and the run goes on with one of them.
    run "captured" captured $small --steps 16 && run "streams" streams $small --steps 16 --no-capture &&
        equal "captured beside streams" "$(losses captured) $(member captured weights_sha256)" \
            "$(losses streams) $(member streams weights_sha256)"
    # shellcheck disable=SC2086
    run "fed early" early $small --steps 16 --feed early && run "fed first" first $small --steps 16 --feed first &&
        equal "fed early beside first" "$(losses early) $(member early weights_sha256)" \
            "$(losses first) $(member first weights_sha256)"
}

# What 500 steps learn of the real digits. Without the processor's kernels (oneDNN) beside ref's, in more time.
section_accuracy() {
    if [ ! -e "$digits" ]; then
        skip "accuracy" "there is no $digits"
        return
    fi
    learner="resnet20 --optimizer nesterov --lr 0.05"
    steps=500
    [ -z "$SMALL" ] || { learner="mlp --lr 0.05" && steps=3; }
    beside=cpu
    "$EBB" plan mlp --backend cpu >out 2>err || beside=ref
    # shellcheck disable=SC2086
    learn learned $on && learn wanted --backend $beside &&
        within "accuracy of $steps steps beside $beside" "$(member learned accuracy)" "$(member wanted accuracy)" 0.01
}

learn() { # FILE OPTIONS...
    file=$1
    shift
    # shellcheck disable=SC2086
    run "learning on $*" "$file" train $learner --data "digits:$digits" --batch 64 --steps $steps --seed 1 --json "$@"
}

# The driver's total less its free bytes is the arenas' granules and what was named as the context's when the plan was
# made; and nvidia-smi, which asks the driver from another process, sees the same while it runs.
section_free_bytes() {
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
}

# Bits of the one are kept for the other.
section_bits() {
    mkdir kept
    ON=$on EBB=$EBB KEPT=$work/kept told "captured: " "$root/tests/e2e/test_bits.sh"
    ON="$on --no-capture" EBB=$EBB KEPT=$work/kept told "streams: " "$root/tests/e2e/test_bits.sh"
}

# sanitized TOOL NAME COMMAND...
sanitized() {
    tool=$1 what=$2
    shift 2
    sanitizer=$(PATH=$PATH:${CUDA_HOME:-/usr/local/cuda}/bin:/usr/local/cuda/compute-sanitizer command -v compute-sanitizer)
    if [ -z "$sanitizer" ] || [ -n "$SMALL" ]; then
        skip "$tool: $what" "there is no compute-sanitizer, or nothing for it"
    else
        good "$tool: $what" "$sanitizer" --tool "$tool" --error-exitcode 9 --target-processes all "$@"
    fi
}

section_memcheck() {
    # shellcheck disable=SC2086
    sanitized memcheck "a tiny training" "$EBB" $tiny
}

section_sanitizers() {
    for tool in $tools; do
        [ -z "$suite" ] || sanitized "$tool" "conformance" "$suite"
        # shellcheck disable=SC2086
        sanitized "$tool" "training" "$EBB" $small
    done
}

# ---- all of them, or a stage's, with their shares of its time ----

case ${STAGE:-} in
'') sections="conformance beside_ref beside_torch accuracy free_bytes bits captured memcheck sanitizers" ;;
1) sections="conformance:60 beside_ref:30 beside_torch:100 captured:30" seconds=220 ;;
2) sections="free_bytes:50" seconds=50 ;;
3) sections="bits:200 memcheck:60" seconds=260 ;;
*)
    fail "stage $STAGE" "there is none; there are 1, 2 and 3"
    exit 1
    ;;
esac

if [ -n "${1:-}" ]; then
    "section_$1"
    exit $status
fi

# shellcheck disable=SC2086
"$EBB" probe $on >out 2>err
if [ $? = 5 ]; then
    why=$(sed 's/^ebb: //' err)
    for section in $sections; do skip "${section%:*}" "$why"; done
    exit $status
fi
sed 's/^/    /' out err

# The numbers behind the colons are the sections' shares.
all=0
[ -z "$STAGE" ] || for section in $sections; do all=$((all + ${section#*:})); done
end=$(($(date +%s) + ${LIMIT:-${seconds:-0}}))
for section in $sections; do
    name=${section%:*}
    echo "== $name"
    if [ -z "$STAGE" ]; then
        "$self" "$name"
    else
        share=$(((end - $(date +%s)) * ${section#*:} / all))
        all=$((all - ${section#*:}))
        [ $share -gt 0 ] || share=1
        timeout -k 5 $share "$self" "$name"
    fi
    case $? in
    0 | 77) ;;
    124 | 137) fail "$name" "stopped after its share of the time, $share s" ;;
    *) status=1 ;;
    esac
done
exit $status
