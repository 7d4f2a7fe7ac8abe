#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# A card's machine may have a toolkit, a compiler and CMake, and no package more: the plug-in alone builds there
# (-DEBB_CUDA=ONLY), cuDNN is found in any Python's packages, and a packed build (tools/pack-cuda) needs nothing but the C
# library. Without a toolkit what needs one is skipped. The long form also builds both.
. "$(dirname "$0")/lib.sh"
unset PYTHON TORCH VIRTUAL_ENV CONDA_PREFIX
cache=$(dirname "$EBB")/CMakeCache.txt

# ---- cuDNN in the packages of a Python that cannot even run, in a folder with a blank in its name
package="$work/a python/lib/python3.12/site-packages/nvidia"
mkdir -p "$package/cudnn/lib" "$package/cudnn/include" "$package/cu13/lib" "$work/a python/bin"
touch "$package/cudnn/lib/libcudnn.so.9" "$package/cudnn/include/cudnn_backend.h" "$package/cu13/lib/libcublasLt.so.13"
find_nvidia() {
    env "$@" "$root/tools/find-nvidia" | head -n 1
}
equal "cuDNN of a Python on PATH" "$(find_nvidia PATH="$work/a python/bin:$PATH")" "$package"
printf '#!/bin/sh\nexit 1\n' >"$work/a python/bin/python3" && chmod +x "$work/a python/bin/python3"
mkdir -p environment/bin && ln -s "$work/a python/bin/python3" environment/bin/python3
equal "cuDNN of the Python that is named, through its link" \
    "$(find_nvidia TORCH="$work/environment/bin/python3")" "$package"
equal "each folder once" "$("$root/tools/find-nvidia" | sort | uniq -d | wc -l)" 0

mkdir project
cat >project/CMakeLists.txt <<END2
cmake_minimum_required(VERSION 3.20)
project(finds LANGUAGES NONE)
set(CMAKE_FIND_LIBRARY_PREFIXES lib)
set(CMAKE_FIND_LIBRARY_SUFFIXES .so .a)
set(CUDAToolkit_VERSION_MAJOR 13)
include($root/cmake/nvidia.cmake)
ebb_find_vendor(CUDNN cudnn_backend.h cudnn 9)
ebb_find_vendor(CUBLASLT cublasLt.h cublasLt 13)
END2
PATH="$work/a python/bin:$PATH" cmake -S project -B found -DCMAKE_FIND_USE_CMAKE_SYSTEM_PATH=OFF \
    -DCMAKE_MAKE_PROGRAM="$(command -v make)" >log 2>&1 || fail "configure" "$(cat log)"
found() { # NAME TYPE
    sed -n "s/^$1:$2=//p" found/CMakeCache.txt
}
equal "its library" "$(found CUDNN_LIBRARY FILEPATH)" "$package/cudnn/lib/libcudnn.so.9"
equal "its headers" "$(found CUDNN_INCLUDE_DIR PATH)" "$package/cudnn/include"
equal "cuBLASLt there" "$(found CUBLASLT_LIBRARY FILEPATH)" "$package/cu13/lib/libcublasLt.so.13"

# ---- the plug-in alone, with every package hidden
alone() {
    PKG_CONFIG_LIBDIR=$work/none cmake -S "$root" -B alone -DEBB_CUDA=ONLY -DCMAKE_CUDA_ARCHITECTURES=90-virtual \
        -DCMAKE_DISABLE_FIND_PACKAGE_PkgConfig=ON -DCMAKE_DISABLE_FIND_PACKAGE_JPEG=ON \
        -DCMAKE_DISABLE_FIND_PACKAGE_PNG=ON -DCMAKE_DISABLE_FIND_PACKAGE_ZLIB=ON "$@" >log 2>&1
}
alone -DCMAKE_DISABLE_FIND_PACKAGE_CUDAToolkit=ON && fail "the plug-in alone, without a toolkit" ||
    check "the plug-in alone, without a toolkit" \
        grep -q 'EBB_CUDA is ONLY, and the CUDA toolkit (12 or later) was not found' log
rm -rf alone
if ! grep -q '^CMAKE_CUDA_COMPILER:[A-Z]*=/' "$cache"; then
    for case in "the plug-in alone" "it builds" "the pack"; do skip "$case" "this build found no CUDA toolkit with cuDNN"; done
    exit $status
fi
if alone; then pass "the plug-in alone"; else fail "the plug-in alone" "$(tail -n 20 log)"; fi
equal "and nothing else" "$(cmake --build alone --target help | grep -c 'ebb_cli\|ebb_objects')" 0
if [ -z "$EBB_TEST_ALL" ]; then
    for case in "it builds" "the pack"; do skip "$case" "a part of make test-all"; done
    exit $status
fi
if cmake --build alone -j2 >log 2>&1; then pass "it builds"; else fail "it builds" "$(tail -n 20 log)"; fi
cudnn=$(dirname "$(sed -n 's/^CUDNN_LIBRARY:FILEPATH=//p' alone/CMakeCache.txt)")
check "its run path leads to cuDNN" sh -c "readelf -d alone/libebb_cuda.so | grep RUNPATH | grep -qF '$cudnn'"
mkdir beside && cp -L "$(dirname "$EBB")/libebb.so.0" alone/libebb_cuda.so beside/
if ldconfig -p | grep -q 'libcuda\.so\.1'; then
    LD_LIBRARY_PATH=$PWD/beside "$EBB" probe --backend cuda >out 2>err
    empty "it belongs to this libebb" "$(grep 'no plug-in' err)"
else
    LD_LIBRARY_PATH=$PWD/beside complains "it belongs to this libebb" 5 "cuda: there is no NVIDIA driver" probe --backend cuda
fi

# ---- a packed build over the fake CUDA, in a root with the C library and nothing else
# Its speed does not matter here, and -O1 compiles in two thirds of the time.
if "$root/tools/pack-cuda" "$work/root/pack" -DEBB_CUDA=FAKE -DCMAKE_BUILD_TYPE=None -DCMAKE_C_FLAGS=-O1 >log 2>&1; then pass "the pack"; else
    fail "the pack" "$(tail -n 20 log)"
    exit 1
fi
check "says how large it is" grep -q '^.*/root/pack: [0-9]* KiB$' log
check "holds what tests and measures" test -x root/pack/bench_workspaces -a -s root/pack/commit
equal "has each library in it but the C library's and the compiler's" "$(LC_ALL=C ldd root/pack/ebb root/pack/*.so* |
    sed -n 's/^.*\(lib[a-zA-Z_+]*[^ ]*\) => \/.*/\1/p' | grep -v '^lib\(c\|m\|gcc_s\|stdc++\|dl\|pthread\)\.' |
    while read -r name; do [ -e "root/pack/$name" ] || echo "$name"; done | wc -l)" 0
equal "looks in no folder that it happens to be run from" \
    "$(readelf -d root/pack/ebb root/pack/*.so* | grep 'R.*PATH' | grep -c '\[:\|::\|:\]')" 0
if [ "$(id -u)" != 0 ]; then
    skip "it runs where nothing is installed" "only root can change the root"
    exit $status
fi
for library in $(LC_ALL=C ldd "$EBB" | tr ' \t' '\n\n' | grep -E '^/.*/(ld-linux|libc\.|libm\.)'); do
    mkdir -p "root$(dirname "$library")" && cp -L "$library" "root$library"
done
mkdir root/tmp # without /proc a program is told where it lies
LD_ORIGIN_PATH=/pack PATH=$PATH:/usr/sbin chroot root /pack/ebb train resnet20 --image 16x16 --batch 16 --classes 10 \
    --steps 3 --memory 60% --backend cuda --json >out 2>err || cat err
equal "it runs where nothing is installed" "$(losses out | wc -l)" 3
exit $status
