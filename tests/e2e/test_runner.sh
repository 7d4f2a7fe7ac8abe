#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# The tests of the tests: tools/run-tests and tests/e2e/lib.sh fail where nothing was tested, and the list of programs for
# the thread sanitizer is not empty and right.
. "$(dirname "$0")/lib.sh"

# ends NAME STATUS LAST_LINE ARGUMENTS...: what tools/run-tests makes of these.
ends() {
    name=$1 code=$2 last=$3
    shift 3
    "$root/tools/run-tests" "$@" >out 2>&1
    equal "$name" "$? $(tail -n 1 out)" "$code $last"
}

# script FILE BODY: an executable one.
script() {
    printf '#!/bin/sh\n%s\n' "$2" >"$1"
    chmod +x "$1"
}

mkdir none some lost
script some/test_good.sh 'echo "ok - one"; echo "ok - two # SKIP why"'
script some/test_mute.sh 'exit 0'
script some/test_skips.sh 'exit 77'
script some/test_no_case.sh 'echo "[==========] Running 0 test(s)."; echo "[  PASSED  ] 0 test(s)."'
script lost/test_good.sh 'echo "ok - one"'
echo 'echo "ok - one"' >lost/test_lost.sh
ends "nothing to run" 1 "0 passed, 1 failed, 0 skipped"
ends "a folder without tests" 1 "0 passed, 1 failed, 0 skipped" none
check "it is named" grep -q '^FAIL none has no tests$' out
ends "it beside one with tests" 1 "1 passed, 1 failed, 1 skipped" none some/test_good.sh
ends "a script that is not executable" 1 "1 passed, 1 failed, 0 skipped" lost
check "it is named" grep -q '^FAIL lost/test_lost.sh is not executable$' out
ends "a name that is not there" 1 "1 passed, 1 failed, 1 skipped" --only test_good.sh --only test_gone some
check "it is named" grep -q '^FAIL there is no test_gone$' out
ends "a pattern that fits none" 1 "0 passed, 1 failed, 0 skipped" --only 'test_x*' some
ends "a pattern beside one that fits none" 0 "1 passed, 0 failed, 1 skipped" --only 'test_x*' --only 'test_g*' some
ends "a program that reports nothing" 1 "0 passed, 1 failed, 0 skipped" some/test_mute.sh
ends "a program of no cases" 1 "0 passed, 1 failed, 0 skipped" some/test_no_case.sh
ends "a program that is skipped" 0 "0 passed, 0 failed, 1 skipped" some/test_skips.sh
script some/test_slow.sh 'echo "ok - one"; sleep 1000'
ends "a program that takes too long" 1 "1 passed, 1 failed, 0 skipped" -t 1 some/test_slow.sh
check "it says so" grep -q '^stopped: it took more than 1 s$' out
ends "lines as they come" 1 "1 passed, 1 failed, 0 skipped" -t 1 --live kept some/test_slow.sh
equal "are shown once and kept" "$(grep -c '^ok - one$' out) $(cat kept)" "1 ok - one"
check "with the exit status" grep -qx '     exit status 124' out

# What lib.sh says of nothing. In a subshell: these failures are wanted.
says_not() { # name, command...
    title=$1
    shift
    ("$@") >said
    check "$title" grep -q '^not ok - ' said
}
says_not "two empty texts are not equal" equal x "" ""
says_not "a list of nothing" some x
says_not "what should be empty" empty x y
echo '{"a": 1}' >one
check "a member that is there" [ "$(member one a)" = 1 ]
says_not "a member that is in neither file" equal x "$(member one b)" "$(member two b 2>/dev/null)"
says_not "a member that is not there, as a number" check x test "$(member one b)" -ge 0

# The list for the thread sanitizer, as the build makes it: it stands in cmake/tests.cmake.
listed=$(sed -n '/^set(ebb_threaded_tests/,/)/p' "$root/cmake/tests.cmake" | tr ' ()' '\n\n\n' | grep '^test_')
some "programs with threads" $listed
for name in $listed; do
    check "$name is a test" [ -n "$(find "$root/tests" -name "$name.c")" ]
done
exit $status
