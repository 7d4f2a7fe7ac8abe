#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# `ebb import` makes programs of other planners' files, and `ebb plan` takes such files as they are. A generated chain
# of steps is told in each format with the same bytes and times, so the plans must be the same.
. "$(dirname "$0")/lib.sh"

python3 - <<'E2'
import json
N, SIZE = 40, 1000
cost = [100 + 7 * i % 13 * 60 for i in range(N)]
reads = [[i - 1] if i > 0 else [] for i in range(N)]
for i in range(N // 2, N):  # the way back reads what the way there made
    if N - 1 - i < i - 1:
        reads[i].append(N - 1 - i)

nodes = [{"id": i, "name": f"s{i}", "cost_cpu": cost[i], "cost_ram": SIZE} for i in range(N)]
links = [{"source": r, "target": i} for i in range(N) for r in reads[i]]
with open("chain.json", "w") as f:
    json.dump({"directed": True, "multigraph": False, "graph": {"name": "chain"}, "nodes": nodes, "links": links}, f)

with open("chain.log", "w") as f:
    def put(what, **members):
        f.write(json.dumps({"INSTRUCTION": what, **members}) + "\n")
    put("ANNOTATE", ANNOTATION="START")
    for i in range(N):
        put("CALL", NAME="step", ARGS=[f"x{r}" for r in reads[i]], RESULT=[f"x{i}"], TIME=str(cost[i]))
        put("MEMORY", NAME=f"x{i}", MEMORY=str(SIZE))
        put("ALIAS", NAME=f"x{i}", ALIAS="-1")
    for i in range(N):
        put("RELEASE", NAME=f"x{i}")

tensor = "tensor{} Is weight (global)?: 0, Size in byte: {}, Range:0--4096\n"
with open("kernels.config", "w") as f:
    for i in range(N):
        f.write(f"Kernel ID: {i}, Name: Step\nParent OP ID:{i}; Name: step\nExecution Time: {cost[i] * 6 // 5}\nInput Tensors:\n")
        f.writelines(tensor.format(r, SIZE) for r in reads[i])
        f.write("Output Tensors:\n" + tensor.format(i, SIZE) + "_" * 60 + "\n")

info = {f"n{i}": {"index": i, "name": f"n{i}", "target": "aten.step.default", "shape": "torch.Size([250])",
                  "input_arguments": [f"n{r}" for r in reads[i]]} for i in range(N)}
with open("cut.json", "w") as f:
    json.dump({"Joint Graph Size": N, "Joint Graph Node Information": info,
               "Recomputable Banned Nodes Order": list(info), "Absolute Memories": [SIZE] * N,
               "Knapsack Input Runtimes": [float(c) for c in cost]}, f)
E2

printf '{"format": "ebb-machine", "version": 2, "rates": {"overhead_ns": 0}}\n' >machine.json
for told in chain.json chain.log kernels.config cut.json; do
    run "import $told" table import $told -o $told.program
    check "$told: the table counts steps" grep -q "^steps  *40$" table
    run "plan $told" out plan ./$told --machine machine.json --memory 60% --host-memory 0 --policy budget --json
    cp out $told.out
    run "plan the program of $told" out plan ./$told.program --machine machine.json --memory 60% --host-memory 0 --policy budget --json
    for figure in steps liveness_bytes peak_planned_bytes recomputed_steps step_time_predicted_s again_time_predicted_s; do
        equal "$told as it is has the same $figure" "$(member $told.out $figure)" "$(member out $figure)"
        equal "$told has the same $figure as the graph" "$(member out $figure)" "$(member chain.json.out $figure)"
    done
done
check "steps are computed again" [ "$(member out recomputed_steps)" -gt 0 ]
equal "nothing is copied" "$(member out moved_out_bytes)" 0

run "import for programs" out import chain.log -o a.program --json
equal "it counts tensors" "$(member out tensors)" 40
gzip -k chain.log
run "import a gzipped file" table import chain.log.gz -o gzipped.program
check "import from a pipe" sh -c 'cat chain.log | "$1" import - --format dtr -o piped.program >table' sh "$EBB"
for made in gzipped piped; do
    equal "the $made one has the same steps" "$(grep '^step' $made.program)" "$(grep '^step' a.program)"
done
"$EBB" import --help >help
for format in dtr node-link min-cut g10; do check "the help names $format" grep -q "^  $format  " help; done

cp a.program before
head -c 5000 chain.log >cut.log
complains "a file that is cut off" 3 "cut.log" import cut.log -o a.program
complains "the wrong format" 3 "chain.json" import chain.json --format dtr -o a.program
equal "what was there stays" "$(cksum <a.program)" "$(cksum <before)"
complains "an unknown format" 2 "near it: dtr;" import chain.log --format dtx -o a.program
