#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# What PyTorch's caching allocator reserves, replayed from a snapshot's blocks alone, against what its segments say:
# within 1 %, and to the byte where the snapshot goes back to the beginning. SNAPSHOTS names a folder with others, such as
# real ones; those that have lost their beginning are left out.
. "$(dirname "$0")/lib.sh"
here=$root/tests/e2e

# error_of FILE: how far the replay is from what was reserved at most, in units of 0.01 %.
error_of() {
    "$EBB" report "$1" --json | python3 -c '
import json, sys
report = json.load(sys.stdin)
reserved = report["fragmentation"]["reserved_peak_bytes"]
rows = {row["key"]: row["bytes"] for row in report["what_if"]}
got = rows.get("pytorch-recorded")
print("unknown" if reserved is None or got is None else round(1e4 * abs(got - reserved) / reserved))'
}

python3 "$here/make_reserved.py" snapshots || exit 1
for file in snapshots/*.pickle; do
    case $file in */untold.pickle | */mute.pickle) continue ;; esac
    equal "reserved, $(basename "$file" .pickle)" "$(error_of "$file")" 0
done
# Where the allocator by itself gave back a part of what it kept, the same settings do so again. What others would have
# given back is not known.
python3 "$here/make_reserved.py" parts 40 collected streams_collected split_full || exit 1
for file in parts/*.pickle; do
    equal "given back in part, $(basename "$file" .pickle)" "$(error_of "$file")" 0
    "$EBB" report "$file" --json | python3 -c '
import json, sys
rows = [row for row in json.load(sys.stdin)["what_if"] if row["key"].startswith("pytorch")]
print(sorted({(row["key"] != "pytorch-recorded", "error unknown" in row["about"]) for row in rows}))' >rows
    equal "others are unknown, $(basename "$file" .pickle)" "$(cat rows)" "[(False, False), (True, True)]"
done
# how_far FILE: what the rows of this allocator say of the replay's error.
how_far() {
    "$EBB" report "$1" --json | python3 -c '
import json, re, sys
rows = [row for row in json.load(sys.stdin)["what_if"] if row["key"].startswith("pytorch")]
print(*sorted({"".join(re.findall("[-+][0-9.]+ %", row["about"])) or "exact" for row in rows}))'
}
# abouts FILE: what its rows of this allocator say beside their settings, each once.
abouts() {
    "$EBB" report "$1" --json | python3 -c '
import json, re, sys
print(*sorted({re.sub(" with (its defaults|the recorded settings)", "", row["about"]) for row in json.load(sys.stdin)["what_if"] if row["key"].startswith("pytorch")}))'
}
for name in defaults mute; do
    "$EBB" report snapshots/$name.pickle --json | python3 -c '
import collections, json, sys
words = collections.Counter((row["about"], row["setting"]) for row in json.load(sys.stdin)["what_if"])
print(*(pair[0] for pair, n in words.items() if n > 1))' >rows
    empty "no two rows have the same words, $name" "$(cat rows)"
done
mute="PyTorch's caching allocator, replayed; error unknown: the recording tells no segments"
equal "without segments the error is unknown" "$(abouts snapshots/mute.pickle)" "$mute"
"$EBB" report snapshots/mute.pickle | tr -s ' \n' ' ' >mute.txt
check "the text says so" grep -q "error unknown: the recording tells no segments" mute.txt
"$EBB" report snapshots/mute.pickle -o mute.html
check "the page says so" grep -q "error unknown" mute.html
equal "a replay that agrees says nothing" "$(how_far snapshots/defaults.pickle)" exact
error=$(error_of snapshots/untold.pickle)
check "a replay that is off: $(how_far snapshots/untold.pickle)" [ "$error" -gt 200 ]
equal "its rows say by how much" "$(how_far snapshots/untold.pickle | grep -c '^[-+][0-9.]* %$')" 1
for file in ${SNAPSHOTS:+"$SNAPSHOTS"/*.pickle}; do
    error=$(error_of "$file")
    name="reserved, $(basename "$file" .pickle)"
    if [ "$error" = unknown ]; then
        skip "$name" "it does not tell all segments"
    else
        check "$name: 0.01 % x $error" [ "$error" -le 100 ]
    fi
done
exit $status
