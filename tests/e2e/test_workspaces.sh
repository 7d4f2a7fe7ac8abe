#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# --algorithms greedy gives each step the fastest algorithm that the bytes left hold, and --workspaces shows what each step
# has beside what its fastest one wants.
. "$(dirname "$0")/lib.sh"

# Each step writes a tensor of 1000 bytes that the next one reads; "big" is the fastest.
{
    echo 'ebb-program 1'
    echo 'name "choices"'
    echo 'alignment 1'
    choices='choice "none" 0 00000000000000a1 0 0 time 900 choice "some" 300 00000000000000a2 0 0 time 500'
    choices="$choices"' choice "big" 1000 00000000000000a3 0 0 time 100'
    for i in 0 1 2; do echo "tensor $i \"t$i\" 1000 activation"; done
    echo "step 0 \"first\" \"conv\" forward write 0 $choices"
    echo "step 1 \"second\" \"conv\" forward read 0 write 1 $choices"
    echo "step 2 \"third\" \"relu\" forward read 1 write 2 choice \"only\" 0 00000000000000a4 0 0 time 100"
    echo 'end 3 3'
} >program

shown() { # budget
    "$EBB" plan ./program --policy liveness --memory "$1" --algorithms greedy --workspaces >out 2>err || cat err
    sed -n '/^scratch of steps/,$p' out | tail -n +2 | awk '{ print $1, $(NF) }' | tr '\n' ' '
}

equal "all fit" "$(shown 3000)" "first big second big "
equal "one has room" "$(shown 2400)" "first big second some "
equal "tensors come first" "$(shown 2000)" "first big second none "
run "as JSON" out plan ./program --policy liveness --memory 2400 --algorithms greedy --workspaces --json &&
    check "as JSON: what it has and what the fastest wants" grep -q \
        '"step": *"second", *"algorithm": *"some", *"scratch_bytes": *300, *"fastest": *"big", *"fastest_scratch_bytes": *1000' out
run "not asked for" out plan ./program --policy liveness --algorithms greedy &&
    check "not asked for: not shown" sh -c '! grep -q "^scratch of steps" out'
exit $status
