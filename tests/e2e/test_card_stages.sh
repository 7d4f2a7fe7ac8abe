#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# The stages of the tests for a card (tests/card/test_card.sh), with programs that hang or fail in place of ebb: each section
# has its line, whatever becomes of the one before it, and what is said is seen and kept. Nothing is said about a card.
. "$(dirname "$0")/lib.sh"
unset SMALL BACKEND CUDA_HOME

# program NAME BODY: what `train` does; and it has a card.
program() {
    mkdir "$1"
    printf '#!/bin/sh\ncase $1 in probe) echo a card ;; *) %s ;; esac\n' "$2" >"$1/ebb"
    chmod +x "$1/ebb"
}
card() { # STAGE PROGRAM OPTIONS...
    stage=$1 build=$2
    shift 2
    env STAGE="$stage" EBB="$work/$build/ebb" PYTHON=false "$@" "$root/tools/run-tests" --live kept.txt \
        "$root/tests/card/test_card.sh" >out 2>&1
}
program hangs 'sleep 1000'
printf '#!/bin/sh\nsleep 1000\n' >hangs/test_conformance_cuda && chmod +x hangs/test_conformance_cuda
program fails 'exit 1'
printf '#!/bin/sh\necho "of the suite"\nexit 3\n' >fails/test_conformance_cuda && chmod +x fails/test_conformance_cuda

named() { # WORD: the names of the cases that begin so, in order
    sed -n "s/^$1 - \([a-z_]*\).*/\1/p" out | tr '\n' ' '
}

card 1 hangs LIMIT=4
equal "sections that hang are stopped, and the next one runs" "$? $(named 'not ok')" "1 conformance beside_ref captured "
equal "each says why" "$(grep -c 'stopped after its share of the time, [0-9]* s$' out)" 3
equal "what the card is is shown" "$(head -n 1 out)" "    a card"
card 1 fails
equal "sections that fail" "$? $(grep -c '^== ' out)" "1 4"
equal "each has its line" "$(named 'not ok')" "conformance gradients gradients gradients gradients captured fed "
check "what a section says is shown" grep -qx '    of the suite' out
equal "all was kept, of both" "$(grep -c '^== ' kept.txt)" 8
for stage in 2 3; do
    card $stage fails
    some "stage $stage has sections" $(sed -n 's/^== //p' out)
done
equal "memcheck is the last" "$(sed -n 's/^== //p' out | tail -n 1)" memcheck
card 4 fails
equal "a stage that is none" "$? $(grep -c '^not ok - stage 4$' out)" "1 1"
card 1 fails BACKEND=none # its probe has a card, and its suite is not there
check "no suite is a failure" grep -q '^not ok - conformance$' out
printf '#!/bin/sh\necho "ebb: no card" >&2\nexit 5\n' >fails/ebb
card 1 fails
equal "without a card all is skipped" "$? $(tail -n 1 out)" "0 0 passed, 0 failed, 4 skipped"
exit $status
