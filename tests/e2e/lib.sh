# SPDX-License-Identifier: Apache-2.0
#
# What the tests of the command line share; sourced from a script that stands beside it. They run in a folder of
# their own, which goes when they end. EBB names the program (default build/release/ebb). Each case prints a line
# that tools/run-tests counts.

root=$(cd "$(dirname "$0")/../.." && pwd)
case ${EBB:=$root/build/release/ebb} in /*) ;; *) EBB=$root/$EBB ;; esac
digits=$root/build/digits/digits.csv.gz
work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT
trap 'exit 1' INT TERM
cd "$work" || exit 1
unset COLUMNS # outputs have the terminal's width, or their own
export EBB_PROGRESS_S=0 # what is on stderr does not depend on how long the work takes
status=0
# For plans that only have to be there: a quick search, or the usual one where all tests run.
effort=
[ -n "$EBB_TEST_MORE" ] || effort="--effort 0"

[ -x "$EBB" ] || {
    echo "not ok - there is no $EBB"
    exit 1
}

pass() {
    echo "ok - $1"
}

fail() { # name, more lines
    printf '%s\n' "$@" | sed '1s/^/not ok - /; 2,$s/^/    /'
    status=1
}

skip() { # name, reason
    echo "ok - $1 # SKIP $2"
}

# long NAME: whether all tests run; where they do not, NAME is told as left out.
long() {
    [ -n "$EBB_TEST_ALL" ] && return
    skip "$1" "it takes long, and runs with tools/test.sh all"
    return 1
}

# check NAME CONDITION...: the condition is a command.
check() {
    name=$1
    shift
    if "$@"; then pass "$name"; else fail "$name" "$* is not so"; fi
}

# equal NAME A B: two empty texts are not equal, since both may have failed to be made. Where nothing is right: empty.
equal() {
    if [ -z "$2$3" ]; then
        fail "$1" "both sides are empty"
    elif [ "$2" = "$3" ]; then
        pass "$1"
    else
        fail "$1" "$2" "is not" "$3"
    fi
}

empty() { # name, text
    if [ -z "$2" ]; then pass "$1"; else fail "$1" "$2" "is not empty"; fi
}

# some NAME WORD...: a list that a loop goes through has something in it.
some() {
    name=$1
    shift
    check "$name: there is at least one" test $# -gt 0
}

# Messages are as wide as COLUMNS says. This one has room for any of them in one line; unfold joins the lines of others.
wide=10000
unfold() {
    sed -e ':a' -e '$!N' -e 's/\n     */ /' -e ta -e P -e D "$@"
}

# says NAME CODE STDERR ARGUMENTS...: ebb prints nothing on stdout, exactly this on stderr, and ends with CODE.
says() {
    name=$1 code=$2 text=$3
    shift 3
    COLUMNS=$wide "$EBB" "$@" >out 2>err </dev/null
    got=$?
    if [ $got = "$code" ] && [ "$(cat err)" = "$text" ] && [ ! -s out ]; then
        pass "$name"
    else
        fail "$name" "ebb $*" "exit $got, wanted $code" "stderr: $(cat err)" "wanted: $text" "stdout: $(head -c 500 out)"
    fi
}

# complains NAME CODE PATTERN ARGUMENTS...: one line on stderr that begins with 'ebb: ' and fits the pattern.
complains() {
    name=$1 code=$2 pattern=$3
    shift 3
    COLUMNS=$wide "$EBB" "$@" >out 2>err </dev/null
    got=$?
    if [ $got = "$code" ] && [ "$(wc -l <err)" = 1 ] && grep -q '^ebb: ' err && grep -qE -e "$pattern" err; then
        pass "$name"
    else
        fail "$name" "ebb $*" "exit $got, wanted $code" "stderr: $(head -c 800 err)" "wanted one line with: $pattern"
    fi
}

# run NAME FILE ARGUMENTS...: ebb ends well, its stdout goes to FILE.
run() {
    name=$1 file=$2
    shift 2
    "$EBB" "$@" >"$file" 2>err </dev/null && return 0
    fail "$name" "ebb $*" "exit $?" "stderr: $(head -c 800 err)"
    return 1
}

# Whether this machine gives programs terminals; a root that was changed into may not.
has_terminals() {
    python3 -c 'import pty; pty.openpty()' 2>/dev/null
}

# member FILE KEY: of the last object in FILE that has it. If none has it, a text that is equal to no other file's and no
# number.
member() {
    sed -n "s/.*\"$2\": \"\{0,1\}\([^,\"}]*\).*/\1/p" "$1" | tail -n 1 | grep . || echo "[no $2 in $1]"
}

# Plans are made for one machine, so that a budget that is the least stays the least. ON: options that say which.
machine() {
    # shellcheck disable=SC2086
    "$EBB" probe -o machine $ON >out 2>err || fail "probe" "$(cat err)"
}

# fit PERCENT ARGUMENTS...: budget becomes that per cent of what liveness needs, or the least for which there is a
# plan where that is more (a small batch in front of large weights).
fit() {
    budget=$1
    shift
    "$EBB" plan "$@" --memory "$budget" --json >fit 2>err || budget=$(member fit least_budget_bytes)
}

# largest_scratch ARGUMENTS...: the most scratch that a step of the program declares.
largest_scratch() {
    "$EBB" plan "$@" --program-out program >plan 2>err || fail "largest_scratch $*" "$(cat err)"
    sed -n 's/^step .* choice "[^"]*" \([0-9]*\) .*/\1/p' program | sort -n | tail -n 1 | grep .
}

# as_planned NAME MEASURED PLANNED SCRATCH: the peaks are equal, but for the end of a scratch that a kernel does not use.
as_planned() {
    if [ "$2" = "$3" ]; then
        pass "$1"
    else
        check "$1: $(($3 - $2)) bytes of scratch were left untouched" test "$2" -lt "$3" -a $(($2 + $4)) -gt "$3"
    fi
}

# torch_python STATEMENTS: python becomes a Python in which these work, and finds libebb: PYTHON, Debian's or the path's.
torch_python() {
    export PYTHONDONTWRITEBYTECODE=1 EBB_LIBRARY="$(dirname "$EBB")/libebb.so"
    for python in ${PYTHON:-} /usr/bin/python3 python3; do
        "$python" -c "$1" 2>/dev/null && return 0
    done
    return 1
}

# losses FILE: the bits of each step's loss.
losses() {
    sed -n 's/.*"loss_hex": "\([0-9a-f]*\)".*/\1/p' "$1" | grep . || echo "[no losses in $1]"
}
