#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# `ebb compare`: one table, one picture and one object of all policies at all budgets, which say what `ebb plan` says;
# and with --run what runs measure, with the same bits.
. "$(dirname "$0")/lib.sh"

options="--backend dry --batch 16"
# shellcheck disable=SC2086
run "all policies" out compare resnet20 $options --memory 110%,70%..30%:20% --json -o page.svg
check "the object and the picture are whole" python3 - <<'END'
import json, sys, xml.dom.minidom
compared = json.load(open("out"))
budgets, plans = compared["budgets"], compared["plans"]
names = [plan["policy"] for plan in plans[: len(plans) // len(budgets)]]
assert compared["schema_version"] == 1
assert [budget["budget_percent"] for budget in budgets] == [110, 70, 50, 30], budgets
assert {"none", "liveness", "order", "budget", "best"} <= set(names), names
assert [plan["policy"] for plan in plans] == names * 4
for i, plan in enumerate(plans):
    budget = budgets[i // len(names)]
    assert plan["budget_bytes"] == budget["budget_bytes"]
    if "error" in plan:
        assert plan["error"], plan
        continue
    assert plan["peak_planned_bytes"] <= budget["budget_bytes"]
    assert plan["gap"] >= -1e-9, plan
times = {name: [plan.get("step_time_predicted_s") for plan in plans if plan["policy"] == name] for name in names}
assert times["liveness"][0] and not times["liveness"][1], times
assert all(times["best"]), times
assert all(a <= b for a, b in zip(times["best"], times["budget"])), times
picture = xml.dom.minidom.parse("page.svg")
words = [text.firstChild.data for text in picture.getElementsByTagName("text")]
assert {"best", "budget", "resnet20"} <= set(words), words
n_plans = sum("error" not in plan for plan in plans)
assert len(picture.getElementsByTagName("circle")) == n_plans, n_plans
END

# Here the search alone is slower than the rule.
run "a rule that the search does not beat" out compare alexnet --batch 200 --accounting paper --backend dry --memory 60% \
    --policies vdnn-all,best --json
check "is asked by best" python3 - <<'END'
import json
rule, best = json.load(open("out"))["plans"]
assert best["step_time_predicted_s"] <= rule["step_time_predicted_s"], (rule, best)
END

# What is copied out may be made anew before it is needed.
cat >machine.json <<END
{"format": "ebb-machine", "version": 1,
 "links": {"host": {"in_bytes_per_s": 1.2e10, "out_bytes_per_s": 1.2e10, "latency_ns": 10000}},
 "rates": {"flops_per_s": 7e12, "bytes_per_s": 4e11, "overhead_ns": 5000}}
END
run "rules that copy and compute again" out compare resnet_cifar:1 --backend dry --batch 64 --machine machine.json \
    --effort 0 --memory 80%..20%:15% --policies capuchin,mu-two,g10,flashneuron

# A rule may have a plan for the nominal machine only, and that may be the fastest of all.
run "a rule with a nominal plan alone" out compare mlp --backend dry --machine machine.json --memory 85% \
    --policies autoswap-aoa,best --json
check "is asked by best, too" python3 - <<'END'
import json
rule, best = json.load(open("out"))["plans"]
assert best["step_time_predicted_s"] <= rule["step_time_predicted_s"], (rule, best)
END

# A row is what `ebb plan` says, and the table's line, the CSV's and the object's are one.
# shellcheck disable=SC2086
run "two policies" out compare resnet20 $options --memory 50% --policies budget,liveness --json -o rows.csv &&
    equal "it says what it wrote" "$(unfold err | grep -v note)" "ebb: wrote rows.csv" &&
    sed 's/"policy"/\n&/g' out | grep '^"policy": "budget"' >row && unfold err >notes &&
    run "the plan" plan plan resnet20 $options --memory 50% --policy budget --json
for key in budget_bytes peak_planned_bytes recomputed_steps step_time_predicted_s stall_time_predicted_s; do
    equal "compare and plan: $key" "$(member row $key)" "$(member plan $key)"
done
equal "a line for each row of the CSV" "$(wc -l <rows.csv)" 3
equal "a row of the CSV" "$(sed -n 's/^budget,\([0-9]*\),\([0-9]*\),.*/\1 \2/p' rows.csv)" \
    "$(member row budget_bytes) $(member row peak_planned_bytes)"
check "a policy without a plan is an empty row" grep -qE '^liveness,[0-9]+,,' rows.csv
check "and a note says why" grep -qE '^ebb: note: liveness has no plan at 1 of 1 budgets, the first .*: a budget of [0-9]+ bytes is too small' notes
# shellcheck disable=SC2086
run "the table" out compare resnet20 $options --memory 50% --policies budget
check "the table has the budget and its bound" grep -qE '^50 %, [0-9.]+ MiB: no plan is faster than ' out
check "and the policy" grep -qE '^ +budget +[0-9.]+ MiB +' out

# shellcheck disable=SC2086
run "one policy" out compare resnet20 $options --memory 70%,50% --policies budget
equal "one policy is one table" "$(grep -cE '^ +budget +peak ' out) $(grep -cE '^ +[57]0 %, +[0-9.]+ MiB +[0-9.]+ MiB ' out)" "1 2"

# The usual budgets are 17.
# shellcheck disable=SC2086
run "the usual budgets" out compare resnet20 $options --policies budget --json &&
    equal "the usual budgets: how many" "$(grep -o budget_percent out | wc -l)" 17
# A recording is compared as it is planned; nothing of it is computed again.
"$EBB" train lenet --backend ref --batch 4 --steps 1 --record step.trace >out 2>err || fail "a recording" "$(cat err)"
run "a recording" out compare ./step.trace --memory 90% --policies liveness,budget --json &&
    equal "a recording: nothing is computed again" "$(member out recomputed_steps)" 0

# A network that takes long enough for progress to show.
if has_terminals; then
    for columns in 60 130; do
        # shellcheck disable=SC2086
        python3 "$root/tests/e2e/terminal.py" $columns "$EBB" compare resnet110 $options --effort 0 --memory 60%,40% >terminal 2>err ||
            fail "on a terminal" "$(cat err)"
        equal "on a terminal of $columns columns" "$(sed -n 's/^exit //p' terminal)" 0
        check "$columns columns: never silent for two seconds" test "$(sed -n 's/^silence //p' terminal)" -lt 20
        check "$columns columns: no line is wider" awk -v n=$columns \
            '/^left: / && length($0) - 6 > n { print; bad = 1 } END { exit bad }' terminal
    done
    check "plans are counted" grep -qE '^line: planning N of N' terminal
else
    skip "on a terminal" "this machine gives no terminals"
fi

# Runs: the peak of a plan is the peak of its run, and all have the same loss. Some plan copies, another computes again.
run "runs" out compare resnet20 --backend ref --batch 2 --image 16x16 --run --steps 2 --memory 110%,70%,50% \
    --policies liveness,budget,best --effort 0 --json
check "runs: planned is measured, and all bits are the same" python3 - <<'END'
import json
plans = [plan for plan in json.load(open("out"))["plans"] if "error" not in plan]
assert len(plans) >= 6, plans
assert len({plan["loss_hex"] for plan in plans}) == 1, plans
for plan in plans:
    assert plan["peak_measured_bytes"] == plan["peak_planned_bytes"], plan
    assert plan["step_time_measured_s"] > 0
assert any(plan["links"] for plan in plans), plans
END

run "runs as a table" out compare lenet --backend ref --batch 2 --run --steps 1 --memory 110%,100% --policies liveness,best --effort 0
check "a table of runs fits 100 columns" awk 'length($0) > 100 { exit 1 } / loss bits$/ { found = 1 } END { exit !found }' out
check "so do its notes" awk 'length($0) > 100 { exit 1 }' err
complains "no network" 2 "say which network or program" compare
complains "a policy that is not there" 2 "no policy is called 'lru'; there are: none, liveness" compare lenet --policies lru
for list in % 50%.. 50%..2GiB 1GiB..2GiB:5% 90%..10%:0% 90%..10%:0.1% 50%,; do
    complains "budgets: $list" 2 "--memory takes budgets" compare lenet --memory "$list"
done
"$EBB" compare lenet --memory 50 --policies liveness,budget >out 2>err
equal "no plan at all is a no" "$? $(grep -c 'has no plan at 1 of 1 budgets' err)" "1 2"
complains "dry does not run" 2 "--run takes a backend that computes" compare lenet --backend dry --run
complains "a program does not run" 2 "--run takes a network" compare ./step.trace --run
complains "another ending" 2 "-o does not write .html" compare lenet -o page.html
complains "no ending" 2 "-o does not write page: it writes a file that ends in svg, csv" compare lenet -o page
complains "nowhere to write" 4 "no/such" compare lenet -o no/such/page.svg
exit $status
