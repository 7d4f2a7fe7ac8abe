#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# `ebb diff` and `ebb check`: the answer, the exit code, and what is named.
. "$(dirname "$0")/lib.sh"

for batch in 8 12; do
    "$EBB" train lenet --batch $batch --steps 1 --backend dry --policy liveness --record $batch.trace >/dev/null 2>err ||
        fail "recordings" "$(cat err)"
done
echo nothing >not.trace

field() { # file, key
    python3 -c 'import json, sys; print(json.dumps(json.load(open(sys.argv[1]))[sys.argv[2]]))' "$1" "$2"
}

# ---- diff -------------------------------------------------------------------------------------

run "the same file" out diff 8.trace 8.trace
equal "the same file: one line" "$(wc -l <out)" 1
run "another batch" out diff 8.trace 12.trace
check "another batch: the peak" grep -q '^peak .* -> .* +.* %$' out
check "another batch: roles" grep -q '^  activation .* +50.0 %$' out
check "another batch: a block" grep -q '^  grew .* 1 x .* -> .* relu1$' out
run "as JSON" out diff 8.trace 12.trace --json
equal "as JSON: sums" "$(python3 - <<END
import json
d = json.load(open("out"))
for key in ["roles", "names", "modules"]:
    for side in "ab":
        assert sum(row[side + "_bytes"] for row in d[key]) == d[side + "_peak_bytes"], (key, side)
more = sum((c["b_bytes"] - c["a_bytes"]) * c["blocks"] for c in d["changes"])
assert more == d["b_peak_bytes"] - d["a_peak_bytes"] > 0
print(d["schema_version"], d["sites"])
END
)" "1 []"
run "few lines" out diff 8.trace 12.trace --lines 1
equal "few lines: the rest is counted" "$(grep -c '^  and [0-9]* more$' out)" 4

# A share of nothing is no number, and one of next to nothing is a short one.
printf 'id,lower,upper,size\nbyte,0,2,1\ntiny,0,2,100\nsmall,0,2,1000\ngrown,0,2,1000\nless,0,2,10004\n' >a.csv
printf 'id,lower,upper,size\nbyte,0,2,47000000\ntiny,0,2,1000000\nsmall,0,2,37000\ngrown,0,2,1500\nfresh,0,2,9\nless,0,2,10000\n' >b.csv
run "shares" out diff a.csv b.csv
equal "shares" "$(awk '/^by name/ { on = 1 } /^$/ { on = 0 } on && NF > 2 { print $1, $9, $10, $11 }' out | tr '\n' ';')" \
    "byte x 5e+07 ;tiny x 10000 ;small x 37 ;grown +50.0 % ;fresh new  ;less < 0.1 %;"

# In a file a long name stands whole, in a line of its own.
long=$(printf '%070d' 0)
printf 'id,lower,upper,size\n%s,0,2,100\n' "$long" >a.csv
printf 'id,lower,upper,size\n%s,0,2,900\nb,0,2,4\n' "$long" >b.csv
run "a long name" out diff a.csv b.csv
equal "a long name: whole" "$(grep -c "$long" out)" 3
check "a long name: lines fit 100 columns" awk 'length($0) > 100 { exit 1 }' out
equal "a long name: its numbers come below" "$(grep -A 1 "^  $long\$" out | sed -n 2p | tr -s ' ')" " 100 B -> 900 B +800 B +800.0 %"

# Names are anybody's bytes.
printf 'id,lower,upper,size\n\033[31mred,0,2,5\n' >a.csv
printf 'id,lower,upper,size\n\033[31mred,0,2,9\nc1\302\233,0,2,9\nturn\342\200\256,0,2,9\nhalf\303,0,2,9\n' >b.csv
strange() { # file
    LC_ALL=C tr -d '\n -~' <"$1" | od -An -c
}
run "hostile names" out diff a.csv b.csv
empty "hostile names: nothing steers the terminal" "$(strange out)"
check "hostile names: they are told" grep -q '^  grew .* ?\[31mred$' out
"$EBB" check b.csv --max-peak 1 >out
empty "hostile names: nor does check" "$(strange out)"
check "hostile names: check tells them" grep -q ' turn?$' out
bytes=$(printf 'x\377.csv')
cp b.csv "$bytes"
run "hostile names as JSON" out diff a.csv "$bytes" --json
check "hostile names as JSON: UTF-8" python3 -c 'import json; json.loads(open("out", "rb").read().decode("utf-8"))'

# ---- check ------------------------------------------------------------------------------------

code() { # name, code, arguments
    name=$1 wanted=$2
    shift 2
    "$EBB" check "$@" >out 2>err
    equal "$name" "$? $(cat err)" "$wanted "
}

code "within its limit" 0 8.trace --max-peak 1GiB
code "as the baseline" 0 8.trace --baseline 8.trace
for none in 0 0% 0B; do
    code "as the baseline, tolerance $none" 0 8.trace --baseline 8.trace --tolerance $none
    code "above the baseline, tolerance $none" 1 12.trace --baseline 8.trace --tolerance $none
done
code "a peak of nothing" 1 8.trace --max-peak 0
check "a peak of nothing: the limit" grep -q 'exceeds 0 B by' out
code "below the baseline" 0 8.trace --baseline 12.trace
code "within the tolerance" 0 12.trace --baseline 8.trace --tolerance 10%
code "within bytes of tolerance" 0 12.trace --baseline 8.trace --tolerance 1MB
code "above its limit" 1 8.trace --max-peak 1MiB
check "above its limit: who holds it" grep -q '^  held .* fc1.weight$' out
printf 'id,lower,upper,size\n,0,2,100\nb,0,2,50\n' >unnamed.csv
code "blocks without a name" 1 unnamed.csv --max-peak 1
check "blocks without a name: in words" grep -q '^  held .* 100 B .* (no name)$' out
code "blocks without a name, as JSON" 1 unnamed.csv --max-peak 1 --json
equal "blocks without a name, as JSON: in words" "$(field out held)" \
    '[{"label": "(no name)", "bytes": 100, "blocks": 1}, {"label": "b", "bytes": 50, "blocks": 1}]'
code "within its limit, as JSON" 0 unnamed.csv --max-peak 150 --json
check "within its limit, as JSON: nobody is named" [ "$(grep -c held out)" = 0 ]
code "above the baseline" 1 12.trace --baseline 8.trace
check "above the baseline: what grew" grep -q '^  grew .* relu1$' out
code "above the tolerance" 1 12.trace --baseline 8.trace --tolerance 2%
code "the lower limit counts" 1 12.trace --baseline 8.trace --tolerance 10% --max-peak 1MiB
code "as JSON" 1 12.trace --baseline 8.trace --tolerance 2% --json
equal "as JSON: no" "$(field out ok)" false
check "as JSON: what grew" grep -q '"name": "relu1"' out

# ---- lines fit --------------------------------------------------------------------------------

# longest: of what stands in the file shown.
longest() {
    python3 -c 'print(max(len(line) for line in open("shown", encoding="utf-8").read().split("\n")))'
}
cat >paths.csv <<END
id,lower,upper,size
model/encoder/a_folder_with_a_long_name/another_one/and_the_file_at_its_end.weight,0,9,65536
b2,3,9,4096
END
sed 's/65536/1050000000/; s/b2/äöü/' paths.csv >longer.csv
# on_terminal WIDTH EXIT COMMAND...: what ebb prints on a terminal of this many columns, in the file shown.
on_terminal() {
    width=$1 wanted=$2
    shift 2
    python3 "$root/tests/e2e/terminal.py" "$width" "$EBB" "$@" >terminal 2>err
    equal "$* in $width columns" "$(grep '^exit' terminal)$(cat err)" "exit $wanted"
    sed -n 's/^left: //p' terminal >shown
    [ "$1" != check ] || sed -i 1d shown # its answer is one sentence, which the terminal breaks
    check "$* in $width columns: lines fit" [ "$(longest)" -le "$width" ]
}
if has_terminals; then
    for width in 40 60 78 79 80 94 95 99 100 120; do
        on_terminal $width 0 diff paths.csv longer.csv
        check "diff in $width columns: nothing is lost" [ "$(tr -s ' \n' ' ' <shown |
            grep -c '^peak.* 68.00 KiB -> 1001.* MiB.*by name.*model/.*\.\.\..*ight.* 64.00 KiB -> 1001.* MiB')" = 1 ]
        check "diff in $width columns: differences" grep -q '^  äöü .* new *$' shown
        on_terminal $width 0 diff 8.trace 12.trace
        check "diff of traces in $width columns: per cent" grep -q '^  activation .* +50.0 %$' shown
    done
    for width in 40 80; do
        on_terminal $width 1 check longer.csv --max-peak 1
        on_terminal $width 1 check longer.csv --baseline paths.csv
    done
else
    skip "diff fits the terminal" "this machine gives no terminals"
fi

# ---- what is refused --------------------------------------------------------------------------

says "diff of one file" 2 "ebb: diff: say which two files; see ebb diff --help" diff 8.trace
says "check of nothing" 2 "ebb: check: say which file; see ebb check --help" check
says "check without a limit" 2 "ebb: check: say with --max-peak or --baseline what the peak may be" check 8.trace
memory="takes bytes, as in 512MB or 2GiB, or a per cent, as in 60%"
says "tolerance below none" 2 "ebb: check: --tolerance $memory, not '-1%'" check 8.trace --tolerance -1%
says "tolerance in words" 2 "ebb: check: --tolerance $memory, not 'none'" check 8.trace --tolerance none
says "tolerance of nothing" 2 "ebb: check: --tolerance without --baseline" check 8.trace --max-peak 1GiB --tolerance 2%
says "no such file" 4 "ebb: no.trace: cannot open: No such file or directory" diff 8.trace no.trace
complains "no recording" 3 "not.trace" check not.trace --max-peak 1GiB
complains "no recording for a baseline" 3 "not.trace" check 8.trace --baseline not.trace

# ---- a snapshot without history ---------------------------------------------------------------

python3 "$root/tests/e2e/make_snapshot.py" snapshots
cp snapshots/state.pickle moment.pickle
refusal="the snapshot shows one moment and has no history, so its peak is not known; --incomplete judges what it has"
warning="ebb: warning: moment.pickle: the snapshot shows one moment and has no history; its peak is not known"
run "a moment is imported" out import moment.pickle -o moment.trace
says "a moment: check refuses it" 3 "ebb: moment.pickle: $refusal" check moment.pickle --max-peak 1TiB
says "a moment, imported: check refuses it" 3 "ebb: moment.trace: $refusal" check moment.trace --max-peak 1TiB
complains "a moment: nor is it a baseline" 3 "moment.pickle: $refusal" check 8.trace --baseline moment.pickle
"$EBB" check moment.pickle --max-peak 1TiB --incomplete >out 2>err
equal "a moment: check --incomplete judges it" "$? $(cat err)" "0 $warning"
check "a moment: check calls it what was live" grep -q '^moment.pickle: what was live, .*, is within ' out
"$EBB" diff moment.pickle moment.pickle >out 2>err
equal "a moment: diff warns" "$? $(sort -u err)" "0 $warning"
equal "a moment: diff tells no peak" "$(grep -c peak out) $(grep -c '^live ' out)" "0 1"
exit $status
