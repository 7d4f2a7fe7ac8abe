#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# `ebb import`: recordings that a generator makes, against what is true of the runs that they tell of; PyTorch's own,
# where a Python has it (PYTHON names one more), against counts in Python; the command line and its failures.
. "$(dirname "$0")/lib.sh"
here=$root/tests/e2e

for seed in 1 2 3; do
    python3 "$here/make_imports.py" made$seed $seed || exit 1
    for facts in made$seed/*.facts; do
        file=${facts%.facts} name="seed $seed: $(basename "${facts%.facts}")"
        run "$name" out import "$file" -o trace || continue
        python3 "$here/make_imports.py" --facts trace >got 2>&1
        equal "$name" "$(cat got)" "$(cat "$facts")"
    done
done

# ---- PyTorch's --------------------------------------------------------------------------------------------------------

# The execution trace has no frees and no allocs of its own: that what it lets live is what the profiler counts is a
# check of how lives are found. Momentum and statistics of the first step differ a little.
near() { # name, a, b: within 1 per cent
    if [ $((100 * ($2 > $3 ? $2 - $3 : $3 - $2))) -le "$3" ]; then pass "$1"; else fail "$1" "$2 is not near $3"; fi
}

try_torch() { # python
    version=$("$1" -c 'import torch; print(torch.__version__)')
    rm -rf recorded
    mkdir recorded # a folder torch would be taken for the module
    "$1" "$here/torch_traces.py" recorded >torch.log 2>&1 || {
        fail "PyTorch $version" "$(tail -n 3 torch.log)"
        return
    }
    run "PyTorch $version: an execution trace" out import recorded/execution.json -o trace || return
    python3 "$here/make_imports.py" --facts trace >got
    before=$(python3 -c '
import sys
sys.path.insert(0, sys.argv[1])
from trace_reader import Trace
print(sum(e["size"] for e in Trace("trace").events if e["kind"] == "alloc" and e["before"]))' "$here")
    check "PyTorch $version: blocks are freed" [ "$(sed -n 's/^free //p' got)" -gt 100 ]
    if ! grep -q '\[memory\]' recorded/chrome.json; then # Debian's is built without what writes them
        complains "PyTorch $version: no memory events" 3 'no \[memory\] events: record with' import recorded/chrome.json -o no
        return
    fi
    python3 "$here/torch_traces.py" --facts recorded/chrome.json >expected
    near "PyTorch $version: an execution trace's peak" $(($(sed -n 's/^peak //p' got) - before)) \
        "$(sed -n 's/^most //p' expected)"
    run "PyTorch $version: a Chrome trace" out import recorded/chrome.json -o trace || return
    python3 "$here/make_imports.py" --facts trace >got
    equal "PyTorch $version: a Chrome trace's allocs" "$(sed -n '/^alloc/p' got)" "$(sed -n '/^alloc/p' expected)"
    equal "PyTorch $version: its iterations" "$(python3 "$here/trace_reader.py" trace | grep -c "mark=0")" \
        "$(sed -n 's/^steps //p' expected)"
}

tried=
for python in /usr/bin/python3 python3 ${PYTHON:-}; do
    path=$(command -v "$python") && "$python" -c 'import torch' 2>/dev/null || continue
    case " $tried " in *" $(readlink -f "$path") "*) continue ;; esac
    tried="$tried $(readlink -f "$path")"
    try_torch "$python"
done
[ -n "$tried" ] || skip "PyTorch's own traces" "no Python with torch"

# ---- the command line -------------------------------------------------------------------------------------------------

log=made1/singa_pool.log
says "no file" 2 "ebb: import: say which file, or - for standard input; see ebb import --help" import
says "no output" 2 "ebb: import: say with -o where the trace or the program goes" import $log
says "output to -" 2 "ebb: import: - is what is read; what is written goes to a file" import $log -o -
says "no such format" 2 "ebb: import: there is no format xyz; see ebb import --help" import $log -o no --format xyz
says "onto itself" 2 "ebb: import: the output would replace what it is made of, $log" import $log -o $log
says "no such file" 4 "ebb: none: cannot open: No such file or directory" import none -o no
says "no such folder" 4 "ebb: nowhere/no: cannot create: No such file or directory" import $log -o nowhere/no
echo "something else" >other
says "another file" 3 "ebb: other: neither a trace nor a recording of a known format" import other -o no
: >empty
says "an empty file" 3 "ebb: empty: an empty file" import empty -o no
says "of another format" 3 "ebb: $log:1: lexical error: invalid char in json text." import $log -o no --format chrome
printf '[{"name":"a","ph":"X"},\n{"name" "b"}]' >bad.json
says "a fault's line" 3 \
    "ebb: bad.json:2: parse error: object key and value must be separated by a colon (':')" import bad.json -o no
mkdir tmp && export TMPDIR=$work/tmp
run "temporary files lie where TMPDIR says" out report made1/object.json.gz --text && pass "temporary files lie where TMPDIR says"
rmdir tmp
complains "and nowhere else" 4 'tmp: cannot make a temporary file in: No such file' report made1/object.json.gz --text
complains "for a comparison, too" 4 'tmp: cannot make a temporary file in: No such file' \
    check made1/object.json.gz --max-peak 1GiB
unset TMPDIR
says "a folder" 4 "ebb: .: this is a folder, not a file" import . -o no
says "a device without an end" 3 "ebb: /dev/zero: this is a device, not a file" import /dev/zero -o no
says "a device without a byte" 3 "ebb: /dev/null: an empty file" import /dev/null -o no
check "nothing is left of failures" [ ! -e no ]

# A zipped file that becomes a thousand times as large: no more of it is kept than is in order.
{
    printf '\211ebbtr\r\n\001\000\001\000\000\000\000\000\000\000\000\000\000\000\000\000 \000\000\000\000\000\000\000'
    head -c 200000000 /dev/zero
} | gzip -1 >bomb.gz
(
    ulimit -f 20000 # blocks of 512 bytes
    exec "$EBB" import bomb.gz -o no >out 2>&1
)
equal "a zipped trace of nothing" "$? $(cat out)" "3 ebb: bomb.gz: offset 35: bytes after the end"

run "from a pipe" out import "$log" -o one && {
    "$EBB" import - -o two --json <$log >out 2>err
    check "from a pipe" cmp one two
    equal "its facts as JSON" "$(sed 's/"events": [0-9]*/"events": N/' out)" \
        '{"schema_version": 1, "file": "/dev/stdin", "out": "two", "format": "singa", "events": N, "blocks": 500, "left_out": 0, "complete": true, "tells_times": true, "tells_accesses": true, "tells_addresses": true, "tells_roles": false, "tells_steps": false, "tells_segments": false, "tells_stacks": false, "tells_before": false}'
    cat $log | "$EBB" import - -o three >/dev/null 2>&1
    check "from a real pipe" cmp one three
}
mkfifo pipe
"$EBB" report one --json | sed 's/"name": "[^"]*"/N/' >expected
for i in 1 2 3 4 5 6 7 8; do # a pipe with a name is opened once: its writer would see it
    cat one >pipe &
    "$EBB" report pipe --json 2>&1 | sed 's/"name": "[^"]*"/N/' >got
    wait $! && cmp -s got expected || {
        fail "a pipe with a name" "$(head -c 300 got)"
        break
    }
done
check "a pipe with a name" cmp got expected
"$EBB" import $log -o closed >&- 2>err
equal "a closed standard output" "$? $(cat err)" "4 ebb: standard output could not be written"
check "the trace is there all the same" cmp closed one

# What ends it leaves what was there, and nothing beside it.
mkdir ended
echo before >ended/out
sleep 5 >pipe &
sleeper=$!
"$EBB" import pipe -o ended/out 2>err &
sleep 0.3
kill $!
{ wait $!; } 2>/dev/null
kill $sleeper
equal "a signal" "$(ls -A ended) $(cat ended/out)" "out before"
run "a trace" out import one -o four && check "a trace is copied" cmp one four

# ---- what is no recording, and devices that are not there ----------------------------------------

mkdir packed && cp one packed && tar czf packed.tar.gz packed && tar cf packed.tar packed
says "a zipped archive" 3 "ebb: packed.tar.gz: a tar archive; unpack it, and name the recording in it" report packed.tar.gz
says "an archive" 3 "ebb: packed.tar: a tar archive; unpack it, and name the recording in it" import packed.tar -o five
says "a program" 3 "ebb: $EBB: a program; record a run of it with ebb record" report "$EBB"
printf 'id,lower,upper,size\na,0,1,18446744073709551615\nb,0,1,5\n' >sum.csv
says "sizes whose sum is none" 3 "ebb: sum.csv: blocks of 2^64 bytes or more in all" report sum.csv
says "a device that is not there" 2 "ebb: made1/list.json: has no device gpu; it has: cuda:0, cpu" \
    report made1/list.json --device gpu
for command in report "check --max-peak 1GiB" place; do
    # shellcheck disable=SC2086
    "$EBB" $command made1/list.json --device list >out 2>err
    equal "$command: the devices" "$? $(cut -d' ' -f1 out | tr '\n' ' ')$(cat err)" "0 cuda:0 not "
    check "$command: those that were not read" grep -q '^not read: cpu$' out
done

# ---- recordings that are cut off ----------------------------------------------------------------

# Whatever the format: import and report warn, check answers only when it is told to judge what there is.
mkdir cut
for file in made1/list.json made1/object.json.gz made1/singa_plain.log made1/singa_numbered.log one; do
    name=cut/$(basename $file)
    warning="ebb: warning: $name: the recording is cut off; what it has was read"
    head -c $(($(wc -c <$file) * 3 / 5)) $file >"$name"
    "$EBB" import "$name" -o cut/imported >out 2>err
    equal "$name: import warns" "$? $(cat err)" "0 $warning"
    for recording in "$name" cut/imported; do
        warning="ebb: warning: $recording: the recording is cut off; what it has was read"
        "$EBB" report "$recording" >out 2>err
        equal "$recording: report warns" "$? $(cat err)" "0 $warning"
        says "$recording: check refuses it" 3 \
            "ebb: $recording: the recording is cut off, so its peak is not known; --incomplete judges what it has" \
            check "$recording" --max-peak 1TiB
        complains "$recording: check refuses it as a baseline" 3 "$recording: the recording is cut off" \
            check one --baseline "$recording" --tolerance 1TiB
        "$EBB" check "$recording" --max-peak 1TiB --incomplete >out 2>err
        equal "$recording: check --incomplete judges it" "$? $(cat err)" "0 $warning"
    done
done
# A log whose last line ends within its time: what is left of the time would be read as a size.
printf 'Malloc 0x10 64 1600000000000\nMalloc 0x20 64 1600000000001\nMalloc 0x30 64 16000' >short.log
"$EBB" import short.log -o five --json >out 2>err
equal "a log that ends within a time" "$? $(member out blocks) $(cat err)" \
    "0 2 ebb: warning: short.log: the recording is cut off; what it has was read"
printf 'Malloc 0x10 64 1600000000000\nMalloc 0x20 64 1600000000001' >whole.log
"$EBB" import whole.log -o five --json >out 2>err
equal "a log without its last line break" "$? $(member out blocks) $(cat err)" "0 2 "
# A block that a timeline calls preexisting after others came was not there before them.
echo '[[100, 2, 10, 4], [200, 4, -10, 4], [300, 1, 7, 2]]' >late.json
run "a block told late" out report late.json --json && run "placed" placed place late.json --json
equal "it is not there from the beginning" "$(member placed peak_bytes)" 10
exit $status
