#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# What nvcc makes of own kernels (tools/cuda-code): those that go through whole tensors read and write 16 bytes at a time
# and spill nothing. Where nvcc or cuobjdump is not there, it is skipped. Columns: name, loads of 128, 64, 32 and fewer
# bits, stores likewise, registers, spills, shared memory, occupancy.
. "$(dirname "$0")/lib.sh"

elementwise="relu_fours relu_bwd_fours add_fours bias_fours join_fours slice_fours norm_fours norm_bwd_fours"
stateful="dropout_fours dropout_last_fours update_fours" # they read the run's state too, in single words
sums="norm_statistics_fours norm_gradients_fours sum_columns_fours"
python=${PYTHON:-python3}

"$python" "$root/tools/cuda-code" $elementwise $stateful $sums >code 2>err
case $? in
0) ;;
77)
    skip "kernels' accesses" "$(cat err)"
    exit 77
    ;;
*)
    fail "kernels' accesses" "$(cat err)"
    exit 1
    ;;
esac

column() { # kernel, number
    awk -F '\t' -v name="$1" -v n="$2" '$1 == name { print $n }' code
}

for kernel in $elementwise $stateful; do
    check "$kernel loads 16 bytes" test "$(column $kernel 2)" -gt 0
    check "$kernel stores 16 bytes" test "$(column $kernel 6)" -gt 0
    equal "$kernel stores nothing narrower" "$(column $kernel 7) $(column $kernel 8) $(column $kernel 9)" "0 0 0"
done
for kernel in $elementwise; do
    equal "$kernel loads nothing narrower" "$(column $kernel 3) $(column $kernel 4) $(column $kernel 5)" "0 0 0"
done
for kernel in $sums; do
    check "$kernel loads several rows at a time, 16 bytes each" test "$(column $kernel 2)" -ge 4
    check "$kernel stores its sums by 16 bytes" test "$(column $kernel 6)" -gt 0
done
for kernel in $elementwise $stateful $sums; do
    equal "$kernel spills nothing" "$(column $kernel 11)" 0
done

# A kernel that lost its wide loads would be seen.
mkdir -p narrow/src/backend && cp -R "$root/include" narrow/ && cp -R "$root/src/backend/cuda" narrow/src/backend/ &&
    cp -R "$root/src/base" narrow/src/ && sed -i 's/EBB_CUDA_ALIGNED(16) float/float/' narrow/src/backend/cuda/cuda_quad.h
"$python" "$root/tools/cuda-code" --source narrow relu_fours >code 2>err || fail "narrow loads" "$(cat err)"
equal "without its alignment relu loses its wide loads" "$(column relu_fours 2)" 0
check "and loads single words" test "$(column relu_fours 4)" -gt 0
exit $status
