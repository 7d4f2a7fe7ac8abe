#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# `ebb record`: programs that allocate in a known way, their traces read in Python; a CUDA without a device; limits;
# processes that fork, get signals, are killed.
. "$(dirname "$0")/lib.sh"
export COLUMNS=$wide
PYTHONDONTWRITEBYTECODE=1
export PYTHONDONTWRITEBYTECODE
source=$root/tests/e2e/record
flags="-std=gnu11 -O1 -fno-builtin -D_GNU_SOURCE -Wall -Wextra -Wno-use-after-free"

mkdir lib
# shellcheck disable=SC2086
cc $flags -shared -fPIC -Wl,-soname,libcuda.so.1 -o lib/libcuda.so.1 "$source/fake_cuda.c" -ldl &&
    cc $flags -DRUNTIME -shared -fPIC -Wl,-soname,libcudart.so.12 -o lib/libcudart.so.12 "$source/fake_cuda.c" -ldl &&
    cc $flags -rdynamic -o program "$source/program.c" -ldl -pthread &&
    cc $flags -DLINKED -o linked "$source/program.c" lib/libcudart.so.12 -ldl -pthread &&
    cc $flags -shared -fPIC -o lib/early.so "$source/early.c" &&
    cc $flags -DEARLY -rdynamic -o early "$source/program.c" lib/early.so -ldl -pthread &&
    cc $flags -shared -fPIC -o own.so "$source/own_allocator.c" &&
    cc -std=gnu11 -O1 -shared -fPIC -o count_alloc.so "$root/tests/e2e/count_alloc.c" -ldl -pthread ||
    {
        fail "the programs build"
        exit 1
    }
LD_LIBRARY_PATH=$work/lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
export LD_LIBRARY_PATH

# record CODE ARGUMENTS...: ebb record -o trace ARGUMENTS; its exit code is CODE.
record() {
    want=$1
    shift
    rm -f trace trace.*
    "$EBB" record -o trace "$@" >out 2>err </dev/null
    got=$?
    [ $got = "$want" ] || fail "record $*" "exit $got, wanted $want" "$(head -n 5 err)"
}

# tell FILE: its blocks as 'size in KiB @ space', in their order, what lives at the end, and whether it is whole.
tell() {
    python3 - "$root/tests/e2e" "$1" <<'END'
import sys
sys.path.insert(0, sys.argv[1])
from trace_reader import Trace
t = Trace(sys.argv[2])
blocks = [f"{e['size'] // 1024}@{t.notes['space.%d' % e['space']]}{'*' if e['before'] else ''}"
          for e in t.events if e["kind"] == "alloc"]
print(*blocks, "left", sum(e["size"] for e in t.live.values()) // 1024, "peak", t.peak() // 1024,
      "whole" if t.is_whole else "cut")
END
}

# What the C library takes by itself (a buffer of stdout, C++'s emergency pool) is below this.
least="--min-size 80KiB"
# shellcheck disable=SC2086
{
    record 0 $least -- ./program family
    equal "malloc's family" "$(tell trace)" \
        "100@malloc 200@malloc 300@malloc 400@malloc 500@malloc 600@malloc 700@malloc left 0 peak 2500 whole"
    python3 "$root/tests/e2e/trace_reader.py" trace trace.copy && check "the file is as the format has it" cmp -s trace trace.copy
    python3 - "$root/tests/e2e" <<'END' >stack
import sys
sys.path.insert(0, sys.argv[1])
from trace_reader import Trace
t = Trace("trace")
print(*t.stack_lines(t.events[0]["stack"])[:1], t.notes["source"], t.notes["command"])
END
    equal "the caller" "$(cat stack)" "take_here (./program:0) ebb record ./program family"
    if c++ -O1 -fno-builtin -rdynamic -o named "$source/named.cc"; then
        record 0 $least -- ./named
        run "a report of it" text report trace --text
        check "a name of C++ reads as the program has it" grep -q 'outer::take<float, 200000>' text
    else
        skip "a name of C++" "no compiler of C++"
    fi
    record 0 $least -- ./program aligned
    equal "aligned memory, arrays" "$(tell trace)" "100@malloc 200@malloc 300@malloc 500@malloc left 0 peak 800 whole"
    record 0 $least -- ./program fixed
    equal "mmap over what is there" "$(tell trace)" \
        "8192@mmap 99@mmap 2048@mmap 5120@mmap 1024@mmap 1024@mmap 3072@mmap left 0 peak 8291 whole"
    record 0 $least -- ./program remap
    equal "mremap of a part, over another, and without leaving" "$(tell trace)" \
        "8192@mmap 1024@mmap 2048@mmap 5120@mmap 1024@mmap 1024@mmap 1024@mmap 1024@mmap left 0 peak 9216 whole"
    record 0 $least -- ./program many
    equal "thousands of mappings" "$(tell trace | sed 's/.*left/left/')" "left 0 peak 768000 whole"
    record 0 $least --stacks 0 -- ./program family
    check "without callers" test "$(strings trace | grep -c take_here)" = 0
    record 0 --min-size 350KiB -- ./program family
    equal "the least size" "$(tell trace)" "400@malloc 500@malloc 600@malloc 700@malloc left 0 peak 2200 whole"
    record 0 $least -- ./program mmap
    equal "mmap, a part unmapped, and moved" "$(tell trace)" \
        "8192@mmap 2048@mmap 5120@mmap 3072@mmap left 8192 peak 8192 whole"
    record 0 $least -- ./program stuck
    equal "mmap, not moved" "$(tell trace)" "1024@mmap 1024@mmap left 0 peak 1024 whole"
    record 0 $least -- ./program close
    equal "a program that closes all files: its own are its own" "$(cat mine)" mine
    check "and that is said" grep -q 'trace: the program closed its recording; the recording ends there$' err
    equal "a program that closes all files: what was before" "$(tell trace)" "1024@malloc left 1024 peak 1024 cut"
    record 0 $least -- ./program threads
    equal "threads" "$(tell trace | sed 's/.*left 0 .*whole/all freed/')" "all freed"
    record 0 $least -- ./program signals
    equal "signals" "$(tell trace | sed 's/.*left 0 .*whole/all freed/')" "all freed"
    timeout 60 "$EBB" record -o trace $least -- ./program handler >out 2>err </dev/null
    equal "a handler that forks" "$? $(tell trace | sed 's/.*left 0 .*whole/all freed/')" "0 all freed"
    timeout 60 "$EBB" record -o trace $least -- ./program handler-beside >out 2>err </dev/null
    equal "a handler that forks, beside a thread that has the lock" $? 0
    record 0 $least -- ./program fork
    equal "a parent" "$(tell trace)" "1024@malloc left 0 peak 1024 whole"
    equal "its child" "$(tell trace.[0-9]*)" "1024@malloc* 2048@malloc left 2048 peak 2048 whole"
    record 0 $least -- sh -c './program family; ./program mmap'
    check "a file for each process" test "$(ls trace trace.[0-9]* | wc -l)" = 2
    record 4 $least -- sh -c './program family; : >trace'
    check "a trace that is none" grep -q 'not a trace' err
    record 3 $least -- sh -c './program family; : >trace; exit 3'
    record 0 $least -- ./program exec
    equal "before exec" "$(tell trace)" "1024@malloc left 1024 peak 1024 cut"
    equal "behind exec" "$(tell trace.[0-9]* | sed 's/.*left/left/')" "left 0 peak 2500 whole"
    record 0 $least -- ./program clone
    equal "a child without fork's handlers leaves its parent's file alone" "$(tell trace)" \
        "1024@malloc left 0 peak 1024 whole"
    record 0 $least -- ./early early
    equal "before main" "$(tell trace)" "1024@malloc left 1024 peak 1024 whole"
    record 0 $least -- ./program own
    equal "an allocator that was opened by hand" "$(tell trace)" "4096@mmap 500@malloc left 0 peak 4596 whole"
    record 0 $least -- sh -c 'LD_PRELOAD=$LD_PRELOAD:./count_alloc.so exec ./program family'
    equal "beside another preloaded library" "$(tell trace | sed 's/.*left/left/')" "left 0 peak 2500 whole"

    record 0 $least --limit 10MiB -- ./program limit
    equal "a limit" "$(cat out)" "$(printf '1 1 1 1 1\n1')"
    check "what was refused is said" grep -q '3 allocations past the limit of 10.00 MiB were refused' err
    "$EBB" report trace >out 2>&1
    check "and by the report" grep -q 'Out of memory: 3 allocations were refused' out
    record 0 $least -- ./program limit
    equal "no limit" "$(cat out)" "$(printf '1 0 0 0 1\n1')"

    record 0 $least -- ./program cuda
    equal "CUDA's runtime, opened by hand" "$(tell trace); $(cat out)" \
        "4096@cuda:1 3072@cuda:1 20480@pinned 5120@cuda:1 left 0 peak 32768 whole; 0 0 0 0, 61440 of 81920 MiB"
    record 0 $least --limit 8MiB -- ./program cuda
    equal "a limit of the device" "$(tell trace); $(cat out)" \
        "4096@cuda:1 3072@cuda:1 20480@pinned left 0 peak 27648 whole; 0 0 0 2, 1 of 8 MiB"
    record 0 $least -- ./program null
    equal "frees of nothing" "$(tell trace | sed 's/.*left/left/')" "left 0 peak 100 whole"
    record 2 $least --limit 1MiB -- ./linked linked
    check "a device of which nothing was to be had is named" grep -q cuda:1 trace
    record 0 $least -- ./linked linked
    equal "CUDA's runtime, linked" "$(tell trace)" "2048@cuda:1 left 0 peak 2048 whole"
    record 0 $least -- ./program driver
    equal "CUDA's driver, physical memory" "$(tell trace)" "2048@cuda:2 7168@cuda:1 left 0 peak 9216 whole"
}

# steps FILE: what it notes of kernels, its steps as 'row: name op nanoseconds' in their order, how many of its
# allocations and frees lie inside the long one, and whether it is whole.
steps() {
    python3 - "$root/tests/e2e" "$1" <<'END'
import sys
sys.path.insert(0, sys.argv[1])
from trace_reader import Trace
t = Trace(sys.argv[2])
print(t.notes.get("kernels"))
open_on, lines, inside, is_open = {}, [], 0, False
for e in t.events:
    assert e["kind"] in ("alloc", "free", "step_begin", "step_end"), e
    if e["kind"] == "step_begin":
        open_on[e["row"]] = e
        lines.append(e)
    elif e["kind"] == "step_end":
        begin = open_on.pop(e["row"])
        begin["ns"] = e["time"] - begin["time"]
    else:
        assert e["row"] == 0
        inside += any(s["name"] == "long one" for s in open_on.values())
for e in lines:
    print(t.notes[f"row.{e['row']}"] + ":", e["name"], e["op"], e["ns"] if e["name"] != "long one" else "")
print(inside, "of", sum(not e["kind"].startswith("step") for e in t.events), "whole" if t.is_whole else "cut")
END
}

# With CUDA's own headers, and both kinds of streams.
include=${CUDA_HOME:-/usr/local/cuda}/include
if [ -e "$include/cupti.h" ]; then
    # shellcheck disable=SC2086
    cc $flags -isystem "$include" -shared -fPIC -Wl,-soname,libcupti.so -o lib/libcupti.so "$source/fake_cupti.c" ||
        fail "a CUPTI builds"
    # shellcheck disable=SC2086
    {
        record 0 $least -- ./program cuda
        equal "kernels and copies: the allocations" "$(tell trace); $(cat out)" \
            "4096@cuda:1 3072@cuda:1 20480@pinned 5120@cuda:1 left 0 peak 32768 whole; 0 0 0 0, 61440 of 81920 MiB"
        equal "kernels and copies" "$(steps trace | sed 's/ bbbb* / beta /')" "CUPTI 24
cuda:1 stream 7: long one kernel 
cuda:1 stream 7, 2: alpha kernel 2000
cuda:1 stream 8: copy in, 4096 bytes copy 2000
cuda:1 stream 7, 2: beta kernel 3000
cuda:1 stream 7, 2: fill, 64 bytes fill 500
cuda:1 stream 8: copy out, 100 bytes copy 2000
8 of 8 whole"
        check "what was lost is said" grep -q 'trace: 6 kernels and copies, 3 were lost$' err
        check "nothing is left beside the trace" test ! -e trace.steps
        run "a report of kernels" out report trace --text && pass "a report of kernels"
        FAKE_CUPTI=fails record 0 $least -- ./program cuda
        equal "a CUPTI that finds no device" "$(steps trace)" "none: CUPTI answers with error 15
0 of 8 whole"
        record 0 $least --no-kernels -- ./program cuda
        equal "CUPTI that is left alone" "$(steps trace)" "none: by --no-kernels
0 of 8 whole"
        record 0 $least -- ./program family
        equal "no CUDA: nothing of kernels" "$(steps trace | sed -n 1p)" "None"
    }
else
    skip "kernels and copies" "no cupti.h"
fi
if [ -e "$include/cuda.h" ]; then
    blocks="100@cuda:1 200@cuda:1 300@cuda:1 400@managed 500@cuda:1 600@cuda:1 700@pinned 800@pinned"
    blocks="$blocks 100@cuda:1 200@cuda:1 300@cuda:1 400@managed 500@cuda:1 600@pinned 700@pinned"
    blocks="$blocks 8000@cuda:2 9000@cuda:1 10000@cuda:1 1100@cuda:1 1200@cuda:1 left 0 peak 17000 whole"
    for streams in DEFAULT PER_THREAD; do
        # shellcheck disable=SC2086
        cc $flags -DCUDA_API_${streams}_DEFAULT_STREAM -isystem "$include" -o family "$source/cuda_family.c" \
            lib/libcudart.so.12 lib/libcuda.so.1 -ldl || fail "CUDA's family, $streams: it builds"
        for way in link name entry runtime; do
            # shellcheck disable=SC2086
            record 0 $least --limit 16MiB -- ./family $way
            equal "CUDA's family, streams $streams, found by $way" "$(tell trace); $(cat out)" "$blocks; 16 13 16 13 16 16"
        done
    done
else
    skip "CUDA's family" "no cuda.h"
fi

# A process that the command leaves behind.
mkfifo gate
# shellcheck disable=SC2086
record 0 $least -- sh -c '(read _ <gate; exec ./program family) >left 2>&1 &'
check "nothing so far is said" grep -q 'trace is empty: the command allocated nothing large so far' err
check "and that a process still runs" grep -q "1 of the command's processes still runs; what they record goes to $work/trace.PID" err
echo >gate
n_waits=0 # a busy machine takes its time
until [ -e "$(echo trace.[0-9]*)" ] && tell trace.[0-9]* | grep -q whole || [ $n_waits -ge 100 ]; do
    sleep 0.2
    n_waits=$((n_waits + 1))
done
equal "what it did" "$(tell trace.[0-9]* | sed 's/.*left/left/')" "left 0 peak 2500 whole"

# Of kernels and copies, here by hand: an earlier recording's are none of this one's, and none are put into a trace while
# its process may still write on. Only ./program may take memory here: the first process that does has the trace itself,
# and grep, for one, takes enough.
rm -f trace trace.*
echo 'ebb-late-steps 1 0' >trace.steps
# shellcheck disable=SC2086
"$EBB" record -o trace $least -- ./program family >out 2>err
check "an earlier recording's steps are no more" test ! -e trace.steps
check "and are not this one's" test "$(grep -c 'kernels' err)" = 0
# shellcheck disable=SC2086
record 0 $least -- sh -c './program family; echo "ebb-late-steps 1 0" >trace.steps'
check "steps of its own are put into it" grep -q 'trace: 0 kernels and copies$' err
# shellcheck disable=SC2016,SC2086
record 0 $least -- sh -c './program wait >ready & echo $! >pid; until [ -s ready ]; do sleep 0.1; done
    echo "ebb-late-steps 1 0" >trace.steps'
check "not while its process runs" test -e trace.steps -a "$(tell trace | sed 's/.* //')" = cut
check "and that is said" grep -q 'trace.steps has its kernels and copies: its process may still run$' err
kill "$(cat pid)"

record 0 --limit 8MiB --min-size 4MiB -- python3 -c 'x = [bytes(1000) for _ in range(20000)]'
check "memory beyond a limit that was not recorded" grep -q 'a process had .* in memory, beyond the limit of 8.00 MiB' err
record 0 --limit 1GiB --min-size 4MiB -- python3 -c 'x = [bytes(1000) for _ in range(20000)]'
check "and below it" test "$(grep -c beyond err)" = 0

record 0 -- true
check "nothing large: an empty trace" test "$(tell trace)" = "left 0 peak 0 whole"
check "and that is said" grep -q 'trace is empty' err
record 3 -- sh -c 'exit 3'
check "of a command that failed no cause is guessed" grep -q 'trace is empty: the command ended with exit code 3$' err
record 127 -- sh -c 'exit 127'
check "a command's own 127 has a trace" test "$(tell trace)" = "left 0 peak 0 whole"
echo mine >trace
says "a command that is not there" 127 "ebb: record: cannot run ./nosuch: No such file or directory" \
    record -o trace -- ./nosuch
says "the same, looked for" 127 "ebb: record: cannot run nosuch: No such file or directory" record -o trace -- nosuch
says "its name" 127 "ebb: record: cannot run no?such: No such file or directory" record -o trace -- "$(printf 'no\033such')"
says "a folder" 126 "ebb: record: cannot run /: Permission denied" record -o trace -- /
says "no program" 126 "ebb: record: cannot run ./trace: Permission denied" record -o other -- ./trace
equal "and what was there stays" "$(cat trace)" mine
printf '#!/nosuch/interpreter\n' >script && chmod +x script
record 127 -- ./script
record 143 -- sh -c 'kill -TERM $$'
record 137 -- python3 -c 'import os; x = bytearray(9 << 20); os.kill(os.getpid(), 9)'
check "a killed one leaves what it did" test "$(tell trace | grep -c '9216@malloc .*cut')" = 1
interrupt() { # who: it gets SIGINT, and the exit code of ebb is printed
    rm -f trace
    python3 - "$EBB" "$1" <<'END'
import os, signal, subprocess, sys
signal.signal(signal.SIGINT, signal.default_int_handler)
ebb = subprocess.Popen([sys.argv[1], "record", "-o", "trace", "--min-size", "80KiB", "--", "./program", "wait"],
                       stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
ebb.stdout.readline()
child = int(open(f"/proc/{ebb.pid}/task/{ebb.pid}/children").read())
os.kill(child if sys.argv[2] == "command" else ebb.pid, signal.SIGINT)
print(ebb.wait())
END
}
equal "SIGINT to the command" "$(interrupt command); $(tell trace)" "130; 1024@malloc left 1024 peak 1024 cut"
equal "SIGINT to ebb is handed on" "$(interrupt ebb); $(tell trace)" "130; 1024@malloc left 1024 peak 1024 cut"
cat >waits.py <<'END'
import os, signal, time
signal.signal(signal.SIGINT, signal.SIG_DFL)
os.kill(os.getppid(), signal.SIGINT)
time.sleep(0.3)
print("there")
END
equal "SIGINT that ebb was told to ignore" "$(
    trap '' INT
    "$EBB" record -o ignored -- python3 waits.py 2>err
    echo $?
)" "there
0"
run "a report of it" out report trace --text && pass "a report of it"
if [ -e /dev/full ]; then
    ln -s /dev/full full
    "$EBB" record -o full/x -- ./program family 2>err
    equal "a place that cannot be written" $? 4
fi

mkdir small
# shellcheck disable=SC2016
unshare -rm sh -c 'mount -t tmpfs -o size=16k none small && "$1" record -o small/trace --min-size 16KiB -- ./program threads &&
    cp small/trace trace' sh "$EBB" >out 2>err
got=$?
if grep -q 'mount\|unshare' err; then
    skip "a full disk" "no file system of its own"
else
    equal "a full disk: the command's exit code" $got 0
    check "and that is said" grep -q 'small/trace: cannot write: No space left on device; the recording ends there$' err
    equal "and the trace reads up to there" "$(tell trace | sed 's/.* //')" cut
fi
# shellcheck disable=SC2016
unshare -rm sh -c 'mount -t tmpfs -o size=16k none small && dd if=/dev/zero of=small/all bs=4k 2>/dev/null
    "$1" record -o small/trace --min-size 16KiB -- ./program threads; echo $? >code; ls small >there' sh "$EBB" >out 2>err
if grep -q 'mount\|unshare' err; then
    skip "a disk that is full from the start" "no file system of its own"
else
    equal "a disk that is full from the start: the exit code" "$(cat code)" 4
    check "it is said first" [ "$(grep -n 'small/trace: cannot write: No space left on device; the recording ends there$' err |
        cut -d: -f1)" = 1 ]
    equal "there is no empty trace, and nothing calls it one" "$(cat there) $(grep -c 'not a trace' err)" "all 0"
fi
# shellcheck disable=SC2016
sh -c 'ulimit -f 8; exec "$1" record -o trace --min-size 16KiB -- ./program threads' sh "$EBB" >out 2>err
equal "a limit of files' sizes: the command's exit code" $? 0
check "and that is said" grep -q 'trace: cannot write: File too large; the recording ends there$' err

: >aim && ln -s aim link && ln -s new dangling
# shellcheck disable=SC2086
for name in link dangling; do
    "$EBB" record -o $name $least -- ./program family >out 2>err
    check "$name: a link stays" test -L $name
done
equal "and what it names is written" "$(tell aim | sed 's/.*left/left/'); $(tell new | sed 's/.*left/left/')" \
    "left 0 peak 2500 whole; left 0 peak 2500 whole"
ln -s loop loop
says "a link to itself" 4 "ebb: record: loop: Too many levels of symbolic links" record -o loop -- true
mkdir 'a[b]*' && : >'a[b]*/t.7'
touch -d '1 hour ago' 'a[b]*/t.7'
# shellcheck disable=SC2086
"$EBB" record -o 'a[b]*/t' $least -- ./program fork "$(printf 'x\033\342\200\256y')" >out 2>err
equal "a name that is a pattern, a command that would steer the terminal" \
    "$(sed 's/.*once: //' err)" "$(printf './program fork x ?y\n./program fork x ?y')"

mkfifo pipe && cp program own && : >data
says "a pipe stays" 2 "ebb: record: pipe is no file" record -o pipe -- ./program family
says "the program stays" 2 "ebb: record: own is the command's, and would be replaced" record -o own -- ./own family
says "its data stays" 2 "ebb: record: data is the command's, and would be replaced" record -o data -- cat ./data
check "and they are there" test -p pipe -a -x own -a -f data
record 0 -- ./program family "$(printf '%0100d' 0)" end
check "a long command keeps its end" grep -q 'at once: ./program family 0*\.\.\.0* end$' err
says "too many callers" 2 "ebb: record: --stacks takes at most 32 callers" record -o x --stacks 33 -- true
long=$(printf '%0250d' 0)
complains "a name without room for a number behind it" 4 \
    "^ebb: record: $work/0+\.\.\.0+: the name is too long for those of other processes, with .PID after it$" \
    record -o "$long" -- true
equal "no room for a file" "$(ulimit -f 0 && "$EBB" record -o x -- true 2>&1)" "ebb: record: $work/x: File too large"
check "and nothing was made" test ! -e x -a ! -e "$long"

mkdir picked && cd picked || exit 1
for want in python3.trace python3-2.trace; do
    "$EBB" record -- "$(command -v python3)" -c 'x = bytearray(9 << 20)' 2>err
    equal "without -o: $want is picked" "$(head -n 1 err)" "ebb: record: the trace goes to $want"
    check "without -o: $want is there" test -s $want
    check "without -o: $want is written" grep -q "record: .*/$want: [1-9][0-9]* blocks" err
done
cd .. || exit 1
says "no command" 2 "ebb: record: say which command, after --; see ebb record --help" record -o x
says "an empty command" 2 "ebb: record: say which command, after --; see ebb record --help" record -o x --
says "no dashes" 2 "ebb: record: true is one argument too many; see ebb record --help" record -o x true
exit $status
