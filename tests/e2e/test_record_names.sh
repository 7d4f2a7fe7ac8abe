#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# How `ebb record` names callers: static and inlined functions, source lines, stripped files, separate debug files,
# files that have changed since or are damaged.
. "$(dirname "$0")/lib.sh"
PYTHONDONTWRITEBYTECODE=1
export PYTHONDONTWRITEBYTECODE
source=$root/tests/e2e/record/names.c
flags="-std=gnu11 -O1 -fno-builtin -fno-optimize-sibling-calls -D_GNU_SOURCE -Wall -Wextra"

[ -e "$(dirname "$EBB")/libebb_names.so" ] || {
    skip "names of callers" "built without libdw"
    exit $status
}

line() {
    grep -n "LINE $1 " "$source" | cut -d: -f1
}

# build NAME FLAGS...: a program of this name, and its library libNAME.so with no names but the exported one.
build() {
    name=$1
    shift
    rm -f "$name"
    # shellcheck disable=SC2086
    cc $flags -DLIBRARY -shared -fPIC -Wl,--build-id -o "lib$name.so" "$source" && strip "lib$name.so" &&
        cc $flags -Wl,--build-id "$@" -o "$name" "$source" "./lib$name.so" || fail "$name builds"
}

# record NAME ARGUMENTS...: its trace is NAME.trace.
record() {
    name=$1
    shift
    "$EBB" record -o "$name.trace" --min-size 190KiB -- "./$name" "$@" >out 2>err </dev/null
    got=$?
    [ $got = 0 ] || fail "record $name" "exit $got" "$(head -n 5 err)"
}

# callers NAME N: those of its N-th allocation up to main, offsets as '+'.
callers() {
    python3 - "$root/tests/e2e" "$1.trace" "$2" <<'END'
import os, re, sys
sys.path.insert(0, sys.argv[1])
from trace_reader import Trace
t = Trace(sys.argv[2])
out = []
for text in t.stack_lines([e for e in t.events if e["kind"] == "alloc"][int(sys.argv[3])]["stack"]):
    function, file, line = re.fullmatch(r"(.*) \((.*):(\d+)\)", text).groups()
    if "libc.so" in file:
        break  # main's caller
    function = re.sub(r"\+0x[0-9a-f]+$", "+", function)
    out.append(f"{function} {os.path.basename(file)}" + (f":{line}" if line != "0" else ""))
print(*out, sep=", ")
END
}

lined="take names.c:$(line take), make_batch names.c:$(line make_batch), train_step names.c:$(line train_step)"
for kind in -pie -no-pie; do
    pic=$([ $kind = -pie ] && echo -fPIE || echo -fno-pie)
    build with_lines -g $pic $kind
    record with_lines
    equal "$kind -g: inlined functions and lines" "$(callers with_lines 0 | sed 's/, main.*//')" "$lined"
    equal "$kind -g: the library has no name for its static function" "$(callers with_lines 1)" \
        "+ libwith_lines.so, library_take libwith_lines.so, main names.c:$(line main)"
    build without $pic $kind
    record without
    equal "$kind without -g: static functions" "$(callers without 0)" \
        "make_batch without, train_step without, main without"
    build bare $pic $kind && strip bare
    record bare
    equal "$kind stripped: offsets" "$(callers bare 0)" "+ bare, + bare, + bare"
    build offset $pic $kind && cp offset kept && strip offset
    record offset
    strings offset.trace | sed -n 's|^[[:space:]]*+\(0x[0-9a-f]*\)$|\1|p' | xargs addr2line -f -e kept >lines
    check "$kind stripped: offsets are those for addr2line" grep -q train_step lines
done
build exported -rdynamic && strip exported
record exported
equal "an exported function in a stripped program" "$(callers exported 0)" "+ exported, train_step exported, main exported"
run "a report of it" text report exported.trace --text
check "the nearest caller that has a name names the site" \
    grep -qE 'exported\+0x[0-9a-f]+, called by train_step \(.*exported\)' text

if clang --version >/dev/null 2>&1; then
    # shellcheck disable=SC2086
    clang $flags -g -o other_compiler "$source" ./libwith_lines.so
    record other_compiler
    equal "clang's debug information, which has no index by address" \
        "$(callers other_compiler 0 | sed 's/, main.*//')" "$lined"
else
    skip "clang's debug information" "no clang"
fi

build apart -g
mkdir .debug && objcopy --only-keep-debug apart .debug/apart.debug && strip apart &&
    objcopy --add-gnu-debuglink=.debug/apart.debug apart
record apart
equal "debug information in a file of its own" "$(callers apart 0 | sed 's/, main.*//')" "$lined"
DEBUGINFOD_URLS=http://127.0.0.1:9/ record bare
equal "nobody is asked over the network" "$(callers bare 0)" "+ bare, + bare, + bare"

# A program that has something done to its own file while it runs: $1 is the command, %s the file.
changed() { # name, command, what is wanted
    build changing -g
    record changing "$2" changing
    equal "$1" "$(callers changing 0 | sed 's/, main.*//')" "$3"
}
kept="+ changing, + changing, + changing"
build other -g -DOTHER=1 -O0
changed "a file that has been replaced" 'cp other %s.new && mv %s.new %s' "$kept"
changed "a file that is gone" 'rm %s' "$kept"
changed "a pipe in its place" 'rm %s && mkfifo %s' "$kept"
changed "a device in its place" 'rm %s && ln -s /dev/zero %s' "$kept"
changed "a file cut off" 'head -c 900 %s >%s.new && mv %s.new changing' "$kept"
cat >damage.py <<'END'
import random, sys
with open(sys.argv[1], "rb") as file:
    data = bytearray(file.read())
random.seed(int(sys.argv[2]))
for _ in range(400):  # behind the build's id, before which nothing is read
    data[random.randrange(4096, len(data))] = random.randrange(256)
with open(sys.argv[1] + ".new", "wb") as file:
    file.write(data)
END
for seed in 1 2 3 4 5 6; do
    build damaged -g
    record damaged "python3 damage.py %s $seed && mv %s.new %s" damaged
    check "a damaged file, $seed: the trace is whole" "$EBB" check damaged.trace --max-peak 1GiB
done >damaged.out
sed -n 's/^not ok/not ok/p' damaged.out
equal "damaged files: each trace is whole" "$(grep -c '^ok - a damaged file' damaged.out)" 6
exit $status
