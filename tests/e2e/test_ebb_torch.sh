#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# The recorder for PyTorch, under each Python that is found with torch and torchvision (PYTHON names more, separated by
# blanks), beside a counter of allocations in C. Before that: what python/ebb/trace.py writes is what the library writes.
. "$(dirname "$0")/lib.sh"
PYTHONDONTWRITEBYTECODE=1
export PYTHONDONTWRITEBYTECODE

for threads in 1 2; do
    run "record" out train lenet --steps 2 --threads $threads --memory 80% --record own || continue
    python3 "$root/tests/e2e/trace_reader.py" own copy
    check "a trace of ebb's own, read and written in Python" cmp -s own copy
done
head -c 3000 own >part # within a record; those before it are whole
python3 "$root/tests/e2e/trace_reader.py" part copy
whole=$(wc -c <copy)
check "one that was cut off" test "$whole" -gt 2500 -a "$(cksum <copy)" = "$(head -c "$whole" own | cksum)"

cc -std=gnu11 -O2 -shared -fPIC -o count_alloc.so "$root/tests/e2e/count_alloc.c" -ldl -pthread || fail "the counter"
tried=
for python in ${PYTHON:-} /usr/bin/python3 python3; do
    version=$("$python" -c 'import torch, torchvision; print(torch.__version__)' 2>/dev/null) || continue
    case " $tried " in *" $version "*) continue ;; esac
    tried="$tried $version"
    OMP_NUM_THREADS=1 LD_PRELOAD=$work/count_alloc.so "$python" -W ignore "$root/tests/e2e/torch_record.py" "$EBB" "$work" 2>err ||
        fail "the recorder with torch $version" "$(tail -n 5 err)"
done
[ -n "$tried" ] || skip "the recorder for PyTorch" "no Python with torch and torchvision"
exit $status
