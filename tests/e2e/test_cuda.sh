#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# The backend cuda where it cannot be had: exit code 5 and one line that says what is missing, whether the plug-in is
# not there, is no plug-in, or finds no driver. A copy of libebb alone in a folder stands for a build without it.
. "$(dirname "$0")/lib.sh"

build=$(dirname "$EBB")
mkdir alone && cp -L "$build"/libebb.so.0 alone/
missing() { # name, pattern, file that is said to be the plug-in
    rm -f alone/libebb_cuda.so
    [ -z "$3" ] || cp "$3" alone/libebb_cuda.so
    LD_LIBRARY_PATH=$PWD/alone complains "$1" 5 "$2" train mlp --steps 1 --backend cuda
}
missing "no plug-in" "backend cuda: there is no libebb_cuda.so in .*/alone, .*toolkit" ""
echo "no library" >text
missing "a plug-in that is no library" "backend cuda: a library that it needs cannot be loaded: .*libebb_cuda.so" text
missing "a library that is no plug-in" "libebb_cuda.so is no plug-in of this version" "$build/libebb_record.so"

echo "int part;" >part.c && cc -shared -fPIC -o libpart.so part.c &&
    cc -shared -fPIC -o whole.so part.c -L. -Wl,--no-as-needed -lpart && rm libpart.so || fail "libraries for the test"
missing "a plug-in that lacks a library" "cannot be loaded: libpart.so: .*; install it, or name its folder" whole.so
equal "help names it" "$("$EBB" help train | grep -c '^  cuda  *an NVIDIA GPU')" 1

if [ ! -e "$build/libebb_cuda.so" ]; then
    skip "no driver" "this build has no plug-in"
elif ldconfig -p | grep -q 'libcuda\.so\.1'; then
    skip "no driver" "there is one"
else
    for command in "train mlp --steps 1" "plan mlp" probe; do
        complains "$command without a driver" 5 "cuda: there is no NVIDIA driver .*; install one" $command --backend cuda
    done
fi

# Configured only: what is missing is one line, unless it was demanded.
configure() {
    cmake -S "$root" -B configured -DEBB_TESTS=OFF -DCMAKE_DISABLE_FIND_PACKAGE_CUDAToolkit=ON "$@" >log 2>&1
}
configure && equal "a machine without a toolkit" "$(grep -c 'the backend cuda is left out$' log)" 1
configure -DEBB_CUDA=OFF && equal "nobody looks" "$(grep -c 'backend cuda' log)" 0
configure -DEBB_CUDA=ON && fail "a toolkit that is demanded" ||
    check "a toolkit that is demanded" grep -q 'EBB_CUDA is ON, and the CUDA toolkit (12 or later) was not found' log
exit $status
