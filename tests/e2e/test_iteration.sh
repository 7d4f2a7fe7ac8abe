#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# The iterations of PyTorch trainings, as ebb.torch records them, under each Python that is found with torch (PYTHON
# names one more), beside its marks; and of programs of each kind, beside what they say themselves. Then of equal layers,
# as PyTorch's profiler sees it: the first step, which makes the momenta, is warm-up; all others are one iteration each,
# to the event; one step alone has none. That is left out where no profiler tells of memory. With EBB_TEST_ALL there are
# more cases, all programs and larger networks, which takes minutes.
. "$(dirname "$0")/lib.sh"
PYTHONDONTWRITEBYTECODE=1
export PYTHONDONTWRITEBYTECODE

tried=
for candidate in ${PYTHON:-} /usr/bin/python3 python3; do
    version=$("$candidate" "$root/tests/e2e/torch_version.py" 2>/dev/null) || continue
    case " $tried " in *" $version "*) continue ;; esac
    tried="$tried $version"
    "$candidate" -W ignore "$root/tests/e2e/torch_iteration.py" "$EBB" "$work" 2>err ||
        fail "iterations with torch $version" "$(tail -n 5 err)"
done
python=
for candidate in ${PYTHON:-} python3 /usr/bin/python3; do
    "$candidate" "$root/tests/e2e/torch_version.py" >out 2>&1 && python=$candidate && break
done
[ -n "$python" ] || {
    skip "the iteration of a PyTorch training" "no Python with torch"
    exit 77
}

events() { # file
    "$EBB" import "$1" -o t.trace --json 2>err | sed -n 's/.*"events": \([0-9]*\).*/\1/p'
}

for n in 1 5; do
    "$python" "$root/tests/e2e/profile_transformer.py" $n $n.json >out 2>&1 || fail "profile" "$(tail -n 3 out)"
done
grep -q '\[memory\]' 5.json || { # a PyTorch built without Kineto, as Debian's, writes none
    skip "the iteration of a PyTorch training" "the profiler of $python tells no memory"
    exit $status
}
one=$(events 1.json)
five=$(events 5.json)
check "four steps more are four times as many events" [ $(((five - one) % 4)) = 0 ]
"$EBB" report 5.json --json >five 2>err || fail "report" "$(cat err)"
"$EBB" report 1.json --json >one 2>err || fail "report" "$(cat err)"
found() { # file, key
    "$python" -c 'import json, sys; print(json.load(open(sys.argv[1]))["iteration"][sys.argv[2]])' "$1" "$2"
}
equal "of five steps: found" "$(found five found)" True
equal "of five steps: the first behind the warm-up" "$(found five first_event)" "$one"
equal "of five steps: the length" "$(found five length_events)" $(((five - one) / 4))
equal "of five steps: the count" "$(found five count)" 4
equal "of one step: not found" "$(found one found)" False
exit $status
