#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# `ebb report`: text, JSON, the page in a browser, Perfetto's events. Texts of two small recordings stand in
# tests/golden; UPDATE=1 writes them anew. Without Selenium and Chromium the browser's part is skipped.
. "$(dirname "$0")/lib.sh"
golden=$root/tests/golden

python=
for candidate in python3 /usr/bin/python3; do
    "$candidate" -c 'import selenium' 2>/dev/null && python=$candidate && break
done

# page FILE NAME [WHAT]: its page in a browser; two lines of JSON for a hostile number would be none. A browser takes
# seconds to start, so where WHAT is `long`, one is only started with all tests.
page() {
    run "$2: --json" report.json report "$1" --json || return
    check "$2: --json is one line" [ "$(wc -l <report.json)" = 1 ]
    if ! "$EBB" report "$1" -o page.html >out 2>err; then
        if grep -q libjs-chart.js err; then skip "$2: page" "built without Chart.js"; else fail "$2: page" "$(cat err)"; fi
        return
    fi
    check "$2: nothing but the page" [ ! -s out ]
    check "$2: it says what it wrote" grep -qx 'ebb: wrote page.html' err
    check "$2: page below 5 MB" [ "$(wc -c <page.html)" -lt 5000000 ]
    if [ -z "$python" ]; then
        skip "$2: in a browser" "no python3-selenium"
        return
    fi
    what=${3:-}
    if [ "$what" = long ]; then
        long "$2: in a browser" || return 0
        what=
    fi
    "$python" "$root/tests/e2e/report_page.py" page.html report.json "$2" $what
    case $? in
    0) ;;
    77) skip "$2: in a browser" "no chromium or chromium-driver that starts" ;;
    *) status=1 ;;
    esac
}

# ---- recordings -------------------------------------------------------------------------------

cat >five.csv <<END
id,lower,upper,size
b1,0,3,4096
b2,3,9,4096
conv.weight,0,9,65536
b4,9,21,4096
</script><b>&"',5,21,1048576
END
cat >none.csv <<END
id,lower,upper,size
END

run "text" out report five.csv --text && [ "${UPDATE:-0}" = 1 ] && cp out "$golden/report.txt"
empty "golden text" "$(diff "$golden/report.txt" out 2>&1)"
run "text is the default" again report five.csv && equal "text is the default" "$(cat again)" "$(cat out)"
run "json" out report five.csv --json && [ "${UPDATE:-0}" = 1 ] && cp out "$golden/report.json"
empty "golden JSON" "$(diff "$golden/report.json" out 2>&1)"
run "nothing" out report none.csv && check "nothing" grep -q 'Nothing is allocated' out
printf 'id,lower,upper,size\nb1,0,3,4096\n' >one.csv
run "one block" out report one.csv && check "one block" grep -q 'in 1 block, at event' out
run "one step" out train mlp --steps 1 --record step && run "one step" out report step &&
    check "one step: nothing is repeated" grep -q '^  one pass, as marked; nothing is repeated$' out
check "one step: no confidence" [ "$(grep -c confidence out)" = 0 ]
run "one step: stalls" out report step --json &&
    check "one step: stalls" grep -q '"stalls": \[{"engine": "compute", "stall_s": 0}\]' out
page five.csv "hostile names"
page none.csv "nothing" long

run "train" out train resnet50 --batch 2 --image 64x64 --steps 2 --record trace
page trace "a run of ebb's" layers
PYTHONDONTWRITEBYTECODE=1 PYTHONPATH=$root/python python3 -c '
from ebb import trace
w = trace.Writer("huge", 0)
for i in range(3): w.alloc(i, (1 << 64) // 3 - 1, 9)
w.close()'
"$EBB" report huge -o huge.html >out 2>err
empty "sizes beyond 63 bits" "$(grep -vE 'libjs-chart.js|^ebb: wrote huge.html$' err)"

run "--perfetto" out report trace --perfetto events.json
check "--perfetto: JSON" python3 -c 'import json; json.load(open("events.json"))["traceEvents"][0]["ph"]'
run "--perfetto and --json" out report trace --perfetto again.json --json
equal "--perfetto and --json" "$(cmp events.json again.json)$(member out source)" "ebb run"
"$EBB" probe -o machine >out 2>err
run "--machine" out report trace --machine machine --json
check "--machine: its bandwidth counts" [ "$(member out bytes_per_s)" != "$(member report.json bytes_per_s)" ]
run "many events" out train resnet50 --batch 2 --image 64x64 --steps 221 --record-steps 220 --backend dry --record many
run "many events: --json" out report many --json && check "many events" [ "$(member out events)" -gt 1000000 ]
run "many events: page" out report many -o many.html && check "many events: below 5 MB" [ "$(wc -c <many.html)" -lt 5000000 ]
head -c $(($(wc -c <trace) / 2)) trace >cut
run "a recording that is cut off" out report cut && check "a recording that is cut off" grep -q 'cut off' out

python3 "$root/tests/e2e/make_snapshot.py" snapshots || fail "snapshots" "none were made"
page snapshots/contexts.pickle "a snapshot of PyTorch's" long

PYTHONDONTWRITEBYTECODE=1 PYTHONPATH=$root/python python3 "$root/tests/e2e/make_training.py" training ||
    fail "a training" "none was made"
page training "a snapshot without roles" snapshot

# A snapshot without history is one moment: it has no events, no curve and no peak, in no kind of report.
page snapshots/state.pickle "a snapshot without history" long
run "a snapshot without history" out report snapshots/state.pickle
equal "a snapshot without history: as text" "$(grep -cE 'event|iteration|over time|at the peak|holds the peak' out)" 0
check "a snapshot without history: its title" grep -q '^state.pickle: .*, one moment, [0-9]* blocks' out
equal "a snapshot without history: as JSON" "$(python3 -c 'import json
r = json.load(open("report.json"))
print(r["is_moment"], r["events"], r["peak_bytes"], r["peak_event"], r["end_live_bytes"] > 0)')" "True None None None True"

cat >step.py <<END
import sys
import torch
import torchvision
sys.path.insert(0, sys.argv[1])
import ebb.torch
net = torchvision.models.resnet50()
optimizer = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)
with ebb.torch.record("recorded"):
    for _ in range(2):
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(net(torch.randn(2, 3, 64, 64)), torch.randint(10, (2,))).backward()
        optimizer.step()
END
for candidate in ${PYTHON:-} python3 /usr/bin/python3 none; do
    "$candidate" -c 'import torch, torchvision' 2>/dev/null && break
done
if [ "$candidate" = none ]; then
    skip "a step of PyTorch's" "no Python with torch and torchvision"
elif PYTHONDONTWRITEBYTECODE=1 "$candidate" -W ignore step.py "$root/python" 2>err; then
    page recorded "a step of PyTorch's" long
    equal "a step of PyTorch's: source" "$(member report.json source)" "ebb.torch"
else
    fail "a step of PyTorch's" "$(cat err)"
fi

# ---- lines fit ---------------------------------------------------------------------------------

# longest: of what stands in the file shown.
longest() {
    python3 -c 'print(max(len(line) for line in open("shown", encoding="utf-8").read().split("\n")))'
}
cat >paths.csv <<END
id,lower,upper,size
model/encoder/a_folder_with_a_long_name/another_one/and_the_file_at_its_end.weight,0,9,65536
b2,3,9,4096
END
# on_terminal WIDTH FILE: its report on a terminal of so many columns.
on_terminal() {
    python3 "$root/tests/e2e/terminal.py" "$1" "$EBB" report "$2" >terminal 2>err
    equal "$2 in $1 columns" "$(grep '^exit' terminal)$(cat err)" "exit 0"
    sed -n 's/^left: //p' terminal >shown
}
if has_terminals; then
    for width in 40 60 80 120; do
        for recording in paths.csv snapshots/ring.pickle trace; do
            on_terminal "$width" "$recording"
            check "$recording in $width columns: lines fit" [ "$(longest)" -le "$width" ]
        done
    done
    on_terminal 60 paths.csv
    check "a long path keeps its end" grep -q 'model/encoder.*\.\.\..*at_its_end ' shown
    check "sentences are whole" [ "$(tr -s ' \n' ' ' <shown | grep -c 'live at once, in 2 blocks, at event [0-9]* of 4\.')" = 1 ]
    check "a number keeps its unit" [ "$(grep -cE '^ *([KMG]iB|%)' shown)" = 0 ]
else
    skip "text fits the terminal" "this machine gives no terminals"
fi
"$EBB" report paths.csv >shown
check "no terminal: 100 columns" [ "$(longest)" -le 100 ]
for recording in paths.csv snapshots/ring.pickle trace; do
    COLUMNS=40 "$EBB" report "$recording" >shown
    check "$recording with COLUMNS=40: lines fit" [ "$(longest)" -le 40 ]
done
for columns in 40 60; do
    COLUMNS=$columns "$EBB" import trace -o again.trace >shown
    check "what is imported with COLUMNS=$columns: lines fit" [ "$(longest)" -le $columns ]
    "$EBB" import trace -o again.trace >wide
    equal "what is imported with COLUMNS=$columns: words are whole" "$(tr -s ' \n' '\n' <shown)" "$(tr -s ' \n' '\n' <wide)"
    COLUMNS=$columns "$EBB" report trace --device list >shown
    check "devices with COLUMNS=$columns: lines fit" [ "$(longest)" -le $columns ]
done
COLUMNS=wide "$EBB" report paths.csv >shown
check "COLUMNS is no number: 100 columns" [ "$(longest)" -gt 60 ]

# ---- what is not so ---------------------------------------------------------------------------

says "no file" 2 "ebb: report: say which file; see ebb report --help" report
says "text and JSON" 2 "ebb: report: --text or --json, not both" report trace --text --json
says "twice the same" 2 "ebb: report: ./x would be written twice" report trace -o x --perfetto ./x
says "over what is read" 2 "ebb: report: trace is what is read" report trace -o trace
complains "no such file" 4 nowhere report nowhere
complains "no such folder" 4 nowhere report trace -o nowhere/x.html
check "nothing is left" [ ! -e x ]

exit $status
