#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# The build as an installed package: pkg-config and CMake find it, the example builds against it with the public
# headers alone, and trains under a budget.
. "$(dirname "$0")/lib.sh"
build=$(dirname "$EBB")

if cmake --install "$build" --prefix "$work/prefix" >log 2>&1; then pass "install"; else fail "install" "$(tail -5 log)"; fi
library=$(find "$work/prefix" -name 'libebb.so' | head -n 1)
lib=$(dirname "$library")
PKG_CONFIG_PATH=$lib/pkgconfig
LD_LIBRARY_PATH=$lib
export PKG_CONFIG_PATH LD_LIBRARY_PATH

equal "soname" "$(readelf -d "$library" | sed -n 's/.*soname: \[\(.*\)\]/\1/p')" libebb.so.0
equal "the program finds its library" "$(env -u LD_LIBRARY_PATH "$work/prefix/bin/ebb" version)" "ebb 0.1.0"
env -u LD_LIBRARY_PATH "$work/prefix/bin/ebb" record -o recorded -- python3 -c 'x = bytearray(9 << 20)' 2>err
check "ebb record finds its library" grep -q 'recorded: [0-9]* blocks' err
check "the Python package" env PYTHONPATH="$work/prefix/share/ebb/python" python3 -c 'import ebb.trace'
if [ -e "$build/libebb_cuda.so" ]; then
    env -u LD_LIBRARY_PATH "$work/prefix/bin/ebb" probe --backend cuda >out 2>err
    check "libebb finds its plug-in" grep -qv 'backend cuda' err
    check "which lies beside what else is its own" test -e "$lib/ebb/libebb_cuda.so"
else
    skip "libebb finds its plug-in" "this build has none"
fi
if [ -e "$build/libebb_mpi.so" ]; then
    env -u LD_LIBRARY_PATH "$work/prefix/bin/ebb" train lenet --remote 1MiB >out 2>err
    check "libebb finds its plug-in for MPI" grep -q 'no other process' err
else
    skip "libebb finds its plug-in for MPI" "this build has none"
fi
share=$work/prefix/share
for page in ebb ebb-train ebb-record; do check "man $page" test -s "$share/man/man1/$page.1"; done
check "completion" test -s "$share/bash-completion/completions/ebb"
for example in train_digits.c pool_mmap.c embed.c buffers.csv torch_digits.py torchtitan_policy.py; do check "$example" test -s "$share/doc/ebb/examples/$example"; done
"$work/prefix/bin/ebb" report "$share/doc/ebb/examples/resnet20.trace" >out 2>err
check "the sample recording has a report" grep -q 'are live at once' out
"$work/prefix/bin/ebb" place "$share/doc/ebb/examples/buffers.csv" >out 2>err
check "the sample problem is placed" grep -q 'optimal *proven' out
check "the documents are there" test -s "$share/doc/ebb/docs/install.md" -a -s "$share/doc/ebb/README.md"
equal "pkg-config's version" "$(pkg-config --modversion ebb)" 0.1.0

# shellcheck disable=SC2046
if cc -std=c11 -Wall -Wextra -pedantic -Werror "$root/examples/train_digits.c" $(pkg-config --cflags --libs ebb) \
    -o train_digits 2>log; then
    pass "the example builds with pkg-config"
else
    fail "the example builds with pkg-config" "$(cat log)"
fi
check "the example has at most 60 lines" test "$(wc -l <"$root/examples/train_digits.c")" -le 60

# shellcheck disable=SC2046
if cc -std=c11 -Wall -Wextra -pedantic -Werror "$root/examples/pool_mmap.c" $(pkg-config --cflags --libs ebb) \
    -o pool_mmap 2>log && ./pool_mmap >out 2>&1; then
    pass "the pool's example runs"
else
    fail "the pool's example runs" "$(cat log out)"
fi
check "the pool's example has at most 60 lines" test "$(wc -l <"$root/examples/pool_mmap.c")" -le 60
check "the pool's example follows a plan" test "$(sed -n 's/.*, \([0-9]*\) from the plan.*/\1/p' out)" -ge 7000

# shellcheck disable=SC2046
if cc -std=c11 -Wall -Wextra -pedantic -Werror "$root/examples/embed.c" $(pkg-config --cflags --libs ebb) -o embed 2>log &&
    ./embed >out 2>&1; then
    pass "the executor's example runs"
else
    fail "the executor's example runs" "$(cat log out)"
fi
check "the executor's example has at most 150 lines" test "$(wc -l <"$root/examples/embed.c")" -le 150
check "the executor's example: its peak is as planned" \
    test "$(grep -c 'planned peak *\([0-9]*\), touched *\1,' out)" -eq 2
check "the executor's example: the same bits" grep -qx 'the same bits' out
check "the executor's example: something left" grep -q 'copied out *[1-9]' out

sed -n '/^```c$/,/^```$/{/^```/d;p}' "$root/docs/pool.md" >pool.c
# shellcheck disable=SC2046
if cc -std=c11 -Wall -Wextra -pedantic -Werror pool.c $(pkg-config --cflags --libs ebb) -o pool 2>log && ./pool >out 2>&1; then
    pass "the program in docs/pool.md runs"
else
    fail "the program in docs/pool.md runs" "$(cat log out)"
fi
check "it gets the same addresses in each iteration" test "$(sort -u out | wc -l)" = 1 -a "$(wc -l <out)" = 3

sed -n '/^```c$/,/^```$/{/^```/d;p}' "$root/docs/placement.md" >place.c
# shellcheck disable=SC2046
if cc -std=c11 -Wall -Wextra -pedantic -Werror place.c $(pkg-config --cflags --libs ebb) -o place 2>log && ./place >out 2>&1; then
    pass "the program in docs/placement.md runs"
else
    fail "the program in docs/placement.md runs" "$(cat log out)"
fi
equal "its arena is as small as can be" "$(tail -n 1 out)" "an arena of 4024 bytes; none below 4024 can do"

if [ -e "$digits" ]; then
    if ./train_digits "$digits" 4MiB >out 2>&1; then pass "the example trains"; else fail "the example trains" "$(cat out)"; fi
    accuracy=$(sed -n 's/.*accuracy \([0-9]*\)\..*/\1/p' out)
    check "the example learns" test "${accuracy:-0}" -ge 95
else
    skip "the example trains" "there is no $digits"
fi

mkdir consumer
cat >consumer/CMakeLists.txt <<END
cmake_minimum_required(VERSION 3.20)
project(consumer LANGUAGES C)
find_package(ebb 0.1 REQUIRED)
add_executable(train_digits $root/examples/train_digits.c)
target_link_libraries(train_digits PRIVATE ebb::ebb)
END
if { cmake -S consumer -B consumer/build -DCMAKE_PREFIX_PATH="$work/prefix" && cmake --build consumer/build; } >log 2>&1; then
    pass "the example builds with find_package"
else
    fail "the example builds with find_package" "$(tail -5 log)"
fi
exit $status
