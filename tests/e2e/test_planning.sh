#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# ebb.planning: programs and plans from Python, whose structs have to be those of the headers; and `python -m ebb`.
. "$(dirname "$0")/lib.sh"
PYTHONDONTWRITEBYTECODE=1 PYTHONPATH=$root/python EBB_LIBRARY=$(dirname "$EBB")/libebb.so
export PYTHONDONTWRITEBYTECODE PYTHONPATH EBB_LIBRARY

layout() { # INCLUDE
    python3 "$root/tests/e2e/c_layout.py" "$1" >out 2>err
}

# changed NAME SED: with a header in which that is other, the comparison fails.
changed() {
    rm -rf include && cp -r "$root/include" include && sed -i "$2" include/ebb/*.h
    check "$1: it is another header" test -n "$(diff -r "$root/include" include)"
    layout include
    equal "$1: it is noticed" "$([ $? = 0 ] || echo noticed)" noticed
}

if command -v cc >/dev/null; then
    layout "$root/include"
    equal "structs and constants are those of the headers" "$?: $(grep -v compared out)" "0: "
    check "all of them were compared" grep -qE '^[0-9]{3} numbers compared, of 1[0-9] structs' out
    changed "a field in padding" 's/^    bool kept; .*/    bool kept, odd;/'
    changed "a wider field" 's/^    uint32_t choice; .*/    uint64_t choice;/'
    changed "two fields that change places" 's/^    uint32_t near, far;/    uint32_t far, near;/'
    changed "a number that is a floating-point one" 's/^    uint64_t latency_ns; .*/    double latency_ns;/'
    changed "a constant" 's/^#define EBB_MAX_TIERS 8u/#define EBB_MAX_TIERS 9u/'
    changed "a role in the middle" 's/^    X(GRADIENT, "gradient") /    X(ODD, "odd") X(GRADIENT, "gradient") /'
else
    skip "structs and constants are those of the headers" "no C compiler"
fi

# Copies slow computing so much that some are held.
cat >busy.json <<'END'
{"format": "ebb-machine", "version": 2, "links": [{"near": "device", "far": "host", "work_rate": 0.3, "copy_rate": 0.3}]}
END
python3 - >out 2>err <<'END'
from ebb import planning

program = planning.Program("a chain", 64)
layers = [program.tensor(f"x{i}", 4096, role=3) for i in range(8)]
gradients = [program.tensor(f"g{i}", 4096) for i in range(8)]
program.step("feed", writes=layers[:1], time_ns=1000)
for i in range(7):
    program.step(f"layer{i}", reads=[layers[i]], writes=[layers[i + 1]], repeat=planning.EXACT, time_ns=5000)
program.step("loss", reads=[layers[7]], writes=[gradients[7]], time_ns=1000)
for i in reversed(range(7)):
    program.step(f"back{i}", reads=[layers[i], gradients[i + 1]], writes=[gradients[i]], phase=1, time_ns=10000)
machine = planning.Machine()
machine.set_link(planning.DISK, 1e9, 2e9, 1000)
whole = program.plan(planning.NO_LIMIT, machine)
half = program.plan(whole.peak_bytes // 2, machine, effort=0)
disk = program.plan(whole.peak_bytes // 2, machine, {planning.DISK: planning.NO_LIMIT}, effort=0, no_recompute=True)
kinds = lambda plan: sorted({action.kind for action in plan.actions})
print("whole", whole.peak_bytes, whole.n_recomputed_steps, kinds(whole), whole.iteration_ns)
print("half", half.peak_bytes <= whole.peak_bytes // 2, half.n_recomputed_steps > 0, kinds(half),
      whole.iteration_ns <= half.bound_ns <= half.iteration_ns)
print("disk", disk.moved_out_bytes > 0, disk.tier_bytes[planning.DISK] > 0, disk.tier_bytes[planning.HOST], kinds(disk))
held = program.plan(whole.peak_bytes * 6 // 10, planning.Machine("busy.json"), {planning.HOST: planning.NO_LIMIT}, no_recompute=True)
held.save("held.plan")
lines = [line.split() for line in open("held.plan")]
copies = [words[-1] == "held" for words in lines if words[0] in ("out", "in")]
mine = [held for kind, _, _, held in held.actions if kind in (planning.OUT, planning.IN)]
print("waits", any(copies), mine == copies, any(action.held for action in half.actions))
try:
    program.plan(4096, machine)
except planning.NoFit as error:
    print("refused", error.least_budget_bytes)
try:
    planning.Program("p", 3)
except RuntimeError as error:
    print("wrong", error)
fed = planning.Program("fed", 64)
batch, total = fed.tensor("batch", 1 << 20, persistent=True), fed.tensor("sum", 64, persistent=True)
fed.step("add", reads=[batch], updates=[total], time_ns=1000)
fed.step("feed", writes=[batch], time_ns=7000, copies_in=True)
fed.step("wait", updates=[total], time_ns=10000)
print("fed", fed.plan(planning.NO_LIMIT, machine, margin=0.5).iteration_ns)
try:
    fed.plan(planning.NO_LIMIT, machine, margin=-1)
except RuntimeError as error:
    print("late", error)
program.save("chain.program")
half.save("chain.plan")
END
equal "without a limit" "$(grep whole out)" "whole 36864 0 [0, 5] 107000"
equal "computed again" "$(grep half out)" "half True True [0, 1, 5] True"
equal "moved to a file" "$(grep disk out)" "disk True True 0 [0, 2, 3, 5]"
equal "copies that are held, as in the plan's file" "$(grep waits out)" "waits True True False"
equal "a refusal names the least budget" "$(grep refused out)" "refused 16384"
check "a wrong argument is an exception with the library's message" grep -q '^wrong .*alignment' out
equal "a feed beside a step" "$(grep fed out)" "fed 11000"
check "a margin below 0" grep -q '^late .*margin' out
empty "nothing else is said" "$(cat err)"
run "ebb plan reads the program" planned plan ./chain.program --memory 18432
equal "python -m ebb" "$(python3 -m ebb version)" "$("$EBB" version)"

# Several walks of the search are made at once: what comes out is the same.
run "a search with all processors" out plan resnet_cifar:9 --backend dry --memory 40% -o all.plan &&
    taskset -c "$(taskset -cp $$ | sed 's/.*: \([0-9]*\).*/\1/')" \
        "$EBB" plan resnet_cifar:9 --backend dry --memory 40% -o one.plan >out 2>err
equal "a search with one processor" "$?" 0
check "it gives the same plan" cmp all.plan one.plan

# A margin: copies that are late by less cost nothing, and what is predicted and proven is the machine's own.
link='{"format": "ebb-machine", "version": 1, "rates": {"flops_per_s": 7e12, "bytes_per_s": 4e11, "overhead_ns": 5000},
       "links": {"host": {"in_bytes_per_s": RATE, "out_bytes_per_s": RATE, "latency_ns": 10000}}}'
echo "$link" | sed 's/RATE/1.2e10/g' >told
echo "$link" | sed 's/RATE/1e10/g' >slower
below() { # A B: numbers
    awk "BEGIN { exit !($1 < $2) }"
}
net="plan resnet50 --batch 64 --backend dry --memory 50% $effort"
# shellcheck disable=SC2086
for margin in 0 20; do
    run "a margin of $margin %" told_$margin $net --machine told --margin $margin% -o $margin.plan --json &&
        run "its copies are late" late_$margin $net --machine slower --check $margin.plan --json
done
equal "the bound is the machine's" "$(member told_20 bound_step_time_s)" "$(member told_0 bound_step_time_s)"
equal "with a margin all is as predicted" "$(member late_20 step_time_predicted_s)" "$(member told_20 step_time_predicted_s)"
check "without one it is not" below "$(member told_0 step_time_predicted_s)" "$(member late_0 step_time_predicted_s)"
check "a margin costs little" below "$(member told_20 step_time_predicted_s)" "$(member late_0 step_time_predicted_s)"
# shellcheck disable=SC2086
complains "a margin that is none" 2 "--margin" plan resnet20 --backend dry --memory 50% --margin -3%
complains "a margin that is too large" 2 "a margin of 1e\\+30% is not from 0% to 100000%" \
    plan resnet20 --backend dry --memory 50% --margin 1e30%
exit $status
