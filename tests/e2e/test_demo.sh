#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# The demonstration in small: its lines fit a terminal of 100 columns, and a per cent is of what freeing in time needs, as
# --memory has it.
. "$(dirname "$0")/lib.sh"

"$EBB" help train | grep -q '^  cpu ' && [ -e "$digits" ] || {
    skip "the demonstration" "there is no $digits, or this build has no backend cpu"
    exit $status
}
cat >small.py <<'END2'
import importlib.machinery
import importlib.util
import sys

loader = importlib.machinery.SourceFileLoader("demo", sys.argv[1])
demo = importlib.util.module_from_spec(importlib.util.spec_from_loader("demo", loader))
loader.exec_module(demo)
demo.DIGITS = sys.argv[3]
demo.DIGITS_NET = ["resnet_cifar:1", "--data", "digits:" + sys.argv[3], "--batch", "128", "--epochs", "2", "--lr", "0.1"]
demo.DIGITS_ACCURACY, demo.DIGITS_PERCENT = 0, 40
demo.RESNET = ["resnet20", "--batch", "64", "--image", "32x32", "--seed", "1"]
demo.MACHINE = "machine"
sys.argv = ["demo", sys.argv[2]]
sys.exit(demo.main())
END2
PYTHONDONTWRITEBYTECODE=1 python3 small.py "$root/tools/demo" "$(dirname "$EBB")" "$digits" >out 2>err
equal "the demonstration ends well" "$? $(cat err)$(grep "NOT as promised" out)" "0 "
empty "no line has more than 100 columns" "$(awk 'length($0) > 100' out)"
run "what --memory counts from" plan plan resnet20 --batch 64 --image 32x32 --json
need=$(member plan liveness_bytes)
all=$(sed -n 's/^ *100% *\([0-9]*\) .*/\1/p' out)
check "100% is what liveness needs" test "${all:-0}" -gt $((need * 95 / 100)) -a "${all:-0}" -le "$need"
half=$(sed -n 's/^ *50% *\([0-9]*\) .*/\1/p' out)
check "50% is half of it" test "${half:-0}" -gt $((need * 40 / 100)) -a "${half:-0}" -le $((need / 2))
check "the first part says what its per cent is of" grep -q 'Here: --memory 40%' out
equal "headers are words" "$(grep -cE 'pred\.|meas\.|again s' out)" 0
exit $status
