#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# `ebb place`: what it takes, what it says, what it writes, what it refuses. Peaks of the named solvers on small files
# stand in tests/golden/place.csv; UPDATE=1 writes it anew.
. "$(dirname "$0")/lib.sh"
golden=$root/tests/golden/place.csv
python3 "$root/tests/e2e/make_place.py" files || exit 1

# plain FILE: blanks squeezed, without what differs from run to run and from solver to solver.
plain() {
    tr -s ' ' <"$1" | sed -E 's/^time [0-9.]+ s$/time T/; s/ [0-9.]+ s$/ T/
        s/"time_s": [0-9.e+-]+/"time_s": T/; s/"steps": [0-9]+/"steps": N/; s/^steps [0-9]+$/steps N/'
}

cat >five.csv <<END
id,lower,upper,size
b1,0,3,4
b2,3,9,4
b3,0,9,4
b4,9,21,4
b5,0,21,4
END
solvers=$("$EBB" help place | sed -n '/^solvers/,$s/^  \([^ ]*\) .*/\1/p')
equal "the first solver is the default" "$(echo "$solvers" | head -n 1)" best

# ---- answers ----------------------------------------------------------------------------------

rows="buffers 5
solver best
peak 12 B 12
bound 12 B 12
peak / bound 1.000000
optimal proven
steps N
time T"
object='{"schema_version": 1, "solver": "best", "buffers": 5, "peak_bytes": 12, "lower_bound_bytes": 12, "ratio": 1, "optimal": true, "time_s": T, "steps": N}'
run "a file" out place five.csv && equal "a file" "$(plain out)" "$rows"
run "--json" out place five.csv --json && equal "--json" "$(plain out)" "$object"
"$EBB" place - --json <five.csv >out 2>err
equal "standard input from a file" "$(plain out)$(cat err)" "$object"
cat five.csv | "$EBB" place - --json >out 2>err
equal "standard input from a pipe" "$(plain out)$(cat err)" "$object"
mkfifo pipe
cat five.csv >pipe &
run "a named pipe" out place pipe --json && equal "a named pipe" "$(plain out)" "$object"
run "--alignment" out place five.csv --alignment 16 --json &&
    equal "--alignment" "$(member out peak_bytes) $(member out lower_bound_bytes)" "36 36"
run "--solver" out place five.csv --solver size --json && equal "--solver" "$(member out solver)" size
run "--steps" out place files/random.csv --steps 1 --json && check "--steps" [ "$(member out steps)" -lt 1000000 ]
run "--time" out place five.csv --time 0.5 --json && equal "--time" "$(plain out)" "$object"
echo "id,lower,upper,size" >none.csv
run "no buffers" out place none.csv --compare --json && equal "no buffers" "$(grep -c '"peak_bytes": 0, ' out)" \
    "$(echo "$solvers" | wc -l)"

fits="$(echo "$object" | sed 's/}$/, "capacity_bytes": 12, "fits": true}/')"
run "a capacity that fits" out place five.csv --capacity 12 --json && equal "a capacity that fits" "$(plain out)" "$fits"
run "a capacity in words" out place five.csv --capacity 1KiB && check "a capacity in words" grep -q '^fits .* yes$' out

run "--compare" out place files/random.csv --compare
equal "--compare: a line a solver" "$(tail -n +3 out | sed 's/ .*//')" "$solvers"
equal "--compare: its head" "$(head -n 1 out)" "60 buffers, bound 56640 bytes"
equal "--compare: in 71 columns" "$(awk '{ if (length > n) { n = length } } END { print n }' out)" 71
for columns in 60 50 40; do
    COLUMNS=$columns "$EBB" place files/random.csv --compare >narrow
    empty "--compare in $columns columns: lines that do not fit" "$(awk -v n=$columns 'length > n' narrow)"
    equal "--compare in $columns columns: a peak a solver" "$(tail -n +3 narrow | awk '{ print $1, $2 }')" \
        "$(tail -n +3 out | awk '{ print $1, $2 }')"
done
COLUMNS=60 "$EBB" place files/random.csv --compare >narrow
check "--compare in 60 columns: times, too" [ "$(grep -c ' s$' narrow)" = "$(grep -c ' s$' out)" ]
run "--compare --json" out place files/random.csv --compare --json
equal "--compare --json: a line a solver" "$(sed 's/.*"solver": "\([^"]*\)".*/\1/' out)" "$solvers"
check "--compare --json: read by others" python3 -c 'import json, sys; [json.loads(line) for line in open("out")]'

echo "instance,solver,peak_bytes,lower_bound_bytes" >peaks
for kind in random training aligned gaps; do
    run "$kind" all place files/$kind.csv --compare --json
    # What best finds may get better: its answers are checked elsewhere, here that its bound is one.
    row='s/.*"solver": "\([^"]*\)".*"peak_bytes": \([0-9]*\).*"lower_bound_bytes": \([0-9]*\).*'
    grep -v '"solver": "best"' all | sed -n "$row/$kind,\1,\2,\3/p" >>peaks
    grep -F '"solver": "best"' all >best
    check "$kind: best is not below the bound" [ "$(member best peak_bytes)" -ge "$(member all lower_bound_bytes)" ]
    for solver in $solvers; do
        run "$kind: $solver again" again place files/$kind.csv --solver "$solver" --json || continue
        grep -F "\"$solver\"" all >first
        equal "$kind: $solver is deterministic" "$(member first peak_bytes)" "$(member again peak_bytes)"
    done
done
[ "${UPDATE:-0}" = 1 ] && cp peaks "$golden"
empty "golden peaks" "$(diff "$golden" peaks 2>&1)"

# A buffer that never holds all its bytes at once needs them all the same, since it has one offset.
printf 'id,lower,upper,size,gaps\na,0,24,132,0-16@0:128 16-22@48:132 22-23@48:128 23-24@0:128\n' >hull.csv
run "never all at once" out place hull.csv --json && equal "never all at once: bound" "$(member out lower_bound_bytes)" 132
equal "never all at once: peak" "$(member out peak_bytes)" 132

# ---- files ------------------------------------------------------------------------------------

run "-o" out place five.csv -o answer.csv && equal "-o: columns" "$(head -n 1 answer.csv)" "id,lower,upper,size,offset"
equal "-o: rows" "$(sed 's/,[^,]*$//' answer.csv)" "$(cat five.csv)"
run "an answer" out place answer.csv --json && equal "an answer is a problem with its answer" "$(member out peak_bytes)" 12
for kind in random aligned gaps; do
    run "$kind: -o" out place files/$kind.csv -o answer.csv --steps 100000 --json
    run "$kind: answer" again place answer.csv --json
    equal "$kind: an answer has its peak" "$(member again peak_bytes)" "$(member out peak_bytes)"
done
run "answer to a pipe" out place five.csv --json -o /dev/stderr && equal "answer to a pipe" "$(grep -c , err)" 6

run "--svg" out place files/gaps.csv --svg picture.svg
check "--svg: a rectangle a buffer" [ "$(grep -c '<rect class="c' picture.svg)" -ge 40 ]
check "--svg: gaps" grep -q 'class="gap"' picture.svg
run "--svg of many" out place files/many.csv --solver best-fit --svg picture.svg
check "--svg of many is small" [ "$(wc -c <picture.svg)" -lt 5000000 ]
check "--svg is XML" python3 -c 'import xml.dom.minidom as m; m.parse("picture.svg")'

# One definition of the peak: the end of the highest stay, whether `ebb plan` or `ebb place` says it. The plans of these
# networks are at their bounds, so any other placement of their stays has the same peak, or one that is less by less
# than the alignment. `ebb place` looks for such a one.
is_planned() { # to the programs' alignment
    peak=$(member out peak_bytes)
    [ "$peak" -le "$planned" ] && [ $((planned - $(member out lower_bound_bytes))) -lt 64 ]
}
for net in mlp lenet alexnet vgg11 resnet18 resnet20; do
    run "$net" out plan $net --batch 4 --backend dry --program-out ./program --json -o plan
    planned=$(member out peak_planned_bytes)
    equal "$net: at its bound" "$(member out bound_bytes) $(member out peak_over_bound)" "$planned 1"
    run "$net: placed" out place program --json
    check "$net: its program, placed" is_planned
    run "$net: its plan" out place plan --json
    check "$net: its plan, placed" is_planned
    run "$net: within its peak" out place program --capacity "$planned" --json
    check "$net: fits into its peak" grep -q '"fits": true' out
done

run "program" out plan lenet --batch 4 --backend dry --program-out ./program --json -o plan
planned=$(member out peak_planned_bytes)
run "a plan that is checked" again plan ./program --check plan --json
equal "a plan that is checked has the same bound" "$(member again bound_bytes)" "$planned"
run "a program" out place program -o answer.csv --json
equal "a program's peak is its plan's" "$(member out peak_bytes)" "$planned"
check "a program's names" grep -q '^[0-9]*@0:conv1.weight,0,' answer.csv
run "a program's answer" again place answer.csv --json && equal "a program's answer" "$(member again peak_bytes)" "$planned"
"$EBB" place - --json <program >out 2>err
equal "a program on standard input" "$(member out peak_bytes)" "$planned"
run "a recording" out train lenet --batch 4 --steps 2 --backend ref --record trace
run "a trace" out place trace --svg picture.svg -o answer.csv --compare && pass "a trace"
check "a trace's names" grep -q '^0:conv1.weight,0,' answer.csv
cat trace | "$EBB" place - --json >again 2>err
check "a trace on standard input" grep -q '"optimal": true' again
head -c $(($(wc -c <trace) / 2)) trace >cut && "$EBB" place cut >out 2>err
equal "a trace that is cut off" "$(cat err)" "ebb: warning: cut: the recording is cut off; what it has is placed"

# A recording of iterations: both peaks are shown, and the whole's is the bound.
python3 - >repeats.log <<END
import random
rng = random.Random(2)
address, free = 0, []
def malloc(size):
    global address
    address += 512
    print(f"Malloc {address:#x} {size}")
    return address
def step(held, sizes):  # gradients of the last step go while this one's come
    fresh, temporary = [], []
    for k, size in enumerate(sizes):
        (fresh if k % 5 == 0 else temporary).append(malloc(size))
        if k % 3 == 2:
            print(f"Free {temporary.pop(len(temporary) // 2):#x}")
        if k % 5 == 4 and held:
            print(f"Free {held.pop(0):#x}")
    for block in held + temporary[::-1]:
        print(f"Free {block:#x}")
    return fresh
sizes = [rng.randrange(1, 60) * 4 ** rng.randrange(4) for k in range(60)]
for k in range(9):
    malloc(rng.randrange(99, 999))
held = step([], sizes[::2])
for k in range(20):
    held = step(held, sizes)
END
run "a recording that repeats" out place repeats.log --json
equal "a recording that repeats: its steady part" "$(member out steady_peak_bytes)" "$(member out steady_bound_bytes)"
equal "a recording that repeats: the whole" "$(member out optimal)" true
run "a recording that repeats, in rows" out place repeats.log
equal "a recording that repeats, in rows" "$(grep -c '^steady ' out)" 2

# Recordings of other tools: placed as the traces that `ebb import` makes of them.
python3 "$root/tests/e2e/make_imports.py" made 1 && python3 "$root/tests/e2e/make_snapshot.py" snapshots || exit 1
gzip -k made/singa_plain.log snapshots/history.pickle
for recording in made/singa_plain.log made/singa_pool.log made/singa_plain.log.gz made/flat.json made/object.json.gz \
    snapshots/history.pickle snapshots/history.pickle.gz snapshots/ring.pickle snapshots/jit_devices.pickle; do
    run "import $recording" out import $recording -o imported && "$EBB" place imported --solver size --json >expected 2>err
    run "place $recording" out place $recording --solver size --json
    equal "place $recording" "$(plain out)" "$(plain expected)"
    "$EBB" place - --solver size --json <$recording >out 2>err
    equal "place $recording on standard input" "$(plain out)" "$(plain expected)"
    cat $recording | "$EBB" place - --solver size --json >out 2>err
    equal "place $recording from a pipe" "$(plain out)" "$(plain expected)"
done
head -c 20000 made/flat.json >cut.json && "$EBB" place cut.json >out 2>err
equal "a profiler's trace that is cut off" "$(cat err)" "ebb: warning: cut.json: the recording is cut off; what it has is placed"
run "a snapshot's device" out place snapshots/devices.pickle --device 1 --solver size --json
says "a device that a snapshot has not" 2 "ebb: snapshots/devices.pickle: there is no device 7, but those from 0 to 2" \
    place snapshots/devices.pickle --device 7
head -c 5000 snapshots/history.pickle >short.pickle
complains "a snapshot that is cut off" 3 "short.pickle" place short.pickle

mkdir folder && cp five.csv files/gaps.csv folder && echo "not an instance" >folder/README.md
python3 "$root/bench/place_compare.py" --ebb "$EBB" --rounds 2 --steps 1000 -o table folder 2>err
equal "the table of a folder: exit code" $? 0
equal "the table of a folder: a row a solver and instance" "$(grep -c '^[^,]*,' table)" $((1 + 2 * $(echo "$solvers" | wc -l)))
check "the table of a folder: figures" grep -qE ',five,5,best,12,12,1.000000,1,2,[0-9.]+,[0-9.]+,[0-9.]+.?$' table

# ---- what is not so ---------------------------------------------------------------------------

says "a capacity below a buffer" 1 "ebb: five.csv: the buffer 'b1' has 4 bytes, the capacity is 3" place five.csv --capacity 3
says "a capacity below the bound" 1 "ebb: five.csv: no placement is below the bound of 12 bytes, the capacity is 11" \
    place five.csv --capacity 11
"$EBB" place five.csv --capacity 11 --json >out 2>err
equal "a capacity below the bound: exit code" $? 1
equal "a capacity below the bound: JSON" "$(cat out)" '{"schema_version": 1, "solver": null, "buffers": 5, "error": "no placement is below the bound of 12 bytes, the capacity is 11", "lower_bound_bytes": 12, "capacity_bytes": 11, "fits": false}'
"$EBB" place files/random.csv --solver first-fit --capacity 56640 --json >out 2>err
equal "a capacity that a solver misses: exit code" $? 1
equal "a capacity that a solver misses: JSON" "$(member out fits)" false
equal "a capacity that a solver misses" "$(unfold err)" \
    "ebb: files/random.csv: no placement within 56640 bytes was found (the best has $(member out peak_bytes)); that there is none is not proven"

cat >fixed.csv <<END
id,lower,upper,size,offset
a,0,9,4,8
b,0,9,4,
END
run "fixed offsets" out place fixed.csv --json -o answer.csv
equal "fixed offsets" "$(member out peak_bytes) $(tail -n 2 answer.csv | tr '\n' ' ')" "12 a,0,9,4,8 b,0,9,4,0 "
run "fixed offsets for all" out place fixed.csv --compare && check "fixed offsets for all: some refuse" grep -q '^first-fit .* - ' out
says "fixed offsets for a replay" 2 "ebb: fixed.csv: first-fit: item 'a' (line 2) has a fixed offset, which the \
placement solver 'first-fit' does not take" place fixed.csv --solver first-fit
"$EBB" place fixed.csv --solver first-fit --json >out 2>err
equal "fixed offsets for a replay: JSON" "$? $(sed 's/"error": ".*"/E/' out)" \
    '2 {"schema_version": 1, "solver": "first-fit", "buffers": 2, E}'
for solver in $solvers; do
    [ "$solver" = best ] && continue
    complains "$solver: too few steps" 1 "files/many.csv: $solver: given up: it takes more than the 1000 steps" \
        place files/many.csv --solver "$solver" --steps 1000
done
run "too few steps for all" out place files/many.csv --steps 1000 --compare --json
equal "too few steps for all" "$(grep -c '"error": "given up: ' out)" $(($(echo "$solvers" | wc -l) - 1))
sed 's/,$/,10/' fixed.csv >clash.csv
says "fixed offsets that overlap" 1 "ebb: clash.csv: items 'a' (line 2) and 'b' (line 3) overlap where they are fixed, at \
offsets 8 and 10" place clash.csv
says "fixed offsets off the alignment" 3 "ebb: fixed.csv: item 'a' (line 2): its fixed offset 8 is not aligned to 16" \
    place fixed.csv --alignment 16
clash="{\"schema_version\": 1, \"solver\": null, \"buffers\": 2, \"error\": \"items 'a' (line 2) and 'b' (line 3) overlap where they are fixed, at offsets 8 and 10\", \"lower_bound_bytes\": 14, \"fits\": false}"
for how in "" --compare "--solver size" "--solver smartpool-bf"; do
    "$EBB" place clash.csv --json $how >out 2>err
    equal "fixed offsets that overlap: JSON $how" "$? $(cat out)" "1 $clash"
done
"$EBB" place clash.csv --json --capacity 20 >out 2>err
equal "fixed offsets that overlap: JSON with a capacity" "$? $(cat out)" "1 ${clash%\"fits*}\"capacity_bytes\": 20, \"fits\": false}"

# refuses NAME MESSAGE TEXT: the file of this text is bad input, with this message.
refuses() {
    printf "$3" >bad.csv
    says "$1" 3 "ebb: bad.csv$2" place bad.csv
}
head="id,lower,upper,size"
refuses "an empty file" ": the file is empty: it has no line of columns" ""
refuses "no columns" ":1: there is no column 'id': the first line names them, in lower case, with commas between" "1,0,3,4\n"
refuses "a missing column" ":1: there is no column 'size': the first line names them, in lower case, with commas between" "id,lower,upper\na,0,1\n"
refuses "a column twice" ":1: column: 'lower' is there twice" "id,lower,upper,size,lower\n"
refuses "a meaning twice" ":1: column: 'end' is the same as the column 'upper'" "id,lower,upper,size,end\n"
refuses "a field too few" ":3: 3 fields, but 4 columns" "$head\na,0,1,4\nb,0,1\n"
refuses "a negative time" ":2: lower: '-1' is negative" "$head\na,-1,1,4\n"
refuses "a negative size" ":3: size: '-4' is negative" "$head\na,0,1,4\nb,0,1,-4\n"
refuses "a time in words" ":2: upper: 'soon' is not a whole number" "$head\na,0,soon,4\n"
refuses "a broken size" ":2: size: '4.5' is not a whole number" "$head\na,0,1,4.5\n"
refuses "an overflowing time" ":2: upper: '18446744073709551616' is beyond 64 bits" "$head\na,0,18446744073709551616,4\n"
refuses "overflowing sizes" ":3: size: '9223372036854775807' makes sizes and alignments add up to 2^63 or more" \
    "$head\na,0,1,9\nb,0,1,9223372036854775807\n"
refuses "a reversed life" ":2: upper: '3' is not above lower, 5" "$head\na,5,3,4\n"
refuses "an id twice" ":5: id: 'a' is there already, on line 2" "$head\na,0,1,4\n\nb,0,1,4\na,0,1,4\n"
refuses "lines that end with CR LF" ":3: size: '' is no number" "$head\r\na,0,1,4\r\nb,0,1,\r\n"
refuses "an open quote" ":2: a quote without its end" "$head\n\"a,0,1,4\n"
refuses "a gap outside" ":2: gaps: '0-9' is not within the buffer's life" "$head,gaps\na,0,5,4,0-9\n"
refuses "no gap" ":2: gaps: '1..3' is not a gap, t0-t1 or t0-t1@lo:hi" "$head,gaps\na,0,5,4,1..3\n"
refuses "no alignment" ":2: alignment: '0' is no alignment" "$head,alignment\na,0,5,4,0\n"
refuses "a byte 0" ":2: a byte 0: this is no text" "$head\na\\000,0,1,4\n"
"$EBB" place - <bad.csv >out 2>err
equal "standard input that is bad" "$? $(cat err)" "3 ebb: standard input:2: a byte 0: this is no text"
cat bad.csv >pipe &
says "a named pipe that is bad" 3 "ebb: pipe:2: a byte 0: this is no text" place pipe
head -c 30 program | "$EBB" place - >out 2>err
equal "a program that is bad on standard input" "$? $(cut -c 1-20 err)" "3 ebb: standard input:"
says "bytes without an end" 3 "ebb: /dev/zero: this is a device, not a file" place /dev/zero
yes | "$EBB" place - >out 2>err
equal "lines without an end" "$? $(unfold err)" "3 ebb: standard input:1: there is no column 'id': the first line names them, in lower case, with commas between"
(echo "id,lower,upper,size" && yes a,0,1,4) 2>err.yes | "$EBB" place - >out 2>err
equal "rows without an end" "$? $(cat err)" "3 ebb: standard input:3: id: 'a' is there already, on line 2"
head -c 3000 /dev/urandom >noise.csv
complains "noise" 3 "noise.csv" place noise.csv
sed '$d' program >short
{
    head -c 8 trace
    printf '\200'
    tail -c +10 trace
} >later
complains "a trace of a later version" 3 "version" place later
complains "a program cut short" 3 "short" place short
says "a file that is not there" 4 "ebb: nowhere.csv: cannot open: No such file or directory" place nowhere.csv
says "a folder" 4 "ebb: files: this is a folder, not a file" place files
says "an answer to nowhere" 4 "ebb: nowhere/a.csv: cannot create: No such file or directory" place five.csv -o nowhere/a.csv
complains "a picture to nowhere" 4 "nowhere/a.svg" place five.csv --svg nowhere/a.svg
"$EBB" place five.csv -o /dev/full >out 2>err
equal "an answer to a full disk: exit code" $? 4
echo before >kept.csv
(trap '' XFSZ && ulimit -f 8 && exec "$EBB" place files/many.csv --solver best-fit -o kept.csv --svg new.svg) >out 2>err
equal "an answer too large" "$? $(sed 's,/.*/,,' err) $(cat kept.csv)" "4 ebb: kept.csv: cannot write: File too large before"
check "an answer too large: nothing else" [ "$(ls | grep -c -e kept -e new.svg)" = 1 ]
"$EBB" place files/many.csv --time 60 -o ended.csv >out 2>err &
sleep 0.2 && kill -TERM $! && wait $!
equal "ended by a signal" "$? $(ls | grep -c ended)" "143 0"
"$EBB" place five.csv >/dev/full 2>err
equal "a result to a full disk" "$? $(cat err)" "4 ebb: standard output could not be written"

# ---- the command line -------------------------------------------------------------------------

run "help place" a help place && run "place --help" b place --help && check "help of place" cmp -s a b
says "no file" 2 "ebb: place: say which file, or - for standard input; see ebb place --help" place
says "two files" 2 "ebb: place: six.csv is one argument too many; see ebb place --help" place five.csv six.csv
says "unknown solver" 2 "ebb: place: there is no solver foo; see ebb place --help" place five.csv --solver foo
says "a solver and all" 2 "ebb: place: --solver or --compare, not both" place five.csv --solver best --compare
says "steps and time" 2 "ebb: place: --steps or --time, not both" place five.csv --steps 5 --time 1
says "an output of -" 2 "ebb: place: - is what is read; what is written goes to a file, or to /dev/stdout" place five.csv -o -
says "two outputs in one file" 2 "ebb: place: -o and --svg would both write ./x" place five.csv -o x --svg ./x
mkdir -p folder && ln -s folder linked
says "two outputs in one folder, linked" 2 "ebb: place: -o and --svg would both write linked/x" \
    place five.csv -o folder/x --svg linked/x
mkdir -p other && cp five.csv same && ln -s ../same other/soft && ln same other/hard
for to in same ./same other/../same other/soft other/hard; do
    says "an answer over what is read: $to" 2 "ebb: place: $to is what is read" place same -o $to
    says "a picture over what is read: $to" 2 "ebb: place: $to is what is read" place same --svg $to
    says "an answer and a picture: $to" 2 "ebb: place: -o and --svg would both write $to" \
        place five.csv -o same --svg $to
done
"$EBB" place - -o other/hard <same >out 2>err
equal "an answer over standard input" "$? $(cat err)" "2 ebb: place: other/hard is what is read"
check "what is read stays" cmp -s five.csv same
says "no steps" 2 "ebb: place: --steps takes a whole number from 1, not '0'" place five.csv --steps 0
says "no time" 2 "ebb: place: --time is more than 0" place five.csv --time 0
says "a time before now" 2 "ebb: place: --time is more than 0" place five.csv --time -1
says "an odd alignment" 2 "ebb: place: --alignment is a power of two below 2^63, not 48" place five.csv --alignment 48
says "an alignment of all" 2 "ebb: place: --alignment is a power of two below 2^63, not 9223372036854775808" \
    place five.csv --alignment 9223372036854775808
says "no capacity" 2 "ebb: place: --capacity takes bytes, as in 512MB or 2GiB, not '0'" place five.csv --capacity 0

if script --version >out 2>&1 && has_terminals; then
    script -qec "$EBB place files/many.csv --time 1" /dev/null >out 2>err
    check "a line on a terminal" grep -q 'placing by best' out
else
    skip "a line on a terminal" "there is no script, or no terminal for it"
fi
exit $status
