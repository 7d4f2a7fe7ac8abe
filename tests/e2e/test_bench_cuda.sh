#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# The driver of the benchmarks on a card, on the processor with tiny networks: every section makes rows, time that is
# short is said, and a card that is not there is exit code 5. Nothing is said about times.
. "$(dirname "$0")/lib.sh"
[ -n "$EBB_TEST_MORE" ] || {
    skip "the benchmarks' driver" "it is tested where all tests run"
    exit 77
}

build=$(dirname "$EBB")
bench() {
    python3 "$root/bench/bench_cuda.py" --build "$build" --rounds 1 "$@" >out 2>err </dev/null
}
sections="throughput batch depth offload predict workspaces capture feed"
if [ ! -x "$build/bench_workspaces" ]; then # the others
    skip "workspaces" "there is no bench_workspaces in $build"
    sections="throughput batch depth offload predict capture feed"
fi
list=$(echo $sections | tr ' ' ,)

bench --backend cpu --tiny --only "$list" -o rows.csv
equal "all sections" "$? $(tail -n 1 err)" \
    "0 bench_cuda: $(echo $sections | wc -w) sections run, 0 parts left out for time or want, 0 failed"
for section in $sections; do
    check "$section: a row with a figure" python3 - rows.csv "$section" <<'END'
import csv, sys
rows = [row for row in csv.DictReader(open(sys.argv[1])) if row["section"] == sys.argv[2]]
own = [row for row in rows if not row["contender"].startswith("paper")]
named = all(row[key] for row in own for key in ("commit", "machine", "card", "contender"))
sys.exit(0 if named and any(row["median_s"] for row in own) else 1)
END
done

bench --backend cpu --tiny --deadline 0 --only depth,capture
equal "no time" "$? $(grep -c 'left out: no time' out) $(tail -n 1 err)" \
    "0 5 bench_cuda: 2 sections run, 5 parts left out for time or want, 0 failed"
# A search whose time is over: what it found until then is what is run.
PYTHONPATH=$root/bench python3 - >out 2>err <<'END'
import contextlib
import bench_cuda
from cuda_bench import OutOfTime, largest

def fits_until(calls):
    """Numbers up to 100 fit; there is time for so many calls."""
    def fits(*case):
        if not calls:
            raise OutOfTime
        calls.pop()
        return case[-1] <= 100
    return fits

print(*largest(fits_until([0] * 99), 10, 1000), *largest(fits_until([0] * 3), 10, 1000))
with contextlib.suppress(OutOfTime):
    print(*largest(fits_until([]), 10, 1000))
fits = fits_until([0] * 3)
bench_cuda.has_plan, bench_cuda.guess = lambda bench, case, *_: fits(case[1]), lambda *_: 10
bench_cuda.plan_file = lambda *_: "file"
n, is_whole = bench_cuda.widest_ebb(None, "net", 8, 1, 10)
print(n, bench_cuda.found(is_whole))
END
equal "a search has the time that it has" "$(cat out err)" "100 True 40 False
17 value: largest batch found; the search had no more time"
# An answer that is none: each section's failure is a row, and the next section runs.
column() { # NAME FILE: its values, without repetitions
    python3 -c 'import csv, itertools, sys
print(*(key for key, _ in itertools.groupby(row[sys.argv[1]] for row in csv.DictReader(open(sys.argv[2])))), sep=",")' "$@"
}
mkdir mute && printf '#!/bin/sh\ncase $1 in probe) exec "%s" "$@" ;; esac\necho "{}"\n' "$EBB" >mute/ebb && chmod +x mute/ebb
bench --build mute --backend cpu --tiny --only depth,capture -o mute.csv
equal "answers that are none" "$? $(column section mute.csv)" "1 depth,capture"
check "what failed is said" grep -q ',failed: [A-Za-z]*Error: ' mute.csv

# A stage: its sections, which other options may change; and the commit without git.
python=$(python3 -c 'import sys; print(sys.executable)')
without_git() {
    PATH=$work "$python" "$root/bench/bench_cuda.py" --build mute --backend cpu --tiny "$@" >out 2>err
}
echo v9-packed >mute/commit
without_git --stage 1 -o stage.csv
equal "a stage has its sections" "$(column section stage.csv)" throughput,capture
equal "without git the packed commit" "$(column commit stage.csv)" v9-packed
rm mute/commit
without_git --stage 3 --only capture -o stage.csv
equal "other sections than the stage's; no commit" "$(column section stage.csv) $(column commit stage.csv)" \
    "capture unknown"
bench --stage 4
equal "a stage that is none" "$? $(grep -c 'argument --stage: invalid choice: 4' err)" "2 1"

bench --only speed
equal "a section that is none" "$? $(tail -n 1 err | sed 's/;.*//')" "2 bench_cuda.py: error: there is no section speed"

mkdir alone && cp -L "$build"/libebb.so.0 alone/ && cp "$EBB" alone/ # a build without the plug-in
COLUMNS=$wide LD_LIBRARY_PATH=$PWD/alone python3 "$root/bench/bench_cuda.py" --build alone -o none.csv >out 2>err
equal "no card" "$? $(wc -c <out) $(tail -n 1 err)" "5 0 bench_cuda: 8 sections not run"
check "no card: what is missing" grep -q '^ebb: backend cuda: there is no libebb_cuda.so' err
empty "no card: no file" "$(ls none.csv* 2>/dev/null)"

bench --backend cpu --tiny --torch ./nothing --only throughput
equal "no PyTorch where it is said to be" "$? $(grep -c 'PyTorch is not there' out) $(tail -n 1 err)" \
    "0 3 bench_cuda: 1 sections run, 3 parts left out for time or want, 0 failed"

for python in "${PYTHON:-python3}" /usr/bin/python3; do
    "$python" -c 'import torch, torchvision' 2>/dev/null || continue
    bench --backend cpu --tiny --torch "$python" --only throughput
    code=$?
    equal "PyTorch takes turns" "$code $(grep -c ',torch eager,.*over' out) $(grep -c ',torch checkpoint,.*over' out)" \
        "0 1 1"
    exit $status
done
skip "PyTorch takes turns" "no Python with torch and torchvision"
exit $status
