#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# A build without oneDNN: installing it is noticed, and until then the program and the demonstration say what is missing.
. "$(dirname "$0")/lib.sh"
export COLUMNS=$wide

# A project that looks for oneDNN as ebb does, and finds none of the system's.
mkdir project
cat >project/CMakeLists.txt <<END2
cmake_minimum_required(VERSION 3.20)
project(finds LANGUAGES NONE)
set(EBB_CPU ON)
include($root/cmake/onednn.cmake)
message(NOTICE "found: \${dnnl_FOUND}")
add_custom_target(whatever ALL)
END2
cmake -S project -B project/out -DCMAKE_FIND_USE_CMAKE_SYSTEM_PATH=OFF -DCMAKE_FIND_USE_SYSTEM_ENVIRONMENT_PATH=OFF \
    -DCMAKE_MAKE_PROGRAM="$(command -v make)" >log 2>&1 || fail "configure" "$(cat log)"
check "without oneDNN the build says so" grep -q '^oneDNN 3 was not found' log
check "and how to get it" grep -q 'run tools/demo.sh' log
check "it was not found" grep -qi '^found: \(0\|false\)$' log
cmake --build project/out >log 2>&1
equal "a second build does not look again" "$(grep -c found: log)" 0

package=project/build/venv/lib/cmake/dnnl
mkdir -p $package
echo "set(dnnl_FOUND TRUE)" >$package/dnnl-config.cmake
printf 'set(PACKAGE_VERSION 3.2.0)\nset(PACKAGE_VERSION_COMPATIBLE TRUE)\n' >$package/dnnl-config-version.cmake
cmake --build project/out >log 2>&1
check "the next build finds what was installed since" grep -qi '^found: \(1\|true\)$' log

rm -r $package
cmake --build project/out >log 2>&1
check "and sees that it went" grep -qi '^found: \(0\|false\)$' log

# The program as one without cpu: the list of backends, by which it chooses, begins with ref.
cat >without_cpu.c <<'END2'
#include <stddef.h>
const char *ebb_backend_name(size_t i, const char **about_out) {
    if (about_out) { *about_out = ""; }
    return i == 0 ? "ref" : i == 1 ? "dry" : NULL;
}
END2
cc -shared -fPIC -o without_cpu.so without_cpu.c || fail "the library"
says_slow() { # name, count, arguments
    name=$1 count=$2
    shift 2
    LD_PRELOAD=$work/without_cpu.so "$EBB" "$@" >out 2>err </dev/null
    equal "$name" "$(grep -c '^ebb: warning: this build has no backend cpu.*tools/demo.sh' err)" "$count"
}
says_slow "train says once that ref computes" 1 train mlp --batch 2 --steps 2
says_slow "but not who asked for it" 0 train mlp --batch 2 --steps 1 --backend ref
says_slow "probe says it too" 1 probe
says_slow "plan computes nothing" 0 plan mlp --batch 2

# The demonstration, in a folder that has no digits, and with that program.
mkdir bare
printf '#!/bin/sh\nexec "%s" "$@"\n' "$EBB" >bare/ebb
chmod +x bare/ebb
"$root/tools/demo" bare >out 2>err
equal "the demonstration without digits" $? 2
check "says what gets them" grep -q '^demo: the digits (build/digits/digits.csv.gz) are not there.*Run tools/demo.sh' err
check "in a line" test "$(wc -l <err)" = 1 -a ! -s out
printf '#!/bin/sh\nLD_PRELOAD=%s exec "%s" "$@"\n' "$work/without_cpu.so" "$EBB" >bare/ebb
mkdir -p build/digits && touch build/digits/digits.csv.gz
"$root/tools/demo" bare >out 2>err
equal "the demonstration without oneDNN" $? 2
check "says what gets it" grep -q '^demo: the build has no backend cpu.*Run tools/demo.sh' err
exit $status
